//! Advice.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use pyo3::prelude::*;
use ropewalk_algorithms::Registries;
use ropewalk_lab::advise::{self as lab, Ask, Execution, document};
use ropewalk_lab::compare::System;
use ropewalk_lab::compare::ask;
use ropewalk_lab::scenario;
use ropewalk_settings::diagnostic::{Diagnostic, did_you_mean};
use ropewalk_sim::Direction;

use crate::scenario::{Scenario, size};
use crate::{control, errors};

/// What to use on paths, as JSON. Without a scenario all paths are measured ones. `usual`: only paths were
/// given, so that the usual workloads are meant. `measured`: files by path.
#[pyfunction]
#[pyo3(signature = (scenario, usual, sizes, schedulers, measured, system, direction, value, certainty, congestion, budget, seed, jobs, progress))]
#[expect(clippy::too_many_arguments, reason = "each is a parameter in Python")]
pub(crate) fn advise(
    py: Python<'_>,
    scenario: Option<&Scenario>,
    usual: bool,
    sizes: Vec<String>,
    schedulers: Vec<String>,
    measured: Vec<(String, Vec<PathBuf>)>,
    system: Option<&str>,
    direction: Option<&str>,
    value: Option<String>,
    certainty: String,
    congestion: Option<String>,
    budget: String,
    seed: u64,
    jobs: Option<usize>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let registries = Registries::builtin();
    let system = system.map_or(Ok(System::default()), |name| {
        System::named(name).ok_or_else(|| {
            let all = System::NAMED.map(System::name);
            errors::input(
                Diagnostic::new(format!("there is no system `{name}`"))
                    .help(did_you_mean(name, all))
                    .help(format!("allowed: {}", all.join(", "))),
            )
        })
    })?;
    let direction = match direction {
        None => None,
        Some("download") => Some(Direction::Download),
        Some("upload") => Some(Direction::Upload),
        Some(other) => {
            return Err(errors::wrong(format!("`{other}` is no direction; allowed: download, upload")));
        }
    };
    let experiment = scenario.filter(|_| !usual).map(|scenario| scenario.loaded.experiment.clone());
    let scenario = scenario
        .map_or_else(|| scenario::default_around(Vec::new()), |scenario| scenario.loaded.scenario.clone());
    let asked = Ask {
        scenario,
        experiment: experiment.unwrap_or_default(),
        usual,
        sizes: sizes.iter().map(|text| size(text)).collect::<PyResult<_>>()?,
        schedulers,
        measured,
        system,
        direction,
        value,
        certainty,
        congestion,
        budget,
        seed,
        names: ask::SCRIPT,
    };
    let (question, readings) = asked.question(&registries).map_err(errors::input)?;
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
