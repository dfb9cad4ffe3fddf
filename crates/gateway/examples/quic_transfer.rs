//! A download by QUIC (quinn, CUBIC), for benches/datagrams.py: `quic_transfer serve ADDRESS CERTIFICATE`,
//! which writes its certificate there, and `quic_transfer get ADDRESS CERTIFICATE BYTES`, which prints what
//! it got as JSON.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quinn::{ClientConfig, Endpoint, ServerConfig, VarInt};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio::time::Instant;

type Done<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

async fn serve(address: SocketAddr, certificate: &Path) -> Done {
    let key = rcgen::generate_simple_self_signed(vec!["localhost".into()])?;
    std::fs::write(certificate, key.cert.der())?;
    let secret = PrivatePkcs8KeyDer::from(key.signing_key.serialize_der());
    let config = ServerConfig::with_single_cert(vec![key.cert.der().clone()], secret.into())?;
    let endpoint = Endpoint::server(config, address)?;
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(async move {
            let connection = incoming.await?;
            while let Ok((mut send, mut receive)) = connection.accept_bi().await {
                let mut wanted = [0; 8];
                receive.read_exact(&mut wanted).await?;
                let (mut left, piece) = (u64::from_be_bytes(wanted), vec![7; 64 << 10]);
                while left > 0 {
                    let now = left.min(piece.len() as u64);
                    send.write_all(&piece[..now as usize]).await?;
                    left -= now;
                }
                send.finish()?;
                let _ = send.stopped().await;
                let path = connection.stats().path;
                eprintln!(
                    "sent: window {}, {} lost, {} congestion events, {} ms",
                    path.cwnd,
                    path.lost_packets,
                    path.congestion_events,
                    path.rtt.as_millis()
                );
            }
            Done::Ok(())
        });
    }
    Ok(())
}

async fn get(address: SocketAddr, certificate: &Path, bytes: u64) -> Done {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(std::fs::read(certificate)?))?;
    let mut config = ClientConfig::with_root_certificates(Arc::new(roots))?;
    let mut transport = quinn::TransportConfig::default();
    // More than the links hold.
    transport.stream_receive_window(VarInt::from_u32(8 << 20)).receive_window(VarInt::from_u32(16 << 20));
    transport.max_idle_timeout(Some(Duration::from_secs(30).try_into()?));
    config.transport_config(Arc::new(transport));
    let endpoint = Endpoint::client((Ipv4Addr::UNSPECIFIED, 0).into())?;
    let connection = endpoint.connect_with(config, address, "localhost")?.await?;
    let start = Instant::now();
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(&bytes.to_be_bytes()).await?;
    let (mut got, mut last, mut gap) = (0, None, Duration::ZERO);
    while let Some(chunk) = receive.read_chunk(1 << 20, true).await? {
        let now = Instant::now();
        gap = gap.max(last.map_or(Duration::ZERO, |last| now - last));
        (got, last) = (got + chunk.bytes.len() as u64, Some(now));
    }
    let seconds = start.elapsed().as_secs_f64();
    let (mbit, gap, rtt) =
        (got as f64 * 8e-6 / seconds, gap.as_secs_f64() * 1e3, connection.rtt().as_secs_f64() * 1e3);
    println!(
        "{{\"bytes\": {got}, \"seconds\": {seconds:.3}, \"mbit\": {mbit:.1}, \"gap_ms\": {gap:.0}, \
         \"rtt_ms\": {rtt:.0}}}"
    );
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Done {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", address, certificate] => serve(address.parse()?, certificate.as_ref()).await,
        ["get", address, certificate, bytes] => {
            get(address.parse()?, certificate.as_ref(), bytes.parse()?).await
        }
        _ => Err("quic_transfer serve ADDRESS CERTIFICATE | get ADDRESS CERTIFICATE BYTES".into()),
    }
}
