//! The virtual-time world: the engine at both ends, modelled links between, no clock and no sockets.
//!
//! [`RunSpec`] says everything that a run depends on; the same spec gives the same [`RunResult`], byte for
//! byte, on any machine.
#![forbid(unsafe_code)]

mod app;
mod check;
mod compact;
mod config;
pub mod datagrams;
mod entropy;
mod event_queue;
mod host;
mod hosts;
mod meter;
mod network;
pub mod networks;
mod observer;
mod packet;
mod recorder;
mod result;
mod routes;
mod run;
mod spec;
mod topology;
mod udp;
mod world;

pub use check::SpecError;
pub use config::connection;
pub use host::{Counting, HOSTS, Host, HostProfile, Line};
pub use observer::{Middlebox, SegmentObserver};
pub use run::run;
pub use topology::first_path;
pub use world::World;
pub use world::long_outage;

pub use result::{
    DecisionTrace, FlowResult, OfoResult, Outcome, PathResult, RunResult, Sample, SegmentTrace,
    SubflowSample, Totals, Transmission,
};
pub use spec::{
    Background, Bottleneck, Direction, EndSpec, KeyFrames, MTUS, Metered, Mode, PathManager, PathSpec,
    Recording, RunSpec, Scenario, Times, Traffic, Transfer, Workload,
};

/// One of the two ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Side {
    /// Opens the connections and has an address per path.
    Client = 0,
    /// Listens at one address.
    Server = 1,
}

impl Side {
    /// The one opposite.
    #[inline]
    pub fn other(self) -> Side {
        match self {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }
}
