//! The handshake of a join, RFC 8684 3.2, statement by statement.

use crate::common;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use common::{Log, Net, PathScript, client_address};
use ropewalk_engine::mptcp::{CloseReason, Event};
use ropewalk_engine::{PathId, Time};
use ropewalk_wire::{Flags, MpJoin, Segment, Seq};

fn two_paths() -> Net {
    Net::new("roundrobin", "lia", vec![PathScript::clean(10), PathScript::clean(20)])
}

fn added(net: &Net, end: usize) -> usize {
    net.events.iter().filter(|(at, event)| *at == end && matches!(event, Event::SubflowAdded { .. })).count()
}

fn join(segment: &Segment<Bytes>) -> Option<MpJoin> {
    segment.rare.as_deref()?.mp_join
}

/// Whether a packet is of the subflow over the second path.
fn second(segment: &Segment<Bytes>) -> bool {
    [segment.tuple.src, segment.tuple.dst].contains(&client_address(1))
}

fn without_join(segment: &mut Segment<Bytes>) {
    if let Some(rare) = segment.rare.as_mut() {
        rare.mp_join = None;
    }
}

//= test RFC 8684 3.1-10
#[test]
fn nothing_joins_before_the_peer_has_acknowledged_data() {
    let mut net = two_paths();
    net.tamper = Some(Box::new(|from, segment| from == 0 || segment.dss.is_none()));
    let client = net.client;
    net.ends[0].write(Time::ZERO, client, common::bytes(1, 3000)).expect("open");
    net.pass(20_000);
    assert_eq!((net.server.is_some(), net.counter(0, "MPTcpExtMPJoinSynTx")), (true, 0));
    net.tamper = None;
    net.pass(60_000);
    assert_eq!((added(&net, 0), added(&net, 1)), (1, 1));
}

//= test RFC 8684 3.2-3
//= test RFC 8684 3.2-b
#[test]
fn each_handshake_has_its_own_random_numbers() {
    let mut net = Net::new("minrtt", "lia", vec![PathScript::clean(10); 8]);
    let log = net.log();
    net.transfer_some(100_000);
    net.pass(500);
    let numbers: Vec<_> = log
        .borrow()
        .iter()
        .filter_map(|(_, segment)| match join(segment)? {
            MpJoin::Syn { nonce, .. } | MpJoin::SynAck { nonce, .. } => Some(nonce),
            MpJoin::Ack { .. } => None,
        })
        .collect();
    assert_eq!(numbers.len(), 14);
    assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), 14);
}

//= test RFC 8684 3.2-1 3.4.1-3 3.4.2-a 3.4.2-b
/// REMOVE_ADDR closes the subflow that was opened with the id that it names. An unknown id does nothing.
#[test]
fn an_address_is_removed_by_its_id() {
    let mut net = two_paths();
    net.transfer_some(20_000);
    net.pass(300);
    assert_eq!(added(&net, 1), 1);
    let gone = |net: &Net| {
        let removed = net.events.iter().filter_map(|(end, event)| match event {
            Event::SubflowRemoved { path, reason, .. } if *end == 1 => Some((*path, *reason)),
            _ => None,
        });
        removed.collect::<Vec<_>>()
    };
    // RSTs are lost, so that only the option closes the subflow.
    let mut renamed = true;
    net.tamper = Some(Box::new(move |_, segment| {
        if let Some(remove) = segment.rare.as_mut().and_then(|rare| rare.remove_addr.as_mut())
            && renamed
        {
            assert_eq!(remove.address_ids, [1]);
            remove.address_ids = vec![200];
            renamed = false;
        }
        !segment.flags.contains(Flags::RST)
    }));
    let client = net.client;
    net.ends[0].remove_path(net.now, client, PathId(1));
    net.pass(100);
    assert_eq!(gone(&net), []);
    // The same with the right id.
    let any = SocketAddr::new(client_address(1), 0);
    net.tamper = Some(Box::new(|_, segment| !segment.flags.contains(Flags::RST)));
    net.ends[0].add_path(net.now, client, PathId(1), any, None, 1);
    net.pass(500);
    net.ends[0].remove_path(net.now, client, PathId(1));
    net.pass(100);
    let gone = gone(&net);
    assert!(!gone.is_empty(), "{:?}", net.events);
    assert!(gone.iter().all(|gone| *gone == (PathId(1), CloseReason::AddressRemoved)), "{gone:?}");
    net.tamper = None;
    net.transfer_some(50_000);
}

