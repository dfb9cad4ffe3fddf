//! What an application asks of an open connection and changes on it: readiness, options, listeners,
//! information.

use crate::common;

use std::net::SocketAddr;
use std::sync::Arc;

use common::{Log, Net, PathScript, SERVER_ADDRESS, bytes, client_address, config};
use ropewalk_engine::TcpState as State;
use ropewalk_engine::config::{BufferConfig, ConnectionConfig};
use ropewalk_engine::endpoint::{ConnectionId, OptionError, StreamError};
use ropewalk_engine::mptcp::{CloseReason, Event};
use ropewalk_engine::{PathId, Span, SubflowId, Time};
use ropewalk_wire::{Flags, FourTuple, Segment, Seq};

const MILLISECOND: Span = Span::from_millis(1);
const SECOND: Span = Span::from_millis(1_000);

fn one_path() -> Vec<PathScript> {
    vec![PathScript::clean(10)]
}

/// A connection over one path, open both ways and at rest.
fn open(adjust: impl FnOnce(&mut ConnectionConfig)) -> Net {
    let mut net = Net::with(adjust, "minrtt", "lia", one_path());
    net.transfer_some(1000);
    net.pass(500);
    net
}

fn count(net: &Net, end: usize, event: &Event) -> usize {
    net.events.iter().filter(|(at, told)| *at == end && told == event).count()
}

/// Lengths of the data segments that an end has sent.
fn lengths(log: &Log, from: usize) -> Vec<usize> {
    let log = log.borrow();
    let data = log.iter().filter(|(end, segment)| *end == from && !segment.payload.is_empty());
    data.map(|(_, segment)| segment.payload.len()).collect()
}

#[test]
fn what_is_ready_can_be_asked_for_and_its_beginning_is_an_event() {
    let mut net = open(|_| {});
    net.reads[1] = false;
    let server = net.server.expect("accepted");
    let before = count(&net, 1, &Event::Readable);
    assert_eq!((net.ends[1].readable_bytes(server), net.ends[1].is_readable(server)), (Ok(0), false));
    for _ in 0..3 {
        net.send(bytes(1, 700));
        net.pass(100);
    }
    assert_eq!((net.ends[1].readable_bytes(server), net.ends[1].is_readable(server)), (Ok(2100), true));
    assert_eq!(count(&net, 1, &Event::Readable), before + 1, "one edge");
    let _ = net.ends[1].read(net.now, server, 2000);
    net.send(bytes(1, 700));
    net.pass(100);
    assert_eq!(net.ends[1].readable_bytes(server), Ok(800));
    assert_eq!(count(&net, 1, &Event::Readable), before + 1, "it was never empty");
    let _ = net.ends[1].read(net.now, server, 2000);
    net.send(bytes(1, 700));
    net.pass(100);
    assert_eq!(count(&net, 1, &Event::Readable), before + 2);
    let _ = net.ends[1].read(net.now, server, 2000);
    net.ends[0].shutdown(net.now, net.client);
    net.pass(100);
    assert_eq!(
        (net.ends[1].readable_bytes(server), net.ends[1].is_readable(server)),
        (Ok(0), true),
        "the end"
    );
    assert_eq!(count(&net, 1, &Event::PeerClosed), 1);
}

#[test]
fn space_can_be_asked_for_and_its_return_is_an_event() {
    let mut net = open(|config| config.send_buffer = BufferConfig::fixed(10_000));
    let client = net.client;
    assert_eq!((net.ends[0].writable_bytes(client), net.ends[0].is_writable(client)), (Ok(10_000), true));
    assert!(net.ends[0].want_write(net.now, client), "there is space: no event follows");
    assert_eq!(net.ends[0].write(net.now, client, bytes(1, 10_000)), Ok(10_000));
    assert_eq!((net.ends[0].writable_bytes(client), net.ends[0].is_writable(client)), (Ok(0), false));
    net.pass(100);
    assert_eq!(count(&net, 0, &Event::Writable), 0, "nobody was refused");
    assert_eq!(net.ends[0].write(net.now, client, bytes(1, 10_000)), Ok(10_000));
    assert!(!net.ends[0].want_write(net.now, client));
    net.pass(100);
    assert_eq!((count(&net, 0, &Event::Writable), net.ends[0].writable_bytes(client)), (1, Ok(10_000)));
    net.ends[0].shutdown(net.now, client);
    assert_eq!(net.ends[0].writable_bytes(client), Err(StreamError::Closed));
    assert!(net.ends[0].is_writable(client), "the answer is an error");
}

