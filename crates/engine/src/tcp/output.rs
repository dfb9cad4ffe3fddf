//! What is sent, and in which order: SYN, RST, retransmissions, new data, FIN, probes, ACKs (RFC 9293 3.8).

use ropewalk_wire::{Ecn, Flags, Payload, Segment, Seq, Timestamps};

use super::sender::entry::{APP_LIMITED, EVER_RETRANS, Entry, FIN, LOST, RETRANS};
use super::timer::Timer;
use super::{Context, Kind, State, Subflow, TcpConfig, Transmit};
use crate::metrics::{CaState, SubflowMetrics};

/// What a segment carries: where it stands, in the subflow and in the stream.
#[derive(Clone, Copy)]
struct Sending {
    position: u64,
    tag: u64,
    fin: bool,
    retransmission: bool,
    /// Bytes of payload per packet.
    mss: usize,
}

impl<P: Payload> Subflow<P> {
    /// Whether it is known that there is nothing to be sent, whatever the windows allow, until something happens.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Whether `poll_transmit` could return a segment: cheap, and never false when it would.
    #[inline]
    pub(crate) fn has_output(&mut self, metrics: &SubflowMetrics) -> bool {
        if self.quiet {
            return false;
        }
        match self.state {
            State::SynSent | State::SynReceived => self.syn_pending || self.refusal.is_some(),
            State::Closed => self.reset_pending,
            _ => {
                self.update_quiet(metrics);
                let control = self.ack_now || self.probe_pending || self.persist_pending;
                let fin = self.queue.is_empty() && self.fin_queued && !self.fin_sent;
                control || fin || (!self.quiet && metrics.in_flight() < metrics.cwnd)
            }
        }
    }

    /// Whether the next segment may be one without data.
    #[inline]
    pub(crate) fn may_send_without_data(&self) -> bool {
        let flags = self.ack_now | self.probe_pending | self.persist_pending | self.fin_queued;
        flags || !matches!(self.state, State::Established | State::CloseWait)
    }

    /// Finds out whether there is nothing to be sent, whatever the windows allow, until something happens.
    #[inline]
    pub(crate) fn find_quiet(&mut self, metrics: &SubflowMetrics) -> bool {
        if !self.quiet && !matches!(self.state, State::SynSent | State::SynReceived | State::Closed) {
            self.update_quiet(metrics);
        }
        self.quiet
    }

    /// Notes whether nothing is left to send, whatever the windows allow.
    #[inline]
    fn update_quiet(&mut self, metrics: &SubflowMetrics) {
        self.quiet = self.queue.is_empty()
            && metrics.lost_out == 0
            && !(self.ack_now || self.probe_pending || self.persist_pending)
            && (!self.fin_queued || self.fin_sent);
    }

    /// Writes the next segment to send into `out`, until `None`; with `max_segments` > 1 data may come as a super-segment. Changes
    /// with every segment received, timeout, `push`, `close` and `request_ack`.
    #[inline]
    pub fn poll_transmit(
        &mut self,
        cx: &mut Context<'_>,
        max_segments: u32,
        out: &mut Segment<P>,
    ) -> Option<Transmit> {
        match self.state {
            State::SynSent | State::SynReceived => {
                return self.transmit_refusal(cx, out).or_else(|| self.transmit_syn(cx, out));
            }
            State::Closed => return self.transmit_reset(cx, out),
            _ => {}
        }
        let transmit = self.transmit_established(cx, max_segments, out);
        self.update_quiet(&cx.metrics[cx.index]);
        transmit
    }

