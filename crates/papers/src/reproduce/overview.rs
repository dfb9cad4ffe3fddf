//! The overview: a grid of verdicts, and each paper's claims. What it says of a paper is kept beside it as
//! `papers/NAME.json`, so that one paper can be run again without the others.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::judge::{InSetting, Judgement, Verdict};
use super::notes::{Agreements, Counted};
use super::plan::{FITTED, MAIN};
use super::report::time;
use super::run::Outcome;
use super::{NAMES, Paper, PaperError, World};

/// What the overview says of a paper.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The paper's short name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Authors and where it appeared.
    pub source: String,
    /// What was found, in words.
    pub summary: Option<String>,
    /// The version of the program that ran it.
    pub version: String,
    /// Runs.
    pub runs: usize,
    /// Computing time of all of them, seconds.
    pub computing: f64,
    /// Its claims.
    pub claims: Vec<Line>,
}

/// A claim's line.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// What the paper says.
    pub claim: String,
    /// What became of it.
    pub verdict: Verdict,
    /// Comparisons that agree.
    pub agree: String,
    /// Where the sentence has several readings: each one's figure, and comparisons that agree there as
    /// assumed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub readings: Vec<(String, String)>,
}

impl Entry {
    pub(super) fn of(outcome: &Outcome, summary: Option<String>) -> Self {
        let plan = &outcome.paper.plan;
        let line = |judgement: &Judgement| Line {
            claim: judgement.text.clone(),
            verdict: judgement.verdict,
            agree: agreement(judgement),
            readings: each_reading(judgement),
        };
        Entry {
            name: outcome.paper.name.clone(),
            title: plan.title.clone(),
            source: plan.source.clone(),
            summary,
            version: env!("CARGO_PKG_VERSION").into(),
            runs: outcome.total,
            // As many digits as are shown.
            computing: libm::round(outcome.computing * 10.0) / 10.0,
            claims: outcome.judgements.iter().map(line).collect(),
        }
    }

    /// How many comparisons of each claim agree, in the setting that its verdict comes from; and in each of
    /// its readings, as `claim@figure`.
    #[must_use]
    pub fn agreements(&self, paper: &Paper) -> Agreements {
        let mut counted = Agreements::new();
        for line in &self.claims {
            let Some(claim) = paper.claims.iter().find(|claim| claim.text == line.claim) else { continue };
            let fitted = line.verdict == Verdict::Inferred || line.agree.ends_with(", fitted");
            let setting = if fitted { FITTED } else { MAIN };
            let own = count(&line.agree).map(|it| ((setting.into(), claim.id.clone()), it));
            let readings = line.readings.iter().filter_map(|(figure, agree)| {
                Some(((MAIN.into(), format!("{}@{figure}", claim.id)), count(agree)?))
            });
            counted.extend(own.into_iter().chain(readings));
        }
        counted
    }

    /// As a file.
    pub fn text(&self) -> String {
        format!("{:#}\n", serde_json::json!(self))
    }

    /// Reads such a file.
    ///
    /// # Errors
    /// What is wrong in it.
    pub fn parse(text: &str, file: &str) -> Result<Self, PaperError> {
        serde_json::from_str(text)
            .map_err(|error| PaperError::Unreadable { file: file.into(), reason: error.to_string() })
    }

    fn count(&self, wanted: Verdict) -> usize {
        self.claims.iter().filter(|line| line.verdict == wanted).count()
    }
}

/// The folder beside the overview.
pub(super) fn folder(world: World) -> &'static str {
    match world {
        World::Simulated => "papers",
        World::Emulated => "papers-emulated",
    }
}

/// Where a paper's entry is, beside the overview.
pub fn entry_path(world: World, name: &str) -> String {
    format!("{}/{name}.json", folder(world))
}

/// The first line of an overview.
const fn title(world: World) -> &'static str {
    match world {
        World::Simulated => "# Reproduction",
        World::Emulated => "# Reproduction in real time",
    }
}

/// The world whose overview a text is; none if it is no overview.
pub fn world_of(text: &str) -> Option<World> {
    [World::Simulated, World::Emulated].into_iter().find(|world| text.lines().next() == Some(title(*world)))
}

