//! The control that most algorithms share: TCP's slow start, an additive increase in congestion avoidance,
//! and a new threshold at a loss. What differs between them is an [`AdditiveRule`].
//!
//! The increase is a share of a segment per acknowledged segment. Shares are added up until they make a whole
//! segment.
//!
//! A coupled increase depends on every subflow's window and round-trip time. RFC 6356 4.1 allows computing it
//! only when the window grows by a segment, or once per round trip. Here it is computed again when
//!
//! - the subflow's own window changed,
//! - a window of the connection grew, or was reduced by a loss,
//! - a subflow came or went,
//! - a round trip of the subflow began.
//!
//! Every other ACK costs one multiplication and one addition.

use std::fmt::Debug;

use super::siblings::PerSubflow;
use super::{Ack, CongestionControl, LossCause, Siblings, half_window, slow_start};
use crate::congestion::AckCounting;
use crate::metrics::SubflowMetrics;
use crate::{Span, SubflowId, Time};

/// What distinguishes one additive control from another. State that a rule keeps per subflow is updated by
/// the hooks; most rules have none.
pub(super) trait AdditiveRule: Debug + Send {
    /// The control's name in the registry.
    const NAME: &'static str;

    /// Whether Linux 3.14's implementation counts by `tcp_cong_avoid_ai` or alike, so that a segment takes
    /// one ACK more than the increase says ([`AckCounting::OneInAvoidance`]).
    const ONE_ACK_MORE: bool = true;

    /// Increase in congestion avoidance on subflow `r`, segments per acknowledged segment. It is kept until a
    /// window changes or a round begins, so it may depend on nothing else; a rule that does implements
    /// `on_ack` itself, as CUBIC.
    fn increase(&self, r: &SubflowMetrics, siblings: Siblings<'_>) -> f64;

    /// Threshold after a loss on subflow `r`, segments.
    fn ssthresh(&mut self, r: &SubflowMetrics, siblings: Siblings<'_>, cause: LossCause) -> u32 {
        let _ = (siblings, cause);
        half_window(r, 2)
    }

    /// Subflow `r` joined.
    fn subflow_added(&mut self, r: &SubflowMetrics) {
        let _ = r;
    }

    /// Subflow `r` is gone.
    fn subflow_removed(&mut self, r: &SubflowMetrics) {
        let _ = r;
    }

    /// An ACK arrived on subflow `r`; called before the window grows.
    fn on_ack(&mut self, r: &SubflowMetrics, ack: &Ack) {
        let _ = (r, ack);
    }

    /// The last reduction on subflow `r` was spurious. Returns whether the rule restored state that the
    /// increase depends on.
    fn on_undo(&mut self, r: &SubflowMetrics) -> bool {
        let _ = r;
        false
    }

    /// Subflow `r` sends again after an idle time.
    fn on_idle_restart(&mut self, r: &SubflowMetrics) {
        let _ = r;
    }

    /// As [`CongestionControl::metrics`].
    fn metrics(&self, r: &SubflowMetrics, siblings: Siblings<'_>) -> Vec<(&'static str, f64)> {
        let _ = (r, siblings);
        Vec::new()
    }
}

/// A congestion control that follows an [`AdditiveRule`].
#[derive(Debug)]
pub(super) struct AdditiveControl<R> {
    rule: R,
    growth: AdditiveGrowth,
}

impl<R: AdditiveRule + 'static> AdditiveControl<R> {
    /// What an entry's `build` returns.
    pub(super) fn boxed(rule: R) -> Box<dyn CongestionControl> {
        Box::new(AdditiveControl { rule, growth: AdditiveGrowth::new() })
    }
}

impl<R: AdditiveRule> CongestionControl for AdditiveControl<R> {
    fn name(&self) -> &'static str {
        R::NAME
    }

    fn subflow_added(&mut self, subflow: &mut SubflowMetrics, _: Siblings<'_>, _: Time) {
        self.growth.reset(subflow.id);
        self.rule.subflow_added(subflow);
    }

    fn subflow_removed(&mut self, subflow: &SubflowMetrics, _: Siblings<'_>) {
        self.growth.reset(subflow.id);
        self.rule.subflow_removed(subflow);
    }

    fn on_ack(&mut self, subflow: &mut SubflowMetrics, siblings: Siblings<'_>, ack: &Ack) {
        self.rule.on_ack(subflow, ack);
        let rule = &self.rule;
        // With one ACK more for a segment than 1 / increase.
        let one_more = R::ONE_ACK_MORE && ack.counting == AckCounting::OneInAvoidance;
        self.growth.grow(subflow, ack, |subflow| {
            let increase = rule.increase(subflow, siblings);
            if one_more && increase > 0.0 { increase / (1.0 + increase) } else { increase }
        });
    }

    fn ssthresh(
        &mut self,
        subflow: &SubflowMetrics,
        siblings: Siblings<'_>,
        cause: LossCause,
        _: Time,
    ) -> u32 {
        self.growth.on_loss(subflow.id);
        self.rule.ssthresh(subflow, siblings, cause)
    }

    fn on_undo(&mut self, subflow: &SubflowMetrics, _: Siblings<'_>) {
        if self.rule.on_undo(subflow) {
            // The increase was computed from what the rule has just put back.
            self.growth.on_loss(subflow.id);
        }
    }

    fn on_idle_restart(&mut self, subflow: &SubflowMetrics, _: Siblings<'_>, _: Span) {
        self.rule.on_idle_restart(subflow);
    }

    fn metrics(&self, subflow: &SubflowMetrics, siblings: Siblings<'_>) -> Vec<(&'static str, f64)> {
        self.rule.metrics(subflow, siblings)
    }
}

