//! A run in real time as evidence: what one end sends and receives, as a capture (pcapng), a log (qlog) or
//! both, with the scheduler's reasons where that end is the engine (`trace_decisions` in its connections'
//! settings).
//!
//! Super-packets are written as the packets that they stand for, with the checksums that a device would fill
//! in. A reason is known only after its packet has left, so that everything waits a little before it is
//! written, in the order of time.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use crate::frame::Piece;
use crate::network::Side;
use crate::world::{HostEndpoint, Tap};
use ropewalk_engine::endpoint::ConnectionId;
use ropewalk_engine::mptcp::{DecisionRecord, Event, Key};
use ropewalk_engine::scheduler::Decision;
use ropewalk_engine::{PathId, Span, SubflowId, Time};
pub use ropewalk_evidence::Path;
use ropewalk_evidence::{Decision as Told, Direction, Metrics, Packet, Pcap, Qlog, Vantage};
use ropewalk_wire::{FourTuple, MpJoin, ParseMode, Segment, SyntheticPayload, parse_headers};

/// How long a packet waits for its reason.
const PATIENCE: Span = Span::from_millis(5);
/// How often windows and round-trip times are logged.
const SAMPLES_EVERY: Span = Span::from_millis(10);
/// Decisions that are remembered per connection: what is sent follows its decision soon.
const REMEMBERED: usize = 1 << 14;

/// What is written.
pub struct Files<W> {
    /// The capture goes there.
    pub pcap: Option<W>,
    /// The log goes there, under this title.
    pub qlog: Option<(W, String)>,
}

/// Which file couldn't be written, and what its writer said.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The capture.
    #[error("the capture: {0}")]
    Pcap(io::Error),
    /// The log.
    #[error("the log: {0}")]
    Qlog(io::Error),
}

/// Writes them; give it to [`crate::world::World::set_tap`], and [`Capture::finish`] a clone of it
/// afterwards.
pub struct Capture<W: Write + Send>(Arc<Mutex<Inner<W>>>);

impl<W: Write + Send> Clone for Capture<W> {
    fn clone(&self) -> Self {
        Capture(Arc::clone(&self.0))
    }
}

impl<W: Write + Send> std::fmt::Debug for Capture<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Capture").finish_non_exhaustive()
    }
}

impl<W> std::fmt::Debug for Files<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Files").finish_non_exhaustive()
    }
}

struct Inner<W: Write> {
    side: Side,
    writers: Writers<W>,
    paths: Vec<Path>,
    /// By time; what was decided at a moment before what was sent at it.
    waiting: BTreeMap<(Time, u8, u64), Item>,
    sequence: u64,
    /// The time of what was written last: a thread that was held up can't put anything before it.
    written: Time,
    /// When the next sample is due.
    sample: Time,
    /// Whether the capture knows its time of day.
    started: bool,
    connections: Connections,
}

/// The files. Each is `None` if it isn't wanted, once it is finished, and once it has failed; the other one
/// continues.
struct Writers<W: Write> {
    pcap: Option<Pcap<W>>,
    qlog: Option<Qlog<W>>,
    /// The first that failed, and why.
    failed: Option<CaptureError>,
}

/// What isn't written yet.
enum Item {
    Decision(Decided),
    Sample(FourTuple, Metrics),
    Packet(Waiting),
}

struct Decided {
    connection: u32,
    subflow: Option<FourTuple>,
    word: &'static str,
    offset: u64,
    bytes: u32,
    reason: String,
}

struct Waiting {
    path: u16,
    direction: Direction,
    bytes: Vec<u8>,
    is_tcp: bool,
    /// Of data that this end sends.
    data: Option<Data>,
}

#[derive(Clone, Copy)]
struct Data {
    connection: usize,
    /// Stream offset of the first byte.
    offset: u64,
    /// The subflow sent these bytes before.
    again: bool,
}

