//! Whether the connection is over, and why.

use super::close_reason::{CloseReason, StreamError};

/// How far the connection's end has come.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    /// It is closed or reset: nothing more will be delivered or sent but what its subflows still send.
    terminated: bool,
    /// Why it is.
    reason: Option<CloseReason>,
    /// The application closed it and reads no more.
    abandoned: bool,
    /// The peer has acknowledged the end of our side.
    half_closed: bool,
}

impl Closing {
    /// Whether it is closed or reset.
    #[inline]
    pub fn is_terminated(&self) -> bool {
        self.terminated
    }

    /// Whether the application reads no more.
    #[inline]
    pub fn is_abandoned(&self) -> bool {
        self.abandoned
    }

    /// The application reads no more.
    pub fn abandon(&mut self) {
        self.abandoned = true;
    }

    /// The peer has acknowledged the end of our side. Returns false if it had before.
    pub fn half_close(&mut self) -> bool {
        !std::mem::replace(&mut self.half_closed, true)
    }

    /// It ends. Returns false if it was over: then the first reason stays.
    pub fn end(&mut self, reason: CloseReason) -> bool {
        let is_news = !self.terminated;
        self.terminated = true;
        self.reason.get_or_insert(reason);
        is_news
    }

    /// Why it ended; `None` while it hasn't.
    pub fn reason(&self) -> Option<CloseReason> {
        self.reason
    }

    /// Why it was lost; `None` while it wasn't, or when it was closed in order.
    pub fn loss(&self) -> Option<CloseReason> {
        self.reason.filter(|reason| *reason != CloseReason::Closed)
    }

    /// Why nothing can be written.
    #[cold]
    pub fn write_error(&self) -> StreamError {
        self.loss().map_or(StreamError::Closed, StreamError::Lost)
    }
}
