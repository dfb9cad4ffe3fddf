//! Pacing of a subflow whose congestion control is model-based (draft-ietf-ccwg-bbr 5.6.2, 5.6.3; Linux's
//! internal pacing): what a millisecond sends leaves at once, two segments at least, and the next when the
//! pacing rate has had time for it.

use ropewalk_wire::Payload;

use super::Sender;
use crate::metrics::SubflowMetrics;
use crate::tcp::common::Common;
use crate::tcp::context::Context;
use crate::tcp::timer::Timer;
use crate::{SECOND, Span, Time};

/// When what may leave.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pacer {
    /// C.next_send_time: the next quantum leaves then.
    next_at: Time,
    /// When the present quantum was opened, and how many of its segments are left.
    opened_at: Time,
    quantum: u32,
    /// How late it was opened.
    late: Span,
}

impl Pacer {
    /// How many segments may leave now.
    fn admits(&mut self, metrics: &SubflowMetrics, now: Time) -> u32 {
        if now < self.next_at {
            // The rest of a quantum leaves at the instant at which it was opened, or waits for the next.
            return if now == self.opened_at { self.quantum } else { 0 };
        }
        self.late = now - self.next_at;
        (self.opened_at, self.next_at) = (now, now);
        self.quantum = metrics.tso_segments().min(u64::from(u32::MAX)) as u32;
        self.quantum
    }

    /// Data was sent. A late quantum makes up for at most half of its own time, as in Linux.
    fn on_sent(&mut self, metrics: &SubflowMetrics, segments: u32, bytes: usize) {
        let Some(rate) = (metrics.rate.pacing > 0).then_some(u128::from(metrics.rate.pacing)) else { return };
        let second = u128::from(SECOND.as_nanos());
        // However low the rate is, the next quantum leaves within a second.
        let delay = Span::from_nanos((bytes as u128 * second / rate).min(second) as u64);
        let credit = std::mem::take(&mut self.late).min(delay / 2);
        self.next_at = self.next_at.saturating_add(delay - credit);
        self.quantum = self.quantum.saturating_sub(segments);
    }
}

impl<P: Payload> Sender<P> {
    /// How many segments of `max_segments` the pacing rate admits now. If none, arms the timer.
    #[cold]
    #[inline(never)]
    pub(super) fn pace(&mut self, common: &mut Common, cx: &Context<'_>, max_segments: u32) -> u32 {
        let Some(pacer) = &mut self.pacer else { return max_segments };
        let admitted = pacer.admits(cx.metrics, cx.now).min(max_segments);
        if admitted == 0 {
            common.timers.set(Timer::Pace, pacer.next_at);
        }
        admitted
    }

    /// Paced data was sent.
    #[cold]
    #[inline(never)]
    pub(super) fn on_paced(&mut self, cx: &Context<'_>, segments: u32, bytes: usize) {
        if let Some(pacer) = &mut self.pacer {
            pacer.on_sent(cx.metrics, segments, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pacer;
    use crate::metrics::SubflowMetrics;
    use crate::{MILLISECOND, PathId, SubflowId, Time};

    /// Two segments of 1000 bytes take 2 ms.
    fn metrics() -> SubflowMetrics {
        let mut metrics = SubflowMetrics::new(SubflowId(0), PathId(0));
        (metrics.mss, metrics.rate.pacing) = (1000, 1_000_000);
        metrics
    }

    /// Sends what it may at each of these times, ms.
    fn sent(pacer: &mut Pacer, metrics: &SubflowMetrics, times: &[u64]) -> Vec<u32> {
        let send = |ms: &u64| {
            let segments = pacer.admits(metrics, Time::ZERO + *ms * MILLISECOND);
            for _ in 0..segments {
                pacer.on_sent(metrics, 1, 1000);
            }
            assert_eq!(pacer.admits(metrics, Time::ZERO + *ms * MILLISECOND), 0, "the quantum is used up");
            segments
        };
        times.iter().map(send).collect()
    }

    #[test]
    fn a_quantum_leaves_when_the_one_before_has_had_its_time() {
        let mut pacer = Pacer::default();
        assert_eq!(sent(&mut pacer, &metrics(), &[0, 1, 2, 3, 4, 5]), [2, 0, 2, 0, 2, 0]);
    }

    #[test]
    fn a_late_timer_is_made_up_for_but_not_an_idle_time() {
        let mut pacer = Pacer::default();
        // Due at 2, opened at 3: half a segment's time less, and the next is due at 4.5.
        assert_eq!(sent(&mut pacer, &metrics(), &[0, 3, 4, 5]), [2, 2, 0, 2]);
        let mut pacer = Pacer::default();
        assert_eq!(sent(&mut pacer, &metrics(), &[0, 500, 501, 502]), [2, 2, 0, 2]);
    }

    #[test]
    fn more_leaves_at_once_at_a_higher_rate() {
        let mut metrics = metrics();
        metrics.rate.pacing = 10_000 << 10;
        let mut pacer = Pacer::default();
        assert_eq!(pacer.admits(&metrics, Time::ZERO), 10, "a millisecond's");
    }

    #[test]
    fn without_a_rate_nothing_is_held_back() {
        let mut metrics = metrics();
        metrics.rate.pacing = 0;
        let mut pacer = Pacer::default();
        for _ in 0..10 {
            assert!(pacer.admits(&metrics, Time::from_nanos(7)) > 0);
            pacer.on_sent(&metrics, 2, 2000);
        }
    }
}
