//! The compact form of common segments: IPv4, timestamps, and either data with its mapping or an ACK with at
//! most two SACK blocks. It takes a third of the memory.
//!
//! A hundred thousand segments may be in flight. In this form they lie in the links' queues in order of
//! arrival, and not each in an allocation of its own.

use std::net::{IpAddr, Ipv4Addr};

use ropewalk_wire::{
    Dss, DssMapping, Ecn, Flags, FourTuple, HOP_LIMIT, SackBlocks, Segment, Seq, SyntheticPayload, Timestamps,
};

/// A DSS option with a DATA_ACK.
const DSS: u8 = 1;
/// The DSS option maps the payload.
const MAPPING: u8 = 2;
/// The DSS option has DATA_FIN.
const DATA_FIN: u8 = 4;
/// The DATA_ACK has eight octets, not four.
const LONG: u8 = 8;
/// Shift of the number of SACK blocks.
const BLOCKS: u8 = 4;

/// Which options a compact segment has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape(u8);

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CompactSegment {
    addresses: [u32; 2],
    ports: [u16; 2],
    seq: u32,
    ack: u32,
    stamp: u32,
    echo: u32,
    data_ack: u32,
    window: u16,
    flags: u8,
    shape: u8,
    /// A mapping's DSN in halves and its SSN; without a payload up to two blocks. Last the DATA_ACK's high
    /// half, if it has eight octets: beside those is room for one block only.
    rest: [u32; 4],
}

impl CompactSegment {
    /// The segment's shape, if it has a compact form.
    #[inline]
    pub(crate) fn shape(segment: &Segment<SyntheticPayload>) -> Option<Shape> {
        let odd = segment.rare.is_some()
            || segment.gso_size != 0
            || segment.urgent != 0
            || (segment.dscp, segment.hop_limit) != (0, HOP_LIMIT)
            || segment.timestamps.is_none()
            || !segment.tuple.src.is_ipv4()
            || !segment.tuple.dst.is_ipv4();
        if odd {
            return None;
        }
        let len = segment.payload.0;
        let blocks = segment.sack.len();
        if blocks > 0 && (len > 0 || blocks > 2) {
            return None;
        }
        let shape = (blocks as u8) << BLOCKS;
        let Some(dss) = &segment.dss else { return Some(Shape(shape)) };
        dss.data_ack?;
        if dss.ack_is_64 && blocks > 1 {
            return None;
        }
        let shape = shape | DSS | if dss.ack_is_64 { LONG } else { 0 };
        let fin = if dss.data_fin { DATA_FIN } else { 0 };
        match &dss.mapping {
            Some(mapping) => {
                let covers = len > 0 && u32::from(mapping.len) == len + u32::from(dss.data_fin);
                let compact = covers && mapping.dsn_is_64 && mapping.checksum.is_none();
                compact.then_some(Shape(shape | MAPPING | fin))
            }
            None => (fin == 0).then_some(Shape(shape)),
        }
    }

    /// The compact form of a segment of this shape, without the ECN field.
    #[inline]
    pub(crate) fn new(segment: &Segment<SyntheticPayload>, shape: Shape) -> CompactSegment {
        let octets = |address| match address {
            IpAddr::V4(address) => u32::from_ne_bytes(address.octets()),
            IpAddr::V6(_) => 0,
        };
        let stamps = segment.timestamps.unwrap_or_default();
        let (mut data_ack, mut rest) = (0, [0; 4]);
        if let Some(dss) = &segment.dss {
            [data_ack, rest[3]] = halves(dss.data_ack.unwrap_or_default());
            if let Some(mapping) = &dss.mapping {
                let [low, high] = halves(mapping.dsn);
                rest[..3].copy_from_slice(&[low, high, mapping.ssn]);
            }
        }
        if shape.0 >> BLOCKS > 0 {
            for (pair, (left, right)) in rest.chunks_exact_mut(2).zip(segment.sack.as_slice()) {
                pair.copy_from_slice(&[*left, *right]);
            }
        }
        CompactSegment {
            addresses: [octets(segment.tuple.src), octets(segment.tuple.dst)],
            ports: [segment.tuple.src_port, segment.tuple.dst_port],
            seq: segment.seq.0,
            ack: segment.ack.0,
            stamp: stamps.value,
            echo: stamps.echo,
            data_ack,
            window: segment.window,
            flags: segment.flags.0,
            shape: shape.0,
            rest,
        }
    }

