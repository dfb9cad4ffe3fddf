//! The fitter's own test on a paper: settings drawn from the priors make tables as if they were published,
//! and each is fitted. It counts how often the truth lies in the 80 % region, and how well the best setting
//! predicts the cells that the fit doesn't see.

use std::sync::atomic::AtomicBool;

use ropewalk_algorithms::Registries;
use ropewalk_lab::stats;

use super::PaperError;
use super::abc::{self, Effort, Particle, Prior};
use super::cells::Progress;
use super::fit::{FitRequest, Target, Tried, all, round};
use super::open::Tested;

/// What the fitter's own test found.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SelfTest {
    /// Settings that are numbers: how often the truth lies in the middle 80 % of the last population, and of
    /// how many.
    pub ranges: (usize, usize),
    /// Settings that are choices: how often the truth is among the likeliest values that make up 80 %, and of
    /// how many.
    pub choices: (usize, usize),
    /// By known setting: the distance of the best setting from the table that it was fitted to.
    pub fitted: Vec<f64>,
    /// By known setting: its distance from the cells that the fit doesn't see, and that of the setting as
    /// assumed.
    pub held_out: Vec<(f64, f64)>,
}

impl SelfTest {
    /// Share of all open settings with the truth in the 80 % region.
    pub fn coverage(&self) -> f64 {
        (self.ranges.0 + self.choices.0) as f64 / (self.ranges.1 + self.choices.1).max(1) as f64
    }

    /// In sum, as `fitted.toml` keeps it.
    pub fn sum(&self, command: &str) -> Tested {
        let mean = |values: &mut dyn Iterator<Item = f64>| round(stats::mean(&values.collect::<Vec<f64>>()));
        let (best, ruled) =
            (mean(&mut self.held_out.iter().map(|it| it.0)), mean(&mut self.held_out.iter().map(|it| it.1)));
        Tested {
            command: command.into(),
            known: self.fitted.len(),
            inside: (self.ranges.0 + self.choices.0, self.ranges.1 + self.choices.1),
            fitted: mean(&mut self.fitted.iter().copied()),
            held_out: (!self.held_out.is_empty()).then_some((best, ruled)),
        }
    }
}

/// Whether a setting's true value lies in the 80 % region of a population.
fn inside(prior: &Prior, population: &[Particle], place: usize, truth: f64) -> bool {
    match prior {
        Prior::Range => {
            let at = |p| abc::quantile(population, place, p);
            (at(0.1)..=at(0.9)).contains(&truth)
        }
        Prior::Choice(weights) => {
            let shares = abc::shares(population, place, weights.len());
            let own = shares[truth as usize];
            // The likelier values together leave room for this one.
            own > 0.0 && shares.iter().filter(|share| **share > own).sum::<f64>() < 0.8
        }
    }
}

/// Runs it with so many known settings. None if it was told to stop.
///
/// # Errors
/// What in the paper's files can't be run.
pub fn self_test(
    request: &FitRequest<'_>,
    known: usize,
    registries: &Registries,
    store: &Tried,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<Option<SelfTest>, PaperError> {
    let target = Target::new(request.paper, registries)?;
    let unseen = Target::held_out(request.paper, registries);
    let unknowns = &request.paper.unknowns;
    let priors = unknowns.priors();
    progress.total(known * request.budget, 0);
    let mut tested = SelfTest::default();
    for number in 0..known as u64 {
        let truth = abc::draw_one(&priors, request.seed + 7919 * (number + 1));
        let true_settings = unknowns.apply(&truth);
        // Other seeds than the fit's, as a paper's runs are other runs.
        let seed = request.seed + 31 * (number + 1);
        let table = target.simulate(&true_settings, seed, stop)?;
        let effort =
            Effort { population: request.population, budget: request.budget, seed: request.seed + number };
        let mut failed = None;
        let found = abc::search(&priors, effort, &mut |batch| match all(
            &target, batch, request, store, progress, stop,
        ) {
            Ok(measured) => Some(measured?.iter().map(|one| target.distance(one, &table)).collect()),
            Err(error) => {
                failed = Some(error);
                None
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        let Some(found) = found else { return Ok(None) };
        for (place, prior) in priors.iter().enumerate() {
            let counted = if *prior == Prior::Range { &mut tested.ranges } else { &mut tested.choices };
            counted.0 += usize::from(inside(prior, &found.population, place, truth[place]));
            counted.1 += 1;
        }
        tested.fitted.push(found.best.distance);
        if !unseen.cells.is_empty() {
            let held = unseen.simulate(&true_settings, seed, stop)?;
            let best = unseen.simulate(&unknowns.apply(&found.best.at), request.seed, stop)?;
            let ruled = unseen.simulate(&super::Settings::default(), request.seed, stop)?;
            tested.held_out.push((unseen.distance(&best, &held), unseen.distance(&ruled, &held)));
        }
        if stop.load(std::sync::atomic::Ordering::Relaxed) {
            return Ok(None);
        }
    }
    Ok(Some(tested))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_inside_if_the_likelier_ones_leave_room() {
        let one = |value: f64, weight: f64| Particle { at: vec![value], distance: 0.0, weight };
        let population = [one(0.0, 0.5), one(1.0, 0.35), one(2.0, 0.15)];
        let prior = Prior::Choice(vec![0.25; 4]);
        let found: Vec<bool> = (0..4).map(|value| inside(&prior, &population, 0, f64::from(value))).collect();
        assert_eq!(found, [true, true, false, false]);
        let spread: Vec<Particle> = (0..100).map(|n| one(f64::from(n) / 100.0, 0.01)).collect();
        assert!(inside(&Prior::Range, &spread, 0, 0.5) && !inside(&Prior::Range, &spread, 0, 0.95));
    }
}
