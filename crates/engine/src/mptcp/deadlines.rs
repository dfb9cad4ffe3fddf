//! The connection's own deadlines.

use super::path_manager::CONTROL_INTERVAL;
use crate::Time;

/// What a connection waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Deadline {
    /// Connection-level retransmission.
    Retransmit,
    /// A scheduler's wait ends.
    Wait,
    /// Announcements without an echo are repeated; third ACKs of joins too.
    Control,
    /// A closed connection is forgotten although the peer is silent; or one without subflows has waited long
    /// enough for another.
    Linger,
    /// The user timeout may have passed.
    User,
    /// What a cork holds back goes.
    Cork,
    /// The application has closed the connection, and the peer hasn't closed its side for long.
    Orphan,
}

/// When each comes; [`Time::MAX`]: it isn't set. (An `Option` would be a branch in [`Deadlines::next`] that
/// is mispredicted.)
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines([Time; 7]);

impl Default for Deadlines {
    fn default() -> Self {
        Deadlines([Time::MAX; 7])
    }
}

impl Deadlines {
    /// When it comes; `None`: it isn't set.
    #[inline]
    pub fn get(&self, deadline: Deadline) -> Option<Time> {
        Some(self.0[deadline as usize]).filter(|at| *at != Time::MAX)
    }

    /// Whether it is set.
    #[inline]
    pub fn is_set(&self, deadline: Deadline) -> bool {
        self.get(deadline).is_some()
    }

    /// Sets it, whether or not it was set before.
    pub fn set(&mut self, deadline: Deadline, at: Time) {
        self.0[deadline as usize] = at;
    }

    /// Sets it unless it is set.
    pub fn set_if_none(&mut self, deadline: Deadline, at: Time) {
        if !self.is_set(deadline) {
            self.set(deadline, at);
        }
    }

    /// Sets it, if it isn't set or comes later.
    pub fn set_no_later(&mut self, deadline: Deadline, at: Time) {
        self.set(deadline, self.0[deadline as usize].min(at));
    }

    /// Control options are repeated after a while.
    pub fn arm_control(&mut self, now: Time) {
        self.set_no_later(Deadline::Control, now + CONTROL_INTERVAL);
    }

    /// Unsets it.
    pub fn stop(&mut self, deadline: Deadline) {
        self.0[deadline as usize] = Time::MAX;
    }

    /// Whether it has passed: then it isn't set any more.
    pub fn take_due(&mut self, now: Time, deadline: Deadline) -> bool {
        let is_due = self.get(deadline).is_some_and(|at| at <= now);
        if is_due {
            self.stop(deadline);
        }
        is_due
    }

    /// The earliest; [`Time::MAX`]: none is set.
    #[inline]
    pub fn next(&self) -> Time {
        self.0.into_iter().fold(Time::MAX, Time::min)
    }
}
