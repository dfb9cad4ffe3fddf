//! How the receive buffer grows (net/mptcp/protocol.c, `mptcp_rcv_space_adjust`), as of Linux 6.18; also as
//! of MPTCP 0.89 ([`ReceiveTuning::LongestInSteps`]).

use ropewalk_wire::Payload;

use super::receive::ReceiveSide;
use super::subflow_table::SubflowTable;
use super::window_autotuning::{Growth, Interval};
use crate::config::ReceiveTuning;
use crate::metrics::{SubflowMetrics, SubflowStatus};
use crate::{Span, Time};

/// [`ReceiveTuning::Prompt`]: into how many intervals at most a round trip is divided, and how soon it is
/// looked whether the round trip has become shorter.
const PARTS: u64 = 4;
const LOOK_AFTER: Span = Span::from_millis(10);

impl<P: Payload> ReceiveSide<P> {
    /// The application has read: once in an interval ([`ReceiveTuning`]) the receive buffer may grow, and
    /// every subflow's with it. Subflows that are still being opened have no say in the round trip, but in
    /// what window the buffer makes.
    #[inline(never)]
    pub fn tune_for(&mut self, now: Time, tuning: ReceiveTuning, subflows: &mut SubflowTable<P>) {
        let is_prompt = tuning == ReceiveTuning::Prompt;
        let open = |metrics: &SubflowMetrics| metrics.state != SubflowStatus::Closed;
        let (mut longest, mut shortest, mut ratio) = (Span::ZERO, Span::MAX, None::<u64>);
        for (subflow, metrics) in subflows.with_metrics().filter(|(_, metrics)| open(metrics)) {
            let mut rtt = match subflow.tcp.receive_rtt() {
                Span::ZERO if !subflow.tcp.has_timestamps() => metrics.rtt.smoothed,
                known => known,
            };
            if is_prompt && metrics.rtt.smoothed > Span::ZERO {
                rtt = rtt.min(2 * metrics.rtt.smoothed);
            }
            longest = longest.max(rtt);
            if rtt > Span::ZERO {
                shortest = shortest.min(rtt);
            }
            let own = subflow.autotuning.ratio();
            ratio = Some(ratio.map_or(own, |least| least.min(own)));
        }
        let Some(ratio) = ratio else { return };
        let growth = match tuning {
            ReceiveTuning::LongestInSteps => Growth::InSteps,
            ReceiveTuning::Longest | ReceiveTuning::Prompt => Growth::Proportional,
        };
        let interval = match tuning {
            ReceiveTuning::Longest | ReceiveTuning::LongestInSteps => {
                Interval { length: longest, stands_for: longest, look_after: Span::MAX, growth }
            }
            ReceiveTuning::Prompt => {
                let length = shortest.clamp(longest / PARTS, longest);
                Interval { length, stands_for: longest, look_after: LOOK_AFTER, growth }
            }
        };
        let Some(copied) = self.tune(now, interval, ratio) else { return };
        for (subflow, _) in subflows.with_metrics_mut().filter(|(_, metrics)| open(metrics)) {
            subflow.autotuning.grow(growth, copied, self.max());
        }
    }
}
