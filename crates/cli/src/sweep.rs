//! `ropewalk sweep`.

use std::path::{Path, PathBuf};

use ropewalk_algorithms::Registries;
use ropewalk_command_line::{Failure, ProgressLine, interrupt, output};
use ropewalk_lab::sweep::{self, Command, Design, Overrides, Summary};
use ropewalk_lab::table::Table;
use ropewalk_lab::watch;
use ropewalk_lab::{ask, scenario};
use ropewalk_runner::sweep::journal::JournalError;
use ropewalk_runner::sweep::{Done, Error, Progress};
use ropewalk_settings::diagnostic::Diagnostic;
use serde_json::json;

use crate::options::Common;

/// Vary a scenario's parameters over a grid or a sample of the space
///
/// Results go to a folder, as CSV, with a manifest. After an interruption the same command continues.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ropewalk sweep examples/sweeps/rtt-and-loss.toml
  ropewalk sweep examples/sweeps/hypercube.toml --out /tmp/sweep --jobs 2
  ropewalk sweep examples/sweeps/rtt-and-loss.toml --schedulers minrtt,tcp \\
      --size '256 KiB' --check
  ropewalk sweep mine.toml --check

A sweep's file:
  scenario = \"wifi-lte\"                  # built in, or a file
  schedulers = [\"minrtt\", \"ecf\", \"tcp\"]  # `tcp`: plain TCP on each path
  runs = 10
  [[vary]]
  parameter = \"path.lte.rtt\"             # any key; or scheduler.ecf.beta
  from = \"20 ms\"
  to = \"320 ms\"
  steps = 5
  scale = \"log\"

With `design = \"latin-hypercube\"` and `points = 200` the ranges are sampled instead; \
`congestion.cubic.beta` is a parameter, too.")]
pub(crate) struct Options {
    /// The sweep's file
    file: PathBuf,
    /// Instead of what the file says
    #[command(flatten)]
    common: Common,
    /// Folder of the results [default: the file's name without .toml, and `-results`]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Threads [default: one per core]; the result doesn't depend on it
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Only check the file, and say how many runs it makes
    #[arg(long)]
    check: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Why a sweep failed.
fn failure(error: Error) -> Failure {
    match error {
        Error::Input(input) => Failure::Input(input),
        Error::Storage { error: JournalError::Io { path, reason }, kept, total } => {
            let reason = format!(
                "{reason}; {kept} of {total} runs are finished and kept: run the same command again to \
                 continue"
            );
            Failure::Output { path, reason }
        }
        other => Failure::Other(other.to_string()),
    }
}

/// A digest of the running program, or its version if it can't be read.
fn build() -> String {
    let bytes = std::env::current_exe().and_then(std::fs::read);
    bytes.map_or_else(|_| env!("CARGO_PKG_VERSION").to_string(), |bytes| sweep::digest(&bytes))
}

fn folder(options: &Options) -> PathBuf {
    options.out.clone().unwrap_or_else(|| {
        let stem = options.file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        PathBuf::from(format!("{stem}-results"))
    })
}

/// Plain TCP, on each path or on one.
fn is_tcp(name: &str) -> bool {
    name == "tcp" || name.starts_with("tcp:")
}

pub(crate) fn run(registries: &Registries, options: &Options) -> Result<(), Failure> {
    let given = &options.common.given;
    let size = match ask::sizes(given, scenario::MOST_BYTES)?.as_slice() {
        [] => None,
        [one] => Some(*one),
        _ => {
            let message = "a sweep has one size: vary `workload.size` for several";
            return Err(Diagnostic::new(message).into());
        }
    };
    let overrides = Overrides {
        base: None,
        scenario: options.common.scenario.clone(),
        paths: options.common.paths.clone(),
        schedulers: ask::schedulers(given)?,
        size,
        direction: ask::direction(given)?,
    };
    let design = sweep::load(&options.file, &overrides, registries)?;
    let paths = design.base.scenario.paths.len();
    for name in overrides.schedulers.iter().flatten().filter(|name| !is_tcp(name)) {
        ropewalk_algorithms::scheduler(registries, "--schedulers", name, paths)?;
    }
    if options.check {
        return check(registries, &design, options.json);
    }
    let jobs = ropewalk_runner::threads(options.jobs.map(usize::from)).count;
    let line = crate::report::without_jobs(&std::env::args_os().collect::<Vec<_>>());
    let command = Command { line, build: build() };
    let stop = interrupt::flag();
    let out = folder(options);
    let bar = ProgressLine::new(design.total(), "runs");
    let show = |progress| match progress {
        Progress::Opened { found, total } => {
            bar.resume(total, found.runs);
            if found.damaged > 0 {
                let what = "of the journal are damaged; their runs are repeated";
                eprintln!("warning: {} bytes {what}", found.damaged);
            }
        }
        Progress::Recorded(runs) => bar.inc(runs),
        Progress::Writing => bar.message(", writing the table".into()),
    };
    let session =
        ropewalk_runner::sweep::Session::open(&design, registries, &out, &command).map_err(failure)?;
    let done = ropewalk_runner::sweep::run(
        session,
        registries,
        jobs,
        |spec| watch::run_until(spec, &stop),
        show,
        &stop,
    );
    bar.clear();
    let done = done.map_err(failure)?;
    match &done.summary {
        Some(summary) => {
            let shown = if options.json { json(&done, summary) } else { text(&design, &done, summary) };
            output::print(&shown)
        }
        None => Err(Failure::Interrupted(format!(
            "{} of {} runs are finished and kept in {}; run the same command again to continue",
            done.before + done.made,
            done.total,
            out.display()
        ))),
    }
}

fn check(registries: &Registries, design: &Design, as_json: bool) -> Result<(), Failure> {
    sweep::check(design, registries)?;
    let (points, total) = (design.points(), design.total());
    if as_json {
        return output::print(&format!("{}\n", json!({ "ok": true, "points": points, "runs": total })));
    }
    output::print(&format!("{} is fine: {points} points, {total} runs\n", design.source.name))
}

fn seconds(value: f64) -> String {
    if value.is_nan() {
        "-".into()
    } else if value < 1.0 {
        format!("{:.1} ms", value * 1e3)
    } else {
        format!("{value:.3} s")
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn text(design: &Design, done: &Done, summary: &Summary) -> String {
    let mut text = format!("{}: {} points, {} runs", design.base.scenario.name, summary.points, done.total);
    if done.before > 0 {
        text += &format!(" ({} of them were there already)", done.before);
    }
    text += "\n\n";
    let head = ["scheduler", "congestion", "mean", "p50", "p95", "behind the first", "first at", "finished"];
    let mut table = Table::new(2, &head);
    for standing in &summary.standings {
        let behind = if standing.behind.is_nan() {
            "-".into()
        } else {
            format!("{:+.1} %", (standing.behind - 1.0) * 100.0)
        };
        table.row(vec![
            standing.scheduler.clone(),
            standing.congestion.clone(),
            seconds(standing.mean),
            seconds(standing.p50),
            seconds(standing.p95),
            behind,
            format!("{} of {}", standing.first, summary.points),
            format!("{} of {}", standing.finished, standing.runs),
        ]);
    }
    text += &table.render();
    text +=
        "\nbehind the first: geometric mean, over the points, of the mean against the least mean there\n\n";
    text += &format!(
        "{}   a row per run: settings and metrics\n{}   the sweep, the command, every metric\n",
        shown(&done.files.runs),
        shown(&done.files.manifest)
    );
    text
}

fn json(done: &Done, summary: &Summary) -> String {
    let value = json!({
        "points": summary.points,
        "runs": done.total,
        "runs_before": done.before,
        "runs_made": done.made,
        "files": {
            "runs": shown(&done.files.runs),
            "manifest": shown(&done.files.manifest),
            "journal": shown(&done.files.journal),
        },
        "schedulers": summary.standings.iter().map(|standing| standing.json()).collect::<Vec<_>>(),
    });
    format!("{value:#}\n")
}
