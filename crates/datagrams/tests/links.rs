//! Two ends of a tunnel over modelled links: what voice, video and a download get of it.

mod model;

use std::collections::{BTreeMap, VecDeque};

use bytes::{BufMut, Bytes, BytesMut};
use model::{Happened, MS, Way, Wire};
use ropewalk_datagrams::packet::inspect;
use ropewalk_datagrams::{Adaptive, LinkSettings, LinkUse, SECOND, Tunnel};

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
enum Timer {
    Voice(u64),
    Frame(u64),
    Bulk,
}

struct World {
    wire: Wire<Timer>,
    /// By port, at side 1.
    got: BTreeMap<u16, Got>,
    download: Option<Download>,
    unacknowledged: u64,
    until: u64,
}

impl World {
    fn new(links: Vec<Way>, until: u64) -> World {
        World { wire: Wire::new(links), got: BTreeMap::new(), download: None, unacknowledged: 0, until }
    }

    fn send(&mut self, port: u16, number: u64, len: usize) {
        let packet = packet(port, number, self.wire.now, len);
        let got = self.got.entry(port).or_default();
        got.sent += 1;
        self.wire.put(0, packet);
    }

    fn deliver(&mut self, side: usize, packet: &[u8]) {
        let port = inspect(packet).unwrap().flow.ports.unwrap().0;
        let at = if port == BULK { 36 } else { 28 };
        let number = u64::from_be_bytes(packet[at..at + 8].try_into().unwrap());
        let sent = u64::from_be_bytes(packet[at + 8..at + 16].try_into().unwrap());
        if side == 1 {
            let now = self.wire.now;
            let is_new = self.got.get_mut(&port).unwrap().times.insert(number, (now, now - sent)).is_none();
            assert!(is_new, "{number} of {port} came twice");
            if port == BULK {
                // Each second one is acknowledged.
                self.unacknowledged += 1;
                if self.unacknowledged.is_multiple_of(2) {
                    self.wire.put(1, self::packet(BULK, number, now, 80));
                }
            }
        } else if let Some(download) = &mut self.download {
            // As ranges of QUIC's acknowledgements say: all that had come when this one was sent.
            let (now, came) = (self.wire.now, &self.got[&BULK].times);
            let has_come = |one: &&(u64, u64)| came.get(&one.0).is_some_and(|(at, _)| *at <= sent);
            let acked: Vec<u64> = download.out.iter().filter(has_come).map(|(one, _)| *one).collect();
            acked.into_iter().for_each(|one| download.on_ack(now, one));
            self.pump();
        }
    }

