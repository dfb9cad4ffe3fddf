//! ICMP "packet too big", the one ICMP message that a TCP endpoint acts on: IPv4's type 3 code 4 with
//! the next-hop MTU of RFC 1191, and ICMPv6's type 2 (RFC 4443 3.2, RFC 8201). Parsed for the
//! endpoint, written by a router (the emulator is one).
//!
//! Anybody can send such a message. The endpoint must act on it only if the quoted sequence number is in
//! flight on the quoted connection (RFC 5927 4.1, 7), so both are returned.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::{BufMut, BytesMut};

use crate::checksum::{ones_complement, pseudo_header};
use crate::error::{ParseError, Part};
use crate::ip::{self, ICMP, ICMPV6, IPV4_HEADER, IPV6_HEADER};
use crate::segment::FourTuple;
use crate::seq::Seq;

/// Length of the ICMP header.
const ICMP_HEADER: usize = 8;
/// Least MTU of IPv4 (RFC 791 3.2) and IPv6 (RFC 8200 5).
const MIN_MTU_V4: u32 = 68;
const MIN_MTU_V6: u32 = 1280;
/// Longest messages: a router quotes as much of the packet as fits in 576 bytes (RFC 1812 4.3.2.3) or in
/// the minimum IPv6 MTU (RFC 4443 2.4 c).
const MAX_MESSAGE_V4: usize = 576;
const MAX_MESSAGE_V6: usize = MIN_MTU_V6 as usize;

/// A router's message that a packet was too big for the next hop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooBig {
    /// The message's source (any router on the path, or a forger).
    pub router: IpAddr,
    /// MTU of the next hop in bytes, at least 68 for IPv4 and 1280 for IPv6. From an old router that
    /// gives none (RFC 1191 5) it is the plateau below the quoted packet's length.
    pub mtu: u32,
    /// Addresses and ports of the packet that was too big: the direction in which this host sent it.
    pub tuple: FourTuple,
    /// Its sequence number, to be checked against what is in flight.
    pub seq: Seq,
}

/// The next lower plateau of RFC 1191 7.1 for a packet of `len` bytes.
fn plateau_below(len: usize) -> u32 {
    const PLATEAUS: [u16; 11] = [65_535, 32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, 508, 296, 68];
    PLATEAUS.into_iter().find(|&plateau| usize::from(plateau) < len).map_or(MIN_MTU_V4, u32::from)
}

//= RFC 9293 MUST-54 MUST-55 MUST-56 anything but "too big" is refused here, and ends nothing
/// Parses an ICMP or ICMPv6 packet, from the IP header on, that says "packet too big" about a TCP
/// segment. Checksums are verified.
///
/// # Errors
/// [`ParseError::NotTooBig`] for other ICMP messages, [`ParseError::Protocol`] when the packet isn't
/// ICMP or the quoted one isn't TCP, [`ParseError::Mtu`] for an MTU below the protocol's minimum, and
/// whatever else is wrong with either packet.
pub fn parse_icmp_too_big(packet: &[u8]) -> Result<TooBig, ParseError> {
    let outer = ip::parse(packet, ip::Completeness::Whole)?;
    let is_v4 = outer.src.is_ipv4();
    if outer.protocol != if is_v4 { ICMP } else { ICMPV6 } {
        return Err(ParseError::Protocol { protocol: outer.protocol });
    }
    if is_v4 && ones_complement(&packet[..outer.header_len]) != 0xffff {
        return Err(ParseError::Checksum(Part::Ipv4));
    }
    let message = &packet[outer.upper.clone()];
    let Some((header, quoted)) = message.split_first_chunk::<ICMP_HEADER>() else {
        return Err(ParseError::Truncated(Part::Icmp));
    };
    let sum = if is_v4 {
        ones_complement(message)
    } else {
        let mut sum = pseudo_header(outer.src, outer.dst, ICMPV6, message.len() as u32);
        sum.add_bytes(message);
        sum.folded()
    };
    if sum != 0xffff {
        return Err(ParseError::Checksum(Part::Icmp));
    }
    let (kind, code) = (header[0], header[1]);
    if (kind, code) != if is_v4 { (3, 4) } else { (2, 0) } {
        return Err(ParseError::NotTooBig { kind, code });
    }
    let inner = ip::parse(quoted, ip::Completeness::Quoted).map_err(|error| match error {
        ParseError::Truncated(_) => ParseError::Truncated(Part::Quoted),
        other => other,
    })?;
    if inner.src.is_ipv4() != is_v4 {
        return Err(ParseError::Length(Part::Quoted));
    }
    if inner.protocol != ip::TCP {
        return Err(ParseError::Protocol { protocol: inner.protocol });
    }
    // RFC 792 guarantees the first 8 bytes: the ports and the sequence number.
    let Some(&[a, b, c, d, e, f, g, h]) = quoted[inner.upper.clone()].first_chunk::<8>() else {
        return Err(ParseError::Truncated(Part::Quoted));
    };
    let (mtu, least) = if is_v4 {
        let mtu = u32::from(u16::from_be_bytes([header[6], header[7]]));
        (if mtu == 0 { plateau_below(inner.total_len) } else { mtu }, MIN_MTU_V4)
    } else {
        (u32::from_be_bytes([header[4], header[5], header[6], header[7]]), MIN_MTU_V6)
    };
    if mtu < least {
        return Err(ParseError::Mtu(mtu));
    }
    Ok(TooBig {
        router: outer.src,
        mtu,
        tuple: FourTuple {
            src: inner.src,
            dst: inner.dst,
            src_port: u16::from_be_bytes([a, b]),
            dst_port: u16::from_be_bytes([c, d]),
        },
        seq: Seq(u32::from_be_bytes([e, f, g, h])),
    })
}

