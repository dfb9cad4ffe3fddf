//! Results as the document of the HTML page: the grid of claims, and for each paper its figures, published
//! beside measured.

use ropewalk_lab::report::FORMAT;
use ropewalk_lab::stats;
use serde_json::{Value, json};

use super::cells::Grid;
use super::overview::{agreement, by_reading, each_reading};
use super::pages::{shortened, words_of};
use super::plan::{FITTED, MAIN};
use super::report::shown;
use super::run::Outcome;
use super::{Figure, Judgement, Kind, PaperError, Verdict, World, csv, notes};

/// The whole document.
///
/// # Errors
/// A note that refers to no result, or that its result contradicts.
pub fn document(outcomes: &[Outcome], command: &str) -> Result<Value, PaperError> {
    let papers = outcomes.iter().map(paper).collect::<Result<Vec<_>, _>>()?;
    let world = outcomes.first().map_or(World::Simulated, |outcome| outcome.world);
    Ok(json!({
        "format": FORMAT,
        "kind": "reproduction",
        "title": "Reproduction",
        "command": command,
        "version": env!("CARGO_PKG_VERSION"),
        "world": match world {
            World::Simulated => "simulated",
            World::Emulated => "real-time",
        },
        "verdicts": Verdict::ALL.iter().map(|verdict| verdict.words()).collect::<Vec<_>>(),
        "papers": papers,
    }))
}

fn paper(outcome: &Outcome) -> Result<Value, PaperError> {
    let plan = &outcome.paper.plan;
    let results = csv::results(&csv::table(outcome))?;
    let words = |id: &str| words_of(outcome, &results, id);
    let claims = outcome.judgements.iter().map(|judgement| Ok(claim(judgement, words(&judgement.id)?)));
    let claims = claims.collect::<Result<Vec<_>, PaperError>>()?;
    let figures = plan.figures.iter().enumerate().filter(|(_, figure)| figure.world == outcome.world);
    let assumptions =
        if outcome.world == World::Emulated { &plan.real_assumptions } else { &plan.assumptions };
    Ok(json!({
        "name": outcome.paper.name,
        "title": plan.title,
        "source": plan.source,
        "testbed": plan.testbed,
        "summary": words(notes::summary(outcome.world))?,
        "runs": outcome.total,
        "computing_s": outcome.computing,
        "assumptions": assumptions,
        "mechanisms": plan.mechanisms,
        "open": plan.open.iter().map(|open| json!({
            "name": open.name,
            "main": open.main,
            "others": open.values.iter().map(|value| value.label.as_str()).collect::<Vec<_>>(),
            "why": open.why,
        })).collect::<Vec<_>>(),
        "fitted": fitted(outcome),
        "claims": claims,
        "figures": figures.map(|(place, of)| figure(outcome, place, of)).collect::<Vec<_>>(),
    }))
}

fn claim(judgement: &Judgement, note: Option<String>) -> Value {
    let detail = |variant: &str| {
        let setting = judgement.settings.iter().find(|setting| setting.variant == variant)?;
        Some(shortened(&setting.detail))
    };
    json!({
        "text": judgement.text,
        "figure": judgement.figure,
        "verdict": Verdict::ALL.iter().position(|verdict| *verdict == judgement.verdict),
        "agree": by_reading(&agreement(judgement), &each_reading(judgement)),
        "as_ruled": detail(MAIN),
        "fitted": detail(FITTED),
        "note": note,
    })
}

/// What the fit of the settings that the paper leaves open found.
fn fitted(outcome: &Outcome) -> Value {
    let unknowns = &outcome.paper.unknowns;
    let Some(fit) = outcome.paper.fitted.as_ref().filter(|_| outcome.world == World::Simulated) else {
        return json!(unknowns.none.as_ref().map(|why| json!({ "none": why })));
    };
    json!({
        "command": fit.command,
        "rows": unknowns.rows,
        "figures": unknowns.fitted,
        "held_out": unknowns.held_out,
        "tried": fit.tried,
        "distance": fit.distance,
        "ruled": fit.ruled,
        "values": fit.values,
        "choice": fit.choice.as_ref().map(|choice| choice.words(fit.distance)),
        "readings": fit.readings,
    })
}

fn figure(outcome: &Outcome, place: usize, figure: &Figure) -> Value {
    let grid =
        |variant: &str| outcome.grids.iter().find(|grid| grid.figure == place && grid.variant == variant);
    let cells = match figure.kind {
        Kind::Series => Vec::new(),
        Kind::Grid | Kind::Reordering => cells(outcome, figure, grid(MAIN), grid(FITTED)),
    };
    let drawn = [MAIN, FITTED];
    let own = outcome.series.iter().filter(|curve| curve.figure == figure.id);
    let curves = own.filter(|curve| drawn.contains(&curve.variant.as_str()));
    json!({
        "id": figure.id,
        "title": figure.title,
        "metric": figure.metric,
        "against": figure.against,
        "rows": figure.rows.iter().map(|row| row.label.as_str()).collect::<Vec<_>>(),
        "columns": figure.columns.iter().map(|column| column.label.as_str()).collect::<Vec<_>>(),
        "x": figure.columns.iter().map(|column| column.x).collect::<Option<Vec<f64>>>(),
        "cells": cells,
        "curves": curves.map(|curve| json!({
            "label": curve.label,
            "setting": curve.variant,
            "points": curve.points,
        })).collect::<Vec<_>>(),
    })
}

/// By row and column: what is printed, what was measured as assumed, and in the fitted setting.
fn cells(outcome: &Outcome, figure: &Figure, main: Option<&Grid>, fitted: Option<&Grid>) -> Vec<Value> {
    let mut cells = Vec::new();
    for (row, row_line) in figure.rows.iter().enumerate() {
        for (column, column_line) in figure.columns.iter().enumerate() {
            let values = |grid: Option<&Grid>| shown(figure, grid?, row, column);
            let measured = |grid: Option<&Grid>| {
                let (values, _) = values(grid)?;
                let interval = stats::mean_interval(&values, outcome.seed);
                let mean = Some(stats::mean(&values)).filter(|mean| mean.is_finite())?;
                Some(json!({ "mean": mean, "interval": interval.map(|(low, high)| [low, high]) }))
            };
            let published = outcome.paper.published.iter().find(|number| {
                number.table == figure.id
                    && number.row == row_line.label
                    && number.column == column_line.label
            });
            cells.push(json!({
                "row": row,
                "column": column,
                "unit": values(main).map(|(_, unit)| unit),
                "published": published.map(|number| number.value),
                "as_ruled": measured(main),
                "fitted": measured(fitted),
            }));
        }
    }
    cells
}
