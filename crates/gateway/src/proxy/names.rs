//! Queries of the DNS by UDP that would leave by an uplink: nftables hands them over here, and they are asked
//! over any link that works ([`super::resolvers`]). They are those of this host's programs, its resolver
//! among them, and with `transparent` those of the hosts behind it.
//!
//! The kernel's transparent sockets (TPROXY) keep the resolver's address: answers come from it. Its port
//! would need a privilege more (CAP_NET_BIND_SERVICE), so nftables sets it.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use bytes::Bytes;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt};
use socket2::{Domain, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::Semaphore;

use super::dns;
use super::serve::Server;

/// Most queries at a time; programs ask again for those beyond it.
const MOST_QUERIES: usize = 512;
/// Longest answer that goes into a datagram without being fragmented (DNS flag day 2020), bytes.
const LONGEST: usize = 1232;
/// Longest query, bytes.
const LONGEST_QUERY: usize = 4096;

/// A socket that may have addresses of others.
fn transparent_socket(address: SocketAddr) -> io::Result<Socket> {
    let domain = if address.is_ipv6() { Domain::IPV6 } else { Domain::IPV4 };
    let socket = Socket::new(domain, Type::DGRAM, None)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
        socket.set_ip_transparent_v6(true)?;
    } else {
        socket.set_ip_transparent_v4(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Sockets for both families, on loopback.
///
/// # Errors
/// If the port is in use, or CAP_NET_ADMIN is missing.
pub(super) fn listen(port: u16) -> io::Result<Vec<UdpSocket>> {
    let listen = |address: IpAddr| -> io::Result<UdpSocket> {
        let socket = transparent_socket(SocketAddr::new(address, port))?;
        match address {
            IpAddr::V4(_) => setsockopt(&socket, sockopt::Ipv4OrigDstAddr, &true)?,
            IpAddr::V6(_) => setsockopt(&socket, sockopt::Ipv6OrigDstAddr, &true)?,
        }
        UdpSocket::from_std(socket.into())
    };
    let named = |error: io::Error| io::Error::new(error.kind(), format!("UDP port {port}: {error}"));
    let mut sockets = vec![listen(Ipv4Addr::LOCALHOST.into()).map_err(named)?];
    // A host may have no IPv6.
    sockets.extend(listen(Ipv6Addr::LOCALHOST.into()));
    Ok(sockets)
}

/// A datagram, who sent it, and to whom.
type Query = (Bytes, SocketAddr, SocketAddr);

fn receive(socket: &UdpSocket) -> io::Result<Option<Query>> {
    let mut buffer = [0; LONGEST_QUERY];
    let mut space = nix::cmsg_space!(nix::libc::sockaddr_in6);
    let mut slices = [IoSliceMut::new(&mut buffer)];
    let got =
        recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut slices, Some(&mut space), MsgFlags::empty())?;
    let from = got.address.as_ref().and_then(|address| {
        let v4 = address.as_sockaddr_in().map(|one| SocketAddrV4::from(*one).into());
        v4.or_else(|| address.as_sockaddr_in6().map(|one| SocketAddrV6::from(*one).into()))
    });
    let to = got.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::Ipv4OrigDstAddr(one) => {
            let ip = Ipv4Addr::from(u32::from_be(one.sin_addr.s_addr));
            Some(SocketAddr::from((ip, u16::from_be(one.sin_port))))
        }
        ControlMessageOwned::Ipv6OrigDstAddr(one) => {
            let ip = Ipv6Addr::from(one.sin6_addr.s6_addr);
            Some(SocketAddr::from((ip, u16::from_be(one.sin6_port))))
        }
        _ => None,
    });
    let len = got.bytes;
    let whole = !got.flags.contains(MsgFlags::MSG_TRUNC);
    Ok(from.zip(to).filter(|_| whole).map(|(from, to)| (Bytes::copy_from_slice(&buffer[..len]), from, to)))
}

/// Answers queries until it is cancelled.
pub(super) async fn answer(server: Arc<Server>, socket: UdpSocket) {
    let places = Arc::new(Semaphore::new(MOST_QUERIES));
    loop {
        let received = socket.async_io(Interest::READABLE, || receive(&socket)).await;
        let Ok(Some((query, client, resolver))) = received else { continue };
        // A datagram to the socket itself would be asked in a circle.
        let Ok(own) = socket.local_addr() else { continue };
        if own == resolver {
            continue;
        }
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let server = Arc::clone(&server);
        tokio::spawn(async move {
            match one(&server, query, client, resolver, own.port()).await {
                Ok(()) => {}
                Err(error) => tracing::debug!(%client, %resolver, %error, "a query isn't answered"),
            }
            drop(place);
        });
    }
}

/// Asks, and answers in the resolver's place, from `port`.
async fn one(
    server: &Server,
    query: Bytes,
    client: SocketAddr,
    resolver: SocketAddr,
    port: u16,
) -> io::Result<()> {
    let mut message = server.ask_resolver(resolver, query.clone()).await?;
    if message.len() > LONGEST {
        message = dns::truncated(&query).ok_or(io::ErrorKind::InvalidData)?;
    }
    let socket = transparent_socket(SocketAddr::new(resolver.ip(), port))?;
    socket.send_to(&message, &client.into()).map(drop)
}
