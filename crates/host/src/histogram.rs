//! Counts of values by size: as many buckets for each power of two, so that a value is known to 0.2 %.

/// Buckets for each power of two.
const BITS: u32 = 9;

/// A histogram of whole numbers.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    counts: Vec<u64>,
    len: u64,
    sum: u128,
    range: Option<(u64, u64)>,
}

/// The bucket of a value.
fn bucket(value: u64) -> usize {
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(BITS + 1);
    ((shift as usize) << BITS) + (value >> shift) as usize
}

/// The largest value in a bucket.
fn largest(bucket: usize) -> u64 {
    let shift = (bucket >> BITS).saturating_sub(1);
    ((bucket - (shift << BITS)) as u64) << shift | ((1 << shift) - 1)
}

impl Histogram {
    /// Adds a value.
    pub fn record(&mut self, value: u64) {
        let bucket = bucket(value);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.len += 1;
        self.sum += u128::from(value);
        let (min, max) = self.range.unwrap_or((value, value));
        self.range = Some((min.min(value), max.max(value)));
    }

    /// How many values there are.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The least value; 0 if there are none.
    pub fn min(&self) -> u64 {
        self.range.map_or(0, |(min, _)| min)
    }

    /// The largest value; 0 if there are none.
    pub fn max(&self) -> u64 {
        self.range.map_or(0, |(_, max)| max)
    }

    /// Their mean; 0 if there are none.
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.len.max(1) as f64
    }

    /// The value that this share of the values doesn't exceed; 0 if there are none.
    pub fn value_at_quantile(&self, share: f64) -> u64 {
        let rank = ((share.clamp(0.0, 1.0) * self.len as f64).ceil() as u64).max(1);
        let mut below = 0;
        let reached = self.buckets().find(|(_, count)| {
            below += count;
            below >= rank
        });
        if rank == 1 { self.min() } else { reached.map_or(self.max(), |(value, _)| value.min(self.max())) }
    }

    /// The largest value of each bucket with its count, in order.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let counts = self.counts.iter().copied().enumerate().filter(|(_, count)| *count > 0);
        counts.map(|(bucket, count)| (largest(bucket), count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_narrow() {
        let mut last = None;
        let near =
            |power: u32| (0..64).map(move |offset| (1u64 << power).wrapping_add(offset).wrapping_sub(32));
        for value in (0..5000).chain((13..64).flat_map(near)).chain([u64::MAX]) {
            let bucket = bucket(value);
            assert!(last <= Some(bucket), "{value}");
            last = Some(bucket);
            let largest = largest(bucket);
            assert!(largest >= value && largest - value <= value >> BITS, "{value} {largest}");
        }
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_values() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.value_at_quantile(0.5), histogram.max(), histogram.mean()), (0, 0, 0.0));
        let values: Vec<u64> = (1..=1000).map(|n| n * n * 37).collect();
        values.iter().for_each(|value| histogram.record(*value));
        for (share, expected) in
            [(0.0, values[0]), (0.5, values[499]), (0.99, values[989]), (1.0, values[999])]
        {
            let found = histogram.value_at_quantile(share);
            assert!(
                found >= expected && found - expected <= expected >> BITS,
                "{share}: {found}, {expected}"
            );
        }
        let mean = values.iter().sum::<u64>() as f64 / 1000.0;
        assert_eq!((histogram.len(), histogram.min(), histogram.mean()), (1000, 37, mean));
        assert_eq!(histogram.buckets().map(|(_, count)| count).sum::<u64>(), 1000);
    }
}
