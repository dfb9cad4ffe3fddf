//! Loss recovery: its phases, named and ordered as in Linux (`tcp_fastretrans_alert`), entering and leaving them,
//! recovery from a timeout (RFC 5681 3.1, RFC 6675 5.1), without SACK (RFC 6582, RFC 3042), and ECN's reduction
//! (RFC 3168 6.1.2). What is lost is RACK's to say, how the window comes down PRR's, whether it was a mistake
//! `undo`'s.

use ropewalk_wire::{Payload, Segment};

use super::ack_summary::AckSummary;
use super::cwnd_validation::current_ssthresh;
use super::entry::{EVER_RETRANS, LOST, RETRANS, SACKED};
use super::prr::Prr;
use super::rack::DUP_THRESH;
use crate::MILLISECOND;
use crate::congestion::LossCause;
use crate::metrics::CaState;
use crate::tcp::timer::Timer;
use crate::tcp::{Context, Outcome, Subflow};

/// What recovery keeps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recovery {
    /// RecoveryPoint: the phase ends when everything before this position is acknowledged.
    pub high: u64,
    /// What the last ACK's SACK blocks covered, in order, with empty ones for the rest.
    pub sack_cache: [(u64, u64); 4],
    /// F-RTO sends new data before it goes on sending again (RFC 5682 3.1 step 2.b).
    pub new_data_first: bool,
}

impl<P: Payload> Subflow<P> {
    /// Everything that an ACK means for loss, recovery and the window.
    #[inline]
    pub(in crate::tcp) fn recover(
        &mut self,
        cx: &mut Context<'_>,
        segment: &Segment<P>,
        ack: u64,
        summary: &mut AckSummary,
        prior_in_flight: u32,
        outcome: &mut Outcome,
    ) {
        self.recovery.new_data_first = false;
        if self.tlp.high != 0 {
            self.on_probe_ack(cx, ack, summary);
        }
        let metrics = &cx.metrics[cx.index];
        let quiet = metrics.ca_state == CaState::Open
            && summary.advanced
            && metrics.sacked_out == 0
            && metrics.lost_out == 0
            && !summary.newly_sacked
            && summary.dsack.is_none()
            && !summary.ece;
        if !quiet {
            let disorder = metrics.ca_state == CaState::Disorder && self.sack && !summary.ece;
            if disorder && !self.has_reneged(summary) {
                // All that `alert` has for this phase.
                self.open_or_recover(cx, summary, outcome);
            } else {
                self.alert(cx, segment, summary, outcome);
            }
        }
        if matches!(cx.metrics[cx.index].ca_state, CaState::Recovery | CaState::Cwr) {
            self.prr.reduce(
                &mut cx.metrics[cx.index],
                summary.segments,
                outcome.lost_segments,
                summary.advanced,
            );
        } else if summary.segments > 0 && (summary.advanced || self.rack.reordering_seen) {
            self.grow(cx, summary, prior_in_flight);
        }
        if summary.segments > 0 {
            self.update_pacing(cx);
        }
    }

    /// Whether the receiver has dropped what it sacked (RFC 2018 8).
    #[inline]
    fn has_reneged(&self, summary: &AckSummary) -> bool {
        summary.advanced && self.rtx.get(0).is_some_and(|head| head.is(SACKED))
    }

