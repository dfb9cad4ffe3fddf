//! Multipath TCP or plain TCP: which of them is less often a mistake. The user has one of the plausible
//! variants of the paths, so it is counted in how many of them each is over 5 % slower than the other. What
//! Multipath TCP is held against is what would be used instead: plain TCP on the path that is best for it.

use super::question::Question;
use super::run::{Candidate, Execution};
use super::variants::{Variants, one_run};
use crate::compare::{self, Design, Plan, Request};
use crate::stats;

/// Plausible variants, at most.
pub const VARIANTS: u32 = 128;

/// Looks at what was found so far: after these many variants.
const LOOKS: [u32; 4] = [32, 64, 96, VARIANTS];

/// Runs in each, so that chance within a variant weighs less; one where the budget doesn't suffice for more.
const RUNS: u32 = 3;

/// Seeds that chose nobody.
const FIRST_RUN: u32 = 1 << 24;

/// Slower by no more than this is no mistake.
const TOLERANCE: f64 = 0.05;

/// Multipath TCP has to be set up: where in nine of ten variants nobody would notice it, it isn't worth that.
const WORTH: f64 = 0.1;

/// In how many of how many variants one is no mistake, and faster.
#[derive(Clone, PartialEq, Debug)]
pub struct Share {
    /// Variants in which it is at most 5 % slower than plain TCP on the path that is best for it.
    pub safe: u32,
    /// Variants in which it is faster than plain TCP on every path.
    pub faster: u32,
    /// Of so many.
    pub variants: u32,
    /// Runs in each.
    pub runs: u32,
    /// By variant, the logarithm of its time over that of plain TCP on the path that is best for it.
    pub gaps: Vec<f64>,
}

impl Share {
    /// In which share of the variants it is no mistake.
    #[must_use]
    pub fn value(&self) -> f64 {
        f64::from(self.safe) / f64::from(self.variants)
    }

    /// In how many of the variants plain TCP is over 5 % slower than it.
    #[must_use]
    pub fn tcp_slower(&self) -> u32 {
        self.gaps.iter().filter(|gap| **gap < -Self::tolerance()).count() as u32
    }

    /// The share of them.
    #[must_use]
    pub fn tcp_slower_in(&self) -> f64 {
        f64::from(self.tcp_slower()) / f64::from(self.variants)
    }

    /// In how many of the variants it is over 5 % slower than plain TCP.
    #[must_use]
    pub fn slower(&self) -> u32 {
        self.variants - self.safe
    }

    /// Whether Multipath TCP is to be used: in as many variants as is asked for it is no mistake, and it is
    /// shown to be faster or is the lesser risk.
    pub(super) fn favours_multipath(&self, certainty: f64) -> bool {
        self.value() >= certainty && (self.shows_a_gain() || self.is_lesser_risk())
    }

    /// Whether it is the lesser risk: faster in the mean, and plain TCP is over 5 % slower in at least a
    /// tenth more of the variants than it is.
    fn is_lesser_risk(&self) -> bool {
        let more = f64::from(self.tcp_slower()) - f64::from(self.slower());
        stats::mean(&self.gaps) < 0.0 && more >= WORTH * f64::from(self.variants)
    }

    /// In which share of the variants it is faster than plain TCP on every path.
    #[must_use]
    pub fn faster_in(&self) -> f64 {
        f64::from(self.faster) / f64::from(self.variants)
    }

    /// By how much the logarithm of its time over plain TCP's may be above 0, and it is still no mistake.
    pub(super) fn tolerance() -> f64 {
        libm::log(1.0 + TOLERANCE)
    }

    /// Whether these variants, none of which chose it, show that it is faster by more than the margin in the
    /// mean.
    pub(super) fn shows_a_gain(&self) -> bool {
        let n = self.gaps.len();
        if n < 2 {
            return false;
        }
        let error = stats::standard_deviation(&self.gaps) / libm::sqrt(n as f64);
        let quantile = stats::t_quantile(0.95, (n - 1) as f64);
        stats::mean(&self.gaps) + quantile * error < -libm::log(1.0 + compare::MARGIN)
    }

    /// Whether more variants are unlikely to bring it to the other side of `certainty`: so far from it is the
    /// share by chance in one of a hundred cases at most (two and a half standard deviations).
    fn is_settled(&self, certainty: f64) -> bool {
        let (n, safe) = (f64::from(self.variants), f64::from(self.safe));
        (safe - n * certainty).abs() > 2.5 * libm::sqrt(n * certainty * (1.0 - certainty))
    }
}

