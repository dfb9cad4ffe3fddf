//! Takes one side through its events, and then the other, instead of strictly in order of time (conservative
//! lookahead: Chandy and Misra, 1979).
//!
//! What a side sends takes the least delay of its links at least. So what arrives at the other side within
//! that time is in flight already, and the other side can go ahead: from where the first side has got to, by
//! that delay, and then the first side again, by the delay of the links that lead to it. Each turn is as long
//! as both delays together. A sender's code and a receiver's take turns in the processor's caches some
//! hundred times a second, and not with every packet.
//!
//! The result is the same to the byte. A turn ends where a timer of the world is due, which may concern both
//! sides. In a turn the application acts only at the side where it is called, and the run ends only by a
//! failure; then the run is repeated in order of time.

use ropewalk_engine::{NANOSECOND, Span, Time};

use super::{WORKLOAD, World};
use crate::Side;

/// With more connections it is batches that are worth it (see [`crate::world::lookahead`]).
const MOST_CONNECTIONS: u32 = 64;

/// Which side goes first, and how far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns {
    first: Side,
    /// The least delay of the links that lead to it, and of those that lead to the other side.
    delays: [Span; 2],
    /// Events handled in turns.
    events: u64,
}

impl Turns {
    /// How many events were handled in turns.
    pub(super) fn events(&self) -> u64 {
        self.events
    }
}

impl World {
    /// Enables turns if the links allow it.
    pub(super) fn enable_turns(&mut self) {
        let delays = [Side::Client, Side::Server].map(|side| self.network.least_delay_to(side));
        let [Some(client), Some(server)] = delays else { return };
        // The side that hears from the other later goes first: it can go further.
        let (first, delays) = if server >= client {
            (Side::Server, [server, client])
        } else {
            (Side::Client, [client, server])
        };
        let few = self.scenario.connections() <= MOST_CONNECTIONS;
        if !delays[0].is_zero() && few && self.scenario.background.is_empty() && self.pause.is_none() {
            self.turns = Some(Turns { first, delays, events: 0 });
        }
    }

    /// Takes both sides through their events, up to `until` at most. Returns false if the next event is to be
    /// handled in order of time.
    pub(super) fn take_turns(&mut self, until: Time) -> bool {
        let Some(Turns { first, delays: [to_first, to_other], .. }) = self.turns else { return false };
        let (start, source) = self.network.events.first();
        let both = to_first == to_other;
        if source == self.network.links.len() + self.ends || !self.is_unwatched() || !self.acts_locally(both)
        {
            return false;
        }
        // Turns end before a moment, and what is due at `until` itself belongs to them.
        let mut end = until.min(self.end).saturating_add(NANOSECOND);
        if let Some(timer) = self.next_timer() {
            // Simultaneous events of links and endpoints come before.
            end = end.min(timer.saturating_add(NANOSECOND));
        }
        if start >= end {
            return false;
        }
        let events = self.events;
        let mut reached = start.saturating_add(to_first).min(end);
        let mut last = self.take_turn(first, reached);
        while reached < end && self.outcome.is_none() && self.acts_locally_for_long() {
            let ahead = reached.saturating_add(to_other).min(end);
            last = last.max(self.take_turn(first.other(), ahead));
            // Both are at the same time where the application may act soon.
            let goes_on = self.acts_locally_for_long();
            reached = if goes_on { ahead.saturating_add(to_first).min(end) } else { ahead };
            last = last.max(self.take_turn(first, reached));
        }
        last = last.max(self.take_turn(first.other(), reached));
        if self.events == events {
            return false;
        }
        self.now = last;
        if let Some(turns) = &mut self.turns {
            turns.events += self.events - events;
        }
        // The run ended at a moment that the other side may have passed.
        if self.outcome.is_some() {
            self.repeat_in_order();
        }
        true
    }

    /// Handles a side's events before `end`. Returns when the last was.
    fn take_turn(&mut self, side: Side, end: Time) -> Time {
        let mut last = Time::ZERO;
        loop {
            let (at, source) = self.network.events.first_of(side);
            // A timer of the same moment comes before a sample.
            let at_end = source == self.ofo_samples() && at.saturating_add(NANOSECOND) == end;
            if at >= end || at_end || self.outcome.is_some() {
                return last;
            }
            self.step(at, source);
            last = at;
        }
    }

    /// Whether the application acts only at the side where it is called, and isn't done, until everything
    /// that has left the data's sender has arrived. `both`: what is sent in a turn doesn't arrive in that
    /// turn.
    fn acts_locally(&self, both: bool) -> bool {
        let most = if both { self.hosts.most_assigned(self.network.data_from) } else { u64::MAX };
        self.apps[WORKLOAD].independent_deliveries(most) == u32::MAX
    }

    /// The same until a window more, which the sender may send in its next turn, has arrived.
    fn acts_locally_for_long(&self) -> bool {
        let assigned = self.hosts.most_assigned(self.network.data_from);
        let window = self.scenario.client.receive_buffer.max(self.scenario.server.receive_buffer);
        self.apps[WORKLOAD].independent_deliveries(assigned.saturating_add(window)) == u32::MAX
    }

    /// Begins the run anew, in order of time: a side was taken beyond the moment at which it ends.
    #[cold]
    fn repeat_in_order(&mut self) {
        if let Ok(mut world) = World::with_receiver(&self.spec, &self.receiver) {
            world.step_by_step();
            *self = world;
        }
    }
}
