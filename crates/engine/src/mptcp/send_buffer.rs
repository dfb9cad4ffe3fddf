//! How the send buffer grows (net/mptcp/protocol.h, `__mptcp_sync_sndbuf`, and net/ipv4/tcp_input.c,
//! `tcp_sndbuf_expand` and `tcp_check_space`), as of Linux 6.18; also as of MPTCP 0.89
//! ([`SendTuning::LongestRoundTrip`]).

use crate::Span;
use ropewalk_wire::Payload;

use super::sending::Sending;
use crate::config::SendTuning;
use crate::metrics::SubflowMetrics;
use crate::tcp::DUP_THRESH;

/// What Linux counts for a segment when it sizes a send buffer, bytes: a 1460-byte segment with headers and
/// the buffer's own structures, rounded up to a power of two, and the descriptor (its initial 87040 are twice
/// 10 of these). It comes to three times the payload, so that the buffer holds about six windows.
const SEGMENT_MEMORY: u64 = 4352;

/// What a send buffer has beside its subflows' (the least of `tcp_wmem`), bytes.
const SEND_BASE: u64 = 4096;

/// Linux's size of one subflow's send buffer (`tcp_sndbuf_expand`): twice the window, ten segments at least,
/// each counted with what a socket buffer of its own would take.
fn own_window_buffer(metrics: &SubflowMetrics) -> u64 {
    2 * u64::from(metrics.cwnd().max(10)) * SEGMENT_MEMORY
}

impl<P: Payload> Sending<'_, P> {
    /// The buffer follows the subflows': their sum and a page (Linux's `__mptcp_sync_sndbuf`).
    #[inline(never)]
    pub fn tune_send_buffer(&mut self) {
        let max = self.config.send_buffer.max;
        if self.send.limit() >= self.config.send_payload(max) {
            return;
        }
        let mut total = SEND_BASE;
        for index in 0..self.subflows.metrics().len() {
            if !self.subflows.metrics()[index].usable() {
                continue;
            }
            if self.subflows.metrics()[index].send_buffer == 0 {
                self.subflows.metrics_mut(index).send_buffer = self.wanted_send_buffer(index).min(max);
            }
            total += self.subflows.metrics()[index].send_buffer;
        }
        self.send.grow(self.config.send_payload(total.min(max)));
    }

    /// How much of the send buffer is sized for this subflow, by its congestion window as it is now
    /// ([`SendTuning`]).
    pub fn wanted_send_buffer(&self, index: usize) -> u64 {
        match self.config.send_tuning {
            SendTuning::OwnWindow => own_window_buffer(&self.subflows.metrics()[index]),
            SendTuning::LongestRoundTrip => self.longest_round_trip_buffer(index),
        }
    }

    /// The application waits for space, and subflow `index` got an ACK: what the buffer has for it may grow
    /// ([`SendTuning`]).
    pub fn expand_send_buffer(&mut self, index: usize) {
        let max = self.config.send_buffer.max;
        if self.send.limit() >= self.config.send_payload(max) {
            return;
        }
        let may_grow = match self.config.send_tuning {
            SendTuning::OwnWindow => self.may_expand(index),
            SendTuning::LongestRoundTrip => self.windows_exceed_unsent(),
        };
        if !may_grow {
            return;
        }
        let wanted = self.wanted_send_buffer(index).min(max);
        if wanted > self.subflows.metrics()[index].send_buffer {
            self.subflows.metrics_mut(index).send_buffer = wanted;
            self.tune_send_buffer();
            self.wake_writer();
        }
    }

    /// Linux (`tcp_should_expand_sndbuf`) lets a subflow's buffer grow unless its congestion window is full.
    /// While there is more to send than the window takes it is full only if segments leave two by two: those
    /// that leave together wait for one another (`tcp_tso_should_defer`).
    fn may_expand(&self, index: usize) -> bool {
        let unsent = self.send.unsent().min(self.send.window_left());
        let metrics = &self.subflows.metrics()[index];
        let is_full = u64::from(metrics.window_space()) * u64::from(metrics.mss) <= unsent;
        metrics.usable() && (!is_full || metrics.tso_segments() > 2)
    }

    /// Whether some congestion window will have room left when all unsent data has been sent
    /// (`mptcp_should_expand_sndbuf`). Backup subflows count only if there are no others.
    fn windows_exceed_unsent(&self) -> bool {
        let unsent = self.send.unsent().min(self.send.window_left());
        let usable = || self.subflows.usable();
        let only_backups = usable().all(|metrics| metrics.backup);
        let counted = usable().filter(|metrics| only_backups || !metrics.backup);
        counted.map(|metrics| u64::from(metrics.window_space()) * u64::from(metrics.mss)).sum::<u64>()
            > unsent
    }

    /// Twice the segments that the subflow's window carries in the longest round trip, or one more than the
    /// duplicate ACK threshold (`mptcp_check_snd_buf`).
    fn longest_round_trip_buffer(&self, index: usize) -> u64 {
        let own = &self.subflows.metrics()[index];
        let usable = self.subflows.usable();
        let longest = usable.map(|metrics| metrics.rtt.smoothed).max().unwrap_or(Span::ZERO);
        let in_longest = u128::from(own.cwnd()) * u128::from(longest.max(own.rtt.smoothed).as_nanos());
        let segments = in_longest.checked_div(u128::from(own.rtt.smoothed.as_nanos())).unwrap_or(0) as u64;
        2 * segments.max(u64::from(DUP_THRESH) + 1) * SEGMENT_MEMORY
    }
}
