//! A client's data that overtakes the segment with its key. The key comes with the third ACK and with the first data (RFC 8684 3.1);
//! without it the data sequence number of a DSS can't be related to the stream, whose first number is made of the key. Segments that
//! arrive before the key are kept until it is there, so that the client needn't retransmit them.

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

    /// Keeps a segment that [lacks the keys](Self::lacks_keys) if its ACK shows that its sender got our SYN/ACK, so that an attacker
    /// who guesses can't use up memory. A segment that isn't kept is retransmitted by the client, as if it had been lost.
    #[cold]
    pub(super) fn keep_early_data(&mut self, now: Nanos, index: usize, segment: &Segment<P>) {
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

    /// The keys are there: processes the segments that waited for them, in the order in which they arrived.
    #[cold]
    pub(super) fn take_early_data(&mut self, now: Nanos, index: usize) {
        let Some(waiting) = self.early_data.take() else { return };
        // After a fallback to plain TCP a DSS with a mapping would reset the connection.
        if self.mode == Mode::Multipath {
            waiting.into_iter().for_each(|mut segment| self.on_segment(now, index, &mut segment));
        }
    }
}
