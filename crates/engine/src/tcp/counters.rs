//! Counters of one subflow, named after Linux's MIB where it has them (`nstat -asz`).

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident = $mib:literal,)*) => {
        /// What happened on one subflow. Each only grows.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct TcpCounters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl TcpCounters {
            /// Linux's names with the values.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$(($mib, self.$name),)*].into_iter()
            }

            /// Adds those of another subflow.
            pub fn add(&mut self, other: &TcpCounters) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    /// Segments received, super-segments counted as one.
    in_segs = "TcpInSegs",
    /// Segments sent, each of a super-segment's counted, without retransmissions only.
    out_segs = "TcpOutSegs",
    /// Segments retransmitted.
    retrans_segs = "TcpRetransSegs",
    /// RSTs sent.
    out_rsts = "TcpOutRsts",
    /// Segments with data or acknowledgement beyond what is valid, discarded.
    in_errs = "TcpInErrs",
    /// Payload bytes received in order.
    in_bytes = "RopewalkTcpInBytes",
    /// Payload bytes sent for the first time.
    out_bytes = "RopewalkTcpOutBytes",
    /// Payload bytes sent again.
    retrans_bytes = "RopewalkTcpRetransBytes",
    /// Retransmission timeouts.
    timeouts = "TcpExtTCPTimeouts",
    /// Tail loss probes sent.
    loss_probes = "TcpExtTCPLossProbes",
    /// Tail loss probes that repaired a loss unseen otherwise.
    loss_probe_recovery = "TcpExtTCPLossProbeRecovery",
    /// Fast retransmissions.
    fast_retrans = "TcpExtTCPFastRetrans",
    /// Retransmissions after a timeout.
    slow_start_retrans = "TcpExtTCPSlowStartRetrans",
    /// Retransmissions judged lost.
    lost_retransmit = "TcpExtTCPLostRetransmit",
    /// Entries into recovery with SACK.
    sack_recovery = "TcpExtTCPSackRecovery",
    /// Entries into recovery without.
    reno_recovery = "TcpExtTCPRenoRecovery",
    /// Recoveries undone because everything retransmitted had arrived already, known from DSACKs.
    dsack_undo = "TcpExtTCPDSACKUndo",
    /// Recoveries undone by timestamps in full.
    full_undo = "TcpExtTCPFullUndo",
    /// Recoveries undone by timestamps at a partial acknowledgement.
    partial_undo = "TcpExtTCPPartialUndo",
    /// Timeouts undone.
    loss_undo = "TcpExtTCPLossUndo",
    /// Timeouts found spurious by F-RTO or timestamps.
    spurious_rtos = "TcpExtTCPSpuriousRTOs",
    /// Reordering seen by SACK.
    sack_reorder = "TcpExtTCPSACKReorder",
    /// Reordering seen by timestamps.
    ts_reorder = "TcpExtTCPTSReorder",
    /// Reordering seen without SACK.
    reno_reorder = "TcpExtTCPRenoReorder",
    /// DSACKs received.
    dsack_recv = "TcpExtTCPDSACKRecv",
    /// DSACKs sent for segments below the window.
    dsack_old_sent = "TcpExtTCPDSACKOldSent",
    /// DSACKs sent for segments above it.
    dsack_ofo_sent = "TcpExtTCPDSACKOfoSent",
    /// Acknowledged ranges that the receiver took back.
    sack_reneging = "TcpExtTCPSACKReneging",
    /// SACK blocks that made no sense.
    sack_discard = "TcpExtTCPSACKDiscard",
    /// Segments queued out of order.
    ofo_queue = "TcpExtTCPOFOQueue",
    /// Out-of-order segments that held nothing new.
    ofo_merge = "TcpExtTCPOFOMerge",
    /// Data that arrived though all of it was there already.
    delayed_ack_lost = "TcpExtDelayedACKLost",
    /// Delayed acknowledgements sent by the timer.
    delayed_acks = "TcpExtDelayedACKs",
    /// Segments refused by PAWS.
    paws_estab = "TcpExtPAWSEstab",
    /// Challenge ACKs (RFC 5961).
    challenge_ack = "TcpExtTCPChallengeACK",
    /// SYNs in synchronized states answered so.
    syn_challenge = "TcpExtTCPSYNChallenge",
    /// Pure ACKs received.
    pure_acks = "TcpExtTCPPureAcks",
    /// Pure ACKs and data taken by the fast path.
    hp_hits = "TcpExtTCPHPHits",
    /// Zero-window and keep-alive probes sent.
    win_probe = "TcpExtTCPWinProbe",
    /// Keep-alive probes sent.
    keep_alive = "TcpExtTCPKeepAlive",
    /// Times the advertised window went to zero.
    to_zero_window_adv = "TcpExtTCPToZeroWindowAdv",
    /// Segments that arrived with congestion experienced.
    in_ce_pkts = "IpExtInCEPkts",
    /// Window reductions that ECN asked for.
    ecn_reductions = "RopewalkTcpEcnReductions",
    /// SYN and SYN/ACK retransmissions.
    syn_retrans = "TcpExtTCPSynRetrans",
    /// Connections given up after too many retransmissions.
    abort_on_timeout = "TcpExtTCPAbortOnTimeout",
    /// Restarts of the window after idle time.
    idle_restarts = "RopewalkTcpIdleRestarts",
}
