//! Handshakes at connection level: keys (RFC 8684 3.1) and joins (3.2), on a subflow whose segment TCP has
//! accepted.

use ropewalk_wire::{Flags, MpJoin, Payload, RareOptions, Segment};

use super::close_reason::{CloseReason, JoinError};
use super::connection::Connection;
use super::deadlines::Deadline;
use super::handshake::Role;
use super::joining::Joining;
use super::stats::{Event, FallbackCause};
use super::subflow::Join;
use crate::metrics::SubflowStatus;
use crate::scheduler;
use crate::tcp::{Outgoing, State};
use crate::{SubflowId, Time};

impl<P: Payload> Connection<P> {
    /// The SYN/ACK of our SYN; false if the subflow is gone.
    #[cold]
    pub(super) fn on_syn_ack(
        &mut self,
        now: Time,
        index: usize,
        rare: Option<&RareOptions>,
        established: bool,
    ) -> bool {
        let Some(subflow) = self.subflows.get_mut(index) else { return false };
        match subflow.join() {
            Join::Initial => {
                if !self.handshake.is_negotiating() {
                    return true;
                }
                let capable = rare.and_then(|rare| rare.mp_capable);
                if established && self.handshake.on_syn_ack(capable) {
                    // Saves a round trip: only their third ACKs wait for the first DSS (`Join::Held`).
                    if self.config.path_manager.early_join {
                        self.path_manager.begin_early();
                        Joining::of(self).open_all();
                    }
                } else {
                    //= RFC 8684 3.1-26 3.7-1 6-1
                    self.fall_back(now, FallbackCause::NoMpCapable);
                }
                true
            }
            Join::SynSent => {
                let Some(MpJoin::SynAck { backup, address_id, hmac, nonce }) =
                    rare.and_then(|rare| rare.mp_join)
                else {
                    //= RFC 8684 3.2-10 3.2-11 3.2-12
                    // The peer or a middlebox doesn't know the option (RFC 8684 3.2: reset).
                    self.refuse(now, index, CloseReason::Join(JoinError::NoOptionOnSynAck));
                    return false;
                };
                if !self.handshake.verifies_syn_ack(subflow, nonce, hmac) {
                    self.stats.count().join_hmac_failures += 1;
                    self.refuse(now, index, CloseReason::Join(JoinError::HmacOfSynAck));
                    return false;
                }
                //= RFC 8684 3.2-1 3.4.1-3
                subflow.set_remote(address_id, backup, nonce);
                // Before its first DSS the peer may lack our key, and couldn't check our HMAC.
                if self.handshake.is_confirmed() {
                    self.send_third_ack(now, index);
                } else {
                    subflow.hold_third_ack();
                }
                true
            }
            _ => true,
        }
    }

    /// The MP_JOIN handshake beyond its SYN/ACK; false if the subflow is gone.
    #[cold]
    pub(super) fn on_join_progress(
        &mut self,
        now: Time,
        index: usize,
        segment: &Segment<P>,
        rare: Option<&RareOptions>,
    ) -> bool {
        let Some(subflow) = self.subflows.get_mut(index) else { return false };
        match subflow.join() {
            Join::SynReceived => {
                // Nothing can be checked yet: the peer repeats its third ACK (RFC 8684 3.2).
                if !self.handshake.has_remote_key() {
                    return false;
                }
                let Some(MpJoin::Ack { hmac }) = rare.and_then(|rare| rare.mp_join) else {
                    //= RFC 8684 3.2-10 3.2-11 3.2-12
                    self.refuse(now, index, CloseReason::Join(JoinError::NoOptionOnThirdAck));
                    return false;
                };
                if !self.handshake.verifies_third_ack(subflow, &hmac) {
                    self.stats.count().join_hmac_failures += 1;
                    self.refuse(now, index, CloseReason::Join(JoinError::HmacOfThirdAck));
                    return false;
                }
                //= RFC 8684 3.2-4
                // The peer holds back data until this fourth packet (RFC 8684 3.2).
                subflow.tcp.request_ack();
                // Counted after the HMAC: whoever knows the token could fill the limit with half-open joins.
                if !self.subflows.may_join(self.config.path_manager.subflows) {
                    // Others were faster.
                    self.refuse(now, index, CloseReason::Join(JoinError::Limit));
                    return false;
                }
                self.make_usable(now, index);
                true
            }
            // Any answer but the SYN/ACK again shows that our third ACK arrived.
            Join::AckSent if !segment.flags.contains(Flags::SYN) => {
                self.make_usable(now, index);
                true
            }
            _ => true,
        }
    }

    /// The handshake of a subflow is complete at TCP level.
    #[cold]
    pub(super) fn on_established(&mut self, now: Time, index: usize) {
        let Some(subflow) = self.subflows.get(index) else { return };
        // A join's third ACK has an HMAC, which TCP doesn't see: `on_join_progress` decides.
        if subflow.join() != Join::Initial {
            return;
        }
        let tuple = subflow.tcp.tuple();
        // The user timeout sees progress (RFC 9293 3.8.3).
        self.send.progress(now);
        self.make_usable(now, index);
        let multipath = self.handshake.is_multipath();
        self.events.push(match self.handshake.role() {
            Role::Client => Event::Connected { multipath },
            Role::Server => Event::Accepted { tuple, multipath },
        });
        if self.handshake.is_plain() {
            let window = self.subflows.get(index).map(|subflow| subflow.tcp.peer_window());
            self.on_plain_tcp_ack(now, index, window);
            self.check_closed(now);
        } else {
            // Until the first DATA_ACK, the window of the handshake counts.
            self.send.start_window(self.subflows.get(index).map_or(0, |subflow| subflow.tcp.peer_window()));
            self.sending().judge_window();
            // A client announces once it knows that its keys arrived (`on_confirmed`).
            if !self.handshake.is_client() {
                Joining::of(self).announce(now);
            }
        }
    }

