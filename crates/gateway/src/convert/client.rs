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

/// Asks, and waits for the answer.
async fn ask<S: AsyncRead + AsyncWrite + Unpin>(
    gateway: &mut S,
    what: Tlv,
    cookie: Option<&Cookie>,
) -> io::Result<()> {
    let shown = cookie.map(|cookie| Tlv::Cookie(cookie.bytes().to_vec()));
    let message = Message { tlvs: std::iter::once(what).chain(shown).collect() };
    gateway.write_all(&message.encode()).await?;
    let mut answer = vec![0; WORD];
    gateway.read_exact(&mut answer).await?;
    let len = Message::len_of(answer.first_chunk().copied().unwrap_or_default()).map_err(invalid)?;
    answer.resize(len, 0);
    gateway.read_exact(&mut answer[WORD..]).await?;
    let (message, _) = Message::parse(&answer).map_err(invalid)?.ok_or_else(|| invalid("it is cut off"))?;
    //= RFC 8803 6.2.8-a who asked drops the connection, which resets it
    match message
        .tlvs
        .iter()
        .find_map(|tlv| if let Tlv::Error { code, .. } = tlv { Some(*code) } else { None })
    {
        Some(code) => Err(refused(code)),
        None => Ok(()),
    }
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
    if !super::message::is_connectable(peer) {
        let message = format!("{peer} is no address that a gateway connects to");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    ask(gateway, Tlv::Connect { peer, options: None }, cookie).await
}

/// Asks for datagrams.
///
/// # Errors
/// As [`connect`].
pub async fn datagrams<S: AsyncRead + AsyncWrite + Unpin>(
    gateway: &mut S,
    cookie: Option<&Cookie>,
) -> io::Result<()> {
    ask(gateway, Tlv::Datagrams, cookie).await
}
