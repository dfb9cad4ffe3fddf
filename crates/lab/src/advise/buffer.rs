//! How large buffers must be: sizes race as candidates do, over plausible variants of the paths.

use super::answer::Buffer;
use super::effort::BUFFER_SHARE;
use super::question::Question;
use super::run::{Candidate, Execution};
use super::variants::{Variants, one_run};
use crate::compare::{self, Design, Plan, Request, Standing};

/// Sizes that are tried, bytes.
const SIZES: [u64; 8] = [128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20];

/// The least buffer that is as good as any. None if it was stopped.
pub(super) fn find(
    question: &Question,
    request: &Request,
    candidate: &Candidate,
    execution: Execution<'_>,
) -> Option<Buffer> {
    let design = match question.effort.design {
        Design::Race { segments } => Design::Race { segments: segments / BUFFER_SHARE },
        fixed => fixed,
    };
    let variants = Variants::of(question, &request.scenario);
    let limit = request.scenario.limit.as_secs_f64();
    let plan = Plan {
        workloads: request.workloads.len(),
        candidates: SIZES.len(),
        controls: Vec::new(),
        apart: false,
        rest: false,
        design,
        random: true,
        limit,
    };
    let run = |workload: usize, number: u32, size: usize| {
        let mut scenario = variants.opened(number, candidate);
        for end in [&mut scenario.client, &mut scenario.server] {
            (end.send_buffer, end.receive_buffer) = (SIZES[size], SIZES[size]);
        }
        scenario.workload = request.workloads[workload].clone();
        one_run(question, scenario, candidate, number)
    };
    let raced = compare::race(plan, execution.jobs, run, execution.done, execution.stop);
    if raced.ended == compare::Ended::Interrupted {
        return None;
    }
    let stands = raced.standings(design, true, limit);
    let good = stands.iter().position(compare::VersusFastest::is_as_good)?;
    let least = stands.iter().position(|stand| stand.standing != Standing::Slower).unwrap_or(good);
    Some(Buffer {
        bytes: SIZES[good],
        shown: stands[good].standing == Standing::Equal,
        smaller: good.checked_sub(1).map(|below| stands[below].ratio / stands[good].ratio),
        least: SIZES[least.min(good)],
    })
}