/// Appends to `out` the message with which `router` refuses `packet` (from its IP header on; its
/// beginning is enough), and returns its length. The next hop's MTU is `mtu` bytes; IPv4 has room
/// for 65,535.
///
/// # Errors
/// When `packet` has no IP header to answer to, or [`ParseError::Version`] when `router` is of the
/// other version. `out` is unchanged then.
pub fn encode_icmp_too_big(
    router: IpAddr,
    mtu: u32,
    packet: &[u8],
    out: &mut BytesMut,
) -> Result<usize, ParseError> {
    let refused = ip::parse(packet, ip::Completeness::Quoted)?;
    let packet = &packet[..refused.upper.end];
    let start = out.len();
    match (router, refused.src) {
        (IpAddr::V4(router), IpAddr::V4(dst)) => {
            let quoted = &packet[..packet.len().min(MAX_MESSAGE_V4 - IPV4_HEADER - ICMP_HEADER)];
            put_ipv4(router, dst, ICMP_HEADER + quoted.len(), out);
            let message = out.len();
            out.put_slice(&[3, 4, 0, 0, 0, 0]);
            out.put_u16(mtu.min(65_535) as u16);
            out.put_slice(quoted);
            let checksum = !ones_complement(&out[message..]);
            out[message + 2..message + 4].copy_from_slice(&checksum.to_be_bytes());
        }
        (IpAddr::V6(router), IpAddr::V6(dst)) => {
            let quoted = &packet[..packet.len().min(MAX_MESSAGE_V6 - IPV6_HEADER - ICMP_HEADER)];
            put_ipv6(router, dst, ICMP_HEADER + quoted.len(), out);
            let message = out.len();
            out.put_slice(&[2, 0, 0, 0]);
            out.put_u32(mtu);
            out.put_slice(quoted);
            let len = (out.len() - message) as u32;
            let mut sum = pseudo_header(router.into(), dst.into(), ICMPV6, len);
            sum.add_bytes(&out[message..]);
            out[message + 2..message + 4].copy_from_slice(&sum.checksum().to_be_bytes());
        }
        (router, _) => return Err(ParseError::Version(if router.is_ipv4() { 4 } else { 6 })),
    }
    Ok(out.len() - start)
}

/// The IPv4 header of a message of at most 576 bytes.
fn put_ipv4(src: Ipv4Addr, dst: Ipv4Addr, len: usize, out: &mut BytesMut) {
    let start = out.len();
    out.put_slice(&[0x45, 0xc0]);
    out.put_u16((IPV4_HEADER + len) as u16);
    out.put_slice(&[0, 0, 0, 0, 64, ICMP, 0, 0]);
    out.put_slice(&src.octets());
    out.put_slice(&dst.octets());
    let checksum = !ones_complement(&out[start..]);
    out[start + 10..start + 12].copy_from_slice(&checksum.to_be_bytes());
}

