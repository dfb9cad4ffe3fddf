//! CUBIC: RFC 9438, with HyStart as in Linux.
//!
//! Windows in segments, times in seconds, C in segments per second^3. For each segment acknowledged in
//! congestion avoidance, with t the time since the congestion avoidance stage began (t_epoch):
//!
//! ```text
//! W_cubic(t) = C (t - K)^3 + W_max                                   (Equation 1)
//! K = cbrt((W_max - cwnd_epoch) / C)                                 (Equation 2)
//! target = W_cubic(t + RTT), within [cwnd, 1.5 cwnd]                 (section 4.2)
//! cwnd += (target - cwnd) / cwnd                                     (sections 4.4, 4.5)
//! W_est += alpha segments_acked / cwnd, alpha = 3 (1 - beta) / (1 + beta)   (Equation 4)
//! cwnd = W_est where W_cubic(t) < W_est: the Reno-friendly region    (section 4.3)
//! ```
//!
//! alpha becomes 1 once W_est reaches cwnd_prior, the window before the last reduction (4.3). On loss
//! ssthresh = max(beta cwnd, 2) (Equation 5), and W_max = cwnd, or with fast convergence
//! (1 + beta)/2 cwnd when cwnd < W_max (4.7). After a timeout the next stage starts with K = 0 and
//! W_max = cwnd (4.8). A reduction found spurious restores W_max, K, t_epoch and W_est (4.9).
//!
//! HyStart (Ha and Rhee, "Taming the elephants", 2011; Linux's `tcp_cubic.c`): slow start ends, ssthresh =
//! cwnd, from a window of 16 on, when in one round trip (a) the train of ACKs no more than 2 ms apart has
//! lasted half the least round-trip time; or (b) the least of the round's samples, from the ninth on,
//! exceeds the least round-trip time by an eighth of it, within [4 ms, 16 ms].
//!
//! Rulings. The time during which the sender was not limited by its window is left out of t (5.8): that
//! between two ACKs of which the later came from a sender with less to send, and idle times. The window is
//! used for the flight size in Equation 5 (as Linux, allowed by 4.6). W_est is followed by at most half a
//! segment per acknowledged segment, the bound that 4.2 sets on the target. RTT in the target is the
//! smoothed one. HyStart counts as unpaced: Linux waits for a train of a whole least round-trip time when
//! it paces. As in Linux, samples of the first second after a stage began are no measure of the least
//! round-trip time.
//!
//! Preset `linux`: the target looks ahead by the least round-trip time, alpha stays below 1, and before the
//! first loss the window grows by at least 5 % in a round trip.
//!
//! Preset `linux-3.14`: the same with HyStart as it was then. A delay ends slow start that exceeds the least
//! round-trip time by a sixteenth of it, by the first eight samples of a round alone; the clock ticks in
//! milliseconds; there is no allowance for aggregation.
//!
//! A host that counts ACKs (`ack-counting = "one-in-avoidance"`, Linux 3.14): an ACK counts for as many
//! segments as ACKs have had of late (`delayed_ack`, a moving average over 16), for W_est it counts for one
//! (`ack_cnt`), and a segment of growth takes one ACK more (`tcp_cong_avoid_ai`).
//!
//! Parameters: `c` (0.4 segments per second^3; 0.001 to 10), `beta` (0.7, what a loss leaves; 0.1 to 0.95),
//! `fast-convergence` (true), `reno-friendly` (true), `reno-alpha-one` (true; preset `linux`: false),
//! `hystart` (true), `hystart-of` (`linux-6.18`; preset `linux-3.14`: `linux-3.14`, `linux-4.19`:
//! `linux-4.19`), `least-rtt-ahead` (false; presets: true), `initial-five-percent` (false; presets: true).

#[cfg(test)]
mod tests;

use super::additive::ROUNDING;
use super::siblings::PerSubflow;
use super::{Ack, CongestionControl, ControlEntry, LossCause, Siblings, slow_start};
use crate::congestion::AckCounting;
use crate::metrics::{CaState, SubflowMetrics};
use crate::registry::{Kernel, Parameter, Preset, Values};
use crate::{MILLISECOND, SECOND, Span, Time};

