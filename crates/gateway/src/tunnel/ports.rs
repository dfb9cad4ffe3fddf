//! Ports of a gateway's addresses whose packets go to a host behind a proxy. The gateway's file says which
//! proxy may have which ports, the proxy's file to which host they lead.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ropewalk_datagrams::packet::protocol;

use crate::tls::keys::Identity;

/// Ports of TCP or UDP: `tcp/8022`, `udp/5000-5100`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ports {
    /// The IP protocol's number.
    protocol: u8,
    first: u16,
    last: u16,
}

/// Why a text names no ports.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortsError {
    /// It has another form.
    #[error("`{0}`: expected ports such as tcp/8022 or udp/5000-5100")]
    Ports(String),
    /// What follows is no host.
    #[error("`{0}`: expected ports and a host, as in `tcp/8022 to 192.168.1.10:22`")]
    Host(String),
    /// Several ports can't become one.
    #[error("`{0}`: several ports keep their numbers; name the host's address alone")]
    Several(String),
}

impl FromStr for Ports {
    type Err = PortsError;

    fn from_str(text: &str) -> Result<Ports, PortsError> {
        let wrong = || PortsError::Ports(text.to_string());
        let (name, range) = text.split_once('/').ok_or_else(wrong)?;
        let protocol = match name {
            "tcp" => protocol::TCP,
            "udp" => protocol::UDP,
            _ => return Err(wrong()),
        };
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) if (1..=last).contains(&first) => Ok(Ports { protocol, first, last }),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Ports {
    /// As it is written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ports { first, last, .. } = self;
        write!(f, "{}/{first}", self.name())?;
        if first == last { Ok(()) } else { write!(f, "-{last}") }
    }
}

impl Ports {
    fn name(&self) -> &'static str {
        if self.protocol == protocol::TCP { "tcp" } else { "udp" }
    }

    /// The condition of nftables on the destination's port.
    pub(crate) fn condition(&self) -> String {
        let Ports { first, last, .. } = self;
        format!("{} dport {first}-{last}", self.name())
    }

    /// The first and the last one, if they are UDP's.
    pub(crate) fn of_udp(&self) -> Option<(u16, u16)> {
        (self.protocol == protocol::UDP).then_some((self.first, self.last))
    }

    /// Whether a port of a protocol is among them.
    pub fn has(&self, protocol: u8, port: u16) -> bool {
        self.protocol == protocol && (self.first..=self.last).contains(&port)
    }

    /// Whether a port of either protocol is among them.
    pub fn has_port(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    /// Whether both have some port.
    pub fn overlaps(&self, other: &Ports) -> bool {
        self.protocol == other.protocol && self.first <= other.last && other.first <= self.last
    }
}

/// What a gateway gives a proxy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortGrant {
    /// The gateway's addresses.
    pub addresses: Vec<IpAddr>,
    /// The proxy.
    pub proxy: Identity,
    /// Ports of these addresses.
    pub ports: Vec<Ports>,
}

/// Ports of one of the gateway's addresses, and the address inside the tunnel that they lead to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Forward {
    /// The gateway's.
    pub address: IpAddr,
    /// Its ports.
    pub ports: Ports,
    /// The proxy's.
    pub to: IpAddr,
}

/// The largest range of ports that has none of these of UDP, for flows that want one of them.
pub(crate) fn others(given: &[Forward]) -> Option<(u16, u16)> {
    let mut taken: Vec<(u16, u16)> = given.iter().filter_map(|one| one.ports.of_udp()).collect();
    taken.sort_unstable();
    let (mut from, mut best) = (1024u32, None);
    for (first, last) in taken.into_iter().chain([(u16::MAX, u16::MAX)]) {
        let room = u32::from(first).saturating_sub(from);
        if best.is_none_or(|(size, _)| size < room) {
            best = Some((room, from));
        }
        from = from.max(u32::from(last) + 1);
    }
    let (room, from) = best.filter(|(room, _)| *room > 0)?;
    Some((from as u16, (from + room - 1) as u16))
}

/// What a proxy does with ports that it is given: `tcp/8022 to 192.168.1.10:22`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortTarget {
    /// The gateway's.
    pub ports: Ports,
    /// The host behind the proxy.
    pub host: IpAddr,
    /// Its port; `None`: the same.
    pub port: Option<u16>,
}

impl FromStr for PortTarget {
    type Err = PortsError;

    fn from_str(text: &str) -> Result<PortTarget, PortsError> {
        let wrong = || PortsError::Host(text.to_string());
        let (ports, host) = text.split_once(" to ").ok_or_else(wrong)?;
        let (ports, host): (Ports, &str) = (ports.trim().parse()?, host.trim());
        let (host, port) = match (host.parse(), host.parse::<std::net::SocketAddr>()) {
            (Ok(address), _) => (address, None),
            (_, Ok(socket)) if socket.port() != 0 => (socket.ip(), Some(socket.port())),
            _ => return Err(wrong()),
        };
        if host.is_loopback() || host.is_unspecified() || host.is_multicast() {
            return Err(wrong());
        }
        match port {
            Some(_) if ports.first != ports.last => Err(PortsError::Several(text.to_string())),
            _ => Ok(PortTarget { ports, host, port }),
        }
    }
}

impl PortTarget {
    /// The destination, for nftables.
    pub(crate) fn destination(&self) -> String {
        match (self.host, self.port) {
            (host, None) => host.to_string(),
            (IpAddr::V4(host), Some(port)) => format!("{host}:{port}"),
            (IpAddr::V6(host), Some(port)) => format!("[{host}]:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_as_they_are_written() {
        for text in ["tcp/22", "udp/5000-5100"] {
            assert_eq!(text.parse::<Ports>().unwrap().to_string(), text);
        }
        let ports: Ports = "udp/5000-5100".parse().unwrap();
        assert!(ports.has(protocol::UDP, 5100) && !ports.has(protocol::TCP, 5100) && ports.has_port(5000));
        assert!(
            ports.overlaps(&"udp/5100".parse().unwrap()) && !ports.overlaps(&"udp/5101".parse().unwrap())
        );
        for text in ["22", "icmp/1", "tcp/0", "tcp/9-8", "tcp/x"] {
            assert!(matches!(text.parse::<Ports>(), Err(PortsError::Ports(_))), "{text}");
        }
        let asked: PortTarget = "tcp/8022 to 192.168.1.10:22".parse().unwrap();
        assert_eq!((asked.destination().as_str(), asked.port), ("192.168.1.10:22", Some(22)));
        let asked: PortTarget = "udp/5000-5100 to fd00::1".parse().unwrap();
        assert_eq!((asked.destination().as_str(), asked.port), ("fd00::1", None));
        for (text, expected) in [
            ("tcp/22", "expected ports and a host"),
            ("tcp/22 to host", "expected ports and a host"),
            ("tcp/22 to 127.0.0.1", "expected ports and a host"),
            ("tcp/x to 10.0.0.1", "expected ports such as"),
            ("tcp/1-2 to 10.0.0.1:1", "several ports keep their numbers"),
        ] {
            assert!(text.parse::<PortTarget>().unwrap_err().to_string().contains(expected), "{text}");
        }
    }
}
