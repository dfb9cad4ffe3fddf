//! Timeouts: retransmission (RFC 6298 5), tail loss probe and reordering (RFC 8985), delayed ACK, zero-window
//! probe, keep-alive, the end of TIME-WAIT.

use ropewalk_wire::Payload;

use super::context::{Context, GiveUp, Outcome, State};
use super::tcb::Tcb;
use super::timer::Timer;

impl<P: Payload> Tcb<P> {
    /// Time has passed; a call before the deadline does nothing.
    #[inline(never)]
    pub fn on_timeout(&mut self, cx: &mut Context<'_>) -> Outcome {
        self.nothing_to_send = false;
        let mut outcome = Outcome::default();
        let now = cx.now;
        let common = &mut self.common;
        if common.timers.expire(Timer::DelayedAck, now) {
            self.receiver.on_delayed_ack_timer(common, cx);
        }
        if common.timers.expire(Timer::Reorder, now) {
            self.sender.on_reorder_timer(common, cx, &mut outcome);
        }
        if common.timers.expire(Timer::Probe, now) {
            self.sender.on_probe_timer(common, cx);
        }
        //= RFC 9293 MUST-37 SHLD-30 probing doesn't give up while the peer answers
        if common.timers.expire(Timer::Persist, now) {
            self.on_persist_timer(cx, &mut outcome);
        }
        // Data that was held back is sent when the subflow is asked.
        self.common.timers.expire(Timer::Pace, now);
        if self.common.timers.expire(Timer::Retransmit, now) {
            self.on_retransmission_timeout(cx, &mut outcome);
        }
        if self.common.timers.expire(Timer::Idle, now) {
            if self.common.state == State::TimeWait {
                self.become_closed();
                outcome.closed = true;
            } else if let Some(idle) = cx.tcp.keep_alive.idle {
                self.on_keep_alive_timer(cx, idle, &mut outcome);
            }
        }
        outcome
    }

    fn on_retransmission_timeout(&mut self, cx: &mut Context<'_>, outcome: &mut Outcome) {
        let in_handshake = matches!(self.common.state, State::SynSent | State::SynReceived);
        if !in_handshake && !self.sender.has_in_flight() {
            return;
        }
        outcome.timeout = true;
        self.common.counters.timeouts += 1;
        cx.metrics.totals.timeouts += 1;
        if in_handshake {
            self.on_handshake_timeout(cx, outcome);
        } else if self.sender.timeouts() >= cx.tcp.retries && !self.window_stays_closed(cx) {
            //= RFC 9293 MUST-20 SHLD-11 give up at R2
            self.give_up(GiveUp::Retransmissions, outcome);
        } else {
            self.sender.on_retransmission_timeout(&mut self.common, cx, outcome);
        }
    }

    /// Whether the peer answers and keeps its window closed: what is sent again, such as a FIN after a
    /// half-close, then probes the window, which doesn't give up (Linux's `tcp_rtx_probe0_timed_out`). Once
    /// the application has closed the connection nobody would notice how long that lasts: as in Linux, it
    /// ends.
    fn window_stays_closed(&self, cx: &Context<'_>) -> bool {
        let silent = cx.now.saturating_sub(self.probing.received_at);
        !cx.shared.abandoned && self.sender.peer_window() == 0 && silent <= 2 * cx.tcp.rto.max
    }
}