pub(super) const ENTRY: ControlEntry = ControlEntry {
    name: "cubic",
    summary: "uncoupled: a cubic function of the time since the last loss",
    source: "RFC 9438 section 4",
    parameters: &[
        Parameter::number("c", 0.4, (0.001, 10.0), "aggressiveness C, segments per second^3"),
        Parameter::number("beta", 0.7, (0.1, 0.95), "what a loss leaves of the window"),
        Parameter::switch("fast-convergence", true, "give up window to newcomers (section 4.7)"),
        Parameter::switch("reno-friendly", true, "never slower than Reno would be (section 4.3)"),
        Parameter::switch("reno-alpha-one", true, "alpha = 1 once W_est reaches the window before the loss"),
        Parameter::switch("hystart", true, "leave slow start before losses do it"),
        Parameter::choice("hystart-of", 0, &["linux-6.18", "linux-3.14", "linux-4.19"], "whose HyStart"),
        Parameter::switch(
            "least-rtt-ahead",
            false,
            "look ahead by the least round-trip time, not the smoothed",
        ),
        Parameter::switch("initial-five-percent", false, "before any loss at least 5 % per round trip"),
    ],
    presets: &[
        Preset {
            name: "linux",
            summary: "as Linux's tcp_cubic",
            values: &[("reno-alpha-one", 0.0), ("least-rtt-ahead", 1.0), ("initial-five-percent", 1.0)],
        },
        Preset {
            name: "linux-3.14",
            summary: "as tcp_cubic of Linux 3.14",
            values: &[
                ("reno-alpha-one", 0.0),
                ("least-rtt-ahead", 1.0),
                ("initial-five-percent", 1.0),
                ("hystart-of", 1.0),
            ],
        },
        Preset {
            name: "linux-4.19",
            summary: "as tcp_cubic of Linux 4.19",
            values: &[
                ("reno-alpha-one", 0.0),
                ("least-rtt-ahead", 1.0),
                ("initial-five-percent", 1.0),
                ("hystart-of", 2.0),
            ],
        },
    ],
    kernels: &[Kernel::Linux.has().by_default()],
    ..ControlEntry::of(|values| Box::new(Cubic { states: PerSubflow::default(), rule: Rule::new(values) }))
};

/// HyStart: least window.
const LOW_WINDOW: u32 = 16;
/// HyStart: longest gap in a train of ACKs.
const ACK_GAP: Span = Span::from_millis(2);
/// HyStart: samples taken before the delay is judged.
const LEAST_SAMPLES: u32 = 8;
/// HyStart: bounds of the delay that ends slow start.
const DELAY_BOUNDS: (Span, Span) = (Span::from_millis(4), Span::from_millis(16));

/// A congestion avoidance stage.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// When it began, plus the time not counted.
    start: Time,
    /// K, seconds.
    k: f64,
    /// W_max as the origin of the curve, segments.
    origin: f64,
    /// W_est, segments.
    estimate: f64,
}

/// State to restore after a spurious reduction.
#[derive(Clone, Copy, Debug, Default)]
struct Curve {
    epoch: Option<Epoch>,
    /// W_max, segments; 0 before a loss and after a timeout.
    w_max: f64,
    /// cwnd_prior, segments.
    prior: f64,
}

#[derive(Debug, Default)]
struct State {
    curve: Curve,
    before_loss: Option<Curve>,
    /// Fraction of a segment added up so far.
    credit: f64,
    /// When the last ACK came.
    last_ack: Option<Time>,
    /// Least round-trip time seen since the start or the last timeout.
    least_rtt: Option<Span>,
    hystart: HyStart,
    stretch: Stretch,
}

/// Segments that an ACK acknowledges, averaged over some 16 ACKs (Linux's `delayed_ack`).
#[derive(Debug)]
struct Stretch(f64);

impl Default for Stretch {
    fn default() -> Self {
        // Most receivers acknowledge every second segment, and Linux's `delayed_ack` starts with that.
        Stretch(2.0)
    }
}

impl Stretch {
    fn on_ack(&mut self, acked: u32) {
        self.0 = (self.0 + (f64::from(acked) - self.0) / 16.0).clamp(1.0 / 16.0, 32.0);
    }
}

