//! The model of one path and what follows from it: sections 5.5 and 5.6.

use super::super::{LostSegments, RateSample};
use super::Design;
use super::states::{AckPhase, Probe, ProbeRtt, State};
use crate::metrics::{CaState, SubflowMetrics};
use crate::{MILLISECOND, SECOND, Span, Time};

/// No bound.
pub(super) const UNBOUNDED: u64 = u64::MAX;

/// MinPipeCwnd (section 2.7), segments.
pub(super) const MIN_PIPE_CWND: u64 = 4;

/// MinRTTFilterLen (section 2.13.1).
pub(super) const MIN_RTT_FILTER: Span = Span::from_secs(10);

/// ExtraAckedFilterLen (section 2.11) in two slots, rounds.
const EXTRA_ACKED_SLOT: u64 = 5;

/// BBRStartupFullLossCnt (section 5.3.1.3).
const STARTUP_LOST_RANGES: u32 = 6;

/// A greatest value over this slot and the one before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TwoSlots {
    before: u64,
    current: u64,
}

impl TwoSlots {
    pub fn get(&self) -> u64 {
        self.before.max(self.current)
    }

    fn add(&mut self, value: u64) {
        self.current = self.current.max(value);
    }

    fn advance(&mut self) {
        *self = TwoSlots { before: self.current, current: 0 };
    }
}

/// What a loss recovery that turns out spurious gives back (section 5.5.11.1).
#[derive(Clone, Copy, Debug, Default)]
struct Saved {
    state: State,
    bw_shortterm: u64,
    inflight_shortterm: u64,
    inflight_longterm: u64,
}

/// The full-pipe estimator (section 5.3.1.2).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FullPipe {
    bw: u64,
    count: u32,
    pub now: bool,
    pub reached: bool,
}

impl FullPipe {
    /// Starts again, from a rate (BBRResetFullBW).
    pub fn reset(&mut self, bw: u64) {
        *self = FullPipe { bw, count: 0, now: false, reached: self.reached };
    }
}

/// Packet-timed round trips (section 5.5.1).
#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    pub count: u64,
    /// The latest ACK began one.
    pub start: bool,
    /// It ends when this much is delivered.
    pub next_delivered: u64,
}

/// The greatest samples since the last loss round (section 5.5.10.3).
#[derive(Clone, Debug, Default)]
struct LatestDelivery {
    /// Bytes per second.
    bw: u64,
    /// Segments.
    inflight: u64,
}

/// Round trips in which losses are judged (section 5.5.10.3).
#[derive(Clone, Debug, Default)]
struct LossRound {
    /// It ends when this much is delivered.
    delivered: u64,
    /// The latest ACK began one.
    start: bool,
    /// There were losses in it.
    has_loss: bool,
    /// Contiguous ranges that were lost in it.
    ranges: u32,
    /// End of the last one.
    last_end: u64,
}

/// What is acknowledged beyond the estimated bandwidth (section 5.5.9).
#[derive(Clone, Debug, Default)]
struct ExtraAcked {
    max: TwoSlots,
    since: Time,
    delivered: u64,
    /// The round in which the slot of `max` began.
    slot: u64,
}

/// The state of one subflow.
#[derive(Clone, Debug, Default)]
pub(super) struct Path {
    pub design: Option<Design>,
    pub state: State,
    pub initial_cwnd: u64,
    has_rtt: bool,
    pub round: Round,
    /// Bytes per second.
    max_bw: TwoSlots,
    pub bw_shortterm: u64,
    pub bw: u64,
    pub min_rtt: Span,
    pub min_rtt_at: Time,
    /// Segments.
    pub inflight_longterm: u64,
    pub inflight_shortterm: u64,
    latest: LatestDelivery,
    loss: LossRound,
    pub full: FullPipe,
    extra_acked: ExtraAcked,
    pub idle_restart: bool,
    prior_cwnd: u32,
    recovering: bool,
    pub drain_start_round: u64,
    pub probe: Probe,
    pub probe_rtt: ProbeRtt,
    saved: Saved,
}

