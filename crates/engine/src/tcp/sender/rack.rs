//! RACK: loss detection by time (RFC 8985 6). What was sent a reordering window and a round trip before the latest
//! delivered segment was sent, and isn't acknowledged, is lost.
//!
//! Three rulings. Step 2 asks the echoed timestamp which transmission arrived: here only of what is acknowledged
//! cumulatively. An ACK of what isn't in order echoes the timestamp of the last segment that was (RFC 7323 4.3), which
//! is older than any retransmission: a sacked one would never count, and a sacked tail loss probe never find the
//! losses before it. (Linux asks the least round-trip time alone.) Step 5 arms one timer for the latest deadline among
//! the suspects; here it stands at the earliest, which finds the same losses no later and needs no walk over the
//! scoreboard. And, as in Linux, a DSACK of a tail loss probe doesn't widen the window: a probe is meant to be a
//! duplicate when nothing was lost.

use ropewalk_wire::Payload;

use super::ack_summary::AckSummary;
use crate::Nanos;
use crate::metrics::{CaState, SubflowMetrics};
use crate::tcp::timer::Timer;
use crate::tcp::{Context, Outcome, Subflow};

/// Duplicate ACK threshold (RFC 5681, RFC 8985 3.3).
pub(in crate::tcp) const DUP_THRESH: u32 = 3;
/// Recoveries for which a widened reordering window lasts.
const PERSIST: u32 = 16;
/// Most quarters of the least round-trip time in the window; the smoothed one limits it anyway.
const MOST_QUARTERS: u32 = 255;

/// RACK's state, by RFC 8985's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rack {
    /// RACK.xmit_ts and RACK.end_seq: of the segment sent last among those delivered.
    sent_at: Nanos,
    end: u64,
    /// RACK.rtt.
    rtt: Nanos,
    /// Something was delivered since losses were last looked for.
    advanced: bool,
    /// RACK.fack: the highest position delivered.
    pub fack: u64,
    /// RACK.reordering_seen.
    pub reordering_seen: bool,
    /// RACK.reo_wnd_mult, in quarters of the least round-trip time.
    quarters: u32,
    /// RACK.reo_wnd_persist.
    persist: u32,
    /// RACK.dsack_round; 0: none.
    dsack_round: u64,
}

impl Default for Rack {
    fn default() -> Self {
        Rack {
            sent_at: 0,
            end: 0,
            rtt: 0,
            advanced: false,
            fack: 0,
            reordering_seen: false,
            quarters: 1,
            persist: 0,
            dsack_round: 0,
        }
    }
}

impl Rack {
    /// Steps 2 and 3: an ACK delivered something. `reordered`: some of that, which was never retransmitted, was sent before
    /// what had arrived. Returns whether this is the first sign of reordering.
    #[inline]
    pub fn on_delivered(&mut self, now: Nanos, summary: &AckSummary, reordered: bool) -> bool {
        let (sent_at, end) = summary.latest;
        if end > 0 {
            self.advance(sent_at, end, now.saturating_sub(summary.last_sent_at));
        }
        self.fack = self.fack.max(summary.end);
        let first = reordered && !self.reordering_seen;
        self.reordering_seen |= reordered;
        first
    }

    /// Step 2: something sent at `sent_at` with its end at `end` was delivered, `rtt` after it was sent.
    #[inline]
    fn advance(&mut self, sent_at: Nanos, end: u64, rtt: Nanos) {
        self.advanced = true;
        self.rtt = rtt;
        if (sent_at, end) > (self.sent_at, self.end) {
            self.sent_at = sent_at;
            self.end = end;
        }
    }

    /// The scoreboard changed other than by delivery: what is lost has to be looked for again.
    pub fn look_again(&mut self) {
        self.advanced = true;
    }

    /// Whether what was sent at `sent_at` is overdue at `now`, without any allowance for reordering.
    pub fn overdue(&self, sent_at: Nanos, now: Nanos) -> bool {
        sent_at + self.rtt <= now
    }