impl<W: Write + Send> Capture<W> {
    /// Begins at one end; packets are of the paths by their index.
    ///
    /// # Errors
    /// What a writer says.
    pub fn new(files: Files<W>, side: Side, paths: &[Path]) -> io::Result<Self> {
        let vantage = if side == Side::Client { Vantage::Client } else { Vantage::Server };
        let qlog = files.qlog.map(|(writer, title)| Qlog::new(writer, &title, vantage, paths)).transpose()?;
        let inner = Inner {
            side,
            writers: Writers {
                pcap: files.pcap.map(|writer| Pcap::new(writer, paths)).transpose()?,
                qlog,
                failed: None,
            },
            paths: paths.to_vec(),
            waiting: BTreeMap::new(),
            sequence: 0,
            written: Time::ZERO,
            sample: Time::ZERO,
            started: false,
            connections: Connections::default(),
        };
        Ok(Capture(Arc::new(Mutex::new(inner))))
    }

    /// Writes what waits and ends the files. Later packets are passed over.
    ///
    /// # Errors
    /// What a writer says, or said before. The other file is whole.
    pub fn finish(&self) -> Result<(), CaptureError> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.write_until(Time::MAX);
        let pcap = inner.writers.pcap.take().map_or(Ok(()), |pcap| pcap.finish().map(drop));
        let qlog = inner.writers.qlog.take().map_or(Ok(()), |qlog| qlog.finish().map(drop));
        inner.writers.failed.take().map_or(Ok(()), Err)?;
        pcap.map_err(CaptureError::Pcap)?;
        qlog.map_err(CaptureError::Qlog)
    }
}

impl<W: Write + Send> Tap for Capture<W> {
    fn on_packet(&mut self, now: Time, up: bool, leaves: bool, piece: &Piece) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // What enters a path has left an end; what leaves a path reaches one.
        let from = if up { Side::Client } else { Side::Server };
        let direction = match (from == inner.side, leaves) {
            (true, false) => Direction::Sent,
            (false, true) => Direction::Received,
            _ => return,
        };
        inner.start(now);
        for packet in piece.clone().packets() {
            inner.keep(now, piece.path, direction, packet.complete());
        }
        inner.write_until(now.saturating_back(PATIENCE));
    }

    fn on_event(
        &mut self,
        now: Time,
        server: bool,
        endpoint: &HostEndpoint,
        id: ConnectionId,
        event: &Event,
    ) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if server != (inner.side == Side::Server) {
            return;
        }
        if let Event::Decision(record) = event {
            inner.on_decision(endpoint, id, record);
        }
        if inner.writers.qlog.is_some() {
            inner.samples(now, endpoint, id);
        }
    }
}

impl<W: Write> Writers<W> {
    /// Writes to the capture, if there is one that hasn't failed.
    fn pcap(&mut self, write: impl FnOnce(&mut Pcap<W>) -> io::Result<()>) {
        if let Some(pcap) = &mut self.pcap
            && let Err(error) = write(pcap)
        {
            self.pcap = None;
            self.failed.get_or_insert(CaptureError::Pcap(error));
        }
    }

    /// Writes to the log, likewise.
    fn qlog(&mut self, write: impl FnOnce(&mut Qlog<W>) -> io::Result<()>) {
        if let Some(qlog) = &mut self.qlog
            && let Err(error) = write(qlog)
        {
            self.qlog = None;
            self.failed.get_or_insert(CaptureError::Qlog(error));
        }
    }
}

impl<W: Write> Inner<W> {
    fn push(&mut self, at: Time, item: Item) {
        let order = u8::from(matches!(item, Item::Packet(_)));
        self.sequence += 1;
        self.waiting.insert((at.max(self.written), order, self.sequence), item);
    }

    /// The capture's times are of the wall clock: what it says at the first packet.
    fn start(&mut self, now: Time) {
        if !std::mem::replace(&mut self.started, true)
            && let Some(pcap) = &mut self.writers.pcap
        {
            pcap.starts_at(crate::clock::since_1970().saturating_sub(now.since_origin()));
        }
    }

