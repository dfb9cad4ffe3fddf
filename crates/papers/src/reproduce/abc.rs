//! Approximate Bayesian computation with populations that narrow (population Monte Carlo: Beaumont, Cornuet,
//! Marin and Robert, Biometrika 96(4), 2009), over settings that are numbers in [0, 1] or choices.

use rand_core::Rng;
use rand_pcg::Pcg64;

/// A setting's prior: uniform over [0, 1], or a choice with weights that add up to 1.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Prior {
    Range,
    Choice(Vec<f64>),
}

/// How long to search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Settings in a population.
    pub(super) population: usize,
    /// Settings to try.
    pub(super) budget: usize,
    pub(super) seed: u64,
}

/// A setting that was tried.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Particle {
    pub(super) at: Vec<f64>,
    pub(super) distance: f64,
    /// Importance; a population's add up to 1.
    pub(super) weight: f64,
}

/// What a search found.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Found {
    /// The last complete population.
    pub(super) population: Vec<Particle>,
    /// The least distance of all that were tried.
    pub(super) best: Particle,
    /// Largest distance in each population.
    pub(super) thresholds: Vec<f64>,
    /// All settings that were tried; their weights mean nothing.
    pub(super) tried: Vec<Particle>,
}

/// A choice stays as it is this often when it is perturbed.
const STAYS: f64 = 0.7;
/// Tried together; fixed, so that the result doesn't depend on the number of threads.
const BATCH: usize = 32;

struct Dice(Pcg64);

impl Dice {
    /// In (0, 1).
    fn unit(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let (radius, angle) = (self.unit(), self.unit());
        libm::sqrt(-2.0 * libm::log(radius)) * libm::cos(std::f64::consts::TAU * angle)
    }

    fn pick(&mut self, weights: impl Iterator<Item = f64>) -> usize {
        let mut left = self.unit();
        let mut last = 0;
        for (index, weight) in weights.enumerate() {
            if weight > 0.0 {
                last = index;
            }
            left -= weight;
            if left <= 0.0 {
                return index;
            }
        }
        last
    }
}

fn draw(priors: &[Prior], dice: &mut Dice) -> Vec<f64> {
    let one = |prior: &Prior| match prior {
        Prior::Range => dice.unit(),
        Prior::Choice(weights) => dice.pick(weights.iter().copied()) as f64,
    };
    priors.iter().map(one).collect()
}

/// A setting drawn from the priors.
pub(super) fn draw_one(priors: &[Prior], seed: u64) -> Vec<f64> {
    draw(priors, &mut Dice(Pcg64::new(u128::from(seed), 0x7a3d)))
}

/// Twice the weighted variance of each range (Beaumont et al. 2.2).
fn spreads(priors: &[Prior], population: &[Particle]) -> Vec<f64> {
    let of = |place: usize| {
        let mean: f64 = population.iter().map(|one| one.weight * one.at[place]).sum();
        let variance: f64 =
            population.iter().map(|one| one.weight * (one.at[place] - mean) * (one.at[place] - mean)).sum();
        libm::sqrt(2.0 * variance).max(1e-3)
    };
    priors
        .iter()
        .enumerate()
        .map(|(place, prior)| if *prior == Prior::Range { of(place) } else { 0.0 })
        .collect()
}

fn perturb(priors: &[Prior], from: &[f64], spreads: &[f64], dice: &mut Dice) -> Vec<f64> {
    let mut next = Vec::with_capacity(from.len());
    for ((prior, value), spread) in priors.iter().zip(from).zip(spreads) {
        next.push(match prior {
            Prior::Range => value + spread * dice.normal(),
            Prior::Choice(_) if dice.unit() < STAYS => *value,
            Prior::Choice(weights) => dice.pick(weights.iter().copied()) as f64,
        });
    }
    next
}

