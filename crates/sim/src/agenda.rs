//! What happens next: one pending moment per event source, and the least of them.
//!
//! A world has few sources (its links, its endpoints, one heap of application timers), each with one pending
//! moment, however many packets are under way. So the least is found by a scan of an array that fits in a
//! cache line or two, which is faster than any heap up to several dozen sources. Order is by (time, sequence
//! number): a source takes a fresh number each time its moment is set, so that of two sources due at once the
//! one that was set first goes first.

use crate::Nanos;

/// The pending moment of every source.
#[derive(Debug)]
pub(crate) struct Agenda {
    at: Vec<Nanos>,
    order: Vec<u64>,
    next_order: u64,
    /// No other source than the one last returned by [`Agenda::first`] is due before this.
    others: Nanos,
}

impl Agenda {
    /// One for this many sources, none of which is due.
    pub(crate) fn new(sources: usize) -> Self {
        Agenda { at: vec![Nanos::MAX; sources], order: vec![0; sources], next_order: 0, others: 0 }
    }

    /// Sets when a source is due. A source whose moment doesn't change keeps its place among equals.
    #[inline]
    pub(crate) fn set(&mut self, source: usize, at: Option<Nanos>) {
        let at = at.unwrap_or(Nanos::MAX);
        if self.at[source] != at {
            self.at[source] = at;
            self.order[source] = self.next_order;
            self.next_order += 1;
            self.others = self.others.min(at);
        }
    }

    /// The source that was just handled is due again: it goes behind others that are due at that moment.
    /// Returns whether it is certainly the first again, so that its caller may go on with it at once.
    #[inline]
    pub(crate) fn again(&mut self, source: usize, at: Option<Nanos>) -> bool {
        let at = at.unwrap_or(Nanos::MAX);
        self.at[source] = at;
        self.order[source] = self.next_order;
        self.next_order += 1;
        at < self.others
    }

    /// The source that is due first, and when.
    #[inline]
    pub(crate) fn first(&mut self) -> Option<(usize, Nanos)> {
        let mut found = 0;
        let mut least = Nanos::MAX;
        let mut second = Nanos::MAX;
        for (source, &at) in self.at.iter().enumerate() {
            let earlier = at < least;
            second = if earlier { least } else { second.min(at) };
            found = if earlier { source } else { found };
            least = least.min(at);
        }
        self.others = second;
        if second > least {
            return Some((found, least));
        }
        self.first_of_equals(least)
    }

    #[cold]
    fn first_of_equals(&self, at: Nanos) -> Option<(usize, Nanos)> {
        if at == Nanos::MAX {
            return None;
        }
        let equals = (0..self.at.len()).filter(|&source| self.at[source] == at);
        equals.min_by_key(|&source| self.order[source]).map(|source| (source, at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn earliest_first_then_the_one_set_first() {
        let mut agenda = Agenda::new(4);
        assert_eq!(agenda.first(), None);
        agenda.set(2, Some(5));
        agenda.set(0, Some(5));
        agenda.set(1, Some(3));
        assert_eq!(agenda.first(), Some((1, 3)));
        agenda.set(1, None);
        assert_eq!(agenda.first(), Some((2, 5)));
        // Set to the same moment again: its place is kept; due again: it goes behind.
        agenda.set(2, Some(5));
        assert_eq!(agenda.first(), Some((2, 5)));
        assert!(!agenda.again(2, Some(5)));
        assert_eq!(agenda.first(), Some((0, 5)));
    }

    proptest! {
        /// Going on with the same source whenever `again` allows gives the same sequence as asking each time.
        #[test]
        fn shortcut_keeps_the_order(steps in proptest::collection::vec((0usize..5, 0u64..20, 0u64..4), 1..200)) {
            let run = |shortcut: bool| {
                let mut agenda = Agenda::new(5);
                for source in 0..5 {
                    agenda.set(source, Some(source as u64 % 2));
                }
                let mut log = Vec::new();
                let mut going_on = None;
                for &(other, wait, gap) in &steps {
                    let (source, now) = match going_on {
                        Some(same) if shortcut => same,
                        _ => agenda.first().expect("all are due"),
                    };
                    log.push((source, now));
                    if other != source {
                        agenda.set(other, Some(now + wait));
                    }
                    let first = agenda.again(source, Some(now + gap));
                    going_on = first.then_some((source, now + gap));
                }
                log
            };
            prop_assert_eq!(run(true), run(false));
        }
    }
}
