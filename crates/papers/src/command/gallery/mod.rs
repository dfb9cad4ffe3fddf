//! `ropewalk-papers gallery`: docs/schedulers.md and its pictures, from the registry and from real runs.

mod plot;
mod rope;

use ropewalk_engine::Span;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ropewalk_algorithms::{Registries, algorithm};
use ropewalk_command_line::{Failure, ProgressLine, output};
use ropewalk_engine::congestion::CongestionControl;
use ropewalk_engine::registry::{Entry, Kind};
use ropewalk_engine::scheduler::Scheduler;
use ropewalk_lab::compare::{Candidate, Comparison, Design, Request, Row, Worth, compare};
use ropewalk_lab::{scenario, stats};
use ropewalk_sim::{Mode, Recording, RunResult, RunSpec, Scenario, Workload};

/// Write the page of all algorithms, with where each wins and loses, and a picture of each
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ropewalk-papers gallery --output docs/schedulers.md\n  ropewalk-papers \
                  gallery --rope docs\n\nThe pictures go to the folder `algorithms` next to the page."
)]
pub(crate) struct Options {
    /// The page's file [default: standard output, without pictures]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Seeded runs of each
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=1000))]
    runs: u32,
    /// Instead: two schedulers where the choice decides, one run each, as FOLDER/rope-light.svg and
    /// rope-dark.svg
    #[arg(long, value_name = "FOLDER", conflicts_with = "output")]
    rope: Option<PathBuf>,
    /// As JSON: the page's text as one string
    #[arg(long)]
    json: bool,
}

/// The folder of the pictures, beside the page.
const PICTURES: &str = "algorithms";

/// What is published and isn't here.
const OMITTED: &str = "## Omitted, because

| name | source | omitted, because |
|---|---|---|
| STMS | Shi et al., USENIX ATC 2018 | its update of the gap isn't in the abstract, and the \
acknowledgements that a sender sees allow several |
| DEMS | Guo et al., MobiCom 2017 | it needs to know where a chunk ends before it is written, and how far \
one-way delays differ; only the abstract was available |
| MuSher | Saha et al., MobiCom 2019 | its search for the ratio of the traffic isn't in the abstract |
| LATE | Yang et al., IEEE Trans. Wireless Communications, 2021 | its abstract says what `f2p-dps`'s \
summary says: windows, round-trip times and loss rates predict what a subflow sends meanwhile |
| Peekaboo's stages | Wu et al., IEEE JSAC 38(10), 2020 | `peekaboo` has the bandit; how the paper fits its \
probability of the other action isn't in what could be read |
| XLINK's priorities | Zheng et al., SIGCOMM 2021 | streams and video frames have no counterpart in one \
byte stream; a player's play time is `xlink`'s where the application declares deadlines |
| MPVeno, MPTCPPW | 5g-2019 section I | named there without a definition |

A rule that could only be guessed isn't implemented under its author's name.
";

/// The baselines of schedulers and controls.
const BASE_SCHEDULER: &str = "minrtt";
const BASE_CONTROL: &str = ropewalk_engine::congestion::DEFAULT_NAME;

/// Completion time over the baseline's, in one scenario.
struct Against {
    scenario: String,
    ratio: f64,
    /// Whether the difference is significant.
    sure: bool,
}

/// By algorithm.
type Standing = BTreeMap<String, Vec<Against>>;

