//! The connection-level send side: what the application wrote, which of it is assigned to subflows, and what
//! the peer has acknowledged with DATA_ACKs (RFC 8684 3.3).
//!
//! Positions are stream offsets in 64 bits: DSN = IDSN + 1 + offset.

mod access;
mod unassign;

use std::collections::VecDeque;
use std::ops::Range;

use ropewalk_wire::Payload;

use super::chunks::Chunks;
use super::cork::Cork;
use super::messages::Messages;
use crate::inline_queue::InlineQueue;
use crate::scheduler::{Chunk, InFlight, Message};
use crate::{SubflowId, Time};

/// The send side.
#[derive(Debug)]
pub(crate) struct SendSide<P> {
    /// What was written and isn't acknowledged: pieces with their offsets.
    pieces: VecDeque<(u64, P)>,
    /// How many pieces were ever taken off the front, and the number, counted with these, of the one that new
    /// data was last taken from: with many small writes the search for it costs more than all the rest.
    popped: u64,
    reading: u64,
    /// First byte not acknowledged at data level.
    una: u64,
    /// End of what the application wrote.
    written: u64,
    /// Written and not assigned to a subflow: disjoint, in order; nearly always at most one range.
    unassigned: InlineQueue<Range<u64>>,
    /// Bytes in these ranges.
    unsent: u64,
    /// End of the highest range ever assigned.
    assigned_end: u64,
    /// Right edge of the peer's window, as an offset.
    window_end: u64,
    /// Bytes at the window's end that are left unused: see `peer_memory.rs`.
    reserved: u64,
    /// The last window that the peer advertised, bytes.
    peer_window: u64,
    /// The largest one.
    largest_window: u64,
    /// The window doesn't hold a segment, nor half of the largest one; or only whole segments count.
    is_silly_window: bool,
    /// Less room than this is left alone while `is_silly_window`, bytes.
    least_room: u64,
    chunks: Chunks,
    /// Offsets of chunks that wait for reinjection, in order of offset.
    reinjections: VecDeque<u64>,
    /// End of the last chunk that was given to a subflow again.
    repeated_end: u64,
    /// Bytes that may be written and unacknowledged.
    limit: u64,
    /// A write was cut short, and the application waits for space.
    writer_waits: bool,
    /// What is sent now is sent while the application doesn't wait, though it may meanwhile.
    spaced: bool,
    /// The application closed its side: the DATA_FIN is at `written`.
    closed: bool,
    fin_acked: bool,
    /// The last data was assigned when the application closed, perhaps not all before it: no copy of it
    /// carries the DATA_FIN. On data that it has already Linux takes note of a DATA_FIN without acting on it,
    /// and ignores every later one.
    fin_alone: bool,
    /// The application declared the flow's size.
    declared: Option<u64>,
    /// The messages that the application marked.
    messages: Option<Box<Messages>>,
    cork: Cork,
    /// How far the connection-level timeout has backed off.
    backoff: u32,
    /// Unsent bytes beyond which nothing is taken (`TCP_NOTSENT_LOWAT`).
    unsent_mark: u64,
    /// Most bytes that are taken beyond the peer's window.
    beyond_window: u64,
    /// Since when nothing new was acknowledged, for the user timeout.
    progress_at: Time,
}

impl<P: Payload> SendSide<P> {
    pub fn new(limit: u64) -> Self {
        SendSide {
            pieces: VecDeque::new(),
            popped: 0,
            reading: 0,
            una: 0,
            written: 0,
            unassigned: InlineQueue::new(),
            unsent: 0,
            assigned_end: 0,
            window_end: 0,
            reserved: 0,
            peer_window: 0,
            largest_window: 0,
            is_silly_window: false,
            least_room: u64::MAX,
            chunks: Chunks::default(),
            reinjections: VecDeque::new(),
            repeated_end: 0,
            limit,
            writer_waits: false,
            spaced: false,
            closed: false,
            fin_acked: false,
            fin_alone: false,
            declared: None,
            messages: None,
            cork: Cork::default(),
            backoff: 0,
            unsent_mark: u64::MAX,
            beyond_window: u64::MAX,
            progress_at: Time::ZERO,
        }
    }

