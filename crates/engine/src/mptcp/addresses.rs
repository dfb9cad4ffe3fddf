//! Addresses (RFC 8684 3.4): what is announced, accepted and removed, and which joins
//! follow.

use ropewalk_wire::{AddAddr, Payload};

use super::close_reason::CloseReason;
use super::connection::Connection;
use super::joining::Joining;
use super::subflow::Subflow;
use crate::metrics::SubflowStatus;
use crate::{PathId, Time};

impl<P: Payload> Connection<P> {
    #[cold]
    pub(super) fn on_add_addr(&mut self, now: Time, add: &AddAddr) {
        // The HMAC is made of both keys.
        if !self.handshake.has_remote_key() {
            return;
        }
        if add.echo {
            // An echo has no HMAC: a forged one only ends our repeats.
            self.path_manager.on_echo(add);
            return;
        }
        if !self.handshake.verifies_add_addr(add) {
            //= RFC 8684 3.4.1-6
            self.stats.count().add_addr_hmac_failures += 1;
            return;
        }
        self.stats.count().announcements += 1;
        self.stats.count().announced_ports += u64::from(add.port.is_some());
        // Its HMAC shows that the peer has both keys, as a DATA_ACK would.
        if !self.handshake.is_confirmed() {
            self.on_confirmed(now);
        }
        //= RFC 8684 3.4.1-b
        // Also if no join follows: it only tells the peer to stop repeating.
        if self.path_manager.queue_echo(add) {
            self.may_transmit |= self.subflows.request_ack_on_best();
        }
        Joining::of(self).join_announced(add);
    }

    #[cold]
    pub(super) fn on_remove_addr(&mut self, now: Time, ids: &[u8]) {
        // REMOVE_ADDR has no HMAC: an attacker on the path could as well send RSTs.
        self.path_manager.forget_addresses(ids);
        for index in 0..self.subflows.len() {
            let gone = self.subflows.get(index).is_some_and(|subflow| ids.contains(&subflow.remote_id()));
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

    /// Takes our address on a path away: REMOVE_ADDR, and its subflows are reset. The last that works stays
    /// until there is another: what is under way would be lost with it.
    pub(crate) fn remove_path(&mut self, now: Time, path: PathId) {
        // Once both streams have ended no byte can be lost with a subflow.
        let finished = self.send.fin_acked() && self.receive.finished();
        let has_work = self.handshake.is_multipath() && !finished;
        let mut removed = Vec::new();
        for index in 0..self.subflows.len() {
            if self.subflows.metrics()[index].path == path
                && let Some(id) = self.subflows.get(index).map(Subflow::local_id)
                && self.subflows.metrics()[index].state != SubflowStatus::Closed
            {
                //= RFC 8684 3.3.3-2 3.4.2-7
                if has_work
                    && self.subflows.is_last(index)
                    && let Some(subflow) = self.subflows.get_mut(index)
                {
                    subflow.leave();
                    continue;
                }
                self.refuse(now, index, CloseReason::PathRemoved);
                removed.push(id);
            }
        }
        // A join that was to be tried again there would only fail.
        self.path_manager.forget_retries(path);
        //= RFC 8684 3.4.2-2 what was announced and never used
        for endpoint in self.config.path_manager.endpoints.iter().filter(|endpoint| endpoint.path == path) {
            if self.path_manager.has_announced(endpoint.id) {
                removed.push(endpoint.id);
            }
        }
        Joining::of(self).send_remove_addr(removed);
    }

    /// A subflow works now: those whose path was removed can go.
    #[cold]
    pub(crate) fn close_replaced_subflows(&mut self, now: Time, successor: usize) {
        for index in 0..self.subflows.len() {
            let leaves =
                self.subflows.get(index).filter(|subflow| subflow.is_leaving() && index != successor);
            if let Some(id) = leaves.map(Subflow::local_id)
                && self.subflows.metrics()[index].state != SubflowStatus::Closed
            {
                self.refuse(now, index, CloseReason::PathRemoved);
                Joining::of(self).send_remove_addr(vec![id]);
            }
        }
    }
}
