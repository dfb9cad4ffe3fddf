//! A measurement on the engine's connections, behind TUN devices.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ropewalk_engine::config::{ConnectionConfig, EndpointConfig, LocalEndpoint};
use ropewalk_engine::congestion::CongestionControl;
use ropewalk_engine::endpoint::{ConnectionId, Endpoint};
use ropewalk_engine::metrics::SubflowStatus;
use ropewalk_engine::mptcp::{Connection, Event};
use ropewalk_engine::registry::Spec;
use ropewalk_engine::scheduler::Scheduler;
use ropewalk_engine::{PathId, SubflowId};

use super::device::{Device, EnginePath, MTU};
use super::flow::{Facts, Flow, Output};
use super::protocol::{Hello, MOST_FLOWS, Way};
use super::sockets::busy;
use super::{Board, CONNECT_PATIENCE, Done, Measured, Service, Sessions, Strand, TICK, Word};
use crate::clock::{Nanos, hurry};
use crate::entropy::OsEntropy;
use crate::transfer::pattern;
use crate::world::{App, DeviceState, End, HostEndpoint, Tap, World};

/// Read at a time.
const CHUNK: usize = 256 << 10;
/// Bulk handed to a connection before the others have their turn.
const TURNS: usize = 16;
/// How long the last words of a connection may take.
const GRACE: Nanos = 500_000_000;
const SLICE: Nanos = 5_000_000;

/// Scheduler and congestion control by the names in a hello; an empty name is none.
pub type Resolve = Box<
    dyn Fn(&str, &str) -> Result<(Option<Spec<dyn Scheduler>>, Option<Spec<dyn CongestionControl>>), String>
        + Send,
>;

/// A flow on a connection.
struct Driven {
    flow: Flow,
    number: usize,
    peer: SocketAddr,
    /// When its opening began (client), and how long it took.
    opened: Nanos,
    connect: Option<Nanos>,
    reported: bool,
}

/// Where flows report to.
enum Desk {
    Client(Arc<Board>),
    Server { service: Arc<Service>, sessions: Arc<Mutex<Sessions>>, resolve: Resolve },
}

/// The program on the engine.
struct Perf {
    desk: Desk,
    /// What is to be opened, with its settings.
    open: Vec<(Hello, Arc<ConnectionConfig>)>,
    local: SocketAddr,
    remote: SocketAddr,
    listen: Option<Arc<ConnectionConfig>>,
    /// The devices' names, by path.
    devices: Vec<String>,
    flows: BTreeMap<ConnectionId, Driven>,
    bulk: Bytes,
    tick: Nanos,
    /// When a flow wants to be asked.
    due: Nanos,
}

fn facts(now: Nanos, connection: &Connection<Bytes>) -> Facts {
    let mut facts = Facts {
        multipath: connection.is_multipath(),
        acknowledged: connection.data_una(),
        outstanding: connection.stats(now).bytes_written.saturating_sub(connection.data_una()),
        ..Facts::default()
    };
    for flow in connection.subflow_metrics() {
        facts.retransmitted += flow.retrans_total;
        if !matches!(flow.state, SubflowStatus::Closed | SubflowStatus::Handshaking) {
            facts.subflows += 1;
            if flow.srtt > 0 && (facts.srtt == 0 || flow.srtt < facts.srtt) {
                facts.srtt = flow.srtt;
            }
        }
    }
    facts
}

fn strands(connection: &Connection<Bytes>) -> Vec<Strand> {
    let strand = |at: usize| {
        let flow = &connection.subflow_metrics()[at];
        let counters = connection.tcp_counters(SubflowId(at as u8));
        Strand {
            path: flow.path.0,
            sent: counters.map_or(0, |counters| counters.bytes_sent),
            srtt: flow.srtt,
            retransmitted: flow.retrans_total,
        }
    };
    (0..connection.subflow_metrics().len()).map(strand).collect()
}

impl Perf {
    fn learn(&mut self, now: Nanos, endpoint: &HostEndpoint, id: ConnectionId) {
        let Some(driven) = self.flows.get_mut(&id) else { return };
        if let Some(connection) = endpoint.connection(id) {
            driven.flow.learn(now, facts(now, connection));
        }
        if let Desk::Client(board) = &self.desk {
            board.gauges[driven.number].show(&driven.flow);
        }
    }