    /// The order of what leaves: retransmissions, new data, FIN, probes, ACK.
    #[inline]
    fn transmit_established(
        &mut self,
        cx: &mut Context<'_>,
        max_segments: u32,
        out: &mut Segment<P>,
    ) -> Option<Transmit> {
        if cx.metrics[cx.index].lost_out > 0
            && !self.recovery.new_data_first
            && let Some(transmit) = self.transmit_lost(cx, max_segments, out)
        {
            return Some(transmit);
        }
        if !self.queue.is_empty()
            && !self.probe_pending
            && let Some(transmit) = self.transmit_new(cx, max_segments, false, out)
        {
            return Some(transmit);
        }
        if self.fin_queued && !self.fin_sent && self.queue.is_empty() {
            return Some(self.transmit_fin(cx, out));
        }
        if self.probe_pending {
            self.probe_pending = false;
            if let Some(transmit) = self.transmit_probe(cx, out) {
                return Some(transmit);
            }
        }
        if self.persist_pending {
            self.persist_pending = false;
            // A probe is unacceptable by design, and its options go unread: an ACK that was wanted still follows.
            let wanted = self.ack_now;
            let probe = self.transmit_window_probe(cx, out);
            self.ack_now = wanted;
            return Some(probe);
        }
        if self.ack_now { Some(self.transmit_ack(cx, out)) } else { None }
    }

    /// A segment with the fields and options that all share.
    #[inline(always)]
    pub(super) fn segment(
        &mut self,
        cx: &mut Context<'_>,
        position: u64,
        flags: Flags,
        segment: &mut Segment<P>,
    ) {
        let ack = Seq(self.peer_isn.wrapping_add(self.rcv_nxt as u32));
        //= RFC 8684 3.3.1-5 nothing ever sets URG
        segment.renew(&self.tuple, self.seq(position), ack, flags.with(Flags::ACK));
        (segment.hop_limit, segment.dscp) = (cx.tcp.hop_limit, cx.tcp.dscp & 0x3f);
        let shift = if self.window_scaling { self.own_shift } else { 0 };
        let window = self.advertise(cx, shift);
        segment.window = window as u16;
        if self.timestamps {
            segment.timestamps = Some(Timestamps { value: self.timestamp(cx), echo: self.ts_recent });
        }
        if self.ece_pending {
            segment.flags = segment.flags.with(Flags::ECE);
        }
        self.counters.out_segs += 1;
        //= RFC 9293 MUST-58 MUST-59 one ACK, when all that arrived has been processed
        self.note_acknowledged(cx.tcp);
    }

    /// Whatever goes out acknowledges.
    #[inline]
    pub(super) fn note_acknowledged(&mut self, tcp: &TcpConfig) {
        self.ack_now = false;
        self.last_ack_sent = self.rcv_nxt;
        self.delack.on_sent(tcp.delayed_ack);
        self.timers.stop(Timer::DelayedAck);
    }

    fn transmit_ack(&mut self, cx: &mut Context<'_>, segment: &mut Segment<P>) -> Transmit {
        self.segment(cx, self.snd_nxt, Flags::default(), segment);
        let room = 40usize.saturating_sub(usize::from(cx.shared.outgoing.ack_option_len));
        if room < 12 {
            // ADD_ADDR with its HMAC may not fit beside timestamps: they go, as in Linux.
            segment.timestamps = None;
        }
        self.add_sack(segment, room);
        Transmit { kind: Kind::Ack, tag: 0, ssn: self.snd_nxt as u32, retransmission: false, part: None }
    }

    #[inline]
    fn has_report(&self) -> bool {
        self.sack && !(self.reassembly.is_empty() && self.reassembly.dsack().is_none())
    }

    /// Bytes of payload that new data does without, so that a SACK block fits beside it within the path's MTU. A mapping and
    /// timestamps leave no room among the options: then none.
    #[inline]
    fn sack_reserve(&self, cx: &Context<'_>) -> usize {
        let used = usize::from(cx.shared.data_option_len) + if self.timestamps { 12 } else { 0 };
        if self.has_report() && used + 12 <= 40 { 12 } else { 0 }
    }

    #[inline]
    pub(super) fn add_sack(&mut self, segment: &mut Segment<P>, room: usize) {
        if self.has_report() {
            self.report(segment, room);
        }
    }