/// Tolerance for a sum of shares to count as a whole segment. Ten times 0.1 falls short of 1 by rounding, and
/// the window must still grow with the tenth segment. Far below any increase that matters, far above the
/// rounding.
pub(super) const ROUNDING: f64 = 1e-9;

#[derive(Debug, Default)]
struct Credit {
    /// Part of a segment added up so far; negative if the window is to shrink.
    segments: f64,
    /// Increase per acknowledged segment, as last computed.
    increase: f64,
    /// Window that `increase` was computed for, segments.
    cwnd: u32,
    /// Epoch that `increase` was computed in; 0: never.
    epoch: u64,
}

/// Adds up the increases of a connection's subflows, and caches them.
#[derive(Debug)]
struct AdditiveGrowth {
    credits: PerSubflow<Credit>,
    /// Incremented when every cached increase becomes stale.
    epoch: u64,
}

impl AdditiveGrowth {
    fn new() -> Self {
        AdditiveGrowth { credits: PerSubflow::default(), epoch: 1 }
    }

    /// A subflow came or went.
    fn reset(&mut self, id: SubflowId) {
        self.credits.reset(id);
        self.epoch += 1;
    }

    /// A loss on a subflow: its credit is dropped, and every cached increase becomes stale.
    fn on_loss(&mut self, id: SubflowId) {
        self.credits.at(id).segments = 0.0;
        self.epoch += 1;
    }

    /// Slow start, then `increase(subflow)` segments per acknowledged segment.
    #[inline]
    fn grow(
        &mut self,
        subflow: &mut SubflowMetrics,
        ack: &Ack,
        increase: impl FnMut(&SubflowMetrics) -> f64,
    ) {
        if !ack.cwnd_limited {
            return;
        }
        let before = subflow.cwnd();
        let left = slow_start(subflow, ack);
        if subflow.cwnd() != before {
            self.epoch += 1;
        }
        if left > 0 {
            self.congestion_avoidance(subflow, left, ack.round_start, increase);
        }
    }

