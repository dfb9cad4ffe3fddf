//! Taking back reductions that turn out spurious: Eifel detection by timestamps (RFC 3522), DSACKs for every
//! retransmission (RFC 3708), F-RTO (RFC 5682, the SACK-enhanced version); the response is Linux's: window and
//! threshold as they were.

use ropewalk_wire::{Payload, Segment};

use super::ack_summary::AckSummary;
use crate::metrics::CaState;
use crate::tcp::{Context, Subflow};

/// What it takes to undo.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Undo {
    /// SND.UNA when the episode began; 0: nothing to undo.
    pub marker: u64,
    /// Retransmissions of the episode that no DSACK has answered; `None` before the first.
    retransmitted: Option<u32>,
    /// The timestamp clock at the episode's first retransmission; 0: none yet.
    pub stamp: u32,
    prior_cwnd: u32,
    /// 0: the reduction had another cause as well, and stands.
    pub prior_ssthresh: u32,
}

impl Undo {
    /// An episode begins at `una` with `in_flight` retransmissions of an earlier one still out.
    pub fn begin(&mut self, una: u64, retrans_out: u32) {
        self.marker = una;
        self.retransmitted = (retrans_out > 0).then_some(retrans_out);
    }

    /// Remembers what to go back to.
    pub fn remember(&mut self, cwnd: u32, ssthresh: u32) {
        self.prior_cwnd = cwnd;
        self.prior_ssthresh = ssthresh;
    }

    #[inline]
    pub fn on_retransmission(&mut self, segments: u32, clock: u32) {
        self.retransmitted = Some(self.retransmitted.unwrap_or(0) + segments);
        if self.stamp == 0 {
            self.stamp = clock.max(1);
        }
    }

    /// A DSACK for data that ends at `end` answers retransmissions of this episode.
    pub fn on_dsack(&mut self, end: u64, segments: u32) {
        if self.marker != 0
            && end > self.marker
            && let Some(left) = self.retransmitted.as_mut()
        {
            *left = left.saturating_sub(segments);
        }
    }

    fn all_answered(&self) -> bool {
        self.marker != 0 && self.retransmitted == Some(0)
    }
}

impl<P: Payload> Subflow<P> {
    /// Eifel detection: the ACK echoes a time before the first retransmission, so that an original got through.
    fn original_arrived(&self, segment: &Segment<P>) -> bool {
        if self.undo.stamp == 0 {
            // Nothing has been sent again yet.
            return self.sack || self.snd_una < self.recovery.high;
        }
        self.timestamps
            && segment.timestamps.is_some_and(|stamp| (stamp.echo.wrapping_sub(self.undo.stamp) as i32) < 0)
    }

    fn may_undo(&self, segment: &Segment<P>) -> bool {
        self.undo.marker != 0 && (self.undo.retransmitted == Some(0) || self.original_arrived(segment))
    }

    /// Back to the window and threshold from before.
    fn undo_reduction(&mut self, cx: &mut Context<'_>, unmark: bool) {
        if unmark {
            self.rtx.unmark_lost();
            cx.metrics().lost_out = 0;
        }
        if self.undo.prior_ssthresh != 0 {
            let undo = self.undo;
            let metrics = cx.metrics();
            metrics.cwnd = metrics.cwnd.max(undo.prior_cwnd);
            if undo.prior_ssthresh > metrics.ssthresh {
                metrics.ssthresh = undo.prior_ssthresh;
                self.cwr_pending = false;
            }
            cx.congestion.on_undo(cx.metrics, cx.index);
        }
        self.undo.marker = 0;
        self.rack.look_again();
    }

