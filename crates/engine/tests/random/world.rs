//! Two endpoints with their applications over the case's network. Events are in order of time and number, and
//! all draws are from the case's seed.

mod apps;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use ropewalk_engine::config::{
    BufferConfig, ConnectionConfig, EndpointConfig, LocalEndpoint, PathManagerConfig, TcpConfig,
};
use ropewalk_engine::endpoint::{ConnectionId, Endpoint};
use ropewalk_engine::metrics::SubflowStatus;
use ropewalk_engine::mptcp::Event;
use ropewalk_engine::{Entropy, PathId, SECOND, Span, Time, congestion, scheduler, testing};
use ropewalk_wire::{ChecksumMode, Flags, FourTuple, Segment, encode_headers};

use crate::case::{Case, Op, Reading};
use crate::fault::{Fault, Saboteur};
use crate::judge::{Judge, Judges, Verdict, stream, verdict};
use crate::network::{Flip, Path, reshape};
use crate::split_mix::SplitMix64;
use apps::App;

/// Entropy whose first draws are chosen: they decide an endpoint's secrets and its first connection's key.
#[derive(Clone, Debug)]
pub struct Script {
    chosen: VecDeque<u64>,
    dice: SplitMix64,
}

impl Entropy for Script {
    fn next_u64(&mut self) -> u64 {
        self.chosen.pop_front().unwrap_or_else(|| self.dice.next())
    }
}

/// How a case ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Outcome {
    /// Every byte arrived both ways, and both ends closed, as Multipath TCP.
    Finished,
    /// The same, as plain TCP from the handshake on.
    FinishedPlain,
    /// The same, after a fallback of an established connection.
    FinishedAfterFallback,
    /// An application aborted it, or closed it with data still to come.
    Aborted,
    /// A middlebox made it impossible, and it was reset.
    ResetByMiddlebox,
    /// In the end no path delivered.
    Cut,
}

pub struct Report {
    pub outcome: Outcome,
    pub digest: u64,
    /// Time taken after the last operation, as a share of the bound.
    pub share: f64,
    pub packets: u64,
}

pub struct World<'a> {
    case: &'a Case,
    now: Time,
    start: Time,
    ends: [Endpoint<Bytes, Script>; 2],
    ids: [Option<ConnectionId>; 2],
    apps: [App; 2],
    paths: Vec<Path>,
    removed: Vec<bool>,
    wire: BTreeMap<(Time, u64), (usize, PathId, Segment<Bytes>)>,
    sequence: u64,
    dice: SplitMix64,
    judges: Judges,
    flips: Vec<Flip>,
    saboteur: Saboteur,
    digest: u64,
    /// An application broke it.
    broken: bool,
    starved: Span,
    starving_since: Option<Time>,
    /// When both ends had everything.
    complete_at: Option<Time>,
    next_op: usize,
    trace: bool,
}

/// Longer than any outage that ends, and what retransmission makes of it.
const TIME_WAIT: Span = Span::from_secs(60);

/// The address with this number in the case's family.
fn address(case: &Case, number: u16) -> IpAddr {
    match case.ipv6 {
        true => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, number).into(),
        false => Ipv4Addr::from(0x0a00_0000 + u32::from(number)).into(),
    }
}

fn server_address(case: &Case) -> SocketAddr {
    SocketAddr::new(address(case, 0x901), 80)
}

fn client_address(case: &Case, path: usize) -> IpAddr {
    address(case, 0x100 * path as u16 + 2)
}

