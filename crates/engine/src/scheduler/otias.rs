//! `otias`: out-of-order transmission for in-order arrival.
//!
//! Source: blest-2016 Algorithm 2 and 5g-2019 III.D, after Yang, Wang and Amer, WAINA 2014.
//!
//! Rule: a segment joins the subflow on which it is estimated to arrive first, even if it must queue there.
//! For each subflow j, in segments and ns,
//!
//! ```text
//! can_send_j = cwnd_j - unacked_j
//! rtts_to_wait_j = floor((not_yet_sent_j - can_send_j) / cwnd_j)
//! T_j = (rtts_to_wait_j + 0.5) srtt_j
//! ```
//!
//! and the least T_j is chosen.
//!
//! Rulings: rtts_to_wait is at least 0 (by the prose: with room, about srtt/2). The floor counts: a full
//! subflow with less than a cwnd queued counts as if it could send at once, as printed. The subflow's own
//! queue is finite: a subflow that takes no further segment doesn't count, nor one in RTO recovery. A subflow
//! without a round-trip sample gets what its window admits, to get a sample, and no queue. A tie goes to the
//! lower id. Neither source defines reinjection (blest-2016 IV-D); the connection's own applies.
//!
//! Preset `linux`: as the kernel module of blest-2016's first author computes it (net/mptcp/mptcp_otias.c of
//! vkirany/mptcp-kau at 98ab772). A segment that its window doesn't carry at once waits for
//! ceil((not_yet_sent_j - can_send_j + 1) / cwnd_j) round trips, with can_send_j at least 0: at least one for
//! a full subflow, where the printed floor gives none.
//!
//! Parameters: `wait` (`floor`; `ceiling`; preset `linux`: `ceiling`), `opportunistic` and `penalise`
//! (default `off`).

use super::earliest::queue_earliest;
use super::mechanisms::{OFF, opportunistic, penalise, with_mechanisms};
use super::{Decision, Rationale, Scheduler, View};
use crate::Span;
use crate::metrics::SubflowMetrics;
use crate::registry::{Entry, Exception, Parameter, Preset};

pub(super) const ENTRY: Entry<dyn Scheduler> = Entry {
    name: "otias",
    summary: "earliest estimated arrival, in the subflow's queue if need be",
    source: "blest-2016 Algorithm 2; 5g-2019 III.D",
    parameters: &[
        Parameter::choice("wait", 0, &["floor", "ceiling"], "how round trips to wait are rounded"),
        opportunistic(OFF),
        penalise(OFF),
    ],
    presets: &[Preset {
        name: "linux",
        summary: "as the kernel module of blest-2016's first author",
        values: &[("wait", 1.0)],
    }],
    exceptions: &[Exception {
        rule: "cwnd",
        reason: "segments join the queue of a subflow whose window is full (blest-2016 IV-B)",
    }],
    ..Entry::of(|values| {
        let wait = if values.number("wait") == 0.0 { rtts_to_wait } else { rtts_to_wait_up };
        with_mechanisms(values, Otias { wait })
    })
};

#[derive(Debug)]
struct Otias {
    /// rtts_to_wait_j.
    wait: fn(&SubflowMetrics) -> u64,
}

/// rtts_to_wait_j as printed.
#[inline]
fn rtts_to_wait(subflow: &SubflowMetrics) -> u64 {
    let not_yet_sent = i64::from(subflow.queued_segments());
    let can_send = i64::from(subflow.cwnd()) - i64::from(subflow.in_flight());
    let excess = u64::try_from(not_yet_sent - can_send).unwrap_or(0);
    excess / u64::from(subflow.cwnd().max(1))
}

/// rtts_to_wait_j of the kernel module.
fn rtts_to_wait_up(subflow: &SubflowMetrics) -> u64 {
    let can_send = subflow.cwnd().saturating_sub(subflow.in_flight());
    match subflow.queued_segments().checked_sub(can_send) {
        Some(excess) => u64::from(excess + 1).div_ceil(u64::from(subflow.cwnd().max(1))),
        None => 0,
    }
}

/// T_j, doubled, with so many round trips to wait.
#[inline]
fn twice_arrival(subflow: &SubflowMetrics, wait: u64) -> Span {
    subflow.rtt.smoothed.saturating_mul(2 * wait + 1)
}

