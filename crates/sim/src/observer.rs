//! Who observes or changes segments of a run.

use ropewalk_engine::Time;
use ropewalk_wire::{Segment, SyntheticPayload};

use crate::Side;

/// Changes segments between an endpoint and the first link, as a middlebox does.
pub trait Middlebox: Send {
    /// A segment of the workload or of competing traffic, about to enter the path with this index.
    fn process(&mut self, now: Time, from: Side, path: usize, segment: &mut Segment<SyntheticPayload>);
}

/// Sees every segment of the workload where it is sent and where it arrives, as captures at both ends would.
pub trait SegmentObserver: Send {
    /// `from` sends a segment on the path with this index. `trace`: its index in
    /// [`crate::RunResult::segments`], if it carries data in the workload's direction and segments are
    /// recorded.
    fn on_sent(
        &mut self,
        now: Time,
        from: Side,
        path: usize,
        trace: Option<u32>,
        segment: &Segment<SyntheticPayload>,
    );

    /// A segment arrives at `at`.
    fn on_arrived(&mut self, now: Time, at: Side, path: usize, segment: &Segment<SyntheticPayload>);
}
