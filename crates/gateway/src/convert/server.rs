//! The gateway's side: reads a client's message, connects to the server, answers.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout};

use super::message::{LARGEST, Message, ParseError, TcpOption, Tlv, WORD, code};
use super::{Cookie, Destinations};
use crate::tls::Acceptor;

//= RFC 8803 9.3-a
/// How long a client may take to say what it wants, once it has begun, and for TLS.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long it may say nothing: proxies keep connections ready.
const READY: Duration = Duration::from_secs(60);
/// How long a client may take to close after an error.
const CLOSING: Duration = Duration::from_secs(5);
/// Most error messages in a second; beyond, connections are closed without one.
const ERRORS_PER_SECOND: f64 = 100.0;
/// The TCP option for which there is a conversion service: Multipath TCP.
const MULTIPATH: u8 = 30;
/// Options that a converter ignores in a request (sections 7.1 to 7.3): end of list, no-operation, MSS,
/// window scale, SACK.
const IGNORED: [u8; 5] = [0, 1, 2, 3, 5];

/// A listener's settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Converter {
    /// Where it may connect.
    pub destinations: Destinations,
    /// Where it may send datagrams; nowhere if it is empty.
    pub datagrams: Destinations,
    /// What clients have to show.
    pub cookie: Option<Cookie>,
    /// TLS with proxies that are known; then they need no cookie.
    pub tls: Option<Acceptor>,
    /// How long connecting to a server may take.
    pub connect_timeout: Duration,
}

/// What a client has got.
#[derive(Debug)]
pub enum Granted {
    /// A connection to a server. The client has been told.
    Connected(TcpStream, SocketAddr),
    /// Datagrams. The client has been told.
    Datagrams,
    /// A tunnel. The client has been told.
    Tunnel,
}

