//! Veno: Fu and Liew, "TCP Veno: TCP enhancement for transmission over wireless access networks", IEEE JSAC
//! 21(2), 2003.
//!
//! cwnd: congestion window (segments), base: least round-trip time since the last loss, rtt: round-trip time
//! of the last round (seconds), N: the segments queued (section II.A). With
//!
//! ```text
//! N = cwnd (rtt - base) / rtt
//! per acknowledged segment:  cwnd += 1/cwnd       N < beta   (section II.B)
//!                            cwnd += 1/(2 cwnd)   N >= beta
//! fast retransmit:           cwnd = 4/5 cwnd      N < beta   the loss is taken for random (section II.C)
//!                            cwnd = 1/2 cwnd      N >= beta  ... for congestion
//! ```
//!
//! Timeouts and slow start are Reno's.
//!
//! Uncoupled: each subflow is a connection of its own.
//!
//! Rulings. rtt is the least sample of the round trip, of three at least, as in Linux; N stays as it was
//! until a round trip has them, and starts at 0. "Every other ACK" is half the increase per acknowledged
//! segment. An ECN mark is no random loss: half. beta = 3 is the paper's.
//!
//! Preset `linux`: base is the least of the whole connection, and a timeout too takes only a fifth when N <
//! beta.
//!
//! Parameters: `beta` (3 segments; 0 to 1000), `reset-base` (true: base is measured anew after each loss;
//! preset `linux`: false), `timeouts-differ` (false; preset `linux`: true).

use std::fmt::Debug;
use std::marker::PhantomData;

use super::additive::{AdditiveControl, AdditiveRule};
use super::delay::{Delay, Round};
use super::siblings::{PerSubflow, Siblings, window};
use super::vegas::queued;
use super::{Ack, ControlEntry, LossCause, half_window};
use crate::metrics::SubflowMetrics;
use crate::registry::{Kernel, Parameter, Preset, Values};

pub(super) const ENTRY: ControlEntry = ControlEntry {
    name: "veno",
    summary: "uncoupled: Reno that takes a fifth instead of half when a loss looks random",
    source: "Fu and Liew, IEEE JSAC 21(2), 2003, section II",
    parameters: PARAMETERS,
    presets: PRESETS,
    kernels: &[Kernel::Linux.has()],
    ..ControlEntry::of(|values| AdditiveControl::boxed(Veno::<Uncoupled>::new(values)))
};

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter::number("beta", 3.0, (0.0, 1000.0), "queued segments from which a loss is congestion"),
    Parameter::switch("reset-base", true, "measure the base round-trip time anew after each loss"),
    Parameter::switch("timeouts-differ", false, "a timeout too takes a fifth only when it looks random"),
];

pub(super) const PRESETS: &[Preset] = &[Preset {
    name: "linux",
    summary: "as Linux's tcp_veno",
    values: &[("reset-base", 0.0), ("timeouts-differ", 1.0)],
}];

/// Veno's estimate of the queued segments, and the rules that depend on it.
#[derive(Debug)]
struct Backlog {
    states: PerSubflow<State>,
    beta: f64,
    reset_base: bool,
    timeouts_differ: bool,
}

#[derive(Debug, Default)]
struct State {
    delay: Delay,
    /// N, segments.
    n: f64,
}

impl Backlog {
    fn new(values: &Values) -> Self {
        Backlog {
            states: PerSubflow::default(),
            beta: values.number("beta"),
            reset_base: values.switch("reset-base"),
            timeouts_differ: values.switch("timeouts-differ"),
        }
    }

    /// Adds an ACK's sample. N changes only with an ACK that starts a round trip.
    fn on_ack(&mut self, subflow: &SubflowMetrics, ack: &Ack) {
        let state = self.states.at(subflow.id);
        if let Round::Measured(trip) = state.delay.on_ack(ack) {
            state.n = queued(subflow.cwnd(), trip.base, trip.least);
        }
    }

    /// N of a subflow, segments.
    fn queued(&self, subflow: &SubflowMetrics) -> f64 {
        self.states.get(subflow.id).map_or(0.0, |state| state.n)
    }

