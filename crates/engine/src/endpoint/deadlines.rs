//! The deadlines of all connections. One that moved back stays in the heap until it comes.

use std::cmp::Reverse;

use ropewalk_wire::Payload;

use super::Endpoint;
use crate::{Entropy, Time};

impl<P: Payload, E: Entropy> Endpoint<P, E> {
    /// Deadlines have passed. Early or spurious calls are harmless.
    pub fn on_timeout(&mut self, now: Time) {
        while let Some(Reverse((at, index))) = self.deadlines.peek().copied() {
            if at > now {
                break;
            }
            self.deadlines.pop();
            if self.slots[index as usize].armed == at {
                self.on_timeout_in(now, index);
            }
        }
    }

    /// As [`on_timeout`](Self::on_timeout), for one connection only.
    #[inline]
    pub(super) fn on_timeout_in(&mut self, now: Time, index: u32) {
        let slot = &mut self.slots[index as usize];
        // Its entry in the heap is stale now.
        slot.armed = Time::MAX;
        if let Some(connection) = slot.connection.as_mut() {
            if connection.poll_timeout().is_some_and(|due| due <= now) {
                connection.on_timeout(now);
            }
            self.on_changed(now, index);
        }
    }

    /// The next deadline. Changes with every other call.
    pub fn poll_timeout(&mut self) -> Option<Time> {
        while let Some(Reverse((at, index))) = self.deadlines.peek().copied() {
            let slot = &self.slots[index as usize];
            if slot.armed == at && slot.connection.is_some() {
                return Some(at);
            }
            self.drop_stale_deadline();
        }
        None
    }

    fn drop_stale_deadline(&mut self) {
        self.deadlines.pop();
    }

    pub(super) fn push_deadline(&mut self, at: Time, index: u32) {
        self.deadlines.push(Reverse((at, index)));
    }
}
