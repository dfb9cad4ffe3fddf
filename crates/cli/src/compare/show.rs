//! A comparison as a table for people, as plots of characters, and as CSV.

use ropewalk_lab::compare::{
    Comparison, Decision, Design, FEW, Finding, Headline, MARGIN, Ranking, Request, Row, Standing, Versus,
    VersusFastest, headline, overall,
};
use ropewalk_lab::csv;
use ropewalk_lab::real_time;
use ropewalk_lab::report::rope::{self, Budget};
use ropewalk_lab::report::{comparison, terminal};
use ropewalk_lab::table::Table;
pub(crate) use ropewalk_settings::units::{short, short_bytes as bytes};
use ropewalk_sim::{Direction, Outcome, Scenario};

fn seconds(value: f64) -> String {
    if value < 0.9995 { format!("{} ms", short(value * 1e3)) } else { format!("{} s", short(value)) }
}

/// In brackets what could be chance.
fn percent(versus: Option<Versus>) -> String {
    match versus {
        None => "-".into(),
        Some(Versus::Unfinished { own: 0, .. }) => "unfinished".into(),
        Some(Versus::Unfinished { .. }) => "-".into(),
        Some(Versus::Ratio { ratio, finding }) => {
            let told = match finding {
                Finding::Tested { p } => p < 0.05,
                Finding::Alike => true,
                _ => false,
            };
            change((ratio.ratio - 1.0) * 100.0, told)
        }
    }
}

/// A change in per cent, in brackets if it could be chance.
fn change(percent: f64, told: bool) -> String {
    let text = match percent.abs() {
        below if below < 0.05 => "0.0 %".into(),
        below if below < 9.95 => format!("{percent:+.1} %"),
        _ => format!("{percent:+.0} %"),
    };
    if told { text } else { format!("({text})") }
}

/// The mean time. A run that doesn't finish counts as the limit in the mean, which is then a lower bound.
fn mean(row: &Row) -> String {
    let failed = row.each.iter().all(|run| matches!(run.outcome, Outcome::Failed(_)));
    match row.unfinished() {
        0 => seconds(row.mean),
        _ if failed => "failed".into(),
        _ => format!("> {}", seconds(row.mean)),
    }
}

/// One decimal below ten.
pub(crate) fn tenths(value: f64) -> String {
    if value < 9.95 { format!("{value:.1}") } else { format!("{value:.0}") }
}

