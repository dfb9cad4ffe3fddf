//! `ropewalk advise`.

mod show_test;

use std::path::PathBuf;

use ropewalk_algorithms::Registries;
use ropewalk_command_line::settings::Tables;
use ropewalk_command_line::{Failure, ProgressLine, interrupt, output};
use ropewalk_engine::registry::SpecError;
use ropewalk_lab::advise::measure::Reading;
use ropewalk_lab::advise::{
    self as lab, Answer, Buffer, Execution, Gain, Question, Recommended, Stores, Telling, WholeTest, advise,
    document, whole_test,
};
use ropewalk_lab::ask;
use ropewalk_lab::compare::{Standing, System};
use ropewalk_lab::scenario;
use ropewalk_lab::table::Table;
use ropewalk_runner::checkpoint;
use ropewalk_settings::diagnostic::Diagnostic;
use ropewalk_settings::{given, units};

use crate::compare::show;
use crate::options::Common;

/// What to use on your paths: plain TCP, or Multipath TCP with which scheduler
///
/// Runs the candidates of `compare` in many plausible variants of your paths, as far apart as what is known
/// of them allows, and recommends as `compare` names: Multipath TCP only where it is at most 5 % slower in
/// four of five variants (`--certainty`), and where plain TCP is shown to be slower by more than 2 % on every
/// path, in the mean, or is over 5 % slower in more of the variants than Multipath TCP is.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ropewalk advise
  ropewalk advise --path 'wifi: 50 Mbit/s, 20 ms +-5 ms, 0.5 %' \\
      --path 'lte: 20 Mbit/s, 60 ms' --size '4 MiB'
  ropewalk advise --path 'dsl: 16 Mbit/s, 30 ms' \\
      --measured lte=ping.txt,iperf.json
  ropewalk advise --scenario satellite-lte --measured lte=ss.txt --json
  ropewalk advise --for linux
  ropewalk advise --path 'home: dsl' --path 'phone: 4g, price 2 EUR/GB' \\
      --value 'a second is worth 5 MB of phone' --for openmptcprouter
  ropewalk advise --self-test

Measurements, told apart by what is in them, several per path:
  ping -c 30 HOST > ping.txt              round-trip time, jitter, loss
  iperf3 --json -R -c HOST > iperf.json   rate; without -R the queue, too
  ss -tin > ss.txt                        live connections: rate, round trips
  iperf3, mtr, fping, irtt -o, curl -w    as text, JSON or CSV, whichever they have
  speedtest-cli, librespeed, flent        JSON, unpacked
  throughput per second, mahimahi         columns or NAME.up, NAME.down: a rate over time

