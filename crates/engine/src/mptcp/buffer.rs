//! How the buffers grow: for sending (net/mptcp/protocol.h, `__mptcp_sync_sndbuf`, and net/ipv4/tcp_input.c,
//! `tcp_sndbuf_expand` and `tcp_check_space`), and for receiving (net/mptcp/protocol.c, `mptcp_rcv_space_adjust`), as of
//! Linux 6.18; also as of MPTCP 0.89 ([`SendTuning::LongestRoundTrip`], [`ReceiveTuning::LongestInSteps`]).

use ropewalk_wire::Payload;

use super::Event;
use super::connection::Connection;
use super::window_autotuning::{Growth, Interval};
use crate::config::{ReceiveTuning, SendTuning};
use crate::metrics::{SubflowMetrics, SubflowStatus};
use crate::tcp::DUP_THRESH;
use crate::{MILLISECOND, Nanos};

/// What Linux counts for a segment when it sizes a send buffer, bytes: a 1460-byte segment with headers and the
/// buffer's own structures, rounded up to a power of two, and the descriptor (its initial 87040 are twice 10 of
/// these). It comes to three times the payload, so that the buffer holds about six windows.
const SEGMENT_MEMORY: u64 = 4352;

/// What a send buffer has beside its subflows' (the least of `tcp_wmem`), bytes.
const SEND_BASE: u64 = 4096;

/// [`ReceiveTuning::Prompt`]: into how many intervals at most a round trip is divided, and how soon it is looked whether the round trip
/// has become shorter.
const PARTS: Nanos = 4;
const LOOK_AFTER: Nanos = 10 * MILLISECOND;

/// Linux's size of one subflow's send buffer (`tcp_sndbuf_expand`): twice the window, ten segments at least, each
/// counted with what a socket buffer of its own would take.
fn own_window_buffer(metrics: &SubflowMetrics) -> u64 {
    2 * u64::from(metrics.cwnd.max(10)) * SEGMENT_MEMORY
}

impl<P: Payload> Connection<P> {
    /// The buffer follows the subflows': their sum and a page (Linux's `__mptcp_sync_sndbuf`).
    #[inline(never)]
    pub(crate) fn tune_send_buffer(&mut self) {
        let max = self.config.send_buffer.max;
        if self.send.limit() >= self.config.send_payload(max) {
            return;
        }
        let mut total = SEND_BASE;
        for index in 0..self.metrics.len() {
            if !self.metrics[index].usable() {
                continue;
            }
            if self.metrics[index].send_buffer == 0 {
                self.metrics[index].send_buffer = self.wanted_send_buffer(index).min(max);
            }
            total += self.metrics[index].send_buffer;
        }
        self.send.grow(self.config.send_payload(total.min(max)));
    }

    /// How much of the send buffer is sized for this subflow, by its congestion window as it is now ([`SendTuning`]).
    pub(crate) fn wanted_send_buffer(&self, index: usize) -> u64 {
        match self.config.send_tuning {
            SendTuning::OwnWindow => own_window_buffer(&self.metrics[index]),
            SendTuning::LongestRoundTrip => self.longest_round_trip_buffer(index),
        }
    }

    /// The application waits for space, and subflow `index` got an ACK: what the buffer has for it may grow ([`SendTuning`]).
    pub(crate) fn expand_send_buffer(&mut self, index: usize) {
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
        if wanted > self.metrics[index].send_buffer {
            self.metrics[index].send_buffer = wanted;
            self.tune_send_buffer();
            self.wake_writer();
        }
    }

    /// Linux (`tcp_should_expand_sndbuf`) lets a subflow's buffer grow unless its congestion window is full. While there is more to
    /// send than the window takes it is full only if segments leave two by two: those that leave together wait for one another
    /// (`tcp_tso_should_defer`).
    fn may_expand(&self, index: usize) -> bool {
        let unsent = self.send.unsent().min(self.send.window_left());
        let metrics = &self.metrics[index];
        let is_full = u64::from(metrics.window_space()) * u64::from(metrics.mss) <= unsent;
        metrics.usable() && (!is_full || metrics.tso_segments() > 2)
    }

