//! The ranges that were handed to subflows and aren't acknowledged at data level.

use std::collections::VecDeque;

use crate::scheduler::Chunk;
use crate::{SubflowId, Time};

/// The most bytes of a mapping: its length has 16 bits, and DATA_FIN takes one.
pub(super) const LONGEST_MAPPING: u64 = 65_534;

/// A range that was handed to a subflow and is not acknowledged at data level: a [`Chunk`] in three words, as
/// thousands of connections keep hundreds of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sent {
    pub offset: u64,
    pub(super) sent_at: Time,
    pub(super) carriers: u32,
    /// A mapping's length has 16 bits.
    pub(super) len: u16,
    pub last: SubflowId,
    /// Whether it waits in the reinjection queue.
    pub reinject: bool,
}

impl Sent {
    #[inline]
    fn new(chunk: Chunk) -> Self {
        let Chunk { offset, len, carriers, last, sent_at } = chunk;
        debug_assert!(len <= u32::from(u16::MAX), "no more than a mapping");
        Sent { offset, sent_at, carriers, len: len as u16, last, reinject: false }
    }

    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.offset + u64::from(self.len)
    }

    #[inline]
    pub fn chunk(&self) -> Chunk {
        let Sent { offset, sent_at, carriers, len, last, .. } = *self;
        Chunk { offset, len: u32::from(len), carriers, last, sent_at }
    }
}

/// The chunks in flight, in order of offset.
#[derive(Debug, Default)]
pub(crate) struct Chunks(pub(super) VecDeque<Sent>);

impl Chunks {
    /// Index of the first chunk that ends after `offset`.
    pub(super) fn index_after(&self, offset: u64) -> usize {
        match self.0.front() {
            None => 0,
            Some(first) if first.end() > offset => 0,
            _ => self.0.partition_point(|sent| sent.end() <= offset),
        }
    }

    /// The chunk that contains `offset`.
    pub fn find_mut(&mut self, offset: u64) -> Option<&mut Sent> {
        let index = self.index_after(offset);
        self.0.get_mut(index).filter(|sent| sent.offset <= offset)
    }

    pub fn find(&self, offset: u64) -> Option<&Sent> {
        self.0.get(self.index_after(offset)).filter(|sent| sent.offset <= offset)
    }

    #[inline]
    pub fn insert(&mut self, chunk: Chunk) {
        match self.0.back() {
            Some(last) if last.offset > chunk.offset => self.insert_among(chunk),
            _ => self.0.push_back(Sent::new(chunk)),
        }
    }

    #[inline(never)]
    fn insert_among(&mut self, chunk: Chunk) {
        let index = self.index_after(chunk.offset);
        self.0.insert(index, Sent::new(chunk));
    }

    /// Forgets what lies before `una`; a chunk across it is cut.
    pub fn acknowledge(&mut self, una: u64) {
        while let Some(first) = self.0.front_mut() {
            let end = first.end();
            if end <= una {
                self.0.pop_front();
            } else {
                if first.offset < una {
                    first.len = (end - una) as u16;
                    first.offset = una;
                }
                break;
            }
        }
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The first chunk that ends after `offset`.
    pub fn chunk_after(&self, offset: u64) -> Option<Chunk> {
        self.0.get(self.index_after(offset)).map(Sent::chunk)
    }

    /// The last chunk that begins before `offset`.
    pub fn chunk_before(&self, offset: u64) -> Option<Chunk> {
        let end = match self.0.back() {
            Some(last) if last.offset < offset => self.0.len(),
            _ => self.0.partition_point(|sent| sent.offset < offset),
        };
        self.0.get(end.checked_sub(1)?).map(Sent::chunk)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}