    /// The subflow may carry data from now on.
    #[cold]
    pub(crate) fn make_usable(&mut self, now: Time, index: usize) {
        self.subflows.metrics_mut(index).state = SubflowStatus::Usable;
        if !(self.send.fin_acked() && self.receive.finished()) {
            // The connection stops waiting for a subflow.
            self.deadlines.stop(Deadline::Linger);
        }
        let (metrics, siblings) = self.subflows.with_siblings(index);
        self.congestion.subflow_added(metrics, siblings, now);
        self.sending().notify(now, scheduler::Event::SubflowAdded(SubflowId(index as u8)));
        let path = self.subflows.metrics()[index].path;
        // Make before break: what was kept for want of another can go now.
        self.close_replaced_subflows(now, index);
        if let Some((subflow, metrics)) = self.subflows.both_mut(index) {
            metrics.backup = subflow.is_backup();
            let tuple = subflow.tcp.tuple();
            if subflow.complete_join() {
                // The ACK that ended the join had no room for what waits.
                if subflow.owes_control() {
                    subflow.tcp.request_ack();
                }
                let initial = self.config.receive_buffer.initial;
                if let Some(limit) = self.receive.add_subflow(initial, &subflow.autotuning) {
                    self.subflows.iter_mut().for_each(|subflow| subflow.autotuning.raise(limit));
                }
                // From now on plain TCP can't continue the stream (Linux: `allow_infinite_fallback`).
                self.subflows.note_join();
                self.events.push(Event::SubflowAdded { subflow: SubflowId(index as u8), path, tuple });
            }
        }
        self.wake();
    }

    //= RFC 8684 3.1-10
    /// The peer showed with a DATA_ACK or ADD_ADDR that it has both keys. At a client: what waits for that is
    /// done.
    #[cold]
    pub(super) fn on_confirmed(&mut self, now: Time) {
        self.handshake.confirm();
        if self.handshake.is_client() {
            self.join_confirmed(now);
        }
        Joining::of(self).announce(now);
        if self.send.closed() && self.send.unsent() == 0 {
            // The handshake's third ACK, or the first data, had no room for the DATA_FIN.
            self.may_transmit |= self.subflows.request_ack_on_best();
        }
    }

    //= RFC 8684 3.1-10
    /// The peer's first DSS is there: joins may be completed, and opened.
    #[cold]
    pub(super) fn join_confirmed(&mut self, now: Time) {
        let Some(refused) = self.path_manager.end_early() else {
            Joining::of(self).open_all();
            return;
        };
        for index in 0..self.subflows.len() {
            if self.subflows.get(index).is_some_and(|subflow| subflow.join() == Join::Held)
                && self.subflows.metrics()[index].state != SubflowStatus::Closed
            {
                self.send_third_ack(now, index);
            }
        }
        for request in refused {
            Joining::of(self).request(request);
        }
    }

    //= RFC 8684 3.2-5
    /// Completes our side of a join.
    #[cold]
    pub(super) fn send_third_ack(&mut self, now: Time, index: usize) {
        if let Some(subflow) = self.subflows.get_mut(index) {
            subflow.send_third_ack();
            // The peer may use it as soon as this arrives: it counts as joined.
            self.subflows.note_join();
            self.may_transmit = true;
            self.deadlines.arm_control(now);
        }
    }

    /// The connection is no longer one of Multipath TCP, or has lost its first subflow, before joins were
    /// complete.
    #[cold]
    pub(super) fn drop_opening_joins(&mut self) {
        if self.path_manager.end_early().is_some() {
            self.path_manager.forget_joins();
        }
        for index in 0..self.subflows.len() {
            let Some((subflow, metrics)) = self.subflows.both_mut(index) else { continue };
            if !subflow.is_opening() || metrics.state == SubflowStatus::Closed {
                continue;
            }
            // A RST: the peer needn't wait for a join that can't complete.
            subflow.tcp.abort();
            metrics.state = SubflowStatus::Closed;
            self.path_manager.on_join_closed();
            self.may_transmit = true;
            let (subflow, path) = (SubflowId(index as u8), self.subflows.metrics()[index].path);
            self.events.push(Event::SubflowRemoved { subflow, path, reason: CloseReason::PathRemoved });
        }
    }

    /// Keeps a segment with a DSS that came before the one that completes the handshake with both keys, if
    /// its ACK shows that its sender got our SYN/ACK, so that an attacker who guesses can't use up memory.
    /// Returns false if it isn't such a segment. Data whose DSS has no mapping overtook nothing: Linux's
    /// client sends it without its keys if it had a TCP Fast Open cookie for our address, and falls back (RFC
    /// 8684 3.7).
    #[inline]
    pub(super) fn keep_early_data(&mut self, now: Time, index: usize, segment: &Segment<P>) -> bool {
        let lacks_keys = self.handshake.is_negotiating()
            && segment.dss.is_some_and(|dss| dss.mapping.is_some() || segment.payload.is_empty())
            && segment.rare.as_deref().is_none_or(|rare| rare.mp_capable.is_none());
        if !lacks_keys {
            return false;
        }
        let Some((cx, subflow)) = self.split(now, index, Outgoing::default()) else { return false };
        if subflow.tcp.state() != State::SynReceived {
            return false;
        }
        if !segment.payload.is_empty() && subflow.tcp.may_complete_handshake(&cx, segment) {
            self.handshake.keep_early_data(segment);
        }
        true
    }
}