    /// Bytes that may be written now.
    #[inline]
    pub fn space(&self) -> u64 {
        let free = self.limit.saturating_sub(self.written - self.una);
        free.min(self.unsent_mark.saturating_sub(self.unsent)).min(self.room_beyond_window())
    }

    /// Bytes that may be written as the peer's window allows.
    #[inline]
    fn room_beyond_window(&self) -> u64 {
        self.window_end.saturating_add(self.beyond()).saturating_sub(self.written)
    }

    /// Most bytes that wait beyond the peer's window: a quarter of a large one.
    #[inline]
    fn beyond(&self) -> u64 {
        self.beyond_window.max(self.peer_window / 4)
    }

    /// Takes a prefix of `data` as far as there is space, and returns its length.
    pub fn write(&mut self, data: P) -> usize {
        let len = (data.len() as u64).min(self.space()) as usize;
        if len < data.len() {
            self.writer_waits = true;
        }
        if len == 0 {
            return 0;
        }
        let data = if len == data.len() { data } else { data.slice(0, len) };
        self.pieces.push_back((self.written, data));
        let start = self.written;
        self.written += len as u64;
        self.unsent += len as u64;
        match self.unassigned.back_mut() {
            Some(last) if last.end == start => last.end = self.written,
            _ => self.unassigned.push_back(start..self.written),
        }
        len
    }

    /// Bytes written and not assigned.
    #[inline]
    pub fn unsent(&self) -> u64 {
        self.unsent
    }

    /// First unassigned byte; the end of what was written if there is none.
    #[inline]
    pub fn next_offset(&self) -> u64 {
        self.unassigned.front().map_or(self.written, |range| range.start)
    }

    /// The unassigned range that begins at or after `offset`, or holds it; failing that the first.
    #[inline]
    pub fn unassigned_at(&self, offset: u64) -> Option<Range<u64>> {
        match self.unassigned.front() {
            Some(first) if first.end > offset => Some(first.start.max(offset)..first.end),
            _ => self.unassigned_behind(offset),
        }
    }

    #[inline(never)]
    fn unassigned_behind(&self, offset: u64) -> Option<Range<u64>> {
        self.unassigned
            .iter()
            .find(|range| range.end > offset)
            .map(|range| range.start.max(offset)..range.end)
            .or_else(|| self.unassigned.front().cloned())
    }

    /// Marks `range`, which lies within one unassigned range, as assigned.
    #[inline]
    pub fn assign(&mut self, range: Range<u64>) {
        match self.unassigned.front_mut() {
            Some(first) if first.start == range.start && first.end > range.end => {
                first.start = range.end;
                self.unsent -= range.end - range.start;
                self.assigned_end = self.assigned_end.max(range.end);
            }
            _ => self.assign_elsewhere(range),
        }
    }

    #[inline(never)]
    fn assign_elsewhere(&mut self, range: Range<u64>) {
        let index =
            self.unassigned.iter().position(|free| free.start <= range.start && range.end <= free.end);
        let Some(index) = index else { return };
        let Some(free) = self.unassigned.get_mut(index) else { return };
        let end = free.end;
        if free.start == range.start && end > range.end {
            free.start = range.end;
        } else if free.start == range.start {
            self.unassigned.remove(index);
        } else {
            free.end = range.start;
            if range.end < end {
                self.unassigned.insert(index + 1, range.end..end);
            }
        }
        self.unsent -= range.end - range.start;
        self.assigned_end = self.assigned_end.max(range.end);
    }

    /// How many bytes from `offset` on lie in one piece: they needn't be copied to be together.
    #[inline(never)]
    pub fn contiguous_bytes(&self, offset: u64) -> u64 {
        let index = self.piece_at(offset);
        self.pieces.get(index).map_or(0, |(start, piece)| start + piece.len() as u64 - offset)
    }

    /// The piece that holds `offset`.
    fn piece_at(&self, offset: u64) -> usize {
        let last = self.reading.wrapping_sub(self.popped) as usize;
        let holds = |(start, piece): &(u64, P)| *start <= offset && offset < start + piece.len() as u64;
        if self.pieces.get(last).is_some_and(holds) {
            return last;
        }
        self.pieces.partition_point(|(start, piece)| start + piece.len() as u64 <= offset)
    }

