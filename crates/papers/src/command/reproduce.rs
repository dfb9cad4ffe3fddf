//! `ropewalk-papers reproduce list|run|notes|fit|hosts`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ropewalk_algorithms::Registries;
use ropewalk_command_line::{Failure, ProgressLine, interrupt, output};
use ropewalk_lab::table::Table;
use ropewalk_runner::checkpoint;
use ropewalk_settings::diagnostic::{Diagnostic, did_you_mean};
use serde_json::json;

use crate::reproduce::{self, Entry, Outcome, Paper, Progress, Request, Runs, Verdict, World};

mod fit;

/// The source papers' experiments: published and measured, and a verdict per claim
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ropewalk-papers reproduce list\n  ropewalk-papers reproduce run cfs-2019 \
                  --figure table2\n  ropewalk-papers reproduce run all\n  ropewalk-papers reproduce fit \
                  cfs-2019"
)]
pub(crate) struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// The papers, their figures and how many claims each makes
    #[command(after_help = "Example:\n  ropewalk-papers reproduce list")]
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Run a paper's experiments, or all papers'
    #[command(after_help = "Examples:
  ropewalk-papers reproduce run cfs-2019
  ropewalk-papers reproduce run cfs-2019 --figure table2 --runs 5
  ropewalk-papers reproduce run all
  ropewalk-papers reproduce run cfs-2019 --report docs/reproduction.md
  ropewalk-papers reproduce run cfs-2019 --report cfs-2019.html
  ropewalk-papers reproduce run blest-2016 --world emulated
  ropewalk-papers reproduce run all --world emulated --runs 50

Finished runs are kept in the folder of --state: call it again to go on after an interruption. Where \
--report names an overview \
with results of other papers in its folder (papers/NAME.json), these stay: so one paper is renewed without \
the others.")]
    Run(Run),
    /// Which of the settings that a paper leaves open explain its baseline's numbers
    #[command(after_help = "Examples:
  ropewalk-papers reproduce fit cfs-2019
  ropewalk-papers reproduce fit cfs-2019 --budget 100 --json
  ropewalk-papers reproduce fit cfs-2019 --scenario-to fitted.toml
  ropewalk-papers reproduce fit cfs-2019 --self-test 40 --save fitted.toml

The settings, their priors and what is fitted to what are in papers/NAME/open.toml. The rows of the \
scheduler that the paper is \
about aren't looked at. What was tried is kept in the folder of --state: call it again to go on after an \
interruption.")]
    Fit(fit::FitOptions),
    /// Fill the notes of notes.toml in again and draw the figures anew, from the results in an overview's
    /// folder: nothing is run
    #[command(after_help = "Examples:
  ropewalk-papers reproduce notes all --report docs/reproduction.md
  ropewalk-papers reproduce notes all --world emulated --report docs/reproduction-emulated.md

A note that its results contradict is an error. Figures over time stay as they are: their points aren't in \
the tables.")]
    Notes(Notes),
    /// The lines of each host profile, where each comes from, and the difference that it makes
    #[command(after_help = "Examples:
  ropewalk-papers reproduce hosts --runs 5
  ropewalk-papers reproduce hosts --runs 5 --report hosts.md")]
    Hosts {
        /// Seeded runs of each
        #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        runs: u32,
        /// As JSON
        #[arg(long)]
        json: bool,
        /// Where the page goes, as docs/hosts.md
        #[arg(long, value_name = "FILE")]
        report: Option<PathBuf>,
    },
}

// Not a doc comment: the help of `run` and `fit` would begin with it.
#[derive(Debug, clap::Args)]
struct Shared {
    /// Threads [default: one per core; in real time one, where each run takes up to two cores and late
    /// packets make it void]; the result doesn't depend on it
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// As JSON
    #[arg(long)]
    json: bool,
    /// Folder with the papers' files, instead of those compiled in
    #[arg(long, value_name = "FOLDER")]
    papers: Option<PathBuf>,
    /// Folder for finished runs, from which an interrupted command continues
    #[arg(long, value_name = "FOLDER", default_value = ".ropewalk")]
    state: PathBuf,
    /// Forget finished runs
    #[arg(long)]
    fresh: bool,
}

