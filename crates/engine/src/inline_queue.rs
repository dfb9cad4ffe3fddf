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
    /// Made with the first second item.
    rest: Option<Box<Ring<T>>>,
}

/// Items after the first.
#[derive(Debug)]
struct Ring<T>(VecDeque<T>);

impl<T> Default for Ring<T> {
    fn default() -> Self {
        Ring(VecDeque::new())
    }
}

impl<T> Default for InlineQueue<T> {
    fn default() -> Self {
        InlineQueue { first: None, rest: None }
    }
}

impl<T> InlineQueue<T> {
    pub fn new() -> Self {
        Self::default()
    }

    /// The items after the first, if there are any.
    #[inline]
    fn rest(&self) -> Option<&VecDeque<T>> {
        self.rest.as_ref().map(|rest| &rest.0).filter(|rest| !rest.is_empty())
    }

    /// The same, to change them.
    #[inline]
    fn rest_mut(&mut self) -> Option<&mut VecDeque<T>> {
        self.rest.as_mut().map(|rest| &mut rest.0).filter(|rest| !rest.is_empty())
    }

    fn ring(&mut self) -> &mut VecDeque<T> {
        &mut self.rest.get_or_insert_default().0
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest().map_or(0, VecDeque::len)
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
        match self.rest() {
            Some(rest) => rest.back(),
            None => self.first.as_ref(),
        }
    }

    #[inline]
    pub fn back_mut(&mut self) -> Option<&mut T> {
        if self.rest().is_some() { self.rest_mut()?.back_mut() } else { self.first.as_mut() }
    }

    #[inline(always)]
    pub fn push_back(&mut self, item: T) {
        if self.first.is_none() {
            self.first = Some(item);
        } else {
            self.ring().push_back(item);
        }
    }

    pub fn push_front(&mut self, item: T) {
        if let Some(second) = self.first.replace(item) {
            self.ring().push_front(second);
        }
    }

    #[inline]
    pub fn pop_front(&mut self) -> Option<T> {
        let item = self.first.take();
        if let Some(rest) = self.rest_mut() {
            self.first = rest.pop_front();
        }
        item
    }

    /// Removes the first item without returning it, which saves a copy.
    #[inline(always)]
    pub fn drop_front(&mut self) {
        // One assignment for both would copy the empty item as well.
        match self.rest_mut() {
            None => self.first = None,
            Some(rest) => self.first = rest.pop_front(),
        }
    }

    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        if index == 0 { self.first.as_mut() } else { self.rest_mut()?.get_mut(index - 1) }
    }

    /// Inserts `item` at `index`, which is at most the length.
    pub fn insert(&mut self, index: usize, item: T) {
        if index == 0 {
            self.push_front(item);
        } else {
            self.ring().insert(index - 1, item);
        }
    }

    pub fn remove(&mut self, index: usize) -> Option<T> {
        if index == 0 { self.pop_front() } else { self.rest_mut()?.remove(index - 1) }
    }

    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(self.rest().into_iter().flatten())
    }

    /// Empties the queue, and returns what `take` makes of all its items.
    pub fn take_all<R>(&mut self, take: impl FnOnce(&[T]) -> R) -> R {
        let first = self.first.take();
        let ring = self.ring();
        if let Some(first) = first {
            ring.push_front(first);
        }
        let taken = take(ring.make_contiguous());
        ring.clear();
        taken
    }

    pub fn clear(&mut self) {
        self.first = None;
        if let Some(rest) = self.rest_mut() {
            rest.clear();
        }
    }

    /// Frees unused memory.
    pub fn shrink(&mut self) {
        if let Some(rest) = self.rest_mut() {
            rest.shrink_to_fit();
        } else {
            self.rest = None;
        }
    }
}

impl<T> IntoIterator for InlineQueue<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<std::option::IntoIter<T>, std::collections::vec_deque::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.rest.map(|rest| rest.0).unwrap_or_default())
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
        fn it_is_a_queue(ops in prop::collection::vec((0u8..9, 0usize..6), 1..200)) {
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
                    8 if index == 0 => {
                        let all = short.take_all(<[usize]>::to_vec);
                        prop_assert_eq!(all, plain.drain(..).collect::<Vec<_>>());
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
