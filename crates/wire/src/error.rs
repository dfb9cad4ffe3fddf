//! Errors of parsing and encoding. Both are small and `Copy`: foreign packets are routine on a busy
//! device, and refusing one should cost nothing.

use thiserror::Error;

/// Why a packet isn't a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ParseError {
    /// Shorter than its headers require.
    #[error("the packet ends inside its {0}")]
    Truncated(Part),
    /// A version nibble other than 4 and 6.
    #[error("IP version {0} is neither 4 nor 6")]
    Version(u8),
    /// A header whose length field contradicts the rest of the packet.
    #[error("the {0} has an impossible length field")]
    Length(Part),
    /// A fragment; reassembly is not done (a path MTU is discovered instead).
    #[error("the packet is a fragment")]
    Fragment,
    /// An IPv6 routing header with segments left: this host is not the destination.
    #[error("the packet has a routing header with {0} segments left")]
    Routed(u8),
    /// Something other than TCP (for [`crate::parse_icmp_too_big`]: than ICMP, or a quoted packet
    /// that isn't TCP).
    #[error("unexpected IP protocol {protocol}")]
    Protocol {
        /// The protocol (next header) number.
        protocol: u8,
    },
    /// A checksum that doesn't match.
    #[error("the checksum of the {0} is wrong")]
    Checksum(Part),
    /// An ICMP message other than "packet too big".
    #[error("ICMP type {kind} code {code} is not 'packet too big'")]
    NotTooBig {
        /// ICMP type.
        kind: u8,
        /// ICMP code.
        code: u8,
    },
    /// A next-hop MTU below what the protocol guarantees (68 for IPv4, 1280 for IPv6): forged or
    /// broken, to be discarded (RFC 8201 4).
    #[error("a next-hop MTU of {0} bytes is below the protocol's minimum")]
    Mtu(u32),
    /// An offload that wasn't negotiated, or that contradicts the packet.
    #[error("virtio offload type {gso_type:#04x} with size {gso_size} doesn't fit the packet")]
    Offload {
        /// `gso_type` of the header.
        gso_type: u8,
        /// `gso_size` of the header.
        gso_size: u16,
    },
}

/// A part of a packet, for error messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The virtio header before the packet.
    Virtio,
    /// The IPv4 header.
    Ipv4,
    /// The IPv6 header.
    Ipv6,
    /// An IPv6 extension header.
    Extension,
    /// The TCP header with its options, or the whole segment where a checksum is meant.
    Tcp,
    /// The ICMP message.
    Icmp,
    /// The packet quoted in an ICMP message.
    Quoted,
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Part::Virtio => "virtio header",
            Part::Ipv4 => "IPv4 header",
            Part::Ipv6 => "IPv6 header",
            Part::Extension => "IPv6 extension header",
            Part::Tcp => "TCP segment",
            Part::Icmp => "ICMP message",
            Part::Quoted => "packet quoted by ICMP",
        })
    }
}

/// Why a segment has no encoding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// More options than the data offset allows (RFC 9293 3.1: 40 bytes).
    #[error("the options take {0} bytes, and TCP has room for 40")]
    OptionsTooLong(usize),
    /// Longer than the IP header's length field allows.
    #[error("a packet of {0} bytes is longer than the IP length field allows")]
    PacketTooLong(usize),
    /// Source and destination of different IP versions.
    #[error("source and destination are of different IP versions")]
    MixedFamilies,
    /// An option whose fields contradict each other, by name.
    #[error("{0} has a combination of fields that has no encoding")]
    InvalidOption(&'static str),
    /// The buffer is too small.
    #[error("the packet takes {need} bytes and the buffer has {have}")]
    BufferTooSmall {
        /// Bytes needed.
        need: usize,
        /// Size of the buffer in bytes.
        have: usize,
    },
}
