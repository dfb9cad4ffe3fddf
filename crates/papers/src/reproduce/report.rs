//! Results as JSON and for a terminal: published beside measured, a verdict per claim and setting.

use std::fmt::Write as _;

use ropewalk_lab::stats;
use serde_json::{Value, json};

use super::Figure;
use super::cells::{CellOutcome, Grid};
use super::measure::unit;
use super::plan::MAIN;
use super::run::Outcome;

/// Three significant digits.
pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        "0".into()
    } else if size >= 1000.0 {
        format!("{value:.0}")
    } else if size >= 100.0 {
        format!("{value:.1}")
    } else if size >= 1.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    }
}

pub(super) fn time(seconds: f64) -> String {
    let whole = libm::round(seconds) as u64;
    if whole < 60 { format!("{seconds:.1} s") } else { format!("{} min {:02} s", whole / 60, whole % 60) }
}

fn printed(outcome: &Outcome, figure: &Figure, row: &str, column: &str) -> String {
    let found = outcome
        .paper
        .published
        .iter()
        .find(|number| number.table == figure.id && number.row == row && number.column == column);
    found.map_or(String::new(), |number| self::number(number.value))
}

/// The values that a figure shows: as measured, or as changes against a row.
pub(super) fn shown(
    figure: &Figure,
    grid: &Grid,
    row: usize,
    column: usize,
) -> Option<(Vec<f64>, &'static str)> {
    let cell = &grid.cells[row][column];
    let Some(against) = &figure.against else { return Some((cell.values.clone(), unit(&cell.metric))) };
    let base = figure.rows.iter().position(|row| row.label == *against)?;
    let base_values = &grid.cells[base][column].values;
    (base != row).then(|| {
        let mean = stats::mean(base_values);
        (cell.values.iter().map(|value| (value / mean - 1.0) * 100.0).collect(), "%")
    })
}

/// Marks a mean over flows of which some weren't complete.
pub(super) fn cut_off(cell: &CellOutcome) -> String {
    if cell.metric == "fct" && cell.incomplete > 0.0 {
        format!(" ({:.0} cut off)", cell.incomplete)
    } else {
        String::new()
    }
}

/// All of it as JSON.
pub fn json(outcomes: &[Outcome], command: &str) -> Value {
    json!({
        "command": command,
        "version": env!("CARGO_PKG_VERSION"),
        "papers": outcomes.iter().map(one).collect::<Vec<_>>(),
    })
}

fn one(outcome: &Outcome) -> Value {
    let plan = &outcome.paper.plan;
    let mut cells = Vec::new();
    for grid in &outcome.grids {
        let figure = &plan.figures[grid.figure];
        for (row, row_line) in figure.rows.iter().enumerate() {
            for (column, column_line) in figure.columns.iter().enumerate() {
                let Some((values, unit)) = shown(figure, grid, row, column) else { continue };
                let cell = &grid.cells[row][column];
                let of = |number: &&crate::reproduce::Published| {
                    number.table == figure.id
                        && number.row == row_line.label
                        && number.column == column_line.label
                };
                cells.push(json!({
                    "figure": figure.id,
                    "setting": grid.variant,
                    "row": row_line.label,
                    "column": column_line.label,
                    "metric": cell.metric,
                    "unit": unit,
                    "published": outcome.paper.published.iter().find(of).map(|number| number.value),
                    "mean": stats::mean(&values),
                    "interval": stats::mean_interval(&values, outcome.seed).map(|(low, high)| [low, high]),
                    "over_bound": cell.bound.map(|both| both.0),
                    "over_start": cell.bound.map(|both| both.1),
                    "values": values,
                }));
            }
        }
    }
    json!({
        "paper": outcome.paper.name,
        "title": plan.title,
        "seed": outcome.seed,
        "runs": outcome.total,
        "known_runs": outcome.known,
        "computing_s": outcome.computing,
        "wall_s": outcome.wall,
        "claims": outcome.judgements.iter().map(|judgement| json!({
            "id": judgement.id,
            "text": judgement.text,
            "figure": judgement.figure,
            "verdict": judgement.verdict.words(),
            "note": outcome.paper.notes.get(&judgement.id),
            "settings": judgement.settings.iter().map(|setting| json!({
                "setting": setting.variant,
                "verdict": setting.verdict.words(),
                "agree": setting.agree,
                "ties": setting.ties,
                "comparisons": setting.cells,
                "numbers": setting.detail,
            })).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "cells": cells,
        "series": outcome.series.iter().map(|curve| json!({
            "figure": curve.figure,
            "curve": curve.label,
            "setting": curve.variant,
            "metric": curve.metric,
            "points": curve.points,
        })).collect::<Vec<_>>(),
    })
}

/// The main settings' tables for a terminal: a line per row, a column per column, published in brackets.
pub fn tables(outcome: &Outcome) -> String {
    let mut text = String::new();
    for grid in outcome.grids.iter().filter(|grid| grid.variant == MAIN) {
        let figure = &outcome.paper.plan.figures[grid.figure];
        let units = grid.cells.iter().flatten().map(|cell| unit(&cell.metric));
        let mut units: Vec<&str> = units.collect();
        units.dedup();
        let shared = match (&figure.against, units.as_slice()) {
            (Some(_), _) => ", %".to_string(),
            (None, [one]) if !one.is_empty() => format!(", {one}"),
            _ => String::new(),
        };
        let _ = writeln!(text, "{}{shared}; published in brackets", figure.title);
        let mut head = vec![""];
        head.extend(figure.columns.iter().map(|column| column.label.as_str()));
        let mut table = ropewalk_lab::table::Table::new(1, &head);
        for (row, line) in figure.rows.iter().enumerate() {
            let mut cells = vec![line.label.clone()];
            for (column, column_line) in figure.columns.iter().enumerate() {
                let values = shown(figure, grid, row, column);
                let published = printed(outcome, figure, &line.label, &column_line.label);
                let published = if published.is_empty() { published } else { format!(" ({published})") };
                cells.push(values.map_or("-".into(), |(values, _)| {
                    let around = stats::mean_interval(&values, outcome.seed)
                        .map_or(String::new(), |(low, high)| format!(" [{}, {}]", number(low), number(high)));
                    format!("{}{around}{published}", number(stats::mean(&values)))
                }));
            }
            table.row(cells);
        }
        let _ = writeln!(text, "{}", table.render());
    }
    text
}
