//! A network: devices, the engine behind them, and the tasks that move packets.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use ropewalk_engine::config::{ConnectionConfig, EndpointConfig, LocalEndpoint};
use ropewalk_engine::endpoint::{ConnectError, Endpoint};
use ropewalk_engine::{Entropy, PathId};
use ropewalk_os::entropy::{OsEntropy, random};
use ropewalk_os::tun::{Offload, Tun};
use tokio::runtime::Handle;

use crate::backlog::Arrival;
use crate::clock::Clock;
use crate::device::{PacketDevice, TunDevice};
use crate::driver::Driver;
use crate::error;
use crate::options::{ConnectOptions, ListenOptions, default_config};
use crate::queue::{PathFlag, PathState, Queue, Translation};
use crate::shard::{DriverCounters, PathMemory, Shard};
use crate::steering::Steering;

/// A shard's part of the local ports: subflows of different shards never have the same four-tuple.
fn ports(all: &RangeInclusive<u16>, shard: usize, shards: usize) -> RangeInclusive<u16> {
    let span = (u32::from(*all.end()) + 1).saturating_sub(u32::from(*all.start())) / shards as u32;
    let start = u32::from(*all.start()) + shard as u32 * span;
    start as u16..=(start + span.max(1) - 1) as u16
}

/// One path: a device and our addresses on it.
pub struct Path {
    queues: Vec<Box<dyn PacketDevice>>,
    addresses: Vec<IpAddr>,
    translation: Option<Translation>,
    mtu: u32,
    backup: bool,
}

impl std::fmt::Debug for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Path { addresses, translation, mtu, backup, .. } = self;
        f.debug_struct("Path")
            .field("queues", &self.queues.len())
            .field("addresses", addresses)
            .field("translation", translation)
            .field("mtu", mtu)
            .field("backup", backup)
            .finish()
    }
}

impl Path {
    /// A path over a device with one queue.
    pub fn new(device: impl PacketDevice, address: IpAddr) -> Path {
        Path::with_queues(vec![device], address)
    }

    /// A path over a device with several queues: as many shards will serve it.
    pub fn with_queues<D: PacketDevice>(queues: Vec<D>, address: IpAddr) -> Path {
        let queues = queues.into_iter().map(|queue| Box::new(queue) as Box<dyn PacketDevice>).collect();
        Path { queues, addresses: vec![address], translation: None, mtu: 1500, backup: false }
    }

    /// Makes a TUN device with offload, and `queues` queues, in the calling thread's network namespace.
    /// `address` is the engine's; the kernel's end is for the caller to configure
    /// ([`bring_up`](ropewalk_os::tun::bring_up) does the usual).
    ///
    /// # Errors
    /// Those of [`Tun::create`]: mostly that CAP_NET_ADMIN is missing.
    pub fn tun(name: &str, queues: usize, address: IpAddr) -> io::Result<Path> {
        let queues = Tun::create_queues(name, Offload::Segmentation, queues)?;
        Ok(Path::with_queues(queues.into_iter().map(TunDevice::new).collect(), address))
    }

    /// A further address of ours on it.
    pub fn address(mut self, address: IpAddr) -> Path {
        self.addresses.push(address);
        self
    }

    /// Peers know the path's first address as `public`: something before the device, such as the kernel with
    /// nftables, translates one into the other. The engine then has the public address: listeners,
    /// announcements and [`StreamInfo`](crate::StreamInfo) name it, and only packets on the device have the
    /// other.
    pub fn known_as(mut self, public: IpAddr) -> Path {
        if let Some(first) = self.addresses.first_mut() {
            self.translation = Some(Translation { device: *first, public });
            *first = public;
        }
        self
    }

    /// The largest IP packet, bytes (1500).
    pub fn mtu(mut self, mtu: u32) -> Path {
        self.mtu = mtu;
        self
    }

    /// Subflows on it are backups.
    pub fn backup(mut self) -> Path {
        self.backup = true;
        self
    }
}

