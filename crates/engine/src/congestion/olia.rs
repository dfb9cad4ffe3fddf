//! OLIA, the Opportunistic Linked-Increases Algorithm: draft-khalili-mptcp-congestion-control-05.
//!
//! w_r: window (segments), rtt_r: smoothed round-trip time (seconds), l_r: the larger of the bytes acknowledged
//! between the last two losses and since the last, n: number of paths. For each acknowledged segment on r:
//!
//! ```text
//! w_r += (w_r / rtt_r^2) / (sum_p w_p / rtt_p)^2 + a_r / w_r
//! M = paths with the largest w; B = paths with the largest l_p^2 / rtt_p
//! a_r = 1 / (n |B \ M|)  for r in B \ M
//!     = -1 / (n |M|)     for r in M, when B \ M isn't empty
//!     = 0                else
//! ```
//!
//! Loss: half the window, at least 2 (section 2). One path: the first term is 1/w, Reno's.
//!
//! Rulings. The preset `linux` ranks l_p / rtt_p^2 as the kernel fork does. Ties belong to both sets, as a maximum
//! has them. Before any loss, l counts from the start. A path with no byte acknowledged has l = 0.

use super::additive::Additive;
use super::subflows::{PerSubflow, counted, rate, rtt, window};
use super::{Ack, CongestionControl, ControlEntry, LossCause, half_window};
use crate::Nanos;
use crate::flow::Flow;
use crate::registry::{Parameter, Preset};

pub(super) const ENTRY: ControlEntry = ControlEntry {
    name: "olia",
    summary: "opportunistic linked increases: moves window from the largest to the best paths",
    source: "draft-khalili-mptcp-congestion-control-05 section 2",
    parameters: &[Parameter::switch("rank_by_rtt_squared", false, "rank paths by l/rtt^2, not l^2/rtt")],
    presets: &[Preset {
        name: "linux",
        summary: "the out-of-tree kernel's ranking, l/rtt^2",
        values: &[("rank_by_rtt_squared", 1.0)],
    }],
    exceptions: &[],
    build: |values| Box::new(Olia::new(values.switch("rank_by_rtt_squared"))),
};

#[derive(Debug)]
struct Olia {
    additive: Additive,
    /// Bytes acknowledged between the last two losses.
    before: PerSubflow<u64>,
    squared: bool,
}

impl Olia {
    fn new(squared: bool) -> Self {
        Olia { additive: Additive::new(), before: PerSubflow::default(), squared }
    }
}

fn quality(before: &PerSubflow<u64>, flow: &Flow, p: usize, squared: bool) -> f64 {
    let since = flow.bytes_acked - flow.bytes_acked_at_loss.min(flow.bytes_acked);
    let l = since.max(before.get(p).copied().unwrap_or(0)) as f64;
    let rtt = rtt(flow);
    if squared { l / (rtt * rtt) } else { l * l / rtt }
}

/// a_r of the draft.
fn alpha(before: &PerSubflow<u64>, flows: &[Flow], r: usize, squared: bool) -> f64 {
    let (mut largest, mut best, mut n) = (0.0f64, 0.0f64, 0.0);
    for (p, flow) in counted(flows, r) {
        largest = largest.max(window(flow));
        best = best.max(quality(before, flow, p, squared));
        n += 1.0;
    }
    let (mut in_m, mut collected) = (0.0, 0.0);
    let (mut r_in_m, mut r_collected) = (false, false);
    for (p, flow) in counted(flows, r) {
        let is_largest = window(flow) >= largest;
        let is_collected = !is_largest && quality(before, flow, p, squared) >= best;
        if is_largest {
            in_m += 1.0;
        }
        if is_collected {
            collected += 1.0;
        }
        if p == r {
            (r_in_m, r_collected) = (is_largest, is_collected);
        }
    }
    if collected == 0.0 {
        0.0
    } else if r_collected {
        1.0 / (n * collected)
    } else if r_in_m {
        -1.0 / (n * in_m)
    } else {
        0.0
    }
}

fn increase(before: &PerSubflow<u64>, flows: &[Flow], r: usize, squared: bool) -> f64 {
    let total: f64 = counted(flows, r).map(|(_, flow)| rate(flow)).sum();
    let own = &flows[r];
    rate(own) / rtt(own) / (total * total) + alpha(before, flows, r, squared) / window(own)
}

