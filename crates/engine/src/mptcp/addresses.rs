//! Addresses (RFC 8684 3.4) and priority (3.3.8): what is announced, accepted and removed, and which joins follow.

use std::net::SocketAddr;

use ropewalk_wire::{AddAddr, Payload};

use super::close_reason::CloseReason;
use super::connection::Connection;
use super::path_manager::{JOIN_RETRIES, JoinRequest};
use super::subflow::Subflow;
use crate::metrics::{SubflowMetrics, SubflowStatus};
use crate::{Nanos, PathId};

impl<P: Payload> Connection<P> {
    #[cold]
    pub(super) fn on_add_addr(&mut self, now: Nanos, add: &AddAddr) {
        if !self.handshake.has_remote_key() {
            return;
        }
        if add.echo {
            self.path_manager.on_echo(add);
            return;
        }
        if !self.handshake.verifies_add_addr(add) {
            //= RFC 8684 3.4.1-6
            self.stats.add_addr_hmac_failures += 1;
            return;
        }
        self.stats.announcements += 1;
        self.stats.announced_ports += u64::from(add.port.is_some());
        if !self.handshake.is_confirmed() {
            self.handshake.confirm();
            self.join_confirmed(now);
        }
        //= RFC 8684 3.4.1-b
        if self.path_manager.queue_echo(add) {
            self.may_transmit |= self.subflows.request_ack_on_best();
        }
        //= RFC 8684 3.4.1-5
        let port = add.port.unwrap_or_else(|| self.subflows.first_tuple().map_or(0, |tuple| tuple.dst_port));
        let address = SocketAddr::new(add.address, port);
        let limit = self.config.path_manager.add_addr_accepted;
        if !self.path_manager.learn_address(add.address_id, address, limit) {
            return;
        }
        let reaches = |(subflow, metrics): (&Subflow<P>, &SubflowMetrics)| {
            metrics.state != SubflowStatus::Closed && subflow.tcp.tuple().destination() == address
        };
        // As in Linux, a subflow to it is enough.
        if self.subflows.with_metrics().any(reaches) {
            return;
        }
        let Some(tuple) = self.subflows.first_tuple() else { return };
        let local = SocketAddr::new(tuple.src, 0);
        if local.is_ipv4() == address.is_ipv4() {
            let path = self.subflows.metrics().first().map_or(PathId(0), |metrics| metrics.path);
            self.request_join(JoinRequest {
                path,
                local,
                remote: address,
                local_id: 0,
                remote_id: add.address_id,
                backup: false,
                //= RFC 8684 3.4.1-9 not tried again
                attempt: JOIN_RETRIES,
                early: false,
            });
        }
        let endpoints = self.config.path_manager.endpoints.clone();
        for endpoint in endpoints.iter().filter(|endpoint| endpoint.subflow && endpoint.address != tuple.src)
        {
            if endpoint.address.is_ipv4() == address.is_ipv4() && local.is_ipv4() != address.is_ipv4() {
                self.request_join(JoinRequest {
                    path: endpoint.path,
                    local: SocketAddr::new(endpoint.address, 0),
                    remote: address,
                    local_id: endpoint.id,
                    remote_id: add.address_id,
                    backup: endpoint.backup,
                    attempt: JOIN_RETRIES,
                    early: false,
                });
            }
        }
    }

    #[cold]
    pub(super) fn on_remove_addr(&mut self, now: Nanos, ids: &[u8]) {
        self.path_manager.forget_addresses(ids);
        for index in 0..self.subflows.len() {
            let gone = self.subflows.get(index).is_some_and(|subflow| ids.contains(&subflow.remote_id));
            let others = self.subflows.metrics().iter().any(|metrics| {
                metrics.id.index() != index
                    && matches!(
                        metrics.state,
                        SubflowStatus::Usable | SubflowStatus::Stale | SubflowStatus::Closing
                    )
            });
            // Never the last one that can carry data (RFC 8684 3.4.2 leaves it to the receiver).
            if gone && others {
                self.refuse(now, index, CloseReason::AddressRemoved);
            }
        }
    }

    /// Joins from our other addresses to the peer's first one.
    #[cold]
    pub(crate) fn open_joins(&mut self) {
        //= RFC 8684 3.1-14
        if self.handshake.denies_joins() || !self.handshake.is_multipath() {
            return;
        }
        let Some(tuple) = self.subflows.first_tuple() else { return };
        let endpoints = self.config.path_manager.endpoints.clone();
        for endpoint in endpoints.iter().filter(|endpoint| endpoint.subflow && endpoint.address != tuple.src)
        {
            if endpoint.address.is_ipv4() != tuple.dst.is_ipv4() {
                continue;
            }
            self.request_join(JoinRequest {
                path: endpoint.path,
                local: SocketAddr::new(endpoint.address, 0),
                //= RFC 8684 3.9.1-1 3.9.1-2
                remote: tuple.destination(),
                local_id: endpoint.id,
                remote_id: 0,
                backup: endpoint.backup,
                attempt: 0,
                early: !self.handshake.is_confirmed(),
            });
        }
    }

