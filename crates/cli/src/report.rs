//! `ropewalk report`.

use std::ffi::OsString;
use std::path::PathBuf;

use ropewalk_command_line::{Failure, output};
use ropewalk_lab::report::{Origin, saved, sweep};
use ropewalk_runner::folder;

/// Make the page of a saved run
///
/// One HTML file that needs no network. For a comparison: the verdict, the ranking, completion times, and
/// traced runs drawn in time. For a sweep: which scheduler finishes first where, and by how much.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ropewalk compare --json --trace > run.json && ropewalk report run.json
  ropewalk report run.json --output page.html
  ropewalk report rtt-and-loss-results --json | jq .verdict
  ropewalk sweep rtt-and-loss.toml && ropewalk report rtt-and-loss-results")]
pub(crate) struct Options {
    /// The output of `compare --json`, or the folder of a sweep
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// The page's file [default: RUN with .html at its end]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print what the page shows as JSON, and write no page
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let document = if options.run.is_dir() {
        let (origin, sweep) = folder::read(&options.run)?;
        sweep::document(&origin, &sweep)
    } else {
        saved::read(&options.run, ropewalk_settings::input::open)?
    };
    if options.json {
        return output::print(&format!("{document:#}\n"));
    }
    let file = options.output.clone().unwrap_or_else(|| options.run.with_extension("html"));
    output::write_file(&file, &ropewalk_page::page(&document))?;
    output::print(&format!("{}\n", file.display()))
}

/// The command line of a report.
pub(crate) fn origin(arguments: &[OsString]) -> Origin {
    Origin::of(&without_jobs(arguments), env!("CARGO_PKG_VERSION"))
}

/// The arguments without `--jobs`, on which results don't depend.
pub(crate) fn without_jobs(arguments: &[OsString]) -> Vec<String> {
    let mut texts = arguments.iter().map(|argument| argument.to_string_lossy().into_owned());
    let mut kept = Vec::new();
    while let Some(text) = texts.next() {
        if text == "--jobs" {
            texts.next();
        } else if !text.starts_with("--jobs=") {
            kept.push(text);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::origin;

    #[test]
    fn an_origin_does_not_depend_on_threads() {
        let of = |line: &str| origin(&line.split(' ').map(OsString::from).collect::<Vec<_>>()).command;
        assert_eq!(of("ropewalk compare --jobs 3 --json"), "ropewalk compare --json");
        assert_eq!(of("ropewalk compare --json --jobs=3"), "ropewalk compare --json");
    }
}
