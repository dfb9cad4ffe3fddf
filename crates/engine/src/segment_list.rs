//! Segments of a stream that arrived out of order, as subflows and connections keep them: disjoint and sorted.
//!
//! A ring rather than a tree: what arrives goes to one of its ends nearly always, and the rest moves few bytes.

use std::collections::VecDeque;

use ropewalk_wire::Payload;

/// Most pieces that are kept. A window's worth of whole segments is far less; more are a peer's that sends crumbs, so
/// that each costs more to keep than it brings. What comes beyond is taken as lost on the way.
const MOST: usize = 1 << 18;

/// What is kept with a piece.
pub(crate) trait Note: Copy + Default {
    /// The note of what comes `skip` bytes later.
    fn after(self, skip: u64) -> Self;
}

impl Note for () {
    fn after(self, _: u64) {}
}

/// Disjoint pieces by their offsets. With each comes a note.
#[derive(Debug)]
pub(crate) struct SegmentList<P, N = ()> {
    list: VecDeque<(u64, P, N)>,
    bytes: u64,
}

/// Where a piece belongs of which nothing is there yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Gap {
    index: usize,
    /// Whether the piece before ends where it begins, and the one after begins where it ends.
    pub(crate) joins: (bool, bool),
}

impl<P: Payload, N: Note> SegmentList<P, N> {
    pub fn new() -> Self {
        SegmentList { list: VecDeque::new(), bytes: 0 }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// What is kept, in bytes.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes the first piece if it begins at `next` or before.
    #[inline]
    pub fn pop_before(&mut self, next: u64) -> Option<(u64, P, N)> {
        if self.list.front()?.0 > next {
            return None;
        }
        let first = self.list.pop_front()?;
        self.bytes -= first.1.len() as u64;
        Some(first)
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Keeps a piece that comes after all others.
    pub fn append(&mut self, offset: u64, piece: P, note: N) {
        self.keep(self.list.len(), offset, piece, note);
    }

    /// The pieces.
    pub fn iter(&self) -> impl Iterator<Item = &(u64, P, N)> {
        self.list.iter()
    }

    /// Where `offset..end` belongs, if nothing of it is there and there is room for it.
    #[inline]
    pub fn gap(&self, offset: u64, end: u64) -> Option<Gap> {
        let index = self.begun(offset);
        let before = match index.checked_sub(1) {
            Some(before) => self.list.get(before).map_or(0, |(start, piece, _)| start + piece.len() as u64),
            None => 0,
        };
        let after = self.list.get(index).map_or(u64::MAX, |(start, ..)| *start);
        let gap = Gap { index, joins: (before == offset && index > 0, after == end) };
        (before <= offset && end <= after && self.list.len() < MOST).then_some(gap)
    }

    pub fn clear(&mut self) {
        self.list.clear();
        self.bytes = 0;
    }

    /// Whether nothing is kept before `end`.
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
        if index == self.list.len() {
            self.list.push_back((offset, piece, note));
        } else if index == 0 {
            self.list.push_front((offset, piece, note));
        } else {
            self.list.insert(index, (offset, piece, note));
        }
    }

    /// Keeps `data` in the gap that was found for it.
    #[inline]
    pub fn fill_gap(&mut self, gap: Gap, offset: u64, data: P, note: N) {
        self.keep(gap.index, offset, data, note);
    }

    /// Keeps the parts of `data` that aren't there yet, and tells of each range that was. False if there are too many
    /// pieces already: nothing is kept.
    #[inline]
    pub fn fill(&mut self, offset: u64, data: P, note: N, mut there: impl FnMut(u64, u64)) -> bool {
        if self.list.len() >= MOST {
            return false;
        }
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
            return true;
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
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ropewalk_wire::SyntheticPayload;

    use super::{MOST, SegmentList};

    proptest! {
        /// Whatever overlaps: every byte is kept once, and each that was there already is told of.
        #[test]
        fn every_byte_once(ranges in proptest::collection::vec((0u64..120, 1u64..50), 1..25)) {
            let mut pieces: SegmentList<SyntheticPayload> = SegmentList::new();
            let mut known = [false; 200];
            for (offset, len) in ranges {
                let mut repeated = [false; 200];
                pieces.fill(offset, SyntheticPayload(len as u32), (), |from, to| repeated[from as usize..to as usize].fill(true));
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
    fn crumbs_without_end_are_refused() {
        let mut pieces: SegmentList<SyntheticPayload> = SegmentList::new();
        for n in 0..MOST as u64 {
            assert!(pieces.fill(2 * n, SyntheticPayload(1), (), |_, _| {}));
        }
        assert!(!pieces.fill(1, SyntheticPayload(1), (), |_, _| {}));
        assert_eq!(pieces.bytes(), MOST as u64);
        pieces.pop_before(0);
        assert!(pieces.fill(1, SyntheticPayload(1), (), |_, _| {}));
    }
}
