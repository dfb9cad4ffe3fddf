//! The receiver of a subflow: what is expected next, the window that is advertised, reassembly, delayed ACKs
//! and what an ACK reports (RFC 9293 3.8, RFC 2018, RFC 2883, RFC 3168, RFC 7323).

mod ack;
mod ack_limit;
mod data;
mod delayed_ack;
mod mapping;
mod reassembly;
mod rtt;
mod segment_ring;
mod ts_clock;

use ropewalk_wire::{Flags, Payload, Segment, Seq};

use super::common::Common;
use super::context::Context;
use crate::{SECOND, Span, Time};
use ack_limit::AckLimit;
use delayed_ack::DelayedAck;
pub(crate) use mapping::Mapping;
use reassembly::{InOrder, ReassemblyQueue};
use rtt::ReceiveRtt;
use ts_clock::TsClock;

/// After this long nothing is compared with TS.Recent, whatever the peer's clock (RFC 7323 5.5).
const PAWS_IDLE: Span = Span::from_secs(24 * 24 * 3600);

/// State of the receiver. Hot fields come first: with thousands of connections each cache line is a miss.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Receiver<P> {
    /// RCV.NXT.
    rcv_nxt: u64,
    /// Right edge of all windows that were advertised.
    rcv_edge: u64,
    /// Last.ACK.sent (RFC 7323 4.3).
    last_ack_sent: u64,
    /// TS.Recent (RFC 7323 4.3), and when it was set.
    ts_recent: u32,
    /// An ACK is due at the next opportunity.
    ack_now: bool,
    /// Congestion marks are echoed until CWR arrives.
    ece_pending: bool,
    ts_recent_at: Time,
    /// The window that was advertised last.
    advertised_window: u64,
    delayed_ack: DelayedAck,
    rtt: ReceiveRtt,
    /// The position of the peer's FIN, once it is known.
    fin_at: Option<u64>,
    /// Made with the first data out of order, since most receivers never have any.
    reassembly: Option<Box<ReassemblyQueue<P>>>,
    in_order: InOrder<P>,
    /// Made with the first challenge or unacceptable segment.
    limit: Option<Box<AckLimit>>,
    /// What is known of the peer's timestamp clock.
    ts_clock: TsClock,
}

impl<P: Payload> Receiver<P> {
    pub fn new(now: Time) -> Self {
        Receiver {
            rcv_nxt: 0,
            rcv_edge: 0,
            last_ack_sent: 0,
            ts_recent: 0,
            ack_now: false,
            ece_pending: false,
            ts_recent_at: now,
            ts_clock: TsClock::default(),
            advertised_window: 0,
            delayed_ack: DelayedAck::default(),
            rtt: ReceiveRtt::default(),
            fin_at: None,
            reassembly: None,
            in_order: InOrder::new(),
            limit: None,
        }
    }

    /// The peer's SYN or SYN/ACK arrived.
    pub fn on_syn(&mut self, cx: &Context<'_>, syn: &Segment<P>) {
        self.rcv_nxt = 1;
        self.last_ack_sent = 1;
        self.replace_ts_recent(cx.now, syn);
        // What the SYN or SYN/ACK says, which no scale applies to (RFC 7323 2.2).
        self.advertised_window = cx.shared.receive.window().min(65_535);
        self.rcv_edge = 1 + self.advertised_window;
    }

    /// Frees unused memory.
    pub fn shrink(&mut self) {
        match &mut self.reassembly {
            Some(queue) if queue.has_report() => queue.shrink(),
            _ => self.reassembly = None,
        }
        self.in_order.shrink();
    }

    /// Whether no data waits for what is missing before it.
    #[inline]
    fn is_contiguous(&self) -> bool {
        self.reassembly.as_ref().is_none_or(|queue| queue.is_empty())
    }

    /// Position of the next byte expected.
    #[inline]
    pub fn next(&self) -> u64 {
        self.rcv_nxt
    }

    /// The position that a sequence number of the peer's stands for.
    #[inline]
    pub fn position(&self, common: &Common, seq: Seq) -> u64 {
        Seq(seq.0.wrapping_sub(common.peer_isn)).unfold(self.rcv_nxt)
    }

    /// The next in-order data with its position and mapping, until `None`.
    #[inline]
    pub fn next_in_order(&mut self) -> Option<(u64, P, Mapping)> {
        self.in_order.pop_front()
    }

    /// The position of the first byte that wasn't taken.
    pub fn first_untaken(&self) -> u64 {
        self.in_order.front().map_or(self.rcv_nxt, |(position, ..)| *position)
    }

    /// The part of header prediction that concerns the receiver: in the window, with a timestamp that isn't
    /// old.
    #[inline]
    pub fn is_predicted(&self, common: &Common, segment: &Segment<P>) -> bool {
        let recent = |value: u32| value.wrapping_sub(self.ts_recent) as i32 >= 0;
        let expected = common.peer_isn.wrapping_add(self.rcv_nxt as u32);
        let offset = u64::from(segment.seq.0.wrapping_sub(expected));
        // Without PAWS an old duplicate could pass for the segment that is expected.
        common.negotiated.timestamps
            && segment.timestamps.is_some_and(|stamp| recent(stamp.value))
            && (offset == 0 || offset < self.rcv_edge.saturating_sub(self.rcv_nxt))
    }