pub(crate) fn run(registries: &Registries, options: &Options) -> Result<(), Failure> {
    if let Some(folder) = &options.rope {
        let runs = rope::runs(registries)?;
        for (theme, svg) in rope::pictures(&runs) {
            output::write_file(&folder.join(format!("rope-{theme}.svg")), &svg)?;
        }
        let sentence = rope::sentence(&runs);
        return output::print(&if options.json {
            format!("{}\n", serde_json::json!(sentence))
        } else {
            format!("{sentence}\n")
        });
    }
    let bar = ProgressLine::new(scenario::builtins().len() as u64, "scenarios");
    let (mut schedulers, mut controls) = (Standing::new(), Standing::new());
    for built_in in scenario::builtins() {
        stand(registries, built_in, options.runs, &mut schedulers, &mut controls)?;
        bar.inc(1);
    }
    bar.clear();
    let mut page = introduction(options.runs);
    let mut pictures = Vec::new();
    page += "## Schedulers\n\n";
    for entry in registries.schedulers.entries() {
        page += &section(entry, schedulers.get(entry.name), BASE_SCHEDULER);
        page += &show(entry.name, segments_of(registries, entry)?, &mut pictures);
    }
    page += "## Congestion controls\n\n";
    for entry in registries.congestion.entries() {
        page += &section(entry, controls.get(entry.name), BASE_CONTROL);
        page += &show(entry.name, windows_of(registries, entry)?, &mut pictures);
    }
    page += OMITTED;
    match &options.output {
        Some(file) => {
            let folder = file.parent().unwrap_or(file).join(PICTURES);
            std::fs::create_dir_all(&folder)
                .map_err(|error| Failure::Other(format!("{}: {error}", folder.display())))?;
            for (name, svg) in &pictures {
                output::write_file(&folder.join(name), svg)?;
            }
            output::write_file(file, &page)
        }
        None if options.json => output::print(&format!("{}\n", serde_json::json!(page))),
        None => output::print(&page),
    }
}

fn introduction(runs: u32) -> String {
    format!(
        "# The algorithms\n\nWhich rule each scheduler and congestion control follows, with which \
         parameters, and where it wins and loses. Made by\n\
         `ropewalk-papers gallery --runs {runs} --output docs/schedulers.md`.\n\n\
         *Faster*, *slower*: geometric means of flow completion times over every built-in scenario (flows \
         of 2 MiB at most), schedulers\nagainst `{BASE_SCHEDULER}`, congestion controls against \
         `{BASE_CONTROL}`; in brackets what could be chance (p of 5 % or more). *Exception*: from the \
         contract\nthat all share. Each rule in full, with the paper's symbols, opens the algorithm's file. \
         `ropewalk list --json` has the bounds of\nparameters.\n\nPictures: 1 MiB over `wifi-lte`, a dash \
         per segment, by the time it was sent and its place in the stream; of a control, its windows\n\
         during ten seconds of bulk.\n\n"
    )
}

/// Results of all algorithms in one scenario.
fn stand(
    registries: &Registries,
    built_in: &scenario::BuiltIn,
    runs: u32,
    schedulers: &mut Standing,
    controls: &mut Standing,
) -> Result<(), Failure> {
    let loaded = built_in.load(registries)?;
    let own = loaded.experiment.congestion.unwrap_or_else(|| BASE_CONTROL.into());
    let workload = match loaded.scenario.workload {
        // Keep sixteen scenarios short.
        Workload::Flow { bytes } => Workload::Flow { bytes: bytes.min(2 << 20) },
        ref other => other.clone(),
    };
    let measure = |names: &[&str], control: &str| -> Result<Comparison, Failure> {
        let candidates = names.iter().map(|name| {
            let scheduler = algorithm(&registries.schedulers, "gallery", name)?;
            Ok(Candidate { label: (*name).into(), scheduler, mode: Mode::Multipath })
        });
        let request = Request {
            workloads: vec![workload.clone()],
            scenario: loaded.scenario.clone(),
            candidates: candidates.collect::<Result<_, Failure>>()?,
            congestion: algorithm(&registries.congestion, "gallery", control)?,
            design: Design::Fixed(runs),
            worth: Worth::default(),
            seed: 1,
            jobs: ropewalk_runner::threads(None),
        };
        Ok(compare(&request, ropewalk_sim::run, |_| {}, &AtomicBool::new(false)))
    };
    let names: Vec<&str> = registries.schedulers.entries().iter().map(|entry| entry.name).collect();
    let rows: Vec<Row> =
        measure(&names, &own)?.rankings.into_iter().flat_map(|ranking| ranking.rows).collect();
    note(schedulers, built_in.name, rows, BASE_SCHEDULER);
    let mut rows = Vec::new();
    for entry in registries.congestion.entries() {
        for ranking in measure(&[BASE_SCHEDULER], entry.name)?.rankings {
            rows.extend(ranking.rows.into_iter().map(|row| Row { label: entry.name.into(), ..row }));
        }
    }
    note(controls, built_in.name, rows, BASE_CONTROL);
    Ok(())
}

