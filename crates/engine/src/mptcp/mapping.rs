//! Mappings from subflow sequence to connection-level offsets at the receiver (RFC 8684 3.3.1).

use ropewalk_wire::Payload;

use crate::chunked_list::ChunkedList;

/// One mapping: `len` bytes from subflow position `position` are the stream from `offset` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mapping {
    pub position: u64,
    pub offset: u64,
    pub len: u32,
    pub checksum: Option<u16>,
    pub dsn: u64,
    /// The mapping's length on the wire, which counts a DATA_FIN.
    pub wire_len: u16,
}

impl Mapping {
    #[inline]
    pub fn end(&self) -> u64 {
        self.position + u64::from(self.len)
    }
}

/// Most mappings kept per subflow: far more than a window's worth of segments is an attack.
const LIMIT: usize = 1 << 17;

/// A subflow's mappings, in order of position, and data that waits for its mapping's checksum.
#[derive(Debug, Default)]
pub(crate) struct Mappings<P> {
    list: ChunkedList<Mapping>,
    held: Vec<P>,
    held_len: u32,
}

/// What to do with in-order data of a subflow.
#[derive(Debug)]
pub(crate) enum Placed<P> {
    /// `data` belongs at `offset`.
    At(u64, P),
    /// It is held until the rest of its mapping arrives, since the checksum covers both.
    Held,
    /// The checksum of its mapping failed. All data of the mapping.
    Corrupt(Failing<P>),
    /// There is no mapping for it.
    Unmapped(P),
}

/// Data held after a checksum failure on a lone subflow, until the peer confirms the fallback (RFC 8684 3.7).
#[derive(Debug)]
pub(crate) struct Failing<P> {
    /// The mapping's data sequence number.
    pub dsn: u64,
    /// Subflow position of its first byte.
    pub position: u64,
    /// Stream offset of its first byte.
    pub offset: u64,
    /// In-order data from there on.
    pub pieces: Vec<P>,
    /// How often MP_FAIL was repeated since.
    pub repeats: u32,
}

impl<P: Payload> Failing<P> {
    /// Whether an infinite mapping from `offset` on covers it, with `base` as the subflow's position of the stream's first byte.
    pub fn is_mapped_by(&self, offset: u64, base: u64) -> bool {
        offset <= self.offset && base == self.position.wrapping_sub(self.offset)
    }

    /// Bytes that it holds.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }
}

impl<P: Payload> Mappings<P> {
    /// Frees unused memory.
    pub fn shrink(&mut self) {
        self.list.shrink();
        self.held.shrink_to_fit();
    }

    //= RFC 8684 3.3.1-a 3.3.1-b
    /// Adds a mapping. Repeats, and parts that an earlier one covers, change nothing.
    pub fn add(&mut self, mapping: Mapping, rcv_nxt: u64) {
        if mapping.len == 0 || mapping.end() <= rcv_nxt && self.held.is_empty() || self.list.len() >= LIMIT {
            return;
        }
        match self.list.back() {
            None => self.list.push_back(mapping),
            Some(last) if last.end() <= mapping.position => self.list.push_back(mapping),
            Some(_) => {
                let index = self.list.partition_point(|known| known.end() <= mapping.position);
                match self.list.get(index) {
                    // An overlap is a repetition, or a contradiction, of which the first mapping wins.
                    Some(known) if known.position < mapping.end() => {
                        let (start, end) = (known.position, known.end());
                        self.add_around(mapping, start, end, rcv_nxt);
                    }
                    _ => self.list.insert(index, mapping),
                }
            }
        }
    }

    /// Adds the parts of a mapping before and after `start..end`, which an earlier mapping covers: something on the way may have
    /// joined segments of which a later one came first. A part has no checksum of its own.
    #[cold]
    fn add_around(&mut self, mapping: Mapping, start: u64, end: u64, rcv_nxt: u64) {
        if mapping.checksum.is_some() {
            return;
        }
        if mapping.position < start {
            self.add(Mapping { len: (start - mapping.position) as u32, ..mapping }, rcv_nxt);
        }
        if mapping.end() > end {
            let cut = end - mapping.position;
            let rest = mapping.end() - end;
            let offset = mapping.offset + cut;
            self.add(Mapping { position: end, offset, len: rest as u32, ..mapping }, rcv_nxt);
        }
    }

    /// Whether no mapping of any of `position..end` is stored, and no data waits for a mapping's checksum.
    #[inline]
    pub fn has_none_of(&self, position: u64, end: u64) -> bool {
        (self.list.is_empty() && self.held.is_empty()) || self.has_none_within(position, end)
    }

    #[inline(never)]
    fn has_none_within(&self, position: u64, end: u64) -> bool {
        let index = self.list.partition_point(|known| known.end() <= position);
        self.held.is_empty() && self.list.get(index).is_none_or(|known| known.position >= end)
    }

