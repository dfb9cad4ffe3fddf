//! Spurious retransmissions and timeouts: Eifel detection by timestamps (RFC 3522), DSACKs for every
//! retransmission (RFC 3708), F-RTO (RFC 5682, the SACK-enhanced version). The response is Linux's: window
//! and threshold as they were.

use ropewalk_wire::{Payload, Segment};

use super::Sender;
use super::ack_summary::AckSummary;
use super::rtt::echo;
use crate::config::LossDetection;
use crate::metrics::CaState;
use crate::tcp::common::Common;
use crate::tcp::context::Context;

impl<P: Payload> Sender<P> {
    /// Eifel detection: the ACK echoes a time before the first retransmission, so an original transmission
    /// arrived.
    fn original_arrived(&self, common: &Common, segment: &Segment<P>) -> bool {
        match self.undo().first_retransmission() {
            // Nothing was retransmitted, so originals arrived. Without SACK that isn't enough at the recovery
            // point, where the phase must be kept (Linux's `tcp_is_non_sack_preventing_reopen`).
            None => common.negotiated.sack || self.snd_una < self.recovery.point,
            Some(at) => echo(common, segment).is_some_and(|echo| (echo.wrapping_sub(at) as i32) < 0),
        }
    }

    fn may_undo(&self, common: &Common, segment: &Segment<P>) -> bool {
        self.undo().all_reported() || (self.undo().is_possible() && self.original_arrived(common, segment))
    }

    /// Restores window and threshold.
    fn undo_reduction(&mut self, cx: &mut Context<'_>, unmark_lost: bool) {
        if unmark_lost {
            self.scoreboard.unmark_lost();
            cx.metrics.clear_lost_out();
        }
        if let Some((cwnd, ssthresh)) = self.undo().prior() {
            let metrics = &mut *cx.metrics;
            // It may have grown beyond the old one meanwhile (Linux's `tcp_reno_undo_cwnd`).
            metrics.set_cwnd(metrics.cwnd().max(cwnd));
            if ssthresh > metrics.ssthresh() {
                metrics.set_ssthresh(ssthresh);
                // Nothing was reduced after all: the peer isn't told (Linux's `tcp_ecn_withdraw_cwr`).
                self.cwr_pending = false;
            }
            cx.congestion.on_undo(cx.metrics, cx.siblings);
        }
        self.undo_mut().end();
        // Not all that the episode marked need be spurious: RACK judges it again at once.
        self.rack.recheck_output();
    }

    /// At the end of fast recovery or of recovery from a timeout. Returns whether the phase must be kept:
    /// without SACK duplicate ACKs for what was just recovered could begin another (RFC 6582 4.1).
    pub(super) fn try_undo_recovery(
        &mut self,
        common: &mut Common,
        cx: &mut Context<'_>,
        segment: &Segment<P>,
    ) -> bool {
        if cx.tcp.recovery.undo && self.may_undo(common, segment) {
            if cx.metrics.ca_state() == CaState::Loss {
                common.counters.loss_undo += 1;
            } else {
                common.counters.full_undo += 1;
            }
            self.undo_reduction(cx, false);
        } else {
            self.rack.on_recovery_end();
        }
        if self.snd_una == self.recovery.point && !common.negotiated.sack {
            if !self.has_retransmissions(cx) {
                self.undo_mut().clear_retransmission();
            }
            return true;
        }
        cx.metrics.set_ca_state(CaState::Open);
        false
    }

    /// A partial ACK in fast recovery, of `removed` segments. Returns whether nothing more is to be
    /// retransmitted for now.
    pub(super) fn try_undo_partial(
        &mut self,
        common: &mut Common,
        cx: &mut Context<'_>,
        segment: &Segment<P>,
        removed: u32,
    ) -> bool {
        if !cx.tcp.recovery.undo || !self.undo().is_possible() || !self.original_arrived(common, segment) {
            return false;
        }
        // A hole was filled by what was late, not lost.
        self.rack.on_late_arrival();
        self.note_late_arrival(cx, removed);
        // Until the retransmissions in flight are answered new data clocks on, and nothing more
        // is marked (Linux's `tcp_try_undo_partial`).
        if cx.metrics.retrans_out() > 0 {
            return true;
        }
        if !self.has_retransmissions(cx) {
            self.undo_mut().clear_retransmission();
        }
        common.counters.partial_undo += 1;
        self.undo_reduction(cx, true);
        self.keep_open(common, cx);
        cx.tcp.recovery.loss_detection == LossDetection::DuplicateAcks
    }

    /// Undoes the reduction if DSACKs have reported every retransmission.
    pub(super) fn try_undo_dsack(&mut self, common: &mut Common, cx: &mut Context<'_>) -> bool {
        if !cx.tcp.recovery.undo || !self.undo().all_reported() {
            return false;
        }
        common.counters.dsack_undo += 1;
        self.rack.renew_reo_wnd_persist();
        self.undo_reduction(cx, false);
        true
    }

    /// In recovery from a timeout; `frto` says that F-RTO found it spurious.
    fn try_undo_loss(
        &mut self,
        common: &mut Common,
        cx: &mut Context<'_>,
        segment: &Segment<P>,
        frto: bool,
    ) -> bool {
        if !cx.tcp.recovery.undo || !(frto || self.may_undo(common, segment)) {
            return false;
        }
        common.counters.loss_undo += 1;
        common.counters.spurious_rtos += u64::from(frto);
        self.undo_reduction(cx, true);
        self.timeouts = 0;
        if self.snd_una == self.recovery.point && !common.negotiated.sack {
            return true;
        }
        if frto || common.negotiated.sack {
            cx.metrics.set_ca_state(CaState::Open);
        }
        true
    }

    /// An ACK in recovery from a timeout (RFC 5682 3.1 by its steps).
    pub(super) fn process_loss(
        &mut self,
        common: &mut Common,
        cx: &mut Context<'_>,
        segment: &Segment<P>,
        summary: &mut AckSummary,
    ) {
        let recovered = self.snd_una >= self.recovery.point;
        if summary.advanced && self.try_undo_loss(common, cx, segment, false) {
            return;
        }
        if self.recovery.frto {
            // Step 3.b: something that was never retransmitted has arrived: not everything was lost. Without
            // SACK that may be data from before the timeout that waited behind the hole: the retransmission
            // has filled it.
            let is_late = common.negotiated.sack || !summary.over_retransmission;
            let original = is_late && summary.has_original_before(self.recovery.point);
            if original && self.try_undo_loss(common, cx, segment, true) {
                return;
            }
            if self.snd_nxt > self.recovery.point {
                // Step 3.a: the loss was real.
                if summary.newly_sacked || summary.duplicate {
                    self.recovery.frto = false;
                }
            } else if summary.advanced && !recovered {
                // What is sent beyond it is F-RTO's new data: step 3 tells it from the old by this.
                self.recovery.point = self.snd_nxt;
                // Step 2.b: new data before further retransmissions, if there is any.
                if !self.queue.is_empty() && self.window_edge(cx) > self.snd_nxt {
                    self.recovery.new_data_first = true;
                    return;
                }
                self.recovery.frto = false;
            }
        }
        if recovered {
            self.try_undo_recovery(common, cx, segment);
            return;
        }
        if !common.negotiated.sack {
            if self.snd_nxt > self.recovery.point && summary.duplicate {
                self.add_reno_sack(cx, summary);
            } else if summary.advanced {
                cx.metrics.assume_sacked(0);
            }
        }
    }
}