    fn pump(&mut self) {
        let now = self.wire.now;
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
        while let Some(happened) = self.wire.next(self.until) {
            let at = self.wire.now;
            match happened {
                Happened::Packet(side, packet) => self.deliver(side, &packet),
                Happened::Timer(Timer::Voice(number)) => {
                    self.send(VOICE, number, 200);
                    self.wire.at(at + 20 * MS, Timer::Voice(number + 1));
                }
                Happened::Timer(Timer::Frame(number)) => {
                    for part in 0..9 {
                        self.send(VIDEO, number * 9 + part, 1186);
                    }
                    self.wire.at(at + SECOND / 30, Timer::Frame(number + 1));
                }
                Happened::Timer(Timer::Bulk) => {
                    self.download.get_or_insert_with(Download::new).on_timeout(at);
                    self.pump();
                    self.wire.at(at + 50 * MS, Timer::Bulk);
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
            println!("{side}: {:?}", self.wire.tunnels[side].stats());
            for link in self.wire.tunnels[side].link_stats() {
                println!("   {link:?}");
            }
        }
        for (link, ways) in self.wire.links.iter().enumerate() {
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
        world.wire.cut(0, 6 * SECOND, 9 * SECOND);
        world.wire.at(SECOND, Timer::Voice(0));
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
        world.wire.cut(0, 6 * SECOND, 9 * SECOND);
        world.wire.at(SECOND, Timer::Frame(0));
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
        world.wire.at(500 * MS, Timer::Voice(0));
        world.wire.at(SECOND, Timer::Bulk);
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
            world.wire.at(SECOND, Timer::Bulk);
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
    world.wire.cut(0, 3 * SECOND, 6 * SECOND);
    world.wire.at(SECOND, Timer::Bulk);
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
    let link = Way::new(40, 40, 0, 5).jitter(15 * MS);
    let mut world = World::new(vec![link], 8 * SECOND);
    world.wire.at(SECOND, Timer::Bulk);
    world.run();
    world.report();
    assert!(world.mbit(2 * SECOND) > 30.0, "{:.1} Mbit/s", world.mbit(2 * SECOND));
}

/// The number of datagrams that each link has carried from a side by now.
fn carried(wire: &Wire<Timer>, side: usize) -> [u64; 2] {
    let stats = wire.tunnels[side].link_stats();
    [0, 1].map(|link| stats[link].sent.0)
}

/// Side 0 sends packets at intervals of `every`. Side 1 answers each with a packet of the same size from the
/// same port. Returns the delay of each packet that arrived at side 1, by port.
fn exchange(
    wire: &mut Wire<Timer>,
    flows: &[(usize, u16, usize, u64)],
    time: u64,
) -> BTreeMap<u16, Vec<u64>> {
    let (start, until) = (wire.now, wire.now + time);
    // Those of an earlier call may be left.
    let timer = |at: u64| Timer::Frame(start * 16 + at);
    let mut took: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
    for (at, _) in flows.iter().enumerate() {
        wire.at(start, timer(at as u64));
    }
    while let Some(happened) = wire.next(until) {
        match happened {
            Happened::Timer(Timer::Frame(id)) if id / 16 == start => {
                let (lane, port, len, every) = flows[(id % 16) as usize];
                let packet = packet(port, 0, wire.now, len);
                let summary = inspect(&packet).unwrap();
                wire.tunnels[0].on_packet_in(lane, wire.now, packet, &summary);
                wire.drive(0);
                wire.at(wire.now + every, Timer::Frame(id));
            }
            Happened::Packet(1, got) => {
                let summary = inspect(&got).unwrap();
                let (port, sent) =
                    (summary.flow.ports.unwrap().0, u64::from_be_bytes(got[36..44].try_into().unwrap()));
                took.entry(port).or_default().push(wire.now - sent);
                let mut bytes = Vec::new();
                let builder = etherparse::PacketBuilder::ipv4([198, 51, 100, 2], [192, 0, 2, 1], 64);
                builder.udp(443, port).write(&mut bytes, &got[28..]).unwrap();
                wire.put(1, bytes.into());
            }
            _ => {}
        }
    }
    took
}

/// How lane 1 of both ends uses the links.
fn set_lane(wire: &mut Wire<Timer>, how: [LinkUse; 2]) {
    for tunnel in &mut wire.tunnels {
        let uses = how.into_iter().enumerate();
        uses.for_each(|(link, how)| tunnel.set_uses(link, [LinkUse::default(), how].into_iter()));
    }
}

/// Two ends with a lane 1 that uses the links so.
fn with_lane(links: Vec<Way>, how: [LinkUse; 2]) -> Wire<Timer> {
    let mut wire = Wire::new(links);
    wire.tunnels.iter_mut().for_each(|tunnel| tunnel.set_scheduler(1, Box::new(Adaptive)));
    set_lane(&mut wire, how);
    exchange(&mut wire, &[], 500 * MS);
    wire
}

#[test]
fn packets_of_a_rule_use_its_links_and_so_do_answers() {
    let shut = LinkUse { is_shut: true, ..LinkUse::default() };
    let links = || vec![Way::new(40, 20, 0, 1), Way::new(40, 30, 0, 2)];
    // Video, 4 Mbit/s. Where no rule holds it takes the nearer link.
    for (lane, expected) in [(0, 0), (1, 1)] {
        let mut wire = with_lane(links(), [shut, LinkUse::default()]);
        let before = [0, 1].map(|side| carried(&wire, side));
        let took = exchange(&mut wire, &[(lane, 7, 1000, 2 * MS)], 2 * SECOND);
        assert!(took[&7].len() > 950, "{}", took[&7].len());
        for (side, before) in before.iter().enumerate() {
            let now = carried(&wire, side);
            let [own, other] = [expected, 1 - expected].map(|link| now[link] - before[link]);
            // The other one's are feedback and probes.
            assert!(own > 950 && other < 500, "lane {lane}, side {side}: {own} and {other}");
        }
    }
}

#[test]
fn packets_of_a_rule_that_wait_hold_up_no_others() {
    let shut = LinkUse { is_shut: true, ..LinkUse::default() };
    let mut wire = with_lane(vec![Way::new(40, 20, 0, 1), Way::new(2, 30, 0, 2)], [shut, LinkUse::default()]);
    // 8 Mbit/s for a link of 2, and as much for which no rule holds.
    let flows = [(1, 7, 1000, MS), (0, 8, 1000, MS)];
    let took = exchange(&mut wire, &flows, 3 * SECOND);
    let late = took[&8].iter().filter(|took| **took > 60 * MS).count();
    assert!(took[&8].len() > 2900 && late < 30, "{} of {}", late, took[&8].len());
    assert!((300..900).contains(&took[&7].len()), "{}", took[&7].len());
}

#[test]
fn flows_stay_on_the_link_that_they_began_on() {
    let keeps = LinkUse { keeps: true, ..LinkUse::default() };
    let backup = LinkUse { is_backup: true, ..keeps };
    let mut wire = with_lane(vec![Way::new(40, 20, 0, 1), Way::new(40, 30, 0, 2)], [backup, keeps]);
    exchange(&mut wire, &[(1, 7, 1000, 4 * MS)], SECOND);
    // New flows have the other one's turn.
    set_lane(&mut wire, [keeps, backup]);
    let before = [0, 1].map(|side| carried(&wire, side));
    let took = exchange(&mut wire, &[(1, 7, 1000, 4 * MS), (1, 8, 1000, 20 * MS)], 2 * SECOND);
    assert!(took[&7].len() > 480 && took[&8].len() > 95);
    for (side, before) in before.iter().enumerate() {
        let now = carried(&wire, side);
        let [one, other] = [0, 1].map(|link| now[link] - before[link]);
        assert!(other > 480, "side {side}: {one} and {other}");
    }
    // While it is silent they take another, and then come back, answers too.
    let end = wire.now + 500 * MS;
    wire.cut(1, wire.now, end);
    let took = exchange(&mut wire, &[(1, 7, 1000, 4 * MS)], SECOND);
    assert!(took[&7].len() > 240, "{}", took[&7].len());
    let before = [0, 1].map(|side| carried(&wire, side));
    exchange(&mut wire, &[(1, 7, 1000, 4 * MS)], SECOND);
    for (side, before) in before.iter().enumerate() {
        let now = carried(&wire, side);
        let [one, other] = [0, 1].map(|link| now[link] - before[link]);
        assert!(other > 240 && one < 200, "side {side}: {one} and {other}");
    }
}

#[test]
fn a_far_end_that_was_restarted_is_heard_at_once() {
    let mut wire = with_lane(vec![Way::new(40, 20, 0, 1), Way::new(40, 30, 0, 2)], Default::default());
    let flow = [(0, 7, 1000, 2 * MS)];
    exchange(&mut wire, &flow, 2 * SECOND);
    // Its numbers begin anew.
    wire.tunnels[0] = Tunnel::new(Box::new(Adaptive));
    wire.tunnels[1].meet_far_end();
    let settings = LinkSettings { largest: 1414, is_backup: false, order: 0, most: None };
    for (side, link) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        wire.tunnels[side].set_link(wire.now, link, settings);
    }
    let took = exchange(&mut wire, &flow, SECOND);
    assert!(took[&7].len() > 480, "{}", took[&7].len());
    assert_eq!(wire.tunnels[1].stats().repeated, 0);
}

#[test]
fn flows_that_keep_to_a_slow_link_hold_up_none_on_another() {
    let keeps = LinkUse { keeps: true, ..LinkUse::default() };
    let backup = LinkUse { is_backup: true, ..keeps };
    let mut wire = with_lane(vec![Way::new(40, 20, 0, 1), Way::new(2, 30, 0, 2)], [backup, keeps]);
    exchange(&mut wire, &[(1, 7, 1000, 40 * MS)], SECOND);
    set_lane(&mut wire, [keeps, backup]);
    exchange(&mut wire, &[(1, 8, 1000, 40 * MS)], SECOND);
    // 8 Mbit/s for the link of 2, and as much for the other.
    let took = exchange(&mut wire, &[(1, 7, 1000, MS), (1, 8, 1000, MS)], 3 * SECOND);
    let late = took[&8].iter().filter(|took| **took > 60 * MS).count();
    assert!(took[&8].len() > 2900 && late < 30, "{} of {}", late, took[&8].len());
    assert!((300..900).contains(&took[&7].len()), "{}", took[&7].len());
}
