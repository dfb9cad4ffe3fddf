//! A world that moves packets while the test's own code acts on the kernel's side: an engine that talks by a
//! script, a kernel with a namespace to run programs in, and what went over which path.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use ropewalk_engine::config::{ConnectionConfig, EndpointConfig};
use ropewalk_engine::endpoint::{ConnectionId, Endpoint};
use ropewalk_engine::metrics::SubflowMetrics;
use ropewalk_engine::mptcp::{ConnectionStats, Event};
use ropewalk_engine::{PathId, Span, Time};
use ropewalk_host::clock::{Clock, request_real_time};
use ropewalk_host::entropy::OsEntropy;
use ropewalk_host::experiment::PORT;
use ropewalk_host::frame::Piece;
use ropewalk_host::kernel::{self, SocketConfig};
use ropewalk_host::netns::Namespace;
use ropewalk_host::network::{KernelEnd, PathConfig, Side, client_address, server_address};
use ropewalk_host::transfer::pattern;
use ropewalk_host::tun::Offload;
use ropewalk_host::world::{App, End, HostEndpoint, Middlebox, PathLinks, Tap, World};
use sha2::{Digest, Sha256};
use socket2::Socket;

use crate::harness::{assert_no_errors_but, counter};

/// How long anything may take before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(20);
const PERIOD: usize = 65_521;
/// Bytes of a block of the stream that doesn't repeat.
pub const BLOCK: usize = 64 << 10;
/// How often the engine's program looks for orders.
const TICK: Span = Span::from_micros(2_000);

/// What the engine is told to do.
#[derive(Clone, Debug)]
pub enum Order {
    /// Send these bytes.
    Say(Bytes),
    /// Send so many bytes of the pattern, from its start.
    Send(u64),
    /// Send so many bytes that don't repeat: see [`block`].
    Stream(u64),
    /// Close the sending side when all that was ordered is sent.
    Finish,
    /// MP_PRIO for the subflows on a path.
    Backup(PathId, bool),
    /// REMOVE_ADDR for the address on a path, and the end of the subflows there.
    Leave(PathId),
    /// MP_FASTCLOSE.
    Abort,
}

/// What the engine's program heard and saw.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// All that was received, unless it is hashed.
    pub received: Vec<u8>,
    /// How many bytes were received.
    pub count: u64,
    pub hash: Option<Sha256>,
    pub events: Vec<Event>,
    pub peer_closed: bool,
    pub closed: bool,
    pub flows: Vec<SubflowMetrics>,
    pub stats: Option<ConnectionStats>,
    pub multipath: bool,
    /// The engine's counters, by the kernel's names.
    pub counters: Vec<(String, u64)>,
}

/// Payload bytes that left an end, by path: from the engine, from the kernel.
#[derive(Debug, Default)]
pub struct Carried {
    pub engine: [AtomicU64; 4],
    pub kernel: [AtomicU64; 4],
}

struct Scale {
    engine: Side,
    carried: Arc<Carried>,
}

impl Tap for Scale {
    fn on_packet(&mut self, _: Time, up: bool, leaves: bool, piece: &Piece) {
        if leaves {
            return;
        }
        let by_engine = up == (self.engine == Side::Client);
        let counters = if by_engine { &self.carried.engine } else { &self.carried.kernel };
        let len = piece.segment().map_or(0, |segment| segment.payload.len());
        counters[usize::from(piece.path)].fetch_add(len as u64, Ordering::Relaxed);
    }
}

struct Talk {
    client: Option<(SocketAddr, SocketAddr)>,
    config: Arc<ConnectionConfig>,
    id: Option<ConnectionId>,
    pattern: Bytes,
    orders: Arc<Mutex<VecDeque<Order>>>,
    seen: Arc<Mutex<Seen>>,
    /// Of the order under way: bytes sent.
    sent: u64,
    next_look: Time,
    /// The block of the stream under way.
    block: (u64, Bytes),
}

