//! `xlink`: XLINK's reinjection by deadline.
//!
//! Source: Zheng et al., XLINK: QoE-Driven Multi-Path QUIC Transport in Large-scale Video Services, SIGCOMM
//! 2021, from summaries of its section 5; the deadline as in the authors' library xquic
//! (`xqc_reinj_deadline.c`). XLINK schedules by `minrtt`.
//!
//! Rule: before new data is scheduled, a chunk is repeated on another subflow if it hasn't been repeated yet,
//! isn't acknowledged, and is urgent. Where the application has declared until when its message has to be
//! delivered, the two thresholds of section 5.2 on the play time that is left say whether it is:
//!
//! ```text
//! left = the message's deadline - now
//! left < low:   it is
//! left > high:  it isn't
//! otherwise:    if max_p (srtt_p + rttvar_p) > left, over the subflows p with data in flight
//! ```
//!
//! Elsewhere it is if it was sent a deadline ago or longer, by xquic's rule:
//!
//! ```text
//! deadline = max(min(factor min_p srtt_p, hard), least)
//! ```
//!
//! The copy goes to the fastest subflow with room that doesn't carry the chunk. Otherwise `minrtt`.
//!
//! Rulings: XLINK learns the play time that is left from the client's video buffer. MPTCP carries no such
//! feedback: a message's deadline stands for it. The summaries say that between the thresholds the play time
//! is held against the time that delivery is expected to take; that this is the greatest round-trip time and
//! its variation is ours. The paper takes its thresholds from the play times that a service measures, so none
//! is right everywhere: by default only the comparison decides. Stream and frame priorities have no
//! counterpart in one byte stream. Data is sent in order, so that the oldest chunk is the first to be
//! overdue: the walk stops at the first that isn't, and each chunk is passed once. A copy that the subflow's
//! own loss recovery sends doesn't count as repeated. An overdue chunk waits until another subflow has room.
//!
//! Parameters, defaults as in xquic: `factor` (1.1; 0 to 100): deadline in smoothed round-trip times of the
//! fastest subflow. `hard` (500; 0 to 60000): greatest deadline, ms. `least` (20; 0 to 60000): least
//! deadline, ms. Ours: `low` (0; 0 to 60000) and `high` (60000; 0 to 60000): the thresholds, ms.
//! `opportunistic` and `penalise` (default `off`).

use super::mechanisms::{OFF, opportunistic, penalise, with_mechanisms};
use super::minrtt::send_on;
use super::text::{Ms, Subflow, no_room, nothing_to_send};
use super::{Chunk, Decision, Event, Purpose, Rationale, Scheduler, View};
use crate::metrics::SubflowMetrics;
use crate::registry::{Entry, Parameter};
use crate::{MILLISECOND, Span, Time};

pub(super) const ENTRY: Entry<dyn Scheduler> = Entry {
    name: "xlink",
    summary: "minrtt; what may miss a deadline is repeated on another subflow (from a summary)",
    source: "Zheng et al., SIGCOMM 2021; xquic",
    parameters: &[
        Parameter::number("factor", 1.1, (0.0, 100.0), "deadline, round-trip times of the fastest subflow"),
        Parameter::number("hard", 500.0, (0.0, 60_000.0), "greatest deadline, ms"),
        Parameter::number("least", 20.0, (0.0, 60_000.0), "least deadline, ms"),
        Parameter::number("low", 0.0, (0.0, 60_000.0), "declared deadlines closer than this: repeat, ms"),
        Parameter::number("high", 60_000.0, (0.0, 60_000.0), "further than this: don't repeat, ms"),
        opportunistic(OFF),
        penalise(OFF),
    ],
    // It would cost every comparison time.
    compared_by_default: false,
    ..Entry::of(|values| {
        let ns = |name| values.number(name) * MILLISECOND.as_nanos() as f64;
        let (low, high) = (Span::from_nanos(ns("low") as u64), Span::from_nanos(ns("high") as u64));
        let (factor, hard, least) = (values.number("factor"), ns("hard"), ns("least"));
        with_mechanisms(values, Xlink { factor, hard, least, low, high, cursor: 0 })
    })
};

#[derive(Debug)]
struct Xlink {
    factor: f64,
    /// ns.
    hard: f64,
    /// ns.
    least: f64,
    low: Span,
    high: Span,
    /// Data before this stream offset is repeated or acknowledged.
    cursor: u64,
}

/// What is to be repeated.
enum Overdue<'a> {
    /// This chunk, there, after so long.
    Repeat(Chunk, &'a SubflowMetrics, Span),
    /// Nothing before this time.
    NotBefore(Time),
    /// Nothing until something happens.
    Nothing,
}

