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
//! Parameters: `c` (0.4 segments per second^3; 0.001 to 10), `beta` (0.7, what a loss leaves; 0.1 to 0.95),
//! `fast-convergence` (true), `reno-friendly` (true), `reno-alpha-one` (true; preset `linux`: false), `hystart`
//! (true), `least-rtt-ahead` (false; preset `linux`: true), `initial-five-percent` (false; preset `linux`: true).

use super::additive::ROUNDING;
use super::subflows::PerSubflow;
use super::{Ack, CongestionControl, ControlEntry, LossCause, slow_start};
use crate::metrics::SubflowMetrics;
use crate::registry::{Parameter, Preset, Values};
use crate::{MILLISECOND, Nanos, SECOND};

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
        Parameter::switch(
            "least-rtt-ahead",
            false,
            "look ahead by the least round-trip time, not the smoothed",
        ),
        Parameter::switch("initial-five-percent", false, "before any loss at least 5 % per round trip"),
    ],
    presets: &[Preset {
        name: "linux",
        summary: "as Linux's tcp_cubic",
        values: &[("reno-alpha-one", 0.0), ("least-rtt-ahead", 1.0), ("initial-five-percent", 1.0)],
    }],
    exceptions: &[],
    build: |values| Box::new(Cubic { states: PerSubflow::default(), rule: Rule::new(values) }),
};

/// HyStart: least window.
const LOW_WINDOW: u32 = 16;
/// HyStart: longest gap in a train of ACKs.
const ACK_GAP: Nanos = 2 * MILLISECOND;
/// HyStart: samples taken before the delay is judged.
const LEAST_SAMPLES: u32 = 8;
/// HyStart: bounds of the delay that ends slow start.
const DELAY_BOUNDS: (Nanos, Nanos) = (4 * MILLISECOND, 16 * MILLISECOND);

/// A congestion avoidance stage.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// When it began, moved on by the time not counted.
    start: Nanos,
    /// K, seconds.
    k: f64,
    /// W_max as the origin of the curve, segments.
    origin: f64,
    /// W_est, segments.
    estimate: f64,
}

/// What a spurious reduction brings back.
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
    /// Part of a segment earned so far.
    credit: f64,
    /// When the last ACK came.
    last_ack: Option<Nanos>,
    /// Least round-trip time seen since the start or the last timeout.
    least_rtt: Option<Nanos>,
    hystart: HyStart,
}

#[derive(Debug, Default)]
struct HyStart {
    /// Slow start was ended; until the next timeout.
    found: bool,
    round_start: Nanos,
    /// The last ACK of the train.
    last_ack: Nanos,
    /// Least sample of the round.
    round_rtt: Option<Nanos>,
    samples: u32,
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
    least_rtt_ahead: bool,
    initial_five_percent: bool,
}

fn seconds(time: Nanos) -> f64 {
    time as f64 / SECOND as f64
}

/// Equation 1.
fn w_cubic(c: f64, t: f64, k: f64, origin: f64) -> f64 {
    let d = t - k;
    c * d * d * d + origin
}

/// Linux's TCP has a clock of microseconds. It matters where gaps between ACKs are close to [`ACK_GAP`], as behind a link
/// that sends every millisecond.
fn whole_microseconds(now: Nanos) -> Nanos {
    now / 1_000 * 1_000
}

/// What Linux allows a train for segments that are put together on their way (`hystart_ack_delay`): the time of four
/// bursts of 64 KiB at the pacing rate, 1 ms at most; nothing before there is a rate.
fn burst_time(pacing_rate: u64) -> Nanos {
    (4 * 65_536 * SECOND).checked_div(pacing_rate).map_or(0, |time| time.min(MILLISECOND))
}

impl HyStart {
    fn new_round(&mut self, now: Nanos) {
        self.round_start = now;
        self.last_ack = now;
        self.round_rtt = None;
        self.samples = 0;
    }

