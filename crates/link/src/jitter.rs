//! Variation of the delay, with netem's meaning: each packet's delay is drawn on its own, about the link's
//! delay.
//!
//! - Uniform: in delay +- spread, every nanosecond alike.
//! - Normal: standard deviation `spread`, by inverting the distribution function (Wichura, "Algorithm AS 241:
//!   The Percentage Points of the Normal Distribution", Applied Statistics 37, 1988, routine PPND16): one
//!   draw per packet whatever its value, and the same bits on every machine.
//! - Pareto, shape 3: `X = U^(-1/3)`, capped at `CAP`, then shifted and scaled to mean 0 and standard
//!   deviation `spread`. Netem's table caps at 4 spreads too, but scales by 4/3 before it does (mean -0.03,
//!   standard deviation 0.82 spreads); here the numbers are those the parameter promises, and the cap is
//!   where 4 spreads are reached.

use ropewalk_time::Span;

use crate::random::Stream;
use crate::spec::{Jitter, JitterShape};

/// Where the Pareto variable is cut: the value that is 4 standard deviations above the mean after the cut.
const PARETO_CAP: f64 = 3.726_974_012_817_798_6;
/// E\[min(X, c)\] = 3/2 - 1/(2 c^2).
const PARETO_MEAN: f64 = 1.5 - 1.0 / (2.0 * PARETO_CAP * PARETO_CAP);
/// sqrt(E\[min(X, c)^2\] - mean^2), where the first is 3 - 2/c: (c - mean) / 4 by the choice of c.
const PARETO_DEVIATION: f64 = (PARETO_CAP - PARETO_MEAN) / 4.0;

/// Normal draws made at a time: one doesn't wait for the other, as they would one by one between all else.
const BATCH: usize = 16;

/// Draws the jitter of a link.
#[derive(Clone, Debug)]
pub(crate) struct JitterProcess {
    stream: Stream,
    shape: JitterShape,
    spread: Span,
    /// The next of a normal shape: the last is the first to be used.
    drawn: [i64; BATCH],
    left: usize,
}

impl JitterProcess {
    pub(crate) fn new(jitter: Jitter, stream: Stream) -> Self {
        JitterProcess { stream, shape: jitter.shape, spread: jitter.spread, drawn: [0; BATCH], left: 0 }
    }

    /// The next packet's delay about `delay`, zero at least.
    #[inline]
    pub(crate) fn draw(&mut self, delay: Span) -> Span {
        let offset = match self.shape {
            JitterShape::Uniform => {
                // Multiplied instead of divided (Lemire, "Fast random integer generation in an interval",
                // 2019); over 64 bits the bias can't be seen.
                let values = u128::from(self.spread.as_nanos()) * 2 + 1;
                let draw = (u128::from(self.stream.bits()) * values) >> 64;
                return delay.saturating_add(Span::from_nanos(draw as u64)).saturating_sub(self.spread);
            }
            JitterShape::Normal => {
                if self.left == 0 {
                    self.draw_normal();
                }
                self.left -= 1;
                return offset_by(delay, self.drawn[self.left]);
            }
            JitterShape::Pareto => {
                let x = (1.0 / libm::cbrt(self.stream.unit())).min(PARETO_CAP);
                (x - PARETO_MEAN) * (1.0 / PARETO_DEVIATION)
            }
        };
        offset_by(delay, (offset * self.spread.as_nanos() as f64) as i64)
    }

    #[inline(never)]
    fn draw_normal(&mut self) {
        let mut units = [0.0; BATCH];
        // From the end, since the last is used first: packets get the draws in
        // the order in which they were made.
        for unit in units.iter_mut().rev() {
            *unit = self.stream.unit();
        }
        let mut quantiles = units.map(|p| central_quantile(p - 0.5));
        for (quantile, p) in quantiles.iter_mut().zip(units) {
            if !is_central(p - 0.5) {
                *quantile = outer_quantile(p);
            }
        }
        let spread = self.spread.as_nanos() as f64;
        self.drawn = quantiles.map(|offset| (offset * spread) as i64);
        self.left = BATCH;
    }
}

/// `delay`, and `nanos` more or less; zero at least.
#[inline]
fn offset_by(delay: Span, nanos: i64) -> Span {
    Span::from_nanos(delay.as_nanos().saturating_add_signed(nanos))
}

