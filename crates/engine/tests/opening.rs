//! Opening a connection: listeners and active openers (RFC 9293), and the handshake with keys (RFC 8684 3.1).

use crate::common;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use common::{Log, Net, PathScript, SERVER_ADDRESS, SplitMix64, bytes, config};
use ropewalk_engine::config::EndpointConfig;
use ropewalk_engine::endpoint::{ConnectionId, Endpoint};
use ropewalk_engine::mptcp::{Event, FallbackCause, Key};
use ropewalk_engine::{Entropy, PathId, SECOND, Span, Time};
use ropewalk_wire::{Flags, FourTuple, MpCapable, Segment, Seq};

type End = Endpoint<Bytes, SplitMix64>;

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn everything<E: Entropy>(end: &mut Endpoint<Bytes, E>, now: Time) -> Vec<Segment<Bytes>> {
    std::iter::from_fn(|| end.poll_transmit(now, 1)).map(|(_, segment)| segment).collect()
}

fn one_path() -> Vec<PathScript> {
    vec![PathScript::clean(10)]
}

fn capable(segment: &Segment<Bytes>) -> Option<MpCapable> {
    segment.rare.as_deref()?.mp_capable
}

fn fallback(net: &Net, end: usize) -> Option<FallbackCause> {
    net.events.iter().find_map(|(at, event)| match event {
        Event::Fallback(cause) if *at == end => Some(*cause),
        _ => None,
    })
}

/// Opens a connection to a listener by hand-made segments. Returns the listener's id of it.
fn visit(
    server: &mut End,
    from: SocketAddr,
    to: SocketAddr,
    mss: Option<u16>,
) -> (ConnectionId, Segment<Bytes>) {
    let tuple = FourTuple::new(from, to);
    let mut syn = Segment::new(tuple, Seq(100), Seq(0), Flags::SYN);
    syn.window = 65_535;
    syn.rare_mut().mss = mss;
    server.on_segment(Time::ZERO, PathId(0), syn);
    let answer = everything(server, Time::ZERO).remove(0);
    assert!(answer.flags.contains(Flags::SYN), "{answer:?}");
    let mut third = Segment::new(tuple, Seq(101), answer.seq.plus(1), Flags::ACK);
    third.window = 65_535;
    server.on_segment(Time::ZERO, PathId(0), third);
    let _ = everything(server, Time::ZERO);
    let accepted = std::iter::from_fn(|| server.poll_event()).find_map(|(id, event)| match event {
        Event::Accepted { .. } => Some(id),
        _ => None,
    });
    (accepted.expect("accepted"), answer)
}

//= test RFC 9293 MUST-15
#[test]
fn without_an_mss_option_segments_have_536_or_1220_bytes() {
    for (from, to, most) in
        [("192.0.2.1:9", "192.0.2.2:80", 536), ("[2001:db8::1]:9", "[2001:db8::2]:80", 1220)]
    {
        let mut server = End::new(EndpointConfig::default(), SplitMix64(2));
        server.listen(address(to), Arc::new(config("minrtt", "lia", 1)));
        let (id, _) = visit(&mut server, address(from), address(to), None);
        assert_eq!(server.write(Time::ZERO, id, bytes(1, 4000)), Ok(4000));
        let longest = everything(&mut server, Time::ZERO).iter().map(|segment| segment.payload.len()).max();
        assert_eq!(longest, Some(most));
    }
}

//= test RFC 9293 SHLD-6
#[test]
fn the_mss_is_the_paths() {
    let limits = EndpointConfig { path_mtus: vec![1500, 1280, 9000], ..EndpointConfig::default() };
    for (path, v4, v6) in [(0, 1460, 1440), (1, 1240, 1220), (2, 8960, 8940), (3, 1460, 1440)] {
        for (from, to, expected) in
            [("192.0.2.1:0", "192.0.2.2:80", v4), ("[2001:db8::1]:0", "[2001:db8::2]:80", v6)]
        {
            let mut end = End::new(limits.clone(), SplitMix64(1));
            let settings = Arc::new(config("minrtt", "lia", 1));
            end.connect(Time::ZERO, PathId(path), address(from), address(to), settings).expect("free");
            let syn = everything(&mut end, Time::ZERO).remove(0);
            assert_eq!(syn.rare.and_then(|rare| rare.mss), Some(expected), "path {path}");
        }
    }
}

