//! The rows of a sweep's table, and its manifest.

use serde_json::{Value, json};

use super::Command;
use super::axis::{Axis, Level};
use super::columns::{metric_heads, outcome, push_metrics};
use super::design::{Design, Layout};
use super::metrics::RunMetrics;
use super::space::Space;
use crate::scenario;
use crate::tidy::{self, Column, Head};

/// How many failed runs the manifest lists.
const LISTED_FAILURES: usize = 1000;

/// Runs in this order: point, seed, congestion control, scheduler.
#[derive(Clone, Copy, Debug)]
pub struct RunIndex {
    /// The point.
    pub point: u64,
    /// The run at this point.
    pub number: u32,
    /// Index into the point's runners.
    pub runner: usize,
}

/// Where a run stands.
pub fn run_index(design: &Design, run: u64) -> RunIndex {
    let runners = (design.schedulers.len() * design.congestion.len()) as u64;
    let per_point = design.per_point();
    let within = run % per_point;
    RunIndex {
        point: run / per_point,
        number: (within / runners) as u32,
        runner: (within % runners) as usize,
    }
}

/// A scheduler's name in tables.
pub fn label(scheduler: &str) -> String {
    scheduler.strip_prefix("tcp:").map_or_else(|| scheduler.to_string(), |path| format!("tcp {path}"))
}

/// The column of an axis: a number with its unit in the name where its values have one, else a text.
pub fn axis_head(axis: &Axis) -> Head {
    let meaning = format!("the varied parameter `{}`", axis.name);
    let name = tidy::plain_name(&axis.name);
    match axis.dimension.map(|dimension| dimension.unit().unwrap_or_default()) {
        Some(unit) => Head::number(&format!("{name}{}", tidy::suffix(unit)), unit, &meaning),
        None => Head::text(&name, &meaning),
    }
}

/// The table's columns, and what fills them.
#[derive(Debug)]
pub struct Rows<'a> {
    design: &'a Design,
    space: &'a Space,
    paths: Vec<String>,
    /// The columns' heads.
    pub heads: Vec<Head>,
    /// The point at hand, and its values.
    levels: (u64, Vec<Level>),
}

fn path_names(design: &Design) -> Vec<String> {
    design.base.scenario.paths.iter().map(|path| path.name.clone()).collect()
}

/// The table's columns.
pub fn heads(design: &Design) -> Vec<Head> {
    let mut heads = vec![
        Head::whole("run", "", "its number in the sweep, from 0"),
        Head::whole("point", "", "which setting of the varied parameters, from 0"),
        Head::text("scenario", "the scenario's name"),
        Head::text("scheduler", "the scheduler; `tcp PATH`: plain TCP on that path"),
        Head::text("congestion", "the congestion control"),
        Head::whole("seed", "", "the run's seed"),
        Head::text("outcome", "complete, limit (the time limit came first) or failed"),
    ];
    heads.extend(design.axes.iter().map(axis_head));
    heads.extend(metric_heads(&path_names(design)));
    // A path's name may make two names alike.
    for index in 1..heads.len() {
        while heads[..index].iter().any(|head| head.name == heads[index].name) {
            heads[index].name.push('_');
        }
    }
    heads
}

impl<'a> Rows<'a> {
    /// No rows yet.
    pub fn new(design: &'a Design, space: &'a Space) -> Self {
        Rows {
            design,
            space,
            paths: path_names(design),
            heads: heads(design),
            levels: (u64::MAX, Vec::new()),
        }
    }

    /// Adds a run's row.
    pub fn push(&mut self, index: &RunIndex, kept: &RunMetrics, columns: &mut [Column]) {
        const FIXED: usize = 7;
        let design = self.design;
        if self.levels.0 != index.point {
            self.levels = (index.point, self.space.point(design, index.point));
        }
        let schedulers = design.schedulers.len();
        let (fixed, rest) = columns.split_at_mut(FIXED);
        let (varied, metrics) = rest.split_at_mut(design.axes.len());
        fixed[0].push_whole(kept.run);
        fixed[1].push_whole(index.point);
        fixed[2].push_text(Some(design.base.scenario.name.clone()));
        fixed[3].push_text(Some(label(&design.schedulers[index.runner % schedulers])));
        fixed[4].push_text(Some(design.congestion[index.runner / schedulers].clone()));
        fixed[5].push_whole(design.seed.wrapping_add(u64::from(index.number)));
        fixed[6].push_text(Some(outcome(&kept.ending).to_string()));
        for (column, level) in varied.iter_mut().zip(&self.levels.1) {
            match column {
                Column::Number(values) => values.push(level.number),
                other => other.push_text(Some(level.shown.clone())),
            }
        }
        push_metrics(kept, &self.paths, metrics);
    }
}

/// What the table's metadata says of its origin. `id`: the sweep's; `sweep`, `scenario`: their texts.
pub fn provenance(build: &str, id: &str, sweep: &str, scenario: &str, seed: u64) -> Vec<(String, String)> {
    let of = |key: &str, text: &str| (format!("ropewalk.{key}"), text.to_string());
    vec![
        of("build", build),
        of("sweep_id", id),
        of("sweep", sweep),
        of("scenario", scenario),
        of("seed", &seed.to_string()),
    ]
}

/// Counts of runs for the manifest.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Complete ones.
    pub complete: u64,
    /// Those that reached the time limit.
    pub limit: u64,
    /// Failed ones, and why.
    pub failed: Vec<(u64, String)>,
}

/// The manifest.
pub fn manifest(design: &Design, command: &Command, id: &str, counts: Option<&Counts>) -> Value {
    let heads = heads(design);
    let columns = heads.iter().map(|head| {
        let kind = head.kind.type_name();
        json!({ "name": head.name, "type": kind, "unit": head.unit, "meaning": head.meaning })
    });
    let layout = match design.layout {
        Layout::Grid => json!({ "kind": "grid" }),
        Layout::LatinHypercube { points, seed } => {
            json!({ "kind": "latin-hypercube", "points": points, "seed": seed })
        }
    };
    json!({
        "format": 3,
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
            "column": axis_head(axis).name,
            "levels": axis.levels().map(|levels| levels.iter().map(|level| json!({
                "text": level.shown,
                "number": level.number,
            })).collect::<Vec<_>>()),
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
            "runs.csv": "one row per run: its point, scheduler, congestion control, seed, settings, metrics",
            "journal": "finished runs, as they came; another start of the same sweep goes on from it",
        },
        "columns": columns.collect::<Vec<_>>(),
    })
}

/// Passes everything that a sweep's results depend on to `take`, for its identity.
pub fn identity(design: &Design, command: &Command, take: &mut impl FnMut(&[u8])) {
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
        take(&(trace.len() as u64).to_le_bytes());
        for at in trace.opportunities() {
            take(&at.to_le_bytes());
        }
    }
}
