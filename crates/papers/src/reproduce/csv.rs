//! A paper's results as a table: a line per cell and setting.

use std::collections::BTreeMap;

use ropewalk_lab::stats;

use super::error::TableError;
use super::measure::unit;
use super::notes::Results;
use super::published;
use super::run::Outcome;

/// The heading.
pub(super) const HEAD: &str = "figure,setting,row,column,metric,unit,published,mean,low,high,runs";

fn quoted(text: &str) -> String {
    if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "'")) } else { text.into() }
}

/// All cells.
pub(super) fn table(outcome: &Outcome) -> String {
    let mut text = format!("{HEAD}\n");
    for grid in &outcome.grids {
        let figure = &outcome.paper.plan.figures[grid.figure];
        for (row, row_line) in figure.rows.iter().enumerate() {
            for (column, column_line) in figure.columns.iter().enumerate() {
                let cell = &grid.cells[row][column];
                let printed = outcome.paper.published.iter().find(|number| {
                    number.table == figure.id
                        && number.row == row_line.label
                        && number.column == column_line.label
                });
                let interval = stats::mean_interval(&cell.values, outcome.seed);
                let mean = stats::mean(&cell.values);
                // Six digits are more than any interval here.
                let number =
                    |value: f64| if value.is_finite() { format!("{value:.6}") } else { String::new() };
                let fields = [
                    quoted(&figure.id),
                    quoted(&grid.variant),
                    quoted(&row_line.label),
                    quoted(&column_line.label),
                    cell.metric.clone(),
                    unit(&cell.metric).into(),
                    // Changes against a row are printed in per cent, and measured as what they are changes
                    // of.
                    printed
                        .filter(|_| figure.against.is_none())
                        .map_or(String::new(), |printed| printed.value.to_string()),
                    number(mean),
                    interval.map_or(String::new(), |(low, _)| number(low)),
                    interval.map_or(String::new(), |(_, high)| number(high)),
                    cell.values.len().to_string(),
                ];
                text += &fields.join(",");
                text.push('\n');
            }
        }
    }
    text
}

/// What a cell's line says of its runs.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Measured {
    pub(super) metric: String,
    pub(super) mean: f64,
    pub(super) interval: Option<(f64, f64)>,
}

/// Cells by figure, setting, row and column.
pub(super) type Cells = BTreeMap<(String, String, String, String), Measured>;

/// Reads such a table.
pub(super) fn cells(text: &str) -> Result<Cells, TableError> {
    let mut lines = text.lines();
    if lines.next() != Some(HEAD) {
        return Err(TableError::Heading(HEAD));
    }
    let mut found = Cells::new();
    for line in lines {
        let fields = published::split(line);
        let [figure, setting, row, column, metric, _, _, mean, low, high, ..] = fields.as_slice() else {
            return Err(TableError::Line(line.into()));
        };
        if let Ok(mean) = mean.parse() {
            let key = (figure.clone(), setting.clone(), row.clone(), column.clone());
            let interval = low.parse().ok().zip(high.parse().ok());
            found.insert(key, Measured { metric: metric.clone(), mean, interval });
        }
    }
    Ok(found)
}

/// Reads such a table's means.
///
/// # Errors
/// The line that isn't one.
pub fn results(text: &str) -> Result<Results, TableError> {
    Ok(cells(text)?.into_iter().map(|(key, cell)| (key, (cell.metric, cell.mean))).collect())
}
