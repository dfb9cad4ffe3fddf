//! What a subflow says of itself: the kernel's `tcp_info`.

use ropewalk_wire::Payload;

use super::context::State;
use super::tcb::Tcb;
use crate::config::TcpConfig;
use crate::metrics::{CaState, RttMetrics, SubflowMetrics};
use crate::{Span, Time};

/// A subflow's state as of a moment: the kernel's `tcp_info` (`getsockopt(TCP_INFO)`), with its names less
/// the prefix, in groups. Times are in nanoseconds, windows of the sender in segments, those of the receiver
/// in bytes. What the engine has no notion of is absent.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TcpInfo {
    /// Where it is in RFC 9293's state machine.
    pub state: State,
    /// Phase of loss recovery.
    pub ca_state: CaState,
    /// What both ends use (`tcpi_options`).
    pub options: TcpOptionsInfo,
    /// Retransmission timeouts since the last progress.
    pub retransmits: u32,
    /// Unanswered probes of a closed window or of a silent peer.
    pub probes: u32,
    /// How often the retransmission timeout is doubled.
    pub backoff: u32,
    /// Retransmission timeout, backoff included.
    pub rto: Span,
    /// Round-trip times of what is sent.
    pub rtt: RttMetrics,
    /// The round-trip time as a receiver of data sees it; 0 before a sample.
    pub rcv_rtt: Span,
    /// Payload bytes per segment, after all options.
    pub snd_mss: u32,
    /// The MSS that we announced.
    pub advmss: u16,
    /// The path's MTU, bytes.
    pub pmtu: u32,
    /// Slow start threshold, segments; `u32::MAX` before the first loss.
    pub snd_ssthresh: u32,
    /// Congestion window, segments.
    pub snd_cwnd: u32,
    /// Segments in flight.
    pub in_flight: InFlightInfo,
    /// Bytes that the subflow has and didn't send yet.
    pub notsent_bytes: u64,
    /// Pacing rate, bytes per second.
    pub pacing_rate: u64,
    /// The latest delivery rate, bytes per second; 0 before a sample.
    pub delivery_rate: u64,
    /// The window that the peer advertised last, bytes.
    pub snd_wnd: u64,
    /// The window that we advertised last, bytes.
    pub rcv_wnd: u64,
    /// Time since data was last sent.
    pub last_data_sent: Span,
    /// Time since an acceptable segment last arrived.
    pub last_recv: Span,
    /// Counters of its life.
    pub totals: TcpTotals,
}

/// What both ends of a subflow use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TcpOptionsInfo {
    /// Timestamps (`TCPI_OPT_TIMESTAMPS`).
    pub timestamps: bool,
    /// SACK (`TCPI_OPT_SACK`).
    pub sack: bool,
    /// Window scaling (`TCPI_OPT_WSCALE`).
    pub window_scaling: bool,
    /// ECN (`TCPI_OPT_ECN`).
    pub ecn: bool,
    /// The peer's window scale.
    pub snd_wscale: u8,
    /// Ours.
    pub rcv_wscale: u8,
}

/// A subflow's segments in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct InFlightInfo {
    /// Sent and not acknowledged.
    pub unacked: u32,
    /// Of these, selectively acknowledged.
    pub sacked: u32,
    /// Of these, judged lost.
    pub lost: u32,
    /// Retransmissions in flight.
    pub retrans: u32,
}

/// Counters of a subflow's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TcpTotals {
    /// Segments sent.
    pub segs_out: u64,
    /// Segments received.
    pub segs_in: u64,
    /// Segments with data sent for the first time.
    pub data_segs_out: u64,
    /// Segments retransmitted.
    pub total_retrans: u64,
    /// Segments delivered.
    pub delivered: u64,
    /// Payload bytes sent, repeats included.
    pub bytes_sent: u64,
    /// Payload bytes sent again.
    pub bytes_retrans: u64,
    /// Payload bytes acknowledged.
    pub bytes_acked: u64,
    /// Payload bytes received in order.
    pub bytes_received: u64,
    /// Retransmission timeouts.
    pub total_rto: u64,
    /// Segments that filled a gap in what was received half a round trip or more after it came about, and
    /// aren't older than what came meanwhile: about as many were lost on their way here. Not in the kernel's
    /// `tcp_info`.
    pub late_gaps_filled: u64,
}

impl<P: Payload> Tcb<P> {
    /// Its state now.
    pub(crate) fn info(&self, now: Time, tcp: &TcpConfig, metrics: &SubflowMetrics) -> TcpInfo {
        let common = &self.common;
        let (negotiated, counters) = (&common.negotiated, &common.counters);
        let is_opening = matches!(common.state, State::SynSent | State::SynReceived);
        let backoff = if is_opening { self.handshake.timeouts } else { self.sender.backoff() };
        TcpInfo {
            state: common.state,
            ca_state: metrics.ca_state(),
            options: TcpOptionsInfo {
                timestamps: negotiated.timestamps,
                sack: negotiated.sack,
                window_scaling: negotiated.window_scaling,
                ecn: negotiated.ecn,
                snd_wscale: negotiated.peer_shift,
                rcv_wscale: common.advertised_shift(),
            },
            retransmits: if is_opening { self.handshake.timeouts } else { self.sender.timeouts() },
            probes: self.probing.unanswered,
            backoff,
            rto: metrics.rto.saturating_mul(1 << backoff.min(16)).min(tcp.rto.max),
            rtt: metrics.rtt.clone(),
            rcv_rtt: self.receiver.rtt(),
            snd_mss: metrics.mss,
            advmss: common.own_mss(tcp),
            pmtu: self.sender.path_mtu(common),
            snd_ssthresh: metrics.ssthresh(),
            snd_cwnd: metrics.cwnd(),
            in_flight: InFlightInfo {
                unacked: metrics.packets_out(),
                sacked: metrics.sacked_out(),
                lost: metrics.lost_out(),
                retrans: metrics.retrans_out(),
            },
            notsent_bytes: metrics.queued_bytes,
            pacing_rate: metrics.rate.pacing,
            delivery_rate: metrics.rate.delivery,
            snd_wnd: self.sender.peer_window(),
            rcv_wnd: self.receiver.advertised_window(),
            last_data_sent: now.saturating_sub(self.sender.last_sent_at()),
            last_recv: now.saturating_sub(self.probing.received_at),
            totals: TcpTotals {
                segs_out: counters.out_segs,
                segs_in: counters.in_segs,
                data_segs_out: counters.data_segments,
                total_retrans: metrics.totals.retransmitted,
                delivered: metrics.totals.delivered,
                bytes_sent: counters.bytes_sent,
                bytes_retrans: counters.retrans_bytes,
                bytes_acked: metrics.totals.bytes_acked,
                bytes_received: self.receiver.next().saturating_sub(1),
                total_rto: counters.timeouts,
                late_gaps_filled: counters.late_gaps_filled,
            },
        }
    }
}