#[derive(Debug, clap::Args)]
struct Run {
    /// A paper's name, or `all`
    name: String,
    /// Where: the simulator, or real packets in real time with the Linux kernel as receiver (Linux, `ip`,
    /// /dev/net/tun), for the papers that measured on real machines
    #[arg(long, default_value_t = ropewalk_command_line::options::World::Simulated, value_enum)]
    world: ropewalk_command_line::options::World,
    /// One figure or table only (see `ropewalk-papers reproduce list --json`)
    #[arg(long, value_name = "ID")]
    figure: Option<String>,
    /// Runs of each cell [default: the paper's number]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    runs: Option<u32>,
    /// First seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the overview goes; a page, figures and a table of each paper go into a folder `papers` next to
    /// it, where other papers' results stay. With .html at its end: all of it as one self-contained page
    /// [default: docs/reproduction.md for `all`, else reproduction-NAME.md; in the emulated world with
    /// -emulated]
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    #[command(flatten)]
    shared: Shared,
}

#[derive(Debug, clap::Args)]
struct Notes {
    /// A paper's name, or `all` that have results
    name: String,
    /// Whose results
    #[arg(long, default_value_t = ropewalk_command_line::options::World::Simulated, value_enum)]
    world: ropewalk_command_line::options::World,
    /// The overview; each paper's results are in a folder next to it
    #[arg(long, value_name = "FILE")]
    report: PathBuf,
    /// Folder with the papers' files, instead of those compiled in
    #[arg(long, value_name = "FOLDER")]
    papers: Option<PathBuf>,
}

pub(crate) fn run(registries: &Registries, options: &Options) -> Result<(), Failure> {
    match &options.action {
        Action::List { json } => list(*json),
        Action::Run(run) => execute(registries, run),
        Action::Notes(notes) => reword(notes),
        Action::Fit(fit) => fit::search(registries, fit),
        Action::Hosts { runs, json, report } => hosts(registries, *runs, *json, report.as_deref()),
    }
}

fn hosts(registries: &Registries, runs: u32, json: bool, report: Option<&Path>) -> Result<(), Failure> {
    let found = reproduce::differences(runs, registries).map_err(Failure::other)?;
    if let Some(path) = report {
        output::write_file(path, &reproduce::hosts_page(&found, runs))?;
    }
    if json {
        let values = found.iter().map(|one| {
            json!({
                "profile": one.profile,
                "key": one.line.map(|line| line.key),
                "value": one.line.map(|line| line.value),
                "source": one.line.map(|line| line.source),
                "alone_percent": one.alone,
                "without_percent": one.without,
            })
        });
        return output::print(&format!("{:#}\n", json!(values.collect::<Vec<_>>())));
    }
    let mut table = Table::new(3, &["profile", "key", "value", "alone", "without it"]);
    for one in &found {
        let (key, value) = one.line.map_or(("all", "-"), |line| (line.key, line.value));
        let without = one.line.map_or("-".into(), |_| format!("{:+.1} %", one.without));
        table.row(vec![
            one.profile.into(),
            key.into(),
            value.into(),
            format!("{:+.1} %", one.alone),
            without,
        ]);
    }
    output::print(&table.render())
}

fn load(name: &str, folder: Option<&Path>) -> Result<Paper, Failure> {
    let loaded = match folder {
        Some(folder) if reproduce::NAMES.contains(&name) => Some(reproduce::load_from(folder, name)),
        _ => reproduce::load(name),
    };
    match loaded {
        Some(loaded) => loaded.map_err(Failure::other),
        None => Err(Diagnostic::new(format!("there is no paper `{name}`"))
            .help(did_you_mean(name, reproduce::NAMES.iter().copied()))
            .help(format!("allowed: all, {}", reproduce::NAMES.join(", ")))
            .into()),
    }
}