fn note(standing: &mut Standing, scenario: &str, rows: Vec<Row>, base: &str) {
    let Some(base) = rows.iter().find(|row| row.label == base).map(|row| row.each.clone()) else { return };
    for row in rows {
        // Over the seeds with which both finished.
        let pairs = row.each.iter().zip(&base).filter_map(|(a, b)| Some((a.seconds?, b.seconds?)));
        let (times, of_base): (Vec<f64>, Vec<f64>) = pairs.unzip();
        let Some(ratio) = stats::paired_ratio(&times, &of_base, 1) else { continue };
        let (ratio, sure) = (ratio.ratio, ratio.p < 0.05 && row.unfinished() == 0);
        let scenario = match row.unfinished() {
            0 => scenario.into(),
            unfinished => format!("{scenario} ({unfinished} unfinished)"),
        };
        standing.entry(row.label).or_default().push(Against { scenario, ratio, sure });
    }
}

fn section<T: ?Sized>(entry: &Entry<T>, standing: Option<&Vec<Against>>, base: &str) -> String {
    let mut text =
        format!("### {}\n\n{}.\n\nSource: {}.\n\n", entry.name, capital(entry.summary), entry.source);
    let own = entry.shown_parameters().filter(|p| !["opportunistic", "penalise"].contains(&p.name));
    for parameter in own {
        let default = parameter.write(parameter.default);
        let words = match parameter.kind {
            Kind::Choice(words) => format!("; {}", words.join(", ")),
            _ => String::new(),
        };
        let _ = writeln!(text, "- `{}`: {} (default {default}{words})", parameter.name, parameter.summary);
    }
    for preset in entry.presets {
        let _ = writeln!(text, "- preset `{}:{}`: {}", entry.name, preset.name, preset.summary);
    }
    for exception in entry.exceptions {
        let _ = writeln!(text, "- exception `{}`: {}", exception.rule, exception.reason);
    }
    if !text.ends_with("\n\n") {
        text.push('\n');
    }
    if entry.name == base {
        return text + "The others are measured against it.\n\n";
    }
    let Some(standing) = standing else { return text };
    let mut sorted: Vec<&Against> = standing.iter().collect();
    sorted.sort_by(|a, b| a.ratio.total_cmp(&b.ratio).then_with(|| a.scenario.cmp(&b.scenario)));
    let wins = sorted.iter().filter(|against| against.ratio < 0.99).take(3).map(|against| phrase(against));
    let losses =
        sorted.iter().rev().filter(|against| against.ratio > 1.01).take(3).map(|against| phrase(against));
    let or_none = |list: Vec<String>| if list.is_empty() { "nowhere by 1 %".into() } else { list.join(", ") };
    let (wins, losses) = (or_none(wins.collect()), or_none(losses.collect()));
    text + &format!("Faster: {wins}. Slower: {losses}.\n\n")
}

fn phrase(against: &Against) -> String {
    let percent = format!("{:+.0} %", (against.ratio - 1.0) * 100.0);
    let percent = if against.sure { percent } else { format!("({percent})") };
    format!("{} {percent}", against.scenario)
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().collect::<String>() + chars.as_str())
}

/// A picture's line in the page; the picture is stored for its file.
fn show(name: &str, picture: String, pictures: &mut Vec<(String, String)>) -> String {
    pictures.push((format!("{name}.svg"), picture));
    format!("![{name}]({PICTURES}/{name}.svg)\n\n")
}

/// A run over the default scenario.
fn example(
    registries: &Registries,
    scheduler: &str,
    control: &str,
    workload: Workload,
    recording: Recording,
) -> Result<(Vec<String>, RunResult), Failure> {
    let loaded = scenario::load(scenario::DEFAULT, registries)?.scenario;
    let names = loaded.paths.iter().map(|path| path.name.clone()).collect();
    let result = ropewalk_sim::run(&RunSpec {
        scenario: Arc::new(Scenario { workload, ..loaded }),
        scheduler: algorithm(&registries.schedulers, "gallery", scheduler)?,
        congestion: algorithm(&registries.congestion, "gallery", control)?,
        mode: Mode::Multipath,
        seed: 1,
        start_phase: Span::ZERO,
        recording,
    });
    Ok((names, result))
}

/// Each path's share of the sent bytes, as text.
fn shares(names: &[String], result: &RunResult) -> String {
    let total: u64 = result.paths.iter().map(|path| path.bytes).sum();
    let shares = names
        .iter()
        .zip(&result.paths)
        .map(|(name, path)| format!("{name} {:.0} %", path.bytes as f64 * 100.0 / total.max(1) as f64));
    shares.collect::<Vec<_>>().join(", ")
}

