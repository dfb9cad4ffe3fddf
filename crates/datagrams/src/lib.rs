//! Datagrams over several links: what isn't TCP (voice, games, DNS, QUIC, ping) travels between a proxy and
//! its gateway.
//!
//! A [`Tunnel`] is one end. It does no I/O: packets, datagrams and the time go in; datagrams for links,
//! packets and the next deadline come out. Something else carries its datagrams, encrypts them, and may lose,
//! repeat or reorder them. Each link has a rate control of its own, which keeps the queue on the link short
//! (`rate`), so that a packet's link is chosen at the last moment; a packet for which there is no room waits
//! here for about 20 ms at most. A [`DatagramScheduler`] chooses.
#![forbid(unsafe_code)]

mod codel;
pub mod flow;
pub mod frame;
mod handover;
mod lane;
pub mod packet;
pub mod rate;
mod receive;
pub mod scheduler;
mod send;
pub mod stream;
mod tunnel;

pub use frame::MOST_LANES;
pub use lane::LinkUse;
pub use scheduler::{Adaptive, Choice, DatagramScheduler, LinkView, PacketView, SCHEDULERS};
pub use tunnel::{LinkSettings, LinkStats, Stats, Tunnel};

/// Nanoseconds of a millisecond.
pub const MILLISECOND: u64 = 1_000_000;
/// Nanoseconds of a second.
pub const SECOND: u64 = 1_000_000_000;
