//! A measurement on the kernel's sockets: a thread per flow, as the kernel's own tools have it.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ropewalk_engine::{Span, Time};
use socket2::{SockAddr, Socket};

use super::connection::{Output, StackInfo, TestConnection};
use super::protocol::{Hello, MOST_FLOWS, Mode};
use super::{
    CONNECT_PATIENCE, ClientProgress, ConnectionResult, LiveCounters, Measured, ServerControl, ServerEvent,
    SessionTracker, TICK,
};
use crate::clock::Clock;
use crate::kernel::{self, SocketConfig};
use crate::transfer::pattern;

/// Read at a time.
const CHUNK: usize = 256 << 10;
/// The same until the hello or the answer has come.
const FIRST_CHUNK: usize = 4 << 10;
/// Reads before writes have their turn again, and the other way round.
const TURNS: usize = 16;
/// The stop flag is looked at this often at least, milliseconds.
const PATIENCE: u16 = 50;

/// Connections at a server that haven't said what they want, each with its thread. Beyond that the oldest is
/// given up for the newest.
const MOST_PENDING: usize = 256;
/// Connections that a server accepts before it looks after the others.
const ACCEPTS: usize = 64;

/// What a client on the kernel does.
#[derive(Clone, Debug)]
pub struct Client {
    /// Where to.
    pub remote: SocketAddr,
    /// From where; `None`: the kernel chooses.
    pub local: Option<IpAddr>,
    /// Multipath TCP, or plain TCP.
    pub multipath: bool,
    /// Congestion control by the kernel's name; `None`: the system's default.
    pub congestion: Option<String>,
    /// The flows.
    pub hellos: Vec<Hello>,
}

fn stack_info(socket: &Socket) -> StackInfo {
    // A connection that is gone has nothing to say: zeros.
    let infos = kernel::tcp_infos(socket).unwrap_or_default();
    let info = kernel::info(socket).ok().flatten();
    let srtts =
        infos.iter().map(|info| Span::from_micros(info.srtt_us.into())).filter(|srtt| !srtt.is_zero());
    StackInfo {
        retransmitted: infos.iter().map(|info| u64::from(info.retransmitted)).sum(),
        srtt: srtts.min().unwrap_or(Span::ZERO),
        subflows: infos.len() as u8,
        multipath: info.is_some_and(|info| !info.fallback),
        acknowledged: infos.iter().map(|info| info.acknowledged).sum(),
        outstanding: kernel::unacknowledged(socket).unwrap_or(0),
    }
}

/// How others control a flow while it is driven.
trait FlowControl {
    fn before_drive(&self, now: Time, flow: &mut TestConnection, socket: &Socket);
    fn on_stack_info(&self, flow: &TestConnection);
}

/// Drives a flow to its end.
fn drive(socket: &Socket, clock: Clock, flow: &mut TestConnection, control: &impl FlowControl) {
    // A connection that says nothing costs little.
    let mut buffer = vec![0; FIRST_CHUNK];
    let mut tick = Time::ZERO;
    while !flow.is_over() {
        if flow.started_at().is_some() && buffer.len() < CHUNK {
            buffer = vec![0; CHUNK];
        }
        let now = clock.now();
        flow.check(now);
        control.before_drive(now, flow, socket);
        // Before the hello the stack has nothing to say that anybody would read.
        if flow.started_at().is_some() && (now >= tick || flow.is_trailer_due(now)) {
            tick = now + TICK;
            flow.update_stack_info(now, stack_info(socket));
            control.on_stack_info(flow);
        }
        let wants = write(socket, clock, flow);
        let came = read(socket, clock, flow, &mut buffer);
        control.on_stack_info(flow);
        if came || flow.is_over() {
            // What came may be answered: no wait.
            continue;
        }
        let now = clock.now();
        let mut events = PollFlags::empty();
        events.set(PollFlags::POLLIN, !flow.has_ended());
        events.set(PollFlags::POLLOUT, wants);
        let tick = if flow.started_at().is_some() { tick } else { Time::MAX };
        let due = flow.wake(now).unwrap_or(now).min(tick).saturating_sub(now);
        let millis = due.div_ceil(Span::from_millis(1)).min(u64::from(PATIENCE)) as u16;
        let mut fds = [PollFd::new(socket.as_fd(), events)];
        // An interruption by a signal only makes the next look come early.
        let _ = poll(&mut fds, PollTimeout::from(millis));
    }
    flow.update_stack_info(clock.now(), stack_info(socket));
    control.on_stack_info(flow);
}