fn list(json: bool) -> Result<(), Failure> {
    let papers = reproduce::NAMES.iter().map(|name| load(name, None)).collect::<Result<Vec<_>, _>>()?;
    if json {
        let values: Vec<_> = papers
            .iter()
            .map(|paper| {
                json!({
                    "name": paper.name,
                    "title": paper.plan.title,
                    "source": paper.plan.source,
                    "runs": paper.plan.runs,
                    "figures": paper.plan.figures.iter().map(|figure| json!({
                        "id": figure.id, "title": figure.title,
                    })).collect::<Vec<_>>(),
                    "claims": paper.claims.len(),
                    "published_numbers": paper.published.len(),
                })
            })
            .collect();
        return output::print(&format!("{:#}\n", json!(values)));
    }
    let mut table = Table::new(2, &["name", "paper", "figures", "numbers", "claims"]);
    for paper in &papers {
        table.row(vec![
            paper.name.clone(),
            paper.plan.title.clone(),
            paper.plan.figures.len().to_string(),
            paper.published.len().to_string(),
            paper.claims.len().to_string(),
        ]);
    }
    output::print(&table.render())
}

/// A progress bar and a clock.
struct Watch {
    bar: ProgressLine,
    began: Instant,
}

impl Progress for Watch {
    fn total(&self, runs: usize, known: usize) {
        self.bar.resume(runs as u64, known as u64);
    }

    fn done(&self) {
        self.bar.inc(1);
    }

    fn clock(&self) -> Duration {
        self.began.elapsed()
    }
}

#[expect(clippy::disallowed_methods, reason = "the report says how long it took")]
fn now() -> Instant {
    Instant::now()
}

fn execute(registries: &Registries, run: &Run) -> Result<(), Failure> {
    let names: Vec<&str> =
        if run.name == "all" { reproduce::NAMES.to_vec() } else { vec![run.name.as_str()] };
    let world = world(run.world);
    let papers = names.into_iter().map(|name| load(name, run.shared.papers.as_deref()));
    let mut papers = papers.collect::<Result<Vec<_>, _>>()?;
    papers.retain(|paper| paper.runs_in(world));
    if papers.is_empty() {
        let message =
            format!("`{}` was simulated by its authors: it has nothing to repeat in real time", run.name);
        return Err(Diagnostic::new(message).help("leave `--world` out").into());
    }
    if let Some(figure) = &run.figure
        && !papers.iter().any(|paper| paper.figure(figure).is_some_and(|figure| figure.world == world))
    {
        let all = papers.iter().flat_map(|paper| &paper.plan.figures);
        let ids: Vec<&str> =
            all.filter(|figure| figure.world == world).map(|figure| figure.id.as_str()).collect();
        return Err(Diagnostic::new(format!(
            "`{}` has no figure `{figure}` in the {} world",
            run.name,
            run.world.name()
        ))
        .help(did_you_mean(figure, ids.iter().copied()))
        .help(format!("allowed: {}", ids.join(", ")))
        .into());
    }
    if let Some(report) = &run.report {
        refuse_other_world(report, world)?;
    }
    if world == World::Emulated {
        // Before the handler of Ctrl-C, which has a thread of its own.
        ropewalk_host::netns::become_root_of_own_user_namespace().map_err(Failure::other)?;
    }
    let stop = interrupt::flag();
    // In real time one run goes at a time unless more are asked for: they may be in each other's way.
    let jobs = match world {
        World::Emulated => usize::from(run.shared.jobs.unwrap_or(1)),
        World::Simulated => threads(run.shared.jobs),
    };
    let mut outcomes = Vec::new();
    for paper in &papers {
        let name = format!("{}{}", paper.name, suffix(world));
        let store: Runs = checkpoint::open(&run.shared.state, &name, run.shared.fresh)
            .map_err(|failed| Failure::Output { path: failed.path, reason: failed.reason })?;
        let bar = ProgressLine::new(0, &format!("runs of {}", paper.name));
        let watch = Watch { bar, began: now() };
        let request =
            Request { paper, world, figure: run.figure.as_deref(), runs: run.runs, seed: run.seed, jobs };
        let outcome =
            reproduce::execute(&request, registries, &store, &watch, &stop).map_err(Failure::other)?;
        watch.bar.clear();
        if outcome.interrupted {
            return Err(Failure::Interrupted(checkpoint::hint(&run.shared.state)));
        }
        outcomes.push(outcome);
    }
    let command = command(run);
    let report = run.report.clone().unwrap_or_else(|| default_report(&run.name, world));
    if report.extension().is_some_and(|extension| extension == "html") {
        let document = reproduce::document(&outcomes, &command).map_err(Failure::other)?;
        output::write_file(&report, &ropewalk_page::page(&document))?;
    } else {
        let kept = if run.report.is_some() { kept(&outcomes, &report)? } else { Vec::new() };
        write_pages(&outcomes, &kept, &command, &report)?;
    }
    if run.shared.json {
        return output::print(&format!("{:#}\n", reproduce::json(&outcomes, &command)));
    }
    output::print(&summary(&outcomes, &report))
}

