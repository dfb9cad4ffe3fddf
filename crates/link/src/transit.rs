//! Packets that have left the queue and have not arrived: handed out in order of (arrival, sequence number).
//!
//! Arrivals mostly come in order: those are in a ring, cheap at both ends. From the first packet on that overtakes
//! another, until none is left, packets lie in slots, and a line of where they are is kept in order: one that overtakes goes
//! to its place from the line's end, where jitter mostly wants it, and what is due is at the line's beginning.
//!
//! A packet that would go further forward than `NEAR` places is put aside, in a heap. While that holds anything, all that
//! overtake go there, and the line's last arrives later than all of them; so whatever shares an arrival with the heap's first
//! and is in the line came before it: ties go to the line, and only the heap needs sequence numbers.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use crate::Nanos;

/// How many a packet may overtake before a heap is cheaper.
const NEAR: usize = if cfg!(test) { 4 } else { 128 };

#[derive(Debug)]
pub(crate) struct Transit<T> {
    /// All packets, while none overtakes another; else empty.
    ring: VecDeque<Arrival<T>>,
    line: Line,
    far: BinaryHeap<Overtaker>,
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

/// Where a packet is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Place {
    at: Nanos,
    len: u32,
    slot: u32,
}

/// Places in order of arrival.
#[derive(Debug, Default)]
struct Line {
    /// Those before `start` have arrived.
    places: Vec<Place>,
    start: usize,
}

impl Line {
    #[inline]
    fn len(&self) -> usize {
        self.places.len() - self.start
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.start == self.places.len()
    }

    #[inline]
    fn iter(&self) -> impl Iterator<Item = &Place> {
        self.places[self.start..].iter()
    }

    #[inline]
    fn first(&self) -> Option<Place> {
        self.places.get(self.start).copied()
    }

    /// Whether a packet that arrives then overtakes `count` at least.
    #[inline]
    fn overtaken_by(&self, at: Nanos, count: usize) -> bool {
        self.len() >= count && self.places[self.places.len() - count].at > at
    }

    /// Puts one behind all that arrive no later.
    #[inline]
    fn insert(&mut self, place: Place) {
        self.places.push(place);
        let line = &mut self.places[self.start..];
        let mut index = line.len() - 1;
        while index > 0 && line[index - 1].at > place.at {
            line[index] = line[index - 1];
            index -= 1;
        }
        line[index] = place;
    }

    #[inline]
    fn drop_first(&mut self) {
        self.start += 1;
        if self.start >= NEAR && 2 * self.start >= self.places.len() {
            self.tidy();
        }
    }

    /// Forgets what has arrived: each place is moved once at most for each that is forgotten.
    #[cold]
    fn tidy(&mut self) {
        self.places.drain(..self.start);
        self.start = 0;
    }
}

/// A packet that was put aside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Overtaker {
    place: Place,
    sequence: u64,
}

