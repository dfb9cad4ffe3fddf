//! How soon the receive buffer grows after a pause.

use crate::common::{Net, PathScript, bytes};
use ropewalk_engine::Span;
use ropewalk_engine::config::{BufferConfig, ReceiveTuning};

/// Two links of 6 MB/s, and one at a second of round-trip time: milliseconds for 4 MB that are sent after a
/// pause.
fn milliseconds(tuning: ReceiveTuning, pause: u64) -> u64 {
    let rate = |delay| PathScript { rate: Some(6_000_000), ..PathScript::clean(delay) };
    let paths = vec![rate(8), rate(25), rate(480)];
    let adjust = |config: &mut ropewalk_engine::config::ConnectionConfig| {
        config.send_buffer = BufferConfig::fixed(8 << 20);
        config.receive_buffer = BufferConfig { initial: 128 << 10, max: 6 << 20 };
        config.receive_tuning = tuning;
    };
    let mut net = Net::with(adjust, "ropewalk", "cubic", paths);
    net.transfer_some(1000);
    net.pass(pause);
    let (begin, before) = (net.now, net.received[1].len());
    net.send(bytes(7, 4_000_000));
    net.run(begin + Span::from_secs(60), |net| net.received[1].len() == before + 4_000_000);
    assert_eq!(net.received[1].len(), before + 4_000_000);
    (net.now - begin).as_millis()
}

/// Every subflow's first echo after the pause is as old as the pause.
#[test]
fn a_pause_before_the_data_holds_nothing_up() {
    let [soon, late] = [2000, 20_000].map(|pause| milliseconds(ReceiveTuning::Prompt, pause));
    assert!(soon < 700 && late < 700, "{soon} and {late} ms; the links take 350 ms");
    // What Linux does, which the simulator is to show.
    let linux = milliseconds(ReceiveTuning::Longest, 20_000);
    assert!(linux > late + 200, "{linux} ms");
}
