//! CUBIC: RFC 9438, with HyStart as Linux has it (Ha and Rhee 2011).
//!
//! t: time since the current epoch began (seconds), W_max: window before the last reduction, cwnd_epoch: window
//! when the epoch began (segments), C = 0.4 segments/s^3, beta = 0.7.
//!
//! ```text
//! K = cbrt((W_max - cwnd_epoch) / C)                      (Equation 2)
//! W_cubic(t) = C (t - K)^3 + W_max                        (Equation 1)
//! target = W_cubic(t + RTT), clamped to [cwnd, 1.5 cwnd]  (section 4.2)
//! w += (target - w) / w per acknowledged segment          (section 4.4)
//! W_est += alpha acked / w, alpha = 3 (1 - beta)/(1 + beta) until W_est >= W_max, then 1  (section 4.3)
//! loss: ssthresh = max(beta w, 2); fast convergence: W_max = w (1 + beta)/2 if w < W_max  (4.6, 4.7)
//! ```
//!
//! HyStart ends slow start before the loss: when the ACK train of one round lasts for half the least round-trip
//! time, or when the round's least of eight samples exceeds it by an eighth (4 to 16 ms).
//!
//! Rulings. Linux's form of slow growth: at least one segment per 100 acknowledged at the plateau. A parameter
//! switches HyStart off.

use super::subflows::PerSubflow;
use super::{Ack, CongestionControl, ControlEntry, LossCause, slow_start};
use crate::flow::Flow;
use crate::registry::Parameter;
use crate::{MILLISECOND, Nanos, SECOND};

const C: f64 = 0.4;

pub(super) const ENTRY: ControlEntry = ControlEntry {
    name: "cubic",
    summary: "uncoupled: the window is a cubic function of the time since the last loss",
    source: "RFC 9438; HyStart: Ha and Rhee, Computer Networks 55(9), 2011",
    parameters: &[
        Parameter::number("beta", 0.7, (0.1, 0.99), "part of the window kept at a loss"),
        Parameter::switch("hystart", true, "end slow start when delay or ACK trains say so"),
    ],
    presets: &[],
    exceptions: &[],
    build: |values| {
        Box::new(Cubic {
            beta: values.number("beta"),
            hystart: values.switch("hystart"),
            states: PerSubflow::default(),
        })
    },
};

#[derive(Debug, Default)]
struct State {
    epoch: Option<Nanos>,
    w_max: f64,
    k: f64,
    origin: f64,
    w_est: f64,
    credit: f64,
    round: Round,
}

/// HyStart's view of one round trip.
#[derive(Debug, Default)]
struct Round {
    start: Nanos,
    last_ack: Nanos,
    samples: u32,
    least: Nanos,
    found: bool,
}

#[derive(Debug)]
struct Cubic {
    beta: f64,
    hystart: bool,
    states: PerSubflow<State>,
}

impl State {
    /// Segments of growth per acknowledged segment at window `w`.
    fn increase(&mut self, w: f64, rtt: Nanos, now: Nanos, acked: u32, beta: f64) -> f64 {
        let epoch = match self.epoch {
            Some(epoch) => epoch,
            None => {
                self.epoch = Some(now);
                self.w_est = w;
                if w < self.w_max {
                    self.k = libm::cbrt((self.w_max - w) / C);
                    self.origin = self.w_max;
                } else {
                    self.k = 0.0;
                    self.origin = w;
                }
                now
            }
        };
        let t = (now.saturating_sub(epoch) + rtt) as f64 / SECOND as f64;
        let offset = t - self.k;
        let target = (C * offset * offset * offset + self.origin).clamp(w, 1.5 * w);
        let alpha = if self.w_est >= self.w_max { 1.0 } else { 3.0 * (1.0 - beta) / (1.0 + beta) };
        self.w_est += alpha * f64::from(acked) / w;
        let cubic = ((target - w) / w).max(0.01 / w);
        let friendly = if self.w_est > w { (self.w_est - w) / w } else { 0.0 };
        // Linux: never more than one segment for two acknowledged.
        cubic.max(friendly).min(0.5)
    }
}

impl Cubic {
    fn hystart(&mut self, flow: &mut Flow, i: usize, ack: &Ack) {
        const LOW_WINDOW: u32 = 16;
        const MIN_SAMPLES: u32 = 8;
        let round = &mut self.states.at(i).round;
        if ack.round_start {
            *round = Round { start: ack.now, last_ack: ack.now, found: round.found, ..Round::default() };
        }
        if round.found || flow.cwnd < LOW_WINDOW || flow.min_rtt == 0 {
            return;
        }
        // ACK train: ACKs spaced by at most 2 ms that last for half the least round trip.
        if ack.now.saturating_sub(round.last_ack) <= 2 * MILLISECOND {
            round.last_ack = ack.now;
            if ack.now.saturating_sub(round.start) > flow.min_rtt / 2 {
                round.found = true;
            }
        }
        if let Some(rtt) = ack.rtt {
            round.least = if round.samples == 0 { rtt } else { round.least.min(rtt) };
            round.samples = round.samples.saturating_add(1);
            let margin = (flow.min_rtt / 8).clamp(4 * MILLISECOND, 16 * MILLISECOND);
            if round.samples >= MIN_SAMPLES && round.least >= flow.min_rtt + margin {
                round.found = true;
            }
        }
        if round.found {
            flow.ssthresh = flow.cwnd;
        }
    }
}

