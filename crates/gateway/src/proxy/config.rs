//! What a proxy is told.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use ropewalk_lab::units::{self, UnitError};

use super::policy::{Policies, PolicyError};
use super::remote::Gateway;
use super::uplinks::MOST_LINKS;
use super::usage::{Quota, QuotaError};
use crate::page::{Page, PageError};
use crate::status::Location;

/// An uplink, as `--via` names it: `wlan0`, `wwan0,metered`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Via {
    /// The name of the network interface.
    pub interface: String,
    /// Its traffic costs: policies that save metered links avoid it.
    pub metered: bool,
    /// It is used while no other works.
    pub backup: bool,
    /// Its next hop, where the main routing table doesn't tell.
    pub gateway: Option<IpAddr>,
    /// What it costs, in any unit; a metered link without a price costs 1, any other nothing.
    pub price: Option<f64>,
    /// Most that it carries each way, bits per second.
    pub rate: Option<u64>,
    /// Most that it carries in a period.
    pub quota: Option<Quota>,
}

impl Via {
    /// An uplink of which only the interface is said.
    ///
    /// # Errors
    /// If that can't be an interface.
    pub fn new(interface: &str) -> Result<Via, ViaProblem> {
        let is_name = |c: char| c.is_ascii_graphic() && !"/\"\\;{}$,".contains(c);
        if interface.is_empty() || interface.len() > 15 || !interface.chars().all(is_name) {
            return Err(ViaProblem::Interface(interface.to_string()));
        }
        Ok(Via { interface: interface.to_string(), ..Via::default() })
    }

    /// What it costs beside others.
    pub fn cost(&self) -> f64 {
        self.price.unwrap_or(if self.metered { 1.0 } else { 0.0 })
    }
}

/// An uplink that can't be used as it is written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("--via `{text}`: {reason}")]
pub struct ViaError {
    /// What was written.
    pub text: String,
    /// What is wrong with it.
    pub reason: ViaProblem,
}

/// What is wrong with an uplink.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ViaProblem {
    /// Not an interface.
    #[error("`{0}` is no interface's name; expected e.g. `wlan0`")]
    Interface(String),
    /// Not a next hop.
    #[error("`{0}` is no IP address")]
    Gateway(String),
    /// Not a price.
    #[error("`{0}` is no price")]
    Price(String),
    /// Not a rate.
    #[error("{}; {}", .0.message, .0.help)]
    Rate(UnitError),
    /// Not a quota.
    #[error(transparent)]
    Quota(#[from] QuotaError),
    /// A word that there isn't.
    #[error("`{0}` is unknown; expected metered, backup, gateway=, price=, rate= or quota=")]
    Word(String),
}

impl std::str::FromStr for Via {
    type Err = ViaError;

    fn from_str(text: &str) -> Result<Via, ViaError> {
        let wrong = |reason| ViaError { text: text.to_string(), reason };
        let mut words = text.split(',').map(str::trim);
        let mut via = Via::new(words.next().unwrap_or_default()).map_err(wrong)?;
        for word in words {
            match word.split_once('=') {
                None if word == "metered" => via.metered = true,
                None if word == "backup" => via.backup = true,
                Some(("gateway", value)) => {
                    let parsed = value.parse().map_err(|_| wrong(ViaProblem::Gateway(value.to_string())))?;
                    via.gateway = Some(parsed);
                }
                Some(("price", value)) => {
                    let price = value.parse().ok().filter(|price: &f64| price.is_finite() && *price >= 0.0);
                    via.price = Some(price.ok_or_else(|| wrong(ViaProblem::Price(value.to_string())))?);
                }
                Some(("rate", value)) => {
                    via.rate = Some(units::rate(value).map_err(|error| wrong(ViaProblem::Rate(error)))?);
                }
                Some(("quota", value)) => {
                    let quota = value.parse::<Quota>();
                    via.quota = Some(quota.map_err(|error| wrong(error.into()))?);
                }
                _ => return Err(wrong(ViaProblem::Word(word.to_string()))),
            }
        }
        Ok(via)
    }
}

/// Who may use the proxy.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Names and passwords; without any, none is asked for.
    pub users: Vec<(String, String)>,
    /// Networks of clients; without any, all may connect.
    pub allow: Vec<IpNet>,
}

impl Access {
    /// Whether a client may connect.
    pub fn admits(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        self.allow.is_empty() || self.allow.iter().any(|network| network.contains(&client))
    }

    /// Whether a name and password are known. How long it takes doesn't depend on how much of a password is right.
    pub fn knows(&self, name: &str, password: &str) -> bool {
        use sha2::{Digest, Sha256};
        let digest = |text: &str| Sha256::digest(text.as_bytes());
        let (name, password) = (digest(name), digest(password));
        let is_same = |user: &(String, String)| (digest(&user.0) == name) & (digest(&user.1) == password);
        self.users.iter().fold(false, |known, user| known | is_same(user))
    }
}

