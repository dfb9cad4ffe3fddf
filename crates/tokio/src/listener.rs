//! Listeners.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use ropewalk_engine::endpoint::ConnectionId;

use crate::entries::Status;
use crate::network::{Inner, Network};
use crate::options::ListenOptions;
use crate::stream::MptcpStream;

/// A connection that waits to be accepted.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub shard: usize,
    pub id: ConnectionId,
    pub status: Arc<Status>,
    pub local: SocketAddr,
    pub peer: SocketAddr,
}

/// Connections that wait to be accepted, of all shards.
#[derive(Debug)]
pub(crate) struct Backlog {
    limit: usize,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    arrivals: VecDeque<Arrival>,
    acceptors: Vec<Waker>,
    is_closed: bool,
}

impl Backlog {
    fn new(limit: usize) -> Backlog {
        Backlog { limit: limit.max(1), waiting: Mutex::default() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection, and returns whom to wake; hands it back if too many wait.
    pub fn push(&self, arrival: Arrival) -> Result<Vec<Waker>, Arrival> {
        let mut waiting = self.lock();
        if waiting.is_closed || waiting.arrivals.len() >= self.limit {
            return Err(arrival);
        }
        waiting.arrivals.push_back(arrival);
        Ok(std::mem::take(&mut waiting.acceptors))
    }

    fn poll_pop(&self, cx: &mut Context<'_>) -> Poll<Option<Arrival>> {
        let mut waiting = self.lock();
        if let Some(arrival) = waiting.arrivals.pop_front() {
            return Poll::Ready(Some(arrival));
        }
        if waiting.is_closed {
            return Poll::Ready(None);
        }
        if !waiting.acceptors.iter().any(|known| known.will_wake(cx.waker())) {
            waiting.acceptors.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Takes no more, and returns whom to wake.
    pub fn close(&self) -> Vec<Waker> {
        let mut waiting = self.lock();
        waiting.is_closed = true;
        std::mem::take(&mut waiting.acceptors)
    }

    fn drain(&self) -> VecDeque<Arrival> {
        std::mem::take(&mut self.lock().arrivals)
    }
}

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

    /// The next connection and its peer's address. It can be called by several tasks, and no connection is lost if it is
    /// cancelled.
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
