//! The additive increase that most controls share: so much of a segment per acknowledged segment, added up
//! until it makes a whole one.
//!
//! A coupled increase depends on every subflow's window and round-trip time. RFC 6356 4.1 says how often
//! that need be computed: when the window grows by a segment, or once per round trip. Here it is computed
//! when the subflow's own window is not what it was, when any window of the connection was grown here or
//! reduced by a loss, when a subflow came or went, and at the start of each round trip of the subflow; an
//! ACK in between costs a multiplication and an addition.

use super::subflows::PerSubflow;
use super::{Ack, slow_start};
use crate::metrics::SubflowMetrics;

/// Sums of fractions such as ten times 0.1 fall short of 1 by their rounding; a window must still grow
/// with the tenth segment, as in integers. Far below any increase that matters, far above the rounding.
pub(super) const ROUNDING: f64 = 1e-9;

#[derive(Debug, Default)]
struct Share {
    /// Part of a segment earned (or, if negative, owed) so far.
    credit: f64,
    /// Increase per acknowledged segment, as last computed.
    increase: f64,
    /// The window that it was computed for, segments.
    cwnd: u32,
    /// The epoch that it was computed in; 0: never.
    epoch: u64,
}

/// The fractions and cached increases of one connection's subflows.
#[derive(Debug)]
pub(super) struct Additive {
    shares: PerSubflow<Share>,
    /// Counts what outdates every cached increase.
    epoch: u64,
}

impl Additive {
    pub(super) fn new() -> Self {
        Additive { shares: PerSubflow::default(), epoch: 1 }
    }

    /// Subflow `i` came or went.
    pub(super) fn reset(&mut self, i: usize) {
        self.shares.reset(i);
        self.epoch += 1;
    }

    /// Subflow `i` lost: its fraction is gone, and every sibling's increase is out of date.
    pub(super) fn on_loss(&mut self, i: usize) {
        self.shares.at(i).credit = 0.0;
        self.epoch += 1;
    }

    /// Slow start, then `increase(flows, i)` segments per acknowledged segment.
    #[inline]
    pub(super) fn grow(
        &mut self,
        subflows: &mut [SubflowMetrics],
        i: usize,
        ack: &Ack,
        increase: impl FnMut(&[SubflowMetrics], usize) -> f64,
    ) {
        if !ack.cwnd_limited || ack.acked == 0 {
            return;
        }
        let before = subflows[i].cwnd;
        let left = slow_start(&mut subflows[i], ack.acked);
        if subflows[i].cwnd != before {
            self.epoch += 1;
        }
        if left > 0 {
            self.avoid(subflows, i, left, ack.round_start, increase);
        }
    }

