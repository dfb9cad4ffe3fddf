//! Loss detection by counting, as Linux had it before RACK (3.14's `tcp_input.c`): the duplicate ACK
//! threshold (RFC 6675 4) with forward acknowledgements (Mathis and Mahdavi, "Forward acknowledgement",
//! SIGCOMM 1996), a threshold that adapts to reordering, lost retransmissions, and delayed early retransmit
//! (RFC 5827).
//!
//! With FACK everything counts that lies below the highest sacked segment, so that a hole is lost once it is
//! more than the threshold behind. A segment that comes late by more than the threshold ends that: then
//! sacked segments count, and the threshold is as far as the segment came late. Any that comes late ends
//! early retransmit.

use ropewalk_wire::Payload;

use super::Sender;
use super::ack_summary::AckSummary;
use super::entry::{EVER_RETRANS, LOST, PROBED, RETRANS, SACKED};
use super::rack::DUP_THRESH;
use crate::Span;
use crate::config::LossDetection;
use crate::metrics::{CaState, SubflowMetrics};
use crate::tcp::common::Common;
use crate::tcp::context::{Context, Outcome};
use crate::tcp::timer::Timer;

/// Greatest threshold (`TCP_MAX_REORDERING`).
const MOST_REORDERING: u32 = 127;
/// Early retransmit is for fewer segments than this.
const EARLY_BELOW: u32 = 4;
/// It waits for a quarter of the round-trip time, but at least for this long.
const LEAST_WAIT: Span = Span::from_millis(2);

/// State of the count, by Linux's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DupAck {
    /// `reordering`: the threshold, segments.
    reordering: u32,
    /// The threshold was raised once: sacked segments count, without FACK (`tcp_disable_fack`).
    counts_sacked: bool,
    /// A segment came late: there is no early retransmit (`tcp_disable_early_retrans`).
    late: bool,
    /// Where the highest delivered segment ends.
    highest: u64,
}

impl Default for DupAck {
    fn default() -> Self {
        DupAck { reordering: DUP_THRESH, counts_sacked: false, late: false, highest: 0 }
    }
}

impl DupAck {
    /// A segment came late by so many (`tcp_update_reordering`).
    fn on_reordering(&mut self, by: u32) {
        if by > self.reordering {
            self.reordering = by.min(MOST_REORDERING);
            self.counts_sacked = true;
        }
        self.late = true;
    }

    /// A timeout although much was sacked: the threshold is too high.
    pub fn on_timeout(&mut self, metrics: &SubflowMetrics) {
        if metrics.sacked_out() >= DUP_THRESH {
            self.reordering = DUP_THRESH;
        }
    }

    /// Where the highest delivered segment ends.
    pub fn highest(&self) -> u64 {
        self.highest
    }

    /// Whether the threshold is above its first value.
    pub fn is_raised(&self) -> bool {
        self.reordering > DUP_THRESH
    }
}

impl<P: Payload> Sender<P> {
    /// Takes note of what an ACK delivers: what was never retransmitted and lies below what was delivered
    /// before came late.
    #[inline]
    pub(super) fn note_reordering(&mut self, cx: &Context<'_>, summary: &AckSummary) {
        if cx.tcp.recovery.loss_detection == LossDetection::DuplicateAcks {
            self.note_behind_highest(cx, summary);
        }
    }

    #[cold]
    fn note_behind_highest(&mut self, cx: &Context<'_>, summary: &AckSummary) {
        let highest = self.dup_ack().highest;
        if let Some(end) = summary.first_original_end.filter(|end| *end < highest) {
            let behind = (highest - end).div_ceil(u64::from(cx.metrics.mss.max(1))) + 1;
            self.dup_ack_mut().on_reordering(u32::try_from(behind).unwrap_or(u32::MAX));
        }
        self.dup_ack_mut().highest = highest.max(summary.end);
    }

    /// A hole was filled by what was late, the first of `removed` segments: everything sacked above it came
    /// before it.
    pub(super) fn note_late_arrival(&mut self, cx: &Context<'_>, removed: u32) {
        if cx.tcp.recovery.loss_detection == LossDetection::DuplicateAcks {
            let behind = self.fackets_out(cx.metrics) + removed;
            self.dup_ack_mut().on_reordering(behind);
        }
    }

    /// Segments from the first in flight to the highest sacked (`fackets_out`).
    fn fackets_out(&self, metrics: &SubflowMetrics) -> u32 {
        // `highest` moves with cumulative ACKs, too: on its own it doesn't say that anything is sacked.
        if metrics.sacked_out() == 0 {
            return 0;
        }
        let below = self.scoreboard.iter().take_while(|entry| entry.position < self.dup_ack().highest);
        below.map(|entry| entry.segments).sum()
    }

