//! Packets that are sent again over a link that takes smaller datagrams, or larger ones.

mod model;

use bytes::Bytes;
use model::{Happened, MS, Way, Wire};
use ropewalk_datagrams::{LinkSettings, SECOND};

/// A packet whose last bytes are its number.
fn packet(port: u16, len: usize, number: u64) -> Bytes {
    let mut data = vec![number as u8; len - 28];
    data.splice(len - 36.., number.to_be_bytes());
    let mut bytes = Vec::new();
    let builder = etherparse::PacketBuilder::ipv4([192, 0, 2, 1], [198, 51, 100, 2], 64).udp(port, 443);
    builder.write(&mut bytes, &data).unwrap();
    bytes.into()
}

/// Links of these largest datagrams; the first is the fastest.
fn wire(largest: &[usize]) -> Wire<u64> {
    let way =
        |(at, largest): (usize, &usize)| Way::new(40, 20 + 10 * at as u64, 0, at as u64).largest(*largest);
    let mut wire = Wire::new(largest.iter().enumerate().map(way).collect());
    for (link, largest) in largest.iter().enumerate() {
        let settings = LinkSettings { largest: *largest, is_backup: false, order: 0, most: None };
        wire.tunnels.iter_mut().for_each(|tunnel| tunnel.set_link(0, link, settings));
    }
    wire
}

/// Sends packets of this length, one each 4 ms, while the first link is cut for a while. Each arrives, whole.
fn all_arrive(wire: &mut Wire<u64>, len: usize) {
    while wire.next(SECOND).is_some() {}
    let start = wire.now;
    wire.at(start, 0);
    wire.cut(0, start + 500 * MS, start + 800 * MS);
    let (count, mut arrived) = (500, Vec::new());
    while let Some(happened) = wire.next(start + 4 * SECOND) {
        match happened {
            Happened::Timer(number) if number < count => {
                wire.put(0, packet(7, len, number));
                wire.at(wire.now + 4 * MS, number + 1);
            }
            Happened::Packet(1, got) => {
                let number = u64::from_be_bytes(*got.last_chunk().unwrap());
                assert_eq!(got, packet(7, len, number));
                arrived.push(number);
            }
            _ => {}
        }
    }
    arrived.sort_unstable();
    assert!(arrived == Vec::from_iter(0..count), "{} of {count}: {:?}", arrived.len(), {
        (wire.tunnels[0].stats(), wire.tunnels[0].link_stats())
    });
    assert!(wire.tunnels[0].stats().repaired > 0);
}

#[test]
fn a_packet_is_sent_again_in_parts_over_a_link_that_takes_smaller_datagrams() {
    for largest in [1200, 1399, 700] {
        all_arrive(&mut wire(&[1414, largest]), 1380);
    }
}

#[test]
fn parts_are_sent_again_over_a_link_that_takes_them() {
    // In two parts over the first; no part of them fits the second.
    all_arrive(&mut wire(&[900, 600, 900]), 1380);
    all_arrive(&mut wire(&[900, 1414]), 1380);
}
