//! The command as a library, so that a program with algorithms of its own can be the same command: register them
//! and call [`run`].
#![forbid(unsafe_code)]

mod advise;
mod checkpoint;
mod compare;
mod emulate;
mod evidence;
mod explain;
mod gallery;
mod list;
mod output;
mod perf;
mod report;
mod reproduce;
mod scenario;
mod sweep;
mod validate;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use ropewalk_lab::Registries;
use ropewalk_lab::diagnostic::InputError;

/// Exit code for input that can't be used.
const BAD_INPUT: u8 = 2;

#[derive(Debug, Parser)]
#[command(
    name = "ropewalk",
    version,
    about = "Which Multipath TCP scheduler finishes your transfer first?",
    long_about = "Multipath TCP in user space, with every published packet scheduler and congestion control.\n\nStart with `ropewalk compare`."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Which scheduler, congestion control and buffer size for your paths
    Advise(advise::Options),
    /// Hold the simulator against real packets: the same transfers in both worlds
    Validate(validate::Options),
    /// Rank schedulers on your paths
    Compare(compare::Options),
    /// Run any program behind emulated paths, with the kernel's Multipath TCP
    Emulate(emulate::Options),
    /// Show each decision of a scheduler with its reason
    Explain(explain::Options),
    /// Write the page of all algorithms, with where each wins and loses
    Gallery(gallery::Options),
    /// Schedulers and congestion controls
    List(list::Options),
    /// The source papers' experiments: published beside measured, and a verdict per claim
    Reproduce(reproduce::Options),
    /// Throughput and latency between two endpoints, each the engine or the kernel
    Perf(perf::Options),
    /// Make the page of a saved run
    Report(report::Options),
    /// Built-in scenarios, and checking your own
    Scenario(scenario::Options),
    /// Vary a scenario's parameters over a grid or a sample of the space
    Sweep(sweep::Options),
}

/// What went wrong.
#[derive(Debug)]
enum Failure {
    Input(InputError),
    Other(String),
}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Self {
        Failure::Input(error)
    }
}

impl From<ropewalk_lab::diagnostic::Diagnostic> for Failure {
    fn from(error: ropewalk_lab::diagnostic::Diagnostic) -> Self {
        Failure::Input(error.into())
    }
}

/// The whole command: parses `arguments`, the program's name first, and does what they say.
pub fn run(registries: Registries, arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let origin = report::origin(&arguments);
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            // --help and --version are no failures; clap knows.
            let code = if error.use_stderr() { ExitCode::from(BAD_INPUT) } else { ExitCode::SUCCESS };
            let _ = error.print();
            return code;
        }
    };
    let done = match arguments.command {
        Command::Advise(options) => advise::run(&registries, &options),
        Command::Validate(options) => validate::run(&registries, &options),
        Command::Compare(options) => compare::run(&registries, &options, &origin),
        Command::Emulate(options) => match emulate::run(&registries, &options) {
            Ok(code) => return code,
            Err(failure) => Err(failure),
        },
        Command::Explain(options) => explain::run(&registries, &options),
        Command::Gallery(options) => gallery::run(&registries, &options),
        Command::List(options) => list::run(&registries, &options),
        Command::Reproduce(options) => reproduce::run(&registries, &options),
        Command::Perf(options) => match perf::run(&registries, &options) {
            Ok(code) => return code,
            Err(failure) => Err(failure),
        },
        Command::Report(options) => report::run(&options),
        Command::Scenario(options) => scenario::run(&registries, &options),
        Command::Sweep(options) => sweep::run(&registries, &options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Input(error)) => {
            anstream::eprintln!("{}", error.render(true));
            ExitCode::from(BAD_INPUT)
        }
        Err(Failure::Other(message)) => {
            anstream::eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}