//= test RFC 9293 MUST-41 MUST-42
/// Two listeners of different kinds on one port don't affect each other.
#[test]
fn listeners_share_a_port_and_disturb_nobody() {
    let mut server = End::new(EndpointConfig::default(), SplitMix64(2));
    let (one, other) = (address("192.0.2.1:80"), address("192.0.2.2:80"));
    let plain = {
        let mut plain = config("minrtt", "lia", 1);
        plain.multipath = false;
        Arc::new(plain)
    };
    server.listen(one, Arc::new(config("minrtt", "lia", 1)));
    server.listen(other, plain);
    let taken = |server: &mut End, to| {
        let mut syn = Segment::new(FourTuple::new(address("192.0.2.9:7"), to), Seq(100), Seq(0), Flags::SYN);
        syn.rare_mut().mp_capable = Some(MpCapable { version: 1, hmac_sha256: true, ..MpCapable::default() });
        server.on_segment(Time::ZERO, PathId(0), syn);
        capable(&everything(server, Time::ZERO)[0]).is_some()
    };
    assert!(taken(&mut server, one) && !taken(&mut server, other));
    let (first, _) = visit(&mut server, address("192.0.2.9:1000"), one, Some(1000));
    let (second, _) = visit(&mut server, address("192.0.2.9:1000"), other, Some(1000));
    server.listen(one, Arc::new(config("roundrobin", "reno", 1)));
    assert_ne!(first, second);
    for (id, to) in [(first, one), (second, other)] {
        assert_eq!(server.write(Time::ZERO, id, bytes(1, 10)), Ok(10));
        assert_eq!(everything(&mut server, Time::ZERO)[0].tuple.source(), to);
    }
}

//= test RFC 9293 MUST-11
/// A RST in SYN-RECEIVED: a listener keeps listening and reports nothing. An end that opened simultaneously
/// with its peer reports the reset.
#[test]
fn a_half_open_connection_knows_who_opened_it() {
    let (client, server) = (address("192.0.2.1:9"), address("192.0.2.2:80"));
    let limits = EndpointConfig { backlog: 1, ..EndpointConfig::default() };
    let mut passive = End::new(limits, SplitMix64(2));
    passive.listen(server, Arc::new(config("minrtt", "lia", 1)));
    for _ in 0..3 {
        let syn = Segment::new(FourTuple::new(client, server), Seq(100), Seq(0), Flags::SYN);
        passive.on_segment(Time::ZERO, PathId(0), syn);
        assert_eq!(everything(&mut passive, Time::ZERO).len(), 1, "the backlog of one has room again");
        passive.on_segment(
            Time::ZERO,
            PathId(0),
            Segment::new(FourTuple::new(client, server), Seq(101), Seq(0), Flags::RST),
        );
        let _ = everything(&mut passive, Time::ZERO);
        assert!(passive.is_empty());
        let accepted = std::iter::from_fn(|| passive.poll_event());
        assert_eq!(accepted.filter(|(_, event)| matches!(event, Event::Accepted { .. })).count(), 0);
    }
    let mut active = End::new(EndpointConfig::default(), SplitMix64(1));
    let id = active
        .connect(Time::ZERO, PathId(0), client, server, Arc::new(config("minrtt", "lia", 1)))
        .expect("free");
    let _ = everything(&mut active, Time::ZERO);
    let crossing = Segment::new(FourTuple::new(server, client), Seq(500), Seq(0), Flags::SYN);
    active.on_segment(Time::ZERO, PathId(0), crossing);
    assert!(everything(&mut active, Time::ZERO)[0].flags.contains(Flags::SYN.with(Flags::ACK)));
    active.on_segment(
        Time::ZERO,
        PathId(0),
        Segment::new(FourTuple::new(server, client), Seq(501), Seq(0), Flags::RST),
    );
    let told = std::iter::from_fn(|| active.poll_event())
        .any(|(known, event)| known == id && matches!(event, Event::Reset { .. }));
    assert!(told);
}

