//! The pages: an overview with a grid of verdicts, and for each paper a page with its figures drawn, its
//! claims and its numbers; what is too long for a page is a table beside it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use ropewalk_lab::stats;

use super::cells::Grid;
use super::judge::{InSetting, Verdict};
use super::notes::{Counted, Results};
use super::overview::{self, Entry, agreement, by_reading, each_reading, entry_path, folder};
use super::plan::{FITTED, MAIN};
use super::report::{number, time};
use super::run::Outcome;
use super::{Figure, Fitted, Kind, Paper, PaperError, World, csv, figures, notes};

/// One of the two settings' logarithms.
type Pick = fn(&(f64, f64)) -> f64;

/// What follows a page's words.
const AGAIN: &str = "\n\nAgain: `";

/// A page: where, beside the overview, and its text.
type Page = (String, String);

/// The overview's text, and the other files by their path beside it. Papers of `kept`, whose results are
/// beside it already, have their lines in the overview as well.
///
/// # Errors
/// A note that refers to no result, or that its result contradicts.
pub fn pages(outcomes: &[Outcome], kept: &[Entry], command: &str) -> Result<(String, Vec<Page>), PaperError> {
    let mut files = Vec::new();
    let mut entries = kept.to_vec();
    let world = outcomes.first().map_or(World::Simulated, |outcome| outcome.world);
    for outcome in outcomes {
        let name = &outcome.paper.name;
        let table = csv::table(outcome);
        let results = csv::results(&table)?;
        let note = |id: &str| words_of(outcome, &results, id);
        let entry = Entry::of(outcome, note(notes::summary(world))?);
        if outcome.whole() {
            files.push((entry_path(world, name), entry.text()));
        }
        entries.retain(|kept| kept.name != *name);
        entries.push(entry);
        let mut pictures = figures::redrawn(&outcome.paper, world, &table)?;
        for figure in outcome.paper.plan.figures.iter().filter(|figure| figure.kind == Kind::Series) {
            let svg = figures::over_time(outcome, figure).svg();
            if figure.world == world && !svg.is_empty() {
                pictures.push((figures::path(&outcome.paper, world, &figure.id), svg));
            }
        }
        files.push((format!("{}/{name}.md", folder(world)), page(outcome, &pictures, &note)?));
        files.extend(pictures);
        files.push((format!("{}/{name}.csv", folder(world)), table));
    }
    let whole = outcomes.iter().all(Outcome::whole);
    Ok((overview::text(&entries, world, (!whole).then_some(command)), files))
}

/// A note with its numbers filled in; none if there is none, or only part of the results.
pub(super) fn words_of(outcome: &Outcome, results: &Results, id: &str) -> Result<Option<String>, PaperError> {
    match outcome.paper.notes.get(id) {
        Some(note) if outcome.whole() => {
            let counted = |setting: &InSetting| Counted {
                agree: setting.agree,
                ties: setting.ties,
                all: setting.cells,
            };
            let settings = outcome.judgements.iter().flat_map(|judgement| {
                let settings = judgement
                    .settings
                    .iter()
                    .map(move |setting| ((setting.variant.clone(), judgement.id.clone()), counted(setting)));
                let readings = judgement.readings.iter().map(move |(figure, setting)| {
                    ((MAIN.into(), format!("{}@{figure}", judgement.id)), counted(setting))
                });
                settings.chain(readings)
            });
            notes::fill(note.trim(), results, &settings.collect()).map(Some).map_err(|error| {
                PaperError::Note {
                    paper: outcome.paper.name.clone(),
                    note: id.into(),
                    error: Box::new(error),
                }
            })
        }
        _ => Ok(None),
    }
}

