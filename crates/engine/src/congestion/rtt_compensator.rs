//! The RTT compensator, MPTCP's algorithm as NSDI 2011 has it: Wischik, Raiciu, Greenhalgh, Handley,
//! "Design, implementation and evaluation of congestion control for multipath TCP", section 2.5, Equation 1.
//!
//! w_r: congestion window of subflow r (segments), rtt_r: its smoothed round-trip time (seconds), R: the
//! subflows. For each segment acknowledged on r in congestion avoidance, and at a loss on r:
//!
//! ```text
//! w_r += min over S in R with r in S of  max_{s in S}(w_s / rtt_s^2) / (sum_{s in S} w_s / rtt_s)^2   (1)
//! w_r  = w_r / 2
//! ```
//!
//! So at equilibrium no set of subflows takes more than TCP would on its best path. For S = {r} the term is
//! 1/w_r, for S = R it is LIA's: with two subflows the rule is RFC 6356's, with three or more it grows at
//! most as fast.
//!
//! The minimum need not be sought over all sets (the paper's appendix): with the subflows ordered by
//! sqrt(w)/rtt, for each u from r on the best set with u as its maximum is every subflow up to u.
//!
//! Slow start and recovery are TCP's; ssthresh = max(w_r / 2, 2). Rulings: the increase is computed when a
//! window changes or a round trip starts (see `additive.rs`); the subflows counted are the usable ones with
//! a round-trip sample; a backup only while it carries data.
//!
//! Parameters: none.

use super::ControlEntry;
use super::additive::{AdditiveControl, AdditiveRule};
use super::siblings::{Siblings, counted, rate, rtt};
use crate::metrics::SubflowMetrics;

pub(super) const ENTRY: ControlEntry = ControlEntry {
    name: "rtt-compensator",
    summary: "no set of subflows takes more than one TCP on its best path",
    source: "Wischik et al., NSDI 2011 section 2.5 Equation 1",
    single_path: Some("reno"),
    ..ControlEntry::of(|_| AdditiveControl::boxed(RttCompensator))
};

#[derive(Debug)]
struct RttCompensator;

/// The square of sqrt(w)/rtt, by which the subflows are ordered: what TCP's rate on the path grows with.
fn order(subflow: &SubflowMetrics) -> f64 {
    rate(subflow) / rtt(subflow)
}

/// Segments per acknowledged segment.
fn increase(r: &SubflowMetrics, siblings: Siblings<'_>) -> f64 {
    let own = order(r);
    counted(r, siblings)
        .map(order)
        .filter(|greatest| *greatest >= own)
        .map(|greatest| {
            let total: f64 = counted(r, siblings).filter(|p| order(p) <= greatest).map(rate).sum();
            greatest / (total * total)
        })
        .fold(f64::INFINITY, f64::min)
}

impl AdditiveRule for RttCompensator {
    const NAME: &'static str = ENTRY.name;

    fn increase(&self, r: &SubflowMetrics, siblings: Siblings<'_>) -> f64 {
        increase(r, siblings)
    }
}

#[cfg(test)]
mod tests {
    use super::super::LossCause;
    use super::super::testing::{OnList, ack, assert_close, build, subflow, subflows};
    use super::*;
    use crate::Time;

    fn increase(list: &[SubflowMetrics], i: usize) -> f64 {
        let (r, siblings) = Siblings::split(list, i);
        super::increase(r, siblings)
    }

    /// Equation 1 as it is printed, over all sets.
    fn by_definition(subflows: &[SubflowMetrics], r: usize) -> f64 {
        let mut least = f64::INFINITY;
        for set in 0u32..1 << subflows.len() {
            if set & (1 << r) == 0 {
                continue;
            }
            let inside = || subflows.iter().enumerate().filter(|(s, _)| set & (1 << s) != 0);
            let greatest = inside().map(|(_, subflow)| rate(subflow) / rtt(subflow)).fold(0.0, f64::max);
            let total: f64 = inside().map(|(_, subflow)| rate(subflow)).sum();
            least = least.min(greatest / (total * total));
        }
        least
    }

    #[test]
    fn hand_computed_with_three_subflows() {
        // w 10, 10, 10; rtt 10, 100, 100 ms: w/rtt^2 = 100000, 1000, 1000; x = 1000, 100, 100.
        // r = 1: {1}: 1000/100^2 = 0.1; {1,2}: 1000/200^2 = 0.025; all: 100000/1200^2 = 0.0694.
        // So 0.025, where LIA has 0.0694. r = 0: {0}: 0.1; all: 0.0694.
        let list = subflows(&[subflow(10, 10), subflow(10, 100), subflow(10, 100)]);
        assert_close(increase(&list, 1), 0.025);
        assert_close(increase(&list, 2), 0.025);
        assert_close(increase(&list, 0), 100_000.0 / 1_440_000.0);
    }

    #[test]
    fn the_short_search_finds_the_minimum_over_all_sets() {
        // A small generator (Knuth's MMIX constants) is random enough for windows and round-trip times.
        let mut state = 1u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below + 1
        };
        for n in [2, 3, 4, 5] {
            for _ in 0..200 {
                let list: Vec<_> = (0..n).map(|_| subflow(next(100) as u32, next(300))).collect();
                let list = subflows(&list);
                for r in 0..n {
                    assert_close(increase(&list, r), by_definition(&list, r));
                }
            }
        }
    }

    #[test]
    fn the_window_follows_and_a_loss_halves() {
        let mut list = subflows(&[subflow(10, 100), subflow(10, 100)]);
        let mut control = build("rtt-compensator");
        control.ack_on(&mut list, 0, &ack(39));
        assert_eq!(list[0].cwnd(), 10);
        control.ack_on(&mut list, 0, &ack(1));
        assert_eq!(list[0].cwnd(), 11);
        assert_eq!(control.ssthresh_on(&list, 0, LossCause::FastRetransmit, Time::ZERO), 5);
        list[0].set_cwnd(1);
        assert_eq!(control.ssthresh_on(&list, 0, LossCause::FastRetransmit, Time::ZERO), 2);
    }
}
