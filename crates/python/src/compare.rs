//! Comparisons.

use std::sync::atomic::Ordering;

use pyo3::prelude::*;
use ropewalk_lab::compare::{self as lab, Ask, ask};
use ropewalk_lab::report::{self, Origin};
use ropewalk_lab::scenario::Experiment;
use ropewalk_lab::tidy;

use crate::scenario::{Scenario, size};
use crate::scheduler::{Own, registries, run};
use crate::table::Table;
use crate::{control, errors};

/// Compares schedulers. `usual`: only paths were given, so that the usual workloads are meant. Returns the
/// document (JSON), the table of runs, and the report's page.
#[pyfunction]
#[pyo3(signature = (scenario, own, usual, sizes, schedulers, congestion, buffer, value, limit, runs, budget, seed, jobs, progress))]
#[expect(clippy::too_many_arguments, reason = "each is a parameter in Python")]
pub(crate) fn compare(
    py: Python<'_>,
    scenario: &Scenario,
    own: Own,
    usual: bool,
    sizes: Vec<String>,
    schedulers: Option<Vec<String>>,
    congestion: Option<String>,
    buffer: Option<String>,
    value: Option<String>,
    limit: Option<String>,
    runs: Option<u32>,
    budget: String,
    seed: u64,
    jobs: Option<usize>,
    progress: Option<Py<PyAny>>,
) -> PyResult<(String, Table, String)> {
    let registries = registries(&own)?;
    let names: Vec<&str> = own.iter().map(|(name, _)| name.as_str()).collect();
    let sizes = sizes.iter().map(|text| size(text)).collect::<PyResult<_>>()?;
    let experiment = if usual { Experiment::default() } else { scenario.loaded.experiment.clone() };
    let asked = Ask {
        scenario: scenario.loaded.scenario.clone(),
        experiment,
        usual,
        sizes,
        schedulers,
        congestion,
        buffer,
        value,
        limit,
        runs,
        usual_runs: None,
        budget,
        seed,
        jobs: ropewalk_runner::threads(jobs),
        names: ask::SCRIPT,
    };
    let request = asked.request(&registries).map_err(errors::input)?;
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
