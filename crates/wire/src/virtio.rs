//! The virtio network header that a TUN device with `IFF_VNET_HDR` puts before every packet
//! (VIRTIO 1.2, 5.1.6.1; Linux `virtio_net.h`): 10 bytes that say how to segment a super-packet
//! and whether its checksum is still to be completed.
//!
//! The fields are little-endian, as virtio 1 has them. A TUN's are in the host's order unless
//! `TUNSETVNETLE` says otherwise, so a big-endian host sets that.

use bytes::{Buf, Bytes};

use crate::checksum::ones_complement;
use crate::encode::{ChecksumMode, Headers, TCP_CHECKSUM_OFFSET, VIRTIO_HEADER, append_headers};
use crate::error::{EncodeError, ParseError, Part};
use crate::ip::{IPV4_HEADER, IPV6_HEADER};
use crate::parse::{ParseMode, parse};
use crate::payload::Payload;
use crate::segment::{Flags, Segment};

/// The header's fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VirtioNetHeader {
    /// [`VirtioNetHeader::NEEDS_CSUM`] and [`VirtioNetHeader::DATA_VALID`].
    pub flags: u8,
    /// One of the `GSO_` types, perhaps with [`VirtioNetHeader::GSO_ECN`].
    pub gso_type: u8,
    /// Bytes of IP and TCP headers. A hint: Linux warns against relying on it.
    pub hdr_len: u16,
    /// Payload bytes per packet.
    pub gso_size: u16,
    /// Start of the checksummed bytes, from the IP header on.
    pub csum_start: u16,
    /// Offset of the checksum field from `csum_start`.
    pub csum_offset: u16,
}

impl VirtioNetHeader {
    /// Length in bytes.
    pub const LEN: usize = VIRTIO_HEADER;
    /// The checksum field holds the pseudo-header's sum and is to be completed.
    pub const NEEDS_CSUM: u8 = 1;
    /// The checksum has been verified.
    pub const DATA_VALID: u8 = 2;
    /// One packet.
    pub const GSO_NONE: u8 = 0;
    /// TCP over IPv4.
    pub const GSO_TCPV4: u8 = 1;
    /// TCP over IPv6.
    pub const GSO_TCPV6: u8 = 4;
    /// The first packet has CWR set, and only it may have.
    pub const GSO_ECN: u8 = 0x80;

    /// The header for a segment encoded with [`ChecksumMode::PseudoHeader`].
    pub fn for_segment<P: Payload>(segment: &Segment<P>) -> Self {
        let is_v4 = segment.tuple.src.is_ipv4();
        let mut header = VirtioNetHeader {
            flags: Self::NEEDS_CSUM,
            csum_start: if is_v4 { IPV4_HEADER } else { IPV6_HEADER } as u16,
            csum_offset: TCP_CHECKSUM_OFFSET as u16,
            ..Self::default()
        };
        if segment.gso_size > 0 && segment.payload.len() > usize::from(segment.gso_size) {
            header.gso_type = if is_v4 { Self::GSO_TCPV4 } else { Self::GSO_TCPV6 };
            if segment.flags.contains(Flags::CWR) {
                header.gso_type |= Self::GSO_ECN;
            }
            header.hdr_len = segment.headers_len() as u16;
            header.gso_size = segment.gso_size;
        }
        header
    }

    /// As bytes.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut out = [self.flags, self.gso_type, 0, 0, 0, 0, 0, 0, 0, 0];
        for (at, field) in [self.hdr_len, self.gso_size, self.csum_start, self.csum_offset].iter().enumerate()
        {
            out[2 + 2 * at..4 + 2 * at].copy_from_slice(&field.to_le_bytes());
        }
        out
    }

    /// Parses the beginning of a frame; `None` if it has fewer than 10 bytes. Unknown flag bits are kept
    /// and ignored.
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let field = |at: usize| u16::from_le_bytes([frame[at], frame[at + 1]]);
        (frame.len() >= Self::LEN).then(|| VirtioNetHeader {
            flags: frame[0],
            gso_type: frame[1],
            hdr_len: field(2),
            gso_size: field(4),
            csum_start: field(6),
            csum_offset: field(8),
        })
    }

    /// Whether TCP's checksum need not be verified, because the kernel has verified or will complete it.
    pub const fn is_trusted(&self) -> bool {
        self.flags & (Self::NEEDS_CSUM | Self::DATA_VALID) != 0
    }
}

/// The headers of one frame for a device with offload: virtio header, IP, TCP; the payload follows
/// them. The kernel completes the checksum and segments a super-segment.
///
/// # Errors
/// As [`crate::encode_headers`].
pub fn encode_frame_headers<P: Payload>(segment: &Segment<P>) -> Result<Headers, EncodeError> {
    let mut headers = Headers::empty();
    headers.push(&VirtioNetHeader::for_segment(segment).encode());
    append_headers(segment, ChecksumMode::PseudoHeader, &mut headers)?;
    Ok(headers)
}

/// Parses one frame of a device with offload: virtio header and packet. A super-packet becomes a
/// super-segment. The checksum is verified unless the header says that it needn't be.
///
/// # Errors
/// As [`parse`], [`ParseError::Truncated`] and [`ParseError::Offload`] for the virtio header.
pub fn parse_frame(mut frame: Bytes) -> Result<Segment<Bytes>, ParseError> {
    let header = VirtioNetHeader::parse(&frame).ok_or(ParseError::Truncated(Part::Virtio))?;
    frame.advance(VirtioNetHeader::LEN);
    let mode = if header.is_trusted() { ParseMode::Trust } else { ParseMode::Verify };
    let mut segment = parse(frame, mode)?;
    segment.gso_size = header.gso_size_for(&segment)?;
    Ok(segment)
}

impl VirtioNetHeader {
    /// The `gso_size` of `segment`, which arrived with this header: 0 for a single packet.
    ///
    /// # Errors
    /// [`ParseError::Offload`] when the type is not TCP of the segment's IP version, or the size 0.
    pub fn gso_size_for<P: Payload>(&self, segment: &Segment<P>) -> Result<u16, ParseError> {
        let expected = if segment.tuple.src.is_ipv4() { Self::GSO_TCPV4 } else { Self::GSO_TCPV6 };
        match self.gso_type & !Self::GSO_ECN {
            Self::GSO_NONE => Ok(0),
            gso_type if gso_type == expected && self.gso_size > 0 => {
                let is_super = segment.payload.len() > usize::from(self.gso_size);
                Ok(if is_super { self.gso_size } else { 0 })
            }
            _ => Err(ParseError::Offload { gso_type: self.gso_type, gso_size: self.gso_size }),
        }
    }

    /// Completes the checksum of a packet that has [`VirtioNetHeader::NEEDS_CSUM`], in place: before
    /// it is captured, or leaves through a device without this header. Does nothing without the flag.
    ///
    /// # Errors
    /// [`ParseError::Length`] when the fields point outside the packet.
    pub fn complete_checksum(&self, packet: &mut [u8]) -> Result<(), ParseError> {
        if self.flags & Self::NEEDS_CSUM == 0 {
            return Ok(());
        }
        let outside = ParseError::Length(Part::Virtio);
        let summed = packet.get_mut(usize::from(self.csum_start)..).ok_or(outside)?;
        let at = usize::from(self.csum_offset);
        if at + 2 > summed.len() {
            return Err(outside);
        }
        let checksum = !ones_complement(summed);
        summed[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        Ok(())
    }
}
