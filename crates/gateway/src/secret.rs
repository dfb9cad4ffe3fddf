//! Files that only their owner may read.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// A file that can't be used.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// It can't be read.
    Unreadable(io::Error),
    /// Others can read it; its mode.
    Exposed(u32),
}

/// A file's text, if nobody but its owner can read it.
pub(crate) fn read(path: &Path, most: u64) -> Result<String, ReadError> {
    let file = File::open(path).map_err(ReadError::Unreadable)?;
    let mode = file.metadata().map_err(ReadError::Unreadable)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(ReadError::Exposed(mode));
    }
    text(file, most).map_err(ReadError::Unreadable)
}

/// Any file's text.
pub(crate) fn read_text(path: &Path, most: u64) -> io::Result<String> {
    text(File::open(path)?, most)
}

fn text(file: File, most: u64) -> io::Result<String> {
    let mut text = String::new();
    file.take(most).read_to_string(&mut text)?;
    Ok(text)
}

/// Writes a new file; none is overwritten.
pub(crate) fn write(path: &Path, data: &[u8], mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(data)?;
    file.sync_all()
}
