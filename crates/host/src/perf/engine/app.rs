//! The measurement's program on the engine: one [`TestConnection`] for each connection of the endpoint's.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use ropewalk_engine::config::ConnectionConfig;
use ropewalk_engine::endpoint::ConnectionId;
use ropewalk_engine::metrics::SubflowStatus;
use ropewalk_engine::mptcp::{CloseReason, Connection, Event};
use ropewalk_engine::{PathId, Span, SubflowId, Time};

use super::{OpenOn, Resolve};
use crate::perf::connection::{Output, StackInfo, TestConnection};
use crate::perf::device::EnginePath;
use crate::perf::protocol::{Hello, MOST_FLOWS};
use crate::perf::sockets::busy_refusal;
use crate::perf::{
    CONNECT_PATIENCE, ClientProgress, ConnectionResult, ServerControl, ServerEvent, SessionTracker,
    SubflowResult, TICK,
};
use crate::transfer::pattern;
use crate::world::{App, HostEndpoint};

/// Read at a time.
const CHUNK: usize = 256 << 10;
/// Bulk handed to a connection before the others have their turn.
const TURNS: usize = 16;
/// Connections at a server that haven't said what they want. Beyond that the oldest is given up for the
/// newest, so that idle connections don't keep a client away that speaks at once.
const MOST_PENDING: usize = 1024;
/// A server with [`MOST_FLOWS`] flows gives up one on which nothing has moved for so long when another client
/// comes.
const STALLED: Span = Span::from_secs(3);

/// A flow on a connection.
struct ActiveConnection {
    flow: TestConnection,
    number: usize,
    peer: SocketAddr,
    /// When its opening began (client), and how long it took.
    opened: Time,
    connect: Option<Span>,
    reported: bool,
    /// Its entry in [`Perf::wakes`].
    wake: Time,
    /// When the stack's numbers are read next.
    next_stack_info: Time,
    /// Whether it counts among a server's active flows.
    is_active: bool,
    /// The same flow's connections on other paths, until one of them is open.
    racing: Vec<ConnectionId>,
}

impl ActiveConnection {
    fn new(
        now: Time,
        flow: TestConnection,
        number: usize,
        peer: SocketAddr,
        connect: Option<Span>,
    ) -> ActiveConnection {
        ActiveConnection {
            flow,
            number,
            peer,
            opened: now,
            connect,
            reported: false,
            wake: Time::MAX,
            next_stack_info: now,
            is_active: false,
            racing: Vec::new(),
        }
    }
}

/// Where flows report to.
enum Role {
    Client(Arc<ClientProgress>),
    Server { service: Arc<ServerControl>, sessions: Arc<Mutex<SessionTracker>>, resolve: Resolve },
}

/// The program on the engine.
pub(super) struct Perf {
    role: Role,
    /// What is to be opened, with its settings.
    open: Vec<(Hello, Arc<ConnectionConfig>)>,
    /// Where they open: the addresses, with their paths.
    open_on: Vec<(PathId, SocketAddr)>,
    local: SocketAddr,
    remote: SocketAddr,
    listen: Option<Arc<ConnectionConfig>>,
    /// The devices' names, by path.
    devices: Vec<String>,
    flows: BTreeMap<ConnectionId, ActiveConnection>,
    /// When each unfinished flow is to be driven next.
    wakes: BTreeSet<(Time, ConnectionId)>,
    /// A server's connections whose clients haven't said what they want, oldest first.
    pending: BTreeSet<(Time, ConnectionId)>,
    /// A server's flows that were answered and aren't over.
    active: usize,
    bulk: Bytes,
    /// When the stop flag is looked at next.
    next_check: Time,
}

fn stack_info(now: Time, connection: &Connection<Bytes>) -> StackInfo {
    let written = connection.stats(now).bytes_written;
    let mut info = StackInfo {
        multipath: connection.is_multipath(),
        acknowledged: connection.data_una(),
        outstanding: written.saturating_sub(connection.data_una()),
        ..StackInfo::default()
    };
    for flow in connection.subflow_metrics() {
        info.retransmitted += flow.totals.retransmitted;
        if !matches!(flow.state, SubflowStatus::Closed | SubflowStatus::Handshaking) {
            info.subflows += 1;
            let srtt = flow.rtt.smoothed;
            if !srtt.is_zero() && (info.srtt.is_zero() || srtt < info.srtt) {
                info.srtt = srtt;
            }
        }
    }
    info
}