fn segments_of(registries: &Registries, entry: &Entry<dyn Scheduler>) -> Result<String, Failure> {
    let bytes = 1 << 20;
    let recording = Recording { segments: true, ..Recording::default() };
    let (names, result) = example(registries, entry.name, BASE_CONTROL, Workload::Flow { bytes }, recording)?;
    let caption =
        format!("{}: {:.0} ms; {}", entry.name, result.duration.as_millis_f64(), shares(&names, &result));
    Ok(plot::segments(&caption, &names, &result.segments, bytes, result.duration))
}

fn windows_of(registries: &Registries, entry: &Entry<dyn CongestionControl>) -> Result<String, Failure> {
    let recording = Recording { samples_every: Some(Span::from_millis(50)), ..Recording::default() };
    let workload = Workload::Bulk { duration: Span::from_secs(10) };
    let (names, result) = example(registries, BASE_SCHEDULER, entry.name, workload, recording)?;
    let megabits = result.delivered_bytes as f64 * 8e3 / result.duration.as_nanos().max(1) as f64;
    let caption = format!("{}: {megabits:.1} Mbit/s; {}", entry.name, shares(&names, &result));
    Ok(plot::windows(&caption, &names, &result.samples, result.duration))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const RENEW: &str =
        "cargo run --release -p ropewalk-papers -- gallery --runs 10 --output docs/schedulers.md";

    /// The page in the repository must have every registered algorithm, with its picture.
    #[test]
    fn the_page_has_every_algorithm_and_its_picture() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let page = std::fs::read_to_string(docs.join("schedulers.md")).expect("docs/schedulers.md");
        let registries = Registries::builtin();
        let schedulers = registries.schedulers.entries().iter().map(|entry| (entry.name, entry.summary));
        let controls = registries.congestion.entries().iter().map(|entry| (entry.name, entry.summary));
        for (name, summary) in schedulers.chain(controls) {
            assert!(
                page.contains(&format!("### {name}\n\n{}.", capital(summary))),
                "{name} is not in the page: {RENEW}"
            );
            let picture = format!("{PICTURES}/{name}.svg");
            assert!(page.contains(&format!("({picture})")), "{picture} is not shown: {RENEW}");
            let svg = std::fs::read_to_string(docs.join(&picture)).unwrap_or_default();
            assert!(
                svg.starts_with("<svg") && svg.contains("<path d=\"M"),
                "{picture} has nothing drawn: {RENEW}"
            );
        }
        for undefined in ["MPVeno", "MPTCPPW"] {
            assert!(page.contains(undefined), "{undefined} is not listed");
        }
    }

    /// The README's picture shows a pair of runs of which one takes far longer.
    #[test]
    fn the_choice_decides_in_the_picture() {
        let runs = rope::runs(&Registries::builtin()).expect("two runs");
        assert!(runs.seconds(1) > 1.15 * runs.seconds(0), "{}", rope::sentence(&runs));
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        for (theme, svg) in rope::pictures(&runs) {
            assert!(rope::SHOWN.iter().all(|name| svg.contains(&format!("{name}: "))), "{theme}");
            let there = std::fs::read_to_string(docs.join(format!("rope-{theme}.svg"))).unwrap_or_default();
            assert!(
                there.starts_with("<svg"),
                "docs/rope-{theme}.svg is missing: `ropewalk-papers gallery --rope docs`"
            );
        }
    }

    #[test]
    fn wins_and_losses_in_order_and_chance_in_brackets() {
        let against = |scenario: &str, ratio, sure| Against { scenario: scenario.into(), ratio, sure };
        let standing = vec![
            against("a", 0.9, true),
            against("b", 1.2, false),
            against("c", 0.8, true),
            against("d", 1.0, true),
        ];
        let registries = Registries::builtin();
        let entry = registries.schedulers.entries().iter().find(|entry| entry.name == "ecf").expect("ecf");
        let text = section(entry, Some(&standing), BASE_SCHEDULER);
        assert!(text.contains("Faster: c -20 %, a -10 %. Slower: b (+20 %)."), "{text}");
        assert!(text.contains("- `beta`") && text.contains("a share (default 0.25)"), "{text}");
    }
}
