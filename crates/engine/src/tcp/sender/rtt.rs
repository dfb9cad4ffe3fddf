//! Round-trip time and retransmission timeout (RFC 6298), with Linux's bounds: RTO = srtt + max(min_rto, 4
//! rttvar).

use ropewalk_wire::{Payload, Segment};

use crate::config::RtoConfig;
use crate::metrics::SubflowMetrics;
use crate::tcp::common::Common;
use crate::tcp::context::Context;
use crate::{MILLISECOND, Span, Time};

/// How long the least round-trip time is remembered: Linux's `tcp_min_rtt_wlen`.
const MIN_RTT_WINDOW: Span = Span::from_secs(300);

/// State of the estimator beside the numbers in [`SubflowMetrics`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RttEstimator {
    min_rtt_at: Time,
}

impl RttEstimator {
    /// Takes a sample. `rtt` is that of the first segment that an ACK covers: it includes the delay of the
    /// ACK, and counts for the timeout. `last` is that of the last, without the delay: it counts for the
    /// least round-trip time (both as in Linux).
    pub fn sample(
        &mut self,
        metrics: &mut SubflowMetrics,
        config: &RtoConfig,
        now: Time,
        rtt: Span,
        last: Span,
    ) {
        let (rtt, last) = (ticks(config, now, rtt), ticks(config, now, last));
        metrics.rtt.latest = last;
        metrics.rtt.samples = metrics.rtt.samples.saturating_add(1);
        metrics.rtt.max = metrics.rtt.max.max(rtt);
        //= RFC 8985 6.2-a
        // An equal sample counts as well: it renews the time, so that a steady path isn't forgotten.
        if metrics.rtt.min == Span::ZERO || last <= metrics.rtt.min || now > self.min_rtt_at + MIN_RTT_WINDOW
        {
            metrics.rtt.min = last;
            self.min_rtt_at = now;
        }
        if metrics.rtt.smoothed == Span::ZERO {
            //= RFC 6298 2-b
            metrics.rtt.smoothed = rtt;
            metrics.rtt.var = rtt / 2;
        } else {
            //= RFC 6298 2-c
            // RFC 6298 2.3: alpha = 1/8, beta = 1/4; rttvar first, with the old srtt.
            let error = metrics.rtt.smoothed.abs_diff(rtt);
            metrics.rtt.var = metrics.rtt.var - metrics.rtt.var / 4 + error / 4;
            metrics.rtt.smoothed = metrics.rtt.smoothed - metrics.rtt.smoothed / 8 + rtt / 8;
        }
        metrics.rto = (metrics.rtt.smoothed + config.min.max(4 * metrics.rtt.var)).min(config.max);
    }
}

/// A round-trip time that ends at `now`, as a clock with the host's tick has it: at least one tick.
fn ticks(config: &RtoConfig, now: Time, rtt: Span) -> Span {
    let tick = config.rtt_tick;
    let count = |time: Time| time.since_origin().checked_div(tick);
    match (count(now), count(now.saturating_back(rtt))) {
        (Some(end), Some(start)) => (end - start).max(1) * tick,
        _ => rtt.max(Span::from_nanos(1)),
    }
}

/// The timestamp that a segment echoes. 0 is none, as in Linux: some hosts send it where they have none to
/// echo.
pub(super) fn echo<P>(common: &Common, segment: &Segment<P>) -> Option<u32> {
    let stamp = segment.timestamps.filter(|stamp| common.negotiated.timestamps && stamp.echo != 0)?;
    Some(stamp.echo)
}

/// The round-trip time by the timestamp that the segment echoes (RFC 7323 4); its clock ticks in
/// milliseconds.
#[inline(never)]
pub fn timestamp_rtt<P: Payload>(common: &Common, cx: &Context<'_>, segment: &Segment<P>) -> Option<Span> {
    let ticks = cx.timestamp().wrapping_sub(echo(common, segment)?);
    // An echo from the future, or 17 minutes old, isn't ours: the difference wraps, or is beyond any timeout.
    (ticks < 1 << 20).then(|| u64::from(ticks.max(1)) * MILLISECOND)
}

#[cfg(test)]
mod tests {
    use super::{MIN_RTT_WINDOW, RttEstimator};
    use crate::config::RtoConfig;
    use crate::metrics::SubflowMetrics;
    use crate::{MILLISECOND, PathId, Span, SubflowId, Time};

    //= test RFC 6298 2-b 2-c
    #[test]
    fn the_first_sample_and_the_next_follow_rfc_6298() {
        let mut metrics = SubflowMetrics::new(SubflowId(0), PathId(0));
        let (mut rtt, config) = (RttEstimator::default(), RtoConfig::default());
        rtt.sample(&mut metrics, &config, Time::ZERO, 80 * MILLISECOND, 80 * MILLISECOND);
        assert_eq!((metrics.rtt.smoothed, metrics.rtt.var), (80 * MILLISECOND, 40 * MILLISECOND));
        assert_eq!(metrics.rto, 280 * MILLISECOND, "80 + max(200, 4 x 40)");
        rtt.sample(&mut metrics, &config, Time::from_nanos(1), 160 * MILLISECOND, 160 * MILLISECOND);
        assert_eq!((metrics.rtt.smoothed, metrics.rtt.var), (90 * MILLISECOND, 50 * MILLISECOND));
        assert_eq!(metrics.rto, 290 * MILLISECOND);
        assert_eq!((metrics.rtt.min, metrics.rtt.max), (80 * MILLISECOND, 160 * MILLISECOND));
    }

    /// Linux before 3.15 took samples in jiffies, and none was below one.
    #[test]
    fn with_a_tick_a_sample_is_the_number_of_ticks_between_and_at_least_one() {
        let config = RtoConfig { rtt_tick: 4 * MILLISECOND, ..RtoConfig::default() };
        for (now, rtt, taken) in [(1, 0, 4), (9, 2, 4), (9, 1, 4), (10, 7, 8), (11, 7, 4), (100, 40, 40)] {
            let mut metrics = SubflowMetrics::new(SubflowId(0), PathId(0));
            let (now, rtt) = (Time::ZERO + now * MILLISECOND, rtt * MILLISECOND);
            RttEstimator::default().sample(&mut metrics, &config, now, rtt, rtt);
            assert_eq!(metrics.rtt.smoothed, taken * MILLISECOND, "{rtt} until {now}");
        }
    }

    #[test]
    fn the_least_round_trip_time_is_forgotten_after_five_minutes() {
        let mut metrics = SubflowMetrics::new(SubflowId(0), PathId(0));
        let (mut rtt, config) = (RttEstimator::default(), RtoConfig::default());
        let mut least_after = |now, sample| {
            let sample = Span::from_nanos(sample);
            rtt.sample(&mut metrics, &config, now, sample, sample);
            metrics.rtt.min.as_nanos()
        };
        let start = Time::from_nanos(5);
        assert_eq!(least_after(start, 80), 80);
        assert_eq!(least_after(start + MIN_RTT_WINDOW, 90), 80);
        assert_eq!(least_after(start + MIN_RTT_WINDOW + Span::from_nanos(1), 90), 90);
        assert_eq!(least_after(start + MIN_RTT_WINDOW + Span::from_nanos(2), 85), 85);
    }
}
