//! What each fuzz target checks. One function per target, named as the target and as its folder in
//! `corpus/`; nothing here needs the fuzzer, so that `cargo test -p ropewalk-wire` replays the corpora
//! with the same checks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::{Bytes, BytesMut};
use ropewalk_wire::*;

/// A check.
pub type Check = fn(&[u8]);

/// All of them by name.
pub const CHECKS: [(&str, Check); 8] = [
    ("parse_ipv4", parse_ipv4),
    ("parse_ipv6", parse_ipv6),
    ("tcp_options", tcp_options),
    ("mptcp_options", mptcp_options),
    ("icmp_too_big", icmp_too_big),
    ("virtio_frame", virtio_frame),
    ("round_trip", round_trip),
    ("gso", gso),
];

/// Any bytes as an IPv4 packet.
pub fn parse_ipv4(data: &[u8]) {
    parse_version(4, data);
}

/// Any bytes as an IPv6 packet.
pub fn parse_ipv6(data: &[u8]) {
    parse_version(6, data);
}

fn parse_version(version: u8, data: &[u8]) {
    let mut packet = data.to_vec();
    if let Some(first) = packet.first_mut() {
        *first = version << 4 | *first & 0x0f;
    }
    let packet = Bytes::from(packet);
    let verified = parse(packet.clone(), ParseMode::Verify);
    let trusted = parse(packet.clone(), ParseMode::Trust);
    match (&verified, &trusted) {
        (Ok(verified), Ok(trusted)) => assert_eq!(verified, trusted),
        (Err(ParseError::Checksum(_)), _) => {}
        (Err(verified), Err(trusted)) => assert_eq!(verified, trusted),
        (verified, trusted) => panic!("verified: {verified:?}, trusted: {trusted:?}"),
    }
    if let Ok(segment) = trusted {
        assert!(segment.payload.len() + 20 + 20 <= packet.len());
        stays_the_same(&segment);
    }
}

/// Encodes a segment that came from bytes and parses it again.
fn stays_the_same(segment: &Segment<Bytes>) {
    let mut out = BytesMut::new();
    match encode_into(segment, ChecksumMode::Full, &mut out) {
        Ok(len) => {
            assert_eq!(len, segment.wire_len());
            assert_eq!(&parse(out.freeze(), ParseMode::Verify).expect("its own packet"), segment);
        }
        // Options may have been packed tighter than they are written here, nothing else may fail.
        Err(EncodeError::OptionsTooLong(_)) => assert!(segment.options_len() > 40),
        Err(error) => panic!("{error}: {segment:?}"),
    }
}

fn blank() -> Segment<Bytes> {
    let tuple = FourTuple {
        src: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
        dst: IpAddr::V4(Ipv4Addr::new(198, 51, 100, 2)),
        src_port: 1,
        dst_port: 2,
    };
    Segment::new(tuple, Seq(1), Seq(2), Flags::ACK)
}

/// Any bytes as the options of a TCP header.
pub fn tcp_options(data: &[u8]) {
    let mut segment = blank();
    parse_options(data, &mut segment);
    stays_the_same(&segment);
    // A header's worth: then what is understood is bounded too.
    if data.len() <= 40 {
        assert!(
            segment
                .rare
                .as_ref()
                .and_then(|rare| rare.remove_addr.as_ref())
                .is_none_or(|remove| { (1..=37).contains(&remove.address_ids.len()) })
        );
    }
}

/// Any bytes as the body of MPTCP options: each piece (its first byte gives its length, up to 31
/// bytes) gets the kind and a right length.
pub fn mptcp_options(data: &[u8]) {
    let mut options = Vec::new();
    let mut rest = data;
    while let Some((&len, tail)) = rest.split_first() {
        let (body, after) = tail.split_at(usize::from(len % 32).min(tail.len()));
        options.extend_from_slice(&[30, 2 + body.len() as u8]);
        options.extend_from_slice(body);
        rest = after;
    }
    let mut segment = blank();
    parse_options(&options, &mut segment);
    stays_the_same(&segment);
}

