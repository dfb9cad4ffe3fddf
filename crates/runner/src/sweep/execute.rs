//! Runs a design on all cores and keeps finished runs in a folder.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use ropewalk_algorithms::Registries;
use ropewalk_lab::sweep::metrics::{Ending, RunMetrics};
use ropewalk_lab::sweep::output::{self, Counts};
use ropewalk_lab::sweep::{Command, Design, Maker, Space, Summary, check, id};
use ropewalk_settings::diagnostic::{InputError, system_reason};
use ropewalk_sim::{RunResult, RunSpec};

use super::Files;
use super::journal::{Found, Journal, JournalError};
use super::output::{manifest, tables};

/// Why a sweep ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value that isn't allowed.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The folder can't be used as it is.
    #[error("{message}")]
    Folder {
        /// What is wrong, and what to do.
        message: String,
    },
    /// Something couldn't be written or read.
    #[error("{error}; {kept} of {total} runs are finished and kept: run the same command again to continue")]
    Storage {
        /// The error.
        error: JournalError,
        /// Finished runs that are kept.
        kept: u64,
        /// Runs in all.
        total: u64,
    },
}

/// Progress of a running sweep.
#[derive(Clone, Copy, Debug)]
pub enum Progress {
    /// The journal is open.
    Opened {
        /// What the journal held.
        found: Found,
        /// Runs in all.
        total: u64,
    },
    /// Number of further runs in the journal.
    Recorded(u64),
    /// All runs are there, the tables are being written.
    Writing,
}

/// The result of a sweep.
#[derive(Clone, Debug)]
pub struct Done {
    /// Runs in all.
    pub total: u64,
    /// Runs finished before.
    pub before: u64,
    /// Runs made now.
    pub made: u64,
    /// The summary; `None` if the sweep was interrupted.
    pub summary: Option<Summary>,
    /// The files.
    pub files: Files,
}

/// Prepares the folder. Refuses one that holds other files.
fn folder(path: &Path, files: &Files) -> Result<(), Error> {
    let wrong = |message: String| Error::Folder { message };
    fs::create_dir_all(path).map_err(|error| {
        wrong(format!("can't make the folder {}: {}", path.display(), system_reason(&error)))
    })?;
    if !files.journal.exists()
        && let Some(there) = [&files.runs, &files.manifest].into_iter().find(|f| f.exists())
    {
        let message = format!("{} is there already, and no journal beside it", there.display());
        return Err(wrong(format!("{message}; choose another folder with --out, or move it away")));
    }
    Ok(())
}

fn unusable(error: JournalError) -> Error {
    let help = match &error {
        JournalError::Another(_) => {
            "its file, scenario, traces or the program have changed since; choose another folder with --out"
        }
        JournalError::Foreign(_) => "choose another folder with --out, or move the file away",
        JournalError::Busy(_) => "wait for it, or choose another folder with --out",
        JournalError::Io { .. } => "choose another folder with --out",
    };
    Error::Folder { message: format!("{error}; {help}") }
}

/// A sweep's folder while runs are being added to it.
#[derive(Debug)]
pub struct Session {
    design: Design,
    command: Command,
    name: String,
    files: Files,
    journal: Journal,
    found: Found,
    made: u64,
}

