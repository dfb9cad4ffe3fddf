//! One run.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use ropewalk_lab::sweep::columns;
use ropewalk_lab::sweep::metrics::RunMetrics;
use ropewalk_lab::{bound as bounds, tidy};
use ropewalk_settings::units;
use ropewalk_sim::{Mode, Outcome, Recording, RunResult, RunSpec, Workload};

use crate::scenario::{Scenario, size};
use crate::scheduler::{Own, registries};
use crate::table::Table;
use crate::{control, errors, scheduler};

/// How a run is named in a table: `minrtt`, `tcp wifi`.
fn label(spec: &RunSpec) -> String {
    match spec.mode {
        Mode::Multipath => spec.scheduler.text.clone(),
        Mode::SinglePath(path) => format!("tcp {}", spec.scenario.paths[path].name),
    }
}

/// The run's specification: `tcp:PATH` is plain TCP on that path.
pub(crate) fn spec(
    scenario: &Scenario,
    own: &Own,
    name: &str,
    congestion: Option<&str>,
    bytes: Option<&str>,
    seed: u64,
    recording: Recording,
) -> PyResult<RunSpec> {
    let registries = registries(own)?;
    let mut content = scenario.loaded.scenario.clone();
    if let Some(bytes) = bytes {
        content.workload = Workload::Flow { bytes: size(bytes)? };
    }
    let (text, mode) = match name.strip_prefix("tcp:") {
        None => (name, Mode::Multipath),
        Some(path) => match content.paths.iter().position(|known| known.name == path) {
            Some(index) => ("single", Mode::SinglePath(index)),
            None => {
                let names = scenario.paths().join(", ");
                return Err(errors::wrong(format!("there is no path `{path}`; allowed: {names}")));
            }
        },
    };
    let scheduler = ropewalk_algorithms::scheduler(&registries, "scheduler", text, content.paths.len())
        .map_err(errors::input)?;
    let usual =
        scenario.loaded.experiment.congestion.as_deref().unwrap_or(ropewalk_engine::congestion::DEFAULT_NAME);
    let congestion = congestion.unwrap_or(usual);
    let congestion = ropewalk_algorithms::algorithm(&registries.congestion, "congestion", congestion)
        .map_err(errors::input)?;
    Ok(RunSpec { mode, seed, recording, ..RunSpec::new(content, scheduler, congestion) })
}

/// The run as a table of one row.
fn runs(spec: &RunSpec, result: &RunResult, paths: &[String]) -> PyResult<Table> {
    let kept = RunMetrics::new(0, &spec.scenario.workload, result, bounds::of(spec));
    let mut heads = vec![
        tidy::Head::text("scenario", "the scenario's name"),
        tidy::Head::text("scheduler", "the scheduler; `tcp PATH`: plain TCP on that path"),
        tidy::Head::text("congestion", "the congestion control"),
        tidy::Head::whole("seed", "", "the run's seed"),
        tidy::Head::text("outcome", "complete, limit (the time limit came first) or failed"),
    ];
    heads.extend(columns::metric_heads(paths));
    let mut table = tidy::Table::new(heads);
    let (fixed, metrics) = table.columns.split_at_mut(5);
    fixed[0].push_text(Some(spec.scenario.name.clone()));
    fixed[1].push_text(Some(label(spec)));
    fixed[2].push_text(Some(spec.congestion.text.clone()));
    fixed[3].push_whole(spec.seed);
    fixed[4].push_text(Some(columns::outcome(&kept.ending).into()));
    columns::push_metrics(&kept, paths, metrics);
    Table::new(table)
}

/// Simulates one run; a dictionary of tables and totals.
#[pyfunction]
#[pyo3(signature = (scenario, own, scheduler, congestion, size, seed, segments, decisions, samples_every))]
#[expect(clippy::too_many_arguments, reason = "each is a parameter in Python")]
pub(crate) fn simulate<'py>(
    py: Python<'py>,
    scenario: &Scenario,
    own: Own,
    scheduler: &str,
    congestion: Option<&str>,
    size: Option<&str>,
    seed: u64,
    segments: bool,
    decisions: bool,
    samples_every: Option<&str>,
) -> PyResult<Bound<'py, PyDict>> {
    let samples_every = samples_every
        .map(units::duration)
        .transpose()
        .map_err(|error| errors::wrong(format!("samples_every: {}: {}", error.message, error.help)))?
        .filter(|every| !every.is_zero());
    let recording = Recording { samples_every, segments, decisions };
    let spec = spec(scenario, &own, scheduler, congestion, size, seed, recording)?;
    spec.check().map_err(errors::other)?;
    let names: Vec<&str> = own.iter().map(|(name, _)| name.as_str()).collect();
    let result = control::interruptible(py, None, |control| scheduler::run(&spec, seed, &names, control))?;
    let paths = scenario.paths();
    let given = PyDict::new(py);
    given.set_item("scheduler", label(&spec))?;
    given.set_item("runs", runs(&spec, &result, &paths)?)?;
    let (outcome, reason) = match &result.outcome {
        Outcome::Complete => ("complete", None),
        Outcome::TimeLimit => ("limit", None),
        Outcome::Failed(reason) => ("failed", Some(reason.clone())),
    };
    given.set_item("outcome", outcome)?;
    given.set_item("reason", reason)?;
    given.set_item("objective_s", ropewalk_lab::objective::of(&spec.scenario.workload, &result))?;
    given.set_item("duration_s", result.duration.as_secs_f64())?;
    given.set_item("overruled", result.totals.overruled.count)?;
    given.set_item("events", result.events)?;
    let delays: Vec<f64> = result.message_delays.iter().map(|delay| delay.as_secs_f64()).collect();
    given.set_item("message_delays_s", delays)?;
    let traces = [
        ("segments", segments, tidy::segments as fn(&RunResult, &[String]) -> tidy::Table),
        ("decisions", decisions, tidy::decisions),
        ("samples", samples_every.is_some(), tidy::samples),
    ];
    for (name, wanted, table) in traces {
        let table = if wanted { Some(Table::new(table(&result, &paths))?) } else { None };
        given.set_item(name, table)?;
    }
    Ok(given)
}

/// Lower bounds of the objective, for any scheduler: by the links, and with windows that start small.
#[pyfunction]
#[pyo3(signature = (scenario, path, size))]
pub(crate) fn bound(
    scenario: &Scenario,
    path: Option<&str>,
    size: Option<&str>,
) -> PyResult<Option<(f64, f64)>> {
    let name = path.map_or("minrtt".to_string(), |path| format!("tcp:{path}"));
    let spec = spec(scenario, &Vec::new(), &name, None, size, 1, Recording::default())?;
    spec.check().map_err(errors::other)?;
    Ok(bounds::of(&spec).map(|bound| (bound.capacity, bound.window)))
}
