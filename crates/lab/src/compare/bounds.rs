//! The difference between two candidates, with its bounds.
//!
//! A stratum is a workload that runs seeds of its own, or all workloads together where they share seeds. The
//! difference is the mean over the strata of the mean logarithm of the ratio of runs with the same seed. Its
//! variance is that of a stratified sample, with the degrees of freedom of Welch and Satterthwaite (Cochran,
//! "Sampling Techniques", 3rd edition 1977, 5.4).
//!
//! In a race 5 % is the probability that any statement is wrong. It is shared (Bonferroni):
//!
//! - 2 % for lower bounds, among all ordered pairs and all looks. The fastest is the one with the least mean,
//!   and luck may have made it so: such bounds must hold whichever it is.
//! - 1 % for upper bounds at the looks, and 2 % for those at the end, among one pair for each candidate but
//!   one. An upper bound of `i` over the fastest `r` is wrong if `X_i - X_r` comes out too small; that `r` is
//!   the fastest says that no `X_j - X_r` is below 0. These differences share `X_r`. Where their correlations
//!   aren't negative they are associated (Pitt 1982; Esary, Proschan and Walkup 1967), so that
//!   `P(wrong, r is the fastest) <= P(wrong) P(r is the fastest)`. Summed over `r`, each candidate costs one
//!   comparison, as with the best in Hsu ("Multiple Comparisons", 1996, chapter 4).
//! - The end has no share for looks: a candidate ends when its bound is tight, which depends on how much runs
//!   vary and not on their mean (Chow and Robbins 1965, intervals of fixed width).
//!
//! What happens in one run of twenty (a timeout), and makes it half as long again, moves a mean by 2 %. It
//! may not be in the first runs, which then seem to vary less than they do. In a race bounds are wider by
//! that much for a stratum that has few runs: fewer than 90 over the root of the number of strata, each of
//! which counts for less where there are several.

use std::collections::BTreeMap;

use super::design::Design;
use crate::stats;

/// Of all statements together.
const ERROR: f64 = 0.05;

/// Of this: lower bounds at all looks, upper bounds at all looks, upper bounds at the end.
const SHARES: [f64; 3] = [0.02, 0.01, 0.02];

/// What may happen in a run that hasn't been seen yet: it takes half as long again.
const EVENT: f64 = 1.5;

/// In how many of all runs.
const SHARE: f64 = 0.05;

/// Runs in which it has shown itself.
const SHOWN: f64 = 90.0;

/// Scores by stratum, candidate and number.
pub(crate) type Strata = [Vec<Vec<f64>>];

/// The quantiles' levels of one-sided bounds, and what may not have been seen yet.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Levels {
    /// Lower bounds at a look.
    pub lower: f64,
    /// Upper bounds at a look.
    pub upper: f64,
    /// Upper bounds at the end.
    pub last: f64,
    /// The logarithm of how much longer a run may take by what wasn't seen yet.
    pub event: f64,
}

impl Levels {
    /// Of so many candidates.
    pub(crate) fn of(design: Design, candidates: usize) -> Self {
        let others = candidates.saturating_sub(1).max(1) as f64;
        let ordered = others * candidates as f64;
        match design {
            Design::Fixed(_) => {
                let level = 1.0 - ERROR / ordered;
                Levels { lower: level, upper: level, last: level, event: 0.0 }
            }
            Design::Race { .. } => {
                let (looks, [lower, upper, last]) = (f64::from(design.looks()), SHARES);
                Levels {
                    lower: 1.0 - lower / ordered / looks,
                    upper: 1.0 - upper / others / looks,
                    last: 1.0 - last / others,
                    event: libm::log(EVENT),
                }
            }
        }
    }
}

/// How much longer one takes than another: a logarithm.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Gap {
    pub mean: f64,
    /// Standard error.
    error: f64,
    /// By how much what wasn't seen yet may move it.
    unseen: f64,
    /// Degrees of freedom, rounded down.
    degrees: u32,
    /// Pairs in the stratum with the fewest.
    pub pairs: usize,
}

impl Gap {
    /// `event`: as in [`Levels`].
    pub(crate) fn between(strata: &Strata, who: usize, other: usize, event: f64) -> Self {
        let weight = 1.0 / strata.len() as f64;
        let (mut mean, mut variance, mut squares, mut unseen) = (0.0, 0.0, 0.0, 0.0);
        let shown = SHOWN / libm::sqrt(strata.len() as f64);
        let mut pairs = usize::MAX;
        for of in strata {
            let gaps = gaps(of, who, other);
            let n = gaps.len();
            pairs = pairs.min(n);
            mean += weight * stats::mean(&gaps);
            if (n as f64) < shown {
                unseen += weight * SHARE * event;
            }
            if n > 1 {
                let sd = weight * stats::standard_deviation(&gaps);
                let part = sd * sd / n as f64;
                variance += part;
                squares += part * part / (n - 1) as f64;
            }
        }
        let least = pairs.saturating_sub(1).max(1);
        let degrees = match strata.len() {
            2.. if squares > 0.0 => ((variance * variance / squares) as u32).max(least as u32),
            _ => least as u32,
        };
        Gap { mean, error: libm::sqrt(variance), unseen, degrees, pairs }
    }
}

