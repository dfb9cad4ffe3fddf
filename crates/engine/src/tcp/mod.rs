//! One TCP connection, or one subflow of Multipath TCP: RFC 9293 with window scaling and timestamps (RFC 7323),
//! SACK and DSACK (RFC 2018, 2883), RACK-TLP (RFC 8985), PRR (RFC 6937), ECN (RFC 3168) and RFC 5961's defences.
//!
//! It knows nothing of Multipath TCP but a *tag* per range of bytes (the connection-level offset of its first
//! byte) and a few numbers that the connection hands in with [`Context`]. Positions are 64-bit and never wrap:
//! position 0 is the SYN, data starts at 1; they are unfolded from the wire's 32 bits in one place each way.

mod context;
mod handshake;
mod input;
mod isn;
mod keepalive;
mod mib;
mod output;
mod receiver;
mod sender;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod timeout;
mod timer;

use ropewalk_wire::{FourTuple, Payload, Seq};

use crate::Nanos;
pub use crate::config::TcpConfig;
use crate::inline_queue::InlineQueue;
use crate::metrics::SubflowMetrics;
use context::clock;
pub use context::{Context, Kind, Outcome, Outgoing, Shared, State, Transmit};
pub use isn::{keyed_isn, keyed_timestamp_offset};
pub use mib::TcpCounters;
use receiver::delack::DelayedAck;
pub(crate) use receiver::reassembly::StreamOffset;
use receiver::reassembly::{InOrder, ReassemblyQueue};
use receiver::window;
pub use receiver::window::ReceiveBuffer;
use sender::cwnd_validation::CwndValidation;
use sender::pmtu::BlackHole;
use sender::prr::Prr;
use sender::rack::Rack;
use sender::rate::RateState;
use sender::recovery::Recovery;
use sender::rtt::RttEstimator;
use sender::scoreboard::Scoreboard;
use sender::tlp::Tlp;
use sender::undo::Undo;
use timer::{Timer, Timers};

/// Window shift that we announce where nothing else is said: windows up to 64 MiB in steps of 1 KiB.
const WINDOW_SHIFT: u8 = 10;

/// One TCP connection.
///
/// In the order of use: among thousands of connections each line of memory that a segment needs has to be waited for.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Subflow<P> {
    // What shows whether it has something to send: of its siblings a segment needs no more.
    queue: InlineQueue<(u64, P)>,
    state: State,
    /// There is nothing to be sent, whatever the windows allow, until something happens to it.
    quiet: bool,
    ack_now: bool,
    probe_pending: bool,
    persist_pending: bool,
    fin_queued: bool,
    fin_sent: bool,
    syn_pending: bool,

    // Deadlines: the siblings' are asked for as well.
    timers: Timers,
    last_sent_at: Nanos,

    // What every segment needs, whichever way it goes.
    isn: u32,
    peer_isn: u32,
    ts_recent: u32,
    /// Probes of a closed window or an idle peer that weren't answered.
    probes_out: u32,
    sack: bool,
    timestamps: bool,
    window_scaling: bool,
    /// The window shift that we announce.
    own_shift: u8,
    ecn: bool,
    ece_pending: bool,
    cwr_pending: bool,
    reset_pending: bool,
    peer_shift: u8,
    rcv_nxt: u64,
    snd_una: u64,
    snd_nxt: u64,
    /// Last.ACK.sent (RFC 7323 4.3).
    last_ack_sent: u64,

    // The windows, and what arrival notes.
    ts_recent_at: Nanos,
    /// When an acceptable segment last arrived.
    received_at: Nanos,
    //= RFC 9293 REC-1
    snd_wnd: u64,
    snd_wl1: u64,
    snd_wl2: u64,
    /// The largest window that the peer ever advertised.
    max_window: u64,
    rcv_edge: u64,
    /// The window that we last advertised.
    window_told: u64,

    // The rhythm of data that arrives.
    delack: DelayedAck,
    /// Round-trip time as a receiver sees it, and the echo that gave its last sample.
    rcv_rtt: Nanos,
    rcv_rtt_echo: u32,
    /// How far the probes of a closed window have backed off.
    persist_backoff: u32,
    path_mtu: u32,
    /// Timeouts since the last progress, and how far the timeout has backed off.
    retransmits: u32,

    // Whose segments are its own.
    tuple: FourTuple,
    fin_at: Option<u64>,
    backoff: u32,
    peer_mss: u32,
    reassembly: ReassemblyQueue<P>,
    pub(crate) counters: TcpCounters,

    // What sending needs, and acknowledgements of what was sent.
    rtx: Scoreboard<P>,
    rate: RateState,
    cwnd_validation: CwndValidation,
    rack: Rack,
    rtt: RttEstimator,
    tlp: Tlp,
    recovery: Recovery,

    // What is seldom needed.
    in_order: InOrder<P>,
    prr: Prr,
    undo: Undo,
    /// F-RTO is under way (RFC 5682).
    frto: bool,
    syn_retransmitted: bool,
    black_hole: BlackHole,
    /// Segments that DSACKs have reported.
    dsacked: u64,
    syn_sent_at: Nanos,
    /// When a segment that wasn't was last answered; 0: never.
    answered_at: Nanos,
    challenge_at: Nanos,
    challenges: u32,
    /// The number for a RST that answers a segment of the handshake which acknowledges what was never sent.
    refusal: Option<Seq>,
}

