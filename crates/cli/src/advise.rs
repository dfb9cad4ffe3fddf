//! `ropewalk advise`.

mod show_test;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::{ProgressBar, ProgressStyle};
use ropewalk_lab::advise::{
    self, Answer, Doubt, Effort, Gain, Hands, Question, Why, advise, measure, self_test,
};
use ropewalk_lab::diagnostic::Diagnostic;
use ropewalk_lab::table::Table;
use ropewalk_lab::{Registries, scenario, units};
use ropewalk_sim::{Direction, Scenario, Workload};
use serde_json::{Value, json};

use crate::compare::size_within;
use crate::{Failure, checkpoint, compare, output};

/// Which scheduler, congestion control and buffer size for your paths
///
/// Tries everyone in many versions of your paths, as far apart as what is known of them allows. Recommends multipath
/// only where it beats plain TCP on the best path.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ropewalk advise
  ropewalk advise --path 'wifi: 50 Mbit/s, 20 ms +-5 ms, 0.5 %' --path 'lte: 20 Mbit/s, 60 ms' --size '4 MiB'
  ropewalk advise --path 'dsl: 16 Mbit/s, 30 ms' --measured lte=ping.txt,iperf.json
  ropewalk advise --scenario satellite-lte --measured lte=ss.txt --json
  ropewalk advise --self-test

Measurements, told apart by what is in them, several per path:
  ping -c 30 HOST > ping.txt              round-trip time, jitter, loss
  iperf3 --json -R -c HOST > iperf.json   rate, and the queue by how the round trip grew
  ss -tin > ss.txt                        live connections: rate, round-trip time, retransmissions
  a mahimahi trace                        rate over time
They replace what --path or the scenario says of the path of that name; with a rate and a round-trip time they make a
path of their own. Paths as in `ropewalk compare --help`.")]
pub(crate) struct Options {
    /// A path of your own; repeat it for each
    #[arg(long = "path", value_name = "PATH", conflicts_with = "scenario")]
    paths: Vec<String>,
    /// A built-in scenario's name, or a scenario file
    #[arg(long, value_name = "NAME|FILE")]
    scenario: Option<String>,
    /// Measurements of a path; repeat it for each
    #[arg(long, value_name = "NAME=FILE,...")]
    measured: Vec<String>,
    /// Flow size [default: the scenario's workload]
    #[arg(long, value_name = "SIZE")]
    size: Option<String>,
    /// Which end sends the data
    #[arg(long, value_parser = ["download", "upload"])]
    direction: Option<String>,
    /// Congestion control [default: the best is looked for]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Versions of your paths in which the best are judged
    #[arg(long, default_value_t = Effort::default().judge_worlds as u16, value_parser = clap::value_parser!(u16).range(20..=2000))]
    worlds: u16,
    /// First seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads [default: one per core]; the result doesn't depend on it
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Test the advice on scenarios drawn at random
    #[arg(long, conflicts_with_all = ["paths", "scenario", "measured", "size"])]
    self_test: bool,
    /// How many of them
    #[arg(long, default_value_t = 300, requires = "self_test", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    scenarios: u32,
    /// Folder for finished scenarios of the self-test
    #[arg(long, value_name = "FOLDER", default_value = ".ropewalk", requires = "self_test")]
    state: PathBuf,
    /// Forget finished scenarios of the self-test
    #[arg(long, requires = "self_test")]
    fresh: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// The first seed of the self-test's scenarios: none below was looked at while the advice was made.
const SELF_TEST_SEED: u64 = 1_000_000;

pub(crate) fn run(registries: &Registries, options: &Options) -> Result<(), Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let heard = stop.clone();
    // If another handler is there already, Ctrl-C simply ends the program: nothing is half-written.
    let _ = ctrlc::set_handler(move || heard.store(true, Ordering::Relaxed));
    let jobs =
        options.jobs.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let unknown = |error: ropewalk_engine::registry::SpecError| Failure::from(Diagnostic::new(error.message));
    let interrupted = || Failure::Other("interrupted".into());
    if options.self_test {
        let store = checkpoint::open(&options.state, "advise-self-test", options.fresh)?;
        let bar = bar(u64::from(options.scenarios), "scenarios");
        let hands = Hands { jobs, done: &|| {}, stop: &stop };
        let seed = SELF_TEST_SEED.wrapping_add(options.seed);
        let found = self_test(registries, options.scenarios as usize, seed, &store, hands, || bar.inc(1));
        bar.finish_and_clear();
        let checkpoint = options.state.display();
        let found = found.map_err(unknown)?.ok_or_else(|| {
            Failure::Other(format!(
                "interrupted: finished scenarios are in {checkpoint}, call it again to go on"
            ))
        })?;
        return output::print(&if options.json {
            show_test::json(&found, options.seed)
        } else {
            show_test::text(&found, options.seed)
        });
    }
    let question = question(registries, options)?;
    let bar = bar(advise::runs(registries, &question), "runs");
    let done = || bar.inc(1);
    let hands = Hands { jobs, done: &done, stop: &stop };
    let answer = advise(registries, &question, hands);
    bar.finish_and_clear();
    let answer = answer.map_err(unknown)?.ok_or_else(interrupted)?;
    let shown = if options.json { json(&question, &answer) } else { text(&question, &answer) };
    output::print(&shown)
}