    fn keep(&mut self, at: Time, path: u16, direction: Direction, bytes: Vec<u8>) {
        let sent = direction == Direction::Sent;
        let parsed = parse_headers::<SyntheticPayload>(&bytes, ParseMode::Trust).ok();
        let is_tcp = parsed.is_some();
        let data = parsed.and_then(|(mut segment, payload)| {
            segment.payload = SyntheticPayload(payload.len() as u32);
            self.connections.packet(&segment, sent);
            if sent && !payload.is_empty() { self.connections.locate(&segment) } else { None }
        });
        self.push(at, Item::Packet(Waiting { path, direction, bytes, is_tcp, data }));
    }

    fn on_decision(&mut self, endpoint: &HostEndpoint, id: ConnectionId, record: &DecisionRecord) {
        let Some(connection) = endpoint.connection(id) else { return };
        // The first subflow names the connection, in the packets as here.
        let Some(first) = connection.tuple(SubflowId(0)) else { return };
        let index = self.connections.of(first);
        let path = |slot: u8| connection.subflow_metrics().get(usize::from(slot)).map(|flow| flow.path);
        let paths = &self.paths;
        let name = |path: PathId| paths.get(usize::from(path.0)).map(|path| path.name.as_str());
        let reason = record.reason.with_names(|subflow| path(subflow.0).and_then(name));
        let subflow = record.decision.subflow();
        let known = &mut self.connections.list[index];
        match subflow {
            None => {
                known.waits.get_or_insert_with(|| (record.at, reason.clone()));
            }
            // It moves no data.
            Some(_) if matches!(record.decision, Decision::Withdraw { .. }) => {}
            Some(subflow) => {
                let waited = known.waits.take().map_or_else(String::new, |(since, why)| {
                    format!("waited {:.1} ms: {why}; ", record.at.saturating_sub(since).as_secs_f64() * 1e3)
                });
                let end = record.offset + u64::from(record.bytes);
                let verb = match record.decision {
                    Decision::Queue { .. } => "queue",
                    Decision::Duplicate { .. } => "repeat",
                    _ => "send",
                };
                let place = path(subflow.0).and_then(name).unwrap_or("?");
                let because = if reason.is_empty() { String::new() } else { format!(": {reason}") };
                let text = format!("{waited}{verb} {}..{end} on {place}{because}", record.offset);
                let on = path(subflow.0).map_or(0, |path| path.0);
                known.decisions.insert((record.offset, on), (end, text));
                if known.decisions.len() > REMEMBERED {
                    known.decisions.pop_first();
                }
            }
        }
        if self.writers.qlog.is_some() {
            let told = Decided {
                connection: index as u32,
                subflow: subflow.and_then(|subflow| connection.tuple(subflow)),
                word: record.decision.name(),
                offset: record.offset,
                bytes: record.bytes,
                reason,
            };
            self.push(record.at, Item::Decision(told));
        }
    }

    fn samples(&mut self, now: Time, endpoint: &HostEndpoint, id: ConnectionId) {
        let (Some(connection), true) = (endpoint.connection(id), now >= self.sample) else { return };
        self.sample = now + SAMPLES_EVERY;
        for flow in connection.subflow_metrics() {
            let Some(tuple) = connection.tuple(flow.id) else { continue };
            let (cwnd, ssthresh, in_flight) = (flow.cwnd(), flow.ssthresh(), flow.in_flight());
            let metrics = Metrics { cwnd, ssthresh, in_flight, srtt: flow.rtt.smoothed };
            self.push(now, Item::Sample(tuple, metrics));
        }
    }

    /// Writes what happened up to this moment.
    fn write_until(&mut self, until: Time) {
        while let Some(entry) = self.waiting.first_entry()
            && entry.key().0 <= until
        {
            let at = entry.key().0;
            let item = entry.remove();
            self.written = at;
            self.write(at, &item);
        }
    }

