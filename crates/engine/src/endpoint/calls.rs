//! Calls on one connection: its stream, and its paths.

use std::net::SocketAddr;

use ropewalk_wire::Payload;

use super::{ConnectionId, Endpoint, StreamError};
use crate::congestion::CongestionControl;
use crate::mptcp::{Connection, JoinRequest, Joining};
use crate::registry::Spec;
use crate::scheduler::Scheduler;
use crate::{Entropy, PathId, Time};

impl<P: Payload, E: Entropy> Endpoint<P, E> {
    pub(super) fn get(&mut self, id: ConnectionId) -> Result<&mut Connection<P>, StreamError> {
        match self.slots.get_mut(id.index as usize) {
            Some(slot) if slot.generation == id.generation => {
                slot.connection.as_deref_mut().ok_or(StreamError::Unknown)
            }
            _ => Err(StreamError::Unknown),
        }
    }

    /// Writes a prefix of `data` and returns its length; after a short write
    /// [`Event::Writable`](crate::mptcp::Event::Writable) follows.
    ///
    /// # Errors
    /// When the connection is lost or forgotten, or our side is closed.
    pub fn write(&mut self, now: Time, id: ConnectionId, data: P) -> Result<usize, StreamError> {
        let connection = self.get(id)?;
        let taken = connection.write(now, data).ok_or_else(|| connection.closing.write_error())?;
        self.on_changed(now, id.index);
        Ok(taken)
    }

    /// Reads up to `max` bytes: `None` when there is nothing now, an empty payload at the end of the stream.
    /// What came before a connection was lost can still be read; the endpoint keeps it until it is read, or
    /// until [`close`](Self::close) or [`abort`](Self::abort).
    ///
    /// # Errors
    /// When the connection is lost and everything read, or forgotten.
    pub fn read(&mut self, now: Time, id: ConnectionId, max: usize) -> Result<Option<P>, StreamError> {
        let data = self.get(id)?.read(now, max, true);
        self.after_read(id, data)
    }

    fn after_read(&mut self, id: ConnectionId, data: Option<P>) -> Result<Option<P>, StreamError> {
        let connection = self.get(id)?;
        let lost = if data.is_none() { connection.closing.loss() } else { None };
        if connection.may_transmit || connection.is_forgettable() {
            self.queue_tx(id.index);
        }
        lost.map_or(Ok(data), |reason| Err(StreamError::Lost(reason)))
    }

    /// As [`Self::read`], but what comes next as it arrived, so that no byte is copied: perhaps less than
    /// there is.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_piece(&mut self, now: Time, id: ConnectionId, max: usize) -> Result<Option<P>, StreamError> {
        let data = self.get(id)?.read(now, max, false);
        self.after_read(id, data)
    }

    /// The schedulers whose decision wasn't known are asked again
    /// ([`Scheduler::is_undecided`]). Whether there are any.
    pub fn ask_again(&mut self) -> bool {
        let mut any = false;
        for index in 0..self.slots.len() {
            if let Some(connection) = self.slots[index].connection.as_deref_mut()
                && connection.scheduling.is_undecided()
            {
                connection.wake();
                self.queue_tx(index as u32);
                any = true;
            }
        }
        any
    }

    /// Closes our side (DATA_FIN); the peer's stays open.
    pub fn shutdown(&mut self, now: Time, id: ConnectionId) {
        if let Ok(connection) = self.get(id) {
            connection.shutdown(now);
            self.on_changed(now, id.index);
        }
    }

    /// Closes our side, and is not interested in what the peer still sends. A connection that is still being
    /// opened is cancelled: it is forgotten with what was written, and no event follows.
    pub fn close(&mut self, now: Time, id: ConnectionId) {
        if let Ok(connection) = self.get(id) {
            connection.close(now);
            self.on_changed(now, id.index);
        }
    }

    /// Throws the connection away (MP_FASTCLOSE, or RST). No event follows. A connection that is still being
    /// opened is cancelled.
    pub fn abort(&mut self, now: Time, id: ConnectionId) {
        if let Ok(connection) = self.get(id) {
            connection.abort();
            self.on_changed(now, id.index);
        }
    }

    /// Replaces a connection's scheduler or congestion control. What the old ones knew is lost.
    pub fn set_algorithms(
        &mut self,
        now: Time,
        id: ConnectionId,
        scheduler: Option<&Spec<dyn Scheduler>>,
        congestion: Option<&Spec<dyn CongestionControl>>,
    ) {
        if let Ok(connection) = self.get(id) {
            connection.set_algorithms(now, scheduler, congestion);
            self.on_changed(now, id.index);
        }
    }

    /// Declares how many bytes will be written in all, for schedulers that ask.
    pub fn declare_size(&mut self, id: ConnectionId, bytes: u64) {
        if let Ok(connection) = self.get(id) {
            connection.send.declare(bytes);
        }
    }

    /// Opens a subflow from `local` on `path`, to `remote` or else the connection's first address.
    pub fn add_path(
        &mut self,
        now: Time,
        id: ConnectionId,
        path: PathId,
        local: SocketAddr,
        remote: Option<SocketAddr>,
        local_id: u8,
    ) {
        if let Ok(connection) = self.get(id) {
            let first = connection.tuple(crate::SubflowId(0)).map(|tuple| tuple.destination());
            if let Some(remote) = remote.or(first) {
                Joining::of(connection).request(JoinRequest {
                    path,
                    local,
                    remote,
                    local_id,
                    remote_id: 0,
                    backup: false,
                    attempt: 0,
                    early: false,
                });
            }
            self.on_changed(now, id.index);
        }
    }

    /// Takes a path away from a connection: its subflows are reset, REMOVE_ADDR is sent, data goes elsewhere.
    pub fn remove_path(&mut self, now: Time, id: ConnectionId, path: PathId) {
        if let Ok(connection) = self.get(id) {
            connection.remove_path(now, path);
            self.on_changed(now, id.index);
        }
    }

    /// Makes a path's subflows backups, or not, and tells the peer (MP_PRIO).
    pub fn set_backup(&mut self, now: Time, id: ConnectionId, path: PathId, backup: bool) {
        if let Ok(connection) = self.get(id) {
            connection.subflows.set_backup(path, backup);
            connection.path_manager.set_backup(path, backup);
            connection.wake();
            self.on_changed(now, id.index);
        }
    }

    /// A connection, to look at.
    pub fn connection(&self, id: ConnectionId) -> Option<&Connection<P>> {
        self.slots
            .get(id.index as usize)
            .filter(|slot| slot.generation == id.generation)
            .and_then(|slot| slot.connection.as_deref())
    }
}