    /// Congestion avoidance alone: `increase(flows, i)` for each of `acked` segments. A negative increase
    /// shrinks the window, to 1 at least.
    #[inline]
    pub(super) fn avoid(
        &mut self,
        subflows: &mut [SubflowMetrics],
        i: usize,
        acked: u32,
        round_start: bool,
        mut increase: impl FnMut(&[SubflowMetrics], usize) -> f64,
    ) {
        let share = self.shares.at(i);
        let mut left = acked;
        let mut outdated = round_start;
        loop {
            if outdated || share.epoch != self.epoch || share.cwnd != subflows[i].cwnd {
                share.increase = increase(subflows, i);
                share.cwnd = subflows[i].cwnd;
                share.epoch = self.epoch;
                outdated = false;
            }
            let earned = share.credit + share.increase * f64::from(left);
            if earned < 1.0 - ROUNDING && earned > -1.0 + ROUNDING {
                share.credit = earned;
                return;
            }
            // A whole segment is full before the ACK is used up: the rest grows from the new window.
            let whole = if share.increase > 0.0 { 1.0 } else { -1.0 };
            let needed = libm::ceil((whole - share.credit) / share.increase - ROUNDING).max(0.0);
            let used = (needed as u32).min(left);
            share.credit += share.increase * f64::from(used) - whole;
            if whole > 0.0 {
                share.credit = share.credit.max(0.0);
                subflows[i].cwnd = subflows[i].cwnd.saturating_add(1);
            } else {
                share.credit = share.credit.min(0.0);
                subflows[i].cwnd = subflows[i].cwnd.saturating_sub(1).max(1);
            }
            left -= used;
            self.epoch += 1;
            if left == 0 {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ack, subflow, subflows};
    use super::*;

    /// Two subflows in congestion avoidance, and how often an increase was computed.
    struct Pair {
        additive: Additive,
        subflows: Vec<SubflowMetrics>,
        computed: u32,
    }

    impl Pair {
        fn new() -> Self {
            Pair {
                additive: Additive::new(),
                subflows: subflows(&[subflow(10, 40), subflow(10, 40)]),
                computed: 0,
            }
        }

        /// An ACK on subflow `i`; returns how often the increase was computed for it.
        fn ack(&mut self, i: usize, ack: Ack, mut increase: impl FnMut(u32) -> f64) -> u32 {
            let before = self.computed;
            let computed = &mut self.computed;
            self.additive.grow(&mut self.subflows, i, &ack, |subflows, i| {
                *computed += 1;
                increase(subflows[i].cwnd)
            });
            self.computed - before
        }

        fn small(&mut self, i: usize) -> u32 {
            self.ack(i, ack(1), |_| 0.001)
        }
    }

    #[test]
    fn an_increase_is_computed_again_when_something_changed_that_it_depends_on() {
        let mut pair = Pair::new();
        assert_eq!((pair.small(0), pair.small(0)), (1, 0));
        let start = Ack { round_start: true, ..ack(1) };
        assert_eq!((pair.ack(0, start, |_| 0.001), pair.small(0)), (1, 0), "a round trip began");
        pair.subflows[0].cwnd = 20;
        assert_eq!((pair.small(0), pair.small(0)), (1, 0), "another set its window");
        pair.additive.on_loss(1);
        assert_eq!((pair.small(0), pair.small(0)), (1, 0), "a sibling lost");
        pair.additive.reset(1);
        assert_eq!((pair.small(0), pair.small(0)), (1, 0), "a sibling came or went");
        pair.ack(1, ack(1), |_| 1.0);
        assert_eq!((pair.small(0), pair.small(0)), (1, 0), "a sibling grew");
        pair.subflows[1].ssthresh = u32::MAX;
        assert_eq!(pair.small(1), 0, "slow start uses the ACK up");
        assert_eq!((pair.small(0), pair.small(0)), (1, 0), "a sibling grew in slow start");
        let idle = Ack { cwnd_limited: false, ..ack(1) };
        assert_eq!((pair.ack(1, idle, |_| 1.0), pair.ack(1, ack(0), |_| 1.0)), (0, 0));
        assert_eq!(pair.small(0), 0, "a sibling did nothing");
    }

    #[test]
    fn a_loss_and_a_new_subflow_forget_the_fraction() {
        let forgetting: [fn(&mut Additive); 2] =
            [|additive| additive.on_loss(0), |additive| additive.reset(0)];
        for forget in forgetting {
            let mut pair = Pair::new();
            pair.ack(0, ack(9), |_| 0.1);
            forget(&mut pair.additive);
            pair.ack(0, ack(9), |_| 0.1);
            assert_eq!(pair.subflows[0].cwnd, 10);
            pair.ack(0, ack(1), |_| 0.1);
            assert_eq!(pair.subflows[0].cwnd, 11);
        }
    }

    #[test]
    fn a_stretch_ack_goes_on_at_the_new_windows_rate_with_the_segment_after_the_full_one() {
        // Of 12 segments ten make a whole one, and each of the other two does.
        let mut pair = Pair::new();
        pair.ack(0, ack(12), |cwnd| if cwnd == 10 { 0.1 } else { 1.0 });
        assert_eq!(pair.subflows[0].cwnd, 13);
        let mut pair = Pair::new();
        pair.ack(0, ack(12), |cwnd| if cwnd == 10 { -0.1 } else { -1.0 });
        assert_eq!(pair.subflows[0].cwnd, 7);
        // With half of one earned before, of 10 segments five do; 4 of 0.3 make the next, and one is left.
        let mut pair = Pair::new();
        pair.ack(0, ack(5), |_| 0.1);
        pair.ack(0, ack(10), |cwnd| if cwnd == 10 { 0.1 } else { 0.3 });
        assert_eq!(pair.subflows[0].cwnd, 12);
        pair.ack(0, ack(1), |_| 0.49);
        assert_eq!(pair.subflows[0].cwnd, 12, "0.2 + 0.3 + 0.49");
        pair.ack(0, ack(1), |_| 0.01);
        assert_eq!(pair.subflows[0].cwnd, 13);
    }

    #[test]
    fn what_falls_short_of_a_segment_by_the_rounding_is_one() {
        let mut pair = Pair::new();
        pair.ack(0, ack(1), |_| 1.0 - ROUNDING);
        assert_eq!(pair.subflows[0].cwnd, 11);
        pair.ack(0, ack(1), |_| ROUNDING - 1.0);
        assert_eq!(pair.subflows[0].cwnd, 10);
        pair.ack(0, ack(1), |_| 1.0 - 2.0 * ROUNDING);
        assert_eq!(pair.subflows[0].cwnd, 10);
    }
}