    /// Whether slow start should end, by this ACK.
    fn on_ack(&mut self, ack: &Ack, least_rtt: Nanos, pacing_rate: u64) -> bool {
        let now = whole_microseconds(ack.now);
        if ack.round_start {
            self.new_round(now);
        }
        if now.saturating_sub(self.last_ack) <= ACK_GAP {
            self.last_ack = now;
            let longest = (least_rtt + burst_time(pacing_rate)) / 2;
            self.found |= now.saturating_sub(self.round_start) > longest;
        }
        if let Some(rtt) = ack.rtt {
            let least = self.round_rtt.map_or(rtt, |least| least.min(rtt));
            self.round_rtt = Some(least);
            if self.samples < LEAST_SAMPLES {
                self.samples += 1;
            } else {
                let limit = (least_rtt / 8).clamp(DELAY_BOUNDS.0, DELAY_BOUNDS.1);
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
            least_rtt_ahead: values.switch("least-rtt-ahead"),
            initial_five_percent: values.switch("initial-five-percent"),
        }
    }

    /// A stage begins: K and the origin of its curve.
    fn begin(&self, w_max: f64, cwnd: f64, now: Nanos) -> Epoch {
        let (k, origin) =
            if cwnd < w_max { (libm::cbrt((w_max - cwnd) / self.c), w_max) } else { (0.0, cwnd) };
        Epoch { start: now, k, origin, estimate: cwnd }
    }

    /// Congestion avoidance for `acked` segments.
    fn avoid(&self, state: &mut State, subflow: &mut SubflowMetrics, acked: u32, now: Nanos) {
        let cwnd = f64::from(subflow.cwnd.max(1));
        let curve = &mut state.curve;
        let mut epoch = curve.epoch.unwrap_or_else(|| self.begin(curve.w_max, cwnd, now));
        let rtt = if self.least_rtt_ahead { state.least_rtt.unwrap_or(subflow.srtt) } else { subflow.srtt };
        let t = seconds(now.saturating_sub(epoch.start));

        let target = w_cubic(self.c, t + seconds(rtt), epoch.k, epoch.origin).clamp(cwnd, 1.5 * cwnd);
        let mut per_segment = (target - cwnd - state.credit).max(0.0) / cwnd;
        if self.initial_five_percent && curve.w_max == 0.0 {
            per_segment = per_segment.max(0.05);
        }
        // More than a window's worth at once (a hole filled) doesn't carry the window past its target.
        let mut earned = state.credit + per_segment * f64::from(acked).min(cwnd);

        if self.reno_friendly {
            let alpha = if self.alpha_one && epoch.estimate >= curve.prior {
                1.0
            } else {
                3.0 * (1.0 - self.beta) / (1.0 + self.beta)
            };
            epoch.estimate += alpha * f64::from(acked) / cwnd;
            if w_cubic(self.c, t, epoch.k, epoch.origin) < epoch.estimate {
                let most = state.credit + 0.5 * f64::from(acked);
                earned = earned.max((epoch.estimate - cwnd).min(most));
            }
        }
        let whole = libm::floor(earned + ROUNDING);
        state.credit = (earned - whole).max(0.0);
        subflow.cwnd = subflow.cwnd.saturating_add(whole as u32);
        curve.epoch = Some(epoch);
    }
}

impl CongestionControl for Cubic {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn subflow_added(&mut self, _flows: &mut [SubflowMetrics], i: usize, now: Nanos) {
        self.states.reset(i);
        self.states.at(i).hystart.new_round(whole_microseconds(now));
    }

    fn subflow_removed(&mut self, _flows: &mut [SubflowMetrics], i: usize) {
        self.states.reset(i);
    }

    fn on_ack(&mut self, subflows: &mut [SubflowMetrics], i: usize, ack: &Ack) {
        let subflow = &mut subflows[i];
        let Cubic { states, rule } = self;
        let state = states.at(i);
        let since_last = ack.now.saturating_sub(state.last_ack.unwrap_or(ack.now));
        state.last_ack = Some(ack.now);
        if !ack.cwnd_limited
            && let Some(epoch) = &mut state.curve.epoch
        {
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
            if subflow.cwnd >= LOW_WINDOW
                && let Some(least) = state.least_rtt
            {
                if state.hystart.on_ack(ack, least, subflow.pacing_rate) {
                    subflow.ssthresh = subflow.cwnd;
                }
            } else if ack.round_start {
                state.hystart.new_round(whole_microseconds(ack.now));
            }
        }
        if !ack.cwnd_limited {
            return;
        }
        let left = slow_start(subflow, ack.acked);
        if left > 0 {
            rule.avoid(state, subflow, left, ack.now);
        }
    }

