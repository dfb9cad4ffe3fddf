//! `ropewalk-papers reproduce fit`: which of the settings that a paper leaves open explain its baseline's
//! numbers. The rows of the scheduler that the paper is about, and the figures that are held out, aren't
//! looked at.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use ropewalk_algorithms::Registries;
use ropewalk_lab::parallel::run_jobs;
use ropewalk_runner::checkpoint::Store;

use super::abc::{self, Effort, Found, Particle, Prior};
use super::cells::Progress;
use super::finalists::{self, Finalist};
use super::measure::measure;
use super::open::{Choice, Fitted, Unknown, Unknowns, Value};
use super::plan::{self, Template};
use super::{Over, Paper, PaperError, Published, Settings, Test, World};

/// What to fit.
#[derive(Debug)]
pub struct FitRequest<'a> {
    /// The paper.
    pub paper: &'a Paper,
    /// Settings to try.
    pub budget: usize,
    /// Settings in a population.
    pub population: usize,
    /// Seed of the search; those of the runs begin 1000 later.
    pub seed: u64,
    /// Threads.
    pub jobs: usize,
    /// For `fitted.toml`.
    pub command: &'a str,
}

/// What a fit found.
#[derive(Clone, PartialEq, Debug)]
pub struct Fit {
    /// For `fitted.toml`.
    pub fitted: Fitted,
    /// The best setting as a scenario, for `compare --scenario`.
    pub scenario: String,
    /// Published cells that were fitted: name, published, here.
    pub cells: Vec<(String, f64, f64)>,
    /// Settings of the last population, a value for each open setting, their distance and weight.
    pub population: Vec<(Vec<String>, f64, f64)>,
}

impl Fit {
    /// Cells within so many per cent.
    pub fn within(&self, percent: f64) -> usize {
        let near =
            |(_, published, here): &&(String, f64, f64)| (here / published - 1.0).abs() * 100.0 <= percent;
        self.cells.iter().filter(near).count()
    }
}

/// Distances by setting.
pub type Tried = Store<Vec<f64>>;

/// Nearest settings in which each open setting is changed alone, beside the best.
const LEADERS: usize = 5;
/// Nearest settings that run again, and how many times as often.
const FINALISTS: usize = 16;
const AGAIN: u32 = 4;

/// A published cell: figure, row and column.
type CellIndex = (usize, usize, usize);

/// What a setting is measured by.
pub(super) struct Target<'a> {
    pub(super) paper: &'a Paper,
    registries: &'a Registries,
    /// Published cells: figure, row, column, metric, value, half of its last digit.
    pub(super) cells: Vec<(usize, usize, usize, String, f64, f64)>,
    /// Orders: the first is to be less than the second.
    orders: Vec<(CellIndex, CellIndex)>,
    /// Runs of each cell.
    runs: u32,
    /// Number of the first, and of how many: a part of a longer series.
    first: u32,
    of: u32,
}

impl<'a> Target<'a> {
    pub(super) fn new(paper: &'a Paper, registries: &'a Registries) -> Result<Self, PaperError> {
        let unknowns = &paper.unknowns;
        if let Some(none) = &unknowns.none {
            return Err(PaperError::NothingToFit { paper: paper.name.clone(), reason: none.clone() });
        }
        let cells = cells(paper, |number| {
            unknowns.fitted.contains(&number.table)
                && unknowns.rows.contains(&number.row)
                && (unknowns.columns.is_empty() || unknowns.columns.contains(&number.column))
        });
        let mut orders = Vec::new();
        for claim in paper.claims.iter().filter(|claim| unknowns.claims.contains(&claim.id)) {
            let Some(place) = paper.plan.figures.iter().position(|figure| figure.id == claim.figure) else {
                continue;
            };
            let figure = &paper.plan.figures[place];
            let row = |label: &String| figure.rows.iter().position(|row| row.label == *label);
            match &claim.test {
                Test::Order { rows, columns, .. } => {
                    let known: Vec<usize> = rows.iter().filter_map(row).collect();
                    for (column, line) in figure.columns.iter().enumerate() {
                        if matches!(columns, Over::These(these) if !these.contains(&line.label)) {
                            continue;
                        }
                        let pairs = known.windows(2);
                        orders.extend(pairs.map(|pair| ((place, pair[0], column), (place, pair[1], column))));
                    }
                }
                Test::Trend { rows, falls, .. } => {
                    for known in rows.iter().filter_map(row) {
                        for column in 1..figure.columns.len() {
                            let (a, b) = ((place, known, column - 1), (place, known, column));
                            orders.push(if *falls { (b, a) } else { (a, b) });
                        }
                    }
                }
                _ => {}
            }
        }
        if cells.is_empty() && orders.is_empty() {
            return Err(PaperError::File {
                paper: paper.name.clone(),
                file: "open.toml",
                reason: "no published cell and no claim to fit to".into(),
            });
        }
        let runs = unknowns.runs.max(1);
        Ok(Target { paper, registries, cells, orders, runs, first: 0, of: runs })
    }