impl Overtaker {
    fn key(&self) -> u128 {
        (u128::from(self.place.at) << 64) | u128::from(self.sequence)
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
            line: Line::default(),
            far: BinaryHeap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            sequence: 0,
            first: Nanos::MAX,
        }
    }

    /// Packets in flight.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.ring.len() + self.line.len() + self.far.len()
    }

    #[inline]
    pub(crate) fn push(&mut self, at: Nanos, len: u32, packet: T) {
        self.first = self.first.min(at);
        if self.ring.back().is_some_and(|last| at >= last.at) {
            self.ring.push_back(Arrival { at, len, packet });
        } else {
            self.push_elsewhere(at, len, packet);
        }
    }

    /// It is the first, or overtakes another, or that has happened before.
    #[inline(never)]
    fn push_elsewhere(&mut self, at: Nanos, len: u32, packet: T) {
        if self.line.is_empty() {
            if self.ring.is_empty() {
                self.ring.push_back(Arrival { at, len, packet });
                return;
            }
            self.line_up();
        }
        let place = Place { at, len, slot: self.keep(packet) };
        if self.line.overtaken_by(at, NEAR) || (!self.far.is_empty() && self.line.overtaken_by(at, 1)) {
            self.far.push(Overtaker { place, sequence: self.sequence });
            self.sequence += 1;
        } else {
            self.line.insert(place);
        }
    }

    /// One is about to overtake another.
    #[cold]
    fn line_up(&mut self) {
        while let Some(Arrival { at, len, packet }) = self.ring.pop_front() {
            let slot = self.keep(packet);
            self.line.insert(Place { at, len, slot });
        }
    }

    /// Puts a packet into a slot.
    #[inline(always)]
    fn keep(&mut self, packet: T) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = Some(packet);
            return slot;
        }
        self.slots.push(Some(packet));
        (self.slots.len() - 1) as u32
    }

    /// When the next packet arrives.
    #[inline]
    pub(crate) fn next_arrival(&self) -> Option<Nanos> {
        (self.first != Nanos::MAX).then_some(self.first)
    }

    /// The next to arrive, but for those that were put aside.
    #[inline]
    pub(crate) fn upcoming(&self) -> impl Iterator<Item = &T> {
        let lined_up = self.line.iter().filter_map(|place| self.slots[place.slot as usize].as_ref());
        self.ring.iter().map(|arrival| &arrival.packet).chain(lined_up)
    }

    /// All packets in the order in which they arrive, if none has overtaken another.
    #[inline]
    pub(crate) fn in_order(&self) -> Option<&VecDeque<Arrival<T>>> {
        self.line.is_empty().then_some(&self.ring)
    }

    /// Drops the next `count` packets, of which none has overtaken another, and says their length.
    pub(crate) fn drop_first(&mut self, count: usize) -> u64 {
        let count = count.min(self.ring.len());
        let len = self.ring.drain(..count).map(|arrival| u64::from(arrival.len)).sum();
        self.first = self.ring.front().map_or(Nanos::MAX, |next| next.at);
        len
    }

    /// The next packet, if it has arrived by `now`.
    #[inline]
    pub(crate) fn pop(&mut self, now: Nanos) -> Option<Arrival<T>> {
        if self.first > now {
            return None;
        }
        if !self.line.is_empty() {
            return self.pop_lined_up();
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
        if !self.line.is_empty() {
            return self.due_lined_up();
        }
        self.ring.front_mut().map(|arrival| &mut arrival.packet)
    }

    /// Drops what [`due`](Self::due) has just shown, and says its length: it isn't moved.
    #[inline]
    pub(crate) fn drop_due(&mut self) -> u32 {
        if !self.line.is_empty() {
            return self.drop_lined_up();
        }
        let len = self.ring.front().map_or(0, |first| first.len);
        self.ring.pop_front();
        self.first = self.ring.front().map_or(Nanos::MAX, |next| next.at);
        len
    }

    #[inline(never)]
    fn due_lined_up(&mut self) -> Option<&mut T> {
        let mut next = self.line.first()?;
        if let Some(far) = self.far.peek()
            && far.place.at < next.at
        {
            next = far.place;
        }
        self.slots[next.slot as usize].as_mut()
    }

    #[inline(never)]
    fn drop_lined_up(&mut self) -> u32 {
        let Some(place) = self.take_place() else { return 0 };
        self.slots[place.slot as usize] = None;
        place.len
    }

    #[inline(never)]
    fn pop_lined_up(&mut self) -> Option<Arrival<T>> {
        let Place { at, len, slot } = self.take_place()?;
        Some(Arrival { at, len, packet: self.slots[slot as usize].take()? })
    }

    /// The place of the next packet; what is there is the caller's to take.
    #[inline]
    fn take_place(&mut self) -> Option<Place> {
        let mut next = self.line.first()?;
        if self.far.peek().is_some_and(|far| far.place.at < next.at) {
            next = self.far.pop()?.place;
        } else {
            self.line.drop_first();
        }
        self.free.push(next.slot);
        // What was put aside arrives before the line's last.
        self.first = self.line.first().map_or(Nanos::MAX, |next| next.at);
        if let Some(far) = self.far.peek() {
            self.first = self.first.min(far.place.at);
        }
        Some(next)
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
