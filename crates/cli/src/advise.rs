//! `ropewalk advise`.

mod show_test;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::{ProgressBar, ProgressStyle};
use ropewalk_lab::advise::measure::{self, Reading};
use ropewalk_lab::advise::{
    Answer, Buffer, Doubt, Effort, Gain, Hands, Question, Recommended, advise, narrowing, self_test,
};
use ropewalk_lab::compare::{Design, Reach, Standing, usual_workloads};
use ropewalk_lab::diagnostic::{Diagnostic, Source};
use ropewalk_lab::report::comparison;
use ropewalk_lab::table::Table;
use ropewalk_lab::{Registries, scenario, units};
use ropewalk_sim::{Scenario, Workload};
use serde_json::{Value, json};

use crate::compare::show;
use crate::options::Common;
use crate::{Failure, checkpoint, compare, output};

/// What to use on your paths: plain TCP, or Multipath TCP with which scheduler
///
/// Runs the candidates of `compare` in many plausible variants of your paths, as far apart as what is known of them allows, and
/// recommends as `compare` names: Multipath TCP only where plain TCP is shown to be slower by more than 2 % on every path, in the
/// mean, and where Multipath TCP is faster in nine of ten variants (`--certainty`).
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
  iperf3 --json -R -c HOST > iperf.json   rate; without -R also the queue, by how the round trip grew
  ss -tin > ss.txt                        live connections: rate, round-trip time, retransmissions
  a mahimahi trace                        rate over time
Each is joined with what --path or the scenario says of the path of that name, weighted by how sure both are; with a \
rate and a round-trip time they make a path of their own. Paths as in `ropewalk compare --help`.")]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Measurements of a path; repeat it for each
    #[arg(long, value_name = "NAME=FILE,...")]
    measured: Vec<String>,
    /// What you can run: Linux's own Multipath TCP, the kernel of multipath-tcp.org, a router with OpenMPTCProuter (which has
    /// that kernel), or Ropewalk's engine
    #[arg(long = "for", value_name = "SYSTEM", value_parser = ["linux", "multipath-tcp.org", ROUTER, "ropewalk"], default_value = "ropewalk")]
    system: String,
    /// What bytes on metered paths are worth, as in `compare`: 'a second is worth 5 MB of lte'
    #[arg(long, value_name = "TEXT")]
    value: Option<String>,
    /// In which share of the plausible variants of your paths Multipath TCP must be faster than plain TCP on every path
    #[arg(long, value_name = "SHARE", default_value = "90 %", allow_hyphen_values = true)]
    certainty: String,
    /// Congestion control [default: the scenario's, else cubic]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// How much to run before the answer is given as it is then; as in `compare`
    #[arg(long, value_name = "TIME", default_value = "10s", allow_hyphen_values = true)]
    budget: String,
    /// First seed
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    seed: u64,
    /// Threads [default: one per core]; the result doesn't depend on it
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Test the advice on scenarios drawn at random, and that measurements narrow it on pairs of links (200 at most)
    #[arg(long, conflicts_with_all = ["paths", "scenario", "measured", "size", "schedulers", "direction"])]
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

/// A router that bundles paths: openmptcprouter.com.
const ROUTER: &str = "openmptcprouter";

/// The first seed of the self-test's scenarios: none below was looked at while the advice was made.
const SELF_TEST_SEED: u64 = 1_000_000;

/// Most pairs of links on which the self-test measures.
const PAIRS: u32 = 200;

