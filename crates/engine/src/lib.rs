//! Multipath TCP (RFC 8684, version 1) over user-space TCP, sans-IO.
//!
//! Segments and the time go in; segments, events and the next deadline come out. The engine reads no clock,
//! opens no socket, starts no thread and draws no randomness of its own: same input, same output, byte for
//! byte. Whoever embeds it brings the packets (a TUN device, a simulator, another process), the time and
//! random numbers.
//!
//! - [`Endpoint`] holds the connections of one host and has all the verbs.
//! - [`Event`] is what it tells, [`CloseReason`] why a connection ended, [`ConnectionInfo`] and [`TcpInfo`]
//!   what the kernel's `mptcp_info` and `tcp_info` say.
//! - [`ConnectionConfig`] are the settings of a listener's or a client's connections; the defaults are
//!   Linux's.
//! - [`scheduler`] and [`congestion`] have every packet scheduler and congestion control, and the traits for
//!   your own ([`testing`] helps to test it).
//! - The crate `ropewalk-wire` turns segments into packets and back.
//!
//! # Example
//!
//! Two endpoints in one process, and a wire that is a function call:
//!
//! ```
//! use std::sync::Arc;
//! use bytes::Bytes;
//! use ropewalk_engine::{ConnectionConfig, Endpoint, EndpointConfig, Entropy, Event, PathId, Span, Time};
//!
//! /// For an example. Use the operating system's random numbers.
//! struct Counter(u64);
//! impl Entropy for Counter {
//!     fn next_u64(&mut self) -> u64 {
//!         self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
//!         self.0 ^ self.0 >> 29
//!     }
//! }
//!
//! let config = Arc::new(ConnectionConfig::default());
//! let [mut client, mut server] =
//!     [1, 2].map(|seed| Endpoint::<Bytes, _>::new(EndpointConfig::default(), Counter(seed)));
//! let (address, path, mut now) = ("192.0.2.1:80".parse()?, PathId(0), Time::ZERO);
//! server.listen(address, Arc::clone(&config));
//! let stream = client.connect(now, path, "192.0.2.2:0".parse()?, address, config)?;
//! client.write(now, stream, Bytes::from_static(b"hello"))?;
//! client.shutdown(now, stream);
//!
//! let mut received = Vec::new();
//! while received.len() < 5 {
//!     now += Span::from_millis(1);
//!     client.on_timeout(now);
//!     server.on_timeout(now);
//!     while let Some((path, segment)) = client.poll_transmit(now, 1) {
//!         server.on_segment(now, path, segment);
//!     }
//!     while let Some((path, segment)) = server.poll_transmit(now, 1) {
//!         client.on_segment(now, path, segment);
//!     }
//!     while let Some((id, event)) = server.poll_event() {
//!         if event == Event::Readable {
//!             while let Some(data) = server.read(now, id, 65_536)?.filter(|data| !data.is_empty()) {
//!                 received.extend_from_slice(&data);
//!             }
//!         }
//!     }
//! }
//! assert_eq!(received, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The order of calls
//!
//! One loop drives an endpoint:
//!
//! 1. Hand in what happened: [`on_segment`](Endpoint::on_segment) for each segment that arrived,
//!    [`on_too_big`](Endpoint::on_too_big) for an ICMP message, [`on_timeout`](Endpoint::on_timeout) when the
//!    deadline has passed, and the application's calls.
//! 2. Call [`poll_transmit`](Endpoint::poll_transmit) until `None`, and send what it returns. This is also
//!    when timers are set and connections that are over are forgotten: don't leave it out.
//! 3. Call [`poll_event`](Endpoint::poll_event) until `None`. What the application does about events is step
//!    1 again.
//! 4. Ask [`poll_timeout`](Endpoint::poll_timeout), and sleep until then or until something arrives.
//!
//! `now` never goes back from one call to the next. A call that comes early or too often does no harm.
//!
//! | answer | may change with |
//! |---|---|
//! | [`poll_transmit`](Endpoint::poll_transmit) | every call that takes `now`; after `None` it stays `None` until the next of them |
//! | [`poll_event`](Endpoint::poll_event) | the same; events of one connection are in order |
//! | [`poll_timeout`](Endpoint::poll_timeout) | the same; it holds once `poll_transmit` has returned `None` |
//! | [`read`](Endpoint::read), [`readable_bytes`](Endpoint::readable_bytes), [`is_readable`](Endpoint::is_readable) | `on_segment`, `on_timeout`, reads, `close`, `abort` |
//! | [`write`](Endpoint::write), [`writable_bytes`](Endpoint::writable_bytes), [`is_writable`](Endpoint::is_writable) | `on_segment`, `on_timeout`, `poll_transmit` (with an unsent low-water mark), writes, `shutdown`, `close`, `abort`, a change of the send buffer |
//! | [`connection`](Endpoint::connection) and what it returns | every call that takes `now`; `None` once the connection is forgotten |
//! | [`listeners`](Endpoint::listeners) | `listen`, `stop_listening` |
//!
//! # The life of a connection
//!
//! A client's begins with [`connect`](Endpoint::connect) and is open with [`Event::Connected`]; a server's is
//! first heard of with [`Event::Accepted`]. Data may be written before. [`shutdown`](Endpoint::shutdown) ends
//! our side, [`Event::PeerClosed`] says that the peer ended its own. When both have and all is acknowledged,
//! [`Event::Closed`] follows. [`Event::Reset`] says that the connection is lost, and why. What arrived before
//! can still be read, and then [`read`](Endpoint::read) fails with [`StreamError::Lost`]. The connection is
//! forgotten when it is over and everything is read, or after [`close`](Endpoint::close) or
//! [`abort`](Endpoint::abort). These two give no event. A [`ConnectionId`] is never used again.
//!
//! Readiness is a level that can be asked for and an edge that is an event. [`Event::Readable`] comes when
//! data is ready where none was: read until `None` to get the next one. [`Event::Writable`] comes after a
//! short write or [`want_write`](Endpoint::want_write), once a third of the send buffer is free.
//!
//! # Paths
//!
//! A [`PathId`] names a network that this host has: a device, a link. The embedder numbers them. A segment
//! that arrives gets the `PathId` of the device that it arrived on; a segment to be sent leaves by the device
//! of the `PathId` that comes with it. A subflow keeps the path that it was opened on: the one given to
//! [`connect`](Endpoint::connect) or [`add_path`](Endpoint::add_path), or that of the peer's SYN. An arriving
//! segment finds its subflow by the four-tuple alone: the path counts for SYNs and for answers to segments of
//! no connection. [`LocalEndpoint`] tells the path manager which address of ours belongs to which path.
//!
//! # Memory
//!
//! [`BufferConfig`] counts payload and windows, not memory; see there. [`EndpointConfig::max_connections`]
//! and [`EndpointConfig::backlog`] bound the number of connections.
//!
//! # Features
//!
//! None is on by default.
//!
//! - `serde`: settings, events, reasons and information can be serialised.
//! - `qlog`: `qlog::Log` writes what an endpoint does as qlog in JSON-SEQ.
#![forbid(unsafe_code)]
#![warn(clippy::too_many_arguments)]

