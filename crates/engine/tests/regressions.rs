//! Defects that the random operations over random networks found, each as a minimal case.

use crate::common;

use bytes::Bytes;
use common::{Net, PathScript, bytes, client_address};
use ropewalk_engine::config::{BufferConfig, ConnectionConfig, LocalEndpoint};
use ropewalk_engine::mptcp::{Event, FallbackCause};
use ropewalk_engine::{MILLISECOND, PathId, SECOND, Span, Time};
use ropewalk_wire::{Flags, Segment};

fn capable(segment: &Segment<Bytes>) -> bool {
    segment.rare.as_deref().is_some_and(|rare| rare.mp_capable.is_some())
}

fn heard(net: &Net, end: usize, wanted: &Event) -> bool {
    net.events.iter().any(|(at, event)| *at == end && event == wanted)
}

fn reset(net: &Net, end: usize) -> bool {
    net.events.iter().any(|(at, event)| *at == end && matches!(event, Event::Reset { .. }))
}

/// Runs for this long, or until neither endpoint has a connection.
fn run_for(net: &mut Net, seconds: u64) -> bool {
    let limit = net.now + seconds * SECOND;
    net.run(limit, |net| net.ends.iter().all(|end| end.is_empty()) && net.server.is_some())
}

fn closes(net: &mut Net) {
    net.finish();
    assert!(run_for(net, 200), "a connection is never forgotten");
}

#[test]
fn a_close_during_the_handshake_waits_for_it() {
    for mut net in
        [Net::new("minrtt", "lia", vec![PathScript::clean(10)]), Net::plain(vec![PathScript::clean(10)])]
    {
        let client = net.client;
        net.ends[0].shutdown(Time::ZERO, client);
        net.run(Time::ZERO + SECOND, |net| net.server.is_some());
        let Some(server) = net.server else { panic!("no connection: {:?}", net.events) };
        net.ends[1].write(net.now, server, bytes(1, 3000)).expect("open");
        net.sent[1].extend_from_slice(&bytes(1, 3000));
        closes(&mut net);
    }
}

//= test RFC 9293 MUST-47
#[test]
fn a_close_with_unread_data_resets() {
    for multipath in [true, false] {
        let paths = vec![PathScript::clean(10)];
        let mut net = if multipath { Net::new("minrtt", "lia", paths) } else { Net::plain(paths) };
        net.reads[1] = false;
        let client = net.client;
        net.ends[0].write(Time::ZERO, client, bytes(1, 5000)).expect("open");
        net.run(Time::ZERO + SECOND, |_| false);
        let server = net.server.expect("accepted");
        net.ends[1].close(net.now, server);
        assert!(run_for(&mut net, 5), "the reset frees both ends");
        assert!(reset(&net, 0), "{:?}", net.events);
    }
}

//= test RFC 9293 SHLD-3
#[test]
fn data_after_a_close_resets() {
    let mut net = Net::new("minrtt", "lia", vec![PathScript::clean(10)]);
    net.run(Time::ZERO + SECOND, |_| false);
    let (client, server) = (net.client, net.server.expect("accepted"));
    net.ends[1].close(net.now, server);
    net.ends[0].write(net.now, client, bytes(1, 5000)).expect("open");
    assert!(run_for(&mut net, 5), "the reset frees both ends");
    assert!(reset(&net, 0));
}

#[test]
fn what_was_not_read_before_the_close_can_be_read_after_it() {
    let mut net = Net::new("minrtt", "lia", vec![PathScript::clean(10)]);
    net.reads[1] = false;
    let client = net.client;
    let data = bytes(1, 5000);
    net.ends[0].write(Time::ZERO, client, data.clone()).expect("open");
    net.ends[0].shutdown(Time::ZERO, client);
    net.run(Time::ZERO + SECOND, |_| false);
    let server = net.server.expect("accepted");
    net.ends[1].shutdown(net.now, server);
    net.run(Time::ZERO + 300 * SECOND, |_| false);
    assert!(heard(&net, 1, &Event::Closed) && !net.ends[1].is_empty());
    net.reads[1] = true;
    net.sent[0].extend_from_slice(&data);
    assert!(run_for(&mut net, 1), "forgotten once it is read");
    assert!(net.delivered_all());
}

#[test]
fn plain_tcp_probes_a_closed_window() {
    let mut net = Net::with(
        |config| {
            config.multipath = false;
            config.receive_buffer = BufferConfig::fixed(4000);
        },
        "single",
        "reno",
        vec![PathScript::clean(5)],
    );
    // The first window update after a closed window is lost.
    let (mut closed, mut lost) = (false, false);
    net.tamper = Some(Box::new(move |from, segment| {
        let update = from == 1 && closed && segment.window > 0 && !lost;
        closed |= from == 1 && segment.window == 0;
        lost |= update;
        !update
    }));
    net.transfer(60_000);
    closes(&mut net);
}