/// Where drivers run.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Execution {
    /// As tasks of the runtime in which the network is made.
    #[default]
    Tasks,
    /// Each on a thread and a single-threaded runtime of its own ([`Network::shard_runtime`]), which tasks of
    /// its connections can share.
    Threads,
    /// Each in one of these runtimes, in turn. Two networks can share runtimes this way, or a network the
    /// runtimes of an application that has one per core.
    Runtimes(Vec<Handle>),
}

/// Makes a [`Network`].
#[derive(Debug)]
pub struct NetworkBuilder {
    paths: Vec<Path>,
    endpoint: EndpointConfig,
    config: ConnectionConfig,
    execution: Execution,
    memory: Option<PathMemory>,
}

impl NetworkBuilder {
    /// Adds a path. Its [`PathId`] is its place, from 0.
    pub fn path(mut self, path: Path) -> Self {
        self.paths.push(path);
        self
    }

    /// Settings of connections for which nothing else is said ([`default_config`]). Where it has no endpoints
    /// for the path manager, the paths' addresses are: clients open subflows from them, servers announce all
    /// but the first.
    pub fn config(mut self, config: ConnectionConfig) -> Self {
        self.config = config;
        self
    }

    /// The endpoint's limits. The paths' MTUs in it are the paths' own.
    pub fn endpoint(mut self, endpoint: EndpointConfig) -> Self {
        self.endpoint = endpoint;
        self
    }

    /// Keeps what connections that were opened here found out about the paths to each peer, for an hour
    /// ([`PathCache`](ropewalk_engine::PathCache)). A connection whose options name neither path nor address
    /// then opens where its first data arrives earliest, once every path to the peer is known
    /// ([`Network::remembered_path`]).
    pub fn remember_paths(mut self) -> Self {
        self.memory = Some(PathMemory::default());
        self
    }

    /// Where drivers run.
    pub fn execution(mut self, execution: Execution) -> Self {
        self.execution = execution;
        self
    }

    /// Starts the drivers.
    ///
    /// # Errors
    /// If there is no path, paths have different numbers of queues, or a thread can't be started.
    ///
    /// # Panics
    /// Outside a runtime, unless drivers have [threads](Execution::Threads) of their own.
    pub fn build(self) -> io::Result<Network> {
        let invalid = |text: &str| io::Error::new(io::ErrorKind::InvalidInput, text);
        let count = self.paths.first().map_or(0, |path| path.queues.len());
        if count == 0 {
            return Err(invalid("a network needs a path, and a path a device"));
        }
        if self.paths.iter().any(|path| path.queues.len() != count) {
            return Err(invalid("all paths need the same number of queues"));
        }
        let endpoint =
            EndpointConfig { path_mtus: self.paths.iter().map(|path| path.mtu).collect(), ..self.endpoint };
        let clock = Clock::start();
        let steering = Arc::new(Steering::new(count));
        let mut queues: Vec<Vec<Queue>> = (0..count).map(|_| Vec::new()).collect();
        let mut paths = Vec::new();
        for path in self.paths {
            let flag = Arc::new(PathFlag::default());
            for (shard, device) in queues.iter_mut().zip(path.queues) {
                shard.push(Queue::new(device, path.translation, Arc::clone(&flag)));
            }
            paths.push(PathInfo { addresses: path.addresses, backup: path.backup, flag });
        }
        let shards: Vec<Arc<Shard>> = queues
            .into_iter()
            .enumerate()
            .map(|(index, queues)| {
                let local_ports = ports(&endpoint.local_ports, index, count);
                let first_port = random() as u16;
                let endpoint = EndpointConfig { local_ports, first_port, ..endpoint.clone() };
                let endpoint = Endpoint::new(endpoint, OsEntropy::new());
                let steering = Arc::clone(&steering);
                Arc::new(Shard::new(index, clock, endpoint, queues, steering, self.memory.clone()))
            })
            .collect();
        let mut runtimes = Vec::new();
        for index in 0..count {
            runtimes.push(start(shards.clone(), index, clock, &self.execution)?);
        }
        let inner = Inner {
            shards,
            runtimes,
            steering,
            paths: RwLock::new(paths),
            config: self.config,
            local_ports: endpoint.local_ports,
            next_shard: AtomicUsize::new(0),
            clock,
            memory: self.memory,
        };
        Ok(Network { inner: Arc::new(inner) })
    }
}

