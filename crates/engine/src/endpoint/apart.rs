//! One connection at a time: for a world that knows all that will arrive within some time, and goes through it
//! connection by connection, each as far as that time goes, and not moment by moment.
//!
//! What that needs is that connections don't concern each other. They do where an endpoint's random numbers and ports are
//! taken, where subflows come and go, and where a connection is accepted or forgotten; [`Endpoint::is_settled`] says
//! which are past the one and before the other.

use std::cmp::Reverse;

use ropewalk_wire::{FourTuple, Payload};

use super::{Endpoint, SubflowHandle};
use crate::{Entropy, Nanos, PathId};

/// So many bits of a packed place are the subflow's.
const STRAND: u32 = 5;

impl SubflowHandle {
    /// The first subflow of the connection at this place of an endpoint's.
    #[inline]
    pub(super) fn of_first(index: u32) -> Self {
        SubflowHandle { index, strand: 0 }
    }

    /// In four bytes; 0: there is no room for it.
    #[inline]
    pub fn pack(self) -> u32 {
        let fits = self.index < 1 << (31 - STRAND) && self.strand < 1 << STRAND;
        if fits { (self.index << STRAND | u32::from(self.strand)) + 1 } else { 0 }
    }

    /// What was [packed](Self::pack); none: that is 0.
    #[inline]
    pub fn unpack(packed: u32) -> Option<Self> {
        let known = packed.checked_sub(1)?;
        Some(SubflowHandle { index: known >> STRAND, strand: (known & ((1 << STRAND) - 1)) as u8 })
    }
}

impl<P: Payload, E: Entropy> Endpoint<P, E> {
    /// Where segments with this tuple go.
    pub fn place_of(&self, tuple: &FourTuple) -> Option<SubflowHandle> {
        self.demux.get(tuple).copied()
    }

    /// Whether what the connection at this place does next concerns no other connection, as long as what arrives carries
    /// neither SYN, FIN nor RST, no options but timestamps, SACK and DSS, and a DATA_FIN only where our side
    /// [is open](Self::is_open); and as long as the application only reads and writes.
    #[inline]
    pub fn is_settled(&self, place: SubflowHandle) -> bool {
        let slot = self.slots.get(place.index as usize).filter(|slot| !slot.half_open);
        slot.and_then(|slot| slot.connection.as_deref()).is_some_and(|connection| connection.is_settled())
    }

    /// Whether our side of the connection at this place isn't closed.
    pub fn is_open(&self, place: SubflowHandle) -> bool {
        let slot = self.slots.get(place.index as usize);
        slot.and_then(|slot| slot.connection.as_deref()).is_some_and(|connection| !connection.send.closed)
    }

    /// A connection's subflows: their places, paths, and the tuples of what goes there.
    pub fn subflows_at(
        &self,
        place: SubflowHandle,
    ) -> impl Iterator<Item = (SubflowHandle, PathId, FourTuple)> {
        let connection = self.slots.get(place.index as usize).and_then(|slot| slot.connection.as_deref());
        let strands = connection.map_or(&[][..], |connection| &connection.strands[..]);
        let metrics = connection.map_or(&[][..], |connection| &connection.metrics[..]);
        strands.iter().zip(metrics).zip(0..).filter_map(move |((strand, metrics), number)| {
            let tuple = strand.as_ref()?.tcp.tuple().reversed();
            Some((SubflowHandle { index: place.index, strand: number }, metrics.path, tuple))
        })
    }

    /// When [`on_timeout_at`](Self::on_timeout_at) is to be called for the connection at this place; [`Nanos::MAX`]: never.
    #[inline]
    pub fn deadline_at(&self, place: SubflowHandle) -> Nanos {
        self.slots.get(place.index as usize).map_or(Nanos::MAX, |slot| slot.armed)
    }

    /// The deadline of the connection at this place has passed, or perhaps was put off since.
    #[inline]
    pub fn on_timeout_at(&mut self, now: Nanos, place: SubflowHandle) {
        let slot = &mut self.slots[place.index as usize];
        // What stands in the heap for it is stale now.
        slot.armed = Nanos::MAX;
        if let Some(connection) = slot.connection.as_mut() {
            connection.touch(0);
            if connection.poll_timeout().is_some_and(|due| due <= now) {
                connection.on_timeout(now);
            }
            self.touch(now, place.index);
        }
    }

    /// Takes the first deadline out, if it is before `end`. Whoever takes one calls
    /// [`on_timeout_at`](Self::on_timeout_at) for it, or puts it back.
    pub fn take_deadline(&mut self, end: Nanos) -> Option<(Nanos, SubflowHandle)> {
        let at = self.poll_timeout().filter(|at| *at < end)?;
        let Reverse((_, index)) = self.deadlines.pop()?;
        Some((at, SubflowHandle::of_first(index)))
    }

    /// What [`take_deadline`](Self::take_deadline) took out.
    pub fn put_back_deadline(&mut self, at: Nanos, place: SubflowHandle) {
        self.deadlines.push(Reverse((at, place.index)));
    }
}
