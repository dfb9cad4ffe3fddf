//! The transfers' program on the engine.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use ropewalk_engine::config::ConnectionConfig;
use ropewalk_engine::endpoint::ConnectionId;
use ropewalk_engine::mptcp::{Connection, Event};
use ropewalk_engine::{PathId, Time};

use super::{
    Direction, JOIN_PATIENCE, Outcome, PERIOD, REQUEST, Request, TransferError, check, pattern, repeated,
};
use crate::world::{App, HostEndpoint};

/// The engine is given pieces of this many bytes: super-segments that span two are copied.
const PIECE: usize = 16 * PERIOD;
/// Read at a time.
const CHUNK: usize = 256 << 10;

#[derive(Debug)]
struct Transfer {
    outcome: Outcome,
    is_client: bool,
    request: Option<Request>,
    /// What has come of the request.
    head: Vec<u8>,
    /// Stream offset written so far.
    written: u64,
    request_sent: bool,
    closed_ours: bool,
    over: bool,
    /// The bulk waits for subflows until then.
    hold_until: Time,
}

impl Transfer {
    fn new(now: Time, request: Option<Request>) -> Self {
        Transfer {
            outcome: Outcome { started: now, ..Outcome::default() },
            is_client: request.is_some(),
            request,
            head: Vec::new(),
            written: 0,
            request_sent: false,
            closed_ours: false,
            over: false,
            hold_until: Time::MAX,
        }
    }

    fn sends(&self) -> Option<u64> {
        let request = self.request?;
        ((request.direction == Direction::Upload) == self.is_client).then_some(request.bytes)
    }

    fn receives(&self) -> Option<u64> {
        let request = self.request?;
        ((request.direction == Direction::Download) == self.is_client).then_some(request.bytes)
    }

    fn fail(&mut self, why: TransferError) {
        self.outcome.error.get_or_insert(why);
        self.over = true;
    }
}

/// What an engine's end does.
#[derive(Debug)]
pub enum Role {
    /// Opens connections.
    Client {
        /// One each, in order.
        requests: Vec<Request>,
        /// On which path, from where (port 0: any).
        path: PathId,
        /// From where.
        local: SocketAddr,
        /// Where to.
        remote: SocketAddr,
    },
    /// Answers them.
    Server {
        /// On which address.
        address: SocketAddr,
        /// It is done after so many.
        connections: usize,
    },
}

/// The program on the engine.
#[derive(Debug)]
pub struct Transfers {
    role: Role,
    config: Arc<ConnectionConfig>,
    /// A sender waits for so many subflows (a second at most) before its bulk.
    subflows: usize,
    /// Aborts a connection when it has sent, or received, so many bytes of the stream.
    abort_after: Option<u64>,
    flows: BTreeMap<ConnectionId, Transfer>,
    failed_to_open: Vec<Outcome>,
    pattern: Bytes,
    /// Many periods of it.
    stream: Bytes,
    shared: Arc<Mutex<Vec<Outcome>>>,
}

impl Transfers {
    /// A program, and where its outcomes will be found.
    pub fn new(
        role: Role,
        config: ConnectionConfig,
        subflows: usize,
    ) -> (Transfers, Arc<Mutex<Vec<Outcome>>>) {
        let shared = Arc::new(Mutex::new(Vec::new()));
        let transfers = Transfers {
            role,
            config: Arc::new(config),
            subflows,
            abort_after: None,
            flows: BTreeMap::new(),
            failed_to_open: Vec::new(),
            pattern: pattern(),
            stream: repeated(PERIOD + PIECE),
            shared: Arc::clone(&shared),
        };
        (transfers, shared)
    }

    /// Aborts each connection (MP_FASTCLOSE) once it has sent or received so many bytes of the stream.
    pub fn abort_after(&mut self, bytes: Option<u64>) {
        self.abort_after = bytes;
    }

