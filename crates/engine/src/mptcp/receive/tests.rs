//! Tests of the receive side.

use crate::Time;
use bytes::Bytes;

use super::{FEW_UNREAD, MAX_COALESCED, ReceiveSide, Span};
use crate::mptcp::window_autotuning::{Growth, Interval, WindowAutotuning};

fn side() -> ReceiveSide<Bytes> {
    ReceiveSide::new(1000, 1000, 0)
}

/// A whole round trip.
fn whole(rtt: Span) -> Interval {
    Interval { length: rtt, stands_for: rtt, look_after: Span::MAX, growth: Growth::Proportional }
}

#[test]
fn what_nobody_reads_is_held_in_few_pieces_that_share_no_memory() {
    let bytes: Bytes = (0..100_000u32).map(|at| (at % 251) as u8).collect();
    let mut side = ReceiveSide::new(1 << 20, 1 << 20, 0);
    for at in 0..bytes.len() {
        side.insert(Time::ZERO, at as u64, bytes.slice(at..=at));
    }
    assert!(side.ready.len() <= FEW_UNREAD + 2 * bytes.len() / MAX_COALESCED, "{}", side.ready.len());
    let memory = bytes.as_ptr_range();
    let shared = side.ready.iter().filter(|piece| memory.contains(&piece.as_ptr())).count();
    assert!(shared <= FEW_UNREAD, "{shared} pieces share memory");
    assert_eq!(side.buffer.ready, bytes.len() as u64);
    assert_eq!(side.read(usize::MAX).unwrap(), bytes);
}

#[test]
fn what_is_out_of_order_shares_no_memory() {
    let bytes = Bytes::from(vec![7; 1000]);
    let mut side = side();
    for at in [100, 300, 200] {
        side.insert(Time::ZERO, at, bytes.slice(at as usize..at as usize + 50));
    }
    let memory = bytes.as_ptr_range();
    let ofo = &side.ofo.expect("there is data out of order").list;
    assert!(ofo.iter().all(|(_, piece, ())| !memory.contains(&piece.as_ptr())));
}

//= test RFC 8684 3.3.1-2 3.3.1-3
#[test]
fn overlapping_pieces_come_out_once_and_in_order() {
    let text = Bytes::from_static(b"0123456789");
    let mut side = side();
    assert!(!side.insert(Time::ZERO, 4, text.slice(4..6)));
    assert!(!side.insert(Time::ZERO, 2, text.slice(2..8)));
    assert!(!side.insert(Time::ZERO, 9, text.slice(9..10)));
    assert_eq!((side.ofo_bytes(), side.duplicate_bytes), (7, 2));
    assert!(side.insert(Time::ZERO, 0, text.slice(0..3)));
    assert_eq!((side.buffer.next, side.ofo_bytes()), (8, 1));
    assert!(side.insert(Time::ZERO, 7, text.slice(7..10)));
    assert_eq!(side.buffer.next, 10);
    assert_eq!(side.read(4).unwrap(), "0123");
    assert_eq!(side.read(100).unwrap(), "456789");
    assert!(side.read(1).is_none());
}

//= test RFC 8684 3.3.4-b
/// All that the window allowed comes in the worst order, after the buffer's limit has fallen.
#[test]
fn what_was_offered_is_taken() {
    let mut side = side();
    assert_eq!(side.buffer.window(), 1000);
    side.buffer.advertised_end = 1000;
    side.buffer.limit = 100;
    for piece in (0..10).rev() {
        side.insert(Time::ZERO, piece * 100, Bytes::from(vec![piece as u8; 100]));
    }
    assert_eq!((side.buffer.next, side.duplicate_bytes), (1000, 0));
}

#[test]
fn one_byte_pieces_of_the_stream_are_bounded_by_memory() {
    let mut side: ReceiveSide<Bytes> = ReceiveSide::new(1 << 20, 1 << 20, 0);
    for n in 0..200_000 {
        side.insert(Time::ZERO, 1 + 2 * n, Bytes::from_static(b"x"));
    }
    let memory = side.ofo.as_ref().map(|ofo| ofo.list.memory());
    assert!(memory.is_some_and(|memory| memory <= 2 << 20 | 256), "{memory:?}");
    // What is needed first takes the place of what is needed last.
    let kept = side.ofo_bytes();
    side.insert(Time::ZERO, 2, Bytes::from_static(b"x"));
    assert_eq!((side.ofo_bytes(), side.insert(Time::ZERO, 0, Bytes::from_static(b"x"))), (kept, true));
    assert_eq!(side.buffer.next, 4);
}

