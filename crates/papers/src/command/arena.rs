//! `ropewalk-papers arena`.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use ropewalk_algorithms::{Registries, algorithm};
use ropewalk_command_line::settings::{Given, Tables};
use ropewalk_command_line::{Failure, ProgressLine, interrupt, output};
use ropewalk_engine::registry::Kernel;
use ropewalk_lab::ask;
use ropewalk_lab::opening::OpeningPath;
use ropewalk_lab::scenario::Experiment;
use ropewalk_lab::table::Table;
use ropewalk_runner::checkpoint;
use ropewalk_settings::diagnostic::Diagnostic;
use ropewalk_settings::given;
use serde_json::json;

use crate::arena::{self, Cell, Contest, Entrant, Execution, Half, Harm, Results, Score};

/// Whose rules, where the kernel of multipath-tcp.org has others than the paper.
const KERNELS_RULES: &str = "linux";

/// A setting that takes part, too.
const VARIANT: &str = "cfs(opportunistic=linux,penalise=linux)";

/// Every scheduler with its defaults, then as that kernel has it.
fn everyone(registries: &Registries) -> Vec<String> {
    let entries = || registries.schedulers.entries().iter();
    let all = entries().map(|entry| entry.name.to_string()).filter(|name| name != "single");
    let there = entries().filter(|entry| entry.in_kernel(Kernel::MultipathTcp).is_some());
    let apart = there.filter(|entry| entry.presets.iter().any(|preset| preset.name == KERNELS_RULES));
    let apart = apart.map(|entry| format!("{}:{KERNELS_RULES}", entry.name));
    all.chain(apart).chain([VARIANT.to_string()]).collect()
}

/// Runs of each scheduler in each cell.
const FULL: u32 = 20;
const QUICK: u32 = 4;

/// Let all schedulers compete over a grid of scenarios, or over drawn ones
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Each cell of the grid is a scenario. All schedulers run in it with the same seeds. The \
                  oracle of a cell is the best of the \
others there, chosen on other seeds than those that count. The grid has a half to tune on (dev) and one to \
judge by (test). \
Drawn cells (drawn) are networks and workloads from distributions that were written down before, \
crates/papers/src/arena/distributions.rs; judge by a seed that nobody tuned to. A scheduler of your own \
takes part by its name, as in examples/own_scheduler.

Examples:
  ropewalk-papers arena --quick
  ropewalk-papers arena --schedulers cfs,minrtt --quick --maps
  ropewalk-papers arena --save all.json --svg arena.svg
  ropewalk-papers arena --schedulers minrtt --against all.json --cells test
  ropewalk-papers arena --cells drawn --draw 300 --draw-seed 7 --runs 12
  ropewalk-papers arena --cells drawn --only video --files cells --json
  ropewalk-papers arena --cells drawn --paths 2 --schedulers policy:my.json,cfs
  ropewalk-papers arena --schedulers cfs,minrtt --quick --open-on remember --join late"
)]
pub(crate) struct Options {
    #[command(flatten)]
    given: Given<Contested>,
    /// The scheduler that is judged in detail [default: the first of --schedulers, or the best]
    #[arg(long, value_name = "NAME")]
    judge: Option<String>,
    /// Which cells
    #[arg(long, value_enum, default_value = "grid")]
    cells: Which,
    /// Only cells whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Only cells with so many paths, for a policy that was learned for them
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(2..=8))]
    paths: Option<u8>,
    /// How many cells are drawn
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    draw: u32,
    /// Seed of the draw
    #[arg(long, default_value_t = 1)]
    draw_seed: u64,
    /// Runs of each scheduler in each cell [default: 20, or 4 with --quick]
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=1000))]
    runs: Option<u32>,
    /// 4 runs of each scheduler
    #[arg(long)]
    quick: bool,
    /// Saved results: schedulers that don't run are taken from there
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Save the results
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Print the judged scheduler's heat maps
    #[arg(long)]
    maps: bool,
    /// Write them as a picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print every cell
    #[arg(long)]
    each: bool,
    /// Write the drawn cells' scenario files there
    #[arg(long, value_name = "FOLDER")]
    files: Option<PathBuf>,
    /// Threads [default: one per core]; the result doesn't depend on it
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Folder of finished runs, so that an interrupted command can continue
    #[arg(long, value_name = "FOLDER", default_value = ".ropewalk")]
    state: PathBuf,
    /// Delete finished runs first
    #[arg(long)]
    fresh: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Which cells take part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Which {
    /// Both halves of the grid
    Grid,
    /// The half to tune on
    Dev,
    /// The half to judge by
    Test,
    /// Networks and workloads drawn by a seed
    Drawn,
}

