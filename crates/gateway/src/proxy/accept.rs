//! Clients: SOCKS5 and HTTP on one port, told apart by the first byte.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

use super::client::{Client, HANDSHAKE};
use super::serve::Server;
use super::{http, socks};
use crate::log;
use crate::per_connection::small;

/// What a SOCKS5 request begins with (RFC 1928 3).
const SOCKS5: u8 = 5;

/// Accepts clients until it is cancelled.
pub(super) async fn accept(server: Arc<Server>, listener: TcpListener) {
    loop {
        let (client, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors or memory: it passes.
                log::note("a client can't be accepted", "", error);
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if !server.settings().access.admits(peer.ip()) {
            log::note("refused: from no allowed network", peer, "");
            continue;
        }
        let Some(place) = server.place(&client, peer).await else { continue };
        let server = Arc::clone(&server);
        let peer = Client::of(&client, peer);
        tokio::spawn(small(async move {
            if let Err(error) = serve(server, client, peer).await {
                tracing::debug!(client = %peer, %error, "ended");
            }
            drop(place);
        }));
    }
}

async fn serve(server: Arc<Server>, client: TcpStream, peer: Client) -> io::Result<()> {
    let mut first = [0];
    let read = tokio::time::timeout(HANDSHAKE, client.peek(&mut first)).await;
    match read.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the client said nothing"))?? {
        0 => Ok(()),
        _ if first[0] == SOCKS5 => socks::serve(&server, client, peer).await,
        _ => Box::pin(http::serve(server, client, peer)).await,
    }
}
