//! A sweep's folder, read for its page: the manifest and the table.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use ropewalk_algorithms::Registries;
use ropewalk_lab::objective::OBJECTIVE;
use ropewalk_lab::report::Origin;
use ropewalk_lab::report::sweep::{Axis, Level, Point, Sweep};
use ropewalk_lab::scenario;
use ropewalk_lab::sweep::{Overrides, Questions, parse_with};
use ropewalk_settings::diagnostic::{Diagnostic, Source};
use ropewalk_settings::input::no_files;
use serde_json::Value;

use crate::sweep::Files;

/// Reads a sweep's folder.
///
/// # Errors
/// A folder without a sweep, a sweep that isn't finished, tables that can't be read.
pub fn read(folder: &Path) -> Result<(Origin, Sweep), Diagnostic> {
    let files = Files::in_folder(folder);
    let manifest = manifest(&files.manifest)?;
    let text = |place: &[&str]| {
        let found = place.iter().try_fold(&manifest, |value, key| value.get(*key));
        found.and_then(Value::as_str).unwrap_or_default().to_string()
    };
    let texts = |key: &str| {
        let list = manifest.get(key).and_then(Value::as_array).into_iter().flatten();
        list.filter_map(Value::as_str).map(String::from).collect::<Vec<_>>()
    };
    let whole = |key: &str| manifest.get(key).and_then(Value::as_u64).unwrap_or(0);
    if manifest.get("finished").and_then(Value::as_bool) != Some(true) {
        return Err(Diagnostic::new(format!("{}: the sweep isn't finished", folder.display()))
            .help("the same `ropewalk sweep` goes on where it was interrupted"));
    }
    let congestion = texts("congestion");
    let schedulers = texts("schedulers");
    let label = |scheduler: &str, control: &str| {
        if congestion.len() > 1 { format!("{scheduler}, {control}") } else { scheduler.to_string() }
    };
    let runners: Vec<String> = congestion
        .iter()
        .flat_map(|control| schedulers.iter().map(|scheduler| label(scheduler, control)))
        .collect();
    let grid = text(&["design", "kind"]) == "grid";
    let varied: Vec<(Axis, String)> = manifest
        .get("varied")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|axis| {
            let field = |key: &str| axis.get(key).and_then(Value::as_str).map(String::from);
            let level = |level: &Value| Level {
                text: level.get("text").and_then(Value::as_str).unwrap_or_default().to_string(),
                number: level.get("number").and_then(Value::as_f64),
            };
            let levels = axis.get("levels").and_then(Value::as_array).filter(|_| grid);
            let axis = Axis {
                name: field("parameter").unwrap_or_default(),
                unit: field("unit"),
                levels: levels.map(|levels| levels.iter().map(level).collect()),
            };
            (axis, field("column").unwrap_or_default())
        })
        .collect();
    let (mut axes, columns): (Vec<Axis>, Vec<String>) = varied.into_iter().unzip();
    let mut points: BTreeMap<i64, Point> = BTreeMap::new();
    each_row(&files.runs, |row| {
        let field =
            |name: &str| row.get_column_iter().find(|(known, _)| *known == name).map(|(_, field)| field);
        let number = |name: &str| field(name).and_then(as_number);
        let word = |name: &str| field(name).and_then(as_text).unwrap_or_default();
        let Some(point) = number("point") else { return };
        let runner = label(&word("scheduler"), &word("congestion"));
        let Some(runner) = runners.iter().position(|known| *known == runner) else { return };
        let point = points.entry(point as i64).or_insert_with(|| {
            let at = axes.iter_mut().zip(&columns).map(|(axis, column)| {
                let amount = number(column);
                let shown = field(column).and_then(as_text);
                let text = shown.unwrap_or_else(|| amount.map_or(String::new(), |amount| amount.to_string()));
                place(axis, text, amount)
            });
            Point { at: at.collect(), runs: vec![Vec::new(); runners.len()] }
        });
        let complete = word("outcome") == "complete";
        point.runs[runner].push(number(OBJECTIVE.0).filter(|_| complete));
    })?;
    if points.is_empty() {
        return Err(Diagnostic::new(format!("{}: no runs in the sweep's tables", folder.display())));
    }
    let command: Vec<String> = texts("command");
    let origin = Origin::of(&command, &text(&["version"]));
    let title = Path::new(&text(&["sweep", "file"]))
        .file_stem()
        .map_or_else(|| text(&["scenario", "name"]), |stem| stem.to_string_lossy().into_owned());
    let names: Vec<&str> = axes.iter().map(|axis| axis.name.as_str()).collect();
    let summary = format!("{} with varied {}", text(&["scenario", "name"]), names.join(", "));
    let sweep = Sweep {
        title,
        summary,
        axes,
        runners,
        points: points.into_values().collect(),
        runs: whole("runs_per_point") as u32,
        seed: whole("seed"),
        questions: questions(&text(&["sweep", "text"]), &text(&["scenario", "text"]), &schedulers)
            .filter(|questions| questions.values.len() as u64 == whole("points")),
    };
    Ok((origin, sweep))
}

