//! `freeze`: freezes a subflow whose RTT exceeds the fastest's by a threshold.
//!
//! Source: cfs-2019 3, on Freeze MPTCP (its reference 14): the scheduler freezes the slow path if the RTT
//! difference is above a certain threshold, e.g. 100 ms.
//!
//! Rule: `minrtt` among the usable subflows with srtt - srtt_fastest <= threshold.
//!
//! Rulings: the fastest is of all usable subflows, room or not; a frozen subflow thaws when its srtt, or the
//! fastest's, says so, and nothing is sent just to find out.
//!
//! Parameters: `threshold` (100 ms; 0 to 60000). `opportunistic` and `penalise` (default `off`).

use super::mechanisms::{OFF, opportunistic, penalise, with_mechanisms};
use super::minrtt::{minrtt_or_wait, send_on};
use super::text::{Ms, Subflow};
use super::{Decision, Rationale, Scheduler, View};
use crate::Span;
use crate::registry::{Entry, Parameter};

pub(super) const ENTRY: Entry<dyn Scheduler> = Entry {
    name: "freeze",
    summary: "minrtt, but a subflow slower than the fastest by a threshold is frozen",
    source: "cfs-2019 3",
    parameters: &[
        Parameter::number("threshold", 100.0, (0.0, 60_000.0), "greatest difference of RTTs, ms"),
        opportunistic(OFF),
        penalise(OFF),
    ],
    ..Entry::of(|values| {
        let threshold = Span::from_nanos((values.number("threshold") * 1e6) as u64);
        with_mechanisms(values, Freeze { threshold })
    })
};

#[derive(Debug)]
struct Freeze {
    threshold: Span,
}

impl Scheduler for Freeze {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        minrtt_or_wait(view, rationale, |fastest, subflow, rationale| {
            let excess = subflow.rtt.smoothed - fastest.rtt.smoothed;
            if excess <= self.threshold {
                return send_on(subflow, rationale);
            }
            // The others with room are slower still.
            rationale.say(|| {
                let (fastest, subflow) = (Subflow(fastest.id), Subflow(subflow.id));
                format!(
                    "wait for {fastest}: {subflow} is {} slower and frozen above {}",
                    Ms(excess),
                    Ms(self.threshold)
                )
            });
            Decision::Wait { until: None }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Pipe, Scene, build, run, subflow};

    #[test]
    fn both_sides_of_the_threshold() {
        let freeze = &mut *build("freeze");
        assert_eq!(Scene::new(vec![subflow(0, 10, 10, 10), subflow(1, 110, 10, 0)]).chosen(freeze), Some(1));
        assert_eq!(Scene::new(vec![subflow(0, 10, 10, 10), subflow(1, 111, 10, 0)]).chosen(freeze), None);
        let freeze = &mut *build("freeze(threshold=0)");
        assert_eq!(Scene::new(vec![subflow(0, 10, 10, 10), subflow(1, 10, 10, 0)]).chosen(freeze), Some(1));
        assert_eq!(Scene::new(vec![subflow(0, 10, 10, 10), subflow(1, 11, 10, 0)]).chosen(freeze), None);
    }

    #[test]
    fn unlike_minrtt_it_leaves_the_frozen_alone() {
        let pipes = [Pipe::new(10, 10), Pipe::new(200, 10)];
        assert_eq!(run("freeze", &pipes, 100).bytes_on(1), 0);
        assert_eq!(run("minrtt", &pipes, 100).bytes_on(1), 10_000);
        let near = [Pipe::new(10, 10), Pipe::new(100, 10)];
        assert_eq!(run("freeze", &near, 100).placements, run("minrtt", &near, 100).placements);
    }
}
