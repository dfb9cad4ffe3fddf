//! Runs where they decide. All candidates run the same seeds, round by round. After each round those that are
//! shown to be slower by more than the margin run no more; it ends when none is left to separate, or the
//! budget is used up. Workloads with seeds of their own get runs as `allocate` says.
//!
//! The budget is given as a time but counted in segments, [`super::PER_SECOND`] to the second, so that the
//! same command does the same runs on every machine.

use std::sync::atomic::{AtomicBool, Ordering};

use super::allocate::{Stratum, allocate};
use super::bounds::{self, Levels, Strata};
use super::decide::{self, Ended, MARGIN, Standing, VersusFastest};
use super::design::{Design, LOOKS};
use super::rank::Run;
use crate::parallel::{Workers, run_jobs};
use crate::stats;

/// Payload of a segment, for counting.
pub(super) const SEGMENT: f64 = 1448.0;

/// What setting a run up costs, in segments.
const SETUP: u64 = 100;

/// Runs after which candidates are looked at for the first time.
const FIRST_LOOK: u32 = 8;

/// Runs after which it is seen which plain TCP is the fastest.
const CONTROL: u32 = 30;

/// By how much the cost grows from look to look.
const GROWTH: f64 = 1.2;

/// Runs where nothing is random: they differ in the time at which they start, and in nothing else.
const STILL: u32 = 32;

/// A race to be run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub workloads: usize,
    pub candidates: usize,
    /// Those that the others are measured against, alternatives in a list: see `Race::controls`.
    pub controls: Vec<Vec<usize>>,
    /// Whether each workload runs seeds of its own. Otherwise a number means the same for all workloads (a
    /// variant of the paths, a seed), and they run it together.
    pub apart: bool,
    /// Whether a candidate rests, and the race ends, when more runs would say little
    /// ([`VersusFastest::known`]). Without it they run until they are shown to be equal or slower.
    pub rest: bool,
    pub design: Design,
    /// Whether runs draw anything at random.
    pub random: bool,
    /// Seconds that an unfinished run counts as.
    pub limit: f64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub(crate) struct Raced {
    /// By workload, candidate and number.
    pub runs: Vec<Vec<Vec<Run>>>,
    pub ended: Ended,
    /// Segments.
    pub used: u64,
    /// By candidate, as what it rested before the end, unless it is slower: it has fewer runs than others.
    pub rested: Vec<Option<Standing>>,
    /// As in the plan.
    pub apart: bool,
}

impl Raced {
    /// Adds a round's runs. False if some are missing: then only numbers are added that all have.
    pub(crate) fn add(&mut self, round: &Round, cells: Vec<Option<Run>>) -> bool {
        let (total, step) = (cells.len(), round.step().max(1));
        let whole = cells.iter().position(Option::is_none).unwrap_or(total) / step * step;
        for (index, run) in cells.into_iter().take(whole).flatten().enumerate() {
            let Job { workload, who, .. } = round.job(index);
            self.used += run.cost();
            self.runs[workload][who].push(run);
        }
        whole == total
    }

    fn candidates(&self) -> usize {
        self.runs.first().map_or(0, Vec::len)
    }

    /// By candidate, the mean over the workloads of the logarithm of each run's measure, where they run
    /// together.
    pub(crate) fn scores(&self, limit: f64) -> Vec<Vec<f64>> {
        let log = |run: &Run| run.log(limit);
        (0..self.candidates())
            .map(|who| {
                let count = self.runs.iter().map(|of| of[who].len()).min().unwrap_or(0);
                let sum = |number: usize| self.runs.iter().map(|of| log(&of[who][number])).sum::<f64>();
                (0..count).map(|number| sum(number) / self.runs.len() as f64).collect()
            })
            .collect()
    }

