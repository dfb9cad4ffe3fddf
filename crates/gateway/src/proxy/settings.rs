//! What a proxy is told.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use ropewalk_engine::registry::SpecError;

use super::check_url::{CheckUrlError, check_target};
use super::link_addresses::MOST_LINKS;
use super::link_settings::LinkSettings;
use super::policy::{Policies, PolicyError};
use super::remote::Gateway;
use crate::gateway::difference;
use crate::page::{Page, PageError};
use crate::status::Location;
use crate::tunnel::ports::PortTarget;

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

    /// Whether a name and password are known. How long it takes doesn't depend on how much of a password is
    /// right.
    pub fn knows(&self, name: &str, password: &str) -> bool {
        use sha2::{Digest, Sha256};
        let digest = |text: &str| Sha256::digest(text.as_bytes());
        let (name, password) = (digest(name), digest(password));
        let is_same = |user: &(String, String)| (digest(&user.0) == name) & (digest(&user.1) == password);
        self.users.iter().fold(false, |known, user| known | is_same(user))
    }
}

/// The link on which a connection opens, of those that don't stand by. Where the links' order is the policy,
/// the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpeningLink {
    /// The one with the least round-trip time of probes.
    Nearest,
    /// The one that earlier connections to the address found best; the nearest until all of them are known.
    Remember,
    /// All at once: the first that answers. The others are dropped, and joined.
    Race,
}

/// When joins begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Join {
    /// As soon as the handshake's third ACK is sent.
    Early,
    /// After the peer's first DSS.
    Late,
}

/// How queries of the DNS travel that would leave by a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Names {
    /// Over any link that works.
    Links,
    /// By the kernel's routes.
    System,
}

/// How what isn't TCP travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Datagrams {
    /// Through the gateway, over all links.
    Gateway,
    /// By the kernel's routes.
    System,
}

/// Where connections go while no gateway can be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GatewayFallback {
    /// Nowhere.
    None,
    /// To their servers.
    Direct,
}

/// What a proxy is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// The uplinks.
    pub links: Vec<LinkSettings>,
    /// Who may use it.
    pub access: Access,
    /// Which links connections use, and how.
    pub policies: Policies,
    /// Where quotas' use is kept.
    pub usage: PathBuf,
    /// Interfaces of programs whose connections are taken without their knowledge.
    pub transparent: Vec<String>,
    /// The port to which these are redirected, and by UDP queries of the DNS.
    pub transparent_port: u16,
    /// How queries of the DNS travel that would leave by a link.
    pub names: Names,
    /// How what isn't TCP travels.
    pub datagrams: Datagrams,
    /// Where ports lead to that the gateway gives.
    pub inbound: Vec<PortTarget>,
    /// The congestion control of what is sent.
    pub congestion: String,
    /// Where connections open.
    pub open_on: OpeningLink,
    /// When joins begin.
    pub join: Join,
    /// Largest IP packet on every uplink, bytes, where interfaces take larger ones.
    pub mtu: Option<u32>,
    /// Most connections at a time.
    pub most_connections: usize,
    /// Most connections of one address at a time.
    pub most_per_address: usize,
    /// Most bytes that this program should take: from half of it on connections that make no progress are
    /// reset.
    pub memory: u64,
    /// How long data may wait for a far end that takes none of it.
    pub stalled: Duration,
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
    /// Gateways, of which the first that works is used; without any, connections go to their servers.
    pub gateways: Vec<Gateway>,
    /// Where connections go while no gateway can be reached.
    pub gateway_fallback: GatewayFallback,
    /// The status page.
    pub page: Option<Page>,
    /// Folders of its configuration and of the files that this names.
    pub reads: Vec<PathBuf>,
    /// What can't be changed while the proxy runs: keys and their values.
    pub fixed: Vec<(&'static str, String)>,
}

/// A configuration that can't be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// Anybody could use it.
    #[error(
        "{0} can be reached by others: name users or allowed networks (`users`, `allow`), so that this is \
         no open proxy, or listen on 127.0.0.1"
    )]
    OpenProxy(SocketAddr),
    /// No uplink.
    #[error("no uplink is given: name at least one, e.g. --via wlan0")]
    NoLink,
    /// Too many uplinks.
    #[error("{0} uplinks: at most {MOST_LINKS} are allowed")]
    TooManyLinks(usize),
    /// A name twice.
    #[error("two uplinks have the name `{0}`: give one of them another (`name`), and each its `gateway`")]
    Twice(String),
    /// Two uplinks of one interface without a next hop of their own.
    #[error("two uplinks have the interface `{0}`: each needs a `gateway` of its own")]
    SameWay(String),
    /// An algorithm that isn't there.
    #[error(transparent)]
    Algorithm(#[from] SpecError),
    /// A policy that can't be used with these uplinks.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A URL that can't be used.
    #[error(transparent)]
    Check(#[from] CheckUrlError),
    /// A status page that others could read.
    #[error(transparent)]
    Page(#[from] PageError),
    /// An interface for transparent mode that can't be used.
    #[error("transparent `{0}`: expected an interface that is no uplink")]
    Transparent(String),
    /// Ports that lead nowhere.
    #[error("`inbound` goes with `transparent`, `gateway-key` and `datagrams = \"gateway\"`")]
    Inbound,
}

impl SettingsError {
    /// The table of the configuration's file that it is about.
    pub fn table(&self) -> &'static str {
        match self {
            SettingsError::NoLink
            | SettingsError::TooManyLinks(_)
            | SettingsError::Twice(_)
            | SettingsError::SameWay(_) => "link",
            _ => "proxy",
        }
    }

    /// The key of that table that it is about, if it is one.
    pub fn key(&self) -> Option<&'static str> {
        match self {
            SettingsError::OpenProxy(_) => Some("listen"),
            SettingsError::Transparent(_) => Some("transparent"),
            SettingsError::Inbound => Some("inbound"),
            _ => None,
        }
    }
}

