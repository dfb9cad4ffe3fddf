//! Runs where they decide. All candidates run the same seeds, round by round. After each round those that are shown to
//! be slower by more than the margin run no more; it ends when none is left to separate, or the budget is used up.
//!
//! The budget is given as a time but counted in segments, [`PER_SECOND`] to the second, so that the same command does
//! the same runs on every machine.

use std::sync::atomic::{AtomicBool, Ordering};

use super::decide::{self, Ended, LOOKS, PER_SECOND, Standing};
use super::rank::Run;
use crate::parallel::{Workers, run_jobs};

/// Payload of a segment, for counting.
const SEGMENT: f64 = 1448.0;

/// What setting a run up costs, in segments.
const SETUP: u64 = 100;

/// Runs after which candidates are looked at for the first time.
const FIRST_LOOK: u32 = 8;

/// Runs where nothing is random: they differ in the time at which they start, and in nothing else.
const STILL: u32 = 32;

/// How many runs each candidate gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Design {
    /// So many, all the same.
    Fixed(u32),
    /// As many as it takes to decide, within so many segments.
    Race {
        /// The budget, segments.
        segments: u64,
    },
}

impl Design {
    /// A race with a budget of so many nanoseconds.
    pub fn race(budget: u64) -> Self {
        Design::Race { segments: (u128::from(budget) * u128::from(PER_SECOND) / 1_000_000_000) as u64 }
    }

    /// What [`super::start_phase`] divides by: 0 where the number of runs isn't known beforehand.
    pub(crate) fn phases(self) -> u32 {
        match self {
            Design::Fixed(runs) => runs,
            Design::Race { .. } => 0,
        }
    }

    /// How often candidates are looked at: the bound on errors is shared among these.
    pub(crate) fn looks(self) -> u32 {
        match self {
            Design::Fixed(_) => 1,
            Design::Race { .. } => LOOKS,
        }
    }
}

/// A race to be run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan<'a> {
    pub workloads: usize,
    pub candidates: usize,
    /// Those that the others are measured against: they run to the end.
    pub controls: &'a [usize],
    pub design: Design,
    /// Whether runs draw anything at random.
    pub random: bool,
    /// Seconds that an unfinished run counts as.
    pub limit: f64,
    pub jobs: Workers,
}

/// What came of it.
#[derive(Clone, Debug)]
pub(crate) struct Raced {
    /// By workload, candidate and number.
    pub runs: Vec<Vec<Vec<Run>>>,
    pub ended: Ended,
    /// Segments.
    pub used: u64,
}

impl Raced {
    /// By candidate, the mean over the workloads of the logarithm of each run's measure.
    pub(crate) fn scores(&self, limit: f64) -> Vec<Vec<f64>> {
        let candidates = self.runs.first().map_or(0, Vec::len);
        let log = |run: &Run| run.log(limit);
        (0..candidates)
            .map(|who| {
                let count = self.runs.iter().map(|of| of[who].len()).min().unwrap_or(0);
                let sum = |number: usize| self.runs.iter().map(|of| log(&of[who][number])).sum::<f64>();
                (0..count).map(|number| sum(number) / self.runs.len() as f64).collect()
            })
            .collect()
    }

    /// By candidate, whether any of its runs didn't finish.
    pub(crate) fn unfinished(&self) -> Vec<bool> {
        let candidates = self.runs.first().map_or(0, Vec::len);
        let of = |who: usize| self.runs.iter().flat_map(move |of| &of[who]);
        (0..candidates).map(|who| of(who).any(|run| run.seconds.is_none())).collect()
    }
}

