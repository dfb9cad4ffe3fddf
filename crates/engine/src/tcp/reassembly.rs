//! The subflow-level out-of-order queue and what the receiver reports of it: SACK blocks, the most recent first
//! (RFC 2018 4), and DSACK (RFC 2883).
//!
//! Pieces are kept as they came; beside them the blocks that they join to, of which there are as many as there are
//! holes, so that a report costs nothing that grows with the queue.

use ropewalk_wire::{Payload, SackBlocks};

use crate::pieces::Pieces;

/// How many recently changed blocks are remembered.
const RECENT: usize = 6;

/// So many blocks are counted faster than halved: without a branch that nothing foretells.
const FEW: usize = 16;

/// Data that arrived out of order.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Reassembly<P> {
    /// A duplicate to report once.
    dsack: Option<(u64, u64)>,
    /// What the queue covers, in order, joined.
    blocks: Vec<(u64, u64)>,
    queue: Pieces<P>,
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
            queue: Pieces::new(),
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
        self.blocks.is_empty()
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
        self.queue.bytes()
    }

    /// Stores data beyond what is in order.
    pub fn insert(&mut self, position: u64, data: P) {
        let end = position + data.len() as u64;
        let dsack = &mut self.dsack;
        if self.queue.fill(position, data, |from, to| *dsack = Some((from, to))) {
            self.latest = self.join(position, end);
            self.note_recent(position);
        }
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
    pub fn pop(&mut self, next: u64) -> Option<(u64, P)> {
        loop {
            let (start, piece) = self.queue.pop_before(next)?;
            let len = piece.len() as u64;
            let end = start + len;
            // The first block begins where the queue does.
            if self.blocks[0].1 <= end {
                self.blocks.remove(0);
            } else {
                self.blocks[0].0 = end;
            }
            if end > next {
                let skip = (next - start) as usize;
                return Some((next, if skip == 0 { piece } else { piece.slice(skip, len as usize) }));
            }
        }
    }

    /// How many blocks begin at `position` or before.
    #[inline]
    fn begun(&self, position: u64) -> usize {
        if self.blocks.len() > FEW {
            return self.blocks.partition_point(|block| block.0 <= position);
        }
        self.blocks.iter().map(|block| usize::from(block.0 <= position)).sum()
    }

    /// Which block holds `position`.
    #[inline]
    fn block_number(&self, position: u64) -> Option<usize> {
        let index = self.begun(position).checked_sub(1)?;
        (position < self.blocks[index].1).then_some(index)
    }

    #[inline]
    fn is_in_latest(&self, position: u64) -> bool {
        (self.latest.0 <= position) & (position < self.latest.1)
    }

    /// Leaves one position of each block in `recent`, the latest, and none that has become in order.
    #[inline]
    fn tidy(&mut self) {
        let floor = self.blocks.first().map_or(u64::MAX, |block| block.0);
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
            let Some(number) = self.block_number(position) else { continue };
            if !seen[..kept].contains(&number) {
                seen[kept] = number;
                self.recent[kept] = position;
                kept += 1;
            }
        }
        self.recent_len = kept;
    }

    /// Up to `room` blocks, DSACK first, then the most recently changed. Taking them forgets the DSACK.
    pub fn sack_blocks(&mut self, isn: u32, room: usize) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        if room == 0 {
            return blocks;
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
                blocks.push(wire(self.latest.0.max(self.blocks[0].0)), wire(self.latest.1));
            } else if let Some(number) = self.block_number(*position) {
                let (left, right) = self.blocks[number];
                blocks.push(wire(left), wire(right));
            }
        }
        blocks
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_wire::Extent;

    use super::Reassembly;

    fn blocks(reassembly: &mut Reassembly<Extent>) -> Vec<(u32, u32)> {
        reassembly.sack_blocks(0, 4).as_slice().to_vec()
    }

    //= test RFC 2018 4
    /// RFC 2018 section 4, case 2: eight segments of 500 bytes from 5000 on, the first is lost.
    #[test]
    fn rfc_2018_case_2_first_segment_dropped() {
        let mut reassembly = Reassembly::new();
        for n in 1..8u64 {
            reassembly.insert(5000 + n * 500, Extent(500));
            assert_eq!(blocks(&mut reassembly), [(5500, 6000 + (n as u32 - 1) * 500)]);
        }
    }

    //= test RFC 2018 4
    /// RFC 2018 section 4, case 3: the 2nd, 4th, 6th and 8th are lost; then the 4th arrives, and the 2nd.
    #[test]
    fn rfc_2018_case_3_every_other_segment_dropped() {
        let mut reassembly = Reassembly::new();
        reassembly.insert(6000, Extent(500));
        assert_eq!(blocks(&mut reassembly), [(6000, 6500)]);
        reassembly.insert(7000, Extent(500));
        assert_eq!(blocks(&mut reassembly), [(7000, 7500), (6000, 6500)]);
        reassembly.insert(8000, Extent(500));
        assert_eq!(blocks(&mut reassembly), [(8000, 8500), (7000, 7500), (6000, 6500)]);
        reassembly.insert(6500, Extent(500));
        assert_eq!(blocks(&mut reassembly), [(6000, 7500), (8000, 8500)]);
        reassembly.insert(5500, Extent(500));
        assert_eq!(reassembly.pop(5500), Some((5500, Extent(500))));
        for position in [6000, 6500, 7000] {
            assert_eq!(reassembly.pop(position), Some((position, Extent(500))));
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
        reassembly.insert(4000, Extent(500));
        reassembly.insert(4000, Extent(500));
        assert_eq!(blocks(&mut reassembly), [(4000, 4500), (4000, 4500)]);
        assert_eq!(blocks(&mut reassembly), [(4000, 4500)]);
        assert_eq!(reassembly.bytes(), 500);
    }

    //= test RFC 2883 4.2
    /// A segment of which a part was received: only that part is the duplicate.
    #[test]
    fn rfc_2883_a_partial_duplicate() {
        let mut reassembly = Reassembly::new();
        reassembly.insert(1500, Extent(500));
        reassembly.insert(1000, Extent(1500));
        assert_eq!(blocks(&mut reassembly), [(1500, 2000), (1000, 2500)]);
        assert_eq!(reassembly.bytes(), 1500);
        assert_eq!(reassembly.pop(1000), Some((1000, Extent(500))));
        assert_eq!(reassembly.pop(1500), Some((1500, Extent(500))));
        assert_eq!(reassembly.pop(2000), Some((2000, Extent(500))));
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
                    reassembly.insert(position, Extent(len as u32));
                    in_order = at;
                    while let Some((from, piece)) = reassembly.pop(in_order) {
                        in_order = from + u64::from(piece.0);
                        seen.push((from as u32, in_order as u32));
                    }
                }
                at = in_order;
                both[1].untidy = 2;
                for (reassembly, seen) in both.iter_mut().zip(&mut seen).filter(|_| reports) {
                    seen.extend(reassembly.sack_blocks(0, room).as_slice());
                    seen.extend(
                        reassembly.recent[..reassembly.recent_len].iter().map(|known| (*known as u32, 0)),
                    );
                }
                assert_eq!(seen[0], seen[1]);
            }
        }
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
                reassembly.insert(position, Extent(len as u32));
                there[position as usize..(position + len) as usize].fill(true);
            }
            assert_eq!(reassembly.bytes(), there.iter().filter(|byte| **byte).count() as u64);
            for (position, byte) in there.iter().enumerate() {
                assert_eq!(reassembly.block_number(position as u64).is_some(), *byte);
            }
            let mut at = 0;
            while at < 200 {
                match reassembly.pop(at) {
                    Some((from, piece)) => {
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
