//! The paths: rate, queue, delay, jitter, loss, duplication, and middleboxes that strip, cut, join and alter.

use std::collections::VecDeque;

use bytes::Bytes;
use ropewalk_engine::{SECOND, Span, Time};
use ropewalk_wire::{Flags, Segment, Seq};

use crate::case::PathCase;
use crate::split_mix::SplitMix64;

/// One direction of a path.
#[derive(Default)]
struct Lane {
    busy_until: Time,
    departures: VecDeque<Time>,
    /// A segment that may be joined with the next.
    held: Option<Segment<Bytes>>,
}

pub struct Path {
    pub case: PathCase,
    pub up: bool,
    /// A middlebox has changed something on it, so the engine may close it.
    pub is_touched: bool,
    lanes: [Lane; 2],
    /// Packets so far, both ways.
    count: u64,
}

/// A byte that a middlebox altered: whose stream, where, and how.
#[derive(Clone, Copy, Debug)]
pub struct Flip {
    pub sender: usize,
    /// The mapping's first data sequence number, its length, and where in it the byte is.
    pub dsn: u64,
    pub len: u64,
    pub at: u64,
    pub mask: u8,
}

impl Path {
    pub fn new(case: PathCase) -> Self {
        Path { case, up: true, is_touched: false, lanes: Default::default(), count: 0 }
    }

    /// When each copy of a packet of `len` bytes arrives at the other end.
    pub fn carry(&mut self, now: Time, from: usize, len: usize, dice: &mut SplitMix64) -> Vec<Time> {
        let case = &self.case;
        let lane = &mut self.lanes[from];
        while lane.departures.front().is_some_and(|at| *at <= now) {
            lane.departures.pop_front();
        }
        if !self.up || lane.departures.len() >= case.queue || dice.chance(case.loss) {
            return Vec::new();
        }
        let departure = now.max(lane.busy_until) + len as u64 * SECOND / case.rate;
        lane.busy_until = departure;
        lane.departures.push_back(departure);
        let copies = 1 + usize::from(dice.chance(case.duplicate));
        (0..copies).map(|_| departure + case.delay + dice.span(case.jitter + Span::from_nanos(1))).collect()
    }

    /// What a resegmenting middlebox makes of a packet and of one that it held back: segments with a checksum
    /// on their mapping, or with options that are rare, pass as they are; of the others some are cut in two,
    /// each part with the same options, and some wait for the next, to become one with it.
    pub fn resegment(
        &mut self,
        from: usize,
        packet: Segment<Bytes>,
        dice: &mut SplitMix64,
    ) -> Vec<Segment<Bytes>> {
        let held = &mut self.lanes[from].held;
        let mut out = Vec::new();
        let packet = match held.take() {
            Some(first) => match joined(&first, &packet) {
                Some(both) => return vec![both],
                None => {
                    out.push(first);
                    packet
                }
            },
            None => packet,
        };
        if packet.payload.len() < 2 || !is_simple(&packet) {
            out.push(packet);
        } else if dice.chance(0.3) {
            *held = Some(packet);
        } else if dice.chance(0.3) {
            out.extend(reshape(packet, dice));
        } else {
            out.push(packet);
        }
        out
    }

    /// The packet that waits for another.
    pub fn waiting(&mut self, from: usize) -> Option<Segment<Bytes>> {
        self.lanes[from].held.take()
    }

    /// Strips the options of Multipath TCP if this packet is one of those chosen.
    pub fn strip(&mut self, from: usize, segment: &mut Segment<Bytes>) {
        let index = self.count;
        self.count += 1;
        let Some(strip) = self.case.strip else { return };
        let turn = index >= strip.from && index - strip.from < strip.count;
        if !turn || strip.sender.is_some_and(|sender| sender != from) {
            return;
        }
        let rare = segment.rare.as_deref();
        self.is_touched |= segment.dss.is_some() || rare.is_some_and(|rare| rare.mptcp_names().count() > 0);
        segment.strip_mptcp();
    }

