//! What the host has: interfaces, addresses, default routes and routing rules, as the kernel tells by
//! netlink.

use std::io;
use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric, RouteNextHopFlags,
    RouteType, RouteVia,
};
use netlink_packet_route::rule::{RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::netlink::dump;
use super::nexthop::Nexthops;
use super::route::{Hop, Route};
use super::{GATEWAY_TABLES, PROXY_TABLES, read_sysctl};

/// The main routing table.
pub(crate) const MAIN_TABLE: u32 = RouteHeader::RT_TABLE_MAIN as u32;

/// Whether a routing table is the gateway's or the proxy's, not the host's.
fn is_ours(table: u32) -> bool {
    GATEWAY_TABLES.contains(&table) || PROXY_TABLES.contains(&table)
}

/// A network interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    index: u32,
    /// Its name.
    pub name: String,
    /// Its largest IP packet, bytes.
    pub mtu: u32,
    /// Whether it is up, and its cable plugged in.
    pub is_up: bool,
    /// Whether whatever it sends reaches one neighbour.
    pub is_point_to_point: bool,
}

/// An address of the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostAddress {
    /// The address.
    pub address: IpAddr,
    /// The name of its network interface.
    pub interface: String,
    /// The interface's largest IP packet, bytes.
    pub mtu: u32,
    /// Whether it is of global scope: not only for this link or this host.
    pub is_global: bool,
    /// Whether new connections may have it: it is neither deprecated nor tentative (RFC 4862, section 2).
    pub is_preferred: bool,
}

/// A default route. One with several next hops is ECMP's.
#[derive(Clone, PartialEq, Eq, Debug)]
struct DefaultRoute {
    v6: bool,
    table: u32,
    metric: u32,
    mtu: Option<u32>,
    hops: Vec<Hop>,
}

/// A routing rule that names a table.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Rule {
    v6: bool,
    priority: u32,
    table: u32,
    source: Option<IpNet>,
    arriving: Option<String>,
    leaving: Option<String>,
    has_mark: bool,
}

/// The host's network as it is at a moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Host {
    interfaces: Vec<Interface>,
    addresses: Vec<HostAddress>,
    defaults: Vec<DefaultRoute>,
    rules: Vec<Rule>,
    /// Networks of two addresses, with their interface: between the kernel and the engine.
    pairs: Vec<(IpNet, u32)>,
    /// Tables with a blackhole as default route, by family.
    blackholes: Vec<(u32, bool)>,
    /// Tables by which everything is for this host, by family.
    locals: Vec<(u32, bool)>,
}

/// Whether devices that are made now get IPv6.
pub(crate) fn new_devices_have_v6() -> bool {
    read_sysctl("net/ipv6/conf/default/disable_ipv6").is_some_and(|value| value == "0")
}

impl Host {
    /// Reads it, in the calling thread's network namespace.
    ///
    /// # Errors
    /// If the kernel can't be asked.
    pub fn read() -> io::Result<Host> {
        let mut host = Host::default();
        for object in dump(&RouteNetlinkMessage::GetLink(LinkMessage::default()), |_| true)? {
            if let RouteNetlinkMessage::NewLink(link) = object {
                host.interfaces.extend(interface(&link));
            }
        }
        let nexthops = Nexthops::read()?;
        for (family, v6) in [(AddressFamily::Inet, false), (AddressFamily::Inet6, true)] {
            let read = host.read_family(family, v6, &nexthops);
            // A kernel without IPv6 may refuse the question.
            if !v6 {
                read?;
            }
        }
        Ok(host)
    }