    /// Length of the segment's encoding, as [`Segment::wire_len`] has it.
    #[inline]
    pub(crate) fn wire_len(segment: &Segment<SyntheticPayload>, shape: Shape) -> u32 {
        header_len(shape.0) + segment.payload.0
    }

    /// Addresses and ports.
    #[inline]
    pub(crate) fn tuple(&self) -> FourTuple {
        let [src, dst] = self.addresses.map(|address| IpAddr::V4(Ipv4Addr::from(address.to_ne_bytes())));
        FourTuple { src, dst, src_port: self.ports[0], dst_port: self.ports[1] }
    }

    /// Source and destination port.
    #[inline]
    pub(crate) fn ports(&self) -> [u16; 2] {
        self.ports
    }

    /// Its flags.
    #[inline]
    pub(crate) fn flags(&self) -> Flags {
        Flags(self.flags)
    }

    /// Whether it has a payload.
    #[inline]
    pub(crate) fn has_payload(&self, len: u32) -> bool {
        len > header_len(self.shape)
    }

    /// Whether it has DATA_FIN.
    #[inline]
    pub(crate) fn data_fin(&self) -> bool {
        self.shape & DATA_FIN != 0
    }

    /// Overwrites `out` with the segment, whose encoding has `len` bytes.
    #[inline]
    pub(crate) fn write(&self, len: u32, ecn: Ecn, out: &mut Segment<SyntheticPayload>) {
        let has = |what| self.shape & what != 0;
        let [low, high, ssn, rest] = self.rest;
        let len = len - header_len(self.shape);
        out.tuple = self.tuple();
        out.seq = Seq(self.seq);
        out.ack = Seq(self.ack);
        out.window = self.window;
        out.urgent = 0;
        out.flags = Flags(self.flags);
        out.ecn = ecn;
        (out.dscp, out.hop_limit) = (0, HOP_LIMIT);
        out.gso_size = 0;
        out.timestamps = Some(Timestamps { value: self.stamp, echo: self.echo });
        out.sack.truncate(0);
        out.rare = None;
        out.payload = SyntheticPayload(len);
        let blocks = self.shape >> BLOCKS;
        if blocks > 0 {
            self.write_blocks(blocks, &mut out.sack);
        }
        out.dss = has(DSS).then(|| Dss {
            data_ack: Some(whole([self.data_ack, if has(LONG) { rest } else { 0 }])),
            ack_is_64: has(LONG),
            mapping: has(MAPPING).then(|| DssMapping {
                dsn: whole([low, high]),
                ssn,
                len: len as u16 + u16::from(has(DATA_FIN)),
                checksum: None,
                dsn_is_64: true,
            }),
            data_fin: has(DATA_FIN),
        });
    }

    fn write_blocks(&self, count: u8, out: &mut SackBlocks) {
        for pair in self.rest.chunks_exact(2).take(usize::from(count)) {
            out.push(pair[0], pair[1]);
        }
    }
}

/// Octets of a segment's encoding before its payload: IPv4, TCP, timestamps, SACK; a DATA_ACK, with a mapping
/// 14 more, padded, and 4 more if it has eight octets.
#[inline]
fn header_len(shape: u8) -> u32 {
    let blocks = u32::from(shape >> BLOCKS);
    let sack = if blocks > 0 { 4 + 8 * blocks } else { 0 };
    let dss = [0, 8, 0, 24][usize::from(shape & (DSS | MAPPING))];
    20 + 20 + 12 + sack + dss + u32::from(shape & LONG) / 2
}

