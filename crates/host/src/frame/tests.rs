use bytes::Bytes;
use ropewalk_link::Packet;
use ropewalk_wire::virtio::{VirtioNetHeader, encode_frame_headers};
use ropewalk_wire::{
    Dss, DssMapping, Ecn, Flags, FourTuple, ParseMode, Segment, Seq, Timestamps, gso, parse,
};

use super::{Frame, Piece};
use crate::tun::Offload;
use ropewalk_wire::pool::Pool;

fn segment(v6: bool, len: usize) -> Segment<Bytes> {
    let tuple = if v6 {
        FourTuple::new("[fd00::1]:5".parse().unwrap(), "[fd00::2]:6".parse().unwrap())
    } else {
        FourTuple::new("10.0.0.1:5".parse().unwrap(), "10.0.0.2:6".parse().unwrap())
    };
    let flags = Flags::ACK.with(Flags::PSH).with(Flags::FIN).with(Flags::CWR);
    let mut segment = Segment::new(tuple, Seq(u32::MAX - 700), Seq(9), flags);
    segment.timestamps = Some(Timestamps { value: 3, echo: 4 });
    segment.ecn = Ecn::Ect0;
    segment.gso_size = 1000;
    segment.payload = (0..len).map(|i| (i % 251) as u8).collect();
    segment
}

#[test]
fn parts_are_the_packets_that_segmentation_makes_and_their_checksums_hold() {
    for v6 in [false, true] {
        let whole = segment(v6, 3_300);
        let frame = Piece::whole(Frame::of(&whole, &mut Pool::new(1 << 16)).unwrap(), 0);
        assert_eq!(frame.segment().unwrap(), whole);
        let expected: Vec<_> = gso::split(whole).collect();
        let parts: Vec<_> = frame.packets().collect();
        assert_eq!(parts.len(), expected.len());
        for (part, expected) in parts.iter().zip(expected) {
            assert_eq!(part.wire_len() as usize, expected.wire_len());
            assert_eq!(part.segment().unwrap(), expected);
            let parsed = parse(part.complete().into(), ParseMode::Verify).unwrap();
            assert_eq!(parsed, expected);
        }
    }
}

#[test]
fn parts_that_leave_together_are_one_again_and_marks_stay() {
    let whole = segment(false, 5_000);
    let mut parts = Piece::whole(Frame::of(&whole, &mut Pool::new(1 << 16)).unwrap(), 0).packets();
    let mut held = parts.next().unwrap();
    let second = parts.next().unwrap();
    assert!(held.absorb(second).is_none());
    let mut third = parts.next().unwrap();
    third.mark_ce();
    let third = held.absorb(third).expect("a marked packet is not merged with unmarked ones");
    assert_eq!(held.segment().unwrap().payload, whole.payload.slice(..2000));
    assert_eq!(held.segment().unwrap().gso_size, 1000);
    assert_eq!(parse(third.complete().into(), ParseMode::Verify).unwrap().ecn, Ecn::Ce);
}

#[test]
fn one_packet_goes_through_unchanged_but_for_a_mark() {
    let mut one = segment(false, 700);
    one.gso_size = 0;
    let mut piece = Piece::whole(Frame::of(&one, &mut Pool::new(1 << 16)).unwrap(), 0);
    assert_eq!(piece.clone().packets().count(), 1);
    assert_eq!(parse(piece.complete().into(), ParseMode::Verify).unwrap(), one);
    piece.mark_ce();
    one.ecn = Ecn::Ce;
    assert_eq!(parse(piece.complete().into(), ParseMode::Verify).unwrap(), one);
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }

    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

