//! QUIC connections that carry datagrams, by `quinn`. Only their encryption, their handshakes and their
//! discovery of MTUs are wanted: how fast something is sent, and over which link, is decided before.

use std::any::Any;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use nix::sys::socket::{setsockopt, sockopt};
use quinn::congestion::{Controller, ControllerFactory};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::crypto::{CryptoError, HmacKey};
use quinn::{
    AckFrequencyConfig, ClientConfig, ConnectionId, ConnectionIdGenerator, EndpointConfig, IdleTimeout,
    MtuDiscoveryConfig, ServerConfig, TransportConfig, VarInt,
};
use ropewalk_os::entropy::random;
use sha2::Sha256;
use socket2::{Domain, Socket, Type};

use crate::tls::{Acceptor, Connector};

/// How long a connection without a sign of life goes on: a link that is cut for a moment needs no handshake.
const IDLE: VarInt = VarInt::from_u32(30_000);
/// Datagrams that wait, bytes: beyond, the oldest are dropped.
const BUFFER: usize = 1 << 20;
/// The round-trip time that handshakes begin with (RFC 9002, section 6.2.2): what isn't answered is sent
/// again after three of them, so that a gateway is met soon after a restart.
const INITIAL_RTT: Duration = Duration::from_millis(100);
/// Handshakes that wait, and what each may have sent by then, bytes.
const MOST_INCOMING: usize = 64;
const INCOMING_BYTES: u64 = 16 << 10;
/// Sockets' buffers, bytes.
const SOCKET_BUFFER: usize = 4 << 20;

/// Sends at once what it is given.
#[derive(Clone, Copy, Debug)]
struct Unlimited;

impl Controller for Unlimited {
    fn on_congestion_event(&mut self, _: std::time::Instant, _: std::time::Instant, _: bool, _: u64) {}

    fn on_mtu_update(&mut self, _: u16) {}

    fn window(&self) -> u64 {
        1 << 30
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(*self)
    }

    fn initial_window(&self) -> u64 {
        1 << 30
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl ControllerFactory for Unlimited {
    fn build(self: Arc<Self>, _: std::time::Instant, _: u16) -> Box<dyn Controller> {
        Box::new(Unlimited)
    }
}

/// Random connection ids. Those that `quinn` makes by default carry a mark of the process, and what came for
/// another one would be dropped without a reset.
struct ConnectionIds;

impl ConnectionIdGenerator for ConnectionIds {
    fn generate_cid(&mut self) -> ConnectionId {
        ConnectionId::new(&random().to_be_bytes())
    }

    fn cid_len(&self) -> usize {
        8
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// Signs stateless resets: a proxy believes those of a gateway that was started anew, and connects again.
struct ResetKey([u8; 32]);

impl ResetKey {
    fn of(&self, data: &[u8]) -> Hmac<Sha256> {
        let keyed = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        keyed.chain_update(data)
    }
}

impl HmacKey for ResetKey {
    fn sign(&self, data: &[u8], signature: &mut [u8]) {
        signature.copy_from_slice(&self.of(data).finalize().into_bytes());
    }

    fn signature_len(&self) -> usize {
        32
    }

    fn verify(&self, data: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        self.of(data).verify_slice(signature).map_err(|_| CryptoError)
    }
}

fn transport() -> Arc<TransportConfig> {
    let mut mtu = MtuDiscoveryConfig::default();
    mtu.black_hole_cooldown(Duration::from_secs(10)).interval(Duration::from_secs(120));
    let mut acks = AckFrequencyConfig::default();
    // The tunnel has feedback of its own.
    acks.ack_eliciting_threshold(VarInt::from_u32(20)).max_ack_delay(Some(Duration::from_millis(40)));
    let mut transport = TransportConfig::default();
    transport
        .congestion_controller_factory(Arc::new(Unlimited))
        .datagram_receive_buffer_size(Some(BUFFER))
        .datagram_send_buffer_size(BUFFER)
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .stream_receive_window(VarInt::from_u32(4096))
        .receive_window(VarInt::from_u32(4096))
        .initial_rtt(INITIAL_RTT)
        .max_idle_timeout(Some(IdleTimeout::from(IDLE)))
        .ack_frequency_config(Some(acks))
        .mtu_discovery_config(Some(mtu));
    Arc::new(transport)
}

fn unusable(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}

/// QUIC's configuration for a proxy that connects to a gateway.
pub(crate) fn client(connector: &Connector) -> io::Result<ClientConfig> {
    let crypto = QuicClientConfig::try_from(connector.for_protocol(super::PROTOCOL)).map_err(unusable)?;
    let mut config = ClientConfig::new(Arc::new(crypto));
    config.transport_config(transport());
    Ok(config)
}

/// The gateway's side.
pub(crate) fn server_config(acceptor: &Acceptor) -> io::Result<ServerConfig> {
    let crypto = QuicServerConfig::try_from(acceptor.for_protocol(super::PROTOCOL)).map_err(unusable)?;
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    config
        .transport_config(transport())
        .max_incoming(MOST_INCOMING)
        .incoming_buffer_size(INCOMING_BYTES)
        .incoming_buffer_size_total(INCOMING_BYTES * MOST_INCOMING as u64);
    Ok(config)
}

/// An endpoint of QUIC at an address of this host.
pub(crate) fn endpoint(address: SocketAddr, server: Option<&Acceptor>) -> io::Result<quinn::Endpoint> {
    let settings = match server {
        Some(acceptor) => {
            let mut settings = EndpointConfig::new(Arc::new(ResetKey(acceptor.reset_key())));
            settings.cid_generator(|| Box::new(ConnectionIds));
            settings
        }
        None => EndpointConfig::default(),
    };
    let server = server.map(server_config).transpose()?;
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    // Beyond the system's limit where this may, else up to it.
    if setsockopt(&socket, sockopt::RcvBufForce, &SOCKET_BUFFER).is_err() {
        let _ = socket.set_recv_buffer_size(SOCKET_BUFFER);
    }
    if setsockopt(&socket, sockopt::SndBufForce, &SOCKET_BUFFER).is_err() {
        let _ = socket.set_send_buffer_size(SOCKET_BUFFER);
    }
    if server.is_some() {
        // The gateway's address may be another host's for now (VRRP).
        match address.is_ipv6() {
            true => socket.set_freebind_v6(true)?,
            false => socket.set_freebind_v4(true)?,
        }
    }
    socket.bind(&address.into())?;
    let socket: UdpSocket = socket.into();
    quinn::Endpoint::new(settings, server, socket, Arc::new(quinn::TokioRuntime))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_gateway_has_its_endpoint_while_its_address_is_another_hosts() {
        // Of TEST-NET-1 (RFC 5737): nobody has it.
        let address: SocketAddr = "192.0.2.1:0".parse().unwrap();
        assert!(endpoint(address, None).is_err());
        let folder = tempfile::tempdir().unwrap();
        let [own, public] = crate::tls::keys::generate(folder.path(), "gateway").unwrap();
        let acceptor = Acceptor::load(&own, &[public]).unwrap();
        assert_eq!(endpoint(address, Some(&acceptor)).unwrap().local_addr().unwrap().ip(), address.ip());
    }
}