fn config(case: &Case, end: usize) -> ConnectionConfig {
    let side = &case.sides[end];
    let endpoint = |address: IpAddr, path: usize, signal: bool| LocalEndpoint {
        address,
        port: None,
        path: PathId(path as u16),
        id: path as u8 + 1,
        signal,
        subflow: !signal,
        backup: side.backup_path == Some(path),
    };
    let mut endpoints = Vec::new();
    if end == 0 {
        endpoints.extend((1..case.paths.len()).map(|path| endpoint(client_address(case, path), path, false)));
    }
    if side.signal && end == 1 {
        endpoints.push(endpoint(address(case, 0xa01), 0, true));
    }
    ConnectionConfig {
        tcp: TcpConfig {
            time_wait: TIME_WAIT,
            nagle: side.nagle,
            sack: side.sack,
            timestamps: side.timestamps,
            window_scaling: side.window_scaling,
            ecn: side.ecn,
            timestamp_offset: Some(side.timestamp_offset),
            // A gateway's listener has both this and `gather_writes`.
            answer_time: side.gather.then(|| Span::from_millis(5)),
            ..TcpConfig::default()
        },
        multipath: side.multipath,
        gather_writes: side.gather,
        checksum: side.checksum,
        send_buffer: BufferConfig { initial: side.send_buffer.0, max: side.send_buffer.1 },
        receive_buffer: BufferConfig { initial: side.receive_buffer.0, max: side.receive_buffer.1 },
        scheduler: scheduler::builtin().parse(side.scheduler).unwrap(),
        congestion: congestion::builtin().parse(side.congestion).unwrap(),
        path_manager: PathManagerConfig {
            subflows: 8,
            add_addr_accepted: 8,
            endpoints,
            ..PathManagerConfig::default()
        },
        trace_decisions: false,
        ..ConnectionConfig::default()
    }
}

impl<'a> World<'a> {
    pub fn new(case: &'a Case, fault: Option<Fault>, trace: bool) -> Self {
        let mut dice = SplitMix64(case.seed);
        let mut start = Time::from_nanos(dice.range(0, 1 << 40));
        let mut keys = [0; 2];
        let ends = [0, 1].map(|end| {
            let mut chosen: VecDeque<u64> = (0..7).map(|_| dice.next()).collect();
            if let Some(key) = case.wrap.keys[end] {
                chosen[6] = key;
            }
            keys[end] = chosen[6];
            if let Some((wrapping, before)) = case.wrap.isn
                && wrapping == end
            {
                start = before_wrap(case, &chosen, end, before);
            }
            Endpoint::new(EndpointConfig::default(), Script { chosen, dice: SplitMix64(dice.next()) })
        });
        let app = || App { established: vec![false; case.paths.len()], ..App::default() };
        let mut world = World {
            case,
            now: start,
            start,
            ends,
            ids: [None; 2],
            apps: [app(), app()],
            paths: case.paths.iter().cloned().map(Path::new).collect(),
            removed: vec![false; case.paths.len()],
            wire: BTreeMap::new(),
            sequence: 0,
            dice,
            judges: Judges::new(case, keys),
            flips: Vec::new(),
            saboteur: Saboteur::new(fault),
            digest: 0,
            broken: false,
            starved: Span::ZERO,
            starving_since: None,
            complete_at: None,
            next_op: 0,
            trace,
        };
        // Timestamp clocks count from the start, so that an offset just before the wrap wraps soon.
        let elapsed = start.as_millis() as u32;
        let [mut client, mut server] = [config(case, 0), config(case, 1)];
        for config in [&mut client, &mut server] {
            config.tcp.timestamp_offset =
                config.tcp.timestamp_offset.map(|offset| offset.wrapping_sub(elapsed));
        }
        world.ends[1].listen(server_address(case), Arc::new(server));
        let local = SocketAddr::new(client_address(case, 0), 0);
        world.ids[0] =
            world.ends[0].connect(start, PathId(0), local, server_address(case), Arc::new(client)).ok();
        world
    }

    fn say(&self, text: impl FnOnce() -> String) {
        if self.trace {
            eprintln!("{:>12.6} {}", (self.now - self.start).as_secs_f64(), text());
        }
    }

