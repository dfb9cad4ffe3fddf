//! Writes the table and the manifest from a complete journal.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use ropewalk_lab::csv;
use ropewalk_lab::sweep::metrics::RunMetrics;
use ropewalk_lab::sweep::output::{Rows, RunIndex, run_index};
use ropewalk_lab::sweep::{Design, Space};
use ropewalk_lab::tidy::Column;
use ropewalk_settings::diagnostic::system_reason;
use serde_json::Value;

use super::Files;
use super::journal::{Journal, JournalError};

/// Runs that are read from the journal and written at a time.
const AT_A_TIME: u64 = 1000;

fn failure(path: &Path, error: &io::Error) -> JournalError {
    JournalError::Io { path: path.to_path_buf(), reason: system_reason(error) }
}

/// The name under which a file is written until it is complete.
fn part(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".part");
    path.with_file_name(name)
}

/// Writes the table under a temporary name, renames it when it is complete, and calls `each` for every run.
pub(super) fn tables(
    design: &Design,
    space: &Space,
    journal: &mut Journal,
    files: &Files,
    mut each: impl FnMut(&RunIndex, &RunMetrics),
) -> Result<(), JournalError> {
    let path = &files.runs;
    let failed = |error: io::Error| failure(path, &error);
    let mut rows = Rows::new(design, space);
    let mut out = BufWriter::new(File::create(part(path)).map_err(failed)?);
    let total = design.total();
    let mut text = csv::head(&rows.heads);
    for first in (0..total).step_by(AT_A_TIME as usize) {
        let mut columns: Vec<Column> = rows.heads.iter().map(|head| head.kind.fresh()).collect();
        for run in first..(first + AT_A_TIME).min(total) {
            let kept = journal.read(run)?;
            let index = run_index(design, run);
            rows.push(&index, &kept, &mut columns);
            each(&index, &kept);
        }
        csv::write_rows(&columns, &mut text);
        out.write_all(text.as_bytes()).map_err(failed)?;
        text.clear();
    }
    out.into_inner().map_err(|error| failed(error.into_error()))?.sync_all().map_err(failed)?;
    fs::rename(part(path), path).map_err(failed)
}

/// Writes the manifest.
pub(super) fn manifest(text: &Value, files: &Files) -> Result<(), JournalError> {
    let path = &files.manifest;
    let write = || -> io::Result<()> {
        let mut file = File::create(part(path))?;
        file.write_all(format!("{text:#}\n").as_bytes())?;
        file.sync_all()?;
        fs::rename(part(path), path)
    };
    write().map_err(|error| failure(path, &error))
}
