//! The models of a path's one direction: rate or trace, delay, jitter, loss, queue, changes over time.
//! Shared by the simulator and the emulator.
//!
//! A [`LinkSpec`] says what a link is, a [`Link`] is the machine: packets go in, and come out when they
//! arrive.
//!
//! ```
//! use ropewalk_link::{Link, LinkSpec, Packet};
//! use ropewalk_time::{MILLISECOND, Time};
//!
//! struct Datagram(u32);
//! impl Packet for Datagram {
//!     fn wire_len(&self) -> u32 { self.0 }
//!     fn is_ect(&self) -> bool { false }
//!     fn mark_ce(&mut self) {}
//!     fn duplicate(&self) -> Self { Datagram(self.0) }
//! }
//!
//! // 12 Mbit/s, 20 ms, 100 packets: 1500 bytes take 1 ms.
//! let mut link = Link::new(LinkSpec::plain(12_000_000, 20 * MILLISECOND, 100), 1, 0);
//! link.enqueue(Time::ZERO, Datagram(1500));
//! link.enqueue(Time::ZERO, Datagram(1500));
//! assert_eq!(link.poll_timeout(), Some(Time::ZERO + 21 * MILLISECOND));
//! assert!(link.poll(Time::ZERO + 21 * MILLISECOND).is_some());
//! assert_eq!(link.poll_timeout(), Some(Time::ZERO + 22 * MILLISECOND));
//! ```
#![forbid(unsafe_code)]

mod capacity;
mod codel;
mod delay_line;
mod impairments;
mod jitter;
mod link;
mod loss;
mod precomputed;
mod queue;
mod random;
mod serializer;
mod server;
mod spec;
mod stats;
mod stepwise;
#[cfg(test)]
mod testing;
mod trace;
mod transit;

pub use link::{Link, Packet};
pub use spec::{Change, ChangeAction, Jitter, JitterShape, LinkSpec, Loss, Queue, Rate, RateTrace};
pub use stats::LinkStats;
pub use trace::{OPPORTUNITY_BYTES, TraceError};
