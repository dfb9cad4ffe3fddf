//! Vegas: Brakmo and Peterson, "TCP Vegas: end to end congestion avoidance on a global Internet", IEEE JSAC
//! 13(8), 1995.
//!
//! cwnd: congestion window (segments), base: least round-trip time seen, rtt: round-trip time of the last
//! round (seconds). Once per round trip (section 3.3), with
//!
//! ```text
//! diff = (cwnd/base - cwnd/rtt) base         the segments queued in the network
//! diff < alpha:  cwnd += 1
//! diff > beta:   cwnd -= 1
//! otherwise:     cwnd stays
//! ```
//!
//! Slow start (section 3.4) doubles the window every other round trip only, so that rates are compared at a
//! fixed window, and ends when diff > gamma.
//!
//! Uncoupled: each subflow is a connection of its own.
//!
//! Rulings. rtt is the least sample of the round trip, as in Linux, which takes the delays of delayed ACKs
//! out; with fewer than three samples it is ignored, and the window grows by one segment as Reno's.
//! When slow start ends, the window is reduced to the path's capacity by base and rtt, cwnd base/rtt + 1
//! (Linux). The window stays at 2 segments or more, and the threshold at most at the window, or the next
//! round trip would be slow start. Losses halve, ssthresh = max(cwnd/2, 2), as Linux and
//! unlike the paper, whose smaller decrease belongs to its own loss detection. After an idle time the base
//! is measured again (Linux). alpha 2, beta 4 and gamma 1 are the paper's and Linux's.
//!
//! Preset `linux`: slow start doubles every round trip.
//!
//! Parameters, in segments: `alpha` (2; 0 to 1000), `beta` (4; 0 to 1000), `gamma` (1; 0 to 1000); and
//! `every-other` (true: slow start grows in every other round trip; preset `linux`: false).

use super::delay::{Delay, Round, RoundTrip};
use super::siblings::PerSubflow;
use super::{Ack, CongestionControl, ControlEntry, LossCause, Siblings, half_window, slow_start};
use crate::metrics::SubflowMetrics;
use crate::registry::{Kernel, Parameter, Preset};
use crate::{Span, Time};

pub(super) const ENTRY: ControlEntry = ControlEntry {
    name: "vegas",
    summary: "uncoupled, delay-based: keeps a few segments queued",
    source: "Brakmo and Peterson, IEEE JSAC 13(8), 1995, sections 3.3 and 3.4",
    parameters: &[
        Parameter::number("alpha", 2.0, (0.0, 1000.0), "grow below so many queued segments"),
        Parameter::number("beta", 4.0, (0.0, 1000.0), "shrink above so many queued segments"),
        Parameter::number("gamma", 1.0, (0.0, 1000.0), "end slow start above so many queued segments"),
        Parameter::switch("every-other", true, "slow start grows in every other round trip only"),
    ],
    presets: &[Preset {
        name: "linux",
        summary: "slow start grows in every round trip, as in Linux's tcp_vegas",
        values: &[("every-other", 0.0)],
    }],
    kernels: &[Kernel::Linux.has()],
    ..ControlEntry::of(|values| {
        Box::new(Vegas {
            states: PerSubflow::default(),
            alpha: values.number("alpha"),
            beta: values.number("beta"),
            gamma: values.number("gamma"),
            every_other: values.switch("every-other"),
        })
    })
};

#[derive(Debug, Default)]
struct State {
    delay: Delay,
    /// Slow start doesn't grow in this round trip.
    resting: bool,
    /// The last diff, segments.
    diff: f64,
}

#[derive(Debug)]
struct Vegas {
    states: PerSubflow<State>,
    alpha: f64,
    beta: f64,
    gamma: f64,
    every_other: bool,
}

/// diff = (w/base - w/rtt) base, segments.
pub(super) fn queued(cwnd: u32, base: Span, rtt: Span) -> f64 {
    f64::from(cwnd) * rtt.saturating_sub(base).as_nanos() as f64
        / rtt.max(Span::from_nanos(1)).as_nanos() as f64
}

