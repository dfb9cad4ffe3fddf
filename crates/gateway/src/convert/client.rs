//! The proxy's side: asks a gateway for a connection to a server.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::Cookie;
use super::message::{Message, Tlv, WORD, code};

/// What is wrong with a gateway's answer.
fn invalid(what: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the gateway's answer: {what}"))
}

/// An Error TLV as an error.
fn refused(code: u8) -> io::Error {
    let kind = match code {
        code::NOT_AUTHORIZED | code::MISSING_COOKIE => io::ErrorKind::PermissionDenied,
        code::CONNECTION_RESET => io::ErrorKind::ConnectionRefused,
        code::DESTINATION_UNREACHABLE => io::ErrorKind::HostUnreachable,
        code::RESOURCE_EXCEEDED => io::ErrorKind::QuotaExceeded,
        code::NETWORK_FAILURE => io::ErrorKind::NetworkUnreachable,
        _ => io::ErrorKind::Unsupported,
    };
    io::Error::new(kind, format!("the gateway says: {}", code::name(code)))
}

/// A request as bytes.
fn request(what: Tlv, cookie: Option<&Cookie>) -> Vec<u8> {
    let shown = cookie.map(|cookie| Tlv::Cookie(cookie.bytes().to_vec()));
    Message { tlvs: std::iter::once(what).chain(shown).collect() }.encode()
}

/// The request for a connection to a server.
///
/// # Errors
/// If no gateway connects there.
pub fn connect_request(peer: SocketAddr, cookie: Option<&Cookie>) -> io::Result<Vec<u8>> {
    if !super::message::is_connectable(peer) {
        let message = format!("{peer} is no address that a gateway connects to");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    Ok(request(Tlv::Connect { peer, options: None }, cookie))
}

/// A gateway's answer, as much of it as was read.
#[derive(Debug, Default)]
pub struct Answer {
    buffer: Vec<u8>,
    have: usize,
}

impl Answer {
    /// Reads the answer, and nothing of what follows it. Who stops waiting can go on with the same value.
    ///
    /// # Errors
    /// What the gateway answered, or the loss of the connection to it.
    pub async fn read<S: AsyncRead + Unpin>(&mut self, gateway: &mut S) -> io::Result<()> {
        loop {
            let header = self.buffer[..self.have].first_chunk::<WORD>();
            let len = header.map(|header| Message::len_of(*header).map_err(invalid)).transpose()?;
            if len == Some(self.have) {
                return self.verdict();
            }
            self.buffer.resize(len.unwrap_or(WORD), 0);
            let len = gateway.read(&mut self.buffer[self.have..]).await?;
            if len == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.have += len;
        }
    }

    fn verdict(&self) -> io::Result<()> {
        let (message, _) =
            Message::parse(&self.buffer).map_err(invalid)?.ok_or_else(|| invalid("it is cut off"))?;
        //= RFC 8803 6.2.8-a who asked drops the connection, which resets it
        let code = message.tlvs.iter().find_map(|tlv| match tlv {
            Tlv::Error { code, .. } => Some(*code),
            _ => None,
        });
        code.map_or(Ok(()), |code| Err(refused(code)))
    }
}

/// Asks, and waits for the answer.
async fn ask<S: AsyncRead + AsyncWrite + Unpin>(gateway: &mut S, request: &[u8]) -> io::Result<()> {
    gateway.write_all(request).await?;
    gateway.flush().await?;
    Answer::default().read(gateway).await
}

/// Asks for a connection to a server. What is read from then on is the server's.
///
/// # Errors
/// What the gateway answered, or the loss of the connection to it.
pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
    gateway: &mut S,
    peer: SocketAddr,
    cookie: Option<&Cookie>,
) -> io::Result<()> {
    ask(gateway, &connect_request(peer, cookie)?).await
}

/// Asks for datagrams.
///
/// # Errors
/// As [`connect`].
pub async fn datagrams<S: AsyncRead + AsyncWrite + Unpin>(
    gateway: &mut S,
    cookie: Option<&Cookie>,
) -> io::Result<()> {
    ask(gateway, &request(Tlv::Datagrams, cookie)).await
}

/// Asks for a tunnel.
///
/// # Errors
/// As [`connect`].
pub async fn tunnel<S: AsyncRead + AsyncWrite + Unpin>(
    gateway: &mut S,
    cookie: Option<&Cookie>,
) -> io::Result<()> {
    ask(gateway, &request(Tlv::Tunnel, cookie)).await
}
