//! What `advise` is asked, and how the settings of [`ADVISE`](crate::ask::ADVISE) become that.

use std::path::PathBuf;

use ropewalk_algorithms::Registries;
use ropewalk_settings::diagnostic::{Diagnostic, InputError};
use ropewalk_settings::given::Given;
use ropewalk_settings::input::OpenFile;
use ropewalk_settings::name::bad_name;
use ropewalk_sim::{Scenario, Workload};

use super::belief::Doubt;
use super::effort::{self, Effort};
use super::measure::{self, Measured, Reading, Refined};
use crate::ask;
use crate::compare::{Design, System, Worth};
use crate::scenario::{self, Experiment};

/// In which share of the plausible variants Multipath TCP must be at most 5 % slower, unless the user says
/// otherwise.
pub const CERTAINTY: f64 = 0.8;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// The paths as far as they are known; its workload is the one for buffers and turning points.
    pub scenario: Scenario,
    /// What the answer must be good for.
    pub workloads: Vec<Workload>,
    /// Who contends besides `linux` and plain TCP; none: all.
    pub schedulers: Vec<String>,
    /// How well each path is known.
    pub doubts: Vec<Doubt>,
    /// The paths as they were stated, before measurements; none if there are none, or a path is known by them
    /// alone.
    pub stated: Option<Scenario>,
    /// The congestion control.
    pub congestion: String,
    /// What the user can run.
    pub system: System,
    /// What bytes cost.
    pub worth: Worth,
    /// In which share of the plausible variants Multipath TCP must be at most 5 % slower than plain TCP on
    /// the best path.
    pub certainty: f64,
    /// How much to run.
    pub effort: Effort,
    /// Seed.
    pub seed: u64,
}

impl Question {
    /// The same without measurements; none if there are none.
    pub(super) fn stated_alone(&self) -> Option<Question> {
        let scenario = self.stated.clone()?;
        let doubts = vec![Doubt::default(); scenario.paths.len()];
        Some(Question { scenario, doubts, stated: None, ..self.clone() })
    }

    /// The same with its part of the budget: with measurements there are two contests, without and with them.
    pub(super) fn contest(&self) -> Question {
        let mut contest = self.clone();
        if let (Some(_), Design::Race { segments }) = (&self.stated, &mut contest.effort.design) {
            *segments /= 2;
        }
        contest
    }

    /// The same with workloads that the budget suffices for; the second value says whether one had to be cut.
    pub(super) fn affordable(&self) -> (Question, bool) {
        let most = self.effort.of_a_run();
        let (workloads, changed) = effort::cut(&self.workloads, &self.scenario, most);
        let (one, _) = effort::cut(std::slice::from_ref(&self.scenario.workload), &self.scenario, most);
        let mut question = Question { workloads, ..self.clone() };
        if let Some(workload) = one.into_iter().next() {
            question.scenario.workload = workload;
        }
        (question, changed)
    }

    /// Segments that answering takes at most; a fixed number of runs counts as one each.
    pub fn budget(&self) -> u64 {
        self.effort.all()
    }
}

/// The question in a scenario, of whose file `experiment` is, and what was read of measurements. `files`:
/// those of measurements, by path; the scenario's paths may be fewer than two if they tell of others.
/// `usual`: only paths were given, so without a size the usual workloads are meant.
///
/// # Errors
/// What in it isn't allowed, and what is.
pub fn question(
    given: &Given,
    usual: bool,
    mut scenario: Scenario,
    experiment: Experiment,
    files: &[(String, Vec<PathBuf>)],
    registries: &Registries,
) -> Result<(Question, Vec<Reading>), InputError> {
    scenario.direction = ask::direction(given)?.unwrap_or(scenario.direction);
    let (system, certainty, budget, seed) = given.read(|reader, table| {
        let named = System::NAMED.map(|system| (system.name(), system));
        let system = reader.choice(table, "system", &named).unwrap_or_default();
        let certainty = reader.probability(table, "certainty")?;
        if !(0.5..1.0).contains(&certainty) {
            let span = table.get("certainty")?.span();
            let help = "as in `--certainty '80 %'`";
            reader.wrong(span, "50 % to less than 100 % are allowed", "here", help);
        }
        Some((system, certainty, reader.time(table, "budget")?, reader.integer(table, "seed")?))
    })?;
    let mut doubts = vec![Doubt::default(); scenario.paths.len()];
    let before = scenario.clone();
    let mut read = Vec::new();
    for (name, files) in files {
        read.push(measured(name, files, registries.open_file, &mut scenario, &mut doubts)?);
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
    let schedulers = ask::schedulers(given)?.unwrap_or_default();
    let option = given.text("schedulers").map_or("schedulers".into(), |source| source.name.clone());
    for name in schedulers.iter().filter(|name| *name != "tcp") {
        ropewalk_algorithms::scheduler(registries, &option, name, scenario.paths.len())?;
    }
    let workloads = ask::workloads(given, usual, &experiment, &scenario)?;
    if let [Workload::Flow { bytes }] = workloads[..]
        && !given.texts("sizes").is_empty()
    {
        scenario.workload = Workload::Flow { bytes };
    }
    let congestion = ask::congestion(given, &experiment, registries)?.text;
    let effort = Effort { design: Design::race(budget), whole: true };
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
    let worth = ask::worth(given, &scenario.paths)?;
    let question = Question {
        scenario,
        workloads,
        schedulers,
        doubts,
        stated,
        congestion,
        system,
        worth,
        certainty,
        effort,
        seed,
    };
    Ok((question, readings))
}

/// A path's name, what its files say, and where they contradict each other.
type Files = (String, Vec<(String, Measured)>, Vec<String>);

/// Joins what files say of a path with what is known of it.
fn measured(
    name: &str,
    files: &[PathBuf],
    open_file: OpenFile,
    scenario: &mut Scenario,
    doubts: &mut Vec<Doubt>,
) -> Result<Files, InputError> {
    if let Some(reason) = bad_name(name) {
        return Err(Diagnostic::new(format!("`measured`: the name `{name}` can't be used: {reason}")).into());
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