//= test RFC 9293 MUST-10
/// Two endpoints open to each other's address at once: one connection, in plain TCP (RFC 8684 knows no
/// simultaneous opening of Multipath TCP: neither side listens), and every byte arrives both ways.
#[test]
fn two_endpoints_open_at_once() {
    let (left, right) = (address("192.0.2.1:1000"), address("192.0.2.2:2000"));
    for multipath in [false, true] {
        let mut settings = config("minrtt", "lia", 1);
        settings.multipath = multipath;
        let settings = Arc::new(settings);
        let mut ends = [
            End::new(EndpointConfig::default(), SplitMix64(1)),
            End::new(EndpointConfig::default(), SplitMix64(2)),
        ];
        let ids = [
            ends[0].connect(Time::ZERO, PathId(0), left, right, Arc::clone(&settings)).expect("free"),
            ends[1].connect(Time::ZERO, PathId(0), right, left, settings).expect("free"),
        ];
        let data = [bytes(1, 60_000), bytes(2, 50_000)];
        let mut written = [0, 0];
        let mut read = [Vec::new(), Vec::new()];
        let mut wire: Vec<(Time, usize, Segment<Bytes>)> = Vec::new();
        let mut now = Time::ZERO;
        while now < Time::ZERO + 20 * SECOND
            && (read[0].len() < data[1].len() || read[1].len() < data[0].len())
        {
            for end in 0..2 {
                if let Ok(taken) = ends[end].write(now, ids[end], data[end].slice(written[end]..)) {
                    written[end] += taken;
                }
                for segment in everything(&mut ends[end], now) {
                    wire.push((now + Span::from_millis(10), 1 - end, segment));
                }
                while let Ok(Some(piece)) = ends[end].read(now, ids[end], 5000) {
                    if piece.is_empty() {
                        break;
                    }
                    read[end].extend_from_slice(&piece);
                }
            }
            let deadlines = ends.iter_mut().filter_map(|end| end.poll_timeout());
            let next = wire.iter().map(|(at, ..)| *at).chain(deadlines).min().expect("something is due");
            now = now.max(next);
            let (due, later): (Vec<_>, Vec<_>) = wire.into_iter().partition(|(at, ..)| *at <= now);
            wire = later;
            for (_, to, segment) in due {
                ends[to].on_segment(now, PathId(0), segment);
            }
            for end in &mut ends {
                end.on_timeout(now);
            }
        }
        assert_eq!((&read[0][..], &read[1][..]), (&data[1][..], &data[0][..]), "multipath {multipath}");
        for end in &mut ends {
            let events: Vec<_> = std::iter::from_fn(|| end.poll_event()).map(|(_, event)| event).collect();
            assert!(events.contains(&Event::Connected { multipath: false }), "{events:?}");
            assert_eq!(end.len(), 1);
        }
    }
}

//= test RFC 9293 SHLD-20
/// If nobody polls an endpoint's events, the transfer is the same, and the events don't accumulate.
#[test]
fn events_need_not_be_heard() {
    let mut net = Net::new("minrtt", "lia", vec![PathScript::clean(10), PathScript::clean(20)]);
    net.run(Time::ZERO + SECOND, |net| net.server.is_some());
    net.deaf = [true, false];
    net.transfer_some(500_000);
    let heard = std::iter::from_fn(|| net.ends[0].poll_event()).count();
    assert!(heard < 10, "{heard} events");
}

