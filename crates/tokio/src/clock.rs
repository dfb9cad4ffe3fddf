//! The engine's time: tokio's clock as nanoseconds since the network was made, so that a paused runtime
//! pauses it too.

use std::time::Duration;

use ropewalk_engine::Nanos;
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
    pub fn now(&self) -> Nanos {
        self.origin.elapsed().as_nanos() as Nanos
    }

    /// The instant of a deadline.
    pub fn instant(&self, at: Nanos) -> Instant {
        self.origin + Duration::from_nanos(at)
    }
}
