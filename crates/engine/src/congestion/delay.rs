//! Round-trip times for the delay-based controls: the minimum so far, and the samples of one round trip.

use super::Ack;
use crate::Span;

/// Least samples in a round trip to judge its delay. Two may both include delayed ACKs (Linux's `tcp_vegas`,
/// which follows Reno then).
const LEAST_SAMPLES: u32 = 3;

/// Round-trip times of one round trip. In whole nanoseconds, so that a backlog of exactly a threshold
/// compares equal.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct RoundTrip {
    /// Minimum round-trip time since the start or the last restart: presumably without queueing.
    pub(super) base: Span,
    /// Least of the round trip's samples.
    pub(super) least: Span,
    /// Mean of the round trip's samples.
    pub(super) mean: Span,
}

/// The end of a round trip.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Round {
    /// The round trip goes on.
    Running,
    /// The round trip ended with too few samples.
    Unmeasured,
    /// The round trip ended.
    Measured(RoundTrip),
}

/// The samples of the current round trip, and the minimum.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Delay {
    base: Option<Span>,
    least: Span,
    sum: Span,
    samples: u32,
}

impl Delay {
    /// Adds an ACK's sample; returns the result of the round trip that ends with it. The ACK that starts a
    /// round trip acknowledges data sent in that round trip, so its sample belongs to it.
    pub(super) fn on_ack(&mut self, ack: &Ack) -> Round {
        let mut round = Round::Running;
        if ack.round_start {
            round = match self.base {
                Some(base) if self.samples >= LEAST_SAMPLES => Round::Measured(RoundTrip {
                    base,
                    least: self.least,
                    mean: self.sum / u64::from(self.samples),
                }),
                _ => Round::Unmeasured,
            };
            self.forget_round();
        }
        if let Some(rtt) = ack.rtt {
            self.base = Some(self.base.map_or(rtt, |base| base.min(rtt)));
            self.least = if self.samples == 0 { rtt } else { self.least.min(rtt) };
            self.sum = self.sum.saturating_add(rtt);
            self.samples = self.samples.saturating_add(1);
        }
        round
    }

    /// Drops the samples of the current round trip, after a loss.
    pub(super) fn forget_round(&mut self) {
        self.least = Span::ZERO;
        self.sum = Span::ZERO;
        self.samples = 0;
    }

    /// Measures everything again: the path may have changed.
    pub(super) fn restart(&mut self) {
        *self = Delay::default();
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::ack;
    use super::*;
    use crate::MILLISECOND;

    fn sampled(ms: u64, round_start: bool) -> Ack {
        Ack { rtt: Some(ms * MILLISECOND), round_start, ..ack(1) }
    }

    #[test]
    fn a_round_trip_has_its_own_samples_and_the_least_of_all() {
        let mut delay = Delay::default();
        assert_eq!(delay.on_ack(&sampled(50, true)), Round::Unmeasured);
        for ms in [60, 70, 80] {
            assert_eq!(delay.on_ack(&sampled(ms, false)), Round::Running);
        }
        // 50, 60, 70, 80; the ACK that ends the round trip belongs to the next.
        let Round::Measured(first) = delay.on_ack(&sampled(90, true)) else { panic!() };
        assert_eq!(first.base, 50 * MILLISECOND);
        assert_eq!(first.least, 50 * MILLISECOND);
        assert_eq!(first.mean, 65 * MILLISECOND);
        delay.on_ack(&sampled(100, false));
        delay.on_ack(&sampled(80, false));
        let Round::Measured(second) = delay.on_ack(&sampled(1, true)) else { panic!() };
        assert_eq!(second.base, 50 * MILLISECOND);
        assert_eq!(second.least, 80 * MILLISECOND);
        assert_eq!(second.mean, 90 * MILLISECOND);
    }

    #[test]
    fn two_samples_are_too_few() {
        let mut delay = Delay::default();
        delay.on_ack(&sampled(50, true));
        delay.on_ack(&sampled(50, false));
        delay.on_ack(&Ack { rtt: None, ..ack(1) });
        assert_eq!(delay.on_ack(&sampled(50, true)), Round::Unmeasured);
        delay.on_ack(&sampled(50, false));
        delay.on_ack(&sampled(50, false));
        assert!(matches!(delay.on_ack(&sampled(50, true)), Round::Measured(_)));
    }

    #[test]
    fn a_loss_forgets_the_round_trip_and_a_restart_everything() {
        let mut delay = Delay::default();
        for _ in 0..5 {
            delay.on_ack(&sampled(50, false));
        }
        delay.forget_round();
        assert_eq!(delay.on_ack(&sampled(60, true)), Round::Unmeasured);
        delay.on_ack(&sampled(60, false));
        delay.on_ack(&sampled(60, false));
        let Round::Measured(round) = delay.on_ack(&sampled(60, true)) else { panic!() };
        assert_eq!(round.base, 50 * MILLISECOND);
        delay.restart();
        for _ in 0..3 {
            delay.on_ack(&sampled(60, false));
        }
        let Round::Measured(round) = delay.on_ack(&sampled(60, true)) else { panic!() };
        assert_eq!(round.base, 60 * MILLISECOND);
    }
}