A rate is taken as `at least` unless something shows that the link was full: `iperf3 -P 8`, or `-u -b` with \
twice its rate.
Each is joined with what --path or the scenario says of the path of that name, weighted by how sure both \
are; with a \
rate and a round-trip time they make a path of their own. Paths as in `ropewalk compare --help`.")]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common<Advised>,
    /// Measurements of a path; repeat it for each
    #[arg(long, value_name = "NAME=FILE,...")]
    measured: Vec<String>,
    /// Threads [default: one per core]; the result doesn't depend on it
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Test the advice on scenarios drawn at random, that measurements narrow it on pairs of links (200 at
    /// most), and how often their ranges hold the truth (400 links at most)
    #[arg(long, conflicts_with_all = ["paths", "scenario", "measured", "size", "schedulers", "direction"])]
    self_test: bool,
    /// How many of them
    #[arg(long, default_value_t = 300, requires = "self_test")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
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

pub(crate) fn run(registries: &Registries, options: &Options) -> Result<(), Failure> {
    let stop = interrupt::flag();
    let jobs = ropewalk_runner::threads(options.jobs.map(usize::from));
    let interrupted = || Failure::Interrupted("nothing is kept".into());
    if options.self_test {
        return self_test(registries, options, Execution { jobs, done: &|_| {}, stop: &stop });
    }
    let (question, readings) = question(registries, options)?;
    let bar = ProgressLine::share(question.budget(), "of the budget");
    let done = |worth| bar.inc(worth);
    let execution = Execution { jobs, done: &done, stop: &stop };
    let answer = advise(registries, &question, execution);
    bar.clear();
    let answer = answer.map_err(unknown)?.ok_or_else(interrupted)?;
    let lines = document::lines(&question, &answer);
    let shown = if options.json {
        format!("{:#}\n", document::json(&question, &readings, &answer, &lines))
    } else {
        text(&question, &readings, &answer, &lines)
    };
    output::print(&shown)
}

fn unknown(error: SpecError) -> Failure {
    Diagnostic::new(error.message).into()
}

/// A progress line that goes when its part is done.
struct Line(ProgressLine);

impl Drop for Line {
    fn drop(&mut self) {
        self.0.clear();
    }
}

fn self_test(registries: &Registries, options: &Options, execution: Execution<'_>) -> Result<(), Failure> {
    let seed = ask::seed(&options.common.given)?;
    let stores = Stores {
        scenarios: &checkpoint::open(&options.state, "advise-self-test", options.fresh).map_err(unopened)?,
        pairs: &checkpoint::open(&options.state, "advise-narrowing", options.fresh).map_err(unopened)?,
        links: &checkpoint::open(&options.state, "advise-coverage", options.fresh).map_err(unopened)?,
    };
    let begin = |count, what| Line(ProgressLine::new(u64::from(count), what));
    let found =
        whole_test(registries, options.scenarios, seed, stores, execution, begin, |line| line.0.inc(1));
    let hint = || Failure::Interrupted(checkpoint::hint(&options.state));
    let WholeTest { advice, narrowing, coverage } = found.map_err(unknown)?.ok_or_else(hint)?;
    output::print(&if options.json {
        show_test::json(&advice, &narrowing, &coverage, seed)
    } else {
        show_test::text(&advice, &narrowing, &coverage, seed)
    })
}

fn unopened(failed: checkpoint::Unusable) -> Failure {
    Failure::Output { path: failed.path, reason: failed.reason }
}

/// What advice is asked for.
#[derive(Clone, Debug)]
struct Advised;

impl Tables for Advised {
    const TABLES: &'static given::Tables = ask::ADVISE;
}

/// What is asked, and what was read of measurements.
fn question(registries: &Registries, options: &Options) -> Result<(Question, Vec<Reading>), Failure> {
    let common = &options.common;
    let measured_only = common.paths.is_empty() && common.scenario.is_none() && !options.measured.is_empty();
    let (scenario, experiment) = if measured_only {
        (scenario::default_around(Vec::new()), scenario::Experiment::default())
    } else {
        common.load(registries)?
    };
    let usual = !common.paths.is_empty() || measured_only;
    let files: Vec<_> = options.measured.iter().map(|text| measured(text)).collect::<Result<_, _>>()?;
    Ok(lab::question(&common.given, usual, scenario, experiment, &files, registries)?)
}

/// `NAME=FILE,FILE`.
fn measured(text: &str) -> Result<(String, Vec<PathBuf>), Failure> {
    let Some((name, files)) =
        text.split_once('=').filter(|(name, files)| !name.is_empty() && !files.is_empty())
    else {
        let message = format!("`--measured {text}`: expected a path's name and its files");
        return Err(Diagnostic::new(message).help("as in `--measured lte=ping.txt,iperf.json`").into());
    };
    Ok((name.trim().to_string(), files.split(',').map(|file| file.trim().into()).collect()))
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
        "{} than {than} (in 90 % of the variants: {} to {})",
        change(gain.ratio),
        percent(low),
        percent(high)
    )
}

