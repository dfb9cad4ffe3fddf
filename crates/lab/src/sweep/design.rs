//! A sweep's file: the scenario, the schedulers, the parameters to vary. Errors are reported as a scenario's.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ropewalk_algorithms::Registries;
use ropewalk_engine::congestion::DEFAULT_NAME;
use ropewalk_engine::scheduler::is_compared_by_default;
use ropewalk_settings::diagnostic::{Diagnostic, InputError, Source};
use ropewalk_settings::input::{Opened, Want};
use ropewalk_settings::read::{self, Reader, Table, Value};
use ropewalk_settings::shape::{Field, Kind, Shape, key, required};
use ropewalk_settings::units;
use ropewalk_sim::Direction;

use super::axis::{self, Axis, Dimension, Range, Values};
use super::target;
use crate::scenario::{self, Loaded};

const GRID: &str = "grid";
const LATIN: &str = "latin-hypercube";
/// Most points, and most runs, of a sweep.
const MOST: u64 = 10_000_000;

const VARY: Shape = Shape {
    name: "vary",
    summary: "A parameter and the values it takes",
    fields: &[
        required(
            "parameter",
            Kind::Text,
            "What is varied: `path.lte.rtt`, `workload.size`, `scheduler.ecf.beta`",
        ),
        key("also", Kind::Texts, "Other parameters that take the same value"),
        key("values", Kind::Anys, "Its values, one after another"),
        key("from", Kind::Any, "One end of a range, instead of `values`"),
        key("to", Kind::Any, "The other end"),
        key("steps", Kind::Integer(2, 100_000), "Into how many values a grid cuts the range, ends included"),
        key("scale", Kind::Choice(&["linear", "log"]), "Equal differences or equal ratios. Default: linear"),
        key("as", Kind::Text, "Text around the value, as in `{} +-5 ms`"),
    ],
};

const FILE: Shape = Shape {
    name: "sweep",
    summary: "A Ropewalk sweep: a scenario, and what is varied in it",
    fields: &SWEEP_FIELDS,
};

const SWEEP_FIELDS: [Field; 9] = [
    required("scenario", Kind::Text, "A built-in scenario's name, or a file, found from this one's folder"),
    key(
        "schedulers",
        Kind::Texts,
        "Who runs at each point; `tcp` is plain TCP on each path, `tcp:wifi` on one",
    ),
    key("congestion", Kind::Texts, "Congestion controls, each with every scheduler. Default: cubic"),
    key("runs", Kind::Integer(1, 1_000_000), "Seeded runs of each at each point. Default: 30"),
    key("seed", Kind::Integer(0, i64::MAX as u64), "First seed; the same ones at every point. Default: 1"),
    key("design", Kind::Choice(&[GRID, LATIN]), "Every combination, or a sample of the space. Default: grid"),
    key("points", Kind::Integer(1, MOST), "How many points a Latin hypercube has"),
    key("design-seed", Kind::Integer(0, i64::MAX as u64), "Draws the Latin hypercube. Default: 1"),
    key("vary", Kind::Tables(&VARY), "What is varied"),
];

/// How the points are chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// Every combination.
    Grid,
    /// A Latin hypercube of so many points, drawn from this seed.
    LatinHypercube {
        /// Points.
        points: u64,
        /// Seed.
        seed: u64,
    },
}

/// A sweep's design.
#[derive(Clone, Debug)]
pub struct Design {
    /// The file.
    pub source: Arc<Source>,
    /// The scenario that is varied.
    pub base: Loaded,
    /// The scenario's name in messages.
    pub base_name: String,
    /// The folder of the scenario's traces.
    pub folder: PathBuf,
    /// Schedulers, as given; `tcp:PATH` for plain TCP.
    pub schedulers: Vec<String>,
    /// Congestion controls, as given.
    pub congestion: Vec<String>,
    /// Seeded runs of each.
    pub runs: u32,
    /// First seed.
    pub seed: u64,
    /// How the points are chosen.
    pub layout: Layout,
    /// What is varied.
    pub axes: Vec<Axis>,
}

/// What the command line says instead of the file.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Overrides {
    /// A scenario that is read already, and the folder of its traces. The file needn't name one then.
    pub base: Option<(Loaded, PathBuf)>,
    /// A built-in scenario's name, or a file.
    pub scenario: Option<String>,
    /// Paths instead of the scenario's, as `--path` has them.
    pub paths: Vec<String>,
    /// Schedulers.
    pub schedulers: Option<Vec<String>>,
    /// One flow of this size instead of the scenario's workload.
    pub size: Option<u64>,
    /// Which end sends the data.
    pub direction: Option<Direction>,
}

