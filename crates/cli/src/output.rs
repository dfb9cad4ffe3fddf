//! Output that is whole or not there: standard output, or a file that appears when it is complete.

use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::Path;

use crate::Failure;

/// Prints; a closed pipe (`| head`) is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Other(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes a file beside its place and moves it there.
pub(crate) fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    write_file_with(path, |out| out.write_all(text.as_bytes()))
}

/// As [`write_file`], for what isn't at hand as one text.
pub(crate) fn write_file_with(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&mut File>) -> std::io::Result<()>,
) -> Result<(), Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let failure = |error: std::io::Error| Failure::Other(format!("{}: {error}", path.display()));
    let mut builder = tempfile::Builder::new();
    // Readable for whom the user's mask allows, as any file that a command writes.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = builder.tempfile_in(folder).map_err(failure)?;
    let mut out = BufWriter::new(file.as_file_mut());
    write(&mut out).and_then(|()| out.flush()).map_err(failure)?;
    drop(out);
    file.persist(path).map(drop).map_err(|error| failure(error.error))
}
