//! Data at connection level, RFC 8684 3.3: mappings, acknowledgements, windows, DATA_FIN, repetition,
//! backups.

use crate::common;

use bytes::Bytes;
use common::{Log, Net, PathScript, bytes, client_address};
use ropewalk_engine::config::{BufferConfig, ConnectionConfig};
use ropewalk_engine::mptcp::Event;
use ropewalk_engine::{PathId, SECOND, Time};
use ropewalk_wire::{DssMapping, Flags, Segment};

fn one_path() -> Vec<PathScript> {
    vec![PathScript::clean(10)]
}

fn two_paths() -> Vec<PathScript> {
    vec![PathScript::clean(10), PathScript::clean(20)]
}

/// Whether a packet is of the subflow over the second path.
fn second(segment: &Segment<Bytes>) -> bool {
    [segment.tuple.src, segment.tuple.dst].contains(&client_address(1))
}

fn mapping(segment: &Segment<Bytes>) -> Option<DssMapping> {
    segment.dss?.mapping
}

/// Both subflows are established.
fn joined(scheduler: &str) -> Net {
    let mut net = Net::new(scheduler, "lia", two_paths());
    net.transfer_some(20_000);
    net.pass(300);
    let added = net.events.iter().filter(|(_, event)| matches!(event, Event::SubflowAdded { .. })).count();
    assert_eq!(added, 2);
    net
}

/// Writes as much as the send buffer takes.
fn write(net: &mut Net, len: usize) -> usize {
    let data = bytes(5, len);
    let taken = net.ends[0].write(net.now, net.client, data.clone()).expect("open");
    net.sent[0].extend_from_slice(&data[..taken]);
    taken
}

//= test RFC 8684 3.3.1-9 3.3.1-13 3.3.2-6
//= test RFC 8684 3.3.1-10 3.3.1-12 3.3.2-2
/// What a differently implemented peer would send: 32-bit DSNs and 64-bit DATA_ACKs, with any keys.
#[test]
fn numbers_of_both_lengths_are_understood() {
    for (short, long) in [(true, false), (false, true), (true, true)] {
        for seed in 0..8 {
            let mut net = Net::new("roundrobin", "lia", two_paths());
            net.reseed_client(100 + seed);
            net.tamper = Some(Box::new(move |_, segment| {
                if let Some(dss) = segment.dss.as_mut() {
                    dss.ack_is_64 = long && dss.data_ack.is_some();
                    if let Some(ack) = dss.data_ack.as_mut().filter(|_| !long) {
                        *ack &= u64::from(u32::MAX);
                    }
                    if let Some(mapping) = dss.mapping.as_mut().filter(|_| short) {
                        mapping.dsn &= u64::from(u32::MAX);
                        mapping.dsn_is_64 = false;
                    }
                }
                true
            }));
            net.transfer(200_000);
            net.reply(bytes(2, 60_000));
            assert!(net.client_multipath());
            net.finish();
        }
    }
}

//= test RFC 8684 3.3.1-11
#[test]
fn numbers_are_sent_with_64_bits() {
    let mut net = Net::new("roundrobin", "lia", two_paths());
    let log = net.log();
    net.transfer(100_000);
    net.finish();
    let log = log.borrow();
    let lengths: Vec<_> =
        log.iter().filter_map(|(_, segment)| mapping(segment)).map(|m| m.dsn_is_64).collect();
    assert!(lengths.len() > 60 && lengths.iter().all(|long| *long));
}

