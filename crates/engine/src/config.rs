//! Settings, with the values that Linux has by default.

use std::net::IpAddr;
use std::ops::RangeInclusive;

pub use crate::congestion::AckCounting;
use crate::congestion::CongestionControl;
use crate::registry::{Spec, SpecError};
use crate::scheduler::Scheduler;
use crate::{MILLISECOND, PathId, SECOND, Span};

/// What a byte of data takes of the receive window is counted in 256ths of a byte.
pub(crate) const WHOLE_BYTE: u64 = 256;

/// Settings of each TCP subflow.
#[derive(Clone, PartialEq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct TcpConfig {
    /// Selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// Timestamps (RFC 7323).
    pub timestamps: bool,
    /// Added to the millisecond clock in timestamps. Without it each connection has one of its own that can't
    /// be guessed, so that timestamps don't tell how long the host has been up.
    pub timestamp_offset: Option<u32>,
    /// Window scaling (RFC 7323).
    pub window_scaling: bool,
    /// Explicit congestion notification (RFC 3168).
    pub ecn: bool,
    /// Largest MSS that is announced and used (`TCP_MAXSEG`); without it the path's MTU decides.
    pub max_segment: Option<u16>,
    /// Suspect a path that swallows large segments after repeated timeouts (RFC 4821; `tcp_mtu_probing` = 1).
    pub black_hole_detection: bool,
    //= RFC 9293 MUST-17
    /// Nagle's algorithm (RFC 9293 3.7.4).
    pub nagle: bool,
    //= RFC 9293 MUST-40
    /// How long an ACK may wait for company.
    pub delayed_ack: Span,
    /// ACKs sent at once at a connection's start (Linux's quick-ACK mode).
    pub quick_acks: u32,
    /// How long such an ACK may wait for data of this end that carries it, if it is for a single segment that
    /// ends a message, such as a request. Without it such an ACK doesn't wait, as in Linux.
    pub answer_time: Option<Span>,
    /// When ACKs leave, as in MPTCP 0.8x and 0.9x. An ACK for more than a segment leaves at once only if the
    /// window that it offers isn't smaller than the last; otherwise it is delayed, until the application
    /// reads (`__tcp_ack_snd_check`, `mptcp_cleanup_rbuf`): what is out of order at connection level makes it
    /// smaller. And a full segment with PSH isn't acknowledged once all is read (Linux until 6.6).
    pub old_acks: bool,
    /// Largest first receive window, segments (Linux until 4.19: `tcp_default_init_rwnd`). Each segment that
    /// arrives on any subflow then opens the window by two more, half of a buffer's memory is window, and a
    /// subflow that joins adds its own first window and buffer (`mptcp_init_buffer_space` of MPTCP 0.89). 0:
    /// as in later kernels, 64 KiB, and each subflow opens the window by itself.
    pub initial_receive_window: u32,
    /// The congestion window outside of recovery.
    pub cwnd: CwndConfig,
    /// The retransmission timeout.
    pub rto: RtoConfig,
    /// How losses are found and repaired.
    pub recovery: RecoveryConfig,
    /// Probes of a silent peer.
    pub keep_alive: KeepAliveConfig,
    //= RFC 9293 MUST-23
    /// SYN or SYN/ACK retransmissions before giving up: 6 last for 127 s, 7 for 255 s.
    pub syn_retries: u32,
    //= RFC 9293 MUST-21
    /// Consecutive timeouts of data before giving up.
    pub retries: u32,
    /// How long data may stay unacknowledged before the connection is given up (`TCP_USER_TIMEOUT`, RFC 9293
    /// 3.9.1); without it only `retries` counts.
    pub user_timeout: Option<Span>,
    /// How long TIME-WAIT lasts.
    pub time_wait: Span,
    /// The IP header's time to live, or hop limit.
    pub hop_limit: u8,
    /// The IP header's Diffserv code point, 0 to 63 (RFC 2474).
    pub dscp: u8,
}

/// The congestion window outside of recovery.
#[derive(Clone, PartialEq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct CwndConfig {
    /// Initial window, segments (RFC 6928).
    pub initial_window: u32,
    /// Slow start threshold at first, segments, as if an earlier connection had left it in the route's cache
    /// (Linux's `tcp_metrics`).
    pub initial_ssthresh: u32,
    /// Restart the window after an idle time of one RTO (RFC 5681 4.1).
    pub idle_restart: bool,
    /// When the window counts as the limit.
    pub window_limit: WindowLimit,
    /// What congestion control counts of an ACK.
    pub ack_counting: AckCounting,
}

