//! Loss recovery: its phases, named and ordered as in Linux (`tcp_fastretrans_alert`): entering and leaving
//! them, recovery from a timeout (RFC 5681 3.1, RFC 6675 5.1), without SACK (RFC 6582, RFC 3042), and the
//! reduction after a congestion mark (RFC 3168 6.1.2). `loss` says what is lost, `prr` how the window comes
//! down, `spurious` whether it was a mistake.

use ropewalk_wire::{Payload, Segment};

use super::Sender;
use super::ack_summary::AckSummary;
use super::cwnd_validation::current_ssthresh;
use super::entry::SACKED;
use super::prr::Prr;
use super::tlp::Tlp;
use crate::MILLISECOND;
use crate::config::LossDetection;
use crate::congestion::LossCause;
use crate::metrics::CaState;
use crate::tcp::common::Common;
use crate::tcp::context::{Context, Outcome};
use crate::tcp::timer::Timer;

impl<P: Payload> Sender<P> {
    /// What an ACK means for loss, recovery and the congestion window.
    #[inline]
    pub(super) fn recover(
        &mut self,
        common: &mut Common,
        cx: &mut Context<'_>,
        segment: &Segment<P>,
        ack: u64,
        summary: &mut AckSummary,
        outcome: &mut Outcome,
    ) {
        // F-RTO's leave to send new data is for one ACK: the next decides anew (RFC 5682 3.1 step 3).
        self.recovery.new_data_first = false;
        if self.tlp.is_in_flight() {
            self.on_probe_ack(common, cx, ack, summary);
        }
        let metrics = &*cx.metrics;
        // Most ACKs are so, and need no state machine (Linux's `tcp_ack_is_dubious`).
        let plain = metrics.ca_state() == CaState::Open
            && summary.advanced
            && metrics.sacked_out() == 0
            && metrics.lost_out() == 0
            && !summary.newly_sacked
            && summary.dsack.is_none()
            && !summary.ece;
        if !plain {
            let disorder = metrics.ca_state() == CaState::Disorder && common.negotiated.sack && !summary.ece;
            if disorder && !self.has_reneged(summary) {
                // `alert` does nothing else in this phase.
                self.open_or_recover(common, cx, summary, outcome);
            } else {
                self.alert(common, cx, segment, summary, outcome);
            }
        }
        if self.is_paced() {
            if summary.segments > 0 {
                // Losses that this ACK revealed are in the sample, so they have to be judged before.
                self.update_model(cx, summary);
            }
        } else if matches!(cx.metrics.ca_state(), CaState::Recovery | CaState::Cwr) {
            // RFC 6937's slow start bound takes no notice of new losses. RFC 9937's and Linux's does.
            let lost = if cx.tcp.recovery.prr_slow_start { 0 } else { outcome.lost_segments };
            let advanced = summary.advanced || cx.tcp.recovery.prr_slow_start;
            self.prr.reduce(cx.metrics, summary.segments, lost, advanced);
        } else if summary.segments > 0 && (summary.advanced || self.grows_out_of_order(cx)) {
            self.grow(cx, summary);
        }
        if summary.segments > 0 {
            self.update_pacing(cx);
        }
    }

    /// Whether SACKs alone let the window grow: where packets are reordered (Linux's `tcp_may_raise_cwnd`).
    #[inline]
    fn grows_out_of_order(&self, cx: &Context<'_>) -> bool {
        match cx.tcp.recovery.loss_detection {
            LossDetection::Rack => self.rack.reordering_seen(),
            LossDetection::DuplicateAcks => self.dup_ack().is_raised(),
        }
    }

    /// Whether the receiver has dropped what it sacked (RFC 2018 8).
    #[inline]
    fn has_reneged(&self, summary: &AckSummary) -> bool {
        // Only for an ACK that advances, as in Linux: each of many duplicates would set the short timer
        // of `alert` anew, and it would never fire.
        summary.advanced && self.scoreboard.get(0).is_some_and(|head| head.is(SACKED))
    }

