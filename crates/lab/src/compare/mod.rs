//! `compare`: every candidate on the same paths with the same seeds, ranked by what its workload is judged
//! by.

mod allocate;
mod bounds;
mod decide;
mod design;
#[cfg(test)]
mod drawn;
pub mod live;
mod race;
mod rank;
mod request;
pub mod system;
mod verdict;
mod versus;
mod worth;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ropewalk_engine::congestion::CongestionControl;
use ropewalk_engine::registry::Spec;
use ropewalk_engine::scheduler::{BASELINE, Scheduler};
use ropewalk_engine::{SECOND, Span};
use ropewalk_settings::units;
use ropewalk_sim::{Mode, Outcome, PathManager, Recording, RunResult, RunSpec, Scenario, Workload};

use crate::parallel::Workers;
use crate::real_time::RealTime;
use crate::{bound, scenario};

use bounds::Levels;
pub(crate) use decide::Known;
use decide::{Cost, name, shown_slower};
pub use decide::{Decision, Ended, MARGIN, Standing, VersusFastest};
pub use design::{Design, EMULATED_RUNS, PER_SECOND};
pub use live::Live;
pub use race::Job;
pub(crate) use race::{Plan, Raced, race};
pub use rank::{PathPart, Ranking, Repeats, Row, Run};
pub use request::{request, transfers};
use system::is_tcp;
pub use system::{Merit, System};
pub use verdict::{Headline, Overall, headline, overall, verdict};
pub use versus::{FEW, Finding, Versus};
pub use worth::{NoSuchPath, USUAL as USUAL_WORTH, Worth, said as said_worth};

/// One that is compared.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its name in the table: `minrtt`, `tcp wifi`.
    pub label: String,
    /// Its scheduler.
    pub scheduler: Spec<dyn Scheduler>,
    /// Multipath, or plain TCP on a path.
    pub mode: Mode,
}

/// What to compare.
#[derive(Clone, Debug)]
pub struct Request {
    /// Where.
    pub scenario: Scenario,
    /// Workloads to go through, each a table of its own.
    pub workloads: Vec<Workload>,
    /// Who.
    pub candidates: Vec<Candidate>,
    /// Congestion control of all.
    pub congestion: Spec<dyn CongestionControl>,
    /// How many seeded runs each gets.
    pub design: Design,
    /// What bytes cost.
    pub worth: Worth,
    /// The first run's seed; the next have the next numbers. In a race the workloads take turns at them.
    pub seed: u64,
    /// Threads.
    pub jobs: Workers,
}

impl Request {
    fn scenario_with(&self, workload: &Workload) -> Arc<Scenario> {
        Arc::new(Scenario { workload: workload.clone(), ..self.scenario.clone() })
    }

    /// Whether each workload has seeds of its own: what is learnt of one is then independent of the others.
    fn is_apart(&self) -> bool {
        matches!(self.design, Design::Race { .. })
            && self.workloads.len() > 1
            && scenario::is_random(&self.scenario)
    }

    /// One run of one candidate in a scenario that has its workload.
    fn run_of(&self, scenario: Arc<Scenario>, workload: usize, number: u32, who: usize) -> RunSpec {
        let candidate = &self.candidates[who];
        let later = match self.is_apart() {
            true => u64::from(number) * self.workloads.len() as u64 + workload as u64,
            false => u64::from(number),
        };
        let start_phase = start_phase(&scenario, number, self.design.phases());
        RunSpec {
            scenario,
            scheduler: candidate.scheduler.clone(),
            congestion: self.congestion.clone(),
            mode: candidate.mode,
            seed: self.seed.wrapping_add(later),
            start_phase,
            recording: Recording::default(),
        }
    }

    /// The very run that a comparison did: the workload's place, the run's number from 0, the candidate's
    /// place.
    ///
    /// # Panics
    /// If there is no such workload or candidate.
    pub fn run_spec(&self, workload: usize, number: u32, who: usize) -> RunSpec {
        self.run_of(self.scenario_with(&self.workloads[workload]), workload, number, who)
    }

    /// A limit within which every healthy run ends: the scenario's, and ten times the least that the links of
    /// any candidate allow where that is more; a day at most.
    pub fn ample_limit(&self) -> Span {
        let mut limit = self.scenario.limit;
        for (place, workload) in self.workloads.iter().enumerate() {
            let times = match workload {
                Workload::Flow { .. } | Workload::Flows { .. } | Workload::Web { .. } => 1.0,
                Workload::RequestResponse { count, .. } => f64::from(*count),
                // These last as long as they say.
                Workload::Cbr { .. } | Workload::Bulk { .. } | Workload::Transfers(_) => continue,
            };
            for who in 0..self.candidates.len() {
                let Some(bound) = bound::of(&self.run_spec(place, 0, who)) else { continue };
                let ample = libm::ceil(10.0 * times * bound.window);
                if ample < 86_400.0 {
                    limit = limit.max(ample as u64 * SECOND);
                } else {
                    limit = limit.max(86_400 * SECOND);
                }
            }
        }
        limit
    }

