//! Validation of the simulator: the same transfer over the same paths, simulated and with real packets in
//! real time, and the ratio of the median completion times.
//!
//! Where nothing is random, the medians must be within 5 %. Elsewhere the 90 % interval of the ratio must lie
//! within 0.9 to 1.1; an interval that crosses a bound means "too few runs". Against the kernel, which is
//! another implementation, 10 % is allowed everywhere.
//!
//! A seed means the same losses and the same jitter in both worlds. Each emulated run is therefore compared
//! with the simulated run of its seed, and the interval comes from resampling such pairs.

use std::sync::{Arc, Mutex};

use ropewalk_engine::Span;
use ropewalk_engine::congestion::CongestionControl;
use ropewalk_engine::registry::Spec;
use ropewalk_engine::scheduler::Scheduler;
use ropewalk_lab::real_time::{Ends, Tally};
use ropewalk_lab::scenario::is_random;
use ropewalk_lab::stats;
use ropewalk_link::{Jitter, JitterShape};
use ropewalk_runner::checkpoint::Store;
use ropewalk_runner::emulated::{self, EmulatedError};
use ropewalk_sim::{Mode, Outcome, Recording, RunResult, RunSpec, Scenario, Workload};
use serde::{Deserialize, Serialize};

/// One cell of the table.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Where.
    pub scenario: Arc<Scenario>,
    /// The scheduler; the kernel's own is `linux`.
    pub scheduler: Spec<dyn Scheduler>,
    /// Congestion control.
    pub congestion: Spec<dyn CongestionControl>,
    /// Whether the emulated ends are the Linux kernel, else the engine.
    pub kernel: bool,
}

/// The result of a cell.
#[derive(Clone, PartialEq, Debug)]
pub struct CellResult {
    /// Seconds of each simulated run, by seed, where the emulated run succeeded too.
    pub simulated: Vec<f64>,
    /// Seconds of each such emulated run.
    pub emulated: Vec<f64>,
    /// Emulated median over simulated median.
    pub ratio: Option<f64>,
    /// Its 90 % interval.
    pub interval: Option<(f64, f64)>,
    /// Whether the worlds agree.
    pub verdict: Verdict,
    /// Failed runs.
    pub failures: Vec<Failure>,
}

/// A run without a completion time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Whether the emulated run failed, else the simulated one.
    pub emulated: bool,
    /// Its seed.
    pub seed: u64,
    /// Why.
    pub reason: String,
}

/// Whether the two worlds agree on a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Within the bounds.
    Agrees,
    /// Outside.
    Differs,
    /// The interval crosses a bound.
    TooFewRuns,
    /// Runs failed.
    Failed,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Verdict::Agrees => "agrees",
            Verdict::Differs => "differs",
            Verdict::TooFewRuns => "too few runs",
            Verdict::Failed => "runs failed",
        })
    }
}

/// Why a scenario can't be validated, if it can't.
pub fn unsuitable(scenario: &Scenario) -> Option<&'static str> {
    if !scenario.background.is_empty() {
        return Some("background traffic, which the emulated world doesn't have");
    }
    let fast = |link: &ropewalk_link::LinkSpec| match &link.rate {
        ropewalk_link::Rate::Constant(rate) => *rate > 2_000_000_000,
        ropewalk_link::Rate::Trace(_) => false,
    };
    if scenario.paths.iter().any(|path| fast(&path.up) || fast(&path.down)) {
        return Some("a rate beyond what one thread moves");
    }
    None
}

/// Half of how late real packets are at most, nanoseconds. They are never early.
const LATENESS: Span = Span::from_micros(50);

/// The scenario with packets up to twice [`LATENESS`] late, in order, if nothing in it is random.
///
/// Without that, ties to the nanosecond decide: packets of two paths arrive at the same time, gaps between
/// ACKs repeat exactly, and two subflows have the same to flush. Over a trace, whose opportunities to send
/// are whole milliseconds, many gaps are exactly the 2 ms that HyStart allows within a train, and an
/// immediate ACK leaves with an opportunity that a real one just misses.
fn with_lateness(scenario: &Scenario) -> Scenario {
    let mut late = scenario.clone();
    if is_random(scenario) {
        return late;
    }
    for path in &mut late.paths {
        for link in [&mut path.up, &mut path.down] {
            link.delay += LATENESS;
            link.jitter = Some(Jitter { spread: LATENESS, shape: JitterShape::Uniform, keeps_order: true });
        }
    }
    late
}

/// The completion time of one run in both worlds, or why it failed, and how late the emulated packets were.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pair {
    simulated: Result<f64, String>,
    emulated: Result<f64, String>,
    tally: Tally,
}

/// Finished runs.
pub type Pairs = Store<Pair>;

/// A cell and its runs so far, one seed after the other.
#[derive(Debug)]
pub struct Trial {
    /// What is run.
    pub cell: Cell,
    scenario: Arc<Scenario>,
    /// What the simulator runs: see [`with_lateness`].
    late: Arc<Scenario>,
    seed: u64,
    pairs: Vec<Pair>,
}