/// The overview of these papers, in the papers' usual order. `command` is what made it, if it isn't each
/// paper's whole run.
pub fn text(entries: &[Entry], world: World, command: Option<&str>) -> String {
    let real = world == World::Emulated;
    let mut entries: Vec<&Entry> = entries.iter().collect();
    entries.sort_by_key(|entry| NAMES.iter().position(|name| *name == entry.name));
    let runs: usize = entries.iter().map(|entry| entry.runs).sum();
    let computing: f64 = entries.iter().map(|entry| entry.computing).sum();
    let world_option = if real { " --world emulated" } else { "" };
    let made = command.map_or_else(
        || format!("`ropewalk-papers reproduce run NAME{world_option}` of each paper"),
        |command| format!("`{command}`"),
    );
    let mut versions: Vec<&str> = entries.iter().map(|entry| entry.version.as_str()).collect();
    versions.dedup();
    let mut text = format!(
        "{}\n\nMade by {made}: {runs} {} runs, {} of {}. Ropewalk {}.\n\n",
        title(world),
        if real { "real-time" } else { "simulated" },
        time(computing),
        if real { "transfers" } else { "computing" },
        versions.join(", ")
    );
    if !real {
        text += "A claim is a number of comparisons, with a tolerance \
                 (`papers/NAME/claims.toml`). One agrees if its p-value (of the ratio of means \
                 over paired seeds, Holm's correction over the claim) is below 5 %. A tie is the \
                 same runs, or a difference known to be within 2 %. A claim is reproduced if \
                 three quarters of the other comparisons agree. Inferred: in a setting that was \
                 fitted to some of the baseline's numbers (`ropewalk-papers reproduce fit NAME`); \
                 the others test it.\n\n";
    } else {
        text += "Real packets go through emulated links in real time, without background flows: Ropewalk \
                 sends, the Linux kernel of the machine receives. `--runs 50` makes more than these few \
                 runs. Claims are judged as [simulated ones](reproduction.md) are.\n\n";
    }
    text += &grid(&entries, world);
    text += &tally(&entries, world);
    text += "\n";
    for entry in &entries {
        let Entry { name, title, source, .. } = entry;
        let paper = if real { String::new() } else { format!("*{title}*. {source}. ") };
        let _ = writeln!(
            text,
            "- [{name}]({}/{name}.md): {paper}{} runs, {} of {}.",
            folder(world),
            entry.runs,
            time(entry.computing),
            if real { "transfers" } else { "computing" }
        );
    }
    text
}

/// Papers by verdicts.
fn grid(entries: &[&Entry], world: World) -> String {
    let mut text = String::from("| paper |");
    for verdict in Verdict::ALL {
        let _ = write!(text, " {} |", verdict.words());
    }
    text += " claims |\n|---|";
    text += &"---:|".repeat(Verdict::ALL.len() + 1);
    text += "\n";
    let mut line = |name: &str, counts: Vec<usize>| {
        let all: usize = counts.iter().sum();
        let shown: Vec<String> =
            counts.iter().map(|count| if *count == 0 { "-".into() } else { count.to_string() }).collect();
        let _ = writeln!(text, "| {name} | {} | {all} |", shown.join(" | "));
    };
    for entry in entries {
        let name = &entry.name;
        let counts = Verdict::ALL.iter().map(|verdict| entry.count(*verdict)).collect();
        line(&format!("[{name}]({}/{name}.md)", folder(world)), counts);
    }
    let sum = |verdict: &Verdict| entries.iter().map(|entry| entry.count(*verdict)).sum();
    line("all", Verdict::ALL.iter().map(sum).collect());
    text
}

/// How many of the claims that can be tested are reproduced, and where it says why the others aren't.
fn tally(entries: &[&Entry], world: World) -> String {
    let sum = |verdict| entries.iter().map(|entry| entry.count(verdict)).sum::<usize>();
    let all: usize = entries.iter().map(|entry| entry.claims.len()).sum();
    let testable = all - sum(Verdict::Untestable);
    let (ruled, inferred) = (sum(Verdict::Reproduced), sum(Verdict::Inferred));
    let share = 100.0 * (ruled + inferred) as f64 / testable.max(1) as f64;
    let why = match world {
        World::Simulated => " The papers' pages have each claim, with a note where it isn't reproduced.",
        World::Emulated => "",
    };
    format!(
        "\n{} of the {testable} claims that can be tested are reproduced ({share:.0} %), {inferred} of them \
         under an inferred setting.{why}\n",
        ruled + inferred
    )
}

