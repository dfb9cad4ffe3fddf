//! Why a connection ended, as its application is told.

use crate::common;

use std::net::SocketAddr;
use std::sync::Arc;

use common::{Net, PathScript, SERVER_ADDRESS, bytes, client_address, config};
use ropewalk_engine::endpoint::{ConnectionId, StreamError};
use ropewalk_engine::mptcp::{CloseReason, Event, ResetReason};
use ropewalk_engine::{PathId, Span, SubflowId, Time};
use ropewalk_wire::{Flags, MpTcpRst, Segment, Seq};

const SECOND: Span = Span::from_secs(1);

fn one_path() -> Vec<PathScript> {
    vec![PathScript::clean(10)]
}

/// Why an end's connections were lost.
fn lost(net: &Net, end: usize) -> Vec<CloseReason> {
    let reset = |(at, event): &(usize, Event)| match event {
        Event::Reset { reason } if *at == end => Some(*reason),
        _ => None,
    };
    net.events.iter().filter_map(reset).collect()
}

#[test]
fn a_port_without_a_listener_refuses() {
    let mut net = Net::new("minrtt", "lia", one_path());
    net.transfer_some(1000);
    let local = SocketAddr::new(client_address(0), 0);
    let remote = SocketAddr::new(SERVER_ADDRESS.ip(), 81);
    let settings = Arc::new(config("minrtt", "lia", 1));
    let id = net.ends[0].connect(net.now, PathId(0), local, remote, settings).expect("free");
    net.pass(100);
    assert_eq!(lost(&net, 0), [CloseReason::Refused]);
    assert!(net.ends[0].connection(id).is_none(), "it is forgotten");
}

#[test]
fn a_handshake_without_an_answer_times_out() {
    let mut dead = PathScript::clean(10);
    dead.dead_from = Some(Time::ZERO);
    let mut net = Net::with(|config| config.tcp.syn_retries = 2, "minrtt", "lia", vec![dead]);
    net.run(Time::ZERO + 60 * SECOND, |net| !lost(net, 0).is_empty());
    assert_eq!(lost(&net, 0), [CloseReason::HandshakeTimeout]);
}

#[test]
fn data_without_an_answer_times_out() {
    let few = |config: &mut ropewalk_engine::config::ConnectionConfig| {
        config.tcp.retries = 3;
        config.multipath = false;
    };
    let mut net = Net::with(few, "minrtt", "lia", one_path());
    net.transfer_some(1000);
    net.paths[0].dead_from = Some(net.now);
    net.send(bytes(1, 1000));
    net.run(net.now + 60 * SECOND, |net| !lost(net, 0).is_empty());
    assert_eq!(lost(&net, 0), [CloseReason::TimedOut]);
}

#[test]
fn keep_alives_without_an_answer_end_the_connection() {
    let probing = |config: &mut ropewalk_engine::config::ConnectionConfig| {
        config.multipath = false;
        config.tcp.keep_alive.idle = Some(SECOND);
        config.tcp.keep_alive.interval = SECOND;
        config.tcp.keep_alive.probes = 2;
    };
    let mut net = Net::with(probing, "minrtt", "lia", one_path());
    net.transfer_some(1000);
    net.paths[0].dead_from = Some(net.now);
    net.run(net.now + 60 * SECOND, |net| !lost(net, 0).is_empty());
    assert_eq!(lost(&net, 0), [CloseReason::KeepAliveTimeout]);
}

/// A RST for the client's only subflow, with or without MP_TCPRST.
fn reset(net: &mut Net, log: &common::Log, reason: Option<u8>) {
    let tuple = log.borrow()[0].1.tuple.reversed();
    let seq = net.next_seq(log, 1);
    let mut segment = Segment::new(tuple, seq, Seq(0), Flags::RST);
    if let Some(reason) = reason {
        segment.rare_mut().mp_tcprst = Some(MpTcpRst { transient: true, reason });
    }
    net.inject(0, segment);
}

#[test]
fn a_reset_says_what_the_peer_gave_as_its_reason() {
    for (code, reason) in [
        (None, None),
        (Some(0), Some(ResetReason::Unspecified)),
        (Some(2), Some(ResetReason::LackOfResources)),
        (Some(99), Some(ResetReason::Other(99))),
    ] {
        let at_once = |config: &mut ropewalk_engine::config::ConnectionConfig| {
            config.path_manager.close_timeout = Span::ZERO;
        };
        let mut net = Net::with(at_once, "minrtt", "lia", one_path());
        let log = net.log();
        net.transfer_some(1000);
        net.pass(100);
        reset(&mut net, &log, code);
        net.pass(10);
        assert_eq!(lost(&net, 0), [CloseReason::ResetByPeer(reason)]);
        let removed = net.events.iter().any(|(end, event)| {
            *end == 0
                && matches!(event, Event::SubflowRemoved { reason: why, .. }
                    if *why == CloseReason::ResetByPeer(reason))
        });
        assert!(removed, "{:?}", net.events);
    }
}

#[test]
fn a_fast_close_is_told_from_a_reset() {
    for (multipath, reason) in [(true, CloseReason::FastClose), (false, CloseReason::ResetByPeer(None))] {
        let mut net = Net::with(|config| config.multipath = multipath, "minrtt", "lia", one_path());
        net.transfer_some(1000);
        let server = net.server.expect("accepted");
        net.ends[1].abort(net.now, server);
        let aborted = net.ends[1].connection(server).expect("its RST isn't sent yet");
        assert_eq!(aborted.close_reason(), Some(CloseReason::Aborted));
        net.pass(100);
        assert_eq!((lost(&net, 0), lost(&net, 1)), (vec![reason], vec![]), "{multipath}");
    }
}

