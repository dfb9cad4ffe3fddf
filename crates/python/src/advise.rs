//! Advice.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use pyo3::prelude::*;
use ropewalk_algorithms::Registries;
use ropewalk_lab::advise::{self as lab, Ask, Execution, document};
use ropewalk_lab::compare::ask;
use ropewalk_lab::scenario;
use ropewalk_sim::Direction;

use crate::scenario::Scenario;
use crate::{control, errors};

/// What to use on paths, as JSON, asked for as `asked` says ([`Ask`], JSON). Without a scenario all paths are
/// measured ones. `measured`: files by path.
#[pyfunction]
pub(crate) fn advise(
    py: Python<'_>,
    scenario: Option<&Scenario>,
    direction: Option<&str>,
    asked: &str,
    measured: Vec<(String, Vec<PathBuf>)>,
    jobs: Option<usize>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let registries = Registries::builtin();
    let asked: Ask = serde_json::from_str(asked).map_err(errors::other)?;
    let experiment =
        scenario.filter(|_| !asked.common.usual).map(|scenario| scenario.loaded.experiment.clone());
    let mut scenario = scenario
        .map_or_else(|| scenario::default_around(Vec::new()), |scenario| scenario.loaded.scenario.clone());
    match direction {
        None => {}
        Some("download") => scenario.direction = Direction::Download,
        Some("upload") => scenario.direction = Direction::Upload,
        Some(other) => {
            return Err(errors::wrong(format!("`{other}` is no direction; allowed: download, upload")));
        }
    }
    let (question, readings) = asked
        .question(scenario, experiment.unwrap_or_default(), &measured, ask::SCRIPT, &registries)
        .map_err(errors::input)?;
    let jobs = ropewalk_runner::threads(jobs);
    let answer = control::interruptible(py, progress.as_ref(), |control| {
        let done = |worth| {
            control.done.fetch_add(worth, Ordering::Relaxed);
        };
        lab::advise(&registries, &question, Execution { jobs, done: &done, stop: &control.stop })
    })?;
    let answer = answer.map_err(|error| errors::wrong(error.message))?;
    // Whatever stops it is raised above.
    let answer = answer.ok_or_else(|| errors::other("interrupted"))?;
    let lines = document::lines(&question, &answer);
    Ok(document::json(&question, &readings, &answer, &lines).to_string())
}