/// A paper's page and entry with the words of its notes as they are now, filled in from the table beside
/// them: nothing runs.
///
/// # Errors
/// A note that refers to no result, or that its result contradicts; a page that isn't that of the entry.
pub fn reworded(
    paper: &Paper,
    world: World,
    (page, table, entry): (&str, &str, &Entry),
) -> Result<(String, Entry), PaperError> {
    let results = csv::results(table)?;
    let agreements = entry.agreements(paper);
    let filled = |id: &str| {
        let filled = paper.notes.get(id).map(|note| notes::fill(note.trim(), &results, &agreements));
        filled.transpose().map_err(|error| PaperError::Note {
            paper: paper.name.clone(),
            note: id.into(),
            error: Box::new(error),
        })
    };
    let summary = filled(notes::summary(world))?;
    let old = entry.summary.as_deref().unwrap_or_default();
    let parts = page.split_once(AGAIN).and_then(|(head, rest)| Some((head.strip_suffix(old)?, rest)));
    let (head, rest) = parts.ok_or_else(|| PaperError::Unreadable {
        file: format!("{}/{}.md", folder(world), paper.name),
        reason: "not the page of the results beside it".into(),
    })?;
    let words = summary.as_ref().map_or(String::new(), |words| format!("\n\n{words}"));
    let mut page = format!("{}{words}{AGAIN}{rest}", head.trim_end());
    for (id, _) in notes::of(paper, world) {
        if let Some(claim) = paper.claims.iter().find(|claim| claim.id == id)
            && let Some(place) = entry.claims.iter().position(|line| line.claim == claim.text)
            && let Some(note) = filled(id)?
        {
            page = with_note(&page, place, &note).unwrap_or(page);
        }
    }
    Ok((page, Entry { summary, ..entry.clone() }))
}

/// The page with another note on its claim at this place; `None`: the page has none.
fn with_note(page: &str, place: usize, note: &str) -> Option<String> {
    let start = format!("\n\n{}", note_of(place));
    let (before, old) = page.split_once(&start)?;
    let after = old.find("\n\n").map_or("\n", |end| &old[end..]);
    Some(format!("{before}{start}{note}{after}"))
}

/// How the note on a claim begins.
fn note_of(place: usize) -> String {
    format!("**{}:** ", place + 1)
}

fn page(
    outcome: &Outcome,
    pictures: &[Page],
    note: &dyn Fn(&str) -> Result<Option<String>, PaperError>,
) -> Result<String, PaperError> {
    let plan = &outcome.paper.plan;
    let name = &outcome.paper.name;
    let mut text = format!("# {}\n\n{}.\n\nMeasured on: {}.\n", plan.title, plan.source, plan.testbed);
    if let Some(tally) = &outcome.tally {
        let _ = writeln!(text, "\n{}.", tally.describe());
    }
    if let Some(summary) = note(notes::summary(outcome.world))? {
        let _ = writeln!(text, "\n{summary}");
    }
    let real = outcome.world == World::Emulated;
    let world = if real { " --world emulated" } else { "" };
    text.truncate(text.trim_end().len());
    text += AGAIN;
    let _ = writeln!(
        text,
        "ropewalk-papers reproduce run {name}{world}` ({} runs, {} of computing). [All numbers, in each \
         setting, with 95 % intervals]({name}.csv).",
        outcome.total,
        time(outcome.computing)
    );
    text += "\n## Assumptions\n\nWhere the paper is silent:\n\n";
    let assumptions = if real { &plan.real_assumptions } else { &plan.assumptions };
    for assumption in assumptions {
        let _ = writeln!(text, "- {assumption}");
    }
    let _ = writeln!(
        text,
        "- Opportunistic retransmission and penalisation of every scheduler: `{}`.",
        plan.mechanisms
    );
    let mut exceptions: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for row in
        plan.figures.iter().filter(|figure| figure.world == outcome.world).flat_map(|figure| &figure.rows)
    {
        if let Some(reason) = &row.mechanisms_reason {
            let own = row.settings.mechanisms.as_deref().unwrap_or(&plan.mechanisms);
            exceptions.entry((own, reason)).or_default().insert(&row.label);
        }
    }
    for ((own, reason), rows) in exceptions {
        let rows = Vec::from_iter(rows).join(", ");
        let _ = writeln!(text, "- Except {rows}, `{own}`: {reason}.");
    }
    if !real {
        text += &fitted(outcome);
    }
    text += &claims(outcome, note)?;
    for (place, figure) in plan.figures.iter().enumerate().filter(|(_, figure)| figure.world == outcome.world)
    {
        let grids: Vec<&Grid> = outcome.grids.iter().filter(|grid| grid.figure == place).collect();
        let _ = writeln!(text, "\n## {}\n", figure.title);
        let path = figures::path(&outcome.paper, outcome.world, &figure.id);
        let is_drawn = pictures.iter().any(|(known, _)| *known == path);
        if is_drawn {
            let _ = writeln!(text, "![{}]({name}-{}.svg)\n", figure.id, figure.id);
        }
        text += &numbers(outcome, figure, &grids, is_drawn);
    }
    Ok(text)
}