    fn drive(&mut self, now: Nanos, endpoint: &mut HostEndpoint, id: ConnectionId) {
        let Some(driven) = self.flows.get_mut(&id) else { return };
        if driven.reported {
            return;
        }
        match &self.desk {
            Desk::Client(board) if board.is_stopped() => driven.flow.fail("interrupted"),
            Desk::Client(board) => board.guide(&mut driven.flow),
            Desk::Server { service, .. } if service.stop.load(Ordering::Relaxed) => {
                driven.flow.fail("the server was interrupted");
            }
            Desk::Server { .. } => {}
        }
        driven.flow.check(now);
        while !driven.flow.has_ended()
            && let Ok(Some(data)) = endpoint.read_piece(now, id, CHUNK)
        {
            if data.is_empty() {
                driven.flow.end_of_input(now);
            } else {
                driven.flow.input(now, &data);
            }
        }
        self.answer(now, endpoint, id);
        let Some(driven) = self.flows.get_mut(&id) else { return };
        if driven.flow.has_last_word(now) {
            self.learn(now, endpoint, id);
        }
        self.write(now, endpoint, id);
        let Some(driven) = self.flows.get_mut(&id) else { return };
        if let Some(at) = driven.flow.wake(now) {
            self.due = self.due.min(at);
        }
        if driven.flow.is_over() {
            self.report(now, endpoint, id);
        }
    }

    /// A server's answer to what it was asked for.
    fn answer(&mut self, now: Nanos, endpoint: &mut HostEndpoint, id: ConnectionId) {
        let active = self.flows.values().filter(|driven| !driven.reported).count();
        let Some(driven) = self.flows.get_mut(&id) else { return };
        let Desk::Server { service, sessions, resolve } = &self.desk else { return };
        let Some(hello) = driven.flow.asked().cloned() else { return };
        if active > usize::from(MOST_FLOWS) {
            driven.flow.reply(now, true, Some(busy()));
            return;
        }
        let refusal = match resolve(&hello.scheduler, &hello.congestion) {
            Ok((scheduler, congestion)) => {
                endpoint.set_algorithms(now, id, scheduler.as_ref(), congestion.as_ref());
                None
            }
            Err(why) => Some(why),
        };
        sessions.lock().unwrap_or_else(PoisonError::into_inner).began(&hello);
        if refusal.is_none() {
            let _ = service.tell.send(Word::Began(driven.peer, hello));
        }
        driven.flow.reply(now, true, refusal);
    }

    fn write(&mut self, now: Nanos, endpoint: &mut HostEndpoint, id: ConnectionId) {
        let Some(driven) = self.flows.get_mut(&id) else { return };
        for _ in 0..TURNS {
            match driven.flow.output(now) {
                Output::Write(bytes) => {
                    let len = bytes.len();
                    match endpoint.write(now, id, bytes) {
                        Ok(taken) => {
                            driven.flow.wrote(now, taken);
                            if taken < len {
                                return;
                            }
                        }
                        Err(error) => driven.flow.fail(format!("the connection broke: {error}")),
                    }
                }
                Output::Shutdown => endpoint.shutdown(now, id),
                Output::Wait => return,
            }
            if driven.flow.is_over() {
                return;
            }
        }
        // There is more to write: soon again.
        self.due = now;
    }

    fn report(&mut self, now: Nanos, endpoint: &mut HostEndpoint, id: ConnectionId) {
        self.learn(now, endpoint, id);
        let Some(driven) = self.flows.get_mut(&id) else { return };
        if driven.reported {
            return;
        }
        driven.reported = true;
        let mut done = Done::of(&driven.flow, driven.number as u16, Some(driven.peer), driven.connect);
        if let Some(connection) = endpoint.connection(id) {
            done.strands = strands(connection);
        }
        if done.error.is_some() {
            endpoint.abort(now, id);
        }
        match &self.desk {
            Desk::Client(board) => board.finish(done),
            Desk::Server { service, sessions, .. } => {
                let active = self.flows.values().filter(|driven| !driven.reported).count();
                let mut sessions = sessions.lock().unwrap_or_else(PoisonError::into_inner);
                sessions.active = active;
                sessions.ended(now, &done);
                let _ = service.tell.send(Word::Ended(Box::new(done)));
            }
        }
    }

    fn everyone(&mut self, now: Nanos, endpoint: &mut HostEndpoint) {
        self.due = Nanos::MAX;
        let is_tick = now >= self.tick;
        if is_tick {
            self.tick = now + TICK;
        }
        let ids: Vec<_> =
            self.flows.iter().filter(|(_, driven)| !driven.reported).map(|(id, _)| *id).collect();
        for id in ids {
            if is_tick {
                self.learn(now, endpoint, id);
                self.patience(now, id);
            }
            self.drive(now, endpoint, id);
        }
        if let Desk::Server { .. } = self.desk {
            self.flows.retain(|id, driven| !driven.reported || endpoint.connection(*id).is_some());
        }
    }

