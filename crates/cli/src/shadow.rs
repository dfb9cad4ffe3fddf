//! `ropewalk shadow`: what other schedulers would have done with a proxy's flows.

use ropewalk_engine::Span;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ropewalk_algorithms::{Registries, algorithm};
use ropewalk_command_line::options::{list, size_within};
use ropewalk_command_line::recording::RecordingSource;
use ropewalk_command_line::{Failure, output};
use ropewalk_lab::parallel::run_jobs;
use ropewalk_lab::scenario;
use ropewalk_lab::stats::paired_ratio;
use ropewalk_settings::diagnostic::Source;
use ropewalk_sim::{Direction, RunSpec, Scenario, Transfer, Workload};
use ropewalk_status::record::{RecordedFlow, Recording};
use serde_json::{Value, json};

/// Least and most time that a simulated flow may take.
const LIMIT: (f64, f64) = (60.0, 3600.0);

/// What other schedulers would have done with the last hour's flows
#[derive(Debug, clap::Args)]
#[command(
    long_about = "What other schedulers would have done with the last hour's flows.\n\nEach flow that a \
                  running proxy carried is simulated again: over its links as they were recorded, at its \
                  time, with its size, next to the flows that it shared the links with, by each scheduler at \
                  the sending end. How well the recording fits is said: simulated times next to recorded \
                  ones.",
    after_help = "Examples:
  ropewalk shadow
  ropewalk shadow --last '10 min' --schedulers linux,blest,ropewalk
  ropewalk shadow --recording recording.json --json

Exit code: 0, or 1 if there is no recording, or none of its flows is large enough."
)]
pub(crate) struct Options {
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

/// Flows that shared the links: each began before the others had ended.
struct Group<'a> {
    flows: Vec<&'a RecordedFlow>,
    /// Those of them that are compared.
    judged: Vec<usize>,
}

fn size(flow: &RecordedFlow) -> u64 {
    flow.bytes_down.max(flow.bytes_up)
}

/// Groups of a recording's flows, with those whose size is among the largest judged.
fn groups(recording: &Recording, smallest: u64, most: usize) -> Vec<Group<'_>> {
    let mut flows: Vec<&RecordedFlow> =
        recording.flows.iter().filter(|flow| size(flow) >= smallest).collect();
    let mut sizes: Vec<u64> = flows.iter().map(|flow| size(flow)).collect();
    sizes.sort_unstable_by_key(|size| std::cmp::Reverse(*size));
    let least = sizes.get(most.saturating_sub(1)).copied().unwrap_or(0);
    flows.sort_by(|one, other| one.start_s.total_cmp(&other.start_s));
    let (mut groups, mut end, mut judged): (Vec<Group<'_>>, f64, usize) = (Vec::new(), 0.0, 0);
    for flow in flows {
        if groups.is_empty() || flow.start_s >= end {
            groups.push(Group { flows: Vec::new(), judged: Vec::new() });
        }
        end = end.max(flow.start_s + flow.seconds);
        let Some(group) = groups.last_mut() else { continue };
        if size(flow) >= least && judged < most {
            group.judged.push(group.flows.len());
            judged += 1;
        }
        group.flows.push(flow);
    }
    groups.retain(|group| !group.judged.is_empty());
    groups
}

/// The scenario for a group, and its phase.
fn scenario_of(base: &Scenario, group: &Group<'_>, seconds: usize) -> (Arc<Scenario>, Span) {
    let begin = group.flows.first().map_or(0.0, |flow| flow.start_s);
    let transfers = group.flows.iter().map(|flow| Transfer {
        start: Span::from_secs_f64(flow.start_s - begin),
        bytes: size(flow),
        direction: if flow.bytes_down >= flow.bytes_up { Direction::Download } else { Direction::Upload },
    });
    let limit = |flow: &&RecordedFlow| flow.start_s - begin + (flow.seconds * 20.0).clamp(LIMIT.0, LIMIT.1);
    let scenario = Scenario {
        workload: Workload::Transfers(transfers.collect()),
        limit: Span::from_secs_f64(group.flows.iter().map(limit).fold(0.0, f64::max)),
        ..base.clone()
    };
    // The links' changes repeat: the first time round sets the links up, the second is the flows'.
    (Arc::new(scenario), Span::from_secs_f64(seconds as f64 + begin))
}

