//! A verdict per claim and setting. A difference counts if the ratio's interval over paired seeds excludes 1, with
//! Holm's correction over the comparisons that the claim makes in that setting.

use super::run::{CellOutcome, Grid};
use super::series::Series;
use super::{Claim, Figure, Over, Paper, Published, Test, World};
use crate::stats;

/// Whether a claim holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It does.
    Holds,
    /// It does not.
    Fails,
    /// It can't be tested here.
    Untestable,
}

impl Verdict {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Fails => "does not hold",
            Verdict::Untestable => "cannot be tested here",
        }
    }
}

/// A claim in one setting.
#[derive(Clone, PartialEq, Debug)]
pub struct InSetting {
    /// The setting.
    pub variant: String,
    /// Whether it holds there.
    pub verdict: Verdict,
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
    /// Its figure.
    pub figure: String,
    /// By setting.
    pub settings: Vec<InSetting>,
}

/// What a test says: whether it holds, and the numbers.
type Answer = (bool, String);

pub(super) fn judge(
    paper: &Paper,
    grids: &[Grid],
    series: &[Series],
    world: World,
    only: Option<&str>,
    seed: u64,
) -> Vec<Judgement> {
    let wanted =
        |claim: &&Claim| paper.world_of(claim) == world && only.is_none_or(|only| only == claim.figure);
    paper
        .claims
        .iter()
        .filter(wanted)
        .map(|claim| Judgement {
            id: claim.id.clone(),
            text: claim.text.clone(),
            figure: claim.figure.clone(),
            settings: in_settings(paper, claim, grids, series, seed),
        })
        .collect()
}

fn in_settings(paper: &Paper, claim: &Claim, grids: &[Grid], series: &[Series], seed: u64) -> Vec<InSetting> {
    if let Test::Untestable { reason } = &claim.test {
        let verdict = Verdict::Untestable;
        return vec![InSetting { variant: super::plan::MAIN.into(), verdict, detail: reason.clone() }];
    }
    if let Test::Settles { rows, from, between } = &claim.test {
        return settles(claim, series, rows, *from, *between);
    }
    let own = grids.iter().filter(|grid| paper.plan.figures[grid.figure].id == claim.figure);
    own.map(|grid| {
        let figure = &paper.plan.figures[grid.figure];
        let view = View { figure, grid, published: &paper.published, seed };
        let (holds, detail) = view.test(&claim.test).unwrap_or_else(|missing| (false, missing));
        let verdict = if holds { Verdict::Holds } else { Verdict::Fails };
        InSetting { variant: grid.variant.clone(), verdict, detail }
    })
    .collect()
}

fn settles(
    claim: &Claim,
    series: &[Series],
    rows: &[String],
    from: f64,
    between: [f64; 2],
) -> Vec<InSetting> {
    let mut found: Vec<InSetting> = Vec::new();
    let own = |curve: &&Series| curve.figure == claim.figure && rows.contains(&curve.label);
    for curve in series.iter().filter(own) {
        let late: Vec<f64> =
            curve.points.iter().filter(|point| point.0 >= from).map(|point| point.1).collect();
        let mean = stats::mean(&late);
        let holds = !late.is_empty() && inside(mean, between);
        let detail = format!("{}: {mean:.3}", curve.label);
        match found.iter_mut().find(|setting| setting.variant == curve.variant) {
            Some(setting) => {
                setting.detail += &format!("; {detail}");
                if !holds {
                    setting.verdict = Verdict::Fails;
                }
            }
            None => {
                let verdict = if holds { Verdict::Holds } else { Verdict::Fails };
                found.push(InSetting { variant: curve.variant.clone(), verdict, detail });
            }
        }
    }
    found
}

fn inside(value: f64, between: [f64; 2]) -> bool {
    (between[0]..=between[1]).contains(&value)
}

fn percent(ratio: f64) -> f64 {
    (ratio - 1.0) * 100.0
}

/// A row against another.
#[derive(Clone, Copy, Debug)]
struct Compared {
    /// Of the means.
    ratio: f64,
    /// 95 %, of the paired ratios' geometric mean.
    interval: Option<(f64, f64)>,
    p: f64,
}

