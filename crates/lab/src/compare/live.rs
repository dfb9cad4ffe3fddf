//! A comparison whose runs are made elsewhere: one asks for them, hands them in as they end, in any order,
//! and may look at the answer at any time. At its end the answer is that of [`super::compare`].

use ropewalk_sim::{RunResult, RunSpec};

use super::race::{Job, Race};
use super::{Comparison, Design, Ended, Request, Run, comparison, plan};

impl Request {
    /// Makes a run with what runs a simulation: for [`Live`], anywhere.
    pub fn make(&self, job: Job, run: impl Fn(&RunSpec) -> RunResult) -> Run {
        let spec = self.run_spec(job.workload, job.number, job.who);
        Run::new(&spec, run(&spec), &self.worth)
    }
}

/// A comparison that is being made.
#[derive(Debug)]
pub struct Live {
    request: Request,
    race: Race,
    /// The round's runs so far.
    cells: Vec<Option<Run>>,
    missing: usize,
    done: u64,
}

impl Live {
    /// At its start.
    pub fn new(request: Request) -> Self {
        let race = Race::new(plan(&request));
        let mut live = Live { request, race, cells: Vec::new(), missing: 0, done: 0 };
        live.begin_round();
        live
    }

    fn begin_round(&mut self) {
        self.missing = self.race.round().map_or(0, super::race::Round::len);
        self.cells = vec![None; self.missing];
    }

    /// What is compared.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// The runs of this round, in the order in which they are best made; none: the comparison has ended.
    pub fn jobs(&self) -> Vec<Job> {
        self.race.round().map_or_else(Vec::new, |round| (0..round.len()).map(|at| round.job(at)).collect())
    }

    /// Takes the run of one of [`Live::jobs`], by its place. True if it was the round's last: then there are
    /// others, or it has ended. A run that isn't asked for, or is there already, changes nothing.
    pub fn take(&mut self, place: usize, run: Run) -> bool {
        let Some(cell @ None) = self.cells.get_mut(place) else { return false };
        self.done += if matches!(self.request.design, Design::Fixed(_)) { 1 } else { run.cost() };
        *cell = Some(run);
        self.missing -= 1;
        if self.missing > 0 {
            return false;
        }
        self.race.take(std::mem::take(&mut self.cells));
        self.begin_round();
        true
    }

    /// Whether the answer is final.
    pub fn has_ended(&self) -> bool {
        self.race.round().is_none()
    }

    /// How much of its work is done, from 0 to 1; it may end long before 1.
    pub fn share(&self) -> f64 {
        let all = match self.request.design {
            Design::Fixed(runs) => {
                u64::from(runs) * (self.request.workloads.len() * self.request.candidates.len()) as u64
            }
            Design::Race { segments } => segments,
        };
        (self.done as f64 / all.max(1) as f64).min(1.0)
    }

    /// The answer as it is now. Before the end it is one that was interrupted.
    pub fn comparison(&self) -> Comparison {
        let Some(round) = self.race.round() else { return comparison(&self.request, &self.race.raced) };
        let mut raced = self.race.raced.clone();
        raced.add(round, self.cells.clone());
        raced.ended = Ended::Interrupted;
        comparison(&self.request, &raced)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use ropewalk_algorithms::Registries;
    use ropewalk_settings::given::Given;

    use super::*;
    use crate::ask;
    use crate::compare::compare;
    use crate::parallel::Workers;
    use crate::scenario;

    fn request(paths: [&str; 2], runs: Option<u32>, budget: &str) -> Request {
        let registries = Registries::builtin();
        let paths = scenario::paths(&paths.map(String::from), registries.open_file).unwrap();
        let runs = runs.map(|runs| ("runs", vec![runs.to_string()]));
        let given = [("sizes", "30000 B, 60000 B"), ("schedulers", "minrtt, redundant, roundrobin")];
        let given = given.into_iter().chain([("budget", budget), ("seed", "3")]);
        let given = given.map(|(key, text)| (key, vec![text.to_string()])).chain(runs);
        let given = Given::by_key(ask::COMPARE, given);
        let (scenario, experiment) = (scenario::default_around(paths), scenario::Experiment::default());
        crate::compare::request(&given, false, scenario, experiment, Workers::ONE, &registries).unwrap()
    }

    /// Runs made in another order, each carried as JSON.
    fn made_elsewhere(request: Request) -> Comparison {
        let mut live = Live::new(request);
        let mut looks = 0;
        while !live.has_ended() {
            let jobs: Vec<_> = live.jobs().into_iter().enumerate().rev().collect();
            for (place, job) in jobs {
                let carried = serde_json::to_string(&live.request().make(job, ropewalk_sim::run)).unwrap();
                live.take(place, serde_json::from_str(&carried).unwrap());
                looks += 1;
                if looks % 50 == 1 {
                    assert_eq!(live.comparison().interrupted, !live.has_ended());
                }
            }
        }
        live.comparison()
    }

    #[test]
    fn runs_made_elsewhere_in_any_order_give_the_answer_of_compare() {
        let lossy = ["a: 10 Mbit/s, 20 ms +-3 ms, 1 %", "b: 5 Mbit/s, 60 ms"];
        let still = ["a: 10 Mbit/s, 20 ms", "b: 5 Mbit/s, 60 ms"];
        for (paths, runs, budget) in [(lossy, Some(7), "1s"), (lossy, None, "50 ms"), (still, None, "1s")] {
            let request = request(paths, runs, budget);
            let once = compare(&request, ropewalk_sim::run, |_| {}, &AtomicBool::new(false));
            assert_eq!(made_elsewhere(request), once);
            assert!(once.rankings[0].rows[0].mean > 0.040, "{:?}", once.rankings[0].rows[0].mean);
        }
    }

    #[test]
    fn runs_that_nobody_asked_for_change_nothing() {
        let mut live = Live::new(request(["a: 10 Mbit/s, 20 ms", "b: 5 Mbit/s, 60 ms"], Some(1), "1s"));
        let run = live.request().make(live.jobs()[1], ropewalk_sim::run);
        assert!(!live.take(1, run.clone()) && !live.take(1, run.clone()) && !live.take(1000, run));
        assert!(live.share() < 0.2 && !live.has_ended());
    }
}
