//! Subflows that are opened and closed: what a join may do before it is authenticated, how many there may be,
//! and slots that are used again.

use crate::common;

use bytes::Bytes;
use common::{Net, PathScript, config};
use ropewalk_engine::metrics::SubflowStatus;
use ropewalk_engine::mptcp::Event;
use ropewalk_engine::{PathId, Span, SubflowId};
use ropewalk_wire::{Flags, FourTuple, MpJoin, RemoveAddr, Segment, Seq};

fn two_paths() -> Net {
    Net::new("minrtt", "lia", vec![PathScript::clean(10), PathScript::clean(10)])
}

fn added(net: &Net, end: usize) -> usize {
    net.events.iter().filter(|(at, event)| *at == end && matches!(event, Event::SubflowAdded { .. })).count()
}

/// A third ACK with REMOVE_ADDR of the peer's address, but without MP_JOIN, from a sender that knows only the
/// token.
#[test]
fn a_join_says_nothing_before_it_is_authenticated() {
    let mut net = two_paths();
    net.tamper = Some(Box::new(|from: usize, segment: &mut Segment<Bytes>| {
        if from == 0
            && matches!(segment.rare.as_deref().and_then(|rare| rare.mp_join), Some(MpJoin::Ack { .. }))
        {
            let rare = segment.rare_mut();
            rare.mp_join = None;
            rare.remove_addr = Some(RemoveAddr { address_ids: vec![0] });
        }
        true
    }));
    assert!(net.try_transfer(300_000), "{:?}", net.events);
    assert!(net.delivered_all());
    assert_eq!(added(&net, 1), 0);
}

/// The peer withdraws the address of the only subflow that works, while a join is under way.
#[test]
fn the_last_usable_subflow_outlives_its_address() {
    let mut net = two_paths();
    let (mut joining, mut told) = (false, false);
    net.tamper = Some(Box::new(move |from: usize, segment: &mut Segment<Bytes>| {
        let rare = segment.rare.as_deref();
        if from == 0 && rare.is_some_and(|rare| matches!(rare.mp_join, Some(MpJoin::Ack { .. }))) {
            joining = true;
            return false;
        }
        if from == 0 && joining && !told && !segment.payload.is_empty() && segment.dss.is_some() {
            told = true;
            segment.rare_mut().remove_addr = Some(RemoveAddr { address_ids: vec![0] });
        }
        true
    }));
    assert!(net.try_transfer(300_000), "{:?}", net.events);
    assert!(net.delivered_all());
}

//= test RFC 8684 3.2-a
#[test]
fn a_limit_of_no_further_subflows_admits_none() {
    let mut net = two_paths();
    let mut server = config("minrtt", "lia", 2);
    server.path_manager.subflows = 0;
    server.path_manager.endpoints.clear();
    net.ends[1].listen("10.9.0.1:80".parse().expect("an address"), std::sync::Arc::new(server));
    assert!(net.try_transfer(300_000), "{:?}", net.events);
    assert!(net.delivered_all());
    assert_eq!(added(&net, 1), 0);
}

/// A middlebox sets the length of a mapping to 0, which makes it look infinite. With two subflows it can't
/// be.
#[test]
fn an_infinite_mapping_among_several_subflows_costs_the_subflow() {
    let mut net = Net::new("roundrobin", "lia", vec![PathScript::clean(10), PathScript::clean(10)]);
    let mut count = 0;
    net.tamper = Some(Box::new(move |from: usize, segment: &mut Segment<Bytes>| {
        if from == 0 && !segment.payload.is_empty() {
            count += 1;
            if count == 60
                && let Some(mapping) = segment.dss.as_mut().and_then(|dss| dss.mapping.as_mut())
            {
                mapping.len = 0;
            }
        }
        true
    }));
    assert!(net.try_transfer(300_000), "{:?}", net.events);
    assert!(net.delivered_all(), "a wrong byte");
    assert!(!net.events.iter().any(|(_, event)| matches!(event, Event::Fallback(_))));
}