/// Starts a shard's driver, and returns the runtime that it is in.
fn start(shards: Vec<Arc<Shard>>, index: usize, clock: Clock, execution: &Execution) -> io::Result<Handle> {
    match execution {
        Execution::Tasks => {
            let handle = Handle::current();
            handle.spawn(Driver::new(shards, index, clock));
            Ok(handle)
        }
        Execution::Runtimes(runtimes) => {
            let Some(handle) = runtimes.get(index % runtimes.len().max(1)) else {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "no runtime for the drivers is given",
                ));
            };
            let context = handle.enter();
            handle.spawn(Driver::new(shards, index, clock));
            drop(context);
            Ok(handle.clone())
        }
        Execution::Threads => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let handle = runtime.handle().clone();
            std::thread::Builder::new().name(format!("ropewalk-{index}")).spawn(move || {
                runtime.block_on(async { Driver::new(shards, index, clock).await });
            })?;
            Ok(handle)
        }
    }
}

#[derive(Debug)]
struct PathInfo {
    addresses: Vec<IpAddr>,
    backup: bool,
    flag: Arc<PathFlag>,
}

/// What streams and listeners share.
pub(crate) struct Inner {
    pub shards: Vec<Arc<Shard>>,
    runtimes: Vec<Handle>,
    steering: Arc<Steering>,
    paths: RwLock<Vec<PathInfo>>,
    config: ConnectionConfig,
    local_ports: RangeInclusive<u16>,
    next_shard: AtomicUsize,
    clock: Clock,
    memory: Option<PathMemory>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Network").field("shards", &self.shards.len()).field("paths", &*self.paths()).finish()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for shard in &self.shards {
            shard.close();
        }
    }
}

impl Inner {
    fn paths(&self) -> RwLockReadGuard<'_, Vec<PathInfo>> {
        self.paths.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The path manager's endpoints for the paths' addresses.
    fn endpoints(&self, server: bool) -> Vec<LocalEndpoint> {
        let mut endpoints: Vec<LocalEndpoint> = Vec::new();
        for (at, path) in self.paths().iter().enumerate() {
            for address in &path.addresses {
                let Ok(id) = u8::try_from(endpoints.len() + 1) else { return endpoints };
                endpoints.push(LocalEndpoint {
                    address: *address,
                    port: None,
                    path: PathId(at as u16),
                    id,
                    signal: server && at > 0,
                    subflow: !server,
                    backup: path.backup,
                });
            }
        }
        endpoints
    }

    fn complete(&self, mut config: ConnectionConfig, server: bool) -> Arc<ConnectionConfig> {
        if config.multipath && config.path_manager.endpoints.is_empty() {
            config.path_manager.endpoints = self.endpoints(server);
        }
        Arc::new(config)
    }

    pub fn listener_config(&self, options: &ListenOptions) -> io::Result<Arc<ConnectionConfig>> {
        Ok(self.complete(options.common.config(&self.config)?, true))
    }

    /// Where a connection starts: the path and our address on it.
    fn route(&self, remote: SocketAddr, options: &ConnectOptions) -> io::Result<(PathId, SocketAddr)> {
        let (asked, all) = (options.local, self.paths());
        let fits = |address: &IpAddr| match asked {
            Some(local) if !local.ip().is_unspecified() => *address == local.ip(),
            _ => address.is_ipv4() == remote.is_ipv4(),
        };
        let port = asked.map_or(0, |local| local.port());
        let is_free = asked.is_none_or(|local| local.ip().is_unspecified());
        let chosen = options.path.or_else(|| {
            let has_address = |path: &&PathInfo| path.addresses.iter().any(fits);
            let usable = |path: &&PathInfo| path.flag.get() == PathState::Up && !path.backup;
            let paths = all.iter().enumerate();
            let paths = paths.filter(|(_, path)| has_address(path) && usable(path));
            self.remembered(remote.ip(), paths.map(|(at, _)| PathId(at as u16))).filter(|_| is_free)
        });
        let paths = all.iter().enumerate();
        let found = paths
            .filter(|(at, _)| chosen.is_none_or(|path| usize::from(path.0) == *at))
            .filter_map(|(at, path)| Some((at, *path.addresses.iter().find(|address| fits(address))?, path)))
            // A path that is up and no backup, if there is one.
            .min_by_key(|(_, _, path)| (path.flag.get() as u8, path.backup));
        match found {
            Some((at, address, _)) => Ok((PathId(at as u16), SocketAddr::new(address, port))),
            None => Err(io::Error::new(
                io::ErrorKind::AddrNotAvailable,
                format!("no path of the network has a fitting address for {remote}"),
            )),
        }
    }

