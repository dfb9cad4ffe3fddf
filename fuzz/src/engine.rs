//! What the fuzz target of the engine checks: two endpoints with a Multipath TCP connection between them, and
//! a network that does as the input says. It carries, drops, repeats and reorders packets, lets time pass,
//! cuts a path, has the applications write, read and close, and sends packets of its own: real ones, with
//! bytes of the input written over them. `cargo test -p ropewalk-engine` replays the corpus.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use ropewalk_engine::config::{
    BufferConfig, ConnectionConfig, EndpointConfig, LocalEndpoint, PathManagerConfig, TcpConfig,
};
use ropewalk_engine::endpoint::{ConnectionId, Endpoint};
use ropewalk_engine::mptcp::{CloseReason, Event};
use ropewalk_engine::{Entropy, MILLISECOND, PathId, Span, Time, congestion, scheduler};
use ropewalk_wire::{ChecksumMode, ParseMode, Segment, encode_into, parse};

/// A check.
pub type Check = fn(&[u8]);

/// All of them by name.
pub const CHECKS: [(&str, Check); 1] = [("engine", engine)];

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)), 80);
const PATHS: u8 = 2;
const BUFFER: usize = 40_000;
/// Most packets that an end says in one go: its window is some thirty.
const MOST_AT_ONCE: usize = 1000;
/// An end that has been silenced for longer may give up before it is heard again: the last SYN goes out after
/// 63 seconds.
const PATIENCE: Span = Span::from_secs(60);

/// Keys and numbers that are the same each time.
struct Dice(u64);

impl Entropy for Dice {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 ^ self.0 >> 29
    }
}

fn client_address(path: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, path, 2).into()
}

fn settings(checksum: bool) -> ConnectionConfig {
    let second = LocalEndpoint {
        address: client_address(1),
        port: None,
        path: PathId(1),
        id: 1,
        signal: false,
        subflow: true,
        backup: false,
    };
    ConnectionConfig {
        tcp: TcpConfig { time_wait: 100 * MILLISECOND, ..TcpConfig::default() },
        multipath: true,
        checksum,
        send_buffer: BufferConfig::fixed(BUFFER as u64),
        receive_buffer: BufferConfig::fixed(BUFFER as u64),
        scheduler: scheduler::builtin().parse("minrtt").expect("built in"),
        congestion: congestion::builtin().parse("lia").expect("built in"),
        path_manager: PathManagerConfig {
            subflows: 4,
            add_addr_accepted: 4,
            endpoints: vec![second],
            ..PathManagerConfig::default()
        },
        trace_decisions: false,
        ..ConnectionConfig::default()
    }
}

/// The byte at an offset of either stream.
fn pattern(offset: usize) -> u8 {
    (offset ^ offset >> 8 ^ offset >> 16).wrapping_mul(167) as u8
}

/// Both ends and what is between them.
struct Net {
    ends: [Endpoint<Bytes, Dice>; 2],
    ids: [Option<ConnectionId>; 2],
    /// Under way, by direction.
    wire: [VecDeque<(PathId, Segment<Bytes>)>; 2],
    /// A packet that was carried: what forgeries are made of.
    last: [Option<(PathId, Segment<Bytes>)>; 2],
    now: Time,
    written: [usize; 2],
    read: [usize; 2],
    dead: [bool; PATHS as usize],
    /// Something was sent that no end had sent: from then on bytes may be anyone's.
    forged: bool,
    /// An application closed in haste.
    hasty: bool,
    reset: Option<CloseReason>,
}

impl Net {
    fn new(checksum: bool) -> Net {
        let config = settings(checksum);
        let mut listening = config.clone();
        listening.path_manager.endpoints.clear();
        let mut ends = [1, 2].map(|seed| Endpoint::new(EndpointConfig::default(), Dice(seed)));
        ends[1].listen(SERVER, Arc::new(listening));
        let local = SocketAddr::new(client_address(0), 0);
        let client = ends[0]
            .connect(Time::ZERO, PathId(0), local, SERVER, Arc::new(config))
            .expect("nothing is in the way");
        Net {
            ends,
            ids: [Some(client), None],
            wire: [VecDeque::new(), VecDeque::new()],
            last: [None, None],
            now: Time::ZERO,
            written: [0; 2],
            read: [0; 2],
            dead: [false; PATHS as usize],
            forged: false,
            hasty: false,
            reset: None,
        }
    }

    /// Whatever the ends have to say.
    fn pump(&mut self) {
        for end in 0..2 {
            let mut said = 0;
            while let Some((path, segment)) = self.ends[end].poll_transmit(self.now, 1) {
                assert!(segment.options_len() <= 40 && segment.wire_len() <= 1500, "{segment:?}");
                self.wire[end].push_back((path, segment));
                said += 1;
                assert!(said < MOST_AT_ONCE, "it doesn't fall silent");
            }
            while let Some((id, event)) = self.ends[end].poll_event() {
                match event {
                    Event::Accepted { .. } if self.ids[end].is_none() => self.ids[end] = Some(id),
                    Event::Reset { reason } => self.reset = self.reset.or(Some(reason)),
                    _ => {}
                }
            }
        }
    }

    fn carry(&mut self, from: usize) {
        let Some((path, segment)) = self.wire[from].pop_front() else { return };
        if self.dead[usize::from(path.0) % self.dead.len()] {
            return;
        }
        self.last[from] = Some((path, segment.clone()));
        self.ends[1 - from].on_segment(self.now, path, segment);
    }

