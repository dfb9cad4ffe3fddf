//! `single`: plain TCP on one path, the baseline of every comparison.
//!
//! Source: the baseline that every paper measures against (blest-2016 VI, cfs-2019 4, 5g-2019 IV).
//!
//! Rule: everything is sent on one path's subflow. The best single path of a
//! scenario is the best of its runs with each `path`.
//!
//! Ruling: when that path's subflow isn't usable, wait: plain TCP has no other.
//!
//! Parameters: `path` (the [`crate::PathId`] of the path; default -1, the path of the initial subflow, slot
//! 0; -1 to 65535). `opportunistic` and `penalise` (default `off`).

use super::mechanisms::{OFF, opportunistic, penalise, with_mechanisms};
use super::text::{Subflow, nothing_to_send};
use super::{Decision, Rationale, Scheduler, View};
use crate::metrics::SubflowMetrics;
use crate::registry::{Entry, Exception, Parameter};

pub(super) const ENTRY: Entry<dyn Scheduler> = Entry {
    name: "single",
    summary: "plain TCP on one path",
    source: "baseline",
    parameters: &[
        Parameter::whole("path", -1.0, (-1.0, 65535.0), "number of the path; -1: the initial subflow's"),
        opportunistic(OFF),
        penalise(OFF),
    ],
    exceptions: &[
        Exception { rule: "even-split", reason: "one path is all it uses" },
        Exception { rule: "eligible", reason: "its path is used even as a backup: plain TCP knows no roles" },
        Exception { rule: "work-conserving", reason: "with its path gone it has nowhere to send" },
    ],
    // Comparisons show it as plain TCP, path by path.
    compared_by_default: false,
    ..Entry::of(|values| {
        let path = values.number("path");
        with_mechanisms(values, Single { path: (path >= 0.0).then_some(path as u16) })
    })
};

#[derive(Debug)]
struct Single {
    path: Option<u16>,
}

impl Single {
    fn is_mine(&self, subflow: &SubflowMetrics) -> bool {
        match self.path {
            Some(path) => subflow.path.0 == path,
            None => subflow.id.0 == 0,
        }
    }
}

impl Scheduler for Single {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        if !view.sendable() {
            return nothing_to_send(view, rationale);
        }
        let Some(subflow) = view.subflows.iter().find(|subflow| subflow.usable() && self.is_mine(subflow))
        else {
            rationale.say(|| {
                let others = view.usable().count();
                format!(
                    "the one path that may be used has no usable subflow; {others} on other paths don't count"
                )
            });
            return Decision::Wait { until: None };
        };
        if subflow.available() {
            rationale.say(|| {
                let (id, space) = (Subflow(subflow.id), subflow.window_space());
                format!("{id} is the one that may be used; room for {space} of {} segments", subflow.cwnd())
            });
            Decision::Send { subflow: subflow.id, bytes: subflow.mss }
        } else {
            rationale.say(|| {
                format!(
                    "{} has no room in its {} segments and no other may be used",
                    Subflow(subflow.id),
                    subflow.cwnd()
                )
            });
            Decision::Wait { until: None }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Pipe, Scene, build, run, subflow};

    #[test]
    fn everything_on_the_named_path() {
        let pipes = [Pipe::new(10, 10), Pipe::new(100, 10)];
        assert_eq!(run("single", &pipes, 30).bytes_on(0), 30_000);
        assert_eq!(run("single(path=1)", &pipes, 30).bytes_on(1), 30_000);
    }

    #[test]
    fn the_path_is_known_by_its_number_not_by_its_slot() {
        let mut scene = Scene::new(vec![subflow(0, 10, 10, 0), subflow(1, 20, 10, 0)]);
        scene.subflows[0].path.0 = 7;
        assert_eq!(scene.chosen(&mut *build("single(path=7)")), Some(0));
        assert_eq!(scene.chosen(&mut *build("single(path=0)")), None);
        assert_eq!(scene.chosen(&mut *build("single")), Some(0));
    }

    #[test]
    fn it_waits_when_the_subflow_is_full_or_gone() {
        let single = &mut *build("single");
        let mut scene = Scene::new(vec![subflow(0, 10, 10, 10), subflow(1, 20, 10, 0)]);
        assert_eq!(scene.chosen(single), None);
        scene.subflows[0].state = crate::metrics::SubflowStatus::Closed;
        assert_eq!(scene.chosen(single), None);
    }
}
