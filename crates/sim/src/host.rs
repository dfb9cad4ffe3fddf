//! Hosts of their day: what the TCP of an end does that differs from one system to another. A profile is a
//! list of [`Line`]s, each a key of the scenario's `[ends]` with the value that the system has and the place
//! where it says so. Any key can be set on its own as well.

use ropewalk_engine::Span;
use ropewalk_engine::config::{
    AckCounting, CwndConfig, LossDetection, ReceiveTuning, RecoveryConfig, RtoConfig, SendTuning, TcpConfig,
    WindowLimit,
};
use ropewalk_engine::congestion::{self, CongestionControl};
use ropewalk_engine::registry::Spec;

/// A system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostProfile {
    /// Linux 6.18: what the engine is by default.
    Linux618,
    /// Linux 3.14, the kernel of MPTCP 0.89.
    Linux314,
    /// Linux 4.19, the kernel of MPTCP 0.95.
    Linux419,
    /// ns-3.19 to ns-3.22: the TCP of its Multipath TCP models.
    Ns3,
}

/// How a buffer's size is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counting {
    /// In bytes of payload.
    Payload,
    /// In bytes of memory, as Linux's `truesize` has them.
    Memory,
}

/// What differs from system to system, beside the numbers of [`EndSpec`](crate::EndSpec).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Host {
    /// Which one.
    pub profile: HostProfile,
    /// How losses are found with SACK.
    pub loss_detection: LossDetection,
    /// In recovery holes that aren't marked as lost are retransmitted too.
    pub forward_retransmit: bool,
    /// A DATA_ACK counts before its segment's subflow acknowledgement, and new data is scheduled in between.
    pub data_ack_first: bool,
    /// With `data_ack_first`: subflows' own windows count too.
    pub subflow_windows: bool,
    /// DSNs on data have 32 bits.
    pub short_dsn: bool,
    /// New data needs a whole segment's room in the peer's window.
    pub whole_segments: bool,
    /// Early retransmit (RFC 5827).
    pub early_retransmit: bool,
    /// Tail loss probes.
    pub tail_loss_probe: bool,
    /// F-RTO and undo.
    pub undo: bool,
    /// Selective acknowledgements.
    pub sack: bool,
    /// Timestamps.
    pub timestamps: bool,
    /// A timeout leaves one segment of window.
    pub loss_window_one: bool,
    /// PRR always starts slowly below the threshold.
    pub prr_slow_start: bool,
    /// When the window counts as the limit.
    pub window_limit: WindowLimit,
    /// What congestion control counts of an ACK.
    pub ack_counting: AckCounting,
    /// Whether the window restarts after an idle time.
    pub idle_restart: bool,
    /// Tick of the clock for round-trip times; 0: none.
    pub rtt_tick: Span,
    /// Segments that the first receive window offers; 0: 64 KiB. Where
    /// [`initial_receive_space`](Self::initial_receive_space) is no more than 64 KiB this is Multipath TCP's
    /// alone, and plain TCP's is 64 KiB.
    pub initial_receive_window: u32,
    /// What a growing receive buffer offers at most before anything was read, bytes of payload.
    pub initial_receive_space: u64,
    /// Slow start threshold of a new connection, segments; `u32::MAX`: none.
    pub initial_threshold: u32,
    /// How long an ACK may wait.
    pub delayed_ack: Span,
    /// ACKs sent at once at a connection's start.
    pub quick_acks: u32,
    /// ACKs leave as in MPTCP 0.8x and 0.9x: they wait while the window that they offer is smaller than the
    /// last.
    pub old_acks: bool,
    /// How buffers are counted.
    pub counting: Counting,
    /// When, and to what size, a receive buffer grows.
    pub receive_tuning: ReceiveTuning,
    /// What the size of a growing send buffer follows.
    pub send_tuning: SendTuning,
    /// 0: [`Self::counting`] says what the send buffer's size counts. Otherwise it counts memory, and this is
    /// the memory of one full segment in the buffer, bytes.
    pub send_segment_memory: u32,
    /// What
    /// [`receive_segment_memory`](ropewalk_engine::config::ConnectionConfig::receive_segment_memory)
    /// is.
    pub receive_segment_memory: u32,
    /// What `cubic` means: the control's preset; empty: RFC 9438.
    pub cubic: &'static str,
}

