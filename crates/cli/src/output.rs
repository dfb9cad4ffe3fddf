//! Output that is whole or not there: standard output, or a file that appears when it is complete.
//!
//! What stands at a file's place stays what it is: a symbolic link goes on pointing where it points, and what is no
//! regular file (a pipe, a device, `/dev/stdout`) is written to and never replaced.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use ropewalk_lab::diagnostic::{Diagnostic, system_reason};
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

/// Writes a file, whole.
pub(crate) fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    write_file_with(path, |out| out.write_all(text.as_bytes()))
}

/// As [`write_file`], for what isn't at hand as one text.
pub(crate) fn write_file_with(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&mut File>) -> std::io::Result<()>,
) -> Result<(), Failure> {
    let mut begun = begin(path)?;
    let mut out = BufWriter::new(begun.file_mut());
    match write(&mut out).and_then(|()| out.flush()) {
        // Whoever reads a pipe may have had enough.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(failed(path, &error)),
        _ => drop(out),
    }
    begun.keep()
}

/// A file under way.
#[derive(Debug)]
pub(crate) struct Begun {
    place: PathBuf,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Beside its place, which it takes when it is complete.
    Beside(NamedTempFile),
    /// What is no regular file, opened.
    Straight(File),
}

impl Begun {
    fn file_mut(&mut self) -> &mut File {
        match &mut self.kind {
            Kind::Beside(file) => file.as_file_mut(),
            Kind::Straight(file) => file,
        }
    }

    /// Where to write; the place in the file is shared with it.
    pub(crate) fn writer(&self) -> Result<File, Failure> {
        let file = match &self.kind {
            Kind::Beside(file) => file.as_file(),
            Kind::Straight(file) => file,
        };
        file.try_clone().map_err(|error| failed(&self.place, &error))
    }

    /// The file is complete: it takes its place.
    pub(crate) fn keep(self) -> Result<(), Failure> {
        match self.kind {
            Kind::Straight(_) => Ok(()),
            Kind::Beside(file) => {
                file.persist(&self.place).map(drop).map_err(|error| failed(&self.place, &error.error))
            }
        }
    }
}

/// Begins a file.
pub(crate) fn begin(path: &Path) -> Result<Begun, Failure> {
    let kind = match target(path).map_err(|error| failed(path, &error))? {
        Target::Standard(file) => Kind::Straight(file),
        Target::Other => {
            let why =
                |error| format!("{}: it can't be written to: {}", path.display(), system_reason(&error));
            let file = OpenOptions::new().write(true).open(path);
            Kind::Straight(file.map_err(|error| Failure::Other(why(error)))?)
        }
        Target::Regular(place, old) => {
            let file = new_beside(&place).map_err(|error| failed(path, &error))?;
            if let Some(old) = old {
                // Who may read the file doesn't change with what is in it.
                let _ = file.as_file().set_permissions(old.permissions());
            }
            return Ok(Begun { place, kind: Kind::Beside(file) });
        }
    };
    Ok(Begun { place: path.to_path_buf(), kind })
}

/// What a path leads to, over all symbolic links.
enum Target {
    /// What this program's standard output or standard error goes to.
    Standard(File),
    /// A pipe, a device.
    Other,
    /// A regular file, there or not.
    Regular(PathBuf, Option<Metadata>),
}

fn target(path: &Path) -> std::io::Result<Target> {
    match path.metadata() {
        Ok(found) if found.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Ok(found) => {
            if let Some(file) = standard(&found) {
                return Ok(Target::Standard(file));
            }
            if !found.is_file() {
                return Ok(Target::Other);
            }
            Ok(Target::Regular(path.canonicalize()?, Some(found)))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            // As many links as Linux follows.
            let mut place = path.to_path_buf();
            for _ in 0..40 {
                match place.read_link() {
                    Ok(next) => place = place.parent().unwrap_or(Path::new("")).join(next),
                    Err(_) => break,
                }
            }
            Ok(Target::Regular(place, None))
        }
        Err(error) => Err(error),
    }
}

