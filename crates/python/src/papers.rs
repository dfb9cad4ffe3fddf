//! The papers' experiments.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use ropewalk_algorithms::Registries;
use ropewalk_papers::reproduce::{self as lab, Paper, Progress, Request, Runs, World};
use ropewalk_settings::diagnostic::{Diagnostic, did_you_mean};

use crate::control::{self, Control};
use crate::errors;

fn load(name: &str) -> PyResult<Paper> {
    match lab::load(name) {
        Some(paper) => paper.map_err(errors::other),
        None => Err(errors::input(
            Diagnostic::new(format!("there is no paper `{name}`"))
                .help(did_you_mean(name, lab::NAMES.iter().copied()))
                .help(format!("allowed: {}", lab::NAMES.join(", "))),
        )),
    }
}

/// The papers: name, title, and the figures' names.
#[pyfunction]
pub(crate) fn papers() -> PyResult<Vec<(String, String, Vec<String>)>> {
    let of = |name: &&str| {
        let paper = load(name)?;
        let figures = paper.plan.figures.iter().map(|figure| figure.id.clone());
        Ok((paper.name.clone(), paper.plan.title.clone(), figures.collect()))
    };
    lab::NAMES.iter().map(of).collect()
}

struct Watch<'a> {
    control: &'a Control,
    began: Instant,
}

impl Progress for Watch<'_> {
    fn total(&self, _: usize, known: usize) {
        self.control.done.store(known as u64, Ordering::Relaxed);
    }

    fn done(&self) {
        self.control.done.fetch_add(1, Ordering::Relaxed);
    }

    fn clock(&self) -> Duration {
        self.began.elapsed()
    }
}

#[expect(clippy::disallowed_methods, reason = "the report says how long it took")]
fn now() -> Instant {
    Instant::now()
}

/// Repeats a paper's experiments in the simulator; published beside measured, and a verdict per claim, as
/// JSON. `state`: a file for finished runs.
#[pyfunction]
#[pyo3(signature = (name, figure, runs, seed, jobs, state, build, progress))]
#[expect(clippy::too_many_arguments, reason = "each is a parameter in Python")]
pub(crate) fn reproduce(
    py: Python<'_>,
    name: &str,
    figure: Option<String>,
    runs: Option<u32>,
    seed: u64,
    jobs: Option<usize>,
    state: Option<PathBuf>,
    build: &str,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let paper = load(name)?;
    if let Some(figure) = &figure
        && !paper.figure(figure).is_some_and(|figure| figure.world == World::Simulated)
    {
        let all = paper.plan.figures.iter().filter(|figure| figure.world == World::Simulated);
        let ids: Vec<&str> = all.map(|figure| figure.id.as_str()).collect();
        return Err(errors::input(
            Diagnostic::new(format!("`{name}` has no figure `{figure}` in the simulated world"))
                .help(did_you_mean(figure, ids.iter().copied()))
                .help(format!("allowed: {}", ids.join(", "))),
        ));
    }
    let store = match &state {
        Some(file) => Runs::open(file, build).map_err(errors::other)?,
        None => Runs::none(),
    };
    let jobs = jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let registries = Registries::builtin();
    let request =
        Request { paper: &paper, world: World::Simulated, figure: figure.as_deref(), runs, seed, jobs };
    let outcome = control::interruptible(py, progress.as_ref(), |control| {
        let watch = Watch { control, began: now() };
        lab::execute(&request, &registries, &store, &watch, &control.stop)
    })?
    .map_err(errors::other)?;
    Ok(lab::json(&[outcome], &format!("ropewalk.reproduce({name:?})")).to_string())
}
