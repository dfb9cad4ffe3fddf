//! One statistic per comparison: the ratio of two rows' means over paired seeds. Its interval and its p-value
//! come from the same estimator: the linearised ratio of means (Cochran, Sampling Techniques, 6.4) with
//! Student's t.

use ropewalk_lab::stats;

/// Differences of at most so many per cent count as none.
pub(super) const MARGIN: f64 = 2.0;

/// A row against another.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Effect {
    /// Logarithm of the ratio of the means.
    log: f64,
    /// Its standard error.
    error: f64,
    /// Degrees of freedom.
    degrees: f64,
    /// Every run of one is the same as the other's.
    pub(super) same: bool,
}

impl Effect {
    /// Of paired values; none where there is nothing to compare.
    pub(super) fn of(a: &[f64], b: &[f64]) -> Option<Self> {
        if a.is_empty() || a.len() != b.len() {
            return None;
        }
        let same = a == b;
        let degrees = (a.len() - 1) as f64;
        let (above, below) = (stats::mean(a), stats::mean(b));
        if same || above <= 0.0 || below <= 0.0 {
            // Nothing over something: the ratio has no logarithm, the difference still has an error.
            let log: f64 = if same || above == below {
                0.0
            } else if above < below {
                -10.0
            } else {
                10.0
            };
            let apart: Vec<f64> = a.iter().zip(b).map(|(a, b)| a - b).collect();
            let size = stats::mean(&apart).abs().max(1e-12);
            let error = if same { 0.0 } else { log.abs() * standard_error(&apart) / size };
            return Some(Effect { log, error, degrees, same });
        }
        let apart: Vec<f64> = a.iter().zip(b).map(|(a, b)| a / above - b / below).collect();
        Some(Effect { log: libm::log(above / below), error: standard_error(&apart), degrees, same })
    }

    /// The geometric mean of several.
    pub(super) fn mean(effects: &[Effect]) -> Option<Self> {
        let first = effects.first()?;
        let n = effects.len() as f64;
        let squares: f64 = effects.iter().map(|effect| effect.error * effect.error).sum();
        Some(Effect {
            log: effects.iter().map(|effect| effect.log).sum::<f64>() / n,
            error: libm::sqrt(squares) / n,
            degrees: first.degrees * n,
            same: effects.iter().all(|effect| effect.same),
        })
    }

    /// Two-sided.
    pub(super) fn p(&self) -> f64 {
        if self.log == 0.0 || self.degrees < 1.0 {
            return 1.0;
        }
        if self.error == 0.0 {
            return 0.0;
        }
        2.0 * stats::t_cdf(-(self.log / self.error).abs(), self.degrees)
    }

    /// Per cent.
    pub(super) fn change(&self) -> f64 {
        percent(self.log)
    }

    /// Half of the 95 % interval of the logarithm.
    pub(super) fn half(&self) -> f64 {
        if self.degrees < 1.0 {
            return f64::INFINITY;
        }
        if self.error == 0.0 { 0.0 } else { self.error * stats::t_quantile(0.975, self.degrees) }
    }

    /// 95 %, per cent.
    pub(super) fn interval(&self) -> (f64, f64) {
        let half = self.half();
        (percent(self.log - half), percent(self.log + half))
    }

    /// Whether it is too small to matter, and known to be: the whole 95 % interval lies within the margin,
    /// and no difference is proved.
    pub(super) fn tied(&self) -> bool {
        let (low, high) = self.interval();
        !self.same && self.p() >= 0.05 && low >= -MARGIN && high <= MARGIN
    }

    /// Whether it is below 1.
    pub(super) fn less(&self) -> bool {
        self.log < 0.0
    }
}

fn percent(log: f64) -> f64 {
    libm::expm1(log) * 100.0
}

fn standard_error(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return f64::INFINITY;
    }
    stats::standard_deviation(values) / libm::sqrt(values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_around_the_effect_and_covers_it_as_often_as_it_says() {
        use rand_core::Rng;
        let mut random = rand_pcg::Pcg64::new(7, 11);
        let mut unit = || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let mut covered = 0;
        for _ in 0..1000 {
            let pairs: Vec<(f64, f64)> = (0..20)
                .map(|_| {
                    let shared = unit();
                    (0.9 * (1.0 + shared) + 0.2 * unit(), 1.0 + shared + 0.2 * unit())
                })
                .collect();
            let (a, b): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
            let effect = Effect::of(&a, &b).unwrap();
            let (low, high) = effect.interval();
            assert!(low < effect.change() && effect.change() < high);
            let truth = (1.45 / 1.6 - 1.0) * 100.0;
            covered += u32::from((low..=high).contains(&truth));
        }
        assert!((920..=980).contains(&covered), "{covered} of 1000");
    }

    #[test]
    fn a_tie_is_known_to_be_small_and_not_proved_to_be_a_difference() {
        let noise = [0.0, 0.01, -0.01, 0.005, -0.005, 0.0, 0.01, -0.01];
        let of = |mean: f64, by: f64| {
            let a: Vec<f64> = noise.iter().map(|part| mean * (1.0 + by * part)).collect();
            Effect::of(&a, &[1.0; 8]).unwrap()
        };
        assert!(of(1.002, 1.0).tied(), "{:?}", of(1.002, 1.0).interval());
        assert!(!of(1.002, 5.0).tied(), "too noisy to know");
        assert!(!of(1.01, 0.1).tied(), "small, but a difference");
        assert!(!of(1.1, 1.0).tied() && !of(1.0, 0.0).tied());
    }

    #[test]
    fn equal_runs_are_the_same_and_nothing_against_something_counts() {
        let same = Effect::of(&[1.0, 2.0], &[1.0, 2.0]).unwrap();
        assert!(same.same && same.p() == 1.0 && same.change() == 0.0);
        let none = Effect::of(&[0.0; 5], &[9.0, 10.0, 11.0, 10.0, 9.0]).unwrap();
        assert!(none.less() && none.p() < 0.001 && none.change() < -99.0);
        assert_eq!(Effect::of(&[1.0], &[2.0]).unwrap().p(), 1.0, "one pair proves nothing");
        assert!(Effect::of(&[], &[]).is_none());
    }
}
