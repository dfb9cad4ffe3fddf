//! `ropewalk keys`: what a proxy and its gateway know each other by.

use std::path::PathBuf;

use ropewalk_gateway::convert::Cookie;
use ropewalk_lab::diagnostic::Diagnostic;
use serde_json::json;

use crate::{Failure, output};

/// Make what a proxy and its gateway know each other by
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// A secret that the proxy shows the gateway (the cookie of RFC 8803)
    #[command(after_help = "Examples:
  ropewalk keys cookie cookie
Copy it to the other end by a way that nobody else sees.")]
    Cookie {
        /// The file to write. It is made for its owner alone (mode 0600), and none is overwritten
        file: PathBuf,
        /// Report as JSON
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    match &options.what {
        What::Cookie { file, json } => {
            Cookie::generate(file)
                .map_err(|error| Diagnostic::new(format!("`{}`: {error}", file.display())))?;
            let file = file.display().to_string();
            output::print(&match json {
                true => format!("{}\n", json!({ "cookie": file })),
                false => format!("{file}: a new cookie, for the gateway and for the proxy\n"),
            })
        }
    }
}
