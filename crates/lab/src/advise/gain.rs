//! One candidate's time over another's, over plausible variants of the paths.

use crate::stats;

/// One against another, over the variants.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Gain {
    /// Expected ratio of times (geometric mean over variants); below 1 is faster.
    pub ratio: f64,
    /// Holds the ratio in 90 % of the variants.
    pub interval: (f64, f64),
    /// Share of the variants in which it is faster.
    pub sure: f64,
}

impl Gain {
    /// From the logarithms, one per variant. Ends are the order statistics at (n + 1) p, which hold a further
    /// draw from the same variants with the probability they say.
    pub(super) fn of(logs: &[f64]) -> Self {
        let sorted = stats::sorted(logs);
        let at = |p: f64| {
            let place = (p * (sorted.len() + 1) as f64 - 1.0).clamp(0.0, (sorted.len() - 1) as f64);
            stats::quantile(&sorted, place / (sorted.len() - 1).max(1) as f64)
        };
        let faster = logs.iter().filter(|log| **log < 0.0).count() as f64;
        Gain {
            ratio: libm::exp(stats::mean(logs)),
            interval: (libm::exp(at(0.05)), libm::exp(at(0.95))),
            sure: faster / logs.len() as f64,
        }
    }
}

impl Gain {
    /// After measuring, a gain must be plausible by what was known before as well: an interval with what both
    /// leave. Where that is less than a quarter of the narrower one, what was stated contradicts what was
    /// measured, and doesn't count.
    #[must_use]
    pub fn narrowed_by(self, before: &Gain) -> Self {
        let low = self.interval.0.max(before.interval.0);
        let high = self.interval.1.min(before.interval.1);
        let width = |low: f64, high: f64| libm::log(high / low);
        let narrower =
            f64::min(width(self.interval.0, self.interval.1), width(before.interval.0, before.interval.1));
        let agrees = low < high && width(low, high) >= 0.25 * narrower;
        if agrees { Gain { interval: (low, high), ..self } } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_narrows_and_contradicted_statements_do_not_count() {
        let gain = |low, high| Gain { ratio: 0.9, interval: (low, high), sure: 0.9 };
        assert_eq!(gain(0.8, 1.0).narrowed_by(&gain(0.7, 0.95)).interval, (0.8, 0.95));
        assert_eq!(gain(0.8, 1.0).narrowed_by(&gain(0.85, 0.95)).interval, (0.85, 0.95));
        assert_eq!(gain(0.8, 1.0).narrowed_by(&gain(0.3, 0.82)).interval, (0.8, 1.0));
        assert_eq!(gain(0.8, 1.0).narrowed_by(&gain(0.82, 0.97)).interval, (0.82, 0.97));
        assert_eq!(gain(0.8, 1.0).narrowed_by(&gain(1.1, 1.2)).interval, (0.8, 1.0));
    }

    #[test]
    fn the_interval_holds_a_further_draw_as_often_as_it_says() {
        let logs: Vec<f64> = (1..=99).map(|i| f64::from(i) / 100.0).collect();
        let gain = Gain::of(&logs);
        // (n + 1) p: the 5th and the 95th of 99.
        assert!((libm::log(gain.interval.0) - 0.05).abs() < 1e-9);
        assert!((libm::log(gain.interval.1) - 0.95).abs() < 1e-9);
        assert_eq!(gain.sure, 0.0);
    }
}
