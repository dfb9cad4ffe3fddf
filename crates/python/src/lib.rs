//! The native half of the Python package: the laboratory's functions on texts and tables, schedulers written
//! in Python, and the simulations that a learning environment steps through. The package's own face is
//! `python/ropewalk`.

// `cargo test --lib` makes a test program of this crate too, although it has no tests. One that refers to
// pyo3 links libpython, which many systems with Python don't have.
#![cfg(not(test))]

mod advise;
mod compare;
mod control;
mod environment;
mod errors;
#[cfg(target_os = "linux")]
mod papers;
mod run;
mod scenario;
mod scheduler;
mod sweep;
mod table;
mod view;

use std::ffi::OsString;

use pyo3::prelude::*;
use ropewalk_algorithms::Registries;

/// The `ropewalk` command with these arguments, the program's name first; returns the exit code.
#[pyfunction]
fn main(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| {
        // `ExitCode` can't be read back, but two of them can be compared as text.
        let code = ropewalk::run(Registries::builtin(), arguments);
        let text = format!("{code:?}");
        (0..=u8::MAX).find(|known| format!("{:?}", std::process::ExitCode::from(*known)) == text).unwrap_or(1)
    })
}

/// Names, each with one line about it.
type Described = Vec<(String, String)>;

/// Names of the built-in schedulers and congestion controls, with one line about each.
#[pyfunction]
fn algorithms() -> (Described, Described) {
    let registries = Registries::builtin();
    let of = |name: &str, summary: &str| (name.to_string(), summary.to_string());
    let schedulers = registries.schedulers.entries().iter().map(|entry| of(entry.name, entry.summary));
    let controls = registries.congestion.entries().iter().map(|entry| of(entry.name, entry.summary));
    (schedulers.collect(), controls.collect())
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(main, module)?)?;
    module.add_function(wrap_pyfunction!(algorithms, module)?)?;
    module.add_class::<table::Table>()?;
    module.add_class::<scenario::Scenario>()?;
    module.add_class::<view::View>()?;
    module.add_class::<view::Subflow>()?;
    module.add_class::<view::Chunk>()?;
    module.add_class::<scheduler::Decision>()?;
    module.add_class::<sweep::Sweep>()?;
    module.add_class::<sweep::Session>()?;
    module.add_class::<environment::Environments>()?;
    module.add_function(wrap_pyfunction!(scenario::load, module)?)?;
    module.add_function(wrap_pyfunction!(scenario::parse, module)?)?;
    module.add_function(wrap_pyfunction!(scenario::path_table, module)?)?;
    module.add_function(wrap_pyfunction!(scenario::scenarios, module)?)?;
    module.add_function(wrap_pyfunction!(run::simulate, module)?)?;
    module.add_function(wrap_pyfunction!(run::bound, module)?)?;
    module.add_function(wrap_pyfunction!(compare::compare, module)?)?;
    module.add_function(wrap_pyfunction!(compare::settings, module)?)?;
    module.add_function(wrap_pyfunction!(advise::advise, module)?)?;
    #[cfg(target_os = "linux")]
    {
        module.add_function(wrap_pyfunction!(papers::reproduce, module)?)?;
        module.add_function(wrap_pyfunction!(papers::papers, module)?)?;
    }
    module.add_function(wrap_pyfunction!(scheduler::departures, module)?)?;
    module.add_function(wrap_pyfunction!(sweep::build, module)?)?;
    module.add_function(wrap_pyfunction!(sweep::sweep_table, module)?)?;
    Ok(())
}