/// A figure in one setting.
struct View<'a> {
    figure: &'a Figure,
    grid: &'a Grid,
    published: &'a [Published],
    seed: u64,
}

impl View<'_> {
    fn row(&self, label: &str) -> Result<usize, String> {
        let found = self.figure.rows.iter().position(|row| row.label == label);
        found.ok_or_else(|| format!("{} has no row `{label}`", self.figure.id))
    }

    fn columns(&self, over: &Over) -> Result<Vec<usize>, String> {
        let all = 0..self.figure.columns.len();
        match over {
            Over::Word(_) => Ok(all.collect()),
            Over::These(labels) => labels
                .iter()
                .map(|label| {
                    let found = all.clone().find(|column| self.figure.columns[*column].label == *label);
                    found.ok_or_else(|| format!("{} has no column `{label}`", self.figure.id))
                })
                .collect(),
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

    /// Row against row in a column. Values that may be 0 are compared by their means alone.
    fn ratio(&self, row: usize, against: usize, column: usize) -> Compared {
        let (a, b) = (&self.cell(row, column).values, &self.cell(against, column).values);
        let positive = a.iter().chain(b).all(|value| *value > 0.0) && a.len() == b.len();
        let paired = if positive { stats::paired_ratio(a, b, self.seed) } else { None };
        paired.map_or_else(
            || {
                // A shift by one keeps zeros comparable; the ratio shown is that of the means.
                let shifted =
                    |values: &[f64]| values.iter().map(|value| value.max(0.0) + 1.0).collect::<Vec<_>>();
                let p = stats::paired_ratio(&shifted(a), &shifted(b), self.seed).map_or(1.0, |ratio| ratio.p);
                let ratio = stats::mean(a) / stats::mean(b);
                Compared { ratio: if ratio.is_nan() { 1.0 } else { ratio }, interval: None, p }
            },
            // The change of the means is what papers print.
            |paired| Compared {
                ratio: stats::mean(a) / stats::mean(b),
                interval: paired.interval,
                p: paired.p,
            },
        )
    }

    /// All values of a row over columns, one after another, for the mean over columns.
    fn pooled(&self, row: usize, against: usize, columns: &[usize]) -> Compared {
        let ratios: Vec<Compared> = columns.iter().map(|column| self.ratio(row, against, *column)).collect();
        let logs: Vec<f64> = ratios.iter().map(|ratio| libm::log(ratio.ratio)).collect();
        let all = |row: usize| {
            let values = columns.iter().flat_map(|column| self.cell(row, *column).values.iter().copied());
            values.map(|value| value.max(1e-9)).collect::<Vec<f64>>()
        };
        let paired = stats::paired_ratio(&all(row), &all(against), self.seed);
        Compared {
            ratio: libm::exp(stats::mean(&logs)),
            interval: paired.and_then(|paired| paired.interval),
            p: paired.map_or(1.0, |paired| paired.p),
        }
    }

    fn test(&self, test: &Test) -> Result<Answer, String> {
        match test {
            Test::Change { row, against, columns, between, mean } => {
                self.change(row, against, columns, *between, *mean)
            }
            Test::Order { rows, columns, ties, mean } => self.order(rows, columns, *ties, *mean),
            Test::Best { row, columns, ties, most } => self.best(row, columns, *ties, *most),
            Test::Value { rows, columns, between } => {
                let columns = self.columns(columns)?;
                let mut holds = true;
                let mut parts = Vec::new();
                for row in rows {
                    let at = self.row(row)?;
                    for column in &columns {
                        let mean = self.mean(at, *column);
                        holds &= inside(mean, *between) && !self.cell(at, *column).values.is_empty();
                        parts.push(format!("{row}, {}: {mean:.3}", self.label(*column)));
                    }
                }
                Ok((holds, parts.join("; ")))
            }
            Test::Agree { rows, columns, within } => {
                let (a, b) = (self.row(&rows[0])?, self.row(&rows[1])?);
                let columns = self.columns(columns)?;
                let apart =
                    columns.iter().map(|column| (self.mean(a, *column) - self.mean(b, *column)).abs());
                let most = apart.fold(0.0, f64::max);
                Ok((most <= *within, format!("at most {most:.3} apart")))
            }
            Test::Crossing { row, against, between } => self.crossing(row, against, *between),
            Test::Trend { rows, falls, tolerance } => self.trend(rows, *falls, *tolerance),
            Test::Published { within } => self.against_published(*within),
            Test::Settles { .. } | Test::Untestable { .. } => Err("not a test of a table".into()),
        }
    }

    fn change(
        &self,
        row: &str,
        against: &str,
        columns: &Over,
        between: [f64; 2],
        mean: bool,
    ) -> Result<Answer, String> {
        let (row, against) = (self.row(row)?, self.row(against)?);
        let columns = self.columns(columns)?;
        let ratios: Vec<(String, Compared)> = if mean {
            vec![("over all".into(), self.pooled(row, against, &columns))]
        } else {
            columns.iter().map(|c| (self.label(*c).to_string(), self.ratio(row, against, *c))).collect()
        };
        let adjusted = stats::holm(&ratios.iter().map(|(_, ratio)| ratio.p).collect::<Vec<_>>());
        let must_count = !inside(0.0, between);
        let mut holds = true;
        let mut parts = Vec::new();
        for ((label, ratio), p) in ratios.iter().zip(adjusted) {
            let change = percent(ratio.ratio);
            let counts = p < 0.05;
            holds &= inside(change, between) && (counts || !must_count);
            let interval = ratio.interval.map_or(String::new(), |(low, high)| {
                format!(" [{:+.1}, {:+.1}]", percent(low), percent(high))
            });
            let note = if counts { "" } else { " (doesn't count)" };
            parts.push(format!("{label}: {change:+.1} %{interval}{note}"));
        }
        Ok((holds, parts.join("; ")))
    }

    fn order(&self, rows: &[String], columns: &Over, ties: bool, mean: bool) -> Result<Answer, String> {
        let rows = rows.iter().map(|row| self.row(row)).collect::<Result<Vec<_>, _>>()?;
        let columns = self.columns(columns)?;
        let mut ratios = Vec::new();
        let mut parts = Vec::new();
        let show = |values: Vec<(usize, f64)>| {
            let shown =
                values.iter().map(|(row, value)| format!("{} {value:.3}", self.figure.rows[*row].label));
            shown.collect::<Vec<_>>().join(", ")
        };
        if mean {
            ratios.extend(rows.windows(2).map(|pair| self.pooled(pair[0], pair[1], &columns)));
            let average = |row: usize| {
                let logs = columns.iter().map(|column| libm::log(self.mean(row, *column).max(1e-9)));
                libm::exp(stats::mean(&logs.collect::<Vec<_>>()))
            };
            parts.push(format!("over all: {}", show(rows.iter().map(|row| (*row, average(*row))).collect())));
        } else {
            for column in &columns {
                ratios.extend(rows.windows(2).map(|pair| self.ratio(pair[0], pair[1], *column)));
                let values = rows.iter().map(|row| (*row, self.mean(*row, *column))).collect();
                parts.push(format!("{}: {}", self.label(*column), show(values)));
            }
        }
        let adjusted = stats::holm(&ratios.iter().map(|ratio| ratio.p).collect::<Vec<_>>());
        let fits = |ratio: &Compared, p: f64| {
            let counts = p < 0.05;
            if ties { ratio.ratio <= 1.0 || !counts } else { ratio.ratio < 1.0 && counts }
        };
        let holds = ratios.iter().zip(adjusted).all(|(ratio, p)| fits(ratio, p));
        Ok((holds, parts.join("; ")))
    }

    fn best(&self, row: &str, columns: &Over, ties: bool, most: bool) -> Result<Answer, String> {
        let row = self.row(row)?;
        let columns = self.columns(columns)?;
        let others: Vec<usize> = (0..self.figure.rows.len()).filter(|other| *other != row).collect();
        let mut pairs = Vec::new();
        for column in &columns {
            for other in &others {
                let (a, b) = if most { (*other, row) } else { (row, *other) };
                pairs.push((*column, *other, self.ratio(a, b, *column)));
            }
        }
        let adjusted = stats::holm(&pairs.iter().map(|(.., ratio)| ratio.p).collect::<Vec<_>>());
        let mut failing = Vec::new();
        for ((column, other, ratio), p) in pairs.iter().zip(adjusted) {
            let counts = p < 0.05;
            let fits = if ties { ratio.ratio <= 1.0 || !counts } else { ratio.ratio < 1.0 && counts };
            if !fits {
                let relation = if counts { "behind" } else { "not told apart from" };
                failing.push(format!(
                    "{}: {relation} {} ({:+.1} %)",
                    self.label(*column),
                    self.figure.rows[*other].label,
                    percent(ratio.ratio)
                ));
            }
        }
        let holds = failing.is_empty();
        let all = columns.len() * others.len();
        let detail = if holds { format!("in all {all} comparisons") } else { failing.join("; ") };
        Ok((holds, detail))
    }

    fn crossing(&self, row: &str, against: &str, between: [f64; 2]) -> Result<Answer, String> {
        let (row, against) = (self.row(row)?, self.row(against)?);
        let x = |column: usize| self.figure.columns[column].x.unwrap_or(column as f64);
        let log = |column: usize| libm::log(self.mean(row, column) / self.mean(against, column));
        let mut crossings = Vec::new();
        for column in 1..self.figure.columns.len() {
            let (before, after) = (log(column - 1), log(column));
            if before <= 0.0 && after > 0.0 {
                let share = before / (before - after);
                crossings.push(x(column - 1) + share * (x(column) - x(column - 1)));
            } else if before > 0.0 && after <= 0.0 {
                crossings.push(f64::NAN);
            }
        }
        let holds = crossings.len() == 1 && inside(crossings[0], between);
        let detail = match crossings.as_slice() {
            [] => "they don't cross".to_string(),
            [one] if !one.is_nan() => format!("they cross at {one:.0}"),
            _ => {
                let up = crossings.iter().filter(|at| !at.is_nan()).map(|at| format!("{at:.0}"));
                format!(
                    "they cross more than once, or the other way (upward at {})",
                    up.collect::<Vec<_>>().join(", ")
                )
            }
        };
        Ok((holds, detail))
    }

    fn trend(&self, rows: &[String], falls: bool, tolerance: f64) -> Result<Answer, String> {
        let mut failing = Vec::new();
        for label in rows {
            let row = self.row(label)?;
            for column in 1..self.figure.columns.len() {
                let ratio = self.mean(row, column) / self.mean(row, column - 1);
                let wrong_way = if falls { percent(ratio) } else { -percent(ratio) };
                // What has no value (nothing measured) is no trend.
                if wrong_way > tolerance || wrong_way.is_nan() {
                    let (from, to) = (self.label(column - 1), self.label(column));
                    failing.push(format!("{label}, {from} to {to}: {:+.1} %", percent(ratio)));
                }
            }
        }
        let holds = failing.is_empty();
        Ok((holds, if holds { "at every step".into() } else { failing.join("; ") }))
    }

    fn against_published(&self, within: f64) -> Result<Answer, String> {
        let (mut near, mut all, mut worst) = (0, 0, 0.0f64);
        let mut logs = Vec::new();
        for number in self.published.iter().filter(|number| number.table == self.figure.id) {
            let row = self.row(&number.row)?;
            let columns = self.columns(&Over::These(vec![number.column.clone()]))?;
            let ratio = self.mean(row, columns[0]) / number.value;
            all += 1;
            near += usize::from(percent(ratio).abs() <= within);
            worst = worst.max(libm::fabs(libm::log(ratio)));
            logs.push(libm::log(ratio));
        }
        let typical = libm::exp(stats::mean(&logs));
        let detail = format!(
            "{near} of {all} within {within} %; measured over published: {typical:.2} on geometric mean"
        );
        Ok((all > 0 && near == all, detail))
    }
}
