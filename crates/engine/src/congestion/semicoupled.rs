//! SEMICOUPLED: Wischik, Raiciu, Greenhalgh, Handley, "Design, implementation and evaluation of congestion
//! control for multipath TCP", NSDI 2011, section 2.4.
//!
//! w_r: congestion window of subflow r (segments), w_total: the sum over the n subflows. For each segment
//! acknowledged on r in congestion avoidance, and at a loss on r:
//!
//! ```text
//! w_r += a / w_total
//! w_r  = w_r / 2
//! ```
//!
//! Where the loss rates p_r balance the two, w_r = (1/p_r) sqrt(2 a) / sqrt(sum_p 1/p_p): most on the less
//! congested paths, something on all. At equal loss rates w_total = sqrt(2 a n / p), TCP's for a = 1/n.
//!
//! Slow start and recovery are TCP's; ssthresh = max(w_r / 2, 2).
//!
//! Rulings: the subflows counted are the usable ones with a round-trip sample, as many as there are at the
//! moment; a backup only while it carries data.
//!
//! Parameters: `a` (segments; default 0, which stands for 1/n; 0 to 1).

use super::ControlEntry;
use super::additive::{AdditiveControl, AdditiveRule};
use super::siblings::{Siblings, counted, window};
use crate::metrics::SubflowMetrics;
use crate::registry::Parameter;

pub(super) const ENTRY: ControlEntry = ControlEntry {
    name: "semicoupled",
    summary: "coupled increase, each subflow's own decrease",
    source: "Wischik et al., NSDI 2011 section 2.4",
    parameters: &[Parameter::number(
        "a",
        0.0,
        (0.0, 1.0),
        "aggressiveness, segments; 0: one over the number of subflows",
    )],
    single_path: Some("reno"),
    ..ControlEntry::of(|values| AdditiveControl::boxed(SemiCoupled { a: values.number("a") }))
};

#[derive(Debug)]
struct SemiCoupled {
    a: f64,
}

/// Segments per acknowledged segment.
fn increase(r: &SubflowMetrics, siblings: Siblings<'_>, a: f64) -> f64 {
    let (mut total, mut n) = (0.0, 0.0);
    for p in counted(r, siblings) {
        total += window(p);
        n += 1.0;
    }
    let a = if a > 0.0 { a } else { 1.0 / n };
    a / total
}

impl AdditiveRule for SemiCoupled {
    const NAME: &'static str = ENTRY.name;

    fn increase(&self, r: &SubflowMetrics, siblings: Siblings<'_>) -> f64 {
        increase(r, siblings, self.a)
    }
}

#[cfg(test)]
mod tests {
    use super::super::LossCause;
    use super::super::testing::{OnList, ack, assert_close, build, subflow, subflows};
    use super::*;
    use crate::Time;

    fn increase(list: &[SubflowMetrics], i: usize, a: f64) -> f64 {
        let (r, siblings) = Siblings::split(list, i);
        super::increase(r, siblings, a)
    }

    #[test]
    fn the_increase_is_a_over_all_windows() {
        // n = 2: a = 1/2; 0.5 / 40 = 0.0125. n = 3: (1/3) / 50.
        let two = subflows(&[subflow(10, 100), subflow(30, 10)]);
        assert_close(increase(&two, 0, 0.0), 0.0125);
        assert_close(increase(&two, 1, 0.0), 0.0125);
        assert_close(increase(&two, 1, 0.8), 0.02);
        let three = subflows(&[subflow(10, 100), subflow(30, 10), subflow(10, 1)]);
        assert_close(increase(&three, 2, 0.0), 1.0 / 150.0);
    }

    #[test]
    fn the_parameter_reaches_the_window_and_a_loss_takes_its_own_half() {
        // a = 0.4: 0.4/40 = 0.01: the 100th acknowledged segment adds one.
        let mut list = subflows(&[subflow(10, 100), subflow(30, 10)]);
        let mut control = build("semicoupled(a=0.4)");
        control.ack_on(&mut list, 0, &ack(99));
        assert_eq!(list[0].cwnd(), 10);
        control.ack_on(&mut list, 0, &ack(1));
        assert_eq!(list[0].cwnd(), 11);
        assert_eq!(control.ssthresh_on(&list, 1, LossCause::FastRetransmit, Time::ZERO), 15);
        list[1].set_cwnd(3);
        assert_eq!(control.ssthresh_on(&list, 1, LossCause::FastRetransmit, Time::ZERO), 2);
    }
}