//= test RFC 8684 3.1-a 3.1-8 3.1-c 3.1-b
#[test]
fn keys_come_in_the_handshakes_order_and_data_after_them() {
    let mut net = Net::new("minrtt", "lia", one_path());
    let log = net.log();
    net.transfer_some(50_000);
    net.reply(bytes(3, 5000));
    let log = log.borrow();
    let (syn, syn_ack) = (capable(&log[0].1).expect("MP_CAPABLE"), capable(&log[1].1).expect("MP_CAPABLE"));
    assert_eq!((syn.sender_key, syn.receiver_key), (None, None));
    assert!(syn_ack.sender_key.is_some() && syn_ack.receiver_key.is_none());
    let (third, first_data) =
        (capable(&log[2].1).expect("MP_CAPABLE"), capable(&log[3].1).expect("MP_CAPABLE"));
    assert_eq!(third.receiver_key, syn_ack.sender_key);
    assert!(log[2].1.payload.is_empty() && !log[3].1.payload.is_empty());
    assert_eq!((first_data.sender_key, first_data.receiver_key), (third.sender_key, third.receiver_key));
    assert_eq!(first_data.data_len.map(usize::from), Some(log[3].1.payload.len()));
    // Data counts from the number after the one that the key's hash gives.
    let keys = [third.sender_key, third.receiver_key].map(|key| Key::new(key.expect("a key")));
    let mut mapped = [0, 0];
    for (from, segment) in log.iter() {
        if let Some(mapping) = segment.dss.and_then(|dss| dss.mapping) {
            let offset = mapping.dsn.wrapping_sub(keys[*from].idsn.wrapping_add(1));
            assert_eq!(offset, u64::from(mapping.ssn - 1), "one subflow, nothing repeated");
            mapped[*from] += 1;
        }
    }
    assert!(mapped[0] > 20 && mapped[1] > 2);
    // After the server has acknowledged data, no key is sent.
    let confirmed =
        log.iter().position(|(from, segment)| *from == 1 && segment.dss.is_some()).expect("a DSS");
    let late = log.iter().skip(confirmed + 20).filter(|(_, segment)| capable(segment).is_some()).count();
    assert_eq!(late, 0);
}

/// Sends everything twice, and reports what it sent.
#[derive(Debug)]
struct Stutter {
    drawn: Arc<Mutex<Vec<u64>>>,
    count: u64,
}

impl Entropy for Stutter {
    fn next_u64(&mut self) -> u64 {
        self.count += 1;
        let value = (self.count / 4).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.drawn.lock().expect("no panic").push(value);
        value
    }
}

//= test RFC 8684 3.1-3 3.1-4 3.1-5
/// A key is 64 bits as the source of entropy gave them, and no two connections have the same.
#[test]
fn keys_are_entropy_and_their_tokens_unique() {
    let drawn = Arc::new(Mutex::new(Vec::new()));
    let mut server =
        Endpoint::<Bytes, _>::new(EndpointConfig::default(), Stutter { drawn: Arc::clone(&drawn), count: 0 });
    server.listen(SERVER_ADDRESS, Arc::new(config("minrtt", "lia", 1)));
    let mut tokens = std::collections::BTreeSet::new();
    for port in 1..=50 {
        let from = SocketAddr::new(address("192.0.2.1:0").ip(), port);
        let mut syn = Segment::new(FourTuple::new(from, SERVER_ADDRESS), Seq(1), Seq(0), Flags::SYN);
        syn.rare_mut().mp_capable = Some(MpCapable { version: 1, hmac_sha256: true, ..MpCapable::default() });
        server.on_segment(Time::ZERO, PathId(0), syn);
        let answer = everything(&mut server, Time::ZERO).remove(0);
        let key = capable(&answer).and_then(|capable| capable.sender_key).expect("a key");
        assert!(drawn.lock().expect("no panic").contains(&key));
        tokens.insert(Key::new(key).token);
    }
    assert_eq!(tokens.len(), 50);
}

//= test RFC 8684 3.1-22 3.1-23 3.3.1-c
#[test]
fn one_side_that_wants_checksums_is_enough() {
    for asking in 0..2 {
        let mut net = Net::with(|config| config.checksum = asking == 0, "minrtt", "lia", one_path());
        let mut settings = config("minrtt", "lia", 1);
        settings.checksum = asking == 1;
        net.ends[1].listen(SERVER_ADDRESS, Arc::new(settings));
        let log: Log = net.log();
        net.transfer(50_000);
        net.reply(bytes(3, 5000));
        net.finish();
        assert!(net.client_multipath());
        let mut checked = [0, 0];
        for (from, segment) in log.borrow().iter() {
            let Some(mapping) = segment.dss.and_then(|dss| dss.mapping) else { continue };
            let checksum = mapping.checksum.unwrap_or_else(|| panic!("none in {segment:?}"));
            let sum = ropewalk_wire::Payload::ones_complement_sum(&segment.payload).unwrap_or(0);
            let holds = ropewalk_wire::checksum::dss_checksum_holds(
                mapping.dsn,
                mapping.ssn,
                mapping.len,
                sum,
                checksum,
            );
            assert!(holds, "{segment:?}");
            checked[*from] += 1;
        }
        assert!(checked[0] > 20 && checked[1] > 2, "{checked:?}");
    }
}

