//! Which links a connection uses, and how: the steering modes of ATSSS (3GPP TS 23.501, 5.32.8) and every
//! scheduler.
//!
//! A policy gives each link of a connection a role: active, standby (a backup subflow, RFC 8684 3.3.8, which
//! both ends leave alone while an active one works), or none. What this end sends is scheduled by the
//! policy's scheduler; what the far end sends, by its own, which heeds the roles.

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use ropewalk_engine::registry::SpecError;

use super::link::{Link, LinkState, find};
use super::link_settings::LinkSettings;
use crate::target::Target;

/// How links are used.
#[derive(Clone, PartialEq, Debug)]
pub enum Mode {
    /// All links, each segment where it arrives first.
    Fastest,
    /// All links, everything on each.
    Redundant,
    /// The cheapest links that work; the others stand by.
    SaveMetered,
    /// The first link that works; the others stand by.
    ActiveStandby,
    /// All links, the lowest round-trip time first.
    SmallestDelay,
    /// Each connection on one link, so that the links' bytes keep these shares; the others stand by.
    LoadBalance(Vec<u32>),
    /// The first link that works, and the next ones while it is full.
    Priority,
    /// All links, with this scheduler.
    Scheduler(String),
}

impl Mode {
    /// Whether the links' order is the point of it.
    pub(super) fn is_ordered(&self) -> bool {
        matches!(self, Mode::ActiveStandby | Mode::Priority)
    }

    fn scheduler(&self) -> &str {
        match self {
            Mode::Fastest => ropewalk_engine::scheduler::PRODUCT_DEFAULT,
            Mode::Redundant => "redundant",
            Mode::Scheduler(name) => name,
            _ => "minrtt",
        }
    }
}

impl std::fmt::Display for Mode {
    /// As it is written.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match self {
            Mode::Fastest => "fastest",
            Mode::Redundant => "redundant",
            Mode::SaveMetered => "save-metered",
            Mode::ActiveStandby => "active-standby",
            Mode::SmallestDelay => "smallest-delay",
            Mode::Priority => "priority",
            Mode::Scheduler(name) => name,
            Mode::LoadBalance(shares) => {
                let shares: Vec<String> = shares.iter().map(u32::to_string).collect();
                return write!(f, "load-balance {}", shares.join(":"));
            }
        };
        f.write_str(name)
    }
}

impl std::fmt::Display for Policy {
    /// As it is written.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.direct { "direct " } else { "" })?;
        self.mode.fmt(f)?;
        if self.over.is_empty() { Ok(()) } else { write!(f, " over {}", self.over.join(",")) }
    }
}

/// Why a policy can't be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// Shares that aren't numbers.
    #[error("`{0}`: expected a share for each --via, e.g. load-balance 70:30")]
    Shares(String),
    /// Neither a mode nor a scheduler.
    #[error(
        "{0}; or one of fastest, redundant, save-metered, active-standby, smallest-delay, priority and \
         load-balance 70:30"
    )]
    Mode(#[from] SpecError),
    /// A name that is no uplink's.
    #[error("a policy names `{0}`, which is no uplink")]
    Uplink(String),
    /// Not a share for each uplink.
    #[error("load-balance has {shares} shares for {uplinks} uplinks")]
    ShareCount {
        /// Shares.
        shares: usize,
        /// Uplinks.
        uplinks: usize,
    },
}

impl FromStr for Mode {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Mode, PolicyError> {
        if let Some(shares) = text.strip_prefix("load-balance") {
            let shares: Result<Vec<u32>, _> = shares.trim().split(':').map(str::parse).collect();
            return match shares {
                Ok(shares) if shares.len() > 1 && shares.iter().any(|share| *share > 0) => {
                    Ok(Mode::LoadBalance(shares))
                }
                _ => Err(PolicyError::Shares(text.to_string())),
            };
        }
        Ok(match text {
            "fastest" => Mode::Fastest,
            "redundant" => Mode::Redundant,
            "save-metered" => Mode::SaveMetered,
            "active-standby" => Mode::ActiveStandby,
            "smallest-delay" => Mode::SmallestDelay,
            "priority" => Mode::Priority,
            name => {
                ropewalk_engine::scheduler::builtin().parse(name)?;
                Mode::Scheduler(name.to_string())
            }
        })
    }
}

