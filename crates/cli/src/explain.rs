//! `ropewalk explain`.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

use ropewalk_lab::evidence::{self, phrase, word};
use ropewalk_lab::{Registries, scenario};
use ropewalk_sim::{Mode, Recording, RunSpec, Workload};
use serde_json::json;

use crate::compare::{algorithm, size_within};
use crate::{Failure, compare, output};

/// Show each decision of a scheduler with its reason
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ropewalk explain --scheduler blest --size '256 KiB'
  ropewalk explain --scheduler ecf --pcap run.pcapng --qlog run.qlog
  ropewalk explain --scheduler 'ecf(beta=0.5)' --scenario blest-2016-3g-wlan --json | jq -c 'select(.decision == \"wait\")'")]
pub(crate) struct Options {
    /// The scheduler
    #[arg(long, default_value = "minrtt")]
    scheduler: String,
    /// A built-in scenario's name, or a scenario file
    #[arg(long, value_name = "NAME|FILE", default_value = scenario::DEFAULT)]
    scenario: String,
    /// Flow size, instead of the scenario's workload
    #[arg(long)]
    size: Option<String>,
    /// Congestion control [default: the scenario's, else cubic]
    #[arg(long)]
    congestion: Option<String>,
    /// Seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
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

pub(crate) fn run(registries: &Registries, options: &Options) -> Result<(), Failure> {
    let loaded = compare::load(registries, &options.scenario)?;
    output::can_write(&[("--pcap", options.pcap.as_ref()), ("--qlog", options.qlog.as_ref())])?;
    let mut scenario = loaded.scenario;
    // More than that is a trace that nobody reads.
    if let Some(size) = &options.size {
        let bytes = size_within("--size", size, (1, 64 << 20))?;
        scenario.workload = Workload::Flow { bytes };
    }
    let congestion =
        options.congestion.clone().or(loaded.experiment.congestion).unwrap_or_else(|| "cubic".into());
    let names: Vec<String> = scenario.paths.iter().map(|path| path.name.clone()).collect();
    let spec = RunSpec {
        scenario: Arc::new(scenario),
        scheduler: compare::scheduler(registries, "--scheduler", &options.scheduler, names.len())?,
        congestion: algorithm(&registries.congestion, "--congestion", &congestion)?,
        mode: Mode::Multipath,
        seed: options.seed,
        start_phase: 0,
        recording: Recording { decisions: true, ..Recording::default() },
    };
    let result = if options.pcap.is_some() || options.qlog.is_some() {
        let evidence = evidence::record(&spec).map_err(Failure::other)?;
        if let Some(file) = &options.pcap {
            output::write_file_with(file, |out| evidence.write_pcap(out))?;
        }
        if let Some(file) = &options.qlog {
            output::write_file_with(file, |out| evidence.write_qlog(out))?;
        }
        evidence.result
    } else {
        ropewalk_sim::run(&spec)
    };
    let mut text = String::new();
    for decision in &result.decisions {
        let path = decision.path.and_then(|path| names.get(usize::from(path))).map(String::as_str);
        if options.json {
            let line = json!({
                "t_ms": decision.at as f64 / 1e6,
                "decision": word(decision),
                "path": path,
                "offset": decision.offset,
                "bytes": decision.bytes,
                "reason": decision.reason,
            });
            let _ = writeln!(text, "{line}");
        } else {
            let _ = writeln!(
                text,
                "t={:.1} ms: {}{}",
                decision.at as f64 / 1e6,
                phrase(decision, path),
                because(&decision.reason)
            );
        }
    }
    if !options.json {
        if result.overruled > 0 {
            let first = result.first_overruled.unwrap_or(0) as f64 / 1e6;
            let _ = writeln!(
                text,
                "overruled {} times, first at {first:.1} ms: it waited with nothing in flight, or sent nothing",
                result.overruled
            );
        }
        let _ = writeln!(
            text,
            "{} decisions, done after {:.1} ms",
            result.decisions.len(),
            result.duration as f64 / 1e6
        );
    }
    output::print(&text)
}

fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}
