//! Advice.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use pyo3::prelude::*;
use ropewalk_algorithms::Registries;
use ropewalk_lab::advise::{self as lab, Execution, document};
use ropewalk_lab::{ask, scenario};

use crate::compare::{Settings, given};
use crate::scenario::Scenario;
use crate::{control, errors};

/// What to use on paths, as JSON, asked for as `asked` says: keys of [`ask::ADVISE`], and their values.
/// Without a scenario all paths are measured ones. `usual`: only paths were given. `measured`: files by path.
#[pyfunction]
pub(crate) fn advise(
    py: Python<'_>,
    scenario: Option<&Scenario>,
    usual: bool,
    asked: Settings,
    measured: Vec<(String, Vec<PathBuf>)>,
    jobs: Option<usize>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let registries = Registries::builtin();
    let experiment = scenario.filter(|_| !usual).map(|scenario| scenario.loaded.experiment.clone());
    let scenario = scenario
        .map_or_else(|| scenario::default_around(Vec::new()), |scenario| scenario.loaded.scenario.clone());
    let (given, experiment) = (given(ask::ADVISE, &asked), experiment.unwrap_or_default());
    let (question, readings) =
        lab::question(&given, usual, scenario, experiment, &measured, &registries).map_err(errors::input)?;
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
