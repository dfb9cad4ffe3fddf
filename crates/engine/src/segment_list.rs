//! Segments of a stream that arrived out of order, as subflows and connections keep them: disjoint and
//! sorted.
//!
//! A list rather than a tree: nearly all segments are inserted at one of its ends. The memory of each piece
//! is counted, not only its bytes, since a peer may send segments of one byte (Linux's `truesize`).

use ropewalk_wire::Payload;

use crate::chunked_list::ChunkedList;

/// Memory of a piece beside its bytes: its entry, twice since the list may have twice the capacity that it
/// uses, and the overhead of the allocation.
const OVERHEAD: u64 = 256;

/// Memory that a list may take whatever the window is.
const LEAST_BUDGET: u64 = 128 << 10;

/// The memory that out-of-order data may take with a window of so many bytes. Full-sized segments take a
/// fifth more than their bytes.
pub(crate) fn budget(window: u64) -> u64 {
    (2 * window).max(LEAST_BUDGET)
}

/// What is kept with a piece.
pub(crate) trait Note: Copy + Default {
    /// The note of the data `skip` bytes later.
    fn after(self, skip: u64) -> Self;
}

impl Note for () {
    fn after(self, _: u64) {}
}

/// Disjoint pieces, sorted by offset, each with a note.
#[derive(Debug)]
pub(crate) struct SegmentList<P, N = ()> {
    list: ChunkedList<(u64, P, N)>,
    bytes: u64,
}

/// Where to insert a piece of which nothing is stored yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Gap {
    index: usize,
    /// Whether the piece before ends where it begins, and the one after begins where it ends.
    pub(crate) joins: (bool, bool),
}

