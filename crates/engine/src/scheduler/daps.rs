//! `daps`: the delay-aware packet scheduler, with its plan over the least common multiple of the delays.
//!
//! Source: blest-2016 IV-A and Algorithm 1, after Kuhn et al., ICC 2014.
//!
//! Rule: D_i = srtt_i / 2 is path i's forward delay (ns), C_i = cwnd_i its capacity (segments). A plan spans
//! lcm(D): path i has lcm/D_i slots of C_i segments, and transmits a slot at each multiple of D_i. Segments
//! are numbered so that they arrive in order: slot k of path i arrives at (k + 1) D_i.
//!
//! Worked example (IV-A): similar capacities, a delay ratio of ten: segments 1..10 on the fast path, 11 on
//! the slow one (C_i = 1).
//!
//! Rulings: numbers go out in order of *arrival*, as Algorithm 1 as printed never advances S_max in its
//! planning loop; slots that arrive together are numbered fastest path first. D_i is rounded to the `quantum`
//! (at least one), and where the lcm exceeds the `horizon`, the plan spans the horizon (or the largest D_i)
//! and each path has the slots that fit: without these bounds delays of 13 and 27.1 ms would make a plan of
//! 3.5 s. A subflow without a round-trip sample is planned for as if it were like the slowest. A plan is for
//! the usable subflows outside RTO recovery, counts in segments of their least MSS, and is followed to its
//! end: a subflow that joins waits for the next plan, and changed windows and RTTs do too. A slot is due at
//! its time at the earliest, and then sent as cwnd admits. What a path hasn't room for waits for it. The plan
//! is remade only when it is through, when one of its subflows isn't usable any more, or when the first
//! unassigned byte isn't in it (the application wrote less than a segment at a time). blest-2016 IV-D: no
//! reinjection is defined; the connection's own applies.
//!
//! Preset `linux` is the kernel module of the paper's first author, in `daps/linux.rs`: its plan is an order
//! of packets, whatever their size, and they join the subflows' queues.
//!
//! Parameters: `quantum` (1 ms; 0.001 to 1000), `horizon` (1000 ms; 1 to 60000), `plan` (`paper`; `linux`).
//! `opportunistic` and `penalise` (default `off`; preset `linux`: `opportunistic=paper`).

mod linux;

use super::mechanisms::{OFF, PAPER, opportunistic, penalise, with_mechanisms};
use super::text::{Ms, Subflow, no_room, nothing_to_send};
use super::{Decision, Rationale, Scheduler, View};
use crate::metrics::{CaState, SubflowMetrics};
use crate::registry::{Entry, Exception, Parameter, Preset};
use crate::{MAX_SUBFLOWS, Span, SubflowId, Time};

pub(super) const ENTRY: Entry<dyn Scheduler> = Entry {
    name: "daps",
    summary: "a plan over the lcm of the forward delays, so that segments arrive in order",
    source: "blest-2016 IV-A, Algorithm 1",
    parameters: &[
        Parameter::number("quantum", 1.0, (0.001, 1000.0), "forward delays are rounded to this, ms"),
        Parameter::number("horizon", 1000.0, (1.0, 60_000.0), "longest plan, ms"),
        Parameter::choice("plan", 0, &["paper", "linux"], "segments when due, or packets into queues"),
        opportunistic(OFF),
        penalise(OFF),
    ],
    presets: &[Preset {
        name: "linux",
        summary: "the paper's kernel module: an order of packets, whatever their size, that join the \
                  subflows' queues",
        values: &[("quantum", 4.0), ("horizon", 60_000.0), ("plan", 1.0), ("opportunistic", PAPER as f64)],
    }],
    exceptions: &[Exception {
        rule: "cwnd",
        reason: "preset `linux`: the kernel module puts a slot into the queue of a subflow whose window is \
                 full",
    }],
    ..Entry::of(|values| {
        let span = |name| Span::from_nanos((values.number(name) * 1e6) as u64);
        let quantum = span("quantum");
        let horizon = span("horizon");
        if values.number("plan") == 0.0 {
            with_mechanisms(values, Daps { quantum, horizon, plan: Plan::default() })
        } else {
            with_mechanisms(values, linux::DapsLinux::new(quantum, horizon))
        }
    })
};