    /// Factor of the increase: 1, or 1/2 when the path is fully used.
    fn pace(&self, subflow: &SubflowMetrics) -> f64 {
        if self.queued(subflow) < self.beta { 1.0 } else { 0.5 }
    }

    /// The threshold after a loss.
    fn ssthresh(&mut self, subflow: &SubflowMetrics, cause: LossCause) -> u32 {
        let may_be_random = match cause {
            LossCause::FastRetransmit => true,
            LossCause::Timeout => self.timeouts_differ,
            LossCause::Ecn => false,
        };
        // With little queued a router had no reason to drop: the loss is taken for the radio's.
        let random = may_be_random && self.queued(subflow) < self.beta;
        let state = self.states.at(subflow.id);
        if self.reset_base {
            state.delay.restart();
        } else {
            state.delay.forget_round();
        }
        if random { ((u64::from(subflow.cwnd()) * 4 / 5) as u32).max(2) } else { half_window(subflow, 2) }
    }
}

/// How `veno` and `mveno` differ.
pub(super) trait Growth: Debug + Send {
    /// The control's name in the registry.
    const NAME: &'static str;

    /// Increase on subflow `r` while less than beta is queued, segments per acknowledged segment.
    fn increase(r: &SubflowMetrics, siblings: Siblings<'_>) -> f64;

    /// What it shows beside N.
    fn metrics(r: &SubflowMetrics, siblings: Siblings<'_>) -> Option<(&'static str, f64)>;
}

/// Veno's losses and pace, with the increase of `G`.
#[derive(Debug)]
pub(super) struct Veno<G> {
    backlog: Backlog,
    growth: PhantomData<G>,
}

impl<G> Veno<G> {
    pub(super) fn new(values: &Values) -> Self {
        Veno { backlog: Backlog::new(values), growth: PhantomData }
    }
}

impl<G: Growth> AdditiveRule for Veno<G> {
    const NAME: &'static str = G::NAME;

    fn increase(&self, r: &SubflowMetrics, siblings: Siblings<'_>) -> f64 {
        self.backlog.pace(r) * G::increase(r, siblings)
    }

    fn ssthresh(&mut self, r: &SubflowMetrics, _: Siblings<'_>, cause: LossCause) -> u32 {
        self.backlog.ssthresh(r, cause)
    }

    fn subflow_added(&mut self, r: &SubflowMetrics) {
        self.backlog.states.reset(r.id);
    }

    fn on_ack(&mut self, r: &SubflowMetrics, ack: &Ack) {
        self.backlog.on_ack(r, ack);
    }

    fn on_idle_restart(&mut self, r: &SubflowMetrics) {
        self.backlog.states.at(r.id).delay.restart();
    }

    fn metrics(&self, r: &SubflowMetrics, siblings: Siblings<'_>) -> Vec<(&'static str, f64)> {
        [("n", self.backlog.queued(r))].into_iter().chain(G::metrics(r, siblings)).collect()
    }
}

/// Each subflow grows as a connection of its own.
#[derive(Debug)]
struct Uncoupled;

impl Growth for Uncoupled {
    const NAME: &'static str = ENTRY.name;

    fn increase(r: &SubflowMetrics, _: Siblings<'_>) -> f64 {
        1.0 / window(r)
    }

    fn metrics(_: &SubflowMetrics, _: Siblings<'_>) -> Option<(&'static str, f64)> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::CongestionControl;
    use super::super::testing::{OnList, ack, assert_close, build, round_trip, subflow, subflows};
    use super::*;
    use crate::{Span, Time};

    /// A control that has seen a base of 100 ms and a round trip of `ms` at a window of 20.
    fn veno(spec: &str, ms: u64) -> (Box<dyn CongestionControl>, Vec<SubflowMetrics>) {
        let mut list = subflows(&[subflow(20, 100)]);
        let mut control = build(spec);
        control.added_on(&mut list, 0, Time::ZERO);
        // ACKs of nothing, so that the window stays where it is.
        for (samples, ms) in [(5, 100), (5, ms)] {
            for j in 0..samples {
                let sample = Some(ms * crate::MILLISECOND);
                control.ack_on(&mut list, 0, &Ack { rtt: sample, round_start: j == 0, ..ack(0) });
            }
        }
        control.ack_on(&mut list, 0, &Ack { round_start: true, ..ack(0) });
        (control, list)
    }

