//! The event queue: one pending event per source, ordered by time and then by the source's number.
//!
//! A world has few sources of events (its links, its endpoints, one heap of timers), each with one pending
//! event, however many packets are in flight. So their times are kept in an array, and the first is
//! remembered. The array is searched when the first event moves to a later time, which is faster than a heap
//! up to several dozen sources.
//!
//! Links have the lowest numbers, then endpoints, then the timers. So the order of simultaneous events
//! doesn't depend on when each was scheduled, and [`crate::world::lookahead`] can find the same order without
//! knowing that.

use crate::Nanos;

/// So many are searched in a turn of the loop.
const STEP: usize = 4;

/// See the module.
#[derive(Debug)]
pub(crate) struct EventQueue {
    /// By source, with some more so that their number is a multiple of [`STEP`]. [`Nanos::MAX`]: nothing is
    /// pending.
    at: Vec<Nanos>,
    /// The source of the next event, and when it is due.
    first: (Nanos, usize),
}

impl EventQueue {
    /// A queue for this many sources, of which none has a pending event.
    pub(crate) fn new(sources: usize) -> Self {
        EventQueue { at: vec![Nanos::MAX; sources.next_multiple_of(STEP)], first: (Nanos::MAX, 0) }
    }

    /// Sets when a source's next event is due.
    #[inline]
    pub(crate) fn set(&mut self, source: usize, at: Option<Nanos>) {
        if self.postpones_first(source, at) {
            self.search_rarely();
        }
    }

    /// As [`set`](Self::set), by the event loop for the source of the event that it has handled; returns
    /// whether this source is the first now, so that the loop may go on with it.
    #[inline]
    pub(crate) fn set_and_check(&mut self, source: usize, at: Option<Nanos>) -> bool {
        if self.postpones_first(source, at) {
            self.search();
        }
        self.first.1 == source
    }

    /// Sets when a source's next event is due; returns whether that postponed the earliest event, so that it
    /// has to be searched for again.
    #[inline(always)]
    fn postpones_first(&mut self, source: usize, at: Option<Nanos>) -> bool {
        let at = at.unwrap_or(Nanos::MAX);
        self.at[source] = at;
        let first = self.first;
        if source == first.1 {
            if at > first.0 {
                return true;
            }
            self.first.0 = at;
        } else if at <= first.0 && (at, source) < first {
            self.first = (at, source);
        }
        false
    }

    /// Out of line: mostly it is the event loop that postpones the earliest event.
    #[cold]
    fn search_rarely(&mut self) {
        self.search();
    }

    #[inline]
    fn search(&mut self) {
        let mut first = (Nanos::MAX, 0);
        for (turn, some) in self.at.chunks_exact(STEP).enumerate() {
            for (source, at) in some.iter().enumerate() {
                if *at < first.0 {
                    first = (*at, turn * STEP + source);
                }
            }
        }
        self.first = first;
    }

    /// The source of the next event, and when it is due.
    #[inline]
    pub(crate) fn peek(&self) -> Option<(usize, Nanos)> {
        let (at, source) = self.first;
        (at != Nanos::MAX).then_some((source, at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn earliest_first_then_the_lowest_number() {
        let mut queue = EventQueue::new(4);
        assert_eq!(queue.peek(), None);
        queue.set(2, Some(5));
        queue.set(0, Some(5));
        queue.set(1, Some(3));
        assert_eq!(queue.peek(), Some((1, 3)));
        queue.set(1, None);
        assert_eq!(queue.peek(), Some((0, 5)));
        assert!(queue.set_and_check(0, Some(5)));
        assert!(!queue.set_and_check(0, Some(6)));
        assert_eq!(queue.peek(), Some((2, 5)));
    }

    proptest! {
        #[test]
        fn ordered_by_time_and_number(
            steps in proptest::collection::vec((0usize..6, 0u64..9, any::<bool>()), 1..200),
        ) {
            let mut queue = EventQueue::new(6);
            let mut model = [Nanos::MAX; 6];
            for (source, at, check) in steps {
                let at = Some(at).filter(|at| *at < 8);
                model[source] = at.unwrap_or(Nanos::MAX);
                let first = (0..6).min_by_key(|i| (model[*i], *i)).filter(|i| model[*i] != Nanos::MAX);
                if check {
                    let is_first = queue.set_and_check(source, at);
                    prop_assert!(first.is_none() || is_first == (first == Some(source)));
                } else {
                    queue.set(source, at);
                }
                prop_assert_eq!(queue.peek(), first.map(|i| (i, model[i])));
            }
        }
    }
}
