//! A sweep's folder, read for its page: the manifest and both tables.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use serde_json::Value;

use super::Origin;
use super::sweep::{Axis, Level, Point, Sweep};
use crate::diagnostic::Diagnostic;
use crate::sweep::Files;
use crate::sweep::metrics::OBJECTIVE;

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
    let varied: Vec<(String, Option<String>)> = manifest
        .get("varied")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|axis| {
            let field = |key: &str| axis.get(key).and_then(Value::as_str).map(String::from);
            (field("parameter").unwrap_or_default(), field("unit"))
        })
        .collect();
    let measured = manifest.get("metrics").and_then(Value::as_array).into_iter().flatten();
    if !measured.into_iter().any(|metric| metric.get("name").and_then(Value::as_str) == Some(OBJECTIVE.0)) {
        return Err(Diagnostic::new(format!(
            "{}: made by an earlier version, without `objective`",
            folder.display()
        ))
        .help("run the sweep again into a new folder"));
    }
    let seconds = merits(&files.results)?;
    let mut axes: Vec<Axis> = varied
        .iter()
        .map(|(name, unit)| Axis { name: name.clone(), unit: unit.clone(), levels: grid.then(Vec::new) })
        .collect();
    let mut points: BTreeMap<i64, Point> = BTreeMap::new();
    each_row(&files.runs, |row| {
        let field =
            |name: &str| row.get_column_iter().find(|(known, _)| *known == name).map(|(_, field)| field);
        let number = |name: &str| field(name).and_then(as_number);
        let word = |name: &str| field(name).and_then(as_text).unwrap_or_default();
        let (Some(run), Some(point)) = (number("run"), number("point")) else { return };
        let runner = label(&word("scheduler"), &word("congestion"));
        let Some(runner) = runners.iter().position(|known| *known == runner) else { return };
        let point = points.entry(point as i64).or_insert_with(|| {
            let at = axes.iter_mut().map(|axis| {
                let unit = axis.unit.as_deref().unwrap_or("1");
                let amount = number(&format!("{} [{unit}]", axis.name)).or_else(|| number(&axis.name));
                let shown = field(&axis.name).and_then(as_text);
                let text = shown.unwrap_or_else(|| amount.map_or(String::new(), |amount| amount.to_string()));
                place(axis, text, amount)
            });
            Point { at: at.collect(), runs: vec![Vec::new(); runners.len()] }
        });
        let complete = word("outcome") == "complete";
        point.runs[runner].push(seconds.get(&(run as i64)).copied().filter(|_| complete));
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
    };
    Ok((origin, sweep))
}

/// A level's number in its axis, which learns of it; a sampled axis has the value itself.
fn place(axis: &mut Axis, text: String, amount: Option<f64>) -> f64 {
    let Some(amount) = amount.filter(|_| axis.levels.is_none()) else {
        let levels = axis.levels.get_or_insert_with(Vec::new);
        let found = levels.iter().position(|level| level.text == text);
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
        Some(1) => Ok(manifest),
        Some(format) => {
            Err(Diagnostic::new(format!("{}: format {format}; this version reads 1", path.display())))
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

/// By run: what it is judged by, seconds.
fn merits(path: &Path) -> Result<BTreeMap<i64, f64>, Diagnostic> {
    let mut found = BTreeMap::new();
    each_row(path, |row| {
        let (mut run, mut of_path, mut objective, mut value) = (None, false, false, None);
        for (name, field) in row.get_column_iter() {
            match (name.as_str(), field) {
                ("run", Field::Long(number)) => run = Some(*number),
                ("path", Field::Str(_)) => of_path = true,
                ("metric", Field::Str(text)) => objective = text == OBJECTIVE.0,
                ("value", Field::Double(number)) => value = Some(*number),
                _ => {}
            }
        }
        if let (Some(run), false, true, Some(value)) = (run, of_path, objective, value) {
            found.insert(run, value);
        }
    })?;
    Ok(found)
}
