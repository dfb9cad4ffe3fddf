//! A subflow's counters, by the names under which Linux shows them (`nstat -asz`, RFC 4022 for the `Tcp`
//! ones).
//!
//! A new one is one line of `counters!`, and `common.counters.FIELD += 1` where it is counted.
//! `Connection::tcp_counters` and `Endpoint::mib` then show it. (`mib` leaves out names that begin with
//! `tcpi_`, and puts `TcpExt` before the others unless they begin with `Tcp`.) What Linux doesn't count gets
//! a name in Linux's style, and its text says so. What algorithms read is in
//! [`SubflowMetrics`](crate::metrics::SubflowMetrics) instead.

use std::ops::{Deref, DerefMut};

macro_rules! counters {
    ($($name:literal $field:ident: $doc:literal,)*) => {
        /// A subflow's own counters. They only grow.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct TcpCounters {
            $(#[doc = concat!($doc, " (`", $name, "`).")] pub $field: u64,)*
        }

        impl TcpCounters {
            const ZERO: TcpCounters = TcpCounters { $($field: 0,)* };

            /// Each with the kernel's name.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$(($name, self.$field),)*].into_iter()
            }
        }

        impl std::ops::AddAssign<&TcpCounters> for TcpCounters {
            fn add_assign(&mut self, other: &TcpCounters) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

counters! {
    "TcpInSegs" in_segs: "Segments received",
    "TcpOutSegs" out_segs: "Segments sent",
    "TcpRetransSegs" retrans_segs: "Data segments sent again",
    "TcpOutRsts" out_rsts: "RSTs sent",
    "TcpEstabResets" estab_resets: "Resets of an open connection, by either side",
    "tcpi_data_segs_out" data_segments: "Data segments sent for the first time",
    "tcpi_bytes_sent" bytes_sent: "Bytes of data sent, repeats included",
    "tcpi_bytes_retrans" retrans_bytes: "Bytes of data sent again",
    "TCPTimeouts" timeouts: "Retransmission timeouts",
    "TCPSpuriousRTOs" spurious_rtos: "Timeouts that F-RTO found spurious",
    "TCPSynRetrans" syn_retrans: "SYNs and SYN/ACKs sent again",
    "TCPLossProbes" loss_probes: "Tail loss probes",
    "TCPLossProbeRecovery" loss_probe_recovery: "Losses that a tail loss probe repaired",
    "TCPFastRetrans" fast_retrans: "Segments sent again outside recovery from a timeout",
    "TCPSlowStartRetrans" slow_start_retrans: "Segments sent again in recovery from a timeout",
    "TCPLostRetransmit" lost_retransmit: "Retransmissions judged lost themselves",
    "TCPSackRecovery" sack_recovery: "Fast recoveries with SACK",
    "TCPRenoRecovery" reno_recovery: "Fast recoveries by duplicate ACKs",
    "TCPFullUndo" full_undo: "Fast recoveries found spurious at their end",
    "TCPPartialUndo" partial_undo: "Fast recoveries found spurious by a partial ACK",
    "TCPDSACKUndo" dsack_undo: "Reductions found spurious by DSACKs",
    "TCPLossUndo" loss_undo: "Recoveries from a timeout found spurious",
    "TCPSACKReneging" sack_reneging: "Times that a receiver dropped what it had sacked",
    "TCPSACKReorder" sack_reorder: "Times that a SACK showed reordering",
    "TCPDSACKRecv" dsack_recv: "DSACKs received for data below the cumulative ACK",
    "TCPDSACKOfoRecv" dsack_ofo_recv: "DSACKs received for data above it",
    "TCPDSACKOldSent" dsack_old_sent: "DSACKs sent for data below the cumulative ACK",
    "TCPDSACKOfoSent" dsack_ofo_sent: "DSACKs sent for data above it",
    "TCPDSACKIgnoredDubious" dsack_ignored: "DSACKs for data that was not sent twice",
    "TCPOFOQueue" ofo_queue: "Segments that arrived out of order",
    "TCPOFODrop" ofo_drop: "Segments that arrived out of order and were dropped, as too much waited",
    "TCPLateGapsFilled" late_gaps_filled: "Segments that filled a gap half a round trip or more \
        after it came about and aren't older than what came meanwhile, as those sent again do: Linux doesn't \
        count them",
    "DelayedACKs" delayed_acks: "ACKs sent by the delayed-ACK timer",
    "DelayedACKLost" delayed_ack_lost: "Duplicates that showed an ACK to be late or lost",
    "TCPWinProbe" window_probes: "Zero-window probes sent",
    "TCPKeepAlive" keep_alives: "Keep-alive probes sent",
    "TCPToZeroWindowAdv" to_zero_window: "Times that our window closed",
    "TCPFromZeroWindowAdv" from_zero_window: "Times that it opened again",
    "TCPChallengeACK" challenge_acks: "Challenge ACKs sent",
    "TCPSYNChallenge" syn_challenge: "SYNs answered with one",
    "TCPACKSkippedChallenge" challenges_skipped: "Challenge ACKs that the rate limit kept back",
    "TCPACKSkippedSeq" ack_skipped_seq: "ACKs of segments outside the window that the rate limit kept back",
    "TCPACKSkippedPAWS" ack_skipped_paws: "ACKs of segments with an old timestamp that the rate limit kept \
                                           back",
    "PAWSEstab" paws_drops: "Segments dropped for an old timestamp",
    "TCPAbortOnTimeout" abort_on_timeout: "Connections given up after too many timeouts",
    "TCPMTUPFail" mtu_fail: "Times that a black hole was suspected",
    "TCPMTUPSuccess" mtu_success: "Times that smaller segments passed it",
}

/// A subflow's counters as it keeps them: those that nearly every segment changes, and the others once one of
/// them counts. Most subflows never need those.
#[derive(Debug, Default)]
pub(super) struct Counting {
    pub in_segs: u64,
    pub out_segs: u64,
    pub data_segments: u64,
    pub bytes_sent: u64,
    others: Option<Box<TcpCounters>>,
}

impl Counting {
    /// All of them.
    pub fn all(&self) -> TcpCounters {
        let Counting { in_segs, out_segs, data_segments, bytes_sent, .. } = *self;
        TcpCounters { in_segs, out_segs, data_segments, bytes_sent, ..**self }
    }
}

impl Deref for Counting {
    type Target = TcpCounters;

    fn deref(&self) -> &TcpCounters {
        self.others.as_deref().unwrap_or(&TcpCounters::ZERO)
    }
}

impl DerefMut for Counting {
    fn deref_mut(&mut self) -> &mut TcpCounters {
        self.others.get_or_insert_default()
    }
}

#[cfg(test)]
mod tests {
    use super::TcpCounters;

    #[test]
    fn each_counter_has_its_own_name_and_value() {
        let counters = TcpCounters { timeouts: 3, loss_probes: 5, ..TcpCounters::default() };
        let find = |name: &str| counters.named().find(|(known, _)| *known == name).map(|(_, value)| value);
        assert_eq!((find("TCPTimeouts"), find("TCPLossProbes")), (Some(3), Some(5)));
        let mut names: Vec<_> = counters.named().map(|(name, _)| name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), counters.named().count());
        let mut sum = counters;
        sum += &counters;
        assert_eq!(sum.timeouts, 6);
    }
}