/// A byte of the connection's stream encodes its offset.
fn streamed(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Super-segments of two subflows as Linux sends them: one mapping over the whole, or over more than what is
/// sent now; and repeats of parts of them, cut elsewhere, with the mapping of the first time.
fn sent(dice: &mut Dice, isn: u32, first_dsn: u64) -> Vec<Segment<Bytes>> {
    let v6 = dice.once_in(2);
    let (mut ssns, mut dsn) = ([1u32; 2], first_dsn);
    let mut all: Vec<Segment<Bytes>> = Vec::new();
    while all.len() < 12 {
        let repeated = all.len().checked_sub(1).filter(|_| dice.once_in(3)).map(|most| dice.below(most + 1));
        let mut segment = match repeated {
            Some(which) => {
                let mut again = all[which].clone();
                let from = dice.below(again.payload.len());
                let to = from + 1 + dice.below(again.payload.len() - from);
                again.seq = again.seq.plus(from as u32);
                again.payload = again.payload.slice(from..to);
                again.flags = Flags::ACK;
                again
            }
            None => {
                let mut new = segment(v6, 0);
                let subflow = dice.below(2);
                new.tuple.src_port = 1000 + subflow as u16;
                let mapped = 1 + dice.below(12_000);
                let len = if dice.once_in(4) { 1 + dice.below(mapped) } else { mapped };
                let ssn = ssns[subflow];
                new.seq = Seq(isn.wrapping_add(ssn));
                new.payload = (dsn..dsn + len as u64).map(streamed).collect();
                new.dss = Some(Dss {
                    data_ack: Some(dice.below(1 << 30) as u64),
                    ack_is_64: false,
                    mapping: Some(DssMapping {
                        dsn,
                        ssn,
                        len: mapped as u16,
                        checksum: None,
                        dsn_is_64: true,
                    }),
                    data_fin: false,
                });
                new.flags = Flags::ACK;
                for (flag, times) in [(Flags::PSH, 2), (Flags::FIN, 9), (Flags::CWR, 5)] {
                    if dice.once_in(times) {
                        new.flags = new.flags.with(flag);
                    }
                }
                ssns[subflow] += len as u32;
                dsn += len as u64;
                new
            }
        };
        let size = [536, 1000, 1424, 1448][dice.below(4)];
        segment.gso_size = if segment.payload.len() > size { size as u16 } else { 0 };
        if segment.gso_size == 0 && segment.payload.len() > 1448 {
            segment.payload.truncate(1448);
        }
        segment.timestamps = Some(Timestamps { value: dice.below(1 << 30) as u32, echo: 4 });
        segment.ecn = if dice.once_in(2) { Ecn::Ect0 } else { Ecn::NotEct };
        all.push(segment);
    }
    all
}

/// What a device was given, as the packets that its kernel makes of it: cut on bytes, by the rules of the
/// virtio header and of TCP, with nothing of what made it.
fn cut(vnet: VirtioNetHeader, packet: &[u8]) -> Vec<Segment<Bytes>> {
    assert_eq!(vnet.flags, VirtioNetHeader::NEEDS_CSUM);
    let v6 = packet[0] >> 4 == 6;
    let network = if v6 { 40 } else { 20 };
    assert_eq!(usize::from(vnet.csum_start), network);
    assert_eq!(vnet.csum_offset, 16);
    let headers = network + usize::from(packet[network + 12] >> 4) * 4;
    let len = |packet: &[u8], at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    assert_eq!(packet.len(), if v6 { 40 + len(packet, 4) } else { len(packet, 2) });
    let payload = &packet[headers..];
    let size = match vnet.gso_type & !VirtioNetHeader::GSO_ECN {
        VirtioNetHeader::GSO_NONE => payload.len().max(1),
        kind => {
            assert_eq!(kind, if v6 { VirtioNetHeader::GSO_TCPV6 } else { VirtioNetHeader::GSO_TCPV4 });
            assert_eq!(usize::from(vnet.hdr_len), headers);
            assert!(payload.len() > usize::from(vnet.gso_size), "a super-packet of one");
            // CWR is in the first packet alone only where the type says so.
            assert_eq!(vnet.gso_type & VirtioNetHeader::GSO_ECN != 0, packet[network + 13] & 0x80 != 0);
            usize::from(vnet.gso_size)
        }
    };
    let count = payload.len().div_ceil(size);
    let one = |(at, part): (usize, &[u8])| {
        let mut bytes = [&packet[..headers], part].concat();
        let total = bytes.len();
        if v6 {
            bytes[4..6].copy_from_slice(&((total - 40) as u16).to_be_bytes());
        } else {
            bytes[2..4].copy_from_slice(&(total as u16).to_be_bytes());
        }
        let seq = u32::from_be_bytes(packet[network + 4..network + 8].try_into().unwrap());
        let seq = seq.wrapping_add((at * size) as u32);
        bytes[network + 4..network + 8].copy_from_slice(&seq.to_be_bytes());
        let flags = &mut bytes[network + 13];
        *flags &= if at > 0 { !0x80 } else { 0xff };
        *flags &= if at + 1 < count { !0x09 } else { 0xff };
        // Its checksums are judged on the whole, below.
        parse(bytes.into(), ParseMode::Trust).unwrap()
    };
    let mut whole = packet.to_vec();
    vnet.complete_checksum(&mut whole).unwrap();
    parse(whole.into(), ParseMode::Verify).expect("the checksums are right");
    payload.chunks(size).enumerate().map(one).collect()
}

/// What [`Piece::send`] writes to a device with offload.
fn written(piece: &Piece) -> (VirtioNetHeader, Vec<u8>) {
    if piece.is_whole() && !piece.congestion_experienced {
        return (piece.frame.vnet, piece.frame.packet.to_vec());
    }
    let (vnet, mut packet) = piece.headers();
    packet.extend_from_slice(&piece.frame.packet[piece.rest()]);
    (vnet, packet)
}

/// Super-packets cut for a link that loses, doubles, reorders and marks, and joined from what comes together:
/// a receiver sees the very packets that a card would have made of the super-packets, and every byte where
/// its mapping says.
#[test]
fn what_arrives_in_any_order_is_what_was_sent_with_its_mappings() {
    let mut joined = 0;
    for seed in 0..400 {
        let mut dice = Dice(seed);
        let isn = dice.below(1 << 32) as u32;
        let first_dsn = [u64::from(u32::MAX), u64::MAX - 400_000][dice.below(2)] - dice.below(20_000) as u64;
        let mut pool = Pool::new(1 << 16);
        // What is under way: the packet, and what it should be.
        let mut wire: Vec<(Piece, Segment<Bytes>)> = Vec::new();
        for segment in sent(&mut dice, isn, first_dsn) {
            let frame = if dice.once_in(2) {
                Frame::of(&segment, &mut pool).unwrap()
            } else {
                let read = [&encode_frame_headers(&segment).unwrap()[..], &segment.payload].concat();
                Frame::received(read.into(), Offload::Segmentation).unwrap()
            };
            let packets = Piece::whole(frame, 0).packets();
            let expected: Vec<_> = gso::split(segment).collect();
            assert_eq!(packets.size_hint().0, expected.len());
            for (mut piece, mut packet) in packets.zip(expected) {
                if dice.once_in(8) {
                    continue;
                }
                if piece.is_ect() && dice.once_in(8) {
                    piece.mark_ce();
                    packet.ecn = Ecn::Ce;
                }
                let early = if dice.once_in(6) { dice.below(wire.len() + 1) } else { 0 };
                let place = wire.len() - early;
                if dice.once_in(12) {
                    wire.insert(dice.below(wire.len() + 1), (piece.duplicate(), packet.clone()));
                }
                wire.insert(place, (piece, packet));
            }
        }
        let mut held: Option<Piece> = None;
        let (mut came, mut expected, mut by_engine) = (Vec::new(), Vec::new(), Vec::new());
        let mut arrive = |piece: Piece| {
            joined += usize::from(piece.count > 1);
            let (vnet, packet) = written(&piece);
            came.extend(cut(vnet, &packet));
            by_engine.extend(gso::split(piece.segment().unwrap()));
        };
        for (piece, packet) in wire {
            expected.push(packet);
            // As in the world: all that has arrived by one moment is delivered together.
            let next = match &mut held {
                Some(held) => held.absorb(piece),
                None => Some(piece),
            };
            if let Some(next) = next
                && let Some(before) = held.replace(next)
            {
                arrive(before);
            }
            if dice.once_in(6)
                && let Some(held) = held.take()
            {
                arrive(held);
            }
        }
        if let Some(held) = held {
            arrive(held);
        }
        assert_eq!(came, expected, "seed {seed}: what a kernel sees");
        assert_eq!(by_engine, expected, "seed {seed}: what the engine sees");
        for packet in came {
            let mapping = packet.dss.and_then(|dss| dss.mapping).expect("each has its mapping");
            let ssn = packet.seq.0.wrapping_sub(isn);
            let at = mapping.dsn + u64::from(ssn - mapping.ssn);
            assert!(ssn + packet.payload.len() as u32 <= mapping.ssn + u32::from(mapping.len));
            for (byte, at) in packet.payload.iter().zip(at..) {
                assert_eq!(*byte, streamed(at), "seed {seed}: {at} of the stream");
            }
        }
    }
    assert!(joined > 1000, "{joined}");
}