fn subflow_results(connection: &Connection<Bytes>) -> Vec<SubflowResult> {
    let result = |at: usize| {
        let flow = &connection.subflow_metrics()[at];
        let counters = connection.tcp_counters(SubflowId(at as u8));
        SubflowResult {
            path: flow.path.0,
            sent: counters.map_or(0, |counters| counters.bytes_sent),
            srtt: flow.rtt.smoothed,
            retransmitted: flow.totals.retransmitted,
        }
    };
    (0..connection.subflow_metrics().len()).map(result).collect()
}

impl Perf {
    /// A client that opens these connections.
    pub(super) fn client(
        progress: Arc<ClientProgress>,
        paths: &[EnginePath],
        remote: SocketAddr,
        open: Vec<(Hello, ConnectionConfig)>,
        open_on: OpenOn,
    ) -> Perf {
        let local = SocketAddr::new(paths[0].engine, 0);
        let open = open.into_iter().map(|(hello, config)| (hello, Arc::new(config))).collect();
        let is_asked = |at: &usize| match open_on {
            OpenOn::Path(path) => *at == path.min(paths.len() - 1),
            OpenOn::Race => true,
        };
        let address = |at: usize| (PathId(at as u16), SocketAddr::new(paths[at].engine, 0));
        let open_on = (0..paths.len()).filter(is_asked).map(address).collect();
        Perf { open, open_on, remote, ..Perf::new(Role::Client(progress), paths, local) }
    }

    /// A connection is open. Those of the same flow on other paths are cancelled: they are joined from this
    /// one.
    fn on_connected(&mut self, now: Time, endpoint: &mut HostEndpoint, id: ConnectionId) {
        let mut flows = self.flows.iter();
        let found = flows.find(|(key, active)| **key == id || active.racing.contains(&id));
        let Some(key) = found.map(|(key, _)| *key) else { return };
        self.rename(key, id);
        let Some(active) = self.flows.get_mut(&id) else { return };
        active.connect = Some(now - active.opened);
        for loser in std::mem::take(&mut active.racing) {
            endpoint.abort(now, loser);
        }
    }

    /// Has a flow go by another of its connections, and the one that it went by race against that.
    fn rename(&mut self, from: ConnectionId, to: ConnectionId) {
        if from != to
            && let Some(mut active) = self.flows.remove(&from)
        {
            self.wakes.remove(&(active.wake, from));
            let wake = std::mem::replace(&mut active.wake, Time::MAX);
            active.racing.retain(|other| *other != to);
            active.racing.push(from);
            self.flows.insert(to, active);
            self.wake_at(to, wake);
        }
    }

    /// A connection is lost before it was open: whether others of the same flow go on.
    fn has_racing(&mut self, id: ConnectionId) -> bool {
        if let Some(active) = self.flows.values_mut().find(|active| active.racing.contains(&id)) {
            active.racing.retain(|other| *other != id);
            return true;
        }
        let next = self.flows.get(&id).and_then(|active| active.racing.first().copied());
        if let Some(next) = next {
            self.rename(id, next);
            if let Some(active) = self.flows.get_mut(&next) {
                active.racing.retain(|other| *other != id);
            }
        }
        next.is_some()
    }

    /// A server at the first path's address.
    pub(super) fn server(
        service: Arc<ServerControl>,
        sessions: Arc<Mutex<SessionTracker>>,
        resolve: Resolve,
        paths: &[EnginePath],
        port: u16,
        config: ConnectionConfig,
    ) -> Perf {
        let role = Role::Server { service, sessions, resolve };
        let local = SocketAddr::new(paths[0].engine, port);
        Perf { listen: Some(Arc::new(config)), ..Perf::new(role, paths, local) }
    }

    fn new(role: Role, paths: &[EnginePath], local: SocketAddr) -> Perf {
        Perf {
            role,
            open: Vec::new(),
            open_on: Vec::new(),
            local,
            remote: local,
            listen: None,
            devices: paths.iter().map(|path| path.name.clone()).collect(),
            flows: BTreeMap::new(),
            wakes: BTreeSet::new(),
            pending: BTreeSet::new(),
            active: 0,
            bulk: pattern(),
            next_check: Time::ZERO,
        }
    }