/// Density of the step between two settings, and of the prior; constant factors left out.
fn step(priors: &[Prior], from: &[f64], to: &[f64], spreads: &[f64]) -> f64 {
    let mut density = 1.0;
    for (place, prior) in priors.iter().enumerate() {
        density *= match prior {
            Prior::Range => {
                let z = (to[place] - from[place]) / spreads[place];
                libm::exp(-0.5 * z * z)
            }
            Prior::Choice(weights) => {
                let stays = if from[place] == to[place] { STAYS } else { 0.0 };
                stays + (1.0 - STAYS) * weights[to[place] as usize]
            }
        };
    }
    density
}

/// A setting's density in the prior, but for a constant factor.
pub(super) fn prior_density(priors: &[Prior], at: &[f64]) -> f64 {
    let of = |(prior, value): (&Prior, &f64)| match prior {
        Prior::Range => 1.0,
        Prior::Choice(weights) => weights[*value as usize],
    };
    priors.iter().zip(at).map(of).product()
}

fn normalise(population: &mut [Particle]) {
    let sum: f64 = population.iter().map(|one| one.weight).sum();
    for one in population {
        one.weight /= sum;
    }
}

/// How far each of a batch is from the data; nothing if the search was told to stop.
pub(super) type Distances<'a> = dyn FnMut(&[Vec<f64>]) -> Option<Vec<f64>> + 'a;

/// Searches. `distances` says how far each of a batch is from the data, or nothing if it was told to stop.
pub(super) fn search(priors: &[Prior], effort: Effort, distances: &mut Distances<'_>) -> Option<Found> {
    let mut dice = Dice(Pcg64::new(u128::from(effort.seed), 0xabc));
    let wanted = effort.population.clamp(2, effort.budget.max(2));
    // The first population: the better half of so many from the prior.
    let mut first = Vec::new();
    while first.len() < (2 * wanted).min(effort.budget.max(wanted)) {
        let batch: Vec<_> = (0..BATCH).map(|_| draw(priors, &mut dice)).collect();
        let found = distances(&batch)?;
        let particle = |(at, distance)| Particle { at, distance, weight: 1.0 };
        first.extend(batch.into_iter().zip(found).map(particle));
    }
    let mut tried = first.clone();
    first.sort_by(|a, b| a.distance.total_cmp(&b.distance));
    first.truncate(wanted);
    normalise(&mut first);
    let mut population = first;
    let mut best = population[0].clone();
    let mut thresholds = vec![population[wanted - 1].distance];
    while tried.len() < effort.budget {
        let mut sorted: Vec<f64> = population.iter().map(|one| one.distance).collect();
        sorted.sort_by(f64::total_cmp);
        let threshold = sorted[sorted.len() / 2];
        let spreads = spreads(priors, &population);
        let mut next: Vec<Particle> = Vec::new();
        while next.len() < wanted && tried.len() < effort.budget {
            let mut batch = Vec::with_capacity(BATCH);
            while batch.len() < BATCH {
                let parent = dice.pick(population.iter().map(|one| one.weight));
                let at = perturb(priors, &population[parent].at, &spreads, &mut dice);
                let inside =
                    |(prior, value): (&Prior, &f64)| *prior != Prior::Range || (0.0..=1.0).contains(value);
                if priors.iter().zip(&at).all(inside) {
                    batch.push(at);
                }
            }
            let found = distances(&batch)?;
            for (at, distance) in batch.into_iter().zip(found) {
                tried.push(Particle { at: at.clone(), distance, weight: 0.0 });
                if distance < best.distance {
                    best = Particle { at: at.clone(), distance, weight: 0.0 };
                }
                if distance <= threshold && next.len() < wanted {
                    let reached: f64 =
                        population.iter().map(|one| one.weight * step(priors, &one.at, &at, &spreads)).sum();
                    let weight = prior_density(priors, &at) / reached.max(1e-300);
                    next.push(Particle { at, distance, weight });
                }
            }
        }
        if next.len() < wanted {
            break;
        }
        normalise(&mut next);
        population = next;
        thresholds.push(threshold);
    }
    Some(Found { population, best, thresholds, tried })
}

