//! When to acknowledge (RFC 9293 3.8.6.3, RFC 5681 4.2), as Linux does it: more than one full segment at once; while
//! a sender may be in slow start, while the window grows, after a gap, or after anything out of order, every segment;
//! what ends the peer's words (a short segment, or PSH) as soon as the application has read all; and else after a delay
//! that follows the sender's rhythm, from 40 ms. A connection that answers what it receives (`pingpong`) lets its data
//! carry the ACK.

use ropewalk_wire::Payload;

use crate::metrics::SubflowMetrics;
use crate::tcp::timer::Timer;
use crate::tcp::{Context, Subflow, TcpConfig};
use crate::{MILLISECOND, Nanos};

/// The longest that an ACK waits (`TCP_DELACK_MAX`; RFC 9293 MUST-40 allows 500 ms).
const LONGEST: Nanos = 200 * MILLISECOND;
/// Where the estimate of the peer's segment size starts (RFC 9293's default MSS), and the least that counts.
const FIRST_MSS: u32 = 536;
const LEAST_MSS: u32 = 88;

/// The receive side's rhythm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DelayedAck {
    /// ACKs that still go at once.
    quick: u32,
    /// Our data goes out in answer to the peer's.
    pingpong: bool,
    /// How long an ACK waits now; 0 before the first data.
    ato: Nanos,
    /// When data last arrived.
    data_at: Nanos,
    /// The peer's segment size, as far as can be seen, and the length of the last segment below it.
    mss: u32,
    short: u32,
    /// Segments that end what the peer had to say, by their length or by PSH, since the last ACK.
    pushed: u32,
    /// Something waits to be acknowledged.
    scheduled: bool,
}

impl Default for DelayedAck {
    fn default() -> Self {
        DelayedAck {
            quick: 0,
            pingpong: false,
            ato: 0,
            data_at: 0,
            mss: FIRST_MSS,
            short: 0,
            pushed: 0,
            scheduled: false,
        }
    }
}

impl DelayedAck {
    fn raise_quick(&mut self, most: u32, window: u64) {
        let share = (window / (2 * u64::from(self.mss))).clamp(2, 1 << 20) as u32;
        self.quick = self.quick.max(share.min(most));
    }

    /// Data arrived, in order or not: the rhythm (`tcp_measure_rcv_mss`).
    #[inline]
    pub fn on_data(&mut self, cx: &Context<'_>, len: u32, push: bool) {
        let (least, rto) = (cx.tcp.delayed_ack, cx.metrics[cx.index].rto);
        self.measure(len, push);
        if self.is_after_pause(cx.now, least, rto) {
            self.raise_quick(cx.tcp.quick_acks, cx.shared.receive.window());
        }
        self.follow(cx.now, least, rto);
    }

    /// The size of segments.
    #[inline]
    fn measure(&mut self, len: u32, push: bool) {
        let short = std::mem::take(&mut self.short);
        if len >= self.mss {
            self.mss = len;
            self.pushed = self.pushed.max(u32::from(push));
        } else if len == short {
            self.mss = len;
        } else {
            if len >= FIRST_MSS || (len >= LEAST_MSS && !push) {
                self.short = len;
            }
            self.pushed += 1;
        }
        self.scheduled = true;
    }

    /// Whether data that arrives now is the first, or the first after so long that the sender has restarted its window, or
    /// should have.
    #[inline]
    fn is_after_pause(&self, now: Nanos, least: Nanos, rto: Nanos) -> bool {
        let gap = now.saturating_sub(self.data_at);
        self.ato == 0 || (gap > rto && gap >= self.ato && gap > least / 2)
    }

    /// The time between segments.
    #[inline]
    fn follow(&mut self, now: Nanos, least: Nanos, rto: Nanos) {
        let gap = now.saturating_sub(self.data_at);
        if self.ato == 0 {
            self.ato = least;
        } else if gap <= least / 2 {
            self.ato = self.ato / 2 + least / 2;
        } else if gap < self.ato {
            self.ato = (self.ato / 2 + gap).min(rto);
        }
        self.data_at = now;
    }

