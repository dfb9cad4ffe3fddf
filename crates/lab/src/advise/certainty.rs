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

/// Runs in each, so that chance within a variant weighs less.
pub const RUNS: u32 = 3;

/// Seeds that chose nobody.
const FIRST_RUN: u32 = 1 << 24;

/// In how many of how many variants one is faster.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Share {
    /// Variants in which it is faster than plain TCP on every path.
    pub faster: u32,
    /// Of so many.
    pub variants: u32,
}

impl Share {
    /// As a number from 0 to 1.
    #[must_use]
    pub fn value(self) -> f64 {
        f64::from(self.faster) / f64::from(self.variants)
    }

    /// Whether more variants are unlikely to bring it to the other side of `certainty`: so far from it is the share by chance in
    /// one of a hundred cases at most (two and a half standard deviations).
    fn is_settled(self, certainty: f64) -> bool {
        let (n, faster) = (f64::from(self.variants), f64::from(self.faster));
        (faster - n * certainty).abs() > 2.5 * libm::sqrt(n * certainty * (1.0 - certainty))
    }
}

/// The share of the variants in which `chosen` is faster than plain TCP on every path, by the mean of the logarithms. None if
/// it was stopped.
pub(super) fn share(
    question: &Question,
    request: &Request,
    chosen: &Candidate,
    candidates: &[Candidate],
    execution: Execution<'_>,
) -> Option<Share> {
    let plain = candidates.iter().filter(|one| one.is_tcp());
    let compared: Vec<&Candidate> = std::iter::once(chosen).chain(plain).collect();
    let variants = Variants::of(question, &request.scenario);
    let limit = request.scenario.limit as f64 / 1e9;
    let mut share = Share { faster: 0, variants: 0 };
    for look in LOOKS {
        let from = share.variants;
        let plan = Plan {
            workloads: request.workloads.len(),
            candidates: compared.len(),
            controls: Vec::new(),
            design: Design::Fixed((look - from) * RUNS),
            random: true,
            limit,
        };
        let run = |workload: usize, number: u32, who: usize| {
            let mut scenario = variants.opened(from + number / RUNS, compared[who]);
            scenario.workload = request.workloads[workload].clone();
            one_run(question, scenario, compared[who], FIRST_RUN + from * RUNS + number)
        };
        let raced = compare::race(plan, execution.jobs, run, |_| (execution.done)(0), execution.stop);
        if raced.ended == compare::Ended::Interrupted {
            return None;
        }
        let scores = raced.scores(limit);
        let mean = |who: usize, variant: u32| {
            let first = (variant * RUNS) as usize;
            stats::mean(&scores[who][first..first + RUNS as usize])
        };
        let is_faster =
            |variant: &u32| (1..compared.len()).all(|tcp| mean(0, *variant) < mean(tcp, *variant));
        share.faster += (0..look - from).filter(is_faster).count() as u32;
        share.variants = look;
        if share.is_settled(question.certainty) {
            break;
        }
    }
    Some(share)
}