/// A mode, and the links that it is limited to.
#[derive(Clone, PartialEq, Debug)]
pub struct Policy {
    /// Whether connections go past the gateway.
    pub direct: bool,
    /// How links are used.
    pub mode: Mode,
    /// Interfaces; none: all.
    pub over: Vec<String>,
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Policy, PolicyError> {
        // `direct`, `direct over wlan0`, `direct redundant`.
        let rest = text.strip_prefix("direct").filter(|rest| rest.is_empty() || rest.starts_with(' '));
        let (direct, text) = (rest.is_some(), rest.unwrap_or(text));
        let (mode, over) = text.split_once(" over ").unwrap_or((text, ""));
        let mode = if direct && mode.trim().is_empty() { "fastest" } else { mode.trim() };
        let over = over.split(',').map(str::trim).filter(|name| !name.is_empty()).map(String::from).collect();
        Ok(Policy { direct, mode: mode.parse()?, over })
    }
}

impl Policy {
    /// Whether it fits these uplinks.
    ///
    /// # Errors
    /// What doesn't.
    pub fn check(&self, links: &[LinkSettings]) -> Result<(), PolicyError> {
        let unknown = |name: &&String| links.iter().all(|link| link.name() != **name);
        if let Some(name) = self.over.iter().find(unknown) {
            return Err(PolicyError::Uplink(name.clone()));
        }
        match &self.mode {
            Mode::LoadBalance(shares) if shares.len() != links.len() => {
                Err(PolicyError::ShareCount { shares: shares.len(), uplinks: links.len() })
            }
            _ => Ok(()),
        }
    }
}

/// A destination that a rule is about.
#[derive(Clone, PartialEq, Debug)]
enum Destination {
    Network(IpNet),
    Name(String),
    /// A name and all below it.
    Below(String),
}

impl Destination {
    fn parse(text: &str) -> Destination {
        if let Ok(network) = text.parse() {
            return Destination::Network(network);
        }
        match (text.parse::<IpAddr>(), text.strip_prefix("*.")) {
            (Ok(address), _) => Destination::Network(address.into()),
            (_, Some(name)) => Destination::Below(name.to_ascii_lowercase()),
            _ => Destination::Name(text.to_ascii_lowercase()),
        }
    }

    fn fits(&self, target: &Target, address: IpAddr) -> bool {
        let name = || match target {
            Target::Name(name, _) => name.trim_end_matches('.').to_ascii_lowercase(),
            Target::Address(_) => String::new(),
        };
        match self {
            Destination::Network(network) => network.contains(&address),
            Destination::Name(wanted) => name() == *wanted,
            Destination::Below(wanted) => {
                let name = name();
                name.strip_suffix(wanted.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            }
        }
    }
}

/// A policy for the connections that fit its conditions: `port=22,5060-5061 then redundant`.
#[derive(Clone, PartialEq, Debug)]
pub struct Rule {
    to: Vec<Destination>,
    ports: Vec<(u16, u16)>,
    /// Code points of the client's packets.
    dscp: Vec<u8>,
    /// Bytes that it has carried, at least.
    pub size: u64,
    /// What follows.
    pub policy: Policy,
}

/// What a flow's first packet has to have, one of each; none: any.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PacketConditions {
    /// Networks of servers.
    pub networks: Vec<IpNet>,
    /// Ranges of servers' ports, first and last.
    pub ports: Vec<(u16, u16)>,
    /// Code points.
    pub dscp: Vec<u8>,
}

/// A Diffserv code point: a number to 63, or a name (RFC 2474, 2597, 3246, 5865, 8622).
fn code_point(text: &str) -> Option<u8> {
    let digits = |prefix: &str| -> Option<Vec<u8>> {
        let rest = text.strip_prefix(prefix)?;
        rest.bytes().map(|digit| digit.is_ascii_digit().then(|| digit - b'0')).collect()
    };
    match text {
        "ef" => Some(46),
        "va" => Some(44),
        "le" => Some(1),
        _ => match (digits("cs").as_deref(), digits("af").as_deref()) {
            (Some([class @ 0..=7]), _) => Some(class * 8),
            (_, Some([class @ 1..=4, drop @ 1..=3])) => Some(class * 8 + drop * 2),
            _ => text.parse().ok().filter(|point| *point < 64),
        },
    }
}