/// The weighted quantile of a range over a population.
pub(super) fn quantile(population: &[Particle], place: usize, p: f64) -> f64 {
    let mut sorted: Vec<(f64, f64)> = population.iter().map(|one| (one.at[place], one.weight)).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut sum = 0.0;
    for (value, weight) in &sorted {
        sum += weight;
        if sum >= p {
            return *value;
        }
    }
    sorted.last().map_or(0.0, |last| last.0)
}

/// The weight of each value of a choice over a population.
pub(super) fn shares(population: &[Particle], place: usize, values: usize) -> Vec<f64> {
    let mut found = vec![0.0; values];
    for one in population {
        found[one.at[place] as usize] += one.weight;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of six numbers from a rate, a delay and a choice; with noise of 5 %.
    fn table(at: &[f64], dice: &mut Dice) -> Vec<f64> {
        let (delay, rate) = (0.1 + at[0], 1.0 + 9.0 * at[1]);
        let round_trips = if at[2] == 0.0 { 2.0 } else { 4.0 };
        [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
            .iter()
            .map(|size| (round_trips * delay + size / rate) * (1.0 + 0.05 * dice.normal()))
            .collect()
    }

    fn distance(a: &[f64], b: &[f64]) -> f64 {
        let squares = a.iter().zip(b).map(|(a, b)| libm::log(a / b) * libm::log(a / b));
        libm::sqrt(squares.sum::<f64>() / a.len() as f64)
    }

    fn priors() -> Vec<Prior> {
        vec![Prior::Range, Prior::Range, Prior::Choice(vec![0.5, 0.5])]
    }

    fn fit(data: &[f64], seed: u64, budget: usize) -> Found {
        let mut dice = Dice(Pcg64::new(u128::from(seed), 5));
        let effort = Effort { population: 100, budget, seed };
        let mut distances =
            |batch: &[Vec<f64>]| Some(batch.iter().map(|at| distance(&table(at, &mut dice), data)).collect());
        search(&priors(), effort, &mut distances).unwrap()
    }

    #[test]
    fn populations_narrow_and_the_same_seed_finds_the_same() {
        let data = table(&[0.3, 0.6, 1.0], &mut Dice(Pcg64::new(1, 1)));
        let found = fit(&data, 3, 3000);
        assert!(found.thresholds.windows(2).all(|pair| pair[1] < pair[0]), "{:?}", found.thresholds);
        assert!(found.best.distance < 0.1 && found.tried.len() >= 3000);
        assert_eq!(found, fit(&data, 3, 3000));
        assert!(search(&priors(), Effort { population: 9, budget: 99, seed: 1 }, &mut |_| None).is_none());
    }

    /// From 40 known settings make tables, fit each, and count how often the truth lies in the middle 80 %.
    #[test]
    fn the_truth_is_in_the_80_percent_region_at_least_as_often() {
        let mut inside = 0;
        for number in 0..40 {
            let truth = draw_one(&priors(), 1000 + number);
            let data = table(&truth, &mut Dice(Pcg64::new(u128::from(number), 77)));
            let found = fit(&data, number, 3000);
            for place in [0, 1] {
                let low = quantile(&found.population, place, 0.1);
                let high = quantile(&found.population, place, 0.9);
                inside += u32::from((low..=high).contains(&truth[place]));
            }
        }
        // 64 of 80 expected. Accepting what is near, not equal, widens the region: it errs on the safe side,
        // never below 70 %.
        assert!((56..80).contains(&inside), "{inside} of 80");
    }

    #[test]
    fn a_choice_gets_its_weight() {
        let data = table(&[0.8, 0.9, 1.0], &mut Dice(Pcg64::new(4, 4)));
        let shares = shares(&fit(&data, 1, 3000).population, 2, 2);
        assert!((shares[0] + shares[1] - 1.0).abs() < 1e-9 && shares[1] > 0.8, "{shares:?}");
    }
}
