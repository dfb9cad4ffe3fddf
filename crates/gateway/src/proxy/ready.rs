//! Connections to the gateway that are kept ready: a client that takes one waits for no handshake, neither of TCP nor of TLS, and finds
//! the other links joined or about to be. The gateway drops what has asked for nothing within a minute, so they are replaced before.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::link::Link;
use super::policy::Plan;
use super::remote::Opened;
use super::serve::Server;

/// A connection is replaced after so long.
const LIFETIME: Duration = Duration::from_secs(45);
/// Without a client for so long, none is kept: nothing is spent on metered links.
const UNUSED: Duration = Duration::from_secs(300);
/// How often it is looked after them.
const TICK: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Waiting {
    opened: Opened,
    link: Arc<Link>,
    since: Instant,
}

impl Waiting {
    fn is_good(&self) -> bool {
        let is_open = || self.opened.0.info().is_some_and(|info| !info.subflows.is_empty());
        self.since.elapsed() < LIFETIME && self.link.known().alive && is_open()
    }
}

/// Those that there are, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Ready {
    waiting: Mutex<VecDeque<Waiting>>,
    taken: Notify,
}

impl Ready {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One that was opened on a link that this plan uses.
    pub fn take(&self, plan: &Plan) -> Option<(Opened, Arc<Link>)> {
        let mut waiting = self.lock();
        let fits = |one: &Waiting| {
            let mut active = plan.roles.iter().filter(|role| !role.backup);
            active.any(|role| role.link == one.link.index) && one.is_good()
        };
        let at = waiting.iter().position(fits)?;
        let one = waiting.remove(at)?;
        drop(waiting);
        self.taken.notify_one();
        Some((one.opened, one.link))
    }

    /// Drops all, which resets them.
    pub fn clear(&self) {
        for one in self.lock().drain(..) {
            one.opened.0.reset();
        }
    }

    /// Drops what is of no use any more; how many are left.
    fn prune(&self) -> usize {
        let mut waiting = self.lock();
        waiting.retain(|one| {
            let is_good = one.is_good();
            if !is_good {
                one.opened.0.reset();
            }
            is_good
        });
        waiting.len()
    }
}

/// Keeps as many as the configuration says, until it is cancelled.
pub(super) async fn keep(server: Arc<Server>) {
    let (mut clients, mut used) = (0, Instant::now());
    loop {
        let _ = timeout(TICK, server.ready.taken.notified()).await;
        let seen = server.flows.total();
        if seen != clients {
            (clients, used) = (seen, Instant::now());
        }
        let config = server.config();
        let Some(gateway) = config.gateway.as_ref().filter(|_| used.elapsed() < UNUSED) else {
            server.ready.clear();
            continue;
        };
        let missing = gateway.ready.saturating_sub(server.ready.prune());
        let mut opening = JoinSet::new();
        for _ in 0..missing {
            let (server, gateway) = (Arc::clone(&server), gateway.clone());
            opening.spawn(async move { server.open_ready(&gateway).await });
        }
        while let Some(done) = opening.join_next().await {
            match done {
                Ok(Ok((opened, link))) => {
                    tracing::debug!(link = link.interface, "ready for a client");
                    server.ready.lock().push_back(Waiting { opened, link, since: Instant::now() });
                }
                Ok(Err(error)) => tracing::debug!(%error, "no connection to the gateway can be kept ready"),
                Err(_) => {}
            }
        }
    }
}
