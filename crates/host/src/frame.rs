//! Packets on their way through the emulator: a super-packet stays one buffer, and what travels through the
//! links are its MTU-sized parts, as numbers. Parts that leave a link together are written as one
//! super-packet again.
//!
//! A plain copy per MTU costs more than half of a core at 1 Gbit/s; descriptors cost next to nothing.

use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use ropewalk_link::Packet;
use ropewalk_wire::checksum::{ones_complement, pseudo_header};
use ropewalk_wire::virtio::{VirtioNetHeader, encode_frame_headers};
use ropewalk_wire::{Ecn, EncodeError, Flags, ParseError, ParseMode, Segment, Seq, parse};

use crate::tun::{Offload, Tun};
use ropewalk_wire::pool::Pool;

const TCP: u8 = 6;
/// Where flags and checksum stand in the TCP header.
const TCP_FLAGS: usize = 13;
const TCP_CHECKSUM: usize = 16;
/// IPv6's header, and the least IPv4's.
const IPV6_HEADER: usize = 40;
const IPV4_HEADER: usize = 20;

/// A packet or super-packet as it was read from a device or made by the engine.
#[derive(Debug)]
pub struct Frame {
    packet: Bytes,
    vnet: VirtioNetHeader,
    /// Bytes of IP and TCP headers; 0 if this is one packet.
    headers: usize,
    /// Of these, IP's.
    network: usize,
    /// Payload bytes per part; 0 if this is one packet.
    size: usize,
}

impl Frame {
    /// From what a device delivered, its virtio header first if it has one. `None` for what is no IP packet.
    pub fn received(mut bytes: Bytes, offload: Offload) -> Option<Frame> {
        let vnet = match offload {
            Offload::None => VirtioNetHeader::default(),
            Offload::Segmentation => {
                let header = VirtioNetHeader::parse(&bytes)?;
                let _ = bytes.split_to(VirtioNetHeader::LEN);
                header
            }
        };
        let network = match bytes.first()? >> 4 {
            4 if bytes.len() >= IPV4_HEADER => usize::from(bytes[0] & 0xf) * 4,
            6 if bytes.len() >= IPV6_HEADER => IPV6_HEADER,
            _ => return None,
        };
        let mut frame = Frame { packet: bytes, vnet, headers: 0, network, size: 0 };
        if vnet.gso_type & !VirtioNetHeader::GSO_ECN != VirtioNetHeader::GSO_NONE {
            let words = *frame.packet.get(network + 12)? >> 4;
            frame.headers = network + usize::from(words) * 4;
            frame.size = usize::from(vnet.gso_size);
            if frame.size == 0 || frame.headers > frame.packet.len() {
                return None;
            }
        }
        Some(frame)
    }

    /// From a segment of the engine's. Checksums are left to be completed, as with offload.
    ///
    /// # Errors
    /// What can't be encoded: see [`encode_frame_headers`].
    pub fn of(segment: &Segment<Bytes>, pool: &mut Pool) -> Result<Frame, EncodeError> {
        let headers = encode_frame_headers(segment)?;
        let buffer = pool.room(headers.len() + segment.payload.len());
        buffer.clear();
        buffer.extend_from_slice(&headers);
        buffer.extend_from_slice(&segment.payload);
        let bytes = buffer.split().freeze();
        let vnet = VirtioNetHeader::for_segment(segment);
        let is_super = vnet.gso_type != VirtioNetHeader::GSO_NONE;
        Ok(Frame {
            packet: bytes.slice(VirtioNetHeader::LEN..),
            vnet,
            headers: if is_super { headers.len() - VirtioNetHeader::LEN } else { 0 },
            network: if segment.tuple.src.is_ipv4() { IPV4_HEADER } else { IPV6_HEADER },
            size: if is_super { usize::from(segment.gso_size) } else { 0 },
        })
    }

    /// How many packets it stands for.
    pub fn count(&self) -> u32 {
        if self.size == 0 { 1 } else { (self.packet.len() - self.headers).div_ceil(self.size).max(1) as u32 }
    }

    fn is_v4(&self) -> bool {
        self.packet[0] >> 4 == 4
    }

