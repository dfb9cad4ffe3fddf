//! A client of the proxy.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;

/// How long a client may take to say what it wants.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(10);

/// Who connects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Client {
    /// Its address.
    pub address: SocketAddr,
    /// The Diffserv code point that it sends, as its first segments had it.
    pub dscp: u8,
}

impl Client {
    /// Nobody yet.
    pub(super) fn nobody() -> Client {
        Client { address: SocketAddr::from(([0, 0, 0, 0], 0)), dscp: 0 }
    }

    /// The peer of an accepted connection.
    pub(super) fn of(socket: &TcpStream, address: SocketAddr) -> Client {
        use std::os::fd::AsFd;
        let local_is_v6 = socket.local_addr().is_ok_and(|local| local.is_ipv6());
        let dscp = ropewalk_os::dscp::received(socket.as_fd(), local_is_v6).unwrap_or(0);
        Client { address, dscp }
    }
}

impl std::fmt::Display for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.address.fmt(f)
    }
}
