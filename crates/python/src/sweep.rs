//! Sweeps: made here, or in pieces elsewhere whose runs come back as bytes.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use ropewalk_lab::sweep::metrics::RunMetrics;
use ropewalk_lab::sweep::{self as lab, Command, Design, Maker, Overrides};
use ropewalk_settings::diagnostic::{InputError, Source};

use crate::scenario::Scenario;
use crate::scheduler::{Own, registries, run};
use crate::table::Table;
use crate::{control, errors};

/// A digest of the native module: runs of another build aren't combined.
#[pyfunction]
pub(crate) fn build(file: PathBuf) -> String {
    std::fs::read(file).map_or_else(|_| env!("CARGO_PKG_VERSION").to_string(), |bytes| lab::digest(&bytes))
}

/// The table of a sweep's folder.
#[pyfunction]
pub(crate) fn sweep_table(py: Python<'_>, folder: PathBuf) -> PyResult<Table> {
    let read = py.detach(|| ropewalk_runner::folder::table(&folder));
    Table::new(read.map_err(|error| errors::other(error.message))?)
}

/// A sweep's design, checked.
#[pyclass(frozen, module = "ropewalk._native")]
pub(crate) struct Sweep {
    design: Arc<Design>,
    own: Own,
    command: Command,
}

impl Sweep {
    fn pack(runs: &[RunMetrics]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for kept in runs {
            let one = kept.encode();
            bytes.extend((one.len() as u32).to_le_bytes());
            bytes.extend(one);
        }
        bytes
    }

    fn unpack(mut bytes: &[u8]) -> PyResult<Vec<RunMetrics>> {
        let damaged = || errors::other("the runs that a worker returned are damaged");
        let mut runs = Vec::new();
        while let Some((head, rest)) = bytes.split_first_chunk::<4>() {
            let one = rest.get(..u32::from_le_bytes(*head) as usize).ok_or_else(damaged)?;
            runs.push(RunMetrics::decode(one).ok_or_else(damaged)?);
            bytes = &rest[one.len()..];
        }
        Ok(runs)
    }
}

#[pymethods]
impl Sweep {
    /// `text`: the sweep's file. `base`: the scenario, instead of the one that the text names.
    #[new]
    #[pyo3(signature = (text, name, folder, base, own, build))]
    fn new(
        py: Python<'_>,
        text: &str,
        name: &str,
        folder: PathBuf,
        base: Option<Py<Scenario>>,
        own: Own,
        build: String,
    ) -> PyResult<Self> {
        let registries = registries(&own)?;
        let text = if text.trim_start().starts_with('{') {
            let document: toml::Table = serde_json::from_str(text).map_err(errors::other)?;
            document.to_string()
        } else {
            text.to_string()
        };
        let base = base.map(|base| {
            let base = base.bind(py).get();
            (base.loaded.clone(), base.folder.clone())
        });
        let overrides = Overrides { base, ..Overrides::default() };
        let design = lab::parse_with(&Source::new(name, text), &folder, &overrides, &registries)
            .map_err(errors::input)?;
        py.detach(|| lab::check(&design, &registries)).map_err(errors::input)?;
        let command = Command { line: vec!["ropewalk.sweep()".into()], build };
        Ok(Sweep { design: Arc::new(design), own, command })
    }

    #[getter]
    fn total(&self) -> u64 {
        self.design.total()
    }

    #[getter]
    fn points(&self) -> u64 {
        self.design.points()
    }

    #[getter]
    fn per_point(&self) -> u64 {
        self.design.per_point()
    }

