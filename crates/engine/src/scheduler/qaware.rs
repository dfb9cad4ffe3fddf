//! `qaware`: lowest round-trip time plus the time that the local queue takes.
//!
//! Source: Shreedhar, Mohan, Kaul, Kangasharju, QAware: A Cross-Layer Approach to MPTCP Scheduling, IFIP
//! Networking 2018 (arXiv 1808.04390), from its abstract: end-to-end delay estimates are combined with the
//! occupancy of the local device queues, which changes at once, where round-trip times tell of it a round
//! trip later.
//!
//! Rule: among the subflows j with room, the segment goes on the one with the least
//!
//! ```text
//! D_j = srtt_j + q_j / rate_j
//! ```
//!
//! with q_j the bytes in its local queue and rate_j the rate at which it drains, bytes/s.
//!
//! Rulings: the paper reads the driver's byte queue limits. The engine has no device below it that it could
//! read: over TUN the radio's queue is out of sight, and in the simulator the first queue is the path's. q_j
//! is what the subflow holds back itself, which its congestion window admits and its pacing doesn't yet, and
//! rate_j its pacing rate. So it differs from `minrtt` where the congestion control is paced (`bbr`), and not
//! elsewhere. A tie goes to the lower id; a subflow without a sample counts as srtt 0.
//!
//! Parameters: `opportunistic` and `penalise` (default `off`).

use super::mechanisms::{OFF, opportunistic, penalise, with_mechanisms};
use super::text::{Kib, Ms, Subflow, no_room, nothing_to_send};
use super::{Decision, Rationale, Scheduler, View};
use crate::metrics::SubflowMetrics;
use crate::registry::Entry;
use crate::{SECOND, Span};

pub(super) const ENTRY: Entry<dyn Scheduler> = Entry {
    name: "qaware",
    summary: "lowest round-trip time plus the time that the local queue takes (from a summary)",
    source: "Shreedhar et al., arXiv 1808.04390 (abstract)",
    parameters: &[opportunistic(OFF), penalise(OFF)],
    // It would cost every comparison time.
    compared_by_default: false,
    ..Entry::of(|values| with_mechanisms(values, QAware))
};

#[derive(Debug)]
struct QAware;

/// The time that the local queue takes.
#[inline]
fn queueing(subflow: &SubflowMetrics) -> Span {
    if subflow.queued_bytes == 0 {
        return Span::ZERO;
    }
    let time = u128::from(subflow.queued_bytes) * u128::from(SECOND.as_nanos())
        / u128::from(subflow.rate.pacing.max(1));
    Span::from_nanos(time.min(u128::from(u64::MAX)) as u64)
}

impl Scheduler for QAware {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn wants_events(&self) -> bool {
        false
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        if !view.sendable() {
            return nothing_to_send(view, rationale);
        }
        let delay =
            |subflow: &&SubflowMetrics| (subflow.rtt.smoothed.saturating_add(queueing(subflow)), subflow.id);
        let Some(subflow) = view.available().min_by_key(delay) else {
            return no_room(view, rationale);
        };
        rationale.say(|| {
            format!(
                "{}: {} and {} behind {} in its queue",
                Subflow(subflow.id),
                Ms(subflow.rtt.smoothed),
                Ms(queueing(subflow)),
                Kib(subflow.queued_bytes),
            )
        });
        Decision::Send { subflow: subflow.id, bytes: subflow.mss }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Pipe, Scene, build, run, subflow};
    use crate::Span;

    #[test]
    fn the_local_queue_counts_as_time() {
        // 10 ms, and 1000 bytes at 100 kB/s, which take 10 ms, against 20 ms.
        let mut scene = Scene::new(vec![subflow(0, 10, 10, 0), subflow(1, 20, 10, 0)]);
        scene.subflows[0].rate.pacing = 100_000;
        scene.subflows[0].queued_bytes = 1000;
        assert_eq!(scene.chosen(&mut *build("qaware")), Some(0), "a tie goes to the lower id");
        scene.subflows[0].queued_bytes = 1001;
        assert_eq!(scene.chosen(&mut *build("qaware")), Some(1));
        assert_eq!(scene.chosen(&mut *build("minrtt")), Some(0), "which doesn't look at queues");
        scene.subflows[0].rate.pacing = 200_000;
        assert_eq!(scene.chosen(&mut *build("qaware")), Some(0));
    }

    #[test]
    fn without_queues_it_is_minrtt() {
        let pipes = [Pipe::new(10, 10), Pipe::new(100, 10)];
        assert_eq!(
            run("qaware", &pipes, 100).placements,
            run("minrtt(opportunistic=off)", &pipes, 100).placements
        );
    }

    #[test]
    fn a_queue_that_never_drains_is_no_overflow() {
        let mut scene = Scene::new(vec![subflow(0, 10, 10, 0), subflow(1, 20, 10, 0)]);
        (scene.subflows[0].rate.pacing, scene.subflows[0].queued_bytes) = (0, 9000);
        assert_eq!(scene.chosen(&mut *build("qaware")), Some(1));
        scene.subflows[0].rtt.smoothed = Span::MAX;
        scene.subflows.pop();
        assert_eq!(scene.chosen(&mut *build("qaware")), Some(0));
    }
}
