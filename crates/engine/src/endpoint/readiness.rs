//! What a connection is ready for. These are levels, which may be asked for at any time; their edges are
//! events ([`Event::Readable`](crate::mptcp::Event::Readable),
//! [`Event::Writable`](crate::mptcp::Event::Writable)).

use ropewalk_wire::Payload;

use super::{ConnectionId, Endpoint, StreamError};
use crate::mptcp::Connection;
use crate::{Entropy, Time};

/// Bytes that can be written; `None` if nothing ever can.
fn writable_bytes<P: Payload>(connection: &Connection<P>) -> Option<u64> {
    let ends = connection.send.closed() || connection.closing.is_terminated();
    (!ends).then(|| connection.send.space())
}

impl<P: Payload, E: Entropy> Endpoint<P, E> {
    /// Bytes that [`read`](Self::read) has now. Changes with segments received and with reads.
    ///
    /// # Errors
    /// When the connection is forgotten.
    pub fn readable_bytes(&self, id: ConnectionId) -> Result<u64, StreamError> {
        self.connection(id).map(|connection| connection.receive.ready()).ok_or(StreamError::Unknown)
    }

    /// Data that a connection holds: written and not acknowledged, out of order, or not read yet. Bytes.
    pub fn held_bytes(&self, id: ConnectionId) -> u64 {
        self.connection(id).map_or(0, |one| {
            one.send.written() - one.send.una() + one.receive.ofo_bytes() + one.receive.ready()
        })
    }

    /// Whether a connection's data waits for the peer's application alone: the peer has acknowledged all that
    /// its window had room for. Not so where losses or a dead path hold it up.
    pub fn awaits_window(&self, id: ConnectionId) -> bool {
        self.connection(id).is_some_and(|one| {
            let largest = one.subflows.usable().map(|subflow| subflow.mss).max();
            one.send.awaits_window(largest.unwrap_or_default())
        })
    }

    /// Whether [`read`](Self::read) has an answer now: data, the end of the stream, or an error. Changes with
    /// segments received, timeouts and reads.
    pub fn is_readable(&self, id: ConnectionId) -> bool {
        self.connection(id).is_none_or(|connection| {
            connection.receive.ready() > 0
                || connection.receive.is_at_end()
                || connection.closing.loss().is_some()
        })
    }

    /// Bytes that [`write`](Self::write) takes now, at least. Changes with acknowledgements, writes and the
    /// buffer's size.
    ///
    /// # Errors
    /// When the connection is lost or forgotten, or our side is closed.
    pub fn writable_bytes(&self, id: ConnectionId) -> Result<u64, StreamError> {
        let connection = self.connection(id).ok_or(StreamError::Unknown)?;
        writable_bytes(connection).ok_or_else(|| connection.closing.write_error())
    }

    /// How many bytes, of at most `most`, are best written next: those that fill super-segments of `segments`
    /// segments behind what isn't sent yet. `most` where nothing is known of the segments' length.
    pub fn aligned_bytes(&self, id: ConnectionId, most: u64, segments: u32) -> u64 {
        let Some(connection) = self.connection(id) else { return most };
        let first = connection.subflows.usable().find(|metrics| metrics.mss > 0);
        first.map_or(most, |metrics| connection.send.aligned_bytes(most, segments, u64::from(metrics.mss)))
    }

    /// Whether [`write`](Self::write) has an answer now: it takes data, or fails.
    pub fn is_writable(&self, id: ConnectionId) -> bool {
        self.writable_bytes(id).map_or(true, |bytes| bytes > 0)
    }

    /// Has [`Event::Writable`](crate::mptcp::Event::Writable) follow once there is space, as after a short
    /// write. Returns whether there is space already, and then no event follows.
    pub fn want_write(&mut self, now: Time, id: ConnectionId) -> bool {
        let Ok(connection) = self.get(id) else { return true };
        let is_ready = writable_bytes(connection).is_none_or(|bytes| bytes > 0);
        connection.send.want_space(is_ready);
        self.on_changed(now, id.index);
        is_ready
    }
}
