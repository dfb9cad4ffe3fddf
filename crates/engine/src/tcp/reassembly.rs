//! The subflow-level out-of-order queue and what the receiver reports of it: SACK blocks, the most recent first
//! (RFC 2018 4), and DSACK (RFC 2883).
//!
//! Pieces are kept as they came; beside them the blocks that they join to, of which there are as many as there are
//! holes, so that a report costs nothing that grows with the queue. While many wait that are all of one length, as a sender's
//! whole segments are, they lie in a [`Grid`] instead, where nothing is searched for or moved aside.

use ropewalk_wire::{Payload, SackBlocks};

use super::grid::Grid;
use crate::pieces::{self, Pieces};

/// How many recently changed blocks are remembered.
const RECENT: usize = 6;

/// With fewer pieces a grid brings nothing.
const MANY: usize = 16;

/// Where data belongs of which nothing is there yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gap {
    Cell(u64),
    Listed(pieces::Gap),
}

/// Where data belongs in the connection's stream, if it came with a mapping of just its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Spot(u64);

impl Spot {
    pub fn new(offset: u64) -> Self {
        Spot(offset)
    }

    #[inline]
    pub fn known(self) -> Option<u64> {
        (self.0 != u64::MAX).then_some(self.0)
    }

    /// That of what comes so much later.
    fn after(self, skip: u64) -> Self {
        self.known().map_or(self, |offset| Spot(offset + skip))
    }
}

impl Default for Spot {
    fn default() -> Self {
        Spot(u64::MAX)
    }
}

/// Data that arrived out of order.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Reassembly<P> {
    /// A duplicate to report once.
    dsack: Option<(u64, u64)>,
    /// Bytes that wait.
    bytes: u64,
    /// What waits, if that isn't in the queue.
    grid: Option<Box<Grid<P, Spot>>>,
    /// What the queue covers, in order, joined.
    blocks: Vec<(u64, u64)>,
    queue: Pieces<P, Spot>,
    /// So many more come to the queue before it is seen whether they would fit into a grid.
    patience: u32,
    /// Some in the queue may have a spot.
    spots: bool,
    /// A position in each recently changed block, the latest first.
    recent: [u64; RECENT],
    recent_len: usize,
    /// The block that the last data is in, as it was then.
    latest: (u64, u64),
    /// How often data came since `recent` was tidied.
    untidy: u32,
}

