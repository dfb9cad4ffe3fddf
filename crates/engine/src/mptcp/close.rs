//! The connection's end: DATA_FIN (RFC 8684 3.3.3), FINs and resets of subflows, MP_FASTCLOSE (3.5).

use ropewalk_wire::{Payload, RareOptions};

use super::close_reason::{CloseReason, ResetReason};
use super::connection::Connection;
use super::deadlines::Deadline;
use super::stats::Event;
use crate::metrics::SubflowStatus;
use crate::scheduler;
use crate::tcp::State;
use crate::{SubflowId, Time};

impl<P: Payload> Connection<P> {
    /// Closes our side: what was written is still delivered.
    pub(crate) fn shutdown(&mut self, now: Time) {
        if self.send.closed() || self.closing.is_terminated() {
            return;
        }
        let was_waiting = self.send.una() < self.send.written();
        self.send.close();
        if self.config.tcp.user_timeout.is_some() {
            self.sending().start_user_timeout(now, was_waiting);
        }
        self.sending().notify(now, scheduler::Event::Closed);
        self.wake();
        if self.handshake.is_multipath() && self.send.unsent() == 0 {
            // DATA_FIN alone: on an ACK of its own (RFC 8684 3.3.3).
            // One subflow is enough: if it is lost there, the timer below repeats it.
            self.may_transmit |= self.subflows.request_ack_on_best();
        }
        self.sending().arm_retransmission(now);
        self.check_closed(now);
    }

    /// Closes both sides: what was written is still delivered, but what the peer sent or sends and nobody
    /// will read resets the connection, so that it learns of the loss (RFC 9293 3.6, RFC 1122 4.2.2.13).
    pub(crate) fn close(&mut self, now: Time) {
        self.closing.abandon();
        // CLOSE in SYN-SENT deletes the connection, with what was written (RFC 9293 3.10.4).
        let opening = self.subflows.iter().all(|subflow| subflow.tcp.state() == State::SynSent);
        //= RFC 9293 SHLD-3
        if self.receive.ready() > 0 || opening {
            self.abort();
            return;
        }
        self.shutdown(now);
        if self.closing.is_terminated() {
            return;
        }
        // Nobody reads or writes any more: a silent peer mustn't keep it for ever (FIN-WAIT-2).
        self.deadlines.set(Deadline::Orphan, now + self.config.path_manager.close_timeout);
    }

    /// The application has closed the connection, and nobody would notice any more if the peer never closes
    /// its side. In FIN-WAIT-2 a connection is forgotten after a minute, as in Linux (`tcp_fin_timeout`); so
    /// is one whose DATA_FIN is never acknowledged (`net.mptcp.close_timeout`). While anything else is
    /// unacknowledged, retransmission timeouts decide.
    #[cold]
    pub(super) fn on_orphan_timeout(&mut self, now: Time) {
        if self.closing.is_terminated() {
            return;
        }
        let is_multipath = self.handshake.is_multipath();
        let is_under_way = self.send.una() < self.send.written();
        if is_under_way || !is_multipath && !self.sending().is_side_acknowledged() {
            self.deadlines.set(Deadline::Orphan, now + self.config.path_manager.close_timeout);
            return;
        }
        if is_multipath {
            // A peer that never closes learns that nobody reads any more.
            self.subflows.abort_with_fastclose(self.handshake.has_remote_key());
        } else {
            // Linux says nothing either: what still comes is answered with RST.
            self.subflows.forget_all();
        }
        self.may_transmit = true;
        self.die(CloseReason::CloseTimeout);
    }

    /// Throws the connection away: MP_FASTCLOSE and RST (RFC 8684 3.5), RST in plain TCP.
    #[cold]
    pub(crate) fn abort(&mut self) {
        // Without the peer's key MP_FASTCLOSE would prove nothing, and be ignored (RFC 8684 3.5).
        let has_keys = self.handshake.is_multipath() && self.handshake.has_remote_key();
        self.subflows.abort_with_fastclose(has_keys);
        self.send.clear();
        self.receive.clear();
        self.path_manager.forget_joins();
        self.deadlines.stop(Deadline::Orphan);
        self.closing.end(CloseReason::Aborted);
        self.may_transmit = true;
    }

    #[cold]
    pub(crate) fn die(&mut self, reason: CloseReason) {
        self.deadlines.stop(Deadline::Orphan);
        if self.closing.end(reason) {
            self.send.clear();
            // What is in order may still be read.
            self.receive.drop_out_of_order();
            self.path_manager.forget_joins();
            // Once: what follows from the first cause is no news.
            self.events.push(Event::Reset { reason });
        }
    }

    /// After anything that may have completed the close: FINs on the subflows when both directions are done.
    #[inline]
    pub(crate) fn check_closed(&mut self, now: Time) {
        // Nothing is complete while the application may still write.
        if self.send.closed() && !self.closing.is_terminated() {
            self.complete_close(now);
        }
    }

