//! A client and a server endpoint joined by scripted paths, with a virtual clock and real bytes.
#![allow(dead_code, reason = "each test binary uses its part")]

mod split_mix;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use ropewalk_engine::config::{
    BufferConfig, ConnectionConfig, EndpointConfig, LocalEndpoint, PathManagerConfig, TcpConfig,
};
use ropewalk_engine::endpoint::{ConnectionId, Endpoint};
use ropewalk_engine::mptcp::Event;
use ropewalk_engine::{MILLISECOND, PathId, SECOND, Span, Time, congestion, scheduler};
use ropewalk_wire::{Payload, Segment, Seq};
pub use split_mix::SplitMix64;

impl SplitMix64 {
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && (self.next() >> 11) as f64 / (1u64 << 53) as f64 <= probability
    }
}

/// What a path does to packets.
#[derive(Clone, Debug)]
pub struct PathScript {
    pub delay: Span,
    pub loss: f64,
    pub reorder: f64,
    pub duplicate: f64,
    pub dead_from: Option<Time>,
    /// MPTCP options are stripped from the packets with this index on, both ways counted together.
    pub strip_from: Option<u64>,
    /// Bytes per second each way; without a rate there is no limit.
    pub rate: Option<u64>,
    /// What a path with a rate queues, as time; packets beyond it are dropped.
    pub queue: Span,
    /// Packets arrive at multiples of this time, as from a device that is read in batches.
    pub batch: Span,
}

impl PathScript {
    pub fn clean(delay_ms: u64) -> Self {
        PathScript {
            delay: delay_ms * MILLISECOND,
            loss: 0.0,
            reorder: 0.0,
            duplicate: 0.0,
            dead_from: None,
            strip_from: None,
            rate: None,
            queue: 50 * MILLISECOND,
            batch: Span::from_nanos(1),
        }
    }
}

pub fn bytes(seed: u8, len: usize) -> Bytes {
    (0..len).map(|i| (i as u64 * 31 + u64::from(seed) + (i as u64 >> 8)) as u8).collect()
}

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)), 80);

pub const SERVER_ADDRESS: SocketAddr = SERVER;

pub fn client_address(path: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, path as u8, 2).into()
}

/// Sees each packet before its path does: the sender, the packet, which it may change; false loses it.
pub type Tamper = Box<dyn FnMut(usize, &mut Segment<Bytes>) -> bool>;

/// Packets as they left, with their sender.
pub type Log = std::rc::Rc<std::cell::RefCell<Vec<(usize, Segment<Bytes>)>>>;

pub struct Net {
    pub ends: [Endpoint<Bytes, SplitMix64>; 2],
    pub client: ConnectionId,
    pub server: Option<ConnectionId>,
    pub paths: Vec<PathScript>,
    pub now: Time,
    pub events: Vec<(usize, Event)>,
    pub received: [Vec<u8>; 2],
    pub sent: [Vec<u8>; 2],
    pub digest: u64,
    pub saw_checksum: bool,
    pub tamper: Option<Tamper>,
    /// Whether each end's application reads.
    pub reads: [bool; 2],
    /// Whether nobody listens to an end's events.
    pub deaf: [bool; 2],
    /// Most segments that each end sends as one super-segment.
    pub max_segments: [u32; 2],
    /// Segments in the longest super-segment so far.
    pub longest: usize,
    pub packets: u64,
    pub steps: u64,
    wire: BTreeMap<(Time, u64), (usize, PathId, Segment<Bytes>)>,
    sequence: u64,
    counts: Vec<u64>,
    /// Until when a path's links are busy, by sender.
    busy: Vec<[Time; 2]>,
    dice: SplitMix64,
    backlog: [Bytes; 2],
    close_after: [bool; 2],
}

