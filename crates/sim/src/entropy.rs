//! Random streams, one for each purpose: PCG-XSL-RR-128/64 (M. O'Neill, "PCG: A Family of Simple Fast
//! Space-Efficient Statistically Good Algorithms for Random Number Generation", HMC-CS-2014-0905), one stream
//! per source and endpoint. Links have streams of their own (see `ropewalk_link`).
//!
//! A stream depends on the run's seed, on what it is for, and on nothing else: adding a background source, or
//! comparing another scheduler, leaves every other stream's draws as they were.

use rand_core::Rng as _;
use rand_pcg::Pcg64;
use ropewalk_engine::Entropy;

/// What a stream is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// The background source with this index.
    Background = 1,
    /// Keys, sequence numbers and ports of the endpoint with this index.
    Endpoint = 2,
}

/// SplitMix64's finaliser (G. Steele, D. Lea, C. Flood, OOPSLA 2014): spreads seeds that differ in a bit.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The generator for one purpose and index.
pub(crate) fn stream(seed: u64, purpose: Purpose, index: usize) -> Pcg64 {
    let high = mix(seed);
    let low = mix(high ^ 0x5851_f42d_4c95_7f2d);
    Pcg64::new(u128::from(high) << 64 | u128::from(low), (purpose as u128) << 64 | index as u128)
}

/// The engine's entropy from a seeded stream.
#[derive(Clone, Debug)]
pub struct SeededEntropy(Pcg64);

impl SeededEntropy {
    pub(crate) fn new(seed: u64, index: usize) -> Self {
        SeededEntropy(stream(seed, Purpose::Endpoint, index))
    }
}

impl Entropy for SeededEntropy {
    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }
}

/// Uniform in (0, 1]: never 0, so that its logarithm is finite.
pub(crate) fn uniform(rng: &mut Pcg64) -> f64 {
    ((rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
}

/// Exponential with this mean.
pub(crate) fn exponential(rng: &mut Pcg64, mean: f64) -> f64 {
    -mean * libm::log(uniform(rng))
}

/// Pareto with this mean and shape > 1: scale = mean (shape - 1) / shape.
pub(crate) fn pareto(rng: &mut Pcg64, mean: f64, shape: f64) -> f64 {
    mean * (shape - 1.0) / shape / libm::pow(uniform(rng), 1.0 / shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_stable_and_differ() {
        let first = |seed, purpose, index| stream(seed, purpose, index).next_u64();
        assert_eq!(first(1, Purpose::Background, 0), first(1, Purpose::Background, 0));
        let mut all: Vec<u64> = Vec::new();
        for seed in 0..4 {
            for purpose in [Purpose::Background, Purpose::Endpoint] {
                all.extend((0..4).map(|index| first(seed, purpose, index)));
            }
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn draws_have_their_means() {
        let mut rng = stream(7, Purpose::Background, 0);
        let n = 200_000;
        let mean = |sum: f64| sum / f64::from(n);
        let flat = mean((0..n).map(|_| uniform(&mut rng)).sum());
        assert!((flat - 0.5).abs() < 0.01, "{flat}");
        let exp = mean((0..n).map(|_| exponential(&mut rng, 3.0)).sum());
        assert!((exp - 3.0).abs() < 0.05, "{exp}");
        // Shape 3 has a finite variance, so that its mean can be checked.
        let pareto = mean((0..n).map(|_| pareto(&mut rng, 3.0, 3.0)).sum());
        assert!((pareto - 3.0).abs() < 0.05, "{pareto}");
    }
}
