//! What schedulers and congestion controls see of one subflow.
//!
//! A connection's [`SubflowMetrics`] lie side by side, so that a scheduler reads the live values and a
//! coupled congestion control its subflow's siblings, without a copy. Who keeps which: the congestion
//! state is the sender's own (`tcp/sender/congestion_state.rs`).

use crate::tcp::CongestionState;
use crate::{MILLISECOND, PathId, Span, SubflowId, Time};

/// Memory that Linux counts for each send buffer beside its payload, bytes (the least `truesize`).
const BUFFER_OVERHEAD: u64 = 1280;

/// Payload that one of Linux's send buffers holds at most (`MPTCP_MAX_GSO_SIZE`, 64 KiB less headers).
const BUFFER_SIZE: u64 = 65_215;

/// Where a subflow is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum SubflowStatus {
    /// SYN sent or received, or joined but not yet confirmed (RFC 8684 3.2: the initiator of an MP_JOIN
    /// sends no data before the fourth ACK).
    #[default]
    Handshaking,
    /// Established, fully joined: may carry data.
    Usable,
    /// Usable by TCP's rules, but set aside by the engine: no progress over several timeouts (Linux calls
    /// it stale). It returns to `Usable` with the next acknowledgement.
    Stale,
    /// FIN sent or received, or being torn down: no new data.
    Closing,
    /// Gone.
    Closed,
}

/// Loss recovery phase, as Linux names them (`tcp_ca_state`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum CaState {
    /// Nothing unusual.
    #[default]
    Open,
    /// Duplicate ACKs or SACKs seen; nothing judged lost yet.
    Disorder,
    /// Window reduction after ECN.
    Cwr,
    /// Fast recovery.
    Recovery,
    /// Recovery after a retransmission timeout.
    Loss,
}

/// One subflow's numbers. Windows and packet counts are in segments of `mss` bytes, as in Linux.
#[derive(Clone, PartialEq, Debug)]
pub struct SubflowMetrics {
    /// Its own id.
    pub id: SubflowId,
    /// The network that it runs over.
    pub path: PathId,
    /// Where it is in its life.
    pub state: SubflowStatus,
    /// MP_PRIO / MP_JOIN backup flag, as set by either side for our sending.
    pub backup: bool,
    /// Congestion window, threshold, recovery phase and what is in flight; the sender's, read by methods
    /// ([`cwnd`](Self::cwnd), [`in_flight`](Self::in_flight) and the like).
    pub(crate) congestion: CongestionState,

    /// Round-trip times.
    pub rtt: RttMetrics,
    /// Retransmission timeout in force, without backoff.
    pub rto: Span,

    /// Payload bytes per segment, after TCP and MPTCP options.
    pub mss: u32,
    /// Bytes handed to the subflow and not yet sent for the first time.
    pub queued_bytes: u64,
    /// Bytes of memory that the subflow's own send buffer may still take ([`SubflowMetrics::send_memory`]
    /// counts).
    pub queue_space: u64,
    /// Size of that send buffer, bytes; 0 until there is something to send.
    pub send_buffer: u64,
    /// Rates.
    pub rate: RateMetrics,

    /// Counters of its life.
    pub totals: SubflowTotals,
    /// When data or an acknowledgement of new data last moved on it.
    pub last_progress: Time,
    /// When data last left on it, repeats included; 0: never.
    pub last_sent: Time,
    /// Since when something has been in flight on it without a pause; kept as it was while nothing is. 0:
    /// nothing was yet.
    pub busy_since: Time,
}

/// A subflow's round-trip times.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RttMetrics {
    /// SRTT (RFC 6298); 0 before the first sample.
    pub smoothed: Span,
    /// RTTVAR (RFC 6298, Linux's: the larger of the smoothed and this round's).
    pub var: Span,
    /// The least in the last 300 s window (Linux's `tcp_min_rtt`); 0 before a sample.
    pub min: Span,
    /// The greatest of the subflow's life; 0 before a sample.
    pub max: Span,
    /// The latest sample; 0 before one.
    pub latest: Span,
    /// Samples over its life. After the first one `var` is assumed (RFC 6298 2.2), not measured.
    pub samples: u32,
}

/// A subflow's rates.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RateMetrics {
    /// Pacing rate, bytes per second (computed even when nothing is paced).
    pub pacing: u64,
    /// The latest delivery-rate sample that was not application-limited, bytes per second (0: none yet).
    pub delivery: u64,
    /// Nanoseconds that the path's link takes for a byte, from the spacing of ACKs. 0: not known, or the
    /// scheduler doesn't ask for it
    /// ([`Scheduler::wants_link_rate`](crate::scheduler::Scheduler::wants_link_rate)).
    pub link_byte_time: f64,
}

