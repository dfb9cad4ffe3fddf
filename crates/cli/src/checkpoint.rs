//! Finished runs in a folder, so that an interrupted command can continue.

use std::path::Path;

use ropewalk_command_line::Failure;
use ropewalk_lab::checkpoint::{self, Store};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A digest of this program: runs of another build aren't used.
fn build() -> String {
    let program = std::env::current_exe().and_then(std::fs::read).unwrap_or_default();
    checkpoint::digest(&program)
}

/// Opens or creates `folder/name.jsonl`; `fresh` deletes what it held.
pub(crate) fn open<T: Clone + Serialize + DeserializeOwned>(
    folder: &Path,
    name: &str,
    fresh: bool,
) -> Result<Store<T>, Failure> {
    let path = folder.join(format!("{name}.jsonl"));
    let failure = |error: std::io::Error| Failure::Output { path: path.clone(), reason: error.to_string() };
    std::fs::create_dir_all(folder).map_err(failure)?;
    if fresh && path.exists() {
        std::fs::remove_file(&path).map_err(failure)?;
    }
    Store::open(&path, &build()).map_err(failure)
}

/// How to continue after an interruption.
pub(crate) fn hint(folder: &Path) -> String {
    format!("finished runs are kept in {}; run the same command again to continue", folder.display())
}
