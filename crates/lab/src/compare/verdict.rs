//! One sentence: who wins, by how much, and whether multipath is worth it. It claims what the corrected comparisons
//! bear out, and says of the rest why not.

use std::collections::BTreeSet;

use ropewalk_sim::Outcome;

use super::versus::{FEW, Finding, Versus, told_in_any};
use super::{Comparison, Ranking, Row};
use crate::stats;

/// The verdict.
pub fn verdict(comparison: &Comparison) -> String {
    let rankings = &comparison.rankings;
    let Some(first) = rankings.first() else { return "Nothing was run.".into() };
    if rankings.iter().all(|ranking| ranking.rows.iter().all(|row| row.finished == 0)) {
        return nothing(comparison);
    }
    let labels: Vec<&str> = first.rows.iter().map(|row| row.label.as_str()).collect();
    let winner = winner(rankings, &labels);
    let over = if rankings.len() > 1 { " over all sizes" } else { "" };
    let runs = first.rows.iter().map(|row| row.runs).max().unwrap_or(0);
    if (runs as usize) < FEW {
        let each = if runs == 1 { "one run" } else { &format!("{runs} runs") };
        return format!(
            "`{winner}` has the least mean{over}, but {each} of each can't be compared: {FEW} are the least."
        );
    }
    let of_winner: Vec<&Row> = rankings.iter().filter_map(|ranking| row(ranking, winner)).collect();
    let mut parts = Vec::new();
    let unfinished: u32 = of_winner.iter().map(|row| row.unfinished()).sum();
    if unfinished > 0 {
        let all: u32 = of_winner.iter().map(|row| row.runs).sum();
        parts.push(format!("though {unfinished} of its {all} runs didn't finish"));
    }
    let alike = of_winner.iter().flat_map(|row| [row.versus_linux, row.versus_tcp]).flatten();
    let alike = alike.into_iter().any(
        |versus| matches!(versus, Versus::Ratio { ratio, finding: Finding::Alike } if ratio.ratio != 1.0),
    );
    parts.extend(against(rankings, &of_winner, "`linux`", |row| row.versus_linux));
    parts.extend(against(rankings, &of_winner, "plain TCP on the best path", |row| row.versus_tcp));
    let mut text = format!("`{winner}` finishes first{over}");
    if !parts.is_empty() {
        text += &format!(": {}", parts.join(", "));
    }
    let tied = tied(rankings, &labels, winner);
    if !tied.is_empty() {
        let shown: Vec<_> = tied.iter().take(6).map(|label| format!("`{label}`")).collect();
        let more = if tied.len() > 6 { format!(" and {} more", tied.len() - 6) } else { String::new() };
        text += &format!("; a tie with {}{more}", shown.join(", "));
    }
    if alike {
        text += &format!("; {}, so these are differences of one course of events", comparison.alike());
    }
    if comparison.is_cut_short() {
        text += &format!("; what took longer than {} was ended there (`--limit`)", comparison.limit_text());
    }
    text + "."
}

fn row<'a>(ranking: &'a Ranking, label: &str) -> Option<&'a Row> {
    ranking.rows.iter().find(|row| row.label == label)
}

/// Why there is nothing to rank.
fn nothing(comparison: &Comparison) -> String {
    let runs = || comparison.rankings.iter().flat_map(|r| &r.rows).flat_map(|row| &row.each);
    let reasons: BTreeSet<&str> = runs()
        .filter_map(|run| match &run.outcome {
            Outcome::Failed(reason) => Some(reason.as_str()),
            _ => None,
        })
        .collect();
    let limit = comparison.limit_text();
    match reasons.first() {
        Some(reason) if runs().all(|run| matches!(run.outcome, Outcome::Failed(_))) => {
            format!("Every run failed: {reason}.")
        }
        Some(reason) => {
            format!("Nothing finished within {limit} (`--limit` allows more); some runs failed: {reason}.")
        }
        None => format!("Nothing finished within {limit} (`--limit` allows more)."),
    }
}

/// The one with the least geometric mean, over the workloads, of its mean against the first's.
fn winner<'a>(rankings: &[Ranking], labels: &[&'a str]) -> &'a str {
    let score = |label: &str| {
        let logs = rankings
            .iter()
            .filter_map(|ranking| Some(libm::log(row(ranking, label)?.mean / ranking.rows.first()?.mean)));
        stats::mean(&logs.collect::<Vec<_>>())
    };
    let mut scores: Vec<(f64, &'a str)> = labels.iter().map(|label| (score(label), *label)).collect();
    scores.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(b.1)));
    scores[0].1
}

/// Who can't be told from the best with any workload.
fn tied<'a>(rankings: &[Ranking], labels: &[&'a str], winner: &str) -> Vec<&'a str> {
    let ties = |label: &str| rankings.iter().all(|r| row(r, label).is_some_and(|row| row.ties_with_best));
    labels.iter().copied().filter(|label| *label != winner && ties(label)).collect()
}

/// How the winner stands against another.
fn against(
    rankings: &[Ranking],
    of_winner: &[&Row],
    name: &str,
    pick: fn(&Row) -> Option<Versus>,
) -> Option<String> {
    let of_sizes: Vec<(Versus, u32)> =
        of_winner.iter().filter_map(|row| Some((pick(row)?, row.runs))).collect();
    let all: Vec<Versus> = of_sizes.iter().map(|(versus, _)| *versus).collect();
    let (mut missing, mut runs, mut logs) = (0, 0, Vec::new());
    for (versus, count) in &of_sizes {
        runs += count;
        match versus {
            Versus::Ratio { ratio, .. } => logs.push(libm::log(ratio.ratio)),
            Versus::Unfinished { other, .. } => missing += other,
        }
    }
    if missing > 0 {
        return Some(format!("{name} didn't finish {missing} of {runs} runs"));
    }
    if logs.is_empty() || logs.len() < all.len() {
        return None;
    }
    let mean = stats::mean(&logs);
    let percent = (libm::exp(mean) - 1.0) * 100.0;
    let certain = all.iter().all(|versus| matches!(versus, Versus::Ratio { finding: Finding::Alike, .. }));
    // Each ranking's comparisons are corrected among themselves; that any of the rankings tells is one more choice.
    let told = certain || told_in_any(&all, mean < 0.0, rankings.len());
    Some(if !told {
        format!("not told apart from {name}")
    } else if percent.abs() < 0.5 {
        format!("no faster nor slower than {name}")
    } else if percent < 0.0 {
        format!("{:.0} % faster than {name}", -percent)
    } else {
        format!("{percent:.0} % slower than {name}")
    })
}
