//! GSO and GRO in software, on bytes, for devices without offload. The results are those of
//! [`gso::split`](crate::gso::split) with [`crate::encode_into`], and of [`crate::parse()`] with
//! [`gso::Merger`](crate::gso::Merger). But headers are built and parsed once per super-segment, and the
//! receiving stack processes one super-segment instead of many packets.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use crate::checksum::{ones_complement, pseudo_header};
use crate::encode::{ChecksumMode, MAX_HEADERS, TCP_CHECKSUM_OFFSET, encode_headers, encode_into};
use crate::error::{EncodeError, ParseError};
use crate::gso::MAX_SUPER_PAYLOAD;
use crate::ip::{IPV4_HEADER, IPV6_HEADER, TCP};
use crate::parse::{ParseMode, parse_headers};
use crate::pool::Pool;
use crate::segment::{Flags, Segment};
use crate::seq::Seq;

// Places of fields in their headers.
const IPV4_LENGTH: Range<usize> = 2..4;
const IPV4_IDENTIFICATION: Range<usize> = 4..6;
const IPV4_CHECKSUM: Range<usize> = 10..12;
const IPV6_LENGTH: Range<usize> = 4..6;
const IPV6_NEXT: usize = 6;
const TCP_SEQUENCE: Range<usize> = 4..8;
const TCP_FLAGS: usize = 13;
const TCP_CHECKSUM: Range<usize> = TCP_CHECKSUM_OFFSET..TCP_CHECKSUM_OFFSET + 2;

/// Payload bytes per packet above which packets aren't coalesced: copying them costs more than processing
/// each.
const MAX_COALESCED: usize = 4096;
/// Bytes of a chunk of packet memory; super-segments share chunks.
const CHUNK: usize = 4 * MAX_SUPER_PAYLOAD;

/// Appends the packets of a segment to `out`, with complete checksums, and where each of them ends to `ends`.
///
/// # Errors
/// As [`crate::encode_headers`]; nothing is appended then.
pub fn encode_packets(
    segment: &Segment<Bytes>,
    out: &mut BytesMut,
    ends: &mut Vec<usize>,
) -> Result<(), EncodeError> {
    let size = usize::from(segment.gso_size);
    if size == 0 || segment.payload.len() <= size {
        encode_into(segment, ChecksumMode::Full, out)?;
        ends.push(out.len());
        return Ok(());
    }
    // The super-segment itself may be longer than the IP length field allows.
    let template = Segment { payload: Bytes::new(), rare: segment.rare.clone(), ..*segment };
    let mut headers = encode_headers(&template, ChecksumMode::None)?;
    let len = headers.len();
    if len + size > usize::from(u16::MAX) {
        return Err(EncodeError::PacketTooLong(len + size));
    }
    let is_v4 = segment.tuple.src.is_ipv4();
    let network = if is_v4 { IPV4_HEADER } else { IPV6_HEADER };
    let headers = headers.as_mut_slice();
    headers[network + TCP_FLAGS] = 0;
    headers[network..][TCP_SEQUENCE].fill(0);
    // The part of the checksum that all packets share.
    let mut common = pseudo_header(segment.tuple.src, segment.tuple.dst, TCP, 0);
    common.add_bytes(&headers[network..]);
    let count = segment.payload.len().div_ceil(size);
    out.reserve(count * len + segment.payload.len());
    let mut seq = segment.seq;
    let mut written = 0;
    for (at, part) in segment.payload.chunks(size).enumerate() {
        let mut flags = segment.flags;
        if at > 0 {
            flags = flags.without(Flags::CWR.with(Flags::SYN));
        }
        if at + 1 < count {
            flags = flags.without(Flags::FIN.with(Flags::PSH));
        }
        if part.len() != written {
            written = part.len();
            write_length(headers, is_v4, len + written);
        }
        headers[network..][TCP_SEQUENCE].copy_from_slice(&seq.0.to_be_bytes());
        headers[network + TCP_FLAGS] = flags.0;
        let mut sum = common;
        sum.add_u32((len - network + part.len()) as u32);
        sum.add_u32(seq.0);
        sum.add_u16(u16::from(flags.0));
        sum.add_bytes(part);
        headers[network..][TCP_CHECKSUM].copy_from_slice(&sum.checksum().to_be_bytes());
        out.extend_from_slice(headers);
        out.extend_from_slice(part);
        ends.push(out.len());
        seq = seq.plus(part.len() as u32 + u32::from(flags.contains(Flags::SYN)));
    }
    Ok(())
}

