//! The advisor against scenarios that it was not built on: each has a truth, drawn at random, and what is
//! seen of it, which is off by as much as [`Doubt::default`] says. Advice on what is seen is held against the
//! truth.
//!
//! Truths: two or three paths, 2 to 200 Mbit/s and 10 to 400 ms (both uniform in the logarithm), jitter up to
//! a fifth of the round trip on half of them, loss of 0.01 to 2 % on half of them, queues of half to eight
//! bandwidth-delay products, downloads of 64 KiB to 4 MiB. A truth is written as `--path` reads it, so that
//! any of them can be looked at with `ropewalk compare`.
//!
//! Regret is measured against hindsight: the least time among all schedulers, opened on any path, and plain
//! TCP on every path, over the same seeds of the truth.

use std::sync::Arc;

use rand_pcg::Pcg64;
use ropewalk_algorithms::Registries;
use ropewalk_engine::congestion::DEFAULT_NAME;
use ropewalk_engine::registry::SpecError;
use ropewalk_engine::scheduler::BASELINE;
use ropewalk_sim::{Scenario, Workload};
use serde::{Deserialize, Serialize};

use super::belief::{Doubt, perturb, uniform};
use super::coverage::measure_path;
use super::effort::Effort;
use super::measure;
use super::question::{CERTAINTY, Question};
use super::run::{Candidate, Execution, Times, times};
use super::search::{advise, everyone, one, plain};
use crate::compare::{Design, PER_SECOND, System, Worth};
use crate::kept::Kept;
use crate::parallel::{Workers, run_jobs};
use crate::{scenario, stats};

/// Seeded runs of everyone in a truth.
const TRUTH_SEEDS: usize = 10;

/// Further ones of those that may be the fastest, of plain TCP and of what is recommended: one loss at a
/// flow's end makes a run three times as long, and decides a mean of ten.
const MORE_SEEDS: usize = 90;

/// How many of the schedulers may be the fastest.
const MAY_BE_FASTEST: usize = 4;

/// One scenario: the true paths, the advice, and its gain. Times are means in seconds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Case {
    /// The true paths, as `--path` reads them.
    pub paths: Vec<String>,
    /// The flow's size.
    pub bytes: u64,
    /// First seed of the runs in the truth.
    pub seed: u64,
    /// What was recommended.
    pub advice: String,
    /// Whether that is multipath.
    pub multipath: bool,
    /// Promised: expected time over that of plain TCP on the best path.
    pub expected: f64,
    /// And its interval of 90 %.
    pub interval: (f64, f64),
    /// Time of what was recommended.
    pub chosen: f64,
    /// The least time in hindsight.
    pub least: f64,
    /// Whose it is.
    pub best: String,
    /// Time of `linux` with cubic, opened on the path that looked best.
    pub linux: f64,
    /// The same, opened on the first path: the order of the paths is drawn as well.
    pub linux_first: f64,
    /// Of plain TCP on the path that looked best.
    pub tcp: f64,
    /// Of plain TCP on the path that is best.
    pub best_tcp: f64,
}

impl Case {
    /// Its time over that of plain TCP on the best path.
    fn gain(&self) -> f64 {
        self.chosen / self.best_tcp
    }
}

/// How it went.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SelfTest {
    /// Every scenario.
    pub cases: Vec<Case>,
}

impl SelfTest {
    /// Those of which this is true.
    pub fn count(&self, is: impl Fn(&Case) -> bool) -> usize {
        self.cases.iter().filter(|case| is(case)).count()
    }

    /// Those in which multipath was recommended.
    pub fn multipath(&self) -> usize {
        self.count(|case| case.multipath)
    }

    /// Those of them in which the true gain was inside the interval of 90 %.
    pub fn covered(&self) -> usize {
        self.count(|case| case.multipath && case.gain() >= case.interval.0 && case.gain() <= case.interval.1)
    }

    /// True time below the interval: faster than promised.
    pub fn faster(&self) -> usize {
        self.count(|case| case.multipath && case.gain() < case.interval.0)
    }

    /// Recommended multipath, and it was slower than plain TCP on the best path by more than 1 %.
    pub fn worse_than_tcp(&self) -> usize {
        self.count(|case| case.multipath && case.gain() > 1.01)
    }

    /// Recommended plain TCP, and multipath in hindsight was faster by more than 5 %.
    pub fn missed(&self) -> usize {
        self.count(|case| !case.multipath && case.least < 0.95 * case.best_tcp)
    }

    /// By scenario, a time over the least in hindsight, less 1.
    pub fn regret(&self, of: impl Fn(&Case) -> f64) -> Vec<f64> {
        self.cases.iter().map(|case| of(case) / case.least - 1.0).collect()
    }
}

/// How much each advice runs here: half a second of budget, no buffers and no turning points.
pub(super) const EFFORT: Effort = Effort { design: Design::Race { segments: PER_SECOND / 2 }, whole: false };

struct Draw(Pcg64);

impl Draw {
    fn between(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * uniform(&mut self.0)
    }

