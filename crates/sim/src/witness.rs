//! Who watches a run from outside: what a capture at each end would see.

use ropewalk_wire::{Segment, SyntheticPayload};

use crate::{Nanos, Side};

/// Hears of every segment of the workload at its ends; competing flows have ends of their own.
pub trait Witness: Send {
    /// A segment leaves `from` on the path with this index. `trace`: its index in
    /// [`crate::RunResult::segments`], if it carries data in the workload's direction and segments are recorded.
    fn sent(
        &mut self,
        now: Nanos,
        from: Side,
        path: usize,
        trace: Option<u32>,
        segment: &Segment<SyntheticPayload>,
    );

    /// A segment reaches `at`.
    fn arrived(&mut self, now: Nanos, at: Side, path: usize, segment: &Segment<SyntheticPayload>);
}
