//! Loss detection and recovery: RACK (RFC 8985), PRR (RFC 6937), ECN's reduction (RFC 3168 6.1.2), and undoing
//! reductions that turn out spurious (Eifel, RFC 3522; DSACK, RFC 3708). Phases are named as in Linux.

use ropewalk_wire::{Payload, Segment};

use super::ack::{Delivery, grows};
use super::scoreboard::{LOST, RETRANS, SACKED};
use super::timer::Timer;
use super::{Context, Outcome, Subflow};
use crate::Nanos;
use crate::congestion::LossCause;
use crate::flow::Phase;

/// Duplicate ACK threshold (RFC 5681).
const DUP_THRESH: u32 = 3;

/// What recovery keeps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recovery {
    /// The phase ends when everything before this position is acknowledged.
    high: u64,
    prior_cwnd: u32,
    prior_ssthresh: u32,
    /// For undo: 0 when there is nothing to undo.
    undo_una: u64,
    undo_retrans: u32,
    /// Timestamp clock when the first retransmission of the episode was sent; 0: none.
    pub retrans_stamp: u32,
    prr_delivered: u32,
    pub prr_out: u32,
    pub highest_sacked: u64,
    pub sack_cache: [(u64, u64); 4],
    // RACK.
    rack_sent_at: Nanos,
    rack_end: u64,
    rack_rtt: Nanos,
    reordering_seen: bool,
    reo_wnd_mult: u32,
    reo_wnd_persist: u32,
    dsack_round: u64,
    /// Duplicate ACKs, for peers without SACK.
    dup_acks: u32,
    /// A tail loss probe is out up to this position.
    pub tlp_high: u64,
}

impl<P: Payload> Subflow<P> {
    /// Everything that an ACK means for loss, recovery and the window.
    #[inline]
    pub(super) fn recover(
        &mut self,
        cx: &mut Context<'_>,
        segment: &Segment<P>,
        ack: u64,
        advanced: bool,
        dsack: bool,
        delivery: &Delivery,
        prior_in_flight: u32,
        outcome: &mut Outcome,
    ) {
        if let Some((sent_at, end)) = delivery.latest {
            let rack = (self.recovery.rack_sent_at, self.recovery.rack_end);
            if (sent_at, end) > rack {
                self.recovery.rack_sent_at = sent_at;
                self.recovery.rack_end = end;
                self.recovery.rack_rtt = delivery.rtt.unwrap_or(cx.now.saturating_sub(sent_at));
            }
        }
        self.recovery.reordering_seen |= delivery.reordered;
        let phase = cx.flows[cx.index].phase;
        let quiet = phase == Phase::Open
            && cx.flows[cx.index].sacked_out == 0
            && cx.flows[cx.index].lost_out == 0
            && !dsack
            && advanced;
        if !quiet {
            if dsack {
                self.on_dsack(ack);
            }
            if !advanced && !self.sack && segment.payload.is_empty() && !self.rtx.is_empty() {
                self.on_duplicate_ack(cx, outcome);
            }
            self.detect_losses(cx, outcome);
            self.step_phase(cx, segment, ack, advanced, delivery, outcome);
        }
        if advanced && !self.sack {
            self.recovery.dup_acks = 0;
        }
        if self.ece_counts(segment) && cx.flows[cx.index].phase == Phase::Open {
            self.ece_seen_until = self.snd_nxt;
            self.cwr_pending = true;
            self.enter(cx, Phase::Cwr, LossCause::Ecn);
        }
        let phase = cx.flows[cx.index].phase;
        if matches!(phase, Phase::Recovery | Phase::Cwr) {
            self.reduce(cx, delivery.segments, outcome.lost_segments, advanced);
        } else if grows(phase) && delivery.segments > 0 {
            self.grow(cx, delivery, prior_in_flight);
        }
        if delivery.segments > 0 {
            self.update_pacing(cx);
        }
    }

    fn on_dsack(&mut self, ack: u64) {
        let recovery = &mut self.recovery;
        recovery.undo_retrans = recovery.undo_retrans.saturating_sub(1);
        // RFC 8985 6.2 step 4: widen the reordering window once per round trip with a DSACK.
        if ack >= recovery.dsack_round {
            recovery.dsack_round = self.snd_nxt;
            recovery.reo_wnd_mult = (recovery.reo_wnd_mult + 1).min(64);
            recovery.reo_wnd_persist = 16;
        }
        recovery.reordering_seen = true;
    }

    /// Without SACK (RFC 5681 3.2, RFC 6582): the third duplicate ACK marks the head lost.
    fn on_duplicate_ack(&mut self, cx: &mut Context<'_>, outcome: &mut Outcome) {
        self.recovery.dup_acks += 1;
        if self.recovery.dup_acks == DUP_THRESH {
            self.mark_lost(cx, 0, outcome);
        }
    }

