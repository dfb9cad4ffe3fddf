//! What `advise` is asked.

use ropewalk_sim::{Scenario, Workload};

use super::belief::Doubt;
use super::effort::{self, Effort};
use crate::compare::{Design, System, Worth};

/// In which share of the plausible variants Multipath TCP must be at most 5 % slower, unless the user says
/// otherwise.
pub const CERTAINTY: f64 = 0.8;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// The paths as far as they are known; its workload is the one for buffers and turning points.
    pub scenario: Scenario,
    /// What the answer must be good for.
    pub workloads: Vec<Workload>,
    /// Who contends besides `linux` and plain TCP; none: all.
    pub schedulers: Vec<String>,
    /// How well each path is known.
    pub doubts: Vec<Doubt>,
    /// The paths as they were stated, before measurements; none if there are none, or a path is known by them
    /// alone.
    pub stated: Option<Scenario>,
    /// The congestion control.
    pub congestion: String,
    /// What the user can run.
    pub system: System,
    /// What bytes cost.
    pub worth: Worth,
    /// In which share of the plausible variants Multipath TCP must be at most 5 % slower than plain TCP on
    /// the best path.
    pub certainty: f64,
    /// How much to run.
    pub effort: Effort,
    /// Seed.
    pub seed: u64,
}

impl Question {
    /// The same without measurements; none if there are none.
    pub(super) fn stated_alone(&self) -> Option<Question> {
        let scenario = self.stated.clone()?;
        let doubts = vec![Doubt::default(); scenario.paths.len()];
        Some(Question { scenario, doubts, stated: None, ..self.clone() })
    }

    /// The same with its part of the budget: with measurements there are two contests, without and with them.
    pub(super) fn contest(&self) -> Question {
        let mut contest = self.clone();
        if let (Some(_), Design::Race { segments }) = (&self.stated, &mut contest.effort.design) {
            *segments /= 2;
        }
        contest
    }

    /// The same with workloads that the budget suffices for; the second value says whether one had to be cut.
    pub(super) fn affordable(&self) -> (Question, bool) {
        let most = self.effort.of_a_run();
        let (workloads, changed) = effort::cut(&self.workloads, &self.scenario, most);
        let (one, _) = effort::cut(std::slice::from_ref(&self.scenario.workload), &self.scenario, most);
        let mut question = Question { workloads, ..self.clone() };
        if let Some(workload) = one.into_iter().next() {
            question.scenario.workload = workload;
        }
        (question, changed)
    }

    /// Segments that answering takes at most; a fixed number of runs counts as one each.
    pub fn budget(&self) -> u64 {
        self.effort.all()
    }
}
