//! Distributions of Student's t and of the normal, from `libm` alone, so that they are the same on every
//! machine.

/// The regularised incomplete beta function I_x(a, b), by its continued fraction (Abramowitz and Stegun
/// 26.5.8) with Lentz's method.
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    // The fraction converges fast below the mean; above it, the symmetry I_x(a, b) = 1 - I_1-x(b, a) helps.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(b, a, 1.0 - x);
    }
    let log_front =
        libm::lgamma(a + b) - libm::lgamma(a) - libm::lgamma(b) + a * libm::log(x) + b * libm::log1p(-x);
    const TINY: f64 = 1e-300;
    let guard = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / guard(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for m in 1..=2000 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        for step in [even, odd] {
            d = 1.0 / guard(1.0 + step * d);
            c = guard(1.0 + step / c);
            fraction *= d * c;
        }
        if (d * c - 1.0).abs() < 1e-15 {
            break;
        }
    }
    libm::exp(log_front) * fraction / a
}

/// P(T <= t), T of Student's distribution with so many degrees of freedom.
pub fn t_cdf(t: f64, degrees: f64) -> f64 {
    let tail = incomplete_beta(degrees / 2.0, 0.5, degrees / (degrees + t * t)) / 2.0;
    if t > 0.0 { 1.0 - tail } else { tail }
}

/// The value below which `distribution` has `p`, by bisection between far ends.
fn inverse(p: f64, distribution: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (-1e4, 1e4);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if distribution(middle) < p { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

/// The `p`-quantile of Student's distribution.
pub fn t_quantile(p: f64, degrees: f64) -> f64 {
    inverse(p, |t| t_cdf(t, degrees))
}

/// The `p`-quantile of the normal distribution.
pub fn normal_quantile(p: f64) -> f64 {
    inverse(p, |x| libm::erfc(-x / std::f64::consts::SQRT_2) / 2.0)
}
