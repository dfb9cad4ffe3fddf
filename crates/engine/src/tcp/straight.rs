//! The straight way through a subflow, for what nearly every segment is: data that is next in order, an ACK of data that was
//! sent once while nothing is missing, new data while nothing is lost, and an ACK that leaves alone.
//!
//! Each does what the long way does with such a segment ([`Subflow::on_segment`], [`Subflow::poll_transmit`]), in the same
//! order, and leaves out the steps that have nothing to do; the conditions at its beginning are why they haven't. A segment that doesn't meet them is
//! left as it is, for the long way. [`TcpConfig::shortcuts`] turns it off, so that a test can hold the two side by side.

use ropewalk_wire::{Flags, Payload, Segment, Seq, Timestamps};

use super::scoreboard::{APP_LIMITED, Entry};
use super::timer::Timer;
use super::{Context, State, Subflow, TcpConfig};
use crate::Nanos;
use crate::metrics::{CaState, SubflowMetrics};

impl<P: Payload> Subflow<P> {
    /// Whether a segment of an established subflow stands where nothing is missing before it, with a timestamp that is as
    /// new as any (PAWS, RFC 7323 5.3), so that with windows at connection level it is acceptable.
    #[inline]
    pub(super) fn is_in_place(&self, segment: &Segment<P>) -> bool {
        segment.seq == Seq(self.peer_isn.wrapping_add(self.rcv_nxt as u32)) && self.is_timely(segment)
    }

    /// Whether it is a segment of an established subflow with a timestamp that is as new as any.
    #[inline]
    pub(super) fn is_timely(&self, segment: &Segment<P>) -> bool {
        let newer = |value: u32| value.wrapping_sub(self.ts_recent) as i32 >= 0;
        self.state == State::Established
            && self.timestamps
            && segment.timestamps.is_some_and(|stamp| newer(stamp.value))
    }

    /// What every acceptable segment does, which stands at `position`.
    #[inline]
    pub(super) fn note_arrival(&mut self, now: Nanos, segment: &Segment<P>, position: u64) {
        self.counters.in_segs += 1;
        self.quiet = false;
        self.received_at = now;
        self.probes_out = 0;
        //= RFC 7323 4.3 only a segment that covers the last ACK sent updates TS.Recent
        if let Some(stamp) = segment.timestamps
            && position <= self.last_ack_sent
        {
            self.ts_recent = stamp.value;
            self.ts_recent_at = now;
        }
    }

    /// Takes the next data in order of a subflow that has sent nothing which isn't acknowledged; `None`: it isn't that. The
    /// caller has seen that there are no flags but ACK and PSH, no rare options, no SACK blocks and no congestion mark, and
    /// that windows are connection-level. Returns where the data stands; it is the caller's to deliver.
    #[inline]
    pub(crate) fn take_next(
        &mut self,
        now: Nanos,
        tcp: &TcpConfig,
        metrics: &SubflowMetrics,
        segment: &Segment<P>,
    ) -> Option<u64> {
        let usual = self.is_in_place(segment)
            // The acknowledgement says nothing new but perhaps a window.
            && segment.ack == self.seq(self.snd_una)
            && self.snd_una == self.snd_nxt
            // It is neither a gap's end nor before the peer's FIN.
            && self.reassembly.is_empty()
            && self.fin_at.is_none()
            && !self.delack.is_after_pause(now, tcp.delayed_ack, metrics.rto);
        if !usual {
            return None;
        }
        debug_assert!(self.rtx.is_empty() && self.in_order.is_empty());
        self.note_arrival(now, segment, self.rcv_nxt);
        let position = self.rcv_nxt;
        self.update_window(segment, position, self.snd_una);
        self.measure_receive_rtt(now, tcp, segment);
        let len = segment.payload.len();
        self.delack.measure(len as u32, segment.flags.contains(Flags::PSH));
        self.delack.follow(now, tcp.delayed_ack, metrics.rto);
        self.rcv_nxt += len as u64;
        self.schedule_ack(now, tcp, metrics);
        Some(position)
    }

