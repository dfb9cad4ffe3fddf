//! A comparison as a table for people, as plots of characters, and as CSV.

use ropewalk_lab::compare::{Comparison, FEW, Finding, Ranking, Request, Row, Versus, verdict};
use ropewalk_lab::emulated;
use ropewalk_lab::report::rope::{self, Budget};
use ropewalk_lab::report::{comparison, terminal};
use ropewalk_lab::table::Table;
use ropewalk_sim::{Direction, Outcome, Scenario};

fn seconds(value: f64) -> String {
    if value < 1.0 { format!("{:.1} ms", value * 1e3) } else { format!("{value:.3} s") }
}

/// In brackets what isn't told apart from no difference.
fn percent(versus: Option<Versus>) -> String {
    match versus {
        None => "-".into(),
        Some(Versus::Unfinished { own: 0, .. }) => "unfinished".into(),
        Some(Versus::Unfinished { .. }) => "-".into(),
        Some(Versus::Ratio { ratio, finding }) => {
            let change = (ratio.ratio - 1.0) * 100.0;
            let text = if change.abs() < 0.05 { "0.0 %".into() } else { format!("{change:+.1} %") };
            match finding {
                Finding::Tested { p } if p < 0.05 => text,
                Finding::Alike => text,
                _ => format!("({text})"),
            }
        }
    }
}