    /// The place of the workload that a ranking is about.
    pub fn workload_of(&self, ranking: &Ranking) -> Option<usize> {
        let same = |workload: &Workload| {
            rank::describe_with_size(workload) == (ranking.title.clone(), ranking.bytes)
        };
        self.workloads.iter().position(same)
    }
}

/// The answer.
#[derive(Clone, PartialEq, Debug)]
pub struct Comparison {
    /// The scenario's name.
    pub scenario: String,
    /// The congestion control.
    pub congestion: String,
    /// How many runs each was to get.
    pub design: Design,
    /// Runs of the one with the most, in the workload with the most.
    pub runs: u32,
    /// First seed.
    pub seed: u64,
    /// Who is equal over all workloads, who is slower, and who is named; none if nothing was run.
    pub decision: Option<Decision>,
    /// One per workload.
    pub rankings: Vec<Ranking>,
    /// Interrupted: what is here is complete, but not all that was asked for.
    pub interrupted: bool,
    /// The limit of a run, seconds.
    pub limit: f64,
    /// With real packets: where; `None` in the simulator.
    pub real_time: Option<RealTime>,
    /// Whether the scenario draws anything at random.
    pub random: bool,
    /// What bytes cost.
    pub worth: Worth,
    /// On which path manager the result rests, in a sentence, if a link is down for long.
    pub rests_on: Option<String>,
}

impl Comparison {
    /// The limit, for people.
    pub fn limit_text(&self) -> String {
        lasting(self.limit)
    }

    /// What it means that runs are alike.
    pub fn alike(&self) -> &'static str {
        if self.random {
            "chance makes no difference in these runs, which are all alike"
        } else {
            "nothing is random here"
        }
    }

    /// Whether a run ended at the limit.
    pub fn is_cut_short(&self) -> bool {
        let runs = || self.rankings.iter().flat_map(|ranking| &ranking.rows).flat_map(|row| &row.each);
        runs().any(|run| run.outcome == Outcome::TimeLimit)
    }
}

/// A workload, for people: `one flow of 1 MiB`.
pub fn describe(workload: &Workload) -> String {
    rank::describe_with_size(workload).0
}

/// Seconds, for people: `60 s`.
pub fn lasting(seconds: f64) -> String {
    ropewalk_settings::units::write_duration(Span::from_nanos((seconds * 1e9).round() as u64))
}

/// Shift of a run's start. Without randomness, runs differ in the phase at which they start: spread over a
/// round trip, or, where a link follows a trace, over the trace. (Not where something else changes at a set
/// time: the start stays by it.) Where changes repeat, and none happens once, runs start all over the longest
/// period, with randomness too. `runs`: how many there will be; 0 if that isn't known, then any first 2^n of
/// them are spread evenly.
pub fn start_phase(scenario: &Scenario, number: u32, runs: u32) -> Span {
    let changes = || scenario::links(scenario).flat_map(|link| &link.changes);
    let once = changes().any(|change| change.every.is_none());
    let period = changes().filter_map(|change| change.every).max().filter(|_| !once);
    if scenario::is_random(scenario) && period.is_none() {
        return Span::ZERO;
    }
    let round_trips = scenario.paths.iter().map(|path| path.up.delay.saturating_add(path.down.delay));
    let mut span = round_trips.max().unwrap_or_default().max(period.unwrap_or_default());
    if changes().next().is_none() {
        span = scenario::traces(scenario).into_iter().map(|trace| trace.period()).fold(span, Span::max);
    }
    let (number, runs) = match runs {
        0 => (u64::from(number.reverse_bits()), 1 << 32),
        _ => (u64::from(number), u64::from(runs)),
    };
    // From when all of them repeat.
    let last = changes().map(|change| change.at.since_origin()).max();
    let from = last.filter(|_| period.is_some()).unwrap_or_default();
    let phase = u128::from(span.as_nanos()) * u128::from(number) / u128::from(runs);
    from.saturating_add(Span::from_nanos(phase as u64))
}

/// What a user means who gives paths and no size: a page of small objects, 1 MiB, and a long download.
pub fn usual_workloads() -> Vec<Workload> {
    // 40 objects of 2 to 32 KiB, 496 KiB in all, as a browser loads them: over six connections.
    let objects = (0..40).map(|number| 2048 << (number % 5)).collect();
    vec![
        Workload::Web { objects, connections: 6, request: 400, persistent: true },
        Workload::Flow { bytes: 1 << 20 },
        Workload::Flow { bytes: 16 << 20 },
    ]
}