impl Talk {
    fn obey(&mut self, now: Time, endpoint: &mut HostEndpoint) {
        let Some(id) = self.id else { return };
        let mut orders = self.orders.lock().expect("no panic under the lock");
        while let Some(order) = orders.front_mut() {
            let (piece, total) = match order {
                Order::Finish => {
                    endpoint.shutdown(now, id);
                    orders.pop_front();
                    continue;
                }
                Order::Backup(path, backup) => {
                    endpoint.set_backup(now, id, *path, *backup);
                    orders.pop_front();
                    continue;
                }
                Order::Leave(path) => {
                    endpoint.remove_path(now, id, *path);
                    orders.pop_front();
                    continue;
                }
                Order::Abort => {
                    endpoint.abort(now, id);
                    orders.pop_front();
                    continue;
                }
                Order::Say(text) => (text.slice(self.sent as usize..), text.len() as u64),
                Order::Send(total) => {
                    let start = (self.sent % PERIOD as u64) as usize;
                    let len = (*total - self.sent).min(PERIOD as u64) as usize;
                    (self.pattern.slice(start..start + len), *total)
                }
                Order::Stream(total) => {
                    let at = self.sent / BLOCK as u64;
                    if self.block.0 != at {
                        self.block = (at, block(at).into());
                    }
                    let start = (self.sent % BLOCK as u64) as usize;
                    let end = ((*total - at * BLOCK as u64) as usize).min(BLOCK);
                    (self.block.1.slice(start..end), *total)
                }
            };
            let len = piece.len();
            let taken = endpoint.write(now, id, piece).unwrap_or(0);
            self.sent += taken as u64;
            if self.sent == total {
                self.sent = 0;
                orders.pop_front();
            } else if taken < len {
                return;
            }
        }
    }
}

impl App for Talk {
    fn start(&mut self, now: Time, endpoint: &mut HostEndpoint) {
        if let Some((local, remote)) = self.client {
            let config = Arc::clone(&self.config);
            self.id =
                Some(endpoint.connect(now, PathId(0), local, remote, config).expect("an address is free"));
        } else {
            for any in [IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()] {
                endpoint.listen(SocketAddr::new(any, PORT), Arc::clone(&self.config));
            }
        }
    }

    fn on_event(&mut self, now: Time, endpoint: &mut HostEndpoint, id: ConnectionId, event: Event) {
        if matches!(event, Event::Accepted { .. }) {
            self.id = Some(id);
        }
        {
            let mut seen = self.seen.lock().expect("no panic under the lock");
            while let Ok(Some(data)) = endpoint.read(now, id, 1 << 20) {
                if data.is_empty() {
                    break;
                }
                seen.count += data.len() as u64;
                match &mut seen.hash {
                    Some(hash) => hash.update(&data),
                    None => seen.received.extend_from_slice(&data),
                }
            }
            if let Some(connection) = endpoint.connection(id) {
                seen.flows = connection.subflow_metrics().to_vec();
                seen.stats = Some(connection.stats(now));
                seen.multipath = connection.is_multipath();
            }
            if !matches!(event, Event::Readable | Event::Writable) {
                seen.counters = endpoint.mib();
            }
            seen.peer_closed |= event == Event::PeerClosed;
            seen.closed |= event == Event::Closed;
            if !matches!(event, Event::Readable | Event::Writable) {
                seen.events.push(event);
            }
        }
        self.obey(now, endpoint);
    }

    fn wake(&self) -> Option<Time> {
        Some(self.next_look)
    }

    fn on_wake(&mut self, now: Time, endpoint: &mut HostEndpoint) {
        self.next_look = now + TICK;
        self.obey(now, endpoint);
        if let Some(connection) = self.id.and_then(|id| endpoint.connection(id)) {
            let mut seen = self.seen.lock().expect("no panic under the lock");
            seen.flows = connection.subflow_metrics().to_vec();
            seen.stats = Some(connection.stats(now));
            seen.multipath = connection.is_multipath();
            seen.counters = endpoint.mib();
        }
    }

    fn is_done(&self) -> bool {
        false
    }
}

/// What is set up.
pub struct Setup {
    /// Which end the engine is.
    pub engine: Side,
    pub paths: usize,
    pub links: Option<Vec<PathLinks>>,
    /// For the connection of an engine that is the client.
    pub local: Option<IpAddr>,
    pub remote: Option<IpAddr>,
    pub config: ConnectionConfig,
    /// `ip` commands for the kernel's namespace.
    pub commands: Vec<String>,
    /// Hash what the engine receives instead of keeping it.
    pub hash: bool,
    /// The engine's program, if it is another than the one that takes orders.
    pub app: Option<Box<dyn App>>,
    pub middlebox: Option<Box<dyn Middlebox>>,
}

impl Setup {
    pub fn new(engine: Side, paths: usize) -> Setup {
        Setup {
            engine,
            paths,
            links: None,
            local: None,
            remote: None,
            config: crate::harness::config(),
            commands: Vec::new(),
            hash: false,
            app: None,
            middlebox: None,
        }
    }
}

