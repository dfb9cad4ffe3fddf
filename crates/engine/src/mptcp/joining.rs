//! Which joins are opened, and which of our addresses are announced (RFC 8684 3.2, 3.4): the path manager's
//! rules. They read the settings, the handshake and the subflows, and change only what the path manager
//! remembers.

use std::net::SocketAddr;

use ropewalk_wire::{AddAddr, Payload};

use super::handshake::Handshake;
use super::path_manager::{JOIN_RETRIES, JoinRequest, PathManager};
use super::subflow::Subflow;
use super::subflow_table::SubflowTable;
use crate::config::{LocalEndpoint, PathManagerConfig};
use crate::metrics::{SubflowMetrics, SubflowStatus};
use crate::{PathId, Time};

/// What the rules work with.
pub(crate) struct Joining<'a, P> {
    pub config: &'a PathManagerConfig,
    pub handshake: &'a Handshake<P>,
    pub subflows: &'a SubflowTable<P>,
    pub path_manager: &'a mut PathManager,
}

/// A join from one of our addresses.
fn join_from(endpoint: &LocalEndpoint, remote: SocketAddr, remote_id: u8) -> JoinRequest {
    JoinRequest {
        path: endpoint.path,
        local: SocketAddr::new(endpoint.address, 0),
        remote,
        local_id: endpoint.id,
        remote_id,
        backup: endpoint.backup,
        attempt: 0,
        early: false,
    }
}

impl<P: Payload> Joining<'_, P> {
    /// Asks for a join. Returns whether the limits admit it.
    pub fn request(&mut self, request: JoinRequest) -> bool {
        // One in place of the first is always allowed.
        let limit = self.config.subflows.max(u8::from(self.subflows.live() == 0));
        self.handshake.is_multipath()
            && !self.subflows.is_failing()
            && self.path_manager.request_join(request, limit)
    }

    /// Our other addresses from which subflows are opened.
    fn other_endpoints(&self) -> Vec<LocalEndpoint> {
        let first = self.subflows.first_tuple().map(|tuple| tuple.src);
        let is_other =
            |endpoint: &&LocalEndpoint| endpoint.subflow && first.is_some_and(|src| src != endpoint.address);
        self.config.endpoints.iter().filter(is_other).copied().collect()
    }

    /// Joins from our other addresses to the peer's first one. Returns whether there are any.
    #[cold]
    pub fn open_all(&mut self) -> bool {
        //= RFC 8684 3.1-14
        if self.handshake.denies_joins() || !self.handshake.is_multipath() {
            return false;
        }
        let Some(tuple) = self.subflows.first_tuple() else { return false };
        let mut any = false;
        for endpoint in self.other_endpoints() {
            if endpoint.address.is_ipv4() == tuple.dst.is_ipv4() {
                let early = !self.handshake.is_confirmed();
                //= RFC 8684 3.9.1-1 3.9.1-2
                let request = join_from(&endpoint, tuple.destination(), 0);
                any |= self.request(JoinRequest { early, ..request });
            }
        }
        any
    }

    /// Asks for a subflow like the one that was lost, and for those from our other addresses. Returns whether
    /// there are any.
    #[cold]
    pub fn reopen(&mut self, index: usize) -> bool {
        let Some(subflow) = self.subflows.get(index) else { return false };
        let tuple = subflow.tcp.tuple();
        let mut local = tuple.source();
        local.set_port(0);
        let again = JoinRequest {
            path: self.subflows.metrics()[index].path,
            local,
            remote: tuple.destination(),
            local_id: subflow.local_id,
            remote_id: subflow.remote_id,
            backup: subflow.backup_local,
            attempt: 0,
            early: false,
        };
        //= RFC 8684 3.1-14
        let may_join = !(self.handshake.denies_joins() && again.remote_id == 0);
        let again = may_join && self.request(again);
        self.open_all() || again
    }

    /// The peer has announced an address: joins to it. Returns whether there are any.
    #[cold]
    pub fn join_announced(&mut self, add: &AddAddr) -> bool {
        let first = self.subflows.first_tuple();
        //= RFC 8684 3.4.1-5
        let port = add.port.unwrap_or_else(|| first.map_or(0, |tuple| tuple.dst_port));
        let address = SocketAddr::new(add.address, port);
        if !self.path_manager.learn_address(add.address_id, address, self.config.add_addr_accepted) {
            return false;
        }
        let reaches = |(subflow, metrics): (&Subflow<P>, &SubflowMetrics)| {
            metrics.state != SubflowStatus::Closed && subflow.tcp.tuple().destination() == address
        };
        // As in Linux, a subflow to it is enough.
        if self.subflows.with_metrics().any(reaches) {
            return false;
        }
        let Some(tuple) = first else { return false };
        //= RFC 8684 3.4.1-9 not tried again
        let attempt = JOIN_RETRIES;
        if tuple.src.is_ipv4() == address.is_ipv4() {
            return self.request(JoinRequest {
                path: self.subflows.metrics().first().map_or(PathId(0), |metrics| metrics.path),
                local: SocketAddr::new(tuple.src, 0),
                remote: address,
                local_id: 0,
                remote_id: add.address_id,
                backup: false,
                attempt,
                early: false,
            });
        }
        let mut any = false;
        for endpoint in self.other_endpoints() {
            if endpoint.address.is_ipv4() == address.is_ipv4() {
                let request = join_from(&endpoint, address, add.address_id);
                any |= self.request(JoinRequest { attempt, ..request });
            }
        }
        any
    }

    /// Announces our addresses that are marked so. Returns whether some aren't echoed yet.
    #[cold]
    pub fn announce(&mut self, now: Time) -> bool {
        let Some(tuple) = self.subflows.first_tuple() else { return false };
        if !self.handshake.is_multipath() {
            return false;
        }
        for endpoint in self.config.endpoints.iter().filter(|endpoint| endpoint.signal) {
            //= RFC 8684 3.4.1-2 3.4.1-10 3.4.1-12 each id once, until it is removed
            if endpoint.address == tuple.src || self.path_manager.has_announced(endpoint.id) {
                continue;
            }
            let option = AddAddr {
                echo: false,
                address_id: endpoint.id,
                address: endpoint.address,
                port: endpoint.port,
                hmac: self.handshake.add_addr_hmac(endpoint),
            };
            self.path_manager.announce(now, option);
        }
        self.path_manager.has_unechoed()
    }

    //= RFC 8684 3.4.2-1
    /// REMOVE_ADDR for those of these addresses that no subflow uses over another path. Returns whether there
    /// is something to send.
    pub fn remove_addresses(&mut self, mut removed: Vec<u8>) -> bool {
        removed.sort_unstable();
        removed.dedup();
        for id in removed {
            let used = |(subflow, metrics): (&Subflow<P>, &SubflowMetrics)| {
                metrics.state != SubflowStatus::Closed && subflow.local_id == id
            };
            if !self.subflows.with_metrics().any(used) {
                self.path_manager.remove_address(id);
            }
        }
        self.path_manager.has_removals()
    }
}
