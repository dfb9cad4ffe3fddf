//! What a simulator needs to process events connection by connection instead of strictly in order of time
//! (see `ropewalk_sim`'s lookahead).
//!
//! That is possible while connections don't affect each other. They do where an endpoint's random numbers and
//! ports are drawn, where subflows are opened and closed, and where a connection is accepted or removed;
//! [`Endpoint::is_independent`] says which connections do none of that next.

use std::cmp::Reverse;

use ropewalk_wire::{FourTuple, Payload};

use super::{Endpoint, SubflowHandle};
use crate::mptcp::is_independent;
use crate::{Entropy, PathId, Time};

#[doc(hidden)]
impl<P: Payload, E: Entropy> Endpoint<P, E> {
    /// Whether the subflow's connection affects no other with what it does next. It holds as long as segments
    /// carry neither SYN, FIN nor RST and no options but timestamps, SACK and DSS, a DATA_FIN arrives only
    /// while our side [is open](Self::is_send_open), and the application only reads and writes.
    #[inline]
    pub fn is_independent(&self, subflow: SubflowHandle) -> bool {
        let slot = self.slots.get(subflow.index as usize).filter(|slot| !slot.half_open);
        slot.and_then(|slot| slot.connection.as_deref()).is_some_and(is_independent)
    }

    /// Whether our side of the subflow's connection isn't closed.
    pub fn is_send_open(&self, subflow: SubflowHandle) -> bool {
        let slot = self.slots.get(subflow.index as usize);
        slot.and_then(|slot| slot.connection.as_deref()).is_some_and(|connection| !connection.send.closed())
    }

    /// All subflows of this one's connection, with their paths and the tuples of the segments that they
    /// receive.
    pub fn siblings(
        &self,
        subflow: SubflowHandle,
    ) -> impl Iterator<Item = (SubflowHandle, PathId, FourTuple)> {
        let connection = self.slots.get(subflow.index as usize).and_then(|slot| slot.connection.as_deref());
        let routes = connection.into_iter().flat_map(|connection| connection.subflows.routes());
        routes.map(move |(number, path, tuple)| {
            (SubflowHandle { index: subflow.index, subflow: number.0 }, path, tuple)
        })
    }

    /// When the subflow's connection is next due; [`Time::MAX`]: never.
    #[inline]
    pub fn timeout_of(&self, subflow: SubflowHandle) -> Time {
        self.slots.get(subflow.index as usize).map_or(Time::MAX, |slot| slot.armed)
    }

    /// As [`on_timeout`](Self::on_timeout), for the subflow's connection only.
    #[inline]
    pub fn on_timeout_of(&mut self, now: Time, subflow: SubflowHandle) {
        self.on_timeout_in(now, subflow.index);
    }

    /// Removes the first timeout before `end`. The caller passes it to [`on_timeout_of`](Self::on_timeout_of)
    /// or to [`restore_timeout`](Self::restore_timeout).
    pub fn take_timeout_before(&mut self, end: Time) -> Option<(Time, SubflowHandle)> {
        let at = self.poll_timeout().filter(|at| *at < end)?;
        let Reverse((_, index)) = self.deadlines.pop()?;
        Some((at, SubflowHandle::first_of(index)))
    }

    /// Undoes [`take_timeout_before`](Self::take_timeout_before).
    pub fn restore_timeout(&mut self, at: Time, subflow: SubflowHandle) {
        self.deadlines.push(Reverse((at, subflow.index)));
    }
}
