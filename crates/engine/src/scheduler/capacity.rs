//! `capacity`: send where the estimated path capacity has room.
//!
//! Source: yang-2013 (Yang, Amer, Ekiz, A Scheduler for Multipath TCP, 2013) Fig. 2 and 3.
//!
//! Rule. Estimate (Fig. 2), per subflow and each time the scheduler runs, in segments: at first very large;
//! then
//!
//! ```text
//! a loss since the last run:          Max = 2 ssthresh, Min = ssthresh
//! else estimate <= outstanding < Max: Min = outstanding
//! else outstanding >= Max:            Max = cwnd, Min = outstanding
//! in each case:                       estimate = (Max + Min) / 2
//! ```
//!
//! Choice (Fig. 3): Occupied = (outstanding + 1) / estimate. A subflow may be used if outstanding < cwnd and
//! Occupied <= delta. If any of these has Occupied <= gamma: the lowest srtt among those; else the lowest
//! Occupied.
//!
//! Rulings: the mean is an integer, cut off. With delta = 1.0, and real or cut-off means alike, outstanding
//! never reaches Max, so that the third case doesn't arise until another loss: the estimate is a ceiling of
//! Max - 1 for good. That is what the figures say, and what the few retransmissions in Table I suggest;
//! `round-up` makes the third case reachable, as the prose describes it. The prose also says Max = cwnd
//! before the loss, where Fig. 2 says 2 ssthresh: `max`. "A large constant" is larger than any window;
//! `initial` is another. The estimate runs before the choice. A tie goes to the lower id. "A retransmission
//! never goes where the original went" is the connection's own rule.
//!
//! Parameters: `gamma` (0.5; 0 to 4), `delta` (1; 0.1 to 4), `round-up` (false), `max` (`figure`; `prose`),
//! `initial` (4294967295; 2 to 4294967295). `opportunistic` and `penalise` (default `off`).

use super::mechanisms::{OFF, opportunistic, penalise, with_mechanisms};
use super::text::{Ms, Subflow, no_room, nothing_to_send};
use super::{Decision, Event, Rationale, Scheduler, View};
use crate::metrics::SubflowMetrics;
use crate::registry::{Entry, Exception, Parameter};
use crate::{MAX_SUBFLOWS, SubflowId};

pub(super) const ENTRY: Entry<dyn Scheduler> = Entry {
    name: "capacity",
    summary: "the fastest subflow below its estimated path capacity, or the least occupied",
    source: "yang-2013 Fig. 2 and 3",
    parameters: &[
        Parameter::number("gamma", 0.5, (0.0, 4.0), "occupied up to this: not congested, a share"),
        Parameter::number("delta", 1.0, (0.1, 4.0), "occupied beyond this: not used, a share"),
        Parameter::switch("round-up", false, "round the mean up instead of off"),
        Parameter::choice("max", 0, &["figure", "prose"], "Max after a loss: 2 ssthresh, or cwnd before it"),
        Parameter::whole(
            "initial",
            4_294_967_295.0,
            (2.0, 4_294_967_295.0),
            "the estimate before any loss, segments",
        ),
        opportunistic(OFF),
        penalise(OFF),
    ],
    exceptions: &[Exception {
        rule: "single-path",
        reason: "after a loss it sends less than cwnd admits, on a lone path too (yang-2013 II-B)",
    }],
    ..Entry::of(|values| {
        let rules =
            Rules { round_up: u64::from(values.switch("round-up")), prose: values.number("max") == 1.0 };
        let (gamma, delta) = (values.number("gamma"), values.number("delta"));
        let unknown = Path::unknown(values.number("initial") as u32);
        with_mechanisms(values, Capacity { gamma, delta, rules, unknown, paths: [unknown; MAX_SUBFLOWS] })
    })
};

/// How the estimate is computed.
#[derive(Clone, Copy, Debug)]
struct Rules {
    round_up: u64,
    prose: bool,
}

/// The estimate of a path, in segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Path {
    max: u32,
    min: u32,
    estimate: u32,
    /// Loss events accounted for.
    losses: u32,
    /// cwnd when the scheduler last ran.
    cwnd: u32,
}

impl Path {
    /// Before any loss.
    fn unknown(initial: u32) -> Path {
        Path { max: initial, min: 0, estimate: initial, losses: 0, cwnd: 0 }
    }

    /// Fig. 2.
    #[inline]
    fn update(&mut self, subflow: &SubflowMetrics, rules: Rules) {
        let outstanding = subflow.in_flight();
        let before = std::mem::replace(&mut self.cwnd, subflow.cwnd());
        if subflow.totals.loss_events != self.losses {
            self.losses = subflow.totals.loss_events;
            self.max = if rules.prose {
                before.max(subflow.ssthresh())
            } else {
                subflow.ssthresh().saturating_mul(2)
            };
            self.min = subflow.ssthresh();
        } else if outstanding >= self.max {
            self.max = subflow.cwnd();
            self.min = outstanding;
        } else if outstanding >= self.estimate {
            self.min = outstanding;
        } else {
            return;
        }
        self.estimate = ((u64::from(self.max) + u64::from(self.min) + rules.round_up) / 2) as u32;
    }