/// The link on which a connection opens, of those that don't stand by. Where the links' order is the policy, the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Opening {
    /// The one with the least round-trip time of probes.
    Nearest,
    /// The one that earlier connections to the address found best; the nearest until all of them are known.
    #[default]
    Remember,
    /// All at once: the first that answers. The others are dropped, and joined.
    Race,
}

/// What a proxy is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// The uplinks.
    pub via: Vec<Via>,
    /// Who may use it.
    pub access: Access,
    /// Which links connections use, and how.
    pub policies: Policies,
    /// Where quotas' use is kept.
    pub usage: PathBuf,
    /// The interface of programs whose connections are taken without their knowledge, and the port for them.
    pub transparent: Option<(String, u16)>,
    /// The congestion control of what is sent.
    pub congestion: String,
    /// Where connections open.
    pub open_on: Opening,
    /// Whether joins begin with the third ACK, or after the peer's first DSS.
    pub early_join: bool,
    /// Largest IP packet on the uplinks, bytes.
    pub mtu: u32,
    /// Most connections at a time.
    pub most_flows: usize,
    /// How long opening a connection may take.
    pub connect_timeout: Duration,
    /// Where links are probed; without it, where the last connection went to.
    pub probe: Option<SocketAddr>,
    /// What probes may cost on each link, bytes per hour.
    pub probe_budget: u64,
    /// A page that answers 204, to tell the Internet from a captive portal.
    pub captive_check: Option<String>,
    /// How long connections may go on after SIGTERM.
    pub drain: Duration,
    /// The socket of [`crate::status`].
    pub status: Location,
    /// Where Prometheus asks for [`crate::metrics`].
    pub metrics: Option<SocketAddr>,
    /// A gateway to which everything goes; without it, connections go to their servers.
    pub gateway: Option<Gateway>,
    /// The status page.
    pub page: Option<Page>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: ([127, 0, 0, 1], 1080).into(),
            via: Vec::new(),
            access: Access::default(),
            policies: Policies::default(),
            usage: PathBuf::from("/var/lib/ropewalk/usage.json"),
            transparent: None,
            congestion: "cubic".into(),
            open_on: Opening::default(),
            early_join: true,
            mtu: 1500,
            most_flows: 4096,
            connect_timeout: Duration::from_secs(15),
            probe: None,
            probe_budget: 1 << 20,
            captive_check: None,
            drain: Duration::from_secs(30),
            status: Location::default_of("proxy"),
            metrics: None,
            gateway: None,
            page: None,
        }
    }
}

/// A configuration that can't be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Anybody could use it.
    #[error(
        "{0} can be reached by others: name users or allowed networks (`users`, `allow`), so that this is no open proxy, or listen on 127.0.0.1"
    )]
    OpenProxy(SocketAddr),
    /// No uplink.
    #[error("no uplink is given: name at least one, e.g. --via wlan0")]
    NoLink,
    /// Too many uplinks.
    #[error("{0} uplinks: at most {MOST_LINKS} are allowed")]
    TooManyLinks(usize),
    /// An interface twice.
    #[error("two uplinks have the interface `{0}`")]
    Twice(String),
    /// An algorithm that isn't there.
    #[error("{0}")]
    Algorithm(String),
    /// A policy that can't be used with these uplinks.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A URL that can't be used.
    #[error("{0}")]
    Check(String),
    /// A status page that others could read.
    #[error(transparent)]
    Page(#[from] PageError),
    /// An interface for transparent mode that can't be used.
    #[error("transparent `{0}`: expected an interface that is no uplink")]
    Transparent(String),
}

impl ConfigError {
    /// The table of the configuration's file that it is about.
    pub fn table(&self) -> &'static str {
        match self {
            ConfigError::NoLink | ConfigError::TooManyLinks(_) | ConfigError::Twice(_) => "link",
            _ => "proxy",
        }
    }
}

impl Config {
    /// Whether some link has a quota.
    pub fn has_quota(&self) -> bool {
        self.via.iter().any(|via| via.quota.is_some())
    }

