//! `cfs`: choose the fastest subflow; at the end of the data, the fast repeat what the slow carry.
//!
//! Source: cfs-2019 (Heo and Yoo, KSII TIIS 13(8), 2019) 3.1.
//!
//! Rule: `minrtt` while data is unsent. When none is left, each available subflow, fastest first, repeats
//! data still unacknowledged at data level that was last sent on a subflow with a larger srtt and never on
//! this one, oldest data sequence first. The copy has the same mapping, so that the receiver takes whichever
//! comes first. Nothing is predicted. Eq. (2), for exponential round-trip times of means 1/mu: the slow
//! copy comes first with probability Pr(X_s < X_f) = mu_s / (mu_s + mu_f).
//!
//! Rulings: data that waits for the connection-level window counts as unsent: nothing is repeated then. Each
//! subflow walks the stream forward, so that each chunk is examined once per subflow. New data, a loss, a
//! timeout or a removed subflow restarts the walk, as the carriers may have changed.
//!
//! Parameters: none in the decision. `opportunistic` and `penalise` (default `off`).

use super::mechanisms::{OFF, opportunistic, penalise, with_mechanisms};
use super::minrtt::fastest_with_room;
use super::text::{Ms, Subflow};
use super::{Chunk, Decision, Event, Purpose, Rationale, Scheduler, View};
use crate::metrics::SubflowMetrics;
use crate::registry::Entry;
use crate::{MAX_SUBFLOWS, Span};

pub(super) const ENTRY: Entry<dyn Scheduler> = Entry {
    name: "cfs",
    summary: "minrtt; at the end of the data, fast subflows repeat what slower ones carry",
    source: "cfs-2019 3.1",
    parameters: &[opportunistic(OFF), penalise(OFF)],
    ..Entry::of(|values| with_mechanisms(values, Cfs { cursors: [0; MAX_SUBFLOWS] }))
};

#[derive(Debug)]
struct Cfs {
    /// Per subflow: data before this stream offset is not for it to repeat.
    cursors: [u64; MAX_SUBFLOWS],
}

/// Pr(X_s < X_f), cfs-2019 Eq. (2): how often the slow copy comes first, from the two mean round-trip times.
fn slow_wins(mean_slow: f64, mean_fast: f64) -> f64 {
    mean_fast / (mean_slow + mean_fast)
}

impl Cfs {
    /// The oldest chunk that `subflow` may repeat.
    fn candidate(&mut self, view: &View<'_>, subflow: &SubflowMetrics) -> Option<Chunk> {
        let cursor = self.cursors.get_mut(subflow.id.index())?;
        while let Some(chunk) = view.in_flight.chunk_after(*cursor) {
            let slower = view
                .subflows
                .get(chunk.last.index())
                .is_some_and(|carrier| carrier.rtt.smoothed > subflow.rtt.smoothed);
            if slower && !chunk.carried_by(subflow.id) {
                return Some(chunk);
            }
            *cursor = chunk.offset + u64::from(chunk.len);
        }
        None
    }

    fn repeat(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        let backups = view.backups_count();
        let mut best: Option<(&SubflowMetrics, Chunk)> = None;
        for subflow in view.subflows {
            if (subflow.backup && !backups)
                || best.is_some_and(|(best, _)| subflow.rtt.smoothed >= best.rtt.smoothed)
            {
                continue;
            }
            if subflow.available()
                && let Some(chunk) = self.candidate(view, subflow)
            {
                best = Some((subflow, chunk));
            }
        }
        let Some((subflow, chunk)) = best else {
            rationale.say(|| {
                let (left, with_room) = (view.in_flight.len(), view.available().count());
                format!(
                    "nothing unsent; none of {with_room} subflows with room is faster than what carries \
                         the {left} chunks left"
                )
            });
            return Decision::Wait { until: None };
        };
        rationale.say(|| {
            let slow =
                view.subflows.get(chunk.last.index()).map_or(Span::ZERO, |carrier| carrier.rtt.smoothed);
            format!(
                "nothing unsent: {} at {} repeats data at {} that {} carries at {}; the older copy comes \
                 first \
                 with probability {:.2}",
                Subflow(subflow.id),
                Ms(subflow.rtt.smoothed),
                chunk.offset,
                Subflow(chunk.last),
                Ms(slow),
                slow_wins(slow.as_nanos() as f64, subflow.rtt.smoothed.as_nanos() as f64),
            )
        });
        Decision::Duplicate { subflow: subflow.id, offset: chunk.offset, purpose: Purpose::Redundant }
    }
}

