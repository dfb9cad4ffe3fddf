//! `ropewalk compare`.

mod datagrams;
#[cfg(target_os = "linux")]
mod emulated;
#[cfg(not(target_os = "linux"))]
#[path = "emulated_nowhere.rs"]
mod emulated;
pub(crate) mod show;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use ropewalk_algorithms::{Registries, algorithm};
use ropewalk_command_line::options::{Join, World, list};
use ropewalk_command_line::{Failure, ProgressLine, interrupt, output};
use ropewalk_lab::compare::{Ask, Comparison, Design, Merit, Request, ask, compare};
use ropewalk_lab::opening::OpeningPath;
use ropewalk_lab::report::rope::{self, Budget};
use ropewalk_lab::report::{Origin, comparison};
use ropewalk_lab::scenario::Experiment;
use ropewalk_lab::{real_time, watch};
use ropewalk_settings::diagnostic::{Diagnostic, Source};
use ropewalk_settings::units;
use ropewalk_sim::{Mode, RunResult, RunSpec, Scenario};
use serde_json::Value;

use crate::options::{Common, Stack};
use crate::{evidence, playground};

/// The default of `--open-on`.
pub(crate) const OPEN_ON: &str = "first";

/// Rank schedulers on your paths
///
/// Every scheduler runs on the same paths with the same seeds, until those that are as fast as the fastest
/// are told from those that are slower. Without options: the built-in Wi-Fi + LTE scenario, four flow sizes,
/// all schedulers.
///
/// The answer is a group: all that are equal within 2 %. One of them is named: plain TCP if it is among them,
/// then Linux's own scheduler, then the default of Ropewalk's gateway and proxy, then the one that repeats
/// the fewest bytes (to the per cent of what was delivered) and is the simplest.
///
/// A scenario whose workload is `datagrams` ranks the schedulers of a tunnel for datagrams instead, by the
/// share of packets that are lost or late.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ropewalk compare
  ropewalk compare --path 'wifi: 50 Mbit/s, 20 ms +-5 ms, 0.5 %' \\
      --path 'lte: 20 Mbit/s, 60 ms, queue 400 packets'
  ropewalk compare --scenario satellite-lte --size '256 KiB' --size '4 MiB' \\
      --schedulers 'minrtt,blest,ecf(beta=0.5)'
  ropewalk compare --path 'dsl: 1 Mbit/s, 30 ms, 2 %' --size '200 MiB' \\
      --runs 5 --limit '2 h'
  ropewalk compare --report report.html
  ropewalk compare --plot --size '1 MiB'
  ropewalk compare --world emulated --schedulers blest --size '1 MiB' \\
      --runs 3 --pcap run.pcapng   # one more run, watched
  ropewalk compare --json | jq '.rankings[0].rows[0]'
  ropewalk compare --scenario examples/datagrams.toml   # calls over a cut

A path is `name: rate, round-trip time [+-spread], loss`; the time is what ping shows, half of it each way. \
Also:
`16/1 Mbit/s` (down/up), `up RATE`, `down RATE`, `queue LIMIT`, `jitter uniform|normal|pareto`, \
`reordering`, `trace \
FILE`, `mtu BYTES`, `backup`, `outage 100 ms every 15 s`, `10 Mbit/s at 5 s`, `metered`, `price 2 EUR/GB`. \
A word stands for a link, and what is given with it replaces its parts (`starlink, outage none`): dsl, \
vdsl, cable, 4g, 5g, starlink, geo, wifi (docs/links.md has their numbers).")]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Congestion control [default: the scenario's, else cubic]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Most that is run before the answer is given: a second is 4 million simulated segments, about what two
    /// cores do, so that it means the same runs on every machine
    #[arg(
        long,
        value_name = "TIME",
        default_value = ask::BUDGET,
        conflicts_with = "runs",
        allow_hyphen_values = true
    )]
    budget: String,
    /// Runs per scheduler [default: the scenario's, else until decided or out of budget; with real packets
    /// 30]
    #[arg(long, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    runs: Option<u32>,
    /// First seed
    #[arg(long, default_value_t = 1, allow_negative_numbers = true, value_parser = seed)]
    seed: u64,
    /// The path on which connections open: first, best (where plain TCP is fastest), race (whose handshake
    /// ends first), remember (what an earlier connection found out), or its name
    #[arg(long, value_name = "WORD|PATH", default_value = OPEN_ON)]
    open_on: String,
    /// When joins begin [default: as the scenario says, which is late]
    #[arg(long, value_enum)]
    join: Option<Join>,
    /// Longest that a run may take, in simulated time from the workload's start [default: the scenario's;
    /// without one 60 s, or ten times the least that the links allow]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    limit: Option<String>,
    /// Threads [default: one per core]; the result doesn't depend on it
    #[arg(long, allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Send and receive buffer of both ends, fixed, 4 KiB to 4 GiB
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    buffer: Option<String>,
    /// What bytes on metered paths are worth: 'a second is worth 5 MB of lte'. All of them count then;
    /// without it only those that are sent again, at 5 MB to the second
    #[arg(long, value_name = "TEXT")]
    value: Option<String>,
    /// Where the transfers run: the simulator, or the emulator (real packets in real time; Linux, `ip`,
    /// /dev/net/tun)
    #[arg(long, default_value_t = World::Simulated, value_enum)]
    world: World,
    /// In the emulated world: who sends the data
    #[arg(long, default_value_t = Stack::Engine, value_enum)]
    sender: Stack,
    /// In the emulated world: who receives it
    #[arg(long, default_value_t = Stack::Engine, value_enum)]
    receiver: Stack,
    /// A table for each size, with the spread, the shares of the paths and what was sent again, instead of
    /// one over all
    #[arg(long, conflicts_with = "json")]
    details: bool,
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