    fn write(&mut self, now: Time, endpoint: &mut HostEndpoint, id: ConnectionId) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        if flow.over {
            return;
        }
        if let (true, false, Some(request)) = (flow.is_client, flow.request_sent, flow.request) {
            // The first write of a fresh connection: its buffer takes 16 bytes.
            flow.request_sent = true;
            if let Err(error) = endpoint.write(now, id, Bytes::copy_from_slice(&request.encode())) {
                flow.fail(error.into());
                return;
            }
        }
        let Some(total) = flow.sends() else { return };
        if flow.outcome.subflows < self.subflows && now < flow.hold_until {
            if flow.hold_until == Time::MAX {
                flow.hold_until = now + JOIN_PATIENCE;
            }
            return;
        }
        flow.hold_until = now;
        while flow.written < total {
            let start = (flow.written % PERIOD as u64) as usize;
            let len = (total - flow.written).min(PIECE as u64) as usize;
            match endpoint.write(now, id, self.stream.slice(start..start + len)) {
                Ok(taken) => {
                    flow.written += taken as u64;
                    if self.abort_after.is_some_and(|most| flow.written >= most) {
                        flow.fail(TransferError::Aborted);
                        endpoint.abort(now, id);
                        self.end(now, endpoint, id);
                        return;
                    }
                    if taken < len {
                        return;
                    }
                }
                Err(error) => {
                    flow.fail(error.into());
                    return;
                }
            }
        }
        if !flow.closed_ours {
            flow.closed_ours = true;
            endpoint.shutdown(now, id);
        }
    }

    fn read(&mut self, now: Time, endpoint: &mut HostEndpoint, id: ConnectionId) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        while let Ok(Some(data)) = endpoint.read_piece(now, id, CHUNK) {
            if data.is_empty() {
                break;
            }
            let mut data = &data[..];
            if !flow.is_client && flow.request.is_none() {
                let missing = (REQUEST - flow.head.len()).min(data.len());
                flow.head.extend_from_slice(&data[..missing]);
                data = &data[missing..];
                if let Ok(head) = <&[u8; REQUEST]>::try_from(&flow.head[..]) {
                    match Request::parse(head) {
                        Some(request) => flow.request = Some(request),
                        None => {
                            flow.fail(TransferError::NoRequest);
                            endpoint.abort(now, id);
                            return;
                        }
                    }
                }
            }
            while !data.is_empty() {
                let len = data.len().min(PERIOD);
                if let Err(error) = check(&self.pattern, flow.outcome.received, &data[..len]) {
                    flow.fail(error);
                    endpoint.abort(now, id);
                    return;
                }
                flow.outcome.received += len as u64;
                data = &data[len..];
            }
            if self.abort_after.is_some_and(|most| flow.outcome.received >= most) {
                flow.fail(TransferError::Aborted);
                endpoint.abort(now, id);
                self.end(now, endpoint, id);
                return;
            }
            if let Some(total) = flow.receives()
                && flow.outcome.received >= total
            {
                flow.outcome.finished.get_or_insert(now);
                if !flow.closed_ours {
                    flow.closed_ours = true;
                    endpoint.shutdown(now, id);
                }
            }
        }
        self.write(now, endpoint, id);
    }

    fn end(&mut self, now: Time, endpoint: &HostEndpoint, id: ConnectionId) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        if let Some(connection) = endpoint.connection(id) {
            flow.outcome.stats = Some(connection.stats(now));
            flow.outcome.multipath = connection.is_multipath();
        }
        if let Some(total) = flow.receives()
            && flow.outcome.received != total
        {
            flow.fail(TransferError::Short { received: flow.outcome.received, total });
        }
        flow.over = true;
        flow.outcome.finished.get_or_insert(now);
        if let Ok(mut shared) = self.shared.lock() {
            shared.push(flow.outcome.clone());
        }
    }
}

