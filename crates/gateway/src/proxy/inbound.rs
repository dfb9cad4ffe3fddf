//! Clients: SOCKS5 and HTTP on one port, told apart by the first byte.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::serve::Server;
use super::{http, socks};

/// How long a client may take to say what it wants.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(10);
/// What a SOCKS5 request begins with (RFC 1928 3).
const SOCKS5: u8 = 5;

/// Accepts clients until it is cancelled.
pub(super) async fn accept(server: Arc<Server>, listener: TcpListener) {
    let room = Arc::new(Semaphore::new(server.config.most_flows));
    loop {
        // What comes beyond the limit waits in the kernel's backlog.
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        let (client, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors or memory: it passes.
                tracing::warn!(%error, "accepting a client");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if !server.config.access.admits(peer.ip()) {
            tracing::warn!(client = %peer, "refused: not in --allow");
            continue;
        }
        let server = Arc::clone(&server);
        tokio::spawn(async move {
            if let Err(error) = serve(server, client, peer).await {
                tracing::info!(client = %peer, %error, "ended");
            }
            drop(place);
        });
    }
}

async fn serve(server: Arc<Server>, client: TcpStream, peer: SocketAddr) -> io::Result<()> {
    let mut first = [0];
    let read = tokio::time::timeout(HANDSHAKE, client.peek(&mut first)).await;
    match read.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the client said nothing"))?? {
        0 => Ok(()),
        _ if first[0] == SOCKS5 => socks::serve(&server, client, peer).await,
        _ => http::serve(server, client, peer).await,
    }
}
