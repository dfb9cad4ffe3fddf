//! Delivery-rate samples (draft-cheng-iccrg-delivery-rate-estimation; Linux's `tcp_rate.c`): per ACK, how
//! much was delivered between the sending of the latest segment that it acknowledges and now, over the longer
//! of the time that sending took and the time that its ACKs took. A sample is application-limited when the
//! subflow had a window but no data; such a sample counts only if it is higher than what is known.

use crate::metrics::SubflowMetrics;
use crate::{SECOND, Span, Time};

/// The times from which a segment's delivery-rate sample counts, kept with the segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Stamp {
    /// P.delivered_time.
    pub delivered_at: Time,
    /// P.first_sent_time: when the flight that it belongs to began.
    pub first_sent_at: Time,
}

/// How many segments were delivered, in flight and lost when a segment was sent, kept with the segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Flight {
    /// P.delivered of the delivery-rate sample, segments; its low 32 bits.
    pub delivered: u32,
    /// P.tx_in_flight of the sample, segments.
    pub in_flight: u32,
    /// P.lost of the sample, segments; its low 16 bits.
    pub lost: u16,
}

impl Flight {
    /// The subflow's counts at this moment.
    #[inline]
    pub fn of(metrics: &SubflowMetrics) -> Self {
        Flight {
            delivered: metrics.totals.delivered as u32,
            in_flight: metrics.in_flight(),
            lost: metrics.totals.lost as u16,
        }
    }

    /// Segments delivered since.
    #[inline]
    pub fn delivered_since(self, metrics: &SubflowMetrics) -> u64 {
        u64::from((metrics.totals.delivered as u32).wrapping_sub(self.delivered))
    }

    /// Segments judged lost since.
    pub fn lost_since(self, metrics: &SubflowMetrics) -> u32 {
        u32::from((metrics.totals.lost as u16).wrapping_sub(self.lost))
    }
}

/// A connection's state, by the draft's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RateState {
    /// C.delivered_time.
    delivered_at: Time,
    /// C.first_sent_time.
    first_sent_at: Time,
    /// C.app_limited: what must be delivered until the application-limited phase is over; 0: there is none.
    app_limited: u64,
    /// Segments delivered when the present round trip began.
    round_begin: u64,
}

/// The segment sent last among those that one ACK delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sample {
    sent_at: Time,
    end: u64,
    pub stamp: Stamp,
    pub app_limited: bool,
    pub flight: Flight,
}

impl Sample {
    /// A segment sent at `sent_at` was delivered. Those of one ACK are taken in order of position.
    #[inline]
    pub fn take(&mut self, sent_at: Time, end: u64, stamp: Stamp, app_limited: bool, flight: Flight) {
        // Of a burst sent at one instant the last position was sent last.
        if sent_at >= self.sent_at {
            *self = Sample { sent_at, end, stamp, app_limited, flight };
        }
    }
}

impl RateState {
    pub fn new(now: Time) -> Self {
        RateState { delivered_at: now, first_sent_at: now, app_limited: 0, round_begin: 0 }
    }

    /// The stamp of a segment that is sent now; `idle`: nothing was in flight.
    #[inline]
    pub fn on_sent(&mut self, now: Time, idle: bool) -> Stamp {
        // Nothing was in flight that could clock the sample: its time starts with this transmission.
        if idle {
            self.first_sent_at = now;
            self.delivered_at = now;
        }
        Stamp { delivered_at: self.delivered_at, first_sent_at: self.first_sent_at }
    }

    /// Whether the rate is limited by the application.
    #[inline]
    pub fn is_app_limited(&self) -> bool {
        self.app_limited != 0
    }

    /// The window has room and there is nothing to send.
    #[inline]
    pub fn on_app_limited(&mut self, metrics: &SubflowMetrics) {
        // At least 1, since 0 says that there is no such phase.
        self.app_limited = (metrics.totals.delivered + u64::from(metrics.in_flight())).max(1);
    }

    /// An ACK delivered `sample` last; `metrics.delivered` counts it already. Returns whether a round trip
    /// begins with it, and the rate in bytes per second, 0 if there is none.
    #[inline]
    pub fn on_delivered(&mut self, metrics: &mut SubflowMetrics, now: Time, sample: &Sample) -> (bool, u64) {
        if self.app_limited != 0 && metrics.totals.delivered > self.app_limited {
            self.app_limited = 0;
        }
        // The send time of later samples counts from here, so that it spans one flight only.
        self.first_sent_at = sample.sent_at;
        self.delivered_at = now;
        let send_elapsed = sample.sent_at.saturating_sub(sample.stamp.first_sent_at);
        let ack_elapsed = now.saturating_sub(sample.stamp.delivered_at);
        let interval = send_elapsed.max(ack_elapsed);
        let segments = sample.flight.delivered_since(metrics);
        let mut rate = 0;
        // An interval shorter than the least round-trip time is an artefact of ACK compression.
        if interval > Span::ZERO && interval >= metrics.rtt.min {
            rate = SECOND.saturating_mul(segments * u64::from(metrics.mss)) / interval;
            if !sample.app_limited || rate >= metrics.rate.delivery {
                metrics.rate.delivery = rate;
            }
        }
        let round = metrics.totals.delivered - segments >= self.round_begin;
        if round {
            self.round_begin = metrics.totals.delivered;
        }
        (round, rate)
    }
}

