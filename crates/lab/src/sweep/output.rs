//! Writes the two tables and the manifest from a complete journal.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::axis::Level;
use super::design::{Design, Layout};
use super::journal::{Journal, JournalError};
use super::metrics::{Ending, Kept, PATH, of_run};
use super::parquet::{Column, Head, RUNS_PER_GROUP, TableWriter};
use super::space::Space;
use super::{Command, Files};
use crate::diagnostic::system_reason;
use crate::scenario;

/// How many failed runs the manifest lists.
const LISTED_FAILURES: usize = 1000;

fn failure(path: &Path, error: &io::Error) -> JournalError {
    JournalError::Io { path: path.to_path_buf(), reason: system_reason(error) }
}

/// The name under which a file is written until it is complete.
fn part(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".part");
    path.with_file_name(name)
}

fn begin(path: &Path, heads: &[Head]) -> Result<TableWriter, JournalError> {
    TableWriter::create(&part(path), heads).map_err(|error| failure(path, &error))
}

fn end(path: &Path, table: TableWriter) -> Result<(), JournalError> {
    table.finish().and_then(|()| fs::rename(part(path), path)).map_err(|error| failure(path, &error))
}

/// Runs in this order: point, seed, congestion control, scheduler.
pub(super) struct Place {
    pub point: u64,
    pub number: u32,
    /// Index into the point's runners.
    pub runner: usize,
}

pub(super) fn place(design: &Design, run: u64) -> Place {
    let runners = (design.schedulers.len() * design.congestion.len()) as u64;
    let per_point = design.per_point();
    let within = run % per_point;
    Place { point: run / per_point, number: (within / runners) as u32, runner: (within % runners) as usize }
}

/// A scheduler's name in tables.
pub(super) fn label(scheduler: &str) -> String {
    scheduler.strip_prefix("tcp:").map_or_else(|| scheduler.to_string(), |path| format!("tcp {path}"))
}

/// Columns that describe the axes: texts where values are texts, numbers where they have them.
fn axis_heads(design: &Design) -> Vec<Head> {
    let mut heads = Vec::new();
    for axis in &design.axes {
        let unit = axis.dimension.map(|dimension| dimension.unit());
        match unit {
            Some(None) if axis.template.is_none() => heads.push(Head::number(&axis.name)),
            Some(unit) => {
                heads.push(Head::text(&axis.name));
                heads.push(Head::number(&format!("{} [{}]", axis.name, unit.unwrap_or("1"))));
            }
            None => heads.push(Head::text(&axis.name)),
        }
    }
    heads
}

fn push_levels(design: &Design, levels: &[Level], columns: &mut [Column]) {
    let mut columns = columns.iter_mut();
    for (axis, level) in design.axes.iter().zip(levels) {
        let plain = matches!(axis.dimension.map(|dimension| dimension.unit()), Some(None));
        if !(plain && axis.template.is_none())
            && let Some(Column::Text(texts)) = columns.next()
        {
            texts.push(Some(level.shown.clone()));
        }
        if axis.dimension.is_some()
            && let Some(Column::Number(numbers)) = columns.next()
        {
            numbers.push(level.number);
        }
    }
}

/// Writes both tables, and calls `each` for every run.
pub(super) fn tables(
    design: &Design,
    space: &Space,
    journal: &mut Journal,
    files: &Files,
    mut each: impl FnMut(&Place, &Kept),
) -> Result<(), JournalError> {
    let long = [
        Head::whole("run"),
        Head::text("path"),
        Head::text("metric"),
        Head::number("value"),
        Head::text("unit"),
    ];
    let mut about =
        vec![Head::whole("run"), Head::whole("point"), Head::whole("seed"), Head::text("scheduler")];
    about.extend([Head::text("congestion"), Head::text("outcome")]);
    about.extend(axis_heads(design));
    let mut results = begin(&files.results, &long)?;
    let mut runs = begin(&files.runs, &about)?;
    let total = design.total();
    let mut levels = (u64::MAX, Vec::new());
    for first in (0..total).step_by(RUNS_PER_GROUP as usize) {
        let (mut number, mut path, mut metric) = (Vec::new(), Vec::new(), Vec::new());
        let (mut value, mut unit) = (Vec::new(), Vec::new());
        let mut described: Vec<Column> = about.iter().map(|head| head.kind.clone()).collect();
        for run in first..(first + RUNS_PER_GROUP).min(total) {
            let kept = journal.read(run)?;
            for (of, name, its_unit, amount) in kept.rows() {
                number.push(run as i64);
                path.push(of.map(String::from));
                metric.push(Some(name.to_string()));
                value.push(Some(amount));
                unit.push(Some(its_unit.to_string()));
            }
            let place = place(design, run);
            if levels.0 != place.point {
                levels = (place.point, space.point(design, place.point));
            }
            let schedulers = design.schedulers.len();
            let outcome = match kept.ending {
                Ending::Complete => "complete",
                Ending::Limit => "limit",
                Ending::Failed(_) => "failed",
            };
            let (fixed, varied) = described.split_at_mut(6);
            let seed = design.seed.wrapping_add(u64::from(place.number));
            for (column, whole) in fixed.iter_mut().zip([run, place.point, seed]) {
                if let Column::Whole(values) = column {
                    values.push(whole as i64);
                }
            }
            let texts = [
                label(&design.schedulers[place.runner % schedulers]),
                design.congestion[place.runner / schedulers].clone(),
                outcome.to_string(),
            ];
            for (column, text) in fixed[3..].iter_mut().zip(texts) {
                if let Column::Text(values) = column {
                    values.push(Some(text));
                }
            }
            push_levels(design, &levels.1, varied);
            each(&place, &kept);
        }
        let columns = [
            Column::Whole(number),
            Column::Text(path),
            Column::Text(metric),
            Column::Number(value),
            Column::Text(unit),
        ];
        results.group(&columns).map_err(|error| failure(&files.results, &error))?;
        runs.group(&described).map_err(|error| failure(&files.runs, &error))?;
    }
    end(&files.runs, runs)?;
    end(&files.results, results)
}

