//! `roundrobin`: the subflows in turn.
//!
//! Source: 5g-2019 III.A (RR): no priority between subflows, selected in a round-robin fashion. The quota
//! and the switch are those of the out-of-tree Linux kernel's module (`num_segments`, `cwnd_limited`).
//!
//! Rule: each subflow in turn gets `quota` segments, in order of subflow id.
//!
//! Rulings: with `cwnd-limited`, a subflow whose window is full is skipped, and what it left of its quota
//! lapses. Without, the preset `strict`, nobody is skipped: the segment joins the queue of the subflow whose
//! turn it is, beyond its cwnd, and the scheduler waits while that queue is full. The paper doesn't specify
//! it.
//!
//! Parameters: `quota` (1 segment; 1 to 255), `cwnd-limited` (true), `one-more` (false; preset `mptcp-0.95`:
//! true): see [`super::mechanisms`]. `opportunistic` and `penalise` (default `off`).

use super::mechanisms::{
    OFF, has_room_for_one_more, one_more, opportunistic, penalise, send_or_queue, with_mechanisms,
};
use super::text::{Subflow, no_room, nothing_to_send};
use super::{Decision, Rationale, Scheduler, View};
use crate::SubflowId;
use crate::metrics::{CaState, SubflowMetrics};
use crate::registry::{Entry, Exception, Kernel, Parameter, Preset};

pub(super) const ENTRY: Entry<dyn Scheduler> = Entry {
    name: "roundrobin",
    summary: "the subflows in turn, a quota of segments each",
    source: "5g-2019 III.A",
    parameters: &[
        Parameter::whole("quota", 1.0, (1.0, 255.0), "segments per turn"),
        Parameter::switch("cwnd-limited", true, "skip subflows whose windows are full; else queue on them"),
        one_more(),
        opportunistic(OFF),
        penalise(OFF),
    ],
    presets: &[
        Preset {
            name: "strict",
            summary: "strict turns: no subflow is skipped",
            values: &[("cwnd-limited", 0.0)],
        },
        Preset {
            name: "mptcp-0.95",
            summary: "the out-of-tree kernel's since 0.9: one segment beyond the window waits",
            values: &[("one-more", 1.0)],
        },
    ],
    exceptions: &[Exception {
        rule: "cwnd",
        reason: "strict turns (5g-2019 III.A) queue segments on a subflow whose window is full",
    }],
    kernels: &[Kernel::MultipathTcp.has()],
    ..Entry::of(|values| {
        let quota = values.number("quota") as u32;
        let (cwnd_limited, one_more) = (values.switch("cwnd-limited"), values.switch("one-more"));
        with_mechanisms(values, RoundRobin { quota, cwnd_limited, one_more, turn: SubflowId(0), given: 0 })
    })
};

#[derive(Debug)]
struct RoundRobin {
    quota: u32,
    cwnd_limited: bool,
    one_more: bool,
    /// The subflow whose turn it is.
    turn: SubflowId,
    /// Segments assigned to it in this turn.
    given: u32,
}

impl RoundRobin {
    /// The subflow whose turn it is among those that `qualifies` lets in.
    fn next<'a>(
        &self,
        view: &View<'a>,
        qualifies: impl Fn(&SubflowMetrics) -> bool,
    ) -> Option<&'a SubflowMetrics> {
        let backups = view.backups_count();
        let first = if self.given < self.quota { self.turn.0 } else { self.turn.0.wrapping_add(1) };
        let mut before = None;
        for subflow in view.subflows {
            if !subflow.usable() || (subflow.backup && !backups) || !qualifies(subflow) {
                continue;
            }
            if subflow.id.0 >= first {
                return Some(subflow);
            }
            // After the highest id the lowest is next.
            before = before.or(Some(subflow));
        }
        before
    }

    fn give(&mut self, subflow: &SubflowMetrics, rationale: &mut Rationale) {
        let continues = subflow.id == self.turn && self.given < self.quota;
        self.given = if continues { self.given + 1 } else { 1 };
        self.turn = subflow.id;
        rationale.say(|| format!("{}'s turn, {} of {}", Subflow(subflow.id), self.given, self.quota));
    }
}

