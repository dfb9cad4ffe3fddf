//! A verdict per claim. Each claim is a number of comparisons (cells); each cell agrees, has the direction
//! only, is a tie (the same runs, or a difference known to be below the margin), or disagrees. A difference
//! counts if its p-value, with Holm's correction over the claim's cells, is below 5 %. A claim is reproduced
//! if three quarters of the cells that are no ties agree.

use ropewalk_lab::stats;
use serde::{Deserialize, Serialize};

use super::cells::{CellOutcome, Grid};
use super::effect::{Effect, MARGIN};
use super::plan::{FITTED, MAIN};
use super::series::Series;
use super::{Claim, Figure, Over, Paper, Published, Test, World};

/// What became of a claim. From the best to the least.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// As assumed before the first run.
    Reproduced,
    /// Not as assumed, but in the setting that was fitted to other rows.
    Inferred,
    /// The sign, not the size.
    Direction,
    /// The difference is too small for this number of runs.
    BelowResolution,
    /// The schedulers send the same packets.
    Indistinguishable,
    /// The paper's own numbers contradict it.
    Contradicts,
    /// None of these.
    NotReproduced,
    /// It can't be tested here.
    Untestable,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Verdict; 8] = [
        Verdict::Reproduced,
        Verdict::Inferred,
        Verdict::Direction,
        Verdict::Indistinguishable,
        Verdict::BelowResolution,
        Verdict::Contradicts,
        Verdict::NotReproduced,
        Verdict::Untestable,
    ];

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Reproduced => "reproduced",
            Verdict::Inferred => "reproduced under an inferred setting",
            Verdict::Direction => "direction only",
            Verdict::BelowResolution => "below the paper's own resolution",
            Verdict::Indistinguishable => "indistinguishable here",
            Verdict::Contradicts => "contradicts itself",
            Verdict::NotReproduced => "not reproduced",
            Verdict::Untestable => "cannot be tested",
        }
    }
}

/// What a comparison says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Agreement {
    Agrees,
    Direction,
    Tie,
    Disagrees,
}

/// A comparison.
#[derive(Clone, PartialEq, Debug)]
struct Cell {
    text: String,
    agreement: Agreement,
    /// The published difference is too small for as many runs.
    unresolved: bool,
    /// The published numbers say the opposite of the claim.
    contradicts: bool,
}

/// A claim in one setting.
#[derive(Clone, PartialEq, Debug)]
pub struct InSetting {
    /// The setting.
    pub variant: String,
    /// What became of it there.
    pub verdict: Verdict,
    /// Comparisons that agree.
    pub agree: usize,
    /// Comparisons that are ties: the same runs, or a difference known to be below the margin.
    pub ties: usize,
    /// All comparisons.
    pub cells: usize,
    /// The numbers.
    pub detail: String,
}

/// A claim in all settings, the main one first.
#[derive(Clone, PartialEq, Debug)]
pub struct Judgement {
    /// Its name.
    pub id: String,
    /// What the paper says.
    pub text: String,
    /// Its figure, or that of the reading that counts.
    pub figure: String,
    /// Over all settings.
    pub verdict: Verdict,
    /// By setting.
    pub settings: Vec<InSetting>,
    /// Where the sentence has several readings: each one's figure, as assumed.
    pub readings: Vec<(String, InSetting)>,
}

impl Judgement {
    /// The setting that the verdict comes from. If the ruled and the fitted setting have the same verdict,
    /// the one in which more comparisons agree.
    pub fn deciding(&self) -> Option<&InSetting> {
        let of = |name: &str| self.settings.iter().find(|setting| setting.variant == name);
        let (main, fitted) = (of(MAIN), of(FITTED));
        match self.verdict {
            Verdict::Reproduced => main,
            Verdict::Inferred => fitted,
            verdict => {
                let nearer = |setting: &InSetting| (setting.verdict == verdict, setting.agree);
                match (main, fitted) {
                    (Some(main), Some(fitted)) if nearer(fitted) > nearer(main) => Some(fitted),
                    (main, fitted) => main.or(fitted),
                }
            }
        }
        .or_else(|| self.settings.first())
    }
}

pub(super) fn judge(
    paper: &Paper,
    grids: &[Grid],
    series: &[Series],
    world: World,
    only: Option<&str>,
) -> Vec<Judgement> {
    let wanted = |claim: &&Claim| {
        paper.world_of(claim) == world && only.is_none_or(|only| claim.figures().any(|id| id == only))
    };
    paper.claims.iter().filter(wanted).map(|claim| one(paper, claim, grids, series)).collect()
}

