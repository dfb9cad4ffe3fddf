//! What is encoded parses back to the same segment, as this crate and as `etherparse` see it, and
//! nothing that a network can deliver makes the parsers panic.

use crate::common;

use bytes::{Bytes, BytesMut};
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use proptest::prelude::*;
use ropewalk_wire::*;

fn encoded(segment: &Segment<Bytes>, mode: ChecksumMode) -> Bytes {
    let mut out = BytesMut::new();
    let len = encode_into(segment, mode, &mut out).expect("a valid segment");
    assert_eq!(len, out.len());
    out.freeze()
}

proptest! {
    // A failure prints the whole segment, which is easily made a test of its own; no seed files.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parse_inverts_encode(segment in common::segment(300)) {
        let packet = encoded(&segment, ChecksumMode::Full);
        prop_assert_eq!(packet.len(), segment.wire_len());
        prop_assert_eq!(&parse(packet.clone(), ParseMode::Verify).expect("its own packet"), &segment);
        let mut out = vec![0xaa; packet.len() + 3];
        prop_assert_eq!(encode(&segment, ChecksumMode::Full, &mut out), Ok(packet.len()));
        prop_assert_eq!(&out[..packet.len()], &packet[..]);
        prop_assert_eq!(&out[packet.len()..], &[0xaa; 3]);
        // Link padding is no payload.
        prop_assert_eq!(&parse(Bytes::from(out), ParseMode::Verify).expect("padded"), &segment);
    }

    #[test]
    fn a_flipped_bit_is_noticed(segment in common::segment(100), at in any::<prop::sample::Index>()) {
        let mut packet = encoded(&segment, ChecksumMode::Full).to_vec();
        let bit = at.index(packet.len() * 8);
        packet[bit / 8] ^= 1 << (bit % 8);
        // IPv6 has no header checksum: traffic class, flow label and hop limit are unprotected.
        let unprotected = segment.tuple.src.is_ipv6() && (bit < 32 || bit / 8 == 7);
        let parsed = parse(Bytes::from(packet), ParseMode::Verify);
        prop_assert!(unprotected || parsed.is_err(), "bit {} went unnoticed", bit);
    }

    #[test]
    fn etherparse_agrees(segment in common::segment(300)) {
        let packet = encoded(&segment, ChecksumMode::Full);
        let sliced = SlicedPacket::from_ip(&packet).expect("a packet");
        let Some(TransportSlice::Tcp(tcp)) = sliced.transport else { panic!("not TCP") };
        let ecn = match sliced.net.as_ref().expect("IP") {
            NetSlice::Ipv4(ip) => {
                let header = ip.header();
                prop_assert_eq!(segment.tuple.src, header.source_addr());
                prop_assert_eq!(segment.tuple.dst, header.destination_addr());
                prop_assert_eq!(header.header_checksum(), header.to_header().calc_header_checksum());
                prop_assert!(header.dont_fragment());
                let sum = tcp.calc_checksum_ipv4(header.source(), header.destination());
                prop_assert_eq!(tcp.checksum(), sum.unwrap());
                header.ecn().value()
            }
            NetSlice::Ipv6(ip) => {
                let header = ip.header();
                prop_assert_eq!(segment.tuple.src, header.source_addr());
                prop_assert_eq!(segment.tuple.dst, header.destination_addr());
                let sum = tcp.calc_checksum_ipv6(header.source(), header.destination());
                prop_assert_eq!(tcp.checksum(), sum.unwrap());
                header.traffic_class() & 3
            }
            _ => panic!("neither IPv4 nor IPv6"),
        };
        prop_assert_eq!(ecn, segment.ecn as u8);
        prop_assert_eq!(tcp.source_port(), segment.tuple.src_port);
        prop_assert_eq!(tcp.destination_port(), segment.tuple.dst_port);
        prop_assert_eq!(tcp.sequence_number(), segment.seq.0);
        prop_assert_eq!(tcp.acknowledgment_number(), segment.ack.0);
        prop_assert_eq!(tcp.window_size(), segment.window);
        prop_assert_eq!(tcp.urgent_pointer(), segment.urgent);
        prop_assert_eq!(tcp.options().len(), segment.options_len());
        prop_assert_eq!(tcp.payload(), &segment.payload[..]);
        let flags = [tcp.fin(), tcp.syn(), tcp.rst(), tcp.psh(), tcp.ack(), tcp.urg(), tcp.ece(), tcp.cwr()];
        let flags = flags.iter().rev().fold(0, |byte, &flag| byte << 1 | u8::from(flag));
        prop_assert_eq!(flags, segment.flags.0);
        // Its iterator knows the options of TCP proper and stops at the first one it doesn't.
        for element in tcp.options_iterator().map_while(Result::ok) {
            use etherparse::TcpOptionElement::*;
            let rare = segment.rare.as_deref().cloned().unwrap_or_default();
            match element {
                Noop => {}
                MaximumSegmentSize(mss) => prop_assert_eq!(Some(mss), rare.mss),
                WindowScale(shift) => prop_assert_eq!(Some(shift), rare.window_scale),
                SelectiveAcknowledgementPermitted => prop_assert!(rare.sack_permitted),
                Timestamp(value, echo) => {
                    prop_assert_eq!(Some(Timestamps { value, echo }), segment.timestamps);
                }
                SelectiveAcknowledgement(first, more) => {
                    let blocks: Vec<_> = std::iter::once(first).chain(more.into_iter().flatten()).collect();
                    prop_assert_eq!(&blocks[..], segment.sack.as_slice());
                }
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(Bytes::from(bytes.clone()), ParseMode::Verify);
        let _ = parse(Bytes::from(bytes.clone()), ParseMode::Trust);
        let _ = virtio::parse_frame(Bytes::from(bytes.clone()));
        let _ = parse_icmp_too_big(&bytes);
        let _ = encode_icmp_too_big("10.0.0.1".parse().unwrap(), 1280, &bytes, &mut BytesMut::new());
    }

    /// Damage to a valid packet gets deeper into the parsers than noise does.
    #[test]
    fn damaged_packets_never_panic(
        segment in common::segment(60),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut packet = encoded(&segment, ChecksumMode::Full).to_vec();
        for (at, value) in damage {
            let at = at.index(packet.len());
            packet[at] = value;
        }
        packet.truncate(cut.index(packet.len() + 1));
        if let Ok(parsed) = parse(Bytes::from(packet), ParseMode::Trust) {
            // Options may have been packed tighter than they are written here, nothing else may fail.
            let mut out = BytesMut::new();
            match encode_into(&parsed, ChecksumMode::Full, &mut out) {
                Ok(_) => prop_assert_eq!(parse(out.freeze(), ParseMode::Verify), Ok(parsed)),
                Err(error) => prop_assert!(matches!(error, EncodeError::OptionsTooLong(_)), "{}", error),
            }
        }
    }

    #[test]
    fn arbitrary_options_never_panic(options in proptest::collection::vec(any::<u8>(), 0..60)) {
        let mut segment = blank();
        parse_options(&options, &mut segment);
        let mut mptcp = blank();
        let wrapped: Vec<u8> = [&[30, (options.len() + 2) as u8], &options[..]].concat();
        parse_options(&wrapped, &mut mptcp);
    }

    #[test]
    fn offload_round_trip(mut segment in common::segment(3000), gso_size in 0u16..2000) {
        segment.gso_size = if usize::from(gso_size) < segment.payload.len() { gso_size } else { 0 };
        let headers = virtio::encode_frame_headers(&segment).expect("a valid segment");
        let frame: Bytes = [&headers[..], &segment.payload[..]].concat().into();
        prop_assert_eq!(&virtio::parse_frame(frame.clone()).expect("its own frame"), &segment);
        // Completed, it is the packet with the full checksum.
        let header = virtio::VirtioNetHeader::parse(&frame).expect("ten bytes");
        let mut packet = frame[virtio::VirtioNetHeader::LEN..].to_vec();
        header.complete_checksum(&mut packet).expect("fields that fit");
        prop_assert_eq!(&packet[..], &encoded(&segment, ChecksumMode::Full)[..]);
    }
}

fn blank() -> Segment<SyntheticPayload> {
    let tuple = FourTuple::new("10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap());
    Segment::new(tuple, Seq(0), Seq(0), Flags::ACK)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The packets of a super-segment carry its bytes and its options, byte for byte, and merge back.
    #[test]
    fn split_then_merge(mut segment in common::segment(4000), gso_size in 1u16..1500) {
        segment.gso_size = if segment.payload.len() > usize::from(gso_size) { gso_size } else { 0 };
        segment.flags = segment.flags.without(Flags::SYN.with(Flags::RST).with(Flags::URG));
        let options = |segment: &Segment<Bytes>| {
            let headers = encode_headers(segment, ChecksumMode::None).expect("a valid segment");
            headers[headers.len() - segment.options_len()..].to_vec()
        };
        let mut merger = gso::Merger::new();
        let mut bytes = BytesMut::new();
        for packet in gso::split(segment.clone()) {
            prop_assert_eq!(packet.seq, segment.seq.plus(bytes.len() as u32));
            prop_assert!(packet.payload.len() <= usize::from(gso_size).max(1));
            prop_assert_eq!(options(&packet), options(&segment));
            bytes.extend_from_slice(&packet.payload);
            // Through bytes and back, as on a real path.
            let packet = parse(encoded(&packet, ChecksumMode::Full), ParseMode::Verify).expect("its own \
                packet");
            prop_assert_eq!(merger.push(packet), None);
        }
        prop_assert_eq!(&bytes[..], &segment.payload[..]);
        prop_assert_eq!(merger.finish(), Some(segment));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Cut on bytes, a super-segment gives the packets that cutting the segment gives; coalesced on bytes,
    /// the super-segment comes back.
    #[test]
    fn packets_at_once_equal_packets_one_by_one(
        mut segment in common::segment(9000),
        gso_size in 1u16..5000,
    ) {
        segment.gso_size = if segment.payload.len() > usize::from(gso_size) { gso_size } else { 0 };
        segment.flags = segment.flags.without(Flags::SYN.with(Flags::RST).with(Flags::URG));
        let (mut bytes, mut ends) = (BytesMut::new(), Vec::new());
        encode_packets(&segment, &mut bytes, &mut ends).expect("a valid segment");
        let bytes = bytes.freeze();
        let mut coalescer = Coalescer::new();
        let mut merger = gso::Merger::new();
        let (mut coalesced, mut merged) = (Vec::new(), Vec::new());
        let mut start = 0;
        for (packet, &end) in gso::split(segment.clone()).zip(&ends) {
            prop_assert_eq!(&bytes[start..end], &encoded(&packet, ChecksumMode::Full)[..]);
            coalescer.push(&bytes, start..end, |segment| coalesced.push(segment)).expect("its own packet");
            merged.extend(merger.push(packet));
            start = end;
        }
        prop_assert_eq!(start, bytes.len());
        coalescer.finish(|segment| coalesced.push(segment));
        merged.extend(merger.finish());
        if gso_size <= 4096 && segment.payload.len() > usize::from(gso_size) {
            prop_assert_eq!(&coalesced, &merged);
            prop_assert_eq!(&merged, &[segment]);
        } else {
            prop_assert_eq!(coalesced, gso::split(segment).collect::<Vec<_>>());
        }
    }

    /// Whatever comes between and whatever is damaged: each packet comes out as it would alone, and none that
    /// wouldn't.
    #[test]
    fn coalescing_changes_nothing_but_the_number(
        mut segment in common::segment(3000),
        gso_size in 1u16..1500,
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        dropped in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        segment.gso_size = if segment.payload.len() > usize::from(gso_size) { gso_size } else { 0 };
        let (mut bytes, mut ends) = (BytesMut::new(), Vec::new());
        encode_packets(&segment, &mut bytes, &mut ends).expect("a valid segment");
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let bytes = bytes.freeze();
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let mut ranges: Vec<_> = starts.zip(ends.iter().copied()).collect();
        if let Some(at) = dropped {
            ranges.remove(at.index(ranges.len()));
        }
        let mut coalescer = Coalescer::new();
        let (mut coalesced, mut alone) = (Vec::new(), Vec::new());
        for (start, end) in ranges {
            let parsed = parse(bytes.slice(start..end), ParseMode::Verify);
            let pushed = coalescer.push(&bytes, start..end, |segment| coalesced.push(segment));
            prop_assert_eq!(pushed, parsed.as_ref().map(|_| ()).map_err(Clone::clone));
            alone.extend(parsed);
        }
        coalescer.finish(|segment| coalesced.push(segment));
        let cut: Vec<_> = coalesced.into_iter().flat_map(gso::split).collect();
        prop_assert_eq!(cut, alone);
    }
}
