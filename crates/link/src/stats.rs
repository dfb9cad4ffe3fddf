//! What a link counts.

use ropewalk_time::Span;

/// Counters of one direction of a path, since its start. Every packet handed in, and every copy made, is in
/// exactly one of: delivered, one of the drops, queued, in flight.
///
/// A link that computes a packet's fate when it is queued counts its loss, copy, wait and busy time then; one
/// that works in steps counts them when they happen. Once the link has delivered all it was given, both
/// agree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkStats {
    /// Packets handed in.
    pub packets_in: u64,
    /// Their IP bytes.
    pub bytes_in: u64,
    /// Packets handed out, copies included.
    pub packets_delivered: u64,
    /// Their IP bytes.
    pub bytes_delivered: u64,
    /// Packets that found the queue full.
    pub dropped_queue: u64,
    /// Packets that CoDel dropped.
    pub dropped_aqm: u64,
    /// Packets that random loss took.
    pub dropped_loss: u64,
    /// Packets lost because the link was, or went, down.
    pub dropped_down: u64,
    /// Packets marked Congestion Experienced.
    pub marked: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Most packets in the queue at once, the one being sent not counted.
    pub max_queue_packets: u64,
    /// Most IP bytes in the queue at once.
    pub max_queue_bytes: u64,
    /// Time spent sending packets, from the first bit of each to its last.
    pub busy: Span,
    /// Time that packets waited in the queue before they were sent, summed over packets.
    pub sojourn: Span,
}

impl LinkStats {
    #[inline]
    pub(crate) fn saw_queue(&mut self, packets: u64, bytes: u64) {
        self.max_queue_packets = self.max_queue_packets.max(packets);
        self.max_queue_bytes = self.max_queue_bytes.max(bytes);
    }

    /// Packets and copies that went in and have neither come out nor been lost.
    pub fn inside(&self) -> u64 {
        (self.packets_in + self.duplicated).saturating_sub(self.packets_delivered + self.dropped())
    }

    /// Packets lost, for whatever reason.
    pub fn dropped(&self) -> u64 {
        self.dropped_queue + self.dropped_aqm + self.dropped_loss + self.dropped_down
    }
}
