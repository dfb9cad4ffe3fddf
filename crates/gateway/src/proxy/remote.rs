//! The gateway that connects to servers for the proxy (RFC 8803), where one is configured.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use ropewalk_tokio::MptcpStream;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::convert::{Cookie, client};
use crate::tls::{Connector, Secure};

/// A gateway, and what it has to be shown.
#[derive(Clone, Debug)]
pub struct Gateway {
    /// Its address and port.
    pub address: SocketAddr,
    /// What shows that this proxy may use it.
    pub cookie: Option<Cookie>,
    /// TLS with it.
    pub tls: Option<Connector>,
    /// How many connections to it are kept ready for clients, so that these needn't wait for handshakes.
    pub ready: usize,
    /// Clients are told that they are connected before the server has answered: their first data goes with the request. Where a server
    /// refuses, such a client is reset.
    pub early: bool,
}

/// Most connections that are kept ready.
pub const MOST_READY: u64 = 64;
/// Most bytes that are read at a time before the answer.
const PIECE: usize = 16 << 10;
/// Most of a client's data that goes to the gateway before its answer, bytes.
const EARLY_DATA: usize = 64 << 10;

/// What is asked of a gateway.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wish {
    Connection(SocketAddr),
    Datagrams,
}

/// Says of an error of TLS that it is one.
fn named(error: io::Error) -> io::Error {
    match error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) {
        true => io::Error::new(error.kind(), format!("TLS with the gateway: {error}")),
        false => error,
    }
}

/// A connection to a gateway, and TLS on it.
pub(super) type Opened = (Arc<MptcpStream>, Option<Secure>);

impl Gateway {
    /// What goes before the first request: TLS, if there is any.
    pub(super) async fn prepare(&self, stream: Arc<MptcpStream>) -> io::Result<Opened> {
        let Some(connector) = &self.tls else { return Ok((stream, None)) };
        match connector.connect(Arc::clone(&stream)).await {
            Ok(secure) => Ok((stream, Some(secure))),
            Err(error) => {
                stream.reset();
                Err(named(error))
            }
        }
    }

    /// Has the gateway do something; the stream is reset if it doesn't. For a connection with `early` it is only asked: see
    /// [`until_answered`].
    pub(super) async fn ask(&self, opened: &mut Opened, wish: Wish) -> io::Result<()> {
        // The gateway looks at the certificate after the handshake, so that its refusal comes here.
        let done = match opened {
            (_, Some(secure)) => self.ask_over(secure, wish).await.map_err(named),
            (stream, None) => self.ask_over(&mut &**stream, wish).await,
        };
        if done.is_err() {
            opened.0.reset();
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
        }
    }
}

/// Carries what a client sends until the gateway has answered that its server is there. `first` was read from the client before.
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
