//! Two endpoints over paths that the test controls. Every byte is checked.

use crate::common;
use ropewalk_engine::Time;

use common::{Net, PathScript, bytes};
use ropewalk_engine::mptcp::Event;

#[test]
fn a_transfer_over_two_paths_delivers_every_byte_and_closes() {
    let mut net = Net::new("roundrobin", "lia", vec![PathScript::clean(10), PathScript::clean(30)]);
    net.transfer(2_000_000);
    assert!(net.client_multipath());
    let used = net.bytes_by_subflow();
    assert!(used.len() == 2 && used.iter().all(|bytes| *bytes > 10_000), "{used:?}");
    net.finish();
}

#[test]
fn plain_tcp_delivers_every_byte_and_closes() {
    let mut net = Net::plain(vec![PathScript::clean(10)]);
    net.transfer(300_000);
    assert!(!net.client_multipath());
    net.finish();
}

#[test]
fn loss_reordering_and_duplication_cost_time_but_no_byte() {
    for seed in 0..12 {
        let mut paths = vec![PathScript::clean(10), PathScript::clean(25)];
        for path in &mut paths {
            path.loss = 0.03;
            path.reorder = 0.05;
            path.duplicate = 0.02;
        }
        let mut net = Net::new("minrtt", "olia", paths);
        net.seed(seed);
        net.transfer(300_000);
        net.finish();
    }
}

#[test]
fn plain_tcp_survives_loss_and_reordering() {
    for seed in 0..12 {
        let mut path = PathScript::clean(20);
        path.loss = 0.04;
        path.reorder = 0.05;
        path.duplicate = 0.02;
        let mut net = Net::plain(vec![path]);
        net.seed(seed);
        net.transfer(200_000);
        net.finish();
    }
}

#[test]
fn checksums_are_used_when_one_side_asks() {
    let mut net = Net::with(|config| config.checksum = true, "minrtt", "lia", vec![PathScript::clean(10); 2]);
    net.transfer(200_000);
    assert!(net.client_multipath() && net.saw_checksum);
    net.finish();
}

//= test RFC 8684 3.3.6-a
#[test]
fn a_path_that_dies_costs_no_byte() {
    for kill_at in [120, 160, 200] {
        let mut paths = vec![PathScript::clean(10), PathScript::clean(20)];
        paths[0].dead_from = Some(Time::from_nanos(kill_at * 1_000_000));
        let mut net = Net::new("minrtt", "lia", paths);
        net.transfer(2_000_000);
        net.finish();
    }
}

#[test]
fn options_stripped_anywhere_end_in_fallback_or_reset_but_never_in_a_stall_or_a_wrong_byte() {
    for from in 0..14 {
        let mut path = PathScript::clean(10);
        path.strip_from = Some(from);
        let mut net = Net::new("minrtt", "lia", vec![path]);
        net.try_transfer(100_000);
        let reset = net.events.iter().any(|(_, event)| matches!(event, Event::Reset { .. }));
        assert!(net.delivered_all() || reset, "stalled when stripped from packet {from}");
    }
}

/// Plain TCP both ways at once, with losses: SACK blocks go with the data, and the packets stay within the
/// MTU for it.
#[test]
fn sack_beside_data_fits_the_path() {
    let mut net = Net::plain(vec![PathScript { loss: 0.03, ..PathScript::clean(10) }]);
    net.transfer_some(1000);
    let (log, server) = (net.log(), net.server.expect("accepted"));
    let answer = bytes(7, 400_000);
    net.sent[1].extend_from_slice(&answer);
    assert_eq!(net.ends[1].write(net.now, server, answer), Ok(400_000));
    net.transfer(400_000);
    net.finish();
    let mut beside = [0; 2];
    for (from, segment) in log.borrow().iter() {
        assert!(segment.wire_len() <= 1500, "{} bytes: {:?}", segment.wire_len(), segment.sack);
        beside[*from] += u32::from(!segment.payload.is_empty() && !segment.sack.is_empty());
    }
    assert!(beside.iter().all(|count| *count > 0), "{beside:?}");
}

#[test]
fn data_flows_both_ways_and_half_close_holds() {
    let mut net = Net::new("roundrobin", "reno", vec![PathScript::clean(10), PathScript::clean(15)]);
    net.transfer(150_000);
    net.reply(bytes(7, 120_000));
    net.finish();
}

#[test]
fn a_tiny_receive_window_is_respected_and_reopens() {
    let tiny = |config: &mut ropewalk_engine::config::ConnectionConfig| {
        config.receive_buffer = ropewalk_engine::config::BufferConfig::fixed(4_000);
    };
    let mut net = Net::with(tiny, "minrtt", "lia", vec![PathScript::clean(5), PathScript::clean(40)]);
    net.transfer(60_000);
    net.finish();
}

#[test]
fn the_same_run_twice_gives_the_same_packets() {
    let run = || {
        let mut paths = vec![PathScript::clean(10), PathScript::clean(25)];
        paths[0].loss = 0.02;
        let mut net = Net::new("minrtt", "lia", paths);
        net.seed(5);
        net.transfer(200_000);
        net.finish();
        net.digest
    };
    assert_eq!(run(), run());
}

#[test]
fn every_scheduler_delivers_every_byte() {
    for entry in ropewalk_engine::scheduler::builtin().entries() {
        let mut paths = vec![PathScript::clean(10), PathScript::clean(60)];
        paths[1].loss = 0.01;
        let mut net = Net::new(entry.name, "olia", paths);
        net.transfer(300_000);
        net.finish();
    }
}
