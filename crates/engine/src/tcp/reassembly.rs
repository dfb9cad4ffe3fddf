//! The subflow-level out-of-order queue and what the receiver reports of it: SACK blocks, the most recent first
//! (RFC 2018 4), and DSACK (RFC 2883).

use std::collections::{BTreeMap, VecDeque};

use ropewalk_wire::{Payload, SackBlocks};

/// Data that arrived out of order.
#[derive(Debug)]
pub(crate) struct Reassembly<P> {
    queue: BTreeMap<u64, P>,
    pub bytes: u64,
    /// Left edges of recently changed blocks, the latest first.
    recent: VecDeque<u64>,
    /// A duplicate to report once.
    dsack: Option<(u64, u64)>,
}

impl<P: Payload> Reassembly<P> {
    pub fn new() -> Self {
        Reassembly { queue: BTreeMap::new(), bytes: 0, recent: VecDeque::new(), dsack: None }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Remembers a duplicate to report with the next ACK.
    pub fn note_duplicate(&mut self, start: u64, end: u64) {
        self.dsack = Some((start, end));
    }

    #[inline]
    pub fn has_dsack(&self) -> bool {
        self.dsack.is_some()
    }

    /// Stores data beyond `next`.
    pub fn insert(&mut self, position: u64, data: P) {
        let end = position + data.len() as u64;
        let mut at = position;
        if let Some((&start, piece)) = self.queue.range(..=at).next_back() {
            let covered = (start + piece.len() as u64).min(end);
            if covered > at {
                self.dsack = Some((at, covered));
                at = covered;
            }
        }
        while at < end {
            let (gap_end, entry_end) = match self.queue.range(at..end).next() {
                Some((&start, piece)) => (start, start + piece.len() as u64),
                None => (end, end),
            };
            if gap_end > at {
                let piece = data.slice((at - position) as usize, (gap_end - position) as usize);
                self.bytes += piece.len() as u64;
                self.queue.insert(at, piece);
            }
            if entry_end > gap_end && gap_end < end {
                self.dsack = Some((gap_end, entry_end.min(end)));
            }
            at = entry_end.max(gap_end);
        }
        self.recent.push_front(position);
        self.recent.truncate(8);
    }

    /// Takes what has become in order at `next`, one piece.
    pub fn pop(&mut self, next: u64) -> Option<(u64, P)> {
        loop {
            let (&start, _) = self.queue.first_key_value()?;
            if start > next {
                return None;
            }
            let (start, piece) = self.queue.pop_first()?;
            let len = piece.len() as u64;
            self.bytes -= len;
            if start + len > next {
                let skip = (next - start) as usize;
                return Some((next, if skip == 0 { piece } else { piece.slice(skip, len as usize) }));
            }
        }
    }

    /// The whole block around `position`, joined over neighbours.
    fn block_at(&self, position: u64) -> Option<(u64, u64)> {
        let (&start, piece) = self.queue.range(..=position).next_back()?;
        let mut left = start;
        let mut right = start + piece.len() as u64;
        if right <= position {
            return None;
        }
        for (&start, piece) in self.queue.range(..left).rev() {
            if start + piece.len() as u64 != left {
                break;
            }
            left = start;
        }
        for (&start, piece) in self.queue.range(right..) {
            if start != right {
                break;
            }
            right += piece.len() as u64;
        }
        Some((left, right))
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
        if self.queue.is_empty() {
            self.recent.clear();
            return blocks;
        }
        let mut given: [(u64, u64); 4] = [(0, 0); 4];
        let mut count = 0;
        let mut kept = VecDeque::new();
        for position in std::mem::take(&mut self.recent) {
            let Some(block) = self.block_at(position) else { continue };
            if given[..count].contains(&block) {
                continue;
            }
            kept.push_back(position);
            if count < 4 && blocks.len() < room.min(4) {
                blocks.push(wire(block.0), wire(block.1));
                given[count] = block;
                count += 1;
            }
        }
        self.recent = kept;
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

    /// RFC 2018 section 4, case 2: eight segments of 500 bytes from 5000 on, the first is lost.
    #[test]
    fn rfc_2018_case_2_first_segment_dropped() {
        let mut reassembly = Reassembly::new();
        for n in 1..8u64 {
            reassembly.insert(5000 + n * 500, Extent(500));
            assert_eq!(blocks(&mut reassembly), [(5500, 6000 + (n as u32 - 1) * 500)]);
        }
    }

    /// RFC 2018 section 4, case 3: the 2nd, 4th, 6th and 8th are lost.
    #[test]
    fn rfc_2018_case_3_every_other_segment_dropped() {
        let mut reassembly = Reassembly::new();
        reassembly.insert(6000, Extent(500));
        assert_eq!(blocks(&mut reassembly), [(6000, 6500)]);
        reassembly.insert(7000, Extent(500));
        assert_eq!(blocks(&mut reassembly), [(7000, 7500), (6000, 6500)]);
        reassembly.insert(8000, Extent(500));
        assert_eq!(blocks(&mut reassembly), [(8000, 8500), (7000, 7500), (6000, 6500)]);
        // Then the 4th arrives, and joins its neighbours.
        reassembly.insert(6500, Extent(500));
        assert_eq!(blocks(&mut reassembly), [(6000, 7500), (8000, 8500)]);
    }

    /// RFC 2883 section 4.1: a duplicate of what was received is reported first, once.
    #[test]
    fn rfc_2883_a_duplicate_is_reported_once_and_first() {
        let mut reassembly = Reassembly::new();
        reassembly.insert(4000, Extent(500));
        reassembly.insert(4000, Extent(500));
        assert_eq!(blocks(&mut reassembly), [(4000, 4500), (4000, 4500)]);
        assert_eq!(blocks(&mut reassembly), [(4000, 4500)]);
        assert_eq!(reassembly.bytes, 500);
    }
}