    /// Places the first bytes of `data`, in order at `position`; returns what was placed and what is left.
    pub fn place(&mut self, position: u64, data: P) -> (Placed<P>, Option<P>) {
        while self.list.front().is_some_and(|mapping| mapping.end() <= position) {
            self.list.pop_front();
        }
        let Some(mapping) = self.list.front() else { return (Placed::Unmapped(data), None) };
        if mapping.position > position {
            return (Placed::Unmapped(data), None);
        }
        let room = (mapping.end() - position) as usize;
        let mapping = *mapping;
        let (part, rest) = if data.len() > room {
            (data.slice(0, room), Some(data.slice(room, data.len())))
        } else {
            (data, None)
        };
        if mapping.checksum.is_none() {
            if part.len() == room {
                self.list.pop_front();
            }
            return (Placed::At(mapping.offset + (position - mapping.position), part), rest);
        }
        self.held_len += part.len() as u32;
        self.held.push(part);
        if self.held_len < mapping.len {
            return (Placed::Held, rest);
        }
        self.held_len = 0;
        let whole = P::join(&std::mem::take(&mut self.held));
        //= RFC 8684 3.3.1-d
        let holds = match (whole.ones_complement_sum(), mapping.checksum) {
            (Some(sum), Some(checksum)) => ropewalk_wire::checksum::dss_checksum_holds(
                mapping.dsn,
                mapping.position as u32,
                mapping.wire_len,
                sum,
                checksum,
            ),
            _ => true,
        };
        if holds {
            return (Placed::At(mapping.offset, whole), rest);
        }
        let (dsn, offset) = (mapping.dsn, mapping.offset);
        let failing = Failing { dsn, position: mapping.position, offset, pieces: vec![whole], repeats: 0 };
        (Placed::Corrupt(failing), rest)
    }

    /// Takes what waits for the rest of its mapping.
    pub fn take_held(&mut self) -> Option<Failing<P>> {
        let mapping = self.list.front().filter(|_| !self.held.is_empty())?;
        let (dsn, position, offset) = (mapping.dsn, mapping.position, mapping.offset);
        self.held_len = 0;
        Some(Failing { dsn, position, offset, pieces: std::mem::take(&mut self.held), repeats: 0 })
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.list.clear();
        self.held.clear();
        self.held_len = 0;
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{Mapping, Mappings, Placed};

    fn mapping(position: u64, offset: u64, len: u32) -> Mapping {
        Mapping { position, offset, len, checksum: None, dsn: 0, wire_len: len as u16 }
    }

    fn offset(placed: Placed<Bytes>) -> Option<(u64, usize)> {
        match placed {
            Placed::At(offset, data) => Some((offset, data.len())),
            _ => None,
        }
    }

    #[test]
    fn a_mapping_longer_than_its_segment_covers_the_next_one_too() {
        let mut mappings = Mappings::default();
        mappings.add(mapping(1, 1000, 300), 1);
        let data = Bytes::from(vec![0; 100]);
        assert_eq!(offset(mappings.place(1, data.clone()).0), Some((1000, 100)));
        mappings.add(mapping(1, 1000, 300), 101);
        assert_eq!(offset(mappings.place(101, data.clone()).0), Some((1100, 100)));
        assert_eq!(offset(mappings.place(201, data.clone()).0), Some((1200, 100)));
        assert!(matches!(mappings.place(301, data).0, Placed::Unmapped(_)));
    }

    //= test RFC 8684 3.3.1-a 3.3.1-b
    #[test]
    fn a_repeat_changes_nothing_and_a_contradiction_neither() {
        let mut mappings = Mappings::default();
        for declared in [mapping(1, 1000, 100), mapping(101, 1100, 100)] {
            mappings.add(declared, 1);
            mappings.add(declared, 1);
            mappings.add(Mapping { offset: declared.offset + 7000, ..declared }, 1);
            mappings.add(Mapping { offset: 9000, len: 50, ..declared }, 1);
        }
        let data = Bytes::from(vec![0; 100]);
        assert_eq!(offset(mappings.place(1, data.clone()).0), Some((1000, 100)));
        assert_eq!(offset(mappings.place(101, data.clone()).0), Some((1100, 100)));
        // What is already in order isn't mapped again.
        mappings.add(mapping(101, 8000, 100), 201);
        assert!(matches!(mappings.place(201, data).0, Placed::Unmapped(_)));
    }

    #[test]
    fn a_mapping_around_an_earlier_one_covers_what_that_leaves() {
        let mut mappings = Mappings::default();
        mappings.add(mapping(101, 1100, 100), 1);
        mappings.add(mapping(1, 1000, 300), 1);
        for (position, expected) in [(1, 1000), (101, 1100), (201, 1200)] {
            let data = Bytes::from(vec![0; 100]);
            assert_eq!(offset(mappings.place(position, data).0), Some((expected, 100)), "{position}");
        }
    }

    #[test]
    fn an_empty_mapping_and_one_of_data_that_was_delivered_are_not_kept() {
        let mut mappings = Mappings::<Bytes>::default();
        mappings.add(mapping(5, 1000, 0), 1);
        mappings.add(mapping(1, 1000, 100), 101);
        assert!(mappings.list.is_empty());
    }

    #[test]
    fn only_what_waits_for_the_rest_of_its_mapping_is_taken() {
        let mut mappings = Mappings::default();
        mappings.add(Mapping { checksum: Some(1), ..mapping(1, 1000, 100) }, 1);
        assert!(mappings.take_held().is_none());
        assert!(matches!(mappings.place(1, Bytes::from(vec![0; 60])).0, Placed::Held));
        let held = mappings.take_held().expect("60 bytes wait");
        assert_eq!((held.offset, held.bytes()), (1000, 60));
    }

    #[test]
    fn merged_segments_are_cut_where_mappings_end() {
        let mut mappings = Mappings::default();
        mappings.add(mapping(101, 5000, 50), 1);
        mappings.add(mapping(1, 700, 100), 1);
        assert_eq!(offset(mappings.place(1, Bytes::from(vec![0; 30])).0), Some((700, 30)));
        let (placed, rest) = mappings.place(31, Bytes::from(vec![0; 120]));
        assert_eq!(offset(placed), Some((730, 70)));
        let (placed, rest) = mappings.place(101, rest.unwrap());
        assert_eq!((offset(placed), rest), (Some((5000, 50)), None));
    }
}