/// Ends slow start: sets the window to the path's capacity and the threshold to the window.
pub(super) fn leave_slow_start(subflow: &mut SubflowMetrics, base: Span, rtt: Span) {
    let held = (f64::from(subflow.cwnd()) * base.as_nanos() as f64
        / rtt.max(Span::from_nanos(1)).as_nanos() as f64) as u32;
    subflow.set_cwnd(subflow.cwnd().min(held.saturating_add(1)).max(2));
    subflow.set_ssthresh(subflow.ssthresh().min(subflow.cwnd()));
}

/// Shrinks the window by one segment, to 2 at least; the threshold follows.
pub(super) fn shrink(subflow: &mut SubflowMetrics) {
    if subflow.cwnd() > 2 {
        subflow.set_cwnd(subflow.cwnd() - 1);
    }
    subflow.set_ssthresh(subflow.ssthresh().min(subflow.cwnd()));
}

/// Grows the window by one segment, if it is the limit.
pub(super) fn grow(subflow: &mut SubflowMetrics, ack: &Ack) {
    if ack.cwnd_limited {
        subflow.set_cwnd(subflow.cwnd().saturating_add(1));
    }
}

impl CongestionControl for Vegas {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn subflow_added(&mut self, subflow: &mut SubflowMetrics, _: Siblings<'_>, _now: Time) {
        self.states.reset(subflow.id);
    }

    fn on_ack(&mut self, subflow: &mut SubflowMetrics, _: Siblings<'_>, ack: &Ack) {
        let state = self.states.at(subflow.id);
        let round = state.delay.on_ack(ack);
        if let Round::Measured(RoundTrip { base, least, .. }) = round {
            state.diff = queued(subflow.cwnd(), base, least);
        }
        if subflow.in_slow_start() {
            match round {
                Round::Measured(RoundTrip { base, least, .. }) if state.diff > self.gamma => {
                    leave_slow_start(subflow, base, least);
                    return;
                }
                Round::Running => {}
                // A round without enough samples counts too: the window was fixed or grew in it all the same.
                _ => state.resting = self.every_other && !state.resting,
            }
            if ack.cwnd_limited && !state.resting {
                slow_start(subflow, ack);
            }
            return;
        }
        match round {
            Round::Running => {}
            // As Linux's `tcp_vegas`: few samples may all be of delayed ACKs, and then it is Reno.
            Round::Unmeasured => grow(subflow, ack),
            Round::Measured(_) if state.diff > self.beta => shrink(subflow),
            Round::Measured(_) if state.diff < self.alpha => grow(subflow, ack),
            Round::Measured(_) => {}
        }
    }

    fn ssthresh(&mut self, subflow: &SubflowMetrics, _: Siblings<'_>, _: LossCause, _: Time) -> u32 {
        let state = self.states.at(subflow.id);
        state.delay.forget_round();
        state.resting = false;
        half_window(subflow, 2)
    }

    fn on_idle_restart(&mut self, subflow: &SubflowMetrics, _: Siblings<'_>, _: Span) {
        let state = self.states.at(subflow.id);
        state.delay.restart();
        state.resting = false;
    }

