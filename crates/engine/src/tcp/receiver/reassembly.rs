//! The subflow-level out-of-order queue and what the receiver reports of it: SACK blocks, the most recent first
//! (RFC 2018 4), and DSACK (RFC 2883).
//!
//! Segments are kept as they came; beside them the blocks that they join to, of which there are as many as there are
//! holes, so that a report costs nothing that grows with the queue. While many wait that are all of one length, as a sender's
//! whole segments are, they lie in a [`SegmentRing`] instead, where nothing is searched for or moved aside.

use ropewalk_wire::{Payload, SackBlocks};

use super::segment_ring::SegmentRing;
use crate::chunked_list::ChunkedList;
use crate::inline_queue::InlineQueue;
use crate::segment_list::{self, Note, SegmentList, budget};

/// How many recently changed blocks are remembered.
const RECENT: usize = 6;

/// With fewer pieces a ring brings nothing.
const MANY: usize = 16;

/// With shorter pieces a ring's cells would take more memory than the window has bytes.
const LEAST_UNIT: usize = 64;

/// Where data belongs of which nothing is there yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Gap {
    Cell(u64),
    Listed(segment_list::Gap),
}

/// Where data belongs in the connection's stream, if it came with a mapping of its own: it travels with the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StreamOffset(u64);

impl StreamOffset {
    pub fn new(offset: u64) -> Self {
        StreamOffset(offset)
    }

    #[inline]
    pub fn known(self) -> Option<u64> {
        (self.0 != u64::MAX).then_some(self.0)
    }
}

impl Default for StreamOffset {
    fn default() -> Self {
        StreamOffset(u64::MAX)
    }
}

impl Note for StreamOffset {
    fn after(self, skip: u64) -> Self {
        self.known().map_or(self, |offset| StreamOffset(offset + skip))
    }
}

/// How data that arrived stands to what is expected next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Placement {
    /// It is next, and nothing waits.
    InOrder,
    /// Its end is next, its beginning came before, and nothing waits.
    Overlapping,
    /// Data before it is missing.
    OutOfOrder,
    /// Data before it is missing, and too much waits already: it is dropped.
    Refused,
    /// It is next, and data after it was waiting.
    FillsGap,
    /// All of it came before.
    Duplicate,
}

/// In-order data, with its position and its place in the stream.
pub(crate) type InOrder<P> = InlineQueue<(u64, P, StreamOffset)>;

/// Data that arrived out of order.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ReassemblyQueue<P> {
    /// A duplicate to report once.
    dsack: Option<(u64, u64)>,
    /// Bytes that wait.
    bytes: u64,
    /// What waits, if that isn't in the queue.
    ring: Option<Box<SegmentRing<P, StreamOffset>>>,
    /// What the queue covers, in order, joined.
    blocks: ChunkedList<(u64, u64)>,
    queue: SegmentList<P, StreamOffset>,
    /// So many more come to the queue before it is seen whether they would fit into a ring.
    patience: u32,
    /// A position in each recently changed block, the latest first.
    recent: [u64; RECENT],
    recent_len: usize,
    /// The block that the last data is in, as it was then.
    latest: (u64, u64),
    /// How often data came since `recent` was tidied.
    untidy: u32,
}

