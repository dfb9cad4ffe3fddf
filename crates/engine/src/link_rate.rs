//! A link's rate from the spacing of ACKs: a bottleneck spaces the packets of a train, and so their ACKs.
//! Estimated only for schedulers that ask for it
//! ([`Scheduler::wants_link_rate`](crate::scheduler::Scheduler::wants_link_rate)).

use crate::metrics::SubflowMetrics;
use crate::{Span, Time};

/// ACKs of so many segments make one sample.
const SAMPLE_SEGMENTS: u32 = 8;

/// ACKs are a train's if they took so much longer than their segments took to leave: then the link spaced
/// them.
const TRAIN: f64 = 1.25;

/// The same of the first segments of a train, which jitter spaces as well.
const BURST: f64 = 2.0;

/// Segments of an initial window. A sender that sends fewer in a round trip says little of the link.
const INITIAL_WINDOW: f64 = 10.0;

/// The estimator of one subflow. The estimate itself is
/// [`link_byte_time`](crate::metrics::RateMetrics::link_byte_time).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LinkRate {
    /// Whether a train stands behind the estimate.
    sampled: bool,
    /// When the sample under way began, and the segments that were acknowledged since.
    began: Time,
    segments: u32,
    /// When the segment left whose ACK began it.
    sent: Time,
    /// The least round trip of its ACKs.
    least: Span,
}

impl LinkRate {
    /// Begins a sample.
    #[inline]
    fn begin(&mut self, subflow: &SubflowMetrics, now: Time) {
        (self.began, self.segments) = (now, 0);
        self.sent = now.saturating_back(subflow.rtt.latest);
        self.least = Span::MAX;
    }

