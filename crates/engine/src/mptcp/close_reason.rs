//! Why a connection or a subflow ended.

use std::io;

use crate::tcp::GiveUp;

/// Why the sender of a MP_TCPRST reset the subflow (RFC 8684 3.6).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ResetReason {
    /// Code 0.
    #[error("unspecified")]
    Unspecified,
    /// Code 1: an error in the signalling of Multipath TCP.
    #[error("MPTCP-specific error")]
    Mptcp,
    /// Code 2.
    #[error("lack of resources")]
    LackOfResources,
    /// Code 3: policy forbids the subflow.
    #[error("administratively prohibited")]
    Prohibited,
    /// Code 4: its data isn't acknowledged at connection level.
    #[error("too much outstanding data")]
    TooMuchOutstandingData,
    /// Code 5.
    #[error("unacceptable performance")]
    UnacceptablePerformance,
    /// Code 6.
    #[error("middlebox interference")]
    MiddleboxInterference,
    /// A code that RFC 8684 doesn't define.
    #[error("code {0}")]
    Other(u8),
}

impl ResetReason {
    /// The reason with this code on the wire.
    pub fn from_code(code: u8) -> Self {
        match code {
            0 => ResetReason::Unspecified,
            1 => ResetReason::Mptcp,
            2 => ResetReason::LackOfResources,
            3 => ResetReason::Prohibited,
            4 => ResetReason::TooMuchOutstandingData,
            5 => ResetReason::UnacceptablePerformance,
            6 => ResetReason::MiddleboxInterference,
            other => ResetReason::Other(other),
        }
    }

    /// Its code on the wire.
    pub fn code(self) -> u8 {
        match self {
            ResetReason::Unspecified => 0,
            ResetReason::Mptcp => 1,
            ResetReason::LackOfResources => 2,
            ResetReason::Prohibited => 3,
            ResetReason::TooMuchOutstandingData => 4,
            ResetReason::UnacceptablePerformance => 5,
            ResetReason::MiddleboxInterference => 6,
            ResetReason::Other(code) => code,
        }
    }
}

/// What showed that a middlebox had changed data or options (RFC 8684 3.7).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Interference {
    /// Data was acknowledged without a DATA_ACK.
    #[error("acknowledgements without DATA_ACK")]
    NoDataAck,
    /// Data came without a mapping.
    #[error("data without a mapping")]
    NoMapping,
    /// An infinite mapping came where there were several subflows, or doesn't continue the stream.
    #[error("an infinite mapping among several subflows, or one that doesn't continue the stream")]
    InfiniteMapping,
    /// After a fallback the peer repeated data of the stream as new data of its subflow.
    #[error("a mapping that contradicts the fallback")]
    MappingAfterFallback,
    /// A DSS checksum failed.
    #[error("a DSS checksum failed")]
    Checksum,
    /// A DSS checksum failed on the only subflow, and the stream can't go on as plain TCP.
    #[error("a middlebox altered the data on the only subflow")]
    ChecksumOfLastSubflow,
    /// The peer sent MP_FAIL, and the stream can't go on as plain TCP.
    #[error("the peer's checksum failed")]
    PeerChecksum,
}

/// Why a join failed (RFC 8684 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum JoinError {
    /// The peer or a middlebox answered the SYN without MP_JOIN.
    #[error("the SYN/ACK had no MP_JOIN")]
    NoOptionOnSynAck,
    /// The peer isn't authentic.
    #[error("the HMAC of the SYN/ACK was wrong")]
    HmacOfSynAck,
    /// The handshake ended without MP_JOIN.
    #[error("the third ACK had no MP_JOIN")]
    NoOptionOnThirdAck,
    /// The peer isn't authentic.
    #[error("the HMAC of the third ACK was wrong")]
    HmacOfThirdAck,
    /// The connection has as many subflows as it may.
    #[error("the limit of subflows is reached")]
    Limit,
    /// The fourth ACK didn't come.
    #[error("the join's third ACK stayed unanswered")]
    Unanswered,
}

