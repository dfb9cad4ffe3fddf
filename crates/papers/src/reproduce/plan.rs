//! From a paper's figures to runs: the main settings and, one at a time, each other value of an open one;
//! every row with every column. What several figures share is run once.

use std::collections::HashMap;
use std::sync::Arc;

use ropewalk_algorithms::Registries;
use ropewalk_engine::Span;
use ropewalk_engine::congestion::{CongestionControl, DEFAULT_NAME};
use ropewalk_engine::registry::Spec;
use ropewalk_engine::scheduler::Scheduler;
use ropewalk_settings::units;
use ropewalk_sim::{Mode, Recording, RunSpec, Scenario};

use super::error::{CellError, SettingError};
use super::settings::{self, merge};
use super::{Figure, Kind, Line, Paper, PaperError, Settings, World};

/// What is simulated, but for the seed.
#[derive(Clone, Debug)]
pub(super) struct Template {
    pub(super) scenario: Arc<Scenario>,
    pub(super) scheduler: Spec<dyn Scheduler>,
    pub(super) congestion: Spec<dyn CongestionControl>,
    pub(super) mode: Mode,
    pub(super) skip: Span,
    pub(super) recording: Recording,
    /// All of it as text, to know a run by.
    pub(super) identity: String,
    /// Time over which runs without randomness start at different phases.
    pub(super) phase: Span,
}

/// What a cell's runs are.
#[derive(Clone, Debug)]
pub(super) enum Work {
    Simulate(Arc<Template>),
    /// By drawing or by formula; 1/mu_s in milliseconds.
    Reordering(bool, f64),
}

/// A row with a column, in one setting.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) figure: usize,
    pub(super) variant: usize,
    pub(super) row: usize,
    pub(super) column: usize,
    pub(super) metric: String,
    pub(super) work: Work,
    pub(super) runs: u32,
}

/// The main settings, or one other value of an open one.
#[derive(Clone, Debug)]
pub(super) struct Variant {
    pub(super) label: String,
    pub(super) settings: Settings,
    /// Figures that it concerns; none named: all.
    pub(super) figures: Vec<String>,
}

/// The label of the main settings.
pub(super) const MAIN: &str = "as assumed";

/// The label of the fitted setting.
pub(super) const FITTED: &str = "fitted";

/// The main settings first, then the fitted one if there is one.
pub(super) fn variants(paper: &Paper) -> Vec<Variant> {
    let mut found = vec![Variant { label: MAIN.into(), settings: Settings::default(), figures: Vec::new() }];
    let mut below = Settings::default();
    if let Some(fitted) = &paper.fitted {
        let (mut figures, read) = (fitted.figures.clone(), fitted.read());
        figures.extend(paper.unknowns.real.iter().cloned());
        // A reading of the scheduler's rule also concerns figures of other networks, as they are ruled.
        let own = fitted.readings.iter().flat_map(|reading| reading.figures.iter().cloned());
        let own: Vec<String> = own.filter(|id| !figures.contains(id)).collect();
        below = merge(&fitted.apply, &read);
        found.push(Variant { label: FITTED.into(), settings: below.clone(), figures });
        if !own.is_empty() {
            found.push(Variant { label: FITTED.into(), settings: read, figures: own });
        }
    }
    for open in &paper.plan.open {
        for value in &open.values {
            let settings = if open.fitted { merge(&below, &value.settings) } else { value.settings.clone() };
            let label = format!("{}: {}", open.name, value.label);
            found.push(Variant { label, settings, figures: open.figures.clone() });
        }
    }
    found
}

impl Variant {
    pub(super) fn concerns(&self, figure: &Figure) -> bool {
        let all = self.figures.is_empty() && figure.kind == Kind::Grid && figure.world == World::Simulated;
        self.label == MAIN || all || self.figures.contains(&figure.id)
    }
}

/// All cells of the figures asked for. `runs` stands in for the paper's number.
///
/// # Errors
/// What in the paper's files can't be run.
pub(super) fn cells(
    paper: &Paper,
    variants: &[Variant],
    world: World,
    only: Option<&str>,
    runs: Option<u32>,
    registries: &Registries,
) -> Result<Vec<Cell>, PaperError> {
    let mut found = Vec::new();
    let mut templates = HashMap::new();
    for (number, figure) in paper.plan.figures.iter().enumerate() {
        if figure.world != world || only.is_some_and(|only| only != figure.id) {
            continue;
        }
        let concerned = variants.iter().enumerate().filter(|(_, variant)| variant.concerns(figure));
        for (place, variant) in concerned {
            for (row, row_line) in figure.rows.iter().enumerate() {
                for (column, column_line) in figure.columns.iter().enumerate() {
                    let work = match figure.kind {
                        Kind::Reordering => Work::Reordering(row > 0, column_line.x.unwrap_or(0.0)),
                        Kind::Grid | Kind::Series => Work::Simulate(
                            template(
                                paper,
                                figure,
                                &variant.settings,
                                row_line,
                                column_line,
                                registries,
                                &mut templates,
                            )
                            .map_err(|error| wrong(paper, figure, row_line, column_line, error))?,
                        ),
                    };
                    let metric = row_line.metric.as_ref().or(column_line.metric.as_ref());
                    found.push(Cell {
                        figure: number,
                        variant: place,
                        row,
                        column,
                        metric: metric.unwrap_or(&figure.metric).clone(),
                        work,
                        runs: runs
                            .unwrap_or_else(|| usual_runs(paper, figure, column_line, &variant.label))
                            .max(1),
                    });
                }
            }
        }
    }
    Ok(found)
}

