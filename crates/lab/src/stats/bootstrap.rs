//! Percentile-bootstrap intervals (Efron 1979): resample with replacement, take the statistic's percentiles.

use std::cell::RefCell;

use rand_core::Rng;
use rand_pcg::Pcg64;

use super::describe::{quantile, sorted};

/// Bootstrap resamples.
pub const RESAMPLES: usize = 2000;

thread_local! {
    /// What was drawn last, by seed and length: most of a comparison's intervals are over as many runs.
    static DRAWN: RefCell<(u64, usize, Vec<u32>)> = const { RefCell::new((0, 0, Vec::new())) };
}

/// Longest samples whose draws are kept.
const KEPT: usize = 4096;

/// Fills `places` with the indices of resamples of so many values.
fn draw(random: &mut Pcg64, values: usize, places: &mut [u32]) {
    for place in places {
        // Multiply-shift maps 32 random bits to an index; its bias is below n / 2^32.
        *place = ((u64::from(random.next_u32()) * values as u64) >> 32) as u32;
    }
}

fn resampled(values: &[f64], seed: u64, mut statistic: impl FnMut(&[u32]) -> f64) -> Vec<f64> {
    let mut random = Pcg64::new(u128::from(seed), 0x57a7);
    let n = values.len();
    let mut found: Vec<f64> = if n <= KEPT {
        DRAWN.with_borrow_mut(|(of, length, drawn)| {
            if (*of, *length) != (seed, n) {
                drawn.resize(RESAMPLES * n, 0);
                draw(&mut random, n, drawn);
                (*of, *length) = (seed, n);
            }
            drawn.chunks_exact(n).map(statistic).collect()
        })
    } else {
        let mut places = vec![0; n];
        let one = |_| {
            draw(&mut random, n, &mut places);
            statistic(&places)
        };
        (0..RESAMPLES).map(one).collect()
    };
    found.sort_by(f64::total_cmp);
    found
}

pub(super) fn resampled_means(values: &[f64], seed: u64) -> Vec<f64> {
    let n = values.len() as f64;
    resampled(values, seed, |places| places.iter().map(|place| values[*place as usize]).sum::<f64>() / n)
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
    let medians = resampled(values, seed, |places| {
        let sample: Vec<f64> = places.iter().map(|place| values[*place as usize]).collect();
        quantile(&sorted(&sample), 0.5)
    });
    Some((quantile(&medians, 0.025), quantile(&medians, 0.975)))
}

/// Ratio of the medians of the first and the second of each pair, and its interval at `level` (0.9: 90 %),
/// pairs resampled whole: what both of a pair have in common doesn't widen it. No interval with fewer than
/// two pairs.
pub fn median_ratio(pairs: &[(f64, f64)], level: f64, seed: u64) -> Option<(f64, Option<(f64, f64)>)> {
    let of = |pairs: &[(f64, f64)]| {
        let median = |values: Vec<f64>| quantile(&sorted(&values), 0.5);
        median(pairs.iter().map(|pair| pair.0).collect()) / median(pairs.iter().map(|pair| pair.1).collect())
    };
    if pairs.is_empty() || !of(pairs).is_finite() {
        return None;
    }
    if pairs.len() < 2 {
        return Some((of(pairs), None));
    }
    let mut random = Pcg64::new(u128::from(seed), 0x3a7e);
    let n = pairs.len() as u64;
    let mut draw = || -> f64 {
        let sample: Vec<(f64, f64)> =
            pairs.iter().map(|_| pairs[((u64::from(random.next_u32()) * n) >> 32) as usize]).collect();
        of(&sample)
    };
    let mut ratios: Vec<f64> = (0..RESAMPLES).map(|_| draw()).collect();
    ratios.sort_by(f64::total_cmp);
    let tail = (1.0 - level) / 2.0;
    Some((of(pairs), Some((quantile(&ratios, tail), quantile(&ratios, 1.0 - tail)))))
}

#[cfg(test)]
mod tests {
    use super::{KEPT, mean_interval, median_ratio};

    #[test]
    fn draws_that_are_kept_are_those_of_their_seed_and_length() {
        let values: Vec<f64> = (0..50).map(|i| f64::from(i * i % 17)).collect();
        let first = mean_interval(&values, 1);
        for (other, seed) in [(&values[..20], 1), (&values[..], 2), (&[1.0, 2.0].repeat(KEPT)[..], 1)] {
            assert_ne!(mean_interval(other, seed), first);
            assert_eq!(mean_interval(&values, 1), first);
        }
    }

    #[test]
    fn the_interval_holds_the_ratio_and_narrows_with_the_spread() {
        let pairs: Vec<_> =
            (0..40).map(|i| 1.0 + f64::from(i % 7) * 0.01).map(|x| (x * 2.0, x)).rev().collect();
        let shifted: Vec<_> =
            pairs.iter().zip(pairs.iter().cycle().skip(3)).map(|(a, b)| (a.0, b.1)).collect();
        let (ratio, interval) = median_ratio(&shifted, 0.9, 1).unwrap();
        let (low, high) = interval.unwrap();
        assert!((ratio - 2.0).abs() < 1e-12);
        assert!(low < 2.0 && 2.0 < high && high - low < 0.1, "{low} {high}");
        let (_, none) = median_ratio(&pairs[..1], 0.9, 1).unwrap();
        assert_eq!(none, None);
        assert_eq!(median_ratio(&[], 0.9, 1), None);
        assert_eq!(median_ratio(&[(1.0, 0.0); 3], 0.9, 1), None);
    }

    #[test]
    fn what_the_two_of_a_pair_share_doesn_t_widen_the_interval() {
        // Seeds differ sixfold, and the worlds by 2 % at each of them.
        let pairs: Vec<_> = (0..10).map(|i| 0.5 + f64::from(i) * 0.3).map(|x| (x * 1.02, x)).collect();
        let (ratio, interval) = median_ratio(&pairs, 0.9, 1).unwrap();
        let (low, high) = interval.unwrap();
        for x in [ratio, low, high] {
            assert!((x - 1.02).abs() < 1e-9, "{low} {ratio} {high}");
        }
    }
}