#[test]
fn pieces_are_read_as_they_arrived() {
    let text = Bytes::from_static(b"0123456789");
    let mut side = side();
    side.insert(Time::ZERO, 0, text.slice(0..6));
    side.insert(Time::ZERO, 6, text.slice(6..10));
    assert_eq!(side.read_piece(4).unwrap(), "0123");
    assert_eq!(side.read_piece(4).unwrap(), "45");
    let last = side.read_piece(100).unwrap();
    assert_eq!((last.as_ptr(), side.buffer.ready), (text[6..].as_ptr(), 0), "not a copy");
    assert!(side.read_piece(1).is_none());
}

#[test]
fn every_repeated_byte_is_counted() {
    let mut side = side();
    for (offset, len, repeated) in [(0, 4, 0), (2, 4, 2), (4, 4, 4), (0, 3, 7), (8, 1, 7)] {
        side.insert(Time::ZERO, offset, Bytes::from(vec![0; len]));
        assert_eq!(side.duplicate_bytes, repeated);
    }
}

#[test]
fn the_queue_is_weighed_by_time() {
    let mut side = side();
    side.insert(Time::from_nanos(10), 5, Bytes::from_static(b"abc"));
    side.insert(Time::from_nanos(30), 10, Bytes::from_static(b"abc"));
    assert_eq!(side.ofo_integral(Time::from_nanos(40)), 3 * 20 + 6 * 10);
    assert_eq!(side.ofo_max(), 6);
}

#[test]
fn the_buffer_grows_with_what_is_read_in_a_round_trip() {
    let mut side = ReceiveSide::new(10_000, 1_000_000, 0);
    let bytes = |side: &mut ReceiveSide<Bytes>, len: usize| {
        side.insert(Time::ZERO, side.buffer.next, Bytes::from(vec![0; len]));
        side.read(len);
    };
    bytes(&mut side, 1448);
    side.tune(Time::from_nanos(100), whole(Span::ZERO), 128);
    side.tune(Time::from_nanos(100), whole(Span::from_nanos(100)), 128);
    bytes(&mut side, 27_512);
    side.tune(Time::from_nanos(199), whole(Span::from_nanos(100)), 128);
    assert_eq!(side.buffer.limit, 10_000, "the first round trip begins with the first data");
    side.tune(Time::from_nanos(200), whole(Span::from_nanos(100)), 128);
    // Twice what was read, three times over since it has doubled.
    assert_eq!(side.buffer.limit, 3 * 2 * 28_960);
    let limit = side.buffer.limit;
    assert!(!side.tuning_due(Time::from_nanos(299)) && side.tuning_due(Time::from_nanos(300)));
    bytes(&mut side, 28_960);
    side.tune(Time::from_nanos(300), whole(Span::from_nanos(100)), 128);
    assert_eq!(side.buffer.limit, limit, "no more than before");
    bytes(&mut side, 900_000);
    side.tune(Time::from_nanos(399), whole(Span::from_nanos(100)), 128);
    assert_eq!(side.buffer.limit, limit, "the round trip isn't over");
    side.tune(Time::from_nanos(400), whole(Span::from_nanos(100)), 128);
    assert_eq!(side.buffer.limit, 1_000_000);
}

#[test]
fn a_part_of_a_round_trip_stands_for_the_whole() {
    let mut side: ReceiveSide<Bytes> = ReceiveSide::new(10_000, 1_000_000, 0);
    let part = Interval {
        length: Span::from_nanos(25),
        stands_for: Span::from_nanos(100),
        look_after: Span::from_nanos(10),
        growth: Growth::Proportional,
    };
    side.tune(Time::from_nanos(100), part, 128);
    assert!(side.tuning_due(Time::from_nanos(110)), "it may have become shorter");
    side.insert(Time::ZERO, 0, Bytes::from(vec![0; 7240]));
    side.read(7240);
    side.tune(Time::from_nanos(110), part, 128);
    assert_eq!(side.buffer.limit, 10_000);
    side.tune(Time::from_nanos(125), part, 128);
    assert_eq!(side.buffer.limit, 3 * 2 * 4 * 7240);
}

#[test]
fn a_buffer_that_grows_at_once_is_offered_bit_by_bit_and_the_subflow_that_opened_most_decides() {
    let mut side: ReceiveSide<Bytes> = ReceiveSide::new(65_536, 6_000_000, 0);
    let mut autotuning = [WindowAutotuning::new(65_536, 6_000_000, 0); 2];
    side.buffer.limit = 1_000_000;
    autotuning.iter_mut().for_each(|autotuning| autotuning.grow(Growth::Proportional, 200_000, 6_000_000));
    assert_eq!(side.buffer.window(), 64_088);
    side.open(&mut autotuning[0], 1448);
    assert_eq!(side.buffer.window(), 64_088 + 2 * 1460);
    for _ in 0..2 {
        side.open(&mut autotuning[1], 1448);
    }
    assert_eq!(side.buffer.window(), 64_088 + 4 * 1460);
    side.open(&mut autotuning[0], 2_000_000);
    assert_eq!(side.buffer.window(), 1_000_000, "no further than the buffer");
}