//= test RFC 8684 3.1-8 3.1-c
#[test]
fn data_that_overtakes_the_keys_is_lost_and_not_a_fallback() {
    let mut net = Net::new("minrtt", "lia", vec![PathScript::clean(10)]);
    // The third ACK is lost, and the first data at first.
    let mut count = 0;
    net.tamper = Some(Box::new(move |from, segment| {
        let keys = from == 0 && capable(segment) && !segment.flags.contains(Flags::SYN);
        count += u64::from(keys);
        !keys || count > 2
    }));
    net.transfer(30_000);
    assert!(net.client_multipath(), "{:?}", net.events);
    closes(&mut net);
}

#[test]
fn a_peer_that_fell_back_may_close_first() {
    let mut net = Net::new("minrtt", "lia", vec![PathScript::clean(10)]);
    // The server sees no keys: it is plain, and closes at once with data of the client under way.
    net.tamper = Some(Box::new(|from, segment| {
        if from == 0 && !segment.flags.contains(Flags::SYN) {
            segment.strip_mptcp();
        }
        true
    }));
    let (client, data) = (net.client, bytes(1, 100_000));
    net.ends[0].write(Time::ZERO, client, data.clone()).expect("open");
    net.ends[0].shutdown(Time::ZERO, client);
    net.sent[0].extend_from_slice(&data);
    net.run(Time::ZERO + SECOND, |net| net.server.is_some());
    let server = net.server.expect("accepted");
    net.ends[1].shutdown(net.now, server);
    net.run(Time::ZERO + 60 * SECOND, |net| net.delivered_all());
    assert!(net.delivered_all(), "{} of {}", net.received[1].len(), data.len());
}

#[test]
fn a_data_fin_that_is_always_stripped_ends_in_fallback() {
    let mut net = Net::new("minrtt", "lia", vec![PathScript::clean(10)]);
    net.run(Time::ZERO + SECOND, |_| false);
    net.tamper = Some(Box::new(|_, segment| {
        segment.strip_mptcp();
        true
    }));
    let client = net.client;
    net.ends[0].shutdown(net.now, client);
    net.run(Time::ZERO + 30 * SECOND, |net| heard(net, 1, &Event::PeerClosed));
    assert!(heard(&net, 1, &Event::PeerClosed), "{:?}", net.events);
}

#[test]
fn data_fin_and_an_announcement_take_an_ack_each() {
    let signal = |config: &mut ConnectionConfig| {
        config.path_manager.endpoints = vec![LocalEndpoint {
            address: client_address(9),
            port: None,
            path: PathId(0),
            id: 9,
            signal: true,
            subflow: false,
            backup: false,
        }];
    };
    let mut net = Net::with(signal, "minrtt", "lia", vec![PathScript::clean(10)]);
    let seen = std::rc::Rc::new(std::cell::Cell::new((false, false)));
    let told = seen.clone();
    net.tamper = Some(Box::new(move |from, segment| {
        let (mut announced, mut fin) = told.get();
        fin |= announced && from == 0 && segment.dss.is_some_and(|dss| dss.data_fin);
        announced |= from == 0 && segment.rare.as_deref().is_some_and(|rare| rare.add_addr.is_some());
        told.set((announced, fin));
        true
    }));
    // The first DSS comes while the DATA_FIN isn't acknowledged: both are due.
    net.transfer_some(1);
    let client = net.client;
    net.ends[0].shutdown(net.now, client);
    net.run(Time::ZERO + SECOND, |net| heard(net, 1, &Event::PeerClosed));
    assert_eq!(seen.get(), (true, true), "announced, DATA_FIN");
    assert!(net.now < Time::ZERO + 300 * MILLISECOND && net.packets < 30, "{} packets", net.packets);
}

#[test]
fn removing_one_path_spares_the_address_that_another_uses() {
    let mut net = Net::new("minrtt", "lia", vec![PathScript::clean(10), PathScript::clean(20)]);
    net.transfer_some(50_000);
    let server = net.server.expect("accepted");
    net.ends[1].remove_path(net.now, server, PathId(0));
    net.reply(bytes(5, 100_000));
    let client = net.client;
    net.ends[0].shutdown(net.now, client);
    closes(&mut net);
}

