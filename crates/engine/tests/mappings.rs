//! Mappings that travel with their data (RFC 8684 3.3.1), through a middlebox that cuts segments and mixes up
//! the parts.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use ropewalk_wire::{Flags, Segment};

use crate::common::{Net, PathScript, SplitMix64, bytes};

/// A segment in parts, which all have its mapping, or only the first.
fn cut(whole: &Segment<Bytes>, on_every_part: bool, dice: &mut SplitMix64) -> Vec<Segment<Bytes>> {
    let (len, mut start, mut parts) = (whole.payload.len(), 0, Vec::new());
    while start < len {
        let end = len.min(start + 1 + (dice.next() % (len as u64)) as usize);
        let mut part = whole.clone();
        part.seq = whole.seq.plus(start as u32);
        part.payload = whole.payload.slice(start..end);
        if end < len {
            part.flags = part.flags.without(Flags::FIN.with(Flags::PSH));
        }
        if start > 0 && !on_every_part {
            part.rare = None;
            part.dss = part.dss.map(|dss| ropewalk_wire::Dss { mapping: None, data_fin: false, ..dss });
        }
        parts.push(part);
        start = end;
    }
    parts
}

/// A transfer of which each data segment is cut; parts are lost, doubled and overtaken. Returns whether
/// checksums were used.
fn transfer(seed: u64, checksum: bool, on_every_part: bool, short_numbers: bool) -> bool {
    let mut net = Net::with(|config| config.checksum = checksum, "minrtt", "lia", vec![PathScript::clean(2)]);
    net.transfer_some(3_000);
    let caught: Rc<RefCell<Vec<Segment<Bytes>>>> = Rc::default();
    let catch = caught.clone();
    net.tamper = Some(Box::new(move |from, segment| {
        let passes = from == 1 || segment.payload.is_empty();
        if !passes {
            catch.borrow_mut().push(segment.clone());
        }
        passes
    }));
    let mut dice = SplitMix64(seed);
    net.send(bytes(7, 60_000));
    let mut waiting: Vec<Segment<Bytes>> = Vec::new();
    for _ in 0..200_000 {
        net.pass(2);
        if net.delivered_all() {
            break;
        }
        for mut segment in std::mem::take(&mut *caught.borrow_mut()) {
            if let Some(mapping) = segment.dss.as_mut().and_then(|dss| dss.mapping.as_mut())
                && short_numbers
            {
                mapping.dsn &= u64::from(u32::MAX);
                mapping.dsn_is_64 = false;
            }
            for part in cut(&segment, on_every_part, &mut dice) {
                let copies = if dice.chance(0.05) { 2 } else { usize::from(!dice.chance(0.03)) };
                waiting.extend(std::iter::repeat_n(part, copies));
            }
        }
        while !waiting.is_empty() && !dice.chance(0.1) {
            let nearest = 4.min(waiting.len()) as u64;
            let part = waiting.remove((dice.next() % nearest) as usize);
            net.inject(1, part);
        }
    }
    assert!(net.delivered_all(), "seed {seed}: {} bytes, {:?}", net.received[1].len(), net.events);
    assert!(net.client_multipath(), "seed {seed}: {:?}", net.events);
    assert_eq!(net.counter(1, "MPTcpExtDataCsumErr"), 0, "seed {seed}");
    net.saw_checksum
}

//= test RFC 8684 3.3.1-b 3.3.1-d
#[test]
fn segments_that_are_cut_on_the_way_keep_their_mapping() {
    for seed in 0..24 {
        let [checksum, on_every_part, short_numbers] = [1, 2, 4].map(|bit| seed & bit != 0);
        assert_eq!(transfer(seed, checksum, on_every_part, short_numbers), checksum);
    }
}