/// The retransmission timeout (RFC 6298).
#[derive(Clone, PartialEq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct RtoConfig {
    /// Least retransmission timeout; also the floor of the variance term, as in Linux.
    pub min: Span,
    /// Greatest retransmission timeout, backoff included.
    pub max: Span,
    /// Retransmission timeout before the first sample (RFC 6298 2.1).
    pub initial: Span,
    /// Tick of the clock that round-trip times are taken with; 0: nanoseconds.
    pub rtt_tick: Span,
}

/// How losses are found and repaired.
#[derive(Clone, PartialEq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct RecoveryConfig {
    /// How losses are found with SACK.
    pub loss_detection: LossDetection,
    /// In recovery with nothing new to send, holes below the highest SACK that aren't marked as lost are
    /// retransmitted too (RFC 6675 4, NextSeg rule 3; Linux until 4.10's `tcp_can_forward_retransmit`).
    pub forward_retransmit: bool,
    /// Early retransmit (RFC 5827), delayed by a quarter of the round-trip time; with
    /// [`LossDetection::DuplicateAcks`] only.
    pub early_retransmit: bool,
    /// Tail loss probes (RFC 8985 7).
    pub tail_loss_probe: bool,
    /// F-RTO and Eifel undo of spurious timeouts (RFC 5682, RFC 3522).
    pub undo: bool,
    /// A retransmission timeout leaves a window of one segment (RFC 5681 3.1). Linux has left what is in
    /// flight and one segment since 4.18.
    pub loss_window_one: bool,
    /// Below the threshold PRR always grows the window by one segment an ACK (RFC 6937's slow start reduction
    /// bound). Linux has done so only for ACKs that advance without a new loss since 4.3.
    pub prr_slow_start: bool,
}

//= RFC 9293 MUST-24 MUST-27 MUST-28
/// Keep-alive (RFC 9293 3.8.4).
#[derive(Clone, PartialEq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct KeepAliveConfig {
    /// Idle time before the first probe (`TCP_KEEPIDLE`); without it no probes are sent.
    pub idle: Option<Span>,
    /// Time between probes (`TCP_KEEPINTVL`).
    pub interval: Span,
    /// Unanswered probes before giving up (`TCP_KEEPCNT`).
    pub probes: u32,
}

/// How losses are found with SACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum LossDetection {
    /// By time: RACK (RFC 8985).
    #[default]
    Rack,
    /// By counting: the duplicate ACK threshold with FACK and adaptive reordering, as in Linux before RACK.
    DuplicateAcks,
}

/// When the congestion window counts as what limits the sender, so that it may grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum WindowLimit {
    /// If it was full at some time in a window of data (Linux since 3.16).
    #[default]
    PerWindow,
    /// If it was nearly full when the ACK arrived (Linux until 3.15).
    PerAck,
    /// Always: it grows whether it is used or not (RFC 5681 3.1 alone). For experiments: what a sender never
    /// sent tells it nothing of the path.
    Always,
}

impl Default for TcpConfig {
    fn default() -> Self {
        TcpConfig {
            sack: true,
            timestamps: true,
            timestamp_offset: None,
            window_scaling: true,
            ecn: false,
            max_segment: None,
            black_hole_detection: false,
            nagle: false,
            delayed_ack: 40 * MILLISECOND,
            quick_acks: 16,
            answer_time: None,
            old_acks: false,
            initial_receive_window: 0,
            cwnd: CwndConfig::default(),
            rto: RtoConfig::default(),
            recovery: RecoveryConfig::default(),
            keep_alive: KeepAliveConfig::default(),
            syn_retries: 6,
            retries: 15,
            user_timeout: None,
            time_wait: 60 * SECOND,
            hop_limit: 64,
            dscp: 0,
        }
    }
}

impl Default for CwndConfig {
    fn default() -> Self {
        CwndConfig {
            initial_window: 10,
            initial_ssthresh: u32::MAX,
            idle_restart: true,
            window_limit: WindowLimit::PerWindow,
            ack_counting: AckCounting::Segments,
        }
    }
}

impl Default for RtoConfig {
    fn default() -> Self {
        RtoConfig { min: 200 * MILLISECOND, max: 120 * SECOND, initial: SECOND, rtt_tick: Span::ZERO }
    }
}

