//! `ropewalk compare`.

mod show;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::{ProgressBar, ProgressStyle};
use ropewalk_engine::registry::{Registry, Spec};
use ropewalk_engine::scheduler::Scheduler;
use ropewalk_lab::compare::{Candidate, Comparison, Design, Request, compare, usual_workloads};
use ropewalk_lab::diagnostic::{Diagnostic, Source};
use ropewalk_lab::report::rope::{self, Budget};
use ropewalk_lab::report::{self, Origin, comparison};
use ropewalk_lab::{Registries, emulated, scenario, units};
use ropewalk_sim::{Direction, Mode, Workload};

use crate::options::{self, Stack, World};
use crate::{Failure, evidence, interrupt, output};

/// Rank schedulers on your paths
///
/// Every scheduler runs on the same paths with the same seeds, until those that are as fast as the fastest are told from
/// those that are slower. Without options: the built-in Wi-Fi + LTE scenario, four flow sizes, all schedulers.
///
/// The answer is a group: all that are equal within 2 %. One of them is named: plain TCP if it is among them, then the
/// scheduler that is easiest to get (Linux's own, that of another kernel, Ropewalk's), then the one that repeats the
/// fewest bytes, then the simplest.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ropewalk compare
  ropewalk compare --path 'wifi: 50 Mbit/s, 20 ms +-5 ms, 0.5 %' --path 'lte: 20 Mbit/s, 60 ms, queue 400 packets'
  ropewalk compare --scenario satellite-lte --size '256 KiB' --size '4 MiB' --schedulers 'minrtt,blest,ecf(beta=0.5)'
  ropewalk compare --path 'dsl: 1 Mbit/s, 30 ms, 2 %' --size '200 MiB' --runs 5 --limit '2 h'
  ropewalk compare --report report.html
  ropewalk compare --plot --size '1 MiB'
  ropewalk compare --world emulated --schedulers blest --size '1 MiB' --runs 3 --pcap run.pcapng   # one more run, watched
  ropewalk compare --json | jq '.rankings[0].rows[0]'

A path is `name: rate, round-trip time [+-spread], loss`; the time is what ping shows, half of it each way. Also:
`up RATE`, `down RATE`, `queue LIMIT`, `jitter uniform|normal|pareto`, `reordering`, `trace FILE`, `mtu BYTES`, `backup`.")]
pub(crate) struct Options {
    /// A path of your own; repeat it for each
    #[arg(long = "path", value_name = "PATH", conflicts_with = "scenario")]
    paths: Vec<String>,
    /// A built-in scenario's name, or a scenario file
    #[arg(long, value_name = "NAME|FILE")]
    scenario: Option<String>,
    /// Schedulers, separated by commas [default: all]
    #[arg(long, value_name = "LIST")]
    schedulers: Option<String>,
    /// Congestion control [default: the scenario's, else cubic]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Flow size, 1 B to 1 TiB; repeat it, or separate by commas
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    size: Vec<String>,
    /// How much to run before the answer is given as it is then: a second is 4 million simulated segments, about what two
    /// cores do, so that it means the same runs on every machine
    #[arg(
        long,
        value_name = "TIME",
        default_value = "10s",
        conflicts_with = "runs",
        allow_hyphen_values = true
    )]
    budget: String,
    /// So many seeded runs of each, instead of as many as it takes [default: the scenario's; with real packets 30]
    #[arg(long, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    runs: Option<u32>,
    /// First seed
    #[arg(long, default_value_t = 1, allow_negative_numbers = true, value_parser = seed)]
    seed: u64,
    /// Longest that a run may take, in simulated time from the workload's start [default: the scenario's; without one 60 s,
    /// or ten times the least that the links allow]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    limit: Option<String>,
    /// Threads [default: one per core]; the result doesn't depend on it
    #[arg(long, allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Which end sends the data
    #[arg(long)]
    direction: Option<options::Direction>,
    /// Send and receive buffer of both ends, fixed, 4 KiB to 4 GiB
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    buffer: Option<String>,
    /// Where the transfers run: the simulator, or the emulator (real packets in real time; Linux, `ip`, /dev/net/tun)
    #[arg(long, default_value_t = World::Simulated, value_enum)]
    world: World,
    /// In the emulated world: who sends the data
    #[arg(long, default_value_t = Stack::Engine, value_enum)]
    sender: Stack,
    /// In the emulated world: who receives it
    #[arg(long, default_value_t = Stack::Engine, value_enum)]
    receiver: Stack,
    /// As JSON, which `ropewalk report` makes a page of
    #[arg(long)]
    json: bool,
    /// With --json: also the traces of a few runs, for the report's rope view
    #[arg(long, requires = "json")]
    trace: bool,
    /// Also draw in the terminal: the spread of completion times, and a run of the largest workload in time
    #[arg(long, conflicts_with = "json")]
    plot: bool,
    /// Also write a report: one HTML file that needs no network
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    #[command(flatten)]
    evidence: evidence::Options,
    /// Also write every run as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

