//! What travels over a simulated link: the engine's segments, and the datagrams of background sources.
//!
//! Links move packets, and segments are large. So a packet is small: it holds its segment in a box, which the
//! sending endpoint filled and the receiving one reads. Boxes come from a pool and return to it when a
//! segment is delivered, so that nothing is allocated in steady state except for what links drop. With so
//! many packets in flight that their boxes leave the cache before they arrive, a packet holds its segment as
//! a [`CompactSegment`] instead.

use ropewalk_wire::{Ecn, Segment, SyntheticPayload};

use crate::compact::CompactSegment;

/// Whom a packet belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// The workload.
    Workload,
    /// The background source's connection on this path of [`background_paths`](crate::topology).
    Background(u16),
}

/// What is in a packet.
#[derive(Clone, Debug)]
enum Body {
    /// A UDP datagram.
    Datagram,
    /// A segment in the compact form.
    Compact(CompactSegment),
    /// A segment.
    Whole(Box<Segment<SyntheticPayload>>),
}

/// One packet.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    body: Body,
    /// IP bytes.
    len: u32,
    /// Its trace, if segments are recorded; else `u32::MAX`.
    pub(crate) trace: u32,
    pub(crate) owner: Owner,
    /// Its path: a shared link forwards it by this.
    pub(crate) path: u16,
    ecn: Ecn,
}

impl Packet {
    /// A datagram of this many IP bytes.
    pub(crate) fn datagram(owner: Owner, path: u16, len: u32) -> Self {
        Packet { body: Body::Datagram, len, trace: u32::MAX, owner, path, ecn: Ecn::NotEct }
    }

    /// A packet with this segment, which is replaced by another to be overwritten.
    #[inline(always)]
    pub(crate) fn new(
        segment: &mut Box<Segment<SyntheticPayload>>,
        owner: Owner,
        path: u16,
        trace: u32,
        pool: &mut Pool,
    ) -> Self {
        let (len, ecn) = (segment.wire_len() as u32, segment.ecn);
        Packet { body: Body::Whole(pool.take(segment)), len, trace, owner, path, ecn }
    }

    /// As [`new`](Self::new), in the compact form if it has one.
    #[inline(never)]
    pub(crate) fn compact(
        segment: &mut Box<Segment<SyntheticPayload>>,
        owner: Owner,
        path: u16,
        trace: u32,
        pool: &mut Pool,
    ) -> Self {
        let Some(shape) = CompactSegment::shape(segment) else {
            return Packet::new(segment, owner, path, trace, pool);
        };
        let len = CompactSegment::wire_len(segment, shape);
        let body = Body::Compact(CompactSegment::new(segment, shape));
        Packet { body, len, trace, owner, path, ecn: segment.ecn }
    }

    /// Moves the segment, with the packet's ECN field, to `out`; returns false if it is a datagram.
    #[inline]
    pub(crate) fn unpack(&mut self, out: &mut Box<Segment<SyntheticPayload>>, pool: &mut Pool) -> bool {
        match &mut self.body {
            Body::Compact(compact) => compact.write(self.len, self.ecn, out),
            Body::Whole(body) => {
                body.ecn = self.ecn;
                std::mem::swap(out, body);
                if let Body::Whole(body) = std::mem::replace(&mut self.body, Body::Datagram) {
                    pool.give(body);
                }
            }
            Body::Datagram => return false,
        }
        true
    }

    /// The segment, if it has the compact form, and its IP length.
    #[inline]
    pub(crate) fn compact_segment(&self) -> Option<(&CompactSegment, u32)> {
        match &self.body {
            Body::Compact(compact) => Some((compact, self.len)),
            _ => None,
        }
    }

    /// Copies the segment to `out`, if it has the compact form.
    #[inline]
    pub(crate) fn copy_to(&self, out: &mut Segment<SyntheticPayload>) {
        if let Body::Compact(compact) = &self.body {
            compact.write(self.len, self.ecn, out);
        }
    }

    /// Moves the packet out of its place.
    #[inline]
    pub(crate) fn take(&mut self) -> Packet {
        let body = match &mut self.body {
            Body::Compact(compact) => Body::Compact(*compact),
            other => std::mem::replace(other, Body::Datagram),
        };
        Packet { body, ..*self }
    }

    /// Whether it holds a segment.
    pub(crate) fn is_segment(&self) -> bool {
        !matches!(self.body, Body::Datagram)
    }
}

/// Unused boxes, the most recently used on top, since it is still in the cache.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    #[expect(clippy::vec_box, reason = "the boxes themselves are what is kept")]
    free: Vec<Box<Segment<SyntheticPayload>>>,
}

impl Pool {
    /// Takes a segment's box, and puts another in its place whose content is to be overwritten.
    #[inline]
    fn take(&mut self, segment: &mut Box<Segment<SyntheticPayload>>) -> Box<Segment<SyntheticPayload>> {
        std::mem::replace(segment, self.free.pop().unwrap_or_else(|| Box::new(Segment::blank())))
    }

    /// Returns a box to the pool.
    #[inline]
    fn give(&mut self, body: Box<Segment<SyntheticPayload>>) {
        self.free.push(body);
    }
}

impl ropewalk_link::Packet for Packet {
    #[inline]
    fn wire_len(&self) -> u32 {
        self.len
    }

    #[inline]
    fn is_ect(&self) -> bool {
        self.ecn != Ecn::NotEct
    }

    #[inline]
    fn mark_ce(&mut self) {
        self.ecn = Ecn::Ce;
    }

    fn duplicate(&self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_link::Packet as _;
    use ropewalk_wire::{Flags, FourTuple, Seq, Timestamps};

    use super::*;

    #[test]
    fn what_is_packed_comes_out_with_its_mark() {
        let tuple = FourTuple::new("192.0.2.1:1".parse().expect("one"), "192.0.2.2:2".parse().expect("one"));
        let mut pool = Pool::default();
        // Without timestamps it has no short form.
        for (short, timestamps) in [(false, true), (true, true), (true, false)] {
            let mut segment = Segment::new(tuple, Seq(1), Seq(2), Flags::ACK);
            segment.timestamps = timestamps.then_some(Timestamps { value: 3, echo: 4 });
            segment.payload = SyntheticPayload(1000);
            segment.ecn = Ecn::Ect0;
            let mut body = Box::new(segment.clone());
            let pack = if short { Packet::compact } else { Packet::new };
            let mut packet = pack(&mut body, Owner::Workload, 1, 7, &mut pool);
            assert_eq!(packet.wire_len(), if timestamps { 1052 } else { 1040 });
            assert_eq!(matches!(packet.body, Body::Compact(_)), short && timestamps);
            assert!(packet.is_ect() && packet.is_segment());
            let mut copy = packet.duplicate();
            packet.mark_ce();
            let mut out = Box::new(Segment::blank());
            assert!(packet.unpack(&mut out, &mut pool));
            assert_eq!(*out, Segment { ecn: Ecn::Ce, ..segment.clone() });
            assert!(copy.unpack(&mut out, &mut pool));
            assert_eq!(*out, segment);
        }
        assert!(!pool.free.is_empty(), "to be used again");
        let mut datagram = Packet::datagram(Owner::Background(0), 0, 100);
        assert!(!datagram.is_segment());
        assert!(!datagram.unpack(&mut Box::new(Segment::blank()), &mut pool));
    }

    #[test]
    fn a_packet_is_small() {
        assert!(size_of::<Packet>() <= 72, "{}", size_of::<Packet>());
    }
}