impl Path {
    /// BBROnInit (section 5.2.1).
    pub fn new(design: Design, subflow: &SubflowMetrics, now: Time) -> Self {
        Path {
            design: Some(design),
            initial_cwnd: u64::from(subflow.cwnd()),
            bw_shortterm: UNBOUNDED,
            min_rtt: if subflow.rtt.smoothed > Span::ZERO { subflow.rtt.smoothed } else { Span::MAX },
            min_rtt_at: now,
            inflight_longterm: UNBOUNDED,
            inflight_shortterm: UNBOUNDED,
            extra_acked: ExtraAcked { since: now, ..ExtraAcked::default() },
            round: Round { next_delivered: subflow.totals.delivered, ..Round::default() },
            probe: Probe::new(u64::from(subflow.id.0)),
            probe_rtt: ProbeRtt::new(now),
            ..Path::default()
        }
    }

    pub fn design(&self) -> Design {
        self.design.unwrap_or(Design { loss: 0.02, beta: 0.7, headroom: 0.15 })
    }

    /// BBRUpdateOnACK (section 5.2.3). Returns whether samples of what is sent next are to count as
    /// application-limited.
    pub fn on_sample(&mut self, subflow: &mut SubflowMetrics, sample: &RateSample) -> bool {
        let in_recovery = matches!(subflow.ca_state(), CaState::Recovery | CaState::Loss);
        if self.recovering && !in_recovery {
            // A timeout has left what was in flight and one segment: the model's window returns (5.6.4.4).
            self.restore_cwnd(subflow);
        }
        self.recovering = in_recovery;
        self.update_latest_delivery(subflow, sample);
        self.update_max_bw(subflow, sample);
        if self.loss.start {
            self.adapt_lower_bounds(subflow);
        }
        self.update_ack_aggregation(subflow, sample);
        self.check_full_pipe(sample);
        self.check_startup_done(subflow, sample);
        self.check_drain_done(subflow, sample.now);
        self.update_probe_bw(subflow, sample);
        self.update_min_rtt(sample);
        let holds_back = self.check_probe_rtt(subflow, sample);
        if self.loss.start {
            // BBRAdvanceLatestDeliverySignals: the next loss round starts with
            // this sample, which is its first.
            (self.latest.bw, self.latest.inflight) = (sample.rate, sample.delivered);
            self.loss.has_loss = false;
            self.loss.ranges = 0;
        }
        self.bw = self.max_bw.get().min(self.bw_shortterm);
        self.init_pacing_rate(subflow);
        self.set_pacing_rate(subflow, self.state.pacing_gain());
        self.set_cwnd(subflow, sample);
        if self.full.reached {
            subflow.set_ssthresh(self.max_inflight(subflow).min(u64::from(u32::MAX - 1)) as u32);
        }
        holds_back
    }

    /// BBRUpdateLatestDeliverySignals (section 5.5.10.3).
    fn update_latest_delivery(&mut self, subflow: &SubflowMetrics, sample: &RateSample) {
        self.latest.bw = self.latest.bw.max(sample.rate);
        self.latest.inflight = self.latest.inflight.max(sample.delivered);
        self.loss.start = sample.prior_delivered >= self.loss.delivered;
        if self.loss.start {
            self.loss.delivered = subflow.totals.delivered;
        }
    }

    /// BBRUpdateMaxBw, BBRUpdateRound (sections 5.5.5, 5.5.1).
    fn update_max_bw(&mut self, subflow: &SubflowMetrics, sample: &RateSample) {
        self.round.start = sample.prior_delivered >= self.round.next_delivered;
        if self.round.start {
            self.start_round(subflow);
            self.round.count += 1;
            self.probe.rounds_since += 1;
        }
        // A sample that the application limited shows what the path can do at least
        // (5.5.5): only a higher one counts.
        if sample.rate > 0 && (sample.rate >= self.max_bw.get() || !sample.app_limited) {
            self.max_bw.add(sample.rate);
        }
    }

