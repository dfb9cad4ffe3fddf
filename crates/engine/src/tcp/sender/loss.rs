//! Loss detection: RACK and tail loss probes (RFC 8985), duplicate ACKs without SACK (RFC 5681, RFC 6582).
//! What is marked and which timer is armed is here; RACK's reordering window is in `rack.rs`, the probe's
//! timeout in `tlp.rs`.

use ropewalk_wire::Payload;

use super::Sender;
use super::ack_summary::AckSummary;
use super::due::LOSS_PROBE;
use super::entry::{APP_LIMITED, EVER_RETRANS, LOST, RETRANS, SACKED};
use super::rack::DUP_THRESH;
use super::tlp::{ProbeAck, Tlp};
use crate::config::LossDetection;
use crate::congestion::{LossCause, LostSegments};
use crate::metrics::CaState;
use crate::tcp::common::Common;
use crate::tcp::context::{Context, Outcome};
use crate::tcp::timer::Timer;

impl<P: Payload> Sender<P> {
    /// RFC 8985 6.2 step 5: marks what is lost, and arms the timer for what may soon be.
    #[inline(never)]
    fn detect_losses(&mut self, common: &mut Common, cx: &mut Context<'_>, outcome: &mut Outcome) {
        common.timers.stop(Timer::Reorder);
        let timeout = self.rack.timeout(cx.metrics);
        //= RFC 8985 6.2-f
        while let Some(index) = self.scoreboard.oldest_transmission() {
            let Some(entry) = self.scoreboard.get(index) else { break };
            // The log is in order of time: whatever follows was sent later still.
            if !self.rack.is_sent_before_latest(entry.sent_at, entry.end()) {
                break;
            }
            let due = entry.sent_at + timeout;
            if due > cx.now {
                // The earliest deadline. When it has passed, this loop finds the next.
                common.timers.set(Timer::Reorder, due);
                break;
            }
            self.mark_lost(common, cx, index, outcome);
        }
    }

    /// Looks for losses after an ACK, and notes in `summary` whether a retransmission was lost.
    #[inline]
    pub(super) fn identify_losses(
        &mut self,
        common: &mut Common,
        cx: &mut Context<'_>,
        summary: &mut AckSummary,
        outcome: &mut Outcome,
    ) {
        if self.scoreboard.is_empty() {
            return;
        }
        // In Loss a lost retransmission starts fast recovery (Linux's FLAG_LOST_RETRANS): the counter tells.
        let known = common.counters.lost_retransmit;
        if common.negotiated.sack && cx.tcp.recovery.loss_detection == LossDetection::DuplicateAcks {
            self.count_losses(common, cx, summary, outcome);
        } else if common.negotiated.sack {
            // Unless something was delivered, only time can change RACK's verdict,
            // and for that there is its timer.
            if self.rack.take_advanced() {
                self.detect_losses(common, cx, outcome);
            }
        } else {
            //= RFC 5681 3.2-e 3.2-f
            // RFC 5681 3.2: the third duplicate. RFC 6582 3.2 step 3: a partial ACK says that the next is
            // lost as well.
            let metrics = &*cx.metrics;
            let recovering = matches!(metrics.ca_state(), CaState::Recovery | CaState::Loss);
            if (!recovering && metrics.sacked_out() >= DUP_THRESH)
                || (metrics.ca_state() == CaState::Recovery && summary.advanced)
            {
                self.mark_lost(common, cx, 0, outcome);
            }
        }
        summary.lost_retransmission |= common.counters.lost_retransmit > known;
    }

    /// Without SACK each duplicate ACK stands for a segment that has left the network (RFC 5681 3.2), so that
    /// another may be sent (RFC 3042).
    pub(super) fn add_reno_sack(&mut self, cx: &mut Context<'_>, summary: &mut AckSummary) {
        let metrics = &mut *cx.metrics;
        if metrics.sacked_out() + metrics.lost_out() < metrics.packets_out() {
            metrics.assume_sacked(metrics.sacked_out() + 1);
            metrics.totals.delivered += 1;
            summary.segments += 1;
        }
    }

    /// Marks an entry as lost, unless it is sacked, or marked and not retransmitted since.
    pub(super) fn mark_lost(
        &mut self,
        common: &mut Common,
        cx: &mut Context<'_>,
        index: usize,
        outcome: &mut Outcome,
    ) {
        let entry = self.scoreboard.get_mut(index);
        //= RFC 2018 5-a
        if entry.is(SACKED) || (entry.is(LOST) && !entry.is(RETRANS)) {
            return;
        }
        let metrics = &mut *cx.metrics;
        // Lost once more: the entry stays lost, and its retransmission leaves what is in flight.
        if entry.is(RETRANS) {
            metrics.sub_marked(RETRANS, entry.segments);
            entry.flags &= !RETRANS;
            common.counters.lost_retransmit += u64::from(entry.segments);
        }
        if !entry.is(LOST) {
            entry.flags |= LOST;
            metrics.add_marked(LOST, entry.segments);
            if !common.negotiated.sack {
                // What is marked lost can't be what a duplicate ACK stands for.
                metrics.assume_sacked(metrics.sacked_out());
            }
        }
        let position = entry.position;
        self.count_lost(cx, index, outcome);
        self.scoreboard.on_lost(position);
    }

    /// Counts an entry that was judged lost, and tells a model-based congestion control.
    #[inline]
    pub(super) fn count_lost(&self, cx: &mut Context<'_>, index: usize, outcome: &mut Outcome) {
        let Some(entry) = self.scoreboard.get(index) else { return };
        cx.metrics.totals.lost += u64::from(entry.segments);
        outcome.lost_segments += entry.segments;
        if self.is_paced() {
            let lost = LostSegments {
                now: cx.now,
                segments: entry.segments,
                position: entry.position,
                end: entry.end(),
                tx_in_flight: entry.in_flight,
                lost: entry.flight().lost_since(cx.metrics),
                app_limited: entry.is(APP_LIMITED),
            };
            cx.congestion.on_lost(cx.metrics, cx.siblings, &lost);
        }
    }

