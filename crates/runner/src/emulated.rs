//! Runs a scenario in the emulated world: real packets in real time, each end the engine or the Linux kernel.
//!
//! Background traffic and workloads other than flows of a size aren't supported and are refused. A run whose
//! packets left the links too late (p99 above 0.3 ms) is void. It is counted, and repeated up to three times.

use std::sync::Mutex;

use ropewalk_engine::scheduler::BASELINE;
use ropewalk_engine::{ConnectionStats, Span, Time};
use ropewalk_host::experiment::{self, Experiment, KernelParty, Party};
use ropewalk_host::network::PathConfig;
use ropewalk_host::transfer;
use ropewalk_host::world::{PathLinks, Tap};
use ropewalk_lab::compare::{Candidate, Request};
use ropewalk_lab::parallel::Workers;
use ropewalk_lab::real_time::{Ends, KERNEL, LATE_BY, LATENESS_LIMIT, Tally};
use ropewalk_link::{ChangeAction, LinkSpec};
use ropewalk_sim::{
    Direction, EndSpec, FlowResult, Mode, OfoResult, Outcome, PathResult, Recording, RunResult, RunSpec,
    Scenario, Side, Workload,
};

/// How often a void run is repeated.
const REPEATS: u32 = 3;

/// TIME-WAIT of an engine's end, nanoseconds. Without it, the end would answer a retransmitted FIN with RST,
/// which the peer takes for a failure. A run whose path is dead at the end takes that much longer.
const TIME_WAIT: Span = Span::from_secs(1);

/// Why the emulated world can't run something.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmulatedError {
    /// The scenario of this name has background traffic.
    #[error("`{0}` has background traffic, which the emulated world doesn't have: remove it, or simulate")]
    Background(String),
    /// The workload isn't one of flows of a size.
    #[error("the emulated world transfers flows of a size: give --size")]
    Workload,
    /// No candidate that a kernel as sender could run.
    #[error("the kernel as sender has one scheduler, its own: name `linux` in --schedulers")]
    KernelScheduler,
    /// The kernel has no such congestion control.
    #[error("this kernel has no congestion control `{name}`; it has: {available}")]
    CongestionControl {
        /// What was asked for.
        name: String,
        /// What there is, separated by spaces.
        available: String,
    },
    /// Devices, namespaces or processes can't be set up.
    #[error("the emulated world can't be set up: {0}")]
    Setup(String),
}

/// The stacks at the ends of this run.
fn ends_of(spec: &RunSpec, ends: Ends) -> Ends {
    Ends { sender_kernel: ends.sender_kernel || spec.scheduler.text == KERNEL, ..ends }
}

/// Checks that the emulated world can run this.
pub fn check(scenario: &Scenario, workloads: &[Workload]) -> Result<(), EmulatedError> {
    if !scenario.background.is_empty() {
        return Err(EmulatedError::Background(scenario.name.clone()));
    }
    for workload in workloads {
        if !matches!(workload, Workload::Flow { .. } | Workload::Flows { .. }) {
            return Err(EmulatedError::Workload);
        }
    }
    Ok(())
}

/// A scenario's network as an emulated world takes it: paths, their links, and the links that they share.
pub fn network_of(scenario: &Scenario) -> (Vec<PathConfig>, Vec<PathLinks>, Vec<[LinkSpec; 2]>) {
    let paths = scenario.paths.iter().map(|path| {
        let config = PathConfig { name: path.name.clone(), mtu: path.mtu, backup: path.backup };
        let (up, down) = (path.up.clone(), path.down.clone());
        (config, PathLinks { up, down, bottleneck: path.bottleneck })
    });
    let (paths, links) = paths.unzip();
    let shared = scenario.bottlenecks.iter().map(|link| [link.up.clone(), link.down.clone()]);
    (paths, links, shared.collect())
}

