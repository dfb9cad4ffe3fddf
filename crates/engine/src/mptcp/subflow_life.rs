//! Subflows come and go: slots, opening and accepting, refusing and removing.

use ropewalk_wire::{FourTuple, MpJoin, Payload, Segment, Seq};

use super::close_reason::CloseReason;
use super::connection::Connection;
use super::joining::Joining;
use super::path_manager::JoinRequest;
use super::stats::Event;
use super::subflow::{Join, Subflow};
use crate::metrics::SubflowStatus;
use crate::scheduler;
use crate::tcp::{Context, Outgoing, State, Tcb};
use crate::{PathId, SubflowId, Time};

impl<P: Payload> Connection<P> {
    /// Ends a subflow's TIME-WAIT, and forgets the subflow.
    #[cold]
    pub(crate) fn end_subflow(&mut self, now: Time, index: usize) {
        if let Some(subflow) = self.subflows.get_mut(index) {
            subflow.tcp.become_closed();
            self.remove_if_finished(now, index);
            self.subflows.retire(index);
        }
    }

    /// Ends the TIME-WAIT of all subflows.
    #[cold]
    pub(crate) fn end_time_wait(&mut self, now: Time) {
        for index in 0..self.subflows.metrics().len() {
            if let Some(subflow) = self.subflows.get_mut(index)
                && subflow.tcp.state() == State::TimeWait
            {
                subflow.tcp.become_closed();
                self.remove_if_finished(now, index);
            }
        }
    }

    /// Opens the first subflow: a client connects, a server answers a SYN.
    pub(crate) fn open(&mut self, now: Time, path: PathId, make: impl FnOnce(&mut Context<'_>) -> Tcb<P>) {
        let index = self.add_subflow(now, path, Join::Initial, make);
        if self.handshake.is_client() && index.is_some() {
            self.sending().start_user_timeout(now, false);
        }
    }

    /// Opens a requested subflow.
    #[cold]
    pub(crate) fn open_join(
        &mut self,
        now: Time,
        request: &JoinRequest,
        tuple: FourTuple,
        mtu: u32,
        isn: u32,
        nonce: u32,
    ) -> Option<usize> {
        let index =
            self.add_subflow(now, request.path, Join::SynSent, |cx| Tcb::connect(cx, tuple, mtu, isn))?;
        let subflow = self.subflows.get_mut(index)?;
        subflow.set_request(request, nonce);
        Some(index)
    }

    /// Joins an existing connection: a SYN with MP_JOIN named our token.
    #[cold]
    pub(crate) fn join(
        &mut self,
        now: Time,
        path: PathId,
        syn: &Segment<P>,
        mtu: u32,
        isn: u32,
        nonce: u32,
    ) -> Option<usize> {
        let MpJoin::Syn { backup, address_id, nonce: remote_nonce, .. } = syn.rare.as_deref()?.mp_join?
        else {
            return None;
        };
        if !self.handshake.is_multipath()
            || self.closing.is_terminated()
            || self.subflows.is_failing()
            //= RFC 8684 3.2-a
            || !self.subflows.may_join(self.config.path_manager.subflows)
        {
            return None;
        }
        // Whoever has seen the token can send SYNs: only the third ACK's HMAC tells who may join.
        self.subflows.limit_half_open();
        let index = self.add_subflow(now, path, Join::SynReceived, |cx| Tcb::accept(cx, syn, mtu, isn))?;
        let local_id = self.config.path_manager.local_id_of(syn.tuple.dst);
        let subflow = self.subflows.get_mut(index)?;
        subflow.set_local(local_id, nonce);
        subflow.set_remote(address_id, backup, remote_nonce);
        if !self.handshake.is_client() && self.receive.next() == 0 && self.send.assigned_end() == 0 {
            // An early join: before it completes it, the peer waits for our first DSS (RFC 8684 3.1).
            self.may_transmit |= self.subflows.request_ack_on_best();
        }
        Some(index)
    }

    //= RFC 8684 3.6-a 3.2-9
    /// Resets a subflow, with MP_TCPRST's reason.
    #[cold]
    pub(crate) fn refuse(&mut self, now: Time, index: usize, reason: CloseReason) {
        if let Some(subflow) = self.subflows.get_mut(index) {
            subflow.reset(reason.mp_tcprst());
        }
        self.remove(now, index, reason);
    }

    /// A subflow is gone: notifies the scheduler and the application, and reinjects its data. Its RST, if
    /// any, is still sent.
    #[cold]
    pub(crate) fn remove(&mut self, now: Time, index: usize, reason: CloseReason) {
        if self.subflows.metrics()[index].state == SubflowStatus::Closed {
            return;
        }
        let was_used = !matches!(self.subflows.metrics()[index].state, SubflowStatus::Handshaking);
        let path = self.subflows.metrics()[index].path;
        let id = SubflowId(index as u8);
        self.subflows.close(index);
        if was_used {
            self.sending().notify(now, scheduler::Event::SubflowRemoved(id));
            let (metrics, siblings) = self.subflows.with_siblings(index);
            self.congestion.subflow_removed(metrics, siblings);
        }
        self.events.push(Event::SubflowRemoved { subflow: id, path, reason });
        if let Some(request) = self.subflows.get(index).and_then(Subflow::request).copied() {
            self.path_manager.on_join_closed();
            if !was_used && request.early {
                // The peer refused a join that was opened before its first DSS: it is opened once more, after
                // that DSS.
                let again = JoinRequest { early: false, ..request };
                if self.handshake.is_confirmed() {
                    Joining::of(self).request(again);
                } else {
                    self.path_manager.on_early_refusal(again);
                }
            } else if !was_used {
                Joining::of(self).retry(now, request);
            }
        }
        // Early joins hang on the first subflow: without it the keys may never have arrived.
        if !self.handshake.is_confirmed() && !self.subflows.get(index).is_some_and(Subflow::is_opening) {
            self.drop_opening_joins();
        }
        // What it carried and nobody acknowledged goes over the others (RFC 8684 3.3.6).
        self.send.reinject_from(id);
        if self.subflows.get(index).is_some_and(Subflow::is_failing) {
            self.receive.set_held(0);
        }
        let finished = self.send.fin_acked() && self.receive.finished();
        if self.subflows.live() == 0 && !finished && !self.closing.is_terminated() {
            let plain_end = self.handshake.is_plain() && self.send.closed() && self.receive.finished();
            if plain_end {
                self.check_closed(now);
            } else if !self.await_subflow(now, index, was_used) {
                self.die(reason);
            }
        }
        if finished {
            // The others may have been waiting for nothing but this one.
            self.check_closed(now);
        }
        self.wake();
    }

    /// A packet of subflow `index` was too big for its path.
    #[cold]
    pub(crate) fn on_too_big(&mut self, now: Time, index: usize, seq: Seq, mtu: u32) {
        if let Some((mut cx, subflow)) = self.split(now, index, Outgoing::default())
            && subflow.tcp.on_too_big(&mut cx, seq, mtu)
        {
            self.wake();
        }
    }

    /// Removes a subflow that is closed and has nothing more to send.
    pub(crate) fn remove_if_finished(&mut self, now: Time, index: usize) {
        let Some(subflow) = self.subflows.get(index) else { return };
        if subflow.tcp.is_finished() && self.subflows.metrics()[index].state != SubflowStatus::Closed {
            self.remove(now, index, CloseReason::Closed);
        }
        self.check_closed(now);
    }
}
