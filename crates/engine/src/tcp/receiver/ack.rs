//! When an ACK is sent, and its content: number, window, timestamp, SACK blocks.

use ropewalk_wire::{Flags, Payload, Segment, Seq, Timestamps};

use super::Receiver;
use crate::tcp::common::Common;
use crate::tcp::context::Context;
use crate::tcp::timer::Timer;
use crate::tcp::window::scaled;

/// Quick ACKs after a congestion mark, as in Linux.
pub(super) const QUICK_ACKS_AFTER_MARK: u32 = 2;

/// Bytes of the timestamps option with its padding.
const TIMESTAMPS_LEN: usize = 12;

impl<P: Payload> Receiver<P> {
    /// Has an ACK sent at the next opportunity.
    #[inline]
    pub fn request_ack(&mut self) {
        self.ack_now = true;
    }

    /// Whether an ACK is sent at the next opportunity.
    #[inline]
    pub fn is_ack_requested(&self) -> bool {
        self.ack_now
    }

    /// Puts the request for an ACK back that was pending before a segment was sent.
    pub fn restore_ack_request(&mut self, requested: bool) {
        self.ack_now = requested;
    }

    /// Answers a segment that looks forged with a challenge ACK, at a limited rate (RFC 5961).
    #[cold]
    pub fn challenge(&mut self, common: &mut Common, cx: &Context<'_>) {
        if self.limit.get_or_insert_default().allows_challenge(cx.now) {
            common.counters.challenge_acks += 1;
            self.ack_now = true;
        } else {
            common.counters.challenges_skipped += 1;
        }
    }

    /// Whether another unacceptable segment without data may be answered now. If so, the answer counts.
    pub fn allows_answer(&mut self, cx: &Context<'_>) -> bool {
        self.limit.get_or_insert_default().allows_answer(cx.now)
    }

    pub(super) fn enter_quick_ack(&mut self, cx: &Context<'_>, most: u32) {
        self.delayed_ack.enter_quick_ack(cx, most);
    }

    /// Data that arrived has opened the window. Returns whether its ACK is sent at once.
    #[inline]
    pub fn on_window_growth(&mut self) -> bool {
        let at_once = self.delayed_ack.on_window_growth();
        self.ack_now |= at_once;
        at_once
    }

    /// The application has read everything, on all subflows. Returns whether an ACK is sent for that.
    #[inline]
    pub fn on_all_read(&mut self) -> bool {
        let at_once = self.delayed_ack.wants_ack_after_read() && self.is_contiguous();
        self.ack_now |= at_once;
        at_once
    }

    /// The application has read something: an ACK that was held back for want of window leaves now. Returns
    /// whether it does.
    pub fn on_read(&mut self) -> bool {
        let at_once =
            self.delayed_ack.is_scheduled() && self.rcv_nxt - self.last_ack_sent > self.delayed_ack.mss();
        self.ack_now |= at_once;
        at_once
    }

    /// In-order data waits to be acknowledged, now or later.
    #[inline(always)]
    pub(super) fn schedule_ack(&mut self, common: &mut Common, cx: &Context<'_>) {
        let mut unacknowledged = self.rcv_nxt - self.last_ack_sent;
        if cx.tcp.old_acks && cx.shared.receive.offered() < self.advertised_window {
            unacknowledged = 0;
        }
        //= RFC 5681 4.2-a
        let Some(delay) = self.delayed_ack.delay(unacknowledged, cx.tcp, cx.metrics) else {
            self.ack_now = true;
            return;
        };
        let at = cx.now + delay;
        match common.timers.get(Timer::DelayedAck) {
            // An earlier ACK is due soon anyway.
            Some(known) if known <= cx.now + delay / 4 => self.ack_now = true,
            // A later segment must not put off the ACK of an earlier one.
            Some(known) if known <= at => {}
            _ => common.timers.set(Timer::DelayedAck, at),
        }
    }

