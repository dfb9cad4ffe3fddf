//! Sweeps: a scenario with some of its parameters varied, over a grid or a Latin hypercube, with many runs at
//! each point.

mod axis;
pub mod columns;
mod design;
mod make;
pub mod metrics;
pub mod output;
mod question;
mod space;
mod summary;
mod target;

pub use axis::{Axis, Dimension, Level};
pub use design::{Design, Layout, Overrides, load, parse, parse_with};
pub use make::{Maker, check, digest, id, in_memory};
pub use question::Questions;
pub use space::{Prepared, Runner, Space, describe, prepare};
pub use summary::{SchedulerSummary, Summary};

/// The command, for the manifest.
#[derive(Clone, Debug)]
pub struct Command {
    /// The command line.
    pub line: Vec<String>,
    /// A digest of the program: results of different builds aren't combined.
    pub build: String,
}