    /// Bytes per second.
    pub fn max_bw(&self) -> u64 {
        self.max_bw.get()
    }

    /// BBRAdvanceMaxBwFilter (section 5.5.6).
    pub fn advance_max_bw(&mut self) {
        if self.max_bw.current > 0 {
            self.max_bw.advance();
        }
    }

    /// BBRStartRound (section 5.5.1).
    pub fn start_round(&mut self, subflow: &SubflowMetrics) {
        self.round.next_delivered = subflow.totals.delivered;
    }

    /// BBRResetCongestionSignals (section 5.5.10.3).
    pub fn reset_congestion_signals(&mut self) {
        self.loss.has_loss = false;
        (self.latest.bw, self.latest.inflight) = (0, 0);
    }

    /// BBRResetShortTermModel (section 5.5.10.3).
    pub fn reset_shortterm(&mut self) {
        (self.bw_shortterm, self.inflight_shortterm) = (UNBOUNDED, UNBOUNDED);
    }

    /// BBRAdaptLowerBoundsFromCongestion (section 5.5.10.3).
    fn adapt_lower_bounds(&mut self, subflow: &SubflowMetrics) {
        // Who probes expects losses, and judges them by their rate instead (5.5.10.3).
        if self.state.is_probing() || !self.loss.has_loss {
            return;
        }
        if self.bw_shortterm == UNBOUNDED {
            self.bw_shortterm = self.max_bw.get();
        }
        if self.inflight_shortterm == UNBOUNDED {
            self.inflight_shortterm = u64::from(subflow.cwnd());
        }
        let beta = self.design().beta;
        self.bw_shortterm = self.latest.bw.max((beta * self.bw_shortterm as f64) as u64);
        self.inflight_shortterm = self.latest.inflight.max((beta * self.inflight_shortterm as f64) as u64);
    }

    /// BBRUpdateACKAggregation (section 5.5.9).
    fn update_ack_aggregation(&mut self, subflow: &SubflowMetrics, sample: &RateSample) {
        let interval = sample.now.saturating_sub(self.extra_acked.since);
        let mut expected = self.segments(subflow, self.bw, interval);
        if self.extra_acked.delivered <= expected {
            (self.extra_acked.delivered, self.extra_acked.since, expected) = (0, sample.now, 0);
        }
        self.extra_acked.delivered += u64::from(sample.acked);
        let extra = (self.extra_acked.delivered - expected).min(u64::from(subflow.cwnd()));
        let slot = if self.full.reached { EXTRA_ACKED_SLOT } else { 1 };
        if self.round.start && self.round.count >= self.extra_acked.slot + slot {
            self.extra_acked.slot = self.round.count;
            self.extra_acked.max.advance();
            if !self.full.reached {
                // In Startup one round is remembered.
                self.extra_acked.max.before = 0;
            }
        }
        self.extra_acked.max.add(extra);
    }

    /// BBRCheckFullBWReached (section 5.3.1.2).
    fn check_full_pipe(&mut self, sample: &RateSample) {
        // A round in which the application was the limit doesn't show that the path is full.
        if self.full.now || !self.round.start || sample.app_limited {
            return;
        }
        if sample.rate as f64 >= self.full.bw as f64 * 1.25 {
            self.full.reset(sample.rate);
            return;
        }
        self.full.count += 1;
        self.full.now = self.full.count >= 3;
        self.full.reached |= self.full.now;
    }

