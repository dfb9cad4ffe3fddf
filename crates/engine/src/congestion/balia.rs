//! BALIA, the Balanced Linked Adaptation: draft-walid-mptcp-congestion-control-04, and Peng, Walid, Hwang,
//! Low, "Multipath TCP: analysis, design, and implementation", IEEE/ACM Trans. Networking 24(1), 2016.
//!
//! w_r: congestion window of subflow r (segments), rtt_r: its smoothed round-trip time (seconds),
//! x_r = w_r / rtt_r, k_r = max_p(x_p) / x_r (the draft's alpha_r). For each segment acknowledged on r in
//! congestion avoidance, and at a loss on r (draft, section 2):
//!
//! ```text
//! w_r += (x_r / rtt_r) / (sum_p x_p)^2 * (1 + k_r)/2 * (4 + k_r)/5
//! w_r -= w_r/2 * min(k_r, 1.5)
//! ```
//!
//! So the fastest subflow is halved, and a slower one loses up to three quarters. With one subflow k is 1
//! and both are Reno's. Slow start and recovery are TCP's, except that with several subflows the least slow
//! start threshold is 1 segment instead of 2 (draft, section 2).
//!
//! Rulings. The increase is not bounded by 1/w_r, as the draft's isn't: a subflow much slower than the
//! fastest grows by more than Reno would. The new window rounds down. The subflows counted: those usable
//! with a round-trip sample; a backup only while it carries data.
//!
//! Parameters: `least-ssthresh` (1 segment, with several subflows; 1 to 2).

use super::additive::{AdditiveControl, AdditiveRule};
use super::siblings::{Siblings, counted, rate, rtt, window};
use super::{ControlEntry, LossCause};
use crate::metrics::SubflowMetrics;
use crate::registry::{Exception, Kernel, Parameter};

pub(super) const ENTRY: ControlEntry = ControlEntry {
    name: "balia",
    summary: "balanced linked adaptation: between LIA's friendliness and OLIA's responsiveness",
    source: "draft-walid-mptcp-congestion-control-04 section 2",
    parameters: &[Parameter::number(
        "least-ssthresh",
        1.0,
        (1.0, 2.0),
        "least slow start threshold with several subflows, segments",
    )],
    exceptions: &[Exception {
        rule: "ssthresh",
        reason: "the draft's section 2 sets the least threshold to 1 segment when there are several subflows",
    }],
    kernels: &[Kernel::MultipathTcp.has()],
    single_path: Some("reno"),
    ..ControlEntry::of(|values| {
        AdditiveControl::boxed(Balia { least_ssthresh: values.number("least-ssthresh") as u32 })
    })
};

#[derive(Debug)]
struct Balia {
    least_ssthresh: u32,
}

/// k_r and the sum of all rates.
fn balance(r: &SubflowMetrics, siblings: Siblings<'_>) -> (f64, f64) {
    let (mut fastest, mut total) = (0.0f64, 0.0);
    for p in counted(r, siblings) {
        let rate = rate(p);
        fastest = fastest.max(rate);
        total += rate;
    }
    (fastest / rate(r), total)
}

/// Segments per acknowledged segment.
fn increase(r: &SubflowMetrics, siblings: Siblings<'_>) -> f64 {
    let (k, total) = balance(r, siblings);
    rate(r) / rtt(r) / (total * total) * (1.0 + k) / 2.0 * (4.0 + k) / 5.0
}

impl AdditiveRule for Balia {
    const NAME: &'static str = ENTRY.name;

    fn increase(&self, r: &SubflowMetrics, siblings: Siblings<'_>) -> f64 {
        increase(r, siblings)
    }

    fn ssthresh(&mut self, r: &SubflowMetrics, siblings: Siblings<'_>, _cause: LossCause) -> u32 {
        let (k, _) = balance(r, siblings);
        let w = window(r);
        // Without the bound a subflow much slower than the fastest would lose its whole window.
        let left = w - w / 2.0 * k.min(1.5);
        let several = counted(r, siblings).count() > 1;
        (left as u32).max(if several { self.least_ssthresh } else { 2 })
    }