/// Writes the packet's length into the IP header, and IPv4's checksum.
fn write_length(headers: &mut [u8], is_v4: bool, len: usize) {
    if is_v4 {
        headers[IPV4_LENGTH].copy_from_slice(&(len as u16).to_be_bytes());
        headers[IPV4_CHECKSUM].fill(0);
        let checksum = !ones_complement(&headers[..IPV4_HEADER]);
        headers[IPV4_CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
    } else {
        headers[IPV6_LENGTH].copy_from_slice(&((len - IPV6_HEADER) as u16).to_be_bytes());
    }
}

/// Parses packets and coalesces consecutive ones into super-segments (GRO). Every checksum is verified.
#[derive(Debug)]
pub struct Coalescer {
    pending: Option<SuperSegment>,
    pool: Pool,
}

/// A super-segment that is being coalesced.
#[derive(Debug)]
struct SuperSegment {
    /// The first packet. Its payload moves to the pool when a second packet is added.
    segment: Segment<Bytes>,
    /// The first packet's headers, and a mask of the bits that must be the same in all packets.
    headers: [u8; MAX_HEADERS],
    common: [u8; MAX_HEADERS],
    len: usize,
    network: usize,
    /// Payload bytes of each packet but the last.
    size: usize,
    /// Payload bytes of all packets.
    payload_len: usize,
    next: Seq,
    /// Whether the last packet was short, or had PSH or FIN: then no other follows.
    complete: bool,
}

impl Default for Coalescer {
    fn default() -> Self {
        Self::new()
    }
}

impl Coalescer {
    /// A coalescer without a pending super-segment.
    pub fn new() -> Self {
        Coalescer { pending: None, pool: Pool::new(CHUNK) }
    }

    /// Adds the packet at `range` of `bytes`. Passes to `deliver`, in order, the super-segment that it ends,
    /// and the packet itself if no other can follow it.
    ///
    /// # Errors
    /// As [`crate::parse()`]. The pending super-segment is delivered first.
    ///
    /// # Panics
    /// If `range` isn't in `bytes`.
    pub fn push(
        &mut self,
        bytes: &Bytes,
        range: Range<usize>,
        mut deliver: impl FnMut(Segment<Bytes>),
    ) -> Result<(), ParseError> {
        let packet = &bytes[range.clone()];
        if let Some(pending) = &mut self.pending
            && let Some((flags, payload)) = pending.continuation(packet)
        {
            let memory = self.pool.room(MAX_SUPER_PAYLOAD);
            if pending.segment.gso_size == 0 {
                memory.clear();
                memory.extend_from_slice(&std::mem::take(&mut pending.segment.payload));
                pending.segment.gso_size = pending.size as u16;
            }
            memory.extend_from_slice(payload);
            pending.segment.flags = pending.segment.flags.with(flags);
            pending.payload_len += payload.len();
            pending.next = pending.next.plus(payload.len() as u32);
            pending.complete =
                payload.len() < pending.size || flags.contains(Flags::PSH) || flags.contains(Flags::FIN);
            return Ok(());
        }
        self.finish(&mut deliver);
        let (mut segment, data) = parse_headers::<Bytes>(packet, ParseMode::Verify)?;
        if !data.is_empty() {
            segment.payload = bytes.slice(range.start + data.start..range.start + data.end);
        }
        match SuperSegment::can_start(packet, &segment, &data) {
            Some(network) => self.pending = Some(SuperSegment::new(packet, segment, network, data)),
            None => deliver(segment),
        }
        Ok(())
    }

    /// Delivers the pending super-segment. Called when the device has no more packets for now.
    pub fn finish(&mut self, deliver: impl FnOnce(Segment<Bytes>)) {
        if let Some(mut pending) = self.pending.take() {
            if pending.segment.gso_size > 0 {
                pending.segment.payload = self.pool.room(0).split().freeze();
            }
            deliver(pending.segment);
        }
    }
}

impl SuperSegment {
    /// Whether other packets may follow this one, with its payload at `data`; if so, where its TCP header
    /// begins.
    fn can_start(packet: &[u8], segment: &Segment<Bytes>, data: &Range<usize>) -> Option<usize> {
        let (network, is_simple) = match packet[0] {
            0x45 => (IPV4_HEADER, true),
            first => (IPV6_HEADER, first >> 4 == 6 && packet[IPV6_NEXT] == TCP),
        };
        let is_padded = data.end < packet.len();
        let carrying = Flags::ACK.with(Flags::ECE).with(Flags::CWR);
        let is_plain = segment.flags.without(carrying) == Flags::default();
        let is_small = (1..=MAX_COALESCED).contains(&data.len());
        (is_simple && !is_padded && is_plain && is_small).then_some(network)
    }

    /// Starts with a packet that [`SuperSegment::can_start`].
    fn new(packet: &[u8], segment: Segment<Bytes>, network: usize, data: Range<usize>) -> Self {
        let (len, size) = (data.start, data.len());
        let mut headers = [0; MAX_HEADERS];
        headers[..len].copy_from_slice(&packet[..len]);
        let mut common = [0xff; MAX_HEADERS];
        if network == IPV4_HEADER {
            common[IPV4_LENGTH].fill(0);
            common[IPV4_IDENTIFICATION].fill(0);
            common[IPV4_CHECKSUM].fill(0);
        } else {
            common[IPV6_LENGTH].fill(0);
        }
        common[network..][TCP_SEQUENCE].fill(0);
        common[network..][TCP_CHECKSUM].fill(0);
        common[network + TCP_FLAGS] = !(Flags::FIN.0 | Flags::PSH.0);
        // CWR may be on the first packet only.
        headers[network + TCP_FLAGS] &= !Flags::CWR.0;
        let next = segment.seq.plus(size as u32);
        SuperSegment {
            segment,
            headers,
            common,
            len,
            network,
            size,
            payload_len: size,
            next,
            complete: false,
        }
    }

    /// Flags and payload of `packet` if it continues this super-segment, by the rule of
    /// [`crate::gso::can_merge`].
    fn continuation<'a>(&self, packet: &'a [u8]) -> Option<(Flags, &'a [u8])> {
        let &SuperSegment { len, network, .. } = self;
        let payload = packet.get(len..)?;
        if self.complete
            || payload.is_empty()
            || payload.len() > self.size
            || self.payload_len + payload.len() > MAX_SUPER_PAYLOAD
            || packet[network..][TCP_SEQUENCE] != self.next.0.to_be_bytes()
        {
            return None;
        }
        let is_v4 = network == IPV4_HEADER;
        let (field, length) =
            if is_v4 { (IPV4_LENGTH, packet.len()) } else { (IPV6_LENGTH, packet.len() - network) };
        if packet[field] != (length as u16).to_be_bytes() {
            return None;
        }
        let known = self.headers.iter().zip(&self.common);
        let differences = packet[..len]
            .iter()
            .zip(known)
            .fold(0, |bits, (byte, (known, common))| bits | (byte ^ known) & common);
        if differences != 0 || (is_v4 && ones_complement(&packet[..IPV4_HEADER]) != 0xffff) {
            return None;
        }
        let flags = Flags(packet[network + TCP_FLAGS]);
        let tuple = &self.segment.tuple;
        let mut sum = pseudo_header(tuple.src, tuple.dst, TCP, (packet.len() - network) as u32);
        sum.add_bytes(&packet[network..]);
        (sum.folded() == 0xffff).then_some((flags, payload))
    }
}