/// How many comparisons agree.
pub(super) fn agreement(judgement: &Judgement) -> String {
    match judgement.deciding() {
        Some(setting) if setting.cells > 0 => {
            // A claim reproduced in the fitted setting has a verdict that says so.
            let fitted = setting.variant == FITTED && judgement.verdict != Verdict::Inferred;
            let fitted = if fitted { ", fitted" } else { "" };
            format!("{}{fitted}", counted(setting))
        }
        _ => "-".into(),
    }
}

/// How many comparisons agree in each reading, as assumed.
pub(super) fn each_reading(judgement: &Judgement) -> Vec<(String, String)> {
    judgement.readings.iter().map(|(figure, setting)| (figure.clone(), counted(setting))).collect()
}

/// How many comparisons agree, and by reading where there are several.
pub(super) fn by_reading(agree: &str, readings: &[(String, String)]) -> String {
    if readings.is_empty() {
        return agree.into();
    }
    let each: Vec<String> = readings.iter().map(|(figure, agree)| format!("{figure}: {agree}")).collect();
    format!("{agree} ({})", each.join("; "))
}

fn counted(setting: &InSetting) -> String {
    let ties = if setting.ties > 0 { format!(", {} tied", setting.ties) } else { String::new() };
    format!("{} of {}{ties}", setting.agree, setting.cells)
}

/// Reads what `counted` wrote.
fn count(agree: &str) -> Option<Counted> {
    let mut parts = agree.split(", ");
    let (agree, all) = parts.next()?.split_once(" of ")?;
    let ties = parts.find_map(|part| part.strip_suffix(" tied")).map_or(Some(0), |ties| ties.parse().ok());
    Some(Counted { agree: agree.parse().ok()?, ties: ties?, all: all.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, verdict: Verdict) -> Entry {
        Entry {
            name: name.into(),
            title: format!("On {name}"),
            source: "Somebody".into(),
            summary: Some("It comes out.".into()),
            version: "0.1.0".into(),
            runs: 10,
            computing: 1.5,
            claims: vec![Line {
                claim: "faster".into(),
                verdict,
                agree: "1 of 1".into(),
                readings: Vec::new(),
            }],
        }
    }

    #[test]
    fn the_papers_come_in_their_order_and_are_summed_up() {
        let entries = [entry("kim-choi", Verdict::Direction), entry("cfs-2019", Verdict::Inferred)];
        let text = text(&entries, World::Simulated, None);
        let all = "| all | - | 1 | 1 | - | - | - | - | - | 2 |";
        assert!(text.contains(all) && text.contains("20 simulated runs, 3.0 s of computing"), "{text}");
        let tally = "1 of the 2 claims that can be tested are reproduced (50 %), 1 of them under an \
                     inferred setting.";
        assert!(text.contains(tally), "{text}");
        let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}"));
        assert!(at("- [cfs-2019](papers/cfs-2019.md)") < at("- [kim-choi](papers/kim-choi.md)"));
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let entry = entry("cfs-2019", Verdict::BelowResolution);
        assert_eq!(Entry::parse(&entry.text(), "f").unwrap(), entry);
        assert!(Entry::parse("{}", "f").unwrap_err().to_string().starts_with("f: missing field"));
    }
    #[test]
    fn ties_are_counted_apart() {
        let paper = crate::reproduce::load("kim-choi").unwrap().unwrap();
        let mut entry = entry("kim-choi", Verdict::Indistinguishable);
        let claim = &paper.claims[1];
        entry.claims = vec![Line {
            claim: claim.text.clone(),
            verdict: Verdict::Inferred,
            agree: "1 of 6, 3 tied".into(),
            readings: vec![("fig5".into(), "2 of 6".into())],
        }];
        let counted = entry.agreements(&paper);
        let of = |setting: &str, claim: String| counted.get(&(setting.to_string(), claim)).copied();
        assert_eq!(of(FITTED, claim.id.clone()), Some(Counted { agree: 1, ties: 3, all: 6 }));
        assert_eq!(of(MAIN, format!("{}@fig5", claim.id)), Some(Counted { agree: 2, ties: 0, all: 6 }));
        assert_eq!(Entry::parse(&entry.text(), "f").unwrap(), entry);
        let line = &entry.claims[0];
        assert_eq!(by_reading(&line.agree, &line.readings), "1 of 6, 3 tied (fig5: 2 of 6)");
    }
}