    /// Uniform in the logarithm.
    fn log(&mut self, least: f64, most: f64) -> f64 {
        libm::exp(self.between(libm::log(least), libm::log(most)))
    }

    fn half(&mut self) -> bool {
        uniform(&mut self.0) < 0.5
    }

    fn normal(&mut self) -> f64 {
        stats::normal_quantile(uniform(&mut self.0).clamp(1e-6, 1.0 - 1e-6))
    }

    /// As `--path` reads it.
    fn path(&mut self, name: &str) -> String {
        let rate = self.log(2.0, 200.0);
        let rtt = self.log(10.0, 400.0);
        let packets = (rate * rtt * 1e3 / 8.0 / 1500.0 * self.log(0.5, 8.0)).clamp(20.0, 20_000.0);
        let mut text = format!("{name}: {rate:.1} Mbit/s, {rtt:.0} ms");
        if self.half() {
            text += &format!(" +-{:.1} ms, jitter normal", rtt * self.between(0.02, 0.2));
        }
        if self.half() {
            text += &format!(", {:.2} %", self.log(0.01, 2.0));
        }
        text + &format!(", queue {packets:.0} packets")
    }
}

/// A truth, its paths as text, and what is seen of it.
fn draw(seed: u64) -> Result<(Scenario, Vec<String>, Scenario), SpecError> {
    let mut random = Draw(Pcg64::new(u128::from(seed), 0x5e1f));
    let count = if uniform(&mut random.0) < 0.7 { 2 } else { 3 };
    let texts: Vec<String> = ["a", "b", "c"].iter().take(count).map(|name| random.path(name)).collect();
    let paths = texts.iter().map(|text| scenario::path(text)).collect::<Result<Vec<_>, _>>();
    let paths = paths.map_err(|error| SpecError { message: error.message, span: (0, 0) })?;
    let mut truth = scenario::default_around(paths);
    truth.workload = Workload::Flow { bytes: random.log(65_536.0, 4_194_304.0) as u64 };
    let mut seen = truth.clone();
    for path in &mut seen.paths {
        let normal = [0; 4].map(|_| random.normal());
        perturb(path, &Doubt::default(), normal, 0.0);
    }
    Ok((truth, texts, seen))
}

/// Tests the advisor on so many scenarios; what is in the store isn't run again. Calls `each` with every one.
///
/// # Errors
/// If `linux` or a congestion control that is tried isn't registered.
pub fn self_test(
    registries: &Registries,
    scenarios: usize,
    seed: u64,
    store: &(dyn Kept<Case> + Sync),
    execution: Execution<'_>,
    mut each: impl FnMut(),
) -> Result<Option<SelfTest>, SpecError> {
    let mut found = SelfTest::default();
    for number in 0..scenarios as u64 {
        let key = store.key(&["advise", &seed.to_string(), &number.to_string()]);
        let case = match store.get(&key) {
            Some(case) => case.clone(),
            None => {
                let Some(case) = case(registries, seed, number, None, execution)? else { return Ok(None) };
                store.put(&key, &case);
                case
            }
        };
        found.cases.push(case);
        each();
    }
    Ok(Some(found))
}

/// Tests the advisor on pairs of links with these numbers, each measured by `ping -c 30` and `iperf3 -R` of
/// ten seconds, with the effort given. Pairs are spread over the threads; `each` is called with every one as
/// it is done.
///
/// # Errors
/// As [`self_test`].
pub fn measured_test(
    registries: &Registries,
    pairs: &[u64],
    seed: u64,
    effort: Effort,
    execution: Execution<'_>,
    each: impl Fn(u64, &Case) + Sync,
) -> Result<Option<SelfTest>, SpecError> {
    let alone = Execution { jobs: Workers::ONE, ..execution };
    let found = run_jobs(execution.jobs, pairs.len(), execution.stop, |index| {
        let number = pairs[index];
        match case(registries, seed, number, Some(effort), alone) {
            Ok(None) => None,
            Ok(Some(case)) => {
                each(number, &case);
                Some(Ok(case))
            }
            Err(error) => Some(Err(error)),
        }
    });
    let Some(found) = found.into_iter().collect::<Option<Vec<_>>>() else { return Ok(None) };
    Ok(Some(SelfTest { cases: found.into_iter().collect::<Result<_, _>>()? }))
}