impl Default for RecoveryConfig {
    fn default() -> Self {
        RecoveryConfig {
            loss_detection: LossDetection::Rack,
            forward_retransmit: false,
            early_retransmit: false,
            tail_loss_probe: true,
            undo: true,
            loss_window_one: false,
            prr_slow_start: false,
        }
    }
}

impl Default for KeepAliveConfig {
    fn default() -> Self {
        //= RFC 9293 MUST-25
        KeepAliveConfig { idle: None, interval: 75 * SECOND, probes: 9 }
    }
}

/// A buffer that may grow with need. It counts payload, not memory (but see
/// [`ConnectionConfig::send_segment_memory`]): what the application has written and the peer hasn't
/// acknowledged, or the window that is offered. Memory may be more: a received piece holds the whole packet's
/// memory, and data out of order may take twice the window (128 KiB at least) before pieces are dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct BufferConfig {
    /// Bytes at the start.
    pub initial: u64,
    /// Bytes at most.
    pub max: u64,
}

impl BufferConfig {
    /// Of one size from the start.
    pub const fn fixed(bytes: u64) -> Self {
        BufferConfig { initial: bytes, max: bytes }
    }

    /// Whether it doesn't grow.
    pub const fn is_fixed(self) -> bool {
        self.initial >= self.max
    }

    /// The size of a buffer of `size` bytes that gets these limits.
    pub(crate) fn resize(self, size: u64) -> u64 {
        if self.is_fixed() { self.max } else { size.clamp(self.initial, self.max) }
    }
}

/// When the receive buffer may grow: what the application reads in a round trip is measured (dynamic
/// right-sizing).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum ReceiveTuning {
    /// Once in the longest round trip that a subflow has measured, as Linux up to 7.0 does
    /// (`mptcp_rcv_space_adjust`). After a pause the first echo on a subflow is as old as the pause, and
    /// nothing grows for as long.
    #[default]
    Longest,
    /// Up to four times in it, as the shortest allows, by four times as much; and a round trip counts as
    /// twice the smoothed one at most, where that is known. So one slow subflow, or a pause, doesn't hold the
    /// others up. (Linux since 7.1 goes by the shortest alone, for one window.)
    Prompt,
    /// As often as [`Longest`](Self::Longest); the window becomes twice what was read and 16 segments, three
    /// halves of that if a quarter more was read than before, twice that if half more was (Linux 3.13 to
    /// 4.18's `tcp_rcv_space_adjust`).
    LongestInSteps,
}

/// How a send buffer that may grow follows its subflows' windows, while the application waits for space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum SendTuning {
    /// A subflow's part is twice its window, and grows with an acknowledgement unless the window is full
    /// (Linux 6.18's `tcp_check_space`).
    #[default]
    OwnWindow,
    /// A subflow's part is twice what its window carries in the longest round trip of all, and grows with an
    /// acknowledgement while any subflow has room (`mptcp_check_snd_buf`, `mptcp_should_expand_sndbuf` of
    /// MPTCP 0.89).
    LongestRoundTrip,
}

/// An address of ours that the path manager may use: `ip mptcp endpoint`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LocalEndpoint {
    /// The address.
    pub address: IpAddr,
    /// The port it is announced with, if another than the connection's.
    pub port: Option<u16>,
    /// The network that it belongs to.
    pub path: PathId,
    /// Address id, 1 to 255.
    pub id: u8,
    /// Announce it to the peer (ADD_ADDR).
    pub signal: bool,
    /// Open a subflow from it.
    pub subflow: bool,
    /// Subflows from it are backups.
    pub backup: bool,
}

/// The path manager's settings: `ip mptcp limits` and `ip mptcp endpoint`.
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct PathManagerConfig {
    /// Most additional subflows.
    pub subflows: u8,
    /// Most announced addresses that are accepted.
    pub add_addr_accepted: u8,
    /// Our addresses.
    pub endpoints: Vec<LocalEndpoint>,
    /// How long a connection that has lost its last subflow waits for another, and one that the application
    /// has closed, for the peer's DATA_FIN, FIN, or DATA_ACK (`net.mptcp.close_timeout`,
    /// `net.ipv4.tcp_fin_timeout`; 60 s).
    pub close_timeout: Span,
    /// Send the SYNs of joins with the third ACK of the connection, not after the peer's first DSS as Linux
    /// does. Their handshakes still end after that DSS (RFC 8684 3.1).
    pub early_join: bool,
}

