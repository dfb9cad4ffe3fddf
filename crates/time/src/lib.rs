//! A point in time and a span of it, as nanoseconds in 64 bits.
//!
//! [`Time`] counts from an origin that the caller chooses: the start of a simulation, or of a program.
//! Nothing here reads a clock, which tells `Time` from [`std::time::Instant`]. [`Span`] is what lies between
//! two of them; unlike [`std::time::Duration`] it is one word.
//!
//! Arithmetic is that of `u64`: an overflow panics where overflow checks are on and wraps where they are off.
//! Where a difference may be negative, [`Time::saturating_sub`] says zero.
#![forbid(unsafe_code)]

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Rem, Sub, SubAssign};
use std::time::Duration;

/// One nanosecond: the least span.
pub const NANOSECOND: Span = Span::from_nanos(1);
/// One millisecond.
pub const MILLISECOND: Span = Span::from_millis(1);
/// One second.
pub const SECOND: Span = Span::from_secs(1);

/// A point in time: nanoseconds since an origin that the caller chooses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Time(u64);

/// A span of time, nanoseconds. It isn't negative.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Span(u64);

impl Time {
    /// The origin.
    pub const ZERO: Time = Time(0);
    /// The last point in time: where there must be a value, it stands for never.
    pub const MAX: Time = Time(u64::MAX);

    /// So many nanoseconds after the origin.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Nanoseconds since the origin.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole milliseconds since the origin.
    #[inline]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Seconds since the origin.
    #[inline]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// How long after the origin.
    #[inline]
    pub const fn since_origin(self) -> Span {
        Span(self.0)
    }

    /// How long after `earlier`; zero if it is before.
    #[inline]
    pub const fn saturating_sub(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// So long before; the origin if that would be before it.
    #[inline]
    pub const fn saturating_back(self, span: Span) -> Time {
        Time(self.0.saturating_sub(span.0))
    }

    /// So long after; [`Time::MAX`] if that would be after it.
    #[inline]
    pub const fn saturating_add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }

    /// So long after; `None` if that would be after [`Time::MAX`].
    #[inline]
    pub fn checked_add(self, span: Span) -> Option<Time> {
        self.0.checked_add(span.0).map(Time)
    }

    /// How long after `earlier`; `None` if it is before.
    #[inline]
    pub fn checked_sub(self, earlier: Time) -> Option<Span> {
        self.0.checked_sub(earlier.0).map(Span)
    }

    /// How far from `other`, on either side.
    #[inline]
    pub const fn abs_diff(self, other: Time) -> Span {
        Span(self.0.abs_diff(other.0))
    }
}

impl Span {
    /// No time.
    pub const ZERO: Span = Span(0);
    /// The longest: 584 years.
    pub const MAX: Span = Span(u64::MAX);

    /// So many nanoseconds.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Span {
        Span(nanos)
    }

    /// So many microseconds.
    #[inline]
    pub const fn from_micros(micros: u64) -> Span {
        Span(micros * 1_000)
    }

    /// So many milliseconds.
    #[inline]
    pub const fn from_millis(millis: u64) -> Span {
        Span(millis * 1_000_000)
    }

    /// So many seconds.
    #[inline]
    pub const fn from_secs(secs: u64) -> Span {
        Span(secs * 1_000_000_000)
    }

    /// So many seconds, rounded down to nanoseconds; zero if negative, [`Span::MAX`] if too many.
    #[inline]
    pub fn from_secs_f64(secs: f64) -> Span {
        Span((secs * 1e9) as u64)
    }

    /// The same as one of the standard library's; [`Span::MAX`] if that is longer.
    #[inline]
    pub fn saturating_from(duration: Duration) -> Span {
        Span(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }

    /// In nanoseconds.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// In whole microseconds.
    #[inline]
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// In whole milliseconds.
    #[inline]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// In milliseconds.
    #[inline]
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// In seconds.
    #[inline]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Whether it is no time at all.
    #[inline]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The sum; [`Span::MAX`] if it would be longer.
    #[inline]
    pub const fn saturating_add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }

    /// The difference; zero if `other` is longer.
    #[inline]
    pub const fn saturating_sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }

    /// So many times as long; [`Span::MAX`] if it would be longer.
    #[inline]
    pub const fn saturating_mul(self, times: u64) -> Span {
        Span(self.0.saturating_mul(times))
    }

    /// So many times as long, rounded down; zero if `times` is negative, [`Span::MAX`] if it would be longer.
    #[inline]
    pub fn mul_f64(self, times: f64) -> Span {
        Span((self.0 as f64 * times) as u64)
    }

    /// The difference; `None` if `other` is longer.
    #[inline]
    pub fn checked_sub(self, other: Span) -> Option<Span> {
        self.0.checked_sub(other.0).map(Span)
    }

    /// How often `other` fits into it; `None` if `other` is zero.
    #[inline]
    pub const fn checked_div(self, other: Span) -> Option<u64> {
        self.0.checked_div(other.0)
    }

    /// How often `other` fits into it, rounded up.
    #[inline]
    pub const fn div_ceil(self, other: Span) -> u64 {
        self.0.div_ceil(other.0)
    }

    /// The middle of both, rounded down.
    #[inline]
    pub const fn midpoint(self, other: Span) -> Span {
        Span(self.0.midpoint(other.0))
    }

    /// The difference, whichever is longer.
    #[inline]
    pub const fn abs_diff(self, other: Span) -> Span {
        Span(self.0.abs_diff(other.0))
    }
}

