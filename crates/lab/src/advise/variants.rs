//! Plausible variants of the paths, and one run in one of them.

use std::sync::{Arc, Mutex};

use ropewalk_sim::{Recording, RunSpec, Scenario};

use super::belief::{Doubt, worlds};
use super::question::Question;
use super::run::{Candidate, opened_on};
use crate::compare::{self, Run};

/// Variants that are drawn together, spread evenly over what is plausible.
pub(super) const BLOCK: usize = 64;

/// Variants of a scenario's paths, drawn block by block as they are asked for.
pub(super) struct Variants<'a> {
    scenario: &'a Scenario,
    doubts: &'a [Doubt],
    seed: u64,
    drawn: Mutex<Vec<Option<Vec<Arc<Scenario>>>>>,
}

impl<'a> Variants<'a> {
    /// Those that the candidates of a question run in.
    pub(super) fn of(question: &'a Question, scenario: &'a Scenario) -> Self {
        Variants::new(scenario, &question.doubts, question.seed.wrapping_add(0x1000_0000))
    }

    /// The variant with this number, its connections opened as the candidate says.
    pub(super) fn opened(&self, number: u32, candidate: &Candidate) -> Scenario {
        Scenario::clone(&opened_on(&self.get(number as usize), candidate.opens_on))
    }

    fn new(scenario: &'a Scenario, doubts: &'a [Doubt], seed: u64) -> Self {
        Variants { scenario, doubts, seed, drawn: Mutex::new(Vec::new()) }
    }

    /// The variant with this number. Which ones were asked for before makes no difference.
    pub(super) fn get(&self, number: usize) -> Arc<Scenario> {
        let block = number / BLOCK;
        let draw = || worlds(self.scenario, self.doubts, BLOCK, self.seed.wrapping_add(block as u64));
        let Ok(mut drawn) = self.drawn.lock() else { return Arc::clone(&draw()[number % BLOCK]) };
        if drawn.len() <= block {
            drawn.resize(block + 1, None);
        }
        Arc::clone(&drawn[block].get_or_insert_with(draw)[number % BLOCK])
    }
}

/// One run in a variant; its number also gives the seed.
pub(super) fn one_run(question: &Question, scenario: Scenario, candidate: &Candidate, number: u32) -> Run {
    let spec = RunSpec {
        start_phase: compare::start_phase(&scenario, number, 0),
        scenario: Arc::new(scenario),
        scheduler: candidate.scheduler.clone(),
        congestion: candidate.congestion.clone(),
        mode: candidate.mode_there(),
        seed: question.seed.wrapping_add(1 << 20).wrapping_add(u64::from(number)),
        recording: Recording::default(),
    };
    let result = ropewalk_sim::run(&spec);
    Run::new(&spec, result, &question.worth)
}
