//! Keys, nonces and sequence numbers from the operating system.

use ropewalk_engine::Entropy;

/// An unpredictable number.
pub fn random() -> u64 {
    OsEntropy::new().next_u64()
}

/// The operating system's randomness, drawn 512 bytes at a time.
#[derive(Debug)]
pub struct OsEntropy {
    pool: [u64; 64],
    left: usize,
}

impl OsEntropy {
    /// A source with an empty pool.
    pub fn new() -> Self {
        OsEntropy { pool: [0; 64], left: 0 }
    }
}

impl Default for OsEntropy {
    fn default() -> Self {
        Self::new()
    }
}

impl Entropy for OsEntropy {
    /// # Panics
    /// If the operating system has no randomness to give: going on would mean guessable keys.
    fn next_u64(&mut self) -> u64 {
        if self.left == 0 {
            for word in &mut self.pool {
                *word = getrandom::u64().expect("the operating system's randomness");
            }
            self.left = self.pool.len();
        }
        self.left -= 1;
        // A key that was handed out doesn't stay in memory.
        std::mem::take(&mut self.pool[self.left])
    }
}

#[cfg(test)]
mod tests {
    use super::OsEntropy;
    use ropewalk_engine::Entropy;

    #[test]
    fn its_bits_are_balanced_and_its_words_differ() {
        let mut entropy = OsEntropy::new();
        let mut words: Vec<_> = (0..4096).map(|_| entropy.next_u64()).collect();
        let ones: u32 = words.iter().map(|word| word.count_ones()).sum();
        // 262,144 fair coins: 131,072 with a standard deviation of 256; eight of them are never seen.
        assert!((131_072 - 2048..131_072 + 2048).contains(&ones), "{ones} ones");
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), 4096);
    }
}
