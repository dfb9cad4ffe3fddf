//! Reading of input files of a bounded size; endless ones (`/dev/zero`) are refused.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::diagnostic::system_reason;
use crate::units::write_bytes;

/// Why an input file can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system refuses.
    #[error("{}", system_reason(.0))]
    System(#[from] std::io::Error),
    /// It is a folder.
    #[error("it is a folder")]
    Folder,
    /// It has more bytes than this.
    #[error("it is larger than {}", write_bytes(*.0))]
    TooLarge(u64),
}

/// Reads a file of at most `most` bytes, or a pipe.
///
/// # Errors
/// See [`ReadError`].
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>, ReadError> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(ReadError::Folder);
    }
    if metadata.len() > most {
        return Err(ReadError::TooLarge(most));
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(ReadError::TooLarge(most)) } else { Ok(bytes) }
}