    /// The delayed-ACK timer fired.
    pub fn on_delayed_ack_timer(&mut self, common: &mut Common, cx: &Context<'_>) {
        self.ack_now = true;
        // A quick ACK that waited for an answer in vain says nothing of how long others should be delayed.
        if !self.delayed_ack.quick_ack_may_wait(cx.tcp) {
            self.delayed_ack.on_timer(cx.tcp.delayed_ack, cx.metrics.rto);
            common.counters.delayed_acks += 1;
        }
    }

    /// New data is about to be sent.
    #[inline]
    pub fn on_data_sent(&mut self, cx: &Context<'_>) {
        self.delayed_ack.on_data_sent(cx.now);
    }

    /// The acknowledgement number of a segment that is sent now.
    #[inline]
    pub fn ack_number(&self, common: &Common) -> Seq {
        Seq(common.peer_isn.wrapping_add(self.rcv_nxt as u32))
    }

    /// Writes what every segment reports beside the acknowledgement number: window, timestamp, congestion
    /// echo.
    #[inline(always)]
    pub fn write_ack(&mut self, common: &mut Common, cx: &Context<'_>, segment: &mut Segment<P>) {
        segment.window = self.advertise(common, cx) as u16;
        //= RFC 7323 3.2-b 3.2-c
        if common.negotiated.timestamps {
            segment.timestamps = Some(Timestamps { value: cx.timestamp(), echo: self.ts_recent });
        }
        if self.ece_pending {
            segment.flags = segment.flags.with(Flags::ECE);
        }
        //= RFC 5681 4.2-b
        //= RFC 9293 MUST-58 MUST-59 one ACK, when all that arrived has been processed
        self.ack_now = false;
        self.last_ack_sent = self.rcv_nxt;
        self.delayed_ack.on_ack_sent(cx.tcp.delayed_ack);
        common.timers.stop(Timer::DelayedAck);
    }

    /// The window that was advertised last, bytes.
    #[inline]
    pub fn advertised_window(&self) -> u64 {
        self.advertised_window
    }

    /// The window field of a segment that is sent now.
    #[inline]
    fn advertise(&mut self, common: &mut Common, cx: &Context<'_>) -> u64 {
        let shift = common.advertised_shift();
        let units = scaled(cx.shared.receive.window(), cx.shared.receive.room(), shift);
        let window = units << shift;
        if window.min(self.advertised_window) == 0 {
            self.on_closed_window(common, window);
        }
        self.advertised_window = window;
        // What was once offered has to be accepted, even if a smaller window is offered now (RFC 7323 2.4).
        self.rcv_edge = self.rcv_edge.max(self.rcv_nxt + window);
        units
    }

    /// The window is closed, or was.
    #[cold]
    fn on_closed_window(&self, common: &mut Common, window: u64) {
        let was_closed = self.advertised_window == 0;
        common.counters.to_zero_window += u64::from(window == 0 && !was_closed);
        common.counters.from_zero_window += u64::from(window > 0 && was_closed);
    }

    /// Whether there are SACK blocks to send.
    #[inline]
    pub fn has_sack_blocks(&self, common: &Common) -> bool {
        self.reassembly.as_ref().is_some_and(|queue| queue.has_report()) && common.negotiated.sack
    }

    /// Writes SACK blocks into `room` bytes of options, those of the timestamps included.
    #[inline(never)]
    pub fn write_sack_blocks(&mut self, common: &mut Common, segment: &mut Segment<P>, room: usize) {
        let Some(queue) = &mut self.reassembly else { return };
        if let Some((left, _)) = queue.dsack() {
            let old = left < self.rcv_nxt;
            common.counters.dsack_old_sent += u64::from(old);
            common.counters.dsack_ofo_sent += u64::from(!old);
        }
        let room = room.saturating_sub(if segment.timestamps.is_some() { TIMESTAMPS_LEN } else { 0 });
        // Kind, length and padding take four bytes, a block eight (RFC 2018 3).
        let blocks = room.saturating_sub(4) / 8;
        queue.sack_blocks(common.peer_isn, blocks, &mut segment.sack);
    }
}
