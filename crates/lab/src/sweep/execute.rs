//! Runs a design on all cores and keeps finished runs.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use ropewalk_sim::{Recording, RunResult, RunSpec};
use sha2::{Digest, Sha256};

use super::design::Design;
use super::journal::{Found, Journal, JournalError, SweepId};
use super::metrics::{Ending, Kept};
use super::output::{Counts, Place, identity, manifest, place, tables};
use super::space::{Prepared, Space, prepare};
use super::summary::Summary;
use super::{Command, Files};
use crate::diagnostic::{InputError, system_reason};
use crate::{Registries, bound, compare};

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
    /// Number of further runs kept.
    Kept(u64),
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

/// Checks every point.
///
/// # Errors
/// The first value that isn't allowed.
pub fn check(design: &Design, registries: &Registries) -> Result<(), InputError> {
    let space = Space::new(design);
    for point in 0..design.points() {
        prepare(design, &space.point(design, point), registries)?;
    }
    Ok(())
}

/// 16 hexadecimal digits that name these bytes: the start of their SHA-256.
pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes)[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn id(design: &Design, command: &Command) -> (SweepId, String) {
    let mut digest = Sha256::new();
    identity(design, command, &mut |bytes| digest.update(bytes));
    let digest = digest.finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    (first, first.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Prepares the folder. Refuses one that holds other files.
fn folder(path: &Path, files: &Files) -> Result<(), Error> {
    let wrong = |message: String| Error::Folder { message };
    fs::create_dir_all(path).map_err(|error| {
        wrong(format!("can't make the folder {}: {}", path.display(), system_reason(&error)))
    })?;
    if !files.journal.exists()
        && let Some(there) = [&files.results, &files.runs, &files.manifest].into_iter().find(|f| f.exists())
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

/// The prepared point that a worker is at.
struct CurrentPoint {
    point: u64,
    prepared: Result<Prepared, InputError>,
}

fn one(design: &Design, prepared: &Prepared, at: &Place) -> RunSpec {
    let runner = &prepared.runners[at.runner];
    RunSpec {
        scenario: Arc::clone(&prepared.scenario),
        scheduler: runner.scheduler.clone(),
        congestion: runner.congestion.clone(),
        mode: runner.mode,
        seed: design.seed.wrapping_add(u64::from(at.number)),
        start_phase: compare::start_phase(&prepared.scenario, at.number, design.runs),
        recording: Recording::default(),
    }
}

/// Makes the runs that aren't in the folder's journal yet, then writes the tables. `stop` interrupts it; `progress` is
/// called with its progress.
///
/// # Errors
/// See [`Error`]; finished runs are kept.
pub fn run(
    design: &Design,
    registries: &Registries,
    out: &Path,
    command: &Command,
    jobs: usize,
    simulate: impl Fn(&RunSpec) -> RunResult + Sync,
    mut progress: impl FnMut(Progress),
    stop: &AtomicBool,
) -> Result<Done, Error> {
    let space = Space::new(design);
    // Check all points first, rather than failing after hours.
    check(design, registries)?;
    let files = Files::in_folder(out);
    folder(out, &files)?;
    let (id, name) = id(design, command);
    let total = design.total();
    let (mut journal, found) = Journal::open(&files.journal, id, total).map_err(unusable)?;
    progress(Progress::Opened { found, total });
    let storage = |kept: u64| move |error: JournalError| Error::Storage { error, kept, total };
    manifest(design, command, &name, &files, None).map_err(storage(found.runs))?;

    let pending: Vec<u64> = (0..total).filter(|run| !journal.has(*run)).collect();
    let next = AtomicUsize::new(0);
    let ended = AtomicBool::new(false);
    let worker = |results: mpsc::Sender<Result<Kept, InputError>>| {
        let mut at_hand: Option<CurrentPoint> = None;
        while !stop.load(Ordering::Relaxed) && !ended.load(Ordering::Relaxed) {
            let Some(run) = pending.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            let at = place(design, *run);
            if at_hand.as_ref().is_none_or(|known| known.point != at.point) {
                let levels = space.point(design, at.point);
                at_hand =
                    Some(CurrentPoint { point: at.point, prepared: prepare(design, &levels, registries) });
            }
            let kept = match at_hand.as_ref().map(|known| &known.prepared) {
                Some(Ok(prepared)) => {
                    let spec = one(design, prepared, &at);
                    Ok(Kept::new(*run, &spec.scenario.workload, &simulate(&spec), bound::of(&spec)))
                }
                Some(Err(error)) => Err(error.clone()),
                None => break,
            };
            if results.send(kept).is_err() {
                break;
            }
        }
    };
    let mut made = 0;
    let outcome: Result<(), Error> = std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..jobs.max(1).min(pending.len().max(1)) {
            let sender = sender.clone();
            scope.spawn(|| worker(sender));
        }
        drop(sender);
        let result = collect(&receiver, |batch| {
            journal.append(batch).map_err(storage(found.runs + made))?;
            made += batch.len() as u64;
            progress(Progress::Kept(batch.len() as u64));
            Ok(())
        });
        ended.store(true, Ordering::Relaxed);
        result
    });
    outcome?;
    let kept = found.runs + made;
    journal.sync().map_err(storage(kept))?;
    let mut done = Done { total, before: found.runs, made, summary: None, files };
    if kept < total {
        return Ok(done);
    }
    progress(Progress::Writing);
    let mut summary = Summary::new(design);
    let mut counts = Counts::default();
    tables(design, &space, &mut journal, &done.files, |at, kept| {
        match &kept.ending {
            Ending::Complete => counts.complete += 1,
            Ending::Limit => counts.limit += 1,
            Ending::Failed(reason) => counts.failed.push((kept.run, reason.clone())),
        }
        summary.take(at.point, at.runner, kept);
    })
    .map_err(storage(kept))?;
    manifest(design, command, &name, &done.files, Some(&counts)).map_err(storage(kept))?;
    summary.finish();
    done.summary = Some(summary);
    Ok(done)
}

/// Passes on finished runs in batches.
fn collect(
    receiver: &mpsc::Receiver<Result<Kept, InputError>>,
    mut keep: impl FnMut(&[Kept]) -> Result<(), Error>,
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
