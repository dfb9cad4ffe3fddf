//! What travels over a simulated link: the engine's segments, and the datagrams of background sources.
//!
//! A link moves its packets about, and a segment is a large thing to move; so a packet is small and holds its
//! segment in a box. Boxes come from a pool and go back to it when a segment is delivered: nothing allocates in
//! steady state but for what a link drops.

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
    body: Option<Box<Option<Segment<Extent>>>>,
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

    /// Whether it holds a segment.
    pub(crate) fn is_segment(&self) -> bool {
        self.body.is_some()
    }
}

/// Empty boxes. The last one to come back is the next to go out: it is still in the cache.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    #[expect(clippy::vec_box, reason = "the boxes themselves are what is kept")]
    free: Vec<Box<Option<Segment<Extent>>>>,
}

impl Pool {
    /// Packs a segment.
    #[inline]
    pub(crate) fn pack(&mut self, segment: Segment<Extent>, owner: Owner, path: u16, trace: u32) -> Packet {
        let (len, ecn) = (segment.wire_len() as u32, segment.ecn);
        let body = match self.free.pop() {
            Some(mut body) => {
                *body = Some(segment);
                body
            }
            None => Box::new(Some(segment)),
        };
        Packet { body: Some(body), len, trace, owner, path, ecn }
    }

    /// Takes the segment out, with what its way made of the ECN field; none: a datagram.
    #[inline]
    pub(crate) fn unpack(&mut self, packet: Packet) -> Option<Segment<Extent>> {
        let mut body = packet.body?;
        let mut segment = body.take();
        self.free.push(body);
        if let Some(segment) = &mut segment {
            segment.ecn = packet.ecn;
        }
        segment
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
        let mut packet = pool.pack(segment.clone(), Owner::Workload, 1, 7);
        assert_eq!(packet.wire_len(), 1040);
        assert!(packet.is_ect());
        let copy = packet.duplicate();
        packet.mark_ce();
        let out = pool.unpack(packet).expect("a segment");
        assert_eq!(out, Segment { ecn: Ecn::Ce, ..segment.clone() });
        assert_eq!(pool.unpack(copy), Some(segment));
        assert_eq!(pool.free.len(), 2);
        assert_eq!(pool.unpack(Packet::datagram(Owner::Background(0), 0, 100)), None);
    }

    #[test]
    fn a_packet_is_small() {
        assert!(size_of::<Packet>() <= 32, "{}", size_of::<Packet>());
    }
}
