//! Data that overtakes the segment with the keys. The client's key comes with its third ACK and its first data (RFC 8684 3.1), and
//! until then a mapping can't be read. What comes before them waits: the client needn't send it again.

use ropewalk_wire::{Payload, Segment};

use super::connection::{Connection, Mode};
use crate::Nanos;
use crate::tcp::State;

/// Segments that may wait: three first windows of RFC 6928.
const MOST_WAITING: usize = 30;

/// Segments that came before the keys.
pub(super) type EarlyData<P> = Vec<Segment<P>>;

impl<P: Payload> Connection<P> {
    /// Whether a segment with a DSS came before the one that completes the handshake with both keys.
    #[inline]
    pub(super) fn lacks_keys(&self, index: usize, segment: &Segment<P>) -> bool {
        let subflow = self.subflows.get(index).and_then(Option::as_ref);
        self.mode == Mode::Negotiating
            && subflow.is_some_and(|subflow| subflow.tcp.state() == State::SynReceived)
            && segment.dss.is_some()
            && segment.rare.as_deref().is_none_or(|rare| rare.mp_capable.is_none())
    }

    /// Keeps a segment that [lacks the keys](Self::lacks_keys), if its ACK shows that its sender got our SYN/ACK: nobody else can
    /// make us keep anything. What doesn't fit is as good as lost, and comes again.
    #[cold]
    pub(super) fn keep_early_data(&mut self, now: Nanos, index: usize, segment: &mut Segment<P>) {
        let Some((cx, subflow)) = self.split(now, index) else { return };
        if segment.payload.is_empty() || !subflow.tcp.may_complete_handshake(&cx, segment) {
            return;
        }
        let waiting = self.early_data.get_or_insert_default();
        let is_new = waiting.iter().all(|known| known.seq != segment.seq);
        if is_new && waiting.len() < MOST_WAITING {
            waiting.push(segment.clone());
        }
    }

    /// Once the keys are there: takes what waited for them, in the order of its arrival.
    #[cold]
    pub(super) fn take_early_data(&mut self, now: Nanos, index: usize) {
        let Some(waiting) = self.early_data.take() else { return };
        // In plain TCP a mapping contradicts the fallback, which the client hasn't heard of.
        if self.mode == Mode::Multipath {
            waiting.into_iter().for_each(|mut segment| self.on_segment(now, index, &mut segment));
        }
    }
}
