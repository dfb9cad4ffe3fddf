//! `ropewalkd gateway`.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ropewalk_algorithms::{Registries, algorithm};
use ropewalk_command_line::options::time;
use ropewalk_command_line::{Failure, output};
use ropewalk_gateway::convert::{Converter, Cookie, Destination, Destinations};
use ropewalk_gateway::gateway::{self, Listener, Service, Settings};
use ropewalk_gateway::page::Page;
use ropewalk_gateway::status::Location;
use ropewalk_gateway::tls::Acceptor;
use ropewalk_gateway::{LevelFilter, config, log, metrics};
use ropewalk_settings::diagnostic::{Diagnostic, Source};
use serde_json::json;

use crate::show_preview;

/// Multipath TCP before servers that have only TCP
///
/// Accepts Multipath TCP and plain TCP with the engine, and forwards to a TCP server. The host's own address and port reach the
/// engine through a TUN device, with rules of nftables that are removed at the end. CAP_NET_ADMIN is needed.
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
    /// The configuration's file; instead of --listen and what belongs to it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "to", "addresses", "scheduler", "congestion", "cores", "drain"])]
    config: Option<PathBuf>,
    /// Only check the configuration
    #[arg(long, requires = "config")]
    check: bool,
    /// Print the JSON Schema of the configuration's file
    #[arg(long, conflicts_with_all = ["config", "listen", "to"])]
    schema: bool,
    /// Address and port of this host that clients connect to
    #[arg(long, value_name = "ADDRESS:PORT", required_unless_present_any = ["config", "schema"])]
    listen: Option<String>,
    /// Address and port of the TCP server
    #[arg(long, value_name = "ADDRESS:PORT", required_unless_present_any = ["config", "schema", "convert"], conflicts_with = "convert")]
    to: Option<String>,
    /// Instead of --to: connect to the servers that clients name (RFC 8803), within this: `internet 80,443`, `10.0.0.0/8`;
    /// repeat it for each
    #[arg(long, value_name = "NETWORK [PORTS]", conflicts_with = "config")]
    convert: Vec<Destination>,
    /// With --convert: this gateway's key, for TLS with proxies that are known (`ropewalkd keys pair`)
    #[arg(long, value_name = "FILE", requires_all = ["convert", "proxies"])]
    key: Option<PathBuf>,
    /// With --key: the certificate of a proxy that is accepted; repeat it for each
    #[arg(long = "proxy", value_name = "FILE", requires = "key")]
    proxies: Vec<PathBuf>,
    /// With --convert: where clients may send datagrams (UDP), as in `internet 53,443`; repeat it for each
    #[arg(long, value_name = "NETWORK [PORTS]", requires = "convert")]
    udp: Vec<Destination>,
    /// With --convert: the file with what clients have to show (`ropewalkd keys cookie`)
    #[arg(long, value_name = "FILE", requires = "convert")]
    cookie: Option<PathBuf>,
    /// A further address of this host, announced to clients (ADD_ADDR); repeat it for each
    #[arg(long = "address", value_name = "ADDRESS")]
    addresses: Vec<String>,
    /// Packet scheduler [default: ropewalk]
    #[arg(long)]
    scheduler: Option<String>,
    /// Congestion control [default: cubic]
    #[arg(long)]
    congestion: Option<String>,
    /// Cores for the engine: queues of each device
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    cores: u16,
    /// How long connections may go on after SIGTERM
    #[arg(long, value_name = "TIME", default_value = "30 s")]
    drain: String,
    /// The Unix socket that `ropewalkd status` asks, or `none` [default: /run/ropewalk/gateway.sock]
    #[arg(long, value_name = "PATH", conflicts_with = "config")]
    status: Option<PathBuf>,
    /// Metrics for Prometheus: http://ADDRESS:PORT/metrics, on loopback
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "config")]
    metrics: Option<String>,
    /// The status page: http://ADDRESS:PORT/, on loopback; elsewhere only by --config, with a token
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "config")]
    page: Option<String>,
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

fn wrong(option: &str, text: &str, expected: &str) -> Failure {
    let source = Source::new(option, text);
    let message = format!("{option}: expected {expected}");
    Diagnostic::new(message).at(&source, 0..text.len()).label(format!("found `{text}`")).into()
}