    /// The published cells that the fit doesn't see.
    pub(super) fn held_out(paper: &'a Paper, registries: &'a Registries) -> Self {
        let unknowns = &paper.unknowns;
        let cells = cells(paper, |number| {
            let fitted = unknowns.fitted.contains(&number.table);
            unknowns.held_out.contains(&number.table) || (fitted && !unknowns.rows.contains(&number.row))
        });
        let runs = unknowns.runs.max(1);
        Target { paper, registries, cells, orders: Vec::new(), runs, first: 0, of: runs }
    }

    fn template(
        &self,
        at: (usize, usize, usize),
        settings: &Settings,
    ) -> Result<std::sync::Arc<Template>, PaperError> {
        let figure = &self.paper.plan.figures[at.0];
        let (row, column) = (&figure.rows[at.1], &figure.columns[at.2]);
        plan::template(self.paper, figure, settings, row, column, self.registries, &mut HashMap::new())
            .map_err(|error| plan::wrong(self.paper, figure, row, column, error))
    }

    /// What a setting gives: the cells' means, then for each order the two rows' ratio.
    pub(super) fn simulate(
        &self,
        settings: &Settings,
        seed: u64,
        stop: &AtomicBool,
    ) -> Result<Vec<f64>, PaperError> {
        let runs = self.runs;
        let mut known: HashMap<String, Vec<super::measure::Measures>> = HashMap::new();
        let mut mean = |at: (usize, usize, usize), metric: &str| -> Result<f64, PaperError> {
            let template = self.template(at, settings)?;
            let measured = known.entry(template.identity.clone()).or_insert_with(|| {
                let of = |number| {
                    if stop.load(Ordering::Relaxed) {
                        return super::measure::Measures::new();
                    }
                    let spec = template.spec(number, self.of, seed.wrapping_add(1000));
                    measure(&spec, &ropewalk_sim::run(&spec), template.skip)
                };
                (self.first..self.first + runs).map(of).collect()
            });
            let values: Vec<f64> = measured.iter().filter_map(|all| all.get(metric).copied()).collect();
            Ok(ropewalk_lab::stats::mean(&values))
        };
        let mut found = Vec::new();
        for (figure, row, column, metric, ..) in &self.cells {
            found.push(mean((*figure, *row, *column), metric)?);
        }
        for (less, more) in &self.orders {
            let metric = self.paper.plan.figures[less.0].metric.clone();
            found.push(mean(*less, &metric)? / mean(*more, &metric)?);
        }
        Ok(found)
    }

    /// Root of the mean square: of the logarithm of measured over published, beyond half of the last printed
    /// digit; of the logarithm of a ratio that should be below 1 and isn't.
    pub(super) fn distance(&self, measured: &[f64], published: &[f64]) -> f64 {
        let mut squares = 0.0;
        for (place, value) in measured.iter().enumerate() {
            let off = match self.cells.get(place) {
                Some((.., half)) => {
                    let truth = published[place];
                    let log = libm::log((value + half) / (truth + half)).abs();
                    (log - half / truth.max(*half)).max(0.0)
                }
                None => libm::log(*value).max(0.0),
            };
            // Nothing is further off than a factor of 20.
            let off = if off.is_nan() { 3.0 } else { off.min(3.0) };
            squares += off * off;
        }
        libm::sqrt(squares / measured.len() as f64)
    }

    fn published(&self) -> Vec<f64> {
        self.cells.iter().map(|(.., value, _)| *value).chain(self.orders.iter().map(|_| 1.0)).collect()
    }
}

