//! One TCP segment with the IP fields that matter to it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::options::{Dss, RareOptions, SackBlocks, Timestamps};
use crate::payload::Payload;
use crate::seq::Seq;

/// Default time to live of the IP header.
pub const HOP_LIMIT: u8 = 64;

/// TCP's control bits (RFC 9293 3.1; RFC 3168 for ECE and CWR).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Flags(pub u8);

impl Flags {
    /// No more data from the sender.
    pub const FIN: Flags = Flags(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Flags = Flags(0x02);
    /// Reset the connection.
    pub const RST: Flags = Flags(0x04);
    /// Push.
    pub const PSH: Flags = Flags(0x08);
    /// The acknowledgement field is significant.
    pub const ACK: Flags = Flags(0x10);
    /// The urgent pointer is significant.
    pub const URG: Flags = Flags(0x20);
    /// ECN echo.
    pub const ECE: Flags = Flags(0x40);
    /// Congestion window reduced.
    pub const CWR: Flags = Flags(0x80);

    /// Whether every bit of `other` is set.
    #[inline]
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// The bits of both.
    #[inline]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// `self` with the bits of `other` cleared.
    #[inline]
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }
}

impl std::fmt::Debug for Flags {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (bit, name) in [
            (Flags::SYN, "SYN "),
            (Flags::FIN, "FIN "),
            (Flags::RST, "RST "),
            (Flags::PSH, "PSH "),
            (Flags::ACK, "ACK "),
            (Flags::URG, "URG "),
            (Flags::ECE, "ECE "),
            (Flags::CWR, "CWR "),
        ] {
            if self.contains(bit) {
                f.write_str(name)?;
            }
        }
        Ok(())
    }
}

/// The ECN field of the IP header (RFC 3168 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Ecn {
    /// Not ECN-capable.
    #[default]
    NotEct,
    /// ECN-capable, codepoint 01.
    Ect1,
    /// ECN-capable, codepoint 10: what a sender of RFC 3168 sets.
    Ect0,
    /// Congestion experienced.
    Ce,
}

/// Source and destination of a segment.
#[derive(Clone, Copy, Eq, Hash, Debug)]
#[expect(clippy::derived_hash_with_manual_eq, reason = "it is the same equality, only faster")]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FourTuple {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
}

impl PartialEq for FourTuple {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        (self.src_port, self.dst_port) == (other.src_port, other.dst_port)
            && is_same(&self.src, &other.src)
            && is_same(&self.dst, &other.dst)
    }
}

/// Compares addresses. The derived `==` reads an IPv4 address in wider pieces than it was written in, which
/// stalls if it was written just before.
#[inline]
fn is_same(one: &IpAddr, other: &IpAddr) -> bool {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => one.to_bits() == other.to_bits(),
        (IpAddr::V6(one), IpAddr::V6(other)) => is_same_v6(one, other),
        _ => false,
    }
}

// Not inlined: four copies of it would lie in the path of every segment.
#[inline(never)]
fn is_same_v6(one: &Ipv6Addr, other: &Ipv6Addr) -> bool {
    one.to_bits() == other.to_bits()
}

impl fmt::Display for FourTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {}", self.source(), self.destination())
    }
}

impl FourTuple {
    /// Whether it is the reverse of `other`.
    #[inline]
    pub fn answers(&self, other: &FourTuple) -> bool {
        (self.src_port, self.dst_port) == (other.dst_port, other.src_port)
            && is_same(&self.src, &other.dst)
            && is_same(&self.dst, &other.src)
    }

    /// The tuple of two socket addresses.
    pub fn new(source: SocketAddr, destination: SocketAddr) -> Self {
        FourTuple {
            src: source.ip(),
            dst: destination.ip(),
            src_port: source.port(),
            dst_port: destination.port(),
        }
    }

    /// The reverse direction.
    pub fn reversed(self) -> Self {
        FourTuple { src: self.dst, dst: self.src, src_port: self.dst_port, dst_port: self.src_port }
    }

    /// The source socket address.
    pub fn source(&self) -> SocketAddr {
        SocketAddr::new(self.src, self.src_port)
    }

    /// The destination socket address.
    pub fn destination(&self) -> SocketAddr {
        SocketAddr::new(self.dst, self.dst_port)
    }
}