/// Writes what the flow wants written; whether the socket has no room for the rest.
fn write(mut socket: &Socket, clock: Clock, flow: &mut TestConnection) -> bool {
    for _ in 0..TURNS {
        match flow.output(clock.now()) {
            Output::Write(bytes) => match socket.write(&bytes) {
                Ok(len) => flow.wrote(clock.now(), len),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => flow.fail(describe_broken(&error)),
            },
            Output::Shutdown => {
                if let Err(error) = socket.shutdown(Shutdown::Write) {
                    flow.fail(describe_broken(&error));
                }
            }
            Output::Wait => return false,
        }
        if flow.is_over() {
            return false;
        }
    }
    true
}

/// Reads what there is; whether there was something.
fn read(mut socket: &Socket, clock: Clock, flow: &mut TestConnection, buffer: &mut [u8]) -> bool {
    for turn in 0..TURNS {
        if flow.has_ended() {
            return turn > 0;
        }
        match socket.read(buffer) {
            Ok(0) => flow.end_of_input(clock.now()),
            Ok(len) => flow.input(clock.now(), &buffer[..len]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return turn > 0,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => flow.fail(describe_broken(&error)),
        }
    }
    true
}

/// What a broken connection is called.
fn describe_broken(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionAborted => {
            "the peer is gone: it reset the connection in mid-run".into()
        }
        _ => format!("the connection broke: {error}"),
    }
}

struct ClientControl<'a> {
    progress: &'a ClientProgress,
    counters: &'a LiveCounters,
}

impl FlowControl for ClientControl<'_> {
    fn before_drive(&self, _now: Time, flow: &mut TestConnection, _socket: &Socket) {
        if self.progress.is_stopped() {
            flow.fail("interrupted");
        }
        self.progress.end_echoes_with_bulk(flow);
    }

    fn on_stack_info(&self, flow: &TestConnection) {
        self.counters.publish(flow);
    }
}

fn open(client: &Client) -> io::Result<Socket> {
    let config = SocketConfig {
        multipath: client.multipath,
        congestion: client.congestion.as_deref(),
        ..SocketConfig::default()
    };
    let socket = kernel::socket(client.remote.is_ipv6(), &config)?;
    if let Some(local) = client.local {
        socket.bind(&SockAddr::from(SocketAddr::new(local, 0)))?;
    }
    socket.set_tcp_nodelay(true)?;
    socket.connect_timeout(&SockAddr::from(client.remote), CONNECT_PATIENCE.into())?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn unopened(remote: SocketAddr, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            format!("{remote} refused the connection: is `ropewalk perf server` running there?")
        }
        io::ErrorKind::TimedOut => {
            format!("{remote} didn't answer within {} s", CONNECT_PATIENCE / 1_000_000_000)
        }
        io::ErrorKind::NotFound => {
            let known = allowed();
            format!("{error}; this kernel allows: {known}")
        }
        _ => format!("connecting to {remote}: {error}"),
    }
}

fn run(client: &Client, progress: &ClientProgress, number: usize, bulk: Bytes) {
    let started = progress.clock.now();
    let hello = &client.hellos[number];
    let done = match open(client) {
        Ok(socket) => {
            let now = progress.clock.now();
            let mut flow = TestConnection::client(now, hello.clone(), bulk);
            let control = ClientControl { progress, counters: &progress.counters[number] };
            drive(&socket, progress.clock, &mut flow, &control);
            ConnectionResult::of(&flow, number as u16, Some(client.remote), Some(now - started))
        }
        Err(error) => {
            // What this machine's kernel refuses is no word of the server's.
            let mut flow = TestConnection::client(started, hello.clone(), bulk);
            flow.fail(unopened(client.remote, &error));
            ConnectionResult::of(&flow, number as u16, Some(client.remote), None)
        }
    };
    progress.finish(done);
}

