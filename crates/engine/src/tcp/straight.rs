//! Fast path for segments out: new data while nothing is lost, and an ACK alone.
//!
//! Each does what [`Subflow::poll_transmit`] does with such a segment, without the questions whose answer is known.
//! `TcpConfig::shortcuts` turns it off, so that a test can compare the two.

use ropewalk_wire::{Flags, Payload, Segment, Seq, Timestamps};

use super::scoreboard::{APP_LIMITED, Entry};
use super::timer::Timer;
use super::{Context, State, Subflow};
use crate::metrics::CaState;

impl<P: Payload> Subflow<P> {
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
        let flags = if cx.shared.outgoing.more { Flags::ACK } else { Flags::ACK.with(Flags::PSH) };
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