impl<P: Payload> Subflow<P> {
    fn new(tuple: FourTuple, state: State, path_mtu: u32, isn: u32, now: Nanos) -> Self {
        Subflow {
            tuple,
            state,
            path_mtu,
            timers: Timers::default(),
            counters: TcpCounters::default(),
            isn,
            snd_una: 0,
            snd_nxt: 0,
            snd_wnd: 0,
            snd_wl1: 0,
            snd_wl2: 0,
            peer_mss: 536,
            peer_shift: 0,
            queue: InlineQueue::new(),
            rtx: Scoreboard::new(),
            fin_queued: false,
            fin_sent: false,
            rtt: RttEstimator::default(),
            recovery: Recovery::default(),
            rack: Rack::default(),
            tlp: Tlp::default(),
            prr: Prr::default(),
            undo: Undo::default(),
            rate: RateState::new(now),
            cwnd_validation: CwndValidation::default(),
            frto: false,
            retransmits: 0,
            backoff: 0,
            probes_out: 0,
            persist_backoff: 0,
            black_hole: BlackHole::default(),
            dsacked: 0,
            max_window: 0,
            syn_sent_at: now,
            syn_retransmitted: false,
            last_sent_at: now,
            probe_pending: false,
            persist_pending: false,
            cwr_pending: false,
            peer_isn: 0,
            rcv_nxt: 0,
            rcv_edge: 0,
            window_told: 0,
            reassembly: ReassemblyQueue::new(),
            in_order: InlineQueue::new(),
            fin_at: None,
            window_scaling: false,
            own_shift: WINDOW_SHIFT,
            sack: false,
            timestamps: false,
            ts_recent: 0,
            ts_recent_at: now,
            rcv_rtt: 0,
            rcv_rtt_echo: 0,
            last_ack_sent: 0,
            delack: DelayedAck::default(),
            ack_now: false,
            received_at: now,
            answered_at: 0,
            ecn: false,
            ece_pending: false,
            challenge_at: 0,
            challenges: 0,
            syn_pending: true,
            reset_pending: false,
            refusal: None,
            quiet: false,
        }
    }

    /// The next in-order data with its position, and where it belongs in the stream if that is known here, until `None`.
    /// Changes with each segment received.
    #[inline]
    pub(crate) fn next_in_order(&mut self) -> Option<(u64, P, StreamOffset)> {
        self.in_order.pop_front()
    }