    /// The same by stratum: each workload, or all together.
    pub(crate) fn strata(&self, limit: f64) -> Vec<Vec<Vec<f64>>> {
        let logs = |runs: &Vec<Run>| runs.iter().map(|run| run.log(limit)).collect();
        match self.apart {
            true => self.runs.iter().map(|of| of.iter().map(logs).collect()).collect(),
            false => vec![self.scores(limit)],
        }
    }

    /// By workload, the runs of the candidate with the most.
    pub(crate) fn counts(&self) -> Vec<u32> {
        let most = |of: &Vec<Vec<Run>>| of.iter().map(Vec::len).max().unwrap_or(0) as u32;
        self.runs.iter().map(most).collect()
    }

    /// How all candidates stand at the end.
    pub(crate) fn standings(&self, design: Design, random: bool, limit: f64) -> Vec<VersusFastest> {
        let (counts, all) = (self.counts(), 0..self.candidates());
        let has_fewer =
            |who: usize| self.runs.iter().zip(&counts).any(|(of, most)| of[who].len() < *most as usize);
        let out: Vec<bool> = all.map(|who| has_fewer(who) && self.rested[who].is_none()).collect();
        // Whoever looks at an interrupted race may look again.
        let is_over = self.ended != Ended::Interrupted;
        let at_end: Vec<bool> =
            self.rested.iter().map(|rested| is_over && *rested != Some(Standing::Equal)).collect();
        let levels = Levels::of(design, out.len());
        decide::standings(&self.strata(limit), &self.unfinished(), &out, &at_end, levels, random)
    }

    /// By candidate, whether any of its runs didn't finish.
    pub(crate) fn unfinished(&self) -> Vec<bool> {
        let of = |who: usize| self.runs.iter().flat_map(move |of| &of[who]);
        (0..self.candidates()).map(|who| of(who).any(|run| run.seconds.is_none())).collect()
    }
}

/// Runs it on `jobs`. `one` does a run by workload, number and candidate; `done` is called with what each was
/// worth of the budget (with a fixed number: 1). The result doesn't depend on the threads.
pub(crate) fn race(
    plan: Plan,
    jobs: Workers,
    one: impl Fn(usize, u32, usize) -> Run + Sync,
    done: impl Fn(u64) + Sync,
    stop: &AtomicBool,
) -> Raced {
    let fixed = matches!(plan.design, Design::Fixed(_));
    let mut race = Race::new(plan);
    while let Some(round) = race.round().cloned() {
        let cells = run_jobs(jobs, round.len(), stop, |index| {
            let Job { workload, number, who } = round.job(index);
            let run = one(workload, number, who);
            // A run that was stopped in the middle isn't the run.
            if stop.load(Ordering::Relaxed) {
                return None;
            }
            done(if fixed { 1 } else { run.cost() });
            Some(run)
        });
        race.take(cells);
    }
    race.raced
}

/// One run of a race.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// Index of the workload.
    pub workload: usize,
    /// The run's number, from 0.
    pub number: u32,
    /// Index of the candidate.
    pub who: usize,
}

/// The runs that are made before candidates are looked at again.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    active: Vec<usize>,
    /// Workload and number, in the order of the runs.
    places: Vec<(usize, u32)>,
    /// Of these, how many are of no use without each other.
    together: usize,
}

impl Round {
    /// From so many runs of each workload to so many. Workloads take turns, so that what was interrupted has
    /// runs of all.
    fn new(active: Vec<usize>, from: &[u32], to: &[u32], apart: bool) -> Self {
        let of = |workload: usize| (from[workload]..to[workload]).map(move |number| (workload, number));
        let mut places: Vec<(usize, u32)> = (0..to.len()).flat_map(of).collect();
        let share = |(workload, number): &(usize, u32)| {
            f64::from(number - from[*workload] + 1) / f64::from(to[*workload] - from[*workload])
        };
        places.sort_by(|a, b| share(a).total_cmp(&share(b)).then(a.cmp(b)));
        Round { active, places, together: if apart { 1 } else { to.len() } }
    }