    /// Marks what the count says is lost (`tcp_time_to_recover`, `tcp_update_scoreboard`).
    #[inline(never)]
    pub(super) fn count_losses(
        &mut self,
        common: &mut Common,
        cx: &mut Context<'_>,
        summary: &AckSummary,
        outcome: &mut Outcome,
    ) {
        let (phase, reordering) = (cx.metrics.ca_state(), self.dup_ack().reordering);
        let fackets_out = self.fackets_out(cx.metrics);
        // Early retransmit waits for silence. An ACK came, so whether to wait is decided anew.
        common.timers.stop(Timer::Reorder);
        match phase {
            // All of it was marked at the timeout.
            CaState::Loss => return,
            CaState::Recovery => {
                self.find_lost_retransmissions(common, cx, outcome);
                // `do_lost` of Linux 3.14's `tcp_fastretrans_alert`.
                let news = summary.newly_sacked || summary.advanced;
                if !(summary.duplicate || (news && fackets_out > reordering)) {
                    return;
                }
            }
            _ => {
                if !self.is_time_to_recover(common, cx, fackets_out) {
                    return;
                }
            }
        }
        let sacked_out = cx.metrics.sacked_out();
        if !self.dup_ack().counts_sacked {
            // At least the head is marked, however close the highest SACK is (`tcp_update_scoreboard`).
            self.mark_head(common, cx, fackets_out.saturating_sub(reordering).max(1), outcome);
        } else if sacked_out >= reordering {
            self.mark_below(common, cx, sacked_out - reordering, outcome);
        } else if phase != CaState::Recovery {
            self.mark_head(common, cx, 1, outcome);
        }
    }

    /// Whether enough has arrived above the first hole.
    fn is_time_to_recover(&mut self, common: &mut Common, cx: &Context<'_>, fackets_out: u32) -> bool {
        let (metrics, reordering) = (&*cx.metrics, self.dup_ack().reordering);
        if metrics.lost_out() > 0 {
            return true;
        }
        // The segment in the hole is counted too, so that as many SACKs as the threshold
        // suffice (`tcp_dupack_heuristics`).
        let count = if self.dup_ack().counts_sacked { metrics.sacked_out() + 1 } else { fackets_out };
        if count > reordering {
            return true;
        }
        let has_data = !self.queue.is_empty() || cx.shared.outgoing.more;
        // New data can still be sent, and its SACKs will tell (`tcp_may_send_now`).
        if has_data && metrics.in_flight() < metrics.cwnd() {
            return false;
        }
        // Nothing new can bring further duplicate ACKs: half of the window is enough.
        if metrics.packets_out() <= reordering
            && metrics.sacked_out() >= (metrics.packets_out() / 2).max(DUP_THRESH)
        {
            return true;
        }
        let early = cx.tcp.recovery.early_retransmit
            && !self.dup_ack().late
            && metrics.retrans_out() == 0
            && metrics.sacked_out() > 0
            && metrics.packets_out() > metrics.sacked_out()
            && metrics.packets_out() < EARLY_BELOW;
        if early {
            let due = cx.now + (metrics.rtt.smoothed / 4).max(LEAST_WAIT);
            // The timeout would come before the wait is over (`tcp_pause_early_retransmit`).
            if common.timers.get(Timer::Retransmit).is_some_and(|timeout| timeout <= due) {
                return true;
            }
            common.timers.set(Timer::Reorder, due);
        }
        false
    }

    /// What a timeout's reduction may be undone by: nothing, if anything outstanding was ever retransmitted,
    /// since an ACK for that tells nothing (`tcp_enter_loss`). A tail loss probe doesn't count
    /// (`tcp_send_loss_probe` marks nothing). F-RTO needs no more than the remembered window.
    pub(super) fn begin_undo_of_timeout(&mut self) {
        if self.scoreboard.iter().any(|entry| entry.is(EVER_RETRANS) && !entry.is(PROBED)) {
            self.undo_mut().end();
        } else {
            let una = self.snd_una;
            self.undo_mut().begin(una, 0);
        }
    }

    /// Whether a tail loss probe waits for a round-trip sample: Linux 3.14's does
    /// (`tcp_schedule_loss_probe`), RFC 8985's doesn't.
    pub(super) fn waits_for_sample(&self, cx: &Context<'_>) -> bool {
        cx.metrics.rtt.smoothed == Span::ZERO
            && cx.tcp.recovery.loss_detection == LossDetection::DuplicateAcks
    }

    /// Early retransmit is due: nothing has filled the hole.
    pub(super) fn retransmit_early(
        &mut self,
        common: &mut Common,
        cx: &mut Context<'_>,
        outcome: &mut Outcome,
    ) {
        let metrics = &*cx.metrics;
        if !self.dup_ack().late
            && metrics.sacked_out() > 0
            && matches!(metrics.ca_state(), CaState::Open | CaState::Disorder)
        {
            self.mark_head(common, cx, 1, outcome);
        }
    }

