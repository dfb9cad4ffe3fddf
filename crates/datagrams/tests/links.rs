//! Two ends of a tunnel over modelled links: what voice, video and a download get of it.

use std::collections::{BTreeMap, VecDeque};

use bytes::{BufMut, Bytes, BytesMut};
use ropewalk_datagrams::packet::inspect;
use ropewalk_datagrams::{Adaptive, LinkSettings, MILLISECOND, SECOND, Tunnel};

const MS: u64 = MILLISECOND;
/// UDP, IP and QUIC, bytes.
const OVERHEAD: usize = 60;

/// One direction of a link: a rate, a queue that drops at its tail, a delay, random loss, cuts.
#[derive(Clone, Debug)]
struct Way {
    rate: u64,
    delay: u64,
    /// Per million.
    loss: u64,
    /// Most that a datagram is late by.
    jitter: u64,
    last: u64,
    queue: u64,
    cuts: Vec<(u64, u64)>,
    free_at: u64,
    seed: u64,
    longest_queue: u64,
}

impl Way {
    fn new(mbit: u64, rtt_ms: u64, loss: u64, seed: u64) -> Way {
        let rate = mbit * 125_000;
        let queue = rate / 5;
        Way {
            rate,
            delay: rtt_ms * MS / 2,
            loss,
            jitter: 0,
            last: 0,
            queue,
            cuts: Vec::new(),
            free_at: 0,
            seed,
            longest_queue: 0,
        }
    }

