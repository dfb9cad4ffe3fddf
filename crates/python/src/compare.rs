//! Comparisons.

use std::sync::atomic::Ordering;

use pyo3::prelude::*;
use ropewalk_lab::compare::{self as lab, Ask, ask};
use ropewalk_lab::report::{self, Origin};
use ropewalk_lab::scenario::Experiment;
use ropewalk_lab::tidy;

use crate::scenario::Scenario;
use crate::scheduler::{Own, registries, run};
use crate::table::Table;
use crate::{control, errors};

/// Compares schedulers, as `asked` says ([`Ask`], JSON). Returns the document (JSON), the table of runs, and
/// the report's page.
#[pyfunction]
pub(crate) fn compare(
    py: Python<'_>,
    scenario: &Scenario,
    own: Own,
    asked: &str,
    jobs: Option<usize>,
    progress: Option<Py<PyAny>>,
) -> PyResult<(String, Table, String)> {
    let registries = registries(&own)?;
    let names: Vec<&str> = own.iter().map(|(name, _)| name.as_str()).collect();
    let asked: Ask = serde_json::from_str(asked).map_err(errors::other)?;
    let (seed, loaded) = (asked.common.seed, scenario.loaded.clone());
    let experiment = if asked.common.usual { Experiment::default() } else { loaded.experiment };
    let jobs = ropewalk_runner::threads(jobs);
    let request =
        asked.request(loaded.scenario, experiment, ask::SCRIPT, jobs, &registries).map_err(errors::input)?;
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