fn text(question: &Question, readings: &[Reading], answer: &Answer, to_type: &[String]) -> String {
    let mut text = String::new();
    for reading in readings {
        text += &format!("Read of {}\n", reading.text());
    }
    if !readings.is_empty() {
        text.push('\n');
    }
    text += &document::recommendation(answer);
    if let Some(buffer) = &answer.buffer {
        text += &format!(", buffers of at least {}", units::write_bytes(buffer.bytes));
    }
    text += ".\n\n";
    for (head, line) in reasons(question, answer) {
        text += &show::wrapped(&format!("  {head:<9} "), line.split(' ').map(String::from));
    }
    let names: Vec<&str> = question.scenario.paths.iter().map(|path| path.name.as_str()).collect();
    text += &format!("\n{}", candidates(answer, &names));
    text += "\nWhere the answer flips\n";
    if let Some((name, ratio)) = &answer.ahead {
        let line = format!(
            "nowhere that this could show: `{name}` takes {} on exactly these paths already; what decides \
             is how sure that is",
            change(*ratio)
        );
        text += &show::wrapped("  ", line.split(' ').map(String::from));
    } else if answer.flips.is_empty() {
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
    text += "\nTo type\n";
    for line in to_type {
        text += &format!("  {line}\n");
    }
    text + &format!("\nPaths: {}. Seed {}.\n", names.join(", "), question.seed)
}

/// Why, what to expect and how sure it is: a head and a line each.
fn reasons(question: &Question, answer: &Answer) -> Vec<(&'static str, String)> {
    let tcp = format!("TCP on {}", answer.best_path);
    let own = answer.decision.named.as_ref().map(|(label, _)| label.as_str()).unwrap_or_default();
    let kept = answer.named_before.as_deref() == Some(own);
    let rule = match &answer.decision.named {
        Some(_) if kept => "what is stated alone named it, and measurements don't show it to be slower",
        Some((_, merit)) => merit.text(),
        None => "nothing else can be said",
    };
    let certainty = units::write_probability(question.certainty);
    let reason = match answer.why {
        Recommended::Better => format!("{tcp} is slower; of those that are equal, {rule}"),
        Recommended::OwnAsGood => {
            format!("{tcp} is slower; Linux's own scheduler is as good as the best")
        }
        Recommended::LesserRisk => format!(
            "it is the lesser risk, over 5 % slower in fewer of the plausible variants of your paths than \
             {tcp} is (`compare`, which takes your paths to be exactly so, may name TCP); of those that are \
             equal, {rule}"
        ),
        Recommended::NothingBetter if question.system == System::Android => {
            "Android's kernels are built without Multipath TCP".into()
        }
        Recommended::NothingBetter => format!("no scheduler is shown to be more than 2 % faster than {tcp}"),
        Recommended::NotSure => format!(
            "Multipath TCP is faster in the mean (`compare`, which takes your paths to be exactly so, may \
             name it), but the risk is too great: it must be at most 5 % slower in {certainty} of their \
             plausible variants (`--certainty`), and {tcp} over 5 % slower in a tenth more of them than it is"
        ),
    };
    let left = |standing| answer.decision.with(standing).len();
    let likely = answer.decision.likely().len();
    // Nobody is equal to itself.
    let equal = match left(Standing::Equal) {
        1 => "one is the fastest; none is shown to be equal to it within 2 %".into(),
        equal => format!("{equal} are shown to be equal to the fastest within 2 %"),
    };
    let mut lines = vec![
        ("why", reason),
        (
            "group",
            format!(
                "{equal}, {likely} likely equal, {} open, {} slower",
                left(Standing::Open) - likely,
                left(Standing::Slower)
            ),
        ),
    ];
    let faster = answer.sure.as_ref().map(|sure| {
        let runs = if sure.runs == 1 { "one run".into() } else { format!("the mean of {} runs", sure.runs) };
        let percent = |count: u32| f64::from(count) / f64::from(sure.variants) * 100.0;
        format!(
            "of {} plausible variants of your paths, over 5 % slower than {tcp} in {:.0} %, TCP over 5 % \
             slower than it in {:.0} %; faster than TCP on every path in {:.0} %, by {runs} in each",
            sure.variants,
            percent(sure.slower()),
            percent(sure.tcp_slower()),
            sure.faster_in() * 100.0
        )
    });
    if !answer.use_this.is_tcp() {
        lines.push(("expect", gain(&answer.versus_tcp, &tcp)));
        if let Some(stated) = &answer.stated {
            let (low, high) = stated.interval;
            lines.push(("", format!("without the measurements: {} to {}", percent(low), percent(high))));
        }
        if let Some((name, own)) = &answer.versus_own {
            lines.push(("", gain(own, name)));
        }
        lines.extend(faster.map(|faster| ("how sure", faster)));
    } else if let (Some((name, better)), Some(faster)) = (&answer.unsure, faster) {
        lines.push(("instead", format!("`{name}`: {}; {faster}", gain(better, &tcp))));
    }
    if let Some((name, better)) = &answer.beyond {
        lines.push(("beyond", format!("if you could run `{name}`: {}", gain(better, "this"))));
    }
    lines.push(("measure", would_change(answer)));
    if !answer.cut.is_empty() {
        let cut = format!("{}; with more `--budget` longer ones", answer.cut.join(", "));
        lines.push(("simulated", cut));
    }
    lines.extend(question.worth.text().map(|worth| ("cost", worth.to_string())));
    if let Some(buffer) = &answer.buffer {
        lines.extend(buffer_line(buffer).map(|line| ("buffers", line)));
    }
    lines
}

/// The measurement that would change the answer.
fn would_change(answer: &Answer) -> String {
    let Some(Telling { path, what, run, now, side, at, to }) = &answer.telling else {
        return "no single quantity of a path would change this within what is plausible now".into();
    };
    format!(
        "the {what} could change this: {side} {at}, `{to}` is better ({} to {} is plausible now). `{run}` \
         over {path} tells \
         (`--measured {path}=FILE`)",
        now.0, now.1
    )
}

fn buffer_line(buffer: &Buffer) -> Option<String> {
    let smaller = change(buffer.smaller?);
    let half = units::write_bytes(buffer.bytes / 2);
    let likely = if buffer.shown { "" } else { "likely " };
    // Where it is open how much is needed, a range says so.
    let range = match buffer.least < buffer.bytes {
        true => format!("; from {} on it isn't shown to be slower", units::write_bytes(buffer.least)),
        false => String::new(),
    };
    Some(format!(
        "the least that is {likely}within 2 % of the best: {half} takes {smaller} in the mean{range}"
    ))
}

/// All candidates, with the columns of `compare`.
fn candidates(answer: &Answer, paths: &[&str]) -> String {
    let head = [
        "",
        "scheduler",
        &format!("vs tcp\n{}", answer.best_path),
        "90 % of the\nvariants",
        "faster\nin",
        "% by\npath",
        "dupli-\ncated",
        "rein-\njected",
        "re-\ntrans-\nmits",
    ];
    let mut table = Table::new(2, &head).within(show::WIDTH);
    for one in &answer.judged {
        let (low, high) = one.gain.interval;
        table.row(vec![
            answer.all.word(&one.label).to_string(),
            one.label.clone(),
            percent(one.gain.ratio),
            format!("{} .. {}", percent(low), percent(high)),
            format!("{:.0} %", one.gain.sure * 100.0),
            show::shares(one.bytes.iter().copied()),
            show::bytes(one.duplicated),
            show::bytes(one.reinjected),
            show::tenths(one.retransmits),
        ]);
    }
    let legend = format!(
        "vs tcp: geometric mean of the ratios of runs in the same variant of your paths; faster in: so many \
         of these \
         single runs; % by path: of the bytes sent, by {}; duplicated by the scheduler, reinjected by the \
         connection, \
         retransmitted by subflows: per run",
        paths.join("/")
    );
    format!("{}\n{}", table.render(), show::wrapped("", legend.split(' ').map(String::from)))
}
