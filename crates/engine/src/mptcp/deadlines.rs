//! When a connection is to be called: its own deadlines, and its subflows'.

use ropewalk_wire::Payload;

use super::connection::Connection;
use crate::Nanos;

/// The connection's own deadlines.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Deadlines {
    /// Connection-level retransmission.
    pub retransmit: Option<Nanos>,
    /// A scheduler's wait ends.
    pub wait: Option<Nanos>,
    /// Announcements without an echo are repeated; third ACKs of joins too.
    pub control: Option<Nanos>,
    /// A closed connection is forgotten although the peer is silent.
    pub linger: Option<Nanos>,
}

impl Deadlines {
    /// The earliest.
    #[inline]
    fn next(&self) -> Nanos {
        let all = [self.retransmit, self.wait, self.control, self.linger];
        all.iter().fold(Nanos::MAX, |least, at| least.min(at.unwrap_or(Nanos::MAX)))
    }
}

impl<P: Payload> Connection<P> {
    /// The earliest deadline of the connection and its subflows.
    pub(crate) fn poll_timeout(&self) -> Option<Nanos> {
        let subflows =
            self.strands.iter().flatten().map(|strand| strand.tcp.poll_timeout().unwrap_or(Nanos::MAX));
        Some(subflows.fold(self.deadlines.next(), Nanos::min)).filter(|at| *at != Nanos::MAX)
    }

    /// The earliest deadline, if it is before `known`.
    #[inline]
    pub(crate) fn timeout_before(&mut self, known: Nanos) -> Option<Nanos> {
        let subflows = self.strands.iter().flatten().map(|strand| strand.tcp.timeout_floor());
        if subflows.fold(self.deadlines.next(), Nanos::min) >= known {
            return None;
        }
        self.exact_timeout_before(known)
    }

    #[inline(never)]
    fn exact_timeout_before(&mut self, known: Nanos) -> Option<Nanos> {
        self.strands.iter_mut().flatten().for_each(|strand| strand.tcp.refresh_timeout_floor());
        self.poll_timeout().filter(|at| *at < known)
    }
}
