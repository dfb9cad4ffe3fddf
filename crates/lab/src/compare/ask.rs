//! What a comparison is asked for, as a command line or a script says it, made into a [`Request`].

use ropewalk_algorithms::{Registries, algorithm, scheduler};
use ropewalk_engine::Span;
use ropewalk_engine::congestion::CongestionControl;
use ropewalk_engine::registry::Spec;
use ropewalk_engine::scheduler::is_compared_by_default;
use ropewalk_settings::argument::{list, size_within};
use ropewalk_settings::diagnostic::{Diagnostic, InputError, Source};
use ropewalk_settings::units;
use ropewalk_sim::{Mode, PathSpec, Scenario, Workload};
use serde::Deserialize;

use super::{Candidate, Design, Request, Worth, said_worth, usual_workloads};
use crate::parallel::Workers;
use crate::scenario::{self, Experiment};

/// What arguments are called in messages.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// What stands before their names.
    before: &'static str,
    /// Flow sizes.
    pub sizes: &'static str,
}

impl Names {
    /// An argument's.
    pub fn of(self, argument: &str) -> String {
        format!("{}{argument}", self.before)
    }
}

/// The command line's.
pub const COMMAND_LINE: Names = Names { before: "--", sizes: "--size" };

/// A script's.
pub const SCRIPT: Names = Names { before: "", sizes: "sizes" };

/// The budget of a comparison where none is given.
pub const BUDGET: &str = "10s";

/// What comparisons and advice are both asked for, beside the paths.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Common {
    /// Only paths were given: without a size, the usual workloads are meant ([`usual_workloads`]).
    pub usual: bool,
    /// Flow sizes, instead of the scenario's workload; each one or several separated by commas.
    pub sizes: Vec<String>,
    /// Schedulers by name; `None`: those that are compared by default, or all that can be run where advice is
    /// asked for.
    pub schedulers: Option<Vec<String>>,
    /// Congestion control; `None`: the scenario's, else cubic.
    pub congestion: Option<String>,
    /// What bytes are worth.
    pub value: Option<String>,
    /// How much to run.
    pub budget: String,
    /// The first run's seed.
    pub seed: u64,
}

impl Common {
    /// Flows of the sizes that are asked for, else of those that the experiment has; without any the usual
    /// workloads, or the scenario's.
    ///
    /// # Errors
    /// What is wrong with a size.
    pub fn workloads(
        &self,
        names: Names,
        experiment: &Experiment,
        scenario: &Scenario,
    ) -> Result<Vec<Workload>, InputError> {
        let asked = sizes(names.sizes, self.sizes.iter().map(String::as_str), scenario::MOST_BYTES)?;
        Ok(match [&asked, &experiment.sizes].into_iter().find(|sizes| !sizes.is_empty()) {
            Some(sizes) => sizes.iter().map(|bytes| Workload::Flow { bytes: *bytes }).collect(),
            None if self.usual => usual_workloads(),
            None => vec![scenario.workload.clone()],
        })
    }

    /// The congestion control.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn congestion(
        &self,
        names: Names,
        experiment: &Experiment,
        registries: &Registries,
    ) -> Result<Spec<dyn CongestionControl>, InputError> {
        let name = self.congestion.as_ref().or(experiment.congestion.as_ref());
        algorithm(&registries.congestion, &names.of("congestion"), name.map_or("cubic", String::as_str))
    }

    /// A race with the budget.
    ///
    /// # Errors
    /// What is wrong with the budget.
    pub fn race(&self, names: Names) -> Result<Design, InputError> {
        Ok(Design::race(budget(&names.of("budget"), &self.budget)?))
    }

    /// What bytes are worth.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn worth(&self, names: Names, paths: &[PathSpec]) -> Result<Worth, InputError> {
        let text = self.value.as_deref().unwrap_or_default();
        let source = Source::new(names.of("value"), text);
        let said = self.value.as_deref().map(said_worth).transpose().map_err(|error| {
            Diagnostic::new(error.message).at(&source, error.span).label(error.label).help(error.help)
        })?;
        Worth::new(paths, said.as_ref()).map_err(|error| {
            Diagnostic::new(error.to_string()).at(&source, 0..text.len()).label("here").into()
        })
    }
}

/// What a comparison is asked for. `tcp` may be among its schedulers, and plain TCP always runs; `all` stands
/// for every scheduler.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// What advice is asked for too.
    pub common: Common,
    /// Size of all buffers.
    pub buffer: Option<String>,
    /// Longest that a run may take.
    pub limit: Option<String>,
    /// A fixed number of runs; none: the experiment's, else a race with the budget.
    pub runs: Option<u32>,
}

