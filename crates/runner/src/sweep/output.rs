//! Writes the table and the manifest from a complete journal.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ropewalk_lab::sweep::metrics::RunMetrics;
use ropewalk_lab::sweep::output::{Rows, RunIndex, run_index};
use ropewalk_lab::sweep::{Design, Space};
use ropewalk_lab::tidy::{Column, Head};
use ropewalk_settings::diagnostic::system_reason;
use serde_json::Value;

use super::Files;
use super::journal::{Journal, JournalError};
use super::parquet::{RUNS_PER_GROUP, TableWriter};

fn failure(path: &Path, error: &io::Error) -> JournalError {
    JournalError::Io { path: path.to_path_buf(), reason: system_reason(error) }
}

/// The name under which a file is written until it is complete.
fn part(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".part");
    path.with_file_name(name)
}

fn begin(path: &Path, heads: &[Head], provenance: &[(String, String)]) -> Result<TableWriter, JournalError> {
    TableWriter::create(&part(path), heads, provenance).map_err(|error| failure(path, &error))
}

fn end(path: &Path, table: TableWriter) -> Result<(), JournalError> {
    table.finish().and_then(|()| fs::rename(part(path), path)).map_err(|error| failure(path, &error))
}

/// Writes the table, and calls `each` for every run.
pub(super) fn tables(
    design: &Design,
    space: &Space,
    journal: &mut Journal,
    files: &Files,
    provenance: &[(String, String)],
    mut each: impl FnMut(&RunIndex, &RunMetrics),
) -> Result<(), JournalError> {
    let mut rows = Rows::new(design, space);
    let mut runs = begin(&files.runs, &rows.heads, provenance)?;
    let total = design.total();
    for first in (0..total).step_by(RUNS_PER_GROUP as usize) {
        let mut columns: Vec<Column> = rows.heads.iter().map(|head| head.kind.fresh()).collect();
        for run in first..(first + RUNS_PER_GROUP).min(total) {
            let kept = journal.read(run)?;
            let index = run_index(design, run);
            rows.push(&index, &kept, &mut columns);
            each(&index, &kept);
        }
        runs.group(&columns).map_err(|error| failure(&files.runs, &error))?;
    }
    end(&files.runs, runs)
}

/// Writes the manifest.
pub(super) fn manifest(text: &Value, files: &Files) -> Result<(), JournalError> {
    let path = &files.manifest;
    let write = || -> io::Result<()> {
        let mut file = fs::File::create(part(path))?;
        file.write_all(format!("{text:#}\n").as_bytes())?;
        file.sync_all()?;
        fs::rename(part(path), path)
    };
    write().map_err(|error| failure(path, &error))
}
