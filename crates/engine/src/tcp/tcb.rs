//! A subflow: its parts, and what the connection asks of them.

use ropewalk_wire::{Flags, FourTuple, Payload, Seq};

use super::common::Common;
use super::context::{Context, State};
use super::mib::TcpCounters;
use super::receiver::{Mapping, Receiver};
use super::sender::Sender;
use super::window::shift_for;
use crate::metrics::SubflowMetrics;
use crate::scheduler::Fate;
use crate::{Span, Time};

/// One TCP connection. Hot fields come first: with thousands of connections each cache line is a miss.
#[derive(Debug)]
#[repr(C)]
pub struct Tcb<P> {
    /// There is nothing to send, whatever the windows allow, until something happens.
    pub(super) nothing_to_send: bool,
    pub(super) reset_pending: bool,
    pub(super) probing: Probing,
    pub(super) common: Common,
    pub(super) receiver: Receiver<P>,
    pub(super) sender: Sender<P>,
    pub(super) handshake: Handshake,
}

/// Probes of a peer that is silent or has closed its window (RFC 9293 3.8.4, 3.8.6.1).
#[derive(Debug)]
pub(super) struct Probing {
    /// Probes that weren't answered.
    pub unanswered: u32,
    /// When an acceptable segment last arrived.
    pub received_at: Time,
}

/// State of the handshake.
#[derive(Debug)]
pub(super) struct Handshake {
    /// A SYN or SYN/ACK is due.
    pub syn_pending: bool,
    /// One was sent more than once, or the peer sent its own again.
    pub repeated: bool,
    /// Timeouts of the SYN or SYN/ACK.
    pub timeouts: u32,
    /// When it was last sent.
    pub sent_at: Time,
    /// The sequence number of a RST that answers an ACK of what was never sent.
    pub refusal: Option<Seq>,
}

impl<P: Payload> Tcb<P> {
    /// Bytes that the peer's window for this subflow alone still admits.
    pub(crate) fn window_room(&self) -> u64 {
        self.sender.window_room()
    }

    pub(super) fn new(cx: &mut Context<'_>, tuple: FourTuple, state: State, path_mtu: u32, isn: u32) -> Self {
        Tcb {
            nothing_to_send: false,
            reset_pending: false,
            probing: Probing { unanswered: 0, received_at: cx.now },
            common: Common::new(tuple, state, path_mtu, isn),
            receiver: Receiver::new(cx.now),
            sender: Sender::new(cx),
            handshake: Handshake {
                syn_pending: true,
                repeated: false,
                timeouts: 0,
                sent_at: cx.now,
                refusal: None,
            },
        }
    }

    /// Says whether the congestion control, which was replaced, is model-based.
    pub fn set_paced(&mut self, paced: bool) {
        self.sender.set_paced(paced);
    }

    /// Announces windows that may grow to `max` bytes; before the first segment.
    pub fn announce_window_of(&mut self, max: u64) {
        self.common.negotiated.own_shift = shift_for(max);
    }

    /// The next in-order data with its position and mapping, until `None`. Changes with each segment
    /// received.
    #[inline]
    pub(crate) fn next_in_order(&mut self) -> Option<(u64, P, Mapping)> {
        self.receiver.next_in_order()
    }

    /// The position of the first byte that wasn't taken by [`next_in_order`](Self::next_in_order).
    pub(crate) fn first_untaken(&self) -> u64 {
        self.receiver.first_untaken()
    }

