//! EWTCP, equally weighted TCP: Honda, Nishida, Eggert, Sarolahti, Tokuda, "Multipath congestion control for
//! shared bottleneck", PFLDNeT 2009; discussed in Wischik, Raiciu, Greenhalgh, Handley, "Design,
//! implementation and evaluation of congestion control for multipath TCP", NSDI 2011, section 2.1.
//!
//! w_r: congestion window of subflow r (segments), n: the number of subflows. For each segment acknowledged
//! on r in congestion avoidance, and at a loss on r:
//!
//! ```text
//! w_r += a / w_r
//! w_r  = w_r / 2
//! ```
//!
//! At a loss rate p the window settles where a/w = p w/2: w = sqrt(2 a / p), sqrt(a) times that of TCP. So
//! that n subflows at one bottleneck take together as much as one TCP, a = 1/n^2. (NSDI 2011 prints
//! a = 1/sqrt(n), which its own rule contradicts.) Nothing moves away from a congested path.
//!
//! Slow start and recovery are TCP's; ssthresh = max(w_r / 2, 2).
//!
//! Rulings: n counts the usable subflows with a round-trip sample; a backup only while it carries data. It is
//! n as it is at the moment.
//!
//! Parameters: `a` (segments per round trip; default 0, which stands for 1/n^2; 0 to 1).

use super::ControlEntry;
use super::additive::{AdditiveControl, AdditiveRule};
use super::siblings::{Siblings, counted, window};
use crate::metrics::SubflowMetrics;
use crate::registry::Parameter;

pub(super) const ENTRY: ControlEntry = ControlEntry {
    name: "ewtcp",
    summary: "equally weighted: each of n subflows as aggressive as 1/n of a TCP",
    source: "Honda et al., PFLDNeT 2009; Wischik et al., NSDI 2011 section 2.1",
    parameters: &[Parameter::number(
        "a",
        0.0,
        (0.0, 1.0),
        "increase per round trip, segments; 0: one over the square of the number of subflows",
    )],
    single_path: Some("reno"),
    ..ControlEntry::of(|values| AdditiveControl::boxed(Ewtcp { a: values.number("a") }))
};

#[derive(Debug)]
struct Ewtcp {
    a: f64,
}

/// Segments per acknowledged segment.
fn increase(r: &SubflowMetrics, siblings: Siblings<'_>, a: f64) -> f64 {
    let a = if a > 0.0 {
        a
    } else {
        let n = counted(r, siblings).count() as f64;
        1.0 / (n * n)
    };
    a / window(r)
}

impl AdditiveRule for Ewtcp {
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
    fn the_weight_is_one_over_n_squared_or_what_is_given() {
        let two = subflows(&[subflow(10, 100), subflow(50, 10)]);
        assert_close(increase(&two, 0, 0.0), 1.0 / 40.0);
        assert_close(increase(&two, 1, 0.0), 1.0 / 200.0);
        assert_close(increase(&two, 0, 0.5), 0.05);
        let three = subflows(&[subflow(10, 100), subflow(50, 10), subflow(1, 1)]);
        assert_close(increase(&three, 0, 0.0), 1.0 / 90.0);
    }

    #[test]
    fn the_parameter_reaches_the_window() {
        // a = 0.25 and w = 10: 40 acknowledged segments for one.
        let mut list = subflows(&[subflow(10, 100)]);
        let mut ewtcp = build("ewtcp(a=0.25)");
        ewtcp.ack_on(&mut list, 0, &ack(39));
        assert_eq!(list[0].cwnd(), 10);
        ewtcp.ack_on(&mut list, 0, &ack(1));
        assert_eq!(list[0].cwnd(), 11);
        assert_eq!(ewtcp.ssthresh_on(&list, 0, LossCause::FastRetransmit, Time::ZERO), 5);
        list[0].set_cwnd(3);
        assert_eq!(ewtcp.ssthresh_on(&list, 0, LossCause::FastRetransmit, Time::ZERO), 2);
    }
}