/// One scenario; with `measured` a pair of links that are measured, and the effort. None if it was stopped.
fn case(
    registries: &Registries,
    seed: u64,
    number: u64,
    measured: Option<Effort>,
    execution: Execution<'_>,
) -> Result<Option<Case>, SpecError> {
    let (mut truth, mut paths, mut seen) = draw(seed.wrapping_add(number))?;
    if measured.is_some() {
        truth.paths.truncate(2);
        paths.truncate(2);
        seen.paths.truncate(2);
    }
    let bytes = if let Workload::Flow { bytes } = truth.workload { bytes } else { 0 };
    let mut doubts = vec![Doubt::default(); seen.paths.len()];
    let stated = measured.map(|_| seen.clone());
    if measured.is_some() {
        for (index, path) in truth.paths.iter().enumerate() {
            let files = measure_path(registries, path, (seed ^ number) << 4 | index as u64)?;
            let known = seen.paths[index].clone();
            let name = known.name.clone();
            let found = measure::refine(&name, Some(known), &files)
                .map_err(|error| SpecError { message: error.message, span: (0, 0) })?;
            (seen.paths[index], doubts[index]) = (found.path, found.doubt);
        }
    }
    let question = Question {
        workloads: vec![seen.workload.clone()],
        scenario: seen,
        schedulers: Vec::new(),
        doubts,
        stated,
        congestion: DEFAULT_NAME.into(),
        system: System::Ropewalk,
        worth: Worth::default(),
        certainty: CERTAINTY,
        effort: measured.unwrap_or(EFFORT),
        seed: seed.wrapping_mul(1000).wrapping_add(number * 7919),
    };
    let Some(answer) = advise(registries, &question, execution)? else { return Ok(None) };
    let truth = [Arc::new(truth)];
    let looked_best = truth[0].paths.iter().position(|path| path.name == answer.opens_on).unwrap_or(0);
    let mut all = Vec::new();
    for path in 0..truth[0].paths.len() {
        all.extend(everyone(registries, DEFAULT_NAME, path)?);
    }
    all.extend(plain(registries, &truth[0], DEFAULT_NAME, looked_best)?);
    all.push(one(registries, BASELINE, DEFAULT_NAME, looked_best)?);
    all.push(one(registries, BASELINE, DEFAULT_NAME, 0)?);
    all.push(answer.use_this.clone());
    let truth_seed = seed.wrapping_add(number << 8).wrapping_add(3 << 40);
    let Some(first) = times(&truth, &all, truth_seed, TRUTH_SEEDS, execution) else { return Ok(None) };
    let all = may_be_fastest(all, &first);
    let mut sums: Vec<f64> = all.iter().map(|(who, _)| first.of(0, *who).iter().sum()).collect();
    let all: Vec<Candidate> = all.into_iter().map(|(_, one)| one).collect();
    let more_seed = truth_seed.wrapping_add(TRUTH_SEEDS as u64);
    let Some(more) = times(&truth, &all, more_seed, MORE_SEEDS, execution) else { return Ok(None) };
    for (who, sum) in sums.iter_mut().enumerate() {
        *sum += more.of(0, who).iter().sum::<f64>();
    }
    let mean = |index: usize| sums[index] / (TRUTH_SEEDS + MORE_SEEDS) as f64;
    let of = |wanted: &dyn Fn(&Candidate) -> bool| {
        let fitting = all.iter().enumerate().filter(|(_, one)| wanted(one));
        fitting.map(|(index, _)| mean(index)).fold(f64::INFINITY, f64::min)
    };
    let everybody = all.iter().enumerate().map(|(index, one)| (mean(index), one));
    let best = everybody.min_by(|a, b| a.0.total_cmp(&b.0));
    Ok(Some(Case {
        paths,
        bytes,
        seed: truth_seed,
        advice: answer.use_this.name(),
        multipath: !answer.use_this.is_tcp(),
        expected: answer.versus_tcp.ratio,
        interval: answer.versus_tcp.interval,
        chosen: mean(all.len() - 1),
        least: best.as_ref().map_or(f64::NAN, |(time, _)| *time),
        best: best.map_or(String::new(), |(_, one)| one.name()),
        linux: mean(all.len() - 3),
        linux_first: mean(all.len() - 2),
        tcp: of(&|one| one.label == format!("tcp {}", answer.best_path)),
        best_tcp: of(&Candidate::is_tcp),
    }))
}

/// Those that run on, with their places among all: plain TCP, the last three, and of the others those with
/// the least means.
fn may_be_fastest(all: Vec<Candidate>, first: &Times) -> Vec<(usize, Candidate)> {
    let named = all.len() - 3;
    let mut order: Vec<usize> = (0..named).filter(|who| !all[*who].is_tcp()).collect();
    order.sort_by(|a, b| first.mean(0, *a).total_cmp(&first.mean(0, *b)));
    order.truncate(MAY_BE_FASTEST);
    let runs_on = |who: &usize, one: &Candidate| *who >= named || one.is_tcp() || order.contains(who);
    all.into_iter().enumerate().filter(|(who, one)| runs_on(who, one)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truths_differ_and_what_is_seen_is_off() {
        let (truth, texts, seen) = draw(1).unwrap();
        assert_ne!(truth, seen);
        assert_eq!((truth.paths.len(), texts.len()), (seen.paths.len(), seen.paths.len()));
        assert_ne!(draw(1).unwrap().0, draw(2).unwrap().0);
        assert_eq!(draw(1).unwrap(), draw(1).unwrap());
        let three = (0..200).filter(|seed| draw(*seed).unwrap().0.paths.len() == 3).count();
        assert!((40..80).contains(&three), "{three}");
    }
}
