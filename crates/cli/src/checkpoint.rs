//! Finished runs in a folder, so that a command that was interrupted goes on where it was.

use std::path::Path;

use ropewalk_lab::checkpoint::{self, Store};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Failure;

/// Names this very program, so that what another build measured isn't taken for its own.
fn build() -> String {
    let program = std::env::current_exe().and_then(std::fs::read).unwrap_or_default();
    checkpoint::digest(&program)
}

/// Opens `folder/name.jsonl`, or begins it; `fresh` forgets what was there.
pub(crate) fn open<T: Clone + Serialize + DeserializeOwned>(
    folder: &Path,
    name: &str,
    fresh: bool,
) -> Result<Store<T>, Failure> {
    let path = folder.join(format!("{name}.jsonl"));
    let failure = |error: std::io::Error| Failure::Other(format!("{}: {error}", path.display()));
    std::fs::create_dir_all(folder).map_err(failure)?;
    if fresh && path.exists() {
        std::fs::remove_file(&path).map_err(failure)?;
    }
    Store::open(&path, &build()).map_err(failure)
}
