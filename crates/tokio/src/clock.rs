//! The engine's time: tokio's clock as nanoseconds since the network was made, so that a paused runtime
//! pauses it too.

use std::time::Duration;

use ropewalk_engine::{Span, Time};
use tokio::time::Instant;

/// A clock that all shards share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    pub fn start() -> Clock {
        Clock { origin: Instant::now() }
    }

    #[inline]
    pub fn now(&self) -> Time {
        Time::ZERO + Span::saturating_from(self.origin.elapsed())
    }

    /// The instant of a deadline.
    pub fn instant(&self, at: Time) -> Instant {
        self.origin + Duration::from(at.since_origin())
    }
}
