//! A path of a model connection.

use crate::{MILLISECOND, Span, Time};

/// One path of a model connection.
#[derive(Clone, Copy, Debug)]
pub struct Pipe {
    /// Round-trip time.
    pub rtt: Span,
    /// Initial, and fixed unless `grows`.
    pub cwnd: u32,
    /// Whether cwnd follows Reno.
    pub grows: bool,
    /// Whether its subflow is a backup.
    pub backup: bool,
    /// Whether the handshake gave no round-trip sample: the first acknowledgement does.
    pub unmeasured: bool,
    /// Segments lost, of 1000.
    pub loss: u32,
    /// Bytes the subflow's own queue takes, those in flight included.
    pub queue: u64,
    /// When its subflow becomes usable.
    pub joins: Time,
    /// When its subflow is closed, if ever.
    pub fails: Option<Time>,
}

impl Pipe {
    /// A pipe that exists from start to end.
    pub fn new(rtt_ms: u64, cwnd: u32) -> Self {
        Pipe {
            rtt: rtt_ms * MILLISECOND,
            cwnd,
            grows: false,
            backup: false,
            unmeasured: false,
            loss: 0,
            queue: u64::MAX,
            joins: Time::ZERO,
            fails: None,
        }
    }
}