    fn remembered(&self, peer: IpAddr, paths: impl IntoIterator<Item = PathId>) -> Option<PathId> {
        let memory = self.memory.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        memory.opening(self.clock.now(), peer, paths)
    }

    /// Opens a connection, on the shard to which its four-tuple belongs.
    pub fn open(&self, remote: SocketAddr, options: &ConnectOptions) -> io::Result<Arrival> {
        let mut config = options.common.config(&self.config)?;
        if let Some(early) = options.early_join {
            config.path_manager.early_join = early;
        }
        let config = self.complete(config, false);
        let (path, local) = self.route(remote, options)?;
        let mut random = OsEntropy::new();
        let turn = self.next_shard.fetch_add(1, Ordering::Relaxed) % self.shards.len();
        let ports = ports(&self.local_ports, turn, self.shards.len());
        for _ in 0..1000 {
            let (index, local) = if local.port() != 0 {
                (self.steering.hashed_pair(local, remote), local)
            } else {
                // By chance: what a process before this one had may be in TIME-WAIT at the peer (RFC 6056).
                let port = ports.start() + (random.next_u64() % ports.len() as u64) as u16;
                (turn, SocketAddr::new(local.ip(), port))
            };
            if self.steering.hashed_pair(local, remote) != index {
                continue;
            }
            let shard = &self.shards[index];
            if !shard.is_running() {
                return Err(error::ended());
            }
            let opened = shard.call(|state, now| {
                let (id, status) = state.connect(now, path, local, remote, Arc::clone(&config))?;
                let tuple = state.endpoint.connection(id).and_then(|one| one.tuple(Default::default()));
                let local = tuple.map_or(local, |tuple| tuple.source());
                Ok((id, status, local))
            });
            match opened {
                Ok((id, status, local)) => {
                    return Ok(Arrival { shard: index, id, status, local, peer: remote });
                }
                Err(ConnectError::InUse) if options.local.is_none_or(|local| local.port() == 0) => {}
                Err(wrong) => return Err(error::opening(wrong)),
            }
        }
        Err(error::opening(ConnectError::InUse))
    }
}

/// Devices, the engine behind them, and the tasks that move packets. Clones are the same network.
///
/// The drivers end when every clone, stream and listener is gone and the last connection is closed, or with
/// their runtime.
#[derive(Clone, Debug)]
pub struct Network {
    inner: Arc<Inner>,
}

