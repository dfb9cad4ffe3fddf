//! The command as a library. A program with its own algorithms registers them and calls [`run`].
#![forbid(unsafe_code)]

mod advise;
mod arena;
mod checkpoint;
mod compare;
mod emulate;
mod evidence;
mod explain;
mod gallery;
mod gateway;
mod interrupt;
mod keys;
mod list;
mod options;
mod output;
mod perf;
mod proxy;
mod record;
mod report;
mod reproduce;
mod scenario;
mod status;
mod sweep;
mod validate;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use ropewalk_algorithms::Registries;
use ropewalk_lab::emulated::EmulatedError;
use ropewalk_settings::diagnostic::{Diagnostic, InputError};

/// Exit codes. `EXIT_CODES` says the same in `--help`.
mod exit {
    /// Input that can't be used, or output that can't be written.
    pub(crate) const BAD_INPUT: u8 = 2;
    /// Stopped by Ctrl-C, as shells count: 128 + SIGINT.
    pub(crate) const INTERRUPTED: u8 = 130;
}

const EXIT_CODES: &str = "Exit codes:
  0    success
  1    something failed while it ran
  2    input that can't be used, or output that can't be written
  130  interrupted by Ctrl-C
`ropewalk emulate` ends with the exit code of the program that it runs.";

#[derive(Debug, Parser)]
#[command(
    name = "ropewalk",
    version,
    about = "Which Multipath TCP scheduler finishes your transfer first?",
    long_about = "Multipath TCP in user space, with the published packet schedulers and congestion controls.\n\nStart with `ropewalk compare`.",
    after_help = EXIT_CODES
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Which scheduler, congestion control and buffer size for your paths
    Advise(advise::Options),
    /// Let all schedulers compete over a grid of scenarios
    Arena(arena::Options),
    /// Compare the simulator with real packets: the same transfers in both worlds
    Validate(validate::Options),
    /// Rank schedulers on your paths
    Compare(compare::Options),
    /// Run any program behind emulated paths, with the kernel's Multipath TCP
    Emulate(emulate::Options),
    /// Show each decision of a scheduler with its reason
    Explain(explain::Options),
    /// Write the page of all algorithms, with where each wins and loses
    Gallery(gallery::Options),
    /// Multipath TCP before servers that have only TCP
    Gateway(gateway::Options),
    /// List schedulers and congestion controls
    List(list::Options),
    /// The source papers' experiments: published beside measured, and a verdict per claim
    Reproduce(reproduce::Options),
    /// Throughput and latency between two endpoints, each the engine or the kernel
    Perf(perf::Options),
    /// Carry ordinary programs' connections over many networks
    Proxy(Box<proxy::Options>),
    /// Make the secrets by which a proxy and its gateway authenticate each other
    Keys(keys::Options),
    /// A running proxy's links over the last hour, as a scenario file
    Record(record::RecordOptions),
    /// Make the page of a saved run
    Report(report::Options),
    /// List built-in scenarios, and check your own
    Scenario(scenario::Options),
    /// What other schedulers would have done with the last hour's flows
    Shadow(record::ShadowOptions),
    /// Links, connections and subflows of a running proxy or gateway, and the scheduler's last decisions
    Status(status::Options),
    /// Vary a scenario's parameters over a grid or a sample of the space
    Sweep(sweep::Options),
}

/// Why a command failed.
#[derive(Debug)]
#[non_exhaustive]
enum Failure {
    /// Input that can't be used.
    Input(InputError),
    /// Output that can't be written.
    Output {
        /// Where to.
        path: PathBuf,
        /// Why not, for people.
        reason: String,
    },
    /// Stopped by Ctrl-C; what is shown or kept all the same.
    Interrupted(String),
    /// Anything else, as a sentence.
    Other(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Input(error) => f.write_str(&error.render(true)),
            Failure::Output { path, reason } => write!(f, "error: {}: {reason}", path.display()),
            Failure::Interrupted(reason) => write!(f, "error: interrupted: {reason}"),
            Failure::Other(reason) => write!(f, "error: {reason}"),
        }
    }
}

impl Failure {
    /// An error that is no input error.
    fn other(error: impl std::fmt::Display) -> Failure {
        Failure::Other(error.to_string())
    }

    fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Input(_) | Failure::Output { .. } => ExitCode::from(exit::BAD_INPUT),
            Failure::Interrupted(_) => ExitCode::from(exit::INTERRUPTED),
            Failure::Other(_) => ExitCode::FAILURE,
        }
    }
}

impl From<EmulatedError> for Failure {
    fn from(error: EmulatedError) -> Self {
        Failure::Other(error.to_string())
    }
}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Self {
        Failure::Input(error)
    }
}

impl From<Diagnostic> for Failure {
    fn from(error: Diagnostic) -> Self {
        Failure::Input(error.into())
    }
}

/// Runs the command line `arguments`, the program's name first.
pub fn run(registries: Registries, arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let origin = report::origin(&arguments);
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            // clap also returns --help and --version as errors.
            let code = if error.use_stderr() { ExitCode::from(exit::BAD_INPUT) } else { ExitCode::SUCCESS };
            let _ = error.print();
            return code;
        }
    };
    let done = match arguments.command {
        Command::Advise(options) => advise::run(&registries, &options),
        Command::Arena(options) => arena::run(&registries, &options),
        Command::Validate(options) => validate::run(&registries, &options),
        Command::Compare(options) => compare::run(&registries, &options, &origin),
        Command::Emulate(options) if options.as_comparison().is_some() => {
            return run(registries, options.as_comparison().unwrap_or_default());
        }
        Command::Emulate(options) => match emulate::run(&registries, &options) {
            Ok(code) => return code,
            Err(failure) => Err(failure),
        },
        Command::Explain(options) => explain::run(&registries, &options),
        Command::Gallery(options) => gallery::run(&registries, &options),
        Command::Gateway(options) => gateway::run(&registries, &options),
        Command::List(options) => list::run(&registries, &options),
        Command::Reproduce(options) => reproduce::run(&registries, &options),
        Command::Perf(options) => match perf::run(&registries, &options) {
            Ok(code) => return code,
            Err(failure) => Err(failure),
        },
        Command::Proxy(options) => proxy::run(&registries, &options),
        Command::Keys(options) => keys::run(&options),
        Command::Record(options) => record::record(&options),
        Command::Report(options) => report::run(&options),
        Command::Scenario(options) => scenario::run(&registries, &options),
        Command::Shadow(options) => record::shadow(&registries, &options),
        Command::Status(options) => status::run(&options),
        Command::Sweep(options) => sweep::run(&registries, &options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => report_failure(&failure),
    }
}

/// Prints why a command failed; returns the exit code.
fn report_failure(failure: &Failure) -> ExitCode {
    anstream::eprintln!("{failure}");
    failure.exit_code()
}
