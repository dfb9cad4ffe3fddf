//! Runs candidates over worlds and seeds on all cores. Every candidate meets the same worlds with the same
//! seeds.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ropewalk_engine::congestion::CongestionControl;
use ropewalk_engine::registry::{Spec, SpecError};
use ropewalk_engine::scheduler::Scheduler;
use ropewalk_sim::{Mode, Recording, RunSpec, Scenario};

use crate::kept::Kept;
use crate::parallel::{Workers, run_jobs};
use crate::{compare, objective, stats};

/// One that may be recommended.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// `ecf`, `tcp wifi`.
    pub label: String,
    /// Its scheduler.
    pub scheduler: Spec<dyn Scheduler>,
    /// Its congestion control.
    pub congestion: Spec<dyn CongestionControl>,
    /// Multipath, or plain TCP on a path.
    pub mode: Mode,
    /// The path of a Multipath TCP connection's first subflow; the others are joined once that is
    /// established. Plain TCP has it, too: those with the same one meet the same losses with the same seed.
    pub opens_on: usize,
}

impl Candidate {
    /// Whether it is plain TCP.
    pub fn is_tcp(&self) -> bool {
        matches!(self.mode, Mode::SinglePath(_))
    }

    /// Its mode where the paths are in the order of [`opened_on`].
    pub(super) fn mode_there(&self) -> Mode {
        match self.mode {
            Mode::SinglePath(path) if path == self.opens_on => Mode::SinglePath(0),
            Mode::SinglePath(path) if path < self.opens_on => Mode::SinglePath(path + 1),
            mode => mode,
        }
    }

    /// `ecf with olia`.
    pub fn name(&self) -> String {
        format!("{} with {}", self.label, self.congestion.text)
    }
}

/// Seconds by world, candidate and seed.
#[derive(Clone, Debug)]
pub struct Times {
    candidates: usize,
    seeds: usize,
    values: Vec<f64>,
}

impl Times {
    /// One candidate's in one world, by seed.
    pub fn of(&self, world: usize, candidate: usize) -> &[f64] {
        &self.values[(world * self.candidates + candidate) * self.seeds..][..self.seeds]
    }

    /// One candidate's mean in one world.
    pub fn mean(&self, world: usize, candidate: usize) -> f64 {
        stats::mean(self.of(world, candidate))
    }
}

/// On how many threads runs are made, who hears of each, and what ends them early.
#[derive(Clone, Copy)]
pub struct Execution<'a> {
    /// Threads.
    pub jobs: Workers,
    /// Called with each run, in a race with its share of the budget, otherwise with 0.
    pub done: &'a (dyn Fn(u64) + Sync),
    /// Ends it early.
    pub stop: &'a AtomicBool,
}

impl std::fmt::Debug for Execution<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Execution").field("jobs", &self.jobs).finish_non_exhaustive()
    }
}

/// The same world with its connections opened on this path: a connection opens on the first. Links draw their
/// losses and jitter by their place, so plain TCP is compared in the same order.
pub(super) fn opened_on(world: &Arc<Scenario>, path: usize) -> Arc<Scenario> {
    if path == 0 {
        return Arc::clone(world);
    }
    let mut copy = Scenario::clone(world);
    copy.paths[..=path].rotate_right(1);
    Arc::new(copy)
}

