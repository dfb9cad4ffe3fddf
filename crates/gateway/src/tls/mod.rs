//! TLS 1.3 between a proxy and its gateway, over the Multipath TCP stream, by `rustls`.
//!
//! Each side has a key of its own and the other's certificate ([`keys`]), and accepts no other (`pinned`): no
//! authority, no names, and no clock, which a router may not have.

pub mod keys;
mod pinned;

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ropewalk_tokio::MptcpStream;
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ServerConfig};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use self::keys::{Identity, Key, KeyError};
use self::pinned::Pinned;

/// A stream that its owner shares: TLS reads and writes, others ask for its state.
#[derive(Clone, Debug)]
pub struct Shared(pub Arc<MptcpStream>);

impl AsyncRead for Shared {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut &*self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Shared {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut &*self.0).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut &*self.0).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut &*self.0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut &*self.0).poll_shutdown(cx)
    }
}

/// An encrypted stream. Boxed: most of what may hold one doesn't.
pub type Secure = Box<TlsStream<Shared>>;

/// The name that a client gives; nobody looks at it.
pub(crate) const NAME: &str = "ropewalk.invalid";

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Tells configurations apart, without showing what is in them.
#[derive(Clone, PartialEq, Eq)]
struct Fingerprint([u8; 4]);

impl Fingerprint {
    fn of(key: &Key, peers: &[CertificateDer<'static>]) -> Fingerprint {
        let mut hash = Sha256::new();
        hash.update(&key.certificate);
        peers.iter().for_each(|peer| hash.update(peer));
        let digest = hash.finalize();
        Fingerprint([digest[0], digest[1], digest[2], digest[3]])
    }
}

impl std::fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d] = self.0;
        write!(f, "{a:02x}{b:02x}{c:02x}{d:02x}")
    }
}

/// The gateway's side: its key, and the proxies that it accepts.
#[derive(Clone)]
pub struct Acceptor {
    config: Arc<ServerConfig>,
    fingerprint: Fingerprint,
    proxies: Vec<Identity>,
    /// What shows that a message without a connection is this gateway's, after a restart too.
    reset_key: [u8; 32],
}

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Acceptor({:?})", self.fingerprint)
    }
}

impl PartialEq for Acceptor {
    fn eq(&self, other: &Acceptor) -> bool {
        self.fingerprint == other.fingerprint
    }
}

impl Eq for Acceptor {}

impl Acceptor {
    /// From the gateway's key and the proxies' certificates.
    ///
    /// # Errors
    /// If a file can't be read, others can read the key, or it has something else.
    pub fn load(key: &Path, proxies: &[impl AsRef<Path>]) -> Result<Acceptor, KeyError> {
        let key = Key::load(key)?;
        let peers: Vec<_> =
            proxies.iter().map(|path| keys::certificate(path.as_ref())).collect::<Result<_, _>>()?;
        let fingerprint = Fingerprint::of(&key, &peers);
        let proxies = peers.iter().map(|known| Sha256::digest(known).into()).collect();
        let reset_key = Sha256::new()
            .chain_update("stateless reset")
            .chain_update(key.secret.secret_der())
            .finalize()
            .into();
        let pinned = Arc::new(Pinned::new(peers, provider()));
        let config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(pinned)
            .with_single_cert(vec![key.certificate], key.secret)?;
        Ok(Acceptor { config: Arc::new(config), fingerprint, proxies, reset_key })
    }

    /// Who the proxies are.
    pub(crate) fn proxies(&self) -> &[Identity] {
        &self.proxies
    }

    /// The key of QUIC's stateless resets (RFC 9000 10.3.2).
    pub(crate) fn reset_key(&self) -> [u8; 32] {
        self.reset_key
    }

    /// TLS for another protocol over another carrier, with the same keys.
    pub(crate) fn for_protocol(&self, name: &[u8]) -> ServerConfig {
        let mut config = (*self.config).clone();
        config.alpn_protocols = vec![name.to_vec()];
        config.send_tls13_tickets = 0;
        config
    }

    /// Does the handshake with a proxy.
    ///
    /// # Errors
    /// If it is no proxy that is known, or the stream is lost.
    pub async fn accept(&self, stream: Arc<MptcpStream>) -> io::Result<Secure> {
        let accepted = TlsAcceptor::from(Arc::clone(&self.config)).accept(Shared(stream)).await?;
        Ok(Box::new(TlsStream::Server(accepted)))
    }
}

/// The proxy's side: its key, and the gateway's certificate.
#[derive(Clone)]
pub struct Connector {
    config: Arc<ClientConfig>,
    fingerprint: Fingerprint,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connector({:?})", self.fingerprint)
    }
}

impl Connector {
    /// From the proxy's key and the gateway's certificate.
    ///
    /// # Errors
    /// If a file can't be read, others can read the key, or it has something else.
    pub fn load(key: &Path, gateway: &Path) -> Result<Connector, KeyError> {
        let key = Key::load(key)?;
        let peers = vec![keys::certificate(gateway)?];
        let fingerprint = Fingerprint::of(&key, &peers);
        let pinned = Arc::new(Pinned::new(peers, provider()));
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(pinned)
            .with_client_auth_cert(vec![key.certificate], key.secret)?;
        Ok(Connector { config: Arc::new(config), fingerprint })
    }

    /// TLS for another protocol over another carrier, with the same keys.
    pub(crate) fn for_protocol(&self, name: &[u8]) -> ClientConfig {
        let mut config = (*self.config).clone();
        config.alpn_protocols = vec![name.to_vec()];
        config.resumption = Resumption::disabled();
        config
    }

    /// Does the handshake with the gateway.
    ///
    /// # Errors
    /// If it isn't the gateway, or the stream is lost.
    pub async fn connect(&self, stream: Arc<MptcpStream>) -> io::Result<Secure> {
        let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
        let connector = TlsConnector::from(Arc::clone(&self.config));
        Ok(Box::new(TlsStream::Client(connector.connect(name, Shared(stream)).await?)))
    }
}
