//! Whether what a race says is right: over drawn questions whose answers are known.

use std::sync::atomic::AtomicBool;

use ropewalk_sim::Outcome;

use super::decide::{MARGIN, Standing, VersusFastest};
use super::design::Design;
use super::race::{Plan, SEGMENT, race};
use super::rank::{PathPart, Repeats, Run};
use crate::parallel::Workers;
use crate::stats;

const CANDIDATES: usize = 8;

/// What a run of each workload costs, segments.
const COSTS: [f64; 3] = [50.0, 700.0, 3000.0];

/// How much longer a timeout makes a run.
const TIMEOUT: f64 = 1.5;

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
    /// A stream for each tuple.
    fn of(parts: &[u64]) -> Self {
        let mut draws = Draws(0);
        for part in parts {
            draws.0 = draws.next() ^ part;
        }
        draws
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1).
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[(self.unit() * values.len() as f64) as usize]
    }

    /// About normal, with a standard deviation of 1.
    fn normal(&mut self) -> f64 {
        (0..4).map(|_| self.unit() - 0.5).sum::<f64>() * libm::sqrt(3.0)
    }
}

/// How long a candidate's runs of one workload take.
#[derive(Clone, Copy)]
struct Case {
    /// Logarithm of the time without timeouts, seconds.
    slower: f64,
    /// How much it varies from run to run.
    varies: f64,
    /// How often a timeout makes it half as long again.
    timeouts: f64,
}

/// A question with a known answer.
struct Question {
    /// How much slower than the first each candidate is over all workloads, timeouts included (its
    /// logarithm).
    gaps: Vec<f64>,
    /// By workload and candidate.
    cases: Vec<Vec<Case>>,
    seed: u64,
}

impl Question {
    fn draw(seed: u64) -> Self {
        let mut draws = Draws::of(&[seed]);
        let gaps = [0.0, 0.0, 0.0, 0.005, 0.01, 0.015, 0.0195, 0.0202, 0.03, 0.05, 0.1, 0.3];
        let mut gaps: Vec<f64> = (0..CANDIDATES).map(|_| draws.one_of(&gaps)).collect();
        gaps[0] = 0.0;
        let workloads = draws.one_of(&[1, 2, 3, 3]);
        let some_time_out = draws.unit() < 0.5;
        let cases = (0..workloads).map(|_| {
            // Some workloads vary much more than others, and so do some candidates.
            let wide = draws.one_of(&[0.2, 1.0, 3.0]);
            let case = |gap: &f64| {
                let timeouts = if some_time_out { draws.one_of(&[0.0, 0.0, 0.02, 0.05]) } else { 0.0 };
                // Whoever times out is the faster without it.
                let slower = gap - timeouts * libm::log(TIMEOUT);
                Case { slower, varies: wide * (0.005 + 0.05 * draws.unit()), timeouts }
            };
            gaps.iter().map(case).collect()
        });
        let cases = cases.collect();
        Question { cases, gaps, seed }
    }

    fn run(&self, workload: usize, number: u32, who: usize, apart: bool) -> Run {
        let Case { slower, varies, timeouts } = self.cases[workload][who];
        let workloads = self.cases.len() as u64;
        let seed = u64::from(number) * if apart { workloads } else { 1 };
        let seed = seed + if apart { workload as u64 } else { 0 };
        let draws = |what: u64| Draws::of(&[self.seed, seed, what]);
        // What all candidates share, what one has in common with all workloads of that seed, and the rest.
        let (own, workload) = (who as u64 + 1, workload as u64 + 1);
        let mut rest = draws(own << 8 | workload);
        let varied =
            0.2 * draws(0).normal() + varies * (0.6 * draws(own << 8).normal() + 0.8 * rest.normal());
        let late = if rest.unit() < timeouts { libm::log(TIMEOUT) } else { 0.0 };
        took(libm::exp(varied + late + slower), COSTS[workload as usize - 1])
    }

    /// What a race says, and the segments that it took.
    fn asked(&self, rest: bool, apart: bool) -> (Vec<VersusFastest>, u64) {
        let apart = apart && self.cases.len() > 1;
        let design = Design::Race { segments: 12_000_000 };
        let plan = Plan {
            workloads: self.cases.len(),
            candidates: CANDIDATES,
            controls: vec![vec![6, 7]],
            apart,
            rest,
            design,
            random: true,
            limit: 60.0,
        };
        let one = |workload, number, who| self.run(workload, number, who, apart);
        let raced = race(plan, Workers::ONE, one, |_| {}, &AtomicBool::new(false));
        (raced.standings(design, true, 60.0), raced.used)
    }

    /// Whether a statement is wrong, and whether a bound is.
    fn is_wrong(&self, stands: &[VersusFastest]) -> (bool, bool) {
        let first = stands.iter().position(|stand| stand.interval.is_none()).unwrap();
        let margin = libm::log(1.0 + MARGIN);
        let gap = |who: usize| self.gaps[who] - self.gaps[first];
        let said = |(who, stand): (usize, &VersusFastest)| match stand.standing {
            Standing::Slower => gap(who) < margin,
            Standing::Equal => gap(who).abs() > margin,
            Standing::Open => false,
        };
        let missed = |(who, stand): (usize, &VersusFastest)| {
            stand.interval.is_some_and(|(low, high)| {
                // What is out may have been shown to be slower than another.
                let ratio = libm::exp(gap(who));
                ratio > high || (low > ratio && stand.standing != Standing::Slower)
            })
        };
        (stands.iter().enumerate().any(said), stands.iter().enumerate().any(missed))
    }
}

#[test]
fn over_300_drawn_questions_what_is_said_is_right_and_sooner() {
    // All to the end, with rests, with runs where they tell most.
    const WAYS: [(bool, bool); 3] = [(false, false), (true, false), (true, true)];
    let (mut wrong, mut missed, mut told) = ([0; 3], [0; 3], [0; 3]);
    let mut ratios = [Vec::new(), Vec::new()];
    for seed in 0..300 {
        let question = Question::draw(seed);
        let asked = WAYS.map(|(rest, apart)| question.asked(rest, apart));
        for (way, (stands, _)) in asked.iter().enumerate() {
            let (is_wrong, is_missed) = question.is_wrong(stands);
            wrong[way] += u32::from(is_wrong);
            missed[way] += u32::from(is_missed);
            told[way] += stands.iter().filter(|stand| stand.standing != Standing::Open).count();
        }
        ratios[0].push(asked[1].1 as f64 / asked[0].1 as f64);
        if question.cases.len() > 1 {
            ratios[1].push(asked[2].1 as f64 / asked[1].1 as f64);
        }
    }
    let [rests, apart] = ratios.map(|ratios| stats::quantile(&stats::sorted(&ratios), 0.5));
    println!("wrong {wrong:?}, bounds {missed:?} of 300, told {told:?} of 2400; runs {rests:.2}, {apart:.2}");
    // Five in a hundred are allowed.
    assert!(wrong.iter().all(|wrong| *wrong <= 15) && missed.iter().all(|missed| *missed <= 15));
    assert!(rests <= 0.7 && apart <= 0.7);
    // Nearly as many candidates are told apart or shown to be equal.
    assert!(told.iter().all(|some| some * 100 >= told[0] * 90));
}
