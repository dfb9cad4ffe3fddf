//! Whether what a connection does next concerns nobody else: it opens no subflow, needs no number of its endpoint's, and
//! isn't about to end.

use ropewalk_wire::Payload;

use super::connection::Connection;
use super::deadlines::Deadline;
use super::subflow::Subflow;
use crate::metrics::SubflowStatus;

impl<P: Payload> Connection<P> {
    /// Whether none of its subflows is in trouble, nothing waits to be opened or announced, and one side at least isn't
    /// closed. A single timeout, or whatever arrives but SYN, FIN, RST, the options of the path manager, and a
    /// DATA_FIN for a side that is closed, doesn't bring it to do what concerns others.
    pub(crate) fn is_independent(&self) -> bool {
        let goes_on = !self.handshake.is_negotiating()
            && self.handshake.is_confirmed()
            && !self.closing.is_terminated()
            && !(self.receive.finished() && self.send.closed())
            && !self.deadlines.is_set(Deadline::Linger);
        self.path_manager.is_idle()
            && goes_on
            && self.subflows.with_metrics().all(|(subflow, metrics)| {
                matches!(metrics.state, SubflowStatus::Usable | SubflowStatus::Handshaking)
                    && subflow.is_independent()
            })
    }
}

impl<P: Payload> Subflow<P> {
    fn is_independent(&self) -> bool {
        self.timeouts == 0
            && self.tcp.is_peer_responsive()
            && !self.leaving
            && !self.fastclose
            && self.failing.is_none()
            && self.infinite.is_none()
            && self.fail_pending.is_none()
            && self.prio_pending.is_none()
            && self.reset_reason.is_none()
    }
}