impl<P: Payload, N: Note> SegmentList<P, N> {
    pub fn new() -> Self {
        SegmentList { list: ChunkedList::new(), bytes: 0 }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Bytes of all pieces.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Removes the first piece if it begins at `next` or before.
    #[inline]
    pub fn pop_before(&mut self, next: u64) -> Option<(u64, P, N)> {
        if self.list.front()?.0 > next {
            return None;
        }
        let first = self.list.pop_front()?;
        self.bytes -= first.1.len() as u64;
        Some(first)
    }

    /// Number of pieces.
    #[inline]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Appends a piece after all others.
    #[inline]
    pub fn append(&mut self, offset: u64, piece: P, note: N) {
        self.bytes += piece.len() as u64;
        self.list.push_back((offset, piece, note));
    }

    /// The pieces.
    pub fn iter(&self) -> impl Iterator<Item = &(u64, P, N)> {
        self.list.iter()
    }

    /// Memory of all pieces.
    #[inline]
    pub fn memory(&self) -> u64 {
        self.bytes + self.list.len() as u64 * OVERHEAD
    }

    /// Makes room for a piece at `offset`: drops pieces after it, the last first, while all together take
    /// more than `budget`. Calls `dropped` with the range of each. Returns false if that isn't enough.
    pub fn make_room(&mut self, offset: u64, budget: u64, mut dropped: impl FnMut(u64, u64)) -> bool {
        while self.memory() >= budget {
            if self.list.back().is_none_or(|(start, ..)| *start <= offset) {
                return false;
            }
            if let Some((start, piece, _)) = self.list.pop_back() {
                self.bytes -= piece.len() as u64;
                dropped(start, start + piece.len() as u64);
            }
        }
        true
    }

    /// Where to insert `offset..end`, if nothing of it is stored.
    #[inline]
    pub fn gap(&self, offset: u64, end: u64) -> Option<Gap> {
        let index = self.begun(offset);
        let before = match index.checked_sub(1) {
            Some(before) => self.list.get(before).map_or(0, |(start, piece, _)| start + piece.len() as u64),
            None => 0,
        };
        let after = self.list.get(index).map_or(u64::MAX, |(start, ..)| *start);
        let gap = Gap { index, joins: (before == offset && index > 0, after == end) };
        (before <= offset && end <= after).then_some(gap)
    }

    pub fn clear(&mut self) {
        self.list.clear();
        self.bytes = 0;
    }

    /// Frees unused memory.
    pub fn shrink(&mut self) {
        self.list.shrink();
    }

    /// Whether nothing before `end` is stored.
    #[inline]
    pub fn begins_from(&self, end: u64) -> bool {
        self.list.front().is_none_or(|(start, ..)| *start >= end)
    }

    /// How many pieces begin at `offset` or before.
    #[inline]
    fn begun(&self, offset: u64) -> usize {
        match (self.list.front(), self.list.back()) {
            (_, Some((start, ..))) if *start <= offset => self.list.len(),
            (Some((start, ..)), _) if *start <= offset => self.begun_within(offset),
            _ => 0,
        }
    }

    #[inline(never)]
    fn begun_within(&self, offset: u64) -> usize {
        self.list.partition_point(|(start, ..)| *start <= offset)
    }

    fn keep(&mut self, index: usize, offset: u64, piece: P, note: N) {
        self.bytes += piece.len() as u64;
        self.list.insert(index, (offset, piece, note));
    }

    /// Inserts `data` into a gap that was found for it.
    #[inline]
    pub fn fill_gap(&mut self, gap: Gap, offset: u64, data: P, note: N) {
        self.keep(gap.index, offset, data, note);
    }

    /// Inserts the parts of `data` that aren't stored yet. Calls `repeated` with each range that is.
    #[inline]
    pub fn fill(&mut self, offset: u64, data: P, note: N, there: impl FnMut(u64, u64)) {
        if self.list.back().is_none_or(|(start, piece, _)| start + piece.len() as u64 <= offset) {
            return self.append(offset, data, note);
        }
        self.fill_among(offset, data, note, there);
    }

    /// The same, where there are pieces after its beginning.
    #[inline(never)]
    fn fill_among(&mut self, offset: u64, data: P, note: N, mut there: impl FnMut(u64, u64)) {
        let end = offset + data.len() as u64;
        let mut index = self.begun(offset);
        let mut at = offset;
        if let Some((start, piece, _)) = index.checked_sub(1).and_then(|before| self.list.get(before)) {
            let covered = (start + piece.len() as u64).min(end);
            if covered > at {
                there(at, covered);
                at = covered;
            }
        }
        if at == offset && self.list.get(index).is_none_or(|(start, ..)| *start >= end) {
            self.keep(index, offset, data, note);
            return;
        }
        while at < end {
            let (gap_end, entry_end) = match self.list.get(index) {
                Some((start, piece, _)) if *start < end => (*start, start + piece.len() as u64),
                _ => (end, end),
            };
            if gap_end > at {
                let part = data.slice((at - offset) as usize, (gap_end - offset) as usize);
                self.keep(index, at, part, note.after(at - offset));
                index += 1;
            }
            if entry_end > gap_end {
                there(gap_end, entry_end.min(end));
                index += 1;
            }
            at = entry_end;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ropewalk_wire::SyntheticPayload;

    use super::{OVERHEAD, SegmentList, budget};

    proptest! {
        /// With any overlaps, every byte is stored once, and each repeated byte is reported.
        #[test]
        fn every_byte_once(ranges in proptest::collection::vec((0u64..120, 1u64..50), 1..25)) {
            let mut pieces: SegmentList<SyntheticPayload> = SegmentList::new();
            let mut known = [false; 200];
            for (offset, len) in ranges {
                let mut repeated = [false; 200];
                pieces.fill(offset, SyntheticPayload(len as u32), (), |from, to| {
                    repeated[from as usize..to as usize].fill(true);
                });
                for at in offset..offset + len {
                    prop_assert_eq!(repeated[at as usize], known[at as usize], "{}", at);
                    known[at as usize] = true;
                }
                prop_assert!(!repeated[..offset as usize].contains(&true));
                prop_assert!(!repeated[(offset + len) as usize..].contains(&true));
            }
            prop_assert_eq!(pieces.bytes(), known.iter().filter(|byte| **byte).count() as u64);
            let mut end = 0;
            while let Some((start, piece, ())) = pieces.pop_before(u64::MAX) {
                prop_assert!(start >= end);
                end = start + u64::from(piece.0);
                prop_assert!(!known[start as usize..end as usize].contains(&false));
            }
            prop_assert_eq!(pieces.bytes(), 0);
        }
    }

    #[test]
    fn one_byte_pieces_are_dropped_from_the_end_or_refused() {
        let mut pieces: SegmentList<SyntheticPayload> = SegmentList::new();
        let budget = budget(0);
        let most = budget.div_ceil(1 + OVERHEAD);
        let mut dropped = Vec::new();
        for n in 0..most {
            assert!(pieces.make_room(1000 + 2 * n, budget, |from, to| dropped.push((from, to))));
            pieces.fill(1000 + 2 * n, SyntheticPayload(1), (), |_, _| {});
        }
        assert!(!pieces.make_room(1000 + 2 * most, budget, |from, to| dropped.push((from, to))));
        assert_eq!((pieces.bytes(), dropped.as_slice()), (most, &[][..]));
        assert!(
            pieces.make_room(0, budget, |from, to| dropped.push((from, to))),
            "what is needed first stays"
        );
        let last = 1000 + 2 * (most - 1);
        assert_eq!((pieces.bytes(), dropped.as_slice()), (most - 1, &[(last, last + 1)][..]));
    }

    /// A piece takes no more memory than is counted for it.
    #[test]
    fn the_overhead_covers_what_a_piece_takes() {
        let entry = size_of::<(u64, bytes::Bytes, crate::tcp::Mapping)>();
        // An allocation of its bytes, with a reference count of three words, rounded up to 16 bytes and with
        // a word of its own.
        let allocations = (3 * size_of::<usize>() + 8 + 16) + 16;
        assert!(2 * entry + allocations <= OVERHEAD as usize, "{entry} {allocations}");
    }
}
