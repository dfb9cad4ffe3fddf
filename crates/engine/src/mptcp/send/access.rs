//! What the rest of a connection asks of its send side, and the changes that it makes there.

use ropewalk_wire::Payload;

use super::{Cork, SendSide};
use crate::Time;
use crate::config::BufferConfig;
use crate::mptcp::chunks::{LONGEST_MAPPING, Sent};
use crate::mptcp::event_queue::EventQueue;
use crate::mptcp::messages::Messages;
use crate::mptcp::stats::Event;
use crate::scheduler::Chunk;

/// One method that returns a field.
macro_rules! read {
    ($($(#[$doc:meta])* $field:ident: $type:ty,)+) => {$(
        $(#[$doc])*
        #[inline]
        pub fn $field(&self) -> $type {
            self.$field
        }
    )+};
}

impl<P> SendSide<P> {
    read! {
        /// First byte not acknowledged at data level.
        una: u64,
        /// End of what the application wrote.
        written: u64,
        /// End of the highest range ever assigned.
        assigned_end: u64,
        /// Right edge of the peer's window, as an offset.
        window_end: u64,
        /// The last window that the peer advertised, bytes.
        peer_window: u64,
        /// Bytes that may be written and unacknowledged.
        limit: u64,
        /// The application waits for space.
        writer_waits: bool,
        /// The application closed its side: the DATA_FIN is at `written`.
        closed: bool,
        /// The peer has acknowledged the DATA_FIN.
        fin_acked: bool,
        /// Repeated data carries no DATA_FIN.
        fin_alone: bool,
        /// The application declared the flow's size.
        declared: Option<u64>,
        /// Since when nothing new was acknowledged, for the user timeout.
        progress_at: Time,
        /// How often the connection-level timer fired in a row.
        backoff: u32,
    }

    /// Whether the application waited for space when what is sent now was let out.
    #[inline]
    pub fn writer_waited(&self) -> bool {
        self.writer_waits && !self.spaced
    }

    /// What is sent from now on is sent while the application doesn't wait, if `spaced`.
    #[inline]
    pub fn set_spaced(&mut self, spaced: bool) {
        self.spaced = spaced;
    }

    /// Takes note of a window relative to the DATA_ACK `acked`. Whether both say nothing new: no byte
    /// acknowledged, no window opened.
    #[inline(always)]
    pub fn is_repeated(&mut self, acked: u64, window: u64) -> bool {
        let is_repeated = acked == self.una && acked + window <= self.window_end;
        if is_repeated {
            self.peer_window = window;
        }
        is_repeated
    }
}

impl<P: Payload> SendSide<P> {
    /// Whether only the peer's window is waited for: what it had room for is acknowledged, but for a
    /// segment at most, and more waits.
    #[cold]
    pub fn awaits_window(&self, mss: u32) -> bool {
        let in_flight = self.assigned_end - self.una;
        self.unsent > 0 && in_flight <= u64::from(mss) && self.window_left() == 0
    }

    //= RFC 8684 3.3.5-1 4-4 3.3.4-a relative to the DATA_ACK; the rightmost edge counts
    /// A window relative to the DATA_ACK `acked`. Whether it opens a window that was full.
    #[inline]
    pub fn on_window(&mut self, acked: u64, window: u64) -> bool {
        self.peer_window = window;
        let edge = acked + window;
        if edge <= self.window_end {
            return false;
        }
        let was_full = self.window_left() == 0;
        self.window_end = edge;
        was_full
    }

    /// Whether the peer has taken its window back, to less than what subflows were given.
    pub fn is_window_taken_back(&self) -> bool {
        self.una + self.peer_window < self.assigned_end
    }

    /// The window of the handshake: it counts until the first DATA_ACK.
    pub fn start_window(&mut self, window: u64) {
        self.peer_window = window;
        self.window_end = self.una + window;
    }

    /// Leaves so many bytes at the window's end unused.
    pub fn reserve(&mut self, bytes: u64) {
        self.reserved = bytes;
    }

    /// Something new was acknowledged, or the connection begins to wait for it: the user timeout runs from
    /// now on.
    #[inline]
    pub fn progress(&mut self, now: Time) {
        self.progress_at = now;
    }

    /// Whether a DATA_ACK up to `acked` may be true. What was written but never handed to a subflow can't
    /// have arrived: such a DATA_ACK is ignored, as by Linux.
    #[inline]
    pub fn may_acknowledge(&self, acked: u64) -> bool {
        acked <= self.next_offset() + u64::from(self.closed && self.unsent == 0)
    }

    /// The peer acknowledged the DATA_FIN.
    pub fn acknowledge_fin(&mut self) {
        self.fin_acked = true;
    }

    /// The application writes nothing more.
    pub fn close(&mut self) {
        self.closed = true;
        self.fin_alone = self.assigned_end == self.written;
    }

    /// The application waits for space if there is none.
    pub fn want_space(&mut self, has_space: bool) {
        self.writer_waits |= !has_space;
    }

    /// Tells the application, which waits for space, once there is enough.
    pub fn wake_writer(&mut self, events: &mut EventQueue) {
        if self.writer_waits && self.writable() {
            self.writer_waits = false;
            events.push(Event::Writable);
        }
    }

    /// How many bytes, of `most`, should be written next so that they fill super-segments of `segments`
    /// segments of `mss` bytes behind what isn't sent yet: each piece of the application's ends a
    /// super-segment, and a segment that spans two pieces is copied.
    pub fn aligned_bytes(&self, most: u64, segments: u32, mss: u64) -> u64 {
        let whole = u64::from(segments.max(1)).min(LONGEST_MAPPING / mss).max(1) * mss;
        let spanning = (mss - self.unsent % mss) % mss;
        match most.checked_sub(spanning).map(|left| left / whole) {
            None | Some(0) => most,
            Some(count) => spanning + count * whole,
        }
    }

    /// A range was handed to a subflow.
    #[inline]
    pub fn insert_chunk(&mut self, chunk: Chunk) {
        self.chunks.insert(chunk);
    }

    /// The range in flight that holds `offset`.
    pub fn chunk_at(&self, offset: u64) -> Option<Chunk> {
        self.chunks.find(offset).map(Sent::chunk)
    }

    /// The ranges in flight, by offset.
    pub fn chunks(&self) -> impl Iterator<Item = Chunk> {
        self.chunks.0.iter().map(Sent::chunk)
    }

    /// End of the last range that was given to a subflow again.
    pub fn repeated_end(&self) -> u64 {
        self.repeated_end
    }

    /// The peer's window, bytes from the first that isn't acknowledged.
    pub fn window(&self) -> u64 {
        self.window_end.saturating_sub(self.una)
    }

    /// How many ranges are in flight.
    pub fn chunk_count(&self) -> usize {
        self.chunks.len()
    }

    /// Whether some range may wait for reinjection.
    #[inline]
    pub fn has_reinjections(&self) -> bool {
        !self.reinjections.is_empty()
    }

    /// The messages that the application marks, from the first that isn't acknowledged.
    fn messages(&mut self) -> &mut Messages {
        let messages = self.messages.get_or_insert_default();
        messages.forget(self.una);
        messages
    }

    /// The next `bytes` bytes are a message.
    #[cold]
    pub fn begin_message(&mut self, bytes: u64, deadline: Option<Time>) {
        let written = self.written;
        self.messages().begin(written, bytes, deadline);
    }

    /// A message ends with what is written.
    #[cold]
    pub fn end_message(&mut self, deadline: Option<Time>) {
        let written = self.written;
        self.messages().end(written, deadline);
    }

    /// What holds back less than a segment.
    #[inline]
    pub fn cork(&self) -> &Cork {
        &self.cork
    }

    /// As [`cork`](Self::cork).
    #[inline]
    pub fn cork_mut(&mut self) -> &mut Cork {
        &mut self.cork
    }

    /// The connection-level timer fired. Returns how often in a row.
    pub fn back_off(&mut self) -> u32 {
        self.backoff += 1;
        self.backoff
    }

    /// Something new was acknowledged, or the window opened.
    #[inline]
    pub fn reset_backoff(&mut self) {
        self.backoff = 0;
    }

    /// The application declares the flow's size.
    pub fn declare(&mut self, bytes: u64) {
        self.declared = Some(bytes);
    }

    /// Another buffer.
    pub fn resize(&mut self, buffer: BufferConfig) {
        self.limit = buffer.resize(self.limit);
    }

    /// A buffer of at least so many bytes.
    pub fn grow(&mut self, bytes: u64) {
        self.limit = self.limit.max(bytes);
    }

    /// Whether the application is told of space by unsent bytes too.
    #[inline]
    pub fn has_unsent_mark(&self) -> bool {
        self.unsent_mark != u64::MAX
    }

    /// Whether the peer's window bounds what is taken.
    pub fn has_bound_beyond_window(&self) -> bool {
        self.beyond_window != u64::MAX
    }

    /// The largest window that the peer advertised, bytes.
    pub fn largest_window(&self) -> u64 {
        self.largest_window.max(self.window_end.saturating_sub(self.una))
    }

    /// Most bytes that are taken beyond the peer's window, or a quarter of the window if that is more.
    pub fn set_beyond_window(&mut self, bytes: Option<u64>) {
        self.beyond_window = bytes.unwrap_or(u64::MAX);
    }

    /// Unsent bytes beyond which nothing is taken.
    pub fn set_unsent_mark(&mut self, bytes: Option<u64>) {
        self.unsent_mark = bytes.unwrap_or(u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::SendSide;

    #[test]
    fn a_writer_that_the_window_bounds_is_woken_for_large_pieces() {
        const KIB: u64 = 1 << 10;
        let piece = |len: u64| Bytes::from(vec![7; len as usize]);
        // What the window allows beyond itself: 64 KiB, or a quarter of it.
        for (window, beyond) in [(64 * KIB, 64 * KIB), (1024 * KIB, 256 * KIB)] {
            let mut side: SendSide<Bytes> = SendSide::new(8 << 20);
            side.set_beyond_window(Some(64 * KIB));
            side.on_window(0, window);
            assert_eq!(side.write(piece(4 << 20)) as u64, window + beyond);
            for (acked, writable) in [(0, false), (beyond / 2 - 1, false), (beyond / 2, true)] {
                side.acknowledge(acked);
                side.on_window(acked, window);
                assert_eq!(side.writable(), writable, "{window}, {acked}");
            }
        }
    }
}