/// The workload of one flow.
fn flow(bytes: u64) -> toml::Value {
    let size = toml::Value::from(units::write_bytes(bytes));
    toml::Table::from_iter([("kind".to_string(), "flow".into()), ("size".to_string(), size)]).into()
}

impl Overrides {
    /// The scenario with what is said instead.
    fn apply(
        &self,
        base: Loaded,
        name: &str,
        folder: &Path,
        registries: &Registries,
    ) -> Result<Loaded, InputError> {
        let mut document: toml::Table = base.text.parse().unwrap_or_default();
        if !self.paths.is_empty() {
            scenario::paths(&self.paths, registries.open_file)?;
            let tables =
                self.paths.iter().map(|text| Ok(scenario::path_table(text, registries.open_file)?.into()));
            let tables = tables.collect::<Result<Vec<toml::Value>, Diagnostic>>()?;
            let workload = document.remove("workload").unwrap_or_else(|| flow(1 << 20));
            document =
                toml::Table::from_iter([("path".to_string(), tables.into()), ("workload".into(), workload)]);
        }
        if let Some(bytes) = self.size {
            document.insert("workload".into(), flow(bytes));
        }
        if let Some(direction) = self.direction {
            let word = if direction == Direction::Upload { "upload" } else { "download" };
            document.insert("direction".into(), word.into());
        }
        if self.paths.is_empty() && self.size.is_none() && self.direction.is_none() {
            return Ok(base);
        }
        let source = Source::new(format!("{name} with what the command line says"), document.to_string());
        let stem = if self.paths.is_empty() { &base.scenario.name } else { "command line" };
        scenario::parse(&source, stem, folder, registries)
    }
}

/// Reads a sweep's file.
///
/// # Errors
/// A file that can't be read, or mistakes in it: all of them.
pub fn load(path: &Path, overrides: &Overrides, registries: &Registries) -> Result<Design, InputError> {
    let shown = path.display().to_string();
    let want = Want { most: scenario::LARGEST_FILE, pipe: true };
    let bytes = (registries.open_file)(path, want)
        .and_then(Opened::whole)
        .map_err(|error| Diagnostic::new(format!("can't read the sweep `{shown}`: {error}")))?;
    let text = scenario::text(&shown, bytes)?;
    let folder = path.parent().map_or(PathBuf::new(), Path::to_path_buf);
    parse_with(&Source::new(shown, text), &folder, overrides, registries)
}

/// Parses a sweep's text; file names are relative to `folder`.
///
/// # Errors
/// As [`load`].
pub fn parse(source: &Arc<Source>, folder: &Path, registries: &Registries) -> Result<Design, InputError> {
    parse_with(source, folder, &Overrides::default(), registries)
}

