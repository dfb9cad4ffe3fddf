//! CoDel (RFC 8289, section 5's pseudo-code): a queue whose packets have waited longer than `target` for a
//! whole `interval` loses one, then another after `interval / sqrt(count)`, until one waits less. With ECN,
//! capable packets are marked instead, as Linux does; a packet marked is delivered, so it ends the round.

use ropewalk_time::{Span, Time};

use crate::Packet;
use crate::queue::{WaitQueue, Waiting};
use crate::stats::LinkStats;

/// CoDel's state; names are the RFC's.
#[derive(Clone, Debug)]
pub(crate) struct CoDel {
    target: Span,
    interval: Span,
    ecn: bool,
    /// The largest packet seen: a queue of no more than it is left alone.
    maxpacket: u32,
    /// When the sojourn time will have been above target for an interval; `None`: it is below.
    first_above_time: Option<Time>,
    drop_next: Time,
    count: u32,
    lastcount: u32,
    dropping: bool,
}

impl CoDel {
    pub(crate) fn new(target: Span, interval: Span, ecn: bool) -> Self {
        CoDel {
            target,
            interval,
            ecn,
            maxpacket: 0,
            first_above_time: None,
            drop_next: Time::ZERO,
            count: 0,
            lastcount: 0,
            dropping: false,
        }
    }

    /// The next packet to send at `now`, at the front of the queue's packets; those dropped before it, and
    /// whether it was marked, are counted.
    pub(crate) fn dequeue<T: Packet>(
        &mut self,
        now: Time,
        queue: &mut WaitQueue<T>,
        stats: &mut LinkStats,
    ) -> Option<Waiting> {
        let (mut next, mut ok_to_drop) = self.take(now, queue);
        if self.dropping {
            if !ok_to_drop {
                self.dropping = false;
            }
            while self.dropping && now >= self.drop_next {
                self.count = self.count.saturating_add(1);
                if self.mark_or_drop(queue, stats) {
                    // From when it was due, not from now: packets leave when the link is free, and the
                    // rate of signals mustn't depend on that.
                    self.drop_next = self.control_law(self.drop_next);
                    break;
                }
                (next, ok_to_drop) = self.take(now, queue);
                if ok_to_drop {
                    self.drop_next = self.control_law(self.drop_next);
                } else {
                    self.dropping = false;
                }
            }
        } else if ok_to_drop {
            if !self.mark_or_drop(queue, stats) {
                (next, _) = self.take(now, queue);
            }
            self.dropping = true;
            // A queue that left the dropping state recently starts with the drop rate that it had then.
            let delta = self.count.wrapping_sub(self.lastcount);
            // Within RFC 8289's 16 intervals the load counts as the same.
            let recent = now.saturating_sub(self.drop_next) < self.interval.saturating_mul(16);
            self.count = if delta > 1 && delta <= self.count && recent { delta } else { 1 };
            self.drop_next = self.control_law(now);
            self.lastcount = self.count;
        }
        next
    }

    /// The RFC's `dodequeue`: the queue's first, and whether it may be dropped.
    fn take<T>(&mut self, now: Time, queue: &mut WaitQueue<T>) -> (Option<Waiting>, bool) {
        let Some(first) = queue.start_first() else {
            self.first_above_time = None;
            return (None, false);
        };
        self.maxpacket = self.maxpacket.max(first.len);
        let sojourn = now.saturating_sub(first.since);
        // With a packet or less behind this one a drop would idle the link, however long this one waited.
        if sojourn < self.target || queue.bytes() <= u64::from(self.maxpacket) {
            self.first_above_time = None;
            return (Some(first), false);
        }
        let Some(end) = self.first_above_time else {
            self.first_above_time = Some(now.saturating_add(self.interval));
            return (Some(first), false);
        };
        (Some(first), now >= end)
    }

    /// Signals congestion with the packet just taken: true if it was marked and is still there, false if
    /// dropped.
    fn mark_or_drop<T: Packet>(&self, queue: &mut WaitQueue<T>, stats: &mut LinkStats) -> bool {
        if self.ecn
            && let Some(packet) = queue.started()
            && packet.is_ect()
        {
            packet.mark_ce();
            stats.marked += 1;
            return true;
        }
        queue.take_started();
        stats.dropped_aqm += 1;
        false
    }

