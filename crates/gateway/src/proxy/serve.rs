//! What clients' requests need of the proxy.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ropewalk_engine::config::LocalEndpoint;
use ropewalk_engine::{congestion, scheduler};
use ropewalk_tokio::{ConnectionConfig, Network, default_config};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout, timeout_at};

use super::client::Client;
use super::config::{Config, OpeningLink};
use super::dial::dial;
use super::flow::{Entry, Flows, ProxiedConnection};
use super::link::{Link, find};
use super::policy::{self, Plan, Role};
use super::ready::Ready;
use super::recorder::Recorder;
use super::remote::{Gateway, Opened, Wish, until_answered};
use super::resolvers::Resolvers;
use super::usage::QuotaUsage;
use crate::carry::{ByteCounters, Lost, carry, carry_encrypted, reset};
use crate::guesses::Guesses;
use crate::target::Target;
use crate::udp::{associate::Association, relay::Carried};

/// How often it is looked whether flows have ended.
const PAUSE: Duration = Duration::from_millis(20);
/// How often subflows that are missing are opened again.
const REOPEN: Duration = Duration::from_secs(10);
/// The least time between two warnings that the gateway can't be used.
const WARN_INTERVAL: Duration = Duration::from_secs(60);

/// Whether a gateway's answer is about the server that it was asked for, and not about itself or who asks.
fn is_about_server(answer: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    matches!(answer.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable)
}

/// The proxy, as clients' tasks see it.
#[derive(Debug)]
pub struct Server {
    pub(super) config: Mutex<Arc<Config>>,
    /// Places for clients: `connections` of the configuration, whichever way they come.
    pub(super) places: Arc<Semaphore>,
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
    /// When the log last warned that the gateway can't be used.
    warned_of_gateway: Mutex<Option<Instant>>,
    /// Addresses with wrong passwords.
    guesses: Guesses,
    pub(super) draining: AtomicBool,
    /// Whether connections are to end.
    pub(super) stopping: watch::Sender<bool>,
}

