//! Single statements of RFC 8684, one test each.

use crate::common;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::Bytes;
use common::{Log, Net, PathScript, SERVER_ADDRESS, bytes, client_address, config};
use ropewalk_engine::config::{BufferConfig, ConnectionConfig, LocalEndpoint};
use ropewalk_engine::metrics::SubflowStatus;
use ropewalk_engine::mptcp::Event;
use ropewalk_engine::{PathId, SubflowId};
use ropewalk_wire::{Flags, MpJoin, MpTcpRst, Segment};

fn two_paths() -> Vec<PathScript> {
    vec![PathScript::clean(10), PathScript::clean(20)]
}

fn joined(checksum: bool) -> Net {
    let mut net = Net::with(|config| config.checksum = checksum, "roundrobin", "lia", two_paths());
    net.transfer_some(20_000);
    net.pass(300);
    assert!(net.client_multipath());
    net
}

fn second(segment: &Segment<Bytes>) -> bool {
    [segment.tuple.src, segment.tuple.dst].contains(&client_address(1))
}

fn is_join(segment: &Segment<Bytes>) -> bool {
    matches!(segment.rare.as_deref().and_then(|rare| rare.mp_join), Some(MpJoin::Syn { .. }))
}

/// The reasons of an end's RSTs on the second subflow.
fn reasons(log: &Log, end: usize) -> Vec<Option<u8>> {
    let log = log.borrow();
    let resets = log
        .iter()
        .filter(|(from, segment)| *from == end && second(segment) && segment.flags.contains(Flags::RST));
    resets.map(|(_, segment)| Some(segment.rare.as_deref()?.mp_tcprst?.reason)).collect()
}

/// A middlebox that changes segments and records the results.
fn tamper(net: &mut Net, mut change: impl FnMut(usize, &mut Segment<Bytes>) + 'static) -> Log {
    let log = Log::default();
    let told = log.clone();
    net.tamper = Some(Box::new(move |from, segment| {
        change(from, segment);
        told.borrow_mut().push((from, segment.clone()));
        true
    }));
    log
}

//= test RFC 8684 3.3.1-1 3.3.1-5 3.3.1-14 3.7-2
/// Over two lossy paths each byte of a subflow always maps to the same byte of the stream, however often it
/// is sent, and every segment carries its mapping.
#[test]
fn a_mapping_covers_its_segment_and_never_changes() {
    let mut paths = two_paths();
    paths[0].loss = 0.03;
    paths[1].loss = 0.03;
    let mut net = Net::new("roundrobin", "lia", paths);
    let log = net.log();
    assert!(net.try_transfer(400_000) && net.delivered_all());
    let mut first = BTreeMap::new();
    let mut meanings: BTreeMap<(u16, u32), u64> = BTreeMap::new();
    let mut repeated = 0;
    for (_, segment) in log.borrow().iter().filter(|(from, _)| *from == 0) {
        assert!(!segment.flags.contains(Flags::URG));
        if segment.flags.contains(Flags::SYN) {
            first.insert(segment.tuple.src_port, segment.seq.0);
        }
        let len = segment.payload.len() as u32;
        if len == 0 || segment.rare.as_deref().is_some_and(|rare| rare.mp_capable.is_some()) {
            continue;
        }
        let mapping = segment.dss.and_then(|dss| dss.mapping).expect("a mapping");
        let port = segment.tuple.src_port;
        let position = segment.seq.0.wrapping_sub(first[&port]);
        let lead = position.wrapping_sub(mapping.ssn);
        assert!(lead + len <= u32::from(mapping.len), "{mapping:?} at {position}");
        for at in (0..len).step_by(100) {
            let dsn = mapping.dsn.wrapping_add(u64::from(lead + at));
            repeated += u32::from(meanings.contains_key(&(port, position + at)));
            assert_eq!(*meanings.entry((port, position + at)).or_insert(dsn), dsn);
        }
    }
    assert!(repeated > 0 && meanings.len() > 3000, "{repeated} of {}", meanings.len());
}

//= test RFC 8684 3.3-2 3.3-3 3.3-4
#[test]
fn a_checksum_that_is_not_as_negotiated_costs_the_subflow() {
    for negotiated in [false, true] {
        let mut net = joined(negotiated);
        let log = tamper(&mut net, move |from, segment| {
            if from == 0
                && second(segment)
                && let Some(mapping) = segment.dss.as_mut().and_then(|dss| dss.mapping.as_mut())
            {
                mapping.checksum = if negotiated { None } else { Some(7) };
            }
        });
        net.transfer_some(200_000);
        assert!(net.delivered_all() && net.client_multipath());
        assert_eq!(reasons(&log, 1).first(), Some(&Some(1)), "negotiated: {negotiated}");
    }
}