impl Host {
    /// The engine's defaults.
    pub const LINUX_6_18: Host = Host {
        profile: HostProfile::Linux618,
        loss_detection: LossDetection::Rack,
        forward_retransmit: false,
        data_ack_first: false,
        subflow_windows: false,
        short_dsn: false,
        whole_segments: false,
        early_retransmit: false,
        tail_loss_probe: true,
        undo: true,
        sack: true,
        timestamps: true,
        loss_window_one: false,
        prr_slow_start: false,
        window_limit: WindowLimit::PerWindow,
        ack_counting: AckCounting::Segments,
        idle_restart: true,
        rtt_tick: Span::ZERO,
        initial_receive_window: 0,
        initial_receive_space: 64 << 10,
        initial_threshold: u32::MAX,
        delayed_ack: Span::from_millis(40),
        quick_acks: 16,
        old_acks: false,
        counting: Counting::Payload,
        receive_tuning: ReceiveTuning::Longest,
        send_tuning: SendTuning::OwnWindow,
        send_segment_memory: 0,
        receive_segment_memory: 0,
        cubic: "",
    };

    /// Linux 3.14.
    ///
    /// Compared with `net/ipv4/tcp_cong.c` and `tcp_cubic.c` of MPTCP 0.89.4 (Linux 3.14;
    /// mingit/mstcpV0.89.4_linux at 14605ad4) and with `tcp_input.c` and `tcp_output.c` of the fork's tree
    /// before it (Linux 3.12; multipath-tcp/mptcp_3.12.x at 1808ad3f and 2ebb5143). What Linux 3.13 and 3.14
    /// changed in these two files was not compared.
    ///
    /// | line | compared with | where the engine differs |
    /// |---|---|---|
    /// | `loss-detection` | `tcp_time_to_recover`, `tcp_update_scoreboard`, `tcp_mark_head_lost`, `tcp_mark_lost_retrans`, `tcp_update_reordering`, `tcp_enter_loss` | none found |
    /// | `early-retransmit` | `tcp_time_to_recover`, `tcp_pause_early_retransmit` | none found |
    /// | `loss-window` | `tcp_enter_loss` | none found |
    /// | F-RTO and undo (`undo`, no line: as today) | `tcp_process_loss`, `tcp_try_undo_loss`, `tcp_try_undo_partial`, `tcp_undo_cwnd_reduction`, `tcp_enter_loss` | none found |
    /// | `prr` | `tcp_cwnd_reduction` | none found |
    /// | tail loss probes (no line: as today) | `tcp_schedule_loss_probe`, `tcp_send_loss_probe` | none found: they wait for a round-trip sample, and don't count as retransmissions when a timeout's undo is given up |
    /// | `window-limit` | `tcp_is_cwnd_limited`, `tcp_cwnd_validate`, `tcp_cwnd_restart` | The kernel's largest burst is half of the peer's largest window at most, too (`tcp_bound_to_half_wnd`) |
    /// | `ack-counting` | `tcp_slow_start`, `tcp_cong_avoid_ai`, `tcp_reno_cong_avoid`, `tcp_may_raise_cwnd` | The kernel lets the window grow before it looks for losses, the engine after |
    /// | `rtt-tick` | `tcp_rtt_estimator` | none found |
    /// | `initial-receive-window` | `tcp_default_init_rwnd`, `tcp_select_initial_window`, `tcp_grow_window` | none found |
    /// | `initial-receive-space` | `tcp_fixup_rcvbuf`, `mptcp_init_buffer_space` | none found: a subflow that joins adds its own; the factor of four where buffers grow came with 3.13, which was not read |
    /// | `send-segment-memory`, `checksum` | `mptcp_select_size`, `mptcp_can_sg`, `sysctl_mptcp_checksum` | none found: DSS checksums are on by default, and a segment is then one linear buffer of 4096 bytes and an `sk_buff` of 256. Plain TCP has no DSS, and counts as `buffers` says |
    /// | `send-tuning` | `tcp_new_space`, `mptcp_check_snd_buf`, `mptcp_should_expand_sndbuf`, `mptcp_update_sndbuf` | The engine adds 4096 bytes to the sum over subflows |
    /// | `receive-tuning` | `tcp_rcv_space_adjust` of 3.12, and of later trees in other forks; `mptcp_check_rtt` | none found |
    /// | `receive-segment-memory` | `tcp_space`, `__mptcp_select_window`, `mptcp_queue_skb`, `mptcp_add_meta_ofo_queue` | A network card's buffers: from veth a segment comes in the sender's, 4352 bytes. The fork's 3.12 tree doesn't count what is out of order at connection level, its later trees do, as here. A card's driver, or coalescing, may make it less |
    /// | `cubic` | `hystart_update`, `bictcp_update`, `bictcp_cong_avoid`, `bictcp_acked` | The kernel computes the increase anew only every 31 ms while the window stays the same, and rounds it to whole ACKs |
    /// | `forward-retransmit` | `tcp_xmit_retransmit_queue`, `tcp_can_forward_retransmit` | none found |
    /// | `data-ack`, `whole-segments` | `mptcp_handle_options`, `mptcp_data_ack`, `mptcp_next_segment`, `mptcp_is_available` | The round robin module leaves the subflow's window out of account, as here |
    /// | `acks` | `__tcp_ack_snd_check`, `tcp_grow_window`, `tcp_measure_rcv_mss`, `mptcp_cleanup_rbuf`, `mptcp_select_ack_sock` | none found |
    /// | initial window of 10 (no line: as today) | `tcp_init_cwnd` | none found |
    pub const LINUX_3_14: Host = Host {
        profile: HostProfile::Linux314,
        loss_detection: LossDetection::DuplicateAcks,
        forward_retransmit: true,
        data_ack_first: true,
        subflow_windows: true,
        short_dsn: true,
        whole_segments: true,
        early_retransmit: true,
        loss_window_one: true,
        prr_slow_start: true,
        window_limit: WindowLimit::PerAck,
        ack_counting: AckCounting::OneInAvoidance,
        rtt_tick: Span::from_millis(4),
        old_acks: true,
        initial_receive_window: 20,
        initial_receive_space: 187_200,
        counting: Counting::Memory,
        receive_tuning: ReceiveTuning::LongestInSteps,
        send_tuning: SendTuning::LongestRoundTrip,
        send_segment_memory: 4352,
        receive_segment_memory: 2304,
        cubic: "linux-3.14",
        ..Host::LINUX_6_18
    };

