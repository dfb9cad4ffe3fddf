//! Random draws of a link: one PCG stream (O'Neill, "PCG: A Family of Simple Fast Space-Efficient
//! Statistically Good Algorithms for Random Number Generation", HMC-CS-2014-0905; XSL-RR 128/64) for each
//! thing that is drawn, so that a link with jitter loses the same packets as the same link without.

use rand_core::Rng;
use rand_pcg::Pcg64;

/// What a stream is for; each purpose of each link has its own.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    Loss = 1,
    Jitter = 2,
    Duplicate = 3,
}

/// A seeded stream of draws.
#[derive(Clone, Debug)]
pub(crate) struct Stream(Pcg64);

impl Stream {
    pub(crate) fn new(seed: u64, stream: u64, purpose: Purpose) -> Self {
        // PCG streams of equal state and neighbouring increments are correlated: the state is a hash of all
        // three.
        let increment = (u128::from(stream) << 8) | purpose as u128;
        let mut hash = seed;
        let mut next = |word: u64| {
            hash = mix(hash ^ word);
            hash
        };
        next(stream);
        let high = next(purpose as u64);
        let low = next(0x9e37_79b9_7f4a_7c15);
        Stream(Pcg64::new((u128::from(high) << 64) | u128::from(low), increment))
    }

    /// 64 random bits.
    #[inline]
    pub(crate) fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in the open interval (0, 1): never 0, never 1, 53 bits.
    #[inline]
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) as f64 + 0.5) * (1.0 / (1u64 << 53) as f64)
    }
}

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): neighbouring words in, unrelated words out.
fn mix(word: u64) -> u64 {
    let z = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// An event of some probability. Certain and impossible events draw nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Chance {
    Never,
    Always,
    /// When 64 random bits are below this.
    Below(u64),
}

impl Chance {
    /// `probability` outside 0 to 1 is taken as the nearer of them, and what isn't a number as 0.
    pub(crate) fn new(probability: f64) -> Self {
        if probability >= 1.0 {
            return Chance::Always;
        }
        // 2^64 as a float: exact, and the product of it and a number below 1 fits.
        let threshold = (probability * 18_446_744_073_709_551_616.0) as u64;
        if threshold == 0 { Chance::Never } else { Chance::Below(threshold) }
    }

    #[inline]
    pub(crate) fn happens(self, stream: &mut Stream) -> bool {
        match self {
            Chance::Never => false,
            Chance::Always => true,
            Chance::Below(threshold) => stream.bits() < threshold,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_by_seed_stream_and_purpose() {
        let first = |seed, stream, purpose| Stream::new(seed, stream, purpose).bits();
        let reference = first(1, 1, Purpose::Loss);
        assert_eq!(reference, first(1, 1, Purpose::Loss));
        assert_ne!(reference, first(2, 1, Purpose::Loss));
        assert_ne!(reference, first(1, 2, Purpose::Loss));
        assert_ne!(reference, first(1, 1, Purpose::Jitter));
    }

    #[test]
    fn neighbouring_streams_are_uncorrelated() {
        let (mut a, mut b) = (Stream::new(7, 0, Purpose::Loss), Stream::new(7, 1, Purpose::Loss));
        let n = 100_000;
        let covariance: f64 = (0..n).map(|_| (a.unit() - 0.5) * (b.unit() - 0.5)).sum::<f64>() / f64::from(n);
        // Standard error of the mean of a product of two uniforms is 1/12/sqrt(n).
        assert!(covariance.abs() < 4.0 / 12.0 / f64::from(n).sqrt(), "{covariance}");
    }

    #[test]
    fn odd_probabilities_are_clamped() {
        assert_eq!(Chance::new(-1.0), Chance::Never);
        assert_eq!(Chance::new(0.0), Chance::Never);
        assert_eq!(Chance::new(f64::NAN), Chance::Never);
        assert_eq!(Chance::new(1.0), Chance::Always);
        assert_eq!(Chance::new(f64::INFINITY), Chance::Always);
        assert_eq!(Chance::new(0.5), Chance::Below(1 << 63));
    }
}
