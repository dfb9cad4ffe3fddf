//! A list whose items are moved in chunks: inserting or removing anywhere costs as much as a chunk at most,
//! however long the list is. A peer that sends tiny segments in random order causes thousands of insertions
//! in the middle of long lists.
//!
//! A short list is one ring buffer, which is fast at both ends.

use std::collections::VecDeque;

/// Most items of a chunk.
const CHUNK: usize = 256;

/// A sequence of items with a double-ended queue's operations, by index.
#[derive(Debug)]
pub(crate) struct ChunkedList<T> {
    /// The first chunk; empty only if the list is.
    first: VecDeque<T>,
    /// The further chunks, none of them empty.
    rest: VecDeque<VecDeque<T>>,
    /// Items in the further chunks.
    rest_len: usize,
    /// An empty chunk, whose memory is used again.
    spare: VecDeque<T>,
}

impl<T> Default for ChunkedList<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> ChunkedList<T> {
    pub fn new() -> Self {
        ChunkedList { first: VecDeque::new(), rest: VecDeque::new(), rest_len: 0, spare: VecDeque::new() }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.first.len() + self.rest_len
    }

    #[inline]
    pub fn front(&self) -> Option<&T> {
        self.first.front()
    }

    #[inline]
    pub fn front_mut(&mut self) -> Option<&mut T> {
        self.first.front_mut()
    }

    #[inline]
    pub fn back(&self) -> Option<&T> {
        if self.rest_len == 0 { self.first.back() } else { self.rest.back()?.back() }
    }

    #[inline]
    pub fn back_mut(&mut self) -> Option<&mut T> {
        if self.rest_len == 0 { self.first.back_mut() } else { self.rest.back_mut()?.back_mut() }
    }

    #[inline]
    pub fn push_back(&mut self, item: T) {
        if self.rest_len == 0 && self.first.len() < CHUNK {
            self.first.push_back(item);
        } else {
            self.push_back_to_rest(item);
        }
    }

    #[inline(never)]
    fn push_back_to_rest(&mut self, item: T) {
        if self.rest.back().is_none_or(|last| last.len() >= CHUNK) {
            self.rest.push_back(std::mem::take(&mut self.spare));
        }
        if let Some(last) = self.rest.back_mut() {
            last.push_back(item);
            self.rest_len += 1;
        }
    }

    #[inline]
    pub fn pop_front(&mut self) -> Option<T> {
        let item = self.first.pop_front();
        if self.first.is_empty() && self.rest_len > 0 {
            self.refill();
        }
        item
    }

    /// The first chunk is used up.
    #[cold]
    fn refill(&mut self) {
        if let Some(next) = self.rest.pop_front() {
            self.rest_len -= next.len();
            self.spare = std::mem::replace(&mut self.first, next);
        }
    }

    pub fn pop_back(&mut self) -> Option<T> {
        if self.rest_len == 0 { self.first.pop_back() } else { self.remove(self.len() - 1) }
    }

    /// The further chunk that holds the item at `index`, which isn't in the first chunk, and its index there.
    /// The end of the list is in the last one.
    fn locate(&self, index: usize) -> (usize, usize) {
        let mut left = index - self.first.len();
        for (number, chunk) in self.rest.iter().enumerate() {
            if left < chunk.len() || number + 1 == self.rest.len() {
                return (number, left);
            }
            left -= chunk.len();
        }
        (0, left)
    }

    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        if index < self.first.len() || self.rest_len == 0 {
            self.first.get(index)
        } else {
            self.get_in_rest(index)
        }
    }

    #[inline(never)]
    fn get_in_rest(&self, index: usize) -> Option<&T> {
        let (chunk, at) = self.locate(index);
        self.rest.get(chunk)?.get(at)
    }

    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        if index < self.first.len() || self.rest_len == 0 {
            return self.first.get_mut(index);
        }
        let (chunk, at) = self.locate(index);
        self.rest.get_mut(chunk)?.get_mut(at)
    }

    /// Inserts an item before the one at `index`, which is at most the length.
    pub fn insert(&mut self, index: usize, item: T) {
        if index == self.len() {
            self.push_back(item);
        } else if index <= self.first.len() {
            self.first.insert(index, item);
            if self.first.len() > CHUNK {
                let half = self.first.split_off(CHUNK / 2);
                self.rest_len += half.len();
                self.rest.push_front(half);
            }
        } else {
            let (chunk, at) = self.locate(index);
            self.rest_len += 1;
            let full = &mut self.rest[chunk];
            full.insert(at, item);
            if full.len() > CHUNK {
                let half = full.split_off(CHUNK / 2);
                self.rest.insert(chunk + 1, half);
            }
        }
    }

    pub fn remove(&mut self, index: usize) -> Option<T> {
        if index < self.first.len() || self.rest_len == 0 {
            let item = self.first.remove(index);
            if self.first.is_empty() {
                self.refill();
            }
            return item;
        }
        let (chunk, at) = self.locate(index);
        let item = self.rest.get_mut(chunk)?.remove(at)?;
        self.rest_len -= 1;
        if self.rest[chunk].is_empty() {
            self.rest.remove(chunk);
        }
        Some(item)
    }

    /// The number of items at the front that satisfy `before`. The list is partitioned by it.
    #[inline]
    pub fn partition_point(&self, mut before: impl FnMut(&T) -> bool) -> usize {
        if self.rest_len > 0 && self.first.back().is_some_and(&mut before) {
            self.partition_point_in_rest(before)
        } else {
            self.first.partition_point(before)
        }
    }

    #[inline(never)]
    fn partition_point_in_rest(&self, mut before: impl FnMut(&T) -> bool) -> usize {
        let chunk = self.rest.partition_point(|chunk| chunk.back().is_some_and(&mut before));
        let passed: usize = self.rest.iter().take(chunk).map(VecDeque::len).sum();
        let within = self.rest.get(chunk).map_or(0, |chunk| chunk.partition_point(before));
        self.first.len() + passed + within
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(self.rest.iter().flatten())
    }

    pub fn clear(&mut self) {
        self.first.clear();
        self.rest.clear();
        self.rest_len = 0;
    }

    /// Frees unused memory.
    pub fn shrink(&mut self) {
        self.first.shrink_to_fit();
        self.rest.shrink_to_fit();
        self.spare = VecDeque::new();
    }
}