/// Runs a client to its end. `observe` is called every few milliseconds.
///
/// # Errors
/// If a thread can't be started. A flow that fails says so itself.
pub fn client(
    client: &Client,
    stop: std::sync::Arc<std::sync::atomic::AtomicBool>,
    mut observe: impl FnMut(&ClientProgress),
) -> io::Result<Measured> {
    let progress = ClientProgress::new(client.hellos.iter().map(|hello| hello.mode), stop);
    let before: BTreeMap<_, _> = kernel::counters().unwrap_or_default().into_iter().collect();
    let bulk = pattern();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..client.hellos.len())
            .map(|number| {
                let (progress, bulk) = (&progress, bulk.clone());
                std::thread::Builder::new().spawn_scoped(scope, move || run(client, progress, number, bulk))
            })
            .collect::<io::Result<_>>()?;
        while !workers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            observe(&progress);
            std::thread::sleep(Duration::from_millis(5));
        }
        observe(&progress);
        Ok::<(), io::Error>(())
    })?;
    Ok(Measured { flows: progress.take(), counters: counter_increases(&before) })
}

/// What the kernel's counters rose by.
fn counter_increases(before: &BTreeMap<String, u64>) -> Vec<(String, u64)> {
    let now = kernel::counters().unwrap_or_default();
    now.into_iter()
        .map(|(name, value)| {
            let rise = value.saturating_sub(before.get(&name).copied().unwrap_or(0));
            (name, rise)
        })
        .collect()
}

/// What a server on the kernel does.
#[derive(Clone, Debug)]
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    /// Multipath TCP (which serves plain TCP as well), or plain TCP.
    pub multipath: bool,
}

/// What a server's threads know of each other.
#[derive(Debug, Default)]
struct ActiveFlows {
    /// Flows that were answered and aren't over.
    active: AtomicUsize,
}

/// What the accepting thread and a connection's thread share.
#[derive(Debug, Default)]
struct Admission {
    /// The client has said what it wants, or the flow is over.
    has_hello: AtomicBool,
    /// The connection is to be given up.
    is_evicted: AtomicBool,
    /// It counts among the active flows.
    is_active: AtomicBool,
}

struct SocketServerControl<'a> {
    service: &'a ServerControl,
    flows: &'a ActiveFlows,
    admission: &'a Admission,
    peer: SocketAddr,
}

impl FlowControl for SocketServerControl<'_> {
    fn before_drive(&self, now: Time, flow: &mut TestConnection, socket: &Socket) {
        if self.service.stop.load(Ordering::Relaxed) {
            flow.fail("the server was interrupted");
        }
        if self.admission.is_evicted.load(Ordering::Relaxed) && flow.hello().is_none() {
            flow.fail(format!("more than {MOST_PENDING} clients don't say what they want"));
        }
        if let Some(hello) = flow.pending_hello().cloned() {
            self.admission.has_hello.store(true, Ordering::Relaxed);
            let most = usize::from(MOST_FLOWS);
            let room = |active: usize| (active < most).then_some(active + 1);
            let counted = self.flows.active.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok();
            self.admission.is_active.store(counted, Ordering::Relaxed);
            let refusal = if counted { refusal(&hello, socket) } else { Some(busy_refusal()) };
            if refusal.is_none() {
                let _ = self.service.events.send(ServerEvent::Started(self.peer, hello));
            }
            flow.reply(now, false, refusal);
        }
    }

    fn on_stack_info(&self, _flow: &TestConnection) {}
}

/// What a server with too much to do says.
pub(super) fn busy_refusal() -> String {
    format!("{MOST_FLOWS} flows are under way, and more aren't allowed")
}

/// The congestion controls that an ordinary user may choose.
fn allowed() -> String {
    let list = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
    list.unwrap_or_default().trim().into()
}

fn refusal(hello: &Hello, socket: &Socket) -> Option<String> {
    if !hello.scheduler.is_empty() {
        return Some(format!(
            "scheduler `{}` was asked for, but the server sends with the Linux kernel's stack, which has \
             its own: start it with --stack engine, or leave --scheduler away",
            hello.scheduler
        ));
    }
    let name = &hello.congestion;
    if name.is_empty() || hello.mode == Mode::Echo {
        return None;
    }
    let error = socket.set_tcp_congestion(name.as_bytes()).err()?;
    Some(format!("congestion control `{name}` ({error}); the server's kernel allows: {}", allowed()))
}

