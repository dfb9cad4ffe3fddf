//! What a stream tells of its connection.

use bytes::Bytes;
use ropewalk_engine::Time;
use ropewalk_engine::metrics::SubflowStatus;
use ropewalk_engine::mptcp::{Connection, ConnectionInfo, ConnectionStats, SubflowInfo};

/// A connection's state and counters. They change with every packet.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct StreamInfo {
    /// Whether it is Multipath TCP now; plain TCP otherwise.
    pub multipath: bool,
    /// What the kernel's `mptcp_info` tells.
    pub connection: ConnectionInfo,
    /// Its subflows that aren't closed, with what the kernel's `tcp_info` tells of each.
    pub subflows: Vec<SubflowInfo>,
    /// The engine's own counters.
    pub stats: ConnectionStats,
}

impl StreamInfo {
    pub(crate) fn of(connection: &Connection<Bytes>, now: Time) -> StreamInfo {
        let is_open = |one: &SubflowInfo| one.status != SubflowStatus::Closed;
        StreamInfo {
            multipath: connection.is_multipath(),
            connection: connection.info(now),
            subflows: connection.subflow_infos(now).filter(is_open).collect(),
            stats: connection.stats(now),
        }
    }

    /// Subflows that have carried something: their round-trip time is known.
    pub fn measured_subflows(&self) -> usize {
        self.subflows.iter().filter(|one| !one.tcp.rtt.smoothed.is_zero()).count()
    }
}
