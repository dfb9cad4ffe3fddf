//! What one ACK delivers: the scoreboard fills it in, loss detection and the samples read it.

use ropewalk_wire::Payload;

use super::entry::{APP_LIMITED, Entry};
use super::rate::Sample;
use crate::{Span, Time};

/// A DSACK (RFC 2883).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::tcp) struct Dsack {
    /// Where the duplicate ends.
    pub end: u64,
    /// How many segments it comes to.
    pub segments: u32,
}

/// What one ACK reports.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AckSummary {
    /// Segments in flight before it.
    pub prior_in_flight: u32,
    /// Segments newly delivered, cumulatively or selectively.
    pub segments: u32,
    /// Segments that the cumulative ACK covers, those that were sacked before included, and their bytes.
    pub removed: u32,
    pub bytes: u64,
    /// The cumulative ACK advanced.
    pub advanced: bool,
    /// Something was newly sacked.
    pub newly_sacked: bool,
    /// It covers something that was retransmitted.
    pub over_retransmission: bool,
    /// A duplicate ACK (RFC 5681 2): nothing but the same number again.
    pub duplicate: bool,
    /// The peer echoes a congestion mark.
    pub ece: bool,
    /// A retransmission was judged lost.
    pub lost_retransmission: bool,
    /// A round trip began with it.
    pub round_start: bool,
    /// The delivery rate that it gave, bytes per second; 0: none.
    pub delivery_rate: u64,
    /// The receiver dropped what it had sacked; the timer is set already.
    pub reneged: bool,
    pub dsack: Option<Dsack>,
    /// Of the segments that were never retransmitted: when the first cumulatively acknowledged one was sent,
    /// when the first newly sacked one, and when the last (of the cumulatively acknowledged if there are
    /// any).
    pub first_acked: Option<Time>,
    pub first_sacked: Option<Time>,
    pub last_at: Time,
    /// The sample for the congestion control, of the last segment.
    pub last_rtt: Option<Span>,
    /// Where the first newly delivered segment ends that was never retransmitted.
    pub first_original_end: Option<u64>,
    /// Where the last newly delivered segment ends.
    pub end: u64,
    /// The newly delivered segment that was sent last.
    pub latest_sent: Sample,
    /// For RACK, of the transmissions that certainly arrived: the one sent last (time and end; 0 and 0:
    /// none), and when the one with the highest position was sent.
    pub latest: (Time, u64),
    pub last_sent_at: Time,
}

impl AckSummary {
    /// Adds newly delivered segments that were never retransmitted, from `first` to `last`. All come in order
    /// of position, and so in the order in which they were sent.
    #[inline(always)]
    pub fn deliver_originals<P: Payload>(&mut self, first: &Entry<P>, last: &Entry<P>, segments: u32) {
        self.first_original_end.get_or_insert(first.end());
        self.deliver(last, segments, true);
    }

    /// Adds a newly delivered segment that was retransmitted. `is_unambiguous`: its last transmission is what
    /// arrived.
    pub fn deliver_retransmitted<P: Payload>(&mut self, entry: &Entry<P>, is_unambiguous: bool) {
        self.deliver(entry, entry.segments, is_unambiguous);
    }

    #[inline(always)]
    fn deliver<P: Payload>(&mut self, last: &Entry<P>, segments: u32, arrived: bool) {
        let (sent_at, end) = (last.sent_at, last.end());
        self.segments += segments;
        self.end = end;
        self.latest_sent.take(sent_at, end, last.rate, last.is(APP_LIMITED), last.flight());
        if arrived {
            if sent_at >= self.latest.0 {
                self.latest = (sent_at, end);
            }
            self.last_sent_at = sent_at;
        }
    }

    /// Whether it delivers something that was never retransmitted and ends at `position` or before.
    pub fn has_original_before(&self, position: u64) -> bool {
        self.first_original_end.is_some_and(|end| end <= position)
    }
}