//= test RFC 8684 3.3.2-1
/// An end acknowledges with 32 bits until it has a mapping of the peer, then with as many bits as the peer's
/// DSNs have. Segments stay within the MTU when the options grow.
#[test]
fn acknowledgements_are_as_long_as_the_peers_numbers() {
    for short in [false, true] {
        let mut net = Net::new("roundrobin", "lia", two_paths());
        let log = Log::default();
        let told = log.clone();
        net.tamper = Some(Box::new(move |from, segment| {
            if let Some(mapping) = segment.dss.as_mut().and_then(|dss| dss.mapping.as_mut())
                && short
                && from == 0
            {
                mapping.dsn &= u64::from(u32::MAX);
                mapping.dsn_is_64 = false;
            }
            told.borrow_mut().push((from, segment.clone()));
            true
        }));
        net.transfer(200_000);
        net.reply(bytes(2, 60_000));
        assert!(net.client_multipath());
        net.finish();
        let log = log.borrow();
        assert!(log.iter().all(|(_, segment)| segment.wire_len() <= 1500));
        let mut told = [false; 2];
        let mut seen = [[0; 2]; 2];
        for (from, segment) in log.iter() {
            let Some(dss) = segment.dss else { continue };
            if dss.data_ack.is_some() {
                seen[*from][usize::from(dss.ack_is_64)] += 1;
                // Segments in flight cross the one that changes the length.
                let may = told[*from] || segment.rare.is_some();
                assert!(may || !dss.ack_is_64, "{from}: {dss:?}");
            }
            let capable = segment.rare.as_deref().and_then(|rare| rare.mp_capable);
            let long = dss.mapping.is_some_and(|mapping| mapping.dsn_is_64);
            told[1 - *from] |= long || capable.is_some_and(|capable| capable.data_len.is_some());
        }
        // The client sent its data before anything arrived, and then acknowledged the server's answer.
        assert!(seen[0][0] > 100 && seen[0][1] > 4, "{seen:?}");
        assert!(if short { seen[1][0] > 40 } else { seen[1][1] > 40 && seen[1][0] == 0 }, "{seen:?}");
    }
}

/// A DATA_ACK of data that was written but never sent is ignored, and so is its window.
#[test]
fn an_acknowledgement_of_what_was_not_sent_is_ignored() {
    for closed in [false, true] {
        let mut net = Net::new("roundrobin", "lia", two_paths());
        net.transfer_some(20_000);
        let mut seen = 0;
        net.tamper = Some(Box::new(move |from, segment| {
            if let Some(ack) =
                segment.dss.as_mut().and_then(|dss| dss.data_ack.as_mut()).filter(|_| from == 1)
            {
                seen += 1;
                *ack += if seen % 3 == 0 { 400_000 } else { 0 };
            }
            true
        }));
        // In pieces, so that acknowledged data is freed.
        let len: usize = (0..140).map(|_| write(&mut net, 5_000)).sum();
        assert!(len > 500_000, "{len}");
        if closed {
            let client = net.client;
            net.ends[0].shutdown(net.now, client);
        }
        net.pass(30_000);
        assert!(net.received[1] == net.sent[0], "{} of {}", net.received[1].len(), net.sent[0].len());
    }
}

//= test RFC 8684 3.3.1-d
/// A middlebox changes bytes of every tenth segment of one subflow of two: none of them is delivered.
#[test]
fn altered_data_is_not_delivered() {
    let mut net = Net::with(|config| config.checksum = true, "roundrobin", "lia", two_paths());
    let mut count = 0;
    net.tamper = Some(Box::new(move |from, segment| {
        if from == 0 && second(segment) && !segment.payload.is_empty() {
            count += 1;
            if count % 10 == 3 {
                let mut data = segment.payload.to_vec();
                let at = count % data.len();
                data[at] ^= 0x10;
                segment.payload = data.into();
            }
        }
        true
    }));
    net.transfer_some(20_000);
    net.pass(300);
    net.transfer(400_000);
    let failed = net.ends[1].connection(net.server.expect("accepted")).expect("open").stats(net.now);
    assert!(failed.checksum_errors > 0);
}

