//! A link's rate from the spacing of ACKs: a bottleneck spaces the packets of a train, and so their ACKs. Estimated only for
//! schedulers that ask for it ([`Scheduler::wants_link_rate`](crate::scheduler::Scheduler::wants_link_rate)).

use crate::Nanos;
use crate::metrics::SubflowMetrics;

/// ACKs of so many segments make one sample.
const SAMPLE_SEGMENTS: u32 = 8;

/// The estimator of one subflow. The estimate itself is [`SubflowMetrics::link_byte_time`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LinkRate {
    /// Whether a whole sample stands behind the estimate.
    sampled: bool,
    /// When the sample under way began, and the segments that were acknowledged since.
    began: Nanos,
    segments: u32,
}

impl LinkRate {
    /// ACKs of `segments` arrived. Below the rate that is known, a sample counts only if a queue has kept the link busy: the
    /// latest round trip then is longer than the least.
    #[inline]
    pub fn on_acked(&mut self, flow: &mut SubflowMetrics, now: Nanos, segments: u32) {
        if flow.packets_out == 0 {
            // A pause follows, which says nothing of the link.
            (self.began, self.segments) = (0, 0);
            return;
        }
        if self.began == 0 || segments > SAMPLE_SEGMENTS {
            (self.began, self.segments) = (now, 0);
            return;
        }
        self.segments += segments;
        let whole = self.segments >= SAMPLE_SEGMENTS;
        if !whole && self.sampled {
            return;
        }
        let took = now.saturating_sub(self.began) as f64;
        let sample = took / (f64::from(self.segments) * f64::from(flow.mss));
        if whole {
            (self.began, self.segments) = (now, 0);
        }
        if took <= 0.0 {
            return;
        }
        let busy = flow.last_rtt > flow.min_rtt + flow.min_rtt / 4;
        let known = flow.link_byte_time;
        if !self.sampled {
            // The first train is used while it lasts.
            flow.link_byte_time = sample;
            self.sampled = whole;
        } else if sample < known {
            flow.link_byte_time += (sample - known) / 2.0;
        } else if busy {
            flow.link_byte_time += (sample - known) / 4.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::LinkRate;
    use crate::metrics::SubflowMetrics;
    use crate::scheduler::testing::{MSS, subflow};
    use crate::{MILLISECOND, Nanos};

    /// ACKs of one segment each, so far apart. Returns nanoseconds per segment of [`MSS`] bytes.
    fn train(rate: &mut LinkRate, flow: &mut SubflowMetrics, from: Nanos, gap: Nanos, count: u64) -> f64 {
        for ack in 0..count {
            rate.on_acked(flow, (from + ack * gap) * MILLISECOND, 1);
        }
        flow.link_byte_time * f64::from(MSS)
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
    fn a_slower_sample_counts_only_while_there_is_a_queue() {
        let (mut rate, mut flow) = (LinkRate::default(), subflow(0, 20, 10, 10));
        let known = train(&mut rate, &mut flow, 99, 1, 9);
        assert_eq!(train(&mut rate, &mut flow, 111, 4, 8), known, "no queue: the sender was slow");
        flow.last_rtt = 2 * flow.min_rtt;
        assert!(train(&mut rate, &mut flow, 143, 4, 8) > known, "a queue: the link is slow");
        flow.last_rtt = flow.min_rtt;
        let slow = flow.link_byte_time;
        train(&mut rate, &mut flow, 172, 1, 8);
        assert!(flow.link_byte_time < slow, "a faster sample always counts");
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
