//! Packets that have left the queue and have not arrived: handed out in order of (arrival, sequence number).
//!
//! Arrivals mostly come in order: those are in a ring, cheap at both ends. A packet that overtakes the ring's last
//! is put aside in slots, with a heap of keys. While the heap holds anything, the ring's last arrives later than
//! all of it, so whatever shares an arrival with the heap's first and is in the ring came before it: ties go to
//! the ring, and only the heap needs sequence numbers.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use crate::Nanos;

#[derive(Debug)]
pub(crate) struct Transit<T> {
    /// Keys and packets of the ring, apart: packets are large, and are moved once in and once out.
    ring: VecDeque<Due>,
    packets: VecDeque<T>,
    overtakers: BinaryHeap<Overtaker>,
    slots: Vec<Option<T>>,
    free: Vec<u32>,
    sequence: u64,
}

/// When a packet arrives, and its size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Due {
    pub(crate) arrival: Nanos,
    /// IP bytes.
    pub(crate) len: u32,
    /// Where its packet is: a slot, or `RING`.
    place: u32,
}

/// The place of a packet at the front of the ring.
const RING: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Overtaker {
    due: Due,
    sequence: u64,
}

impl Overtaker {
    fn key(&self) -> u128 {
        (u128::from(self.due.arrival) << 64) | u128::from(self.sequence)
    }
}

/// The earliest is the greatest: the heap's top is what is due.
impl Ord for Overtaker {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl PartialOrd for Overtaker {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Transit<T> {
    pub(crate) fn new() -> Self {
        Transit {
            ring: VecDeque::new(),
            packets: VecDeque::new(),
            overtakers: BinaryHeap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            sequence: 0,
        }
    }

    /// Packets in flight.
    pub(crate) fn len(&self) -> usize {
        self.ring.len() + self.overtakers.len()
    }

    #[inline]
    pub(crate) fn push(&mut self, arrival: Nanos, len: u32, packet: T) {
        if self.ring.back().is_some_and(|last| arrival < last.arrival) {
            self.push_overtaker(arrival, len, packet);
        } else {
            self.ring.push_back(Due { arrival, len, place: RING });
            self.packets.push_back(packet);
        }
    }

    #[inline]
    fn push_overtaker(&mut self, arrival: Nanos, len: u32, packet: T) {
        let place = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(packet);
                slot
            }
            None => {
                self.slots.push(Some(packet));
                (self.slots.len() - 1) as u32
            }
        };
        self.overtakers.push(Overtaker { due: Due { arrival, len, place }, sequence: self.sequence });
        self.sequence += 1;
    }

    /// When the next packet arrives.
    #[inline]
    pub(crate) fn next_arrival(&self) -> Option<Nanos> {
        let ring = self.ring.front()?.arrival;
        // While there are overtakers, the ring isn't empty.
        match self.overtakers.peek() {
            Some(overtaker) => Some(ring.min(overtaker.due.arrival)),
            None => Some(ring),
        }
    }

    /// The next packet, if it has arrived by `now`. To be followed by [`take`](Self::take).
    #[inline]
    pub(crate) fn next_due(&mut self, now: Nanos) -> Option<Due> {
        let first = *self.ring.front()?;
        if let Some(overtaker) = self.overtakers.peek()
            && overtaker.due.arrival < first.arrival
        {
            let due = overtaker.due;
            if due.arrival > now {
                return None;
            }
            self.overtakers.pop();
            return Some(due);
        }
        if first.arrival > now {
            return None;
        }
        self.ring.pop_front();
        Some(first)
    }

    /// The packet of the latest [`next_due`](Self::next_due).
    #[inline]
    pub(crate) fn take(&mut self, due: Due) -> Option<T> {
        if due.place == RING {
            return self.packets.pop_front();
        }
        self.free.push(due.place);
        self.slots[due.place as usize].take()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn next(transit: &mut Transit<usize>, now: Nanos) -> Option<(Nanos, usize)> {
        let due = transit.next_due(now)?;
        transit.take(due).map(|packet| (due.arrival, packet))
    }

    proptest! {
        /// The structure against a sorted list, pushes and pops mixed.
        #[test]
        fn hands_out_by_arrival_then_sequence(ops in prop::collection::vec((0u64..40, 0u64..12, any::<bool>()), 1..300)) {
            let mut transit = Transit::new();
            let mut model: Vec<(Nanos, usize)> = Vec::new();
            let mut now = 0;
            for (sequence, (delay, step, pop)) in ops.into_iter().enumerate() {
                now += step / 4;
                transit.push(now + delay, 1, sequence);
                model.push((now + delay, sequence));
                model.sort_unstable();
                prop_assert_eq!(transit.next_arrival(), model.first().map(|first| first.0));
                while pop && model.first().is_some_and(|first| first.0 <= now) {
                    let expected = model.remove(0);
                    let got = next(&mut transit, now);
                    prop_assert_eq!(got, Some(expected));
                }
                if pop {
                    prop_assert!(next(&mut transit, now).is_none());
                }
                prop_assert_eq!(transit.len(), model.len());
            }
            for expected in model {
                prop_assert_eq!(next(&mut transit, u64::MAX), Some(expected));
            }
            prop_assert!(next(&mut transit, u64::MAX).is_none() && transit.next_arrival().is_none());
        }
    }
}