/// Why a rule can't be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// Not ports.
    #[error("`{0}` is no port or range of ports")]
    Ports(String),
    /// Not a code point.
    #[error("`{0}` is no DSCP; expected 0 to 63, or a name such as ef, af41, cs1, le")]
    Dscp(String),
}

impl Rule {
    /// A rule that fits every connection.
    pub fn new(policy: Policy) -> Rule {
        Rule { to: Vec::new(), ports: Vec::new(), dscp: Vec::new(), size: 0, policy }
    }

    /// Adds to a condition: `to`, `port`, or else `dscp`.
    ///
    /// # Errors
    /// If it can't be one.
    pub fn add(&mut self, condition: &str, item: &str) -> Result<(), RuleError> {
        match condition {
            "to" => self.to.push(Destination::parse(item)),
            "port" => {
                let (first, last) = item.split_once('-').unwrap_or((item, item));
                match (first.parse(), last.parse()) {
                    (Ok(first), Ok(last)) if first <= last => self.ports.push((first, last)),
                    _ => return Err(RuleError::Ports(item.to_string())),
                }
            }
            _ => {
                let point = code_point(&item.to_ascii_lowercase());
                self.dscp.push(point.ok_or_else(|| RuleError::Dscp(item.to_string()))?);
            }
        }
        Ok(())
    }

    /// What it asks of a flow's first packet. `None` where no packet shows that it fits: it is about names
    /// alone, or begins with a size.
    pub fn of_packets(&self) -> Option<PacketConditions> {
        let network = |one: &Destination| match one {
            Destination::Network(network) => Some(*network),
            _ => None,
        };
        let networks: Vec<IpNet> = self.to.iter().filter_map(network).collect();
        let can_fit = self.size == 0 && (self.to.is_empty() || !networks.is_empty());
        can_fit.then(|| PacketConditions { networks, ports: self.ports.clone(), dscp: self.dscp.clone() })
    }

    fn fits(&self, target: &Target, address: IpAddr, dscp: u8, bytes: u64) -> bool {
        let port = target.port();
        (self.to.is_empty() || self.to.iter().any(|one| one.fits(target, address)))
            && (self.ports.is_empty()
                || self.ports.iter().any(|(first, last)| (*first..=*last).contains(&port)))
            && (self.dscp.is_empty() || self.dscp.contains(&dscp))
            && bytes >= self.size
    }
}

/// What a connection has to do with a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Role {
    /// The link's index.
    pub link: usize,
    /// It stands by.
    pub backup: bool,
}

/// A connection's links and its scheduler.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Of what this end sends.
    pub scheduler: String,
    /// The links that it may use, in order of preference.
    pub roles: Vec<Role>,
}

impl Plan {
    /// Whether a link stands by; `None`: it isn't used.
    pub fn backup(&self, link: usize) -> Option<bool> {
        self.roles.iter().find(|role| role.link == link).map(|role| role.backup)
    }
}

/// All rules; the first that fits decides.
#[derive(Clone, PartialEq, Debug)]
pub struct Policies {
    /// The rules, in order.
    pub rules: Vec<Rule>,
    /// What is done where none fits.
    pub other: Policy,
}

impl Policies {
    /// The policy for a connection that has carried so many bytes, of a client that sends this DSCP.
    pub fn policy(&self, target: &Target, address: IpAddr, dscp: u8, bytes: u64) -> &Policy {
        let rule = self.rule(target, address, dscp, bytes);
        rule.map_or(&self.other, |at| &self.rules[at].policy)
    }

    /// The place of the rule that fits.
    pub fn rule(&self, target: &Target, address: IpAddr, dscp: u8, bytes: u64) -> Option<usize> {
        self.rules.iter().position(|rule| rule.fits(target, address, dscp, bytes))
    }