    fn read_family(&mut self, family: AddressFamily, v6: bool, nexthops: &Nexthops) -> io::Result<()> {
        let mut address = AddressMessage::default();
        address.header.family = family;
        for object in dump(&RouteNetlinkMessage::GetAddress(address), |_| true)? {
            if let RouteNetlinkMessage::NewAddress(one) = object
                && one.header.family == family
            {
                self.addresses.extend(host_address(&one, &self.interfaces));
            }
        }
        let mut route = RouteMessage::default();
        route.header.address_family = family;
        // A router may have a million other routes: the second byte is the length of the prefix.
        let pair = if v6 { 127 } else { 31 };
        let is_wanted = |bytes: &[u8]| bytes.get(1).is_some_and(|length| *length == 0 || *length == pair);
        for object in dump(&RouteNetlinkMessage::GetRoute(route), is_wanted)? {
            if let RouteNetlinkMessage::NewRoute(one) = object
                && one.header.address_family == family
            {
                self.defaults.extend(default_route(&one, v6, nexthops));
                self.pairs.extend(route_of_pair(&one));
                match one.header.kind {
                    _ if one.header.destination_prefix_length != 0 => {}
                    RouteType::BlackHole => self.blackholes.push((table_of(&one), v6)),
                    RouteType::Local => self.locals.push((table_of(&one), v6)),
                    _ => {}
                }
            }
        }
        let mut rule = RuleMessage::default();
        rule.header.family = family;
        for object in dump(&RouteNetlinkMessage::GetRule(rule), |_| true)? {
            if let RouteNetlinkMessage::NewRule(one) = object
                && one.header.family == family
            {
                self.rules.push(routing_rule(&one, v6));
            }
        }
        self.rules.sort_by_key(|rule| rule.priority);
        Ok(())
    }

    /// The interfaces.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// An interface, by its name.
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.name == name)
    }

    /// Every address.
    pub fn addresses(&self) -> &[HostAddress] {
        &self.addresses
    }

    /// Whether interfaces may get IPv6, and the kernel has routing rules for it.
    pub fn may_have_v6(&self) -> bool {
        new_devices_have_v6() && self.rules.iter().any(|rule| rule.v6)
    }

    /// An interface's addresses of global scope.
    pub fn global_addresses(&self, interface: &str, v6: bool) -> impl Iterator<Item = &HostAddress> {
        let fits = move |known: &&HostAddress| {
            known.interface == interface && known.is_global && known.address.is_ipv6() == v6
        };
        self.addresses.iter().filter(fits)
    }

    /// An interface's first address of global scope.
    pub fn global_address(&self, interface: &str, v6: bool) -> Option<IpAddr> {
        self.global_addresses(interface, v6).next().map(|known| known.address)
    }

    /// The interface of the main table's best default route: with several, as DHCP leaves them on a host with
    /// two uplinks, the others are not used. `None` for a route with several next hops.
    pub fn default_interface(&self, v6: bool) -> Option<&str> {
        let main = self.defaults.iter().filter(|route| route.v6 == v6 && route.table == MAIN_TABLE);
        match main.min_by_key(|route| route.metric)?.hops[..] {
            [hop] => self.name_of(hop.interface),
            _ => None,
        }
    }

    /// The table that a rule of the host names for packets from an address: `from ADDRESS lookup TABLE`.
    pub fn table_of_source(&self, address: IpAddr) -> Option<u32> {
        let of_address = |rule: &&Rule| {
            let is_plain = rule.arriving.is_none() && rule.leaving.is_none() && !rule.has_mark;
            is_plain && rule.source.is_some_and(|source| source.contains(&address))
        };
        self.rules.iter().find(of_address).map(|rule| rule.table)
    }

    /// How an interface reaches the rest of the world: by its default route in the table that a rule names
    /// for its address or for itself, else in the main table, else in any other; of several, that of the
    /// least metric. A route with several next hops counts for each of their interfaces.
    pub fn default_route(&self, interface: &str, v6: bool) -> Option<Route> {
        let index = self.interface(interface)?.index;
        let address = self.global_address(interface, v6);
        let named = |rule: &&Rule| {
            let is_of_source =
                || rule.source.is_some_and(|source| address.is_some_and(|own| source.contains(&own)));
            let is_of_interface = rule.leaving.as_deref() == Some(interface);
            rule.v6 == v6 && rule.arriving.is_none() && (is_of_interface || is_of_source())
        };
        let named: Vec<u32> = self.rules.iter().filter(named).map(|rule| rule.table).collect();
        let rank = |table: u32| match named.iter().position(|known| *known == table) {
            Some(at) => at,
            None if table == MAIN_TABLE => named.len(),
            None => named.len() + 1,
        };
        let usable = self.defaults.iter().filter(|route| route.v6 == v6 && !is_ours(route.table));
        let hop = |route: &DefaultRoute| route.hops.iter().find(|hop| hop.interface == index).copied();
        let found = usable.filter_map(|route| Some((rank(route.table), route.metric, hop(route)?.route)));
        found.min_by_key(|(rank, metric, _)| (*rank, *metric)).map(|(.., route)| route)
    }

    /// The largest IP packet that an interface and its default routes take, bytes, in one family. Router
    /// advertisements and routes (`mtu`) may lower the interface's.
    pub fn mtu(&self, interface: &str, v6: bool) -> u32 {
        let Some(found) = self.interface(interface) else { return u32::MAX };
        let advertised = || read_sysctl(&format!("net/ipv6/conf/{interface}/mtu"))?.parse().ok();
        let advertised = if v6 { advertised() } else { None };
        let is_its = |route: &&DefaultRoute| {
            route.v6 == v6
                && !is_ours(route.table)
                && route.hops.iter().any(|hop| hop.interface == found.index)
        };
        let of_routes = self.defaults.iter().filter(is_its).filter_map(|route| route.mtu);
        of_routes.chain(advertised).fold(found.mtu, u32::min)
    }

    /// Whether a table has this default route through an interface.
    pub fn has_default(&self, table: u32, interface: &str, v6: bool, route: Route) -> bool {
        let Some(index) = self.interface(interface).map(|interface| interface.index) else { return false };
        let is_it = |known: &DefaultRoute| {
            known.v6 == v6 && known.table == table && known.hops == [Hop { interface: index, route }]
        };
        self.defaults.iter().any(is_it)
    }

    /// Whether a table has a blackhole as default route.
    pub fn has_blackhole(&self, table: u32, v6: bool) -> bool {
        self.blackholes.contains(&(table, v6))
    }

    /// Whether by a table everything is for this host.
    pub fn has_local_default(&self, table: u32, v6: bool) -> bool {
        self.locals.contains(&(table, v6))
    }

    /// Whether there is a rule of this priority that names this table, for packets that arrive at this
    /// interface.
    pub fn has_rule(&self, priority: u32, table: u32, v6: bool, arriving: Option<&str>) -> bool {
        let is_it = |rule: &Rule| {
            (rule.v6, rule.priority, rule.table) == (v6, priority, table)
                && rule.arriving.as_deref() == arriving
        };
        self.rules.iter().any(is_it)
    }

    /// Whether the main table has the route to a network of two addresses through an interface.
    pub fn has_pair(&self, pair: IpNet, interface: &str) -> bool {
        self.interface(interface).is_some_and(|found| self.pairs.contains(&(pair, found.index)))
    }

    fn name_of(&self, index: u32) -> Option<&str> {
        self.interfaces.iter().find(|interface| interface.index == index).map(|found| found.name.as_str())
    }
}