fn cells(registries: &Registries, options: &Options) -> Result<Vec<Cell>, Failure> {
    let mut cells = match options.cells {
        Which::Drawn => arena::draw(options.draw as usize, options.draw_seed, registries)?,
        _ => arena::grid(),
    };
    match options.cells {
        Which::Dev => cells.retain(|cell| cell.half == Half::Dev),
        Which::Test => cells.retain(|cell| cell.half == Half::Test),
        Which::Grid | Which::Drawn => {}
    }
    if let Some(paths) = options.paths {
        cells.retain(|cell| cell.scenario.paths.len() == usize::from(paths));
        if cells.is_empty() {
            return Err(Diagnostic::new(format!("no cell has {paths} paths")).into());
        }
    }
    if let Some(text) = &options.only {
        cells.retain(|cell| cell.id.contains(text.as_str()));
        if cells.is_empty() {
            let families: Vec<&str> = match options.cells {
                Which::Drawn => arena::WORKLOADS.iter().map(|kind| kind.name).collect(),
                _ => arena::FAMILIES.iter().map(|family| family.name).collect(),
            };
            let error = Diagnostic::new(format!("no cell's name contains `{text}`"))
                .help(format!("the families: {}", families.join(", ")));
            return Err(error.into());
        }
    }
    Ok(cells)
}

fn saved(path: &PathBuf) -> Result<Results, Failure> {
    let wrong = |reason: String| Diagnostic::new(format!("can't use {}: {reason}", path.display()));
    let bytes = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    Ok(serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?)
}

/// What the arena is asked for, beside its cells.
#[derive(Clone, Debug)]
struct Contested;

impl Tables for Contested {
    const TABLES: &'static given::Tables = ask::ARENA;
}

fn contest(registries: &Registries, options: &Options) -> Result<Contest, Failure> {
    let given = &options.given;
    let names = ask::schedulers(given)?.unwrap_or_else(|| everyone(registries));
    let cells = cells(registries, options)?;
    let mut entrants: Vec<Entrant> = Vec::new();
    for name in names {
        let scheduler = ropewalk_algorithms::scheduler(registries, "--schedulers", &name, 2)?;
        if entrants.iter().all(|known| known.label != scheduler.text) {
            entrants.push(Entrant { label: scheduler.text.clone(), scheduler });
        }
    }
    let takes_part = |name: &String| entrants.iter().any(|entrant| entrant.label == *name);
    if options.against.is_none() {
        if entrants.len() == 1 {
            let why = "an entrant is judged against others: name several schedulers, or give --against";
            return Err(Diagnostic::new(why).into());
        }
        if let Some(name) = options.judge.as_ref().filter(|name| !takes_part(name)) {
            return Err(
                Diagnostic::new(format!("--judge: `{name}` isn't among the schedulers that run")).into()
            );
        }
    }
    let runs = options.runs.unwrap_or(if options.quick { QUICK } else { FULL });
    let tcp = options.against.is_none();
    let single = algorithm(&registries.schedulers, "--schedulers", "single")?;
    Ok(Contest {
        cells,
        entrants,
        tcp: tcp.then(|| single.clone()),
        congestion: ask::congestion(given, &Experiment::default(), registries)?,
        runs,
        seed: ask::seed(given)?,
        opening: OpeningPath::read(&ask::open_on(given)),
        earlier: [single, algorithm(&registries.schedulers, "--schedulers", "minrtt")?],
        early_join: ask::early_join(given)?.unwrap_or_default(),
    })
}