    /// Puts a segment, or the packets of a super-segment, on its path.
    fn send(&mut self, from: usize, path: PathId, segment: Segment<Bytes>) -> Result<(), Verdict> {
        let index = path.0 as usize;
        let start = segment.seq;
        let Some(reshapes) = self.paths.get(index).map(|path| path.case.reshape) else { return Ok(()) };
        let packets = if reshapes && segment.payload.len() > 1 && segment.gso_size > 0 {
            reshape(segment, &mut self.dice)
        } else {
            ropewalk_wire::gso::split(segment).collect()
        };
        for mut packet in packets {
            self.judges.on_sent(from, &packet)?;
            self.note(from, path, &packet);
            if !self.saboteur.on_sent(from, path, &mut packet) {
                continue;
            }
            if !self.paths[index].case.resegment {
                self.carry(from, index, start, packet);
                continue;
            }
            for piece in self.paths[index].resegment(from, packet, &mut self.dice) {
                self.carry(from, index, piece.seq, piece);
            }
        }
        Ok(())
    }

    /// A packet on its path; the mapping that it has, if it can be altered, starts at `start`.
    fn carry(&mut self, from: usize, index: usize, start: ropewalk_wire::Seq, mut packet: Segment<Bytes>) {
        let path = &mut self.paths[index];
        path.strip(from, &mut packet);
        path.flip(from, start, &mut packet, &mut self.flips, &mut self.dice);
        for at in path.carry(self.now, from, packet.wire_len(), &mut self.dice) {
            self.sequence += 1;
            self.wire.insert((at, self.sequence), (1 - from, PathId(index as u16), packet.clone()));
        }
    }

    fn note(&mut self, from: usize, path: PathId, packet: &Segment<Bytes>) {
        mix(
            &mut self.digest,
            [self.now.as_nanos(), u64::from(path.0) << 32 | u64::from(packet.ecn as u8) << 8 | from as u64],
        );
        let headers = encode_headers(packet, ChecksumMode::Full).expect("a segment of the wire");
        let words = headers.as_slice().chunks(8);
        mix(&mut self.digest, words.map(|word| word.iter().fold(0, |all, byte| all << 8 | u64::from(*byte))));
        self.say(|| format!("{from}>{} {}", path.0, brief(packet)));
    }

    fn transmit(&mut self) -> Result<(), Verdict> {
        for end in 0..2 {
            loop {
                let connection = self.ids[end].and_then(|id| self.ends[end].connection(id));
                let before: Vec<u32> = connection.map_or(Vec::new(), |c| {
                    c.subflow_metrics().iter().map(|flow| flow.in_flight()).collect()
                });
                let burst = self.case.sides[end].burst;
                let Some((path, segment)) = self.ends[end].poll_transmit(self.now, burst) else { break };
                if let Some(id) = self.ids[end] {
                    let fin = segment.flags.contains(Flags::FIN);
                    self.judges.on_polled(end, &before, &self.ends[end], id, fin)?;
                }
                self.send(end, path, segment)?;
            }
            // A segment that waited to be joined with another goes alone.
            for index in 0..self.paths.len() {
                if let Some(alone) = self.paths[index].waiting(end) {
                    self.carry(end, index, alone.seq, alone);
                }
            }
        }
        Ok(())
    }

    /// Whether some path delivers that the connection may count on.
    fn fed(&self) -> bool {
        let established = |path: usize| self.apps.iter().all(|app| app.established[path]);
        let none = !(0..self.paths.len()).any(established);
        (0..self.paths.len()).any(|path| {
            let counts = established(path) || (none && path == 0);
            // A subflow that a middlebox changed may be closed for another path, unless it is the only one.
            let spoiled = self.paths[path].is_touched && self.paths.len() > 1;
            self.paths[path].up && !spoiled && !self.removed[path] && counts
        })
    }

    fn watch(&mut self) -> Result<(), Verdict> {
        for end in 0..2 {
            let Some(connection) = self.ids[end].and_then(|id| self.ends[end].connection(id)) else {
                continue;
            };
            let (app, side) = (&mut self.apps[end], &self.case.sides[end]);
            for flow in connection.subflow_metrics() {
                if flow.state == SubflowStatus::Usable {
                    app.established[flow.path.0 as usize] = true;
                }
            }
            if app.deaf {
                continue;
            }
            let held = connection.stats(self.now).bytes_received - app.read + connection.ofo_bytes();
            if held > side.receive_buffer.1 {
                let detail = format!("end {end} holds {held} received bytes of {}", side.receive_buffer.1);
                return Err(verdict(Judge::MemoryExceeded, detail));
            }
            let unacknowledged = app.written.saturating_sub(connection.data_una());
            if unacknowledged > side.send_buffer.1 {
                let detail =
                    format!("end {end} holds {unacknowledged} written bytes of {}", side.send_buffer.1);
                return Err(verdict(Judge::MemoryExceeded, detail));
            }
        }
        Ok(())
    }

