use ropewalk_wire::{SackBlocks, SyntheticPayload};

use super::{InOrder, LEAST_UNIT, Mapping, Note, Placement, ReassemblyQueue};

fn report(reassembly: &mut ReassemblyQueue<SyntheticPayload>, room: usize) -> Vec<(u32, u32)> {
    let mut blocks = SackBlocks::default();
    reassembly.sack_blocks(0, room, &mut blocks);
    blocks.as_slice().to_vec()
}

fn blocks(reassembly: &mut ReassemblyQueue<SyntheticPayload>) -> Vec<(u32, u32)> {
    report(reassembly, 4)
}

//= test RFC 2018 4-b 4-d
/// RFC 2018 section 4, case 2: eight segments of 500 bytes from 5000 on, the first is lost.
#[test]
fn rfc_2018_case_2_first_segment_dropped() {
    let mut reassembly = ReassemblyQueue::default();
    for n in 1..8u64 {
        reassembly.insert(5000 + n * 500, SyntheticPayload(500), Mapping::default());
        assert_eq!(blocks(&mut reassembly), [(5500, 6000 + (n as u32 - 1) * 500)]);
    }
}

//= test RFC 2018 4-b 4-d
/// RFC 2018 section 4, case 3: the 2nd, 4th, 6th and 8th are lost; then the 4th arrives, and the 2nd.
#[test]
fn rfc_2018_case_3_every_other_segment_dropped() {
    let mut reassembly = ReassemblyQueue::default();
    reassembly.insert(6000, SyntheticPayload(500), Mapping::default());
    assert_eq!(blocks(&mut reassembly), [(6000, 6500)]);
    reassembly.insert(7000, SyntheticPayload(500), Mapping::default());
    assert_eq!(blocks(&mut reassembly), [(7000, 7500), (6000, 6500)]);
    reassembly.insert(8000, SyntheticPayload(500), Mapping::default());
    assert_eq!(blocks(&mut reassembly), [(8000, 8500), (7000, 7500), (6000, 6500)]);
    reassembly.insert(6500, SyntheticPayload(500), Mapping::default());
    assert_eq!(blocks(&mut reassembly), [(6000, 7500), (8000, 8500)]);
    reassembly.insert(5500, SyntheticPayload(500), Mapping::default());
    assert_eq!(reassembly.pop(5500), Some((5500, SyntheticPayload(500), Mapping::default())));
    for position in [6000, 6500, 7000] {
        assert_eq!(reassembly.pop(position), Some((position, SyntheticPayload(500), Mapping::default())));
    }
    assert_eq!(reassembly.pop(7500), None);
    assert_eq!(blocks(&mut reassembly), [(8000, 8500)]);
    assert_eq!(reassembly.bytes(), 500);
}

//= test RFC 2018 4-e
/// A duplicate of what was received is reported first, once.
#[test]
fn rfc_2883_a_duplicate_is_reported_once_and_first() {
    let mut reassembly = ReassemblyQueue::default();
    reassembly.insert(4000, SyntheticPayload(500), Mapping::default());
    reassembly.insert(4000, SyntheticPayload(500), Mapping::default());
    assert_eq!(blocks(&mut reassembly), [(4000, 4500), (4000, 4500)]);
    assert_eq!(blocks(&mut reassembly), [(4000, 4500)]);
    assert_eq!(reassembly.bytes(), 500);
}

//= test RFC 2018 4-e
/// A segment of which a part was received: only that part is the duplicate.
#[test]
fn rfc_2883_a_partial_duplicate() {
    let (inner, whole) = (Mapping::new(7500, 500, 0, 0), Mapping::new(7000, 1500, 0, 0));
    let mut reassembly = ReassemblyQueue::default();
    reassembly.insert(1500, SyntheticPayload(500), inner);
    reassembly.insert(1000, SyntheticPayload(1500), whole);
    assert_eq!(blocks(&mut reassembly), [(1500, 2000), (1000, 2500)]);
    assert_eq!(reassembly.bytes(), 1500);
    assert_eq!(reassembly.pop(1000), Some((1000, SyntheticPayload(500), whole)));
    assert_eq!(reassembly.pop(1500), Some((1500, SyntheticPayload(500), inner)));
    assert_eq!(reassembly.pop(2000), Some((2000, SyntheticPayload(500), whole.after(1000))));
    assert!(reassembly.is_empty());
}

