//! [`Segment`] -> bytes: IPv4 (RFC 791) or IPv6 (RFC 8200) header, TCP header (RFC 9293 3.1),
//! options, payload.
//!
//! The headers are built on the stack ([`Headers`], at most 100 bytes), so that a device can write headers
//! and payload as two pieces without copying the payload. Fields that a segment doesn't have are fixed:
//! flow label 0, and for IPv4 "don't fragment" with identification 0 (RFC 6864 4.1).

use std::net::IpAddr;

use bytes::{Bytes, BytesMut};

use crate::checksum::{Sum, ones_complement, pseudo_header};
use crate::error::EncodeError;
use crate::ip::{IPV4_HEADER, IPV6_HEADER, TCP};
use crate::option_codec;
use crate::payload::Payload;
use crate::segment::Segment;

/// Length of a TCP header without options.
pub(crate) const TCP_HEADER: usize = 20;
/// Most bytes of options on a segment: what a data offset of 15 words leaves room for (RFC 9293 3.1).
pub const MAX_OPTIONS: usize = 40;
/// Length of the virtio header that may come before a packet.
pub(crate) const VIRTIO_HEADER: usize = 10;
/// Room for virtio, IPv6 and TCP headers with the most options.
pub(crate) const MAX_HEADERS: usize = VIRTIO_HEADER + IPV6_HEADER + TCP_HEADER + MAX_OPTIONS;
/// Offset of the checksum in the TCP header.
pub(crate) const TCP_CHECKSUM_OFFSET: usize = 16;

/// What to write into TCP's checksum field. IPv4's own header checksum is always complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChecksumMode {
    /// The checksum over pseudo-header, header and payload.
    Full,
    /// The folded sum of the pseudo-header alone, not inverted: the kernel or device completes it
    /// (`VIRTIO_NET_HDR_F_NEEDS_CSUM`). Costs nothing per byte.
    PseudoHeader,
    /// Zero.
    None,
}

/// Encoded headers: everything of a packet that comes before its payload.
#[derive(Clone, Copy)]
pub struct Headers {
    bytes: [u8; MAX_HEADERS],
    len: usize,
}

impl Headers {
    pub(crate) const fn empty() -> Self {
        Headers { bytes: [0; MAX_HEADERS], len: 0 }
    }

    /// Appends `bytes`, which must fit.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// The bytes, mutable.
    #[inline]
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }

    /// The bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl std::ops::Deref for Headers {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl std::fmt::Debug for Headers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_slice().fmt(f)
    }
}

/// Encodes everything but the payload, [`Segment::headers_len`] bytes. Followed by the payload it is
/// the packet.
///
/// A payload without bytes (the simulator's [`crate::SyntheticPayload`]) is summed as zeros, so that a packet
/// made of these headers and zeros has a correct checksum.
///
/// # Errors
/// [`EncodeError::OptionsTooLong`] past 40 bytes of options, [`EncodeError::PacketTooLong`] past what
/// the IP length field allows (65,535 bytes with the header in IPv4, without it in IPv6),
/// [`EncodeError::MixedFamilies`], [`EncodeError::InvalidOption`].
pub fn encode_headers<P: Payload>(segment: &Segment<P>, mode: ChecksumMode) -> Result<Headers, EncodeError> {
    let mut headers = Headers::empty();
    append_headers(segment, mode, &mut headers)?;
    Ok(headers)
}