    fn write(&mut self, at: Time, item: &Item) {
        match item {
            Item::Decision(told) => {
                let told = Told {
                    connection: told.connection,
                    subflow: told.subflow,
                    decision: told.word,
                    offset: told.offset,
                    bytes: told.bytes,
                    reason: &told.reason,
                };
                self.writers.qlog(|qlog| qlog.decision(at, &told));
            }
            Item::Sample(tuple, metrics) => self.writers.qlog(|qlog| qlog.metrics(at, *tuple, *metrics)),
            Item::Packet(packet) => {
                let comment = packet.data.and_then(|data| self.connections.reason(data, packet.path));
                let told = Packet {
                    at,
                    path: packet.path,
                    direction: packet.direction,
                    bytes: &packet.bytes,
                    comment,
                };
                self.writers.pcap(|pcap| pcap.packet(&told));
                // The log has no word for what isn't TCP.
                if packet.is_tcp {
                    self.writers.qlog(|qlog| qlog.packet(&told));
                }
            }
        }
    }
}

/// What the packets themselves show of connections: keys in MP_CAPABLE, tokens in MP_JOIN.
#[derive(Default)]
struct Connections {
    list: Vec<CapturedConnection>,
    /// Subflows by the tuple of what this end sends.
    tuples: HashMap<FourTuple, SubflowOwner>,
}

/// A subflow.
struct SubflowOwner {
    /// Index of its connection.
    connection: usize,
    /// The sequence number after the last byte sent for the first time.
    next: Option<u32>,
}

#[derive(Default)]
struct CapturedConnection {
    /// Our key and the peer's, once they were seen.
    keys: [Option<Key>; 2],
    /// By offset and path: end, and why it was sent.
    decisions: BTreeMap<(u64, u16), (u64, String)>,
    /// Since when the scheduler waits, and why.
    waits: Option<(Time, String)>,
}

impl Connections {
    /// The connection whose first subflow sends with this tuple.
    fn of(&mut self, tuple: FourTuple) -> usize {
        let next = self.list.len();
        let index =
            self.tuples.entry(tuple).or_insert(SubflowOwner { connection: next, next: None }).connection;
        if index == next {
            self.list.push(CapturedConnection::default());
        }
        index
    }

    /// Takes from a packet what it says.
    fn packet(&mut self, segment: &Segment<SyntheticPayload>, sent: bool) {
        let Some(rare) = segment.rare.as_deref() else { return };
        let ours = if sent { segment.tuple } else { segment.tuple.reversed() };
        if let Some(capable) = rare.mp_capable {
            let index = self.of(ours);
            if let Some(key) = capable.sender_key {
                self.list[index].keys[usize::from(!sent)].get_or_insert_with(|| Key::new(key));
            }
        }
        if let Some(MpJoin::Syn { token, .. }) = rare.mp_join {
            // The token is the receiver's.
            let whose = usize::from(sent);
            let named = |known: &CapturedConnection| known.keys[whose].is_some_and(|key| key.token == token);
            if let Some(connection) = self.list.iter().position(named) {
                self.tuples.insert(ours, SubflowOwner { connection, next: None });
            }
        }
    }

    /// Where data that this end sends belongs; the very first comes with MP_CAPABLE in place of a mapping.
    fn locate(&mut self, segment: &Segment<SyntheticPayload>) -> Option<Data> {
        let subflow = self.tuples.get_mut(&segment.tuple)?;
        let end = segment.seq.0.wrapping_add(segment.payload.0);
        // Half of the numbers are before, half after (RFC 9293 3.4).
        let again = subflow.next.is_some_and(|next| next.wrapping_sub(end) < 1 << 31);
        if !again {
            subflow.next = Some(end);
        }
        let connection = subflow.connection;
        let start = self.list[connection].keys[0]?.idsn.wrapping_add(1);
        let first = segment.rare.as_ref().is_some_and(|rare| rare.mp_capable.is_some());
        let offset = match segment.dss.and_then(|dss| dss.mapping) {
            Some(mapping) => mapping.dsn.wrapping_sub(start),
            None if first => 0,
            None => return None,
        };
        Some(Data { connection, offset, again })
    }

