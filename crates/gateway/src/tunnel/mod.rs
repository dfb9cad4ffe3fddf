//! What isn't TCP, between a proxy and its gateway: packets of the proxy's networks go into a TUN device,
//! over all links as QUIC datagrams, and out of the gateway's TUN device, masqueraded.
//!
//! `ropewalk-datagrams` decides what goes where. Here is what carries it: one QUIC connection for each link
//! (`carrier`), with the keys of the pair, the devices (`device`), and what runs an end (`drive`). The ends
//! are the proxy's `tunnel_client` and the gateway's `tunnel_server`. Where UDP is blocked, a stream carries
//! what the connections would (`stream`).

pub(crate) mod carrier;
mod device;
pub(crate) mod drive;
pub mod ports;
pub(crate) mod stream;
pub(crate) mod thread;
pub(crate) mod word;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ropewalk_datagrams::packet::FlowKey;

pub(crate) use device::Device;
pub use drive::Seen;

/// How the devices' names begin.
pub const DEVICES: &str = "rope-dg";
/// The proxy's device.
pub const NEAR_DEVICE: &str = "rope-dg-proxy";
/// The gateway's device.
pub const FAR_DEVICE: &str = "rope-dg-gw";
/// The devices' MTU. With what the tunnel and QUIC add, a packet still fits one of 1,500 bytes, over IPv6
/// too.
pub const MTU: u32 = 1380;
/// The largest segment of a TCP connection from outside to a host behind a proxy (MSS), bytes: IPv6's headers
/// and TCP's are beside it.
pub(crate) const LARGEST_SEGMENT: u32 = MTU - 60;
/// Most links of a proxy.
pub(crate) const MOST_LINKS: u8 = 8;
/// The number of the stream beside them.
pub(crate) const STREAM: usize = MOST_LINKS as usize;
/// What both say that they speak (ALPN).
const PROTOCOL: &[u8] = b"ropewalk-datagrams/3";

/// The source addresses of a proxy's packets inside the tunnel, which its gateway gives it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Inner {
    /// From the block of RFC 2544, which isn't routed on the Internet.
    pub v4: Ipv4Addr,
    /// A unique local address (RFC 4193).
    pub v6: Ipv6Addr,
}

impl Inner {
    /// Those of the n-th proxy; the gateway's are those of 0.
    pub fn of(number: u16) -> Inner {
        let [high, low] = number.wrapping_add(1).to_be_bytes();
        let v6 = Ipv6Addr::new(0xfd72, 0x6f70, 0x6578, 0, 0, 0, 0, number.wrapping_add(1));
        Inner { v4: Ipv4Addr::new(198, 18, high, low), v6 }
    }

    /// The networks that all of them are in.
    pub const NETWORKS: [&'static str; 2] = ["198.18.0.0/16", "fd72:6f70:6578::/64"];

    pub(crate) fn encode(self) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[..4].copy_from_slice(&self.v4.octets());
        bytes[4..].copy_from_slice(&self.v6.octets());
        bytes
    }

    /// `None` for addresses that no gateway gives.
    pub(crate) fn decode(bytes: [u8; 20]) -> Option<Inner> {
        let [a, b, c, d, v6 @ ..] = bytes;
        let given = Inner { v4: Ipv4Addr::new(a, b, c, d), v6: Ipv6Addr::from(v6) };
        (Inner::of(u16::from_be_bytes([c, d]).wrapping_sub(1)) == given).then_some(given)
    }

    pub(crate) fn has(self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(v4) => v4 == self.v4,
            IpAddr::V6(v6) => v6 == self.v6,
        }
    }

    /// Whether a packet may leave the tunnel at the proxy: it is for it.
    pub(crate) fn receives(self, flow: &FlowKey) -> bool {
        self.has(flow.destination)
    }

    /// Whether a packet may leave the tunnel at the gateway: it is the proxy's.
    pub(crate) fn sends(self, flow: &FlowKey) -> bool {
        self.has(flow.source)
    }
}

/// What the gateway answers a proxy that connects a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    pub inner: Inner,
    /// Another one after a restart: the tunnel's numbers begin anew.
    pub tunnel: u64,
}

impl Answer {
    pub const LEN: usize = 28;

    pub fn encode(self) -> [u8; Answer::LEN] {
        let mut bytes = [0; Answer::LEN];
        bytes[..20].copy_from_slice(&self.inner.encode());
        bytes[20..].copy_from_slice(&self.tunnel.to_be_bytes());
        bytes
    }

    /// `None` with addresses that no gateway gives.
    pub fn decode(bytes: [u8; Answer::LEN]) -> Option<Answer> {
        let (inner, tunnel) = (bytes.first_chunk()?, bytes.last_chunk()?);
        Some(Answer { inner: Inner::decode(*inner)?, tunnel: u64::from_be_bytes(*tunnel) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_proxies_are_known_again() {
        for number in [0, 1, 254, 255, 300, 65_534] {
            let inner = Inner::of(number);
            assert_eq!(Inner::decode(inner.encode()), Some(inner), "{number}");
        }
        assert_eq!(Inner::of(1).v4.to_string(), "198.18.0.2");
        let mut other = Inner::of(1).encode();
        other[0] = 10;
        assert_eq!(Inner::decode(other), None);
        let answer = Answer { inner: Inner::of(7), tunnel: 0x0102_0304_0506_0708 };
        assert_eq!(Answer::decode(answer.encode()), Some(answer));
    }
}
