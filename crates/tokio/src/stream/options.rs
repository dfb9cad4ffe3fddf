//! Options of open connections.

use std::io;
use std::time::Duration;

use ropewalk_engine::Time;
use ropewalk_engine::config::BufferConfig;

use super::{MptcpStream, span};

impl MptcpStream {
    /// Whether small segments are sent at once, or by Nagle's algorithm (`TCP_NODELAY`).
    ///
    /// # Errors
    /// When the connection is over and forgotten, as of every option.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.connection.set(|endpoint, now, id| endpoint.set_nagle(now, id, !nodelay))
    }

    /// Corks the stream or uncorks it (`TCP_CORK`).
    ///
    /// # Errors
    /// As [`set_nodelay`](Self::set_nodelay).
    pub fn set_cork(&self, on: bool) -> io::Result<()> {
        self.connection.set(|endpoint, now, id| endpoint.set_cork(now, id, on))
    }

    /// Changes the packet scheduler.
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) if there is none of this name.
    pub fn set_scheduler(&self, name: &str) -> io::Result<()> {
        self.connection.set(|endpoint, now, id| endpoint.set_scheduler(now, id, name))
    }

    /// Changes the congestion control (`TCP_CONGESTION`).
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) if there is none of this name.
    pub fn set_congestion(&self, name: &str) -> io::Result<()> {
        self.connection.set(|endpoint, now, id| endpoint.set_congestion(now, id, name))
    }

    /// Changes the send buffer's limits (`SO_SNDBUF`).
    ///
    /// # Errors
    /// As [`set_nodelay`](Self::set_nodelay).
    pub fn set_send_buffer(&self, buffer: BufferConfig) -> io::Result<()> {
        self.connection.set(|endpoint, now, id| endpoint.set_send_buffer(now, id, buffer))
    }

    /// Changes the receive buffer's limits (`SO_RCVBUF`).
    ///
    /// # Errors
    /// As [`set_nodelay`](Self::set_nodelay).
    pub fn set_receive_buffer(&self, buffer: BufferConfig) -> io::Result<()> {
        self.connection.set(|endpoint, now, id| endpoint.set_receive_buffer(now, id, buffer))
    }

    /// How many bytes may wait unsent before writes wait (`TCP_NOTSENT_LOWAT`).
    ///
    /// # Errors
    /// As [`set_nodelay`](Self::set_nodelay).
    pub fn set_unsent_low_water(&self, bytes: Option<u64>) -> io::Result<()> {
        self.connection.set(|endpoint, now, id| endpoint.set_unsent_low_water(now, id, bytes))
    }

    /// How many bytes writes take beyond what the peer's window admits, or a quarter of the window if that is
    /// more: a peer that stops reading costs no more memory. `None` (the default): as much as the send buffer
    /// holds.
    ///
    /// # Errors
    /// As [`set_nodelay`](Self::set_nodelay).
    pub fn set_unsent_beyond_window(&self, bytes: Option<u64>) -> io::Result<()> {
        self.connection.set(|endpoint, now, id| endpoint.set_unsent_beyond_window(now, id, bytes))
    }

    /// Says that the next `bytes` bytes written are one message, and within which time it has to be
    /// delivered. Schedulers that ask see it (XLINK's does); the peer doesn't.
    ///
    /// # Errors
    /// As [`set_nodelay`](Self::set_nodelay).
    pub fn begin_message(&self, bytes: u64, within: Option<Duration>) -> io::Result<()> {
        let due = |now: Time| within.map(|within| now.saturating_add(span(within)));
        self.connection.set(|endpoint, now, id| endpoint.begin_message(now, id, bytes, due(now)))
    }

    /// Says that a message ends with what has been written, and within which time it has to be delivered.
    ///
    /// # Errors
    /// As [`set_nodelay`](Self::set_nodelay).
    pub fn end_message(&self, within: Option<Duration>) -> io::Result<()> {
        let due = |now: Time| within.map(|within| now.saturating_add(span(within)));
        self.connection.set(|endpoint, now, id| endpoint.end_message(now, id, due(now)))
    }

    /// The Diffserv code point of what is sent, 0 to 63.
    ///
    /// # Errors
    /// As [`set_nodelay`](Self::set_nodelay).
    pub fn set_dscp(&self, dscp: u8) -> io::Result<()> {
        self.connection.set(|endpoint, now, id| endpoint.set_dscp(now, id, dscp))
    }

    /// Probes a peer that was silent for so long, or not (`SO_KEEPALIVE`, `TCP_KEEPIDLE`).
    ///
    /// # Errors
    /// As [`set_nodelay`](Self::set_nodelay).
    pub fn set_keep_alive(&self, idle: Option<Duration>) -> io::Result<()> {
        self.connection.set(|endpoint, now, id| endpoint.set_keep_alive(now, id, idle.map(span)))
    }

    /// Gives the connection up when data stays unacknowledged for so long (`TCP_USER_TIMEOUT`).
    ///
    /// # Errors
    /// As [`set_nodelay`](Self::set_nodelay).
    pub fn set_user_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.connection.set(|endpoint, now, id| endpoint.set_user_timeout(now, id, timeout.map(span)))
    }
}
