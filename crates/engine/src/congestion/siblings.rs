//! Per-subflow state of controls, and which subflows a coupled control counts.

use crate::metrics::SubflowMetrics;
use crate::{SECOND, Span};

/// One `T` per subflow index. Indices are few (a subflow id is a byte) and reused, so this is a plain
/// vector that grows to the largest index seen.
#[derive(Debug, Default)]
pub(super) struct PerSubflow<T> {
    slots: Vec<T>,
}

impl<T: Default> PerSubflow<T> {
    /// The state of subflow `i`; created if there is none.
    #[inline]
    pub(super) fn at(&mut self, i: usize) -> &mut T {
        if i >= self.slots.len() {
            self.slots.resize_with(i + 1, T::default);
        }
        &mut self.slots[i]
    }

    /// The state of subflow `i`, if there is one.
    #[inline]
    pub(super) fn get(&self, i: usize) -> Option<&T> {
        self.slots.get(i)
    }

    /// Resets the state of subflow `i`, whose index may be used for another.
    pub(super) fn reset(&mut self, i: usize) {
        *self.at(i) = T::default();
    }
}

/// Whether subflow `p` counts when a window of subflow `r` is computed: `r` itself, and every usable
/// subflow with a round-trip time. A backup that carries nothing doesn't count, or it would take a share
/// of a rate that it never uses.
#[inline]
pub(super) fn counts(subflows: &[SubflowMetrics], p: usize, r: usize) -> bool {
    let subflow = &subflows[p];
    p == r
        || (subflow.usable()
            && subflow.rtt.smoothed > Span::ZERO
            && (!subflow.backup || subflow.packets_out > 0))
}

/// The subflows that count for `r`, with their indices, in order.
#[inline]
pub(super) fn counted(
    subflows: &[SubflowMetrics],
    r: usize,
) -> impl Iterator<Item = (usize, &SubflowMetrics)> {
    subflows.iter().enumerate().filter(move |(p, _)| counts(subflows, *p, r))
}

/// Congestion window of a subflow, segments; at least 1.
#[inline]
pub(super) fn window(subflow: &SubflowMetrics) -> f64 {
    f64::from(subflow.cwnd.max(1))
}

/// Smoothed round-trip time of a subflow, seconds; at least 1 ns, so that a subflow without a sample can
/// be divided by.
#[inline]
pub(super) fn rtt(subflow: &SubflowMetrics) -> f64 {
    subflow.rtt.smoothed.max(Span::from_nanos(1)).as_nanos() as f64 / SECOND.as_nanos() as f64
}

/// Rate of a subflow, x = w / rtt, segments per second.
#[inline]
pub(super) fn rate(subflow: &SubflowMetrics) -> f64 {
    window(subflow) / rtt(subflow)
}