    /// A connection that doesn't open is given up.
    fn patience(&mut self, now: Nanos, id: ConnectionId) {
        let is_client = matches!(self.desk, Desk::Client(_));
        let Some(driven) = self.flows.get_mut(&id) else { return };
        if is_client && driven.connect.is_none() && now > driven.opened + CONNECT_PATIENCE {
            let seconds = CONNECT_PATIENCE / 1_000_000_000;
            driven.flow.fail(format!("{} didn't answer within {seconds} s", self.remote));
        }
    }
}

impl App for Perf {
    fn start(&mut self, now: Nanos, endpoint: &mut HostEndpoint) {
        if let Some(config) = &self.listen {
            endpoint.listen(self.local, Arc::clone(config));
        }
        for (number, (hello, config)) in std::mem::take(&mut self.open).into_iter().enumerate() {
            let mut flow = Flow::client(now, hello, self.bulk.clone());
            match endpoint.connect(now, PathId(0), self.local, self.remote, config) {
                Ok(id) => {
                    let peer = self.remote;
                    let driven = Driven { flow, number, peer, opened: now, connect: None, reported: false };
                    self.flows.insert(id, driven);
                }
                Err(error) => {
                    flow.fail(format!("connecting to {}: {error}", self.remote));
                    if let Desk::Client(board) = &self.desk {
                        board.finish(Done::of(&flow, number as u16, Some(self.remote), None));
                    }
                }
            }
        }
    }

    fn on_event(&mut self, now: Nanos, endpoint: &mut HostEndpoint, id: ConnectionId, event: Event) {
        match event {
            Event::Accepted { tuple, .. } => {
                let flow = Flow::server(now, self.bulk.clone());
                let peer = tuple.destination();
                let driven = Driven { flow, number: 0, peer, opened: now, connect: Some(0), reported: false };
                self.flows.insert(id, driven);
                self.drive(now, endpoint, id);
            }
            Event::Connected { .. } => {
                if let Some(driven) = self.flows.get_mut(&id) {
                    driven.connect = Some(now - driven.opened);
                }
                self.learn(now, endpoint, id);
                self.drive(now, endpoint, id);
            }
            Event::Reset { reason } => {
                if let Some(driven) = self.flows.get_mut(&id) {
                    let why = if driven.connect.is_none() {
                        let remote = self.remote;
                        format!("{remote} refused the connection: is `ropewalk perf server` running there?")
                    } else {
                        format!("the peer is gone: {reason}")
                    };
                    driven.flow.fail(why);
                }
                self.drive(now, endpoint, id);
            }
            Event::SubflowAdded { .. } => self.learn(now, endpoint, id),
            // A connection that was never opened has no stream to drive.
            Event::Writable | Event::Readable | Event::PeerClosed | Event::Closed => {
                if self.flows.get(&id).is_some_and(|driven| driven.connect.is_some()) {
                    self.drive(now, endpoint, id);
                }
            }
            Event::SubflowRemoved { .. } | Event::Fallback(_) | Event::Decision(_) => {}
        }
    }

    fn on_path(&mut self, _now: Nanos, _endpoint: &mut HostEndpoint, path: PathId, up: bool) {
        if let Desk::Server { service, .. } = &self.desk
            && let Some(device) = self.devices.get(usize::from(path.0))
        {
            // Nobody may be listening any more.
            let _ = service.tell.send(Word::Path { device: device.clone(), up });
        }
    }

    fn wake(&self) -> Option<Nanos> {
        Some(self.due.min(self.tick))
    }

    fn on_wake(&mut self, now: Nanos, endpoint: &mut HostEndpoint) {
        self.everyone(now, endpoint);
    }

    fn is_done(&self) -> bool {
        matches!(self.desk, Desk::Client(_)) && self.flows.values().all(|driven| driven.reported)
    }
}

/// What both sides of the engine need.
pub struct Setting {
    /// The devices.
    pub device: Device,
    /// An observer.
    pub tap: Option<Box<dyn Tap>>,
}

impl std::fmt::Debug for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setting").field("device", &self.device).finish_non_exhaustive()
    }
}

/// The path manager's endpoints: a client opens subflows from them, a server announces them.
pub fn endpoints(paths: &[EnginePath], server: bool) -> Vec<LocalEndpoint> {
    let endpoint = |(at, path): (usize, &EnginePath)| LocalEndpoint {
        address: path.engine,
        port: None,
        path: PathId(at as u16),
        id: at as u8 + 1,
        signal: server && at > 0,
        subflow: !server,
        backup: false,
    };
    paths.iter().enumerate().map(endpoint).collect()
}

