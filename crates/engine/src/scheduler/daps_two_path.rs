//! `daps-two-path`: the delay-aware packet scheduler, simplified for two paths.
//!
//! Source: 5g-2019 III.C, Algorithm 1, after Sarwar et al., WAINA 2013.
//!
//! Rule: f and s are the faster and the slower subflow, r their smoothed RTTs, windows in segments. With more
//! packets to send than cwnd_f - unacked_f, and eta = floor(r_s / r_f), a schedule is made:
//!
//! ```text
//! max_f = min(eta, cwnd_f - unacked_f) segments on f, then cwnd_s - unacked_s segments on s
//! ```
//!
//! and followed to its end; then the next is made. With no more packets than that, f takes all.
//!
//! Rulings: with more than two usable subflows, the two of least srtt. The remainders count at the time of
//! planning; in RTO recovery there is none. Without a round-trip sample r counts as 1 ns. A schedule that
//! can't go on (a subflow gone, a window that shrank) is made anew. A schedule without a segment waits. As
//! printed: with f's window full and s's open, s takes its whole window, however slow it is.
//!
//! Parameters: `opportunistic` and `penalise` (default `off`).

use super::mechanisms::{OFF, opportunistic, penalise, with_mechanisms};
use super::text::{Subflow, no_room, nothing_to_send};
use super::{Decision, Rationale, Scheduler, View};
use crate::metrics::SubflowMetrics;
use crate::registry::Entry;
use crate::{Span, SubflowId};

pub(super) const ENTRY: Entry<dyn Scheduler> = Entry {
    name: "daps-two-path",
    summary: "floor(rtt_s / rtt_f) segments on the fast path, then a window on the slow one",
    source: "5g-2019 III.C, Algorithm 1",
    parameters: &[opportunistic(OFF), penalise(OFF)],
    ..Entry::of(|values| with_mechanisms(values, DapsTwoPath { plan: Plan::default() }))
};

/// The rest of the schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Plan {
    fast: SubflowId,
    on_fast: u32,
    slow: SubflowId,
    on_slow: u32,
    eta: u64,
}

#[derive(Debug)]
struct DapsTwoPath {
    plan: Plan,
}

/// Algorithm 1.
fn generate_schedule(view: &View<'_>) -> Option<Plan> {
    let (mut fast, mut slow): (Option<&SubflowMetrics>, Option<&SubflowMetrics>) = (None, None);
    for subflow in view.usable() {
        if fast.is_none_or(|fast| subflow.rtt.smoothed < fast.rtt.smoothed) {
            slow = fast;
            fast = Some(subflow);
        } else if slow.is_none_or(|slow| subflow.rtt.smoothed < slow.rtt.smoothed) {
            slow = Some(subflow);
        }
    }
    let fast = fast?;
    let space = |subflow: &SubflowMetrics| if subflow.available() { subflow.window_space() } else { 0 };
    let packets = view.unsent.min(view.room()).div_ceil(u64::from(fast.mss.max(1)));
    let on_fast = space(fast);
    let Some(slow) = slow.filter(|_| packets > u64::from(on_fast)) else {
        let on_fast = packets.min(u64::from(on_fast)) as u32;
        return Some(Plan { fast: fast.id, on_fast, slow: fast.id, on_slow: 0, eta: 0 });
    };
    let eta = slow.rtt.smoothed.max(Span::from_nanos(1)) / fast.rtt.smoothed.max(Span::from_nanos(1));
    let on_fast = eta.min(u64::from(on_fast)) as u32;
    Some(Plan { fast: fast.id, on_fast, slow: slow.id, on_slow: space(slow), eta })
}

impl DapsTwoPath {
    /// The subflow whose turn it is, if the schedule can go on.
    fn next<'a>(&mut self, view: &View<'a>) -> Option<&'a SubflowMetrics> {
        let plan = &mut self.plan;
        let (subflow, left) = match (plan.on_fast, plan.on_slow) {
            (0, 0) => return None,
            (0, _) => (plan.slow, &mut plan.on_slow),
            _ => (plan.fast, &mut plan.on_fast),
        };
        let subflow = view.subflows.get(subflow.index())?;
        if !view.eligible(subflow) || !subflow.available() {
            return None;
        }
        *left -= 1;
        Some(subflow)
    }
}

impl Scheduler for DapsTwoPath {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        if !view.sendable() {
            return nothing_to_send(view, rationale);
        }
        let next = match self.next(view) {
            Some(subflow) => Some(subflow),
            None => {
                self.plan = generate_schedule(view).unwrap_or_default();
                self.next(view)
            }
        };
        let Some(subflow) = next else {
            return no_room(view, rationale);
        };
        rationale.say(|| {
            let Plan { fast, on_fast, slow, on_slow, eta } = self.plan;
            let (id, fast, slow) = (Subflow(subflow.id), Subflow(fast), Subflow(slow));
            format!("{id} by schedule: {on_fast} more on {fast}, {on_slow} more on {slow}, eta={eta}")
        });
        Decision::Send { subflow: subflow.id, bytes: subflow.mss }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{MSS, Pipe, Scene, build, run, subflow, unmeasured};
    use super::*;
    use crate::testing::WithoutSender as _;