/// Counters of a subflow's life. What happened since some moment is a difference: remember a total and
/// subtract.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SubflowTotals {
    /// Segments delivered (`delivered`).
    pub delivered: u64,
    /// Segments judged lost.
    pub lost: u64,
    /// Segments retransmitted (`total_retrans` of `tcp_info`, `TcpRetransSegs` of
    /// [`TcpCounters`](crate::tcp::TcpCounters)).
    pub retransmitted: u64,
    /// Payload bytes acknowledged.
    pub bytes_acked: u64,
    /// Reductions of the window: losses, repairs of a tail loss probe, ECN. An undo takes none back.
    pub loss_events: u32,
    /// Retransmission timeouts that fired.
    pub timeouts: u32,
}

impl SubflowMetrics {
    /// A subflow before its first segment.
    pub fn new(id: SubflowId, path: PathId) -> Self {
        SubflowMetrics {
            id,
            path,
            state: SubflowStatus::Handshaking,
            backup: false,
            congestion: CongestionState::new(),
            rtt: RttMetrics::default(),
            rto: 1000 * MILLISECOND,
            mss: 536,
            queued_bytes: 0,
            queue_space: u64::MAX,
            send_buffer: 0,
            rate: RateMetrics::default(),
            totals: SubflowTotals::default(),
            last_progress: Time::ZERO,
            last_sent: Time::ZERO,
            busy_since: Time::ZERO,
        }
    }

    /// Segments that the congestion window still admits, less what is queued for it already.
    #[inline]
    pub fn window_space(&self) -> u32 {
        self.cwnd().saturating_sub(self.in_flight()).saturating_sub(self.queued_segments())
    }

    /// What is queued, in segments, rounded up.
    #[inline]
    pub fn queued_segments(&self) -> u32 {
        if self.queued_bytes == 0 { 0 } else { self.queued_bytes.div_ceil(u64::from(self.mss)) as u32 }
    }

    /// Bytes that Linux would count in the socket's send buffer (`sk_wmem_queued`): payload sent and not
    /// acknowledged, or queued, and `BUFFER_OVERHEAD` for each buffer that holds it. What is queued sits in
    /// buffers of up to 64 KiB; what is sent, in buffers as long as it was sent in one go
    /// (`tcp_tso_autosize`): a millisecond's worth of the pacing rate, two segments at least.
    pub fn send_memory(&self) -> u64 {
        let mss = u64::from(self.mss.max(1));
        let at_once = self.tso_segments();
        let sent = u64::from(self.packets_out());
        let buffers = sent.div_ceil(at_once) + self.queued_bytes.div_ceil(BUFFER_SIZE);
        self.queued_bytes + sent * mss + buffers * BUFFER_OVERHEAD
    }

    /// Segments that Linux sends as one (`tcp_tso_autosize`): what it paces in a millisecond, two at least.
    #[inline]
    pub fn tso_segments(&self) -> u64 {
        let mss = u64::from(self.mss.max(1));
        ((self.rate.pacing >> 10) / mss).clamp(2, (BUFFER_SIZE / mss).max(2))
    }

    /// The link's rate, bytes per second, where [`RateMetrics::link_byte_time`] is known. Unlike
    /// [`RateMetrics::delivery`] it isn't limited by the congestion window.
    pub fn link_rate(&self) -> Option<u64> {
        (self.rate.link_byte_time > 0.0).then(|| (1e9 / self.rate.link_byte_time) as u64)
    }

    /// Usable: established, fully joined, not failed.
    #[inline]
    pub fn usable(&self) -> bool {
        self.state == SubflowStatus::Usable
    }

    /// Usable, in flight < cwnd, not in RTO recovery, with room in its own queue. (The connection-level
    /// window is one for all: [`crate::scheduler::View::window_left`].)
    #[inline]
    pub fn available(&self) -> bool {
        self.usable()
            && self.ca_state() != CaState::Loss
            && self.window_space() > 0
            && self.queue_space >= u64::from(self.mss)
    }

    /// In slow start.
    #[inline]
    pub fn in_slow_start(&self) -> bool {
        self.cwnd() < self.ssthresh()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::WithoutSender as _;

    #[test]
    fn send_memory_counts_buffers_as_long_as_they_were_sent() {
        let mut subflow = SubflowMetrics::new(SubflowId(0), PathId(0));
        subflow.mss = 1000;
        assert_eq!(subflow.send_memory(), 0);
        subflow.set_packets_out(7);
        assert_eq!(subflow.send_memory(), 7000 + 4 * 1280, "two segments at least");
        subflow.rate.pacing = 3_000 << 10;
        assert_eq!(subflow.send_memory(), 7000 + 3 * 1280, "three in a millisecond");
        subflow.rate.pacing = u64::MAX;
        assert_eq!(subflow.send_memory(), 7000 + 1280);
        subflow.set_packets_out(66);
        assert_eq!(subflow.send_memory(), 66_000 + 2 * 1280, "65 in one");
        subflow.set_packets_out(0);
        subflow.queued_bytes = 65_216;
        assert_eq!(subflow.send_memory(), 65_216 + 2 * 1280);
    }
}
