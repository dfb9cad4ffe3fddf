//! `ropewalk record` and `ropewalk shadow`: what a proxy's links did, as a scenario; and what other schedulers would have done.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ropewalk_algorithms::Registries;
use ropewalk_gateway::record::{RecordedFlow, Recording};
use ropewalk_gateway::status;
use ropewalk_lab::scenario;
use ropewalk_lab::stats::paired_ratio;
use ropewalk_settings::diagnostic::{Diagnostic, Source, system_reason};
use ropewalk_sim::{Direction, RunSpec, Scenario, Workload};
use serde_json::{Value, json};

use crate::gateway::time;
use crate::{Failure, compare, output, status::sockets};

/// Least and most time that a simulated flow may take.
const LIMIT: (f64, f64) = (60.0, 3600.0);
const SECOND: f64 = 1e9;

/// A running proxy's links over the last hour, as a scenario file
#[derive(Debug, clap::Args)]
#[command(
    long_about = "A running proxy's links over the last hour, as a scenario file.\n\nThe proxy notes every second what each link carried, its delay, its loss and whether it worked. `compare` and `advise` replay the file: it repeats, and their runs start all over it. Rates are what the links carried when they were busy: an idle link's can't be known.",
    after_help = "Examples:
  ropewalk record --output my-links.toml
  ropewalk record --last '10 min' --output my-links.toml
  ropewalk record --json > recording.json
  ropewalk compare --scenario my-links.toml --size '4 MiB'"
)]
pub(crate) struct RecordOptions {
    #[command(flatten)]
    source: RecordingSource,
    /// The scenario's file [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The recording itself, for `--recording` and for programs
    #[arg(long)]
    json: bool,
}

/// What other schedulers would have done with the last hour's flows
#[derive(Debug, clap::Args)]
#[command(
    long_about = "What other schedulers would have done with the last hour's flows.\n\nEach flow that a running proxy carried is simulated again: over its links as they were recorded, at its time, with its size, by each scheduler at the sending end. It is a simulation, one flow at a time: flows don't compete, and a link's rate is what it carried. How well that fits is said: simulated times beside recorded ones.",
    after_help = "Examples:
  ropewalk shadow
  ropewalk shadow --last '10 min' --schedulers linux,blest,ropewalk
  ropewalk shadow --recording recording.json --json

Exit code: 0, or 1 if there is no recording, or none of its flows is large enough."
)]
pub(crate) struct ShadowOptions {
    #[command(flatten)]
    source: RecordingSource,
    /// Schedulers, separated by commas
    #[arg(long, value_name = "LIST", default_value = "linux,minrtt,blest,ecf,ropewalk")]
    schedulers: String,
    /// Most flows, those with the most bytes
    #[arg(long, value_name = "COUNT", default_value_t = 40, value_parser = clap::value_parser!(u16).range(1..=4096))]
    flows: u16,
    /// Smallest flow that is simulated
    #[arg(long, value_name = "SIZE", default_value = "64 KiB")]
    smallest: String,
    /// Congestion control of both ends
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    congestion: String,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Where a recording comes from.
#[derive(Debug, clap::Args)]
struct RecordingSource {
    /// The socket that the proxy's `--status` names [default: that in /run/ropewalk]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// A recording that `record --json` wrote, instead of a running proxy's
    #[arg(long, value_name = "FILE", conflicts_with = "socket")]
    recording: Option<PathBuf>,
    /// Only its last part
    #[arg(long, value_name = "TIME")]
    last: Option<String>,
}

/// Most bytes of a recording.
const LARGEST: u64 = 64 << 20;

impl RecordingSource {
    fn read(&self) -> Result<Recording, Failure> {
        let last = self.last.as_deref().map(|text| time("--last", text)).transpose()?;
        let value = match &self.recording {
            Some(path) => {
                let shown = path.display();
                let wrong = |reason: String| Diagnostic::new(format!("can't read `{shown}`: {reason}"));
                let file = std::fs::File::open(path).map_err(|error| wrong(system_reason(&error)))?;
                serde_json::from_reader(std::io::BufReader::new(file.take(LARGEST)))
                    .map_err(|error| wrong(format!("it is no recording: {error}")))?
            }
            None => self.ask()?,
        };
        let recording: Recording = serde_json::from_value(value)
            .map_err(|error| Failure::other(format!("no recording of a proxy: {error}")))?;
        Ok(match last {
            Some(last) => recording.last((last.as_secs() as usize).max(1)),
            None => recording,
        })
    }

