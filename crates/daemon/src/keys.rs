//! `ropewalkd keys`: the secrets by which a proxy and its gateway authenticate each other.

use std::path::PathBuf;

use ropewalk_command_line::{Failure, output};
use ropewalk_gateway::convert::Cookie;
use ropewalk_gateway::tls::keys;
use ropewalk_settings::diagnostic::Diagnostic;
use serde_json::json;

/// Make the secrets by which a proxy and its gateway authenticate each other
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ropewalkd keys pair keys
  ropewalkd keys cookie cookie")]
pub(crate) struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// A secret that the proxy shows the gateway (the cookie of RFC 8803)
    #[command(after_help = "Examples:
  ropewalkd keys cookie cookie

Copy it to the other end by a way that nobody else sees.")]
    Cookie {
        /// The file to write. It is made for its owner alone (mode 0600), and none is overwritten
        file: PathBuf,
        /// Report as JSON
        #[arg(long)]
        json: bool,
    },
    /// A key for each end and its certificate for the other, for TLS
    #[command(after_help = "Examples:
  ropewalkd keys pair keys

gateway.key and proxy.pub are the gateway's; proxy.key and gateway.pub the
proxy's. A key (mode 0600) is known to its end alone: make each where it is used with
`--only`, and copy the .pub files.")]
    Pair {
        /// The folder to write to; it is made if need be. No file is overwritten
        folder: PathBuf,
        /// Make this one's alone: its name, such as gateway, proxy, or van2
        #[arg(long, value_name = "NAME")]
        only: Option<String>,
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
        What::Pair { folder, only, json } => {
            let names = match only.as_deref() {
                Some(name) if name.is_empty() || name.contains(['/', '.']) => {
                    let message = format!("--only `{name}`: expected a name without `/` and `.`");
                    return Err(Diagnostic::new(message).into());
                }
                Some(name) => vec![name],
                None => vec!["gateway", "proxy"],
            };
            std::fs::create_dir_all(folder)
                .map_err(|error| Diagnostic::new(format!("`{}`: {error}", folder.display())))?;
            let mut files = Vec::new();
            for name in names {
                files.extend(
                    keys::generate(folder, name).map_err(|error| Diagnostic::new(error.to_string()))?,
                );
            }
            let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
            output::print(&match json {
                true => format!("{}\n", json!({ "files": files })),
                false => files.iter().map(|file| format!("{file}\n")).collect(),
            })
        }
    }
}
