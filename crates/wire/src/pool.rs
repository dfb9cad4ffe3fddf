//! Reusable packet memory. Many packets share a chunk, which is filled from its start again once no packet in it is
//! referenced.
//!
//! Fresh memory is expensive: the kernel zeroes each page and takes a page fault for it. With packets of 64 KiB that costs
//! more than copy and checksum together. Recently used memory is also still in the cache.

use std::collections::VecDeque;

use bytes::BytesMut;

/// Most bytes of full chunks that the pool keeps. Further chunks are freed when their last packet is dropped.
const MAX_KEPT: usize = 16 << 20;
/// Full chunks that are tried before a new one is allocated, the oldest first.
const CHUNKS_TRIED: usize = 4;

/// A pool of packet memory; see the module.
#[derive(Debug)]
pub struct Pool {
    current: BytesMut,
    used: VecDeque<BytesMut>,
    chunk: usize,
}

impl Pool {
    /// A pool with chunks of `chunk` bytes, none allocated yet.
    pub fn new(chunk: usize) -> Pool {
        Pool { current: BytesMut::new(), used: VecDeque::new(), chunk }
    }

    /// A buffer with a capacity of at least `need` bytes. The caller splits off what it fills (`split`, `split_to`); bytes
    /// left in it have no meaning.
    pub fn room(&mut self, need: usize) -> &mut BytesMut {
        if self.current.capacity() < need {
            self.next_chunk(need);
        }
        &mut self.current
    }

    /// Makes another chunk the current one.
    fn next_chunk(&mut self, need: usize) {
        self.current.clear();
        // If no packet of this chunk is referenced, it is the one most likely in the cache.
        if self.current.try_reclaim(need) {
            return;
        }
        let full = std::mem::take(&mut self.current);
        if full.capacity() > 0 || !self.used.is_empty() {
            self.used.push_back(full);
        }
        for _ in 0..CHUNKS_TRIED.min(self.used.len()) {
            let Some(mut oldest) = self.used.pop_front() else { break };
            if oldest.try_reclaim(need.max(self.chunk)) {
                self.current = oldest;
                return;
            }
            self.used.push_back(oldest);
        }
        self.used.truncate(MAX_KEPT / self.chunk);
        self.current = BytesMut::with_capacity(need.max(self.chunk));
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{MAX_KEPT, Pool};

    fn packet(pool: &mut Pool, byte: u8) -> Bytes {
        let buffer = pool.room(100);
        buffer.extend_from_slice(&[byte; 100]);
        buffer.split().freeze()
    }

    #[test]
    fn memory_comes_back_when_nobody_holds_it_and_not_before() {
        let mut pool = Pool::new(1000);
        let held: Vec<Bytes> = (0..30).map(|n| packet(&mut pool, n)).collect();
        let places: Vec<*const u8> = held.iter().map(|packet| packet.as_ptr()).collect();
        for (n, packet) in held.iter().enumerate() {
            assert_eq!(packet[..], [n as u8; 100], "overwritten while it was held");
        }
        drop(held);
        for n in 0..200 {
            let packet = packet(&mut pool, n);
            assert!(places.contains(&packet.as_ptr()), "new memory although all of the old was free");
        }
    }

    #[test]
    fn one_that_is_held_for_long_keeps_nothing_else() {
        let mut pool = Pool::new(1000);
        let long = packet(&mut pool, 7);
        let mut places = std::collections::HashSet::new();
        for n in 0..1000 {
            places.insert(packet(&mut pool, n as u8).as_ptr());
        }
        assert_eq!(long[..], [7; 100]);
        assert!(places.len() <= 30, "{} places for one packet at a time", places.len());
    }

    #[test]
    fn what_is_kept_is_bounded_and_a_large_packet_gets_its_room() {
        let mut pool = Pool::new(1 << 20);
        let held: Vec<Bytes> = (0..20).map(|_| pool.room(1 << 20).split_off(1 << 19).freeze()).collect();
        assert_eq!(pool.used.len(), MAX_KEPT >> 20);
        assert!(pool.room(5 << 20).capacity() >= 5 << 20);
        drop(held);
    }
}
