//! Which subflow receives segments with some four-tuple: a hash table, and a cache before it.

use std::collections::HashMap;
use std::net::IpAddr;

use ropewalk_wire::{FourTuple, Payload};

use super::Endpoint;
use super::handles::SubflowHandle;
use super::keyed::Keyed;
use crate::Entropy;

/// Entries of the smallest cache.
const MIN_ENTRIES: usize = 64;

/// A direct-mapped cache. An entry is valid if the subflow that it names has the segment's four-tuple, which
/// the caller checks: entries needn't be removed. It takes a twentieth of the table's memory, so that with
/// thousands of connections more of it is in the processor's cache.
#[derive(Debug)]
struct RouteCache {
    /// By ports and addresses: packed handles, or 0. A power of two of them.
    entries: Vec<u32>,
}

impl RouteCache {
    /// Consecutive ports have neighbouring entries.
    #[inline]
    fn index(&self, tuple: &FourTuple) -> usize {
        let bits = match (&tuple.src, &tuple.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => src.to_bits() ^ dst.to_bits(),
            (src, dst) => Self::folded(src) ^ Self::folded(dst),
        };
        // The golden ratio spreads neighbouring addresses.
        let addresses = bits.wrapping_mul(0x9e37_79b9);
        let ports = u32::from(tuple.src_port) + u32::from(tuple.dst_port);
        (addresses >> 12 ^ addresses).wrapping_add(ports) as usize & (self.entries.len() - 1)
    }

    // Not inlined: it would lie in the path of every segment over IPv4.
    fn folded(address: &IpAddr) -> u32 {
        match address {
            IpAddr::V4(address) => address.to_bits(),
            IpAddr::V6(address) => (address.to_bits() >> 64) as u32 ^ address.to_bits() as u32,
        }
    }

    #[inline]
    fn get(&self, tuple: &FourTuple) -> Option<SubflowHandle> {
        SubflowHandle::unpack(self.entries[self.index(tuple)])
    }

    /// Stores a route, of an endpoint with this many subflows.
    fn insert(&mut self, tuple: &FourTuple, handle: SubflowHandle, subflows: usize) {
        if self.entries.len() < 2 * subflows {
            self.entries.clear();
            self.entries.resize((4 * subflows).next_power_of_two(), 0);
        }
        let index = self.index(tuple);
        self.entries[index] = handle.pack();
    }
}

/// The routes of an endpoint, by the four-tuple of the segments that it receives.
#[derive(Debug)]
pub(super) struct Routes {
    table: HashMap<FourTuple, SubflowHandle, Keyed>,
    cache: RouteCache,
}

impl Routes {
    pub fn new(hasher: Keyed) -> Self {
        Routes { table: HashMap::with_hasher(hasher), cache: RouteCache { entries: vec![0; MIN_ENTRIES] } }
    }

    pub fn insert(&mut self, tuple: FourTuple, handle: SubflowHandle) {
        self.table.insert(tuple, handle);
    }

    pub fn remove(&mut self, tuple: &FourTuple) {
        self.table.remove(tuple);
    }

    pub fn contains(&self, tuple: &FourTuple) -> bool {
        self.table.contains_key(tuple)
    }

    /// Looks a route up in the table.
    pub fn get(&self, tuple: &FourTuple) -> Option<SubflowHandle> {
        self.table.get(tuple).copied()
    }

    /// Looks a route up in the cache. It may be another four-tuple's.
    #[inline]
    pub fn cached(&self, tuple: &FourTuple) -> Option<SubflowHandle> {
        self.cache.get(tuple)
    }

    /// Looks a route up in the table and caches it.
    pub fn get_and_cache(&mut self, tuple: &FourTuple) -> Option<SubflowHandle> {
        let handle = self.get(tuple)?;
        self.cache.insert(tuple, handle, self.table.len());
        Some(handle)
    }
}

impl<P: Payload, E: Entropy> Endpoint<P, E> {
    /// The subflow that receives segments with this tuple.
    pub fn subflow_of(&self, tuple: &FourTuple) -> Option<SubflowHandle> {
        self.routes.get(tuple)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(port: u16) -> FourTuple {
        FourTuple::new(
            format!("192.0.2.1:{port}").parse().expect("an address"),
            "192.0.2.2:80".parse().expect("an address"),
        )
    }

    #[test]
    fn what_was_looked_up_is_cached_until_the_cache_grows() {
        let mut routes = Routes::new(Keyed::new(1, 2));
        let handle = |port| SubflowHandle { index: u32::from(port), subflow: 3 };
        let few = MIN_ENTRIES as u16 / 2;
        (0..few).for_each(|port| routes.insert(tuple(port), handle(port)));
        assert_eq!((routes.cached(&tuple(1)), routes.get_and_cache(&tuple(few))), (None, None));
        for port in 0..few {
            assert_eq!(routes.get_and_cache(&tuple(port)), Some(handle(port)));
        }
        for port in 0..few {
            assert_eq!(routes.cached(&tuple(port)), Some(handle(port)));
        }
        routes.insert(tuple(few), handle(few));
        assert_eq!(routes.get_and_cache(&tuple(few)), Some(handle(few)));
        assert_eq!((routes.cached(&tuple(1)), routes.cached(&tuple(few))), (None, Some(handle(few))));
    }

    #[test]
    fn a_handle_that_cannot_be_packed_is_found_in_the_table() {
        let mut routes = Routes::new(Keyed::new(1, 2));
        let handle = SubflowHandle { index: u32::MAX, subflow: 0 };
        routes.insert(tuple(1), handle);
        assert_eq!((routes.get_and_cache(&tuple(1)), routes.cached(&tuple(1))), (Some(handle), None));
    }
}