//= test RFC 8684 3.7-3 3.7-4
/// A middlebox strips the options of what the server sends on the second subflow, which then can't be used.
#[test]
fn acknowledgements_without_data_ack_cost_a_further_subflow() {
    let mut net = joined(false);
    let log = tamper(&mut net, |from, segment| {
        if from == 1 && second(segment) {
            segment.dss = None;
        }
    });
    net.transfer_some(200_000);
    assert!(net.delivered_all() && net.client_multipath());
    assert_eq!(reasons(&log, 0).first(), Some(&Some(6)));
}

//= test RFC 8684 3.7-11 3.7-12
/// After a second subflow has existed, a failed checksum can't lead to a fallback.
#[test]
fn a_failed_checksum_where_plain_tcp_is_no_way_out_is_a_reset_with_mp_fail() {
    let mut net = joined(true);
    net.ends[0].remove_path(net.now, net.client, PathId(1));
    net.pass(200);
    let log = tamper(&mut net, |from, segment| {
        if from == 0 && !segment.payload.is_empty() {
            let mut data = segment.payload.to_vec();
            data[0] ^= 1;
            segment.payload = data.into();
        }
    });
    let before = net.received[1].len();
    net.ends[0].write(net.now, net.client, bytes(3, 20_000)).expect("open");
    net.pass(2000);
    assert_eq!(net.received[1].len(), before);
    let log = log.borrow();
    let reset = log.iter().find(|(from, segment)| *from == 1 && segment.flags.contains(Flags::RST));
    let reset = reset.expect("a RST").1.rare.as_deref().expect("options");
    assert!(reset.mp_fail.is_some(), "{reset:?}");
}

//= test RFC 8684 3.3.2-3
/// The server doesn't read until its window is full. ACKs that advertise more, but have no DATA_ACK, change
/// nothing.
#[test]
fn a_window_without_a_data_ack_is_not_used() {
    let narrow = |config: &mut ConnectionConfig| config.receive_buffer = BufferConfig::fixed(64 << 10);
    let mut net = Net::with(narrow, "roundrobin", "lia", two_paths());
    net.transfer_some(20_000);
    net.pass(300);
    let log = net.log();
    net.reads[1] = false;
    let data = bytes(5, 4 << 20);
    let now = net.now;
    net.ends[0].write(now, net.client, data.clone()).expect("open");
    net.pass(20_000);
    let ack = log.borrow().iter().rev().find(|(from, _)| *from == 1).expect("an ACK").1.clone();
    assert!(ack.payload.is_empty() && ack.dss.is_some_and(|dss| dss.data_ack.is_some()));
    let offer = Segment { window: 60_000, dss: None, ..ack.clone() };
    net.inject(0, offer);
    assert!(!net.take(0).iter().any(|segment| segment.payload.len() > 1));
    // The same ACK with a DATA_ACK opens it.
    net.inject(0, Segment { window: 60_000, ..ack });
    assert!(net.take(0).iter().any(|segment| segment.payload.len() > 1));
}

//= test RFC 8684 3.3.3-2 3.4.2-1 3.4.2-7
/// Both paths are removed with data in flight: one stays until there is another, and no byte is lost.
#[test]
fn the_last_subflow_outlives_its_path_until_there_is_another() {
    let mut net = joined(false);
    let log = net.log();
    let client = net.client;
    let data = bytes(5, 300_000);
    let taken = net.ends[0].write(net.now, client, data.clone()).expect("open");
    net.sent[0].extend_from_slice(&data[..taken]);
    net.pass(15);
    for path in [1, 0] {
        net.ends[0].remove_path(net.now, client, PathId(path));
    }
    net.pass(3000);
    assert!(net.delivered_all());
    assert!(!net.events.iter().any(|(_, event)| matches!(event, Event::Reset { .. })), "{:?}", net.events);
    assert!(!reasons(&log, 0).is_empty(), "the other is reset");
    let removed = |log: &Log| -> Vec<u8> {
        let log = log.borrow();
        let options = log.iter().filter_map(|(_, segment)| segment.rare.as_deref()?.remove_addr.clone());
        options.flat_map(|remove| remove.address_ids).collect()
    };
    assert_eq!(removed(&log), [1]);
    net.ends[0].add_path(net.now, client, PathId(1), SocketAddr::new(client_address(1), 0), None, 2);
    net.pass(1000);
    let flows = net.ends[0].connection(client).expect("open").subflow_metrics().to_vec();
    let usable: Vec<_> = flows.iter().filter(|flow| flow.state == SubflowStatus::Usable).collect();
    assert_eq!(usable.iter().map(|flow| flow.path).collect::<Vec<_>>(), [PathId(1)]);
    assert_eq!(removed(&log), [1, 0]);
    net.transfer_some(100_000);
    assert!(net.delivered_all());
}

