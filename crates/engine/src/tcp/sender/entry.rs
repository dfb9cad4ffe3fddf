//! One range of sequence space on the scoreboard, and what is known of it.

use ropewalk_wire::Payload;

use super::rate::Stamp;
use crate::Nanos;

pub(crate) const SACKED: u8 = 1;
pub(crate) const LOST: u8 = 2;
/// A retransmission of it is in flight.
pub(crate) const RETRANS: u8 = 4;
pub(crate) const EVER_RETRANS: u8 = 8;
pub(crate) const FIN: u8 = 16;
pub(crate) const APP_LIMITED: u8 = 32;

/// A range of sequence space that was sent.
#[derive(Clone, Debug)]
pub(crate) struct Entry<P> {
    pub position: u64,
    pub tag: u64,
    pub payload: P,
    pub flags: u8,
    /// Bytes of the mapping that it was first sent with before its own, and that mapping's length; 0 and 0 for one
    /// that is sent whole. Linux resets a subflow on which a part comes again with a mapping of its own.
    pub lead: u16,
    pub mapped: u16,
    /// How many segments of one MSS it stands for.
    pub segments: u32,
    /// When it was last sent.
    pub sent_at: Nanos,
    /// Delivery-rate state at that time.
    pub rate: Stamp,
}

impl<P: Payload> Entry<P> {
    #[inline]
    pub fn end(&self) -> u64 {
        self.position + self.payload.len() as u64 + u64::from(self.flags & FIN != 0)
    }

    #[inline]
    pub fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}
