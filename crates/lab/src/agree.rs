//! Whether the simulator tells the truth: the same transfer over the same paths in the simulator and with real packets
//! in real time, run after run, and the ratio of the median completion times.
//!
//! Where nothing in the links is random, the medians must be within 5 %. Where something is, the 90 % interval of the
//! ratio must lie inside 0.9 to 1.1; an interval that crosses a bound says 'too few runs'. Against the real kernel, which
//! is another implementation, 10 % is allowed everywhere.

use std::sync::{Arc, Mutex};

use ropewalk_engine::congestion::CongestionControl;
use ropewalk_engine::registry::Spec;
use ropewalk_engine::scheduler::Scheduler;
use ropewalk_sim::{Mode, Recording, RunSpec, Scenario, Workload};

use crate::compare::is_deterministic;
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
    /// Seconds of each simulated run.
    pub simulated: Vec<f64>,
    /// Seconds of each emulated run.
    pub emulated: Vec<f64>,
    /// Emulated median over simulated median.
    pub ratio: Option<f64>,
    /// Its 90 % interval.
    pub interval: Option<(f64, f64)>,
    /// What to think of it.
    pub verdict: Verdict,
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

/// Runs a cell: `runs` of `bytes` in each world with the same seeds.
///
/// # Errors
/// If the emulated world can't be set up.
pub fn run(cell: &Cell, bytes: u64, runs: u32, seed: u64, tally: &Mutex<Tally>) -> Result<Found, String> {
    let scenario = Arc::new(Scenario { workload: Workload::Flow { bytes }, ..(*cell.scenario).clone() });
    let ends = Ends { sender_kernel: cell.kernel, receiver_kernel: cell.kernel };
    let (mut simulated, mut emulated) = (Vec::new(), Vec::new());
    for number in 0..runs {
        let spec = RunSpec {
            scenario: Arc::clone(&scenario),
            scheduler: cell.scheduler.clone(),
            congestion: cell.congestion.clone(),
            mode: Mode::Multipath,
            seed: seed + u64::from(number),
            start_phase: 0,
            recording: Recording::default(),
        };
        let seconds = |fct: Option<u64>| fct.map(|fct| fct as f64 / 1e9);
        let first = |flows: &[ropewalk_sim::FlowResult]| flows.first().and_then(|flow| flow.fct);
        simulated.extend(seconds(first(&ropewalk_sim::run(&spec).flows)));
        emulated.extend(seconds(first(&emulated::run(&spec, ends, tally)?.flows)));
    }
    let allowed = if is_deterministic(&cell.scenario) && !cell.kernel { 0.05 } else { 0.10 };
    Ok(judge(simulated, emulated, runs, is_deterministic(&cell.scenario), allowed, seed))
}

fn judge(simulated: Vec<f64>, emulated: Vec<f64>, runs: u32, exact: bool, allowed: f64, seed: u64) -> Found {
    let found = stats::median_ratio(&emulated, &simulated, 0.9, seed);
    let (ratio, interval) = (found.map(|found| found.0), found.and_then(|found| found.1));
    let (low, high) = (1.0 - allowed, 1.0 + allowed);
    let within = |x: f64| low <= x && x <= high;
    let verdict = match (ratio, interval) {
        _ if simulated.len() < runs as usize || emulated.len() < runs as usize => Verdict::Failed,
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
    Found { simulated, emulated, ratio, interval, verdict }
}

#[cfg(test)]
mod tests {
    use super::{Verdict, judge};

    fn around(center: f64, spread: f64) -> Vec<f64> {
        (0..20).map(|i| center + spread * (f64::from(i) / 19.0 - 0.5)).collect()
    }

    #[test]
    fn verdicts_follow_the_bounds() {
        let of = |emulated: Vec<f64>, exact, allowed| {
            judge(around(1.0, 0.02), emulated, 20, exact, allowed, 3).verdict
        };
        assert_eq!(of(around(1.04, 0.0), true, 0.05), Verdict::Agrees);
        assert_eq!(of(around(1.06, 0.0), true, 0.05), Verdict::Differs);
        assert_eq!(of(around(1.04, 0.02), false, 0.1), Verdict::Agrees);
        assert_eq!(of(around(1.10, 0.2), false, 0.1), Verdict::TooFewRuns);
        assert_eq!(of(around(1.5, 0.1), false, 0.1), Verdict::Differs);
        assert_eq!(of(around(1.0, 0.1)[..19].to_vec(), false, 0.1), Verdict::Failed);
    }
}
