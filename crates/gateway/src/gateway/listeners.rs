//! The listeners that run: how they change with the configuration and the host's network.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};

use super::tunnel_server::Part;
use super::{Listener, Service, Settings, State, listener};
use crate::convert::Converter;
use crate::setup::gateway::TABLE;
use crate::setup::{Change, Host, Installed, listing};

/// What a listener has to do with the tunnels.
fn tunnel_of(state: &State, listener: &Listener) -> Option<Part> {
    let Service::Convert(Converter { tls: Some(acceptor), .. }) = &listener.service else { return None };
    let (listen, list, acceptor) = (listener.listen, state.list(listener), acceptor.clone());
    listener.has_tunnel().then(|| Part { listen, sockets: listener.sockets().collect(), acceptor, list })
}

/// The listeners that run.
pub(super) struct Listeners {
    installed: Installed,
    running: Vec<(Listener, listener::Running)>,
}

impl Listeners {
    /// None yet.
    pub fn new(installed: Installed) -> Listeners {
        Listeners { installed, running: Vec::new() }
    }

    /// Says that connections are ending: the next gateway waits.
    pub fn mark_draining(&self) {
        self.installed.mark_draining();
    }

    /// Starts, stops and restarts listeners until they are these. A listener that stays as it is isn't
    /// touched, and connections go on in any case.
    pub async fn change(&mut self, state: &Arc<State>, wanted: &[Listener]) -> io::Result<()> {
        let is_same = |one: &Listener, other: &Listener| format!("{one:?}") == format!("{other:?}");
        let mut kept = Vec::new();
        for (listener, running) in self.running.drain(..) {
            if wanted.iter().any(|wanted| is_same(wanted, &listener)) {
                kept.push((listener, running));
            } else {
                running.stop().await;
            }
        }
        self.running = kept;
        let mut failure = None;
        for listener in wanted {
            if self.running.iter().any(|(known, _)| is_same(known, listener)) {
                continue;
            }
            let running = match listener::start(state, listener, self.installed.plan()) {
                Ok(running) => running,
                Err(error) => {
                    failure.get_or_insert(error);
                    continue;
                }
            };
            self.running.push((listener.clone(), running));
            let (listen, to) = (listener.listen, &listener.service);
            tracing::info!(target: "ropewalk::gateway", listener = listener.name, %listen, %to, "listening");
        }
        // Whoever isn't listed any more is out, whatever else failed.
        if let Some(far) = &state.far {
            far.serve(&wanted.iter().filter_map(|one| tunnel_of(state, one)).collect::<Vec<_>>()).await;
        }
        failure.map_or(Ok(()), Err)
    }

    pub async fn reload(&mut self, state: &Arc<State>, settings: &Settings) -> io::Result<()> {
        if state.far.is_none() && settings.listeners.iter().any(Listener::has_tunnel) {
            let message = "the first listener with `udp` and `key` needs a restart";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let mut sockets = settings.sockets();
        self.installed.plan().with_ports(&sockets)?;
        // Connections of a listener that goes still need its rules.
        sockets.extend(self.sockets_of_connections(state));
        self.set_ports(state, &sockets)?;
        if let Some(far) = &state.far {
            self.installed.set_inbound(far.give(&settings.inbound))?;
            self.tell(state);
        }
        self.change(state, &settings.listeners).await
    }

    /// Where connections were accepted, on every address.
    fn sockets_of_connections(&self, state: &State) -> Vec<SocketAddr> {
        let ports: BTreeSet<u16> =
            state.flows().iter().map(|(_, flow)| flow.stream.local_addr().port()).collect();
        let addresses = self.installed.plan().uplinks.iter().map(|uplink| uplink.public.address);
        addresses.flat_map(|address| ports.iter().map(move |port| SocketAddr::new(address, *port))).collect()
    }

    fn set_ports(&mut self, state: &State, sockets: &[SocketAddr]) -> io::Result<()> {
        self.installed.set_ports(sockets)?;
        self.tell(state);
        Ok(())
    }

    fn tell(&self, state: &State) {
        state.plan.lock().unwrap_or_else(PoisonError::into_inner).clone_from(self.installed.plan());
    }

    /// Follows the host's network, and repairs the set-up. An error means that it can't be repaired.
    pub async fn keep(&mut self, state: &State, change: Option<Change>) -> io::Result<()> {
        // The rules are asked for when they changed: that costs a program's start.
        let look = move || {
            let rules = (change == Some(Change::Rules)).then(|| listing(TABLE));
            Host::read().map(|host| (host, rules))
        };
        let Ok(Ok((host, rules))) = tokio::task::spawn_blocking(look).await else { return Ok(()) };
        self.installed.check(&host)?;
        match self.installed.keep(&host, rules) {
            Ok(()) => self.tell(state),
            Err(error) => {
                tracing::warn!(target: "ropewalk::gateway", %error, "the set-up can't follow the host's \
                    network");
            }
        }
        Ok(())
    }

    /// Gives ports back to the kernel that listeners left, once their connections have ended.
    pub fn release_ports(&mut self, state: &State) {
        let mut sockets: Vec<SocketAddr> =
            self.running.iter().flat_map(|(listener, _)| listener.sockets().collect::<Vec<_>>()).collect();
        sockets.extend(self.sockets_of_connections(state));
        let known = |socket: &SocketAddr| sockets.contains(socket);
        if self.installed.plan().sockets().all(|socket| known(&socket)) {
            return;
        }
        sockets.retain(|socket| self.installed.plan().sockets().any(|held| held == *socket));
        if let Err(error) = self.set_ports(state, &sockets) {
            tracing::warn!(target: "ropewalk::gateway", %error, "rules can't be replaced");
        }
    }

    pub async fn stop(&mut self) {
        for (_, running) in self.running.drain(..) {
            running.stop().await;
        }
    }
}