/// Parses an algorithm's name given on the command line.
pub(crate) fn algorithm<T: ?Sized>(
    registry: &Registry<T>,
    option: &str,
    text: &str,
) -> Result<Spec<T>, Failure> {
    registry.parse(text).map_err(|error| {
        let source = Source::new(option, text);
        Diagnostic::new(error.message.clone()).at(&source, error.span.0..error.span.1).label("here").into()
    })
}

/// A flow's size given on the command line.
pub(crate) fn size(option: &str, text: &str) -> Result<u64, Failure> {
    size_within(option, text, (1, 1 << 40))
}

/// A size given on the command line, in a range.
pub(crate) fn size_within(option: &str, text: &str, range: (u64, u64)) -> Result<u64, Failure> {
    units::bytes_within(text, range).map_err(|error| {
        let source = Source::new(option, text);
        Diagnostic::new(error.message).at(&source, error.span).label(error.label).help(error.help).into()
    })
}

/// The scenario that `--scenario` names.
pub(crate) fn load(registries: &Registries, name: &str) -> Result<scenario::Loaded, Failure> {
    scenario::load(name, registries).map_err(|error| error.of_argument("--scenario", name).into())
}

/// A scheduler given on the command line, for so many paths.
pub(crate) fn scheduler(
    registries: &Registries,
    option: &str,
    text: &str,
    paths: usize,
) -> Result<Spec<dyn Scheduler>, Failure> {
    registries.scheduler(text, paths).map_err(|error| {
        let source = Source::new(option, text);
        Diagnostic::new(error.message.clone()).at(&source, error.span.0..error.span.1).label("here").into()
    })
}

/// A limit given on the command line, for these workloads.
fn limit(text: &str, workloads: &[Workload]) -> Result<u64, Failure> {
    let source = Source::new("--limit", text);
    let found = units::duration(text).map_err(|error| {
        Diagnostic::new(error.message).at(&source, error.span).label(error.label).help(error.help)
    })?;
    let wrong = |message: &str, help: String| {
        Err(Diagnostic::new(message).at(&source, 0..text.len()).label("here").help(help).into())
    };
    if found == 0 {
        return wrong("a limit must be more than 0", "as in `--limit '120 s'`".into());
    }
    let lasts = workloads.iter().filter_map(|workload| match workload {
        Workload::Cbr { duration, .. } | Workload::Bulk { duration } => Some(*duration),
        _ => None,
    });
    match lasts.max().filter(|duration| found < *duration) {
        Some(duration) => wrong(
            "the workload lasts longer than this limit",
            format!("it lasts {}", units::write_duration(duration)),
        ),
        None => Ok(found),
    }
}

/// A budget given on the command line, nanoseconds.
pub(crate) fn budget(text: &str) -> Result<u64, Failure> {
    let source = Source::new("--budget", text);
    let found = units::duration(text).map_err(|error| {
        Diagnostic::new(error.message).at(&source, error.span).label(error.label).help(error.help)
    })?;
    if found == 0 {
        return Err(Diagnostic::new("a budget must be more than 0")
            .at(&source, 0..text.len())
            .label("here")
            .help("as in `--budget 10s`; `--runs N` asks for a number of runs")
            .into());
    }
    Ok(found)
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("a seed is a whole number from 0 to {}", u64::MAX))
}

