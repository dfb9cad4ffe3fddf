//! Proportional rate reduction (RFC 6937): how the congestion window comes down to the slow start threshold
//! while data leaves the network, one for one with slow start as reduction bound below the threshold, as
//! Linux does it (`tcp_cwnd_reduction`, which RFC 9937 made the standard): conservative when more is lost,
//! one segment bolder when an ACK moves on without a new loss.

use crate::metrics::SubflowMetrics;

/// RFC 6937's variables, in segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Prr {
    /// RecoverFS: here the window when the reduction began, as in Linux.
    prior_cwnd: u32,
    /// prr_delivered.
    delivered: u32,
    /// prr_out.
    out: u32,
}

impl Prr {
    /// A reduction begins.
    pub fn begin(cwnd: u32) -> Self {
        Prr { prior_cwnd: cwnd.max(1), delivered: 0, out: 0 }
    }

    /// Segments were sent during the reduction.
    #[inline]
    pub fn on_sent(&mut self, segments: u32) {
        self.out += segments;
    }

    /// An ACK delivered segments: sets the window to what is in flight and sndcnt more.
    #[inline(never)]
    pub fn reduce(&mut self, metrics: &mut SubflowMetrics, delivered: u32, newly_lost: u32, advanced: bool) {
        // Segments are clocked out by deliveries. An ACK without any, such as a window update, admits none.
        if delivered == 0 {
            return;
        }
        self.delivered += delivered;
        let in_flight = metrics.in_flight();
        let mut sndcnt = if in_flight > metrics.ssthresh() {
            //= RFC 6937 3-a
            let share = u64::from(metrics.ssthresh()) * u64::from(self.delivered);
            let share = share.div_ceil(u64::from(self.prior_cwnd.max(1)));
            (share as u32).saturating_sub(self.out)
        } else {
            //= RFC 6937 3-b
            let safe = u32::from(advanced && newly_lost == 0);
            let limit = self.delivered.saturating_sub(self.out).max(delivered) + safe;
            limit.min(metrics.ssthresh() - in_flight)
        };
        // The first retransmission of an episode always goes.
        if self.out == 0 {
            sndcnt = sndcnt.max(1);
        }
        metrics.set_cwnd((in_flight + sndcnt).max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::Prr;
    use crate::metrics::SubflowMetrics;
    use crate::testing::WithoutSender as _;
    use crate::{PathId, SubflowId};

    /// A window of 20 segments, reduced to 10, `lost` of which are lost at once.
    fn metrics(ssthresh: u32, lost: u32) -> SubflowMetrics {
        let mut metrics = SubflowMetrics::new(SubflowId(0), PathId(0));
        metrics.set_packets_out(20);
        metrics.set_cwnd(20);
        metrics.set_ssthresh(ssthresh);
        metrics.set_lost_out(lost);
        metrics.set_sacked_out(1);
        metrics
    }

    /// Acknowledges one segment by SACK and sends what the window then admits; returns how many.
    fn step(prr: &mut Prr, metrics: &mut SubflowMetrics, newly_lost: u32) -> u32 {
        prr.reduce(metrics, 1, newly_lost, false);
        let mut sent = 0;
        while metrics.in_flight() < metrics.cwnd() {
            if metrics.lost_out() > metrics.retrans_out() {
                metrics.set_retrans_out(metrics.retrans_out() + 1);
            } else {
                metrics.set_packets_out(metrics.packets_out() + 1);
            }
            prr.on_sent(1);
            sent += 1;
        }
        sent
    }

    //= test RFC 6937 3-a 3-c
    /// RFC 6937's first example: of twenty segments one is lost, and ssthresh is half. Once it is judged
    /// lost, a segment leaves for every two delivered, the retransmission first, until ssthresh is reached.
    #[test]
    fn with_one_loss_one_segment_leaves_for_two_delivered() {
        let (mut prr, mut metrics) = (Prr::begin(20), metrics(10, 1));
        let sent: Vec<u32> = (0..19)
            .map(|n| {
                if n > 0 {
                    metrics.set_sacked_out(metrics.sacked_out() + 1);
                }
                step(&mut prr, &mut metrics, u32::from(n == 0))
            })
            .collect();
        assert_eq!(sent, [1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 1, 1]);
        assert_eq!(metrics.in_flight(), 10, "the window has come down to ssthresh");
    }

    //= test RFC 6937 3-b
    /// RFC 6937's second example: of twenty segments the first fifteen are lost. What is in flight falls
    /// below ssthresh at once, and each delivered segment lets one out: no burst.
    #[test]
    fn with_many_losses_each_delivery_lets_one_out() {
        let (mut prr, mut metrics) = (Prr::begin(20), metrics(10, 15));
        let sent: Vec<u32> = (0..5)
            .map(|n| {
                if n > 0 {
                    metrics.set_sacked_out(metrics.sacked_out() + 1);
                }
                step(&mut prr, &mut metrics, if n == 0 { 15 } else { 0 })
            })
            .collect();
        assert_eq!(sent, [1; 5]);
        assert_eq!(metrics.in_flight(), 5);
    }

    /// RFC 9937: when the cumulative ACK moves on without a new loss, one more may go, up to ssthresh.
    #[test]
    fn progress_without_a_new_loss_is_slow_start() {
        let (mut prr, mut metrics) = (Prr::begin(20), metrics(10, 15));
        prr.on_sent(1);
        metrics.set_retrans_out(1);
        let before = metrics.in_flight();
        prr.reduce(&mut metrics, 1, 0, true);
        assert_eq!(metrics.cwnd(), before + 2);
        prr.reduce(&mut metrics, 1, 1, true);
        assert_eq!(metrics.cwnd(), before + 1, "a new loss: conservative");
    }

    #[test]
    fn an_ack_that_delivers_nothing_changes_nothing() {
        let (mut prr, mut metrics) = (Prr::begin(20), metrics(10, 1));
        prr.reduce(&mut metrics, 0, 3, false);
        assert_eq!((prr, metrics.cwnd()), (Prr::begin(20), 20));
    }
}
