//! How connections and subflows are named from outside the endpoint.

use std::fmt;

/// Names a connection of an endpoint; never used again for another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ConnectionId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl ConnectionId {
    /// Its slot in the endpoint's table, which another connection reuses later.
    #[inline]
    pub fn slot(self) -> usize {
        self.index as usize
    }
}

impl fmt::Display for ConnectionId {
    /// Its slot, and how many connections had it before.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

/// A subflow of an endpoint, for callers that look up where segments go before they arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubflowHandle {
    pub(super) index: u32,
    pub(super) subflow: u8,
}

/// Bits of a packed handle that are the subflow's.
const SUBFLOW_BITS: u32 = crate::MAX_SUBFLOWS.ilog2();

#[doc(hidden)]
impl SubflowHandle {
    /// The first subflow of the connection in this slot.
    #[inline]
    #[cfg(feature = "lookahead")]
    pub(super) fn first_of(index: u32) -> Self {
        SubflowHandle { index, subflow: 0 }
    }

    /// The slot of its connection, as [`ConnectionId::slot`](super::ConnectionId::slot) has it.
    #[inline]
    pub fn connection_slot(self) -> usize {
        self.index as usize
    }

    /// In four bytes; 0 if it doesn't fit.
    #[inline]
    pub fn pack(self) -> u32 {
        let fits = self.index < 1 << (31 - SUBFLOW_BITS) && self.subflow < 1 << SUBFLOW_BITS;
        if fits { (self.index << SUBFLOW_BITS | u32::from(self.subflow)) + 1 } else { 0 }
    }

    /// The inverse of [`pack`](Self::pack); `None` for 0.
    #[inline]
    pub fn unpack(packed: u32) -> Option<Self> {
        let bits = packed.checked_sub(1)?;
        let subflow = (bits & ((1 << SUBFLOW_BITS) - 1)) as u8;
        Some(SubflowHandle { index: bits >> SUBFLOW_BITS, subflow })
    }
}
