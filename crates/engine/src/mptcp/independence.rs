//! Whether what a connection does next concerns nobody else: it opens no subflow, needs no number of its
//! endpoint's, and isn't about to end.

use ropewalk_wire::Payload;

use super::connection::Connection;
use super::deadlines::Deadline;
use super::subflow::Subflow;
use crate::metrics::SubflowStatus;

/// Whether none of its subflows is in trouble, nothing waits to be opened or announced, and one side at least
/// isn't closed. A single timeout, or whatever arrives but SYN, FIN, RST, the options of the path manager,
/// and a DATA_FIN for a side that is closed, doesn't bring it to do what concerns others.
pub(crate) fn is_independent<P: Payload>(connection: &Connection<P>) -> bool {
    let goes_on = !connection.handshake.is_negotiating()
        && connection.handshake.is_confirmed()
        && !connection.closing.is_terminated()
        && !(connection.receive.finished() && connection.send.closed())
        && !connection.deadlines.is_set(Deadline::Linger);
    connection.path_manager.is_idle()
        && goes_on
        && connection
            .subflows
            .metrics()
            .iter()
            .all(|metrics| matches!(metrics.state, SubflowStatus::Usable | SubflowStatus::Handshaking))
        && connection.subflows.iter().all(Subflow::is_independent)
}

impl<P: Payload> Subflow<P> {
    fn is_independent(&self) -> bool {
        self.timeouts == 0
            && self.tcp.is_peer_responsive()
            && !self.leaving
            && !self.fastclose
            && self.fallback.as_ref().is_none_or(|fallback| fallback.is_silent())
            && self.prio_pending.is_none()
            && self.reset_reason.is_none()
    }
}