pub(crate) fn run(registries: &Registries, options: &Options) -> Result<(), Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let heard = stop.clone();
    // If another handler is there already, Ctrl-C simply ends the program: nothing is half-written.
    let _ = ctrlc::set_handler(move || heard.store(true, Ordering::Relaxed));
    let jobs =
        options.jobs.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let unknown = |error: ropewalk_engine::registry::SpecError| Failure::from(Diagnostic::new(error.message));
    let interrupted = || Failure::Interrupted("nothing is kept".into());
    if options.self_test {
        let store = checkpoint::open(&options.state, "advise-self-test", options.fresh)?;
        let bar = bar(u64::from(options.scenarios), "scenarios");
        let hands = Hands { jobs, done: &|_| {}, stop: &stop };
        let seed = SELF_TEST_SEED.wrapping_add(options.seed);
        let found = self_test(registries, options.scenarios as usize, seed, &store, hands, || bar.inc(1));
        bar.finish_and_clear();
        let hint = || Failure::Interrupted(checkpoint::hint(&options.state));
        let found = found.map_err(unknown)?.ok_or_else(hint)?;
        let store = checkpoint::open(&options.state, "advise-narrowing", options.fresh)?;
        let pairs = options.scenarios.min(PAIRS) as usize;
        let bar = self::bar(pairs as u64, "pairs of links");
        let narrowed = narrowing(registries, pairs, options.seed - 1, &store, hands, || bar.inc(1));
        bar.finish_and_clear();
        let narrowed = narrowed.map_err(unknown)?.ok_or_else(hint)?;
        return output::print(&if options.json {
            show_test::json(&found, &narrowed, options.seed)
        } else {
            show_test::text(&found, &narrowed, options.seed)
        });
    }
    let (question, readings) = question(registries, options)?;
    let bar = bar(question.budget(), "segments");
    let done = |worth| bar.inc(worth);
    let hands = Hands { jobs, done: &done, stop: &stop };
    let answer = advise(registries, &question, hands);
    bar.finish_and_clear();
    let answer = answer.map_err(unknown)?.ok_or_else(interrupted)?;
    let lines = lines(&question, &answer, &options.system);
    let shown = if options.json {
        json(&question, &readings, &answer, &lines)
    } else {
        text(&question, &readings, &answer, &lines)
    };
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

fn question(registries: &Registries, options: &Options) -> Result<(Question, Vec<Reading>), Failure> {
    let measured_only =
        options.common.paths.is_empty() && options.common.scenario.is_none() && !options.measured.is_empty();
    let (mut scenario, experiment) = if measured_only {
        (scenario::default_around(Vec::new()), scenario::Experiment::default())
    } else {
        options.common.load(registries)?
    };
    let mut doubts = vec![Doubt::default(); scenario.paths.len()];
    let before = scenario.clone();
    let mut read = Vec::new();
    for text in &options.measured {
        read.push(measured(text, &mut scenario, &mut doubts)?);
    }
    let count = scenario.paths.len();
    if count == 1 {
        let message = format!("there is one path, `{}`: nothing to choose from", scenario.paths[0].name);
        return Err(Diagnostic::new(message)
            .help("add another: `--path 'lte: 20 Mbit/s, 60 ms'`, or `--measured NAME=FILE,...`")
            .into());
    }
    if count > scenario::MOST_PATHS {
        let message = format!("{count} paths: at most {} are allowed", scenario::MOST_PATHS);
        return Err(Diagnostic::new(message).into());
    }
    for (index, path) in scenario.paths.iter().enumerate() {
        if scenario.paths[..index].iter().any(|other| other.name == path.name) {
            return Err(Diagnostic::new(format!("there are two paths `{}`", path.name)).into());
        }
    }
    if let Some(direction) = options.common.direction {
        scenario.direction = direction.into();
    }
    let sizes = options.common.sizes(1 << 40)?;
    let given = !options.common.paths.is_empty() || measured_only;
    let schedulers = options.common.names()?.unwrap_or_default();
    for name in schedulers.iter().filter(|name| *name != "tcp") {
        compare::scheduler(registries, "--schedulers", name, scenario.paths.len())?;
    }
    let workloads: Vec<Workload> = match (sizes.as_slice(), experiment.sizes.as_slice()) {
        ([], []) if given => usual_workloads(),
        ([], []) => vec![scenario.workload.clone()],
        ([], sizes) | (sizes, _) => sizes.iter().map(|bytes| Workload::Flow { bytes: *bytes }).collect(),
    };
    if let Some(Workload::Flow { bytes }) = workloads.iter().find(|_| sizes.len() == 1) {
        scenario.workload = Workload::Flow { bytes: *bytes };
    }
    if let Some(name) = &options.congestion {
        compare::algorithm(&registries.congestion, "--congestion", name)?;
    }
    let congestion = options.congestion.clone().or(experiment.congestion).unwrap_or_else(|| "cubic".into());
    let reach = match options.system.as_str() {
        "linux" => Reach::Linux,
        "multipath-tcp.org" | ROUTER => Reach::OtherKernel,
        _ => Reach::Ropewalk,
    };
    let effort = Effort { design: Design::race(compare::budget(&options.budget)?), whole: true };
    let readings = read
        .into_iter()
        .filter_map(|(name, files)| {
            let index = scenario.paths.iter().position(|path| path.name == name)?;
            Some(Reading::of(&scenario.paths[index], &doubts[index], &files, scenario.direction))
        })
        .collect();
    // Paths that are known by measurements alone have no before.
    let stated = (!options.measured.is_empty() && before.paths.len() == count).then(|| Scenario {
        direction: scenario.direction,
        workload: scenario.workload.clone(),
        ..before
    });
    let worth = compare::worth(&scenario.paths, options.value.as_deref())?;
    let seed = options.seed;
    let certainty = certainty(&options.certainty)?;
    let question = Question {
        scenario,
        workloads,
        schedulers,
        doubts,
        stated,
        congestion,
        reach,
        worth,
        certainty,
        effort,
        seed,
    };
    Ok((question, readings))
}

