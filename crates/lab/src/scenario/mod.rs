//! Scenarios as people write them: TOML files with units in their values, the built-in ones, and paths on
//! the command line.
//!
//! Every way ends in [`ropewalk_sim::Scenario`], checked: what the simulator is given can be simulated.

mod builtin;
mod datagrams;
mod draft;
mod inline;
mod links;
mod phrase;
mod preset;
mod randomness;
mod reword;
mod schema;
pub mod shape;
pub mod trace;
mod traffic;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ropewalk_algorithms::Registries;
use ropewalk_engine::Span;
use ropewalk_engine::registry::SpecError;
use ropewalk_link::{ChangeAction, Rate, RateTrace};
use ropewalk_settings::diagnostic::{Diagnostic, InputError, Source, did_you_mean};
use ropewalk_settings::input::{OpenFile, Opened, Want};
use ropewalk_settings::read::{self, Reader};
use ropewalk_sim::datagrams::Datagrams;
use ropewalk_sim::{Scenario, Workload};

pub use builtin::{BuiltIn, DEFAULT, builtins};
pub use draft::MOST_PATHS;
pub(crate) use draft::mean_rate;
pub use inline::{default_around, path, paths};
pub use preset::{PRESETS, Preset};
pub use randomness::is_random;
pub(crate) use randomness::links;
pub use reword::{path_table, with_changes, with_clause};
pub use schema::schema;
pub use shape::MOST_BYTES;
pub(crate) use shape::{BUFFER, DIRECTIONS};
pub(crate) use trace::text;
pub(crate) use traffic::DIRECTION_WORDS;

/// A scenario, and what `compare` does with it by default.
#[derive(Clone, PartialEq, Debug)]
pub struct Loaded {
    /// The scenario.
    pub scenario: Scenario,
    /// Defaults of `compare`.
    pub experiment: Experiment,
    /// What is sent instead of the scenario's workload, if that is `datagrams`.
    pub datagrams: Option<Datagrams>,
    /// The text that it was read from.
    pub text: String,
}

/// Defaults of `compare` that a scenario file may set.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Experiment {
    /// Flow sizes, bytes; empty: the workload's.
    pub sizes: Vec<u64>,
    /// Congestion control.
    pub congestion: Option<String>,
    /// Schedulers; empty: all.
    pub schedulers: Vec<String>,
    /// Seeded runs of each.
    pub runs: Option<u32>,
    /// The limit that the file sets; none: the default, which may be too short for what `compare` is asked
    /// for.
    pub limit: Option<Span>,
}

/// What is wrong with an algorithm's name, if anything.
type Check<'a> = &'a dyn Fn(&str) -> Option<SpecError>;

/// The names of algorithms that a file may use.
pub(crate) struct Names<'a> {
    congestion: Check<'a>,
    scheduler: Check<'a>,
}

/// A [`Reader`] that also reads what only scenarios have: links, traffic, ends.
struct ScenarioReader {
    reader: Reader,
    open_file: OpenFile,
}

impl std::ops::Deref for ScenarioReader {
    type Target = Reader;

    fn deref(&self) -> &Reader {
        &self.reader
    }
}

impl std::ops::DerefMut for ScenarioReader {
    fn deref_mut(&mut self) -> &mut Reader {
        &mut self.reader
    }
}

/// Largest file of a scenario or a sweep, bytes.
pub(crate) const LARGEST_FILE: u64 = 16 << 20;

/// Reads a built-in scenario by name, or else a file, whose workload TCP carries.
///
/// # Errors
/// No such scenario (with what was probably meant), a file that can't be read, or mistakes in it.
pub fn load(name_or_file: &str, registries: &Registries) -> Result<Loaded, InputError> {
    load_any(name_or_file, registries).and_then(datagrams::refuse)
}

/// As [`load`], of any workload.
///
/// # Errors
/// As [`load`].
pub fn load_any(name_or_file: &str, registries: &Registries) -> Result<Loaded, InputError> {
    if let Some(found) = builtins().iter().find(|known| known.name == name_or_file) {
        return found.load(registries);
    }
    let path = Path::new(name_or_file);
    let looks_like_file = path.extension().is_some() || name_or_file.contains(['/', '\\']) || path.exists();
    if !looks_like_file {
        let names = || builtins().iter().map(|known| known.name);
        let near = did_you_mean(name_or_file, names());
        return Err(Diagnostic::new(format!("there is no scenario `{name_or_file}`"))
            .help(near)
            .help(format!("built in: {}", names().collect::<Vec<_>>().join(", ")))
            .help("or the path of a scenario file (.toml)")
            .into());
    }
    let unreadable = |reason: &str| {
        InputError::from(Diagnostic::new(format!("can't read the scenario `{name_or_file}`: {reason}")))
    };
    let want = Want { most: LARGEST_FILE, pipe: true };
    let bytes = (registries.open_file)(path, want).and_then(Opened::whole);
    let bytes = bytes.map_err(|error| unreadable(&error.to_string()))?;
    let text = text(name_or_file, bytes)?;
    let stem = path.file_stem().map_or("scenario".into(), |stem| stem.to_string_lossy().into_owned());
    let folder = path.parent().map_or(PathBuf::new(), Path::to_path_buf);
    parse_any(&Source::new(name_or_file, text), &stem, &folder, registries)
}

