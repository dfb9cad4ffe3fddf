//! Connection-level retransmission (RFC 8684 3.3.6): what no DATA_ACK answers goes again.

use ropewalk_wire::Payload;

use super::deadlines::Deadline;
use super::sending::Sending;
use crate::scheduler::Decision;
use crate::{Nanos, SECOND};

impl<P: Payload> Sending<'_, P> {
    /// Whether something is to come of the peer at connection level. In plain TCP the subflow has its own timers, of a
    /// closed window as well.
    #[inline]
    pub fn awaits_data_ack(&self) -> bool {
        self.handshake.is_multipath()
            && !self.closing.is_terminated()
            && (self.send.una() < self.send.assigned_end()
                || (self.send.closed() && !self.send.fin_acked() && self.send.unsent() == 0)
                || (self.send.unsent() > 0 && self.send.window_left() == 0))
    }

    /// Arms or stops the timer.
    #[inline(never)]
    pub fn arm_retransmission(&mut self, now: Nanos) {
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
    /// No DATA_ACK for long: the head goes again, and the DATA_FIN. Returns whether subflows have something to send for it.
    #[cold]
    pub fn on_retransmission_timeout(&mut self, now: Nanos) -> bool {
        let backoff = self.send.back_off();
        let una = self.send.una();
        // What some subflow still queues for its first transmission needs no second copy. Nor does what a lone subflow has delivered to
        // a peer that may have fallen back: to plain TCP a copy is new data.
        if self.send.una() < self.send.assigned_end() && !self.subflows.is_failing() {
            self.send.reinject(una..una + 1);
        }
        let is_filled = self.fill_silly_window(now);
        let only_fin = self.send.closed() && self.send.una() == self.send.written() && backoff >= 2;
        // The peer may still be in SYN-RECEIVED, and drops a probe with the keys on it: every other time they go on ACKs alone.
        let only_fin = only_fin && (self.handshake.is_confirmed() || backoff % 2 == 1);
        if (self.send.window_left() == 0 && !is_filled) || only_fin {
            //= RFC 9293 MUST-36 a zero window is probed
            // The window's reopening may have been lost with a path: every subflow asks for it. And a DATA_FIN that
            // nothing answers may never arrive: what comes back shows whether options still do.
            self.subflows.probe_windows();
        }
        self.subflows.request_ack_on_all()
    }

    /// A segment's worth of window didn't come in time: sends what fits (RFC 9293 3.8.6.2.1). Returns whether anything does.
    fn fill_silly_window(&mut self, now: Nanos) -> bool {
        let bytes = self.send.silly_window().min(u64::from(u16::MAX)) as u32;
        let fastest = self.subflows.usable().min_by_key(|m| (m.backup, m.rtt.smoothed));
        let Some(subflow) = fastest.map(|metrics| metrics.id) else { return false };
        bytes > 0 && self.apply(now, Decision::Queue { subflow, bytes }, 1).0.is_some()
    }
}
