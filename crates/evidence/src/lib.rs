//! What a run was, as files that other programs read: pcapng for Wireshark, qlog for qvis.
//!
//! Both are seen from one end, as a capture on that host would be: what it sent, when it sent it, and what reached
//! it, when it did. A world hands in packets as bytes; so simulated, emulated and real runs are written alike.
#![forbid(unsafe_code)]

mod numbers;
mod pcap;
mod qlog;

pub use pcap::Pcap;
pub use qlog::{Decision, Metrics, Qlog, Vantage};

/// Which way a packet went, as the end that writes saw it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// It left this end.
    Sent,
    /// It reached this end.
    Received,
}

/// One IP packet at this end.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// When, in nanoseconds since the origin of the file's times.
    pub at: u64,
    /// Index of its path.
    pub path: u16,
    /// Which way.
    pub direction: Direction,
    /// From the IP header on.
    pub bytes: &'a [u8],
    /// Why it was sent; the scheduler's reason, as a rule.
    pub comment: Option<&'a str>,
}

/// One path, as the files name it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Path {
    /// Its name: "wifi".
    pub name: String,
    /// A line about it; may be empty.
    pub description: String,
}