//= test RFC 8684 3.2-10 3.2-11 3.2-12
#[test]
fn a_handshake_that_loses_its_option_ends_in_a_reset() {
    for stage in [Flags::SYN.with(Flags::ACK), Flags::ACK] {
        let mut net = two_paths();
        let log = Log::default();
        let told = log.clone();
        net.tamper = Some(Box::new(move |from, segment| {
            told.borrow_mut().push((from, segment.clone()));
            if segment.flags == stage && join(segment).is_some() {
                without_join(segment);
            }
            true
        }));
        net.transfer_some(100_000);
        net.pass(300);
        assert_eq!((added(&net, 0), added(&net, 1)), (0, 0), "{stage:?}");
        let refusing = if stage == Flags::ACK { 1 } else { 0 };
        let reset = |(from, segment): &(usize, Segment<Bytes>)| {
            *from == refusing && second(segment) && segment.flags.contains(Flags::RST)
        };
        assert!(log.borrow().iter().any(reset), "{stage:?}");
        assert!(net.delivered_all());
    }
}

//= test RFC 8684 3.2-5
#[test]
fn the_third_ack_is_repeated_and_no_data_goes_before_its_answer() {
    let mut net = two_paths();
    let log = Log::default();
    let told = log.clone();
    let mut lost = 0;
    net.tamper = Some(Box::new(move |from, segment| {
        told.borrow_mut().push((from, segment.clone()));
        let third = from == 0 && matches!(join(segment), Some(MpJoin::Ack { .. }));
        lost += u32::from(third);
        !third || lost > 3
    }));
    let client = net.client;
    let mut left = common::bytes(3, 1 << 20);
    let taken = net.ends[0].write(Time::ZERO, client, left.clone()).expect("open");
    net.sent[0].extend_from_slice(&left.split_to(taken));
    net.pass(20_000);
    let log = log.borrow();
    let thirds = log.iter().filter(|(_, segment)| matches!(join(segment), Some(MpJoin::Ack { .. })));
    let ports: Vec<_> = thirds.map(|(_, segment)| segment.tuple.src_port).collect();
    assert!(ports.len() >= 4 && ports.iter().all(|port| *port == ports[0]), "of one subflow: {ports:?}");
    assert_eq!((added(&net, 0), added(&net, 1)), (1, 1));
    let answered = log
        .iter()
        .position(|(from, segment)| *from == 1 && second(segment) && !segment.flags.contains(Flags::SYN));
    let before = &log[..answered.expect("an answer")];
    assert!(!before.iter().any(|(_, segment)| second(segment) && !segment.payload.is_empty()));
}

//= test RFC 8684 3.2-4
#[test]
fn the_third_ack_is_answered_at_once() {
    let mut net = two_paths();
    let log = net.log();
    net.transfer_some(1);
    net.run(Time::from_nanos(5_000_000_000), |net| added(net, 1) == 1);
    assert_eq!(added(&net, 1), 1);
    let log = log.borrow();
    let answer = log.iter().rev().find(|(from, segment)| *from == 1 && second(segment)).expect("an answer");
    assert_eq!(
        answer.1.flags,
        Flags::ACK,
        "not only the SYN/ACK, in the instant in which the third ACK came"
    );
}

