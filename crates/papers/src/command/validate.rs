//! `ropewalk-papers validate`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ropewalk_algorithms::{Registries, algorithm};
use ropewalk_command_line::options::{list, size};
use ropewalk_command_line::{Failure, ProgressLine, interrupt, output};
use ropewalk_engine::congestion::DEFAULT_NAME;
use ropewalk_engine::scheduler::BASELINE;
use ropewalk_engine::{Span, Time};
use ropewalk_host::clock::Clock;
use ropewalk_lab::real_time::Tally;
use ropewalk_lab::scenario::{self, builtins};
use ropewalk_lab::table::Table;
use ropewalk_runner::checkpoint;
use ropewalk_settings::units;
use serde_json::json;

use crate::validate::{self, Cell, CellResult, Pairs, Trial, Verdict};

/// Compare the simulator with real packets: the same transfers in both worlds
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A cell is a scenario, a pair of ends and a scheduler. Its ratio is the median completion \
                  time with real packets in real \
time over the simulated median. Leave the machine idle meanwhile: the emulator needs its processor on time. \
Real packets \
are a little late; where nothing in a scenario is random, simulated packets are therefore up to 100 us late \
too.

Every cell gets --runs runs, each with the same seed in both worlds. Then cells whose interval crosses a \
bound take turns, one \
run each, until they are decided, have --most-runs runs, or --minutes are over. With the defaults that \
takes at most half \
an hour. Ctrl-C stops and prints the cells measured so far. Finished runs are kept in the folder of \
--state: run the same \
command again to continue.

With --kernel-data nothing runs in real time: completion times of the out-of-tree kernels (MPTCP 0.89 and \
0.95), measured in \
virtual time, stand beside those of the simulator with the host profile of the same version.

Examples:
  ropewalk-papers validate
  ropewalk-papers validate --scenario satellite-lte --schedulers minrtt,blest --runs 20
  ropewalk-papers validate --scenario wifi-lte --minutes 5 --json
  ropewalk-papers validate --markdown docs/validation.md
  ropewalk-papers validate --kernel-data"
)]
pub(crate) struct Options {
    /// A built-in scenario's name, or a scenario file; may be given several times [default: all built-in
    /// ones]
    #[arg(long = "scenario", value_name = "NAME|FILE")]
    scenarios: Vec<String>,
    /// Schedulers of the engine, separated by commas
    #[arg(long, default_value = "minrtt,linux,blest,single")]
    schedulers: String,
    /// Flow size
    #[arg(long, default_value = "1 MiB")]
    size: String,
    /// Runs of each cell with real packets
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=1000))]
    runs: u32,
    /// Most runs of an undecided cell
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    most_runs: u32,
    /// Start no run after this many minutes (0: show finished runs only)
    #[arg(long, default_value_t = 28, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    minutes: u32,
    /// First seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder of finished runs, so that an interrupted command can continue
    #[arg(long, value_name = "FOLDER", default_value = ".ropewalk")]
    state: PathBuf,
    /// Delete finished runs first
    #[arg(long)]
    fresh: bool,
    /// Leave out the real kernel at both ends
    #[arg(long)]
    no_kernel: bool,
    /// Compare with kernels' completion times instead: those of a folder's .csv files, or else of the
    /// program's own table
    #[arg(long, value_name = "FOLDER", num_args = 0..=1)]
    kernel_data: Option<Option<PathBuf>>,
    /// As JSON
    #[arg(long)]
    json: bool,
    /// Also write the table as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

struct Line {
    scenario: String,
    ends: &'static str,
    scheduler: String,
    result: CellResult,
}

impl Line {
    fn of(trial: &Trial) -> Self {
        Line {
            scenario: trial.cell.scenario.name.clone(),
            ends: if trial.cell.kernel { "kernel" } else { "engine" },
            scheduler: trial.cell.scheduler.text.clone(),
            result: trial.result(),
        }
    }

    /// One line for each failed run.
    fn failures(&self) -> impl Iterator<Item = String> {
        self.result.failures.iter().map(|failure| {
            let world = if failure.emulated { "emulated" } else { "simulated" };
            let Line { scenario, ends, scheduler, .. } = self;
            format!(
                "{scenario}, {ends}, {scheduler}, seed {}: the {world} run failed: {}",
                failure.seed, failure.reason
            )
        })
    }
}

