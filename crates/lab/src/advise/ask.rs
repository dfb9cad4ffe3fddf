//! What advice is asked for, as a command line or a script says it, made into a [`Question`].

use std::path::PathBuf;

use ropewalk_algorithms::Registries;
use ropewalk_settings::diagnostic::{Diagnostic, InputError, Source};
use ropewalk_settings::input::OpenFile;
use ropewalk_settings::name::bad_name;
use ropewalk_settings::units;
use ropewalk_sim::{Direction, Scenario, Workload};

use super::measure::{self, Measured, Reading, Refined};
use super::{Doubt, Effort, Question};
use crate::compare::ask::{self, Names};
use crate::compare::{Design, System};
use crate::scenario::{self, Experiment};

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Where; its paths may be fewer than two if measurements tell of others.
    pub scenario: Scenario,
    /// What its file says of experiments.
    pub experiment: Experiment,
    /// Only paths were given: without a size, the usual workloads are meant.
    pub usual: bool,
    /// Flow sizes, instead of the scenario's workload.
    pub sizes: Vec<u64>,
    /// Schedulers; none: all that `system` has.
    pub schedulers: Vec<String>,
    /// Measurements' files by path.
    pub measured: Vec<(String, Vec<PathBuf>)>,
    /// What can be run.
    pub system: System,
    /// Which end sends the data, instead of the scenario's.
    pub direction: Option<Direction>,
    /// What bytes are worth.
    pub value: Option<String>,
    /// In which share of the plausible variants Multipath TCP must be at most 5 % slower than plain TCP.
    pub certainty: String,
    /// Congestion control; none: the scenario's, else cubic.
    pub congestion: Option<String>,
    /// How much to run.
    pub budget: String,
    /// The first seed.
    pub seed: u64,
    /// What the arguments are called.
    pub names: Names,
}

impl Ask {
    /// The question, and what was read of measurements.
    ///
    /// # Errors
    /// What in it isn't allowed, and what is.
    pub fn question(self, registries: &Registries) -> Result<(Question, Vec<Reading>), InputError> {
        let Ask { mut scenario, experiment, names, system, seed, .. } = self;
        let mut doubts = vec![Doubt::default(); scenario.paths.len()];
        let before = scenario.clone();
        let mut read = Vec::new();
        for (name, files) in &self.measured {
            read.push(measured(
                &names.of("measured"),
                name,
                files,
                registries.open_file,
                &mut scenario,
                &mut doubts,
            )?);
        }
        let count = scenario.paths.len();
        if count == 1 {
            let message = format!("there is one path, `{}`: nothing to choose from", scenario.paths[0].name);
            return Err(Diagnostic::new(message)
                .help("add another: `--path 'lte: 20 Mbit/s, 60 ms'`, or `--measured NAME=FILE,...`")
                .into());
        }
        if count > scenario::MOST_PATHS {
            let message = format!("{count} paths: at most {} are allowed", scenario::MOST_PATHS);
            return Err(Diagnostic::new(message).into());
        }
        for (index, path) in scenario.paths.iter().enumerate() {
            if scenario.paths[..index].iter().any(|other| other.name == path.name) {
                return Err(Diagnostic::new(format!("there are two paths `{}`", path.name)).into());
            }
        }
        if let Some(direction) = self.direction {
            scenario.direction = direction;
        }
        for name in self.schedulers.iter().filter(|name| *name != "tcp") {
            ropewalk_algorithms::scheduler(registries, &names.of("schedulers"), name, scenario.paths.len())?;
        }
        let workloads = ask::workloads(&self.sizes, &experiment, self.usual, &scenario);
        if let Some(Workload::Flow { bytes }) = workloads.iter().find(|_| self.sizes.len() == 1) {
            scenario.workload = Workload::Flow { bytes: *bytes };
        }
        if let Some(name) = &self.congestion {
            ropewalk_algorithms::algorithm(&registries.congestion, &names.of("congestion"), name)?;
        }
        let congestion = self.congestion.or(experiment.congestion).unwrap_or_else(|| "cubic".into());
        let effort =
            Effort { design: Design::race(ask::budget(&names.of("budget"), &self.budget)?), whole: true };
        let readings = read
            .into_iter()
            .filter_map(|(name, files, joined)| {
                let index = scenario.paths.iter().position(|path| path.name == name)?;
                let path = &scenario.paths[index];
                Some(Reading::of(path, &doubts[index], &files, &joined, scenario.direction))
            })
            .collect();
        // Paths that are known by measurements alone have no before.
        let stated = (!self.measured.is_empty() && before.paths.len() == count).then(|| Scenario {
            direction: scenario.direction,
            workload: scenario.workload.clone(),
            ..before
        });
        let worth = ask::worth(&names.of("value"), &scenario.paths, self.value.as_deref())?;
        let question = Question {
            scenario,
            workloads,
            schedulers: self.schedulers,
            doubts,
            stated,
            congestion,
            system,
            worth,
            certainty: certainty(&names.of("certainty"), &self.certainty)?,
            effort,
            seed,
        };
        Ok((question, readings))
    }
}

/// A share of the variants.
fn certainty(option: &str, text: &str) -> Result<f64, InputError> {
    let source = Source::new(option, text);
    let found = units::probability(text).map_err(|error| {
        Diagnostic::new(error.message).at(&source, error.span).label(error.label).help(error.help)
    })?;
    if !(0.5..1.0).contains(&found) {
        let error = Diagnostic::new("50 % to less than 100 % are allowed").at(&source, 0..text.len());
        return Err(error.label("here").help("as in `--certainty '80 %'`").into());
    }
    Ok(found)
}

/// A path's name, what its files say, and where they contradict each other.
type Files = (String, Vec<(String, Measured)>, Vec<String>);

/// Joins what files say of a path with what is known of it.
fn measured(
    option: &str,
    name: &str,
    files: &[PathBuf],
    open_file: OpenFile,
    scenario: &mut Scenario,
    doubts: &mut Vec<Doubt>,
) -> Result<Files, InputError> {
    if let Some(reason) = bad_name(name) {
        return Err(Diagnostic::new(format!("`{option}`: the name `{name}` can't be used: {reason}")).into());
    }
    let names = files.iter().map(|file| file.display().to_string());
    let files = files.iter().map(|file| measure::read(file, open_file)).collect::<Result<Vec<_>, _>>()?;
    let place = scenario.paths.iter().position(|path| path.name == name);
    let known = place.map(|index| scenario.paths[index].clone());
    let Refined { path, doubt, notes } = measure::refine(name, known, &files)?;
    match place {
        Some(index) => (scenario.paths[index], doubts[index]) = (path, doubt),
        None => {
            scenario.paths.push(path);
            doubts.push(doubt);
        }
    }
    Ok((name.to_string(), names.zip(files).collect(), notes))
}