    /// At the end of fast recovery or of recovery from a timeout. True if the phase must still be kept: without SACK
    /// duplicate ACKs for what was just recovered could begin another (RFC 6582 4.1).
    pub(in crate::tcp) fn try_undo_recovery(&mut self, cx: &mut Context<'_>, segment: &Segment<P>) -> bool {
        if cx.tcp.undo && self.may_undo(segment) {
            if cx.metrics[cx.index].ca_state == CaState::Loss {
                self.counters.loss_undo += 1;
            } else {
                self.counters.full_undo += 1;
            }
            self.undo_reduction(cx, false);
        } else {
            self.rack.on_recovery_end();
        }
        if self.snd_una == self.recovery.high && !self.sack {
            if !self.any_retransmission_out(cx) {
                self.undo.stamp = 0;
            }
            return true;
        }
        cx.metrics().ca_state = CaState::Open;
        false
    }

    /// A partial ACK in fast recovery. True if nothing more is to be sent again for now.
    pub(in crate::tcp) fn try_undo_partial(&mut self, cx: &mut Context<'_>, segment: &Segment<P>) -> bool {
        if !cx.tcp.undo || self.undo.marker == 0 || !self.original_arrived(segment) {
            return false;
        }
        // A hole was filled by what had been late, not lost.
        self.rack.reordering_seen = true;
        if cx.metrics[cx.index].retrans_out > 0 {
            return true;
        }
        if !self.any_retransmission_out(cx) {
            self.undo.stamp = 0;
        }
        self.counters.partial_undo += 1;
        self.undo_reduction(cx, true);
        self.keep_open(cx);
        false
    }

    /// Every retransmission was answered by a DSACK.
    pub(in crate::tcp) fn try_undo_dsack(&mut self, cx: &mut Context<'_>) -> bool {
        if !cx.tcp.undo || !self.undo.all_answered() {
            return false;
        }
        self.counters.dsack_undo += 1;
        self.rack.persist_longer();
        self.undo_reduction(cx, false);
        true
    }

    /// In recovery from a timeout; `frto` says that F-RTO found it spurious.
    fn try_undo_loss(&mut self, cx: &mut Context<'_>, segment: &Segment<P>, frto: bool) -> bool {
        if !cx.tcp.undo || !(frto || self.may_undo(segment)) {
            return false;
        }
        self.counters.loss_undo += 1;
        self.counters.spurious_rtos += u64::from(frto);
        self.undo_reduction(cx, true);
        self.retransmits = 0;
        if self.snd_una == self.recovery.high && !self.sack {
            return true;
        }
        if frto || self.sack {
            cx.metrics().ca_state = CaState::Open;
        }
        true
    }

    /// An ACK in recovery from a timeout (RFC 5682 3.1 by its steps).
    pub(in crate::tcp) fn process_loss(
        &mut self,
        cx: &mut Context<'_>,
        segment: &Segment<P>,
        summary: &mut AckSummary,
    ) {
        let recovered = self.snd_una >= self.recovery.high;
        if summary.advanced && self.try_undo_loss(cx, segment, false) {
            return;
        }
        if self.frto {
            // Step 3.b: something that was never sent again has arrived: not everything was lost.
            if summary.has_original_before(self.recovery.high) && self.try_undo_loss(cx, segment, true) {
                return;
            }
            if self.snd_nxt > self.recovery.high {
                // Step 3.a: the loss was real.
                if summary.newly_sacked || summary.duplicate {
                    self.frto = false;
                }
            } else if summary.advanced && !recovered {
                self.recovery.high = self.snd_nxt;
                // Step 2.b: new data before anything else is sent again, if there is any.
                if !self.queue.is_empty() && self.window_edge(cx) > self.snd_nxt {
                    self.recovery.new_data_first = true;
                    return;
                }
                self.frto = false;
            }
        }
        if recovered {
            self.try_undo_recovery(cx, segment);
            return;
        }
        if !self.sack {
            if self.snd_nxt > self.recovery.high && summary.duplicate {
                self.add_reno_sack(cx, summary);
            } else if summary.advanced {
                cx.metrics().sacked_out = 0;
            }
        }
    }
}