pub(crate) fn run(registries: &Registries, options: &Options) -> Result<(), Failure> {
    let contest = contest(registries, options)?;
    if let Some(folder) = &options.files {
        write_files(folder, &contest.cells)?;
    }
    let others = options.against.as_ref().map(saved).transpose()?;
    let store = checkpoint::open(&options.state, "arena", options.fresh)
        .map_err(|failed| Failure::Output { path: failed.path, reason: failed.reason })?;
    let stop = interrupt::flag();
    let bar = ProgressLine::new(arena::jobs(&contest) as u64, "runs");
    let jobs =
        options.jobs.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let done = || bar.inc(1);
    let results = arena::run(&contest, &store, Execution { jobs, done: &done, stop: &stop });
    bar.clear();
    let Some(mut results) = results.filter(|_| !stop.load(Ordering::Relaxed)) else {
        return Err(Failure::Interrupted(checkpoint::hint(&options.state)));
    };
    if let Some(others) = &others {
        results.merge(others).map_err(|error| Diagnostic::new(error.to_string()))?;
    }
    if let Some(path) = &options.save {
        let text = serde_json::to_string(&results).map_err(Failure::other)?;
        output::write_file(path, &text)?;
    }
    let mut scores: Vec<Score> =
        results.labels().iter().filter_map(|label| arena::score(&results, label, None)).collect();
    scores.sort_by(|a, b| a.oracle.total_cmp(&b.oracle));
    let named = options.judge.clone().or_else(|| {
        let first = contest.entrants.first().filter(|_| !options.given.texts("schedulers").is_empty());
        first.map(|entrant| entrant.label.clone())
    });
    let judged = match &named {
        Some(name) => scores.iter().find(|score| score.label == *name),
        None => scores.first(),
    };
    let Some(judged) = judged else {
        let why = "--judge: no such scheduler ran, and --against has none of its name";
        return Err(Diagnostic::new(why).into());
    };
    if let Some(path) = &options.svg {
        let title = format!("{} against the oracle of all others, percent of time", judged.label);
        output::write_file(path, &arena::svg(&title, &arena::maps(&results, judged)))?;
    }
    let shown = if options.json {
        as_json(&results, &scores, judged)
    } else {
        text(options, &results, &scores, judged)
    };
    output::print(&shown)
}

/// The scenario files of drawn cells.
fn write_files(folder: &Path, cells: &[Cell]) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::Output { path: folder.into(), reason: error.to_string() };
    std::fs::create_dir_all(folder).map_err(failed)?;
    for cell in cells {
        if let Some(text) = &cell.text {
            output::write_file(&folder.join(format!("{}.toml", cell.id)), text)?;
        }
    }
    Ok(())
}

/// A ratio as regret: `+3.1 %`.
fn regret(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0)
}

fn share(value: f64) -> String {
    format!("{:.1} %", value * 100.0)
}

