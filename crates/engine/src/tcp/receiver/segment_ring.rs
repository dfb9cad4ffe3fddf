//! A ring of segments of one length at multiples of it, such as a sender's full segments. A division finds a
//! segment's cell, and bits say which cells are taken.

use ropewalk_wire::Payload;

/// Most cells from the first segment to the last.
const MOST: u64 = 1 << 15;

/// Cells in a word.
const WORD: u64 = u64::BITS as u64;

/// Each cell begins where the one before it ends.
#[derive(Debug)]
pub(crate) struct SegmentRing<P, N> {
    /// The length of a cell, and the position of cell 0.
    unit: u64,
    phase: u64,
    /// The cells and which are taken, indexed by a cell's number modulo the length, a power of two.
    cells: Vec<(P, N)>,
    taken: Vec<u64>,
    /// The first taken cell, and the one after the last; equal if there is none. No cell outside is marked as
    /// taken.
    first: u64,
    end: u64,
}

impl<P: Payload, N: Copy + Default> SegmentRing<P, N> {
    /// An empty ring with a cell for a segment of this length at `offset`.
    pub fn new(offset: u64, len: u64) -> Self {
        let unit = len.max(1);
        SegmentRing { unit, phase: offset % unit, cells: Vec::new(), taken: Vec::new(), first: 0, end: 0 }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first == self.end
    }

    /// The cell for exactly `offset..end`, unless it is too far from the others.
    #[inline]
    pub fn cell(&self, offset: u64, end: u64) -> Option<u64> {
        let cell = offset / self.unit;
        let fits = end - offset == self.unit && offset - cell * self.unit == self.phase;
        let (first, last) = if self.is_empty() { (cell, cell + 1) } else { (self.first, self.end) };
        let span = last.max(cell + 1) - first.min(cell);
        (fits && span <= MOST).then_some(cell)
    }

    /// Whether a cell is taken.
    #[inline]
    pub fn has(&self, cell: u64) -> bool {
        let inside = cell >= self.first && cell < self.end;
        inside && self.taken[self.word(cell)] >> (cell % WORD) & 1 != 0
    }

    /// Where the first segment begins.
    #[inline]
    pub fn begin(&self) -> Option<u64> {
        (!self.is_empty()).then(|| self.position(self.first))
    }

    #[inline]
    fn word(&self, cell: u64) -> usize {
        (cell / WORD) as usize & (self.taken.len() - 1)
    }

    #[inline]
    fn index(&self, cell: u64) -> usize {
        cell as usize & (self.cells.len() - 1)
    }

    /// Puts a segment into a free cell that [`cell`](Self::cell) returned.
    #[inline]
    pub fn put(&mut self, cell: u64, piece: P, note: N) {
        if self.is_empty() {
            (self.first, self.end) = (cell, cell);
        }
        let (first, end) = (self.first.min(cell), self.end.max(cell + 1));
        // No word may hold two cells that are a whole ring apart.
        if end - first + WORD > self.cells.len() as u64 {
            self.grow(end - first + WORD);
        }
        (self.first, self.end) = (first, end);
        let (word, index) = (self.word(cell), self.index(cell));
        self.taken[word] |= 1 << (cell % WORD);
        self.cells[index] = (piece, note);
    }

    #[cold]
    fn grow(&mut self, least: u64) {
        let len = (least as usize).next_power_of_two();
        let mut all = Vec::new();
        while let Some((cell, piece, note)) = self.pop_cell() {
            all.push((cell, piece, note));
        }
        self.cells.resize_with(len, Default::default);
        self.taken = vec![0; len / WORD as usize];
        if let (Some((first, ..)), Some((last, ..))) = (all.first(), all.last()) {
            (self.first, self.end) = (*first, last + 1);
        }
        for (cell, piece, note) in all {
            let (word, index) = (self.word(cell), self.index(cell));
            self.taken[word] |= 1 << (cell % WORD);
            self.cells[index] = (piece, note);
        }
    }

    /// The contiguous block around a taken cell. Taken cells in `known` are known to be contiguous.
    #[inline]
    pub fn block(&self, cell: u64, known: (u64, u64)) -> (u64, u64) {
        let mut at = cell;
        let start = loop {
            let gaps = !self.taken[self.word(at)] << (WORD - 1 - at % WORD);
            if gaps != 0 {
                break self.position(at + 1 - u64::from(gaps.leading_zeros()));
            }
            if at < WORD {
                break self.phase;
            }
            at = at / WORD * WORD - 1;
            let position = self.position(at);
            if known.0 <= position && position < known.1 {
                break known.0.max(self.position(self.first));
            }
        };
        (start, self.position(self.free_from(cell)))
    }

    /// The contiguous block that holds a position, if one does.
    pub fn block_at(&self, position: u64) -> Option<(u64, u64)> {
        let cell = position.checked_sub(self.phase)? / self.unit;
        self.has(cell).then(|| self.block(cell, (0, 0)))
    }

    #[inline]
    fn position(&self, cell: u64) -> u64 {
        cell * self.unit + self.phase
    }

    /// The first free cell after this one, which is taken.
    #[inline]
    fn free_from(&self, mut cell: u64) -> u64 {
        loop {
            let gaps = !self.taken[self.word(cell)] >> (cell % WORD);
            if gaps != 0 {
                return cell + u64::from(gaps.trailing_zeros());
            }
            cell = cell / WORD * WORD + WORD;
        }
    }

