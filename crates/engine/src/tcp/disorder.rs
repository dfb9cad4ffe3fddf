//! The straight way through a subflow while packets overtake each other: data beyond what is in order, or that fills a
//! gap, and an ACK that is no plain progress. What is done with them is the long way's; that nothing else is to be
//! done is asked once, as in `straight`.

use ropewalk_wire::{Flags, Payload, Segment};

use super::reassembly::Gap;
use super::{Context, Outcome, Spot, Subflow, TcpConfig};
use crate::Nanos;
use crate::metrics::SubflowMetrics;

impl<P: Payload> Subflow<P> {
    /// Where data stands that isn't all that was missing, of a subflow that has sent nothing which isn't acknowledged; `None`: it
    /// isn't that. The caller has seen what [`take_next`](Self::take_next) wants to be seen.
    #[inline]
    pub(crate) fn beyond(
        &self,
        now: Nanos,
        tcp: &TcpConfig,
        metrics: &SubflowMetrics,
        segment: &Segment<P>,
    ) -> Option<u64> {
        let position = self.peer_position(segment.seq);
        let usual = self.is_timely(segment)
            // Within the window that was last advertised, which the current one doesn't fall short of.
            && position >= self.rcv_nxt
            && position < self.rcv_edge
            // It comes after a gap, or before what came after one.
            && (position > self.rcv_nxt || !self.reassembly.is_empty())
            && self.fin_at.is_none()
            // The acknowledgement says nothing new but perhaps a window.
            && segment.ack == self.seq(self.snd_una)
            && self.snd_una == self.snd_nxt
            && !self.delack.is_after_pause(now, tcp.delayed_ack, metrics.rto);
        usual.then_some(position)
    }

    /// Where such data belongs among what waits, if nothing of it is there yet and no more than `most` pieces are.
    #[inline]
    pub(crate) fn gap(&self, position: u64, segment: &Segment<P>, most: usize) -> Option<Gap> {
        let end = position + segment.payload.len() as u64;
        self.reassembly.gap(position, end).filter(|_| self.reassembly.queued() < most)
    }

    /// Takes such data. Where it belongs among what waits and in the stream is said or not. What came of it is put into
    /// `outcome`.
    #[inline]
    pub(crate) fn take_beyond(
        &mut self,
        now: Nanos,
        tcp: &TcpConfig,
        metrics: &SubflowMetrics,
        segment: &mut Segment<P>,
        position: u64,
        place: Option<(Gap, Spot)>,
        outcome: &mut Outcome,
    ) {
        debug_assert!(self.rtx.is_empty());
        self.note_arrival(now, segment, position);
        self.update_window(segment, position, self.snd_una);
        self.measure_receive_rtt(now, tcp, segment);
        let len = segment.payload.len();
        self.delack.measure(len as u32, segment.flags.contains(Flags::PSH));
        self.delack.follow(now, tcp.delayed_ack, metrics.rto);
        let payload = std::mem::take(&mut segment.payload);
        let end = position + len as u64;
        let Some((gap, spot)) = place else { return self.on_disorder(position, end, payload, outcome) };
        //= RFC 5681 4.2 out of order, or it fills a gap: acknowledge at once
        self.ack_now = true;
        if position > self.rcv_nxt {
            //= RFC 9293 SHLD-31
            self.counters.ofo_queue += 1;
            self.reassembly.insert_at(gap, position, payload, spot);
        } else {
            self.reassembly.pass(gap, position, end);
            self.in_order.push_back((position, payload, spot));
            self.rcv_nxt = end;
            outcome.data = true;
            self.release(outcome);
        }
    }

    /// Whether some of what waits may have a spot in the stream.
    #[inline]
    pub(crate) fn has_spots(&self) -> bool {
        self.reassembly.has_spots()
    }

    /// Takes the spots of what waits: position, length, and offset in the stream.
    pub(crate) fn take_spots(&mut self) -> impl Iterator<Item = (u64, u32, u64)> {
        self.reassembly.take_spots()
    }

    /// Header prediction for an ACK without data, while something is in flight. Returns false if it needs all checks. The
    /// caller has seen that there are no payload, no flags but ACK, no rare options and no congestion mark.
    #[inline]
    pub(crate) fn on_pure_ack(
        &mut self,
        cx: &mut Context<'_>,
        segment: &Segment<P>,
        outcome: &mut Outcome,
    ) -> bool {
        let ack = self.ack_position(segment.ack);
        let predicted = self.is_in_place(segment)
            && !self.fin_sent
            && !self.rtx.is_empty()
            && ack >= self.snd_una
            && ack <= self.snd_nxt;
        if predicted {
            self.note_arrival(cx.now, segment, self.rcv_nxt);
            self.process_report(cx, segment, self.rcv_nxt, ack, outcome);
        }
        predicted
    }
}
