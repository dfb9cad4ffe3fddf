//! Percentile-bootstrap intervals (Efron 1979): resample with replacement, take the statistic's percentiles.

use rand_core::Rng;
use rand_pcg::Pcg64;

use super::describe::{quantile, sorted};

/// Bootstrap resamples.
pub const RESAMPLES: usize = 2000;

fn resampled(values: &[f64], seed: u64, mut statistic: impl FnMut(&mut [f64]) -> f64) -> Vec<f64> {
    let mut random = Pcg64::new(u128::from(seed), 0x57a7);
    let n = values.len() as u64;
    let mut sample = vec![0.0; values.len()];
    let mut found: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            for place in &mut sample {
                // Multiply-shift maps 32 random bits to an index; its bias is below n / 2^32.
                *place = values[((u64::from(random.next_u32()) * n) >> 32) as usize];
            }
            statistic(&mut sample)
        })
        .collect();
    found.sort_by(f64::total_cmp);
    found
}

pub(super) fn resampled_means(values: &[f64], seed: u64) -> Vec<f64> {
    let n = values.len() as f64;
    resampled(values, seed, |sample| sample.iter().sum::<f64>() / n)
}

fn without_spread(values: &[f64]) -> bool {
    values.len() < 2 || values.iter().all(|value| *value == values[0])
}

/// 95 % interval of the mean; none with fewer than two values or without any spread.
pub fn mean_interval(values: &[f64], seed: u64) -> Option<(f64, f64)> {
    if without_spread(values) {
        return None;
    }
    let means = resampled_means(values, seed);
    Some((quantile(&means, 0.025), quantile(&means, 0.975)))
}

/// 95 % interval of the median, as [`mean_interval`].
pub fn median_interval(values: &[f64], seed: u64) -> Option<(f64, f64)> {
    if without_spread(values) {
        return None;
    }
    let medians = resampled(values, seed, |sample| quantile(&sorted(sample), 0.5));
    Some((quantile(&medians, 0.025), quantile(&medians, 0.975)))
}

/// Ratio of the medians of `a` and `b`, and its interval at `level` (0.9: 90 %), each side resampled on its own: for runs
/// that aren't pairs. No interval with fewer than two values on a side.
pub fn median_ratio(a: &[f64], b: &[f64], level: f64, seed: u64) -> Option<(f64, Option<(f64, f64)>)> {
    let median = |values: &[f64]| quantile(&sorted(values), 0.5);
    if a.is_empty() || b.is_empty() || median(b) == 0.0 {
        return None;
    }
    let ratio = median(a) / median(b);
    if a.len() < 2 || b.len() < 2 {
        return Some((ratio, None));
    }
    // One side's resamples in random order against the other's.
    let mut random = Pcg64::new(u128::from(seed), 0x3a7e);
    let mut draw = |values: &[f64]| {
        let n = values.len() as u64;
        let sample: Vec<f64> =
            values.iter().map(|_| values[((u64::from(random.next_u32()) * n) >> 32) as usize]).collect();
        median(&sample)
    };
    let mut ratios: Vec<f64> = (0..RESAMPLES).map(|_| draw(a) / draw(b)).collect();
    ratios.sort_by(f64::total_cmp);
    let tail = (1.0 - level) / 2.0;
    Some((ratio, Some((quantile(&ratios, tail), quantile(&ratios, 1.0 - tail)))))
}

#[cfg(test)]
mod ratio_tests {
    use super::median_ratio;

    #[test]
    fn the_interval_holds_the_ratio_and_narrows_with_the_spread() {
        let base: Vec<f64> = (0..40).map(|i| 1.0 + f64::from(i % 7) * 0.01).collect();
        let double: Vec<f64> = base.iter().map(|x| x * 2.0).collect();
        let (ratio, interval) = median_ratio(&double, &base, 0.9, 1).unwrap();
        let (low, high) = interval.unwrap();
        assert!((ratio - 2.0).abs() < 1e-12);
        assert!(low <= 2.0 && 2.0 <= high && high - low < 0.1, "{low} {high}");
        let (_, none) = median_ratio(&[1.0], &base, 0.9, 1).unwrap();
        assert_eq!(none, None);
        assert_eq!(median_ratio(&[], &base, 0.9, 1), None);
    }
}
