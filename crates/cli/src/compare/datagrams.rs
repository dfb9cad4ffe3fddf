//! `ropewalk compare` of a scenario whose workload is datagrams.

use std::sync::atomic::Ordering;

use ropewalk_command_line::options::World;
use ropewalk_command_line::{Failure, ProgressLine, interrupt, output};
use ropewalk_lab::ask;
use ropewalk_lab::datagrams::{Request, compare};
use ropewalk_lab::scenario::Experiment;
use ropewalk_settings::diagnostic::{Diagnostic, did_you_mean};
use ropewalk_sim::Scenario;
use ropewalk_sim::datagrams::Datagrams;

use super::Options;

/// Runs of each, if neither the command line nor the scenario says it.
const RUNS: u32 = 20;

pub(super) fn run(
    options: &Options,
    scenario: Scenario,
    experiment: Experiment,
    datagrams: Datagrams,
) -> Result<(), Failure> {
    fits(options)?;
    let given = &options.common.given;
    let request = Request {
        schedulers: match ask::schedulers(given)? {
            Some(names) => schedulers(options, names)?,
            None if !experiment.schedulers.is_empty() => experiment.schedulers,
            None => Request::all_schedulers(),
        },
        scenario,
        datagrams,
        runs: ask::runs(given)?.or(experiment.runs).unwrap_or(RUNS),
        seed: ask::seed(given)?,
        jobs: ropewalk_runner::threads(options.how.jobs.map(usize::from)),
    };
    let bar = ProgressLine::new(request.total() as u64, "runs");
    let stop = interrupt::flag();
    let answer = compare(&request, || bar.inc(1), &stop);
    bar.clear();
    output::print(&match options.how.json {
        true => format!("{:#}\n", answer.document(&request)),
        false => answer.text(&request),
    })?;
    if stop.load(Ordering::Relaxed) {
        return Err(Failure::Interrupted("only runs that every candidate finished are shown".into()));
    }
    Ok(())
}

/// Names that are known; `all` are all.
fn schedulers(options: &Options, names: Vec<String>) -> Result<Vec<String>, Failure> {
    let all = Request::all_schedulers();
    if names.iter().any(|name| name == "all") {
        return Ok(all);
    }
    let Some(wrong) = names.iter().find(|name| !all.contains(name)) else { return Ok(names) };
    let Some(source) = options.common.given.text("schedulers") else { return Ok(names) };
    let place = source.text.find(wrong.as_str()).unwrap_or_default();
    Err(Diagnostic::new(format!("there is no scheduler `{wrong}` for datagrams"))
        .at(&source, place..place + wrong.len())
        .label("here")
        .help(did_you_mean(wrong, all.iter().map(String::as_str)))
        .help(format!("known: {}, all", all.join(", ")))
        .into())
}

/// Refuses what is for transfers by TCP.
fn fits(options: &Options) -> Result<(), Failure> {
    let given = [
        ("--world emulated", options.how.world == World::Emulated),
        ("--details", options.how.details),
        ("--trace", options.how.trace),
        ("--plot", options.how.plot),
        ("--report", options.how.report.is_some()),
        ("--csv", options.how.csv.is_some()),
        ("--pcap and --qlog", options.how.evidence.any()),
    ];
    let given = given.iter().filter(|(_, is_given)| *is_given).map(|(option, _)| option.to_string());
    let fit = ["schedulers", "direction", "runs", "seed"];
    let other = options.common.given.options().filter(|option| !fit.contains(option));
    match other.map(|option| format!("--{option}")).chain(given).next() {
        Some(option) => {
            let message = format!("{option}: for transfers by TCP, and the scenario's workload is datagrams");
            let help = "`ropewalk emulate --scenario FILE -- PROGRAM` runs programs over its paths";
            Err(Diagnostic::new(message).help(help).into())
        }
        None => Ok(()),
    }
}