/// Runs each candidate in each world with each of `seeds` seeds from `first`. None if it was stopped.
pub fn times(
    worlds: &[Arc<Scenario>],
    candidates: &[Candidate],
    first: u64,
    seeds: usize,
    execution: Execution<'_>,
) -> Option<Times> {
    let total = worlds.len() * candidates.len() * seeds;
    let opened: Vec<Vec<Arc<Scenario>>> = worlds
        .iter()
        .map(|world| (0..world.paths.len()).map(|path| opened_on(world, path)).collect())
        .collect();
    let values = run_jobs(execution.jobs, total, execution.stop, |index| {
        let (seed, rest) = (index % seeds, index / seeds);
        let (candidate, world) = (&candidates[rest % candidates.len()], rest / candidates.len());
        let scenario = &opened[world][candidate.opens_on];
        let result = ropewalk_sim::run(&RunSpec {
            scenario: Arc::clone(scenario),
            scheduler: candidate.scheduler.clone(),
            congestion: candidate.congestion.clone(),
            mode: candidate.mode_there(),
            seed: first.wrapping_add((world * seeds + seed) as u64),
            start_phase: compare::start_phase(scenario, seed as u32, seeds as u32),
            recording: Recording::default(),
        });
        let seconds = objective::of(&scenario.workload, &result);
        (execution.done)(0);
        Some(seconds.unwrap_or(scenario.limit.as_secs_f64()))
    });
    let values = values.into_iter().collect::<Option<Vec<f64>>>()?;
    Some(Times { candidates: candidates.len(), seeds, values })
}

/// Makes so many of one kind, each from a number from `seed` on; what is in the store isn't made again. Calls
/// `each` with every one. None if it was stopped.
pub(super) fn make_kept<T: Clone + Send>(
    (kind, count, seed): (&str, usize, u64),
    store: &(dyn Kept<T> + Sync),
    execution: Execution<'_>,
    each: impl Fn() + Sync,
    make: impl Fn(u64) -> Result<T, SpecError> + Sync,
) -> Result<Option<Vec<T>>, SpecError> {
    let found = run_jobs(execution.jobs, count, execution.stop, |number| {
        let seed = seed.wrapping_add(number as u64);
        let key = store.key(&[kind, &seed.to_string()]);
        let made = match store.get(&key) {
            Some(made) => Ok(made.clone()),
            None => make(seed).inspect(|made| store.put(&key, made)),
        };
        each();
        Some(made)
    });
    found.into_iter().map(Option::transpose).collect()
}

#[cfg(test)]
mod tests {
    use ropewalk_algorithms::Registries;
    use ropewalk_sim::Workload;

    use super::super::search::{one, plain};
    use super::*;
    use crate::scenario;

    fn world(paths: &[&str], bytes: u64) -> Arc<Scenario> {
        let paths = paths.iter().map(|text| scenario::path(text).unwrap()).collect();
        let mut world = scenario::default_around(paths);
        world.workload = Workload::Flow { bytes };
        Arc::new(world)
    }

    #[test]
    fn plain_tcp_keeps_its_path_whichever_is_first() {
        let world = world(&["a: 1 Mbit/s, 30 ms", "b: 2 Mbit/s, 30 ms", "c: 3 Mbit/s, 30 ms"], 1);
        for opens_on in 0..3 {
            let there = opened_on(&world, opens_on);
            for one in plain(&Registries::builtin(), &world, "cubic", opens_on).unwrap() {
                let Mode::SinglePath(path) = one.mode_there() else { panic!("{one:?}") };
                assert_eq!(one.label, format!("tcp {}", there.paths[path].name));
            }
        }
    }

    #[test]
    fn who_opens_on_a_path_meets_the_losses_that_plain_tcp_meets_there() {
        // What fits the first window ends before the other path is joined.
        let world = [world(&["slow: 1 Mbit/s, 300 ms, 10 %", "lossy: 20 Mbit/s, 40 ms, 5 %"], 12_000)];
        let registries = Registries::builtin();
        let mut both = vec![one(&registries, "linux", "cubic", 1).unwrap()];
        both.extend(plain(&registries, &world[0], "cubic", 1).unwrap().pop());
        let stop = AtomicBool::new(false);
        let execution = Execution { jobs: Workers::ONE, done: &|_| {}, stop: &stop };
        let found = times(&world, &both, 1, 60, execution).unwrap();
        let pairs = || found.of(0, 0).iter().zip(found.of(0, 1));
        let equal = pairs().filter(|(multipath, tcp)| (*multipath / *tcp - 1.0).abs() < 0.05).count();
        let losses = pairs().filter(|(_, tcp)| **tcp > 0.2).count();
        assert!(losses > 10 && equal > 45, "{equal} of 60 are equal, {losses} had a timeout");
    }
}
