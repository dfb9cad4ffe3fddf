//! Connection-level retransmission (RFC 8684 3.3.6): what no DATA_ACK answers goes again; and the user
//! timeout (RFC 9293 3.9.1), after which it doesn't any more.

use ropewalk_wire::{Flags, Payload, Segment};

use super::deadlines::Deadline;
use super::sending::Sending;
use crate::metrics::SubflowStatus;
use crate::scheduler::{self, Decision};
use crate::tcp::{Outcome, State};
use crate::{SECOND, SubflowId, Time};

/// What a DATA_ACK brought.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DataAcked {
    /// Something may be sent now.
    pub wakes: bool,
    /// The DATA_FIN is acknowledged.
    pub fin: bool,
}

impl<P: Payload> Sending<'_, P> {
    /// Whether something is to come of the peer at connection level. In plain TCP the subflow has its own
    /// timers, of a closed window as well.
    #[inline]
    pub fn awaits_data_ack(&self) -> bool {
        self.handshake.is_multipath()
            && !self.closing.is_terminated()
            && (self.send.una() < self.send.assigned_end()
                || (self.send.closed() && !self.send.fin_acked() && self.send.unsent() == 0)
                || (self.send.unsent() > 0 && self.send.window_left() == 0))
    }

    /// Everything up to `acked` is acknowledged. `window`: relative to it, if it is news.
    pub fn on_data_ack(&mut self, now: Time, acked: u64, window: Option<u64>) -> DataAcked {
        // What the subflow was given waits for its window; when that opens, the rest follows at once.
        let reopens = window.is_some() && self.handshake.is_plain() && self.send.is_window_taken_back();
        let mut outcome = DataAcked { wakes: reopens, fin: false };
        if let Some(window) = window
            && self.send.on_window(acked, window)
        {
            if self.handshake.is_plain() {
                self.send.reset_backoff();
                self.deadlines.stop(Deadline::Retransmit);
            }
            self.scheduling.unblock(now);
            outcome.wakes = true;
        }
        if window.is_some() && self.send.has_bound_beyond_window() {
            self.send.wake_writer(self.events);
        }
        let data = acked.min(self.send.written());
        //= RFC 8684 3.3.2-4 3.3.6-2 4-1
        if self.send.acknowledge(data) > 0 {
            self.send.progress(now);
            self.send.reset_backoff();
            self.notify(now, scheduler::Event::DataAcked);
            outcome.wakes = true;
            self.send.wake_writer(self.events);
            self.arm_retransmission(now);
            if self.send.una() == self.send.written() {
                self.release_memory();
            }
        }
        self.judge_window();
        if self.handshake.is_multipath()
            && self.send.closed()
            && !self.send.fin_acked()
            && acked > self.send.written()
        {
            self.send.acknowledge_fin();
            self.deadlines.stop(Deadline::Retransmit);
            outcome.fin = true;
        }
        outcome
    }

    /// Everything that was written is acknowledged: frees what kept it, since connections are mostly idle
    /// where there are many.
    #[cold]
    pub fn release_memory(&mut self) {
        self.send.shrink();
        self.subflows.release_memory();
    }

    /// A subflow's retransmission timer fired: what it carries is reinjected on the others.
    #[cold]
    pub fn on_subflow_timeout(&mut self, now: Time, index: usize) {
        self.notify(now, scheduler::Event::Timeout(SubflowId(index as u8)));
        if !self.handshake.is_multipath() {
            return;
        }
        let others = self.subflows.usable().any(|metrics| metrics.id.index() != index);
        let Some((subflow, metrics)) = self.subflows.both_mut(index) else { return };
        let timeouts = subflow.on_timeout();
        let may_carry =
            matches!(metrics.state, SubflowStatus::Usable | SubflowStatus::Stale | SubflowStatus::Closing);
        if !others || !may_carry {
            return;
        }
        //= RFC 8684 3.3.6-a 3.3.6-1 the subflow repeats it as well
        for (offset, len) in subflow.tcp.outstanding() {
            self.send.reinject(offset..offset + u64::from(len));
        }
        if timeouts >= 2 && metrics.state == SubflowStatus::Usable {
            metrics.state = SubflowStatus::Stale;
        }
    }

    /// Whether an acceptable segment without DSS shows that the peer, or something on the way, has left
    /// Multipath TCP: it acknowledges data without a DATA_ACK, ends the stream without a DATA_FIN, or is all
    /// that answers a DATA_FIN time and again. `ended`: the peer's DATA_FIN has come.
    #[cold]
    pub fn shows_fallback(&self, segment: &Segment<P>, outcome: &Outcome, ended: bool) -> bool {
        let waits_for_fin_ack = self.send.closed()
            && !self.send.fin_acked()
            && self.send.una() == self.send.written()
            && self.send.backoff() >= 2
            && !segment.flags.contains(Flags::SYN);
        outcome.acked_bytes > 0 || (outcome.fin && !ended) || waits_for_fin_ack
    }

    /// Arms or stops the timer.
    #[inline(never)]
    pub fn arm_retransmission(&mut self, now: Time) {
        if !self.awaits_data_ack() {
            self.deadlines.stop(Deadline::Retransmit);
            return;
        }
        let rto = self.subflows.usable().map(|metrics| metrics.rto).max();
        let rto = rto.unwrap_or(self.config.tcp.rto.initial);
        //= RFC 9293 MUST-38 the override timeout is 0.1 to 1 second
        let most = if self.send.silly_window() > 0 { SECOND } else { self.config.tcp.rto.max };
        let wait = rto.saturating_mul(1 << self.send.backoff().min(10)).min(most);
        self.deadlines.set(Deadline::Retransmit, now + wait);
    }

    //= RFC 8684 3.3.3-b
    /// No DATA_ACK for long: the head goes again, and the DATA_FIN. Returns whether subflows have something
    /// to send for it.
    #[cold]
    pub fn on_retransmission_timeout(&mut self, now: Time) -> bool {
        let backoff = self.send.back_off();
        let una = self.send.una();
        // What some subflow still queues for its first transmission needs no second copy. Nor does what a
        // lone subflow has delivered to a peer that may have fallen back: to plain TCP a copy is new data.
        if self.send.una() < self.send.assigned_end() && !self.subflows.is_failing() {
            self.send.reinject(una..una + 1);
        }
        let is_filled = self.fill_silly_window(now);
        let only_fin = self.send.closed() && self.send.una() == self.send.written() && backoff >= 2;
        // The peer may still be in SYN-RECEIVED, and drops a probe with the keys on it: every other time they
        // go on ACKs alone.
        let only_fin = only_fin && (self.handshake.is_confirmed() || backoff % 2 == 1);
        if (self.send.window_left() == 0 && !is_filled) || only_fin {
            //= RFC 9293 MUST-36 a zero window is probed
            // The window's reopening may have been lost with a path: every subflow asks for it. And a
            // DATA_FIN that nothing answers may never arrive: what comes back shows whether options still do.
            self.subflows.probe_windows();
        }
        self.subflows.request_ack_on_all()
    }

    /// A segment's worth of window didn't come in time: sends what fits (RFC 9293 3.8.6.2.1). Returns whether
    /// anything does.
    fn fill_silly_window(&mut self, now: Time) -> bool {
        let bytes = self.send.silly_window().min(u64::from(u16::MAX)) as u32;
        let fastest = self.subflows.usable().min_by_key(|m| (m.backup, m.rtt.smoothed));
        let Some(subflow) = fastest.map(|metrics| metrics.id) else { return false };
        bytes > 0 && self.apply(now, Decision::Queue { subflow, bytes }, 1).0.is_some()
    }

    /// Something more is to be acknowledged, perhaps: the user timeout runs from now on, unless it runs
    /// already.
    #[cold]
    pub fn start_user_timeout(&mut self, now: Time, was_waiting: bool) {
        if !was_waiting {
            self.send.progress(now);
        }
        if let Some(timeout) = self.config.tcp.user_timeout
            && !self.deadlines.is_set(Deadline::User)
            && self.awaits_acknowledgement()
        {
            self.deadlines.set(Deadline::User, now.saturating_add(timeout));
        }
    }

    /// Whether the peer is yet to acknowledge our SYN, data or DATA_FIN.
    fn awaits_acknowledgement(&self) -> bool {
        let is_opening = |state| matches!(state, State::SynSent | State::SynReceived);
        let mut subflows = self.subflows.iter();
        !self.closing.is_terminated()
            && (self.send.una() < self.send.written()
                || (self.send.closed() && !self.send.fin_acked() && self.handshake.is_multipath())
                || subflows.all(|subflow| is_opening(subflow.tcp.state())))
    }

    //= RFC 9293 3.9.1 the user timeout: data that isn't acknowledged in time ends the connection
    /// Whether the user timeout has passed: it counts from the last acknowledgement of something new.
    #[cold]
    pub fn user_timeout_passed(&mut self, now: Time) -> bool {
        let Some(timeout) = self.config.tcp.user_timeout.filter(|_| self.awaits_acknowledgement()) else {
            return false;
        };
        let at = self.send.progress_at().saturating_add(timeout);
        if at > now {
            self.deadlines.set(Deadline::User, at);
        }
        at <= now
    }
}