    fn quiet(&self) -> bool {
        self.wire.is_empty() && self.ends.iter().all(|end| end.is_empty()) && self.ids[1].is_some()
    }

    /// Runs the case to its end.
    pub fn run(mut self) -> Result<Report, Verdict> {
        let last_op = self.start + self.case.ops.last().map_or(Span::ZERO, |(at, _)| *at);
        let bound = self.case.bound();
        let mut steps = 0;
        loop {
            for _ in 0..3 {
                self.transmit()?;
                self.dispatch_events();
                self.run_applications()?;
                self.watch()?;
            }
            let fed = self.fed();
            match (fed, self.starving_since) {
                (false, None) => self.starving_since = Some(self.now),
                (true, Some(since)) => {
                    self.starved += self.now - since;
                    self.starving_since = None;
                }
                _ => {}
            }
            let over = self.next_op >= self.case.ops.len();
            if over && self.quiet() {
                break;
            }
            let Some(next) = self.next_event() else { break };
            if self.complete_at.is_none() && (0..2).all(|end| self.complete(end)) {
                self.complete_at = Some(self.now);
            }
            // After all data has arrived, TIME-WAIT and subflows over dead paths may still take long.
            let closing = if self.complete_at.is_some() { 20 * TIME_WAIT } else { Span::ZERO };
            let limit = last_op + bound + self.case.after_outage(self.starved) + closing;
            let cut = self.starving_since.is_some_and(|since| next > since.max(last_op) + 100 * SECOND);
            if over && (cut || (next > limit && self.starving_since.is_none())) {
                break;
            }
            steps += 1;
            if steps > 50_000 + 2 * self.judges.packets {
                return Err(verdict(Judge::Storm, format!("step {steps}: {}", self.describe())));
            }
            self.now = self.now.max(next);
            self.advance();
        }
        let done = self.complete_at.unwrap_or(self.now);
        let share = done.saturating_sub(last_op + self.case.after_outage(self.starved)).as_nanos() as f64
            / bound.as_nanos() as f64;
        self.conclude(share)
    }

    fn next_event(&mut self) -> Option<Time> {
        let mut next = self.wire.keys().next().map(|(at, _)| *at).into_iter().collect::<Vec<_>>();
        next.extend(
            self.ends.iter_mut().filter_map(|end| end.poll_timeout()).map(|at| self.saboteur.timeout(at)),
        );
        next.extend(self.case.ops.get(self.next_op).map(|(at, _)| self.start + *at));
        next.extend(self.apps.iter().map(|app| app.next_read).filter(|at| *at > self.now));
        next.into_iter().min()
    }

    fn advance(&mut self) {
        while let Some((at, op)) = self.case.ops.get(self.next_op).copied()
            && self.start + at <= self.now
        {
            self.next_op += 1;
            self.perform(op);
        }
        while let Some((&(at, sequence), _)) = self.wire.first_key_value()
            && at <= self.now
        {
            let Some((to, path, mut segment)) = self.wire.remove(&(at, sequence)) else { break };
            self.judges.on_heard(to, &segment);
            self.say(|| format!("     {to}<{} {}", path.0, brief(&segment)));
            self.saboteur.on_heard(to, &mut segment);
            self.ends[to].on_segment(self.now, path, segment);
        }
        for end in &mut self.ends {
            if end.poll_timeout().is_some_and(|at| self.saboteur.timeout(at) <= self.now) {
                end.on_timeout(self.now);
            }
        }
    }

    fn complete(&self, end: usize) -> bool {
        self.apps[end].peer_closed && self.apps[end].read == self.apps[1 - end].written && self.apps[end].shut
    }

