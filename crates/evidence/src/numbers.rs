//! Packet numbers for TCP, which has none: qlog pairs a packet with its acknowledgement by number.
//!
//! Packets are numbered from 0 in each direction of a subflow. A packet that takes sequence space is
//! outstanding until an ACK or a SACK block covers it, or until the same bytes are sent again: then it counts
//! as lost.

use ropewalk_wire::{Flags, Payload, Segment, Seq};

/// One direction of a subflow.
#[derive(Debug, Default)]
pub(crate) struct Half {
    /// The sequence number of position 0, usually the SYN's.
    isn: Option<Seq>,
    /// Packets so far.
    count: u64,
    /// Highest position sent.
    highest: u64,
    /// Largest payload sent.
    pub(crate) largest: usize,
    /// Outstanding packets, by number.
    outstanding: Vec<Outstanding>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Outstanding {
    number: u64,
    start: u64,
    end: u64,
}

/// A packet's number and place in its direction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Numbered {
    /// Its number.
    pub(crate) number: u64,
    /// Position of its first byte of payload in the subflow's stream, from 0.
    pub(crate) offset: u64,
    /// Numbers of the packets that it repeats.
    pub(crate) lost: Vec<u64>,
}

impl Half {
    /// Adds a packet of this direction.
    pub(crate) fn packet<P: Payload>(&mut self, segment: &Segment<P>) -> Numbered {
        let isn = *self.isn.get_or_insert(segment.seq);
        let start = Seq(segment.seq.since(isn) as u32).unfold(self.highest);
        let end = start.wrapping_add(u64::from(segment.sequence_len()));
        let number = self.count;
        self.count += 1;
        self.largest = self.largest.max(segment.payload.len());
        let mut lost = Vec::new();
        if end > start {
            self.outstanding.retain(|other| {
                let repeated = other.start < end && start < other.end;
                if repeated {
                    lost.push(other.number);
                }
                !repeated
            });
            self.outstanding.push(Outstanding { number, start, end });
            self.highest = self.highest.max(end);
        }
        // The SYN precedes the stream's first byte.
        let offset = if segment.flags.contains(Flags::SYN) { 0 } else { start.saturating_sub(1) };
        Numbered { number, offset, lost }
    }

    /// Processes a packet of the other direction. Returns the newly acknowledged numbers, as inclusive
    /// ranges.
    pub(crate) fn acknowledged<P: Payload>(&mut self, segment: &Segment<P>) -> Vec<[u64; 2]> {
        let Some(isn) = self.isn else { return Vec::new() };
        if !segment.flags.contains(Flags::ACK) {
            return Vec::new();
        }
        let highest = self.highest;
        let position = |seq: Seq| Seq(seq.since(isn) as u32).unfold(highest);
        let ack = position(segment.ack);
        let blocks: Vec<_> = segment
            .sack
            .as_slice()
            .iter()
            .map(|&(left, right)| (position(Seq(left)), position(Seq(right))))
            .collect();
        let mut ranges: Vec<[u64; 2]> = Vec::new();
        self.outstanding.retain(|packet| {
            let covered = packet.end <= ack
                || blocks.iter().any(|&(left, right)| left <= packet.start && packet.end <= right);
            if covered {
                match ranges.last_mut() {
                    Some(last) if last[1] + 1 == packet.number => last[1] = packet.number,
                    _ => ranges.push([packet.number, packet.number]),
                }
            }
            !covered
        });
        ranges
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_wire::{FourTuple, SyntheticPayload};

    use super::*;

    fn segment(seq: Seq, flags: Flags, payload: u32) -> Segment<SyntheticPayload> {
        let tuple = FourTuple::new("192.0.2.1:1".parse().expect("one"), "192.0.2.2:2".parse().expect("one"));
        let mut segment = Segment::new(tuple, seq, Seq(0), flags);
        segment.payload = SyntheticPayload(payload);
        segment
    }

    #[test]
    fn packets_are_numbered_acknowledged_and_lost_across_the_wrap() {
        let isn = Seq(u32::MAX - 100);
        let mut half = Half::default();
        let data = |position: u32| segment(isn.plus(position), Flags::ACK, 100);
        let numbered = |number, offset, lost: &[u64]| Numbered { number, offset, lost: lost.to_vec() };
        assert_eq!(half.packet(&segment(isn, Flags::SYN, 0)), numbered(0, 0, &[]));
        assert_eq!(half.packet(&data(1)), numbered(1, 0, &[]));
        assert_eq!(half.packet(&data(101)), numbered(2, 100, &[]));
        assert_eq!(half.packet(&data(201)), numbered(3, 200, &[]));
        // The first is missing: the SYN is acknowledged, the third by a block.
        let mut ack = segment(Seq(0), Flags::ACK, 0);
        ack.ack = isn.plus(1);
        ack.sack.push(isn.plus(201).0, isn.plus(301).0);
        assert_eq!(half.acknowledged(&ack), [[0, 0], [3, 3]]);
        assert_eq!(half.acknowledged(&ack), [[0, 0]; 0]);
        // Sent again, the numbers 1 and 2 in one.
        let again = segment(isn.plus(1), Flags::ACK, 200);
        assert_eq!(half.packet(&again), numbered(4, 0, &[1, 2]));
        // A packet without sequence space has a number and is never outstanding.
        assert_eq!(half.packet(&segment(isn.plus(301), Flags::ACK, 0)), numbered(5, 300, &[]));
        ack.ack = isn.plus(301);
        assert_eq!(half.acknowledged(&ack), [[4, 4]]);
        assert_eq!(half.largest, 200);
    }

    #[test]
    fn neighbours_make_one_range() {
        let mut half = Half::default();
        for position in [0, 100, 200, 300] {
            half.packet(&segment(Seq(position), Flags::ACK, 100));
        }
        let mut ack = segment(Seq(0), Flags::ACK, 0);
        ack.ack = Seq(250);
        assert_eq!(half.acknowledged(&ack), [[0, 1]]);
    }

    #[test]
    fn without_an_ack_nothing_is_acknowledged() {
        let mut half = Half::default();
        half.packet(&segment(Seq(0), Flags::ACK, 100));
        let mut reset = segment(Seq(0), Flags::RST, 0);
        reset.ack = Seq(100);
        assert_eq!(half.acknowledged(&reset), [[0, 0]; 0]);
        assert_eq!(Half::default().acknowledged(&segment(Seq(0), Flags::ACK, 0)), [[0, 0]; 0]);
    }
}