impl CongestionControl for Olia {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn subflow_added(&mut self, _flows: &mut [Flow], i: usize, _now: Nanos) {
        self.additive.reset(i);
        self.before.reset(i);
    }

    fn subflow_removed(&mut self, _flows: &mut [Flow], i: usize) {
        self.additive.reset(i);
        self.before.reset(i);
    }

    fn on_ack(&mut self, flows: &mut [Flow], i: usize, ack: &Ack) {
        let (before, squared) = (&self.before, self.squared);
        self.additive.grow(flows, i, ack, |flows, r| increase(before, flows, r, squared));
    }

    fn ssthresh(&mut self, flows: &[Flow], i: usize, _cause: LossCause, _now: Nanos) -> u32 {
        self.additive.on_loss(i);
        let flow = &flows[i];
        *self.before.at(i) = flow.bytes_acked - flow.bytes_acked_at_loss.min(flow.bytes_acked);
        half_window(flow, 2)
    }

    fn metrics(&self, flows: &[Flow], i: usize) -> Vec<(&'static str, f64)> {
        vec![("alpha", alpha(&self.before, flows, i, self.squared))]
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ack, assert_close, flow, flows};
    use super::*;

    fn two(w0: u32, rtt0: u64, l0: u64, w1: u32, rtt1: u64, l1: u64) -> Vec<Flow> {
        let mut flows = flows(&[flow(w0, rtt0), flow(w1, rtt1)]);
        flows[0].bytes_acked = l0;
        flows[1].bytes_acked = l1;
        flows
    }

    #[test]
    fn one_path_grows_as_reno() {
        let flows = flows(&[flow(25, 30)]);
        assert_close(increase(&PerSubflow::default(), &flows, 0, false), 1.0 / 25.0);
    }

    #[test]
    fn the_best_path_with_a_small_window_takes_from_the_largest() {
        // Path 0 has the largest window, path 1 the larger l^2/rtt: alpha = -1/2 and +1/2 (n = 2, one in each).
        let flows = two(20, 100, 1000, 10, 100, 5000);
        let none = PerSubflow::default();
        assert_close(alpha(&none, &flows, 0, false), -0.5);
        assert_close(alpha(&none, &flows, 1, false), 0.5);
        // x = 200 and 100: (10/0.01)/300^2 + 0.5/10 = 0.0111111 + 0.05.
        assert_close(increase(&none, &flows, 1, false), 1000.0 / 90_000.0 + 0.05);
        assert_close(increase(&none, &flows, 0, false), 2000.0 / 90_000.0 - 0.025);
    }

    #[test]
    fn no_transfer_when_the_best_is_the_largest() {
        let flows = two(20, 100, 5000, 10, 100, 1000);
        let none = PerSubflow::default();
        assert_close(alpha(&none, &flows, 0, false) + alpha(&none, &flows, 1, false) + 1.0, 1.0);
    }

    #[test]
    fn the_preset_ranks_by_rtt_squared() {
        // l 3000 at 100 ms against 1000 at 50 ms: l^2/rtt = 9e7 and 2e7; l/rtt^2 = 3e5 and 4e5.
        let flows = two(20, 100, 3000, 10, 50, 1000);
        let none = PerSubflow::default();
        assert_close(alpha(&none, &flows, 1, false) + 1.0, 1.0);
        assert_close(alpha(&none, &flows, 1, true), 0.5);
    }

    #[test]
    fn what_was_acknowledged_between_losses_counts_until_the_present_interval_is_longer() {
        let mut olia = Olia::new(false);
        let mut flows = two(20, 100, 9000, 10, 100, 5000);
        olia.ssthresh(&flows, 0, LossCause::FastRetransmit, 0);
        flows[0].bytes_acked_at_loss = 9000;
        flows[0].bytes_acked = 9500;
        assert_close(quality(&olia.before, &flows[0], 0, false), 9000.0 * 9000.0 / 0.1);
        flows[0].bytes_acked = 20_000;
        assert_close(quality(&olia.before, &flows[0], 0, false), 11_000.0 * 11_000.0 / 0.1);
    }

    #[test]
    fn a_negative_increase_shrinks_the_window() {
        let mut olia = Olia::new(false);
        // 2000/90000 - 0.025 = -0.0027778 per segment: 361 segments take one away.
        let mut flows = two(20, 100, 1000, 10, 100, 5000);
        for _ in 0..400 {
            olia.on_ack(&mut flows, 0, &ack(1));
        }
        assert_eq!(flows[0].cwnd, 19);
    }
}
