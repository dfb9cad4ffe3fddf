//! What happens when a deadline passes: retransmission timeout (RFC 6298 5), tail loss probe (RFC 8985 7), delayed
//! ACK, zero-window probe, keep-alive, the end of TIME-WAIT.

use ropewalk_wire::Payload;

use super::timer::Timer;
use super::{Context, Outcome, State, Subflow};

impl<P: Payload> Subflow<P> {
    /// Time has passed; a call before the deadline does nothing.
    #[inline(never)]
    pub fn on_timeout(&mut self, cx: &mut Context<'_>) -> Outcome {
        self.quiet = false;
        let mut outcome = Outcome::default();
        let now = cx.now;
        if self.timers.expire(Timer::DelayedAck, now) {
            self.delack.on_timer(cx.tcp.delayed_ack, cx.metrics[cx.index].rto);
            self.counters.delayed_acks += 1;
            self.ack_now = true;
        }
        if self.timers.expire(Timer::Reorder, now) {
            self.on_reorder_timer(cx, &mut outcome);
        }
        if self.timers.expire(Timer::Probe, now) {
            self.on_probe_timer(cx);
        }
        //= RFC 9293 MUST-37 SHLD-30 probing never gives up
        if self.timers.expire(Timer::Persist, now) {
            self.on_persist_timer(cx, &mut outcome);
        }
        if self.timers.expire(Timer::Retransmit, now) {
            self.on_retransmission_timeout(cx, &mut outcome);
        }
        if self.timers.expire(Timer::Idle, now) {
            if self.state == State::TimeWait {
                self.become_closed();
                outcome.closed = true;
            } else if let Some(idle) = cx.tcp.keep_alive {
                self.on_keep_alive_timer(cx, idle, &mut outcome);
            }
        }
        outcome
    }

    fn on_retransmission_timeout(&mut self, cx: &mut Context<'_>, outcome: &mut Outcome) {
        match self.state {
            State::SynSent | State::SynReceived => {
                self.backoff += 1;
                self.note_timeout(cx, outcome);
                //= RFC 9293 MUST-22
                if self.backoff > cx.tcp.syn_retries {
                    self.counters.abort_on_timeout += 1;
                    self.become_closed();
                    outcome.failed = true;
                } else {
                    self.syn_pending = true;
                    self.syn_retransmitted = true;
                    self.counters.syn_retrans += 1;
                    if self.backoff > 1 {
                        // RFC 5681 3.1: after a lost SYN the window is one segment; as in Linux a single repeat, which
                        // may be due to a slow path, is forgiven.
                        cx.metrics().cwnd = 1;
                    }
                }
            }
            _ => {
                if self.rtx.is_empty() {
                    return;
                }
                self.note_timeout(cx, outcome);
                if self.retransmits >= cx.tcp.retries {
                    //= RFC 9293 MUST-20 SHLD-11 give up at R2
                    self.give_up(outcome);
                    return;
                }
                self.suspect_black_hole(cx);
                self.enter_loss(cx, outcome);
                self.retransmits += 1;
                //= RFC 9293 MUST-19 back off the timer (RFC 6298 5.5)
                self.backoff += 1;
                self.arm_retransmit(cx);
                self.timers.stop(Timer::Probe);
            }
        }
    }

    fn note_timeout(&mut self, cx: &mut Context<'_>, outcome: &mut Outcome) {
        outcome.timeout = true;
        self.counters.timeouts += 1;
        cx.metrics().timeouts += 1;
    }
}
