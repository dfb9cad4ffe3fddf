//! Connections that wait to be accepted.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use ropewalk_engine::endpoint::ConnectionId;

use crate::entries::Status;

/// A connection that no stream stands for yet: one that waits to be accepted, or was just opened.
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
    /// A backlog of so many connections.
    pub fn new(limit: usize) -> Backlog {
        Backlog { limit: limit.max(1), waiting: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
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

    /// The next connection; `None` once it takes no more.
    pub fn poll_pop(&self, cx: &mut Context<'_>) -> Poll<Option<Arrival>> {
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

    /// Takes all that wait.
    pub fn drain(&self) -> VecDeque<Arrival> {
        std::mem::take(&mut self.lock().arrivals)
    }
}
