//! `sttf`: shortest transfer time first.
//!
//! Source: Hurtig, Grinnemo, Brunstrom, Ferlin, Alay, Kuhn, Low-Latency Scheduling in MPTCP, IEEE/ACM Trans.
//! Networking 27(1), 2019; the transfer time as in the authors' module for the out-of-tree Linux kernel
//! (`mptcp_sttf.c`).
//!
//! Rule: the segment joins the subflow over which it is predicted to be transferred first, in that subflow's
//! queue if need be. For each subflow, in segments and ns, with q its queue and this segment, f the free part
//! of its window and w its window:
//!
//! ```text
//! q <= f:    T = RTT/2
//! otherwise: q' = q - f; the next windows are w_1, w_2, ... with w_1 = g(w), w_(i+1) = g(w_i);
//!            r is the least number with w_1 + ... + w_r >= q'; T = r RTT + RTT/2
//! g(w) = 2 w in slow start, w + 1 in congestion avoidance
//! ```
//!
//! It differs from `otias` in that windows grow while the segment waits, and that a full window costs a round
//! trip at once.
//!
//! Rulings: slow start ends at ssthresh exactly, g(w) = min(2 w, ssthresh); the module has special cases
//! there that differ by less than a round. Rounds in congestion avoidance by the sum's closed form: a
//! decision is O(subflows). The paper's rescheduling of what waits in a subflow's queue is left out, as the
//! engine can't withdraw it; the module has it compiled but not called. A subflow in RTO recovery or without
//! space in its queue doesn't count. One without a round-trip sample gets what its window admits, to get a
//! sample, and no queue. A tie goes to the lower id. Reinjection is the connection's own.
//!
//! Parameters: `rtt` (default latest, as in the module; latest, smoothed): which round-trip time is meant.
//! `opportunistic` and `penalise` (default `off`; preset `linux`: opportunistic retransmission by Linux's
//! rule, the module's default).

use super::earliest::queue_earliest;
use super::mechanisms::{LINUX, OFF, opportunistic, penalise, with_mechanisms};
use super::{Decision, Rationale, Scheduler, View};
use crate::Span;
use crate::metrics::SubflowMetrics;
use crate::registry::{Entry, Exception, Parameter, Preset};

pub(super) const ENTRY: Entry<dyn Scheduler> = Entry {
    name: "sttf",
    summary: "shortest predicted transfer time, in the subflow's queue if need be",
    source: "Hurtig et al., IEEE/ACM ToN 27(1), 2019",
    parameters: &[
        Parameter::choice("rtt", 0, &["latest", "smoothed"], "which round-trip time predicts"),
        opportunistic(OFF),
        penalise(OFF),
    ],
    presets: &[Preset {
        name: "linux",
        summary: "the authors' kernel module: opportunistic retransmission is on",
        values: &[("opportunistic", LINUX)],
    }],
    exceptions: &[Exception {
        rule: "cwnd",
        reason: "segments join the queue of a subflow whose window is full (the module doesn't ask for room)",
    }],
    // It would cost every comparison time.
    compared_by_default: false,
    ..Entry::of(|values| with_mechanisms(values, Sttf { smoothed: values.number("rtt") != 0.0 }))
};

#[derive(Debug)]
struct Sttf {
    smoothed: bool,
}

/// How many windows `segments` take, beginning with the one after `cwnd`.
fn rounds(cwnd: u64, ssthresh: u64, mut segments: u64) -> u64 {
    let mut window = cwnd.max(1);
    let mut rounds = 0;
    while window < ssthresh && segments > 0 {
        window = (2 * window).min(ssthresh);
        rounds += 1;
        segments = segments.saturating_sub(window);
    }
    rounds + avoidance_rounds(window, segments)
}