//= test RFC 8684 3.2-13
/// A NAT changes the address and port of the join. Its token finds the connection.
#[test]
fn a_translated_join_is_known_by_its_token() {
    let mut net = two_paths();
    let outside = SocketAddr::new(IpAddr::from([203, 0, 113, 9]), 777);
    let mut inside = None;
    net.tamper = Some(Box::new(move |from, segment| {
        if from == 0 && segment.tuple.src == client_address(1) {
            inside = Some(segment.tuple.source());
            (segment.tuple.src, segment.tuple.src_port) = (outside.ip(), outside.port());
        } else if from == 1
            && segment.tuple.destination() == outside
            && let Some(inside) = inside
        {
            (segment.tuple.dst, segment.tuple.dst_port) = (inside.ip(), inside.port());
        }
        true
    }));
    net.transfer_some(20_000);
    net.pass(300);
    net.transfer(500_000);
    assert_eq!((added(&net, 0), added(&net, 1)), (1, 1));
    assert!(net.bytes_by_subflow().iter().all(|bytes| *bytes > 50_000));
    net.finish();
}

fn early(paths: [u64; 2]) -> Net {
    let scripts = paths.map(PathScript::clean).to_vec();
    Net::with(|config| config.path_manager.early_join = true, "roundrobin", "lia", scripts)
}

/// When packets of the join left: SYN, SYN/ACK, third ACK.
fn join_times(net: &mut Net) -> Vec<u64> {
    let mut times = Vec::new();
    let client = net.client;
    net.ends[0].write(Time::ZERO, client, common::bytes(1, 1)).expect("open");
    net.sent[0].extend_from_slice(&common::bytes(1, 1));
    let log = net.log();
    let mut steps = 0;
    while added(net, 1) == 0 && steps < 2000 {
        let before = log.borrow().len();
        net.pass(1);
        let joins = log.borrow()[before..].iter().filter(|(_, segment)| join(segment).is_some()).count();
        times.extend(std::iter::repeat_n(net.now.as_millis(), joins));
        steps += 1;
    }
    times
}

//= test RFC 8684 3.1-10
/// The SYN leaves with the third ACK, a round trip earlier. The join is completed after the first DSS.
#[test]
fn an_early_join_begins_with_the_third_ack_and_ends_after_a_dss() {
    let late = join_times(&mut two_paths());
    let soon = join_times(&mut early([10, 20]));
    assert_eq!((late.len(), soon.len()), (3, 3), "{late:?} {soon:?}");
    // 20 ms are a round trip of the first path.
    assert!(late.iter().zip(&soon).all(|(late, soon)| late.abs_diff(soon + 20) <= 1), "{late:?} {soon:?}");
    // No DSS comes: no third ACK leaves, and the SYN/ACK is there.
    let mut net = early([10, 20]);
    let log = Log::default();
    let told = log.clone();
    net.tamper = Some(Box::new(move |from, segment| {
        told.borrow_mut().push((from, segment.clone()));
        from == 0 || segment.dss.is_none()
    }));
    let client = net.client;
    net.ends[0].write(Time::ZERO, client, common::bytes(1, 3000)).expect("open");
    net.pass(2_000);
    let kinds: Vec<_> = log.borrow().iter().filter_map(|(_, segment)| join(segment)).collect();
    assert!(kinds.iter().any(|kind| matches!(kind, MpJoin::SynAck { .. })), "{kinds:?}");
    assert!(!kinds.iter().any(|kind| matches!(kind, MpJoin::Ack { .. })), "{kinds:?}");
    net.tamper = None;
    net.pass(60_000);
    assert_eq!((added(&net, 0), added(&net, 1)), (1, 1));
}

/// While there is no data, a server sends its first DSS only to a client that has begun a join.
#[test]
fn an_early_join_needs_no_data() {
    for (mut net, joins) in [(two_paths(), 0), (early([10, 20]), 1), (early([50, 5]), 1)] {
        net.pass(5_000);
        assert_eq!((added(&net, 0), added(&net, 1)), (joins, joins));
        net.transfer_some(100_000);
        net.pass(300);
        assert_eq!((added(&net, 0), added(&net, 1)), (1, 1));
    }
}

