//! Comparisons.

use std::sync::atomic::Ordering;

use pyo3::prelude::*;
use ropewalk_lab::report::{self, Origin};
use ropewalk_lab::scenario::Experiment;
use ropewalk_lab::{ask, compare as lab, tidy};
use ropewalk_settings::given::{Given, Tables};
use ropewalk_settings::shape::Kind;

use crate::scenario::Scenario;
use crate::scheduler::{Own, registries, run};
use crate::table::Table;
use crate::{control, errors};

/// Keys of settings, and their values.
pub(crate) type Settings = Vec<(String, Vec<String>)>;

pub(crate) fn given(tables: &'static Tables, asked: &Settings) -> Given {
    Given::by_key(tables, asked.iter().map(|(key, values)| (key.as_str(), values.clone())))
}

/// The settings that `compare`, `advise` or `explain` takes, each with its unit: `s`, `B`, `%`, `whole` (a
/// number without one) or `text`; and its default, if it has one.
#[pyfunction]
pub(crate) fn settings(command: &str) -> Vec<(String, &'static str, &'static str)> {
    let tables = match command {
        "advise" => ask::ADVISE,
        "explain" => ask::EXPLAIN,
        _ => ask::COMPARE,
    };
    let fields = tables.iter().flat_map(|(_, shape)| shape.fields);
    let unit = |kind: &Kind| match kind {
        Kind::TimeWithin(..) => "s",
        Kind::Bytes(..) | Kind::Sizes => "B",
        Kind::Probability => "%",
        Kind::Integer(..) => "whole",
        _ => "text",
    };
    fields.map(|field| (field.name.replace('-', "_"), unit(&field.kind), field.default)).collect()
}

/// Compares schedulers, as `asked` says: keys of [`ask::COMPARE`], and their values. `usual`: only paths were
/// given. Returns the document (JSON), the table of runs, and the report's page.
#[pyfunction]
pub(crate) fn compare(
    py: Python<'_>,
    scenario: &Scenario,
    own: Own,
    usual: bool,
    asked: Settings,
    jobs: Option<usize>,
    progress: Option<Py<PyAny>>,
) -> PyResult<(String, Table, String)> {
    let registries = registries(&own)?;
    let names: Vec<&str> = own.iter().map(|(name, _)| name.as_str()).collect();
    let loaded = scenario.loaded.clone();
    let experiment = if usual { Experiment::default() } else { loaded.experiment };
    let request = lab::request(
        &given(ask::COMPARE, &asked),
        usual,
        loaded.scenario,
        experiment,
        ropewalk_runner::threads(jobs),
        &registries,
    )
    .map_err(errors::input)?;
    let seed = request.seed;
    let comparison = control::interruptible(py, progress.as_ref(), |control| {
        let one = |spec: &ropewalk_sim::RunSpec| run(spec, seed, &names, control);
        let done = |worth| {
            control.done.fetch_add(worth, Ordering::Relaxed);
        };
        lab::compare(&request, one, done, &control.stop)
    })?;
    let origin = Origin::of(&["ropewalk.compare()".to_string()], env!("CARGO_PKG_VERSION"));
    let document = report::comparison::document(&origin, &request.scenario, &comparison, Vec::new());
    let table = tidy::comparison_runs(&comparison, &scenario.paths());
    Ok((document.to_string(), Table::new(table)?, ropewalk_page::page(&document)))
}
