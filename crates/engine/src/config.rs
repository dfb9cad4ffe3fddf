//! Settings of the engine, with Linux's defaults.

use crate::{MILLISECOND, Nanos, SECOND};

/// Settings of one TCP subflow. The defaults are Linux's, but for Nagle's algorithm, which is off: its
/// place is under a stream of small writes, and here one connection buffers for all its subflows.
#[derive(Clone, PartialEq, Debug)]
pub struct TcpConfig {
    /// Initial congestion window, segments (RFC 6928).
    pub initial_window: u32,
    /// What the retransmission timeout adds to the smoothed round-trip time at least (Linux's
    /// `TCP_RTO_MIN`): RTO = srtt + max(`min_rto`, 4 rttvar).
    pub min_rto: Nanos,
    /// Greatest retransmission timeout, backoff included (`TCP_RTO_MAX`).
    pub max_rto: Nanos,
    /// Retransmission timeout before the first round-trip sample (RFC 6298 2.1).
    pub initial_rto: Nanos,
    /// Least time that an acknowledgement is delayed (`TCP_DELACK_MIN`, `TCP_ATO_MIN`); 0: every segment is
    /// acknowledged at once.
    pub delayed_ack: Nanos,
    /// Most time that an acknowledgement is delayed (`TCP_DELACK_MAX`).
    pub max_delayed_ack: Nanos,
    /// How many acknowledgements at the start, and after a long silence, are not delayed
    /// (`TCP_MAX_QUICKACKS`).
    pub quick_acks: u32,
    /// Nagle's algorithm (RFC 9293 3.7.4), with Minshall's change as in Linux.
    pub nagle: bool,
    /// Offer and use selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// Offer and use timestamps (RFC 7323 3).
    pub timestamps: bool,
    /// Offer and use window scaling (RFC 7323 2).
    pub window_scaling: bool,
    /// Offer and use explicit congestion notification (RFC 3168).
    pub ecn: bool,
    /// Judge losses by RACK (RFC 8985); otherwise by counting (RFC 6675). Needs SACK.
    pub rack: bool,
    /// Send tail loss probes (RFC 8985 7). Needs SACK.
    pub tlp: bool,
    /// Detect spurious timeouts by F-RTO (RFC 5682).
    pub frto: bool,
    /// How long a connection must be idle before it is probed; `None`: never (RFC 9293 3.8.4).
    pub keep_alive: Option<Nanos>,
    /// Time between unanswered keep-alive probes (`tcp_keepalive_intvl`).
    pub keep_alive_interval: Nanos,
    /// Unanswered keep-alive probes that end the connection (`tcp_keepalive_probes`).
    pub keep_alive_probes: u32,
    /// How long TIME-WAIT lasts (twice the maximum segment lifetime; Linux's `TCP_TIMEWAIT_LEN`).
    pub time_wait: Nanos,
    /// How long an orphaned FIN-WAIT-2 lasts (`tcp_fin_timeout`); it starts with the acknowledgement of our
    /// FIN and again with everything that arrives.
    pub fin_timeout: Option<Nanos>,
    /// Retransmissions of a SYN or SYN/ACK before giving up (`tcp_syn_retries`).
    pub syn_retries: u32,
    /// Retransmissions of data, in a row and by timeout, before giving up (`tcp_retries2`).
    pub retries: u32,
    /// Restart the window after idling for an RTO (`tcp_slow_start_after_idle`; RFC 5681 4.1).
    pub idle_restart: bool,
    /// Space the segments out by the pacing rate.
    pub pacing: bool,
    /// Most that the connection will ever advertise, in bytes: the window scale follows from it. The default
    /// is that of `tcp_rmem`, 6 MiB.
    pub max_receive_window: u64,
    /// Bytes, sent and queued, that the subflow's own send queue takes.
    pub send_queue: u64,
}

impl Default for TcpConfig {
    fn default() -> Self {
        TcpConfig {
            initial_window: 10,
            min_rto: 200 * MILLISECOND,
            max_rto: 120 * SECOND,
            initial_rto: SECOND,
            delayed_ack: 40 * MILLISECOND,
            max_delayed_ack: 200 * MILLISECOND,
            quick_acks: 16,
            nagle: false,
            sack: true,
            timestamps: true,
            window_scaling: true,
            ecn: false,
            rack: true,
            tlp: true,
            frto: true,
            keep_alive: None,
            keep_alive_interval: 75 * SECOND,
            keep_alive_probes: 9,
            time_wait: 60 * SECOND,
            fin_timeout: None,
            syn_retries: 6,
            retries: 15,
            idle_restart: true,
            pacing: false,
            max_receive_window: 6 << 20,
            send_queue: u64::MAX,
        }
    }
}
