//! Congestion window validation: the window grows only while it is the limit. It decays while the application
//! doesn't use it (the aim of RFC 7661 by the means of RFC 2861; Linux's `tcp_cwnd_validate`), and after an
//! idle time (RFC 5681 4.1).

use crate::config::WindowLimit;
use crate::metrics::{CaState, SubflowMetrics};
use crate::tcp::context::Context;
use crate::{MILLISECOND, Span, Time};

/// How far the congestion window is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct CwndValidation {
    /// The window was full at some time in this window of data (`is_cwnd_limited`).
    limited: bool,
    /// Most segments outstanding while it wasn't (`max_packets_out`).
    max_packets_out: u32,
    /// Where this window of data ends (`cwnd_usage_seq`).
    end: u64,
    /// Most segments outstanding since the window was last the limit, and when that was (`snd_cwnd_used`,
    /// `snd_cwnd_stamp`).
    used: u32,
    since: Time,
}

impl CwndValidation {
    /// Whether the window is the limit. In slow start half of it is enough, so that it may double.
    #[inline]
    pub fn is_cwnd_limited(&self, metrics: &SubflowMetrics) -> bool {
        self.limited || (metrics.in_slow_start() && metrics.cwnd() < 2 * self.max_packets_out)
    }

    /// Whether the window was full at some time in this window of data.
    pub fn was_full(&self) -> bool {
        self.limited
    }

    /// The window was set: its use is measured from now.
    pub fn restart(&mut self, now: Time) {
        self.since = now;
        self.used = 0;
    }

    /// New data was sent, and so many segments are in flight; `una` and `next` are SND.UNA and SND.NXT.
    #[inline(always)]
    pub fn on_data_sent(&mut self, cx: &mut Context<'_>, in_flight: u32, una: u64, next: u64) {
        let metrics = &*cx.metrics;
        let full = in_flight >= metrics.cwnd();
        // In other cases the record stands, so that a window that was full counts as full for
        // its whole round trip (`tcp_cwnd_validate`).
        if una >= self.end || full || (!self.limited && metrics.packets_out() > self.max_packets_out) {
            self.limited = full;
            self.max_packets_out = metrics.packets_out();
            self.end = next;
        }
        let limited = match cx.tcp.cwnd.window_limit {
            WindowLimit::PerWindow => self.is_cwnd_limited(metrics),
            WindowLimit::PerAck => metrics.packets_out() >= metrics.cwnd(),
            WindowLimit::Always => true,
        };
        if limited {
            self.restart(cx.now);
        } else {
            self.used = self.used.max(metrics.packets_out());
            if cx.tcp.cwnd.idle_restart && cx.now >= self.since + metrics.rto {
                self.decay(cx);
            }
        }
    }

    /// Part of the window wasn't used for an RTO, because of the application or the peer's window.
    #[cold]
    fn decay(&mut self, cx: &mut Context<'_>) {
        // As in Linux, which leaves the window to controls with `cong_control`.
        if cx.congestion.is_model_based() {
            return self.restart(cx.now);
        }
        // A restart after an idle time would leave as much (`tcp_cwnd_application_limited`).
        let used = self.used.max(cx.tcp.cwnd.initial_window);
        self.restart(cx.now);
        let writer_waits = cx.shared.outgoing.writer_waits;
        let metrics = &mut *cx.metrics;
        // A writer that waits for buffer space isn't what limits the sender (Linux's `SOCK_NOSPACE`).
        if metrics.ca_state() == CaState::Open && !writer_waits && used < metrics.cwnd() {
            metrics.set_ssthresh(current_ssthresh(metrics));
            metrics.set_cwnd((metrics.cwnd() + used) / 2);
        }
    }

    /// New data is about to be sent after an idle time of more than an RTO: the window halves for each RTO,
    /// down to the initial one.
    #[cold]
    pub fn on_idle_restart(&mut self, cx: &mut Context<'_>, idle: Span) {
        let rto = cx.metrics.rto.max(Span::from_nanos(1));
        //= RFC 5681 4.1-a
        let halvings = ((idle - Span::from_nanos(1)) / rto).min(31) as u32;
        let initial = cx.tcp.cwnd.initial_window;
        let metrics = &mut *cx.metrics;
        metrics.set_ssthresh(current_ssthresh(metrics));
        // RW = min(IW, cwnd) (RFC 5681 4.1): an idle time never raises the window.
        let floor = initial.min(metrics.cwnd());
        metrics.set_cwnd((metrics.cwnd() >> halvings).max(floor));
        self.restart(cx.now);
        cx.congestion.on_idle_restart(cx.metrics, cx.siblings, idle);
    }
}

