//! What a model connection records.

use crate::Nanos;

/// A transmitted segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    /// When.
    pub at: Nanos,
    /// Where.
    pub subflow: u8,
    /// Stream offset.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// Whether a decision repeated it.
    pub repeat: bool,
}
