//! Packets in flight, in order of (arrival, sequence number).
//!
//! Mostly packets arrive in the order of their departure: those are in a ring. From the first packet that is
//! reordered until none is left, packets are in slots, and a sorted list says in which: a packet is inserted
//! from the list's end, where jitter mostly puts it, and the next arrival is at its beginning.
//!
//! A packet that overtakes `NEAR` others or more goes to a heap. While the heap isn't empty, every packet
//! that is reordered goes there, and the list's last arrives later than all of them. So of packets with the
//! same arrival the one in the list departed first, and only the heap needs sequence numbers.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use ropewalk_time::Time;

/// How many a packet may overtake before a heap is cheaper.
const NEAR: usize = if cfg!(test) { 4 } else { 128 };

#[derive(Debug)]
pub(crate) struct Transit<T> {
    /// All packets, while none overtakes another; else empty.
    ring: VecDeque<Arrival<T>>,
    sorted: SortedEntries,
    far: BinaryHeap<FarEntry>,
    slots: Vec<Option<T>>,
    free: Vec<u32>,
    sequence: u64,
    /// When the first arrives; `Time::MAX`: none does, ever.
    first: Time,
}

/// A packet, and when it arrives.
#[derive(Debug)]
pub(crate) struct Arrival<T> {
    pub(crate) at: Time,
    /// IP bytes.
    pub(crate) len: u32,
    pub(crate) packet: T,
}

/// When a packet arrives, its length, and its slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Entry {
    at: Time,
    len: u32,
    slot: u32,
}

/// Entries in order of arrival.
#[derive(Debug, Default)]
struct SortedEntries {
    /// Entries before `start` have arrived.
    entries: Vec<Entry>,
    start: usize,
}

impl SortedEntries {
    #[inline]
    fn len(&self) -> usize {
        self.entries.len() - self.start
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.start == self.entries.len()
    }

    #[inline]
    fn first(&self) -> Option<Entry> {
        self.entries.get(self.start).copied()
    }

    /// Whether a packet that arrives at `at` overtakes `count` others at least.
    #[inline]
    fn overtaken_by(&self, at: Time, count: usize) -> bool {
        self.len() >= count && self.entries[self.entries.len() - count].at > at
    }

    /// Inserts an entry after all that arrive no later.
    #[inline]
    fn insert(&mut self, entry: Entry) {
        self.entries.push(entry);
        let entries = &mut self.entries[self.start..];
        let mut index = entries.len() - 1;
        while index > 0 && entries[index - 1].at > entry.at {
            entries[index] = entries[index - 1];
            index -= 1;
        }
        entries[index] = entry;
    }

    #[inline]
    fn drop_first(&mut self) {
        self.start += 1;
        if self.start >= NEAR && 2 * self.start >= self.entries.len() {
            self.compact();
        }
    }

    /// Removes what has arrived. Each entry is moved once at most per removed entry.
    #[cold]
    fn compact(&mut self) {
        self.entries.drain(..self.start);
        self.start = 0;
    }
}

/// A packet in the heap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FarEntry {
    entry: Entry,
    sequence: u64,
}

impl FarEntry {
    fn key(&self) -> u128 {
        (u128::from(self.entry.at.as_nanos()) << 64) | u128::from(self.sequence)
    }
}

/// Reversed: the heap's greatest element arrives first.
impl Ord for FarEntry {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl PartialOrd for FarEntry {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Transit<T> {
    pub(crate) fn new() -> Self {
        Transit {
            ring: VecDeque::new(),
            sorted: SortedEntries::default(),
            far: BinaryHeap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            sequence: 0,
            first: Time::MAX,
        }
    }

    /// Packets in flight.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.ring.len() + self.sorted.len() + self.far.len()
    }

    #[inline]
    pub(crate) fn push(&mut self, at: Time, len: u32, packet: T) {
        self.first = self.first.min(at);
        if self.ring.back().is_some_and(|last| at >= last.at) {
            self.ring.push_back(Arrival { at, len, packet });
        } else {
            self.push_reordered(at, len, packet);
        }
    }

    /// The first packet, one that overtakes another, or one after such a packet.
    #[inline(never)]
    fn push_reordered(&mut self, at: Time, len: u32, packet: T) {
        if self.sorted.is_empty() {
            if self.ring.is_empty() {
                self.ring.push_back(Arrival { at, len, packet });
                return;
            }
            self.move_to_slots();
        }
        let entry = Entry { at, len, slot: self.store(packet) };
        // While the heap isn't empty, reordered packets of the same arrival are in one place,
        // and the order of departure is known.
        if self.sorted.overtaken_by(at, NEAR) || (!self.far.is_empty() && self.sorted.overtaken_by(at, 1)) {
            self.far.push(FarEntry { entry, sequence: self.sequence });
            self.sequence += 1;
        } else {
            self.sorted.insert(entry);
        }
    }