/// Results of other papers beside an overview. Only whole runs are put beside them.
fn kept(outcomes: &[Outcome], report: &Path) -> Result<Vec<Entry>, Failure> {
    if !outcomes.iter().all(Outcome::whole) {
        return Ok(Vec::new());
    }
    let world = outcomes.first().map_or(World::Simulated, |outcome| outcome.world);
    let others =
        reproduce::NAMES.iter().filter(|name| outcomes.iter().all(|outcome| outcome.paper.name != **name));
    let mut found = Vec::new();
    for name in others {
        let path = report.parent().unwrap_or(Path::new("")).join(reproduce::entry_path(world, name));
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        found.push(Entry::parse(&text, &path.display().to_string()).map_err(Failure::other)?);
    }
    Ok(found)
}

/// Refuses to replace an overview of simulated results by one of results in real time, or the other way
/// round.
fn refuse_other_world(report: &Path, wanted: World) -> Result<(), Failure> {
    let there = std::fs::read_to_string(report).ok().and_then(|text| reproduce::world_of_overview(&text));
    if there.is_none_or(|there| there == wanted) {
        return Ok(());
    }
    let (what, help) = match wanted {
        World::Simulated => ("results in real time", "`--world emulated` renews it; or name another file"),
        World::Emulated => ("simulated results", "leave `--world` out to renew it; or name another file"),
    };
    Err(Diagnostic::new(format!("{} is the overview of {what}", report.display())).help(help).into())
}

/// Papers' words anew, and the overview with them.
fn reword(options: &Notes) -> Result<(), Failure> {
    let world = world(options.world);
    refuse_other_world(&options.report, world)?;
    let beside = |path: &str| options.report.parent().unwrap_or(Path::new("")).join(path);
    let read = |path: &Path| {
        std::fs::read_to_string(path).map_err(|error| Failure::Other(format!("{}: {error}", path.display())))
    };
    // A name that isn't a paper's is refused.
    let named =
        if options.name == "all" { None } else { Some(load(&options.name, options.papers.as_deref())?.name) };
    let mut entries = Vec::new();
    for name in reproduce::NAMES {
        let path = beside(&reproduce::entry_path(world, name));
        let wanted = named.as_deref() == Some(*name);
        if !path.exists() && !wanted {
            continue;
        }
        let entry = Entry::parse(&read(&path)?, &path.display().to_string()).map_err(Failure::other)?;
        if !wanted && named.is_some() {
            entries.push(entry);
            continue;
        }
        let paper = load(name, options.papers.as_deref())?;
        let (page, table) = (path.with_extension("md"), read(&path.with_extension("csv"))?);
        let (text, entry) =
            reproduce::reworded(&paper, world, (&read(&page)?, &table, &entry)).map_err(Failure::other)?;
        for (picture, svg) in reproduce::redrawn(&paper, world, &table).map_err(Failure::other)? {
            output::write_file(&beside(&picture), &svg)?;
        }
        output::write_file(&page, &text)?;
        output::write_file(&path, &entry.text())?;
        entries.push(entry);
    }
    output::write_file(&options.report, &reproduce::overview(&entries, world, None))
}

