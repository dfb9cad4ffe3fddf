//! The endpoints of a run, and the state of the applications' connections: a client and a server for the
//! workload, and another pair for all competing TCP traffic.
//!
//! Applications write as much as they like: bytes for which the send buffer has no space wait here for
//! [`Event::Writable`]. What arrives is read at once.

mod metrics;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use ropewalk_engine::config::ConnectionConfig;
use ropewalk_engine::endpoint::{ConnectError, ConnectionId, Endpoint, SubflowHandle};
use ropewalk_engine::metrics::{SubflowMetrics, SubflowStatus};
use ropewalk_engine::mptcp::Event;
use ropewalk_engine::registry::Spec;
use ropewalk_engine::scheduler::Scheduler;
use ropewalk_engine::{PathId, Time};
use ropewalk_wire::{Segment, SyntheticPayload};

use crate::Side;
use crate::app::Conn;
use crate::check::SpecError;
use crate::config;
use crate::entropy::SeededEntropy;
use crate::recorder::Recorder;
use crate::spec::{Mode, RunSpec};
use crate::topology;
use crate::topology::side_of;

/// The first port of clients, and of servers. Wireshark assigns no protocol to these, so that captures show
/// TCP.
const CLIENT_PORT: u16 = 40_000;
pub(crate) const SERVER_PORT: u16 = 8_500;
/// Connections per server port.
pub(crate) const PORTS: u32 = 25_000;
/// Bytes per write, at most: fits a [`SyntheticPayload`] with room to spare.
const WRITE: u64 = 1 << 30;

/// What happens to an application's connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum AppEvent {
    /// The connection is established at this side.
    Connected(Conn),
    /// The connection failed; the reason.
    Failed(Conn, String),
    /// Nothing that concerns applications.
    Nothing,
}

/// See the module. Endpoint `2 g + s` is side s of group g: the workload's or the competitors'.
#[derive(Debug)]
pub(crate) struct Hosts {
    ends: Vec<Endpoint<SyntheticPayload, SeededEntropy>>,
    groups: [Group; 2],
    /// By application: the addresses and the configuration of its connections.
    templates: Vec<ConnectTemplate>,
    /// Of the paths.
    names: Vec<String>,
    /// See [`Hosts::most_received`].
    most_received: u64,
}

#[derive(Debug, Default)]
struct Group {
    conns: Vec<ConnState>,
    next: Conn,
    /// By the endpoint's slot: the latest connection there.
    ids: [Vec<Option<(ConnectionId, Conn)>>; 2],
    /// Connections whose slot was reused: events of theirs may still follow.
    earlier: [HashMap<ConnectionId, Conn>; 2],
    /// The last that was looked up.
    last: [Option<(ConnectionId, Conn)>; 2],
}

#[derive(Debug)]
struct ConnectTemplate {
    path: PathId,
    client: std::net::IpAddr,
    server: std::net::IpAddr,
    config: Arc<ConnectionConfig>,
}

/// A connection; arrays are by side.
#[derive(Debug)]
struct ConnState {
    app: usize,
    ids: [Option<ConnectionId>; 2],
    connected: [bool; 2],
    to_write: [u64; 2],
    finish: [bool; 2],
    finished: [bool; 2],
    received: [u64; 2],
}

impl Hosts {
    /// `begin`: when the workload starts, which decides the path that it starts on.
    pub(crate) fn new(
        spec: &RunSpec,
        receiver: &Spec<dyn Scheduler>,
        begin: Time,
    ) -> Result<Self, SpecError> {
        let scenario = &spec.scenario;
        let entropy = |index| SeededEntropy::new(spec.seed, index);
        let count = if scenario.background.is_empty() { 2 } else { 4 };
        let end = |index| {
            let config =
                if index < 2 { config::workload_end(scenario) } else { config::background_end(scenario) };
            Endpoint::new(config, entropy(index))
        };
        let mut ends: Vec<_> = (0..count).map(end).collect();
        let first = match spec.mode {
            Mode::SinglePath(path) => path,
            Mode::Multipath => topology::first_path(scenario, begin),
        };
        let connection = |side: Side| {
            let mut config = config::connection(spec, side);
            if side != scenario.direction.sender() {
                config.scheduler = receiver.clone();
            }
            Arc::new(config)
        };
        let [client, server] = [Side::Client, Side::Server].map(connection);
        for port in 0..=scenario.connections().saturating_sub(1) / PORTS {
            let address = SocketAddr::new(topology::server_address(), SERVER_PORT + port as u16);
            ends[1].listen(address, Arc::clone(&server));
        }
        let mut templates = vec![ConnectTemplate {
            path: PathId(first as u16),
            client: topology::client_address(first),
            server: topology::server_address(),
            config: client,
        }];
        for i in 0..scenario.background.len() {
            let [client, server] = [Side::Client, Side::Server].map(|side| config::background(spec, i, side));
            let template = ConnectTemplate {
                path: PathId(i as u16),
                client: topology::background_client_address(i),
                server: topology::background_server_address(i),
                config: Arc::new(client?),
            };
            ends[3].listen(SocketAddr::new(template.server, SERVER_PORT), Arc::new(server?));
            templates.push(template);
        }
        let names = scenario.paths.iter().map(|path| path.name.clone()).collect();
        Ok(Hosts { ends, groups: Default::default(), templates, names, most_received: 0 })
    }