impl Ask {
    /// The request in a scenario, of whose file `experiment` is.
    ///
    /// # Errors
    /// What in it isn't allowed, and what is.
    pub fn request(
        self,
        mut scenario: Scenario,
        experiment: Experiment,
        names: Names,
        jobs: Workers,
        registries: &Registries,
    ) -> Result<Request, InputError> {
        if let Some(buffer) = &self.buffer {
            let bytes = size_within(&names.of("buffer"), buffer, scenario::BUFFER_RANGE)?;
            for end in [&mut scenario.client, &mut scenario.server] {
                end.send_buffer = bytes;
                end.receive_buffer = bytes;
                end.autotune = false;
            }
        }
        let workloads = self.common.workloads(names, &experiment, &scenario)?;
        let congestion = self.common.congestion(names, &experiment, registries)?;
        let chosen: Vec<String> = match self.common.schedulers.clone() {
            Some(names) if names.iter().any(|name| name == "all") => {
                let all = registries.schedulers.entries().iter().map(|entry| entry.name);
                let all = all.filter(|name| *name != "single").map(String::from);
                all.chain(names.into_iter().filter(|name| name != "all")).collect()
            }
            Some(names) => names,
            None if !experiment.schedulers.is_empty() => experiment.schedulers,
            None => {
                let all = registries.schedulers.entries().iter().map(|entry| entry.name);
                // `single` is what the rows of plain TCP show, path by path.
                all.filter(|name| is_compared_by_default(name)).map(String::from).collect()
            }
        };
        let mut candidates = Vec::new();
        for name in chosen.iter().filter(|name| *name != "tcp") {
            let scheduler = scheduler(registries, &names.of("schedulers"), name, scenario.paths.len())?;
            candidates.push(Candidate { label: scheduler.text.clone(), scheduler, mode: Mode::Multipath });
        }
        if !candidates.iter().any(|candidate| candidate.label == "linux")
            && registries.schedulers.parse("linux").is_ok()
        {
            let scheduler = algorithm(&registries.schedulers, &names.of("schedulers"), "linux")?;
            candidates.push(Candidate { label: "linux".into(), scheduler, mode: Mode::Multipath });
        }
        for (index, path) in scenario.paths.iter().enumerate() {
            let scheduler = algorithm(&registries.schedulers, &names.of("schedulers"), "single")?;
            let label = format!("tcp {}", path.name);
            candidates.push(Candidate { label, scheduler, mode: Mode::SinglePath(index) });
        }
        let design = match self.runs.or(experiment.runs) {
            Some(runs) => Design::Fixed(runs),
            None => self.common.race(names)?,
        };
        let worth = self.common.worth(names, &scenario.paths)?;
        let seed = self.common.seed;
        let mut request = Request { scenario, workloads, candidates, congestion, design, worth, seed, jobs };
        request.scenario.limit = match &self.limit {
            Some(text) => limit(&names.of("limit"), text, &request.workloads)?,
            None if experiment.limit.is_some() => request.scenario.limit,
            None => request.ample_limit(),
        };
        Ok(request)
    }
}

/// A list of schedulers, separated by commas.
///
/// # Errors
/// None is named, or one twice.
pub fn schedulers(option: &str, text: &str) -> Result<Vec<String>, InputError> {
    let names: Vec<&str> = list(text);
    let source = Source::new(option, text);
    if names.is_empty() {
        return Err(Diagnostic::new("no scheduler is named")
            .at(&source, 0..text.len())
            .label("nothing found")
            .help("as in `minrtt,blest`; `ropewalk list` shows all; `all` takes all")
            .into());
    }
    if let Some((first, twice)) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
        let place = text.rfind(twice).unwrap_or_default();
        let message = format!("`{twice}` is named twice, the second time in place {}", first + 1);
        return Err(Diagnostic::new(message).at(&source, place..place + twice.len()).label("again").into());
    }
    Ok(names.into_iter().map(String::from).collect())
}

/// Flow sizes, each text one or several separated by commas.
///
/// # Errors
/// What is wrong with one, or that it has more than `most` bytes.
pub fn sizes<'a>(
    option: &str,
    texts: impl IntoIterator<Item = &'a str>,
    most: u64,
) -> Result<Vec<u64>, InputError> {
    texts
        .into_iter()
        .flat_map(|text| text.split(','))
        .map(|text| size_within(option, text, (1, most)))
        .collect()
}

/// A budget.
fn budget(option: &str, text: &str) -> Result<Span, InputError> {
    let source = Source::new(option, text);
    let found = units::duration(text).map_err(|error| {
        Diagnostic::new(error.message).at(&source, error.span).label(error.label).help(error.help)
    })?;
    if found.is_zero() {
        return Err(Diagnostic::new("a budget must be more than 0")
            .at(&source, 0..text.len())
            .label("here")
            .help("as in `--budget 10s`; `--runs N` asks for a number of runs")
            .into());
    }
    Ok(found)
}

/// A limit, for these workloads.
fn limit(option: &str, text: &str, workloads: &[Workload]) -> Result<Span, InputError> {
    let source = Source::new(option, text);
    let found = units::duration(text).map_err(|error| {
        Diagnostic::new(error.message).at(&source, error.span).label(error.label).help(error.help)
    })?;
    let wrong = |message: &str, help: String| {
        Err(Diagnostic::new(message).at(&source, 0..text.len()).label("here").help(help).into())
    };
    if found.is_zero() {
        return wrong("a limit must be more than 0", "as in `--limit '120 s'`".into());
    }
    let lasts = workloads.iter().filter_map(|workload| match workload {
        Workload::Cbr { duration, .. } | Workload::Bulk { duration } => Some(*duration),
        _ => None,
    });
    match lasts.max().filter(|duration| found < *duration) {
        Some(duration) => wrong(
            "the workload lasts longer than this limit",
            format!("it lasts {}", units::write_duration(duration)),
        ),
        None => Ok(found),
    }
}