    fn conclude(&self, share: f64) -> Result<Report, Verdict> {
        let report =
            |outcome| Ok(Report { outcome, digest: self.digest, share, packets: self.judges.packets });
        let [client, server] = &self.apps;
        let closed = client.closed && server.closed && self.ends.iter().all(|end| end.is_empty());
        if (0..2).all(|end| self.complete(end)) && closed {
            return report(match (client.connected, client.fell_back || server.fell_back) {
                (Some(true), false) => Outcome::Finished,
                (Some(true), true) => Outcome::FinishedAfterFallback,
                _ => Outcome::FinishedPlain,
            });
        }
        if self.broken {
            return report(Outcome::Aborted);
        }
        if self.starving_since.is_some() {
            return report(Outcome::Cut);
        }
        let detail = self.describe();
        if client.reset.is_some() || server.reset.is_some() {
            if self.paths.iter().any(|path| path.is_touched) {
                return report(Outcome::ResetByMiddlebox);
            }
            return Err(verdict(Judge::Failed, detail));
        }
        Err(verdict(Judge::TooLate, detail))
    }

    fn describe(&self) -> String {
        let mut text = format!("after {:.3} s", (self.now - self.start).as_secs_f64());
        for (end, app) in self.apps.iter().enumerate() {
            text += &format!(
                "\n  end {end}: read {} of {}, backlog {}, shut {}, eof {}, closed {}, reset {:?}",
                app.read,
                self.apps[1 - end].written,
                app.backlog,
                app.shut,
                app.eof,
                app.closed,
                app.reset
            );
            if let Some(connection) = self.ids[end].and_then(|id| self.ends[end].connection(id)) {
                let flow = |flow: &ropewalk_engine::metrics::SubflowMetrics| {
                    let (out, cwnd, queued) = (flow.in_flight(), flow.cwnd(), flow.queued_bytes);
                    format!("[{} {:?} {out}/{cwnd} queued {queued}]", flow.path.0, flow.state)
                };
                let flows: Vec<_> = connection.subflow_metrics().iter().map(flow).collect();
                let (una, left) = (connection.data_una(), connection.window_left());
                text += &format!("\n    una {una} window left {left} {}", flows.join(" "));
            }
        }
        text
    }
}

/// Adds to a digest.
fn mix(digest: &mut u64, words: impl IntoIterator<Item = u64>) {
    for word in words {
        *digest = (*digest ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }
}

/// When to start so that the initial sequence number of the first subflow is `before` the wrap.
fn before_wrap(case: &Case, chosen: &VecDeque<u64>, end: usize, before: u32) -> Time {
    let mut secret = [0; 32];
    for (word, bytes) in chosen.iter().skip(2).zip(secret.chunks_exact_mut(8)) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    let client = SocketAddr::new(client_address(case, 0), 32_768);
    let server = server_address(case);
    let (from, to) = if end == 0 { (client, server) } else { (server, client) };
    let now = testing::keyed_isn(&secret, &FourTuple::new(from, to), Time::ZERO);
    Time::from_nanos(u64::from(now.wrapping_add(before).wrapping_neg()) * 4_000)
}

/// A packet in a line.
pub fn brief(packet: &Segment<Bytes>) -> String {
    let port = packet.tuple.src_port ^ packet.tuple.dst_port ^ 80;
    let mut text = format!(
        "{port} {:?}seq {} ack {} win {} len {}",
        packet.flags,
        packet.seq.0,
        packet.ack.0,
        packet.window,
        packet.payload.len()
    );
    if !packet.sack.is_empty() {
        text += &format!(" sack {:?}", packet.sack);
    }
    if let Some(dss) = packet.dss {
        if let Some(ack) = dss.data_ack {
            text += &format!(" dack {}", ack as u32);
        }
        if let Some(mapping) = dss.mapping {
            text += &format!(" map {}+{}@{}", mapping.dsn as u32, mapping.len, mapping.ssn);
        }
        if dss.data_fin {
            text += " DATA_FIN";
        }
    }
    if let Some(rare) = packet.rare.as_deref() {
        let options: Vec<_> = rare.mptcp_names().collect();
        text += &format!(" {options:?}");
    }
    text
}
