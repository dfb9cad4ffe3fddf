//! `ropewalk report`.

use std::ffi::OsString;
use std::path::PathBuf;

use ropewalk_lab::report::{self, Origin, saved};

use crate::{Failure, output};

/// Make the page of a saved run
///
/// One HTML file that needs no network: the verdict, the ranking, completion times, and each traced run drawn in time.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ropewalk compare --json --trace > run.json && ropewalk report run.json
  ropewalk report run.json --output page.html")]
pub(crate) struct Options {
    /// What `compare --json` wrote
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// Where to [default: RUN with .html at its end]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let document = saved::read(&options.run)?;
    let file = options.output.clone().unwrap_or_else(|| options.run.with_extension("html"));
    output::write_file(&file, &report::page(&document))?;
    output::print(&format!("{}\n", file.display()))
}

/// The command line as one would type it.
pub(crate) fn origin(arguments: &[OsString]) -> Origin {
    let quoted = |argument: &OsString| {
        let text = argument.to_string_lossy();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+%".contains(c);
        if !text.is_empty() && text.chars().all(plain) {
            text.into_owned()
        } else {
            format!("'{}'", text.replace('\'', r"'\''"))
        }
    };
    // However the program was called, its name is this.
    let command = std::iter::once("ropewalk".to_string()).chain(arguments.iter().skip(1).map(quoted));
    Origin { command: command.collect::<Vec<_>>().join(" "), version: env!("CARGO_PKG_VERSION").into() }
}

#[cfg(test)]
mod tests {
    use super::origin;

    #[test]
    fn a_command_can_be_typed_again() {
        let arguments = ["/opt/x", "compare", "--path", "it's: 5 Mbit/s", ""].map(Into::into);
        assert_eq!(origin(&arguments).command, r"ropewalk compare --path 'it'\''s: 5 Mbit/s' ''");
    }
}