/// One TCP segment, or a super-segment of several packets (`gso_size`).
///
/// Options of ordinary data segments and ACKs are inline; rare ones are boxed. So nothing is allocated in
/// steady state, and a segment stays small.
#[derive(Clone, PartialEq, Debug)]
pub struct Segment<P> {
    /// Addresses and ports.
    pub tuple: FourTuple,
    /// Sequence number of the first byte (or of SYN or FIN).
    pub seq: Seq,
    /// Acknowledgement number; significant with [`Flags::ACK`].
    pub ack: Seq,
    //= RFC 9293 MUST-1
    /// The window field, not scaled.
    pub window: u16,
    /// The urgent pointer; significant with [`Flags::URG`].
    pub urgent: u16,
    /// Control bits.
    pub flags: Flags,
    /// The IP header's ECN field.
    pub ecn: Ecn,
    /// Its Diffserv code point, 6 bits (RFC 2474).
    pub dscp: u8,
    /// Its time to live, or hop limit.
    pub hop_limit: u8,
    /// Payload bytes per packet when this is a super-segment; 0 for one packet.
    pub gso_size: u16,
    /// Timestamps (RFC 7323).
    pub timestamps: Option<Timestamps>,
    /// Selective acknowledgements (RFC 2018), DSACK first (RFC 2883).
    pub sack: SackBlocks,
    /// Data sequence signal (RFC 8684 3.3).
    pub dss: Option<Dss>,
    /// Options that established connections rarely carry.
    pub rare: Option<Box<RareOptions>>,
    /// The data.
    pub payload: P,
}

impl<P: Payload> Segment<P> {
    /// A segment with only addresses, numbers and flags set.
    pub fn new(tuple: FourTuple, seq: Seq, ack: Seq, flags: Flags) -> Self {
        Segment {
            tuple,
            seq,
            ack,
            window: 0,
            urgent: 0,
            flags,
            ecn: Ecn::NotEct,
            dscp: 0,
            hop_limit: HOP_LIMIT,
            gso_size: 0,
            timestamps: None,
            sack: SackBlocks::default(),
            dss: None,
            rare: None,
            payload: P::default(),
        }
    }

    /// A placeholder, to be overwritten with [`renew`](Self::renew).
    pub fn blank() -> Self {
        let nowhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let tuple = FourTuple { src: nowhere, dst: nowhere, src_port: 0, dst_port: 0 };
        Segment::new(tuple, Seq(0), Seq(0), Flags::default())
    }

    /// Overwrites this segment with what [`new`](Self::new) returns. Writing in place avoids a large copy.
    // The tuple is passed by reference: reading a fresh copy in wider pieces than it was written in stalls.
    #[inline]
    pub fn renew(&mut self, tuple: &FourTuple, seq: Seq, ack: Seq, flags: Flags) {
        self.tuple = *tuple;
        self.seq = seq;
        self.ack = ack;
        self.window = 0;
        self.urgent = 0;
        self.flags = flags;
        self.ecn = Ecn::NotEct;
        self.dscp = 0;
        self.hop_limit = HOP_LIMIT;
        self.gso_size = 0;
        self.timestamps = None;
        self.sack.truncate(0);
        self.dss = None;
        self.rare = None;
        self.payload = P::default();
    }

    /// The rare options, created if there are none.
    pub fn rare_mut(&mut self) -> &mut RareOptions {
        self.rare.get_or_insert_default()
    }

    /// Removes all options of MPTCP, as some middleboxes do.
    pub fn strip_mptcp(&mut self) {
        self.dss = None;
        if let Some(rare) = &mut self.rare {
            rare.strip_mptcp();
        }
    }

    /// Length in sequence space: payload, SYN and FIN.
    #[inline]
    pub fn sequence_len(&self) -> u32 {
        self.payload.len() as u32
            + u32::from(self.flags.contains(Flags::SYN))
            + u32::from(self.flags.contains(Flags::FIN))
    }

    /// Length of the TCP options on the wire, padded to 4 (at most 40 in a valid segment).
    ///
    /// Linux's layout: each option is padded to 4 bytes.
    #[inline]
    pub fn options_len(&self) -> usize {
        let mut len = 0;
        if self.timestamps.is_some() {
            len += Timestamps::PADDED_LEN;
        }
        if !self.sack.is_empty() {
            len += 4 + 8 * self.sack.len();
        }
        if let Some(dss) = &self.dss {
            len += dss.padded_len();
        }
        if let Some(rare) = &self.rare {
            len += rare.padded_len();
            // SACK-permitted takes the place of the timestamps' two NOPs; alone it is padded.
            if rare.sack_permitted && self.timestamps.is_none() {
                len += 4;
            }
        }
        len
    }

    /// Length of one packet's IP and TCP headers with options, in bytes.
    #[inline]
    pub fn headers_len(&self) -> usize {
        let ip = if self.tuple.src.is_ipv4() { 20 } else { 40 };
        ip + 20 + self.options_len()
    }

    /// Exact length of the encoding from the IP header on, in bytes. For a super-segment: of the one large
    /// packet.
    #[inline]
    pub fn wire_len(&self) -> usize {
        self.headers_len() + self.payload.len()
    }
}
