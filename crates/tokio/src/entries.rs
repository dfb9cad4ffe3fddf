//! What a shard keeps for each stream beside the engine's connection.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use ropewalk_engine::endpoint::ConnectionId;
use ropewalk_wire::FourTuple;

use ropewalk_engine::mptcp::{CloseReason, DecisionRecord};

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// In good order, both ways.
    Closed,
    /// It was lost.
    Lost(CloseReason),
    /// The runtime ended, and the driver with it.
    Undriven,
}

/// What outlives the connection: its slot may be another's by the time that its stream is asked.
#[derive(Debug, Default)]
pub(crate) struct Status {
    established: AtomicBool,
    end: OnceLock<End>,
}

impl Status {
    pub fn set_established(&self) {
        self.established.store(true, Ordering::Relaxed);
    }

    pub fn is_established(&self) -> bool {
        self.established.load(Ordering::Relaxed)
    }

    pub fn set_end(&self, end: End) {
        // The first end is the one that counts.
        let _ = self.end.set(end);
    }

    pub fn is_over(&self) -> bool {
        self.end.get().is_some()
    }

    /// Why the connection was lost, if it was.
    pub fn error(&self) -> Option<io::Error> {
        match self.end.get()? {
            End::Closed => None,
            End::Lost(why) => Some((*why).into()),
            End::Undriven => Some(crate::error::ended()),
        }
    }
}

/// A stream's entry.
#[derive(Debug)]
pub(crate) struct Entry {
    pub id: ConnectionId,
    pub status: Arc<Status>,
    pub reader: Option<Waker>,
    /// Also waits for the handshake.
    pub writer: Option<Waker>,
    /// The token that is in the table of tokens.
    pub token: Option<u32>,
    /// The scheduler's last decisions, while they are traced.
    pub decisions: VecDeque<DecisionRecord>,
    /// The subflows that are in the table of joined ones.
    pub joined: Vec<FourTuple>,
    /// The peer, until what the connection found out about its paths is kept.
    pub learns_of: Option<IpAddr>,
}

/// Most decisions that are kept.
const DECISIONS: usize = 8;

impl Entry {
    pub fn add_decision(&mut self, decision: DecisionRecord) {
        if self.decisions.len() == DECISIONS {
            self.decisions.pop_front();
        }
        self.decisions.push_back(decision);
    }

    pub fn new(id: ConnectionId) -> Entry {
        Entry {
            id,
            status: Arc::default(),
            reader: None,
            writer: None,
            token: None,
            decisions: VecDeque::new(),
            joined: Vec::new(),
            learns_of: None,
        }
    }
}

/// All entries of a shard, indexed by connection slot.
#[derive(Debug, Default)]
pub(crate) struct Entries(Vec<Option<Entry>>);

impl Entries {
    pub fn get(&mut self, id: ConnectionId) -> Option<&mut Entry> {
        self.0.get_mut(id.slot())?.as_mut().filter(|entry| entry.id == id)
    }

    /// The entry of the connection that is in a slot now.
    pub fn in_slot(&mut self, slot: usize) -> Option<&mut Entry> {
        self.0.get_mut(slot)?.as_mut()
    }

    /// Adds an entry, and returns the one whose slot it takes.
    pub fn insert(&mut self, entry: Entry) -> Option<Entry> {
        let slot = entry.id.slot();
        if self.0.len() <= slot {
            self.0.resize_with(slot + 1, || None);
        }
        self.0[slot].replace(entry)
    }

    pub fn remove(&mut self, id: ConnectionId) -> Option<Entry> {
        self.0.get_mut(id.slot())?.take_if(|entry| entry.id == id)
    }

    /// Removes all.
    pub fn take_all(&mut self) -> impl Iterator<Item = Entry> {
        std::mem::take(&mut self.0).into_iter().flatten()
    }
}

/// Puts `waker` into its place, unless it is there already.
pub(crate) fn register(place: &mut Option<Waker>, waker: &Waker) {
    match place {
        Some(known) => known.clone_from(waker),
        None => *place = Some(waker.clone()),
    }
}