fn counted(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn times(ratio: Option<f64>) -> String {
    ratio.map_or("-".into(), |ratio| format!("{ratio:.2}"))
}

fn bytes(value: f64) -> String {
    if value < 0.5 {
        "0".into()
    } else if value < 10_240.0 {
        format!("{value:.0} B")
    } else {
        format!("{:.1} KiB", value / 1024.0)
    }
}

fn row(place: usize, row: &Row, limit: f64) -> Vec<String> {
    let mark = if place > 1 && row.ties_with_best { "=" } else { "" };
    let interval =
        row.interval.map_or("-".into(), |(low, high)| format!("{} .. {}", seconds(low), seconds(high)));
    let failed = row.each.iter().all(|run| matches!(run.outcome, Outcome::Failed(_)));
    // A run that doesn't finish counts as the limit in the mean, which is then a lower bound.
    let mean = match row.unfinished() {
        0 => seconds(row.mean),
        _ if failed => "failed".into(),
        _ => format!("> {}", seconds(row.mean)),
    };
    let quantile = |value: Option<f64>| value.map_or("-".into(), seconds);
    let over = row.over_bound();
    vec![
        format!("{place}{mark}"),
        row.label.clone(),
        mean,
        interval,
        quantile(row.p50),
        quantile(row.p95),
        percent(row.versus_linux),
        percent(row.versus_tcp),
        times(over.map(|over| over.0)),
        times(over.map(|over| over.1)),
        bytes(row.duplicated),
        format!("{:.1}", row.retransmissions),
        row.why_unfinished(limit).unwrap_or_default(),
    ]
}

/// The tables, what their columns mean, and the verdict.
pub(super) fn text(scenario: &Scenario, comparison: &Comparison) -> String {
    let way = if scenario.direction == Direction::Upload { "upload" } else { "download" };
    let mut text = format!(
        "{}: {}\n{}, {way}, {}, {} each, seeds from {}\n\n",
        scenario.name,
        scenario.summary,
        counted(scenario.paths.len() as u64, "path"),
        comparison.congestion,
        counted(u64::from(comparison.runs), "run"),
        comparison.seed
    );
    if let Some(real) = comparison.real_time {
        let end = |kernel| if kernel { "the kernel" } else { "the engine" };
        let (sender, receiver) = (end(real.ends.sender_kernel), end(real.ends.receiver_kernel));
        text.insert_str(
            text.len() - 1,
            &format!("real packets in real time: {sender} sends, {receiver} receives\n"),
        );
    }
    for ranking in &comparison.rankings {
        text += &section(ranking, comparison.limit);
    }
    text += &legend(comparison);
    if let Some(real) = comparison.real_time {
        text += &format!("{}\n", real.tally.describe());
    }
    text + "\n" + &verdict(comparison) + "\n"
}

/// What the columns mean; of marks, those that are there.
fn legend(comparison: &Comparison) -> String {
    let rows = || comparison.rankings.iter().flat_map(|ranking| &ranking.rows);
    let versus = || rows().flat_map(|row| [row.versus_linux, row.versus_tcp]).flatten();
    let mut lines = vec![
        "mean: arithmetic, over the runs; vs: geometric mean of the ratios of runs with the same seed".to_string(),
        "/ bound: mean over the least that the row's links allow; / start: that windows from their initial value allow"
            .into(),
        "repeated: bytes that the scheduler duplicated or the connection reinjected, per run".into(),
    ];
    if rows().any(|row| (row.runs as usize) < FEW) {
        lines.insert(0, format!("(..)  not compared: {FEW} runs are the least"));
    } else {
        let marks = "=  a tie with the first   (..)  no significant difference   (paired over seeds, at 5 %, corrected for the";
        lines.insert(0, format!("{marks}\nnumber of comparisons in the column)"));
    }
    if versus().any(
        |versus| matches!(versus, Versus::Ratio { finding: Finding::Alike, ratio } if ratio.ratio != 1.0),
    ) {
        let why = if comparison.random { "chance made no difference" } else { "nothing is random" };
        lines.push(format!(
            "{why} where there is no interval: the runs are alike, and differences are of one course of events"
        ));
    }
    if comparison.real_time.is_some() && rows().any(|row| row.label == emulated::KERNEL) {
        lines.push("kernel: the Linux kernel's own Multipath TCP sends".into());
    }
    if rows().any(|row| row.unfinished() > 0) {
        lines.push(format!(
            ">  runs that didn't finish count as the limit of {} (`--limit`); they are in no ratio",
            comparison.limit_text()
        ));
    }
    if versus().any(|versus| matches!(versus, Versus::Unfinished { own: 0, .. })) {
        lines.push("unfinished: not compared, since the other didn't finish all its runs".into());
    }
    lines.join("\n") + "\n"
}

/// Boxes for each workload; for the last, the winner's run and the next one's with the same seed in time.
pub(super) fn plot(request: &Request, comparison: &Comparison) -> String {
    let mut text = String::new();
    for ranking in &comparison.rankings {
        text += &format!("\n{} (line: all runs, box: the middle half, bar: the median)\n", ranking.title);
        text += &terminal::boxes(ranking);
    }
    let last = comparison.rankings.len().saturating_sub(1);
    let mut runs = Vec::new();
    rope::trace(request, comparison, Budget { segments: 0 }, ropewalk_sim::run, |place, names, result| {
        if place.ranking == last {
            runs.push((place.clone(), names.to_vec(), result.clone()));
        }
    });
    let longest = runs.iter().map(|(_, _, result)| result.duration).max().unwrap_or(0);
    for (place, names, result) in &runs {
        text += &format!(
            "\n{}, seed {}, in flight over time (sent again: r on its subflow, i reinjected, d duplicated)\n",
            place.scheduler, place.seed
        );
        text += &terminal::strands(names, result, longest);
    }
    text
}

fn section(ranking: &Ranking, limit: f64) -> String {
    let versus = ranking.best_tcp.as_deref().map_or("vs tcp".into(), |label| format!("vs {label}"));
    let head = [
        "",
        "scheduler",
        "mean",
        "95 % interval",
        "p50",
        "p95",
        "vs linux",
        &versus,
        "/ bound",
        "/ start",
        "repeated",
        "retrans",
        "",
    ];
    let mut table = Table::new(2, &head);
    for (place, of) in ranking.rows.iter().enumerate() {
        table.row(row(place + 1, of, limit));
    }
    let mut title = ranking.title.clone();
    title[..1].make_ascii_uppercase();
    let mut text = format!("{title}\n{}\n", table.render());
    for warning in comparison::warnings(ranking, limit) {
        text += &format!("{warning}\n\n");
    }
    text
}

/// A row for each run. `seconds` is the workload's measure, empty where the run didn't finish.
pub(super) fn csv(comparison: &Comparison) -> String {
    let mut text = String::from(
        "scenario,workload,scheduler,run,seed,outcome,seconds,bound_s,bound_window_s,repeated_bytes,retransmitted_segments,timeouts,scheduler_duplicated_bytes,opportunistic_bytes,reinjected_bytes,goodput_bit_per_s\n",
    );
    let quote = |field: &str| format!("\"{}\"", field.replace('"', "\"\""));
    let number = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
    for ranking in &comparison.rankings {
        for row in &ranking.rows {
            for (place, run) in row.each.iter().enumerate() {
                let outcome = match &run.outcome {
                    Outcome::Complete => "complete".into(),
                    Outcome::TimeLimit => "limit".into(),
                    Outcome::Failed(reason) => quote(&format!("failed: {reason}")),
                };
                let fields = [
                    quote(&comparison.scenario),
                    quote(&ranking.title),
                    quote(&row.label),
                    place.to_string(),
                    run.seed.to_string(),
                    outcome,
                    number(run.seconds),
                    number(run.bound.map(|bound| bound.capacity)),
                    number(run.bound.map(|bound| bound.window)),
                    run.repeated.to_string(),
                    run.retransmissions.to_string(),
                    run.timeouts.to_string(),
                    run.repeats.duplicated.to_string(),
                    run.repeats.opportunistic.to_string(),
                    run.repeats.reinjected.to_string(),
                    format!("{:.0}", run.goodput),
                ];
                text += &(fields.join(",") + "\n");
            }
        }
    }
    text
}