impl<P: Payload> Reassembly<P> {
    pub fn new() -> Self {
        Reassembly {
            bytes: 0,
            grid: None,
            queue: Pieces::new(),
            patience: MANY as u32,
            spots: false,
            blocks: Vec::new(),
            recent: [0; RECENT],
            recent_len: 0,
            latest: (0, 0),
            untidy: 0,
            dsack: None,
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Remembers a duplicate to report with the next ACK.
    pub fn note_duplicate(&mut self, start: u64, end: u64) {
        self.dsack = Some((start, end));
    }

    /// The duplicate that the next ACK will report.
    #[inline]
    pub fn dsack(&self) -> Option<(u64, u64)> {
        self.dsack
    }

    /// Bytes that wait.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Stores data beyond what is in order.
    pub fn insert(&mut self, position: u64, data: P) {
        let end = position + data.len() as u64;
        if let Some(gap) = self.gap(position, end) {
            return self.insert_at(gap, position, data, Spot::default());
        }
        if let Some(grid) = self.in_grid() {
            if let Some(cell) = grid.cell(position, end) {
                self.latest = grid.block(cell, self.latest);
                self.dsack = Some((position, end));
                return self.note_recent(position);
            }
            self.leave_grid();
        }
        let dsack = &mut self.dsack;
        if self.queue.fill(position, data, |from, to| *dsack = Some((from, to))) {
            self.bytes = self.queue.bytes();
            self.latest = self.join(position, end);
            self.note_recent(position);
        }
    }

    /// Where data belongs of which nothing is there yet.
    #[inline]
    pub fn gap(&self, position: u64, end: u64) -> Option<Gap> {
        if let Some(grid) = &self.grid
            && self.blocks.is_empty()
        {
            if let Some(cell) = grid.cell(position, end) {
                return (!grid.has(cell)).then_some(Gap::Cell(cell));
            }
            if !grid.is_empty() {
                return None;
            }
        }
        self.queue.gap(position, end).map(Gap::Listed)
    }

    /// How many pieces are in the queue. No grid holds so many that it matters.
    #[inline]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Stores data beyond what is in order where it belongs.
    #[inline]
    pub fn insert_at(&mut self, gap: Gap, position: u64, data: P, spot: Spot) {
        let end = position + data.len() as u64;
        self.bytes += data.len() as u64;
        self.spots |= spot.known().is_some();
        match (gap, &mut self.grid) {
            (Gap::Cell(cell), Some(grid)) => {
                grid.put(cell, data, spot);
                self.latest = grid.block(cell, self.latest);
            }
            (Gap::Listed(gap), _) => {
                self.queue.fill_gap(gap, position, data, spot);
                self.latest = self.join_at(gap.joins, position, end);
                self.patience = self.patience.saturating_sub(1);
                if self.patience == 0 && self.queue.len() >= MANY {
                    self.try_grid();
                }
            }
            (Gap::Cell(_), None) => {}
        }
        self.note_recent(position);
    }

    /// What was missing first has come, and need not be stored: it goes ahead of what will be popped.
    #[inline]
    pub fn pass(&mut self, gap: Gap, position: u64, end: u64) {
        let joined = match (gap, &self.grid, self.blocks.first()) {
            (Gap::Cell(cell), Some(grid), _) => grid.end_after(cell),
            (Gap::Listed(gap), _, Some(first)) if gap.joins.1 => first.1,
            _ => end,
        };
        self.latest = (position, joined);
        self.note_recent(position);
    }

    /// The grid, if what waits is there.
    #[inline]
    fn in_grid(&self) -> Option<&Grid<P, Spot>> {
        self.grid.as_deref().filter(|grid| !grid.is_empty())
    }

    /// What waits goes to the queue.
    #[cold]
    fn leave_grid(&mut self) {
        while let Some((start, piece, spot)) = self.grid.as_mut().and_then(|grid| grid.pop()) {
            let end = start + piece.len() as u64;
            self.queue.append(start, piece, spot);
            match self.blocks.last_mut() {
                Some(last) if last.1 == start => last.1 = end,
                _ => self.blocks.push((start, end)),
            }
        }
        self.patience = MANY.max(4 * self.queue.len()) as u32;
    }

    /// What waits goes to a grid, if all fits.
    #[cold]
    fn try_grid(&mut self) {
        self.patience = MANY.max(4 * self.queue.len()) as u32;
        let Some((start, piece, _)) = self.queue.iter().next() else { return };
        let mut grid = Grid::new(*start, piece.len() as u64);
        for (start, piece, spot) in self.queue.iter() {
            let Some(cell) = grid.cell(*start, start + piece.len() as u64) else { return };
            grid.put(cell, piece.clone(), *spot);
        }
        self.queue.clear();
        self.blocks.clear();
        self.grid = Some(Box::new(grid));
    }

    /// Takes the spots of what waits: position, length, and offset in the stream.
    pub fn take_spots(&mut self) -> impl Iterator<Item = (u64, u32, u64)> {
        let spots = std::mem::take(&mut self.spots);
        self.leave_grid();
        let pieces = spots.then(|| self.queue.iter_mut()).into_iter().flatten();
        pieces.filter_map(|(position, piece, spot)| {
            let offset = std::mem::take(spot).known()?;
            Some((position, piece.len() as u32, offset))
        })
    }

    /// Whether some of what waits may have a spot.
    #[inline]
    pub fn has_spots(&self) -> bool {
        self.spots
    }

    /// As [`join`](Self::join) for a range of which nothing was there, and of which it is known whether it joins what is before
    /// it and what is after it.
    fn join_at(&mut self, joins: (bool, bool), start: u64, end: u64) -> (u64, u64) {
        let after = self.begun(start);
        let block = match joins {
            (false, false) => {
                self.blocks.insert(after, (start, end));
                return (start, end);
            }
            (false, true) => {
                let block = &mut self.blocks[after];
                block.0 = start;
                block
            }
            (true, false) => {
                let block = &mut self.blocks[after - 1];
                block.1 = end;
                block
            }
            (true, true) => {
                let (_, end) = self.blocks.remove(after);
                let block = &mut self.blocks[after - 1];
                block.1 = end;
                block
            }
        };
        *block
    }

    /// Adds a range to the blocks; returns the one that it is in.
    fn join(&mut self, start: u64, end: u64) -> (u64, u64) {
        let after = self.begun(end);
        let mut first = after;
        while first > 0 && self.blocks[first - 1].1 >= start {
            first -= 1;
        }
        if first == after {
            self.blocks.insert(first, (start, end));
            return (start, end);
        }
        let joined = (start.min(self.blocks[first].0), end.max(self.blocks[after - 1].1));
        self.blocks[first] = joined;
        if after - first > 1 {
            self.blocks.drain(first + 1..after);
        }
        joined
    }

    /// Notes that the latest block has changed, at `position`.
    #[inline]
    fn note_recent(&mut self, position: u64) {
        self.untidy = self.untidy.saturating_add(1);
        if self.recent_len > 0 && self.is_in_latest(self.recent[0]) {
            return;
        }
        for n in (1..RECENT).rev() {
            self.recent[n] = self.recent[n - 1];
        }
        self.recent[0] = position;
        self.recent_len = (self.recent_len + 1).min(RECENT);
    }

    /// Takes what has become in order at `next`, one piece.
    #[inline]
    pub fn pop(&mut self, next: u64) -> Option<(u64, P, Spot)> {
        loop {
            let (start, piece, spot) = match &mut self.grid {
                Some(grid) if self.blocks.is_empty() => {
                    if grid.begin()? > next {
                        return None;
                    }
                    grid.pop()?
                }
                _ => self.pop_queued(next)?,
            };
            let len = piece.len() as u64;
            self.bytes -= len;
            if start + len > next {
                let skip = next - start;
                let rest = if skip == 0 { piece } else { piece.slice(skip as usize, len as usize) };
                return Some((next, rest, spot.after(skip)));
            }
        }
    }

    #[inline]
    fn pop_queued(&mut self, next: u64) -> Option<(u64, P, Spot)> {
        let (start, piece, spot) = self.queue.pop_before(next)?;
        let end = start + piece.len() as u64;
        // The first block begins where the queue does.
        if self.blocks[0].1 <= end {
            self.blocks.remove(0);
        } else {
            self.blocks[0].0 = end;
        }
        Some((start, piece, spot))
    }

    /// How many blocks begin at `position` or before.
    #[inline]
    fn begun(&self, position: u64) -> usize {
        self.blocks.partition_point(|block| block.0 <= position)
    }

    /// The block that holds `position`.
    #[inline]
    fn block(&self, position: u64) -> Option<(u64, u64)> {
        if let Some(grid) = self.in_grid() {
            return grid.block_at(position);
        }
        let block = self.blocks[self.begun(position).checked_sub(1)?];
        (position < block.1).then_some(block)
    }

    /// Where the first block begins.
    #[inline]
    fn floor(&self) -> Option<u64> {
        match self.in_grid() {
            Some(grid) => grid.begin(),
            None => self.blocks.first().map(|block| block.0),
        }
    }

    #[inline]
    fn is_in_latest(&self, position: u64) -> bool {
        (self.latest.0 <= position) & (position < self.latest.1)
    }

    /// Leaves one position of each block in `recent`, the latest, and none that has become in order.
    #[inline]
    fn tidy(&mut self) {
        let floor = self.floor().unwrap_or(u64::MAX);
        let first_stands = self.recent[0] >= floor;
        // Data that came once can have joined others only to its own block, which is `latest`: first, or in order by now.
        if self.untidy > 1 || !(first_stands || self.latest.1 <= floor) {
            self.tidy_all();
        } else {
            let others = usize::from(first_stands && self.recent_len > 0);
            let mut kept = others;
            for n in others..self.recent_len {
                let position = self.recent[n];
                self.recent[kept] = position;
                kept += usize::from((position >= floor) & !self.is_in_latest(position));
            }
            self.recent_len = kept;
        }
        self.untidy = 0;
    }

    #[inline(never)]
    fn tidy_all(&mut self) {
        let mut seen = [0; RECENT];
        let mut kept = 0;
        for n in 0..self.recent_len {
            let position = self.recent[n];
            let Some((start, _)) = self.block(position) else { continue };
            if !seen[..kept].contains(&start) {
                seen[kept] = start;
                self.recent[kept] = position;
                kept += 1;
            }
        }
        self.recent_len = kept;
    }

    /// Up to `room` blocks, DSACK first, then the most recently changed. Taking them forgets the DSACK.
    pub fn sack_blocks(&mut self, isn: u32, room: usize, blocks: &mut SackBlocks) {
        blocks.truncate(0);
        if room == 0 {
            return;
        }
        let wire = |position: u64| isn.wrapping_add(position as u32);
        if let Some((left, right)) = self.dsack.take() {
            blocks.push(wire(left), wire(right));
        }
        self.tidy();
        for position in &self.recent[..self.recent_len] {
            if blocks.len() >= room.min(4) {
                break;
            }
            if self.is_in_latest(*position) {
                // No other has come to it, and what came in order of it is gone with its beginning.
                blocks.push(wire(self.latest.0.max(self.floor().unwrap_or(0))), wire(self.latest.1));
            } else if let Some((left, right)) = self.block(*position) {
                blocks.push(wire(left), wire(right));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_wire::{SackBlocks, SyntheticPayload};

    use super::{Reassembly, Spot};

    fn report(reassembly: &mut Reassembly<SyntheticPayload>, room: usize) -> Vec<(u32, u32)> {
        let mut blocks = SackBlocks::default();
        reassembly.sack_blocks(0, room, &mut blocks);
        blocks.as_slice().to_vec()
    }

    fn blocks(reassembly: &mut Reassembly<SyntheticPayload>) -> Vec<(u32, u32)> {
        report(reassembly, 4)
    }

    //= test RFC 2018 4
    /// RFC 2018 section 4, case 2: eight segments of 500 bytes from 5000 on, the first is lost.
    #[test]
    fn rfc_2018_case_2_first_segment_dropped() {
        let mut reassembly = Reassembly::new();
        for n in 1..8u64 {
            reassembly.insert(5000 + n * 500, SyntheticPayload(500));
            assert_eq!(blocks(&mut reassembly), [(5500, 6000 + (n as u32 - 1) * 500)]);
        }
    }

    //= test RFC 2018 4
    /// RFC 2018 section 4, case 3: the 2nd, 4th, 6th and 8th are lost; then the 4th arrives, and the 2nd.
    #[test]
    fn rfc_2018_case_3_every_other_segment_dropped() {
        let mut reassembly = Reassembly::new();
        reassembly.insert(6000, SyntheticPayload(500));
        assert_eq!(blocks(&mut reassembly), [(6000, 6500)]);
        reassembly.insert(7000, SyntheticPayload(500));
        assert_eq!(blocks(&mut reassembly), [(7000, 7500), (6000, 6500)]);
        reassembly.insert(8000, SyntheticPayload(500));
        assert_eq!(blocks(&mut reassembly), [(8000, 8500), (7000, 7500), (6000, 6500)]);
        reassembly.insert(6500, SyntheticPayload(500));
        assert_eq!(blocks(&mut reassembly), [(6000, 7500), (8000, 8500)]);
        reassembly.insert(5500, SyntheticPayload(500));
        assert_eq!(reassembly.pop(5500), Some((5500, SyntheticPayload(500), Spot::default())));
        for position in [6000, 6500, 7000] {
            assert_eq!(reassembly.pop(position), Some((position, SyntheticPayload(500), Spot::default())));
        }
        assert_eq!(reassembly.pop(7500), None);
        assert_eq!(blocks(&mut reassembly), [(8000, 8500)]);
        assert_eq!(reassembly.bytes(), 500);
    }

    //= test RFC 2883 4.1
    /// A duplicate of what was received is reported first, once.
    #[test]
    fn rfc_2883_a_duplicate_is_reported_once_and_first() {
        let mut reassembly = Reassembly::new();
        reassembly.insert(4000, SyntheticPayload(500));
        reassembly.insert(4000, SyntheticPayload(500));
        assert_eq!(blocks(&mut reassembly), [(4000, 4500), (4000, 4500)]);
        assert_eq!(blocks(&mut reassembly), [(4000, 4500)]);
        assert_eq!(reassembly.bytes(), 500);
    }

    //= test RFC 2883 4.2
    /// A segment of which a part was received: only that part is the duplicate.
    #[test]
    fn rfc_2883_a_partial_duplicate() {
        let mut reassembly = Reassembly::new();
        reassembly.insert(1500, SyntheticPayload(500));
        reassembly.insert(1000, SyntheticPayload(1500));
        assert_eq!(blocks(&mut reassembly), [(1500, 2000), (1000, 2500)]);
        assert_eq!(reassembly.bytes(), 1500);
        assert_eq!(reassembly.pop(1000), Some((1000, SyntheticPayload(500), Spot::default())));
        assert_eq!(reassembly.pop(1500), Some((1500, SyntheticPayload(500), Spot::default())));
        assert_eq!(reassembly.pop(2000), Some((2000, SyntheticPayload(500), Spot::default())));
        assert!(reassembly.is_empty());
    }

    /// What is tidied by what has changed since the last report is as if every block were looked for, whatever overlaps and
    /// however much comes between two reports.
    #[test]
    fn tidying_by_what_changed_is_as_tidying_all() {
        let mut state = 11u64;
        let mut next = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..500 {
            let mut both = [Reassembly::new(), Reassembly::new()];
            let mut at = 0;
            for _ in 0..60 {
                let gap = if next(6) == 0 { 0 } else { 1 + next(60) };
                let (position, len, room) = (at + gap, 1 + next(4), next(5) as usize);
                let reports = next(4) > 0;
                let mut seen = [(); 2].map(|()| Vec::new());
                let mut in_order = at;
                for (reassembly, seen) in both.iter_mut().zip(&mut seen) {
                    reassembly.insert(position, SyntheticPayload(len as u32));
                    in_order = at;
                    while let Some((from, piece, _)) = reassembly.pop(in_order) {
                        in_order = from + u64::from(piece.0);
                        seen.push((from as u32, in_order as u32));
                    }
                }
                at = in_order;
                both[1].untidy = 2;
                for (reassembly, seen) in both.iter_mut().zip(&mut seen).filter(|_| reports) {
                    seen.extend(report(reassembly, room));
                    seen.extend(
                        reassembly.recent[..reassembly.recent_len].iter().map(|known| (*known as u32, 0)),
                    );
                }
                assert_eq!(seen[0], seen[1]);
            }
        }
    }

    /// Pieces that lie in a grid come out as those in a list would, and as much is reported of them: nearly all of one length,
    /// some repeated, some cut otherwise, some far ahead.
    #[test]
    fn a_grid_is_as_a_list() {
        const UNIT: u64 = 5;
        let mut state = 3u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let mut in_grid = 0;
        for round in 0..300 {
            let mut both = [Reassembly::new(), Reassembly::new()];
            let window = [10, 80, 400][round % 3];
            let odd = [40, 1000][round % 2];
            let mut next = 7 + random(1 << 20);
            let mut untaken: Vec<u64> = Vec::new();
            let mut end = next;
            for _ in 0..1500 {
                while (end - next) / UNIT < window {
                    untaken.push(end);
                    end += UNIT;
                }
                let (position, len) = match random(odd) {
                    0 => (next + random(window * UNIT), 1 + random(3 * UNIT)),
                    1 => (next + UNIT * random(window), UNIT),
                    2 => (next + UNIT * random(3 * window), UNIT),
                    // Of a cell that was cut the rest.
                    _ if untaken.is_empty() => (next, UNIT),
                    // What is missing longest comes soonest.
                    _ => {
                        let index = random(window).min(random(window)) as usize;
                        (untaken.remove(index.min(untaken.len() - 1)), UNIT)
                    }
                };
                if position + len <= next || position < next {
                    continue;
                }
                let (room, reports) = (random(5) as usize, random(4) > 0);
                let mut seen = [(); 2].map(|()| Vec::new());
                let mut in_order = next;
                let fits = both.each_ref().map(|known| known.gap(position, position + len).is_some());
                assert!(fits[0] || !fits[1]);
                both[0].patience = u32::MAX;
                for (reassembly, seen) in both.iter_mut().zip(&mut seen) {
                    in_order = next;
                    let gap = reassembly.gap(position, position + len).filter(|_| fits[1]);
                    match gap {
                        Some(gap) if position > next => {
                            let spot = Spot::new(position + 1000);
                            reassembly.insert_at(gap, position, SyntheticPayload(len as u32), spot);
                        }
                        Some(gap) if !reassembly.is_empty() => {
                            reassembly.pass(gap, position, position + len);
                            in_order = position + len;
                        }
                        _ => {
                            seen.extend(
                                reassembly.take_spots().map(|(position, _, offset)| (position, offset)),
                            );
                            reassembly.insert(position, SyntheticPayload(len as u32));
                        }
                    }
                    while let Some((from, piece, spot)) = reassembly.pop(in_order) {
                        seen.push((from, spot.known().unwrap_or(0)));
                        in_order = from + u64::from(piece.0);
                    }
                    seen.push((in_order, reassembly.bytes()));
                    seen.push((reassembly.floor().unwrap_or(0), u64::from(reassembly.is_empty())));
                    if reports {
                        seen.extend(
                            report(reassembly, room).iter().map(|(a, b)| (u64::from(*a), u64::from(*b))),
                        );
                        seen.extend(
                            reassembly.recent[..reassembly.recent_len].iter().map(|known| (*known, 0)),
                        );
                    }
                }
                in_grid += usize::from(both[1].in_grid().is_some());
                assert!(both[0].in_grid().is_none());
                assert_eq!(seen[0], seen[1]);
                next = in_order;
                untaken.retain(|position| *position >= next);
                end = end.max(next);
            }
            let spots = both.map(|mut reassembly| reassembly.take_spots().collect::<Vec<_>>());
            assert_eq!(spots[0], spots[1]);
        }
        assert!(in_grid > 100_000, "{in_grid}");
    }

    /// Whatever overlaps, bytes come out once and the blocks say what is there.
    #[test]
    fn blocks_are_the_queue_joined() {
        let mut state = 7u64;
        let mut next = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let mut reassembly = Reassembly::new();
            let mut there = [false; 200];
            for _ in 0..20 {
                let (position, len) = (1 + next(150), 1 + next(40));
                reassembly.insert(position, SyntheticPayload(len as u32));
                there[position as usize..(position + len) as usize].fill(true);
            }
            assert_eq!(reassembly.bytes(), there.iter().filter(|byte| **byte).count() as u64);
            for (position, byte) in there.iter().enumerate() {
                assert_eq!(reassembly.block(position as u64).is_some(), *byte);
            }
            let mut at = 0;
            while at < 200 {
                match reassembly.pop(at) {
                    Some((from, piece, _)) => {
                        assert_eq!(from, at);
                        at += u64::from(piece.0);
                    }
                    None => {
                        assert!(!there[at as usize], "{at} was lost");
                        at += 1;
                    }
                }
            }
            assert!(reassembly.is_empty() && reassembly.bytes() == 0);
        }
    }
}
