//! The IP header, as far as a TCP endpoint needs it: IPv4 (RFC 791; options are skipped) and IPv6
//! (RFC 8200; hop-by-hop, destination and spent routing headers are skipped). Fragments are refused:
//! TCP has path MTU discovery, and holding fragments invites attacks; an IPv6 "atomic" fragment is a
//! whole packet and accepted (RFC 6946).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use crate::error::{ParseError, Part};
use crate::segment::Ecn;

/// Length of an IPv4 header without options.
pub(crate) const IPV4_HEADER: usize = 20;
/// Length of an IPv6 header without extensions.
pub(crate) const IPV6_HEADER: usize = 40;

/// Protocol number of TCP.
pub(crate) const TCP: u8 = 6;
/// Protocol number of ICMP.
pub(crate) const ICMP: u8 = 1;
/// Next header of ICMPv6.
pub(crate) const ICMPV6: u8 = 58;

/// Whether a packet is complete.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Completeness {
    /// All of it.
    Whole,
    /// Its beginning, quoted by an ICMP message.
    Quoted,
}

/// The parsed header.
pub(crate) struct Header {
    pub src: IpAddr,
    pub dst: IpAddr,
    pub ecn: Ecn,
    pub dscp: u8,
    pub hop_limit: u8,
    pub protocol: u8,
    /// Where the IP header proper ends, without IPv6 extensions.
    pub header_len: usize,
    /// The bytes of the upper layer.
    pub upper: Range<usize>,
    /// Length of the whole packet as its header says.
    pub total_len: usize,
}

const fn ecn(bits: u8) -> Ecn {
    match bits & 3 {
        0 => Ecn::NotEct,
        1 => Ecn::Ect1,
        2 => Ecn::Ect0,
        _ => Ecn::Ce,
    }
}

/// Reads the header of either version.
pub(crate) fn parse(packet: &[u8], completeness: Completeness) -> Result<Header, ParseError> {
    match packet.first().map(|byte| byte >> 4) {
        Some(4) => parse_v4(packet, completeness),
        Some(6) => parse_v6(packet, completeness),
        Some(version) => Err(ParseError::Version(version)),
        None => Err(ParseError::Truncated(Part::Ipv4)),
    }
}

fn parse_v4(packet: &[u8], completeness: Completeness) -> Result<Header, ParseError> {
    let Some((ip, _)) = packet.split_first_chunk::<IPV4_HEADER>() else {
        return Err(ParseError::Truncated(Part::Ipv4));
    };
    //= RFC 9293 MUST-50
    let header_len = usize::from(ip[0] & 0x0f) * 4;
    let total_len = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    if header_len < IPV4_HEADER || total_len < header_len {
        return Err(ParseError::Length(Part::Ipv4));
    }
    let end = match completeness {
        Completeness::Whole if total_len > packet.len() => return Err(ParseError::Truncated(Part::Ipv4)),
        Completeness::Whole => total_len,
        Completeness::Quoted => total_len.min(packet.len()),
    };
    if end < header_len {
        return Err(ParseError::Truncated(Part::Ipv4));
    }
    let fragment = u16::from_be_bytes([ip[6], ip[7]]);
    // The first fragment of a quoted packet has the upper layer's first bytes.
    let mask = if completeness == Completeness::Quoted { 0x1fff } else { 0x3fff };
    if fragment & mask != 0 {
        return Err(ParseError::Fragment);
    }
    Ok(Header {
        src: Ipv4Addr::new(ip[12], ip[13], ip[14], ip[15]).into(),
        dst: Ipv4Addr::new(ip[16], ip[17], ip[18], ip[19]).into(),
        ecn: ecn(ip[1]),
        dscp: ip[1] >> 2,
        hop_limit: ip[8],
        protocol: ip[9],
        header_len,
        upper: header_len..end,
        total_len,
    })
}

fn parse_v6(packet: &[u8], completeness: Completeness) -> Result<Header, ParseError> {
    let Some((ip, _)) = packet.split_first_chunk::<IPV6_HEADER>() else {
        return Err(ParseError::Truncated(Part::Ipv6));
    };
    let total_len = IPV6_HEADER + usize::from(u16::from_be_bytes([ip[4], ip[5]]));
    let end = match completeness {
        Completeness::Whole if total_len > packet.len() => return Err(ParseError::Truncated(Part::Ipv6)),
        Completeness::Whole => total_len,
        Completeness::Quoted => total_len.min(packet.len()),
    };
    let address = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&ip[at..at + 16]);
        IpAddr::V6(Ipv6Addr::from(octets))
    };
    let mut protocol = ip[6];
    let mut start = IPV6_HEADER;
    // Every extension header has 8 bytes or more, so this ends with the packet at the latest.
    while let 0 | 43 | 44 | 60 = protocol {
        let Some((extension, _)) = packet[start..end].split_first_chunk::<8>() else {
            return Err(ParseError::Truncated(Part::Extension));
        };
        let mut len = 8 + usize::from(extension[1]) * 8;
        match protocol {
            43 if extension[3] != 0 => return Err(ParseError::Routed(extension[3])),
            44 => {
                // The fragment header's second byte is reserved, not a length.
                len = 8;
                let fragment = u16::from_be_bytes([extension[2], extension[3]]);
                let mask = if completeness == Completeness::Quoted { 0xfff8 } else { 0xfff9 };
                if fragment & mask != 0 {
                    return Err(ParseError::Fragment);
                }
            }
            _ => {}
        }
        if len > end - start {
            return Err(ParseError::Truncated(Part::Extension));
        }
        protocol = extension[0];
        start += len;
    }
    Ok(Header {
        src: address(8),
        dst: address(24),
        ecn: ecn(ip[1] >> 4),
        dscp: (ip[0] << 4 | ip[1] >> 4) >> 2,
        hop_limit: ip[7],
        protocol,
        header_len: IPV6_HEADER,
        upper: start..end,
        total_len,
    })
}
