//! What the endpoint is yet to hear of a connection.

use super::stats::Event;
use crate::inline_queue::InlineQueue;

/// Events in order.
#[derive(Debug)]
pub(crate) struct EventQueue(InlineQueue<Event>);

impl EventQueue {
    pub fn new() -> Self {
        EventQueue(InlineQueue::new())
    }

    /// Adds one.
    #[inline]
    pub fn push(&mut self, event: Event) {
        self.0.push_back(event);
    }

    /// The next.
    pub fn pop(&mut self) -> Option<Event> {
        self.0.pop_front()
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes the only event if it is [`Event::Readable`], which is all that most data causes. Returns
    /// whether it did.
    #[inline]
    pub fn take_lone_readable(&mut self) -> bool {
        let lone = self.0.len() == 1 && matches!(self.0.front(), Some(Event::Readable));
        if lone {
            self.0.drop_front();
        }
        lone
    }
}
