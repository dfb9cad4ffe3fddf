//! What schedulers and congestion controls see of one subflow.
//!
//! The TCP code keeps these numbers here and nowhere else, so that a scheduler reads the live values
//! and a coupled congestion control sees its siblings, without a copy.

use crate::{MILLISECOND, Nanos, PathId, SubflowId};

/// Where a subflow is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FlowState {
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
pub enum Phase {
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
pub struct Flow {
    /// Its own id.
    pub id: SubflowId,
    /// The network that it runs over.
    pub path: PathId,
    /// Where it is in its life.
    pub state: FlowState,
    /// MP_PRIO / MP_JOIN backup flag, as set by either side for our sending.
    pub backup: bool,
    /// Loss recovery phase.
    pub phase: Phase,

    /// Smoothed round-trip time (RFC 6298); 0 before the first sample.
    pub srtt: Nanos,
    /// Round-trip time variation (RFC 6298, Linux's: the larger of the smoothed and this round's).
    pub rttvar: Nanos,
    /// Least round-trip time in the last 300 s window (Linux's `tcp_min_rtt`); 0 before a sample.
    pub min_rtt: Nanos,
    /// Greatest round-trip time of the subflow's life; 0 before a sample.
    pub max_rtt: Nanos,
    /// The latest sample; 0 before one.
    pub last_rtt: Nanos,
    /// Retransmission timeout in force, without backoff.
    pub rto: Nanos,

    /// Congestion window, segments.
    pub cwnd: u32,
    /// Slow start threshold, segments; `u32::MAX` before the first loss.
    pub ssthresh: u32,
    /// Segments sent and not cumulatively acknowledged (`packets_out`).
    pub packets_out: u32,
    /// Of these, selectively acknowledged (`sacked_out`).
    pub sacked_out: u32,
    /// Of these, judged lost (`lost_out`).
    pub lost_out: u32,
    /// Retransmissions in flight (`retrans_out`).
    pub retrans_out: u32,

    /// Payload bytes per segment, after TCP and MPTCP options.
    pub mss: u32,
    /// Bytes handed to the subflow and not yet sent for the first time.
    pub queued_bytes: u64,
    /// Bytes the subflow's own send queue may still take (sent-unacknowledged and queued count).
    pub queue_space: u64,
    /// Pacing rate, bytes per second (computed even when nothing is paced).
    pub pacing_rate: u64,
    /// The latest delivery-rate sample that was not application-limited, bytes per second (0: none yet).
    pub delivery_rate: u64,

    /// Segments delivered over the subflow's life (`delivered`).
    pub delivered: u64,
    /// Segments judged lost over its life.
    pub lost_total: u64,
    /// Segments retransmitted over its life (`total_retrans`).
    pub retrans_total: u64,
    /// Payload bytes acknowledged over its life.
    pub bytes_acked: u64,
    /// Payload bytes acknowledged when the last loss event was judged (OLIA's l1 counts from here).
    pub bytes_acked_at_loss: u64,
    /// Loss events (entries into Recovery or Loss, ECN reductions).
    pub loss_events: u32,
    /// Retransmission timeouts that fired.
    pub timeouts: u32,
    /// When data or an acknowledgement of new data last moved on it.
    pub last_progress: Nanos,
}

impl Flow {
    /// A subflow before its first segment.
    pub fn new(id: SubflowId, path: PathId) -> Self {
        Flow {
            id,
            path,
            state: FlowState::Handshaking,
            backup: false,
            phase: Phase::Open,
            srtt: 0,
            rttvar: 0,
            min_rtt: 0,
            max_rtt: 0,
            last_rtt: 0,
            rto: 1000 * MILLISECOND,
            cwnd: 10,
            ssthresh: u32::MAX,
            packets_out: 0,
            sacked_out: 0,
            lost_out: 0,
            retrans_out: 0,
            mss: 536,
            queued_bytes: 0,
            queue_space: u64::MAX,
            pacing_rate: 0,
            delivery_rate: 0,
            delivered: 0,
            lost_total: 0,
            retrans_total: 0,
            bytes_acked: 0,
            bytes_acked_at_loss: 0,
            loss_events: 0,
            timeouts: 0,
            last_progress: 0,
        }
    }

    /// Segments in flight: Linux's `tcp_packets_in_flight`.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        (self.packets_out + self.retrans_out).saturating_sub(self.sacked_out + self.lost_out)
    }

    /// Segments that the congestion window still admits, less what is queued for it already.
    #[inline]
    pub fn window_space(&self) -> u32 {
        self.cwnd.saturating_sub(self.in_flight()).saturating_sub(self.queued_segments())
    }

    /// What is queued, in segments, rounded up.
    #[inline]
    pub fn queued_segments(&self) -> u32 {
        if self.queued_bytes == 0 { 0 } else { self.queued_bytes.div_ceil(u64::from(self.mss)) as u32 }
    }

    /// Usable: established, fully joined, not failed.
    #[inline]
    pub fn usable(&self) -> bool {
        self.state == FlowState::Usable
    }

    /// Usable, in flight < cwnd, not in RTO recovery, with room in its own queue. (The connection-level
    /// window is one for all: [`crate::scheduler::View::window_left`].)
    #[inline]
    pub fn available(&self) -> bool {
        self.usable()
            && self.phase != Phase::Loss
            && self.window_space() > 0
            && self.queue_space >= u64::from(self.mss)
    }

    /// In slow start.
    #[inline]
    pub fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }
}
