//! The connection-level receive side: the out-of-order queue, what waits for the application, and the window
//! (RFC 8684 3.3.1, 3.3.2).

use ropewalk_wire::Payload;

use super::window_autotuning::{
    FIRST_RATIO, FIRST_SPACE, Interval, WindowAutotuning, memory_for, wanted, window_of,
};
use crate::Nanos;
use crate::config::BufferConfig;
use crate::inline_queue::InlineQueue;
use crate::segment_list::{SegmentList, budget};
use crate::tcp::ReceiveBuffer;

/// With this many unread pieces, small ones are coalesced.
const FEW_UNREAD: usize = 16;
/// Most bytes of a piece that small ones are coalesced to.
const MAX_COALESCED: usize = 4096;

/// The receive side.
#[derive(Debug)]
pub(crate) struct ReceiveSide<P> {
    /// What subflows advertise of it.
    pub buffer: ReceiveBuffer,
    /// Out-of-order data.
    ofo: SegmentList<P>,
    pub ofo_max: u64,
    ofo_integral: u128,
    ofo_since: Nanos,
    /// In order, not yet read.
    ready: InlineQueue<P>,
    /// The pieces of one read while they are joined. Empty between reads; its memory is used again.
    gathering: Vec<P>,
    pub max: u64,
    /// The memory that this takes, with what is payload of it, of 256, when the subflows were last asked.
    memory: u64,
    ratio: u64,
    /// What arrives on any subflow opens the window of all.
    opens_together: bool,
    /// Offset of the DATA_FIN, once it was received.
    pub fin_at: Option<u64>,
    /// Everything up to the DATA_FIN has arrived.
    pub finished: bool,
    pub duplicate_bytes: u64,
    /// Start of the interval in which reading speed is measured, and what was read by then (Linux's dynamic
    /// right-sizing).
    tuning: (Nanos, u64),
    /// When the interval is over, by the round-trip time that was known then.
    tuning_at: Nanos,
    read: u64,
    /// Most that was read in a round trip; ten segments at first, what the peer may send in its first.
    space: u64,
}

impl<P: Payload> ReceiveSide<P> {
    /// The buffer is `initial` bytes at first and may grow to `max`. `segments` limits the first window:
    /// [`crate::config::TcpConfig::initial_receive_window`].
    pub fn new(initial: u64, max: u64, segments: u32) -> Self {
        let opened = WindowAutotuning::new(initial, max, segments).opened();
        ReceiveSide {
            buffer: ReceiveBuffer { limit: initial, opened, ..ReceiveBuffer::default() },
            ofo: SegmentList::new(),
            ofo_max: 0,
            ofo_integral: 0,
            ofo_since: 0,
            ready: InlineQueue::new(),
            gathering: Vec::new(),
            max,
            memory: memory_for(initial, FIRST_RATIO),
            ratio: FIRST_RATIO,
            opens_together: segments > 0,
            fin_at: None,
            finished: false,
            duplicate_bytes: 0,
            tuning: (0, 0),
            tuning_at: 0,
            read: 0,
            space: FIRST_SPACE,
        }
    }

    /// Data arrived on a subflow: Linux opens the window for each subflow by itself, and the one that opened most decides,
    /// since no window that was advertised is taken back (`mptcp_set_rwin`). So a buffer that grows in a step, once a round
    /// trip, isn't offered in one. Whether the subflow opened more.
    #[inline(always)]
    pub fn open(&mut self, opening: &mut WindowAutotuning, len: u64) -> bool {
        if self.opens_together {
            opening.follow(self.buffer.opened);
        }
        let opens = opening.open(len);
        if opens {
            self.buffer.opened = self.buffer.opened.max(opening.opened());
        }
        opens
    }

    /// Bytes in the out-of-order queue.
    #[inline]
    pub fn ofo_bytes(&self) -> u64 {
        self.ofo.bytes()
    }

    fn account(&mut self, now: Nanos) {
        if self.ofo.bytes() > 0 {
            self.ofo_integral +=
                u128::from(self.ofo.bytes()) * u128::from(now.saturating_sub(self.ofo_since));
        }
        self.ofo_since = now;
    }

