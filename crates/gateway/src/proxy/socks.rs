//! SOCKS5 (RFC 1928) with names and passwords (RFC 1929), by `fast-socks5`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bytes::Bytes;
use fast_socks5::server::{
    Socks5ServerProtocol, SocksServerError, StandardAuthentication, StandardAuthenticationStarted, states,
};
use fast_socks5::util::target_addr::TargetAddr;
use fast_socks5::{ReplyError, Socks5Command};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::client::{Client, HANDSHAKE};
use super::remote::Wish;
use super::serve::Server;
use crate::target::Target;
use crate::udp::associate::Association;

fn other(error: SocksServerError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

/// What RFC 1928 has for an error.
fn reply(error: &io::Error) -> ReplyError {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => ReplyError::ConnectionRefused,
        io::ErrorKind::TimedOut => ReplyError::ConnectionTimeout,
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::AddrNotAvailable => ReplyError::NetworkUnreachable,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NotFound => ReplyError::HostUnreachable,
        io::ErrorKind::PermissionDenied => ReplyError::ConnectionNotAllowed,
        io::ErrorKind::Unsupported => ReplyError::CommandNotSupported,
        _ => ReplyError::GeneralFailure,
    }
}

type Request = (Socks5ServerProtocol<TcpStream, states::CommandRead>, Socks5Command, Target);

async fn request(server: &Server, client: TcpStream, peer: Client) -> Result<Request, SocksServerError> {
    let opened = Socks5ServerProtocol::start(client);
    let methods = if server.settings().access.users.is_empty() {
        &[StandardAuthentication::NoAuthentication(fast_socks5::server::NoAuthentication)][..]
    } else {
        StandardAuthentication::allow_no_auth(false)
    };
    let authenticated = match opened.negotiate_auth(methods).await? {
        StandardAuthenticationStarted::NoAuthentication(auth) => Socks5ServerProtocol::finish_auth(auth),
        StandardAuthenticationStarted::PasswordAuthentication(auth) => {
            let (name, password, auth) = auth.read_username_password().await?;
            if !server.knows(peer, Some((&name, &password))).await {
                auth.reject().await?;
                return Err(SocksServerError::AuthenticationRejected);
            }
            Socks5ServerProtocol::finish_auth(auth.accept().await?)
        }
    };
    let (protocol, command, target) = authenticated.read_command().await?;
    let target = match target {
        TargetAddr::Ip(address) => Target::Address(address),
        TargetAddr::Domain(name, port) => Target::new(&name, port),
    };
    Ok((protocol, command, target))
}

/// Carries a client's datagrams (UDP ASSOCIATE). `local`: the address to which the client has connected.
async fn associate(
    server: &Server,
    protocol: Socks5ServerProtocol<TcpStream, states::CommandRead>,
    local: IpAddr,
    peer: Client,
    target: Target,
) -> io::Result<()> {
    let opened = async {
        let (entry, _) = server.open_datagrams(peer, Wish::Datagrams).await?;
        Ok((entry, UdpSocket::bind((local, 0)).await?))
    };
    let (entry, socket) = match opened.await {
        Ok(opened) => opened,
        Err(error) => {
            protocol.reply_error(&reply(&error)).await.map_err(other)?;
            return Err(error);
        }
    };
    let control = protocol.reply_success(socket.local_addr()?).await.map_err(other)?;
    // The client may say where its datagrams will come from. Some say something else: that isn't heeded.
    let client = peer.address.ip();
    let port = match target {
        Target::Address(from) if from.ip() == client => from.port(),
        _ => 0,
    };
    let association = Association { socket, client, port };
    let done = server.associate(control, association, &entry.flow).await;
    server.ended(&entry.flow, &done);
    done
}

/// Serves one client.
pub(super) async fn serve(server: &Server, client: TcpStream, peer: Client) -> io::Result<()> {
    let local = client.local_addr()?.ip();
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the client didn't complete its SOCKS request");
    let asked = timeout(HANDSHAKE, Box::pin(request(server, client, peer))).await.map_err(late)?;
    let (protocol, command, target) = asked.map_err(other)?;
    match command {
        Socks5Command::TCPConnect => {}
        Socks5Command::UDPAssociate => {
            return Box::pin(associate(server, protocol, local, peer, target)).await;
        }
        Socks5Command::TCPBind => {
            protocol.reply_error(&ReplyError::CommandNotSupported).await.map_err(other)?;
            let message = "the SOCKS command BIND isn't supported";
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
    }
    match server.open(peer, target).await {
        Ok(entry) => {
            // The address on the uplink is the masquerade's, which nobody knows: RFC 1928 has zeroes for
            // that.
            let bound = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
            let client = protocol.reply_success(bound).await.map_err(other)?;
            let done = server.relay(client, Bytes::new(), &entry.flow).await;
            server.ended(&entry.flow, &done);
            done
        }
        Err(error) => {
            protocol.reply_error(&reply(&error)).await.map_err(other)?;
            Err(error)
        }
    }
}
