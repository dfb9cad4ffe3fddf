//! Flows: the clients' connections that are relayed, as links and policies see them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ropewalk_tokio::{MptcpStream, PathId, StreamInfo, SubflowInfo};
use tokio::time::Instant;

use super::client::Client;
use super::keep_alive::KeepAlive;
use super::link::{DEAD, Link, find};
use super::policy::Plan;
use super::remote::Opened;
use crate::memory::{BEYOND_WINDOW, Holder, Progress};
use crate::target::Target;
use crate::tls::Secure;
use crate::windows::Window;

/// One connection through the proxy: a client's, that of a client's datagrams (UDP ASSOCIATE), or the stream
/// of the tunnel.
#[derive(Debug)]
pub struct ProxiedConnection {
    /// Counts from 1.
    pub id: u64,
    /// The client.
    pub client: Client,
    /// Where it wanted to go.
    pub target: Target,
    /// The address of it that was chosen.
    pub address: SocketAddr,
    /// The connection.
    pub stream: Arc<MptcpStream>,
    /// TLS on the connection, until the data is carried.
    secure: Mutex<Option<Secure>>,
    /// The gateway hasn't answered yet that the server is there.
    pub(super) is_early: bool,
    /// The link that it was opened on.
    pub opened_on: usize,
    /// When it began.
    pub since: Instant,
    /// Bytes from the client.
    pub uploaded: AtomicU64,
    /// Bytes to the client.
    pub downloaded: AtomicU64,
    plan: Mutex<Plan>,
    progress: Progress,
    window: Window,
    keep_alive: Mutex<KeepAlive>,
    /// Links on which a subflow was established; it is opened again once if it is lost.
    had: Mutex<BTreeSet<usize>>,
    /// Links on which its subflow is to be replaced when they are back: their address is gone, or it was
    /// silent while they had no route.
    lost: Mutex<BTreeSet<usize>>,
    /// Links that were back a moment ago, by when, where something came by the subflow.
    returned: Mutex<BTreeMap<usize, Instant>>,
}

/// For so long after a link is back its subflow is replaced if it falls silent.
const RETURN: Duration = Duration::from_secs(3);

/// A connection that is open, and what it is for.
pub(super) struct NewFlow {
    pub client: Client,
    pub target: Target,
    pub address: SocketAddr,
    pub opened: Opened,
    pub is_early: bool,
    pub opened_on: usize,
    pub plan: Plan,
    pub window: Window,
}

impl ProxiedConnection {
    /// How its links are used.
    pub fn plan(&self) -> Plan {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// TLS on the connection, for who carries the data.
    pub(super) fn take_secure(&self) -> Option<Secure> {
        self.secure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Asks the far end whether it is still there; `soon`: where its data has stopped on a link that works.
    pub(super) fn ask(&self, soon: bool) {
        self.keep_alive().ask(&self.stream, soon);
    }

    fn keep_alive(&self) -> MutexGuard<'_, KeepAlive> {
        self.keep_alive.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Once a second: asks when data has stopped coming, once.
    pub(super) fn look(&self) {
        self.keep_alive().look(&self.stream, self.downloaded.load(Ordering::Relaxed));
    }

    /// Bytes both ways.
    pub fn bytes(&self) -> u64 {
        self.uploaded.load(Ordering::Relaxed) + self.downloaded.load(Ordering::Relaxed)
    }

    /// Gives links their roles: subflows are opened, closed, and made backups or not (MP_PRIO). The last
    /// subflow stays until there is another. `reopen`: subflows that are missing are opened again, though the
    /// plan had them. A plain TCP connection can't move.
    ///
    /// The last subflow stays open though its link is dead. When that is back another one takes its place at
    /// once: its retransmission timer has doubled, and where the kernel masquerades, its NAT state is gone.
    /// What comes by the old one just then may have waited for an ARP answer on the way, and says nothing of
    /// either end's timers: it stays only if more follows.
    pub(super) fn apply(&self, plan: Plan, links: &[Arc<Link>], reopen: bool) {
        let mut kept = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(info) = self.stream.info() else { return };
        if kept.scheduler != plan.scheduler {
            // It is gone between the two calls at worst.
            let _ = self.stream.set_scheduler(&plan.scheduler);
        }
        let remote = self.stream.peer_addr();
        note_path_mtus(&info, links);
        let mut had = self.had.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        let mut returned = self.returned.lock().unwrap_or_else(PoisonError::into_inner);
        for link in links.iter().filter(|_| info.multipath) {
            let own = || info.subflows.iter().filter(|one| one.path == link.path());
            if own().any(|one| !one.tcp.rtt.smoothed.is_zero()) {
                link.note_answer(remote, Some(&info));
                had.insert(link.index);
            }
            let is_missing = own().next().is_none();
            let was_lost = is_missing && had.remove(&link.index);
            let since = returned.get(&link.index).copied();
            let was_left = kept.backup(link.index).is_none() || since.is_some();
            let most = if since.is_some() { DEAD / 2 } else { DEAD };
            let works = |one: &SubflowInfo| Duration::from(one.tcp.last_recv) < most;
            let is_usable = link.is_usable(remote.is_ipv6());
            if !link.has_route(remote.is_ipv6()) && !is_missing && !own().any(works) {
                lost.insert(link.index);
            }
            let is_gone = reopen || lost.contains(&link.index);
            let is_back = was_left && is_usable && (is_gone || !own().any(works));
            returned.remove(&link.index);
            if was_left && is_usable && !is_missing && !is_back {
                let since = since.unwrap_or_else(Instant::now);
                (since.elapsed() < RETURN).then(|| returned.insert(link.index, since));
            }
            match plan.backup(link.index) {
                None if !is_missing => self.stream.remove_path(link.path()),
                Some(backup) if is_back || is_missing && (reopen || was_left || was_lost) => {
                    if !is_missing {
                        self.stream.remove_path(link.path());
                    }
                    if is_back {
                        lost.remove(&link.index);
                        // The peer may hear of the one that is gone after this one, and take it for this.
                        had.insert(link.index);
                    }
                    self.stream.add_path(&link.endpoint(remote.is_ipv6(), backup), Some(remote));
                }
                Some(backup) if own().any(|one| one.backup_local != backup) => {
                    self.stream.set_backup(link.path(), backup);
                }
                _ => {}
            }
        }
        *kept = plan;
        kept.roles.retain(|role| find(links, role.link).is_some_and(|link| link.is_usable(remote.is_ipv6())));
    }

    /// Tells links what its subflows have found of their paths. A flow may end before it is looked at.
    pub(super) fn note_paths(&self, links: &[Arc<Link>]) {
        if let Some(info) = self.stream.info() {
            note_path_mtus(&info, links);
        }
    }

    /// Whether it has subflows on a link.
    pub(super) fn is_on(&self, link: &Link) -> bool {
        let info = self.stream.info();
        info.is_some_and(|info| info.subflows.iter().any(|one| one.path == link.path()))
    }

    /// Ends it if it has subflows on a link, and on no other that works.
    pub(super) fn end_alone(&self, link: &Link, links: &[Arc<Link>]) {
        let (info, v6) = (self.stream.info(), self.stream.peer_addr().is_ipv6());
        let is_usable = |path: PathId| find(links, path.0.into()).is_some_and(|link| link.is_usable(v6));
        let mut subflows = info.iter().flat_map(|info| &info.subflows);
        if self.is_on(link) && subflows.all(|one| one.path == link.path() || !is_usable(one.path)) {
            tracing::debug!(flow = self.id, link = link.name, "reset: it has no other link");
            self.stream.reset();
        }
    }

    /// A link has another address: closes what is open on it, as [`ProxiedConnection::leave_link`] does. A
    /// plain TCP connection ends with its address.
    pub(super) fn lose_address(&self, link: &Link) {
        if self.is_on(link) && self.stream.info().is_some_and(|info| !info.multipath) {
            tracing::debug!(flow = self.id, "reset: a plain TCP connection whose address is gone");
            self.stream.reset();
        }
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).insert(link.index);
        self.leave_link(link);
    }

    /// Closes this connection's subflows on a link (the last one only once there is another), and takes the
    /// link out of its plan.
    pub(super) fn leave_link(&self, link: &Link) {
        if self.stream.info().is_some_and(|info| info.multipath) {
            self.stream.remove_path(link.path());
        }
        let mut kept = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        kept.roles.retain(|role| role.link != link.index);
    }
}

impl Holder for ProxiedConnection {
    fn client(&self) -> IpAddr {
        self.client.address.ip()
    }

