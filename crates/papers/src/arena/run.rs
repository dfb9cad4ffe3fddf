//! Runs the arena on all cores.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ropewalk_engine::Span;
use ropewalk_engine::congestion::CongestionControl;
use ropewalk_engine::registry::Spec;
use ropewalk_engine::scheduler::Scheduler;
use ropewalk_lab::opening::OpeningPath;
use ropewalk_lab::parallel::run_jobs;
use ropewalk_lab::stats::{quantile, sorted};
use ropewalk_lab::{compare, objective, watch};
use ropewalk_runner::checkpoint::{self, Store};
use ropewalk_sim::{Mode, PathSpec, Recording, RunResult, RunSpec, Scenario, Workload};
use serde::{Deserialize, Serialize};

use super::{Cell, CellResult, Results, Series};

/// How often deliveries are sampled for the pool of paths.
const SAMPLE: Span = Span::from_millis(2);

/// One that takes part.
#[derive(Clone, Debug)]
pub struct Entrant {
    /// Its label.
    pub label: String,
    /// Its scheduler.
    pub scheduler: Spec<dyn Scheduler>,
}

/// What is run.
#[derive(Clone, Debug)]
pub struct Contest {
    /// Where.
    pub cells: Vec<Cell>,
    /// Who.
    pub entrants: Vec<Entrant>,
    /// The scheduler of plain TCP; none: without TCP and the pool.
    pub tcp: Option<Spec<dyn Scheduler>>,
    /// Congestion control of all.
    pub congestion: Spec<dyn CongestionControl>,
    /// Runs of each entrant in each cell.
    pub runs: u32,
    /// The first run's seed; the next have the next numbers.
    pub seed: u64,
    /// The path on which connections open.
    pub opening: OpeningPath,
    /// The schedulers of plain TCP and of an earlier connection, from which that path is found out.
    pub earlier: [Spec<dyn Scheduler>; 2],
    /// Joins begin with the third ACK, not after the first DSS.
    pub early_join: bool,
}

/// On how many threads runs are made, who hears of each, and what ends them early.
#[derive(Clone, Copy)]
pub struct Execution<'a> {
    /// Threads.
    pub jobs: usize,
    /// Hears of each finished run.
    pub done: &'a (dyn Fn() + Sync),
    /// Ends it early.
    pub stop: &'a AtomicBool,
}

impl std::fmt::Debug for Execution<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Execution").field("jobs", &self.jobs).finish_non_exhaustive()
    }
}

/// One finished run: an entrant's, or all of plain TCP's with one seed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Seconds; of plain TCP one for each path.
    seconds: Vec<f64>,
    /// The share of bytes sent more than once.
    repeated: f64,
    /// Of frames: the share that was late, and the 99th percentile of their delays in seconds.
    #[serde(default)]
    frames: Option<(f64, f64)>,
    /// The pool's seconds.
    pool: Option<f64>,
    /// Those of a pool whose paths begin at once.
    at_once: Option<f64>,
}

/// How many runs a contest makes; plain TCP on all paths counts as one.
pub fn jobs(contest: &Contest) -> usize {
    contest.cells.len() * contest.runs as usize * contest.lanes()
}

impl Contest {
    fn lanes(&self) -> usize {
        self.entrants.len() + usize::from(self.tcp.is_some())
    }

    fn spec(
        &self,
        scenario: &Arc<Scenario>,
        scheduler: &Spec<dyn Scheduler>,
        mode: Mode,
        run: u32,
    ) -> RunSpec {
        RunSpec {
            scenario: Arc::clone(scenario),
            scheduler: scheduler.clone(),
            congestion: self.congestion.clone(),
            mode,
            seed: self.seed.wrapping_add(u64::from(run)),
            start_phase: compare::start_phase(scenario, run, self.runs),
            recording: Recording::default(),
        }
    }

