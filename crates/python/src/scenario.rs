//! Scenarios: a text in TOML, checked.

use std::path::PathBuf;

use pyo3::prelude::*;
use ropewalk_algorithms::Registries;
use ropewalk_lab::scenario::{self, Loaded};
use ropewalk_settings::diagnostic::Source;
use ropewalk_settings::units;

use crate::errors;

/// A checked scenario.
#[pyclass(frozen, module = "ropewalk._native")]
pub(crate) struct Scenario {
    pub(crate) loaded: Loaded,
    /// The folder of its traces.
    pub(crate) folder: PathBuf,
}

impl Scenario {
    /// The paths' names.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.loaded.scenario.paths.iter().map(|path| path.name.clone()).collect()
    }
}

#[pymethods]
impl Scenario {
    #[getter]
    fn name(&self) -> &str {
        &self.loaded.scenario.name
    }

    #[getter]
    fn summary(&self) -> &str {
        &self.loaded.scenario.summary
    }

    /// Its text, in TOML.
    #[getter]
    fn toml(&self) -> &str {
        &self.loaded.text
    }

    #[getter]
    fn folder(&self) -> String {
        self.folder.to_string_lossy().into_owned()
    }

    #[getter]
    fn path_names(&self) -> Vec<String> {
        self.paths()
    }

    /// Its text as JSON, for changing it.
    fn document(&self) -> PyResult<String> {
        let document: toml::Table = self.loaded.text.parse().map_err(errors::other)?;
        serde_json::to_string(&document).map_err(errors::other)
    }

    /// By path: rates (bit/s) and delays (s) of both directions.
    fn links(&self) -> Vec<(String, f64, f64, f64, f64)> {
        let rate = |rate: &ropewalk_link::Rate| match rate {
            ropewalk_link::Rate::Constant(rate) => *rate as f64,
            ropewalk_link::Rate::Trace(_) => f64::NAN,
        };
        let paths = self.loaded.scenario.paths.iter();
        paths
            .map(|path| {
                let seconds = |nanos: u64| nanos as f64 / 1e9;
                (
                    path.name.clone(),
                    rate(&path.up.rate),
                    rate(&path.down.rate),
                    seconds(path.up.delay.as_nanos()),
                    seconds(path.down.delay.as_nanos()),
                )
            })
            .collect()
    }
}

/// Reads a built-in scenario by name, or else a file.
#[pyfunction]
pub(crate) fn load(name_or_file: &str) -> PyResult<Scenario> {
    let loaded = scenario::load(name_or_file, &Registries::builtin()).map_err(errors::input)?;
    let built_in = scenario::builtins().iter().any(|known| known.name == name_or_file);
    let folder = std::path::Path::new(name_or_file).parent().filter(|_| !built_in);
    Ok(Scenario { loaded, folder: folder.map_or(PathBuf::new(), PathBuf::from) })
}

/// Checks a scenario's text: JSON of the same keys if it begins with `{`, else TOML. `name`: what it is
/// called where its text doesn't say it.
#[pyfunction]
pub(crate) fn parse(text: &str, name: &str, folder: PathBuf) -> PyResult<Scenario> {
    let text = if text.trim_start().starts_with('{') {
        let document: toml::Table = serde_json::from_str(text).map_err(errors::other)?;
        document.to_string()
    } else {
        text.to_string()
    };
    let source = Source::new(name, text);
    let loaded = scenario::parse(&source, name, &folder, &Registries::builtin()).map_err(errors::input)?;
    Ok(Scenario { loaded, folder })
}

/// A path as `--path` has it, as JSON of a scenario's keys.
#[pyfunction]
pub(crate) fn path_table(text: &str) -> PyResult<String> {
    let table = scenario::path_table(text, ropewalk_settings::input::open).map_err(errors::input)?;
    serde_json::to_string(&table).map_err(errors::other)
}

/// The built-in scenarios: name and summary.
#[pyfunction]
pub(crate) fn scenarios() -> Vec<(String, String)> {
    let registries = Registries::builtin();
    let load = |known: &scenario::BuiltIn| Some(known.load(&registries).ok()?.scenario.summary);
    let all = scenario::builtins().iter();
    all.map(|known| (known.name.to_string(), load(known).unwrap_or_default())).collect()
}

/// A size.
pub(crate) fn size(text: &str) -> PyResult<u64> {
    let wrong = |error: units::UnitError| errors::wrong(format!("{}: {}", error.message, error.help));
    units::bytes_within(text, (1, scenario::MOST_BYTES)).map_err(wrong)
}
