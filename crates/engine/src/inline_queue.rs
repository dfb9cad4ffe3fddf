//! A queue that stores its first item inline, and further ones in a ring on the heap.
//!
//! Many queues of a connection hold at most one item at a time. Without the ring such a queue needs no
//! allocation and no further cache line.

use std::collections::VecDeque;

/// First in, first out.
#[derive(Debug)]
pub(crate) struct InlineQueue<T> {
    /// `None` only if the queue is empty.
    first: Option<T>,
    rest: VecDeque<T>,
}

impl<T> Default for InlineQueue<T> {
    fn default() -> Self {
        InlineQueue { first: None, rest: VecDeque::new() }
    }
}

impl<T> InlineQueue<T> {
    pub fn new() -> Self {
        Self::default()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    #[inline]
    pub fn front(&self) -> Option<&T> {
        self.first.as_ref()
    }

    #[inline]
    pub fn front_mut(&mut self) -> Option<&mut T> {
        self.first.as_mut()
    }

    #[inline]
    pub fn back(&self) -> Option<&T> {
        if self.rest.is_empty() { self.first.as_ref() } else { self.rest.back() }
    }

    #[inline]
    pub fn back_mut(&mut self) -> Option<&mut T> {
        if self.rest.is_empty() { self.first.as_mut() } else { self.rest.back_mut() }
    }

    #[inline(always)]
    pub fn push_back(&mut self, item: T) {
        if self.first.is_none() {
            self.first = Some(item);
        } else {
            self.rest.push_back(item);
        }
    }

    pub fn push_front(&mut self, item: T) {
        if let Some(second) = self.first.replace(item) {
            self.rest.push_front(second);
        }
    }

    #[inline]
    pub fn pop_front(&mut self) -> Option<T> {
        let item = self.first.take();
        if !self.rest.is_empty() {
            self.first = self.rest.pop_front();
        }
        item
    }

    /// Removes the first item without returning it, which saves a copy.
    #[inline(always)]
    pub fn drop_front(&mut self) {
        // One assignment for both would copy the empty item as well.
        if self.rest.is_empty() {
            self.first = None;
        } else {
            self.first = self.rest.pop_front();
        }
    }

    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        if index == 0 { self.first.as_mut() } else { self.rest.get_mut(index - 1) }
    }

    /// Inserts `item` at `index`, which is at most the length.
    pub fn insert(&mut self, index: usize, item: T) {
        if index == 0 {
            self.push_front(item);
        } else {
            self.rest.insert(index - 1, item);
        }
    }

    pub fn remove(&mut self, index: usize) -> Option<T> {
        if index == 0 { self.pop_front() } else { self.rest.remove(index - 1) }
    }

    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.rest)
    }

    pub fn clear(&mut self) {
        self.first = None;
        self.rest.clear();
    }

    /// Frees unused memory.
    pub fn shrink(&mut self) {
        self.rest.shrink_to_fit();
    }
}

impl<T> IntoIterator for InlineQueue<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<std::option::IntoIter<T>, std::collections::vec_deque::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.rest)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::InlineQueue;

    proptest! {
        /// Against the standard library's, by random operations.
        #[test]
        fn it_is_a_queue(ops in prop::collection::vec((0u8..8, 0usize..6), 1..200)) {
            let (mut short, mut plain) = (InlineQueue::new(), VecDeque::new());
            for (n, (op, index)) in ops.into_iter().enumerate() {
                match op {
                    0 | 1 => {
                        short.push_back(n);
                        plain.push_back(n);
                    }
                    2 => {
                        short.push_front(n);
                        plain.push_front(n);
                    }
                    3 => prop_assert_eq!(short.pop_front(), plain.pop_front()),
                    4 => {
                        short.drop_front();
                        plain.pop_front();
                    }
                    5 if index <= plain.len() => {
                        short.insert(index, n);
                        plain.insert(index, n);
                    }
                    6 => prop_assert_eq!(short.remove(index), plain.remove(index)),
                    7 if index == 0 => {
                        short.clear();
                        plain.clear();
                    }
                    _ => {}
                }
                prop_assert!(short.iter().eq(&plain));
                prop_assert_eq!((short.len(), short.is_empty()), (plain.len(), plain.is_empty()));
                prop_assert_eq!((short.front(), short.back()), (plain.front(), plain.back()));
                prop_assert_eq!(short.get_mut(index), plain.get_mut(index));
                prop_assert_eq!(short.front_mut().copied(), plain.front().copied());
                prop_assert_eq!(short.back_mut().copied(), plain.back().copied());
            }
        }
    }
}