fn gaps(of: &[Vec<f64>], who: usize, other: usize) -> Vec<f64> {
    of[who].iter().zip(&of[other]).map(|(a, b)| a - b).collect()
}

/// At least as if the event had been in one of the runs: of a few that are alike it isn't known how much they
/// vary.
fn variance_of(gaps: &[f64], event: f64) -> f64 {
    let sd = stats::standard_deviation(gaps);
    f64::max(sd * sd, event * event / gaps.len().max(1) as f64)
}

/// The variance of the mean difference in a stratum.
pub(crate) fn variance_of_mean(of: &[Vec<f64>], who: usize, other: usize, event: f64) -> f64 {
    let gaps = gaps(of, who, other);
    variance_of(&gaps, event) / gaps.len().max(1) as f64
}

/// By stratum, the mean variance of these candidates' differences from `other`.
pub(crate) fn variances(strata: &Strata, who: &[usize], other: usize, event: f64) -> Vec<f64> {
    let of = |of: &Vec<Vec<f64>>| {
        let each = who.iter().map(|who| variance_of(&gaps(of, *who, other), event));
        stats::mean(&each.collect::<Vec<_>>())
    };
    strata.iter().map(of).collect()
}

/// Quantiles of Student's distribution. They take long to find, and most are asked for again.
#[derive(Default)]
pub(crate) struct Quantiles(BTreeMap<(u64, u32), f64>);

impl Quantiles {
    /// How far a bound at this level lies from the mean.
    pub(crate) fn reach(&mut self, level: f64, gap: &Gap) -> f64 {
        let find = || stats::t_quantile(level, f64::from(gap.degrees));
        *self.0.entry((level.to_bits(), gap.degrees)).or_insert_with(find) * gap.error + gap.unseen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_stratum_is_the_paired_t_interval_and_several_are_welch_s() {
        let scores = |values: &[f64]| vec![values.to_vec(), vec![0.0; values.len()]];
        let (a, b) = (scores(&[1.0, 2.0, 4.0, 5.0]), scores(&[10.0, 30.0]));
        let one = Gap::between(std::slice::from_ref(&a), 0, 1, 0.0);
        assert_eq!((one.mean, one.degrees, one.pairs), (3.0, 3, 4));
        assert!((one.error - libm::sqrt(10.0 / 3.0 / 4.0)).abs() < 1e-12);
        let two = Gap::between(&[a, b], 0, 1, 0.0);
        // Variances of the means: 10/12 and 100, a quarter of each.
        let (mean, variance) = (11.5, (10.0 / 12.0 + 100.0) / 4.0);
        assert!((two.mean - mean).abs() < 1e-12 && (two.error - libm::sqrt(variance)).abs() < 1e-12);
        assert_eq!((two.degrees, two.pairs), (1, 2));
    }

    #[test]
    fn runs_that_are_alike_may_have_missed_an_event() {
        let alike = |n: usize| vec![vec![1.0; n], vec![0.0; n]];
        let reach = |strata: &Strata| {
            let gap = Gap::between(strata, 0, 1, 0.4);
            assert_eq!((gap.mean, gap.error), (1.0, 0.0));
            Quantiles::default().reach(0.99, &gap)
        };
        assert!((reach(&[alike(89)]) - 0.02).abs() < 1e-12 && reach(&[alike(90)]) == 0.0);
        // With two workloads 64 runs of each.
        assert!((reach(&[alike(63), alike(64)]) - 0.01).abs() < 1e-12);
        assert!((variances(&[alike(20)], &[0], 1, 0.4)[0] - 0.16 / 20.0).abs() < 1e-12);
    }

    #[test]
    fn a_race_shares_what_a_single_look_has() {
        let race = Levels::of(Design::Race { segments: 1 }, 21);
        let fixed = Levels::of(Design::Fixed(30), 21);
        assert!((fixed.lower - (1.0 - 0.05 / 420.0)).abs() < 1e-15 && fixed.lower == fixed.last);
        assert!(race.lower > fixed.lower && race.last < fixed.last && race.upper > race.last);
        assert!(SHARES.iter().sum::<f64>() <= ERROR + 1e-12);
    }
}