    /// What has arrived beyond what is in order.
    #[inline(never)]
    fn report(&mut self, segment: &mut Segment<P>, room: usize) {
        let dsack = self.reassembly.dsack();
        if let Some((left, _)) = dsack {
            let old = left < self.rcv_nxt;
            self.counters.dsack_old_sent += u64::from(old);
            self.counters.dsack_ofo_sent += u64::from(!old);
        }
        let room = room.saturating_sub(if segment.timestamps.is_some() { 12 } else { 0 });
        let blocks = room.saturating_sub(4) / 8;
        self.reassembly.sack_blocks(self.peer_isn, blocks, &mut segment.sack);
    }

    #[cold]
    fn transmit_reset(&mut self, cx: &mut Context<'_>, segment: &mut Segment<P>) -> Option<Transmit> {
        if !self.reset_pending {
            return None;
        }
        self.reset_pending = false;
        self.counters.out_rsts += 1;
        self.segment(cx, self.snd_nxt, Flags::RST, segment);
        segment.window = 0;
        Some(Transmit {
            kind: Kind::Rst,
            tag: 0,
            ssn: self.snd_nxt as u32,
            retransmission: false,
            part: None,
        })
    }

    /// RST for an ACK of what was never sent, during the handshake (RFC 9293 3.10.7.3, 3.10.7.4).
    #[cold]
    fn transmit_refusal(&mut self, cx: &Context<'_>, segment: &mut Segment<P>) -> Option<Transmit> {
        let seq = self.refusal.take()?;
        self.counters.out_rsts += 1;
        segment.renew(&self.tuple, seq, Seq(0), Flags::RST);
        (segment.hop_limit, segment.dscp) = (cx.tcp.hop_limit, cx.tcp.dscp & 0x3f);
        Some(Transmit { kind: Kind::Rst, tag: 0, ssn: 0, retransmission: false, part: None })
    }

    /// The first lost entry, if the windows admit it.
    #[inline(never)]
    fn transmit_lost(
        &mut self,
        cx: &mut Context<'_>,
        max_segments: u32,
        out: &mut Segment<P>,
    ) -> Option<Transmit> {
        let metrics = &cx.metrics[cx.index];
        if metrics.in_flight() >= metrics.cwnd {
            return None;
        }
        let index = self.rtx.next_lost()?;
        let mss = metrics.mss;
        let edge = self.window_edge(cx);
        let entry = self.rtx.get(index)?;
        // The peer took its window back: only the first segment may still go, as a probe (RFC 9293 3.8.6).
        //= RFC 9293 SHLD-16
        if entry.position >= edge && entry.position != self.snd_una {
            return None;
        }
        // A super-segment is cut to what may be sent, and to the MSS in force now.
        let most = (max_segments.min(metrics.cwnd - metrics.in_flight()).max(1) * mss) as usize;
        if entry.payload.len() > most {
            let at = entry.position + most as u64;
            self.rtx.split(index, at, cx.metrics());
        }
        Some(self.retransmit(cx, index, out))
    }

    /// What is lost, again.
    #[inline(never)]
    fn retransmit(&mut self, cx: &mut Context<'_>, index: usize, out: &mut Segment<P>) -> Transmit {
        let entry = self.rtx.get_mut(index);
        let segments = entry.segments;
        if !entry.is(RETRANS) && entry.is(LOST) {
            cx.metrics[cx.index].retrans_out += segments;
            entry.flags |= RETRANS;
        }
        let clock = self.timestamp(cx);
        self.undo.on_retransmission(segments, clock);
        self.prr.on_sent(segments);
        if cx.metrics[cx.index].ca_state == CaState::Loss {
            self.counters.slow_start_retrans += u64::from(segments);
        } else {
            self.counters.fast_retrans += u64::from(segments);
        }
        if index == 0 {
            // The head is given a whole timeout of its own.
            self.arm_retransmit(cx);
        }
        self.send_again(cx, index, out)
    }

