//! `ropewalkd proxy`.

use std::net::SocketAddr;
use std::path::PathBuf;

use ropewalk_command_line::options::{Join, size_within, time};
use ropewalk_command_line::{Failure, output};
use ropewalk_gateway::proxy::{
    self, Access, Config, Gateway, IpNet, MOST_READY, OpeningLink, Policies, Policy, Rule, Via, users,
};
use ropewalk_gateway::tls::Connector;
use ropewalk_gateway::{LevelFilter, config, log};
use ropewalk_settings::diagnostic::Diagnostic;
use serde_json::json;

use crate::gateway::{cookie, location, metrics};
use crate::show_preview;

/// Carry ordinary programs' connections over many networks
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Carry ordinary programs' connections over many networks.\n\nPrograms connect by SOCKS5 or HTTP CONNECT, both on one port. Outgoing connections are Multipath TCP over every --via, by the engine; TCP where the far end has no Multipath TCP. The kernel's part (a TUN device, a routing table and a masquerade for each uplink) is set up at the start and removed at the end; it needs CAP_NET_ADMIN. See docs/gateway.md.",
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
    /// The configuration's file; instead of --via and what belongs to it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "via", "user", "users", "allow", "policy", "rules", "usage", "transparent", "transparent_port", "congestion", "open_on", "join", "mtu", "connections", "probe", "probe_budget", "captive_check", "drain", "status", "metrics", "page", "gateway"])]
    config: Option<PathBuf>,
    /// Only check the configuration
    #[arg(long, requires = "config")]
    check: bool,
    /// Print the JSON Schema of the configuration's file
    #[arg(long, conflicts_with_all = ["config", "via"])]
    schema: bool,
    #[command(flatten)]
    clients: ClientOptions,
    /// An uplink; repeat it for each. After the interface may follow `metered`, `backup` (used while no other works),
    /// `gateway=ADDRESS`, `price=NUMBER`, `rate=20Mbit/s` (the most each way), `quota=5GB/monthly@12` or `quota=500MB/daily`
    #[arg(long, value_name = "INTERFACE[,...]", required_unless_present_any = ["config", "schema"])]
    via: Vec<Via>,
    /// How connections use the uplinks: fastest, redundant, save-metered, active-standby, smallest-delay, priority,
    /// `load-balance 70:30` (a share for each --via), or a scheduler's name; perhaps limited, as in `redundant over wlan0,wwan0`
    #[arg(long, alias = "scheduler", value_name = "POLICY", default_value = "fastest")]
    policy: Policy,
    /// A policy for some connections; repeat it, the first that fits decides. `port=22,5060-5061 then smallest-delay`,
    /// `to=*.example.org,10.0.0.0/8 size=1MiB then save-metered`, `dscp=ef then redundant`
    #[arg(long = "rule", value_name = "RULE")]
    rules: Vec<Rule>,
    /// Where the use of quotas is kept
    #[arg(long, value_name = "FILE", default_value = "/var/lib/ropewalk/usage.json")]
    usage: PathBuf,
    /// The congestion control of what is sent
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    congestion: String,
    /// The uplink on which a connection opens, where the policy doesn't order them
    #[arg(long, value_enum, default_value = "remember")]
    open_on: OpenOn,
    /// When subflows on the other uplinks are opened
    #[arg(long, value_enum, default_value = "early")]
    join: Join,
    /// Largest IP packet on the uplinks, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(576..=65_535))]
    mtu: u32,
    /// Most connections at a time
    #[arg(long, value_name = "COUNT", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// Where links are probed: an address that answers TCP [default: the last that answered over the link]
    #[arg(long, value_name = "ADDRESS:PORT")]
    probe: Option<SocketAddr>,
    /// What probes may cost on each link, per hour
    #[arg(long, value_name = "SIZE", default_value = "1 MiB")]
    probe_budget: String,
    /// A page that answers 204: a link over which anything else answers is behind a captive portal, and isn't used
    #[arg(long, value_name = "URL")]
    captive_check: Option<String>,
    /// How long connections may go on after SIGTERM
    #[arg(long, value_name = "TIME", default_value = "30 s")]
    drain: String,
    /// The Unix socket that `ropewalkd status` asks, or `none` [default: /run/ropewalk/proxy.sock]
    #[arg(long, value_name = "PATH")]
    status: Option<PathBuf>,
    /// Metrics for Prometheus: http://ADDRESS:PORT/metrics, on loopback
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<String>,
    /// The status page: http://ADDRESS:PORT/, on loopback; elsewhere only by --config, with a token
    #[arg(long, value_name = "ADDRESS:PORT")]
    page: Option<String>,
    #[command(flatten)]
    gateway: GatewayOptions,
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

/// Where clients come from.
#[derive(Debug, clap::Args)]
struct ClientOptions {
    /// Where programs connect. An address that others can reach needs --user, --users or --allow
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:1080")]
    listen: SocketAddr,
    /// A name and password that clients have to give; repeat it for each. Others on this machine can see it: see --users
    #[arg(long = "user", value_name = "NAME:PASSWORD")]
    user: Vec<String>,
    /// A file with one NAME:PASSWORD a line
    #[arg(long, value_name = "FILE")]
    users: Option<PathBuf>,
    /// A network that clients may come from; repeat it for each
    #[arg(long, value_name = "NETWORK")]
    allow: Vec<IpNet>,
    /// Take all TCP connections that come in by this interface, as a router does
    #[arg(long, value_name = "INTERFACE")]
    transparent: Option<String>,
    /// The port to which they are redirected
    #[arg(long, value_name = "PORT", default_value_t = 1081, value_parser = clap::value_parser!(u16).range(1..))]
    transparent_port: u16,
}