/// Why a client has got nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The client's connection was lost, or it fell silent.
    #[error("{0}")]
    Lost(#[from] io::Error),
    /// The client sent no message that can be understood.
    #[error("{0}")]
    Message(#[from] ParseError),
    /// It has shown no cookie, or a wrong one.
    #[error("the client has shown {0}")]
    Cookie(&'static str),
    /// The destination isn't in the list.
    #[error("{0} isn't in the list of destinations")]
    Destination(SocketAddr),
    /// It asks for datagrams, and there is no list for them.
    #[error("the client asks for datagrams, and this listener has none")]
    NoDatagrams,
    /// It asks for TCP options that can't be set.
    #[error("TCP options of kind {0:?} can't be used with the conversion service")]
    Options(Vec<u8>),
    /// It asks for nothing that a client asks for.
    #[error("the client asks neither for a connection nor for information")]
    Nothing,
    /// It has asked what is supported, and was told.
    #[error("the client asked which TCP options are supported")]
    Info,
    /// The server can't be reached.
    #[error("{0}: {1}")]
    Server(SocketAddr, io::Error),
}

impl Refusal {
    /// What the client is told. `received`: its message.
    fn answer(&self, received: &[u8]) -> Option<Message> {
        let error = |code, value: &[u8]| Some(Message::error(code, value.to_vec()));
        match self {
            Refusal::Lost(_) => None,
            //= RFC 8803 6.2.4-a 7.5-a
            Refusal::Info => Some(Message { tlvs: vec![Tlv::SupportedExtensions(vec![MULTIPATH])] }),
            Refusal::Message(wrong) => Some(wrong.answer(received)),
            Refusal::Nothing => Some(ParseError::Unknown(0).answer(received)),
            //= RFC 8803 6.2.8-e
            Refusal::Cookie(_) | Refusal::Destination(_) | Refusal::NoDatagrams => {
                error(code::NOT_AUTHORIZED, &[0])
            }
            //= RFC 8803 6.2.8-f
            Refusal::Options(kinds) => error(code::UNSUPPORTED_TCP_OPTION, kinds),
            Refusal::Server(_, reason) => {
                use io::ErrorKind::{
                    ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable, TimedOut,
                };
                match reason.kind() {
                    //= RFC 8803 6.2.8-i
                    ConnectionRefused | ConnectionReset => error(code::CONNECTION_RESET, &[0]),
                    //= RFC 8803 6.2.8-j
                    NetworkUnreachable => error(code::DESTINATION_UNREACHABLE, &[0]),
                    HostUnreachable | TimedOut => error(code::DESTINATION_UNREACHABLE, &[1]),
                    //= RFC 8803 6.2.8-g
                    _ if is_exhausted(reason) => error(code::RESOURCE_EXCEEDED, &[0]),
                    //= RFC 8803 6.2.8-h
                    _ => error(code::NETWORK_FAILURE, &[0]),
                }
            }
        }
    }
}

/// Out of descriptors, ports or memory.
fn is_exhausted(error: &io::Error) -> bool {
    use nix::libc::{EADDRNOTAVAIL, EMFILE, ENFILE, ENOBUFS, ENOMEM};
    error.raw_os_error().is_some_and(|raw| [EADDRNOTAVAIL, EMFILE, ENFILE, ENOBUFS, ENOMEM].contains(&raw))
}

/// Limits error messages in number.
//= RFC 8803 6.2.5-g
#[derive(Debug)]
pub struct ErrorBudget(Mutex<(Instant, f64)>);

impl Default for ErrorBudget {
    fn default() -> ErrorBudget {
        ErrorBudget(Mutex::new((Instant::now(), ERRORS_PER_SECOND)))
    }
}

impl ErrorBudget {
    fn take(&self) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let earned = state.0.elapsed().as_secs_f64() * ERRORS_PER_SECOND;
        *state = (Instant::now(), (state.1 + earned).min(ERRORS_PER_SECOND));
        let is_left = state.1 >= 1.0;
        state.1 -= f64::from(u8::from(is_left));
        is_left
    }
}

/// Reads a message after its first byte, which is in `received`, and nothing that follows it. What was read
/// is kept there.
async fn read(client: &mut (impl AsyncRead + Unpin), received: &mut Vec<u8>) -> Result<Message, Refusal> {
    received.resize(WORD, 0);
    client.read_exact(&mut received[1..]).await?;
    let header = received.first_chunk().copied().unwrap_or_default();
    let len = Message::len_of(header)?;
    debug_assert!(len <= LARGEST, "a byte counts the words");
    received.resize(len, 0);
    client.read_exact(&mut received[WORD..]).await?;
    let (message, _) = Message::parse(received)?.ok_or(ParseError::Length)?;
    Ok(message)
}

/// What a message asks for.
enum Asked {
    Connect(SocketAddr, Option<Vec<TcpOption>>),
    Datagrams,
    Tunnel,
}

impl Converter {
    //= RFC 8803 9.2-a
    /// What a client asks for, if it may. The cookie comes first: who hasn't got one learns nothing.
    fn check(&self, message: Message, own: &[IpAddr]) -> Result<Asked, Refusal> {
        let shown = message.tlvs.iter().find_map(|tlv| match tlv {
            Tlv::Cookie(shown) => Some(shown),
            _ => None,
        });
        match (&self.cookie, shown) {
            (None, _) if self.tls.is_some() => {}
            //= RFC 8803 6.2.7-b a missing one isn't made and given away: it says who may use the converter
            (_, None) => return Err(Refusal::Cookie("no cookie")),
            //= RFC 8803 6.2.7-c
            (Some(cookie), Some(shown)) if cookie.is(shown) => {}
            (_, Some(_)) => return Err(Refusal::Cookie("a wrong cookie")),
        }
        let mut asked = Err(Refusal::Nothing);
        for tlv in message.tlvs {
            match tlv {
                Tlv::Connect { peer, options } => {
                    asked = Ok(Asked::Connect(peer, options));
                    break;
                }
                Tlv::Datagrams | Tlv::Tunnel if self.datagrams.is_empty() => {
                    return Err(Refusal::NoDatagrams);
                }
                Tlv::Tunnel if self.tls.is_none() => return Err(Refusal::NoDatagrams),
                Tlv::Datagrams => asked = Ok(Asked::Datagrams),
                Tlv::Tunnel => asked = Ok(Asked::Tunnel),
                //= RFC 8803 6.2.4-b
                Tlv::Info => asked = Err(Refusal::Info),
                _ => {}
            }
        }
        if let Ok(Asked::Connect(peer, options)) = &asked {
            if !self.destinations.allow(*peer, own) {
                return Err(Refusal::Destination(*peer));
            }
            //= RFC 8803 7.1-a 7.2-a 7.3-a 7.7-a 6.2.5-d
            let is_known = |option: &&TcpOption| {
                IGNORED.contains(&option.kind) || (option.kind == MULTIPATH && option.value.is_empty())
            };
            let unknown = options.iter().flatten().filter(|option| !is_known(option));
            let unknown: Vec<u8> = unknown.map(|option| option.kind).collect();
            if !unknown.is_empty() {
                return Err(Refusal::Options(unknown));
            }
        }
        asked
    }

    /// Reads a client's message, does what it asks for, and tells it so. `own`: this host's addresses.
    ///
    /// # Errors
    /// Why not; the client has been told.
    pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        client: &mut S,
        own: &[IpAddr],
        errors: &ErrorBudget,
    ) -> Result<Granted, Refusal> {
        let mut received = Vec::new();
        let done = self.grant(client, own, &mut received).await;
        if let Err(refusal) = &done
            && let Some(answer) = refusal.answer(&received)
            && errors.take()
        {
            //= RFC 8803 6.2.2-b the client resets; a reset of ours could overtake the message
            let _ = timeout(CLOSING, async {
                client.write_all(&answer.encode()).await?;
                client.shutdown().await?;
                tokio::io::copy(client, &mut tokio::io::sink()).await
            })
            .await;
        }
        done
    }

    async fn grant<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        client: &mut S,
        own: &[IpAddr],
        received: &mut Vec<u8>,
    ) -> Result<Granted, Refusal> {
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the client sent no whole message");
        received.push(0);
        timeout(READY, client.read_exact(received)).await.map_err(late)??;
        let message = timeout(HANDSHAKE, read(client, received)).await.map_err(late)??;
        let (granted, answer) = match self.check(message, own)? {
            Asked::Datagrams => (Granted::Datagrams, Message::default()),
            Asked::Tunnel => (Granted::Tunnel, Message::default()),
            Asked::Connect(peer, options) => {
                let wants_multipath = options.iter().flatten().any(|option| option.kind == MULTIPATH);
                let server = timeout(self.connect_timeout, connect(peer, own, wants_multipath)).await;
                let server = server.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
                let server = server.map_err(|error| Refusal::Server(peer, error))?;
                //= RFC 8803 6.2.6-a
                let header = options.map(|_| Tlv::ExtendedHeader(Vec::new()));
                (Granted::Connected(server, peer), Message { tlvs: header.into_iter().collect() })
            }
        };
        //= RFC 8803 6.1-a the header is the first that the client gets
        client.write_all(&answer.encode()).await?;
        Ok(granted)
    }
}

//= RFC 8803 6.2.5-c 6.2.5-e
/// Connects by TCP, or by the kernel's Multipath TCP where the client wants that and the kernel has it.
async fn connect(peer: SocketAddr, own: &[IpAddr], multipath: bool) -> io::Result<TcpStream> {
    if multipath
        && let Ok(socket) = Socket::new(Domain::for_address(peer), Type::STREAM, Some(Protocol::MPTCP))
    {
        socket.set_nonblocking(true)?;
        return TcpSocket::from_std_stream(socket.into()).connect(peer).await;
    }
    crate::target::connect(peer, own.contains(&peer.ip())).await
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::{ERRORS_PER_SECOND, ErrorBudget};

    //= test RFC 8803 6.2.5-g
    #[test]
    fn error_messages_are_limited_in_number() {
        let (start, budget) = (Instant::now(), ErrorBudget::default());
        let taken = (0..10_000).filter(|_| budget.take()).count() as f64;
        let earned = start.elapsed().as_secs_f64() * ERRORS_PER_SECOND;
        assert!((ERRORS_PER_SECOND..=ERRORS_PER_SECOND + earned + 1.0).contains(&taken), "{taken}");
    }
}