    /// Moves the packets of the ring to slots.
    #[cold]
    fn move_to_slots(&mut self) {
        while let Some(Arrival { at, len, packet }) = self.ring.pop_front() {
            let slot = self.store(packet);
            self.sorted.insert(Entry { at, len, slot });
        }
    }

    /// Stores a packet in a slot.
    #[inline(always)]
    fn store(&mut self, packet: T) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = Some(packet);
            return slot;
        }
        self.slots.push(Some(packet));
        (self.slots.len() - 1) as u32
    }

    /// When the next packet arrives.
    #[inline]
    pub(crate) fn next_arrival(&self) -> Option<Time> {
        (self.first != Time::MAX).then_some(self.first)
    }

    /// All packets in order of arrival, if none is reordered.
    #[inline]
    pub(crate) fn in_order(&self) -> Option<&VecDeque<Arrival<T>>> {
        self.sorted.is_empty().then_some(&self.ring)
    }

    /// Removes the next `count` packets, of which none is reordered; returns their length.
    pub(crate) fn drop_first(&mut self, count: usize) -> u64 {
        let count = count.min(self.ring.len());
        let len = self.ring.drain(..count).map(|arrival| u64::from(arrival.len)).sum();
        self.first = self.ring.front().map_or(Time::MAX, |next| next.at);
        len
    }

    /// The next packet, if it has arrived by `now`.
    #[inline]
    pub(crate) fn pop(&mut self, now: Time) -> Option<Arrival<T>> {
        if self.first > now {
            return None;
        }
        if !self.sorted.is_empty() {
            return self.pop_sorted();
        }
        let first = self.ring.pop_front();
        self.first = self.ring.front().map_or(Time::MAX, |next| next.at);
        first
    }

    /// As [`pop`](Self::pop), without moving the packet.
    #[inline]
    pub(crate) fn due(&mut self, now: Time) -> Option<&mut T> {
        if self.first > now {
            return None;
        }
        if !self.sorted.is_empty() {
            return self.due_sorted();
        }
        self.ring.front_mut().map(|arrival| &mut arrival.packet)
    }

    /// Removes the packet that [`due`](Self::due) has just returned; returns its length.
    #[inline]
    pub(crate) fn drop_due(&mut self) -> u32 {
        if !self.sorted.is_empty() {
            return self.drop_sorted();
        }
        let len = self.ring.pop_front().map_or(0, |first| first.len);
        self.first = self.ring.front().map_or(Time::MAX, |next| next.at);
        len
    }

    #[inline(never)]
    fn due_sorted(&mut self) -> Option<&mut T> {
        let mut next = self.sorted.first()?;
        if let Some(far) = self.far.peek()
            && far.entry.at < next.at
        {
            next = far.entry;
        }
        self.slots[next.slot as usize].as_mut()
    }

    #[inline(never)]
    fn drop_sorted(&mut self) -> u32 {
        let Some(entry) = self.take_entry() else { return 0 };
        self.slots[entry.slot as usize] = None;
        entry.len
    }

    #[inline(never)]
    fn pop_sorted(&mut self) -> Option<Arrival<T>> {
        let Entry { at, len, slot } = self.take_entry()?;
        Some(Arrival { at, len, packet: self.slots[slot as usize].take()? })
    }

    /// Removes the entry of the next packet; the caller removes the packet from its slot.
    #[inline]
    fn take_entry(&mut self) -> Option<Entry> {
        let mut next = self.sorted.first()?;
        if self.far.peek().is_some_and(|far| far.entry.at < next.at) {
            next = self.far.pop()?.entry;
        } else {
            self.sorted.drop_first();
        }
        self.free.push(next.slot);
        // Packets in the heap arrive before the list's last.
        self.first = self.sorted.first().map_or(Time::MAX, |next| next.at);
        if let Some(far) = self.far.peek() {
            self.first = self.first.min(far.entry.at);
        }
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ropewalk_time::Span;

    use super::*;

    fn next(transit: &mut Transit<usize>, now: Time) -> Option<(Time, usize)> {
        transit.pop(now).map(|arrival| (arrival.at, arrival.packet))
    }

    proptest! {
        /// The structure against a sorted list, pushes and pops mixed.
        #[test]
        fn hands_out_by_arrival_then_sequence(
            ops in prop::collection::vec((0u64..40, 0u64..12, any::<bool>()), 1..300),
        ) {
            let mut transit = Transit::new();
            let mut model: Vec<(Time, usize)> = Vec::new();
            let mut now = Time::ZERO;
            for (sequence, (delay, step, pop)) in ops.into_iter().enumerate() {
                now += Span::from_nanos(step / 4);
                let delay = Span::from_nanos(delay);
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
                if let Some(ring) = transit.in_order() {
                    let all = ring.iter().map(|arrival| (arrival.at, arrival.packet));
                    prop_assert!(all.eq(model.iter().copied()));
                }
            }
            for expected in model {
                prop_assert_eq!(next(&mut transit, Time::MAX), Some(expected));
            }
            prop_assert!(next(&mut transit, Time::MAX).is_none() && transit.next_arrival().is_none());
        }
    }
}
