//! Whether the simulator tells the truth: the same transfer over the same paths in the simulator and with real packets
//! in real time, run after run, and the ratio of the median completion times.
//!
//! Where nothing in the links is random, the medians must be within 5 %. Where something is, the 90 % interval of the
//! ratio must lie inside 0.9 to 1.1; an interval that crosses a bound says 'too few runs', and wants more. Against the
//! real kernel, which is another implementation, 10 % is allowed everywhere.
//!
//! A seed means the same luck in both worlds: the same packets of a link are lost, and jitter draws the same delays. Each
//! emulated run is therefore held against the simulated one of its seed, and the interval comes from resampling such
//! pairs. (Ten seeds against two hundred others would measure how lucky the ten are.)

use std::sync::{Arc, Mutex};

use ropewalk_engine::congestion::CongestionControl;
use ropewalk_engine::registry::Spec;
use ropewalk_engine::scheduler::Scheduler;
use ropewalk_link::{Jitter, JitterShape};
use ropewalk_sim::{Mode, Outcome, Recording, RunResult, RunSpec, Scenario, Workload};
use serde::{Deserialize, Serialize};

use crate::checkpoint::Store;
use crate::compare::{is_deterministic, is_random};
use crate::emulated::{self, Ends, Tally};
use crate::stats;

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

/// What came of a cell.
#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    /// Seconds of each simulated run whose emulated one has a time too, by seed.
    pub simulated: Vec<f64>,
    /// Seconds of each such emulated run.
    pub emulated: Vec<f64>,
    /// Emulated median over simulated median.
    pub ratio: Option<f64>,
    /// Its 90 % interval.
    pub interval: Option<(f64, f64)>,
    /// What to think of it.
    pub verdict: Verdict,
    /// The runs that gave no time.
    pub failures: Vec<Failure>,
}

/// A run that gave no time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Whether it was the emulated one, else the simulated.
    pub emulated: bool,
    /// Its seed.
    pub seed: u64,
    /// Why, as far as its ends know.
    pub reason: String,
}

/// What to think of a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Within the bounds.
    Agrees,
    /// Outside.
    Differs,
    /// The interval crosses a bound.
    TooFewRuns,
    /// Runs gave no time.
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

/// Why a scenario isn't in the table, or `None` if it can be.
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

/// Real packets are handed on up to a tenth of a millisecond late, and never early. Half of that, nanoseconds.
const SHAKE: u64 = 50_000;

/// The scenario, its delays longer by [`SHAKE`] and varied by as much, with the order kept, where nothing in it is random.
///
/// Where nothing varies, packets of two paths arrive in the same nanosecond, gaps between ACKs are the same over and over, and
/// which of two subflows has less to flush is decided by a tie. A trace's opportunities to send are whole milliseconds, so that
/// gaps are too: many are exactly the 2 ms that HyStart takes for a train's longest gap, and all of those count. And an ACK that
/// answers in no time leaves with the very opportunity that a real one, some microseconds later, misses: that is a
/// millisecond in each round trip. What a run that no network could give decides says nothing.
fn off_the_grid(scenario: &Scenario) -> Scenario {
    let mut shaken = scenario.clone();
    if is_random(scenario) {
        return shaken;
    }
    for path in &mut shaken.paths {
        for link in [&mut path.up, &mut path.down] {
            link.delay += SHAKE;
            link.jitter = Some(Jitter { spread: SHAKE, shape: JitterShape::Uniform, keeps_order: true });
        }
    }
    shaken
}

/// The time of one run in both worlds, or why there is none, and what the emulated one's clock was worth.
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
    /// As the simulator runs it: see [`off_the_grid`].
    shaken: Arc<Scenario>,
    seed: u64,
    pairs: Vec<Pair>,
}

/// Seconds that the run's flow took, or why it has no time.
fn time(result: &RunResult) -> Result<f64, String> {
    let time = result.flows.first().and_then(|flow| flow.fct);
    match (&result.outcome, time) {
        (Outcome::Complete, Some(time)) => Ok(time as f64 / 1e9),
        (Outcome::Complete, None) => Err("complete, but without a time".into()),
        (Outcome::TimeLimit, _) => Err("not complete when the scenario's limit came".into()),
        (Outcome::Failed(why), _) => Err(why.clone()),
    }
}

impl Trial {
    /// A cell without runs; each will transfer `bytes`.
    pub fn new(cell: Cell, bytes: u64, seed: u64) -> Self {
        let scenario = Arc::new(Scenario { workload: Workload::Flow { bytes }, ..(*cell.scenario).clone() });
        let shaken = Arc::new(off_the_grid(&scenario));
        Trial { cell, scenario, shaken, seed, pairs: Vec::new() }
    }

    fn spec(&self, number: u32) -> RunSpec {
        RunSpec {
            scenario: Arc::clone(&self.scenario),
            scheduler: self.cell.scheduler.clone(),
            congestion: self.cell.congestion.clone(),
            mode: Mode::Multipath,
            seed: self.seed + u64::from(number),
            start_phase: 0,
            recording: Recording::default(),
        }
    }