    /// Step 4, first half: a round trip with a DSACK widens the window by a quarter of the least round-trip time.
    #[cold]
    pub fn on_dsack(&mut self, snd_una: u64, snd_nxt: u64) {
        if self.dsack_round != 0 && snd_una >= self.dsack_round {
            self.dsack_round = 0;
        }
        if self.dsack_round == 0 {
            self.dsack_round = snd_nxt;
            self.quarters = (self.quarters + 1).min(MOST_QUARTERS);
            self.persist = PERSIST;
        }
    }

    /// A reduction was undone because of DSACKs: the wider window lasts one recovery longer.
    pub fn persist_longer(&mut self) {
        self.persist = (self.persist + 1).min(PERSIST);
    }

    /// Step 4, second half: a recovery ended without an undo.
    pub fn on_recovery_end(&mut self) {
        if self.persist > 0 {
            self.persist -= 1;
            if self.persist == 0 {
                self.quarters = 1;
            }
        }
    }

    /// RACK.reo_wnd.
    #[inline]
    pub fn window(&self, metrics: &SubflowMetrics) -> Nanos {
        let eager =
            matches!(metrics.ca_state, CaState::Recovery | CaState::Loss) || metrics.sacked_out >= DUP_THRESH;
        if !self.reordering_seen && eager {
            return 0;
        }
        (metrics.min_rtt / 4 * u64::from(self.quarters)).min(metrics.srtt)
    }
}

impl<P: Payload> Subflow<P> {
    /// Step 5: marks what is lost, and arms the timer for what may soon be.
    #[inline(never)]
    pub(in crate::tcp) fn detect_losses(&mut self, cx: &mut Context<'_>, outcome: &mut Outcome) {
        self.rack.advanced = false;
        self.timers.stop(Timer::Reorder);
        let wait = self.rack.rtt + self.rack.window(&cx.metrics[cx.index]);
        while let Some(index) = self.rtx.oldest_transmission() {
            let Some(entry) = self.rtx.get(index) else { break };
            if (entry.sent_at, entry.end()) >= (self.rack.sent_at, self.rack.end) {
                break;
            }
            let due = entry.sent_at + wait;
            if due > cx.now {
                self.timers.set(Timer::Reorder, due);
                break;
            }
            self.mark_lost(cx, index, outcome);
        }
    }

    /// Looks for losses if an ACK gave reason to.
    #[inline]
    pub(in crate::tcp) fn detect_losses_if_advanced(&mut self, cx: &mut Context<'_>, outcome: &mut Outcome) {
        if self.rack.advanced {
            self.detect_losses(cx, outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Rack;
    use crate::metrics::{CaState, SubflowMetrics};
    use crate::{MILLISECOND, PathId, SubflowId};

    fn metrics() -> SubflowMetrics {
        let mut metrics = SubflowMetrics::new(SubflowId(0), PathId(0));
        (metrics.min_rtt, metrics.srtt) = (40 * MILLISECOND, 100 * MILLISECOND);
        metrics
    }

    //= test RFC 8985 6.2 step 4
    #[test]
    fn the_window_is_zero_without_reordering_once_three_segments_are_sacked_or_in_recovery() {
        let (mut metrics, mut rack) = (metrics(), Rack::default());
        assert_eq!(rack.window(&metrics), 10 * MILLISECOND);
        metrics.sacked_out = 3;
        assert_eq!(rack.window(&metrics), 0);
        metrics.sacked_out = 0;
        metrics.ca_state = CaState::Recovery;
        assert_eq!(rack.window(&metrics), 0);
        rack.reordering_seen = true;
        assert_eq!(rack.window(&metrics), 10 * MILLISECOND);
    }

    //= test RFC 8985 6.2 step 4
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

    //= test RFC 8985 6.2 step 2
    #[test]
    fn the_latest_sent_counts_and_of_two_sent_together_the_one_further_on() {
        let mut rack = Rack::default();
        rack.advance(50, 3000, 7);
        rack.advance(40, 4000, 9);
        assert_eq!((rack.sent_at, rack.end, rack.rtt), (50, 3000, 9));
        rack.advance(50, 4000, 7);
        assert_eq!((rack.sent_at, rack.end), (50, 4000));
    }
}
