//! The gateway that connects to servers for the proxy (RFC 8803), where one is configured.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ropewalk_tokio::MptcpStream;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::keep_alive::Configured;
use crate::convert::{Cookie, client};
use crate::target::Target;
use crate::tls::{Connector, Secure};

/// Addresses, and for how long they hold, if that is known.
pub(super) type Found = (Vec<SocketAddr>, Option<Duration>);

/// What is known of a gateway.
#[derive(Debug, Default)]
struct Known {
    /// Its addresses, and until when they hold.
    addresses: Option<(Vec<SocketAddr>, Instant)>,
    /// It couldn't be reached the last time.
    failed: bool,
}

/// A gateway, and what it has to be shown. Clones know the same of it.
#[derive(Clone, Debug)]
pub struct Gateway {
    /// Its name or address, and its port.
    pub target: Target,
    known: Arc<Mutex<Known>>,
    /// What shows that this proxy may use it.
    pub cookie: Option<Cookie>,
    /// TLS with it.
    pub tls: Option<Connector>,
    /// How many connections to it are kept ready for clients, so that these needn't wait for handshakes.
    pub ready: usize,
    /// Clients are told that they are connected before the server has answered: their first data goes with
    /// the request. Where a server refuses, such a client is reset.
    pub early: bool,
}

/// Most connections that are kept ready.
pub const MOST_READY: u64 = 64;
/// Most bytes that are read at a time before the answer.
const PIECE: usize = 16 << 10;
/// Most of a client's data that goes to the gateway before its answer, bytes.
const EARLY_DATA: usize = 64 << 10;

/// How long the addresses of a gateway's name are used before they are looked up again, where their records
/// don't tell.
const UNKNOWN_AGE: Duration = Duration::from_secs(60);
/// The same where they do, at least (a TTL of 0 would have each connection wait) and at most.
const AGES: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(3600));

/// How long addresses are used whose records hold for so long.
fn held_for(age: Option<Duration>) -> Duration {
    age.map_or(UNKNOWN_AGE, |age| age.clamp(AGES.0, AGES.1))
}

/// Those that work first, else in the configuration's order.
pub(super) fn in_order(gateways: &[Gateway]) -> Vec<Gateway> {
    let mut all = gateways.to_vec();
    all.sort_by_key(Gateway::has_failed);
    all
}

/// What is asked of a gateway.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wish {
    Connection(SocketAddr),
    Datagrams,
    Tunnel,
}

/// Says of an error of TLS that it is one.
fn named(error: io::Error) -> io::Error {
    match error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) {
        true => io::Error::new(error.kind(), format!("TLS with the gateway: {error}")),
        false => error,
    }
}

/// A connection that is open.
#[derive(Debug)]
pub(super) struct Opened {
    pub stream: Arc<MptcpStream>,
    /// TLS with the gateway.
    pub secure: Option<Secure>,
    pub keep_alive: Configured,
}

