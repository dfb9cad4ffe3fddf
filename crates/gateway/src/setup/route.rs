//! Where routes lead.

use std::net::IpAddr;

/// Where packets of a default route go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// To this next hop.
    Via(IpAddr),
    /// All are neighbours, as on point-to-point devices.
    Direct,
}

impl Route {
    /// The words of `ip route add default`, for a route of this family.
    pub fn words(self, interface: &str, v6: bool) -> String {
        match self {
            Route::Via(hop) if hop.is_ipv6() && !v6 => format!("via inet6 {hop} dev {interface} onlink"),
            Route::Via(hop) => format!("via {hop} dev {interface} onlink"),
            Route::Direct => format!("dev {interface}"),
        }
    }
}

/// A next hop that works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hop {
    pub interface: u32,
    pub route: Route,
}
