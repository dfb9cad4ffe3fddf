//! Reusable packet memory. Many packets share a chunk, which is filled from its start again once no packet in
//! it is referenced.
//!
//! Fresh memory is expensive: the kernel zeroes each page and takes a page fault for it. With packets of 64
//! KiB that costs more than copy and checksum together. Recently used memory is also still in the cache.
//!
//! A packet that is held keeps its whole chunk from being used again. So the engine condenses what it holds
//! for long ([`Payload::condense`](crate::Payload::condense)): with chunks of 256 KiB, data that is held
//! takes at most 16 times its own size, whatever sizes and orders a peer chooses.

use std::collections::VecDeque;

use bytes::BytesMut;

/// Most bytes of full chunks that the pool keeps. Further chunks are freed when their last packet is dropped.
const MAX_KEPT: usize = 16 << 20;
/// Full chunks that are tried before a new one is allocated, the oldest first.
const CHUNKS_TRIED: usize = 4;
/// Payloads shorter than this are copied when they are condensed; longer ones may go on sharing their chunk.
pub const MAX_CONDENSED: usize = 16 << 10;

/// A pool of packet memory; see the module.
#[derive(Debug)]
pub struct Pool {
    current: BytesMut,
    /// Chunks that were filled, the oldest first.
    used: VecDeque<BytesMut>,
    /// Those of them that nobody references any more, the one that was used last at the end.
    free: Vec<BytesMut>,
    chunk: usize,
}

impl Pool {
    /// A pool with chunks of `chunk` bytes, none allocated yet.
    pub fn new(chunk: usize) -> Pool {
        Pool { current: BytesMut::new(), used: VecDeque::new(), free: Vec::new(), chunk }
    }

    /// A buffer with a capacity of at least `need` bytes. The caller splits off what it fills (`split`,
    /// `split_to`); bytes left in it have no meaning.
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
        for _ in 0..CHUNKS_TRIED {
            let Some(mut oldest) = self.used.pop_front() else { break };
            if oldest.try_reclaim(need.max(self.chunk)) {
                self.free.push(oldest);
            } else if self.free.is_empty() {
                self.used.push_back(oldest);
            } else {
                self.used.push_front(oldest);
                break;
            }
        }
        // Of those that are free, the one that was used last is the likeliest to be in the cache.
        if let Some(free) = self.free.pop_if(|free| free.capacity() >= need) {
            self.current = free;
            return;
        }
        self.used.truncate((MAX_KEPT / self.chunk).saturating_sub(self.free.len()));
        self.current = BytesMut::with_capacity(need.max(self.chunk));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashSet, VecDeque};

    use bytes::Bytes;

    use super::{MAX_CONDENSED, MAX_KEPT, Pool};
    use crate::Payload;

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
    fn what_was_used_last_is_used_first() {
        let mut pool = Pool::new(1000);
        let mut in_flight: VecDeque<Bytes> = (0..250).map(|n| packet(&mut pool, n)).collect();
        in_flight.drain(..220);
        let mut places = HashSet::new();
        for n in 0..1000 {
            let packet = packet(&mut pool, n as u8);
            places.insert(packet.as_ptr());
            in_flight.push_back(packet);
            in_flight.pop_front();
        }
        assert!(places.len() <= 60, "{} places for 30 packets in flight", places.len());
    }

    #[test]
    fn one_that_is_held_for_long_keeps_nothing_else() {
        let mut pool = Pool::new(1000);
        let long = packet(&mut pool, 7);
        let mut places = HashSet::new();
        for n in 0..1000 {
            places.insert(packet(&mut pool, n as u8).as_ptr());
        }
        assert_eq!(long[..], [7; 100]);
        assert!(places.len() <= 30, "{} places for one packet at a time", places.len());
    }

    #[test]
    fn condensed_payloads_hold_at_most_their_share_of_a_chunk() {
        const CHUNK: usize = 16 * MAX_CONDENSED;
        for (len, is_copied) in [(1, true), (1448, true), (MAX_CONDENSED - 1, true), (MAX_CONDENSED, false)] {
            let mut pool = Pool::new(CHUNK);
            let mut chunks = HashSet::new();
            let mut held: Vec<Bytes> = Vec::new();
            for _ in 0..20 {
                // Each is the only one of its chunk that is held.
                let buffer = pool.room(CHUNK);
                buffer.resize(CHUNK, 7);
                let mut payload = buffer.split().freeze().slice(..len);
                chunks.insert(payload.as_ptr());
                payload.condense();
                assert_eq!(payload, vec![7; len]);
                held.push(payload);
            }
            assert_eq!(chunks.len(), if is_copied { 1 } else { 20 }, "{len} bytes");
            assert_eq!(held.iter().any(|payload| chunks.contains(&payload.as_ptr())), !is_copied);
        }
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
