//! Finished runs in a file, one line each, so that an interrupted command can continue. A run's key is a
//! digest of everything that it depends on, the program included.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use ropewalk_lab::kept::Kept;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A finished run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record<T> {
    /// The digest of what it depends on.
    pub key: String,
    /// Its result.
    pub result: T,
}

/// The file, and the runs that it held when it was opened.
#[derive(Debug)]
pub struct Store<T> {
    runs: HashMap<String, T>,
    file: Option<Mutex<File>>,
    /// A digest of the program: runs of other builds aren't used.
    build: String,
}

impl<T: Clone + Serialize + DeserializeOwned> Store<T> {
    /// A store that keeps nothing.
    pub fn none() -> Self {
        Store { runs: HashMap::new(), file: None, build: String::new() }
    }

    /// Opens or creates a file. Incomplete or damaged lines are ignored.
    ///
    /// # Errors
    /// The file can't be read or written.
    pub fn open(path: &Path, build: &str) -> std::io::Result<Self> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let mut text = String::new();
        file.seek(SeekFrom::Start(0))?;
        // Bytes that aren't UTF-8 are damage; their lines aren't runs.
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        text.push_str(&String::from_utf8_lossy(&bytes));
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n")?;
        }
        let kept = text.lines().filter_map(|line| serde_json::from_str::<Record<T>>(line).ok());
        let runs = kept.map(|kept| (kept.key, kept.result)).collect();
        Ok(Store { runs, file: Some(Mutex::new(file)), build: build.into() })
    }

    /// The key of a run: the digest of what it depends on.
    pub fn key(&self, parts: &[&str]) -> String {
        let mut hash = Sha256::new();
        for part in std::iter::once(self.build.as_str()).chain(parts.iter().copied()) {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }

    /// A finished run.
    pub fn get(&self, key: &str) -> Option<&T> {
        self.runs.get(key)
    }

    /// Stores a run. If writing fails, the run has to be repeated next time.
    pub fn put(&self, key: &str, result: &T) {
        let Some(file) = &self.file else { return };
        let kept = Record { key: key.to_string(), result };
        if let (Ok(mut line), Ok(mut file)) = (serde_json::to_string(&kept), file.lock()) {
            line.push('\n');
            let _ = file.write_all(line.as_bytes());
        }
    }
}

impl<T: Clone + Serialize + DeserializeOwned> Kept<T> for Store<T> {
    fn key(&self, parts: &[&str]) -> String {
        Store::key(self, parts)
    }

    fn get(&self, key: &str) -> Option<&T> {
        Store::get(self, key)
    }

    fn put(&self, key: &str, result: &T) {
        Store::put(self, key, result);
    }
}

/// A file of finished runs that can't be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", .path.display())]
pub struct Unusable {
    /// The file.
    pub path: PathBuf,
    /// Why not.
    pub reason: String,
}

/// Opens or creates `folder/name.jsonl`, for runs of this very program; `fresh` deletes what it held.
///
/// # Errors
/// The file can't be read or written.
pub fn open<T: Clone + Serialize + DeserializeOwned>(
    folder: &Path,
    name: &str,
    fresh: bool,
) -> Result<Store<T>, Unusable> {
    let path = folder.join(format!("{name}.jsonl"));
    let program = std::env::current_exe().and_then(std::fs::read).unwrap_or_default();
    let opened = || {
        std::fs::create_dir_all(folder)?;
        if fresh && path.exists() {
            std::fs::remove_file(&path)?;
        }
        Store::open(&path, &digest(&program))
    };
    opened().map_err(|error| Unusable { path: path.clone(), reason: error.to_string() })
}

/// How to continue after an interruption.
pub fn hint(folder: &Path) -> String {
    format!("finished runs are kept in {}; run the same command again to continue", folder.display())
}

/// A digest of bytes, as text.
pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_line_loses_only_its_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.jsonl");
        let store = Store::<f64>::open(&path, "b").unwrap();
        store.put("one", &1.0);
        store.put("two", &2.0);
        let text = std::fs::read(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 5]).unwrap();
        let store = Store::<f64>::open(&path, "b").unwrap();
        assert!(store.get("one").is_some() && store.get("two").is_none());
        store.put("three", &3.0);
        let store = Store::<f64>::open(&path, "b").unwrap();
        assert_eq!((store.get("one"), store.get("three")), (Some(&1.0), Some(&3.0)));
    }

    #[test]
    fn a_key_depends_on_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.jsonl");
        let one = Store::<f64>::open(&path, "one").unwrap().key(&["a", "b"]);
        assert_eq!(one, Store::<f64>::open(&path, "one").unwrap().key(&["a", "b"]));
        assert_ne!(one, Store::<f64>::open(&path, "two").unwrap().key(&["a", "b"]));
        assert_ne!(one, Store::<f64>::open(&path, "one").unwrap().key(&["ab", ""]));
    }
}