    /// Plain TCP on each path, and the pool.
    fn controls(&self, scenario: &Arc<Scenario>, tcp: &Spec<dyn Scheduler>, run: u32) -> Measured {
        let bytes = match scenario.workload {
            Workload::Flow { bytes } => Some(bytes),
            _ => None,
        };
        let mut seconds = Vec::new();
        let mut deliveries = Vec::new();
        for path in 0..scenario.paths.len() {
            let mut spec = self.spec(scenario, tcp, Mode::SinglePath(path), run);
            if bytes.is_some() {
                spec.recording.samples_every = Some(SAMPLE);
            }
            let result = watch::run(&spec);
            seconds.push(value(scenario, &result));
            deliveries.push(delivered(&result));
        }
        let pooled = |joins: &[Span]| bytes.map(|bytes| pool(scenario.limit, &deliveries, joins, bytes));
        let (pool, at_once) = (pooled(&joins(scenario)), pooled(&vec![Span::ZERO; deliveries.len()]));
        Measured { seconds, repeated: 0.0, frames: None, pool, at_once }
    }
}

/// The objective in seconds; the limit of a run that isn't complete.
fn value(scenario: &Scenario, result: &RunResult) -> f64 {
    objective::of(&scenario.workload, result).unwrap_or(scenario.limit.as_secs_f64())
}

/// The share of late frames, and the 99th percentile of all frames' delays; one that never arrives takes as
/// long as the limit.
fn frames(scenario: &Scenario, result: &RunResult) -> Option<(f64, f64)> {
    let late = objective::late_frames(&scenario.workload, result)?;
    let mut delays: Vec<f64> = result.message_delays.iter().map(|delay| delay.as_secs_f64()).collect();
    delays.resize(scenario.workload.frames()? as usize, scenario.limit.as_secs_f64());
    Some((late, quantile(&sorted(&delays), 0.99)))
}

/// Times since the start with the bytes delivered by then.
fn delivered(result: &RunResult) -> Vec<(Span, u64)> {
    let mut curve: Vec<(Span, u64)> =
        result.samples.iter().map(|sample| (sample.at.since_origin(), sample.delivered)).collect();
    curve.push((result.duration, result.delivered_bytes));
    curve
}

/// How much later than the first path each path begins in the pool of paths, such that a download over it
/// begins as early as over a join. The SYN of a join leaves two round trips of the first path after its SYN
/// (RFC 8684 3.1: a DSS has to come first); an early one leaves one round trip after it, and is completed
/// when that DSS has come.
fn joins(scenario: &Scenario) -> Vec<Span> {
    let round_trip = |path: &PathSpec| path.up.min_delay() + path.down.min_delay();
    let first = round_trip(&scenario.paths[0]);
    let begins = |path: &PathSpec| {
        if scenario.client.early_join {
            first.max((2 * first).saturating_sub(round_trip(path)))
        } else {
            2 * first
        }
    };
    let later = scenario.paths.iter().skip(1).map(begins);
    std::iter::once(Span::ZERO).chain(later).collect()
}

/// When the deliveries of all paths add up to `bytes`, each path begun as much later as `joins` says.
fn pool(limit: Span, deliveries: &[Vec<(Span, u64)>], joins: &[Span], bytes: u64) -> f64 {
    let by = |time: Span| -> f64 {
        let parts = deliveries.iter().zip(joins).map(|(curve, join)| {
            let time = time.saturating_sub(*join);
            let next = curve.partition_point(|(at, _)| *at <= time);
            match (next.checked_sub(1).map(|before| curve[before]), curve.get(next)) {
                (None, _) => 0.0,
                (Some((_, done)), None) => done as f64,
                (Some((from, done)), Some((to, more))) => {
                    let part = (time - from).as_nanos() as f64 / (*to - from).as_nanos().max(1) as f64;
                    done as f64 + part * more.saturating_sub(done) as f64
                }
            }
        });
        parts.sum()
    };
    let (mut low, mut high) = (Span::ZERO, limit);
    if by(high) < bytes as f64 {
        return limit.as_secs_f64();
    }
    while high - low > Span::from_micros(1) {
        let middle = low.midpoint(high);
        if by(middle) < bytes as f64 { low = middle } else { high = middle }
    }
    high.as_secs_f64()
}

/// The cell's scenario, with joins as they are asked for, opened on the path that was asked for.
fn opened(contest: &Contest, cell: &Cell) -> Arc<Scenario> {
    let mut scenario = Arc::clone(&cell.scenario);
    if contest.early_join {
        let copy = Arc::make_mut(&mut scenario);
        (copy.client.early_join, copy.server.early_join) = (true, true);
    }
    // Not one of the seeds that are judged.
    let seed = contest.seed.wrapping_sub(1);
    let [tcp, multipath] = &contest.earlier;
    match contest.opening.apply(&scenario, [tcp, multipath], &contest.congestion, seed) {
        Ok(opened) if contest.opening != OpeningPath::First => Arc::new(opened),
        // A name that only other cells have.
        _ => scenario,
    }
}

