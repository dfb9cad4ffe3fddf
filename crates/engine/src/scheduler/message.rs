//! Messages in the stream, as the application marks them: where one ends, and until when it is of use.

use super::View;
use crate::Time;

/// A message that the application marked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Message {
    /// Stream offset of its first byte.
    pub start: u64,
    /// Stream offset after its last byte. What lies beyond [`View::written`] isn't written yet.
    pub end: u64,
    /// When it has to be delivered, if the application said so.
    pub deadline: Option<Time>,
}

impl View<'_> {
    /// The message that the byte at `offset` belongs to, if the application has marked where that ends. O(log
    /// n) of the messages that aren't acknowledged.
    pub fn message(&self, offset: u64) -> Option<Message> {
        self.in_flight.message_at(offset)
    }
}