    /// RFC 9293 3.4: whether a segment touches the receive window.
    #[inline]
    pub fn in_window(&self, cx: &Context<'_>, position: u64, segment: &Segment<P>) -> bool {
        let window = cx.shared.receive.window().max(self.rcv_edge.saturating_sub(self.rcv_nxt));
        let end = self.rcv_nxt + window;
        // `unfold` may go below zero for a stray segment.
        if position > (1 << 63) {
            return false;
        }
        let len = segment.sequence_len();
        if len == 0 {
            // An ACK at the right edge counts, as in Linux (`tcp_sequence`): after filling the window the
            // peer sends its ACKs from there, and they may overtake the data. A RST there doesn't (RFC 5961
            // 3.2).
            let is_inside = position < end || (position == end && !segment.flags.contains(Flags::RST));
            return position >= self.rcv_nxt && (is_inside || position == self.rcv_nxt);
        }
        // A FIN without data needs no space. With windows at connection level (RFC 8684 3.3.1) nothing that
        // arrives in order is refused here.
        let unlimited = segment.payload.is_empty() || cx.shared.multipath;
        let end = if unlimited { end.max(self.rcv_nxt + 1) } else { end };
        position < end && position + u64::from(len) > self.rcv_nxt
    }

    /// Whether all of a segment is in the receive window.
    #[cold]
    pub fn has_room_for(&self, cx: &Context<'_>, position: u64, segment: &Segment<P>) -> bool {
        let end = position.wrapping_add(u64::from(segment.sequence_len()));
        position >= self.rcv_nxt && position < 1 << 63 && end <= self.rcv_nxt + cx.shared.receive.window()
    }

    //= RFC 7323 4.3-a only a segment that covers the last ACK sent updates TS.Recent
    /// Updates TS.Recent with the timestamp of an acceptable segment. `PREDICTED` says that it isn't old.
    #[inline]
    pub fn update_ts_recent<const PREDICTED: bool>(
        &mut self,
        common: &Common,
        now: Time,
        segment: &Segment<P>,
        position: u64,
    ) {
        if let Some(stamp) = segment.timestamps
            && (PREDICTED || common.negotiated.timestamps)
            // Of segments that a delayed ACK covers the first is echoed: so the peer's sample
            // includes the delay (RFC 7323 4.3).
            && position <= self.last_ack_sent
            && (PREDICTED
                || stamp.value.wrapping_sub(self.ts_recent) as i32 >= 0
                || self.is_ts_recent_outdated(now))
        {
            self.ts_recent = stamp.value;
            self.ts_recent_at = now;
            if !PREDICTED {
                self.ts_clock.see(now, stamp.value);
            }
        }
    }

    //= RFC 7323 5.5-a
    /// Whether the peer's clock may have passed half of its range since TS.Recent was set: then nothing is
    /// older than it. After 24 days it may at 1000 ticks per second, after 36 minutes at Linux's fastest
    /// (`tcp_usec_ts`).
    #[cold]
    pub fn is_ts_recent_outdated(&self, now: Time) -> bool {
        let ticks = self.ts_clock.ticks_per_second(self.ts_recent, self.ts_recent_at);
        let limit = PAWS_IDLE.min((1 << 31) * SECOND / ticks);
        now.saturating_sub(self.ts_recent_at) >= limit
    }

    /// Sets TS.Recent, whatever it was (Linux's `tcp_replace_ts_recent`).
    pub fn replace_ts_recent(&mut self, now: Time, segment: &Segment<P>) {
        if let Some(stamp) = segment.timestamps {
            self.ts_recent = stamp.value;
            self.ts_recent_at = now;
            self.ts_clock.see(now, stamp.value);
        }
    }

    /// By how much a segment's timestamp is older than TS.Recent; 0: not at all.
    #[inline]
    pub fn timestamp_age(&self, segment: &Segment<P>) -> u32 {
        let age = segment.timestamps.map_or(0, |stamp| self.ts_recent.wrapping_sub(stamp.value) as i32);
        age.max(0) as u32
    }

    /// TS.Recent.
    pub fn ts_recent(&self) -> u32 {
        self.ts_recent
    }

    /// Notes congestion marks, which are echoed until the sender confirms with CWR (RFC 3168 6.1.3).
    #[cold]
    pub fn on_ecn(&mut self, cx: &Context<'_>, segment: &Segment<P>) {
        // CWR first: a mark on the same segment is a new one, and echoed anew (RFC 3168 6.1.3).
        if segment.flags.contains(Flags::CWR) {
            self.ece_pending = false;
            if !segment.payload.is_empty() {
                // The sender's window may be a single segment now.
                self.ack_now = true;
            }
        }
        //= RFC 9293 SHLD-8
        if segment.ecn == ropewalk_wire::Ecn::Ce && !self.ece_pending {
            self.ece_pending = true;
            self.enter_quick_ack(cx, ack::QUICK_ACKS_AFTER_MARK);
        }
    }

    /// Moves the right edge of the window to `edge`, as if no more had been advertised.
    #[cfg(test)]
    pub fn set_edge(&mut self, edge: u64) {
        self.rcv_edge = edge;
    }
}