impl Scheduler for Cfs {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        if view.unsent == 0 {
            return self.repeat(view, rationale);
        }
        fastest_with_room(view, rationale)
    }

    fn on_event(&mut self, view: &View<'_>, event: Event) {
        if let Event::SubflowAdded(_)
        | Event::SubflowRemoved(_)
        | Event::Lost { .. }
        | Event::Timeout(_)
        | Event::Written(_) = event
        {
            self.cursors = [view.una; MAX_SUBFLOWS];
        }
    }

    fn repeats(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Pipe, Scene, build, run, subflow};
    use super::*;
    use crate::testing::WithoutSender as _;
    use crate::{MILLISECOND, SubflowId, Time};

    #[test]
    fn cfs_2019_figure_3_the_fast_subflow_repeats_11_to_20() {
        let pipes = [Pipe::new(10, 10), Pipe::new(100, 10)];
        let done = run("cfs", &pipes, 30);
        let fast: Vec<_> = (1..=10).chain(21..=30).chain(11..=20).collect();
        assert_eq!(done.segments_on(0, 1), fast);
        assert_eq!(done.segments_on(1, 1), (11..=20).collect::<Vec<_>>());
        // At 20 ms the fast window is free again; the copies take half its RTT. minrtt needs 50 ms.
        assert_eq!(done.completed, Some(Time::ZERO + 25 * MILLISECOND));
        assert_eq!(run("minrtt", &pipes, 30).completed, Some(Time::ZERO + 50 * MILLISECOND));
    }

    #[test]
    fn equation_2_and_figure_6() {
        // 1/mu_f = 20 ms, 1/mu_s = 200 ms: less than 10 %.
        assert!((slow_wins(200.0, 20.0) - 1.0 / 11.0).abs() < 1e-12);
        assert_eq!(slow_wins(20.0, 20.0), 0.5);
    }

    fn carried(offset: u64, by: u8) -> (u64, Chunk) {
        let chunk = Chunk { offset, len: 1000, carriers: 1 << by, last: SubflowId(by), sent_at: Time::ZERO };
        (offset, chunk)
    }

    fn tail() -> Scene {
        let subflows = vec![subflow(0, 50, 10, 3), subflow(1, 10, 10, 3), subflow(2, 20, 10, 0)];
        let mut scene = Scene::new(subflows);
        scene.unsent = 0;
        scene.next_offset = 4000;
        scene.chunks.0.extend([carried(0, 1), carried(1000, 0), carried(2000, 0), carried(3000, 2)]);
        scene
    }

    fn repeats(subflow: u8, offset: u64) -> Decision {
        Decision::Duplicate { subflow: SubflowId(subflow), offset, purpose: Purpose::Redundant }
    }

    #[test]
    fn fastest_first_and_oldest_first_and_only_from_slower_carriers() {
        let cfs = &mut *build("cfs");
        let mut scene = tail();
        assert_eq!(scene.ask(cfs), repeats(1, 1000), "the first chunk is its own");
        let chunk = scene.chunks.0.get_mut(&1000).unwrap();
        chunk.carriers |= 0b10;
        chunk.last = SubflowId(1);
        assert_eq!(scene.ask(cfs), repeats(1, 2000));
        scene.subflows[1].set_packets_out(10);
        assert_eq!(scene.ask(cfs), repeats(2, 2000), "what the fastest carries is not for the second");
        scene.subflows[2].set_packets_out(10);
        assert_eq!(scene.ask(cfs), Decision::Wait { until: None }, "the slowest repeats nothing");
        assert!(cfs.repeats());
    }

    #[test]
    fn an_equally_fast_subflow_repeats_nothing() {
        let mut scene = tail();
        scene.subflows[1].set_packets_out(10);
        scene.subflows[0].rtt.smoothed = scene.subflows[2].rtt.smoothed;
        assert_eq!(scene.ask(&mut *build("cfs")), Decision::Wait { until: None });
    }

    #[test]
    fn a_loss_restarts_the_walk() {
        let cfs = &mut *build("cfs");
        let mut scene = tail();
        scene.subflows[0].rtt.smoothed = 5 * MILLISECOND;
        scene.subflows[0].set_packets_out(10);
        assert_eq!(scene.ask(cfs), repeats(1, 3000), "subflow 0 is the fastest now: only 2 is slower");
        scene.subflows[0].rtt.smoothed = 50 * MILLISECOND;
        assert_eq!(scene.ask(cfs), repeats(1, 3000), "what was passed over stays so");
        let lost = Event::Lost { subflow: SubflowId(0), segments: 1 };
        cfs.on_event(&scene.view(), lost);
        assert_eq!(scene.ask(cfs), repeats(1, 1000));
    }

    #[test]
    fn nothing_is_repeated_while_data_waits_for_the_window() {
        let mut scene = tail();
        scene.unsent = 1;
        scene.send_window = 4000;
        assert_eq!(scene.ask(&mut *build("cfs")), Decision::Wait { until: None });
    }
}
