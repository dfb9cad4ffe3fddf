//! UDP on/off sources: packets at a constant rate while on, nothing while off.
//!
//! On times are Pareto of shape 1.5 and off times exponential, as in blest-2016; packet sizes are exponential,
//! clipped to what a link carries. Nobody answers.

use rand_pcg::Pcg64;

use crate::Nanos;
use crate::entropy::{exponential, pareto};

/// Shape of the on times' distribution.
const SHAPE: f64 = 1.5;
/// Least packet, bytes.
const LEAST: f64 = 64.0;

/// One source.
#[derive(Debug)]
pub(crate) struct UdpSource {
    rate: u64,
    mean_packet: f64,
    mtu: f64,
    on: f64,
    off: f64,
    on_until: Nanos,
    rng: Pcg64,
}

impl UdpSource {
    /// `rate` bits per second while on, of packets of `mean_packet` bytes; mean times on and off.
    pub(crate) fn new(rate: u64, mean_packet: u32, mtu: u32, on: Nanos, off: Nanos, rng: Pcg64) -> Self {
        UdpSource {
            rate: rate.max(1),
            mean_packet: f64::from(mean_packet),
            mtu: f64::from(mtu).max(LEAST),
            on: on as f64,
            off: off as f64,
            on_until: 0,
            rng,
        }
    }

    /// When to send first, having started at `now`: sources start off, so that many don't start as one.
    pub(crate) fn start(&mut self, now: Nanos) -> Nanos {
        self.turn_on(now)
    }

    fn turn_on(&mut self, now: Nanos) -> Nanos {
        // At least a nanosecond, so that time moves whatever the means are.
        let begin = now.saturating_add((exponential(&mut self.rng, self.off) as Nanos).max(1));
        self.on_until = begin.saturating_add(pareto(&mut self.rng, self.on, SHAPE) as Nanos);
        begin
    }

    /// Sends at `now`: the packet's length, and when to send next.
    pub(crate) fn send(&mut self, now: Nanos) -> (u32, Nanos) {
        let len = exponential(&mut self.rng, self.mean_packet).clamp(LEAST, self.mtu) as u32;
        let gap = u128::from(len) * 8_000_000_000 / u128::from(self.rate);
        let next = now.saturating_add(u64::try_from(gap).unwrap_or(u64::MAX).max(1));
        let next = if next < self.on_until { next } else { self.turn_on(next) };
        (len, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::{Purpose, stream};

    #[test]
    fn sends_its_rate_while_on_and_its_share_over_all() {
        let second = 1_000_000_000;
        let rng = stream(3, Purpose::Background, 0);
        let mut source = UdpSource::new(1_000_000, 1000, 1500, second / 10, second / 10, rng);
        let mut at = source.start(0);
        let mut bytes = 0u64;
        let mut packets = 0u64;
        while at < 2000 * second {
            let (len, next) = source.send(at);
            assert!((64..=1500).contains(&len));
            assert!(next > at);
            bytes += u64::from(len);
            packets += 1;
            at = next;
        }
        // On half of the time; the on times' variance is infinite, so the tolerance is wide.
        let rate = bytes as f64 * 8.0 / 2000.0;
        assert!((rate - 500_000.0).abs() < 75_000.0, "{rate}");
        // Mean of the clipped exponential: 64 + 1000 (exp(-0.064) - exp(-1.5)).
        let mean = bytes as f64 / packets as f64;
        let expected = 64.0 + 1000.0 * (libm::exp(-0.064) - libm::exp(-1.5));
        assert!((mean - expected).abs() < 10.0, "{mean} {expected}");
    }
}
