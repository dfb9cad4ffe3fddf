//! `ropewalk reproduce fit`: which of the settings that a paper leaves open explain its baseline's numbers. The rows of
//! the scheduler that the paper is about, and the figures that are held out, aren't looked at.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::abc::{self, Effort, Found, Prior};
use super::measure::measure;
use super::open::{Fitted, Unknowns, Value};
use super::plan::{self, Template};
use super::run::Progress;
use super::{Over, Paper, PaperError, Settings, Test};
use crate::Registries;
use crate::checkpoint::Store;

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

/// Figure, row and column.
type Place = (usize, usize, usize);

/// What a setting gives, once it is simulated.
type Slot = Mutex<Option<Result<Vec<f64>, PaperError>>>;

/// What a setting is measured by.
struct Target<'a> {
    paper: &'a Paper,
    registries: &'a Registries,
    /// Published cells: figure, row, column, metric, value, half of its last digit.
    cells: Vec<(usize, usize, usize, String, f64, f64)>,
    /// Orders: the first is to be less than the second.
    orders: Vec<(Place, Place)>,
}

impl<'a> Target<'a> {
    fn new(paper: &'a Paper, registries: &'a Registries) -> Result<Self, PaperError> {
        let unknowns = &paper.unknowns;
        if let Some(none) = &unknowns.none {
            return Err(PaperError::NothingToFit { paper: paper.name.clone(), reason: none.clone() });
        }
        let (mut cells, mut orders) = (Vec::new(), Vec::new());
        for (place, figure) in paper.plan.figures.iter().enumerate() {
            for number in paper.published.iter().filter(|it| it.table == figure.id) {
                let wanted = unknowns.fitted.contains(&figure.id)
                    && unknowns.rows.contains(&number.row)
                    && (unknowns.columns.is_empty() || unknowns.columns.contains(&number.column));
                let row = figure.rows.iter().position(|row| row.label == number.row);
                let column = figure.columns.iter().position(|column| column.label == number.column);
                if let (true, Some(row), Some(column)) = (wanted, row, column) {
                    let own = figure.rows[row].metric.as_ref().or(figure.columns[column].metric.as_ref());
                    let metric = own.unwrap_or(&figure.metric).clone();
                    cells.push((place, row, column, metric, number.value, number.half));
                }
            }
        }
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
        Ok(Target { paper, registries, cells, orders })
    }

    fn template(
        &self,
        at: (usize, usize, usize),
        settings: &Settings,
    ) -> Result<std::sync::Arc<Template>, PaperError> {
        let figure = &self.paper.plan.figures[at.0];
        let (row, column) = (&figure.rows[at.1], &figure.columns[at.2]);
        plan::template(self.paper, figure, settings, row, column, self.registries, &mut HashMap::new())
            .map_err(|reason| plan::wrong(self.paper, figure, row, column, reason))
    }