/// A network goes down and up a hundred times, as in a train. It is used each time.
#[test]
fn a_path_may_come_and_go_any_number_of_times() {
    let mut net = two_paths();
    net.transfer_some(20_000);
    let second = PathId(1);
    let local =
        net.ends[0].connection(net.client).and_then(|c| c.tuple(SubflowId(1))).expect("joined").source();
    for round in 0..100 {
        let now = net.now;
        net.ends[0].remove_path(now, net.client, second);
        net.transfer_some(20_000);
        let now = net.now;
        let any_port = std::net::SocketAddr::new(local.ip(), 0);
        net.ends[0].add_path(now, net.client, second, any_port, None, 2);
        let both = |net: &Net| {
            let connection = net.ends[0].connection(net.client).expect("there");
            connection.subflow_metrics().iter().filter(|flow| flow.state == SubflowStatus::Usable).count()
                == 2
        };
        let limit = net.now + Span::from_secs(10);
        assert!(net.run(limit, both), "round {round}");
        net.transfer_some(60_000);
    }
    let stats = net.ends[0].connection(net.client).expect("there").stats(net.now);
    assert!(net.delivered_all());
    // The counters of closed subflows outlive their slots.
    assert!(stats.data_segments * 1460 >= net.sent[0].len() as u64, "{}", stats.data_segments);
    assert!(stats.bytes_by_subflow.iter().sum::<u64>() >= net.sent[0].len() as u64);
}

/// What a subflow has counted is kept when its slot is used again.
#[test]
fn counters_of_closed_subflows_only_grow() {
    let adjust =
        |config: &mut ropewalk_engine::config::ConnectionConfig| config.tcp.recovery.tail_loss_probe = false;
    let paths = vec![PathScript::clean(10), PathScript::clean(10)];
    let mut net = Net::with(adjust, "roundrobin", "lia", paths);
    net.transfer_some(20_000);
    let second = PathId(1);
    let local = std::net::SocketAddr::new(common::client_address(1), 0);
    let mut before = [0; 4];
    let mut check = |net: &Net, when: &str| {
        let stats = net.ends[0].connection(net.client).expect("there").stats(net.now);
        let bytes = stats.bytes_by_subflow.iter().sum::<u64>();
        let counted = [stats.data_segments, stats.retransmissions, stats.timeouts, bytes];
        let grows = before.iter().zip(&counted).all(|(before, after)| before <= after);
        assert!(grows, "{when}: {before:?}, then {counted:?}");
        before = counted;
    };
    for _ in 0..15 {
        net.paths[1].loss = 0.3;
        net.transfer_some(40_000);
        net.paths[1].loss = 0.0;
        check(&net, "after a transfer");
        let now = net.now;
        net.ends[0].remove_path(now, net.client, second);
        net.pass(100);
        let now = net.now;
        net.ends[0].add_path(now, net.client, second, local, None, 2);
        let joins = added(&net, 0);
        let limit = net.now + Span::from_secs(10);
        assert!(net.run(limit, |net| added(net, 0) > joins), "joined again");
        check(&net, "after a join");
    }
    assert!(before.iter().all(|count| *count > 0), "{before:?}");
    assert!(net.delivered_all());
}

/// Someone who saw the token, but has no keys, opens joins and never completes them.
#[test]
fn joins_that_nobody_completes_leave_room_for_one_that_is() {
    let mut net = Net::new("minrtt", "lia", vec![PathScript::clean(10)]);
    net.transfer_some(20_000);
    let server = net.server.expect("accepted");
    let token = net.ends[1].connection(server).expect("there").token();
    let tuple = net.ends[0].connection(net.client).and_then(|c| c.tuple(SubflowId(0))).expect("open");
    for n in 0..1000u16 {
        let source = std::net::SocketAddr::new("198.51.100.7".parse().expect("an address"), 1000 + n);
        let mut syn = Segment::new(FourTuple::new(source, tuple.destination()), Seq(7), Seq(0), Flags::SYN);
        syn.window = 1000;
        syn.rare_mut().mss = Some(1400);
        syn.rare_mut().mp_join =
            Some(MpJoin::Syn { backup: false, address_id: 9, token, nonce: u32::from(n) });
        let now = net.now;
        net.ends[1].on_segment(now, PathId(0), syn);
        while net.ends[1].poll_transmit(now, 1).is_some() {}
    }
    let held = net.ends[1].connection(server).expect("there").subflow_metrics().len();
    assert!(held <= 12, "{held} slots for nothing");
    let now = net.now;
    net.ends[0].add_path(now, net.client, PathId(0), std::net::SocketAddr::new(tuple.src, 0), None, 3);
    net.transfer_some(100_000);
    assert_eq!((added(&net, 0), added(&net, 1)), (1, 1));
    assert!(net.delivered_all());
}