/// A socket's address on the command line.
pub(crate) fn socket(option: &str, text: &str) -> Result<SocketAddr, Failure> {
    let expected = "an address and a port, such as 192.0.2.1:443 or [2001:db8::1]:443";
    let parsed = text.trim().parse::<SocketAddr>().ok().filter(|socket| socket.port() != 0);
    parsed.ok_or_else(|| wrong(option, text, expected))
}

/// The status socket.
pub(crate) fn location(kind: &str, named: Option<&PathBuf>) -> Location {
    named.cloned().map_or_else(|| Location::default_of(kind), Location::named)
}

/// The cookie of a file.
pub(crate) fn cookie(option: &str, path: &Path) -> Result<Cookie, Failure> {
    let wrong = |error| Diagnostic::new(format!("{option} `{}`: {error}", path.display()));
    Ok(Cookie::load(path).map_err(wrong)?)
}

/// The metrics' address of the command line.
pub(crate) fn metrics(text: Option<&str>) -> Result<Option<SocketAddr>, Failure> {
    let Some(text) = text else { return Ok(None) };
    let address = socket("--metrics", text)?;
    metrics::check(address).map_err(|error| {
        Diagnostic::new(format!("--metrics: {error}")).help("metrics tell who connects, and have no password")
    })?;
    Ok(Some(address))
}

/// The status page of the command line.
pub(crate) fn page(text: Option<&str>) -> Result<Option<Page>, Failure> {
    let Some(text) = text else { return Ok(None) };
    let page = Page { address: socket("--page", text)?, token: None };
    page.check().map_err(|error| {
        Diagnostic::new(format!("--page: {error}")).help("`page-token` in a file, by --config")
    })?;
    Ok(Some(page))
}

fn settings(registries: &Registries, options: &Options) -> Result<Settings, Failure> {
    if let Some(path) = &options.config {
        return Ok(config::load(path, registries)?);
    }
    let listen = socket("--listen", options.listen.as_deref().unwrap_or_default())?;
    let tls = options.key.as_deref().map(|key| Acceptor::load(key, &options.proxies));
    let service = match options.convert.is_empty() {
        true => Service::Forward(socket("--to", options.to.as_deref().unwrap_or_default())?),
        false if options.cookie.is_none() && options.key.is_none() => {
            let message = "--convert needs --cookie, or --key and --proxy: this would be an open proxy";
            return Err(Diagnostic::new(message).into());
        }
        false => Service::Convert(Converter {
            destinations: Destinations(options.convert.clone()),
            datagrams: Destinations(options.udp.clone()),
            cookie: options.cookie.as_deref().map(|path| cookie("--cookie", path)).transpose()?,
            tls: tls.transpose().map_err(|error| Diagnostic::new(format!("--key: {error}")))?,
            connect_timeout: Duration::from_secs(5),
        }),
    };
    let mut connection = gateway::default_connection();
    if let Some(name) = &options.scheduler {
        connection.scheduler = algorithm(&registries.schedulers, "--scheduler", name)?;
    }
    if let Some(name) = &options.congestion {
        connection.congestion = algorithm(&registries.congestion, "--congestion", name)?;
    }
    let address = |text: &String| {
        text.trim()
            .parse::<IpAddr>()
            .map_err(|_| wrong("--address", text, "an address without a port, such as 192.0.2.2"))
    };
    let addresses = options.addresses.iter().map(address).collect::<Result<Vec<_>, _>>()?;
    let listener = Listener { addresses, connection, ..Listener::new(listen, service) };
    let settings = Settings {
        metrics: metrics(options.metrics.as_deref())?,
        page: page(options.page.as_deref())?,
        status: location("gateway", options.status.as_ref()),
        cores: options.cores.into(),
        drain: time("--drain", &options.drain)?,
        ..Settings::new(vec![listener])
    };
    Ok(settings)
}

pub(crate) fn run(registries: &Registries, options: &Options) -> Result<(), Failure> {
    if options.schema {
        return output::print(&format!("{:#}\n", config::schema()));
    }
    let settings = settings(registries, options)?;
    if options.check {
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
