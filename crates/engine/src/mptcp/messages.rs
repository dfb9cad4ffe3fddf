//! Messages that the application marks in its stream, for schedulers. Nothing of them goes to the peer.

use std::collections::VecDeque;

use crate::Time;
use crate::scheduler::Message;

/// The messages that aren't acknowledged, in order, without gaps or overlaps but for bytes that belong to
/// none.
#[derive(Debug, Default)]
pub(crate) struct Messages(VecDeque<Message>);

impl Messages {
    /// The one that holds `offset`.
    pub fn at(&self, offset: u64) -> Option<Message> {
        let index = self.0.partition_point(|message| message.end <= offset);
        self.0.get(index).copied().filter(|message| message.start <= offset)
    }

    /// The next `bytes` bytes after those written, and after the messages so far, are one.
    pub fn begin(&mut self, written: u64, bytes: u64, deadline: Option<Time>) {
        let start = self.0.back().map_or(written, |last| last.end.max(written));
        if bytes > 0 {
            self.0.push_back(Message { start, end: start.saturating_add(bytes), deadline });
        }
    }

    /// A message ends with what is written.
    pub fn end(&mut self, written: u64, deadline: Option<Time>) {
        // What was announced and isn't begun won't come.
        while self.0.back().is_some_and(|last| last.start >= written) {
            self.0.pop_back();
        }
        match self.0.back_mut() {
            Some(last) if last.end >= written => {
                last.end = written;
                last.deadline = deadline.or(last.deadline);
            }
            last => {
                let start = last.map_or(0, |last| last.end);
                if start < written {
                    self.0.push_back(Message { start, end: written, deadline });
                }
            }
        }
    }

    /// Forgets what is acknowledged, but for the last before something that isn't: the next begins where that
    /// ends.
    pub fn forget(&mut self, una: u64) {
        while self.0.get(1).is_some_and(|next| next.start < una) {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Messages;
    use crate::Time;
    use crate::scheduler::Message;

    fn message(start: u64, end: u64, deadline: Option<u64>) -> Option<Message> {
        let deadline = deadline.map(Time::from_nanos);
        Some(Message { start, end, deadline })
    }

    #[test]
    fn a_message_ends_with_what_is_written() {
        let mut messages = Messages::default();
        assert_eq!(messages.at(0), None);
        messages.end(100, None);
        messages.end(250, Some(Time::from_nanos(7)));
        assert_eq!((messages.at(0), messages.at(99)), (message(0, 100, None), message(0, 100, None)));
        assert_eq!(
            (messages.at(100), messages.at(249)),
            (message(100, 250, Some(7)), message(100, 250, Some(7)))
        );
        assert_eq!(messages.at(250), None, "that one's end isn't known");
    }

    #[test]
    fn one_that_is_announced_is_known_before_it_is_written() {
        let mut messages = Messages::default();
        messages.begin(10, 100, Some(Time::from_nanos(5)));
        messages.begin(10, 50, None);
        assert_eq!((messages.at(9), messages.at(10)), (None, message(10, 110, Some(5))));
        assert_eq!(messages.at(110), message(110, 160, None), "the next begins where it ends");
        messages.begin(200, 10, None);
        assert_eq!((messages.at(170), messages.at(200)), (None, message(200, 210, None)));
        messages.begin(200, 0, None);
        assert_eq!(messages.at(210), None, "an empty one is none");
    }

    #[test]
    fn one_that_ends_early_is_as_long_as_what_was_written() {
        let mut messages = Messages::default();
        messages.begin(0, 100, Some(Time::from_nanos(5)));
        messages.begin(0, 100, Some(Time::from_nanos(6)));
        messages.end(60, None);
        assert_eq!((messages.at(59), messages.at(60)), (message(0, 60, Some(5)), None));
        messages.end(60, Some(Time::from_nanos(9)));
        assert_eq!(messages.at(59), message(0, 60, Some(9)), "its deadline changes");
        messages.end(0, None);
        assert_eq!(messages.at(0), None);
    }

    #[test]
    fn what_is_acknowledged_is_forgotten() {
        let mut messages = Messages::default();
        (1..=5).for_each(|n| messages.end(n * 10, None));
        messages.forget(25);
        assert_eq!((messages.0.len(), messages.at(5), messages.at(25)), (3, None, message(20, 30, None)));
        messages.forget(50);
        messages.begin(50, 10, None);
        messages.forget(50);
        messages.end(50, None);
        messages.end(60, None);
        assert_eq!(messages.at(55), message(50, 60, None), "the next begins where the last ended");
    }
}
