//! The addresses of links: the engine's, and the kernel's on their devices.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Most uplinks.
pub const MOST_LINKS: usize = crate::tunnel::MOST_LINKS as usize;

/// The engine's address for an uplink, from the block of RFC 2544, which isn't routed on the Internet.
pub fn engine_v4(link: usize) -> Ipv4Addr {
    Ipv4Addr::new(198, 19, 200 + link as u8, 2)
}

fn kernel_v4(link: usize) -> Ipv4Addr {
    Ipv4Addr::new(198, 19, 200 + link as u8, 3)
}

/// The same in IPv6: a unique local address (RFC 4193).
pub fn engine_v6(link: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd72, 0x6f70, 0x6577, link as u16, 0, 0, 0, 2)
}

fn kernel_v6(link: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd72, 0x6f70, 0x6577, link as u16, 0, 0, 0, 3)
}

/// The kernel's address on an uplink's device: what is sent from it leaves by the uplink.
pub fn kernel_address(link: usize, v6: bool) -> IpAddr {
    if v6 { kernel_v6(link).into() } else { kernel_v4(link).into() }
}

/// The same, with the length of the prefix that holds the engine's, too.
pub(super) fn pair(link: usize, v6: bool) -> IpNet {
    IpNet::new(kernel_address(link, v6), if v6 { 127 } else { 31 }).expect("no longer than an address")
}
