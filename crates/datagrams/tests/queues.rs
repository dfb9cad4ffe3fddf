//! What the tunnel lets wait on its links, and whether a link that only queues seems silent.

mod model;

use bytes::Bytes;
use model::{Happened, MS, Way, Wire};
use ropewalk_datagrams::SECOND;

/// A packet of a port, with so many bytes.
fn packet(side: usize, port: u16, len: usize) -> Bytes {
    let (from, to) = [([192, 0, 2, 1], [198, 51, 100, 2]), ([198, 51, 100, 2], [192, 0, 2, 1])][side];
    let mut bytes = Vec::new();
    let builder = etherparse::PacketBuilder::ipv4(from, to, 64).udp(port, 443);
    builder.write(&mut bytes, &vec![0; len - 28]).unwrap();
    bytes.into()
}

/// What a side sends: so many packets of a length at once, every so often, from then on.
#[derive(Clone, Copy, Debug)]
struct Load {
    side: usize,
    port: u16,
    count: usize,
    len: usize,
    every: u64,
    from: u64,
}

const fn voice(side: usize) -> Load {
    Load { side, port: 1, count: 1, len: 200, every: 20 * MS, from: SECOND }
}

/// 2.5 Mbit/s at 30 frames a second.
const fn video(side: usize) -> Load {
    Load { side, port: 2, count: 9, len: 1186, every: SECOND / 30, from: SECOND }
}

/// More than the link takes.
const fn bulk(side: usize, mbit: u64) -> Load {
    let every = 1280 * 8 * 1000 / mbit * 2 / 3;
    Load { side, port: 3, count: 1, len: 1280, every, from: 2 * SECOND }
}

/// A link of a rate there and another one back, Mbit/s, and a round-trip time, ms.
fn wire((there, back): (u64, u64), rtt: u64) -> Wire<usize> {
    let mut wire = Wire::new(vec![Way::new(there, rtt, 0, 1)]);
    wire.links[0][1] = Way::new(back, rtt, 0, 2);
    wire
}

fn run(wire: &mut Wire<usize>, loads: &[Load], until: u64) {
    loads.iter().enumerate().for_each(|(at, load)| wire.at(load.from, at));
    while let Some(happened) = wire.next(until) {
        if let Happened::Timer(at) = happened {
            let load = loads[at];
            if let Some((side, from, to)) = wire.stall
                && load.side == side
                && (from..to).contains(&wire.now)
            {
                wire.at(to + MS, at);
                continue;
            }
            (0..load.count).for_each(|_| wire.put(load.side, packet(load.side, load.port, load.len)));
            wire.at(wire.now + load.every, at);
        }
    }
}

/// Rates there and back, Mbit/s, and round-trip times, ms.
const RATES: [(u64, u64); 9] =
    [(1, 1), (2, 2), (5, 5), (10, 10), (40, 40), (100, 100), (50, 5), (40, 2), (10, 1)];
const RTTS: [u64; 3] = [10, 45, 150];

fn loads(rates: (u64, u64)) -> [(&'static str, Vec<Load>); 5] {
    let (there, back) = (bulk(0, rates.0), bulk(1, rates.1));
    let call = vec![voice(0), voice(1)];
    [
        ("voice", call.clone()),
        ("voice and video", [call.clone(), vec![video(0)]].concat()),
        ("voice and a download", [call.clone(), vec![there]].concat()),
        ("voice, a download and an upload", [call, vec![there, back]].concat()),
        ("video and an upload", vec![video(0), back]),
    ]
}

#[test]
fn a_link_that_only_queues_is_never_silent() {
    for rates in RATES {
        for rtt in RTTS {
            for (name, loads) in loads(rates) {
                let mut wire = wire(rates, rtt);
                run(&mut wire, &loads, 5 * SECOND);
                assert!(wire.silences.is_empty(), "{rates:?} Mbit/s, {rtt} ms, {name}: {:?}", wire.silences);
            }
        }
    }
}

/// How long a side's datagrams queued on the link, in milliseconds, without the first 4 s: the median and the
/// 99th percentile.
fn waited(wire: &Wire<usize>, side: usize) -> [f64; 2] {
    let waits = wire.links[0][side].waits.iter().filter(|(at, _)| *at >= 4 * SECOND);
    let mut waits: Vec<u64> = waits.map(|(_, wait)| *wait).collect();
    waits.sort_unstable();
    [50, 99].map(|share| waits[(waits.len() - 1) * share / 100] as f64 / 1e6)
}

#[test]
fn a_download_waits_in_front_of_the_link_and_not_on_it() {
    for rates in RATES {
        for rtt in RTTS {
            for (name, loads) in &loads(rates)[2..4] {
                let mut wire = wire(rates, rtt);
                run(&mut wire, loads, 8 * SECOND);
                let [median, p99] = waited(&wire, 0);
                println!("{rates:?} Mbit/s, {rtt} ms, {name}: {median:.1} and {p99:.1} ms");
                let is_asked = rates.0 >= 5 && rtt < 150 && name.ends_with("a download");
                assert!(p99 <= 20.0 || !is_asked, "{rates:?} Mbit/s, {rtt} ms, {name}: {p99:.1} ms");
            }
        }
    }
}

#[test]
fn a_cut_is_noticed_within_a_round_trip_and_a_little() {
    for rates in [(5, 5), (40, 40), (50, 5)] {
        for rtt in RTTS {
            for (name, loads) in &loads(rates)[..3] {
                for cut in (0..4).map(|at| 4 * SECOND + at * 7 * MS) {
                    let mut wire = wire(rates, rtt);
                    wire.cut(0, cut, 8 * SECOND);
                    run(&mut wire, loads, 5 * SECOND);
                    for side in 0..2 {
                        let noticed = wire.silences.iter().find(|(at, own, _)| *own == side && *at > cut);
                        let took = noticed.map_or(u64::MAX, |(at, ..)| (at - cut) / MS);
                        // A packet or probe is sent every 10 ms at least.
                        let most = rtt + if *name == "voice" { 32 } else { 60 };
                        assert!(took <= most, "{rates:?} Mbit/s, {rtt} ms, {name}: {took} ms");
                    }
                }
            }
        }
    }
}

/// The process doesn't run for a moment. Its timers are late then, and what has come meanwhile isn't read
/// yet.
#[test]
fn a_late_timer_makes_no_link_silent() {
    for late in (5..=60).step_by(5) {
        let mut wire = wire((40, 40), 45);
        wire.stall = Some((0, 3 * SECOND, 3 * SECOND + late * MS));
        run(&mut wire, &[voice(0), video(0)], 4 * SECOND);
        assert!(wire.silences.iter().all(|(_, side, _)| *side == 1), "{late} ms: {:?}", wire.silences);
    }
}

#[test]
fn what_was_on_a_link_that_is_removed_goes_over_the_other() {
    let mut wire: Wire<()> = Wire::new(vec![Way::new(40, 20, 0, 1), Way::new(40, 30, 0, 2)]);
    while wire.next(SECOND).is_some() {}
    wire.cut(0, SECOND, 8 * SECOND);
    (0..9).for_each(|_| wire.put(0, packet(0, 2, 1186)));
    wire.now += 5 * MS;
    wire.tunnels[0].remove_link(wire.now, 0);
    wire.drive(0);
    while wire.next(2 * SECOND).is_some() {}
    assert_eq!(wire.tunnels[1].stats().delivered, 9);
}
