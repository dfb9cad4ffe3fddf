//! Events and counters of a connection.

use ropewalk_wire::FourTuple;

use super::close_reason::CloseReason;
use crate::scheduler::{Decision, Reason};
use crate::{PathId, Span, SubflowId, Time};

/// Why a connection is plain TCP although Multipath TCP was wanted (RFC 8684 3.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum FallbackCause {
    /// The peer's SYN or SYN/ACK had no MP_CAPABLE (or our SYN's was lost on the way).
    NoMpCapable,
    /// The third ACK or the first data came without MPTCP options.
    NoOptionsInHandshake,
    /// Data without a mapping.
    NoMapping,
    /// A checksum failed, and there was one subflow.
    Checksum,
    /// The peer said so: infinite mapping or MP_FAIL.
    Peer,
}

//= RFC 9293 MUST-12 MUST-47 SHLD-20 nobody has to poll them
/// What the application and observers should know.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Event {
    /// Our connect is complete.
    Connected {
        /// Whether the peer speaks Multipath TCP.
        multipath: bool,
    },
    /// A peer's connect is complete.
    Accepted {
        /// Addresses as we send.
        tuple: FourTuple,
        /// Whether the peer speaks Multipath TCP.
        multipath: bool,
    },
    /// Data is ready to be read.
    Readable,
    /// A refused write may be tried again.
    Writable,
    /// The peer closed its side; what it sent before can still be read.
    PeerClosed,
    /// Everything is acknowledged and closed both ways.
    Closed,
    /// The connection is lost.
    Reset {
        /// Why.
        reason: CloseReason,
    },
    /// A subflow joined.
    SubflowAdded {
        /// Which.
        subflow: SubflowId,
        /// On which network.
        path: PathId,
        /// Addresses as we send.
        tuple: FourTuple,
    },
    /// A subflow is gone.
    SubflowRemoved {
        /// Which.
        subflow: SubflowId,
        /// On which network.
        path: PathId,
        /// Why.
        reason: CloseReason,
    },
    /// The connection is plain TCP from now on.
    Fallback(FallbackCause),
    /// The scheduler decided; only with `trace_decisions`.
    Decision(Box<DecisionRecord>),
}

/// One decision of the scheduler and what became of it.
#[derive(Clone, PartialEq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DecisionRecord {
    /// When.
    pub at: Time,
    /// What it answered.
    pub decision: Decision,
    /// Stream offset of what was sent.
    pub offset: u64,
    /// Bytes that the engine took after clipping.
    pub bytes: u32,
    /// Bytes that waited, unassigned.
    pub unsent: u64,
    /// Connection-level window that was left, bytes.
    pub window_left: u64,
    /// The scheduler's reason.
    pub reason: Reason,
}

/// How often the engine overruled the scheduler: it waited with nothing in flight, or its decisions sent
/// nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Overruled {
    /// How often.
    pub count: u64,
    /// When it did so first.
    pub first: Option<Time>,
    /// Why it did so first, for people.
    pub cause: Option<&'static str>,
}

impl Overruled {
    pub(super) fn note(&mut self, now: Time, cause: &'static str) {
        self.count += 1;
        self.first.get_or_insert(now);
        self.cause.get_or_insert(cause);
    }

    /// Adds another connection's: the earlier of the first times and its cause stay.
    pub fn add(&mut self, other: &Overruled) {
        self.count += other.count;
        if let Some(at) = other.first
            && self.first.is_none_or(|first| at < first)
        {
            (self.first, self.cause) = (other.first, other.cause);
        }
    }
}

/// A connection's out-of-order queue, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct OfoStats {
    /// Now.
    pub bytes: u64,
    /// Its maximum.
    pub max: u64,
    /// Its integral over time, byte-nanoseconds.
    pub integral: u128,
}

/// A connection's counters. They change with every call into the connection.
#[derive(Clone, PartialEq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ConnectionStats {
    /// Bytes that the application wrote.
    pub bytes_written: u64,
    /// Bytes delivered in order.
    pub bytes_received: u64,
    /// Payload bytes sent by subflow slot, repeats included.
    pub bytes_by_subflow: Vec<u64>,
    /// Data segments sent for the first time.
    pub data_segments: u64,
    /// Segments retransmitted at subflow level.
    pub retransmissions: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Bytes reinjected after a timeout or a failure (`MPTcpExtMPTCPRetrans` counts the segments).
    pub reinjected_bytes: u64,
    /// Bytes repeated by opportunistic retransmission.
    pub opportunistic_bytes: u64,
    /// Bytes repeated by the scheduler.
    pub duplicated_bytes: u64,
    /// All three, by the network that carried them the second time.
    pub repeated_by_path: Vec<(PathId, u64)>,
    /// Bytes that the scheduler took back from subflows before they were sent.
    pub withdrawn_bytes: u64,
    /// Bytes that arrived a second time at connection level.
    pub received_twice_bytes: u64,
    /// How often a subflow was penalised.
    pub penalisations: u64,
    /// How often the engine overruled the scheduler.
    pub overruled: Overruled,
    /// Time during which new data waited for the connection-level send window.
    pub window_blocked: Span,
    /// The out-of-order queue.
    pub ofo: OfoStats,
    /// DSS checksums that failed (`MPTcpExtDataCsumErr`).
    pub checksum_errors: u64,
    /// MP_JOINs with a wrong HMAC (`MPTcpExtMPJoinAckHMacFailure`, `MPTcpExtMPJoinSynAckHMacFailure`).
    pub join_hmac_failures: u64,
    /// ADD_ADDRs with a wrong HMAC.
    pub add_addr_hmac_failures: u64,
    /// Addresses that the peer announced (`MPTcpExtAddAddr`).
    pub announcements: u64,
    /// Those of them with a port (`MPTcpExtPortAdd`).
    pub announced_ports: u64,
    /// MP_FASTCLOSEs with our key (`MPTcpExtMPFastcloseRx`).
    pub fast_closes: u64,
}

/// A connection's counters as it keeps them: those that it can't take from elsewhere, once one of them
/// counts. Most connections never need them.
#[derive(Debug, Default)]
pub(crate) struct Counting(Option<Box<ConnectionStats>>);

impl Counting {
    /// The counters; `None`: all are 0.
    pub fn get(&self) -> Option<&ConnectionStats> {
        self.0.as_deref()
    }

    /// The counters, to change them.
    pub fn count(&mut self) -> &mut ConnectionStats {
        self.0.get_or_insert_default()
    }
}
