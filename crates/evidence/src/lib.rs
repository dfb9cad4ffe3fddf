//! Recordings of a run for other programs: pcapng for Wireshark, qlog for qvis.
//!
//! Both show one end, as a capture on that host would: packets when they are sent, and packets when they
//! arrive. The caller passes packets as bytes, so simulated, emulated and real runs are written alike.
#![forbid(unsafe_code)]

use ropewalk_time::Time;
mod numbers;
mod pcap;
mod qlog;

pub use pcap::Pcap;
pub use qlog::{Decision, Metrics, Qlog, Vantage};

/// A packet's direction, as seen from the recorded end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Sent by this end.
    Sent,
    /// Received by this end.
    Received,
}

/// One IP packet at this end.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// When, since the origin of the file's times.
    pub at: Time,
    /// Index of its path.
    pub path: u16,
    /// Its direction.
    pub direction: Direction,
    /// Its bytes, from the IP header on.
    pub bytes: &'a [u8],
    /// Why it was sent, usually the scheduler's reason.
    pub comment: Option<&'a str>,
}

/// A path, as named in the files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Path {
    /// Its name: "wifi".
    pub name: String,
    /// A one-line description; may be empty.
    pub description: String,
}
