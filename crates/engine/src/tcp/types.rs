//! What goes into a subflow and comes out of it.

use ropewalk_wire::Segment;

use crate::Nanos;
use crate::config::TcpConfig;
use crate::congestion::CongestionControl;
use crate::flow::Flow;

/// What every call is given.
pub struct Context<'a> {
    /// Now.
    pub now: Nanos,
    /// The flows of the connection; this subflow's is `flows[index]`. The subflow keeps all its numbers but
    /// `state` and `backup`, which are the connection's to set.
    pub flows: &'a mut [Flow],
    /// Which one is this subflow's.
    pub index: usize,
    /// The connection's congestion control. Telling it of subflows that come and go is the connection's part.
    pub congestion: &'a mut dyn CongestionControl,
    /// Settings.
    pub tcp: &'a TcpConfig,
    /// What the connection tells its subflows.
    pub shared: Shared,
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("now", &self.now).field("index", &self.index).finish_non_exhaustive()
    }
}

impl Context<'_> {
    /// The subflow's numbers.
    #[inline]
    pub fn flow(&mut self) -> &mut Flow {
        &mut self.flows[self.index]
    }
}

/// What the connection tells its subflows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shared {
    /// Bytes that the connection can take now, from the next one expected on (in MPTCP: from the DATA_ACK
    /// on), to be advertised.
    pub receive_window: u64,
    /// Whether the windows are the connection's (RFC 8684 3.3.1): then the peer's is not enforced here, and
    /// what arrives is accepted generously.
    pub multipath: bool,
    /// Bytes that MPTCP options take on the next data segment, padded.
    pub data_option_len: u8,
    /// Bytes that MPTCP options take on the next SYN, pure ACK or RST, padded.
    pub ack_option_len: u8,
}

/// What kind of segment it is, for the options that MPTCP adds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The SYN of an active opener.
    Syn,
    /// SYN and ACK.
    SynAck,
    /// An acknowledgement without data.
    Ack,
    /// Data, perhaps with FIN.
    Data,
    /// FIN without data.
    Fin,
    /// RST.
    Rst,
    /// A zero-window or keep-alive probe: no data, an old sequence number.
    Probe,
}

/// A segment to be sent. All TCP fields and options are set; MPTCP adds its own.
#[derive(Clone, PartialEq, Debug)]
pub struct Transmit<P> {
    /// The segment.
    pub segment: Segment<P>,
    /// Its kind.
    pub kind: Kind,
    /// The tag of its first payload byte, if it has payload.
    pub tag: Option<u64>,
    /// Subflow sequence number of the first payload byte, relative to the ISN (the first byte of data has 1).
    pub ssn: u32,
    /// Whether it was sent before.
    pub retransmission: bool,
}

/// Why a subflow ended without both FINs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResetCause {
    /// A RST answered our SYN.
    Refused,
    /// A RST arrived.
    ByPeer,
    /// Nothing was acknowledged over too many retransmissions or probes.
    TimedOut,
    /// We aborted.
    Aborted,
}

/// What a call brought about. The connection acts on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[must_use]
pub struct Outcome {
    /// The handshake completed with this segment.
    pub established: bool,
    /// In-order data waits in `next_in_order`.
    pub data_ready: bool,
    /// The peer's FIN was reached in order.
    pub fin_received: bool,
    /// Our FIN was acknowledged.
    pub fin_acked: bool,
    /// It ended abnormally; no segment but perhaps a RST follows.
    pub reset: Option<ResetCause>,
    /// It is in CLOSED: it can be forgotten once `poll_transmit` has nothing left.
    pub closed: bool,
    /// The segment failed the acceptability checks; of it nothing was used, and its MPTCP options should not
    /// be either.
    pub unacceptable: bool,
    /// Segments newly acknowledged, cumulatively or selectively.
    pub acked_segments: u32,
    /// Payload bytes newly acknowledged cumulatively.
    pub acked_bytes: u64,
    /// Segments newly judged lost.
    pub lost_segments: u32,
    /// The retransmission timer fired with data outstanding.
    pub rto_fired: bool,
    /// The peer's window admits more than before.
    pub window_opened: bool,
    /// A SYN arrived that may open a new connection in place of this one in TIME-WAIT (RFC 9293 MAY-2): the
    /// endpoint forgets this one and hands the segment to its listener.
    pub reopened: bool,
}

impl Outcome {
    /// Adds what a second call brought about.
    pub fn merge(&mut self, other: Outcome) {
        self.established |= other.established;
        self.data_ready |= other.data_ready;
        self.fin_received |= other.fin_received;
        self.fin_acked |= other.fin_acked;
        self.reset = self.reset.or(other.reset);
        self.closed |= other.closed;
        self.unacceptable |= other.unacceptable;
        self.acked_segments += other.acked_segments;
        self.acked_bytes += other.acked_bytes;
        self.lost_segments += other.lost_segments;
        self.rto_fired |= other.rto_fired;
        self.window_opened |= other.window_opened;
        self.reopened |= other.reopened;
    }
}