/// Runs everything. `done` is called with each run: with 1, or in a race with its share of the budget; `stop`
/// ends early. The result doesn't depend on `jobs`.
pub fn compare(
    request: &Request,
    run: impl Fn(&RunSpec) -> RunResult + Sync,
    done: impl Fn(u64) + Sync,
    stop: &AtomicBool,
) -> Comparison {
    let scenarios: Vec<Arc<Scenario>> =
        request.workloads.iter().map(|workload| request.scenario_with(workload)).collect();
    let one = |workload: usize, number: u32, who: usize| {
        let spec = request.run_of(scenarios[workload].clone(), workload, number, who);
        let label = &request.candidates[who].label;
        let _told = OnPanic(format!(
            "run {number} of `{label}`, seed {}, {}",
            spec.seed,
            rank::describe_with_size(&spec.scenario.workload).0
        ));
        let result = run(&spec);
        Run::new(&spec, result, &request.worth)
    };
    let raced = race(plan(request), request.jobs, one, done, stop);
    comparison(request, &raced)
}

/// The race that a request asks for.
fn plan(request: &Request) -> Plan {
    let all = |is: fn(&Candidate) -> bool| -> Vec<usize> {
        (0..request.candidates.len()).filter(|who| is(&request.candidates[*who])).collect()
    };
    let is_linux = |one: &Candidate| !is_tcp(one) && one.scheduler.text == BASELINE;
    Plan {
        workloads: request.workloads.len(),
        candidates: request.candidates.len(),
        controls: vec![all(is_tcp), all(is_linux)],
        apart: request.is_apart(),
        rest: true,
        design: request.design,
        random: scenario::is_random(&request.scenario),
        limit: request.scenario.limit.as_secs_f64(),
    }
}

/// The answer that the runs give.
fn comparison(request: &Request, raced: &Raced) -> Comparison {
    let Plan { random, limit, .. } = plan(request);
    let times = raced.runs.iter().flatten().flatten().map(|run| run.seconds.unwrap_or(limit));
    let longest = times.fold(0.0, f64::max);
    let decision = conclude(request, raced, random, limit, &Known::default());
    let runs = decision.as_ref().map_or(0, Decision::most_runs);
    let rankings = request
        .workloads
        .iter()
        .zip(&raced.runs)
        .map(|(workload, runs)| rank::rank(request, workload, runs))
        .filter(|ranking| !ranking.rows.is_empty())
        .collect();
    Comparison {
        scenario: request.scenario.name.clone(),
        congestion: request.congestion.text.clone(),
        design: request.design,
        runs,
        seed: request.seed,
        decision,
        rankings,
        interrupted: raced.ended == Ended::Interrupted,
        limit,
        real_time: None,
        random,
        worth: request.worth.clone(),
        rests_on: rests_on(&request.scenario, longest),
    }
}

/// Says which run it was, should it panic: a scheduler of one's own may.
struct OnPanic(String);

impl Drop for OnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "in {}", self.0);
        }
    }
}

/// Which path manager decides when a link that was down for long is used again, if the scenario has one.
fn rests_on(scenario: &Scenario, longest: f64) -> Option<String> {
    let (path, from, lasts) = ropewalk_sim::long_outage(scenario)?;
    // What happens after the longest run is no matter.
    let longest = match scenario.workload {
        Workload::Cbr { duration, .. } | Workload::Bulk { duration } => duration.as_secs_f64(),
        Workload::RequestResponse { count, .. } => longest * f64::from(count),
        _ => longest,
    };
    if from.as_secs_f64() > scenario.warmup.as_secs_f64() + longest {
        return None;
    }
    let (name, how, other) = match scenario.client.path_manager {
        PathManager::Ropewalk => {
            ("ropewalk", "it is left, and used again once it answers, as `ropewalkd proxy` does", "linux")
        }
        PathManager::Linux => ("linux", "its subflow stays until it times out, as Linux has it", "ropewalk"),
    };
    let lasts = lasts.map_or("for good".into(), |lasts| format!("for {}", units::write_duration(lasts)));
    Some(format!(
        "This rests on the path manager: {} is down {lasts}, and with `ends.path-manager = \"{name}\"` \
         {how}; try `\"{other}\"`",
        path.name
    ))
}

