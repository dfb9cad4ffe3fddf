//! The algorithms that can be named, as one value that a caller may add to.

use ropewalk_engine::congestion::{self, CongestionControl};
use ropewalk_engine::registry::{Registry, SpecError};
use ropewalk_engine::scheduler::{self, Scheduler};

/// Schedulers and congestion controls. Start from [`Registries::builtin`] and add your own.
#[derive(Debug)]
pub struct Registries {
    /// Packet schedulers.
    pub schedulers: Registry<dyn Scheduler>,
    /// Congestion controls.
    pub congestion: Registry<dyn CongestionControl>,
}

impl Registries {
    /// All that come with the engine.
    pub fn builtin() -> Self {
        Registries { schedulers: scheduler::builtin(), congestion: congestion::builtin() }
    }

    /// What is wrong with a scheduler's name as `compare` takes it (`tcp` is plain TCP), if anything.
    pub fn check_scheduler(&self, text: &str) -> Option<SpecError> {
        if text == "tcp" || text.starts_with("tcp:") { None } else { self.schedulers.parse(text).err() }
    }
}