/// A SYN that arrives before the keys waits for them at this engine.
#[test]
fn an_early_join_over_a_faster_path_waits_for_the_keys() {
    let late =
        join_times(&mut Net::new("roundrobin", "lia", vec![PathScript::clean(50), PathScript::clean(5)]));
    let mut net = early([50, 5]);
    let soon = join_times(&mut net);
    // The DSS comes two round trips after the SYN; the SYN/ACK is there already, which saves a round trip of
    // the second path.
    let third = |times: &[u64]| times.last().copied().unwrap_or(0);
    assert_eq!((soon.len(), third(&late) - third(&soon)), (3, 10), "{late:?} {soon:?}");
    assert_eq!(net.counter(1, "TcpOutRsts"), 0);
    net.transfer(300_000);
    net.finish();
}

/// A peer that refuses a SYN before it has the keys, as Linux does, gets it again after its first DSS.
#[test]
fn a_refused_early_join_is_opened_again_after_the_first_dss() {
    for lost in [false, true] {
        let mut net = early([50, 5]);
        let mut refused = 0;
        let mut thirds = 0;
        let resets = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let told = resets.clone();
        net.tamper = Some(Box::new(move |from, segment| {
            let is_syn = from == 0 && segment.flags == Flags::SYN && join(segment).is_some();
            if is_syn && refused == 0 {
                refused += 1;
                let ack = segment.seq.plus(1);
                let tuple = segment.tuple.reversed();
                told.borrow_mut().push(Segment::new(tuple, Seq(0), ack, Flags::RST.with(Flags::ACK)));
                return false;
            }
            // The first third ACK of the connection is lost.
            let third = from == 0 && segment.flags == Flags::ACK && !second(segment);
            thirds += u32::from(third);
            !(lost && third && thirds == 1)
        }));
        for _ in 0..120 {
            net.pass(1);
            let reset = resets.borrow_mut().pop();
            if let Some(reset) = reset {
                net.ends[0].on_segment(net.now, PathId(1), reset);
            }
        }
        net.transfer_some(100_000);
        net.pass(2_000);
        assert_eq!((added(&net, 0), added(&net, 1)), (1, 1), "{lost}");
        // At once after the DSS, not after the second that other joins wait.
        assert!(lost || net.now < Time::from_nanos(1_000_000_000 * 4), "{}", net.now);
        net.transfer(300_000);
        net.finish();
    }
}

/// Options are stripped behind the handshake: the connection falls back to plain TCP as if no join had begun.
#[test]
fn a_fallback_drops_early_joins() {
    let mut net = early([10, 20]);
    net.tamper = Some(Box::new(|_, segment| {
        if !segment.flags.contains(Flags::SYN) {
            segment.dss = None;
            segment.rare = None;
        }
        true
    }));
    net.transfer(200_000);
    net.pass(2_000);
    assert!(net.events.iter().any(|(end, event)| *end == 0 && matches!(event, Event::Fallback(_))));
    assert_eq!((added(&net, 0), added(&net, 1)), (0, 0));
    net.finish();
}

/// The connection is reset before a DSS has come: no join keeps it.
#[test]
fn an_early_join_does_not_outlive_its_connection() {
    let mut net = early([10, 20]);
    net.tamper = Some(Box::new(|from, _| from == 0));
    let log = net.log();
    net.pass(25);
    net.tamper = Some(Box::new(|from, _| from == 0));
    let first = log.borrow()[0].1.tuple;
    let next =
        log.borrow().iter().find(|(from, _)| *from == 1).map(|(_, syn)| syn.seq.plus(1)).expect("SYN/ACK");
    net.inject(0, Segment::new(first.reversed(), next, Seq(0), Flags::RST));
    net.pass(1);
    assert!(
        net.events.iter().any(|(end, event)| *end == 0 && matches!(event, Event::Reset { .. })),
        "{:?}",
        net.events
    );
}