    fn ssthresh(&mut self, subflows: &[SubflowMetrics], i: usize, cause: LossCause, now: Nanos) -> u32 {
        let Cubic { states, rule } = self;
        let state = states.at(i);
        let cwnd = f64::from(subflows[i].cwnd);
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
            state.hystart = HyStart::default();
            state.hystart.new_round(whole_microseconds(now));
        }
        ((cwnd * rule.beta) as u32).max(2)
    }

    fn on_undo(&mut self, _flows: &[SubflowMetrics], i: usize) {
        let state = self.states.at(i);
        if let Some(curve) = state.before_loss.take() {
            state.curve = curve;
        }
    }

    fn on_idle_restart(&mut self, _flows: &[SubflowMetrics], i: usize, idle: Nanos) {
        let state = self.states.at(i);
        if let Some(epoch) = &mut state.curve.epoch {
            epoch.start = epoch.start.saturating_add(idle);
        }
        // The idle time is left out here: the next ACK's gap must not leave it out again.
        state.last_ack = None;
    }

    fn metrics(&self, _flows: &[SubflowMetrics], i: usize) -> Vec<(&'static str, f64)> {
        let curve = self.states.get(i).map_or(Curve::default(), |state| state.curve);
        let (k, estimate) = curve.epoch.map_or((0.0, 0.0), |epoch| (epoch.k, epoch.estimate));
        vec![("w_max", curve.w_max), ("k", k), ("w_est", estimate)]
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ack, assert_close, build, subflow, subflows};
    use super::*;

    fn metric(control: &dyn CongestionControl, subflows: &[SubflowMetrics], name: &str) -> f64 {
        let found = control.metrics(subflows, 0).into_iter().find(|(known, _)| *known == name);
        found.unwrap_or_else(|| panic!("no metric {name}")).1
    }

    fn at(now: Nanos, acked: u32) -> Ack {
        Ack { now, ..ack(acked) }
    }

    /// Loses at `cwnd` and returns what the engine then sets.
    fn lose(
        control: &mut dyn CongestionControl,
        subflows: &mut [SubflowMetrics],
        cwnd: u32,
        cause: LossCause,
    ) -> u32 {
        subflows[0].cwnd = cwnd;
        let ssthresh = control.ssthresh(subflows, 0, cause, 0);
        subflows[0].ssthresh = ssthresh;
        subflows[0].cwnd = ssthresh;
        ssthresh
    }

    /// Acknowledges whole windows, one segment at a time, evenly over each round trip, until `end`.
    fn run(control: &mut dyn CongestionControl, subflows: &mut [SubflowMetrics], start: Nanos, end: Nanos) {
        let mut now = start;
        while now < end {
            control.on_ack(subflows, 0, &at(now, 1));
            now += subflows[0].srtt / u64::from(subflows[0].cwnd);
        }
    }

    #[test]
    fn the_curve_at_hand_computed_points() {
        // W_max 100, cwnd_epoch 70, C 0.4: K = cbrt(30 / 0.4) = cbrt(75) = 4.217163326508746 s;
        // W(0) = 70, W(K) = 100, W(2K) = 130, W(K + 1 s) = 100.4.
        let k = libm::cbrt(75.0);
        assert_close(k, 4.217163326508746);
        assert_close(w_cubic(0.4, 0.0, k, 100.0), 70.0);
        assert_close(w_cubic(0.4, k, k, 100.0), 100.0);
        assert_close(w_cubic(0.4, 2.0 * k, k, 100.0), 130.0);
        assert_close(w_cubic(0.4, k + 1.0, k, 100.0), 100.4);
    }