/// What the playground is asked at each point; none where that needs a file.
fn questions(sweep: &str, scenario: &str, schedulers: &[String]) -> Option<Questions> {
    let registries = Registries { open_file: no_files, ..Registries::builtin() };
    let source = Source::new("scenario.toml", scenario);
    let base = scenario::parse(&source, "scenario", Path::new(""), &registries).ok()?;
    let given = |label: &String| match label.strip_prefix("tcp ") {
        Some(path) => format!("tcp:{path}"),
        None => label.clone(),
    };
    let overrides = Overrides {
        base: Some((base, PathBuf::new())),
        schedulers: Some(schedulers.iter().map(given).collect()),
        ..Overrides::default()
    };
    let source = Source::new("sweep.toml", sweep);
    let design = parse_with(&source, Path::new(""), &overrides, &registries).ok()?;
    Questions::new(&design)
}

/// A level's number in its axis, which learns of it; a sampled axis has the value itself.
fn place(axis: &mut Axis, text: String, amount: Option<f64>) -> f64 {
    let Some(amount) = amount.filter(|_| axis.levels.is_none()) else {
        let levels = axis.levels.get_or_insert_with(Vec::new);
        let same = |level: &Level| level.text == text || amount.is_some() && level.number == amount;
        let found = levels.iter().position(same);
        return found.unwrap_or_else(|| {
            levels.push(Level { text, number: amount });
            levels.len() - 1
        }) as f64;
    };
    amount
}

fn manifest(path: &Path) -> Result<Value, Diagnostic> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Diagnostic::new(format!("{}: {error}", path.display())).help("a sweep's folder has its manifest.json")
    })?;
    let manifest: Value = serde_json::from_str(&text)
        .map_err(|error| Diagnostic::new(format!("{} is no JSON: {error}", path.display())))?;
    match manifest.get("format").and_then(Value::as_u64) {
        Some(2) => Ok(manifest),
        Some(format) => {
            Err(Diagnostic::new(format!("{}: format {format}; this version reads 2", path.display()))
                .help("run the sweep again into a new folder"))
        }
        None => Err(Diagnostic::new(format!("{}: no sweep's manifest: `format` is missing", path.display()))),
    }
}

fn each_row(path: &Path, mut take: impl FnMut(&Row)) -> Result<(), Diagnostic> {
    let failure = |error: &dyn std::fmt::Display| Diagnostic::new(format!("{}: {error}", path.display()));
    let file = File::open(path).map_err(|error| failure(&error))?;
    let reader = SerializedFileReader::new(file).map_err(|error| failure(&error))?;
    for row in reader.get_row_iter(None).map_err(|error| failure(&error))? {
        take(&row.map_err(|error| failure(&error))?);
    }
    Ok(())
}

fn as_number(field: &Field) -> Option<f64> {
    match field {
        Field::Long(number) => Some(*number as f64),
        Field::Double(number) => Some(*number),
        _ => None,
    }
}

fn as_text(field: &Field) -> Option<String> {
    match field {
        Field::Str(text) => Some(text.clone()),
        _ => None,
    }
}
