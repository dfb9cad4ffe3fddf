//! OLIA, the Opportunistic Linked Increases Algorithm: draft-khalili-mptcp-congestion-control-05, and
//! Khalili, Gast, Popovic, Le Boudec, "MPTCP is not Pareto-optimal", CoNEXT 2012.
//!
//! w_r: congestion window of subflow r (segments), rtt_r: its smoothed round-trip time (seconds), n: the
//! number of subflows. l1_r: bytes acknowledged between the last two losses on r; l2_r: those since the
//! last loss; l_r = max(l1_r, l2_r) (draft, section 2.1). For each segment acknowledged on r in congestion
//! avoidance:
//!
//! ```text
//! w_r += (w_r / rtt_r^2) / (sum_p w_p / rtt_p)^2 + a_r / w_r
//! ```
//!
//! With B the subflows of the greatest l_p^2 / rtt_p ("best paths"), M those of the largest window, and
//! B\M the "collected paths":
//!
//! ```text
//! a_r =  1 / (n |B\M|)   for r in B\M
//!       -1 / (n |M|)     for r in M, if B\M is not empty
//!        0               otherwise
//! ```
//!
//! Slow start and recovery are TCP's, except that with several subflows the least slow start threshold is
//! 1 segment instead of 2 (draft, section 2), so that a congested path carries no more than a probe.
//!
//! Preset `linux`: the out-of-tree Linux implementation ranks by l_p / rtt_p^2, the square of the rate that
//! TCP would reach on p, and keeps TCP's threshold of 2. (The CoNEXT paper's ranking is this one as well.) It
//! adds up increases in whole 1024ths of a segment, rounded towards zero (`scale` = 10): a window of more
//! than 1024 segments doesn't grow, nor one of more than 1024 s^2 segments with a share s of the connection's
//! rate.
//!
//! Rulings. The increase can be negative on a subflow of M: the window then shrinks by whole segments, to
//! 1 at least, as in the Linux implementation. "Largest" and "best" are exact ties. The increase is
//! computed when a window changes or a round trip starts (see `additive.rs`); the ranking by acknowledged
//! bytes is refreshed with it. A loss found spurious restores l1 and l2. The subflows counted: those usable
//! with a round-trip sample; a backup only while it carries data.
//!
//! Parameters: `rank-by-square-rtt` (false; preset `linux`: true), `least-ssthresh` (1 segment, with several
//! subflows; 1 to 2; preset `linux`: 2), `steps` (0; 0 to 1048576; preset `linux`: 1024).

use super::additive::{AdditiveControl, AdditiveRule};
use super::siblings::{PerSubflow, Siblings, counted, rate, rtt, window};
use super::{ControlEntry, LossCause, half_window};
use crate::metrics::SubflowMetrics;
use crate::registry::{Exception, Kernel, Parameter, Preset, Values};

pub(super) const ENTRY: ControlEntry = ControlEntry {
    name: "olia",
    summary: "opportunistic linked increases: moves window to the best paths",
    source: "draft-khalili-mptcp-congestion-control-05 section 2",
    parameters: &[
        Parameter::switch(
            "rank-by-square-rtt",
            false,
            "best paths by l/rtt^2 (the Linux implementation) instead of l^2/rtt (the draft)",
        ),
        Parameter::number(
            "least-ssthresh",
            1.0,
            (1.0, 2.0),
            "least slow start threshold with several subflows, segments",
        ),
        Parameter::number(
            "steps",
            0.0,
            (0.0, 1_048_576.0),
            "what an increase is rounded to: so many parts of a segment; 0: nothing",
        ),
    ],
    presets: &[Preset {
        name: "linux",
        summary: "as the out-of-tree Linux implementation",
        values: &[("rank-by-square-rtt", 1.0), ("least-ssthresh", 2.0), ("steps", 1024.0)],
    }],
    exceptions: &[
        Exception {
            rule: "ssthresh",
            reason: "the draft's section 2 sets the least threshold to 1 segment when there are several \
                     subflows",
        },
        Exception {
            rule: "single-path",
            reason: "the Linux implementation rounds increases down to 1024ths of a segment",
        },
    ],
    kernels: &[Kernel::MultipathTcp.has()],
    single_path: Some("reno"),
    ..ControlEntry::of(|values| AdditiveControl::boxed(Olia::new(values)))
};

/// Bytes between losses.
#[derive(Clone, Copy, Debug, Default)]
struct History {
    /// Bytes acknowledged between the last two losses.
    l1: u64,
    /// `bytes_acked` at the last loss.
    mark: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    now: History,
    /// As before the last loss, should it prove spurious.
    before: History,
}

#[derive(Debug)]
struct Olia {
    losses: PerSubflow<Losses>,
    rank_by_square_rtt: bool,
    least_ssthresh: u32,
    /// Parts of a segment that an increase is rounded to; 0: none.
    steps: f64,
}