    /// BBRCheckStartupDone with BBRCheckStartupHighLoss (section 5.3.1.3).
    fn check_startup_done(&mut self, subflow: &SubflowMetrics, sample: &RateSample) {
        if self.state != State::Startup {
            return;
        }
        if !self.full.reached
            && self.loss.start
            && subflow.ca_state() == CaState::Recovery
            && self.loss.ranges >= STARTUP_LOST_RANGES
            && self.is_inflight_too_high(sample.lost, sample.tx_in_flight)
        {
            self.full.reached = true;
            self.inflight_longterm = self.bdp(subflow, 1.0).max(self.latest.inflight);
        }
        if self.full.reached {
            self.state = State::Drain;
            self.drain_start_round = self.round.count;
        }
    }

    /// IsInflightTooHigh (section 5.5.10.2). Without SACK several losses of a round are found one after
    /// another: the same rule.
    pub fn is_inflight_too_high(&self, lost: u32, tx_in_flight: u32) -> bool {
        f64::from(lost) > f64::from(tx_in_flight) * self.design().loss
    }

    /// BBRNoteLoss (section 5.5.10.2).
    pub fn note_loss(&mut self, subflow: &SubflowMetrics) {
        if !self.loss.has_loss {
            // The first loss begins a loss round, so that the whole round trip after it is judged.
            self.loss.delivered = subflow.totals.delivered;
            self.save_state();
        }
        self.loss.has_loss = true;
    }

    /// BBRHandleLostPacket (section 5.5.10.2).
    pub fn on_lost(&mut self, subflow: &SubflowMetrics, lost: &LostSegments) {
        self.note_loss(subflow);
        if lost.position != self.loss.last_end {
            self.loss.ranges += 1;
        }
        self.loss.last_end = lost.end;
        if self.probe.samples && self.is_inflight_too_high(lost.lost, lost.tx_in_flight) {
            let inflight = self.inflight_at_loss(lost);
            self.on_inflight_too_high(subflow, inflight, lost.app_limited, lost.now);
        }
    }

    /// BBRInflightAtLoss (section 5.5.10.2): at how much in flight the loss rate crossed the threshold.
    fn inflight_at_loss(&self, lost: &LostSegments) -> u64 {
        let threshold = self.design().loss;
        let before = f64::from(lost.tx_in_flight.saturating_sub(lost.segments));
        let lost_before = f64::from(lost.lost.saturating_sub(lost.segments));
        let prefix = (threshold * before - lost_before) / (1.0 - threshold).max(1e-3);
        (before + prefix.max(0.0)) as u64
    }

    /// BBRHandleInflightTooHigh (section 5.5.10.2).
    pub fn on_inflight_too_high(
        &mut self,
        subflow: &SubflowMetrics,
        tx_in_flight: u64,
        app_limited: bool,
        now: Time,
    ) {
        // Once per probe: the losses still to come are of the same excess (5.5.10.2).
        self.probe.samples = false;
        // If the application was the limit, the path wasn't tested with that much in flight.
        if !app_limited {
            let floor = self.target_inflight(subflow) as f64 * self.design().beta;
            self.inflight_longterm = tx_in_flight.max(floor as u64).max(1);
        }
        if self.state == State::ProbeUp {
            self.start_probe_down(subflow, now);
        }
    }

    /// BBRTargetInflight (section 5.3.3.5.3).
    pub fn target_inflight(&self, subflow: &SubflowMetrics) -> u64 {
        self.bdp(subflow, 1.0).min(u64::from(subflow.cwnd()))
    }

    /// BBRSaveStateUponLoss (section 5.5.11.1).
    fn save_state(&mut self) {
        self.saved = Saved {
            state: self.state,
            bw_shortterm: self.bw_shortterm,
            inflight_shortterm: self.inflight_shortterm,
            inflight_longterm: self.inflight_longterm,
        };
    }