/// How open parts of the scheduler's rule are read, and what each value gave.
fn readings(fit: &Fitted) -> String {
    let mut text = String::new();
    for read in &fit.readings {
        let _ = writeln!(
            text,
            "\nReadings of the scheduler's own rule, {}, by how many comparisons of the claim {} agree as \
             fitted:\n",
            read.name,
            read.judged_by.join(", ")
        );
        let mut by_agreement: BTreeMap<_, Vec<String>> = BTreeMap::new();
        for (label, agree, cells, _) in &read.tried {
            let shown = if *label == read.best { format!("**{label}**") } else { label.clone() };
            by_agreement.entry((Reverse(*agree), *cells)).or_default().push(shown);
        }
        for ((Reverse(agree), cells), labels) in by_agreement {
            let _ = writeln!(text, "- {agree} of {cells}: {}", labels.join(" | "));
        }
    }
    text
}

fn fitted(outcome: &Outcome) -> String {
    let unknowns = &outcome.paper.unknowns;
    let mut text = String::from("\n## What the paper leaves open\n\n");
    if let Some(none) = &unknowns.none {
        let _ = writeln!(text, "Nothing was fitted: {none}.\n");
    } else {
        let _ = writeln!(
            text,
            "Fitted to the rows {} of {}{}; tested on the other rows and on {}.\n",
            unknowns.rows.join(", "),
            if unknowns.fitted.is_empty() { "no table".into() } else { unknowns.fitted.join(", ") },
            if unknowns.claims.is_empty() {
                String::new()
            } else {
                format!(", and to the orders that the claims {} say", unknowns.claims.join(", "))
            },
            unknowns.held_out.join(", ")
        );
    }
    if let Some(fit) = &outcome.paper.fitted {
        let _ = writeln!(
            text,
            "`{}` tried {} settings. Distance (RMS of the logarithm of measured over published): {:.3} in \
             the best, {:.3} as assumed.\n",
            fit.command, fit.tried, fit.distance, fit.ruled
        );
        if let Some(choice) = &fit.choice {
            let _ = writeln!(text, "{}\n", choice.words(fit.distance));
        }
        if let Some(tested) = &fit.self_test {
            let _ = writeln!(text, "{}\n", tested.words());
        }
        text += "| setting | best | distance grows by, if it alone is changed |\n|---|---|---|\n";
        for value in &fit.values {
            let (least, most) = value.matters;
            let (least, most) = (format!("{least:+.3}"), format!("{most:+.3}"));
            let range = if least == most { least } else { format!("{least} to {most}") };
            let _ = writeln!(text, "| {} | {} | {range} |", value.name, value.best);
        }
        if fit.values.iter().any(|value| !value.marginal.is_empty()) {
            let _ = writeln!(
                text,
                "\n![Open settings: prior and last population]({}-marginals.svg)",
                outcome.paper.name
            );
        }
        text += &inside(outcome);
        text += &ranks(outcome);
        text += &readings(fit);
    }
    if !outcome.paper.plan.open.is_empty() {
        let name = &outcome.paper.name;
        let _ = writeln!(
            text,
            "\n[{name}](../../papers/{name}/paper.toml) has {} settings more, and why; each ran alone \
             ([results]({name}.csv)).",
            outcome.paper.plan.open.iter().map(|open| open.values.len()).sum::<usize>()
        );
    }
    text
}