impl CongestionControl for Cubic {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn subflow_added(&mut self, _flows: &mut [Flow], i: usize, now: Nanos) {
        self.states.reset(i);
        let round = &mut self.states.at(i).round;
        round.start = now;
        round.last_ack = now;
    }

    fn subflow_removed(&mut self, _flows: &mut [Flow], i: usize) {
        self.states.reset(i);
    }

    fn on_ack(&mut self, flows: &mut [Flow], i: usize, ack: &Ack) {
        if self.hystart && flows[i].in_slow_start() {
            self.hystart(&mut flows[i], i, ack);
        }
        if !ack.cwnd_limited || ack.acked == 0 {
            return;
        }
        let left = slow_start(&mut flows[i], ack.acked);
        if left == 0 {
            return;
        }
        let flow = &mut flows[i];
        let state = self.states.at(i);
        let w = f64::from(flow.cwnd.max(1));
        let share = state.increase(w, flow.srtt, ack.now, left, self.beta);
        state.credit += share * f64::from(left);
        let whole = state.credit as u32;
        state.credit -= f64::from(whole);
        flow.cwnd = flow.cwnd.saturating_add(whole);
    }

    fn ssthresh(&mut self, flows: &[Flow], i: usize, _cause: LossCause, _now: Nanos) -> u32 {
        let w = f64::from(flows[i].cwnd);
        let state = self.states.at(i);
        state.epoch = None;
        state.credit = 0.0;
        state.w_max = if w < state.w_max { w * (1.0 + self.beta) / 2.0 } else { w };
        state.round.found = false;
        ((w * self.beta) as u32).max(2)
    }

    fn on_idle_restart(&mut self, _flows: &[Flow], i: usize, idle: Nanos) {
        // The epoch doesn't run while nothing is sent (RFC 9438 5.8).
        let state = self.states.at(i);
        state.epoch = state.epoch.map(|epoch| epoch.saturating_add(idle));
    }

    fn metrics(&self, _flows: &[Flow], i: usize) -> Vec<(&'static str, f64)> {
        self.states.get(i).map_or_else(Vec::new, |state| vec![("w_max", state.w_max), ("k", state.k)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ack, assert_close, flow, flows};
    use super::*;

    fn cubic() -> Cubic {
        Cubic { beta: 0.7, hystart: true, states: PerSubflow::default() }
    }

    #[test]
    fn a_loss_keeps_seven_tenths_and_converges_fast() {
        let mut cubic = cubic();
        let mut flows = flows(&[flow(100, 50)]);
        assert_eq!(cubic.ssthresh(&flows, 0, LossCause::FastRetransmit, 0), 70);
        assert_close(cubic.states.at(0).w_max, 100.0);
        flows[0].cwnd = 80;
        assert_eq!(cubic.ssthresh(&flows, 0, LossCause::FastRetransmit, 0), 56);
        // 80 < 100: W_max = 80 (1 + 0.7) / 2.
        assert_close(cubic.states.at(0).w_max, 68.0);
    }

    #[test]
    fn k_and_the_curve_follow_equations_1_and_2() {
        // W_max 100, w 70: K = cbrt(30 / 0.4) = cbrt(75) = 4.2172 s.
        let mut state = State { w_max: 100.0, ..State::default() };
        let _ = state.increase(70.0, 0, 0, 1, 0.7);
        assert_close(state.k, libm::cbrt(75.0));
        // At t = 4 s: 0.4 (4 - 4.21716)^3 + 100 = 99.9959; (99.9959 - 90)/90 = 0.111066.
        state.w_est = 0.0;
        let t = 4.0 - libm::cbrt(75.0);
        let expected = (0.4 * t * t * t + 100.0 - 90.0) / 90.0;
        assert_close(state.increase(90.0, 0, 4 * SECOND, 1, 0.7), expected);
    }

    #[test]
    fn with_a_short_round_trip_it_grows_as_reno_does() {
        // rtt 1 ms, W_max = w = 10: in a second the cubic term gains 0.4 segments; Reno's would gain hundreds.
        let mut cubic = cubic();
        let mut flows = flows(&[flow(10, 1)]);
        cubic.states.at(0).w_max = 10.0;
        for ms in 0..1000u64 {
            for _ in 0..flows[0].cwnd {
                cubic.on_ack(&mut flows, 0, &Ack { now: ms * MILLISECOND, ..ack(1) });
            }
        }
        assert!(flows[0].cwnd > 500, "{}", flows[0].cwnd);
    }

    #[test]
    fn hystart_leaves_slow_start_when_delay_rises() {
        let mut cubic = cubic();
        let mut flows = flows(&[flow(32, 40)]);
        flows[0].ssthresh = u32::MAX;
        let late = Some(50 * MILLISECOND);
        let now = 100 * MILLISECOND;
        cubic.on_ack(&mut flows, 0, &Ack { round_start: true, rtt: late, now, ..ack(1) });
        for _ in 0..8 {
            cubic.on_ack(&mut flows, 0, &Ack { rtt: late, now, ..ack(1) });
        }
        assert!(flows[0].ssthresh < 64);
    }
}