pub struct Stage {
    /// The kernel's end.
    pub kernel: Namespace,
    pub carried: Arc<Carried>,
    orders: Arc<Mutex<VecDeque<Order>>>,
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
    worker: Option<JoinHandle<io::Result<World>>>,
    /// Joins need it as long as the connection lives.
    listener: Option<Socket>,
}

impl Stage {
    /// Sets up; `before` acts on the kernel's side before the engine says its first word.
    pub fn new<T>(setup: Setup, before: impl FnOnce(&Namespace) -> T) -> (Stage, T) {
        let paths: Vec<_> = (0..setup.paths)
            .map(|at| PathConfig { name: format!("path{at}"), mtu: 1500, backup: false })
            .collect();
        let side = if setup.engine == Side::Client { Side::Server } else { Side::Client };
        let end = KernelEnd::new(side, &paths, Offload::Segmentation).expect("a kernel's end");
        for command in &setup.commands {
            let words: Vec<_> = command.split_whitespace().collect();
            end.namespace.check("ip", &words).expect("the command is right");
        }
        let kernel =
            Namespace::from_fd(end.namespace.fd().try_clone_to_owned().expect("a descriptor"), "kernel");
        let made = before(&kernel);
        let mut config = setup.config;
        let client = (setup.engine == Side::Client).then(|| {
            let local = setup.local.unwrap_or(client_address(0, false));
            let remote = setup.remote.unwrap_or(server_address(false));
            if config.path_manager.endpoints.is_empty() {
                config.path_manager.endpoints = ropewalk_host::experiment::endpoints(&paths, local.is_ipv6());
            }
            (SocketAddr::new(local, 0), SocketAddr::new(remote, PORT))
        });
        let orders = Arc::default();
        let seen = Seen { hash: setup.hash.then(Sha256::new), ..Seen::default() };
        let seen = Arc::new(Mutex::new(seen));
        let talk = Talk {
            client,
            config: Arc::new(config),
            id: None,
            pattern: pattern(),
            orders: Arc::clone(&orders),
            seen: Arc::clone(&seen),
            sent: 0,
            next_look: Time::ZERO,
            block: (u64::MAX, Bytes::new()),
        };
        let endpoint = Endpoint::new(EndpointConfig::default(), OsEntropy::new());
        let app = setup.app.unwrap_or_else(|| Box::new(talk));
        let engine = End::Engine(Box::new(endpoint), app);
        let (client, server) = match setup.engine {
            Side::Client => (engine, End::Kernel(end)),
            Side::Server => (End::Kernel(end), engine),
        };
        let mut world = World::new(client, server, setup.paths);
        if let Some(links) = &setup.links {
            world.emulate(links, &[], 1);
        }
        if let Some(middlebox) = setup.middlebox {
            world.set_middlebox(middlebox);
        }
        let carried = Arc::new(Carried::default());
        world.set_tap(Box::new(Scale { engine: setup.engine, carried: Arc::clone(&carried) }));
        let stop = world.stopper();
        let worker = std::thread::spawn(move || {
            request_real_time();
            world.run(None).map(|()| world)
        });
        (Stage { kernel, carried, orders, seen, stop, worker: Some(worker), listener: None }, made)
    }

    /// Sets up a connection between the engine and a kernel's socket.
    pub fn meet(setup: Setup) -> (Stage, Socket) {
        match setup.engine {
            Side::Client => {
                let (mut stage, listener) = Stage::new(setup, listener);
                let socket = accept(&listener);
                stage.listener = Some(listener);
                (stage, socket)
            }
            Side::Server => {
                let (stage, ()) = Stage::new(setup, |_| ());
                let (local, remote) = (client_address(0, false), server_address(false));
                let socket = connect(&stage.kernel, local, remote);
                (stage, socket)
            }
        }
    }

    pub fn order(&self, order: Order) {
        self.orders.lock().expect("no panic under the lock").push_back(order);
    }

    pub fn seen(&self) -> Seen {
        self.seen.lock().expect("no panic under the lock").clone()
    }