//= test RFC 8684 3.3.4-a 3.3.5-1 4-4
/// Data never goes beyond the rightmost edge that DATA_ACK and window of any subflow gave, and all of that
/// window is used.
#[test]
fn the_window_counts_from_the_data_ack_and_the_rightmost_edge_is_used() {
    let narrow = |config: &mut ConnectionConfig| config.receive_buffer = BufferConfig::fixed(40_000);
    let mut net = Net::with(narrow, "roundrobin", "lia", two_paths());
    let log = net.log();
    net.transfer(400_000);
    let log = log.borrow();
    let scale = log[1].1.rare.as_deref().and_then(|rare| rare.window_scale).expect("a scale");
    // A SYN's window isn't scaled; it counts from the first byte of data.
    let first = log.iter().find_map(|(from, segment)| segment.dss.filter(|_| *from == 1)?.data_ack);
    let mut edge = first.map(|first| first + u64::from(log[1].1.window));
    let (mut beyond, mut closest) = (i64::MIN, i64::MIN);
    for (from, segment) in log.iter() {
        let Some(dss) = segment.dss else { continue };
        if *from == 1
            && let Some(ack) = dss.data_ack
        {
            // The log has what was sent, so an edge counts here a little before the sender learns of it.
            let right = ack + (u64::from(segment.window) << scale);
            edge = Some(edge.map_or(right, |edge| edge.max(right)));
        }
        if *from == 0
            && let (Some(mapping), Some(edge)) = (dss.mapping, edge)
        {
            let over = (mapping.dsn + u64::from(mapping.len)).wrapping_sub(edge) as i64;
            beyond = beyond.max(over);
            closest = closest.max(over);
        }
    }
    assert!(beyond <= 1, "{beyond} bytes beyond the edge (a DATA_FIN may be)");
    assert!(closest > -1500, "the last {closest} bytes of the window were never used");
}

//= test RFC 8684 3.3.5-1 4-4
/// An old ACK, or an earlier one of another subflow, gives an edge further left, which doesn't shrink the
/// window.
#[test]
fn an_edge_further_left_takes_nothing_back() {
    let mut net = joined("roundrobin");
    let log = net.log();
    net.transfer_some(50_000);
    net.pass(200);
    let before = net.ends[0].connection(net.client).expect("open").window_left();
    for (_, segment) in log.borrow().iter().filter(|(from, _)| *from == 1) {
        let mut old = segment.clone();
        old.window = 0;
        net.ends[0].on_segment(net.now, PathId(0), old);
        let _ = net.take(0);
    }
    assert_eq!(net.ends[0].connection(net.client).expect("open").window_left(), before);
    net.transfer_some(100_000);
    assert!(net.delivered_all());
}

//= test RFC 8684 3.3.2-4 3.3.6-2 4-1
/// The subflow acknowledges everything and the connection nothing: no byte of the send buffer is freed.
#[test]
fn data_is_kept_until_the_data_ack() {
    let small = |config: &mut ConnectionConfig| config.send_buffer = BufferConfig::fixed(64_000);
    let mut net = Net::with(small, "minrtt", "lia", one_path());
    let log = net.log();
    net.transfer_some(10_000);
    net.pass(100);
    net.pass(1000);
    let last =
        log.borrow().iter().rev().find_map(|(from, segment)| segment.dss.filter(|_| *from == 1)?.data_ack);
    net.tamper = Some(Box::new(move |from, segment| {
        if from == 1
            && let Some(ack) = segment.dss.as_mut().and_then(|dss| dss.data_ack.as_mut())
        {
            *ack = last.expect("a DATA_ACK");
        }
        true
    }));
    let mut taken = 0;
    for _ in 0..20 {
        taken += write(&mut net, 20_000);
        net.pass(20);
    }
    assert_eq!(taken, 64_000);
    let flow = net.ends[0].connection(net.client).expect("open").subflow_metrics()[0].clone();
    assert_eq!(flow.packets_out(), 0, "the subflow itself has nothing left to wait for");
    net.tamper = None;
    net.pass(5000);
    assert!(write(&mut net, 20_000) == 20_000);
    net.pass(1000);
    assert!(net.delivered_all());
}

//= test RFC 8684 3.3.3-1 3.3.3-b
/// The first three are lost.
#[test]
fn a_lone_data_fin_has_its_mapping_and_is_repeated() {
    let mut net = Net::new("minrtt", "lia", one_path());
    net.transfer_some(10_000);
    net.pass(100);
    let log = Log::default();
    let told = log.clone();
    net.tamper = Some(Box::new(move |from, segment| {
        let fin = from == 0 && segment.dss.is_some_and(|dss| dss.data_fin);
        if fin {
            told.borrow_mut().push((from, segment.clone()));
        }
        !fin || told.borrow().len() > 3
    }));
    let client = net.client;
    net.ends[0].shutdown(net.now, client);
    net.finish();
    let log = log.borrow();
    assert!(log.len() >= 4, "{}", log.len());
    let first = mapping(&log[0].1).expect("a mapping");
    for (_, segment) in log.iter() {
        let mapping = mapping(segment).expect("a mapping");
        assert_eq!((mapping.ssn, mapping.len, mapping.dsn), (0, 1, first.dsn));
        assert!(segment.payload.is_empty() && !segment.flags.contains(Flags::FIN));
    }
}

