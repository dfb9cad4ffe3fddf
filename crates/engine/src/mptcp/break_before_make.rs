//! Break before make (RFC 8684 1.3, 3.5): a connection that has lost its last subflow is kept for
//! `close_timeout`, so that a join can resume it, as Linux keeps it. The client asks for that join itself.

use ropewalk_wire::Payload;

use super::close_reason::ResetReason;
use super::connection::Connection;
use super::deadlines::Deadline;
use super::joining::Joining;
use crate::{Span, Time};

impl<P: Payload> Connection<P> {
    /// Subflow `index` was the last. Returns false if no other can follow: the keys aren't known to both
    /// ends, or the subflow was reset for what happened to its data, which would happen to another's, too.
    #[cold]
    pub(super) fn await_subflow(&mut self, now: Time, index: usize, was_used: bool) -> bool {
        let timeout = self.config.path_manager.close_timeout;
        let Some(subflow) = self.subflows.get(index) else { return false };
        let is_spoilt =
            was_used && subflow.reset_reason().is_some_and(|reason| reason != ResetReason::Unspecified);
        if !self.handshake.is_multipath()
            || !self.handshake.is_confirmed()
            || timeout == Span::ZERO
            || is_spoilt
        {
            return false;
        }
        self.deadlines.set_if_none(Deadline::Linger, now + timeout);
        if was_used && self.handshake.is_client() {
            Joining::of(self).reopen(index);
        }
        // A peer that has refused every join for good has forgotten the connection.
        !self.handshake.is_client() || was_used || self.path_manager.awaits_join()
    }
}