/// The flow's completion time in seconds, or why there is none.
fn time(result: &RunResult) -> Result<f64, String> {
    let time = result.flows.first().and_then(|flow| flow.fct);
    match (&result.outcome, time) {
        (Outcome::Complete, Some(time)) => Ok(time.as_secs_f64()),
        (Outcome::Complete, None) => Err("complete, but without a completion time".into()),
        (Outcome::TimeLimit, _) => Err("not complete within the scenario's limit".into()),
        (Outcome::Failed(why), _) => Err(why.clone()),
    }
}

impl Trial {
    /// A cell without runs; each will transfer `bytes`.
    pub fn new(cell: Cell, bytes: u64, seed: u64) -> Self {
        let scenario = Arc::new(Scenario { workload: Workload::Flow { bytes }, ..(*cell.scenario).clone() });
        let late = Arc::new(with_lateness(&scenario));
        Trial { cell, scenario, late, seed, pairs: Vec::new() }
    }

    fn spec(&self, number: u32) -> RunSpec {
        RunSpec {
            scenario: Arc::clone(&self.scenario),
            scheduler: self.cell.scheduler.clone(),
            congestion: self.cell.congestion.clone(),
            mode: Mode::Multipath,
            seed: self.seed + u64::from(number),
            start_phase: Span::ZERO,
            recording: Recording::default(),
        }
    }

    /// Takes the next run from `store`. Returns false if it isn't there.
    pub fn recall(&mut self, store: &Pairs) -> bool {
        let known = store.get(&self.key(store)).cloned();
        let is_known = known.is_some();
        self.pairs.extend(known);
        is_known
    }

    fn ends(&self) -> Ends {
        Ends { sender_kernel: self.cell.kernel, receiver_kernel: self.cell.kernel }
    }

    /// The key of the next run in `store`.
    fn key(&self, store: &Pairs) -> String {
        let scenarios = format!("{:?} {:?}", self.scenario, self.late);
        let (scheduler, congestion) = (&self.cell.scheduler.text, &self.cell.congestion.text);
        let seed = self.spec(self.runs()).seed.to_string();
        store.key(&[&scenarios, scheduler, congestion, &format!("{:?}", self.ends()), &seed])
    }

    /// Runs the next seed in both worlds, or takes it from `store`.
    ///
    /// # Errors
    /// If the emulated world can't be set up.
    pub fn run(&mut self, store: &Pairs) -> Result<(), EmulatedError> {
        if self.recall(store) {
            return Ok(());
        }
        let (key, ends, spec) = (self.key(store), self.ends(), self.spec(self.runs()));
        let tally = Mutex::new(Tally::default());
        let emulated = time(&emulated::run(&spec, ends, &tally)?);
        let late = RunSpec { scenario: Arc::clone(&self.late), ..spec };
        let simulated = time(&ropewalk_sim::run(&late));
        let pair = Pair { simulated, emulated, tally: tally.into_inner().unwrap_or_default() };
        store.put(&key, &pair);
        self.pairs.push(pair);
        Ok(())
    }

    /// Runs so far.
    pub fn runs(&self) -> u32 {
        self.pairs.len() as u32
    }

    /// How late the packets of all emulated runs were.
    pub fn tally(&self) -> Tally {
        let mut all = Tally::default();
        self.pairs.iter().for_each(|pair| all.add(&pair.tally));
        all
    }

    /// The result so far.
    pub fn result(&self) -> CellResult {
        let exact = !is_random(&self.scenario);
        let allowed = if exact && !self.cell.kernel { 0.05 } else { 0.10 };
        let mut failures = Vec::new();
        for (seed, pair) in (self.seed..).zip(&self.pairs) {
            for (emulated, time) in [(false, &pair.simulated), (true, &pair.emulated)] {
                failures.extend(time.as_ref().err().map(|reason| Failure {
                    emulated,
                    seed,
                    reason: reason.clone(),
                }));
            }
        }
        let both = |pair: &Pair| Some((*pair.emulated.as_ref().ok()?, *pair.simulated.as_ref().ok()?));
        let times: Vec<_> = self.pairs.iter().filter_map(both).collect();
        judge(&times, failures, exact, allowed, self.seed)
    }
}

/// Judges a cell by the times of its pairs: (emulated, simulated), seconds.
fn judge(pairs: &[(f64, f64)], failures: Vec<Failure>, exact: bool, allowed: f64, seed: u64) -> CellResult {
    let estimate = stats::median_ratio(pairs, 0.9, seed);
    let (ratio, interval) = (estimate.map(|estimate| estimate.0), estimate.and_then(|estimate| estimate.1));
    let (low, high) = (1.0 - allowed, 1.0 + allowed);
    let within = |x: f64| low <= x && x <= high;
    let verdict = match (ratio, interval) {
        _ if !failures.is_empty() => Verdict::Failed,
        (Some(ratio), _) if exact => {
            if within(ratio) {
                Verdict::Agrees
            } else {
                Verdict::Differs
            }
        }
        (Some(_), Some((from, to))) if within(from) && within(to) => Verdict::Agrees,
        (Some(_), Some((from, to))) if to < low || from > high => Verdict::Differs,
        (Some(_), _) => Verdict::TooFewRuns,
        (None, _) => Verdict::Failed,
    };
    let (emulated, simulated) = pairs.iter().copied().unzip();
    CellResult { simulated, emulated, ratio, interval, verdict, failures }
}

