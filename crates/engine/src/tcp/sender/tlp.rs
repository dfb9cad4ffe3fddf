//! The state of tail loss probes (RFC 8985 7), with Linux's timer: two round trips after the last
//! transmission or ACK, plus the least RTO when a lone segment may meet a delayed ACK.

use super::ack_summary::AckSummary;
use crate::Span;
use crate::config::TcpConfig;
use crate::metrics::SubflowMetrics;

/// What Linux adds to two round trips for the granularity of its timers (`TCP_TIMEOUT_MIN`).
const GRANULARITY: Span = Span::from_millis(2);

/// The probe in flight; there is at most one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Tlp {
    /// TLP.end_seq: SND.NXT when the probe was sent, while there is one.
    end: Option<u64>,
    /// TLP.is_retrans.
    is_retransmission: bool,
}

/// What an ACK says of the probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ProbeAck {
    /// Nothing yet.
    Pending,
    /// It repaired no loss.
    Unneeded,
    /// It repaired a loss.
    Repaired,
}

impl Tlp {
    /// A probe was sent; data up to `end` is in flight.
    pub fn on_sent(end: u64, is_retransmission: bool) -> Self {
        Tlp { end: Some(end), is_retransmission }
    }

    /// Whether a probe is in flight.
    #[inline]
    pub fn is_in_flight(&self) -> bool {
        self.end.is_some()
    }

    /// Whether a DSACK that ends at `end` reports the probe.
    pub fn is_duplicated(&self, end: u64) -> bool {
        self.is_retransmission && self.end == Some(end)
    }

    /// The time until a probe (PTO).
    #[inline]
    pub fn timeout(metrics: &SubflowMetrics, tcp: &TcpConfig) -> Span {
        //= RFC 8985 7.2-a
        let allowance = if metrics.packets_out() == 1 { tcp.rto.min } else { GRANULARITY };
        if metrics.rtt.smoothed == Span::ZERO {
            tcp.rto.initial
        } else {
            2 * metrics.rtt.smoothed + allowance
        }
    }

    /// What an ACK says of the probe (RFC 8985 7.4).
    pub fn on_ack(&self, ack: u64, summary: &AckSummary) -> ProbeAck {
        let Some(end) = self.end.filter(|end| ack >= *end) else { return ProbeAck::Pending };
        if !self.is_retransmission || summary.dsack.is_some_and(|dsack| dsack.end == end) {
            //= RFC 8985 7.4-b
            // New data needs no repair; a DSACK says that the original arrived as well.
            ProbeAck::Unneeded
        } else if ack > end {
            // Data beyond the probe's flight is acknowledged, and no DSACK came: the probe filled a hole.
            ProbeAck::Repaired
        } else if summary.duplicate && !summary.newly_sacked {
            // Original and probe both arrived, at a receiver that sends no DSACK
            // (Linux's `tcp_process_tlp_ack`).
            ProbeAck::Unneeded
        } else {
            ProbeAck::Pending
        }
    }
}