impl Network {
    /// A network to be made.
    pub fn builder() -> NetworkBuilder {
        NetworkBuilder {
            paths: Vec::new(),
            endpoint: EndpointConfig::default(),
            config: default_config(),
            execution: Execution::default(),
            memory: None,
        }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// How many shards there are: one per queue.
    pub fn shards(&self) -> usize {
        self.inner.shards.len()
    }

    /// The runtime of a shard's driver. A task there runs on the driver's core with [`Execution::Threads`]:
    /// [`MptcpStream::shard`](crate::MptcpStream::shard) says which is a stream's.
    pub fn shard_runtime(&self, shard: usize) -> Option<&Handle> {
        self.inner.runtimes.get(shard)
    }

    /// Connections, those that are being opened or closed included.
    pub fn connections(&self) -> usize {
        self.inner.shards.iter().map(|shard| shard.lock().endpoint.len()).sum()
    }

    /// Sets the largest IP packet on a path, bytes, for subflows that are opened from now on.
    pub fn set_path_mtu(&self, path: PathId, mtu: u32) {
        self.inner.shards.iter().for_each(|shard| shard.lock().endpoint.set_path_mtu(path, mtu));
    }

    /// Gives the network a path while it runs: in the place of one that was
    /// [taken away](Self::take_path_away), or as its last. What connections found out about paths is
    /// forgotten.
    ///
    /// # Errors
    /// If there is such a path, the place isn't the next one, or the path has another number of queues.
    pub fn give_path(&self, id: PathId, path: Path) -> io::Result<()> {
        let invalid = |text: &str| io::Error::new(io::ErrorKind::InvalidInput, text);
        let at = usize::from(id.0);
        let mut paths = self.inner.paths.write().unwrap_or_else(PoisonError::into_inner);
        if path.queues.len() != self.inner.shards.len() {
            return Err(invalid("all paths need the same number of queues"));
        }
        if at > paths.len() || paths.get(at).is_some_and(|known| known.flag.get() != PathState::Removed) {
            return Err(invalid("a path's place is that of one that was removed, or the next"));
        }
        let flag = Arc::new(PathFlag::default());
        for (shard, device) in self.inner.shards.iter().zip(path.queues) {
            let mut state = shard.lock();
            state.endpoint.set_path_mtu(id, path.mtu);
            state.set_queue(at, Queue::new(device, path.translation, Arc::clone(&flag)));
            drop(state);
            // It is registered by the driver.
            shard.wake();
        }
        let info = PathInfo { addresses: path.addresses, backup: path.backup, flag };
        match paths.get_mut(at) {
            Some(old) => *old = info,
            None => paths.push(info),
        }
        if let Some(memory) = &self.inner.memory {
            *memory.lock().unwrap_or_else(PoisonError::into_inner) = Default::default();
        }
        Ok(())
    }

    /// Takes a path's device away. Subflows on it get nothing any more: leave it first
    /// ([`MptcpStream::remove_path`]).
    ///
    /// [`MptcpStream::remove_path`]: crate::MptcpStream::remove_path
    pub fn take_path_away(&self, id: PathId) {
        let paths = self.inner.paths.write().unwrap_or_else(PoisonError::into_inner);
        let Some(path) = paths.get(usize::from(id.0)) else { return };
        path.flag.set(PathState::Removed);
        for shard in &self.inner.shards {
            shard.lock().set_queue(usize::from(id.0), Queue::absent(Arc::clone(&path.flag)));
        }
    }

    /// Whether a path's device takes packets, as far as is known; `None`: there is no such path.
    pub fn path_state(&self, path: PathId) -> Option<PathState> {
        Some(self.inner.paths().get(usize::from(path.0))?.flag.get())
    }

    /// The path of these on which a connection to `peer` should open, by what earlier connections found out
    /// ([`NetworkBuilder::remember_paths`]); `None` if something of one isn't known.
    pub fn remembered_path(&self, peer: IpAddr, paths: impl IntoIterator<Item = PathId>) -> Option<PathId> {
        self.inner.remembered(peer, paths)
    }

    /// Counters by the kernel's names (`MPTcpExtMPCapableSYNRX`...), the sum of all shards'.
    pub fn mib(&self) -> Vec<(String, u64)> {
        let mut total: Vec<(String, u64)> = Vec::new();
        for shard in &self.inner.shards {
            let mib = shard.lock().endpoint.mib();
            if total.is_empty() {
                total = mib;
            } else {
                total.iter_mut().zip(mib).for_each(|(sum, (_, more))| sum.1 += more);
            }
        }
        total
    }

    /// What the drivers counted.
    pub fn driver_counters(&self) -> DriverCounters {
        let mut total = DriverCounters::default();
        for shard in &self.inner.shards {
            total += shard.lock().counters;
        }
        total
    }

    /// Tokens and joined subflows that shards have noted for each other, for tests.
    #[doc(hidden)]
    pub fn noted(&self) -> (usize, usize) {
        self.inner.steering.noted()
    }

    /// Waits until no connection is left, for at most `limit`. Returns whether that is so. Streams have to be
    /// dropped or closed before.
    pub async fn drain(&self, limit: Duration) -> bool {
        let deadline = tokio::time::Instant::now() + limit;
        while self.connections() > 0 {
            if tokio::time::Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        true
    }
}