    /// Linux 4.19 with MPTCP 0.95.
    ///
    /// Its TCP is that of today (RACK, PRR, `is_cwnd_limited` per window of data) but for CUBIC and what
    /// concerns buffers, which are counted in memory, half of it window. Compared with MPTCP 0.95.2's
    /// completion times, and its `mptcp_sched.c`, `mptcp_ecf.c` and `mptcp_blest.c`.
    pub const LINUX_4_19: Host = Host {
        profile: HostProfile::Linux419,
        data_ack_first: true,
        short_dsn: true,
        whole_segments: true,
        old_acks: true,
        initial_receive_window: 20,
        counting: Counting::Memory,
        send_tuning: SendTuning::LongestRoundTrip,
        send_segment_memory: 2304,
        receive_segment_memory: 2304,
        cubic: "linux-4.19",
        ..Host::LINUX_6_18
    };

    /// ns-3.19 to ns-3.22.
    ///
    /// `ack-counting` and `loss-window` were compared with `TcpNewReno::NewAck` and `Retransmit` of ns-3.18's
    /// `src/internet/model/tcp-newreno.cc` (talau/ns-3.18-wifi-queue-red at 5d2ccbab): each ACK that advances
    /// adds a segment below the threshold, and the share of one above it, however much it acknowledges.
    /// Differences that have no line: `DupAck` sends nothing new on the first two duplicates
    /// (`LimitedTransmit` is off; RFC 3042 is on here), and after a full ACK the window is at most what is in
    /// flight and a segment. The other lines are from the names that they give, not compared.
    pub const NS_3: Host = Host {
        profile: HostProfile::Ns3,
        tail_loss_probe: false,
        undo: false,
        sack: false,
        timestamps: false,
        loss_window_one: true,
        ack_counting: AckCounting::One,
        idle_restart: false,
        rtt_tick: Span::ZERO,
        // 65,535 bytes in segments of a packet of 1500 bytes.
        initial_threshold: 45,
        delayed_ack: Span::from_millis(200),
        quick_acks: 0,
        ..Host::LINUX_6_18
    };

