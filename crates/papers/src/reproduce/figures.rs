//! A paper's figures as charts. Those of runs are drawn from the table beside the page, so that they can be
//! drawn anew without running anything.

use super::chart::{Chart, Curve, Kind as Drawn};
use super::csv::{self, Cells, Measured};
use super::measure::axis_label;
use super::overview::folder;
use super::plan::{FITTED, MAIN};
use super::run::Outcome;
use super::series::{BINS, Series, span};
use super::{Figure, Kind, Paper, PaperError, World, marginals};

/// Where a figure's picture is, beside the overview.
pub(super) fn path(paper: &Paper, world: World, figure: &str) -> String {
    format!("{}/{}-{figure}.svg", folder(world), paper.name)
}

/// The pictures of a paper's page, drawn from its table, by their path beside the overview: all but those
/// over time, whose points aren't in the table.
///
/// # Errors
/// A line of the table that isn't one.
pub fn redrawn(paper: &Paper, world: World, table: &str) -> Result<Vec<(String, String)>, PaperError> {
    let cells = csv::cells(table)?;
    let mut found = Vec::new();
    let mut put = |id: &str, svg: String| {
        if !svg.is_empty() {
            found.push((path(paper, world, id), svg));
        }
    };
    if let Some(fit) = paper.fitted.as_ref().filter(|_| world == World::Simulated) {
        put("marginals", marginals::svg(fit));
    }
    let own = paper.plan.figures.iter().filter(|figure| figure.world == world && figure.kind != Kind::Series);
    for figure in own {
        put(&figure.id, grid(paper, figure, &cells).svg());
    }
    Ok(found)
}

/// Cells as measured and as published.
pub(super) fn grid(paper: &Paper, figure: &Figure, cells: &Cells) -> Chart {
    let find = |variant: &str, row: usize, column: usize| {
        let (row, column) = (&figure.rows[row].label, &figure.columns[column].label);
        cells.get(&(figure.id.clone(), variant.into(), row.clone(), column.clone()))
    };
    // Columns of different measures have no common axis: each is shown over the first row's.
    let mixed = figure.columns.iter().any(|column| column.metric.is_some());
    let against = figure.against.as_ref();
    let base_row = against.and_then(|label| figure.rows.iter().position(|row| row.label == *label));
    let shown = |variant: &str, row: usize, column: usize| -> Option<(f64, Option<(f64, f64)>)> {
        let Measured { mean, interval, .. } = find(variant, row, column)?;
        let (scale, shift) = match base_row {
            Some(base) if base == row => return None,
            Some(base) => (find(variant, base, column)?.mean / 100.0, 100.0),
            None if mixed => (find(MAIN, 0, column)?.mean, 0.0),
            None => (1.0, 0.0),
        };
        let of = |value: f64| value / scale - shift;
        Some((of(*mean), interval.map(|(low, high)| (of(low), of(high)))))
    };
    let printed = |row: usize, column: usize| -> Option<f64> {
        let (row, column_line) = (&figure.rows[row], &figure.columns[column]);
        let found = paper.published.iter().find(|number| {
            number.table == figure.id && number.row == row.label && number.column == column_line.label
        })?;
        let scale = if mixed && against.is_none() { find(MAIN, 0, column)?.mean } else { 1.0 };
        Some(found.value / scale)
    };
    let columns = 0..figure.columns.len();
    let mut curves = Vec::new();
    for row in 0..figure.rows.len() {
        let points = columns.clone().filter_map(|column| Some((column as f64, printed(row, column)?, None)));
        let finite = |point: &super::chart::Point| point.1.is_finite();
        curves.push(Curve { row, kind: Drawn::Published, points: points.filter(finite).collect() });
        for (variant, kind) in [(MAIN, Drawn::Ruled), (FITTED, Drawn::Fitted)] {
            let points = columns.clone().filter_map(|column| {
                let (value, around) = shown(variant, row, column)?;
                Some((column as f64, value, around))
            });
            curves.push(Curve { row, kind, points: points.filter(finite).collect() });
        }
    }
    let metric = find(MAIN, 0, 0).map_or("", |cell| cell.metric.as_str());
    let unit = match against {
        Some(base) => format!("change against {base}, %"),
        None if mixed => format!("{} as assumed = 1", figure.rows[0].label),
        None => axis_label(metric),
    };
    Chart {
        title: figure.title.clone(),
        unit,
        rows: figure.rows.iter().map(|row| row.label.clone()).collect(),
        places: figure.columns.len(),
        labels: labels(figure.columns.iter().map(|column| column.label.clone())),
        changes: against.is_some(),
        joined: !mixed,
        curves,
    }
}

