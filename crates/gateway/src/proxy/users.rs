//! Files with users: one NAME:PASSWORD a line.

use std::io;
use std::path::{Path, PathBuf};

use crate::secret;

/// Most bytes of a file with users.
const LARGEST: u64 = 1 << 20;

/// Why there are no users.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UsersError {
    /// Not a name and a password.
    #[error("expected NAME:PASSWORD, each of 1 to 255 bytes")]
    Entry,
    /// The same in a file.
    #[error("{}, line {line}: {}", .file.display(), UsersError::Entry)]
    Line {
        /// Which file.
        file: PathBuf,
        /// Its line, from 1.
        line: usize,
    },
    /// A file that can't be read.
    #[error("{}: {error}", .file.display())]
    Read {
        /// Which.
        file: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// Others can read it.
    #[error("{}: others can read these passwords (mode {mode:o}): `chmod 600` it, and change them if \
             somebody has", file.display())]
    Exposed {
        /// The file.
        file: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// A file of more than 1 MiB.
    #[error("{}: it is larger than 1 MiB", .0.display())]
    TooLarge(PathBuf),
    /// A file without any.
    #[error("{}: no NAME:PASSWORD in it", .0.display())]
    None(PathBuf),
}

/// Reads a name and its password.
///
/// # Errors
/// If it is neither.
pub fn parse(text: &str) -> Result<(String, String), UsersError> {
    match text.split_once(':') {
        Some((name, password))
            if !name.is_empty() && name.len() < 256 && (1..256).contains(&password.len()) =>
        {
            Ok((name.to_string(), password.to_string()))
        }
        _ => Err(UsersError::Entry),
    }
}

/// Reads a file.
///
/// # Errors
/// If it can't be read, or has something else in it: the line is named.
pub fn read(path: &Path) -> Result<Vec<(String, String)>, UsersError> {
    let file = || path.to_path_buf();
    let text = secret::read(path, LARGEST + 1).map_err(|error| match error {
        secret::ReadError::Unreadable(error) => UsersError::Read { file: file(), error },
        secret::ReadError::Exposed(mode) => UsersError::Exposed { file: file(), mode },
    })?;
    if text.len() as u64 > LARGEST {
        return Err(UsersError::TooLarge(file()));
    }
    let mut users = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        users.push(parse(line.trim()).map_err(|_| UsersError::Line { file: file(), line: at + 1 })?);
    }
    if users.is_empty() {
        return Err(UsersError::None(file()));
    }
    Ok(users)
}
