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
    ring: VecDeque<Arrival<T>>,
    overtakers: BinaryHeap<Overtaker>,
    slots: Vec<Option<T>>,
    free: Vec<u32>,
    sequence: u64,
    /// When the first arrives; `Nanos::MAX`: none does, ever.
    first: Nanos,
}

/// A packet, and when it arrives.
#[derive(Debug)]
pub(crate) struct Arrival<T> {
    pub(crate) at: Nanos,
    /// IP bytes.
    pub(crate) len: u32,
    pub(crate) packet: T,
}

/// A packet that is in a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Overtaker {
    at: Nanos,
    sequence: u64,
    len: u32,
    slot: u32,
}

impl Overtaker {
    fn key(&self) -> u128 {
        (u128::from(self.at) << 64) | u128::from(self.sequence)
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
            first: Nanos::MAX,
        }
    }

    /// Packets in flight.
    pub(crate) fn len(&self) -> usize {
        self.ring.len() + self.overtakers.len()
    }

    #[inline]
    pub(crate) fn push(&mut self, at: Nanos, len: u32, packet: T) {
        self.first = self.first.min(at);
        if self.ring.back().is_some_and(|last| at < last.at) {
            self.push_overtaker(at, len, packet);
        } else {
            self.ring.push_back(Arrival { at, len, packet });
        }
    }

    #[inline(never)]
    fn push_overtaker(&mut self, at: Nanos, len: u32, packet: T) {
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(packet);
                slot
            }
            None => {
                self.slots.push(Some(packet));
                (self.slots.len() - 1) as u32
            }
        };
        self.overtakers.push(Overtaker { at, sequence: self.sequence, len, slot });
        self.sequence += 1;
    }

    /// When the next packet arrives.
    #[inline]
    pub(crate) fn next_arrival(&self) -> Option<Nanos> {
        (self.first != Nanos::MAX).then_some(self.first)
    }

    /// The next to arrive, but for those that overtake.
    #[inline]
    pub(crate) fn upcoming(&self) -> impl Iterator<Item = &T> {
        self.ring.iter().map(|arrival| &arrival.packet)
    }

    /// The next packet, if it has arrived by `now`.
    #[inline]
    pub(crate) fn pop(&mut self, now: Nanos) -> Option<Arrival<T>> {
        if self.first > now {
            return None;
        }
        if !self.overtakers.is_empty() {
            return self.pop_among_overtakers();
        }
        let first = self.ring.pop_front();
        self.first = self.ring.front().map_or(Nanos::MAX, |next| next.at);
        first
    }

    /// The next packet, if it has arrived by `now`, where it lies.
    #[inline]
    pub(crate) fn due(&mut self, now: Nanos) -> Option<&mut T> {
        if self.first > now {
            return None;
        }
        if !self.overtakers.is_empty() {
            return self.due_among_overtakers();
        }
        self.ring.front_mut().map(|arrival| &mut arrival.packet)
    }

    /// Drops what [`due`](Self::due) has just shown, and says its length: it isn't moved.
    #[inline]
    pub(crate) fn drop_due(&mut self) -> u32 {
        if !self.overtakers.is_empty() {
            return self.pop_among_overtakers().map_or(0, |arrival| arrival.len);
        }
        let len = self.ring.front().map_or(0, |first| first.len);
        self.ring.pop_front();
        self.first = self.ring.front().map_or(Nanos::MAX, |next| next.at);
        len
    }

    #[inline(never)]
    fn due_among_overtakers(&mut self) -> Option<&mut T> {
        let ring = self.ring.front_mut()?;
        match self.overtakers.peek() {
            Some(overtaker) if overtaker.at < ring.at => self.slots[overtaker.slot as usize].as_mut(),
            _ => Some(&mut ring.packet),
        }
    }

    #[inline(never)]
    fn pop_among_overtakers(&mut self) -> Option<Arrival<T>> {
        // While there are overtakers, the ring isn't empty.
        let ring = self.ring.front()?.at;
        let arrival = match self.overtakers.peek() {
            Some(overtaker) if overtaker.at < ring => {
                let Overtaker { at, len, slot, .. } = self.overtakers.pop()?;
                self.free.push(slot);
                Arrival { at, len, packet: self.slots[slot as usize].take()? }
            }
            _ => self.ring.pop_front()?,
        };
        let first = |at: Option<Nanos>| at.unwrap_or(Nanos::MAX);
        self.first =
            first(self.ring.front().map(|next| next.at)).min(first(self.overtakers.peek().map(|o| o.at)));
        Some(arrival)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn next(transit: &mut Transit<usize>, now: Nanos) -> Option<(Nanos, usize)> {
        transit.pop(now).map(|arrival| (arrival.at, arrival.packet))
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
                    prop_assert_eq!(transit.due(now).copied(), Some(expected.1));
                    if expected.1.is_multiple_of(3) {
                        prop_assert_eq!(transit.drop_due(), 1);
                        continue;
                    }
                    let got = next(&mut transit, now);
                    prop_assert_eq!(got, Some(expected));
                }
                if pop {
                    prop_assert!(next(&mut transit, now).is_none());
                }
                prop_assert_eq!(transit.len(), model.len());
                let upcoming: Vec<usize> = transit.upcoming().copied().collect();
                prop_assert!(upcoming.iter().is_sorted_by_key(|known| model.iter().position(|(_, n)| *n == *known)));
            }
            for expected in model {
                prop_assert_eq!(next(&mut transit, u64::MAX), Some(expected));
            }
            prop_assert!(next(&mut transit, u64::MAX).is_none() && transit.next_arrival().is_none());
        }
    }
}
