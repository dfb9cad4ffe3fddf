//! Two ends of a tunnel over modelled links.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use ropewalk_datagrams::packet::inspect;
use ropewalk_datagrams::{Adaptive, LinkSettings, MILLISECOND, SECOND, Tunnel};

pub const MS: u64 = MILLISECOND;
/// UDP, IP and QUIC, bytes.
const OVERHEAD: usize = 60;
/// What timers of the operating system are late by.
const LATE: u64 = MS / 2;

/// One direction of a link: a rate, a queue that drops at its tail, a delay, random loss, cuts.
#[derive(Clone, Debug)]
pub struct Way {
    rate: u64,
    delay: u64,
    /// Per million.
    loss: u64,
    /// Most that a datagram is late by.
    jitter: u64,
    /// Larger datagrams are lost.
    largest: usize,
    last: u64,
    queue: u64,
    cuts: Vec<(u64, u64)>,
    free_at: u64,
    seed: u64,
    pub longest_queue: u64,
    /// How long each datagram waited for those before it, and when.
    #[allow(dead_code, reason = "not every test asks")]
    pub waits: Vec<(u64, u64)>,
}

impl Way {
    pub fn new(mbit: u64, rtt_ms: u64, loss: u64, seed: u64) -> Way {
        let rate = mbit * 125_000;
        let queue = rate / 5;
        Way {
            rate,
            delay: rtt_ms * MS / 2,
            loss,
            jitter: 0,
            largest: usize::MAX,
            last: 0,
            queue,
            cuts: Vec::new(),
            free_at: 0,
            seed,
            longest_queue: 0,
            waits: Vec::new(),
        }
    }

    #[allow(dead_code, reason = "not every test has links of this kind")]
    pub fn jitter(self, jitter: u64) -> Way {
        Way { jitter, ..self }
    }

    #[allow(dead_code, reason = "not every test has links of this kind")]
    pub fn largest(self, largest: usize) -> Way {
        Way { largest, ..self }
    }

    /// When a datagram arrives that is sent now.
    fn send(&mut self, now: u64, len: usize) -> Option<u64> {
        let start = self.free_at.max(now);
        self.longest_queue = self.longest_queue.max(start - now);
        self.waits.push((now, start - now));
        if (start - now) * self.rate / SECOND > self.queue || len > self.largest {
            return None;
        }
        self.free_at = start + (len + OVERHEAD) as u64 * SECOND / self.rate;
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let is_cut = self.cuts.iter().any(|(from, to)| (*from..*to).contains(&now));
        let is_lost = (self.seed >> 33) % 1_000_000 < self.loss;
        let late = (self.seed >> 20) % (self.jitter + 1);
        // Nothing overtakes, as in radio links that repeat what is lost.
        self.last = self.last.max(self.free_at + self.delay + late);
        (!is_cut && !is_lost).then_some(self.last)
    }
}

#[derive(Debug)]
enum Event<T> {
    Arrives { side: usize, link: usize, bytes: Bytes },
    Wake(usize),
    Timer(T),
}

/// What happens to the hosts beside the two ends.
#[derive(Debug)]
pub enum Happened<T> {
    /// A packet leaves the tunnel at this side.
    #[allow(dead_code, reason = "not every test looks at packets")]
    Packet(usize, Bytes),
    /// A time that was asked for.
    Timer(T),
}

/// The two ends, and the links between them; `T` are the hosts' timers.
#[derive(Debug)]
pub struct Wire<T> {
    pub now: u64,
    pub tunnels: [Tunnel; 2],
    /// Of each link, from side 0 and from side 1.
    pub links: Vec<[Way; 2]>,
    events: BTreeMap<(u64, u64), Event<T>>,
    count: u64,
    wakes: [u64; 2],
    delivered: VecDeque<(usize, Bytes)>,
    /// When a side found a link silent that had been heard: the side and the link.
    #[allow(dead_code, reason = "not every test asks")]
    pub silences: Vec<(u64, usize, usize)>,
    heard: Vec<[bool; 2]>,
    /// A side doesn't run for so long: what comes meanwhile is handed to it a little later than its timers.
    pub stall: Option<(usize, u64, u64)>,
}

