//! `ropewalkd record`: what a proxy's links did, as a scenario.

use std::path::{Path, PathBuf};

use ropewalk_command_line::recording::RecordingSource;
use ropewalk_command_line::{Failure, output};
use ropewalk_settings::name::bad_name;

/// A running proxy's links over the last hour, as a scenario file
#[derive(Debug, clap::Args)]
#[command(
    long_about = "A running proxy's links over the last hour, as a scenario file.\n\nThe proxy notes every \
                  second what each link carried, its delay, its loss and whether it worked. `ropewalk \
                  compare` and `ropewalk advise` replay the file: it repeats, and their runs start all over \
                  it. A link's rate is what it carried while it was full; one that never was carries at \
                  least what is said.",
    after_help = "Examples:
  ropewalkd record --output my-links.toml
  ropewalkd record --last '10 min' --output my-links.toml
  ropewalkd record --json > recording.json
  ropewalk compare --scenario my-links.toml --size '4 MiB'"
)]
pub(crate) struct Options {
    #[command(flatten)]
    source: RecordingSource,
    /// The scenario's file [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The recording itself, for `--recording` and for programs
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let recording = options.source.read()?;
    let text = if options.json {
        let value = serde_json::to_value(&recording).map_err(Failure::other)?;
        format!("{value}\n")
    } else {
        let name = options.output.as_deref().and_then(Path::file_stem).and_then(|stem| stem.to_str());
        let name = name.filter(|name| bad_name(name).is_none()).unwrap_or("recorded");
        let told = recording.to_scenario(name).map_err(Failure::other)?;
        for link in told.left_out {
            eprintln!("`{link}` is left out: it carried next to nothing, so its rate isn't known");
        }
        for (link, rate) in told.at_least {
            eprintln!("`{link}` was never full: its rate is at least what it carried, {rate}");
        }
        told.text
    };
    match &options.output {
        Some(path) => output::write_file(path, &text),
        None => output::print(&text),
    }
}
