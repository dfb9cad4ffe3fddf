//! Output that is whole or not there: standard output, or a file that appears when it is complete.

use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::Path;

use tempfile::NamedTempFile;

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
    let mut file = beside(path)?;
    let mut out = BufWriter::new(file.as_file_mut());
    write(&mut out).and_then(|()| out.flush()).map_err(|error| failed(path, &error))?;
    drop(out);
    keep(file, path)
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Other(format!("{}: {error}", path.display()))
}

/// A new file beside its place; [`keep`] moves it there.
pub(crate) fn beside(path: &Path) -> Result<NamedTempFile, Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    // Readable for whom the user's mask allows, as any file that a command writes.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder).map_err(|error| failed(path, &error))
}

/// Moves a complete file to its place.
pub(crate) fn keep(file: NamedTempFile, path: &Path) -> Result<(), Failure> {
    file.persist(path).map(drop).map_err(|error| failed(path, &error.error))
}