/// A SYN from `port` to the server's address.
fn syn(port: u16) -> Segment<bytes::Bytes> {
    let from = SocketAddr::new(client_address(0), port);
    let mut syn = Segment::new(FourTuple::new(from, SERVER_ADDRESS), Seq(7), Seq(0), Flags::SYN);
    syn.rare_mut().mss = Some(1460);
    syn.window = 65_000;
    syn
}

#[test]
fn listening_ends_and_what_was_accepted_stays() {
    let mut net = open(|_| {});
    net.inject(1, syn(5000));
    assert_eq!(net.take(1).len(), 1);
    assert_eq!((net.ends[1].len(), net.ends[1].listeners().collect::<Vec<_>>()), (2, vec![SERVER_ADDRESS]));
    assert!(net.ends[1].stop_listening(net.now, SERVER_ADDRESS));
    assert!(!net.ends[1].stop_listening(net.now, SERVER_ADDRESS));
    let resets = net.take(1);
    assert!(resets.len() == 1 && resets[0].flags.contains(Flags::RST), "{resets:?}");
    assert_eq!((net.ends[1].len(), net.ends[1].listeners().count()), (1, 0));
    net.inject(1, syn(5001));
    assert!(net.take(1)[0].flags.contains(Flags::RST));
    net.transfer_some(5000);
}

#[test]
fn each_listener_and_each_connection_has_its_settings() {
    let mut net = open(|_| {});
    let other = SocketAddr::new(SERVER_ADDRESS.ip(), 81);
    let mut listening = config("blest", "olia", 1);
    listening.receive_buffer = BufferConfig::fixed(50_000);
    listening.tcp.max_segment = Some(700);
    net.ends[1].listen(other, Arc::new(listening));
    let mut own = config("roundrobin", "balia", 1);
    own.tcp.max_segment = Some(900);
    let local = SocketAddr::new(client_address(0), 0);
    let log = net.log();
    let second = net.ends[0].connect(net.now, PathId(0), local, other, Arc::new(own)).expect("free");
    net.pass(100);
    let server = net.server.expect("accepted");
    assert_eq!(net.ends[0].write(net.now, second, bytes(1, 20_000)), Ok(20_000));
    net.pass(500);
    let mss: Vec<_> = log.borrow().iter().filter_map(|(_, segment)| segment.rare.as_deref()?.mss).collect();
    assert_eq!(mss, [900, 700]);
    // The peer's 700 less timestamps, a mapping and its DATA_ACK.
    assert!(lengths(&log, 0).iter().all(|len| *len <= 700 - 12 - 20), "{:?}", lengths(&log, 0));
    let info =
        |net: &Net, end: usize, id: ConnectionId| net.ends[end].connection(id).expect("open").info(net.now);
    let (first, client, server) = (info(&net, 0, net.client), info(&net, 0, second), info(&net, 1, server));
    assert_eq!([first.scheduler, client.scheduler, server.scheduler], ["minrtt", "roundrobin", "blest"]);
    assert_eq!([first.congestion, client.congestion, server.congestion], ["lia", "balia", "olia"]);
    assert_eq!(server.rcvbuf, 50_000);
}

#[test]
fn nagle_holds_back_what_fills_no_segment() {
    let mut net = open(|_| {});
    let log = net.log();
    let client = net.client;
    assert_eq!(net.ends[0].set_nagle(net.now, client, true), Ok(()));
    for _ in 0..3 {
        assert_eq!(net.ends[0].write(net.now, client, bytes(1, 100)), Ok(100));
        net.pass(1);
    }
    assert_eq!(lengths(&log, 0), [100]);
    assert_eq!(net.ends[0].set_nagle(net.now, client, false), Ok(()));
    net.pass(1);
    assert_eq!(lengths(&log, 0).iter().sum::<usize>(), 300, "what waited goes at once");
}