    #[inline(never)]
    pub(super) fn complete_close(&mut self, now: Time) {
        if self.handshake.is_multipath() {
            //= RFC 8684 3.3.3-3 3.3.3-4
            if self.send.fin_acked() && self.receive.finished() {
                // Nothing is outstanding either way: only now are subflows closed (RFC 8684 3.3.3).
                self.subflows.close_all();
                self.may_transmit = true;
                // A subflow whose FIN nobody answers, as its path is dead, is reset after that time.
                if !self.deadlines.is_set(Deadline::Linger) {
                    self.deadlines.set(Deadline::Linger, now + self.config.tcp.time_wait);
                }
            }
        } else if self.handshake.is_plain()
            && self.send.closed()
            && self.send.unsent() == 0
            && let Some(subflow) = self.subflows.iter_mut().next()
            // A close during the handshake waits for it: what the peer sends can still be read.
            && subflow.tcp.state() != State::SynSent
        {
            // In plain TCP the stream's end is the subflow's FIN, behind all data.
            subflow.tcp.close();
            self.may_transmit = true;
        }
        let is_orphan = self.closing.is_abandoned() && !self.closing.is_terminated();
        // The time counts from FIN-WAIT-2 on, not from `close`: until then retransmission timeouts decide.
        if is_orphan && self.sending().is_side_acknowledged() && self.closing.half_close() {
            self.deadlines.set(Deadline::Orphan, now + self.config.path_manager.close_timeout);
        }
        let done = self.subflows.all_closed() && !self.subflows.is_empty();
        if done && self.send.closed() && self.receive.finished() {
            self.finish();
        }
    }

    #[cold]
    pub(super) fn finish(&mut self) {
        self.deadlines.stop(Deadline::Orphan);
        if self.closing.end(CloseReason::Closed) {
            self.events.push(Event::Closed);
            // Frees unused memory: a busy server often has several times more connections in TIME-WAIT than
            // open ones.
            self.subflows.shrink();
            self.send.shrink();
            self.receive.shrink();
        }
    }

    /// A subflow's FIN: in plain TCP the end of the stream, else only of the subflow.
    #[cold]
    pub(super) fn on_fin(&mut self, now: Time, index: usize) {
        if self.handshake.is_plain() {
            // In plain TCP the FIN, which is in order, ends the stream where it stands.
            let end = self.receive.next();
            self.receive.note_fin(end);
            self.after_receive(now, index);
            self.check_closed(now);
            return;
        }
        //= RFC 8684 3.3.3-c
        let Some(subflow) = self.subflows.get_mut(index) else { return };
        // After the peer's DATA_FIN it sends nothing more anywhere. What we have left to send still goes on
        // its subflows.
        if self.receive.finished() && !self.send.fin_acked() {
            return;
        }
        // A FIN ends only its subflow, which ours closes in order (RFC 8684 3.3.3).
        subflow.tcp.close();
        if matches!(self.subflows.metrics()[index].state, SubflowStatus::Usable | SubflowStatus::Stale) {
            self.subflows.metrics_mut(index).state = SubflowStatus::Closing;
            let left = self.subflows.metrics().iter().any(|metrics| metrics.usable());
            let done = self.send.fin_acked() && self.receive.finished();
            if !done {
                self.sending().notify(now, scheduler::Event::SubflowRemoved(SubflowId(index as u8)));
                // Without another it carries its data itself: the peer's FIN ends the other direction only.
                if left {
                    self.send.reinject_from(SubflowId(index as u8));
                }
                self.wake();
            }
        }
    }

    #[cold]
    pub(super) fn on_reset(&mut self, now: Time, index: usize, rare: Option<&RareOptions>, state: State) {
        // MP_FASTCLOSE on a RST, as Linux sends it (RFC 8684 3.5, option R).
        let fastclose = rare.and_then(|rare| rare.mp_fastclose).is_some_and(|fastclose| {
            self.handshake.is_our_key(fastclose.receiver_key) && self.handshake.is_multipath()
        });
        //= RFC 8684 3.6-2
        if rare.and_then(|rare| rare.mp_tcprst).is_some_and(|reset| !reset.transient)
            && let Some(subflow) = self.subflows.get_mut(index)
        {
            subflow.forbid_retry();
        }
        let reason = match state {
            // As in `tcp_reset`: ECONNREFUSED.
            State::SynSent => CloseReason::Refused,
            _ => {
                let option = rare.and_then(|rare| rare.mp_tcprst);
                CloseReason::ResetByPeer(option.map(|option| ResetReason::from_code(option.reason)))
            }
        };
        // A RST ends its own subflow; the key on it ends the others.
        self.remove(now, index, reason);
        if fastclose {
            self.on_fastclose();
        }
    }

    //= RFC 8684 3.5-b 3.5-c
    /// MP_FASTCLOSE with our key.
    #[cold]
    pub(super) fn on_fastclose(&mut self) {
        self.stats.count().fast_closes += 1;
        // Every other subflow ends with a RST (RFC 8684 3.5).
        self.subflows.abort_all();
        self.die(CloseReason::FastClose);
    }

    /// Whether the endpoint may forget it.
    pub(crate) fn is_forgettable(&self) -> bool {
        self.is_over() && (self.receive.ready() == 0 || self.closing.is_abandoned())
    }

    /// Whether nothing more will be sent or received: what is left is data that wasn't read.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.closing.is_terminated() && self.subflows.all_finished()
    }
}
