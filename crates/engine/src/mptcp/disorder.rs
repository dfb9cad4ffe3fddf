//! The straight way into a connection while packets overtake each other on a subflow: data that is out of order there, or
//! fills a gap, and an ACK that tells of such data. See [`crate::tcp`]'s `disorder` for the subflow's part.

use ropewalk_wire::{DssMapping, Payload, Segment};

use super::connection::Connection;
use super::mapping::{self, Mapping};
use super::subflow::Strand;
use crate::Nanos;
use crate::tcp::{Outcome, Spot};

impl<P: Payload> Strand<P> {
    /// Mappings that lie with their data go among the others, where whatever comes is held against them.
    #[inline]
    pub(super) fn part_mappings(&mut self) {
        if self.tcp.has_spots() {
            self.part_all_mappings();
        }
    }

    #[cold]
    fn part_all_mappings(&mut self) {
        for (position, len, offset) in self.tcp.take_spots() {
            // Without a checksum nobody asks for the DSN.
            let (checksum, dsn, wire_len) = (None, 0, len as u16);
            self.mappings.add(Mapping { position, offset, len, checksum, dsn, wire_len }, 0);
        }
    }
}

impl<P: Payload> Connection<P> {
    /// Data with its mapping, the stream's from `offset` on, that isn't next in order or before which some is missing still; false: it
    /// has to go the long way.
    #[inline(never)]
    pub(super) fn take_beyond(
        &mut self,
        now: Nanos,
        index: usize,
        segment: &mut Segment<P>,
        ack: (u64, bool),
        mapping: &DssMapping,
        offset: u64,
    ) -> bool {
        let (Some(Some(strand)), Some(metrics)) = (self.strands.get_mut(index), self.metrics.get(index))
        else {
            return false;
        };
        let (tcp, next) = (&self.config.tcp, strand.tcp.rcv_nxt());
        let Some(position) = strand.tcp.beyond(now, tcp, metrics, segment) else { return false };
        // A mapping of just this data need not be kept apart from it, unless it is one that repeats or contradicts another.
        let end = position + u64::from(mapping.len);
        let alone = mapping.ssn == position as u32 && strand.mappings.leave(position, end);
        let gap = if alone { strand.tcp.gap(position, segment, mapping::LIMIT) } else { None };
        if gap.is_none() {
            strand.part_mappings();
        }
        let place = gap.map(|gap| (gap, Spot::new(offset)));
        let mut outcome = Outcome::default();
        strand.tcp.take_beyond(now, tcp, metrics, segment, position, place, &mut outcome);
        let window = strand.tcp.window_in(segment.flags, segment.window);
        self.dirty = true;
        self.hear_data_ack(now, ack, window);
        if gap.is_none() {
            self.add_mapping(index, mapping, offset, u32::from(mapping.len), next);
        }
        if outcome.data {
            self.take_in_order(now, index);
        }
        if self.send.closed || self.dead {
            self.settle(now, index);
        }
        true
    }
}