    /// An ACK that does more than advance in the open phase.
    #[inline(never)]
    fn alert(
        &mut self,
        common: &mut Common,
        cx: &mut Context<'_>,
        segment: &Segment<P>,
        summary: &mut AckSummary,
        outcome: &mut Outcome,
    ) {
        if summary.ece {
            // The network marked congestion: the reduction isn't spurious.
            self.undo_mut().forbid();
        }
        if self.has_reneged(summary) {
            // A timeout follows soon.
            // An ACK that covers the sacked data may still be on its way: it gets half a round trip.
            let wait = (cx.metrics.rtt.smoothed / 2).max(10 * MILLISECOND);
            common.timers.set(Timer::Retransmit, cx.now + wait);
            summary.reneged = true;
            return;
        }
        let phase = cx.metrics.ca_state();
        if phase == CaState::Open {
            // After an undo retransmissions may be in flight in Open: the time of the
            // first still serves Eifel detection.
            if cx.metrics.retrans_out() == 0 {
                self.undo_mut().clear_retransmission();
            }
        } else if self.snd_una >= self.recovery.point {
            match phase {
                // Kept until something beyond the recovery point is acknowledged, so that CWR reaches the
                // receiver.
                CaState::Cwr if self.snd_una > self.recovery.point => {
                    self.end_reduction(cx);
                    cx.metrics.set_ca_state(CaState::Open);
                }
                CaState::Recovery => {
                    // The duplicate ACKs that it was counted from were of data acknowledged by now.
                    if !common.negotiated.sack {
                        cx.metrics.assume_sacked(0);
                    }
                    if self.try_undo_recovery(common, cx, segment) {
                        return;
                    }
                    self.end_reduction(cx);
                }
                _ => {}
            }
        }
        match cx.metrics.ca_state() {
            CaState::Recovery => {
                if !summary.advanced {
                    if !common.negotiated.sack && summary.duplicate {
                        self.add_reno_sack(cx, summary);
                    }
                } else if self.try_undo_partial(common, cx, segment, summary.removed) {
                    return;
                }
                if self.try_undo_dsack(common, cx) {
                    self.try_to_open(common, cx, summary);
                    // Linux 3.14 stops here. Later kernels look for other losses, which
                    // RACK finds without duplicates.
                    if cx.tcp.recovery.loss_detection == LossDetection::DuplicateAcks {
                        return;
                    }
                }
                self.identify_losses(common, cx, summary, outcome);
                // The undo ended this recovery, but something else is really lost: another begins.
                if cx.metrics.ca_state() != CaState::Recovery && cx.metrics.lost_out() > 0 {
                    self.enter_recovery(common, cx, summary.ece);
                }
            }
            CaState::Loss => {
                self.process_loss(common, cx, segment, summary);
                if !common.negotiated.sack && self.scoreboard.is_empty() {
                    // Schedulers give no data to a subflow in Loss, and without SACK the phase ends only when
                    // something beyond the recovery point is acknowledged.
                    cx.metrics.set_ca_state(CaState::Open);
                }
                self.identify_losses(common, cx, summary, outcome);
                if cx.metrics.ca_state() != CaState::Loss || summary.lost_retransmission {
                    self.open_or_recover(common, cx, summary, outcome);
                }
            }
            _ => self.open_or_recover(common, cx, summary, outcome),
        }
    }

    /// Enters fast recovery if anything is lost, otherwise returns to Open or Disorder.
    #[inline(never)]
    fn open_or_recover(
        &mut self,
        common: &mut Common,
        cx: &mut Context<'_>,
        summary: &mut AckSummary,
        outcome: &mut Outcome,
    ) {
        if !common.negotiated.sack {
            if summary.advanced {
                cx.metrics.assume_sacked(0);
            }
            if summary.duplicate {
                self.add_reno_sack(cx, summary);
            }
        }
        // The DSACKs of a retransmission may come when recovery is over: its reduction can still be undone.
        if matches!(cx.metrics.ca_state(), CaState::Open | CaState::Disorder) {
            self.try_undo_dsack(common, cx);
        }
        self.identify_losses(common, cx, summary, outcome);
        if cx.metrics.lost_out() > 0 {
            self.enter_recovery(common, cx, summary.ece);
        } else {
            self.try_to_open(common, cx, summary);
        }
    }

    /// Goes to Open, or to Disorder while anything is missing.
    #[inline]
    pub(super) fn keep_open(&mut self, common: &mut Common, cx: &mut Context<'_>) {
        let metrics = &*cx.metrics;
        let disorder = metrics.sacked_out() + metrics.lost_out() > 0 || self.has_retransmissions(cx);
        let phase = if disorder { CaState::Disorder } else { CaState::Open };
        if phase != metrics.ca_state() {
            // No tail loss probe while something is sacked or lost (RFC 8985 7.2): RACK has its own timer.
            if disorder {
                common.timers.stop(Timer::Probe);
            }
            cx.metrics.set_ca_state(phase);
            self.recovery.point = self.snd_nxt;
        }
    }

    #[inline]
    fn try_to_open(&mut self, common: &mut Common, cx: &mut Context<'_>, summary: &AckSummary) {
        if !self.has_retransmissions(cx) {
            self.undo_mut().clear_retransmission();
        }
        if summary.ece {
            self.enter_cwr(common, cx);
        }
        if cx.metrics.ca_state() != CaState::Cwr {
            self.keep_open(common, cx);
        }
    }

    //= RFC 3168 6.1.2 the window is reduced once per window of data
    fn enter_cwr(&mut self, common: &mut Common, cx: &mut Context<'_>) {
        self.undo_mut().forbid();
        if matches!(cx.metrics.ca_state(), CaState::Open | CaState::Disorder) {
            self.undo_mut().end();
            self.begin_reduction(common, cx, LossCause::Ecn);
            cx.metrics.set_ca_state(CaState::Cwr);
        }
    }