fn labels(labels: impl Iterator<Item = String>) -> Vec<(f64, String)> {
    labels.enumerate().map(|(place, label)| (place as f64, label)).collect()
}

/// Curves over time.
pub(super) fn over_time(outcome: &Outcome, figure: &Figure) -> Chart {
    let span = span(figure);
    let place = |seconds: f64| seconds / span * BINS as f64 - 0.5;
    let step = [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0].into_iter().find(|step| span / step <= 10.0);
    let step = step.unwrap_or(span / 10.0);
    let own = outcome.series.iter().filter(|curve| curve.figure == figure.id);
    let drawn = |curve: &Series| match curve.variant.as_str() {
        MAIN => Some(Drawn::Ruled),
        FITTED => Some(Drawn::Fitted),
        _ => None,
    };
    Chart {
        title: figure.title.clone(),
        unit: axis_label(&figure.metric),
        rows: figure.rows.iter().map(|row| row.label.clone()).collect(),
        places: BINS,
        labels: (0..=(span / step) as usize)
            .map(|number| (place(number as f64 * step), format!("{} s", number as f64 * step)))
            .collect(),
        changes: false,
        joined: true,
        curves: own
            .filter_map(|curve| {
                Some(Curve {
                    row: figure.rows.iter().position(|row| row.label == curve.label).unwrap_or(0),
                    kind: drawn(curve)?,
                    points: curve.points.iter().map(|point| (place(point.0), point.1, None)).collect(),
                })
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::load;

    fn figure(name: &str, id: &str, lines: &[&str]) -> Chart {
        let paper = load(name).unwrap().unwrap();
        let table = format!("{}\n{}\n", csv::HEAD, lines.join("\n"));
        grid(&paper, paper.figure(id).unwrap(), &csv::cells(&table).unwrap())
    }

    /// What the paper prints as changes is drawn as changes, with its own numbers beside them.
    #[test]
    fn a_table_of_changes_is_drawn_as_changes() {
        let chart = figure(
            "cfs-2019",
            "table3",
            &[
                "table3,as assumed,DEFAULT,64 KB,fct,s,,2.0,1.9,2.1,10",
                "table3,as assumed,CFS,64 KB,fct,s,,1.5,1.4,1.6,10",
            ],
        );
        assert!(chart.changes && chart.unit == "change against DEFAULT, %");
        let of = |kind: Drawn| -> Vec<_> {
            chart.curves.iter().filter(|curve| curve.kind == kind).flat_map(|curve| &curve.points).collect()
        };
        assert_eq!(of(Drawn::Ruled).len(), 1, "the row that the others are set against has no change");
        assert!((of(Drawn::Ruled)[0].1 + 25.0).abs() < 1e-9);
        let (low, high) = of(Drawn::Ruled)[0].2.unwrap();
        assert!((low + 30.0).abs() < 1e-9 && (high + 20.0).abs() < 1e-9);
        assert!(of(Drawn::Published).iter().any(|point| point.1 == -24.0));
    }

    /// A count of none is a result too.
    #[test]
    fn a_mean_of_zero_is_a_point() {
        let chart = figure(
            "5g-2019",
            "fig4a",
            &[
                "fig4a,as assumed,OTIAS,10 ms,timeouts,,,8,7,9,10",
                "fig4a,as assumed,OTIAS,100 ms,timeouts,,,0,0,0,10",
                "fig4a,as assumed,OTIAS,200 ms,timeouts,,,0.1,0,0.3,10",
            ],
        );
        let otias = chart.curves.iter().find(|curve| !curve.points.is_empty()).unwrap();
        assert_eq!(otias.points.len(), 3);
        assert_eq!(chart.unit, "");
        let ruled = figure("5g-2019", "fig4a", &["fig4a,as assumed,LowRTT,10 ms,timeouts,,,8,7,9,10"]);
        assert_eq!(ruled.unit, "timeouts");
    }
}