    /// The integral of the out-of-order queue over time until `now`, byte-nanoseconds.
    pub fn ofo_integral(&self, now: Nanos) -> u128 {
        self.ofo_integral + u128::from(self.ofo.bytes()) * u128::from(now.saturating_sub(self.ofo_since))
    }

    /// Takes data at `offset`. Returns whether `next` moved.
    #[inline(always)]
    pub fn insert(&mut self, now: Nanos, offset: u64, data: P) -> bool {
        if offset == self.buffer.next && self.ofo.begins_from(offset + data.len() as u64) && !data.is_empty()
        {
            self.advance(now, data);
            return true;
        }
        self.insert_irregular(now, offset, data)
    }

    /// Takes the next data, of which nothing is out of order, and what is in order with it.
    #[inline]
    fn advance(&mut self, now: Nanos, data: P) {
        self.accept(data);
        if !self.ofo.is_empty() {
            self.take_out_of_order(now);
        }
    }

    /// Takes what has become in order.
    #[inline(never)]
    fn take_out_of_order(&mut self, now: Nanos) {
        self.account(now);
        while let Some((start, piece, ())) = self.ofo.pop_before(self.buffer.next) {
            debug_assert_eq!(start, self.buffer.next, "what is kept lies beyond what is in order");
            self.accept(piece);
        }
        self.buffer.out_of_order = self.ofo.bytes();
    }

    /// Takes data that isn't simply the next.
    #[inline(never)]
    fn insert_irregular(&mut self, now: Nanos, offset: u64, mut data: P) -> bool {
        let len = data.len() as u64;
        let end = offset + len;
        let before = self.buffer.next;
        if len == 0 {
            return false;
        }
        if end <= before {
            self.duplicate_bytes += len;
            return false;
        }
        //= RFC 8684 3.3.4-b
        // Beyond the buffer: a peer that ignores the window; its data is dropped, unacknowledged.
        let is_beyond = end > before + self.buffer.limit.max(self.max).saturating_mul(2);
        if is_beyond && !(offset <= before && self.ofo.is_empty()) {
            return false;
        }
        //= RFC 8684 3.3.1-2 3.3.1-3
        if offset < before {
            self.duplicate_bytes += before - offset;
            data = data.slice((before - offset) as usize, len as usize);
            if self.ofo.begins_from(end) {
                self.advance(now, data);
                return true;
            }
        }
        let from = offset.max(before);
        self.account(now);
        let promised = self.buffer.advertised_end.saturating_sub(before);
        let budget = budget(self.buffer.limit.max(promised));
        if from > before && !self.ofo.make_room(from, budget, |_, _| {}) {
            return false;
        }
        data.condense();
        let repeated = &mut self.duplicate_bytes;
        self.ofo.fill(from, data, (), |start, end| *repeated += end - start);
        if from == before {
            self.take_out_of_order(now);
        }
        self.buffer.out_of_order = self.ofo.bytes();
        self.ofo_max = self.ofo_max.max(self.ofo.bytes());
        self.buffer.next > before
    }

    #[inline]
    fn accept(&mut self, data: P) {
        let len = data.len() as u64;
        self.buffer.next += len;
        self.buffer.ready += len;
        if self.ready.len() < FEW_UNREAD { self.ready.push_back(data) } else { self.coalesce_unread(data) }
    }

    /// The application doesn't read: small pieces become one, so that their number stays bounded whatever a peer sends
    /// (Linux: `tcp_try_coalesce`).
    #[cold]
    fn coalesce_unread(&mut self, mut data: P) {
        match self.ready.back_mut() {
            Some(last) if last.len() + data.len() <= MAX_COALESCED => {
                *last = P::join(&[std::mem::take(last), data]);
            }
            _ => {
                data.condense();
                self.ready.push_back(data);
            }
        }
    }

    /// Takes up to `max` bytes in order.
    pub fn read(&mut self, max: usize) -> Option<P> {
        let piece = self.take(max)?;
        let piece =
            if self.ready.is_empty() || piece.len() == max { piece } else { self.read_more(piece, max) };
        Some(self.note_read(piece))
    }