/// A 6.18 kernel, by `ss -tMim`: rb131072 is 65,536 bytes of window while one subflow has had no data,
/// rb235936 117,968, rb382600 191,300; and that is 234,641 once both have, without having grown.
#[test]
fn a_subflow_without_data_makes_the_window_smaller() {
    let mut side: ReceiveSide<Bytes> = ReceiveSide::new(65_536, 6 << 20, 0);
    let read = |side: &mut ReceiveSide<Bytes>, now, len: usize, ratio| {
        side.insert(Time::ZERO, side.buffer.next, Bytes::from(vec![0; len]));
        side.read(len);
        side.tune(now, whole(Span::from_nanos(100)), ratio)
    };
    assert_eq!(read(&mut side, Time::from_nanos(1), 1420, 157), None);
    assert_eq!(side.buffer.limit, 80_384, "alone, and its data known");
    assert_eq!(read(&mut side, Time::from_nanos(2), 0, 128), None);
    assert_eq!(side.buffer.limit, 65_536);
    assert_eq!(
        read(&mut side, Time::from_nanos(101), 18_460 - 1420, 128),
        None,
        "57,216 are no more than there is"
    );
    assert_eq!(read(&mut side, Time::from_nanos(201), 28_400, 128), Some(28_400));
    assert_eq!(side.buffer.limit, 117_968);
    assert_eq!(read(&mut side, Time::from_nanos(301), 44_632, 128), Some(44_632));
    assert!(side.buffer.limit.abs_diff(191_300) <= 2, "{}", side.buffer.limit);
    assert_eq!(read(&mut side, Time::from_nanos(401), 1420, 157), None);
    assert!(side.buffer.limit.abs_diff(234_641) <= 4, "{}", side.buffer.limit);
}

//= test RFC 8684 3.3.4-1
//= test RFC 9293 SHLD-14
#[test]
fn the_window_never_moves_left() {
    let mut side = side();
    assert_eq!(side.buffer.window(), 1000);
    side.buffer.advertised_end = 1000;
    side.insert(Time::ZERO, 0, Bytes::from(vec![0; 600]));
    assert_eq!(side.buffer.window(), 400);
    side.buffer.limit = 500;
    assert_eq!(side.buffer.window(), 400);
    side.read(600);
    assert_eq!(side.buffer.window(), 400, "by a hundred bytes it isn't worth moving");
    side.buffer.limit = 1000;
    assert_eq!(side.buffer.window(), 1000);
}

//= test RFC 8684 3.3.3-a
#[test]
fn the_end_takes_one_number() {
    let mut side = side();
    side.note_fin(3);
    assert!(!side.check_finished());
    side.insert(Time::ZERO, 0, Bytes::from_static(b"abc"));
    assert!(side.check_finished() && !side.check_finished());
    assert_eq!(side.ack(), 4);
}

/// In Linux 3.14 the connection has one limit (`tcp_grow_window` of MPTCP 0.89 raises the meta socket's), and
/// what comes on either subflow opens it.
#[test]
fn an_old_hosts_window_opens_with_what_comes_on_any_subflow() {
    let mut side: ReceiveSide<Bytes> = ReceiveSide::new(187_200, 3 << 20, 20);
    let mut autotuning = [WindowAutotuning::new(187_200, 3 << 20, 20); 2];
    assert_eq!(side.buffer.opened, 28_960);
    for arrived in 0..10 {
        side.open(&mut autotuning[arrived % 2], 1448);
    }
    assert_eq!(side.buffer.opened, 28_960 + 10 * 2 * 1460);
}

/// A subflow that joins brings its own first window and buffer (`mptcp_init_buffer_space` of MPTCP 0.89),
/// where the buffer may grow; today's has the connection's.
#[test]
fn on_an_old_host_a_new_subflow_adds_its_window() {
    let joined = |max, segments| {
        let mut side: ReceiveSide<Bytes> = ReceiveSide::new(187_200, max, segments);
        side.add_subflow(187_200, &WindowAutotuning::new(187_200, max, segments));
        (side.buffer.limit, side.buffer.opened)
    };
    assert_eq!(joined(3 << 20, 20), (2 * 187_200, 2 * 28_960));
    assert_eq!(joined(200_000, 20), (200_000, 2 * 28_960), "no larger than it may grow");
    assert_eq!(joined(187_200, 20), (187_200, 28_960), "a fixed buffer");
    assert_eq!(joined(3 << 20, 0), (187_200, 65_535), "Linux 6.18");
}