#[derive(Debug, Default)]
struct HyStart {
    /// Whether HyStart ended slow start since the last timeout.
    found: bool,
    round_start: Time,
    /// The last ACK of the train.
    last_ack: Time,
    /// Least sample of the round.
    round_rtt: Option<Span>,
    samples: u32,
    /// Segments delivered when what was in flight at the round's start has arrived.
    round_end: u64,
}

#[derive(Debug)]
struct Cubic {
    states: PerSubflow<State>,
    rule: Rule,
}

#[derive(Clone, Copy, Debug)]
struct Rule {
    c: f64,
    beta: f64,
    fast_convergence: bool,
    reno_friendly: bool,
    alpha_one: bool,
    hystart: bool,
    hystart_rule: HyStartRule,
    least_rtt_ahead: bool,
    initial_five_percent: bool,
}

fn seconds(time: Span) -> f64 {
    time.as_nanos() as f64 / SECOND.as_nanos() as f64
}

/// Equation 1.
fn w_cubic(c: f64, t: f64, k: f64, origin: f64) -> f64 {
    let d = t - k;
    c * d * d * d + origin
}

/// Whose HyStart: the tick of its clock, the part of the least round-trip time that a delay may grow by, and
/// the allowance for aggregation. The tick matters where gaps between ACKs are close to [`ACK_GAP`], as
/// behind a link that sends every millisecond.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct HyStartRule {
    tick: Span,
    part: u64,
    allows_bursts: bool,
    /// The first [`LEAST_SAMPLES`] alone make the least of a round. And a round begins after an ACK was
    /// judged, if that ACK is of more than what was in flight at the last one's start and the window limits.
    rounds_by_sequence: bool,
}

/// Linux since 5.5: a clock of microseconds.
const HYSTART: HyStartRule =
    HyStartRule { tick: Span::from_micros(1), part: 8, allows_bursts: true, rounds_by_sequence: false };
/// Linux 4.19's `hystart_update` (`bictcp_clock` and `delay_min >> 3`) and `bictcp_cong_avoid`.
const HYSTART_4_19: HyStartRule =
    HyStartRule { tick: MILLISECOND, part: 8, allows_bursts: false, rounds_by_sequence: true };
/// Linux 3.14's (`delay_min >> 4`).
const HYSTART_3_14: HyStartRule = HyStartRule { part: 16, ..HYSTART_4_19 };

impl HyStartRule {
    fn clock(self, now: Time) -> Time {
        Time::ZERO + now.since_origin() / self.tick * self.tick
    }
}

/// Linux's allowance for aggregation in a train of ACKs (`hystart_ack_delay`): the time of four bursts of 64
/// KiB at the pacing rate, at most 1 ms; 0 without a pacing rate.
fn burst_time(pacing_rate: u64) -> Span {
    if pacing_rate == 0 { Span::ZERO } else { (4 * 65_536 * SECOND / pacing_rate).min(MILLISECOND) }
}

impl HyStart {
    fn new_round(&mut self, now: Time) {
        self.round_start = now;
        self.last_ack = now;
        self.round_rtt = None;
        self.samples = 0;
    }

    /// A round begins if this ACK is of more than what was in flight at the last one's start. What is in
    /// flight now ends it.
    fn begin_round_by_sequence(&mut self, now: Time, subflow: &SubflowMetrics) {
        if subflow.totals.delivered > self.round_end {
            self.new_round(now);
            self.round_end = subflow.totals.delivered + u64::from(subflow.packets_out());
        }
    }

    /// Whether slow start ends with this ACK.
    fn on_ack(&mut self, ack: &Ack, least_rtt: Span, pacing_rate: u64, rule: HyStartRule) -> bool {
        let now = rule.clock(ack.now);
        if ack.round_start && !rule.rounds_by_sequence {
            self.new_round(now);
        }
        // A longer gap ends the train: what follows wasn't sent in the burst whose length is measured.
        if now.saturating_sub(self.last_ack) <= ACK_GAP {
            self.last_ack = now;
            let allowance = if rule.allows_bursts { burst_time(pacing_rate) } else { Span::ZERO };
            // Half of it, as nothing is paced here: Linux waits for all of it where pacing spreads the burst.
            let longest = (least_rtt + allowance) / 2;
            self.found |= now.saturating_sub(self.round_start) > longest;
        }
        if let Some(rtt) = ack.rtt {
            let judged = self.samples == LEAST_SAMPLES;
            let least = match self.round_rtt {
                Some(least) if judged && rule.rounds_by_sequence => least,
                least => least.unwrap_or(rtt).min(rtt),
            };
            self.round_rtt = Some(least);
            if !judged {
                self.samples += 1;
            } else {
                let limit = (least_rtt / rule.part).clamp(DELAY_BOUNDS.0, DELAY_BOUNDS.1);
                self.found |= least > least_rtt.saturating_add(limit);
            }
        }
        self.found
    }
}

