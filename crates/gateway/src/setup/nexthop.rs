//! Nexthop objects (linux/nexthop.h), which the library of netlink messages doesn't know. Routes name them by
//! number; with `net.ipv4.nexthop_compat_mode` 0 that is all that the kernel tells of a route's next hops.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::netlink::dump_raw;
use super::read_sysctl;
use super::route::{Hop, Route};

/// `RTM_NEWNEXTHOP` and `RTM_GETNEXTHOP`.
const NEW: u16 = 104;
const GET: u16 = 106;
/// `struct nhmsg`: family, scope, protocol, a byte that is 0, flags.
const HEADER: usize = 8;
/// `RTNH_F_DEAD` and `RTNH_F_LINKDOWN`.
const NO_USE: u32 = 1 | 16;
/// Attributes: `NHA_ID`, `NHA_GROUP`, `NHA_OIF`, `NHA_GATEWAY`.
const ID: u16 = 1;
const GROUP: u16 = 2;
const INTERFACE: u16 = 5;
const GATEWAY: u16 = 6;
/// Bits of an attribute's type that aren't its number (`NLA_TYPE_MASK`).
const KIND: u16 = 0x3fff;
/// Bytes of a member of a group: its number, its weight.
const MEMBER: usize = 8;

/// A nexthop object.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Nexthop {
    Hop(Hop),
    Group(Vec<u32>),
    /// It is down, or drops packets.
    Unusable,
}

/// All of them, by number.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Nexthops(BTreeMap<u32, Nexthop>);

/// A number in the host's byte order, as netlink has them.
fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.first_chunk()?))
}

/// The attributes of a message: their kinds and values.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let [one, two, three, four] = *rest.first_chunk()?;
        let (len, kind) = (usize::from(u16::from_ne_bytes([one, two])), u16::from_ne_bytes([three, four]));
        let value = rest.get(4..len)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & KIND, value))
    })
}

fn nexthop(message: &[u8]) -> Option<(u32, Nexthop)> {
    let is_down = number(message.get(4..)?)? & NO_USE != 0;
    let (mut id, mut group, mut interface, mut gateway) = (None, None, None, None);
    for (kind, value) in attributes(message.get(HEADER..)?) {
        match kind {
            ID => id = number(value),
            GROUP => group = Some(value.chunks_exact(MEMBER).filter_map(number).collect()),
            INTERFACE => interface = number(value),
            GATEWAY => {
                let v4 = || <[u8; 4]>::try_from(value).map(|four| Ipv4Addr::from(four).into());
                let v6 = <[u8; 16]>::try_from(value).map(|all| Ipv6Addr::from(all).into());
                gateway = v6.or_else(|_| v4()).ok();
            }
            _ => {}
        }
    }
    let route = gateway.map_or(Route::Direct, |address: IpAddr| Route::Via(address));
    let object = match (group, interface) {
        (Some(members), _) => Nexthop::Group(members),
        (None, Some(interface)) if !is_down => Nexthop::Hop(Hop { interface, route }),
        _ => Nexthop::Unusable,
    };
    Some((id?, object))
}

impl Nexthops {
    /// Those of the calling thread's network namespace, where routes don't tell what they are.
    pub fn read() -> io::Result<Nexthops> {
        let mut found = BTreeMap::new();
        if read_sysctl("net/ipv4/nexthop_compat_mode").is_some_and(|mode| mode == "0") {
            dump_raw(GET, &[0; HEADER], |kind, message| {
                found.extend(nexthop(message).filter(|_| kind == NEW));
            })?;
        }
        Ok(Nexthops(found))
    }

    /// The next hops of an object that work. A group's members are no groups.
    pub fn hops(&self, id: u32) -> Vec<Hop> {
        let hop = |id: &u32| match self.0.get(id) {
            Some(Nexthop::Hop(hop)) => Some(*hop),
            _ => None,
        };
        match self.0.get(&id) {
            Some(Nexthop::Group(members)) => members.iter().filter_map(hop).collect(),
            _ => hop(&id).into_iter().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let len = value.len() as u16 + 4;
        let mut bytes = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message(flags: u32, attributes: &[Vec<u8>]) -> Vec<u8> {
        [&[2, 0, 0, 0][..], &flags.to_ne_bytes(), &attributes.concat()].concat()
    }

    #[test]
    fn objects_and_groups_are_resolved() {
        let id = |id: u32| attribute(ID, &id.to_ne_bytes());
        let interface = attribute(INTERFACE, &7u32.to_ne_bytes());
        let member = |id: u32| [&id.to_ne_bytes()[..], &[3, 0, 0, 0]].concat();
        let six: Ipv6Addr = "fd01::1".parse().unwrap();
        let found = [
            message(0, &[id(1), interface.clone(), attribute(GATEWAY, &[10, 1, 0, 1])]),
            message(0, &[id(2), interface.clone(), attribute(GATEWAY, &six.octets())]),
            message(16, &[id(3), interface.clone()]),
            message(0, &[id(4), attribute(GROUP, &[member(1), member(3), member(2)].concat())]),
            message(0, &[id(5), interface]),
            // A blackhole.
            message(0, &[id(6), attribute(4, &[])]),
        ];
        let all = Nexthops(found.iter().filter_map(|one| nexthop(one)).collect());
        let via = |route| Hop { interface: 7, route };
        let (one, two) = (via(Route::Via([10, 1, 0, 1].into())), via(Route::Via(six.into())));
        assert_eq!((all.hops(1), all.hops(4)), (vec![one], vec![one, two]));
        assert_eq!((all.hops(3), all.hops(5)), (vec![], vec![via(Route::Direct)]));
        assert_eq!((all.hops(6), all.hops(9)), (vec![], vec![]));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = nexthop(&bytes);
        }
    }
}
