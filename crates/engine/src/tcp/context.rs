//! What a subflow works with, and what it returns: states, the connection's numbers, outcomes.

use super::window::ReceiveBuffer;
use crate::Time;
use crate::config::TcpConfig;
use crate::congestion::{CongestionControl, Siblings};
use crate::metrics::SubflowMetrics;

/// RFC 9293's connection states, without LISTEN (the endpoint's).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum State {
    /// SYN sent.
    SynSent,
    /// SYN received, SYN/ACK sent.
    SynReceived,
    /// Open both ways.
    Established,
    /// We closed; our FIN isn't acknowledged.
    FinWait1,
    /// Our FIN is acknowledged; the peer hasn't closed.
    FinWait2,
    /// The peer closed; we haven't.
    CloseWait,
    /// Both closed at once; our FIN isn't acknowledged.
    Closing,
    /// The peer closed, then we; our FIN isn't acknowledged.
    LastAck,
    /// Waiting for old segments to die out.
    TimeWait,
    /// Gone.
    Closed,
}

/// State of the connection that its subflows read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shared<'a> {
    /// The receive buffer.
    pub receive: &'a ReceiveBuffer,
    /// Windows are connection-level (RFC 8684 3.3.1): not enforced per subflow.
    pub multipath: bool,
    /// DATA_ACKs have 64 bits.
    pub ack_is_64: bool,
    /// Our DSNs have 64 bits.
    pub dsn_is_64: bool,
    /// The application has closed the connection: nobody reads any more (an orphan in Linux).
    pub abandoned: bool,
    /// For a segment that is about to be sent.
    pub outgoing: Outgoing,
}

impl Shared<'_> {
    /// Bytes of MPTCP options on data segments.
    #[inline]
    pub fn data_option_len(&self) -> u8 {
        if !self.multipath {
            return 0;
        }
        data_ack_len(self.ack_is_64) + if self.dsn_is_64 { 16 } else { 12 }
    }
}

/// Octets of a DSS that has only a DATA_ACK. A mapping with a DSN of 64 bits takes 14 more, with a checksum
/// 16 (of 32 bits: 10 and 12), which is the same when padded.
#[inline]
pub(crate) fn data_ack_len(is_64: bool) -> u8 {
    if is_64 { 12 } else { 8 }
}

/// What a segment to be sent depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outgoing {
    /// Bytes of MPTCP options on the next segment without data.
    pub ack_option_len: u8,
    /// The application has more to write than the send buffer takes.
    pub writer_waits: bool,
    /// The connection has more data that the peer's window admits, not yet assigned to this subflow.
    pub more: bool,
    /// Plain TCP whose application has closed: all of its data is assigned, and a FIN follows.
    pub ends: bool,
}

/// What a subflow's methods work with.
#[derive(Debug)]
pub struct Context<'a> {
    /// Now.
    pub now: Time,
    /// The subflow's numbers, which schedulers and congestion controls see.
    pub metrics: &'a mut SubflowMetrics,
    /// The numbers of the connection's other subflows.
    pub siblings: Siblings<'a>,
    /// The connection's congestion control.
    pub congestion: &'a mut dyn CongestionControl,
    /// Settings.
    pub tcp: &'a TcpConfig,
    /// Added to the clock of timestamps, milliseconds.
    pub timestamp_offset: u32,
    /// State of the connection.
    pub shared: Shared<'a>,
}

impl Context<'_> {
    /// The timestamp clock now (RFC 7323 5.4).
    #[inline]
    pub(super) fn timestamp(&self) -> u32 {
        clock(self.timestamp_offset, self.now)
    }
}

/// Why a subflow gave up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GiveUp {
    /// The SYN or SYN/ACK stayed unanswered.
    Handshake,
    /// Data or window probes stayed unanswered.
    Retransmissions,
    /// Keep-alive probes stayed unanswered.
    KeepAlive,
}

/// What a segment or a timeout caused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// The segment was acceptable: its options count.
    pub acceptable: bool,
    /// The handshake is complete.
    pub established: bool,
    /// Segments newly acknowledged.
    pub acked_segments: u32,
    /// Bytes newly acknowledged, cumulatively.
    pub acked_bytes: u64,
    /// Segments newly judged lost.
    pub lost_segments: u32,
    /// The retransmission timer fired.
    pub timeout: bool,
    /// In-order data is ready.
    pub data: bool,
    /// The peer's FIN arrived in order.
    pub fin: bool,
    /// The peer reset the subflow.
    pub reset: bool,
    /// The subflow gave up.
    pub failed: Option<GiveUp>,
    /// The subflow is closed.
    pub closed: bool,
}

/// The kind of a segment to be sent, for the options that the connection adds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// SYN.
    Syn,
    /// SYN/ACK.
    SynAck,
    /// No data.
    Ack,
    /// Data, perhaps with FIN.
    Data,
    /// RST.
    Rst,
}

/// A segment to be sent, complete but for the options of MPTCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// Its kind.
    pub kind: Kind,
    /// Connection-level offset of its first byte of data.
    pub tag: u64,
    /// Subflow sequence number of its first byte, relative to the ISN.
    pub ssn: u32,
    /// For a part of what was first sent with one mapping: bytes of the mapping before it, and the mapping's
    /// length.
    pub part: Option<(u16, u16)>,
}

impl Transmit {
    /// A segment without data.
    #[inline]
    pub(super) fn control(kind: Kind, ssn: u32) -> Self {
        Transmit { kind, tag: 0, ssn, part: None }
    }
}

/// The timestamp clock at a time, with the connection's offset.
#[inline]
pub(super) fn clock(offset: u32, at: Time) -> u32 {
    //= RFC 7323 5.4-a
    ((at.since_origin() / crate::MILLISECOND) as u32).wrapping_add(offset)
}
