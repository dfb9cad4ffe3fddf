//! The connection-level receive side: the out-of-order queue, what waits for the application, and the window
//! (RFC 8684 3.3.1, 3.3.2).

use ropewalk_wire::Payload;

use super::window_autotuning::{FIRST_RATIO, Interval, WindowAutotuning, first_space, memory_for, window_of};
use crate::config::BufferConfig;
use crate::inline_queue::InlineQueue;
use crate::segment_list::{SegmentList, budget};
use crate::tcp::ReceiveBuffer;
use crate::{Span, Time};

/// With this many unread pieces, small ones are coalesced.
const FEW_UNREAD: usize = 16;
/// Most bytes of a piece that small ones are coalesced to.
const MAX_COALESCED: usize = 4096;

/// Out-of-order data, and how much there was.
#[derive(Debug)]
struct OutOfOrder<P> {
    list: SegmentList<P>,
    max: u64,
    integral: u128,
    since: Time,
}

impl<P: Payload> Default for OutOfOrder<P> {
    fn default() -> Self {
        OutOfOrder { list: SegmentList::new(), max: 0, integral: 0, since: Time::ZERO }
    }
}

impl<P: Payload> OutOfOrder<P> {
    fn integral(&self, now: Time) -> u128 {
        let unaccounted = now.saturating_sub(self.since).as_nanos();
        self.integral + u128::from(self.list.bytes()) * u128::from(unaccounted)
    }

    /// The queue is about to change.
    fn account(&mut self, now: Time) {
        self.integral = self.integral(now);
        self.since = now;
    }
}

/// The receive side.
#[derive(Debug)]
pub(crate) struct ReceiveSide<P> {
    /// What subflows advertise of it.
    buffer: ReceiveBuffer,
    /// Made with the first data out of order.
    ofo: Option<Box<OutOfOrder<P>>>,
    /// In order, not yet read.
    ready: InlineQueue<P>,
    max: u64,
    /// The memory that this takes, with what is payload of it, of 256, when the subflows were last asked.
    memory: u64,
    ratio: u64,
    /// What arrives on any subflow opens the window of all.
    opens_together: bool,
    /// Offset of the DATA_FIN, once it was received.
    fin_at: Option<u64>,
    /// Everything up to the DATA_FIN has arrived.
    finished: bool,
    duplicate_bytes: u64,
    /// The application knows that there is data to read.
    told_readable: bool,
    /// It knows of the end of the stream.
    told_end: bool,
    /// Start of the interval in which reading speed is measured, and what was read by then (Linux's dynamic
    /// right-sizing).
    tuning: (Time, u64),
    /// When the interval is over, by the round-trip time that was known then.
    tuning_at: Time,
    read: u64,
    /// Most that was read in a round trip ([`first_space`] before anything was).
    space: u64,
}

impl<P: Payload> ReceiveSide<P> {
    /// The buffer is `initial` bytes at first and may grow to `max`. `segments` limits the first window:
    /// [`crate::config::TcpConfig::initial_receive_window`].
    pub fn new(initial: u64, max: u64, segments: u32) -> Self {
        let opened = WindowAutotuning::new(initial, max, segments).opened();
        ReceiveSide {
            buffer: ReceiveBuffer { limit: initial, opened, ..ReceiveBuffer::default() },
            ofo: None,
            ready: InlineQueue::new(),
            max,
            memory: memory_for(initial, FIRST_RATIO),
            ratio: FIRST_RATIO,
            opens_together: segments > 0,
            fin_at: None,
            finished: false,
            duplicate_bytes: 0,
            told_readable: false,
            told_end: false,
            tuning: (Time::ZERO, 0),
            tuning_at: Time::ZERO,
            read: 0,
            space: first_space(segments),
        }
    }

    /// The same, where a byte in the buffer takes `byte_weight` of the window, of 256.
    pub fn weighing(mut self, byte_weight: u64) -> Self {
        self.buffer.byte_weight = byte_weight;
        self
    }

    /// Data arrived on a subflow: Linux opens the window for each subflow by itself, and the one that opened
    /// most decides, since no window that was advertised is taken back (`mptcp_set_rwin`). So a buffer that
    /// grows in a step, once a round trip, isn't offered in one. Whether the subflow opened more.
    #[inline(always)]
    pub fn open(&mut self, autotuning: &mut WindowAutotuning, len: u64) -> bool {
        if self.opens_together {
            autotuning.follow(self.buffer.opened);
            // What is held leaves too little of the buffer (`tcp_grow_window`, check #1).
            if self.buffer.opened >= self.buffer.free() {
                return false;
            }
        }
        let opens = autotuning.open(len);
        if opens {
            self.buffer.opened = self.buffer.opened.max(autotuning.opened());
        }
        opens
    }