    #[test]
    fn n_is_the_backlog() {
        // w 20, base 100, rtt 125 ms: 4; 110 ms: 1.8182.
        let n = |ms| {
            let (control, list) = veno("veno", ms);
            control.metrics_on(&list, 0)[0].1
        };
        assert_close(n(125), 4.0);
        assert_close(n(110), 20.0 * 10.0 / 110.0);
    }

    #[test]
    fn a_random_loss_takes_a_fifth_and_congestion_half() {
        let losses = |spec, ms| {
            [LossCause::FastRetransmit, LossCause::Timeout, LossCause::Ecn].map(|cause| {
                let (mut control, list) = veno(spec, ms);
                control.ssthresh_on(&list, 0, cause, Time::ZERO)
            })
        };
        assert_eq!(losses("veno", 110), [16, 10, 10]);
        assert_eq!(losses("veno", 125), [10, 10, 10]);
        assert_eq!(losses("veno:linux", 110), [16, 16, 10]);
        assert_eq!(losses("veno(beta=5)", 125), [16, 10, 10]);
        // N = beta = 4 is congestion.
        assert_eq!(losses("veno(beta=4)", 125), [10, 10, 10]);
    }

    #[test]
    fn the_path_is_full_from_beta_on() {
        let subflow = &subflows(&[subflow(20, 100)])[0];
        let states = PerSubflow::default();
        let mut backlog = Backlog { states, beta: 4.0, reset_base: true, timeouts_differ: false };
        for (n, pace) in [(3.99, 1.0), (4.0, 0.5), (4.01, 0.5)] {
            backlog.states.at(subflow.id).n = n;
            assert_close(backlog.pace(subflow), pace);
        }
        backlog.states.reset(subflow.id);
        assert_close(backlog.queued(subflow), 0.0);
    }

    #[test]
    fn the_least_threshold_is_two() {
        let (mut control, mut list) = veno("veno", 110);
        list[0].set_cwnd(2);
        assert_eq!(control.ssthresh_on(&list, 0, LossCause::FastRetransmit, Time::ZERO), 2);
    }

    #[test]
    fn a_full_path_is_probed_at_half_the_pace() {
        for (ms, needed) in [(110, 20), (125, 40)] {
            let (mut control, mut list) = veno("veno", ms);
            control.ack_on(&mut list, 0, &ack(needed - 1));
            assert_eq!(list[0].cwnd(), 20, "{ms} ms");
            control.ack_on(&mut list, 0, &ack(1));
            assert_eq!(list[0].cwnd(), 21, "{ms} ms");
        }
    }

    #[test]
    fn the_base_is_measured_anew_after_a_loss() {
        for (spec, expected) in [("veno", 0.0), ("veno:linux", 20.0 * 100.0 / 200.0)] {
            let (mut control, mut list) = veno(spec, 110);
            control.ssthresh_on(&list, 0, LossCause::FastRetransmit, Time::ZERO);
            round_trip(&mut *control, &mut list, 0, 5, 200);
            list[0].set_cwnd(20);
            control.ack_on(&mut list, 0, &Ack { round_start: true, ..ack(0) });
            assert_close(control.metrics_on(&list, 0)[0].1, expected);
        }
        // And after an idle time.
        let (mut control, mut list) = veno("veno:linux", 110);
        control.idle_restart_on(&list, 0, Span::from_nanos(1));
        round_trip(&mut *control, &mut list, 0, 5, 200);
        control.ack_on(&mut list, 0, &Ack { round_start: true, ..ack(0) });
        assert_close(control.metrics_on(&list, 0)[0].1, 0.0);
    }

    #[test]
    fn a_loss_drops_the_round_trips_samples() {
        let (mut control, mut list) = veno("veno:linux", 110);
        round_trip(&mut *control, &mut list, 0, 5, 200);
        control.ssthresh_on(&list, 0, LossCause::FastRetransmit, Time::ZERO);
        control.ack_on(&mut list, 0, &Ack { round_start: true, ..ack(0) });
        assert_close(control.metrics_on(&list, 0)[0].1, 20.0 * 10.0 / 110.0);
    }
}
