//! What links that stand by send and receive while others carry, and how fast they take over.

mod model;

use bytes::Bytes;
use model::{Happened, MS, Way, Wire};
use ropewalk_datagrams::packet::inspect;
use ropewalk_datagrams::{Adaptive, LinkSettings, LinkUse, SECOND};

fn packet(port: u16, len: usize) -> Bytes {
    let mut bytes = Vec::new();
    let builder = etherparse::PacketBuilder::ipv4([192, 0, 2, 1], [198, 51, 100, 2], 64).udp(port, 443);
    builder.write(&mut bytes, &vec![0; len - 28]).unwrap();
    bytes.into()
}

/// A link of 45 ms that carries, and one of 50 ms.
fn wire() -> Wire<usize> {
    Wire::new(vec![Way::new(40, 45, 0, 1), Way::new(40, 50, 0, 2)])
}

fn let_stand_by(wire: &mut Wire<usize>, is_backup: bool, order: u8) {
    let settings = LinkSettings { largest: 1414, is_backup, order, most: None };
    wire.tunnels.iter_mut().for_each(|tunnel| tunnel.set_link(0, 1, settings));
}

/// Runs until then while side 0 sends voice in these lanes. Returns how many packets arrived.
fn call(wire: &mut Wire<usize>, lanes: &[usize], until: u64) -> usize {
    lanes.iter().for_each(|lane| wire.at(wire.now, *lane));
    let mut arrived = 0;
    while let Some(happened) = wire.next(until) {
        match happened {
            Happened::Timer(lane) => {
                let packet = packet(lane as u16, 200);
                let summary = inspect(&packet).unwrap();
                wire.tunnels[0].on_packet_in(lane, wire.now, packet, &summary);
                wire.drive(0);
                if wire.now + 20 * MS < until {
                    wire.at(wire.now + 20 * MS, lane);
                }
            }
            Happened::Packet(..) => arrived += 1,
        }
    }
    arrived
}

/// Datagrams that a side has sent over a link.
fn sent(wire: &Wire<usize>, side: usize, link: usize) -> u64 {
    wire.tunnels[side].link_stats()[link].sent.0
}

#[test]
fn a_link_that_stands_by_is_probed_every_15_s_while_another_carries() {
    for (is_backup, order) in [(true, 0), (false, 1)] {
        let mut wire = wire();
        let_stand_by(&mut wire, is_backup, order);
        call(&mut wire, &[0], SECOND);
        let before = [0, 1].map(|side| sent(&wire, side, 1));
        let arrived = call(&mut wire, &[0], 61 * SECOND);
        assert!(arrived >= 2990, "{arrived}");
        for (side, before) in before.into_iter().enumerate() {
            let (probes, carrying) = (sent(&wire, side, 1) - before, sent(&wire, side, 0));
            assert!((3..=10).contains(&probes), "side {side}: {probes} datagrams");
            // The one that carries is probed as ever, also by the end that sends nothing.
            assert!(carrying > 1100, "side {side}: {carrying} datagrams over the one that carries");
        }
    }
}

#[test]
fn a_link_that_stands_by_takes_over_at_once_after_a_long_rest() {
    for cut in [40 * SECOND, 47 * SECOND] {
        let mut wire = wire();
        let_stand_by(&mut wire, true, 0);
        call(&mut wire, &[0], cut);
        wire.cut(0, cut, 100 * SECOND);
        let sent_before = sent(&wire, 0, 1);
        let arrived = call(&mut wire, &[0], cut + 2 * SECOND);
        // Those that are still under way at the end, at most; what was sent before silence is sent again.
        assert!(arrived >= 97, "{arrived} of 100");
        assert!(sent(&wire, 0, 1) - sent_before >= 97);
    }
}

/// One that carries, or may at any moment, is probed as often as before.
#[test]
fn a_link_that_stands_by_for_some_is_probed_while_others_use_it() {
    let mut wire = wire();
    wire.tunnels.iter_mut().for_each(|tunnel| tunnel.set_scheduler(1, Box::new(Adaptive)));
    let backup = LinkUse { is_backup: true, ..LinkUse::default() };
    for tunnel in &mut wire.tunnels {
        tunnel.set_uses(1, [backup, LinkUse::default()].into_iter());
    }
    call(&mut wire, &[0], 3 * SECOND);
    // Nothing of lane 1 flows, but it may at any moment.
    let before = sent(&wire, 0, 1);
    call(&mut wire, &[0], 63 * SECOND);
    let idle = sent(&wire, 0, 1) - before;
    assert!((25..=65).contains(&idle), "{idle} datagrams");
    let before = [0, 1].map(|side| sent(&wire, side, 1));
    call(&mut wire, &[1], 73 * SECOND);
    for (side, before) in before.into_iter().enumerate() {
        let busy = sent(&wire, side, 1) - before;
        assert!(busy > 190, "side {side}: {busy} datagrams");
    }
}

/// A link that stands by and doesn't work is known as such when it is needed.
#[test]
fn a_link_that_is_wanted_is_probed_at_once() {
    let mut wire = wire();
    let_stand_by(&mut wire, true, 0);
    call(&mut wire, &[0], 40 * SECOND);
    wire.cut(0, 40 * SECOND, 100 * SECOND);
    wire.cut(1, 38 * SECOND, 100 * SECOND);
    call(&mut wire, &[0], 40 * SECOND + 250 * MS);
    assert!(wire.tunnels[0].link_stats().iter().all(|one| one.is_silent));
}

/// A far end that is busy for a moment doesn't answer: the link that carried until then carries on, not one
/// that hasn't worked for long.
#[test]
fn a_busy_far_end_sends_nothing_to_a_dead_link() {
    let mut wire = wire();
    let_stand_by(&mut wire, true, 0);
    wire.cut(0, 2 * SECOND, 100 * SECOND);
    call(&mut wire, &[0], 10 * SECOND);
    wire.stall = Some((1, 10 * SECOND, 10 * SECOND + 300 * MS));
    let arrived = call(&mut wire, &[0], 11 * SECOND);
    assert!(wire.silences.iter().any(|(at, side, link)| (*side, *link) == (0, 1) && *at > 10 * SECOND));
    // Up to two are under way at the end.
    assert!(arrived >= 48, "{arrived} of 50");
}
