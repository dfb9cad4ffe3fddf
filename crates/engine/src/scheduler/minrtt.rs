//! `minrtt`: the lowest smoothed round-trip time first.
//!
//! Source: cfs-2019 (Heo and Yoo, KSII TIIS 13(8), 2019) 2.2; 5g-2019 III.B, where it is LowRTT; the default
//! of the out-of-tree Linux kernel.
//!
//! Rule: among the subflows whose congestion windows have room, the segment goes out on the one with the
//! least srtt (ns); when that window is full, on the next. No subflow with room: wait for an
//! acknowledgement.
//!
//! Rulings: a tie goes to the lower subflow id; a subflow without a sample counts as srtt 0, so that it gets
//! one. One MSS per decision: more would make no difference, as the choice stays until its window is full.
//!
//! Parameters: `opportunistic` and `penalise` (default `paper`; presets: `linux`), `one-more` (false; preset
//! `mptcp-0.94`: true), see [`super::mechanisms`].

use super::mechanisms::{
    LINUX, PAPER, has_room_for_one_more, one_more, opportunistic, penalise, send_or_queue, with_mechanisms,
};
use super::text::{Ms, Subflow, no_room, nothing_to_send};
use super::{Decision, Rationale, Scheduler, View};
use crate::metrics::SubflowMetrics;
use crate::registry::{Entry, Exception, Kernel, Preset};

pub(super) const ENTRY: Entry<dyn Scheduler> = Entry {
    name: "minrtt",
    summary: "lowest srtt among the subflows with room",
    source: "cfs-2019 2.2; 5g-2019 III.B",
    parameters: &[one_more(), opportunistic(PAPER), penalise(PAPER)],
    presets: &[
        Preset {
            name: "linux",
            summary: "the out-of-tree kernel's conditions for retransmission and penalisation",
            values: &[("opportunistic", LINUX), ("penalise", LINUX)],
        },
        Preset {
            name: "mptcp-0.94",
            summary: "as `linux`; one segment beyond the window waits, as in 0.90 to 0.94",
            values: &[("opportunistic", LINUX), ("penalise", LINUX), ("one-more", 1.0)],
        },
    ],
    exceptions: &[Exception { rule: "cwnd", reason: "`one-more` queues a segment beyond the window" }],
    kernels: &[Kernel::MultipathTcp.has().called("default").by_default()],
    ..Entry::of(|values| {
        if values.switch("one-more") {
            with_mechanisms(values, OneMore)
        } else {
            with_mechanisms(values, MinRtt)
        }
    })
};

#[derive(Debug)]
struct MinRtt;

/// `minrtt` with `one-more`.
#[derive(Debug)]
struct OneMore;

impl Scheduler for OneMore {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn wants_events(&self) -> bool {
        false
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        if !view.sendable() {
            return nothing_to_send(view, rationale);
        }
        let backups = view.backups_count();
        // Not `View::available`, which refuses a subflow whose window the segments before have just filled.
        let counted = view.subflows.iter().filter(|subflow| backups || !subflow.backup);
        match View::fastest(counted.filter(|subflow| has_room_for_one_more(subflow, view.now))) {
            Some(subflow) => {
                send_on(subflow, rationale);
                send_or_queue(subflow)
            }
            None => no_room(view, rationale),
        }
    }

    fn queues_ahead(&self) -> bool {
        true
    }
}

/// Sends one segment on `subflow`, which was chosen for its srtt.
#[inline]
pub(super) fn send_on(subflow: &SubflowMetrics, rationale: &mut Rationale) -> Decision {
    rationale.say(|| {
        format!("{} has the least srtt with room, {}", Subflow(subflow.id), Ms(subflow.rtt.smoothed))
    });
    Decision::Send { subflow: subflow.id, bytes: subflow.mss }
}

/// Sends one segment on the fastest subflow with room: `minrtt`'s rule.
#[inline]
pub(super) fn fastest_with_room(view: &View<'_>, rationale: &mut Rationale) -> Decision {
    if !view.sendable() {
        return nothing_to_send(view, rationale);
    }
    match view.fastest_available() {
        Some(subflow) => send_on(subflow, rationale),
        None => no_room(view, rationale),
    }
}

