//! What happens when a deadline passes: retransmission timeout (RFC 6298 5), tail loss probe (RFC 8985 7), delayed
//! ACK, zero-window probe, keep-alive, the end of TIME-WAIT.

//= RFC 9293 MUST-26
//= RFC 9293 MUST-29
//= RFC 9293 MUST-22
//= RFC 9293 MUST-20 SHLD-11
//= RFC 9293 MUST-19

use ropewalk_wire::Payload;

use super::timer::Timer;
use super::{Context, Outcome, State, Subflow};

/// Keep-alive: probes before giving up, and the time between them (Linux's defaults).
const KEEP_ALIVE_INTERVAL: u64 = 75 * crate::SECOND;
const KEEP_ALIVE_PROBES: u32 = 9;

impl<P: Payload> Subflow<P> {
    /// Time has passed; a call before the deadline does nothing.
    pub fn on_timeout(&mut self, cx: &mut Context<'_>) -> Outcome {
        let mut outcome = Outcome::default();
        let now = cx.now;
        if self.timers.expire(Timer::DelayedAck, now) {
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
            self.persist_pending = true;
            self.backoff = (self.backoff + 1).min(16);
        }
        if self.timers.expire(Timer::Retransmit, now) {
            self.on_retransmission_timeout(cx, &mut outcome);
        }
        if self.timers.expire(Timer::Idle, now) {
            if self.state == State::TimeWait {
                self.become_closed();
                outcome.closed = true;
            } else if let Some(idle) = cx.tcp.keep_alive {
                self.on_idle(cx, idle, &mut outcome);
            }
        }
        outcome
    }

    fn on_idle(&mut self, cx: &mut Context<'_>, idle: u64, outcome: &mut Outcome) {
        let silent = cx.now.saturating_sub(cx.flows[cx.index].last_progress.max(self.ts_recent_at));
        if silent < idle {
            self.timers.set(Timer::Idle, cx.now + idle - silent);
        } else if silent >= idle + KEEP_ALIVE_INTERVAL * u64::from(KEEP_ALIVE_PROBES) {
            self.become_closed();
            outcome.failed = true;
        } else {
            self.persist_pending = true;
            self.timers.set(Timer::Idle, cx.now + KEEP_ALIVE_INTERVAL);
        }
    }

    fn on_retransmission_timeout(&mut self, cx: &mut Context<'_>, outcome: &mut Outcome) {
        self.backoff += 1;
        outcome.timeout = true;
        self.counters.timeouts += 1;
        cx.flow().timeouts += 1;
        match self.state {
            State::SynSent | State::SynReceived => {
                if self.backoff > cx.tcp.syn_retries {
                    self.become_closed();
                    outcome.failed = true;
                } else {
                    self.syn_pending = true;
                    self.syn_retransmitted = true;
                    // RFC 6298 5.7, RFC 5681 3.1: a lost SYN costs the initial window.
                    cx.flow().cwnd = 1;
                }
            }
            _ => {
                if self.rtx.is_empty() {
                    return;
                }
                if self.backoff > cx.tcp.retries {
                    self.reset_pending = true;
                    self.become_closed();
                    outcome.failed = true;
                    return;
                }
                self.enter_loss(cx, outcome);
                self.retransmits += 1;
                self.arm_retransmit(cx);
                self.timers.stop(Timer::Probe);
            }
        }
    }
}