/// A cell that can't be run, and why.
pub(super) fn wrong(
    paper: &Paper,
    figure: &Figure,
    row: &Line,
    column: &Line,
    error: SettingError,
) -> PaperError {
    PaperError::Cell(Box::new(CellError {
        paper: paper.name.clone(),
        figure: figure.id.clone(),
        row: row.label.clone(),
        column: column.label.clone(),
        error,
    }))
}

/// The paper's number, or fewer in settings other than the main one.
fn usual_runs(paper: &Paper, figure: &Figure, column: &Line, variant: &str) -> u32 {
    let all = column.runs.or(figure.runs).unwrap_or(paper.plan.runs);
    if [MAIN, FITTED].contains(&variant) {
        all
    } else {
        paper.plan.sweep_runs.map_or(all, |runs| runs.min(all))
    }
}

pub(super) fn template(
    paper: &Paper,
    figure: &Figure,
    variant: &Settings,
    row: &Line,
    column: &Line,
    registries: &Registries,
    known: &mut HashMap<String, Arc<Template>>,
) -> Result<Arc<Template>, SettingError> {
    let mut settings = figure.settings.clone();
    for above in [&row.settings, &column.settings, variant] {
        settings = merge(&settings, above);
    }
    let loaded = settings::scenario(paper, &settings, registries)?;
    let scenario = loaded.scenario;
    let mode = match &settings.tcp {
        None => Mode::Multipath,
        Some(path) => {
            let found = scenario.paths.iter().position(|known| known.name == *path);
            Mode::SinglePath(found.ok_or_else(|| SettingError::NoPath(path.clone()))?)
        }
    };
    let scheduler = match (&settings.tcp, &settings.scheduler) {
        (Some(_), _) => "single".into(),
        (None, Some(name)) => {
            let mechanisms = settings.mechanisms.as_ref().unwrap_or(&paper.plan.mechanisms);
            match settings.replace.get(name) {
                // One that stands in may have mechanisms of its own: why, its open setting says.
                Some(own) if settings::names_mechanisms(own) => own.clone(),
                other => settings::equip(other.unwrap_or(name), mechanisms)?,
            }
        }
        (None, None) => return Err(SettingError::NoScheduler),
    };
    let scheduler = registries.schedulers.parse(&scheduler)?;
    let congestion = match mode {
        Mode::SinglePath(_) => settings.tcp_congestion.as_ref().or(settings.congestion.as_ref()),
        Mode::Multipath => settings.congestion.as_ref(),
    };
    let congestion = congestion.map_or(DEFAULT_NAME, String::as_str);
    let congestion = registries.congestion.parse(congestion)?;
    let skip = match &figure.skip {
        None => Span::ZERO,
        Some(text) => units::duration(text).map_err(|error| SettingError::Time(error.message))?,
    };
    let samples_every = match figure.kind {
        Kind::Series => Some(Span::from_millis(10)),
        _ if !skip.is_zero() => Some(Span::from_millis(500)),
        _ => None,
    };
    let identity = format!(
        "{}\n{}\n{}\n{mode:?}\n{skip}\n{}",
        loaded.text,
        scheduler.text,
        congestion.text,
        samples_every.unwrap_or_default()
    );
    if let Some(template) = known.get(&identity) {
        return Ok(template.clone());
    }
    let rtt = scenario.paths.iter().map(|path| path.up.delay + path.down.delay).max().unwrap_or_default();
    // In real time no two runs are the same anyway.
    let still = figure.world == World::Simulated
        && !ropewalk_lab::scenario::is_random(&scenario)
        && scenario.background.is_empty()
        && ropewalk_lab::scenario::traces(&scenario).is_empty();
    let phase = if still { rtt } else { Span::ZERO };
    let template = Arc::new(Template {
        scenario: Arc::new(scenario),
        scheduler,
        congestion,
        mode,
        skip,
        recording: Recording { samples_every, ..Recording::default() },
        identity: identity.clone(),
        phase,
    });
    known.insert(identity, template.clone());
    Ok(template)
}

impl Template {
    /// The run with this number, from 0, of so many.
    pub(super) fn spec(&self, number: u32, runs: u32, seed: u64) -> RunSpec {
        RunSpec {
            scenario: self.scenario.clone(),
            scheduler: self.scheduler.clone(),
            congestion: self.congestion.clone(),
            mode: self.mode,
            seed: seed.wrapping_add(u64::from(number)),
            start_phase: self.phase * u64::from(number) / u64::from(runs),
            recording: self.recording,
        }
    }
}
