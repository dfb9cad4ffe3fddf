//! `redundant`: every subflow sends everything.
//!
//! Source: a common baseline (the out-of-tree Linux kernel's module of that name). It trades capacity for
//! latency and robustness.
//!
//! Rule: an available subflow repeats the oldest data that isn't acknowledged at data level and that it
//! never carried; when it has carried all of it, it takes new data. Subflows take turns, in order of id.
//!
//! Ruling: repeats may be sent while the connection-level window is full, for their data is in it already.
//! A decision looks only at data beyond the subflow's own position in the stream, which moves forward, so
//! that each chunk is looked at once per subflow. A subflow that joins starts with the oldest.
//!
//! Parameters: `opportunistic` and `penalise` (default `off`).

use super::mechanisms::{OFF, opportunistic, penalise, with_mechanisms};
use super::text::{Kib, Subflow, no_room, nothing_to_send};
use super::{Decision, Event, Purpose, Rationale, Scheduler, View};
use crate::MAX_SUBFLOWS;
use crate::registry::{Entry, Kernel};

pub(super) const ENTRY: Entry<dyn Scheduler> = Entry {
    name: "redundant",
    summary: "every subflow sends everything not yet acknowledged",
    source: "baseline",
    parameters: &[opportunistic(OFF), penalise(OFF)],
    kernels: &[Kernel::MultipathTcp.has()],
    ..Entry::of(|values| with_mechanisms(values, Redundant { cursors: [0; MAX_SUBFLOWS], last: 0 }))
};

#[derive(Debug)]
struct Redundant {
    /// Per subflow: everything before this stream offset is carried or acknowledged.
    cursors: [u64; MAX_SUBFLOWS],
    /// The subflow of the latest decision.
    last: usize,
}

impl Scheduler for Redundant {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        let backups = view.backups_count();
        let subflows = view.subflows.len().min(self.cursors.len());
        let mut available = false;
        let mut index = self.last;
        for _ in 0..subflows {
            // From the one after the last: otherwise the first subflow would fill its
            // window before any other gets data.
            index = if index + 1 < subflows { index + 1 } else { 0 };
            let subflow = &view.subflows[index];
            if !subflow.available() || (subflow.backup && !backups) {
                continue;
            }
            available = true;
            let cursor = &mut self.cursors[index];
            while let Some(chunk) = view.in_flight.chunk_after(*cursor) {
                if !chunk.carried_by(subflow.id) {
                    self.last = index;
                    rationale.say(|| {
                        let lag = view.next_offset.saturating_sub(chunk.offset);
                        format!("{} repeats data at {}, {lag} B behind", Subflow(subflow.id), chunk.offset)
                    });
                    let purpose = Purpose::Redundant;
                    return Decision::Duplicate { subflow: subflow.id, offset: chunk.offset, purpose };
                }
                *cursor = chunk.offset + u64::from(chunk.len);
            }
            if view.sendable() {
                self.last = index;
                rationale.say(|| {
                    let (id, held) = (Subflow(subflow.id), Kib(view.next_offset.saturating_sub(view.una)));
                    format!("{id} carries all {held} in flight and takes new data")
                });
                return Decision::Send { subflow: subflow.id, bytes: subflow.mss };
            }
        }
        if available { nothing_to_send(view, rationale) } else { no_room(view, rationale) }
    }

    fn on_event(&mut self, _view: &View<'_>, event: Event) {
        if let Event::SubflowAdded(subflow) = event
            && let Some(cursor) = self.cursors.get_mut(subflow.index())
        {
            *cursor = 0;
        }
    }

    fn repeats(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{MSS, Model, Pipe, Scene, build, run, subflow};
    use super::*;
    use crate::scheduler::Chunk;
    use crate::{MILLISECOND, SubflowId, Time};

    #[test]
    fn every_subflow_carries_everything() {
        let done = run("redundant", &[Pipe::new(50, 10), Pipe::new(50, 10), Pipe::new(50, 10)], 40);
        for subflow in 0..3 {
            let mut carried = done.segments_on(subflow, 0);
            carried.sort_unstable();
            assert_eq!(carried, (0..40).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_slower_subflow_repeats_only_what_is_not_yet_acknowledged() {
        // The fast one has all of it acknowledged after 10 ms; the slow one's window takes only 10.
        let pipes = [Pipe::new(10, 20), Pipe::new(100, 10)];
        let done = run("redundant", &pipes, 20);
        assert_eq!(done.bytes_on(0), 20_000);
        assert_eq!(done.bytes_on(1), 10_000);
        assert_eq!(done.completed, Some(Time::ZERO + 5 * MILLISECOND));
    }

    #[test]
    fn a_slot_used_again_starts_with_the_oldest() {
        let redundant = &mut *build("redundant");
        let mut scene = Scene::new(vec![subflow(0, 10, 10, 5)]);
        (scene.unsent, scene.next_offset) = (0, 1000);
        let chunk = Chunk { offset: 0, len: 1000, carriers: 1, last: SubflowId(0), sent_at: Time::ZERO };
        scene.chunks.0.insert(0, chunk);
        assert_eq!(scene.ask(redundant), Decision::Wait { until: None });
        scene.chunks.0.insert(0, Chunk { carriers: 0b10, ..chunk });
        assert_eq!(scene.ask(redundant), Decision::Wait { until: None }, "it has been looked at");
        redundant.on_event(&scene.view(), Event::SubflowAdded(SubflowId(0)));
        let (subflow, purpose) = (SubflowId(0), Purpose::Redundant);
        assert_eq!(scene.ask(redundant), Decision::Duplicate { subflow, offset: 0, purpose });
    }

    #[test]
    fn the_copy_replaces_a_dead_path() {
        let dying = Pipe { fails: Some(Time::ZERO + MILLISECOND), ..Pipe::new(10, 10) };
        let done = Model::new(&[dying, Pipe::new(30, 10)], 10 * u64::from(MSS)).run(&mut *build("redundant"));
        assert_eq!(done.completed, Some(Time::ZERO + 15 * MILLISECOND), "no reinjection was waited for");
    }

    #[test]
    fn repeats_may_go_out_while_the_send_window_is_full() {
        let pipes = [Pipe::new(10, 4), Pipe::new(10, 4)];
        let done = Model::new(&pipes, 4000).window(2000).run(&mut *build("redundant"));
        assert_eq!(done.bytes_on(0), 4000);
        assert_eq!(done.bytes_on(1), 4000);
    }
}
