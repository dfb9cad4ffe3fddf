//! What happens next: one pending moment per event source, in order.
//!
//! A world has few sources (its links, its endpoints, one heap of application timers), each with one pending
//! moment, however many packets are under way. So they are kept sorted in an array that fits in a cache line or two:
//! a source whose moment changes moves a few places, which is faster than any heap up to several dozen sources. A
//! source goes behind those that are due at the same moment: of two due at once the one that was set first goes first.
//! Where connections are looked at one by one ([`crate::lookahead`]), when a source was set isn't known: there the one with
//! the smaller number goes first, links before endpoints and these before all else.

use crate::Nanos;

/// The pending moment of every source.
#[derive(Debug)]
pub(crate) struct Agenda {
    /// By source.
    at: Vec<Nanos>,
    /// In order.
    sorted: Vec<(Nanos, usize)>,
    /// All ones: of two due at once the one that was set first goes first; 0: the one with the smaller number.
    as_set: usize,
}

impl Agenda {
    /// One for this many sources, none of which is due.
    pub(crate) fn new(sources: usize) -> Self {
        Agenda {
            at: vec![Nanos::MAX; sources],
            sorted: (0..sources).map(|source| (Nanos::MAX, source)).collect(),
            as_set: usize::MAX,
        }
    }

    /// Has sources that are due at once go in the order of their numbers. Before the first is set.
    pub(crate) fn order_by_number(&mut self) {
        self.as_set = 0;
    }

    /// Sets when a source is due. A source whose moment doesn't change keeps its place among equals.
    #[inline]
    pub(crate) fn set(&mut self, source: usize, at: Option<Nanos>) {
        let at = at.unwrap_or(Nanos::MAX);
        if self.at[source] != at {
            self.place(source, at);
        }
    }

    /// The source that was just handled is due again: it goes behind others that are due at that moment.
    /// Returns whether it is the first again, so that its caller may go on with it at once.
    #[inline]
    pub(crate) fn again(&mut self, source: usize, at: Option<Nanos>) -> bool {
        self.place(source, at.unwrap_or(Nanos::MAX)) == 0
    }

    /// Puts a source in its place, and says which that is.
    fn place(&mut self, source: usize, at: Nanos) -> usize {
        self.at[source] = at;
        let key = (at, source | self.as_set);
        let sorted = &mut self.sorted[..];
        let Some(mut place) = sorted.iter().position(|due| due.1 == source) else { return 0 };
        while let Some(&next) = sorted.get(place + 1)
            && next <= key
        {
            sorted[place] = next;
            place += 1;
        }
        while let Some(before) = place.checked_sub(1)
            && sorted[before] > key
        {
            sorted[place] = sorted[before];
            place = before;
        }
        sorted[place] = (at, source);
        place
    }

    /// The source that is due first, and when.
    #[inline]
    pub(crate) fn first(&self) -> Option<(usize, Nanos)> {
        let &(at, source) = self.sorted.first()?;
        (at != Nanos::MAX).then_some((source, at))
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
        /// Against a number taken each time that a moment is set, by which equals are ordered.
        #[test]
        fn in_order_of_time_and_setting(
            by_number: bool,
            steps in proptest::collection::vec((0usize..6, 0u64..9, any::<bool>()), 1..200),
        ) {
            let mut agenda = Agenda::new(6);
            if by_number {
                agenda.order_by_number();
            }
            let mut model = [(Nanos::MAX, 0); 6];
            for (number, (source, at, again)) in (1..).zip(steps) {
                let at = Some(at).filter(|at| *at < 8);
                let moment = at.unwrap_or(Nanos::MAX);
                if again {
                    let first = agenda.again(source, at);
                    prop_assert!(!first || model.iter().enumerate().all(|(i, due)| i == source || due.0 >= moment));
                } else {
                    agenda.set(source, at);
                }
                if again || model[source].0 != moment {
                    model[source] = (moment, if by_number { source } else { number });
                }
                let least = (0..6).min_by_key(|i| model[*i]).filter(|i| model[*i].0 != Nanos::MAX);
                prop_assert_eq!(agenda.first(), least.map(|i| (i, model[i].0)));
            }
        }

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