fn interface(link: &LinkMessage) -> Option<Interface> {
    let (mut name, mut mtu) = (None, 0);
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(text.clone()),
            LinkAttribute::Mtu(bytes) => mtu = *bytes,
            _ => {}
        }
    }
    Some(Interface {
        index: link.header.index,
        name: name?,
        mtu,
        is_up: link.header.flags.contains(LinkFlags::LowerUp),
        is_point_to_point: link.header.flags.contains(LinkFlags::Pointopoint),
    })
}

fn host_address(message: &AddressMessage, interfaces: &[Interface]) -> Option<HostAddress> {
    let interface = interfaces.iter().find(|interface| interface.index == message.header.index)?;
    let (mut local, mut address) = (None, None);
    let mut flags = AddressFlags::empty();
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(own) => local = Some(*own),
            // Of a point-to-point link it is the far end's.
            AddressAttribute::Address(one) => address = Some(*one),
            AddressAttribute::Flags(all) => flags = *all,
            _ => {}
        }
    }
    Some(HostAddress {
        address: local.or(address)?,
        interface: interface.name.clone(),
        mtu: interface.mtu,
        is_global: message.header.scope == AddressScope::Universe,
        is_preferred: !flags
            .intersects(AddressFlags::Deprecated | AddressFlags::Tentative | AddressFlags::Dadfailed),
    })
}