    /// Runs that are of no use without each other.
    fn step(&self) -> usize {
        self.together * self.active.len()
    }

    /// Runs in it.
    pub(crate) fn len(&self) -> usize {
        self.places.len() * self.active.len()
    }

    /// One of them. Candidates are innermost, so that what was interrupted has whole pairs.
    pub(crate) fn job(&self, index: usize) -> Job {
        let (workload, number) = self.places[index / self.active.len()];
        Job { workload, number, who: self.active[index % self.active.len()] }
    }
}

/// A race between two rounds: what was run, and what is to be run next.
#[derive(Debug)]
pub(crate) struct Race {
    plan: Plan,
    pub(crate) raced: Raced,
    active: Vec<usize>,
    out: Vec<bool>,
    /// Runs by stratum.
    from: Vec<u32>,
    /// By stratum, the mean variance of the differences that aren't known yet.
    variances: Vec<f64>,
    looks: u32,
    round: Option<Round>,
}

impl Race {
    /// At its start.
    pub(crate) fn new(plan: Plan) -> Self {
        let runs = vec![vec![Vec::new(); plan.candidates]; plan.workloads];
        let rested = vec![None; plan.candidates];
        let strata = if plan.apart { plan.workloads } else { 1 };
        let mut race = Race {
            raced: Raced { runs, ended: Ended::Runs, used: 0, rested, apart: plan.apart },
            active: (0..plan.candidates).collect(),
            out: vec![false; plan.candidates],
            from: vec![0; strata],
            variances: vec![0.0; strata],
            looks: 0,
            round: None,
            plan,
        };
        race.begin_round();
        race
    }

    /// The runs to be made next; none: the race is over.
    pub(crate) fn round(&self) -> Option<&Round> {
        self.round.as_ref()
    }

    fn begin_round(&mut self) {
        let all = |runs: u32| vec![runs; self.from.len()];
        let to = match self.plan.design {
            Design::Fixed(runs) => all(runs),
            Design::Race { .. } if !self.plan.random => all(STILL),
            Design::Race { .. } if self.looks == 0 => all(FIRST_LOOK),
            Design::Race { segments } => self.affordable(segments),
        };
        if to == self.from {
            self.raced.ended = Ended::Budget;
            return;
        }
        let by_workload = |of: &[u32]| -> Vec<u32> {
            (0..self.plan.workloads).map(|workload| of[workload % of.len()]).collect()
        };
        let (from, to) = (by_workload(&self.from), by_workload(&to));
        self.round = Some(Round::new(self.active.clone(), &from, &to, self.plan.apart));
    }

    /// How many runs of each stratum the next round goes to: to the next look, or as far as the budget lasts,
    /// the runs so far being a guide.
    fn affordable(&self, budget: u64) -> Vec<u32> {
        let mean =
            |runs: &Vec<Run>| runs.iter().map(Run::cost).sum::<u64>() as f64 / runs.len().max(1) as f64;
        let cost = |of: &Vec<Vec<Run>>| self.active.iter().map(|who| mean(&of[*who])).sum::<f64>();
        let mut costs = vec![0.0; self.from.len()];
        for (workload, of) in self.raced.runs.iter().enumerate() {
            costs[workload % self.from.len()] += cost(of);
        }
        let strata: Vec<Stratum> = (0..costs.len())
            .map(|at| Stratum { runs: self.from[at], cost: costs[at], variance: self.variances[at] })
            .collect();
        let spent: f64 = strata.iter().map(|of| of.cost * f64::from(of.runs)).sum();
        let (left, wanted) = (budget.saturating_sub(self.raced.used) as f64, spent * (GROWTH - 1.0));
        // A few runs more wouldn't change what is known.
        if left < wanted && left * 8.0 < spent {
            return self.from.clone();
        }
        allocate(&strata, spent + left.min(wanted))
    }

