//! Bits that RFC 8684 reserves: 0 when sent, passed over when received.

use bytes::Bytes;
use ropewalk_wire::{
    AddAddr, ChecksumMode, Dss, DssMapping, Flags, FourTuple, MpCapable, MpJoin, MpTcpRst, ParseMode,
    Segment, Seq, encode, parse,
};

const OPTIONS: usize = 40;

fn blank() -> Segment<Bytes> {
    let tuple = FourTuple::new("10.0.0.1:1000".parse().expect("one"), "10.0.0.2:80".parse().expect("one"));
    Segment::new(tuple, Seq(1), Seq(2), Flags::ACK)
}

fn bytes(segment: &Segment<Bytes>) -> Vec<u8> {
    let mut out = vec![0; 200];
    let len = encode(segment, ChecksumMode::None, &mut out).expect("valid");
    out.truncate(len);
    out
}

/// One of each option that has reserved bits, with where those are, counted from the option's first byte.
fn cases() -> Vec<(Segment<Bytes>, usize, u8)> {
    let mut cases = Vec::new();
    let mut add = |at: usize, mask: u8, set: &dyn Fn(&mut Segment<Bytes>)| {
        let mut segment = blank();
        set(&mut segment);
        cases.push((segment, at, mask));
    };
    add(2, 0x0e, &|segment| {
        let join = MpJoin::Syn { backup: true, address_id: 3, token: 4, nonce: 5 };
        segment.rare_mut().mp_join = Some(join);
    });
    add(2, 0x0f, &|segment| segment.rare_mut().mp_join = Some(MpJoin::Ack { hmac: [7; 20] }));
    add(3, 0xe0, &|segment| {
        let mapping = DssMapping { dsn: 1, ssn: 2, len: 3, checksum: None, dsn_is_64: true };
        segment.dss = Some(Dss { data_ack: Some(9), mapping: Some(mapping), ..Dss::default() });
    });
    add(2, 0x0e, &|segment| {
        let address = "10.0.0.9".parse().expect("one");
        segment.rare_mut().add_addr =
            Some(AddAddr { echo: true, address_id: 1, address, port: None, hmac: None });
    });
    add(2, 0x0e, &|segment| segment.rare_mut().mp_tcprst = Some(MpTcpRst { transient: true, reason: 2 }));
    cases
}

//= test RFC 8684 3.2-2 3.2-6 3.3-1 3.4.1-7 3.4.1-8 3.6-3 3.6-4
#[test]
fn reserved_bits_are_sent_as_0_and_ignored() {
    for (segment, at, mask) in cases() {
        let mut packet = bytes(&segment);
        assert_eq!(packet[OPTIONS], 30, "Multipath TCP");
        assert_eq!(packet[OPTIONS + at] & mask, 0, "{segment:?}");
        let plain = parse(Bytes::from(packet.clone()), ParseMode::Trust).expect("valid");
        packet[OPTIONS + at] |= mask;
        assert_eq!(parse(Bytes::from(packet), ParseMode::Trust).expect("valid"), plain);
        assert_eq!(plain.rare, segment.rare);
    }
}

//= test RFC 8684 3.1-12 3.1-15 3.1-16
/// A SYN's option as the engine makes it: version 1, and of the flags H alone.
#[test]
fn an_offer_names_hmac_sha256_and_nothing_else() {
    let mut segment = blank();
    segment.rare_mut().mp_capable = Some(MpCapable { version: 1, hmac_sha256: true, ..MpCapable::default() });
    assert_eq!(bytes(&segment)[OPTIONS..OPTIONS + 4], [30, 4, 1, 1]);
}