pub fn config(scheduler: &str, congestion: &str, paths: usize) -> ConnectionConfig {
    let endpoints = (1..paths)
        .map(|path| LocalEndpoint {
            address: client_address(path),
            port: None,
            path: PathId(path as u16),
            id: path as u8,
            signal: false,
            subflow: true,
            backup: false,
        })
        .collect();
    ConnectionConfig {
        tcp: TcpConfig { time_wait: SECOND, ..TcpConfig::default() },
        multipath: true,
        checksum: false,
        send_buffer: BufferConfig::fixed(1 << 20),
        receive_buffer: BufferConfig::fixed(1 << 20),
        scheduler: scheduler::builtin().parse(scheduler).unwrap(),
        congestion: congestion::builtin().parse(congestion).unwrap(),
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

impl Net {
    pub fn new(scheduler: &str, congestion: &str, paths: Vec<PathScript>) -> Self {
        Net::with(|_| {}, scheduler, congestion, paths)
    }

    pub fn plain(paths: Vec<PathScript>) -> Self {
        Net::with(|config| config.multipath = false, "single", "reno", paths)
    }

    pub fn with(
        adjust: impl FnOnce(&mut ConnectionConfig),
        scheduler: &str,
        congestion: &str,
        paths: Vec<PathScript>,
    ) -> Self {
        let local = SocketAddr::new(client_address(0), 0);
        Net::between([local, SERVER], adjust, scheduler, congestion, paths)
    }

    /// From one address to another one, of either family; more paths than one are IPv4's.
    pub fn between(
        [local, server]: [SocketAddr; 2],
        adjust: impl FnOnce(&mut ConnectionConfig),
        scheduler: &str,
        congestion: &str,
        paths: Vec<PathScript>,
    ) -> Self {
        let mut config = config(scheduler, congestion, paths.len());
        adjust(&mut config);
        let client_config = Arc::new(config.clone());
        config.path_manager.endpoints.clear();
        let mut ends = [
            Endpoint::new(EndpointConfig::default(), SplitMix64(1)),
            Endpoint::new(EndpointConfig::default(), SplitMix64(2)),
        ];
        ends[1].listen(server, Arc::new(config));
        let client = ends[0].connect(Time::ZERO, PathId(0), local, server, client_config).unwrap();
        Net {
            ends,
            client,
            server: None,
            counts: vec![0; paths.len()],
            busy: vec![[Time::ZERO; 2]; paths.len()],
            paths,
            now: Time::ZERO,
            events: Vec::new(),
            received: [Vec::new(), Vec::new()],
            sent: [Vec::new(), Vec::new()],
            digest: 0,
            saw_checksum: false,
            tamper: None,
            reads: [true; 2],
            deaf: [false; 2],
            max_segments: [1, 4],
            longest: 0,
            packets: 0,
            steps: 0,
            wire: BTreeMap::new(),
            sequence: 0,
            dice: SplitMix64(99),
            backlog: [Bytes::new(), Bytes::new()],
            close_after: [false, false],
        }
    }

    /// Keeps every packet from now on; a tamperer set later ends it.
    pub fn log(&mut self) -> Log {
        let log = Log::default();
        let told = log.clone();
        self.tamper = Some(Box::new(move |from, segment| {
            told.borrow_mut().push((from, segment.clone()));
            true
        }));
        log
    }

    /// Lets time pass, or until nothing more can happen.
    pub fn pass(&mut self, milliseconds: u64) {
        let until = self.now + milliseconds * MILLISECOND;
        self.run(until, |_| false);
        self.now = self.now.max(until);
    }

    /// A segment from nowhere reaches an end.
    pub fn inject(&mut self, to: usize, segment: Segment<Bytes>) {
        self.ends[to].on_segment(self.now, PathId(0), segment);
    }

    /// Takes what an end wants to send now off the network.
    pub fn take(&mut self, from: usize) -> Vec<Segment<Bytes>> {
        let now = self.now;
        std::iter::from_fn(|| self.ends[from].poll_transmit(now, 1)).map(|(_, segment)| segment).collect()
    }

    /// The number after the last that an end has used on its first subflow.
    pub fn next_seq(&self, log: &Log, from: usize) -> Seq {
        let log = log.borrow();
        let first = log[0].1.tuple;
        let own = if from == 0 { first } else { first.reversed() };
        let sent = log.iter().filter(|(end, segment)| *end == from && segment.tuple == own);
        let ends = sent.map(|(_, segment)| segment.seq.plus(segment.sequence_len()));
        ends.reduce(|a, b| if (b.0.wrapping_sub(a.0) as i32) > 0 { b } else { a }).expect("some were sent")
    }

    /// Another client in the first one's place, with keys and numbers of its own.
    pub fn reseed_client(&mut self, seed: u64) {
        let settings = Arc::new(config("roundrobin", "lia", self.paths.len()));
        self.ends[0] = Endpoint::new(EndpointConfig::default(), SplitMix64(seed));
        let local = SocketAddr::new(client_address(0), 0);
        self.client = self.ends[0].connect(Time::ZERO, PathId(0), local, SERVER, settings).unwrap();
    }

    /// One of the kernel's counters of an end.
    pub fn counter(&self, end: usize, name: &str) -> u64 {
        let all = self.ends[end].mib();
        all.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("no counter {name}")).1
    }

    pub fn seed(&mut self, seed: u64) {
        self.dice = SplitMix64(seed);
    }

    fn put_on_wire(&mut self, from: usize, path: PathId, mut segment: Segment<Bytes>) {
        self.packets += 1;
        if let Some(tamper) = self.tamper.as_mut()
            && !tamper(from, &mut segment)
        {
            return;
        }
        let script = &self.paths[path.0 as usize];
        assert!(segment.options_len() <= 40, "{segment:?}");
        self.saw_checksum |= segment.dss.and_then(|dss| dss.mapping).is_some_and(|m| m.checksum.is_some());
        self.digest = self.digest.wrapping_mul(0x100_0000_01b3).wrapping_add(
            self.now.as_nanos() ^ u64::from(segment.seq.0) ^ (segment.payload.len() as u64) << 20,
        );
        let count = &mut self.counts[path.0 as usize];
        let index = *count;
        *count += 1;
        if script.dead_from.is_some_and(|at| self.now >= at) || self.dice.chance(script.loss) {
            return;
        }
        if script.strip_from.is_some_and(|from| index >= from) {
            segment.strip_mptcp();
        }
        let mut leaves = self.now;
        if let Some(rate) = script.rate {
            let busy = &mut self.busy[path.0 as usize][from];
            let start = self.now.max(*busy);
            if start > self.now + script.queue {
                return;
            }
            *busy = start + (segment.payload.len() as u64 + 80) * SECOND / rate;
            leaves = *busy;
        }
        let copies = 1 + usize::from(self.dice.chance(script.duplicate));
        for _ in 0..copies {
            let extra = match self.dice.chance(script.reorder) {
                true => Span::from_nanos(self.dice.next() % script.delay.as_nanos().max(1)),
                false => Span::ZERO,
            };
            let arrives = (leaves + script.delay + extra).as_nanos();
            let arrives = Time::from_nanos(arrives.next_multiple_of(script.batch.as_nanos()));
            self.sequence += 1;
            self.wire.insert((arrives, self.sequence), (1 - from, path, segment.clone()));
        }
    }

    fn pump(&mut self) {
        for from in 0..2 {
            let most = self.max_segments[from];
            while let Some((path, segment)) = self.ends[from].poll_transmit(self.now, most) {
                let mss = usize::from(segment.gso_size);
                if mss == 0 {
                    self.put_on_wire(from, path, segment);
                } else {
                    self.longest = self.longest.max(segment.payload.len().div_ceil(mss));
                    for packet in ropewalk_wire::gso::split(segment) {
                        self.put_on_wire(from, path, packet);
                    }
                }
            }
        }
        for end in 0..2 {
            while !self.deaf[end]
                && let Some((id, event)) = self.ends[end].poll_event()
            {
                if let Event::Accepted { .. } = event {
                    self.server = Some(id);
                }
                self.events.push((end, event));
            }
        }
        for end in 0..2 {
            let id = if end == 0 { Some(self.client) } else { self.server };
            let Some(id) = id else { continue };
            while self.reads[end]
                && let Ok(Some(data)) = self.ends[end].read(self.now, id, 10_000)
            {
                if data.is_empty() {
                    break;
                }
                self.received[end].extend_from_slice(&data);
            }
            while !self.backlog[end].is_empty() {
                match self.ends[end].write(self.now, id, self.backlog[end].clone()) {
                    Ok(0) | Err(_) => break,
                    Ok(taken) => {
                        let left = Payload::slice(&self.backlog[end], taken, self.backlog[end].len());
                        self.backlog[end] = left;
                    }
                }
            }
            if self.backlog[end].is_empty() && self.close_after[end] {
                self.close_after[end] = false;
                self.ends[end].shutdown(self.now, id);
            }
        }
    }

    /// Runs until `done` or `limit`; returns whether it is done.
    pub fn run(&mut self, limit: Time, done: impl Fn(&Net) -> bool) -> bool {
        loop {
            self.steps += 1;
            for _ in 0..3 {
                self.pump();
            }
            if done(self) {
                return true;
            }
            let mut next = self.wire.keys().next().map(|(at, _)| *at);
            for end in &mut self.ends {
                if let Some(at) = end.poll_timeout() {
                    next = Some(next.map_or(at, |known| known.min(at)));
                }
            }
            let Some(next) = next.filter(|at| *at <= limit) else { return false };
            self.now = self.now.max(next);
            while let Some(((at, sequence), _)) = self.wire.first_key_value() {
                let (at, sequence) = (*at, *sequence);
                if at > self.now {
                    break;
                }
                if let Some((to, path, segment)) = self.wire.remove(&(at, sequence)) {
                    self.ends[to].on_segment(self.now, path, segment);
                }
            }
            for end in &mut self.ends {
                end.on_timeout(self.now);
            }
        }
    }

    pub fn delivered_all(&self) -> bool {
        self.received[1] == self.sent[0]
    }

    pub fn try_transfer(&mut self, len: usize) -> bool {
        let data = bytes(3, len);
        self.sent[0].extend_from_slice(&data);
        self.backlog[0] = data;
        self.close_after[0] = true;
        let limit = self.now + 600 * SECOND;
        let want = self.sent[0].len();
        self.run(limit, |net| net.received[1].len() >= want)
    }

    /// Gives the client data to send, and lets no time pass.
    pub fn send(&mut self, data: Bytes) {
        self.sent[0].extend_from_slice(&data);
        self.backlog[0] = data;
    }

    /// A transfer after which the client's side stays open.
    pub fn transfer_some(&mut self, len: usize) {
        let data = bytes(3, len);
        self.sent[0].extend_from_slice(&data);
        self.backlog[0] = data;
        let limit = self.now + 600 * SECOND;
        let want = self.sent[0].len();
        assert!(self.run(limit, |net| net.received[1].len() >= want), "stalled");
    }

    pub fn transfer(&mut self, len: usize) {
        let done = self.try_transfer(len);
        let client =
            self.ends[0].connection(self.client).map(|c| (c.subflow_metrics().to_vec(), c.stats(self.now)));
        assert!(
            done,
            "stalled at {} of {len} bytes, t={}\n{:?}\n{client:#?}",
            self.received[1].len(),
            self.now,
            self.events
        );
        assert!(self.delivered_all(), "bytes differ");
    }

    pub fn reply(&mut self, data: Bytes) {
        self.sent[1].extend_from_slice(&data);
        self.backlog[1] = data;
        let want = self.sent[1].len();
        let limit = self.now + 600 * SECOND;
        assert!(self.run(limit, |net| net.received[0].len() >= want), "the reply stalled");
        assert_eq!(self.received[0], self.sent[1]);
    }

    /// Closes the server's side too and waits until both ends are gone.
    pub fn finish(&mut self) {
        self.close_after[1] = true;
        let limit = self.now + 600 * SECOND;
        let closed = self.run(limit, |net| {
            [0, 1].iter().all(|end| net.events.iter().any(|(e, event)| e == end && *event == Event::Closed))
        });
        assert!(closed, "no close by {}: {:?}", self.now, self.events);
        assert!(self.received[1] == self.sent[0] && self.received[0] == self.sent[1]);
    }

    pub fn client_multipath(&self) -> bool {
        self.events.iter().any(|(end, event)| *end == 0 && *event == Event::Connected { multipath: true })
            && !self.events.iter().any(|(_, event)| matches!(event, Event::Fallback(_)))
    }

    pub fn bytes_by_subflow(&self) -> Vec<u64> {
        self.ends[0].connection(self.client).unwrap().stats(self.now).bytes_by_subflow
    }
}