    #[inline]
    fn occupied(&self, subflow: &SubflowMetrics) -> f64 {
        (f64::from(subflow.in_flight()) + 1.0) / f64::from(self.estimate.max(1))
    }
}

#[derive(Debug)]
struct Capacity {
    gamma: f64,
    delta: f64,
    rules: Rules,
    /// A path without a loss.
    unknown: Path,
    paths: [Path; MAX_SUBFLOWS],
}

impl Scheduler for Capacity {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        let sendable = view.sendable();
        let backups = view.backups_count();
        let mut uncongested: Option<(&SubflowMetrics, f64)> = None;
        let mut available: Option<(&SubflowMetrics, f64)> = None;
        let mut skipped: Option<(&SubflowMetrics, f64)> = None;
        for (subflow, path) in view.subflows.iter().zip(&mut self.paths) {
            if !subflow.usable() {
                continue;
            }
            path.update(subflow, self.rules);
            if (subflow.backup && !backups) || !subflow.available() {
                continue;
            }
            let occupied = path.occupied(subflow);
            if occupied > self.delta {
                skipped = Some((subflow, occupied));
            } else if occupied <= self.gamma {
                if uncongested.is_none_or(|(best, _)| subflow.rtt.smoothed < best.rtt.smoothed) {
                    uncongested = Some((subflow, occupied));
                }
            } else if available.is_none_or(|(_, least)| occupied < least) {
                available = Some((subflow, occupied));
            }
        }
        if !sendable {
            return nothing_to_send(view, rationale);
        }
        if let Some((subflow, occupied)) = uncongested {
            rationale.say(|| {
                let (id, gamma) = (Subflow(subflow.id), self.gamma);
                format!(
                    "{id}: least srtt, {}, of those occupied to {gamma} at most ({occupied:.2})",
                    Ms(subflow.rtt.smoothed)
                )
            });
            return Decision::Send { subflow: subflow.id, bytes: subflow.mss };
        }
        if let Some((subflow, occupied)) = available {
            rationale.say(|| {
                let capacity = self.paths[subflow.id.index()].estimate;
                format!("{} is the least occupied, {occupied:.2} of {capacity} segments", Subflow(subflow.id))
            });
            return Decision::Send { subflow: subflow.id, bytes: subflow.mss };
        }
        let Some((subflow, occupied)) = skipped else {
            return no_room(view, rationale);
        };
        rationale.say(|| {
            let capacity = self.paths[subflow.id.index()].estimate;
            format!(
                "wait: one more would occupy {} to {occupied:.2} of {capacity} segments",
                Subflow(subflow.id)
            )
        });
        Decision::Wait { until: None }
    }

    fn on_event(&mut self, view: &View<'_>, event: Event) {
        if let Event::SubflowAdded(SubflowId(index)) = event
            && let Some(path) = self.paths.get_mut(usize::from(index))
        {
            let losses =
                view.subflows.get(usize::from(index)).map_or(0, |subflow| subflow.totals.loss_events);
            *path = Path { losses, ..self.unknown };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Pipe, Scene, build, run, subflow};
    use super::*;
    use crate::testing::WithoutSender as _;

    /// Larger than any window.
    const VERY_LARGE: u32 = u32::MAX;
    const FIGURE: Rules = Rules { round_up: 0, prose: false };

    #[test]
    fn figure_2_step_by_step() {
        let mut path = Path::unknown(VERY_LARGE);
        let mut subflow = subflow(0, 10, 40, 39);
        let mut step = |in_flight: u32, subflow: &mut SubflowMetrics| {
            subflow.set_packets_out(in_flight);
            path.update(subflow, FIGURE);
            (path.max, path.min, path.estimate)
        };
        assert_eq!(step(39, &mut subflow), (VERY_LARGE, 0, VERY_LARGE));
        // A loss at cwnd 40: ssthresh and cwnd 20.
        subflow.totals.loss_events = 1;
        subflow.set_ssthresh(20);
        subflow.set_cwnd(20);
        assert_eq!(step(39, &mut subflow), (40, 20, 30));
        subflow.set_cwnd(100);
        assert_eq!(step(29, &mut subflow), (40, 20, 30), "below the estimate nothing changes");
        assert_eq!(step(30, &mut subflow), (40, 30, 35));
        assert_eq!(step(36, &mut subflow), (40, 36, 38));
        assert_eq!(step(38, &mut subflow), (40, 38, 39));
        assert_eq!(step(39, &mut subflow), (40, 39, 39), "79 / 2");
        assert_eq!(step(40, &mut subflow), (100, 40, 70), "at Max: cwnd is the new Max");
        assert_eq!(step(69, &mut subflow), (100, 40, 70));
        subflow.totals.loss_events = 2;
        subflow.set_ssthresh(8);
        assert_eq!(step(69, &mut subflow), (16, 8, 12));
    }

    #[test]
    fn the_other_readings() {
        let mut path = Path { max: 40, min: 39, estimate: 39, losses: 0, cwnd: 50 };
        path.update(&subflow(0, 10, 50, 39), Rules { round_up: 1, prose: false });
        assert_eq!(path.estimate, 40, "so that Max can be reached");
        let mut after = subflow(0, 10, 25, 39);
        after.totals.loss_events = 1;
        after.set_ssthresh(25);
        path.update(&after, Rules { round_up: 0, prose: true });
        assert_eq!((path.max, path.min, path.estimate), (50, 25, 37));
        assert_eq!(path.cwnd, 25);
    }

    /// Subflows whose estimates are 15 (ssthresh 10 after a loss).
    fn scene(in_flight: [u32; 2]) -> (Scene, Box<dyn Scheduler>) {
        let mut scene = Scene::new(vec![subflow(0, 10, 30, 0), subflow(1, 50, 30, 0)]);
        for subflow in &mut scene.subflows {
            subflow.set_ssthresh(10);
            subflow.totals.loss_events = 1;
        }
        let mut capacity = build("capacity");
        scene.ask(&mut *capacity);
        scene.subflows[0].set_packets_out(in_flight[0]);
        scene.subflows[1].set_packets_out(in_flight[1]);
        (scene, capacity)
    }

    fn choice(in_flight: [u32; 2]) -> Option<u8> {
        let (scene, mut capacity) = scene(in_flight);
        scene.chosen(&mut *capacity)
    }

    #[test]
    fn figure_3_both_sides_of_gamma_and_delta() {
        assert_eq!(choice([6, 0]), Some(0), "7/15 <= 0.5: the lowest srtt");
        for (srtt_ms, expected) in [(5, 1), (10, 0)] {
            let mut scene = Scene::new(vec![subflow(0, 10, 10, 3), subflow(1, 50, 10, 0)]);
            scene.subflows[1].rtt.smoothed = srtt_ms * crate::MILLISECOND;
            assert_eq!(scene.chosen(&mut *build("capacity")), Some(expected), "{srtt_ms} ms");
        }
        assert_eq!(choice([7, 0]), Some(1), "8/15: congested, the other isn't");
        assert_eq!(choice([7, 6]), Some(1));
        assert_eq!(choice([8, 7]), Some(1), "both are: the least occupied");
        assert_eq!(choice([7, 8]), Some(0));
        assert_eq!(choice([7, 7]), Some(0), "a tie");
        assert_eq!(choice([14, 30]), Some(0), "15/15 <= 1");
        // At 15 the estimate moves on to 17, 18 and 19 of Max 20; at 19 it is at its end.
        assert_eq!(choice([15, 30]), Some(0));
        assert_eq!(choice([19, 30]), None);
    }

    #[test]
    fn delta_above_one_admits_more_and_gamma_moves_the_line() {
        for (text, expected) in [("capacity", None), ("capacity(delta=1.1)", Some(0))] {
            let (scene, _) = scene([19, 30]);
            let mut capacity = build(text);
            assert_eq!(scene.chosen(&mut *capacity), None, "{text}: 20/15 after the loss");
            assert_eq!(scene.chosen(&mut *capacity), expected, "{text}: 20/19 in the next run");
        }
        let (scene, _) = scene([7, 0]);
        assert_eq!(scene.chosen(&mut *build("capacity(gamma=0.6)")), Some(0));
    }

    #[test]
    fn a_smaller_first_estimate_counts_before_any_loss() {
        let scene = Scene::new(vec![subflow(0, 10, 30, 10), subflow(1, 50, 30, 0)]);
        assert_eq!(scene.chosen(&mut *build("capacity")), Some(0));
        assert_eq!(scene.chosen(&mut *build("capacity(initial=20)")), Some(1), "11/20 > 0.5");
        let mut path = Path::unknown(20);
        path.update(&subflow(0, 10, 30, 20), FIGURE);
        assert_eq!((path.max, path.min, path.estimate), (30, 20, 25), "at Max: cwnd is the new Max");
    }

    #[test]
    fn losses_before_a_slot_was_taken_do_not_count() {
        let (scene, _) = scene([29, 29]);
        let mut capacity = build("capacity");
        capacity.on_event(&scene.view(), Event::SubflowAdded(SubflowId(0)));
        assert_eq!(scene.chosen(&mut *capacity), Some(0), "the estimate is very large");
    }

    #[test]
    fn unlike_minrtt_it_stops_short_of_the_window_that_lost() {
        let pipe = Pipe { grows: true, loss: 10, ..Pipe::new(20, 10) };
        let (own, minrtt) = (run("capacity", &[pipe], 2000), run("minrtt", &[pipe], 2000));
        assert_ne!(own.placements, minrtt.placements);
        // On two paths without loss it is minrtt.
        let clean = [Pipe::new(10, 10), Pipe::new(100, 10)];
        assert_eq!(run("capacity", &clean, 100).placements, run("minrtt", &clean, 100).placements);
    }
}