impl Jitter {
    /// The least delay a packet can have about `delay`: zero when the distribution has no lower end.
    pub(crate) fn least(&self, delay: Span) -> Span {
        match self.shape {
            JitterShape::Uniform => delay.saturating_sub(self.spread),
            JitterShape::Normal => Span::ZERO,
            // X is at least 1.
            JitterShape::Pareto => {
                let below = (PARETO_MEAN - 1.0) / PARETO_DEVIATION * self.spread.as_nanos() as f64;
                delay.saturating_sub(Span::from_nanos(below as u64))
            }
        }
    }
}

/// The standard normal's quantile of `p`, in the open interval (0, 1); relative error about 1e-16. What a
/// draw takes is one of its two branches.
#[cfg(test)]
fn normal_quantile(p: f64) -> f64 {
    if is_central(p - 0.5) { central_quantile(p - 0.5) } else { outer_quantile(p) }
}

/// Whether a probability that differs so much from a half has its quantile by [`central_quantile`], else by
/// [`outer_quantile`].
#[inline]
fn is_central(q: f64) -> bool {
    q.abs() <= 0.425
}

#[inline(always)]
fn central_quantile(q: f64) -> f64 {
    let r = 0.180625 - q * q;
    q * ratio(&CENTRE, r)
}

fn outer_quantile(p: f64) -> f64 {
    let q = p - 0.5;
    let tail = if q < 0.0 { p } else { 1.0 - p };
    let r = libm::sqrt(-libm::log(tail));
    let value = if r <= 5.0 { ratio(&MIDDLE, r - 1.6) } else { ratio(&FAR, r - 5.0) };
    if q < 0.0 { -value } else { value }
}

/// Numerator and denominator, from the constant term up.
type Ratio = ([f64; 8], [f64; 8]);

#[inline]
fn ratio((numerator, denominator): &Ratio, x: f64) -> f64 {
    // Estrin's scheme: a third of the latency of Horner's, and this is drawn for every packet.
    let (x2, x4) = (x * x, x * x * (x * x));
    let polynomial = |c: &[f64; 8]| {
        ((c[0] + c[1] * x) + (c[2] + c[3] * x) * x2) + ((c[4] + c[5] * x) + (c[6] + c[7] * x) * x2) * x4
    };
    polynomial(numerator) / polynomial(denominator)
}

const CENTRE: Ratio = (
    [
        3.387_132_872_796_366_5,
        133.141_667_891_784_38,
        1_971.590_950_306_551_3,
        13_731.693_765_509_46,
        45_921.953_931_549_87,
        67_265.770_927_008_7,
        33_430.575_583_588_13,
        2_509.080_928_730_122_7,
    ],
    [
        1.0,
        42.313_330_701_600_91,
        687.187_007_492_057_9,
        5_394.196_021_424_751,
        21_213.794_301_586_597,
        39_307.895_800_092_71,
        28_729.085_735_721_943,
        5_226.495_278_852_854,
    ],
);

const MIDDLE: Ratio = (
    [
        1.423_437_110_749_683_5,
        4.630_337_846_156_546,
        5.769_497_221_460_691,
        3.647_848_324_763_204_5,
        1.270_458_252_452_368_4,
        0.241_780_725_177_450_6,
        0.022_723_844_989_269_184,
        7.745_450_142_783_414e-4,
    ],
    [
        1.0,
        2.053_191_626_637_759,
        1.676_384_830_183_803_8,
        0.689_767_334_985_1,
        0.148_103_976_427_480_08,
        0.015_198_666_563_616_457,
        5.475_938_084_995_345e-4,
        1.050_750_071_644_416_9e-9,
    ],
);