    /// The first proxy's.
    fn ask(&self) -> Result<Value, Failure> {
        let mut found = None;
        for socket in sockets(self.socket.as_ref())? {
            let told = status::ask(&socket, "recording").map_err(Failure::other)?;
            if told["links"].is_array() {
                return Ok(told);
            }
            found = Some(socket);
        }
        let socket = found.unwrap_or_default();
        Err(Failure::other(format!("{}: a gateway's; only a proxy records its links", socket.display())))
    }
}

pub(crate) fn record(options: &RecordOptions) -> Result<(), Failure> {
    let recording = options.source.read()?;
    let text = if options.json {
        let value = serde_json::to_value(&recording).map_err(Failure::other)?;
        format!("{value}\n")
    } else {
        let name = options.output.as_deref().and_then(Path::file_stem).and_then(|stem| stem.to_str());
        let name = name.filter(|name| scenario::bad_name(name).is_none()).unwrap_or("recorded");
        let (text, left_out) = recording.to_scenario(name).map_err(Failure::other)?;
        for link in left_out {
            anstream::eprintln!("`{link}` is left out: it carried next to nothing, so its rate isn't known");
        }
        text
    };
    match &options.output {
        Some(path) => output::write_file(path, &text),
        None => output::print(&text),
    }
}

/// A flow to simulate.
struct Case {
    flow: RecordedFlow,
    scenario: Arc<Scenario>,
    start: u64,
}

/// The scenario for a flow of the recording.
fn case(base: &Scenario, flow: &RecordedFlow, seconds: usize) -> Case {
    let is_download = flow.bytes_down >= flow.bytes_up;
    let limit = (flow.seconds * 20.0).clamp(LIMIT.0, LIMIT.1);
    let scenario = Scenario {
        workload: Workload::Flow { bytes: flow.bytes_down.max(flow.bytes_up) },
        direction: if is_download { Direction::Download } else { Direction::Upload },
        limit: (limit * SECOND) as u64,
        ..base.clone()
    };
    // The links' changes repeat: the first time round sets the links up, the second is the flow's.
    let start = ((seconds as f64 + flow.start_s) * SECOND) as u64;
    Case { flow: flow.clone(), scenario: Arc::new(scenario), start }
}

pub(crate) fn shadow(registries: &Registries, options: &ShadowOptions) -> Result<(), Failure> {
    let recording = options.source.read()?;
    let smallest = compare::size_within("--smallest", &options.smallest, (1, 1 << 40))?;
    let names = compare::list(&options.schedulers);
    let (text, left_out) = recording.to_scenario("recorded").map_err(Failure::other)?;
    let source = Source::new("the recording", text);
    let base = scenario::parse(&source, "recorded", Path::new(""), registries)?.scenario;
    let mut schedulers = Vec::new();
    for name in &names {
        schedulers.push(compare::algorithm(&registries.schedulers, "--schedulers", name)?);
    }
    let congestion = compare::algorithm(&registries.congestion, "--congestion", &options.congestion)?;
    let size = |flow: &RecordedFlow| flow.bytes_down.max(flow.bytes_up);
    let mut flows: Vec<&RecordedFlow> =
        recording.flows.iter().filter(|flow| size(flow) >= smallest).collect();
    let all = flows.len();
    flows.sort_by_key(|flow| std::cmp::Reverse(size(flow)));
    flows.truncate(options.flows.into());
    if flows.is_empty() {
        let message = format!(
            "none of the recording's {} flows that have ended has {} or more",
            recording.flows.len(),
            options.smallest
        );
        return Err(Failure::other(message));
    }
    let cases: Vec<Case> = flows.iter().map(|flow| case(&base, flow, recording.seconds)).collect();
    let specs: Vec<RunSpec> = schedulers
        .iter()
        .flat_map(|scheduler| {
            cases.iter().map(|case| RunSpec {
                scenario: Arc::clone(&case.scenario),
                start_phase: case.start,
                ..RunSpec::new((*case.scenario).clone(), scheduler.clone(), congestion.clone())
            })
        })
        .collect();
    let times = simulate(&specs);
    let times: Vec<&[f64]> = times.chunks(cases.len()).collect();
    let report = Report {
        names: &names,
        cases: &cases,
        times: &times,
        left_out: &left_out,
        all,
        seconds: recording.seconds,
    };
    output::print(&if options.json { format!("{:#}\n", report.to_json()) } else { report.to_text() })
}

/// Runs everything on all cores; seconds, or the limit where a flow didn't end.
fn simulate(specs: &[RunSpec]) -> Vec<f64> {
    let next = AtomicUsize::new(0);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut found = vec![0.0; specs.len()];
    let parts: Vec<Vec<(usize, f64)>> = std::thread::scope(|scope| {
        let work = || {
            let mut done = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(spec) = specs.get(at) else { break };
                let result = ropewalk_sim::run(spec);
                let fct = result.flows.first().and_then(|flow| flow.fct);
                done.push((at, fct.unwrap_or(spec.scenario.limit) as f64 / SECOND));
            }
            done
        };
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    parts.into_iter().flatten().for_each(|(at, time)| found[at] = time);
    found
}

/// The answer.
struct Report<'a> {
    names: &'a [&'a str],
    cases: &'a [Case],
    /// For each scheduler the flows' times.
    times: &'a [&'a [f64]],
    left_out: &'a [String],
    all: usize,
    seconds: usize,
}

