//! Output to standard output and to files. A file appears when it is complete, never half-written. What a
//! killed process had written so far is removed when the next file in that folder begins.
//!
//! A symbolic link is followed, not replaced. A pipe, a device or `/dev/stdout` is written to, not replaced.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ropewalk_settings::diagnostic::{Diagnostic, system_reason};

use crate::Failure;

/// Prints to standard output. A closed pipe (`| head`) is not an error.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Output { path: "standard output".into(), reason: system_reason(&error) })
        }
        _ => Ok(()),
    }
}

/// Writes a file.
pub fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    write_file_with(path, |out| out.write_all(text.as_bytes()))
}

/// As [`write_file`], for output that is produced piece by piece.
pub fn write_file_with(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&mut File>) -> std::io::Result<()>,
) -> Result<(), Failure> {
    let mut pending = begin(path)?;
    let mut out = BufWriter::new(pending.file_mut());
    match write(&mut out).and_then(|()| out.flush()) {
        // The reader of a pipe may stop early.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(failed(path, &error)),
        _ => drop(out),
    }
    pending.finish()
}

/// A file that is being written.
#[derive(Debug)]
pub struct Pending {
    path: PathBuf,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// A temporary file in the same folder, renamed when it is complete.
    Temporary(Partial),
    /// Not a regular file: written in place.
    InPlace(File),
}

impl Pending {
    fn file_mut(&mut self) -> &mut File {
        match &mut self.kind {
            Kind::Temporary(partial) => &mut partial.file,
            Kind::InPlace(file) => file,
        }
    }

    /// A handle to write to; it shares the file position.
    pub fn writer(&self) -> Result<File, Failure> {
        let file = match &self.kind {
            Kind::Temporary(partial) => &partial.file,
            Kind::InPlace(file) => file,
        };
        file.try_clone().map_err(|error| failed(&self.path, &error))
    }

    /// Gives the file up because writing to it failed.
    pub fn failed(self, error: &std::io::Error) -> Failure {
        Failure::Output { path: self.path, reason: system_reason(error) }
    }

    /// Moves the complete file to its path.
    pub fn finish(self) -> Result<(), Failure> {
        match self.kind {
            Kind::InPlace(_) => Ok(()),
            Kind::Temporary(partial) => {
                partial.rename_to(&self.path).map_err(|error| failed(&self.path, &error))
            }
        }
    }
}

/// Begins a file.
pub fn begin(path: &Path) -> Result<Pending, Failure> {
    let kind = match target(path).map_err(|error| failed(path, &error))? {
        Target::Standard(file) => Kind::InPlace(file),
        Target::Other => {
            let file = OpenOptions::new().write(true).open(path).map_err(|error| Failure::Output {
                path: path.to_path_buf(),
                reason: format!("can't write to it: {}", system_reason(&error)),
            })?;
            Kind::InPlace(file)
        }
        Target::Regular(place, old) => {
            let partial = new_beside(&place).map_err(|error| failed(path, &error))?;
            if let Some(old) = old {
                // Who may read the file doesn't change with what is in it.
                let _ = partial.file.set_permissions(old.permissions());
            }
            return Ok(Pending { path: place, kind: Kind::Temporary(partial) });
        }
    };
    Ok(Pending { path: path.to_path_buf(), kind })
}

/// What a path refers to, after all symbolic links.
enum Target {
    /// The file behind this program's standard output or standard error.
    Standard(File),
    /// A pipe, a device.
    Other,
    /// A regular file, existing or not.
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

/// Standard output or standard error, if either refers to this file. Opened again, the file would have a
/// second position, and the two would overwrite each other.
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
    Failure::Output { path: path.to_path_buf(), reason: reason(path, error) }
}

/// Why a file can't be written, for people.
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

/// Checks, before a long run, that these files (with their options) can be written and are not the same file.
pub fn can_write(files: &[(&str, Option<&PathBuf>)]) -> Result<(), Failure> {
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
        // Several outputs may share a device.
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

/// Identifies a file.
#[derive(PartialEq)]
enum Identity {
    /// Device and inode.
    Number((u64, u64)),
    /// Folder and name, for a file that doesn't exist yet.
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

/// The names of files that aren't complete.
const PARTIAL: [&str; 2] = [".ropewalk-", ".partial"];
/// A partial file that was changed so recently may be one whose writer doesn't hold its lock yet.
const FRESH: Duration = Duration::from_secs(2);

/// Removes partial files in a folder whose writers are gone: a process holds a lock on each of its own.
fn remove_abandoned(folder: &Path) {
    let Ok(entries) = folder.read_dir() else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if !name.starts_with(PARTIAL[0]) || !name.ends_with(PARTIAL[1]) {
            continue;
        }
        let is_stale = |metadata: Metadata| {
            let age = metadata.modified().ok().and_then(|at| at.elapsed().ok());
            metadata.is_file() && age.is_some_and(|age| age >= FRESH)
        };
        if entry.metadata().is_ok_and(is_stale)
            && File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok())
        {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// A file that isn't complete. It is removed if it isn't renamed.
#[derive(Debug)]
struct Partial {
    path: PathBuf,
    file: File,
    is_renamed: bool,
}

impl Partial {
    fn rename_to(mut self, path: &Path) -> std::io::Result<()> {
        std::fs::rename(&self.path, path)?;
        self.is_renamed = true;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.is_renamed {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn new_beside(path: &Path) -> std::io::Result<Partial> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let folder = folder(path);
    remove_abandoned(folder);
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{}{}-{number}{}", PARTIAL[0], std::process::id(), PARTIAL[1]));
        match File::create_new(&path) {
            // Another process has this number, in another namespace.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(file) => {
                // Where files can't be locked, abandoned ones stay.
                let _ = file.try_lock();
                return Ok(Partial { path, file, is_renamed: false });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::SystemTime;

    use super::{begin, write_file};

    #[test]
    fn what_a_killed_process_left_is_removed_and_what_another_writes_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let before = SystemTime::UNIX_EPOCH;
        let left = folder.path().join(".ropewalk-abcdef.partial");
        File::create(&left).unwrap().set_modified(before).unwrap();
        let others = folder.path().join(".ropewalk-notes");
        File::create(&others).unwrap().set_modified(before).unwrap();
        let mut under_way = begin(&folder.path().join("capture")).unwrap();
        under_way.file_mut().set_modified(before).unwrap();
        assert!(!left.exists(), "it stays for ever");
        write_file(&folder.path().join("table"), "1").unwrap();
        under_way.finish().unwrap();
        let mut names: Vec<_> =
            folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, [".ropewalk-notes", "capture", "table"]);
    }
}
