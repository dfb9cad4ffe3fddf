//! The answer in a few lines: which candidates are equal, what they gain, which one is named and why, and why
//! the runs ended. It claims what the intervals and the corrected comparisons bear out.

use std::collections::BTreeSet;

use ropewalk_sim::Outcome;

use super::decide::{Decision, MARGIN, Standing};
use super::system::Merit;
use super::versus::{FEW, Finding, Versus, told_in_any};
use super::{Comparison, Ranking, Row};
use crate::stats;

/// The answer, for people.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Headline {
    /// The group, and its gain.
    pub sentence: String,
    /// The one to use, and by which rule.
    pub named: Option<String>,
    /// Where the choice matters most and least.
    pub matters: Option<String>,
    /// Why the runs ended, and what else a reader must know; a sentence each.
    pub notes: Vec<String>,
    /// Names by what was shown of them: `fastest` or `equal`, `likely` (equal, but not shown), `open`,
    /// `slower`.
    pub groups: Vec<(&'static str, Vec<String>)>,
}

/// The sentence and the name.
pub fn verdict(comparison: &Comparison) -> String {
    let headline = headline(comparison);
    let parts = [Some(headline.sentence), headline.named].into_iter().flatten();
    parts.collect::<Vec<_>>().join(" ")
}

/// The answer.
pub fn headline(comparison: &Comparison) -> Headline {
    let only = |sentence: String| Headline { sentence, ..Headline::default() };
    let rankings = &comparison.rankings;
    let (Some(first), Some(decision)) = (rankings.first(), &comparison.decision) else {
        return only("Nothing was run.".into());
    };
    if rankings.iter().all(|ranking| ranking.rows.iter().all(|row| row.finished == 0)) {
        return only(nothing(comparison));
    }
    let fastest = decision.fastest.as_deref().unwrap_or(&first.rows[0].label);
    let over = if rankings.len() > 1 { " over all workloads" } else { "" };
    let runs = comparison.runs;
    if (runs as usize) < FEW {
        let each = if runs == 1 { "one run" } else { &format!("{runs} runs") };
        return only(format!(
            "`{fastest}` has the least mean{over}, but {each} of each can't be compared: {FEW} are the least."
        ));
    }
    let mut notes = Vec::new();
    notes.push(sentence_of(&decision.ended_text(comparison)));
    notes.extend(comparison.worth.text().map(sentence_of));
    if decision.named.as_ref().is_some_and(|(name, _)| unfinished(rankings, name) > 0) {
        notes.push("Some of its runs didn't finish.".into());
    }
    let alike = |row: &Row| [row.versus_linux, row.versus_tcp].into_iter().flatten().any(is_alike);
    if rankings.iter().flat_map(|ranking| &ranking.rows).any(alike) {
        notes.push(format!(
            "{}, so these are differences of one course of events.",
            sentence(comparison.alike())
        ));
    }
    notes.extend(comparison.rests_on.as_deref().map(sentence_of));
    if comparison.is_cut_short() {
        notes.push(format!("What took longer than {} was ended there (`--limit`).", comparison.limit_text()));
    }
    let single = |label: &str| first.rows.iter().any(|row| row.single_path && row.label == label);
    Headline {
        sentence: group(comparison, decision, &single),
        named: decision.named.as_ref().map(|(name, merit)| use_this(decision, name, *merit, &single)),
        matters: matters(rankings),
        notes,
        groups: groups(decision),
    }
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().collect::<String>() + chars.as_str())
}

fn sentence_of(text: &str) -> String {
    sentence(text) + "."
}

fn is_alike(versus: Versus) -> bool {
    matches!(versus, Versus::Ratio { ratio, finding: Finding::Alike } if ratio.ratio != 1.0)
}

fn unfinished(rankings: &[Ranking], label: &str) -> u32 {
    rankings.iter().filter_map(|ranking| row(ranking, label)).map(Row::unfinished).sum()
}

/// `TCP on wifi` of `tcp wifi`.
fn said(label: &str, single: &impl Fn(&str) -> bool) -> String {
    match label.strip_prefix("tcp ").filter(|_| single(label)) {
        Some(path) => format!("TCP on {path}"),
        None => format!("`{label}`"),
    }
}

