//! A subflow's congestion state, as Linux counts it (RFC 5681, RFC 6675's pipe): the window, and what of the
//! segments that were sent is still out.
//!
//! The sender alone changes what is out and the phase. Window and threshold are changed by the congestion
//! control as well. Schedulers read all of it from [`SubflowMetrics`], which lie side by side.

use super::entry::{LOST, RETRANS, SACKED};
use crate::metrics::{CaState, SubflowMetrics};

/// See the module.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct CongestionState {
    ca_state: CaState,
    cwnd: u32,
    ssthresh: u32,
    packets_out: u32,
    sacked_out: u32,
    lost_out: u32,
    retrans_out: u32,
}

impl CongestionState {
    /// Before the first segment.
    pub(crate) fn new() -> Self {
        CongestionState {
            ca_state: CaState::Open,
            // RFC 6928's initial window; a sender sets the configured one.
            cwnd: 10,
            //= RFC 5681 3.1-c
            ssthresh: u32::MAX,
            packets_out: 0,
            sacked_out: 0,
            lost_out: 0,
            retrans_out: 0,
        }
    }
}

/// What schedulers and congestion controls read of it.
impl SubflowMetrics {
    /// Loss recovery phase.
    #[inline]
    pub fn ca_state(&self) -> CaState {
        self.congestion.ca_state
    }

    /// Congestion window, segments.
    #[inline]
    pub fn cwnd(&self) -> u32 {
        self.congestion.cwnd
    }

    /// Slow start threshold, segments; `u32::MAX` before the first loss.
    #[inline]
    pub fn ssthresh(&self) -> u32 {
        self.congestion.ssthresh
    }

    /// Segments sent and not cumulatively acknowledged (`packets_out`).
    #[inline]
    pub fn packets_out(&self) -> u32 {
        self.congestion.packets_out
    }

    /// Of these, selectively acknowledged (`sacked_out`).
    #[inline]
    pub fn sacked_out(&self) -> u32 {
        self.congestion.sacked_out
    }

    /// Of these, judged lost (`lost_out`).
    #[inline]
    pub fn lost_out(&self) -> u32 {
        self.congestion.lost_out
    }

    /// Retransmissions in flight (`retrans_out`).
    #[inline]
    pub fn retrans_out(&self) -> u32 {
        self.congestion.retrans_out
    }

    /// Segments in flight: Linux's `tcp_packets_in_flight`.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        let CongestionState { packets_out, sacked_out, lost_out, retrans_out, .. } = self.congestion;
        (packets_out + retrans_out).saturating_sub(sacked_out + lost_out)
    }
}

/// What a congestion control changes.
impl SubflowMetrics {
    /// Sets the congestion window, segments.
    #[inline]
    pub fn set_cwnd(&mut self, cwnd: u32) {
        self.congestion.cwnd = cwnd;
    }

    /// Sets the slow start threshold, segments.
    #[inline]
    pub fn set_ssthresh(&mut self, ssthresh: u32) {
        self.congestion.ssthresh = ssthresh;
    }
}

/// What the sender changes.
impl SubflowMetrics {
    #[inline]
    pub(super) fn set_ca_state(&mut self, phase: CaState) {
        self.congestion.ca_state = phase;
    }

    /// Segments were sent for the first time.
    #[inline]
    pub(super) fn add_packets_out(&mut self, segments: u32) {
        self.congestion.packets_out += segments;
    }

    /// Segments were cumulatively acknowledged.
    #[inline]
    pub(super) fn sub_packets_out(&mut self, segments: u32) {
        self.congestion.packets_out -= segments;
    }

    /// The counts of segments with the flags of an entry.
    #[inline(always)]
    fn marked(&mut self, flags: u8) -> impl Iterator<Item = &mut u32> {
        let CongestionState { sacked_out, lost_out, retrans_out, .. } = &mut self.congestion;
        let counts = [(SACKED, sacked_out), (LOST, lost_out), (RETRANS, retrans_out)];
        counts.into_iter().filter(move |(flag, _)| flags & flag != 0).map(|(_, count)| count)
    }

    /// So many segments more are marked with `flags` of an entry.
    #[inline(always)]
    pub(super) fn add_marked(&mut self, flags: u8, segments: u32) {
        self.marked(flags).for_each(|count| *count += segments);
    }

    /// So many segments less are.
    #[inline(always)]
    pub(super) fn sub_marked(&mut self, flags: u8, segments: u32) {
        self.marked(flags).for_each(|count| *count -= segments);
    }

    /// Nothing is judged lost any more.
    pub(super) fn clear_lost_out(&mut self) {
        self.congestion.lost_out = 0;
    }

    /// Without SACK duplicate ACKs are counted. They stand for no more than what may have left the network.
    #[inline]
    pub(super) fn assume_sacked(&mut self, segments: u32) {
        // RFC 5681 3.2 step 4 allows the limit: a receiver that makes up duplicate ACKs would else inflate
        // the window (Linux: `tcp_limit_reno_sacked`).
        self.congestion.sacked_out = segments.min(self.congestion.packets_out - self.congestion.lost_out);
    }

    /// Nothing is out any more.
    pub(crate) fn clear_out(&mut self) {
        let CongestionState { ca_state, cwnd, ssthresh, .. } = self.congestion;
        self.congestion = CongestionState { ca_state, cwnd, ssthresh, ..CongestionState::new() };
    }
}

/// Sets what only a sender counts, where there is none: in tests and model connections.
pub trait WithoutSender {
    /// Sets the loss recovery phase.
    fn set_ca_state(&mut self, phase: CaState);
    /// Sets the segments sent and not cumulatively acknowledged.
    fn set_packets_out(&mut self, segments: u32);
    /// Sets those of them that are selectively acknowledged.
    fn set_sacked_out(&mut self, segments: u32);
    /// Sets those of them that are judged lost.
    fn set_lost_out(&mut self, segments: u32);
    /// Sets the retransmissions in flight.
    fn set_retrans_out(&mut self, segments: u32);
}

impl WithoutSender for SubflowMetrics {
    fn set_ca_state(&mut self, phase: CaState) {
        self.congestion.ca_state = phase;
    }

    fn set_packets_out(&mut self, segments: u32) {
        self.congestion.packets_out = segments;
    }

    fn set_sacked_out(&mut self, segments: u32) {
        self.congestion.sacked_out = segments;
    }

    fn set_lost_out(&mut self, segments: u32) {
        self.congestion.lost_out = segments;
    }

    fn set_retrans_out(&mut self, segments: u32) {
        self.congestion.retrans_out = segments;
    }
}
