//! What the host has: addresses, interfaces, routes, as `ip -j` tells.

use std::io;
use std::net::IpAddr;

use serde::Deserialize;

use super::run;

/// An address of the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostAddress {
    /// The address.
    pub address: IpAddr,
    /// The name of its network interface.
    pub interface: String,
    /// The interface's largest IP packet, bytes.
    pub mtu: u32,
}

#[derive(Deserialize)]
struct Link {
    ifname: String,
    #[serde(default)]
    mtu: u32,
    #[serde(default)]
    addr_info: Vec<Address>,
}

#[derive(Deserialize)]
struct Address {
    local: Option<IpAddr>,
}

fn links(text: &str) -> io::Result<Vec<HostAddress>> {
    let links: Vec<Link> = serde_json::from_str(text).map_err(|error| {
        io::Error::new(io::ErrorKind::InvalidData, format!("`ip -j address show`: {error}"))
    })?;
    let of = |link: Link| {
        let (interface, mtu) = (link.ifname, link.mtu);
        let known = link.addr_info.into_iter().filter_map(|address| address.local);
        known.map(move |address| HostAddress { address, interface: interface.clone(), mtu })
    };
    Ok(links.into_iter().flat_map(of).collect())
}

/// Every address of the host, in the calling thread's network namespace.
///
/// # Errors
/// If `ip` can't be run.
pub fn addresses() -> io::Result<Vec<HostAddress>> {
    links(&run("ip", &["-j", "address", "show"], None)?)
}

/// The routes of the main table through an interface, as words for `ip route add`: those to its neighbours first, since the
/// others' gateways are among them.
///
/// # Errors
/// If `ip` can't be run.
pub fn interface_routes(interface: &str, v6: bool) -> io::Result<Vec<String>> {
    let family = if v6 { "-6" } else { "-4" };
    let text = run("ip", &[family, "route", "show", "table", "main", "dev", interface], None)?;
    let mut routes: Vec<String> = text
        .lines()
        .map(|line| plain_route(line, interface))
        .filter(|route| !route.is_empty() && !route.starts_with("fe80:"))
        .collect();
    routes.sort_by_key(|route| route.contains(" via "));
    Ok(routes)
}

/// A route without what only the main table has (its protocol, source, state).
fn plain_route(line: &str, interface: &str) -> String {
    let mut words = line.split_whitespace();
    let mut route = words.next().unwrap_or_default().to_string();
    while let Some(word) = words.next() {
        match word {
            "proto" | "src" | "pref" | "expires" | "dev" => drop(words.next()),
            "linkdown" | "dead" => {}
            _ => {
                route.push(' ');
                route.push_str(word);
            }
        }
    }
    if !route.is_empty() {
        route.push_str(" dev ");
        route.push_str(interface);
    }
    route
}

#[derive(Deserialize)]
struct DefaultRoute {
    dev: Option<String>,
    #[serde(default)]
    metric: u32,
}

/// The interface of the main table's best default route: with several, as DHCP leaves them on a host with two uplinks,
/// the others are not used. `None` for a route with several next hops.
///
/// # Errors
/// If `ip` can't be run.
pub fn default_interface(v6: bool) -> io::Result<Option<String>> {
    let family = if v6 { "-6" } else { "-4" };
    best_default(&run("ip", &["-j", family, "route", "show", "default", "table", "main"], None)?)
}

fn best_default(text: &str) -> io::Result<Option<String>> {
    let routes: Vec<DefaultRoute> = match text.trim() {
        "" => Vec::new(),
        text => serde_json::from_str(text).map_err(|error| {
            io::Error::new(io::ErrorKind::InvalidData, format!("`ip -j route show default`: {error}"))
        })?,
    };
    Ok(routes.into_iter().min_by_key(|route| route.metric).and_then(|route| route.dev))
}