/// Counts of runs for the manifest.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub complete: u64,
    pub limit: u64,
    pub failed: Vec<(u64, String)>,
}

/// Writes the manifest.
pub(super) fn manifest(
    design: &Design,
    command: &Command,
    id: &str,
    files: &Files,
    counts: Option<&Counts>,
) -> Result<(), JournalError> {
    let metric = |name: &str, unit: &str, meaning: &str, of: &str| json!({ "name": name, "unit": unit, "meaning": meaning, "of": of });
    let metrics: Vec<Value> = of_run()
        .map(|(name, unit, meaning)| metric(name, unit, meaning, "run"))
        .chain(PATH.iter().map(|m| metric(m.name, m.unit, m.meaning, "path")))
        .collect();
    let layout = match design.layout {
        Layout::Grid => json!({ "kind": "grid" }),
        Layout::LatinHypercube { points, seed } => {
            json!({ "kind": "latin-hypercube", "points": points, "seed": seed })
        }
    };
    let text = json!({
        "format": 1,
        "program": "ropewalk",
        "version": env!("CARGO_PKG_VERSION"),
        "build": command.build,
        "command": command.line,
        "sweep": { "id": id, "file": design.source.name, "text": design.source.text },
        "scenario": { "name": design.base.scenario.name, "text": design.base.text },
        "design": layout,
        "varied": design.axes.iter().map(|axis| json!({
            "parameter": axis.name,
            "unit": axis.dimension.and_then(|dimension| dimension.unit()),
        })).collect::<Vec<_>>(),
        "schedulers": design.schedulers.iter().map(|text| label(text)).collect::<Vec<_>>(),
        "congestion": design.congestion,
        "seed": design.seed,
        "runs_per_point": design.runs,
        "points": design.points(),
        "runs": design.total(),
        "finished": counts.is_some(),
        "outcomes": counts.map(|counts| json!({
            "complete": counts.complete,
            "limit": counts.limit,
            "failed": counts.failed.len(),
            "failures": counts.failed.iter().take(LISTED_FAILURES)
                .map(|(run, reason)| json!({ "run": run, "reason": reason })).collect::<Vec<_>>(),
        })),
        "files": {
            "results.parquet": "one row per run, path (none: the whole run) and metric",
            "runs.parquet": "one row per run: its point, seed, scheduler, congestion control and parameters",
            "journal": "finished runs, as they came; another start of the same sweep goes on from it",
        },
        "metrics": metrics,
    });
    let path = &files.manifest;
    let write = || -> io::Result<()> {
        let mut file = fs::File::create(part(path))?;
        file.write_all(format!("{text:#}\n").as_bytes())?;
        file.sync_all()?;
        fs::rename(part(path), path)
    };
    write().map_err(|error| failure(path, &error))
}

/// Passes everything that a sweep's results depend on to `take`, for its identity.
pub(super) fn identity(design: &Design, command: &Command, take: &mut impl FnMut(&[u8])) {
    let mut text = |text: &str| {
        take(&(text.len() as u64).to_le_bytes());
        take(text.as_bytes());
    };
    text(env!("CARGO_PKG_VERSION"));
    text(&command.build);
    text(&design.source.text);
    text(&design.base.text);
    design.schedulers.iter().for_each(|scheduler| text(scheduler));
    for trace in scenario::traces(&design.base.scenario) {
        take(&(trace.opportunities.len() as u64).to_le_bytes());
        for at in &trace.opportunities {
            take(&at.to_le_bytes());
        }
    }
}