pub(crate) fn append_headers<P: Payload>(
    segment: &Segment<P>,
    mode: ChecksumMode,
    headers: &mut Headers,
) -> Result<(), EncodeError> {
    let options_len = segment.options_len();
    if options_len > MAX_OPTIONS {
        return Err(EncodeError::OptionsTooLong(options_len));
    }
    let (src, dst) = (segment.tuple.src, segment.tuple.dst);
    let payload_len = segment.payload.len();
    let tcp_len = TCP_HEADER + options_len + payload_len;
    //= RFC 9293 MUST-48 MUST-49 SHLD-22
    let (traffic, hop_limit) = (segment.dscp << 2 | segment.ecn as u8, segment.hop_limit);
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let total = u16::try_from(IPV4_HEADER + tcp_len)
                .map_err(|_| EncodeError::PacketTooLong(IPV4_HEADER + tcp_len))?;
            let mut ip = [0; IPV4_HEADER];
            ip[0] = 0x45;
            ip[1] = traffic;
            ip[2..4].copy_from_slice(&total.to_be_bytes());
            ip[6] = 0x40;
            ip[8] = hop_limit;
            ip[9] = TCP;
            ip[12..16].copy_from_slice(&src.octets());
            ip[16..20].copy_from_slice(&dst.octets());
            let checksum = !ones_complement(&ip);
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
            headers.push(&ip);
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let len =
                u16::try_from(tcp_len).map_err(|_| EncodeError::PacketTooLong(IPV6_HEADER + tcp_len))?;
            let mut ip = [0; IPV6_HEADER];
            ip[0] = 0x60 | traffic >> 4;
            ip[1] = traffic << 4;
            ip[4..6].copy_from_slice(&len.to_be_bytes());
            ip[6] = TCP;
            ip[7] = hop_limit;
            ip[8..24].copy_from_slice(&src.octets());
            ip[24..40].copy_from_slice(&dst.octets());
            headers.push(&ip);
        }
        _ => return Err(EncodeError::MixedFamilies),
    }

    let start = headers.len;
    headers.len += TCP_HEADER + options_len;
    let tcp = &mut headers.bytes[start..start + TCP_HEADER + options_len];
    tcp[0..2].copy_from_slice(&segment.tuple.src_port.to_be_bytes());
    tcp[2..4].copy_from_slice(&segment.tuple.dst_port.to_be_bytes());
    tcp[4..8].copy_from_slice(&segment.seq.0.to_be_bytes());
    tcp[8..12].copy_from_slice(&segment.ack.0.to_be_bytes());
    tcp[12] = (((TCP_HEADER + options_len) / 4) << 4) as u8;
    tcp[13] = segment.flags.0;
    tcp[14..16].copy_from_slice(&segment.window.to_be_bytes());
    tcp[18..20].copy_from_slice(&segment.urgent.to_be_bytes());
    option_codec::write(segment, &mut tcp[TCP_HEADER..])?;
    let checksum = match mode {
        ChecksumMode::None => 0,
        ChecksumMode::PseudoHeader => pseudo_header(src, dst, TCP, tcp_len as u32).folded(),
        //= RFC 9293 MUST-2
        ChecksumMode::Full => {
            let mut sum: Sum = pseudo_header(src, dst, TCP, tcp_len as u32);
            sum.add_bytes(tcp);
            sum.add_piece(segment.payload.ones_complement_sum().unwrap_or(0), payload_len);
            sum.checksum()
        }
    };
    tcp[TCP_CHECKSUM_OFFSET..TCP_CHECKSUM_OFFSET + 2].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

/// Encodes into the front of `out` and returns the length, which is [`Segment::wire_len`]. A
/// super-segment becomes one large packet.
///
/// # Errors
/// As [`encode_headers`], and [`EncodeError::BufferTooSmall`]; `out` is unchanged then.
pub fn encode(segment: &Segment<Bytes>, mode: ChecksumMode, out: &mut [u8]) -> Result<usize, EncodeError> {
    let headers = encode_headers(segment, mode)?;
    let need = headers.len + segment.payload.len();
    let have = out.len();
    let out = out.get_mut(..need).ok_or(EncodeError::BufferTooSmall { need, have })?;
    let (front, back) = out.split_at_mut(headers.len);
    front.copy_from_slice(&headers);
    back.copy_from_slice(&segment.payload);
    Ok(need)
}

/// Encodes onto the end of `out` and returns how many bytes were added.
///
/// # Errors
/// As [`encode_headers`]; `out` is unchanged then.
pub fn encode_into(
    segment: &Segment<Bytes>,
    mode: ChecksumMode,
    out: &mut BytesMut,
) -> Result<usize, EncodeError> {
    let headers = encode_headers(segment, mode)?;
    out.reserve(headers.len + segment.payload.len());
    out.extend_from_slice(&headers);
    out.extend_from_slice(&segment.payload);
    Ok(headers.len + segment.payload.len())
}
