//! What advice is asked for, as a command line or a script says it, made into a [`Question`].

use std::path::PathBuf;

use ropewalk_algorithms::Registries;
use ropewalk_settings::diagnostic::{Diagnostic, InputError, Source, did_you_mean};
use ropewalk_settings::input::OpenFile;
use ropewalk_settings::name::bad_name;
use ropewalk_settings::units;
use ropewalk_sim::{Scenario, Workload};
use serde::Deserialize;

use super::measure::{self, Measured, Reading, Refined};
use super::{Doubt, Effort, Question};
use crate::compare::System;
use crate::compare::ask::{Common, Names};
use crate::scenario::{self, Experiment};

/// What advice is asked for.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// What a comparison is asked for too.
    pub common: Common,
    /// What can be run, by name; none: Linux's own Multipath TCP where it is as fast, else all.
    pub system: Option<String>,
    /// In which share of the plausible variants Multipath TCP must be at most 5 % slower than plain TCP.
    pub certainty: String,
}

impl Ask {
    /// The question in a scenario, of whose file `experiment` is, and what was read of measurements. `files`:
    /// those of measurements, by path; the scenario's paths may be fewer than two if they tell of others.
    ///
    /// # Errors
    /// What in it isn't allowed, and what is.
    pub fn question(
        self,
        mut scenario: Scenario,
        experiment: Experiment,
        files: &[(String, Vec<PathBuf>)],
        names: Names,
        registries: &Registries,
    ) -> Result<(Question, Vec<Reading>), InputError> {
        let system =
            self.system.as_deref().map_or(Ok(System::default()), |name| system(&names.of("system"), name))?;
        let mut doubts = vec![Doubt::default(); scenario.paths.len()];
        let before = scenario.clone();
        let mut read = Vec::new();
        for (name, files) in files {
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
        let schedulers = self.common.schedulers.clone().unwrap_or_default();
        for name in schedulers.iter().filter(|name| *name != "tcp") {
            ropewalk_algorithms::scheduler(registries, &names.of("schedulers"), name, scenario.paths.len())?;
        }
        let workloads = self.common.workloads(names, &experiment, &scenario)?;
        if let [Workload::Flow { bytes }] = workloads[..]
            && !self.common.sizes.is_empty()
        {
            scenario.workload = Workload::Flow { bytes };
        }
        let congestion = self.common.congestion(names, &experiment, registries)?.text;
        let effort = Effort { design: self.common.race(names)?, whole: true };
        let readings = read
            .into_iter()
            .filter_map(|(name, files, joined)| {
                let index = scenario.paths.iter().position(|path| path.name == name)?;
                let path = &scenario.paths[index];
                Some(Reading::of(path, &doubts[index], &files, &joined, scenario.direction))
            })
            .collect();
        // Paths that are known by measurements alone have no before.
        let stated = (!files.is_empty() && before.paths.len() == count)
            .then(|| Scenario { workload: scenario.workload.clone(), ..before });
        let worth = self.common.worth(names, &scenario.paths)?;
        let question = Question {
            scenario,
            workloads,
            schedulers,
            doubts,
            stated,
            congestion,
            system,
            worth,
            certainty: certainty(&names.of("certainty"), &self.certainty)?,
            effort,
            seed: self.common.seed,
        };
        Ok((question, readings))
    }
}

/// What can be run.
fn system(option: &str, name: &str) -> Result<System, InputError> {
    System::named(name).ok_or_else(|| {
        let all = System::NAMED.map(System::name);
        Diagnostic::new(format!("there is no system `{name}`"))
            .at(&Source::new(option, name), 0..name.len())
            .help(did_you_mean(name, all))
            .help(format!("allowed: {}", all.join(", ")))
            .into()
    })
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
