//! `ropewalk shadow`: what other schedulers would have done with a proxy's flows.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use ropewalk_algorithms::Registries;
use ropewalk_command_line::recording::RecordingSource;
use ropewalk_command_line::settings::{Given, Tables};
use ropewalk_command_line::{Failure, interrupt, output};
use ropewalk_engine::Span;
use ropewalk_lab::shadow::{Flow, Settings, Shadow, shadow};
use ropewalk_lab::{ask, scenario};
use ropewalk_settings::diagnostic::Source;
use ropewalk_settings::given;
use ropewalk_sim::Direction;
use ropewalk_status::record::RecordedFlow;
use serde_json::{Value, json};

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
    #[command(flatten)]
    given: Given<Shadowed>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// What the simulation is asked for.
#[derive(Clone, Debug)]
struct Shadowed;

impl Tables for Shadowed {
    const TABLES: &'static given::Tables = ask::SHADOW;
}

fn flow(recorded: &RecordedFlow) -> Flow {
    let (down, up) = (recorded.bytes_down, recorded.bytes_up);
    let direction = if down >= up { Direction::Download } else { Direction::Upload };
    Flow { start_s: recorded.start_s, seconds: recorded.seconds, bytes: down.max(up), direction }
}

pub(crate) fn run(registries: &Registries, options: &Options) -> Result<(), Failure> {
    let settings = Settings::read(&options.given, registries)?;
    let recording = options.source.read()?;
    let told = recording.to_scenario("recorded").map_err(Failure::other)?;
    let source = Source::new("the recording", told.text.as_str());
    let links = scenario::parse(&source, "recorded", Path::new(""), registries)?.scenario;
    let flows: Vec<Flow> = recording.flows.iter().map(flow).collect();
    let (jobs, stop) = (ropewalk_runner::threads(None), interrupt::flag());
    let found = shadow(&links, recording.seconds, &flows, &settings, jobs, &stop)
        .ok_or_else(|| Failure::Interrupted("nothing is kept".into()))?;
    if found.compared.is_empty() {
        let smallest = options.given.text("smallest").map(|source| source.text.to_string());
        let message = format!(
            "none of the recording's {} flows that have ended has {} or more",
            flows.len(),
            smallest.unwrap_or_default()
        );
        return Err(Failure::other(message));
    }
    let report = Report {
        names: &settings.schedulers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        flows: &found.compared.iter().map(|at| &recording.flows[*at]).collect::<Vec<_>>(),
        fit: found.fit(&flows),
        found: &found,
        left_out: &told.left_out,
        at_least: &told.at_least,
        seconds: recording.seconds,
    };
    output::print(&if options.json { format!("{:#}\n", report.to_json()) } else { report.to_text() })
}

/// The answer.
struct Report<'a> {
    names: &'a [&'a str],
    flows: &'a [&'a RecordedFlow],
    found: &'a Shadow,
    fit: Option<f64>,
    left_out: &'a [String],
    at_least: &'a [(String, String)],
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
            self.found.large_enough,
            ropewalk_settings::units::write_duration(Span::saturating_from(length)),
            self.schedulers_used(),
        )];
        let wide = self.names.iter().map(|name| name.len()).max().unwrap_or(0);
        for (at, total, ratio) in self.found.ranked() {
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
        if let Some(fit) = self.fit {
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
            .found
            .ranked()
            .into_iter()
            .map(|(at, total, ratio)| {
                json!({
                    "scheduler": self.names[at], "total_s": total, "times_s": self.found.times[at],
                    "ratio": ratio.map(|ratio| ratio.ratio),
                    "interval": ratio.and_then(|ratio| ratio.interval),
                    "p": ratio.map(|ratio| ratio.p),
                })
            })
            .collect();
        let flows: Vec<Value> = self
            .flows
            .iter()
            .map(|flow| {
                json!({ "start_s": flow.start_s, "recorded_s": flow.seconds, "bytes_down": flow.bytes_down,
                    "bytes_up": flow.bytes_up })
            })
            .collect();
        json!({
            "baseline": self.names[0], "schedulers": rows, "flows": flows,
            "flows_recorded": self.found.large_enough,
            "recorded_s": self.seconds, "simulated_by_recorded": self.fit, "left_out": self.left_out,
            "at_least": self.at_least.iter().map(|(link, rate)| json!({
                "link": link, "rate": rate,
            })).collect::<Vec<_>>(),
            "limits": LIMITS,
        })
    }
}
