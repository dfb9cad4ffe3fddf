//! `ropewalk explain`.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

use ropewalk_algorithms::Registries;
use ropewalk_command_line::settings::Tables;
use ropewalk_command_line::{Failure, output};
use ropewalk_lab::ask;
use ropewalk_lab::compare::{describe, start_phase};
use ropewalk_lab::evidence::{self, phrase};
use ropewalk_lab::watch;
use ropewalk_settings::diagnostic::Diagnostic;
use ropewalk_settings::{given, units};
use ropewalk_sim::{Mode, Recording, RunSpec, Workload};
use serde_json::json;

use crate::compare::show::counted;
use crate::options::Common;

/// Largest flow, bytes: a longer trace is unreadable.
const LARGEST: u64 = 64 << 20;

/// Show each decision of a scheduler with its reason
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ropewalk explain --schedulers blest --size '256 KiB'
  ropewalk explain --schedulers ecf --pcap run.pcapng --qlog run.qlog
  ropewalk explain --schedulers 'ecf(beta=0.5)' --size '1 MiB' --json | \\
      jq -c 'select(.decision == \"wait\")'")]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common<Explained>,
    /// Also write the sender's packets as a capture, with the reasons as comments (pcapng, for Wireshark)
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Also write the sender's log (qlog 0.3, for qvis)
    #[arg(long, value_name = "FILE")]
    qlog: Option<PathBuf>,
    /// As JSON Lines, one decision each
    #[arg(long)]
    json: bool,
}

/// What an explanation is asked for.
#[derive(Clone, Debug)]
struct Explained;

impl Tables for Explained {
    const TABLES: &'static given::Tables = ask::EXPLAIN;
}

pub(crate) fn run(registries: &Registries, options: &Options) -> Result<(), Failure> {
    output::can_write(&[("--pcap", options.pcap.as_ref()), ("--qlog", options.qlog.as_ref())])?;
    let (mut scenario, experiment) = options.common.load(registries)?;
    let given = &options.common.given;
    let schedulers = ask::schedulers(given)?.unwrap_or_default();
    let sizes = ask::sizes(given, LARGEST)?;
    let workloads = match sizes.as_slice() {
        [] => vec![scenario.workload.clone()],
        sizes => sizes.iter().map(|bytes| Workload::Flow { bytes: *bytes }).collect(),
    };
    let several = schedulers.len() * workloads.len() > 1;
    if several && (options.pcap.is_some() || options.qlog.is_some()) {
        let message = "--pcap and --qlog take one run: name one scheduler and one size";
        return Err(Diagnostic::new(message).into());
    }
    let congestion = ask::congestion(given, &experiment, registries)?;
    let seed = ask::seed(given)?;
    // The run that `compare` does with this seed, where it starts at seed 1.
    let number = u32::try_from(seed.saturating_sub(1)).unwrap_or(u32::MAX);
    let mut text = String::new();
    for workload in workloads {
        scenario.workload = workload;
        for name in &schedulers {
            let spec = RunSpec {
                scenario: Arc::new(scenario.clone()),
                scheduler: ropewalk_algorithms::scheduler(
                    registries,
                    "--schedulers",
                    name,
                    scenario.paths.len(),
                )?,
                congestion: congestion.clone(),
                mode: Mode::Multipath,
                seed,
                start_phase: start_phase(&scenario, number, 0),
                recording: Recording { decisions: true, ..Recording::default() },
            };
            if several && !options.json {
                let _ = writeln!(text, "{name}, {}:", describe(&scenario.workload));
            }
            if !spec.start_phase.is_zero() && !options.json {
                let begins = units::write_duration(spec.start_phase);
                let _ = writeln!(text, "t=0 is {begins} into the scenario (seeds differ in that)");
            }
            text += &one(&spec, options)?;
        }
    }
    output::print(&text)
}

/// One run: its decisions, and captures of it.
fn one(spec: &RunSpec, options: &Options) -> Result<String, Failure> {
    let names: Vec<&str> = spec.scenario.paths.iter().map(|path| path.name.as_str()).collect();
    let result = if options.pcap.is_some() || options.qlog.is_some() {
        let evidence = evidence::record(spec).map_err(Failure::other)?;
        if let Some(file) = &options.pcap {
            output::write_file_with(file, |out| evidence.write_pcap(out))?;
        }
        if let Some(file) = &options.qlog {
            output::write_file_with(file, |out| evidence.write_qlog(out))?;
        }
        evidence.result
    } else {
        watch::run(spec)
    };
    let mut text = String::new();
    for decision in &result.decisions {
        let path = decision.path.and_then(|path| names.get(usize::from(path)).copied());
        if options.json {
            let line = json!({
                "scheduler": spec.scheduler.text,
                "t_ms": decision.at.since_origin().as_millis_f64(),
                "decision": decision.decision.name(),
                "path": path,
                "offset": decision.offset,
                "bytes": decision.bytes,
                "reason": decision.reason,
            });
            let _ = writeln!(text, "{line}");
        } else {
            let _ = writeln!(
                text,
                "t={:.1} ms: {}",
                decision.at.since_origin().as_millis_f64(),
                with_reason(phrase(decision, path), &decision.reason)
            );
        }
    }
    if !options.json {
        if result.totals.overruled.count > 0 {
            let first = result.totals.overruled.first.unwrap_or_default().as_secs_f64() * 1e3;
            let cause = result.totals.overruled.cause.unwrap_or("it waited with nothing in flight");
            let times = counted(result.totals.overruled.count, "time");
            let _ = writeln!(text, "overruled {times}, first at {first:.1} ms: {cause}");
        }
        let _ = writeln!(
            text,
            "{}, done after {:.1} ms",
            counted(result.decisions.len() as u64, "decision"),
            result.duration.as_millis_f64()
        );
    }
    Ok(text)
}

/// A decision and its reason. Reasons for waiting begin with the decision themselves.
fn with_reason(decision: String, reason: &str) -> String {
    if reason.is_empty() {
        decision
    } else if reason.starts_with(&format!("{decision} ")) {
        reason.into()
    } else {
        format!("{decision}: {reason}")
    }
}
