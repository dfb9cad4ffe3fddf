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

use ropewalk_algorithms::Registries;
use ropewalk_command_line::options::{World, list};
use ropewalk_command_line::settings::Tables;
use ropewalk_command_line::{Failure, ProgressLine, interrupt, output};
use ropewalk_engine::scheduler::BASELINE;
use ropewalk_lab::ask;
#[cfg(target_os = "linux")]
use ropewalk_lab::compare::transfers;
use ropewalk_lab::compare::{Comparison, Design, EMULATED_RUNS, Merit, Request, compare, request};
use ropewalk_lab::report::rope::{self, Budget};
use ropewalk_lab::report::{Origin, comparison};
use ropewalk_lab::scenario::Experiment;
use ropewalk_lab::{real_time, watch};
use ropewalk_settings::diagnostic::{Diagnostic, Source};
use ropewalk_settings::{given, units};
use ropewalk_sim::{Mode, RunResult, RunSpec};
use serde_json::Value;

use crate::options::{Common, Stack};
use crate::{evidence, playground};

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
#[command(group = clap::ArgGroup::new("amount").args(["budget", "runs"]))]
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
    common: Common<Compared>,
    #[command(flatten)]
    how: How,
}

/// How the runs are made, and what is shown of them.
#[derive(Debug, clap::Args)]
struct How {
    /// Threads [default: one per core]; the result doesn't depend on it
    #[arg(long, allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
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

/// What comparisons are asked for.
#[derive(Clone, Debug)]
pub(crate) struct Compared;

impl Tables for Compared {
    const TABLES: &'static given::Tables = ask::COMPARE;
}

pub(crate) fn run(registries: &Registries, options: &Options, origin: &Origin) -> Result<(), Failure> {
    let Options { common, how } = options;
    let (scenario, experiment, datagrams) = common.load_any(registries)?;
    if let Some(datagrams) = datagrams {
        return self::datagrams::run(options, scenario, experiment, datagrams);
    }
    // The budget is simulated segments; emulated runs take real time, so their number is fixed.
    let usual_runs = (how.world == World::Emulated).then_some(EMULATED_RUNS);
    let experiment = Experiment { runs: experiment.runs.or(usual_runs), ..experiment };
    let jobs = ropewalk_runner::threads(how.jobs.map(usize::from));
    let request = request(&common.given, !common.paths.is_empty(), scenario, experiment, jobs, registries)?;
    if how.evidence.any() && how.world != World::Emulated {
        return Err(Diagnostic::new(
            "--pcap and --qlog are of packets in real time: give --world emulated, or see `ropewalk explain \
             --pcap`",
        )
        .into());
    }
    ends_fit(options)?;
    let origin = Origin { asked: asked(registries, options)?, ..origin.clone() };
    show_runs(&request, how, common, &origin)
}

/// Transfers with real packets, by the engine at both ends.
#[cfg(target_os = "linux")]
pub(crate) fn emulate<T: Tables>(
    registries: &Registries,
    common: &Common<T>,
    json: bool,
    origin: &Origin,
) -> Result<(), Failure> {
    let (scenario, experiment) = common.load(registries)?;
    let design = Design::Fixed(experiment.runs.unwrap_or(EMULATED_RUNS));
    let usual = !common.paths.is_empty();
    let request = transfers(&common.given, usual, scenario, experiment, design, registries)?;
    let how = How {
        jobs: None,
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
    };
    show_runs(&request, &how, common, origin)
}

/// Makes the runs, and shows them.
fn show_runs<T: Tables>(
    request: &Request,
    how: &How,
    common: &Common<T>,
    origin: &Origin,
) -> Result<(), Failure> {
    let own = [("--csv", how.csv.as_ref()), ("--report", how.report.as_ref())];
    output::can_write(&[own, how.evidence.files()].concat())?;
    let per_run = request.workloads.len() * request.candidates.len();
    let bar = match request.design {
        Design::Fixed(runs) => ProgressLine::new(per_run as u64 * u64::from(runs), "runs"),
        Design::Race { segments } => ProgressLine::share(segments, "of the budget"),
    };
    if how.world == World::Emulated {
        // Before the handler of Ctrl-C, which has a thread of its own.
        emulated::prepare()?;
    }
    let stop = interrupt::flag();
    let comparison = if how.world == World::Emulated {
        let ends = real_time::Ends {
            sender_kernel: how.sender == Stack::Kernel,
            receiver_kernel: how.receiver == Stack::Kernel,
        };
        emulated::in_real_time(request, ends, &bar, &stop, &how.evidence)?
    } else {
        compare(request, |spec| watched(spec, &bar, &stop), |worth| bar.inc(worth), &stop)
    };
    bar.clear();
    if let Some(file) = &how.csv {
        output::write_file(file, &show::csv(&comparison))?;
    }
    // Traces are of simulated runs: beside runs with real packets they would show something else.
    let simulated = comparison.real_time.is_none();
    if !simulated && (how.plot || how.trace || how.report.is_some()) {
        eprintln!("runs in real time aren't traced: no picture of a run; --pcap and --qlog show one");
    }
    let document = |ropes| comparison::document(origin, &request.scenario, &comparison, ropes);
    let ropes = || {
        let mut ropes = Vec::new();
        if !simulated {
            return ropes;
        }
        rope::trace(request, &comparison, Budget::default(), ropewalk_sim::run, |place, paths, result| {
            ropes.push(rope::to_json(place, paths, result));
        });
        ropes
    };
    if let Some(file) = &how.report {
        output::write_file(file, &ropewalk_page::page(&document(ropes())))?;
    }
    let text = if how.json {
        format!("{:#}\n", document(if how.trace { ropes() } else { Vec::new() }))
    } else {
        show::text(&request.scenario, &comparison, how.details)
            + &if how.plot && simulated { show::plot(request, &comparison) } else { String::new() }
            + &show::next(&next(common, request, &comparison))
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
fn next<T: Tables>(
    common: &Common<T>,
    request: &Request,
    comparison: &Comparison,
) -> Vec<(&'static str, String)> {
    let Some((label, merit)) = comparison.decision.as_ref().and_then(|decision| decision.named.as_ref())
    else {
        return Vec::new();
    };
    let links = common.links_again();
    let question = format!("{links}{}", common.again("sizes"));
    let Some(named) = request.candidates.iter().find(|one| one.label == *label) else { return Vec::new() };
    let largest = comparison.rankings.iter().filter_map(|ranking| ranking.bytes).max();
    let size = largest.map_or(String::new(), |bytes| format!(" --size '{}'", units::write_bytes(bytes)));
    let own = if common.is_default() {
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
    for (option, stack) in [("--sender", options.how.sender), ("--receiver", options.how.receiver)] {
        if stack == Stack::Kernel && options.how.world != World::Emulated {
            let message = "the simulated world has no kernel at its ends".into();
            return refuse(option, "kernel", message, "add `--world emulated`");
        }
    }
    let Some(named) = options.common.given.text("schedulers") else { return Ok(()) };
    let other = list(&named.text).into_iter().find(|name| ![BASELINE, "tcp"].contains(name));
    if let Some(other) = other.filter(|_| options.how.sender == Stack::Kernel) {
        let message = format!("the kernel as sender has one scheduler, its own: it can't send by `{other}`");
        return refuse("--schedulers", &named.text, message, "name `linux` alone, or let the engine send");
    }
    Ok(())
}

/// The question as the playground's fields have it. Null with real packets, and where traces are too long for
/// an address.
fn asked(registries: &Registries, options: &Options) -> Result<Value, Failure> {
    if options.how.world == World::Emulated {
        return Ok(Value::Null);
    }
    let asked = playground::asked(registries, &options.common)?;
    let traces = asked["files"].as_object().into_iter().flatten();
    let length: usize = traces.map(|(_, text)| text.as_str().map_or(0, str::len)).sum();
    if length > playground::LONGEST_IN_ADDRESS {
        return Ok(Value::Null);
    }
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