fn one(paper: &Paper, claim: &Claim, grids: &[Grid], series: &[Series]) -> Judgement {
    let judgement = |figure: &str, verdict, settings| Judgement {
        id: claim.id.clone(),
        text: claim.text.clone(),
        figure: figure.into(),
        verdict,
        settings,
        readings: Vec::new(),
    };
    if let Test::Untestable { reason } = &claim.test {
        let setting = InSetting {
            variant: MAIN.into(),
            verdict: Verdict::Untestable,
            agree: 0,
            ties: 0,
            cells: 0,
            detail: reason.clone(),
        };
        return judgement(&claim.figure, Verdict::Untestable, vec![setting]);
    }
    let readings = std::iter::once(&claim.figure).chain(&claim.or);
    let judged: Vec<Judgement> = readings
        .map(|figure| {
            let figures: Vec<&String> = std::iter::once(figure).chain(&claim.also).collect();
            let (settings, contradicts) = in_settings(paper, claim, &figures, grids, series);
            judgement(figure, overall(&settings, contradicts), settings)
        })
        .collect();
    let as_ruled = |one: &Judgement| {
        let setting = one.settings.iter().find(|setting| setting.variant == MAIN)?;
        Some((one.figure.clone(), setting.clone()))
    };
    let readings =
        if claim.or.is_empty() { Vec::new() } else { judged.iter().filter_map(as_ruled).collect() };
    // The first of the best, so that the reading that was ruled wins a tie.
    let best =
        judged.into_iter().reduce(|best, other| if other.verdict < best.verdict { other } else { best });
    let best = best.unwrap_or_else(|| judgement(&claim.figure, Verdict::Untestable, Vec::new()));
    Judgement { readings, ..best }
}

fn overall(settings: &[InSetting], contradicts: bool) -> Verdict {
    if contradicts {
        return Verdict::Contradicts;
    }
    let of = |name: &str| settings.iter().find(|setting| setting.variant == name).map(|found| found.verdict);
    let (main, fitted) = (of(MAIN).unwrap_or(Verdict::NotReproduced), of(FITTED));
    match (main, fitted) {
        (Verdict::Reproduced, _) => Verdict::Reproduced,
        (_, Some(Verdict::Reproduced)) => Verdict::Inferred,
        (main, Some(fitted)) => main.min(fitted),
        (main, None) => main,
    }
}

fn in_settings(
    paper: &Paper,
    claim: &Claim,
    figures: &[&String],
    grids: &[Grid],
    series: &[Series],
) -> (Vec<InSetting>, bool) {
    let mut found: Vec<(String, Vec<Cell>)> = Vec::new();
    let mut add = |variant: &str, cells: Vec<Cell>| match found.iter_mut().find(|(known, _)| known == variant)
    {
        Some((_, kept)) => kept.extend(cells),
        None => found.push((variant.into(), cells)),
    };
    if let Test::Settles { rows, from, between } = &claim.test {
        let own = |curve: &&Series| figures.contains(&&curve.figure) && rows.contains(&curve.label);
        for curve in series.iter().filter(own) {
            let late: Vec<f64> =
                curve.points.iter().filter(|point| point.0 >= *from).map(|point| point.1).collect();
            // A mean within the bounds says nothing of a curve that leaves them and comes back.
            let holds = !late.is_empty() && late.iter().all(|value| inside(*value, *between));
            let (least, most) = late
                .iter()
                .fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(*value), most.max(*value)));
            add(&curve.variant, vec![Cell::of(holds, format!("{}: {least:.3} to {most:.3}", curve.label))]);
        }
    }
    for grid in grids.iter().filter(|grid| figures.contains(&&paper.plan.figures[grid.figure].id)) {
        let figure = &paper.plan.figures[grid.figure];
        let view = View { figure, grid, published: &paper.published };
        add(&grid.variant, view.test(&claim.test).unwrap_or_default());
    }
    // A setting that concerns only some of the figures says nothing about all of them.
    let most = found.iter().map(|(_, cells)| cells.len()).max().unwrap_or(0);
    found.retain(|(_, cells)| cells.len() == most);
    let contradicts = found.first().is_some_and(|(_, cells)| cells.iter().any(|cell| cell.contradicts));
    (found.into_iter().map(|(variant, cells)| summed(variant, &cells)).collect(), contradicts)
}