const FAR: Ratio = (
    [
        6.657_904_643_501_103,
        5.463_784_911_164_114,
        1.784_826_539_917_291_3,
        0.296_560_571_828_504_87,
        0.026_532_189_526_576_124,
        0.001_242_660_947_388_078_4,
        2.711_555_568_743_487_6e-5,
        2.010_334_399_292_288_2e-7,
    ],
    [
        1.0,
        0.599_832_206_555_888,
        0.136_929_880_922_735_8,
        0.014_875_361_290_850_615,
        7.868_691_311_456_133e-4,
        1.846_318_317_510_054_6e-5,
        1.421_511_758_316_446e-7,
        2.044_263_103_389_939_8e-15,
    ],
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;

    const DELAY: Span = Span::from_millis(100);
    const SPREAD: Span = Span::from_millis(5);

    /// The offset of a delay, in spreads.
    fn spreads(delay: Span) -> f64 {
        (delay.as_secs_f64() - DELAY.as_secs_f64()) / SPREAD.as_secs_f64()
    }

    /// Mean and standard deviation of the offset in spreads, least and greatest.
    fn moments(shape: JitterShape) -> (f64, f64, f64, f64) {
        let jitter = Jitter { spread: SPREAD, shape, keeps_order: false };
        let mut process = JitterProcess::new(jitter, Stream::new(11, 2, Purpose::Jitter));
        let n = 400_000;
        let (mut sum, mut squares, mut least, mut most) = (0.0, 0.0, f64::MAX, f64::MIN);
        for _ in 0..n {
            let offset = spreads(process.draw(DELAY));
            sum += offset;
            squares += offset * offset;
            least = offset.min(least);
            most = offset.max(most);
        }
        let mean = sum / f64::from(n);
        (mean, (squares / f64::from(n) - mean * mean).sqrt(), least, most)
    }

    #[test]
    fn uniform_has_its_moments_and_bounds() {
        let (mean, deviation, least, most) = moments(JitterShape::Uniform);
        assert!(mean.abs() < 0.004, "{mean}");
        assert!((deviation - 1.0 / 3f64.sqrt()).abs() < 0.003, "{deviation}");
        assert!((-1.0..-0.999).contains(&least) && most <= 1.0 && most > 0.999, "{least} {most}");
    }

    #[test]
    fn normal_has_its_moments() {
        let (mean, deviation, least, most) = moments(JitterShape::Normal);
        assert!(mean.abs() < 0.0065, "{mean}");
        assert!((deviation - 1.0).abs() < 0.005, "{deviation}");
        assert!(least < -4.0 && most > 4.0, "{least} {most}");
    }

    #[test]
    fn pareto_has_its_moments_and_bounds() {
        let (mean, deviation, least, most) = moments(JitterShape::Pareto);
        assert!(mean.abs() < 0.0065, "{mean}");
        assert!((deviation - 1.0).abs() < 0.01, "{deviation}");
        assert!((most - 4.0).abs() < 1e-6, "{most}");
        let bound = Jitter { spread: SPREAD, shape: JitterShape::Pareto, keeps_order: false }.least(DELAY);
        let bound = spreads(bound);
        assert!(least >= bound && least < bound + 0.001, "{least} {bound}");
    }

    #[test]
    fn the_pareto_cap_is_four_deviations_up() {
        let second_moment = 3.0 - 2.0 / PARETO_CAP;
        let deviation = (second_moment - PARETO_MEAN * PARETO_MEAN).sqrt();
        assert!((deviation - PARETO_DEVIATION).abs() < 1e-12, "{deviation} {PARETO_DEVIATION}");
    }

    #[test]
    fn the_quantile_inverts_the_normal_distribution_function() {
        let distribution = |x: f64| 0.5 * libm::erfc(-x / std::f64::consts::SQRT_2);
        let mut p = 1e-300;
        while p < 0.4999 {
            let x = normal_quantile(p);
            assert!((distribution(x) / p - 1.0).abs() < 1e-12, "{p} {x} {}", distribution(x));
            if p > 1e-9 {
                assert!((normal_quantile(1.0 - p) + x).abs() < 1e-6, "{p}");
            }
            p *= 1.37;
        }
        assert_eq!(normal_quantile(0.5), 0.0);
        // The examples in the paper.
        assert!((normal_quantile(0.25) + 0.674_489_750_196_081_7).abs() < 1e-15);
        assert!((normal_quantile(0.001) + 3.090_232_306_167_813).abs() < 1e-14);
        assert!((normal_quantile(1e-20) + 9.262_340_089_798_408).abs() < 1e-13);
    }

    #[test]
    fn a_negative_delay_counts_as_none() {
        for shape in [JitterShape::Uniform, JitterShape::Normal, JitterShape::Pareto] {
            let jitter = Jitter { spread: SPREAD, shape, keeps_order: false };
            let mut process = JitterProcess::new(jitter, Stream::new(1, 1, Purpose::Jitter));
            let draws: Vec<_> = (0..1000).map(|_| process.draw(SPREAD / 10)).collect();
            assert!(draws.contains(&Span::ZERO) && draws.iter().any(|&d| d > SPREAD / 2));
        }
    }

    #[test]
    fn no_spread_is_no_jitter() {
        for shape in [JitterShape::Uniform, JitterShape::Normal, JitterShape::Pareto] {
            let mut process = JitterProcess::new(
                Jitter { spread: Span::ZERO, shape, keeps_order: false },
                Stream::new(1, 1, Purpose::Jitter),
            );
            assert!((0..100).all(|_| process.draw(DELAY) == DELAY));
        }
    }
}
