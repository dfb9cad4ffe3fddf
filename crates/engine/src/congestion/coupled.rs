//! COUPLED: Wischik, Raiciu, Greenhalgh, Handley, "Design, implementation and evaluation of congestion
//! control for multipath TCP", NSDI 2011, section 2.2 (after Kelly and Voice 2005, Han et al. 2006).
//!
//! w_r: congestion window of subflow r (segments), w_total: the sum over the subflows. For each segment
//! acknowledged on r in congestion avoidance, and at a loss on r:
//!
//! ```text
//! w_r += 1 / w_total
//! w_r -= w_total / 2, at least 1 left
//! ```
//!
//! All traffic goes to the least congested paths; on equally congested ones it flaps between them, since a
//! loss costs a subflow half of the whole. With one subflow it is Reno.
//!
//! Rulings. The bound of 1 is the paper's (a subflow must go on probing); with one subflow it is Reno's 2.
//! Slow start and recovery are TCP's. w_total counts the usable subflows with a round-trip sample; a backup
//! only while it carries data.
//!
//! Parameters: none.

use super::additive::{AdditiveControl, AdditiveRule};
use super::siblings::{Siblings, counted, window};
use super::{ControlEntry, LossCause};
use crate::metrics::SubflowMetrics;
use crate::registry::Exception;

pub(super) const ENTRY: ControlEntry = ControlEntry {
    name: "coupled",
    summary: "fully coupled: all traffic to the least congested paths",
    source: "Wischik et al., NSDI 2011 section 2.2",
    exceptions: &[Exception {
        rule: "ssthresh",
        reason: "section 2.2 subtracts half of all windows, and leaves 1 segment when there are several \
                 subflows",
    }],
    single_path: Some("reno"),
    ..ControlEntry::of(|_| AdditiveControl::boxed(Coupled))
};

#[derive(Debug)]
struct Coupled;

/// Segments per acknowledged segment.
fn increase(r: &SubflowMetrics, siblings: Siblings<'_>) -> f64 {
    1.0 / counted(r, siblings).map(window).sum::<f64>()
}

impl AdditiveRule for Coupled {
    const NAME: &'static str = ENTRY.name;

    fn increase(&self, r: &SubflowMetrics, siblings: Siblings<'_>) -> f64 {
        increase(r, siblings)
    }

    fn ssthresh(&mut self, r: &SubflowMetrics, siblings: Siblings<'_>, _cause: LossCause) -> u32 {
        let (mut total, mut n) = (0u64, 0);
        for p in counted(r, siblings) {
            total += u64::from(p.cwnd());
            n += 1;
        }
        let left = u64::from(r.cwnd()).saturating_sub(total.div_ceil(2));
        // A loss on a small subflow would leave it nothing: one segment goes on probing its path.
        (left as u32).max(if n > 1 { 1 } else { 2 })
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
    fn the_increase_is_shared_and_the_decrease_is_half_of_all() {
        let list = subflows(&[subflow(10, 100), subflow(30, 10)]);
        assert_close(increase(&list, 0), 0.025);
        assert_close(increase(&list, 1), 0.025);
        let mut coupled = build("coupled");
        // 30 - 40/2 = 10; 10 - 20 < 1.
        assert_eq!(coupled.ssthresh_on(&list, 1, LossCause::FastRetransmit, Time::ZERO), 10);
        assert_eq!(coupled.ssthresh_on(&list, 0, LossCause::FastRetransmit, Time::ZERO), 1);
    }

    #[test]
    fn one_subflow_is_halved_as_renos() {
        for (cwnd, expected) in [(30, 15), (31, 15), (3, 2), (1, 2)] {
            let list = subflows(&[subflow(cwnd, 10)]);
            assert_eq!(
                build("coupled").ssthresh_on(&list, 0, LossCause::FastRetransmit, Time::ZERO),
                expected
            );
        }
    }

    #[test]
    fn the_window_follows() {
        // 1/40 per segment: the 40th adds one; then 1/41.
        let mut list = subflows(&[subflow(10, 100), subflow(30, 10)]);
        let mut coupled = build("coupled");
        coupled.ack_on(&mut list, 0, &ack(39));
        assert_eq!(list[0].cwnd(), 10);
        coupled.ack_on(&mut list, 0, &ack(1));
        assert_eq!(list[0].cwnd(), 11);
        coupled.ack_on(&mut list, 1, &ack(40));
        assert_eq!(list[1].cwnd(), 30);
        coupled.ack_on(&mut list, 1, &ack(1));
        assert_eq!(list[1].cwnd(), 31);
    }

    #[test]
    fn a_stretch_ack_goes_on_from_the_new_window() {
        // Half a segment is earned; 20 more make a whole, and the 41 after them another at 1/41 each.
        let mut list = subflows(&[subflow(10, 100), subflow(30, 10)]);
        let mut coupled = build("coupled");
        coupled.ack_on(&mut list, 0, &ack(20));
        coupled.ack_on(&mut list, 0, &ack(20 + 40));
        assert_eq!(list[0].cwnd(), 11);
        let mut list = subflows(&[subflow(10, 100), subflow(30, 10)]);
        let mut coupled = build("coupled");
        coupled.ack_on(&mut list, 0, &ack(20));
        coupled.ack_on(&mut list, 0, &ack(20 + 41));
        assert_eq!(list[0].cwnd(), 12);
    }
}
