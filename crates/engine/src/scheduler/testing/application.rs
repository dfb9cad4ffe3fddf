//! What the application and the peer of a model connection do, and what schedulers see of the stream.

use super::Model;
use crate::scheduler::{Chunk, InFlight, Message};
use crate::{Span, Time};

impl Model {
    /// The connection-level send window.
    pub fn window(mut self, bytes: u64) -> Self {
        self.stream.send_window = bytes;
        self
    }

    /// The seed of the losses.
    pub fn seed(mut self, seed: u64) -> Self {
        self.random = seed | 1;
        self
    }

    /// The application declares how much it will write.
    pub fn declare(mut self, bytes: u64) -> Self {
        self.stream.declared_size = Some(bytes);
        self
    }

    /// The application marks messages of `bytes` bytes in all that it writes; each is due so long after the
    /// one before.
    pub fn messages(mut self, bytes: u64, every: Span) -> Self {
        let count = self.stream.to_write / bytes;
        let message = |n: u64| Message {
            start: n * bytes,
            end: (n + 1) * bytes,
            deadline: Some(Time::ZERO + (n + 1) * every),
        };
        self.messages = (0..count).map(message).collect();
        self
    }
}

impl InFlight for Model {
    fn chunk_after(&self, offset: u64) -> Option<Chunk> {
        self.chunks.chunk_after(offset)
    }

    fn chunk_before(&self, offset: u64) -> Option<Chunk> {
        self.chunks.chunk_before(offset)
    }

    fn message_at(&self, offset: u64) -> Option<Message> {
        let index = self.messages.partition_point(|message| message.end <= offset);
        self.messages.get(index).copied().filter(|message| message.start <= offset)
    }

    fn len(&self) -> usize {
        self.chunks.len()
    }
}
