//! A download by QUIC (quinn, CUBIC) of a host behind the proxy from a server behind the gateway.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quinn::{ClientConfig, Endpoint, EndpointConfig, ServerConfig, TokioRuntime};
use ropewalk_engine::{Span, Time};
use ropewalk_host::clock::Clock;
use ropewalk_host::netns::Namespace;
use rustls::RootCertStore;
use rustls::pki_types::PrivatePkcs8KeyDer;

/// What a download has brought.
#[derive(Debug)]
pub struct Got {
    pub bytes: usize,
    /// The longest time without data, seconds.
    pub gap: f64,
}

/// Downloads so many bytes; `at`: is told each time how many have come.
pub fn download(
    (lan, world): (&Namespace, &Namespace),
    server: SocketAddr,
    bytes: usize,
    mut at: impl FnMut(usize),
) -> Got {
    let key = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let secret = PrivatePkcs8KeyDer::from(key.signing_key.serialize_der());
    let config = ServerConfig::with_single_cert(vec![key.cert.der().clone()], secret.into()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(key.cert.der().clone()).unwrap();
    let of = |namespace: &Namespace, address: SocketAddr| namespace.run(|| UdpSocket::bind(address)).unwrap();
    let (near, far) = (of(lan, ([0, 0, 0, 0], 0).into()), of(world, server));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let endpoint = |socket, config| {
            socket_nonblocking(&socket);
            Endpoint::new(EndpointConfig::default(), config, socket, Arc::new(TokioRuntime)).unwrap()
        };
        let far = endpoint(far, Some(config));
        tokio::spawn(async move {
            let connection = far.accept().await.unwrap().await.unwrap();
            let mut send = connection.open_uni().await.unwrap();
            let _ = send.write_all(&vec![7; bytes]).await;
            let _ = send.finish();
            connection.closed().await;
        });
        let near = endpoint(near, None);
        let config = ClientConfig::with_root_certificates(Arc::new(roots)).unwrap();
        let connection = near.connect_with(config, server, "localhost").unwrap().await.unwrap();
        let mut receive = connection.accept_uni().await.unwrap();
        let (clock, mut got, mut last, mut gap) = (Clock::start(), 0, Time::ZERO, Span::ZERO);
        let reading = async {
            while let Ok(Some(chunk)) = receive.read_chunk(1 << 20, true).await {
                got += chunk.bytes.len();
                gap = gap.max(clock.now() - last);
                last = clock.now();
                at(got);
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(60), reading).await;
        Got { bytes: got, gap: gap.as_secs_f64() }
    })
}

fn socket_nonblocking(socket: &UdpSocket) {
    socket.set_nonblocking(true).unwrap();
}