fn text(options: &Options, results: &Results, scores: &[Score], judged: &Score) -> String {
    let cells = results.cells.len();
    let mut text = format!(
        "{cells} cells, {} runs of each scheduler, {}; the oracle is the best of the others in each cell\n\n",
        results.runs, results.congestion
    );
    let head = ["scheduler", "mean", "within 5 %", "worst cell", "worst p95", "repeated", "at most", ""];
    let mut table = Table::new(1, &head);
    for score in scores {
        table.row(vec![
            score.label.clone(),
            regret(score.oracle),
            share(score.within),
            regret(score.worst.0),
            regret(score.worst_p95.0),
            share(score.repeated),
            share(score.worst_repeated.0),
            score.worst.1.clone(),
        ]);
    }
    text += &table.render();
    text += &format!("\n{}\n", judged.label);
    for half in [Half::Dev, Half::Test, Half::Drawn] {
        if let Some(score) = arena::score(results, &judged.label, Some(half)) {
            text += &detail(half.name(), &score);
        }
    }
    if options.cells == Which::Drawn {
        text += &drawn(options, results, judged);
    }
    if options.each {
        let mut table = Table::new(
            2,
            &["cell", "oracle", "against it", "p95", "tcp opened", "tcp best", "pool", "repeated"],
        );
        let maybe = |ratio: Option<f64>| ratio.map_or_else(|| "-".into(), regret);
        let mut cells: Vec<_> = judged.cells.iter().collect();
        cells.sort_by(|a, b| b.oracle.total_cmp(&a.oracle));
        for cell in cells {
            table.row(vec![
                cell.id.clone(),
                cell.oracle_label.clone(),
                regret(cell.oracle),
                regret(cell.p95),
                maybe(cell.opened),
                maybe(cell.best_path),
                maybe(cell.pool),
                share(cell.repeated),
            ]);
        }
        text += &format!("\n{}", table.render());
    }
    if options.maps {
        for map in arena::maps(results, judged) {
            text += &format!("\n{}", map.render());
        }
    }
    text
}

/// An interval of ratios as regrets.
fn between(interval: Option<(f64, f64)>) -> String {
    interval.map_or_else(String::new, |(from, to)| format!("{} to {}", regret(from), regret(to)))
}

/// Worst cells that are printed.
const WORST: usize = 6;

/// By workload, and the worst cells with the command that repeats each.
fn drawn(options: &Options, results: &Results, judged: &Score) -> String {
    let head = ["workload", "cells", "mean", "95 % interval", "within 5 %", "worst cell", ""];
    let mut table = Table::new(1, &head);
    for kind in judged.kinds() {
        table.row(vec![
            kind.name,
            kind.cells.to_string(),
            regret(kind.oracle),
            between(kind.interval),
            share(kind.within),
            regret(kind.worst.0),
            kind.worst.1,
        ]);
    }
    let mut text = format!("\n{}\nThe worst cells, and what repeats them:\n", table.render());
    let mut cells: Vec<_> = judged.cells.iter().collect();
    cells.sort_by(|a, b| b.oracle.total_cmp(&a.oracle));
    let folder = options.files.as_deref().unwrap_or_else(|| Path::new("FOLDER"));
    let join = if results.early_join { " --join early" } else { "" };
    for cell in cells.iter().take(WORST) {
        let file = folder.join(format!("{}.toml", cell.id));
        text += &format!(
            "  {} against {}:\n    ropewalk compare --scenario {} --schedulers '{},{}' --congestion {} \
             --runs {}{join}\n",
            regret(cell.oracle),
            cell.oracle_label,
            file.display(),
            judged.label,
            cell.oracle_label,
            results.congestion,
            results.runs,
        );
    }
    if options.files.is_none() {
        text += "  (--files FOLDER writes their scenario files)\n";
    }
    text
}

fn detail(half: &str, score: &Score) -> String {
    let mut lines = vec![format!(
        "geometric mean against the oracle {:.3}{}",
        score.oracle,
        score.interval.map_or_else(String::new, |(from, to)| format!(" (95 %: {from:.3} to {to:.3})"))
    )];
    if let Some((other, ratio)) = &score.fixed {
        lines.push(format!("against {other}, the best of the others on the whole, {ratio:.3}"));
    }
    lines.push(format!("{} of {} cells within 5 % of the oracle", share(score.within), score.cells.len()));
    lines.push(format!("worst cell {} ({})", regret(score.worst.0), score.worst.1));
    lines.push(format!(
        "worst cell by 95th percentile {} ({})",
        regret(score.worst_p95.0),
        score.worst_p95.1
    ));
    let harm = |what: &str, harm: &Harm| {
        format!(
            "{} cells slower than plain TCP on the {what} path by more than {:.0} %; worst {} ({})",
            harm.cells,
            (arena::HARMED - 1.0) * 100.0,
            regret(harm.worst.0),
            harm.worst.1
        )
    };
    lines.extend(score.opened.as_ref().map(|found| harm("opened", found)));
    lines.extend(score.best_path.as_ref().map(|found| harm("best", found)));
    lines.extend(score.pool.map(|pool| format!("against the pool of paths {pool:.3}")));
    lines.extend(score.late.map(|late| format!("what joins cost that pool {}", regret(late))));
    lines.extend(score.frames.as_ref().map(|frames| {
        format!(
            "frames: mean delay {:.3}, p99 {:.3} of the oracle's, late {} against {}; neither worse in {} \
             of {} cells",
            frames.oracle,
            frames.p99,
            share(frames.late.0),
            share(frames.late.1),
            frames.no_worse,
            frames.cells
        )
    }));
    lines.push(format!(
        "sent more than once {}, at most {} ({})",
        share(score.repeated),
        share(score.worst_repeated.0),
        score.worst_repeated.1
    ));
    lines.iter().map(|line| format!("  {half}: {line}\n")).collect()
}

