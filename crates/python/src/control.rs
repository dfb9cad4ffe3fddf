//! Long work: the interpreter is released, Ctrl-C is heard, progress is told, and what a scheduler in Python
//! raised comes out.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use pyo3::prelude::*;

/// How often signals are looked at and progress is told.
const PERIOD: Duration = Duration::from_millis(50);

/// What work tells and hears while it goes on.
#[derive(Debug, Default)]
pub(crate) struct Control {
    /// It must end.
    pub(crate) stop: AtomicBool,
    /// How much is done, in the units that its total has.
    pub(crate) done: AtomicU64,
    /// The first exception that a scheduler raised.
    pub(crate) raised: Mutex<Option<PyErr>>,
}

impl Control {
    /// A scheduler raised this: the first one ends the work.
    pub(crate) fn raise(&self, error: PyErr) {
        if let Ok(mut raised) = self.raised.lock() {
            raised.get_or_insert(error);
        }
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether it must end.
    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Does the work in a thread of its own while this one looks after signals. `progress` is called with what is
/// done so far.
///
/// # Errors
/// KeyboardInterrupt, what `progress` raises, and what a scheduler in Python raised.
pub(crate) fn interruptible<T: Send>(
    py: Python<'_>,
    progress: Option<&Py<PyAny>>,
    work: impl FnOnce(&Control) -> T + Send,
) -> PyResult<T> {
    let control = Control::default();
    let (result, mut error) = py.detach(|| {
        std::thread::scope(|scope| {
            let (ended, end) = channel::<()>();
            let control = &control;
            let worker = scope.spawn(move || {
                // Dropped when the work returns or panics.
                let _ended = ended;
                work(control)
            });
            let (mut error, mut told) = (None, u64::MAX);
            while let Err(RecvTimeoutError::Timeout) = end.recv_timeout(PERIOD) {
                let checked = Python::attach(|py| {
                    py.check_signals()?;
                    let done = control.done.load(Ordering::Relaxed);
                    if let Some(progress) = progress
                        && done != told
                    {
                        told = done;
                        progress.call1(py, (done,))?;
                    }
                    Ok(())
                });
                if let Err(raised) = checked {
                    control.stop.store(true, Ordering::Relaxed);
                    error.get_or_insert(raised);
                }
            }
            match worker.join() {
                Ok(result) => (result, error),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    });
    if let Ok(mut raised) = control.raised.lock() {
        error = error.or(raised.take());
    }
    if let Some(error) = error {
        return Err(error);
    }
    if let Some(progress) = progress {
        progress.call1(py, (control.done.load(Ordering::Relaxed),))?;
    }
    Ok(result)
}
