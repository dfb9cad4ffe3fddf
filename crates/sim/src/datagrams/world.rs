//! The two ends, the links between them, and the hosts behind them.

use bytes::Bytes;
use ropewalk_datagrams::{DatagramScheduler, LinkSettings, Tunnel};
use ropewalk_engine::{Span, Time};
use ropewalk_link::{Link, LinkSpec, Packet};

use super::flows::{Label, Way};
use super::{Datagrams, DatagramsResult};
use crate::Side;
use crate::spec::Scenario;

/// Bytes of IPv4, UDP and QUIC around a datagram of the tunnel.
const OVERHEAD: u32 = 60;
/// What `quinn` reserves for them, and the largest packet that it looks for.
const RESERVED: u32 = 66;
const LARGEST: u32 = 1480;
/// The links are connected so long before the flows begin; their changes count from there.
const LEAD: Span = Span::from_secs(1);
/// Within which the flows begin, each at a time of its own.
const SPREAD: Span = Span::from_secs(1);
/// How long what is under way at the end is waited for.
const TAIL: Span = Span::from_secs(2);
/// Timers of an operating system are late by about so much.
const LATE: Span = Span::from_micros(50);

/// A datagram of the tunnel on a link.
#[derive(Clone, Debug)]
struct Datagram {
    path: usize,
    bytes: Bytes,
    /// Whether it has left the first of two links.
    is_halfway: bool,
}

impl Packet for Datagram {
    fn wire_len(&self) -> u32 {
        self.bytes.len() as u32 + OVERHEAD
    }

    fn is_ect(&self) -> bool {
        false
    }

    fn mark_ce(&mut self) {}

    fn duplicate(&self) -> Self {
        self.clone()
    }
}

/// Both ends of a tunnel, the links between them, and the flows.
#[derive(Debug)]
pub(super) struct World {
    now: Time,
    tunnels: [Tunnel; 2],
    /// When each end has to be called.
    due: [Option<Time>; 2],
    /// Of each path and each shared link, the two directions.
    links: Vec<[Link<Datagram>; 2]>,
    /// The shared link of each path.
    shared: Vec<Option<usize>>,
    ways: Vec<Way>,
    deadline: Span,
    end: Time,
    bytes: (u64, u64),
}

impl World {
    pub(super) fn new(
        scenario: &Scenario,
        datagrams: &Datagrams,
        schedulers: [Box<dyn DatagramScheduler>; 2],
        only: Option<usize>,
        seed: u64,
    ) -> World {
        let begin = Time::ZERO + LEAD;
        let later = |spec: &LinkSpec| {
            let mut spec = spec.clone();
            spec.changes.iter_mut().for_each(|change| change.at = change.at.saturating_add(LEAD));
            spec
        };
        let own = scenario.paths.iter().map(|path| [&path.up, &path.down]);
        let shared = scenario.bottlenecks.iter().map(|link| [&link.up, &link.down]);
        let links = own.chain(shared).enumerate().map(|(place, pair)| {
            let [up, down] = pair.map(later);
            let stream = 2 * place as u64;
            [Link::new(up, seed, stream), Link::new(down, seed, stream + 1)]
        });
        let flows = datagrams.flows.len() as u64;
        let ways = datagrams.flows.iter().enumerate().flat_map(|(flow, kind)| {
            let start = begin + SPREAD * flow as u64 / flows;
            let end = start.saturating_add(datagrams.duration);
            Way::all(*kind, flow, scenario.direction.sender(), (start, end))
        });
        let ways: Vec<Way> = ways.enumerate().map(|(place, way)| way.at(place)).collect();
        let mut world = World {
            now: Time::ZERO,
            tunnels: schedulers.map(Tunnel::new),
            due: [Some(Time::ZERO); 2],
            links: links.collect(),
            shared: scenario
                .paths
                .iter()
                .map(|path| path.bottleneck.map(|one| scenario.paths.len() + one))
                .collect(),
            ways,
            deadline: datagrams.deadline,
            end: begin.saturating_add(SPREAD).saturating_add(datagrams.duration).saturating_add(TAIL),
            bytes: (0, 0),
        };
        for (index, path) in scenario.paths.iter().enumerate() {
            if only.is_none_or(|only| only == index) {
                let largest = (path.mtu.min(LARGEST) - RESERVED) as usize;
                let settings = LinkSettings { largest, is_backup: path.backup, order: 0, most: None };
                for tunnel in &mut world.tunnels {
                    tunnel.set_link(0, index, settings);
                }
            }
        }
        world
    }