/// `minrtt`, except where its choice is slower than a subflow that is full: then `decide` is called with the
/// fastest usable subflow and with `minrtt`'s choice. The start of every scheduler that may wait for the fast
/// subflow.
#[inline]
pub(super) fn minrtt_or_wait(
    view: &View<'_>,
    rationale: &mut Rationale,
    decide: impl FnOnce(&SubflowMetrics, &SubflowMetrics, &mut Rationale) -> Decision,
) -> Decision {
    if !view.sendable() {
        return nothing_to_send(view, rationale);
    }
    let front = view.front();
    match (front.usable, front.available) {
        (Some(fast), Some(slow)) if fast.id == slow.id => send_on(slow, rationale),
        (Some(fast), Some(slow)) => decide(fast, slow, rationale),
        _ => no_room(view, rationale),
    }
}

impl Scheduler for MinRtt {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn wants_events(&self) -> bool {
        false
    }

    #[inline]
    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        fastest_with_room(view, rationale)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Pipe, Scene, build, run, subflow};
    use super::*;
    use crate::metrics::CaState;
    use crate::testing::WithoutSender as _;
    use crate::{MILLISECOND, Time};

    #[test]
    fn cfs_2019_figure_3_packets_11_to_20_come_last() {
        let done = run("minrtt", &[Pipe::new(10, 10), Pipe::new(100, 10)], 30);
        assert_eq!(done.segments_on(0, 1), (1..=10).chain(21..=30).collect::<Vec<_>>());
        assert_eq!(done.segments_on(1, 1), (11..=20).collect::<Vec<_>>());
        // Half of the slow subflow's RTT.
        assert_eq!(done.completed, Some(Time::ZERO + 50 * MILLISECOND));
    }

    #[test]
    fn five_g_2019_figure_2_packet_11_goes_on_the_slow_subflow() {
        let done = run("minrtt", &[Pipe::new(10, 10), Pipe::new(20, 10)], 11);
        assert_eq!(done.segments_on(0, 1), (1..=10).collect::<Vec<_>>());
        assert_eq!(done.segments_on(1, 1), [11]);
        assert_eq!(done.completed, Some(Time::ZERO + 10 * MILLISECOND));
    }

    #[test]
    fn the_fastest_with_room_and_out_of_rto_recovery() {
        let minrtt = &mut *build("minrtt");
        let mut scene = Scene::new(vec![subflow(0, 30, 10, 9), subflow(1, 20, 10, 0), subflow(2, 20, 10, 0)]);
        assert_eq!(scene.chosen(minrtt), Some(1), "a tie goes to the lower id");
        scene.subflows[1].set_packets_out(10);
        assert_eq!(scene.chosen(minrtt), Some(2));
        scene.subflows[2].set_ca_state(CaState::Loss);
        assert_eq!(scene.chosen(minrtt), Some(0));
        scene.subflows[0].queued_bytes = 1;
        assert_eq!(scene.ask(minrtt), Decision::Wait { until: None });
    }

    #[test]
    fn a_backup_only_when_no_other_is_usable() {
        let minrtt = &mut *build("minrtt");
        let mut scene = Scene::new(vec![subflow(0, 30, 10, 10), subflow(1, 10, 10, 0)]);
        scene.subflows[1].backup = true;
        assert_eq!(scene.chosen(minrtt), None, "a full window doesn't spill onto a backup");
        scene.subflows[0].state = crate::metrics::SubflowStatus::Stale;
        assert_eq!(scene.chosen(minrtt), Some(1));
    }

    #[test]
    fn new_data_needs_room_in_the_send_window() {
        let minrtt = &mut *build("minrtt");
        let mut scene = Scene::new(vec![subflow(0, 30, 10, 0)]);
        scene.send_window = 5000;
        scene.next_offset = 4999;
        assert_eq!(scene.chosen(minrtt), Some(0));
        scene.next_offset = 5000;
        assert_eq!(scene.chosen(minrtt), None);
        assert_eq!(scene.reason(minrtt), "977 KiB unsent; the send window of 4.9 KiB is full");
        scene.unsent = 0;
        assert_eq!(scene.reason(minrtt), "nothing unsent, 0 chunks in flight");
    }
}