    /// Enters fast recovery. The window isn't reduced again if a reduction is under way.
    pub(super) fn enter_recovery(&mut self, common: &mut Common, cx: &mut Context<'_>, ece: bool) {
        if common.negotiated.sack {
            common.counters.sack_recovery += 1;
        } else {
            common.counters.reno_recovery += 1;
        }
        // The time of an earlier episode's retransmission would hide that this one
        // is spurious: no echo precedes it.
        if cx.metrics.retrans_out() == 0 {
            self.undo_mut().clear_retransmission();
        }
        let una = self.snd_una;
        let metrics = &mut *cx.metrics;
        let (cwnd, ssthresh) = (metrics.cwnd(), current_ssthresh(metrics));
        // Without a threshold an undo restores none: a congestion mark may be why it fell.
        self.undo_mut().remember(cwnd, None);
        self.undo_mut().begin(una, metrics.retrans_out());
        if !matches!(metrics.ca_state(), CaState::Cwr | CaState::Recovery) {
            if !ece {
                self.undo_mut().remember(cwnd, Some(ssthresh));
            }
            self.begin_reduction(common, cx, LossCause::FastRetransmit);
        }
        // No tail loss probe during recovery (RFC 8985 7.2).
        common.timers.stop(Timer::Probe);
        cx.metrics.set_ca_state(CaState::Recovery);
    }

    /// Begins a reduction of the window, to what the congestion control says.
    pub(super) fn begin_reduction(&mut self, common: &mut Common, cx: &mut Context<'_>, cause: LossCause) {
        self.recovery.point = self.snd_nxt;
        // A probe of the old flight must not reduce the window once more.
        self.tlp = Tlp::default();
        self.prr = Prr::begin(cx.metrics.cwnd());
        self.lower_threshold(common, cx, cause);
    }

    fn lower_threshold(&mut self, common: &mut Common, cx: &mut Context<'_>, cause: LossCause) {
        let now = cx.now;
        let new = cx.congestion.ssthresh(cx.metrics, cx.siblings, cause, now);
        let metrics = &mut *cx.metrics;
        // Some coupled controls go down to a single segment by their drafts; none may go lower.
        metrics.set_ssthresh(new.max(1));
        metrics.totals.loss_events += 1;
        // CWR is sent whatever the window was reduced for (RFC 3168 6.1.2).
        self.cwr_pending = common.negotiated.ecn;
    }

    /// Ends a reduction: the window is the threshold, unless the reduction was undone.
    pub(super) fn end_reduction(&mut self, cx: &mut Context<'_>) {
        // The model sets the window, as with `cong_control` in Linux's `tcp_end_cwnd_reduction`.
        if self.is_paced() {
            return;
        }
        let stands = self.undo().is_possible();
        let now = cx.now;
        let metrics = &mut *cx.metrics;
        if metrics.ssthresh() < u32::MAX && (metrics.ca_state() == CaState::Cwr || stands) {
            //= RFC 6937 3-c
            metrics.set_cwnd(metrics.ssthresh().max(1));
            self.cwnd_validation.restart(now);
        }
    }

    /// Enters recovery from a timeout. The window is one segment, or what is in flight and one segment.
    pub(super) fn enter_loss(&mut self, common: &mut Common, cx: &mut Context<'_>, outcome: &mut Outcome) {
        let phase = cx.metrics.ca_state();
        let fresh = !matches!(phase, CaState::Recovery | CaState::Loss);
        // First, since the window below is set by what remains in flight.
        self.mark_overdue_lost(common, cx, outcome);
        if matches!(phase, CaState::Open | CaState::Disorder) {
            self.dup_ack_mut().on_timeout(cx.metrics);
        }
        //= RFC 5681 3.1-h
        // The threshold falls once per window of data.
        if matches!(phase, CaState::Open | CaState::Disorder)
            || self.snd_una >= self.recovery.point
            // There was progress since the last timeout, so this is another loss
            // (Linux's `icsk_retransmits`).
            || (phase == CaState::Loss && self.timeouts == 0)
        {
            let metrics = &mut *cx.metrics;
            let (cwnd, ssthresh, retrans_out) =
                (metrics.cwnd(), current_ssthresh(metrics), metrics.retrans_out());
            let una = self.snd_una;
            self.undo_mut().remember(cwnd, Some(ssthresh));
            self.lower_threshold(common, cx, LossCause::Timeout);
            self.undo_mut().begin(una, retrans_out);
            self.undo_mut().clear_retransmission();
        }
        if cx.tcp.recovery.loss_detection == LossDetection::DuplicateAcks {
            self.begin_undo_of_timeout();
        }
        let (now, one) = (cx.now, cx.tcp.recovery.loss_window_one);
        let metrics = &mut *cx.metrics;
        // What RACK doesn't judge lost may still arrive. One segment beyond it is for the
        // head's retransmission (Linux since 4.18).
        //= RFC 5681 3.1-g
        metrics.set_cwnd(if one { 1 } else { metrics.in_flight() + 1 });
        metrics.set_ca_state(CaState::Loss);
        self.cwnd_validation.restart(now);
        self.recovery.point = self.snd_nxt;
        self.recovery.new_data_first = false;
        self.tlp = Tlp::default();
        self.cwr_pending = common.negotiated.ecn;
        // RFC 5682 3.2: not when another recovery is under way, but for repeated timeouts of the same data.
        self.recovery.frto = cx.tcp.recovery.undo && (fresh || self.timeouts > 0);
    }
}