/// One path's part of a plan, and its progress.
#[derive(Clone, Copy, Debug, Default)]
struct Leg {
    subflow: SubflowId,
    /// D_i, rounded.
    delay: Span,
    /// C_i.
    capacity: u64,
    slots: u64,
    /// The current slot.
    slot: u64,
    /// The first segment of that slot, and how many of its segments are sent.
    first: u64,
    sent: u64,
}

/// Segments are counted from 0 at stream offset `base`.
#[derive(Debug, Default)]
struct Plan {
    start: Time,
    base: u64,
    /// Bytes per segment.
    unit: u32,
    legs: [Leg; MAX_SUBFLOWS],
    len: usize,
}

#[derive(Debug)]
struct Daps {
    quantum: Span,
    horizon: Span,
    plan: Plan,
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl Plan {
    /// Algorithm 1's planning loop, up to the first slot of each path.
    fn make(&mut self, view: &View<'_>, quantum: Span, horizon: Span) {
        let planned = |subflow: &&SubflowMetrics| subflow.ca_state() != CaState::Loss;
        self.len = 0;
        self.unit = u32::MAX;
        let mut span = 1;
        let mut longest = 1;
        let slowest =
            view.usable().filter(planned).map(|subflow| subflow.rtt.smoothed).max().unwrap_or(Span::ZERO);
        for (subflow, leg) in view.usable().filter(planned).zip(&mut self.legs) {
            let srtt = if subflow.rtt.smoothed > Span::ZERO { subflow.rtt.smoothed } else { slowest };
            let quanta = ((srtt / 2 + quantum / 2) / quantum).max(1);
            *leg = Leg {
                subflow: subflow.id,
                delay: quantum.saturating_mul(quanta),
                capacity: u64::from(subflow.cwnd().max(1)),
                slots: quanta,
                ..Leg::default()
            };
            self.len += 1;
            self.unit = self.unit.min(subflow.mss.max(1));
            longest = longest.max(quanta);
            span = (span / gcd(span, quanta)).saturating_mul(quanta);
        }
        let span = span.min((horizon / quantum).max(longest));
        for leg in &mut self.legs[..self.len] {
            leg.slots = span / leg.slots;
        }
        self.start = view.now;
        self.base = view.next_offset;
        for index in 0..self.len {
            self.legs[index].first = self.before(index);
        }
    }

    /// Segments that arrive before the current slot of leg `index`.
    fn before(&self, index: usize) -> u64 {
        let own = &self.legs[index];
        let arrival = (own.slot + 1) * own.delay;
        let mut segments = own.slot * own.capacity;
        for (other, leg) in self.legs[..self.len].iter().enumerate() {
            if other == index {
                continue;
            }
            let wins_tie = (leg.delay, other) < (own.delay, index);
            let earlier = if wins_tie { arrival } else { arrival - Span::from_nanos(1) } / leg.delay;
            segments += earlier.min(leg.slots) * leg.capacity;
        }
        segments
    }

    /// The stream offset of a leg's next segment.
    fn offset(&self, leg: &Leg) -> u64 {
        self.base + (leg.first + leg.sent) * u64::from(self.unit)
    }

    /// Records that one segment of leg `index` was sent.
    fn advance(&mut self, index: usize) {
        let leg = &mut self.legs[index];
        leg.sent += 1;
        if leg.sent == leg.capacity {
            leg.sent = 0;
            leg.slot += 1;
            self.legs[index].first = self.before(index);
        }
    }

    /// The plan's next step.
    fn next(&self, view: &View<'_>) -> Next {
        let edge = view.una.saturating_add(view.send_window).min(view.written);
        let backups = view.backups_count();
        let mut lowest = u64::MAX;
        let mut best: Option<(usize, u64)> = None;
        let mut due: Option<Time> = None;
        for (index, leg) in self.legs[..self.len].iter().enumerate() {
            if leg.slot == leg.slots {
                continue;
            }
            let Some(subflow) = view.subflows.get(leg.subflow.index()) else { return Next::Remake };
            if !subflow.usable() || (subflow.backup && !backups) {
                return Next::Remake;
            }
            let offset = self.offset(leg);
            lowest = lowest.min(offset);
            if !subflow.available() || offset >= edge {
                continue;
            }
            let at = self.start + leg.slot * leg.delay;
            if at > view.now {
                due = Some(due.map_or(at, |other| other.min(at)));
            } else if best.is_none_or(|(_, least)| offset < least) {
                best = Some((index, offset));
            }
        }
        match best {
            // The first unassigned byte isn't in the plan, or there is no plan.
            _ if view.next_offset < lowest => Next::Remake,
            Some((leg, offset)) => Next::Send { leg, offset },
            None => Next::Wait { until: due },
        }
    }
}

/// A plan's next step.
enum Next {
    Send { leg: usize, offset: u64 },
    Wait { until: Option<Time> },
    Remake,
}

impl Scheduler for Daps {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        if !view.sendable() {
            return nothing_to_send(view, rationale);
        }
        let mut next = self.plan.next(view);
        if let Next::Remake = next {
            self.plan.make(view, self.quantum, self.horizon);
            next = self.plan.next(view);
        }
        match next {
            Next::Send { leg: index, offset } => {
                let leg = self.plan.legs[index];
                self.plan.advance(index);
                rationale.say(|| {
                    let (id, slot, slots) = (Subflow(leg.subflow), leg.slot + 1, leg.slots);
                    let segment = leg.first + leg.sent + 1;
                    format!(
                        "{id}: segment {segment} of the plan, slot {slot} of {slots} of {}",
                        Ms(leg.delay)
                    )
                });
                Decision::SendAt { subflow: leg.subflow, offset, bytes: self.plan.unit }
            }
            Next::Wait { until: Some(at) } => {
                rationale
                    .say(|| format!("no room, or not due: the next slot is due in {}", Ms(at - view.now)));
                Decision::Wait { until: Some(at) }
            }
            Next::Wait { until: None } | Next::Remake => no_room(view, rationale),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{MSS, Model, Pipe, Scene, build, run, subflow, unmeasured};
    use super::*;
    use crate::MILLISECOND;
    use crate::testing::WithoutSender as _;

    /// The segments that each path's slots carry, in order of the paths.
    fn vectors(subflows: Vec<SubflowMetrics>, quantum_ms: u64, horizon_ms: u64) -> Vec<Vec<u64>> {
        let scene = Scene::new(subflows);
        let mut plan = Plan::default();
        plan.make(&scene.view(), quantum_ms * MILLISECOND, horizon_ms * MILLISECOND);
        (0..plan.len)
            .map(|index| {
                let mut segments = Vec::new();
                while plan.legs[index].slot < plan.legs[index].slots {
                    segments.push(plan.legs[index].first + plan.legs[index].sent + 1);
                    plan.advance(index);
                }
                segments
            })
            .collect()
    }

    #[test]
    fn the_worked_example_ten_to_one() {
        let vectors = vectors(vec![subflow(0, 10, 1, 0), subflow(1, 100, 1, 0)], 1, 1000);
        assert_eq!(vectors, [(1..=10).collect::<Vec<_>>(), vec![11]]);
    }

    #[test]
    fn every_segment_once_and_in_order_of_arrival() {
        // D = 2, 3 and 3 ms: lcm 6; slots of 2, 1 and 4 segments.
        // Arrivals: 2: a; 3: b, c; 4: a; 6: a, b, c.
        let subflows = vec![subflow(0, 4, 2, 0), subflow(1, 6, 1, 0), subflow(2, 6, 4, 0)];
        let expected = [vec![1, 2, 8, 9, 10, 11], vec![3, 12], vec![4, 5, 6, 7, 13, 14, 15, 16]];
        assert_eq!(vectors(subflows, 1, 1000), expected);
    }

    #[test]
    fn without_a_sample_planned_for_like_the_slowest() {
        let subflows = vec![subflow(0, 10, 1, 0), unmeasured(1, 1, 0), subflow(2, 30, 1, 0)];
        assert_eq!(vectors(subflows, 1, 1000), [vec![1, 2, 3], vec![4], vec![5]]);
        assert_eq!(vectors(vec![unmeasured(0, 1, 0), unmeasured(1, 1, 0)], 1, 1000), [[1], [2]]);
    }

    #[test]
    fn delays_are_rounded_and_the_horizon_bounds_the_plan() {
        // D = 13 and 27 ms: lcm 351.
        let subflows = || vec![subflow(0, 26, 1, 0), subflow(1, 54, 1, 0)];
        let slots =
            |quantum, horizon| vectors(subflows(), quantum, horizon).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(slots(1, 1000), [27, 13]);
        assert_eq!(slots(1, 351), [27, 13]);
        assert_eq!(slots(1, 350), [26, 12], "what fits 350 ms");
        assert_eq!(slots(1, 5), [2, 1], "the largest delay at least");
        assert_eq!(slots(10, 1000), [3, 1], "10 and 30 ms");
        assert_eq!(slots(20, 1000), [1, 1], "20 and 20 ms");
        assert_eq!(slots(100, 1000), [1, 1], "at least one quantum");
    }

    #[test]
    fn both_bounds_are_parameters_in_milliseconds() {
        let scene = Scene::new(vec![subflow(0, 26, 1, 0), subflow(1, 54, 1, 0)]);
        let reason = |text| scene.reason(&mut *build(text));
        assert_eq!(reason("daps"), "{subflow 0}: segment 1 of the plan, slot 1 of 27 of 13.0 ms");
        let daps = &mut *build("daps");
        let mut later = Scene::new(scene.subflows.clone());
        assert!(later.reason(daps).contains("segment 1 of the plan, slot 1 of 27"));
        (later.now, later.next_offset) = (Time::ZERO + 13 * MILLISECOND, 1000);
        assert!(later.reason(daps).contains("segment 2 of the plan, slot 2 of 27"));
        // Two segments in a slot: the second of the first slot.
        let mut wide = Scene::new(vec![subflow(0, 26, 2, 0), subflow(1, 54, 2, 0)]);
        let daps = &mut *build("daps");
        assert!(wide.reason(daps).contains("segment 1 of the plan, slot 1 of 27"));
        wide.next_offset = 1000;
        assert!(wide.reason(daps).contains("segment 2 of the plan, slot 1 of 27"));
        assert!(reason("daps(horizon=27)").ends_with("slot 1 of 2 of 13.0 ms"));
        assert!(reason("daps(quantum=10)").ends_with("slot 1 of 3 of 10.0 ms"));
    }

    #[test]
    fn the_earlier_segment_first_whichever_path_it_is_on() {
        let scene = Scene::new(vec![subflow(0, 30, 2, 0), subflow(1, 10, 2, 0)]);
        let daps = &mut *build("daps");
        assert!(scene.reason(daps).starts_with("{subflow 1}: segment 1 of the plan"));
        assert!(scene.reason(daps).starts_with("{subflow 1}: segment"), "the second of two");
    }

    #[test]
    fn slots_are_sent_when_due() {
        let daps = &mut *build("daps");
        let mut scene = Scene::new(vec![subflow(0, 10, 1, 0), subflow(1, 30, 1, 0)]);
        (scene.now, scene.next_offset) = (Time::ZERO + MILLISECOND, 500);
        let at = |subflow, offset| Decision::SendAt { subflow: SubflowId(subflow), offset, bytes: MSS };
        assert_eq!(scene.ask(daps), at(0, 500));
        scene.next_offset = 1500;
        scene.subflows[0].set_packets_out(1);
        assert_eq!(scene.ask(daps), at(1, 3500), "the fourth to arrive");
        scene.subflows[0].set_packets_out(0);
        scene.subflows[1].set_packets_out(1);
        assert_eq!(scene.ask(daps), Decision::Wait { until: Some(Time::ZERO + 6 * MILLISECOND) });
        scene.now = Time::ZERO + 6 * MILLISECOND;
        assert_eq!(scene.ask(daps), at(0, 1500));
        (scene.next_offset, scene.now) = (2500, Time::ZERO + 15 * MILLISECOND);
        assert_eq!(scene.ask(daps), at(0, 2500));
        scene.next_offset = 4500;
        assert_eq!(scene.ask(daps), at(0, 4500), "through: a new plan");
    }

    #[test]
    fn a_plan_is_remade_when_a_subflow_goes_and_when_data_dropped_out_of_it() {
        let daps = &mut *build("daps");
        let mut scene = Scene::new(vec![subflow(0, 10, 5, 0), subflow(1, 30, 5, 0)]);
        assert!(matches!(scene.ask(daps), Decision::SendAt { offset: 0, .. }));
        // A short write: the engine sent 100 bytes of it.
        scene.next_offset = 100;
        assert!(matches!(scene.ask(daps), Decision::SendAt { offset: 100, .. }));
        scene.subflows[0].state = crate::metrics::SubflowStatus::Closed;
        scene.next_offset = 1100;
        let decision = scene.ask(daps);
        assert_eq!(decision, Decision::SendAt { subflow: SubflowId(1), offset: 1100, bytes: MSS });
    }

    #[test]
    fn what_is_not_written_or_beyond_the_window_waits() {
        let daps = &mut *build("daps");
        let mut scene = Scene::new(vec![subflow(0, 10, 1, 1), subflow(1, 30, 1, 0)]);
        scene.unsent = 3000;
        assert_eq!(scene.chosen(daps), None, "the slow one's is the fourth");
        scene.unsent = 3001;
        assert_eq!(scene.chosen(daps), Some(1));
        let daps = &mut *build("daps");
        scene.send_window = 3000;
        assert_eq!(scene.chosen(daps), None);
        scene.send_window = 3001;
        assert_eq!(scene.chosen(daps), Some(1));
    }

    #[test]
    fn subflows_in_rto_recovery_are_not_planned_for() {
        let mut subflows = vec![subflow(0, 10, 1, 0), subflow(1, 100, 1, 0)];
        subflows[1].set_ca_state(CaState::Loss);
        assert_eq!(vectors(subflows.clone(), 1, 1000), [vec![1]]);
        subflows[0].set_ca_state(CaState::Loss);
        assert_eq!(Scene::new(subflows).ask(&mut *build("daps")), Decision::Wait { until: None });
    }

    #[test]
    fn segments_are_of_the_least_mss() {
        let mut subflows = vec![subflow(0, 10, 1, 0), subflow(1, 100, 1, 0)];
        subflows[1].mss = 700;
        assert!(matches!(Scene::new(subflows).ask(&mut *build("daps")), Decision::SendAt { bytes: 700, .. }));
    }

    #[test]
    fn unlike_minrtt_the_slow_path_carries_what_arrives_with_it() {
        let pipes = [Pipe::new(10, 1), Pipe::new(100, 1)];
        assert_eq!(run("daps", &pipes, 22).segments_on(1, 1), [11, 22]);
        assert_eq!(run("minrtt", &pipes, 22).segments_on(1, 1)[0], 2);
        // Like daps-two-path in the ratio, unlike it in what a slow slot holds: C_i, not what its window has.
        let wide = [Pipe::new(10, 10), Pipe::new(40, 10)];
        let first = |text| Model::new(&wide, 90_000).run(&mut *build(text)).segments_on(1, 1)[0];
        assert_eq!(first("daps"), 41, "four slots of ten on the fast one come before");
        assert_eq!(first("daps-two-path"), 5, "eta = 4");
    }
}
