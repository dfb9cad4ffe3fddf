//! Runs where they decide. All candidates run the same seeds, round by round. After each round those that are
//! shown to be slower by more than the margin run no more; it ends when none is left to separate, or the
//! budget is used up.
//!
//! The budget is given as a time but counted in segments, [`PER_SECOND`] to the second, so that the same
//! command does the same runs on every machine.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use ropewalk_engine::Span;

use super::decide::{self, Ended, LOOKS, PER_SECOND, Standing};
use super::rank::Run;
use crate::parallel::{Workers, run_jobs};

/// Payload of a segment, for counting.
const SEGMENT: f64 = 1448.0;

/// What setting a run up costs, in segments.
const SETUP: u64 = 100;

/// Runs after which candidates are looked at for the first time.
const FIRST_LOOK: u32 = 8;

/// Runs after which candidates may rest. What happens in one run of twenty (a timeout) has shown itself in
/// these, so that they say how much runs vary.
const REST: u32 = 90;

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
    /// A race with a budget of so much time.
    pub fn race(budget: Span) -> Self {
        Design::Race {
            segments: (u128::from(budget.as_nanos()) * u128::from(PER_SECOND) / 1_000_000_000) as u64,
        }
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
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub workloads: usize,
    pub candidates: usize,
    /// Those that the others are measured against, alternatives in a list: all run to the end, or, where
    /// candidates rest, the fastest of each list until it is measured.
    pub controls: Vec<Vec<usize>>,
    /// Whether a candidate rests, and the race ends, when more runs would say little (`Stand::is_known`).
    /// Without it they run until they are shown to be equal or slower.
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
    /// By candidate, whether it rested before the end without being slower: it has fewer runs than others.
    pub rested: Vec<bool>,
}

impl Raced {
    /// Adds a round's runs. False if some are missing: then only numbers are added that all have.
    pub(crate) fn add(&mut self, round: &Round, cells: Vec<Option<Run>>) -> bool {
        let (total, per_number) = (cells.len(), round.per_number().max(1));
        let whole = cells.iter().position(Option::is_none).unwrap_or(total) / per_number * per_number;
        for (index, run) in cells.into_iter().take(whole).flatten().enumerate() {
            let Job { workload, who, .. } = round.job(index);
            self.used += run.cost();
            self.runs[workload][who].push(run);
        }
        whole == total
    }

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
    workloads: usize,
    active: Vec<usize>,
    numbers: Range<u32>,
}

impl Round {
    /// Runs of one number.
    fn per_number(&self) -> usize {
        self.workloads * self.active.len()
    }

    /// Runs in it.
    pub(crate) fn len(&self) -> usize {
        self.per_number() * self.numbers.len()
    }

    /// One of them. Numbers are outermost, so that what was interrupted has whole pairs.
    pub(crate) fn job(&self, index: usize) -> Job {
        let (number, rest) = (index / self.per_number(), index % self.per_number());
        Job {
            workload: rest / self.active.len(),
            number: self.numbers.start + number as u32,
            who: self.active[rest % self.active.len()],
        }
    }
}

/// A race between two rounds: what was run, and what is to be run next.
#[derive(Debug)]
pub(crate) struct Race {
    plan: Plan,
    pub(crate) raced: Raced,
    active: Vec<usize>,
    out: Vec<bool>,
    from: u32,
    looks: u32,
    round: Option<Round>,
}

