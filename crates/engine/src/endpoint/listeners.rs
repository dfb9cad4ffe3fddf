//! Addresses that connections are accepted to.

use std::net::SocketAddr;
use std::sync::Arc;

use ropewalk_wire::Payload;

use super::{ConnectionConfig, Endpoint};
use crate::{Entropy, Time};

/// Whether a listener's address stands for the address of a segment.
fn stands_for(listener: SocketAddr, address: SocketAddr) -> bool {
    listener.port() == address.port() && (listener.ip() == address.ip() || listener.ip().is_unspecified())
}

impl<P: Payload, E: Entropy> Endpoint<P, E> {
    /// Accepts connections to `address`, each with these settings; an unspecified IP address stands for all.
    /// A later call for the same address replaces its settings for connections to come.
    pub fn listen(&mut self, address: SocketAddr, config: Arc<ConnectionConfig>) {
        //= RFC 9293 MUST-41 MUST-42
        self.listeners.retain(|(known, _)| *known != address);
        self.listeners.push((address, config));
    }

    /// Accepts no more connections to `address`: SYNs are answered with RST, and connections that nobody has
    /// heard of yet (no [`Event::Accepted`](crate::mptcp::Event::Accepted)) are reset. Connections that were
    /// accepted stay. Returns false if nothing listened there.
    pub fn stop_listening(&mut self, now: Time, address: SocketAddr) -> bool {
        let before = self.listeners.len();
        self.listeners.retain(|(known, _)| *known != address);
        if self.listeners.len() == before {
            return false;
        }
        for index in 0..self.slots.len() {
            let slot = &mut self.slots[index];
            let Some(connection) = slot.connection.as_deref_mut().filter(|_| slot.half_open) else {
                continue;
            };
            let local = connection.subflows.first_tuple().map(|tuple| tuple.source());
            if local.is_some_and(|local| !self.listeners.iter().any(|(known, _)| stands_for(*known, local))) {
                connection.abort();
                self.on_changed(now, index as u32);
            }
        }
        true
    }

    /// The addresses that connections are accepted to.
    pub fn listeners(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.listeners.iter().map(|(address, _)| *address)
    }

    /// The settings of the listener for an address.
    pub(super) fn listener(&self, destination: SocketAddr) -> Option<Arc<ConnectionConfig>> {
        let listener = self.listeners.iter().find(|(address, _)| stands_for(*address, destination));
        listener.map(|(_, config)| Arc::clone(config))
    }
}