/// Most segments that a sender may hold back (`tcp_max_tso_deferred_mss`), and the share of the window
/// (`tcp_tso_win_divisor`).
const MOST_DEFERRED: u32 = 3;
const DEFERRED_SHARE: u32 = 3;
/// Fewest segments of a burst (`sysctl_tcp_min_tso_segs`), and most bytes (`sk_gso_max_size`).
const LEAST_BURST: u64 = 2;
const MOST_BURST_BYTES: u64 = 65_536;

/// Whether the window was full, or nearly so, with so many segments in flight when an ACK arrived: Linux's
/// `tcp_is_cwnd_limited` until 3.15, with segmentation offload.
pub(super) fn was_full(metrics: &SubflowMetrics, in_flight: u32) -> bool {
    let left = metrics.cwnd().saturating_sub(in_flight);
    let deferred = left.saturating_mul(DEFERRED_SHARE) < metrics.cwnd() && u64::from(left) < burst(metrics);
    left <= MOST_DEFERRED || deferred
}

/// Segments of the largest burst: what half a millisecond takes at the pacing rate, which was always twice
/// the window in a round trip (`tcp_xmit_size_goal`, `tcp_update_pacing_rate` of 3.14).
fn burst(metrics: &SubflowMetrics) -> u64 {
    let window = u64::from(metrics.cwnd().max(metrics.packets_out()));
    let most = MOST_BURST_BYTES / u64::from(metrics.mss.max(1));
    (window * MILLISECOND)
        .checked_div(metrics.rtt.smoothed)
        .unwrap_or(most)
        .clamp(LEAST_BURST, most.max(LEAST_BURST))
}

/// The slow start threshold of a window that wasn't used: three quarters of it, outside recovery
/// (`tcp_current_ssthresh`).
pub(super) fn current_ssthresh(metrics: &SubflowMetrics) -> u32 {
    match metrics.ca_state() {
        CaState::Cwr | CaState::Recovery => metrics.ssthresh(),
        _ => metrics.ssthresh().max((metrics.cwnd() >> 1) + (metrics.cwnd() >> 2)),
    }
}

#[cfg(test)]
mod tests {
    use super::{MILLISECOND, current_ssthresh, was_full};
    use crate::metrics::{CaState, SubflowMetrics};
    use crate::{PathId, Span, SubflowId};

    /// A round-trip time of a millisecond, where the window is a burst, and of 20 ms, where a burst is a
    /// twentieth of it.
    #[test]
    fn a_window_is_nearly_full_with_three_segments_or_a_third_and_a_burst_left() {
        let mut metrics = SubflowMetrics::new(SubflowId(0), PathId(0));
        metrics.mss = 1000;
        for (rtt, cwnd, in_flight, full) in [
            (1, 10, 10, true),
            (1, 10, 7, true),
            (1, 10, 6, false),
            (1, 90, 61, true),
            (1, 90, 60, false),
            (1, 300, 236, true),
            (1, 300, 235, false),
            (1, 10, 20, true),
            (20, 90, 87, true),
            (20, 90, 86, false),
            (20, 120, 115, true),
            (20, 120, 114, false),
        ] {
            metrics.set_cwnd(cwnd);
            metrics.rtt.smoothed = rtt * MILLISECOND;
            assert_eq!(was_full(&metrics, in_flight), full, "{in_flight} of {cwnd}, {rtt} ms");
        }
        metrics.rtt.smoothed = Span::ZERO;
        assert!(was_full(&metrics, 100), "without a sample 64 KiB");
    }

    #[test]
    fn the_threshold_remembers_three_quarters_of_the_window_outside_recovery() {
        let mut metrics = SubflowMetrics::new(SubflowId(0), PathId(0));
        metrics.set_cwnd(100);
        metrics.set_ssthresh(10);
        assert_eq!(current_ssthresh(&metrics), 75);
        metrics.set_ssthresh(80);
        assert_eq!(current_ssthresh(&metrics), 80);
        for state in [CaState::Recovery, CaState::Cwr] {
            metrics.set_ca_state(state);
            metrics.set_ssthresh(10);
            assert_eq!(current_ssthresh(&metrics), 10);
        }
    }
}
