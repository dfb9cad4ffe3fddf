//! The connection's timers: when it is to be called, and what it does then.

use ropewalk_wire::Payload;

use super::close_reason::{CloseReason, JoinError};
use super::connection::Connection;
use super::deadlines::Deadline;
use super::joining::Joining;
use super::subflow::Join;
use crate::Time;
use crate::metrics::SubflowStatus;
use crate::tcp::Outgoing;

impl<P: Payload> Connection<P> {
    /// The earliest deadline of the connection and its subflows.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        Some(self.deadlines.next().min(self.subflows.next_timeout())).filter(|at| *at != Time::MAX)
    }

    /// The earliest deadline, if it is before `known`.
    #[inline]
    pub(crate) fn timeout_before(&mut self, known: Time) -> Option<Time> {
        if self.deadlines.next().min(self.subflows.timeout_floor()) >= known {
            return None;
        }
        Some(self.deadlines.next().min(self.subflows.refresh_timeout_floor())).filter(|at| *at < known)
    }

    /// Deadlines that have passed.
    pub(crate) fn on_timeout(&mut self, now: Time) {
        for index in 0..self.subflows.len() {
            let due =
                self.subflows.get(index).is_some_and(|s| s.tcp.poll_timeout().is_some_and(|at| at <= now));
            if due && let Some((mut cx, subflow)) = self.split(now, index, Outgoing::default()) {
                let outcome = subflow.tcp.on_timeout(&mut cx);
                let lacks_probe_data = subflow.tcp.lacks_probe_data();
                self.may_transmit = true;
                if lacks_probe_data {
                    self.sending().assign_probe(now, index);
                }
                self.on_delivery(now, index, &outcome);
                if outcome.timeout {
                    self.sending().on_subflow_timeout(now, index);
                    self.wake();
                }
                if let Some(cause) = outcome.failed {
                    self.remove(now, index, cause.into());
                }
                self.remove_if_finished(now, index);
            }
        }
        if self.deadlines.take_due(now, Deadline::Wait) {
            self.wake();
        }
        if self.deadlines.take_due(now, Deadline::Retransmit) {
            self.may_transmit |= self.sending().on_retransmission_timeout(now);
            self.wake();
            self.sending().arm_retransmission(now);
        }
        if self.deadlines.take_due(now, Deadline::Control) {
            self.repeat_control(now);
        }
        if self.deadlines.take_due(now, Deadline::Cork) {
            self.send.cork_mut().set_overdue(true);
            self.wake();
        }
        if self.deadlines.take_due(now, Deadline::User) && self.sending().user_timeout_passed(now) {
            // RFC 9293 3.8.3: the connection is closed, and the application told.
            self.subflows.abort_all();
            self.may_transmit = true;
            self.die(CloseReason::UserTimeout);
        }
        if self.deadlines.take_due(now, Deadline::Orphan) {
            self.on_orphan_timeout(now);
        }
        if self.deadlines.take_due(now, Deadline::Linger) {
            self.subflows.abort_all();
            self.may_transmit = true;
            if self.send.fin_acked() && self.receive.finished() {
                self.finish();
            } else {
                self.die(CloseReason::NoSubflow);
            }
        }
    }

    #[cold]
    pub(super) fn repeat_control(&mut self, now: Time) {
        let mut again = false;
        for request in self.path_manager.take_due_retries(now) {
            Joining::of(self).request(request);
        }
        let first_dsn = self.handshake.remote_dsn(0);
        for index in 0..self.subflows.len() {
            // MP_FAIL has no acknowledgement but the infinite mapping: it is repeated until that comes.
            let repeated = self.subflows.get_mut(index).and_then(|subflow| {
                let repeated = subflow.known_fallback_mut()?.repeat_fail(first_dsn)?;
                if repeated {
                    subflow.tcp.request_ack();
                }
                Some(repeated)
            });
            match repeated {
                Some(true) => again = true,
                Some(false) => self.give_up_failing(now, index),
                None => {}
            }
            let Some((subflow, metrics)) = self.subflows.both_mut(index) else { continue };
            // The third ACK is data to nobody: TCP wouldn't repeat it (RFC 8684 3.2).
            if subflow.join() == Join::AckSent && metrics.state == SubflowStatus::Handshaking {
                if subflow.repeat_third_ack() {
                    again = true;
                } else {
                    self.refuse(now, index, CloseReason::Join(JoinError::Unanswered));
                }
            }
        }
        if again || self.path_manager.has_pending_announcement() {
            self.may_transmit = true;
            if self.path_manager.has_due_announcement(now) {
                self.may_transmit |= self.subflows.request_ack_on_best();
            }
            self.deadlines.arm_control(now);
        }
        if let Some(first) = self.path_manager.next_retry() {
            self.deadlines.set_no_later(Deadline::Control, first);
        }
    }
}