pub(crate) fn run(registries: &Registries, options: &Options) -> Result<(), Failure> {
    let recording = options.source.read()?;
    let smallest = size_within("--smallest", &options.smallest, (1, 1 << 40))?;
    let names = list(&options.schedulers);
    let told = recording.to_scenario("recorded").map_err(Failure::other)?;
    let source = Source::new("the recording", told.text.as_str());
    let base = scenario::parse(&source, "recorded", Path::new(""), registries)?.scenario;
    let mut schedulers = Vec::new();
    for name in &names {
        schedulers.push(algorithm(&registries.schedulers, "--schedulers", name)?);
    }
    let congestion = algorithm(&registries.congestion, "--congestion", &options.congestion)?;
    let groups = groups(&recording, smallest, options.flows.into());
    if groups.is_empty() {
        let message = format!(
            "none of the recording's {} flows that have ended has {} or more",
            recording.flows.len(),
            options.smallest
        );
        return Err(Failure::other(message));
    }
    let scenarios: Vec<_> = groups.iter().map(|group| scenario_of(&base, group, recording.seconds)).collect();
    let specs: Vec<RunSpec> = schedulers
        .iter()
        .flat_map(|scheduler| {
            scenarios.iter().map(|(scenario, phase)| RunSpec {
                scenario: Arc::clone(scenario),
                start_phase: *phase,
                ..RunSpec::new((**scenario).clone(), scheduler.clone(), congestion.clone())
            })
        })
        .collect();
    let flows: Vec<&RecordedFlow> =
        groups.iter().flat_map(|group| group.judged.iter().map(|at| group.flows[*at])).collect();
    let report = Report {
        names: &names,
        times: &simulate(&specs, &groups),
        flows: &flows,
        left_out: &told.left_out,
        at_least: &told.at_least,
        all: recording.flows.iter().filter(|flow| size(flow) >= smallest).count(),
        seconds: recording.seconds,
    };
    output::print(&if options.json { format!("{:#}\n", report.to_json()) } else { report.to_text() })
}

/// Runs everything on all cores: for each scheduler the judged flows' seconds, or the limit where a flow
/// didn't end.
fn simulate(specs: &[RunSpec], groups: &[Group<'_>]) -> Vec<Vec<f64>> {
    let runs = run_jobs(ropewalk_runner::threads(None), specs.len(), &AtomicBool::new(false), |at| {
        let spec = &specs[at];
        let flows = ropewalk_sim::run(spec).flows;
        let seconds = |at: &usize| {
            let fct = flows.get(*at).and_then(|flow| flow.fct);
            fct.unwrap_or(spec.scenario.limit).as_secs_f64()
        };
        Some(groups[at % groups.len()].judged.iter().map(seconds).collect::<Vec<f64>>())
    });
    let runs: Vec<Vec<f64>> = runs.into_iter().flatten().collect();
    runs.chunks(groups.len()).map(<[Vec<f64>]>::concat).collect()
}

/// The answer.
struct Report<'a> {
    names: &'a [&'a str],
    flows: &'a [&'a RecordedFlow],
    /// For each scheduler the flows' times.
    times: &'a [Vec<f64>],
    left_out: &'a [String],
    at_least: &'a [(String, String)],
    all: usize,
    seconds: usize,
}

/// What this can't tell.
const LIMITS: [&str; 3] = [
    "Flows that shared the links share them here, from their recorded beginnings on; a pause in which a \
     program sent nothing isn't known.",
    "A link's rate is what it carried while it was full, its delay half of the least round trip, its loss \
     that of probes.",
    "The scheduler at the sending end is meant: of a download the server's or gateway's, not the proxy's.",
];

impl Report<'_> {
    /// The geometric mean of simulated by recorded times, with the first scheduler.
    fn fit(&self) -> Option<f64> {
        let recorded: Vec<f64> = self.flows.iter().map(|flow| flow.seconds.max(1e-3)).collect();
        paired_ratio(&self.times[0], &recorded, 1).map(|ratio| ratio.ratio)
    }

    fn rows(&self) -> Vec<(usize, f64, Option<ropewalk_lab::stats::Ratio>)> {
        let mut rows: Vec<_> = (0..self.names.len())
            .map(|at| {
                let ratio = (at > 0).then(|| paired_ratio(&self.times[at], &self.times[0], 1)).flatten();
                (at, self.times[at].iter().sum::<f64>(), ratio)
            })
            .collect();
        let order = |ratio: &Option<ropewalk_lab::stats::Ratio>| ratio.map_or(1.0, |ratio| ratio.ratio);
        rows.sort_by(|a, b| order(&a.2).total_cmp(&order(&b.2)));
        rows
    }

    fn schedulers_used(&self) -> String {
        let mut used: BTreeMap<&str, usize> = BTreeMap::new();
        self.flows.iter().for_each(|flow| *used.entry(&flow.scheduler).or_default() += 1);
        used.keys().copied().collect::<Vec<_>>().join(", ")
    }

    fn to_text(&self) -> String {
        let length = Duration::from_secs(self.seconds as u64);
        let (count, baseline) = (self.flows.len(), self.names[0]);
        let mut lines = vec![format!(
            "{count} of {} flows of the last {}, simulated over the recorded links; the proxy's scheduler \
             was {}",
            self.all,
            ropewalk_settings::units::write_duration(Span::saturating_from(length)),
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
        for (link, rate) in self.at_least {
            lines.push(format!("- `{link}` was never full: its rate is at least what it carried, {rate}."));
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
            .flows
            .iter()
            .map(|flow| {
                json!({ "start_s": flow.start_s, "recorded_s": flow.seconds, "bytes_down": flow.bytes_down, "bytes_up": flow.bytes_up })
            })
            .collect();
        json!({
            "baseline": self.names[0], "schedulers": rows, "flows": flows, "flows_recorded": self.all,
            "recorded_s": self.seconds, "simulated_by_recorded": self.fit(), "left_out": self.left_out,
            "at_least": self.at_least.iter().map(|(link, rate)| json!({ "link": link, "rate": rate })).collect::<Vec<_>>(),
            "limits": LIMITS,
        })
    }
}
