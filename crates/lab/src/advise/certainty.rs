//! How sure it is that Multipath TCP is faster than plain TCP: not in the mean over all plausible variants of the paths, of
//! which the user has one, but in how many of them.

use super::question::Question;
use super::run::{Candidate, Execution};
use super::variants::{Variants, one_run};
use crate::compare::{self, Design, Plan, Request};
use crate::stats;

/// Plausible variants.
pub const VARIANTS: u32 = 128;

/// Runs in each, so that chance within a variant weighs less.
pub const RUNS: u32 = 3;

/// Seeds that chose nobody.
const FIRST_RUN: u32 = 1 << 24;

/// The share of the variants in which `chosen` is faster than plain TCP on every path, by the mean of the logarithms. None if
/// it was stopped.
pub(super) fn share(
    question: &Question,
    request: &Request,
    chosen: &Candidate,
    candidates: &[Candidate],
    execution: Execution<'_>,
) -> Option<f64> {
    let plain = candidates.iter().filter(|one| one.is_tcp());
    let compared: Vec<&Candidate> = std::iter::once(chosen).chain(plain).collect();
    let variants = Variants::of(question, &request.scenario);
    let limit = request.scenario.limit as f64 / 1e9;
    let plan = Plan {
        workloads: request.workloads.len(),
        candidates: compared.len(),
        controls: &[],
        design: Design::Fixed(VARIANTS * RUNS),
        random: true,
        limit,
        jobs: execution.jobs,
    };
    let run = |workload: usize, number: u32, who: usize| {
        let mut scenario = variants.opened(number / RUNS, compared[who]);
        scenario.workload = request.workloads[workload].clone();
        one_run(question, scenario, compared[who], FIRST_RUN + number)
    };
    let raced = compare::race(plan, run, |_| (execution.done)(0), execution.stop);
    if raced.ended == compare::Ended::Interrupted {
        return None;
    }
    let scores = raced.scores(limit);
    let mean = |who: usize, variant: usize| {
        let first = variant * RUNS as usize;
        stats::mean(&scores[who][first..first + RUNS as usize])
    };
    let faster = |variant: &usize| (1..compared.len()).all(|tcp| mean(0, *variant) < mean(tcp, *variant));
    let count = (0..VARIANTS as usize).filter(faster).count();
    Some(count as f64 / f64::from(VARIANTS))
}
