//! What clients' requests need of the proxy.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ropewalk_tokio::Network;
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;

use super::flow::{Flows, ProxiedConnection};
use super::link::Link;
use super::policy::{self, Plan};
use super::ready::Ready;
use super::recorder::Recorder;
use super::remote::{in_order, until_answered};
use super::resolvers::Resolvers;
use super::settings::Settings;
use super::usage::QuotaUsage;
use crate::carry::{ByteCounters, Carried, Lost, carry, carry_encrypted, reset};
use crate::guesses::Guesses;
use crate::memory::Pressure;
use crate::per_address::PerAddress;
use crate::target::Target;
use crate::tunnel::Seen;
use crate::udp::associate::Association;

/// How often it is looked whether flows have ended.
const PAUSE: Duration = Duration::from_millis(20);
/// Most destinations that a link is probed with, in turn.
const MOST_TARGETS: usize = 4;
/// How often subflows that are missing are opened again.
const REOPEN: Duration = Duration::from_secs(10);
/// The proxy, as clients' tasks see it.
#[derive(Debug)]
pub struct Server {
    pub(super) settings: Mutex<Arc<Settings>>,
    /// Places for clients: `connections` of the configuration, whichever way they come.
    pub(super) places: Arc<Semaphore>,
    /// Places by address.
    pub(super) by_address: Arc<PerAddress>,
    /// The engine.
    pub network: Network,
    /// The uplinks.
    links: Mutex<Arc<Vec<Arc<Link>>>>,
    /// The clients' connections.
    pub flows: Arc<Flows>,
    /// What links with a quota have carried.
    pub(super) usage: Mutex<Option<QuotaUsage>>,
    /// Connections to the gateway that wait for clients.
    pub(super) ready: Ready,
    /// What is seen of the tunnel for datagrams.
    pub datagrams: Arc<Seen>,
    /// What is known of resolvers.
    pub(super) resolvers: Resolvers,
    /// What happened in the last hour.
    pub recorder: Recorder,
    /// When the proxy began.
    pub started: Instant,
    /// Connections that couldn't be opened.
    pub failed: AtomicU64,
    /// Connections that ended by a reset.
    pub lost: AtomicU64,
    /// Connections that were reset because they made no progress.
    pub evicted: AtomicU64,
    pub(super) pressure: Pressure,
    /// When the log last warned that the gateway can't be used.
    pub(super) warned_of_gateway: Mutex<Option<Instant>>,
    /// Addresses with wrong passwords.
    pub(super) guesses: Guesses,
    pub(super) draining: AtomicBool,
    /// What links may carry has changed.
    pub(super) rates_changed: Notify,
    /// Whether connections are to end.
    pub(super) stopping: watch::Sender<bool>,
}

impl Server {
    /// A proxy with nothing to do yet.
    pub(super) fn new(
        settings: Settings,
        network: Network,
        links: Vec<Arc<Link>>,
        usage: Option<QuotaUsage>,
        started: Instant,
    ) -> Server {
        let pressure = Pressure::new(settings.memory, settings.stalled);
        Server {
            places: Arc::new(Semaphore::new(settings.most_connections)),
            by_address: Arc::default(),
            settings: Mutex::new(Arc::new(settings)),
            network,
            links: Mutex::new(Arc::new(links)),
            flows: Arc::default(),
            usage: Mutex::new(usage),
            ready: Ready::default(),
            datagrams: Arc::default(),
            resolvers: Resolvers::default(),
            recorder: Recorder::default(),
            started,
            failed: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            pressure,
            warned_of_gateway: Mutex::default(),
            guesses: Guesses::default(),
            draining: AtomicBool::new(false),
            rates_changed: Notify::new(),
            stopping: watch::Sender::new(false),
        }
    }

