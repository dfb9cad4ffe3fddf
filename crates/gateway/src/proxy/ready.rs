//! Connections to the gateway that are kept ready: a client that takes one waits for no handshake, neither of
//! TCP nor of TLS, and finds the other links joined or about to be. The gateway drops what has asked for
//! nothing within a minute, so they are replaced before.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ropewalk_tokio::StreamInfo;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::link::Link;
use super::policy::Plan;
use super::remote::Opened;
use crate::target::Target;

/// A connection is replaced after so long.
const LIFETIME: Duration = Duration::from_secs(45);

#[derive(Debug)]
struct Waiting {
    gateway: Target,
    opened: Opened,
    link: Arc<Link>,
    since: Instant,
}

impl Waiting {
    fn is_good(&self) -> bool {
        let is_open = || self.opened.stream.info().is_some_and(|info| !info.subflows.is_empty());
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

    /// One to this gateway that was opened on a link that this plan uses.
    pub fn take(&self, gateway: &Target, plan: &Plan) -> Option<(Opened, Arc<Link>)> {
        let mut waiting = self.lock();
        let fits = |one: &Waiting| {
            let mut active = plan.roles.iter().filter(|role| !role.backup);
            let is_used = active.any(|role| role.link == one.link.index);
            one.gateway == *gateway && is_used && one.is_good()
        };
        let at = waiting.iter().position(fits)?;
        let one = waiting.remove(at)?;
        drop(waiting);
        self.taken.notify_one();
        Some((one.opened, one.link))
    }

    /// Returns when one was taken.
    pub async fn taken(&self) {
        self.taken.notified().await;
    }

    /// Adds one.
    pub fn put(&self, gateway: Target, opened: Opened, link: Arc<Link>) {
        self.lock().push_back(Waiting { gateway, opened, link, since: Instant::now() });
    }

    /// Drops all, which resets them.
    pub fn clear(&self) {
        for one in self.lock().drain(..) {
            one.opened.stream.reset();
        }
    }

    /// Drops those that have subflows on a link, in IPv4 or IPv6: its address has changed.
    pub fn leave(&self, link: &Link, is_changed: [bool; 2]) {
        self.lock().retain(|one| {
            let is_on_it = |info: StreamInfo| info.subflows.iter().any(|one| one.path == link.path());
            let is_left = is_changed[usize::from(one.opened.stream.peer_addr().is_ipv6())]
                && one.opened.stream.info().is_some_and(is_on_it);
            if is_left {
                one.opened.stream.reset();
            }
            !is_left
        });
        self.taken.notify_one();
    }

    /// Drops what is of no use any more; how many are left.
    pub fn prune(&self) -> usize {
        let mut waiting = self.lock();
        waiting.retain(|one| {
            let is_good = one.is_good();
            if !is_good {
                one.opened.stream.reset();
            }
            is_good
        });
        waiting.len()
    }
}
