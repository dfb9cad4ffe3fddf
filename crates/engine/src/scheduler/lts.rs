//! `lts`: lowest time over space.
//!
//! Source: 5g-2019 III.A, on LTS (its reference 24).
//!
//! Rule: the lowest ratio of smoothed RTT (ns) to window space ws_r = w_r - f_r (segments). When ws is zero
//! or negative: the lowest RTT.
//!
//! Rulings: as for `lws`: where no ws is positive nothing can be sent: wait. What is queued on a subflow
//! counts as in flight. A tie goes to the lower srtt, then the lower id.
//!
//! Parameters: `opportunistic` and `penalise` (default `off`).

use super::mechanisms::{OFF, opportunistic, penalise, with_mechanisms};
use super::text::{Ms, Subflow, no_room, nothing_to_send};
use super::{Decision, Rationale, Scheduler, View};
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Scheduler> = Entry {
    name: "lts",
    summary: "lowest srtt over window space",
    source: "5g-2019 III.A",
    parameters: &[opportunistic(OFF), penalise(OFF)],
    ..Entry::of(|values| with_mechanisms(values, LowestTimeSpace))
};

#[derive(Debug)]
struct LowestTimeSpace;

impl Scheduler for LowestTimeSpace {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        if !view.sendable() {
            return nothing_to_send(view, rationale);
        }
        let best = view.best_available(|subflow| {
            -(subflow.rtt.smoothed.as_nanos() as f64 / f64::from(subflow.window_space()))
        });
        let Some((subflow, _)) = best else {
            return no_room(view, rationale);
        };
        rationale.say(|| {
            let (id, space) = (Subflow(subflow.id), subflow.window_space());
            format!("{id} has the least time over space, {} for {space} segments", Ms(subflow.rtt.smoothed))
        });
        Decision::Send { subflow: subflow.id, bytes: subflow.mss }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Pipe, Scene, build, run, subflow};

    #[test]
    fn srtt_over_space_and_ties_by_rtt() {
        let lts = &mut *build("lts");
        // 20/5 = 4 against 50/13 = 3.8 and 50/12 = 4.2.
        assert_eq!(Scene::new(vec![subflow(0, 20, 10, 5), subflow(1, 50, 20, 7)]).chosen(lts), Some(1));
        assert_eq!(Scene::new(vec![subflow(0, 20, 10, 5), subflow(1, 50, 20, 8)]).chosen(lts), Some(0));
        assert_eq!(
            Scene::new(vec![subflow(0, 40, 20, 10), subflow(1, 20, 10, 5)]).chosen(lts),
            Some(1),
            "4 each"
        );
        assert_eq!(
            Scene::new(vec![subflow(0, 20, 10, 5), subflow(1, 40, 20, 10)]).chosen(lts),
            Some(0),
            "4 each"
        );
        assert_eq!(Scene::new(vec![subflow(0, 20, 10, 10), subflow(1, 40, 20, 21)]).chosen(lts), None);
    }

    #[test]
    fn all_alike_the_lower_id() {
        assert_eq!(
            Scene::new(vec![subflow(0, 20, 10, 5), subflow(1, 20, 10, 5)]).chosen(&mut *build("lts")),
            Some(0)
        );
    }

    #[test]
    fn unlike_lws_the_short_path_weighs_more_and_unlike_minrtt_not_always() {
        let pipes = [Pipe::new(30, 12), Pipe::new(10, 6)];
        // 30/12 against 10/6, 10/5, 10/4 (a tie, to the lower srtt), 10/3: then the first.
        assert_eq!(run("lts", &pipes, 4).segments_on(1, 1), [1, 2, 3]);
        assert!(run("lws", &pipes, 4).segments_on(1, 1).is_empty());
        assert_eq!(run("minrtt", &pipes, 4).segments_on(1, 1), [1, 2, 3, 4]);
    }
}
