//! One candidate against another over the same seeds: a ratio, and what may be said of it. Comparisons with
//! the same candidate are a family, corrected for their number with Holm's method.

use std::collections::BTreeSet;

use crate::stats::{self, Ratio};

/// Fewer runs than this are shown but not compared: no test of so few pairs means anything.
pub const FEW: usize = 5;

/// What is beyond chance.
const LEVEL: f64 = 0.05;

/// What the runs say of a ratio.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Finding {
    /// Tested: the p-value, corrected for the number of comparisons in the family.
    Tested {
        /// Of no difference.
        p: f64,
    },
    /// All pairs have the same ratio, or nothing is random and fewer than [`FEW`] pairs differ from one
    /// another: much the same course of events again and again, which no test says anything of.
    Alike,
    /// Fewer runs than [`FEW`].
    TooFew,
}

/// How a candidate stands against another.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Versus {
    /// Both finished all their runs.
    Ratio {
        /// The geometric mean of the ratios of runs with the same seed.
        ratio: Ratio,
        /// What may be said of it.
        finding: Finding,
    },
    /// Not compared: so many runs of this one, and of the other, didn't finish.
    Unfinished {
        /// This one's.
        own: u32,
        /// The other's.
        other: u32,
    },
}

impl Versus {
    /// The ratio, if there is one that differs from 1 by more than chance.
    pub fn told(&self) -> Option<Ratio> {
        match self {
            Versus::Ratio { ratio, finding: Finding::Tested { p } } if *p < LEVEL => Some(*ratio),
            _ => None,
        }
    }

    /// The ratio, whatever may be said of it.
    pub fn ratio(&self) -> Option<Ratio> {
        match self {
            Versus::Ratio { ratio, .. } => Some(*ratio),
            Versus::Unfinished { .. } => None,
        }
    }
}

/// Of a test on the pairs, uncorrected. The greater of the bootstrap's and the t-test's, which errs where
/// pairs are few; where no resample was on the other side of 1, the bootstrap has reached the least that it
/// can say, and the t-test alone goes on.
fn raw(ratio: &Ratio) -> f64 {
    if ratio.p <= 1.0 / stats::RESAMPLES as f64 { ratio.t_p } else { ratio.p.max(ratio.t_p) }
}

/// The runs of all candidates, as they are compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runs<'a> {
    /// By candidate and seed.
    pub series: &'a [Vec<f64>],
    /// How many of each one's didn't finish.
    pub unfinished: &'a [u32],
    /// Whether runs draw anything at random.
    pub random: bool,
    /// Of the resampling.
    pub seed: u64,
}

/// How many of these differ from one another.
pub(super) fn distinct<T: Ord>(all: impl Iterator<Item = T>) -> usize {
    all.collect::<BTreeSet<T>>().len()
}

/// Each series against the one at `with`; none for itself and for those that are left out.
fn findings(runs: Runs<'_>, with: usize, left_out: impl Fn(usize) -> bool) -> Vec<Option<(Ratio, Finding)>> {
    let series = runs.series;
    let mut found: Vec<Option<(Ratio, Finding)>> = (0..series.len())
        .map(|who| {
            if who == with || left_out(who) {
                return None;
            }
            let ratio = stats::paired_ratio(&series[who], &series[with], runs.seed)?;
            let pairs = series[who].iter().zip(&series[with]).map(|(a, b)| (a.to_bits(), b.to_bits()));
            let repeat = !runs.random && distinct(pairs) < FEW;
            let finding = if ratio.n < FEW {
                Finding::TooFew
            } else if ratio.sd == 0.0 || repeat {
                Finding::Alike
            } else {
                Finding::Tested { p: raw(&ratio) }
            };
            Some((ratio, finding))
        })
        .collect();
    let mut tested: Vec<&mut f64> = found
        .iter_mut()
        .filter_map(|one| match one {
            Some((_, Finding::Tested { p })) => Some(p),
            _ => None,
        })
        .collect();
    let corrected = stats::holm(&tested.iter().map(|p| **p).collect::<Vec<_>>());
    for (p, corrected) in tested.iter_mut().zip(corrected) {
        **p = corrected;
    }
    found
}

