//! What the endpoint keeps of a connection.

use ropewalk_wire::Payload;

use crate::Time;
use crate::inline_queue::InlineQueue;
use crate::mptcp::Connection;

/// A place for a connection in the endpoint's table.
#[derive(Debug)]
pub(super) struct Slot<P: Payload> {
    pub generation: u32,
    pub connection: Option<Box<Connection<P>>>,
    /// It is among the connections that may have something to send.
    pub queued: bool,
    /// The deadline that stands in the heap for it.
    pub armed: Time,
    //= RFC 9293 MUST-11 of an active opening there is never one here
    pub half_open: bool,
    /// What the endpoint's sum counts of its out-of-order queue.
    pub ofo_bytes: u64,
}

impl<P: Payload> Slot<P> {
    /// Puts it among the connections that may have something to send, as `index`.
    #[inline(always)]
    pub fn queue(&mut self, index: u32, pending: &mut InlineQueue<u32>) {
        if !self.queued {
            self.queued = true;
            pending.push_back(index);
        }
    }
}