    /// Marks what isn't sacked of the first `packets` segments (`tcp_mark_head_lost` with FACK).
    fn mark_head(&mut self, common: &mut Common, cx: &mut Context<'_>, packets: u32, outcome: &mut Outcome) {
        let (mut index, mut count) = (0, 0);
        while let Some(entry) = self.scoreboard.get(index) {
            count += entry.segments;
            // Linux cuts an entry that is longer than what is left; here it is left
            // unmarked, unless it is the head.
            if count > packets && index > 0 {
                break;
            }
            self.mark_once(common, cx, index, outcome);
            index += 1;
        }
    }

    /// Marks what isn't sacked and lies before more than `sacked` sacked segments (`tcp_mark_head_lost`
    /// without FACK).
    fn mark_below(&mut self, common: &mut Common, cx: &mut Context<'_>, sacked: u32, outcome: &mut Outcome) {
        let (mut index, mut count) = (0, 0);
        while let Some(entry) = self.scoreboard.get(index) {
            if entry.is(SACKED) {
                count += entry.segments;
            }
            if count > sacked {
                break;
            }
            self.mark_once(common, cx, index, outcome);
            index += 1;
        }
    }

    /// Marks an entry unless it is marked already, retransmitted since or not. A forward retransmission stays
    /// in flight.
    fn mark_once(&mut self, common: &mut Common, cx: &mut Context<'_>, index: usize, outcome: &mut Outcome) {
        match self.scoreboard.get(index).map(|entry| (entry.is(LOST), entry.is(RETRANS))) {
            Some((false, true)) if cx.tcp.recovery.forward_retransmit => {
                let entry = self.scoreboard.get_mut(index);
                entry.flags |= LOST;
                cx.metrics.add_marked(LOST, entry.segments);
                self.count_lost(cx, index, outcome);
            }
            Some((false, _)) => self.mark_lost(common, cx, index, outcome),
            _ => {}
        }
    }

    /// With FACK a retransmission is lost if something is sacked that was first sent after it
    /// (`tcp_mark_lost_retrans`).
    fn find_lost_retransmissions(
        &mut self,
        common: &mut Common,
        cx: &mut Context<'_>,
        outcome: &mut Outcome,
    ) {
        if self.dup_ack().counts_sacked || cx.metrics.retrans_out() == 0 || cx.metrics.sacked_out() == 0 {
            return;
        }
        let highest = self.scoreboard.get(self.scoreboard.index_at(self.dup_ack().highest.saturating_sub(1)));
        // If the highest was sent twice, it isn't known which transmission arrived, and when that was sent.
        let Some(sent_at) =
            highest.filter(|entry| entry.is(SACKED) && !entry.is(EVER_RETRANS)).map(|entry| entry.sent_at)
        else {
            return;
        };
        let mut index = 0;
        while let Some(entry) = self.scoreboard.get(index) {
            if entry.position >= self.dup_ack().highest {
                break;
            }
            if entry.is(RETRANS) && entry.sent_at < sent_at {
                self.mark_lost(common, cx, index, outcome);
            }
            index += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DupAck, EVER_RETRANS};
    use crate::config::LossDetection;
    use crate::metrics::SubflowMetrics;
    use crate::tcp::testing::{End, with_recovery};
    use crate::testing::WithoutSender as _;
    use crate::{MILLISECOND, PathId, SubflowId, Time};

    #[test]
    fn a_timeout_with_three_sacked_lowers_the_threshold() {
        let mut metrics = SubflowMetrics::new(SubflowId(0), PathId(0));
        for (sacked, threshold) in [(2, 8), (3, 3), (8, 3)] {
            let mut count = DupAck::default();
            count.on_reordering(8);
            metrics.set_sacked_out(sacked);
            count.on_timeout(&metrics);
            assert_eq!(count.reordering, threshold, "{sacked} sacked");
        }
    }

    /// Of a segment that was sent twice it isn't known which transmission arrived.
    #[test]
    fn what_was_sent_twice_says_nothing_of_retransmissions() {
        for twice in [false, true] {
            let tcp = with_recovery(|recovery| recovery.loss_detection = LossDetection::DuplicateAcks);
            let mut end = End::open(tcp, 100);
            end.push(20_000);
            end.sent_data();
            end.now = Time::ZERO + 200 * MILLISECOND;
            end.sack(1, &[(1001, 5001)]);
            assert_eq!(end.sent_data()[0], (1, 1000));
            end.now = Time::ZERO + 210 * MILLISECOND;
            end.sack(1, &[(1001, 10_001)]);
            assert_eq!(end.sent_data()[0], (10_001, 1000));
            if twice {
                let scoreboard = &mut end.subflow.sender.scoreboard;
                let index = scoreboard.index_at(10_001);
                scoreboard.get_mut(index).flags |= EVER_RETRANS;
            }
            end.now = Time::ZERO + 310 * MILLISECOND;
            end.sack(1, &[(1001, 11_001)]);
            assert_eq!(end.subflow.counters().lost_retransmit, u64::from(!twice));
        }
    }
}
