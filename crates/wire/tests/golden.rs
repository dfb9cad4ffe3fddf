//! Options and headers against bytes written by hand from the figures of the RFCs; malformed options;
//! what can't be encoded.

use bytes::{Bytes, BytesMut};
use ropewalk_wire::*;

fn blank() -> Segment<Bytes> {
    let tuple = FourTuple::new("192.0.2.1:4660".parse().unwrap(), "198.51.100.2:80".parse().unwrap());
    Segment::new(tuple, Seq(0x0102_0304), Seq(0x0506_0708), Flags::ACK)
}

/// Decodes "1e 04 5_" style hexadecimal; blanks are for the eye.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn encoded_options(segment: &Segment<Bytes>) -> Vec<u8> {
    let headers = encode_headers(segment, ChecksumMode::None).expect("valid");
    headers[headers.len() - segment.options_len()..].to_vec()
}

fn parsed(options: &[u8]) -> Segment<Bytes> {
    let mut segment = blank();
    parse_options(options, &mut segment);
    segment
}

#[track_caller]
fn both_ways(text: &str, set: impl FnOnce(&mut Segment<Bytes>)) {
    let mut segment = blank();
    set(&mut segment);
    let options = hex(text);
    assert_eq!(encoded_options(&segment), options);
    assert_eq!(parsed(&options), segment);
}

fn rare(text: &str, set: impl FnOnce(&mut RareOptions)) {
    both_ways(text, |segment| set(segment.rare_mut()));
}

