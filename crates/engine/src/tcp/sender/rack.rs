//! RACK: loss detection by time (RFC 8985 6). A segment is lost if another that was sent later by more than a
//! round trip and a reordering window has been delivered.
//!
//! Three deviations. Step 2 compares the echoed timestamp only for what is acknowledged cumulatively. An ACK
//! of data out of order echoes the timestamp of the last segment in order (RFC 7323 4.3), which is older than
//! any retransmission: a sacked retransmission, or tail loss probe, would never count. (Linux compares with
//! the least round-trip time alone.) Step 5 arms one timer for the latest deadline of all suspects. Here it
//! is set to the earliest, which finds the same losses no later without a walk over the scoreboard. And a
//! DSACK of a tail loss probe doesn't widen the window, as in Linux: a probe is a duplicate whenever nothing
//! was lost.

use super::ack_summary::AckSummary;
use crate::metrics::{CaState, SubflowMetrics};
use crate::{Span, Time};

/// Duplicate ACK threshold (RFC 5681, RFC 8985 3.3).
pub(crate) const DUP_THRESH: u32 = 3;
/// RACK.reo_wnd_mult until a DSACK widens the window (RFC 8985 6.2 step 4).
const FIRST_MULT: u32 = 1;
/// The unit of RACK.reo_wnd_mult is the least round-trip time divided by this.
const MIN_RTT_DIVISOR: u64 = 4;
/// Recoveries for which a widened reordering window lasts.
const PERSIST: u32 = 16;
/// Greatest RACK.reo_wnd_mult. The smoothed round-trip time limits the window anyway.
const MAX_MULT: u32 = 255;

/// RACK's state, by RFC 8985's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rack {
    /// RACK.xmit_ts and RACK.end_seq: of the delivered segment that was sent last.
    sent_at: Time,
    end: u64,
    /// RACK.rtt.
    rtt: Span,
    /// Something was delivered since losses were last detected.
    advanced: bool,
    /// RACK.fack: the highest position delivered.
    fack: u64,
    /// RACK.reordering_seen.
    reordering_seen: bool,
    /// RACK.reo_wnd_mult, in units of the least round-trip time / `MIN_RTT_DIVISOR`.
    reo_wnd_mult: u32,
    /// RACK.reo_wnd_persist.
    persist: u32,
    /// RACK.dsack_round.
    dsack_round: Option<u64>,
}

impl Default for Rack {
    fn default() -> Self {
        Rack {
            sent_at: Time::ZERO,
            end: 0,
            rtt: Span::ZERO,
            advanced: false,
            fack: 0,
            reordering_seen: false,
            reo_wnd_mult: FIRST_MULT,
            persist: 0,
            dsack_round: None,
        }
    }
}

impl Rack {
    /// Steps 2 and 3: an ACK delivered something. With SACK, something that was never retransmitted and lies
    /// below what was delivered before is a sign of reordering. Returns whether it is the first.
    #[inline]
    pub fn on_delivered(&mut self, now: Time, summary: &AckSummary, sack: bool) -> bool {
        let (sent_at, end) = summary.latest;
        if end > 0 {
            self.advance(sent_at, end, now.saturating_sub(summary.last_sent_at));
        }
        //= RFC 8985 6.2-c
        // A cumulative ACK alone can't show that anything arrived out of order.
        let reordered = sack && summary.first_original_end.is_some_and(|end| end < self.fack);
        self.fack = self.fack.max(summary.end);
        let first = reordered && !self.reordering_seen;
        self.reordering_seen |= reordered;
        first
    }

    /// Step 2: something sent at `sent_at` with its end at `end` was delivered, `rtt` after it was sent.
    #[inline]
    fn advance(&mut self, sent_at: Time, end: u64, rtt: Span) {
        self.advanced = true;
        // RACK.rtt is of any delivery, RACK.xmit_ts and RACK.end_seq only of the
        // one sent last (RFC 8985 6.2 step 2).
        self.rtt = rtt;
        if (sent_at, end) > (self.sent_at, self.end) {
            self.sent_at = sent_at;
            self.end = end;
        }
    }

    /// The scoreboard changed, but not by delivery: losses have to be detected again.
    pub fn recheck_output(&mut self) {
        self.advanced = true;
    }

    /// Whether there is a reason to detect losses. Taking it clears it.
    #[inline]
    pub fn take_advanced(&mut self) -> bool {
        std::mem::take(&mut self.advanced)
    }

    /// Whether a segment was sent at `sent_at` before the latest of the delivered ones.
    #[inline]
    pub fn is_sent_before_latest(&self, sent_at: Time, end: u64) -> bool {
        (sent_at, end) < (self.sent_at, self.end)
    }

    /// Time after its transmission at which a segment is lost, if one that was sent later is delivered.
    #[inline]
    pub fn timeout(&self, metrics: &SubflowMetrics) -> Span {
        self.rtt + self.window(metrics)
    }

    /// Whether what was sent at `sent_at` is overdue at `now`, without any allowance for reordering.
    pub fn is_overdue(&self, sent_at: Time, now: Time) -> bool {
        sent_at + self.rtt <= now
    }

    /// RACK.reordering_seen.
    #[inline]
    pub fn reordering_seen(&self) -> bool {
        self.reordering_seen
    }

    /// What was missing was late, not lost.
    pub fn on_late_arrival(&mut self) {
        self.reordering_seen = true;
    }