/// A share of the variants given on the command line.
fn certainty(text: &str) -> Result<f64, Failure> {
    let source = Source::new("--certainty", text);
    let found = units::probability(text).map_err(|error| {
        Diagnostic::new(error.message).at(&source, error.span).label(error.label).help(error.help)
    })?;
    if !(0.5..1.0).contains(&found) {
        let error = Diagnostic::new("50 % to less than 100 % are allowed").at(&source, 0..text.len());
        return Err(error.label("here").help("as in `--certainty '80 %'`").into());
    }
    Ok(found)
}

/// A path's name, and what its files say.
type Files = (String, Vec<(String, measure::Measured)>);

/// `NAME=FILE,FILE`.
fn measured(text: &str, scenario: &mut Scenario, doubts: &mut Vec<Doubt>) -> Result<Files, Failure> {
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
    let names: Vec<String> = files.split(',').map(|file| file.trim().to_string()).collect();
    let files = names.iter().map(|file| measure::read(Path::new(file))).collect::<Result<Vec<_>, _>>()?;
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
    Ok((name.to_string(), names.into_iter().zip(files).collect()))
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

fn recommendation(answer: &Answer) -> String {
    if answer.use_this.is_tcp() {
        format!("Use plain TCP on {}, with {}", answer.best_path, answer.use_this.congestion.text)
    } else {
        format!(
            "Use Multipath TCP with the scheduler `{}` and {}, the first subflow on {}",
            answer.use_this.scheduler.text, answer.use_this.congestion.text, answer.opens_on
        )
    }
}

/// The lines to type.
fn lines(question: &Question, answer: &Answer, system: &str) -> Vec<String> {
    if system == ROUTER {
        return router_lines(question, answer);
    }
    let mut lines = Vec::new();
    let control = &answer.use_this.congestion.text;
    if answer.use_this.is_tcp() {
        lines.push(format!("# route the traffic over {}; as root:", answer.best_path));
        lines.push(format!("sysctl net.ipv4.tcp_congestion_control={control}"));
        lines.extend(buffer_lines(answer));
        return lines;
    }
    let others = question.scenario.paths.iter().filter(|path| path.name != answer.opens_on);
    let interfaces: Vec<&str> = others.map(|path| path.name.as_str()).collect();
    match question.reach {
        Reach::Tcp | Reach::Linux => {
            lines.push("# Linux 5.19 or later, on both ends, as root:".into());
            lines.push("sysctl net.mptcp.enabled=1".into());
            lines.push(format!("sysctl net.ipv4.tcp_congestion_control={control}"));
            lines.push(format!("ip mptcp limits set subflows {0} add_addr_accepted {0}", interfaces.len()));
            for name in &interfaces {
                lines
                    .push(format!("ip mptcp endpoint add ADDRESS_OF_{name} dev INTERFACE_OF_{name} subflow"));
            }
            lines.extend(buffer_lines(answer));
            lines.push(format!("# the default route by {}, then:", answer.opens_on));
            lines.push("mptcpize run PROGRAM".into());
        }
        Reach::OtherKernel => {
            let name = kernel_name(answer.use_this.scheduler.entry.name);
            lines.push("# the kernel of github.com/multipath-tcp/mptcp, on the sending end, as root:".into());
            lines.push("sysctl net.mptcp.mptcp_enabled=1".into());
            lines.push("sysctl net.mptcp.mptcp_path_manager=fullmesh".into());
            lines.push(format!("sysctl net.mptcp.mptcp_scheduler={name}"));
            lines.push(format!("sysctl net.ipv4.tcp_congestion_control={control}"));
            lines.extend(buffer_lines(answer));
        }
        Reach::Ropewalk => {
            lines.push(
                "# in front of the sending end, a Ropewalk endpoint; over emulated paths, with real packets:"
                    .into(),
            );
            lines.push(format!(
                "ropewalk compare --world emulated --schedulers {} --congestion {control}",
                answer.use_this.scheduler.text
            ));
        }
    }
    lines
}

/// Where Linux's own limits of buffers (net.ipv4.tcp_wmem, tcp_rmem) are too small.
fn buffer_lines(answer: &Answer) -> Vec<String> {
    let bytes = answer.buffer.map_or(0, |buffer| buffer.bytes);
    let mut lines = Vec::new();
    if bytes > 4 << 20 {
        lines.push(format!("sysctl net.ipv4.tcp_wmem='4096 16384 {bytes}'"));
    }
    if bytes > 6 << 20 {
        lines.push(format!("sysctl net.ipv4.tcp_rmem='4096 131072 {bytes}'"));
    }
    lines
}

/// The kernel's name for a scheduler.
fn kernel_name(scheduler: &str) -> &str {
    match scheduler {
        "minrtt" | "linux" => "default",
        other => other,
    }
}

/// Its settings are UCI's section `network.globals`, and `multipath` of each interface; /etc/init.d/mptcp applies them.
fn router_lines(question: &Question, answer: &Answer) -> Vec<String> {
    let scheduler = kernel_name(answer.use_this.scheduler.entry.name);
    let tcp = answer.use_this.is_tcp();
    let first = if tcp { &answer.best_path } else { &answer.opens_on };
    let mut lines = vec!["# on the router, as root; interfaces by the paths' names:".to_string()];
    if !tcp {
        lines.push("uci set network.globals.multipath=enable".into());
        lines.push(format!("uci set network.globals.mptcp_scheduler={scheduler}"));
    }
    lines.push(format!("uci set network.globals.congestion={}", answer.use_this.congestion.text));
    for path in &question.scenario.paths {
        let mode = match path.name == *first {
            true => "master",
            false if tcp => "off",
            false => "on",
        };
        lines.push(format!("uci set network.{}.multipath={mode}", path.name));
    }
    lines.push("uci commit network && /etc/init.d/mptcp restart".into());
    if !tcp {
        lines.push("# on its server, which schedules downloads:".into());
        lines.push(format!("sysctl net.mptcp.mptcp_scheduler={scheduler}"));
    }
    lines
}

fn text(question: &Question, readings: &[Reading], answer: &Answer, to_type: &[String]) -> String {
    let mut text = String::new();
    for reading in readings {
        text += &format!("Read of {}\n", reading.text());
    }
    if !readings.is_empty() {
        text.push('\n');
    }
    text += &recommendation(answer);
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
        Some((_, reach)) => reach.text(),
        None => "nothing else can be said",
    };
    let certainty = units::write_probability(question.certainty);
    let reason = match answer.why {
        Recommended::Better => format!("{tcp} is slower; of those that are equal, {rule}"),
        Recommended::OwnAsGood => {
            format!("{tcp} is slower; Linux's own scheduler is as good as the best")
        }
        Recommended::NothingBetter => format!("no scheduler is shown to be more than 2 % faster than {tcp}"),
        Recommended::NotSure => format!(
            "Multipath TCP is faster in the mean, but not in {certainty} of the plausible variants of your paths (`--certainty`)"
        ),
    };
    let left = |standing| answer.decision.with(standing).len();
    let likely = answer.decision.likely().len();
    let mut lines = vec![
        ("why", reason),
        (
            "group",
            format!(
                "{} shown to be equal to the fastest within 2 %, {likely} likely equal, {} open, {} slower",
                left(Standing::Equal),
                left(Standing::Open) - likely,
                left(Standing::Slower)
            ),
        ),
    ];
    let faster = answer.sure.map(|sure| {
        format!(
            "faster than TCP on every path in {:.0} % of the plausible variants of your paths",
            sure * 100.0
        )
    });
    if !answer.use_this.is_tcp() {
        lines.push(("expect", gain(&answer.versus_tcp, &tcp)));
        if let Some(stated) = &answer.stated {
            let (low, high) = stated.interval;
            lines.push(("", format!("without the measurements: {} to {}", percent(low), percent(high))));
        }
        if let Some(own) = &answer.versus_own {
            lines.push(("", gain(own, "`linux`")));
        }
        lines.extend(faster.map(|faster| ("how sure", faster)));
    } else if let (Some((name, better)), Some(faster)) = (&answer.unsure, faster) {
        lines.push(("instead", format!("`{name}`: {}; {faster}", gain(better, &tcp))));
        let more = "the output of ping and iperf3 (`--measured`) tells which variants aren't yours";
        lines.push(("", more.into()));
    }
    if let Some((name, better)) = &answer.beyond {
        lines.push(("beyond", format!("if you could run `{name}`: {}", gain(better, "this"))));
    }
    lines.extend(question.worth.text().map(|worth| ("cost", worth.to_string())));
    if let Some(buffer) = &answer.buffer {
        lines.extend(buffer_line(buffer).map(|line| ("buffers", line)));
    }
    lines
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
    format!(
        "{}\nvs tcp: geometric mean of the ratios of runs in the same variant of your paths; % by path: of the bytes\n\
         sent, by {}; duplicated by the scheduler, reinjected by the connection, retransmitted by\nsubflows: per run\n",
        table.render(),
        paths.join("/")
    )
}

