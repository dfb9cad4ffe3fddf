//! What an end does as in MPTCP 0.8x and 0.9x: `data_ack_first`, `subflow_windows`, `whole_segments`,
//! `short_dsn`, `old_acks`.

use crate::common::{Net, PathScript};
use ropewalk_engine::Time;
use ropewalk_engine::config::{BufferConfig, ConnectionConfig};

fn net(adjust: impl FnOnce(&mut ConnectionConfig), window: u64) -> Net {
    let adjust = |config: &mut ConnectionConfig| {
        config.receive_buffer = BufferConfig::fixed(window);
        adjust(config);
    };
    Net::with(adjust, "minrtt:linux", "cubic", vec![PathScript::clean(5), PathScript::clean(50)])
}

/// Over 10 and 100 ms with a window of 32 KiB: at a DATA_ACK the fast subflow's own window is full, so that
/// the segments for which there is room go to the slow one.
#[test]
fn a_data_ack_before_the_ack_sends_on_the_other_subflow() {
    let on_slow = |first: bool, by_window: bool| {
        let mut net =
            net(|config| (config.data_ack_first, config.subflow_windows) = (first, by_window), 32 << 10);
        net.transfer(1_000_000);
        net.bytes_by_subflow()[1]
    };
    let (with_ack, first, by_window) = (on_slow(false, false), on_slow(true, false), on_slow(true, true));
    assert!(
        by_window > 2 * with_ack.max(first),
        "{by_window} bytes, {with_ack} with the ACK, {first} by cwnd"
    );
}

#[test]
fn dsns_of_32_bits_leave_four_bytes_more_to_each_segment() {
    let longest = |short: bool| {
        let mut net = net(|config| config.short_dsn = short, 1 << 20);
        let log = net.log();
        net.transfer(200_000);
        let log = log.borrow();
        let data = log.iter().filter(|(from, segment)| *from == 0 && segment.payload.len() > 1000);
        // The first comes with the keys.
        let lengths = data.filter_map(|(_, segment)| {
            let mapping = segment.dss.and_then(|dss| dss.mapping)?;
            assert_eq!(mapping.dsn_is_64, !short);
            Some(segment.payload.len())
        });
        lengths.max().expect("there is data")
    };
    assert_eq!([longest(false), longest(true)], [1424, 1428]);
}

/// A window of ten and a half segments: half a segment is sent, or none.
#[test]
fn only_whole_segments_go_into_the_rest_of_a_window() {
    let shortest = |whole: bool| {
        let mut net = net(|config| config.whole_segments = whole, 15_000);
        let log = net.log();
        net.transfer(142_000);
        let log = log.borrow();
        let lengths = log.iter().filter(|(from, segment)| *from == 0 && !segment.payload.is_empty());
        // The last segment ends the data.
        let mut lengths: Vec<usize> = lengths.map(|(_, segment)| segment.payload.len()).collect();
        lengths.sort_unstable();
        lengths[1]
    };
    assert!(shortest(false) < 1000 && shortest(true) > 1300, "{} {}", shortest(false), shortest(true));
}

/// All of it together, with losses and a path that dies.
#[test]
fn transfers_are_complete_by_the_old_rules() {
    for (loss, dead_from) in [(0.0, None), (0.03, None), (0.02, Some(Time::from_nanos(300_000_000)))] {
        let adjust = |config: &mut ConnectionConfig| {
            (config.data_ack_first, config.subflow_windows) = (true, true);
            (config.short_dsn, config.whole_segments, config.tcp.old_acks) = (true, true, true);
            (config.send_segment_memory, config.receive_segment_memory) = (4352, 4352);
            config.receive_buffer = BufferConfig::fixed(64 << 10);
            config.send_buffer = BufferConfig::fixed(128 << 10);
            config.tcp.initial_receive_window = 20;
            config.tcp.recovery.forward_retransmit = true;
            config.tcp.recovery.loss_detection = ropewalk_engine::config::LossDetection::DuplicateAcks;
        };
        for scheduler in
            ["minrtt:linux", "minrtt:mptcp-0.94", "roundrobin:mptcp-0.95", "blest:linux", "ecf:linux"]
        {
            let first = PathScript { loss, dead_from, ..PathScript::clean(5) };
            let mut net = Net::with(adjust, scheduler, "cubic", vec![first, PathScript::clean(30)]);
            net.transfer(700_000);
        }
    }
}
