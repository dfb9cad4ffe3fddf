use proptest::prelude::*;
use ropewalk_wire::SyntheticPayload;

use super::*;
use crate::testing::WithoutSender as _;
use crate::{PathId, Span, SubflowId};

const LEN: u64 = 100;

fn apply(
    board: &mut Scoreboard<SyntheticPayload>,
    metrics: &mut SubflowMetrics,
    op: (u8, usize),
    end: &mut u64,
    now: Time,
) {
    let (op, n) = op;
    let count = board.entries.len();
    match op {
        0..=3 => {
            let (position, payload) = (*end, SyntheticPayload(LEN as u32));
            *end += LEN;
            let (lead, mapped, segments, rate) = (0, 0, 1, Stamp::default());
            let (flags, delivered, in_flight, lost, sent_at) = (0, 0, 0, 0, now);
            let tag = 0;
            let entry = Entry {
                position,
                tag,
                payload,
                flags,
                lead,
                mapped,
                segments,
                delivered,
                in_flight,
                lost,
                sent_at,
                rate,
            };
            board.push(entry);
        }
        _ if count == 0 => {}
        4 => {
            let una = board.entries[n % count].end();
            acknowledge(board, metrics, una);
        }
        5 => {
            // In the middle of an entry.
            let una = board.entries[n % count].end() - 1;
            acknowledge(board, metrics, una);
        }
        6 => {
            board.mark_sacked(n % count);
        }
        7 => {
            if let Some(index) = board.oldest_transmission() {
                board.entries[index].flags = LOST;
            }
        }
        8 => {
            if let Some(index) = board.entries.iter().position(|entry| entry.is(LOST)) {
                board.entries[index].flags |= RETRANS | EVER_RETRANS;
                board.entries[index].sent_at = now;
                board.log_retransmission(index);
            }
        }
        9 => board.split(n % count, board.entries[n % count].position + LEN / 4, metrics),
        10 => board.unmark_lost(),
        _ => board.forget_sacks(),
    }
}

/// Acknowledges up to `una`, of entries whose flags were changed without counting.
fn acknowledge(board: &mut Scoreboard<SyntheticPayload>, metrics: &mut SubflowMetrics, una: u64) {
    count(board, metrics);
    board.cumulative_ack(una, metrics, &mut AckSummary::default(), |_| true);
    let counted = [metrics.packets_out(), metrics.sacked_out(), metrics.lost_out(), metrics.retrans_out()];
    count(board, metrics);
    let left = [metrics.packets_out(), metrics.sacked_out(), metrics.lost_out(), metrics.retrans_out()];
    assert_eq!(counted, left);
    assert!(board.entries.front().is_none_or(|first| first.position >= una));
}

fn count(board: &Scoreboard<SyntheticPayload>, metrics: &mut SubflowMetrics) {
    let count = |flag: u8| {
        let entries = board.iter().filter(|entry| flag == 0 || entry.is(flag));
        entries.map(|entry| entry.segments).sum::<u32>()
    };
    metrics.set_packets_out(count(0));
    metrics.set_sacked_out(count(SACKED));
    metrics.set_lost_out(count(LOST));
    metrics.set_retrans_out(count(RETRANS));
}

/// Whether numbers and bits say what the entries do, where they say anything.
fn is_true(board: &Scoreboard<SyntheticPayload>) -> bool {
    let entries = || board.entries.iter().enumerate();
    let begins =
        entries().all(|(index, entry)| board.uniform_index(entry.position).is_none_or(|even| even == index));
    let Some(first) = board.entries.front() else { return begins };
    let Some(mut range) = board.uniform_range(first.position, board.end()) else { return begins };
    let clear: Vec<usize> = std::iter::from_fn(|| {
        let index = board.next_unsacked(range.clone())?;
        range.start = index + 1;
        Some(index)
    })
    .collect();
    begins && entries().filter(|(_, entry)| !entry.is(SACKED)).map(|(index, _)| index).eq(clear)
}

/// Tens of thousands of entries are in flight on a long fat path, and each cache line costs time.
#[test]
fn an_entry_whose_payload_is_only_a_length_takes_one_cache_line() {
    assert_eq!(size_of::<Entry<SyntheticPayload>>(), 64);
}