    /// The next run from `store`; false if it isn't there.
    pub fn recall(&mut self, store: &Pairs) -> bool {
        let known = store.get(&self.key(store)).cloned();
        let is_known = known.is_some();
        self.pairs.extend(known);
        is_known
    }

    fn ends(&self) -> Ends {
        Ends { sender_kernel: self.cell.kernel, receiver_kernel: self.cell.kernel }
    }

    /// By which `store` knows the next run.
    fn key(&self, store: &Pairs) -> String {
        let scenarios = format!("{:?} {:?}", self.scenario, self.shaken);
        let (scheduler, congestion) = (&self.cell.scheduler.text, &self.cell.congestion.text);
        let seed = self.spec(self.runs()).seed.to_string();
        store.key(&[&scenarios, scheduler, congestion, &format!("{:?}", self.ends()), &seed])
    }

    /// One more run, of the next seed, in both worlds; one that `store` has isn't run again.
    ///
    /// # Errors
    /// If the emulated world can't be set up.
    pub fn run(&mut self, store: &Pairs) -> Result<(), String> {
        if self.recall(store) {
            return Ok(());
        }
        let (key, ends, spec) = (self.key(store), self.ends(), self.spec(self.runs()));
        let tally = Mutex::new(Tally::default());
        let emulated = time(&emulated::run(&spec, ends, &tally)?);
        let shaken = RunSpec { scenario: Arc::clone(&self.shaken), ..spec };
        let simulated = time(&ropewalk_sim::run(&shaken));
        let pair = Pair { simulated, emulated, tally: tally.into_inner().unwrap_or_default() };
        store.put(&key, &pair);
        self.pairs.push(pair);
        Ok(())
    }

    /// Runs so far.
    pub fn runs(&self) -> u32 {
        self.pairs.len() as u32
    }

    /// What their clocks were worth.
    pub fn tally(&self) -> Tally {
        let mut all = Tally::default();
        self.pairs.iter().for_each(|pair| all.add(&pair.tally));
        all
    }

    /// What came of it so far.
    pub fn found(&self) -> Found {
        let exact = is_deterministic(&self.scenario);
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

/// Of the times of each pair, emulated and simulated.
fn judge(pairs: &[(f64, f64)], failures: Vec<Failure>, exact: bool, allowed: f64, seed: u64) -> Found {
    let found = stats::median_ratio(pairs, 0.9, seed);
    let (ratio, interval) = (found.map(|found| found.0), found.and_then(|found| found.1));
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
    Found { simulated, emulated, ratio, interval, verdict, failures }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ropewalk_sim::{FlowResult, Outcome};

    use super::{Cell, Failure, Pair, Pairs, Trial, Verdict, judge, time};
    use crate::Registries;
    use crate::emulated::Tally;

    fn around(center: f64, spread: f64) -> Vec<f64> {
        (0..20).map(|i| center + spread * (f64::from(i) / 19.0 - 0.5)).collect()
    }

    fn trial(scenario: &str) -> Trial {
        let registries = Registries::builtin();
        let scenario = Arc::new(crate::scenario::load(scenario, &registries).unwrap().scenario);
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
            trial.found()
        };
        assert_eq!(take(&good, &good).verdict, Verdict::Agrees);
        // One end says that it failed, although the bytes came in time.
        result.outcome = Outcome::Failed("server: reset by the peer".into());
        take(&good, &time(&result));
        result.outcome = Outcome::TimeLimit;
        result.flows = vec![FlowResult { bytes: 1, start: 0, fct: None }];
        let found = take(&time(&result), &good);
        assert_eq!((found.verdict, found.emulated.len()), (Verdict::Failed, 1));
        let failure = |emulated, seed, reason: &str| Failure { emulated, seed, reason: reason.into() };
        assert_eq!(
            found.failures,
            [
                failure(true, 8, "server: reset by the peer"),
                failure(false, 9, "not complete when the scenario's limit came")
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
            (first.runs(), first.tally().runs, first.found().verdict == Verdict::Failed),
            (2, 2, false)
        );
        let mut again = trial("equal-paths");
        again.run(&open()).unwrap();
        assert!(again.recall(&open()) && !again.recall(&open()));
        // What was measured is the same to the nanosecond only if it wasn't measured anew.
        assert_eq!((again.found(), again.tally()), (first.found(), first.tally()));
        assert_eq!(std::fs::read_to_string(folder.path().join("runs.jsonl")).unwrap().lines().count(), 2);
    }

    #[test]
    fn what_is_exact_to_the_nanosecond_is_simulated_as_real_packets_come() {
        for name in ["cellular", "equal-paths"] {
            let trial = trial(name);
            let jitter = trial.shaken.paths[0].down.jitter.unwrap();
            assert!(jitter.keeps_order && jitter.spread == super::SHAKE, "{name}");
            let delays = [&trial.shaken, &trial.scenario].map(|scenario| scenario.paths[0].down.delay);
            assert_eq!(delays[0] - jitter.spread, delays[1], "{name}: late, never early");
            assert_eq!(trial.scenario.paths[0].down.jitter, None, "real packets are late anyway");
        }
        let random = trial("cfs-2019");
        assert_eq!(random.shaken, random.scenario);
    }
}
