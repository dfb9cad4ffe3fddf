//! How fast the peer's timestamp clock is seen to run (RFC 7323 5.4: from one tick per second to one per
//! millisecond; Linux's `tcp_usec_ts`: one per microsecond).

use crate::{MILLISECOND, SECOND, Span, Time};

/// Two sights of the clock tell its rate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TsClock {
    /// The first sight: a timestamp, and when it was received.
    value: u32,
    since: Time,
    /// Ticks per second by earlier sights.
    known: Option<u32>,
}

impl TsClock {
    /// Sights so far apart tell nothing: the fastest clock passes half of its range in 36 minutes.
    const SPAN: Span = Span::from_secs(1200);
    /// The rate that RFC 7323 5.5 supposes.
    const SUPPOSED: u64 = 1000;

    /// Ticks per second, with TS.Recent as the second sight.
    pub fn ticks_per_second(&self, ts_recent: u32, at: Time) -> u64 {
        let known = self.known.map(u64::from);
        known.or_else(|| self.measure(ts_recent, at)).unwrap_or(Self::SUPPOSED)
    }

    /// What a second sight tells; `None` if it is too near or too far from the first.
    fn measure(&self, value: u32, at: Time) -> Option<u64> {
        let span = at.saturating_sub(self.since);
        let is_fit = self.since > Time::ZERO && (MILLISECOND..Self::SPAN).contains(&span);
        is_fit.then(|| (u64::from(value.wrapping_sub(self.value)) * SECOND / span).max(1))
    }

    /// A timestamp of the peer's was received.
    pub fn see(&mut self, now: Time, value: u32) {
        match self.measure(value, now) {
            Some(ticks) => self.known = Some(u32::try_from(ticks).unwrap_or(u32::MAX)),
            None if self.since == Time::ZERO || now >= self.since + Self::SPAN => {
                (self.value, self.since) = (value, now.max(Time::from_nanos(1)));
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_two_sights_near_enough() {
        for ticks in [1, 100, 1000, 1_000_000] {
            let mut clock = TsClock::default();
            let mut value = 0xffff_fff0u32;
            clock.see(Time::ZERO + SECOND, value);
            assert_eq!(clock.ticks_per_second(value, Time::ZERO + SECOND), TsClock::SUPPOSED);
            // Hours of segments, a minute apart, and silence during which the fastest wraps.
            for minute in (1..60u64).chain(500..560) {
                value = value.wrapping_add(ticks * 60);
                let now = Time::ZERO + SECOND + minute * 60 * SECOND;
                clock.see(now, value);
                assert_eq!(clock.ticks_per_second(value, now), u64::from(ticks), "minute {minute}");
            }
        }
    }

    #[test]
    fn one_later_sight_is_enough() {
        let mut clock = TsClock::default();
        clock.see(Time::ZERO, 5);
        assert_eq!(clock.ticks_per_second(100_005, Time::ZERO + 100 * MILLISECOND), 1_000_000);
    }
}