/// Runs it. `one` does a run by workload, number and candidate; `done` is called with what each was worth of the budget (with a
/// fixed number: 1). The result doesn't depend on the threads.
pub(crate) fn race(
    plan: Plan<'_>,
    one: impl Fn(usize, u32, usize) -> Run + Sync,
    done: impl Fn(u64) + Sync,
    stop: &AtomicBool,
) -> Raced {
    let mut raced =
        Raced { runs: vec![vec![Vec::new(); plan.candidates]; plan.workloads], ended: Ended::Runs, used: 0 };
    let mut active: Vec<usize> = (0..plan.candidates).collect();
    let mut out = vec![false; plan.candidates];
    let (mut from, mut looks) = (0u32, 0u32);
    loop {
        let to = match plan.design {
            Design::Fixed(runs) => runs,
            Design::Race { .. } if !plan.random => STILL,
            Design::Race { segments } => {
                let wanted = if from == 0 { FIRST_LOOK } else { from + from.div_ceil(2) };
                affordable(&raced, &active, from, wanted, segments)
            }
        };
        if to <= from {
            raced.ended = Ended::Budget;
            break;
        }
        let whole = round(&plan, &active, from..to, &one, &done, stop, &mut raced);
        if !whole {
            raced.ended = Ended::Interrupted;
            break;
        }
        from = to;
        looks += 1;
        if matches!(plan.design, Design::Fixed(_)) {
            break;
        }
        if !plan.random {
            raced.ended = Ended::Still;
            break;
        }
        let standings = decide::standings(
            &raced.scores(plan.limit),
            &raced.unfinished(),
            &out,
            plan.design.looks(),
            plan.random,
        );
        for (who, stand) in standings.iter().enumerate() {
            out[who] = stand.standing == Standing::Slower;
        }
        let left = (0..plan.candidates).filter(|who| !out[*who]).count();
        let settled = (0..plan.candidates).all(|who| out[who] || standings[who].standing == Standing::Equal);
        if settled {
            raced.ended = if left == 1 { Ended::Separated } else { Ended::Equivalent };
            break;
        }
        active = (0..plan.candidates).filter(|who| !out[*who] || plan.controls.contains(who)).collect();
        if looks >= LOOKS {
            raced.ended = Ended::Budget;
            break;
        }
    }
    raced
}

/// How far the next round can go: to `wanted`, or as far as the budget lasts, the runs so far being a guide.
fn affordable(raced: &Raced, active: &[usize], from: u32, wanted: u32, budget: u64) -> u32 {
    if from == 0 {
        return wanted;
    }
    let cost = |who: &usize| raced.runs.iter().flat_map(|of| &of[*who]).map(Run::cost).sum::<u64>();
    let runs = |who: &usize| raced.runs.first().map_or(1, |of| of[*who].len().max(1)) as u64;
    let each: u64 = active.iter().map(|who| cost(who) / runs(who)).sum();
    let more = budget.saturating_sub(raced.used) / each.max(1);
    // A few runs more wouldn't change what is known.
    if more * 8 < u64::from(from) && more < u64::from(wanted - from) {
        return from;
    }
    wanted.min(from.saturating_add(more.min(u64::from(u32::MAX)) as u32))
}

/// One round. False if it was stopped: then only numbers are kept that all have.
fn round(
    plan: &Plan<'_>,
    active: &[usize],
    numbers: std::ops::Range<u32>,
    one: &(impl Fn(usize, u32, usize) -> Run + Sync),
    done: &(impl Fn(u64) + Sync),
    stop: &AtomicBool,
    raced: &mut Raced,
) -> bool {
    let per_number = plan.workloads * active.len();
    let total = per_number * numbers.len();
    let fixed = matches!(plan.design, Design::Fixed(_));
    let cells = run_jobs(plan.jobs, total, stop, |index| {
        // Numbers outermost, so that what was interrupted has whole pairs.
        let (number, rest) = (index / per_number, index % per_number);
        let (workload, who) = (rest / active.len(), active[rest % active.len()]);
        let run = one(workload, numbers.start + number as u32, who);
        // A run that was stopped in the middle isn't the run.
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        done(if fixed { 1 } else { run.cost() });
        Some(run)
    });
    let whole = cells.iter().position(Option::is_none).unwrap_or(total) / per_number.max(1) * per_number;
    for (index, run) in cells.into_iter().take(whole).flatten().enumerate() {
        let rest = index % per_number;
        raced.used += run.cost();
        raced.runs[rest / active.len()][active[rest % active.len()]].push(run);
    }
    whole == total
}

impl Run {
    /// What it counts against a budget, in segments: those that carried its bytes, and what setting it up costs.
    pub fn cost(&self) -> u64 {
        SETUP + (self.paths.iter().map(|part| part.bytes).sum::<f64>() / SEGMENT) as u64
    }
}