    /// An entry, again.
    #[inline(never)]
    pub(super) fn send_again(
        &mut self,
        cx: &mut Context<'_>,
        index: usize,
        out: &mut Segment<P>,
    ) -> Transmit {
        let now = cx.now;
        let limited = if self.rate.is_app_limited() { APP_LIMITED } else { 0 };
        let stamp = self.rate.on_sent(&cx.metrics[cx.index], now, false);
        let entry = self.rtx.get_mut(index);
        entry.sent_at = now;
        entry.rate = stamp;
        entry.flags = (entry.flags & !APP_LIMITED) | EVER_RETRANS | limited;
        let (position, tag, segments) = (entry.position, entry.tag, entry.segments);
        let (payload, fin) = (entry.payload.clone(), entry.is(FIN));
        let part = (entry.mapped > 0).then_some((entry.lead, entry.mapped));
        self.rtx.log_again(index);
        let metrics = cx.metrics();
        metrics.retrans_total += u64::from(segments);
        self.counters.retrans_segs += u64::from(segments);
        self.counters.retrans_bytes += payload.len() as u64;
        self.last_sent_at = now;
        if self.timers.get(Timer::Retransmit).is_none() {
            self.arm_retransmit(cx);
        }
        // What comes again has the length that it had: a SACK block reserves nothing.
        let mss = cx.metrics[cx.index].mss as usize;
        let what = Sending { position, tag, fin, retransmission: true, mss };
        Transmit { part, ..self.data_segment(cx, what, payload, out) }
    }

    #[inline(always)]
    fn data_segment(
        &mut self,
        cx: &mut Context<'_>,
        what: Sending,
        payload: P,
        segment: &mut Segment<P>,
    ) -> Transmit {
        let Sending { position, tag, fin, retransmission, mss } = what;
        let len = payload.len();
        let mut flags = Flags::default();
        //= RFC 9293 MUST-61 MUST-60 what the application wrote goes out without waiting for more
        // As in Linux a window that is full is no end: there, what waits for it lies in the subflow's queue.
        let end = tag + len as u64;
        let goes_on = match self.queue.front() {
            None => cx.shared.outgoing.more,
            Some((next, _)) => *next == end || retransmission,
        };
        if !goes_on && len > 0 {
            flags = flags.with(Flags::PSH);
        }
        if fin {
            flags = flags.with(Flags::FIN);
        }
        self.segment(cx, position, flags, segment);
        if self.ecn && !retransmission && len > 0 {
            segment.ecn = Ecn::Ect0;
            if self.cwr_pending {
                self.cwr_pending = false;
                segment.flags = segment.flags.with(Flags::CWR);
            }
        }
        if len > mss {
            segment.gso_size = mss as u16;
        }
        if self.has_report() {
            let space = cx.metrics[cx.index].mss as usize;
            let used = if len > 0 { cx.shared.data_option_len } else { cx.shared.outgoing.ack_option_len };
            let spare = space.saturating_sub(len.min(mss)) + if self.timestamps { 12 } else { 0 };
            self.report(segment, 40usize.saturating_sub(usize::from(used)).min(spare));
        }
        segment.payload = payload;
        self.counters.bytes_sent += len as u64;
        let kind = if len > 0 { Kind::Data } else { Kind::Ack };
        Transmit { kind, tag, ssn: position as u32, retransmission, part: None }
    }