#[test]
fn a_subflow_over_a_dead_path_is_freed_after_the_close() {
    let mut paths = vec![PathScript::clean(10), PathScript::clean(20)];
    paths[1].dead_from = Some(Time::ZERO + 900 * MILLISECOND);
    let mut net = Net::new("minrtt", "lia", paths);
    net.transfer(400_000);
    net.run(Time::ZERO + 2 * SECOND, |_| false);
    closes(&mut net);
}

#[test]
fn a_segment_for_a_closed_subflow_is_reset() {
    let mut net = Net::new("minrtt", "lia", vec![PathScript::clean(10), PathScript::clean(20)]);
    net.transfer_some(50_000);
    // The client takes path 1 away; its RST and REMOVE_ADDR are lost.
    let client = net.client;
    net.tamper = Some(Box::new(|from, _| from == 1));
    net.ends[0].remove_path(net.now, client, PathId(1));
    let soon = net.now + MILLISECOND;
    net.run(soon, |_| false);
    net.tamper = None;
    let server = net.server.expect("accepted");
    net.ends[1].set_backup(net.now, server, PathId(1), true);
    let soon = net.now + SECOND;
    net.run(soon, |_| false);
    let removed = |(end, event): &(usize, Event)| *end == 1 && matches!(event, Event::SubflowRemoved { .. });
    assert!(net.events.iter().any(removed), "{:?}", net.events);
    net.ends[0].shutdown(net.now, client);
    closes(&mut net);
}

//= test RFC 8684 3.7-a 3.7-14
//= test RFC 8684 3.7-b 3.7-10
#[test]
fn altered_data_on_a_lone_subflow_ends_in_an_infinite_mapping() {
    let mut net = Net::with(|config| config.checksum = true, "minrtt", "lia", vec![PathScript::clean(10)]);
    let mut count = 0;
    net.tamper = Some(Box::new(move |from, segment| {
        count += u64::from(from == 0 && !segment.payload.is_empty());
        if count == 20 && from == 0 {
            let mut data = segment.payload.to_vec();
            data[7] ^= 0x55;
            segment.payload = data.into();
        }
        true
    }));
    assert!(net.try_transfer(200_000), "stalled at {}", net.received[1].len());
    for end in 0..2 {
        assert!(heard(&net, end, &Event::Fallback(FallbackCause::Checksum)), "{:?}", net.events);
    }
    let differ = net.received[1].iter().zip(&net.sent[0]).filter(|(got, sent)| got != sent).count();
    assert_eq!((net.received[1].len(), differ), (200_000, 1), "plain TCP delivers what came");
    net.received[1] = net.sent[0].clone();
    net.reply(bytes(3, 50_000));
}

//= test RFC 8684 3.7-b 3.7-10
/// Each end waits for the other's answer, and each gives its own meanwhile.
#[test]
fn altered_data_both_ways_at_once_ends_in_infinite_mappings() {
    let mut net = Net::with(|config| config.checksum = true, "minrtt", "lia", vec![PathScript::clean(10)]);
    net.transfer_some(20_000);
    net.pass(100);
    let mut done = [false; 2];
    net.tamper = Some(Box::new(move |from, segment| {
        if !done[from] && !segment.payload.is_empty() {
            done[from] = true;
            let mut data = segment.payload.to_vec();
            data[7] ^= 0x55;
            segment.payload = data.into();
        }
        true
    }));
    let before = net.received[1].len();
    let (now, server) = (net.now, net.server.expect("accepted"));
    let (up, down) = (bytes(5, 5_000), bytes(6, 4_000));
    net.ends[0].write(now, net.client, up.clone()).expect("open");
    net.ends[1].write(now, server, down.clone()).expect("open");
    net.pass(3_000);
    for end in 0..2 {
        assert!(heard(&net, end, &Event::Fallback(FallbackCause::Checksum)), "{:?}", net.events);
    }
    for (got, sent) in [(&net.received[1][before..], &up), (&net.received[0][..], &down)] {
        let differ = got.iter().zip(sent.iter()).filter(|(got, sent)| got != sent).count();
        assert_eq!((got.len(), differ), (sent.len(), 1), "plain TCP delivers what came");
    }
}

#[test]
fn without_sack_a_timeout_leaves_loss_when_all_is_acknowledged() {
    let mut net = Net::with(|config| config.tcp.sack = false, "minrtt", "reno", vec![PathScript::clean(10)]);
    net.transfer_some(20_000);
    // One whole flight is lost, and so a timeout comes.
    let mut lost = 0;
    net.tamper = Some(Box::new(move |from, segment| {
        let flight = from == 0 && !segment.payload.is_empty() && lost < 10;
        lost += u64::from(flight);
        !flight
    }));
    net.transfer(100_000);
}