#[test]
fn what_fills_no_segment_waits_for_a_write_that_is_likely_to_follow() {
    for multipath in [true, false] {
        let mut net = open(|config| (config.multipath, config.gather_writes) = (multipath, true));
        let log = net.log();
        let client = net.client;
        let write = |net: &mut Net, len: usize| {
            assert_eq!(net.ends[0].write(net.now, client, bytes(1, len)), Ok(len));
            net.pass(1);
        };
        net.pass(10);
        write(&mut net, 2000);
        let whole = lengths(&log, 0)[0];
        assert_eq!(lengths(&log, 0), [whole, 2000 - whole], "nothing is known to follow");
        write(&mut net, 2000);
        assert_eq!(lengths(&log, 0)[2..], [whole], "a write came after 1 ms, so one more may");
        write(&mut net, 2000);
        assert_eq!(lengths(&log, 0)[3..], [whole]);
        net.pass(2);
        assert_eq!(lengths(&log, 0).iter().sum::<usize>(), 6000, "none came: the rest goes after 2 ms");
        // Long after, and with nothing in flight, it goes at once.
        net.pass(500);
        let before = lengths(&log, 0).len();
        write(&mut net, 100);
        write(&mut net, 100);
        assert_eq!(lengths(&log, 0)[before], 100);
    }
}

#[test]
fn a_cork_holds_the_end_of_the_data_back() {
    for multipath in [true, false] {
        let mut net = open(|config| config.multipath = multipath);
        let log = net.log();
        let client = net.client;
        let write = |net: &mut Net, len: usize| {
            assert_eq!(net.ends[0].write(net.now, client, bytes(1, len)), Ok(len));
            net.pass(1);
        };
        assert_eq!(net.ends[0].set_cork(net.now, client, true), Ok(()));
        write(&mut net, 100);
        assert!(lengths(&log, 0).is_empty());
        write(&mut net, 2000);
        let whole = lengths(&log, 0);
        assert!(whole.len() == 1 && whole[0] > 1400, "{whole:?}");
        assert_eq!(net.ends[0].set_cork(net.now, client, false), Ok(()));
        net.pass(1);
        assert_eq!(lengths(&log, 0), [whole[0], 2100 - whole[0]]);
        // Not for more than 200 ms, and then as before.
        assert_eq!(net.ends[0].set_cork(net.now, client, true), Ok(()));
        for round in 1..3 {
            write(&mut net, 50);
            net.pass(198);
            assert_eq!(lengths(&log, 0).len(), 1 + round);
            net.pass(2);
            assert_eq!(lengths(&log, 0).len(), 2 + round);
        }
        // Closing sends the rest.
        write(&mut net, 60);
        net.ends[0].shutdown(net.now, client);
        net.pass(1);
        assert_eq!(lengths(&log, 0).last(), Some(&60), "{multipath}");
    }
}

#[test]
fn buffers_change_their_size() {
    let mut net = open(|config| {
        config.send_buffer = BufferConfig::fixed(10_000);
        config.receive_buffer = BufferConfig::fixed(10_000);
    });
    let (client, server) = (net.client, net.server.expect("accepted"));
    assert_eq!(net.ends[0].set_send_buffer(net.now, client, BufferConfig::fixed(40_000)), Ok(()));
    assert_eq!(net.ends[0].writable_bytes(client), Ok(40_000));
    assert_eq!(net.ends[1].set_receive_buffer(net.now, server, BufferConfig::fixed(30_000)), Ok(()));
    net.reads[1] = false;
    assert_eq!(net.ends[0].write(net.now, client, bytes(1, 40_000)), Ok(40_000));
    net.pass(2000);
    let ready = net.ends[1].readable_bytes(server).expect("open");
    assert!((20_000..=30_000).contains(&ready), "{ready}");
    assert_eq!(net.ends[0].set_send_buffer(net.now, client, BufferConfig::fixed(5000)), Ok(()));
    assert_eq!(net.ends[0].writable_bytes(client), Ok(0));
    net.reads[1] = true;
    net.pass(2000);
    assert_eq!(net.received[1].len(), 41_000, "nothing is lost");
    assert_eq!(net.ends[0].writable_bytes(client), Ok(5000));
}

#[test]
fn the_unsent_low_water_mark_bounds_what_waits() {
    let mut net = open(|_| {});
    let client = net.client;
    net.reads[1] = false;
    assert_eq!(net.ends[0].set_unsent_low_water(net.now, client, Some(4000)), Ok(()));
    assert_eq!(net.ends[0].write(net.now, client, bytes(1, 10_000)), Ok(4000));
    net.pass(100);
    assert_eq!((count(&net, 0, &Event::Writable), net.ends[0].writable_bytes(client)), (1, Ok(4000)));
    assert_eq!(net.ends[0].set_unsent_low_water(net.now, client, None), Ok(()));
    assert!(net.ends[0].writable_bytes(client).expect("open") > 1_000_000);
}

