//! What was assigned to a subflow and never sent is taken back.

use std::ops::Range;

use ropewalk_wire::Payload;

use super::SendSide;
use crate::SubflowId;

impl<P: Payload> SendSide<P> {
    /// Takes `range` back, which waits in the queue of `subflow`. Returns false if another subflow carries
    /// some of it: then it stays.
    pub fn unassign(&mut self, range: Range<u64>, subflow: SubflowId) -> bool {
        let range = range.start.max(self.una)..range.end;
        let first = self.chunks.index_after(range.start);
        let within = || self.chunks.0.range(first..).take_while(|sent| sent.offset < range.end);
        let alone = within().all(|sent| sent.carriers == 1 << subflow.0 && sent.end() <= range.end);
        if range.is_empty() || !alone {
            return false;
        }
        let mut last = first + within().count();
        // The front of a piece may have been sent: that stays a chunk.
        if let Some(sent) = self.chunks.0.get_mut(first).filter(|sent| sent.offset < range.start) {
            sent.len = (range.start - sent.offset) as u16;
            last = last.max(first + 1);
            self.chunks.0.drain(first + 1..last);
        } else {
            self.chunks.0.drain(first..last);
        }
        self.unsent += range.end - range.start;
        self.assigned_end = self.chunks.0.back().map_or(self.una, |sent| sent.end()).max(self.una);
        let after = self.unassigned.iter().position(|free| free.start >= range.end);
        let at = after.unwrap_or(self.unassigned.len());
        let joins_next = self.unassigned.get_mut(at).is_some_and(|free| free.start == range.end);
        let before = at.checked_sub(1).and_then(|at| self.unassigned.get_mut(at));
        match before.filter(|free| free.end == range.start) {
            Some(free) => {
                free.end = range.end;
                if joins_next
                    && let Some(next) = self.unassigned.remove(at)
                    && let Some(free) = self.unassigned.get_mut(at - 1)
                {
                    free.end = next.end;
                }
            }
            None if joins_next => {
                if let Some(free) = self.unassigned.get_mut(at) {
                    free.start = range.start;
                }
            }
            None => self.unassigned.insert(at, range),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::SendSide;
    use crate::scheduler::Chunk;
    use crate::{SubflowId, Time};

    const FIRST: SubflowId = SubflowId(0);

    /// Ten bytes, all assigned to the first subflow in chunks of two.
    fn side() -> SendSide<Bytes> {
        let mut side = SendSide::new(1000);
        side.write(Bytes::from_static(b"0123456789"));
        for offset in [0, 2, 4, 6, 8] {
            side.assign(offset..offset + 2);
            side.chunks.insert(Chunk { offset, len: 2, carriers: 1, last: FIRST, sent_at: Time::ZERO });
        }
        side
    }

    #[test]
    fn what_is_taken_back_is_unassigned_in_order_again() {
        let mut side = side();
        assert!(side.unassign(8..10, FIRST));
        assert_eq!((side.unsent(), side.next_offset(), side.assigned_end), (2, 8, 8));
        assert!(side.unassign(2..4, FIRST));
        assert_eq!((side.unsent(), side.next_offset(), side.assigned_end), (4, 2, 8));
        assert_eq!((side.unassigned_at(2), side.unassigned_at(4)), (Some(2..4), Some(8..10)));
        assert!(side.unassign(4..8, FIRST), "several chunks, between two that are free");
        assert_eq!((side.unassigned_at(0), side.unsent(), side.assigned_end), (Some(2..10), 8, 2));
        assert_eq!(side.chunks.len(), 1);
    }

    #[test]
    fn of_a_piece_whose_front_was_sent_the_rest_is_taken_back() {
        let mut side = side();
        side.acknowledge(2);
        assert!(side.unassign(3..6, FIRST));
        let left = side.chunks.find(2).map(|sent| (sent.chunk().offset, sent.chunk().len));
        assert_eq!((left, side.unassigned_at(0)), (Some((2, 1)), Some(3..6)));
    }

    #[test]
    fn what_another_subflow_carries_too_stays() {
        let mut side = side();
        side.repeated(4, SubflowId(1), Time::ZERO);
        assert!(!side.unassign(2..6, FIRST));
        assert!(!side.unassign(4..6, FIRST));
        side.acknowledge(10);
        assert!(!side.unassign(8..10, FIRST), "it has arrived");
        assert_eq!((side.unsent(), side.next_offset()), (0, 10));
    }
}
