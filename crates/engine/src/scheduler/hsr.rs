//! `hsr`: highest sending rate.
//!
//! Source: 5g-2019 III.A, on HSR (its reference 24).
//!
//! Rule: among the subflows with room, the greatest cwnd x MSS / RTT, with the instantaneous RTT: the latest
//! sample, not the smoothed one.
//!
//! Rulings: before a sample the smoothed RTT stands in; a tie goes to the lower srtt, then the lower id.
//!
//! Parameters: `opportunistic` and `penalise` (default `off`).

use super::mechanisms::{OFF, opportunistic, penalise, with_mechanisms};
use super::text::{Kib, Subflow, no_room, nothing_to_send};
use super::{Decision, Rationale, Scheduler, View};
use crate::Span;
use crate::metrics::SubflowMetrics;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Scheduler> = Entry {
    name: "hsr",
    summary: "highest sending rate, cwnd x MSS / latest RTT",
    source: "5g-2019 III.A",
    parameters: &[opportunistic(OFF), penalise(OFF)],
    ..Entry::of(|values| with_mechanisms(values, HighestSendingRate))
};

#[derive(Debug)]
struct HighestSendingRate;

/// Bytes per nanosecond.
#[inline]
fn rate(subflow: &SubflowMetrics) -> f64 {
    let rtt = if subflow.rtt.latest > Span::ZERO {
        subflow.rtt.latest
    } else {
        subflow.rtt.smoothed.max(Span::from_nanos(1))
    };
    (u64::from(subflow.cwnd()) * u64::from(subflow.mss)) as f64 / rtt.as_nanos() as f64
}

impl Scheduler for HighestSendingRate {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        if !view.sendable() {
            return nothing_to_send(view, rationale);
        }
        let Some((subflow, rate)) = view.best_available(rate) else {
            return no_room(view, rationale);
        };
        rationale.say(|| {
            format!("{} has the highest sending rate, {}/s", Subflow(subflow.id), Kib((rate * 1e9) as u64))
        });
        Decision::Send { subflow: subflow.id, bytes: subflow.mss }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Pipe, Scene, build, run, subflow};
    use crate::testing::WithoutSender as _;
    use crate::{MILLISECOND, Span};

    #[test]
    fn window_times_segment_over_the_latest_sample() {
        let hsr = &mut *build("hsr");
        // 10/10 against 50/40 segments per ms.
        let mut scene = Scene::new(vec![subflow(0, 10, 10, 0), subflow(1, 40, 50, 0)]);
        assert_eq!(scene.chosen(hsr), Some(1));
        scene.subflows[1].rtt.latest = 60 * MILLISECOND;
        assert_eq!(scene.chosen(hsr), Some(0), "the latest sample, not srtt");
        scene.subflows[1].mss = 1300;
        assert_eq!(scene.chosen(hsr), Some(1), "50 x 1.3 / 60");
        scene.subflows[1].mss = 1200;
        assert_eq!(scene.chosen(hsr), Some(0), "a tie goes to the lower srtt");
        scene.subflows[0].rtt.smoothed = 41 * MILLISECOND;
        assert_eq!(scene.chosen(hsr), Some(1));
        scene.subflows[1].set_packets_out(50);
        assert_eq!(scene.chosen(hsr), Some(0), "full");
    }

    #[test]
    fn without_a_sample_the_smoothed_rtt() {
        let mut scene = Scene::new(vec![subflow(0, 10, 10, 0), subflow(1, 40, 39, 0)]);
        scene.subflows[1].rtt.latest = Span::ZERO;
        assert_eq!(scene.chosen(&mut *build("hsr")), Some(0));
        scene.subflows[1].set_cwnd(41);
        assert_eq!(scene.chosen(&mut *build("hsr")), Some(1));
    }

    #[test]
    fn all_alike_the_lower_id() {
        assert_eq!(
            Scene::new(vec![subflow(0, 20, 10, 5), subflow(1, 20, 10, 5)]).chosen(&mut *build("hsr")),
            Some(0)
        );
    }

    #[test]
    fn unlike_minrtt_it_prefers_the_wide_window_to_the_short_path() {
        let pipes = [Pipe::new(10, 4), Pipe::new(20, 20)];
        assert_eq!(run("hsr", &pipes, 10).segments_on(1, 1), (1..=10).collect::<Vec<_>>());
        assert_eq!(run("minrtt", &pipes, 10).segments_on(1, 1), (5..=10).collect::<Vec<_>>());
    }
}
