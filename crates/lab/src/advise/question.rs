//! What `advise` is asked.

use ropewalk_sim::{Scenario, Workload};

use super::belief::Doubt;
use crate::compare::{self, Design, System, Worth};

/// Share of the budget that the search for a buffer's size has: one in so many.
pub(super) const BUFFER_SHARE: u64 = 3;

/// One part in so many of the budget goes to choosing the path on which connections open.
pub(super) const OPENING: u64 = 8;

/// One part in so many goes to the paths as they are stated.
pub(super) const AS_STATED: u64 = 8;

/// In which share of the plausible variants Multipath TCP must be faster, unless the user says otherwise.
pub const CERTAINTY: f64 = 0.9;

/// How much is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// Segments of the race.
    pub design: Design,
    /// Whether buffers and turning points are looked for too.
    pub whole: bool,
}

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
    /// The paths as they were stated, before measurements; none if there are none, or a path is known by them alone.
    pub stated: Option<Scenario>,
    /// The congestion control.
    pub congestion: String,
    /// What the user can run.
    pub system: System,
    /// What bytes cost.
    pub worth: Worth,
    /// In which share of the plausible variants Multipath TCP must be faster than plain TCP on every path.
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

    /// The budget of the race, seconds; none where the number of runs is fixed.
    #[must_use]
    pub fn budget_seconds(&self) -> Option<f64> {
        match self.effort.design {
            Design::Race { segments } => Some(segments as f64 / compare::PER_SECOND as f64),
            Design::Fixed(_) => None,
        }
    }

    /// Segments that answering takes at most; a fixed number of runs counts as one each.
    pub fn budget(&self) -> u64 {
        let segments = match self.effort.design {
            Design::Race { segments } => segments,
            Design::Fixed(runs) => u64::from(runs),
        };
        let races = segments + segments / OPENING + segments / AS_STATED;
        races + if self.effort.whole { segments / BUFFER_SHARE } else { 0 }
    }
}