fn bar(total: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(total);
    if let Ok(style) =
        ProgressStyle::with_template(&format!("{{bar:40}} {{pos}}/{{len}} {what}, {{eta}} left"))
    {
        bar.set_style(style);
    }
    bar
}

fn question(registries: &Registries, options: &Options) -> Result<Question, Failure> {
    let (mut scenario, experiment) =
        if options.paths.is_empty() && !options.measured.is_empty() && options.scenario.is_none() {
            (scenario::default_around(Vec::new()), scenario::Experiment::default())
        } else if options.paths.is_empty() {
            let loaded = compare::load(registries, options.scenario.as_deref().unwrap_or(scenario::DEFAULT))?;
            (loaded.scenario, loaded.experiment)
        } else {
            let paths = scenario::paths(&options.paths)?;
            (scenario::default_around(paths), scenario::Experiment::default())
        };
    let mut doubts = vec![Doubt::default(); scenario.paths.len()];
    for text in &options.measured {
        measured(text, &mut scenario, &mut doubts)?;
    }
    let count = scenario.paths.len();
    if count > scenario::MOST_PATHS {
        let message = format!("{count} paths: at most {} are allowed", scenario::MOST_PATHS);
        return Err(Diagnostic::new(message).into());
    }
    for (index, path) in scenario.paths.iter().enumerate() {
        if scenario.paths[..index].iter().any(|other| other.name == path.name) {
            return Err(Diagnostic::new(format!("there are two paths `{}`", path.name)).into());
        }
    }
    if let Some(direction) = &options.direction {
        scenario.direction = if direction == "upload" { Direction::Upload } else { Direction::Download };
    }
    if let Some(text) = &options.size {
        let bytes = size_within("--size", text, (1, 1 << 32))?;
        scenario.workload = Workload::Flow { bytes };
    }
    if let Some(name) = &options.congestion {
        crate::compare::algorithm(&registries.congestion, "--congestion", name)?;
    }
    let congestion = options.congestion.clone().or(experiment.congestion);
    let effort = Effort { judge_worlds: usize::from(options.worlds), ..Effort::default() };
    Ok(Question { scenario, doubts, congestion, effort, seed: options.seed })
}

/// `NAME=FILE,FILE`.
fn measured(text: &str, scenario: &mut Scenario, doubts: &mut Vec<Doubt>) -> Result<(), Failure> {
    let Some((name, files)) =
        text.split_once('=').filter(|(name, files)| !name.is_empty() && !files.is_empty())
    else {
        let message = format!("`--measured {text}`: expected a path's name and its files");
        return Err(Diagnostic::new(message).help("as in `--measured lte=ping.txt,iperf.json`").into());
    };
    let name = name.trim();
    if let Some(reason) = scenario::bad_name(name) {
        return Err(Diagnostic::new(format!(
            "`--measured {text}`: the name `{name}` can't be used: {reason}"
        ))
        .into());
    }
    let files =
        files.split(',').map(|file| measure::read(Path::new(file.trim()))).collect::<Result<Vec<_>, _>>()?;
    match scenario.paths.iter().position(|path| path.name == name) {
        Some(index) => {
            let known = scenario.paths[index].clone();
            (scenario.paths[index], doubts[index]) = measure::refine(name, Some(known), &files)?;
        }
        None => {
            let (path, doubt) = measure::refine(name, None, &files)?;
            scenario.paths.push(path);
            doubts.push(doubt);
        }
    }
    Ok(())
}

/// `23 % less time`, `4 % more time`.
fn change(ratio: f64) -> String {
    let percent = (ratio - 1.0) * 100.0;
    if percent.abs() < 0.5 {
        "the same time".into()
    } else if percent < 0.0 {
        format!("{:.0} % less time", -percent)
    } else {
        format!("{percent:.0} % more time")
    }
}

fn percent(ratio: f64) -> String {
    format!("{:+.0} %", (ratio - 1.0) * 100.0)
}

fn gain(gain: &Gain, than: &str) -> String {
    let (low, high) = gain.interval;
    format!(
        "{} than {than} (in 90 % of the worlds: {} to {})",
        change(gain.ratio),
        percent(low),
        percent(high)
    )
}