/// The same, with what the command line says instead.
///
/// # Errors
/// As [`load`].
pub fn parse_with(
    source: &Arc<Source>,
    folder: &Path,
    overrides: &Overrides,
    registries: &Registries,
) -> Result<Design, InputError> {
    let document = read::parse(source)?;
    let mut reader = Reader::new(source, folder);
    let file = reader.check(&FILE, document.get_ref(), read::first_line(source), None);
    let known = overrides.base.as_ref().map(|(base, _)| base.scenario.name.as_str());
    let Some(named) = known.or_else(|| file.get("scenario").and_then(|value| reader.text(value))) else {
        return Err(InputError { diagnostics: reader.errors });
    };
    let given = overrides.scenario.as_deref();
    let built_in = scenario::builtins().iter().any(|known| known.name == given.unwrap_or(named));
    // The file's scenario is relative to the file, the command line's isn't.
    let base_name = match given {
        Some(given) => given.to_string(),
        None if built_in => named.to_string(),
        None => folder.join(named).to_string_lossy().into_owned(),
    };
    let base = match &overrides.base {
        Some((base, _)) => base.clone(),
        None => scenario::load(&base_name, registries).map_err(|error| match given {
            Some(given) => error.of_argument("--scenario", given),
            None => error,
        })?,
    };
    let base_folder = if let Some((_, folder)) = &overrides.base {
        folder.clone()
    } else if built_in {
        PathBuf::new()
    } else {
        Path::new(&base_name).parent().map_or(PathBuf::new(), Path::to_path_buf)
    };
    let base = overrides.apply(base, &base_name, &base_folder, registries)?;
    let schedulers = schedulers(&mut reader, &file, &base, overrides, registries);
    let congestion = texts(&mut reader, &file, "congestion", |text| {
        registries.congestion.parse(text).err().map(|error| error.message)
    });
    let runs = reader.integer(&file, "runs").map(|runs| runs as u32);
    let seed = reader.integer(&file, "seed").unwrap_or(1);
    let latin = reader.choice(&file, "design", &[(GRID, false), (LATIN, true)]).unwrap_or(false);
    let points = reader.integer(&file, "points");
    let design_seed = reader.integer(&file, "design-seed").unwrap_or(1);
    if latin && points.is_none() && file.get("points").is_none() {
        reader.wrong(
            file.place("design"),
            "a Latin hypercube needs `points`",
            "here",
            "as in `points = 100`",
        );
    }
    if !latin && file.get("points").is_some() {
        reader.wrong(file.place("points"), "a grid has as many points as its values make", "here", "");
    }
    let mut axes: Vec<Axis> = Vec::new();
    for value in reader.array(&file, "vary") {
        if let Some(axis) = vary(&mut reader, value, latin, registries) {
            let again = |target| axes.iter().any(|known| known.targets.contains(target));
            if axis.targets.iter().any(again) {
                reader.wrong(value.span(), format!("`{}` is varied twice", axis.name), "again here", "");
            }
            axes.push(axis);
        }
    }
    let layout = match points {
        Some(points) if latin => Layout::LatinHypercube { points, seed: design_seed },
        _ => Layout::Grid,
    };
    if !reader.errors.is_empty() {
        return Err(InputError { diagnostics: reader.errors });
    }
    let runs = runs.or(base.experiment.runs).unwrap_or(30);
    let congestion = match congestion {
        None => vec![base.experiment.congestion.clone().unwrap_or_else(|| DEFAULT_NAME.into())],
        Some(list) => list,
    };
    let design = Design {
        source: source.clone(),
        base,
        base_name,
        folder: base_folder,
        schedulers,
        congestion,
        runs,
        seed,
        layout,
        axes,
    };
    let total = u128::from(design.points()) * design.per_point() as u128;
    if design.points() > MOST || total > u128::from(MOST) {
        let message = format!("{} points make {total} runs: at most {MOST} are allowed", design.points());
        return Err(Diagnostic::new(message).help("fewer steps, points, runs or schedulers").into());
    }
    Ok(design)
}

impl Design {
    /// Number of points.
    pub fn points(&self) -> u64 {
        match self.layout {
            Layout::LatinHypercube { points, .. } => points,
            Layout::Grid => self
                .axes
                .iter()
                .fold(1u64, |product, axis| product.saturating_mul(axis.count().unwrap_or(1) as u64)),
        }
    }

    /// Runs at each point.
    pub fn per_point(&self) -> u64 {
        self.schedulers.len() as u64 * self.congestion.len() as u64 * u64::from(self.runs)
    }

    /// All runs.
    pub fn total(&self) -> u64 {
        self.points() * self.per_point()
    }
}

/// A list of texts; none if the key is absent.
fn texts(
    reader: &mut Reader,
    file: &Table<'_>,
    key: &str,
    check: impl Fn(&str) -> Option<String>,
) -> Option<Vec<String>> {
    let value = file.get(key)?;
    let Some(list) = value.get_ref().as_array().filter(|list| !list.is_empty()) else {
        reader.wrong(
            value.span(),
            format!("`{key}` must be a list of texts, at least one"),
            "found here",
            "",
        );
        return None;
    };
    let mut found: Vec<String> = Vec::new();
    for item in list {
        let Some(text) = reader.text(item) else { continue };
        if let Some(message) = check(text) {
            reader.wrong(item.span(), message, "found here", "");
        } else if found.iter().any(|known| known == text) {
            reader.wrong(item.span(), format!("`{text}` is listed twice"), "again here", "");
        } else {
            found.push(text.to_string());
        }
    }
    Some(found)
}