/// a_r, and the parts of it that observers like to see.
#[derive(Debug)]
struct Ranking {
    n: u32,
    largest: u32,
    collected: u32,
    in_largest: bool,
    in_collected: bool,
}

impl Ranking {
    fn alpha(&self) -> f64 {
        if self.collected == 0 {
            0.0
        } else if self.in_collected {
            1.0 / (f64::from(self.n) * f64::from(self.collected))
        } else if self.in_largest {
            -1.0 / (f64::from(self.n) * f64::from(self.largest))
        } else {
            0.0
        }
    }
}

impl Olia {
    fn new(values: &Values) -> Self {
        Olia {
            losses: PerSubflow::default(),
            rank_by_square_rtt: values.switch("rank-by-square-rtt"),
            least_ssthresh: values.number("least-ssthresh") as u32,
            steps: values.number("steps"),
        }
    }
}

/// l_p, bytes.
fn between_losses(losses: &PerSubflow<Losses>, p: &SubflowMetrics) -> f64 {
    let History { l1, mark } = losses.get(p.id).map_or(History::default(), |losses| losses.now);
    l1.max(p.totals.bytes_acked.saturating_sub(mark)) as f64
}

fn rank(
    losses: &PerSubflow<Losses>,
    by_square_rtt: bool,
    r: &SubflowMetrics,
    siblings: Siblings<'_>,
) -> Ranking {
    let quality = |p: &SubflowMetrics| {
        let (l, rtt) = (between_losses(losses, p), rtt(p));
        if by_square_rtt { l / (rtt * rtt) } else { l * l / rtt }
    };
    let (mut best, mut widest) = (0.0f64, 0);
    for p in counted(r, siblings) {
        best = best.max(quality(p));
        widest = widest.max(p.cwnd());
    }
    let mut ranking = Ranking { n: 0, largest: 0, collected: 0, in_largest: false, in_collected: false };
    for p in counted(r, siblings) {
        ranking.n += 1;
        if p.cwnd() == widest {
            ranking.largest += 1;
            ranking.in_largest |= p.id == r.id;
        } else if quality(p) == best {
            // A best path with the largest window needs no more: B\M is without it.
            ranking.collected += 1;
            ranking.in_collected |= p.id == r.id;
        }
    }
    ranking
}

/// Segments per acknowledged segment.
fn increase(
    losses: &PerSubflow<Losses>,
    by_square_rtt: bool,
    r: &SubflowMetrics,
    siblings: Siblings<'_>,
) -> f64 {
    let total: f64 = counted(r, siblings).map(rate).sum();
    let kelly_voice = rate(r) / rtt(r) / (total * total);
    // Kelly and Voice's term balances congestion. alpha makes it responsive: it moves window to good paths
    // that are used little.
    kelly_voice + rank(losses, by_square_rtt, r, siblings).alpha() / window(r)
}

impl AdditiveRule for Olia {
    const NAME: &'static str = ENTRY.name;
    /// `mptcp_olia_cong_avoid` adds up shares of a segment.
    const ONE_ACK_MORE: bool = false;

    fn increase(&self, r: &SubflowMetrics, siblings: Siblings<'_>) -> f64 {
        let exact = increase(&self.losses, self.rank_by_square_rtt, r, siblings);
        if self.steps == 0.0 { exact } else { libm::trunc(exact * self.steps) / self.steps }
    }

    fn ssthresh(&mut self, r: &SubflowMetrics, siblings: Siblings<'_>, _cause: LossCause) -> u32 {
        let losses = self.losses.at(r.id);
        // A loss that proves spurious mustn't cut the distance between losses,
        // which says how good the path is.
        losses.before = losses.now;
        let acked = r.totals.bytes_acked;
        losses.now = History { l1: acked.saturating_sub(losses.before.mark), mark: acked };
        let several = counted(r, siblings).count() > 1;
        half_window(r, if several { self.least_ssthresh } else { 2 })
    }

    fn subflow_added(&mut self, r: &SubflowMetrics) {
        let start = History { l1: 0, mark: r.totals.bytes_acked };
        *self.losses.at(r.id) = Losses { now: start, before: start };
    }

    fn subflow_removed(&mut self, r: &SubflowMetrics) {
        self.losses.reset(r.id);
    }

    fn on_undo(&mut self, r: &SubflowMetrics) -> bool {
        let losses = self.losses.at(r.id);
        losses.now = losses.before;
        true
    }

