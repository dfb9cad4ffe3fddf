//! How uplinks reach the rest of the world now.

use std::net::IpAddr;

use super::link_settings::Rates;
use crate::setup::{Host, Route};

/// An uplink as the set-up sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Uplink {
    /// The name of the network interface.
    pub interface: String,
    /// Its next hop, where the main routing table doesn't tell.
    pub gateway: Option<IpAddr>,
    /// Most that it carries each way.
    pub rate: Option<Rates>,
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
    /// The largest IP packet that the interface and the routes take, bytes.
    pub mtu: u32,
}

impl Reach {
    /// Whether there is a route in some family.
    pub fn any(self) -> bool {
        self.v4.is_some() || self.v6.is_some()
    }

    /// Whether what it has in common with another moment is the same: a family may come or go.
    pub fn is_same_network(self, other: Reach) -> bool {
        let families = [(self.v4, other.v4), (self.v6, other.v6)];
        let mut both = families.into_iter().filter_map(|(one, other)| one.zip(other)).peekable();
        let is_same_address = self.address.zip(other.address).is_none_or(|(one, other)| one == other);
        both.peek().is_some() && both.all(|(one, other)| one == other) && is_same_address
    }

    /// The route in a family.
    pub fn route(self, v6: bool) -> Option<Route> {
        if v6 { self.v6 } else { self.v4 }
    }
}

/// An uplink's addresses of global scope, in IPv4 and IPv6: each, and whether new connections may have it.
pub type Addresses = [Vec<(IpAddr, bool)>; 2];

/// The addresses that an uplink's interface has.
pub fn addresses(uplink: &Uplink, host: &Host) -> Addresses {
    let of = |v6| host.global_addresses(&uplink.interface, v6);
    [false, true].map(|v6| of(v6).map(|known| (known.address, known.is_preferred)).collect())
}

/// What the kernel says of an uplink: whether it is up, has an address, and a next hop.
pub fn inspect(uplink: &Uplink, host: &Host) -> Reach {
    let name = &uplink.interface;
    let Some(interface) = host.interface(name).filter(|interface| interface.is_up) else {
        return Reach::default();
    };
    let mut mtu = interface.mtu;
    let mut route = |v6: bool| {
        host.global_address(name, v6)?;
        let told = uplink.gateway.filter(|gateway| gateway.is_ipv6() == v6).map(Route::Via);
        let found = || host.default_route(name, v6);
        let route = told.or_else(found).or(interface.is_point_to_point.then_some(Route::Direct));
        if route.is_some() {
            mtu = mtu.min(host.mtu(name, v6));
        }
        route
    };
    let (v4, v6) = (route(false), route(true));
    Reach { v4, v6, address: host.global_address(name, false), mtu }
}
