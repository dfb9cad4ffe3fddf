//! Sweeps: a scenario with some of its parameters varied, over a grid or a Latin hypercube, with many runs at each
//! point.
//!
//! A finished run is a record in an append-only [`journal`]; when all are there, the tables are made from it in order
//! of the runs' numbers. So a sweep may end at any moment, and the same command goes on from there; the tables'
//! bytes depend neither on that nor on the number of threads.

mod axis;
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
pub use design::{Design, Layout, load, parse};
pub use execute::{Done, Error, Progress, check, digest, run};
pub use space::{Prepared, Runner, Space, describe, prepare};
pub use summary::{Standing, Summary};

/// Who asks, for the manifest.
#[derive(Clone, Debug)]
pub struct Command {
    /// The command as it was given.
    pub line: Vec<String>,
    /// Names the build that runs: results of different builds aren't put into one table.
    pub build: String,
}

/// The files of a sweep.
#[derive(Clone, Debug)]
pub struct Files {
    /// Finished runs.
    pub journal: PathBuf,
    /// The long table.
    pub results: PathBuf,
    /// What each run was.
    pub runs: PathBuf,
    /// What the sweep was.
    pub manifest: PathBuf,
}

impl Files {
    /// In this folder.
    pub fn in_folder(folder: &Path) -> Self {
        Files {
            journal: folder.join("journal"),
            results: folder.join("results.parquet"),
            runs: folder.join("runs.parquet"),
            manifest: folder.join("manifest.json"),
        }
    }
}