/// The kernel's name of a congestion control that it has.
pub fn kernel_congestion(text: &str) -> Result<String, EmulatedError> {
    let known =
        std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    let name = text.split('(').next().unwrap_or(text).trim();
    if known.split_whitespace().any(|word| word == name) {
        return Ok(name.into());
    }
    Err(EmulatedError::CongestionControl { name: name.into(), available: known.trim().into() })
}

fn party(spec: &RunSpec, side: Side, kernel: bool) -> Result<Party, EmulatedError> {
    let scenario = &spec.scenario;
    let end: &EndSpec = if side == Side::Client { &scenario.client } else { &scenario.server };
    if kernel {
        let sends = (scenario.direction == Direction::Upload) == (side == Side::Client);
        let congestion = match kernel_congestion(&spec.congestion.text) {
            Err(error) if sends => return Err(error),
            // A receiver only sends ACKs: use a control that every kernel has.
            found => found.unwrap_or_else(|_| "reno".into()),
        };
        return Ok(Party::Kernel(KernelParty {
            multipath: spec.mode == Mode::Multipath,
            congestion,
            checksum: end.checksum,
            receive_buffer: Some(end.receive_buffer),
            send_buffer: Some(end.send_buffer),
            ..KernelParty::default()
        }));
    }
    let mut config = ropewalk_sim::connection(spec, side);
    // Remove the simulator's addresses; the experiment adds its own.
    config.path_manager.endpoints.clear();
    config.tcp.time_wait = TIME_WAIT;
    Ok(Party::Engine(Box::new(config)))
}

fn is_down_at_start(link: &LinkSpec) -> bool {
    let mut first = link.changes.iter().filter(|change| change.at == Time::ZERO);
    first.next_back().is_some_and(|change| change.action == ChangeAction::Down)
}

fn experiment(spec: &RunSpec, ends: Ends) -> Result<Experiment, EmulatedError> {
    let scenario = &spec.scenario;
    check(scenario, std::slice::from_ref(&scenario.workload))?;
    let (bytes, connections) = match scenario.workload {
        Workload::Flow { bytes } => (bytes, 1),
        Workload::Flows { count, bytes } => (bytes, count as usize),
        _ => return Err(EmulatedError::Workload),
    };
    let download = scenario.direction == Direction::Download;
    let direction = if download { transfer::Direction::Download } else { transfer::Direction::Upload };
    let (client_kernel, server_kernel) = if download {
        (ends.receiver_kernel, ends.sender_kernel)
    } else {
        (ends.sender_kernel, ends.receiver_kernel)
    };
    let first_path = match spec.mode {
        Mode::SinglePath(path) => path,
        Mode::Multipath => scenario
            .paths
            .iter()
            .position(|path| !is_down_at_start(&path.up) && !is_down_at_start(&path.down))
            .unwrap_or(0),
    };
    let (paths, links, shared) = network_of(scenario);
    Ok(Experiment {
        paths,
        links: Some(links),
        shared,
        seed: spec.seed,
        connections,
        first_path,
        limit: scenario.limit,
        ..Experiment::new(
            party(spec, Side::Client, client_kernel)?,
            party(spec, Side::Server, server_kernel)?,
            scenario.paths.len(),
            transfer::Request { direction, bytes },
        )
    })
}

/// Makes one run in real time. Void runs are repeated.
///
/// # Errors
/// The run can't be made: see [`EmulatedError`].
pub fn run(spec: &RunSpec, ends: Ends, tally: &Mutex<Tally>) -> Result<RunResult, EmulatedError> {
    let mut repeats = 0;
    let ends = ends_of(spec, ends);
    loop {
        let report = experiment::run(experiment(spec, ends)?)
            .map_err(|error| EmulatedError::Setup(error.to_string()))?;
        let late = report.lateness.value_at_quantile(0.99);
        let void = late > LATENESS_LIMIT;
        if let Ok(mut tally) = tally.lock() {
            if void && repeats < REPEATS {
                tally.repeated += 1;
            } else {
                tally.runs += 1;
                tally.void += u32::from(void);
                tally.lateness = tally.lateness.max(late);
                for (late, count) in report.lateness.buckets() {
                    let class = LATE_BY.partition_point(|bound| *bound < late);
                    tally.late[class] += count;
                }
                let multipath = spec.mode == Mode::Multipath;
                let fell = report
                    .client
                    .iter()
                    .filter(|outcome| multipath && outcome.error.is_none() && !outcome.multipath);
                let fell = fell.count();
                tally.fallbacks += fell as u32;
            }
        }
        if void && repeats < REPEATS {
            repeats += 1;
            continue;
        }
        return Ok(result(spec, &report));
    }
}

