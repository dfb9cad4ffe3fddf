//! Listeners.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::backlog::Backlog;
use crate::network::{Inner, Network};
use crate::options::ListenOptions;
use crate::stream::MptcpStream;

/// Accepts connections, Multipath TCP's and plain TCP's.
///
/// When it is dropped, connections that wait are reset, and those that were accepted go on.
#[derive(Debug)]
pub struct MptcpListener {
    network: Arc<Inner>,
    backlog: Arc<Backlog>,
    address: SocketAddr,
}

impl MptcpListener {
    /// Listens at `address`; an unspecified IP address stands for all of the network's.
    ///
    /// # Errors
    /// [`AddrInUse`](io::ErrorKind::AddrInUse) if another listener has the address, and
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for port 0.
    pub fn bind(network: &Network, address: SocketAddr) -> io::Result<MptcpListener> {
        MptcpListener::bind_with(network, address, &ListenOptions::default())
    }

    /// As [`bind`](Self::bind), with settings of its own.
    ///
    /// # Errors
    /// Those of [`bind`](Self::bind), and an unknown algorithm.
    pub fn bind_with(
        network: &Network,
        address: SocketAddr,
        options: &ListenOptions,
    ) -> io::Result<MptcpListener> {
        if address.port() == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a listener needs a port"));
        }
        let inner = Arc::clone(network.inner());
        let config = inner.listener_config(options)?;
        let backlog = Arc::new(Backlog::new(options.backlog));
        for (at, shard) in inner.shards.iter().enumerate() {
            if !shard.is_running() {
                return Err(crate::error::ended());
            }
            let accepted =
                shard.call(|state, _| state.listen(address, Arc::clone(&config), Arc::clone(&backlog)));
            if !accepted {
                debug_assert_eq!(at, 0, "shards have the same listeners");
                return Err(io::Error::new(
                    io::ErrorKind::AddrInUse,
                    format!("there is a listener at {address} already"),
                ));
            }
        }
        Ok(MptcpListener { network: inner, backlog, address })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The next connection and its peer's address. It can be called by several tasks, and no connection is
    /// lost if it is cancelled.
    ///
    /// # Errors
    /// If the network has ended.
    pub async fn accept(&self) -> io::Result<(MptcpStream, SocketAddr)> {
        std::future::poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// As [`accept`](Self::accept), to be polled.
    ///
    /// # Errors
    /// If the network has ended.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(MptcpStream, SocketAddr)>> {
        self.backlog.poll_pop(cx).map(|arrival| {
            let arrival = arrival.ok_or_else(crate::error::ended)?;
            let peer = arrival.peer;
            Ok((MptcpStream::new(Arc::clone(&self.network), arrival), peer))
        })
    }
}

impl Drop for MptcpListener {
    fn drop(&mut self) {
        for shard in &self.network.shards {
            shard.call(|state, now| state.stop_listening(now, self.address));
        }
        self.backlog.close().into_iter().for_each(Waker::wake);
        for arrival in self.backlog.drain() {
            self.network.shards[arrival.shard].call(|state, now| state.abort(now, arrival.id));
        }
    }
}