/// Parses the text of a scenario file whose workload TCP carries. Traces are found from `folder`; `stem` is
/// the name if the file has none.
///
/// # Errors
/// All mistakes, each with its place.
pub fn parse(
    source: &Arc<Source>,
    stem: &str,
    folder: &Path,
    registries: &Registries,
) -> Result<Loaded, InputError> {
    parse_any(source, stem, folder, registries).and_then(datagrams::refuse)
}

fn parse_any(
    source: &Arc<Source>,
    stem: &str,
    folder: &Path,
    registries: &Registries,
) -> Result<Loaded, InputError> {
    let document = read::parse(source)?;
    let mut reader = ScenarioReader { reader: Reader::new(source, folder), open_file: registries.open_file };
    let paths_given = document
        .get_ref()
        .get("path")
        .and_then(|value| value.get_ref().as_array())
        .map_or(1, |all| all.len());
    let has_datagrams = datagrams::asked(document.get_ref());
    let names = Names {
        congestion: &|text| registries.congestion.parse(text).err(),
        scheduler: &|text| match has_datagrams {
            true => datagrams::check_scheduler(text),
            false => registries.check_scheduler(text, paths_given),
        },
    };
    let file = reader.check(&shape::FILE, document.get_ref(), read::first_line(source), None);
    let bottlenecks = reader.bottlenecks(&file);
    let paths = reader.paths(&file, &bottlenecks);
    let direction = reader.direction(&file).unwrap_or_default();
    let background = reader.background(&file, &paths, direction, &names);
    let datagrams = if has_datagrams { reader.datagrams(&file) } else { None };
    let workload = if has_datagrams { Workload::Flow { bytes: 1 } } else { reader.workload(&file) };
    let (client, server) = reader.ends(&file);
    let mut experiment = reader.experiment(&file, &names);
    experiment.limit = reader.time(&file, "limit");
    let limit = experiment.limit.unwrap_or(Span::from_secs(60));
    if limit.is_zero() {
        reader.wrong(file.place("limit"), "`limit` must be more than 0", "found 0", "");
    }
    if let Workload::Cbr { duration, .. } | Workload::Bulk { duration } = &workload
        && limit < *duration
    {
        let place = if file.get("limit").is_some() { file.place("limit") } else { file.place("workload") };
        reader.wrong(place, "the workload lasts longer than `limit` (default 60 s)", "here", "raise `limit`");
    }
    let summary = file.get("summary").and_then(|value| reader.text(value)).unwrap_or_default().to_string();
    let warmup = reader.time(&file, "warmup").unwrap_or_default();
    let name = reader.scenario_name(&file, stem);
    let scenario = Scenario {
        name,
        summary,
        paths,
        bottlenecks,
        background,
        workload,
        direction,
        client,
        server,
        warmup,
        limit,
    };
    if reader.errors.is_empty() {
        reader.unused(&file, &scenario.bottlenecks, &scenario.paths);
    }
    if !reader.errors.is_empty() {
        return Err(InputError { diagnostics: reader.reader.errors });
    }
    Ok(Loaded { scenario, experiment, datagrams, text: source.text.clone() })
}

/// The traces that a scenario's links start with or change to.
pub fn traces(scenario: &Scenario) -> Vec<&RateTrace> {
    let links = scenario.paths.iter().flat_map(|path| [&path.up, &path.down]);
    let shared = scenario.bottlenecks.iter().flat_map(|link| [&link.up, &link.down]);
    let rates = links.chain(shared).flat_map(|link| {
        let later = link.changes.iter().filter_map(|change| match &change.action {
            ChangeAction::Rate(rate) => Some(rate),
            _ => None,
        });
        std::iter::once(&link.rate).chain(later)
    });
    rates
        .filter_map(|rate| match rate {
            Rate::Trace(trace) => Some(&**trace),
            Rate::Constant(_) => None,
        })
        .collect()
}
