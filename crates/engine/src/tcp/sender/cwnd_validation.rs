//! How far the congestion window is used: it grows only while it is the limit, and decays while the application
//! doesn't fill it (RFC 7661's aim by RFC 2861's means; Linux's `tcp_cwnd_validate`), or after an idle time (RFC
//! 5681 4.1).

use ropewalk_wire::Payload;

use crate::Nanos;
use crate::metrics::{CaState, SubflowMetrics};
use crate::tcp::{Context, Subflow};

/// What is remembered of the present window of data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CwndValidation {
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

impl CwndValidation {
    /// Whether the window was the limit for what is acknowledged now; in slow start half of it is enough, so that
    /// it may double.
    #[inline]
    pub fn limited(&self, metrics: &SubflowMetrics) -> bool {
        self.limited || (metrics.in_slow_start() && metrics.cwnd < 2 * self.most_out)
    }

    /// The window was set anew: its use is watched from now.
    pub fn restart(&mut self, now: Nanos) {
        self.since = now;
        self.used = 0;
    }
}

/// The threshold that a window which wasn't filled deserves: three quarters of it, outside recovery.
pub(in crate::tcp) fn current_ssthresh(metrics: &SubflowMetrics) -> u32 {
    match metrics.ca_state {
        CaState::Cwr | CaState::Recovery => metrics.ssthresh,
        _ => metrics.ssthresh.max((metrics.cwnd >> 1) + (metrics.cwnd >> 2)),
    }
}

impl<P: Payload> Subflow<P> {
    /// New data was sent.
    #[inline]
    pub(in crate::tcp) fn validate_window(&mut self, cx: &mut Context<'_>) {
        let metrics = &cx.metrics[cx.index];
        let full = metrics.in_flight() >= metrics.cwnd;
        let usage = &mut self.cwnd_validation;
        if self.snd_una >= usage.end || full || (!usage.limited && metrics.packets_out > usage.most_out) {
            usage.limited = full;
            usage.most_out = metrics.packets_out;
            usage.end = self.snd_nxt;
        }
        if usage.limited(metrics) {
            usage.restart(cx.now);
        } else {
            usage.used = usage.used.max(metrics.packets_out);
            if cx.tcp.idle_restart && cx.now >= usage.since + metrics.rto {
                self.decay(cx);
            }
        }
    }

    /// The application, or the peer's window, left part of the window unused for an RTO.
    #[cold]
    fn decay(&mut self, cx: &mut Context<'_>) {
        let used = self.cwnd_validation.used.max(cx.tcp.initial_window);
        self.cwnd_validation.restart(cx.now);
        let writer_waits = cx.shared.outgoing.writer_waits;
        let metrics = cx.metrics();
        if metrics.ca_state == CaState::Open && !writer_waits && used < metrics.cwnd {
            metrics.ssthresh = current_ssthresh(metrics);
            metrics.cwnd = (metrics.cwnd + used) / 2;
        }
    }

    /// Before new data is sent: the window halves for each further RTO of silence, not below the initial one.
    #[inline]
    pub(in crate::tcp) fn restart_after_idle(&mut self, cx: &mut Context<'_>) {
        let metrics = &cx.metrics[cx.index];
        if metrics.packets_out > 0 || !cx.tcp.idle_restart {
            return;
        }
        let idle = cx.now.saturating_sub(self.last_sent_at);
        if idle > metrics.rto.max(1) {
            self.restart(cx, idle);
        }
    }

    #[cold]
    fn restart(&mut self, cx: &mut Context<'_>, idle: Nanos) {
        let rto = cx.metrics[cx.index].rto.max(1);
        let halvings = ((idle - 1) / rto).min(31) as u32;
        let initial = cx.tcp.initial_window;
        let metrics = cx.metrics();
        metrics.ssthresh = current_ssthresh(metrics);
        let floor = initial.min(metrics.cwnd);
        metrics.cwnd = (metrics.cwnd >> halvings).max(floor);
        self.cwnd_validation.restart(cx.now);
        self.last_sent_at = cx.now;
        cx.congestion.on_idle_restart(cx.metrics, cx.index, idle);
    }
}