impl Race {
    /// At its start.
    pub(crate) fn new(plan: Plan) -> Self {
        let runs = vec![vec![Vec::new(); plan.candidates]; plan.workloads];
        let mut race = Race {
            raced: Raced { runs, ended: Ended::Runs, used: 0, rested: vec![false; plan.candidates] },
            active: (0..plan.candidates).collect(),
            out: vec![false; plan.candidates],
            from: 0,
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
        let to = match self.plan.design {
            Design::Fixed(runs) => runs,
            Design::Race { .. } if !self.plan.random => STILL,
            Design::Race { segments } => {
                let wanted = if self.from == 0 { FIRST_LOOK } else { self.from + self.from.div_ceil(2) };
                affordable(&self.raced, &self.active, self.from, wanted, segments)
            }
        };
        if to <= self.from {
            self.raced.ended = Ended::Budget;
            return;
        }
        let (workloads, active) = (self.plan.workloads, self.active.clone());
        self.round = Some(Round { workloads, active, numbers: self.from..to });
    }

    /// The controls that run on.
    fn controls(&self, standings: &[decide::Stand]) -> impl Iterator<Item = usize> {
        let rest = self.plan.rest && self.from >= REST;
        let ratio = |who: &usize| standings[*who].ratio;
        let of_list = move |list: &Vec<usize>| match rest {
            false => list.clone(),
            true => {
                let first = list.iter().copied().min_by(|a, b| ratio(a).total_cmp(&ratio(b)));
                first
                    .filter(|who| self.active.contains(who) && !standings[*who].is_measured())
                    .into_iter()
                    .collect()
            }
        };
        self.plan.controls.iter().flat_map(of_list)
    }

    /// Takes the round's runs, in their order. Where some are missing the race is interrupted, and only
    /// numbers are kept that all have.
    pub(crate) fn take(&mut self, cells: Vec<Option<Run>>) {
        let Some(round) = self.round.take() else { return };
        if !self.raced.add(&round, cells) {
            self.raced.ended = Ended::Interrupted;
            return;
        }
        self.from = round.numbers.end;
        self.looks += 1;
        if matches!(self.plan.design, Design::Fixed(_)) {
            return;
        }
        if !self.plan.random {
            self.raced.ended = Ended::Still;
            return;
        }
        let standings = decide::standings(
            &self.raced.scores(self.plan.limit),
            &self.raced.unfinished(),
            &self.out,
            self.plan.design.looks(),
            self.plan.random,
        );
        for (who, stand) in standings.iter().enumerate() {
            self.out[who] = stand.standing == Standing::Slower;
            let is_first = stand.interval.is_none();
            let rests = self.plan.rest && self.from >= REST && stand.is_known();
            self.raced.rested[who] |= rests && !is_first && !self.out[who];
        }
        let candidates = 0..self.plan.candidates;
        let left = candidates.clone().filter(|who| !self.out[*who]).count();
        let is_equal = |who: usize| self.out[who] || standings[who].standing == Standing::Equal;
        if candidates.clone().all(|who| is_equal(who) || self.raced.rested[who]) {
            self.raced.ended = match left {
                1 => Ended::Separated,
                _ if candidates.clone().all(is_equal) => Ended::Equivalent,
                _ => Ended::Known,
            };
            return;
        }
        let controls: Vec<usize> = self.controls(&standings).collect();
        let runs_on = |who: &usize| !self.out[*who] && !self.raced.rested[*who];
        self.active = candidates.filter(|who| runs_on(who) || controls.contains(who)).collect();
        if self.looks >= LOOKS {
            self.raced.ended = Ended::Budget;
            return;
        }
        self.begin_round();
    }
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

impl Run {
    /// What it counts against a budget, in segments: those that carried its bytes, and what setting it up
    /// costs.
    pub fn cost(&self) -> u64 {
        SETUP + (self.paths.iter().map(|part| part.bytes).sum::<f64>() / SEGMENT) as u64
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_sim::Outcome;

    use super::super::rank::{PathPart, Repeats};
    use super::*;
    use crate::stats;

    /// A run of so many seconds that costs `segments`.
    fn took(seconds: f64, segments: f64) -> Run {
        let path = PathPart { bytes: segments * SEGMENT, ..PathPart::default() };
        Run {
            seed: 0,
            seconds: Some(seconds),
            outcome: Outcome::Complete,
            repeated: 0,
            repeats: Repeats::default(),
            cost: 0.0,
            late_frames: None,
            goodput: 0.0,
            retransmissions: 0,
            timeouts: 0,
            overruled: 0,
            first_overruled: None,
            overruled_cause: None,
            bound: None,
            ofo_mean: 0.0,
            ofo_max: 0,
            window_blocked: 0.0,
            paths: vec![path],
        }
    }

    /// SplitMix64.
    struct Draws(u64);

    impl Draws {
        /// Uniform in [0, 1).
        fn unit(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
        }

        fn one_of(&mut self, values: &[f64]) -> f64 {
            values[(self.unit() * values.len() as f64) as usize]
        }

        /// About normal, with a standard deviation of 1.
        fn normal(&mut self) -> f64 {
            (0..4).map(|_| self.unit() - 0.5).sum::<f64>() * libm::sqrt(3.0)
        }
    }

    /// A question with a known answer: how much slower than the first each candidate is (its logarithm), how
    /// much it varies from run to run, and how often a timeout makes it half as long again.
    struct Question {
        slower: Vec<f64>,
        varies: Vec<f64>,
        timeouts: f64,
        seed: u64,
    }

    impl Question {
        fn draw(seed: u64) -> Self {
            let mut draws = Draws(seed);
            let gaps = [0.0, 0.0, 0.0, 0.005, 0.01, 0.015, 0.019, 0.021, 0.03, 0.05, 0.1, 0.3];
            let mut slower: Vec<f64> = (0..8).map(|_| draws.one_of(&gaps)).collect();
            slower[0] = 0.0;
            let varies = (0..8).map(|_| 0.005 + 0.05 * draws.unit()).collect();
            Question { slower, varies, timeouts: draws.one_of(&[0.0, 0.0, 0.02, 0.05]), seed }
        }

        fn run(&self, workload: usize, number: u32, who: usize) -> Run {
            let place = self.seed << 32 | u64::from(number) << 8 | (workload as u64) << 6;
            // What all share, and what is the candidate's own.
            let (mut shared, mut own) = (Draws(place * 63), Draws(place * 63 + 1 + who as u64));
            let late = if own.unit() < self.timeouts { libm::log(1.5) } else { 0.0 };
            let varied = 0.2 * shared.normal() + self.varies[who] * own.normal();
            took(libm::exp(varied + late + self.slower[who]), [50.0, 700.0][workload])
        }

        /// What a race says, the segments that it took, and whether any of it is wrong.
        fn asked(&self, rest: bool) -> (Vec<Standing>, u64, bool) {
            let plan = Plan {
                workloads: 2,
                candidates: 8,
                controls: vec![vec![6, 7]],
                rest,
                design: Design::Race { segments: 12_000_000 },
                random: true,
                limit: 60.0,
            };
            let stop = AtomicBool::new(false);
            let one = |workload, number, who| self.run(workload, number, who);
            let raced = race(plan, Workers::ONE, one, |_| {}, &stop);
            let scores = raced.scores(60.0);
            let most = scores.iter().map(Vec::len).max().unwrap();
            let is_out = |who: usize| scores[who].len() < most && !raced.rested[who];
            let out: Vec<bool> = (0..8).map(is_out).collect();
            let stands = decide::standings(&scores, &[false; 8], &out, LOOKS, true);
            let first =
                stands.iter().position(|stand| stand.interval.is_none() && stand.ratio == 1.0).unwrap();
            let wrong = |(who, stand): (usize, &decide::Stand)| {
                let gap = self.slower[who] - self.slower[first];
                let margin = libm::log(1.0 + decide::MARGIN);
                match stand.standing {
                    Standing::Slower => gap < margin,
                    Standing::Equal => gap.abs() > margin,
                    Standing::Open => false,
                }
            };
            let is_wrong = stands.iter().enumerate().any(wrong);
            (stands.iter().map(|stand| stand.standing).collect(), raced.used, is_wrong)
        }
    }

    #[test]
    fn over_300_drawn_questions_what_is_said_is_right_and_sooner_with_rests() {
        let (mut wrong, mut ratios, mut said) = ([0, 0], Vec::new(), [0, 0]);
        for seed in 0..300 {
            let question = Question::draw(seed);
            let asked = [false, true].map(|rest| question.asked(rest));
            for (place, (standings, _, is_wrong)) in asked.iter().enumerate() {
                wrong[place] += u32::from(*is_wrong);
                said[place] += standings.iter().filter(|standing| **standing != Standing::Open).count();
            }
            ratios.push(asked[1].1 as f64 / asked[0].1 as f64);
        }
        let median = stats::sorted(&ratios)[150];
        println!("wrong {wrong:?} of 300, told {said:?} of 2400, runs {median:.2} in the median");
        // Five in a hundred are allowed.
        assert!(wrong.iter().all(|wrong| *wrong <= 15), "{wrong:?}");
        assert!(median <= 0.6, "{median}");
        // Nearly as many candidates are told apart or shown to be equal.
        assert!(said[1] * 100 >= said[0] * 90, "{said:?}");
    }
}
