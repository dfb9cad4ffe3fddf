//! `ropewalk gallery`: docs/schedulers.md, from the registry and from real runs.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use indicatif::ProgressBar;
use ropewalk_engine::registry::Entry;
use ropewalk_engine::scheduler::Scheduler;
use ropewalk_lab::compare::{Contender, Request, Row, compare};
use ropewalk_lab::{Registries, scenario};
use ropewalk_sim::{Mode, Recording, RunSpec, SegmentTrace, Workload};

use crate::compare::algorithm;
use crate::{Failure, output};

/// Write the page of all algorithms, with where each wins and loses
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  ropewalk gallery --output docs/schedulers.md")]
pub(crate) struct Options {
    /// Where to [default: standard output]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Seeded runs of each
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=1000))]
    runs: u32,
    /// As JSON: the page's text as one string
    #[arg(long)]
    json: bool,
}

/// Relative completion time by scheduler, then by scenario.
type Standing = BTreeMap<String, Vec<(String, f64, bool)>>;

pub(crate) fn run(registries: &Registries, options: &Options) -> Result<(), Failure> {
    let standing = standings(registries, options.runs)?;
    let mut page = format!(
        "# The algorithms\n\nMade by `ropewalk gallery --runs {} --output docs/schedulers.md` from the code's own registry \
         and from runs\nover every built-in scenario (seeds from 1, congestion control of the scenario). Percentages \
         are geometric means of\nflow completion times against `minrtt` over the same seeds; those in brackets could be \
         chance.\n\n## Schedulers\n\n",
        options.runs
    );
    for entry in registries.schedulers.entries() {
        page += &section(registries, entry, standing.get(entry.name).map_or(&[][..], Vec::as_slice))?;
    }
    page += "## Congestion controls\n\n| name | rule | source |\n|---|---|---|\n";
    for entry in registries.congestion.entries() {
        let _ = writeln!(page, "| `{}` | {} | {} |", entry.name, entry.summary, entry.source);
    }
    page += "\nMPVeno and MPTCPPW are named in 5g-2019 (section I) without a definition: they are not implemented.\n";
    match &options.output {
        Some(file) => output::write_file(file, &page),
        None if options.json => output::print(&format!("{}\n", serde_json::json!(page))),
        None => output::print(&page),
    }
}