    fn metrics(&self, r: &SubflowMetrics, siblings: Siblings<'_>) -> Vec<(&'static str, f64)> {
        let ranking = rank(&self.losses, self.rank_by_square_rtt, r, siblings);
        vec![("alpha", ranking.alpha()), ("l", between_losses(&self.losses, r))]
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{OnList, ack, assert_close, build, subflow, subflows};
    use super::*;
    use crate::Time;

    fn olia(spec: &str) -> Olia {
        let linux = spec == "olia:linux";
        Olia {
            losses: PerSubflow::default(),
            rank_by_square_rtt: linux,
            least_ssthresh: if linux { 2 } else { 1 },
            steps: if linux { 1024.0 } else { 0.0 },
        }
    }

    fn per_segment(olia: &Olia, subflows: &[SubflowMetrics], r: usize) -> f64 {
        let (r, siblings) = Siblings::split(subflows, r);
        olia.increase(r, siblings)
    }

    fn metrics(olia: &Olia, subflows: &[SubflowMetrics], r: usize) -> Vec<(&'static str, f64)> {
        let (r, siblings) = Siblings::split(subflows, r);
        olia.metrics(r, siblings)
    }

    fn lose(olia: &mut Olia, subflows: &[SubflowMetrics], cause: LossCause) {
        let (r, siblings) = Siblings::split(subflows, 0);
        olia.ssthresh(r, siblings, cause);
    }

    /// mptcp_olia.c, `scale` = 10: 1024 / 600 is 1, 1024 / 1100 is 0. With half of the rate an increase is a
    /// quarter: 1024 / 4 / 300 is 0. A decrease is rounded towards zero too: (0.25 - 0.5) 1024 / 20 is -12.8.
    #[test]
    fn linux_adds_whole_1024ths_of_a_segment() {
        let linux = olia("olia:linux");
        assert_close(per_segment(&linux, &subflows(&[subflow(600, 100)]), 0), 1.0 / 1024.0);
        assert_close(per_segment(&linux, &subflows(&[subflow(1100, 100)]), 0), 0.0);
        assert_close(per_segment(&olia("olia"), &subflows(&[subflow(1100, 100)]), 0), 1.0 / 1100.0);
        let mut pair = subflows(&[subflow(300, 100), subflow(300, 100)]);
        assert_close(per_segment(&linux, &pair, 0), 0.0);
        pair[0].set_cwnd(20);
        pair[1].set_cwnd(10);
        pair[1].rtt.smoothed = pair[0].rtt.smoothed / 2;
        pair[1].totals.bytes_acked = 50_000;
        assert_close(per_segment(&linux, &pair, 0), -12.0 / 1024.0);
    }

    #[test]
    fn one_subflow_grows_as_reno() {
        let mut subflows = subflows(&[subflow(17, 43)]);
        subflows[0].totals.bytes_acked = 12345;
        assert_close(per_segment(&olia("olia"), &subflows, 0), 1.0 / 17.0);
    }

    #[test]
    fn the_better_path_with_the_smaller_window_is_favoured() {
        // w 10 and 20, rtt 100 ms both: x = 100 and 200, sum 300.
        // l = 50000 and 10000 bytes: B = {0}, M = {1}, B\M = {0}: a_0 = 1/(2*1), a_1 = -1/(2*1).
        // r=0: 10/0.01 / 90000 + 0.5/10 = 0.0111111 + 0.05; r=1: 20/0.01/90000 - 0.5/20 = 0.0222222 - 0.025.
        let mut subflows = subflows(&[subflow(10, 100), subflow(20, 100)]);
        subflows[0].totals.bytes_acked = 50_000;
        subflows[1].totals.bytes_acked = 10_000;
        let olia = olia("olia");
        assert_close(metrics(&olia, &subflows, 0)[0].1, 0.5);
        assert_close(metrics(&olia, &subflows, 1)[0].1, -0.5);
        assert_close(per_segment(&olia, &subflows, 0), 1.0 / 90.0 + 0.05);
        assert_close(per_segment(&olia, &subflows, 1), 2.0 / 90.0 - 0.025);
    }

    #[test]
    fn best_path_with_the_largest_window_leaves_alpha_zero() {
        let mut subflows = subflows(&[subflow(30, 100), subflow(20, 100)]);
        subflows[0].totals.bytes_acked = 50_000;
        subflows[1].totals.bytes_acked = 10_000;
        let olia = olia("olia");
        assert_close(metrics(&olia, &subflows, 0)[0].1, 0.0);
        assert_close(metrics(&olia, &subflows, 1)[0].1, 0.0);
    }

    #[test]
    fn three_paths_one_neither_best_nor_largest() {
        // B = {0, 1} (equal l and rtt), M = {3, 2 of equal window}: a = 1/(4*2) on B, -1/(4*2) on M;
        // and with the third's window smaller, it is neither: 0, and M = {3}: -1/4.
        let mut subflows = subflows(&[subflow(5, 50), subflow(6, 50), subflow(20, 50), subflow(20, 50)]);
        subflows[0].totals.bytes_acked = 9000;
        subflows[1].totals.bytes_acked = 9000;
        subflows[2].totals.bytes_acked = 1000;
        subflows[3].totals.bytes_acked = 1000;
        let olia = olia("olia");
        let alphas = |subflows: &[SubflowMetrics]| {
            (0..4).map(|r| metrics(&olia, subflows, r)[0].1).collect::<Vec<_>>()
        };
        assert_eq!(alphas(&subflows), [0.125, 0.125, -0.125, -0.125]);
        subflows[2].set_cwnd(10);
        assert_eq!(alphas(&subflows), [0.125, 0.125, 0.0, -0.25]);
    }

    #[test]
    fn the_draft_and_linux_rank_differently() {
        // l = 10000 and 40000 bytes, rtt 20 and 100 ms: l^2/rtt = 5e9 and 1.6e10: the draft's best is 1;
        // l/rtt^2 = 2.5e7 and 4e6: Linux's is 0.
        let mut subflows = subflows(&[subflow(10, 20), subflow(5, 100)]);
        subflows[0].totals.bytes_acked = 10_000;
        subflows[1].totals.bytes_acked = 40_000;
        assert_close(metrics(&olia("olia"), &subflows, 1)[0].1, 0.5);
        assert_close(metrics(&olia("olia:linux"), &subflows, 1)[0].1, 0.0);
        subflows[0].set_cwnd(4);
        assert_close(metrics(&olia("olia"), &subflows, 0)[0].1, 0.0);
        assert_close(metrics(&olia("olia:linux"), &subflows, 0)[0].1, 0.5);
        // 60000 bytes: l/rtt^2 = 6e6, still less. 15000: l^2/rtt = 2.25e9: the draft's best is 0.
        subflows[1].totals.bytes_acked = 60_000;
        assert_close(metrics(&olia("olia:linux"), &subflows, 0)[0].1, 0.5);
        subflows[1].totals.bytes_acked = 15_000;
        assert_close(metrics(&olia("olia"), &subflows, 0)[0].1, 0.5);
    }

    #[test]
    fn l_is_the_larger_of_the_last_two_intervals() {
        let mut subflows = subflows(&[subflow(10, 100), subflow(10, 100)]);
        let mut olia = olia("olia");
        let l = |olia: &Olia, subflows: &[SubflowMetrics]| metrics(olia, subflows, 0)[1].1;
        subflows[0].totals.bytes_acked = 7000;
        lose(&mut olia, &subflows, LossCause::FastRetransmit);
        subflows[0].totals.bytes_acked = 9000;
        assert_close(l(&olia, &subflows), 7000.0);
        subflows[0].totals.bytes_acked = 17_000;
        assert_close(l(&olia, &subflows), 10_000.0);
        lose(&mut olia, &subflows, LossCause::Timeout);
        subflows[0].totals.bytes_acked = 18_000;
        lose(&mut olia, &subflows, LossCause::Timeout);
        assert_close(l(&olia, &subflows), 1000.0);
        assert!(olia.on_undo(&subflows[0]));
        assert_close(l(&olia, &subflows), 10_000.0);
        // A new subflow under the same index starts from nothing, whatever its counter says.
        olia.subflow_removed(&subflows[0]);
        olia.subflow_added(&subflows[0]);
        assert_close(l(&olia, &subflows), 0.0);
    }

    #[test]
    fn a_negative_increase_takes_whole_segments_and_leaves_one() {
        // As above: -0.00277778 per segment on subflow 1: the 360th takes one away.
        let mut subflows = subflows(&[subflow(10, 100), subflow(20, 100)]);
        subflows[0].totals.bytes_acked = 50_000;
        let mut olia = build("olia");
        for _ in 0..359 {
            olia.ack_on(&mut subflows, 1, &ack(1));
        }
        assert_eq!(subflows[1].cwnd(), 20);
        olia.ack_on(&mut subflows, 1, &ack(1));
        assert_eq!(subflows[1].cwnd(), 19);
    }

    #[test]
    fn the_least_threshold_is_one_with_several_subflows() {
        let mut subflows = subflows(&[subflow(2, 100), subflow(20, 100)]);
        assert_eq!(build("olia").ssthresh_on(&subflows, 0, LossCause::FastRetransmit, Time::ZERO), 1);
        assert_eq!(build("olia:linux").ssthresh_on(&subflows, 0, LossCause::FastRetransmit, Time::ZERO), 2);
        assert_eq!(build("olia").ssthresh_on(&subflows, 1, LossCause::FastRetransmit, Time::ZERO), 10);
        subflows.pop();
        assert_eq!(build("olia").ssthresh_on(&subflows, 0, LossCause::FastRetransmit, Time::ZERO), 2);
    }
}