    /// Congestion avoidance alone: `increase(subflow)` for each of `acked` segments. A negative increase
    /// shrinks the window, to 1 at least.
    #[inline]
    fn congestion_avoidance(
        &mut self,
        subflow: &mut SubflowMetrics,
        acked: u32,
        round_start: bool,
        mut increase: impl FnMut(&SubflowMetrics) -> f64,
    ) {
        let credit = self.credits.at(subflow.id);
        let mut left = acked;
        let mut stale = round_start;
        loop {
            if stale || credit.epoch != self.epoch || credit.cwnd != subflow.cwnd() {
                credit.increase = increase(subflow);
                credit.cwnd = subflow.cwnd();
                credit.epoch = self.epoch;
                stale = false;
            }
            let sum = credit.segments + credit.increase * f64::from(left);
            if sum < 1.0 - ROUNDING && sum > -1.0 + ROUNDING {
                credit.segments = sum;
                return;
            }
            // The ACK completes a whole segment; what is left of it counts towards the next, at the new
            // window.
            // A negative increase, as OLIA's, adds up to whole segments in the same way.
            let whole = if credit.increase > 0.0 { 1.0 } else { -1.0 };
            let needed = libm::ceil((whole - credit.segments) / credit.increase - ROUNDING).max(0.0);
            let used = (needed as u32).min(left);
            credit.segments += credit.increase * f64::from(used) - whole;
            if whole > 0.0 {
                credit.segments = credit.segments.max(0.0);
                subflow.set_cwnd(subflow.cwnd().saturating_add(1));
            } else {
                credit.segments = credit.segments.min(0.0);
                subflow.set_cwnd(subflow.cwnd().saturating_sub(1).max(1));
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
        growth: AdditiveGrowth,
        subflows: Vec<SubflowMetrics>,
        computed: u32,
    }

    impl Pair {
        fn new() -> Self {
            Pair {
                growth: AdditiveGrowth::new(),
                subflows: subflows(&[subflow(10, 40), subflow(10, 40)]),
                computed: 0,
            }
        }

        /// An ACK on subflow `i`; returns how often the increase was computed for it.
        fn ack(&mut self, i: usize, ack: Ack, mut increase: impl FnMut(u32) -> f64) -> u32 {
            let before = self.computed;
            let computed = &mut self.computed;
            self.growth.grow(&mut self.subflows[i], &ack, |subflow| {
                *computed += 1;
                increase(subflow.cwnd())
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
        pair.subflows[0].set_cwnd(20);
        assert_eq!((pair.small(0), pair.small(0)), (1, 0), "another set its window");
        pair.growth.on_loss(SubflowId(1));
        assert_eq!((pair.small(0), pair.small(0)), (1, 0), "a sibling lost");
        pair.growth.reset(SubflowId(1));
        assert_eq!((pair.small(0), pair.small(0)), (1, 0), "a sibling came or went");
        pair.ack(1, ack(1), |_| 1.0);
        assert_eq!((pair.small(0), pair.small(0)), (1, 0), "a sibling grew");
        pair.subflows[1].set_ssthresh(u32::MAX);
        assert_eq!(pair.small(1), 0, "slow start uses the ACK up");
        assert_eq!((pair.small(0), pair.small(0)), (1, 0), "a sibling grew in slow start");
        let idle = Ack { cwnd_limited: false, ..ack(1) };
        assert_eq!((pair.ack(1, idle, |_| 1.0), pair.ack(1, ack(0), |_| 1.0)), (0, 0));
        assert_eq!(pair.small(0), 0, "a sibling did nothing");
    }

    #[test]
    fn a_host_that_counts_acks_adds_one_share_an_ack() {
        let mut pair = Pair::new();
        for _ in 0..9 {
            pair.ack(0, Ack { counting: AckCounting::OneInAvoidance, ..ack(2) }, |_| 0.1);
        }
        assert_eq!(pair.subflows[0].cwnd(), 10);
        pair.ack(0, Ack { counting: AckCounting::OneInAvoidance, ..ack(2) }, |_| 0.1);
        assert_eq!(pair.subflows[0].cwnd(), 11);
    }

    #[test]
    fn a_loss_and_a_new_subflow_forget_the_fraction() {
        let forgetting: [fn(&mut AdditiveGrowth); 2] =
            [|growth| growth.on_loss(SubflowId(0)), |growth| growth.reset(SubflowId(0))];
        for forget in forgetting {
            let mut pair = Pair::new();
            pair.ack(0, ack(9), |_| 0.1);
            forget(&mut pair.growth);
            pair.ack(0, ack(9), |_| 0.1);
            assert_eq!(pair.subflows[0].cwnd(), 10);
            pair.ack(0, ack(1), |_| 0.1);
            assert_eq!(pair.subflows[0].cwnd(), 11);
        }
    }

    #[test]
    fn a_stretch_ack_goes_on_at_the_new_windows_rate_with_the_segment_after_the_full_one() {
        // Of 12 segments ten make a whole one, and each of the other two does.
        let mut pair = Pair::new();
        pair.ack(0, ack(12), |cwnd| if cwnd == 10 { 0.1 } else { 1.0 });
        assert_eq!(pair.subflows[0].cwnd(), 13);
        let mut pair = Pair::new();
        pair.ack(0, ack(12), |cwnd| if cwnd == 10 { -0.1 } else { -1.0 });
        assert_eq!(pair.subflows[0].cwnd(), 7);
        // With half of one sum before, of 10 segments five do; 4 of 0.3 make the next, and one is left.
        let mut pair = Pair::new();
        pair.ack(0, ack(5), |_| 0.1);
        pair.ack(0, ack(10), |cwnd| if cwnd == 10 { 0.1 } else { 0.3 });
        assert_eq!(pair.subflows[0].cwnd(), 12);
        pair.ack(0, ack(1), |_| 0.49);
        assert_eq!(pair.subflows[0].cwnd(), 12, "0.2 + 0.3 + 0.49");
        pair.ack(0, ack(1), |_| 0.01);
        assert_eq!(pair.subflows[0].cwnd(), 13);
    }

    #[test]
    fn what_falls_short_of_a_segment_by_the_rounding_is_one() {
        let mut pair = Pair::new();
        pair.ack(0, ack(1), |_| 1.0 - ROUNDING);
        assert_eq!(pair.subflows[0].cwnd(), 11);
        pair.ack(0, ack(1), |_| ROUNDING - 1.0);
        assert_eq!(pair.subflows[0].cwnd(), 10);
        pair.ack(0, ack(1), |_| 1.0 - 2.0 * ROUNDING);
        assert_eq!(pair.subflows[0].cwnd(), 10);
    }
}