impl Rule {
    fn new(values: &Values) -> Self {
        Rule {
            c: values.number("c"),
            beta: values.number("beta"),
            fast_convergence: values.switch("fast-convergence"),
            reno_friendly: values.switch("reno-friendly"),
            alpha_one: values.switch("reno-alpha-one"),
            hystart: values.switch("hystart"),
            hystart_rule: match values.number("hystart-of") as u32 {
                0 => HYSTART,
                1 => HYSTART_3_14,
                _ => HYSTART_4_19,
            },
            least_rtt_ahead: values.switch("least-rtt-ahead"),
            initial_five_percent: values.switch("initial-five-percent"),
        }
    }

    /// Begins a stage: computes K and the origin of the curve.
    fn begin(&self, w_max: f64, cwnd: f64, now: Time) -> Epoch {
        let (k, origin) =
            if cwnd < w_max { (libm::cbrt((w_max - cwnd) / self.c), w_max) } else { (0.0, cwnd) };
        Epoch { start: now, k, origin, estimate: cwnd }
    }

    /// Congestion avoidance for an ACK of which slow start has left `left` segments.
    fn avoid(&self, state: &mut State, subflow: &mut SubflowMetrics, left: u32, ack: &Ack) {
        let now = ack.now;
        let counts_acks = ack.counting == AckCounting::OneInAvoidance;
        let acked = if counts_acks { state.stretch.0 } else { f64::from(left) };
        let cwnd = f64::from(subflow.cwnd().max(1));
        let curve = &mut state.curve;
        let mut epoch = curve.epoch.unwrap_or_else(|| self.begin(curve.w_max, cwnd, now));
        let rtt = if self.least_rtt_ahead {
            state.least_rtt.unwrap_or(subflow.rtt.smoothed)
        } else {
            subflow.rtt.smoothed
        };
        let t = seconds(now.saturating_sub(epoch.start));

        let target = w_cubic(self.c, t + seconds(rtt), epoch.k, epoch.origin).clamp(cwnd, 1.5 * cwnd);
        let mut per_segment = (target - cwnd - state.credit).max(0.0) / cwnd;
        if self.initial_five_percent && curve.w_max == 0.0 {
            per_segment = per_segment.max(0.05);
        }
        // An ACK of more than a window (a filled hole) doesn't grow the window past its target.
        let mut earned = state.credit + per_segment * acked.min(cwnd);

        if self.reno_friendly {
            let alpha = if self.alpha_one && epoch.estimate >= curve.prior {
                1.0
            } else {
                3.0 * (1.0 - self.beta) / (1.0 + self.beta)
            };
            epoch.estimate += alpha * f64::from(left) / cwnd;
            if w_cubic(self.c, t, epoch.k, epoch.origin) < epoch.estimate {
                let most = state.credit + 0.5 * acked;
                earned = earned.max((epoch.estimate - cwnd).min(most));
            }
        }
        if counts_acks {
            let increase = (earned - state.credit).clamp(0.0, 1.0);
            earned = state.credit + increase / (1.0 + increase);
        }
        let whole = libm::floor(earned + ROUNDING);
        state.credit = (earned - whole).max(0.0);
        subflow.set_cwnd(subflow.cwnd().saturating_add(whole as u32));
        curve.epoch = Some(epoch);
    }
}

impl CongestionControl for Cubic {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn subflow_added(&mut self, subflow: &mut SubflowMetrics, _: Siblings<'_>, now: Time) {
        self.states.reset(subflow.id);
        let started = self.rule.hystart_rule.clock(now);
        self.states.at(subflow.id).hystart.new_round(started);
    }

    fn subflow_removed(&mut self, subflow: &SubflowMetrics, _: Siblings<'_>) {
        self.states.reset(subflow.id);
    }