/// The family of comparisons with the one at `with`.
pub(super) fn family(runs: Runs<'_>, with: usize) -> Vec<Option<Versus>> {
    let unfinished = runs.unfinished;
    let incomplete = |who: usize| unfinished[who] > 0 || unfinished[with] > 0;
    let found = findings(runs, with, incomplete);
    found
        .into_iter()
        .enumerate()
        .map(|(who, found)| match found {
            Some((ratio, finding)) => Some(Versus::Ratio { ratio, finding }),
            None if who == with => None,
            None => Some(Versus::Unfinished { own: unfinished[who], other: unfinished[with] }),
        })
        .collect()
}

/// Whether a ratio in `families` rankings is significant in its own direction, by the best of them.
pub(super) fn told_in_any(versus: &[Versus], faster: bool, families: usize) -> bool {
    versus.iter().any(|versus| match versus {
        Versus::Ratio { ratio, finding: Finding::Tested { p } } => {
            (ratio.ratio < 1.0) == faster && p * (families as f64) < LEVEL
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(center: f64, step: f64, n: usize) -> Vec<f64> {
        (0..n).map(|i| center * (1.0 + step * ((i * 7 % 5) as f64 - 2.0))).collect()
    }

    fn of<'a>(series: &'a [Vec<f64>], unfinished: &'a [u32]) -> Runs<'a> {
        Runs { series, unfinished, random: true, seed: 1 }
    }

    #[test]
    fn a_family_is_corrected_for_its_number() {
        // One that is nearly significant, alone and among nineteen like it.
        let base = vec![1.0; 10];
        let near: Vec<f64> = (0..10).map(|i| if i < 8 { 0.97 + 0.002 * i as f64 } else { 1.03 }).collect();
        let alone = family(of(&[base.clone(), near.clone()], &[0, 0]), 0);
        assert!(alone[0].is_none());
        let Some(Versus::Ratio { finding: Finding::Tested { p: single }, .. }) = alone[1] else { panic!() };
        let mut all = vec![base];
        all.extend(vec![near; 19]);
        let many = family(of(&all, &[0; 20]), 0);
        let Some(Versus::Ratio { finding: Finding::Tested { p }, .. }) = many[1] else { panic!() };
        assert!((p - (19.0 * single).min(1.0)).abs() < 1e-12, "{p} {single}");
    }

    #[test]
    fn few_runs_and_runs_that_are_alike_prove_nothing() {
        for (a, b, expected) in [
            (vec![2.0], vec![1.0], Finding::TooFew),
            (around(2.0, 0.01, 4), around(1.0, 0.02, 4), Finding::TooFew),
            (vec![2.0; 30], vec![1.0; 30], Finding::Alike),
        ] {
            let found = family(of(&[a.clone(), b.clone()], &[0, 0]), 1);
            let Some(versus @ Versus::Ratio { ratio, finding }) = found[0] else { panic!() };
            assert!(ratio.ratio > 1.9 && finding == expected && versus.told().is_none());
        }
        let clear = family(of(&[around(2.0, 0.01, 8), around(1.0, 0.02, 8)], &[0, 0]), 1);
        assert!(clear[0].unwrap().told().is_some());
    }

    #[test]
    fn without_randomness_two_courses_of_events_are_not_thirty() {
        let two: Vec<f64> = (0..30).map(|i| if i % 2 == 0 { 1.01 } else { 1.02 }).collect();
        let series = [two, vec![1.0; 30]];
        let still = Runs { random: false, ..of(&series, &[0, 0]) };
        let finding = |runs| match family(runs, 1)[0] {
            Some(Versus::Ratio { finding, .. }) => finding,
            _ => panic!(),
        };
        assert_eq!(finding(still), Finding::Alike);
        assert!(matches!(finding(of(&series, &[0, 0])), Finding::Tested { p } if p < 0.01));
    }

    #[test]
    fn runs_that_did_not_finish_are_in_no_ratio() {
        let found = family(of(&[vec![60.0; 8], around(1.0, 0.1, 8), vec![60.0; 8]], &[0, 0, 8]), 2);
        assert_eq!(found[0], Some(Versus::Unfinished { own: 0, other: 8 }));
        assert!(found[1].unwrap().ratio().is_none());
        let found = family(of(&[around(1.0, 0.1, 8), vec![60.0; 8]], &[0, 1]), 0);
        assert_eq!(found[1], Some(Versus::Unfinished { own: 1, other: 0 }));
    }
}