    /// The controls that run on: at first all. Where candidates rest, later the fastest of a list in each
    /// stratum, until what is said of it there (`10 % faster than linux`) is right to within the margin, with
    /// 95 %.
    fn controls(&self, strata: &Strata, first: usize, levels: Levels) -> Vec<usize> {
        if !self.plan.rest || self.from.iter().any(|runs| *runs < CONTROL) {
            return self.plan.controls.concat();
        }
        let mean = |of: &[Vec<f64>], who: usize| stats::mean(&of[who]);
        let mut found = Vec::new();
        for list in &self.plan.controls {
            let is_best =
                |of: &[Vec<f64>], who: usize| list.iter().all(|other| mean(of, who) <= mean(of, *other));
            let error = |who: usize| {
                let of = strata.iter().filter(|of| is_best(of, who));
                let variance = |of: &Vec<Vec<f64>>| bounds::variance_of_mean(of, who, first, levels.event);
                libm::sqrt(of.map(variance).sum::<f64>()) / strata.len() as f64
            };
            found.extend(list.iter().copied().filter(|who| 2.0 * error(*who) > MARGIN));
        }
        found.retain(|who| self.active.contains(who));
        found
    }

    /// Takes the round's runs, in their order. Where some are missing the race is interrupted, and only
    /// numbers are kept that all have.
    pub(crate) fn take(&mut self, cells: Vec<Option<Run>>) {
        let Some(round) = self.round.take() else { return };
        if !self.raced.add(&round, cells) {
            self.raced.ended = Ended::Interrupted;
            return;
        }
        let counts = self.raced.counts();
        self.from = counts[..self.from.len()].to_vec();
        self.looks += 1;
        if matches!(self.plan.design, Design::Fixed(_)) {
            return;
        }
        if !self.plan.random {
            self.raced.ended = Ended::Still;
            return;
        }
        let strata = self.raced.strata(self.plan.limit);
        let none = vec![false; self.plan.candidates];
        let levels = Levels::of(self.plan.design, self.plan.candidates);
        let standings =
            decide::standings(&strata, &self.raced.unfinished(), &self.out, &none, levels, self.plan.random);
        for (who, stand) in standings.iter().enumerate() {
            self.out[who] = stand.standing == Standing::Slower;
            let is_first = stand.interval.is_none();
            if self.plan.rest && stand.known && !is_first && !self.out[who] {
                self.raced.rested[who].get_or_insert(stand.standing);
            }
        }
        let candidates = 0..self.plan.candidates;
        let left = candidates.clone().filter(|who| !self.out[*who]).count();
        let is_equal = |who: usize| self.out[who] || standings[who].standing == Standing::Equal;
        if candidates.clone().all(|who| is_equal(who) || self.raced.rested[who].is_some()) {
            self.raced.ended = match left {
                1 => Ended::Separated,
                _ if candidates.clone().all(is_equal) => Ended::Equivalent,
                _ => Ended::Known,
            };
            return;
        }
        let runs_on = |who: &usize| !self.out[*who] && self.raced.rested[*who].is_none();
        let Some(first) = standings.iter().position(|stand| stand.interval.is_none()) else { return };
        let open: Vec<usize> = candidates.clone().filter(|who| runs_on(who) && *who != first).collect();
        self.variances = bounds::variances(&strata, &open, first, levels.event);
        let controls = self.controls(&strata, first, levels);
        self.active = candidates.filter(|who| runs_on(who) || controls.contains(who)).collect();
        if self.looks >= LOOKS {
            self.raced.ended = Ended::Budget;
            return;
        }
        self.begin_round();
    }
}

impl Run {
    /// What it counts against a budget, in segments: those that carried its bytes, and what setting it up
    /// costs.
    pub fn cost(&self) -> u64 {
        SETUP + (self.paths.iter().map(|part| part.bytes).sum::<f64>() / SEGMENT) as u64
    }
}