    /// The uplinks, in the configuration's order.
    pub fn links(&self) -> Arc<Vec<Arc<Link>>> {
        Arc::clone(&self.links.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Uses these links from now on.
    pub(super) fn set_links(&self, links: Vec<Arc<Link>>) {
        *self.links.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(links);
    }

    /// Whether it is about to end.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    /// What it is told now.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Follows another configuration, which needs no restart ([`Settings::needs_restart`]).
    pub(super) fn set_settings(&self, settings: Settings) -> io::Result<()> {
        {
            let mut usage = self.usage.lock().unwrap_or_else(PoisonError::into_inner);
            if usage.is_none() && settings.has_quota() {
                *usage = Some(QuotaUsage::open(&settings.usage)?);
            }
        }
        for (link, told) in self.links().iter().zip(&settings.links) {
            link.set_settings(told.clone());
            if settings.captive_check.is_none() {
                link.learn(|known| (known.captive, known.doubted) = (false, false));
            }
        }
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
        self.ready.clear();
        self.apply_policies(false);
        Ok(())
    }

    /// How a connection is to use the links as they are. `address`: the server's; `v6`: whether the
    /// connection itself goes over IPv6.
    pub(super) fn plan(
        &self,
        target: &Target,
        address: SocketAddr,
        v6: bool,
        dscp: u8,
        bytes: u64,
        old: Option<&Plan>,
    ) -> Plan {
        let settings = self.settings();
        let policy = settings.policies.policy(target, address.ip(), dscp, bytes);
        policy::plan(policy, &self.links(), v6, old)
    }

    /// Carries a client's datagrams until the client ends that.
    pub(super) async fn associate(
        &self,
        mut control: TcpStream,
        association: Association,
        flow: &ProxiedConnection,
    ) -> io::Result<()> {
        let carried = Carried { from_stream: &flow.downloaded, to_stream: &flow.uploaded };
        let mut stopping = self.stopping.subscribe();
        let carrying = async {
            match flow.take_secure() {
                None => association.carry(&mut control, &*flow.stream, &*flow.stream, carried).await,
                Some(secure) => {
                    let (reader, writer) = tokio::io::split(secure);
                    association.carry(&mut control, reader, writer, carried).await
                }
            }
        };
        let done = tokio::select! {
            done = carrying => done,
            _ = stopping.wait_for(|stopping| *stopping) => {
                Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the proxy is stopping"))
            }
        };
        match done {
            Ok(()) => flow.stream.close_write(),
            Err(_) => flow.stream.reset(),
        }
        done
    }

    pub(super) fn apply(&self, flow: &ProxiedConnection, reopen: bool) {
        let plan = {
            let (v6, dscp) = (flow.stream.peer_addr().is_ipv6(), flow.client.dscp);
            self.plan(&flow.target, flow.address, v6, dscp, flow.bytes(), Some(&flow.plan()))
        };
        flow.apply(plan, &self.links(), reopen);
    }

    /// Has all flows follow their policies with the links as they are. `reopen`: see
    /// [`ProxiedConnection::apply`].
    pub(super) fn apply_policies(&self, reopen: bool) {
        for flow in self.flows.all() {
            self.apply(&flow, reopen && flow.since.elapsed() >= REOPEN);
        }
    }

    /// Tells the engine what the links carry.
    pub(super) fn apply_mtus(&self) {
        let most = self.settings().mtu.unwrap_or(u32::MAX);
        for link in self.links().iter() {
            self.network.set_path_mtu(link.path(), link.mtu().min(most));
        }
    }

    /// Asks all flows' far ends whether they are still there.
    pub(super) fn ask_peers(&self) {
        self.flows.all().iter().for_each(|flow| flow.ask(false));
    }

    /// Data has stopped on a link that works: asks the far ends of the flows on it. An address translator on
    /// the way may have lost its state.
    pub(super) fn ask_peers_on(&self, link: &Link) {
        self.flows.all().iter().filter(|flow| flow.is_on(link)).for_each(|flow| flow.ask(true));
    }

    /// Has flows use a link that works, or leave one that doesn't.
    pub(super) fn on_link_change(&self, link: &Link) {
        let state = link.state();
        tracing::warn!(link = link.name, %state, "link changed");
        self.apply_policies(false);
    }

    /// The address of a link's connections is gone, in IPv4 or IPv6: what is open on it has to be opened
    /// again.
    pub(super) fn on_address_change(&self, link: &Link, is_changed: [bool; 2]) {
        tracing::warn!(link = link.name, "its address changed");
        link.learn(|known| {
            for (changes, is_changed) in known.address_changes.iter_mut().zip(is_changed) {
                *changes += u32::from(is_changed);
            }
        });
        self.ready.leave(link, is_changed);
        let all = self.flows.all().into_iter();
        for flow in all.filter(|flow| is_changed[usize::from(flow.stream.peer_addr().is_ipv6())]) {
            flow.lose_address(link);
            self.apply(&flow, true);
        }
    }

    /// One of several addresses of a link's interface is gone, in IPv4 or IPv6. Which connections had it the
    /// kernel knows: their far ends answer a question with a reset.
    pub(super) fn on_address_loss(&self, link: &Link, is_lost: [bool; 2]) {
        tracing::warn!(link = link.name, "one of its addresses is gone");
        self.ready.leave(link, is_lost);
        self.ask_peers_on(link);
    }

    /// Where a link is probed, in turn, and whether silence tells of the link: one of them has answered
    /// before. A link that hasn't been seen working tries what answers over others, which it needn't reach.
    pub(super) fn probe_targets(&self, link: &Link) -> (Vec<SocketAddr>, bool) {
        let settings = self.settings();
        let has_route = |target: &SocketAddr| link.has_route(target.is_ipv6());
        if let Some(probe) = settings.probe {
            return (Some(probe).filter(has_route).into_iter().collect(), true);
        }
        let gateways: Vec<_> = in_order(&settings.gateways).iter().filter_map(|one| one.address()).collect();
        let answered: Vec<_> = self.links().iter().filter_map(|link| link.answered()).collect();
        let is_telling =
            link.answered().is_some() || gateways.iter().any(|gateway| answered.contains(gateway));
        let others = answered.into_iter().filter(|_| !link.known().seen);
        let mut targets: Vec<SocketAddr> = Vec::new();
        for target in link.answered().into_iter().chain(gateways).chain(others).filter(has_route) {
            if targets.len() < MOST_TARGETS && !targets.contains(&target) {
                targets.push(target);
            }
        }
        (targets, is_telling)
    }

    /// What checks for captive portals say together: where no link passes, the check is wrong, or the page is
    /// gone.
    pub(super) fn judge_captive_checks(&self) {
        let links = self.links();
        let alive = || links.iter().filter(|link| link.known().reach.any() && link.known().alive);
        let was = links.iter().any(|link| link.known().doubted);
        let fails = |link: &Arc<Link>| link.known().captive && (was || link.known().checked);
        let is_doubted = alive().next().is_some() && alive().all(fails);
        if is_doubted && !was {
            tracing::warn!("no link passes the captive check: it isn't believed, and all links are used");
        }
        for link in links.iter() {
            let before = link.state();
            link.learn(|known| known.doubted = is_doubted);
            if link.state() != before {
                self.on_link_change(link);
            }
        }
    }

    /// Relays what a client sends and receives.
    pub(super) async fn relay(
        &self,
        mut client: TcpStream,
        first: Bytes,
        flow: &ProxiedConnection,
    ) -> io::Result<()> {
        // Its segments are few and large; Nagle's algorithm would only delay the last.
        let _ = client.set_nodelay(true);
        let mut stopping = self.stopping.subscribe();
        let (from_stream, to_stream) = (&flow.downloaded, &flow.uploaded);
        let counters = ByteCounters { from_stream, to_stream, pressure: &self.pressure };
        let carrying = async {
            let (mut secure, mut first) = (flow.take_secure(), first);
            if flow.is_early {
                let (data, sent) = (std::mem::take(&mut first), &flow.uploaded);
                let answered = match &mut secure {
                    None => Box::pin(until_answered(&mut &*flow.stream, &mut client, data, sent)).await,
                    Some(secure) => Box::pin(until_answered(secure, &mut client, data, sent)).await,
                };
                answered.map_err(|error| {
                    reset(&client);
                    flow.stream.reset();
                    Lost::Stream(error)
                })?;
            }
            match secure {
                None => carry(&flow.stream, &mut client, first, counters).await,
                Some(secure) => {
                    Box::pin(carry_encrypted(secure, &flow.stream, &mut client, first, counters)).await
                }
            }
        };
        tokio::select! {
            done = carrying => return done.map_err(io::Error::other),
            _ = stopping.wait_for(|stopping| *stopping) => {}
        }
        // Neither side is to take what it has for all.
        reset(&client);
        flow.stream.reset();
        Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the proxy is stopping"))
    }

    /// Waits until all flows have ended, for at most `limit`.
    pub(super) async fn drain(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        while !self.flows.is_empty() && Instant::now() < deadline {
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Ends what flows there still are.
    pub(super) async fn end_flows(&self) {
        let left = self.flows.all().len();
        if left > 0 {
            tracing::warn!(connections = left, "reset");
            self.stopping.send_replace(true);
        }
        self.ready.clear();
        // The last segments are on their way.
        tokio::time::sleep(PAUSE).await;
    }

    /// Notes that a flow has ended.
    pub(super) fn ended(&self, flow: &ProxiedConnection, how: &io::Result<()>) {
        flow.note_paths(&self.links());
        self.recorder.note_end(flow);
        if how.is_err() {
            self.lost.fetch_add(1, Relaxed);
        }
        let (up, down) = (flow.uploaded.load(Relaxed), flow.downloaded.load(Relaxed));
        match how {
            Ok(()) => tracing::debug!(flow = flow.id, up, down, "closed"),
            Err(error) => tracing::debug!(flow = flow.id, up, down, %error, "lost"),
        }
    }
}
