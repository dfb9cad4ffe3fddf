//! Probes of a silent peer: zero-window probes (RFC 9293 3.8.6.1) and keep-alives (3.8.4). Both are a segment without
//! data just below what the peer expects, which makes it say where it stands.

use ropewalk_wire::{Flags, Payload, Segment};

use super::timer::Timer;
use super::{Context, Kind, Outcome, State, Subflow, Transmit};
use crate::{Nanos, SECOND};

impl<P: Payload> Subflow<P> {
    fn probes_window(&self) -> bool {
        matches!(self.state, State::Established | State::CloseWait)
    }

    /// Bytes that the peer's window admits beyond what was sent.
    #[inline]
    pub(super) fn window_left(&self) -> u64 {
        (self.snd_una + self.snd_wnd).saturating_sub(self.snd_nxt)
    }

    /// Whether less than a segment may leave although more waits: if it is half of the largest window that the peer ever
    /// offered, or the window has stayed as it is for the override timeout.
    //= RFC 9293 MUST-38 sender-side silly window avoidance
    #[cold]
    pub(super) fn may_send_partial(&mut self, left: usize) -> bool {
        let overdue = left > 0 && std::mem::take(&mut self.persist_pending);
        overdue || (left > 0 && 2 * left as u64 >= self.max_window)
    }

    /// Data waits for a window that is closed, or too small to be worth a segment, and nothing is in flight whose ACK could open
    /// it: arms the probe, or the override timeout.
    #[cold]
    pub(crate) fn await_window(&mut self, cx: &Context<'_>) {
        if self.probes_window() && self.rtx.is_empty() && self.timers.get(Timer::Persist).is_none() {
            //= RFC 9293 MUST-35 MUST-36 SHLD-29 SHLD-30 first after a timeout, then at increasing intervals
            let base = cx.metrics[cx.index].rto.max(cx.tcp.min_rto);
            //= RFC 9293 MUST-38 the override timeout is 0.1 to 1 second
            let most = if self.window_left() > 0 { SECOND } else { cx.tcp.max_rto };
            let wait = base.saturating_mul(1 << self.persist_backoff.min(16)).min(most);
            self.timers.set(Timer::Persist, cx.now + wait);
        }
    }

    /// A probe of the closed window is due.
    pub(super) fn on_persist_timer(&mut self, cx: &Context<'_>, outcome: &mut Outcome) {
        if !self.probes_window() || !self.rtx.is_empty() {
            return;
        }
        // A peer that answers is probed for as long as it keeps its window closed (RFC 9293 MUST-37, SHLD-30).
        if self.probes_out >= cx.tcp.retries {
            self.give_up(outcome);
            return;
        }
        self.probes_out += 1;
        self.persist_backoff += 1;
        self.persist_pending = true;
    }

    /// Time for a keep-alive, unless something was heard or is under way.
    pub(super) fn on_keep_alive_timer(&mut self, cx: &Context<'_>, idle: Nanos, outcome: &mut Outcome) {
        if !self.rtx.is_empty() || !self.queue.is_empty() {
            self.timers.set(Timer::Idle, cx.now + idle);
            return;
        }
        let silent = cx.now.saturating_sub(self.received_at);
        //= RFC 9293 MUST-26
        if silent < idle {
            self.timers.set(Timer::Idle, cx.now + idle - silent);
        //= RFC 9293 MUST-29
        } else if self.probes_out >= cx.tcp.keep_alive_probes {
            self.give_up(outcome);
        } else {
            self.probes_out += 1;
            self.counters.keep_alives += 1;
            self.persist_pending = true;
            self.timers.set(Timer::Idle, cx.now + cx.tcp.keep_alive_interval);
        }
    }

    /// The peer is silent for too long.
    #[cold]
    pub(super) fn give_up(&mut self, outcome: &mut Outcome) {
        self.counters.abort_on_timeout += 1;
        self.reset_pending = true;
        self.become_closed();
        outcome.failed = true;
    }

    /// The probe.
    #[cold]
    pub(super) fn transmit_window_probe(
        &mut self,
        cx: &mut Context<'_>,
        segment: &mut Segment<P>,
    ) -> Transmit {
        self.counters.window_probes += 1;
        //= RFC 9293 SHLD-12
        self.segment(cx, self.snd_una.saturating_sub(1), Flags::default(), segment);
        Transmit { kind: Kind::Ack, tag: 0, ssn: self.snd_una as u32, retransmission: false, part: None }
    }
}