    /// Takes up to `max` bytes of what arrived as one piece: nothing is joined.
    pub fn read_piece(&mut self, max: usize) -> Option<P> {
        let piece = self.take(max)?;
        Some(self.note_read(piece))
    }

    fn note_read(&mut self, piece: P) -> P {
        self.buffer.ready -= piece.len() as u64;
        self.read += piece.len() as u64;
        piece
    }

    /// The first piece, or its first `max` bytes.
    fn take(&mut self, max: usize) -> Option<P> {
        let piece = self.ready.pop_front()?;
        if piece.len() <= max {
            return Some(piece);
        }
        self.ready.push_front(piece.slice(max, piece.len()));
        Some(piece.slice(0, max))
    }

    #[inline(never)]
    fn read_more(&mut self, first: P, max: usize) -> P {
        let mut len = first.len();
        let mut pieces = std::mem::take(&mut self.gathering);
        pieces.push(first);
        while let Some(piece) = self.ready.pop_front() {
            if len + piece.len() > max {
                let cut = max - len;
                if cut > 0 {
                    pieces.push(piece.slice(0, cut));
                }
                self.ready.push_front(piece.slice(cut, piece.len()));
                break;
            }
            len += piece.len();
            pieces.push(piece);
        }
        let whole = P::join(&pieces);
        pieces.clear();
        self.gathering = pieces;
        whole
    }

    /// Takes another size: at once if it is fixed, else as the limits of its growth.
    pub fn resize(&mut self, buffer: BufferConfig) {
        self.max = buffer.max;
        self.buffer.limit = buffer.resize(self.buffer.limit);
        self.memory = memory_for(self.buffer.limit, self.ratio);
    }

    /// Drops what is out of order: the gap before it won't be filled.
    pub fn drop_out_of_order(&mut self) {
        self.ofo.clear();
        self.buffer.out_of_order = 0;
    }

    /// Drops everything, since it will not be read.
    pub fn clear(&mut self) {
        self.drop_out_of_order();
        self.ready.clear();
        self.buffer.ready = 0;
    }

    /// Frees unused memory.
    pub fn shrink(&mut self) {
        self.ofo.shrink();
        self.ready.shrink();
        self.gathering = Vec::new();
    }

    /// Whether a round trip has passed since reading speed was last measured.
    #[inline]
    pub fn tuning_due(&self, now: Nanos) -> bool {
        now >= self.tuning_at
    }

    /// Grows the buffer as Linux's dynamic right-sizing does (`mptcp_rcv_space_adjust`, as of 6.18), by what the application read
    /// in the last round trip ([`wanted`]), of which an interval is the whole or a part. Without an estimate (0) it waits. `ratio`, the
    /// least of the subflows', says what window the buffer's memory makes: it is half a subflow's before that has data, so
    /// that a second subflow makes the window smaller until it has some. Returns what was read, where the buffer grew: the
    /// subflows' follow.
    pub fn tune(&mut self, now: Nanos, interval: Interval, ratio: u64) -> Option<u64> {
        let Interval { length, stands_for, look_after } = interval;
        if self.tuning_at == 0 {
            // The first interval begins with the first data.
            self.tuning = (now, 0);
        }
        let (since, read) = self.tuning;
        self.tuning_at = (since + length).min(now.saturating_add(look_after)).max(1);
        if self.buffer.limit < self.max && self.ratio != ratio {
            self.ratio = ratio;
            self.buffer.limit = window_of(self.memory, ratio).min(self.max);
        }
        if length == 0 || now < since + length {
            return None;
        }
        let read = u128::from(self.read - read) * u128::from(stands_for) / u128::from(length);
        let copied = u64::try_from(read).unwrap_or(u64::MAX);
        self.tuning = (now, self.read);
        self.tuning_at = now + length.min(look_after);
        if copied <= self.space {
            return None;
        }
        let window = wanted(self.space, copied).min(self.max);
        self.space = copied;
        if window <= self.buffer.limit {
            return None;
        }
        self.buffer.limit = window;
        self.memory = memory_for(window, self.ratio);
        Some(copied)
    }

    /// Notes a DATA_FIN at `offset`. Returns whether it is the first.
    pub fn note_fin(&mut self, offset: u64) -> bool {
        let is_news = self.fin_at.is_none();
        if is_news {
            self.fin_at = Some(offset);
        }
        is_news
    }

