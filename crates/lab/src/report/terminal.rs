//! Plots of characters: a row of boxes for the completion times, a timeline for each subflow of a run.

use std::fmt::Write;

use ropewalk_engine::{Span, Time};
use ropewalk_sim::{RunResult, Transmission};
use unicode_width::UnicodeWidthStr;

use crate::compare::{Ranking, Row};
use crate::stats;

/// Columns of a plot beside its labels.
const COLUMNS: usize = 64;

/// Eighths of a character's height.
const HEIGHTS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

fn seconds(value: f64) -> String {
    if value < 1.0 { format!("{:.1} ms", value * 1e3) } else { format!("{value:.3} s") }
}

fn padded(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(text.width())))
}

/// Each candidate's runs as a box: the line from the least to the most, the box the middle half, the bar the
/// median.
pub fn boxes(ranking: &Ranking) -> String {
    let all: Vec<f64> = ranking.rows.iter().flat_map(Row::times).collect();
    let all = stats::sorted(&all);
    let (Some(&low), Some(&high)) = (all.first(), all.last()) else { return String::new() };
    let width = ranking.rows.iter().map(|row| row.label.width()).max().unwrap_or(0);
    let column = |value: f64| {
        let share = if high > low { (value - low) / (high - low) } else { 0.0 };
        (share * (COLUMNS - 1) as f64 + 0.5) as usize
    };
    let (left, right) = (seconds(low), seconds(high));
    let gap = " ".repeat(COLUMNS.saturating_sub(left.width() + right.width()));
    let mut text = format!("{}  {left}{gap}{right}\n", " ".repeat(width));
    for row in &ranking.rows {
        let sorted = stats::sorted(&row.times());
        let mut cells = [' '; COLUMNS];
        if !sorted.is_empty() {
            let at = |p: f64| column(stats::quantile(&sorted, p));
            cells[at(0.0)..=at(1.0)].fill('─');
            cells[at(0.25)..=at(0.75)].fill('█');
            cells[at(0.5)] = '┃';
        }
        let cells: String = cells.iter().collect();
        let _ = writeln!(text, "{}  {}", padded(&row.label, width), cells.trim_end());
    }
    text
}

/// A run in time: for each path how much was in flight, and below it where segments were sent again: `r` on
/// the same subflow, `i` reinjected, `d` duplicated. All plots that last for `length` have one
/// scale.
pub fn timelines(names: &[String], result: &RunResult, length: Span) -> String {
    let each = (length.as_nanos() as f64 / COLUMNS as f64).max(1.0);
    let mut lanes = vec![[0.0f64; COLUMNS]; names.len()];
    let mut marks = vec![[' '; COLUMNS]; names.len()];
    for segment in &result.segments {
        let column_of = |at: Time| at.as_nanos() as f64 / each;
        let acked = segment.acked.unwrap_or(Time::ZERO + result.duration);
        let (from, to) = (column_of(segment.sent), column_of(acked));
        let lane = usize::from(segment.path);
        let Some(flight) = lanes.get_mut(lane) else { continue };
        for (column, cell) in flight.iter_mut().enumerate().take(to as usize + 1).skip(from as usize) {
            // The part of the column's time in which it was in flight.
            *cell += (to.min(column as f64 + 1.0) - from.max(column as f64)).max(0.0);
        }
        let mark = match segment.transmission {
            Transmission::New => continue,
            Transmission::Retransmitted => 'r',
            Transmission::Reinjected => 'i',
            Transmission::Duplicated => 'd',
        };
        if let Some(cell) = marks[lane].get_mut(from as usize) {
            *cell = mark;
        }
    }
    let most = lanes.iter().flatten().copied().fold(0.0, f64::max);
    let width = names.iter().map(|name| name.width()).max().unwrap_or(0);
    let mut text = String::new();
    for (lane, name) in names.iter().enumerate() {
        let height = |flight: &f64| {
            let eighths = if most > 0.0 { flight / most * 8.0 } else { 0.0 };
            // What is there is seen.
            HEIGHTS[if *flight > 0.0 { (eighths as usize).clamp(1, 8) } else { 0 }]
        };
        let flight: String = lanes[lane].iter().map(height).collect();
        let _ = writeln!(text, "{}  {}", padded(name, width), flight.trim_end());
        let again: String = marks[lane].iter().collect();
        if !again.trim().is_empty() {
            let _ = writeln!(text, "{}  {}", " ".repeat(width), again.trim_end());
        }
    }
    let _ = writeln!(
        text,
        "{}  highest: {most:.0} segments in flight; done after {}",
        " ".repeat(width),
        seconds(result.duration.as_secs_f64())
    );
    text
}