/// The rule: three quarters of the cells that are no ties; if half of all cells are, there is no verdict.
fn summed(variant: String, cells: &[Cell]) -> InSetting {
    let count = |wanted: Agreement| cells.iter().filter(|cell| cell.agreement == wanted).count();
    let (agree, ties) = (count(Agreement::Agrees), count(Agreement::Tie));
    let differ = cells.len() - ties;
    let unresolved = cells.iter().filter(|cell| cell.unresolved && cell.agreement != Agreement::Tie).count();
    let enough = |part: usize, of: usize| of > 0 && 4 * part >= 3 * of;
    let verdict = if enough(agree, cells.len()) || (2 * ties < cells.len() && enough(agree, differ)) {
        Verdict::Reproduced
    } else if !cells.is_empty() && 2 * ties >= cells.len() {
        Verdict::Indistinguishable
    } else if enough(agree + count(Agreement::Direction), differ) {
        Verdict::Direction
    } else if differ > 0 && 2 * unresolved >= differ {
        Verdict::BelowResolution
    } else {
        Verdict::NotReproduced
    };
    let detail = cells.iter().map(|cell| cell.text.as_str()).collect::<Vec<_>>().join("; ");
    InSetting { variant, verdict, agree, ties, cells: cells.len(), detail }
}

fn inside(value: f64, between: [f64; 2]) -> bool {
    (between[0]..=between[1]).contains(&value)
}

impl Cell {
    fn of(holds: bool, text: String) -> Self {
        let agreement = if holds { Agreement::Agrees } else { Agreement::Disagrees };
        Cell { text, agreement, unresolved: false, contradicts: false }
    }
}

/// A figure in one setting.
struct View<'a> {
    figure: &'a Figure,
    grid: &'a Grid,
    published: &'a [Published],
}