    fn reason(&self, data: Data, path: u16) -> Option<&str> {
        if data.again {
            return Some("retransmitted on the same subflow");
        }
        let decisions = &self.list.get(data.connection)?.decisions;
        let mut before = decisions.range(..=(data.offset, u16::MAX)).rev().take(64);
        let covers = |end: &u64| data.offset < *end;
        if let Some((_, (_, text))) = before.clone().find(|((_, on), (end, _))| *on == path && covers(end)) {
            return Some(text);
        }
        let elsewhere = before.any(|(_, (end, _))| covers(end));
        elsewhere.then_some("reinjected: another subflow carried it and failed to")
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_wire::{Dss, DssMapping, Flags, MpCapable, Seq};

    use super::*;

    fn tuple(port: u16) -> FourTuple {
        let source = std::net::SocketAddr::new("192.0.2.1".parse().expect("one"), port);
        FourTuple::new(source, "198.51.100.1:80".parse().expect("one"))
    }

    fn data(tuple: FourTuple, seq: u32, dsn: Option<u64>) -> Segment<SyntheticPayload> {
        let mut segment = Segment::<SyntheticPayload>::new(tuple, Seq(seq), Seq(1), Flags::ACK);
        segment.payload = SyntheticPayload(10);
        let mapping = dsn.map(|dsn| DssMapping { dsn, ssn: 1, len: 10, checksum: None, dsn_is_64: true });
        segment.dss = Some(Dss { mapping, ..Dss::default() });
        segment
    }

    #[test]
    fn data_is_placed_by_the_keys_of_the_handshake_and_the_token_of_a_join() {
        let mut connections = Connections::default();
        let capable = |sender_key| MpCapable { version: 1, sender_key, ..MpCapable::default() };
        let mut packet = |tuple: FourTuple, sent, key: Option<u64>| {
            let mut segment = Segment::<SyntheticPayload>::new(tuple, Seq(1), Seq(1), Flags::ACK);
            segment.rare_mut().mp_capable = Some(capable(key));
            connections.packet(&segment, sent);
        };
        packet(tuple(1), true, None);
        packet(tuple(1).reversed(), false, Some(77));
        packet(tuple(1), true, Some(55));
        let mut join = Segment::<SyntheticPayload>::new(tuple(2), Seq(1), Seq(0), Flags::SYN);
        let token = Key::new(77).token;
        join.rare_mut().mp_join = Some(MpJoin::Syn { backup: false, address_id: 1, token, nonce: 5 });
        connections.packet(&join, true);
        let start = Key::new(55).idsn.wrapping_add(1);
        let mut place = |tuple, seq, dsn| {
            connections.locate(&data(tuple, seq, dsn)).map(|data| (data.connection, data.offset, data.again))
        };
        assert_eq!(place(tuple(1), u32::MAX - 3, Some(start.wrapping_add(9))), Some((0, 9, false)));
        assert_eq!(place(tuple(1), 7, Some(start.wrapping_add(19))), Some((0, 19, false)));
        assert_eq!(place(tuple(1), u32::MAX - 3, Some(start.wrapping_add(9))), Some((0, 9, true)));
        assert_eq!(place(tuple(2), 5, Some(start)), Some((0, 0, false)));
        assert_eq!(place(tuple(1), 17, None), None);
        assert_eq!(place(tuple(9), 5, Some(start)), None);

        connections.list[0].decisions.insert((100, 3), (200, "because".into()));
        let why = |offset, path, again| connections.reason(Data { connection: 0, offset, again }, path);
        assert_eq!((why(100, 3, false), why(199, 3, false)), (Some("because"), Some("because")));
        assert_eq!((why(200, 3, false), why(99, 3, false)), (None, None));
        assert_eq!(why(150, 4, false), Some("reinjected: another subflow carried it and failed to"));
        assert_eq!(why(150, 3, true), Some("retransmitted on the same subflow"));
    }
}
