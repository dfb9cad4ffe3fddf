//! Which joins are opened, and which of our addresses are announced (RFC 8684 3.2, 3.4): the path manager's
//! rules. They read the settings, the handshake and the subflows, change what the path manager remembers, and
//! request the ACKs that say so.

use std::net::SocketAddr;

use ropewalk_wire::{AddAddr, Payload};

use super::connection::Connection;
use super::deadlines::{Deadline, Deadlines};
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
    pub subflows: &'a mut SubflowTable<P>,
    pub path_manager: &'a mut PathManager,
    pub deadlines: &'a mut Deadlines,
    pub may_transmit: &'a mut bool,
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

impl<'a, P: Payload> Joining<'a, P> {
    /// Those of a connection.
    pub fn of(connection: &'a mut Connection<P>) -> Self {
        Joining {
            config: &connection.config.path_manager,
            handshake: &connection.handshake,
            subflows: &mut connection.subflows,
            path_manager: &mut connection.path_manager,
            deadlines: &mut connection.deadlines,
            may_transmit: &mut connection.may_transmit,
        }
    }

    /// Asks for a join, if the limits admit it.
    pub fn request(&mut self, request: JoinRequest) {
        // One in place of the first is always allowed.
        let limit = self.config.subflows.max(u8::from(self.subflows.live() == 0));
        // After a failed checksum the stream may go on as plain TCP, which has one subflow (RFC 8684 3.7).
        *self.may_transmit |= self.handshake.is_multipath()
            && !self.subflows.is_failing()
            && self.path_manager.request_join(request, limit);
    }

    /// Our other addresses from which subflows are opened.
    fn other_endpoints(&self) -> Vec<LocalEndpoint> {
        let first = self.subflows.first_tuple().map(|tuple| tuple.src);
        let is_other =
            |endpoint: &&LocalEndpoint| endpoint.subflow && first.is_some_and(|src| src != endpoint.address);
        self.config.endpoints.iter().filter(is_other).copied().collect()
    }

    /// Joins from our other addresses to the peer's first one.
    #[cold]
    pub fn open_all(&mut self) {
        //= RFC 8684 3.1-14
        if self.handshake.denies_joins() || !self.handshake.is_multipath() {
            return;
        }
        let Some(tuple) = self.subflows.first_tuple() else { return };
        for endpoint in self.other_endpoints() {
            if endpoint.address.is_ipv4() == tuple.dst.is_ipv4() {
                let early = !self.handshake.is_confirmed();
                //= RFC 8684 3.9.1-1 3.9.1-2
                let request = join_from(&endpoint, tuple.destination(), 0);
                self.request(JoinRequest { early, ..request });
            }
        }
    }

    /// Asks for a subflow like the one that was lost, and for those from our other addresses.
    #[cold]
    pub fn reopen(&mut self, index: usize) {
        let Some(subflow) = self.subflows.get(index) else { return };
        let tuple = subflow.tcp.tuple();
        let mut local = tuple.source();
        local.set_port(0);
        let again = JoinRequest {
            path: self.subflows.metrics()[index].path,
            local,
            remote: tuple.destination(),
            local_id: subflow.local_id(),
            remote_id: subflow.remote_id(),
            backup: subflow.backup_local(),
            attempt: 0,
            early: false,
        };
        //= RFC 8684 3.1-14
        if !(self.handshake.denies_joins() && again.remote_id == 0) {
            self.request(again);
        }
        self.open_all();
    }

    /// The peer has announced an address: joins to it.
    #[cold]
    pub fn join_announced(&mut self, add: &AddAddr) {
        let first = self.subflows.first_tuple();
        //= RFC 8684 3.4.1-5
        let port = add.port.unwrap_or_else(|| first.map_or(0, |tuple| tuple.dst_port));
        let address = SocketAddr::new(add.address, port);
        if !self.path_manager.learn_address(add.address_id, address, self.config.add_addr_accepted) {
            return;
        }
        let reaches = |(subflow, metrics): (&Subflow<P>, &SubflowMetrics)| {
            metrics.state != SubflowStatus::Closed && subflow.tcp.tuple().destination() == address
        };
        // As in Linux, a subflow to it is enough.
        if self.subflows.with_metrics().any(reaches) {
            return;
        }
        let Some(tuple) = first else { return };
        //= RFC 8684 3.4.1-9 not tried again
        let attempt = JOIN_RETRIES;
        if tuple.src.is_ipv4() == address.is_ipv4() {
            self.request(JoinRequest {
                path: self.subflows.metrics().first().map_or(PathId(0), |metrics| metrics.path),
                local: SocketAddr::new(tuple.src, 0),
                remote: address,
                local_id: 0,
                remote_id: add.address_id,
                backup: false,
                attempt,
                early: false,
            });
            return;
        }
        for endpoint in self.other_endpoints() {
            if endpoint.address.is_ipv4() == address.is_ipv4() {
                let request = join_from(&endpoint, address, add.address_id);
                self.request(JoinRequest { attempt, ..request });
            }
        }
    }

    /// A join failed: tries it again later, unless it was often enough. A connection without subflows tries
    /// until it ends.
    #[cold]
    pub fn retry(&mut self, now: Time, mut request: JoinRequest) {
        if self.deadlines.is_set(Deadline::Linger) && request.attempt < JOIN_RETRIES {
            request.attempt = request.attempt.min(JOIN_RETRIES - 2);
        }
        if self.path_manager.retry_join(now, request)
            && let Some(first) = self.path_manager.next_retry()
        {
            self.deadlines.set_no_later(Deadline::Control, first);
        }
    }

    /// Announces our addresses that are marked so.
    #[cold]
    pub fn announce(&mut self, now: Time) {
        let Some(tuple) = self.subflows.first_tuple() else { return };
        if !self.handshake.is_multipath() {
            return;
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
        if self.path_manager.has_unechoed() {
            self.deadlines.arm_control(now);
            *self.may_transmit |= self.subflows.request_ack_on_best();
        }
    }

    //= RFC 8684 3.4.2-1
    /// Sends REMOVE_ADDR for those of these addresses that no subflow uses over another path.
    pub fn send_remove_addr(&mut self, mut removed: Vec<u8>) {
        removed.sort_unstable();
        removed.dedup();
        for id in removed {
            let used = |(subflow, metrics): (&Subflow<P>, &SubflowMetrics)| {
                metrics.state != SubflowStatus::Closed && subflow.local_id() == id
            };
            if !self.subflows.with_metrics().any(used) {
                self.path_manager.queue_remove_addr(id);
            }
        }
        if self.path_manager.owes_remove_addr() {
            *self.may_transmit |= self.subflows.request_ack_on_best();
        }
    }
}