    /// The peer's segment size, as far as can be seen.
    #[inline]
    pub fn full_size(&self) -> u64 {
        u64::from(self.mss)
    }

    /// An ACK leaves, on whatever segment.
    #[inline]
    pub fn on_sent(&mut self, least: Nanos) {
        if self.quick > 0 && self.scheduled {
            self.quick -= 1;
            if self.quick == 0 {
                self.ato = least;
            }
        }
        self.scheduled = false;
        self.pushed = 0;
    }

    /// New data of ours leaves: an answer, if it comes soon after the peer's.
    #[inline]
    pub fn on_data_sent(&mut self, now: Nanos) {
        if now.saturating_sub(self.data_at) < self.ato {
            self.pingpong = true;
        }
    }

    /// The delayed ACK is due: it had waited in vain.
    pub fn on_timer(&mut self, least: Nanos, rto: Nanos) {
        if self.pingpong {
            self.pingpong = false;
            self.ato = least;
        } else {
            self.ato = (2 * self.ato).min(rto);
        }
    }
}

impl<P: Payload> Subflow<P> {
    /// The next ACKs go at once: the sender needs them.
    pub(in crate::tcp) fn quick_ack_mode(&mut self, cx: &Context<'_>, most: u32) {
        self.delack.raise_quick(most, cx.shared.receive.window());
        self.delack.pingpong = false;
        self.delack.ato = cx.tcp.delayed_ack;
    }

    /// Data that came has opened the window: its ACK goes at once, as long as the window grows every segment's
    /// (`tcp_grow_window`), and none of them counts among the first. Whether one goes.
    #[inline]
    pub(crate) fn window_opened(&mut self) -> bool {
        self.delack.quick |= 1;
        let goes = self.delack.scheduled && !self.delack.pingpong;
        self.ack_now |= goes;
        goes
    }

    /// The application has read all that came, on whatever subflow, and nothing waits out of order: what the peer had to say
    /// may have come to an end with it, and then the peer may be waiting for the ACK (`tcp_cleanup_rbuf`). Whether one
    /// goes.
    #[inline]
    pub(crate) fn all_is_read(&mut self) -> bool {
        let delack = &self.delack;
        let ends = delack.pushed >= 2 || (delack.pushed == 1 && !delack.pingpong);
        if !(ends && delack.scheduled && self.reassembly.is_empty()) {
            return false;
        }
        self.request_ack();
        true
    }

    /// In-order data waits to be acknowledged: now or later?
    #[inline]
    pub(in crate::tcp) fn schedule_ack(&mut self, now: Nanos, tcp: &TcpConfig, metrics: &SubflowMetrics) {
        let delack = &self.delack;
        //= RFC 9293 SHLD-18 SHLD-19 at least every second full-sized segment
        if self.rcv_nxt - self.last_ack_sent > u64::from(delack.mss) || (delack.quick > 0 && !delack.pingpong)
        {
            self.ack_now = true;
            return;
        }
        let least = tcp.delayed_ack;
        let mut wait = delack.ato;
        if wait > least {
            let srtt = metrics.srtt;
            let longest = if delack.pingpong || delack.pushed > 0 { LONGEST } else { 500 * MILLISECOND };
            wait = wait.min(if srtt == 0 { longest } else { srtt.max(least).min(longest) });
        }
        //= RFC 9293 MUST-40 less than half a second
        let wait = wait.min(LONGEST);
        let at = now + wait;
        match self.timers.get(Timer::DelayedAck) {
            // About to go anyway.
            Some(known) if known <= now + wait / 4 => self.ack_now = true,
            Some(known) if known <= at => {}
            _ => self.timers.set(Timer::DelayedAck, at),
        }
    }
}
