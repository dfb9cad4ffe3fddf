//! What a sample is like.

/// Arithmetic mean; 0 of nothing.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// Of the sample (divided by n - 1); 0 of fewer than two.
pub fn standard_deviation(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let centre = mean(values);
    let squares: f64 = values.iter().map(|value| (value - centre) * (value - centre)).sum();
    libm::sqrt(squares / (values.len() - 1) as f64)
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

/// A sample in numbers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Summary {
    /// How many.
    pub n: usize,
    /// Mean.
    pub mean: f64,
    /// Standard deviation of the sample.
    pub sd: f64,
    /// Least.
    pub min: f64,
    /// 5th percentile.
    pub p5: f64,
    /// First quartile.
    pub p25: f64,
    /// Median.
    pub p50: f64,
    /// Third quartile.
    pub p75: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Greatest.
    pub max: f64,
}

impl Summary {
    /// Of these values; none of nothing.
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let sorted = sorted(values);
        let at = |p| quantile(&sorted, p);
        Some(Summary {
            n: values.len(),
            mean: mean(values),
            sd: standard_deviation(values),
            min: sorted[0],
            p5: at(0.05),
            p25: at(0.25),
            p50: at(0.5),
            p75: at(0.75),
            p95: at(0.95),
            p99: at(0.99),
            max: sorted[sorted.len() - 1],
        })
    }
}
