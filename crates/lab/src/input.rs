//! Reading of input files of a bounded size; endless ones (`/dev/zero`) are refused.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::diagnostic::system_reason;
use crate::units::write_bytes;

/// Reads a file of at most `most` bytes, or a pipe.
///
/// # Errors
/// A sentence: why it can't be read.
pub(crate) fn read(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    let reason = |error: std::io::Error| system_reason(&error);
    let file = File::open(path).map_err(reason)?;
    let metadata = file.metadata().map_err(reason)?;
    if metadata.is_dir() {
        return Err("it is a folder".into());
    }
    let too_large = || Err(format!("it is larger than {}", write_bytes(most)));
    if metadata.len() > most {
        return too_large();
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(reason)?;
    if bytes.len() as u64 > most { too_large() } else { Ok(bytes) }
}
