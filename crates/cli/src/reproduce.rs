//! `ropewalk reproduce list|run`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use ropewalk_lab::Registries;
use ropewalk_lab::diagnostic::{Diagnostic, did_you_mean};
use ropewalk_lab::reproduce::{self, Outcome, Paper, Progress, Request, Runs, Verdict, World};
use ropewalk_lab::table::Table;
use serde_json::json;

use crate::{Failure, checkpoint, output};

/// The source papers' experiments: published beside measured, and a verdict per claim
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ropewalk reproduce list\n  ropewalk reproduce run cfs-2019 --figure table2\n  ropewalk reproduce run all"
)]
pub(crate) struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// The papers, their figures and how many claims each makes
    #[command(after_help = "Example:\n  ropewalk reproduce list")]
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Run a paper's experiments, or all papers'
    #[command(after_help = "Examples:
  ropewalk reproduce run cfs-2019
  ropewalk reproduce run cfs-2019 --figure table2 --runs 5
  ropewalk reproduce run all
  ropewalk reproduce run blest-2016 --world emulated
  ropewalk reproduce run all --world emulated --runs 50

Finished runs are kept in the folder of --state: call it again to go on after an interruption.")]
    Run(Run),
}

#[derive(Debug, clap::Args)]
struct Run {
    /// A paper's name, or `all`
    name: String,
    /// Where: the simulator, or real packets in real time with the Linux kernel as receiver (Linux, `ip`, /dev/net/tun),
    /// for the papers that measured on real machines
    #[arg(long, default_value_t = crate::options::World::Simulated, value_enum)]
    world: crate::options::World,
    /// One figure or table only (see `ropewalk reproduce list --json`)
    #[arg(long, value_name = "ID")]
    figure: Option<String>,
    /// Runs of each cell [default: the paper's number]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    runs: Option<u32>,
    /// First seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads [default: one per core]; the result doesn't depend on it
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// As JSON
    #[arg(long)]
    json: bool,
    /// Where the report goes [default: docs/reproduction.md for `all`, else reproduction-NAME.md; in the emulated world
    /// with -emulated]
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Folder for finished runs
    #[arg(long, value_name = "FOLDER", default_value = ".ropewalk")]
    state: PathBuf,
    /// Forget finished runs
    #[arg(long)]
    fresh: bool,
}

pub(crate) fn run(registries: &Registries, options: &Options) -> Result<(), Failure> {
    match &options.action {
        Action::List { json } => list(*json),
        Action::Run(run) => execute(registries, run),
    }
}

fn load(name: &str) -> Result<Paper, Failure> {
    match reproduce::load(name) {
        Some(loaded) => loaded.map_err(Failure::Other),
        None => Err(Diagnostic::new(format!("there is no paper `{name}`"))
            .help(did_you_mean(name, reproduce::NAMES.iter().copied()))
            .help(format!("allowed: all, {}", reproduce::NAMES.join(", ")))
            .into()),
    }
}

fn list(json: bool) -> Result<(), Failure> {
    let papers = reproduce::NAMES.iter().map(|name| load(name)).collect::<Result<Vec<_>, _>>()?;
    if json {
        let values: Vec<_> = papers
            .iter()
            .map(|paper| {
                json!({
                    "name": paper.name,
                    "title": paper.plan.title,
                    "source": paper.plan.source,
                    "runs": paper.plan.runs,
                    "figures": paper.plan.figures.iter().map(|figure| json!({ "id": figure.id, "title": figure.title })).collect::<Vec<_>>(),
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
    bar: ProgressBar,
    began: Instant,
}

impl Progress for Watch {
    fn total(&self, runs: usize, known: usize) {
        self.bar.set_length(runs as u64);
        self.bar.set_position(known as u64);
        self.bar.reset_eta();
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
    let world = match run.world {
        crate::options::World::Emulated => World::Emulated,
        crate::options::World::Simulated => World::Simulated,
    };
    let mut papers = names.into_iter().map(load).collect::<Result<Vec<_>, _>>()?;
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
    if world == World::Emulated {
        // Before the handler of Ctrl-C, which has a thread of its own.
        ropewalk_host::netns::become_root_of_own_user_namespace()
            .map_err(|error| Failure::Other(error.to_string()))?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let heard = stop.clone();
    // If another handler is there already, Ctrl-C simply ends the program: finished runs are kept.
    let _ = ctrlc::set_handler(move || heard.store(true, Ordering::Relaxed));
    let jobs =
        run.jobs.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let mut outcomes = Vec::new();
    for paper in &papers {
        let name = format!("{}{}", paper.name, suffix(world));
        let store: Runs = checkpoint::open(&run.state, &name, run.fresh)?;
        let bar = ProgressBar::new(0);
        let style = format!("{} {{bar:40}} {{pos}}/{{len}} runs, {{eta}} left", paper.name);
        if let Ok(style) = ProgressStyle::with_template(&style) {
            bar.set_style(style);
        }
        let watch = Watch { bar, began: now() };
        let request =
            Request { paper, world, figure: run.figure.as_deref(), runs: run.runs, seed: run.seed, jobs };
        let outcome =
            reproduce::execute(&request, registries, &store, &watch, &stop).map_err(Failure::Other)?;
        watch.bar.finish_and_clear();
        if outcome.interrupted {
            return Err(Failure::Interrupted(checkpoint::hint(&run.state)));
        }
        outcomes.push(outcome);
    }
    let command = command(run);
    let page = reproduce::markdown(&outcomes, &command);
    let report = run.report.clone().unwrap_or_else(|| default_report(&run.name, world));
    output::write_file(&report, &page)?;
    if run.json {
        return output::print(&format!("{:#}\n", reproduce::json(&outcomes, &command)));
    }
    output::print(&summary(&outcomes, &report))
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
    let mut text = format!("ropewalk reproduce run {}", run.name);
    if run.world != crate::options::World::Simulated {
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
        let mut table = Table::new(2, &["verdict", "claim", "settings"]);
        for judgement in &outcome.judgements {
            let Some(main) = judgement.settings.first() else { continue };
            let holding =
                judgement.settings.iter().filter(|setting| setting.verdict == Verdict::Holds).count();
            let of = format!("{holding} of {}", judgement.settings.len());
            table.row(vec![main.verdict.words().into(), judgement.text.clone(), of]);
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