    fn update_stack_info(&mut self, now: Time, endpoint: &HostEndpoint, id: ConnectionId) {
        let Some(active) = self.flows.get_mut(&id) else { return };
        if let Some(connection) = endpoint.connection(id) {
            active.flow.update_stack_info(now, stack_info(now, connection));
        }
        if let Role::Client(progress) = &self.role {
            progress.counters[active.number].publish(&active.flow);
        }
    }

    fn drive(&mut self, now: Time, endpoint: &mut HostEndpoint, id: ConnectionId) {
        self.stop_waking(id);
        let watched = self.is_watched(id);
        let Some(active) = self.flows.get_mut(&id) else { return };
        if active.reported {
            return;
        }
        match &self.role {
            Role::Client(progress) if progress.is_stopped() => active.flow.fail("interrupted"),
            Role::Client(progress) => progress.end_echoes_with_bulk(&mut active.flow),
            Role::Server { service, .. } if service.stop.load(Ordering::Relaxed) => {
                active.flow.fail("the server was interrupted");
            }
            Role::Server { .. } => {}
        }
        active.flow.check(now);
        if watched && now >= active.next_stack_info {
            active.next_stack_info = now + TICK;
            self.update_stack_info(now, endpoint, id);
            self.check_connected(now, id);
        }
        let Some(active) = self.flows.get_mut(&id) else { return };
        while !active.flow.has_ended()
            && let Ok(Some(data)) = endpoint.read_piece(now, id, CHUNK)
        {
            if data.is_empty() {
                active.flow.end_of_input(now);
            } else {
                active.flow.input(now, &data);
            }
        }
        self.answer(now, endpoint, id);
        let Some(active) = self.flows.get_mut(&id) else { return };
        if active.flow.is_trailer_due(now) {
            self.update_stack_info(now, endpoint, id);
        }
        self.write(now, endpoint, id);
        let Some(active) = self.flows.get_mut(&id) else { return };
        if active.flow.is_over() {
            self.report(now, endpoint, id);
            return;
        }
        let next = active.flow.wake(now).unwrap_or(Time::MAX);
        let tick = if self.is_watched(id) { now + TICK } else { Time::MAX };
        self.wake_at(id, next.min(tick));
    }

    /// Whether the stack's numbers are read regularly: from the start at a client, from its answer on at a
    /// server.
    fn is_watched(&self, id: ConnectionId) -> bool {
        let is_client = matches!(self.role, Role::Client(_));
        self.flows.get(&id).is_some_and(|active| is_client || active.flow.started_at().is_some())
    }

    /// Drives a flow at `at`, or when it asks for it, whichever is first.
    fn wake_at(&mut self, id: ConnectionId, at: Time) {
        let Some(active) = self.flows.get_mut(&id) else { return };
        if at < active.wake {
            self.wakes.remove(&(active.wake, id));
            self.wakes.insert((at, id));
            active.wake = at;
        }
    }

    fn stop_waking(&mut self, id: ConnectionId) {
        if let Some(active) = self.flows.get_mut(&id) {
            self.wakes.remove(&(active.wake, id));
            active.wake = Time::MAX;
        }
    }

    /// A server's answer to what it was asked for.
    fn answer(&mut self, now: Time, endpoint: &mut HostEndpoint, id: ConnectionId) {
        let Some(hello) = self.flows.get(&id).and_then(|active| active.flow.pending_hello().cloned()) else {
            return;
        };
        let Role::Server { .. } = &self.role else { return };
        if self.active >= usize::from(MOST_FLOWS) {
            self.close_stalled_flow(now, endpoint);
        }
        let is_busy = self.active >= usize::from(MOST_FLOWS);
        let Role::Server { service, sessions, resolve } = &self.role else { return };
        let Some(active) = self.flows.get_mut(&id) else { return };
        self.pending.remove(&(active.opened, id));
        if is_busy {
            active.flow.reply(now, true, Some(busy_refusal()));
            return;
        }
        let refusal = match resolve(&hello.scheduler, &hello.congestion) {
            Ok((scheduler, congestion)) => {
                endpoint.set_algorithms(now, id, scheduler.as_ref(), congestion.as_ref());
                None
            }
            Err(why) => Some(why.to_string()),
        };
        self.active += 1;
        active.is_active = true;
        let mut sessions = sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.active = self.active;
        sessions.on_start(&hello);
        drop(sessions);
        if refusal.is_none() {
            let _ = service.events.send(ServerEvent::Started(active.peer, hello));
        }
        active.flow.reply(now, true, refusal);
    }

