//! Which clients are served: by their passwords, by how many connections their addresses have, and by what
//! those take.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;

use super::client::Client;
use super::flow::ProxiedConnection;
use super::serve::Server;
use crate::carry::reset;
use crate::log;
use crate::memory::{self, Owner, Pressure};
use crate::per_address::Place;

impl Server {
    /// A place for a client; `None`, and it is reset, where its address or all connections take too much.
    pub(super) async fn place(
        &self,
        client: &TcpStream,
        peer: SocketAddr,
    ) -> Option<(OwnedSemaphorePermit, Place)> {
        memory::accepted(self);
        let limit = match self.pressure.refuses(peer.ip()) {
            true => Err("memory"),
            false => {
                let most = self.settings().most_per_address;
                self.by_address.enter(peer.ip(), most).ok_or("connections-per-address")
            }
        };
        match limit {
            // Beyond the limit of all, the next client waits here, and the others in the kernel's backlog.
            Ok(place) => Some((Arc::clone(&self.places).acquire_owned().await.ok()?, place)),
            Err(limit) => {
                log::note("refused", peer, format_args!("the limit `{limit}`"));
                reset(client);
                None
            }
        }
    }

    /// Whether a client may use the proxy, by the name and password that it gives. Wrong ones cost time.
    pub(super) async fn knows(&self, client: Client, given: Option<(&str, &str)>) -> bool {
        let settings = self.settings();
        match given {
            _ if settings.access.users.is_empty() => true,
            None => false,
            Some((name, password)) => {
                let is_right = || settings.access.knows(name, password);
                self.guesses.check(client.address, name, is_right).await
            }
        }
    }
}

impl Owner for Server {
    type Connection = ProxiedConnection;

    fn connections(&self) -> Vec<Arc<ProxiedConnection>> {
        self.flows.all()
    }

    fn count_evicted(&self, count: u64) {
        self.evicted.fetch_add(count, Relaxed);
    }

    fn pressure(&self) -> &Pressure {
        &self.pressure
    }
}