    #[test]
    fn a_loss_leaves_seven_tenths_and_sets_k() {
        let mut subflows = subflows(&[subflow(100, 100)]);
        let mut cubic = build("cubic");
        assert_eq!(lose(&mut *cubic, &mut subflows, 100, LossCause::FastRetransmit), 70);
        assert_close(metric(&*cubic, &subflows, "w_max"), 100.0);
        cubic.on_ack(&mut subflows, 0, &at(SECOND, 1));
        assert_close(metric(&*cubic, &subflows, "k"), 4.217163326508746);
        assert_eq!(lose(&mut *cubic, &mut subflows, 2, LossCause::FastRetransmit), 2);
    }

    #[test]
    fn fast_convergence_gives_up_window() {
        // A loss at 80, below W_max = 100: W_max = 80 * 1.7 / 2 = 68.
        let mut subflows = subflows(&[subflow(100, 100)]);
        for (spec, expected) in [("cubic", 68.0), ("cubic(fast-convergence=false)", 80.0)] {
            let mut cubic = build(spec);
            lose(&mut *cubic, &mut subflows, 100, LossCause::FastRetransmit);
            lose(&mut *cubic, &mut subflows, 80, LossCause::FastRetransmit);
            assert_close(metric(&*cubic, &subflows, "w_max"), expected);
            lose(&mut *cubic, &mut subflows, 80, LossCause::FastRetransmit);
            assert_close(metric(&*cubic, &subflows, "w_max"), 80.0);
            lose(&mut *cubic, &mut subflows, 80, LossCause::FastRetransmit);
            assert_close(metric(&*cubic, &subflows, "w_max"), 80.0);
        }
    }

    #[test]
    fn one_step_of_the_equation() {
        // A stage that starts at cwnd 70 with W_max 100, RTT 100 ms; t = 0: target = W(0.1) =
        // 100 + 0.4 (0.1 - 4.217163)^3 = 72.08384; so an ACK of 70 segments earns 2.08384.
        let mut subflows = subflows(&[subflow(100, 100)]);
        let mut cubic = build("cubic(reno-friendly=false)");
        lose(&mut *cubic, &mut subflows, 100, LossCause::FastRetransmit);
        cubic.on_ack(&mut subflows, 0, &at(SECOND, 70));
        assert_eq!(subflows[0].cwnd, 72);
        // The fraction is kept: the window is at its target, and stays there while the time does.
        cubic.on_ack(&mut subflows, 0, &at(SECOND, 5000));
        assert_eq!(subflows[0].cwnd, 72);
        // 100 ms later: W(0.2) = 100 + 0.4 (0.2 - 4.217163)^3 = 74.0692; (74.0692 - 72.08384) / 72 per
        // segment: 0.91616 are missing for the next, 33.2 segments' worth.
        cubic.on_ack(&mut subflows, 0, &at(SECOND + 100 * MILLISECOND, 33));
        assert_eq!(subflows[0].cwnd, 72);
        cubic.on_ack(&mut subflows, 0, &at(SECOND + 100 * MILLISECOND, 1));
        assert_eq!(subflows[0].cwnd, 73);
    }

    #[test]
    fn the_window_follows_the_curve_through_its_plateau() {
        let mut subflows = subflows(&[subflow(100, 100)]);
        let mut cubic = build("cubic(reno-friendly=false)");
        lose(&mut *cubic, &mut subflows, 100, LossCause::FastRetransmit);
        // t = 1 s: 100 + 0.4 (-3.217163)^3 = 86.68; t = 4.217 s: 100; t = 6.217 s: 103.2.
        for (start, end, expected) in [(0, 1000, 86), (1000, 4217, 100), (4217, 6217, 103)] {
            run(&mut *cubic, &mut subflows, start * MILLISECOND, end * MILLISECOND);
            assert!(subflows[0].cwnd.abs_diff(expected) <= 1, "at {end} ms: {}", subflows[0].cwnd);
        }
    }

    #[test]
    fn the_window_grows_by_at_most_half_in_a_round_trip() {
        // An hour into the stage the curve is far above: 1.5 cwnd bounds the target.
        let mut subflows = subflows(&[subflow(100, 100)]);
        let mut cubic = build("cubic");
        lose(&mut *cubic, &mut subflows, 100, LossCause::FastRetransmit);
        cubic.on_ack(&mut subflows, 0, &at(0, 1));
        let before = subflows[0].cwnd;
        cubic.on_ack(&mut subflows, 0, &at(3600 * SECOND, before));
        assert_eq!(subflows[0].cwnd, before + before / 2);
    }

