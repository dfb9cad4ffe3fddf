//! The choice that `otias` and `sttf` share: a segment joins the queue of the subflow on which it is
//! estimated to arrive first.

use super::text::{Ms, Subflow, no_room, nothing_to_send};
use super::{Decision, Rationale, View};
use crate::Span;
use crate::metrics::SubflowMetrics;

/// Queues a segment where `estimate`, which gives twice the time until it arrives and the rounds of waiting
/// in it, is least; a tie goes to the lower id. `verdict` is what the reason says of that subflow, up to the
/// time.
pub(super) fn queue_earliest(
    view: &View<'_>,
    rationale: &mut Rationale,
    estimate: impl Fn(&SubflowMetrics) -> (Span, u64),
    verdict: &str,
) -> Decision {
    if !view.sendable() {
        return nothing_to_send(view, rationale);
    }
    let estimates = view.queueable().map(|subflow| (subflow, estimate(subflow)));
    let Some((subflow, (twice, rounds))) = estimates.min_by_key(|(_, (twice, _))| *twice) else {
        return no_room(view, rationale);
    };
    rationale.say(|| {
        format!(
            "{} {verdict} {}, after {rounds} rounds of waiting behind {} queued",
            Subflow(subflow.id),
            Ms(twice / 2),
            subflow.queued_segments(),
        )
    });
    Decision::Queue { subflow: subflow.id, bytes: subflow.mss }
}
