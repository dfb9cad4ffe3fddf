//! The connection's timers: when it is to be called, and what it does then.

use ropewalk_wire::Payload;

use super::close_reason::{CloseReason, JoinError};
use super::connection::{Connection, Mode};
use super::path_manager::CONTROL_INTERVAL;
use super::subflow::Join;
use crate::metrics::SubflowStatus;
use crate::scheduler::Decision;
use crate::{Nanos, SECOND};

/// Third ACKs of a join that are repeated before the subflow is given up.
const JOIN_ACK_TRIES: u32 = 6;

impl<P: Payload> Connection<P> {
    /// The earliest deadline of the connection and its subflows.
    pub(crate) fn poll_timeout(&self) -> Option<Nanos> {
        let subflows =
            self.subflows.iter().flatten().map(|subflow| subflow.tcp.poll_timeout().unwrap_or(Nanos::MAX));
        Some(subflows.fold(self.deadlines.next(), Nanos::min)).filter(|at| *at != Nanos::MAX)
    }

    /// The earliest deadline, if it is before `known`.
    #[inline]
    pub(crate) fn timeout_before(&mut self, known: Nanos) -> Option<Nanos> {
        // Not `flatten`, which takes more instructions.
        let subflows = self.subflows.iter().filter_map(Option::as_ref);
        let subflows = subflows.map(|subflow| subflow.tcp.timeout_floor());
        if subflows.fold(self.deadlines.next(), Nanos::min) >= known {
            return None;
        }
        self.exact_timeout_before(known)
    }

    #[inline(never)]
    pub(super) fn exact_timeout_before(&mut self, known: Nanos) -> Option<Nanos> {
        let subflows = self.subflows.iter_mut().filter_map(Option::as_mut);
        let subflows = subflows.map(|subflow| subflow.tcp.refresh_timeout_floor());
        Some(subflows.fold(self.deadlines.next(), Nanos::min)).filter(|at| *at < known)
    }

    /// Deadlines that have passed.
    pub(crate) fn on_timeout(&mut self, now: Nanos) {
        for index in 0..self.subflows.len() {
            let due = self.subflows[index]
                .as_ref()
                .is_some_and(|s| s.tcp.poll_timeout().is_some_and(|at| at <= now));
            if due && let Some((mut cx, subflow)) = self.split(now, index) {
                let outcome = subflow.tcp.on_timeout(&mut cx);
                let lacks_probe_data = subflow.tcp.lacks_probe_data();
                self.may_transmit = true;
                if lacks_probe_data {
                    self.assign_probe(now, index);
                }
                self.note_outcome(now, index, &outcome);
                self.remove_if_finished(now, index);
            }
        }
        if self.deadlines.wait.is_some_and(|at| at <= now) {
            self.deadlines.wait = None;
            self.wake();
        }
        if self.deadlines.retransmit.is_some_and(|at| at <= now) {
            self.on_meta_timeout(now);
        }
        if self.deadlines.control.is_some_and(|at| at <= now) {
            self.deadlines.control = None;
            self.repeat_control(now);
        }
        if self.deadlines.cork.is_some_and(|at| at <= now) {
            self.on_cork_timeout();
        }
        if self.deadlines.user.is_some_and(|at| at <= now) {
            self.on_user_timeout(now);
        }
        if self.deadlines.linger.is_some_and(|at| at <= now) {
            self.deadlines.linger = None;
            for subflow in self.subflows.iter_mut().flatten() {
                subflow.tcp.abort();
            }
            self.may_transmit = true;
            if self.send.fin_acked() && self.receive.finished() {
                self.finish();
            } else {
                self.die(CloseReason::NoSubflow);
            }
        }
    }

    /// Whether something is to come of the peer at connection level. In plain TCP the subflow has its own timers, of a
    /// closed window as well.
    #[inline]
    pub(crate) fn awaits_data_ack(&self) -> bool {
        self.mode == Mode::Multipath
            && !self.life.terminated
            && (self.send.una() < self.send.assigned_end()
                || (self.send.closed() && !self.send.fin_acked() && self.send.unsent() == 0)
                || (self.send.unsent() > 0 && self.send.window_left() == 0))
    }

