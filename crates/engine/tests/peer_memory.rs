//! A path dies with data under way, and the other goes on: what the peer then holds out of order leaves room
//! in its window for the memory that this takes beside its bytes, if the settings say so.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::common;

use common::{Net, PathScript, bytes};
use ropewalk_engine::Span;
use ropewalk_engine::config::{BufferConfig, LINUX_SEGMENT_OVERHEAD};

const MILLISECOND: Span = Span::from_millis(1);
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

/// Of each byte range that the client sends from now on: its DSN, its length, the subflow's port.
fn note_sent(net: &mut Net) -> Rc<RefCell<Vec<(u32, u32, u16)>>> {
    let sent = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&sent);
    net.tamper = Some(Box::new(move |from, segment| {
        if let (0, Some(mapping)) = (from, segment.dss.and_then(|dss| dss.mapping))
            && !segment.payload.is_empty()
        {
            seen.borrow_mut().push((mapping.dsn as u32, u32::from(mapping.len), segment.tuple.src_port));
        }
        true
    }));
    sent
}

/// How many bytes beyond the first that the peer lacks were under way on another subflow than this byte, at
/// most; the peer's receive buffer has `window` bytes. `delays`: the paths', ms.
fn beside_the_first(window: u64, overhead: u32, delays: &[u64]) -> u64 {
    let adjust = |config: &mut ropewalk_engine::config::ConnectionConfig| {
        config.receive_buffer = BufferConfig::fixed(window);
        config.peer_segment_overhead = overhead;
    };
    let paths = delays.iter().map(|delay| PathScript::clean(*delay)).collect();
    let mut net = Net::with(adjust, "roundrobin", "cubic", paths);
    let sent = note_sent(&mut net);
    net.transfer_some(100_000);
    net.pass(1_000);
    if delays[0] > 20 {
        // Windows that take the whole of the peer's at once.
        net.transfer_some(2_000_000);
    }
    let first = sent.borrow()[0].0;
    let begin = net.received[1].len();
    net.send(bytes(3, 1 << 20));
    let (mut most, start) = (0, net.now);
    for at in 1.. {
        let lacking = net.received[1].len() as u32;
        if net.received[1].len() >= begin + (1 << 20) {
            break;
        }
        assert!(at < 100_000, "{lacking} bytes, and it doesn't go on");
        net.run(start + at * MILLISECOND, |_| false);
        let sent = sent.borrow();
        let place = |dsn: u32| dsn.wrapping_sub(first);
        let head =
            sent.iter().rev().find(|(dsn, len, _)| place(*dsn) <= lacking && lacking < place(*dsn) + len);
        if let Some((_, _, port)) = head {
            let beside = sent.iter().filter(|(dsn, _, other)| place(*dsn) > lacking && other != port);
            most = most.max(beside.map(|(_, len, _)| u64::from(*len)).sum());
        }
    }
    most
}

/// A few segments out of order fill the memory of a peer with a window of a few segments: then it takes not
/// even the one that it lacks.
#[test]
fn a_peer_with_a_small_window_gets_data_on_one_subflow_at_a_time() {
    for window in [14_000, 22_720] {
        assert!(beside_the_first(window, 0, &[5, 8]) > 0);
        assert_eq!(beside_the_first(window, LINUX_SEGMENT_OVERHEAD, &[5, 8]), 0, "{window}");
    }
    assert!(beside_the_first(200_000, LINUX_SEGMENT_OVERHEAD, &[5, 8]) > 0, "a larger one on both");
}

/// The first byte that the peer lacks is on its way on the slow path, and nothing has arrived on the fast one
/// yet: what is under way there leaves room for its memory, too.
#[test]
fn what_is_under_way_beside_the_first_byte_leaves_room_for_its_memory() {
    let window = 80_896;
    let full = beside_the_first(window, 0, &[40, 45, 160]);
    let memory_of = |bytes: u64| bytes + bytes / 1_420 * u64::from(LINUX_SEGMENT_OVERHEAD);
    assert!(memory_of(full) > window, "{full} of {window} bytes");
    let spared = beside_the_first(window, LINUX_SEGMENT_OVERHEAD, &[40, 45, 160]);
    println!("{full} {spared}");
    assert!(memory_of(spared) <= window, "{spared} bytes take {} of {window}", memory_of(spared));
    assert!(spared >= window * 4 / 10, "{spared} of {window}: it is used well");
}

/// A lone subflow has filled the peer's window over a slow path, and a fast one is joined. How many bytes
/// beyond the first that the peer lacks are repeated on the fast one, which may bring them before, at most.
fn repeated_on_a_new_subflow(window: u64, overhead: u32) -> u64 {
    let adjust = |config: &mut ropewalk_engine::config::ConnectionConfig| {
        config.receive_buffer = BufferConfig::fixed(window);
        config.send_buffer = BufferConfig::fixed(4 << 20);
        config.tcp.cwnd.initial_window = 80;
        config.peer_segment_overhead = overhead;
    };
    let slow = PathScript { rate: Some(1_000_000), queue: 300 * MILLISECOND, ..PathScript::clean(5) };
    let mut net = Net::with(adjust, "ropewalk", "cubic", vec![slow, PathScript::clean(1)]);
    net.paths[1].dead_from = Some(net.now);
    let sent = note_sent(&mut net);
    net.send(bytes(3, 4 << 20));
    let start = net.now;
    net.run(start + 800 * MILLISECOND, |_| false);
    // The next SYN of the join arrives.
    net.paths[1].dead_from = None;
    let (first, _, slow_port) = sent.borrow()[0];
    let (mut most, start) = (0, net.now);
    for at in 0..1_500 {
        net.run(start + at * MILLISECOND, |_| false);
        let (lacking, sent) = (net.received[1].len() as u32, sent.borrow());
        let place = |dsn: u32| dsn.wrapping_sub(first);
        let holds = |(dsn, len, port): &&(u32, u32, u16)| {
            *port == slow_port && place(*dsn) <= lacking && lacking < place(*dsn) + len
        };
        if sent.iter().any(|piece| holds(&piece)) {
            let repeats = sent.iter().filter(|(dsn, _, port)| place(*dsn) > lacking && *port != slow_port);
            let repeats: BTreeMap<u32, u32> = repeats.map(|(dsn, len, _)| (*dsn, *len)).collect();
            let sum = repeats.values().map(|len| u64::from(*len)).sum();
            most = most.max(sum);
        }
    }
    net.run(start + 60_000 * MILLISECOND, |net| net.received[1].len() == 4 << 20);
    assert_eq!(net.received[1].len(), 4 << 20, "it ends");
    most
}

/// Linux 6.18 never moves what fills a gap once the rest, repeated on other subflows, has filled its memory.
#[test]
fn repeats_leave_room_for_the_memory_of_the_first_byte() {
    let window = 101_376;
    let memory_of = |bytes: u64| bytes + bytes / 1_420 * u64::from(LINUX_SEGMENT_OVERHEAD);
    let full = repeated_on_a_new_subflow(window, 0);
    assert!(memory_of(full) > window * 5 / 4, "{full} of {window} bytes");
    let spared = repeated_on_a_new_subflow(window, LINUX_SEGMENT_OVERHEAD);
    assert!(memory_of(spared) <= window, "{spared} bytes take {} of {window}", memory_of(spared));
    assert!(spared >= window * 4 / 10, "{spared} of {window}: it is used well");
}
