//! The proxy's side: SOCKS5's UDP ASSOCIATE (RFC 1928, section 7).
//!
//! Fragments are dropped, as the RFC allows: a datagram is one or none.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use fast_socks5::util::target_addr::TargetAddr;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::Instant;

use super::frame::{Frames, encode};
use crate::carry::Carried;
use crate::target::Target;

/// How long the address of a name is kept.
const KEPT: Duration = Duration::from_secs(60);
/// Most names that are kept.
const MOST_NAMES: usize = 64;

/// Names that were looked up.
#[derive(Debug, Default)]
struct Names(BTreeMap<(String, u16), (Instant, SocketAddr)>);

impl Names {
    async fn resolve(&mut self, target: TargetAddr) -> io::Result<SocketAddr> {
        let (name, port) = match target {
            TargetAddr::Ip(address) => return Ok(address),
            TargetAddr::Domain(name, port) => (name, port),
        };
        let key = (name, port);
        if let Some((_, address)) = self.0.get(&key).filter(|(since, _)| since.elapsed() < KEPT) {
            return Ok(*address);
        }
        let found = Target::new(&key.0, port).resolve().await?;
        let address = *found.first().ok_or(io::ErrorKind::NotFound)?;
        if self.0.len() >= MOST_NAMES {
            self.0.clear();
        }
        self.0.insert(key, (Instant::now(), address));
        Ok(address)
    }
}

/// A client's datagram: where to, and its data.
async fn parse(datagram: &[u8]) -> Result<(TargetAddr, &[u8]), String> {
    let parsed = fast_socks5::parse_udp_request(datagram).await;
    match parsed.map_err(|error| error.to_string())? {
        (0, target, data) => Ok((target, data)),
        (fragment, ..) => Err(format!("fragment {fragment} of a datagram: fragments aren't put together")),
    }
}

/// An association: its socket, and who may use it.
#[derive(Debug)]
pub struct Association {
    /// Where the client sends datagrams.
    pub socket: UdpSocket,
    /// The client's address; datagrams of others are dropped.
    pub client: IpAddr,
    /// The port that the client said it sends from; 0: that of its first datagram.
    pub port: u16,
}

impl Association {
    /// Carries datagrams until the client closes the connection by which it asked, or the stream to the
    /// gateway is lost.
    ///
    /// # Errors
    /// If the stream is lost.
    pub async fn carry<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &self,
        control: &mut TcpStream,
        reader: R,
        mut writer: W,
        carried: Carried<'_>,
    ) -> io::Result<()> {
        let port = AtomicU16::new(self.port);
        let upward = async {
            let mut buffer = vec![0; 1 << 16];
            let mut names = Names::default();
            loop {
                let Ok((len, from)) = self.socket.recv_from(&mut buffer).await else { continue };
                let expected = port.load(Ordering::Relaxed);
                let is_client = from.ip().to_canonical() == self.client.to_canonical();
                if !is_client || ![0, from.port()].contains(&expected) {
                    tracing::debug!(%from, "a datagram that isn't the client's");
                    continue;
                }
                port.store(from.port(), Ordering::Relaxed);
                let (target, data) = match parse(&buffer[..len]).await {
                    Ok(parsed) => parsed,
                    Err(reason) => {
                        tracing::debug!(%from, reason, "a datagram is dropped");
                        continue;
                    }
                };
                let Ok(peer) = names.resolve(target).await else { continue };
                let Some(frame) = encode(peer, data) else { continue };
                writer.write_all(&frame).await?;
                carried.to_stream.fetch_add(data.len() as u64, Ordering::Relaxed);
            }
        };
        let downward = async {
            let mut frames = Frames::new(reader);
            while let Some((peer, data)) = frames.next().await? {
                let to = SocketAddr::new(self.client, port.load(Ordering::Relaxed));
                let Ok(mut datagram) = fast_socks5::new_udp_header(peer) else { continue };
                datagram.extend_from_slice(&data);
                // What doesn't fit a datagram with its header is dropped.
                if self.socket.send_to(&datagram, to).await.is_ok() {
                    carried.from_stream.fetch_add(data.len() as u64, Ordering::Relaxed);
                }
            }
            Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the gateway has closed the association"))
        };
        let closed = async {
            let mut ignored = [0; 64];
            while control.read(&mut ignored).await.is_ok_and(|len| len > 0) {}
        };
        tokio::select! {
            lost = upward => lost,
            lost = downward => lost,
            () = closed => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use fast_socks5::util::target_addr::TargetAddr;

    use super::parse;

    #[tokio::test]
    async fn datagrams_of_clients_are_parsed() {
        let (target, data) = parse(&[0, 0, 0, 1, 192, 0, 2, 1, 0, 53, b'h', b'i']).await.unwrap();
        assert!(matches!(target, TargetAddr::Ip(address) if address.to_string() == "192.0.2.1:53"));
        assert_eq!(data, b"hi");
        for (datagram, expected) in [
            (&[0, 0, 1, 1, 192, 0, 2, 1, 0, 53, b'h'][..], "fragment 1"),
            (&[0, 0, 0x81, 1, 192, 0, 2, 1, 0, 53], "fragment 129"),
            (&[0, 1, 0, 1, 192, 0, 2, 1, 0, 53], ""),
            (&[0, 0, 0, 9, 192, 0, 2, 1, 0, 53], ""),
            (&[0, 0, 0, 1, 192, 0, 2, 1, 0], ""),
            (&[0, 0, 0, 3, 20, b'a'], ""),
            (&[], ""),
        ] {
            let refused = parse(datagram).await.unwrap_err();
            assert!(refused.contains(expected), "{datagram:?}: {refused}");
        }
    }
}
