//! One TCP connection (RFC 9293): a subflow of an MPTCP connection, or all of a plain one. It knows nothing
//! of MPTCP but a tag, the connection-level offset, per byte range.

mod counters;
mod isn;
mod state;
mod types;

pub use counters::TcpCounters;
pub use isn::{keyed_isn, keyed_timestamp_offset};
pub use state::State;
pub use types::{Context, Kind, Outcome, ResetCause, Shared, Transmit};