fn gain_json(gain: &Gain) -> Value {
    json!({ "ratio": gain.ratio, "interval_90": [gain.interval.0, gain.interval.1], "faster_in": gain.sure })
}

fn reading_json(reading: &Reading) -> Value {
    let pair = |(low, high): (f64, f64)| [low, high];
    json!({
        "path": reading.path,
        "files": reading.files,
        "rtt_ms": pair(reading.rtt_ms),
        "up_bit_per_s": pair(reading.rate[0]),
        "down_bit_per_s": pair(reading.rate[1]),
        "loss": pair(reading.loss),
        "queue_ms": reading.queue_ms,
        "notes": reading.notes,
    })
}

fn json(question: &Question, readings: &[Reading], answer: &Answer, to_type: &[String]) -> String {
    let value = json!({
        "recommendation": recommendation(answer),
        "multipath": !answer.use_this.is_tcp(),
        "scheduler": if answer.use_this.is_tcp() { None } else { Some(&answer.use_this.scheduler.text) },
        "congestion": answer.use_this.congestion.text,
        "buffer_bytes": answer.buffer.map(|buffer| buffer.bytes),
        "buffer": answer.buffer.map(|buffer| json!({
            "bytes": buffer.bytes,
            "shown": buffer.shown,
            "least_not_shown_slower_bytes": buffer.least,
            "next_smaller_ratio": buffer.smaller,
        })),
        "first_subflow_on": if answer.use_this.is_tcp() { None } else { Some(&answer.opens_on) },
        "best_path": answer.best_path,
        "why": match answer.why {
            Recommended::Better => "better",
            Recommended::OwnAsGood => "linux-as-good",
            Recommended::NothingBetter => "nothing-better",
            Recommended::NotSure => "not-sure",
        },
        "certainty": question.certainty,
        "faster_than_tcp_on_every_path_in": answer.sure,
        "not_sure": answer.unsure.as_ref().map(|(name, gain)| json!({ "scheduler": name, "gain": gain_json(gain) })),
        "named_as_stated": answer.named_before,
        "read": readings.iter().map(reading_json).collect::<Vec<_>>(),
        "versus_tcp": gain_json(&answer.versus_tcp),
        "versus_tcp_as_stated": answer.stated.as_ref().map(gain_json),
        "worth": question.worth.text(),
        "versus_linux": answer.versus_own.as_ref().map(gain_json),
        "beyond": answer.beyond.as_ref().map(|(name, gain)| json!({ "scheduler": name, "gain": gain_json(gain) })),
        "variants": answer.variants,
        "seed": question.seed,
        "decision": comparison::decision(&answer.decision),
        "candidates": answer.judged.iter().map(|one| json!({
            "scheduler": one.label,
            "standing": comparison::standing(one.standing),
            "variants": one.variants,
            "versus_tcp": gain_json(&one.gain),
            "bytes_on_paths": one.bytes,
            "repeated_bytes": one.duplicated + one.reinjected,
            "duplicated_bytes": one.duplicated,
            "reinjected_bytes": one.reinjected,
            "retransmitted_segments": one.retransmits,
        })).collect::<Vec<_>>(),
        "flips": answer.flips.iter().map(|flip| json!({
            "what": flip.what,
            "now": flip.now,
            "side": flip.side,
            "at": flip.at,
            "to": flip.to,
            "ratio": flip.ratio,
        })).collect::<Vec<_>>(),
        "to_type": to_type,
    });
    format!("{value:#}\n")
}
