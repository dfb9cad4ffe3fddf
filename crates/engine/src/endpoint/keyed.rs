//! The hash by which an endpoint finds a segment's subflow.

use std::hash::{BuildHasher, Hasher};

/// A hash of four-tuples keyed by the endpoint's entropy, so that a peer can't aim for collisions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keyed(u64, u64);

impl Keyed {
    pub fn new(first: u64, second: u64) -> Self {
        Keyed(first, second)
    }
}

pub(super) struct KeyedHasher(u64, u64);

impl Hasher for KeyedHasher {
    fn finish(&self) -> u64 {
        let product = u128::from(self.0 ^ self.1) * 0x9e37_79b9_7f4a_7c15;
        (product as u64) ^ ((product >> 64) as u64)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * u128::from(self.1 | 1);
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }

    fn write_u8(&mut self, n: u8) {
        self.write_u64(u64::from(n));
    }

    fn write_u16(&mut self, n: u16) {
        self.write_u64(u64::from(n));
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
}

impl BuildHasher for Keyed {
    type Hasher = KeyedHasher;

    fn build_hasher(&self) -> KeyedHasher {
        KeyedHasher(self.0, self.1)
    }
}
