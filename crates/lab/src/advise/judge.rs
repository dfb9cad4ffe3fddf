//! What an answer says of each candidate, from the race over the variants.

use ropewalk_engine::scheduler::BASELINE;
use ropewalk_sim::Scenario;

use super::answer::Judged;
use super::gain::Gain;
use super::run::Candidate;
use crate::compare::{Decision, Raced, Run, Standing};
use crate::stats;

/// How many of those that aren't slower are watched for turning points.
const WATCHED: usize = 4;

/// Linux's own scheduler, with the path that the connection is opened on.
pub(super) fn said_own(scenario: &Scenario, own: &Candidate) -> String {
    format!("`{BASELINE}` with its first subflow on {}", scenario.paths[own.opens_on].name)
}

/// The chosen one first, then plain TCP, the kernel's scheduler, and the fastest of those that aren't slower.
pub(super) fn watched(decision: &Decision, candidates: &[Candidate], chosen: usize) -> Vec<Candidate> {
    let mut found = vec![candidates[chosen].clone()];
    let usual = candidates.iter().filter(|one| one.is_tcp() || one.scheduler.text == BASELINE);
    let left = [decision.with(Standing::Equal), decision.with(Standing::Open)].concat();
    let left =
        left.into_iter().take(WATCHED).filter_map(|label| candidates.iter().find(|one| one.label == label));
    for one in usual.chain(left) {
        if found.iter().all(|there| there.label != one.label) {
            found.push(one.clone());
        }
    }
    found
}

/// One candidate's runs.
pub(super) fn judge(
    raced: &Raced,
    who: usize,
    label: &str,
    standing: Standing,
    logs: &[f64],
    candidate: &Candidate,
) -> Judged {
    let runs: Vec<&Run> = raced.runs.iter().flat_map(|of| &of[who]).collect();
    let paths = runs.iter().map(|run| run.paths.len()).max().unwrap_or(0);
    let mean = |of: &dyn Fn(&Run) -> f64| stats::mean(&runs.iter().map(|run| of(run)).collect::<Vec<_>>());
    let mut bytes: Vec<f64> = (0..paths)
        .map(|path| mean(&|run: &Run| run.paths.get(path).map_or(0.0, |part| part.bytes)))
        .collect();
    // Back from the order in which the connection had them.
    if candidate.opens_on < bytes.len() {
        bytes[..=candidate.opens_on].rotate_left(1);
    }
    Judged {
        label: label.to_string(),
        standing,
        gain: Gain::of(logs),
        variants: logs.len(),
        bytes,
        duplicated: mean(&|run: &Run| run.repeats.duplicated),
        reinjected: mean(&|run: &Run| run.repeats.opportunistic + run.repeats.reinjected),
        retransmits: mean(&|run: &Run| run.retransmissions as f64),
    }
}

/// Segments of one run of these, over all workloads.
pub(super) fn cost(raced: &Raced, who: &[usize]) -> u64 {
    let mean = |runs: &Vec<Run>| runs.iter().map(Run::cost).sum::<u64>() / (runs.len() as u64).max(1);
    raced.runs.iter().flat_map(|of| who.iter().map(|who| mean(&of[*who]))).sum()
}
