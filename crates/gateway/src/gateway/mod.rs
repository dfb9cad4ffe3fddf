//! The gateway: accepts with the engine, forwards to TCP servers.

mod listener;
mod listeners;
mod metrics;
mod proxy_protocol;
mod snapshot;
pub mod tunnel_server;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use ropewalk_settings::diagnostic::InputError;
use ropewalk_tokio::{ConnectionConfig, EndpointConfig, MptcpStream, Network, Path};
use tokio::signal::unix::Signal;
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::confine::{confine, folder_of};
use crate::convert::{Converter, Current};
use crate::daemon::{self, End};
use crate::memory::{self, Holder, Owner, Pressure, Progress};
use crate::page::Page;
use crate::setup::gateway::Plan;
use crate::setup::{Change, Installed, settled_changes};
use crate::status::Location;
use crate::target::Target;
use crate::tunnel::ports::PortGrant;
use crate::windows::Window;
use listeners::Listeners;
use snapshot::snapshot;
use tunnel_server::{Far, forwards};

pub use proxy_protocol::ProxyProtocol;

/// How often ports are looked for that no listener and no connection needs any more.
const RELEASE: Duration = Duration::from_secs(5);

/// What a listener does for its clients.
#[derive(Clone, Debug)]
pub enum Service {
    /// It forwards to a server, whose name is looked up for each connection.
    Forward(Target),
    /// It connects to the servers that clients name (RFC 8803), within a list.
    Convert(Converter),
}

impl From<SocketAddr> for Service {
    fn from(server: SocketAddr) -> Service {
        Service::Forward(Target::Address(server))
    }
}

impl From<Converter> for Service {
    fn from(converter: Converter) -> Service {
        Service::Convert(converter)
    }
}

impl std::fmt::Display for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Service::Forward(server) => server.fmt(f),
            Service::Convert(_) => f.write_str("the servers that clients name"),
        }
    }
}

/// One listener.
#[derive(Clone, Debug)]
pub struct Listener {
    /// Its name in logs and metrics.
    pub name: String,
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Further addresses of the host, announced to clients (ADD_ADDR).
    pub addresses: Vec<IpAddr>,
    /// What it does for clients.
    pub service: Service,
    /// The engine's settings; the path manager's endpoints are set by the gateway.
    pub connection: ConnectionConfig,
    /// Most connections at a time; what comes then is reset.
    pub max_connections: usize,
    /// Most connections of one address at a time.
    pub max_per_address: usize,
    /// Most connections that wait to be accepted.
    pub backlog: usize,
    /// How long connecting to the server may take.
    pub connect_timeout: Duration,
    /// How often a server that refuses is tried again.
    pub retries: u32,
    /// Whether clients are told the other addresses.
    pub announce: bool,
    /// Tells the server who the client is.
    pub proxy_protocol: Option<ProxyProtocol>,
}

impl Listener {
    /// Whether proxies that it knows may send what isn't TCP.
    pub fn has_tunnel(&self) -> bool {
        match &self.service {
            Service::Convert(converter) => converter.tls.is_some() && !converter.datagrams.is_empty(),
            Service::Forward(_) => false,
        }
    }

    /// Every address and port of it.
    pub fn sockets(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        let port = self.listen.port();
        let all = std::iter::once(self.listen.ip()).chain(self.addresses.iter().copied());
        all.map(move |address| SocketAddr::new(address, port))
    }
}

/// What a gateway is to do.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its listeners.
    pub listeners: Vec<Listener>,
    /// Ports that lead to hosts behind proxies.
    pub inbound: Vec<PortGrant>,
    /// Queues of each device, and drivers of the engine: one per core that it may use.
    pub cores: usize,
    /// Limits of the engine.
    pub endpoint: EndpointConfig,
    /// How long connections may go on after SIGTERM.
    pub drain: Duration,
    /// Most bytes that this program should take: from half of it on connections that make no progress are
    /// reset, beyond it new ones.
    pub memory: u64,
    /// How long data may wait for a far end that takes none of it.
    pub stalled: Duration,
    /// The socket of [`crate::status`].
    pub status: Location,
    /// Where Prometheus asks for [`crate::metrics`].
    pub metrics: Option<SocketAddr>,
    /// The status page.
    pub page: Option<Page>,
    /// Folders of its configuration and of the files that this names.
    pub reads: Vec<PathBuf>,
    /// What can't be changed while the gateway runs: keys and their values.
    pub fixed: Vec<(&'static str, String)>,
}