impl View<'_> {
    fn row(&self, label: &str) -> Option<usize> {
        self.figure.rows.iter().position(|row| row.label == label)
    }

    fn columns(&self, over: &Over) -> Vec<usize> {
        let all = 0..self.figure.columns.len();
        match over {
            Over::Word(_) => all.collect(),
            Over::These(labels) => {
                all.filter(|column| labels.contains(&self.figure.columns[*column].label)).collect()
            }
        }
    }

    fn cell(&self, row: usize, column: usize) -> &CellOutcome {
        &self.grid.cells[row][column]
    }

    fn mean(&self, row: usize, column: usize) -> f64 {
        stats::mean(&self.cell(row, column).values)
    }

    fn label(&self, column: usize) -> &str {
        &self.figure.columns[column].label
    }

    fn printed(&self, row: usize, column: usize) -> Option<&Published> {
        let (row, column) = (&self.figure.rows[row].label, &self.figure.columns[column].label);
        self.published.iter().find(|it| it.table == self.figure.id && it.row == *row && it.column == *column)
    }

    fn effect(&self, row: usize, against: usize, column: usize) -> Option<Effect> {
        Effect::of(&self.cell(row, column).values, &self.cell(against, column).values)
    }

    fn over(&self, row: usize, against: usize, columns: &[usize]) -> Option<Effect> {
        let all = columns.iter().map(|column| self.effect(row, against, *column));
        Effect::mean(&all.collect::<Option<Vec<_>>>()?)
    }

    /// By seed, a row's sum over columns.
    fn added(&self, row: usize, columns: &[usize]) -> Vec<f64> {
        let runs = columns.iter().map(|column| self.cell(row, *column).values.len()).min().unwrap_or(0);
        let sum = |run: usize| columns.iter().map(|column| self.cell(row, *column).values[run]).sum();
        (0..runs).map(sum).collect()
    }

    /// None if the figure doesn't have a row that the test names.
    fn test(&self, test: &Test) -> Option<Vec<Cell>> {
        match test {
            Test::Change { row, more, against, columns, between, mean } => {
                let rows: Vec<&str> = std::iter::once(row).chain(more).map(String::as_str).collect();
                self.change(&rows, against, columns, *between, *mean)
            }
            Test::Order { rows, columns, ties, mean } => {
                let rows = rows.iter().map(|row| self.row(row)).collect::<Option<Vec<_>>>()?;
                let columns = self.columns(columns);
                let pairs =
                    rows.iter().enumerate().flat_map(|(place, a)| rows[place + 1..].iter().map(|b| (*a, *b)));
                let all = pairs.flat_map(|(a, b)| self.pair(a, b, &columns, *mean));
                Some(self.compared(all.collect(), *ties))
            }
            Test::Best { row, columns, ties, most, sum } => {
                let row = self.row(row)?;
                let columns = self.columns(columns);
                let others = (0..self.figure.rows.len()).filter(|other| *other != row);
                let all = others.flat_map(|other| {
                    let (a, b) = if *most { (other, row) } else { (row, other) };
                    if *sum {
                        let added = Effect::of(&self.added(a, &columns), &self.added(b, &columns));
                        return added.map(|effect| (a, b, None, effect)).into_iter().collect();
                    }
                    self.pair(a, b, &columns, false)
                });
                Some(self.compared(all.collect(), *ties))
            }
            Test::Value { rows, columns, between } => {
                let mut cells = Vec::new();
                for label in rows {
                    let row = self.row(label)?;
                    for column in self.columns(columns) {
                        let mean = self.mean(row, column);
                        let holds = inside(mean, *between) && !self.cell(row, column).values.is_empty();
                        cells.push(Cell::of(holds, format!("{label}, {}: {mean:.3}", self.label(column))));
                    }
                }
                Some(cells)
            }
            Test::Agree { rows, columns, within } => {
                let (a, b) = (self.row(&rows[0])?, self.row(&rows[1])?);
                let each = self.columns(columns).into_iter().map(|column| {
                    let apart = (self.mean(a, column) - self.mean(b, column)).abs();
                    Cell::of(apart <= *within, format!("{}: {apart:.3} apart", self.label(column)))
                });
                Some(each.collect())
            }
            Test::Crossing { row, against, between } => {
                self.crossing(self.row(row)?, self.row(against)?, *between)
            }
            Test::Trend { rows, falls, tolerance } => self.trend(rows, *falls, *tolerance),
            Test::Published { within } => self.against_published(*within),
            Test::PublishedOrder {} => Some(self.compared(self.published_pairs(), false)),
            Test::Settles { .. } | Test::Untestable { .. } => None,
        }
    }

    /// Of each column, the pairs of rows whose published numbers differ: the smaller first.
    fn published_pairs(&self) -> Vec<(usize, usize, Option<usize>, Effect)> {
        let mut pairs = Vec::new();
        for column in 0..self.figure.columns.len() {
            let value = |row: usize| self.printed(row, column).map(|number| number.value);
            let printed: Vec<(usize, f64)> =
                (0..self.figure.rows.len()).filter_map(|row| Some((row, value(row)?))).collect();
            for (a, low) in &printed {
                for (b, high) in &printed {
                    if low < high
                        && let Some(effect) = self.effect(*a, *b, column)
                    {
                        pairs.push((*a, *b, Some(column), effect));
                    }
                }
            }
        }
        pairs
    }

    /// Row against row, in each column or their mean.
    fn pair(
        &self,
        a: usize,
        b: usize,
        columns: &[usize],
        mean: bool,
    ) -> Vec<(usize, usize, Option<usize>, Effect)> {
        if mean {
            return self.over(a, b, columns).map(|effect| (a, b, None, effect)).into_iter().collect();
        }
        let each =
            columns.iter().filter_map(|column| Some((a, b, Some(*column), self.effect(a, b, *column)?)));
        each.collect()
    }

    /// The first of each pair is claimed to be less than the second, or not more if ties are allowed.
    fn compared(&self, pairs: Vec<(usize, usize, Option<usize>, Effect)>, ties: bool) -> Vec<Cell> {
        let adjusted = stats::holm(&pairs.iter().map(|(.., effect)| effect.p()).collect::<Vec<_>>());
        let cells = pairs.iter().zip(adjusted).map(|((a, b, column, effect), p)| {
            let counts = p < 0.05;
            let small = effect.change().abs() <= MARGIN;
            let agreement = if effect.same || effect.tied() {
                if ties { Agreement::Agrees } else { Agreement::Tie }
            } else if effect.less() && (counts || ties) || ties && (small || !counts) {
                Agreement::Agrees
            } else if effect.less() && !small {
                Agreement::Direction
            } else {
                Agreement::Disagrees
            };
            let printed = column.and_then(|at| Some((self.printed(*a, at)?, self.printed(*b, at)?)));
            let at = column.map_or("over all", |column| self.label(column));
            let (low, high) = effect.interval();
            Cell {
                text: format!(
                    "{at}, {} against {}: {}",
                    self.figure.rows[*a].label,
                    self.figure.rows[*b].label,
                    if effect.same { "the same runs".into() } else { around(effect.change(), low, high) }
                ),
                agreement,
                unresolved: printed.is_some_and(|(a, b)| libm::log(a.value / b.value).abs() < effect.half()),
                contradicts: printed.is_some_and(|(a, b)| a.value > b.value),
            }
        });
        cells.collect()
    }

    fn change(
        &self,
        rows: &[&str],
        against: &str,
        columns: &Over,
        between: [f64; 2],
        mean: bool,
    ) -> Option<Vec<Cell>> {
        let against = self.row(against)?;
        let columns = self.columns(columns);
        let mut pairs = Vec::new();
        for row in rows {
            pairs.extend(self.pair(self.row(row)?, against, &columns, mean));
        }
        let adjusted = stats::holm(&pairs.iter().map(|(.., effect)| effect.p()).collect::<Vec<_>>());
        let (none, middle) = (inside(0.0, between), f64::midpoint(between[0], between[1]));
        let cells = pairs.iter().zip(adjusted).map(|((row, _, column, effect), p)| {
            let (change, counts) = (effect.change(), p < 0.05);
            let agreement = if inside(change, between) && (counts || none) {
                Agreement::Agrees
            } else if effect.same || effect.tied() {
                Agreement::Tie
            } else if counts && change * middle > 0.0 {
                Agreement::Direction
            } else {
                Agreement::Disagrees
            };
            let at = column.map_or("over all", |column| self.label(column));
            let (low, high) = effect.interval();
            let text = if effect.same { "the same runs".into() } else { around(change, low, high) };
            let whose =
                if rows.len() > 1 { format!("{}, ", self.figure.rows[*row].label) } else { String::new() };
            Cell {
                text: format!("{whose}{at}: {text}"),
                agreement,
                unresolved: !none && libm::log1p(middle / 100.0).abs() < effect.half(),
                contradicts: false,
            }
        });
        Some(cells.collect())
    }

    /// Between columns in which the difference counts: what noise does between them is no crossing.
    fn crossing(&self, row: usize, against: usize, between: [f64; 2]) -> Option<Vec<Cell>> {
        let x = |column: usize| self.figure.columns[column].x.unwrap_or(column as f64);
        let effects = (0..self.figure.columns.len()).map(|at| Some((x(at), self.effect(row, against, at)?)));
        let effects: Vec<_> = effects.collect::<Option<Vec<_>>>()?;
        let told: Vec<&(f64, Effect)> = effects.iter().filter(|(_, effect)| effect.p() < 0.05).collect();
        let mut crossings = Vec::new();
        for pair in told.windows(2) {
            let ((from, before), (to, after)) = (pair[0], pair[1]);
            if before.less() != after.less() {
                let (before_log, after_log) =
                    (libm::log1p(before.change() / 100.0), libm::log1p(after.change() / 100.0));
                let share = before_log / (before_log - after_log);
                crossings.push((from + share * (to - from), before.less()));
            }
        }
        let (agreement, text) = match crossings.as_slice() {
            [] => (Agreement::Disagrees, "they don't cross".to_string()),
            [(at, true)] if inside(*at, between) => {
                (Agreement::Agrees, format!("they cross once, at {at:.0}"))
            }
            [(at, true)] => (Agreement::Direction, format!("they cross once, at {at:.0}")),
            several => {
                let places = several.iter().map(|(at, _)| format!("{at:.0}")).collect::<Vec<_>>().join(", ");
                (Agreement::Disagrees, format!("they cross at {places}"))
            }
        };
        Some(vec![Cell { text, agreement, unresolved: false, contradicts: false }])
    }

    fn trend(&self, rows: &[String], falls: bool, tolerance: f64) -> Option<Vec<Cell>> {
        let mut cells = Vec::new();
        for label in rows {
            let row = self.row(label)?;
            for column in 1..self.figure.columns.len() {
                let change = (self.mean(row, column) / self.mean(row, column - 1) - 1.0) * 100.0;
                let wrong_way = if falls { change } else { -change };
                let (from, to) = (self.label(column - 1), self.label(column));
                // What has no value (nothing measured) is no trend.
                let holds = wrong_way <= tolerance;
                cells.push(Cell::of(holds, format!("{label}, {from} to {to}: {change:+.1} %")));
            }
        }
        Some(cells)
    }

    fn against_published(&self, within: f64) -> Option<Vec<Cell>> {
        let mut cells = Vec::new();
        for number in self.published.iter().filter(|number| number.table == self.figure.id) {
            let row = self.row(&number.row)?;
            let column = *self.columns(&Over::These(vec![number.column.clone()])).first()?;
            let change = (self.mean(row, column) / number.value - 1.0) * 100.0;
            cells.push(Cell::of(
                change.abs() <= within,
                format!("{}, {}: {change:+.0} %", number.row, number.column),
            ));
        }
        Some(cells)
    }
}

fn around(change: f64, low: f64, high: f64) -> String {
    if low.is_finite() && high < 1e4 {
        format!("{change:+.1} % [{low:+.1}, {high:+.1}]")
    } else if change > 1e4 {
        "more, from nothing".into()
    } else {
        format!("{change:+.1} %")
    }
}

#[cfg(test)]
mod tests;
