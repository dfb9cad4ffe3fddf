//! What a link could carry at best: the integral of its rate over time, by trace, changes and times down. For
//! lower bounds on a transfer's time.

use ropewalk_time::{NANOSECOND, Span, Time};

use crate::serializer::UNITS_PER_BYTE;
use crate::spec::{ChangeAction, LinkSpec, Rate, Schedule};
use crate::trace::OPPORTUNITY_BYTES;

/// Bits times nanoseconds per second: a rate times a span, without rounding.
type Units = u128;

const UNITS_PER_OPPORTUNITY: Units = OPPORTUNITY_BYTES as Units * UNITS_PER_BYTE as Units;

/// A span in which nothing changes.
struct Stretch<'a> {
    from: Time,
    to: Time,
    /// `None`: down.
    rate: Option<&'a Rate>,
    /// When the rate was put in force, which is when its trace starts.
    origin: Time,
    /// Whether opportunities at `from` itself count: they do after a change, for packets already waiting.
    includes_start: bool,
}

impl Stretch<'_> {
    fn capacity(&self) -> Units {
        match self.rate {
            Some(Rate::Constant(u64::MAX)) if self.to > self.from => Units::MAX,
            Some(Rate::Constant(rate)) => Units::from(*rate) * Units::from((self.to - self.from).as_nanos()),
            Some(Rate::Trace(trace)) if !trace.period().is_zero() => {
                let until = trace.count_until(self.to - self.origin);
                until.saturating_sub(self.opportunities_before(trace)) as Units * UNITS_PER_OPPORTUNITY
            }
            _ => 0,
        }
    }

    fn opportunities_before(&self, trace: &crate::RateTrace) -> u64 {
        let start = self.from - self.origin;
        if !self.includes_start {
            return trace.count_until(start);
        }
        start.checked_sub(NANOSECOND).map_or(0, |before| trace.count_until(before))
    }
}

impl LinkSpec {
    /// Bytes, each packet's `overhead` included, that a queue never empty could send after `from` and up to
    /// `to`, rounded down; `u64::MAX` without limit. A packet that a change of rate or a loss of the link
    /// cuts across moves the true figure by less than that packet.
    pub fn capacity_integral(&self, from: Time, to: Time) -> u64 {
        let mut units: Units = 0;
        self.stretches(from, to, |stretch| units = units.saturating_add(stretch.capacity()));
        u64::try_from(units / Units::from(UNITS_PER_BYTE)).unwrap_or(u64::MAX)
    }

    /// The least one-way delay a packet can have, transmission not counted: over all changes of delay, and
    /// with the luckiest jitter; zero when the jitter has no lower end.
    pub fn min_delay(&self) -> Span {
        let changed = self.changes.iter().filter_map(|change| match change.action {
            ChangeAction::Delay(delay) => Some(delay),
            _ => None,
        });
        let delay = changed.fold(self.delay, Span::min);
        self.jitter.map_or(delay, |jitter| jitter.least(delay))
    }

