//! What is rare, in one heap: ordered by (time, sequence number).

use std::cmp::Ordering;

use crate::Nanos;
use crate::packet::Packet;

/// What is to happen.
#[derive(Debug)]
pub(crate) enum Alarm {
    /// An application (0: the workload's; i + 1: background source i's) begins.
    Start(usize),
    /// An application asked for this.
    Wake(usize, u32),
    /// A datagram source sends.
    Udp(usize),
    /// A packet that was delayed on its way to this link gets there.
    Enqueue(usize, Box<Packet>),
    /// The out-of-order queue is sampled.
    SampleOfo,
    /// The series are sampled.
    Sample,
}

/// An alarm and when.
#[derive(Debug)]
pub(crate) struct Timer {
    pub(crate) at: Nanos,
    pub(crate) order: u64,
    pub(crate) what: Alarm,
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Timer {}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timer {
    /// The earliest is the greatest: what a max-heap gives first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}