fn score_json(score: &Score) -> serde_json::Value {
    let harm = |harm: &Option<Harm>| {
        harm.as_ref().map(
            |harm| json!({ "cells_slower": harm.cells, "worst": harm.worst.0, "worst_cell": harm.worst.1 }),
        )
    };
    json!({
        "scheduler": score.label,
        "against_oracle": score.oracle,
        "against_oracle_95": score.interval,
        "best_fixed": score.fixed.as_ref().map(|(other, _)| other),
        "against_best_fixed": score.fixed.as_ref().map(|(_, ratio)| ratio),
        "within_5_percent": score.within,
        "worst": score.worst.0,
        "worst_cell": score.worst.1,
        "worst_p95": score.worst_p95.0,
        "worst_p95_cell": score.worst_p95.1,
        "tcp_opened": harm(&score.opened),
        "tcp_best": harm(&score.best_path),
        "against_pool": score.pool,
        "cost_of_joins": score.late,
        "repeated": score.repeated,
        "repeated_worst": score.worst_repeated.0,
        "repeated_worst_cell": score.worst_repeated.1,
        "frames": score.frames.as_ref().map(|frames| json!({
            "cells": frames.cells,
            "no_worse": frames.no_worse,
            "against_oracle": frames.oracle,
            "p99_against_oracle": frames.p99,
            "late_share": frames.late.0,
            "late_share_oracle": frames.late.1,
        })),
        "kinds": score.kinds().iter().map(|kind| json!({
            "name": kind.name,
            "cells": kind.cells,
            "against_oracle": kind.oracle,
            "against_oracle_95": kind.interval,
            "within_5_percent": kind.within,
            "worst": kind.worst.0,
            "worst_cell": kind.worst.1,
        })).collect::<Vec<_>>(),
    })
}

fn as_json(results: &Results, scores: &[Score], judged: &Score) -> String {
    let halves = [Half::Dev, Half::Test, Half::Drawn].into_iter().filter_map(|half| {
        let score = arena::score(results, &judged.label, Some(half))?;
        Some((half.name().to_string(), score_json(&score)))
    });
    let cells = judged.cells.iter().map(|cell| {
        json!({
            "cell": cell.id,
            "oracle": cell.oracle_label,
            "against_oracle": cell.oracle,
            "p95_against_oracle": cell.p95,
            "against_tcp_opened": cell.opened,
            "against_tcp_best": cell.best_path,
            "against_pool": cell.pool,
            "repeated": cell.repeated,
            "late_share": cell.late.map(|(own, _)| own),
            "late_share_oracle": cell.late.map(|(_, least)| least),
            "p99_against_oracle": cell.p99,
        })
    });
    let value = json!({
        "congestion": results.congestion,
        "runs": results.runs,
        "seed": results.seed,
        "schedulers": scores.iter().map(score_json).collect::<Vec<_>>(),
        "judged": judged.label,
        "halves": halves.collect::<serde_json::Map<_, _>>(),
        "cells": cells.collect::<Vec<_>>(),
    });
    format!("{value:#}\n")
}
