//! The mapping that travels with received data.

use crate::segment_list::Note;

/// The mapping that came with a piece of data (RFC 8684 3.3.1), as seen from the piece's first byte. TCP only
/// carries it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Mapping {
    /// Where the mapping puts the piece's first byte in the stream.
    pub offset: u64,
    /// Bytes of the mapping before the piece, modulo 2^32: a mapping that begins after the piece's first byte
    /// has less than none.
    pub skip: u32,
    /// Bytes that it maps, without a DATA_FIN; 0: the piece has no mapping of its own.
    pub len: u16,
    /// The checksum as it would be without a DATA_FIN. Means nothing where checksums weren't negotiated.
    pub checksum: u16,
}

impl Mapping {
    /// A mapping of `len` bytes to the stream from `offset` on, as seen `skip` bytes later, modulo 2^32.
    #[inline]
    pub fn new(offset: u64, len: u16, checksum: u16, skip: u32) -> Self {
        Mapping { offset, skip: 0, len, checksum }.after(i64::from(skip as i32) as u64)
    }

    /// Whether there is one.
    #[inline]
    pub fn is_some(self) -> bool {
        self.len > 0
    }

    /// Whether it covers a piece of `len` bytes and ends with it.
    #[inline]
    pub fn ends_after(self, len: usize) -> bool {
        u64::from(self.skip) + len as u64 == u64::from(self.len)
    }
}

impl Note for Mapping {
    #[inline]
    fn after(self, skip: u64) -> Self {
        Mapping { offset: self.offset.wrapping_add(skip), skip: self.skip.wrapping_add(skip as u32), ..self }
    }
}
