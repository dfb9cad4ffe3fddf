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