    /// After a timeout: marks what isn't sacked and has been in flight for a round trip; without RACK or
    /// SACK, all of it.
    pub(super) fn mark_overdue_lost(
        &mut self,
        common: &mut Common,
        cx: &mut Context<'_>,
        outcome: &mut Outcome,
    ) {
        // No receiver that still has the segment after SND.UNA acknowledges only up to it.
        let reneged = self.scoreboard.get(0).is_some_and(|head| head.is(SACKED));
        if reneged {
            //= RFC 2018 8-b after a timeout the receiver may have dropped what it sacked: forget it
            common.counters.sack_reneging += 1;
            self.scoreboard.forget_sacks();
            self.losses_mut().sack_cache = Default::default();
            cx.metrics.assume_sacked(0);
        } else if !common.negotiated.sack {
            // Duplicate ACKs counted so far say nothing of the retransmissions
            // to come (`tcp_reset_reno_sack`).
            cx.metrics.assume_sacked(0);
        }
        // Linux feeds RACK only with SACK (`tcp_clean_rtx_queue`): without it all that is out is lost.
        let is_rack = cx.tcp.recovery.loss_detection != LossDetection::DuplicateAcks;
        let all = reneged || !is_rack || !common.negotiated.sack;
        let mut index = 0;
        while let Some(entry) = self.scoreboard.get(index) {
            //= RFC 8985 6.3-a
            // The timeout is the head's own: it is lost even if RACK would still wait.
            if index == 0 || all || self.rack.is_overdue(entry.sent_at, cx.now) {
                self.mark_lost(common, cx, index, outcome);
            }
            index += 1;
        }
    }

    /// RACK's reordering timer: losses are found between ACKs (RFC 8985 6.3). Without RACK: that of early
    /// retransmit.
    pub fn on_reorder_timer(&mut self, common: &mut Common, cx: &mut Context<'_>, outcome: &mut Outcome) {
        let before = cx.metrics.in_flight();
        if cx.tcp.recovery.loss_detection == LossDetection::DuplicateAcks {
            self.retransmit_early(common, cx, outcome);
        } else {
            self.rack.take_advanced();
            self.detect_losses(common, cx, outcome);
        }
        // From every phase but Recovery, Loss included, as in `tcp_rack_reo_timeout`.
        if cx.metrics.in_flight() != before && cx.metrics.ca_state() != CaState::Recovery {
            self.enter_recovery(common, cx, false);
            if !self.is_paced() {
                // No ACK has delivered anything, yet one segment may go, as in `tcp_rack_reo_timeout`.
                self.prr.reduce(cx.metrics, 1, 0, false);
            }
        }
    }

    /// Whether retransmissions are in flight, or ever were of the oldest segment.
    #[inline]
    pub(super) fn has_retransmissions(&self, cx: &Context<'_>) -> bool {
        // The head stands for the rest: holes are repaired from the front (`tcp_any_retrans_done`).
        cx.metrics.retrans_out() > 0 || self.scoreboard.get(0).is_some_and(|head| head.is(EVER_RETRANS))
    }

    /// Arms the tail loss probe, after the retransmission timer (RFC 8985 7.2).
    #[inline(always)]
    pub(super) fn arm_probe(&mut self, common: &mut Common, cx: &Context<'_>) {
        let metrics = &*cx.metrics;
        //= RFC 8985 7.2-c
        if !cx.tcp.recovery.tail_loss_probe
            || !common.negotiated.sack
            || self.scoreboard.is_empty()
            || self.tlp.is_in_flight()
            || !matches!(metrics.ca_state(), CaState::Open | CaState::Cwr)
            || self.waits_for_sample(cx)
        {
            common.timers.stop(Timer::Probe);
            return;
        }
        let probe = cx.now + Tlp::timeout(metrics, cx.tcp);
        //= RFC 8985 7.2-b never later than the retransmission timeout
        let rto = common.timers.get(Timer::Retransmit).unwrap_or(probe);
        common.timers.set(Timer::Probe, probe.min(rto));
    }

    /// The probe is due (RFC 8985 7.3): it is sent at the next opportunity, and the RTO counts from now.
    #[cold]
    pub fn on_probe_timer(&mut self, common: &mut Common, cx: &Context<'_>) {
        //= RFC 8985 7.3-b
        if self.scoreboard.is_empty() || self.tlp.is_in_flight() {
            return;
        }
        //= RFC 8985 7.3-c
        self.due.add(LOSS_PROBE);
        self.arm_retransmit(common, cx);
    }

    /// An ACK arrived while a probe is in flight. If the probe repaired a loss, the congestion window is
    /// reduced.
    #[inline(never)]
    pub(super) fn on_probe_ack(
        &mut self,
        common: &mut Common,
        cx: &mut Context<'_>,
        ack: u64,
        summary: &AckSummary,
    ) {
        match self.tlp.on_ack(ack, summary) {
            ProbeAck::Pending => {}
            ProbeAck::Unneeded => self.tlp = Tlp::default(),
            ProbeAck::Repaired => {
                //= RFC 8985 7.4-a
                common.counters.loss_probe_recovery += 1;
                // Begun and ended at once, without PRR: all that was out when the probe left is acknowledged.
                self.begin_reduction(common, cx, LossCause::FastRetransmit);
                cx.metrics.set_ca_state(CaState::Cwr);
                self.end_reduction(cx);
                self.keep_open(common, cx);
            }
        }
    }
}