/// Makes one run that is recorded, with every decision's reason. Recording takes time, so the run must not be
/// ranked.
///
/// # Errors
/// The run can't be made: see [`EmulatedError`].
pub fn run_recorded(spec: &RunSpec, ends: Ends, tap: Box<dyn Tap>) -> Result<RunResult, EmulatedError> {
    let recording = Recording { decisions: true, ..spec.recording };
    let spec = RunSpec { recording, ..spec.clone() };
    let experiment = Experiment { tap: Some(tap), ..experiment(&spec, ends)? };
    let report = experiment::run(experiment).map_err(|error| EmulatedError::Setup(error.to_string()))?;
    Ok(result(&spec, &report))
}

/// The errors of both ends, and connections that only one end saw.
fn errors(report: &experiment::Report) -> Option<String> {
    let mut all = Vec::new();
    for (name, outcomes, others) in
        [("client", &report.client, &report.server), ("server", &report.server, &report.client)]
    {
        all.extend(
            outcomes.iter().filter_map(|outcome| Some(format!("{name}: {}", outcome.error.as_ref()?))),
        );
        if outcomes.len() < others.len() {
            all.push(format!("{name}: {} of {} connections arrived", outcomes.len(), others.len()));
        }
    }
    (!all.is_empty()).then(|| all.join("; "))
}

fn result(spec: &RunSpec, report: &experiment::Report) -> RunResult {
    let scenario = &spec.scenario;
    let download = scenario.direction == Direction::Download;
    let bytes = match scenario.workload {
        Workload::Flow { bytes } | Workload::Flows { bytes, .. } => bytes,
        _ => 0,
    };
    let times = report.completion_times(download);
    let mut result = nothing(spec);
    result.duration = times.iter().flatten().max().copied().unwrap_or(scenario.limit);
    result.flows = times.iter().map(|fct| FlowResult { bytes, start: Time::ZERO, fct: *fct }).collect();
    result.outcome = match errors(report) {
        _ if !times.is_empty() && times.iter().all(Option::is_some) => Outcome::Complete,
        Some(why) => Outcome::Failed(why),
        None => Outcome::TimeLimit,
    };
    let receivers = if download { &report.client } else { &report.server };
    result.delivered_bytes = receivers.iter().map(|outcome| outcome.received).sum();
    let senders = if download { &report.server } else { &report.client };
    fn stats(outcomes: &[transfer::Outcome]) -> impl Iterator<Item = &ConnectionStats> {
        outcomes.iter().filter_map(|outcome| outcome.stats.as_ref())
    }
    result.ofo = OfoResult::over(result.duration, stats(receivers).map(|stats| stats.ofo));
    stats(receivers).for_each(|stats| result.totals.add_receiver(stats));
    stats(senders).for_each(|stats| result.totals.add_sender(stats));
    // The kernel's counters: connection-level retransmissions, and segments of all subflows.
    let infos = senders.iter().filter_map(|outcome| outcome.info);
    result.totals.reinjected_bytes += infos.map(|info| info.bytes_retrans).sum::<u64>();
    if senders.iter().all(|outcome| outcome.stats.is_none()) {
        let counters = &report.counters[usize::from(download)];
        let of = |name: &str| counters.iter().find(|(known, _)| known == name).map_or(0, |(_, value)| *value);
        result.totals.retransmissions += of("TcpRetransSegs");
        result.totals.timeouts += of("TcpExtTCPTimeouts");
    }
    let way = usize::from(download);
    result.paths = scenario
        .paths
        .iter()
        .zip(&report.links)
        .map(|(path, links)| PathResult {
            name: path.name.clone(),
            bytes: links[way].bytes_delivered,
            segments: links[way].packets_delivered,
            lost: links[way].dropped(),
            queue_delay_mean: links[way].sojourn.as_nanos() as f64 / links[way].packets_in.max(1) as f64,
            ..PathResult::default()
        })
        .collect();
    result
}