    /// A subflow joined. MPTCP 0.89 adds the subflow's receive buffer and window to the connection's while
    /// that may still grow (`mptcp_init_buffer_space`).
    /// Returns how far the window may open then, where that has changed.
    pub fn add_subflow(&mut self, initial: u64, autotuning: &WindowAutotuning) -> Option<u64> {
        if !self.opens_together || self.buffer.limit >= self.max {
            return None;
        }
        self.buffer.limit = (self.buffer.limit + initial).min(self.max);
        self.memory = memory_for(self.buffer.limit, self.ratio);
        self.buffer.opened += autotuning.opened();
        Some(self.buffer.limit)
    }

    /// What subflows advertise of it.
    #[inline]
    pub fn buffer(&self) -> &ReceiveBuffer {
        &self.buffer
    }

    /// The next offset expected.
    #[inline]
    pub fn next(&self) -> u64 {
        self.buffer.next
    }

    /// Bytes that can be read.
    #[inline]
    pub fn ready(&self) -> u64 {
        self.buffer.ready
    }

    /// So many bytes wait for the peer to confirm a fallback.
    pub fn set_held(&mut self, bytes: u64) {
        self.buffer.held = bytes;
    }

    /// So many more bytes wait for it.
    pub fn hold(&mut self, bytes: usize) {
        self.buffer.held += bytes as u64;
    }

    /// Most bytes that were out of order at once.
    pub fn ofo_max(&self) -> u64 {
        self.ofo.as_ref().map_or(0, |ofo| ofo.max)
    }

    /// Bytes that arrived more than once.
    pub fn duplicate_bytes(&self) -> u64 {
        self.duplicate_bytes
    }

    /// What the buffer may grow to, bytes.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Whether everything up to the DATA_FIN has arrived.
    #[inline]
    pub fn finished(&self) -> bool {
        self.finished
    }

    /// Bytes in the out-of-order queue.
    #[inline]
    pub fn ofo_bytes(&self) -> u64 {
        self.ofo.as_ref().map_or(0, |ofo| ofo.list.bytes())
    }

    /// The integral of the out-of-order queue over time until `now`, byte-nanoseconds.
    pub fn ofo_integral(&self, now: Time) -> u128 {
        self.ofo.as_ref().map_or(0, |ofo| ofo.integral(now))
    }

    /// Takes data at `offset`. Returns whether `next` moved.
    #[inline(always)]
    pub fn insert(&mut self, now: Time, offset: u64, data: P) -> bool {
        if offset == self.buffer.next && self.is_missing(offset + data.len() as u64) && !data.is_empty() {
            self.advance(now, data);
            return true;
        }
        self.insert_irregular(now, offset, data)
    }

    /// Whether nothing before `end` is among what is out of order.
    #[inline]
    fn is_missing(&self, end: u64) -> bool {
        self.ofo.as_ref().is_none_or(|ofo| ofo.list.begins_from(end))
    }

    /// Takes the next data, of which nothing is out of order, and what is in order with it.
    #[inline]
    fn advance(&mut self, now: Time, data: P) {
        self.accept(data);
        if self.ofo.as_ref().is_some_and(|ofo| !ofo.list.is_empty()) {
            self.take_out_of_order(now);
        }
    }

    /// Takes what has become in order.
    #[inline(never)]
    fn take_out_of_order(&mut self, now: Time) {
        let Some(mut ofo) = self.ofo.take() else { return };
        ofo.account(now);
        while let Some((start, piece, ())) = ofo.list.pop_before(self.buffer.next) {
            debug_assert_eq!(start, self.buffer.next, "what is kept lies beyond what is in order");
            self.accept(piece);
        }
        self.buffer.out_of_order = ofo.list.bytes();
        self.ofo = Some(ofo);
    }

    /// Takes data that isn't simply the next.
    #[inline(never)]
    fn insert_irregular(&mut self, now: Time, offset: u64, mut data: P) -> bool {
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
        if is_beyond && !(offset <= before && self.ofo_bytes() == 0) {
            return false;
        }
        //= RFC 8684 3.3.1-2 3.3.1-3
        if offset < before {
            self.duplicate_bytes += before - offset;
            data = data.slice((before - offset) as usize, len as usize);
            if self.is_missing(end) {
                self.advance(now, data);
                return true;
            }
        }
        let from = offset.max(before);
        let ofo = self.ofo.get_or_insert_default();
        ofo.account(now);
        let promised = self.buffer.advertised_end.saturating_sub(before);
        let budget = budget(self.buffer.limit.max(promised));
        if from > before && !ofo.list.make_room(from, budget, |_, _| {}) {
            return false;
        }
        data.condense();
        let repeated = &mut self.duplicate_bytes;
        ofo.list.fill(from, data, (), |start, end| *repeated += end - start);
        if from == before {
            self.take_out_of_order(now);
        }
        if let Some(ofo) = &mut self.ofo {
            self.buffer.out_of_order = ofo.list.bytes();
            ofo.max = ofo.max.max(ofo.list.bytes());
        }
        self.buffer.next > before
    }

