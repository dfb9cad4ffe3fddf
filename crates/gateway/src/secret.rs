//! Files that only their owner may read.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Where systemd puts what a unit may read (`LoadCredential=`; systemd.exec(5)).
pub(crate) fn credentials() -> Option<PathBuf> {
    std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from)
}

/// A file as systemd gives it to a unit whose user can't read the file itself: with
/// `LoadCredential=keys:/etc/ropewalk/keys` that is `keys_gateway.key` for `/etc/ropewalk/keys/gateway.key`.
fn credential(given: Option<PathBuf>, path: &Path) -> Option<PathBuf> {
    let (folder, name) = (path.parent()?.file_name()?.to_str()?, path.file_name()?.to_str()?);
    let file = given?.join(format!("{folder}_{name}"));
    file.is_file().then_some(file)
}

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
    if let Some(given) = credential(credentials(), path) {
        // Its folder is nobody else's, and the mode shows the mask of an access control list.
        return File::open(given).and_then(|file| text(file, most)).map_err(ReadError::Unreadable);
    }
    let file = File::open(path).map_err(ReadError::Unreadable)?;
    let mode = file.metadata().map_err(ReadError::Unreadable)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(ReadError::Exposed(mode));
    }
    text(file, most).map_err(ReadError::Unreadable)
}

/// Any file's text.
pub(crate) fn read_text(path: &Path, most: u64) -> io::Result<String> {
    text(File::open(credential(credentials(), path).as_deref().unwrap_or(path))?, most)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_taken_from_the_credentials_of_the_unit() {
        let given = tempfile::tempdir().unwrap();
        let file = given.path().join("keys_gateway.key");
        std::fs::write(&file, "key").unwrap();
        let found = |path: &str| credential(Some(given.path().into()), Path::new(path));
        assert_eq!(found("/etc/ropewalk/keys/gateway.key"), Some(file.clone()));
        assert_eq!(found("keys/gateway.key"), Some(file));
        for other in ["/etc/ropewalk/keys/proxy.key", "/etc/ropewalk/gateway.key", "gateway.key", "/"] {
            assert_eq!(found(other), None, "{other}");
        }
        assert_eq!(credential(None, Path::new("keys/gateway.key")), None);
    }
}