    /// Step 4, first half: a round trip with a DSACK widens the window by one unit.
    #[cold]
    pub fn on_dsack(&mut self, snd_una: u64, snd_nxt: u64) {
        // All that was out when the window was last widened is acknowledged: later DSACKs are
        // about what the wider window has judged.
        if self.dsack_round.is_some_and(|round| snd_una >= round) {
            self.dsack_round = None;
        }
        if self.dsack_round.is_none() {
            self.dsack_round = Some(snd_nxt);
            //= RFC 8985 6.2-e
            self.reo_wnd_mult = (self.reo_wnd_mult + 1).min(MAX_MULT);
            self.persist = PERSIST;
        }
    }

    /// A reduction was undone because of DSACKs: the wider window lasts one recovery longer.
    pub fn renew_reo_wnd_persist(&mut self) {
        self.persist = (self.persist + 1).min(PERSIST);
    }

    /// Step 4, second half: a recovery ended without an undo.
    pub fn on_recovery_end(&mut self) {
        if self.persist > 0 {
            self.persist -= 1;
            if self.persist == 0 {
                self.reo_wnd_mult = FIRST_MULT;
            }
        }
    }

    /// RACK.reo_wnd, by step 4.
    #[inline]
    pub fn window(&self, metrics: &SubflowMetrics) -> Span {
        //= RFC 8985 6.2-d
        // Where the path has never reordered, RACK is as fast as the third
        // duplicate ACK (RFC 8985 6.2 step 4).
        let eager = matches!(metrics.ca_state(), CaState::Recovery | CaState::Loss)
            || metrics.sacked_out() >= DUP_THRESH;
        if !self.reordering_seen && eager {
            return Span::ZERO;
        }
        // Reordering is a property of the path and not of its queue, so the unit is of the least round-trip
        // time. SRTT bounds what DSACKs can add.
        (metrics.rtt.min / MIN_RTT_DIVISOR * u64::from(self.reo_wnd_mult)).min(metrics.rtt.smoothed)
    }
}

#[cfg(test)]
mod tests {
    use super::Rack;
    use crate::metrics::{CaState, SubflowMetrics};
    use crate::testing::WithoutSender as _;
    use crate::{MILLISECOND, PathId, Span, SubflowId, Time};

    fn metrics() -> SubflowMetrics {
        let mut metrics = SubflowMetrics::new(SubflowId(0), PathId(0));
        (metrics.rtt.min, metrics.rtt.smoothed) = (40 * MILLISECOND, 100 * MILLISECOND);
        metrics
    }

    //= test RFC 8985 6.2-d
    #[test]
    fn the_window_is_zero_without_reordering_once_three_segments_are_sacked_or_in_recovery() {
        let (mut metrics, mut rack) = (metrics(), Rack::default());
        assert_eq!(rack.window(&metrics), 10 * MILLISECOND);
        metrics.set_sacked_out(3);
        assert_eq!(rack.window(&metrics), Span::ZERO);
        metrics.set_sacked_out(0);
        metrics.set_ca_state(CaState::Recovery);
        assert_eq!(rack.window(&metrics), Span::ZERO);
        rack.reordering_seen = true;
        assert_eq!(rack.window(&metrics), 10 * MILLISECOND);
    }

    //= test RFC 8985 6.2-e
    #[test]
    fn dsacks_widen_the_window_once_a_round_trip_up_to_srtt_for_sixteen_recoveries() {
        let (metrics, mut rack) = (metrics(), Rack::default());
        rack.on_dsack(1000, 9000);
        rack.on_dsack(5000, 12_000);
        assert_eq!(rack.window(&metrics), 20 * MILLISECOND, "the second is of the same round");
        rack.on_dsack(9000, 20_000);
        assert_eq!(rack.window(&metrics), 30 * MILLISECOND);
        for round in 2..40 {
            rack.on_dsack(round * 10_000, round * 10_000 + 10_000);
        }
        assert_eq!(rack.window(&metrics), 100 * MILLISECOND, "never beyond the smoothed round-trip time");
        for _ in 0..15 {
            rack.on_recovery_end();
        }
        assert_eq!(rack.window(&metrics), 100 * MILLISECOND);
        rack.on_recovery_end();
        assert_eq!(rack.window(&metrics), 10 * MILLISECOND);
    }

    #[test]
    fn an_undo_keeps_the_wider_window_for_one_recovery_more() {
        let (metrics, mut rack) = (metrics(), Rack::default());
        rack.on_dsack(1000, 9000);
        for _ in 0..15 {
            rack.on_recovery_end();
        }
        rack.renew_reo_wnd_persist();
        rack.on_recovery_end();
        assert_eq!(rack.window(&metrics), 20 * MILLISECOND);
        rack.on_recovery_end();
        assert_eq!(rack.window(&metrics), 10 * MILLISECOND);
    }

    //= test RFC 8985 6.2-b
    #[test]
    fn the_latest_sent_counts_and_of_two_sent_together_the_one_further_on() {
        let mut rack = Rack::default();
        rack.advance(Time::from_nanos(50), 3000, Span::from_nanos(7));
        rack.advance(Time::from_nanos(40), 4000, Span::from_nanos(9));
        assert_eq!((rack.sent_at, rack.end, rack.rtt), (Time::from_nanos(50), 3000, Span::from_nanos(9)));
        rack.advance(Time::from_nanos(50), 4000, Span::from_nanos(7));
        assert_eq!((rack.sent_at, rack.end), (Time::from_nanos(50), 4000));
    }
}
