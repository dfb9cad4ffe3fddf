//! How far the congestion window is used: it grows only while it is the limit, and decays while the application
//! doesn't fill it (RFC 7661's aim by RFC 2861's means; Linux's `tcp_cwnd_validate`), or after an idle time (RFC
//! 5681 4.1).

use ropewalk_wire::Payload;

use super::{Context, Subflow};
use crate::Nanos;
use crate::flow::{Flow, Phase};

/// What is remembered of the present window of data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Usage {
    /// The window was full at some time.
    limited: bool,
    /// Most segments outstanding while it wasn't.
    most_out: u32,
    /// The window of data ends here.
    end: u64,
    /// Most segments outstanding since the window was last the limit, and since when it wasn't.
    used: u32,
    since: Nanos,
}

impl Usage {
    /// Whether the window was the limit for what is acknowledged now; in slow start half of it is enough, so that
    /// it may double.
    #[inline]
    pub fn limited(&self, flow: &Flow) -> bool {
        self.limited || (flow.in_slow_start() && flow.cwnd < 2 * self.most_out)
    }

    /// Something of it.
    #[inline]
    pub fn touch(&self) -> u64 {
        self.end
    }

    /// The window was set anew: its use is watched from now.
    pub fn restart(&mut self, now: Nanos) {
        self.since = now;
        self.used = 0;
    }
}

/// The threshold that a window which wasn't filled deserves: three quarters of it, outside recovery.
pub(super) fn current_ssthresh(flow: &Flow) -> u32 {
    match flow.phase {
        Phase::Cwr | Phase::Recovery => flow.ssthresh,
        _ => flow.ssthresh.max((flow.cwnd >> 1) + (flow.cwnd >> 2)),
    }
}

impl<P: Payload> Subflow<P> {
    /// New data was sent.
    #[inline]
    pub(super) fn validate_window(&mut self, cx: &mut Context<'_>) {
        let flow = &cx.flows[cx.index];
        let full = flow.in_flight() >= flow.cwnd;
        let usage = &mut self.usage;
        if self.snd_una >= usage.end || full || (!usage.limited && flow.packets_out > usage.most_out) {
            usage.limited = full;
            usage.most_out = flow.packets_out;
            usage.end = self.snd_nxt;
        }
        if usage.limited(flow) {
            usage.restart(cx.now);
        } else {
            usage.used = usage.used.max(flow.packets_out);
            if cx.tcp.idle_restart && cx.now >= usage.since + flow.rto {
                self.decay(cx);
            }
        }
    }

    /// The application, or the peer's window, left part of the window unused for an RTO.
    #[cold]
    fn decay(&mut self, cx: &mut Context<'_>) {
        let used = self.usage.used.max(cx.tcp.initial_window);
        self.usage.restart(cx.now);
        let writer_waits = cx.shared.writer_waits;
        let flow = cx.flow();
        if flow.phase == Phase::Open && !writer_waits && used < flow.cwnd {
            flow.ssthresh = current_ssthresh(flow);
            flow.cwnd = (flow.cwnd + used) / 2;
        }
    }

    /// Before new data is sent: the window halves for each further RTO of silence, not below the initial one.
    #[inline]
    pub(super) fn restart_after_idle(&mut self, cx: &mut Context<'_>) {
        let flow = &cx.flows[cx.index];
        if flow.packets_out > 0 || !cx.tcp.idle_restart {
            return;
        }
        let idle = cx.now.saturating_sub(self.last_sent_at);
        if idle > flow.rto.max(1) {
            self.restart(cx, idle);
        }
    }

    #[cold]
    fn restart(&mut self, cx: &mut Context<'_>, idle: Nanos) {
        let rto = cx.flows[cx.index].rto.max(1);
        let halvings = ((idle - 1) / rto).min(31) as u32;
        let initial = cx.tcp.initial_window;
        let flow = cx.flow();
        flow.ssthresh = current_ssthresh(flow);
        let floor = initial.min(flow.cwnd);
        flow.cwnd = (flow.cwnd >> halvings).max(floor);
        self.usage.restart(cx.now);
        self.last_sent_at = cx.now;
        cx.congestion.on_idle_restart(cx.flows, cx.index, idle);
    }
}
