//! Bytes <-> [`Segment`]: IPv4, IPv6, TCP, and every TCP and MPTCP option in use. No state.
//!
//! The simulator moves the very [`Segment`] that is put on the wire; [`Segment::wire_len`] is the
//! exact length of its encoding, and links charge it.
#![forbid(unsafe_code)]

mod options;
mod payload;
mod segment;
mod seq;

pub use options::{
    AddAddr, AddressId, Dss, DssMapping, FastClose, MpCapable, MpFail, MpJoin, MpPrio, MpTcpRst, RareOptions,
    RemoveAddr, SackBlocks, Timestamps,
};
pub use payload::{Extent, Payload};
pub use segment::{Ecn, Flags, FourTuple, Segment};
pub use seq::Seq;
