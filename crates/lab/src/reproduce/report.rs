//! The page: published beside measured, a verdict per claim and setting. And the same as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::judge::{Judgement, Verdict};
use super::measure::unit;
use super::plan::MAIN;
use super::run::{CellOutcome, Grid, Outcome};
use super::{Figure, Kind, World};
use crate::stats;

/// The head of a page of runs in real time.
const REAL_TIME: &str = "# Reproduction in real time\n\n\
    The papers that measured on real machines, repeated with real packets through emulated links: the engine sends, the Linux kernel \
    receives. Few and short runs (5 of each unless the command says otherwise, of about 20 s at most): what differs by a few per cent isn't told \
    apart. Another call gives other numbers. With `--runs 50` the finished runs count towards the 50, and an interrupted call goes on \
    where it was. [The simulated page](reproduction.md) has everything else.\n\n";

/// Three significant digits.
fn number(value: f64) -> String {
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

fn interval(values: &[f64], seed: u64) -> String {
    stats::mean_interval(values, seed)
        .map_or("-".into(), |(low, high)| format!("{} .. {}", number(low), number(high)))
}

/// The main setting's verdict.
fn verdict(judgement: &Judgement) -> Option<Verdict> {
    judgement.settings.first().map(|setting| setting.verdict)
}

fn count(outcome: &Outcome, wanted: Verdict) -> usize {
    outcome.judgements.iter().filter(|judgement| verdict(judgement) == Some(wanted)).count()
}

fn time(seconds: f64) -> String {
    let whole = libm::round(seconds) as u64;
    if whole < 60 { format!("{seconds:.1} s") } else { format!("{} min {:02} s", whole / 60, whole % 60) }
}

/// The page of these outcomes, made by `command`.
pub fn markdown(outcomes: &[Outcome], command: &str) -> String {
    let real = outcomes.iter().any(|outcome| outcome.world == World::Emulated);
    let mut text = String::from(if real { REAL_TIME } else { "# Reproduction\n\n" });
    let wall: f64 = outcomes.iter().map(|outcome| outcome.wall).sum();
    let computing: f64 = outcomes.iter().map(|outcome| outcome.computing).sum();
    let runs: usize = outcomes.iter().map(|outcome| outcome.total).sum();
    let known: usize = outcomes.iter().map(|outcome| outcome.known).sum();
    let seed = outcomes.first().map_or(1, |outcome| outcome.seed);
    let _ = writeln!(
        text,
        "Made by `{command}`: {runs} {} runs ({known} of them known from an earlier call), seeds from {seed}, {} of {}, {} on the clock. \
         Ropewalk {}.\n",
        if real { "real-time" } else { "simulated" },
        time(computing),
        if real { "transfers" } else { "computing" },
        time(wall),
        env!("CARGO_PKG_VERSION")
    );
    text += "A claim's tolerance is written in `papers/<name>/claims.toml` before the first run. A difference counts if the 95 % bootstrap interval of the ratio \
             over paired seeds excludes 1, with Holm's correction over the comparisons that a claim makes. A change is that of the means; the interval beside it is that of the paired ratios' geometric mean. What a paper leaves open is varied one setting at a time, \
             with a verdict for each. `/ bound` is the measured mean over the earliest completion that the links allow, `/ start` over the one that windows growing from their initial value allow.\n\n";
    text += "| paper | claims | hold | do not hold | cannot be tested here |\n|---|---:|---:|---:|---:|\n";
    for outcome in outcomes {
        let _ = writeln!(
            text,
            "| [{0}](#{0}) | {1} | {2} | {3} | {4} |",
            outcome.paper.name,
            outcome.judgements.len(),
            count(outcome, Verdict::Holds),
            count(outcome, Verdict::Fails),
            count(outcome, Verdict::Untestable)
        );
    }
    for outcome in outcomes {
        text += &section(outcome);
    }
    text
}

/// What the paper measured on, and what stands in for it.
fn testbed(outcome: &Outcome) -> String {
    let words = match outcome.world {
        World::Simulated => "the simulated world",
        World::Emulated => "real packets in real time through emulated links, the Linux kernel as receiver",
    };
    format!("{}; here: {words}", outcome.paper.plan.testbed)
}

fn section(outcome: &Outcome) -> String {
    let plan = &outcome.paper.plan;
    let mut text = format!(
        "\n## {}\n\n{}. *{}*.\n\n{}.\n",
        outcome.paper.name,
        plan.source,
        plan.title,
        testbed(outcome)
    );
    let real = outcome.world == World::Emulated;
    if let Some(tally) = &outcome.tally {
        let _ = writeln!(text, "\n{}.", tally.describe());
    }
    let rulings = if real { &plan.real_rulings } else { &plan.rulings };
    if !rulings.is_empty() {
        text += "\nRulings:\n\n";
        for ruling in rulings {
            let _ = writeln!(text, "- {ruling}");
        }
    }
    if !real && outcome.paper.runs_in(World::Emulated) {
        text += "\nSome of it in real time, with the Linux kernel as receiver: [reproduction-emulated.md](reproduction-emulated.md).\n";
    }
    if !real && !plan.open.is_empty() {
        text += "\nLeft open by the paper:\n\n| setting | as ruled | also run | why it is open |\n|---|---|---|---|\n";
        for open in &plan.open {
            let others: Vec<&str> = open.values.iter().map(|value| value.label.as_str()).collect();
            let _ =
                writeln!(text, "| {} | {} | {} | {} |", open.name, open.main, others.join("; "), open.why);
        }
    }
    text += &claims(outcome);
    for (number, figure) in plan.figures.iter().enumerate().filter(|(_, it)| it.world == outcome.world) {
        let grids: Vec<&Grid> = outcome.grids.iter().filter(|grid| grid.figure == number).collect();
        text += &figure_text(outcome, figure, &grids);
    }
    text
}

fn claims(outcome: &Outcome) -> String {
    let mut text = String::from(
        "\n### Claims\n\n| claim | verdict | settings in which it holds | numbers |\n|---|---|---:|---|\n",
    );
    for judgement in &outcome.judgements {
        let Some(main) = judgement.settings.first() else { continue };
        let holding = judgement.settings.iter().filter(|setting| setting.verdict == Verdict::Holds).count();
        let of = match main.verdict {
            Verdict::Untestable => "-".to_string(),
            _ => format!("{holding} of {}", judgement.settings.len()),
        };
        let _ =
            writeln!(text, "| {} | **{}** | {of} | {} |", judgement.text, main.verdict.words(), main.detail);
    }
    for judgement in &outcome.judgements {
        if let Some(note) = outcome.paper.notes.get(&judgement.id) {
            let verdict = judgement.settings.first().map_or("", |setting| setting.verdict.words());
            let _ = writeln!(text, "\n**{}**: {verdict}. {}", judgement.text, note.trim());
        }
    }
    let mut rows = String::new();
    for judgement in &outcome.judgements {
        for setting in judgement.settings.iter().skip(1) {
            let words = setting.verdict.words();
            let _ =
                writeln!(rows, "| {} | {} | {words} | {} |", judgement.text, setting.variant, setting.detail);
        }
    }
    if !rows.is_empty() {
        let _ = write!(
            text,
            "\n<details><summary>Each claim in each other setting</summary>\n\n| claim | setting | verdict | numbers |\n|---|---|---|---|\n{rows}\n</details>\n"
        );
    }
    text
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
fn shown(figure: &Figure, grid: &Grid, row: usize, column: usize) -> Option<(Vec<f64>, &'static str)> {
    let cell = &grid.cells[row][column];
    let Some(against) = &figure.against else { return Some((cell.values.clone(), unit(&cell.metric))) };
    let base = figure.rows.iter().position(|row| row.label == *against)?;
    let base_values = &grid.cells[base][column].values;
    (base != row).then(|| {
        let mean = stats::mean(base_values);
        (cell.values.iter().map(|value| (value / mean - 1.0) * 100.0).collect(), "%")
    })
}

fn figure_text(outcome: &Outcome, figure: &Figure, grids: &[&Grid]) -> String {
    let mut text = format!("\n### {}\n", figure.title);
    if figure.kind == Kind::Series {
        return text + &curves(outcome, figure);
    }
    let Some((main, others)) = grids.split_first() else { return String::new() };
    let bounds = main.cells.iter().flatten().any(|cell| cell.bound.is_some()) && figure.against.is_none();
    text += "\n| row | column | published | measured | 95 % interval | median | p95 | unit |";
    text += if bounds { " / bound | / start |\n" } else { "\n" };
    text += "|---|---|---:|---:|---|---:|---:|---|";
    text += if bounds { "---:|---:|\n" } else { "\n" };
    for (row, row_line) in figure.rows.iter().enumerate() {
        for (column, column_line) in figure.columns.iter().enumerate() {
            let Some((values, unit)) = shown(figure, main, row, column) else { continue };
            let cell = &main.cells[row][column];
            let sorted = stats::sorted(&values);
            let at =
                |p: f64| if sorted.is_empty() { "-".into() } else { number(stats::quantile(&sorted, p)) };
            let mean = if values.is_empty() { "-".into() } else { number(stats::mean(&values)) };
            let _ = write!(
                text,
                "| {} | {} | {} | {mean}{} | {} | {} | {} | {unit} |",
                row_line.label,
                column_line.label,
                printed(outcome, figure, &row_line.label, &column_line.label),
                cut_off(cell),
                interval(&values, outcome.seed),
                at(0.5),
                at(0.95)
            );
            if bounds {
                let of = |pick: fn((f64, f64)) -> f64| {
                    cell.bound.map_or("-".into(), |both| format!("{:.2}", pick(both)))
                };
                let _ = write!(text, " {} | {} |", of(|both| both.0), of(|both| both.1));
            }
            text += "\n";
        }
    }
    if !others.is_empty() {
        text += "\n<details><summary>In the other settings (means)</summary>\n\n| setting | row |";
        for column in &figure.columns {
            let _ = write!(text, " {} |", column.label);
        }
        text += "\n|---|---|";
        text += &"---:|".repeat(figure.columns.len());
        text += "\n";
        for grid in others {
            for (row, line) in figure.rows.iter().enumerate() {
                let _ = write!(text, "| {} | {} |", grid.variant, line.label);
                for column in 0..figure.columns.len() {
                    let values = shown(figure, grid, row, column);
                    let mean = values.map_or("-".into(), |(values, _)| number(stats::mean(&values)));
                    let _ = write!(text, " {mean}{} |", cut_off(&grid.cells[row][column]));
                }
                text += "\n";
            }
        }
        text += "\n</details>\n";
    }
    text
}

/// Marks a mean over flows of which some weren't complete.
fn cut_off(cell: &CellOutcome) -> String {
    if cell.metric == "fct" && cell.incomplete > 0.0 {
        format!(" ({:.0} cut off)", cell.incomplete)
    } else {
        String::new()
    }
}

/// Curves, at every fifth bin.
fn curves(outcome: &Outcome, figure: &Figure) -> String {
    let own: Vec<_> = outcome.series.iter().filter(|curve| curve.figure == figure.id).collect();
    let mut text = String::from("\nMean (and standard deviation) over all runs, by time:\n\n| curve |");
    let Some(longest) = own.iter().max_by_key(|curve| curve.points.len()) else { return String::new() };
    let shown: Vec<f64> = longest.points.iter().step_by(5).map(|point| point.0).collect();
    for at in &shown {
        let _ = write!(text, " {at:.1} s |");
    }
    text += "\n|---|";
    text += &"---:|".repeat(shown.len());
    text += "\n";
    for curve in own {
        let name = if curve.variant == MAIN {
            curve.label.clone()
        } else {
            format!("{} ({})", curve.label, curve.variant)
        };
        let _ = write!(text, "| {name} |");
        for at in &shown {
            let point = curve.points.iter().find(|point| (point.0 - at).abs() < 1e-9);
            let cell = point.map_or("-".into(), |(_, mean, deviation)| {
                format!("{} ({})", number(*mean), number(*deviation))
            });
            let _ = write!(text, " {cell} |");
        }
        text += "\n";
    }
    text
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
            "note": outcome.paper.notes.get(&judgement.id),
            "settings": judgement.settings.iter().map(|setting| json!({
                "setting": setting.variant,
                "verdict": setting.verdict.words(),
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
        let mut table = crate::table::Table::new(1, &head);
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