/// A next hop from a route's attributes, or from those of one of its next hops.
fn hop(interface: u32, attributes: &[RouteAttribute]) -> Hop {
    let gateway = attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(RouteAddress::Inet(hop)) | RouteAttribute::Via(RouteVia::Inet(hop)) => {
            Some(IpAddr::from(*hop))
        }
        RouteAttribute::Gateway(RouteAddress::Inet6(hop)) | RouteAttribute::Via(RouteVia::Inet6(hop)) => {
            Some(IpAddr::from(*hop))
        }
        _ => None,
    });
    Hop { interface, route: gateway.map_or(Route::Direct, Route::Via) }
}

fn table_of(message: &RouteMessage) -> u32 {
    let long = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Table(number) => Some(*number),
        _ => None,
    });
    long.unwrap_or(u32::from(message.header.table))
}

/// The default route in a message, if it is one over which packets leave.
fn default_route(message: &RouteMessage, v6: bool, nexthops: &Nexthops) -> Option<DefaultRoute> {
    let header = &message.header;
    let is_cloned = header.flags.contains(RouteFlags::Cloned);
    if header.destination_prefix_length != 0 || header.kind != RouteType::Unicast || is_cloned {
        return None;
    }
    let (table, mut metric, mut interface) = (table_of(message), 0, None);
    let (mut hops, mut mtu) = (Vec::new(), None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Metrics(metrics) => {
                mtu = metrics.iter().find_map(|metric| match metric {
                    RouteMetric::Mtu(bytes) => Some(*bytes),
                    _ => None,
                });
            }
            RouteAttribute::Priority(number) => metric = *number,
            RouteAttribute::Oif(index) => interface = Some(*index),
            // Beside it there may be what it stands for, and then these are none.
            RouteAttribute::NhId(id) => hops.extend(nexthops.hops(*id)),
            RouteAttribute::MultiPath(several) => {
                let no_use = RouteNextHopFlags::Dead | RouteNextHopFlags::Linkdown;
                let usable = several.iter().filter(|hop| !hop.flags.intersects(no_use));
                hops.extend(usable.map(|one| hop(one.interface_index, &one.attributes)));
            }
            _ => {}
        }
    }
    if let Some(index) = interface
        && !header.flags.intersects(RouteFlags::Dead | RouteFlags::Linkdown)
    {
        hops.push(hop(index, &message.attributes));
    }
    (!hops.is_empty()).then_some(DefaultRoute { v6, table, metric, mtu, hops })
}

/// The network of two addresses that a route of the main table leads to, with its interface.
fn route_of_pair(message: &RouteMessage) -> Option<(IpNet, u32)> {
    let (header, attributes) = (&message.header, &message.attributes);
    if header.destination_prefix_length == 0 || table_of(message) != MAIN_TABLE {
        return None;
    }
    let destination = attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(RouteAddress::Inet(address)) => Some(IpAddr::from(*address)),
        RouteAttribute::Destination(RouteAddress::Inet6(address)) => Some(IpAddr::from(*address)),
        _ => None,
    })?;
    let interface = attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => Some(*index),
        _ => None,
    })?;
    Some((IpNet::new(destination, header.destination_prefix_length).ok()?, interface))
}

fn routing_rule(message: &RuleMessage, v6: bool) -> Rule {
    let mut rule = Rule {
        v6,
        priority: 0,
        table: u32::from(message.header.table),
        source: None,
        arriving: None,
        leaving: None,
        has_mark: false,
    };
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(number) => rule.priority = *number,
            RuleAttribute::Table(number) => rule.table = *number,
            RuleAttribute::Source(address) => {
                rule.source = IpNet::new(*address, message.header.src_len).ok();
            }
            RuleAttribute::Iifname(name) => rule.arriving = Some(name.clone()),
            RuleAttribute::Oifname(name) => rule.leaving = Some(name.clone()),
            RuleAttribute::FwMark(mark) => rule.has_mark = *mark != 0,
            _ => {}
        }
    }
    rule
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

/// Whether an interface may forward IPv6 without making the host a router, which ignores router
/// advertisements: since Linux 6.17.
pub fn has_force_forwarding() -> bool {
    std::path::Path::new("/proc/sys/net/ipv6/conf/lo/force_forwarding").exists()
}
