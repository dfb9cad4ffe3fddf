//! Addresses (RFC 8684 3.4) and priority (3.3.8): what is announced, accepted and removed, and which joins follow.

use std::net::SocketAddr;

use ropewalk_wire::{AddAddr, FourTuple, Payload};

use super::close_reason::CloseReason;
use super::connection::{Connection, Mode};
use super::crypto::add_addr_hmac;
use super::path_manager::{JOIN_RETRIES, JoinRequest};
use super::subflow::Subflow;
use crate::metrics::{SubflowMetrics, SubflowStatus};
use crate::{Nanos, PathId};

impl<P: Payload> Connection<P> {
    #[cold]
    pub(super) fn on_add_addr(&mut self, now: Nanos, add: &AddAddr) {
        let Some(remote) = self.negotiated.remote_key else { return };
        if add.echo {
            self.path_manager.on_echo(add);
            return;
        }
        let expected =
            add_addr_hmac(remote.key, self.negotiated.local_key.key, add.address_id, add.address, add.port);
        if add.hmac != Some(expected) {
            //= RFC 8684 3.4.1-6
            self.stats.add_addr_hmac_failures += 1;
            return;
        }
        self.stats.announcements += 1;
        self.stats.announced_ports += u64::from(add.port.is_some());
        if !self.negotiated.confirmed {
            self.negotiated.confirmed = true;
            self.join_confirmed(now);
        }
        //= RFC 8684 3.4.1-b
        if self.path_manager.queue_echo(add) {
            self.ack_on_best();
        }
        //= RFC 8684 3.4.1-5
        let port = add.port.unwrap_or_else(|| self.first_tuple().map_or(0, |tuple| tuple.dst_port));
        let address = SocketAddr::new(add.address, port);
        let limit = self.config.path_manager.add_addr_accepted;
        if !self.path_manager.learn_address(add.address_id, address, limit) {
            return;
        }
        let reaches = |(subflow, metrics): (&Option<Subflow<P>>, &SubflowMetrics)| {
            metrics.state != SubflowStatus::Closed
                && subflow.as_ref().is_some_and(|subflow| subflow.tcp.tuple().destination() == address)
        };
        // As in Linux, a subflow to it is enough.
        if self.subflows.iter().zip(&self.metrics).any(reaches) {
            return;
        }
        let Some(tuple) = self.first_tuple() else { return };
        let local = SocketAddr::new(tuple.src, 0);
        if local.is_ipv4() == address.is_ipv4() {
            let path = self.metrics.first().map_or(PathId(0), |metrics| metrics.path);
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
            let gone = self.subflows[index].as_ref().is_some_and(|subflow| ids.contains(&subflow.remote_id));
            let others = self.metrics.iter().any(|metrics| {
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

    pub(crate) fn first_tuple(&self) -> Option<FourTuple> {
        self.subflows.iter().flatten().next().map(|subflow| subflow.tcp.tuple())
    }

    /// Joins from our other addresses to the peer's first one.
    #[cold]
    pub(crate) fn open_joins(&mut self) {
        //= RFC 8684 3.1-14
        if self.negotiated.deny_join || self.mode != Mode::Multipath {
            return;
        }
        let Some(tuple) = self.first_tuple() else { return };
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
                early: !self.negotiated.confirmed,
            });
        }
    }

    pub(crate) fn request_join(&mut self, request: JoinRequest) {
        // One in place of the first is always allowed.
        let limit = self.config.path_manager.subflows.max(u8::from(self.live() == 0));
        if self.mode == Mode::Multipath
            && !self.is_failing()
            && self.path_manager.request_join(request, limit)
        {
            self.may_transmit = true;
        }
    }

    /// Announces our addresses that are marked so.
    #[cold]
    pub(crate) fn announce(&mut self, now: Nanos) {
        let (Some(remote), Some(tuple)) = (self.negotiated.remote_key, self.first_tuple()) else { return };
        if self.mode != Mode::Multipath {
            return;
        }
        for endpoint in self.config.path_manager.endpoints.iter().filter(|endpoint| endpoint.signal) {
            //= RFC 8684 3.4.1-2 3.4.1-10 3.4.1-12 each id once, until it is removed
            if endpoint.address == tuple.src || self.path_manager.has_announced(endpoint.id) {
                continue;
            }
            let hmac = add_addr_hmac(
                self.negotiated.local_key.key,
                remote.key,
                endpoint.id,
                endpoint.address,
                endpoint.port,
            );
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
            self.ack_on_best();
        }
    }

    pub(super) fn local_id_of(&self, address: std::net::IpAddr) -> u8 {
        self.config.path_manager.endpoints.iter().find(|e| e.address == address).map_or(0, |e| e.id)
    }

    /// Changes our side's backup wish for subflows on a path, and tells the peer (MP_PRIO).
    pub(crate) fn set_backup(&mut self, path: PathId, backup: bool) {
        for index in 0..self.subflows.len() {
            if self.metrics[index].path != path {
                continue;
            }
            if let Some(subflow) = self.subflows[index].as_mut() {
                subflow.backup_local = backup;
                subflow.prio_pending = Some(backup);
                self.metrics[index].backup = backup || subflow.backup_remote;
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
            if self.metrics[index].path == path
                && let Some(id) = self.subflows[index].as_ref().map(|subflow| subflow.local_id)
                && self.metrics[index].state != SubflowStatus::Closed
            {
                //= RFC 8684 3.3.3-2 3.4.2-7
                if self.is_last(index)
                    && let Some(subflow) = self.subflows[index].as_mut()
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
        let others = self.metrics.iter().any(|metrics| metrics.id.index() != index && works(metrics.state));
        let finished = self.send.fin_acked() && self.receive.finished();
        self.mode == Mode::Multipath && works(self.metrics[index].state) && !others && !finished
    }

    /// A subflow works now: those whose path was removed can go.
    #[cold]
    pub(crate) fn close_replaced_subflows(&mut self, now: Nanos, successor: usize) {
        for index in 0..self.subflows.len() {
            let leaves =
                self.subflows[index].as_ref().filter(|subflow| subflow.leaving && index != successor);
            if let Some(id) = leaves.map(|subflow| subflow.local_id)
                && self.metrics[index].state != SubflowStatus::Closed
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
            let used = |(subflow, metrics): (&Option<Subflow<P>>, &SubflowMetrics)| {
                metrics.state != SubflowStatus::Closed
                    && subflow.as_ref().is_some_and(|subflow| subflow.local_id == id)
            };
            if !self.subflows.iter().zip(&self.metrics).any(used) {
                self.path_manager.withdraw(id);
            }
        }
        if self.path_manager.has_removals() {
            self.ack_on_best();
        }
    }
}
