//! `rtt-gate`: a newly joined subflow is used only if it can still help.
//!
//! Source: kim-choi (Kim and Choi, an efficient packet transmission scheme for MPTCP considering RTT),
//! Eq. (1). The equation is missing from the text at hand and is reconstructed from its prose: only if
//!
//! ```text
//! RTT_2 < Remained Packets / Throughput_1
//! ```
//!
//! is the new connection used: else the current path would finish everything before the new one's RTT is
//! over.
//!
//! Rule: when a subflow becomes usable while another carries data, remaining = unsent + in flight at data
//! level (bytes; where the application declared the flow's size, what of it isn't acknowledged) and
//! throughput = the sum of the delivery rates of the subflows in use (bytes/s). It is admitted if srtt_new <
//! remaining / throughput. Among the admitted: `minrtt`.
//!
//! Rulings: counting what is in flight, and `minrtt` among the admitted. A subflow in use that has no rate
//! sample counts as cwnd MSS / srtt, and for nothing without a round-trip sample either. A new one without a
//! round-trip sample is used until it has one, and decided on then. "Carries data": an admitted subflow is
//! usable and something is unsent or in flight at data level; a subflow that joins at another time is
//! admitted. When no admitted subflow is usable any more, the refused are used: the alternative is a stall.
//!
//! "Remained Packets" may be what remains of the flow or what remains in the sender's buffer, which is all
//! that a sender knows of whom no application declares a size: `remaining`.
//!
//! Parameters: `remaining` (`declared`; `backlog`: a declared size is ignored), `revisit` (false): ask again
//! whenever data is written, of every subflow but the fastest, which is admitted. `opportunistic` and
//! `penalise` (default `off`).

use super::mechanisms::{OFF, opportunistic, penalise, with_mechanisms};
use super::minrtt::send_on;
use super::text::{no_room, nothing_to_send};
use super::{Decision, Event, Rationale, Scheduler, View};
use crate::metrics::SubflowMetrics;
use crate::registry::{Entry, Parameter};
use crate::{Span, SubflowId};

pub(super) const ENTRY: Entry<dyn Scheduler> = Entry {
    name: "rtt-gate",
    summary: "a new subflow is used only if its RTT is less than the time the others still need",
    source: "kim-choi Eq. (1)",
    parameters: &[
        Parameter::choice(
            "remaining",
            0,
            &["declared", "backlog"],
            "what remains: of the declared size, or in the send buffer",
        ),
        Parameter::switch("revisit", false, "ask again whenever data is written"),
        opportunistic(OFF),
        penalise(OFF),
    ],
    ..Entry::of(|values| {
        let (revisit, declared) = (values.switch("revisit"), values.number("remaining") == 0.0);
        with_mechanisms(values, RttGate { revisit, declared, decided: 0, admitted: 0 })
    })
};

#[derive(Debug)]
struct RttGate {
    revisit: bool,
    /// Whether a declared size counts.
    declared: bool,
    /// Bit i: subflow i has been decided on.
    decided: u32,
    /// Bit i: subflow i is admitted.
    admitted: u32,
}

/// Bytes left to deliver, as far as known.
fn remaining(view: &View<'_>, declared: bool) -> u64 {
    let backlog = view.unsent + view.next_offset.saturating_sub(view.una);
    view.declared_size.filter(|_| declared).map_or(backlog, |size| size.saturating_sub(view.una))
}

/// Bytes per second.
fn throughput(subflow: &SubflowMetrics) -> f64 {
    if subflow.rate.delivery > 0 {
        return subflow.rate.delivery as f64;
    }
    if subflow.rtt.smoothed == Span::ZERO {
        return 0.0;
    }
    f64::from(subflow.cwnd()) * f64::from(subflow.mss) * 1e9 / subflow.rtt.smoothed.as_nanos() as f64
}

/// Eq. (1): whether a subflow of `rtt` helps to deliver `remaining` bytes at `throughput` (bytes/s).
fn helps(rtt: Span, remaining: u64, throughput: f64) -> bool {
    (rtt.as_nanos() as f64) < remaining as f64 / throughput * 1e9
}

#[inline]
fn bit(subflow: SubflowId) -> u32 {
    1u32.checked_shl(u32::from(subflow.0)).unwrap_or(0)
}

