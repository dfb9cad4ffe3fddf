//! What a subflow says of itself: the kernel's `tcp_info`.

use ropewalk_wire::Payload;

use super::context::State;
use super::subflow::Subflow;
use crate::Nanos;
use crate::config::TcpConfig;
use crate::metrics::{CaState, SubflowMetrics};

/// A subflow's state as of a moment: the kernel's `tcp_info` (`getsockopt(TCP_INFO)`), field for field without the prefix. Times are
/// in nanoseconds, windows of the sender in segments, those of the receiver in bytes. What the engine has no notion of is absent.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TcpInfo {
    /// Where it is in RFC 9293's state machine.
    pub state: State,
    /// Phase of loss recovery.
    pub ca_state: CaState,
    /// Retransmission timeouts since the last progress.
    pub retransmits: u32,
    /// Unanswered probes of a closed window or of a silent peer.
    pub probes: u32,
    /// How often the retransmission timeout is doubled.
    pub backoff: u32,
    /// Both ends use timestamps (`TCPI_OPT_TIMESTAMPS`).
    pub timestamps: bool,
    /// Both ends use SACK (`TCPI_OPT_SACK`).
    pub sack: bool,
    /// Both ends scale windows (`TCPI_OPT_WSCALE`).
    pub window_scaling: bool,
    /// Both ends use ECN (`TCPI_OPT_ECN`).
    pub ecn: bool,
    /// The peer's window scale.
    pub snd_wscale: u8,
    /// Ours.
    pub rcv_wscale: u8,
    /// Retransmission timeout, backoff included.
    pub rto: Nanos,
    /// Payload bytes per segment, after all options.
    pub snd_mss: u32,
    /// Segments sent and not acknowledged.
    pub unacked: u32,
    /// Of these, selectively acknowledged.
    pub sacked: u32,
    /// Of these, judged lost.
    pub lost: u32,
    /// Retransmissions in flight.
    pub retrans: u32,
    /// Time since data was last sent.
    pub last_data_sent: Nanos,
    /// Time since an acceptable segment last arrived.
    pub last_recv: Nanos,
    /// The path's MTU, bytes.
    pub pmtu: u32,
    /// Smoothed round-trip time; 0 before a sample.
    pub rtt: Nanos,
    /// Its variation.
    pub rttvar: Nanos,
    /// The least round-trip time of the last 300 s.
    pub min_rtt: Nanos,
    /// The round-trip time as a receiver of data sees it; 0 before a sample.
    pub rcv_rtt: Nanos,
    /// Slow start threshold, segments; `u32::MAX` before the first loss.
    pub snd_ssthresh: u32,
    /// Congestion window, segments.
    pub snd_cwnd: u32,
    /// The MSS that we announced.
    pub advmss: u16,
    /// Segments retransmitted in all.
    pub total_retrans: u64,
    /// Pacing rate, bytes per second.
    pub pacing_rate: u64,
    /// The latest delivery rate, bytes per second; 0 before a sample.
    pub delivery_rate: u64,
    /// Segments delivered in all.
    pub delivered: u64,
    /// Payload bytes acknowledged in all.
    pub bytes_acked: u64,
    /// Payload bytes received in order in all.
    pub bytes_received: u64,
    /// Payload bytes sent in all, repeats included.
    pub bytes_sent: u64,
    /// Payload bytes sent again in all.
    pub bytes_retrans: u64,
    /// Bytes that the subflow has and didn't send yet.
    pub notsent_bytes: u64,
    /// Segments sent.
    pub segs_out: u64,
    /// Segments received.
    pub segs_in: u64,
    /// Segments with data sent for the first time.
    pub data_segs_out: u64,
    /// Retransmission timeouts in all.
    pub total_rto: u64,
    /// The window that the peer advertised last, bytes.
    pub snd_wnd: u64,
    /// The window that we advertised last, bytes.
    pub rcv_wnd: u64,
}

impl<P: Payload> Subflow<P> {
    /// Its state now.
    pub(crate) fn info(&self, now: Nanos, tcp: &TcpConfig, metrics: &SubflowMetrics) -> TcpInfo {
        let common = &self.common;
        let (negotiated, counters) = (&common.negotiated, &common.counters);
        let is_opening = matches!(common.state, State::SynSent | State::SynReceived);
        let backoff = if is_opening { self.handshake.timeouts } else { self.sender.backoff() };
        TcpInfo {
            state: common.state,
            ca_state: metrics.ca_state,
            retransmits: if is_opening { self.handshake.timeouts } else { self.sender.timeouts() },
            probes: self.probing.unanswered,
            backoff,
            timestamps: negotiated.timestamps,
            sack: negotiated.sack,
            window_scaling: negotiated.window_scaling,
            ecn: negotiated.ecn,
            snd_wscale: negotiated.peer_shift,
            rcv_wscale: common.advertised_shift(),
            rto: metrics.rto.saturating_mul(1 << backoff.min(16)).min(tcp.rto.max),
            snd_mss: metrics.mss,
            unacked: metrics.packets_out,
            sacked: metrics.sacked_out,
            lost: metrics.lost_out,
            retrans: metrics.retrans_out,
            last_data_sent: now.saturating_sub(self.sender.last_sent_at()),
            last_recv: now.saturating_sub(self.probing.received_at),
            pmtu: common.path_mtu,
            rtt: metrics.srtt,
            rttvar: metrics.rttvar,
            min_rtt: metrics.min_rtt,
            rcv_rtt: self.receiver.rtt(),
            snd_ssthresh: metrics.ssthresh,
            snd_cwnd: metrics.cwnd,
            advmss: common.own_mss(tcp),
            total_retrans: metrics.retrans_total,
            pacing_rate: metrics.pacing_rate,
            delivery_rate: metrics.delivery_rate,
            delivered: metrics.delivered,
            bytes_acked: metrics.bytes_acked,
            bytes_received: self.receiver.next().saturating_sub(1),
            bytes_sent: counters.bytes_sent,
            bytes_retrans: counters.retrans_bytes,
            notsent_bytes: metrics.queued_bytes,
            segs_out: counters.out_segs,
            segs_in: counters.in_segs,
            data_segs_out: counters.data_segments,
            total_rto: counters.timeouts,
            snd_wnd: self.sender.peer_window(),
            rcv_wnd: self.receiver.advertised_window(),
        }
    }
}
