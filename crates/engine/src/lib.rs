//! Multipath TCP (RFC 8684, version 1) over user-space TCP, sans-IO.
//!
//! Segments and the time go in; segments, events and the next deadline come out. The engine reads no
//! clock, opens no socket, starts no thread and draws no randomness of its own: same input, same
//! output, byte for byte.
#![forbid(unsafe_code)]

mod chunked_list;
pub mod config;
pub mod congestion;
#[cfg(test)]
mod contract;
pub mod endpoint;
mod inline_queue;
pub mod metrics;
pub mod mptcp;
pub mod registry;
pub mod scheduler;
mod segment_list;
pub mod tcp;
pub mod testing;

/// Nanoseconds since an arbitrary origin, or a span of them. Handed in; never read from a clock.
pub type Nanos = u64;

/// One millisecond.
pub const MILLISECOND: Nanos = 1_000_000;
/// One second.
pub const SECOND: Nanos = 1_000_000_000;

/// Which network a segment leaves or arrives by. The world gives the numbers their meaning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PathId(pub u16);

/// A subflow of a connection: the index of its [`metrics::SubflowMetrics`]. An index is used again only after the
/// subflow is closed and the scheduler has heard [`scheduler::Event::SubflowRemoved`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SubflowId(pub u8);

impl SubflowId {
    /// As an index into the flows.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where keys, initial sequence numbers, tokens' nonces and ports come from. The simulator hands in a
/// seeded stream, the host the operating system's.
pub trait Entropy {
    /// 64 unpredictable bits (in a simulation: the next of the seeded stream).
    fn next_u64(&mut self) -> u64;
}
