//! The constant-rate transmitter: when the last bit of each packet leaves.
//!
//! A packet of n bytes takes `8e9 n / rate` ns. The part below a nanosecond is carried from packet to packet
//! as a numerator over the rate, so that a busy link keeps its rate for ever; times handed out are rounded
//! up. Rounding up makes "the next packet found the link busy" (`now < free_at`) agree with the exact time.

use ropewalk_time::{NANOSECOND, Span, Time};

/// Bits times nanoseconds per second in one byte.
pub(crate) const UNITS_PER_BYTE: u64 = 8_000_000_000;

/// So many nanoseconds; the longest span if they are too many.
pub(crate) fn saturating_span(nanos: u128) -> Span {
    Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[derive(Clone, Debug)]
pub(crate) struct Serializer {
    /// Bits per second, above 0; `u64::MAX`: packets take no time.
    rate: u64,
    overhead: u32,
    /// The size whose time is kept: traffic has few sizes, and divisions are slow.
    cached_len: u32,
    cached_whole: Span,
    cached_part: u64,
    /// The exact time the link is free: `whole + part / rate` ns, `part < rate`.
    whole: Time,
    part: u64,
    /// The same, rounded up.
    free_at: Time,
}

impl Serializer {
    /// A transmitter that is free. `rate` in bits per second, not 0; `overhead` in bytes per packet.
    pub(crate) fn new(rate: u64, overhead: u32) -> Self {
        let mut serializer = Serializer {
            rate,
            overhead,
            cached_len: 0,
            cached_whole: Span::ZERO,
            cached_part: 0,
            whole: Time::ZERO,
            part: 0,
            free_at: Time::ZERO,
        };
        serializer.cache(1500);
        serializer
    }

    /// When the last bit of what was sent so far leaves.
    #[inline]
    pub(crate) fn free_at(&self) -> Time {
        self.free_at
    }

    /// The link was idle until `now`: the next packet starts then.
    #[inline]
    pub(crate) fn idle_until(&mut self, now: Time) {
        self.whole = now;
        self.part = 0;
        self.free_at = now;
    }

    /// Sends a packet of `len` IP bytes right after the last one; when its last bit leaves.
    #[inline]
    pub(crate) fn send(&mut self, len: u32) -> Time {
        if len != self.cached_len {
            self.cache(len);
        }
        let (sum, carried) = self.part.overflowing_add(self.cached_part);
        let mut whole = self.cached_whole;
        self.part = if carried || sum >= self.rate {
            whole = whole.saturating_add(NANOSECOND);
            sum.wrapping_sub(self.rate)
        } else {
            sum
        };
        self.whole = self.whole.saturating_add(whole);
        self.free_at = self.whole.saturating_add(Span::from_nanos(u64::from(self.part > 0)));
        self.free_at
    }

    /// Sets the rate of further packets. The carried part of a nanosecond is rounded to the new unit.
    pub(crate) fn set_rate(&mut self, rate: u64) {
        self.part = (u128::from(self.part) * u128::from(rate) / u128::from(self.rate)) as u64;
        self.rate = rate;
        self.cache(self.cached_len);
    }

    /// How long `bytes`, of `packets` packets, take to send, rounded up.
    pub(crate) fn duration(&self, packets: u64, bytes: u64) -> Span {
        let wire_bytes = u128::from(bytes) + u128::from(packets) * u128::from(self.overhead);
        if self.rate == u64::MAX {
            return Span::ZERO;
        }
        saturating_span((wire_bytes * u128::from(UNITS_PER_BYTE)).div_ceil(u128::from(self.rate)))
    }

    #[cold]
    fn cache(&mut self, len: u32) {
        self.cached_len = len;
        (self.cached_whole, self.cached_part) = if self.rate == u64::MAX {
            (Span::ZERO, 0)
        } else {
            let bytes = u64::from(len) + u64::from(self.overhead);
            match bytes.checked_mul(UNITS_PER_BYTE) {
                Some(units) => (Span::from_nanos(units / self.rate), units % self.rate),
                None => {
                    let (units, rate) =
                        (u128::from(bytes) * u128::from(UNITS_PER_BYTE), u128::from(self.rate));
                    (saturating_span(units / rate), (units % rate) as u64)
                }
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    #[test]
    fn a_busy_link_never_drifts() {
        // 1500 bytes at 7 Gbit/s: 1714 2/7 ns. After 7 million packets the time is exact.
        let mut serializer = Serializer::new(7_000_000_000, 0);
        for _ in 0..7_000_000 {
            serializer.send(1500);
        }
        assert_eq!(serializer.free_at(), at(12_000_000_000));
    }

    #[test]
    fn times_are_rounded_up() {
        let mut serializer = Serializer::new(7_000_000_000, 0);
        assert_eq!(serializer.send(1500), at(1715));
        assert_eq!(serializer.send(1500), at(3429));
        assert_eq!(serializer.send(1500), at(5143));
        assert_eq!((4..=7).map(|_| serializer.send(1500)).last(), Some(at(12_000)));
    }

    #[test]
    fn overhead_is_charged() {
        let mut serializer = Serializer::new(1_000_000_000, 38);
        assert_eq!(serializer.send(1500), at(1538 * 8));
        assert_eq!(serializer.duration(2, 3000), Span::from_nanos(2 * 1538 * 8));
    }

    #[test]
    fn the_extremes_hold() {
        assert_eq!(Serializer::new(u64::MAX, 38).send(65_535), Time::ZERO);
        // A part below the rate may be nearly 2^64.
        let mut serializer = Serializer::new(u64::MAX - 1, 0);
        assert_eq!((0..10).map(|_| serializer.send(u32::MAX)).last(), Some(at(19)));
        let mut slow = Serializer::new(1, u32::MAX);
        assert_eq!(slow.send(u32::MAX), Time::MAX);
        assert_eq!(slow.send(u32::MAX), Time::MAX);
    }

    #[test]
    fn a_new_rate_keeps_the_time() {
        let mut serializer = Serializer::new(3, 0);
        let before = serializer.send(1);
        serializer.set_rate(1_000_000_000);
        assert_eq!(serializer.send(1500), before + Span::from_nanos(12_000));
    }
}