/// Why a connection or a subflow ended. A connection that lost its last subflow has that subflow's reason.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum CloseReason {
    /// Both sides closed it.
    #[error("closed")]
    Closed,
    /// Our SYN was answered with RST.
    #[error("connection refused")]
    Refused,
    /// The peer sent RST; with the reason of its MP_TCPRST, if it had one.
    #[error("reset by the peer{}", .0.map_or(String::new(), |reason| format!(" ({reason})")))]
    ResetByPeer(Option<ResetReason>),
    /// The peer sent MP_FASTCLOSE.
    #[error("the peer closed with MP_FASTCLOSE")]
    FastClose,
    /// The handshake took more retransmissions than
    /// [`TcpConfig::syn_retries`](crate::config::TcpConfig::syn_retries).
    #[error("the handshake timed out")]
    HandshakeTimeout,
    /// Data or window probes took more retransmissions than
    /// [`TcpConfig::retries`](crate::config::TcpConfig::retries).
    #[error("too many retransmission timeouts")]
    TimedOut,
    /// Keep-alive probes stayed unanswered.
    #[error("keep-alive probes stayed unanswered")]
    KeepAliveTimeout,
    /// Data wasn't acknowledged within [`TcpConfig::user_timeout`](crate::config::TcpConfig::user_timeout).
    #[error("data stayed unacknowledged beyond the user timeout")]
    UserTimeout,
    /// There was no subflow for
    /// [`PathManagerConfig::close_timeout`](crate::config::PathManagerConfig::close_timeout).
    #[error("no subflow for too long")]
    NoSubflow,
    /// The application had closed the connection, and the peer didn't close its side, or acknowledge our
    /// DATA_FIN, for as long.
    #[error("the peer didn't close its side")]
    CloseTimeout,
    /// A middlebox changed data or options. The subflow was reset with MP_TCPRST's code 6.
    #[error("{0}")]
    Middlebox(Interference),
    /// The subflow's handshake failed.
    #[error("{0}")]
    Join(JoinError),
    /// The peer broke a rule of RFC 8684: a mapping had a checksum that wasn't negotiated, or lacked one that
    /// was.
    #[error("a mapping whose checksum is not as negotiated")]
    ChecksumNotAsNegotiated,
    /// The peer sent REMOVE_ADDR for the subflow's address.
    #[error("the peer removed its address")]
    AddressRemoved,
    /// [`Endpoint::remove_path`](crate::endpoint::Endpoint::remove_path) took its path away.
    #[error("the path was removed")]
    PathRemoved,
    /// [`Endpoint::abort`](crate::endpoint::Endpoint::abort), or a `close` that threw received data away.
    #[error("aborted by this end")]
    Aborted,
}

impl CloseReason {
    /// What our own MP_TCPRST says of it (RFC 8684 3.6).
    pub(crate) fn mp_tcprst(self) -> ResetReason {
        match self {
            CloseReason::Middlebox(_) => ResetReason::MiddleboxInterference,
            CloseReason::Join(JoinError::Limit) => ResetReason::Prohibited,
            CloseReason::Join(JoinError::Unanswered) => ResetReason::Unspecified,
            CloseReason::Join(_) | CloseReason::ChecksumNotAsNegotiated => ResetReason::Mptcp,
            _ => ResetReason::Unspecified,
        }
    }

    /// The kind that the operating system's sockets have for it.
    pub fn kind(self) -> io::ErrorKind {
        match self {
            CloseReason::Refused => io::ErrorKind::ConnectionRefused,
            CloseReason::HandshakeTimeout
            | CloseReason::TimedOut
            | CloseReason::KeepAliveTimeout
            | CloseReason::UserTimeout
            | CloseReason::NoSubflow
            | CloseReason::CloseTimeout => io::ErrorKind::TimedOut,
            CloseReason::Closed => io::ErrorKind::NotConnected,
            CloseReason::Aborted | CloseReason::PathRemoved => io::ErrorKind::ConnectionAborted,
            CloseReason::ResetByPeer(_)
            | CloseReason::FastClose
            | CloseReason::Middlebox(_)
            | CloseReason::Join(_)
            | CloseReason::ChecksumNotAsNegotiated
            | CloseReason::AddressRemoved => io::ErrorKind::ConnectionReset,
        }
    }
}

impl From<GiveUp> for CloseReason {
    fn from(cause: GiveUp) -> Self {
        match cause {
            GiveUp::Handshake => CloseReason::HandshakeTimeout,
            GiveUp::Retransmissions => CloseReason::TimedOut,
            GiveUp::KeepAlive => CloseReason::KeepAliveTimeout,
        }
    }
}

impl From<CloseReason> for io::Error {
    fn from(reason: CloseReason) -> io::Error {
        io::Error::new(reason.kind(), reason)
    }
}

/// Why a call on a connection's stream failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// There is no such connection (any more).
    #[error("no such connection")]
    Unknown,
    /// Our side is closed.
    #[error("the stream is closed for writing")]
    Closed,
    /// The connection is lost, and everything that came before is read.
    #[error(transparent)]
    Lost(#[from] CloseReason),
}

#[cfg(test)]
mod tests {
    use super::{CloseReason, Interference, JoinError, ResetReason};

    #[test]
    fn reset_reasons_keep_their_codes() {
        for code in 0..=u8::MAX {
            assert_eq!(ResetReason::from_code(code).code(), code);
        }
    }

    #[test]
    fn reasons_are_sentences_and_kinds() {
        let reset = CloseReason::ResetByPeer(Some(ResetReason::LackOfResources));
        assert_eq!(reset.to_string(), "reset by the peer (lack of resources)");
        assert_eq!(CloseReason::ResetByPeer(None).to_string(), "reset by the peer");
        let error = std::io::Error::from(CloseReason::Refused);
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
        assert_eq!(error.to_string(), "connection refused");
    }

    #[test]
    fn our_resets_say_why() {
        let code = |reason: CloseReason| reason.mp_tcprst().code();
        assert_eq!(code(CloseReason::Middlebox(Interference::NoMapping)), 6);
        assert_eq!(code(CloseReason::Join(JoinError::HmacOfSynAck)), 1);
        assert_eq!(code(CloseReason::Join(JoinError::Limit)), 3);
        assert_eq!(code(CloseReason::PathRemoved), 0);
    }
}
