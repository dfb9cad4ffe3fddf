//! LIA, the Linked Increases Algorithm: RFC 6356.
//!
//! w_r: congestion window of subflow r (segments), rtt_r: its smoothed round-trip time (seconds), sums and
//! maxima over the connection's subflows. For each segment acknowledged on r in congestion avoidance
//! (RFC 6356 section 3, Equations 1 and 2, in segments instead of bytes):
//!
//! ```text
//! w_r += min(alpha / w_total, 1 / w_r)
//! alpha = w_total * max_p(w_p / rtt_p^2) / (sum_p w_p / rtt_p)^2
//! ```
//!
//! so alpha / w_total = max_p(w_p / rtt_p^2) / (sum_p x_p)^2 with x_p = w_p / rtt_p: what is computed.
//! Loss, slow start and recovery are TCP's (RFC 6356 section 3): ssthresh = max(w_r / 2, 2). With one
//! subflow alpha is 1 and the rule is Reno's.
//!
//! Rulings. Segments, not bytes: the sizes of the subflows' segments are taken as equal, as the RFC does in
//! 4.2. alpha is computed when a window changes and once per round trip, which section 4.1 recommends, with
//! f64 in place of its scaled integers. The subflows counted: those usable with a round-trip sample; a
//! backup only while it carries data.
//!
//! Parameters: none.

use super::ControlEntry;
use super::additive::{AdditiveControl, AdditiveRule};
use super::siblings::{Siblings, counted, rate, rtt, window};
use crate::metrics::SubflowMetrics;
use crate::registry::Kernel;

pub(super) const ENTRY: ControlEntry = ControlEntry {
    name: "lia",
    summary: "linked increases: together no more aggressive than one TCP on the best path",
    source: "RFC 6356 section 3",
    kernels: &[Kernel::MultipathTcp.has()],
    single_path: Some("reno"),
    ..ControlEntry::of(|_| AdditiveControl::boxed(Lia))
};

#[derive(Debug)]
struct Lia;

/// alpha / w_total of RFC 6356, per segment.
fn linked(r: &SubflowMetrics, siblings: Siblings<'_>) -> f64 {
    let (mut best, mut total) = (0.0f64, 0.0);
    for p in counted(r, siblings) {
        let rate = rate(p);
        best = best.max(rate / rtt(p));
        total += rate;
    }
    best / (total * total)
}

/// Segments per acknowledged segment.
pub(super) fn increase(r: &SubflowMetrics, siblings: Siblings<'_>) -> f64 {
    linked(r, siblings).min(1.0 / window(r))
}

//= RFC 8684 3.3.7-a
impl AdditiveRule for Lia {
    const NAME: &'static str = ENTRY.name;

    fn increase(&self, r: &SubflowMetrics, siblings: Siblings<'_>) -> f64 {
        increase(r, siblings)
    }

    fn metrics(&self, r: &SubflowMetrics, siblings: Siblings<'_>) -> Vec<(&'static str, f64)> {
        let total: f64 = counted(r, siblings).map(window).sum();
        vec![("alpha", linked(r, siblings) * total)]
    }
}

#[cfg(test)]
mod tests {
    use super::super::LossCause;
    use super::super::testing::{OnList, ack, assert_close, build, subflow, subflows};
    use super::*;
    use crate::metrics::SubflowStatus;
    use crate::testing::WithoutSender as _;
    use crate::{Span, Time};

    fn increase(list: &[SubflowMetrics], i: usize) -> f64 {
        let (r, siblings) = Siblings::split(list, i);
        super::increase(r, siblings)
    }

    #[test]
    fn alpha_is_one_with_one_subflow() {
        let subflows = subflows(&[subflow(17, 43)]);
        assert_close(build("lia").metrics_on(&subflows, 0)[0].1, 1.0);
        assert_close(increase(&subflows, 0), 1.0 / 17.0);
    }

    //= test RFC 8684 3.3.7-a
    #[test]
    fn two_equal_paths_share_the_increase_of_one() {
        // w 10 and 10, rtt 100 ms both: x = 100 each; max w/rtt^2 = 1000; alpha = 20 * 1000 / 200^2 = 0.5;
        // alpha / w_total = 0.025 < 1/10.
        let subflows = subflows(&[subflow(10, 100), subflow(10, 100)]);
        assert_close(build("lia").metrics_on(&subflows, 0)[0].1, 0.5);
        assert_close(increase(&subflows, 0), 0.025);
        assert_close(increase(&subflows, 1), 0.025);
    }

    #[test]
    fn alpha_with_different_round_trip_times() {
        // w 10 and 20, rtt 10 and 100 ms: w/rtt^2 = 100000 and 2000; x = 1000 and 200;
        // alpha = 30 * 100000 / 1200^2 = 2.08333; alpha / w_total = 0.0694444;
        // 1/w = 0.1 and 0.05: the cap holds on the second.
        let subflows = subflows(&[subflow(10, 10), subflow(20, 100)]);
        assert_close(build("lia").metrics_on(&subflows, 0)[0].1, 30.0 * 100_000.0 / 1_440_000.0);
        assert_close(increase(&subflows, 0), 100_000.0 / 1_440_000.0);
        assert_close(increase(&subflows, 1), 0.05);
    }

    #[test]
    fn subflows_that_cannot_send_do_not_count() {
        let mut subflows =
            subflows(&[subflow(10, 100), subflow(10, 100), subflow(10, 100), subflow(10, 100)]);
        subflows[1].state = SubflowStatus::Stale;
        subflows[2].rtt.smoothed = Span::ZERO;
        subflows[3].backup = true;
        assert_close(increase(&subflows, 0), 0.1);
        // A backup that carries data counts.
        subflows[3].set_packets_out(1);
        assert_close(increase(&subflows, 0), 0.025);
    }

    #[test]
    fn the_window_follows_the_equation() {
        // 0.025 per segment while both windows are 10: the 40th acknowledged segment adds one.
        let mut subflows = subflows(&[subflow(10, 100), subflow(10, 100)]);
        let mut lia = build("lia");
        for _ in 0..39 {
            lia.ack_on(&mut subflows, 0, &ack(1));
        }
        assert_eq!(subflows[0].cwnd(), 10);
        lia.ack_on(&mut subflows, 0, &ack(1));
        assert_eq!(subflows[0].cwnd(), 11);
        assert_eq!(subflows[1].cwnd(), 10);
    }

    #[test]
    fn a_siblings_loss_is_seen_at_once() {
        // Once the sibling's window is gone (2 of 20 segments left), this one grows nearly as Reno.
        let mut subflows = subflows(&[subflow(10, 100), subflow(20, 100)]);
        let mut lia = build("lia");
        lia.ack_on(&mut subflows, 0, &ack(1));
        let ssthresh = lia.ssthresh_on(&subflows, 1, LossCause::FastRetransmit, Time::ZERO);
        assert_eq!(ssthresh, 10);
        subflows[1].set_cwnd(2);
        // w 10 and 2, equal rtt: 10/12^2 = 0.0694: 15 segments (less the one above, 20/30^2 = 0.0222).
        for _ in 0..14 {
            lia.ack_on(&mut subflows, 0, &ack(1));
        }
        assert_eq!(subflows[0].cwnd(), 10);
        lia.ack_on(&mut subflows, 0, &ack(1));
        assert_eq!(subflows[0].cwnd(), 11);
    }
}
