//! Input files. What needs one is handed a [`ReadFile`]; programs hand in [`read`]. Endless files
//! (`/dev/zero`) are refused.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::diagnostic::system_reason;
use crate::units::write_bytes;

/// Most bytes that are read of a pipe or a device: these may have no end.
const MOST_OF_A_PIPE: u64 = 256 << 20;

/// How files are read: the file, and what is wanted of it.
pub type ReadFile = fn(&Path, Want) -> Result<Vec<u8>, ReadError>;

/// What is wanted of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Want {
    /// Most bytes.
    pub most: u64,
    /// Whether it may be a pipe or a device.
    pub pipe: bool,
}

/// Why an input file can't be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
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
    /// It has no end.
    #[error("it is a pipe or a device; a trace is a regular file, which has an end")]
    Endless,
    /// The program has no files.
    #[error("there are no files here")]
    NoFiles,
}

/// Reads a file from the file system.
///
/// # Errors
/// See [`ReadError`].
pub fn read(path: &Path, want: Want) -> Result<Vec<u8>, ReadError> {
    // Opening a pipe waits for its writer.
    let metadata = path.metadata()?;
    if metadata.is_dir() {
        return Err(ReadError::Folder);
    }
    if !want.pipe && !metadata.is_file() {
        return Err(ReadError::Endless);
    }
    let file = File::open(path)?;
    let most = if metadata.is_file() { want.most } else { want.most.min(MOST_OF_A_PIPE) };
    if file.metadata()?.len() > most {
        return Err(ReadError::TooLarge(most));
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(ReadError::TooLarge(most)) } else { Ok(bytes) }
}

/// Reads nothing, for programs without files.
///
/// # Errors
/// Always.
pub fn no_files(_path: &Path, _want: Want) -> Result<Vec<u8>, ReadError> {
    Err(ReadError::NoFiles)
}
