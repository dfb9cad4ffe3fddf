//! `cp`: constraint-based proactive scheduling, from a summary.
//!
//! Source: 5g-2019 III.A, two sentences on CP (its reference 23): it estimates the out-of-order packets from
//! the performance difference between the subflows, and compares them with the buffer size to assign packets
//! to subflows; network delay constraints adjust the trade-off between throughput and delay. The original
//! was not available: the rules below are rulings on that summary.
//!
//! Rule: while a packet travels on s, each faster subflow j delivers cwnd_j RTT_s / RTT_j packets, all of
//! them out of order. s may be used only if the sum over all faster j, times the MSS, fits the free receive
//! buffer (what is left of the connection-level window), and RTT_s / 2 is within the delay constraint. Among
//! the allowed with room, the lowest srtt. Of a subflow without a round-trip sample nothing is expected.
//!
//! Rulings: the fastest subflow is always allowed, or a tight constraint would stall the connection. Both
//! conditions grow with srtt, so that where the fastest subflow with room isn't allowed, none is: one pass.
//!
//! Parameters: `delay` (the constraint on the one-way delay, ms; default inf, which is none; 0 to inf).
//! `opportunistic` and `penalise` (default `off`).

use super::mechanisms::{OFF, opportunistic, penalise, with_mechanisms};
use super::minrtt::{minrtt_or_wait, send_on};
use super::text::{Kib, Ms, Subflow};
use super::{Decision, Rationale, Scheduler, View};
use crate::metrics::SubflowMetrics;
use crate::registry::{Entry, Parameter};
use crate::{MILLISECOND, Span};

pub(super) const ENTRY: Entry<dyn Scheduler> = Entry {
    name: "cp",
    summary: "subflows whose expected out-of-order packets fit the buffer (from a summary)",
    source: "5g-2019 III.A (two sentences)",
    parameters: &[
        Parameter::number("delay", f64::INFINITY, (0.0, f64::INFINITY), "greatest one-way delay, ms"),
        opportunistic(OFF),
        penalise(OFF),
    ],
    ..Entry::of(|values| {
        with_mechanisms(
            values,
            ConstraintProactive { delay: values.number("delay") * MILLISECOND.as_nanos() as f64 },
        )
    })
};

#[derive(Debug)]
struct ConstraintProactive {
    /// ns.
    delay: f64,
}

/// Bytes that arrive out of order while a packet travels on `slow`.
#[inline]
fn out_of_order(view: &View<'_>, slow: &SubflowMetrics) -> f64 {
    let packets = view.faster_than(slow).map(|subflow| {
        let rounds = slow.rtt.smoothed.as_nanos() as f64 / subflow.rtt.smoothed.as_nanos() as f64;
        f64::from(subflow.cwnd()) * rounds * f64::from(subflow.mss)
    });
    packets.sum()
}

impl Scheduler for ConstraintProactive {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        minrtt_or_wait(view, rationale, |fastest, subflow, rationale| {
            if subflow.rtt.smoothed == fastest.rtt.smoothed {
                return send_on(subflow, rationale);
            }
            let disorder = out_of_order(view, subflow);
            let (id, fast) = (Subflow(subflow.id), Subflow(fastest.id));
            let until = Some(view.now.saturating_add(fastest.rtt.smoothed.max(Span::from_nanos(1))));
            if subflow.rtt.smoothed.as_nanos() as f64 / 2.0 > self.delay {
                rationale.say(|| {
                    let limit = Ms(Span::from_nanos(self.delay as u64));
                    format!(
                        "wait for {fast}: {id} takes {} one way, more than {limit}",
                        Ms(subflow.rtt.smoothed / 2)
                    )
                });
                return Decision::Wait { until };
            }
            let free = view.window_left;
            let disorder_kb = Kib(disorder as u64);
            if disorder > free as f64 {
                rationale.say(|| {
                    format!(
                        "wait for {fast}: {disorder_kb} would arrive before a packet on {id}, {} are free",
                        Kib(free)
                    )
                });
                return Decision::Wait { until };
            }
            rationale.say(|| {
                format!("{id}: the {disorder_kb} that arrive before it fit the {} that are free", Kib(free))
            });
            Decision::Send { subflow: subflow.id, bytes: subflow.mss }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Model, Pipe, Scene, build, subflow, unmeasured};
    use super::*;
    use crate::Time;
    use crate::testing::WithoutSender as _;

    /// 10 ms with cwnd 10 and 20 ms with cwnd 5, both full; 40 ms free. Sent meanwhile: 10 4 + 5 2 = 50
    /// packets.
    fn scene(window: u64) -> Scene {
        let mut scene = Scene::new(vec![subflow(0, 10, 10, 10), subflow(1, 20, 5, 5), subflow(2, 40, 10, 0)]);
        scene.send_window = window;
        scene
    }

    #[test]
    fn both_sides_of_the_buffer() {
        assert_eq!(scene(50_000).chosen(&mut *build("cp")), Some(2));
        assert_eq!(
            scene(49_999).ask(&mut *build("cp")),
            Decision::Wait { until: Some(Time::ZERO + 10 * MILLISECOND) }
        );
        let mut later = scene(60_000);
        later.next_offset = 10_000;
        assert_eq!(later.chosen(&mut *build("cp")), Some(2), "what is free counts");
        later.next_offset = 10_001;
        assert_eq!(later.chosen(&mut *build("cp")), None);
    }

    #[test]
    fn both_sides_of_the_delay_and_the_fastest_always() {
        assert_eq!(scene(1 << 30).chosen(&mut *build("cp(delay=20)")), Some(2));
        assert_eq!(scene(1 << 30).chosen(&mut *build("cp(delay=19.9)")), None);
        let mut scene = scene(1 << 30);
        scene.subflows[0].set_packets_out(9);
        assert_eq!(scene.chosen(&mut *build("cp(delay=0)")), Some(0));
    }

    #[test]
    fn a_backup_does_not_count() {
        let mut scene = scene(40_000);
        scene.subflows[1].backup = true;
        assert_eq!(scene.chosen(&mut *build("cp")), Some(2), "10 4 packets");
    }

    #[test]
    fn a_subflow_without_a_sample_does_not_count() {
        let mut scene = scene(50_000);
        scene.subflows.push(unmeasured(3, 10, 10));
        assert_eq!(scene.chosen(&mut *build("cp")), Some(2));
    }

    #[test]
    fn unlike_minrtt_and_blest_it_looks_at_what_is_free_of_the_buffer() {
        // 10 x 4 packets arrive before it; of 60 KB, 50 are free when the fast window is full: S gets ten and
        // leaves 40.
        let pipes = [Pipe::new(10, 10), Pipe::new(40, 40)];
        let first = |text| {
            let done = Model::new(&pipes, 100_000).window(60_000).run(&mut *build(text));
            done.placements
                .iter()
                .filter(|placement| placement.at == Time::ZERO && placement.subflow == 1)
                .count()
        };
        assert_eq!(first("cp"), 11, "the eleventh still sees 40 KB free");
        // |M| - (inflight + 1) >= 46 segments up to inflight 13.
        assert_eq!(first("blest"), 14);
        assert_eq!(first("minrtt"), 40);
    }
}
