//! UDP on/off sources: packets at a constant rate while on, nothing while off.
//!
//! Times on and off are Pareto of shape 1.5 or exponential (blest-2016: Pareto on, exponential off); packet
//! sizes are exponential, clipped to what a link carries. Nothing is sent in return.

use rand_pcg::Pcg64;
use ropewalk_engine::{NANOSECOND, Span, Time};

use crate::entropy::{exponential, pareto};
use crate::spec::Times;

/// Shape of the Pareto distribution.
const SHAPE: f64 = 1.5;
/// Least packet, bytes.
const LEAST: f64 = 64.0;

/// One source.
#[derive(Debug)]
pub(crate) struct UdpSource {
    rate: u64,
    mean_packet: f64,
    mtu: f64,
    on: (f64, Times),
    off: (f64, Times),
    on_until: Time,
    rng: Pcg64,
}

impl UdpSource {
    /// `rate` bits per second while on, of packets of `mean_packet` bytes; times on and off, by mean and
    /// distribution.
    pub(crate) fn new(
        rate: u64,
        mean_packet: u32,
        mtu: u32,
        on: (Span, Times),
        off: (Span, Times),
        rng: Pcg64,
    ) -> Self {
        UdpSource {
            rate: rate.max(1),
            mean_packet: f64::from(mean_packet),
            mtu: f64::from(mtu).max(LEAST),
            on: (on.0.as_nanos() as f64, on.1),
            off: (off.0.as_nanos() as f64, off.1),
            on_until: Time::ZERO,
            rng,
        }
    }

    /// When to send first, having started at `now`: sources start off, so that many don't start as one.
    pub(crate) fn start(&mut self, now: Time) -> Time {
        self.turn_on(now)
    }

    fn turn_on(&mut self, now: Time) -> Time {
        // At least a nanosecond, so that time moves whatever the means are.
        let begin = now.saturating_add(self.draw(self.off).max(NANOSECOND));
        self.on_until = begin.saturating_add(self.draw(self.on));
        begin
    }

    fn draw(&mut self, (mean, times): (f64, Times)) -> Span {
        Span::from_nanos(match times {
            Times::Pareto => pareto(&mut self.rng, mean, SHAPE) as u64,
            Times::Exponential => exponential(&mut self.rng, mean) as u64,
        })
    }

    /// Sends at `now`: the packet's length, and when to send next.
    pub(crate) fn send(&mut self, now: Time) -> (u32, Time) {
        let len = exponential(&mut self.rng, self.mean_packet).clamp(LEAST, self.mtu) as u32;
        let gap = u128::from(len) * 8_000_000_000 / u128::from(self.rate);
        let next = now.saturating_add(Span::from_nanos(u64::try_from(gap).unwrap_or(u64::MAX).max(1)));
        let next = if next < self.on_until { next } else { self.turn_on(next) };
        (len, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::{Purpose, stream};

    const SECOND: Span = Span::from_secs(1);

    /// A source's mean rate and mean packet over so many seconds, and how long it was silent at the longest.
    fn watched(seconds: u64, on: Times, off: Times) -> (f64, f64, Span) {
        let rng = stream(3, Purpose::Background, 0);
        let mut source = UdpSource::new(1_000_000, 1000, 1500, (SECOND / 10, on), (SECOND / 10, off), rng);
        let mut at = source.start(Time::ZERO);
        let (mut bytes, mut packets, mut silent) = (0u64, 0u64, Span::ZERO);
        while at < Time::ZERO + seconds * SECOND {
            let (len, next) = source.send(at);
            assert!((64..=1500).contains(&len));
            assert!(next > at);
            bytes += u64::from(len);
            packets += 1;
            silent = silent.max(next - at);
            at = next;
        }
        (bytes as f64 * 8.0 / seconds as f64, bytes as f64 / packets as f64, silent)
    }

    #[test]
    fn sends_its_rate_while_on_and_its_share_over_all() {
        let (rate, mean, _) = watched(2000, Times::Pareto, Times::Exponential);
        // On half of the time; the on times' variance is infinite, so the tolerance is wide.
        assert!((rate - 500_000.0).abs() < 75_000.0, "{rate}");
        // Mean of the clipped exponential: 64 + 1000 (exp(-0.064) - exp(-1.5)).
        let expected = 64.0 + 1000.0 * (libm::exp(-0.064) - libm::exp(-1.5));
        assert!((mean - expected).abs() < 10.0, "{mean} {expected}");
    }

    #[test]
    fn times_are_distributed_as_asked() {
        // Of some 10,000 exponential silences of 0.1 s the longest is about 0.1 ln(10,000) = 0.9 s; of Pareto
        // ones of shape 1.5 about 0.033 * 10,000^(2/3) = 15 s.
        let (rate, _, silent) = watched(2000, Times::Exponential, Times::Exponential);
        assert!((rate - 500_000.0).abs() < 20_000.0, "{rate}");
        assert!((SECOND / 2..2 * SECOND).contains(&silent), "{silent}");
        let (_, _, silent) = watched(2000, Times::Exponential, Times::Pareto);
        assert!(silent > 3 * SECOND, "{silent}");
    }
}