/// Published cells within 10 and 25 %, fitted ones and others apart.
fn inside(outcome: &Outcome) -> String {
    let unknowns = &outcome.paper.unknowns;
    let head = String::from(
        "\n| figure | rows | cells | within 10 %, as assumed | fitted | within 25 %, as assumed | fitted | \
         log-RMS, as assumed | fitted |\n|---|---|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    let mut text = head.clone();
    for (place, figure) in
        outcome.paper.plan.figures.iter().enumerate().filter(|(_, figure)| figure.against.is_none())
    {
        let grid =
            |variant: &str| outcome.grids.iter().find(|grid| grid.figure == place && grid.variant == variant);
        let (Some(main), Some(fitted)) = (grid(MAIN), grid(FITTED)) else { continue };
        for seen in [true, false] {
            let mut logs = Vec::new();
            for (row, row_line) in figure.rows.iter().enumerate() {
                for (column, column_line) in figure.columns.iter().enumerate() {
                    let own = unknowns.fitted.contains(&figure.id)
                        && unknowns.rows.contains(&row_line.label)
                        && (unknowns.columns.is_empty() || unknowns.columns.contains(&column_line.label));
                    let printed = outcome.paper.published.iter().find(|number| {
                        number.table == figure.id
                            && number.row == row_line.label
                            && number.column == column_line.label
                    });
                    if let (true, Some(printed)) = (own == seen, printed) {
                        let log = |grid: &Grid| {
                            let mean = stats::mean(&grid.cells[row][column].values);
                            libm::log((mean + printed.half) / (printed.value + printed.half))
                        };
                        logs.push((log(main), log(fitted)));
                    }
                }
            }
            if logs.is_empty() {
                continue;
            }
            let near = |percent: f64, pick: Pick| {
                logs.iter().filter(|both| libm::expm1(pick(both)).abs() * 100.0 <= percent).count()
            };
            let rms = |pick: Pick| {
                libm::sqrt(logs.iter().map(|both| pick(both) * pick(both)).sum::<f64>() / logs.len() as f64)
            };
            let (ruled, found): (Pick, Pick) = (|both| both.0, |both| both.1);
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} | {:.2} | {:.2} |",
                figure.id,
                if seen { "fitted to" } else { "not looked at" },
                logs.len(),
                near(10.0, ruled),
                near(10.0, found),
                near(25.0, ruled),
                near(25.0, found),
                rms(ruled),
                rms(found)
            );
        }
    }
    if text == head { String::new() } else { text }
}

/// Of the pairs of published cells of the same row, how many have the published order here.
fn ranks(outcome: &Outcome) -> String {
    let mut text = String::new();
    let mut all = Some(0);
    for (place, figure) in
        outcome.paper.plan.figures.iter().enumerate().filter(|(_, figure)| figure.against.is_none())
    {
        let grid =
            |variant: &str| outcome.grids.iter().find(|grid| grid.figure == place && grid.variant == variant);
        let (Some(main), Some(fitted)) = (grid(MAIN), grid(FITTED)) else { continue };
        // Columns of different measures have no order.
        if figure.columns.iter().any(|column| column.metric.is_some()) {
            continue;
        }
        let mut sum = (0, 0, 0);
        for (row, line) in figure.rows.iter().enumerate() {
            let printed: Vec<(usize, f64)> = (0..figure.columns.len())
                .filter_map(|column| {
                    let label = &figure.columns[column].label;
                    let found = outcome.paper.published.iter().find(|number| {
                        number.table == figure.id && number.row == line.label && number.column == *label
                    })?;
                    Some((column, found.value))
                })
                .collect();
            let agree = |grid: &Grid| {
                let mean = |column: usize| stats::mean(&grid.cells[row][column].values);
                order_agreement(
                    &printed.iter().map(|(column, value)| (*value, mean(*column))).collect::<Vec<_>>(),
                )
            };
            let ((pairs, ruled), (_, found)) = (agree(main), agree(fitted));
            sum = (sum.0 + pairs, sum.1 + ruled, sum.2 + found);
        }
        let (pairs, ruled, found) = sum;
        all = all.filter(|_| ruled == pairs && found == pairs).map(|sum| sum + pairs);
        if pairs > 0 {
            let _ = writeln!(text, "| {} | {pairs} | {ruled} | {found} |", figure.id);
        }
    }
    if text.is_empty() {
        return text;
    }
    if let Some(pairs) = all {
        return format!(
            "\nAll {pairs} pairs of cells of the same row have the published order, with the \
             assumed settings and with the fitted ones.\n"
        );
    }
    format!(
        "\nPairs of cells of the same row that have the published order:\n\n\
         | figure | pairs | as assumed | fitted |\n|---|---:|---:|---:|\n{text}"
    )
}