impl PathManagerConfig {
    /// The id of one of our addresses; 0: the connection's first, or none that was named.
    pub(crate) fn local_id_of(&self, address: IpAddr) -> u8 {
        self.endpoints.iter().find(|endpoint| endpoint.address == address).map_or(0, |endpoint| endpoint.id)
    }
}

impl Default for PathManagerConfig {
    fn default() -> Self {
        PathManagerConfig {
            subflows: 0,
            add_addr_accepted: 0,
            endpoints: Vec::new(),
            close_timeout: 60 * SECOND,
            early_join: false,
        }
    }
}

/// Settings of one connection.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct ConnectionConfig {
    /// Of its subflows.
    pub tcp: TcpConfig,
    /// Whether to speak Multipath TCP at all.
    pub multipath: bool,
    /// Whether DSS checksums are required.
    pub checksum: bool,
    /// Connection-level send buffer.
    pub send_buffer: BufferConfig,
    /// What the size of a growing send buffer follows.
    pub send_tuning: SendTuning,
    /// Connection-level receive buffer.
    pub receive_buffer: BufferConfig,
    /// A segment's DATA_ACK counts, and lets new data be scheduled, before its subflow's acknowledgement: the
    /// subflow looks as full as before it (`mptcp_handle_options` of MPTCP 0.8x and 0.9x). Otherwise both
    /// count before anything is scheduled.
    pub data_ack_first: bool,
    /// With `data_ack_first`: new data then also needs room in the subflow's own window, which is that of
    /// before the segment (`mptcp_is_available` of MPTCP 0.8x).
    pub subflow_windows: bool,
    /// DSNs on data have 32 bits (MPTCP 0.8x and 0.9x), which leaves 8 bytes more to each segment. RFC 8684
    /// 3.3.1 recommends 64.
    pub short_dsn: bool,
    /// New data needs a whole segment's room in the peer's window (`tcp_snd_wnd_test` of MPTCP 0.8x and
    /// 0.9x). Otherwise what fits is sent.
    pub whole_segments: bool,
    /// When the receive buffer may grow.
    pub receive_tuning: ReceiveTuning,
    /// Data that doesn't fill a segment waits for the next write, while data is in flight and writes are
    /// at most 2 ms apart: for twice the time between the last two. For data that comes in pieces from
    /// another network; Nagle's algorithm ([`TcpConfig::nagle`]) would wait for an ACK.
    pub gather_writes: bool,
    /// The packet scheduler.
    pub scheduler: Spec<dyn Scheduler>,
    /// The congestion control.
    pub congestion: Spec<dyn CongestionControl>,
    /// The path manager.
    pub path_manager: PathManagerConfig,
    /// Report each decision of the scheduler with its reason.
    pub trace_decisions: bool,
    /// Memory that the peer is taken to need for each segment out of order beside its payload, bytes. New
    /// data leaves as much of the peer's window unused ([`LINUX_SEGMENT_OVERHEAD`] says why). 0: the window
    /// is used in full, as by Linux.
    pub peer_segment_overhead: u32,
    /// 0: the sizes in `send_buffer` are bytes of payload. Otherwise they are bytes of memory, and this is
    /// the memory of one full segment in the buffer, bytes (Linux's `truesize`): the buffer holds so much
    /// less payload.
    pub send_segment_memory: u32,
    /// 0: a byte that the receive buffer holds takes a byte of the window. Otherwise this is the memory of
    /// one full segment in the buffer, bytes, and half of it is taken of the window (Linux's `tcp_space` with
    /// `tcp_adv_win_scale` = 1, before 6.6).
    pub receive_segment_memory: u32,
}

/// What Linux counts for a segment of 1,420 bytes beside its payload (`truesize`), where packets come singly.
///
/// Linux offers its window in bytes, by what those before have taken. Data after a gap may take more: in
/// smaller segments, or singly after super-segments. Where it takes more than the connection's receive
/// buffer, Linux (to 7.0 at least) moves nothing from subflows to the connection any more, and so never gets
/// what fills the gap. Within a subflow it drops data out of order in that case, but not at connection level.
pub const LINUX_SEGMENT_OVERHEAD: u32 = 884;

