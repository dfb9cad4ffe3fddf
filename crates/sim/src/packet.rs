//! What travels over a simulated link: the engine's segments, and the datagrams of background sources.
//!
//! A link moves its packets about, and a segment is a large thing to move; so a packet is small and holds its
//! segment in a box, in which an end wrote it and from which the other reads it. Boxes come from a pool and go back to
//! it when a segment is delivered: nothing allocates in steady state but for what a link drops.

use ropewalk_wire::{Ecn, Extent, Segment};

/// Whose a packet is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// The workload's.
    Workload,
    /// The background source's with this index.
    Background(u16),
}

/// One packet.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    /// What is in it; none: a datagram that nobody reads.
    body: Option<Box<Segment<Extent>>>,
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
        Packet { body: None, len, trace: u32::MAX, owner, path, ecn: Ecn::NotEct }
    }

    /// A segment on its way.
    #[inline]
    pub(crate) fn new(body: Box<Segment<Extent>>, owner: Owner, path: u16, trace: u32) -> Self {
        let (len, ecn) = (body.wire_len() as u32, body.ecn);
        Packet { body: Some(body), len, trace, owner, path, ecn }
    }

    /// The segment, with what its way made of the ECN field; none: a datagram.
    #[inline]
    pub(crate) fn open(self) -> Option<Box<Segment<Extent>>> {
        let mut body = self.body?;
        body.ecn = self.ecn;
        Some(body)
    }

    /// Whether it holds a segment.
    pub(crate) fn is_segment(&self) -> bool {
        self.body.is_some()
    }
}

/// Empty boxes. The last one to come back is the next to go out: it is still in the cache.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    #[expect(clippy::vec_box, reason = "the boxes themselves are what is kept")]
    free: Vec<Box<Segment<Extent>>>,
}

impl Pool {
    /// A box, with some segment in it that is to be written over.
    #[inline]
    pub(crate) fn take(&mut self) -> Box<Segment<Extent>> {
        self.free.pop().unwrap_or_else(|| Box::new(Segment::blank()))
    }

    /// A box that isn't needed any more.
    #[inline]
    pub(crate) fn give(&mut self, body: Box<Segment<Extent>>) {
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
    use ropewalk_wire::{Flags, FourTuple, Seq};

    use super::*;

    #[test]
    fn what_is_packed_comes_out_with_its_mark() {
        let tuple = FourTuple::new("192.0.2.1:1".parse().expect("one"), "192.0.2.2:2".parse().expect("one"));
        let mut segment = Segment::new(tuple, Seq(1), Seq(2), Flags::ACK);
        segment.payload = Extent(1000);
        segment.ecn = Ecn::Ect0;
        let mut pool = Pool::default();
        let mut body = pool.take();
        *body = segment.clone();
        let mut packet = Packet::new(body, Owner::Workload, 1, 7);
        assert_eq!(packet.wire_len(), 1040);
        assert!(packet.is_ect());
        let copy = packet.duplicate();
        packet.mark_ce();
        let out = packet.open().expect("a segment");
        assert_eq!(*out, Segment { ecn: Ecn::Ce, ..segment.clone() });
        assert_eq!(copy.open().as_deref(), Some(&segment));
        pool.give(out);
        assert_eq!(pool.take().ecn, Ecn::Ce, "as it came back");
        assert_eq!(Packet::datagram(Owner::Background(0), 0, 100).open(), None);
    }

    #[test]
    fn a_packet_is_small() {
        assert!(size_of::<Packet>() <= 32, "{}", size_of::<Packet>());
    }
}
