//! A link's rate from the spacing of ACKs: a bottleneck spaces the packets of a train, and so their ACKs. Estimated only for
//! schedulers that ask for it ([`Scheduler::wants_link_rate`](crate::scheduler::Scheduler::wants_link_rate)).

use crate::Nanos;
use crate::metrics::SubflowMetrics;

/// ACKs of so many segments make one sample.
const SAMPLE_SEGMENTS: u32 = 8;

/// ACKs are a train's if they took so much longer than their segments took to leave: then the link spaced them.
const TRAIN: f64 = 1.25;

/// Segments of an initial window. A sender that sends fewer in a round trip says little of the link.
const INITIAL_WINDOW: f64 = 10.0;

/// The estimator of one subflow. The estimate itself is [`link_byte_time`](crate::metrics::RateMetrics::link_byte_time).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LinkRate {
    /// Whether a train stands behind the estimate.
    sampled: bool,
    /// When the sample under way began, and the segments that were acknowledged since.
    began: Nanos,
    segments: u32,
    /// When the segment left whose ACK began it.
    sent: Nanos,
}

impl LinkRate {
    /// Begins a sample.
    #[inline]
    fn begin(&mut self, flow: &SubflowMetrics, now: Nanos) {
        (self.began, self.segments) = (now, 0);
        self.sent = now.saturating_sub(flow.rtt.latest);
    }

    /// ACKs of `segments` arrived. The first estimate is that of a train: where the sender made the gaps, the link is at least as fast.
    /// Below the rate that is known, a sample counts only if a queue has kept the link busy: the latest round trip then is
    /// longer than the least.
    #[inline]
    pub fn on_acked(&mut self, flow: &mut SubflowMetrics, now: Nanos, segments: u32) {
        if flow.packets_out == 0 {
            // A pause follows, which says nothing of the link.
            (self.began, self.segments) = (0, 0);
            return;
        }
        if self.began == 0 || segments > SAMPLE_SEGMENTS {
            self.begin(flow, now);
            return;
        }
        self.segments += segments;
        let whole = self.segments >= SAMPLE_SEGMENTS;
        if !whole && self.sampled {
            return;
        }
        let took = now.saturating_sub(self.began) as f64;
        let leaving = now.saturating_sub(flow.rtt.latest).saturating_sub(self.sent) as f64;
        let mss = f64::from(flow.mss);
        let sample = took / (f64::from(self.segments) * mss);
        if whole {
            self.begin(flow, now);
        }
        if took <= 0.0 {
            return;
        }
        let busy = flow.rtt.latest > flow.rtt.min + flow.rtt.min / 4;
        let known = flow.rate.link_byte_time;
        if self.sampled {
            if sample < known {
                flow.rate.link_byte_time += (sample - known) / 2.0;
            } else if busy {
                flow.rate.link_byte_time += (sample - known) / 4.0;
            }
        } else if took > TRAIN * leaving {
            // The first train is used while it lasts.
            flow.rate.link_byte_time = sample;
            self.sampled = whole;
        } else if sample < flow.rtt.smoothed as f64 / (INITIAL_WINDOW * mss)
            && (known == 0.0 || sample < known)
        {
            flow.rate.link_byte_time = sample;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::LinkRate;
    use crate::metrics::SubflowMetrics;
    use crate::scheduler::testing::{MSS, subflow};
    use crate::{MILLISECOND, Nanos};

    /// ACKs of one segment each, so far apart, the segments having left at the same gaps. Returns nanoseconds per segment of
    /// [`MSS`] bytes.
    fn paced(rate: &mut LinkRate, flow: &mut SubflowMetrics, from: Nanos, gap: Nanos, count: u64) -> f64 {
        for ack in 0..count {
            rate.on_acked(flow, (from + ack * gap) * MILLISECOND, 1);
        }
        flow.rate.link_byte_time * f64::from(MSS)
    }

    /// The same of segments that left together.
    fn train(rate: &mut LinkRate, flow: &mut SubflowMetrics, from: Nanos, gap: Nanos, count: u64) -> f64 {
        let known = flow.rtt.latest;
        for ack in 0..count {
            flow.rtt.latest = known + ack * gap * MILLISECOND;
            paced(rate, flow, from + ack * gap, 0, 1);
        }
        flow.rtt.latest = known;
        flow.rate.link_byte_time * f64::from(MSS)
    }

    #[test]
    fn the_rate_is_the_spacing_of_acks() {
        let (mut rate, mut flow) = (LinkRate::default(), subflow(0, 20, 10, 10));
        assert_eq!(flow.link_rate(), None);
        assert_eq!(train(&mut rate, &mut flow, 100, 1, 9), 1e6, "a segment per millisecond");
        assert_eq!(flow.link_rate(), Some(1_000_000));
    }

    #[test]
    fn a_pause_is_no_sample() {
        let (mut rate, mut flow) = (LinkRate::default(), subflow(0, 20, 10, 10));
        let mut exchange = |from: u64| {
            flow.packets_out = 2;
            train(&mut rate, &mut flow, from, 1, 2);
            flow.packets_out = 0;
            train(&mut rate, &mut flow, from + 2, 1, 1)
        };
        exchange(100);
        assert_eq!(exchange(300), 1e6);
    }

    #[test]
    fn gaps_that_the_sender_made_are_no_train() {
        let (mut rate, mut flow) = (LinkRate::default(), subflow(0, 20, 10, 10));
        assert_eq!(
            paced(&mut rate, &mut flow, 100, 3, 9),
            0.0,
            "slower than an initial window in a round trip"
        );
        assert_eq!(paced(&mut rate, &mut flow, 200, 1, 9), 1e6, "the link is at least as fast");
        assert_eq!(paced(&mut rate, &mut flow, 300, 2, 9), 1e6, "which a slower one doesn't change");
        let trained = train(&mut rate, &mut flow, 400, 4, 17);
        assert_eq!(trained, 4e6, "but a train does");
    }

    #[test]
    fn a_slower_sample_counts_only_while_there_is_a_queue() {
        let (mut rate, mut flow) = (LinkRate::default(), subflow(0, 20, 10, 10));
        let known = train(&mut rate, &mut flow, 99, 1, 9);
        assert_eq!(paced(&mut rate, &mut flow, 111, 4, 8), known, "no queue: the sender was slow");
        flow.rtt.latest = 2 * flow.rtt.min;
        assert!(paced(&mut rate, &mut flow, 143, 4, 8) > known, "a queue: the link is slow");
        flow.rtt.latest = flow.rtt.min;
        let slow = flow.rate.link_byte_time;
        paced(&mut rate, &mut flow, 172, 1, 8);
        assert!(flow.rate.link_byte_time < slow, "a faster sample always counts");
    }

    #[test]
    fn acks_of_many_segments_at_once_are_no_train() {
        let (mut rate, mut flow) = (LinkRate::default(), subflow(0, 20, 40, 40));
        for ack in 0..9 {
            rate.on_acked(&mut flow, (100 + ack) * MILLISECOND, 9);
        }
        assert_eq!(flow.link_rate(), None);
    }
}
