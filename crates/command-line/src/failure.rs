//! Why a command failed, and its exit code.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;

use ropewalk_settings::diagnostic::{Diagnostic, InputError};

/// Exit codes. [`EXIT_CODES`] says the same in `--help`.
pub mod exit {
    /// Input that can't be used, or output that can't be written.
    pub const BAD_INPUT: u8 = 2;
    /// Stopped by Ctrl-C, as shells count: 128 + SIGINT.
    pub const INTERRUPTED: u8 = 130;
}

/// For `--help`.
pub const EXIT_CODES: &str = "Exit codes:
  0    success
  1    something failed while it ran
  2    input that can't be used, or output that can't be written
  130  interrupted by Ctrl-C";

/// Why a command failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure {
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
            Failure::Input(error) => f.write_str(&error.render(is_colored())),
            Failure::Output { path, reason } => write!(f, "error: {}: {reason}", path.display()),
            Failure::Interrupted(reason) => write!(f, "error: interrupted: {reason}"),
            Failure::Other(reason) => write!(f, "error: {reason}"),
        }
    }
}

impl Failure {
    /// An error that is no input error.
    pub fn other(error: impl std::fmt::Display) -> Failure {
        Failure::Other(error.to_string())
    }

    /// The program's exit code.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Input(_) | Failure::Output { .. } => ExitCode::from(exit::BAD_INPUT),
            Failure::Interrupted(_) => ExitCode::from(exit::INTERRUPTED),
            Failure::Other(_) => ExitCode::FAILURE,
        }
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

/// Whether errors are printed in colour: to a terminal, unless `NO_COLOR` is set (<https://no-color.org>).
/// Consoles of Windows may show the colours' codes.
fn is_colored() -> bool {
    let says_no = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_none_or(|value| value == "dumb");
    std::io::stderr().is_terminal() && !says_no && !is_dumb && !cfg!(windows)
}

/// Parses a command line by `command`, a type's or what was made of it; the program's name first.
///
/// # Errors
/// The program's exit code, when what there is to say has been printed: an error, or the answer to `--help`
/// or `--version`.
pub fn parse<T: clap::Parser>(
    command: clap::Command,
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<T, ExitCode> {
    let matches = command.try_get_matches_from(arguments);
    matches.and_then(|matches| T::from_arg_matches(&matches)).map_err(|error| {
        // clap also returns --help and --version as errors.
        let code = if error.use_stderr() { ExitCode::from(exit::BAD_INPUT) } else { ExitCode::SUCCESS };
        let _ = error.print();
        code
    })
}

/// A program's commands in `--help` by what one wants to do with them.
pub fn by_goal(command: clap::Command, goals: &[(&str, &[&str])]) -> clap::Command {
    let mut commands = String::new();
    for (goal, names) in goals {
        commands += &format!("\n{goal}:\n");
        for one in names.iter().filter_map(|name| command.find_subcommand(name)) {
            let about = one.get_about().map(ToString::to_string).unwrap_or_default();
            commands += &format!("  {:<10} {about}\n", one.get_name());
        }
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{commands}\nOptions:\n{{options}}{{after-help}}"
    ))
}

/// The program's exit code. Prints why a command failed.
pub fn end(done: Result<(), Failure>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            failure.exit_code()
        }
    }
}