#[test]
fn a_scheduler_that_waits_for_an_unmeasured_subflow_does_not_spin() {
    let paths = vec![PathScript::clean(10), PathScript::clean(100)];
    let mut net = Net::with(|config| config.tcp.timestamps = false, "ecf", "lia", paths);
    // The join's first SYN is lost: without timestamps the subflow has no round-trip time.
    let mut lost = false;
    net.tamper = Some(Box::new(move |_, segment| {
        let join = segment.flags.contains(Flags::SYN) && segment.tuple.src == client_address(1) && !lost;
        lost |= join;
        !join
    }));
    net.transfer(1_000_000);
    assert!(net.steps < 60_000, "{} steps", net.steps);
}

#[test]
fn a_join_that_fails_is_tried_again() {
    let mut net = Net::new("minrtt", "lia", vec![PathScript::clean(10), PathScript::clean(20)]);
    // On the first SYN/ACK of the join the option is missing.
    let mut spoiled = false;
    net.tamper = Some(Box::new(move |from, segment| {
        let join = segment.rare.as_deref().is_some_and(|rare| rare.mp_join.is_some());
        if from == 1 && join && !spoiled {
            spoiled = true;
            segment.strip_mptcp();
        }
        true
    }));
    net.transfer_some(1);
    net.run(Time::ZERO + 5 * SECOND, |_| false);
    let joined = |(end, event): &(usize, Event)| *end == 0 && matches!(event, Event::SubflowAdded { .. });
    assert!(net.events.iter().any(joined), "{:?}", net.events);
    net.transfer(200_000);
    closes(&mut net);
}

#[test]
fn nobody_is_penalised_for_being_slower_than_a_subflow_without_a_round_trip_time() {
    // A window that two segments fill is blocked by what the initial subflow carries, whatever happens.
    let adjust = |config: &mut ConnectionConfig| {
        config.receive_buffer = BufferConfig::fixed(3000);
        config.tcp.timestamps = false;
    };
    let mut net = Net::with(adjust, "minrtt", "lia", vec![PathScript::clean(10), PathScript::clean(97)]);
    // The join's first SYN is lost: without timestamps the subflow has no round-trip time until it has
    // carried data.
    let mut lost = false;
    net.tamper = Some(Box::new(move |_, segment| {
        let join = segment.flags.contains(Flags::SYN) && segment.tuple.src == client_address(1) && !lost;
        lost |= join;
        !join
    }));
    let unmeasured = |net: &Net| {
        let connection = net.ends[0].connection(net.client).expect("open");
        connection
            .subflow_metrics()
            .get(1)
            .is_some_and(|flow| flow.usable() && flow.rtt.smoothed == Span::ZERO)
    };
    let client = net.client;
    net.ends[0].write(Time::ZERO, client, bytes(3, 1_000_000)).expect("open");
    assert!(net.run(Time::ZERO + 5 * SECOND, unmeasured), "the join never came about");
    let until = net.now + 100 * MILLISECOND;
    net.run(until, |_| false);
    let connection = net.ends[0].connection(client).expect("open");
    assert_eq!(connection.stats(net.now).penalisations, 0);
}

//= test RFC 7323 4.3-a
#[test]
fn the_answer_to_a_repeated_syn_echoes_that_one() {
    let offset = |config: &mut ConnectionConfig| config.tcp.timestamp_offset = Some(5000);
    let mut net = Net::with(offset, "minrtt", "lia", vec![PathScript::clean(10)]);
    let mut lost = false;
    net.tamper = Some(Box::new(move |from, segment| {
        let first = from == 1 && segment.flags.contains(Flags::SYN) && !lost;
        lost |= first;
        !first
    }));
    net.run(Time::ZERO + 3 * SECOND, |net| net.server.is_some());
    let srtt =
        net.ends[0].connection(net.client).map(|connection| connection.subflow_metrics()[0].rtt.smoothed);
    assert!(srtt.is_some_and(|srtt| srtt < 100 * MILLISECOND), "{srtt:?}: not what the lost answer took");
}

//= test RFC 8684 3.7-8 3.7-9
#[test]
fn a_failed_checksum_while_a_join_is_under_way_costs_the_subflow() {
    let mut net = Net::with(
        |config| config.checksum = true,
        "minrtt",
        "lia",
        vec![PathScript::clean(150), PathScript::clean(5)],
    );
    let mut altered = false;
    net.tamper = Some(Box::new(move |from, segment| {
        if from == 1 && !segment.payload.is_empty() && !altered {
            altered = true;
            segment.payload = bytes(77, segment.payload.len());
        }
        true
    }));
    net.run(Time::ZERO + SECOND, |net| net.server.is_some());
    net.reply(bytes(1, 5000));
    assert_eq!(net.received[0], net.sent[1]);
}