    pub(crate) fn request_join(&mut self, request: JoinRequest) {
        // One in place of the first is always allowed.
        let limit = self.config.path_manager.subflows.max(u8::from(self.subflows.live() == 0));
        if self.handshake.is_multipath()
            && !self.subflows.is_failing()
            && self.path_manager.request_join(request, limit)
        {
            self.may_transmit = true;
        }
    }

    /// Announces our addresses that are marked so.
    #[cold]
    pub(crate) fn announce(&mut self, now: Nanos) {
        let Some(tuple) = self.subflows.first_tuple() else { return };
        if !self.handshake.is_multipath() {
            return;
        }
        for endpoint in self.config.path_manager.endpoints.iter().filter(|endpoint| endpoint.signal) {
            //= RFC 8684 3.4.1-2 3.4.1-10 3.4.1-12 each id once, until it is removed
            if endpoint.address == tuple.src || self.path_manager.has_announced(endpoint.id) {
                continue;
            }
            let Some(hmac) = self.handshake.add_addr_hmac(endpoint) else { return };
            let option = AddAddr {
                echo: false,
                address_id: endpoint.id,
                address: endpoint.address,
                port: endpoint.port,
                hmac: Some(hmac),
            };
            self.path_manager.announce(now, option);
        }
        if self.path_manager.has_unechoed() {
            self.arm_control(now);
            self.may_transmit |= self.subflows.request_ack_on_best();
        }
    }

    pub(super) fn local_id_of(&self, address: std::net::IpAddr) -> u8 {
        self.config.path_manager.endpoints.iter().find(|e| e.address == address).map_or(0, |e| e.id)
    }

    /// Changes our side's backup wish for subflows on a path, and tells the peer (MP_PRIO).
    pub(crate) fn set_backup(&mut self, path: PathId, backup: bool) {
        for index in 0..self.subflows.len() {
            if self.subflows.metrics()[index].path != path {
                continue;
            }
            if let Some((subflow, metrics)) = self.subflows.both_mut(index) {
                subflow.backup_local = backup;
                subflow.prio_pending = Some(backup);
                metrics.backup = backup || subflow.backup_remote;
                subflow.tcp.request_ack();
            }
        }
        self.wake();
    }

    /// Takes our address on a path away: REMOVE_ADDR, and its subflows are reset. The last that works stays until
    /// there is another: what is under way would be lost with it.
    pub(crate) fn remove_path(&mut self, now: Nanos, path: PathId) {
        let mut removed = Vec::new();
        for index in 0..self.subflows.len() {
            if self.subflows.metrics()[index].path == path
                && let Some(id) = self.subflows.get(index).map(|subflow| subflow.local_id)
                && self.subflows.metrics()[index].state != SubflowStatus::Closed
            {
                //= RFC 8684 3.3.3-2 3.4.2-7
                if self.is_last(index)
                    && let Some(subflow) = self.subflows.get_mut(index)
                {
                    subflow.leaving = true;
                    continue;
                }
                self.refuse(now, index, CloseReason::PathRemoved);
                removed.push(id);
            }
        }
        self.path_manager.forget_retries(path);
        //= RFC 8684 3.4.2-2 what was announced and never used
        for endpoint in self.config.path_manager.endpoints.iter().filter(|endpoint| endpoint.path == path) {
            if self.path_manager.has_announced(endpoint.id) {
                removed.push(endpoint.id);
            }
        }
        self.withdraw(removed);
    }

    /// Whether a subflow is the only one that works, and the connection has something left to do.
    pub(super) fn is_last(&self, index: usize) -> bool {
        let works = |state| matches!(state, SubflowStatus::Usable | SubflowStatus::Stale);
        let others =
            self.subflows.metrics().iter().any(|metrics| metrics.id.index() != index && works(metrics.state));
        let finished = self.send.fin_acked() && self.receive.finished();
        self.handshake.is_multipath() && works(self.subflows.metrics()[index].state) && !others && !finished
    }

    /// A subflow works now: those whose path was removed can go.
    #[cold]
    pub(crate) fn close_replaced_subflows(&mut self, now: Nanos, successor: usize) {
        for index in 0..self.subflows.len() {
            let leaves = self.subflows.get(index).filter(|subflow| subflow.leaving && index != successor);
            if let Some(id) = leaves.map(|subflow| subflow.local_id)
                && self.subflows.metrics()[index].state != SubflowStatus::Closed
            {
                self.refuse(now, index, CloseReason::PathRemoved);
                self.withdraw(vec![id]);
            }
        }
    }

    //= RFC 8684 3.4.2-1
    /// REMOVE_ADDR for the addresses that no subflow uses over another path.
    pub(super) fn withdraw(&mut self, mut removed: Vec<u8>) {
        removed.sort_unstable();
        removed.dedup();
        for id in removed {
            let used = |(subflow, metrics): (&Subflow<P>, &SubflowMetrics)| {
                metrics.state != SubflowStatus::Closed && subflow.local_id == id
            };
            if !self.subflows.with_metrics().any(used) {
                self.path_manager.withdraw(id);
            }
        }
        if self.path_manager.has_removals() {
            self.may_transmit |= self.subflows.request_ack_on_best();
        }
    }
}
