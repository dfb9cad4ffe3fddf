//! How much of the peer's window is left unused, for the memory that data out of order takes there
//! ([`LINUX_SEGMENT_OVERHEAD`](crate::config::LINUX_SEGMENT_OVERHEAD) says why), and where nothing is left to
//! leave: with a window of a few segments data goes on one subflow at a time.

use ropewalk_wire::Payload;

use super::sending::Sending;
use crate::SubflowId;
use crate::metrics::SubflowMetrics;
use crate::scheduler::Chunk;

/// A window of fewer segments is small. A socket of Linux 6.18 with `SO_RCVBUF` of 16 KiB offers 16 segments,
/// and with 14 out of order takes no more, the missing one included.
const FEW_SEGMENTS: u64 = 32;

impl<P: Payload> Sending<'_, P> {
    /// Leaves room in the peer's window for the segments that it holds out of order, before new data is
    /// scheduled. Returns the only subflow that may get new data, if the peer's window was never more than a
    /// few segments: the one that carries the first byte that it lacks. Data of others would be out of order,
    /// and a few segments of it can fill the peer's memory; then the byte itself isn't taken any more.
    #[inline(never)]
    pub fn reserve_window(&mut self) -> Option<SubflowId> {
        if !self.handshake.is_multipath() {
            self.send.reserve(0);
            return None;
        }
        let held = self.held_out_of_order();
        self.send.reserve(held * u64::from(self.config.peer_segment_overhead));
        let carrier = self.send.chunk_at(self.send.una())?.last;
        let metrics = self.subflows.metrics().get(carrier.index()).filter(|metrics| metrics.usable())?;
        (self.send.largest_window() < FEW_SEGMENTS * u64::from(metrics.mss)).then_some(carrier)
    }

    /// How many segments the peer holds beyond the first byte that it lacks, or may before that byte comes:
    /// those that were sent and aren't acknowledged at data level, but for what is under way on the subflow
    /// that carries this byte. On a lone subflow data out of order never reaches the connection.
    fn held_out_of_order(&self) -> u64 {
        if self.subflows.iter().filter(|subflow| subflow.is_joined()).nth(1).is_none() {
            return 0;
        }
        // Sent again, it comes behind what its new carrier has under way.
        let first_copy = |chunk: &Chunk| chunk.carriers.is_power_of_two();
        let head = self.send.chunk_at(self.send.una()).filter(first_copy).map(|chunk| chunk.last);
        let (mut with_head, mut mss) = (0, u32::MAX);
        for (subflow, metrics) in self.subflows.with_metrics() {
            mss = mss.min(metrics.mss.max(1));
            // After a timeout what went before is lost, or there: it isn't under way.
            if Some(metrics.id) == head && subflow.timeouts() == 0 {
                with_head = segments_under_way(metrics).saturating_sub(self.repeated_segments(metrics.mss));
            }
        }
        let bytes = self.send.assigned_end().saturating_sub(self.send.una());
        let sent = (self.send.chunk_count() as u64).max(bytes / u64::from(mss));
        sent.saturating_sub(with_head)
    }

    /// Segments of what several subflows carry: a copy may come before the first byte that the peer lacks.
    fn repeated_segments(&self, mss: u32) -> u64 {
        if self.send.una() >= self.send.repeated_end() {
            return 0;
        }
        let repeated = self.send.chunks().filter(|chunk| !chunk.carriers.is_power_of_two());
        repeated.map(|chunk| u64::from(chunk.len.div_ceil(mss.max(1)))).sum()
    }

    /// Whether the peer has room for the first byte that it lacks, if a copy of the chunk comes before that
    /// byte. The byte's own chunk is always repeated.
    #[cold]
    pub fn may_repeat(&self, chunk: &Chunk) -> bool {
        let overhead = u64::from(self.config.peer_segment_overhead);
        let Some(head) = self.send.chunk_at(self.send.una()).filter(|_| overhead > 0) else { return true };
        let mss = self.subflows.usable().map(|metrics| metrics.mss.max(1)).min().unwrap_or(1);
        let memory = |len: u32| u64::from(len) + u64::from(len.div_ceil(mss)) * overhead;
        // What the subflow carries that had the byte first comes behind it.
        let others = match head.carriers & !(1 << head.last.0) {
            0 => !head.carriers,
            earlier => !(1 << earlier.trailing_zeros()),
        };
        let may_come_before = |other: &Chunk| {
            other.offset > head.offset && other.offset != chunk.offset && other.carriers & others != 0
        };
        let held: u64 = self.send.chunks().filter(may_come_before).map(|other| memory(other.len)).sum();
        chunk.offset <= head.offset || held + memory(chunk.len) <= self.send.window()
    }
}

/// Segments that were given to a subflow and aren't known to have arrived.
fn segments_under_way(metrics: &SubflowMetrics) -> u64 {
    u64::from(metrics.packets_out().saturating_sub(metrics.sacked_out()) + metrics.queued_segments())
}