    /// BBRHandleSpuriousLossDetection (section 5.5.11.2).
    pub fn on_spurious_loss(&mut self, subflow: &SubflowMetrics) {
        self.loss.has_loss = false;
        self.full.reset(0);
        self.bw_shortterm = self.bw_shortterm.max(self.saved.bw_shortterm);
        self.inflight_shortterm = self.inflight_shortterm.max(self.saved.inflight_shortterm);
        self.inflight_longterm = self.inflight_longterm.max(self.saved.inflight_longterm);
        if self.state == State::ProbeRtt || self.state == self.saved.state {
            return;
        }
        match self.saved.state {
            State::Startup => self.state = State::Startup,
            State::ProbeUp => self.start_probe_up(subflow, 0),
            _ => {}
        }
    }

    /// BBRSaveCwnd (section 5.6.4.4). Called before the phase of recovery is entered.
    pub fn save_cwnd(&mut self, subflow: &SubflowMetrics) {
        let recovering = matches!(subflow.ca_state(), CaState::Recovery | CaState::Loss);
        let modulated = recovering || self.state == State::ProbeRtt;
        self.prior_cwnd = if modulated { self.prior_cwnd.max(subflow.cwnd()) } else { subflow.cwnd() };
    }

    /// BBRRestoreCwnd (section 5.6.4.4).
    pub fn restore_cwnd(&self, subflow: &mut SubflowMetrics) {
        subflow.set_cwnd(subflow.cwnd().max(self.prior_cwnd));
    }

    /// Segments that `rate` bytes per second deliver in a time.
    fn segments(&self, subflow: &SubflowMetrics, rate: u64, time: Span) -> u64 {
        let bytes = u128::from(rate) * u128::from(time.as_nanos()) / u128::from(SECOND.as_nanos());
        (bytes / u128::from(subflow.mss.max(1))).min(u128::from(u32::MAX)) as u64
    }

    /// BBRBDPMultiple (section 5.6.4.2), segments, rounded up.
    pub fn bdp(&self, subflow: &SubflowMetrics, gain: f64) -> u64 {
        self.bdp_of(subflow, self.bw, gain)
    }

    fn bdp_of(&self, subflow: &SubflowMetrics, bw: u64, gain: f64) -> u64 {
        if self.min_rtt == Span::MAX {
            return self.initial_cwnd;
        }
        let bytes = bw as f64 * (self.min_rtt.as_nanos() as f64 / SECOND.as_nanos() as f64);
        libm::ceil(gain * bytes / f64::from(subflow.mss.max(1))).min(f64::from(u32::MAX)) as u64
    }

    /// BBRQuantizationBudget (section 5.6.4.2), with the offload budget of section 5.5.8.1.
    fn quantize(&self, subflow: &SubflowMetrics, inflight: u64) -> u64 {
        let budget = inflight.max(3 * subflow.tso_segments()).max(MIN_PIPE_CWND);
        if self.state == State::ProbeUp { budget + 2 } else { budget }
    }

    /// BBRInflight (section 5.6.4.2).
    pub fn inflight(&self, subflow: &SubflowMetrics, gain: f64) -> u64 {
        self.quantize(subflow, self.bdp(subflow, gain))
    }

    /// BBRInflight of max_bw.
    pub fn inflight_of_max_bw(&self, subflow: &SubflowMetrics) -> u64 {
        self.quantize(subflow, self.bdp_of(subflow, self.max_bw(), 1.0))
    }

    /// BBRUpdateMaxInflight (section 5.6.4.2).
    fn max_inflight(&self, subflow: &SubflowMetrics) -> u64 {
        self.quantize(subflow, self.bdp(subflow, self.state.cwnd_gain()) + self.extra_acked.max.get())
    }

    /// BBRInitPacingRate (section 5.6.2), again with the first round-trip time.
    pub fn init_pacing_rate(&mut self, subflow: &mut SubflowMetrics) {
        if self.has_rtt {
            return;
        }
        self.has_rtt = subflow.rtt.smoothed > Span::ZERO;
        let rtt = if subflow.rtt.smoothed > Span::ZERO { subflow.rtt.smoothed } else { MILLISECOND };
        let window = self.initial_cwnd * u64::from(subflow.mss);
        let nominal =
            (u128::from(window) * u128::from(SECOND.as_nanos()) / u128::from(rtt.as_nanos())) as f64;
        subflow.rate.pacing = (State::Startup.pacing_gain() * nominal) as u64;
    }