    /// The latest packet of a direction with bytes of the input over it.
    fn forge(&mut self, from: usize, changes: &[u8]) {
        let Some((path, segment)) = self.last[from].clone() else { return };
        let mut packet = BytesMut::new();
        if encode_into(&segment, ChecksumMode::Full, &mut packet).is_err() {
            return;
        }
        for change in changes.chunks_exact(2) {
            // Headers and options, behind the addresses.
            let at = 20 + usize::from(change[0]) % 60;
            if let Some(byte) = packet.get_mut(at) {
                *byte ^= change[1];
            }
        }
        if let Ok(forgery) = parse(packet.freeze(), ParseMode::Trust) {
            self.forged = true;
            self.ends[1 - from].on_segment(self.now, path, forgery);
        }
    }

    fn write(&mut self, end: usize, len: usize) {
        let Some(id) = self.ids[end] else { return };
        let data: Bytes = (0..len).map(|i| pattern(self.written[end] + i)).collect();
        if let Ok(taken) = self.ends[end].write(self.now, id, data) {
            self.written[end] += taken;
        }
    }

    fn read(&mut self, end: usize) {
        let Some(id) = self.ids[end] else { return };
        while let Ok(Some(data)) = self.ends[end].read(self.now, id, 4096) {
            if data.is_empty() {
                break;
            }
            if !self.forged {
                for byte in &data {
                    assert_eq!(*byte, pattern(self.read[end]), "at {}", self.read[end]);
                    self.read[end] += 1;
                }
                assert!(self.read[end] <= self.written[1 - end]);
            }
        }
    }

    /// To the next deadline, or so far at most.
    fn wait(&mut self, at_most: Span) {
        let deadlines = self.ends.iter_mut().filter_map(|end| end.poll_timeout());
        let end = self.now + at_most;
        self.now = deadlines.min().map_or(end, |at| at.clamp(self.now, end));
        for end in &mut self.ends {
            end.on_timeout(self.now);
        }
    }
}

/// Any bytes as what happens to a connection.
pub fn engine(data: &[u8]) {
    let Some((first, mut rest)) = data.split_first() else { return };
    let mut net = Net::new(first & 1 != 0);
    // Most inputs begin with a connection that stands.
    if first & 2 == 0 {
        for _ in 0..12 {
            net.pump();
            net.carry(0);
            net.carry(1);
            net.now += MILLISECOND;
        }
    }
    let mut steps = 0;
    while let Some((operation, more)) = rest.split_first() {
        rest = more;
        let (end, times) = (usize::from(operation >> 4 & 1), usize::from(operation >> 5) + 1);
        match operation & 15 {
            0 | 1 => (0..4 * times).for_each(|_| {
                net.pump();
                net.carry(end);
            }),
            2 => drop(net.wire[end].pop_front()),
            3 => {
                if let Some(packet) = net.wire[end].front().cloned() {
                    net.wire[end].push_back(packet);
                }
            }
            4 => {
                if let Some(packet) = net.wire[end].pop_front() {
                    net.wire[end].push_back(packet);
                }
            }
            5 => net.write(end, 1 << (4 + times)),
            6 => net.write(end, 1000 * times),
            7 => net.read(end),
            8 => net.now += times as u64 * MILLISECOND,
            9 => net.wait(times as u64 * times as u64 * 100 * MILLISECOND),
            10 => net.dead[end] = !net.dead[end],
            11 => {
                if let Some(id) = net.ids[end] {
                    match times {
                        1..=4 => net.ends[end].shutdown(net.now, id),
                        5..=6 => {
                            net.hasty = true;
                            net.ends[end].close(net.now, id);
                        }
                        7 => {
                            net.hasty = true;
                            net.ends[end].abort(net.now, id);
                        }
                        _ => net.ends[end].set_backup(net.now, id, PathId(1), true),
                    }
                }
            }
            12 if end == 0 => {
                if let Some(id) = net.ids[0] {
                    net.ends[0].remove_path(net.now, id, PathId(1));
                }
            }
            _ => {
                let (changes, more) = rest.split_at((2 * times).min(rest.len()));
                rest = more;
                net.forge(end, changes);
            }
        }
        net.pump();
        for end in &net.ends {
            assert!(end.ofo_bytes() <= 2 * BUFFER as u64, "more than the window is kept");
        }
        steps += 1;
        if steps > 400 {
            break;
        }
    }
    finish(net);
}

/// Whole again, the network carries all that was written, unless an end had a reason to give up.
fn finish(mut net: Net) {
    net.dead = [false; PATHS as usize];
    let reasons = |net: &Net| net.forged || net.hasty || net.now > Time::ZERO + PATIENCE;
    let excused = reasons(&net);
    for _ in 0..200 {
        net.pump();
        while !(net.wire[0].is_empty() && net.wire[1].is_empty()) {
            net.carry(0);
            net.carry(1);
            net.read(0);
            net.read(1);
        }
        net.read(0);
        net.read(1);
        net.pump();
        if net.wire.iter().all(VecDeque::is_empty) {
            if net.read[0] == net.written[1] && net.read[1] == net.written[0] {
                break;
            }
            net.wait(10_000 * MILLISECOND);
        }
    }
    if !excused {
        assert_eq!(net.reset, None);
        assert_eq!([net.read[1], net.read[0]], net.written, "what was written isn't there");
    }
}