fn names(paths: &[EnginePath]) -> Vec<String> {
    paths.iter().map(|path| path.name.clone()).collect()
}

fn endpoint(paths: usize) -> Box<HostEndpoint> {
    let config = EndpointConfig { path_mtus: vec![MTU; paths], ..EndpointConfig::default() };
    Box::new(Endpoint::new(config, OsEntropy::new()))
}

/// Runs a world until `over`, then lets connections say their last words, and gives the endpoint's counters.
fn move_packets(
    mut world: World,
    side: usize,
    over: impl Fn(Nanos) -> bool,
) -> io::Result<Vec<(String, u64)>> {
    hurry();
    let clock = world.clock();
    let (mut aborted, mut until) = (false, Nanos::MAX);
    loop {
        world.run_past(clock.now() + SLICE)?;
        let now = clock.now();
        if !aborted && over(now) {
            aborted = true;
            until = now + GRACE;
        }
        if world.devices(side == 0).iter().all(|state| *state == DeviceState::Removed) {
            return Err(io::Error::other("every device of the engine was removed: no path is left"));
        }
        let End::Engine(endpoint, _) = &world.ends()[side] else { return Ok(Vec::new()) };
        if aborted && (endpoint.is_empty() || now >= until) {
            return Ok(endpoint.mib());
        }
    }
}

/// Runs a client to its end: each flow with its settings. `observe` is called every few milliseconds.
///
/// # Errors
/// If a device fails. A flow that fails says so itself.
pub fn client(
    setting: Setting,
    remote: SocketAddr,
    flows: Vec<(Hello, ConnectionConfig)>,
    stop: Arc<AtomicBool>,
    mut observe: impl FnMut(&Board),
) -> io::Result<Measured> {
    let ways: Vec<Way> = flows.iter().map(|(hello, _)| hello.way).collect();
    let board = Arc::new(Board::new(ways.iter().copied(), stop));
    let paths = setting.device.paths;
    let devices = names(&paths);
    let perf = Perf {
        desk: Desk::Client(Arc::clone(&board)),
        open: flows.into_iter().map(|(hello, config)| (hello, Arc::new(config))).collect(),
        local: SocketAddr::new(paths[0].engine, 0),
        remote,
        listen: None,
        devices,
        flows: BTreeMap::new(),
        bulk: pattern(),
        tick: 0,
        due: 0,
    };
    let end = End::Engine(endpoint(paths.len()), Box::new(perf));
    let mut world = World::new(end, End::Kernel(setting.device.end), paths.len());
    if let Some(tap) = setting.tap {
        world.watch(tap);
    }
    let count = ways.len();
    let watched = Arc::clone(&board);
    let all_done = move |_| watched.done.lock().unwrap_or_else(PoisonError::into_inner).len() >= count;
    let counters = std::thread::scope(|scope| {
        let mover = scope.spawn(move || move_packets(world, 0, all_done));
        while !mover.is_finished() {
            observe(&board);
            std::thread::sleep(Duration::from_millis(5));
        }
        observe(&board);
        match mover.join() {
            Ok(counters) => counters,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })?;
    Ok(Measured { flows: board.take(), counters })
}

/// Listens. Returns at the stop flag, or when `once` is over; then with the endpoint's counters.
///
/// # Errors
/// If a device fails.
pub fn server(
    setting: Setting,
    port: u16,
    config: ConnectionConfig,
    resolve: Resolve,
    service: Service,
    ready: impl FnOnce(SocketAddr),
) -> io::Result<Vec<(String, u64)>> {
    let paths = setting.device.paths;
    let devices = names(&paths);
    let local = SocketAddr::new(paths[0].engine, port);
    let service = Arc::new(service);
    let sessions = Arc::new(Mutex::new(Sessions::default()));
    let perf = Perf {
        desk: Desk::Server { service: Arc::clone(&service), sessions: Arc::clone(&sessions), resolve },
        open: Vec::new(),
        local,
        remote: local,
        listen: Some(Arc::new(config)),
        devices,
        flows: BTreeMap::new(),
        bulk: pattern(),
        tick: 0,
        due: 0,
    };
    let end = End::Engine(endpoint(paths.len()), Box::new(perf));
    let mut world = World::new(End::Kernel(setting.device.end), end, paths.len());
    if let Some(tap) = setting.tap {
        world.watch(tap);
    }
    ready(local);
    let stopped = |now| {
        let stop = service.stop.load(Ordering::Relaxed);
        stop || (service.once && sessions.lock().unwrap_or_else(PoisonError::into_inner).is_over(now))
    };
    std::thread::scope(|scope| match scope.spawn(|| move_packets(world, 1, stopped)).join() {
        Ok(counters) => counters,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}