    /// Alters a byte under a DSS checksum, at most once in a mapping: two changes could cancel in the sum.
    /// `start` is the sequence number at which the mapping starts.
    pub fn flip(
        &mut self,
        from: usize,
        start: Seq,
        segment: &mut Segment<Bytes>,
        flips: &mut Vec<Flip>,
        dice: &mut SplitMix64,
    ) {
        let Some(mapping) = segment.dss.and_then(|dss| dss.mapping) else { return };
        if segment.payload.is_empty() || mapping.checksum.is_none() || !dice.chance(self.case.flip) {
            return;
        }
        let (dsn, len) = (mapping.dsn, u64::from(mapping.len));
        let overlaps = |flip: &Flip| {
            flip.sender == from && (flip.dsn.wrapping_sub(dsn) < len || dsn.wrapping_sub(flip.dsn) < flip.len)
        };
        if flips.len() >= 5 || flips.iter().any(overlaps) {
            return;
        }
        let index = dice.range(0, segment.payload.len() as u64) as usize;
        let at = segment.seq.since(start) as u64 + index as u64;
        let mask = dice.range(1, 256) as u8;
        let mut data = segment.payload.to_vec();
        data[index] ^= mask;
        segment.payload = Bytes::from(data);
        flips.push(Flip { sender: from, dsn, len, at, mask });
        self.is_touched = true;
    }
}

/// The packets of a super-segment, cut and joined anew at random places: their options are the same.
pub fn reshape(whole: Segment<Bytes>, dice: &mut SplitMix64) -> Vec<Segment<Bytes>> {
    let len = whole.payload.len();
    let mut packets = Vec::new();
    let mut start = 0;
    while start < len {
        let end = len.min(start + dice.range(1, 1400.max(len as u64)) as usize);
        let mut packet = whole.clone();
        packet.gso_size = 0;
        packet.seq = whole.seq.plus(start as u32);
        packet.payload = whole.payload.slice(start..end);
        if start > 0 {
            packet.flags = packet.flags.without(Flags::CWR);
        }
        if end < len {
            packet.flags = packet.flags.without(Flags::FIN.with(Flags::PSH));
        }
        start = end;
        packets.push(packet);
    }
    packets
}

/// Data that can be cut and joined: nothing that stands for the packet as a whole.
fn is_simple(packet: &Segment<Bytes>) -> bool {
    let checked = packet.dss.and_then(|dss| dss.mapping).is_some_and(|mapping| mapping.checksum.is_some());
    let odd =
        [Flags::SYN, Flags::FIN, Flags::RST, Flags::CWR].iter().any(|flag| packet.flags.contains(*flag));
    packet.rare.is_none() && !checked && !odd
}

/// Two segments as one, if the second continues the first in its subflow and in the stream.
fn joined(first: &Segment<Bytes>, second: &Segment<Bytes>) -> Option<Segment<Bytes>> {
    let len = first.payload.len();
    let follows = first.tuple == second.tuple && first.seq.plus(len as u32) == second.seq;
    if !follows || second.payload.is_empty() || !is_simple(second) || len + second.payload.len() > 1400 {
        return None;
    }
    let mut both = second.clone();
    both.seq = first.seq;
    both.payload = [&first.payload[..], &second.payload[..]].concat().into();
    match (first.dss.and_then(|dss| dss.mapping), second.dss.and_then(|dss| dss.mapping)) {
        (None, None) => {}
        (Some(one), Some(other)) if one == other => {}
        (Some(one), Some(other)) => {
            let whole = usize::from(one.len) == len && one.dsn_is_64 == other.dsn_is_64;
            let on = one.dsn.wrapping_add(len as u64) == other.dsn
                && one.ssn.wrapping_add(len as u32) == other.ssn;
            let mapping = both.dss.as_mut()?.mapping.as_mut()?;
            (mapping.dsn, mapping.ssn) = (one.dsn, one.ssn);
            mapping.len = one.len.checked_add(other.len).filter(|_| whole && on)?;
        }
        _ => return None,
    }
    Some(both)
}
