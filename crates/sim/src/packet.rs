//! What travels over a simulated link: the engine's segments, and the datagrams of background sources.
//!
//! A link moves its packets about, and a segment is a large thing to move; so a packet is small and holds its segment in
//! a box, in which an end wrote it and from which the other reads it. Boxes come from a pool and go back to it when a
//! segment is delivered: nothing allocates in steady state but for what a link drops. Where so many are under way that
//! their boxes have left the cache when they arrive, a packet holds the segment itself, in the short form that nearly
//! all have ([`Plain`]).

use ropewalk_wire::{Ecn, FourTuple, Segment, SyntheticPayload};

use crate::plain::Plain;

/// Whose a packet is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// The workload's.
    Workload,
    /// The background source's with this index.
    Background(u16),
}

/// What is in a packet.
#[derive(Clone, Debug)]
enum Body {
    /// A datagram that nobody reads.
    Datagram,
    /// A segment as nearly all are.
    Plain(Plain),
    /// Any other.
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
    /// The path that it takes: a link behind several paths' links hands it on by this.
    pub(crate) path: u16,
    ecn: Ecn,
}

impl Packet {
    /// A datagram of this many IP bytes.
    pub(crate) fn datagram(owner: Owner, path: u16, len: u32) -> Self {
        Packet { body: Body::Datagram, len, trace: u32::MAX, owner, path, ecn: Ecn::NotEct }
    }

    /// A segment on its way; in its place comes another, to be written over.
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

    /// As [`new`](Self::new), in the short form if it has one.
    #[inline(never)]
    pub(crate) fn short(
        segment: &mut Box<Segment<SyntheticPayload>>,
        owner: Owner,
        path: u16,
        trace: u32,
        pool: &mut Pool,
    ) -> Self {
        let Some(shape) = Plain::shape(segment) else {
            return Packet::new(segment, owner, path, trace, pool);
        };
        let len = Plain::wire_len(segment, shape);
        let body = Body::Plain(Plain::new(segment, shape));
        Packet { body, len, trace, owner, path, ecn: segment.ecn }
    }

    /// Puts the segment, with what its way made of the ECN field, into `out`; false if it is a datagram. What is left
    /// of it says nothing.
    #[inline]
    pub(crate) fn open(&mut self, out: &mut Box<Segment<SyntheticPayload>>, pool: &mut Pool) -> bool {
        match &mut self.body {
            Body::Plain(plain) => plain.write(self.len, self.ecn, out),
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

    /// The segment, if it has the short form, and its length.
    #[inline]
    pub(crate) fn plain(&self) -> Option<(&Plain, u32)> {
        match &self.body {
            Body::Plain(plain) => Some((plain, self.len)),
            _ => None,
        }
    }

    /// As [`open`](Self::open), and it stays as it is; only the short form can be read so.
    #[inline]
    pub(crate) fn read(&self, out: &mut Segment<SyntheticPayload>) -> bool {
        let Body::Plain(plain) = &self.body else { return false };
        plain.write(self.len, self.ecn, out);
        true
    }

    /// What it is, leaving nothing of worth.
    #[inline]
    pub(crate) fn take(&mut self) -> Packet {
        let body = match &mut self.body {
            Body::Plain(plain) => Body::Plain(*plain),
            other => std::mem::replace(other, Body::Datagram),
        };
        Packet { body, ..*self }
    }

    /// The segment's addresses and ports; none: a datagram.
    #[inline]
    pub(crate) fn tuple(&self) -> Option<FourTuple> {
        match &self.body {
            Body::Plain(plain) => Some(plain.tuple()),
            Body::Whole(body) => Some(body.tuple),
            Body::Datagram => None,
        }
    }

    /// Whether it holds a segment.
    pub(crate) fn is_segment(&self) -> bool {
        !matches!(self.body, Body::Datagram)
    }
}

/// Empty boxes. The last one to come back is the next to go out: it is still in the cache.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    #[expect(clippy::vec_box, reason = "the boxes themselves are what is kept")]
    free: Vec<Box<Segment<SyntheticPayload>>>,
}

impl Pool {
    /// A segment's box; in its place comes another, with some segment in it that is to be written over.
    #[inline]
    fn take(&mut self, segment: &mut Box<Segment<SyntheticPayload>>) -> Box<Segment<SyntheticPayload>> {
        std::mem::replace(segment, self.free.pop().unwrap_or_else(|| Box::new(Segment::blank())))
    }

    /// A box that isn't needed any more.
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
    use ropewalk_wire::{Flags, Seq, Timestamps};

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
            let pack = if short { Packet::short } else { Packet::new };
            let mut packet = pack(&mut body, Owner::Workload, 1, 7, &mut pool);
            assert_eq!(packet.wire_len(), if timestamps { 1052 } else { 1040 });
            assert_eq!(matches!(packet.body, Body::Plain(_)), short && timestamps);
            assert!(packet.is_ect() && packet.is_segment());
            assert_eq!(packet.tuple(), Some(tuple));
            let mut copy = packet.duplicate();
            packet.mark_ce();
            let mut out = Box::new(Segment::blank());
            assert!(packet.open(&mut out, &mut pool));
            assert_eq!(*out, Segment { ecn: Ecn::Ce, ..segment.clone() });
            assert!(copy.open(&mut out, &mut pool));
            assert_eq!(*out, segment);
        }
        assert!(!pool.free.is_empty(), "to be used again");
        let mut datagram = Packet::datagram(Owner::Background(0), 0, 100);
        assert_eq!((datagram.tuple(), datagram.is_segment()), (None, false));
        assert!(!datagram.open(&mut Box::new(Segment::blank()), &mut pool));
    }

    #[test]
    fn a_packet_is_small() {
        assert!(size_of::<Packet>() <= 72, "{}", size_of::<Packet>());
    }
}