fn standings(registries: &Registries, runs: u32) -> Result<Standing, Failure> {
    let bar = ProgressBar::new(scenario::builtins().len() as u64);
    let mut standing = Standing::new();
    for built_in in scenario::builtins() {
        let loaded = built_in.load(registries)?;
        let congestion = loaded.experiment.congestion.unwrap_or_else(|| "cubic".into());
        let mut contenders = Vec::new();
        for entry in registries.schedulers.entries().iter().filter(|entry| entry.name != "single") {
            let scheduler = algorithm(&registries.schedulers, "gallery", entry.name)?;
            contenders.push(Contender { label: entry.name.into(), scheduler, mode: Mode::Multipath });
        }
        let workload = match loaded.scenario.workload {
            // A page of sixteen scenarios needn't wait for the longest.
            Workload::Flow { bytes } => Workload::Flow { bytes: bytes.min(2 << 20) },
            ref other => other.clone(),
        };
        let request = Request {
            workloads: vec![workload],
            scenario: loaded.scenario,
            contenders,
            congestion: algorithm(&registries.congestion, "gallery", &congestion)?,
            runs,
            seed: 1,
            jobs: std::thread::available_parallelism().map_or(1, usize::from),
        };
        let comparison = compare(&request, ropewalk_sim::run, || {}, &AtomicBool::new(false));
        for ranking in &comparison.rankings {
            let Some(base) = ranking.rows.iter().find(|row| row.label == "minrtt") else { continue };
            for row in &ranking.rows {
                let ratio = ropewalk_lab::stats::paired_ratio(&row.seconds, &base.seconds, 1);
                let (ratio, sure) = ratio.map_or((1.0, false), |ratio| (ratio.ratio, ratio.p < 0.05));
                standing.entry(row.label.clone()).or_default().push((place(row, built_in.name), ratio, sure));
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(standing)
}

fn place(row: &Row, scenario: &str) -> String {
    if row.finished < row.runs {
        format!("{scenario} ({} unfinished)", row.runs - row.finished)
    } else {
        scenario.into()
    }
}

fn section(
    registries: &Registries,
    entry: &Entry<dyn Scheduler>,
    standing: &[(String, f64, bool)],
) -> Result<String, Failure> {
    let mut text =
        format!("### {}\n\n{}.\n\nSource: {}.\n\n", entry.name, capital(entry.summary), entry.source);
    let own = entry.parameters.iter().filter(|p| !["opportunistic", "penalise"].contains(&p.name));
    for parameter in own {
        let _ = writeln!(
            text,
            "- `{}`: {} (default {}, {} to {})",
            parameter.name, parameter.summary, parameter.default, parameter.range.0, parameter.range.1
        );
    }
    for preset in entry.presets {
        let _ = writeln!(text, "- preset `{}:{}`: {}", entry.name, preset.name, preset.summary);
    }
    for exception in entry.exceptions {
        let _ =
            writeln!(text, "- departs from the shared contract (`{}`): {}", exception.rule, exception.reason);
    }
    let phrase = |(name, ratio, sure): &(String, f64, bool)| {
        let percent = format!("{:+.0} %", (ratio - 1.0) * 100.0);
        if *sure { format!("{name} {percent}") } else { format!("{name} ({percent})") }
    };
    let mut sorted = standing.to_vec();
    sorted.sort_by(|a, b| a.1.total_cmp(&b.1));
    let wins: Vec<_> = sorted.iter().filter(|(_, ratio, _)| *ratio < 0.99).take(4).map(phrase).collect();
    let losses: Vec<_> =
        sorted.iter().rev().filter(|(_, ratio, _)| *ratio > 1.01).take(4).map(phrase).collect();
    let or_none = |list: Vec<String>| if list.is_empty() { "nowhere by 1 %".into() } else { list.join(", ") };
    if !standing.is_empty() && entry.name != "minrtt" {
        let _ = writeln!(text, "\nFaster than `minrtt`: {}. Slower: {}.", or_none(wins), or_none(losses));
    }
    text += &picture(registries, entry)?;
    Ok(text)
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().collect::<String>() + chars.as_str())
}

/// 128 KiB over Wi-Fi and LTE: for each path a line in time, with the stream's position in tenths.
fn picture(registries: &Registries, entry: &Entry<dyn Scheduler>) -> Result<String, Failure> {
    const COLUMNS: usize = 72;
    const BYTES: u64 = 256 << 10;
    let mut loaded = scenario::load(scenario::DEFAULT, registries)?.scenario;
    loaded.workload = Workload::Flow { bytes: BYTES };
    let names: Vec<String> = loaded.paths.iter().map(|path| path.name.clone()).collect();
    let result = ropewalk_sim::run(&RunSpec {
        scenario: Arc::new(loaded),
        scheduler: algorithm(&registries.schedulers, "gallery", entry.name)?,
        congestion: algorithm(&registries.congestion, "gallery", "cubic")?,
        mode: if entry.name == "single" { Mode::SinglePath(0) } else { Mode::Multipath },
        seed: 1,
        start_phase: 0,
        recording: Recording { segments: true, ..Recording::default() },
    });
    let end = result.duration.max(1);
    let mut lanes = vec![[' '; COLUMNS]; names.len()];
    let digit = |segment: &SegmentTrace| {
        char::from_digit((segment.offset * 10 / BYTES).min(9) as u32, 10).unwrap_or('?')
    };
    for segment in &result.segments {
        let column = (segment.sent.min(end - 1) as u128 * COLUMNS as u128 / u128::from(end)) as usize;
        if let Some(cell) = lanes.get_mut(usize::from(segment.path)).and_then(|lane| lane.get_mut(column)) {
            *cell = digit(segment);
        }
    }
    let mut text = format!(
        "\n```text\n256 KiB over wifi-lte, seed 1, {:.0} ms; digits: tenth of the stream sent then\n",
        end as f64 / 1e6
    );
    for (name, lane) in names.iter().zip(&lanes) {
        let _ = writeln!(text, "{name:>5} |{}|", lane.iter().collect::<String>());
    }
    Ok(text + "```\n\n")
}