    /// Bytes `offset..offset + len`; the caller asks only for what is written and not acknowledged.
    #[inline]
    pub fn get(&mut self, offset: u64, len: u32) -> P {
        let last = self.reading.wrapping_sub(self.popped) as usize;
        if let Some((start, piece)) = self.pieces.get(last)
            && let Some(from) = offset.checked_sub(*start)
            && from + u64::from(len) <= piece.len() as u64
        {
            return piece.slice(from as usize, from as usize + len as usize);
        }
        self.collect_pieces(offset, len)
    }

    #[inline(never)]
    fn collect_pieces(&mut self, offset: u64, len: u32) -> P {
        let mut index = self.piece_at(offset);
        self.reading = self.popped + index as u64;
        let end = offset + u64::from(len);
        let mut at = offset;
        let mut first = None;
        let mut rest = Vec::new();
        while at < end {
            let Some((start, piece)) = self.pieces.get(index) else { break };
            let from = (at - start) as usize;
            let to = piece.len().min((end - start) as usize);
            let part = piece.slice(from, to);
            at = start + to as u64;
            index += 1;
            if first.is_none() {
                first = Some(part);
            } else {
                rest.push(part);
            }
        }
        match (first, rest.is_empty()) {
            (Some(one), true) => one,
            (Some(one), false) => {
                rest.insert(0, one);
                P::join(&rest)
            }
            (None, _) => P::default(),
        }
    }

    /// Moves `una`; returns the bytes newly acknowledged.
    #[inline]
    pub fn acknowledge(&mut self, una: u64) -> u64 {
        if una <= self.una { 0 } else { self.advance(una) }
    }

    fn advance(&mut self, una: u64) -> u64 {
        let newly = una - self.una;
        self.una = una;
        while let Some((start, piece)) = self.pieces.front() {
            if start + piece.len() as u64 > una {
                break;
            }
            self.pieces.pop_front();
            self.popped += 1;
        }
        self.chunks.acknowledge(una);
        newly
    }

    /// Whether a waiting writer is notified: a third of the buffer is free, and half of what may be unsent,
    /// as in Linux.
    #[inline]
    pub fn writable(&self) -> bool {
        let used = self.written - self.una;
        used < self.limit
            && self.limit - used >= self.limit / 3
            && self.unsent <= self.unsent_mark / 2
            // Large pieces: the writer isn't woken for each ACK.
            && self.room_beyond_window() >= self.beyond() / 2
    }

    /// Whether nothing more can be written.
    pub fn is_full(&self) -> bool {
        self.written - self.una >= self.limit
    }

    /// Where new data must end, as an offset.
    #[inline]
    pub fn usable_end(&self) -> u64 {
        self.window_end.saturating_sub(self.reserved)
    }

    /// Room in the peer's window beyond what is assigned, bytes. One that doesn't hold a segment counts as
    /// closed, unless all that waits fits.
    #[inline]
    pub fn window_left(&self) -> u64 {
        let left = self.usable_end().saturating_sub(self.assigned_end);
        if self.is_silly_window { left - self.silly_window() } else { left }
    }

    /// The peer's window as schedulers see it, bytes from the first that isn't acknowledged.
    #[inline]
    pub fn send_window(&self) -> u64 {
        if self.is_silly_window && self.silly_window() > 0 {
            self.next_offset() - self.una
        } else {
            self.peer_window
        }
    }

    /// The part of the window that is left alone because it doesn't hold a segment, bytes.
    #[cold]
    pub fn silly_window(&self) -> u64 {
        let left = self.usable_end().saturating_sub(self.assigned_end);
        if self.is_silly_window && left < self.unsent.min(self.least_room) { left } else { 0 }
    }

    //= RFC 9293 MUST-38 sender-side silly window avoidance, for the connection
    /// Judges the window after an ACK; `mss`: of the smallest segments, 0: any window will do. A larger
    /// window is still filled to its end, as by Linux; `whole`: with whole segments.
    pub fn judge_window(&mut self, mss: u32, whole: bool) {
        let window = self.window_end.saturating_sub(self.una);
        self.largest_window = self.largest_window.max(window);
        self.is_silly_window = whole || (window < u64::from(mss) && 2 * window < self.largest_window);
        self.least_room = if whole { u64::from(mss) } else { u64::MAX };
    }