/// Runs the contest; `None` if it was stopped. Runs that `store` has aren't repeated.
pub fn run(contest: &Contest, store: &Store<Measured>, execution: Execution<'_>) -> Option<Results> {
    let (lanes, runs) = (contest.lanes(), contest.runs as usize);
    let total = jobs(contest);
    let scenarios: Vec<Arc<Scenario>> = contest.cells.iter().map(|cell| opened(contest, cell)).collect();
    let digests: Vec<String> =
        scenarios.iter().map(|scenario| checkpoint::digest(format!("{scenario:?}").as_bytes())).collect();
    let one = |index: usize| {
        let (run, rest) = ((index % runs) as u32, index / runs);
        let (lane, cell) = (rest % lanes, rest / lanes);
        let scenario = &scenarios[cell];
        let entrant = contest.entrants.get(lane);
        let label = entrant.map_or("tcp", |entrant| entrant.scheduler.text.as_str());
        let seed = contest.seed.wrapping_add(u64::from(run));
        let numbers = format!("{run} of {runs}, {seed}");
        let key = store.key(&[&digests[cell], label, &contest.congestion.text, &numbers]);
        if let Some(known) = store.get(&key) {
            return known.clone();
        }
        let measured = match (entrant, &contest.tcp) {
            (None, Some(tcp)) => contest.controls(scenario, tcp, run),
            (entrant, _) => {
                let scheduler = entrant.map_or(&contest.entrants[0].scheduler, |entrant| &entrant.scheduler);
                let result = watch::run(&contest.spec(scenario, scheduler, Mode::Multipath, run));
                let sent: u64 = result.paths.iter().map(|path| path.bytes).sum();
                let delivered = result.delivered_bytes;
                let repeated = sent.saturating_sub(delivered) as f64 / delivered.max(1) as f64;
                let (seconds, frames) = (vec![value(scenario, &result)], frames(scenario, &result));
                Measured { seconds, repeated, frames, pool: None, at_once: None }
            }
        };
        store.put(&key, &measured);
        measured
    };
    let measured = run_jobs(ropewalk_runner::threads(Some(execution.jobs)), total, execution.stop, |index| {
        let measured = one(index);
        (execution.done)();
        Some(measured)
    });
    let measured: Vec<Measured> = measured.into_iter().collect::<Option<_>>()?;
    let cells = contest.cells.iter().enumerate().map(|(place, cell)| {
        let of = |lane: usize| &measured[(place * lanes + lane) * runs..][..runs];
        let series = contest.entrants.iter().enumerate().map(|(lane, entrant)| Series {
            label: entrant.label.clone(),
            seconds: of(lane).iter().map(|run| run.seconds[0]).collect(),
            repeated: of(lane).iter().map(|run| run.repeated).collect(),
            late: of(lane).iter().filter_map(|run| Some(run.frames?.0)).collect(),
            p99: of(lane).iter().filter_map(|run| Some(run.frames?.1)).collect(),
        });
        let series = series.collect();
        let controls = contest.tcp.as_ref().map_or(&[][..], |_| of(lanes - 1));
        let paths = if controls.is_empty() { 0 } else { scenarios[place].paths.len() };
        let tcp = (0..paths).map(|path| Series {
            label: format!("tcp {}", scenarios[place].paths[path].name),
            seconds: controls.iter().map(|run| run.seconds[path]).collect(),
            repeated: vec![0.0; controls.len()],
            late: Vec::new(),
            p99: Vec::new(),
        });
        CellResult {
            id: cell.id.clone(),
            family: cell.family.to_string(),
            half: cell.half,
            x: cell.x,
            y: cell.y,
            series,
            tcp: tcp.collect(),
            pool: controls.iter().filter_map(|run| run.pool).collect(),
            at_once: controls.iter().filter_map(|run| run.at_once).collect(),
        }
    });
    let cells = cells.collect();
    Some(Results {
        congestion: contest.congestion.text.clone(),
        seed: contest.seed,
        runs: contest.runs,
        early_join: contest.early_join,
        opened_on: contest.opening.to_string(),
        cells,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::{grid, score};
    use ropewalk_algorithms::Registries;
    use ropewalk_engine::Span;

    fn small() -> Contest {
        let registries = Registries::builtin();
        let entrant = |text: &str| Entrant {
            label: text.into(),
            scheduler: registries.schedulers.parse(text).unwrap(),
        };
        let ids = ["rtt/4/16", "exchanges/4/1.5"];
        Contest {
            cells: grid().into_iter().filter(|cell| ids.contains(&cell.id.as_str())).collect(),
            entrants: ["minrtt", "roundrobin", "cfs"].map(entrant).to_vec(),
            tcp: Some(registries.schedulers.parse("single").unwrap()),
            congestion: registries.congestion.parse("cubic").unwrap(),
            runs: 4,
            seed: 1,
            opening: OpeningPath::First,
            earlier: ["single", "minrtt"].map(|name| registries.schedulers.parse(name).unwrap()),
            early_join: false,
        }
    }

    fn measure(contest: &Contest, jobs: usize) -> Results {
        let (stop, store) = (AtomicBool::new(false), Store::none());
        run(contest, &store, Execution { jobs, done: &|| {}, stop: &stop }).unwrap()
    }

    #[test]
    fn the_result_does_not_depend_on_threads_and_scores_are_ratios() {
        let contest = small();
        assert_eq!(contest.cells.len(), 2);
        let results = measure(&contest, 1);
        assert_eq!(results, measure(&contest, 2));
        assert_eq!(results.labels(), ["minrtt", "roundrobin", "cfs"]);
        let flow = &results.cells[0];
        assert_eq!((flow.tcp.len(), flow.pool.len()), (2, 4));
        let alone = flow.tcp[0].seconds[0];
        // Interpolated between samples.
        assert!(flow.pool[0] < 1.001 * alone && flow.pool[0] > alone / 2.0, "{} of {alone}", flow.pool[0]);
        assert!(results.cells[1].pool.is_empty());
        let score = score(&results, "cfs", None).unwrap();
        assert!((0.5..2.0).contains(&score.oracle), "{score:?}");
    }

    #[test]
    fn saved_results_stand_in_for_entrants_that_did_not_run() {
        let contest = small();
        let all = measure(&contest, 2);
        let alone = Contest { entrants: contest.entrants[..1].to_vec(), tcp: None, ..small() };
        let mut merged = measure(&alone, 2);
        assert!(merged.cells[0].tcp.is_empty());
        merged.merge(&all).unwrap();
        assert_eq!(merged, all);
        merged.opened_on = "remember".into();
        assert!(merged.merge(&all).unwrap_err().to_string().contains("opened on remember, those"));
        merged.seed = 9;
        assert!(merged.merge(&all).unwrap_err().to_string().contains("from seed 9"));
    }

    #[test]
    fn the_pool_adds_up_what_the_paths_deliver() {
        let curve = vec![(Span::ZERO, 0), (Span::from_secs(1), 1_000_000)];
        let curves = [curve.clone(), curve];
        // The second begins 100 ms later: 550 ms of the first and 450 of the second are one second's worth.
        let (limit, joins) = (Span::from_secs(10), [Span::ZERO, Span::from_millis(100)]);
        let time = pool(limit, &curves, &joins, 1_000_000);
        assert!((time - 0.55).abs() < 1e-4, "{time}");
        assert_eq!(pool(limit, &curves, &joins, 3_000_000), 10.0);
    }

    #[test]
    fn an_early_join_begins_a_round_trip_earlier_and_ends_after_the_dss() {
        let mut scenario = ropewalk_sim::networks::two_equal(10_000_000, Span::from_millis(25));
        assert_eq!(joins(&scenario), [Span::ZERO, Span::from_millis(100)]);
        (scenario.client.early_join, scenario.server.early_join) = (true, true);
        assert_eq!(joins(&scenario), [Span::ZERO, Span::from_millis(50)]);
        let second = &mut scenario.paths[1];
        (second.up.delay, second.down.delay) = (Span::from_millis(5), Span::from_millis(5));
        assert_eq!(joins(&scenario), [Span::ZERO, Span::from_millis(90)]);
    }
}
