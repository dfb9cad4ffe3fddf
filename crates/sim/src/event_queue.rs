//! The event queue: one pending event per source, ordered by time and then by the source's number.
//!
//! A world has few sources of events (its links, its endpoints, one heap of timers), each with one pending
//! event, however many packets are in flight. So their times are kept in arrays, and the first of each is
//! remembered. An array is searched when its first event moves to a later time, which is faster than a heap
//! up to several dozen sources.
//!
//! There is an array for each side: the links that lead to its host, and its endpoint. So the world can take
//! one side through its events without looking at the other's ([`crate::world::turns`]). What concerns both
//! is in a third.
//!
//! Links have the lowest numbers, then endpoints, then the timers. So the order of simultaneous events
//! doesn't depend on when each was scheduled, and [`crate::world::lookahead`] can find the same order without
//! knowing that.

use crate::{Nanos, Side};

/// So many are searched in a turn of the loop.
const STEP: usize = 4;

/// Sources of one side, or of both.
#[derive(Debug, Default)]
struct Group {
    /// When each is due, with some more so that their number is a multiple of [`STEP`]. [`Nanos::MAX`]:
    /// nothing is pending.
    at: Vec<Nanos>,
    /// Their numbers, in order.
    sources: Vec<usize>,
    /// When the next event is due, and the place of its source in this group.
    first: (Nanos, usize),
}

impl Group {
    /// When the next event is due, and its source; [`Nanos::MAX`]: none is pending.
    #[inline]
    fn first(&self) -> (Nanos, usize) {
        (self.first.0, self.sources[self.first.1])
    }

    #[inline]
    fn set(&mut self, place: usize, at: Nanos) {
        self.at[place] = at;
        if place == self.first.1 {
            if at > self.first.0 {
                self.search();
            } else {
                self.first.0 = at;
            }
        } else if (at, place) < self.first {
            self.first = (at, place);
        }
    }

    #[inline]
    fn search(&mut self) {
        let mut first = (Nanos::MAX, 0);
        for (turn, some) in self.at.chunks_exact(STEP).enumerate() {
            for (place, at) in some.iter().enumerate() {
                if *at < first.0 {
                    first = (*at, turn * STEP + place);
                }
            }
        }
        self.first = first;
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct EventQueue {
    /// The client's, the server's, and of both.
    groups: [Group; 3],
    /// By source: its group, and its place there.
    places: Vec<(usize, usize)>,
}

impl EventQueue {
    /// A queue for these sources, of which none has a pending event: each belongs to a side, or to both. The
    /// last does.
    pub(crate) fn new(sides: impl Iterator<Item = Option<Side>>) -> Self {
        let mut groups: [Group; 3] = Default::default();
        let places = sides.enumerate().map(|(source, side)| {
            let index = side.map_or(2, |side| side as usize);
            groups[index].sources.push(source);
            (index, groups[index].sources.len() - 1)
        });
        let places = places.collect();
        for group in &mut groups {
            // A group without sources never has an event.
            let count = group.sources.len().max(1);
            group.sources.resize(count, 0);
            group.at = vec![Nanos::MAX; count.next_multiple_of(STEP)];
            group.first = (Nanos::MAX, 0);
        }
        EventQueue { groups, places }
    }

    /// Sets when a source's next event is due.
    #[inline]
    pub(crate) fn set(&mut self, source: usize, at: Option<Nanos>) {
        let (group, place) = self.places[source];
        self.groups[group].set(place, at.unwrap_or(Nanos::MAX));
    }

    /// When the next event is due, and its source; [`Nanos::MAX`]: none is pending.
    #[inline]
    pub(crate) fn first(&self) -> (Nanos, usize) {
        let [client, server, both] = &self.groups;
        client.first().min(server.first()).min(both.first())
    }

    /// The same of one side's.
    #[inline]
    pub(crate) fn first_of(&self, side: Side) -> (Nanos, usize) {
        self.groups[side as usize].first()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIDES: [Option<Side>; 6] =
        [Some(Side::Server), Some(Side::Client), Some(Side::Server), None, Some(Side::Client), None];

    #[test]
    fn earliest_first_then_the_lowest_number() {
        let mut queue = EventQueue::new(SIDES.into_iter());
        assert_eq!(queue.first().0, Nanos::MAX);
        queue.set(2, Some(5));
        queue.set(0, Some(5));
        queue.set(1, Some(3));
        assert_eq!((queue.first(), queue.first_of(Side::Server)), ((3, 1), (5, 0)));
        queue.set(1, None);
        assert_eq!((queue.first(), queue.first_of(Side::Client).0), ((5, 0), Nanos::MAX));
        queue.set(0, Some(6));
        assert_eq!(queue.first(), (5, 2));
    }

    proptest! {
        #[test]
        fn ordered_by_time_and_number(steps in proptest::collection::vec((0usize..6, 0u64..9), 1..200)) {
            let mut queue = EventQueue::new(SIDES.into_iter());
            let mut model = [Nanos::MAX; 6];
            for (source, at) in steps {
                let at = Some(at).filter(|at| *at < 8);
                model[source] = at.unwrap_or(Nanos::MAX);
                queue.set(source, at);
                let first = |which: &dyn Fn(usize) -> bool| {
                    let all = (0..6).filter(|source| which(*source)).map(|source| (model[source], source));
                    all.min().filter(|first| first.0 != Nanos::MAX)
                };
                let pending = |first: (Nanos, usize)| Some(first).filter(|first| first.0 != Nanos::MAX);
                prop_assert_eq!(pending(queue.first()), first(&|_| true));
                for side in [Side::Client, Side::Server] {
                    let its = first(&|source| SIDES[source] == Some(side));
                    prop_assert_eq!(pending(queue.first_of(side)), its);
                }
            }
        }
    }
}
