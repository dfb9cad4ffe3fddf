//! Bytes <-> [`Segment`]: IPv4, IPv6, TCP, and every TCP and MPTCP option in use. Stateless
//! but for packet memory and packets that are being coalesced.
//!
//! The simulator transports the same [`Segment`] that is sent on the wire; [`Segment::wire_len`] is the
//! exact length of its encoding, and links charge it.
#![forbid(unsafe_code)]

pub mod checksum;
mod encode;
mod error;
pub mod gso;
mod icmp;
mod ip;
mod option_codec;
mod options;
mod packets;
mod parse;
mod payload;
pub mod pool;
mod segment;
mod seq;
pub mod virtio;

pub use encode::{ChecksumMode, Headers, MAX_OPTIONS, encode, encode_headers, encode_into};
pub use error::{EncodeError, ParseError, Part};
pub use icmp::{TooBig, encode_icmp_too_big, parse_icmp_too_big};
pub use option_codec::parse_options;
pub use options::{
    AddAddr, AddressId, Dss, DssMapping, MpCapable, MpFail, MpFastClose, MpJoin, MpPrio, MpTcpRst,
    RareOptions, RemoveAddr, SackBlocks, Timestamps,
};
pub use packets::{Coalescer, encode_packets};
pub use parse::{ParseMode, parse, parse_headers};
pub use payload::{Payload, SyntheticPayload};
pub use segment::{Ecn, Flags, FourTuple, HOP_LIMIT, Segment};
pub use seq::Seq;

/// The README's example is tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