#[test]
fn a_peer_that_stops_reading_has_little_waiting_for_it() {
    let mut net = open(|config| config.receive_buffer = BufferConfig::fixed(100_000));
    let client = net.client;
    net.reads[1] = false;
    assert_eq!(net.ends[0].set_unsent_beyond_window(net.now, client, Some(20_000)), Ok(()));
    let (mut written, start) = (0, net.received[1].len());
    for _ in 0..20 {
        written += net.ends[0].write(net.now, client, bytes(1, 1_000_000)).expect("open");
        net.pass(100);
    }
    // The window, and a quarter of it.
    assert!((90_000..=126_000).contains(&written), "{written}");
    let before = count(&net, 0, &Event::Writable);
    net.reads[1] = true;
    net.pass(2000);
    assert_eq!(net.received[1].len() - start, written);
    assert!(count(&net, 0, &Event::Writable) > before, "the writer hears of the window");
    assert!(net.ends[0].writable_bytes(client).expect("open") >= 100_000);
}

//= test RFC 9293 SHLD-21
#[test]
fn the_code_point_changes() {
    let mut net = open(|_| {});
    let log = net.log();
    assert_eq!(net.ends[0].set_dscp(net.now, net.client, 46), Ok(()));
    net.transfer_some(1000);
    let sent = log.borrow();
    assert!(sent.iter().filter(|(end, _)| *end == 0).all(|(_, segment)| segment.dscp == 46));
    assert!(sent.iter().filter(|(end, _)| *end == 1).all(|(_, segment)| segment.dscp == 0));
}

#[test]
fn keep_alives_begin_and_end() {
    let mut net = open(|config| config.tcp.keep_alive.interval = SECOND);
    let log = net.log();
    net.pass(10_000);
    assert!(log.borrow().is_empty());
    assert_eq!(net.ends[0].set_keep_alive(net.now, net.client, Some(2 * SECOND)), Ok(()));
    net.pass(10_000);
    let probes = log.borrow().iter().filter(|(end, _)| *end == 0).count();
    assert!((4..=6).contains(&probes), "{probes}");
    assert_eq!(net.ends[0].set_keep_alive(net.now, net.client, None), Ok(()));
    log.borrow_mut().clear();
    net.pass(10_000);
    assert!(log.borrow().is_empty());
}

fn lost(net: &Net) -> Option<CloseReason> {
    net.events.iter().find_map(|(end, event)| match event {
        Event::Reset { reason } if *end == 0 => Some(*reason),
        _ => None,
    })
}

//= test RFC 9293 3.9.1
#[test]
fn the_user_timeout_ends_a_connection_whose_data_is_not_acknowledged() {
    for multipath in [true, false] {
        let mut net = open(|config| config.multipath = multipath);
        assert_eq!(net.ends[0].set_user_timeout(net.now, net.client, Some(3 * SECOND)), Ok(()));
        net.pass(10_000);
        assert_eq!(lost(&net), None, "nothing is to be acknowledged");
        for _ in 0..4 {
            net.send(bytes(1, 1000));
            net.pass(2000);
        }
        assert_eq!(lost(&net), None, "it was in time");
        net.paths[0].dead_from = Some(net.now);
        net.send(bytes(1, 1000));
        net.pass(2990);
        assert_eq!(lost(&net), None);
        net.pass(20);
        assert_eq!(lost(&net), Some(CloseReason::UserTimeout), "{multipath}");
        assert!(net.ends[0].is_empty());
    }
}

//= test RFC 9293 3.9.1
#[test]
fn the_user_timeout_covers_the_handshake() {
    let mut dead = PathScript::clean(10);
    dead.dead_from = Some(Time::ZERO);
    let mut net = Net::with(|config| config.tcp.user_timeout = Some(5 * SECOND), "minrtt", "lia", vec![dead]);
    net.pass(4990);
    assert_eq!(lost(&net), None);
    net.pass(20);
    assert_eq!(lost(&net), Some(CloseReason::UserTimeout));
}

#[test]
fn scheduler_and_congestion_control_change_under_way() {
    let paths = vec![PathScript::clean(10), PathScript::clean(15)];
    let mut net = Net::new("minrtt", "lia", paths);
    net.transfer_some(300_000);
    let client = net.client;
    for (scheduler, congestion) in [("roundrobin", "olia"), ("redundant", "cubic"), ("blest", "balia")] {
        net.send(bytes(1, 200_000));
        net.pass(15);
        assert_eq!(net.ends[0].set_scheduler(net.now, client, scheduler), Ok(()));
        assert_eq!(net.ends[0].set_congestion(net.now, client, congestion), Ok(()));
        let info = net.ends[0].connection(client).expect("open").info(net.now);
        assert_eq!((info.scheduler, info.congestion), (scheduler, congestion));
        let want = net.sent[0].len();
        assert!(net.run(net.now + 60 * SECOND, |net| net.received[1].len() >= want), "{scheduler}");
    }
    assert!(net.delivered_all());
    let wrong = net.ends[0].set_scheduler(net.now, client, "fastest");
    assert!(matches!(wrong, Err(OptionError::Algorithm(_))), "{wrong:?}");
}

