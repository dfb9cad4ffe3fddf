//! The connection's own deadlines.

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
    /// A closed connection is forgotten although the peer is silent; or one without subflows has waited long enough for another.
    pub linger: Option<Nanos>,
    /// The user timeout may have passed.
    pub user: Option<Nanos>,
    /// What a cork holds back goes.
    pub cork: Option<Nanos>,
}

impl Deadlines {
    /// The earliest.
    #[inline]
    pub fn next(&self) -> Nanos {
        let retransmit = self.retransmit.unwrap_or(Nanos::MAX);
        let rare = [self.wait, self.control, self.linger, self.user, self.cork];
        if rare.iter().fold(true, |none, at| none & at.is_none()) {
            return retransmit;
        }
        rare.iter().fold(retransmit, |least, at| least.min(at.unwrap_or(Nanos::MAX)))
    }
}