#[cfg(test)]
mod tests {
    use ropewalk_engine::Time;
    use std::sync::Arc;

    use ropewalk_sim::{FlowResult, Outcome};

    use super::{Cell, Failure, Pair, Pairs, Trial, Verdict, judge, time};
    use ropewalk_algorithms::Registries;
    use ropewalk_lab::real_time::Tally;

    fn around(center: f64, spread: f64) -> Vec<f64> {
        (0..20).map(|i| center + spread * (f64::from(i) / 19.0 - 0.5)).collect()
    }

    fn trial(scenario: &str) -> Trial {
        let registries = Registries::builtin();
        let scenario = Arc::new(ropewalk_lab::scenario::load(scenario, &registries).unwrap().scenario);
        let scheduler = registries.schedulers.parse("minrtt").unwrap();
        let congestion = registries.congestion.parse("cubic").unwrap();
        Trial::new(Cell { scenario, scheduler, congestion, kernel: false }, 50_000, 7)
    }

    #[test]
    fn verdicts_follow_the_bounds() {
        let of = |emulated: Vec<f64>, exact, allowed| {
            let pairs: Vec<_> = emulated.into_iter().zip(around(1.0, 0.02).into_iter().rev()).collect();
            judge(&pairs, Vec::new(), exact, allowed, 3).verdict
        };
        assert_eq!(of(around(1.04, 0.0), true, 0.05), Verdict::Agrees);
        assert_eq!(of(around(1.06, 0.0), true, 0.05), Verdict::Differs);
        assert_eq!(of(around(1.04, 0.02), false, 0.1), Verdict::Agrees);
        assert_eq!(of(around(1.10, 0.2), false, 0.1), Verdict::TooFewRuns);
        assert_eq!(of(around(1.5, 0.1), false, 0.1), Verdict::Differs);
        assert_eq!(of(Vec::new(), false, 0.1), Verdict::Failed);
    }

    #[test]
    fn a_run_that_gives_no_time_says_which_and_why() {
        let mut trial = trial("equal-paths");
        let mut result = ropewalk_sim::run(&trial.spec(0));
        let good = time(&result);
        let mut take = |simulated: &Result<f64, String>, emulated: &Result<f64, String>| {
            let (simulated, emulated) = (simulated.clone(), emulated.clone());
            trial.pairs.push(Pair { simulated, emulated, tally: Tally::default() });
            trial.result()
        };
        assert_eq!(take(&good, &good).verdict, Verdict::Agrees);
        // One end says that it failed, although the bytes came in time.
        result.outcome = Outcome::Failed("server: reset by the peer".into());
        take(&good, &time(&result));
        result.outcome = Outcome::TimeLimit;
        result.flows = vec![FlowResult { bytes: 1, start: Time::ZERO, fct: None }];
        let found = take(&time(&result), &good);
        assert_eq!((found.verdict, found.emulated.len()), (Verdict::Failed, 1));
        let failure = |emulated, seed, reason: &str| Failure { emulated, seed, reason: reason.into() };
        assert_eq!(
            found.failures,
            [
                failure(true, 8, "server: reset by the peer"),
                failure(false, 9, "not complete within the scenario's limit")
            ]
        );
    }

    #[test]
    fn a_run_that_is_kept_is_not_run_again() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Pairs::open(&folder.path().join("runs.jsonl"), "a build").unwrap();
        let mut first = trial("equal-paths");
        first.run(&open()).unwrap();
        first.run(&open()).unwrap();
        assert_eq!(
            (first.runs(), first.tally().runs, first.result().verdict == Verdict::Failed),
            (2, 2, false)
        );
        let mut again = trial("equal-paths");
        again.run(&open()).unwrap();
        assert!(again.recall(&open()) && !again.recall(&open()));
        // Measurements are the same to the nanosecond only if they weren't repeated.
        assert_eq!((again.result(), again.tally()), (first.result(), first.tally()));
        assert_eq!(std::fs::read_to_string(folder.path().join("runs.jsonl")).unwrap().lines().count(), 2);
    }

    #[test]
    fn what_is_exact_to_the_nanosecond_is_simulated_as_real_packets_come() {
        for name in ["cellular", "equal-paths"] {
            let trial = trial(name);
            let jitter = trial.late.paths[0].down.jitter.unwrap();
            assert!(jitter.keeps_order && jitter.spread == super::LATENESS, "{name}");
            let delays = [&trial.late, &trial.scenario].map(|scenario| scenario.paths[0].down.delay);
            assert_eq!(delays[0] - jitter.spread, delays[1], "{name}: late, never early");
            assert_eq!(trial.scenario.paths[0].down.jitter, None, "real packets are late anyway");
        }
        let random = trial("cfs-2019");
        assert_eq!(random.late, random.scenario);
    }
}