    /// Whether some congestion window will have room left when all unsent data has been sent (`mptcp_should_expand_sndbuf`). Backup
    /// subflows count only if there are no others.
    fn windows_exceed_unsent(&self) -> bool {
        let unsent = self.send.unsent().min(self.send.window_left());
        let usable = || self.metrics.iter().filter(|metrics| metrics.usable());
        let only_backups = usable().all(|metrics| metrics.backup);
        let counted = usable().filter(|metrics| only_backups || !metrics.backup);
        counted.map(|metrics| u64::from(metrics.window_space()) * u64::from(metrics.mss)).sum::<u64>()
            > unsent
    }

    /// Twice the segments that the subflow's window carries in the longest round trip, or one more than the duplicate ACK threshold
    /// (`mptcp_check_snd_buf`).
    fn longest_round_trip_buffer(&self, index: usize) -> u64 {
        let own = &self.metrics[index];
        let usable = self.metrics.iter().filter(|metrics| metrics.usable());
        let longest = usable.map(|metrics| metrics.rtt.smoothed).max().unwrap_or(0);
        let in_longest = u128::from(own.cwnd) * u128::from(longest.max(own.rtt.smoothed));
        let segments = in_longest.checked_div(u128::from(own.rtt.smoothed)).unwrap_or(0) as u64;
        2 * segments.max(u64::from(DUP_THRESH) + 1) * SEGMENT_MEMORY
    }

    /// The application has read: once in an interval ([`ReceiveTuning`]) the receive buffer may grow, and every subflow's with it.
    /// Subflows that are still being opened have no say in the round trip, but in what window the buffer makes.
    #[inline(never)]
    pub(crate) fn tune_receive_buffer(&mut self, now: Nanos) {
        let is_prompt = self.config.receive_tuning == ReceiveTuning::Prompt;
        let open = |metrics: &SubflowMetrics| metrics.state != SubflowStatus::Closed;
        let (mut longest, mut shortest, mut ratio) = (0, Nanos::MAX, None::<u64>);
        for (subflow, metrics) in self.subflows.iter().zip(&self.metrics).filter(|(_, metrics)| open(metrics))
        {
            let Some(subflow) = subflow else { continue };
            let mut rtt = match subflow.tcp.receive_rtt() {
                0 if !subflow.tcp.has_timestamps() => metrics.rtt.smoothed,
                known => known,
            };
            if is_prompt && metrics.rtt.smoothed > 0 {
                rtt = rtt.min(2 * metrics.rtt.smoothed);
            }
            longest = longest.max(rtt);
            if rtt > 0 {
                shortest = shortest.min(rtt);
            }
            let own = subflow.autotuning.ratio();
            ratio = Some(ratio.map_or(own, |least| least.min(own)));
        }
        let Some(ratio) = ratio else { return };
        let growth = match self.config.receive_tuning {
            ReceiveTuning::LongestInSteps => Growth::InSteps,
            ReceiveTuning::Longest | ReceiveTuning::Prompt => Growth::Proportional,
        };
        let interval = match self.config.receive_tuning {
            ReceiveTuning::Longest | ReceiveTuning::LongestInSteps => {
                Interval { length: longest, stands_for: longest, look_after: Nanos::MAX, growth }
            }
            ReceiveTuning::Prompt => {
                let length = shortest.clamp(longest / PARTS, longest);
                Interval { length, stands_for: longest, look_after: LOOK_AFTER, growth }
            }
        };
        let Some(copied) = self.receive.tune(now, interval, ratio) else { return };
        for (subflow, _) in self.subflows.iter_mut().zip(&self.metrics).filter(|(_, metrics)| open(metrics)) {
            if let Some(subflow) = subflow {
                subflow.autotuning.grow(growth, copied, self.receive.max());
            }
        }
    }

    /// Tells the application once there is space enough.
    #[inline(never)]
    pub(crate) fn wake_writer(&mut self) {
        if self.send.take_writable() {
            self.events.push_back(Event::Writable);
        }
    }
}
