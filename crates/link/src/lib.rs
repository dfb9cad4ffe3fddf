//! The models of a path's one direction: rate or trace, delay, jitter, loss, queue, changes over time.
//! Shared by the simulator and the emulator.
#![forbid(unsafe_code)]

mod spec;

pub use spec::{Change, ChangeAction, Jitter, JitterShape, LinkSpec, Loss, Queue, Rate, RateTrace};

/// Nanoseconds since an arbitrary origin, or a span of them.
pub type Nanos = u64;