    /// An ACK that isn't plain progress in the open phase.
    #[inline(never)]
    fn alert(
        &mut self,
        cx: &mut Context<'_>,
        segment: &Segment<P>,
        summary: &mut AckSummary,
        outcome: &mut Outcome,
    ) {
        if summary.ece {
            // The network says that the window was too large: nothing to take back.
            self.undo.prior_ssthresh = 0;
        }
        if self.has_reneged(summary) {
            // A timeout, soon.
            let wait = (cx.metrics[cx.index].srtt / 2).max(10 * MILLISECOND);
            self.timers.set(Timer::Retransmit, cx.now + wait);
            summary.reneged = true;
            return;
        }
        let phase = cx.metrics[cx.index].ca_state;
        if phase == CaState::Open {
            if cx.metrics[cx.index].retrans_out == 0 {
                self.undo.stamp = 0;
            }
        } else if self.snd_una >= self.recovery.high {
            match phase {
                // Held until something above is acknowledged, so that CWR reaches the receiver.
                CaState::Cwr if self.snd_una > self.recovery.high => {
                    self.end_reduction(cx);
                    cx.metrics().ca_state = CaState::Open;
                }
                CaState::Recovery => {
                    if !self.sack {
                        cx.metrics().sacked_out = 0;
                    }
                    if self.try_undo_recovery(cx, segment) {
                        return;
                    }
                    self.end_reduction(cx);
                }
                _ => {}
            }
        }
        match cx.metrics[cx.index].ca_state {
            CaState::Recovery => {
                if !summary.advanced {
                    if !self.sack && summary.duplicate {
                        self.add_reno_sack(cx, summary);
                    }
                } else if self.try_undo_partial(cx, segment) {
                    return;
                }
                if self.try_undo_dsack(cx) {
                    self.try_to_open(cx, summary);
                }
                self.identify_losses(cx, summary, outcome);
                if cx.metrics[cx.index].ca_state != CaState::Recovery && cx.metrics[cx.index].lost_out > 0 {
                    self.enter_recovery(cx, summary.ece);
                }
            }
            CaState::Loss => {
                self.process_loss(cx, segment, summary);
                if !self.sack && self.rtx.is_empty() {
                    // Schedulers give nothing to a subflow in Loss: without SACK the phase would wait for ever for
                    // something above `high` to be acknowledged.
                    cx.metrics().ca_state = CaState::Open;
                }
                self.identify_losses(cx, summary, outcome);
                if cx.metrics[cx.index].ca_state != CaState::Loss || summary.lost_retransmission {
                    self.open_or_recover(cx, summary, outcome);
                }
            }
            _ => self.open_or_recover(cx, summary, outcome),
        }
    }

    #[inline(never)]
    fn open_or_recover(&mut self, cx: &mut Context<'_>, summary: &mut AckSummary, outcome: &mut Outcome) {
        if !self.sack {
            if summary.advanced {
                cx.metrics().sacked_out = 0;
            }
            if summary.duplicate {
                self.add_reno_sack(cx, summary);
            }
        }
        if matches!(cx.metrics[cx.index].ca_state, CaState::Open | CaState::Disorder) {
            self.try_undo_dsack(cx);
        }
        self.identify_losses(cx, summary, outcome);
        if cx.metrics[cx.index].lost_out > 0 {
            self.enter_recovery(cx, summary.ece);
        } else {
            self.try_to_open(cx, summary);
        }
    }

    #[inline]
    fn identify_losses(&mut self, cx: &mut Context<'_>, summary: &mut AckSummary, outcome: &mut Outcome) {
        if self.rtx.is_empty() {
            return;
        }
        let known = self.counters.lost_retransmit;
        if self.sack {
            self.detect_losses_if_advanced(cx, outcome);
        } else {
            // RFC 5681 3.2: the third duplicate; RFC 6582 3.2 step 3: a partial ACK says that the next is lost too.
            let metrics = &cx.metrics[cx.index];
            let recovering = matches!(metrics.ca_state, CaState::Recovery | CaState::Loss);
            if (!recovering && metrics.sacked_out >= DUP_THRESH)
                || (metrics.ca_state == CaState::Recovery && summary.advanced)
            {
                self.mark_lost(cx, 0, outcome);
            }
        }
        summary.lost_retransmission |= self.counters.lost_retransmit > known;
    }

    /// Without SACK each duplicate ACK stands for a segment that has left the network (RFC 5681 3.2), so that another
    /// may enter it (RFC 3042).
    pub(in crate::tcp) fn add_reno_sack(&mut self, cx: &mut Context<'_>, summary: &mut AckSummary) {
        let metrics = cx.metrics();
        if metrics.sacked_out + metrics.lost_out < metrics.packets_out {
            metrics.sacked_out += 1;
            metrics.delivered += 1;
            summary.segments += 1;
        }
    }

