//! Who may wait: the limits of the queue before a link, and its ECN threshold. The packet being sent is not in the
//! queue, and one that finds the link free passes whatever the limit.

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
