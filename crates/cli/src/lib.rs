//! The command as a library. A program with its own algorithms registers them and calls [`run`].
#![forbid(unsafe_code)]

mod advise;
mod compare;
#[cfg(target_os = "linux")]
mod emulate;
mod evidence;
mod explain;
#[cfg(not(target_os = "linux"))]
mod linux_only;
mod list;
mod options;
#[cfg(target_os = "linux")]
mod perf;
mod playground;
mod report;
mod scenario;
mod shadow;
mod sweep;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use ropewalk_command_line::{EXIT_CODES, by_goal, end};

#[cfg(not(target_os = "linux"))]
use linux_only::{emulate, perf};

pub use ropewalk_algorithms::Registries;

#[derive(Debug, Parser)]
#[command(
    name = "ropewalk",
    version,
    about = "Which Multipath TCP scheduler finishes your transfer first?",
    long_about = "Multipath TCP in user space, with the published packet schedulers and congestion \
                  controls.\n\nStart with `ropewalk compare`.",
    after_help = format!("{EXIT_CODES}\n`ropewalk emulate` ends with the exit code of the program that it \
                          runs.")
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Which scheduler, congestion control and buffer size for your paths
    Advise(advise::Options),
    /// Rank schedulers on your paths
    Compare(compare::Options),
    /// Run any program behind emulated paths, with the kernel's Multipath TCP
    Emulate(emulate::Options),
    /// Show each decision of a scheduler with its reason
    Explain(explain::Options),
    /// List schedulers and congestion controls
    List(list::Options),
    /// Throughput and latency between two endpoints, each the engine or the kernel
    Perf(perf::Options),
    /// Write the laboratory as one HTML file, which compares schedulers in the browser
    Playground(playground::Options),
    /// Make the page of a saved run
    Report(report::Options),
    /// List built-in scenarios, and check your own
    Scenario(scenario::Options),
    /// What other schedulers would have done with the last hour's flows
    Shadow(shadow::Options),
    /// Vary a scenario's parameters over a grid or a sample of the space
    Sweep(sweep::Options),
}

/// The commands by what one wants to do, for `--help`.
const GOALS: [(&str, &[&str]); 4] = [
    ("Choose a scheduler", &["compare", "advise", "shadow", "playground"]),
    ("See why", &["explain", "report"]),
    ("Experiment", &["sweep", "scenario", "list"]),
    ("With real packets", &["emulate", "perf"]),
];

/// Runs the command line `arguments`, the program's name first.
pub fn run(registries: Registries, arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let origin = report::origin(&arguments);
    let arguments: Arguments =
        match ropewalk_command_line::parse(by_goal(Arguments::command(), &GOALS), arguments) {
            Ok(arguments) => arguments,
            Err(code) => return code,
        };
    let done = match arguments.command {
        Command::Advise(options) => advise::run(&registries, &options),
        Command::Compare(options) => compare::run(&registries, &options, &origin),
        Command::Emulate(options) => match emulate::run(&registries, &options, &origin) {
            Ok(code) => return code,
            Err(failure) => Err(failure),
        },
        Command::Explain(options) => explain::run(&registries, &options),
        Command::List(options) => list::run(&registries, &options),
        Command::Perf(options) => match perf::run(&registries, &options) {
            Ok(code) => return code,
            Err(failure) => Err(failure),
        },
        Command::Playground(options) => playground::run(&registries, &options),
        Command::Report(options) => report::run(&options),
        Command::Scenario(options) => scenario::run(&registries, &options),
        Command::Shadow(options) => shadow::run(&registries, &options),
        Command::Sweep(options) => sweep::run(&registries, &options),
    };
    end(done)
}

#[cfg(test)]
mod tests {
    use super::{Arguments, GOALS};
    use clap::CommandFactory;

    #[test]
    fn every_command_has_one_place_in_the_help() {
        let mut listed: Vec<&str> = GOALS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let command = Arguments::command();
        let mut all: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        listed.sort_unstable();
        all.sort_unstable();
        assert_eq!(listed, all);
    }
}