    #[inline]
    fn accept(&mut self, data: P) {
        let len = data.len() as u64;
        self.buffer.next += len;
        self.buffer.ready += len;
        if self.ready.len() < FEW_UNREAD { self.ready.push_back(data) } else { self.coalesce_unread(data) }
    }

    /// The application doesn't read: small pieces become one, so that their number stays bounded whatever a
    /// peer sends (Linux: `tcp_try_coalesce`).
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
        let piece = if self.buffer.ready <= max as u64 && self.ready.len() > 1 {
            self.ready.take_all(P::join)
        } else {
            self.take_and_join(max)?
        };
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
        self.told_readable &= self.buffer.ready > 0;
        piece
    }

    /// Whether the application is to be told that there is data to read: once, until it has read all.
    #[inline]
    pub fn take_readable(&mut self) -> bool {
        let tells = self.buffer.ready > 0 && !self.told_readable;
        self.told_readable |= tells;
        tells
    }

    /// Whether the application is to be told of the end of the stream: once.
    #[inline]
    pub fn take_end(&mut self) -> bool {
        let tells = self.finished && !self.told_end;
        self.told_end |= tells;
        tells
    }

    /// Whether everything is read and the peer's side closed.
    pub fn is_at_end(&self) -> bool {
        self.buffer.ready == 0 && self.finished
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

    /// The first piece, and further ones up to `max` bytes.
    fn take_and_join(&mut self, max: usize) -> Option<P> {
        let first = self.take(max)?;
        let mut room = max - first.len();
        if room == 0 || self.ready.is_empty() {
            return Some(first);
        }
        let mut pieces = vec![first];
        while room > 0
            && let Some(piece) = self.take(room)
        {
            room -= piece.len();
            pieces.push(piece);
        }
        Some(P::join(&pieces))
    }

    /// Takes another size: at once if it is fixed, else as the limits of its growth.
    pub fn resize(&mut self, buffer: BufferConfig) {
        self.max = buffer.max;
        self.buffer.limit = buffer.resize(self.buffer.limit);
        self.memory = memory_for(self.buffer.limit, self.ratio);
    }

    /// Drops what is out of order: the gap before it won't be filled.
    pub fn drop_out_of_order(&mut self) {
        if let Some(ofo) = &mut self.ofo {
            ofo.list.clear();
        }
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
        if let Some(ofo) = &mut self.ofo {
            ofo.list.shrink();
        }
        self.ready.shrink();
    }

    /// Whether a round trip has passed since reading speed was last measured.
    #[inline]
    pub fn tuning_due(&self, now: Time) -> bool {
        now >= self.tuning_at
    }

    /// Grows the buffer as Linux's dynamic right-sizing does (`mptcp_rcv_space_adjust`, as of 6.18), by what
    /// the application read in the last round trip ([`Growth`](super::window_autotuning::Growth)), of which
    /// an interval is the whole or a part. Without an estimate (0) it waits. `ratio`, the least of the
    /// subflows', says what window the buffer's memory makes: it is half a subflow's before that has data, so
    /// that a second subflow makes the window smaller until it has some. Returns what was read, where the
    /// buffer grew: the subflows' follow.
    pub(super) fn tune(&mut self, now: Time, interval: Interval, ratio: u64) -> Option<u64> {
        let Interval { length, stands_for, look_after, growth } = interval;
        if self.tuning_at == Time::ZERO {
            // The first interval begins with the first data.
            self.tuning = (now, 0);
        }
        let (since, read) = self.tuning;
        self.tuning_at = (since + length).min(now.saturating_add(look_after)).max(Time::from_nanos(1));
        if self.buffer.limit < self.max && self.ratio != ratio {
            self.ratio = ratio;
            self.buffer.limit = window_of(self.memory, ratio).min(self.max);
        }
        if length == Span::ZERO || now < since + length {
            return None;
        }
        let read =
            u128::from(self.read - read) * u128::from(stands_for.as_nanos()) / u128::from(length.as_nanos());
        let copied = u64::try_from(read).unwrap_or(u64::MAX);
        self.tuning = (now, self.read);
        self.tuning_at = now + length.min(look_after);
        if copied <= self.space {
            return None;
        }
        let window = growth.wanted(self.space, copied).min(self.max);
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

    /// A subflow has advertised a window.
    #[inline]
    pub fn advertise(&mut self, window: u64) {
        self.buffer.advertised_end = self.buffer.advertised_end.max(self.buffer.next + window);
    }

    //= RFC 8684 3.3.3-a
    /// DATA_ACK as an offset: the DATA_FIN takes one.
    #[inline]
    pub fn ack(&self) -> u64 {
        self.buffer.next + u64::from(self.finished)
    }
}

#[cfg(test)]
mod tests;