/// What is tidied by what has changed since the last report is as if every block were looked for, whatever
/// overlaps and however much comes between two reports.
#[test]
fn tidying_by_what_changed_is_as_tidying_all() {
    let mut state = 11u64;
    let mut next = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    for _ in 0..500 {
        let mut both = [ReassemblyQueue::default(), ReassemblyQueue::default()];
        let mut at = 0;
        for _ in 0..60 {
            let gap = if next(6) == 0 { 0 } else { 1 + next(60) };
            let (position, len, room) = (at + gap, 1 + next(4), next(5) as usize);
            let reports = next(4) > 0;
            let mut seen = [(); 2].map(|()| Vec::new());
            let mut in_order = at;
            for (reassembly, seen) in both.iter_mut().zip(&mut seen) {
                reassembly.insert(position, SyntheticPayload(len as u32), Mapping::default());
                in_order = at;
                while let Some((from, piece, _)) = reassembly.pop(in_order) {
                    in_order = from + u64::from(piece.0);
                    seen.push((from as u32, in_order as u32));
                }
            }
            at = in_order;
            both[1].unpruned = 2;
            for (reassembly, seen) in both.iter_mut().zip(&mut seen).filter(|_| reports) {
                seen.extend(report(reassembly, room));
                seen.extend(
                    reassembly.recent[..reassembly.recent_len].iter().map(|known| (*known as u32, 0)),
                );
            }
            assert_eq!(seen[0], seen[1]);
        }
    }
}

/// SegmentList that lie in a ring come out as those in a list would, and as much is reported of them: nearly
/// all of one length, some repeated, some cut otherwise, some far ahead.
#[test]
fn a_ring_is_as_a_list() {
    const UNIT: u64 = LEAST_UNIT as u64;
    let mut state = 3u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    let mut in_ring = 0;
    for round in 0..300 {
        let mut both = [ReassemblyQueue::default(), ReassemblyQueue::default()];
        let window = [10, 80, 400][round % 3];
        let odd = [40, 1000][round % 2];
        let mut next = 7 + random(1 << 20);
        let mut untaken: Vec<u64> = Vec::new();
        let mut end = next;
        for _ in 0..1500 {
            while (end - next) / UNIT < window {
                untaken.push(end);
                end += UNIT;
            }
            let (position, len) = match random(odd) {
                0 => (next + random(window * UNIT), 1 + random(3 * UNIT)),
                1 => (next + UNIT * random(window), UNIT),
                2 => (next + UNIT * random(3 * window), UNIT),
                // Of a cell that was cut the rest.
                _ if untaken.is_empty() => (next, UNIT),
                // What is missing longest comes soonest.
                _ => {
                    let index = random(window).min(random(window)) as usize;
                    (untaken.remove(index.min(untaken.len() - 1)), UNIT)
                }
            };
            if position + len <= next || position < next {
                continue;
            }
            let (room, reports) = (random(5) as usize, random(4) > 0);
            let mut seen = [(); 2].map(|()| Vec::new());
            let mut in_order = next;
            both[0].ring_delay = u32::MAX;
            for (reassembly, seen) in both.iter_mut().zip(&mut seen) {
                in_order = next;
                let mut ready = InOrder::new();
                let offset = position + 1000;
                let mapping = Mapping { offset, skip: 0, len: len as u16, checksum: 7 };
                let data = SyntheticPayload(len as u32);
                seen.push((
                    reassembly.place(&mut in_order, 1 << 40, position, data, mapping, &mut ready) as u64,
                    0,
                ));
                while let Some((from, piece, mapping)) = ready.pop_front() {
                    assert_eq!(
                        (mapping.offset, mapping.checksum),
                        (from + 1000, 7),
                        "it travels with the data"
                    );
                    assert!(mapping.skip + piece.0 <= u32::from(mapping.len), "and is cut with it");
                    seen.push((from, u64::from(piece.0)));
                }
                seen.push((in_order, reassembly.bytes()));
                seen.push((reassembly.floor().unwrap_or(0), u64::from(reassembly.is_empty())));
                if reports {
                    seen.extend(report(reassembly, room).iter().map(|(a, b)| (u64::from(*a), u64::from(*b))));
                    seen.extend(reassembly.recent[..reassembly.recent_len].iter().map(|known| (*known, 0)));
                }
            }
            in_ring += usize::from(both[1].in_ring().is_some());
            assert!(both[0].in_ring().is_none());
            assert_eq!(seen[0], seen[1]);
            next = in_order;
            untaken.retain(|position| *position >= next);
            end = end.max(next);
        }
    }
    assert!(in_ring > 100_000, "{in_ring}");
}

