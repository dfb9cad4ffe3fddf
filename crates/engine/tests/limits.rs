//! The endpoint's limits: connections, half-open connections, and that closed ones free their slots.

use crate::common;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use common::{SplitMix64, config};
use ropewalk_engine::config::EndpointConfig;
use ropewalk_engine::endpoint::{ConnectError, Endpoint};
use ropewalk_engine::mptcp::Event;
use ropewalk_engine::{PathId, SECOND, Time};
use ropewalk_wire::{Flags, FourTuple, Segment, Seq};

type End = Endpoint<Bytes, SplitMix64>;

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)), 80);

fn client(number: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 1000 + number)
}

fn listening(limits: EndpointConfig) -> End {
    let mut server = End::new(limits, SplitMix64(2));
    server.listen(SERVER, Arc::new(config("minrtt", "lia", 1)));
    server
}

fn everything(end: &mut End, now: Time) -> Vec<Segment<Bytes>> {
    std::iter::from_fn(|| end.poll_transmit(now, 1)).map(|(_, segment)| segment).collect()
}

/// A SYN from a client with this number; the SYN/ACK, if there is one.
fn knock(server: &mut End, now: Time, number: u16) -> Option<Segment<Bytes>> {
    let mut syn = Segment::new(FourTuple::new(client(number), SERVER), Seq(100), Seq(0), Flags::SYN);
    syn.window = 65_535;
    server.on_segment(now, PathId(0), syn);
    let answers = everything(server, now);
    assert!(answers.len() <= 1, "{answers:?}");
    answers.into_iter().next()
}

/// Completes the handshake that `knock` began.
fn enter(server: &mut End, now: Time, number: u16, answer: &Segment<Bytes>) -> bool {
    let mut third =
        Segment::new(FourTuple::new(client(number), SERVER), Seq(101), answer.seq.plus(1), Flags::ACK);
    third.window = 65_535;
    server.on_segment(now, PathId(0), third);
    let _ = everything(server, now);
    std::iter::from_fn(|| server.poll_event()).any(|(_, event)| matches!(event, Event::Accepted { .. }))
}

/// A client that acknowledges, but reads nothing, isn't taken for one whose link is dead.
#[test]
fn what_waits_for_the_peers_application_alone_is_told() {
    let mut server = listening(EndpointConfig::default());
    let answer = knock(&mut server, Time::ZERO, 0).expect("a SYN/ACK");
    let mut third = Segment::new(FourTuple::new(client(0), SERVER), Seq(101), answer.seq.plus(1), Flags::ACK);
    third.window = 3000;
    server.on_segment(Time::ZERO, PathId(0), third.clone());
    let accepted = std::iter::from_fn(|| server.poll_event())
        .find_map(|(id, event)| matches!(event, Event::Accepted { .. }).then_some(id));
    let id = accepted.expect("accepted");
    assert!(!server.awaits_window(id), "nothing waits");
    server.write(Time::ZERO, id, Bytes::from(vec![0; 10_000])).expect("room");
    let sent: u32 = everything(&mut server, Time::ZERO).iter().map(|one| one.payload.len() as u32).sum();
    assert!(sent > 0 && !server.awaits_window(id), "it isn't acknowledged");
    (third.ack, third.window) = (answer.seq.plus(1 + sent), 3000 - sent as u16);
    server.on_segment(Time::ZERO + SECOND / 10, PathId(0), third.clone());
    let _ = everything(&mut server, Time::ZERO + SECOND / 10);
    assert!(
        server.awaits_window(id),
        "{sent} bytes are acknowledged, and the window has no room for a segment"
    );
    third.window = 30_000;
    server.on_segment(Time::ZERO + SECOND / 5, PathId(0), third);
    let _ = everything(&mut server, Time::ZERO + SECOND / 5);
    assert!(!server.awaits_window(id));
}