/// What the runs say of the request's candidates; none without runs. `limit`: seconds that an unfinished run
/// counts as.
pub(crate) fn conclude(
    request: &Request,
    raced: &Raced,
    random: bool,
    limit: f64,
    known: &Known<'_>,
) -> Option<Decision> {
    let counts = raced.counts();
    let runs = counts.iter().copied().min().filter(|runs| *runs > 0)?;
    let stands = raced.standings(request.design, random, limit);
    let (strata, levels) = (raced.strata(limit), Levels::of(request.design, request.candidates.len()));
    let labels = request.candidates.iter().map(|candidate| candidate.label.clone());
    let delivered = |workload: &Workload| rank::describe_with_size(workload).1;
    let costs: Vec<Cost> = (0..request.candidates.len())
        .map(|who| {
            // Of the sizes that are known; others count by what the paths carried.
            let share = |(workload, runs): (&Workload, &Vec<Vec<Run>>)| {
                let (mut repeated, mut all) = (0.0, 0.0);
                for run in &runs[who] {
                    repeated += run.repeated as f64;
                    let carried = run.paths.iter().map(|part| part.bytes).sum::<f64>();
                    all += delivered(workload).map_or(carried, |bytes| bytes as f64);
                }
                repeated / f64::max(all, 1.0)
            };
            let shares: Vec<f64> = request.workloads.iter().zip(&raced.runs).map(share).collect();
            Cost { repeated: crate::stats::mean(&shares) }
        })
        .collect();
    let enough = runs as usize >= FEW || !random;
    let finished = |who: &usize| raced.runs.iter().any(|of| of[*who].iter().any(|run| run.seconds.is_some()));
    let is_slower = |slow, fast| shown_slower(&strata, slow, fast, levels, random);
    let named = name(&request.candidates, &stands, &costs, known, is_slower);
    let named = named.filter(|who| enough && finished(who));
    let fastest = stands.iter().position(|stand| stand.ratio == 1.0 && stand.interval.is_none());
    Some(Decision {
        named: named
            .map(|who| (request.candidates[who].label.clone(), known.system.merit(&request.candidates[who]))),
        fastest: fastest.map(|who| request.candidates[who].label.clone()),
        stands: labels.zip(stands).collect(),
        ended: raced.ended,
        used: raced.used,
        runs: counts,
    })
}

#[cfg(test)]
mod tests {
    use ropewalk_engine::Time;
    use ropewalk_link::{Change, RateTrace};
    use ropewalk_sim::{Background, Direction, networks};

    use ropewalk_link::{ChangeAction, Loss, Rate};
    use ropewalk_sim::Traffic;

    use super::*;

    const MS: Span = Span::from_millis(1);

    #[test]
    fn without_randomness_runs_start_at_different_times() {
        let plain = networks::two_equal(10_000_000, 20 * MS);
        assert_eq!(start_phase(&plain, 3, 4), 30 * MS);
        let mut noisy = plain.clone();
        noisy.paths[1].down.loss = Loss::Bernoulli(0.1);
        assert_eq!(start_phase(&noisy, 3, 4), Span::ZERO);
        // A competitor that always has data is at another place of its saw-tooth.
        let mut beside = plain.clone();
        beside.background.push(Background {
            path: 0,
            direction: Direction::Download,
            traffic: Traffic::TcpSaturated { congestion: "reno".into() },
            extra_delay: Span::ZERO,
            start: Time::ZERO,
            stop: None,
        });
        assert_eq!(start_phase(&beside, 3, 4), 30 * MS);
    }

    #[test]
    fn runs_over_a_trace_start_all_over_it() {
        let mut traced = networks::two_equal(10_000_000, 20 * MS);
        let trace = RateTrace::new("t", vec![1, 500, 8000]);
        traced.paths[0].down.rate = Rate::Trace(Arc::new(trace));
        assert_eq!(start_phase(&traced, 3, 4), 6000 * MS);
        // So do runs over changes that repeat, random or not.
        let mut repeating = networks::two_equal(10_000_000, 20 * MS);
        let outage =
            Change { at: Time::ZERO + 15_000 * MS, action: ChangeAction::Down, every: Some(15_000 * MS) };
        repeating.paths[1].down.changes = vec![outage];
        repeating.paths[0].down.loss = Loss::Bernoulli(0.01);
        assert_eq!(start_phase(&repeating, 1, 4), 18_750 * MS);
        let first = [0, 1, 2, 3].map(|number| start_phase(&repeating, number, 0) / MS);
        assert_eq!(first, [15_000, 22_500, 18_750, 26_250]);
        // What happens at a set time stays where it is for the transfer.
        traced.paths[1].down.changes = vec![Change::once(Time::ZERO + 500 * MS, ChangeAction::Down)];
        assert_eq!(start_phase(&traced, 3, 4), 30 * MS);
    }
}