impl<P: Payload> ReassemblyQueue<P> {
    pub fn new() -> Self {
        ReassemblyQueue {
            bytes: 0,
            ring: None,
            queue: SegmentList::new(),
            patience: MANY as u32,
            blocks: ChunkedList::new(),
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

    /// Bytes that wait.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes data at `position`, while `*next` is expected and the window ends at `edge`. What is in order then goes to `in_order`,
    /// and `next` moves.
    #[inline]
    pub fn place(
        &mut self,
        next: &mut u64,
        edge: u64,
        position: u64,
        data: P,
        offset: StreamOffset,
        in_order: &mut InOrder<P>,
    ) -> Placement {
        if position == *next && self.is_empty() {
            *next += data.len() as u64;
            in_order.push_back((position, data, offset));
            return Placement::InOrder;
        }
        self.place_around(next, edge, position, data, offset, in_order)
    }

    #[inline(never)]
    fn place_around(
        &mut self,
        next: &mut u64,
        edge: u64,
        mut position: u64,
        mut data: P,
        mut offset: StreamOffset,
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
            data.condense();
            self.insert(position, data, offset);
            return Placement::OutOfOrder;
        }
        if position < *next {
            self.note_duplicate(position, *next);
            let skip = *next - position;
            data = data.slice(skip as usize, data.len());
            (position, offset) = (*next, offset.after(skip));
        }
        let placement = if self.is_empty() { Placement::Overlapping } else { Placement::FillsGap };
        match self.gap(position, end) {
            Some(gap) => {
                if placement == Placement::FillsGap {
                    self.pass(gap, position, end);
                }
                *next = end;
                in_order.push_back((position, data, offset));
            }
            None => self.insert(position, data, offset),
        }
        while let Some((at, piece, offset)) = self.pop(*next) {
            *next = at + piece.len() as u64;
            in_order.push_back((at, piece, offset));
        }
        placement
    }

    /// Whether data at `position` may wait. A ring has its bound in the window.
    #[inline]
    fn has_room(&mut self, position: u64, budget: u64) -> bool {
        self.queue.memory() < budget || self.in_ring().is_some() || self.prune(position, budget)
    }

    /// Drops what lies furthest beyond `position`, as Linux does (`tcp_prune_ofo_queue`): the sender will repeat it, as
    /// RFC 2018 8 wants it to.
    #[cold]
    fn prune(&mut self, position: u64, budget: u64) -> bool {
        let blocks = &mut self.blocks;
        let fits = self.queue.make_room(position, budget, |start, _| {
            if let Some(last) = blocks.pop_back().filter(|last| last.0 < start) {
                blocks.push_back((last.0, start));
            }
        });
        self.bytes = self.queue.bytes();
        (self.latest, self.untidy) = ((0, 0), MANY as u32);
        fits
    }

    /// Stores data beyond what is in order.
    fn insert(&mut self, position: u64, data: P, offset: StreamOffset) {
        let end = position + data.len() as u64;
        if let Some(gap) = self.gap(position, end) {
            return self.insert_at(gap, position, data, offset);
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
        self.queue.fill(position, data, offset, |from, to| *dsack = Some((from, to)));
        self.bytes = self.queue.bytes();
        self.latest = self.join(position, end);
        self.note_recent(position);
    }

    /// Where data belongs of which nothing is there yet.
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

    /// Stores data beyond what is in order where it belongs.
    #[inline]
    fn insert_at(&mut self, gap: Gap, position: u64, data: P, offset: StreamOffset) {
        let end = position + data.len() as u64;
        self.bytes += data.len() as u64;
        match (gap, &mut self.ring) {
            (Gap::Cell(cell), Some(ring)) => {
                ring.put(cell, data, offset);
                self.latest = ring.block(cell, self.latest);
            }
            (Gap::Listed(gap), _) => {
                self.queue.fill_gap(gap, position, data, offset);
                self.latest = self.join_at(gap.joins, position, end);
                self.patience = self.patience.saturating_sub(1);
                if self.patience == 0 && self.queue.len() >= MANY {
                    self.try_ring();
                }
            }
            (Gap::Cell(_), None) => {}
        }
        self.note_recent(position);
    }

    /// What was missing first has come, and need not be stored: it goes ahead of what will be popped.
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

    /// The ring, if what waits is there.
    #[inline]
    fn in_ring(&self) -> Option<&SegmentRing<P, StreamOffset>> {
        self.ring.as_deref().filter(|ring| !ring.is_empty())
    }

    /// What waits goes to the queue.
    #[cold]
    fn leave_ring(&mut self) {
        while let Some((start, piece, offset)) = self.ring.as_mut().and_then(|ring| ring.pop()) {
            let end = start + piece.len() as u64;
            self.queue.append(start, piece, offset);
            match self.blocks.back_mut() {
                Some(last) if last.1 == start => last.1 = end,
                _ => self.blocks.push_back((start, end)),
            }
        }
        self.patience = MANY.max(4 * self.queue.len()) as u32;
    }

    /// What waits goes to a ring, if all fits.
    #[cold]
    fn try_ring(&mut self) {
        self.patience = MANY.max(4 * self.queue.len()) as u32;
        let Some((start, piece, _)) = self.queue.iter().next() else { return };
        if piece.len() < LEAST_UNIT {
            return;
        }
        let mut ring = SegmentRing::new(*start, piece.len() as u64);
        for (start, piece, offset) in self.queue.iter() {
            let Some(cell) = ring.cell(*start, start + piece.len() as u64) else { return };
            ring.put(cell, piece.clone(), *offset);
        }
        self.queue.clear();
        self.blocks.clear();
        self.ring = Some(Box::new(ring));
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
                let end = self.blocks.remove(after).map_or(end, |(_, end)| end);
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
        for _ in first + 1..after {
            self.blocks.remove(first + 1);
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
    fn pop(&mut self, next: u64) -> Option<(u64, P, StreamOffset)> {
        loop {
            let (start, piece, offset) = match &mut self.ring {
                Some(ring) if self.blocks.is_empty() => {
                    if ring.begin()? > next {
                        return None;
                    }
                    ring.pop()?
                }
                _ => self.pop_queued(next)?,
            };
            let len = piece.len() as u64;
            self.bytes -= len;
            if start + len > next {
                let skip = next - start;
                let rest = if skip == 0 { piece } else { piece.slice(skip as usize, len as usize) };
                return Some((next, rest, offset.after(skip)));
            }
        }
    }

    #[inline]
    fn pop_queued(&mut self, next: u64) -> Option<(u64, P, StreamOffset)> {
        let (start, piece, offset) = self.queue.pop_before(next)?;
        let end = start + piece.len() as u64;
        // The first block begins where the queue does.
        match self.blocks.front_mut() {
            Some(first) if first.1 > end => first.0 = end,
            _ => drop(self.blocks.pop_front()),
        }
        Some((start, piece, offset))
    }

    /// How many blocks begin at `position` or before.
    #[inline]
    fn begun(&self, position: u64) -> usize {
        self.blocks.partition_point(|block| block.0 <= position)
    }

    /// The block that holds `position`.
    #[inline]
    fn block(&self, position: u64) -> Option<(u64, u64)> {
        if let Some(ring) = self.in_ring() {
            return ring.block_at(position);
        }
        let block = self.blocks[self.begun(position).checked_sub(1)?];
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
mod tests;
