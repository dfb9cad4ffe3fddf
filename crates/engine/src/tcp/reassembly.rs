//! The subflow-level out-of-order queue and what the receiver reports of it: SACK blocks, the most recent first
//! (RFC 2018 4), and DSACK (RFC 2883).
//!
//! Pieces are kept as they came; beside them the blocks that they join to, of which there are as many as there are
//! holes, so that a report costs nothing that grows with the queue.

use ropewalk_wire::{Payload, SackBlocks};

use crate::pieces::Pieces;

/// How many recently changed blocks are remembered.
const RECENT: usize = 6;

/// So many blocks are looked through from the end faster than by halving.
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
}

impl<P: Payload> Reassembly<P> {
    pub fn new() -> Self {
        Reassembly {
            queue: Pieces::new(),
            blocks: Vec::new(),
            recent: [0; RECENT],
            recent_len: 0,
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
            self.join(position, end);
            self.note_recent(position);
        }
    }

    /// Adds a range to the blocks.
    fn join(&mut self, start: u64, end: u64) {
        let after = self.begun(end);
        let mut first = after;
        while first > 0 && self.blocks[first - 1].1 >= start {
            first -= 1;
        }
        if first == after {
            self.blocks.insert(first, (start, end));
        } else {
            let joined = (start.min(self.blocks[first].0), end.max(self.blocks[after - 1].1));
            self.blocks[first] = joined;
            self.blocks.drain(first + 1..after);
        }
    }

    fn note_recent(&mut self, position: u64) {
        let block = self.block_number(position);
        if self.recent_len > 0 && block.is_some() && self.block_number(self.recent[0]) == block {
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

    /// How many blocks begin at `position` or before. What is asked for lies near the end mostly.
    #[inline]
    fn begun(&self, position: u64) -> usize {
        let mut count = self.blocks.len();
        if count > FEW {
            return self.blocks.partition_point(|block| block.0 <= position);
        }
        while count > 0 && self.blocks[count - 1].0 > position {
            count -= 1;
        }
        count
    }

    /// Which block holds `position`.
    #[inline]
    fn block_number(&self, position: u64) -> Option<usize> {
        let index = self.begun(position).checked_sub(1)?;
        (position < self.blocks[index].1).then_some(index)
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
        let mut given = [0; RECENT];
        let mut kept = 0;
        'positions: for n in 0..self.recent_len {
            let position = self.recent[n];
            let Some(number) = self.block_number(position) else { continue };
            for known in &given[..kept] {
                if *known == number {
                    continue 'positions;
                }
            }
            if blocks.len() < room.min(4) {
                let (left, right) = self.blocks[number];
                blocks.push(wire(left), wire(right));
            }
            given[kept] = number;
            self.recent[kept] = position;
            kept += 1;
        }
        self.recent_len = kept;
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
