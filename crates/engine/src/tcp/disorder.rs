//! The straight way through a subflow while packets overtake each other: data beyond what is in order, or that fills a
//! gap, and an ACK that is no plain progress. What is done with them is the long way's; that nothing else is to be
//! done is asked once, as in `straight`.

use ropewalk_wire::{Flags, Payload, Segment};

use super::{Context, Outcome, Subflow, TcpConfig};
use crate::Nanos;
use crate::flow::Flow;

impl<P: Payload> Subflow<P> {
    /// Takes data that isn't all that was missing, of a subflow that has sent nothing which isn't acknowledged; false: it
    /// isn't that. The caller has seen what [`take_next`](Self::take_next) wants to be seen. What came of it is put into `outcome`.
    #[inline]
    pub(crate) fn take_beyond(
        &mut self,
        now: Nanos,
        tcp: &TcpConfig,
        flow: &Flow,
        segment: &mut Segment<P>,
        outcome: &mut Outcome,
    ) -> bool {
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
            && !self.delack.is_after_pause(now, tcp.delayed_ack, flow.rto);
        if !usual {
            return false;
        }
        debug_assert!(self.rtx.is_empty());
        self.note_arrival(now, segment, position);
        self.update_window(segment, position, self.snd_una);
        self.measure_receive_rtt(now, tcp, segment);
        let len = segment.payload.len();
        self.delack.measure(len as u32, segment.flags.contains(Flags::PSH));
        self.delack.follow(now, tcp.delayed_ack, flow.rto);
        let payload = std::mem::take(&mut segment.payload);
        self.on_disorder(position, position + len as u64, payload, outcome);
        true
    }

    /// Takes an ACK of whatever was sent, with SACK blocks or without, while something is under way; false: it isn't that. The
    /// caller has seen that there are no payload, no flags but ACK, no rare options and no congestion mark.
    #[inline]
    pub(crate) fn take_report(
        &mut self,
        cx: &mut Context<'_>,
        segment: &Segment<P>,
        outcome: &mut Outcome,
    ) -> bool {
        let ack = self.ack_position(segment.ack);
        let usual = self.is_in_place(segment)
            && !self.fin_sent
            && !self.rtx.is_empty()
            && ack >= self.snd_una
            && ack <= self.snd_nxt;
        if usual {
            self.note_arrival(cx.now, segment, self.rcv_nxt);
            self.take_ack(cx, segment, self.rcv_nxt, ack, outcome);
        }
        usual
    }
}
