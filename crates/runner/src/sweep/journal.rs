//! The journal of a sweep: one record per finished run, only ever appended to.
//!
//! A record is `RWLK`, the length of what follows the checksum (u32, little endian), the first 8 bytes of
//! that part's SHA-256, and the part itself: 8 bytes that identify the sweep, then the run. A killed process
//! leaves at most one incomplete record, which is dropped at the next start. After a damaged part the next
//! complete record is found by its mark and checksum, so that damage costs only the runs that it touched.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use ropewalk_lab::sweep::metrics::RunMetrics;
use ropewalk_settings::diagnostic::system_reason;
use sha2::{Digest, Sha256};

const MARK: &[u8; 4] = b"RWLK";
const HEAD: usize = 16;
/// Longest record.
const LONGEST: usize = 1 << 20;

/// Identifies a sweep: 8 bytes of the digest of everything that its results depend on.
pub type SweepId = [u8; 8];

fn checksum(body: &[u8]) -> [u8; 8] {
    let mut first = [0; 8];
    first.copy_from_slice(&Sha256::digest(body)[..8]);
    first
}

fn record(id: SweepId, kept: &RunMetrics) -> Vec<u8> {
    let mut body = id.to_vec();
    body.extend(kept.encode());
    let mut record = MARK.to_vec();
    record.extend((body.len() as u32).to_le_bytes());
    record.extend(checksum(&body));
    record.extend(body);
    record
}

/// The body of the complete record at the start of `bytes`.
fn body(bytes: &[u8]) -> Option<&[u8]> {
    let (head, rest) = bytes.split_at_checked(HEAD)?;
    let len = u32::from_le_bytes(head[4..8].try_into().ok()?) as usize;
    if &head[..4] != MARK || !(8..=LONGEST).contains(&len) {
        return None;
    }
    let body = rest.get(..len)?;
    (checksum(body) == head[8..]).then_some(body)
}

/// Why a journal can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// An error of the file system.
    #[error("{}: {reason}", .path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why, for people.
        reason: String,
    },
    /// The journal of another sweep.
    #[error("{} holds the runs of another sweep", .0.display())]
    Another(PathBuf),
    /// Not a journal.
    #[error("{} is not a sweep's journal", .0.display())]
    Foreign(PathBuf),
    /// Another process writes to it.
    #[error("{} is being written by another process", .0.display())]
    Busy(PathBuf),
}

/// The contents of an existing journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// Complete runs.
    pub runs: u64,
    /// Bytes of an incomplete record at the end.
    pub cut: u64,
    /// Damaged bytes elsewhere.
    pub damaged: u64,
}

/// An open journal.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    id: SweepId,
    /// By run: the offset of its record plus one; 0 if there is none.
    places: Vec<u64>,
    /// Offset of the next record.
    end: u64,
}

