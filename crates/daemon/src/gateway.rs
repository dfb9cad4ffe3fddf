//! `ropewalkd gateway`.

use std::path::PathBuf;

use ropewalk_algorithms::Registries;
use ropewalk_command_line::settings::{Given, Tables};
use ropewalk_command_line::{Failure, output};
use ropewalk_gateway::gateway::{self, Settings};
use ropewalk_gateway::{LevelFilter, config, log};
use ropewalk_settings::diagnostic::Diagnostic;
use ropewalk_settings::shape::Shape;
use serde_json::json;

use crate::show_preview;

/// Multipath TCP before servers that have only TCP
///
/// Accepts Multipath TCP and plain TCP with the engine, and forwards to a TCP server. The host's own address
/// and port reach the engine through a TUN device, with rules of nftables that are removed at the end.
/// CAP_NET_ADMIN is needed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ropewalkd gateway --listen 192.0.2.1:443 --to 127.0.0.1:8443 --dry-run
  ropewalkd gateway --listen 192.0.2.1:443 --to 127.0.0.1:8443 \\
      --address 198.51.100.1 --scheduler blest
  ropewalkd gateway --listen 192.0.2.1:5124 --convert 'internet 80,443' \\
      --cookie /etc/ropewalk/cookie
  ropewalkd gateway --config /etc/ropewalk/gateway.toml --check
  ropewalkd gateway --schema > gateway.schema.json

A configuration's file:
  [gateway]
  drain = \"30 s\"
  [[listener]]
  listen = \"192.0.2.1:443\"
  to = \"127.0.0.1:8443\"
  addresses = [\"198.51.100.1\"]
  scheduler = \"blest\"
  proxy-protocol = \"v2\"
SIGHUP reads it again; connections go on.

Exit code: 0 after SIGTERM or SIGINT, 1 if the set-up fails, 2 for settings that can't
be used.")]
pub(crate) struct Options {
    /// The configuration's file; instead of its settings as options
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Only check the configuration, and that this host has the addresses that it names
    #[arg(long)]
    check: bool,
    /// Print the JSON Schema of the configuration's file
    #[arg(long)]
    schema: bool,
    #[command(flatten)]
    given: Given<GatewayTables>,
    /// Show what would be set up, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// The least important messages to log: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log: LevelFilter,
    /// Logs, and what --dry-run shows, as JSON
    #[arg(long)]
    json: bool,
}

/// The settings that options have.
#[derive(Clone, Debug)]
pub(crate) struct GatewayTables;

impl Tables for GatewayTables {
    const TABLES: &'static [(&'static str, &'static Shape)] = config::TABLES;
}

fn settings(registries: &Registries, options: &Options) -> Result<Settings, Failure> {
    match &options.config {
        Some(path) => {
            not_beside_a_file(&options.given)?;
            Ok(config::load(path, registries)?)
        }
        None => Ok(config::of_options(&options.given.written(), registries)?),
    }
}

/// What a file says isn't said twice.
pub(crate) fn not_beside_a_file<T: Tables>(given: &Given<T>) -> Result<(), Failure> {
    match given.options().next() {
        None => Ok(()),
        Some(option) => Err(Diagnostic::new(format!("--{option} can't be used with --config"))
            .help(format!("`{option}` goes into the file"))
            .into()),
    }
}

pub(crate) fn run(registries: &Registries, options: &Options) -> Result<(), Failure> {
    if options.schema {
        return output::print(&format!("{:#}\n", config::schema()));
    }
    let settings = settings(registries, options)?;
    if options.check {
        settings.plan().map_err(Failure::other)?;
        let listeners = settings.listeners.len();
        return output::print(&match options.json {
            true => format!("{}\n", json!({ "listeners": listeners })),
            false => {
                format!("{listeners} listener{}: nothing is wrong\n", if listeners == 1 { "" } else { "s" })
            }
        });
    }
    if options.dry_run {
        return show_preview(&settings.plan().map_err(Failure::other)?.preview(), options.json);
    }
    log::start(options.log, options.json);
    let reload = options.config.as_deref().map(|path| move || config::load(path, registries));
    let reload = reload.as_ref().map(|reload| reload as gateway::Reload<'_>);
    gateway::run(&settings, reload).map_err(Failure::other)
}