/// The published cells that are wanted.
fn cells(paper: &Paper, wanted: impl Fn(&Published) -> bool) -> Vec<(usize, usize, usize, String, f64, f64)> {
    let mut found = Vec::new();
    for (place, figure) in paper.plan.figures.iter().enumerate() {
        // A change against a row isn't what a cell's runs give.
        if figure.world != World::Simulated || figure.against.is_some() {
            continue;
        }
        for number in paper.published.iter().filter(|it| it.table == figure.id && wanted(it)) {
            let row = figure.rows.iter().position(|row| row.label == number.row);
            let column = figure.columns.iter().position(|column| column.label == number.column);
            if let (Some(row), Some(column)) = (row, column) {
                let own = figure.rows[row].metric.as_ref().or(figure.columns[column].metric.as_ref());
                let metric = own.unwrap_or(&figure.metric).clone();
                found.push((place, row, column, metric, number.value, number.half));
            }
        }
    }
    found
}

/// Simulates settings on all cores, taking from the store what was tried before.
pub(super) fn all(
    target: &Target<'_>,
    batch: &[Vec<f64>],
    request: &FitRequest<'_>,
    store: &Tried,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<Option<Vec<Vec<f64>>>, PaperError> {
    let found = run_jobs(ropewalk_runner::threads(Some(request.jobs)), batch.len(), stop, |index| {
        let settings = target.paper.unknowns.apply(&batch[index]);
        let series = (target.runs, target.first, target.of);
        let identity = format!("{settings:?} {series:?} {:?}", target.cells);
        let key = store.key(&[&identity, &format!("{:?}", target.orders), &request.seed.to_string()]);
        let found = match store.get(&key) {
            Some(kept) => Ok(kept.clone()),
            None => target.simulate(&settings, request.seed, stop),
        };
        // A run that was stopped in the middle isn't the run.
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        if let Ok(found) = &found {
            store.put(&key, found);
        }
        progress.done();
        Some(found)
    });
    let found: Option<Result<Vec<_>, PaperError>> = found.into_iter().collect();
    found.transpose()
}

/// Searches. None if it was told to stop.
///
/// # Errors
/// What in the paper's files can't be run.
pub fn fit(
    request: &FitRequest<'_>,
    registries: &Registries,
    store: &Tried,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<Option<Fit>, PaperError> {
    let target = Target::new(request.paper, registries)?;
    let unknowns = &request.paper.unknowns;
    let priors = unknowns.priors();
    let published = target.published();
    progress.total(request.budget, 0);
    let mut failed = None;
    let mut prior = Vec::new();
    let drawn = 2 * request.population;
    let effort = Effort { population: request.population, budget: request.budget, seed: request.seed };
    let found = abc::search(&priors, effort, &mut |batch| match all(
        &target, batch, request, store, progress, stop,
    ) {
        Ok(Some(measured)) => {
            let distances: Vec<f64> = measured.iter().map(|one| target.distance(one, &published)).collect();
            if prior.len() < drawn {
                prior.extend(distances.iter().copied());
            }
            Some(distances)
        }
        Ok(None) => None,
        Err(error) => {
            failed = Some(error);
            None
        }
    });
    if let Some(error) = failed {
        return Err(error);
    }
    let Some(mut found) = found else { return Ok(None) };
    // So few runs favour whoever is lucky: the nearest settings run again, more often, and one of these
    // counts.
    let finalists = leaders(&found.tried, FINALISTS);
    let mut parts = Vec::new();
    for part in 0..AGAIN {
        let (runs, whole) = (target.runs, Target::new(request.paper, registries)?);
        let part = Target { first: part * runs, of: runs * AGAIN, ..whole };
        let Some(measured) = all(&part, &finalists, request, store, progress, stop)? else { return Ok(None) };
        parts.push(measured);
    }
    let longer: Vec<Finalist> = (0..finalists.len())
        .map(|place| {
            let own: Vec<&Vec<f64>> = parts.iter().map(|part| &part[place]).collect();
            let prior = abc::prior_density(&priors, &finalists[place]);
            Finalist::new(&own, prior, |measured| target.distance(measured, &published))
        })
        .collect();
    let enough = if target.orders.is_empty() { finalists::NEAR_ENOUGH } else { 0.0 };
    let ruled = target.distance(&target.simulate(&Settings::default(), request.seed, stop)?, &published);
    let Some(chosen) = finalists::choose(&longer, enough, ruled) else { return Ok(None) };
    if let Some(best) = found.tried.iter().find(|one| one.at == finalists[chosen.place]) {
        found.best = best.clone();
    }
    let (best, distance) = (&longer[chosen.place].measured, longer[chosen.place].distance);
    let nearest = &longer[chosen.nearest];
    let choice = Choice {
        finalists: longer.len(),
        equally_near: chosen.equally_near,
        nearest: round(nearest.distance),
        plausibility: round(longer[chosen.place].prior / nearest.prior),
    };
    // The nearest settings with each open setting in turn at its other values; the best one's come first.
    let leaders = std::iter::once(found.best.at.clone()).chain(leaders(&found.tried, LEADERS));
    let leaders: Vec<Vec<f64>> = leaders.collect();
    let around: Vec<(usize, Vec<f64>)> = leaders.iter().flat_map(|at| neighbours(&priors, at)).collect();
    let batch: Vec<Vec<f64>> = around.iter().map(|(_, at)| at.clone()).collect();
    let Some(measured) = all(&target, &batch, request, store, progress, stop)? else { return Ok(None) };
    let changed: Vec<Particle> = around
        .into_iter()
        .zip(&measured)
        .map(|((_, at), one)| Particle { at, distance: target.distance(one, &published), weight: 0.0 })
        .collect();
    let threshold = found.thresholds.last().copied().unwrap_or(0.0);
    let near = prior.iter().filter(|distance| **distance <= threshold).count();
    let apply = unknowns.apply(&found.best.at);
    let values = values(unknowns, &found, &changed);
    let scenario = scenario(&target, &apply)?;
    let name = |(figure, row, column, ..): &(usize, usize, usize, String, f64, f64)| {
        let figure = &request.paper.plan.figures[*figure];
        format!("{}, {}, {}", figure.id, figure.rows[*row].label, figure.columns[*column].label)
    };
    let cells = target.cells.iter().zip(best).map(|(cell, here)| (name(cell), cell.4, *here));
    let words = |at: &[f64]| unknowns.settings.iter().zip(at).map(|(one, at)| one.words(*at)).collect();
    Ok(Some(Fit {
        fitted: Fitted {
            command: request.command.into(),
            tried: found.tried.len(),
            distance: round(distance),
            ruled: round(ruled),
            threshold: round(threshold),
            prior_share: round(near as f64 / prior.len().max(1) as f64),
            figures: figures(request.paper),
            choice: Some(choice),
            self_test: None,
            apply,
            values,
            readings: Vec::new(),
        },
        scenario,
        cells: cells.collect(),
        population: found.population.iter().map(|one| (words(&one.at), one.distance, one.weight)).collect(),
    }))
}

/// The figures that the fitted setting concerns: those that it is fitted to or tested on.
pub(super) fn figures(paper: &Paper) -> Vec<String> {
    let unknowns = &paper.unknowns;
    let of =
        |id: &String| paper.claims.iter().find(|claim| claim.id == *id).map(|claim| claim.figure.clone());
    let mut found = unknowns.fitted.clone();
    found.extend(unknowns.claims.iter().filter_map(of));
    found.extend(unknowns.held_out.iter().cloned());
    let mut kept: Vec<String> = Vec::new();
    for id in found {
        if !kept.contains(&id) {
            kept.push(id);
        }
    }
    kept
}

pub(super) fn round(value: f64) -> f64 {
    libm::round(value * 1e4) / 1e4
}

/// A point with one setting changed, by its place: a choice to each other value, a range to its fifths.
fn neighbours(priors: &[Prior], best: &[f64]) -> Vec<(usize, Vec<f64>)> {
    let mut found = Vec::new();
    for (place, prior) in priors.iter().enumerate() {
        let others: Vec<f64> = match prior {
            Prior::Range => vec![0.1, 0.3, 0.5, 0.7, 0.9],
            Prior::Choice(weights) => {
                (0..weights.len()).map(|value| value as f64).filter(|value| *value != best[place]).collect()
            }
        };
        for other in others {
            let mut at = best.to_vec();
            at[place] = other;
            found.push((place, at));
        }
    }
    found
}

/// The nearest settings that were tried, the best first; no two alike.
fn leaders(tried: &[Particle], most: usize) -> Vec<Vec<f64>> {
    let mut sorted: Vec<&Particle> = tried.iter().collect();
    sorted.sort_by(|a, b| a.distance.total_cmp(&b.distance));
    let mut kept: Vec<Vec<f64>> = Vec::new();
    for one in sorted {
        if kept.len() < most && !kept.contains(&one.at) {
            kept.push(one.at.clone());
        }
    }
    kept
}

/// By value, or fifth of a range: the least distance with the setting left there, whatever the others are.
fn fixed(unknown: &Unknown, place: usize, tried: &[&Particle]) -> Vec<(String, f64)> {
    let least = |inside: &dyn Fn(f64) -> bool| {
        let own = tried.iter().filter(|one| inside(one.at[place])).map(|one| one.distance);
        own.fold(f64::MAX, f64::min)
    };
    let found: Vec<(String, f64)> = match unknown.prior() {
        Prior::Choice(weights) => {
            let of = |value: usize| (unknown.words(value as f64), least(&|at| at == value as f64));
            (0..weights.len()).map(of).collect()
        }
        Prior::Range => {
            let of = |fifth: usize| {
                let words = unknown.words((fifth as f64 + 0.5) / 5.0);
                (words, least(&|at| ((at * 5.0) as usize).min(4) == fifth))
            };
            (0..5).map(of).collect()
        }
    };
    found.into_iter().map(|(words, distance)| (words, round(distance))).collect()
}

fn values(unknowns: &Unknowns, found: &Found, changed: &[Particle]) -> Vec<Value> {
    let tried: Vec<&Particle> = found.tried.iter().chain(changed).collect();
    let best = &found.best.at;
    let one = |(place, unknown): (usize, &Unknown)| {
        // Those of the best setting with this one changed.
        let alone = changed.iter().filter(|one| {
            let mut others = (0..best.len()).filter(|other| *other != place);
            one.at[place] != best[place] && others.all(|other| one.at[other] == best[other])
        });
        let grown = alone.map(|one| round(one.distance - found.best.distance));
        let matters = grown.fold((f64::MAX, f64::MIN), |(least, most), by| (least.min(by), most.max(by)));
        let region = if unknown.range.is_some() {
            let at = |p| unknown.words(abc::quantile(&found.population, place, p));
            format!("{} to {}", at(0.1), at(0.9))
        } else {
            let shares = abc::shares(&found.population, place, unknown.values.len());
            let mut order: Vec<usize> = (0..shares.len()).collect();
            order.sort_by(|a, b| shares[*b].total_cmp(&shares[*a]));
            let mut sum = 0.0;
            let mut parts = Vec::new();
            for value in order {
                parts.push(format!("{} ({:.0} %)", unknown.values[value].label, shares[value] * 100.0));
                sum += shares[value];
                if sum >= 0.8 {
                    break;
                }
            }
            parts.join(", ")
        };
        Value {
            name: unknown.name.clone(),
            best: unknown.words(found.best.at[place]),
            region,
            marginal: marginal(unknown, &found.population, place),
            matters,
            fixed: fixed(unknown, place, &tried),
        }
    };
    unknowns.settings.iter().enumerate().map(one).collect()
}

/// A setting's shares: of each value, or of each tenth of its range.
fn marginal(unknown: &Unknown, population: &[abc::Particle], place: usize) -> Vec<(String, f64, f64)> {
    match unknown.prior() {
        Prior::Choice(weights) => {
            let shares = abc::shares(population, place, weights.len());
            let labels = unknown.values.iter().map(|value| value.label.clone());
            labels
                .zip(weights)
                .zip(shares)
                .map(|((label, prior), share)| (label, round(prior), round(share)))
                .collect()
        }
        Prior::Range => {
            let inside = |tenth: usize, at: f64| ((at * 10.0) as usize).min(9) == tenth;
            let share = |tenth: usize| {
                let own = population.iter().filter(|one| inside(tenth, one.at[place]));
                round(own.map(|one| one.weight).sum())
            };
            (0..10).map(|tenth| (unknown.words((tenth as f64 + 0.5) / 10.0), 0.1, share(tenth))).collect()
        }
    }
}

/// The first fitted cell's scenario in this setting.
fn scenario(target: &Target<'_>, apply: &Settings) -> Result<String, PaperError> {
    let first = target.cells.first().map(|cell| (cell.0, cell.1, cell.2));
    let at = first.or_else(|| target.orders.first().map(|order| order.0)).unwrap_or((0, 0, 0));
    let figure = &target.paper.plan.figures[at.0];
    let mut settings = figure.settings.clone();
    for above in [&figure.rows[at.1].settings, &figure.columns[at.2].settings, apply] {
        settings = super::settings::merge(&settings, above);
    }
    let (row, column) = (&figure.rows[at.1], &figure.columns[at.2]);
    super::settings::scenario(target.paper, &settings, target.registries)
        .map(|loaded| loaded.text)
        .map_err(|error| plan::wrong(target.paper, figure, row, column, error))
}