    /// Runs to the end.
    pub(super) fn finish(mut self) -> DatagramsResult {
        while let Some(at) = self.next().filter(|at| *at < self.end) {
            self.now = at;
            self.arrive();
            for place in 0..self.ways.len() {
                while self.ways[place].next().is_some_and(|at| at <= self.now) {
                    let mut out = Vec::new();
                    self.ways[place].step(self.now, &mut out);
                    self.put(self.ways[place].from, place, out);
                }
            }
            while let Some(side) = [Side::Client, Side::Server].into_iter().find(|side| self.is_due(*side)) {
                self.drive(side);
            }
        }
        let flows = self.ways.into_iter().map(|way| way.got(self.deadline)).collect();
        DatagramsResult { flows, bytes: self.bytes }
    }

    /// When something happens next.
    fn next(&self) -> Option<Time> {
        let links = self.links.iter().flatten().filter_map(Link::poll_timeout);
        let ways = self.ways.iter().filter_map(Way::next);
        links.chain(ways).chain(self.due.into_iter().flatten()).min()
    }

    fn is_due(&self, side: Side) -> bool {
        self.due[side as usize].is_some_and(|at| at <= self.now)
    }

    /// What arrives now: at a shared link, or at an end.
    fn arrive(&mut self) {
        for place in 0..self.links.len() {
            for from in [Side::Client, Side::Server] {
                while let Some(datagram) = self.links[place][from as usize].poll(self.now) {
                    if let Some(next) = self.second(datagram.path, from).filter(|_| !datagram.is_halfway) {
                        let datagram = Datagram { is_halfway: true, ..datagram };
                        self.links[next][from as usize].enqueue(self.now, datagram);
                        continue;
                    }
                    let side = from.other() as usize;
                    // A datagram that can't be read is dropped there.
                    let _ =
                        self.tunnels[side].on_datagram(self.now.as_nanos(), datagram.path, datagram.bytes);
                    self.due[side] = Some(self.now);
                }
            }
        }
    }

    /// The link that a datagram enters, and the one behind it: a path's own is next to the client.
    fn first(&self, path: usize, from: Side) -> usize {
        self.shared[path].filter(|_| from == Side::Server).unwrap_or(path)
    }

    fn second(&self, path: usize, from: Side) -> Option<usize> {
        self.shared[path].map(|shared| if from == Side::Server { path } else { shared })
    }

    /// Hands packets of one direction of a flow to the tunnel's end at `side`.
    fn put(&mut self, side: Side, way: usize, packets: Vec<Bytes>) {
        let summary = self.ways[way].summary(side);
        for packet in packets {
            self.bytes.0 += packet.len() as u64;
            self.tunnels[side as usize].on_packet(self.now.as_nanos(), packet, &summary);
            self.due[side as usize] = Some(self.now);
        }
    }

    /// Has an end do what it wants, and hands what it delivers to its host.
    fn drive(&mut self, side: Side) {
        let (now, at) = (self.now, side as usize);
        let nanos = now.as_nanos();
        self.tunnels[at].on_timeout(nanos);
        while let Some((path, bytes)) = self.tunnels[at].poll_transmit(nanos) {
            let datagram = Datagram { path, bytes, is_halfway: false };
            self.bytes.1 += u64::from(datagram.wire_len());
            let first = self.first(path, side);
            self.links[first][at].enqueue(now, datagram);
        }
        while let Some(packet) = self.tunnels[at].poll_deliver(nanos) {
            let Some(label) = Label::read(&packet) else { continue };
            let mut out = Vec::new();
            self.ways[label.way].on_packet(now, label, packet.len(), &mut out);
            self.put(side, label.way, out);
        }
        self.due[at] = self.tunnels[at].next_timeout(nanos).map(|due| now.max(Time::from_nanos(due)) + LATE);
    }
}