impl Server {
    /// A proxy with nothing to do yet.
    pub(super) fn new(
        config: Config,
        network: Network,
        links: Vec<Arc<Link>>,
        usage: Option<QuotaUsage>,
        started: Instant,
    ) -> Server {
        Server {
            places: Arc::new(Semaphore::new(config.most_flows)),
            config: Mutex::new(Arc::new(config)),
            network,
            links: Mutex::new(Arc::new(links)),
            flows: Arc::default(),
            usage: Mutex::new(usage),
            ready: Ready::default(),
            resolvers: Resolvers::default(),
            recorder: Recorder::default(),
            started,
            failed: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            warned_of_gateway: Mutex::default(),
            guesses: Guesses::default(),
            draining: AtomicBool::new(false),
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
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a client may use the proxy, by the name and password that it gives. Wrong ones cost time.
    pub(super) async fn knows(&self, client: Client, given: Option<(&str, &str)>) -> bool {
        let config = self.config();
        match given {
            _ if config.access.users.is_empty() => true,
            None => false,
            Some((name, password)) => {
                let is_right = || config.access.knows(name, password);
                self.guesses.check(client.address, name, is_right).await
            }
        }
    }

    /// Follows another configuration, which needs no restart ([`Config::needs_restart`]).
    pub(super) fn set_config(&self, config: Config) -> io::Result<()> {
        {
            let mut usage = self.usage.lock().unwrap_or_else(PoisonError::into_inner);
            if usage.is_none() && config.has_quota() {
                *usage = Some(QuotaUsage::open(&config.usage)?);
            }
        }
        for (link, via) in self.links().iter().zip(&config.via) {
            link.set_via(via.clone());
            if config.captive_check.is_none() {
                link.learn(|known| (known.captive, known.doubted) = (false, false));
            }
        }
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
        self.ready.clear();
        self.apply_policies(false);
        Ok(())
    }

    /// A target's addresses. Where the system's resolver has none, as without a default route of the kernel's, the links are asked.
    pub(super) async fn resolve(&self, target: &Target) -> io::Result<Vec<SocketAddr>> {
        let error = match (target.resolve().await, target) {
            (Err(error), Target::Name(..)) if self.config().names_over_links => error,
            (found, _) => return found,
        };
        match target {
            Target::Name(name, port) => match self.addresses_over(name, &self.links()).await {
                Ok(found) => Ok(found.into_iter().map(|address| SocketAddr::new(address, *port)).collect()),
                Err(_) => Err(error),
            },
            Target::Address(_) => Err(error),
        }
    }

    /// How a connection is to use the links as they are. `address`: the server's; `v6`: whether the connection itself goes over IPv6.
    fn plan(
        &self,
        target: &Target,
        address: SocketAddr,
        v6: bool,
        dscp: u8,
        bytes: u64,
        old: Option<&Plan>,
    ) -> Plan {
        let config = self.config();
        let policy = config.policies.policy(target, address.ip(), dscp, bytes);
        policy::plan(policy, &self.links(), v6, old)
    }

    /// Settings of a connection that is opened now.
    fn connection_config(&self, plan: &Plan, dscp: u8) -> io::Result<ConnectionConfig> {
        let wrong = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
        let mut config = default_config();
        config.scheduler = scheduler::builtin().parse(&plan.scheduler).map_err(wrong)?;
        let told = self.config();
        config.congestion = congestion::builtin().parse(&told.congestion).map_err(wrong)?;
        config.path_manager.early_join = told.early_join;
        config.tcp.dscp = dscp;
        config.tcp.black_hole_detection = true;
        let links = self.links();
        for role in &plan.roles {
            let Some(link) = find(&links, role.link) else { continue };
            for v6 in [false, true].into_iter().filter(|v6| link.is_usable(*v6)) {
                config.path_manager.endpoints.push(LocalEndpoint {
                    address: link.address(v6),
                    port: None,
                    path: link.path(),
                    id: link.id(),
                    signal: false,
                    subflow: true,
                    backup: role.backup,
                });
            }
        }
        Ok(config)
    }

    /// The links that a connection may be opened on, the best first, and how many of them are tried at once.
    fn openings(&self, plan: &Plan, address: SocketAddr, is_ordered: bool) -> (Vec<Arc<Link>>, usize) {
        let all = self.links();
        let mut links: Vec<_> =
            plan.roles.iter().filter_map(|role| find(&all, role.link).map(Arc::clone)).collect();
        // Those that stand by come last, and behind them those that may never have worked.
        let is_seen = |role: &&Role| find(&all, role.link).is_some_and(|link| link.known().seen);
        let active = || plan.roles.iter().take_while(|role| !role.backup);
        let active = match active().filter(is_seen).count() {
            0 => active().count(),
            seen => seen,
        };
        links.sort_by_key(|link| !link.known().seen);
        let mut at_once = 1;
        match self.config().open_on {
            _ if is_ordered => {}
            OpeningLink::Nearest => {}
            OpeningLink::Race => at_once = active.max(1),
            OpeningLink::Remember => {
                let paths = links[..active.min(links.len())].iter().map(|link| link.path());
                let best = self.network.remembered_path(address.ip(), paths);
                if let Some(at) = links.iter().position(|link| Some(link.path()) == best) {
                    links[..=at].rotate_right(1);
                }
            }
        }
        (links, at_once)
    }

    /// Opens a connection for a client.
    pub(super) async fn open(&self, client: Client, target: Target) -> io::Result<Entry> {
        let opened = self.try_open(client, target).await;
        if opened.is_err() {
            self.failed.fetch_add(1, Relaxed);
        }
        opened
    }

    async fn try_open(&self, client: Client, target: Target) -> io::Result<Entry> {
        let addresses = self.resolve(&target).await?;
        let Some(first) = addresses.first() else {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no address"));
        };
        let all = self.config();
        let far = all.gateway.as_ref().map_or(*first, |gateway| gateway.address);
        let plan = self.plan(&target, *first, far.is_ipv6(), client.dscp, 0, None);
        let config = self.connection_config(&plan, client.dscp)?;
        let policy = all.policies.policy(&target, first.ip(), client.dscp, 0);
        let (links, at_once) = self.openings(&plan, far, policy.mode.is_ordered());
        let mut was_ready = false;
        let (stream, link, address) = match &all.gateway {
            None => {
                let limit = all.connect_timeout;
                let (stream, link) =
                    dial(&self.network, &addresses, (&links, at_once), &config, limit).await?;
                let address = stream.peer_addr();
                ((Arc::new(stream), None), link, address)
            }
            Some(gateway) => {
                let deadline = Instant::now() + all.connect_timeout;
                match self.ask_ready(gateway, *first, &plan, client.dscp).await {
                    Some(asked) => {
                        was_ready = true;
                        asked
                    }
                    None => {
                        let links = (&links[..], at_once);
                        self.open_through(gateway, &addresses, links, &config, deadline).await?
                    }
                }
            }
        };
        let info = stream.0.info();
        link.note_answer(stream.0.peer_addr(), info.as_ref());
        let multipath = info.is_some_and(|info| info.multipath);
        let is_early = all.gateway.as_ref().is_some_and(|gateway| gateway.early);
        let entry = self.flows.add(client, target, address, stream, is_early, link.index, plan);
        // Links may have changed meanwhile.
        self.apply(&entry.flow, false);
        tracing::debug!(
            flow = entry.flow.id, %client, target = %entry.flow.target, link = link.name, multipath, was_ready, "open"
        );
        Ok(entry)
    }

    /// Opens a connection to the gateway, which connects to one of a server's addresses.
    async fn open_through(
        &self,
        gateway: &Gateway,
        addresses: &[SocketAddr],
        links: (&[Arc<Link>], usize),
        config: &ConnectionConfig,
        deadline: Instant,
    ) -> io::Result<(Opened, Arc<Link>, SocketAddr)> {
        let mut first_error = None;
        for address in addresses {
            let left = deadline.saturating_duration_since(Instant::now());
            let (stream, link) = dial(&self.network, &[gateway.address], links, config, left)
                .await
                .inspect_err(|error| self.warn_of_gateway(gateway, error))?;
            let asking = async {
                let mut opened = gateway.prepare(Arc::new(stream)).await?;
                gateway.ask(&mut opened, Wish::Connection(*address)).await?;
                Ok(opened)
            };
            match timeout_at(deadline, asking).await {
                Ok(Ok(opened)) => return Ok((opened, link, *address)),
                Ok(Err(error)) => {
                    if !is_about_server(&error) {
                        self.warn_of_gateway(gateway, &error);
                    }
                    first_error.get_or_insert(error);
                }
                Err(_) => break,
            }
        }
        Err(first_error.unwrap_or_else(|| {
            io::Error::new(io::ErrorKind::TimedOut, "the gateway doesn't answer the request")
        }))
    }

    /// Warns in the log that the gateway can't be used: at most once a minute, since each client's connection fails then.
    fn warn_of_gateway(&self, gateway: &Gateway, error: &io::Error) {
        let mut warned = self.warned_of_gateway.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.is_none_or(|at| at.elapsed() >= WARN_INTERVAL) {
            *warned = Some(Instant::now());
            tracing::warn!(gateway = %gateway.address, %error, "no connection through the gateway");
        }
    }

    /// Asks the gateway for a server over a connection that is ready; `None` if there is none, or it is of no use.
    async fn ask_ready(
        &self,
        gateway: &Gateway,
        address: SocketAddr,
        plan: &Plan,
        dscp: u8,
    ) -> Option<(Opened, Arc<Link>, SocketAddr)> {
        // Segments of a connection that is ready have no code point.
        let (mut opened, link) = if dscp == 0 { self.ready.take(plan)? } else { return None };
        // The other half is left for a connection of its own.
        let limit = self.config().connect_timeout / 2;
        match timeout(limit, gateway.ask(&mut opened, Wish::Connection(address))).await {
            Ok(Ok(())) => Some((opened, link, address)),
            // The gateway may have been restarted; a refusal is heard again.
            _ => None,
        }
    }

    /// Opens a connection to the gateway that waits for a client.
    pub(super) async fn open_ready(&self, gateway: &Gateway) -> io::Result<(Opened, Arc<Link>)> {
        let (all, address) = (self.config(), gateway.address);
        let target = Target::Address(address);
        let plan = self.plan(&target, address, address.is_ipv6(), 0, 0, None);
        let config = self.connection_config(&plan, 0)?;
        let policy = all.policies.policy(&target, address.ip(), 0, 0);
        let (links, at_once) = self.openings(&plan, address, policy.mode.is_ordered());
        let limit = all.connect_timeout;
        let (stream, link) = dial(&self.network, &[address], (&links, at_once), &config, limit).await?;
        let prepared = timeout(limit, gateway.prepare(Arc::new(stream))).await;
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "TLS with the gateway isn't answered");
        let opened = prepared.map_err(late)??;
        link.note_answer(address, opened.0.info().as_ref());
        Ok((opened, link))
    }

    /// Opens a connection to the gateway for a client's datagrams. Rules see the gateway as its destination.
    pub(super) async fn open_datagrams(&self, client: Client) -> io::Result<Entry> {
        let all = self.config();
        let Some(gateway) = &all.gateway else {
            let message = "datagrams go through a gateway, and none is configured";
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        };
        let (address, target) = (gateway.address, Target::Address(gateway.address));
        let plan = self.plan(&target, address, address.is_ipv6(), client.dscp, 0, None);
        let config = self.connection_config(&plan, client.dscp)?;
        let policy = all.policies.policy(&target, address.ip(), client.dscp, 0);
        let (links, at_once) = self.openings(&plan, address, policy.mode.is_ordered());
        let deadline = Instant::now() + all.connect_timeout;
        let links = (&links[..], at_once);
        let (stream, link) = dial(&self.network, &[address], links, &config, all.connect_timeout).await?;
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the gateway doesn't answer the request");
        let asking = async {
            let mut opened = gateway.prepare(Arc::new(stream)).await?;
            gateway.ask(&mut opened, Wish::Datagrams).await?;
            Ok::<_, io::Error>(opened)
        };
        let opened = timeout_at(deadline, asking).await.map_err(late)??;
        link.note_answer(address, opened.0.info().as_ref());
        let entry = self.flows.add(client, target, address, opened, false, link.index, plan);
        self.apply(&entry.flow, false);
        tracing::debug!(flow = entry.flow.id, %client, link = link.name, "open for datagrams");
        Ok(entry)
    }

    /// Carries a client's datagrams until the client ends that.
    pub(super) async fn associate(
        &self,
        mut control: TcpStream,
        association: Association,
        flow: &ProxiedConnection,
    ) -> io::Result<()> {
        let carried = Carried { up: &flow.uploaded, down: &flow.downloaded };
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

    fn apply(&self, flow: &ProxiedConnection, reopen: bool) {
        let plan = {
            let (v6, dscp) = (flow.stream.peer_addr().is_ipv6(), flow.client.dscp);
            self.plan(&flow.target, flow.address, v6, dscp, flow.bytes(), Some(&flow.plan()))
        };
        flow.apply(plan, &self.links(), reopen);
    }

    /// Has all flows follow their policies with the links as they are. `reopen`: see [`ProxiedConnection::apply`].
    pub(super) fn apply_policies(&self, reopen: bool) {
        for flow in self.flows.all() {
            self.apply(&flow, reopen && flow.since.elapsed() >= REOPEN);
        }
    }

    /// Tells the engine what the links carry.
    pub(super) fn apply_mtus(&self) {
        let most = self.config().mtu.unwrap_or(u32::MAX);
        for link in self.links().iter() {
            self.network.set_path_mtu(link.path(), link.mtu().min(most));
        }
    }

    /// Asks all flows' far ends whether they are still there.
    pub(super) fn ask_peers(&self) {
        self.flows.all().iter().for_each(|flow| flow.ask());
    }

    /// Has flows use a link that works, or leave one that doesn't.
    pub(super) fn on_link_change(&self, link: &Link) {
        let state = link.state();
        tracing::warn!(link = link.name, %state, "link changed");
        self.apply_policies(false);
    }

    /// The address of a link's interface has changed: what is open on it has to be opened again.
    pub(super) fn on_address_change(&self, link: &Link) {
        tracing::warn!(link = link.name, "its address changed");
        for flow in self.flows.all() {
            flow.leave_link(link);
            self.apply(&flow, true);
        }
    }

    /// Where a link is probed, and whether that tells of the link: one that hasn't been seen working tries what answers over others,
    /// which it needn't reach.
    pub(super) fn probe_target(&self, link: &Link) -> Option<(SocketAddr, bool)> {
        let config = self.config();
        let told = config.probe.or_else(|| config.gateway.as_ref().map(|gateway| gateway.address));
        let of_others = || {
            let links = self.links();
            let mut others = links.iter().filter(|_| !link.known().seen);
            others.find_map(|other| other.answered().filter(|target| link.has_route(target.is_ipv6())))
        };
        let own = told.or_else(|| link.answered()).filter(|target| link.has_route(target.is_ipv6()));
        own.map(|target| (target, true)).or_else(|| Some((of_others()?, false)))
    }

    /// What checks for captive portals say together: where no link passes, the check is wrong, or the page is gone.
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
        let counters = ByteCounters { from_stream: &flow.downloaded, to_stream: &flow.uploaded };
        let carrying = async {
            let (mut secure, mut first) = (flow.take_secure(), first);
            if flow.is_early {
                let (data, sent) = (std::mem::take(&mut first), &flow.uploaded);
                let answered = match &mut secure {
                    None => until_answered(&mut &*flow.stream, &mut client, data, sent).await,
                    Some(secure) => until_answered(secure, &mut client, data, sent).await,
                };
                answered.map_err(|error| {
                    reset(&client);
                    flow.stream.reset();
                    Lost::Stream(error)
                })?;
            }
            match secure {
                None => carry(&flow.stream, &mut client, first, counters).await,
                Some(secure) => carry_encrypted(secure, &flow.stream, &mut client, first, counters).await,
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
