//! A path stops delivering in mid-transfer while super-segments of many chunks are in flight. The other path
//! takes over all their data, and the transfer continues at that path's full rate.

use crate::common;

use common::{Net, PathScript, bytes};
use ropewalk_engine::{Span, Time, scheduler};

const SECOND: Span = Span::from_secs(1);
/// When the second path stops delivering.
const DEATH: Time = Time::from_nanos(2_000_000_000);
/// What a path carries in a second, with headers.
const RATE: usize = 5_000_000;

/// Sends over two paths, the second of which stops delivering. Returns the bytes that arrive in the first and
/// in the second second after that, and the segments of the longest super-segment.
fn arrivals(scheduler: &str, max_segments: u32) -> ([usize; 2], usize) {
    let mut script = PathScript::clean(10);
    script.rate = Some(RATE as u64);
    script.batch = Span::from_millis(5);
    let mut paths = vec![script.clone(), script];
    paths[1].dead_from = Some(DEATH);
    let mut net = Net::with(|_| {}, scheduler, "cubic", paths);
    net.max_segments = [max_segments; 2];
    net.send(bytes(3, 60 << 20));
    let arrived = [DEATH, DEATH + SECOND, DEATH + 2 * SECOND].map(|until| {
        net.run(until, |_| false);
        net.received[1].len()
    });
    assert!(net.sent[0].starts_with(&net.received[1]), "{scheduler}: bytes differ");
    ([arrived[1] - arrived[0], arrived[2] - arrived[1]], net.longest)
}

#[test]
fn the_other_path_takes_over_all_that_super_segments_carried() {
    let mut failures = Vec::new();
    for entry in scheduler::builtin().entries() {
        for max_segments in [1, 44] {
            let ([first, second], longest) = arrivals(entry.name, max_segments);
            let name = entry.name;
            // `daps` follows its plan, without the dead path's share, until the second timeout makes that
            // path stale.
            let least = if name == "daps" { 0 } else { RATE / 2 };
            let uses_both = !["single", "redundant"].contains(&name);
            assert!(max_segments == 1 || !uses_both || longest > 40, "{name}: {longest} segments at most");
            if first < least || second < RATE * 9 / 10 {
                failures
                    .push(format!("{name}, {max_segments} segments: {first}, then {second} bytes a second"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// `linux` hands a path 64 KB at a time, beyond its window: chunks are longer than the segments that carried
/// them.
#[test]
fn chunks_of_many_segments_go_again_whole() {
    let mut fast = PathScript::clean(10);
    fast.rate = Some(2_500_000);
    fast.dead_from = Some(Time::ZERO + SECOND / 2);
    let mut slow = PathScript::clean(30);
    slow.rate = Some(1_250_000);
    slow.queue = Span::from_millis(400);
    let mut net = Net::new("linux", "cubic", vec![fast, slow]);
    net.transfer(4 << 20);
    // 3.1 MB are left for the slow path when the other one stops delivering.
    assert!(net.now < Time::ZERO + 3 * SECOND + SECOND / 4, "it took {} ms", net.now.as_millis());
    let stats = net.ends[0].connection(net.client).expect("it is open").stats(net.now);
    assert!(stats.reinjected_bytes <= 1 << 20, "{} bytes reinjected", stats.reinjected_bytes);
}