/// The table that a rule of the host names for packets from an address: `from ADDRESS lookup TABLE`.
///
/// # Errors
/// If `ip` can't be run.
pub fn table_of_source(address: IpAddr) -> io::Result<Option<String>> {
    let family = if address.is_ipv6() { "-6" } else { "-4" };
    Ok(source_rule(&run("ip", &[family, "rule", "show"], None)?, address))
}

fn source_rule(rules: &str, address: IpAddr) -> Option<String> {
    rules.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [_, "from", source, "lookup", table] if source.parse() == Ok(address) => Some(table.into()),
            _ => None,
        }
    })
}

/// Whether the kernel forwards packets that arrive at an interface.
pub fn is_forwarding(interface: &str, v6: bool) -> bool {
    let is_on = |key: String| {
        std::fs::read_to_string(format!("/proc/sys/net/{key}")).is_ok_and(|value| value.trim() != "0")
    };
    match v6 {
        false => is_on(format!("ipv4/conf/{interface}/forwarding")),
        true => {
            is_on("ipv6/conf/all/forwarding".into())
                || is_on(format!("ipv6/conf/{interface}/force_forwarding"))
        }
    }
}

/// Whether an interface may forward IPv6 without making the host a router, which ignores router advertisements: since Linux 6.17.
pub fn has_force_forwarding() -> bool {
    std::path::Path::new("/proc/sys/net/ipv6/conf/lo/force_forwarding").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_interfaces() {
        let text = r#"[{"ifname":"lo","mtu":65536,"addr_info":[{"local":"127.0.0.1"},{"local":"::1"}]},{},
            {"ifname":"eth0.7","mtu":1500,"addr_info":[{"family":"inet","local":"192.0.2.1","prefixlen":24}]}]"#;
        assert!(links(text).is_err(), "an interface without a name");
        let text = text.replace(",{},", ",");
        let found = links(&text).unwrap();
        assert_eq!(found.len(), 3);
        let expected = HostAddress { address: [192, 0, 2, 1].into(), interface: "eth0.7".into(), mtu: 1500 };
        assert_eq!(found[2], expected);
    }

    #[test]
    fn a_rule_for_a_source_names_its_table() {
        let rules = "0:\tfrom all lookup local\n99:\tfrom 192.0.2.7 fwmark 0x1 lookup 5\n100:\tfrom 192.0.2.7 lookup 101\n";
        assert_eq!(source_rule(rules, [192, 0, 2, 7].into()).as_deref(), Some("101"));
        assert_eq!(source_rule(rules, [192, 0, 2, 8].into()), None);
    }

    #[test]
    fn the_default_route_of_the_least_metric_is_used() {
        let text = r#"[{"dst":"default","gateway":"192.0.2.1","dev":"eth1","metric":200,"flags":[]},
            {"dst":"default","gateway":"198.51.100.1","dev":"eth0","metric":100,"flags":[]}]"#;
        assert_eq!(best_default(text).unwrap().as_deref(), Some("eth0"));
        let text = text.replace(r#","metric":200"#, "");
        assert_eq!(best_default(&text).unwrap().as_deref(), Some("eth1"), "no metric is 0");
        let hops = r#"[{"dst":"default","flags":[],"nexthops":[{"dev":"eth0"},{"dev":"eth1"}]}]"#;
        for none in ["", "[]\n", hops] {
            assert_eq!(best_default(none).unwrap(), None, "{none}");
        }
    }

    #[test]
    fn routes_are_copied_without_what_belongs_to_the_main_table() {
        let copied = |line| plain_route(line, "eth0");
        assert_eq!(
            copied("192.0.2.0/24 proto kernel scope link src 192.0.2.7 linkdown"),
            "192.0.2.0/24 scope link dev eth0"
        );
        assert_eq!(
            copied("default via 192.0.2.1 proto dhcp src 192.0.2.7 metric 100"),
            "default via 192.0.2.1 metric 100 dev eth0"
        );
        assert_eq!(copied(""), "");
    }
}
