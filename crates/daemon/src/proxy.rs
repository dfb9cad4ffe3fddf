//! `ropewalkd proxy`.

use std::path::PathBuf;

use ropewalk_command_line::settings::{Given, Tables, placeholder};
use ropewalk_command_line::{Failure, output};
use ropewalk_gateway::proxy::{self, Settings};
use ropewalk_gateway::{LevelFilter, config, log};
use ropewalk_settings::diagnostic::{Diagnostic, Source};
use ropewalk_settings::shape::{Kind, Shape};
use serde_json::json;

use crate::gateway::not_beside_a_file;
use crate::show_preview;

/// Carry ordinary programs' connections over many networks
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Carry ordinary programs' connections over many networks.\n\nPrograms connect by SOCKS5 or \
                  HTTP (CONNECT, and requests for http:// URIs), all on one port. Outgoing connections are \
                  Multipath TCP over every --via, by the engine; TCP where the far end has no Multipath \
                  TCP. The kernel's part (a TUN device, a routing table and a masquerade for each uplink) \
                  is set up at the start and removed at the end; it needs CAP_NET_ADMIN. See \
                  docs/gateway.md.",
    after_help = "Examples:
  ropewalkd proxy --via wlan0 --via wwan0,metered --dry-run
  ropewalkd proxy --via wlan0 --via wwan0,metered --policy save-metered \\
      --rule 'port=22 then redundant' --dry-run
  ropewalkd proxy --config /etc/ropewalk/proxy.toml --check
  ropewalkd proxy --schema > proxy.schema.json
  curl --proxy socks5h://127.0.0.1:1080 https://example.org/

A configuration's file:
  [proxy]
  policy = \"save-metered\"
  [[link]]
  interface = \"wlan0\"
  [[link]]
  interface = \"wwan0\"
  metered = true
  quota = \"5GB/monthly@12\"
  [[rule]]
  port = [\"22\"]
  policy = \"redundant\"
SIGHUP reads it again; connections go on.

Exit code: 0 after SIGTERM or SIGINT, 1 if the set-up fails, 2 for settings that can't
be used."
)]
pub(crate) struct Options {
    /// The configuration's file; instead of its settings as options
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Only check the configuration, and that this host has the interfaces and addresses that it names
    #[arg(long)]
    check: bool,
    /// Print the JSON Schema of the configuration's file
    #[arg(long)]
    schema: bool,
    #[arg(long = "via", value_name = "INTERFACE[,...]", help = VIA, long_help = with_keys(VIA, 0))]
    links: Vec<String>,
    #[arg(long = "rule", value_name = "RULE", help = RULE, long_help = with_keys(RULE, 1))]
    rules: Vec<String>,
    #[command(flatten)]
    given: Given<ProxyTables>,
    /// Show the set-up's commands, and run none
    #[arg(long)]
    dry_run: bool,
    /// The least important messages to log: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log: LevelFilter,
    /// Log each connection, as `--log debug`
    #[arg(long, short, conflicts_with = "log")]
    verbose: bool,
    /// Log, and show the set-up, as JSON
    #[arg(long)]
    json: bool,
}

/// The help of `--via`.
const VIA: &str = "An uplink, a `[[link]]` of the file: its interface, and after commas its other keys, as \
                   in `wlan0,metered,price=2.5`; repeat it for each";
/// The help of `--rule`.
const RULE: &str = "A policy for some connections, a `[[rule]]` of the file: its conditions, then the \
                    policy, as in `port=22,5060-5061 then smallest-delay`; repeat it, the first that fits \
                    decides";

/// An option's help, with all keys that it may have, of the tables that may be repeated.
fn with_keys(help: &str, table: usize) -> String {
    let shape = config::proxy::REPEATED[table].1;
    let mut text = format!("{help}. The keys:");
    // An interface stands first, a policy after `then`: neither is written with its name.
    for field in &shape.fields[1..] {
        let value = match field.kind {
            Kind::Switch => String::new(),
            _ => format!("={}", placeholder(field)),
        };
        text.push_str(&format!("\n- {}{value}: {}", field.name, field.line()));
    }
    text
}

/// The settings that options have.
#[derive(Clone, Debug)]
pub(crate) struct ProxyTables;

impl Tables for ProxyTables {
    const TABLES: &'static [(&'static str, &'static Shape)] = config::proxy::TABLES;
}

fn settings(options: &Options) -> Result<Settings, Failure> {
    let sources = |option: &str, texts: &[String]| -> Vec<_> {
        texts.iter().map(|text| Source::new(option, text.as_str())).collect()
    };
    let (links, rules) = (sources("--via", &options.links), sources("--rule", &options.rules));
    match &options.config {
        Some(path) => {
            not_beside_a_file(&options.given)?;
            if let Some(other) = links.first().or(rules.first()) {
                let message = format!("{} can't be used with --config", other.name);
                return Err(Diagnostic::new(message)
                    .help("`[[link]]` and `[[rule]]` go into the file")
                    .into());
            }
            Ok(config::proxy::load(path)?)
        }
        None => Ok(config::proxy::of_options(options.given.written(), &links, &rules)?),
    }
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    if options.schema {
        return output::print(&format!("{:#}\n", config::proxy::schema()));
    }
    let settings = settings(options)?;
    if options.check {
        let lacks = proxy::lacks(&settings).map_err(Failure::other)?;
        if !lacks.is_empty() {
            return Err(Failure::other(std::io::Error::other(lacks.join("; "))));
        }
        let (links, rules) = (settings.links.len(), settings.policies.rules.len());
        return output::print(&match options.json {
            true => format!("{}\n", json!({ "links": links, "rules": rules })),
            false => format!("{}, {}: nothing is wrong\n", count(links, "link"), count(rules, "rule")),
        });
    }
    if options.dry_run {
        return show_preview(&proxy::dry_run(&settings).map_err(Failure::other)?, options.json);
    }
    let level = if options.verbose { LevelFilter::DEBUG } else { options.log };
    log::start(level, options.json);
    let reload = options.config.as_deref().map(|path| move || config::proxy::load(path));
    let reload = reload.as_ref().map(|reload| reload as proxy::Reload<'_>);
    proxy::run_until_stopped(settings, reload).map_err(Failure::other)
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
