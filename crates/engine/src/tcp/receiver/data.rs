//! Data and FIN that arrive, and the round-trip time as a receiver of data measures it.

use ropewalk_wire::{Flags, Payload, Segment};

use super::Receiver;
use super::mapping::Mapping;
use super::reassembly::Placement;
use crate::Span;
use crate::tcp::common::Common;
use crate::tcp::context::{Context, Outcome, State};

impl<P: Payload> Receiver<P> {
    /// The round-trip time as a receiver of data sees it, queues in the data's direction included; 0 before
    /// such a sample, and without timestamps.
    pub fn rtt(&self) -> Span {
        self.rtt.rtt()
    }

    /// Measures the round-trip time from the ACK that a full-sized segment echoes, once per echo (Linux's
    /// `tcp_rcv_rtt_measure_ts`). A lower sample counts at once, as in Linux since 6.16
    /// (`tcp_rcv_rtt_update`): the buffer shouldn't grow because of a queue that the window itself built.
    #[inline(always)]
    pub fn measure_rtt(&mut self, common: &Common, cx: &Context<'_>, segment: &Segment<P>) {
        if let Some(stamp) = segment.timestamps
            && !self.rtt.has_seen(stamp.echo)
            && common.negotiated.timestamps
            && segment.payload.len() as u64 >= self.delayed_ack.mss()
        {
            self.rtt.sample(stamp.echo, cx.timestamp());
        }
    }

    /// Takes data and FIN of an acceptable segment; the mapping travels with the data. Data of a predicted
    /// segment stays there if it is all that is in order: the caller delivers it at once. Returns whether the
    /// peer's FIN is now in order.
    #[inline(always)]
    pub fn on_data<const PREDICTED: bool>(
        &mut self,
        common: &mut Common,
        cx: &Context<'_>,
        segment: &mut Segment<P>,
        position: u64,
        mapping: Mapping,
        outcome: &mut Outcome,
    ) -> bool {
        let len = segment.payload.len() as u64;
        if len > 0 {
            // Data after the peer's FIN is no part of its stream (RFC 9293 3.10.7.4).
            // The ACK says where that ended.
            if !PREDICTED && !common.may_receive() {
                self.ack_now = true;
                return false;
            }
            let unit = if segment.gso_size > 0 { u32::from(segment.gso_size) } else { len as u32 };
            self.delayed_ack.on_data(cx, unit, segment.flags.contains(Flags::PSH));
            let placement = if position == self.rcv_nxt && self.is_contiguous() {
                self.rcv_nxt += len;
                if !PREDICTED || !self.in_order.is_empty() {
                    self.in_order.push_back((position, std::mem::take(&mut segment.payload), mapping));
                }
                Placement::InOrder
            } else {
                let payload = std::mem::take(&mut segment.payload);
                let (next, queue) = (&mut self.rcv_nxt, self.reassembly.get_or_insert_default());
                queue.place(next, self.rcv_edge, position, payload, mapping, &mut self.in_order)
            };
            if placement == Placement::InOrder {
                outcome.data = true;
            } else {
                let stamp = segment.timestamps.map(|timestamps| timestamps.value);
                self.on_irregular_data(common, cx, placement, stamp, outcome);
            }
            if matches!(placement, Placement::InOrder | Placement::Overlapping) {
                self.schedule_ack(common, cx);
            }
        }
        if !PREDICTED
            && segment.flags.contains(Flags::FIN)
            && self.fin_at.is_none()
            && common.state != State::SynReceived
        {
            self.fin_at = Some(position + len);
        }
        if self.fin_at != Some(self.rcv_nxt) {
            return false;
        }
        self.rcv_nxt += 1;
        self.ack_now = true;
        outcome.fin = true;
        true
    }

    /// Data arrived that isn't simply the next, or data was waiting for it.
    #[inline(never)]
    fn on_irregular_data(
        &mut self,
        common: &mut Common,
        cx: &Context<'_>,
        placement: Placement,
        stamp: Option<u32>,
        outcome: &mut Outcome,
    ) {
        //= RFC 5681 3.2-a 3.2-b
        self.ack_now = true;
        match placement {
            Placement::Overlapping => {
                // The peer's timer beat our ACK, or the ACK was lost: for a while ACKs aren't delayed.
                common.counters.delayed_ack_lost += 1;
                self.enter_quick_ack(cx, cx.tcp.quick_acks);
            }
            //= RFC 9293 SHLD-31
            Placement::OutOfOrder => {
                common.counters.ofo_queue += 1;
                self.reassembly.get_or_insert_default().note_missing(cx.now, stamp);
            }
            Placement::Refused => common.counters.ofo_drop += 1,
            Placement::FillsGap => {
                let least = self.rtt.rtt() / 2;
                let queue = self.reassembly.as_mut();
                let again = queue.is_some_and(|queue| queue.was_sent_again(cx.now, stamp, least));
                common.counters.late_gaps_filled += u64::from(again);
            }
            Placement::InOrder | Placement::Duplicate => {}
        }
        outcome.data = matches!(placement, Placement::Overlapping | Placement::FillsGap);
    }

    /// Data of an unacceptable segment that was received before: the ACK for it was lost or late, or the
    /// sender took the data for lost (RFC 2883).
    #[cold]
    pub fn on_old_data(
        &mut self,
        common: &mut Common,
        cx: &Context<'_>,
        segment: &Segment<P>,
        position: u64,
    ) {
        let end = position.wrapping_add(segment.payload.len() as u64);
        // What lies beyond the window isn't a duplicate.
        if segment.payload.is_empty() || position >= self.rcv_nxt {
            return;
        }
        common.counters.delayed_ack_lost += 1;
        self.enter_quick_ack(cx, cx.tcp.quick_acks);
        self.reassembly.get_or_insert_default().note_duplicate(position, end.min(self.rcv_nxt));
    }
}
