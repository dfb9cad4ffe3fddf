//! What a comparison is asked for ([`COMPARE`](crate::ask::COMPARE)), made into a [`Request`].

use ropewalk_algorithms::{Registries, algorithm, scheduler};
use ropewalk_engine::Span;
use ropewalk_engine::registry::Spec;
use ropewalk_engine::scheduler::{BASELINE, Scheduler, is_compared_by_default};
use ropewalk_settings::diagnostic::{Diagnostic, InputError};
use ropewalk_settings::given::Given;
use ropewalk_settings::units;
use ropewalk_sim::{Mode, Scenario, Workload};

use super::{Candidate, Design, Request, Worth};
use crate::ask;
use crate::opening::OpeningPath;
use crate::parallel::Workers;
use crate::scenario::Experiment;

/// The request in a scenario, of whose file `experiment` is; `usual`: only paths were given, so without a
/// size the usual workloads are meant. `tcp` may be among the schedulers, and plain TCP always runs; `all`
/// stands for every scheduler.
///
/// # Errors
/// What in it isn't allowed, and what is.
pub fn request(
    given: &Given,
    usual: bool,
    mut scenario: Scenario,
    experiment: Experiment,
    jobs: Workers,
    registries: &Registries,
) -> Result<Request, InputError> {
    let runs = ask::runs(given)?.or(experiment.runs);
    let (budget, limit, buffer) = given.read(|reader, table| {
        let (limit, buffer) = (reader.time(table, "limit"), reader.bytes(table, "buffer"));
        Some((reader.time(table, "budget")?, limit, buffer))
    })?;
    if let Some(bytes) = buffer {
        for end in [&mut scenario.client, &mut scenario.server] {
            (end.send_buffer, end.receive_buffer, end.autotune) = (bytes, bytes, false);
        }
    }
    let design = runs.map_or_else(|| Design::race(budget), Design::Fixed);
    let mut request = transfers(given, usual, scenario, experiment, design, registries)?;
    request.worth = ask::worth(given, &request.scenario.paths)?;
    if let Some(limit) = limit {
        request.scenario.limit = suffices(given, limit, &request.workloads)?;
    }
    request.jobs = jobs;
    Ok(request)
}

/// As [`request`], of what transfers with real packets are asked for too ([`EMULATE`](ask::EMULATE)): on one
/// thread.
///
/// # Errors
/// As [`request`].
pub fn transfers(
    given: &Given,
    usual: bool,
    mut scenario: Scenario,
    experiment: Experiment,
    design: Design,
    registries: &Registries,
) -> Result<Request, InputError> {
    scenario.direction = ask::direction(given)?.unwrap_or(scenario.direction);
    let (seed, early) = (ask::seed(given)?, ask::early_join(given)?);
    for end in [&mut scenario.client, &mut scenario.server] {
        end.early_join = early.unwrap_or(end.early_join);
    }
    let congestion = ask::congestion(given, &experiment, registries)?;
    let named = |name| algorithm(&registries.schedulers, "schedulers", name);
    if let Some(opening) = given.texts("open-on").first() {
        let schedulers = [&named("single")?, &named("minrtt")?];
        scenario = OpeningPath::read(&opening.text)
            .apply(&scenario, schedulers, &congestion, seed.wrapping_sub(1))
            .map_err(|error| Diagnostic::new(error.to_string()).at(opening, 0..opening.text.len()))?;
    }
    let workloads = ask::workloads(given, usual, &experiment, &scenario)?;
    let all = || registries.schedulers.entries().iter().map(|entry| entry.name);
    let chosen: Vec<String> = match ask::schedulers(given)? {
        Some(names) if names.iter().any(|name| name == "all") => {
            let all = all().filter(|name| *name != "single").map(String::from);
            all.chain(names.into_iter().filter(|name| name != "all")).collect()
        }
        Some(names) => names,
        None if !experiment.schedulers.is_empty() => experiment.schedulers,
        // `single` is what the rows of plain TCP show, path by path.
        None => all().filter(|name| is_compared_by_default(name)).map(String::from).collect(),
    };
    let option = given.text("schedulers").map_or("schedulers".into(), |source| source.name.clone());
    let multipath = |scheduler: Spec<dyn Scheduler>| Candidate {
        label: scheduler.text.clone(),
        scheduler,
        mode: Mode::Multipath,
    };
    let mut candidates = Vec::new();
    for name in chosen.iter().filter(|name| *name != "tcp") {
        candidates.push(multipath(scheduler(registries, &option, name, scenario.paths.len())?));
    }
    if !candidates.iter().any(|candidate| candidate.label == BASELINE) {
        candidates.extend(named(BASELINE).ok().map(multipath));
    }
    for (index, path) in scenario.paths.iter().enumerate() {
        let label = format!("tcp {}", path.name);
        candidates.push(Candidate { label, scheduler: named("single")?, mode: Mode::SinglePath(index) });
    }
    let (worth, jobs) = (Worth::new(&scenario.paths, None).unwrap_or_default(), Workers::ONE);
    let mut request = Request { scenario, workloads, candidates, congestion, design, worth, seed, jobs };
    if experiment.limit.is_none() {
        request.scenario.limit = request.ample_limit();
    }
    Ok(request)
}

/// A limit, unless one of these workloads lasts longer.
fn suffices(given: &Given, limit: Span, workloads: &[Workload]) -> Result<Span, InputError> {
    let lasts = workloads.iter().filter_map(|workload| match workload {
        Workload::Cbr { duration, .. } | Workload::Bulk { duration } => Some(*duration),
        _ => None,
    });
    let (Some(duration), Some(source)) = (lasts.max(), given.text("limit")) else { return Ok(limit) };
    if limit >= duration {
        return Ok(limit);
    }
    Err(Diagnostic::new("the workload lasts longer than this limit")
        .at(&source, 0..source.text.len())
        .label("here")
        .help(format!("it lasts {}", units::write_duration(duration)))
        .into())
}
