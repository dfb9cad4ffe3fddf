//! The program that both worlds run to measure: a client asks for bytes, or brings them, and every byte is checked.
//!
//! A request is 16 bytes: `rope`, version 1, direction (0 upload, 1 download), two zeros, and the number of bytes as
//! a 64-bit big-endian number. In an upload the client's bytes follow, and the server closes when it has them; in a
//! download the server's bytes follow, and it closes after them. The bytes are those of [`pattern`], so that either
//! side can tell each one's place in the stream.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ropewalk_engine::PathId;
use ropewalk_engine::config::ConnectionConfig;
use ropewalk_engine::endpoint::ConnectionId;
use ropewalk_engine::mptcp::{Connection, ConnectionStats, Event};
use socket2::Socket;

use crate::clock::{Clock, Nanos};
use crate::kernel::{self, MptcpInfo};
use crate::world::{App, HostEndpoint};

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the client.
    Upload,
    /// To the client.
    Download,
}

/// What a client asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Which way.
    pub direction: Direction,
    /// How many.
    pub bytes: u64,
}

/// Length of a request.
pub const REQUEST: usize = 16;
/// The pattern's period: a prime, so that no power of two hides an error.
const PERIOD: usize = 65_521;
/// The engine is given pieces of this many bytes: super-segments that span two are copied.
const PIECE: usize = 16 * PERIOD;
/// Read and written at a time.
const CHUNK: usize = 256 << 10;
/// So many bytes alike are no chance: shifted by some numbers, the pattern resembles itself for dozens.
const SAMPLE: usize = 256;
/// How long a sender waits for the subflows that it wants.
const JOIN_PATIENCE: Nanos = 1_000_000_000;

impl Request {
    /// As bytes.
    pub fn encode(self) -> [u8; REQUEST] {
        let mut bytes = *b"rope\x01\0\0\0\0\0\0\0\0\0\0\0";
        bytes[5] = u8::from(self.direction == Direction::Download);
        bytes[8..].copy_from_slice(&self.bytes.to_be_bytes());
        bytes
    }

    /// From bytes; `None` for anything else.
    pub fn parse(bytes: &[u8; REQUEST]) -> Option<Request> {
        let direction = match bytes[5] {
            0 => Direction::Upload,
            1 => Direction::Download,
            _ => return None,
        };
        let count = u64::from_be_bytes(*bytes.last_chunk()?);
        (bytes.starts_with(b"rope\x01") && bytes[6..8] == [0, 0])
            .then_some(Request { direction, bytes: count })
    }
}

/// The stream's bytes, twice over, so that a slice of up to a period can start anywhere in the first.
pub fn pattern() -> Bytes {
    repeated(2 * PERIOD)
}

fn repeated(len: usize) -> Bytes {
    (0..len)
        .map(|at| {
            let at = (at % PERIOD) as u32;
            (at.wrapping_mul(0x9e37_79b1) >> 24) as u8
        })
        .collect()
}

/// How a transfer ended, as one side saw it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// When the connection was asked for (client) or accepted (server).
    pub started: Nanos,
    /// When the last byte of the stream was delivered (receiver) or the peer closed (sender).
    pub finished: Option<Nanos>,
    /// Stream bytes received, the request not counted.
    pub received: u64,
    /// What went wrong.
    pub error: Option<String>,
    /// Whether it was Multipath TCP to the end.
    pub multipath: bool,
    /// Subflows that were ever usable.
    pub subflows: usize,
    /// The engine's counters, at the end.
    pub stats: Option<ConnectionStats>,
    /// The kernel's, before closing.
    pub info: Option<MptcpInfo>,
}

#[derive(Debug)]
struct Flow {
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
    hold_until: Nanos,
}