    /// Queues every chunk that has a byte in `range` for reinjection, unless it waits already or is
    /// acknowledged.
    pub fn reinject(&mut self, range: Range<u64>) {
        let first = self.chunks.index_after(range.start);
        for sent in self.chunks.0.range_mut(first..).take_while(|sent| sent.offset < range.end) {
            if !sent.reinject {
                sent.reinject = true;
                let at = self.reinjections.partition_point(|queued| *queued < sent.offset);
                self.reinjections.insert(at, sent.offset);
            }
        }
    }

    /// Queues every chunk for reinjection that was last given to `subflow`.
    pub fn reinject_from(&mut self, subflow: SubflowId) {
        for sent in self.chunks.0.iter_mut().filter(|sent| sent.last == subflow && !sent.reinject) {
            sent.reinject = true;
            let at = self.reinjections.partition_point(|queued| *queued < sent.offset);
            self.reinjections.insert(at, sent.offset);
        }
    }

    /// The next chunk to reinject, dropping what has been acknowledged meanwhile.
    pub fn next_reinjection(&mut self) -> Option<Chunk> {
        while let Some(offset) = self.reinjections.front() {
            // A DATA_ACK may have cut the chunk since it was queued: what is left of it still waits.
            match self.chunks.find((*offset).max(self.una)) {
                Some(sent) if sent.reinject => return Some(sent.chunk()),
                _ => {
                    self.reinjections.pop_front();
                }
            }
        }
        None
    }

    /// Notes that a chunk was given to `subflow` again.
    pub fn repeated(&mut self, offset: u64, subflow: SubflowId, now: Time) {
        if let Some(sent) = self.chunks.find_mut(offset) {
            sent.carriers |= 1 << subflow.0;
            sent.last = subflow;
            sent.sent_at = now;
            sent.reinject = false;
            self.repeated_end = self.repeated_end.max(sent.end());
        }
    }

    /// Nothing in flight was given to `subflow`: its slot is used again.
    pub fn forget_carrier(&mut self, subflow: SubflowId) {
        for sent in &mut self.chunks.0 {
            sent.carriers &= !(1 << subflow.0);
        }
    }

    /// Drops everything: the connection was aborted.
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.unassigned.clear();
        self.unsent = 0;
        self.chunks.clear();
        self.reinjections.clear();
    }

    /// Frees unused memory.
    pub fn shrink(&mut self) {
        self.pieces.shrink_to_fit();
        self.unassigned.shrink();
        self.chunks.0.shrink_to_fit();
        self.reinjections.shrink_to_fit();
    }
}

/// What schedulers see of the stream.
impl<P: Payload> InFlight for SendSide<P> {
    fn chunk_after(&self, offset: u64) -> Option<Chunk> {
        self.chunks.chunk_after(offset)
    }

    fn chunk_before(&self, offset: u64) -> Option<Chunk> {
        self.chunks.chunk_before(offset)
    }

    fn message_at(&self, offset: u64) -> Option<Message> {
        self.messages.as_ref()?.at(offset)
    }