impl Session {
    /// Opens the folder, which may hold finished runs of the same sweep. Every point is checked first.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn open(
        design: &Design,
        registries: &Registries,
        out: &Path,
        command: &Command,
    ) -> Result<Session, Error> {
        // Check all points first, rather than failing after hours.
        check(design, registries)?;
        let files = Files::in_folder(out);
        folder(out, &files)?;
        let (id, name) = id(design, command);
        let (journal, found) = Journal::open(&files.journal, id, design.total()).map_err(unusable)?;
        let session = Session {
            design: design.clone(),
            command: command.clone(),
            name,
            files,
            journal,
            found,
            made: 0,
        };
        manifest(&output::manifest(design, command, &session.name, None), &session.files)
            .map_err(|error| session.storage(error))?;
        Ok(session)
    }

    fn storage(&self, error: JournalError) -> Error {
        Error::Storage { error, kept: self.found.runs + self.made, total: self.design.total() }
    }

    /// What the journal held.
    pub fn found(&self) -> Found {
        self.found
    }

    /// The runs that aren't made yet.
    pub fn pending(&self) -> Vec<u64> {
        (0..self.design.total()).filter(|run| !self.journal.has(*run)).collect()
    }

    /// Keeps finished runs.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn keep(&mut self, batch: &[RunMetrics]) -> Result<(), Error> {
        self.journal.append(batch).map_err(|error| self.storage(error))?;
        self.made += batch.len() as u64;
        Ok(())
    }

    /// Whether every run is made.
    pub fn is_whole(&self) -> bool {
        self.found.runs + self.made >= self.design.total()
    }

    /// Writes the table, if all runs are there.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn finish(mut self) -> Result<Done, Error> {
        self.journal.sync().map_err(|error| self.storage(error))?;
        let (whole, total) = (self.is_whole(), self.design.total());
        let mut summary = None;
        if whole {
            summary = Some(self.write().map_err(|error| self.storage(error))?);
        }
        Ok(Done { total, before: self.found.runs, made: self.made, summary, files: self.files })
    }

    fn write(&mut self) -> Result<Summary, JournalError> {
        let design = &self.design;
        let mut summary = Summary::new(design);
        let mut counts = Counts::default();
        let space = Space::new(design);
        tables(design, &space, &mut self.journal, &self.files, |at, kept| {
            match &kept.ending {
                Ending::Complete => counts.complete += 1,
                Ending::Limit => counts.limit += 1,
                Ending::Failed(reason) => counts.failed.push((kept.run, reason.clone())),
            }
            summary.take(at.point, at.runner, kept);
        })?;
        manifest(&output::manifest(design, &self.command, &self.name, Some(&counts)), &self.files)?;
        summary.finish();
        Ok(summary)
    }
}

/// Makes the runs that aren't in the session's journal yet, then writes the table. `stop` interrupts it;
/// `progress` is called with its progress.
///
/// # Errors
/// See [`Error`]; finished runs are kept.
pub fn run(
    mut session: Session,
    registries: &Registries,
    jobs: usize,
    simulate: impl Fn(&RunSpec) -> RunResult + Sync,
    mut progress: impl FnMut(Progress),
    stop: &AtomicBool,
) -> Result<Done, Error> {
    let design = &session.design.clone();
    progress(Progress::Opened { found: session.found(), total: design.total() });
    let pending = session.pending();
    let next = AtomicUsize::new(0);
    let ended = AtomicBool::new(false);
    let worker = |results: mpsc::Sender<Result<RunMetrics, InputError>>| {
        let mut maker = Maker::new(design, registries);
        while !stop.load(Ordering::Relaxed) && !ended.load(Ordering::Relaxed) {
            let Some(run) = pending.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            let kept = maker.make(*run, &simulate);
            // A run that was stopped in the middle isn't the run.
            if stop.load(Ordering::Relaxed) || results.send(kept).is_err() {
                break;
            }
        }
    };
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..jobs.max(1).min(pending.len().max(1)) {
            let sender = sender.clone();
            scope.spawn(|| worker(sender));
        }
        drop(sender);
        let result = collect(&receiver, |batch| {
            session.keep(batch)?;
            progress(Progress::Recorded(batch.len() as u64));
            Ok(())
        });
        ended.store(true, Ordering::Relaxed);
        result
    })?;
    if session.is_whole() {
        progress(Progress::Writing);
    }
    session.finish()
}

/// Passes on finished runs in batches.
fn collect(
    receiver: &mpsc::Receiver<Result<RunMetrics, InputError>>,
    mut keep: impl FnMut(&[RunMetrics]) -> Result<(), Error>,
) -> Result<(), Error> {
    const PATIENCE: Duration = Duration::from_secs(3600);
    loop {
        let mut batch = Vec::new();
        match receiver.recv_timeout(PATIENCE) {
            Ok(first) => batch.push(first?),
            Err(mpsc::RecvTimeoutError::Timeout) => continue,
            Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(()),
        }
        while batch.len() < 256
            && let Ok(more) = receiver.try_recv()
        {
            batch.push(more?);
        }
        keep(&batch)?;
    }
}