    /// Visits the stretches between `from` and `to` in order.
    fn stretches(&self, from: Time, to: Time, mut visit: impl FnMut(&Stretch<'_>)) {
        let mut changes = Schedule::new(&self.changes);
        let (mut rate, mut origin, mut down) = (self.rate.clone(), Time::ZERO, false);
        let mut now = from;
        let mut includes_start = false;
        while let Some(change) = changes.take() {
            if change.at > to {
                break;
            }
            if change.at > now {
                let rate = (!down).then_some(&rate);
                visit(&Stretch { from: now, to: change.at, rate, origin, includes_start });
                now = change.at;
                includes_start = false;
            }
            match change.action {
                ChangeAction::Rate(new) => {
                    (rate, origin) = (new, change.at);
                    includes_start = change.at >= from;
                }
                ChangeAction::Down => down = true,
                ChangeAction::Up => down = false,
                ChangeAction::Delay(_) | ChangeAction::Loss(_) => {}
            }
        }
        // A stretch of no length may hold the first opportunities of a trace.
        if to > now || includes_start {
            visit(&Stretch { from: now, to, rate: (!down).then_some(&rate), origin, includes_start });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ropewalk_time::MILLISECOND;

    use super::*;
    use crate::{Change, Jitter, JitterShape, RateTrace};

    const MS: Span = MILLISECOND;

    fn at(ms: u64) -> Time {
        Time::ZERO + ms * MS
    }

    fn changing(rate: Rate, changes: &[(u64, ChangeAction)]) -> LinkSpec {
        let changes = changes.iter().map(|(ms, action)| Change::once(at(*ms), action.clone())).collect();
        LinkSpec { rate, changes, ..LinkSpec::plain(1, Span::ZERO, 1) }
    }

    fn trace(text: &str) -> Rate {
        Rate::Trace(Arc::new(RateTrace::parse("t", text).unwrap()))
    }

    #[test]
    fn a_constant_rate() {
        let spec = changing(Rate::Constant(12_000_000), &[]);
        assert_eq!(spec.capacity_integral(at(5), at(15)), 15_000);
    }

    #[test]
    fn no_limit_and_no_rate() {
        let unlimited = changing(Rate::Constant(u64::MAX), &[]);
        assert_eq!(unlimited.capacity_integral(Time::from_nanos(1), Time::from_nanos(2)), u64::MAX);
        let stalled = changing(Rate::Constant(0), &[(7, ChangeAction::Rate(Rate::Constant(8_000_000)))]);
        assert_eq!(stalled.capacity_integral(at(5), at(8)), 1000);
        assert_eq!(changing(Rate::Constant(0), &[]).capacity_integral(Time::ZERO, at(1000)), 0);
    }

    #[test]
    fn changes_and_times_down() {
        let spec = changing(
            Rate::Constant(8_000_000),
            &[
                (10, ChangeAction::Down),
                (15, ChangeAction::Rate(Rate::Constant(80_000_000))),
                (20, ChangeAction::Up),
                (30, ChangeAction::Delay(NANOSECOND)),
            ],
        );
        // 10 ms at 1 byte per microsecond, 10 ms of nothing, then 10 bytes per microsecond.
        assert_eq!(spec.capacity_integral(Time::ZERO, at(40)), 10_000 + 200_000);
        assert_eq!(spec.capacity_integral(at(12), at(18)), 0);
        let ends = changing(Rate::Constant(8_000_000), &[(10, ChangeAction::Down)]);
        assert_eq!(ends.capacity_integral(at(5), at(1000)), 5000);
    }

    #[test]
    fn a_trace_counts_its_opportunities() {
        let spec = changing(trace("0\n2\n2\n5"), &[]);
        // What is at 0 can't be used by a packet that comes at 0.
        assert_eq!(spec.capacity_integral(Time::ZERO, at(5)), 3 * 1500 + 1500);
        assert_eq!(spec.capacity_integral(Time::ZERO, at(5) - NANOSECOND), 2 * 1500);
        // A thousand periods of four.
        assert_eq!(spec.capacity_integral(Time::ZERO, at(5000)), 4000 * 1500);
    }

    #[test]
    fn a_trace_put_in_force_starts_then() {
        let spec = changing(Rate::Constant(0), &[(10, ChangeAction::Rate(trace("0\n3\n4")))]);
        assert_eq!(spec.capacity_integral(Time::ZERO, at(14)), 3 * 1500 + 1500);
    }

    #[test]
    fn the_least_delay() {
        let jittery = |shape, spread| LinkSpec {
            jitter: Some(Jitter { spread, shape, keeps_order: false }),
            ..LinkSpec::plain(1, 20 * MS, 1)
        };
        assert_eq!(LinkSpec::plain(1, 20 * MS, 1).min_delay(), 20 * MS);
        assert_eq!(jittery(JitterShape::Uniform, 5 * MS).min_delay(), 15 * MS);
        assert_eq!(jittery(JitterShape::Uniform, 50 * MS).min_delay(), Span::ZERO);
        assert_eq!(jittery(JitterShape::Normal, MS).min_delay(), Span::ZERO);
        let pareto = jittery(JitterShape::Pareto, 5 * MS).min_delay();
        assert!((15 * MS..17 * MS).contains(&pareto), "{pareto}");
        let changing = changing(
            Rate::Constant(1),
            &[(1, ChangeAction::Delay(9 * NANOSECOND)), (2, ChangeAction::Delay(7 * NANOSECOND))],
        );
        assert_eq!(LinkSpec { delay: 8 * NANOSECOND, ..changing }.min_delay(), 7 * NANOSECOND);
    }
}
