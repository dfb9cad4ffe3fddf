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
    let is_closed_by_both = connection.receive.finished() && connection.send.closed();
    let is_ending = connection.closing.is_terminated() || connection.deadlines.is_set(Deadline::Linger);
    let is_opening = connection.handshake.is_negotiating() || !connection.handshake.is_confirmed();
    let goes_on = !is_opening && !is_closed_by_both && !is_ending;
    connection.path_manager.is_idle()
        && goes_on
        && connection
            .subflows
            .metrics()
            .iter()
            .all(|metrics| matches!(metrics.state, SubflowStatus::Usable | SubflowStatus::Handshaking))
        && connection.subflows.iter().all(Subflow::is_independent)
}
