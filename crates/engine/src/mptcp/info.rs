//! What a connection and its subflows say of themselves: the kernel's `mptcp_info`, and its
//! `mptcp_subflow_info` with `tcp_info`.

use ropewalk_wire::{FourTuple, Payload};

use super::connection::Connection;
use super::subflow::Subflow;
use crate::config::TcpConfig;
use crate::metrics::{SubflowMetrics, SubflowStatus};
use crate::tcp::TcpInfo;
use crate::{PathId, Span, SubflowId, Time};

/// A connection's state as of a moment: the kernel's `mptcp_info` (`getsockopt(MPTCP_INFO)`), field for field
/// without the prefix. Sequence numbers are offsets in the stream, from 0. What the engine has no notion of
/// is absent.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ConnectionInfo {
    /// Subflows beside the first.
    pub subflows: u8,
    /// Subflows that there are, the first included.
    pub subflows_total: u8,
    /// Most subflows beside the first.
    pub subflows_max: u8,
    /// Addresses that we announced.
    pub add_addr_signal: u8,
    /// Most announced addresses that are accepted.
    pub add_addr_accepted_max: u8,
    /// The connection is plain TCP (`MPTCP_INFO_FLAG_FALLBACK`).
    pub fallback: bool,
    /// The peer's key is known (`MPTCP_INFO_FLAG_REMOTE_KEY_RECEIVED`).
    pub remote_key_received: bool,
    /// Our token.
    pub token: u32,
    /// End of what the application wrote.
    pub write_seq: u64,
    /// First byte that the peer hasn't acknowledged at connection level.
    pub snd_una: u64,
    /// Next byte expected.
    pub rcv_nxt: u64,
    /// Mappings have checksums.
    pub csum_enabled: bool,
    /// Connection-level timeouts in a row.
    pub retransmits: u32,
    /// Bytes reinjected.
    pub bytes_retrans: u64,
    /// Payload bytes sent on all subflows, repeats included.
    pub bytes_sent: u64,
    /// Bytes received in order.
    pub bytes_received: u64,
    /// Bytes acknowledged at connection level.
    pub bytes_acked: u64,
    /// Bytes written and not given to a subflow.
    pub notsent_bytes: u64,
    /// Bytes out of order.
    pub ofo_bytes: u64,
    /// The window that the peer advertised last, bytes.
    pub snd_wnd: u64,
    /// Size of the send buffer, bytes.
    pub sndbuf: u64,
    /// Size of the receive buffer as a window, bytes.
    pub rcvbuf: u64,
    /// The scheduler.
    pub scheduler: &'static str,
    /// The congestion control.
    pub congestion: &'static str,
}

/// A subflow's state as of a moment.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SubflowInfo {
    /// Which.
    pub id: SubflowId,
    /// On which network.
    pub path: PathId,
    /// Addresses as we send.
    pub tuple: FourTuple,
    /// Where it is in its life.
    pub status: SubflowStatus,
    /// The id of our address.
    pub local_id: u8,
    /// The id of the peer's address.
    pub remote_id: u8,
    /// We asked for it to be a backup.
    pub backup_local: bool,
    /// The peer asked for it to be a backup.
    pub backup_remote: bool,
    /// Time since it was opened.
    pub age: Span,
    /// What TCP says of it.
    pub tcp: TcpInfo,
}

impl<P: Payload> Connection<P> {
    /// The connection's state now.
    pub fn info(&self, now: Time) -> ConnectionInfo {
        let live = self.subflows.live().min(usize::from(u8::MAX)) as u8;
        let stats = self.stats(now);
        let limits = &self.config.path_manager;
        ConnectionInfo {
            subflows: live.saturating_sub(1),
            subflows_total: live,
            subflows_max: limits.subflows,
            add_addr_signal: self.path_manager.announced().min(usize::from(u8::MAX)) as u8,
            add_addr_accepted_max: limits.add_addr_accepted,
            fallback: self.handshake.is_plain(),
            remote_key_received: self.handshake.has_remote_key(),
            token: self.token(),
            write_seq: self.send.written(),
            snd_una: self.send.una(),
            rcv_nxt: self.receive.next(),
            csum_enabled: self.handshake.has_checksums(),
            retransmits: self.send.backoff(),
            bytes_retrans: stats.reinjected_bytes,
            bytes_sent: stats.bytes_by_subflow.iter().sum(),
            bytes_received: self.receive.next(),
            bytes_acked: self.send.una(),
            notsent_bytes: self.send.unsent(),
            ofo_bytes: self.receive.ofo_bytes(),
            snd_wnd: self.send.peer_window(),
            sndbuf: self.send.limit(),
            rcvbuf: self.receive.buffer().limit,
            scheduler: self.scheduling.name(),
            congestion: self.congestion.name(),
        }
    }

    /// A subflow's state now; `None` if it was forgotten.
    pub fn subflow_info(&self, now: Time, subflow: SubflowId) -> Option<SubflowInfo> {
        let metrics = self.subflows.metrics().get(subflow.index())?;
        let state = self.subflows.get(subflow.index())?;
        Some(info_of(now, &self.config.tcp, state, metrics))
    }

    /// The state of every subflow that isn't forgotten; closed ones may be among them.
    pub fn subflow_infos(&self, now: Time) -> impl Iterator<Item = SubflowInfo> + '_ {
        let known = self.subflows.with_metrics();
        known.map(move |(state, metrics)| info_of(now, &self.config.tcp, state, metrics))
    }
}

fn info_of<P: Payload>(
    now: Time,
    config: &TcpConfig,
    state: &Subflow<P>,
    metrics: &SubflowMetrics,
) -> SubflowInfo {
    SubflowInfo {
        id: metrics.id,
        path: metrics.path,
        tuple: state.tcp.tuple(),
        status: metrics.state,
        local_id: state.local_id(),
        remote_id: state.remote_id(),
        backup_local: state.backup_local(),
        backup_remote: state.backup_remote(),
        age: now.saturating_sub(state.since()),
        tcp: state.tcp.info(now, config, metrics),
    }
}
