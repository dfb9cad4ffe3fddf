//! Bytes -> [`Segment`]: the inverse of [`crate::encode`], for any bytes that a network may deliver.
//!
//! Bytes after the packet's own length (link padding) are dropped; reserved header bits are ignored
//! (RFC 9293 3.1). Options that a [`Segment`] doesn't have are ignored; see [`crate::parse_options`] for
//! what happens to malformed ones.

use std::ops::Range;

use bytes::{Buf, Bytes};

use crate::checksum::{ones_complement, pseudo_header};
use crate::encode::TCP_HEADER;
use crate::error::{ParseError, Part};
use crate::ip;
use crate::option_codec::parse_options;
use crate::payload::Payload;
use crate::segment::{Flags, FourTuple, Segment};
use crate::seq::Seq;

/// Whether checksums are verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParseMode {
    /// IPv4's header checksum and TCP's are verified (RFC 9293 MUST-3).
    Verify,
    /// They are not verified: the kernel or device has done so, or left them to be completed
    /// (`VIRTIO_NET_HDR_F_DATA_VALID`, `_NEEDS_CSUM`).
    Trust,
}

/// Parses one packet, from the IP header on. The payload is a slice of `packet`'s buffer, not a copy;
/// an empty one doesn't keep the buffer alive.
///
/// # Errors
/// Any [`ParseError`]; [`ParseError::Protocol`] says which protocol it is if it isn't TCP (1 and 58
/// are for [`crate::parse_icmp_too_big`]).
pub fn parse(mut packet: Bytes, mode: ParseMode) -> Result<Segment<Bytes>, ParseError> {
    let (mut segment, data) = parse_headers::<Bytes>(&packet, mode)?;
    if !data.is_empty() {
        packet.truncate(data.end);
        packet.advance(data.start);
        segment.payload = packet;
    }
    Ok(segment)
}

/// Parses the headers of one packet. Returns a segment without payload, and the payload's range in the
/// packet. For callers that manage packet buffers themselves.
///
/// # Errors
/// As [`parse`].
pub fn parse_headers<P: Payload>(
    packet: &[u8],
    mode: ParseMode,
) -> Result<(Segment<P>, Range<usize>), ParseError> {
    let network = ip::parse(packet, ip::Completeness::Whole)?;
    if mode == ParseMode::Verify
        && network.src.is_ipv4()
        && ones_complement(&packet[..network.header_len]) != 0xffff
    {
        return Err(ParseError::Checksum(Part::Ipv4));
    }
    if network.protocol != ip::TCP {
        return Err(ParseError::Protocol { protocol: network.protocol });
    }
    let body = &packet[network.upper.clone()];
    let Some((tcp, rest)) = body.split_first_chunk::<TCP_HEADER>() else {
        return Err(ParseError::Truncated(Part::Tcp));
    };
    let header_len = usize::from(tcp[12] >> 4) * 4;
    if header_len < TCP_HEADER {
        return Err(ParseError::Length(Part::Tcp));
    }
    let Some(options) = rest.get(..header_len - TCP_HEADER) else {
        return Err(ParseError::Truncated(Part::Tcp));
    };
    //= RFC 9293 MUST-3
    if mode == ParseMode::Verify {
        let mut sum = pseudo_header(network.src, network.dst, ip::TCP, body.len() as u32);
        sum.add_bytes(body);
        if sum.folded() != 0xffff {
            return Err(ParseError::Checksum(Part::Tcp));
        }
    }
    let u16_at = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
    let u32_at = |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
    let tuple = FourTuple { src: network.src, dst: network.dst, src_port: u16_at(0), dst_port: u16_at(2) };
    let mut segment = Segment::new(tuple, Seq(u32_at(4)), Seq(u32_at(8)), Flags(tcp[13]));
    segment.window = u16_at(14);
    segment.urgent = u16_at(18);
    segment.ecn = network.ecn;
    (segment.dscp, segment.hop_limit) = (network.dscp, network.hop_limit);
    if !options.is_empty() {
        parse_options(options, &mut segment);
    }
    Ok((segment, network.upper.start + header_len..network.upper.end))
}