    /// Ends the active flow on which nothing has moved for longest, if that is long.
    fn close_stalled_flow(&mut self, now: Time, endpoint: &mut HostEndpoint) {
        let stalled = self
            .flows
            .iter_mut()
            .filter(|(_, active)| active.is_active && now - active.flow.last_progress() >= STALLED)
            .min_by_key(|(_, active)| active.flow.last_progress());
        if let Some((&id, active)) = stalled {
            let seconds = STALLED / 1_000_000_000;
            active.flow.fail(format!("nothing moved for {seconds} s, and other clients wait"));
            self.report(now, endpoint, id);
        }
    }

    /// Gives up the connection that has been silent for longest if there are too many of them.
    fn limit_pending(&mut self, now: Time, endpoint: &mut HostEndpoint) {
        if self.pending.len() <= MOST_PENDING {
            return;
        }
        if let Some(&(_, id)) = self.pending.first()
            && let Some(active) = self.flows.get_mut(&id)
        {
            active.flow.fail(format!("more than {MOST_PENDING} clients don't say what they want"));
            self.report(now, endpoint, id);
        }
    }

    fn write(&mut self, now: Time, endpoint: &mut HostEndpoint, id: ConnectionId) {
        let Some(active) = self.flows.get_mut(&id) else { return };
        for _ in 0..TURNS {
            match active.flow.output(now) {
                Output::Write(bytes) => {
                    let len = bytes.len();
                    match endpoint.write(now, id, bytes) {
                        Ok(taken) => {
                            active.flow.wrote(now, taken);
                            if taken < len {
                                return;
                            }
                        }
                        Err(error) => active.flow.fail(format!("the connection broke: {error}")),
                    }
                }
                Output::Shutdown => endpoint.shutdown(now, id),
                Output::Wait => return,
            }
            if active.flow.is_over() {
                return;
            }
        }
        // There is more to write: soon again.
        self.wake_at(id, now);
    }

    fn report(&mut self, now: Time, endpoint: &mut HostEndpoint, id: ConnectionId) {
        self.update_stack_info(now, endpoint, id);
        let Some(active) = self.flows.get_mut(&id) else { return };
        if active.reported {
            return;
        }
        active.reported = true;
        self.wakes.remove(&(active.wake, id));
        let mut done =
            ConnectionResult::of(&active.flow, active.number as u16, Some(active.peer), active.connect);
        if let Some(connection) = endpoint.connection(id) {
            done.subflow_results = subflow_results(connection);
        }
        if done.error.is_some() {
            endpoint.abort(now, id);
        }
        match &self.role {
            Role::Client(progress) => progress.finish(done),
            Role::Server { service, sessions, .. } => {
                self.active -= usize::from(active.is_active);
                self.pending.remove(&(active.opened, id));
                let mut sessions = sessions.lock().unwrap_or_else(PoisonError::into_inner);
                sessions.active = self.active;
                sessions.on_end(now, &done);
                let _ = service.events.send(ServerEvent::Finished(Box::new(done)));
                drop(sessions);
                self.flows.remove(&id);
            }
        }
    }

    /// Drives the flows whose time has come, and every one once the stop flag is set.
    fn drive_due(&mut self, now: Time, endpoint: &mut HostEndpoint) {
        let mut due = Vec::new();
        while let Some(&(at, id)) = self.wakes.first()
            && at <= now
        {
            self.wakes.remove(&(at, id));
            if let Some(active) = self.flows.get_mut(&id) {
                active.wake = Time::MAX;
            }
            due.push(id);
        }
        if now >= self.next_check {
            self.next_check = now + TICK;
            let is_stopped = match &self.role {
                Role::Client(progress) => progress.is_stopped(),
                Role::Server { service, .. } => service.stop.load(Ordering::Relaxed),
            };
            if is_stopped {
                due = self.flows.keys().copied().collect();
            }
        }
        for id in due {
            self.drive(now, endpoint, id);
        }
    }