    /// How many endpoints there are: two, or with competitors four.
    pub(crate) fn count(&self) -> usize {
        self.ends.len()
    }

    #[inline]
    pub(crate) fn on_segment(
        &mut self,
        end: usize,
        now: Time,
        path: PathId,
        hint: Option<SubflowHandle>,
        segment: &mut Segment<SyntheticPayload>,
    ) {
        self.ends[end].on_segment_in_place(now, path, hint, segment);
    }

    /// The most that any side of a connection has received.
    pub(crate) fn most_received(&self) -> u64 {
        self.most_received
    }

    /// The most that a side of a connection of the workload has given to subflows, bytes.
    pub(crate) fn most_assigned(&self, side: Side) -> u64 {
        let ids = self.groups[0].conns.iter().filter_map(|state| state.ids[side as usize]);
        let connections = ids.filter_map(|id| self.ends[side as usize].connection(id));
        connections.map(|connection| connection.assigned()).max().unwrap_or(0)
    }

    /// The slots of a connection of the workload at both endpoints.
    pub(crate) fn slots(&self, conn: Conn) -> [Option<usize>; 2] {
        let state = self.groups[0].conns.get(conn as usize);
        state.map_or([None; 2], |state| state.ids.map(|id| Some(id?.slot())))
    }

    /// An endpoint, for calls that concern one connection only.
    #[inline]
    pub(crate) fn end_mut(&mut self, end: usize) -> &mut Endpoint<SyntheticPayload, SeededEntropy> {
        &mut self.ends[end]
    }

    /// An endpoint.
    #[inline]
    pub(crate) fn end(&self, end: usize) -> &Endpoint<SyntheticPayload, SeededEntropy> {
        &self.ends[end]
    }

    pub(crate) fn on_timeout(&mut self, end: usize, now: Time) {
        self.ends[end].on_timeout(now);
    }

    #[inline]
    pub(crate) fn poll_timeout(&mut self, end: usize) -> Option<Time> {
        self.ends[end].poll_timeout()
    }

    #[inline]
    pub(crate) fn poll_transmit(
        &mut self,
        end: usize,
        now: Time,
        out: &mut Segment<SyntheticPayload>,
    ) -> Option<PathId> {
        self.ends[end].poll_transmit_into(now, 1, out)
    }

    /// Calls `carry` with every segment that an endpoint has to send.
    #[inline]
    pub(crate) fn transmit_all(
        &mut self,
        end: usize,
        now: Time,
        out: &mut Box<Segment<SyntheticPayload>>,
        carry: impl FnMut(PathId, &mut Box<Segment<SyntheticPayload>>),
    ) {
        self.ends[end].transmit_all(now, 1, out, carry);
    }

    /// The number of a group's next connection.
    pub(crate) fn next_conn(&mut self, group: usize) -> &mut Conn {
        &mut self.groups[group].next
    }

    /// The application of a connection.
    #[inline]
    pub(crate) fn app(&self, group: usize, conn: Conn) -> usize {
        self.groups[group].conns.get(conn as usize).map_or(0, |state| state.app)
    }