#[test]
fn bits_last_for_as_long_as_there_are_entries() {
    let (mut board, mut metrics) = (Scoreboard::new(), SubflowMetrics::new(SubflowId(0), PathId(0)));
    let mut end = 0;
    for round in 0..200 {
        for n in 0..150 {
            apply(&mut board, &mut metrics, (0, 0), &mut end, Time::from_nanos(round));
            if n % 3 > 0 || n > 90 {
                board.mark_sacked(board.entries.len() - 1);
            }
        }
        assert!(is_true(&board));
        let most = if round < 20 { 100 } else { 151 };
        let una = board.entries[most.min(board.entries.len()) - 1].end();
        acknowledge(&mut board, &mut metrics, una);
        assert!(is_true(&board));
    }
}

#[test]
fn entries_of_one_length_are_found_by_division() {
    let (mut board, mut metrics) = (Scoreboard::new(), SubflowMetrics::new(SubflowId(0), PathId(0)));
    let mut end = 0;
    for _ in 0..70 {
        apply(&mut board, &mut metrics, (0, 0), &mut end, Time::ZERO);
    }
    assert_eq!(board.uniform_range(0, 100), None, "no bitmap before the first SACK block");
    board.mark_sacked(3);
    for (left, right, range) in [
        (0, 100, Some(0..1)),
        (500, 700, Some(5..7)),
        (0, 7000, Some(0..70)),
        (50, 150, None),
        (0, 150, None),
        (6900, 7100, None),
        (7000, 7100, None),
    ] {
        assert_eq!(board.uniform_range(left, right), range, "{left}..{right}");
    }
    assert_eq!(board.uniform_index(end), None);
    assert_eq!((board.after_sacked(3), board.next_unsacked(3..5)), (4, Some(4)));
    board.mark_sacked(4);
    board.mark_sacked(5);
    assert_eq!(board.after_sacked(3), 6);
}

/// A cut entry delays the bitmap until it is acknowledged. What was marked meanwhile is in it then.
#[test]
fn a_late_bitmap_has_the_earlier_marks() {
    let (mut board, mut metrics) = (Scoreboard::new(), SubflowMetrics::new(SubflowId(0), PathId(0)));
    let mut end = 0;
    for n in 0..8 {
        if n == 3 {
            board.split(0, 40, &mut metrics);
        }
        apply(&mut board, &mut metrics, (0, 0), &mut end, Time::ZERO);
    }
    board.mark_sacked(5);
    assert_eq!(board.uniform_range(300, 400), None);
    acknowledge(&mut board, &mut metrics, 300);
    board.mark_sacked(3);
    assert_eq!(board.uniform_range(300, 800), Some(0..5));
    let clear: Vec<_> = (0..5).map(|index| board.next_unsacked(index..5)).collect();
    assert_eq!(clear, [Some(0), Some(2), Some(2), Some(4), Some(4)]);
}

proptest! {
    /// A log that isn't written says the same as one that is, from the first entry on.
    #[test]
    fn an_unwritten_log_is_the_same(ops in prop::collection::vec((0u8..12, 0usize..20, 0u64..2), 1..120)) {
        let mut boards = [Scoreboard::new(), Scoreboard::new()];
        let mut metrics = [(); 2].map(|()| SubflowMetrics::new(SubflowId(0), PathId(0)));
        let (mut ends, mut now) = ([0; 2], Time::ZERO);
        for (op, n, step) in ops {
            now += Span::from_nanos(step);
            for (index, (board, metrics)) in boards.iter_mut().zip(&mut metrics).enumerate() {
                apply(board, metrics, (op, n), &mut ends[index], now);
                if index == 1 {
                    board.keep_log(None);
                    board.in_order_from = u64::MAX;
                }
                prop_assert!(is_true(board));
            }
            let [implicit_from, written] = &mut boards;
            prop_assert_eq!(implicit_from.oldest_transmission(), written.oldest_transmission());
            let all = |board: &Scoreboard<SyntheticPayload>| {
                board.iter().map(|entry| (entry.position, entry.flags, entry.sent_at)).collect::<Vec<_>>()
            };
            prop_assert_eq!(all(implicit_from), all(written));
        }
    }
}