pub(crate) fn counted(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn times(ratio: Option<f64>) -> String {
    ratio.map_or("-".into(), |ratio| format!("{ratio:.2}"))
}

/// The paths' shares of the bytes, in per cent: `62/38`.
pub(crate) fn shares(bytes: impl Iterator<Item = f64> + Clone) -> String {
    let all: f64 = bytes.clone().sum();
    let share = |bytes: f64| format!("{:.0}", bytes / all * 100.0);
    if all > 0.0 { bytes.map(share).collect::<Vec<_>>().join("/") } else { "-".into() }
}

fn row(place: &str, row: &Row, counts: bool) -> Vec<String> {
    // Half the interval's width: bootstrap intervals are nearly symmetric.
    let spread = row
        .interval
        .map_or("-".into(), |(low, high)| format!("{} %", tenths((high - low) / 2.0 / row.mean * 100.0)));
    let mut cells = vec![
        place.to_string(),
        row.label.clone(),
        mean(row),
        spread,
        row.p95.map_or("-".into(), seconds),
        percent(row.versus_linux),
        percent(row.versus_tcp),
        times(row.over_bound().map(|over| over.0)),
        shares(row.paths.iter().map(|part| part.bytes)),
        bytes(row.repeats.duplicated),
        bytes(row.repeats.opportunistic + row.repeats.reinjected),
        tenths(row.retransmissions),
    ];
    cells.extend(row.late_frames.map(|share| format!("{} %", tenths(share * 100.0))));
    if counts {
        cells.push(row.runs.to_string());
    }
    cells
}

/// What became of runs that didn't finish, and whose they are: a line for each that is the same.
fn unfinished(ranking: &Ranking, limit: f64) -> String {
    let mut told: Vec<(String, Vec<&str>)> = Vec::new();
    for row in &ranking.rows {
        let Some(why) = row.why_unfinished(limit) else { continue };
        match told.iter_mut().find(|(known, _)| *known == why) {
            Some((_, who)) => who.push(&row.label),
            None => told.push((why, vec![&row.label])),
        }
    }
    let line = |(why, who): (String, Vec<&str>)| {
        let names: Vec<String> = who.iter().map(|name| name.replace(' ', "\u{a0}")).collect();
        paragraph(&format!("{why}: {}", names.join(", "))).replace('\u{a0}', " ")
    };
    told.into_iter().map(line).collect()
}

/// The tables, what their columns mean, and the answer. `details`: a table for each workload, not one over
/// all.
pub(super) fn text(scenario: &Scenario, comparison: &Comparison, details: bool) -> String {
    let way = if scenario.direction == Direction::Upload { "upload" } else { "download" };
    let runs = match comparison.design {
        Design::Fixed(runs) => format!("{} each", counted(u64::from(runs), "run")),
        Design::Race { .. } => format!("up to {} each", counted(u64::from(comparison.runs), "run")),
    };
    let mut text = format!(
        "{}: {}\n{}, {way}, {}, {runs}, seeds from {}\n\n",
        scenario.name,
        scenario.summary,
        counted(scenario.paths.len() as u64, "path"),
        comparison.congestion,
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
    match (overview(comparison), details) {
        (Some(table), false) => text += &table,
        _ => {
            for ranking in &comparison.rankings {
                text += &section(ranking, comparison.decision.as_ref(), comparison.limit);
            }
            text += &legend(comparison);
        }
    }
    if let Some(real) = comparison.real_time {
        text += &format!("{}\n", real.tally.describe());
    }
    text + "\n" + &answer(&headline(comparison), details)
}

/// The most workloads that have a column each in the table over all of them.
const COLUMNS: usize = 5;

/// One table over all workloads, the fastest first; none for a single workload or too many of them.
fn overview(comparison: &Comparison) -> Option<String> {
    let (rankings, decision) = (&comparison.rankings, comparison.decision.as_ref()?);
    if !(2..=COLUMNS).contains(&rankings.len()) {
        return None;
    }
    let titles: Vec<String> = rankings.iter().map(|ranking| heading(&ranking.title)).collect();
    let mut head = vec!["", "scheduler"];
    head.extend(titles.iter().map(String::as_str));
    head.extend(["over\nfastest", "vs\nlinux", "vs best\ntcp", "sent\nagain"]);
    let mut table = Table::new(2, &head).within(WIDTH);
    let mut stands: Vec<&(String, VersusFastest)> = decision.stands.iter().collect();
    stands.sort_by(|a, b| a.1.ratio.total_cmp(&b.1.ratio));
    let equal = decision.with(Standing::Equal).len();
    for (index, (label, stand)) in stands.into_iter().enumerate() {
        let of = |ranking: &Ranking| ranking.rows.iter().find(|row| row.label == *label).cloned();
        let rows: Vec<Row> = rankings.iter().filter_map(of).collect();
        let mut cells = vec![
            match stand.standing {
                Standing::Equal if equal > 1 => "1=".into(),
                Standing::Open => "?".into(),
                _ => (index + 1).to_string(),
            },
            label.clone(),
        ];
        cells.extend(rows.iter().map(mean));
        let change = |ratio: f64, told: bool| change((ratio - 1.0) * 100.0, told);
        cells.push(change(stand.ratio, true));
        for pick in [|row: &Row| row.versus_linux, |row: &Row| row.versus_tcp] {
            let found = overall(rankings, label, pick);
            cells.push(found.map_or("-".into(), |found| change(found.ratio, found.told)));
        }
        let repeated: f64 = rows.iter().map(|row| row.duplicated).sum();
        let sent: f64 = rows.iter().flat_map(|row| &row.paths).map(|part| part.bytes).sum();
        cells.push(if sent > 0.0 { format!("{} %", tenths(repeated / sent * 100.0)) } else { "-".into() });
        table.row(cells);
    }
    let mut text = format!("Mean time by size\n{}\n", table.render());
    let few = (comparison.runs as usize) < FEW;
    text += &match few {
        true => format!("(..)  not compared: {FEW} runs are the least\n"),
        false => paragraph(&format!(
            "1= equal to the fastest within {:.0} %   ? not decided   (..) no significant difference",
            MARGIN * 100.0
        )),
    };
    if rankings.iter().flat_map(|ranking| &ranking.rows).any(|row| row.unfinished() > 0) {
        text += &format!(
            ">  runs that didn't finish count as the limit of {} (`--limit`); they are in no ratio\n",
            comparison.limit_text()
        );
    }
    Some(text)
}

/// A workload's title as the heading of a column.
fn heading(title: &str) -> String {
    let title = title.split([',', '(']).next().unwrap_or_default().trim();
    let title = title.strip_prefix("one flow of ").or(title.strip_prefix("a ")).unwrap_or(title);
    let mut lines: Vec<String> = Vec::new();
    for word in title.split(' ') {
        match lines.last_mut().filter(|line| line.len() + 1 + word.len() <= 9) {
            Some(line) => *line += &format!(" {word}"),
            None => lines.push(word.into()),
        }
    }
    lines.join("\n")
}

/// Width of lines for people.
pub(crate) const WIDTH: usize = 100;

/// Words in lines, the first behind `head`, the others behind as many spaces.
pub(crate) fn wrapped(head: &str, words: impl Iterator<Item = String>) -> String {
    let (mut text, mut column) = (head.to_string(), head.len());
    for (place, word) in words.enumerate() {
        let length = word.chars().count();
        if place > 0 && column + 1 + length > WIDTH {
            text += &format!("\n{}", " ".repeat(head.len()));
            column = head.len();
        } else if place > 0 {
            text.push(' ');
            column += 1;
        }
        text += &word;
        column += length;
    }
    text + "\n"
}

fn paragraph(text: &str) -> String {
    wrapped("", text.split(' ').map(String::from))
}

/// The groups if `details` are asked for, why the runs ended, and, last, the answer.
fn answer(headline: &Headline, details: bool) -> String {
    let mut text = String::new();
    for (title, names) in headline.groups.iter().filter(|_| details) {
        let last = names.len() - 1;
        let names = names.iter().enumerate();
        let names = names.map(|(place, name)| if place == last { name.clone() } else { format!("{name},") });
        // A name and its per cent stay together.
        text += &wrapped(&format!("  {title:<7} "), names.map(|name| name.replace(' ', "\u{a0}")));
    }
    if !text.is_empty() {
        text.push('\n');
    }
    if !headline.notes.is_empty() {
        text += &format!("{}\n", paragraph(&headline.notes.join(" ")));
    }
    text += &paragraph(&headline.sentence);
    for more in headline.named.iter().chain(&headline.matters) {
        text += &paragraph(more);
    }
    text.replace('\u{a0}', " ")
}

/// What a person does next: a few words and a command each.
pub(super) fn next(commands: &[(&str, String)]) -> String {
    let widest = commands.iter().map(|(what, _)| what.len()).max().unwrap_or(0);
    let line = |(what, command): &(&str, String)| format!("  {what:<widest$}  {command}\n");
    format!("\n{}", commands.iter().map(line).collect::<String>())
}

/// What the columns mean; of marks, those that are there.
fn legend(comparison: &Comparison) -> String {
    let rows = || comparison.rankings.iter().flat_map(|ranking| &ranking.rows);
    let versus = || rows().flat_map(|row| [row.versus_linux, row.versus_tcp]).flatten();
    let margin = MARGIN * 100.0;
    let mut lines = vec![
        "mean: arithmetic, over the runs, and half of its 95 % interval; vs: geometric mean of the ratios \
         of\nruns with the same seed"
            .to_string(),
        "x link bound: mean over the least that the row's links allow".into(),
        format!(
            "% by path: of the bytes sent, by {}; duplicated by the scheduler, reinjected by \
             the\nconnection, retransmitted by subflows: per run",
            rows().next().map_or(String::new(), |row| {
                row.paths.iter().map(|part| part.name.as_str()).collect::<Vec<_>>().join("/")
            })
        ),
    ];
    if rows().any(|row| row.late_frames.is_some()) {
        lines.push("late frames: delivered after their deadline, or not at all".into());
    }
    if rows().any(|row| (row.runs as usize) < FEW) {
        lines.insert(0, format!("(..)  not compared: {FEW} runs are the least"));
    } else {
        lines.insert(
            0,
            format!(
                "1=  shown to be equal to the fastest within {margin:.0} %   ?  not decided   (..)  no \
                 significant difference\n(at 5 %, paired over seeds, corrected for the number of comparisons)"
            ),
        );
    }
    let differ = |ranking: &Ranking| ranking.rows.iter().any(|row| row.runs != ranking.rows[0].runs);
    if comparison.rankings.iter().any(differ) {
        lines.push(
            "runs: no more of who is shown to be slower over all; its mean is scaled to the others' seeds"
                .into(),
        );
    }
    if versus().any(
        |versus| matches!(versus, Versus::Ratio { finding: Finding::Alike, ratio } if ratio.ratio != 1.0),
    ) {
        let why = if comparison.random { "chance made no difference" } else { "nothing is random" };
        lines.push(format!(
            "{why} where there is no interval: the runs are alike, and\ndifferences are of one course of \
             events"
        ));
    }
    if comparison.real_time.is_some() && rows().any(|row| row.label == real_time::KERNEL) {
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
    let longest = runs.iter().map(|(_, _, result)| result.duration).max().unwrap_or_default();
    for (place, names, result) in &runs {
        text += &format!(
            "\n{}, seed {}{}, in flight over time (sent again: r on its subflow, i reinjected, d \
             duplicated)\n",
            place.scheduler,
            place.seed,
            // The time beneath is that of the part that was traced.
            if place.shortened {
                format!(", the first {}", bytes(result.delivered_bytes as f64))
            } else {
                String::new()
            }
        );
        text += &terminal::timelines(names, result, longest);
    }
    text
}

/// Places: `1=` for all that are equal to the fastest, `?` where that isn't decided. Who is slower over all
/// workloads runs no more, and has a number.
fn places(rows: &[Row], decision: Option<&Decision>) -> Vec<String> {
    let out = |row: &Row| {
        let stand = decision.and_then(|decision| decision.of(&row.label));
        stand.is_some_and(|stand| stand.standing == Standing::Slower)
    };
    let equal = rows.iter().filter(|row| row.standing == Standing::Equal).count();
    let place = |(index, row): (usize, &Row)| match row.standing {
        // The fastest by the ratios needn't be first by the mean.
        Standing::Equal if equal > 1 || index > 0 => "1=".into(),
        Standing::Equal => "1".into(),
        Standing::Open if !out(row) => "?".into(),
        Standing::Open | Standing::Slower => (index + 1).to_string(),
    };
    rows.iter().enumerate().map(place).collect()
}

fn section(ranking: &Ranking, decision: Option<&Decision>, limit: f64) -> String {
    let versus = ranking
        .best_tcp
        .as_deref()
        .map_or("vs\ntcp".into(), |label| format!("vs tcp\n{}", label.strip_prefix("tcp ").unwrap_or(label)));
    let counts = ranking.rows.iter().any(|row| row.runs != ranking.rows[0].runs);
    let mut head = vec![
        "",
        "scheduler",
        "mean",
        "+-",
        "p95",
        "vs\nlinux",
        &versus,
        "x\nlink\nbound",
        "% by\npath",
        "dupli-\ncated",
        "rein-\njected",
        "re-\ntrans-\nmits",
    ];
    if ranking.rows.iter().any(|row| row.late_frames.is_some()) {
        head.push("late\nframes");
    }
    if counts {
        head.push("runs");
    }
    let mut table = Table::new(2, &head).within(WIDTH);
    for (place, of) in places(&ranking.rows, decision).iter().zip(&ranking.rows) {
        table.row(row(place, of, counts));
    }
    let mut title = ranking.title.clone();
    title[..1].make_ascii_uppercase();
    let unfinished = unfinished(ranking, limit);
    let gap = if unfinished.is_empty() { "" } else { "\n" };
    let mut text = format!("{title}\n{}{gap}{unfinished}\n", table.render());
    for warning in comparison::warnings(ranking, limit) {
        text += &format!("{warning}\n\n");
    }
    text
}

/// A row for each run. `seconds` is the workload's measure, empty where the run didn't finish.
pub(super) fn csv(comparison: &Comparison) -> String {
    let mut text = String::from(
        "scenario,workload,scheduler,run,seed,outcome,seconds,bound_s,bound_window_s,repeated_bytes,\
         retransmitted_segments,timeouts,scheduler_duplicated_bytes,opportunistic_bytes,\
         reinjected_bytes,goodput_bit_per_s\n",
    );
    for ranking in &comparison.rankings {
        for row in &ranking.rows {
            for (place, run) in row.each.iter().enumerate() {
                let outcome = match &run.outcome {
                    Outcome::Complete => "complete".into(),
                    Outcome::TimeLimit => "limit".into(),
                    Outcome::Failed(reason) => csv::field(&format!("failed: {reason}")),
                };
                let fields = [
                    csv::field(&comparison.scenario),
                    csv::field(&ranking.title),
                    csv::field(&row.label),
                    place.to_string(),
                    run.seed.to_string(),
                    outcome,
                    csv::optional(run.seconds),
                    csv::optional(run.bound.map(|bound| bound.capacity)),
                    csv::optional(run.bound.map(|bound| bound.window)),
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
