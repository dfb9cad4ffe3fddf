//! How sure it is that Multipath TCP is faster than plain TCP: not in the mean over all plausible variants of the paths, of
//! which the user has one, but in how many of them.

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

/// In how many of how many variants one is faster.
#[derive(Clone, PartialEq, Debug)]
pub struct Share {
    /// Variants in which it is faster than plain TCP on every path.
    pub faster: u32,
    /// Of so many.
    pub variants: u32,
    /// Runs in each.
    pub runs: u32,
    /// By variant, the logarithm of its time over that of the fastest plain TCP.
    pub gaps: Vec<f64>,
}

impl Share {
    /// As a number from 0 to 1.
    #[must_use]
    pub fn value(&self) -> f64 {
        f64::from(self.faster) / f64::from(self.variants)
    }

    /// Whether more variants are unlikely to bring it to the other side of `certainty`: so far from it is the share by chance in
    /// one of a hundred cases at most (two and a half standard deviations).
    fn is_settled(&self, certainty: f64) -> bool {
        let (n, faster) = (f64::from(self.variants), f64::from(self.faster));
        (faster - n * certainty).abs() > 2.5 * libm::sqrt(n * certainty * (1.0 - certainty))
    }
}

/// The share of the variants in which `chosen` is faster than plain TCP on every path, by the mean of the logarithms; `cost`: the
/// segments of a run of all of them. None if it was stopped.
pub(super) fn share(
    question: &Question,
    request: &Request,
    chosen: &Candidate,
    candidates: &[Candidate],
    cost: u64,
    execution: Execution<'_>,
) -> Option<Share> {
    let plain = candidates.iter().filter(|one| one.is_tcp());
    let compared: Vec<&Candidate> = std::iter::once(chosen).chain(plain).collect();
    let variants = Variants::of(question, &request.scenario);
    let limit = request.scenario.limit as f64 / 1e9;
    let (runs, most) = affordable(question, cost);
    let mut share = Share { faster: 0, variants: 0, runs, gaps: Vec::new() };
    for look in LOOKS.map(|look| look.min(most)) {
        let from = share.variants;
        if look == from {
            break;
        }
        let plan = Plan {
            workloads: request.workloads.len(),
            candidates: compared.len(),
            controls: Vec::new(),
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
            share.gaps.push(mean(0, variant) - tcp);
        }
        share.faster = share.gaps.iter().filter(|gap| **gap < 0.0).count() as u32;
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
        let share = |faster, variants| Share { faster, variants, runs: 3, gaps: Vec::new() };
        assert!(share(10, 32).is_settled(0.9) && share(128, 128).is_settled(0.9));
        assert!(!share(29, 32).is_settled(0.9) && !share(32, 32).is_settled(0.9));
    }
}
