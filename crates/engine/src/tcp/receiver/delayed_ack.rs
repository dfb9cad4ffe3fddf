//! When to acknowledge (RFC 9293 3.8.6.3, RFC 5681 4.2), as Linux does it.
//!
//! An ACK leaves at once for more than one full segment of data, and for every segment in quick-ACK mode: at
//! the start, while the window grows, after a pause. Otherwise it is delayed by `ato`, which follows the time
//! between segments, from 40 ms. In interactive mode (`pingpong`) data of this end carries the ACKs. With an
//! [`answer_time`](crate::TcpConfig::answer_time) it may also carry those of quick-ACK mode.

use crate::config::TcpConfig;
use crate::metrics::SubflowMetrics;
use crate::tcp::context::Context;
use crate::{Span, Time};

/// The longest delay of an ACK (`TCP_DELACK_MAX`; RFC 9293 MUST-40 allows 500 ms).
const LONGEST: Span = Span::from_millis(200);
/// First estimate of the peer's segment size (RFC 9293's default MSS), and the least length that changes it.
const FIRST_MSS: u32 = 536;
const LEAST_MSS: u32 = 88;

/// State of delayed ACKs (Linux's `icsk_ack`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DelayedAck {
    /// ACKs that are still sent at once.
    quick: u32,
    /// Data is sent in answer to the peer's data.
    pingpong: bool,
    /// Something is to be acknowledged.
    scheduled: bool,
    /// The delay of an ACK; 0 before the first data.
    ato: Span,
    /// When data last arrived.
    data_at: Time,
    /// Estimate of the peer's segment size, and the length of the last segment if that was shorter.
    mss: u32,
    last_short: u32,
    /// Segments since the last ACK that seem to end a message: short ones, and those with PSH.
    pushed: u32,
}

impl Default for DelayedAck {
    fn default() -> Self {
        DelayedAck {
            quick: 0,
            pingpong: false,
            scheduled: false,
            ato: Span::ZERO,
            data_at: Time::ZERO,
            mss: FIRST_MSS,
            last_short: 0,
            pushed: 0,
        }
    }
}

impl DelayedAck {
    /// The next ACKs, at most `most`, are sent at once, because the sender needs them.
    pub fn enter_quick_ack(&mut self, cx: &Context<'_>, most: u32) {
        self.raise_quick(cx, most);
        self.pingpong = false;
        self.ato = cx.tcp.delayed_ack;
    }

    #[cold]
    fn raise_quick(&mut self, cx: &Context<'_>, most: u32) {
        // As many ACKs as the window holds pairs of segments, and two at least (`tcp_incr_quickack`).
        let share = (cx.shared.receive.window() / (2 * u64::from(self.mss))).clamp(2, 1 << 20) as u32;
        self.quick = self.quick.max(share.min(most));
    }

    /// Data arrived, in order or not.
    #[inline(always)]
    pub fn on_data(&mut self, cx: &Context<'_>, len: u32, push: bool) {
        let (least, rto) = (cx.tcp.delayed_ack, cx.metrics.rto);
        self.estimate_mss(len, push, push && !cx.tcp.old_acks);
        let gap = cx.now.saturating_sub(self.data_at);
        self.data_at = cx.now;
        if self.ato == Span::ZERO {
            self.raise_quick(cx, cx.tcp.quick_acks);
            self.ato = least;
        } else if gap <= least / 2 {
            // Within a train of segments the delay converges to its least: the
            // next segment will be here sooner.
            self.ato = self.ato / 2 + least / 2;
        } else if gap < self.ato {
            self.ato = (self.ato / 2 + gap).min(rto);
        } else if gap > rto {
            // The sender has restarted its window, or should have.
            self.raise_quick(cx, cx.tcp.quick_acks);
        }
    }

    /// Estimates the peer's segment size (`tcp_measure_rcv_mss`). `ends`: a full segment ends a message.
    #[inline(always)]
    fn estimate_mss(&mut self, len: u32, push: bool, ends: bool) {
        let last_short = std::mem::take(&mut self.last_short);
        if len >= self.mss {
            self.mss = len;
            self.pushed = self.pushed.max(u32::from(ends));
        } else if len == last_short {
            self.mss = len;
        } else {
            // A short segment with PSH is the end of a message, and no sign of a smaller MSS.
            if len >= FIRST_MSS || (len >= LEAST_MSS && !push) {
                self.last_short = len;
            }
            self.pushed += 1;
        }
        self.scheduled = true;
    }

    /// Whether something is to be acknowledged.
    pub fn is_scheduled(&self) -> bool {
        self.scheduled
    }

    /// Estimate of the peer's segment size.
    #[inline]
    pub fn mss(&self) -> u64 {
        u64::from(self.mss)
    }

    /// An ACK was sent, alone or with data.
    #[inline]
    pub fn on_ack_sent(&mut self, least: Span) {
        if self.quick > 0 && self.scheduled {
            self.quick -= 1;
            if self.quick == 0 {
                self.ato = least;
            }
        }
        self.scheduled = false;
        self.pushed = 0;
    }

    /// New data was sent. Soon after data arrived it is an answer.
    #[inline]
    pub fn on_data_sent(&mut self, now: Time) {
        if now.saturating_sub(self.data_at) < self.ato {
            self.pingpong = true;
        }
    }