    fn plan(subflows: Vec<SubflowMetrics>, packets: u32) -> (u32, u32) {
        let mut scene = Scene::new(subflows);
        scene.unsent = u64::from(packets * MSS);
        let plan = generate_schedule(&scene.view()).unwrap();
        assert_eq!(plan.fast, SubflowId(0));
        (plan.on_fast, plan.on_slow)
    }

    #[test]
    fn algorithm_1_at_hand_computed_points() {
        let fast = |in_flight| subflow(0, 10, 10, in_flight);
        // eta = floor(35/10) = 3; the slow window has 8 - 2 left.
        assert_eq!(plan(vec![fast(0), subflow(1, 35, 8, 2)], 100), (3, 6));
        assert_eq!(plan(vec![fast(8), subflow(1, 35, 8, 2)], 100), (2, 6), "min(eta, cwnd_f - unacked_f)");
        assert_eq!(plan(vec![fast(0), subflow(1, 350, 8, 2)], 100), (10, 6));
        assert_eq!(plan(vec![fast(0), subflow(1, 35, 8, 2)], 11), (3, 6), "the precondition holds");
        assert_eq!(plan(vec![fast(0), subflow(1, 35, 8, 2)], 10), (10, 0), "and here it doesn't");
        assert_eq!(plan(vec![fast(10), subflow(1, 35, 8, 8)], 10), (0, 0));
        assert_eq!(plan(vec![fast(0)], 100), (10, 0), "alone");
        assert_eq!(
            plan(vec![fast(0), subflow(1, 90, 8, 2), subflow(2, 25, 7, 0)], 100),
            (2, 7),
            "the two fastest"
        );
        assert_eq!(plan(vec![fast(0), subflow(1, 25, 7, 0), subflow(2, 90, 8, 2)], 100), (2, 7));
        assert_eq!(plan(vec![fast(0), subflow(1, 25, 7, 0), subflow(2, 25, 8, 2)], 100), (2, 7), "a tie");
        assert_eq!(plan(vec![fast(0), subflow(1, 10, 7, 0)], 100), (1, 7), "a tie");
        assert_eq!(
            plan(vec![unmeasured(0, 10, 0), unmeasured(1, 7, 0)], 100),
            (1, 7),
            "nothing known of either"
        );
        assert_eq!(
            plan(vec![unmeasured(0, 10, 0), subflow(1, 25, 7, 0)], 100),
            (10, 7),
            "nothing known of f"
        );
        let faster_second = Scene::new(vec![subflow(0, 25, 7, 0), subflow(1, 10, 10, 0)]);
        let plan = generate_schedule(&faster_second.view()).unwrap();
        assert_eq!((plan.fast, plan.on_fast, plan.slow, plan.on_slow), (SubflowId(1), 2, SubflowId(0), 7));
    }

    #[test]
    fn the_schedule_is_followed_to_its_end() {
        let daps = &mut *build("daps-two-path");
        let mut scene = Scene::new(vec![subflow(0, 10, 10, 0), subflow(1, 25, 2, 0)]);
        let mut order = Vec::new();
        for _ in 0..6 {
            let chosen = scene.chosen(daps).unwrap();
            let subflow = &mut scene.subflows[usize::from(chosen)];
            subflow.set_packets_out(subflow.packets_out() + 1);
            order.push(chosen);
        }
        assert_eq!(order, [0, 0, 1, 1, 0, 0], "two on the fast, a window on the slow, and again");
    }

    #[test]
    fn a_schedule_that_cannot_go_on_is_made_anew() {
        let daps = &mut *build("daps-two-path");
        let mut scene = Scene::new(vec![subflow(0, 10, 10, 0), subflow(1, 25, 2, 0)]);
        assert_eq!(scene.chosen(daps), Some(0));
        scene.subflows[0].set_packets_out(10);
        assert_eq!(scene.chosen(daps), Some(1));
        scene.subflows[1].state = crate::metrics::SubflowStatus::Closed;
        assert_eq!(scene.chosen(daps), None);
        scene.subflows[0].set_packets_out(9);
        assert_eq!(scene.chosen(daps), Some(0));
    }

    #[test]
    fn ten_to_one_and_unlike_minrtt() {
        let pipes = [Pipe::new(10, 20), Pipe::new(100, 1)];
        assert_eq!(run("daps-two-path", &pipes, 25).segments_on(1, 1), [11]);
        assert_eq!(run("minrtt", &pipes, 25).segments_on(1, 1), [21]);
    }
}
