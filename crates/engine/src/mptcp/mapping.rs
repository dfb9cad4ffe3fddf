//! Mappings of subflow positions to the stream at the receiver (RFC 8684 3.3.1).
//!
//! As in Linux (`get_mapping_status`), the mapping of a segment travels with its data ([`Mapping`]), and a
//! subflow has one current mapping. In-order data that the current mapping covers is placed by it, whatever
//! came with the data: a mapping may be on the first part of its data only, on every part, or contradict an
//! earlier one. Other data makes its own mapping the current one; without one it is unmapped.
//!
//! So a mapping counts for data that it came with and for what follows. It is ignored on a segment without
//! data, on a copy of data that is there, and for data before its segment's. Linux does the same. With
//! checksums it counts only from its first byte on: of one whose beginning was delivered before, nothing can
//! be verified, and the rest is unmapped.
//!
//! A mapping may begin with the SYN, which has subflow sequence number 0: its second byte is then the first
//! of the data. The same rules hold, so that it doesn't count with checksums.

use ropewalk_wire::{Payload, checksum};

use crate::segment_list::Note;
use crate::tcp::Mapping;

/// A subflow's current mapping, and data that waits for the rest of it.
#[derive(Debug, Default)]
pub(crate) struct CurrentMapping<P> {
    /// Subflow positions of its first byte, and after its last.
    start: u64,
    end: u64,
    /// Stream offset of its first byte.
    offset: u64,
    checksum: u16,
    /// In-order data from its first byte on, since the checksum covers all.
    held: Option<Box<Held<P>>>,
}

/// Pieces of data.
#[derive(Debug, Default)]
struct Held<P>(Vec<P>);

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
    /// Whether an infinite mapping from `offset` on covers it, with `base` as the subflow's position of the
    /// stream's first byte.
    pub fn is_mapped_by(&self, offset: u64, base: u64) -> bool {
        offset <= self.offset && base == self.position.wrapping_sub(self.offset)
    }

    /// Bytes that it holds.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }
}

impl<P: Payload> CurrentMapping<P> {
    /// The position up to which it covers data in order.
    #[inline]
    pub fn end(&self) -> u64 {
        self.end
    }

    //= RFC 8684 3.3.1-a 3.3.1-b
    /// Places the first bytes of `data`, in order at `position`, which came with `mapping`; returns what was
    /// placed and what is left, with its mapping. `first_dsn`: where checksums were negotiated, the DSN of
    /// the stream's first byte.
    pub fn place(
        &mut self,
        position: u64,
        mut data: P,
        mapping: Mapping,
        first_dsn: Option<u64>,
    ) -> (Placed<P>, Option<(P, Mapping)>) {
        if position >= self.end && !self.begin(position, mapping, first_dsn.is_some()) {
            return (Placed::Unmapped(data), None);
        }
        let room = self.end - position;
        let rest = (data.len() as u64 > room).then(|| {
            let rest = data.slice(room as usize, data.len());
            data = data.slice(0, room as usize);
            (rest, mapping.after(room))
        });
        let Some(first_dsn) = first_dsn else {
            return (Placed::At(self.offset + position.wrapping_sub(self.start), data), rest);
        };
        let is_last = data.len() as u64 == room;
        let held = &mut self.held.get_or_insert_default().0;
        held.push(data);
        if !is_last {
            return (Placed::Held, rest);
        }
        let whole = P::join(held);
        held.clear();
        let (dsn, len) = (first_dsn.wrapping_add(self.offset), (self.end - self.start) as u16);
        //= RFC 8684 3.3.1-d
        let holds = whole
            .ones_complement_sum()
            .is_none_or(|sum| checksum::dss_checksum_holds(dsn, self.start as u32, len, sum, self.checksum));
        let placed =
            if holds { Placed::At(self.offset, whole) } else { Placed::Corrupt(self.failing(vec![whole])) };
        (placed, rest)
    }

    /// Makes `mapping` the current one, if it covers `position`, with a checksum from its beginning.
    fn begin(&mut self, position: u64, mapping: Mapping, has_checksum: bool) -> bool {
        let (skip, len) = (u64::from(mapping.skip), u64::from(mapping.len));
        let counts = skip < len && (skip == 0 || !has_checksum);
        if counts {
            (self.start, self.end) = (position.wrapping_sub(skip), position + (len - skip));
            (self.offset, self.checksum) = (mapping.offset - skip, mapping.checksum);
        }
        counts
    }