/// The same in congestion avoidance: the least r with (w + 1) + ... + (w + r) = r w + r (r + 1)/2 >= q.
fn avoidance_rounds(window: u64, segments: u64) -> u64 {
    if segments == 0 {
        return 0;
    }
    let slope = u128::from(2 * window + 1);
    let root = (slope * slope + 8 * u128::from(segments)).isqrt();
    let mut rounds = ((root - slope) / 2) as u64;
    // The root is rounded down: the answer is this or the next.
    while u128::from(rounds) * (u128::from(2 * window) + u128::from(rounds) + 1) < 2 * u128::from(segments) {
        rounds += 1;
    }
    rounds
}

impl Sttf {
    /// T, doubled, and the rounds of waiting.
    fn twice_transfer_time(&self, subflow: &SubflowMetrics) -> (Span, u64) {
        let rtt = if self.smoothed { subflow.rtt.smoothed } else { subflow.rtt.latest };
        let queued = u64::from(subflow.queued_segments()) + 1;
        let free = u64::from(subflow.cwnd().saturating_sub(subflow.in_flight()));
        let waiting = queued.saturating_sub(free);
        let rounds = rounds(u64::from(subflow.cwnd()), u64::from(subflow.ssthresh()), waiting);
        (rtt.saturating_mul(2 * rounds + 1), rounds)
    }
}

impl Scheduler for Sttf {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn wants_events(&self) -> bool {
        false
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        queue_earliest(
            view,
            rationale,
            |subflow| self.twice_transfer_time(subflow),
            "has the shortest transfer time,",
        )
    }