pub(crate) fn run(registries: &Registries, options: &Options) -> Result<(), Failure> {
    if let Some(folder) = &options.kernel_data {
        let to = super::kernels::Output { json: options.json, markdown: options.markdown.as_ref() };
        return super::kernels::run(registries, folder.as_deref(), &to);
    }
    let bytes = size("--size", &options.size)?;
    let congestion = algorithm(&registries.congestion, "--congestion", DEFAULT_NAME)?;
    let names: Vec<String> = if options.scenarios.is_empty() {
        builtins().iter().map(|builtin| builtin.name.to_string()).collect()
    } else {
        options.scenarios.clone()
    };
    let (mut cells, mut left_out) = (Vec::new(), Vec::new());
    for name in &names {
        let scenario = Arc::new(scenario::load(name, registries)?.scenario);
        if let Some(why) = validate::unsuitable(&scenario) {
            left_out.push(format!("{}: {why}", scenario.name));
            continue;
        }
        for text in list(&options.schedulers) {
            let scheduler = algorithm(&registries.schedulers, "--schedulers", text)?;
            let (scenario, congestion) = (Arc::clone(&scenario), congestion.clone());
            cells.push(Cell { scenario, scheduler, congestion, kernel: false });
        }
        if !options.no_kernel {
            let scheduler = algorithm(&registries.schedulers, "--schedulers", BASELINE)?;
            cells.push(Cell { scenario, scheduler, congestion: congestion.clone(), kernel: true });
        }
    }
    ropewalk_host::netns::become_root_of_own_user_namespace().map_err(Failure::other)?;
    let count = cells.len();
    let stop = interrupt::flag();
    let store: Pairs = checkpoint::open(&options.state, "validate", options.fresh)
        .map_err(|failed| Failure::Output { path: failed.path, reason: failed.reason })?;
    let trials = measure(cells, bytes, options, &store, &stop)?;
    let lines: Vec<Line> = trials.iter().map(Line::of).collect();
    let mut tally = Tally::default();
    trials.iter().for_each(|trial| tally.add(&trial.tally()));
    if let Some(file) = &options.markdown {
        output::write_file(file, &markdown(&lines, &left_out, options, &tally))?;
    }
    if options.json {
        output::print(&format!("{:#}\n", as_json(&lines, &left_out, &tally)))?;
    } else {
        output::print(&text(&lines, &left_out, bytes, options, &tally))?;
    }
    if lines.len() < count {
        let shown =
            format!("{} of {count} cells are shown; {}", lines.len(), checkpoint::hint(&options.state));
        return Err(if stop.load(Ordering::Relaxed) {
            Failure::Interrupted(shown)
        } else {
            Failure::Other(format!("--minutes are over: {shown}"))
        });
    }
    Ok(())
}

/// Makes the first runs of every cell, then more of the undecided ones. Interrupted, it returns complete
/// cells only.
fn measure(
    cells: Vec<Cell>,
    bytes: u64,
    options: &Options,
    store: &Pairs,
    stop: &AtomicBool,
) -> Result<Vec<Trial>, Failure> {
    let (clock, end) = (Clock::start(), Time::ZERO + Span::from_secs(60 * u64::from(options.minutes)));
    let count = cells.len() as u64;
    let bar = ProgressLine::new(count, "cells");
    let mut trials: Vec<Trial> = Vec::new();
    'cells: for cell in cells {
        bar.message(format!(", {}", cell.scenario.name));
        let mut trial = Trial::new(cell, bytes, options.seed);
        for _ in 0..options.runs {
            // A finished run takes no time.
            if trial.recall(store) {
                continue;
            }
            if stop.load(Ordering::Relaxed) || clock.now() >= end {
                break 'cells;
            }
            trial.run(store).map_err(Failure::other)?;
        }
        trials.push(trial);
        bar.inc(1);
    }
    let bar = {
        bar.clear();
        ProgressLine::new(count, "cells decided")
    };
    'turns: loop {
        let open = |trial: &&mut Trial| {
            trial.result().verdict == Verdict::TooFewRuns && trial.runs() < options.most_runs
        };
        let mut undecided: Vec<&mut Trial> = trials.iter_mut().filter(open).collect();
        bar.set(count.saturating_sub(undecided.len() as u64));
        if undecided.is_empty() {
            break;
        }
        for trial in &mut undecided {
            if trial.recall(store) {
                continue;
            }
            if stop.load(Ordering::Relaxed) || clock.now() >= end {
                break 'turns;
            }
            bar.message(format!(", {}", trial.cell.scenario.name));
            trial.run(store).map_err(Failure::other)?;
        }
    }
    bar.clear();
    Ok(trials)
}

const HEAD: [&str; 8] =
    ["scenario", "ends", "scheduler", "simulated", "emulated", "runs", "ratio", "90 % interval"];

fn cells(line: &Line) -> Vec<String> {
    let median = |values: &[f64]| {
        let sorted = ropewalk_lab::stats::sorted(values);
        if sorted.is_empty() {
            "-".into()
        } else {
            format!("{:.1} ms", ropewalk_lab::stats::quantile(&sorted, 0.5) * 1e3)
        }
    };
    vec![
        line.scenario.clone(),
        line.ends.into(),
        line.scheduler.clone(),
        median(&line.result.simulated),
        median(&line.result.emulated),
        (line.result.emulated.len() + line.result.failures.iter().filter(|failure| failure.emulated).count())
            .to_string(),
        line.result.ratio.map_or("-".into(), |ratio| format!("{ratio:.3}")),
        line.result.interval.map_or("-".into(), |(from, to)| format!("{from:.3} .. {to:.3}")),
        line.result.verdict.to_string(),
    ]
}

