//! The subflow-level out-of-order queue and what the receiver reports of it: SACK blocks, the most recent
//! first (RFC 2018 4), and DSACK (RFC 2883).
//!
//! Segments are kept as they arrived, and beside them the contiguous blocks that they form. There is one
//! block per hole, so that a report costs nothing that grows with the queue. Many segments of one length are
//! kept in a [`SegmentRing`] instead, where nothing is searched for or moved.

use ropewalk_wire::{Payload, SackBlocks};

use super::mapping::Mapping;
use super::segment_ring::SegmentRing;
use crate::chunked_list::ChunkedList;
use crate::inline_queue::InlineQueue;
use crate::segment_list::{self, Note, SegmentList, budget};
use crate::{Span, Time};

/// Number of recently changed blocks that are remembered.
const RECENT: usize = 6;

/// Least number of segments for which a ring is used.
const MANY: usize = 16;

/// With shorter pieces a ring's cells would take more memory than the window has bytes.
const LEAST_UNIT: usize = 64;

/// Where new data belongs in the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Gap {
    Cell(u64),
    Listed(segment_list::Gap),
}

/// Where data that arrived lies relative to RCV.NXT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Placement {
    /// At RCV.NXT, and the queue is empty.
    InOrder,
    /// Its beginning is a duplicate, its end is in order, and the queue is empty.
    Overlapping,
    /// Beyond a gap.
    OutOfOrder,
    /// Data before it is missing, and too much waits already: it is dropped.
    Refused,
    /// At RCV.NXT, and the queue isn't empty.
    FillsGap,
    /// All of it arrived before.
    Duplicate,
}

/// A gap before the data in the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Missing {
    /// When data first arrived beyond it.
    since: Time,
    /// The latest timestamp of such data.
    stamp: u32,
}

/// In-order data, with its position and mapping.
pub(crate) type InOrder<P> = InlineQueue<(u64, P, Mapping)>;

/// Data that arrived out of order.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ReassemblyQueue<P> {
    /// A duplicate to report once.
    dsack: Option<(u64, u64)>,
    /// Bytes in the queue.
    bytes: u64,
    /// The segments, if they aren't in `queue`.
    ring: Option<Box<SegmentRing<P, Mapping>>>,
    /// The contiguous blocks of `queue`, in order.
    blocks: ChunkedList<(u64, u64)>,
    queue: SegmentList<P, Mapping>,
    /// Segments to be added before a ring is tried.
    ring_delay: u32,
    /// A position in each recently changed block, the latest first.
    recent: [u64; RECENT],
    recent_len: usize,
    /// The block of the last data, as it was then.
    latest: (u64, u64),
    /// Segments added since `recent` was pruned.
    unpruned: u32,
    missing: Option<Missing>,
}

impl<P: Payload> Default for ReassemblyQueue<P> {
    fn default() -> Self {
        ReassemblyQueue {
            bytes: 0,
            ring: None,
            queue: SegmentList::new(),
            ring_delay: MANY as u32,
            blocks: ChunkedList::new(),
            recent: [0; RECENT],
            recent_len: 0,
            latest: (0, 0),
            unpruned: 0,
            dsack: None,
            missing: None,
        }
    }
}

impl<P: Payload> ReassemblyQueue<P> {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Frees unused memory.
    pub fn shrink(&mut self) {
        if self.is_empty() {
            self.ring = None;
        }
        self.queue.shrink();
        self.blocks.shrink();
    }

    /// Data with this timestamp arrived beyond a gap.
    pub fn note_missing(&mut self, now: Time, stamp: Option<u32>) {
        let stamp = stamp.unwrap_or_default();
        let missing = self.missing.get_or_insert(Missing { since: now, stamp });
        if stamp.wrapping_sub(missing.stamp) as i32 > 0 {
            missing.stamp = stamp;
        }
    }