/// Splits at commas outside brackets.
pub(crate) fn list(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

pub(crate) fn run(registries: &Registries, options: &Options, origin: &Origin) -> Result<(), Failure> {
    let request = request(registries, options)?;
    let own = [("--csv", options.csv.as_ref()), ("--report", options.report.as_ref())];
    output::can_write(&[own, options.evidence.files()].concat())?;
    let per_run = request.workloads.len() * request.candidates.len();
    let (total, template) = match request.design {
        Design::Fixed(runs) => (per_run as u64 * u64::from(runs), "{bar:40} {pos}/{len} runs, {eta} left"),
        Design::Race { segments } => (segments, "{bar:40} {percent} % of the budget, at most {eta} left"),
    };
    let bar = ProgressBar::new(total);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    if options.world == World::Emulated {
        // Before the handler of Ctrl-C, which has a thread of its own.
        ropewalk_host::netns::become_root_of_own_user_namespace().map_err(Failure::other)?;
    }
    let stop = interrupt::flag();
    if options.evidence.any() && options.world != World::Emulated {
        return Err(Diagnostic::new(
            "--pcap and --qlog are of packets in real time: give --world emulated, or see `ropewalk explain --pcap`",
        )
        .into());
    }
    ends_fit(options)?;
    let comparison = if options.world == World::Emulated {
        let ends = emulated::Ends {
            sender_kernel: options.sender == Stack::Kernel,
            receiver_kernel: options.receiver == Stack::Kernel,
        };
        in_real_time(&request, ends, &bar, &stop, &options.evidence)?
    } else {
        compare(&request, ropewalk_sim::run, |worth| bar.inc(worth), &stop)
    };
    bar.finish_and_clear();
    if let Some(file) = &options.csv {
        output::write_file(file, &show::csv(&comparison))?;
    }
    // Traces are of simulated runs: beside runs with real packets they would show something else.
    let simulated = comparison.real_time.is_none();
    if !simulated && (options.plot || options.trace || options.report.is_some()) {
        anstream::eprintln!(
            "runs in real time aren't traced: no picture of a run; --pcap and --qlog show one"
        );
    }
    let document = |ropes| comparison::document(origin, &request.scenario, &comparison, ropes);
    let ropes = || {
        let mut ropes = Vec::new();
        if !simulated {
            return ropes;
        }
        rope::trace(&request, &comparison, Budget::default(), ropewalk_sim::run, |place, paths, result| {
            ropes.push(rope::to_json(place, paths, result));
        });
        ropes
    };
    if let Some(file) = &options.report {
        output::write_file(file, &report::page(&document(ropes())))?;
    }
    let text = if options.json {
        format!("{:#}\n", document(if options.trace { ropes() } else { Vec::new() }))
    } else {
        show::text(&request.scenario, &comparison)
            + &if options.plot && simulated { show::plot(&request, &comparison) } else { String::new() }
    };
    output::print(&text)?;
    if comparison.interrupted {
        return Err(Failure::Interrupted("only runs that every candidate finished are shown".into()));
    }
    Ok(())
}

/// Refuses options about the ends that no run could follow.
fn ends_fit(options: &Options) -> Result<(), Failure> {
    let refuse = |option: &str, text: &str, message: String, help: &str| {
        let source = Source::new(option, text);
        Err(Diagnostic::new(message).at(&source, 0..text.len()).label("here").help(help).into())
    };
    for (option, stack) in [("--sender", options.sender), ("--receiver", options.receiver)] {
        if stack == Stack::Kernel && options.world != World::Emulated {
            let message = "the simulated world has no kernel at its ends".into();
            return refuse(option, "kernel", message, "add `--world emulated`");
        }
    }
    let named = options.schedulers.as_deref().unwrap_or_default();
    let other = list(named).into_iter().find(|name| !["linux", "tcp"].contains(name));
    if let Some(other) = other.filter(|_| options.sender == Stack::Kernel) {
        let message = format!("the kernel as sender has one scheduler, its own: it can't send by `{other}`");
        return refuse("--schedulers", named, message, "name `linux` alone, or let the engine send");
    }
    Ok(())
}

/// The same table in real time: one run at a time, or they would disturb each other.
fn in_real_time(
    request: &Request,
    ends: emulated::Ends,
    bar: &ProgressBar,
    stop: &Arc<AtomicBool>,
    evidence: &evidence::Options,
) -> Result<Comparison, Failure> {
    let request = emulated::request(request, ends)?;
    let failed = std::sync::Mutex::new(None);
    let tally = std::sync::Mutex::new(emulated::Tally::default());
    let comparison = compare(
        &request,
        |spec| match emulated::run(spec, ends, &tally) {
            Ok(result) => result,
            Err(error) => {
                // Nothing can be measured: the first error is reported instead of a table.
                stop.store(true, Ordering::Relaxed);
                if let Ok(mut failed) = failed.lock() {
                    failed.get_or_insert(error);
                }
                emulated::nothing(spec)
            }
        },
        |worth| bar.inc(worth),
        stop,
    );
    if let Ok(Some(error)) = failed.into_inner() {
        bar.finish_and_clear();
        return Err(error.into());
    }
    let tally = tally.into_inner().unwrap_or_default();
    let comparison = Comparison { real_time: Some(emulated::RealTime { ends, tally }), ..comparison };
    if !comparison.interrupted {
        watch(&request, ends, evidence)?;
    }
    Ok(comparison)
}

/// One more run of the first candidate, with the first workload and seed, from the data's sender.
fn watch(request: &Request, ends: emulated::Ends, options: &evidence::Options) -> Result<(), Failure> {
    let spec = request.run_spec(0, 0, 0);
    let side = match spec.scenario.direction {
        Direction::Upload => ropewalk_host::network::Side::Client,
        Direction::Download => ropewalk_host::network::Side::Server,
    };
    let paths: Vec<_> = spec.scenario.paths.iter().map(ropewalk_lab::evidence::path).collect();
    let title = format!("{}, {}, seed {}", spec.scenario.name, request.candidates[0].label, spec.seed);
    let Some(evidence) = options.begin(side, &paths, &title)? else { return Ok(()) };
    emulated::run_recorded(&spec, ends, evidence.tap())?;
    evidence.finish()?;
    anstream::eprintln!("one more run was watched: {title}");
    Ok(())
}

fn request(registries: &Registries, options: &Options) -> Result<Request, Failure> {
    let (mut scenario, experiment) = if options.paths.is_empty() {
        let name = options.scenario.as_deref().unwrap_or(scenario::DEFAULT);
        let loaded = load(registries, name)?;
        (loaded.scenario, loaded.experiment)
    } else {
        let paths = scenario::paths(&options.paths)?;
        (scenario::default_around(paths), scenario::Experiment::default())
    };
    if let Some(direction) = options.direction {
        scenario.direction = direction.into();
    }
    if let Some(buffer) = &options.buffer {
        let bytes = size_within("--buffer", buffer, scenario::BUFFER_RANGE)?;
        for end in [&mut scenario.client, &mut scenario.server] {
            end.send_buffer = bytes;
            end.receive_buffer = bytes;
            end.autotune = false;
        }
    }
    let experiment_limit = experiment.limit;
    let mut sizes = Vec::new();
    for text in options.size.iter().flat_map(|text| text.split(',')) {
        sizes.push(size("--size", text)?);
    }
    if sizes.is_empty() {
        sizes = experiment.sizes;
    }
    let workloads = if sizes.is_empty() && !options.paths.is_empty() {
        usual_workloads()
    } else if sizes.is_empty() {
        vec![scenario.workload.clone()]
    } else {
        sizes.into_iter().map(|bytes| Workload::Flow { bytes }).collect()
    };
    let congestion = options.congestion.clone().or(experiment.congestion).unwrap_or_else(|| "cubic".into());
    let congestion = algorithm(&registries.congestion, "--congestion", &congestion)?;
    let chosen: Vec<String> = match &options.schedulers {
        Some(text) if list(text).is_empty() => {
            let source = Source::new("--schedulers", text.as_str());
            return Err(Diagnostic::new("no scheduler is named")
                .at(&source, 0..text.len())
                .label("nothing found")
                .help("as in `minrtt,blest`; `ropewalk list` shows all; without `--schedulers` all are compared")
                .into());
        }
        Some(text) => list(text).into_iter().map(String::from).collect(),
        None if !experiment.schedulers.is_empty() => experiment.schedulers,
        None => {
            let all = registries.schedulers.entries().iter().map(|entry| entry.name);
            // `single` is what the rows of plain TCP show, path by path.
            all.filter(|name| *name != "single").map(String::from).collect()
        }
    };
    let mut candidates = Vec::new();
    for name in chosen.iter().filter(|name| *name != "tcp") {
        let scheduler = scheduler(registries, "--schedulers", name, scenario.paths.len())?;
        candidates.push(Candidate { label: scheduler.text.clone(), scheduler, mode: Mode::Multipath });
    }
    if !candidates.iter().any(|candidate| candidate.label == "linux")
        && registries.schedulers.parse("linux").is_ok()
    {
        let scheduler = algorithm(&registries.schedulers, "--schedulers", "linux")?;
        candidates.push(Candidate { label: "linux".into(), scheduler, mode: Mode::Multipath });
    }
    for (index, path) in scenario.paths.iter().enumerate() {
        let scheduler = algorithm(&registries.schedulers, "--schedulers", "single")?;
        let label = format!("tcp {}", path.name);
        candidates.push(Candidate { label, scheduler, mode: Mode::SinglePath(index) });
    }
    let jobs =
        options.jobs.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let design = match options.runs.or(experiment.runs) {
        Some(runs) => Design::Fixed(runs),
        // Real time can't be bought by the segment.
        None if options.world == World::Emulated => Design::Fixed(30),
        None => Design::race(budget(&options.budget)?),
    };
    let mut request =
        Request { scenario, workloads, candidates, congestion, design, seed: options.seed, jobs };
    request.scenario.limit = match &options.limit {
        Some(text) => limit(text, &request.workloads)?,
        None if experiment_limit.is_some() => request.scenario.limit,
        None => request.ample_limit(),
    };
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::list;

    #[test]
    fn lists_split_outside_brackets_only() {
        assert_eq!(
            list("minrtt, capacity(gamma=0.5, delta=1.0),ecf"),
            ["minrtt", "capacity(gamma=0.5, delta=1.0)", "ecf"]
        );
    }
}