impl Xlink {
    /// Without a round-trip sample the greatest.
    fn deadline(&self, view: &View<'_>) -> Span {
        let least = view.usable().map(|subflow| subflow.rtt.smoothed).filter(|srtt| *srtt > Span::ZERO).min();
        let flexible = least.map_or(f64::INFINITY, |srtt| self.factor * srtt.as_nanos() as f64);
        Span::from_nanos(flexible.min(self.hard).max(self.least) as u64)
    }

    /// When a chunk of a message becomes urgent that has to be delivered by then.
    fn urgent_from(&self, view: &View<'_>, deadline: Time) -> Time {
        let busy = view.usable().filter(|subflow| subflow.packets_out() > 0);
        let delivery = busy.map(|subflow| subflow.rtt.smoothed + subflow.rtt.var).max().unwrap_or(Span::ZERO);
        deadline.saturating_back(delivery.min(self.high).max(self.low))
    }

    fn overdue<'a>(&mut self, view: &View<'a>) -> Overdue<'a> {
        let deadline = self.deadline(view);
        let backups = view.backups_count();
        self.cursor = self.cursor.max(view.una);
        while let Some(chunk) = view.in_flight.chunk_after(self.cursor) {
            if chunk.carriers.count_ones() > 1 {
                self.cursor = chunk.offset + u64::from(chunk.len);
                continue;
            }
            let declared = view.message(chunk.offset).and_then(|message| message.deadline);
            let due = match declared {
                Some(deadline) => self.urgent_from(view, deadline),
                None => chunk.sent_at.saturating_add(deadline),
            };
            if due > view.now {
                return Overdue::NotBefore(due);
            }
            let mut best: Option<&SubflowMetrics> = None;
            for subflow in view.subflows {
                let first = best.is_none_or(|best| subflow.rtt.smoothed < best.rtt.smoothed);
                let other = !chunk.carried_by(subflow.id);
                if first && other && subflow.available() && (!subflow.backup || backups) {
                    best = Some(subflow);
                }
            }
            return match best {
                Some(subflow) => Overdue::Repeat(chunk, subflow, view.now.saturating_sub(chunk.sent_at)),
                None => Overdue::Nothing,
            };
        }
        Overdue::Nothing
    }
}

