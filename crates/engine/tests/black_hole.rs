//! A path that carries packets of 1280 bytes and drops larger ones without an ICMP message (RFC 4821). Both
//! ends detect it, over IPv4 and IPv6, whichever end opened the connection.

use crate::common;

use std::net::SocketAddr;

use common::{Net, PathScript, bytes};
use ropewalk_engine::{MILLISECOND, SECOND, Span, Time};

const NARROW: usize = 1280;
const BYTES: usize = 100_000;

struct Case {
    v6: bool,
    client_sends: bool,
    multipath: bool,
    checksum: bool,
    /// The handshake takes two seconds, as if address resolution delayed it.
    slow_start: bool,
}

/// The time from writing all bytes until the other end has received them, and the sender's MSS.
fn time(case: &Case) -> (Span, u32) {
    let addresses: [SocketAddr; 2] = if case.v6 {
        ["[fd00::2]:0".parse().unwrap(), "[fd00::1]:80".parse().unwrap()]
    } else {
        ["10.0.0.2:0".parse().unwrap(), "10.0.0.1:80".parse().unwrap()]
    };
    let adjust = |config: &mut ropewalk_engine::config::ConnectionConfig| {
        config.tcp.black_hole_detection = true;
        config.multipath = case.multipath;
        config.checksum = case.checksum;
    };
    let scheduler = if case.multipath { "minrtt" } else { "single" };
    let path = PathScript::clean(if case.slow_start { 1000 } else { 10 });
    let mut net = Net::between(addresses, adjust, scheduler, "reno", vec![path]);
    net.tamper = Some(Box::new(|_, segment| segment.wire_len() <= NARROW));
    assert!(net.run(Time::ZERO + 60 * SECOND, |net| net.server.is_some()), "no connection");
    net.paths[0].delay = 10 * MILLISECOND;
    let began = net.now;
    let sender = if case.client_sends {
        net.transfer_some(BYTES);
        net.ends[0].connection(net.client)
    } else {
        net.reply(bytes(5, BYTES));
        net.ends[1].connection(net.server.unwrap())
    };
    (net.now - began, sender.unwrap().subflow_metrics()[0].mss)
}

fn each(mut judge: impl FnMut(Case, &str)) {
    for bits in 0..16 {
        let is = |bit: u32| bits >> bit & 1 == 1;
        if is(3) && !is(2) {
            continue;
        }
        let case =
            Case { v6: is(0), client_sends: is(1), multipath: is(2), checksum: is(3), slow_start: false };
        let Case { v6, client_sends, multipath, checksum, .. } = case;
        let told =
            format!("IPv6 {v6}, the client sends {client_sends}, multipath {multipath}, checksum {checksum}");
        judge(case, &told);
    }
}

#[test]
fn it_is_found_by_either_end_over_either_family() {
    each(|case, told| {
        let (took, mss) = time(&case);
        // Three timeouts of at least 0.2, 0.4 and 0.8 s.
        assert!(took < 3 * SECOND, "{told}: {took}");
        let header = if case.v6 { 60 } else { 40 };
        let least = if case.v6 { 1280 - 60 } else { 1024 };
        let options = 12 + if case.multipath { 24 } else { 0 };
        assert!((least - options..=1280 - header - options).contains(&mss), "{told}: MSS {mss}");
    });
}

/// After a slow handshake with a repeated SYN the first timeout is three seconds long (RFC 6298 5.7), and
/// three of them would take 22 s with the tail loss probe before. Linux suspects the size at a timeout that
/// comes three seconds or more after the first.
#[test]
fn long_timeouts_need_not_be_three() {
    each(|case, told| {
        let (took, _) = time(&Case { slow_start: true, ..case });
        assert!(took < 12 * SECOND, "{told}: {took}");
    });
}