    #[inline(never)]
    pub(crate) fn open(
        &mut self,
        group: usize,
        now: Time,
        app: usize,
        conn: Conn,
    ) -> Result<(), ConnectError> {
        let template = &self.templates[app];
        let server_port = SERVER_PORT + if group == 0 { (conn / PORTS) as u16 } else { 0 };
        let local = SocketAddr::new(template.client, CLIENT_PORT + (conn % PORTS) as u16);
        let remote = SocketAddr::new(template.server, server_port);
        debug_assert_eq!(self.groups[group].conns.len(), conn as usize, "connections are opened in order");
        self.groups[group].conns.push(ConnState {
            app,
            ids: [None; 2],
            connected: [false; 2],
            to_write: [0; 2],
            finish: [false; 2],
            finished: [false; 2],
            received: [0; 2],
        });
        let id =
            self.ends[2 * group].connect(now, template.path, local, remote, Arc::clone(&template.config))?;
        self.bind(group, Side::Client, id, conn);
        Ok(())
    }

    fn bind(&mut self, group: usize, side: Side, id: ConnectionId, conn: Conn) {
        let group = &mut self.groups[group];
        group.conns[conn as usize].ids[side as usize] = Some(id);
        let ids = &mut group.ids[side as usize];
        if ids.len() <= id.slot() {
            ids.resize(id.slot() + 1, None);
        }
        if let Some((earlier, conn)) = ids[id.slot()].replace((id, conn)) {
            group.earlier[side as usize].insert(earlier, conn);
        }
    }

    pub(crate) fn send(&mut self, group: usize, now: Time, conn: Conn, side: Side, bytes: u64) {
        let state = &mut self.groups[group].conns[conn as usize];
        state.to_write[side as usize] = state.to_write[side as usize].saturating_add(bytes);
        self.write_pending(group, now, conn, side);
    }

    #[inline(never)]
    pub(crate) fn declare(&mut self, group: usize, conn: Conn, side: Side, bytes: u64) {
        if let Some(id) = self.groups[group].conns[conn as usize].ids[side as usize] {
            self.ends[2 * group + side as usize].declare_size(id, bytes);
        }
    }

    #[inline(never)]
    pub(crate) fn begin_message(
        &mut self,
        group: usize,
        now: Time,
        conn: Conn,
        side: Side,
        bytes: u64,
        deadline: Time,
    ) {
        if let Some(id) = self.groups[group].conns[conn as usize].ids[side as usize] {
            // An error means that the connection is gone, which its event says.
            let _ = self.ends[2 * group + side as usize].begin_message(now, id, bytes, Some(deadline));
        }
    }

    #[inline(never)]
    pub(crate) fn shut(&mut self, group: usize, now: Time, conn: Conn, side: Side) {
        self.groups[group].conns[conn as usize].finish[side as usize] = true;
        self.write_pending(group, now, conn, side);
    }

    #[inline(never)]
    pub(crate) fn stop(&mut self, group: usize, now: Time, conn: Conn) {
        for side in [Side::Client, Side::Server] {
            self.groups[group].conns[conn as usize].to_write[side as usize] = 0;
            self.shut(group, now, conn, side);
        }
    }

    /// The workload's client leaves a path: its subflows there are reset, and data goes elsewhere. A
    /// connection keeps its last one.
    #[cold]
    pub(crate) fn leave_path(&mut self, now: Time, path: PathId) {
        for id in self.clients() {
            self.ends[0].remove_path(now, id, path);
        }
    }

    /// The workload's client opens subflows on a path that carries again.
    #[cold]
    pub(crate) fn join_path(&mut self, now: Time, path: PathId) {
        let local = SocketAddr::new(topology::client_address(usize::from(path.0)), 0);
        for id in self.clients() {
            let there = |flow: &SubflowMetrics| flow.path == path && flow.state != SubflowStatus::Closed;
            let open = self.ends[0].connection(id);
            if open.is_some_and(|connection| !connection.subflow_metrics().iter().any(there)) {
                self.ends[0].add_path(now, id, path, local, None, path.0 as u8 + 1);
            }
        }
    }

    /// The workload's connections at the client.
    fn clients(&self) -> Vec<ConnectionId> {
        self.groups[0].conns.iter().filter_map(|state| state.ids[Side::Client as usize]).collect()
    }