impl Journal {
    /// Opens or creates the journal of a sweep with `total` runs.
    ///
    /// # Errors
    /// See [`JournalError`].
    pub fn open(path: &Path, id: SweepId, total: u64) -> Result<(Journal, Found), JournalError> {
        let io =
            |error: io::Error| JournalError::Io { path: path.to_path_buf(), reason: system_reason(&error) };
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Err(JournalError::Busy(path.to_path_buf())),
            // Without file locks nothing prevents a second process.
            Err(std::fs::TryLockError::Error(_)) => {}
        }
        let mut journal =
            Journal { path: path.to_path_buf(), file, id, places: vec![0; total as usize], end: 0 };
        let found = journal.scan()?;
        Ok((journal, found))
    }

    fn io(&self, error: &io::Error) -> JournalError {
        JournalError::Io { path: self.path.clone(), reason: system_reason(error) }
    }

    /// Finds all records, and truncates after the last.
    fn scan(&mut self) -> Result<Found, JournalError> {
        let mut bytes = Vec::new();
        self.file.read_to_end(&mut bytes).map_err(|error| self.io(&error))?;
        let mut found = Found::default();
        let (mut at, mut end, mut damaged, mut others) = (0, 0, 0, false);
        while at < bytes.len() {
            let Some(body) = body(&bytes[at..]) else {
                // On to the next mark.
                let next = bytes[at + 1..].windows(MARK.len()).position(|window| window == MARK);
                at = next.map_or(bytes.len(), |distance| at + 1 + distance);
                continue;
            };
            damaged += at - end;
            let kept = (body[..8] == self.id).then(|| RunMetrics::decode(&body[8..])).flatten();
            others |= body[..8] != self.id;
            if let Some(kept) = kept
                && let Some(place) = self.places.get_mut(kept.run as usize)
            {
                found.runs += u64::from(*place == 0);
                *place = at as u64 + 1;
            }
            at += HEAD + body.len();
            end = at;
        }
        if others {
            return Err(JournalError::Another(self.path.clone()));
        }
        // A file without records is a journal only if it begins with an incomplete one.
        let begins = bytes.len().min(MARK.len());
        if end == 0 && bytes[..begins] != MARK[..begins] {
            return Err(JournalError::Foreign(self.path.clone()));
        }
        found.damaged = damaged as u64;
        found.cut = (bytes.len() - end) as u64;
        self.end = end as u64;
        if found.cut > 0 {
            self.file.set_len(self.end).map_err(|error| self.io(&error))?;
        }
        Ok(found)
    }

    /// Whether the journal has a run.
    pub fn has(&self, run: u64) -> bool {
        self.places.get(run as usize).is_some_and(|place| *place != 0)
    }

    /// Appends finished runs.
    ///
    /// # Errors
    /// The journal can't be written; earlier records are unchanged.
    pub fn append(&mut self, runs: &[RunMetrics]) -> Result<(), JournalError> {
        let mut bytes = Vec::new();
        let mut places = Vec::new();
        for kept in runs {
            places.push((kept.run, self.end + bytes.len() as u64 + 1));
            bytes.extend(record(self.id, kept));
        }
        let written = self.file.seek(SeekFrom::Start(self.end)).and_then(|_| self.file.write_all(&bytes));
        if let Err(error) = written {
            // Drop the incomplete record now. The next start would do so anyway, with a message.
            let length = self.file.metadata().map_or(self.end, |file| file.len());
            let ends =
                places.iter().skip(1).map(|(_, place)| place - 1).chain([self.end + bytes.len() as u64]);
            let whole = ends.take_while(|end| *end <= length).last().unwrap_or(self.end);
            let _ = self.file.set_len(whole);
            return Err(self.io(&error));
        }
        self.end += bytes.len() as u64;
        for (run, place) in places {
            if let Some(known) = self.places.get_mut(run as usize) {
                *known = place;
            }
        }
        Ok(())
    }

    /// Syncs the file to the disk.
    ///
    /// # Errors
    /// An error of the file system.
    pub fn sync(&self) -> Result<(), JournalError> {
        self.file.sync_data().map_err(|error| self.io(&error))
    }

    /// Reads a run back.
    ///
    /// # Errors
    /// The run isn't there, or its record is damaged.
    pub fn read(&mut self, run: u64) -> Result<RunMetrics, JournalError> {
        let place = self.places.get(run as usize).copied().unwrap_or(0);
        let read = |file: &mut File| -> io::Result<Option<RunMetrics>> {
            if place == 0 {
                return Ok(None);
            }
            file.seek(SeekFrom::Start(place - 1))?;
            let mut bytes = vec![0; HEAD];
            file.read_exact(&mut bytes)?;
            let len = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]) as usize;
            bytes.resize(HEAD + len.min(LONGEST), 0);
            file.read_exact(&mut bytes[HEAD..])?;
            Ok(body(&bytes).and_then(|body| RunMetrics::decode(&body[8..])))
        };
        match read(&mut self.file) {
            Ok(Some(kept)) => Ok(kept),
            Ok(None) => {
                Err(JournalError::Io { path: self.path.clone(), reason: format!("run {run} is damaged") })
            }
            Err(error) => Err(self.io(&error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_lab::sweep::metrics::{Ending, PATH, of_run};

    use super::*;

    /// A run with numbers of its own.
    fn kept(run: u64) -> RunMetrics {
        let mut values: Vec<f64> = (0..of_run().count()).map(|i| run as f64 + i as f64 / 100.0).collect();
        values[5] = f64::NAN;
        let path = |name: &str| (name.to_string(), (0..PATH.len()).map(|i| i as f64).collect());
        RunMetrics { run, ending: Ending::Complete, values, paths: vec![path("wifi"), path("lte")] }
    }

    const ID: SweepId = *b"sweep-id";

    fn filled(folder: &Path, runs: u64) -> PathBuf {
        let path = folder.join("journal");
        let (mut journal, found) = Journal::open(&path, ID, runs).unwrap();
        assert_eq!(found, Found::default());
        for run in 0..runs {
            journal.append(&[kept(run)]).unwrap();
        }
        path
    }

    #[test]
    fn truncated_anywhere_it_keeps_complete_records() {
        let folder = tempfile::tempdir().unwrap();
        let path = filled(folder.path(), 3);
        let whole = std::fs::read(&path).unwrap();
        let one = whole.len() / 3;
        for cut in (0..=whole.len()).step_by(3) {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let (mut journal, found) = Journal::open(&path, ID, 3).unwrap();
            assert_eq!(found.runs as usize, cut / one, "cut at {cut}");
            assert_eq!(found.cut as usize, cut % one);
            assert_eq!(found.damaged, 0);
            for run in 0..found.runs {
                assert_eq!(journal.read(run).unwrap().encode(), kept(run).encode());
            }
            // And continues from there.
            journal.append(&[kept(found.runs.min(2))]).unwrap();
            drop(journal);
            let (_, again) = Journal::open(&path, ID, 3).unwrap();
            assert_eq!((again.runs, again.cut), ((found.runs + 1).min(3), 0));
        }
    }

    #[test]
    fn a_flipped_bit_loses_one_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = filled(folder.path(), 3);
        let whole = std::fs::read(&path).unwrap();
        let one = whole.len() / 3;
        for at in (one..2 * one).step_by(3) {
            let mut bad = whole.clone();
            bad[at] ^= 0x10;
            std::fs::write(&path, &bad).unwrap();
            let (journal, found) = Journal::open(&path, ID, 3).unwrap();
            assert_eq!((found.runs, found.damaged as usize), (2, one), "bit at {at}");
            assert!(journal.has(0) && !journal.has(1) && journal.has(2));
        }
    }

    #[test]
    fn another_sweep_and_other_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = filled(folder.path(), 2);
        assert!(matches!(Journal::open(&path, *b"other-id", 2), Err(JournalError::Another(_))));
        std::fs::write(&path, "a letter to my aunt").unwrap();
        assert!(matches!(Journal::open(&path, ID, 2), Err(JournalError::Foreign(_))));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a letter to my aunt");
    }

    #[test]
    fn two_processes_do_not_write_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = filled(folder.path(), 1);
        let first = Journal::open(&path, ID, 1).unwrap();
        assert!(matches!(Journal::open(&path, ID, 1), Err(JournalError::Busy(_))));
        drop(first);
        assert!(Journal::open(&path, ID, 1).is_ok());
    }
}
