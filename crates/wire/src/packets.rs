//! Segmentation offload in software, on bytes: a super-segment into its packets and packets into super-segments, for
//! devices that don't do it. What comes out is what [`gso::split`](crate::gso::split) with [`crate::encode_into`], and
//! [`crate::parse()`] with [`gso::Merger`](crate::gso::Merger), would give; but headers that differ in a few fields are
//! written and read once, and the receiver's stack has its work once per super-segment instead of once per packet.

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

// Where fields stand in their headers.
const IPV4_LENGTH: Range<usize> = 2..4;
const IPV4_IDENTIFICATION: Range<usize> = 4..6;
const IPV4_CHECKSUM: Range<usize> = 10..12;
const IPV6_LENGTH: Range<usize> = 4..6;
const IPV6_NEXT: usize = 6;
const TCP_SEQUENCE: Range<usize> = 4..8;
const TCP_FLAGS: usize = 13;
const TCP_CHECKSUM: Range<usize> = TCP_CHECKSUM_OFFSET..TCP_CHECKSUM_OFFSET + 2;

/// Gathering copies the payload: where a packet carries more than this, that costs more than a stack's work for it.
const WORTH_A_COPY: usize = 4096;
/// Super-segments share memory in chunks of so many bytes.
const CHUNK: usize = 4 * MAX_SUPER_PAYLOAD;

/// Encodes the packets of a super-segment, or the one packet of any other, onto the end of `out` one after another, with
/// complete checksums; adds to `ends` where in `out` each of them ends.
///
/// # Errors
/// As [`crate::encode_headers`]; nothing was added then.
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
    // The large packet itself may be longer than IP's length field can say.
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
    // What all the packets' sums have in common.
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

/// The packet's length into IP's field; what IPv4's checksum is then.
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

/// Reads packets, and gathers those that continue each other into super-segments. Every checksum is verified.
#[derive(Debug)]
pub struct Gatherer {
    held: Option<Held>,
    pool: Pool,
}

/// The super-segment in the making.
#[derive(Debug)]
struct Held {
    /// Of the first packet; with its payload as long as there is no second.
    segment: Segment<Bytes>,
    /// The first packet's headers as they came, and which of their bits are the same in all its packets.
    headers: [u8; MAX_HEADERS],
    common: [u8; MAX_HEADERS],
    len: usize,
    network: usize,
    /// Payload bytes of each packet but the last.
    size: usize,
    /// Payload bytes of all.
    gathered: usize,
    next: Seq,
    /// A short packet or one with PSH or FIN is the last.
    complete: bool,
}

impl Default for Gatherer {
    fn default() -> Self {
        Self::new()
    }
}

impl Gatherer {
    /// With nothing held.
    pub fn new() -> Self {
        Gatherer { held: None, pool: Pool::new(CHUNK) }
    }

    /// Takes the packet at `range` of `bytes`. `deliver` gets, in order, what is finished by it, and itself if nothing can
    /// be gathered onto it.
    ///
    /// # Errors
    /// As [`crate::parse()`]. What was held has been delivered.
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
        if let Some(held) = &mut self.held
            && let Some((flags, payload)) = held.continued(packet)
        {
            let memory = self.pool.room(MAX_SUPER_PAYLOAD);
            if held.segment.gso_size == 0 {
                memory.clear();
                memory.extend_from_slice(&std::mem::take(&mut held.segment.payload));
                held.segment.gso_size = held.size as u16;
            }
            memory.extend_from_slice(payload);
            held.segment.flags = held.segment.flags.with(flags);
            held.gathered += payload.len();
            held.next = held.next.plus(payload.len() as u32);
            held.complete =
                payload.len() < held.size || flags.contains(Flags::PSH) || flags.contains(Flags::FIN);
            return Ok(());
        }
        self.finish(&mut deliver);
        let (mut segment, data) = parse_headers::<Bytes>(packet, ParseMode::Verify)?;
        if !data.is_empty() {
            segment.payload = bytes.slice(range.start + data.start..range.start + data.end);
        }
        match Held::is_for(packet, &segment, &data) {
            Some(network) => self.held = Some(Held::new(packet, segment, network, data)),
            None => deliver(segment),
        }
        Ok(())
    }

    /// Hands out what is held: when the device has nothing more for now.
    pub fn finish(&mut self, deliver: impl FnOnce(Segment<Bytes>)) {
        if let Some(mut held) = self.held.take() {
            if held.segment.gso_size > 0 {
                held.segment.payload = self.pool.room(0).split().freeze();
            }
            deliver(held.segment);
        }
    }
}

impl Held {
    /// Where TCP's header begins in a packet that others may continue, whose payload lies at `data`.
    fn is_for(packet: &[u8], segment: &Segment<Bytes>, data: &Range<usize>) -> Option<usize> {
        let (network, is_simple) = match packet[0] {
            0x45 => (IPV4_HEADER, true),
            first => (IPV6_HEADER, first >> 4 == 6 && packet[IPV6_NEXT] == TCP),
        };
        let is_padded = data.end < packet.len();
        let carrying = Flags::ACK.with(Flags::ECE).with(Flags::CWR);
        let is_plain = segment.flags.without(carrying) == Flags::default();
        let is_worth_it = (1..=WORTH_A_COPY).contains(&data.len());
        (is_simple && !is_padded && is_plain && is_worth_it).then_some(network)
    }

    /// From such a packet.
    fn new(packet: &[u8], segment: Segment<Bytes>, network: usize, data: Range<usize>) -> Held {
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
        // Only the first may have it.
        headers[network + TCP_FLAGS] &= !Flags::CWR.0;
        let next = segment.seq.plus(size as u32);
        Held { segment, headers, common, len, network, size, gathered: size, next, complete: false }
    }

    /// Flags and payload of a packet that continues this one, as [`crate::gso::can_merge`] has it.
    fn continued<'a>(&self, packet: &'a [u8]) -> Option<(Flags, &'a [u8])> {
        let &Held { len, network, .. } = self;
        let payload = packet.get(len..)?;
        if self.complete
            || payload.is_empty()
            || payload.len() > self.size
            || self.gathered + payload.len() > MAX_SUPER_PAYLOAD
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