impl App for Transfers {
    fn start(&mut self, now: Time, endpoint: &mut HostEndpoint) {
        match &self.role {
            Role::Server { address, .. } => endpoint.listen(*address, Arc::clone(&self.config)),
            Role::Client { requests, path, local, remote } => {
                for request in requests {
                    match endpoint.connect(now, *path, *local, *remote, Arc::clone(&self.config)) {
                        Ok(id) => {
                            self.flows.insert(id, Transfer::new(now, Some(*request)));
                        }
                        Err(error) => self.failed_to_open.push(Outcome {
                            started: now,
                            error: Some(error.into()),
                            ..Outcome::default()
                        }),
                    }
                }
                if let Ok(mut shared) = self.shared.lock() {
                    shared.extend(self.failed_to_open.iter().cloned());
                }
            }
        }
    }

    fn on_event(&mut self, now: Time, endpoint: &mut HostEndpoint, id: ConnectionId, event: Event) {
        match event {
            Event::Accepted { multipath, .. } => {
                let mut flow = Transfer::new(now, None);
                flow.outcome.multipath = multipath;
                flow.outcome.subflows = 1;
                self.flows.insert(id, flow);
                self.read(now, endpoint, id);
            }
            Event::Connected { multipath } => {
                if let Some(flow) = self.flows.get_mut(&id) {
                    flow.outcome.multipath = multipath;
                    flow.outcome.subflows = 1;
                }
                self.write(now, endpoint, id);
            }
            Event::SubflowAdded { .. } => {
                if let Some(flow) = self.flows.get_mut(&id) {
                    flow.outcome.subflows += 1;
                }
                self.write(now, endpoint, id);
            }
            Event::Writable => self.write(now, endpoint, id),
            Event::Readable => self.read(now, endpoint, id),
            Event::PeerClosed => {
                self.read(now, endpoint, id);
                if let Some(flow) = self.flows.get_mut(&id)
                    && flow.sends().is_some()
                {
                    flow.outcome.finished.get_or_insert(now);
                }
                endpoint.shutdown(now, id);
            }
            Event::Closed => self.end(now, endpoint, id),
            Event::Reset { reason } => {
                if let Some(flow) = self.flows.get_mut(&id) {
                    flow.fail(TransferError::Reset(reason));
                }
                self.end(now, endpoint, id);
                // What wasn't read isn't wanted.
                endpoint.close(now, id);
            }
            _ => {}
        }
    }

    fn wake(&self) -> Option<Time> {
        self.flows
            .values()
            .filter(|flow| !flow.over && flow.sends().is_some() && flow.written == 0)
            .map(|flow| flow.hold_until)
            .filter(|at| *at != Time::MAX)
            .min()
    }

    fn on_wake(&mut self, now: Time, endpoint: &mut HostEndpoint) {
        let ids: Vec<_> = self.flows.keys().copied().collect();
        for id in ids {
            self.write(now, endpoint, id);
        }
    }

    fn on_stop(&mut self, now: Time, endpoint: &mut HostEndpoint) {
        let ids: Vec<_> = self.flows.iter().filter(|(_, flow)| !flow.over).map(|(id, _)| *id).collect();
        for id in ids {
            if let Some(flow) = self.flows.get_mut(&id) {
                let (written, received) = (flow.written, flow.outcome.received);
                let mut why = format!("{written} bytes written, {received} received");
                for flow in endpoint.connection(id).map_or(&[][..], Connection::subflow_metrics) {
                    why += &format!(
                        "; subflow on path {} {:?}/{:?}, {} in flight of {}, {} timeouts",
                        flow.path.0,
                        flow.state,
                        flow.ca_state(),
                        flow.in_flight(),
                        flow.cwnd(),
                        flow.totals.timeouts
                    );
                }
                flow.fail(TransferError::Unfinished(why));
            }
            self.end(now, endpoint, id);
        }
    }

    fn is_done(&self) -> bool {
        let over = self.flows.values().filter(|flow| flow.over).count();
        match &self.role {
            Role::Client { requests, .. } => over + self.failed_to_open.len() >= requests.len(),
            Role::Server { connections, .. } => over >= *connections,
        }
    }
}