//= test RFC 8684 3.1-14
#[test]
fn a_server_that_wants_no_joins_gets_none() {
    for deny in [false, true] {
        let mut net = Net::new("minrtt", "lia", vec![PathScript::clean(10), PathScript::clean(20)]);
        net.tamper = Some(Box::new(move |from, segment| {
            if let Some(capable) = segment.rare.as_mut().and_then(|rare| rare.mp_capable.as_mut())
                && from == 1
            {
                capable.deny_join_initial_address = deny;
            }
            true
        }));
        net.transfer_some(100_000);
        net.pass(5000);
        assert_eq!(net.counter(0, "MPTcpExtMPJoinSynTx"), u64::from(!deny));
    }
}

//= test RFC 8684 3.1-9 3.1-28 3.1-29
#[test]
fn without_the_keys_in_the_third_ack_a_server_is_plain() {
    let mut net = Net::new("minrtt", "lia", one_path());
    net.tamper = Some(Box::new(|from, segment| {
        if from == 0 && !segment.flags.contains(Flags::SYN) {
            segment.strip_mptcp();
        }
        true
    }));
    net.transfer(50_000);
    assert_eq!(fallback(&net, 1), Some(FallbackCause::NoOptionsInHandshake));
    net.finish();
}

//= test RFC 8684 3.1-26 3.7-1 6-1
#[test]
fn without_the_option_in_the_syn_ack_a_client_is_plain() {
    let mut net = Net::new("minrtt", "lia", one_path());
    net.tamper = Some(Box::new(|from, segment| {
        if from == 1 && segment.flags.contains(Flags::SYN) {
            segment.strip_mptcp();
        }
        true
    }));
    net.transfer(50_000);
    assert_eq!(fallback(&net, 0), Some(FallbackCause::NoMpCapable));
    assert!(net.events.contains(&(0, Event::Connected { multipath: false })));
    net.finish();
}

//= test RFC 8684 3.7-5 3.7-15 3.7-16
/// The handshake passes, and then a middlebox strips all options: both ends continue without them, and no
/// subflow joins.
#[test]
fn without_options_after_the_handshake_both_ends_are_plain() {
    let mut net = Net::new("minrtt", "lia", vec![PathScript::clean(10), PathScript::clean(20)]);
    let log = Log::default();
    let told = log.clone();
    let mut count = 0;
    net.tamper = Some(Box::new(move |from, segment| {
        count += 1;
        told.borrow_mut().push((from, segment.clone()));
        if count > 3 {
            segment.strip_mptcp();
        }
        true
    }));
    net.transfer_some(100_000);
    net.reply(bytes(1, 50_000));
    for end in 0..2 {
        assert!(fallback(&net, end).is_some(), "end {end}: {:?}", net.events);
    }
    log.borrow_mut().clear();
    net.transfer_some(100_000);
    net.reply(bytes(2, 50_000));
    net.pass(3000);
    let spoken = |(_, segment): &(usize, Segment<Bytes>)| segment.dss.is_some() || segment.rare.is_some();
    assert!(!log.borrow().iter().any(spoken));
    assert_eq!(net.counter(0, "MPTcpExtMPJoinSynTx"), 0);
    let client = net.client;
    net.ends[0].shutdown(net.now, client);
    net.finish();
}

//= test RFC 8684 3.9.3-1
#[test]
fn a_path_that_eats_the_option_gets_a_syn_without() {
    let mut net = Net::new("minrtt", "lia", one_path());
    let log = Log::default();
    let told = log.clone();
    net.tamper = Some(Box::new(move |from, segment| {
        told.borrow_mut().push((from, segment.clone()));
        capable(segment).is_none()
    }));
    net.transfer(20_000);
    assert!(!net.client_multipath());
    let log = log.borrow();
    let syns = log.iter().filter(|(from, segment)| *from == 0 && segment.flags == Flags::SYN);
    let asked: Vec<_> = syns.map(|(_, syn)| capable(syn).is_some()).collect();
    assert!(asked.len() > 2 && asked[0] && !asked[asked.len() - 1], "{asked:?}");
    assert!(asked.is_sorted_by(|a, b| a >= b), "never again with it: {asked:?}");
}
