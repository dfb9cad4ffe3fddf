//! How connections leave. Those in TIME-WAIT take several kilobytes each, and who lets this end close first
//! has it keep as many as it likes: so they are limited, as in Linux, and keep nobody out.

use ropewalk_wire::Payload;

use super::{ConnectionId, Endpoint};
use crate::{Entropy, Time};

impl<P: Payload, E: Entropy> Endpoint<P, E> {
    /// A connection is over but for unread data: its addresses and its token are free for others.
    #[cold]
    pub(super) fn release_addresses(&mut self, index: u32) {
        let Some(connection) = self.slots[index as usize].connection.as_mut() else { return };
        let token = connection.token();
        for tuple in connection.subflows.retire_all() {
            self.routes.remove(&tuple.reversed());
        }
        self.release_token(token, index);
    }

    fn release_token(&mut self, token: u32, index: u32) {
        if self.tokens.get(&token) == Some(&index) {
            self.tokens.remove(&token);
        }
    }

    #[cold]
    pub(super) fn forget(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        let Some(connection) = slot.connection.take() else { return };
        self.mib.retire(&connection);
        self.ofo_bytes -= std::mem::take(&mut slot.ofo_bytes);
        slot.armed = Time::MAX;
        if slot.half_open {
            slot.half_open = false;
            self.half_open -= 1;
        }
        for (_, _, tuple) in connection.subflows.routes() {
            self.routes.remove(&tuple);
        }
        self.release_token(connection.token(), index);
        self.free.push(index);
    }

    /// A connection has ended in order. If subflows of it are in TIME-WAIT, it is the youngest of these.
    #[cold]
    pub(super) fn on_closed(&mut self, now: Time, id: ConnectionId) {
        if !self.is_waiting(id) {
            return;
        }
        self.time_wait.push_back(id);
        // They end in the order in which they began, as good as always.
        while self.time_wait.front().is_some_and(|first| !self.is_waiting(*first)) {
            self.time_wait.pop_front();
        }
        if self.time_wait.len() > self.config.max_time_wait {
            self.end_oldest_wait(now);
        }
    }

    /// Whether there can be another connection: if there are as many as there may be, the oldest in TIME-WAIT
    /// ends for it.
    pub(super) fn make_room(&mut self, now: Time) -> bool {
        while self.len() >= self.config.max_connections {
            if !self.end_oldest_wait(now) {
                return false;
            }
        }
        true
    }

    /// Whether subflows of a connection are in TIME-WAIT, and nothing else.
    fn is_waiting(&self, id: ConnectionId) -> bool {
        self.connection(id).is_some_and(|one| one.closing.is_terminated() && !one.is_over())
    }

    /// Ends the oldest connection in TIME-WAIT; false if there is none.
    #[cold]
    fn end_oldest_wait(&mut self, now: Time) -> bool {
        while let Some(id) = self.time_wait.pop_front() {
            if !self.is_waiting(id) {
                continue;
            }
            if let Some(connection) = self.slots[id.index as usize].connection.as_mut() {
                connection.end_time_wait(now);
                self.collect_events(now, id.index);
                self.update_slot(id.index);
                return true;
            }
        }
        false
    }
}