impl Flow {
    fn new(now: Nanos, request: Option<Request>) -> Self {
        Flow {
            outcome: Outcome { started: now, ..Outcome::default() },
            is_client: request.is_some(),
            request,
            head: Vec::new(),
            written: 0,
            request_sent: false,
            closed_ours: false,
            over: false,
            hold_until: Nanos::MAX,
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

    fn fail(&mut self, why: impl Into<String>) {
        self.outcome.error.get_or_insert(why.into());
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
    /// Throws a connection away when it has sent, or received, so many bytes of the stream.
    abort_after: Option<u64>,
    flows: BTreeMap<ConnectionId, Flow>,
    failed_to_open: Vec<Outcome>,
    pattern: Bytes,
    /// Many periods of it.
    stream: Bytes,
    shared: Arc<std::sync::Mutex<Vec<Outcome>>>,
}

impl Transfers {
    /// A program, and where its outcomes will be found.
    pub fn new(
        role: Role,
        config: ConnectionConfig,
        subflows: usize,
    ) -> (Transfers, Arc<std::sync::Mutex<Vec<Outcome>>>) {
        let shared = Arc::new(std::sync::Mutex::new(Vec::new()));
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

    /// Throws each connection away (MP_FASTCLOSE) once it has sent or received so many bytes of the stream.
    pub fn abort_after(&mut self, bytes: Option<u64>) {
        self.abort_after = bytes;
    }

    fn write(&mut self, now: Nanos, endpoint: &mut HostEndpoint, id: ConnectionId) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        if flow.over {
            return;
        }
        if let (true, false, Some(request)) = (flow.is_client, flow.request_sent, flow.request) {
            // The first write of a fresh connection: its buffer takes 16 bytes.
            flow.request_sent = true;
            if let Err(error) = endpoint.write(now, id, Bytes::copy_from_slice(&request.encode())) {
                flow.fail(error.to_string());
                return;
            }
        }
        let Some(total) = flow.sends() else { return };
        if flow.outcome.subflows < self.subflows && now < flow.hold_until {
            if flow.hold_until == Nanos::MAX {
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
                        flow.fail("thrown away by this side");
                        endpoint.abort(now, id);
                        self.end(now, endpoint, id);
                        return;
                    }
                    if taken < len {
                        return;
                    }
                }
                Err(error) => {
                    flow.fail(error.to_string());
                    return;
                }
            }
        }
        if !flow.closed_ours {
            flow.closed_ours = true;
            endpoint.shutdown(now, id);
        }
    }

    fn read(&mut self, now: Nanos, endpoint: &mut HostEndpoint, id: ConnectionId) {
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
                            flow.fail("what came first was no request");
                            endpoint.abort(now, id);
                            return;
                        }
                    }
                }
            }
            while !data.is_empty() {
                let start = (flow.outcome.received % PERIOD as u64) as usize;
                let len = data.len().min(PERIOD);
                if data[..len] != self.pattern[start..start + len] {
                    flow.fail(wrong(&self.pattern, flow.outcome.received, &data[..len]));
                    endpoint.abort(now, id);
                    return;
                }
                flow.outcome.received += len as u64;
                data = &data[len..];
            }
            if self.abort_after.is_some_and(|most| flow.outcome.received >= most) {
                flow.fail("thrown away by this side");
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

    fn end(&mut self, now: Nanos, endpoint: &HostEndpoint, id: ConnectionId) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        if let Some(connection) = endpoint.connection(id) {
            flow.outcome.stats = Some(connection.stats(now));
            flow.outcome.multipath = connection.is_multipath();
        }
        if let Some(total) = flow.receives()
            && flow.outcome.received != total
        {
            flow.fail(format!("{} of {total} bytes came", flow.outcome.received));
        }
        flow.over = true;
        flow.outcome.finished.get_or_insert(now);
        if let Ok(mut shared) = self.shared.lock() {
            shared.push(flow.outcome.clone());
        }
    }
}