    fn queues_ahead(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{MSS, Pipe, Scene, build, run, set_rtt, subflow, unmeasured};
    use super::*;
    use crate::MILLISECOND;
    use crate::metrics::CaState;
    use crate::testing::WithoutSender as _;

    fn queued(in_flight: u32, queued: u32) -> SubflowMetrics {
        let mut subflow = subflow(0, 20, 10, in_flight);
        subflow.queued_bytes = u64::from(queued * MSS);
        subflow
    }

    /// As the rule is written: window by window.
    fn slow_rounds(cwnd: u64, ssthresh: u64, mut segments: u64) -> u64 {
        let (mut window, mut rounds) = (cwnd, 0);
        while segments > 0 {
            window = if window < ssthresh { (2 * window).min(ssthresh) } else { window + 1 };
            segments = segments.saturating_sub(window);
            rounds += 1;
        }
        rounds
    }

    #[test]
    fn the_closed_form_is_the_sum_of_windows() {
        for cwnd in 1..40 {
            for ssthresh in [2, 7, 16, 33, u64::from(u32::MAX)] {
                for segments in 0..400 {
                    let expected = slow_rounds(cwnd, ssthresh, segments);
                    assert_eq!(rounds(cwnd, ssthresh, segments), expected, "{cwnd} {ssthresh} {segments}");
                }
            }
        }
    }

    #[test]
    fn the_modules_numbers() {
        let infinite = u64::from(u32::MAX);
        // Slow start without a threshold: 20, 40, 80 after a window of 10, as 2^r - 1 windows of 20.
        let slow_start = [1, 20, 21, 60, 61, 140, 141].map(|segments| rounds(10, infinite, segments));
        assert_eq!(slow_start, [1, 1, 2, 2, 3, 3, 4]);
        // Congestion avoidance: 11, 12, 13.
        let avoidance = [1, 11, 12, 23, 24, 36, 37].map(|segments| rounds(10, 10, segments));
        assert_eq!(avoidance, [1, 1, 2, 2, 3, 3, 4]);
        // The threshold is a power of two of windows away: 2 ssthresh - w_1 = 60 in slow start, then 41.
        let both = [20, 60, 61, 101, 102].map(|segments| rounds(10, 40, segments));
        assert_eq!(both, [1, 2, 3, 3, 4]);
    }

    #[test]
    fn a_free_window_takes_half_a_round_trip() {
        let sttf = Sttf { smoothed: false };
        assert_eq!(sttf.twice_transfer_time(&queued(0, 0)), (20 * MILLISECOND, 0));
        assert_eq!(
            sttf.twice_transfer_time(&queued(4, 5)),
            (20 * MILLISECOND, 0),
            "6 are free, 6 to be sent"
        );
        assert_eq!(sttf.twice_transfer_time(&queued(4, 6)), (60 * MILLISECOND, 1), "unlike OTIAS's floor");
        assert_eq!(sttf.twice_transfer_time(&queued(10, 20)), (100 * MILLISECOND, 2), "20, 40 > 21");
    }

    #[test]
    fn the_latest_sample_predicts_unless_told_otherwise() {
        let mut scene = Scene::new(vec![subflow(0, 20, 10, 0), subflow(1, 30, 10, 0)]);
        scene.subflows[0].rtt.latest = 40 * MILLISECOND;
        assert_eq!(scene.chosen(&mut *build("sttf")), Some(1));
        assert_eq!(scene.chosen(&mut *build("sttf(rtt=smoothed)")), Some(0));
    }

    #[test]
    fn it_queues_on_the_fast_one_until_the_slow_one_is_as_quick() {
        // Fast, full, in slow start at 10: 30 ms for the first 20, 50 ms for the next 40, 70 ms then. Slow:
        // 60 ms.
        let sttf = &mut *build("sttf");
        let mut scene = Scene::new(vec![queued(10, 59), subflow(1, 120, 10, 0)]);
        assert_eq!(scene.chosen(sttf), Some(0));
        scene.subflows[0] = queued(10, 60);
        assert_eq!(scene.chosen(sttf), Some(1));
        set_rtt(&mut scene.subflows[1], 140 * MILLISECOND);
        assert_eq!(scene.chosen(sttf), Some(0), "a tie goes to the lower id");
        scene.subflows[0].set_ssthresh(10);
        assert_eq!(scene.chosen(sttf), Some(1), "in congestion avoidance: 11, 12, 13, 14, 15 > 61, 110 ms");
    }

    #[test]
    fn a_full_queue_and_rto_recovery_take_nothing() {
        let sttf = &mut *build("sttf");
        let mut scene = Scene::new(vec![subflow(0, 10, 10, 0), subflow(1, 50, 10, 0)]);
        scene.subflows[0].queue_space = 999;
        assert_eq!(scene.chosen(sttf), Some(1));
        scene.subflows[1].set_ca_state(CaState::Loss);
        assert_eq!(scene.chosen(sttf), None);
    }

    #[test]
    fn no_queue_where_the_round_trip_time_is_unknown() {
        let mut scene = Scene::new(vec![subflow(0, 20, 10, 10), unmeasured(1, 10, 9)]);
        assert_eq!(scene.chosen(&mut *build("sttf")), Some(1), "so that it gets a sample");
        scene.subflows[1].queued_bytes = 1000;
        assert_eq!(scene.chosen(&mut *build("sttf")), Some(0));
    }

    #[test]
    fn huge_windows_do_not_overflow() {
        assert_eq!(rounds(u64::from(u32::MAX), u64::from(u32::MAX), u64::from(u32::MAX)), 1);
        assert!(rounds(1, 1, u64::from(u32::MAX)) > 90_000);
        let mut scene = Scene::new(vec![subflow(0, 20, 10, 10)]);
        scene.subflows[0].rtt.latest = Span::MAX;
        assert_eq!(scene.chosen(&mut *build("sttf")), Some(0));
    }

    #[test]
    fn unlike_minrtt_it_leaves_the_slow_subflow_alone() {
        let pipes = [Pipe::new(10, 10), Pipe::new(100, 10)];
        assert_eq!(run("sttf", &pipes, 30).bytes_on(1), 0, "25 ms at most, against 50 ms");
        assert_eq!(run("minrtt", &pipes, 30).bytes_on(1), 10_000);
    }
}