    pub(in crate::tcp) fn mark_lost(&mut self, cx: &mut Context<'_>, index: usize, outcome: &mut Outcome) {
        let entry = self.rtx.get_mut(index);
        if entry.is(SACKED) || (entry.is(LOST) && !entry.is(RETRANS)) {
            return;
        }
        let metrics = &mut cx.metrics[cx.index];
        if entry.is(RETRANS) {
            metrics.retrans_out -= entry.segments;
            entry.flags &= !RETRANS;
            self.counters.lost_retransmit += u64::from(entry.segments);
        }
        if !entry.is(LOST) {
            entry.flags |= LOST;
            metrics.lost_out += entry.segments;
            if !self.sack {
                metrics.sacked_out = metrics.sacked_out.min(metrics.packets_out - metrics.lost_out);
            }
        }
        metrics.lost_total += u64::from(entry.segments);
        outcome.lost_segments += entry.segments;
        let position = entry.position;
        self.rtx.lost_hint = self.rtx.lost_hint.min(position);
    }

    /// After a timeout: what isn't sacked and has been under way for a round trip.
    fn mark_overdue_lost(&mut self, cx: &mut Context<'_>, outcome: &mut Outcome) {
        let reneged = self.rtx.get(0).is_some_and(|head| head.is(SACKED));
        if reneged {
            //= RFC 2018 8 after a timeout the receiver may have dropped what it sacked: forget it
            self.counters.sack_reneging += 1;
            self.rtx.forget_sacks();
            self.recovery.sack_cache = Default::default();
            cx.metrics().sacked_out = 0;
        } else if !self.sack {
            cx.metrics().sacked_out = 0;
        }
        let mut index = 0;
        while let Some(entry) = self.rtx.get(index) {
            if index == 0 || reneged || self.rack.overdue(entry.sent_at, cx.now) {
                self.mark_lost(cx, index, outcome);
            }
            index += 1;
        }
    }

    #[inline]
    pub(in crate::tcp) fn any_retransmission_out(&self, cx: &Context<'_>) -> bool {
        cx.metrics[cx.index].retrans_out > 0 || self.rtx.get(0).is_some_and(|head| head.is(EVER_RETRANS))
    }

    /// Open, or Disorder while anything is missing.
    #[inline]
    pub(in crate::tcp) fn keep_open(&mut self, cx: &mut Context<'_>) {
        let metrics = &cx.metrics[cx.index];
        let disorder = metrics.sacked_out + metrics.lost_out > 0 || self.any_retransmission_out(cx);
        let phase = if disorder { CaState::Disorder } else { CaState::Open };
        if phase != metrics.ca_state {
            if disorder {
                self.timers.stop(Timer::Probe);
            }
            cx.metrics().ca_state = phase;
            self.recovery.high = self.snd_nxt;
        }
    }

    #[inline]
    fn try_to_open(&mut self, cx: &mut Context<'_>, summary: &AckSummary) {
        if !self.any_retransmission_out(cx) {
            self.undo.stamp = 0;
        }
        if summary.ece {
            self.enter_cwr(cx);
        }
        if cx.metrics[cx.index].ca_state != CaState::Cwr {
            self.keep_open(cx);
        }
    }

    //= RFC 3168 6.1.2 the window is reduced once per window of data
    fn enter_cwr(&mut self, cx: &mut Context<'_>) {
        self.undo.prior_ssthresh = 0;
        if matches!(cx.metrics[cx.index].ca_state, CaState::Open | CaState::Disorder) {
            self.undo.marker = 0;
            self.begin_reduction(cx, LossCause::Ecn);
            cx.metrics().ca_state = CaState::Cwr;
        }
    }