impl<T> std::ops::Index<usize> for ChunkedList<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: usize) -> &T {
        match self.get(index) {
            Some(item) => item,
            None => out_of_range(index, self.len()),
        }
    }
}

impl<T> std::ops::IndexMut<usize> for ChunkedList<T> {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut T {
        let len = self.len();
        match self.get_mut(index) {
            Some(item) => item,
            None => out_of_range(index, len),
        }
    }
}

#[cold]
#[inline(never)]
fn out_of_range(index: usize, len: usize) -> ! {
    panic!("index {index} of {len} items")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{CHUNK, ChunkedList};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        /// Against a vector, by random operations on lists of several chunks.
        #[test]
        fn it_is_a_list(grown in 0..4 * CHUNK, ops in prop::collection::vec((0u8..8, any::<u32>()), 1..900)) {
            let mut list: ChunkedList<u32> = ChunkedList::new();
            (0..grown as u32).for_each(|n| list.push_back(n));
            let mut plain: Vec<u32> = (0..grown as u32).collect();
            for (op, item) in ops {
                let index = item as usize % (plain.len() + 1);
                match op {
                    0 => {
                        list.push_back(item);
                        plain.push(item);
                    }
                    1 if !plain.is_empty() => prop_assert_eq!(list.pop_front(), Some(plain.remove(0))),
                    2 => prop_assert_eq!(list.pop_back(), plain.pop()),
                    3 if index < plain.len() => {
                        prop_assert_eq!(list.remove(index), Some(plain.remove(index)));
                    }
                    4 if item % 61 == 0 => {
                        list.clear();
                        plain.clear();
                    }
                    _ => {
                        list.insert(index, item);
                        plain.insert(index, item);
                    }
                }
                prop_assert_eq!((list.len(), list.is_empty()), (plain.len(), plain.is_empty()));
                prop_assert_eq!((list.front(), list.back()), (plain.first(), plain.last()));
                let at = index.min(plain.len());
                prop_assert_eq!(list.get(at), plain.get(at));
                prop_assert_eq!(list.get_mut(at), plain.get_mut(at));
            }
            prop_assert!(list.iter().eq(&plain));
            prop_assert!(list.rest.iter().all(|chunk| (1..=CHUNK).contains(&chunk.len())));
            prop_assert_eq!(list.front_mut().copied(), plain.first().copied());
        }
    }

    #[test]
    fn a_partition_is_found_in_every_chunk() {
        let mut list = ChunkedList::new();
        (0..5 * CHUNK).for_each(|n| list.push_back(n));
        for edge in 0..=5 * CHUNK {
            assert_eq!(list.partition_point(|n| *n < edge), edge);
        }
    }

    /// An insertion moves no more than a chunk, whatever the order.
    #[test]
    fn no_chunk_grows_with_the_list() {
        let mut list = ChunkedList::new();
        let mut random = 1u64;
        for n in 0..40_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let index = (random >> 33) as usize % (list.len() + 1);
            list.insert(index, n);
        }
        assert!(list.first.len() <= CHUNK && list.rest.iter().all(|chunk| chunk.len() <= CHUNK));
        assert!(list.rest.len() <= 40_000 / (CHUNK / 2), "{} chunks", list.rest.len());
    }
}
