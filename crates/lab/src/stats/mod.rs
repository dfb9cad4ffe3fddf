//! Statistics: percentiles as R's type 7 (Hyndman and Fan 1996), percentile-bootstrap intervals, paired
//! comparisons on the logarithm of the ratio, and Holm's correction (Holm 1979). Seeded: the same numbers
//! give the same intervals. `tests/statistics.rs` holds all of it to scipy's results.

mod bootstrap;
mod describe;
mod ratio;
mod special;

pub use bootstrap::{RESAMPLES, mean_interval, median_interval, median_ratio};
pub use describe::{Summary, mean, quantile, sorted, standard_deviation};
pub use ratio::{Ratio, holm, paired_ratio};
pub use special::{normal_quantile, t_cdf, t_quantile};