    fn metrics(&self, subflow: &SubflowMetrics, _: Siblings<'_>) -> Vec<(&'static str, f64)> {
        vec![("diff", self.states.get(subflow.id).map_or(0.0, |state| state.diff))]
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{OnList, ack, assert_close, build, round_trip, subflow, subflows};
    use super::*;
    use crate::MILLISECOND;

    #[test]
    fn diff_counts_the_queued_segments() {
        // w 20, base 100 ms, rtt 125 ms: 200/s expected, 160/s actual: 40 * 0.1 = 4.
        assert_close(queued(20, Span::from_nanos(100), Span::from_nanos(125)), 4.0);
        assert_close(queued(20, Span::from_nanos(100), Span::from_nanos(100)), 0.0);
    }

    #[test]
    fn once_per_round_trip_by_alpha_and_beta() {
        // base 100 ms, w 20: diff 2 at 111.11 ms, 4 at 125 ms. Samples of 105, 120 and 130 ms.
        for (ms, expected) in [(105, 21), (120, 20), (130, 19)] {
            let mut list = subflows(&[subflow(20, 100)]);
            let mut vegas = build("vegas");
            // The first round trip shows the base, and ends unmeasured before it began.
            round_trip(&mut *vegas, &mut list, 0, 20, 100);
            list[0].set_cwnd(20);
            round_trip(&mut *vegas, &mut list, 0, 20, ms);
            list[0].set_cwnd(20);
            vegas.ack_on(&mut list, 0, &Ack { round_start: true, ..ack(1) });
            assert_eq!(list[0].cwnd(), expected, "{ms} ms");
            // Within the round trip nothing moves.
            vegas.ack_on(&mut list, 0, &ack(10));
            assert_eq!(list[0].cwnd(), expected, "{ms} ms");
            assert_close(vegas.metrics_on(&list, 0)[0].1, 20.0 * (ms - 100) as f64 / ms as f64);
        }
    }

    #[test]
    fn the_thresholds_themselves_leave_the_window() {
        // diff exactly 4 = beta at 125 ms; alpha = beta = 4 is an equilibrium.
        for spec in ["vegas", "vegas(alpha=4)"] {
            let mut list = subflows(&[subflow(20, 100)]);
            let mut vegas = build(spec);
            round_trip(&mut *vegas, &mut list, 0, 20, 100);
            round_trip(&mut *vegas, &mut list, 0, 20, 125);
            list[0].set_cwnd(20);
            vegas.ack_on(&mut list, 0, &Ack { round_start: true, ..ack(1) });
            assert_eq!(list[0].cwnd(), 20, "{spec}");
        }
    }

    #[test]
    fn slow_start_doubles_every_other_round_trip() {
        let mut list = subflows(&[subflow(10, 100)]);
        list[0].set_ssthresh(u32::MAX);
        let mut vegas = build("vegas");
        let mut windows = Vec::new();
        for _ in 0..5 {
            let window = list[0].cwnd();
            round_trip(&mut *vegas, &mut list, 0, window, 100);
            windows.push(list[0].cwnd());
        }
        assert_eq!(windows, [10, 20, 20, 40, 40]);
        let mut list = subflows(&[subflow(10, 100)]);
        list[0].set_ssthresh(u32::MAX);
        let mut vegas = build("vegas:linux");
        round_trip(&mut *vegas, &mut list, 0, 10, 100);
        round_trip(&mut *vegas, &mut list, 0, 20, 100);
        assert_eq!(list[0].cwnd(), 40);
    }

    #[test]
    fn slow_start_ends_with_more_than_gamma_queued() {
        // w 20, base 100, rtt 110 ms: diff 1.82 > 1: the path holds 20 * 100/110 = 18.2 -> 18 + 1.
        let mut list = subflows(&[subflow(20, 100)]);
        list[0].set_ssthresh(u32::MAX);
        let mut vegas = build("vegas");
        round_trip(&mut *vegas, &mut list, 0, 20, 100);
        assert_eq!(list[0].cwnd(), 20);
        for ms in [110, 112, 115] {
            vegas.ack_on(&mut list, 0, &Ack { rtt: Some(ms * MILLISECOND), ..ack(0) });
        }
        // Those were part of the first round trip, whose least is 100 ms: nothing yet.
        vegas.ack_on(&mut list, 0, &Ack { round_start: true, ..ack(0) });
        assert!(list[0].in_slow_start());
        for ms in [110, 112, 115] {
            vegas.ack_on(&mut list, 0, &Ack { rtt: Some(ms * MILLISECOND), ..ack(0) });
        }
        vegas.ack_on(&mut list, 0, &Ack { round_start: true, ..ack(1) });
        assert_eq!((list[0].cwnd(), list[0].ssthresh()), (19, 19));
        assert!(!list[0].in_slow_start());
    }

    #[test]
    fn gamma_itself_queued_leaves_slow_start_going() {
        let mut list = subflows(&[subflow(20, 100)]);
        list[0].set_ssthresh(u32::MAX);
        let mut vegas = build("vegas(gamma=4)");
        round_trip(&mut *vegas, &mut list, 0, 20, 100);
        list[0].set_cwnd(20);
        for _ in 0..2 {
            // w 20, base 100, rtt 125 ms: exactly 4, at the end of the second.
            vegas.ack_on(&mut list, 0, &Ack { rtt: Some(125 * MILLISECOND), round_start: true, ..ack(0) });
            for _ in 0..3 {
                vegas.ack_on(&mut list, 0, &Ack { rtt: Some(125 * MILLISECOND), ..ack(0) });
            }
        }
        vegas.ack_on(&mut list, 0, &Ack { round_start: true, ..ack(0) });
        assert_close(vegas.metrics_on(&list, 0)[0].1, 4.0);
        assert!(list[0].in_slow_start());
    }

    #[test]
    fn a_window_of_two_stays_and_is_no_slow_start() {
        let mut list = subflows(&[subflow(2, 100)]);
        shrink(&mut list[0]);
        assert_eq!((list[0].cwnd(), list[0].ssthresh()), (2, 2));
        list[0].set_cwnd(3);
        list[0].set_ssthresh(3);
        shrink(&mut list[0]);
        assert_eq!((list[0].cwnd(), list[0].ssthresh()), (2, 2));
        // 4 segments, rtt ten times the base: the path holds less than 2.
        list[0].set_cwnd(4);
        leave_slow_start(&mut list[0], Span::from_nanos(1), Span::from_nanos(10));
        assert_eq!(list[0].cwnd(), 2);
    }

    #[test]
    fn unmeasured_round_trips_grow_as_reno() {
        let mut list = subflows(&[subflow(2, 100)]);
        let mut vegas = build("vegas");
        for expected in [3, 4, 5] {
            vegas.ack_on(&mut list, 0, &Ack { round_start: true, ..ack(2) });
            assert_eq!(list[0].cwnd(), expected);
        }
        vegas.ack_on(&mut list, 0, &Ack { round_start: true, cwnd_limited: false, ..ack(2) });
        assert_eq!(list[0].cwnd(), 5);
    }

    #[test]
    fn after_an_idle_time_the_base_is_measured_again() {
        let mut list = subflows(&[subflow(20, 100)]);
        let mut vegas = build("vegas");
        round_trip(&mut *vegas, &mut list, 0, 20, 100);
        vegas.idle_restart_on(&list, 0, Span::from_nanos(1));
        round_trip(&mut *vegas, &mut list, 0, 20, 200);
        vegas.ack_on(&mut list, 0, &Ack { round_start: true, ..ack(1) });
        assert_close(vegas.metrics_on(&list, 0)[0].1, 0.0);
    }

    #[test]
    fn a_loss_halves_and_drops_the_round_trips_samples() {
        let mut list = subflows(&[subflow(20, 100)]);
        let mut vegas = build("vegas");
        round_trip(&mut *vegas, &mut list, 0, 20, 100);
        list[0].set_cwnd(21);
        assert_eq!(vegas.ssthresh_on(&list, 0, LossCause::FastRetransmit, Time::ZERO), 10);
        list[0].set_cwnd(10);
        // Unmeasured: one segment, not a judgement on old samples.
        vegas.ack_on(&mut list, 0, &Ack { round_start: true, rtt: Some(900 * MILLISECOND), ..ack(1) });
        assert_eq!(list[0].cwnd(), 11);
        list[0].set_cwnd(3);
        assert_eq!(vegas.ssthresh_on(&list, 0, LossCause::Timeout, Time::ZERO), 2);
    }
}