/// A connect that is cancelled: no event, no state, and a late SYN/ACK gets a RST.
#[test]
fn a_connect_is_cancelled() {
    for abort in [false, true] {
        let mut net = Net::new("minrtt", "lia", one_path());
        let syn = net.take(0).remove(0);
        assert_eq!(net.ends[0].write(Time::ZERO, net.client, bytes(1, 500)), Ok(500));
        if abort {
            net.ends[0].abort(Time::ZERO, net.client)
        } else {
            net.ends[0].close(Time::ZERO, net.client)
        }
        assert!(net.take(0).is_empty() && net.ends[0].is_empty());
        assert_eq!(net.ends[0].poll_timeout(), None);
        net.inject(1, syn);
        let late = net.take(1).remove(0);
        net.inject(0, late);
        assert!(net.take(0)[0].flags.contains(Flags::RST));
        assert_eq!(net.ends[0].poll_event(), None);
    }
}

#[test]
fn options_of_a_forgotten_connection_are_an_error() {
    let mut net = open(|_| {});
    net.ends[0].abort(net.now, net.client);
    let _ = net.take(0);
    let (now, client) = (net.now, net.client);
    assert_eq!(net.ends[0].set_nagle(now, client, true), Err(OptionError::Unknown));
    assert_eq!(net.ends[0].set_scheduler(now, client, "blest"), Err(OptionError::Unknown));
    assert_eq!(net.ends[0].readable_bytes(client), Err(StreamError::Unknown));
    assert!(net.ends[0].is_readable(client) && net.ends[0].is_writable(client), "the answer is an error");
}

#[test]
fn information_is_that_of_the_kernel() {
    let paths = vec![PathScript::clean(10), PathScript::clean(15)];
    let mut net = Net::new("roundrobin", "lia", paths);
    net.transfer_some(200_000);
    net.pass(1000);
    let connection = net.ends[0].connection(net.client).expect("open");
    let info = connection.info(net.now);
    assert_eq!((info.subflows, info.subflows_total, info.subflows_max), (1, 2, 8));
    assert_eq!((info.fallback, info.remote_key_received, info.csum_enabled), (false, true, false));
    assert_eq!((info.write_seq, info.snd_una, info.bytes_acked), (200_000, 200_000, 200_000));
    assert_eq!((info.notsent_bytes, info.rcv_nxt, info.token), (0, 0, connection.token()));
    let subflows: Vec<_> = connection.subflow_infos(net.now).collect();
    assert_eq!(subflows.iter().map(|subflow| subflow.path).collect::<Vec<_>>(), [PathId(0), PathId(1)]);
    assert_eq!(subflows.iter().map(|subflow| subflow.tcp.totals.bytes_sent).sum::<u64>(), info.bytes_sent);
    assert!(subflows.iter().map(|subflow| subflow.tcp.totals.bytes_acked).sum::<u64>() >= 200_000);
    for (subflow, delay) in subflows.iter().zip([20, 30]) {
        let tcp = &subflow.tcp;
        assert_eq!((tcp.state, tcp.in_flight.unacked, tcp.totals.total_rto), (State::Established, 0, 0));
        assert!(tcp.options.timestamps && tcp.options.sack && tcp.options.window_scaling && !tcp.options.ecn);
        assert!(tcp.rtt.min.abs_diff(delay * MILLISECOND) <= MILLISECOND, "{}", tcp.rtt.min);
        assert!(tcp.last_data_sent >= 900 * MILLISECOND);
        assert_eq!((tcp.advmss, tcp.pmtu, tcp.snd_mss), (1460, 1500, 1424));
    }
    assert_eq!(connection.subflow_info(net.now, SubflowId(1)).as_ref(), Some(&subflows[1]));
    assert_eq!(connection.subflow_info(net.now, SubflowId(2)), None);
    let server = net.ends[1].connection(net.server.expect("accepted")).expect("open");
    assert_eq!(server.info(net.now).bytes_received, 200_000);
}