impl App for Transfers {
    fn start(&mut self, now: Nanos, endpoint: &mut HostEndpoint) {
        match &self.role {
            Role::Server { address, .. } => endpoint.listen(*address, Arc::clone(&self.config)),
            Role::Client { requests, path, local, remote } => {
                for request in requests {
                    match endpoint.connect(now, *path, *local, *remote, Arc::clone(&self.config)) {
                        Ok(id) => {
                            self.flows.insert(id, Flow::new(now, Some(*request)));
                        }
                        Err(error) => self.failed_to_open.push(Outcome {
                            started: now,
                            error: Some(error.to_string()),
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

    fn on_event(&mut self, now: Nanos, endpoint: &mut HostEndpoint, id: ConnectionId, event: Event) {
        match event {
            Event::Accepted { multipath, .. } => {
                let mut flow = Flow::new(now, None);
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
                    flow.fail(reason);
                }
                self.end(now, endpoint, id);
            }
            Event::SubflowRemoved { .. } | Event::Fallback(_) | Event::Decision(_) => {}
        }
    }

    fn wake(&self) -> Option<Nanos> {
        self.flows
            .values()
            .filter(|flow| !flow.over && flow.sends().is_some() && flow.written == 0)
            .map(|flow| flow.hold_until)
            .filter(|at| *at != Nanos::MAX)
            .min()
    }

    fn on_wake(&mut self, now: Nanos, endpoint: &mut HostEndpoint) {
        let ids: Vec<_> = self.flows.keys().copied().collect();
        for id in ids {
            self.write(now, endpoint, id);
        }
    }

    fn on_stop(&mut self, now: Nanos, endpoint: &mut HostEndpoint) {
        let ids: Vec<_> = self.flows.iter().filter(|(_, flow)| !flow.over).map(|(id, _)| *id).collect();
        for id in ids {
            if let Some(flow) = self.flows.get_mut(&id) {
                let (written, received) = (flow.written, flow.outcome.received);
                let mut why = format!("unfinished: {written} bytes written, {received} received");
                for flow in endpoint.connection(id).map_or(&[][..], Connection::subflow_metrics) {
                    why += &format!(
                        "; subflow on path {} {:?}/{:?}, {} in flight of {}, {} timeouts",
                        flow.path.0,
                        flow.state,
                        flow.ca_state,
                        flow.in_flight(),
                        flow.cwnd,
                        flow.timeouts
                    );
                }
                flow.fail(why);
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

fn wait_for_subflows(socket: &Socket, subflows: usize, clock: Clock) -> io::Result<()> {
    let patience = clock.now() + JOIN_PATIENCE;
    while subflows > 1 && clock.now() < patience {
        match kernel::info(socket)? {
            Some(info) if !info.fallback && usize::from(info.extra_subflows) + 1 < subflows => {
                std::thread::sleep(Duration::from_millis(1));
            }
            _ => break,
        }
    }
    Ok(())
}

fn send_stream(socket: &Socket, total: u64) -> io::Result<()> {
    let pattern = pattern();
    let mut written = 0;
    while written < total {
        let start = (written % PERIOD as u64) as usize;
        let len = (total - written).min(PERIOD as u64) as usize;
        (&*socket).write_all(&pattern[start..start + len])?;
        written += len as u64;
    }
    Ok(())
}

/// Tells which bytes of `found`, read after `received` of the stream, are wrong, and where in the stream they belong.
fn wrong(pattern: &[u8], received: u64, found: &[u8]) -> String {
    let start = (received % PERIOD as u64) as usize;
    let differ = |at: &usize| found[*at] != pattern[start + at];
    let first = (0..found.len()).find(differ).unwrap_or(0);
    let last = (0..found.len()).rfind(differ).unwrap_or(0);
    let stretch = &found[first..=last];
    let alike = |place: &usize| stretch.iter().zip(&pattern[*place..]).take_while(|(a, b)| a == b).count();
    let place = (0..PERIOD).max_by_key(alike).unwrap_or(0);
    let whose = match alike(&place) {
        count if count >= SAMPLE => format!("the first {count} are those of {place} (modulo {PERIOD})"),
        _ => "they are not the stream's".into(),
    };
    format!(
        "wrong bytes at {} of the stream: {}, among {} that were read at {received}; {whose}",
        received + first as u64,
        stretch.len(),
        found.len()
    )
}

fn receive_stream(socket: &Socket, total: u64, outcome: &mut Outcome) -> io::Result<()> {
    let pattern = pattern();
    let mut buffer = vec![0; PERIOD];
    while outcome.received < total {
        let most = (total - outcome.received).min(PERIOD as u64) as usize;
        let len = (&*socket).read(&mut buffer[..most])?;
        if len == 0 {
            let message = format!("{} of {total} bytes came", outcome.received);
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
        }
        let start = (outcome.received % PERIOD as u64) as usize;
        if buffer[..len] != pattern[start..start + len] {
            let message = wrong(&pattern, outcome.received, &buffer[..len]);
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        outcome.received += len as u64;
    }
    Ok(())
}

fn note(socket: &Socket, outcome: &mut Outcome) -> io::Result<()> {
    outcome.info = kernel::info(socket)?;
    outcome.multipath = outcome.info.is_some_and(|info| !info.fallback);
    outcome.subflows = outcome.info.map_or(1, |info| usize::from(info.extra_subflows) + 1);
    Ok(())
}

fn wait_for_end(socket: &Socket) -> io::Result<()> {
    let mut rest = [0; 16];
    match (&*socket).read(&mut rest)? {
        0 => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "bytes after the end of the stream")),
    }
}

/// The client's part on a kernel socket; `started` is when it began to connect. With `abort_after` it stops reading after
/// so many bytes of a download: closing the socket then throws the connection away.
pub fn kernel_client(
    socket: &Socket,
    request: Request,
    subflows: usize,
    clock: Clock,
    started: Nanos,
    abort_after: Option<u64>,
) -> Outcome {
    let mut outcome = Outcome { started, ..Outcome::default() };
    let mut run = || -> io::Result<()> {
        (&*socket).write_all(&request.encode())?;
        match request.direction {
            Direction::Upload => {
                wait_for_subflows(socket, subflows, clock)?;
                send_stream(socket, request.bytes)?;
                note(socket, &mut outcome)?;
                socket.shutdown(Shutdown::Write)?;
                wait_for_end(socket)?;
            }
            Direction::Download => {
                if let Some(most) = abort_after {
                    receive_stream(socket, request.bytes.min(most), &mut outcome)?;
                    note(socket, &mut outcome)?;
                    return Err(io::Error::other("thrown away by this side"));
                }
                receive_stream(socket, request.bytes, &mut outcome)?;
                outcome.finished = Some(clock.now());
                note(socket, &mut outcome)?;
                wait_for_end(socket)?;
            }
        }
        outcome.finished.get_or_insert(clock.now());
        Ok(())
    };
    if let Err(error) = run() {
        outcome.error = Some(error.to_string());
    }
    outcome
}

/// The server's part on an accepted kernel socket.
/// With `abort_after` it stops reading after so many bytes of an upload: closing the socket then throws the connection
/// away.
pub fn kernel_server(socket: &Socket, subflows: usize, clock: Clock, abort_after: Option<u64>) -> Outcome {
    let mut outcome = Outcome { started: clock.now(), ..Outcome::default() };
    let mut run = || -> io::Result<()> {
        let mut head = [0; REQUEST];
        (&*socket).read_exact(&mut head)?;
        let request = Request::parse(&head)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "what came first was no request"))?;
        match request.direction {
            Direction::Upload => {
                if let Some(most) = abort_after {
                    receive_stream(socket, request.bytes.min(most), &mut outcome)?;
                    note(socket, &mut outcome)?;
                    return Err(io::Error::other("thrown away by this side"));
                }
                receive_stream(socket, request.bytes, &mut outcome)?;
                outcome.finished = Some(clock.now());
                note(socket, &mut outcome)?;
                wait_for_end(socket)?;
                socket.shutdown(Shutdown::Write)?;
            }
            Direction::Download => {
                wait_for_subflows(socket, subflows, clock)?;
                send_stream(socket, request.bytes)?;
                note(socket, &mut outcome)?;
                socket.shutdown(Shutdown::Write)?;
                wait_for_end(socket)?;
            }
        }
        outcome.finished.get_or_insert(clock.now());
        Ok(())
    };
    if let Err(error) = run() {
        outcome.error = Some(error.to_string());
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::{Direction, PERIOD, Request, pattern, wrong};

    #[test]
    fn a_request_comes_back_and_nothing_else_is_one() {
        let request = Request { direction: Direction::Download, bytes: 0x0102_0304_0506_0708 };
        let bytes = request.encode();
        assert_eq!(Request::parse(&bytes), Some(request));
        for at in 0..8 {
            let mut wrong = bytes;
            wrong[at] ^= 0x40;
            assert_eq!(Request::parse(&wrong), None, "byte {at}");
        }
    }

    #[test]
    fn wrong_bytes_are_told_with_their_place_and_the_one_where_they_belong() {
        let pattern = pattern();
        let received = 2 * PERIOD as u64 + 100;
        let mut found = pattern[100..10_000].to_vec();
        found[1424..2848].copy_from_slice(&pattern[60_000..61_424]);
        let told = wrong(&pattern, received, &found);
        let start = format!("wrong bytes at {} of the stream: 1424, among 9900 that", received + 1424);
        assert!(told.starts_with(&start) && told.ends_with("are those of 60000 (modulo 65521)"), "{told}");
        found[1424..2848].fill(0);
        let told = wrong(&pattern, received, &found);
        assert!(told.ends_with("not the stream's"), "{told}");
    }

    #[test]
    fn the_pattern_has_no_short_period() {
        let pattern = pattern();
        for shift in [1, 2, 256, 1424, 1448, 4096, 65_536] {
            assert_ne!(pattern[..4096], pattern[shift..shift + 4096]);
        }
    }
}