    fn failing(&self, pieces: Vec<P>) -> Failing<P> {
        Failing { position: self.start, offset: self.offset, pieces, repeats: 0 }
    }

    /// Forgets it, and returns what waited for the rest of it.
    pub fn take_held(&mut self) -> Option<Failing<P>> {
        self.end = 0;
        let held = self.held.take()?.0;
        (!held.is_empty()).then(|| self.failing(held))
    }

    /// Frees unused memory.
    pub fn shrink(&mut self) {
        self.held.take_if(|held| held.0.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use ropewalk_wire::{Payload, checksum};

    use super::{CurrentMapping, Failing, Mapping, Placed};
    use crate::segment_list::Note;

    const FIRST_DSN: u64 = u64::MAX - 500;

    /// A subflow in order, where checksums may be used.
    struct Subflow {
        current: CurrentMapping<Bytes>,
        position: u64,
        checksum: bool,
    }

    /// What became of data: its stream offset and length; `None` if it waits.
    type Delivered = Vec<Option<(u64, usize)>>;

    impl Subflow {
        fn new(checksum: bool) -> Self {
            Subflow { current: CurrentMapping::default(), position: 1, checksum }
        }

        /// Takes the next data; the rest is what is unmapped or corrupt.
        fn take(&mut self, data: Bytes, mapping: Mapping) -> (Delivered, Option<Placed<Bytes>>) {
            let (mut next, mut delivered) = (Some((data, mapping)), Vec::new());
            while let Some((data, mapping)) = next {
                let len = data.len();
                let (placed, rest) =
                    self.current.place(self.position, data, mapping, self.checksum.then_some(FIRST_DSN));
                self.position += (len - rest.as_ref().map_or(0, |(rest, _)| rest.len())) as u64;
                match placed {
                    Placed::At(offset, data) => delivered.push(Some((offset, data.len()))),
                    Placed::Held => delivered.push(None),
                    Placed::Corrupt(_) | Placed::Unmapped(_) => return (delivered, Some(placed)),
                }
                next = rest;
            }
            (delivered, None)
        }

        fn delivers(&mut self, len: usize, mapping: Mapping) -> Delivered {
            let (delivered, rest) = self.take(zeros(len), mapping);
            assert!(rest.is_none(), "{rest:?}");
            delivered
        }

        fn is_unmapped(&mut self, len: usize, mapping: Mapping) -> bool {
            matches!(self.take(zeros(len), mapping).1, Some(Placed::Unmapped(rest)) if !rest.is_empty())
        }
    }

    fn zeros(len: usize) -> Bytes {
        Bytes::from(vec![0; len])
    }

    fn mapping(offset: u64, len: u16) -> Mapping {
        Mapping::new(offset, len, 0, 0)
    }

    /// The mapping of all of `data`, which is at `position`, with its checksum.
    fn verified(position: u64, offset: u64, data: &Bytes) -> Mapping {
        let (len, sum) = (data.len() as u16, data.ones_complement_sum().expect("bytes"));
        let checksum = checksum::dss_checksum(FIRST_DSN.wrapping_add(offset), position as u32, len, sum);
        Mapping::new(offset, len, checksum, 0)
    }

    #[test]
    fn a_mapping_longer_than_its_segment_covers_the_next_ones_too() {
        let none = Mapping::default();
        for later in [none, mapping(1000, 300).after(100)] {
            let mut subflow = Subflow::new(false);
            assert_eq!(subflow.delivers(100, mapping(1000, 300)), [Some((1000, 100))]);
            assert_eq!(subflow.delivers(100, later), [Some((1100, 100))]);
            assert_eq!(subflow.delivers(100, none), [Some((1200, 100))]);
            assert!(subflow.is_unmapped(100, none));
        }
    }

    //= test RFC 8684 3.3.1-a 3.3.1-b
    #[test]
    fn a_repeat_changes_nothing_and_a_contradiction_neither() {
        for other in [mapping(1000, 200).after(100), mapping(8000, 100), mapping(9000, 50)] {
            let mut subflow = Subflow::new(false);
            assert_eq!(subflow.delivers(100, mapping(1000, 200)), [Some((1000, 100))]);
            assert_eq!(subflow.delivers(100, other), [Some((1100, 100))]);
            assert!(subflow.is_unmapped(100, Mapping::default()));
        }
    }

    #[test]
    fn data_beyond_the_current_mapping_is_placed_by_its_own() {
        let mut subflow = Subflow::new(false);
        subflow.delivers(30, mapping(700, 100));
        // Segments that became one on the way, with the mapping of the second. It begins after the data.
        assert_eq!(
            subflow.delivers(120, Mapping::new(5000, 50, 0, 70u32.wrapping_neg())),
            [Some((730, 70)), Some((5000, 50))]
        );
        // Data that was sent again, cut at another place: its mapping covers some that was delivered.
        assert_eq!(subflow.delivers(40, mapping(5020, 70).after(30)), [Some((5050, 40))]);
        assert!(subflow.is_unmapped(1, Mapping::default()), "it ends with its data");
        let mut subflow = Subflow::new(false);
        subflow.delivers(30, mapping(700, 100));
        assert_eq!(subflow.delivers(120, mapping(730, 120)), [Some((730, 70)), Some((800, 50))]);
    }

    #[test]
    fn a_mapping_of_other_data_than_its_own_is_none() {
        // It begins after the first byte, or ends before it.
        for (offset, len, skip) in [(1100, 100, 50u32.wrapping_neg()), (900, 100, 100)] {
            assert!(Subflow::new(false).is_unmapped(200, Mapping::new(offset, len, 0, skip)), "{skip}");
        }
        assert!(Subflow::new(false).is_unmapped(200, Mapping::default()));
    }

    #[test]
    fn a_mapping_may_begin_with_the_syn_if_it_has_no_checksum() {
        let mut subflow = Subflow::new(false);
        assert_eq!(subflow.delivers(99, mapping(1000, 100).after(1)), [Some((1001, 99))]);
        assert!(subflow.is_unmapped(1, Mapping::default()));
        assert!(Subflow::new(true).is_unmapped(99, mapping(1000, 100).after(1)));
    }

    //= test RFC 8684 3.3.1-d
    #[test]
    fn a_checksum_covers_all_pieces_of_its_mapping() {
        let data: Bytes = (0..211u8).collect();
        let whole = verified(1, 900, &data);
        for cut in [1, 100, 210] {
            let mut subflow = Subflow::new(true);
            assert_eq!(subflow.take(data.slice(..cut), whole).0, [None]);
            let rest = subflow.take(data.slice(cut..), whole.after(cut as u64));
            assert_eq!(rest.0, [Some((900, 211))], "{:?}", rest.1);
            let mut subflow = Subflow::new(true);
            subflow.take(data.slice(..cut), whole);
            let altered = Bytes::from(vec![0; 211 - cut]);
            let Some(Placed::Corrupt(Failing { position, offset, pieces, .. })) =
                subflow.take(altered, Mapping::default()).1
            else {
                panic!("altered data was delivered")
            };
            assert_eq!((position, offset, pieces[0].len()), (1, 900, 211));
        }
    }

    #[test]
    fn what_follows_a_verified_mapping_is_verified_by_itself() {
        let (first, second) = (Bytes::from(vec![3; 50]), Bytes::from(vec![5; 60]));
        let both = Bytes::from([&first[..], &second[..]].concat());
        let mut subflow = Subflow::new(true);
        assert_eq!(subflow.take(first.clone(), verified(1, 0, &first)).0, [Some((0, 50))]);
        assert_eq!(subflow.take(second.clone(), verified(51, 50, &second)).0, [Some((50, 60))]);
        // Of a mapping whose beginning was delivered without it nothing can be verified.
        let mut subflow = Subflow::new(true);
        subflow.take(first.clone(), verified(1, 0, &first));
        let again = verified(1, 0, &both).after(50);
        assert!(matches!(subflow.take(second, again).1, Some(Placed::Unmapped(_))));
    }

    #[test]
    fn only_what_waits_for_the_rest_of_its_mapping_is_taken() {
        let data = zeros(100);
        let mut subflow = Subflow::new(true);
        assert!(subflow.current.take_held().is_none());
        assert_eq!(subflow.take(data.slice(..60), verified(1, 1000, &data)).0, [None]);
        let held = subflow.current.take_held().expect("60 bytes wait");
        assert_eq!((held.position, held.offset, held.bytes()), (1, 1000, 60));
        assert!(subflow.current.take_held().is_none() && subflow.is_unmapped(40, Mapping::default()));
    }

    #[test]
    fn memory_of_what_waited_is_freed_on_request() {
        let data = zeros(100);
        let mut subflow = Subflow::new(true);
        subflow.take(data.clone(), verified(1, 1000, &data));
        assert!(subflow.current.held.is_some());
        subflow.current.shrink();
        assert!(subflow.current.held.is_none());
    }
}
