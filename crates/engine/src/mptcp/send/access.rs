//! What the rest of a connection asks of its send side, and the changes that it makes there.

use ropewalk_wire::Payload;

use super::SendSide;
use crate::Nanos;
use crate::config::BufferConfig;

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
        progress_at: Nanos,
    }

    /// Takes note of a window relative to the DATA_ACK `acked`. Whether both say nothing new: no byte acknowledged, no window opened.
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

    /// The window of the handshake: it counts until the first DATA_ACK.
    pub fn start_window(&mut self, window: u64) {
        self.peer_window = window;
        self.window_end = self.una + window;
    }

    /// Leaves so many bytes at the window's end unused.
    pub fn reserve(&mut self, bytes: u64) {
        self.reserved = bytes;
    }

    /// Something new was acknowledged, or the connection begins to wait for it: the user timeout runs from now on.
    #[inline]
    pub fn progress(&mut self, now: Nanos) {
        self.progress_at = now;
    }

    /// The peer acknowledged the DATA_FIN.
    pub fn acknowledge_fin(&mut self) {
        self.fin_acked = true;
    }

    /// The application writes nothing more.
    pub fn close(&mut self) {
        self.closed = true;
        self.fin_alone = self.unsent == 0;
    }

    /// The application waits for space if there is none.
    pub fn want_space(&mut self, has_space: bool) {
        self.writer_waits |= !has_space;
    }

    /// Whether the application, which waits for space, is to be told of it now: once.
    pub fn take_writable(&mut self) -> bool {
        let tells = self.writer_waits && self.writable();
        self.writer_waits &= !tells;
        tells
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

    /// Unsent bytes beyond which nothing is taken.
    pub fn set_unsent_mark(&mut self, bytes: Option<u64>) {
        self.unsent_mark = bytes.unwrap_or(u64::MAX);
    }
}
