//! Output that is whole or not there: standard output, or a file that appears when it is complete.

use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::Path;

use ropewalk_lab::diagnostic::Diagnostic;
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
    Failure::Other(format!("{}: {}", path.display(), reason(path, error)))
}

/// Why, without the name of a file that isn't there yet.
fn reason(path: &Path, error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => format!("there is no folder `{}`", folder(path).display()),
        ErrorKind::PermissionDenied => "permission denied".into(),
        ErrorKind::NotADirectory => format!("`{}` is not a folder", folder(path).display()),
        ErrorKind::IsADirectory => "it is a folder".into(),
        ErrorKind::StorageFull => "no space left on the disk".into(),
        _ => error.to_string(),
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether a file can be written there, asked before the work that is to fill it.
pub(crate) fn can_write(path: &Path) -> Result<(), Failure> {
    let refused = |why: String| Diagnostic::new(format!("can't write `{}`: {why}", path.display()));
    if path.is_dir() {
        return Err(refused("it is a folder".into()).into());
    }
    new_beside(path).map(drop).map_err(|error| refused(reason(path, &error)).into())
}

/// A new file beside its place; [`keep`] moves it there.
pub(crate) fn beside(path: &Path) -> Result<NamedTempFile, Failure> {
    new_beside(path).map_err(|error| failed(path, &error))
}

fn new_beside(path: &Path) -> std::io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    // Readable for whom the user's mask allows, as any file that a command writes.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder(path))
}

/// Moves a complete file to its place.
pub(crate) fn keep(file: NamedTempFile, path: &Path) -> Result<(), Failure> {
    file.persist(path).map(drop).map_err(|error| failed(path, &error.error))
}
