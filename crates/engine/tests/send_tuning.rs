//! What a growing send buffer follows (`send_tuning`), and a send buffer whose size counts memory
//! (`send_segment_memory`).

use crate::common::{Net, PathScript, bytes};
use ropewalk_engine::Span;
use ropewalk_engine::config::{BufferConfig, ConnectionConfig, SendTuning};

const MILLISECOND: Span = Span::from_millis(1);

/// The send buffer 50 ms after an application has begun to write 4 MB, over 10 and 100 ms of round-trip time.
fn buffer(tuning: SendTuning) -> u64 {
    let adjust = |config: &mut ConnectionConfig| {
        config.send_buffer = BufferConfig { initial: 16 << 10, max: 4 << 20 };
        config.send_tuning = tuning;
    };
    let mut net = Net::with(adjust, "minrtt", "cubic", vec![PathScript::clean(5), PathScript::clean(50)]);
    net.transfer_some(1000);
    net.pass(200);
    net.send(bytes(3, 4_000_000));
    let end = net.now + 50 * MILLISECOND;
    net.run(end, |_| false);
    let buffer = net.ends[0].connection(net.client).expect("open").info(net.now).sndbuf;
    net.run(end + 60_000 * MILLISECOND, |net| net.received[1].len() == 4_001_000);
    assert_eq!(net.received[1].len(), 4_001_000);
    buffer
}

/// What the fast subflow's window carries in the slow one's round trip is ten times the window: the buffer is
/// soon at its largest.
#[test]
fn with_the_longest_round_trip_the_fast_subflows_part_is_larger() {
    let [own, longest] = [SendTuning::OwnWindow, SendTuning::LongestRoundTrip].map(buffer);
    assert!(longest > own + own / 4, "{longest} and {own} bytes");
    assert!(longest <= 4 << 20);
}

/// Where a segment of 1420 bytes of payload takes 4352 bytes of memory, a buffer holds as many segments as
/// begin in its size: at first, and after `set_send_buffer`.
#[test]
fn a_buffer_that_counts_memory_holds_less_payload() {
    let with_memory = |memory| {
        let adjust = move |config: &mut ConnectionConfig| {
            config.send_buffer = BufferConfig { initial: 16 << 10, max: 4 << 20 };
            config.send_segment_memory = memory;
        };
        let mut net = Net::with(adjust, "minrtt", "cubic", vec![PathScript::clean(10)]);
        net.transfer_some(1000);
        let at_first = net.ends[0].connection(net.client).expect("open").info(net.now).sndbuf;
        let fixed = net.ends[0].set_send_buffer(net.now, net.client, BufferConfig::fixed(1 << 20));
        assert_eq!(fixed, Ok(()));
        (at_first, net.ends[0].connection(net.client).expect("open").info(net.now).sndbuf)
    };
    assert_eq!(with_memory(0), (16 << 10, 1 << 20));
    assert_eq!(with_memory(4352), (4 * 1420, 241 * 1420));
}