    #[test]
    fn reno_friendly_at_a_short_round_trip() {
        // RTT 10 ms, cwnd 10, W_max 14.28: W_est leads. From 7 (0.7 of 10) it gains 0.529 a round trip up to
        // cwnd_prior = 10 (5.7 round trips), then 1: after 20 round trips about 10 + 14.3 = 24.3.
        let mut list = subflows(&[subflow(10, 10)]);
        let mut cubic = build("cubic");
        lose(&mut *cubic, &mut list, 10, LossCause::FastRetransmit);
        run(&mut *cubic, &mut list, 0, 200 * MILLISECOND);
        assert!((22..=25).contains(&list[0].cwnd), "{}", list[0].cwnd);
        // Linux's alpha stays: 7 + 20 * 0.529 = 17.6.
        let mut list = subflows(&[subflow(10, 10)]);
        let mut cubic = build("cubic(reno-alpha-one=false)");
        lose(&mut *cubic, &mut list, 10, LossCause::FastRetransmit);
        run(&mut *cubic, &mut list, 0, 200 * MILLISECOND);
        assert!((16..=18).contains(&list[0].cwnd), "{}", list[0].cwnd);
        // Without it the curve alone: 10 + 0.4 (0.2 - 1.96)^3 = 7.8.
        let mut list = subflows(&[subflow(10, 10)]);
        let mut cubic = build("cubic(reno-friendly=false)");
        lose(&mut *cubic, &mut list, 10, LossCause::FastRetransmit);
        run(&mut *cubic, &mut list, 0, 200 * MILLISECOND);
        assert_eq!(list[0].cwnd, 7);
    }

    #[test]
    fn w_est_gains_alpha_per_window() {
        // alpha = 3 * 0.3 / 1.7 = 0.52941; a whole window of 7 acknowledged: 7 + 0.52941.
        let mut subflows = subflows(&[subflow(10, 10)]);
        let mut cubic = build("cubic");
        lose(&mut *cubic, &mut subflows, 10, LossCause::FastRetransmit);
        cubic.on_ack(&mut subflows, 0, &at(0, 7));
        assert_close(metric(&*cubic, &subflows, "w_est"), 7.0 + 0.9 / 1.7);
        assert_eq!(subflows[0].cwnd, 7, "half a segment more");
        cubic.on_ack(&mut subflows, 0, &at(0, 7));
        assert_eq!(subflows[0].cwnd, 8, "7 + 2 x 0.52941");
    }

    #[test]
    fn a_timeout_forgets_w_max() {
        let mut subflows = subflows(&[subflow(100, 100)]);
        let mut cubic = build("cubic");
        lose(&mut *cubic, &mut subflows, 100, LossCause::FastRetransmit);
        assert_eq!(lose(&mut *cubic, &mut subflows, 100, LossCause::Timeout), 70);
        cubic.on_ack(&mut subflows, 0, &at(SECOND, 1));
        assert_close(metric(&*cubic, &subflows, "k"), 0.0);
        assert_close(metric(&*cubic, &subflows, "w_max"), 0.0);
    }

    #[test]
    fn an_undo_brings_the_curve_back() {
        let mut subflows = subflows(&[subflow(100, 100)]);
        let mut cubic = build("cubic");
        lose(&mut *cubic, &mut subflows, 100, LossCause::FastRetransmit);
        cubic.on_ack(&mut subflows, 0, &at(SECOND, 1));
        let before = cubic.metrics(&subflows, 0);
        lose(&mut *cubic, &mut subflows, 80, LossCause::FastRetransmit);
        assert_ne!(cubic.metrics(&subflows, 0), before);
        cubic.on_undo(&subflows, 0);
        assert_eq!(cubic.metrics(&subflows, 0), before);
        // A second undo has nothing to bring back.
        cubic.on_undo(&subflows, 0);
        assert_eq!(cubic.metrics(&subflows, 0), before);
    }