#[cfg(target_os = "linux")]
impl Options {
    /// Transfers with real packets, of which nothing else is said.
    pub(crate) fn emulated(
        common: Common,
        join: Option<Join>,
        open_on: &str,
        seed: u64,
        json: bool,
    ) -> Options {
        Options {
            common,
            congestion: None,
            budget: ask::BUDGET.into(),
            runs: None,
            seed,
            open_on: open_on.into(),
            join,
            limit: None,
            jobs: None,
            buffer: None,
            value: None,
            world: World::Emulated,
            sender: Stack::Engine,
            receiver: Stack::Engine,
            details: false,
            json,
            trace: false,
            plot: false,
            report: None,
            evidence: evidence::Options::default(),
            csv: None,
        }
    }
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("a seed is a whole number from 0 to {}", u64::MAX))
}

pub(crate) fn run(registries: &Registries, options: &Options, origin: &Origin) -> Result<(), Failure> {
    let (scenario, experiment, datagrams) = options.common.load_any(registries)?;
    if let Some(datagrams) = datagrams {
        return self::datagrams::run(options, scenario, experiment, datagrams);
    }
    let request = request(registries, options, scenario, experiment)?;
    let own = [("--csv", options.csv.as_ref()), ("--report", options.report.as_ref())];
    output::can_write(&[own, options.evidence.files()].concat())?;
    let per_run = request.workloads.len() * request.candidates.len();
    let bar = match request.design {
        Design::Fixed(runs) => ProgressLine::new(per_run as u64 * u64::from(runs), "runs"),
        Design::Race { segments } => ProgressLine::share(segments, "of the budget"),
    };
    if options.world == World::Emulated {
        // Before the handler of Ctrl-C, which has a thread of its own.
        emulated::prepare()?;
    }
    let stop = interrupt::flag();
    if options.evidence.any() && options.world != World::Emulated {
        return Err(Diagnostic::new(
            "--pcap and --qlog are of packets in real time: give --world emulated, or see `ropewalk explain \
             --pcap`",
        )
        .into());
    }
    ends_fit(options)?;
    let comparison = if options.world == World::Emulated {
        let ends = real_time::Ends {
            sender_kernel: options.sender == Stack::Kernel,
            receiver_kernel: options.receiver == Stack::Kernel,
        };
        emulated::in_real_time(&request, ends, &bar, &stop, &options.evidence)?
    } else {
        compare(&request, |spec| watched(spec, &bar, &stop), |worth| bar.inc(worth), &stop)
    };
    bar.clear();
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
    let origin = Origin { asked: asked(registries, options)?, ..origin.clone() };
    let document = |ropes| comparison::document(&origin, &request.scenario, &comparison, ropes);
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
        output::write_file(file, &ropewalk_page::page(&document(ropes())))?;
    }
    let text = if options.json {
        format!("{:#}\n", document(if options.trace { ropes() } else { Vec::new() }))
    } else {
        show::text(&request.scenario, &comparison, options.details)
            + &if options.plot && simulated { show::plot(&request, &comparison) } else { String::new() }
            + &show::next(&next(options, &request, &comparison))
    };
    output::print(&text)?;
    if comparison.interrupted {
        return Err(Failure::Interrupted("only runs that every candidate finished are shown".into()));
    }
    Ok(())
}

/// Delivered bytes from which on a run says how far it is.
const LONG: u64 = 256 << 20;

/// A run, which can be stopped; a long one says how far it is.
fn watched(spec: &RunSpec, bar: &ProgressLine, stop: &AtomicBool) -> RunResult {
    watch::run_with(spec, |delivered| {
        if let Some(message) = how_far(delivered, &spec.scheduler.text) {
            bar.message(message);
        }
        watch::unless(stop)
    })
}

/// What the progress line says of a long run.
fn how_far(delivered: u64, scheduler: &str) -> Option<String> {
    (delivered > LONG).then(|| format!("; `{scheduler}` is at {} MiB", delivered >> 20))
}