/// Pairs of published values that differ, and how many of them have the same order here.
fn order_agreement(cells: &[(f64, f64)]) -> (usize, usize) {
    let pairs = cells.iter().enumerate().flat_map(|(at, a)| cells[at + 1..].iter().map(move |b| (a, b)));
    let differ: Vec<_> = pairs.filter(|(a, b)| a.0 != b.0).collect();
    let same = differ.iter().filter(|(a, b)| (a.0 < b.0) == (a.1 < b.1) && a.1 != b.1).count();
    (differ.len(), same)
}

fn claims(
    outcome: &Outcome,
    note: &dyn Fn(&str) -> Result<Option<String>, PaperError>,
) -> Result<String, PaperError> {
    let columns = [
        "",
        "claim",
        "verdict",
        "comparisons that agree",
        "as assumed",
        "fitted",
        "reproduced in other settings",
    ];
    let mut rows = vec![columns.map(String::from)];
    for (place, judgement) in outcome.judgements.iter().enumerate() {
        let of = |variant: &str| judgement.settings.iter().find(|setting| setting.variant == variant);
        let others: Vec<_> =
            judgement.settings.iter().filter(|it| ![MAIN, FITTED].contains(&it.variant.as_str())).collect();
        let holding = others.iter().filter(|setting| setting.verdict == Verdict::Reproduced).count();
        // How many there are stands before.
        let few = |detail: &str| if detail.matches("; ").count() < 2 { detail.into() } else { String::new() };
        let detail = |variant: &str| of(variant).map_or("-".into(), |setting| few(&setting.detail));
        let assumed = detail(MAIN);
        rows.push([
            (place + 1).to_string(),
            judgement.text.clone(),
            format!("**{}**", judgement.verdict.words()),
            by_reading(&agreement(judgement), &each_reading(judgement)),
            assumed.clone(),
            unlabelled(&detail(FITTED), &assumed),
            if others.is_empty() { "-".into() } else { format!("{holding} of {}", others.len()) },
        ]);
    }
    // No column without a value.
    let has_value =
        |&at: &usize| at < 4 || rows[1..].iter().any(|row| !["", "-"].contains(&row[at].as_str()));
    let shown: Vec<usize> = (0..columns.len()).filter(has_value).collect();
    let mut text = String::from("\n## Claims\n\n");
    for (n, row) in rows.iter().enumerate() {
        let cells: Vec<&str> = shown.iter().map(|&at| row[at].as_str()).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
        if n == 0 {
            let lines = shown.iter().map(|at| if [0, 6].contains(at) { "---:|" } else { "---|" });
            let _ = writeln!(text, "|{}", lines.collect::<String>());
        }
    }
    for (place, judgement) in outcome.judgements.iter().enumerate() {
        if let Some(note) = note(&judgement.id)? {
            let _ = writeln!(text, "\n{}{note}", note_of(place));
        }
    }
    Ok(text)
}

/// The fitted setting's comparisons without their labels, which stand beside them.
fn unlabelled(fitted: &str, assumed: &str) -> String {
    let labels: Vec<_> =
        assumed.split("; ").map(|one| one.split_once(": ").map(|(label, _)| label)).collect();
    if labels.len() != fitted.split("; ").count() {
        return fitted.into();
    }
    let bare = |(one, label): (&str, Option<&str>)| {
        let value = label.and_then(|label| one.strip_prefix(label)?.strip_prefix(": "));
        value.unwrap_or(one).to_string()
    };
    fitted.split("; ").zip(labels).map(bare).collect::<Vec<_>>().join("; ")
}

/// One or two comparisons, or how many there are: their numbers are in the figures' tables.
pub(super) fn shortened(detail: &str) -> String {
    match detail.split("; ").count() {
        1 | 2 => detail.into(),
        more => format!("{more} comparisons"),
    }
}

