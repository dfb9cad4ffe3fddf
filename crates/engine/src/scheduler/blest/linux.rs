//! BLEST as the out-of-tree Linux kernel computes it (net/mptcp/mptcp_blest.c, MPTCP v0.95).
//!
//! It differs from the paper in every estimate. The segment lingers on S for
//! min + (max - min) inflight_S/CWND_S of S's extreme smoothed RTTs, with the segment itself in flight, and
//! no less than its srtt. F's RTT is (min + max)/2; n is the number of those in the linger time, rounded
//! up. In initial slow start (ssthresh never set), n at most 16, F sends CWND (2^n - 1) segments, else
//! (c + (n - 1)/2) n with c = max(CWND, ssthresh + 1). lambda, from 1.2 within [1.0, 1.3], goes up 0.04
//! if the send window or the send buffer was full when a segment would have been sent, else down 0.01, at
//! most once per least srtt of S.
//!
//! Rulings: "rounded up" is the module's quotient + 1; (n - 1)/2 is its integer division. The module calls
//! its flag one of retransmissions, but sets it before it knows whether there will be one
//! (`mptcp_blest_rcv_buf_optimization`). Extremes are those the scheduler has seen.

use super::{fits, left_by, wait};
use crate::metrics::SubflowMetrics;
use crate::scheduler::minrtt::send_on;
use crate::scheduler::text::{no_room, nothing_to_send};
use crate::scheduler::{Decision, Event, Rationale, Scheduler, View};
use crate::{MAX_SUBFLOWS, Span, SubflowId, Time};

/// Least and greatest smoothed RTT seen; 0: none yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extremes {
    pub(super) min: Span,
    pub(super) max: Span,
}

#[derive(Debug)]
pub(super) struct BlestLinux {
    lambda: f64,
    corrected: Time,
    blocked: bool,
    seen: [Extremes; MAX_SUBFLOWS],
}

/// How long a further segment stays on `slow`.
pub(super) fn linger(slow: &SubflowMetrics, seen: Extremes) -> Span {
    let in_flight = u64::from(slow.in_flight()) + 1;
    let cwnd = u64::from(slow.cwnd().max(1));
    let estimate =
        if in_flight >= cwnd { seen.max } else { seen.min + (seen.max - seen.min) / cwnd * in_flight };
    estimate.max(slow.rtt.smoothed)
}

/// Segments that `fast` sends during `time`.
pub(super) fn segments_during(fast: &SubflowMetrics, seen: Extremes, time: Span) -> u64 {
    let rtt = seen.min.midpoint(seen.max);
    let rounds = time.checked_div(rtt).unwrap_or(0) + 1;
    // In initial slow start the window doubles each round: the sum of a geometric series.
    if fast.ssthresh() == u32::MAX {
        return u64::from(fast.cwnd()) * ((1 << rounds.min(16)) - 1);
    }
    let cwnd = u64::from(fast.cwnd().max(fast.ssthresh().saturating_add(1)));
    (cwnd + (rounds - 1) / 2).saturating_mul(rounds)
}

impl BlestLinux {
    pub(super) fn new(lambda: f64) -> Self {
        BlestLinux {
            lambda,
            corrected: Time::ZERO,
            blocked: false,
            seen: [Extremes::default(); MAX_SUBFLOWS],
        }
    }

    fn observe(&mut self, subflow: &SubflowMetrics) -> Extremes {
        let Some(seen) = self.seen.get_mut(subflow.id.index()) else {
            return Extremes { min: subflow.rtt.smoothed, max: subflow.rtt.smoothed };
        };
        // Before a sample srtt is 0, like what is seen.
        seen.min =
            if seen.min == Span::ZERO { subflow.rtt.smoothed } else { seen.min.min(subflow.rtt.smoothed) };
        seen.max = seen.max.max(subflow.rtt.smoothed);
        *seen
    }

    /// What `fast` needs while a further segment lingers on `slow`, and what that leaves of the window,
    /// bytes.
    fn weigh(&mut self, view: &View<'_>, fast: &SubflowMetrics, slow: &SubflowMetrics) -> (f64, f64) {
        let (seen_fast, seen_slow) = (self.observe(fast), self.observe(slow));
        self.correct(view.now, seen_slow);
        let segments = segments_during(fast, seen_fast, linger(slow, seen_slow));
        let need = self.lambda * segments as f64 * f64::from(fast.mss);
        (need, left_by(view.send_window, slow).max(0.0))
    }

    fn correct(&mut self, now: Time, slow: Extremes) {
        if now.saturating_sub(self.corrected) < slow.min {
            return;
        }
        let step = if self.blocked { 0.04 } else { -0.01 };
        self.lambda = (self.lambda + step).clamp(1.0, 1.3);
        self.blocked = false;
        self.corrected = now;
    }
}

impl Scheduler for BlestLinux {
    fn name(&self) -> &'static str {
        super::ENTRY.name
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        if !view.sendable() {
            return nothing_to_send(view, rationale);
        }
        let front = view.front();
        let (Some(fast), Some(slow)) = (front.usable, front.available) else {
            return no_room(view, rationale);
        };
        if fast.id == slow.id {
            self.observe(fast);
            return send_on(fast, rationale);
        }
        let (need, left) = self.weigh(view, fast, slow);
        if need > left {
            wait(view, fast, slow, need, self.lambda, rationale)
        } else {
            fits(slow, need, left, self.lambda, rationale)
        }
    }

    fn waits_while_blocked(&mut self, view: &View<'_>) -> bool {
        let front = view.front();
        let (Some(fast), Some(slow)) = (front.usable, front.available) else { return false };
        if fast.id != slow.id {
            let (need, left) = self.weigh(view, fast, slow);
            if need > left {
                return true;
            }
        }
        // Here the module sets its flag: when it would have sent, had the window not been full.
        self.blocked |= view.unsent > 0 || view.written - view.una >= view.send_buffer;
        false
    }

    fn on_event(&mut self, _view: &View<'_>, event: Event) {
        match event {
            Event::SubflowAdded(SubflowId(index)) | Event::SubflowRemoved(SubflowId(index)) => {
                if let Some(seen) = self.seen.get_mut(usize::from(index)) {
                    *seen = Extremes::default();
                }
            }
            _ => {}
        }
    }

    fn metrics(&self) -> Vec<(&'static str, f64)> {
        vec![("lambda", self.lambda)]
    }
}
