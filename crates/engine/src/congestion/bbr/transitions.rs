//! The state machine: sections 5.3 and 5.4.

use super::super::RateSample;
use super::model::{MIN_PIPE_CWND, MIN_RTT_FILTER, Path, UNBOUNDED};
use super::states::{AckPhase, State};
use crate::metrics::SubflowMetrics;
use crate::{SECOND, Span, Time};

/// ProbeRTTInterval and ProbeRTTDuration (section 2.13.2).
const PROBE_RTT_INTERVAL: Span = Span::from_secs(5);
const PROBE_RTT_DURATION: Span = Span::from_millis(200);

/// T_reno's bound (section 5.3.3.5.2), rounds.
const RENO_ROUNDS: u64 = 63;

/// A number that is as good as random (SplitMix64's finaliser).
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Path {
    /// BBRCheckDrainDone (section 5.3.2).
    pub fn check_drain_done(&mut self, subflow: &SubflowMetrics, now: Time) {
        if self.state == State::Drain
            && (u64::from(subflow.in_flight()) <= self.inflight(subflow, 1.0)
                || self.round.count > self.drain_start_round + 3)
        {
            self.start_probe_down(subflow, now);
        }
    }

    /// BBRStartProbeBW_DOWN with BBRPickProbeWait (sections 5.3.3.6, 5.3.3.5.3).
    pub fn start_probe_down(&mut self, subflow: &SubflowMetrics, now: Time) {
        self.reset_congestion_signals();
        self.probe.up_count = 0;
        // Flows that share a bottleneck mustn't probe in step (5.3.3.5.3).
        let random = mix(now.as_nanos() ^ self.probe.id << 56);
        self.probe.rounds_since = random & 1;
        self.probe.wait = 2 * SECOND + Span::from_nanos((random >> 1) % SECOND.as_nanos());
        self.probe.cycle_at = now;
        self.probe.ack_phase = AckPhase::Stopping;
        self.start_round(subflow);
        self.state = State::ProbeDown;
    }

    /// BBRStartProbeBW_REFILL (section 5.3.3.6).
    fn start_probe_refill(&mut self, subflow: &SubflowMetrics) {
        self.reset_shortterm();
        (self.probe.up_rounds, self.probe.up_acks) = (0, 0);
        self.probe.ack_phase = AckPhase::Refilling;
        self.start_round(subflow);
        self.state = State::ProbeRefill;
    }

    /// BBRStartProbeBW_UP (section 5.3.3.6).
    pub fn start_probe_up(&mut self, subflow: &SubflowMetrics, rate: u64) {
        self.probe.ack_phase = AckPhase::Starting;
        self.start_round(subflow);
        self.full.reset(rate);
        self.state = State::ProbeUp;
        self.raise_slope(subflow);
    }

    /// BBRUpdateProbeBWCyclePhase (section 5.3.3.6).
    pub fn update_probe_bw(&mut self, subflow: &SubflowMetrics, sample: &RateSample) {
        if !self.full.reached {
            return;
        }
        self.adapt_longterm(subflow, sample);
        let saturated = self.state == State::ProbeUp && self.is_time_to_go_down(subflow, sample);
        match self.state {
            State::ProbeDown | State::ProbeCruise if self.is_time_to_probe(subflow, sample.now) => {
                self.start_probe_refill(subflow);
            }
            State::ProbeDown if self.is_time_to_cruise(subflow) => self.state = State::ProbeCruise,
            State::ProbeRefill if self.round.start => {
                self.probe.samples = true;
                self.start_probe_up(subflow, sample.rate);
            }
            State::ProbeUp if saturated => self.start_probe_down(subflow, sample.now),
            _ => {}
        }
    }

    /// BBRIsTimeToProbeBW (section 5.3.3.5.3).
    fn is_time_to_probe(&self, subflow: &SubflowMetrics, now: Time) -> bool {
        // No more seldom than a Reno flow of this size loses, which grows by a segment a round: so that both
        // get along at one bottleneck (5.3.3.5.2).
        now > self.probe.cycle_at.saturating_add(self.probe.wait)
            || self.probe.rounds_since >= self.target_inflight(subflow).min(RENO_ROUNDS)
    }

    /// BBRIsTimeToCruise (section 5.3.3.6).
    fn is_time_to_cruise(&self, subflow: &SubflowMetrics) -> bool {
        let in_flight = u64::from(subflow.in_flight());
        in_flight <= self.inflight_with_headroom() && in_flight <= self.inflight_of_max_bw(subflow)
    }

    /// BBRIsTimeToGoDown (section 5.3.3.6).
    fn is_time_to_go_down(&mut self, subflow: &SubflowMetrics, sample: &RateSample) -> bool {
        // The bound, and not the path, is what keeps the rate from growing: it isn't
        // known yet whether the pipe is full.
        if sample.cwnd_limited && u64::from(subflow.cwnd()) >= self.inflight_longterm {
            self.full.reset(sample.rate);
            return false;
        }
        self.full.now
    }

    /// BBRAdaptLongTermModel (section 5.3.3.6).
    fn adapt_longterm(&mut self, subflow: &SubflowMetrics, sample: &RateSample) {
        if self.round.start {
            match self.probe.ack_phase {
                AckPhase::Starting => self.probe.ack_phase = AckPhase::Feedback,
                AckPhase::Stopping => {
                    self.probe.samples = false;
                    self.probe.ack_phase = AckPhase::Init;
                    if self.state.is_probe_bw() && !sample.app_limited {
                        self.advance_max_bw();
                    }
                }
                _ => {}
            }
        }
        if self.is_inflight_too_high(sample.lost, sample.tx_in_flight) {
            if self.probe.samples {
                let in_flight = u64::from(sample.tx_in_flight);
                self.on_inflight_too_high(subflow, in_flight, sample.app_limited, sample.now);
            }
            return;
        }
        if self.inflight_longterm == UNBOUNDED {
            return;
        }
        self.inflight_longterm = self.inflight_longterm.max(u64::from(sample.tx_in_flight));
        if self.state == State::ProbeUp {
            self.probe_longterm_upward(subflow, sample);
        }
    }

    /// BBRRaiseInflightLongtermSlope (section 5.3.3.6).
    fn raise_slope(&mut self, subflow: &SubflowMetrics) {
        let growth = 1u64 << self.probe.up_rounds;
        self.probe.up_rounds = (self.probe.up_rounds + 1).min(30);
        self.probe.up_count = (u64::from(subflow.cwnd()) / growth).max(1);
    }

    /// BBRProbeInflightLongtermUpward (section 5.3.3.6).
    fn probe_longterm_upward(&mut self, subflow: &SubflowMetrics, sample: &RateSample) {
        if !sample.cwnd_limited || u64::from(subflow.cwnd()) < self.inflight_longterm {
            return;
        }
        self.probe.up_acks += u64::from(sample.acked);
        if self.probe.up_count > 0 && self.probe.up_acks >= self.probe.up_count {
            let delta = self.probe.up_acks / self.probe.up_count;
            self.probe.up_acks -= delta * self.probe.up_count;
            self.inflight_longterm += delta;
        }
        if self.round.start {
            self.raise_slope(subflow);
        }
    }

    /// BBRUpdateMinRTT (section 5.3.4.3).
    pub fn update_min_rtt(&mut self, sample: &RateSample) {
        let probe = &mut self.probe_rtt;
        probe.expired = sample.now > probe.min_at.saturating_add(PROBE_RTT_INTERVAL);
        if let Some(rtt) = sample.rtt
            && (rtt < probe.min_delay || probe.expired)
        {
            (probe.min_delay, probe.min_at) = (rtt, sample.now);
        }
        let expired = sample.now > self.min_rtt_at.saturating_add(MIN_RTT_FILTER);
        if probe.min_delay < self.min_rtt || (expired && probe.min_delay < Span::MAX) {
            (self.min_rtt, self.min_rtt_at) = (probe.min_delay, probe.min_at);
        }
    }

    /// BBRCheckProbeRTT (section 5.3.4.3). Returns whether ProbeRTT holds the rate back.
    pub fn check_probe_rtt(&mut self, subflow: &mut SubflowMetrics, sample: &RateSample) -> bool {
        // After an idle time the queue is empty anyway, and the next samples
        // show it: nothing need be drained.
        if self.state != State::ProbeRtt && self.probe_rtt.expired && !self.idle_restart {
            self.save_cwnd(subflow);
            self.state = State::ProbeRtt;
            self.probe_rtt.done_at = None;
            self.probe.ack_phase = AckPhase::Stopping;
            self.start_round(subflow);
        }
        let holds_back = self.state == State::ProbeRtt;
        if holds_back {
            self.handle_probe_rtt(subflow, sample.now);
        }
        if sample.delivered > 0 {
            self.idle_restart = false;
        }
        holds_back
    }

    /// BBRHandleProbeRTT (section 5.3.4.3).
    fn handle_probe_rtt(&mut self, subflow: &mut SubflowMetrics, now: Time) {
        if self.probe_rtt.done_at.is_some() {
            self.probe_rtt.round_done |= self.round.start;
            if self.probe_rtt.round_done {
                self.check_probe_rtt_done(subflow, now);
            }
        } else if u64::from(subflow.in_flight()) <= self.probe_rtt_cwnd(subflow) {
            self.probe_rtt.done_at = Some(now.saturating_add(PROBE_RTT_DURATION));
            self.probe_rtt.round_done = false;
            self.start_round(subflow);
        }
    }

    /// BBRProbeRTTCwnd (section 5.6.4.5).
    pub fn probe_rtt_cwnd(&self, subflow: &SubflowMetrics) -> u64 {
        self.bdp(subflow, State::ProbeRtt.cwnd_gain()).max(MIN_PIPE_CWND)
    }

    /// BBRCheckProbeRTTDone, BBRExitProbeRTT (sections 5.3.4.3, 5.3.4.4).
    pub fn check_probe_rtt_done(&mut self, subflow: &mut SubflowMetrics, now: Time) {
        if self.probe_rtt.done_at.is_none_or(|done| now <= done) {
            return;
        }
        // The next ProbeRTT is due an interval from now, even if this one found no lower sample.
        self.probe_rtt.min_at = now;
        self.restore_cwnd(subflow);
        self.reset_shortterm();
        if self.full.reached {
            self.start_probe_down(subflow, now);
            // BBRExitProbeRTT: DOWN only for what it resets. Little is in flight,
            // so there is nothing to drain.
            self.state = State::ProbeCruise;
        } else {
            self.state = State::Startup;
        }
    }
}