impl<T> Wire<T> {
    pub fn new(links: Vec<Way>) -> Wire<T> {
        let tunnel = || Tunnel::new(Box::new(Adaptive));
        let links = links.into_iter().map(|way| [way.clone(), Way { seed: way.seed + 99, ..way }]).collect();
        let mut wire = Wire {
            now: 0,
            tunnels: [tunnel(), tunnel()],
            links,
            events: BTreeMap::new(),
            count: 0,
            wakes: [u64::MAX; 2],
            delivered: VecDeque::new(),
            silences: Vec::new(),
            heard: Vec::new(),
            stall: None,
        };
        wire.heard = vec![[false; 2]; wire.links.len()];
        for link in 0..wire.links.len() {
            for side in 0..2 {
                wire.tunnels[side].set_link(
                    0,
                    link,
                    LinkSettings { largest: 1414, is_backup: false, order: 0, most: None },
                );
            }
        }
        wire.drive(0);
        wire.drive(1);
        wire
    }

    fn event(&mut self, at: u64, event: Event<T>) {
        self.count += 1;
        self.events.insert((at, self.count), event);
    }

    /// Asks to be told of a time.
    pub fn at(&mut self, at: u64, timer: T) {
        self.event(at, Event::Timer(timer));
    }

    #[allow(dead_code, reason = "not every test cuts a link")]
    pub fn cut(&mut self, link: usize, from: u64, to: u64) {
        self.links[link].iter_mut().for_each(|way| way.cuts.push((from, to)));
    }

    /// A packet that enters the tunnel at this side.
    #[allow(dead_code, reason = "not every test sends where no rule holds")]
    pub fn put(&mut self, side: usize, packet: Bytes) {
        let summary = inspect(&packet).unwrap();
        self.tunnels[side].on_packet(self.now, packet, &summary);
        self.drive(side);
    }

    /// Carries out what a side wants.
    pub fn drive(&mut self, side: usize) {
        let now = self.now;
        self.tunnels[side].on_timeout(now);
        for one in self.tunnels[side].link_stats() {
            let heard = &mut self.heard[one.link][side];
            if *heard && one.is_silent {
                self.silences.push((now, side, one.link));
            }
            *heard = !one.is_silent;
        }
        while let Some((link, bytes)) = self.tunnels[side].poll_transmit(now) {
            if let Some(at) = self.links[link][side].send(now, bytes.len()) {
                self.event(at, Event::Arrives { side: 1 - side, link, bytes });
            }
        }
        while let Some(packet) = self.tunnels[side].poll_deliver(now) {
            self.delivered.push_back((side, packet));
        }
        if let Some(at) = self.tunnels[side].next_timeout(now) {
            let at = at.max(now) + LATE;
            if at < self.wakes[side] {
                self.wakes[side] = at;
                self.event(at, Event::Wake(side));
            }
        }
    }

    /// What happens next, until then.
    pub fn next(&mut self, until: u64) -> Option<Happened<T>> {
        loop {
            if let Some((side, packet)) = self.delivered.pop_front() {
                return Some(Happened::Packet(side, packet));
            }
            let ((at, _), event) = self.events.pop_first()?;
            if at >= until {
                return None;
            }
            self.now = at;
            let stalled =
                |own: usize| self.stall.filter(|(side, from, to)| *side == own && (*from..*to).contains(&at));
            match event {
                Event::Wake(side) if let Some((.., to)) = stalled(side) => {
                    if self.wakes[side] == at {
                        self.wakes[side] = to;
                        self.event(to, event);
                    }
                }
                Event::Arrives { side, .. } if let Some((.., to)) = stalled(side) => {
                    self.event(to + MS, event)
                }
                // One that is late was replaced by an earlier one.
                Event::Wake(side) if self.wakes[side] != at => {}
                Event::Wake(side) => {
                    self.wakes[side] = u64::MAX;
                    self.drive(side);
                }
                Event::Arrives { side, link, bytes } => {
                    self.tunnels[side].on_datagram(at, link, bytes).unwrap();
                    self.drive(side);
                }
                Event::Timer(timer) => return Some(Happened::Timer(timer)),
            }
        }
    }
}
