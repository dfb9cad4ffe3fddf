//! One TCP connection, or one subflow of Multipath TCP: RFC 9293 with window scaling and timestamps (RFC
//! 7323), SACK and DSACK (RFC 2018, 2883), RACK-TLP (RFC 8985), PRR (RFC 6937), ECN (RFC 3168) and RFC 5961's
//! defences.
//!
//! A [`Tcb`] is a `Sender`, a `Receiver` and what they share. It knows nothing of Multipath TCP but a *tag*
//! per range of bytes (the connection-level offset of its first byte), the *mapping* that travels with
//! received data, and a few numbers that the connection hands in with [`Context`]. Positions are 64-bit and
//! never wrap: position 0 is the SYN, data starts at 1. They are unfolded from the wire's 32 bits in one
//! place each way.

mod common;
mod context;
mod handshake;
mod info;
mod input;
mod isn;
mod keepalive;
mod mib;
mod output;
mod receiver;
mod sender;
mod tcb;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod timeout;
mod timer;
mod window;

#[cfg(test)]
use crate::config::TcpConfig;
pub(crate) use context::data_ack_len;
pub use context::{Context, GiveUp, Kind, Outcome, Outgoing, Shared, State, Transmit};
pub use info::{InFlightInfo, TcpInfo, TcpOptionsInfo, TcpTotals};
pub use isn::keyed_isn;
pub(crate) use isn::{keyed_digest, keyed_timestamp_offset};
pub use mib::TcpCounters;
pub(crate) use receiver::Mapping;
pub use sender::WithoutSender;
pub(crate) use sender::{CongestionState, DUP_THRESH};
pub use tcb::Tcb;
pub use window::ReceiveBuffer;
