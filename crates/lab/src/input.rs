//! Reading what a person named: whole files of a size that can be meant, and never without end (`/dev/zero`).

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::diagnostic::system_reason;
use crate::units::write_bytes;

/// A file's bytes, `most` at most. A pipe is read to its end; a device that has none, as far as that.
///
/// # Errors
/// Why it can't be read, for people.
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
