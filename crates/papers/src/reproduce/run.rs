//! Runs a paper's cells on all cores, taking from the store what was run before, and judges its claims.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use ropewalk_algorithms::Registries;
use ropewalk_lab::parallel::run_jobs;
use ropewalk_lab::real_time::{Ends, Tally};
use ropewalk_runner::checkpoint::Store;
use ropewalk_runner::emulated::{self, EmulatedError};
use serde::{Deserialize, Serialize};

use super::cells::{CellOutcome, Grid, Progress, Request};
use super::judge::{self, Judgement};
use super::measure::{Measures, measure};
use super::plan::{self, Cell, Variant, Work};
use super::series::{self, Series};
use super::{Kind, Paper, PaperError, World, reordering};

/// A finished run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Seconds that it took.
    took: f64,
    /// What it gave.
    measures: Measures,
}

/// Finished runs.
pub type Runs = Store<Run>;

/// What a paper's runs gave.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// The paper.
    pub paper: Paper,
    pub(super) grids: Vec<Grid>,
    /// Measures over time.
    pub series: Vec<Series>,
    /// Its claims.
    pub judgements: Vec<Judgement>,
    /// Where it ran.
    pub world: World,
    /// What the clocks of runs in real time were worth.
    pub tally: Option<Tally>,
    /// First seed.
    pub seed: u64,
    /// Runs of each cell, if not the paper's number.
    pub runs: Option<u32>,
    /// All runs.
    pub total: usize,
    /// Of which were known from before.
    pub known: usize,
    /// Computing time of all of them, seconds.
    pub computing: f64,
    /// Time that this took, seconds.
    pub wall: f64,
    /// One figure only.
    pub figure: Option<String>,
    /// Stopped before the end: there is no result.
    pub interrupted: bool,
}

impl Outcome {
    /// Whether it has all figures with the paper's number of runs.
    pub fn whole(&self) -> bool {
        self.figure.is_none() && self.runs.is_none()
    }
}

/// A run that isn't a cell's alone.
struct Job<'a> {
    work: &'a Work,
    number: u32,
    runs: u32,
    key: String,
}

/// Runs what is missing.
///
/// # Errors
/// What in the paper's files can't be run.
pub fn execute(
    request: &Request<'_>,
    registries: &Registries,
    store: &Runs,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<Outcome, PaperError> {
    let began = progress.clock();
    let paper = request.paper;
    let variants = plan::variants(paper);
    let cells = plan::cells(paper, &variants, request.world, request.figure, request.runs, registries)?;
    let (series_cells, cells): (Vec<Cell>, Vec<Cell>) =
        cells.into_iter().partition(|cell| paper.plan.figures[cell.figure].kind == Kind::Series);
    let (jobs, of_cell) = jobs(&cells, request.seed, store);
    let known: Vec<Option<Run>> = jobs.iter().map(|job| store.get(&job.key).cloned()).collect();
    let from_store = known.iter().flatten().count();
    progress.total(jobs.len() + series_cells.len(), from_store);
    let failed: Mutex<Option<EmulatedError>> = Mutex::new(None);
    let results = run_jobs(ropewalk_runner::threads(Some(request.jobs)), jobs.len(), stop, |index| {
        if let Some(kept) = &known[index] {
            return Some(kept.clone());
        }
        let from = progress.clock();
        let measures = match perform(&jobs[index], request) {
            Ok(measures) => measures,
            Err(error) => {
                if let Ok(mut failed) = failed.lock() {
                    *failed = Some(error);
                }
                return None;
            }
        };
        let took = progress.clock().saturating_sub(from).as_secs_f64();
        let run = Run { took, measures };
        store.put(&jobs[index].key, &run);
        progress.done();
        Some(run)
    });
    if let Ok(Some(error)) = failed.into_inner() {
        return Err(error.into());
    }
    let interrupted = results.iter().any(Option::is_none);
    let series = if interrupted {
        Vec::new()
    } else {
        series::record(paper, &variants, &series_cells, request, progress)
    };
    let grids = if interrupted { Vec::new() } else { grids(paper, &variants, &cells, &of_cell, &results) };
    let judgements = judge::judge(paper, &grids, &series, request.world, request.figure);
    Ok(Outcome {
        paper: paper.clone(),
        grids,
        series,
        judgements,
        world: request.world,
        tally: (request.world == World::Emulated).then(|| tally(results.iter().flatten())),
        seed: request.seed,
        runs: request.runs,
        total: jobs.len() + series_cells.len(),
        known: from_store,
        // A sum of nothing is -0.
        computing: results.iter().flatten().map(|kept| kept.took).sum::<f64>() + 0.0,
        wall: progress.clock().saturating_sub(began).as_secs_f64(),
        figure: request.figure.map(String::from),
        interrupted,
    })
}

/// The runs of all cells, each once; and by cell, which are its own.
fn jobs<'a>(cells: &'a [Cell], seed: u64, store: &Runs) -> (Vec<Job<'a>>, Vec<Vec<usize>>) {
    let (mut jobs, mut of_cell, mut places) = (Vec::new(), Vec::new(), HashMap::new());
    for cell in cells {
        let identity = match &cell.work {
            Work::Simulate(template) => template.identity.clone(),
            Work::Reordering(draw, slow) => format!("reordering {draw} {slow}"),
        };
        let own = (0..cell.runs).map(|number| {
            // A phase depends on the number of runs, where there are phases.
            let runs = match &cell.work {
                Work::Simulate(template) if !template.phase.is_zero() => cell.runs,
                _ => 0,
            };
            let key = store.key(&[&identity, &number.to_string(), &runs.to_string(), &seed.to_string()]);
            *places.entry(key.clone()).or_insert_with(|| {
                jobs.push(Job { work: &cell.work, number, runs: cell.runs, key });
                jobs.len() - 1
            })
        });
        of_cell.push(own.collect());
    }
    (jobs, of_cell)
}

