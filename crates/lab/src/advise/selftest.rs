//! The advisor against scenarios that it was not built on: each has a truth, drawn at random, and what is seen of it,
//! which is off by as much as [`Doubt::default`] says. Advice on what is seen is held against the truth.
//!
//! Truths: two or three paths, 2 to 200 Mbit/s and 10 to 400 ms (both uniform in the logarithm), jitter up to a fifth of
//! the round trip on half of them, loss of 0.01 to 2 % on half of them, queues of half to eight bandwidth-delay
//! products, downloads of 64 KiB to 4 MiB.
//!
//! Regret is measured against hindsight: the least time among all schedulers and plain TCP on every path, the best three
//! also with the other congestion controls, over the same seeds of the truth.

use std::sync::Arc;

use rand_pcg::Pcg64;
use ropewalk_engine::registry::SpecError;
use ropewalk_link::{Jitter, JitterShape, LinkSpec, Loss};
use ropewalk_sim::{PathSpec, Scenario, Workload};

use super::belief::{Doubt, perturb, uniform};
use super::run::{Candidate, Hands, times};
use super::search::{Effort, Question, advise, everyone, one, with_others};
use crate::{Registries, scenario, stats};

/// Seeded runs of everyone in a truth.
const TRUTH_SEEDS: usize = 10;

/// How it went.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SelfTest {
    /// Scenarios.
    pub scenarios: usize,
    /// Those in which multipath was recommended.
    pub multipath: usize,
    /// Those of them in which the true gain was inside the interval of 90 %.
    pub covered: usize,
    /// True gain below the interval (faster than promised).
    pub faster: usize,
    /// Recommended multipath, and it was slower than plain TCP on the best path by more than 1 %.
    pub worse_than_tcp: usize,
    /// Recommended plain TCP, and multipath in hindsight was faster by more than 5 %.
    pub missed: usize,
    /// By scenario: time over the best in hindsight, less 1.
    pub regret: Vec<f64>,
    /// The same of always using `linux`.
    pub regret_own: Vec<f64>,
    /// The same of always using plain TCP on the path that looked best.
    pub regret_tcp: Vec<f64>,
}

/// How much each advice runs here: no buffers and no turning points, since nothing here asks for them.
pub(super) const EFFORT: Effort = Effort {
    choose_worlds: 10,
    choose_seeds: 2,
    judge_worlds: 40,
    judge_seeds: 2,
    finalists: 3,
    whole: false,
};

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

    fn path(&mut self, name: &str) -> PathSpec {
        let rate = self.log(2e6, 200e6);
        let rtt = self.log(10e6, 400e6);
        let packets = (rate * rtt / 8e9 / 1500.0 * self.log(0.5, 8.0)).clamp(20.0, 20_000.0);
        let mut link = LinkSpec::plain(rate as u64, (rtt / 2.0) as u64, packets as u32);
        if self.half() {
            let spread = (rtt / 2.0 * self.between(0.02, 0.2)) as u64;
            link.jitter = Some(Jitter { spread, shape: JitterShape::Normal, keeps_order: true });
        }
        if self.half() {
            link.loss = Loss::Bernoulli(self.log(0.0001, 0.02));
        }
        PathSpec {
            name: name.to_string(),
            up: link.clone(),
            down: link,
            mtu: 1500,
            backup: false,
            bottleneck: None,
        }
    }
}

/// A truth, and what is seen of it.
fn draw(seed: u64) -> (Scenario, Scenario) {
    let mut random = Draw(Pcg64::new(u128::from(seed), 0x5e1f));
    let count = if uniform(&mut random.0) < 0.7 { 2 } else { 3 };
    let paths: Vec<PathSpec> = ["a", "b", "c"].iter().take(count).map(|name| random.path(name)).collect();
    let mut truth = scenario::default_around(paths);
    truth.workload = Workload::Flow { bytes: random.log(65_536.0, 4_194_304.0) as u64 };
    let mut seen = truth.clone();
    for path in &mut seen.paths {
        let normal = [0; 4].map(|_| random.normal());
        perturb(path, &Doubt::default(), normal, 0.0);
    }
    (truth, seen)
}

/// Tests the advisor on so many scenarios; `each` hears of every one. None if it was stopped.
///
/// # Errors
/// If `linux` or a congestion control that is tried isn't registered.
pub fn self_test(
    registries: &Registries,
    scenarios: usize,
    seed: u64,
    hands: Hands<'_>,
    mut each: impl FnMut(),
) -> Result<Option<SelfTest>, SpecError> {
    let mut found = SelfTest { scenarios, ..SelfTest::default() };
    for number in 0..scenarios as u64 {
        let (truth, seen) = draw(seed.wrapping_add(number));
        let doubts = vec![Doubt::default(); seen.paths.len()];
        let question = Question {
            scenario: seen,
            doubts,
            congestion: None,
            effort: EFFORT,
            seed: seed.wrapping_mul(1000).wrapping_add(number * 7919),
        };
        let Some(answer) = advise(registries, &question, hands)? else { return Ok(None) };
        let truth = [Arc::new(truth)];
        let mut all = everyone(registries, &truth[0], "cubic")?;
        let own = one(registries, "linux", "cubic")?.name();
        all.push(answer.use_this.clone());
        let truth_seed = seed.wrapping_add(number << 8).wrapping_add(3 << 40);
        let Some(first) = times(&truth, &all, truth_seed, TRUTH_SEEDS, hands) else { return Ok(None) };
        let mean = |index: usize| first.mean(0, index);
        let chosen = mean(all.len() - 1);
        let of = |wanted: &dyn Fn(&Candidate) -> bool| {
            let fitting = all.iter().enumerate().filter(|(_, one)| wanted(one));
            fitting.map(|(index, _)| mean(index)).fold(f64::INFINITY, f64::min)
        };
        let least_tcp = of(&Candidate::is_tcp);
        let looked_best = of(&|one| one.label == format!("tcp {}", answer.best_path));
        let mut order: Vec<usize> = (0..all.len()).filter(|index| !all[*index].is_tcp()).collect();
        order.sort_by(|a, b| mean(*a).total_cmp(&mean(*b)));
        let top: Vec<Candidate> = order.iter().take(3).map(|index| all[*index].clone()).collect();
        let others = with_others(registries, &top)?;
        let Some(second) = times(&truth, &others, truth_seed, TRUTH_SEEDS, hands) else { return Ok(None) };
        let least = (0..others.len()).map(|index| second.mean(0, index)).fold(of(&|_| true), f64::min);
        found.regret.push(chosen / least - 1.0);
        found.regret_own.push(of(&|one| one.name() == own) / least - 1.0);
        found.regret_tcp.push(looked_best / least - 1.0);
        if answer.use_this.is_tcp() {
            found.missed += usize::from(least < 0.95 * least_tcp);
        } else {
            let gain = chosen / least_tcp;
            let (low, high) = answer.versus_tcp.interval;
            found.multipath += 1;
            found.covered += usize::from(gain >= low && gain <= high);
            found.faster += usize::from(gain < low);
            found.worse_than_tcp += usize::from(gain > 1.01);
        }
        each();
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truths_differ_and_what_is_seen_is_off() {
        let (truth, seen) = draw(1);
        assert_ne!(truth, seen);
        assert_eq!(truth.paths.len(), seen.paths.len());
        assert_ne!(draw(1).0, draw(2).0);
        assert_eq!(draw(1), draw(1));
        let three = (0..200).filter(|seed| draw(*seed).0.paths.len() == 3).count();
        assert!((40..80).contains(&three), "{three}");
    }
}
