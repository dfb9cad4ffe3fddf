//! One Multipath TCP connection (RFC 8684, version 1): keys and joins, data sequence mappings, the
//! connection-level send and receive sides, reinjection, the path manager, close and fallback. Plain TCP is
//! the case of one subflow without options.
//!
//! [`Connection`] wires types that own their fields: `Handshake`, `SubflowTable`, `PathManager`, `SendSide`,
//! `ReceiveSide`, `Scheduling`, `Closing`, `Deadlines`, `EventQueue`. A rule that concerns several of them is
//! a method of a type that borrows just these: `Sending` (what the scheduler's decisions touch), `Joining`
//! (which subflows are opened, which addresses announced), `OptionWriter`. What concerns more is a method of
//! [`Connection`].

mod addresses;
mod assign;
mod break_before_make;
mod chunks;
mod close;
mod close_reason;
mod closing;
mod connection;
mod cork;
mod crypto;
mod deadlines;
mod delivery;
mod early_segments;
mod establish;
mod event_queue;
mod fallback;
mod handshake;
#[cfg(feature = "lookahead")]
mod independence;
mod info;
mod input;
mod joining;
mod mapping;
mod mechanisms;
mod messages;
mod options;
mod output;
mod path_manager;
mod peer_memory;
mod receive;
mod receive_buffer;
mod retransmit;
mod scheduling;
mod send;
mod send_buffer;
mod sending;
mod socket_options;
mod stats;
mod subflow;
mod subflow_fallback;
mod subflow_life;
mod subflow_table;
mod timers;
mod window_autotuning;

pub use close_reason::{CloseReason, Interference, JoinError, ResetReason, StreamError};
pub use connection::Connection;
pub use crypto::{Key, add_addr_hmac, join_hmac, leftmost_64, leftmost_160};
pub use handshake::Role;
#[cfg(feature = "lookahead")]
pub(crate) use independence::is_independent;
pub use info::{ConnectionInfo, SubflowInfo};
pub(crate) use joining::Joining;
pub(crate) use path_manager::JoinRequest;
pub(crate) use socket_options::SocketOption;
pub use stats::{ConnectionStats, DecisionRecord, Event, FallbackCause, OfoStats, Overruled};

/// Whether an MP_CAPABLE is one that this version knows: version 1, HMAC-SHA256, no extension (RFC 8684 3.1).
pub(crate) fn is_understood(capable: &ropewalk_wire::MpCapable) -> bool {
    capable.version == 1 && capable.hmac_sha256 && !capable.extensibility
}