#[cfg(test)]
mod tests {
    use super::{Flight, RateState, Sample};
    use crate::metrics::SubflowMetrics;
    use crate::testing::WithoutSender as _;
    use crate::{MILLISECOND, PathId, SubflowId, Time};

    fn metrics() -> SubflowMetrics {
        let mut metrics = SubflowMetrics::new(SubflowId(0), PathId(0));
        (metrics.mss, metrics.rtt.min) = (1000, 20 * MILLISECOND);
        metrics
    }

    /// A segment keeps the count of delivered segments modulo 2^32.
    #[test]
    fn the_segments_delivered_since_are_right_when_the_kept_count_wraps() {
        let mut metrics = metrics();
        metrics.totals.delivered = u64::from(u32::MAX) - 1;
        metrics.set_packets_out(7);
        let flight = Flight::of(&metrics);
        metrics.totals.delivered += 5;
        assert_eq!((flight.delivered_since(&metrics), flight.in_flight), (5, 7));
        let (mut state, mut sample) = (RateState::new(Time::ZERO), Sample::default());
        sample.take(Time::ZERO, 1000, state.on_sent(Time::ZERO, true), false, flight);
        assert_eq!(state.on_delivered(&mut metrics, Time::ZERO + 20 * MILLISECOND, &sample), (true, 250_000));
        assert!(
            !state.on_delivered(&mut metrics, Time::ZERO + 40 * MILLISECOND, &sample).0,
            "the round began with the first"
        );
    }

    /// Ten segments sent at once are acknowledged one per millisecond, after 20 ms: the rate is what was
    /// delivered over the time since they left.
    #[test]
    fn a_burst_is_measured_by_its_acknowledgements() {
        let (mut metrics, mut state) = (metrics(), RateState::new(Time::ZERO));
        let stamps: Vec<_> = (0..10).map(|n| state.on_sent(Time::ZERO, n == 0)).collect();
        let flight = Flight::of(&metrics);
        for (n, stamp) in stamps.into_iter().enumerate() {
            let now = Time::ZERO + (20 + n as u64) * MILLISECOND;
            metrics.totals.delivered += 1;
            let mut sample = Sample::default();
            sample.take(Time::ZERO, 1000 * (n as u64 + 1), stamp, false, flight);
            assert_eq!(state.on_delivered(&mut metrics, now, &sample).0, n == 0, "one round trip");
            assert_eq!(metrics.rate.delivery, (n as u64 + 1) * 1000 * 1000 / (20 + n as u64));
        }
    }

    /// ACKs that come together say nothing of the network's rate: the time that sending took does.
    #[test]
    fn compressed_acks_are_measured_by_the_sending() {
        let (mut metrics, mut state) = (metrics(), RateState::new(Time::ZERO));
        let stamps: Vec<_> =
            (0..31u64).map(|n| state.on_sent(Time::ZERO + n * MILLISECOND, n == 0)).collect();
        let mut sample = Sample::default();
        for (n, stamp) in stamps.into_iter().enumerate() {
            sample.take(
                Time::ZERO + n as u64 * MILLISECOND,
                1000 * (n as u64 + 1),
                stamp,
                false,
                Flight::default(),
            );
        }
        metrics.totals.delivered += 31;
        state.on_delivered(&mut metrics, Time::ZERO + 50 * MILLISECOND, &sample);
        assert_eq!(metrics.rate.delivery, 31 * 1000 * 1000 / 50);
    }

    #[test]
    fn an_application_limited_sample_only_raises_the_rate_until_the_gap_is_past() {
        let (mut metrics, mut state) = (metrics(), RateState::new(Time::ZERO));
        metrics.rate.delivery = 1_000_000;
        state.on_app_limited(&metrics);
        assert!(state.is_app_limited());
        let stamp = state.on_sent(Time::ZERO, true);
        let mut sample = Sample::default();
        sample.take(Time::ZERO, 1000, stamp, true, Flight::default());
        metrics.totals.delivered = 1;
        state.on_delivered(&mut metrics, Time::ZERO + 20 * MILLISECOND, &sample);
        assert_eq!(metrics.rate.delivery, 1_000_000);
        metrics.totals.delivered = 2;
        state.on_delivered(&mut metrics, Time::ZERO + 20 * MILLISECOND, &sample);
        assert!(!state.is_app_limited());
        let mut sample = Sample::default();
        sample.take(Time::ZERO, 1000, stamp, false, Flight::default());
        state.on_delivered(&mut metrics, Time::ZERO + 40 * MILLISECOND, &sample);
        assert_eq!(metrics.rate.delivery, 50_000);
    }
}
