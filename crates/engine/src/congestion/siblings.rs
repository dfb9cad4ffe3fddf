//! A subflow and its siblings, per-subflow state of controls, and which subflows a coupled control counts.

use crate::metrics::SubflowMetrics;
use crate::{SECOND, Span, SubflowId};

/// A connection's subflows but for one: the one that a congestion control is called for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Siblings<'a> {
    before: &'a [SubflowMetrics],
    after: &'a [SubflowMetrics],
}

impl<'a> Siblings<'a> {
    /// The subflow with this index, to change it, and its siblings, to read them.
    ///
    /// # Panics
    /// If there is no such subflow.
    #[inline]
    pub fn split_mut(all: &'a mut [SubflowMetrics], index: usize) -> (&'a mut SubflowMetrics, Self) {
        let (before, rest) = all.split_at_mut(index);
        let (subflow, after) = rest.split_first_mut().expect("a subflow's index");
        (subflow, Siblings { before, after })
    }

    /// The same, to read both.
    ///
    /// # Panics
    /// If there is no such subflow.
    pub fn split(all: &'a [SubflowMetrics], index: usize) -> (&'a SubflowMetrics, Self) {
        (&all[index], Siblings { before: &all[..index], after: &all[index + 1..] })
    }

    /// All of the connection's subflows in order: the siblings, and `subflow` in its place.
    pub fn with(self, subflow: &'a SubflowMetrics) -> impl Iterator<Item = &'a SubflowMetrics> {
        self.before.iter().chain([subflow]).chain(self.after)
    }
}

/// One `T` per subflow. Ids are few (a byte) and reused, so this is a plain vector that grows to the largest
/// id seen.
#[derive(Debug, Default)]
pub(super) struct PerSubflow<T> {
    slots: Vec<T>,
}

impl<T: Default> PerSubflow<T> {
    /// The state of a subflow; created if there is none.
    #[inline]
    pub(super) fn at(&mut self, id: SubflowId) -> &mut T {
        let i = id.index();
        if i >= self.slots.len() {
            self.slots.reserve_exact(i + 1 - self.slots.len());
            self.slots.resize_with(i + 1, T::default);
        }
        &mut self.slots[i]
    }

    /// The state of a subflow, if there is one.
    #[inline]
    pub(super) fn get(&self, id: SubflowId) -> Option<&T> {
        self.slots.get(id.index())
    }

    /// Resets the state of a subflow, whose id may be used for another.
    pub(super) fn reset(&mut self, id: SubflowId) {
        *self.at(id) = T::default();
    }
}

/// The subflows that count when a window of subflow `r` is computed, in order: `r` itself, and every usable
/// sibling with a round-trip time. A backup that carries nothing doesn't count, or it would take a share of a
/// rate that it never uses.
#[inline]
pub(super) fn counted<'a>(
    r: &'a SubflowMetrics,
    siblings: Siblings<'a>,
) -> impl Iterator<Item = &'a SubflowMetrics> {
    let counts =
        |p: &SubflowMetrics| p.usable() && p.rtt.smoothed > Span::ZERO && (!p.backup || p.packets_out() > 0);
    // The subflow itself counts always, or sums that it divides by could be 0.
    siblings.with(r).filter(move |p| p.id == r.id || counts(p))
}

/// Congestion window of a subflow, segments; at least 1.
#[inline]
pub(super) fn window(subflow: &SubflowMetrics) -> f64 {
    f64::from(subflow.cwnd().max(1))
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

#[cfg(test)]
mod tests {
    use super::super::testing::{subflow, subflows};
    use super::*;

    #[test]
    fn a_subflow_stands_among_its_siblings_in_order() {
        let mut list = subflows(&[subflow(1, 10), subflow(2, 10), subflow(3, 10)]);
        for i in 0..3 {
            let (subflow, siblings) = Siblings::split_mut(&mut list, i);
            assert_eq!(subflow.id.index(), i);
            assert!(siblings.with(subflow).map(|subflow| subflow.cwnd()).eq([1, 2, 3]));
            let (subflow, siblings) = Siblings::split(&list, i);
            assert!(siblings.with(subflow).map(|subflow| subflow.cwnd()).eq([1, 2, 3]));
        }
        let alone = subflows(&[subflow(4, 10)]);
        assert_eq!(Siblings::default().with(&alone[0]).count(), 1);
    }
}