impl RttGate {
    fn decide(&mut self, view: &View<'_>, new: &SubflowMetrics) {
        let own = bit(new.id);
        if new.rtt.smoothed == Span::ZERO {
            self.decided &= !own;
            self.admitted |= own;
            return;
        }
        self.decided |= own;
        let others = self.admitted & !own;
        let in_use = view.subflows.iter().filter(|subflow| subflow.usable() && others & bit(subflow.id) != 0);
        let rate: f64 = in_use.map(throughput).sum();
        let busy = rate > 0.0 && (view.unsent > 0 || view.next_offset > view.una);
        if !busy || helps(new.rtt.smoothed, remaining(view, self.declared), rate) {
            self.admitted |= own;
        } else {
            self.admitted &= !own;
        }
    }

    /// Decides on usable subflows that aren't decided yet.
    fn decide_new(&mut self, view: &View<'_>) {
        for subflow in view.subflows {
            if subflow.usable() && self.decided & bit(subflow.id) == 0 {
                self.decide(view, subflow);
            }
        }
    }

    /// Decides on all subflows again, after a write.
    fn decide_all(&mut self, view: &View<'_>) {
        let Some(fastest) = View::fastest(view.usable().filter(|subflow| subflow.rtt.smoothed > Span::ZERO))
        else {
            return;
        };
        self.admitted |= bit(fastest.id);
        for subflow in view.subflows {
            if subflow.usable() && subflow.id != fastest.id {
                self.decide(view, subflow);
            }
        }
    }
}