    fn stream(&self) -> &MptcpStream {
        &self.stream
    }

    fn stalled(&self, now: Instant) -> Duration {
        self.progress.stalled(self.bytes(), now)
    }

    fn is_asking(&self) -> bool {
        false
    }

    fn window(&self) -> &Window {
        &self.window
    }
}

/// Tells links the path MTU that subflows have found.
fn note_path_mtus(info: &StreamInfo, links: &[Arc<Link>]) {
    for one in info.subflows.iter().filter(|one| one.tcp.totals.delivered > 0) {
        if let Some(link) = find(links, one.path.0.into()) {
            link.note_path_mtu(one.tcp.pmtu);
        }
    }
}

/// All flows.
#[derive(Debug, Default)]
pub struct Flows {
    next: AtomicU64,
    flows: Mutex<BTreeMap<u64, Arc<ProxiedConnection>>>,
}

impl Flows {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<ProxiedConnection>>> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a flow, for as long as the returned entry lives.
    pub(super) fn add(self: &Arc<Flows>, new: NewFlow) -> Entry {
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let Opened { stream, secure, keep_alive } = new.opened;
        // It is gone at worst.
        let _ = stream.set_unsent_beyond_window(Some(BEYOND_WINDOW));
        let flow = Arc::new(ProxiedConnection {
            id,
            client: new.client,
            target: new.target,
            address: new.address,
            stream,
            secure: Mutex::new(secure),
            is_early: new.is_early,
            opened_on: new.opened_on,
            since: Instant::now(),
            uploaded: AtomicU64::new(0),
            downloaded: AtomicU64::new(0),
            plan: Mutex::new(new.plan),
            progress: Progress::default(),
            window: new.window,
            keep_alive: Mutex::new(KeepAlive::new(keep_alive)),
            had: Mutex::default(),
            lost: Mutex::default(),
            returned: Mutex::default(),
        });
        self.lock().insert(id, Arc::clone(&flow));
        Entry { flows: Arc::clone(self), flow }
    }

    /// Those that there are, the oldest first.
    pub fn all(&self) -> Vec<Arc<ProxiedConnection>> {
        self.lock().values().cloned().collect()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// How many there have been.
    pub fn total(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }
}

/// A flow's place among all.
#[derive(Debug)]
pub(super) struct Entry {
    flows: Arc<Flows>,
    pub flow: Arc<ProxiedConnection>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.flows.lock().remove(&self.flow.id);
    }
}
