//! Probes of a silent peer: zero-window probes (RFC 9293 3.8.6.1) and keep-alives (3.8.4). Both are a segment
//! without data just below what the peer expects, which it answers with an ACK.

use ropewalk_wire::Payload;

use super::context::{Context, GiveUp, Outcome, State};
use super::tcb::Tcb;
use super::timer::Timer;
use crate::{Span, Time};

impl<P: Payload> Tcb<P> {
    /// A probe of the closed window is due.
    pub(super) fn on_persist_timer(&mut self, cx: &Context<'_>, outcome: &mut Outcome) {
        // The ACK of what is in flight reports the window, and the retransmission
        // timer sees to it that there is one.
        if !self.common.may_send() || self.sender.has_in_flight() {
            return;
        }
        // A peer that answers is probed for as long as it keeps its window closed (RFC 9293 MUST-37,
        // SHLD-30); but not once the application has closed the connection, as nobody would notice any more
        // (Linux's `tcp_probe_timer`).
        let for_nobody = cx.shared.abandoned && self.sender.probes_at_longest_interval(cx);
        if for_nobody || self.probing.unanswered >= cx.tcp.retries {
            self.give_up(GiveUp::Retransmissions, outcome);
            return;
        }
        self.probing.unanswered += 1;
        self.sender.on_persist_timeout();
    }

    /// A keep-alive is due, unless something was received or is on its way.
    pub(super) fn on_keep_alive_timer(&mut self, cx: &Context<'_>, idle: Span, outcome: &mut Outcome) {
        let timers = &mut self.common.timers;
        // A keep-alive is only for a quiet connection (RFC 9293 3.8.4): data that waits or is out finds out
        // about a dead peer by its own timers.
        if !self.sender.is_drained() {
            timers.set(Timer::Idle, cx.now + idle);
            return;
        }
        let silent = cx.now.saturating_sub(self.probing.received_at);
        //= RFC 9293 MUST-26
        if silent < idle {
            timers.set(Timer::Idle, cx.now + idle - silent);
        //= RFC 9293 MUST-29
        } else if self.probing.unanswered >= cx.tcp.keep_alive.probes {
            self.give_up(GiveUp::KeepAlive, outcome);
        } else {
            timers.set(Timer::Idle, cx.now + cx.tcp.keep_alive.interval);
            self.probing.unanswered += 1;
            self.sender.request_window_probe();
            self.common.counters.keep_alives += 1;
        }
    }

    /// Probes the peer after `idle` without a segment of it, or not.
    pub(crate) fn set_keep_alive(&mut self, now: Time, idle: Option<Span>) {
        let timers = &mut self.common.timers;
        match (self.common.state, idle) {
            // The timer has another use, or is set at the handshake's end.
            (State::TimeWait | State::Closed | State::SynSent | State::SynReceived, _) => {}
            (_, Some(idle)) => timers.set(Timer::Idle, (self.probing.received_at + idle).max(now)),
            (_, None) => timers.stop(Timer::Idle),
        }
        self.probing.unanswered = 0;
    }

    /// The peer has been silent for too long.
    #[cold]
    pub(super) fn give_up(&mut self, cause: GiveUp, outcome: &mut Outcome) {
        self.common.counters.abort_on_timeout += 1;
        self.reset_pending = true;
        self.become_closed();
        outcome.failed = Some(cause);
    }
}
