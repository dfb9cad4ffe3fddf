//! One range of sequence space on the scoreboard, and what is known of it.

use ropewalk_wire::Payload;

use super::rate::{Flight, Stamp};
use crate::Time;

pub(crate) const SACKED: u8 = 1;
pub(crate) const LOST: u8 = 2;
/// A retransmission of it is in flight.
pub(crate) const RETRANS: u8 = 4;
pub(crate) const EVER_RETRANS: u8 = 8;
pub(crate) const FIN: u8 = 16;
pub(crate) const APP_LIMITED: u8 = 32;
/// It was retransmitted as a tail loss probe only.
pub(crate) const PROBED: u8 = 64;

/// A range of sequence space that was sent.
#[derive(Clone, Debug)]
pub(crate) struct Entry<P> {
    pub position: u64,
    pub tag: u64,
    pub payload: P,
    pub flags: u8,
    /// For a part of what was first sent with one mapping: bytes of the mapping before it, and the mapping's
    /// length. Otherwise
    /// 0. Linux resets a subflow on which a part is retransmitted with a mapping of its own.
    pub lead: u16,
    pub mapped: u16,
    /// Segments of one MSS that it counts for.
    pub segments: u32,
    /// [`Flight::delivered`] when it was last sent. (The fields of [`Flight`] stand here one by one: with the
    /// padding of a struct of their own, an entry wouldn't fit into a cache line.)
    pub delivered: u32,
    /// [`Flight::in_flight`] when it was last sent, itself included.
    pub in_flight: u32,
    /// [`Flight::lost`] when it was last sent.
    pub lost: u16,
    /// When it was last sent.
    pub sent_at: Time,
    /// The times from which its delivery-rate sample counts.
    pub rate: Stamp,
}

impl<P: Payload> Entry<P> {
    #[inline]
    pub fn end(&self) -> u64 {
        self.position + self.payload.len() as u64 + u64::from(self.flags & FIN != 0)
    }

    /// What the model of the path needs of it.
    #[inline]
    pub fn flight(&self) -> Flight {
        Flight { delivered: self.delivered, in_flight: self.in_flight, lost: self.lost }
    }

    /// Sets what [`flight`](Self::flight) returns.
    #[inline]
    pub fn set_flight(&mut self, flight: Flight) {
        let Flight { delivered, in_flight, lost } = flight;
        (self.delivered, self.in_flight, self.lost) = (delivered, in_flight, lost);
    }

    #[inline]
    pub fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The length of its segments. All but the last have the same; where that can't be told, they had the
    /// MSS.
    fn segment_len(&self, mss: u32) -> u64 {
        let (len, segments) = (self.payload.len() as u64, u64::from(self.segments.max(1)));
        let len = if len.is_multiple_of(segments) { len / segments } else { u64::from(mss) };
        len.max(1)
    }

    /// Where the segment of it ends that holds the byte before `position`. SACK blocks cut it only there, as
    /// in Linux (`tcp_match_skb_to_sack`): else a peer could make pieces of a byte of all that was sent.
    pub fn segment_end(&self, position: u64, mss: u32) -> u64 {
        self.position + (position - self.position).next_multiple_of(self.segment_len(mss))
    }

    /// Where the segment of it begins that holds `position`.
    pub fn segment_begin(&self, position: u64, mss: u32) -> u64 {
        let len = self.segment_len(mss);
        self.position + (position - self.position) / len * len
    }
}