    /// What differs from another configuration and can't be changed while the proxy runs.
    pub fn needs_restart(&self, other: &Config) -> Option<&'static str> {
        let interfaces =
            |config: &Config| -> Vec<String> { config.via.iter().map(|via| via.interface.clone()).collect() };
        let rows = [
            ("the links' interfaces", interfaces(self) != interfaces(other)),
            ("`listen`", self.listen != other.listen),
            ("`transparent`", self.transparent != other.transparent),
            ("`mtu`", self.mtu != other.mtu),
            ("`connections`", self.most_flows != other.most_flows),
            ("`usage`", self.usage != other.usage),
            ("`status`", self.status != other.status),
            ("`metrics`", self.metrics != other.metrics),
            ("`page`", self.page != other.page),
        ];
        rows.into_iter().find(|(_, differs)| *differs).map(|(what, _)| what)
    }

    /// Checks it.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), ConfigError> {
        let is_closed = !self.access.users.is_empty() || !self.access.allow.is_empty();
        if !self.listen.ip().to_canonical().is_loopback() && !is_closed {
            return Err(ConfigError::OpenProxy(self.listen));
        }
        if self.via.is_empty() {
            return Err(ConfigError::NoLink);
        }
        if self.via.len() > MOST_LINKS {
            return Err(ConfigError::TooManyLinks(self.via.len()));
        }
        for (at, via) in self.via.iter().enumerate() {
            if self.via[..at].iter().any(|other| other.interface == via.interface) {
                return Err(ConfigError::Twice(via.interface.clone()));
            }
        }
        if let Some(page) = &self.page {
            page.check()?;
        }
        if let Some(url) = &self.captive_check {
            super::captive::check_target(url).map_err(ConfigError::Check)?;
        }
        let wrong = |error: ropewalk_engine::registry::SpecError| ConfigError::Algorithm(error.to_string());
        for policy in self.policies.all() {
            policy.check(&self.via)?;
        }
        if let Some((interface, _)) = &self.transparent {
            let is_uplink = self.via.iter().any(|via| via.interface == *interface);
            if is_uplink || interface.parse::<Via>().is_err() {
                return Err(ConfigError::Transparent(interface.clone()));
            }
        }
        ropewalk_engine::congestion::builtin().parse(&self.congestion).map_err(wrong)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Access, Config, ConfigError, Via};

    fn via(text: &str) -> Via {
        text.parse().unwrap()
    }

    #[test]
    fn uplinks_are_read_as_they_are_written() {
        assert_eq!(via("wlan0"), Via { interface: "wlan0".into(), ..Via::default() });
        let lte = via("wwan0.7, metered,backup,gateway=192.0.2.1");
        assert!(lte.metered && lte.backup && lte.gateway == Some([192, 0, 2, 1].into()));
        let sat = via("sat0,price=2.5,rate=20Mbit/s,quota=5GB/monthly@12");
        assert_eq!((sat.cost(), sat.rate), (2.5, Some(20_000_000)));
        assert!(sat.quota.is_some_and(|quota| quota.bytes == 5_000_000_000));
        assert_eq!((via("a").cost(), via("a,metered").cost()), (0.0, 1.0));
        for (text, expected) in [
            ("a,price=-1", "`-1` is no price"),
            ("a,rate=fast", "--via `a,rate=fast`"),
            ("a,quota=5GB", "is no quota"),
            ("", "is no interface's name"),
            ("wlan0\"; drop", "is no interface's name"),
            ("a-name-of-sixteen", "is no interface's name"),
            ("wlan0,fast", "`fast` is unknown; expected metered"),
            ("wlan0,gateway=here", "`here` is no IP address"),
        ] {
            let error = text.parse::<Via>().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn nobody_makes_an_open_proxy() {
        let mut config =
            Config { listen: ([0, 0, 0, 0], 1080).into(), via: vec![via("wlan0")], ..Config::default() };
        assert_eq!(config.check(), Err(ConfigError::OpenProxy(config.listen)));
        config.access.allow = vec!["192.168.0.0/16".parse().unwrap()];
        assert_eq!(config.check(), Ok(()));
        config.access = Access { users: vec![("van".into(), "secret".into())], allow: Vec::new() };
        assert_eq!(config.check(), Ok(()));
        let local = Config { via: vec![via("wlan0")], ..Config::default() };
        assert_eq!(local.check(), Ok(()));
    }

    #[test]
    fn clients_are_admitted_by_network_and_by_password() {
        let access = Access {
            users: vec![("a".into(), "one".into()), ("b".into(), "two".into())],
            allow: vec!["192.168.0.0/16".parse().unwrap(), "fd00::/8".parse().unwrap()],
        };
        assert!(
            access.admits([192, 168, 7, 7].into()) && access.admits("::ffff:192.168.7.7".parse().unwrap())
        );
        assert!(!access.admits([192, 169, 0, 1].into()) && !access.admits("2001:db8::1".parse().unwrap()));
        assert!(access.knows("b", "two"));
        assert!(!access.knows("b", "one") && !access.knows("b", "") && !access.knows("", ""));
    }

    #[test]
    fn mistakes_are_named() {
        let config = |via: Vec<Via>| Config { via, ..Config::default() };
        assert_eq!(config(Vec::new()).check(), Err(ConfigError::NoLink));
        assert_eq!(config(vec![via("a"), via("a")]).check(), Err(ConfigError::Twice("a".into())));
        let many = (0..9).map(|at| via(&format!("eth{at}"))).collect();
        assert_eq!(config(many).check(), Err(ConfigError::TooManyLinks(9)));
        for (policy, expected) in [
            ("redundant over b", "a policy names `b`, which is no uplink"),
            ("load-balance 1:2", "load-balance has 2 shares for 1 uplinks"),
        ] {
            let mut config = config(vec![via("a")]);
            config.policies.other = policy.parse().unwrap();
            assert_eq!(config.check().unwrap_err().to_string(), expected);
        }
    }
}