    fn addresses(&self) -> (IpAddr, IpAddr) {
        let packet = &self.packet;
        if self.is_v4() {
            let at = |i: usize| <[u8; 4]>::try_from(&packet[i..i + 4]).unwrap_or_default();
            (at(12).into(), at(16).into())
        } else {
            let at = |i: usize| <[u8; 16]>::try_from(&packet[i..i + 16]).unwrap_or_default();
            (at(8).into(), at(24).into())
        }
    }
}

/// Some consecutive packets of a frame, on a path.
#[derive(Clone, Debug)]
pub struct Piece {
    frame: Arc<Frame>,
    first: u32,
    count: u32,
    /// Which path it travels.
    pub path: u16,
    congestion_experienced: bool,
}

impl Piece {
    /// The whole frame.
    pub fn whole(frame: Frame, path: u16) -> Piece {
        let count = frame.count();
        Piece { frame: Arc::new(frame), first: 0, count, path, congestion_experienced: false }
    }

    /// Its packets, one each.
    pub fn packets(self) -> impl Iterator<Item = Piece> {
        (0..self.count).map(move |at| Piece { first: self.first + at, count: 1, ..self.clone() })
    }

    /// Takes `next` in if it continues this one in the same frame; else hands it back.
    pub fn absorb(&mut self, next: Piece) -> Option<Piece> {
        let continues = Arc::ptr_eq(&self.frame, &next.frame)
            && self.first + self.count == next.first
            && self.congestion_experienced == next.congestion_experienced
            && self.path == next.path;
        if continues {
            self.count += next.count;
            return None;
        }
        Some(next)
    }

    fn is_whole(&self) -> bool {
        self.count == self.frame.count()
    }

    /// Payload range in the frame's packet.
    fn payload(&self) -> std::ops::Range<usize> {
        let frame = &self.frame;
        if frame.size == 0 {
            return frame.packet.len()..frame.packet.len();
        }
        let start = frame.headers + self.first as usize * frame.size;
        start..(start + self.count as usize * frame.size).min(frame.packet.len())
    }

    /// Bytes on the wire, of all its packets.
    pub fn len(&self) -> usize {
        if self.frame.size == 0 {
            return self.frame.packet.len();
        }
        self.count as usize * self.frame.headers + self.payload().len()
    }

    /// Never: there is at least one packet in it.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// As a (super-)segment.
    ///
    /// # Errors
    /// What [`parse`] says of the packet: e.g. that it isn't TCP.
    pub fn segment(&self) -> Result<Segment<Bytes>, ParseError> {
        let frame = &self.frame;
        let mode = if frame.vnet.is_trusted() { ParseMode::Trust } else { ParseMode::Verify };
        let mut segment = parse(frame.packet.clone(), mode)?;
        if frame.size > 0 && !self.is_whole() {
            let range = self.payload();
            segment.payload = segment.payload.slice(range.start - frame.headers..range.end - frame.headers);
            segment.seq = Seq(segment.seq.0.wrapping_add(self.first.wrapping_mul(frame.size as u32)));
            segment.flags = Flags(self.flags(segment.flags.0));
        }
        if frame.size > 0 && self.count > 1 {
            segment.gso_size = frame.size as u16;
        }
        if self.congestion_experienced {
            segment.ecn = Ecn::Ce;
        }
        Ok(segment)
    }

    /// The whole IP packet if this is not a TCP segment but something else, for who reads ICMP.
    pub fn packet(&self) -> &[u8] {
        &self.frame.packet
    }

    /// FIN and PSH belong to a frame's last packet, CWR to its first.
    fn flags(&self, flags: u8) -> u8 {
        let mut flags = Flags(flags);
        if self.first + self.count < self.frame.count() {
            flags = flags.without(Flags::FIN).without(Flags::PSH);
        }
        if self.first > 0 {
            flags = flags.without(Flags::CWR);
        }
        flags.0
    }