    fn control_law(&self, from: Time) -> Time {
        let count = f64::from(self.count.max(1));
        from.saturating_add(Span::from_nanos((self.interval.as_nanos() as f64 / count.sqrt()) as u64))
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_time::MILLISECOND;

    use super::*;
    use crate::testing::Datagram;

    const MS: Span = MILLISECOND;

    fn codel(ecn: bool) -> CoDel {
        CoDel::new(5 * MS, 100 * MS, ecn)
    }

    /// A queue that never empties, served every millisecond, each packet having waited `sojourn`: the times
    /// (ms) at which packets are dropped, or marked.
    fn drops(codel: &mut CoDel, from: u64, to: u64, sojourn: Span, ect: bool) -> Vec<u64> {
        let mut stats = LinkStats::default();
        let mut times = Vec::new();
        for ms in from..to {
            let now = Time::ZERO + ms * MS;
            let mut queue = WaitQueue::new();
            for _ in 0..10 {
                queue.push(now - sojourn, 1500, Datagram::new(0, 1500, ect));
            }
            let before = stats.dropped_aqm + stats.marked;
            assert!(codel.dequeue(now, &mut queue, &mut stats).is_some());
            times.extend((before..stats.dropped_aqm + stats.marked).map(|_| ms));
        }
        times
    }

    #[test]
    fn the_first_drop_comes_after_an_interval_above_target() {
        assert_eq!(drops(&mut codel(false), 1000, 1101, 5 * MS, false), [1100]);
        assert_eq!(drops(&mut codel(false), 1000, 1100, 5 * MS, false), []);
        assert_eq!(drops(&mut codel(false), 1000, 9000, 5 * MS - Span::from_nanos(1), false), []);
    }

    #[test]
    fn drops_follow_the_control_law() {
        // 100 ms after the first, then 100/sqrt(2), 100/sqrt(3), ... later, at the next millisecond served.
        let times = drops(&mut codel(false), 1000, 1500, 20 * MS, false);
        let mut law = vec![1100.0];
        for count in 1..=9u32 {
            law.push(law.last().unwrap() + 100.0 / f64::from(count).sqrt());
        }
        let law: Vec<u64> = law.into_iter().map(|t: f64| t.ceil() as u64).filter(|&t| t < 1500).collect();
        assert_eq!(times, law);
    }

    #[test]
    fn a_short_wait_ends_the_dropping() {
        let mut codel = codel(false);
        assert!(!drops(&mut codel, 1000, 1500, 20 * MS, false).is_empty());
        assert_eq!(drops(&mut codel, 1500, 1501, MS, false), []);
        assert!(!codel.dropping);
        // A new interval must pass.
        assert_eq!(drops(&mut codel, 1501, 1602, 20 * MS, false), [1601]);
        // The rate of drops resumes: it was 5 per round, less the first.
        assert!(codel.count > 1, "{}", codel.count);
    }

    #[test]
    fn after_a_long_peace_it_starts_again_from_one() {
        let mut codel = codel(false);
        drops(&mut codel, 1000, 1500, 20 * MS, false);
        drops(&mut codel, 1500, 4000, MS, false);
        drops(&mut codel, 4000, 4101, 20 * MS, false);
        assert_eq!(codel.count, 1);
    }

    #[test]
    fn capable_packets_are_marked() {
        let (mut marking, mut dropping) = (codel(true), codel(false));
        assert_eq!(
            drops(&mut marking, 1000, 2000, 20 * MS, true),
            drops(&mut dropping, 1000, 2000, 20 * MS, true)
        );
        let mut stats = LinkStats::default();
        let mut queue = WaitQueue::new();
        for id in 0..3 {
            queue.push(Time::ZERO, 1500, Datagram::new(id, 1500, true));
        }
        marking.drop_next = Time::ZERO;
        assert!(marking.dequeue(Time::ZERO + 2000 * MS, &mut queue, &mut stats).is_some());
        let first = queue.take_started().unwrap();
        assert!(first.id == 0 && first.ce && stats.marked == 1 && stats.dropped_aqm == 0);
    }

    #[test]
    fn a_queue_of_one_packet_is_left_alone() {
        let mut codel = codel(false);
        let mut stats = LinkStats::default();
        for ms in 1000..3000 {
            let mut queue = WaitQueue::new();
            queue.push(Time::ZERO, 1500, Datagram::new(0, 1500, false));
            queue.push(Time::ZERO, 1500, Datagram::new(1, 1500, false));
            assert!(codel.dequeue(Time::ZERO + ms * MS, &mut queue, &mut stats).is_some());
        }
        assert_eq!(stats.dropped_aqm, 0);
    }
}
