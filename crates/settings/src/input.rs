//! Input files. What needs one is handed an [`OpenFile`]; programs hand in [`open`]. Endless files
//! (`/dev/zero`) are refused.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::diagnostic::system_reason;
use crate::units::write_bytes;

/// Most bytes that are read of a pipe or a device: these may have no end.
const MOST_OF_A_PIPE: u64 = 256 << 20;

/// How files are opened: the file, and what is wanted of it.
pub type OpenFile = fn(&Path, Want) -> Result<Opened, ReadError>;

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
    System(#[source] std::io::Error),
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

/// A file that is read. More bytes than are wanted end it with an error.
pub struct Opened {
    from: Box<dyn Read>,
    most: u64,
    left: u64,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened").field("most", &self.most).finish_non_exhaustive()
    }
}

impl Opened {
    /// Takes at most `most` bytes from this.
    pub fn new(from: impl Read + 'static, most: u64) -> Self {
        Opened { from: Box::new(from), most, left: most }
    }

    /// All of it.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn whole(mut self) -> Result<Vec<u8>, ReadError> {
        let mut bytes = Vec::new();
        self.read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

impl Read for Opened {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.from.read(into)?;
        match self.left.checked_sub(read as u64) {
            Some(left) => self.left = left,
            None => return Err(std::io::Error::other(ReadError::TooLarge(self.most))),
        }
        Ok(read)
    }
}

impl From<std::io::Error> for ReadError {
    fn from(error: std::io::Error) -> Self {
        error.downcast().unwrap_or_else(ReadError::System)
    }
}

/// Opens a file of the file system.
///
/// # Errors
/// See [`ReadError`].
pub fn open(path: &Path, want: Want) -> Result<Opened, ReadError> {
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
    Ok(Opened::new(file, most))
}

/// Opens nothing, for programs without files.
///
/// # Errors
/// Always.
pub fn no_files(_path: &Path, _want: Want) -> Result<Opened, ReadError> {
    Err(ReadError::NoFiles)
}
