//! Statistics: percentiles as R's type 7 (Hyndman and Fan 1996), percentile-bootstrap intervals, paired comparisons
//! on the logarithm of the ratio, Holm's correction (Holm 1979). Seeded: the same numbers give the same intervals.

use rand_core::Rng;
use rand_pcg::Pcg64;

/// Bootstrap resamples.
pub const RESAMPLES: usize = 2000;

/// Arithmetic mean; 0 of nothing.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// The `p`-quantile, 0 to 1, of values in ascending order: linear interpolation at (n - 1) p.
///
/// # Panics
/// If there are no values.
pub fn quantile(sorted: &[f64], p: f64) -> f64 {
    let place = (sorted.len() - 1) as f64 * p;
    let low = place as usize;
    let high = (low + 1).min(sorted.len() - 1);
    sorted[low] + (sorted[high] - sorted[low]) * (place - low as f64)
}

/// A copy in ascending order.
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut copy = values.to_vec();
    copy.sort_by(f64::total_cmp);
    copy
}

fn resampled_means(values: &[f64], seed: u64) -> Vec<f64> {
    let mut random = Pcg64::new(u128::from(seed), 0x57a7);
    let n = values.len() as u64;
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            // Multiply-shift maps 32 random bits to an index; its bias is below n / 2^32.
            let draw = |random: &mut Pcg64| ((u64::from(random.next_u32()) * n) >> 32) as usize;
            (0..n).map(|_| values[draw(&mut random)]).sum::<f64>() / n as f64
        })
        .collect();
    means.sort_by(f64::total_cmp);
    means
}

/// 95 % interval of the mean; none with fewer than two values or without any spread.
pub fn mean_interval(values: &[f64], seed: u64) -> Option<(f64, f64)> {
    if values.len() < 2 || values.iter().all(|value| *value == values[0]) {
        return None;
    }
    let means = resampled_means(values, seed);
    Some((quantile(&means, 0.025), quantile(&means, 0.975)))
}

/// How one contender compares with another over the same seeds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ratio {
    /// Geometric mean of a / b.
    pub ratio: f64,
    /// Its 95 % interval, where the pairs differ at all.
    pub interval: Option<(f64, f64)>,
    /// Two-sided p-value: how often a resample falls on the other side of 1, twice, at least 1 / resamples. A
    /// difference that is the same in every pair has 0.
    pub p: f64,
}

/// Compares paired positive values.
pub fn paired_ratio(a: &[f64], b: &[f64], seed: u64) -> Option<Ratio> {
    let logs: Vec<f64> = a.iter().zip(b).map(|(a, b)| libm::log(a / b)).collect();
    if logs.is_empty() {
        return None;
    }
    let ratio = libm::exp(mean(&logs));
    if logs.iter().all(|log| *log == logs[0]) {
        return Some(Ratio { ratio, interval: None, p: if logs[0] == 0.0 { 1.0 } else { 0.0 } });
    }
    let means = resampled_means(&logs, seed);
    let below = means.iter().filter(|mean| **mean <= 0.0).count();
    let above = means.iter().filter(|mean| **mean >= 0.0).count();
    let p = (2.0 * below.min(above) as f64 / RESAMPLES as f64).max(1.0 / RESAMPLES as f64).min(1.0);
    let interval = (libm::exp(quantile(&means, 0.025)), libm::exp(quantile(&means, 0.975)));
    Some(Ratio { ratio, interval: Some(interval), p })
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
    fn quantiles_are_type_7() {
        // numpy.percentile([1, 2, 3, 4, 10], [50, 95, 10]) = 3, 8.8, 1.4.
        let values = [1.0, 2.0, 3.0, 4.0, 10.0];
        for (p, expected) in [(0.5, 3.0), (0.95, 8.8), (0.1, 1.4), (0.0, 1.0), (1.0, 10.0)] {
            assert!((quantile(&values, p) - expected).abs() < 1e-12);
        }
    }

    #[test]
    fn holm_steps_down() {
        // R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm") = 0.03 0.06 0.06 0.02.
        let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (found, expected) in adjusted.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((found - expected).abs() < 1e-12, "{adjusted:?}");
        }
    }

    #[test]
    fn the_interval_of_a_mean_is_near_the_normal_one() {
        // 0..100: mean 49.5, standard error 2.9011 (ddof 1) or 2.8866: 1.96 of it is 5.66.
        let values: Vec<f64> = (0..100).map(f64::from).collect();
        let (low, high) = mean_interval(&values, 1).unwrap();
        assert!((49.5 - low - 5.66).abs() < 0.5 && (high - 49.5 - 5.66).abs() < 0.5, "{low} {high}");
        assert_eq!(mean_interval(&[2.0, 2.0], 1), None);
    }

    #[test]
    fn equal_pairs_tie_and_clear_ones_do_not() {
        let a: Vec<f64> = (1..30).map(f64::from).collect();
        let slower: Vec<f64> = a.iter().enumerate().map(|(i, a)| a * (1.1 + 0.01 * (i % 3) as f64)).collect();
        let ratio = paired_ratio(&slower, &a, 1).unwrap();
        assert!(ratio.p < 0.01 && ratio.interval.unwrap().0 > 1.05, "{ratio:?}");
        assert_eq!(paired_ratio(&a, &a, 1).unwrap().p, 1.0);
    }
}
