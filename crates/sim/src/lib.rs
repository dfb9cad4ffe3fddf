//! The virtual-time world: the engine at both ends, modelled links between, no clock and no sockets.
//!
//! [`RunSpec`] says everything that a run depends on; the same spec gives the same [`RunResult`], byte for
//! byte, on any machine.
#![forbid(unsafe_code)]

mod result;
mod spec;

pub use result::{
    DecisionTrace, FlowResult, Outcome, PathResult, RunResult, Sample, SegmentFate, SegmentTrace,
    SubflowSample,
};
pub use spec::{
    Background, Bottleneck, Direction, EndSpec, Mode, PathSpec, Recording, RunSpec, Scenario, Traffic,
    Workload,
};

/// Nanoseconds since the start of the run, or a span of them.
pub type Nanos = u64;