    /// Data with this timestamp filled a gap: whether it was lost and sent again. Reordered data comes
    /// sooner than after `least`, or its timestamp is older than that of the data that overtook it.
    pub fn was_sent_again(&mut self, now: Time, stamp: Option<u32>, least: Span) -> bool {
        let Some(missing) = self.missing else { return false };
        if self.is_empty() {
            self.missing = None;
        }
        let is_new = stamp.is_none_or(|stamp| stamp.wrapping_sub(missing.stamp) as i32 >= 0);
        is_new && now.saturating_sub(missing.since) >= least
    }

    /// Whether there is something to report with SACK blocks.
    #[inline]
    pub fn has_report(&self) -> bool {
        (self.bytes != 0) | self.dsack.is_some()
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

    /// Bytes in the queue.
    #[cfg(test)]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes data at `position`, while `*next` is expected and the window ends at `edge`, unless it is
    /// next and nothing waits. Data that is in order goes to `in_order`, and `next` advances.
    #[inline(never)]
    pub fn place(
        &mut self,
        next: &mut u64,
        edge: u64,
        mut position: u64,
        mut data: P,
        mut mapping: Mapping,
        in_order: &mut InOrder<P>,
    ) -> Placement {
        let end = position + data.len() as u64;
        if end <= *next {
            self.note_duplicate(position, end);
            return Placement::Duplicate;
        }
        if position > *next {
            if !self.has_room(position, budget(edge.saturating_sub(*next))) {
                return Placement::Refused;
            }
            // It may be held for long, and must not keep a buffer of many packets from being used again.
            data.condense();
            self.insert(position, data, mapping);
            return Placement::OutOfOrder;
        }
        if position < *next {
            self.note_duplicate(position, *next);
            let skip = *next - position;
            data = data.slice(skip as usize, data.len());
            (position, mapping) = (*next, mapping.after(skip));
        }
        let placement = if self.is_empty() { Placement::Overlapping } else { Placement::FillsGap };
        match self.gap(position, end) {
            Some(gap) => {
                if placement == Placement::FillsGap {
                    self.pass(gap, position, end);
                }
                *next = end;
                in_order.push_back((position, data, mapping));
            }
            None => self.insert(position, data, mapping),
        }
        while let Some((at, piece, mapping)) = self.pop(*next) {
            *next = at + piece.len() as u64;
            in_order.push_back((at, piece, mapping));
        }
        placement
    }

    /// Whether there is memory for data at `position`. A ring is bounded by the window.
    #[inline]
    fn has_room(&mut self, position: u64, budget: u64) -> bool {
        self.queue.memory() < budget || self.in_ring().is_some() || self.prune(position, budget)
    }

    /// Drops the data furthest beyond `position`, as Linux does (`tcp_prune_ofo_queue`): the sender
    /// retransmits it, as RFC 2018 8 asks.
    #[cold]
    fn prune(&mut self, position: u64, budget: u64) -> bool {
        let blocks = &mut self.blocks;
        let fits = self.queue.make_room(position, budget, |start, _| {
            if let Some(last) = blocks.pop_back().filter(|last| last.0 < start) {
                blocks.push_back((last.0, start));
            }
        });
        self.bytes = self.queue.bytes();
        (self.latest, self.unpruned) = ((0, 0), MANY as u32);
        fits
    }

    /// Stores data beyond what is in order.
    fn insert(&mut self, position: u64, data: P, mapping: Mapping) {
        let end = position + data.len() as u64;
        if let Some(gap) = self.gap(position, end) {
            return self.insert_at(gap, position, data, mapping);
        }
        if let Some(ring) = self.in_ring() {
            if let Some(cell) = ring.cell(position, end) {
                self.latest = ring.block(cell, self.latest);
                self.dsack = Some((position, end));
                return self.note_recent(position);
            }
            self.leave_ring();
        }
        let dsack = &mut self.dsack;
        self.queue.fill(position, data, mapping, |from, to| *dsack = Some((from, to)));
        self.bytes = self.queue.bytes();
        self.latest = self.join(position, end);
        self.note_recent(position);
    }

    /// Where new data belongs in the queue.
    #[inline]
    fn gap(&self, position: u64, end: u64) -> Option<Gap> {
        if let Some(ring) = &self.ring
            && self.blocks.is_empty()
        {
            if let Some(cell) = ring.cell(position, end) {
                return (!ring.has(cell)).then_some(Gap::Cell(cell));
            }
            if !ring.is_empty() {
                return None;
            }
        }
        self.queue.gap(position, end).map(Gap::Listed)
    }

    /// Stores data beyond what is in order at a known place.
    #[inline]
    fn insert_at(&mut self, gap: Gap, position: u64, data: P, mapping: Mapping) {
        let end = position + data.len() as u64;
        self.bytes += data.len() as u64;
        match (gap, &mut self.ring) {
            (Gap::Cell(cell), Some(ring)) => {
                ring.put(cell, data, mapping);
                self.latest = ring.block(cell, self.latest);
            }
            (Gap::Listed(gap), _) => {
                self.queue.fill_gap(gap, position, data, mapping);
                self.latest = self.join_at(gap.joins, position, end);
                self.ring_delay = self.ring_delay.saturating_sub(1);
                if self.ring_delay == 0 && self.queue.len() >= MANY {
                    self.try_ring();
                }
            }
            (Gap::Cell(_), None) => {}
        }
        self.note_recent(position);
    }

    /// The first gap is filled, wholly or from its beginning, by data that needn't be stored.
    #[inline]
    fn pass(&mut self, gap: Gap, position: u64, end: u64) {
        let joined = match (gap, &self.ring, self.blocks.front()) {
            (Gap::Cell(cell), Some(ring), _) => ring.end_after(cell),
            (Gap::Listed(gap), _, Some(first)) if gap.joins.1 => first.1,
            _ => end,
        };
        self.latest = (position, joined);
        self.note_recent(position);
    }

    /// The ring, if it is in use.
    #[inline]
    fn in_ring(&self) -> Option<&SegmentRing<P, Mapping>> {
        self.ring.as_deref().filter(|ring| !ring.is_empty())
    }

    /// Moves the segments from the ring to the list.
    #[cold]
    fn leave_ring(&mut self) {
        while let Some((start, piece, mapping)) = self.ring.as_mut().and_then(|ring| ring.pop()) {
            let end = start + piece.len() as u64;
            self.queue.append(start, piece, mapping);
            match self.blocks.back_mut() {
                Some(last) if last.1 == start => last.1 = end,
                _ => self.blocks.push_back((start, end)),
            }
        }
        self.ring_delay = MANY.max(4 * self.queue.len()) as u32;
    }

    /// Moves the segments from the list to a ring, if all fit.
    #[cold]
    fn try_ring(&mut self) {
        self.ring_delay = MANY.max(4 * self.queue.len()) as u32;
        let Some((start, piece, _)) = self.queue.iter().next() else { return };
        if piece.len() < LEAST_UNIT {
            return;
        }
        let mut ring = SegmentRing::new(*start, piece.len() as u64);
        for (start, piece, mapping) in self.queue.iter() {
            let Some(cell) = ring.cell(*start, start + piece.len() as u64) else { return };
            ring.put(cell, piece.clone(), *mapping);
        }
        self.queue.clear();
        self.blocks.clear();
        self.ring = Some(Box::new(ring));
    }

    /// As [`join`](Self::join) for new data of which it is known whether it touches what is before and after
    /// it.
    fn join_at(&mut self, joins: (bool, bool), start: u64, end: u64) -> (u64, u64) {
        let after = self.blocks_begun(start);
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
                let end = self.blocks.remove(after).map_or(end, |(_, end)| end);
                let block = &mut self.blocks[after - 1];
                block.1 = end;
                block
            }
        };
        *block
    }

    /// Adds a range to the blocks and returns the one that it is in.
    fn join(&mut self, start: u64, end: u64) -> (u64, u64) {
        let after = self.blocks_begun(end);
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
        for _ in first + 1..after {
            self.blocks.remove(first + 1);
        }
        joined
    }

    /// Notes that the latest block has changed, at `position`.
    #[inline]
    fn note_recent(&mut self, position: u64) {
        self.unpruned = self.unpruned.saturating_add(1);
        if self.recent_len > 0 && self.is_in_latest(self.recent[0]) {
            return;
        }
        for n in (1..RECENT).rev() {
            self.recent[n] = self.recent[n - 1];
        }
        self.recent[0] = position;
        self.recent_len = (self.recent_len + 1).min(RECENT);
    }

    /// Takes the first segment if it is in order at `next`. None begins before: nothing that is stored
    /// overlaps.
    #[inline]
    fn pop(&mut self, next: u64) -> Option<(u64, P, Mapping)> {
        let popped = match &mut self.ring {
            Some(ring) if self.blocks.is_empty() => {
                if ring.begin()? > next {
                    return None;
                }
                ring.pop()?
            }
            _ => self.pop_queued(next)?,
        };
        self.bytes -= popped.1.len() as u64;
        Some(popped)
    }

    #[inline]
    fn pop_queued(&mut self, next: u64) -> Option<(u64, P, Mapping)> {
        let (start, piece, mapping) = self.queue.pop_before(next)?;
        let end = start + piece.len() as u64;
        // The first block begins where the queue does.
        match self.blocks.front_mut() {
            Some(first) if first.1 > end => first.0 = end,
            _ => drop(self.blocks.pop_front()),
        }
        Some((start, piece, mapping))
    }

    /// Number of blocks that begin at `position` or before.
    #[inline]
    fn blocks_begun(&self, position: u64) -> usize {
        self.blocks.partition_point(|block| block.0 <= position)
    }

    /// The block that holds `position`.
    #[inline]
    fn block(&self, position: u64) -> Option<(u64, u64)> {
        if let Some(ring) = self.in_ring() {
            return ring.block_at(position);
        }
        let block = self.blocks[self.blocks_begun(position).checked_sub(1)?];
        (position < block.1).then_some(block)
    }

    /// Where the first block begins.
    #[inline]
    fn floor(&self) -> Option<u64> {
        match self.in_ring() {
            Some(ring) => ring.begin(),
            None => self.blocks.front().map(|block| block.0),
        }
    }

    #[inline]
    fn is_in_latest(&self, position: u64) -> bool {
        (self.latest.0 <= position) & (position < self.latest.1)
    }

    /// Keeps the latest position of each block in `recent`, and none that has become in order.
    #[inline]
    fn prune_recent(&mut self) {
        let floor = self.floor().unwrap_or(u64::MAX);
        let first_stands = self.recent[0] >= floor;
        // One segment can have joined blocks only to its own, which is `latest`: it is first, or in order by
        // now.
        if self.unpruned > 1 || !(first_stands || self.latest.1 <= floor) {
            self.prune_recent_all();
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
        self.unpruned = 0;
    }

    #[inline(never)]
    fn prune_recent_all(&mut self) {
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
        //= RFC 2018 4-e
        if let Some((left, right)) = self.dsack.take() {
            blocks.push(wire(left), wire(right));
        }
        self.prune_recent();
        //= RFC 2018 4-b 4-c 4-d
        for position in &self.recent[..self.recent_len] {
            if blocks.len() >= room.min(4) {
                break;
            }
            if self.is_in_latest(*position) {
                // It has changed only at its beginning, if that has become in order.
                blocks.push(wire(self.latest.0.max(self.floor().unwrap_or(0))), wire(self.latest.1));
            } else if let Some((left, right)) = self.block(*position) {
                blocks.push(wire(left), wire(right));
            }
        }
    }
}

#[cfg(test)]
mod tests;
