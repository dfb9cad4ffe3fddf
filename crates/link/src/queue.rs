//! The queue before a link: its limits, its ECN threshold, and its packets. The packet being sent is not in
//! the queue, and a packet that finds the link free is sent whatever the limit is.

use std::collections::VecDeque;

use ropewalk_time::Time;

use crate::spec::Queue;

/// Limits, and thresholds at which ECN-capable packets are marked as they come in (as DCTCP's switches do:
/// Alizadeh et al., SIGCOMM 2010, section 3.1). What doesn't apply is the largest number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission {
    limit_packets: u64,
    limit_bytes: u64,
    mark_packets: u64,
    mark_bytes: u64,
}

impl Admission {
    pub(crate) fn new(queue: Queue) -> Self {
        let none = Admission {
            limit_packets: u64::MAX,
            limit_bytes: u64::MAX,
            mark_packets: u64::MAX,
            mark_bytes: u64::MAX,
        };
        match queue {
            Queue::Packets { limit, ecn_threshold } => Admission {
                limit_packets: limit.into(),
                mark_packets: ecn_threshold.map_or(u64::MAX, Into::into),
                ..none
            },
            Queue::Bytes { limit, ecn_threshold } => {
                Admission { limit_bytes: limit, mark_bytes: ecn_threshold.unwrap_or(u64::MAX), ..none }
            }
            Queue::CoDel { limit, .. } => Admission { limit_packets: limit.into(), ..none },
        }
    }

    /// Whether a packet of `len` bytes may join a queue of `packets` and `bytes`.
    #[inline]
    pub(crate) fn admits(&self, packets: u64, bytes: u64, len: u32) -> bool {
        packets < self.limit_packets && bytes.saturating_add(u64::from(len)) <= self.limit_bytes
    }

    /// Whether a packet that finds `packets` and `bytes` in the queue is to be marked.
    #[inline]
    pub(crate) fn marks(&self, packets: u64, bytes: u64) -> bool {
        packets >= self.mark_packets || bytes >= self.mark_bytes
    }
}

/// The packets that wait, in order. The packet being sent, if any, is before them until its last bit leaves,
/// but isn't counted. Packets are large: their keys are stored separately, so that a packet is moved in and
/// out once.
#[derive(Debug)]
pub(crate) struct WaitQueue<T> {
    waiting: VecDeque<Waiting>,
    bytes: u64,
    packets: VecDeque<T>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) since: Time,
    /// IP bytes.
    pub(crate) len: u32,
}

impl<T> WaitQueue<T> {
    pub(crate) fn new() -> Self {
        WaitQueue { waiting: VecDeque::new(), bytes: 0, packets: VecDeque::new() }
    }

    pub(crate) fn push(&mut self, since: Time, len: u32, packet: T) {
        self.bytes += u64::from(len);
        self.waiting.push_back(Waiting { since, len });
        self.packets.push_back(packet);
    }

    /// The first of the queue is to be sent. What was started before has been taken.
    pub(crate) fn start_first(&mut self) -> Option<Waiting> {
        let first = self.waiting.pop_front()?;
        self.bytes -= u64::from(first.len);
        Some(first)
    }

    /// The packet that was started.
    pub(crate) fn started(&mut self) -> Option<&mut T> {
        self.packets.front_mut()
    }

    /// The same, to keep.
    pub(crate) fn take_started(&mut self) -> Option<T> {
        self.packets.pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn len(&self) -> u64 {
        self.waiting.len() as u64
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Drops the queue and the packet being sent. Returns how many packets those were.
    pub(crate) fn clear(&mut self) -> u64 {
        let lost = self.packets.len() as u64;
        self.packets.clear();
        self.waiting.clear();
        self.bytes = 0;
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_limited_whatever_their_size() {
        let admission = Admission::new(Queue::Packets { limit: 2, ecn_threshold: Some(1) });
        assert!(admission.admits(1, 1_000_000, 65_535) && !admission.admits(2, 2, 1));
        assert!(!admission.marks(0, u64::MAX - 1) && admission.marks(1, 0));
    }

    #[test]
    fn bytes_are_limited_however_many_packets() {
        let admission = Admission::new(Queue::Bytes { limit: 3000, ecn_threshold: Some(1500) });
        assert!(admission.admits(1, 1500, 1500) && !admission.admits(1, 1500, 1501));
        assert!(!admission.marks(1000, 1499) && admission.marks(1, 1500));
    }
}