/// Implements a binary operator of wrapped numbers.
macro_rules! operator {
    (
        $left:ty, $trait:ident, $method:ident, $right:ty, $output:ty, $make:expr,
        |$a:ident, $b:ident| $value:expr
    ) => {
        impl $trait<$right> for $left {
            type Output = $output;

            #[inline]
            fn $method(self, $b: $right) -> $output {
                let $a = self;
                $make($value)
            }
        }
    };
}

operator!(Time, Add, add, Span, Time, Time, |time, span| time.0 + span.0);
operator!(Time, Sub, sub, Span, Time, Time, |time, span| time.0 - span.0);
operator!(Time, Sub, sub, Time, Span, Span, |later, earlier| later.0 - earlier.0);
operator!(Span, Add, add, Span, Span, Span, |a, b| a.0 + b.0);
operator!(Span, Sub, sub, Span, Span, Span, |a, b| a.0 - b.0);
operator!(Span, Mul, mul, u64, Span, Span, |span, times| span.0 * times);
operator!(u64, Mul, mul, Span, Span, Span, |times, span| times * span.0);
operator!(Span, Div, div, u64, Span, Span, |span, parts| span.0 / parts);
operator!(Span, Div, div, Span, u64, u64::from, |a, b| a.0 / b.0);
operator!(Span, Rem, rem, Span, Span, Span, |a, b| a.0 % b.0);

impl From<Span> for Duration {
    #[inline]
    fn from(span: Span) -> Duration {
        Duration::from_nanos(span.0)
    }
}

impl AddAssign<Span> for Time {
    #[inline]
    fn add_assign(&mut self, span: Span) {
        self.0 += span.0;
    }
}

impl SubAssign<Span> for Time {
    #[inline]
    fn sub_assign(&mut self, span: Span) {
        self.0 -= span.0;
    }
}

impl AddAssign for Span {
    #[inline]
    fn add_assign(&mut self, other: Span) {
        self.0 += other.0;
    }
}

impl SubAssign for Span {
    #[inline]
    fn sub_assign(&mut self, other: Span) {
        self.0 -= other.0;
    }
}

impl Sum for Span {
    fn sum<I: Iterator<Item = Span>>(spans: I) -> Span {
        spans.fold(Span::ZERO, Add::add)
    }
}

/// Nanoseconds: a log is compared as text.
macro_rules! shown_as_nanoseconds {
    ($($type:ty),*) => {$(
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    )*};
}

shown_as_nanoseconds!(Time, Span);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{MILLISECOND, NANOSECOND, SECOND, Span, Time};

    #[test]
    fn points_and_spans_add_up() {
        let start = Time::from_nanos(7);
        let later = start + 3 * SECOND;
        assert_eq!(later - start, 3_000 * MILLISECOND);
        assert_eq!(later - 2 * SECOND, start + SECOND);
        assert_eq!(later.as_nanos(), 3_000_000_007);
        assert_eq!(Span::from_millis(1_500) / Span::from_micros(500), 3_000);
        assert_eq!(SECOND * 3 / 2, Span::from_secs_f64(1.5));
        assert_eq!(
            [1.5, -1.0, 1e30].map(|times| SECOND.mul_f64(times)),
            [SECOND * 3 / 2, Span::ZERO, Span::MAX]
        );
        let longest = Duration::from_secs(u64::MAX);
        assert_eq!(
            (Span::saturating_from(longest), Duration::from(SECOND)),
            (Span::MAX, Duration::from_secs(1))
        );
        assert_eq!([SECOND, MILLISECOND].into_iter().sum::<Span>(), Span::from_millis(1_001));
    }

    #[test]
    fn a_difference_that_would_be_negative_is_zero_if_that_is_asked() {
        let (early, late) = (Time::from_nanos(1), Time::from_nanos(4));
        assert_eq!(early.saturating_sub(late), Span::ZERO);
        assert_eq!(late.saturating_sub(early), Span::from_nanos(3));
        assert_eq!(early.saturating_back(SECOND), Time::ZERO);
        assert_eq!(Time::MAX.saturating_add(SECOND), Time::MAX);
        assert_eq!(
            (Time::MAX.checked_add(SECOND), Time::ZERO.checked_add(NANOSECOND)),
            (None, Some(Time(1)))
        );
        assert_eq!((early.checked_sub(late), late.checked_sub(early)), (None, Some(Span::from_nanos(3))));
        assert_eq!(early.abs_diff(late), late.abs_diff(early));
    }

    #[test]
    fn text_is_nanoseconds() {
        assert_eq!(format!("{:?} {}", Time::from_nanos(5), MILLISECOND), "5 1000000");
    }
}