//= test RFC 8684 3.3.3-c
/// A FIN ends the client's second subflow, but not the stream.
#[test]
fn a_fin_closes_its_subflow_and_nothing_else() {
    let mut net = joined("roundrobin");
    let mut done = false;
    net.tamper = Some(Box::new(move |from, segment| {
        if from == 0 && second(segment) && !done && segment.flags == Flags::ACK && segment.payload.is_empty()
        {
            segment.flags = Flags::ACK.with(Flags::FIN);
            done = true;
        }
        true
    }));
    net.reply(bytes(7, 50_000));
    net.pass(100);
    assert!(!net.events.iter().any(|(_, event)| matches!(event, Event::PeerClosed | Event::Reset { .. })));
    net.tamper = None;
    net.transfer_some(300_000);
    net.reply(bytes(8, 50_000));
    assert!(net.delivered_all());
}

//= test RFC 8684 3.3.3-3 3.3.3-4
#[test]
fn when_both_data_fins_are_acknowledged_every_subflow_is_closed() {
    let mut net = Net::new("roundrobin", "lia", two_paths());
    net.transfer_some(20_000);
    net.pass(300);
    let log = net.log();
    let client = net.client;
    net.ends[0].shutdown(net.now, client);
    net.pass(2000);
    assert!(!log.borrow().iter().any(|(_, segment)| segment.flags.contains(Flags::FIN)), "half-closed");
    net.finish();
    for end in 0..2 {
        for on_second in [false, true] {
            let closed = log.borrow().iter().any(|(from, segment)| {
                *from == end && second(segment) == on_second && segment.flags.contains(Flags::FIN)
            });
            assert!(closed, "end {end}, second path {on_second}");
        }
    }
}

//= test RFC 8684 3.3.4-c 3.3.6-a 3.3.6-1
/// The first path stops delivering. The second subflow is acknowledged at subflow level while the stream has
/// a gap, data of the first is reinjected on the second, and the first keeps retransmitting it.
#[test]
fn a_gap_in_the_stream_stops_no_subflow() {
    let mut net = joined("roundrobin");
    let log = Log::default();
    let told = log.clone();
    net.tamper = Some(Box::new(move |from, segment| {
        told.borrow_mut().push((from, segment.clone()));
        from == 1 || second(segment)
    }));
    write(&mut net, 200_000);
    net.pass(100);
    {
        let log = log.borrow();
        let acks = log.iter().filter(|(from, segment)| *from == 1 && second(segment));
        let acks: Vec<_> =
            acks.filter_map(|(_, segment)| Some((segment.dss?.data_ack?, segment.ack.0))).collect();
        let (first, last) = (acks[0], acks[acks.len() - 1]);
        assert_eq!(first.0, last.0, "the stream has a gap");
        assert!(last.1.wrapping_sub(first.1) > 10_000, "{acks:?}");
    }
    net.pass(3000);
    assert!(net.delivered_all(), "{} of {}", net.received[1].len(), net.sent[0].len());
    let log = log.borrow();
    let first: Vec<_> = log.iter().filter(|(from, segment)| *from == 0 && !second(segment)).collect();
    let lost: Vec<_> = first.iter().filter_map(|(_, segment)| mapping(segment)).map(|m| m.dsn).collect();
    let again = |dsn: &u64| {
        log.iter().any(|(from, segment)| {
            let covers = |m: DssMapping| (m.dsn..m.dsn + u64::from(m.len)).contains(dsn);
            *from == 0 && second(segment) && mapping(segment).is_some_and(covers)
        })
    };
    assert!(lost.len() > 3 && lost.iter().all(again), "reinjected");
    let head = lost.iter().filter(|dsn| **dsn == lost[0]).count();
    assert!(head > 1, "repeated on the subflow as well");
}