    /// Writes what the send buffer takes.
    #[inline(never)]
    fn write_pending(&mut self, group: usize, now: Time, conn: Conn, side: Side) {
        let s = side as usize;
        let state = &mut self.groups[group].conns[conn as usize];
        let Some(id) = state.ids[s] else { return };
        if !state.connected[s] || state.finished[s] {
            return;
        }
        let end = &mut self.ends[2 * group + s];
        while state.to_write[s] > 0 {
            let wanted = state.to_write[s].min(WRITE);
            // An error means that the connection is gone, which its event says.
            let Ok(taken) = end.write(now, id, SyntheticPayload(wanted as u32)) else {
                return;
            };
            state.to_write[s] -= taken as u64;
            if (taken as u64) < wanted {
                return;
            }
        }
        if state.finish[s] {
            state.finished[s] = true;
            end.shutdown(now, id);
        }
    }

    /// Whether an endpoint has an event.
    #[inline]
    pub(crate) fn has_event(&self, end: usize) -> bool {
        self.ends[end].has_event()
    }

    /// An endpoint's next event, if it is [`Event::Readable`]: which connection's.
    #[inline]
    pub(crate) fn poll_readable(&mut self, end: usize) -> Option<ConnectionId> {
        self.ends[end].poll_readable()
    }

    /// Handles an endpoint's next event, which isn't [`Event::Readable`], as a socket library would, and
    /// returns what it means for an application.
    #[inline(never)]
    pub(crate) fn poll_app_event(
        &mut self,
        end: usize,
        now: Time,
        recorder: Option<&mut Recorder>,
    ) -> Option<AppEvent> {
        let (group, side) = (end >> 1, side_of(end));
        let (id, event) = self.ends[end].poll_event()?;
        if let Event::Accepted { tuple, .. } = event {
            return Some(self.accepted(group, id, tuple.src_port, tuple.dst_port));
        }
        let Some(conn) = self.lookup(group, side, id) else { return Some(AppEvent::Nothing) };
        Some(match event {
            Event::Writable => {
                self.write_pending(group, now, conn, side);
                AppEvent::Nothing
            }
            Event::Connected { .. } => {
                self.groups[group].conns[conn as usize].connected[side as usize] = true;
                AppEvent::Connected(conn)
            }
            Event::Reset { reason } => AppEvent::Failed(conn, reason.to_string()),
            other => {
                if group == 0
                    && let Some(recorder) = recorder
                {
                    self.record(recorder, conn, side, id, other);
                }
                AppEvent::Nothing
            }
        })
    }

    #[inline]
    fn lookup(&mut self, group: usize, side: Side, id: ConnectionId) -> Option<Conn> {
        let group = &mut self.groups[group];
        let last = &mut group.last[side as usize];
        if let Some((known, conn)) = *last
            && known == id
        {
            return Some(conn);
        }
        let conn = match group.ids[side as usize].get(id.slot()) {
            Some(Some((latest, conn))) if *latest == id => *conn,
            _ => *group.earlier[side as usize].get(&id)?,
        };
        *last = Some((id, conn));
        Some(conn)
    }

    #[inline(never)]
    fn accepted(&mut self, group: usize, id: ConnectionId, server_port: u16, client_port: u16) -> AppEvent {
        let offset = u32::from(client_port.wrapping_sub(CLIENT_PORT));
        let round = u32::from(server_port.wrapping_sub(SERVER_PORT));
        // A competitor's numbers go round: the latest with this port is meant.
        let opened = self.groups[group].next;
        let conn = match group {
            0 => offset + PORTS * round,
            _ if opened > offset => offset + (opened - 1 - offset) / PORTS * PORTS,
            _ => return AppEvent::Nothing,
        };
        if conn >= opened {
            return AppEvent::Nothing;
        }
        self.bind(group, Side::Server, id, conn);
        self.groups[group].conns[conn as usize].connected[Side::Server as usize] = true;
        AppEvent::Connected(conn)
    }

    /// Reads everything that has arrived: the connection, and how many bytes this side of it has received
    /// since it began. `None` if nothing new has arrived.
    #[inline]
    pub(crate) fn read(&mut self, end: usize, now: Time, id: ConnectionId) -> Option<(Conn, u64)> {
        let (group, side) = (end >> 1, side_of(end));
        let conn = self.lookup(group, side, id)?;
        let received = &mut self.groups[group].conns[conn as usize].received[side as usize];
        let before = *received;
        if let Ok(Some(piece)) = self.ends[end].read(now, id, usize::MAX) {
            *received += u64::from(piece.0);
            self.most_received = self.most_received.max(*received);
        }
        (*received > before).then_some((conn, *received))
    }
}