fn verdict(lines: &[Line]) -> String {
    let count = |verdict: Verdict| lines.iter().filter(|line| line.result.verdict == verdict).count();
    format!(
        "{} of {} cells agree, {} differ, {} had too few runs, {} had runs that failed.",
        count(Verdict::Agrees),
        lines.len(),
        count(Verdict::Differs),
        count(Verdict::TooFewRuns),
        count(Verdict::Failed)
    )
}

fn text(lines: &[Line], left_out: &[String], bytes: u64, options: &Options, tally: &Tally) -> String {
    let mut text = format!(
        "One flow of {}, {} runs of each cell with real packets and more where undecided, seeds from {}\n\n",
        units::write_bytes(bytes),
        options.runs,
        options.seed
    );
    let mut head = HEAD.to_vec();
    head.push("");
    let mut table = Table::new(3, &head);
    for line in lines {
        table.row(cells(line));
    }
    text += &table.render();
    text += "\nratio: emulated median over simulated median; ends: the stack at both ends of the emulated \
             paths\n";
    text += "allowed: 5 % where nothing is random and the engine is at both ends, else the interval within \
             0.9 to 1.1\n";
    text += "simulated: where nothing is random, each packet is up to 100 us late, as real packets are\n";
    for failure in lines.iter().flat_map(Line::failures) {
        text += &format!("{failure}\n");
    }
    for name in left_out {
        text += &format!("left out: {name}\n");
    }
    text + &format!("{}\n\n{}\n", tally.describe(), verdict(lines))
}

fn markdown(lines: &[Line], left_out: &[String], options: &Options, tally: &Tally) -> String {
    let mut text = format!(
        "# Validation: the simulator against real packets\n\nMade by `ropewalk-papers validate --markdown \
         docs/validation.md`: {} a flow, {} runs a cell and more where undecided, seeds from {}.\n\nThe \
         ratio of median completion times, with real packets in real time over simulated, and its 90 % \
         interval. Allowed:\n5 % where nothing is random and the engine is at both ends, else the interval \
         within 0.9 to 1.1. Bold: not so. A star: too\nfew runs. Where nothing is random, simulated \
         packets are up to 100 us late, as real packets are.\n\n",
        options.size, options.runs, options.seed
    );
    let mut kinds: Vec<(&str, &str)> = Vec::new();
    let mut scenarios: Vec<&str> = Vec::new();
    for line in lines {
        let kind = (line.ends, line.scheduler.as_str());
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
        if !scenarios.contains(&line.scenario.as_str()) {
            scenarios.push(&line.scenario);
        }
    }
    text += "| scenario |";
    for (ends, scheduler) in &kinds {
        text += &format!(" {ends}: `{scheduler}` |");
    }
    text += &format!("\n|---|{}\n", "---|".repeat(kinds.len()));
    for scenario in scenarios {
        text += &format!("| {scenario} |");
        for (ends, scheduler) in &kinds {
            let found = lines.iter().find(|line| {
                (line.scenario.as_str(), line.ends, line.scheduler.as_str()) == (scenario, *ends, *scheduler)
            });
            text += &format!(" {} |", found.map_or("-".into(), ratio));
        }
        text += "\n";
    }
    text += &format!("\n{} {}.\n", verdict(lines), tally.describe());
    for failure in lines.iter().flat_map(Line::failures) {
        text += &format!("\nFailed: {failure}.\n");
    }
    for name in left_out {
        text += &format!("\nLeft out: {name}.\n");
    }
    text
}

/// A cell of the page.
fn ratio(line: &Line) -> String {
    let Some(ratio) = line.result.ratio else { return "-".into() };
    let around = line.result.interval.map_or(String::new(), |(from, to)| format!(" ({from:.3}-{to:.3})"));
    match line.result.verdict {
        Verdict::Agrees => format!("{ratio:.3}{around}"),
        Verdict::TooFewRuns => format!("{ratio:.3}{around} *"),
        Verdict::Differs | Verdict::Failed => format!("**{ratio:.3}**{around}"),
    }
}

fn as_json(lines: &[Line], left_out: &[String], tally: &Tally) -> serde_json::Value {
    json!({
        "cells": lines.iter().map(|line| json!({
            "scenario": line.scenario,
            "emulated_ends": line.ends,
            "scheduler": line.scheduler,
            "simulated_s": line.result.simulated,
            "emulated_s": line.result.emulated,
            "ratio_of_medians": line.result.ratio,
            "ratio_interval_90": line.result.interval.map(|(a, b)| [a, b]),
            "verdict": line.result.verdict.to_string(),
            "failures": line.result.failures.iter().map(|failure| json!({
                "world": if failure.emulated { "emulated" } else { "simulated" },
                "seed": failure.seed,
                "reason": failure.reason,
            })).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "left_out": left_out,
        "clocks": tally.json(),
        "verdict": verdict(lines),
    })
}