    /// Makes runs on so many threads, and returns them as bytes in order of their numbers.
    #[pyo3(signature = (numbers, jobs = None, progress = None))]
    fn make<'py>(
        &self,
        py: Python<'py>,
        numbers: Vec<u64>,
        jobs: Option<usize>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let registries = registries(&self.own)?;
        let names: Vec<&str> = self.own.iter().map(|(name, _)| name.as_str()).collect();
        let jobs = jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1);
        let (design, next) = (&self.design, AtomicUsize::new(0));
        let mut made = control::interruptible(py, progress.as_ref(), |control| {
            let worker = || {
                let mut maker = Maker::new(design, &registries);
                let mut runs = Vec::new();
                while !control.stopped() {
                    let Some(number) = numbers.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
                    runs.push(maker.make(*number, &|spec| run(spec, design.seed, &names, control))?);
                    control.done.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<_, InputError>(runs)
            };
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(worker)).collect();
                let mut all = Vec::new();
                for thread in threads {
                    match thread.join() {
                        Ok(runs) => all.extend(runs?),
                        Err(panic) => std::panic::resume_unwind(panic),
                    }
                }
                Ok::<_, InputError>(all)
            })
        })?
        .map_err(errors::input)?;
        made.sort_by_key(|kept| kept.run);
        Ok(PyBytes::new(py, &Sweep::pack(&made)))
    }

    /// The table of all runs, from what [`Sweep::make`] returned in pieces; and each scheduler's standing as
    /// JSON.
    fn table(&self, pieces: Vec<Vec<u8>>) -> PyResult<(Table, String)> {
        let mut runs = Vec::new();
        for piece in pieces {
            runs.extend(Sweep::unpack(&piece)?);
        }
        runs.sort_by_key(|kept| kept.run);
        runs.dedup_by_key(|kept| kept.run);
        if runs.len() as u64 != self.design.total() {
            let message = format!("{} of {} runs are there", runs.len(), self.design.total());
            return Err(errors::other(message));
        }
        let (table, summary) = lab::in_memory(&self.design, &self.command, &runs);
        Ok((Table::new(table)?, standings(&summary)))
    }

    /// Opens a folder for the results, which may hold runs of the same sweep.
    fn open(&self, out: PathBuf) -> PyResult<Session> {
        let registries = registries(&self.own)?;
        let session =
            ropewalk_runner::sweep::Session::open(&self.design, &registries, Path::new(&out), &self.command)
                .map_err(errors::of_sweep)?;
        Ok(Session { session: Mutex::new(Some(session)) })
    }
}

fn standings(summary: &lab::Summary) -> String {
    serde_json::Value::Array(summary.standings.iter().map(lab::SchedulerSummary::json).collect()).to_string()
}

/// A sweep's folder while runs come in.
#[pyclass(frozen, module = "ropewalk._native")]
pub(crate) struct Session {
    session: Mutex<Option<ropewalk_runner::sweep::Session>>,
}

impl Session {
    fn with<T>(&self, call: impl FnOnce(&mut ropewalk_runner::sweep::Session) -> PyResult<T>) -> PyResult<T> {
        let mut session = self.session.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match session.as_mut() {
            Some(session) => call(session),
            None => Err(errors::other("the sweep's folder is closed")),
        }
    }
}

#[pymethods]
impl Session {
    /// Numbers of the runs that aren't there yet.
    fn pending(&self) -> PyResult<Vec<u64>> {
        self.with(|session| Ok(session.pending()))
    }

    /// Keeps runs that [`Sweep::make`] returned.
    fn keep(&self, piece: Vec<u8>) -> PyResult<()> {
        self.with(|session| session.keep(&Sweep::unpack(&piece)?).map_err(errors::of_sweep))
    }

    /// Writes the table if all runs are there, and returns each scheduler's standing as JSON.
    fn finish(&self) -> PyResult<Option<String>> {
        let mut session = self.session.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some(session) = session.take() else {
            return Err(errors::other("the sweep's folder is closed"));
        };
        let done = session.finish().map_err(errors::of_sweep)?;
        Ok(done.summary.map(|summary| standings(&summary)))
    }

    /// Closes the folder; finished runs stay.
    fn close(&self) {
        self.session.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
    }
}