    fn metrics(&self, r: &SubflowMetrics, siblings: Siblings<'_>) -> Vec<(&'static str, f64)> {
        vec![("alpha", balance(r, siblings).0)]
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{OnList, ack, assert_close, build, subflow, subflows};
    use super::*;
    use crate::Time;

    fn increase(list: &[SubflowMetrics], i: usize) -> f64 {
        let (r, siblings) = Siblings::split(list, i);
        super::increase(r, siblings)
    }

    #[test]
    fn one_subflow_is_reno() {
        let subflows = subflows(&[subflow(17, 43)]);
        assert_close(increase(&subflows, 0), 1.0 / 17.0);
        assert_eq!(build("balia").ssthresh_on(&subflows, 0, LossCause::FastRetransmit, Time::ZERO), 8);
    }

    #[test]
    fn two_equal_subflows_take_a_quarter_each() {
        // x = 100 each, k = 1: 1000 / 200^2 = 0.025, times 1, times 1.
        let subflows = subflows(&[subflow(10, 100), subflow(10, 100)]);
        assert_close(increase(&subflows, 0), 0.025);
        assert_eq!(build("balia").ssthresh_on(&subflows, 0, LossCause::FastRetransmit, Time::ZERO), 5);
    }

    #[test]
    fn unequal_rates() {
        // x_0 = 10/0.1 = 100, x_1 = 20/0.1 = 200: k = 2 and 1, sum 300.
        // r=0: 1000/90000 * 3/2 * 6/5 = 0.02; r=1: 2000/90000 = 0.0222222.
        let subflows = subflows(&[subflow(10, 100), subflow(20, 100)]);
        assert_close(increase(&subflows, 0), 0.02);
        assert_close(increase(&subflows, 1), 2000.0 / 90_000.0);
        // Loss on 0: min(2, 1.5) = 1.5: 10 - 7.5 = 2.5; on 1: 20 - 10.
        let mut balia = build("balia");
        assert_eq!(balia.ssthresh_on(&subflows, 0, LossCause::FastRetransmit, Time::ZERO), 2);
        assert_eq!(balia.ssthresh_on(&subflows, 1, LossCause::FastRetransmit, Time::ZERO), 10);
        assert_close(balia.metrics_on(&subflows, 0)[0].1, 2.0);
        assert_close(balia.metrics_on(&subflows, 1)[0].1, 1.0);
    }

    #[test]
    fn between_one_and_one_and_a_half_the_decrease_follows_k() {
        // x = 16/0.1 = 160 and 20/0.1 = 200: k = 1.25: 16 - 8 * 1.25 = 6.
        let subflows = subflows(&[subflow(16, 100), subflow(20, 100)]);
        assert_eq!(build("balia").ssthresh_on(&subflows, 0, LossCause::FastRetransmit, Time::ZERO), 6);
    }

    #[test]
    fn the_increase_may_exceed_renos() {
        // w 2 at 100 ms beside 100 at 10 ms: x = 20 and 10000, k = 500:
        // 200 / 10020^2 * 501/2 * 504/5 = 0.0503; w 1 at 1 s: 1 / 10001^2 * 10001/2 * 10004/5 = 1.0002 / 10.
        let list = subflows(&[subflow(2, 100), subflow(100, 10)]);
        assert_close(increase(&list, 0), 200.0 / 10_020.0 / 10_020.0 * 250.5 * 100.8);
        // Ten such acknowledged segments add one.
        let mut list = subflows(&[subflow(1, 1000), subflow(100, 10)]);
        list[0].set_ssthresh(1);
        let mut balia = build("balia");
        balia.ack_on(&mut list, 0, &ack(10));
        assert_eq!(list[0].cwnd(), 2);
    }

    #[test]
    fn the_least_threshold_is_one_with_several_subflows() {
        let mut list = subflows(&[subflow(2, 100), subflow(20, 100)]);
        assert_eq!(build("balia").ssthresh_on(&list, 0, LossCause::FastRetransmit, Time::ZERO), 1);
        assert_eq!(build("balia(least-ssthresh=2)").ssthresh_on(&list, 0, LossCause::Timeout, Time::ZERO), 2);
        list.pop();
        assert_eq!(build("balia").ssthresh_on(&list, 0, LossCause::FastRetransmit, Time::ZERO), 2);
    }
}