    /// Whether the stream just came to its end.
    pub fn check_finished(&mut self) -> bool {
        if !self.finished && self.fin_at.is_some_and(|fin| self.buffer.next >= fin) {
            self.finished = true;
            return true;
        }
        false
    }

    //= RFC 8684 3.3.3-a
    /// DATA_ACK as an offset: the DATA_FIN takes one.
    #[inline]
    pub fn ack(&self) -> u64 {
        self.buffer.next + u64::from(self.finished)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::window_autotuning::{Interval, WindowAutotuning};
    use super::{FEW_UNREAD, MAX_COALESCED, Nanos, ReceiveSide};

    fn side() -> ReceiveSide<Bytes> {
        ReceiveSide::new(1000, 1000, 0)
    }

    /// A whole round trip.
    fn whole(rtt: Nanos) -> Interval {
        Interval { length: rtt, stands_for: rtt, look_after: Nanos::MAX }
    }

    #[test]
    fn what_nobody_reads_is_held_in_few_pieces_that_share_no_memory() {
        let bytes: Bytes = (0..100_000u32).map(|at| (at % 251) as u8).collect();
        let mut side = ReceiveSide::new(1 << 20, 1 << 20, 0);
        for at in 0..bytes.len() {
            side.insert(0, at as u64, bytes.slice(at..=at));
        }
        assert!(side.ready.len() <= FEW_UNREAD + 2 * bytes.len() / MAX_COALESCED, "{}", side.ready.len());
        let memory = bytes.as_ptr_range();
        let shared = side.ready.iter().filter(|piece| memory.contains(&piece.as_ptr())).count();
        assert!(shared <= FEW_UNREAD, "{shared} pieces share memory");
        assert_eq!(side.buffer.ready, bytes.len() as u64);
        assert_eq!(side.read(usize::MAX).unwrap(), bytes);
    }

    #[test]
    fn what_is_out_of_order_shares_no_memory() {
        let bytes = Bytes::from(vec![7; 1000]);
        let mut side = side();
        for at in [100, 300, 200] {
            side.insert(0, at, bytes.slice(at as usize..at as usize + 50));
        }
        let memory = bytes.as_ptr_range();
        assert!(side.ofo.iter().all(|(_, piece, ())| !memory.contains(&piece.as_ptr())));
    }

    //= test RFC 8684 3.3.1-2 3.3.1-3
    #[test]
    fn overlapping_pieces_come_out_once_and_in_order() {
        let text = Bytes::from_static(b"0123456789");
        let mut side = side();
        assert!(!side.insert(0, 4, text.slice(4..6)));
        assert!(!side.insert(0, 2, text.slice(2..8)));
        assert!(!side.insert(0, 9, text.slice(9..10)));
        assert_eq!((side.ofo_bytes(), side.duplicate_bytes), (7, 2));
        assert!(side.insert(0, 0, text.slice(0..3)));
        assert_eq!((side.buffer.next, side.ofo_bytes()), (8, 1));
        assert!(side.insert(0, 7, text.slice(7..10)));
        assert_eq!(side.buffer.next, 10);
        assert_eq!(side.read(4).unwrap(), "0123");
        assert_eq!(side.read(100).unwrap(), "456789");
        assert!(side.read(1).is_none());
    }

    //= test RFC 8684 3.3.4-b
    /// All that the window allowed comes in the worst order, after the buffer's limit has fallen.
    #[test]
    fn what_was_offered_is_taken() {
        let mut side = side();
        assert_eq!(side.buffer.window(), 1000);
        side.buffer.advertised_end = 1000;
        side.buffer.limit = 100;
        for piece in (0..10).rev() {
            side.insert(0, piece * 100, Bytes::from(vec![piece as u8; 100]));
        }
        assert_eq!((side.buffer.next, side.duplicate_bytes), (1000, 0));
    }

    #[test]
    fn one_byte_pieces_of_the_stream_are_bounded_by_memory() {
        let mut side: ReceiveSide<Bytes> = ReceiveSide::new(1 << 20, 1 << 20, 0);
        for n in 0..200_000 {
            side.insert(0, 1 + 2 * n, Bytes::from_static(b"x"));
        }
        assert!(side.ofo.memory() <= 2 << 20 | 256, "{}", side.ofo.memory());
        // What is needed first takes the place of what is needed last.
        let kept = side.ofo_bytes();
        side.insert(0, 2, Bytes::from_static(b"x"));
        assert_eq!((side.ofo_bytes(), side.insert(0, 0, Bytes::from_static(b"x"))), (kept, true));
        assert_eq!(side.buffer.next, 4);
    }

    #[test]
    fn pieces_are_read_as_they_arrived() {
        let text = Bytes::from_static(b"0123456789");
        let mut side = side();
        side.insert(0, 0, text.slice(0..6));
        side.insert(0, 6, text.slice(6..10));
        assert_eq!(side.read_piece(4).unwrap(), "0123");
        assert_eq!(side.read_piece(4).unwrap(), "45");
        let last = side.read_piece(100).unwrap();
        assert_eq!((last.as_ptr(), side.buffer.ready), (text[6..].as_ptr(), 0), "not a copy");
        assert!(side.read_piece(1).is_none());
    }

    #[test]
    fn every_repeated_byte_is_counted() {
        let mut side = side();
        for (offset, len, repeated) in [(0, 4, 0), (2, 4, 2), (4, 4, 4), (0, 3, 7), (8, 1, 7)] {
            side.insert(0, offset, Bytes::from(vec![0; len]));
            assert_eq!(side.duplicate_bytes, repeated);
        }
    }

    #[test]
    fn the_queue_is_weighed_by_time() {
        let mut side = side();
        side.insert(10, 5, Bytes::from_static(b"abc"));
        side.insert(30, 10, Bytes::from_static(b"abc"));
        assert_eq!(side.ofo_integral(40), 3 * 20 + 6 * 10);
        assert_eq!(side.ofo_max, 6);
    }

    #[test]
    fn the_buffer_grows_with_what_is_read_in_a_round_trip() {
        let mut side = ReceiveSide::new(10_000, 1_000_000, 0);
        let bytes = |side: &mut ReceiveSide<Bytes>, len: usize| {
            side.insert(0, side.buffer.next, Bytes::from(vec![0; len]));
            side.read(len);
        };
        bytes(&mut side, 1448);
        side.tune(100, whole(0), 128);
        side.tune(100, whole(100), 128);
        bytes(&mut side, 27_512);
        side.tune(199, whole(100), 128);
        assert_eq!(side.buffer.limit, 10_000, "the first round trip begins with the first data");
        side.tune(200, whole(100), 128);
        // Twice what was read, three times over since it has doubled.
        assert_eq!(side.buffer.limit, 3 * 2 * 28_960);
        let limit = side.buffer.limit;
        assert!(!side.tuning_due(299) && side.tuning_due(300));
        bytes(&mut side, 28_960);
        side.tune(300, whole(100), 128);
        assert_eq!(side.buffer.limit, limit, "no more than before");
        bytes(&mut side, 900_000);
        side.tune(399, whole(100), 128);
        assert_eq!(side.buffer.limit, limit, "the round trip isn't over");
        side.tune(400, whole(100), 128);
        assert_eq!(side.buffer.limit, 1_000_000);
    }

    #[test]
    fn a_part_of_a_round_trip_stands_for_the_whole() {
        let mut side: ReceiveSide<Bytes> = ReceiveSide::new(10_000, 1_000_000, 0);
        let part = Interval { length: 25, stands_for: 100, look_after: 10 };
        side.tune(100, part, 128);
        assert!(side.tuning_due(110), "it may have become shorter");
        side.insert(0, 0, Bytes::from(vec![0; 7240]));
        side.read(7240);
        side.tune(110, part, 128);
        assert_eq!(side.buffer.limit, 10_000);
        side.tune(125, part, 128);
        assert_eq!(side.buffer.limit, 3 * 2 * 4 * 7240);
    }

    #[test]
    fn a_buffer_that_grows_at_once_is_offered_bit_by_bit_and_the_subflow_that_opened_most_decides() {
        let mut side: ReceiveSide<Bytes> = ReceiveSide::new(65_536, 6_000_000, 0);
        let mut opening = [WindowAutotuning::new(65_536, 6_000_000, 0); 2];
        side.buffer.limit = 1_000_000;
        opening.iter_mut().for_each(|opening| opening.grow(200_000, 6_000_000));
        assert_eq!(side.buffer.window(), 64_088);
        side.open(&mut opening[0], 1448);
        assert_eq!(side.buffer.window(), 64_088 + 2 * 1460);
        for _ in 0..2 {
            side.open(&mut opening[1], 1448);
        }
        assert_eq!(side.buffer.window(), 64_088 + 4 * 1460);
        side.open(&mut opening[0], 2_000_000);
        assert_eq!(side.buffer.window(), 1_000_000, "no further than the buffer");
    }

    /// A 6.18 kernel, by `ss -tMim`: rb131072 is 65,536 bytes of window while one subflow has had no data, rb235936 117,968,
    /// rb382600 191,300; and that is 234,641 once both have, without having grown.
    #[test]
    fn a_subflow_without_data_makes_the_window_smaller() {
        let mut side: ReceiveSide<Bytes> = ReceiveSide::new(65_536, 6 << 20, 0);
        let read = |side: &mut ReceiveSide<Bytes>, now, len: usize, ratio| {
            side.insert(0, side.buffer.next, Bytes::from(vec![0; len]));
            side.read(len);
            side.tune(now, whole(100), ratio)
        };
        assert_eq!(read(&mut side, 1, 1420, 157), None);
        assert_eq!(side.buffer.limit, 80_384, "alone, and its data known");
        assert_eq!(read(&mut side, 2, 0, 128), None);
        assert_eq!(side.buffer.limit, 65_536);
        assert_eq!(read(&mut side, 101, 18_460 - 1420, 128), None, "57,216 are no more than there is");
        assert_eq!(read(&mut side, 201, 28_400, 128), Some(28_400));
        assert_eq!(side.buffer.limit, 117_968);
        assert_eq!(read(&mut side, 301, 44_632, 128), Some(44_632));
        assert!(side.buffer.limit.abs_diff(191_300) <= 2, "{}", side.buffer.limit);
        assert_eq!(read(&mut side, 401, 1420, 157), None);
        assert!(side.buffer.limit.abs_diff(234_641) <= 4, "{}", side.buffer.limit);
    }

    //= test RFC 8684 3.3.4-1
    //= test RFC 9293 SHLD-14
    #[test]
    fn the_window_never_moves_left() {
        let mut side = side();
        assert_eq!(side.buffer.window(), 1000);
        side.buffer.advertised_end = 1000;
        side.insert(0, 0, Bytes::from(vec![0; 600]));
        assert_eq!(side.buffer.window(), 400);
        side.buffer.limit = 500;
        assert_eq!(side.buffer.window(), 400);
        side.read(600);
        assert_eq!(side.buffer.window(), 400, "by a hundred bytes it isn't worth moving");
        side.buffer.limit = 1000;
        assert_eq!(side.buffer.window(), 1000);
    }

    //= test RFC 8684 3.3.3-a
    #[test]
    fn the_end_takes_one_number() {
        let mut side = side();
        side.note_fin(3);
        assert!(!side.check_finished());
        side.insert(0, 0, Bytes::from_static(b"abc"));
        assert!(side.check_finished() && !side.check_finished());
        assert_eq!(side.ack(), 4);
    }

    /// In Linux 3.14 the connection has one limit (`tcp_grow_window` of MPTCP 0.89 raises the meta socket's), and what comes on either
    /// subflow opens it.
    #[test]
    fn an_old_hosts_window_opens_with_what_comes_on_any_subflow() {
        let mut side: ReceiveSide<Bytes> = ReceiveSide::new(187_200, 3 << 20, 20);
        let mut opening = [WindowAutotuning::new(187_200, 3 << 20, 20); 2];
        assert_eq!(side.buffer.opened, 28_960);
        for arrived in 0..10 {
            side.open(&mut opening[arrived % 2], 1448);
        }
        assert_eq!(side.buffer.opened, 28_960 + 10 * 2 * 1460);
    }
}
