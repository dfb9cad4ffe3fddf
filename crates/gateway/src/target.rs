//! Where a client wants to go.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};

/// How long looking a name up may take.
const LOOKUP: Duration = Duration::from_secs(5);

/// A destination, as the client gave it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// An address.
    Address(SocketAddr),
    /// A name, which the proxy looks up with the system's resolver.
    Name(String, u16),
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Address(address) => address.fmt(f),
            Target::Name(name, port) => write!(f, "{name}:{port}"),
        }
    }
}

/// Not a host and a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected an address or a name, and a port: `192.0.2.1:443`, `gateway.example.org:443`")]
pub struct TargetError;

impl std::str::FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Target, TargetError> {
        let text = text.trim();
        let is_name = |host: &str| {
            let fits = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
            // A mistaken IPv4 address isn't looked up.
            !host.is_empty() && host.chars().all(fits) && !host.ends_with(|c: char| c.is_ascii_digit())
        };
        let target = match (text.parse::<SocketAddr>(), text.rsplit_once(':')) {
            (Ok(address), _) => Target::Address(address),
            (_, Some((host, port))) if is_name(host) => {
                Target::Name(host.to_string(), port.parse().map_err(|_| TargetError)?)
            }
            _ => return Err(TargetError),
        };
        if target.port() == 0 { Err(TargetError) } else { Ok(target) }
    }
}

impl Target {
    /// From a host, which may be an address, and a port.
    pub fn new(host: &str, port: u16) -> Target {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        match bare.parse::<IpAddr>() {
            Ok(address) => Target::Address(SocketAddr::new(address, port)),
            Err(_) => Target::Name(host.to_string(), port),
        }
    }

    /// The port.
    pub fn port(&self) -> u16 {
        match self {
            Target::Address(address) => address.port(),
            Target::Name(_, port) => *port,
        }
    }

    /// Connects by TCP, to the first of its addresses that answers.
    pub async fn connect(&self) -> io::Result<TcpStream> {
        let mut failed = io::Error::from(io::ErrorKind::NotFound);
        for address in self.resolve().await? {
            match connect(address, address.ip().is_loopback()).await {
                Ok(socket) => return Ok(socket),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Its addresses, the families in turn (RFC 8305 4), without doubles.
    pub async fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let (name, port) = match self {
            Target::Address(address) => return Ok(vec![*address]),
            Target::Name(name, port) => (name.as_str(), *port),
        };
        let found =
            tokio::time::timeout(LOOKUP, tokio::net::lookup_host((name, port))).await.map_err(|_| {
                io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("no resolver answered for `{name}` within {LOOKUP:?}"),
                )
            })?;
        let found: Vec<SocketAddr> = found
            .map_err(|error| {
                io::Error::new(io::ErrorKind::NotFound, format!("looking up `{name}`: {error}"))
            })?
            .collect();
        if found.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("`{name}` has no address")));
        }
        Ok(interleave(&found))
    }
}

/// The segments of a server on this host. Over loopback they would have 64 KB, and Linux sizes send buffers
/// by segments: a connection whose client reads nothing then takes 2.6 MB of the kernel's memory. Where that
/// is short everybody waits.
const LOCAL_SEGMENT: u32 = 1460;

/// Connects by TCP. `is_here`: to a server on this host.
pub(crate) async fn connect(address: SocketAddr, is_here: bool) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    if is_here {
        socket2::SockRef::from(&socket).set_tcp_mss(LOCAL_SEGMENT)?;
    }
    socket.connect(address).await
}

/// The families in turn, beginning with the first address's.
fn interleave(found: &[SocketAddr]) -> Vec<SocketAddr> {
    let first = found.first().is_some_and(SocketAddr::is_ipv6);
    let (mut own, mut other): (Vec<SocketAddr>, Vec<SocketAddr>) =
        found.iter().partition(|address| address.is_ipv6() == first);
    own.dedup();
    other.dedup();
    let mut turns = Vec::new();
    for at in 0..own.len().max(other.len()) {
        turns.extend(own.get(at));
        turns.extend(other.get(at));
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::{Target, interleave};

    /// The kernel's memory for a connection whose client reads nothing: what a server can write into it.
    #[tokio::test]
    async fn a_server_on_this_host_can_write_little_that_nobody_reads() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = Target::Address(listener.local_addr().unwrap());
        let _client = target.connect().await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        let mut written = 0;
        while server.writable().await.is_ok()
            && let Ok(len) = server.try_write(&[7; 4096])
        {
            written += len;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        while let Ok(len) = server.try_write(&[7; 4096]) {
            written += len;
        }
        assert!(written < 1 << 20, "{written} bytes");
    }

    #[test]
    fn hosts_are_addresses_or_names() {
        assert_eq!(Target::new("192.0.2.1", 80), Target::Address("192.0.2.1:80".parse().unwrap()));
        assert_eq!(Target::new("[2001:db8::1]", 80), Target::Address("[2001:db8::1]:80".parse().unwrap()));
        assert_eq!(Target::new("example.org", 443).to_string(), "example.org:443");
    }

    #[test]
    fn targets_are_read_as_they_are_written() {
        for (text, target) in [
            ("192.0.2.1:80", Target::new("192.0.2.1", 80)),
            ("[2001:db8::1]:80", Target::new("2001:db8::1", 80)),
            (" one.example.org:443 ", Target::new("one.example.org", 443)),
        ] {
            assert_eq!(text.parse(), Ok(target));
        }
        for text in
            ["192.0.2.1", "one.example.org", "a:0", "a:70000", ":80", "192.0.2:80", "a b:80", "a/b:80", ""]
        {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }

    #[test]
    fn families_take_turns() {
        let address = |text: &str| text.parse().unwrap();
        let (a, b, c) = (address("[2001:db8::1]:80"), address("[2001:db8::2]:80"), address("192.0.2.1:80"));
        assert_eq!(interleave(&[a, a, b, c]), [a, c, b]);
        assert_eq!(interleave(&[c]), [c]);
    }
}
