//! Sweeps: a scenario with some of its parameters varied, over a grid or a Latin hypercube, with many runs at each
//! point.
//!
//! A finished run is a record in an append-only [`journal`]. When all runs are there, the table is made from it in order
//! of the runs' numbers. So an interrupted sweep can continue, and the table's bytes depend neither on interruptions nor
//! on the number of threads.

mod axis;
pub mod columns;
mod design;
mod execute;
pub mod journal;
pub mod metrics;
mod output;
mod parquet;
mod space;
mod summary;
mod target;

use std::path::{Path, PathBuf};

pub use axis::{Axis, Dimension, Level};
pub use design::{Design, Layout, Overrides, load, parse, parse_with};
pub use execute::{Done, Error, Maker, Progress, Session, check, digest, in_memory, run};
pub use space::{Prepared, Runner, Space, describe, prepare};
pub use summary::{Standing, Summary};

/// The command, for the manifest.
#[derive(Clone, Debug)]
pub struct Command {
    /// The command line.
    pub line: Vec<String>,
    /// A digest of the program: results of different builds aren't combined.
    pub build: String,
}

/// The files of a sweep.
#[derive(Clone, Debug)]
pub struct Files {
    /// Finished runs.
    pub journal: PathBuf,
    /// The table, a row per run.
    pub runs: PathBuf,
    /// The manifest.
    pub manifest: PathBuf,
}

impl Files {
    /// The files in this folder.
    pub fn in_folder(folder: &Path) -> Self {
        Files {
            journal: folder.join("journal"),
            runs: folder.join("runs.parquet"),
            manifest: folder.join("manifest.json"),
        }
    }
}