impl Default for ConnectionConfig {
    /// What Linux has: its scheduler, `cubic`, buffers that grow to 4 and 6 MiB; no subflow beside the first.
    fn default() -> Self {
        ConnectionConfig {
            tcp: TcpConfig::default(),
            multipath: true,
            checksum: false,
            send_buffer: BufferConfig { initial: 64 << 10, max: 4 << 20 },
            receive_buffer: BufferConfig { initial: 64 << 10, max: 6 << 20 },
            data_ack_first: false,
            subflow_windows: false,
            short_dsn: false,
            whole_segments: false,
            receive_tuning: ReceiveTuning::default(),
            send_tuning: SendTuning::default(),
            gather_writes: false,
            scheduler: crate::scheduler::DEFAULT.spec(),
            congestion: crate::congestion::DEFAULT.spec(),
            path_manager: PathManagerConfig::default(),
            trace_decisions: false,
            peer_segment_overhead: 0,
            send_segment_memory: 0,
            receive_segment_memory: 0,
        }
    }
}

impl ConnectionConfig {
    /// Payload of a full segment: what timestamps and a DSS leave of a packet of 1,500 bytes.
    fn full_segment(&self) -> u64 {
        match (self.multipath, self.short_dsn) {
            (false, _) => 1448,
            (true, false) => 1420,
            (true, true) => 1428,
        }
    }

    /// How many bytes of payload fit into a send buffer of this size, which counts memory if
    /// [`send_segment_memory`](Self::send_segment_memory) says so: then whole segments, and one is taken
    /// while there is any space (`sk_stream_memory_free`).
    pub(crate) fn send_payload(&self, buffer: u64) -> u64 {
        match self.send_segment_memory {
            0 => buffer,
            memory => buffer.div_ceil(u64::from(memory)).saturating_mul(self.full_segment()),
        }
    }

    /// What a byte in the receive buffer takes of the window, in 256ths of a byte.
    pub(crate) fn receive_byte_weight(&self) -> u64 {
        match self.receive_segment_memory {
            0 => WHOLE_BYTE,
            memory => WHOLE_BYTE * u64::from(memory) / 2 / self.full_segment(),
        }
    }

    /// The defaults with this scheduler and congestion control, by their names: `blest`, `ecf(beta=0.5)`.
    ///
    /// # Errors
    /// An unknown name or parameter; the message lists what is allowed.
    pub fn with_algorithms(scheduler: &str, congestion: &str) -> Result<Self, SpecError> {
        Ok(ConnectionConfig {
            scheduler: crate::scheduler::builtin().parse(scheduler)?,
            congestion: crate::congestion::builtin().parse(congestion)?,
            ..ConnectionConfig::default()
        })
    }
}

/// Settings of an endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct EndpointConfig {
    /// Connections in SYN-RECEIVED at most; a SYN beyond that is answered without a state, or dropped.
    pub backlog: usize,
    /// Answer SYNs beyond the backlog with SYN cookies (RFC 4987 3.6; `net.ipv4.tcp_syncookies`).
    pub syn_cookies: bool,
    /// Connections at most. Those in TIME-WAIT count, and make room.
    pub max_connections: usize,
    /// Connections in TIME-WAIT at most; beyond, the oldest ends (`net.ipv4.tcp_max_tw_buckets`).
    pub max_time_wait: usize,
    /// Largest IP packet by path, bytes; a path beyond the list has `default_mtu`.
    pub path_mtus: Vec<u32>,
    /// Largest IP packet where nothing else is said.
    pub default_mtu: u32,
    /// Local ports for subflows that are opened from any (`net.ipv4.ip_local_port_range`). Endpoints that
    /// share an address need ranges of their own.
    pub local_ports: RangeInclusive<u16>,
    /// How far into `local_ports` the first is taken; the others follow in turn. A program that may be
    /// started again chooses it at random: otherwise its first SYNs meet what peers still have in TIME-WAIT,
    /// and anyone can guess their ports (RFC 6056).
    pub first_port: u16,
}

impl EndpointConfig {
    /// Largest IP packet on a path, bytes.
    pub fn mtu(&self, path: PathId) -> u32 {
        self.path_mtus.get(usize::from(path.0)).copied().unwrap_or(self.default_mtu)
    }
}

impl Default for EndpointConfig {
    fn default() -> Self {
        EndpointConfig {
            backlog: 4096,
            syn_cookies: true,
            max_connections: 1 << 20,
            max_time_wait: 1 << 18,
            path_mtus: Vec::new(),
            default_mtu: 1500,
            local_ports: 32_768..=60_998,
            first_port: 0,
        }
    }
}