impl Scheduler for RoundRobin {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        if !view.sendable() {
            return nothing_to_send(view, rationale);
        }
        if self.cwnd_limited && self.one_more {
            let Some(subflow) = self.next(view, |subflow| has_room_for_one_more(subflow, view.now)) else {
                return no_room(view, rationale);
            };
            self.give(subflow, rationale);
            return send_or_queue(subflow);
        }
        if self.cwnd_limited {
            // Nothing is queued ahead, and the kernel's module leaves the subflow's own window out of
            // account.
            let has_room =
                |subflow: &SubflowMetrics| subflow.ca_state() != CaState::Loss && subflow.window_space() > 0;
            let Some(subflow) = self.next(view, has_room) else {
                return no_room(view, rationale);
            };
            self.give(subflow, rationale);
            return Decision::Send { subflow: subflow.id, bytes: subflow.mss };
        }
        let Some(subflow) = self.next(view, |subflow| subflow.ca_state() != CaState::Loss) else {
            return no_room(view, rationale);
        };
        // In strict turns nobody goes before the one whose turn it is.
        if subflow.queue_space < u64::from(subflow.mss) {
            rationale.say(|| {
                let (id, queued) = (Subflow(subflow.id), subflow.queued_segments());
                format!("{id}'s turn, and its queue of {queued} segments takes no more")
            });
            return Decision::Wait { until: None };
        }
        self.give(subflow, rationale);
        Decision::Queue { subflow: subflow.id, bytes: subflow.mss }
    }

    fn queues_ahead(&self) -> bool {
        !self.cwnd_limited || self.one_more
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Pipe, Scene, build, run, subflow};
    use super::*;
    use crate::testing::WithoutSender as _;

    #[test]
    fn in_turn_by_quota() {
        let scene = Scene::new(vec![subflow(0, 10, 10, 0), subflow(1, 100, 10, 0), subflow(2, 50, 10, 0)]);
        let turns = |text, count| {
            let mut scheduler = build(text);
            (0..count).map(|_| scene.chosen(&mut *scheduler).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(turns("roundrobin", 5), [0, 1, 2, 0, 1]);
        assert_eq!(turns("roundrobin(quota=3)", 10), [0, 0, 0, 1, 1, 1, 2, 2, 2, 0]);
        assert_eq!(turns("roundrobin:strict(quota=2)", 5), [0, 0, 1, 1, 2]);
    }

    #[test]
    fn the_full_are_skipped_and_lose_what_was_left_of_their_quota() {
        let scheduler = &mut *build("roundrobin(quota=2)");
        let mut scene = Scene::new(vec![subflow(0, 10, 10, 9), subflow(1, 10, 10, 0)]);
        assert_eq!(scene.chosen(scheduler), Some(0));
        scene.subflows[0].set_packets_out(10);
        assert_eq!(scene.chosen(scheduler), Some(1));
        scene.subflows[0].set_packets_out(9);
        assert_eq!(scene.chosen(scheduler), Some(1), "the second of its quota");
        assert_eq!(scene.chosen(scheduler), Some(0));
        assert_eq!(scene.chosen(scheduler), Some(0), "a fresh quota of two");
    }

    #[test]
    fn alone_a_spent_quota_is_followed_by_a_fresh_one() {
        let scheduler = &mut *build("roundrobin(quota=2)");
        let mut scene = Scene::new(vec![subflow(0, 10, 10, 0), subflow(1, 10, 10, 10)]);
        for _ in 0..3 {
            assert_eq!(scene.chosen(scheduler), Some(0));
        }
        scene.subflows[1].set_packets_out(0);
        assert_eq!(scene.chosen(scheduler), Some(0), "the second of two");
        assert_eq!(scene.chosen(scheduler), Some(1));
    }

    #[test]
    fn strict_turns_queue_beyond_the_window_up_to_the_queue() {
        let scheduler = &mut *build("roundrobin:strict");
        let mut scene = Scene::new(vec![subflow(0, 10, 10, 10), subflow(1, 10, 10, 0)]);
        assert!(matches!(scene.ask(scheduler), Decision::Queue { subflow: SubflowId(0), .. }));
        assert!(matches!(scene.ask(scheduler), Decision::Queue { subflow: SubflowId(1), .. }));
        scene.subflows[0].queue_space = 999;
        assert_eq!(scene.ask(scheduler), Decision::Wait { until: None });
        scene.subflows[0].queue_space = 1000;
        assert_eq!(scene.chosen(scheduler), Some(0));
    }

    #[test]
    fn unlike_minrtt_the_slow_subflow_gets_every_other_segment() {
        let pipes = [Pipe::new(10, 10), Pipe::new(100, 10)];
        assert_eq!(run("roundrobin", &pipes, 10).segments_on(1, 1), [2, 4, 6, 8, 10]);
        assert!(run("minrtt", &pipes, 10).segments_on(1, 1).is_empty());
    }
}