    /// Waits for something that the engine sees.
    pub fn wait(&self, what: &str, mut done: impl FnMut(&Seen) -> bool) {
        let begin = Clock::start();
        loop {
            if done(&self.seen.lock().expect("no panic under the lock")) {
                return;
            }
            if Duration::from(begin.now().since_origin()) > PATIENCE {
                let Seen { count, events, flows, .. } = self.seen();
                panic!("{what}: {count} bytes, {events:?} {flows:?} {:?}", self.counters());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits for something on the kernel's side.
    pub fn wait_kernel(&self, what: &str, mut done: impl FnMut(&Stage) -> bool) {
        let begin = Clock::start();
        while !done(self) {
            assert!(Duration::from(begin.now().since_origin()) < PATIENCE, "{what}: {:?}", self.counters());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Every connection has so many subflows.
    pub fn wait_subflows(&self, subflows: usize) {
        self.wait("subflows", |seen| seen.flows.iter().filter(|flow| flow.usable()).count() == subflows);
    }

    /// The kernel's counters that aren't 0.
    pub fn counters(&self) -> Vec<(String, u64)> {
        counters(&self.kernel)
    }

    pub fn counter(&self, name: &str) -> u64 {
        counter(&self.counters(), name)
    }

    /// Ends it: no error was counted anywhere.
    pub fn end(self, case: &str) -> Seen {
        self.end_but(case, &[])
    }

    /// The same, but for these counters of the kernel's, whose reason the test gives.
    pub fn end_but(mut self, case: &str, allowed: &[&str]) -> Seen {
        assert_no_errors_but(case, &self.counters(), allowed);
        self.stop.store(true, Ordering::Relaxed);
        let worker = self.worker.take().expect("it ends once");
        let world = worker.join().expect("no panic in the world").expect("no device failed");
        let counters = world.counters();
        assert_eq!((counters.malformed, counters.unencodable), (0, 0), "{case}");
        self.seen()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The counters of a namespace that aren't 0.
pub fn counters(space: &Namespace) -> Vec<(String, u64)> {
    let text = space.check("nstat", &["-asz"]).expect("nstat runs");
    let counter = |line: &str| {
        let mut words = line.split_whitespace();
        let (name, value) = (words.next()?, words.next()?.parse::<u64>().ok()?);
        (value > 0).then(|| (name.to_string(), value))
    };
    text.lines().filter_map(counter).collect()
}

/// A Multipath TCP listener of the kernel's, for both families.
pub fn listener(space: &Namespace) -> Socket {
    let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), PORT);
    kernel::listen(space, any, &SocketConfig::default()).expect("a listener")
}

pub fn accept(listener: &Socket) -> Socket {
    patient(kernel::accept(listener, PATIENCE).expect("a connection"))
}

pub fn connect(space: &Namespace, local: IpAddr, remote: IpAddr) -> Socket {
    let remote = SocketAddr::new(remote, PORT);
    patient(kernel::connect(space, Some(local), remote, &SocketConfig::default()).expect("a connection"))
}

fn patient(socket: Socket) -> Socket {
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket.set_write_timeout(Some(PATIENCE)).expect("a timeout");
    socket
}

/// Sends so many bytes of the pattern from its start.
pub fn send(mut socket: &Socket, total: u64) {
    let pattern = pattern();
    let mut written = 0;
    while written < total {
        let start = (written % PERIOD as u64) as usize;
        let len = (total - written).min(PERIOD as u64) as usize;
        socket.write_all(&pattern[start..start + len]).expect("the peer takes it");
        written += len as u64;
    }
}

/// Receives so many bytes, which must be the pattern's.
pub fn receive(mut socket: &Socket, total: u64) {
    let mut bytes = vec![0; total as usize];
    socket.read_exact(&mut bytes).expect("all bytes come");
    assert_pattern(&bytes);
}

/// The peer closed its side.
pub fn expect_end(mut socket: &Socket) {
    assert_eq!(socket.read(&mut [0; 8]).expect("an orderly end"), 0);
}

/// Nothing but the pattern, from its start.
pub fn assert_pattern(bytes: &[u8]) {
    let pattern = pattern();
    for (at, chunk) in bytes.chunks(PERIOD).enumerate() {
        assert!(chunk == &pattern[..chunk.len()], "wrong bytes in {} to {}", at * PERIOD, (at + 1) * PERIOD);
    }
}

/// A block of a stream that doesn't repeat (SplitMix64).
pub fn block(index: u64) -> Vec<u8> {
    let mut state = index.wrapping_mul(0xd134_2543_de82_ef95);
    let mut bytes = Vec::with_capacity(BLOCK);
    while bytes.len() < BLOCK {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bytes.extend_from_slice(&(word ^ (word >> 31)).to_le_bytes());
    }
    bytes
}