    /// A connection that doesn't open is given up.
    fn check_connected(&mut self, now: Time, id: ConnectionId) {
        let is_client = matches!(self.role, Role::Client(_));
        let Some(active) = self.flows.get_mut(&id) else { return };
        if is_client && active.connect.is_none() && now > active.opened + CONNECT_PATIENCE {
            let seconds = CONNECT_PATIENCE / 1_000_000_000;
            active.flow.fail(format!("{} didn't answer within {seconds} s", self.remote));
        }
    }
}

impl App for Perf {
    fn start(&mut self, now: Time, endpoint: &mut HostEndpoint) {
        if let Some(config) = &self.listen {
            endpoint.listen(self.local, Arc::clone(config));
        }
        for (number, (hello, config)) in std::mem::take(&mut self.open).into_iter().enumerate() {
            let mut flow = TestConnection::client(now, hello, self.bulk.clone());
            let connect = |(path, local): &(PathId, SocketAddr)| {
                endpoint.connect(now, *path, *local, self.remote, Arc::clone(&config))
            };
            match self.open_on.iter().map(connect).collect::<Result<Vec<_>, _>>() {
                Ok(mut ids) if !ids.is_empty() => {
                    let (id, peer) = (ids.remove(0), self.remote);
                    let active = ActiveConnection::new(now, flow, number, peer, None);
                    self.flows.insert(id, ActiveConnection { racing: ids, ..active });
                    self.wake_at(id, now + TICK);
                }
                Ok(_) => {}
                Err(error) => {
                    flow.fail(format!("connecting to {}: {error}", self.remote));
                    if let Role::Client(progress) = &self.role {
                        progress.finish(ConnectionResult::of(&flow, number as u16, Some(self.remote), None));
                    }
                }
            }
        }
    }

    fn on_event(&mut self, now: Time, endpoint: &mut HostEndpoint, id: ConnectionId, event: Event) {
        match event {
            Event::Accepted { tuple, .. } => {
                let flow = TestConnection::server(now, self.bulk.clone());
                let peer = tuple.destination();
                self.flows.insert(id, ActiveConnection::new(now, flow, 0, peer, Some(Span::ZERO)));
                self.pending.insert((now, id));
                self.limit_pending(now, endpoint);
                self.drive(now, endpoint, id);
            }
            Event::Connected { .. } => {
                self.on_connected(now, endpoint, id);
                self.update_stack_info(now, endpoint, id);
                self.drive(now, endpoint, id);
            }
            Event::Reset { .. } if self.has_racing(id) => {}
            Event::Reset { reason } => {
                if let Some(active) = self.flows.get_mut(&id) {
                    let why = match (active.connect, reason) {
                        (Some(_), _) => format!("the peer is gone: {reason}"),
                        (None, CloseReason::HandshakeTimeout) => {
                            format!("{} doesn't answer: {reason}", self.remote)
                        }
                        (None, _) => {
                            let remote = self.remote;
                            format!(
                                "{remote} refused the connection: is `ropewalk perf server` running there?"
                            )
                        }
                    };
                    active.flow.fail(why);
                }
                self.drive(now, endpoint, id);
            }
            Event::SubflowAdded { .. } => self.update_stack_info(now, endpoint, id),
            // A connection that was never opened has no stream to drive.
            Event::Writable | Event::Readable | Event::PeerClosed | Event::Closed
                if self.flows.get(&id).is_some_and(|active| active.connect.is_some()) =>
            {
                self.drive(now, endpoint, id);
            }
            _ => {}
        }
    }

    fn on_path(&mut self, _now: Time, _endpoint: &mut HostEndpoint, path: PathId, up: bool) {
        if let Role::Server { service, .. } = &self.role
            && let Some(device) = self.devices.get(usize::from(path.0))
        {
            // Nobody may be listening any more.
            let _ = service.events.send(ServerEvent::Path { device: device.clone(), up });
        }
    }

    fn wake(&self) -> Option<Time> {
        let first = self.wakes.first().map_or(Time::MAX, |(at, _)| *at);
        Some(self.next_check.min(first))
    }

    fn on_wake(&mut self, now: Time, endpoint: &mut HostEndpoint) {
        self.drive_due(now, endpoint);
    }

    fn is_done(&self) -> bool {
        matches!(self.role, Role::Client(_)) && self.flows.values().all(|active| active.reported)
    }
}