    /// Fast recovery; a reduction that is under way already serves.
    pub(in crate::tcp) fn enter_recovery(&mut self, cx: &mut Context<'_>, ece: bool) {
        if self.sack {
            self.counters.sack_recovery += 1;
        } else {
            self.counters.reno_recovery += 1;
        }
        if cx.metrics[cx.index].retrans_out == 0 {
            self.undo.stamp = 0;
        }
        let una = self.snd_una.max(1);
        let metrics = cx.metrics();
        let (cwnd, ssthresh) = (metrics.cwnd, current_ssthresh(metrics));
        self.undo.remember(cwnd, 0);
        self.undo.begin(una, metrics.retrans_out);
        if !matches!(metrics.ca_state, CaState::Cwr | CaState::Recovery) {
            if !ece {
                self.undo.remember(cwnd, ssthresh);
            }
            self.begin_reduction(cx, LossCause::FastRetransmit);
        }
        // No tail loss probe during recovery (RFC 8985 7.2).
        self.timers.stop(Timer::Probe);
        cx.metrics().ca_state = CaState::Recovery;
    }

    /// A reduction of the window begins: the congestion control says to where.
    pub(in crate::tcp) fn begin_reduction(&mut self, cx: &mut Context<'_>, cause: LossCause) {
        self.recovery.high = self.snd_nxt;
        self.tlp.high = 0;
        self.prr = Prr::begin(cx.metrics[cx.index].cwnd);
        self.lower_threshold(cx, cause);
    }

    fn lower_threshold(&mut self, cx: &mut Context<'_>, cause: LossCause) {
        let now = cx.now;
        let new = cx.congestion.ssthresh(cx.metrics, cx.index, cause, now);
        let metrics = cx.metrics();
        metrics.ssthresh = new.max(1);
        metrics.loss_events += 1;
        metrics.bytes_acked_at_loss = metrics.bytes_acked;
        self.cwr_pending = self.ecn;
    }

    /// The window is where it was to come down to, unless that was undone.
    pub(in crate::tcp) fn end_reduction(&mut self, cx: &mut Context<'_>) {
        let marker = self.undo.marker;
        let now = cx.now;
        let metrics = cx.metrics();
        if metrics.ssthresh < u32::MAX && (metrics.ca_state == CaState::Cwr || marker != 0) {
            metrics.cwnd = metrics.ssthresh.max(1);
            self.cwnd_validation.restart(now);
        }
    }

    /// RACK's timer found losses between ACKs.
    pub(in crate::tcp) fn on_reorder_timer(&mut self, cx: &mut Context<'_>, outcome: &mut Outcome) {
        let before = cx.metrics[cx.index].in_flight();
        self.detect_losses(cx, outcome);
        if cx.metrics[cx.index].in_flight() != before && cx.metrics[cx.index].ca_state != CaState::Recovery {
            self.enter_recovery(cx, false);
            self.prr.reduce(&mut cx.metrics[cx.index], 1, 0, false);
        }
    }

    /// A timeout: the window is what is in flight and one segment.
    pub(in crate::tcp) fn enter_loss(&mut self, cx: &mut Context<'_>, outcome: &mut Outcome) {
        let phase = cx.metrics[cx.index].ca_state;
        let fresh = !matches!(phase, CaState::Recovery | CaState::Loss);
        self.mark_overdue_lost(cx, outcome);
        // The threshold falls once per window of data.
        if matches!(phase, CaState::Open | CaState::Disorder)
            || self.snd_una >= self.recovery.high
            || (phase == CaState::Loss && self.retransmits == 0)
        {
            let metrics = cx.metrics();
            let (cwnd, ssthresh, retrans_out) =
                (metrics.cwnd, current_ssthresh(metrics), metrics.retrans_out);
            self.undo.remember(cwnd, ssthresh);
            self.lower_threshold(cx, LossCause::Timeout);
            self.undo.begin(self.snd_una.max(1), retrans_out);
            self.undo.stamp = 0;
        }
        let now = cx.now;
        let metrics = cx.metrics();
        metrics.cwnd = metrics.in_flight() + 1;
        metrics.ca_state = CaState::Loss;
        self.cwnd_validation.restart(now);
        self.recovery.high = self.snd_nxt;
        self.recovery.new_data_first = false;
        self.tlp.high = 0;
        self.cwr_pending = self.ecn;
        // RFC 5682 3.2: not when another recovery is under way, but for repeated timeouts of the same data.
        self.frto = cx.tcp.undo && (fresh || self.retransmits > 0);
    }
}