/// The first key whose values differ.
pub(crate) fn difference(
    old: &[(&'static str, String)],
    new: &[(&'static str, String)],
) -> Option<&'static str> {
    old.iter().zip(new).find(|(old, new)| old != new).map(|(old, _)| old.0)
}

impl Settings {
    /// The key of what differs from other settings and can't be changed while the gateway runs.
    pub fn needs_restart(&self, other: &Settings) -> Option<&'static str> {
        difference(&self.fixed, &other.fixed)
    }

    /// The set-up that they need.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn plan(&self) -> io::Result<Plan> {
        let plan = Plan::new(&self.sockets(), self.cores)?;
        let plan = plan.with_tunnel(self.listeners.iter().any(Listener::has_tunnel))?;
        // The numbers that a gateway gives that has just begun.
        Ok(plan.with_inbound(forwards(&self.inbound, &mut BTreeMap::new())))
    }

    fn sockets(&self) -> Vec<SocketAddr> {
        self.listeners.iter().flat_map(Listener::sockets).collect()
    }
}

/// One connection.
#[derive(Debug)]
pub struct ForwardedConnection {
    /// The listener's name.
    pub listener: String,
    /// The client's side.
    pub stream: Arc<MptcpStream>,
    /// Where it is forwarded, once its client has said it; `None`: datagrams, to several.
    pub to: OnceLock<Option<Target>>,
    /// Bytes from the client.
    pub uploaded: AtomicU64,
    /// Bytes to the client.
    pub downloaded: AtomicU64,
    /// When it was accepted.
    pub since: Instant,
    progress: Progress,
    window: Window,
}

impl Holder for ForwardedConnection {
    fn client(&self) -> IpAddr {
        self.stream.peer_addr().ip()
    }

    fn stream(&self) -> &MptcpStream {
        &self.stream
    }

    fn stalled(&self, now: Instant) -> Duration {
        let moved = self.uploaded.load(Ordering::Relaxed) + self.downloaded.load(Ordering::Relaxed);
        self.progress.stalled(moved, now)
    }

    fn is_asking(&self) -> bool {
        self.to.get().is_none()
    }

    fn window(&self) -> &Window {
        &self.window
    }
}

/// What happened since the start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections accepted.
    pub accepted: AtomicU64,
    /// Connections reset because a limit was reached.
    pub refused: AtomicU64,
    /// Connections whose server couldn't be reached.
    pub unreachable: AtomicU64,
    /// Connections reset because memory was short and they had made no progress for longest.
    pub evicted: AtomicU64,
    /// Connections that clients lost.
    pub client_lost: AtomicU64,
    /// Connections that servers reset.
    pub backend_lost: AtomicU64,
    /// Requests of clients (RFC 8803) that were refused: no cookie, a destination that isn't listed, no
    /// message at all.
    pub denied: AtomicU64,
}

/// The state of a running gateway.
#[derive(Debug)]
pub struct State {
    /// The engine.
    pub network: Network,
    /// Since the start.
    pub counters: Counters,
    /// The tunnels of proxies.
    pub far: Option<Arc<Far>>,
    plan: Mutex<Plan>,
    /// Where datagrams may go, by the listeners' first addresses.
    lists: Mutex<BTreeMap<SocketAddr, Current>>,
    flows: Mutex<BTreeMap<u64, Arc<ForwardedConnection>>>,
    next: AtomicU64,
    draining: AtomicBool,
    pressure: Pressure,
}