fn recommendation(answer: &Answer) -> String {
    if answer.use_this.is_tcp() {
        format!("Use plain TCP on {}, with {}", answer.best_path, answer.use_this.congestion.text)
    } else {
        format!(
            "Use Multipath TCP with the scheduler `{}` and {}, opened on {}",
            answer.use_this.label, answer.use_this.congestion.text, answer.opens_on
        )
    }
}

fn text(question: &Question, answer: &Answer) -> String {
    let mut text = recommendation(answer);
    if let Some(buffer) = &answer.buffer {
        text += &format!(", buffers of {}", units::write_bytes(buffer.bytes));
    }
    text += ".\n\n";
    let reason = match answer.why {
        Why::Better => "better than plain TCP on the best path, and than the kernel's own scheduler",
        Why::OwnAsGood => "the kernel's own scheduler does as well as the best, within 1 %",
        Why::NothingBetter => "no scheduler is surely better than plain TCP on the best path",
    };
    let mut lines = vec![("why", reason.to_string())];
    if !answer.use_this.is_tcp() {
        lines.push(("expect", gain(&answer.versus_tcp, "plain TCP on the best path")));
        if let Some(own) = &answer.versus_own {
            lines.push(("", gain(own, "`linux`")));
        }
    }
    let sure = format!(
        "faster than plain TCP on the best path in {:.0} of {} worlds drawn around your paths",
        answer.versus_tcp.sure * answer.worlds as f64,
        answer.worlds
    );
    if !answer.use_this.is_tcp() {
        lines.push(("how sure", sure));
    }
    if let Some((buffer, smaller)) = answer.buffer.as_ref().and_then(|b| b.smaller.map(|s| (b, s))) {
        let half = units::write_bytes(buffer.bytes / 2);
        lines.push((
            "buffers",
            format!("the least that costs at most 1 %; {half} would cost {}", change(smaller)),
        ));
    }
    for (head, line) in lines {
        text += &format!("  {head:<9} {line}\n");
    }
    text += "\nWho was judged, against plain TCP on the best path\n";
    let mut table = Table::new(1, &["", "time", "90 % of the worlds", "faster in"]);
    for one in &answer.finalists {
        let (low, high) = one.gain.interval;
        let share = format!("{:.0} %", one.gain.sure * 100.0);
        table.row(vec![
            one.name.clone(),
            percent(one.gain.ratio),
            format!("{} .. {}", percent(low), percent(high)),
            share,
        ]);
    }
    text += &table.render();
    text += "\nWhere the answer flips\n";
    if answer.flips.is_empty() {
        text += "  nowhere within a factor of 8 of any rate, round-trip time, loss or size\n";
    }
    for flip in &answer.flips {
        text += &format!(
            "  {} {} {} (now {}): {}, {}\n",
            flip.what,
            flip.side,
            flip.at,
            flip.now,
            flip.to,
            change(flip.ratio)
        );
    }
    let names: Vec<&str> = question.scenario.paths.iter().map(|path| path.name.as_str()).collect();
    text + &format!("\nPaths: {}. Seed {}.\n", names.join(", "), question.seed)
}

fn gain_json(gain: &Gain) -> Value {
    json!({ "ratio": gain.ratio, "interval_90": [gain.interval.0, gain.interval.1], "faster_in": gain.sure })
}

fn json(question: &Question, answer: &Answer) -> String {
    let value = json!({
        "recommendation": recommendation(answer),
        "multipath": !answer.use_this.is_tcp(),
        "scheduler": if answer.use_this.is_tcp() { None } else { Some(&answer.use_this.scheduler.text) },
        "congestion": answer.use_this.congestion.text,
        "buffer_bytes": answer.buffer.map(|buffer| buffer.bytes),
        "opens_on": if answer.use_this.is_tcp() { None } else { Some(&answer.opens_on) },
        "best_path": answer.best_path,
        "why": match answer.why {
            Why::Better => "better",
            Why::OwnAsGood => "linux-as-good",
            Why::NothingBetter => "nothing-better",
        },
        "versus_tcp": gain_json(&answer.versus_tcp),
        "versus_linux": answer.versus_own.as_ref().map(gain_json),
        "worlds": answer.worlds,
        "seed": question.seed,
        "judged": answer.finalists.iter().map(|one| json!({
            "name": one.name,
            "versus_tcp": gain_json(&one.gain),
        })).collect::<Vec<_>>(),
        "flips": answer.flips.iter().map(|flip| json!({
            "what": flip.what,
            "now": flip.now,
            "side": flip.side,
            "at": flip.at,
            "to": flip.to,
            "ratio": flip.ratio,
        })).collect::<Vec<_>>(),
    });
    format!("{value:#}\n")
}
