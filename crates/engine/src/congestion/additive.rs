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
use crate::flow::Flow;

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
        flows: &mut [Flow],
        i: usize,
        ack: &Ack,
        increase: impl FnMut(&[Flow], usize) -> f64,
    ) {
        if !ack.cwnd_limited || ack.acked == 0 {
            return;
        }
        let before = flows[i].cwnd;
        let left = slow_start(&mut flows[i], ack.acked);
        if flows[i].cwnd != before {
            self.epoch += 1;
        }
        if left > 0 {
            self.avoid(flows, i, left, ack.round_start, increase);
        }
    }

    /// Congestion avoidance alone: `increase(flows, i)` for each of `acked` segments. A negative increase
    /// shrinks the window, to 1 at least.
    #[inline]
    pub(super) fn avoid(
        &mut self,
        flows: &mut [Flow],
        i: usize,
        acked: u32,
        round_start: bool,
        mut increase: impl FnMut(&[Flow], usize) -> f64,
    ) {
        let share = self.shares.at(i);
        let mut left = acked;
        let mut outdated = round_start;
        loop {
            if outdated || share.epoch != self.epoch || share.cwnd != flows[i].cwnd {
                share.increase = increase(flows, i);
                share.cwnd = flows[i].cwnd;
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
                flows[i].cwnd = flows[i].cwnd.saturating_add(1);
            } else {
                share.credit = share.credit.min(0.0);
                flows[i].cwnd = flows[i].cwnd.saturating_sub(1).max(1);
            }
            left -= used;
            self.epoch += 1;
            if left == 0 {
                return;
            }
        }
    }
}