    /// ACKs of `segments` arrived. The first estimate is that of a train: where the sender made the gaps, the
    /// link is at least as fast. Below the rate that is known, a sample counts only if a queue has kept the
    /// link busy, so that all its round trips are longer than the least, and if the sender didn't make the
    /// gaps: its window was full, or the segments left as a train.
    #[inline]
    pub fn on_acked(&mut self, subflow: &mut SubflowMetrics, now: Time, segments: u32) {
        if subflow.packets_out() == 0 {
            // A pause follows, which says nothing of the link.
            (self.began, self.segments) = (Time::ZERO, 0);
            return;
        }
        if self.began == Time::ZERO || segments > SAMPLE_SEGMENTS {
            self.begin(subflow, now);
            return;
        }
        self.segments += segments;
        self.least = self.least.min(subflow.rtt.latest);
        let whole = self.segments >= SAMPLE_SEGMENTS;
        if !whole && self.sampled {
            return;
        }
        let took = now.saturating_sub(self.began).as_nanos() as f64;
        let leaving = now.saturating_back(subflow.rtt.latest).saturating_sub(self.sent).as_nanos() as f64;
        let mss = f64::from(subflow.mss);
        let sample = took / (f64::from(self.segments) * mss);
        let busy = self.least > subflow.rtt.min + subflow.rtt.min / 4;
        if whole {
            self.begin(subflow, now);
        }
        if took <= 0.0 {
            return;
        }
        let full = subflow.in_flight() + segments >= subflow.cwnd();
        let train = took > if whole { TRAIN } else { BURST } * leaving;
        let known = subflow.rate.link_byte_time;
        if self.sampled {
            if sample < known {
                subflow.rate.link_byte_time += (sample - known) / 2.0;
            } else if busy && (full || train) {
                subflow.rate.link_byte_time += (sample - known) / 4.0;
            }
        } else if train {
            // The first train is used while it lasts.
            subflow.rate.link_byte_time = sample;
            self.sampled = whole;
        } else if sample < subflow.rtt.smoothed.as_nanos() as f64 / (INITIAL_WINDOW * mss)
            && (known == 0.0 || sample < known)
        {
            subflow.rate.link_byte_time = sample;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::LinkRate;
    use crate::metrics::SubflowMetrics;
    use crate::scheduler::testing::{MSS, subflow};
    use crate::testing::WithoutSender as _;
    use crate::{MILLISECOND, Time};

    /// ACKs of one segment each, so far apart, the segments having left at the same gaps. Returns nanoseconds
    /// per segment of [`MSS`] bytes.
    fn paced(rate: &mut LinkRate, subflow: &mut SubflowMetrics, from: u64, gap: u64, count: u64) -> f64 {
        for ack in 0..count {
            rate.on_acked(subflow, Time::ZERO + (from + ack * gap) * MILLISECOND, 1);
        }
        subflow.rate.link_byte_time * f64::from(MSS)
    }

    /// The same of segments that left together.
    fn train(rate: &mut LinkRate, subflow: &mut SubflowMetrics, from: u64, gap: u64, count: u64) -> f64 {
        let known = subflow.rtt.latest;
        for ack in 0..count {
            subflow.rtt.latest = known + ack * gap * MILLISECOND;
            paced(rate, subflow, from + ack * gap, 0, 1);
        }
        subflow.rtt.latest = known;
        subflow.rate.link_byte_time * f64::from(MSS)
    }

    #[test]
    fn the_rate_is_the_spacing_of_acks() {
        let (mut rate, mut subflow) = (LinkRate::default(), subflow(0, 20, 10, 10));
        assert_eq!(subflow.link_rate(), None);
        assert_eq!(train(&mut rate, &mut subflow, 100, 1, 9), 1e6, "a segment per millisecond");
        assert_eq!(subflow.link_rate(), Some(1_000_000));
    }

    #[test]
    fn a_pause_is_no_sample() {
        let (mut rate, mut subflow) = (LinkRate::default(), subflow(0, 20, 10, 10));
        let mut exchange = |from: u64| {
            subflow.set_packets_out(2);
            train(&mut rate, &mut subflow, from, 1, 2);
            subflow.set_packets_out(0);
            train(&mut rate, &mut subflow, from + 2, 1, 1)
        };
        exchange(100);
        assert_eq!(exchange(300), 1e6);
    }

    #[test]
    fn gaps_that_the_sender_made_are_no_train() {
        let (mut rate, mut subflow) = (LinkRate::default(), subflow(0, 20, 10, 10));
        assert_eq!(
            paced(&mut rate, &mut subflow, 100, 3, 9),
            0.0,
            "slower than an initial window in a round trip"
        );
        assert_eq!(paced(&mut rate, &mut subflow, 200, 1, 9), 1e6, "the link is at least as fast");
        assert_eq!(paced(&mut rate, &mut subflow, 300, 2, 9), 1e6, "which a slower one doesn't change");
        let trained = train(&mut rate, &mut subflow, 400, 4, 17);
        assert_eq!(trained, 4e6, "but a train does");
    }

    #[test]
    fn a_slower_sample_counts_only_while_there_is_a_queue() {
        let (mut rate, mut subflow) = (LinkRate::default(), subflow(0, 20, 10, 10));
        let known = train(&mut rate, &mut subflow, 99, 1, 9);
        assert_eq!(paced(&mut rate, &mut subflow, 111, 4, 8), known, "no queue: the sender was slow");
        subflow.rtt.latest = 2 * subflow.rtt.min;
        assert!(paced(&mut rate, &mut subflow, 143, 4, 8) > known, "a queue: the link is slow");
        subflow.rtt.latest = subflow.rtt.min;
        let slow = subflow.rate.link_byte_time;
        paced(&mut rate, &mut subflow, 172, 1, 8);
        assert!(subflow.rate.link_byte_time < slow, "a faster sample always counts");
    }

    /// A voice call over a link with a queue of others' packets, or with jitter.
    #[test]
    fn gaps_of_a_sender_with_little_to_send_are_not_the_links() {
        let (mut rate, mut subflow) = (LinkRate::default(), subflow(0, 20, 10, 10));
        let known = train(&mut rate, &mut subflow, 100, 1, 9);
        subflow.set_packets_out(3);
        subflow.rtt.latest = 2 * subflow.rtt.min;
        assert_eq!(paced(&mut rate, &mut subflow, 150, 20, 30), known);
        subflow.set_packets_out(10);
        assert!(paced(&mut rate, &mut subflow, 2000, 20, 9) > known, "its window is full");
    }

    #[test]
    fn two_segments_that_jitter_spaces_are_no_train() {
        let (mut rate, mut subflow) = (LinkRate::default(), subflow(0, 20, 10, 10));
        paced(&mut rate, &mut subflow, 100, 0, 1);
        subflow.rtt.latest += 10 * MILLISECOND;
        assert_eq!(paced(&mut rate, &mut subflow, 130, 0, 1), 0.0, "20 ms apart, acknowledged 30 ms apart");
    }

    #[test]
    fn acks_of_many_segments_at_once_are_no_train() {
        let (mut rate, mut subflow) = (LinkRate::default(), subflow(0, 20, 40, 40));
        for ack in 0..9 {
            rate.on_acked(&mut subflow, Time::ZERO + (100 + ack) * MILLISECOND, 9);
        }
        assert_eq!(subflow.link_rate(), None);
    }
}