    /// The earliest deadline. Changes with every call of another method.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.common.timers.next()
    }

    /// A lower bound of [`poll_timeout`](Self::poll_timeout) that is cheap to ask for.
    #[inline]
    pub(crate) fn timeout_floor(&self) -> Time {
        self.common.timers.floor()
    }

    /// Makes the lower bound the earliest deadline, and returns it.
    pub(crate) fn refresh_timeout_floor(&mut self) -> Time {
        self.common.timers.refresh()
    }

    /// Appends data whose first byte has the connection-level offset `tag` to the subflow's own queue.
    #[inline]
    pub fn push(&mut self, metrics: &mut SubflowMetrics, tag: u64, payload: P) {
        metrics.queued_bytes += payload.len() as u64;
        self.nothing_to_send = false;
        self.sender.push(tag, payload);
    }

    /// Takes back what was never sent, as far as `is_taken` says so of each range of connection-level
    /// offsets.
    #[cold]
    pub fn withdraw(
        &mut self,
        metrics: &mut SubflowMetrics,
        is_taken: impl FnMut(std::ops::Range<u64>) -> bool,
    ) {
        metrics.queued_bytes = self.sender.withdraw(is_taken);
    }

    /// The first and last connection-level offset of the data that was pushed last, if none of it was sent.
    pub fn queued_tail(&self) -> Option<(u64, u64)> {
        self.sender.queued_tail()
    }

    /// Replaces the data that was pushed last by longer data with the same beginning, which is then sent as
    /// one super-segment. `queued_bytes` was raised when it was promised.
    pub fn replace_tail(&mut self, payload: P) {
        self.sender.replace_tail(payload);
    }

    /// Sends a FIN after what is queued (RFC 9293 3.10.4).
    pub fn close(&mut self) {
        self.nothing_to_send = false;
        match self.common.state {
            // No peer knows of the connection yet: there is nothing to finish (RFC 9293 3.10.4).
            State::SynSent => self.become_closed(),
            State::SynReceived | State::Established | State::CloseWait => self.sender.close(),
            _ => {}
        }
    }

    /// Sends a RST and drops all state (RFC 9293 3.10.5). Returns whether it sends one.
    pub fn abort(&mut self) -> bool {
        self.nothing_to_send = false;
        match self.common.state {
            State::SynSent | State::Closed => {}
            // Both sides have closed (Linux's `tcp_need_reset`).
            State::Closing | State::LastAck | State::TimeWait => {}
            _ => self.reset_pending = true,
        }
        self.become_closed();
        self.reset_pending
    }

    /// Drops all state without sending a RST.
    pub(crate) fn discard(&mut self) {
        self.become_closed();
    }

    pub(crate) fn become_closed(&mut self) {
        self.common.state = State::Closed;
        self.common.timers.stop_all();
        self.sender.clear();
    }

    /// Frees unused memory.
    #[cold]
    pub(crate) fn shrink(&mut self) {
        self.sender.shrink();
        self.receiver.shrink();
    }

    /// Frees what keeps data that was sent, if there is none.
    pub(crate) fn release_memory(&mut self) {
        if self.sender.is_drained() {
            self.sender.shrink();
        }
    }

    /// Settings changed: what couldn't be sent perhaps can.
    pub(crate) fn recheck_output(&mut self) {
        self.nothing_to_send = false;
    }

    /// Has an ACK sent soon, to carry an option, a DATA_ACK or a window.
    #[inline]
    pub fn request_ack(&mut self) {
        self.nothing_to_send = false;
        self.receiver.request_ack();
    }

    /// Has a window probe sent (RFC 9293 3.8.6.1).
    pub fn probe_window(&mut self) {
        self.nothing_to_send = false;
        if self.common.may_send() {
            self.sender.request_window_probe();
        }
    }

    /// Data waits for the peer's window: arms the probe of a closed one, unless something is in flight.
    #[cold]
    pub(crate) fn await_window(&mut self, cx: &Context<'_>) {
        self.sender.await_window(&mut self.common, cx);
    }

    /// Whether a tail loss probe is due and there is no new data for it.
    #[inline]
    pub(crate) fn lacks_probe_data(&self) -> bool {
        self.sender.lacks_probe_data()
    }

    /// The window has room and there is nothing to send.
    #[inline]
    pub(crate) fn check_app_limited(&mut self, metrics: &SubflowMetrics) {
        self.sender.check_app_limited(metrics);
    }

    /// Data that arrived has opened the window. Returns whether its ACK is sent at once.
    #[inline]
    pub(crate) fn on_window_growth(&mut self) -> bool {
        self.receiver.on_window_growth()
    }

    /// The application has read something. Returns whether an ACK is sent for that.
    pub(crate) fn on_read(&mut self) -> bool {
        let at_once = self.receiver.on_read();
        self.nothing_to_send &= !at_once;
        at_once
    }

    /// The application has read everything, on all subflows. Returns whether an ACK is sent for that.
    #[inline]
    pub(crate) fn on_all_read(&mut self) -> bool {
        let at_once = self.receiver.on_all_read();
        self.nothing_to_send &= !at_once;
        at_once
    }

    /// An ICMP message says that the packet with this sequence number exceeded an MTU. Returns false if it is
    /// ignored.
    pub fn on_too_big(&mut self, cx: &mut Context<'_>, seq: Seq, mtu: u32) -> bool {
        self.nothing_to_send = false;
        self.sender.on_too_big(&mut self.common, cx, seq, mtu)
    }

    /// Recomputes the MSS after the options' lengths changed (fallback).
    pub fn refresh_mss(&mut self, cx: &mut Context<'_>) {
        self.common.update_mss(cx);
    }

    /// Its state. Changes with segments, timeouts, `close` and `abort`.
    #[inline]
    pub fn state(&self) -> State {
        self.common.state
    }

    /// Whether nothing more will be sent, not even a RST.
    pub fn is_finished(&self) -> bool {
        self.common.state == State::Closed && !self.reset_pending
    }

    /// Whether the peer answers: no timeout without progress, no unanswered probe. Such a subflow isn't about
    /// to give up.
    #[inline]
    #[cfg(feature = "lookahead")]
    pub(crate) fn is_peer_responsive(&self) -> bool {
        self.sender.timeouts() == 0 && self.probing.unanswered == 0
    }

    /// Addresses and ports of what this end sends.
    pub fn tuple(&self) -> FourTuple {
        self.common.tuple
    }

    /// Whether segments with this tuple are for it.
    #[inline]
    pub(crate) fn matches(&self, tuple: &FourTuple) -> bool {
        self.common.tuple.answers(tuple)
    }

    /// The peer's initial sequence number.
    pub fn peer_isn(&self) -> u32 {
        self.common.peer_isn
    }

    /// Position of the first byte that isn't acknowledged.
    #[inline]
    pub fn snd_una(&self) -> u64 {
        self.sender.una()
    }

    /// Position of the next new byte to be sent.
    #[cfg(test)]
    pub fn snd_nxt(&self) -> u64 {
        self.sender.next()
    }

    /// Position of the next byte expected.
    #[inline]
    pub fn rcv_nxt(&self) -> u64 {
        self.receiver.next()
    }

    /// Whether a segment's acknowledgement is as far as any has come.
    #[inline]
    pub(crate) fn is_latest_ack(&self, ack: Seq) -> bool {
        self.sender.ack_position(&self.common, ack) == self.sender.una()
    }

    /// The peer's latest advertised window, bytes.
    #[inline]
    pub fn peer_window(&self) -> u64 {
        self.sender.peer_window()
    }

    /// The window that a segment of the peer advertises, bytes (RFC 7323 2.2: never scaled on a SYN).
    #[inline]
    pub(crate) fn window_in(&self, flags: Flags, field: u16) -> u64 {
        if flags.contains(Flags::SYN) { u64::from(field) } else { self.common.peer_window(field) }
    }

    /// The window that the last segment since the handshake advertised, bytes.
    #[inline]
    pub(crate) fn advertised_window(&self) -> u64 {
        self.receiver.advertised_window()
    }

    /// Tag and length of each range handed to it that isn't acknowledged, queued ones included.
    pub fn outstanding(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.sender.outstanding()
    }

    /// What became of the data at a connection-level offset that was pushed here.
    pub fn fate(&self, offset: u64) -> Fate {
        self.sender.fate(offset)
    }

    /// The round-trip time as a receiver of data sees it, queues in the data's direction included; 0 before
    /// such a sample, and without timestamps.
    pub fn receive_rtt(&self) -> Span {
        self.receiver.rtt()
    }

    /// Whether both ends use timestamps.
    pub fn has_timestamps(&self) -> bool {
        self.common.negotiated.timestamps
    }

    /// Its counters.
    pub fn counters(&self) -> TcpCounters {
        self.common.counters.all()
    }

    /// Payload bytes that it sent, repeats included.
    pub(crate) fn bytes_sent(&self) -> u64 {
        self.common.counters.bytes_sent
    }

    /// How often the SYN has been sent again.
    pub fn syn_retransmissions(&self) -> u32 {
        self.handshake.timeouts
    }
}