/// The schedulers; `tcp` stands for one per path.
fn schedulers(
    reader: &mut Reader,
    file: &Table<'_>,
    base: &Loaded,
    overrides: &Overrides,
    registries: &Registries,
) -> Vec<String> {
    let names: Vec<&str> = base.scenario.paths.iter().map(|path| path.name.as_str()).collect();
    let given = texts(reader, file, "schedulers", |text| match text.strip_prefix("tcp:") {
        Some(path) if !names.contains(&path) => {
            Some(format!("`{text}`: there is no path `{path}`; there are: {}", names.join(", ")))
        }
        _ => registries.check_scheduler(text, names.len()).map(|error| error.message),
    });
    let given = overrides.schedulers.clone().or(given).unwrap_or_else(|| {
        match base.experiment.schedulers.as_slice() {
            [] => {
                let all = registries.schedulers.entries().iter().map(|entry| entry.name);
                all.filter(|name| is_compared_by_default(name)).chain(["tcp"]).map(String::from).collect()
            }
            some => some.to_vec(),
        }
    });
    let mut found: Vec<String> = Vec::new();
    for text in given {
        let each =
            if text == "tcp" { names.iter().map(|name| format!("tcp:{name}")).collect() } else { vec![text] };
        found.extend(each.into_iter().filter(|text| !found.contains(text)).collect::<Vec<_>>());
    }
    found
}

/// A value as an owned one.
fn owned(reader: &Reader, value: &Value<'_>) -> Option<toml::Value> {
    let written = &reader.source.text[value.span()];
    let table: toml::Table = format!("value = {written}").parse().ok()?;
    table.get("value").cloned()
}

fn vary(reader: &mut Reader, value: &Value<'_>, latin: bool, registries: &Registries) -> Option<Axis> {
    let table = reader.table(&VARY, value)?;
    let before = reader.errors.len();
    let mut names = vec![table.get("parameter")?];
    if let Some(also) = table.get("also") {
        match also.get_ref().as_array() {
            Some(list) => names.extend(list.iter()),
            None => reader.wrong(also.span(), "`also` must be a list of texts", "not a list", ""),
        }
    }
    let mut targets = Vec::new();
    for named in &names {
        let Some(text) = reader.text(named) else { continue };
        match target::parse(text, registries) {
            Ok(target) => targets.push(target),
            Err((message, help)) => reader.wrong(named.span(), message, "found here", help),
        }
    }
    let template = match table.get("as") {
        None => None,
        Some(value) => {
            let text = reader.text(value)?;
            if !text.contains("{}") {
                reader.wrong(value.span(), "`as` needs a `{}`, where the value goes", "none here", "");
            }
            Some(text.to_string())
        }
    };
    let steps = reader.integer(&table, "steps");
    let log = reader.choice(&table, "scale", &[("linear", false), ("log", true)]).unwrap_or(false);
    let (values, dimension) = match (table.get("values"), table.get("from"), table.get("to")) {
        (Some(list), None, None) => {
            for only in ["steps", "scale"] {
                if table.get(only).is_some() {
                    reader.wrong(table.place(only), format!("`{only}` belongs to a range"), "here", "");
                }
            }
            let items = list.get_ref().as_array().filter(|items| !items.is_empty());
            let Some(items) = items else {
                reader.wrong(list.span(), "`values` must be a list, with at least one", "found here", "");
                return None;
            };
            let items = items.iter().filter_map(|item| owned(reader, item)).collect();
            let (dimension, levels) = axis::listed(items, template.as_deref());
            (Values::Listed(levels), dimension)
        }
        (None, Some(from), Some(to)) => {
            let range = range(reader, from, to, log)?;
            let dimension = Some(range.dimension);
            match steps {
                Some(steps) => {
                    let levels = axis::steps(&range, steps as usize, template.as_deref());
                    (Values::Listed(levels), dimension)
                }
                None if latin => (Values::Range(range), dimension),
                None => {
                    let help = "as in `steps = 5`; or `design = \"latin-hypercube\"`";
                    reader.wrong(value.span(), "a grid needs `steps` for a range", "here", help);
                    return None;
                }
            }
        }
        _ => {
            let help = "`values = [...]`, or `from` and `to`";
            reader.wrong(value.span(), "either `values`, or `from` and `to`", "here", help);
            return None;
        }
    };
    let name = names[0].get_ref().as_str()?.to_string();
    (reader.errors.len() == before).then_some(Axis { name, targets, values, dimension, template })
}