    /// Arms or stops the connection-level retransmission timer (RFC 8684 3.3.6).
    #[inline(never)]
    pub(crate) fn arm_meta(&mut self, now: Nanos) {
        if !self.awaits_data_ack() {
            self.deadlines.retransmit = None;
            return;
        }
        let rto = self
            .metrics
            .iter()
            .filter(|f| f.usable())
            .map(|f| f.rto)
            .max()
            .unwrap_or(self.config.tcp.rto.initial);
        //= RFC 9293 MUST-38 the override timeout is 0.1 to 1 second
        let most = if self.send.silly_window() > 0 { SECOND } else { self.config.tcp.rto.max };
        let wait = rto.saturating_mul(1 << self.meta_backoff.min(10)).min(most);
        self.deadlines.retransmit = Some(now + wait);
    }

    //= RFC 8684 3.3.3-b
    /// No DATA_ACK for long: the head goes again, and the DATA_FIN.
    #[cold]
    pub(super) fn on_meta_timeout(&mut self, now: Nanos) {
        self.meta_backoff += 1;
        let una = self.send.una();
        // What some subflow still queues for its first transmission needs no second copy. Nor does what a lone subflow has delivered to
        // a peer that may have fallen back: to plain TCP a copy is new data.
        if self.send.una() < self.send.assigned_end() && !self.is_failing() {
            self.send.reinject(una..una + 1);
        }
        let is_filled = self.fill_silly_window(now);
        let only_fin = self.send.closed() && self.send.una() == self.send.written() && self.meta_backoff >= 2;
        // The peer may still be in SYN-RECEIVED, and drops a probe with the keys on it: every other time they go on ACKs alone.
        let only_fin = only_fin && (self.negotiated.confirmed || self.meta_backoff % 2 == 1);
        if (self.send.window_left() == 0 && !is_filled) || only_fin {
            //= RFC 9293 MUST-36 a zero window is probed
            // The window's reopening may have been lost with a path: every subflow asks for it. And a DATA_FIN that
            // nothing answers may never arrive: what comes back shows whether options still do.
            for subflow in self.subflows.iter_mut().flatten() {
                subflow.tcp.probe_window();
            }
        }
        self.ack_on_all();
        self.wake();
        self.arm_meta(now);
    }

    /// A segment's worth of window didn't come in time: sends what fits (RFC 9293 3.8.6.2.1). Returns whether anything does.
    fn fill_silly_window(&mut self, now: Nanos) -> bool {
        let bytes = self.send.silly_window().min(u64::from(u16::MAX)) as u32;
        let usable = self.metrics.iter().filter(|metrics| metrics.usable());
        let Some(subflow) = usable.min_by_key(|m| (m.backup, m.rtt.smoothed)).map(|m| m.id) else {
            return false;
        };
        bytes > 0 && self.apply(now, Decision::Queue { subflow, bytes }, 1).0.is_some()
    }

    /// Judges the peer's window by the smallest segments that any subflow sends. In plain TCP the subflow does it.
    #[inline]
    pub(super) fn judge_window(&mut self) {
        let is_wide = self.send.window_end() > self.send.una() + u64::from(u16::MAX);
        let mss = if is_wide || self.mode != Mode::Multipath {
            0
        } else {
            self.metrics
                .iter()
                .filter(|metrics| metrics.usable())
                .map(|metrics| metrics.mss)
                .min()
                .unwrap_or(0)
        };
        self.send.judge_window(mss);
    }

    /// Arms the timer of repeated control.
    pub(crate) fn arm_control(&mut self, now: Nanos) {
        let at = now + CONTROL_INTERVAL;
        self.deadlines.control = Some(self.deadlines.control.map_or(at, |known| known.min(at)));
    }

    /// Has the timer of repeated control fire for the first join to be tried again.
    pub(super) fn arm_retries(&mut self) {
        let first = self.path_manager.next_retry();
        self.deadlines.control = [self.deadlines.control, first].into_iter().flatten().min();
    }

    #[cold]
    pub(super) fn repeat_control(&mut self, now: Nanos) {
        let mut again = false;
        for request in self.path_manager.take_due_retries(now) {
            self.request_join(request);
        }
        for index in 0..self.subflows.len() {
            again |= self.repeat_fail(now, index);
            let Some(subflow) = self.subflows[index].as_mut() else { continue };
            if subflow.join == Join::AckSent && self.metrics[index].state == SubflowStatus::Handshaking {
                subflow.join_ack_retries += 1;
                if subflow.join_ack_retries > JOIN_ACK_TRIES {
                    self.refuse(now, index, CloseReason::Join(JoinError::Unanswered));
                } else {
                    subflow.tcp.request_ack();
                    again = true;
                }
            }
        }
        if again || self.path_manager.has_pending_announcement() {
            self.may_transmit = true;
            if self.path_manager.has_due_announcement(now) {
                self.ack_on_best();
            }
            self.arm_control(now);
        }
        self.arm_retries();
    }
}