    /// When a datagram arrives that is sent now.
    fn send(&mut self, now: u64, len: usize) -> Option<u64> {
        let start = self.free_at.max(now);
        self.longest_queue = self.longest_queue.max(start - now);
        if (start - now) * self.rate / SECOND > self.queue {
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

/// A packet of a flow: its port tells the flow, its data its number and when it was sent.
fn packet(port: u16, number: u64, now: u64, len: usize) -> Bytes {
    let mut data = BytesMut::new();
    data.put_u64(number);
    data.put_u64(now);
    // A long header of QUIC, for the download.
    if port == BULK {
        data.clear();
        data.put_slice(&[0xc0, 0, 0, 0, 1, 0, 0, 0]);
        data.put_u64(number);
        data.put_u64(now);
    } else {
        data.put_u64(0);
    }
    data.resize(len - 28, 0);
    let mut bytes = Vec::new();
    let builder = etherparse::PacketBuilder::ipv4([192, 0, 2, 1], [198, 51, 100, 2], 64).udp(port, 443);
    builder.write(&mut bytes, &data).unwrap();
    bytes.into()
}

/// What a flow has got.
#[derive(Debug, Default)]
struct Got {
    sent: u64,
    /// When each arrived, how long it took.
    times: BTreeMap<u64, (u64, u64)>,
}

impl Got {
    fn late(&self, limit: u64) -> u64 {
        self.sent - self.times.values().filter(|(_, took)| *took <= limit).count() as u64
    }

    fn percentile(&self, share: f64) -> u64 {
        let mut all: Vec<u64> = self.times.values().map(|(_, took)| *took).collect();
        all.sort_unstable();
        all[((all.len() - 1) as f64 * share) as usize]
    }

    fn longest_gap(&self) -> u64 {
        let mut at: Vec<u64> = self.times.values().map(|(at, _)| *at).collect();
        at.sort_unstable();
        at.windows(2).map(|two| two[1] - two[0]).max().unwrap_or(0)
    }
}

/// A download as QUIC does it: a window, loss by three packets that arrived later, CUBIC.
#[derive(Debug)]
struct Download {
    window: f64,
    threshold: f64,
    most: f64,
    epoch: u64,
    recovery_until: u64,
    next: u64,
    out: VecDeque<(u64, u64)>,
    acked: u64,
    times: Vec<u64>,
    losses: u64,
}

const SEGMENT: usize = 1280;

impl Download {
    fn new() -> Download {
        let out = VecDeque::new();
        Download {
            window: 10.0,
            threshold: f64::MAX,
            most: 0.0,
            epoch: 0,
            recovery_until: 0,
            next: 0,
            out,
            acked: 0,
            times: Vec::new(),
            losses: 0,
        }
    }

    fn on_ack(&mut self, now: u64, number: u64) {
        let Some(at) = self.out.iter().position(|(one, _)| *one == number) else { return };
        self.out.remove(at);
        self.acked += 1;
        self.times.push(now);
        if self.window < self.threshold {
            self.window += 1.0;
        } else {
            let t = (now - self.epoch) as f64 / 1e9;
            let k = libm_cbrt(self.most * 0.3 / 0.4);
            let target = 0.4 * (t - k) * (t - k) * (t - k) + self.most;
            let reno = 0.53 / self.window;
            self.window += ((target - self.window) / self.window).max(reno).min(0.5);
        }
        while self.out.front().is_some_and(|(one, _)| one + 3 <= number) {
            let (_, sent) = self.out.pop_front().unwrap();
            self.losses += 1;
            if sent >= self.recovery_until {
                self.most = self.window;
                self.window *= 0.7;
                self.threshold = self.window;
                self.epoch = now;
                self.recovery_until = now;
            }
        }
    }

    fn on_timeout(&mut self, now: u64) {
        if self.out.back().is_some_and(|(_, sent)| now > sent + 400 * MS) {
            self.out.clear();
            self.threshold = self.window / 2.0;
            self.window = 10.0;
        }
    }
}

fn libm_cbrt(x: f64) -> f64 {
    let mut guess = x.max(1e-9).sqrt();
    for _ in 0..50 {
        guess -= (guess * guess * guess - x) / (3.0 * guess * guess);
    }
    guess
}

const VOICE: u16 = 1;
const VIDEO: u16 = 2;
const BULK: u16 = 3;

#[derive(Debug)]
enum Event {
    Arrives { side: usize, link: usize, bytes: Bytes },
    Wake(usize),
    Voice(u64),
    Frame(u64),
    Bulk,
}

struct World {
    now: u64,
    tunnels: [Tunnel; 2],
    /// Of each link, from side 0 and from side 1.
    links: Vec<[Way; 2]>,
    events: BTreeMap<(u64, u64), Event>,
    count: u64,
    /// By port, at side 1.
    got: BTreeMap<u16, Got>,
    download: Option<Download>,
    unacknowledged: u64,
    until: u64,
}

impl World {
    fn new(links: Vec<Way>, until: u64) -> World {
        let tunnel = || Tunnel::new(Box::new(Adaptive));
        let links = links.into_iter().map(|way| [way.clone(), Way { seed: way.seed + 99, ..way }]).collect();
        let mut world = World {
            now: 0,
            tunnels: [tunnel(), tunnel()],
            links,
            events: BTreeMap::new(),
            count: 0,
            got: BTreeMap::new(),
            download: None,
            unacknowledged: 0,
            until,
        };
        for link in 0..world.links.len() {
            for side in 0..2 {
                world.tunnels[side].set_link(0, link, LinkSettings { largest: 1414, is_backup: false });
            }
        }
        world.at(0, Event::Wake(0));
        world.at(0, Event::Wake(1));
        world
    }

    fn at(&mut self, at: u64, event: Event) {
        self.count += 1;
        self.events.insert((at, self.count), event);
    }

    fn cut(&mut self, link: usize, from: u64, to: u64) {
        self.links[link].iter_mut().for_each(|way| way.cuts.push((from, to)));
    }

    fn send(&mut self, port: u16, number: u64, len: usize) {
        let packet = packet(port, number, self.now, len);
        let got = self.got.entry(port).or_default();
        got.sent += 1;
        self.put(0, packet);
    }

    fn put(&mut self, side: usize, packet: Bytes) {
        let summary = inspect(&packet).unwrap();
        self.tunnels[side].on_packet(self.now, packet, &summary);
        self.drive(side);
    }

    fn drive(&mut self, side: usize) {
        let now = self.now;
        self.tunnels[side].on_timeout(now);
        while let Some((link, bytes)) = self.tunnels[side].poll_transmit(now) {
            if let Some(at) = self.links[link][side].send(now, bytes.len()) {
                self.at(at, Event::Arrives { side: 1 - side, link, bytes });
            }
        }
        while let Some(packet) = self.tunnels[side].poll_deliver() {
            self.deliver(side, &packet);
        }
        if let Some(at) = self.tunnels[side].next_timeout(now) {
            // As timers of the operating system are.
            self.at(at.max(now) + MS / 2, Event::Wake(side));
        }
    }

    fn deliver(&mut self, side: usize, packet: &[u8]) {
        let port = inspect(packet).unwrap().flow.ports.unwrap().0;
        let at = if port == BULK { 36 } else { 28 };
        let number = u64::from_be_bytes(packet[at..at + 8].try_into().unwrap());
        let sent = u64::from_be_bytes(packet[at + 8..at + 16].try_into().unwrap());
        if side == 1 {
            let now = self.now;
            let is_new = self.got.get_mut(&port).unwrap().times.insert(number, (now, now - sent)).is_none();
            assert!(is_new, "{number} of {port} came twice");
            if port == BULK {
                // Each second one is acknowledged.
                self.unacknowledged += 1;
                if self.unacknowledged.is_multiple_of(2) {
                    self.put(1, self::packet(BULK, number, now, 80));
                }
            }
        } else if let Some(download) = &mut self.download {
            // As ranges of QUIC's acknowledgements say: all that had come when this one was sent.
            let (now, came) = (self.now, &self.got[&BULK].times);
            let has_come = |one: &&(u64, u64)| came.get(&one.0).is_some_and(|(at, _)| *at <= sent);
            let acked: Vec<u64> = download.out.iter().filter(has_come).map(|(one, _)| *one).collect();
            acked.into_iter().for_each(|one| download.on_ack(now, one));
            let _ = number;
            self.pump();
        }
    }

    fn pump(&mut self) {
        let now = self.now;
        while let Some(download) = &mut self.download
            && (download.out.len() as f64) < download.window
        {
            let number = download.next;
            download.next += 1;
            download.out.push_back((number, now));
            self.send(BULK, number, SEGMENT);
        }
    }

    fn run(&mut self) {
        let mut woken = [u64::MAX; 2];
        while let Some(((at, _), event)) = self.events.pop_first()
            && at < self.until
        {
            self.now = at;
            match event {
                Event::Wake(side) => {
                    if woken[side] != at {
                        woken[side] = at;
                        self.drive(side);
                    }
                }
                Event::Arrives { side, link, bytes } => {
                    self.tunnels[side].on_datagram(at, link, bytes).unwrap();
                    self.drive(side);
                }
                Event::Voice(number) => {
                    self.send(VOICE, number, 200);
                    self.at(at + 20 * MS, Event::Voice(number + 1));
                }
                Event::Frame(number) => {
                    for part in 0..9 {
                        self.send(VIDEO, number * 9 + part, 1186);
                    }
                    self.at(at + SECOND / 30, Event::Frame(number + 1));
                }
                Event::Bulk => {
                    if let Some(download) = &mut self.download {
                        download.on_timeout(at);
                    } else {
                        self.download = Some(Download::new());
                    }
                    self.pump();
                    if std::env::var_os("TRACE").is_some() {
                        let s = self.tunnels[0].link_stats();
                        let (w, rtt) = (
                            self.download.as_ref().unwrap().window,
                            self.got[&BULK].times.values().next_back(),
                        );
                        println!(
                            "{} waiting {} window {w:.0} took {:?} {}",
                            at / MS,
                            self.tunnels[0].waiting(),
                            rtt.map(|r| r.1 / MS),
                            s.iter()
                                .map(|l| format!(
                                    "[{} kB/s q {} us inflight {} lost {}]",
                                    l.rate / 1000,
                                    l.queue / 1000,
                                    l.in_flight,
                                    l.sent.2
                                ))
                                .collect::<String>()
                        );
                    }
                    self.at(at + 50 * MS, Event::Bulk);
                }
            }
        }
    }

    fn mbit(&self, from: u64) -> f64 {
        let times = &self.download.as_ref().unwrap().times;
        let count = times.iter().filter(|at| **at >= from).count();
        (count * SEGMENT) as f64 * 8e-6 / ((self.until - from) as f64 / 1e9)
    }

    fn report(&self) {
        for (port, got) in &self.got {
            let ms = |ns: u64| ns as f64 / 1e6;
            let missing = got.sent - got.times.len() as u64;
            println!(
                "{port}: {} sent, {missing} missing, {} late, p50 {:.1} p99 {:.1} gap {:.1} ms",
                got.sent,
                got.late(150 * MS),
                ms(got.percentile(0.5)),
                ms(got.percentile(0.99)),
                ms(got.longest_gap())
            );
        }
        for side in 0..2 {
            println!("{side}: {:?}", self.tunnels[side].stats());
            for link in self.tunnels[side].link_stats() {
                println!("   {link:?}");
            }
        }
        for (link, ways) in self.links.iter().enumerate() {
            println!("link {link}: longest queue {:.1} ms", ways[0].longest_queue as f64 / 1e6);
        }
        if let Some(download) = &self.download {
            println!(
                "download: {:.1} Mbit/s of all, {} losses, window {:.0}",
                self.mbit(0),
                download.losses,
                download.window
            );
        }
    }
}

/// The links of the benchmark: 40 Mbit/s, 45 ms, 0.5 % lost; 60 Mbit/s, 50 ms.
fn links(seed: u64) -> Vec<Way> {
    vec![Way::new(40, 45, 5_000, seed), Way::new(60, 50, 0, seed + 1)]
}

#[test]
fn a_call_doesnt_hear_a_cut() {
    for seed in 0..5 {
        let mut world = World::new(links(seed), 20 * SECOND);
        world.cut(0, 6 * SECOND, 9 * SECOND);
        world.at(SECOND, Event::Voice(0));
        world.run();
        let got = &world.got[&VOICE];
        // The last two are still under way when the run ends.
        let lost = got.late(150 * MS).saturating_sub(2);
        assert!(lost == 0 && got.longest_gap() <= 40 * MS && got.percentile(0.99) < 28 * MS, "{:?}", {
            world.report();
            seed
        });
    }
}

#[test]
fn video_goes_on_after_a_cut() {
    for seed in 0..5 {
        let mut world = World::new(links(seed), 20 * SECOND);
        world.cut(0, 6 * SECOND, 9 * SECOND);
        world.at(SECOND, Event::Frame(0));
        world.run();
        let got = &world.got[&VIDEO];
        let lost = got.sent - got.times.len() as u64;
        assert!(lost <= 18 && got.longest_gap() <= 100 * MS, "{:?}", {
            world.report();
            seed
        });
    }
}

#[test]
fn a_download_uses_both_links_and_a_call_beside_it_is_heard() {
    for seed in 0..2 {
        let mut world = World::new(links(seed), 6 * SECOND);
        world.at(500 * MS, Event::Voice(0));
        world.at(SECOND, Event::Bulk);
        world.run();
        world.report();
        let voice = &world.got[&VOICE];
        assert!(world.mbit(3 * SECOND) > 60.0);
        assert!(voice.late(150 * MS) <= 2 && voice.percentile(0.98) < 45 * MS);
    }
}

#[test]
fn a_download_is_never_slower_than_by_the_better_link() {
    for (one, other) in [
        (Way::new(50, 20, 0, 1), Way::new(5, 80, 0, 2)),
        (Way::new(40, 30, 20_000, 3), Way::new(40, 120, 0, 4)),
    ] {
        let run = |links: Vec<Way>| {
            let mut world = World::new(links, 8 * SECOND);
            world.at(SECOND, Event::Bulk);
            world.run();
            world.report();
            world.mbit(2 * SECOND)
        };
        let (single, both) = (run(vec![one.clone()]).max(run(vec![other.clone()])), run(vec![one, other]));
        assert!(both > 0.95 * single, "{both:.1} by both, {single:.1} by one");
    }
}

#[test]
fn a_download_goes_on_after_a_cut() {
    let mut world = World::new(links(1), 8 * SECOND);
    world.cut(0, 3 * SECOND, 6 * SECOND);
    world.at(SECOND, Event::Bulk);
    world.run();
    world.report();
    let times: Vec<u64> = world.got[&BULK].times.values().map(|(at, _)| *at).collect();
    let gap = {
        let mut t = times;
        t.sort_unstable();
        t.windows(2).map(|two| two[1] - two[0]).max().unwrap()
    };
    assert!(gap <= 200 * MS && world.mbit(SECOND) > 45.0, "{} ms", gap / MS);
}

#[test]
fn jitter_is_no_queue() {
    let link = Way { jitter: 15 * MS, ..Way::new(40, 40, 0, 5) };
    let mut world = World::new(vec![link], 8 * SECOND);
    world.at(SECOND, Event::Bulk);
    world.run();
    world.report();
    assert!(world.mbit(2 * SECOND) > 30.0, "{:.1} Mbit/s", world.mbit(2 * SECOND));
}
