//! Exceptions: the classes live in `ropewalk._errors`, the texts are the command's own.

use pyo3::prelude::*;
use ropewalk_runner::sweep;
use ropewalk_settings::diagnostic::{self, Diagnostic};

pyo3::import_exception!(ropewalk._errors, RopewalkError);
pyo3::import_exception!(ropewalk._errors, InputError);
pyo3::import_exception!(ropewalk._errors, SchedulerError);

/// Input that can't be used.
pub(crate) fn input(error: impl Into<diagnostic::InputError>) -> PyErr {
    InputError::new_err(error.into().render(false))
}

/// Input that can't be used, as a sentence.
pub(crate) fn wrong(message: impl Into<String>) -> PyErr {
    input(Diagnostic::new(message))
}

/// Anything else.
pub(crate) fn other(error: impl std::fmt::Display) -> PyErr {
    RopewalkError::new_err(error.to_string())
}

/// Why a sweep ended.
pub(crate) fn of_sweep(error: sweep::Error) -> PyErr {
    match error {
        sweep::Error::Input(error) => input(error),
        error => other(error),
    }
}