    /// What a setting gives: the cells' means, then for each order the two rows' ratio.
    fn simulate(&self, settings: &Settings, seed: u64, stop: &AtomicBool) -> Result<Vec<f64>, PaperError> {
        let runs = self.paper.unknowns.runs.max(1);
        let mut known: HashMap<String, Vec<super::measure::Measures>> = HashMap::new();
        let mut mean = |at: (usize, usize, usize), metric: &str| -> Result<f64, PaperError> {
            let template = self.template(at, settings)?;
            let measured = known.entry(template.identity.clone()).or_insert_with(|| {
                let of = |number| {
                    if stop.load(Ordering::Relaxed) {
                        return super::measure::Measures::new();
                    }
                    let spec = template.spec(number, runs, seed.wrapping_add(1000));
                    measure(&spec, &ropewalk_sim::run(&spec), template.skip)
                };
                (0..runs).map(of).collect()
            });
            let values: Vec<f64> = measured.iter().filter_map(|all| all.get(metric).copied()).collect();
            Ok(crate::stats::mean(&values))
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

    /// Root of the mean square: of the logarithm of measured over published, beyond half of the last printed digit; of
    /// the logarithm of a ratio that should be below 1 and isn't.
    fn distance(&self, measured: &[f64], published: &[f64]) -> f64 {
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

/// Simulates settings on all cores, taking from the store what was tried before.
fn all(
    target: &Target<'_>,
    batch: &[Vec<f64>],
    request: &FitRequest<'_>,
    store: &Tried,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<Option<Vec<Vec<f64>>>, PaperError> {
    let slots: Vec<Slot> = batch.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let worker = || {
        while !stop.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(at) = batch.get(index) else { break };
            let settings = target.paper.unknowns.apply(at);
            let identity = format!("{settings:?} {} {:?}", target.paper.unknowns.runs, target.cells);
            let key = store.key(&[&identity, &format!("{:?}", target.orders), &request.seed.to_string()]);
            let found = match store.get(&key) {
                Some(kept) => Ok(kept.clone()),
                None => target.simulate(&settings, request.seed, stop),
            };
            if stop.load(Ordering::Relaxed) {
                break;
            }
            if let Ok(found) = &found {
                store.put(&key, found);
            }
            if let Ok(mut slot) = slots[index].lock() {
                *slot = Some(found);
            }
            progress.done();
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..request.jobs.max(1) {
            scope.spawn(worker);
        }
    });
    let found: Option<Result<Vec<_>, PaperError>> =
        slots.into_iter().map(|slot| slot.into_inner().unwrap_or_default()).collect();
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
    let Some(found) = found else { return Ok(None) };
    // The ruled setting, then the best one with each setting in turn at its other values.
    let around = neighbours(&priors, &found.best.at);
    let batch: Vec<Vec<f64>> = around.iter().map(|(_, at)| at.clone()).collect();
    let Some(measured) = all(&target, &batch, request, store, progress, stop)? else { return Ok(None) };
    let Some(best) = all(&target, std::slice::from_ref(&found.best.at), request, store, progress, stop)?
    else {
        return Ok(None);
    };
    let ruled = target.distance(&target.simulate(&Settings::default(), request.seed, stop)?, &published);
    let threshold = found.thresholds.last().copied().unwrap_or(0.0);
    let near = prior.iter().filter(|distance| **distance <= threshold).count();
    let apply = unknowns.apply(&found.best.at);
    let values = values(unknowns, &found, &around, &measured, |one| target.distance(one, &published));
    let scenario = scenario(&target, &apply)?;
    let name = |(figure, row, column, ..): &(usize, usize, usize, String, f64, f64)| {
        let figure = &request.paper.plan.figures[*figure];
        format!("{}, {}, {}", figure.id, figure.rows[*row].label, figure.columns[*column].label)
    };
    let cells = target.cells.iter().zip(&best[0]).map(|(cell, here)| (name(cell), cell.4, *here));
    let words = |at: &[f64]| unknowns.settings.iter().zip(at).map(|(one, at)| one.words(*at)).collect();
    Ok(Some(Fit {
        fitted: Fitted {
            command: request.command.into(),
            tried: found.tried,
            distance: round(found.best.distance),
            ruled: round(ruled),
            threshold: round(threshold),
            prior_share: round(near as f64 / prior.len().max(1) as f64),
            figures: figures(request.paper),
            apply,
            values,
        },
        scenario,
        cells: cells.collect(),
        population: found.population.iter().map(|one| (words(&one.at), one.distance, one.weight)).collect(),
    }))
}

/// The figures that the fitted setting concerns: those that it is fitted to or tested on.
fn figures(paper: &Paper) -> Vec<String> {
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

fn round(value: f64) -> f64 {
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

fn values(
    unknowns: &Unknowns,
    found: &Found,
    around: &[(usize, Vec<f64>)],
    measured: &[Vec<f64>],
    distance: impl Fn(&[f64]) -> f64,
) -> Vec<Value> {
    let one = |(place, unknown): (usize, &super::open::Unknown)| {
        let changed = around.iter().zip(measured).filter(|((at, _), _)| *at == place);
        let grown = changed.map(|(_, one)| round(distance(one) - found.best.distance));
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
        }
    };
    unknowns.settings.iter().enumerate().map(one).collect()
}

/// A setting's shares: of each value, or of each tenth of its range.
fn marginal(
    unknown: &super::open::Unknown,
    population: &[abc::Particle],
    place: usize,
) -> Vec<(String, f64, f64)> {
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
        .map_err(|reason| plan::wrong(target.paper, figure, row, column, reason))
}

/// The fitter's own test on a paper: known settings, drawn from the priors, make tables, which are fitted. Returns for
/// each known setting of a range whether it lies in the middle 80 % of the last population, and the distance of the best
/// setting from the table.
///
/// # Errors
/// What in the paper's files can't be run.
pub fn self_test(
    request: &FitRequest<'_>,
    known: usize,
    registries: &Registries,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<Option<(usize, usize, Vec<f64>)>, PaperError> {
    let target = Target::new(request.paper, registries)?;
    let priors = request.paper.unknowns.priors();
    progress.total(known * request.budget, 0);
    let (mut inside, mut of, mut best) = (0, 0, Vec::new());
    for number in 0..known as u64 {
        let truth = abc::draw_one(&priors, request.seed + 7919 * (number + 1));
        let settings = request.paper.unknowns.apply(&truth);
        let table = target.simulate(&settings, request.seed + 31 * (number + 1), stop)?;
        // An order that the truth doesn't have isn't data.
        let effort =
            Effort { population: request.population, budget: request.budget, seed: request.seed + number };
        let mut failed = None;
        let found = abc::search(&priors, effort, &mut |batch| match all(
            &target,
            batch,
            request,
            &Store::none(),
            progress,
            stop,
        ) {
            Ok(measured) => Some(measured?.iter().map(|one| target.distance(one, &table)).collect()),
            Err(error) => {
                failed = Some(error);
                None
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        let Some(found) = found else { return Ok(None) };
        for (place, _) in priors.iter().enumerate().filter(|(_, prior)| **prior == Prior::Range) {
            let (low, high) =
                (abc::quantile(&found.population, place, 0.1), abc::quantile(&found.population, place, 0.9));
            inside += usize::from((low..=high).contains(&truth[place]));
            of += 1;
        }
        best.push(found.best.distance);
    }
    Ok(Some((inside, of, best)))
}
