//! Sweeps in a folder. A finished run is a record in an append-only [`journal`]. When all runs are there, the
//! table is made from it in order of the runs' numbers. So an interrupted sweep can continue, and the table's
//! bytes depend neither on interruptions nor on the number of threads.

mod execute;
pub mod journal;
mod output;

use std::path::{Path, PathBuf};

pub use execute::{Done, Error, Progress, Session, run};

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
            runs: folder.join("runs.csv"),
            manifest: folder.join("manifest.json"),
        }
    }
}