//= test RFC 9293 MUST-2 MUST-3
#[test]
fn a_whole_ipv4_packet() {
    let mut segment = blank();
    (segment.window, segment.ecn) = (0x2000, Ecn::Ect0);
    segment.flags = Flags::ACK.with(Flags::PSH);
    segment.payload = Bytes::from_static(b"hi!");
    // IP: 4502+002b+0000+4000+4006+c000+0201+c633+6402 = 2b169 -> b16b; inverted 4e94.
    // TCP: pseudo-header c000+0201+c633+6402+0006+0017, header 1234+0050+0102+0304+0506+0708
    // +5018+2000, data 6869+2100 = 3086c -> 086f; inverted f790.
    let expected = hex("45 02 002b 0000 4000 40 06 4e94 c0000201 c6336402
         1234 0050 01020304 05060708 50 18 2000 f790 0000 686921");
    let mut out = BytesMut::new();
    encode_into(&segment, ChecksumMode::Full, &mut out).unwrap();
    assert_eq!(out[..], expected[..]);
    assert_eq!(parse(out.freeze(), ParseMode::Verify), Ok(segment.clone()));
    // Pseudo-header alone: c000+0201+c633+6402+0006+0017 = 1ec53 -> ec54.
    let headers = encode_headers(&segment, ChecksumMode::PseudoHeader).unwrap();
    assert_eq!(headers[36..38], [0xec, 0x54]);
    assert_eq!(encode_headers(&segment, ChecksumMode::None).unwrap()[36..38], [0, 0]);
}

#[test]
fn a_whole_ipv6_packet() {
    let tuple = FourTuple::new("[2001:db8::1]:1".parse().unwrap(), "[2001:db8::2]:2".parse().unwrap());
    let mut segment = Segment::<Bytes>::new(tuple, Seq(3), Seq(4), Flags::SYN);
    segment.ecn = Ecn::Ce;
    // Pseudo-header 2*(2001+0db8)+1+2+14+6, header 1+2+3+4+5002 = ab9b; inverted 5464.
    let expected = hex("60 30 0000 0014 06 40
         20010db8000000000000000000000001 20010db8000000000000000000000002
         0001 0002 00000003 00000004 50 02 0000 5464 0000");
    let mut out = BytesMut::new();
    encode_into(&segment, ChecksumMode::Full, &mut out).unwrap();
    assert_eq!(out[..], expected[..]);
    assert_eq!(parse(out.freeze(), ParseMode::Verify), Ok(segment));
}

//= test RFC 9293 MUST-4 MUST-14 MUST-68
#[test]
fn options_of_tcp() {
    // A SYN as Linux sends it: MSS, SACK permitted + timestamps, window scale.
    both_ways("0204 05b4 0402 080a 00000001 00000002 01 0303 07", |segment| {
        segment.timestamps = Some(Timestamps { value: 1, echo: 2 });
        *segment.rare_mut() = RareOptions {
            mss: Some(1460),
            window_scale: Some(7),
            sack_permitted: true,
            ..RareOptions::default()
        };
    });
    rare("0101 0402", |rare| rare.sack_permitted = true);
    both_ways("0101 080a 00000001 00000002 0101 0512 0000000a 00000014 0000001e 00000028", |segment| {
        segment.timestamps = Some(Timestamps { value: 1, echo: 2 });
        segment.sack.push(10, 20);
        segment.sack.push(30, 40);
    });
}

//= test RFC 9293 MUST-1 MUST-5 MUST-64
/// After up to three no-operations, in a segment of any kind; and the window's highest bit is no sign.
#[test]
fn an_option_may_begin_at_any_octet_of_any_segment() {
    for flags in
        [Flags::SYN, Flags::SYN.with(Flags::ACK), Flags::ACK, Flags::ACK.with(Flags::FIN), Flags::RST]
    {
        for shift in 0..4 {
            let mut segment = blank();
            (segment.flags, segment.window) = (flags, 0x8001);
            segment.payload = Bytes::from_static(b"data");
            let mut packet = BytesMut::new();
            encode_into(&segment, ChecksumMode::None, &mut packet).unwrap();
            let mut options = [vec![1; shift], hex("080a 00000001 00000002")].concat();
            options.resize(options.len().next_multiple_of(4), 0);
            let mut longer = [&packet[..40], &options[..], &packet[40..]].concat();
            longer[3] += options.len() as u8;
            longer[32] += (options.len() / 4 * 16) as u8;
            segment.timestamps = Some(Timestamps { value: 1, echo: 2 });
            assert_eq!(parse(longer.into(), ParseMode::Trust), Ok(segment), "{flags:?}, {shift}");
        }
    }
}

//= test RFC 9293 MUST-69
/// Whatever stands in them, options fill whole words, to the last octet with options and no-operations.
#[test]
fn options_fill_whole_words() {
    for which in 0..64 {
        let bit = |n: u32| which >> n & 1 == 1;
        let mut segment = blank();
        segment.timestamps = bit(0).then_some(Timestamps { value: 1, echo: 2 });
        if bit(1) {
            segment.sack.push(1, 2);
        }
        if bit(2) {
            segment.dss = Some(Dss { data_ack: Some(5), ..Dss::default() });
        }
        let rare = segment.rare_mut();
        (rare.sack_permitted, rare.window_scale) = (bit(3), bit(4).then_some(7));
        rare.mp_prio = bit(5).then_some(MpPrio { backup: true });
        let headers = encode_headers(&segment, ChecksumMode::None).expect("40 octets at most");
        let offset = usize::from(headers[32] >> 4) * 4;
        assert_eq!((offset, headers.len()), (20 + segment.options_len(), 20 + offset));
        let again = parsed(&headers[40..]);
        assert_eq!(
            (again.timestamps, again.sack, again.dss),
            (segment.timestamps, segment.sack, segment.dss)
        );
    }
}

#[test]
fn mp_capable_in_all_its_lengths() {
    let syn = MpCapable { version: 1, hmac_sha256: true, ..MpCapable::default() };
    rare("1e04 01 01", |rare| rare.mp_capable = Some(syn));
    let all = MpCapable {
        checksum_required: true,
        extensibility: true,
        deny_join_initial_address: true,
        sender_key: Some(0x1112_1314_1516_1718),
        ..syn
    };
    rare("1e0c 01 e1 1112131415161718", |rare| rare.mp_capable = Some(all));
    let ack = MpCapable { receiver_key: Some(0x2122_2324_2526_2728), ..all };
    rare("1e14 01 e1 1112131415161718 2122232425262728", |rare| rare.mp_capable = Some(ack));
    let data = MpCapable { data_len: Some(5), ..ack };
    rare("1e16 01 e1 1112131415161718 2122232425262728 0005 0101", |rare| rare.mp_capable = Some(data));
    let checked = MpCapable { checksum: Some(0xabcd), ..data };
    rare("1e18 01 e1 1112131415161718 2122232425262728 0005 abcd", |rare| rare.mp_capable = Some(checked));
}

#[test]
fn mp_join_in_its_three_forms() {
    rare("1e0c 11 07 aabbccdd 01020304", |rare| {
        rare.mp_join =
            Some(MpJoin::Syn { backup: true, address_id: 7, token: 0xaabb_ccdd, nonce: 0x0102_0304 });
    });
    rare("1e10 10 08 0102030405060708 11121314", |rare| {
        rare.mp_join = Some(MpJoin::SynAck {
            backup: false,
            address_id: 8,
            hmac: 0x0102_0304_0506_0708,
            nonce: 0x1112_1314,
        });
    });
    rare("1e18 10 00 000102030405060708090a0b0c0d0e0f10111213", |rare| {
        rare.mp_join = Some(MpJoin::Ack { hmac: std::array::from_fn(|at| at as u8) });
    });
}

#[test]
fn dss_in_all_its_forms() {
    let set = |text: &str, dss: Dss| both_ways(text, |segment| segment.dss = Some(dss));
    let ack = |data_ack, ack_is_64| Dss { data_ack: Some(data_ack), ack_is_64, ..Dss::default() };
    set("1e08 20 01 01020304", ack(0x0102_0304, false));
    set("1e0c 20 03 0102030405060708", ack(0x0102_0304_0506_0708, true));
    let mapping =
        DssMapping { dsn: 0x1112_1314, ssn: 0x2122_2324, len: 1400, checksum: None, dsn_is_64: false };
    let long = DssMapping { dsn: 0x1112_1314_1516_1718, dsn_is_64: true, ..mapping };
    let map = |mapping| Dss { mapping: Some(mapping), ..Dss::default() };
    set("1e0e 20 04 11121314 21222324 0578 0101", map(mapping));
    set("1e12 20 0c 1112131415161718 21222324 0578 0101", map(long));
    set("1e10 20 04 11121314 21222324 0578 beef", map(DssMapping { checksum: Some(0xbeef), ..mapping }));
    set(
        "1e1c 20 1f 0102030405060708 1112131415161718 21222324 0578 beef",
        Dss {
            mapping: Some(DssMapping { checksum: Some(0xbeef), ..long }),
            data_fin: true,
            ..ack(0x0102_0304_0506_0708, true)
        },
    );
    // The infinite mapping (RFC 8684 3.7) has length 0; a DATA_FIN alone has subflow sequence 0.
    set("1e12 20 0c 1112131415161718 21222324 0000 0101", map(DssMapping { len: 0, ..long }));
    let fin = Dss { data_fin: true, ..map(DssMapping { ssn: 0, len: 1, ..long }) };
    set("1e12 20 1c 1112131415161718 00000000 0001 0101", fin);
    set("1e04 20 00", Dss::default());
}

#[test]
fn addresses() {
    let v4 = AddAddr {
        echo: false,
        address_id: 3,
        address: "10.1.2.3".parse().unwrap(),
        port: None,
        hmac: Some(0x0102_0304_0506_0708),
    };
    let v6 = AddAddr { address: "2001:db8::3".parse().unwrap(), ..v4 };
    let echo = |add: AddAddr| AddAddr { echo: true, hmac: None, ..add };
    let port = |add: AddAddr| AddAddr { port: Some(0x1f90), ..add };
    let set = |text: &str, add: AddAddr| rare(text, |rare| rare.add_addr = Some(add));
    set("1e10 30 03 0a010203 0102030405060708", v4);
    set("1e12 30 03 0a010203 1f90 0102030405060708 0101", port(v4));
    set("1e08 31 03 0a010203", echo(v4));
    set("1e0a 31 03 0a010203 1f90 0101", echo(port(v4)));
    set("1e1c 30 03 20010db8000000000000000000000003 0102030405060708", v6);
    set("1e1e 30 03 20010db8000000000000000000000003 1f90 0102030405060708 0101", port(v6));
    set("1e14 31 03 20010db8000000000000000000000003", echo(v6));
    set("1e16 31 03 20010db8000000000000000000000003 1f90 0101", echo(port(v6)));
    let remove = |text: &str, ids: &[u8]| {
        rare(text, |rare| rare.remove_addr = Some(RemoveAddr { address_ids: ids.to_vec() }));
    };
    remove("1e04 40 05", &[5]);
    remove("1e05 40 05 06 010101", &[5, 6]);
}

#[test]
fn the_short_ones() {
    rare("1e03 51 01", |rare| rare.mp_prio = Some(MpPrio { backup: true }));
    rare("1e03 50 01", |rare| rare.mp_prio = Some(MpPrio { backup: false }));
    rare("1e0c 60 00 0102030405060708", |rare| rare.mp_fail = Some(MpFail { dsn: 0x0102_0304_0506_0708 }));
    rare("1e0c 70 00 0102030405060708", |rare| {
        rare.mp_fastclose = Some(MpFastClose { receiver_key: 0x0102_0304_0506_0708 });
    });
    rare("1e04 81 06", |rare| rare.mp_tcprst = Some(MpTcpRst { transient: true, reason: 6 }));
}

//= test RFC 9293 MUST-6
#[test]
fn malformed_options_are_ignored() {
    for (text, what) in [
        ("02 03 05 01", "an MSS of 3 bytes"),
        ("03 04 07 00", "a window scale of 4 bytes"),
        ("05 0a 00000001 0000", "a SACK block cut short by the header"),
        ("05 06 00000001 0101", "half a SACK block"),
        ("05 02 0101", "SACK without blocks"),
        ("08 06 00000001 0101", "half a timestamp"),
        ("1e 02 0101", "MPTCP without subtype"),
        ("1e 03 00 01", "MP_CAPABLE without flags"),
        ("1e 08 01 01 01020304", "MP_CAPABLE of 8 bytes"),
        ("1e 08 10 01 01020304", "MP_JOIN of 8 bytes"),
        ("1e 03 20 01", "DSS without flags"),
        ("1e 04 20 01", "DSS without the data ack that it announces"),
        ("1e 09 20 01 01020304 05 010101", "DSS with a byte too many"),
        ("1e 0f 20 04 11121314 21222324 0578 be 01", "DSS with half a checksum"),
        ("1e 0a 20 01 01020304 beef 0101", "DSS with a checksum and no mapping"),
        ("1e 08 30 03 0a010203", "ADD_ADDR without HMAC"),
        ("1e 10 31 03 0a010203 0102030405060708", "echoed ADD_ADDR with HMAC"),
        ("1e 09 31 03 0a010203 1f 010101", "ADD_ADDR with half a port"),
        ("1e 03 40 01", "REMOVE_ADDR of nothing"),
        ("1e 04 51 05", "MP_PRIO of version 0, with address id"),
        ("1e 04 60 00", "MP_FAIL without number"),
        ("1e 0b 70 00 01020304050607 01", "MP_FASTCLOSE with a short key"),
        ("1e 03 80 01", "MP_TCPRST without reason"),
        ("1e 04 90 00", "an unknown subtype"),
        ("fe 04 f9 89", "an experiment (RFC 6994)"),
    ] {
        // What follows is still read: its place is known.
        let mut expected = blank();
        assert_eq!(parsed(&hex(text)), expected, "{what}");
        expected.timestamps = Some(Timestamps { value: 1, echo: 2 });
        // A length past the end would reach into the second option, so that one case stands alone.
        if !what.contains("cut short") {
            assert_eq!(parsed(&hex(&format!("{text} 080a 00000001 00000002"))), expected, "{what}");
        }
    }
}

//= test RFC 9293 MUST-7
#[test]
fn a_list_that_cannot_be_followed_ends() {
    let mut expected = blank();
    expected.timestamps = Some(Timestamps { value: 1, echo: 2 });
    let before = "080a 00000001 00000002";
    for (after, what) in [
        ("02 00 05b4", "length 0"),
        ("02 01 05b4", "length 1"),
        ("02 05 05b4", "length past the end"),
        ("02", "no length"),
        ("1e ff 01 01", "a length of 255"),
        ("00 02 04 05b4", "end of list"),
    ] {
        assert_eq!(parsed(&hex(&format!("{before} {after}"))), expected, "{what}");
    }
}

#[test]
fn the_last_of_two_counts_and_the_window_scale_has_a_limit() {
    assert_eq!(parsed(&hex("0204 0001 0204 0002")).rare.unwrap().mss, Some(2));
    assert_eq!(parsed(&hex("0303 0f 01")).rare.unwrap().window_scale, Some(14));
    let sack = parsed(&hex("0512 00000001 00000002 00000003 00000004 050a 00000005 00000006")).sack;
    assert_eq!(sack.as_slice(), [(5, 6)]);
}

#[test]
fn headers_that_are_wrong_in_themselves() {
    let mut good = vec![0; 60];
    let len =
        encode(&Segment { payload: Bytes::from_static(b"data"), ..blank() }, ChecksumMode::Full, &mut good)
            .unwrap();
    good.truncate(len);
    let mangled = |at: usize, value: u8| {
        let mut packet = good.clone();
        packet[at] = value;
        parse(Bytes::from(packet), ParseMode::Trust).map(|_| ())
    };
    assert_eq!(mangled(0, 0x45), Ok(()));
    assert_eq!(mangled(0, 0x55), Err(ParseError::Version(5)));
    assert_eq!(mangled(0, 0x44), Err(ParseError::Length(Part::Ipv4)));
    assert_eq!(mangled(3, 19), Err(ParseError::Length(Part::Ipv4)));
    assert_eq!(mangled(3, 45), Err(ParseError::Truncated(Part::Ipv4)));
    assert_eq!(mangled(6, 0x20), Err(ParseError::Fragment));
    assert_eq!(mangled(7, 1), Err(ParseError::Fragment));
    assert_eq!(mangled(9, 17), Err(ParseError::Protocol { protocol: 17 }));
    assert_eq!(mangled(32, 0x40), Err(ParseError::Length(Part::Tcp)));
    assert_eq!(mangled(32, 0x70), Err(ParseError::Truncated(Part::Tcp)));
    assert_eq!(parse(Bytes::new(), ParseMode::Trust), Err(ParseError::Truncated(Part::Ipv4)));
    for (at, part) in [(8, Part::Ipv4), (43, Part::Tcp)] {
        let mut packet = good.clone();
        packet[at] ^= 1;
        assert_eq!(parse(Bytes::from(packet), ParseMode::Verify), Err(ParseError::Checksum(part)));
    }
    for len in 0..good.len() {
        let packet = Bytes::copy_from_slice(&good[..len]);
        assert_eq!(parse(packet, ParseMode::Verify), Err(ParseError::Truncated(Part::Ipv4)), "{len}");
    }
}

//= test RFC 9293 MUST-50
#[test]
fn ipv4_options_are_skipped() {
    let mut packet = BytesMut::new();
    let segment = Segment { payload: Bytes::from_static(b"data"), ..blank() };
    encode_into(&segment, ChecksumMode::Full, &mut packet).unwrap();
    let mut with_option = [&packet[..20], &[0x94, 4, 0, 0], &packet[20..]].concat();
    with_option[0] = 0x46;
    with_option[3] += 4;
    // The checksum covers a first word that is 0x0100 higher, a length 4 higher and the option.
    let sum = checksum::update(u16::from_be_bytes([packet[10], packet[11]]), 0x4500, 0x4600);
    let sum = checksum::update(sum, u16::from(packet[3]), u16::from(packet[3]) + 4);
    let sum = checksum::update(sum, 0, 0x9404);
    with_option[10..12].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(parse(with_option.into(), ParseMode::Verify), Ok(segment));
}

/// The IPv6 packet of `segment` with `extension` before TCP, which `first` announces.
fn extended(segment: &Segment<Bytes>, first: u8, extension: &str) -> Bytes {
    let mut packet = BytesMut::new();
    encode_into(segment, ChecksumMode::Full, &mut packet).unwrap();
    let extension = hex(extension);
    let mut out = [&packet[..40], &extension[..], &packet[40..]].concat();
    out[5] += extension.len() as u8;
    out[6] = first;
    out.into()
}

#[test]
fn ipv6_extension_headers() {
    let tuple = FourTuple::new("[2001:db8::1]:1".parse().unwrap(), "[2001:db8::2]:2".parse().unwrap());
    let segment = Segment::new(tuple, Seq(3), Seq(4), Flags::SYN);
    for (first, extension, expected) in [
        (0, "06 00 0502 0000 0100", Ok(())),
        (60, "06 01 0104 00000000 0000000000000000", Ok(())),
        (0, "3c 00 010400000000 06 00 010400000000", Ok(())),
        (43, "06 00 04 00 00000000", Ok(())),
        (43, "06 00 04 01 00000000", Err(ParseError::Routed(1))),
        (44, "06 ff 0000 00000001", Ok(())),
        (44, "06 00 0001 00000001", Err(ParseError::Fragment)),
        (44, "06 00 0008 00000001", Err(ParseError::Fragment)),
        (0, "06 ff 010400000000", Err(ParseError::Truncated(Part::Extension))),
        (0, "3b 00 010400000000", Err(ParseError::Protocol { protocol: 59 })),
        (50, "0000000000000000", Err(ParseError::Protocol { protocol: 50 })),
    ] {
        let packet = extended(&segment, first, extension);
        let expected = expected.map(|()| segment.clone());
        assert_eq!(parse(packet, ParseMode::Verify), expected, "{first}: {extension}");
    }
}

#[test]
fn what_cannot_be_encoded_is_an_error() {
    let error = |set: fn(&mut Segment<Bytes>)| {
        let mut segment = blank();
        set(&mut segment);
        encode_headers(&segment, ChecksumMode::Full).expect_err("invalid")
    };
    let many = error(|segment| {
        segment.timestamps = Some(Timestamps::default());
        (0..4).for_each(|at| assert!(segment.sack.push(at, at + 1)));
    });
    assert_eq!(many, EncodeError::OptionsTooLong(48));
    let ids =
        error(|segment| segment.rare_mut().remove_addr = Some(RemoveAddr { address_ids: vec![1; 70_000] }));
    assert!(matches!(ids, EncodeError::OptionsTooLong(_)));
    let long = error(|segment| segment.payload = Bytes::from(vec![0; 65_496]));
    assert_eq!(long, EncodeError::PacketTooLong(65_536));
    let mixed = error(|segment| segment.tuple.dst = "::1".parse().unwrap());
    assert_eq!(mixed, EncodeError::MixedFamilies);
    let gap = error(|segment| {
        segment.rare_mut().mp_capable = Some(MpCapable { receiver_key: Some(1), ..MpCapable::default() });
    });
    assert_eq!(gap, EncodeError::InvalidOption("MP_CAPABLE"));
    let unsigned = error(|segment| {
        let address = "10.0.0.1".parse().unwrap();
        segment.rare_mut().add_addr =
            Some(AddAddr { echo: false, address_id: 1, address, port: None, hmac: None });
    });
    assert_eq!(unsigned, EncodeError::InvalidOption("ADD_ADDR"));
    let none = error(|segment| segment.rare_mut().remove_addr = Some(RemoveAddr::default()));
    assert_eq!(none, EncodeError::InvalidOption("REMOVE_ADDR"));
    let scale = error(|segment| segment.rare_mut().window_scale = Some(15));
    assert_eq!(scale, EncodeError::InvalidOption("window scale"));
    let small = encode(&blank(), ChecksumMode::Full, &mut [0; 39]);
    assert_eq!(small, Err(EncodeError::BufferTooSmall { need: 40, have: 39 }));
    // The largest there is.
    let largest = Segment { payload: Bytes::from(vec![0; 65_495]), ..blank() };
    assert_eq!(encode(&largest, ChecksumMode::Full, &mut vec![0; 70_000]), Ok(65_535));
}

#[test]
fn payloads_are_slices_and_empty_ones_hold_nothing() {
    let mut packet = BytesMut::new();
    encode_into(
        &Segment { payload: Bytes::from_static(b"data"), ..blank() },
        ChecksumMode::Full,
        &mut packet,
    )
    .unwrap();
    let packet = packet.freeze();
    let segment = parse(packet.clone(), ParseMode::Verify).unwrap();
    assert_eq!(segment.payload.as_ptr(), packet[40..].as_ptr());
    let mut packet = BytesMut::new();
    encode_into(&blank(), ChecksumMode::Full, &mut packet).unwrap();
    let packet = packet.freeze();
    let _segment = parse(packet.clone(), ParseMode::Verify).unwrap();
    assert!(packet.is_unique());
}

#[test]
fn the_virtio_header() {
    let mut segment = blank();
    segment.timestamps = Some(Timestamps::default());
    segment.payload = Bytes::from(vec![1; 3000]);
    segment.gso_size = 1448;
    let headers = virtio::encode_frame_headers(&segment).unwrap();
    // NEEDS_CSUM, TCPV4, 52 bytes of headers, 1448 per packet, checksum from 20 on, at 16.
    assert_eq!(headers[..10], hex("01 01 3400 a805 1400 1000"));
    let with = |gso_type: u8, gso_size: u16| {
        let mut frame = [&headers[..], &segment.payload[..]].concat();
        frame[1] = gso_type;
        frame[4..6].copy_from_slice(&gso_size.to_le_bytes());
        virtio::parse_frame(frame.into()).map(|segment| segment.gso_size)
    };
    assert_eq!(with(1, 1448), Ok(1448));
    assert_eq!(with(0x81, 1448), Ok(1448));
    assert_eq!(with(1, 3000), Ok(0));
    assert_eq!(with(0, 1448), Ok(0));
    assert_eq!(with(1, 0), Err(ParseError::Offload { gso_type: 1, gso_size: 0 }));
    assert_eq!(with(4, 1448), Err(ParseError::Offload { gso_type: 4, gso_size: 1448 }));
    assert_eq!(with(3, 1448), Err(ParseError::Offload { gso_type: 3, gso_size: 1448 }));
    assert_eq!(virtio::parse_frame(Bytes::from_static(&[0; 9])), Err(ParseError::Truncated(Part::Virtio)));
    // Neither flag: the checksum counts, and a pseudo-header's sum is not one.
    let mut frame = [&headers[..], &segment.payload[..]].concat();
    frame[0] = 0;
    assert_eq!(virtio::parse_frame(frame.into()), Err(ParseError::Checksum(Part::Tcp)));
    let mut cwr = segment.clone();
    cwr.flags = cwr.flags.with(Flags::CWR);
    assert_eq!(virtio::VirtioNetHeader::for_segment(&cwr).gso_type, 0x81);
    for (csum_start, csum_offset) in [(20, 3051), (3052, 0), (u16::MAX, u16::MAX)] {
        let header = virtio::VirtioNetHeader { flags: 1, csum_start, csum_offset, ..Default::default() };
        assert_eq!(header.complete_checksum(&mut vec![0; 3052]), Err(ParseError::Length(Part::Virtio)));
    }
}