    /// New data from the own queue, as far as windows admit. A probe may exceed the congestion window by one.
    #[inline(always)]
    pub(super) fn transmit_new(
        &mut self,
        cx: &mut Context<'_>,
        max_segments: u32,
        probe: bool,
        out: &mut Segment<P>,
    ) -> Option<Transmit> {
        if !matches!(self.state, State::Established | State::CloseWait) {
            return None;
        }
        self.restart_after_idle(cx);
        let reserve = self.sack_reserve(cx);
        let metrics = &cx.metrics[cx.index];
        let mss = metrics.mss as usize - reserve;
        let in_flight = metrics.in_flight();
        let room = if probe { 1 } else { metrics.cwnd.saturating_sub(in_flight) };
        if room == 0 {
            return None;
        }
        let (tag, front) = self.queue.front()?;
        let (tag, front_len) = (*tag, front.len());
        let mut most = mss * max_segments.min(room).max(1) as usize;
        if !cx.shared.multipath {
            //= RFC 9293 SHLD-15
            let left = self.window_left() as usize;
            if left < mss.min(front_len) && !self.may_send_partial(left) {
                self.await_window(cx);
                return None;
            }
            // Whole segments: what is left of the window after them is no reason to send less than one.
            most = most.min(if left > mss && left < front_len { left - left % mss } else { left });
            self.timers.stop(Timer::Persist);
        }
        let front = &self.queue.front()?.1;
        let mut payload = if front.len() > most { front.slice(0, most) } else { front.clone() };
        let mut taken = payload.len();
        if taken == front.len() {
            self.queue.pop_front();
            //= RFC 9293 SHLD-28
            // Contiguous pieces share a segment.
            while taken < mss.min(most) {
                match self.queue.front_mut() {
                    Some((next_tag, next)) if *next_tag == tag + taken as u64 => {
                        let want = (mss.min(most) - taken).min(next.len());
                        let part = next.slice(0, want);
                        payload = P::join(&[payload, part]);
                        taken += want;
                        if want == next.len() {
                            self.queue.pop_front();
                        } else {
                            let rest = next.slice(want, next.len());
                            *next = rest;
                            *next_tag += want as u64;
                        }
                    }
                    _ => break,
                }
            }
        } else if let Some((front_tag, front)) = self.queue.front_mut() {
            let rest = front.slice(taken, front.len());
            *front = rest;
            *front_tag += taken as u64;
        }
        //= RFC 9293 SHLD-7 Nagle: a short segment waits while data is in flight
        if cx.tcp.nagle && taken < mss && in_flight > 0 && self.queue.is_empty() && !self.fin_queued && !probe
        {
            self.queue.push_front((tag, payload));
            return None;
        }
        let segments = if taken <= mss { 1 } else { taken.div_ceil(mss) as u32 };
        let metrics = &mut cx.metrics[cx.index];
        metrics.queued_bytes -= taken as u64;
        metrics.packets_out += segments;
        let limited = if self.rate.is_app_limited() { APP_LIMITED } else { 0 };
        let rate = self.rate.on_sent(metrics, cx.now, metrics.packets_out == segments);
        if matches!(metrics.ca_state, CaState::Recovery | CaState::Cwr) {
            self.prr.on_sent(segments);
        }
        let position = self.snd_nxt;
        self.snd_nxt += taken as u64;
        self.last_sent_at = cx.now;
        self.rtx.push(Entry {
            position,
            tag,
            lead: 0,
            mapped: 0,
            payload: payload.clone(),
            flags: limited,
            segments,
            sent_at: cx.now,
            rate,
        });
        self.counters.data_segments += u64::from(segments);
        self.delack.on_data_sent(cx.now);
        self.validate_window(cx);
        if self.timers.get(Timer::Retransmit).is_none() {
            self.arm_retransmit(cx);
        }
        self.arm_probe(cx);
        let what = Sending { position, tag, fin: false, retransmission: false, mss };
        Some(self.data_segment(cx, what, payload, out))
    }

    #[cold]
    fn transmit_fin(&mut self, cx: &mut Context<'_>, out: &mut Segment<P>) -> Transmit {
        self.fin_sent = true;
        self.state = if self.state == State::CloseWait { State::LastAck } else { State::FinWait1 };
        let position = self.snd_nxt;
        self.snd_nxt += 1;
        let now = cx.now;
        let metrics = cx.metrics();
        metrics.packets_out += 1;
        let rate = self.rate.on_sent(metrics, now, metrics.packets_out == 1);
        self.rtx.push(Entry {
            position,
            tag: 0,
            lead: 0,
            mapped: 0,
            payload: P::default(),
            flags: FIN | APP_LIMITED,
            segments: 1,
            sent_at: cx.now,
            rate,
        });
        self.last_sent_at = cx.now;
        if self.timers.get(Timer::Retransmit).is_none() {
            self.arm_retransmit(cx);
        }
        self.arm_probe(cx);
        let mss = cx.metrics[cx.index].mss as usize;
        let what = Sending { position, tag: 0, fin: true, retransmission: false, mss };
        self.data_segment(cx, what, P::default(), out)
    }
}