    /// The earliest deadline. Changes with every call of another method.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Nanos> {
        self.timers.next()
    }

    /// What [`poll_timeout`](Self::poll_timeout) isn't before: cheap to ask.
    #[inline]
    pub(crate) fn timeout_floor(&self) -> Nanos {
        self.timers.floor()
    }

    /// Makes the floor the earliest deadline.
    pub(crate) fn refresh_timeout_floor(&mut self) {
        self.timers.refresh();
    }

    /// Appends data whose first byte has the connection-level offset `tag` to the subflow's own queue.
    #[inline]
    pub fn push(&mut self, metrics: &mut SubflowMetrics, tag: u64, payload: P) {
        metrics.queued_bytes += payload.len() as u64;
        self.quiet = false;
        self.queue.push_back((tag, payload));
    }

    /// Where the piece that was pushed last begins and ends, by connection-level offset, if it still waits.
    pub fn queued_tail(&self) -> Option<(u64, u64)> {
        self.queue.back().map(|(tag, payload)| (*tag, tag + payload.len() as u64))
    }

    /// Puts `payload`, which begins as the piece pushed last does and goes on where that ends, in its place: what is
    /// one piece leaves as one super-segment. The flow's count of queued bytes was raised when it was promised.
    pub fn replace_tail(&mut self, payload: P) {
        if let Some((_, tail)) = self.queue.back_mut() {
            *tail = payload;
        }
    }

    /// Sends a FIN after what is queued (RFC 9293 3.10.4).
    pub fn close(&mut self) {
        self.quiet = false;
        match self.state {
            State::SynSent => self.become_closed(),
            State::SynReceived | State::Established | State::CloseWait => self.fin_queued = true,
            _ => {}
        }
    }

    /// Sends a RST and forgets everything (RFC 9293 3.10.5).
    pub fn abort(&mut self) {
        self.quiet = false;
        match self.state {
            State::SynSent | State::Closed | State::TimeWait => {}
            _ => self.reset_pending = true,
        }
        self.become_closed();
    }

    /// Forgets everything without a word to the peer.
    pub(crate) fn vanish(&mut self) {
        self.become_closed();
    }

    fn become_closed(&mut self) {
        self.state = State::Closed;
        self.timers.stop_all();
        self.queue.clear();
        self.rtx.clear();
    }

    /// Has an ACK sent soon, to carry an option, a DATA_ACK or a window.
    #[inline]
    pub fn request_ack(&mut self) {
        self.quiet = false;
        self.ack_now = true;
    }

    /// Has a segment sent that makes the peer tell its window (RFC 9293 3.8.6.1).
    pub fn probe_window(&mut self) {
        self.quiet = false;
        if matches!(self.state, State::Established | State::CloseWait) {
            self.persist_pending = true;
        }
    }

    /// Whether an ACK is already due to be sent at the next opportunity.
    pub fn ack_requested(&self) -> bool {
        self.ack_now
    }

    /// Whether nothing was sent again and again, and the peer answers: it isn't about to give up.
    #[inline]
    pub(crate) fn is_untroubled(&self) -> bool {
        self.retransmits == 0 && self.probes_out == 0
    }

    /// Its state. Changes with segments, timeouts, `close` and `abort`.
    #[inline]
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether nothing will come of it any more, a RST included.
    pub fn is_finished(&self) -> bool {
        self.state == State::Closed && !self.reset_pending
    }

    /// Addresses and ports as we send.
    pub fn tuple(&self) -> FourTuple {
        self.tuple
    }

    /// Whether segments with this tuple are for it.
    #[inline]
    pub(crate) fn matches(&self, tuple: &FourTuple) -> bool {
        self.tuple.answers(tuple)
    }

    /// Our initial sequence number.
    pub fn isn(&self) -> u32 {
        self.isn
    }

    /// The peer's initial sequence number.
    pub fn peer_isn(&self) -> u32 {
        self.peer_isn
    }

    /// Position of the first byte that isn't acknowledged.
    #[inline]
    pub fn snd_una(&self) -> u64 {
        self.snd_una
    }

    /// Position of the next new byte to be sent.
    pub fn snd_nxt(&self) -> u64 {
        self.snd_nxt
    }

    /// Position of the next byte expected.
    #[inline]
    pub fn rcv_nxt(&self) -> u64 {
        self.rcv_nxt
    }

    /// The peer's latest advertised window, bytes.
    #[inline]
    pub fn peer_window(&self) -> u64 {
        self.snd_wnd
    }

    /// The window that a segment of the peer advertises, bytes (RFC 7323 2.2: never scaled on a SYN).
    #[inline]
    pub(crate) fn window_in(&self, flags: ropewalk_wire::Flags, field: u16) -> u64 {
        let shift = if flags.contains(ropewalk_wire::Flags::SYN) { 0 } else { self.peer_shift };
        u64::from(field) << shift
    }

    /// Whether a segment's acknowledgement is as far as any has come.
    #[inline]
    pub(crate) fn is_latest_ack(&self, ack: Seq) -> bool {
        self.ack_position(ack) == self.snd_una
    }

    /// The window that the last segment since the handshake advertised, bytes.
    #[inline]
    pub(crate) fn advertised_window(&self) -> u64 {
        self.window_told
    }

    /// Bytes that arrived out of order on this subflow.
    pub fn reassembly_bytes(&self) -> u64 {
        self.reassembly.bytes()
    }

    /// Tag and length of each range handed to it that isn't acknowledged, queued ones included.
    pub fn outstanding(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let sent = self.rtx.iter().map(|entry| (entry.tag, entry.payload.len() as u32));
        sent.chain(self.queue.iter().map(|(tag, payload)| (*tag, payload.len() as u32)))
            .filter(|(_, len)| *len > 0)
    }

    /// Whether everything handed to it is acknowledged.
    pub fn is_drained(&self) -> bool {
        self.queue.is_empty() && self.rtx.is_empty()
    }

    /// Its counters.
    pub fn counters(&self) -> &TcpCounters {
        &self.counters
    }

    /// Payload bytes per segment, after all options.
    fn update_mss(&mut self, cx: &mut Context<'_>) {
        let ip = if self.tuple.src.is_ipv4() { 20 } else { 40 };
        //= RFC 9293 MUST-16
        let most = self.path_mtu.saturating_sub(ip + 20).min(self.peer_mss);
        let options = if self.timestamps { 12 } else { 0 } + u32::from(cx.shared.data_option_len);
        cx.metrics().mss = most.saturating_sub(options).max(48);
    }

    /// Recomputes the MSS after the options' lengths changed (fallback).
    pub fn refresh_mss(&mut self, cx: &mut Context<'_>) {
        self.update_mss(cx);
    }

    //= RFC 9293 SHLD-6 MUST-67
    fn own_mss(&self) -> u16 {
        let ip = if self.tuple.src.is_ipv4() { 20 } else { 40 };
        self.path_mtu.saturating_sub(ip + 20).clamp(64, 65_000) as u16
    }

    #[inline]
    fn seq(&self, position: u64) -> Seq {
        Seq(self.isn.wrapping_add(position as u32))
    }

    /// The position that a sequence number of the peer's stands for.
    #[inline]
    pub(crate) fn peer_position(&self, seq: Seq) -> u64 {
        Seq(seq.0.wrapping_sub(self.peer_isn)).unfold(self.rcv_nxt)
    }

    #[inline]
    fn ack_position(&self, ack: Seq) -> u64 {
        Seq(ack.0.wrapping_sub(self.isn)).unfold(self.snd_una)
    }

    #[inline]
    fn timestamp(&self, cx: &Context<'_>) -> u32 {
        clock(cx.tcp, cx.now)
    }

    /// The right edge of the window that the peer gives this subflow; no limit where windows are connection-level.
    #[inline]
    fn window_edge(&self, cx: &Context<'_>) -> u64 {
        if cx.shared.multipath { u64::MAX } else { self.snd_una + self.snd_wnd }
    }

    /// There is nothing for it to send although its window has room: delivery-rate samples of what is in flight say
    /// nothing of the network.
    #[inline]
    pub(crate) fn note_starved(&mut self, metrics: &SubflowMetrics) {
        if self.queue.is_empty()
            && metrics.in_flight() < metrics.cwnd
            && metrics.lost_out <= metrics.retrans_out
        {
            self.rate.on_starved(metrics);
        }
    }

    /// The round-trip time as a receiver of data sees it, queues in the data's direction included; 0 before
    /// such a sample, and without timestamps.
    pub fn receive_rtt(&self) -> Nanos {
        self.rcv_rtt
    }

    /// Announces windows that may grow to `max` bytes; before the first segment.
    pub fn announce_window_of(&mut self, max: u64) {
        self.own_shift = window::shift_for(max);
    }

    /// Whether both ends use timestamps.
    pub fn has_timestamps(&self) -> bool {
        self.timestamps
    }

    /// Arms the retransmission timer for what is in flight, or stops it.
    fn arm_retransmit(&mut self, cx: &Context<'_>) {
        if self.rtx.is_empty() {
            self.timers.stop(Timer::Retransmit);
            self.timers.stop(Timer::Probe);
            return;
        }
        let metrics = &cx.metrics[cx.index];
        let rto = metrics.rto.saturating_mul(1 << self.backoff.min(16)).min(cx.tcp.max_rto);
        self.timers.set(Timer::Retransmit, cx.now + rto);
    }
}