/// In how many of the variants `chosen` is faster than plain TCP on every path, and not slower than
/// `instead`, by the mean of the logarithms; `cost`: the segments of a run of all of them. None if it was
/// stopped.
pub(super) fn share(
    question: &Question,
    request: &Request,
    (chosen, instead): (&Candidate, &Candidate),
    candidates: &[Candidate],
    cost: u64,
    execution: Execution<'_>,
) -> Option<Share> {
    let others = candidates.iter().filter(|one| one.is_tcp() && one.label != instead.label);
    let compared: Vec<&Candidate> = [chosen, instead].into_iter().chain(others).collect();
    let variants = Variants::of(question, &request.scenario);
    let limit = request.scenario.limit.as_secs_f64();
    let (runs, most) = affordable(question, cost);
    let mut share = Share { safe: 0, faster: 0, variants: 0, runs, gaps: Vec::new() };
    for look in LOOKS.map(|look| look.min(most)) {
        let from = share.variants;
        if look == from {
            break;
        }
        let plan = Plan {
            workloads: request.workloads.len(),
            candidates: compared.len(),
            controls: Vec::new(),
            apart: false,
            rest: false,
            design: Design::Fixed((look - from) * runs),
            random: true,
            limit,
        };
        let run = |workload: usize, number: u32, who: usize| {
            let mut scenario = variants.opened(from + number / runs, compared[who]);
            scenario.workload = request.workloads[workload].clone();
            let run = one_run(question, scenario, compared[who], FIRST_RUN + from * runs + number);
            (execution.done)(run.cost());
            run
        };
        let raced = compare::race(plan, execution.jobs, run, |_| {}, execution.stop);
        if raced.ended == compare::Ended::Interrupted {
            return None;
        }
        let scores = raced.scores(limit);
        let mean = |who: usize, variant: u32| {
            let first = (variant * runs) as usize;
            stats::mean(&scores[who][first..first + runs as usize])
        };
        for variant in 0..look - from {
            let tcp = (1..compared.len()).map(|tcp| mean(tcp, variant)).fold(f64::INFINITY, f64::min);
            share.faster += u32::from(mean(0, variant) < tcp);
            share.gaps.push(mean(0, variant) - mean(1, variant));
        }
        share.safe = share.gaps.iter().filter(|gap| **gap < Share::tolerance()).count() as u32;
        share.variants = look;
        if share.is_settled(question.certainty) {
            break;
        }
    }
    Some(share)
}

/// Runs in a variant, and variants, that the budget suffices for: as many segments as the race has.
fn affordable(question: &Question, cost: u64) -> (u32, u32) {
    let Design::Race { segments } = question.effort.design else { return (RUNS, VARIANTS) };
    let all = segments / cost.max(1);
    let runs = if all >= u64::from(LOOKS[0] * RUNS) { RUNS } else { 1 };
    (runs, (all / u64::from(runs)).clamp(u64::from(LOOKS[0]), u64::from(VARIANTS)) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_far_from_the_certainty_is_settled() {
        let share = |safe, variants| Share { safe, faster: 0, variants, runs: 3, gaps: Vec::new() };
        assert!(share(10, 32).is_settled(0.9) && share(128, 128).is_settled(0.9));
        assert!(!share(29, 32).is_settled(0.9) && !share(32, 32).is_settled(0.9));
    }

    #[test]
    fn the_lesser_risk_counts_both_sides() {
        // By so many percent slower in so many variants.
        let is_lesser = |slower: &[(u32, f64)]| {
            let of = |(count, percent): &(u32, f64)| vec![libm::log(1.0 + percent / 100.0); *count as usize];
            let gaps: Vec<f64> = slower.iter().flat_map(of).collect();
            let safe = gaps.iter().filter(|gap| **gap < Share::tolerance()).count() as u32;
            Share { safe, faster: 0, variants: gaps.len() as u32, runs: 3, gaps }.is_lesser_risk()
        };
        assert!(is_lesser(&[(80, 0.0), (15, -20.0), (5, 10.0)]), "no gain in most, and little risk");
        assert!(!is_lesser(&[(91, 0.0), (9, -20.0)]), "a gain in too few");
        assert!(!is_lesser(&[(95, -3.0), (5, 10.0)]), "plain TCP is never a mistake");
        assert!(!is_lesser(&[(100, -3.0)]), "neither is one");
        assert!(!is_lesser(&[(60, -1.0), (20, -20.0), (20, 10.0)]), "both are one as often");
        assert!(!is_lesser(&[(80, 2.0), (17, -6.0), (3, 10.0)]), "slower in the mean");
    }

    #[test]
    fn a_gain_is_shown_by_the_mean_and_its_error() {
        let share = |gaps: Vec<f64>| Share { safe: 0, faster: 0, variants: gaps.len() as u32, runs: 3, gaps };
        let around = |center: f64, spread: f64| -> Vec<f64> {
            (0..64).map(|i| center + spread * (f64::from(i % 7) - 3.0) / 3.0).collect()
        };
        assert!(share(around(-0.1, 0.2)).shows_a_gain());
        assert!(!share(around(-0.1, 2.0)).shows_a_gain() && !share(around(-0.01, 0.01)).shows_a_gain());
        assert!(!share(Vec::new()).shows_a_gain());
    }
}