/// The IPv6 header of a message of at most 1280 bytes.
fn put_ipv6(src: Ipv6Addr, dst: Ipv6Addr, len: usize, out: &mut BytesMut) {
    out.put_slice(&[0x60, 0, 0, 0]);
    out.put_u16(len as u16);
    out.put_slice(&[ICMPV6, 64]);
    out.put_slice(&src.octets());
    out.put_slice(&dst.octets());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ChecksumMode, Flags, Segment, encode_into};
    use bytes::Bytes;

    fn refused(src: &str, dst: &str, len: usize) -> BytesMut {
        let tuple = FourTuple::new(src.parse().unwrap(), dst.parse().unwrap());
        let mut segment = Segment::new(tuple, Seq(0xdead_beef), Seq(1), Flags::ACK);
        segment.payload = Bytes::from(vec![7; len]);
        let mut packet = BytesMut::new();
        encode_into(&segment, ChecksumMode::Full, &mut packet).unwrap();
        packet
    }

    fn message(router: &str, mtu: u32, packet: &[u8]) -> BytesMut {
        let mut out = BytesMut::new();
        let len = encode_icmp_too_big(router.parse().unwrap(), mtu, packet, &mut out).unwrap();
        assert_eq!(len, out.len());
        out
    }

    /// Recomputes the ICMP checksum of an IPv4 message after the test has changed it.
    fn fix_checksum(out: &mut [u8]) {
        out[22..24].fill(0);
        let checksum = !ones_complement(&out[20..]);
        out[22..24].copy_from_slice(&checksum.to_be_bytes());
    }

    //= test RFC 9293 MUST-54
    #[test]
    fn a_routers_message_is_parsed() {
        for (src, dst, router, mtu) in [
            ("10.0.0.1:4000", "10.0.1.1:80", "10.0.0.254", 1280),
            ("[2001:db8::1]:4000", "[2001:db8:1::1]:80", "2001:db8::fe", 1400),
        ] {
            let packet = refused(src, dst, 1440);
            let out = message(router, mtu, &packet);
            assert!(out.len() <= if router.contains(':') { 1280 } else { 576 });
            let too_big = parse_icmp_too_big(&out).unwrap();
            assert_eq!(too_big.mtu, mtu);
            assert_eq!(too_big.router, router.parse::<IpAddr>().unwrap());
            assert_eq!(too_big.tuple, FourTuple::new(src.parse().unwrap(), dst.parse().unwrap()));
            assert_eq!(too_big.seq, Seq(0xdead_beef));
        }
    }

    #[test]
    fn eight_quoted_bytes_are_enough_and_seven_are_not() {
        let packet = refused("10.0.0.1:4000", "10.0.1.1:80", 1440);
        let out = message("10.0.0.254", 1280, &packet[..28]);
        assert_eq!(parse_icmp_too_big(&out).unwrap().seq, Seq(0xdead_beef));
        let out = message("10.0.0.254", 1280, &packet[..27]);
        assert_eq!(parse_icmp_too_big(&out), Err(ParseError::Truncated(Part::Quoted)));
    }

    #[test]
    fn a_router_without_mtu_means_the_next_plateau() {
        // RFC 1191 5: total length 1500 -> 1492.
        let packet = refused("10.0.0.1:4000", "10.0.1.1:80", 1460);
        let out = message("10.0.0.254", 0, &packet);
        assert_eq!(parse_icmp_too_big(&out).unwrap().mtu, 1492);
        assert_eq!(plateau_below(1492), 1006);
        assert_eq!(plateau_below(60), 68);
    }

    #[test]
    fn impossible_mtus_are_refused() {
        let packet = refused("[2001:db8::1]:4000", "[2001:db8:1::1]:80", 1440);
        let out = message("2001:db8::fe", 1279, &packet);
        assert_eq!(parse_icmp_too_big(&out), Err(ParseError::Mtu(1279)));
        let packet = refused("10.0.0.1:4000", "10.0.1.1:80", 1440);
        let out = message("10.0.0.254", 67, &packet);
        assert_eq!(parse_icmp_too_big(&out), Err(ParseError::Mtu(67)));
    }

    //= test RFC 9293 MUST-55 MUST-56
    #[test]
    fn other_messages_are_refused() {
        let packet = refused("10.0.0.1:4000", "10.0.1.1:80", 100);
        assert_eq!(parse_icmp_too_big(&packet), Err(ParseError::Protocol { protocol: 6 }));
        let mut out = message("10.0.0.254", 1280, &packet);
        out[40] ^= 1;
        assert_eq!(parse_icmp_too_big(&out), Err(ParseError::Checksum(Part::Icmp)));
        out[40] ^= 1;
        out[21] = 1;
        fix_checksum(&mut out);
        assert_eq!(parse_icmp_too_big(&out), Err(ParseError::NotTooBig { kind: 3, code: 1 }));
        out[21] = 4;
        // The quoted packet's protocol.
        out[28 + 9] = 17;
        fix_checksum(&mut out);
        assert_eq!(parse_icmp_too_big(&out), Err(ParseError::Protocol { protocol: 17 }));
    }
}