    /// RACK's step 5 (RFC 8985 6.2): what was sent long enough before the latest delivered is lost.
    pub(super) fn detect_losses(&mut self, cx: &mut Context<'_>, outcome: &mut Outcome) {
        self.timers.stop(Timer::Reorder);
        let flow = &cx.flows[cx.index];
        if self.recovery.rack_rtt == 0 && self.recovery.rack_sent_at == 0 {
            return;
        }
        let window = if !self.recovery.reordering_seen
            && (matches!(flow.phase, Phase::Recovery | Phase::Loss) || flow.sacked_out >= DUP_THRESH)
        {
            0
        } else {
            let quarter = flow.min_rtt / 4 * u64::from(self.recovery.reo_wnd_mult + 1);
            quarter.min(flow.srtt)
        };
        let rack = (self.recovery.rack_sent_at, self.recovery.rack_end);
        while let Some(index) = self.rtx.oldest_transmission() {
            let Some(entry) = self.rtx.get(index) else { break };
            if (entry.sent_at, entry.end()) >= rack {
                break;
            }
            let due = entry.sent_at + self.recovery.rack_rtt + window;
            if due > cx.now {
                self.timers.set(Timer::Reorder, due);
                break;
            }
            self.mark_lost(cx, index, outcome);
        }
    }

    pub(super) fn mark_lost(&mut self, cx: &mut Context<'_>, index: usize, outcome: &mut Outcome) {
        let entry = self.rtx.get_mut(index);
        if entry.is(SACKED) || (entry.is(LOST) && !entry.is(RETRANS)) {
            return;
        }
        let flow = &mut cx.flows[cx.index];
        if entry.is(RETRANS) {
            flow.retrans_out -= entry.segments;
            entry.flags &= !RETRANS;
        }
        if !entry.is(LOST) {
            entry.flags |= LOST;
            flow.lost_out += entry.segments;
        }
        flow.lost_total += u64::from(entry.segments);
        outcome.lost_segments += entry.segments;
        let position = entry.position;
        self.rtx.lost_hint = self.rtx.lost_hint.min(position);
    }

    /// Marks everything that isn't sacked (RFC 6675 5.1, after a timeout).
    pub(super) fn mark_all_lost(&mut self, cx: &mut Context<'_>) -> u32 {
        let mut outcome = Outcome::default();
        let mut index = 0;
        while self.rtx.get(index).is_some() {
            self.mark_lost(cx, index, &mut outcome);
            index += 1;
        }
        outcome.lost_segments
    }

    /// Moves between phases.
    fn step_phase(
        &mut self,
        cx: &mut Context<'_>,
        segment: &Segment<P>,
        ack: u64,
        advanced: bool,
        delivery: &Delivery,
        outcome: &Outcome,
    ) {
        if self.undo_if_spurious(cx, segment, advanced, delivery) {
            return;
        }
        let high = self.recovery.high;
        match cx.flows[cx.index].phase {
            Phase::Open | Phase::Disorder => {
                if cx.flows[cx.index].lost_out > 0 || outcome.lost_segments > 0 {
                    self.enter(cx, Phase::Recovery, LossCause::FastRetransmit);
                } else {
                    let disorder = cx.flows[cx.index].sacked_out > 0 || self.recovery.dup_acks > 0;
                    cx.flow().phase = if disorder { Phase::Disorder } else { Phase::Open };
                }
            }
            Phase::Cwr => {
                if outcome.lost_segments > 0 {
                    // The window is being reduced already; only the name changes.
                    cx.flow().phase = Phase::Recovery;
                } else if ack >= high {
                    self.leave(cx);
                }
            }
            Phase::Recovery => {
                if ack >= high {
                    self.leave(cx);
                } else if advanced && !self.sack {
                    // RFC 6582 3.2 step 3: a partial ACK says that the next is lost too.
                    let mut more = Outcome::default();
                    self.mark_lost(cx, 0, &mut more);
                }
            }
            Phase::Loss => {
                if ack >= high {
                    self.recovery.undo_una = 0;
                    self.recovery.retrans_stamp = 0;
                    cx.flow().phase = Phase::Open;
                }
            }
        }
    }

    /// Begins a reduction.
    pub(super) fn enter(&mut self, cx: &mut Context<'_>, phase: Phase, cause: LossCause) {
        let flow = cx.flow();
        let (cwnd, ssthresh) = (flow.cwnd, flow.ssthresh);
        if flow.phase != Phase::Loss || cause == LossCause::Timeout {
            self.recovery.prior_cwnd = cwnd;
            self.recovery.prior_ssthresh = ssthresh;
        }
        self.recovery.undo_una = if cause == LossCause::Ecn { 0 } else { self.snd_una.max(1) };
        self.recovery.undo_retrans = 0;
        self.recovery.retrans_stamp = 0;
        self.recovery.prr_delivered = 0;
        self.recovery.prr_out = 0;
        self.recovery.high = self.snd_nxt;
        let now = cx.now;
        let new = cx.congestion.ssthresh(cx.flows, cx.index, cause, now);
        let flow = cx.flow();
        flow.ssthresh = new.max(1);
        flow.phase = phase;
        flow.loss_events += 1;
        flow.bytes_acked_at_loss = flow.bytes_acked;
    }