impl Scheduler for Otias {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        queue_earliest(
            view,
            rationale,
            |subflow| {
                let wait = (self.wait)(subflow);
                (twice_arrival(subflow, wait), wait)
            },
            "delivers first, in",
        )
    }

    fn queues_ahead(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{MSS, Pipe, Scene, build, run, subflow, unmeasured};
    use super::*;
    use crate::MILLISECOND;
    use crate::metrics::CaState;
    use crate::testing::WithoutSender as _;

    fn queued(in_flight: u32, queued: u32) -> SubflowMetrics {
        let mut subflow = subflow(0, 20, 10, in_flight);
        subflow.queued_bytes = u64::from(queued * MSS);
        subflow
    }

    #[test]
    fn the_floor_of_the_rounds_to_wait() {
        assert_eq!(rtts_to_wait(&queued(0, 0)), 0, "(0 - 10)/10, at least 0");
        assert_eq!(rtts_to_wait(&queued(10, 0)), 0, "full, and nothing queued: 0/10");
        assert_eq!(rtts_to_wait(&queued(10, 9)), 0, "9/10");
        assert_eq!(rtts_to_wait(&queued(10, 10)), 1);
        assert_eq!(rtts_to_wait(&queued(7, 12)), 0, "(12 - 3)/10");
        assert_eq!(rtts_to_wait(&queued(7, 13)), 1);
        assert_eq!(rtts_to_wait(&queued(10, 29)), 2);
        assert_eq!(rtts_to_wait(&queued(15, 5)), 1, "a window that shrank: (5 + 5)/10");
    }

    #[test]
    fn the_arrival_time() {
        let arrival = |subflow: &SubflowMetrics| twice_arrival(subflow, rtts_to_wait(subflow));
        assert_eq!(arrival(&queued(0, 0)), 20 * MILLISECOND);
        assert_eq!(arrival(&queued(10, 20)), 100 * MILLISECOND, "(2 + 0.5) 20 ms = 50 ms");
    }

    /// Numbers for a window of ten: (in flight, queued, round trips).
    #[test]
    fn the_kernel_module_rounds_up() {
        for (in_flight, waiting, expected) in
            [(0, 0, 0), (9, 0, 0), (10, 0, 1), (10, 9, 1), (10, 10, 2), (7, 2, 0), (7, 3, 1), (15, 0, 1)]
        {
            assert_eq!(rtts_to_wait_up(&queued(in_flight, waiting)), expected, "{in_flight} {waiting}");
        }
        // T_full = (1 + 0.5) 20 ms = 30 ms, and T_slow = 25 ms.
        let scene = Scene::new(vec![queued(10, 0), subflow(1, 50, 10, 0)]);
        assert_eq!(scene.chosen(&mut *build("otias:linux")), Some(1));
        assert_eq!(scene.chosen(&mut *build("otias")), Some(0));
    }

    #[test]
    fn the_fast_queue_grows_until_the_slow_path_is_as_quick() {
        // T_fast = (q/10 + 0.5) 20 ms: 10, 30, 50 ms; T_slow = 45 ms. So 20 are queued on the full fast one.
        let otias = &mut *build("otias");
        let mut scene = Scene::new(vec![queued(10, 19), subflow(1, 90, 10, 0)]);
        assert_eq!(scene.chosen(otias), Some(0));
        scene.subflows[0] = queued(10, 20);
        assert_eq!(scene.chosen(otias), Some(1));
        scene.subflows[1].rtt.smoothed = 100 * MILLISECOND;
        assert_eq!(scene.chosen(otias), Some(0), "a tie goes to the lower id");
    }

    #[test]
    fn a_full_queue_and_rto_recovery_take_nothing() {
        let otias = &mut *build("otias");
        let mut scene = Scene::new(vec![subflow(0, 10, 10, 0), subflow(1, 50, 10, 0), subflow(2, 90, 10, 0)]);
        scene.subflows[0].queue_space = 999;
        assert_eq!(scene.chosen(otias), Some(1));
        scene.subflows[1].set_ca_state(CaState::Loss);
        assert_eq!(scene.chosen(otias), Some(2));
        scene.subflows[2].queue_space = 0;
        assert_eq!(scene.chosen(otias), None);
    }

    #[test]
    fn no_queue_where_the_round_trip_time_is_unknown() {
        let mut scene = Scene::new(vec![subflow(0, 20, 10, 10), unmeasured(1, 10, 9)]);
        assert_eq!(scene.chosen(&mut *build("otias")), Some(1), "so that it gets a sample");
        scene.subflows[1].queued_bytes = 1000;
        assert_eq!(scene.chosen(&mut *build("otias")), Some(0));
    }

    #[test]
    fn unlike_minrtt_it_queues_on_the_fast_one_instead_of_using_the_slow() {
        let pipes = [Pipe::new(10, 10), Pipe::new(100, 10)];
        assert_eq!(run("otias", &pipes, 30).bytes_on(1), 0, "25 ms at most, against 50 ms");
        assert_eq!(run("minrtt", &pipes, 30).bytes_on(1), 10_000);
    }
}