/// The low half, then the high one.
fn halves(number: u64) -> [u32; 2] {
    [number as u32, (number >> 32) as u32]
}

fn whole([low, high]: [u32; 2]) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mapping() -> impl Strategy<Value = DssMapping> {
        let long = any::<bool>();
        (any::<u64>(), any::<u32>(), 0u16..4, proptest::option::weighted(0.1, any::<u16>()), long).prop_map(
            |(dsn, ssn, len, checksum, dsn_is_64)| DssMapping { dsn, ssn, len, checksum, dsn_is_64 },
        )
    }

    fn dss() -> impl Strategy<Value = Dss> {
        let ack = proptest::option::weighted(0.9, any::<u64>());
        (ack, any::<bool>(), proptest::option::of(mapping()), any::<bool>()).prop_map(
            |(data_ack, ack_is_64, mapping, data_fin)| {
                let data_ack = data_ack.map(|ack| if ack_is_64 { ack } else { ack & u64::from(u32::MAX) });
                Dss { data_ack, ack_is_64, mapping, data_fin }
            },
        )
    }

    proptest! {
        /// Segments of a compact shape survive the round trip, and common segments have one.
        #[test]
        fn round_trip(
            numbers in any::<[u32; 4]>(),
            stamps in proptest::option::weighted(0.9, any::<(u32, u32)>()),
            fields in any::<(u16, u8)>(),
            blocks in proptest::collection::vec(any::<(u32, u32)>(), 0..4),
            dss in proptest::option::of(dss()),
            len in 0u32..3,
            odd in 0u8..30,
        ) {
            let [src, dst] = [numbers[0], numbers[1]].map(|number| IpAddr::V4(Ipv4Addr::from(number)));
            let tuple = FourTuple { src, dst, src_port: fields.0, dst_port: !fields.0 };
            let mut segment = Segment::new(tuple, Seq(numbers[2]), Seq(numbers[3]), Flags(fields.1));
            segment.window = fields.0 ^ 7;
            segment.timestamps = stamps.map(|(value, echo)| Timestamps { value, echo });
            for (left, right) in blocks {
                segment.sack.push(left, right);
            }
            segment.dss = dss;
            segment.payload = SyntheticPayload(len);
            match odd {
                1 => segment.urgent = 1,
                2 => segment.dscp = 46,
                3 => segment.hop_limit = 63,
                _ => {}
            }
            let usual = !(1..=3).contains(&odd)
                && segment.timestamps.is_some()
                && segment.sack.len() <= if len == 0 { 2 } else { 0 }
                && dss.is_none_or(|dss| {
                    let maps = |m: DssMapping| {
                        len > 0
                            && m.dsn_is_64
                            && m.checksum.is_none()
                            && u32::from(m.len) == len + u32::from(dss.data_fin)
                    };
                    let few = !dss.ack_is_64 || segment.sack.len() < 2;
                    dss.data_ack.is_some() && few && dss.mapping.map_or(!dss.data_fin, maps)
                });
            let shape = CompactSegment::shape(&segment);
            prop_assert_eq!(shape.is_some(), usual);
            if let Some(shape) = shape {
                prop_assert_eq!(CompactSegment::wire_len(&segment, shape) as usize, segment.wire_len());
                let compact = CompactSegment::new(&segment, shape);
                let mut out = Segment::blank();
                out.sack.push(1, 2);
                (out.gso_size, out.dscp, out.hop_limit) = (5, 1, 1);
                out.rare_mut().sack_permitted = true;
                compact.write(segment.wire_len() as u32, Ecn::Ce, &mut out);
                segment.ecn = Ecn::Ce;
                prop_assert_eq!(compact.tuple(), tuple);
                prop_assert_eq!(out, segment);
            }
        }
    }
}
