//! What keeps the end of the data, less than a segment, from being sent: the application's cork, or that its
//! next write is likely to come at once.

use crate::{Span, Time};

/// How long a cork holds less than a segment back, as in Linux.
const CORK_TIME: Span = Span::from_millis(200);

/// After a longer time between two writes no third is expected, and nothing waits longer for one.
const MOST_GATHERED: Span = Span::from_millis(2);

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cork {
    on: bool,
    /// It has held data for its time: what is written by now goes.
    overdue: bool,
    /// When the application last wrote.
    written_at: Time,
    /// How long that was after the write before it, nanoseconds; 0: too long for another to be expected.
    between: u32,
}

impl Cork {
    /// Whether less than a segment may have to wait.
    #[inline]
    pub fn may_hold(&self) -> bool {
        self.on || self.between > 0
    }

    /// Whether the application has corked the stream (`TCP_CORK`), and not for longer than a cork lasts.
    #[inline]
    pub fn is_holding(&self) -> bool {
        self.on && !self.overdue
    }

    /// Corks the stream or uncorks it.
    pub fn set(&mut self, on: bool) {
        (self.on, self.overdue) = (on, false);
    }

    /// Says whether what is written by now goes, as it was held back for its time.
    #[inline]
    pub fn set_overdue(&mut self, overdue: bool) {
        self.overdue = overdue;
    }

    /// The application wrote, where what it writes is gathered
    /// ([`ConnectionConfig::gather_writes`](crate::config::ConnectionConfig::gather_writes)).
    pub fn on_written(&mut self, now: Time) {
        let between = now.saturating_sub(self.written_at);
        self.between = if between <= MOST_GATHERED { between.as_nanos() as u32 } else { 0 };
        self.written_at = now;
    }

    /// Until when less than a segment waits, if it does. `is_first`: nothing that was written before is in
    /// flight.
    pub fn holds_until(&self, now: Time, is_first: bool) -> Option<Time> {
        if self.overdue {
            return None;
        }
        if self.on {
            return Some(now + CORK_TIME);
        }
        let twice = Span::from_nanos(2 * u64::from(self.between));
        let until = self.written_at + twice.min(MOST_GATHERED);
        (until > now && !is_first).then_some(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time::ZERO + Span::from_micros(micros)
    }

    #[test]
    fn the_rest_of_a_write_waits_for_twice_as_long_as_writes_are_apart() {
        let mut cork = Cork::default();
        cork.on_written(at(10_000));
        assert!(!cork.may_hold(), "a first write is followed by none that is known");
        cork.on_written(at(10_300));
        assert!(cork.may_hold());
        assert_eq!(cork.holds_until(at(10_300), false), Some(at(10_900)));
        assert_eq!(cork.holds_until(at(10_300), true), None, "nothing is in flight");
        assert_eq!(cork.holds_until(at(10_900), false), None);
        cork.on_written(at(11_800));
        assert_eq!(cork.holds_until(at(11_800), false), Some(at(13_800)), "2 ms at most");
        cork.on_written(at(13_801));
        assert!(!cork.may_hold());
    }

    #[test]
    fn what_is_overdue_goes() {
        let mut cork = Cork::default();
        cork.set(true);
        assert_eq!(cork.holds_until(at(0), true), Some(at(200_000)));
        cork.set_overdue(true);
        assert_eq!((cork.holds_until(at(0), true), cork.is_holding()), (None, false));
    }
}