    fn len(&self) -> usize {
        self.chunks.len()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::SendSide;
    use crate::scheduler::Chunk;
    use crate::{SubflowId, Time};

    fn side(text: &'static str) -> SendSide<Bytes> {
        let mut side = SendSide::new(1000);
        side.write(Bytes::from_static(text.as_bytes()));
        side
    }

    #[test]
    fn bytes_come_out_across_pieces() {
        let mut side = side("abc");
        side.write(Bytes::from_static(b"defg"));
        side.write(Bytes::from_static(b"h"));
        assert_eq!(side.get(1, 7), "bcdefgh");
        side.acknowledge(4);
        assert_eq!(side.get(4, 3), "efg");
    }

    #[test]
    fn a_full_buffer_takes_a_prefix() {
        let mut side: SendSide<Bytes> = SendSide::new(5);
        assert_eq!(side.write(Bytes::from_static(b"abcdefg")), 5);
        assert!(side.writer_waits && !side.writable());
        side.acknowledge(2);
        assert!(side.writable());
        assert_eq!(side.write(Bytes::from_static(b"fg")), 2);
        assert_eq!(side.get(2, 5), "cdefg");
    }

    #[test]
    fn assigning_from_the_middle_leaves_the_front_for_later() {
        let mut side = side("0123456789");
        side.assign(4..6);
        assert_eq!((side.unsent(), side.next_offset(), side.assigned_end), (8, 0, 6));
        assert_eq!(side.unassigned_at(4), Some(6..10));
        side.assign(0..4);
        assert_eq!((side.unsent(), side.next_offset()), (4, 6));
        side.assign(6..10);
        assert_eq!((side.unsent(), side.next_offset()), (0, 10));
        assert_eq!(side.unassigned_at(0), None);
    }

    #[test]
    fn a_reinjection_cut_by_a_data_ack_still_waits() {
        let mut side = side("0123456789");
        side.assign(0..10);
        side.chunks.insert(Chunk {
            offset: 0,
            len: 10,
            carriers: 1,
            last: SubflowId(0),
            sent_at: Time::ZERO,
        });
        side.reinject(0..1);
        side.acknowledge(4);
        let left = side.next_reinjection().map(|chunk| (chunk.offset, chunk.len));
        assert_eq!(left, Some((4, 6)));
        side.repeated(4, SubflowId(1), Time::ZERO);
        assert_eq!(side.next_reinjection(), None);
        side.reinject(4..5);
        assert!(side.next_reinjection().is_some(), "and may wait again");
    }

    #[test]
    fn a_reinjection_is_queued_once_and_forgotten_when_acknowledged() {
        let mut side = side("0123456789");
        for offset in [0, 5] {
            side.assign(offset..offset + 5);
            let chunk = Chunk { offset, len: 5, carriers: 1, last: SubflowId(0), sent_at: Time::ZERO };
            side.chunks.insert(chunk);
        }
        side.reinject(5..6);
        side.reinject(0..1);
        side.reinject(7..8);
        assert_eq!(side.reinjections, [0, 5]);
        side.acknowledge(5);
        assert_eq!(side.next_reinjection().map(|chunk| chunk.offset), Some(5));
        side.repeated(5, SubflowId(1), Time::from_nanos(9));
        assert_eq!(side.next_reinjection(), None);
    }

    #[test]
    fn chunks_are_found_in_whatever_order_they_were_sent() {
        let mut side = side("0123456789");
        for offset in [4, 0, 8, 2, 6] {
            let sent_at = Time::from_nanos(offset);
            let chunk = Chunk { offset, len: 2, carriers: 1, last: SubflowId(0), sent_at };
            side.chunks.insert(chunk);
        }
        assert!(side.chunks.0.iter().map(|sent| sent.offset).eq([0, 2, 4, 6, 8]));
        for at in 0..10 {
            assert_eq!(side.chunks.find(at).map(|sent| sent.offset), Some(at / 2 * 2));
        }
        assert!(side.chunks.find(10).is_none());
    }

    /// Schedulers send later data first, and take queued data back.
    #[test]
    fn data_that_was_sent_before_the_close_never_carries_its_data_fin() {
        for (sent, alone) in [(6..10, true), (0..10, true), (0..4, false)] {
            let mut side = side("0123456789");
            side.assign(sent);
            side.close();
            assert_eq!(side.fin_alone(), alone, "{} bytes are left", side.unsent());
        }
    }

    #[test]
    fn what_is_written_after_an_assigned_tail_is_a_range_of_its_own() {
        let mut side = side("0123456789");
        side.assign(6..10);
        side.write(Bytes::from_static(b"ab"));
        assert_eq!((side.unsent(), side.next_offset()), (8, 0));
        let ranges = [0, 5, 6, 10, 11, 12].map(|offset| side.unassigned_at(offset));
        assert_eq!(ranges, [0..6, 5..6, 10..12, 10..12, 11..12, 0..6].map(Some));
    }

    #[test]
    fn a_slot_used_again_carries_nothing() {
        let mut side = side("0123456789");
        side.assign(0..5);
        side.chunks.insert(Chunk {
            offset: 0,
            len: 5,
            carriers: 0b11,
            last: SubflowId(0),
            sent_at: Time::ZERO,
        });
        side.forget_carrier(SubflowId(1));
        assert_eq!(side.chunks.find(0).map(|sent| sent.carriers), Some(0b01));
    }
}