    /// Writes it to a device.
    ///
    /// # Errors
    /// As [`Tun::send`].
    pub fn send(&self, tun: &Tun) -> io::Result<()> {
        match tun.offload() {
            Offload::Segmentation if self.is_whole() && !self.congestion_experienced => {
                let vnet = self.frame.vnet.encode();
                tun.send(&[IoSlice::new(&vnet), IoSlice::new(&self.frame.packet)]).map(drop)
            }
            Offload::Segmentation => {
                let (vnet, headers) = self.headers();
                tun.send(&[
                    IoSlice::new(&vnet.encode()),
                    IoSlice::new(&headers),
                    IoSlice::new(&self.frame.packet[self.rest()]),
                ])
                .map(drop)
            }
            Offload::None => {
                for piece in self.clone().packets() {
                    tun.send(&[IoSlice::new(&piece.complete())])?;
                }
                Ok(())
            }
        }
    }

    /// The bytes of its one packet with complete checksums, as a capture or a plain device wants them; of a
    /// super-packet, the large packet's.
    pub fn complete(&self) -> Vec<u8> {
        let (vnet, headers) = self.headers();
        let mut packet = headers;
        packet.extend_from_slice(&self.frame.packet[self.rest()]);
        // The fields were checked when the frame came in, or are our own; else the packet stays as it was.
        let _ = vnet.complete_checksum(&mut packet);
        packet
    }

    /// What follows the headers that [`Self::headers`] makes.
    fn rest(&self) -> std::ops::Range<usize> {
        if self.frame.size == 0 { self.frame.network..self.frame.packet.len() } else { self.payload() }
    }

    /// New headers for what is only a part, or marked.
    fn headers(&self) -> (VirtioNetHeader, Vec<u8>) {
        let frame = &self.frame;
        let mut vnet = frame.vnet;
        let is_super = frame.size > 0;
        let mut headers = frame.packet[..if is_super { frame.headers } else { frame.network }].to_vec();
        if is_super {
            let tcp_len = frame.headers - frame.network + self.payload().len();
            let total = frame.network + tcp_len;
            if frame.is_v4() {
                headers[2..4].copy_from_slice(&(total as u16).to_be_bytes());
                let id = u16::from_be_bytes([headers[4], headers[5]]).wrapping_add(self.first as u16);
                headers[4..6].copy_from_slice(&id.to_be_bytes());
            } else {
                headers[4..6].copy_from_slice(&(tcp_len as u16).to_be_bytes());
            }
            let tcp = &mut headers[frame.network..];
            let seq = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]])
                .wrapping_add(self.first.wrapping_mul(frame.size as u32));
            tcp[4..8].copy_from_slice(&seq.to_be_bytes());
            tcp[TCP_FLAGS] = self.flags(tcp[TCP_FLAGS]);
            let (src, dst) = frame.addresses();
            let partial = pseudo_header(src, dst, TCP, tcp_len as u32).folded();
            tcp[TCP_CHECKSUM..TCP_CHECKSUM + 2].copy_from_slice(&partial.to_be_bytes());
            vnet = VirtioNetHeader {
                flags: VirtioNetHeader::NEEDS_CSUM,
                csum_start: frame.network as u16,
                csum_offset: TCP_CHECKSUM as u16,
                hdr_len: frame.headers as u16,
                ..VirtioNetHeader::default()
            };
            if self.count > 1 {
                vnet.gso_type = frame.vnet.gso_type;
                if self.first > 0 {
                    vnet.gso_type &= !VirtioNetHeader::GSO_ECN;
                }
                vnet.gso_size = frame.size as u16;
            }
        }
        if self.congestion_experienced {
            if frame.is_v4() {
                headers[1] |= 3;
            } else {
                headers[1] |= 3 << 4;
            }
        }
        if frame.is_v4() {
            headers[10..12].copy_from_slice(&[0, 0]);
            let sum = !ones_complement(&headers[..frame.network]);
            headers[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        (vnet, headers)
    }
}

impl Packet for Piece {
    fn wire_len(&self) -> u32 {
        self.len() as u32
    }

    fn is_ect(&self) -> bool {
        let byte = self.frame.packet[1];
        (if self.frame.is_v4() { byte } else { byte >> 4 }) & 3 != 0
    }

    fn mark_ce(&mut self) {
        self.congestion_experienced = true;
    }

    fn duplicate(&self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests;