impl Settings {
    /// Whether some link has a quota.
    pub fn has_quota(&self) -> bool {
        self.links.iter().any(|link| link.quota.is_some())
    }

    /// Whether rules lead some of what isn't TCP past the tunnel.
    pub fn goes_past_tunnel(&self) -> bool {
        self.has_tunnel() && self.policies.all().any(|policy| policy.direct)
    }

    /// Whether there may be a tunnel for what isn't TCP.
    pub fn has_tunnel(&self) -> bool {
        let has_keys = self.gateways.iter().any(|gateway| gateway.tls.is_some());
        self.datagrams == Datagrams::Gateway && has_keys && !self.transparent.is_empty()
    }

    /// What differs from another configuration and can't be changed while the proxy runs.
    pub fn needs_restart(&self, other: &Settings) -> Option<&'static str> {
        difference(&self.fixed, &other.fixed)
    }

    /// Checks it.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), SettingsError> {
        let is_closed = !self.access.users.is_empty() || !self.access.allow.is_empty();
        if !self.listen.ip().to_canonical().is_loopback() && !is_closed {
            return Err(SettingsError::OpenProxy(self.listen));
        }
        if self.links.is_empty() {
            return Err(SettingsError::NoLink);
        }
        if self.links.len() > MOST_LINKS {
            return Err(SettingsError::TooManyLinks(self.links.len()));
        }
        for (at, link) in self.links.iter().enumerate() {
            let before = &self.links[..at];
            if before.iter().any(|other| other.name() == link.name()) {
                return Err(SettingsError::Twice(link.name().to_string()));
            }
            let shared = before.iter().find(|other| other.interface == link.interface);
            if shared.is_some_and(|other| other.gateway.is_none() || other.gateway == link.gateway) {
                return Err(SettingsError::SameWay(link.interface.clone()));
            }
        }
        if let Some(page) = &self.page {
            page.check()?;
        }
        if let Some(url) = &self.captive_check {
            check_target(url)?;
        }
        for policy in self.policies.all() {
            policy.check(&self.links)?;
        }
        for interface in &self.transparent {
            let is_uplink = self.links.iter().any(|link| link.interface == *interface);
            if is_uplink || interface.parse::<LinkSettings>().is_err() {
                return Err(SettingsError::Transparent(interface.clone()));
            }
        }
        if !self.inbound.is_empty() && !self.has_tunnel() {
            return Err(SettingsError::Inbound);
        }
        ropewalk_engine::congestion::builtin().parse(&self.congestion)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Access, LinkSettings, Settings, SettingsError};

    fn link(text: &str) -> LinkSettings {
        text.parse().unwrap()
    }

    #[test]
    fn nobody_makes_an_open_proxy() {
        let mut settings = Settings {
            listen: ([0, 0, 0, 0], 1080).into(),
            links: vec![link("wlan0")],
            ..Settings::default()
        };
        assert_eq!(settings.check(), Err(SettingsError::OpenProxy(settings.listen)));
        settings.access.allow = vec!["192.168.0.0/16".parse().unwrap()];
        assert_eq!(settings.check(), Ok(()));
        settings.access = Access { users: vec![("van".into(), "secret".into())], allow: Vec::new() };
        assert_eq!(settings.check(), Ok(()));
        let local = Settings { links: vec![link("wlan0")], ..Settings::default() };
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
        let settings = |links: Vec<LinkSettings>| Settings { links, ..Settings::default() };
        assert_eq!(settings(Vec::new()).check(), Err(SettingsError::NoLink));
        assert_eq!(settings(vec![link("a"), link("a")]).check(), Err(SettingsError::Twice("a".into())));
        let two = |one, other| settings(vec![link(one), link(other)]).check();
        let same = Err(SettingsError::SameWay("a".into()));
        assert_eq!(two("a,gateway=192.0.2.1", "a,name=b,gateway=192.0.2.2"), Ok(()));
        assert_eq!(two("a,gateway=192.0.2.1", "a,name=b,gateway=192.0.2.1"), same);
        assert_eq!(two("a", "a,name=b,gateway=192.0.2.2"), same);
        let many = (0..9).map(|at| link(&format!("eth{at}"))).collect();
        assert_eq!(settings(many).check(), Err(SettingsError::TooManyLinks(9)));
        for (policy, expected) in [
            ("redundant over b", "a policy names `b`, which is no uplink"),
            ("load-balance 1:2", "load-balance has 2 shares for 1 uplinks"),
        ] {
            let mut settings = settings(vec![link("a")]);
            settings.policies.other = policy.parse().unwrap();
            assert_eq!(settings.check().unwrap_err().to_string(), expected);
        }
    }
}