/// Standard output or standard error, if this is what they go to. Opened once more, a file would have a second place
/// to write at, and each would write over the other.
#[cfg(unix)]
fn standard(found: &Metadata) -> Option<File> {
    use std::os::fd::AsFd;
    let of = |standard: std::os::fd::BorrowedFd<'_>| standard.try_clone_to_owned().ok().map(File::from);
    let same = |file: &File| file.metadata().is_ok_and(|metadata| identity(&metadata) == identity(found));
    let both = [of(std::io::stdout().as_fd()), of(std::io::stderr().as_fd())];
    both.into_iter().flatten().find(same)
}

#[cfg(not(unix))]
fn standard(_found: &Metadata) -> Option<File> {
    None
}

#[cfg(unix)]
fn identity(metadata: &Metadata) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(unix)]
fn is_device(metadata: &Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_char_device(&metadata.file_type())
}

#[cfg(not(unix))]
fn is_device(_metadata: &Metadata) -> bool {
    false
}

#[cfg(not(unix))]
fn identity(_metadata: &Metadata) -> Option<(u64, u64)> {
    None
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Other(format!("{}: {}", path.display(), reason(path, error)))
}

/// Why, without the name of a file that isn't there yet.
fn reason(path: &Path, error: &std::io::Error) -> String {
    let folder = folder(path);
    match error.kind() {
        ErrorKind::NotFound if !folder.exists() => format!("there is no folder `{}`", folder.display()),
        ErrorKind::NotADirectory => format!("`{}` is not a folder", folder.display()),
        ErrorKind::IsADirectory => "it is a folder".into(),
        ErrorKind::StorageFull => "no space left on the disk".into(),
        ErrorKind::PermissionDenied => "can't create a file there: permission denied".into(),
        _ => format!("can't create a file there: {}", system_reason(error)),
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether these files, each with its option, can be written and are not one and the same: asked before the work that
/// is to fill them.
pub(crate) fn can_write(files: &[(&str, Option<&PathBuf>)]) -> Result<(), Failure> {
    let mut before: Vec<(&str, Identity)> = Vec::new();
    for (option, path) in files {
        let Some(path) = path else { continue };
        let refused = |why: String| {
            let message = format!("can't write `{}`: {why}", path.display());
            Failure::from(Diagnostic::new(message))
        };
        let target = target(path).map_err(|error| refused(reason(path, &error)))?;
        if let Target::Regular(place, _) = &target {
            new_beside(place).map_err(|error| refused(reason(place, &error)))?;
        }
        // A device takes what it is given, from many at once.
        if path.metadata().is_ok_and(|found| is_device(&found)) {
            continue;
        }
        let identity = Identity::of(path, &target);
        if let Some((other, _)) = before.iter().find(|(_, known)| *known == identity) {
            return Err(refused(format!("it is the file of both {other} and {option}")));
        }
        before.push((option, identity));
    }
    Ok(())
}

/// What tells one place from another.
#[derive(PartialEq)]
enum Identity {
    /// Its number on its device.
    Number((u64, u64)),
    /// Of what isn't there yet: its folder, and its name in it.
    Name(PathBuf, Option<std::ffi::OsString>),
}

impl Identity {
    fn of(path: &Path, target: &Target) -> Self {
        let found = path.metadata().ok().and_then(|metadata| identity(&metadata));
        match (found, target) {
            (Some(number), _) => Identity::Number(number),
            (None, Target::Regular(place, _)) => Identity::named(place),
            (None, _) => Identity::named(path),
        }
    }

    fn named(place: &Path) -> Self {
        let folder = folder(place);
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
        Identity::Name(folder, place.file_name().map(ToOwned::to_owned))
    }
}

fn new_beside(path: &Path) -> std::io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    // Readable for whom the user's mask allows, as any file that a command writes.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder(path))
}