#[test]
fn a_full_backlog_drops_syns_until_one_is_done() {
    let mut server =
        listening(EndpointConfig { backlog: 3, syn_cookies: false, ..EndpointConfig::default() });
    let answers: Vec<_> =
        (0..3).map(|number| knock(&mut server, Time::ZERO, number).expect("a SYN/ACK")).collect();
    for number in 3..10 {
        assert_eq!(knock(&mut server, Time::ZERO, number), None, "not even a RST: it may come again");
    }
    assert_eq!((server.counters().listen_overflows, server.len()), (7, 3));
    assert!(enter(&mut server, Time::ZERO + SECOND, 1, &answers[1]));
    let late = knock(&mut server, Time::ZERO + SECOND, 3).expect("a SYN/ACK");
    assert_eq!(knock(&mut server, Time::ZERO + SECOND, 4), None);
    assert!(enter(&mut server, Time::ZERO + SECOND, 3, &late));
    assert_eq!(server.len(), 4);
}

/// Half-open connections whose client never answers are dropped, and the honest client can connect.
#[test]
fn a_syn_flood_passes() {
    let mut server =
        listening(EndpointConfig { backlog: 100, syn_cookies: false, ..EndpointConfig::default() });
    let flood = (0..1000).filter(|number| knock(&mut server, Time::ZERO, *number).is_some()).count();
    assert_eq!((flood, server.counters().listen_overflows), (100, 900));
    let mut now = Time::ZERO;
    while let Some(at) = server.poll_timeout() {
        now = at;
        server.on_timeout(now);
        let _ = everything(&mut server, now);
        let _ = std::iter::from_fn(|| server.poll_event()).count();
    }
    assert!(server.is_empty(), "{} left", server.len());
    assert!((60 * SECOND..=130 * SECOND).contains(&now.since_origin()), "{now} ns");
    let answer = knock(&mut server, now, 5).expect("a SYN/ACK");
    assert!(enter(&mut server, now, 5, &answer));
}

/// Beyond the backlog no state is kept, and the honest client can connect during the flood.
#[test]
fn a_syn_flood_keeps_nobody_out() {
    let mut server = listening(EndpointConfig { backlog: 100, ..EndpointConfig::default() });
    for number in 0..10_000 {
        assert!(knock(&mut server, Time::ZERO + SECOND, number).is_some(), "everybody is answered");
    }
    assert_eq!((server.len(), server.counters().listen_overflows), (100, 0));
    assert_eq!(server.counters().cookies_sent, 9900);
    let answer = knock(&mut server, Time::ZERO + SECOND, 20_000).expect("a SYN/ACK");
    assert!(!enter(&mut server, Time::ZERO + SECOND, 20_001, &answer), "a cookie is one four-tuple's");
    assert!(enter(&mut server, Time::ZERO + 2 * SECOND, 20_000, &answer));
    assert_eq!((server.len(), server.counters().cookies_recv, server.counters().cookies_failed), (101, 1, 1));
    // An old cookie is invalid.
    let late = knock(&mut server, Time::ZERO + 2 * SECOND, 20_002).expect("a SYN/ACK");
    assert!(!enter(&mut server, Time::ZERO + 140 * SECOND, 20_002, &late));
}

#[test]
fn connections_are_limited_in_both_directions() {
    let mut server = listening(EndpointConfig { max_connections: 2, ..EndpointConfig::default() });
    for number in 0..2 {
        let answer = knock(&mut server, Time::ZERO, number).expect("a SYN/ACK");
        assert!(enter(&mut server, Time::ZERO, number, &answer));
    }
    assert_eq!(knock(&mut server, Time::ZERO, 2), None);
    assert_eq!(server.counters().listen_overflows, 1);
    let elsewhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9)), 80);
    let connect = |server: &mut End| {
        let from = SocketAddr::new(SERVER.ip(), 0);
        server.connect(Time::ZERO, PathId(0), from, elsewhere, Arc::new(config("minrtt", "lia", 1)))
    };
    assert_eq!(connect(&mut server), Err(ConnectError::TooMany));
    // A connection that is reset makes room for one.
    server.on_segment(
        Time::ZERO,
        PathId(0),
        Segment::new(FourTuple::new(client(1), SERVER), Seq(101), Seq(0), Flags::RST),
    );
    let _ = everything(&mut server, Time::ZERO);
    assert_eq!(server.len(), 1);
    assert!(connect(&mut server).is_ok());
    assert_eq!(connect(&mut server), Err(ConnectError::TooMany));
}

