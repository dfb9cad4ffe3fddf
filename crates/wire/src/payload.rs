//! The payload of a segment: bytes on the wire, only a length in the simulator.

use bytes::{Bytes, BytesMut};

use crate::checksum::ones_complement;
use crate::pool::MAX_CONDENSED;

/// Stream data that can be sliced and joined. The engine is generic over it: a simulated gigabyte needs no
/// memory, and the same code carries real bytes.
pub trait Payload: Clone + Default + std::fmt::Debug + Send + 'static {
    /// Length in bytes.
    fn len(&self) -> usize;

    /// Whether it is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes `start..end`.
    ///
    /// # Panics
    /// If `start > end` or `end > self.len()`.
    fn slice(&self, start: usize, end: usize) -> Self;

    /// Concatenates the pieces. A single piece is returned without a copy.
    fn join(pieces: &[Self]) -> Self;

    /// Moves a small payload into memory of its own (Linux: `skb_condense`), for what may be held for long:
    /// packets share memory ([`crate::pool`]), and one that is held keeps all of that memory from being used
    /// again.
    fn condense(&mut self) {}

    /// The one's-complement sum of the bytes as 16-bit big-endian words (an odd last byte is padded
    /// with zero), folded to 16 bits and not inverted; `None` where there are no bytes to sum (RFC
    /// 8684 3.3.1).
    fn ones_complement_sum(&self) -> Option<u16>;
}

/// A payload with a length and no bytes: the simulator's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SyntheticPayload(pub u32);

impl Payload for SyntheticPayload {
    #[inline]
    fn len(&self) -> usize {
        self.0 as usize
    }

    #[inline]
    fn slice(&self, start: usize, end: usize) -> Self {
        assert!(start <= end && end <= self.len(), "slice {start}..{end} of {} bytes", self.0);
        SyntheticPayload((end - start) as u32)
    }

    #[inline]
    fn join(pieces: &[Self]) -> Self {
        SyntheticPayload(pieces.iter().map(|piece| piece.0).sum())
    }

    fn ones_complement_sum(&self) -> Option<u16> {
        None
    }
}

impl Payload for Bytes {
    #[inline]
    fn len(&self) -> usize {
        Bytes::len(self)
    }

    #[inline]
    fn slice(&self, start: usize, end: usize) -> Self {
        Bytes::slice(self, start..end)
    }

    fn join(pieces: &[Self]) -> Self {
        if let [one] = pieces {
            return one.clone();
        }
        let mut whole = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
        for piece in pieces {
            whole.extend_from_slice(piece);
        }
        whole.freeze()
    }

    fn condense(&mut self) {
        if self.len() < MAX_CONDENSED {
            *self = Bytes::copy_from_slice(self);
        }
    }

    fn ones_complement_sum(&self) -> Option<u16> {
        Some(ones_complement(self))
    }
}