/// The gateway that connects to servers for this proxy.
#[derive(Debug, clap::Args)]
struct GatewayOptions {
    /// A gateway that connects to servers for this proxy (RFC 8803, `ropewalkd gateway --convert`): everything goes there
    #[arg(long, value_name = "ADDRESS:PORT")]
    gateway: Option<SocketAddr>,
    /// The file with what the gateway has to be shown (`ropewalkd keys cookie`)
    #[arg(long, value_name = "FILE", requires = "gateway")]
    gateway_cookie: Option<PathBuf>,
    /// This proxy's key, for TLS with the gateway (`ropewalkd keys pair`)
    #[arg(long, value_name = "FILE", requires_all = ["gateway", "gateway_certificate"])]
    gateway_key: Option<PathBuf>,
    /// The gateway's certificate
    #[arg(long, value_name = "FILE", requires = "gateway_key")]
    gateway_certificate: Option<PathBuf>,
    /// Connections to the gateway that are kept ready, so that clients needn't wait for handshakes
    #[arg(long, value_name = "NUMBER", requires = "gateway", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=MOST_READY))]
    gateway_ready: u64,
    /// Tell clients that they are connected before the server has answered: their first data goes with the request
    #[arg(long, requires = "gateway")]
    gateway_early: bool,
}

/// The uplink on which a connection opens.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum OpenOn {
    /// The one with the least round-trip time of probes
    Nearest,
    /// The one that earlier connections to the address found best; the nearest until all are known
    Remember,
    /// The first that answers: all are tried at once
    Race,
}

impl From<OpenOn> for OpeningLink {
    fn from(open_on: OpenOn) -> OpeningLink {
        match open_on {
            OpenOn::Nearest => OpeningLink::Nearest,
            OpenOn::Remember => OpeningLink::Remember,
            OpenOn::Race => OpeningLink::Race,
        }
    }
}

impl ClientOptions {
    fn access(&self) -> Result<Access, Failure> {
        let mut users = Vec::new();
        for text in &self.user {
            let user = users::parse(text);
            users.push(user.map_err(|error| Diagnostic::new(format!("--user: {error}")))?);
        }
        if let Some(path) = &self.users {
            users.extend(users::read(path).map_err(|error| Diagnostic::new(format!("--users: {error}")))?);
        }
        Ok(Access { users, allow: self.allow.clone() })
    }
}

impl GatewayOptions {
    fn read(&self) -> Result<Option<Gateway>, Failure> {
        let Some(address) = self.gateway else { return Ok(None) };
        let cookie = self.gateway_cookie.as_deref().map(|path| cookie("--gateway-cookie", path));
        let tls = match (&self.gateway_key, &self.gateway_certificate) {
            (Some(key), Some(certificate)) => Some(Connector::load(key, certificate)),
            _ => None,
        };
        let tls = tls.transpose().map_err(|error| Diagnostic::new(format!("--gateway-key: {error}")))?;
        let (ready, early) = (self.gateway_ready as usize, self.gateway_early);
        Ok(Some(Gateway { address, cookie: cookie.transpose()?, tls, ready, early }))
    }
}

impl Options {
    fn config(&self) -> Result<Config, Failure> {
        if let Some(path) = &self.config {
            return Ok(config::proxy::load(path)?);
        }
        let config = Config {
            listen: self.clients.listen,
            via: self.via.clone(),
            access: self.clients.access()?,
            policies: Policies { rules: self.rules.clone(), other: self.policy.clone() },
            usage: self.usage.clone(),
            transparent: self
                .clients
                .transparent
                .clone()
                .map(|interface| (interface, self.clients.transparent_port)),
            congestion: self.congestion.clone(),
            open_on: self.open_on.into(),
            early_join: self.join == Join::Early,
            mtu: self.mtu,
            most_flows: self.connections as usize,
            probe: self.probe,
            probe_budget: size_within("--probe-budget", &self.probe_budget, (1, 1 << 40))?,
            captive_check: self.captive_check.clone(),
            drain: time("--drain", &self.drain)?,
            status: location("proxy", self.status.as_ref()),
            page: crate::gateway::page(self.page.as_deref())?,
            metrics: metrics(self.metrics.as_deref())?,
            gateway: self.gateway.read()?,
            ..Config::default()
        };
        config.check().map_err(|error| Diagnostic::new(error.to_string()))?;
        Ok(config)
    }
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    if options.schema {
        return output::print(&format!("{:#}\n", config::proxy::schema()));
    }
    let config = options.config()?;
    if options.check {
        let (links, rules) = (config.via.len(), config.policies.rules.len());
        return output::print(&match options.json {
            true => format!("{}\n", json!({ "links": links, "rules": rules })),
            false => format!("{}, {}: nothing is wrong\n", count(links, "link"), count(rules, "rule")),
        });
    }
    if options.dry_run {
        return show_preview(&proxy::dry_run(&config).map_err(Failure::other)?, options.json);
    }
    let level = if options.verbose { LevelFilter::DEBUG } else { options.log };
    log::start(level, options.json);
    let reload = options.config.as_deref().map(|path| move || config::proxy::load(path));
    let reload = reload.as_ref().map(|reload| reload as proxy::Reload<'_>);
    proxy::run_until_stopped(config, reload).map_err(Failure::other)
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