fn range(reader: &mut Reader, from: &Value<'_>, to: &Value<'_>, log: bool) -> Option<Range> {
    let ends = [owned(reader, from)?, owned(reader, to)?];
    let Some((dimension, numbers)) = axis::common(&ends) else {
        let help = "as in `from = \"10 ms\"`, `to = \"300 ms\"`; anything else goes into `values`";
        reader.wrong(to.span(), "`from` and `to` must be quantities of one kind", "found here", help);
        return None;
    };
    if log && numbers.iter().any(|number| *number <= 0.0) {
        reader.wrong(from.span(), "equal ratios can't start from 0 or below", "found here", "");
        return None;
    }
    let finite = numbers.iter().all(|number| number.is_finite());
    if !finite || numbers[0] == numbers[1] {
        reader.wrong(to.span(), "a range needs two different ends", "found here", "");
        return None;
    }
    debug_assert!(dimension != Dimension::Number || finite);
    Some(Range { dimension, from: numbers[0], to: numbers[1], log })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(text: &str) -> String {
        let source = Source::new("sweep.toml", text);
        parse(&source, Path::new(""), &Registries::builtin()).unwrap_err().to_string()
    }

    fn vary(rest: &str) -> String {
        mistakes(&format!("scenario = 'wifi-lte'\n[[vary]]\n{rest}"))
    }

    #[test]
    fn the_examples_are_valid() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/sweeps");
        let registries = Registries::builtin();
        for (name, runs) in [("rtt-and-loss", 2800), ("hypercube", 4000), ("ten-thousand", 10_000)] {
            let design = load(&folder.join(name).with_extension("toml"), &Overrides::default(), &registries)
                .unwrap_or_else(|error| panic!("{}", error.render(false)));
            assert_eq!(design.total(), runs);
            let space = crate::sweep::Space::new(&design);
            for point in (0..design.points()).step_by(7) {
                crate::sweep::prepare(&design, &space.point(&design, point), &registries)
                    .unwrap_or_else(|error| panic!("{}", error.render(false)));
            }
        }
    }

    #[test]
    fn mistakes_are_shown_with_their_place() {
        for (text, found) in [
            ("", "needs `scenario`"),
            ("scenario = 'wifi-lt'", "did you mean `wifi-lte`"),
            ("scenario = 'wifi-lte'\nschedulers = ['minrt']", "sweep.toml:2:15: unknown scheduler `minrt`"),
            ("scenario = 'wifi-lte'\nschedulers = ['tcp:dsl']", "there are: wifi, lte"),
            ("scenario = 'wifi-lte'\nschedulers = []", "at least one"),
            ("scenario = 'wifi-lte'\nrun = 5", "did you mean `runs`"),
            ("scenario = 'wifi-lte'\nruns = 0", "from 1 to 1000000"),
            ("scenario = 'wifi-lte'\ndesign = 'latin-hypercube'", "needs `points`"),
            ("scenario = 'wifi-lte'\npoints = 5", "a grid has as many points"),
            (
                "scenario = 'wifi-lte'\nruns = 1000000\nschedulers = ['minrtt', 'tcp']\n[[vary]]\nparameter \
                 = 'limit'\nfrom = '1 s'\nto = '9 s'\nsteps = 9",
                "27000000 runs",
            ),
        ] {
            assert!(mistakes(text).contains(found), "{text}: {}", mistakes(text));
        }
        for (text, found) in [
            ("parameter = 'path.lte.rtt'", "either `values`, or `from` and `to`"),
            ("parameter = 'path.lte.rtt'\nvalues = []", "at least one"),
            ("parameter = 'path.lte.rtt'\nfrom = '1 ms'\nto = '9 ms'", "needs `steps`"),
            ("parameter = 'path.lte.rtt'\nfrom = '1 ms'\nto = '9 Mbit/s'\nsteps = 3", "of one kind"),
            ("parameter = 'path.lte.rtt'\nfrom = '1 ms'\nto = '1 ms'\nsteps = 3", "two different ends"),
            (
                "parameter = 'path.lte.loss'\nfrom = '0 %'\nto = '1 %'\nsteps = 3\nscale = 'log'",
                "can't start from 0",
            ),
            ("parameter = 'scheduler.ecf.bet'\nvalues = [1]", "allowed: "),
            ("parameter = 'path.lte.rtt'\nvalues = ['1 ms']\nas = 'x'", "needs a `{}`"),
            (
                "parameter = 'limit'\nvalues = ['9 s']\n[[vary]]\nparameter = 'limit'\nvalues = ['8 s']",
                "varied twice",
            ),
        ] {
            assert!(vary(text).contains(found), "{text}: {}", vary(text));
        }
    }
}