/// What a person does next; nothing where no scheduler is named.
fn next(options: &Options, request: &Request, comparison: &Comparison) -> Vec<(&'static str, String)> {
    let Some((label, merit)) = comparison.decision.as_ref().and_then(|decision| decision.named.as_ref())
    else {
        return Vec::new();
    };
    let links = options.common.links_again();
    let question = format!("{links}{}", options.common.sizes_again());
    let Some(named) = request.candidates.iter().find(|one| one.label == *label) else { return Vec::new() };
    let largest = comparison.rankings.iter().filter_map(|ranking| ranking.bytes).max();
    let size = largest.map_or(String::new(), |bytes| format!(" --size '{}'", units::write_bytes(bytes)));
    let own = if options.common.is_default() {
        ("your own links:", "ropewalk compare --path 'home: dsl' --path 'phone: 20 Mbit/s, 60 ms'".into())
    } else {
        ("how sure that is:", format!("ropewalk advise{question}"))
    };
    let why = match named.mode {
        Mode::SinglePath(_) => ("all numbers:", format!("ropewalk compare{question} --details")),
        Mode::Multipath => {
            let name = &named.scheduler.text;
            ("why:", format!("ropewalk explain{links} --scheduler '{name}'{size}"))
        }
    };
    let use_it = match (named.mode, merit) {
        (Mode::SinglePath(path), _) => {
            format!("the default route over {}; no Multipath TCP", request.scenario.paths[path].name)
        }
        (_, Merit::ItsDefault(_) | Merit::AtHand(_)) => {
            "mptcpize run PROGRAM   # set-up: ropewalk advise --for linux".into()
        }
        (_, Merit::Default) => "sudo ropewalkd proxy --via wlan0 --via wwan0".into(),
        _ => format!("sudo ropewalkd proxy --via wlan0 --via wwan0 --scheduler '{}'", named.scheduler.text),
    };
    vec![own, why, ("put it to work:", use_it)]
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
    let named = options.common.schedulers.as_deref().unwrap_or_default();
    let other = list(named).into_iter().find(|name| !["linux", "tcp"].contains(name));
    if let Some(other) = other.filter(|_| options.sender == Stack::Kernel) {
        let message = format!("the kernel as sender has one scheduler, its own: it can't send by `{other}`");
        return refuse("--schedulers", named, message, "name `linux` alone, or let the engine send");
    }
    Ok(())
}

fn request(
    registries: &Registries,
    options: &Options,
    mut scenario: Scenario,
    experiment: Experiment,
) -> Result<Request, Failure> {
    if let Some(join) = options.join {
        let early = join == Join::Early;
        (scenario.client.early_join, scenario.server.early_join) = (early, early);
    }
    if options.open_on != OPEN_ON {
        let earlier = |name| algorithm(&registries.schedulers, "--open-on", name);
        let congestion = options.congestion.as_deref().unwrap_or("cubic");
        let congestion = algorithm(&registries.congestion, "--congestion", congestion)?;
        let schedulers = [&earlier("single")?, &earlier("minrtt")?];
        let seed = options.seed.wrapping_sub(1);
        scenario = OpeningPath::read(&options.open_on)
            .apply(&scenario, schedulers, &congestion, seed)
            .map_err(|error| {
                Diagnostic::new(error.to_string()).help("--open-on names the path on which connections open")
            })?;
    }
    // The budget is simulated segments; emulated runs take real time, so their number is fixed.
    let usual_runs = (options.world == World::Emulated).then_some(30);
    let ask = Ask {
        common: ask::Common {
            usual: !options.common.paths.is_empty(),
            sizes: options.common.size.clone(),
            schedulers: options.common.names()?,
            congestion: options.congestion.clone(),
            value: options.value.clone(),
            budget: options.budget.clone(),
            seed: options.seed,
        },
        buffer: options.buffer.clone(),
        limit: options.limit.clone(),
        runs: options.runs.or(experiment.runs).or(usual_runs),
    };
    let jobs = ropewalk_runner::threads(options.jobs.map(usize::from));
    Ok(ask.request(scenario, experiment, ask::COMMAND_LINE, jobs, registries)?)
}

/// The question as the playground's fields have it, and the options for which there is none (`without`). Null
/// with real packets, and where traces are too long for an address.
fn asked(registries: &Registries, options: &Options) -> Result<Value, Failure> {
    if options.world == World::Emulated {
        return Ok(Value::Null);
    }
    let mut asked = playground::asked(registries, &options.common)?;
    let traces = asked["files"].as_object().into_iter().flatten();
    let length: usize = traces.map(|(_, text)| text.as_str().map_or(0, str::len)).sum();
    if length > playground::LONGEST_IN_ADDRESS {
        return Ok(Value::Null);
    }
    let without = [
        ("--open-on", options.open_on != OPEN_ON),
        ("--join", options.join.is_some()),
        ("--limit", options.limit.is_some()),
        ("--buffer", options.buffer.is_some()),
        ("--runs", options.runs.is_some()),
    ];
    let without: Vec<&str> = without.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
    if !without.is_empty() {
        asked["without"] = without.join(", ").into();
    }
    asked["congestion"] = options.congestion.clone().unwrap_or_default().into();
    asked["budget"] = options.budget.clone().into();
    asked["seed"] = options.seed.to_string().into();
    asked["value"] = options.value.clone().unwrap_or_default().into();
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::how_far;

    #[test]
    fn the_progress_line_tells_of_long_runs_alone() {
        assert_eq!(how_far(1 << 20, "minrtt"), None);
        assert_eq!(how_far(300 << 20, "blest").unwrap(), "; `blest` is at 300 MiB");
    }
}
