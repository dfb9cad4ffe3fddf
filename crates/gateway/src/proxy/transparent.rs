//! Programs that know nothing of the proxy: nftables redirects their connections here, and the kernel tells
//! where they wanted to go.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::sync::Arc;

use bytes::Bytes;
use nix::sys::socket::{getsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};

use super::client::Client;
use super::serve::Server;
use crate::per_connection::small;
use crate::target::Target;

/// Listeners for both families.
pub(super) fn listen(port: u16) -> io::Result<Vec<TcpListener>> {
    let listen = |domain: Domain, address: SocketAddr| -> io::Result<TcpListener> {
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(1024)?;
        TcpListener::from_std(socket.into())
    };
    let named = |error: io::Error| io::Error::new(error.kind(), format!("listening at port {port}: {error}"));
    let mut listeners = vec![listen(Domain::IPV4, (Ipv4Addr::UNSPECIFIED, port).into()).map_err(named)?];
    // A host may have no IPv6.
    listeners.extend(listen(Domain::IPV6, (Ipv6Addr::UNSPECIFIED, port).into()));
    Ok(listeners)
}

/// Where a redirected connection wanted to go.
fn original(client: &TcpStream, peer: SocketAddr) -> io::Result<SocketAddr> {
    let found: SocketAddr = if peer.is_ipv4() {
        let address = getsockopt(client, sockopt::OriginalDst)?;
        let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
        SocketAddrV4::new(ip, u16::from_be(address.sin_port)).into()
    } else {
        let address = getsockopt(client, sockopt::Ip6tOriginalDst)?;
        let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
        SocketAddrV6::new(ip, u16::from_be(address.sin6_port), 0, 0).into()
    };
    // Who connects to the port itself would be sent round in a circle.
    if client.local_addr()? == found {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the connection wasn't redirected"));
    }
    Ok(found)
}

/// Accepts redirected connections until it is cancelled.
pub(super) async fn accept(server: Arc<Server>, listener: TcpListener) {
    loop {
        let Ok((client, peer)) = listener.accept().await else {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            continue;
        };
        // The limit that clients of the SOCKS port count towards as well.
        let Some(place) = server.place(&client, peer).await else { continue };
        let server = Arc::clone(&server);
        tokio::spawn(small(async move {
            if let Err(error) = serve(&server, client, peer).await {
                tracing::debug!(client = %peer, %error, "ended");
            }
            drop(place);
        }));
    }
}

async fn serve(server: &Server, client: TcpStream, peer: SocketAddr) -> io::Result<()> {
    let peer_and_class = Client::of(&client, peer);
    let target = Target::Address(original(&client, peer)?);
    let entry = match server.open(peer_and_class, target).await {
        Ok(entry) => entry,
        Err(error) => {
            // As if the destination had refused.
            crate::carry::reset(&client);
            return Err(error);
        }
    };
    let done = server.relay(client, Bytes::new(), &entry.flow).await;
    server.ended(&entry.flow, &done);
    done
}