fn perform(job: &Job<'_>, request: &Request<'_>) -> Result<Measures, EmulatedError> {
    let seed = request.seed;
    Ok(match (job.work, request.world) {
        (Work::Simulate(template), World::Simulated) => {
            let spec = template.spec(job.number, job.runs, seed);
            measure(&spec, &ropewalk_sim::run(&spec), template.skip)
        }
        (Work::Simulate(template), World::Emulated) => {
            let spec = template.spec(job.number, job.runs, seed);
            let ends = Ends { sender_kernel: false, receiver_kernel: true };
            let tally = Mutex::new(Tally::default());
            let result = emulated::run(&spec, ends, &tally)?;
            let mut measures = measure(&spec, &result, template.skip);
            let tally = tally.into_inner().unwrap_or_default();
            for (name, value) in REAL.iter().zip([
                tally.lateness as f64,
                f64::from(tally.void),
                f64::from(tally.repeated),
                f64::from(tally.fallbacks),
            ]) {
                measures.insert((*name).into(), value);
            }
            measures
        }
        (Work::Reordering(draw, slow), _) => {
            reordering::probability(*draw, *slow, seed.wrapping_add(u64::from(job.number)))
        }
    })
}

/// What is kept of a run in real time besides its measures.
const REAL: [&str; 4] = ["real:lateness", "real:void", "real:repeated", "real:fallbacks"];

fn tally<'a>(runs: impl Iterator<Item = &'a Run>) -> Tally {
    let mut found = Tally::default();
    for run in runs {
        let [lateness, void, repeated, fallbacks] =
            REAL.map(|name| run.measures.get(name).copied().unwrap_or(0.0) as u64);
        found.runs += 1;
        found.lateness = found.lateness.max(lateness);
        found.void += void as u32;
        found.repeated += repeated as u32;
        found.fallbacks += fallbacks as u32;
    }
    found
}

/// Puts the cells into their figures' rows and columns; cells come row by row.
fn grids(
    paper: &Paper,
    variants: &[Variant],
    cells: &[Cell],
    of_cell: &[Vec<usize>],
    results: &[Option<Run>],
) -> Vec<Grid> {
    let mut found: Vec<Grid> = Vec::new();
    for (cell, own) in cells.iter().zip(of_cell) {
        let variant = &variants[cell.variant].label;
        if (cell.row, cell.column) == (0, 0) {
            let rows = paper.plan.figures[cell.figure].rows.len();
            found.push(Grid { figure: cell.figure, variant: variant.clone(), cells: vec![Vec::new(); rows] });
        }
        let measures = || own.iter().filter_map(|index| results[*index].as_ref()).map(|kept| &kept.measures);
        let all = |name: &str| measures().filter_map(|all| all.get(name).copied()).collect::<Vec<f64>>();
        let (bound, window) = (all("bound"), all("window-bound"));
        let outcome = CellOutcome {
            metric: cell.metric.clone(),
            values: all(&cell.metric),
            bound: (cell.metric == "fct" && !bound.is_empty())
                .then(|| (ropewalk_lab::stats::mean(&bound), ropewalk_lab::stats::mean(&window))),
            incomplete: all("incomplete").iter().sum(),
        };
        if let Some(grid) = found.last_mut() {
            grid.cells[cell.row].push(outcome);
        }
    }
    found
}