impl Scheduler for RttGate {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        if !view.sendable() {
            return nothing_to_send(view, rationale);
        }
        let mut admitted = false;
        let mut best: Option<&SubflowMetrics> = None;
        let mut refused: Option<&SubflowMetrics> = None;
        for subflow in view.usable() {
            if self.decided & bit(subflow.id) == 0 {
                self.decide(view, subflow);
            }
            let admit = self.admitted & bit(subflow.id) != 0;
            admitted |= admit;
            let side = if admit { &mut best } else { &mut refused };
            if side.is_none_or(|other| subflow.rtt.smoothed < other.rtt.smoothed) && subflow.available() {
                *side = Some(subflow);
            }
        }
        match (best, refused) {
            (Some(subflow), _) => send_on(subflow, rationale),
            (None, Some(subflow)) if !admitted => send_on(subflow, rationale),
            (None, None) => no_room(view, rationale),
            (None, Some(_)) => {
                rationale.say(|| {
                    let refused = view
                        .subflows
                        .iter()
                        .filter(|subflow| subflow.usable() && self.admitted & bit(subflow.id) == 0);
                    let refused: Vec<_> =
                        refused.map(|subflow| format!("{{subflow {}}}", subflow.id.0)).collect();
                    format!("the admitted subflows are full; not admitted: {}", refused.join(", "))
                });
                Decision::Wait { until: None }
            }
        }
    }

    fn on_event(&mut self, view: &View<'_>, event: Event) {
        match event {
            Event::SubflowAdded(_) => self.decide_new(view),
            Event::SubflowRemoved(subflow) => {
                self.decided &= !bit(subflow);
                self.admitted &= !bit(subflow);
            }
            Event::Written(_) if self.revisit => self.decide_all(view),
            _ => {}
        }
    }

    fn metrics(&self) -> Vec<(&'static str, f64)> {
        vec![("admitted", f64::from(self.admitted.count_ones()))]
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Model, Pipe, Scene, build, run, subflow};
    use super::*;
    use crate::testing::WithoutSender as _;
    use crate::{MILLISECOND, Time};

    #[test]
    fn equation_1_at_hand_computed_points() {
        // 10 MB at 12.5 MB/s take 800 ms.
        assert!(helps(799 * MILLISECOND, 10_000_000, 12.5e6));
        assert!(!helps(800 * MILLISECOND, 10_000_000, 12.5e6));
    }

    /// The initial subflow at 1 MB/s (10 segments in 10 ms), full; a new one of 50 ms; 50 KB take 50 ms.
    fn scene(unsent: u64) -> Scene {
        let mut scene = Scene::new(vec![subflow(0, 10, 10, 10), subflow(1, 50, 10, 0)]);
        scene.unsent = unsent;
        scene.next_offset = 10_000;
        scene
    }

    fn joined(scene: &Scene, text: &str) -> Box<dyn Scheduler> {
        let mut gate = build(text);
        let mut before = Scene::new(vec![scene.subflows[0].clone()]);
        before.next_offset = scene.next_offset;
        gate.on_event(&before.view(), Event::SubflowAdded(SubflowId(0)));
        gate.on_event(&scene.view(), Event::SubflowAdded(SubflowId(1)));
        gate
    }

    #[test]
    fn both_sides_of_it_with_what_is_in_flight() {
        let (enough, short) = (scene(40_001), scene(40_000));
        assert_eq!(enough.chosen(&mut *joined(&enough, "rtt-gate")), Some(1));
        assert_eq!(short.chosen(&mut *joined(&short, "rtt-gate")), None);
    }

    #[test]
    fn the_delivery_rate_once_there_is_a_sample() {
        let mut scene = scene(40_001);
        scene.subflows[0].rate.delivery = 1_000_021;
        assert_eq!(scene.chosen(&mut *joined(&scene, "rtt-gate")), None);
        scene.subflows[0].rate.delivery = 900_000;
        assert_eq!(scene.chosen(&mut *joined(&scene, "rtt-gate")), Some(1));
    }

    #[test]
    fn without_a_sample_it_is_used_and_decided_on_with_the_first() {
        let mut scene = scene(40_000);
        let srtt = std::mem::take(&mut scene.subflows[1].rtt.smoothed);
        let gate = &mut *joined(&scene, "rtt-gate");
        assert_eq!(scene.chosen(gate), Some(1));
        scene.subflows[1].rtt.smoothed = srtt;
        assert_eq!(scene.chosen(gate), None, "50 KB take 50 ms");
        scene.unsent = 1_000_000;
        assert_eq!(scene.chosen(gate), None, "and that stays so");
    }

    #[test]
    fn in_use_without_a_sample_it_counts_for_nothing() {
        let mut scene = scene(1000);
        scene.subflows[0].rtt.smoothed = Span::ZERO;
        assert_eq!(scene.chosen(&mut *joined(&scene, "rtt-gate")), Some(1));
        scene.subflows[0].rate.delivery = 1_000_000;
        assert_eq!(
            scene.chosen(&mut *joined(&scene, "rtt-gate")),
            None,
            "but for its rate, if that is known"
        );
        // Asked again: the fastest of those known is admitted, and the one without a sample.
        let gate = &mut *joined(&scene, "rtt-gate(revisit=true)");
        gate.on_event(&scene.view(), Event::Written(1));
        assert_eq!(scene.chosen(gate), Some(1));
        assert_eq!(gate.metrics(), [("admitted", 2.0)]);
    }

    #[test]
    fn a_declared_size_counts_instead_of_the_backlog() {
        let mut scene = scene(1000);
        scene.una = 5_000;
        scene.declared_size = Some(55_001);
        assert_eq!(scene.chosen(&mut *joined(&scene, "rtt-gate")), Some(1));
        let backlog = &mut *joined(&scene, "rtt-gate(remaining=backlog)");
        assert_eq!(scene.chosen(backlog), None, "6 KB wait or are in flight");
        scene.declared_size = Some(55_000);
        assert_eq!(scene.chosen(&mut *joined(&scene, "rtt-gate")), None);
    }

    #[test]
    fn joining_while_nothing_is_carried_is_always_admitted() {
        let mut idle = scene(0);
        idle.una = idle.next_offset;
        let gate = &mut *joined(&idle, "rtt-gate");
        assert_eq!(scene(1000).chosen(gate), Some(1));
    }

    #[test]
    fn decided_at_join_or_whenever_data_is_written() {
        for (text, then) in [("rtt-gate", None), ("rtt-gate(revisit=true)", Some(1))] {
            let (few, many) = (scene(1000), scene(100_000));
            let gate = &mut *joined(&few, text);
            assert_eq!(few.chosen(gate), None);
            gate.on_event(&many.view(), Event::Written(99_000));
            assert_eq!(many.chosen(gate), then, "{text}");
            gate.on_event(&few.view(), Event::Written(1));
            assert_eq!(few.chosen(gate), None, "{text}: and back");
        }
    }

    #[test]
    fn the_refused_are_used_when_nothing_else_is_left() {
        let mut scene = scene(1000);
        let gate = &mut *joined(&scene, "rtt-gate");
        scene.subflows[0].state = crate::metrics::SubflowStatus::Closed;
        assert_eq!(scene.chosen(gate), Some(1));
        gate.on_event(&scene.view(), Event::SubflowRemoved(SubflowId(0)));
        assert_eq!(scene.chosen(gate), Some(1));
    }

    #[test]
    fn a_slot_used_again_is_decided_on_again() {
        let few = scene(1000);
        let gate = &mut *joined(&few, "rtt-gate");
        gate.on_event(&few.view(), Event::SubflowRemoved(SubflowId(1)));
        assert_eq!(gate.metrics(), [("admitted", 1.0)], "the initial one still is");
        assert_eq!(scene(100_000).chosen(gate), Some(1));
        assert_eq!(gate.metrics(), [("admitted", 2.0)]);
        gate.on_event(&few.view(), Event::SubflowRemoved(SubflowId(1)));
        assert_eq!(gate.metrics(), [("admitted", 1.0)]);
    }

    #[test]
    fn data_counts_whether_unsent_or_in_flight() {
        let mut unsent = scene(49_000);
        unsent.una = unsent.next_offset;
        assert_eq!(unsent.chosen(&mut *joined(&unsent, "rtt-gate")), None, "49 ms");
        let in_flight = scene(0);
        let gate = &mut *joined(&in_flight, "rtt-gate");
        assert_eq!(scene(1000).chosen(gate), None, "10 ms");
    }

    #[test]
    fn the_refused_do_not_count_as_in_use_and_are_not_asked_about_again() {
        // 45 KB at 1 MB/s: too little for 50 ms, enough for 40 ms; at 1.2 MB/s not for that either.
        let mut scene = scene(35_000);
        let gate = &mut *joined(&scene, "rtt-gate");
        scene.subflows.push(subflow(2, 40, 10, 0));
        gate.on_event(&scene.view(), Event::SubflowAdded(SubflowId(2)));
        assert_eq!(scene.chosen(gate), Some(2));
        scene.unsent = 1_000_000;
        scene.subflows.push(subflow(3, 60, 10, 10));
        gate.on_event(&scene.view(), Event::SubflowAdded(SubflowId(3)));
        scene.subflows[2].set_packets_out(10);
        assert_eq!(scene.chosen(gate), None);
    }

    #[test]
    fn among_the_admitted_the_least_srtt() {
        for (second, expected) in [(20, 0), (19, 1), (21, 0)] {
            let scene = Scene::new(vec![subflow(0, 20, 10, 0), subflow(1, second, 10, 0)]);
            assert_eq!(scene.chosen(&mut *build("rtt-gate")), Some(expected), "{second} ms");
        }
    }

    #[test]
    fn asked_again_the_fastest_is_admitted_whatever_is_left() {
        // 20 ms at 0.5 MB/s is in use, 5 ms joins when 1 KB is left: 2 ms.
        let mut scene = Scene::new(vec![subflow(0, 20, 10, 9), subflow(1, 5, 10, 0)]);
        scene.unsent = 1000;
        let gate = &mut *joined(&scene, "rtt-gate(revisit=true)");
        assert_eq!(scene.chosen(gate), Some(0));
        gate.on_event(&scene.view(), Event::Written(1));
        assert_eq!(scene.chosen(gate), Some(1));
        gate.on_event(&scene.view(), Event::Written(1));
        assert_eq!(scene.chosen(gate), Some(1), "and stays");
    }

    #[test]
    fn throughput_is_that_of_all_in_use() {
        // 1 MB/s and 0.2 MB/s: 110 KB take 91 ms.
        let mut scene = scene(100_000);
        let gate = &mut *joined(&scene, "rtt-gate");
        scene.subflows[1].set_packets_out(10);
        scene.subflows.push(subflow(2, 92, 10, 0));
        gate.on_event(&scene.view(), Event::SubflowAdded(SubflowId(2)));
        assert_eq!(scene.chosen(gate), None);
        assert_eq!(gate.metrics(), [("admitted", 2.0)]);
        assert!(scene.reason(gate).ends_with("not admitted: {subflow 2}"), "{}", scene.reason(gate));
    }

    #[test]
    fn unlike_minrtt_a_short_flow_stays_on_its_path() {
        let pipes = [Pipe::new(10, 10), Pipe { joins: Time::ZERO + 15 * MILLISECOND, ..Pipe::new(100, 10) }];
        assert_eq!(run("rtt-gate", &pipes, 80).bytes_on(1), 0);
        assert!(run("minrtt", &pipes, 80).bytes_on(1) > 0);
        let declared = Model::new(&pipes, 80_000).declare(1_000_000).run(&mut *build("rtt-gate"));
        assert!(declared.bytes_on(1) > 0, "it is told that more will come");
    }
}
