//! One candidate against another over the same seeds, on the logarithm of the ratio: what makes a run slow (a
//! loss at a bad moment) is the same for both, and cancels.

use super::bootstrap::{RESAMPLES, resampled_means};
use super::describe::{mean, quantile, standard_deviation};
use super::special::t_cdf;

/// How one candidate compares with another over the same seeds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ratio {
    /// Geometric mean of a / b.
    pub ratio: f64,
    /// Its 95 % interval, where the pairs differ at all.
    pub interval: Option<(f64, f64)>,
    /// Two-sided p-value: how often a resample falls on the other side of 1, twice, at least 1 / resamples. A
    /// difference that is the same in every pair has 0.
    pub p: f64,
    /// The paired t-test's, on the logarithms; it stays honest where the pairs are few.
    pub t_p: f64,
    /// Standard deviation of the logarithms.
    pub sd: f64,
    /// Pairs.
    pub n: usize,
}

/// Compares paired positive values.
pub fn paired_ratio(a: &[f64], b: &[f64], seed: u64) -> Option<Ratio> {
    let logs: Vec<f64> = a.iter().zip(b).map(|(a, b)| libm::log(a / b)).collect();
    if logs.is_empty() {
        return None;
    }
    let n = logs.len();
    let centre = mean(&logs);
    let ratio = libm::exp(centre);
    if logs.iter().all(|log| *log == logs[0]) {
        let p = if logs[0] == 0.0 { 1.0 } else { 0.0 };
        let t_p = if n < 2 { 1.0 } else { p };
        return Some(Ratio { ratio, interval: None, p, t_p, sd: 0.0, n });
    }
    let means = resampled_means(&logs, seed);
    let below = means.iter().filter(|mean| **mean <= 0.0).count();
    let above = means.iter().filter(|mean| **mean >= 0.0).count();
    let p = (2.0 * below.min(above) as f64 / RESAMPLES as f64).max(1.0 / RESAMPLES as f64).min(1.0);
    let interval = (libm::exp(quantile(&means, 0.025)), libm::exp(quantile(&means, 0.975)));
    let sd = standard_deviation(&logs);
    let t = centre / (sd / libm::sqrt(n as f64));
    let t_p = (2.0 * t_cdf(-t.abs(), (n - 1) as f64)).min(1.0);
    Some(Ratio { ratio, interval: Some(interval), p, t_p, sd, n })
}

/// Holm's step-down correction: the adjusted p-values, in the given order.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut adjusted = vec![0.0; p.len()];
    let mut running = 0.0f64;
    for (rank, index) in order.iter().enumerate() {
        running = running.max((p[*index] * (p.len() - rank) as f64).min(1.0));
        adjusted[*index] = running;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holm_steps_down() {
        // R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm") = 0.03 0.06 0.06 0.02.
        let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (found, expected) in adjusted.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((found - expected).abs() < 1e-12, "{adjusted:?}");
        }
    }

    #[test]
    fn equal_pairs_tie_and_clear_ones_do_not() {
        let a: Vec<f64> = (1..30).map(f64::from).collect();
        let slower: Vec<f64> = a.iter().enumerate().map(|(i, a)| a * (1.1 + 0.01 * (i % 3) as f64)).collect();
        let ratio = paired_ratio(&slower, &a, 1).unwrap();
        assert!(ratio.p < 0.01 && ratio.t_p < 1e-9 && ratio.interval.unwrap().0 > 1.05, "{ratio:?}");
        let same = paired_ratio(&a, &a, 1).unwrap();
        assert_eq!((same.p, same.t_p), (1.0, 1.0));
        // One pair proves nothing, however far apart.
        assert_eq!(paired_ratio(&[2.0], &[1.0], 1).unwrap().t_p, 1.0);
    }
}
