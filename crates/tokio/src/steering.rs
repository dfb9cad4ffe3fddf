//! Which shard a segment belongs to.
//!
//! A connection's first subflow belongs to the shard that a hash of its four-tuple names, so every shard
//! knows without asking. A join names its connection by a token: a table has the shard of each token, and of
//! each joined subflow whose hash names another shard than its connection's.
//!
//! The kernel sends a connection's packets to the queue that last sent one for it, so nearly every segment
//! arrives at its shard. What doesn't (a first SYN, a join, a connection that was idle for long) is handed
//! over.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::{OnceLock, PoisonError, RwLock};

use ropewalk_wire::FourTuple;

/// One key for the process: networks that are joined in memory agree, and nobody outside can choose a shard.
static HASHER: OnceLock<RandomState> = OnceLock::new();

/// The shards' shared knowledge.
#[derive(Debug)]
pub(crate) struct Steering {
    shards: usize,
    tokens: RwLock<HashMap<u32, usize>>,
    joined: RwLock<HashMap<FourTuple, usize>>,
}

impl Steering {
    pub fn new(shards: usize) -> Steering {
        Steering { shards, tokens: RwLock::default(), joined: RwLock::default() }
    }

    /// Whether there is a choice.
    #[inline]
    pub fn is_needed(&self) -> bool {
        self.shards > 1
    }

    /// The shard that the hash names, the same in both directions.
    pub fn hashed(&self, tuple: &FourTuple) -> usize {
        let (source, destination) = (tuple.source(), tuple.destination());
        self.hashed_pair(source, destination)
    }

    /// As [`hashed`](Self::hashed), of a pair of addresses.
    pub fn hashed_pair(&self, one: SocketAddr, other: SocketAddr) -> usize {
        let key = |address: SocketAddr| (address.ip(), address.port());
        let (one, other) = (key(one), key(other));
        let pair = if one <= other { (one, other) } else { (other, one) };
        let hash = HASHER.get_or_init(RandomState::new).hash_one(pair);
        ((u128::from(hash) * self.shards as u128) >> 64) as usize
    }

    /// The shard of a segment that isn't known where it arrived; `token`: of the join that it begins.
    pub fn owner(&self, tuple: &FourTuple, token: Option<u32>) -> usize {
        if let Some(token) = token {
            let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(shard) = tokens.get(&token) {
                return *shard;
            }
        }
        let joined = self.joined.read().unwrap_or_else(PoisonError::into_inner);
        joined.get(tuple).copied().unwrap_or_else(|| self.hashed(tuple))
    }

    /// Joins with this token belong to `shard`.
    pub fn add_token(&self, token: u32, shard: usize) {
        self.tokens.write().unwrap_or_else(PoisonError::into_inner).insert(token, shard);
    }

    pub fn remove_token(&self, token: u32) {
        self.tokens.write().unwrap_or_else(PoisonError::into_inner).remove(&token);
    }

    /// Segments with this tuple, as we receive them, belong to `shard`. Returns whether that had to be noted.
    pub fn add_joined(&self, tuple: FourTuple, shard: usize) -> bool {
        if self.hashed(&tuple) == shard {
            return false;
        }
        self.joined.write().unwrap_or_else(PoisonError::into_inner).insert(tuple, shard);
        true
    }

    pub fn remove_joined(&self, tuple: &FourTuple) {
        self.joined.write().unwrap_or_else(PoisonError::into_inner).remove(tuple);
    }

    /// Tokens and joined subflows that are noted.
    pub fn noted(&self) -> (usize, usize) {
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner).len();
        (tokens, self.joined.read().unwrap_or_else(PoisonError::into_inner).len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(port: u16) -> FourTuple {
        FourTuple::new(([10, 0, 0, 1], 80).into(), ([10, 0, 0, 2], port).into())
    }

    #[test]
    fn both_directions_name_one_shard_and_shards_get_equal_shares() {
        let steering = Steering::new(4);
        let mut shares = [0; 4];
        for port in 1..=4000 {
            let shard = steering.hashed(&tuple(port));
            assert_eq!(steering.hashed(&tuple(port).reversed()), shard);
            shares[shard] += 1;
        }
        // 1000 each with a standard deviation of 27.
        assert!(shares.iter().all(|share| (800..1200).contains(share)), "{shares:?}");
    }

    #[test]
    fn joins_go_to_the_shard_of_their_token_and_stay_there() {
        let steering = Steering::new(2);
        let other = 1 - steering.hashed(&tuple(1));
        steering.add_token(7, other);
        assert_eq!(steering.owner(&tuple(1), Some(7)), other);
        assert_eq!(steering.owner(&tuple(1), None), 1 - other);
        assert!(steering.add_joined(tuple(1), other));
        assert!(!steering.add_joined(tuple(1), 1 - other), "the hash says so already");
        assert_eq!(steering.owner(&tuple(1), None), other);
        steering.remove_token(7);
        steering.remove_joined(&tuple(1));
        assert_eq!(steering.noted(), (0, 0));
    }
}
