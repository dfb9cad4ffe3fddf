//! What a flow has found out so far.

use super::{StackInfo, TestConnection};
use crate::histogram::Histogram;
use crate::perf::protocol::{Answer, Hello, Trailer};
use ropewalk_engine::{Span, Time};

impl TestConnection {
    /// Why it failed.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// What the client wants.
    pub fn hello(&self) -> Option<&Hello> {
        self.hello.as_ref()
    }

    /// The server's answer to what the client wants.
    pub fn answer(&self) -> Option<&Answer> {
        self.answer.as_ref()
    }

    /// Since when it runs.
    pub fn started_at(&self) -> Option<Time> {
        self.began
    }

    /// Bulk bytes sent so far that the peer has acknowledged, as the stack said last.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Bulk bytes sent so far, as the stack took them.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Bulk bytes received so far. A running client's may hold the trailer.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// From the answer to the last byte received, nanoseconds.
    pub fn receiving(&self) -> Span {
        self.last_received.saturating_sub(self.began.unwrap_or(self.last_received))
    }

    /// From the answer to the last byte that the stack took.
    pub fn sending(&self) -> Span {
        self.last_sent.saturating_sub(self.began.unwrap_or(self.last_sent))
    }

    /// What the server counted.
    pub fn trailer(&self) -> Option<&Trailer> {
        self.trailer.as_ref()
    }

    /// What the stack said last.
    pub fn stack_info(&self) -> &StackInfo {
        &self.info
    }

    /// Subflows at most at one time.
    pub fn subflows(&self) -> u8 {
        self.subflows
    }

    /// Times from a message to its echo, nanoseconds; `None` before the first.
    pub fn echoes(&self) -> Option<&Histogram> {
        self.echo.times.as_deref()
    }

    /// When something was last written, read or acknowledged.
    pub fn last_progress(&self) -> Time {
        self.last_progress
    }
}
