//! `lws`: largest window space.
//!
//! Source: 5g-2019 III.A, on LWS (its reference 24).
//!
//! Rule: ws_r = w_r - f_r, congestion window less packets in flight (segments); the path with the largest
//! ws transmits. In loss recovery ws may be zero or negative: then the lowest RTT.
//!
//! Rulings: a segment needs room in the window in any case, so where no ws is positive, the lowest RTT may be
//! named but nothing sent: wait. What is queued on a subflow counts as in flight. A tie goes to the lower
//! srtt, then the lower id.
//!
//! Parameters: `opportunistic` and `penalise` (default `off`).

use super::mechanisms::{OFF, opportunistic, penalise, with_mechanisms};
use super::text::{Subflow, no_room, nothing_to_send};
use super::{Decision, Rationale, Scheduler, View};
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Scheduler> = Entry {
    name: "lws",
    summary: "largest window space, cwnd less in flight",
    source: "5g-2019 III.A",
    parameters: &[opportunistic(OFF), penalise(OFF)],
    ..Entry::of(|values| with_mechanisms(values, LargestWindowSpace))
};

#[derive(Debug)]
struct LargestWindowSpace;

impl Scheduler for LargestWindowSpace {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        if !view.sendable() {
            return nothing_to_send(view, rationale);
        }
        let best = view.best_available(|subflow| f64::from(subflow.window_space()));
        let Some((subflow, space)) = best else {
            return no_room(view, rationale);
        };
        rationale.say(|| {
            format!("{} has the largest window space, {space} of {}", Subflow(subflow.id), subflow.cwnd())
        });
        Decision::Send { subflow: subflow.id, bytes: subflow.mss }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Pipe, Scene, build, run, subflow};
    use crate::MILLISECOND;
    use crate::testing::WithoutSender as _;

    #[test]
    fn the_largest_space_and_ties_by_rtt() {
        let lws = &mut *build("lws");
        let mut scene = Scene::new(vec![subflow(0, 10, 10, 5), subflow(1, 100, 20, 14)]);
        assert_eq!(scene.chosen(lws), Some(1));
        scene.subflows[1].set_packets_out(15);
        assert_eq!(scene.chosen(lws), Some(0), "5 each: the lower RTT");
        scene.subflows[1].rtt.smoothed = 9 * MILLISECOND;
        assert_eq!(scene.chosen(lws), Some(1));
        scene.subflows[0].set_packets_out(12);
        scene.subflows[1].set_packets_out(20);
        assert_eq!(scene.chosen(lws), None, "less than nothing is no room");
    }

    #[test]
    fn all_alike_the_lower_id() {
        assert_eq!(
            Scene::new(vec![subflow(0, 20, 10, 5), subflow(1, 20, 10, 5)]).chosen(&mut *build("lws")),
            Some(0)
        );
    }

    #[test]
    fn unlike_minrtt_it_levels_the_free_space() {
        // 10 and 6 free: four segments to the first, then in turn, the tie to the lower srtt.
        let pipes = [Pipe::new(100, 10), Pipe::new(10, 6)];
        assert_eq!(run("lws", &pipes, 8).segments_on(1, 1), [5, 7]);
        assert_eq!(run("minrtt", &pipes, 8).segments_on(1, 1), [1, 2, 3, 4, 5, 6]);
    }
}