/// A figure's numbers beside the published ones. Of rows without such the picture says enough: their
/// numbers are in the table of all.
fn numbers(outcome: &Outcome, figure: &Figure, grids: &[&Grid], is_drawn: bool) -> String {
    let Some(main) = grids.iter().find(|grid| grid.variant == MAIN) else { return String::new() };
    let fitted = grids.iter().find(|grid| grid.variant == FITTED);
    let found = |row: &str, column: &str| {
        let mut published = outcome.paper.published.iter();
        published.find(|number| number.table == figure.id && number.row == row && number.column == column)
    };
    let is_published = figure
        .rows
        .iter()
        .any(|row| figure.columns.iter().any(|column| found(&row.label, &column.label).is_some()));
    if is_drawn && !is_published {
        return String::new();
    }
    // What is only measured in one setting needs no column for it.
    let setting = |name: &str| {
        if fitted.is_some() || is_published { format!(" {name} |") } else { String::new() }
    };
    let units = (0..figure.columns.len()).map(|column| {
        let shown = |row: usize| super::report::shown(figure, main, row, column);
        (0..figure.rows.len()).find_map(shown).map_or("", |(_, unit)| unit)
    });
    let units: Vec<&str> = units.collect();
    let common = units.first().filter(|first| units.iter().all(|unit| unit == *first));
    let row = match common {
        Some(unit) if !unit.is_empty() => format!("row, in {unit}"),
        _ => "row".into(),
    };
    let mut text = format!("| {row} |{}", setting("setting"));
    for (column, unit) in figure.columns.iter().zip(&units) {
        let unit = if common.is_some() || unit.is_empty() { String::new() } else { format!(", {unit}") };
        let _ = write!(text, " {}{unit} |", column.label);
    }
    let _ = write!(text, "\n|---|{}", if setting("").is_empty() { "" } else { "---|" });
    text += &"---:|".repeat(figure.columns.len());
    text += "\n";
    for (row, line) in figure.rows.iter().enumerate() {
        let printed: Vec<String> = figure
            .columns
            .iter()
            .map(|column| {
                let found = found(&line.label, &column.label);
                found.map_or(String::new(), |number| self::number(number.value))
            })
            .collect();
        if is_published && printed.iter().all(String::is_empty) {
            continue;
        }
        // The row's name stands once.
        let mut label = line.label.as_str();
        if is_published {
            let _ = writeln!(text, "| {label} |{} {} |", setting("published"), printed.join(" | "));
            label = "";
        }
        for grid in [Some(main), fitted].into_iter().flatten() {
            let cells: Vec<String> = (0..figure.columns.len())
                .map(|column| {
                    let Some((values, _)) = super::report::shown(figure, grid, row, column) else {
                        return "-".into();
                    };
                    let cut = super::report::cut_off(&grid.cells[row][column]);
                    number(stats::mean(&values)) + &cut
                })
                .collect();
            let _ = writeln!(
                text,
                "| {label} |{} {} |",
                setting(if grid.variant == MAIN { "assumed" } else { &grid.variant }),
                cells.join(" | ")
            );
            label = "";
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{order_agreement, unlabelled};

    #[test]
    fn labels_that_stand_beside_are_left_out() {
        assert_eq!(
            unlabelled("Delay: -1 %; Jitter: the same runs", "Delay: +2 %; Jitter: +3 %"),
            "-1 %; the same runs"
        );
        assert_eq!(unlabelled("Delay: -1 %", "Jitter: +3 %"), "Delay: -1 %");
        assert_eq!(unlabelled("-", "Delay: +3 %"), "-");
    }

    #[test]
    fn pairs_in_the_published_order_are_counted_and_ties_are_none() {
        assert_eq!(order_agreement(&[(1.0, 10.0), (2.0, 20.0), (3.0, 15.0)]), (3, 2));
        assert_eq!(order_agreement(&[(1.0, 5.0), (1.0, 9.0), (2.0, 5.0)]), (2, 0));
        assert_eq!(order_agreement(&[(1.0, 5.0)]), (0, 0));
    }
}
