//! rtnetlink(7): what the kernel has, asked for object by object, and the signal that something has changed.
//!
//! A message that says what changed is only a signal to look again: messages can be lost, states can't.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use netlink_packet_core::{
    Emitable, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, setsockopt,
    socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

/// Links, addresses, routes and rules of both families, and the sysctls of interfaces (`RTNLGRP_...` of
/// linux/rtnetlink.h): LINK, IPV4_IFADDR, IPV4_ROUTE, IPV4_RULE, IPV6_IFADDR, IPV6_ROUTE, IPV6_RULE,
/// IPV4_NETCONF, IPV6_NETCONF, NEXTHOP.
const ROUTE_GROUPS: [u32; 10] = [1, 5, 7, 8, 9, 11, 19, 24, 25, 32];
/// nftables' rules (`NFNLGRP_NFTABLES`).
const RULE_GROUPS: [u32; 1] = [7];
/// How often a state is asked for that changed while it was told.
const ATTEMPTS: usize = 3;
/// How long the kernel may take to answer, seconds.
const PATIENCE: i64 = 5;

/// All objects of a kind, in the calling thread's network namespace. `is_wanted` is asked with a message's
/// bytes after the netlink header, before they are decoded.
pub(super) fn dump(
    request: &RouteNetlinkMessage,
    is_wanted: impl Fn(&[u8]) -> bool,
) -> io::Result<Vec<RouteNetlinkMessage>> {
    let mut message = NetlinkMessage::from(request.clone());
    message.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    let mut found = Vec::new();
    for _ in 0..ATTEMPTS {
        found.clear();
        let is_whole = dump_once(SockProtocol::NetlinkRoute, &bytes, |one| {
            if is_wanted(one.payload()) {
                match NetlinkMessage::<RouteNetlinkMessage>::deserialize(one.into_inner()) {
                    Ok(NetlinkMessage { payload: NetlinkPayload::InnerMessage(object), .. }) => {
                        found.push(object)
                    }
                    Ok(_) => {}
                    // An object of a kind that the library doesn't know is none of those that matter here.
                    Err(error) => tracing::debug!(target: "ropewalk::setup", %error, "netlink"),
                }
            }
        })?;
        if is_whole {
            break;
        }
    }
    Ok(found)
}

/// The same for a kind that the library doesn't know: `on_object` takes each object's type and its bytes
/// after the netlink header.
pub(super) fn dump_raw(kind: u16, header: &[u8], mut on_object: impl FnMut(u16, &[u8])) -> io::Result<()> {
    let bytes = request(kind, header);
    dump_once(SockProtocol::NetlinkRoute, &bytes, |one| on_object(one.message_type(), one.payload()))
        .map(drop)
}

/// The same for what connection tracking knows.
pub(super) fn dump_tracked(kind: u16, header: &[u8], mut on_object: impl FnMut(&[u8])) -> io::Result<()> {
    let bytes = request(kind, header);
    dump_once(SockProtocol::NetlinkNetFilter, &bytes, |one| on_object(one.payload())).map(drop)
}

/// The message that asks for all objects of a kind.
fn request(kind: u16, header: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; NetlinkHeader::default().buffer_len()];
    bytes.extend(header);
    let mut message = NetlinkHeader::default();
    message.length = bytes.len() as u32;
    message.message_type = kind;
    message.flags = NLM_F_REQUEST | NLM_F_DUMP;
    message.emit(&mut bytes);
    bytes
}

/// Returns false if objects changed meanwhile.
fn dump_once(
    protocol: SockProtocol,
    request: &[u8],
    mut on_object: impl FnMut(NetlinkBuffer<&[u8]>),
) -> io::Result<bool> {
    let unreadable = |error| io::Error::new(io::ErrorKind::InvalidData, format!("netlink: {error}"));
    let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::seconds(PATIENCE))?;
    send(socket.as_raw_fd(), request, MsgFlags::empty())?;
    let mut buffer = vec![0; 64 << 10];
    let mut is_whole = true;
    loop {
        let len = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
        let mut rest = &buffer[..len];
        while !rest.is_empty() {
            let header = NetlinkBuffer::new_checked(rest).map_err(unreadable)?;
            let one = &rest[..header.length() as usize];
            is_whole &= header.flags() & NLM_F_DUMP_INTR == 0;
            // Numbers below are netlink's own (NLMSG_MIN_TYPE).
            if header.message_type() >= 16 {
                on_object(NetlinkBuffer::new_checked(one).map_err(unreadable)?);
            } else {
                match NetlinkMessage::<RouteNetlinkMessage>::deserialize(one).map(|one| one.payload) {
                    Ok(NetlinkPayload::Done(_)) => return Ok(is_whole),
                    Ok(NetlinkPayload::Error(error)) => return Err(error.to_io()),
                    Ok(_) => {}
                    Err(error) => return Err(unreadable(error)),
                }
            }
            rest = rest.get(one.len().next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

/// How often the network is looked at without a message that it has changed.
const INTERVAL: Duration = Duration::from_secs(5);
/// Messages of one change come together.
const SETTLE: Duration = Duration::from_millis(20);

/// Changes in the calling thread's network namespace. `None`: there was none for long, and it is time to look
/// all the same.
pub fn settled_changes() -> mpsc::Receiver<Option<Change>> {
    let (sender, receiver) = mpsc::channel(1);
    let changes = Changes::subscribe();
    if let Err(error) = &changes {
        tracing::warn!(target: "ropewalk::setup", %error, "changes of the network are noticed late");
    }
    tokio::spawn(async move {
        loop {
            let changed = async {
                match &changes {
                    Ok(changes) => changes.next().await.ok(),
                    Err(_) => std::future::pending().await,
                }
            };
            let change = tokio::time::timeout(INTERVAL, changed).await.ok().flatten();
            tokio::time::sleep(SETTLE).await;
            if sender.send(change).await.is_err() {
                return;
            }
        }
    });
    receiver
}

/// A subscription to changes.
#[derive(Debug)]
struct Changes {
    routes: AsyncFd<OwnedFd>,
    rules: AsyncFd<OwnedFd>,
}

/// What has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Interfaces, addresses, routes, or sysctls of interfaces.
    Network,
    /// nftables' rules.
    Rules,
}

impl Changes {
    fn subscribe() -> io::Result<Changes> {
        Ok(Changes {
            routes: subscription(SockProtocol::NetlinkRoute, &ROUTE_GROUPS)?,
            rules: subscription(SockProtocol::NetlinkNetFilter, &RULE_GROUPS)?,
        })
    }

    /// Waits for a change, and drops all messages that have come by then.
    async fn next(&self) -> io::Result<Change> {
        tokio::select! {
            drained = drain(&self.rules) => drained.map(|()| Change::Rules),
            drained = drain(&self.routes) => drained.map(|()| Change::Network),
        }
    }
}

#[expect(deprecated, reason = "its successor is unsafe; the descriptor is owned and never replaced")]
fn subscription(protocol: SockProtocol, groups: &[u32]) -> io::Result<AsyncFd<OwnedFd>> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?;
    let groups = groups.iter().fold(0, |all, group| all | 1 << (group - 1));
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
    AsyncFd::new(socket)
}

async fn drain(socket: &AsyncFd<OwnedFd>) -> io::Result<()> {
    let mut ready = socket.readable().await?;
    let mut buffer = [0; 8192];
    loop {
        match recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
            // Messages were lost, which says that there was a change too.
            Ok(_) | Err(nix::Error::ENOBUFS) => {}
            Err(nix::Error::EAGAIN) => {
                ready.clear_ready();
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
    }
}