    /// The timer fired: nothing carried the ACK.
    pub fn on_timer(&mut self, least: Span, rto: Span) {
        if self.pingpong {
            self.pingpong = false;
            self.ato = least;
        } else {
            self.ato = (2 * self.ato).min(rto);
        }
    }

    /// Data that arrived has opened the window. Returns whether its ACK is sent at once, as it is for every
    /// segment while the window grows (`tcp_grow_window`).
    #[inline]
    pub fn on_window_growth(&mut self) -> bool {
        self.quick |= 1;
        self.scheduled && !self.pingpong
    }

    /// Whether an ACK is sent once the application has read all data: the peer may wait for it if it has
    /// ended a message (`tcp_cleanup_rbuf`). A quick ACK that hasn't left yet waits for the answer.
    #[inline]
    pub fn wants_ack_after_read(&self) -> bool {
        let awaits_answer = self.pingpong || self.quick > 0;
        let message_ended = self.pushed >= 2 || (self.pushed == 1 && !awaits_answer);
        message_ended && self.scheduled
    }

    /// Whether a quick ACK may wait for an answer that carries it: one segment has come that ends a message.
    #[inline]
    pub fn quick_ack_may_wait(&self, tcp: &TcpConfig) -> bool {
        tcp.answer_time.is_some() && self.quick > 0 && !self.pingpong && self.pushed == 1
    }

    //= RFC 9293 SHLD-18 SHLD-19 at least every second full-sized segment
    /// The delay of an ACK for `unacknowledged` bytes in order; `None`: it is sent at once.
    #[inline]
    pub fn delay(&self, unacknowledged: u64, tcp: &TcpConfig, metrics: &SubflowMetrics) -> Option<Span> {
        if unacknowledged > self.mss() {
            return None;
        }
        if self.quick > 0 && !self.pingpong {
            return tcp.answer_time.filter(|_| self.quick_ack_may_wait(tcp));
        }
        let (least, mut delay) = (tcp.delayed_ack, self.ato);
        // A longer wait would cost the sender more than a round trip (`tcp_send_delayed_ack`).
        if delay > least && metrics.rtt.smoothed > Span::ZERO {
            delay = delay.min(metrics.rtt.smoothed.max(least));
        }
        //= RFC 9293 MUST-40 less than half a second
        Some(delay.min(LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::{DelayedAck, LONGEST};
    use crate::config::TcpConfig;
    use crate::metrics::SubflowMetrics;
    use crate::{MILLISECOND, PathId, Span, SubflowId};

    const LEAST: Span = Span::from_millis(40);

    fn metrics(srtt: u64) -> SubflowMetrics {
        let mut metrics = SubflowMetrics::new(SubflowId(0), PathId(0));
        metrics.rtt.smoothed = srtt * MILLISECOND;
        metrics
    }

    #[test]
    fn more_than_a_segment_and_quick_acks_are_acknowledged_at_once() {
        let tcp = TcpConfig::default();
        let mut acks = DelayedAck { mss: 1000, ato: LEAST, ..DelayedAck::default() };
        assert_eq!(acks.delay(1000, &tcp, &metrics(0)), Some(LEAST));
        assert_eq!(acks.delay(1001, &tcp, &metrics(0)), None);
        acks.quick = 1;
        assert_eq!(acks.delay(1, &tcp, &metrics(0)), None);
        acks.pingpong = true;
        assert_eq!(acks.delay(1, &tcp, &metrics(0)), Some(LEAST), "data of this end carries it");
    }

    #[test]
    fn a_quick_ack_of_one_message_may_wait_for_the_answer() {
        let tcp = TcpConfig { answer_time: Some(5 * MILLISECOND), ..TcpConfig::default() };
        let mut acks =
            DelayedAck { mss: 1000, quick: 16, scheduled: true, pushed: 1, ..DelayedAck::default() };
        assert_eq!(acks.delay(300, &tcp, &metrics(0)), Some(5 * MILLISECOND));
        assert!(!acks.wants_ack_after_read(), "reading it isn't the answer");
        acks.pushed = 0;
        assert_eq!(acks.delay(1000, &tcp, &metrics(0)), None, "more of the message follows");
        acks.pushed = 2;
        assert_eq!(acks.delay(300, &tcp, &metrics(0)), None, "a second message came before the answer");
    }

    /// No longer than the round-trip time, unless that is shorter than the least delay; never longer than 200
    /// ms.
    #[test]
    fn the_round_trip_time_and_a_bound_limit_the_delay() {
        let tcp = TcpConfig::default();
        for (ato, srtt, delay) in [
            (30, 10, 30),
            (100, 0, 100),
            (100, 60, 60),
            (100, 10, 40),
            (100, 150, 100),
            (300, 0, 200),
            (300, 250, 200),
        ] {
            let acks = DelayedAck { mss: 1000, ato: ato * MILLISECOND, ..DelayedAck::default() };
            let found = acks.delay(1, &tcp, &metrics(srtt));
            assert_eq!(found, Some(delay * MILLISECOND), "ato {ato}, srtt {srtt}");
        }
        assert_eq!(LONGEST, 200 * MILLISECOND);
    }
}