    /// A subflow's settings but for those of [`EndSpec`](crate::EndSpec).
    pub(crate) fn tcp(&self) -> TcpConfig {
        TcpConfig {
            sack: self.sack,
            timestamps: self.timestamps,
            delayed_ack: self.delayed_ack,
            quick_acks: self.quick_acks,
            old_acks: self.old_acks,
            initial_receive_window: self.initial_receive_window,
            cwnd: CwndConfig {
                initial_ssthresh: self.initial_threshold,
                idle_restart: self.idle_restart,
                window_limit: self.window_limit,
                ack_counting: self.ack_counting,
                ..CwndConfig::default()
            },
            rto: RtoConfig { rtt_tick: self.rtt_tick, ..RtoConfig::default() },
            recovery: RecoveryConfig {
                loss_detection: self.loss_detection,
                forward_retransmit: self.forward_retransmit,
                early_retransmit: self.early_retransmit,
                tail_loss_probe: self.tail_loss_probe,
                undo: self.undo,
                loss_window_one: self.loss_window_one,
                prr_slow_start: self.prr_slow_start,
            },
            ..TcpConfig::default()
        }
    }

    /// Thousandths of the send buffer that are payload. A segment of 1448 bytes takes a buffer's head of 1024
    /// bytes and its descriptor of 256 beside its pages.
    pub(crate) fn send_share(&self) -> u64 {
        if self.counting == Counting::Payload { 1000 } else { 1000 * 1448 / (1448 + 1280) }
    }

    /// Thousandths of the receive buffer that are offered as window: half, by `tcp_adv_win_scale` = 1.
    pub(crate) fn receive_share(&self) -> u64 {
        if self.counting == Counting::Payload { 1000 } else { 500 }
    }

    /// The congestion control that a name stands for on this host.
    pub(crate) fn congestion(&self, named: &Spec<dyn CongestionControl>) -> Spec<dyn CongestionControl> {
        if named.text != "cubic" || self.cubic.is_empty() {
            return named.clone();
        }
        congestion::builtin().parse(&format!("cubic:{}", self.cubic)).unwrap_or_else(|_| named.clone())
    }
}

/// A line of a profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line {
    /// The key of `[ends]`.
    pub key: &'static str,
    /// Its value, as TOML.
    pub value: &'static str,
    /// That of Linux 6.18.
    pub today: &'static str,
    /// Where the source of that system says so.
    pub source: &'static str,
}

const fn line(key: &'static str, value: &'static str, today: &'static str, source: &'static str) -> Line {
    Line { key, value, today, source }
}

