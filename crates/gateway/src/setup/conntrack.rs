//! The kernel's connection tracking: flows that it is to forget.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};

use super::Host;
use super::netlink::dump_tracked;

/// `IPCTNL_MSG_CT_GET` and `IPCTNL_MSG_CT_DELETE` of `NFNL_SUBSYS_CTNETLINK`
/// (linux/netfilter/nfnetlink_conntrack.h).
const GET: u16 = 1 << 8 | 1;
const DELETE: u16 = 1 << 8 | 2;
/// `NLM_F_REQUEST | NLM_F_ACK`.
const FLAGS: u16 = 1 | 4;
/// Attributes of nfnetlink_conntrack.h, and `NLA_F_NESTED`.
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const CTA_MARK: u16 = 8;
const CTA_MARK_MASK: u16 = 21;
const NESTED: u16 = 1 << 15;
/// Those within a tuple, those of addresses (source and destination, in IPv4 and IPv6), and those of ports.
const CTA_TUPLE_IP: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;
const CTA_IP: [u16; 4] = [1, 2, 3, 4];
const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_PORTS: [u16; 2] = [2, 3];

/// One direction of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tuple {
    /// From where.
    pub source: IpAddr,
    /// To where.
    pub destination: IpAddr,
    /// The IP protocol's number.
    pub protocol: u8,
    /// Of source and destination; 0 where there are none.
    pub ports: [u16; 2],
}

/// A flow: packets of whoever began it, and answers as they arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tracked {
    pub original: Tuple,
    pub reply: Tuple,
}

/// The attributes in some bytes: their kinds and values.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let [a, b, c, d] = *bytes.first_chunk()?;
        let len = usize::from(u16::from_ne_bytes([a, b]));
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([c, d]) & !NESTED, value))
    })
}

fn find(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

impl Tuple {
    fn read(bytes: &[u8]) -> Option<Tuple> {
        let (ip, proto) = (find(bytes, CTA_TUPLE_IP)?, find(bytes, CTA_TUPLE_PROTO)?);
        let v4 = |kind| Some(IpAddr::from(<[u8; 4]>::try_from(find(ip, kind)?).ok()?));
        let v6 = |kind| Some(IpAddr::from(<[u8; 16]>::try_from(find(ip, kind)?).ok()?));
        let port = |kind| Some(u16::from_be_bytes(find(proto, kind)?.try_into().ok()?));
        Some(Tuple {
            source: v4(CTA_IP[0]).or_else(|| v6(CTA_IP[2]))?,
            destination: v4(CTA_IP[1]).or_else(|| v6(CTA_IP[3]))?,
            protocol: *find(proto, CTA_PROTO_NUM)?.first()?,
            ports: CTA_PROTO_PORTS.map(|kind| port(kind).unwrap_or(0)),
        })
    }
}

/// A message that has something forgotten.
fn message(family: u8, attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    // The length of all, the kind, flags, a number, and whose answer it is.
    bytes.extend([0; 4]);
    bytes.extend(DELETE.to_ne_bytes());
    bytes.extend(FLAGS.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([family, 0, 0, 0]);
    for (kind, value) in attributes {
        bytes.extend((4 + value.len() as u16).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(*value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    let len = bytes.len() as u32;
    bytes[..4].copy_from_slice(&len.to_ne_bytes());
    bytes
}

/// The message that has flows of a mark, of all families, forgotten.
fn of_mark(mark: u32) -> Vec<u8> {
    message(0, &[(CTA_MARK, &mark.to_be_bytes()), (CTA_MARK_MASK, &u32::MAX.to_be_bytes())])
}

/// Has the kernel forget the flows of a mark: their next packets are those of new ones, which get another
/// link and its address.
///
/// # Errors
/// If the kernel can't be asked, or refuses.
pub(crate) fn forget_marked(mark: u32) -> io::Result<()> {
    ask(&of_mark(mark))
}

/// Has the kernel forget these flows: their next packets are those of new ones.
///
/// # Errors
/// If the kernel can't be asked, or refuses.
pub(crate) fn forget(is_one: impl Fn(&Tracked) -> bool) -> io::Result<()> {
    let mut messages = Vec::new();
    // Of all families.
    dump_tracked(GET, &[0; 4], |bytes| {
        let Some((header, rest)) = bytes.split_first_chunk::<4>() else { return };
        let Some(original) = find(rest, CTA_TUPLE_ORIG) else { return };
        let reply = find(rest, CTA_TUPLE_REPLY).and_then(Tuple::read);
        let flow = Tuple::read(original).zip(reply).map(|(original, reply)| Tracked { original, reply });
        if flow.is_some_and(|flow| is_one(&flow)) {
            messages.push(message(header[0], &[(CTA_TUPLE_ORIG | NESTED, original)]));
        }
    })?;
    for message in messages {
        match ask(&message) {
            // It has ended meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            done => done?,
        }
    }
    Ok(())
}

/// Has the kernel forget flows without address translation: those that began while nftables' rules were gone
/// would keep a source address that gets no answer. Flows of the host's own addresses stay, but for `inner`
/// ones. Others that need no translation, as between two networks behind the proxy, are tracked again from
/// their next packet on.
pub(crate) fn forget_untranslated(host: &Host, inner: &[IpAddr]) {
    let all = host.addresses().iter().map(|known| known.address);
    let own: BTreeSet<IpAddr> = all.filter(|address| !inner.contains(address)).collect();
    let done = forget(|Tracked { original, reply }| {
        let is_translated = original.source != reply.destination || original.destination != reply.source;
        !is_translated && !own.contains(&original.source) && !own.contains(&original.destination)
    });
    if let Err(error) = done {
        tracing::warn!(target: "ropewalk::setup", %error, "flows that began without rules go on without");
    }
}

/// Sends a message, and waits until it is acknowledged.
fn ask(message: &[u8]) -> io::Result<()> {
    let protocol = SockProtocol::NetlinkNetFilter;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
    send(socket.as_raw_fd(), message, MsgFlags::empty())?;
    let mut answer = [0; 256];
    let len = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    // NLMSG_ERROR: the header, then the error's number, negative; 0 acknowledges.
    let error = answer[..len].get(16..20).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
    match error {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::Error::new(io::ErrorKind::InvalidData, "an answer that is too short")),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_message_is_as_long_as_it_says() {
        let bytes = super::of_mark(0x726f_7070);
        assert_eq!((bytes.len(), &bytes[..4]), (36, &36u32.to_ne_bytes()[..]));
        assert_eq!(&bytes[24..28], [0x72, 0x6f, 0x70, 0x70]);
    }
}