    fn on_ack(&mut self, subflow: &mut SubflowMetrics, _: Siblings<'_>, ack: &Ack) {
        let Cubic { states, rule } = self;
        let state = states.at(subflow.id);
        if ack.counting == AckCounting::OneInAvoidance && subflow.ca_state() == CaState::Open && ack.acked > 0
        {
            state.stretch.on_ack(ack.acked);
        }
        let since_last = ack.now.saturating_sub(state.last_ack.unwrap_or(ack.now));
        state.last_ack = Some(ack.now);
        if !ack.cwnd_limited
            && let Some(epoch) = &mut state.curve.epoch
        {
            // RFC 9438 5.8: while the application is the limit, the curve doesn't go on without the window.
            epoch.start = epoch.start.saturating_add(since_last).min(ack.now);
        }
        let just_recovered =
            state.curve.epoch.is_some_and(|epoch| ack.now.saturating_sub(epoch.start) < SECOND);
        if let Some(rtt) = ack.rtt
            && !just_recovered
        {
            state.least_rtt = Some(state.least_rtt.map_or(rtt, |least| least.min(rtt)));
        }
        if rule.hystart && subflow.in_slow_start() && !state.hystart.found {
            if subflow.cwnd() >= LOW_WINDOW
                && let Some(least) = state.least_rtt
            {
                if state.hystart.on_ack(ack, least, subflow.rate.pacing, rule.hystart_rule) {
                    subflow.set_ssthresh(subflow.cwnd());
                }
            } else if ack.round_start && !rule.hystart_rule.rounds_by_sequence {
                state.hystart.new_round(rule.hystart_rule.clock(ack.now));
            }
        }
        if !ack.cwnd_limited {
            return;
        }
        if rule.hystart && rule.hystart_rule.rounds_by_sequence && subflow.in_slow_start() {
            state.hystart.begin_round_by_sequence(rule.hystart_rule.clock(ack.now), subflow);
        }
        let left = slow_start(subflow, ack);
        if left > 0 {
            rule.avoid(state, subflow, left, ack);
        }
    }

    fn ssthresh(&mut self, subflow: &SubflowMetrics, _: Siblings<'_>, cause: LossCause, now: Time) -> u32 {
        let Cubic { states, rule } = self;
        let state = states.at(subflow.id);
        let cwnd = f64::from(subflow.cwnd());
        // A spurious reduction gives the whole curve back (RFC 9438 4.9), and not only the window.
        state.before_loss = Some(state.curve);
        let w_max = match cause {
            LossCause::Timeout => 0.0,
            _ if rule.fast_convergence && cwnd < state.curve.w_max => cwnd * (1.0 + rule.beta) / 2.0,
            _ => cwnd,
        };
        state.curve = Curve { epoch: None, w_max, prior: cwnd };
        state.credit = 0.0;
        if cause == LossCause::Timeout {
            state.least_rtt = None;
            state.stretch = Stretch::default();
            state.hystart = HyStart::default();
            state.hystart.new_round(rule.hystart_rule.clock(now));
        }
        ((cwnd * rule.beta) as u32).max(2)
    }

    fn on_undo(&mut self, subflow: &SubflowMetrics, _: Siblings<'_>) {
        let state = self.states.at(subflow.id);
        if let Some(curve) = state.before_loss.take() {
            state.curve = curve;
        }
    }

    fn on_idle_restart(&mut self, subflow: &SubflowMetrics, _: Siblings<'_>, idle: Span) {
        let state = self.states.at(subflow.id);
        if let Some(epoch) = &mut state.curve.epoch {
            epoch.start = epoch.start.saturating_add(idle);
        }
        // The idle time is excluded here, and must not be excluded again with the next ACK's gap.
        state.last_ack = None;
    }

    fn metrics(&self, subflow: &SubflowMetrics, _: Siblings<'_>) -> Vec<(&'static str, f64)> {
        let curve = self.states.get(subflow.id).map_or(Curve::default(), |state| state.curve);
        let (k, estimate) = curve.epoch.map_or((0.0, 0.0), |epoch| (epoch.k, epoch.estimate));
        vec![("w_max", curve.w_max), ("k", k), ("w_est", estimate)]
    }
}
