//! A path dies with data under way, and the other goes on: what the peer then holds out of order leaves room
//! in its window for the memory that this takes beside its bytes, if the settings say so.

use std::cell::Cell;
use std::rc::Rc;

use crate::common;

use common::{Net, PathScript, bytes};
use ropewalk_engine::Nanos;
use ropewalk_engine::config::{BufferConfig, LINUX_SEGMENT_OVERHEAD};

const MILLISECOND: Nanos = 1_000_000;
const WINDOW: u64 = 256 << 10;

/// Bytes sent beyond the first that the peer lacks, shortly after the first path has died: at most, before
/// anything is reinjected.
fn sent_beyond_the_gap(overhead: u32) -> u64 {
    let mut script = PathScript::clean(5);
    script.rate = Some(10_000_000);
    let adjust = |config: &mut ropewalk_engine::config::ConnectionConfig| {
        config.receive_buffer = BufferConfig::fixed(WINDOW);
        config.send_buffer = BufferConfig::fixed(4 * WINDOW);
        config.peer_segment_overhead = overhead;
    };
    let mut net = Net::with(adjust, "minrtt", "cubic", vec![script.clone(), script]);
    // The highest DSN of data so far, from the first one's on.
    let end = Rc::new(Cell::new((None, 0)));
    let seen = Rc::clone(&end);
    net.tamper = Some(Box::new(move |from, segment| {
        if let (0, Some(mapping)) = (from, segment.dss.and_then(|dss| dss.mapping))
            && !segment.payload.is_empty()
        {
            let (first, most) = seen.get();
            let first = first.unwrap_or(mapping.dsn as u32);
            let last = (mapping.dsn as u32).wrapping_sub(first).wrapping_add(u32::from(mapping.len));
            seen.set((Some(first), most.max(u64::from(last))));
        }
        true
    }));
    net.transfer_some(100_000);
    // After a pause either path begins with a small window.
    net.pass(3_000);
    let death = net.now;
    net.paths[0].dead_from = Some(death);
    net.send(bytes(3, 40 << 20));
    let mut most = 0;
    for at in 0..150 {
        net.run(death + at * MILLISECOND, |_| false);
        most = most.max(end.get().1 - net.received[1].len() as u64);
    }
    net.run(death + 4_000 * MILLISECOND, |net| net.received[1].len() > 10 << 20);
    assert!(net.received[1].len() > 10 << 20, "the other path takes over");
    assert!(net.sent[0].starts_with(&net.received[1]), "bytes differ");
    most
}

#[test]
fn what_the_peer_holds_out_of_order_leaves_room_for_its_memory() {
    let full = sent_beyond_the_gap(0);
    assert!(full > WINDOW * 95 / 100 && full <= WINDOW, "{full} of {WINDOW} bytes");
    let spared = sent_beyond_the_gap(LINUX_SEGMENT_OVERHEAD);
    // With what Linux counts for it.
    let memory = spared + spared / 1_420 * u64::from(LINUX_SEGMENT_OVERHEAD);
    assert!(memory <= WINDOW * 104 / 100, "{spared} bytes take {memory} of {WINDOW}");
    assert!(memory >= WINDOW * 9 / 10, "{spared} bytes take {memory} of {WINDOW}: it is used well");
}
