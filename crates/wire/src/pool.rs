//! Memory for packets that is used again: chunks that many packets share, each filled from its start once nobody holds a
//! packet in it any more.
//!
//! Fresh memory costs more than what is done with it: the kernel zeroes each page and takes a fault for it, at 64 KiB a
//! packet more than copy and checksum together. What was used last is in the cache still.

use std::collections::VecDeque;

use bytes::BytesMut;

/// Bytes of used-up chunks that are kept. More are in use where an application holds what it received; those go back to
/// the system when it lets go.
const KEPT: usize = 16 << 20;
/// Used-up chunks that are looked at before another is made: the oldest are free first.
const LOOKED_AT: usize = 4;

/// See the module.
#[derive(Debug)]
pub struct Pool {
    current: BytesMut,
    used: VecDeque<BytesMut>,
    chunk: usize,
}

impl Pool {
    /// With chunks of `chunk` bytes, none of them allocated yet.
    pub fn new(chunk: usize) -> Pool {
        Pool { current: BytesMut::new(), used: VecDeque::new(), chunk }
    }

    /// A buffer with room for `need` bytes in all. What its user fills is to be split off (`split`, `split_to`); what is
    /// left in it has no meaning.
    pub fn room(&mut self, need: usize) -> &mut BytesMut {
        if self.current.capacity() < need {
            self.turn(need);
        }
        &mut self.current
    }

    fn turn(&mut self, need: usize) {
        self.current.clear();
        // Where everything has been let go already, the same memory is the warmest.
        if self.current.try_reclaim(need) {
            return;
        }
        let full = std::mem::take(&mut self.current);
        if full.capacity() > 0 || !self.used.is_empty() {
            self.used.push_back(full);
        }
        for _ in 0..LOOKED_AT.min(self.used.len()) {
            let Some(mut oldest) = self.used.pop_front() else { break };
            if oldest.try_reclaim(need.max(self.chunk)) {
                self.current = oldest;
                return;
            }
            self.used.push_back(oldest);
        }
        self.used.truncate(KEPT / self.chunk);
        self.current = BytesMut::with_capacity(need.max(self.chunk));
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{KEPT, Pool};

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
        assert_eq!(pool.used.len(), KEPT >> 20);
        assert!(pool.room(5 << 20).capacity() >= 5 << 20);
        drop(held);
    }
}
