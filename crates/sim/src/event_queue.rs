//! The event queue: one pending event per source, ordered by time and then by the source's number.
//!
//! A world has few sources of events (its links, its endpoints, one heap of timers), each with one pending
//! event, however many packets are in flight. So their times are kept in arrays, and the first of each is
//! remembered. An array is searched when one of its events moves, which is faster than a heap up to several
//! dozen sources.
//!
//! There is an array for each side: the links that lead to its host, and its endpoint. So the world can take
//! one side through its events without looking at the other's ([`crate::world::turns`]). What concerns both
//! is in a third.
//!
//! Links have the lowest numbers, then endpoints, then the timers, then samples. So the order of
//! simultaneous events doesn't depend on when each was scheduled, and [`crate::world::lookahead`] can find
//! the same order without knowing that.

use std::hint::select_unpredictable;

use ropewalk_engine::Time;

use crate::Side;

/// The client's sources, the server's, and what concerns both.
const GROUPS: usize = 3;

/// See the module.
#[derive(Debug)]
pub(crate) struct EventQueue {
    /// By source: when its next event is due. [`Time::MAX`]: nothing is pending.
    at: Vec<Time>,
    /// By source: its group.
    group_of: Vec<usize>,
    /// By group: its sources, in order.
    sources: [Vec<usize>; GROUPS],
    /// By group: when its next event is due, and of which source.
    first: [(Time, usize); GROUPS],
}

impl EventQueue {
    /// A queue for these sources, of which none has a pending event: each belongs to a side, or to both.
    pub(crate) fn new(sides: impl Iterator<Item = Option<Side>>) -> Self {
        let group_of: Vec<_> = sides.map(|side| side.map_or(GROUPS - 1, |side| side as usize)).collect();
        let mut sources: [Vec<usize>; GROUPS] = Default::default();
        for (source, group) in group_of.iter().enumerate() {
            sources[*group].push(source);
        }
        let at = vec![Time::MAX; group_of.len()];
        EventQueue { at, group_of, sources, first: [(Time::MAX, 0); GROUPS] }
    }

    /// Sets when a source's next event is due. Mostly that is known already.
    #[inline]
    pub(crate) fn set(&mut self, source: usize, at: Option<Time>) {
        let at = at.unwrap_or(Time::MAX);
        if self.at[source] != at {
            self.change(source, at);
        }
    }

    #[inline(never)]
    fn change(&mut self, source: usize, at: Time) {
        self.at[source] = at;
        let group = self.group_of[source];
        // Which is the first is as good as random: a branch would be mispredicted every other time.
        let mut first = (Time::MAX, source);
        for source in &self.sources[group] {
            let at = self.at[*source];
            first = select_unpredictable(at < first.0, (at, *source), first);
        }
        self.first[group] = first;
    }

    /// When a source's next event is due; [`Time::MAX`]: none is pending.
    #[inline]
    pub(crate) fn due(&self, source: usize) -> Time {
        self.at[source]
    }

    /// When the next event is due, and its source; [`Time::MAX`]: none is pending.
    #[inline]
    pub(crate) fn first(&self) -> (Time, usize) {
        let [client, server, both] = self.first;
        client.min(server).min(both)
    }

    /// The same of one side's.
    #[inline]
    pub(crate) fn first_of(&self, side: Side) -> (Time, usize) {
        self.first[side as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIDES: [Option<Side>; 6] =
        [Some(Side::Server), Some(Side::Client), Some(Side::Server), None, Some(Side::Client), None];

    fn at(nanos: u64) -> Option<Time> {
        Some(Time::from_nanos(nanos))
    }

    #[test]
    fn earliest_first_then_the_lowest_number() {
        let mut queue = EventQueue::new(SIDES.into_iter());
        assert_eq!(queue.first().0, Time::MAX);
        queue.set(2, at(5));
        queue.set(0, at(5));
        queue.set(1, at(3));
        let seen = |(at, source): (Time, usize)| (at.as_nanos(), source);
        assert_eq!((seen(queue.first()), seen(queue.first_of(Side::Server))), ((3, 1), (5, 0)));
        queue.set(1, None);
        assert_eq!((seen(queue.first()), queue.first_of(Side::Client).0), ((5, 0), Time::MAX));
        queue.set(0, at(6));
        assert_eq!(seen(queue.first()), (5, 2));
    }

    proptest! {
        #[test]
        fn ordered_by_time_and_number(steps in proptest::collection::vec((0usize..6, 0u64..9), 1..200)) {
            let mut queue = EventQueue::new(SIDES.into_iter());
            let mut model = [Time::MAX; 6];
            for (source, at) in steps {
                let at = Some(Time::from_nanos(at)).filter(|at| at.as_nanos() < 8);
                model[source] = at.unwrap_or(Time::MAX);
                queue.set(source, at);
                let first = |which: &dyn Fn(usize) -> bool| {
                    let all = (0..6).filter(|source| which(*source)).map(|source| (model[source], source));
                    all.min().filter(|first| first.0 != Time::MAX)
                };
                let pending = |first: (Time, usize)| Some(first).filter(|first| first.0 != Time::MAX);
                prop_assert_eq!(pending(queue.first()), first(&|_| true));
                for side in [Side::Client, Side::Server] {
                    let its = first(&|source| SIDES[source] == Some(side));
                    prop_assert_eq!(pending(queue.first_of(side)), its);
                }
            }
        }
    }
}