impl Gateway {
    /// One of which nothing is known yet, but its name or address.
    pub fn new(target: Target) -> Gateway {
        Gateway { target, known: Arc::default(), cookie: None, tls: None, ready: 0, early: false }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it couldn't be reached the last time.
    pub fn has_failed(&self) -> bool {
        self.known().failed
    }

    /// Notes whether it could be reached. Where it can't, its name is soon looked up again.
    pub(super) fn note(&self, works: bool) {
        let mut known = self.known();
        known.failed = !works;
        if let Some((_, until)) = known.addresses.as_mut().filter(|_| !works) {
            *until = (*until).min(Instant::now() + AGES.0);
        }
    }

    /// Its first address, if it was looked up.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        match &self.target {
            Target::Address(address) => Some(*address),
            Target::Name(..) => self.known().addresses.as_ref()?.0.first().copied(),
        }
    }

    /// Its addresses, one at least, if they needn't be looked up.
    pub(super) fn known_addresses(&self) -> Option<Vec<SocketAddr>> {
        if let Target::Address(address) = self.target {
            return Some(vec![address]);
        }
        let known = self.known();
        known.addresses.as_ref().filter(|(_, until)| Instant::now() < *until).map(|(all, _)| all.clone())
    }

    /// Takes in what a look-up of its name has found, and for how long it holds. While that fails, the
    /// addresses that are known hold.
    pub(super) fn looked_up(&self, found: io::Result<Found>) -> io::Result<Vec<SocketAddr>> {
        let found = found.and_then(|found| match found.0[..] {
            [] => Err(io::ErrorKind::NotFound.into()),
            _ => Ok(found),
        });
        let mut known = self.known();
        let (addresses, age) = match (found, known.addresses.take()) {
            (Ok((addresses, age)), _) => (addresses, held_for(age)),
            // Not each connection is to wait for that.
            (Err(_), Some((addresses, _))) => (addresses, AGES.0),
            (Err(error), None) => return Err(error),
        };
        known.addresses = Some((addresses.clone(), Instant::now() + age));
        Ok(addresses)
    }

    /// What goes before the first request: TLS, if there is any.
    pub(super) async fn prepare(
        &self,
        stream: Arc<MptcpStream>,
        keep_alive: Configured,
    ) -> io::Result<Opened> {
        let Some(connector) = &self.tls else { return Ok(Opened { stream, secure: None, keep_alive }) };
        match connector.connect(Arc::clone(&stream)).await {
            Ok(secure) => Ok(Opened { stream, secure: Some(secure), keep_alive }),
            Err(error) => {
                stream.reset();
                Err(named(error))
            }
        }
    }

    /// Has the gateway do something; the stream is reset if it doesn't. For a connection with `early` it is
    /// only asked: see [`until_answered`].
    pub(super) async fn ask(&self, opened: &mut Opened, wish: Wish) -> io::Result<()> {
        // The gateway looks at the certificate after the handshake, so that its refusal comes here.
        let done = match &mut opened.secure {
            Some(secure) => self.ask_over(secure, wish).await.map_err(named),
            None => self.ask_over(&mut &*opened.stream, wish).await,
        };
        if done.is_err() {
            opened.stream.reset();
        }
        done
    }

    async fn ask_over<S: AsyncRead + AsyncWrite + Unpin>(&self, far: &mut S, wish: Wish) -> io::Result<()> {
        let cookie = self.cookie.as_ref();
        match wish {
            Wish::Connection(server) if self.early => {
                far.write_all(&client::connect_request(server, cookie)?).await?;
                far.flush().await
            }
            Wish::Connection(server) => client::connect(far, server, cookie).await,
            Wish::Datagrams => client::datagrams(far, cookie).await,
            Wish::Tunnel => client::tunnel(far, cookie).await,
        }
    }
}

/// Carries what a client sends until the gateway has answered that its server is there. `first` was read from
/// the client before.
pub(super) async fn until_answered<S: AsyncRead + AsyncWrite + Unpin>(
    far: &mut S,
    client: &mut TcpStream,
    first: Bytes,
    carried: &AtomicU64,
) -> io::Result<()> {
    let mut answer = client::Answer::default();
    let (mut data, mut sent, mut is_open) = (BytesMut::from(first), 0, true);
    loop {
        if !data.is_empty() {
            sent += data.len();
            carried.fetch_add(data.len() as u64, Ordering::Relaxed);
            far.write_all(&data.split()).await?;
            far.flush().await?;
        }
        data.reserve(PIECE);
        tokio::select! {
            done = answer.read(far) => return done,
            read = client.read_buf(&mut data), if is_open && sent < EARLY_DATA => is_open = read? > 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_age_within_bounds() {
        let seconds = Duration::from_secs;
        for (told, held) in [
            (None, 60),
            (Some(0), 5),
            (Some(30), 30),
            (Some(86_400), 3600),
            (Some(u64::from(u32::MAX)), 3600),
        ] {
            assert_eq!(held_for(told.map(seconds)), seconds(held), "{told:?}");
        }
        let gateway = Gateway::new(Target::new("gateway.example", 443));
        let address = "192.0.2.1:443".parse().unwrap();
        gateway.known().addresses = Some((vec![address], Instant::now() + seconds(3600)));
        gateway.note(true);
        assert!(gateway.known().addresses.as_ref().unwrap().1 > Instant::now() + seconds(3000));
        // It may have moved.
        gateway.note(false);
        assert!(gateway.known().addresses.as_ref().unwrap().1 < Instant::now() + seconds(6));
    }
}
