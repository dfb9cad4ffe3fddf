//! Reno: slow start and congestion avoidance of RFC 5681, with NewReno's recovery (RFC 6582) in the engine.
//!
//! Per acknowledged segment, with w the congestion window in segments:
//!
//! - slow start (w < ssthresh): w += 1 (RFC 5681 3.1, Equation 2);
//! - congestion avoidance: w += 1/w (RFC 5681 3.1, Equation 3), counted in whole segments: after w
//!   acknowledged segments the window is w + 1;
//! - loss: ssthresh = max(w/2, 2) (RFC 5681 3.1, Equation 4).
//!
//! Uncoupled: each subflow is a TCP connection of its own, so n of them at one bottleneck take n shares.
//!
//! Rulings. The RFC halves the flight size, Linux the window; they are the same when the window is the limit,
//! and the window only grows then: the window. Every acknowledged segment counts (RFC 3465 with no limit L,
//! as Linux), so delayed and stretch ACKs grow the window as fast as ACKs of single segments, unless the host
//! counts ACKs. The window rounds down when it is halved.
//!
//! Parameters: none.

use super::siblings::PerSubflow;
use super::{Ack, CongestionControl, ControlEntry, LossCause, Siblings, half_window, slow_start};
use crate::Time;
use crate::congestion::AckCounting;
use crate::metrics::SubflowMetrics;
use crate::registry::Kernel;

pub(super) const ENTRY: ControlEntry = ControlEntry {
    name: "reno",
    summary: "uncoupled: one segment per round trip, half on loss",
    source: "RFC 5681 section 3.1, RFC 6582",
    kernels: &[Kernel::Linux.has()],
    ..ControlEntry::of(|_| Box::new(Reno::default()))
};

#[derive(Debug, Default)]
struct Reno {
    counts: PerSubflow<u32>,
}

/// Adds a segment for as many acknowledged ones as the window has, and `more`; `count` holds what is left
/// (Linux's `tcp_cong_avoid_ai`, following the window within one ACK).
fn avoid(subflow: &mut SubflowMetrics, count: &mut u32, mut acked: u32, more: u32) {
    // What was counted towards a larger window is worth at most one segment of a smaller one.
    *count = (*count).min(subflow.cwnd());
    loop {
        //= RFC 5681 3.1-e
        let missing = subflow.cwnd() + more - *count;
        if acked < missing {
            *count += acked;
            return;
        }
        acked -= missing;
        *count = 0;
        subflow.set_cwnd(subflow.cwnd().saturating_add(1));
    }
}

impl CongestionControl for Reno {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn subflow_added(&mut self, subflow: &mut SubflowMetrics, _: Siblings<'_>, _now: Time) {
        self.counts.reset(subflow.id);
    }

    fn on_ack(&mut self, subflow: &mut SubflowMetrics, _: Siblings<'_>, ack: &Ack) {
        if !ack.cwnd_limited {
            return;
        }
        let left = slow_start(subflow, ack);
        if left > 0 {
            let more = u32::from(ack.counting == AckCounting::OneInAvoidance);
            avoid(subflow, self.counts.at(subflow.id), left, more);
        }
    }

