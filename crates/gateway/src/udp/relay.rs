//! The gateway's side: sends a client's datagrams to servers in its list, and their answers back.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::time::Instant;

use super::frame::{Frames, encode};
use crate::carry::Carried;
use crate::convert::Current;

/// How long a server may answer after the last datagram to it (RFC 4787, REQ-5: two minutes at least).
pub const ANSWERS: Duration = Duration::from_secs(120);
/// Most servers of an association at a time; beyond, the one that was silent longest is forgotten.
pub const MOST_PEERS: usize = 1024;

/// Those that may answer, or be answered, and when something was last sent to each, or came from it.
#[derive(Debug, Default)]
pub(crate) struct Peers(BTreeMap<SocketAddr, Instant>);

impl Peers {
    pub fn sent(&mut self, peer: SocketAddr, now: Instant) {
        if self.0.len() >= MOST_PEERS && !self.0.contains_key(&peer) {
            let oldest = self.0.iter().min_by_key(|(_, since)| **since).map(|(peer, _)| *peer);
            oldest.map(|peer| self.0.remove(&peer));
        }
        self.0.insert(peer, now);
    }

    pub fn may_answer(&self, peer: SocketAddr, now: Instant) -> bool {
        self.0.get(&peer).is_some_and(|since| now.duration_since(*since) < ANSWERS)
    }

    /// Whether one of an address may.
    pub fn has_address(&self, address: IpAddr, now: Instant) -> bool {
        let all = SocketAddr::new(address, 0)..=SocketAddr::new(address, u16::MAX);
        self.0.range(all).any(|(_, since)| now.duration_since(*since) < ANSWERS)
    }
}

fn bind(v6: bool) -> io::Result<UdpSocket> {
    let (domain, any): (_, IpAddr) = match v6 {
        false => (Domain::IPV4, Ipv4Addr::UNSPECIFIED.into()),
        true => (Domain::IPV6, Ipv6Addr::UNSPECIFIED.into()),
    };
    let socket = Socket::new(domain, Type::DGRAM, None)?;
    if v6 {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::new(any, 0).into())?;
    UdpSocket::from_std(socket.into())
}

/// Carries datagrams until the client closes its side. What can't be sent is dropped, as on the way.
///
/// # Errors
/// If the stream is lost, has something that is no frame, or there are no sockets.
pub async fn relay<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    reader: R,
    mut writer: W,
    destinations: &Current,
    own: &[IpAddr],
    carried: Carried<'_>,
) -> io::Result<()> {
    // A host may have no IPv6.
    let (v4, v6) = (bind(false)?, bind(true).ok());
    let peers = Mutex::new(Peers::default());
    let lock = || peers.lock().unwrap_or_else(PoisonError::into_inner);
    let upward = async {
        let mut frames = Frames::new(reader);
        while let Some((peer, data)) = frames.next().await? {
            if !destinations.get().allow(peer, own) {
                tracing::debug!(target: "ropewalk::gateway", %peer, "a datagram to a destination that isn't \
                    in the list");
                continue;
            }
            let Some(socket) = (if peer.is_ipv6() { v6.as_ref() } else { Some(&v4) }) else { continue };
            lock().sent(peer, Instant::now());
            if socket.send_to(&data, peer).await.is_ok() {
                carried.from_stream.fetch_add(data.len() as u64, Ordering::Relaxed);
            }
        }
        Ok(())
    };
    let downward = async {
        let (mut one, mut other) = (vec![0; 1 << 16], vec![0; 1 << 16]);
        loop {
            let from_v6 = async {
                match &v6 {
                    Some(v6) => v6.recv_from(&mut other).await,
                    None => std::future::pending().await,
                }
            };
            let (received, is_v6) = tokio::select! {
                received = v4.recv_from(&mut one) => (received, false),
                received = from_v6 => (received, true),
            };
            // An error is that of an earlier datagram.
            let Ok((len, peer)) = received else { continue };
            if !lock().may_answer(peer, Instant::now()) {
                continue;
            }
            let data = if is_v6 { &other[..len] } else { &one[..len] };
            if let Some(frame) = encode(peer, data) {
                writer.write_all(&frame).await?;
                carried.to_stream.fetch_add(len as u64, Ordering::Relaxed);
            }
        }
    };
    tokio::select! {
        done = upward => done,
        lost = downward => lost,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::convert::Destinations;

    fn list(entries: &[&str]) -> Current {
        Destinations(entries.iter().map(|one| one.parse().unwrap()).collect()).into()
    }

    #[test]
    fn servers_may_answer_for_two_minutes() {
        let (mut peers, start) = (Peers::default(), Instant::now());
        let peer = |at: usize| SocketAddr::from(([10, 0, (at >> 8) as u8, at as u8], 53));
        for at in 0..=MOST_PEERS {
            peers.sent(peer(at), start + Duration::from_millis(at as u64));
        }
        let later = start + Duration::from_secs(2);
        assert_eq!(peers.0.len(), MOST_PEERS);
        assert!(!peers.may_answer(peer(0), later) && peers.may_answer(peer(1), later));
        assert!(!peers.may_answer(peer(1), start + ANSWERS + Duration::from_secs(2)));
        assert!(!peers.may_answer(SocketAddr::from(([10, 0, 0, 1], 54)), later));
    }

    #[tokio::test]
    async fn datagrams_go_to_the_list_and_only_its_servers_answer() {
        // Loopback is never allowed: an address of this host's that is, where there is one.
        let own = nix::ifaddrs::getifaddrs().unwrap().find_map(|one| {
            let v4 = one.address?.as_sockaddr_in()?.ip();
            (!v4.is_loopback()).then_some(IpAddr::from(v4))
        });
        let Some(own) = own else { return println!("no address but loopback: nothing is tested") };
        let server = UdpSocket::bind((own, 0)).await.unwrap();
        let other = UdpSocket::bind((own, 0)).await.unwrap();
        let peer = server.local_addr().unwrap();
        let (near, far) = tokio::io::duplex(1 << 20);
        let (up, down) = (AtomicU64::new(0), AtomicU64::new(0));
        let carried = Carried { from_stream: &up, to_stream: &down };
        let allowed = list(&[&format!("{own} {}", peer.port())]);
        let (reader, writer) = tokio::io::split(far);
        let all_own = [own];
        let relaying = relay(reader, writer, &allowed, &all_own, carried);
        let client = async {
            let (reader, mut writer) = tokio::io::split(near);
            let mut frames = Frames::new(reader);
            writer.write_all(&encode(other.local_addr().unwrap(), b"not listed").unwrap()).await.unwrap();
            writer.write_all(&encode(peer, b"question").unwrap()).await.unwrap();
            let mut buffer = [0; 100];
            let (len, gateway) = server.recv_from(&mut buffer).await.unwrap();
            assert_eq!(&buffer[..len], b"question");
            // Frames are in order: what wasn't listed came first, and isn't there.
            assert!(other.try_recv_from(&mut buffer).is_err());
            other.send_to(b"unasked", (own, gateway.port())).await.unwrap();
            server.send_to(b"answer", (own, gateway.port())).await.unwrap();
            let (from, data) = frames.next().await.unwrap().unwrap();
            assert_eq!((from, &data[..]), (peer, &b"answer"[..]));
            writer.shutdown().await.unwrap();
        };
        let (done, ()) = tokio::join!(relaying, client);
        done.unwrap();
        assert_eq!((up.into_inner(), down.into_inner()), (8, 6));
    }
}