#[test]
fn a_client_without_subflows_gives_up_in_the_end() {
    let settings = |config: &mut ropewalk_engine::config::ConnectionConfig| {
        config.tcp.retries = 3;
        config.path_manager.close_timeout = 5 * SECOND;
    };
    let mut net = Net::with(settings, "minrtt", "lia", one_path());
    net.transfer_some(1000);
    net.paths[0].dead_from = Some(net.now);
    net.send(bytes(1, 1000));
    net.run(net.now + 120 * SECOND, |net| !lost(net, 0).is_empty());
    assert_eq!(lost(&net, 0), [CloseReason::NoSubflow]);
}

#[test]
fn a_connection_closed_in_order_has_a_reason_too() {
    let mut net = Net::new("minrtt", "lia", one_path());
    net.transfer(1000);
    net.finish();
    let reason = net.ends[0].connection(net.client).and_then(|connection| connection.close_reason());
    assert!(matches!(reason, None | Some(CloseReason::Closed)), "{reason:?}");
    assert_eq!((lost(&net, 0), lost(&net, 1)), (vec![], vec![]));
}

/// Reads whatever an end has, until the call fails.
fn read_out(net: &mut Net, end: usize, id: ConnectionId) -> (Vec<u8>, StreamError) {
    let mut data = Vec::new();
    loop {
        match net.ends[end].read(net.now, id, 7000) {
            Ok(Some(piece)) if !piece.is_empty() => data.extend_from_slice(&piece),
            Ok(other) => panic!("{other:?} from a connection that is lost"),
            Err(error) => return (data, error),
        }
    }
}

#[test]
fn unread_data_outlives_the_connection() {
    for (multipath, reason) in [(true, CloseReason::FastClose), (false, CloseReason::ResetByPeer(None))] {
        let mut net = Net::with(|config| config.multipath = multipath, "minrtt", "lia", one_path());
        net.transfer_some(1000);
        net.reads[0] = false;
        let (client, server) = (net.client, net.server.expect("accepted"));
        let sent = bytes(9, 50_000);
        assert_eq!(net.ends[1].write(net.now, server, sent.clone()), Ok(50_000));
        net.pass(500);
        net.ends[1].abort(net.now, server);
        net.pass(500);
        assert_eq!(lost(&net, 0), [reason]);
        let connection = net.ends[0].connection(client).expect("kept for its data");
        assert_eq!((connection.close_reason(), connection.tuple(SubflowId(0))), (Some(reason), None));
        assert_eq!(net.ends[0].write(net.now, client, bytes(1, 1)), Err(StreamError::Lost(reason)));
        assert_eq!(read_out(&mut net, 0, client), (sent.to_vec(), StreamError::Lost(reason)));
        assert!(net.take(0).is_empty() && net.ends[0].is_empty(), "forgotten with the last byte");
        assert_eq!(net.ends[0].read(net.now, client, 1), Err(StreamError::Unknown));
    }
}

/// Another connection may have the addresses of one that is lost and waits to be read.
#[test]
fn the_addresses_of_a_lost_connection_are_free() {
    let mut net = Net::new("minrtt", "lia", one_path());
    let log = net.log();
    net.transfer_some(1000);
    net.reads[1] = false;
    net.send(bytes(4, 3000));
    net.pass(100);
    let (client, server) = (net.client, net.server.expect("accepted"));
    let local = log.borrow()[0].1.tuple.source();
    net.ends[0].abort(net.now, client);
    net.pass(100);
    assert_eq!(net.ends[1].len(), 1);
    let settings = Arc::new(config("minrtt", "lia", 1));
    net.client = net.ends[0].connect(net.now, PathId(0), local, SERVER_ADDRESS, settings).expect("free");
    net.pass(100);
    assert_ne!(net.server, Some(server), "a second one was accepted");
    assert_eq!(net.ends[1].len(), 2);
    let (data, error) = read_out(&mut net, 1, server);
    assert_eq!((data.len(), error), (3000, StreamError::Lost(CloseReason::FastClose)));
    net.received[1].extend_from_slice(&data);
    net.pass(1);
    assert_eq!(net.ends[1].len(), 1);
    net.reads[1] = true;
    net.transfer_some(1000);
}

#[test]
fn closing_a_lost_connection_throws_its_data_away() {
    let mut net = Net::new("minrtt", "lia", one_path());
    net.transfer_some(1000);
    net.reads[1] = false;
    net.send(bytes(4, 3000));
    net.pass(100);
    net.ends[0].abort(net.now, net.client);
    net.pass(100);
    let server = net.server.expect("accepted");
    net.ends[1].close(net.now, server);
    assert!(net.take(1).is_empty(), "there is nobody to be told");
    assert!(net.ends[1].is_empty());
}

#[test]
fn a_reset_before_the_connection_is_accepted_is_no_event() {
    let mut net = Net::new("minrtt", "lia", one_path());
    net.tamper = Some(Box::new(|from, segment| {
        if from == 0 && segment.flags == Flags::ACK {
            segment.flags = Flags::RST;
            segment.rare = None;
        }
        true
    }));
    net.pass(1000);
    assert!(net.ends[1].is_empty());
    assert!(!net.events.iter().any(|(end, _)| *end == 1), "{:?}", net.events);
}