    /// Where the block ends that begins at the end of this cell; the end of the cell if there is none.
    #[inline]
    pub fn end_after(&self, cell: u64) -> u64 {
        self.position(if self.has(cell + 1) { self.free_from(cell + 1) } else { cell + 1 })
    }

    /// Takes the first segment.
    #[inline]
    pub fn pop(&mut self) -> Option<(u64, P, N)> {
        let (cell, piece, note) = self.pop_cell()?;
        Some((self.position(cell), piece, note))
    }

    #[inline]
    fn pop_cell(&mut self) -> Option<(u64, P, N)> {
        if self.is_empty() {
            return None;
        }
        let cell = self.first;
        let (word, index) = (self.word(cell), self.index(cell));
        self.taken[word] &= !(1 << (cell % WORD));
        self.first = self.taken_from(cell + 1);
        let (stored, note) = &mut self.cells[index];
        Some((cell, std::mem::take(stored), *note))
    }

    /// The first taken cell from this one on, or the end.
    #[inline]
    fn taken_from(&self, mut cell: u64) -> u64 {
        while cell < self.end {
            let rest = self.taken[self.word(cell)] >> (cell % WORD);
            if rest != 0 {
                return cell + u64::from(rest.trailing_zeros());
            }
            cell = cell / WORD * WORD + WORD;
        }
        self.end
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;
    use proptest::prelude::*;

    use super::{MOST, SegmentRing};

    const UNIT: u64 = 10;
    const PHASE: u64 = 3;

    fn position(cell: u64) -> u64 {
        cell * UNIT + PHASE
    }

    fn piece(n: usize) -> Bytes {
        Bytes::from(vec![n as u8; UNIT as usize])
    }

    /// The contiguous cells around one that is taken.
    fn block(model: &BTreeMap<u64, usize>, cell: u64) -> (u64, u64) {
        let start = (0..=cell).rev().take_while(|at| model.contains_key(at)).last().unwrap_or(cell);
        let end = (cell..).find(|at| !model.contains_key(at)).unwrap_or(cell);
        (position(start), position(end))
    }

    #[test]
    fn a_cell_takes_one_aligned_segment_near_the_others() {
        let mut ring: SegmentRing<Bytes, usize> = SegmentRing::new(position(7), UNIT);
        assert_eq!(ring.cell(position(5), position(6)), Some(5));
        for (start, end) in [(52, 63), (54, 63), (53, 62), (53, 64), (53, 73)] {
            assert_eq!(ring.cell(start, end), None, "{start}..{end}");
        }
        ring.put(100, piece(0), 0);
        let fits = |cell| ring.cell(position(cell), position(cell + 1)).is_some();
        assert!(fits(0) && fits(100 + MOST - 1) && !fits(100 + MOST));
        let mut ring: SegmentRing<Bytes, usize> = SegmentRing::new(position(7), UNIT);
        ring.put(MOST + 9, piece(0), 0);
        let fits = |cell| ring.cell(position(cell), position(cell + 1)).is_some();
        assert!(fits(10) && !fits(9));
    }

    proptest! {
        /// Against a sorted map, by random operations.
        #[test]
        fn it_is_a_map_of_cells(
            base in 0u64..300,
            ops in prop::collection::vec((0u8..9, 0u64..400), 1..400),
        ) {
            let mut ring = SegmentRing::new(position(base), UNIT);
            let mut model: BTreeMap<u64, usize> = BTreeMap::new();
            let (mut latest, mut floor) = ((0, 0), 0);
            for (n, (op, at)) in ops.into_iter().enumerate() {
                // Most segments are near each other, so that blocks grow long.
                let cell = base + if op < 6 { at % 100 } else { at };
                if op < 8 && cell >= floor {
                    prop_assert_eq!(ring.cell(position(cell), position(cell + 1)), Some(cell));
                    prop_assert_eq!(ring.has(cell), model.contains_key(&cell));
                    if !ring.has(cell) {
                        ring.put(cell, piece(n), n);
                        model.insert(cell, n);
                    }
                    latest = ring.block(cell, latest);
                    prop_assert_eq!(latest, block(&model, cell));
                } else {
                    let expected = model.pop_first();
                    floor = expected.map_or(floor, |(cell, _)| cell + 1);
                    let expected = expected.map(|(cell, n)| (position(cell), piece(n), n));
                    prop_assert_eq!(ring.pop(), expected);
                }
                prop_assert_eq!(ring.is_empty(), model.is_empty());
                prop_assert_eq!(ring.begin(), model.first_key_value().map(|(cell, _)| position(*cell)));
                for probe in [cell, cell.saturating_sub(1), cell + 1, cell + 64, cell + 128] {
                    let has = model.contains_key(&probe);
                    prop_assert_eq!(ring.has(probe), has);
                    let found = has.then(|| block(&model, probe));
                    prop_assert_eq!(ring.block_at(position(probe)), found);
                    prop_assert_eq!(ring.block_at(position(probe) + UNIT - 1), found);
                    if has {
                        let next = model.contains_key(&(probe + 1));
                        let end = if next { block(&model, probe + 1).1 } else { position(probe + 1) };
                        prop_assert_eq!(ring.end_after(probe), end);
                    }
                }
            }
        }
    }
}
