//! How many runs a difference takes. A paired t-test at 5 %, two-sided, finds a true difference of d (of the logarithm)
//! with probability 0.8 from about n = ((t(0.975) + t(0.8)) sd / d)^2 pairs, t at n - 1 degrees of freedom.

use super::ratio::Ratio;
use super::special::t_quantile;

/// Fewer pairs than this make intervals that are too narrow to believe: at 8, a percentile-bootstrap interval of
/// normal values holds the truth in some 89 % of cases instead of 95 %.
pub const FEWEST: usize = 8;

/// No number beyond it is asked for.
const MOST: f64 = 1e6;

/// Pairs that a difference of `difference` (of the logarithm) needs, the pairs' standard deviation being `sd`; none
/// beyond a million.
pub fn runs_needed(difference: f64, sd: f64) -> Option<u32> {
    let effect = difference.abs() / sd;
    if effect.is_nan() || effect <= 0.0 {
        return None;
    }
    let with = |n: f64| {
        let degrees = (n - 1.0).max(1.0);
        let sum = t_quantile(0.975, degrees) + t_quantile(0.8, degrees);
        (sum / effect) * (sum / effect)
    };
    // The right side falls as n grows: step from the normal approximation to where both sides meet.
    let start = (2.801_585_218 / effect) * (2.801_585_218 / effect);
    if start > MOST {
        return None;
    }
    let mut n = libm::floor(start).max(2.0);
    while n < with(n) {
        n += 1.0;
    }
    Some(n as u32)
}

/// What to say of a difference that the runs don't bear out; nothing if they do, or if there is none. `told`: whether
/// the comparison, corrected for the number of others beside it, tells the two apart.
pub fn warning(a: &str, b: &str, ratio: &Ratio, told: bool) -> Option<String> {
    let percent = (ratio.ratio - 1.0) * 100.0;
    if percent.abs() < 0.05 || ratio.sd == 0.0 {
        return None;
    }
    let claim = format!("`{a}` from `{b}` ({percent:+.1} %)");
    if !told {
        let needed = match runs_needed(libm::log(ratio.ratio), ratio.sd) {
            Some(needed) => format!("about {} would do", needed.max(ratio.n as u32 + 1)),
            None => "more than a million would be needed".to_string(),
        };
        return Some(format!("{} runs are too few to tell {claim}: {needed}", ratio.n));
    }
    (ratio.n < FEWEST).then(|| {
        format!("{} runs tell {claim}, but intervals of fewer than {FEWEST} runs are too narrow", ratio.n)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::paired_ratio;

    #[test]
    fn a_difference_within_the_noise_names_the_runs_it_needs() {
        let a: Vec<f64> = (0..10).map(|i| 1.0 + 0.1 * f64::from(i % 5)).collect();
        let b: Vec<f64> = (0..10).map(|i| 1.01 + 0.1 * f64::from((i * 3) % 5)).collect();
        let ratio = paired_ratio(&a, &b, 1).unwrap();
        let text = warning("ecf", "linux", &ratio, false).unwrap();
        assert!(text.starts_with("10 runs are too few to tell `ecf` from `linux` (-0."), "{text}");
        let needed: u32 = text.split_whitespace().rev().nth(2).unwrap().parse().unwrap();
        assert!(needed > 1000, "{text}");
    }

    #[test]
    fn a_clear_difference_needs_no_warning_unless_the_runs_are_very_few() {
        let b: Vec<f64> = (0..12).map(|i| 1.0 + 0.01 * f64::from(i)).collect();
        let a: Vec<f64> = b.iter().enumerate().map(|(i, b)| b * (0.8 + 0.001 * (i % 3) as f64)).collect();
        assert_eq!(warning("a", "b", &paired_ratio(&a, &b, 1).unwrap(), true), None);
        let few = warning("a", "b", &paired_ratio(&a[..4], &b[..4], 1).unwrap(), true).unwrap();
        assert!(few.contains("too narrow"), "{few}");
    }

    #[test]
    fn no_difference_is_never_found() {
        assert_eq!(runs_needed(0.0, 0.1), None);
        assert_eq!(runs_needed(1e-9, 0.1), None);
    }
}
