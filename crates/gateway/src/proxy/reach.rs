//! How uplinks reach the rest of the world now, as `ip` tells it.

use std::net::IpAddr;

use serde::Deserialize;

use crate::setup::ip;

/// The routing table of uplink 0. The priority of its rule is the same number: before the main table (32766).
pub(super) const FIRST_TABLE: u32 = 5_200;

/// An uplink as the set-up sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Uplink {
    /// The name of the network interface.
    pub interface: String,
    /// Its next hop, where the main routing table doesn't tell.
    pub gateway: Option<IpAddr>,
    /// Most that it carries each way, bits per second.
    pub rate: Option<u64>,
}

/// How an uplink reaches the rest of the world, in one family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// By this next hop.
    Via(IpAddr),
    /// All are neighbours, as on point-to-point devices.
    Direct,
}

/// An uplink's routes as they are now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reach {
    /// The route in IPv4, if there is one.
    pub v4: Option<Route>,
    /// The route in IPv6, if there is one.
    pub v6: Option<Route>,
    /// The interface's own IPv4 address: what connections are masqueraded as.
    pub address: Option<IpAddr>,
}

impl Reach {
    /// Whether there is a route in some family.
    pub fn any(self) -> bool {
        self.v4.is_some() || self.v6.is_some()
    }
}

#[derive(Deserialize)]
struct RouteLine {
    gateway: Option<IpAddr>,
    #[serde(default)]
    metric: u32,
    table: Option<serde_json::Value>,
    #[serde(default)]
    flags: Vec<String>,
}

#[derive(Deserialize)]
struct LinkLine {
    #[serde(default)]
    flags: Vec<String>,
    #[serde(default)]
    addr_info: Vec<AddressLine>,
}

#[derive(Deserialize)]
struct AddressLine {
    family: Option<String>,
    scope: Option<String>,
    local: Option<IpAddr>,
}

/// What the kernel says of an uplink: whether it is up, has an address, and a next hop.
pub fn inspect(uplink: &Uplink) -> Reach {
    let interface = &uplink.interface;
    let Ok(text) = ip(&format!("-j address show dev {interface}")) else { return Reach::default() };
    let lines: Vec<LinkLine> = serde_json::from_str(&text).unwrap_or_default();
    // With one device `ip` may print empty objects for the others.
    let is_up = |line: &&LinkLine| line.flags.iter().any(|flag| flag == "LOWER_UP");
    let Some(line) = lines.iter().find(is_up) else { return Reach::default() };
    let address = |family: &str| {
        let fits = |one: &&AddressLine| {
            one.family.as_deref() == Some(family) && one.scope.as_deref() == Some("global")
        };
        line.addr_info.iter().find(|one| fits(one))
    };
    let is_point_to_point = line.flags.iter().any(|flag| flag == "POINTOPOINT");
    let route = |family: &str, v6: bool| {
        if let Some(gateway) = uplink.gateway.filter(|gateway| gateway.is_ipv6() == v6) {
            return Some(Route::Via(gateway));
        }
        let text = ip(&format!("{family} -j route show table all default dev {interface}")).ok()?;
        let routes: Vec<RouteLine> = serde_json::from_str(&text).unwrap_or_default();
        let ours = |line: &RouteLine| {
            let number = line.table.as_ref().and_then(|table| match table {
                serde_json::Value::String(text) => text.parse().ok(),
                other => other.as_u64(),
            });
            number
                .is_some_and(|number| (u64::from(FIRST_TABLE)..u64::from(FIRST_TABLE) + 64).contains(&number))
        };
        let is_dead = |line: &RouteLine| line.flags.iter().any(|flag| flag == "dead" || flag == "linkdown");
        let found =
            routes.into_iter().filter(|line| !ours(line) && !is_dead(line)).min_by_key(|line| line.metric);
        match found {
            Some(line) => Some(line.gateway.map_or(Route::Direct, Route::Via)),
            None => is_point_to_point.then_some(Route::Direct),
        }
    };
    Reach {
        v4: address("inet").and_then(|_| route("-4", false)),
        v6: address("inet6").and_then(|_| route("-6", true)),
        address: address("inet").and_then(|one| one.local),
    }
}