/// Whatever overlaps, bytes come out once and the blocks say what is there.
#[test]
fn blocks_are_the_queue_joined() {
    let mut state = 7u64;
    let mut next = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    for _ in 0..200 {
        let mut reassembly = ReassemblyQueue::default();
        let mut there = [false; 200];
        for _ in 0..20 {
            let (position, len) = (1 + next(150), 1 + next(40));
            reassembly.insert(position, SyntheticPayload(len as u32), Mapping::default());
            there[position as usize..(position + len) as usize].fill(true);
        }
        assert_eq!(reassembly.bytes(), there.iter().filter(|byte| **byte).count() as u64);
        for (position, byte) in there.iter().enumerate() {
            assert_eq!(reassembly.block(position as u64).is_some(), *byte);
        }
        let mut at = 0;
        while at < 200 {
            match reassembly.pop(at) {
                Some((from, piece, _)) => {
                    assert_eq!(from, at);
                    at += u64::from(piece.0);
                }
                None => {
                    assert!(!there[at as usize], "{at} was lost");
                    at += 1;
                }
            }
        }
        assert!(reassembly.is_empty() && reassembly.bytes() == 0);
    }
}

/// A block that has grown since the last report doesn't push others out.
#[test]
fn a_growing_block_is_remembered_once() {
    let mut reassembly = ReassemblyQueue::default();
    reassembly.insert(1000, SyntheticPayload(100), Mapping::default());
    for n in 0..8 {
        reassembly.insert(2000 + n * 100, SyntheticPayload(100), Mapping::default());
    }
    assert_eq!(blocks(&mut reassembly), [(2000, 2800), (1000, 1100)]);
}

/// Gaps that are filled between two reports don't push out blocks that are still there.
#[test]
fn filled_gaps_are_not_remembered_as_blocks() {
    let mut reassembly = ReassemblyQueue::default();
    for n in 0..6u64 {
        reassembly.insert(1000 + n * 200, SyntheticPayload(100), Mapping::default());
    }
    let (mut next, mut ready) = (900, InOrder::new());
    for position in [900, 1100] {
        reassembly.place(&mut next, 1 << 40, position, SyntheticPayload(100), Mapping::default(), &mut ready);
    }
    assert_eq!(next, 1300);
    assert_eq!(blocks(&mut reassembly), [(2000, 2100), (1800, 1900), (1600, 1700), (1400, 1500)]);
}

/// Too many small pieces: those with the highest sequence numbers are dropped for data before them, and SACK
/// reports only what is kept.
#[test]
fn what_is_dropped_for_want_of_memory_is_no_longer_reported() {
    let one_byte = || (SyntheticPayload(1), Mapping::default());
    let mut reassembly = ReassemblyQueue::default();
    let (mut next, mut ready) = (10, InOrder::new());
    let mut place = |reassembly: &mut ReassemblyQueue<SyntheticPayload>, position| {
        let (data, offset) = one_byte();
        reassembly.place(&mut next, 10, position, data, offset, &mut ready)
    };
    let mut last = 1000;
    // The last two touch.
    assert_eq!(place(&mut reassembly, 1_000_000), Placement::OutOfOrder);
    assert_eq!(place(&mut reassembly, 1_000_001), Placement::OutOfOrder);
    while place(&mut reassembly, last + 2) == Placement::OutOfOrder && reassembly.block(1_000_001).is_some() {
        last += 2;
        assert!(last < 900_000, "nothing is ever dropped");
    }
    assert_eq!(
        (reassembly.block(1_000_000), reassembly.block(1_000_001)),
        (Some((1_000_000, 1_000_001)), None)
    );
    let kept = reassembly.bytes();
    assert_eq!(place(&mut reassembly, last + 4), Placement::OutOfOrder);
    assert_eq!(reassembly.block(1_000_000), None);
    assert_eq!(reassembly.blocks.back().copied(), Some((last + 4, last + 5)), "no empty block is left");
    assert_eq!(reassembly.bytes(), kept);
    assert_eq!(place(&mut reassembly, 2_000_000), Placement::Refused, "there is nothing after it to drop");
}
