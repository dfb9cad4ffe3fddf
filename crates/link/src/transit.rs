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
    ring: VecDeque<InFlight<T>>,
    overtakers: BinaryHeap<Overtaker>,
    slots: Vec<Option<InFlight<T>>>,
    free: Vec<u32>,
    sequence: u64,
}

#[derive(Debug)]
pub(crate) struct InFlight<T> {
    pub(crate) arrival: Nanos,
    /// IP bytes.
    pub(crate) len: u32,
    pub(crate) packet: T,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Overtaker {
    arrival: Nanos,
    sequence: u64,
    slot: u32,
}

impl Overtaker {
    fn key(&self) -> u128 {
        (u128::from(self.arrival) << 64) | u128::from(self.sequence)
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
        match self.ring.back() {
            Some(last) if arrival < last.arrival => self.push_overtaker(InFlight { arrival, len, packet }),
            _ => self.ring.push_back(InFlight { arrival, len, packet }),
        }
    }

    fn push_overtaker(&mut self, in_flight: InFlight<T>) {
        let arrival = in_flight.arrival;
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(in_flight);
                slot
            }
            None => {
                self.slots.push(Some(in_flight));
                (self.slots.len() - 1) as u32
            }
        };
        self.overtakers.push(Overtaker { arrival, sequence: self.sequence, slot });
        self.sequence += 1;
    }

    /// When the next packet arrives.
    #[inline]
    pub(crate) fn next_arrival(&self) -> Option<Nanos> {
        let ring = self.ring.front().map(|first| first.arrival);
        match self.overtakers.peek() {
            // The ring isn't empty, and its last is later than this one.
            Some(overtaker) => ring.map(|arrival| arrival.min(overtaker.arrival)),
            None => ring,
        }
    }

    /// The next packet that has arrived by `now`.
    #[inline]
    pub(crate) fn pop(&mut self, now: Nanos) -> Option<InFlight<T>> {
        let first = self.ring.front()?.arrival;
        if let Some(overtaker) = self.overtakers.peek()
            && overtaker.arrival < first
        {
            return if overtaker.arrival <= now { self.pop_overtaker() } else { None };
        }
        if first <= now { self.ring.pop_front() } else { None }
    }

    fn pop_overtaker(&mut self) -> Option<InFlight<T>> {
        let Overtaker { slot, .. } = self.overtakers.pop()?;
        self.free.push(slot);
        self.slots[slot as usize].take()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
                    let got = transit.pop(now).map(|got| (got.arrival, got.packet));
                    prop_assert_eq!(got, Some(expected));
                }
                if pop {
                    prop_assert!(transit.pop(now).is_none());
                }
                prop_assert_eq!(transit.len(), model.len());
            }
            for expected in model {
                prop_assert_eq!(transit.pop(u64::MAX).map(|got| (got.arrival, got.packet)), Some(expected));
            }
            prop_assert!(transit.pop(u64::MAX).is_none() && transit.next_arrival().is_none());
        }
    }
}
