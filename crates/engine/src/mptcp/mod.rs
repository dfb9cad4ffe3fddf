//! One Multipath TCP connection (RFC 8684, version 1): keys and joins, data sequence mappings, the connection-level
//! send and receive sides, reinjection, the path manager, close and fallback. Plain TCP is the case of one
//! subflow without options.

mod buffer;
mod connection;
mod control;
mod crypto;
mod deadlines;
mod disorder;
mod input;
mod mapping;
mod opening;
mod output;
mod receive;
mod schedule;
mod send;
mod settled;
mod stats;
mod straight;

pub use connection::{Connection, JoinRequest, Role};
pub use crypto::{Key, add_addr_hmac, join_hmac, leftmost_64, leftmost_160};
pub use stats::{ConnectionStats, DecisionRecord, Event, FallbackCause};