    #[test]
    fn idle_and_application_limited_time_does_not_count() {
        let trace = |pause: fn(&mut dyn CongestionControl, &mut [SubflowMetrics])| {
            let mut subflows = subflows(&[subflow(100, 100)]);
            let mut cubic = build("cubic");
            lose(&mut *cubic, &mut subflows, 100, LossCause::FastRetransmit);
            run(&mut *cubic, &mut subflows, 0, SECOND);
            pause(&mut *cubic, &mut subflows);
            run(&mut *cubic, &mut subflows, 11 * SECOND, 12 * SECOND);
            subflows[0].cwnd
        };
        let idle = trace(|cubic, subflows| cubic.on_idle_restart(subflows, 0, 10 * SECOND));
        let limited = trace(|cubic, subflows| {
            for second in 1..=11 {
                cubic.on_ack(subflows, 0, &Ack { cwnd_limited: false, ..at(second * SECOND, 5) });
            }
        });
        let counted = trace(|_, _| ());
        // t = 2 s: 100 + 0.4 (-2.217)^3 = 95.6; counted, 12 s: far past the plateau.
        assert!((94..=96).contains(&idle), "{idle}");
        assert!((94..=96).contains(&limited), "{limited}");
        assert!(counted > 150, "{counted}");
    }

    #[test]
    fn before_any_loss_linux_grows_by_five_percent() {
        // ssthresh from HyStart at 100, no loss yet, t = 0: W(0.1) = 100.0004, or 5 % of 100.
        for (spec, expected) in
            [("cubic(reno-friendly=false)", 100), ("cubic:linux(reno-friendly=false)", 105)]
        {
            let mut subflows = subflows(&[subflow(100, 100)]);
            let mut cubic = build(spec);
            cubic.on_ack(&mut subflows, 0, &at(0, 100));
            assert_eq!(subflows[0].cwnd, expected, "{spec}");
        }
    }

    #[test]
    fn linux_looks_ahead_by_the_least_round_trip_time() {
        // srtt 1 s, least 100 ms; cwnd 70, W_max 100: W(1) = 86.68 and W(0.1) = 72.08.
        for (spec, expected) in [("cubic", 86), ("cubic:linux", 72)] {
            let mut subflows = subflows(&[subflow(100, 1000)]);
            let mut cubic = build(spec);
            cubic.on_ack(&mut subflows, 0, &Ack { rtt: Some(100 * MILLISECOND), ..at(0, 0) });
            lose(&mut *cubic, &mut subflows, 100, LossCause::FastRetransmit);
            cubic.on_ack(&mut subflows, 0, &at(0, 70));
            assert_eq!(subflows[0].cwnd, expected, "{spec}");
        }
    }

    #[test]
    fn for_a_second_after_a_stage_began_no_sample_counts_as_the_least() {
        // As above, a second into the stage: W(2) = 95.6 with srtt ahead, W(1.1) = 87.9 with the least.
        for (sampled, expected) in [(2 * SECOND - 1, 95), (2 * SECOND, 87)] {
            let mut subflows = subflows(&[subflow(100, 1000)]);
            let mut cubic = build("cubic:linux");
            lose(&mut *cubic, &mut subflows, 100, LossCause::FastRetransmit);
            cubic.on_ack(&mut subflows, 0, &at(SECOND, 1));
            cubic.on_ack(&mut subflows, 0, &Ack { rtt: Some(100 * MILLISECOND), ..at(sampled, 0) });
            cubic.on_ack(&mut subflows, 0, &at(2 * SECOND, 70));
            assert_eq!(subflows[0].cwnd, expected, "{sampled}");
        }
    }

    #[test]
    fn slow_start_begins_no_stage() {
        let mut subflows = subflows(&[subflow(100, 100)]);
        let mut cubic = build("cubic");
        lose(&mut *cubic, &mut subflows, 100, LossCause::FastRetransmit);
        subflows[0].cwnd = 60;
        cubic.on_ack(&mut subflows, 0, &at(0, 10));
        assert_eq!((subflows[0].cwnd, metric(&*cubic, &subflows, "k")), (70, 0.0));
        cubic.on_ack(&mut subflows, 0, &at(0, 1));
        assert_close(metric(&*cubic, &subflows, "k"), 4.217163326508746);
    }

