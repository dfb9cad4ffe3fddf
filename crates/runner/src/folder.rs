//! A sweep's folder, read for its page: the manifest and the table.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use ropewalk_algorithms::Registries;
use ropewalk_lab::objective::OBJECTIVE;
use ropewalk_lab::report::Origin;
use ropewalk_lab::report::sweep::{Axis, Level, Point, Sweep};
use ropewalk_lab::sweep::output::provenance;
use ropewalk_lab::sweep::{Overrides, Questions, parse_with};
use ropewalk_lab::tidy::{Column, Head, Table};
use ropewalk_lab::{csv, scenario};
use ropewalk_settings::diagnostic::{Diagnostic, Source, system_reason};
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
    let text = |place: &[&str]| text_at(&manifest, place);
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
    let heads = heads(&manifest);
    each_row(&files.runs, &heads, |fields| {
        let field = |name: &str| heads.iter().zip(fields).find(|(head, _)| head.name == name);
        let number = |name: &str| {
            let found = field(name).filter(|(head, _)| !matches!(head.kind, Column::Text(_)));
            found.and_then(|(_, field)| field.parse::<f64>().ok())
        };
        let word = |name: &str| field(name).map_or("", |(_, field)| field);
        let Some(point) = number("point") else { return };
        let runner = label(word("scheduler"), word("congestion"));
        let Some(runner) = runners.iter().position(|known| *known == runner) else { return };
        let point = points.entry(point as i64).or_insert_with(|| {
            let at = axes
                .iter_mut()
                .zip(&columns)
                .map(|(axis, column)| place(axis, word(column).to_string(), number(column)));
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
        Some(3) => Ok(manifest),
        Some(format) => {
            Err(Diagnostic::new(format!("{}: format {format}; this version reads 3", path.display()))
                .help("run the sweep again into a new folder"))
        }
        None => Err(Diagnostic::new(format!("{}: no sweep's manifest: `format` is missing", path.display()))),
    }
}

/// The whole table of a sweep's folder.
///
/// # Errors
/// As [`read`].
pub fn table(folder: &Path) -> Result<Table, Diagnostic> {
    let files = Files::in_folder(folder);
    let manifest = manifest(&files.manifest)?;
    let mut table = Table::new(heads(&manifest));
    let (heads, columns) = (&table.heads, &mut table.columns);
    let mut wrong = None;
    each_row(&files.runs, heads, |fields| {
        for ((field, column), head) in fields.iter().zip(&mut *columns).zip(heads) {
            if !column.push_field(field) && wrong.is_none() {
                wrong = Some(format!("{}: `{field}` in the column `{}`", files.runs.display(), head.name));
            }
        }
    })?;
    let text = |place: &[&str]| text_at(&manifest, place);
    let seed = manifest.get("seed").and_then(Value::as_u64).unwrap_or(0);
    let (sweep, scenario) = (text(&["sweep", "text"]), text(&["scenario", "text"]));
    table.provenance = provenance(&text(&["build"]), &text(&["sweep", "id"]), &sweep, &scenario, seed);
    match wrong {
        Some(message) => Err(Diagnostic::new(message)),
        None => Ok(table),
    }
}

fn text_at(manifest: &Value, place: &[&str]) -> String {
    let found = place.iter().try_fold(manifest, |value, key| value.get(*key));
    found.and_then(Value::as_str).unwrap_or_default().to_string()
}

/// The table's columns.
fn heads(manifest: &Value) -> Vec<Head> {
    let columns = manifest.get("columns").and_then(Value::as_array).into_iter().flatten();
    let head = |column: &Value| {
        let text = |key: &str| text_at(column, &[key]);
        Some(Head::new(&text("name"), &text("unit"), &text("meaning"), Column::of_type(&text("type"))?))
    };
    columns.filter_map(head).collect()
}

/// Passes each row's fields to `take`, in the order of the columns.
fn each_row(path: &Path, heads: &[Head], mut take: impl FnMut(&[String])) -> Result<(), Diagnostic> {
    let failure = |error: std::io::Error| {
        let reason = match error.kind() {
            ErrorKind::InvalidData => "no text".into(),
            _ => system_reason(&error),
        };
        Diagnostic::new(format!("{}: {reason}", path.display()))
    };
    let mut input = BufReader::new(File::open(path).map_err(failure)?);
    let mut fields = Vec::new();
    csv::read_record(&mut input, &mut fields).map_err(failure)?;
    if fields.is_empty() || !fields.iter().eq(heads.iter().map(|head| &head.name)) {
        let message = format!("{}: its columns aren't those of the manifest", path.display());
        return Err(Diagnostic::new(message).help("the same `ropewalk sweep` writes the table again"));
    }
    for row in 1.. {
        if !csv::read_record(&mut input, &mut fields).map_err(failure)? {
            break;
        }
        if fields.len() != heads.len() {
            let (found, wanted) = (fields.len(), heads.len());
            let message = format!("{}: row {row} has {found} fields, not {wanted}", path.display());
            return Err(Diagnostic::new(message));
        }
        take(&fields);
    }
    Ok(())
}
