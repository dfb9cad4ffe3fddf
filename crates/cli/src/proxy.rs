//! `ropewalk proxy`.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use ropewalk_gateway::proxy::{self, Access, Config, IpNet, Policies, Policy, Rule, Via};
use ropewalk_lab::Registries;
use ropewalk_lab::diagnostic::Diagnostic;

use crate::{Failure, compare, output};

/// Carry ordinary programs' connections over many networks
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Carry ordinary programs' connections over many networks.\n\nPrograms connect by SOCKS5 or HTTP CONNECT, both on one port. Outgoing connections are Multipath TCP over every --via, by the engine; TCP where the far end has no Multipath TCP. The kernel's part (a TUN device, a routing table and a masquerade for each uplink) is set up at the start and removed at the end; it needs CAP_NET_ADMIN. See docs/gateway.md.",
    after_help = "Examples:
  ropewalk proxy --via wlan0 --via wwan0,metered --dry-run
  ropewalk proxy --via wlan0 --via wwan0,metered --policy save-metered \\
      --rule 'port=22 then redundant' --dry-run
  curl --proxy socks5h://127.0.0.1:1080 https://example.org/"
)]
pub(crate) struct Options {
    /// Where programs connect. An address that others can reach needs --user, --users or --allow
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:1080")]
    listen: SocketAddr,
    /// An uplink; repeat it for each. After the interface may follow `metered`, `backup` (used while no other works),
    /// `gateway=ADDRESS`, `price=NUMBER`, `rate=20Mbit/s` (the most each way), `quota=5GB/monthly@12` or `quota=500MB/daily`
    #[arg(long, value_name = "INTERFACE[,...]", required = true)]
    via: Vec<Via>,
    /// A name and password that clients have to give; repeat it for each. Others on this machine can see it: see --users
    #[arg(long = "user", value_name = "NAME:PASSWORD")]
    user: Vec<String>,
    /// A file with one NAME:PASSWORD a line
    #[arg(long, value_name = "FILE")]
    users: Option<PathBuf>,
    /// A network that clients may come from; repeat it for each
    #[arg(long, value_name = "NETWORK")]
    allow: Vec<IpNet>,
    /// How connections use the uplinks: fastest, redundant, save-metered, active-standby, smallest-delay, priority,
    /// `load-balance 70:30` (a share for each --via), or a scheduler's name; perhaps limited, as in `redundant over wlan0,wwan0`
    #[arg(long, alias = "scheduler", value_name = "POLICY", default_value = "linux")]
    policy: Policy,
    /// A policy for some connections; repeat it, the first that fits decides. `port=22,5060-5061 then smallest-delay`,
    /// `to=*.example.org,10.0.0.0/8 size=1MiB then save-metered`
    #[arg(long = "rule", value_name = "RULE")]
    rules: Vec<Rule>,
    /// Where the use of quotas is kept
    #[arg(long, value_name = "FILE", default_value = "/var/lib/ropewalk/usage.json")]
    usage: PathBuf,
    /// Take all TCP connections that come in by this interface, as a router does
    #[arg(long, value_name = "INTERFACE")]
    transparent: Option<String>,
    /// The port to which they are redirected
    #[arg(long, value_name = "PORT", default_value_t = 1081, value_parser = clap::value_parser!(u16).range(1..))]
    transparent_port: u16,
    /// The congestion control of what is sent
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    congestion: String,
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
    check: Option<String>,
    /// Show the set-up's commands, and run none
    #[arg(long)]
    dry_run: bool,
    /// Log each connection
    #[arg(long, short)]
    verbose: bool,
    /// Log, and show the set-up, as JSON
    #[arg(long)]
    json: bool,
}

/// Most bytes of a file with users.
const MOST_USERS: u64 = 1 << 20;

fn read(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MOST_USERS + 1).read_to_string(&mut text));
    match read {
        Ok(_) if text.len() as u64 <= MOST_USERS => Ok(text),
        Ok(_) => Err(Diagnostic::new(format!("{}: it is larger than 1 MiB", path.display())).into()),
        Err(error) => Err(Diagnostic::new(format!("{}: {error}", path.display())).into()),
    }
}

/// A name and its password.
fn user(text: &str, place: &str) -> Result<(String, String), Failure> {
    match text.split_once(':') {
        Some((name, password))
            if !name.is_empty() && name.len() < 256 && (1..256).contains(&password.len()) =>
        {
            Ok((name.to_string(), password.to_string()))
        }
        _ => Err(Diagnostic::new(format!("{place}: expected NAME:PASSWORD, each of 1 to 255 bytes")).into()),
    }
}

impl Options {
    fn access(&self) -> Result<Access, Failure> {
        let mut users = Vec::new();
        for text in &self.user {
            users.push(user(text, "--user")?);
        }
        if let Some(path) = &self.users {
            let text = read(path)?;
            for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
                users.push(user(line.trim(), &format!("{}, line {}", path.display(), at + 1))?);
            }
            if users.is_empty() {
                return Err(Diagnostic::new(format!("{}: no NAME:PASSWORD in it", path.display())).into());
            }
        }
        Ok(Access { users, allow: self.allow.clone() })
    }

    fn config(&self) -> Result<Config, Failure> {
        let config = Config {
            listen: self.listen,
            via: self.via.clone(),
            access: self.access()?,
            policies: Policies { rules: self.rules.clone(), other: self.policy.clone() },
            usage: self.usage.clone(),
            transparent: self.transparent.clone().map(|interface| (interface, self.transparent_port)),
            congestion: self.congestion.clone(),
            mtu: self.mtu,
            most_flows: self.connections as usize,
            probe: self.probe,
            probe_budget: compare::size_within("--probe-budget", &self.probe_budget, (1, 1 << 40))?,
            check: self.check.clone(),
            ..Config::default()
        };
        config.check().map_err(|error| Diagnostic::new(error.to_string()))?;
        Ok(config)
    }
}

pub(crate) fn run(_registries: &Registries, options: &Options) -> Result<(), Failure> {
    let config = options.config()?;
    if options.dry_run {
        return output::preview(&proxy::dry_run(&config).map_err(Failure::other)?, options.json);
    }
    proxy::run_until_stopped(config, options.verbose, options.json).map_err(Failure::other)
}