/// What this can't tell.
const LIMITS: [&str; 3] = [
    "One flow at a time is simulated: flows that shared the links don't slow each other, but what they carried is in the rates.",
    "A link's rate is what it carried when it was busy, its delay half of the least round trip, its loss that of probes.",
    "The scheduler at the sending end is meant: of a download the server's or gateway's, not the proxy's.",
];

impl Report<'_> {
    /// The geometric mean of simulated by recorded times, with the first scheduler.
    fn fit(&self) -> Option<f64> {
        let recorded: Vec<f64> = self.cases.iter().map(|case| case.flow.seconds.max(1e-3)).collect();
        paired_ratio(self.times[0], &recorded, 1).map(|ratio| ratio.ratio)
    }

    fn rows(&self) -> Vec<(usize, f64, Option<ropewalk_lab::stats::Ratio>)> {
        let mut rows: Vec<_> = (0..self.names.len())
            .map(|at| {
                let ratio = (at > 0).then(|| paired_ratio(self.times[at], self.times[0], 1)).flatten();
                (at, self.times[at].iter().sum::<f64>(), ratio)
            })
            .collect();
        let order = |ratio: &Option<ropewalk_lab::stats::Ratio>| ratio.map_or(1.0, |ratio| ratio.ratio);
        rows.sort_by(|a, b| order(&a.2).total_cmp(&order(&b.2)));
        rows
    }

    fn schedulers_used(&self) -> String {
        let mut used: BTreeMap<&str, usize> = BTreeMap::new();
        self.cases.iter().for_each(|case| *used.entry(&case.flow.scheduler).or_default() += 1);
        used.keys().copied().collect::<Vec<_>>().join(", ")
    }

    fn to_text(&self) -> String {
        let length = Duration::from_secs(self.seconds as u64);
        let (count, baseline) = (self.cases.len(), self.names[0]);
        let mut lines = vec![format!(
            "{count} of {} flows of the last {}, simulated over the recorded links; the proxy's scheduler was {}",
            self.all,
            ropewalk_settings::units::write_duration(length.as_nanos() as u64),
            self.schedulers_used(),
        )];
        let wide = self.names.iter().map(|name| name.len()).max().unwrap_or(0);
        for (at, total, ratio) in self.rows() {
            let name = self.names[at];
            let against = match ratio {
                None => format!("the one that the others are compared with; {total:.1} s in all"),
                Some(ratio) => {
                    let percent = |ratio: f64| format!("{:+.1} %", (ratio - 1.0) * 100.0);
                    let told = match ratio.interval {
                        Some((low, high)) => format!("95 % interval {} to {}", percent(low), percent(high)),
                        None => "the same for every flow".into(),
                    };
                    let finding = if ratio.p < 0.05 { "" } else { "; no significant difference" };
                    format!("{} time per flow ({told}{finding}); {total:.1} s in all", percent(ratio.ratio))
                }
            };
            lines.push(format!("  {name:wide$}  {against}"));
        }
        if let Some(fit) = self.fit() {
            lines.push(format!(
                "\nSimulated times are {fit:.2} of the recorded ones with {baseline}: {}",
                if (0.67..=1.5).contains(&fit) {
                    "the recording fits."
                } else {
                    "take the differences with care."
                }
            ));
        }
        lines.extend(LIMITS.iter().map(|limit| format!("- {limit}")));
        if !self.left_out.is_empty() {
            lines.push(format!(
                "- Left out, since they carried next to nothing: {}.",
                self.left_out.join(", ")
            ));
        }
        lines.join("\n") + "\n"
    }

    fn to_json(&self) -> Value {
        let rows: Vec<Value> = self
            .rows()
            .into_iter()
            .map(|(at, total, ratio)| {
                json!({
                    "scheduler": self.names[at], "total_s": total, "times_s": self.times[at],
                    "ratio": ratio.map(|ratio| ratio.ratio), "interval": ratio.and_then(|ratio| ratio.interval),
                    "p": ratio.map(|ratio| ratio.p),
                })
            })
            .collect();
        let flows: Vec<Value> = self
            .cases
            .iter()
            .map(|case| {
                let flow = &case.flow;
                json!({ "start_s": flow.start_s, "recorded_s": flow.seconds, "bytes_down": flow.bytes_down, "bytes_up": flow.bytes_up })
            })
            .collect();
        json!({
            "baseline": self.names[0], "schedulers": rows, "flows": flows, "flows_recorded": self.all,
            "recorded_s": self.seconds, "simulated_by_recorded": self.fit(), "left_out": self.left_out, "limits": LIMITS,
        })
    }
}