/// A server that announces address 77, with these ids.
fn announcing(ids: &[u8]) -> Net {
    let mut net = Net::new("minrtt", "lia", vec![PathScript::clean(10)]);
    let mut settings = config("minrtt", "lia", 1);
    settings.path_manager.endpoints = ids
        .iter()
        .enumerate()
        .map(|(n, id)| LocalEndpoint {
            address: client_address(77 + n),
            port: None,
            path: PathId(5),
            id: *id,
            signal: true,
            subflow: false,
            backup: false,
        })
        .collect();
    net.ends[1].listen(SERVER_ADDRESS, std::sync::Arc::new(settings));
    net
}

//= test RFC 8684 3.4.1-2 3.4.1-9 3.4.1-10 3.4.1-12 3.4.2-2 3.4.2-5
/// Two addresses with one id are announced as one. The join to it is refused silently, and isn't tried again,
/// not even after the server has removed the address.
#[test]
fn an_announced_address_that_refuses_is_left_alone() {
    let mut net = announcing(&[7, 7]);
    let log = tamper(&mut net, |from, segment| {
        if from == 1 && matches!(segment.rare.as_deref(), Some(rare) if rare.mp_join.is_some()) {
            segment.flags = Flags::RST.with(Flags::ACK);
            segment.rare = None;
        }
    });
    net.transfer_some(20_000);
    // Until the server has given up, too.
    net.pass(300_000);
    assert_eq!(log.borrow().iter().filter(|(_, segment)| is_join(segment)).count(), 1);
    let announced: Vec<_> = log
        .borrow()
        .iter()
        .filter(|(from, _)| *from == 1)
        .filter_map(|(_, segment)| segment.rare.as_deref()?.add_addr)
        .map(|add| (add.address_id, add.address))
        .collect();
    assert_eq!(announced, [(7, client_address(77))]);
    let server = net.server.expect("accepted");
    net.ends[1].remove_path(net.now, server, PathId(5));
    net.pass(20_000);
    let removed = log.borrow().iter().any(|(from, segment)| {
        *from == 1
            && segment
                .rare
                .as_deref()
                .and_then(|rare| rare.remove_addr.as_ref())
                .is_some_and(|remove| remove.address_ids == [7])
    });
    assert!(removed);
    assert_eq!(log.borrow().iter().filter(|(_, segment)| is_join(segment)).count(), 1);
}

//= test RFC 8684 3.6-2
#[test]
fn a_permanent_refusal_is_final_and_a_transient_one_is_not() {
    for (transient, expected) in [(false, 1), (true, 2)] {
        let mut net = Net::new("minrtt", "lia", two_paths());
        let mut refused = false;
        let log = tamper(&mut net, move |from, segment| {
            if from == 1
                && !refused
                && matches!(segment.rare.as_deref(), Some(rare) if rare.mp_join.is_some())
            {
                refused = true;
                segment.flags = Flags::RST.with(Flags::ACK);
                segment.rare = None;
                segment.rare_mut().mp_tcprst = Some(MpTcpRst { transient, reason: 2 });
            }
        });
        net.transfer_some(20_000);
        net.pass(20_000);
        let joins = log.borrow().iter().filter(|(_, segment)| is_join(segment)).count();
        assert_eq!(joins, expected, "transient: {transient}");
    }
}

//= test RFC 9293 MUST-48 MUST-49 SHLD-22
#[test]
fn every_packet_has_the_hop_limit_and_the_code_point_that_were_asked_for() {
    let set = |config: &mut ConnectionConfig| {
        (config.tcp.hop_limit, config.tcp.dscp) = (7, 46);
    };
    let mut net = Net::with(set, "roundrobin", "lia", two_paths());
    let log = net.log();
    net.transfer_some(50_000);
    net.pass(300);
    let tuple = net.ends[0].connection(net.client).and_then(|c| c.tuple(SubflowId(1)));
    assert!(tuple.is_some());
    net.ends[0].abort(net.now, net.client);
    net.pass(100);
    let log = log.borrow();
    assert!(log.iter().any(|(_, segment)| segment.flags.contains(Flags::RST)));
    for (_, segment) in log.iter() {
        assert_eq!((segment.hop_limit, segment.dscp), (7, 46), "{segment:?}");
    }
    let packet = ropewalk_wire::encode_headers(&log[0].1, ropewalk_wire::ChecksumMode::Full).expect("valid");
    assert_eq!((packet[1], packet[8]), (46 << 2, 7));
}