/// The result of a run that delivered nothing before its limit.
pub fn nothing(spec: &RunSpec) -> RunResult {
    RunResult { duration: spec.scenario.limit, ..RunResult::new(Outcome::TimeLimit) }
}

/// Checks that the emulated world can run `request`, and adapts it: runs are made one at a time; a kernel as
/// sender keeps only its own scheduler; if the engine sends, a row for the kernel as sender is added where
/// the kernel has the congestion control.
///
/// # Errors
/// The request can't be run: see [`EmulatedError`].
pub fn for_emulation(request: &Request, ends: Ends) -> Result<Request, EmulatedError> {
    check(&request.scenario, &request.workloads)?;
    let mut request = Request { jobs: Workers::ONE, ..request.clone() };
    let multipath = |candidate: &&Candidate| candidate.mode == Mode::Multipath;
    if ends.sender_kernel {
        request
            .candidates
            .retain(|candidate| candidate.mode != Mode::Multipath || candidate.scheduler.text == BASELINE);
        if request.candidates.iter().find(multipath).is_none() {
            return Err(EmulatedError::KernelScheduler);
        }
    } else if kernel_congestion(&request.congestion.text).is_ok()
        && let Some(first) = request.candidates.iter().find(multipath)
    {
        let mut scheduler = first.scheduler.clone();
        scheduler.text = KERNEL.into();
        let kernel = Candidate { label: KERNEL.into(), scheduler, mode: Mode::Multipath };
        request.candidates.push(kernel);
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use ropewalk_engine::Span;
    use ropewalk_engine::Time;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use ropewalk_host::experiment::{self, Experiment};
    use ropewalk_host::frame::Piece;
    use ropewalk_host::world::{Middlebox, Verdict};
    use ropewalk_sim::{Mode, Outcome, Recording, RunSpec, Scenario, Workload};
    use ropewalk_wire::Flags;

    use super::{Ends, result};
    use ropewalk_algorithms::Registries;

    /// Drops the first FIN of each of the server's subflows.
    #[derive(Default)]
    struct DropsFirstFins(BTreeSet<u16>);

    impl Middlebox for DropsFirstFins {
        fn on_packet(&mut self, _now: Time, up: bool, packet: &Piece) -> Verdict {
            match packet.segment() {
                Ok(segment)
                    if !up && segment.flags.contains(Flags::FIN) && self.0.insert(segment.tuple.dst_port) =>
                {
                    Verdict::Drop
                }
                _ => Verdict::Pass,
            }
        }
    }

    #[test]
    fn a_lost_fin_is_no_failure() {
        let registries = Registries::builtin();
        let scenario = ropewalk_lab::scenario::load("fast-slow", &registries).unwrap().scenario;
        let spec = RunSpec {
            scenario: Arc::new(Scenario { workload: Workload::Flow { bytes: 20_000 }, ..scenario }),
            scheduler: registries.schedulers.parse("minrtt").unwrap(),
            congestion: registries.congestion.parse("cubic").unwrap(),
            mode: Mode::Multipath,
            seed: 1,
            start_phase: Span::ZERO,
            recording: Recording::default(),
        };
        let ends = Ends { sender_kernel: false, receiver_kernel: false };
        let experiment = super::experiment(&spec, ends).unwrap();
        let middlebox = Some(Box::new(DropsFirstFins::default()) as Box<dyn Middlebox>);
        let report = experiment::run(Experiment { middlebox, ..experiment }).unwrap();
        let result = result(&spec, &report);
        assert_eq!(result.outcome, Outcome::Complete, "{report:?}");
    }
}