impl Scheduler for Xlink {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        let several = view.usable().nth(1).is_some();
        let overdue = if several { self.overdue(view) } else { Overdue::Nothing };
        if let Overdue::Repeat(chunk, subflow, age) = overdue {
            rationale.say(|| {
                let (id, last) = (Subflow(subflow.id), Subflow(chunk.last));
                format!("{id} repeats data at {} that {last} has carried for {}", chunk.offset, Ms(age))
            });
            return Decision::Duplicate {
                subflow: subflow.id,
                offset: chunk.offset,
                purpose: Purpose::Redundant,
            };
        }
        let wait = if !view.sendable() {
            nothing_to_send(view, rationale)
        } else if let Some(subflow) = view.fastest_available() {
            return send_on(subflow, rationale);
        } else {
            no_room(view, rationale)
        };
        match overdue {
            Overdue::NotBefore(due) => Decision::Wait { until: Some(due) },
            _ => wait,
        }
    }

    fn on_event(&mut self, view: &View<'_>, event: Event) {
        // What a removed subflow carried goes to another; its chunks are as if never sent.
        if let Event::SubflowRemoved(_) = event {
            self.cursor = view.una;
        }
    }

    fn repeats(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Chunks, Model, Pipe, Scene, build, run, subflow};
    use super::*;
    use crate::SubflowId;
    use crate::testing::WithoutSender as _;

    /// f: 20 ms; s: 200 ms. Two chunks on s, of time 0 and 5 ms; 100 ms have passed.
    fn scene() -> Scene {
        let mut scene = Scene::new(vec![subflow(0, 20, 10, 5), subflow(1, 200, 10, 5)]);
        let chunk = |offset, sent_at| {
            let last = SubflowId(1);
            (
                offset,
                Chunk {
                    offset,
                    len: 1000,
                    carriers: 0b10,
                    last,
                    sent_at: Time::ZERO + sent_at * MILLISECOND,
                },
            )
        };
        scene.chunks = Chunks([chunk(0, 0), chunk(1000, 5)].into());
        (scene.next_offset, scene.now) = (2000, Time::ZERO + 100 * MILLISECOND);
        scene
    }

    fn duplicate(subflow: u8, offset: u64) -> Decision {
        Decision::Duplicate { subflow: SubflowId(subflow), offset, purpose: Purpose::Redundant }
    }

    #[test]
    fn overdue_data_goes_before_new_data() {
        let mut scene = scene();
        let xlink = &mut *build("xlink");
        assert_eq!(scene.ask(xlink), duplicate(0, 0));
        scene.chunks.0.get_mut(&0).unwrap().carriers = 0b11;
        assert_eq!(scene.ask(xlink), duplicate(0, 1000));
        scene.chunks.0.get_mut(&1000).unwrap().carriers = 0b11;
        assert_eq!(scene.chosen(xlink), Some(0), "each once; then minrtt");
    }

    #[test]
    fn both_sides_of_the_deadline() {
        // max(min(1.1 20, 500), 20) = 22 ms.
        let mut scene = scene();
        scene.now = Time::ZERO + 22 * MILLISECOND;
        assert_eq!(scene.ask(&mut *build("xlink")), duplicate(0, 0));
        scene.now -= Span::from_nanos(1);
        assert_eq!(scene.chosen(&mut *build("xlink")), Some(0));
        scene.unsent = 0;
        let wait = Decision::Wait { until: Some(Time::ZERO + 22 * MILLISECOND) };
        assert_eq!(scene.ask(&mut *build("xlink")), wait, "it asks again when the first is due");
    }

    #[test]
    fn the_three_terms_of_the_deadline() {
        let at = |text: &str, ms: u64| {
            let mut scene = scene();
            scene.now = Time::ZERO + ms * MILLISECOND;
            matches!(scene.ask(&mut *build(text)), Decision::Duplicate { .. })
        };
        assert!(at("xlink(least=30)", 30) && !at("xlink(least=30)", 29), "never less than the least");
        assert!(at("xlink(factor=2, least=0)", 40) && !at("xlink(factor=2, least=0)", 39));
        assert!(at("xlink(factor=4, hard=50)", 50) && !at("xlink(factor=4, hard=50)", 49));
    }

    /// Both chunks belong to a message with this deadline.
    fn due_at(ms: u64) -> Scene {
        let mut scene = scene();
        let deadline = Some(Time::ZERO + ms * MILLISECOND);
        scene.messages = vec![crate::scheduler::Message { start: 0, end: 2000, deadline }];
        scene
    }

    #[test]
    fn a_declared_deadline_is_held_against_the_time_that_delivery_takes() {
        // 200 ms on the slow subflow, with no variation. It is 100 ms: 300 ms is in time, earlier isn't.
        assert_eq!(due_at(300).ask(&mut *build("xlink")), duplicate(0, 0));
        assert_eq!(due_at(301).chosen(&mut *build("xlink")), Some(0), "it arrives in time");
        let mut scene = due_at(301);
        scene.unsent = 0;
        let wait = Decision::Wait { until: Some(Time::ZERO + 101 * MILLISECOND) };
        assert_eq!(scene.ask(&mut *build("xlink")), wait, "it asks again when it is urgent");
        let mut scene = due_at(301);
        scene.subflows[1].rtt.var = MILLISECOND;
        assert_eq!(scene.ask(&mut *build("xlink")), duplicate(0, 0), "the variation counts");
        assert_eq!(due_at(50).ask(&mut *build("xlink")), duplicate(0, 0), "it is late already");
    }

    #[test]
    fn both_sides_of_the_two_thresholds() {
        let repeats =
            |text: &str, ms| matches!(due_at(ms).ask(&mut *build(text)), Decision::Duplicate { .. });
        assert!(repeats("xlink(low=400)", 500) && !repeats("xlink(low=400)", 501), "closer: always");
        assert!(repeats("xlink(high=50)", 150) && !repeats("xlink(high=50)", 151), "further: never");
    }

    #[test]
    fn a_message_without_a_deadline_changes_nothing() {
        let mut scene = due_at(0);
        scene.messages[0].deadline = None;
        scene.now = Time::ZERO + 22 * MILLISECOND;
        assert_eq!(scene.ask(&mut *build("xlink")), duplicate(0, 0), "by xquic's rule");
    }

    #[test]
    fn never_where_it_was_sent_already() {
        let mut scene = scene();
        scene.subflows[0].set_packets_out(10);
        assert_eq!(scene.chosen(&mut *build("xlink")), Some(1), "the fast one is full: new data on the slow");
        scene.subflows.pop();
        scene.subflows[0].set_packets_out(5);
        assert_eq!(scene.chosen(&mut *build("xlink")), Some(0), "alone: minrtt");
    }

    #[test]
    fn unlike_cfs_it_repeats_while_data_is_unsent() {
        let slow = Pipe::new(400, 2);
        let pipes = [Pipe::new(10, 10), slow];
        let repeated = |text| {
            let done = Model::new(&pipes, 400_000).run(&mut *build(text));
            done.placements
                .iter()
                .filter(|placement| placement.at == Time::ZERO + 20 * MILLISECOND && placement.repeat)
                .count()
        };
        assert_eq!((repeated("xlink"), repeated("cfs")), (2, 0));
    }

    #[test]
    fn a_tail_on_the_slow_subflow_comes_on_the_fast_one() {
        // cfs-2019 Fig. 3's paths: 10 packets on S arrive at 50 ms. The deadline is the least, 20 ms: F
        // repeats them.
        let done = run("xlink", &[Pipe::new(10, 10), Pipe::new(100, 10)], 30);
        assert_eq!(done.completed, Some(Time::ZERO + 25 * MILLISECOND));
    }
}