    fn ssthresh(&mut self, subflow: &SubflowMetrics, _: Siblings<'_>, _: LossCause, _: Time) -> u32 {
        // What was counted towards the larger window isn't worth the same in the smaller
        // one (Linux clears `snd_cwnd_cnt`).
        *self.counts.at(subflow.id) = 0;
        half_window(subflow, 2)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{OnList, ack, subflow, subflows};
    use super::*;

    //= test RFC 5681 3.1-d
    #[test]
    fn slow_start_adds_one_per_acknowledged_segment_however_they_are_grouped() {
        for group in [1, 2, 5, 10] {
            let mut subflows = subflows(&[subflow(10, 50)]);
            subflows[0].set_ssthresh(u32::MAX);
            let mut reno = Reno::default();
            for _ in 0..10 / group {
                reno.ack_on(&mut subflows, 0, &ack(group));
            }
            assert_eq!(subflows[0].cwnd(), 20, "ACKs of {group}");
        }
    }

    /// Linux 3.14: `tcp_slow_start` counts segments, goes on to one above the threshold and leaves nothing;
    /// `tcp_cong_avoid_ai` counts ACKs, and one more than the window has segments.
    #[test]
    fn a_host_that_counts_acks_grows_by_one_in_one_ack_more_than_the_window_has_segments() {
        let mut subflows = subflows(&[subflow(10, 50)]);
        subflows[0].set_ssthresh(14);
        let mut reno = Reno::default();
        let of = |acked| Ack { counting: AckCounting::OneInAvoidance, ..ack(acked) };
        reno.ack_on(&mut subflows, 0, &of(4));
        assert_eq!(subflows[0].cwnd(), 14, "at the threshold slow start goes on");
        reno.ack_on(&mut subflows, 0, &of(40));
        assert_eq!(subflows[0].cwnd(), 15, "to one above it, and the rest of the ACK counts for nothing");
        for acks in 0..16 {
            assert_eq!(subflows[0].cwnd(), 15, "{acks} ACKs of two segments");
            reno.ack_on(&mut subflows, 0, &of(2));
        }
        assert_eq!(subflows[0].cwnd(), 16);
        for acks in 0..17 {
            assert_eq!(subflows[0].cwnd(), 16, "{acks} ACKs that only sack");
            reno.ack_on(&mut subflows, 0, &of(0));
        }
        assert_eq!(subflows[0].cwnd(), 17);
    }

    //= test RFC 5681 3.1-e
    #[test]
    fn congestion_avoidance_adds_one_per_window_however_it_is_grouped() {
        for group in [1, 2, 5, 10] {
            let mut subflows = subflows(&[subflow(10, 50)]);
            let mut reno = Reno::default();
            for _ in 0..10 / group {
                assert_eq!(subflows[0].cwnd(), 10);
                reno.ack_on(&mut subflows, 0, &ack(group));
            }
            assert_eq!(subflows[0].cwnd(), 11, "ACKs of {group}");
            // 11 more for the next.
            reno.ack_on(&mut subflows, 0, &ack(10));
            assert_eq!(subflows[0].cwnd(), 11);
            reno.ack_on(&mut subflows, 0, &ack(1));
            assert_eq!(subflows[0].cwnd(), 12);
        }
    }

    #[test]
    fn a_stretch_ack_grows_through_several_windows() {
        // 10 + 11 + 12 = 33 acknowledged segments: 10 -> 13.
        let mut subflows = subflows(&[subflow(10, 50)]);
        let mut reno = Reno::default();
        reno.ack_on(&mut subflows, 0, &ack(33));
        assert_eq!(subflows[0].cwnd(), 13);
    }

    #[test]
    fn what_slow_start_leaves_over_counts_for_congestion_avoidance() {
        // From 10 to the threshold 12 takes 2 of 14; the other 12 make a full window: 13.
        let mut subflows = subflows(&[subflow(10, 50)]);
        subflows[0].set_ssthresh(12);
        Reno::default().ack_on(&mut subflows, 0, &ack(14));
        assert_eq!(subflows[0].cwnd(), 13);
    }

    #[test]
    fn a_loss_halves_and_drops_the_fraction() {
        let mut subflows = subflows(&[subflow(11, 50)]);
        let mut reno = Reno::default();
        reno.ack_on(&mut subflows, 0, &ack(10));
        assert_eq!(reno.ssthresh_on(&subflows, 0, LossCause::FastRetransmit, Time::ZERO), 5);
        subflows[0].set_cwnd(5);
        subflows[0].set_ssthresh(5);
        reno.ack_on(&mut subflows, 0, &ack(4));
        assert_eq!(subflows[0].cwnd(), 5);
        reno.ack_on(&mut subflows, 0, &ack(1));
        assert_eq!(subflows[0].cwnd(), 6);
        subflows[0].set_cwnd(1);
        assert_eq!(reno.ssthresh_on(&subflows, 0, LossCause::Timeout, Time::ZERO), 2);
    }

    #[test]
    fn a_window_reduced_by_others_keeps_at_most_one_segment_of_credit() {
        let mut subflows = subflows(&[subflow(100, 50)]);
        let mut reno = Reno::default();
        reno.ack_on(&mut subflows, 0, &ack(99));
        subflows[0].set_cwnd(10);
        reno.ack_on(&mut subflows, 0, &ack(1));
        assert_eq!(subflows[0].cwnd(), 11);
    }
}