mod chunked_list;
pub mod config;
pub mod congestion;
#[cfg(test)]
mod departures;
pub mod endpoint;
mod inline_queue;
mod link_rate;
pub mod metrics;
pub mod mptcp;
mod path_cache;
#[cfg(feature = "qlog")]
pub mod qlog;
pub mod registry;
pub mod scheduler;
mod segment_list;
#[cfg(feature = "serde")]
mod spec_serde;
mod tcp;
pub mod testing;

pub use config::{
    BufferConfig, ConnectionConfig, CwndConfig, EndpointConfig, KeepAliveConfig, LocalEndpoint,
    PathManagerConfig, RecoveryConfig, RtoConfig, TcpConfig,
};
pub use endpoint::{ConnectError, ConnectionId, Counters, Endpoint, OptionError, StreamError};
pub use mptcp::{
    CloseReason, Connection, ConnectionInfo, ConnectionStats, Event, FallbackCause, Interference, JoinError,
    ResetReason, Role, SubflowInfo,
};
pub use path_cache::{PathCache, PathQuality};
pub use tcp::{InFlightInfo, State as TcpState, TcpCounters, TcpInfo, TcpOptionsInfo, TcpTotals};

pub use ropewalk_time::{MILLISECOND, NANOSECOND, SECOND, Span, Time};

/// Most subflows of a connection at a time. A set of them is the bits of a `u32`
/// ([`scheduler::Chunk::carriers`]).
pub const MAX_SUBFLOWS: usize = u32::BITS as usize;

/// Which network a segment leaves or arrives by. The world gives the numbers their meaning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PathId(pub u16);

/// A subflow of a connection: the index of its [`metrics::SubflowMetrics`]. An index is used again only after
/// the subflow is closed and the scheduler has heard [`scheduler::Event::SubflowRemoved`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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

/// The README's example is tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