impl State {
    fn new(network: Network, plan: Plan, far: Option<Arc<Far>>, pressure: Pressure) -> State {
        State {
            network,
            far,
            counters: Counters::default(),
            plan: Mutex::new(plan),
            lists: Mutex::default(),
            flows: Mutex::default(),
            next: AtomicU64::new(1),
            draining: AtomicBool::new(false),
            pressure,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Arc<ForwardedConnection>>> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connections, by number.
    pub fn flows(&self) -> Vec<(u64, Arc<ForwardedConnection>)> {
        self.lock().iter().map(|(number, flow)| (*number, Arc::clone(flow))).collect()
    }

    /// The devices, rules and routes that the kernel was given.
    pub fn plan(&self) -> Plan {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Where a listener's datagrams may go: what is carried already heeds it, too.
    fn list(&self, listener: &Listener) -> Current {
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let list = lists.entry(listener.listen).or_default();
        if let Service::Convert(converter) = &listener.service {
            list.set(converter.datagrams.clone());
        }
        list.clone()
    }

    /// Whether the gateway is about to end.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    fn add(self: &Arc<State>, flow: ForwardedConnection) -> Entry {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let flow = Arc::new(flow);
        self.lock().insert(number, Arc::clone(&flow));
        Entry { state: Arc::clone(self), number, flow }
    }
}

impl Owner for State {
    type Connection = ForwardedConnection;

    fn connections(&self) -> Vec<Arc<ForwardedConnection>> {
        self.lock().values().cloned().collect()
    }

    fn count_evicted(&self, count: u64) {
        self.counters.evicted.fetch_add(count, Ordering::Relaxed);
    }

    fn pressure(&self) -> &Pressure {
        &self.pressure
    }
}

/// A connection's place in the state; dropping it takes the connection out.
struct Entry {
    state: Arc<State>,
    number: u64,
    flow: Arc<ForwardedConnection>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.state.lock().remove(&self.number);
    }
}

/// Reads the settings anew, for SIGHUP.
pub type Reload<'a> = &'a dyn Fn() -> Result<Settings, InputError>;

/// Runs a gateway until SIGTERM or SIGINT.
///
/// # Errors
/// If the set-up fails, or a listener can't be opened. What was set up is removed in any case.
pub fn run(settings: &Settings, reload: Option<Reload<'_>>) -> io::Result<()> {
    daemon::raise_open_files();
    crate::privileges::keep_net_admin();
    let written: Vec<_> = settings.status.path().map(folder_of).into_iter().collect();
    confine(&written, &settings.reads);
    let plan = settings.plan()?;
    let mut builder = match settings.cores {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.enable_all().build()?;
    runtime.block_on(async {
        // Before anything is set up: a signal is to end it in good order.
        let mut signals = (End::new()?, daemon::hang_up()?);
        // What another program undoes while it is set up is noticed, too.
        let changes = settled_changes();
        let (installed, paths, far) = tokio::select! {
            applied = set_up(&plan, settings) => applied?,
            // It waited for an earlier one: nothing is set up.
            () = signals.0.wait() => return Ok(()),
        };
        let builder = paths.into_iter().fold(Network::builder(), |builder, path| builder.path(path));
        let network = builder.endpoint(settings.endpoint.clone()).build()?;
        serve(settings, (installed, changes), (network, far), &mut signals, reload).await
    })
}

/// Makes the devices and everything else.
async fn set_up(plan: &Plan, settings: &Settings) -> io::Result<(Installed, Vec<Path>, Option<Far>)> {
    // The steps set it up; nobody else has it if nobody has the others.
    let (devices, claim) = plan.take_devices().await?;
    // One thread would have calls wait for busy connections.
    let far = if plan.tunnel { Some(Far::new(settings.cores == 1)?) } else { None };
    if let Some(far) = &far {
        far.give(&settings.inbound);
    }
    let (installed, paths) = plan.apply(devices, claim)?;
    Ok((installed, paths, far))
}

async fn serve(
    settings: &Settings,
    (installed, mut changes): (Installed, Receiver<Option<Change>>),
    (network, far): (Network, Option<Far>),
    (end, hung_up): &mut (End, Signal),
    reload: Option<Reload<'_>>,
) -> io::Result<()> {
    let pressure = Pressure::new(settings.memory, settings.stalled);
    let state = Arc::new(State::new(network, installed.plan().clone(), far.map(Arc::new), pressure));
    let mut listeners = Listeners::new(installed);
    let mut helpers = JoinSet::new();
    helpers.spawn(memory::watch(Arc::clone(&state)));
    helpers.spawn(crate::log::tell_noted());
    if let Some(far) = &state.far {
        helpers.spawn_on(Arc::clone(far).take_packets(), far.handle());
    }
    if let Some(socket) = settings.status.bind()? {
        let state = Arc::clone(&state);
        helpers.spawn(socket.serve(move |word| snapshot(Arc::clone(&state), ropewalk_status::before(&word))));
    }
    if let Some(page) = &settings.page {
        let (state, listener) = (Arc::clone(&state), page.bind().await?);
        helpers.spawn(crate::page::serve(listener, page.clone(), move || snapshot(Arc::clone(&state), None)));
    }
    if let Some(address) = settings.metrics {
        let state = Arc::clone(&state);
        helpers.spawn(crate::metrics::serve(crate::metrics::bind(address).await?, move || {
            metrics::text(&state)
        }));
    }
    // Last: whoever reads that it listens finds all the rest, and a socket that is taken is told before.
    listeners.change(&state, &settings.listeners).await?;
    helpers.spawn(daemon::feed_watchdog());
    daemon::ready();
    let mut release = tokio::time::interval(RELEASE);
    let mut drain_limit = settings.drain;
    let mut gone = None;
    loop {
        tokio::select! {
            () = end.wait() => break,
            Some(change) = changes.recv() => {
                if let Err(error) = listeners.keep(&state, change).await {
                    gone = Some(error);
                    break;
                }
                continue;
            }
            _ = release.tick() => {
                listeners.release_ports(&state);
                continue;
            }
            _ = hung_up.recv() => {}
        }
        let Some(reload) = reload else {
            tracing::warn!(target: "ropewalk::gateway", "SIGHUP: there is no configuration file to read \
                                                         again");
            continue;
        };
        let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
        let changed = match reload() {
            Ok(new) => match settings.needs_restart(&new) {
                Some(key) => Err(wrong(format!("`{key}` of [gateway] changed: that needs a restart"))),
                None => {
                    let changed = listeners.reload(&state, &new).await;
                    if changed.is_ok() {
                        drain_limit = new.drain;
                    }
                    changed
                }
            },
            Err(error) => Err(wrong(error.to_string())),
        };
        match changed {
            Ok(()) => tracing::info!(target: "ropewalk::gateway", "configuration read again"),
            Err(error) => {
                tracing::error!(target: "ropewalk::gateway", %error, "the new configuration isn't used");
            }
        }
    }
    daemon::stopping();
    state.draining.store(true, Ordering::Relaxed);
    listeners.stop().await;
    if gone.is_none() {
        listeners.mark_draining();
        let left = state.flows().len();
        tracing::info!(target: "ropewalk::gateway", connections = left, limit = ?drain_limit, "draining");
        tokio::select! {
            () = drain(&state, drain_limit) => {}
            () = end.wait() => {}
        }
    }
    if let Some(far) = &state.far {
        far.serve(&[]).await;
    }
    helpers.shutdown().await;
    let left = state.flows();
    if !left.is_empty() {
        tracing::warn!(target: "ropewalk::gateway", connections = left.len(), "reset");
        left.iter().for_each(|(_, flow)| flow.stream.reset());
    }
    gone.map_or(Ok(()), Err)
}

/// Waits until every connection has ended and what was written has been acknowledged, for at most `limit`.
async fn drain(state: &State, limit: Duration) {
    let deadline = Instant::now() + limit;
    while !state.flows().is_empty() {
        if Instant::now() >= deadline {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Connections that are left after that are in TIME-WAIT, and needn't be waited for.
    state.network.drain(deadline.saturating_duration_since(Instant::now()).min(Duration::from_secs(1))).await;
}