/// The overview, and beside it what it links to.
fn write_pages(outcomes: &[Outcome], kept: &[Entry], command: &str, report: &Path) -> Result<(), Failure> {
    let (page, files) = reproduce::pages(outcomes, kept, command).map_err(Failure::other)?;
    output::write_file(report, &page)?;
    for (path, text) in &files {
        let path = report.parent().unwrap_or(Path::new("")).join(path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)
                .map_err(|error| Failure::Other(format!("{}: {error}", folder.display())))?;
        }
        output::write_file(&path, text)?;
    }
    Ok(())
}

fn world(named: ropewalk_command_line::options::World) -> World {
    match named {
        ropewalk_command_line::options::World::Emulated => World::Emulated,
        ropewalk_command_line::options::World::Simulated => World::Simulated,
    }
}

/// What the files of a world have in their names.
fn suffix(world: World) -> &'static str {
    match world {
        World::Simulated => "",
        World::Emulated => "-emulated",
    }
}

fn default_report(name: &str, world: World) -> PathBuf {
    let suffix = suffix(world);
    if name != "all" {
        return PathBuf::from(format!("reproduction-{name}{suffix}.md"));
    }
    let (docs, file) = (Path::new("docs"), format!("reproduction{suffix}.md"));
    if docs.is_dir() { docs.join(file) } else { PathBuf::from(file) }
}

/// The call as someone would repeat it.
fn command(run: &Run) -> String {
    let mut text = format!("ropewalk-papers reproduce run {}", run.name);
    if run.world != ropewalk_command_line::options::World::Simulated {
        text += &format!(" --world {}", run.world.name());
    }
    if let Some(figure) = &run.figure {
        text += &format!(" --figure {figure}");
    }
    if let Some(runs) = run.runs {
        text += &format!(" --runs {runs}");
    }
    if run.seed != 1 {
        text += &format!(" --seed {}", run.seed);
    }
    text
}

fn summary(outcomes: &[Outcome], report: &Path) -> String {
    let mut text = String::new();
    for outcome in outcomes {
        text += &format!("{}: {}\n\n", outcome.paper.name, outcome.paper.plan.title);
        text += &reproduce::tables(outcome);
        let mut table = Table::new(2, &["verdict", "claim", "comparisons that agree"]);
        for judgement in &outcome.judgements {
            let of = match judgement.deciding() {
                Some(setting) if judgement.verdict != Verdict::Untestable => {
                    format!("{} of {}", setting.agree, setting.cells)
                }
                _ => "-".into(),
            };
            table.row(vec![judgement.verdict.words().into(), judgement.text.clone(), of]);
        }
        text += &format!("{}\n", table.render());
    }
    let runs: usize = outcomes.iter().map(|outcome| outcome.total).sum();
    let wall: f64 = outcomes.iter().map(|outcome| outcome.wall).sum();
    let computing: f64 = outcomes.iter().map(|outcome| outcome.computing).sum();
    text + &format!(
        "{runs} runs, {computing:.1} s of computing, {wall:.1} s on the clock. Report: {}\n",
        report.display()
    )
}

fn threads(jobs: Option<u16>) -> usize {
    jobs.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from)
}
