//! Where a gateway may connect for its clients: an allow list.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use ipnet::IpNet;

/// Networks and ports: `internet 80,443`, `10.0.0.0/8`, `2001:db8::7 8000-8100`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Destination {
    /// `None`: every address that is reachable from anywhere.
    network: Option<IpNet>,
    /// First and last; none: all.
    ports: Vec<(u16, u16)>,
}

/// Why a text names no destinations.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DestinationError {
    /// Not a network.
    #[error("`{0}` is no network; expected `internet`, or one such as 10.0.0.0/8 or 2001:db8::7")]
    Network(String),
    /// Not ports.
    #[error("`{0}` is no port or range of ports; expected e.g. 443 or 8000-8100")]
    Ports(String),
    /// Something follows.
    #[error("`{0}` is one word too many; expected e.g. `internet 80,443`")]
    Word(String),
}

impl FromStr for Destination {
    type Err = DestinationError;

    fn from_str(text: &str) -> Result<Destination, DestinationError> {
        let mut words = text.split_whitespace();
        let network = match words.next().unwrap_or_default() {
            "internet" => None,
            word => {
                let network = word.parse::<IpNet>().or_else(|_| word.parse::<IpAddr>().map(IpNet::from));
                Some(network.map_err(|_| DestinationError::Network(word.to_string()))?)
            }
        };
        let mut ports = Vec::new();
        for range in words.next().into_iter().flat_map(|word| word.split(',')) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            match (first.parse(), last.parse()) {
                (Ok(first), Ok(last)) if (1..=last).contains(&first) => ports.push((first, last)),
                _ => return Err(DestinationError::Ports(range.to_string())),
            }
        }
        match words.next() {
            Some(word) => Err(DestinationError::Word(word.to_string())),
            None => Ok(Destination { network, ports }),
        }
    }
}

impl Destination {
    fn has(&self, peer: SocketAddr) -> bool {
        let is_port = |(first, last): &(u16, u16)| (*first..=*last).contains(&peer.port());
        self.has_address(peer.ip()) && (self.ports.is_empty() || self.ports.iter().any(is_port))
    }

    fn has_address(&self, address: IpAddr) -> bool {
        match self.network {
            Some(network) => network.contains(&address),
            None => is_global(address),
        }
    }

    /// Whether it names one address alone.
    fn is_single(&self) -> bool {
        self.network.is_some_and(|network| network.prefix_len() == network.max_prefix_len())
    }
}

/// Whether an address is reachable from anywhere (the registries of RFC 6890): not private, shared, for
/// documentation, ...
fn is_global(ip: IpAddr) -> bool {
    const LOCAL: [&str; 21] = [
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "64:ff9b::/96",
        "64:ff9b:1::/48",
        "2001::/23",
        "2001:db8::/32",
        "2002::/16",
        "3fff::/20",
        "5f00::/16",
    ];
    // Of IPv6 only 2000::/3 is given out.
    let is_given_out = match ip {
        IpAddr::V4(_) => true,
        IpAddr::V6(v6) => v6.segments()[0] & 0xe000 == 0x2000,
    };
    is_given_out && !LOCAL.iter().any(|local| local.parse::<IpNet>().is_ok_and(|local| local.contains(&ip)))
}

/// All of a listener's.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Destinations(pub Vec<Destination>);

impl Destinations {
    /// Whether nothing is allowed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a connection to a server is allowed. `own`: this host's addresses, which only an entry for the
    /// address alone allows, so that a wide network doesn't open the host's own services.
    pub fn allow(&self, peer: SocketAddr, own: &[IpAddr]) -> bool {
        let is_own = own.contains(&peer.ip());
        super::message::is_connectable(peer)
            && self.0.iter().any(|one| one.has(peer) && (!is_own || one.is_single()))
    }

    /// Whether an address is allowed with any port: for what has none, such as ICMP.
    pub fn allow_address(&self, address: IpAddr, own: &[IpAddr]) -> bool {
        let is_own = own.contains(&address);
        super::message::is_connectable(SocketAddr::new(address, 1))
            && self.0.iter().any(|one| one.has_address(address) && (!is_own || one.is_single()))
    }
}

/// Where a listener's clients may send, as the configuration says now: a reload replaces it, also for
/// connections that are open.
#[derive(Clone, Debug, Default)]
pub struct Current(Arc<RwLock<Destinations>>);

impl Current {
    /// The list.
    pub fn get(&self) -> RwLockReadGuard<'_, Destinations> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another takes its place.
    pub fn set(&self, list: Destinations) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = list;
    }
}

impl From<Destinations> for Current {
    fn from(list: Destinations) -> Current {
        Current(Arc::new(RwLock::new(list)))
    }
}

#[cfg(test)]
mod tests {
    use super::{Destinations, is_global};

    #[test]
    fn only_what_is_listed_is_allowed() {
        let list = |entries: &[&str]| Destinations(entries.iter().map(|one| one.parse().unwrap()).collect());
        let allows = |list: &Destinations, peer: &str| {
            list.allow(peer.parse().unwrap(), &["10.0.0.1".parse().unwrap(), "9.9.9.1".parse().unwrap()])
        };
        let some = list(&["10.0.0.0/8 80,8000-8100", "2001:db8::7", "internet 443"]);
        for peer in ["10.1.2.3:80", "10.1.2.3:8050", "[2001:db8::7]:1", "9.9.9.9:443", "[2620:fe::fe]:443"] {
            assert!(allows(&some, peer), "{peer}");
        }
        for peer in [
            "10.1.2.3:443",
            "10.1.2.3:8101",
            "[2001:db8::8]:443",
            "9.9.9.9:80",
            "192.168.0.1:443",
            "127.0.0.1:443",
            "10.0.0.1:80",
            "9.9.9.1:443",
        ] {
            assert!(!allows(&some, peer), "{peer}");
        }
        // This host itself, by its address alone.
        assert!(allows(&list(&["10.0.0.1 80"]), "10.0.0.1:80"));
        assert!(
            !allows(&list(&["0.0.0.0/0"]), "127.0.0.1:80") && !allows(&list(&["0.0.0.0/0"]), "10.0.0.1:80")
        );
        assert!(!allows(&Destinations::default(), "9.9.9.9:443"));
    }

    #[test]
    fn entries_with_mistakes_are_refused() {
        for (text, expected) in [
            ("", "`` is no network"),
            ("everywhere", "`everywhere` is no network"),
            ("10.0.0.0/33", "is no network"),
            ("internet 0", "`0` is no port"),
            ("internet 80,", "`` is no port"),
            ("internet 90-80", "`90-80` is no port"),
            ("internet 80 443", "`443` is one word too many"),
        ] {
            let error = text.parse::<super::Destination>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn addresses_of_local_use_are_not_the_internet() {
        for local in
            ["192.168.1.1", "100.64.0.1", "169.254.169.254", "fe80::1", "fd00::1", "::1", "2002:a00:1::"]
        {
            assert!(!is_global(local.parse().unwrap()), "{local}");
        }
        assert!(is_global("1.1.1.1".parse().unwrap()) && is_global("2606:4700::1111".parse().unwrap()));
    }
}