/// Any bytes as an ICMP packet, and as a packet that a router refuses.
pub fn icmp_too_big(data: &[u8]) {
    if let Ok(too_big) = parse_icmp_too_big(data) {
        let is_v4 = too_big.router.is_ipv4();
        assert!(too_big.mtu >= if is_v4 { 68 } else { 1280 });
        assert_eq!((too_big.tuple.src.is_ipv4(), too_big.tuple.dst.is_ipv4()), (is_v4, is_v4));
    }
    let routers = [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    for router in routers {
        let mut message = BytesMut::new();
        if encode_icmp_too_big(router, 1400, data, &mut message).is_err() {
            assert!(message.is_empty());
            continue;
        }
        // It is well formed; what it quotes may still be anything.
        match parse_icmp_too_big(&message) {
            Ok(too_big) => assert_eq!((too_big.router, too_big.mtu), (router, 1400)),
            Err(ParseError::Truncated(Part::Quoted) | ParseError::Protocol { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Any bytes as a frame from a device with offload.
pub fn virtio_frame(data: &[u8]) {
    let frame = Bytes::copy_from_slice(data);
    if let Ok(segment) = virtio::parse_frame(frame) {
        assert!(segment.gso_size == 0 || usize::from(segment.gso_size) < segment.payload.len());
        if let Ok(headers) = virtio::encode_frame_headers(&segment) {
            let again = [&headers[..], &segment.payload[..]].concat();
            assert_eq!(virtio::parse_frame(again.into()).as_ref(), Ok(&segment));
        }
    }
    if let Some(header) = virtio::VirtioNetHeader::parse(data) {
        assert_eq!(header.encode(), data[..virtio::VirtioNetHeader::LEN]);
        let mut packet = data[virtio::VirtioNetHeader::LEN..].to_vec();
        if header.complete_checksum(&mut packet).is_err() {
            assert_eq!(packet, data[virtio::VirtioNetHeader::LEN..]);
        }
    }
}

/// A segment made from the bytes survives encoding and parsing.
pub fn round_trip(data: &[u8]) {
    let segment = Draw(data).segment();
    let mut out = BytesMut::new();
    match encode_into(&segment, ChecksumMode::Full, &mut out) {
        Ok(len) => {
            assert_eq!((len, out.len()), (segment.wire_len(), segment.wire_len()));
            assert_eq!(parse(out.freeze(), ParseMode::Verify), Ok(segment));
        }
        Err(EncodeError::OptionsTooLong(len)) => assert_eq!(len, segment.options_len()),
        Err(error) => panic!("{error}"),
    }
}

/// The packets of a super-segment made from the bytes merge into it again.
pub fn gso(data: &[u8]) {
    let mut draw = Draw(data);
    let gso_size = 1 + draw.u16() % 64;
    let mut segment = draw.segment();
    segment.flags = segment.flags.without(Flags::SYN.with(Flags::RST).with(Flags::URG));
    segment.gso_size = if segment.payload.len() > usize::from(gso_size) { gso_size } else { 0 };
    let mut merger = gso::Merger::new();
    let mut held: Option<Segment<Bytes>> = None;
    let mut len = 0;
    for packet in gso::split(segment.clone()) {
        len += packet.payload.len();
        assert_eq!(packet.options_len(), segment.options_len());
        assert_eq!(merger.push(packet.clone()), None);
        match &mut held {
            Some(held) => assert_eq!(gso::merge(held, packet), None),
            None => held = Some(packet),
        }
    }
    assert_eq!(len, segment.payload.len());
    assert_eq!(held.as_ref(), Some(&segment));
    assert_eq!(merger.finish().as_ref(), Some(&segment));
    gso_bytes(&segment, data.iter().fold(0, |damage, byte| damage.rotate_left(3) ^ u16::from(*byte)));
}

/// The same on bytes; and with one byte of them damaged, each packet comes out as it would alone.
fn gso_bytes(segment: &Segment<Bytes>, damage: u16) {
    let (mut bytes, mut ends) = (BytesMut::new(), Vec::new());
    if encode_packets(segment, &mut bytes, &mut ends).is_err() {
        return;
    }
    for damage in [None, Some(usize::from(damage) % bytes.len())] {
        if let Some(at) = damage {
            bytes[at] ^= 0x55;
        }
        let bytes = bytes.clone().freeze();
        let mut coalescer = Coalescer::new();
        let (mut coalesced, mut alone, mut start) = (Vec::new(), Vec::new(), 0);
        for &end in &ends {
            let parsed = parse(bytes.slice(start..end), ParseMode::Verify);
            let pushed = coalescer.push(&bytes, start..end, |segment| coalesced.push(segment));
            assert_eq!(pushed.is_ok(), parsed.is_ok());
            alone.extend(parsed);
            start = end;
        }
        coalescer.finish(|segment| coalesced.push(segment));
        if damage.is_none() {
            assert_eq!(coalesced, std::slice::from_ref(segment));
        }
        assert_eq!(coalesced.into_iter().flat_map(gso::split).collect::<Vec<_>>(), alone);
    }
}

/// Takes values off the front of the fuzzer's bytes; zeros when they have run out.
struct Draw<'a>(&'a [u8]);

impl Draw<'_> {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let len = N.min(self.0.len());
        let (front, rest) = self.0.split_at(len);
        out[..len].copy_from_slice(front);
        self.0 = rest;
        out
    }

    fn u8(&mut self) -> u8 {
        u8::from_be_bytes(self.bytes())
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.bytes())
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.bytes())
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.bytes())
    }

    fn flag(&mut self) -> bool {
        self.u8() & 1 == 1
    }

    fn maybe<T>(&mut self, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.flag().then(|| value(self))
    }

    fn address(&mut self, is_v4: bool) -> IpAddr {
        if is_v4 { Ipv4Addr::from(self.u32()).into() } else { Ipv6Addr::from(self.bytes::<16>()).into() }
    }

    /// A segment in the form that parsing gives; its options may be too long.
    fn segment(mut self) -> Segment<Bytes> {
        let is_v4 = self.flag();
        let tuple = FourTuple {
            src: self.address(is_v4),
            dst: self.address(is_v4),
            src_port: self.u16(),
            dst_port: self.u16(),
        };
        let mut segment = Segment::new(tuple, Seq(self.u32()), Seq(self.u32()), Flags(self.u8()));
        segment.window = self.u16();
        segment.urgent = self.u16();
        segment.ecn = [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce][usize::from(self.u8() % 4)];
        // One bit per option, so that few bytes choose any combination.
        let present = self.u16();
        let has = |bit: u16| present & 1 << bit != 0;
        if has(0) {
            segment.timestamps = Some(Timestamps { value: self.u32(), echo: self.u32() });
        }
        if has(1) {
            for _ in 0..=self.u8() % 4 {
                segment.sack.push(self.u32(), self.u32());
            }
        }
        if has(2) {
            segment.dss = Some(self.dss());
        }
        let rare = RareOptions {
            sack_permitted: has(3),
            mss: has(4).then(|| self.u16()),
            window_scale: has(5).then(|| self.u8() % 15),
            mp_capable: has(6).then(|| self.mp_capable()),
            mp_join: has(7).then(|| self.mp_join()),
            add_addr: has(8).then(|| self.add_addr()),
            remove_addr: has(9)
                .then(|| RemoveAddr { address_ids: (0..=self.u8() % 40).map(|_| self.u8()).collect() }),
            mp_prio: has(10).then(|| MpPrio { backup: self.flag() }),
            mp_fail: has(11).then(|| MpFail { dsn: self.u64() }),
            mp_fastclose: has(12).then(|| MpFastClose { receiver_key: self.u64() }),
            mp_tcprst: has(13).then(|| MpTcpRst { transient: self.flag(), reason: self.u8() }),
        };
        if rare != RareOptions::default() {
            segment.rare = Some(Box::new(rare));
        }
        segment.payload = Bytes::copy_from_slice(self.0);
        segment
    }

    fn dss(&mut self) -> Dss {
        let ack_is_64 = self.flag();
        let data_ack = self.maybe(|draw| if ack_is_64 { draw.u64() } else { draw.u32().into() });
        let mapping = self.maybe(|draw| {
            let dsn_is_64 = draw.flag();
            DssMapping {
                dsn: if dsn_is_64 { draw.u64() } else { draw.u32().into() },
                ssn: draw.u32(),
                len: draw.u16(),
                checksum: draw.maybe(Self::u16),
                dsn_is_64,
            }
        });
        Dss { data_ack, ack_is_64: ack_is_64 && data_ack.is_some(), mapping, data_fin: self.flag() }
    }

    fn mp_capable(&mut self) -> MpCapable {
        let (flags, fields) = (self.u8(), self.u8() % 5);
        MpCapable {
            version: flags >> 4,
            checksum_required: flags & 1 != 0,
            extensibility: flags & 2 != 0,
            deny_join_initial_address: flags & 4 != 0,
            hmac_sha256: flags & 8 != 0,
            sender_key: (fields > 0).then(|| self.u64()),
            receiver_key: (fields > 1).then(|| self.u64()),
            data_len: (fields > 2).then(|| self.u16()),
            checksum: (fields > 3).then(|| self.u16()),
        }
    }

    fn mp_join(&mut self) -> MpJoin {
        let backup = self.flag();
        match self.u8() % 3 {
            0 => MpJoin::Syn { backup, address_id: self.u8(), token: self.u32(), nonce: self.u32() },
            1 => MpJoin::SynAck { backup, address_id: self.u8(), hmac: self.u64(), nonce: self.u32() },
            _ => MpJoin::Ack { hmac: self.bytes() },
        }
    }

    fn add_addr(&mut self) -> AddAddr {
        let (echo, is_v4) = (self.flag(), self.flag());
        AddAddr {
            echo,
            address_id: self.u8(),
            address: self.address(is_v4),
            port: self.maybe(Self::u16),
            hmac: if echo { None } else { Some(self.u64()) },
        }
    }
}