fn serve(
    socket: &Socket,
    peer: SocketAddr,
    clock: Clock,
    flows: &ActiveFlows,
    admission: &Admission,
    service: &ServerControl,
    bulk: Bytes,
) -> ConnectionResult {
    let mut flow = TestConnection::server(clock.now(), bulk);
    let ready = socket.set_nonblocking(true).and_then(|()| socket.set_tcp_nodelay(true));
    if let Err(error) = ready {
        flow.fail(describe_broken(&error));
    }
    drive(socket, clock, &mut flow, &SocketServerControl { service, flows, admission, peer });
    admission.has_hello.store(true, Ordering::Relaxed);
    if admission.is_active.load(Ordering::Relaxed) {
        flows.active.fetch_sub(1, Ordering::Relaxed);
    }
    ConnectionResult::of(&flow, 0, Some(peer), None)
}

/// A connection's thread.
struct Worker<'scope> {
    thread: std::thread::ScopedJoinHandle<'scope, ConnectionResult>,
    admission: Arc<Admission>,
}

/// Gives up the connections that have been silent for longest if there are too many of them. Workers are in
/// order of their start.
fn limit_pending(workers: &[Worker<'_>]) {
    let silent = |worker: &&Worker<'_>| {
        let admission = &worker.admission;
        !admission.has_hello.load(Ordering::Relaxed) && !admission.is_evicted.load(Ordering::Relaxed)
    };
    let surplus = workers.iter().filter(silent).count().saturating_sub(MOST_PENDING);
    for worker in workers.iter().filter(silent).take(surplus) {
        worker.admission.is_evicted.store(true, Ordering::Relaxed);
    }
}

/// Listens; `ready` gets the address. Returns at the stop flag, or when `once` is over; then with the
/// kernel's counters' rise.
///
/// # Errors
/// If the address can't be listened on.
pub fn server(
    server: &Server,
    service: &ServerControl,
    ready: impl FnOnce(SocketAddr),
) -> io::Result<Vec<(String, u64)>> {
    let config = SocketConfig { multipath: server.multipath, congestion: None, ..SocketConfig::default() };
    let before: BTreeMap<_, _> = kernel::counters().unwrap_or_default().into_iter().collect();
    let context =
        |error: io::Error| io::Error::new(error.kind(), format!("listening on {}: {error}", server.address));
    let listener = kernel::socket(server.address.is_ipv6(), &config)?;
    listener.set_reuse_address(true)?;
    listener.bind(&SockAddr::from(server.address)).map_err(context)?;
    listener.listen(1024).map_err(context)?;
    listener.set_nonblocking(true)?;
    ready(listener.local_addr()?.as_socket().unwrap_or(server.address));
    let clock = Clock::start();
    let mut sessions = SessionTracker::default();
    let flows = ActiveFlows::default();
    let bulk = pattern();
    std::thread::scope(|scope| {
        let mut workers: Vec<Worker<'_>> = Vec::new();
        loop {
            for _ in 0..ACCEPTS {
                // Evicted threads take a moment to end; until then the backlog waits.
                if workers.len() >= 2 * MOST_PENDING + usize::from(MOST_FLOWS) {
                    break;
                }
                let Ok((socket, address)) = listener.accept() else { break };
                let peer = address.as_socket().unwrap_or(server.address);
                let admission = Arc::new(Admission::default());
                let (shared, flows, bulk) = (Arc::clone(&admission), &flows, bulk.clone());
                let thread = std::thread::Builder::new()
                    .spawn_scoped(scope, move || serve(&socket, peer, clock, flows, &shared, service, bulk));
                workers.extend(thread.map(|thread| Worker { thread, admission }));
            }
            limit_pending(&workers);
            let now = clock.now();
            let (over, going): (Vec<_>, Vec<_>) =
                workers.into_iter().partition(|worker| worker.thread.is_finished());
            workers = going;
            sessions.active = flows.active.load(Ordering::Relaxed);
            for done in over.into_iter().filter_map(|worker| worker.thread.join().ok()) {
                if let Some(hello) = done.hello.as_ref().filter(|_| done.engine_answered.is_some()) {
                    sessions.on_start(hello);
                }
                sessions.on_end(now, &done);
                let _ = service.events.send(ServerEvent::Finished(Box::new(done)));
            }
            let stopped = service.stop.load(Ordering::Relaxed) && workers.is_empty();
            if stopped || (service.once && sessions.is_over(now)) {
                break;
            }
            let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut fds, PollTimeout::from(20u8));
        }
    });
    Ok(counter_increases(&before))
}