    /// BBRSetPacingRateWithGain (section 5.6.2).
    pub fn set_pacing_rate(&self, subflow: &mut SubflowMetrics, gain: f64) {
        let rate = (gain * self.bw as f64 * 0.99) as u64;
        // Until the pipe is known to be full early samples are too low: the rate only rises (5.6.2).
        if rate > 0 && (self.full.reached || rate > subflow.rate.pacing) {
            subflow.rate.pacing = rate;
        }
    }

    /// BBRSetCwnd (section 5.6.4.6).
    fn set_cwnd(&mut self, subflow: &mut SubflowMetrics, sample: &RateSample) {
        let most = self.max_inflight(subflow);
        let mut cwnd = u64::from(subflow.cwnd());
        let grown = cwnd + u64::from(sample.acked);
        if self.full.reached {
            cwnd = grown.min(most);
        } else if cwnd < most || subflow.totals.delivered < self.initial_cwnd {
            cwnd = grown;
        }
        cwnd = cwnd.max(MIN_PIPE_CWND);
        if self.state == State::ProbeRtt {
            cwnd = cwnd.min(self.probe_rtt_cwnd(subflow));
        }
        subflow.set_cwnd(cwnd.min(self.cwnd_cap()).min(u64::from(u32::MAX)) as u32);
    }

    /// BBRBoundCwndForModel (section 5.6.4.7).
    fn cwnd_cap(&self) -> u64 {
        let cap = match self.state {
            State::ProbeDown | State::ProbeRefill | State::ProbeUp => self.inflight_longterm,
            State::ProbeRtt | State::ProbeCruise => self.inflight_with_headroom(),
            State::Startup | State::Drain => UNBOUNDED,
        };
        cap.min(self.inflight_shortterm).max(MIN_PIPE_CWND)
    }

    /// BBRInflightWithHeadroom (section 5.3.3.6).
    pub fn inflight_with_headroom(&self) -> u64 {
        if self.inflight_longterm == UNBOUNDED {
            return UNBOUNDED;
        }
        let headroom = (self.design().headroom * self.inflight_longterm as f64) as u64;
        self.inflight_longterm.saturating_sub(headroom.max(1)).max(MIN_PIPE_CWND)
    }

    /// BBRHandleRestartFromIdle (section 5.4.1).
    pub fn before_transmit(&mut self, subflow: &mut SubflowMetrics, now: Time, app_limited: bool) {
        self.init_pacing_rate(subflow);
        // After a wait for the window or the pacer nothing is idle: the model goes on (5.4.1).
        if !app_limited {
            return;
        }
        self.idle_restart = true;
        self.extra_acked.since = now;
        if self.state.is_probe_bw() {
            self.set_pacing_rate(subflow, 1.0);
        } else if self.state == State::ProbeRtt {
            self.check_probe_rtt_done(subflow, now);
        }
    }

    /// For observers.
    pub fn metrics(&self) -> Vec<(&'static str, f64)> {
        let bound = |value: u64| if value == UNBOUNDED { -1.0 } else { value as f64 };
        vec![
            ("state", self.state as u8 as f64),
            ("bw", self.bw as f64),
            ("max_bw", self.max_bw.get() as f64),
            ("min_rtt", if self.min_rtt == Span::MAX { -1.0 } else { self.min_rtt.as_nanos() as f64 }),
            ("inflight_longterm", bound(self.inflight_longterm)),
            ("inflight_shortterm", bound(self.inflight_shortterm)),
            ("ack_phase", f64::from(u8::from(self.probe.ack_phase != AckPhase::Init))),
        ]
    }
}