//= test RFC 8684 3.3.8-1
#[test]
fn a_backup_carries_data_only_when_no_other_can() {
    for scheduler in ["minrtt", "roundrobin", "linux", "redundant", "blest", "ecf"] {
        let backup = |config: &mut ConnectionConfig| {
            config.path_manager.endpoints.iter_mut().for_each(|endpoint| endpoint.backup = true);
        };
        let mut paths = two_paths();
        paths[0].dead_from = Some(Time::ZERO + 3 * SECOND);
        let mut net = Net::with(backup, scheduler, "lia", paths);
        net.transfer_some(500_000);
        let used = net.bytes_by_subflow();
        assert_eq!((used.len(), used[1]), (2, 0), "{scheduler}");
        let wait = 3100 - net.now.as_millis();
        net.pass(wait);
        net.transfer_some(200_000);
        assert!(net.bytes_by_subflow()[1] >= 200_000, "{scheduler}");
    }
}

//= test RFC 8684 3.3.8-2
#[test]
fn mp_prio_is_about_the_subflow_that_it_comes_on() {
    let mut net = joined("minrtt");
    let server = net.server.expect("accepted");
    let backups = |net: &Net| {
        let flows = net.ends[1].connection(server).expect("open").subflow_metrics();
        flows.iter().map(|flow| flow.backup).collect::<Vec<_>>()
    };
    let client = net.client;
    for (path, backup, expected) in [
        (1, true, [false, true]),
        (1, false, [false, false]),
        (0, true, [true, false]),
        (0, false, [false, false]),
    ] {
        net.ends[0].set_backup(net.now, client, PathId(path), backup);
        net.pass(100);
        assert_eq!(backups(&net), expected, "path {path}");
    }
}

//= test RFC 8684 3.7-6 3.7-7 3.3.1-8
/// A middlebox strips the options of data on one of two subflows: that subflow is reset, and the connection
/// continues.
#[test]
fn a_subflow_among_several_is_reset_where_a_lone_one_would_fall_back() {
    let mut net = joined("roundrobin");
    let log = Log::default();
    let told = log.clone();
    net.tamper = Some(Box::new(move |from, segment| {
        told.borrow_mut().push((from, segment.clone()));
        if from == 0 && second(segment) && !segment.payload.is_empty() {
            segment.dss = None;
        }
        true
    }));
    net.transfer_some(300_000);
    assert!(net.delivered_all() && net.client_multipath());
    let reset = |(from, segment): &(usize, Segment<Bytes>)| {
        *from == 1 && second(segment) && segment.flags.contains(Flags::RST)
    };
    assert!(log.borrow().iter().any(reset));
}

//= test RFC 8684 3.7-7
/// A middlebox strips the options of what one side sends, in mid-stream and on the only subflow. The peer may
/// not notice, and data that it reinjects for lack of DATA_ACKs would be taken for new bytes. So the subflow
/// is reset, and no data without a mapping is delivered.
#[test]
fn a_lone_subflow_is_reset_when_its_mappings_vanish_in_mid_stream() {
    let mut net = Net::new("minrtt", "lia", one_path());
    net.transfer_some(20_000);
    net.tamper = Some(Box::new(|from, segment| {
        if from == 0 && !segment.payload.is_empty() {
            segment.dss = None;
        }
        true
    }));
    assert_eq!(write(&mut net, 10_000), 10_000);
    net.pass(2_000);
    let reset = |(_, event): &(usize, Event)| matches!(event, Event::Reset { .. });
    assert!(net.events.iter().any(reset) && !net.delivered_all(), "{:?}", net.events);
}

/// Between bursts a sender has room and nothing to send: such samples don't lower the delivery rate.
#[test]
fn a_trickle_after_a_transfer_leaves_the_delivery_rate() {
    let mut path = PathScript::clean(20);
    path.rate = Some(1_000_000);
    let mut net = Net::plain(vec![path]);
    net.transfer_some(1_000_000);
    let rate =
        |net: &Net| net.ends[0].connection(net.client).expect("there").subflow_metrics()[0].rate.delivery;
    let before = rate(&net);
    for _ in 0..200 {
        let now = net.now;
        net.ends[0].write(now, net.client, common::bytes(1, 1000)).expect("open");
        net.pass(10);
    }
    assert!(rate(&net) >= before, "{} of {before}", rate(&net));
}