    /// Slow start over a path of 100 ms, `gap` between ACKs and the sample of the j-th ACK in its round.
    fn slow_start_exit(spec: &str, first: u32, gap: Nanos, rtt: fn(u32, u32) -> Nanos) -> u32 {
        let mut subflows = subflows(&[subflow(first, 100)]);
        subflows[0].ssthresh = u32::MAX;
        let mut cubic = build(spec);
        cubic.subflow_added(&mut subflows, 0, 0);
        for round in 1..=5 {
            let start = u64::from(round) * 100 * MILLISECOND;
            for j in 0..subflows[0].cwnd {
                let now = start + u64::from(j) * gap;
                let round_start = j == 0;
                cubic.on_ack(&mut subflows, 0, &Ack { rtt: Some(rtt(round, j)), round_start, ..at(now, 1) });
                if subflows[0].ssthresh != u32::MAX {
                    return subflows[0].ssthresh;
                }
            }
        }
        u32::MAX
    }

    #[test]
    fn hystart_ends_slow_start_with_a_long_train() {
        // ACKs 1 ms apart; a round's train must last more than 50 ms: the round that starts at 40 has only
        // 40 ACKs, the next starts at 80 and ends slow start with the ACK 51 ms in, before it is counted.
        let constant = |_, _| 100 * MILLISECOND;
        assert_eq!(slow_start_exit("cubic", 40, MILLISECOND, constant), 80 + 51);
        assert_eq!(slow_start_exit("cubic(hystart=false)", 40, MILLISECOND, constant), u32::MAX);
        // 3 ms apart is no train.
        assert_eq!(slow_start_exit("cubic", 40, 3 * MILLISECOND, constant), u32::MAX);
    }

    #[test]
    fn hystart_has_linux_s_clock_and_allows_for_bursts() {
        // 2.0009 ms are 2 ms by a clock of microseconds, and the gap from there to 4.001 ms is longer.
        let hear = |train: &mut HyStart, now, rate| train.on_ack(&at(now, 1), 40 * MILLISECOND, rate);
        let mut train = HyStart::default();
        assert!(!hear(&mut train, 2_000_900, 0));
        assert_eq!(train.last_ack, 2 * MILLISECOND);
        assert!(!hear(&mut train, 4_001_000, 0));
        assert_eq!(train.last_ack, 2 * MILLISECOND, "the train is over");
        assert_eq!((burst_time(0), burst_time(1_000_000)), (0, MILLISECOND));
        assert_eq!(burst_time(1_000_000_000), 262_144);
        // More than half of 40 ms, and of the burst's 1 ms, in steps of 0.1 ms.
        for (rate, step) in [(0, 201), (1_000_000, 206), (1_000_000_000, 202)] {
            let mut train = HyStart::default();
            let found = (1..600).find(|step| hear(&mut train, step * MILLISECOND / 10, rate));
            assert_eq!(found, Some(step), "{rate}");
        }
    }

    #[test]
    fn hystart_ends_slow_start_with_a_longer_delay() {
        // Least 100 ms: the limit is 12.5 ms more. In round 2 every sample is 113 ms: the ninth ends it.
        let late = |round, _| if round == 1 { 100 * MILLISECOND } else { 113 * MILLISECOND };
        assert_eq!(slow_start_exit("cubic", 20, 3 * MILLISECOND, late), 40 + 8);
        let slightly = |round, _| if round == 1 { 100 * MILLISECOND } else { 112_500_000 };
        assert_eq!(slow_start_exit("cubic", 20, 3 * MILLISECOND, slightly), u32::MAX);
        // One early sample keeps the round's least down.
        let one_low = |round, j| if round == 1 || j == 3 { 100 * MILLISECOND } else { 130 * MILLISECOND };
        assert_eq!(slow_start_exit("cubic", 20, 3 * MILLISECOND, one_low), u32::MAX);
    }

    #[test]
    fn hystart_waits_for_a_window_of_sixteen() {
        // Rounds of 4 and 8 are not judged; the round that starts at 16 is.
        let late = |round, _| if round == 1 { 100 * MILLISECOND } else { 150 * MILLISECOND };
        assert_eq!(slow_start_exit("cubic", 4, 3 * MILLISECOND, late), 16 + 8);
    }
}