/// Profiles by name, with their lines: where they differ from Linux 6.18.
pub const HOSTS: &[(&str, HostProfile, &[Line])] = &[
    ("linux-6.18", HostProfile::Linux618, &[]),
    (
        "linux-3.14",
        HostProfile::Linux314,
        &[
            line(
                "path-manager",
                "\"linux\"",
                "\"ropewalk\"",
                "no path manager closes a subflow whose path is silent; tcp_timer.c: tcp_write_timeout, \
                 tcp_retries2 = 15",
            ),
            line(
                "loss-detection",
                "\"duplicate-acks\"",
                "\"rack\"",
                "tcp_input.c: tcp_time_to_recover, tcp_update_scoreboard, tcp_update_reordering; tcp_fack = \
                 1",
            ),
            line("early-retransmit", "true", "false", "tcp_early_retrans = 3 (ip-sysctl.txt)"),
            line(
                "forward-retransmit",
                "true",
                "false",
                "tcp_output.c: tcp_xmit_retransmit_queue, tcp_can_forward_retransmit",
            ),
            line(
                "data-ack",
                "\"first-by-window\"",
                "\"with-ack\"",
                "mptcp_input.c: mptcp_handle_options, mptcp_data_ack; mptcp_sched.c: mptcp_is_available",
            ),
            line(
                "whole-segments",
                "true",
                "false",
                "mptcp_sched.c: mptcp_next_segment; tcp_output.c: tcp_snd_wnd_test",
            ),
            line("dsn", "\"32-bit\"", "\"64-bit\"", "mptcp_output.c: mptcp_write_dss_mapping"),
            line(
                "acks",
                "\"linux-3.14\"",
                "\"linux-6.18\"",
                "tcp_input.c: __tcp_ack_snd_check, tcp_measure_rcv_mss; mptcp_output.c: mptcp_cleanup_rbuf",
            ),
            line("loss-window", "\"one\"", "\"in-flight\"", "tcp_input.c: tcp_enter_loss"),
            line("prr", "\"slow-start\"", "\"conservative\"", "tcp_input.c: tcp_cwnd_reduction"),
            line("window-limit", "\"per-ack\"", "\"per-window\"", "tcp_cong.c: tcp_is_cwnd_limited"),
            line(
                "ack-counting",
                "\"one-in-avoidance\"",
                "\"segments\"",
                "tcp_cong.c: tcp_slow_start, tcp_cong_avoid_ai; mptcp_coupled.c, mptcp_olia.c",
            ),
            line(
                "rtt-tick",
                "\"4 ms\"",
                "\"0 s\"",
                "tcp_input.c: tcp_rtt_estimator in jiffies; Ubuntu's HZ = 250",
            ),
            line(
                "initial-receive-window",
                "20",
                "0",
                "tcp_output.c: tcp_default_init_rwnd, tcp_select_initial_window; tcp_input.c: \
                 tcp_grow_window",
            ),
            line(
                "initial-receive-space",
                "\"187200 B\"",
                "\"64 KiB\"",
                "tcp_input.c: tcp_fixup_rcvbuf: 160 packets of 2340 bytes, half of it window",
            ),
            line(
                "buffers",
                "\"memory\"",
                "\"payload\"",
                "tcp_adv_win_scale = 1; sk_wmem_queued counts truesize (include/net/sock.h)",
            ),
            line(
                "receive-tuning",
                "\"longest-in-steps\"",
                "\"longest\"",
                "tcp_input.c: tcp_rcv_space_adjust, since Linux 3.13",
            ),
            line(
                "receive-segment-memory",
                "\"2304 B\"",
                "\"0 B\"",
                "tcp.h: tcp_space; a packet of 1,500 bytes in a network card's buffer of 2048, and 256 for \
                 the descriptor",
            ),
            line("checksum", "true", "false", "mptcp_ctrl.c: sysctl_mptcp_checksum = 1"),
            line(
                "send-segment-memory",
                "\"4352 B\"",
                "\"0 B\"",
                "mptcp.h: mptcp_can_sg; tcp.c: sk_stream_alloc_skb: 4096 bytes in one piece, and 256 for \
                 the descriptor",
            ),
            line(
                "send-tuning",
                "\"longest-round-trip\"",
                "\"own-window\"",
                "mptcp_ctrl.c: mptcp_update_sndbuf; mptcp.h: mptcp_check_snd_buf; mptcp_output.c: \
                 mptcp_should_expand_sndbuf",
            ),
            line("cubic", "\"linux-3.14\"", "\"rfc\"", "tcp_cubic.c: hystart_update, bictcp_clock"),
        ],
    ),
    (
        "linux-4.19",
        HostProfile::Linux419,
        &[
            line(
                "path-manager",
                "\"linux\"",
                "\"ropewalk\"",
                "no path manager closes a subflow whose path is silent; tcp_timer.c: tcp_write_timeout, \
                 tcp_retries2 = 15",
            ),
            line(
                "data-ack",
                "\"first\"",
                "\"with-ack\"",
                "mptcp_input.c: mptcp_handle_options, mptcp_data_ack; mptcp_sched.c: mptcp_is_available",
            ),
            line(
                "whole-segments",
                "true",
                "false",
                "mptcp_sched.c: mptcp_next_segment; tcp_output.c: tcp_snd_wnd_test",
            ),
            line("dsn", "\"32-bit\"", "\"64-bit\"", "mptcp_output.c: mptcp_write_dss_mapping"),
            line(
                "acks",
                "\"linux-3.14\"",
                "\"linux-6.18\"",
                "tcp_input.c: __tcp_ack_snd_check, tcp_measure_rcv_mss; mptcp_output.c: mptcp_cleanup_rbuf",
            ),
            line(
                "initial-receive-window",
                "20",
                "0",
                "completion times; Multipath TCP only: the window that each arrival opens by two segments",
            ),
            line(
                "buffers",
                "\"memory\"",
                "\"payload\"",
                "tcp_adv_win_scale = 1; sk_wmem_queued counts truesize (include/net/sock.h)",
            ),
            line(
                "receive-segment-memory",
                "\"2304 B\"",
                "\"0 B\"",
                "tcp.h: tcp_space; a packet of 1,500 bytes in 2048, and 256",
            ),
            line("checksum", "true", "false", "mptcp_ctrl.c: sysctl_mptcp_checksum = 1"),
            line(
                "send-segment-memory",
                "\"2304 B\"",
                "\"0 B\"",
                "mptcp.h: mptcp_can_sg; 4352 B where MAX_TCP_HEADER is 304",
            ),
            line(
                "send-tuning",
                "\"longest-round-trip\"",
                "\"own-window\"",
                "mptcp_ctrl.c: mptcp_update_sndbuf; mptcp.h: mptcp_check_snd_buf",
            ),
            line("cubic", "\"linux-4.19\"", "\"rfc\"", "tcp_cubic.c: hystart_update, bictcp_cong_avoid"),
        ],
    ),
    (
        "ns-3",
        HostProfile::Ns3,
        &[
            line(
                "path-manager",
                "\"linux\"",
                "\"ropewalk\"",
                "none: a silent subflow waits for its retransmission timer",
            ),
            line("initial-window", "1", "10", "ns-3.19: TcpSocket::InitialCwnd"),
            line(
                "initial-threshold",
                "45",
                "0",
                "ns-3.19: TcpSocket::InitialSlowStartThreshold is 65,535 bytes (unlimited since ns-3.23)",
            ),
            line("send-buffer", "\"128 KiB\"", "\"4 MiB\"", "ns-3.19: TcpSocket::SndBufSize"),
            line("receive-buffer", "\"128 KiB\"", "\"6 MiB\"", "ns-3.19: TcpSocket::RcvBufSize"),
            line("autotune", "false", "true", "ns-3.19: buffers have one size"),
            line(
                "delayed-ack",
                "\"200 ms\"",
                "\"40 ms\"",
                "ns-3.19: TcpSocket::DelAckTimeout, DelAckCount = 2",
            ),
            line("quick-acks", "0", "16", "ns-3.19: TcpSocketBase has no quick ACKs"),
            line("min-rto", "\"1 s\"", "\"200 ms\"", "ns-3.19: RttEstimator::MinRTO"),
            line("sack", "false", "true", "ns-3 has selective acknowledgements since ns-3.27"),
            line("timestamps", "false", "true", "ns-3 has timestamps since ns-3.22"),
            line("tail-loss-probe", "false", "true", "ns-3.19: TcpSocketBase has none"),
            line("undo", "false", "true", "ns-3.19: TcpSocketBase has none"),
            line("loss-window", "\"one\"", "\"in-flight\"", "ns-3.19: TcpNewReno::Retransmit"),
            line("ack-counting", "\"one\"", "\"segments\"", "ns-3.19: TcpNewReno::NewAck"),
            line("idle-restart", "false", "true", "ns-3.19: TcpSocketBase doesn't restart"),
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_the_engines() {
        assert_eq!(Host::LINUX_6_18.tcp(), TcpConfig::default());
        assert_eq!((Host::LINUX_6_18.send_share(), Host::LINUX_6_18.receive_share()), (1000, 1000));
    }

    /// `SKB_TRUESIZE` as `sk_stream_alloc_skb` has it for a segment in a linear buffer: payload,
    /// MAX_TCP_HEADER and skb_shared_info, rounded up to a power of two, and the `sk_buff`.
    #[test]
    fn a_segment_with_a_checksum_takes_a_page() {
        const MAX_TCP_HEADER: u32 = 128 + 128 + 48;
        const SHARED_INFO: u32 = 320;
        const DESCRIPTOR: u32 = 256;
        let memory = (1428 + MAX_TCP_HEADER + SHARED_INFO).next_power_of_two() + DESCRIPTOR;
        assert_eq!(Host::LINUX_3_14.send_segment_memory, memory);
        assert_eq!(Host::LINUX_3_14.receive_segment_memory, 2048 + DESCRIPTOR);
    }

    #[test]
    fn memory_is_about_twice_the_payload() {
        assert_eq!((Host::LINUX_3_14.send_share(), Host::LINUX_3_14.receive_share()), (530, 500));
    }

    /// `tcp_fixup_rcvbuf` of Linux 3.14: twice SKB_TRUESIZE(mss + MAX_TCP_HEADER) for each of 20 segments,
    /// four times where buffers grow; `tcp_adv_win_scale` = 1 makes half of it window.
    #[test]
    fn the_first_buffer_is_what_the_kernel_computes() {
        const SKB: u64 = 256 + 320;
        const MAX_TCP_HEADER: u64 = 128 + 128 + 48;
        let memory =
            4 * 2 * (1460 + MAX_TCP_HEADER + SKB) * u64::from(Host::LINUX_3_14.initial_receive_window);
        assert_eq!(Host::LINUX_3_14.initial_receive_space, memory / 2);
        assert_eq!(
            Host::LINUX_3_14.tcp().initial_receive_window,
            2 * Host::LINUX_3_14.tcp().cwnd.initial_window
        );
    }

    #[test]
    fn cubic_is_the_hosts_and_other_controls_are_as_named() {
        let named = |text: &str| congestion::builtin().parse(text).unwrap();
        assert_eq!(Host::LINUX_3_14.congestion(&named("cubic")).text, "cubic:linux-3.14");
        assert_eq!(Host::LINUX_6_18.congestion(&named("cubic")).text, "cubic");
        for text in ["lia", "cubic:linux", "cubic(c=0.3)"] {
            assert_eq!(Host::LINUX_3_14.congestion(&named(text)).text, named(text).text);
        }
    }
}