    /// All modes with the links that they name.
    pub fn all(&self) -> impl Iterator<Item = &Policy> {
        self.rules.iter().map(|rule| &rule.policy).chain([&self.other])
    }
}

/// What a policy makes of the links as they are. `old`: the plan so far.
pub fn plan(policy: &Policy, links: &[Arc<Link>], v6: bool, old: Option<&Plan>) -> Plan {
    plan_over(policy, links, &[v6], old)
}

/// The same for what may go over either of these families: IPv6, if it is true.
pub fn plan_over(policy: &Policy, links: &[Arc<Link>], families: &[bool], old: Option<&Plan>) -> Plan {
    let allowed = |link: &&Arc<Link>| policy.over.is_empty() || policy.over.contains(&link.name);
    // With none alive, those that have a route are tried: it may be the far end that is dead.
    let is_usable = |link: &Link| families.iter().any(|v6| link.is_usable(*v6));
    let none_works = links.iter().all(|link| !is_usable(link));
    let is_silent = |link: &Link| matches!(link.state(), LinkState::Dead | LinkState::Unseen);
    let is_used = |link: &&Arc<Link>| match none_works {
        false => is_usable(link),
        true => is_silent(link) && families.iter().any(|v6| link.has_route(*v6)),
    };
    let mut usable: Vec<&Arc<Link>> = links.iter().filter(allowed).filter(is_used).collect();
    // Otherwise in the configuration's order.
    usable.sort_by_key(|link| link.stands_by());
    let first = usable.first().map(|link| link.index);
    let is_active: Box<dyn Fn(&Link) -> bool> = match &policy.mode {
        Mode::SaveMetered => {
            let least = usable.iter().map(|link| link.settings().cost()).fold(f64::INFINITY, f64::min);
            Box::new(move |link| link.settings().cost() <= least)
        }
        Mode::ActiveStandby => Box::new(move |link| Some(link.index) == first),
        Mode::LoadBalance(shares) => {
            let place = |link: &Link| links.iter().position(|one| one.index == link.index);
            let share =
                |link: &Link| f64::from(place(link).and_then(|at| shares.get(at)).copied().unwrap_or(0));
            // One without a share is the last resort.
            let load = |link: &&&Arc<Link>| match share(link) {
                0.0 => f64::INFINITY,
                // As if each had carried a packet: the first connection takes the largest share's link.
                share => (link.counters.total() + 1500) as f64 / share,
            };
            let least = usable.iter().min_by(|a, b| load(a).total_cmp(&load(b))).map(|link| link.index);
            // A connection stays where it is.
            let kept = old.and_then(|old| old.roles.iter().find(|role| !role.backup)).map(|role| role.link);
            let chosen = kept.filter(|kept| usable.iter().any(|link| link.index == *kept)).or(least);
            Box::new(move |link| Some(link.index) == chosen)
        }
        Mode::Priority => {
            let free = usable.iter().position(|link| !link.is_full()).unwrap_or(usable.len());
            let active: Vec<usize> = usable.iter().take(free + 1).map(|link| link.index).collect();
            Box::new(move |link| active.contains(&link.index))
        }
        _ => Box::new(|link| !link.stands_by()),
    };
    let mut roles: Vec<Role> =
        usable.iter().map(|link| Role { link: link.index, backup: !is_active(link) }).collect();
    // A connection is opened on the nearest, unless the order is the point. Links that no probe has measured
    // come behind.
    let by_delay = !policy.mode.is_ordered();
    let rtt = |role: &Role| find(links, role.link).and_then(|link| link.known().rtt);
    let delay = |role: &Role| by_delay.then(|| rtt(role).unwrap_or(Duration::MAX));
    // One that is full takes what others carry already.
    let is_full = |role: &Role| {
        policy.mode == Mode::Priority && find(links, role.link).is_some_and(|link| link.is_full())
    };
    roles.sort_by_key(|role| (role.backup, is_full(role), delay(role)));
    Plan { scheduler: policy.mode.scheduler().to_string(), roles }
}

#[cfg(test)]
mod tests;