    fn leave(&mut self, cx: &mut Context<'_>) {
        let flow = cx.flow();
        flow.cwnd = flow.ssthresh.max(1);
        flow.phase = if flow.sacked_out > 0 { Phase::Disorder } else { Phase::Open };
        self.recovery.undo_una = 0;
        self.recovery.retrans_stamp = 0;
        // RFC 8985 6.2 step 4: the wider window lasts 16 recoveries.
        if self.recovery.reo_wnd_persist > 0 {
            self.recovery.reo_wnd_persist -= 1;
            if self.recovery.reo_wnd_persist == 0 {
                self.recovery.reo_wnd_mult = 0;
            }
        }
    }

    /// PRR with the reduction bound of Linux (RFC 6937 3, `tcp_cwnd_reduction`).
    fn reduce(&mut self, cx: &mut Context<'_>, delivered: u32, newly_lost: u32, advanced: bool) {
        if delivered == 0 && newly_lost == 0 {
            return;
        }
        let recovery = &mut self.recovery;
        let flow = &mut cx.flows[cx.index];
        recovery.prr_delivered += delivered;
        let in_flight = flow.in_flight();
        let mut allowed = if in_flight > flow.ssthresh {
            let share = u64::from(flow.ssthresh) * u64::from(recovery.prr_delivered);
            let share = share.div_ceil(u64::from(recovery.prior_cwnd.max(1)));
            (share as u32).saturating_sub(recovery.prr_out)
        } else {
            let mut room = recovery.prr_delivered.saturating_sub(recovery.prr_out).max(delivered);
            if advanced && newly_lost == 0 {
                room += 1;
            }
            room.min(flow.ssthresh - in_flight)
        };
        // The first retransmission of an episode always goes.
        if recovery.prr_out == 0 {
            allowed = allowed.max(1);
        }
        flow.cwnd = (in_flight + allowed).max(1);
    }

    /// Eifel detection by timestamps (RFC 3522 3.2), and DSACKs for every retransmission (RFC 3708).
    fn undo_if_spurious(
        &mut self,
        cx: &mut Context<'_>,
        segment: &Segment<P>,
        advanced: bool,
        delivery: &Delivery,
    ) -> bool {
        if !cx.tcp.undo
            || self.recovery.undo_una == 0
            || !matches!(cx.flows[cx.index].phase, Phase::Recovery | Phase::Loss)
        {
            return false;
        }
        let eifel = advanced
            && delivery.over_retransmission
            && self.timestamps
            && self.recovery.retrans_stamp != 0
            && segment
                .timestamps
                .is_some_and(|stamp| (stamp.echo.wrapping_sub(self.recovery.retrans_stamp) as i32) < 0);
        let by_dsack = self.recovery.retrans_stamp != 0
            && self.recovery.undo_retrans == 0
            && self.recovery.dsack_round == self.snd_nxt
            && cx.flows[cx.index].retrans_out == 0;
        if !eifel && !by_dsack {
            return false;
        }
        self.counters.undos += 1;
        let mut index = 0;
        while index < self.rtx.back_index().map_or(0, |last| last + 1) {
            let entry = self.rtx.get_mut(index);
            if entry.is(LOST) && !entry.is(RETRANS) {
                entry.flags &= !LOST;
                cx.flows[cx.index].lost_out -= entry.segments;
            }
            index += 1;
        }
        let recovery = self.recovery;
        let flow = cx.flow();
        flow.cwnd = flow.cwnd.max(recovery.prior_cwnd);
        flow.ssthresh = flow.ssthresh.max(recovery.prior_ssthresh);
        flow.phase = if flow.sacked_out > 0 { Phase::Disorder } else { Phase::Open };
        self.recovery.undo_una = 0;
        self.recovery.retrans_stamp = 0;
        self.recovery.reordering_seen = true;
        cx.congestion.on_undo(cx.flows, cx.index);
        true
    }

    /// Counts a retransmission that goes out now.
    pub(super) fn note_retransmission(&mut self, cx: &Context<'_>, segments: u32) {
        self.recovery.undo_retrans += segments;
        if self.recovery.retrans_stamp == 0 {
            self.recovery.retrans_stamp = self.timestamp(cx).max(1);
        }
    }

    /// A timeout: everything is lost, the window is one segment (RFC 5681 3.1, RFC 6675 5.1).
    pub(super) fn enter_loss(&mut self, cx: &mut Context<'_>, outcome: &mut Outcome) {
        let fresh = cx.flows[cx.index].phase != Phase::Loss;
        if fresh || self.snd_una >= self.recovery.high {
            self.enter(cx, Phase::Loss, LossCause::Timeout);
        }
        outcome.lost_segments += self.mark_all_lost(cx);
        let flow = cx.flow();
        flow.cwnd = flow.in_flight() + 1;
        flow.phase = Phase::Loss;
        self.recovery.tlp_high = 0;
    }
}