/// How many are equal, and what they gain.
fn group(comparison: &Comparison, decision: &Decision, single: &impl Fn(&str) -> bool) -> String {
    let margin = format!("{:.0} %", MARGIN * 100.0);
    let (equal, likely, open) =
        (decision.with(Standing::Equal), decision.likely(), decision.with(Standing::Open));
    let all = decision.stands.iter().filter(|(label, _)| !single(label)).count();
    let named = decision.named.as_ref().map(|(name, _)| name.as_str()).unwrap_or_default();
    let fastest = decision.fastest.as_deref().unwrap_or_default();
    let gain = gains(comparison, named);
    let gain = if gain.is_empty() { String::new() } else { format!(": {}", gain.join(", ")) };
    if equal.len() + open.len() <= 1 {
        let others = decision.stands.len() - 1;
        return match single(fastest) {
            true => format!(
                "{} is more than {margin} faster than any scheduler: Multipath TCP gains nothing here.",
                said(fastest, single)
            ),
            false if others == 0 => format!("`{fastest}` is the only candidate."),
            false => format!("`{fastest}` is more than {margin} faster than the {others} others{gain}."),
        };
    }
    if single(named) {
        let tcp = said(named, single);
        return if named == fastest {
            format!("{tcp} is the fastest in the mean: Multipath TCP gains nothing here.")
        } else if equal.contains(&named) {
            format!("{tcp} is as fast as any scheduler, within {margin}: Multipath TCP gains nothing here.")
        } else if likely.contains(&named) {
            format!("{tcp} is likely as fast as any scheduler, within {margin}: use no Multipath TCP here.")
        } else {
            format!("{} isn't shown to be more than {margin} faster than {tcp}.", said(fastest, single))
        };
    }
    let of = |labels: &[&str]| labels.iter().filter(|label| !single(label)).count();
    match (of(&equal) + of(&likely), of(&likely)) {
        (1, _) => {
            let others = counted(open.len(), "other isn't", "others aren't");
            format!("`{fastest}` is the fastest{gain}; {others} shown to be slower.")
        }
        (some, 0) => format!("{some} of {all} schedulers are equal within {margin}{gain}."),
        // One is the fastest itself.
        (some, _) if equal.len() < 2 => {
            format!("{some} of {all} schedulers are likely equal within {margin}{gain}.")
        }
        (some, guessed) => format!(
            "{some} of {all} schedulers are equal within {margin} (of {guessed} that is likely, but not \
             shown){gain}."
        ),
    }
}