    /// Sends the one piece that waits, of a segment's length at most, while the window has room and nothing is lost;
    /// `None`: it isn't that. What is written lacks MPTCP's options. Returns the connection-level offset of its first byte,
    /// and where that stands in the subflow.
    #[inline]
    pub(crate) fn send_next(&mut self, cx: &mut Context<'_>, out: &mut Segment<P>) -> Option<(u64, u64)> {
        let metrics = &cx.metrics[cx.index];
        let (tag, payload) = self.queue.only()?;
        let len = payload.len();
        let usual = self.state == State::Established
            // No retransmission comes before it, none of PRR's accounts is open, and no pause has ended.
            && matches!(metrics.ca_state, CaState::Open | CaState::Disorder)
            && metrics.lost_out == 0
            && metrics.packets_out > 0
            && metrics.in_flight() < metrics.cwnd
            && len <= metrics.mss as usize
            && !cx.tcp.nagle
            && !self.ecn
            && !self.fin_queued
            && self.timestamps
            && self.window_scaling
            // Nothing to report of what arrived.
            && self.reassembly.is_empty()
            && self.reassembly.dsack().is_none();
        if !usual {
            return None;
        }
        let (tag, payload, now) = (*tag, payload.clone(), cx.now);
        self.queue.drop_front();
        let metrics = &mut cx.metrics[cx.index];
        metrics.queued_bytes -= len as u64;
        metrics.packets_out += 1;
        let flags = if self.rate.is_app_limited() { APP_LIMITED } else { 0 };
        let rate = self.rate.on_sent(metrics, now, false);
        let position = self.snd_nxt;
        self.snd_nxt += len as u64;
        self.last_sent_at = now;
        let mapped = payload.clone();
        let (lead, segments) = (0, 1);
        self.rtx.push(Entry {
            position,
            tag,
            lead,
            mapped: 0,
            payload: mapped,
            flags,
            segments,
            sent_at: now,
            rate,
        });
        self.counters.data_segments += 1;
        self.delack.on_data_sent(now);
        self.validate_window(cx);
        if self.timers.get(Timer::Retransmit).is_none() {
            self.arm_retransmit(cx);
        }
        self.arm_probe(cx);
        //= RFC 9293 MUST-61 MUST-60 what the application wrote goes out without waiting for more
        let flags = if cx.shared.more { Flags::ACK } else { Flags::ACK.with(Flags::PSH) };
        let ack = Seq(self.peer_isn.wrapping_add(self.rcv_nxt as u32));
        out.renew(&self.tuple, self.seq(position), ack, flags);
        (out.hop_limit, out.dscp) = (cx.tcp.hop_limit, cx.tcp.dscp & 0x3f);
        out.window = self.advertise(cx, self.own_shift) as u16;
        out.timestamps = Some(Timestamps { value: self.timestamp(cx), echo: self.ts_recent });
        out.payload = payload;
        self.counters.out_segs += 1;
        self.counters.bytes_sent += len as u64;
        self.note_acknowledged(cx.tcp);
        self.quiet = !(self.probe_pending || self.persist_pending);
        Some((tag, position))
    }

    /// Sends the ACK that is due while nothing else is, with `room` for SACK blocks and timestamps; false: it isn't that. What is
    /// written lacks MPTCP's options. The caller has seen that windows are connection-level.
    #[inline]
    pub(crate) fn send_ack(&mut self, cx: &mut Context<'_>, room: usize, out: &mut Segment<P>) -> bool {
        let usual = self.ack_now
            && self.state == State::Established
            && self.queue.is_empty()
            && cx.metrics[cx.index].lost_out == 0
            && !self.fin_queued
            && !self.probe_pending
            && !self.persist_pending
            && !self.ece_pending
            && self.timestamps
            && self.window_scaling;
        if !usual {
            return false;
        }
        let ack = Seq(self.peer_isn.wrapping_add(self.rcv_nxt as u32));
        out.renew(&self.tuple, self.seq(self.snd_nxt), ack, Flags::ACK);
        (out.hop_limit, out.dscp) = (cx.tcp.hop_limit, cx.tcp.dscp & 0x3f);
        out.window = self.advertise(cx, self.own_shift) as u16;
        out.timestamps = Some(Timestamps { value: self.timestamp(cx), echo: self.ts_recent });
        self.counters.out_segs += 1;
        self.note_acknowledged(cx.tcp);
        self.add_sack(out, room);
        self.quiet = true;
        true
    }
}
