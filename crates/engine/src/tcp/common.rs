//! What the sender and the receiver of a subflow share: the connection state, the addresses, what the
//! handshake negotiated, timers and counters.

use ropewalk_wire::{FourTuple, Seq};

use super::context::{Context, State};
use super::mib::Counting;
use super::timer::{Timer, Timers};
use crate::config::TcpConfig;

/// Window shift that is announced unless the connection sets another: windows up to 64 MiB in steps of 1 KiB.
const WINDOW_SHIFT: u8 = 10;

/// The least MSS that a path is assumed to have.
const LEAST_MSS: u32 = 48;

/// What both ends agreed on in the handshake.
#[derive(Clone, Copy, Debug)]
pub(super) struct Negotiated {
    pub sack: bool,
    pub timestamps: bool,
    pub window_scaling: bool,
    pub ecn: bool,
    /// The window shift that this end announces.
    pub own_shift: u8,
    pub peer_shift: u8,
}

/// State that belongs to neither half of a subflow alone.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Common {
    pub state: State,
    pub negotiated: Negotiated,
    pub timers: Timers,
    /// Initial sequence numbers.
    pub isn: u32,
    pub peer_isn: u32,
    pub path_mtu: u32,
    /// The MSS that the peer announced.
    pub peer_mss: u32,
    pub tuple: FourTuple,
    pub counters: Counting,
}

impl Common {
    pub fn new(tuple: FourTuple, state: State, path_mtu: u32, isn: u32) -> Self {
        Common {
            state,
            negotiated: Negotiated {
                sack: false,
                timestamps: false,
                window_scaling: false,
                ecn: false,
                own_shift: WINDOW_SHIFT,
                peer_shift: 0,
            },
            timers: Timers::default(),
            isn,
            peer_isn: 0,
            path_mtu,
            peer_mss: 536,
            tuple,
            counters: Counting::default(),
        }
    }

    /// The sequence number of a position in the data that is sent.
    #[inline]
    pub fn seq(&self, position: u64) -> Seq {
        Seq(self.isn.wrapping_add(position as u32))
    }

    /// The window shift in force for windows that are advertised.
    #[inline]
    pub fn advertised_shift(&self) -> u8 {
        if self.negotiated.window_scaling { self.negotiated.own_shift } else { 0 }
    }

    /// The window that a segment of the peer without SYN advertises, bytes.
    #[inline]
    pub fn peer_window(&self, field: u16) -> u64 {
        u64::from(field) << self.negotiated.peer_shift
    }

    /// Whether data may be sent: open, and not closed by this end.
    #[inline]
    pub fn may_send(&self) -> bool {
        matches!(self.state, State::Established | State::CloseWait)
    }

    /// Whether data may be received: open, and not closed by the peer.
    #[inline]
    pub fn may_receive(&self) -> bool {
        matches!(self.state, State::Established | State::FinWait1 | State::FinWait2)
    }

    /// A FIN was sent.
    pub fn on_fin_sent(&mut self) {
        self.state = if self.state == State::CloseWait { State::LastAck } else { State::FinWait1 };
    }

    /// The peer's FIN arrived in order.
    #[cold]
    pub fn on_fin_received(&mut self, cx: &Context<'_>) {
        match self.state {
            State::Established => self.state = State::CloseWait,
            // Had this segment acknowledged our FIN, `after_ack`, which comes first,
            // would have entered FIN-WAIT-2.
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.enter_time_wait(cx),
            _ => {}
        }
    }

    //= RFC 9293 MUST-13
    pub fn enter_time_wait(&mut self, cx: &Context<'_>) {
        self.state = State::TimeWait;
        self.timers.stop_all();
        self.timers.set(Timer::Idle, cx.now + cx.tcp.time_wait);
    }

    /// Bytes of IP and TCP headers without options.
    pub fn header_len(&self) -> u32 {
        if self.tuple.src.is_ipv4() { 40 } else { 60 }
    }

    /// Recomputes the MSS: payload bytes per segment, after all options.
    pub fn update_mss(&self, cx: &mut Context<'_>) {
        //= RFC 9293 MUST-16
        let own = cx.tcp.max_segment.map_or(u32::MAX, u32::from);
        let most = self.path_mtu.saturating_sub(self.header_len()).min(self.peer_mss).min(own);
        // What every data segment carries is taken off here and not off the MSS that is announced (RFC 6691).
        // SACK blocks come and go: see `sack_reserve`.
        let timestamps = if self.negotiated.timestamps { 12 } else { 0 };
        let options = timestamps + u32::from(cx.shared.data_option_len());
        cx.metrics.mss = most.saturating_sub(options).max(LEAST_MSS);
    }

    //= RFC 9293 SHLD-6 MUST-67
    /// The MSS to announce.
    pub fn own_mss(&self, tcp: &TcpConfig) -> u16 {
        // Options aren't taken off: the sender of a segment does that (RFC 6691).
        let most = self.path_mtu.saturating_sub(self.header_len()).clamp(64, 65_000) as u16;
        tcp.max_segment.map_or(most, |own| own.clamp(64, most))
    }
}