fn counted(count: usize, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

fn use_this(decision: &Decision, name: &str, merit: Merit, single: &impl Fn(&str) -> bool) -> String {
    let alone = decision.with(Standing::Equal).len() + decision.with(Standing::Open).len() == 1;
    let rule = if alone { String::new() } else { format!(": of these, {}", merit.text()) };
    let stand = decision.of(name).filter(|stand| stand.standing == Standing::Open && !alone);
    let likely = stand.map_or(String::new(), |stand| {
        let percent = |ratio: f64| format!("{:.1} %", (ratio - 1.0).abs() * 100.0);
        let most = stand.interval.map_or(String::new(), |(_, most)| format!(", at most {}", percent(most)));
        format!(
            " It isn't shown to be slower than the fastest: by {} in the mean{most}.",
            percent(stand.ratio.max(1.0))
        )
    });
    format!("Use {}{rule}.{likely}", said(name, single))
}

/// What one gains over the kernel's scheduler and over TCP.
fn gains(comparison: &Comparison, name: &str) -> Vec<String> {
    let rankings = &comparison.rankings;
    let linux = against(rankings, name, "`linux`", |row| row.versus_linux);
    let tcp = against(rankings, name, "TCP on the best path", |row| row.versus_tcp);
    linux.into_iter().chain(tcp).collect()
}

/// With which workload the choice matters most and least.
fn matters(rankings: &[Ranking]) -> Option<String> {
    let spread = |ranking: &Ranking| {
        let means = ranking.rows.iter().filter(|row| !row.single_path && row.unfinished() == 0);
        let (low, high) =
            means.fold((f64::INFINITY, 0.0f64), |(low, high), row| (low.min(row.mean), high.max(row.mean)));
        (high / low - 1.0) * 100.0
    };
    let mut spreads: Vec<(f64, &str)> =
        rankings.iter().map(|ranking| (spread(ranking), ranking.title.as_str())).collect();
    spreads.retain(|(spread, _)| spread.is_finite());
    spreads.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (least, most) = (spreads.first()?, spreads.last()?);
    (spreads.len() > 1 && most.0 >= 1.0).then(|| {
        format!(
            "The choice matters most with {}, where the slowest scheduler takes {:.0} % longer than the \
             fastest, and least \
             with {} ({:.0} %).",
            most.1, most.0, least.1, least.0
        )
    })
}

fn groups(decision: &Decision) -> Vec<(&'static str, Vec<String>)> {
    let (equal, likely) = (decision.with(Standing::Equal), decision.likely());
    let open: Vec<&str> =
        decision.with(Standing::Open).into_iter().filter(|label| !likely.contains(label)).collect();
    let plain = |labels: Vec<&str>| labels.into_iter().map(String::from).collect();
    let with_percent = |labels: Vec<&str>| {
        let percent = |label: &str| decision.of(label).map_or(0.0, |stand| (stand.ratio - 1.0) * 100.0);
        labels.into_iter().map(|label| format!("{label} {:+.0} %", percent(label))).collect()
    };
    // Nobody is equal to itself.
    let first = if equal.len() == 1 { "fastest" } else { "equal" };
    let found: [(&str, Vec<String>); 4] = [
        (first, plain(equal)),
        ("likely", plain(likely)),
        ("open", with_percent(open)),
        ("slower", with_percent(decision.with(Standing::Slower))),
    ];
    found.into_iter().filter(|(_, names)| !names.is_empty()).collect()
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

/// Against `linux` or plain TCP over all workloads.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Overall {
    /// The geometric mean of the workloads' ratios; below 1 is faster.
    pub ratio: f64,
    /// Whether the difference is significant.
    pub told: bool,
}

/// How one candidate stands against another over all workloads, by what `pick` says of each; none where a run
/// didn't finish or there is nothing to compare.
pub fn overall(rankings: &[Ranking], label: &str, pick: fn(&Row) -> Option<Versus>) -> Option<Overall> {
    let mut all = Vec::with_capacity(rankings.len());
    for ranking in rankings {
        all.push(pick(row(ranking, label)?)?);
    }
    let mut logs = Vec::with_capacity(all.len());
    for versus in &all {
        let Versus::Ratio { ratio, .. } = versus else { return None };
        logs.push(libm::log(ratio.ratio));
    }
    let mean = stats::mean(&logs);
    let certain = all.iter().all(|versus| matches!(versus, Versus::Ratio { finding: Finding::Alike, .. }));
    // Each ranking's comparisons are corrected among themselves. Taking the best of the rankings needs one
    // more correction.
    let told = certain || told_in_any(&all, mean < 0.0, rankings.len());
    (!logs.is_empty()).then(|| Overall { ratio: libm::exp(mean), told })
}

/// How one stands against another, in words.
fn against(
    rankings: &[Ranking],
    label: &str,
    name: &str,
    pick: fn(&Row) -> Option<Versus>,
) -> Option<String> {
    let (mut missing, mut runs) = (0, 0);
    for row in rankings.iter().filter_map(|ranking| row(ranking, label)) {
        let Some(versus) = pick(row) else { continue };
        runs += row.runs;
        if let Versus::Unfinished { other, .. } = versus {
            missing += other;
        }
    }
    if missing > 0 {
        return Some(format!("{name} didn't finish {missing} of {runs} runs"));
    }
    let Overall { ratio, told } = overall(rankings, label, pick)?;
    let percent = (ratio - 1.0) * 100.0;
    Some(if !told {
        format!("no significant difference from {name}")
    } else if percent.abs() < 0.5 {
        format!("as fast as {name}")
    } else if percent < 0.0 {
        format!("{:.0} % faster than {name}", -percent)
    } else {
        format!("{percent:.0} % slower than {name}")
    })
}