/// A server that closes first: its connection is in TIME-WAIT afterwards.
fn serve_and_close(server: &mut End, now: Time, number: u16) {
    let answer = knock(server, now, number).expect("a SYN/ACK");
    let mut third =
        Segment::new(FourTuple::new(client(number), SERVER), Seq(101), answer.seq.plus(1), Flags::ACK);
    third.window = 65_535;
    server.on_segment(now, PathId(0), third);
    let accepted = std::iter::from_fn(|| server.poll_event())
        .find_map(|(id, event)| matches!(event, Event::Accepted { .. }).then_some(id));
    server.close(now, accepted.expect("a connection"));
    let fin = everything(server, now).pop().expect("a FIN");
    assert!(fin.flags.contains(Flags::FIN), "{fin:?}");
    let ours = Flags::FIN.with(Flags::ACK);
    let mut last = Segment::new(FourTuple::new(client(number), SERVER), Seq(101), fin.seq.plus(1), ours);
    last.window = 65_535;
    server.on_segment(now, PathId(0), last);
    assert_eq!(everything(server, now).len(), 1, "the FIN is acknowledged");
    while server.poll_event().is_some() {}
}

/// Whoever lets a server close first has it keep connections in TIME-WAIT: they are limited in number, and
/// keep nobody out.
#[test]
fn connections_in_time_wait_are_few_and_make_room() {
    let mut server = listening(EndpointConfig { max_time_wait: 50, ..EndpointConfig::default() });
    for number in 0..200 {
        serve_and_close(&mut server, Time::from_nanos(u64::from(number) * 1_000_000), number);
        assert!(server.len() <= 50, "{number}: {}", server.len());
    }
    // The youngest are there; a segment of one that has ended is answered with RST.
    for (number, is_there) in [(199, true), (150, true), (149, false)] {
        let old = Segment::new(FourTuple::new(client(number), SERVER), Seq(103), Seq(7), Flags::ACK);
        server.on_segment(Time::ZERO + SECOND, PathId(0), old);
        let answers = everything(&mut server, Time::ZERO + SECOND);
        let is_reset = answers.iter().any(|answer| answer.flags.contains(Flags::RST));
        assert_eq!(is_reset, !is_there, "{number}: {answers:?}");
    }
    server.on_timeout(Time::ZERO + 70 * SECOND);
    let _ = everything(&mut server, Time::ZERO + 70 * SECOND);
    assert_eq!(server.len(), 0, "they end by themselves");
    // As many connections as there may be: those in TIME-WAIT make room, open ones don't.
    let mut server = listening(EndpointConfig { max_connections: 10, ..EndpointConfig::default() });
    (0..100).for_each(|number| serve_and_close(&mut server, Time::ZERO + SECOND, number));
    for number in 100..110 {
        let answer = knock(&mut server, Time::ZERO + SECOND, number).expect("a SYN/ACK");
        assert!(enter(&mut server, Time::ZERO + SECOND, number, &answer));
    }
    assert_eq!((knock(&mut server, Time::ZERO + SECOND, 110), server.len()), (None, 10));
}

//= test RFC 9293 MUST-43 MUST-45
#[test]
fn a_four_tuple_is_one_connections() {
    let mut end = End::new(EndpointConfig::default(), SplitMix64(1));
    let settings = Arc::new(config("minrtt", "lia", 1));
    let connect =
        |end: &mut End, local| end.connect(Time::ZERO, PathId(0), local, SERVER, Arc::clone(&settings));
    let first = connect(&mut end, client(7)).expect("free");
    assert_eq!(connect(&mut end, client(7)), Err(ConnectError::InUse));
    let second = connect(&mut end, client(8)).expect("free");
    let sent = everything(&mut end, Time::ZERO);
    assert_eq!(sent.iter().map(|syn| syn.tuple.source()).collect::<Vec<_>>(), [client(7), client(8)]);
    // The address stays what it was, whatever happens to the segments.
    end.on_timeout(Time::ZERO + SECOND);
    let again = everything(&mut end, Time::ZERO + SECOND);
    assert!(again.iter().all(|syn| [client(7), client(8)].contains(&syn.tuple.source())) && again.len() == 2);
    assert_ne!(first, second);
    // Port 0 is any free one.
    let ports: std::collections::BTreeSet<_> = (0..100)
        .map(|_| {
            connect(&mut end, SocketAddr::new(client(0).ip(), 0)).expect("free");
            everything(&mut end, Time::ZERO + SECOND)[0].tuple.src_port
        })
        .collect();
    assert_eq!(ports.len(), 100);
}
