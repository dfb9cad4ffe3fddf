//! Segment arrival in the synchronised states (RFC 9293 3.10.7.4), PAWS (RFC 7323 5) and RFC 5961's checks.

//= RFC 9293 SHLD-31
//= RFC 9293 SHLD-18 SHLD-19
//= RFC 9293 SHLD-8

use ropewalk_wire::{Ecn, Flags, Payload, Segment};

use super::timer::Timer;
use super::{Context, Outcome, State, Subflow};
use crate::{MILLISECOND, SECOND};

/// After this long the peer's clock may have wrapped: PAWS doesn't count (RFC 7323 5.5).
const PAWS_IDLE: u64 = 24 * 24 * 3600 * SECOND;

/// Challenge ACKs per second (RFC 5961 7; Linux's limit is per host, ours per connection).
const CHALLENGE_LIMIT: u32 = 10;

impl<P: Payload> Subflow<P> {
    /// A segment for this four-tuple arrived. Its payload is taken out if it is accepted.
    pub fn on_segment(&mut self, cx: &mut Context<'_>, segment: &mut Segment<P>) -> Outcome {
        self.counters.in_segs += 1;
        match self.state {
            State::Closed => Outcome::default(),
            State::SynSent => self.on_segment_syn_sent(cx, segment),
            _ => self.on_segment_synchronised(cx, segment),
        }
    }

    fn on_segment_synchronised(&mut self, cx: &mut Context<'_>, segment: &mut Segment<P>) -> Outcome {
        let mut outcome = Outcome::default();
        let position = self.peer_position(segment.seq);
        let flags = segment.flags;

        // PAWS first (RFC 7323 5.3 R1), but not for RST.
        if self.timestamps
            && let Some(stamp) = segment.timestamps
        {
            let age = stamp.value.wrapping_sub(self.ts_recent) as i32;
            if age < 0 && !flags.contains(Flags::RST) && cx.now < self.ts_recent_at + PAWS_IDLE {
                self.counters.paws_drops += 1;
                self.ack_now = true;
                return outcome;
            }
        }
        if !self.in_window(cx, position, segment.sequence_len()) {
            //= RFC 9293 3.10.7.4 an unacceptable segment is answered with an ACK, a RST is not
            if !flags.contains(Flags::RST) {
                // A retransmitted SYN of the handshake: the SYN/ACK or our ACK was lost.
                if flags.contains(Flags::SYN) && self.state == State::SynReceived && position == 0 {
                    self.syn_pending = true;
                    return outcome;
                }
                if segment.payload.len() > 0 && position < self.rcv_nxt {
                    let end = position + segment.payload.len() as u64;
                    self.reassembly.note_duplicate(position, end.min(self.rcv_nxt));
                }
                self.ack_now = true;
                // A window update or an ACK may still stand on a duplicate (a zero-window probe's answer).
                if flags.contains(Flags::ACK)
                    && position.wrapping_add(u64::from(segment.sequence_len())) == self.rcv_nxt
                {
                    self.on_ack(cx, segment, position, &mut outcome);
                }
                if flags.contains(Flags::FIN) && self.state == State::TimeWait {
                    self.timers.set(Timer::Idle, cx.now + cx.tcp.time_wait);
                }
            }
            return outcome;
        }
        if flags.contains(Flags::RST) {
            //= RFC 5961 3.2 only the exact next number resets; any other in the window is challenged
            //= RFC 9293 SHLD-2 MUST-66
            if position == self.rcv_nxt {
                self.become_closed();
                outcome.reset = true;
                outcome.acceptable = true;
            } else {
                self.challenge(cx);
            }
            return outcome;
        }
        if flags.contains(Flags::SYN) {
            if self.state == State::SynReceived && position == 0 && flags.contains(Flags::ACK) {
                // Simultaneous open: the peer's SYN/ACK.
                if self.on_handshake_ack(cx, segment, &mut outcome) {
                    outcome.acceptable = true;
                    self.ack_now = true;
                }
                return outcome;
            }
            //= RFC 5961 4.2 a SYN in a synchronised state is challenged
            self.challenge(cx);
            return outcome;
        }
        if !flags.contains(Flags::ACK) {
            return outcome;
        }
        if self.state == State::SynReceived && !self.on_handshake_ack(cx, segment, &mut outcome) {
            return outcome;
        }
        outcome.acceptable = true;
        // RFC 7323 4.3: only a segment that covers the last ACK sent updates TS.Recent.
        if let Some(stamp) = segment.timestamps
            && self.timestamps
            && position <= self.rcv_nxt
        {
            self.ts_recent = stamp.value;
            self.ts_recent_at = cx.now;
        }
        if self.ecn {
            if segment.ecn == Ecn::Ce {
                self.ece_pending = true;
                self.ack_now = true;
            }
            if flags.contains(Flags::CWR) {
                self.ece_pending = segment.ecn == Ecn::Ce;
            }
        }
        if !self.on_ack(cx, segment, position, &mut outcome) {
            outcome.acceptable = false;
            return outcome;
        }
        if self.state == State::Closed {
            return outcome;
        }
        self.measure_receive_rtt(cx, segment);
        self.on_data(cx, segment, position, &mut outcome);
        outcome
    }

    /// RFC 9293 3.4: whether a segment touches the receive window.
    #[inline]
    fn in_window(&self, cx: &Context<'_>, position: u64, len: u32) -> bool {
        let window = cx.shared.receive_window.max(self.rcv_edge.saturating_sub(self.rcv_nxt));
        let end = self.rcv_nxt + window;
        // Position and next are both before the SYN's wrap: `unfold` may go below zero for a stray segment.
        if position > (1 << 63) {
            return false;
        }
        if len == 0 {
            position >= self.rcv_nxt && (position < end || position == self.rcv_nxt)
        } else {
            position < end.max(self.rcv_nxt + 1) && position + u64::from(len) > self.rcv_nxt
        }
    }

    pub(super) fn challenge(&mut self, cx: &Context<'_>) {
        if cx.now >= self.challenge_at + SECOND {
            self.challenge_at = cx.now;
            self.challenges = 0;
        }
        if self.challenges < CHALLENGE_LIMIT {
            self.challenges += 1;
            self.counters.challenge_acks += 1;
            self.ack_now = true;
        }
    }

    /// Measures the round-trip time at a receiver that sends no data (Linux's `tcp_rcv_rtt_measure_ts`): from
    /// the ACK that a full-sized segment echoes, once per echo.
    #[inline]
    fn measure_receive_rtt(&mut self, cx: &Context<'_>, segment: &Segment<P>) {
        if let Some(stamp) = segment.timestamps
            && stamp.echo != self.rcv_rtt_echo
            && self.timestamps
            && 2 * segment.payload.len() as u64 > u64::from(cx.flows[cx.index].mss)
        {
            self.rcv_rtt_echo = stamp.echo;
            let clock = self.timestamp(cx).wrapping_sub(stamp.echo);
            // The clock has milliseconds: less than one counts as one.
            let sample = u64::from(clock.max(1)) * MILLISECOND;
            self.rcv_rtt = match self.rcv_rtt {
                0 => sample,
                known => known - known / 8 + sample / 8,
            };
        }
    }

    /// Data and FIN of an acceptable segment.
    fn on_data(
        &mut self,
        cx: &mut Context<'_>,
        segment: &mut Segment<P>,
        position: u64,
        outcome: &mut Outcome,
    ) {
        let len = segment.payload.len() as u64;
        if len > 0 {
            let may_receive = matches!(self.state, State::Established | State::FinWait1 | State::FinWait2);
            if !may_receive {
                self.ack_now = true;
                return;
            }
            let payload = std::mem::take(&mut segment.payload);
            let end = position + len;
            if position <= self.rcv_nxt && self.reassembly.is_empty() {
                if position == self.rcv_nxt {
                    self.in_order.push_back((position, payload));
                } else {
                    self.reassembly.note_duplicate(position, self.rcv_nxt);
                    let skip = (self.rcv_nxt - position) as usize;
                    self.in_order.push_back((self.rcv_nxt, payload.slice(skip, payload.len())));
                    self.ack_now = true;
                }
                self.rcv_nxt = end;
                outcome.data = true;
                self.note_data_to_ack(cx, len);
            } else {
                // Out of order, or it fills a gap: acknowledge at once (RFC 5681 4.2).
                self.ack_now = true;
                if end <= self.rcv_nxt {
                    self.reassembly.note_duplicate(position, end);
                } else {
                    if position < self.rcv_nxt {
                        self.reassembly.note_duplicate(position, self.rcv_nxt);
                        let skip = (self.rcv_nxt - position) as usize;
                        self.reassembly.insert(self.rcv_nxt, payload.slice(skip, payload.len()));
                    } else {
                        self.reassembly.insert(position, payload);
                    }
                    while let Some((at, piece)) = self.reassembly.pop(self.rcv_nxt) {
                        self.rcv_nxt = at + piece.len() as u64;
                        self.in_order.push_back((at, piece));
                        outcome.data = true;
                    }
                }
            }
        }
        if segment.flags.contains(Flags::FIN) && self.fin_at.is_none() && self.state != State::SynReceived {
            self.fin_at = Some(position + len);
        }
        if self.fin_at == Some(self.rcv_nxt) {
            self.rcv_nxt += 1;
            self.ack_now = true;
            outcome.fin = true;
            match self.state {
                State::Established => self.state = State::CloseWait,
                State::FinWait1 => self.state = State::Closing,
                State::FinWait2 => self.enter_time_wait(cx),
                _ => {}
            }
        }
    }

    /// When to acknowledge in-order data (RFC 9293 3.8.6.3, RFC 5681 4.2: at least every second segment).
    #[inline]
    fn note_data_to_ack(&mut self, cx: &Context<'_>, len: u64) {
        let mss = u64::from(cx.flows[cx.index].mss);
        self.unacked_segments += if len > mss { 2 } else { 1 };
        if self.quick_acks > 0 {
            self.quick_acks -= 1;
            self.ack_now = true;
        } else if self.unacked_segments >= 2 {
            self.ack_now = true;
        } else if self.timers.get(Timer::DelayedAck).is_none() {
            self.timers.set(Timer::DelayedAck, cx.now + cx.tcp.delayed_ack);
        }
    }

    pub(super) fn enter_time_wait(&mut self, cx: &Context<'_>) {
        //= RFC 9293 MUST-13
        self.state = State::TimeWait;
        self.timers.stop_all();
        self.timers.set(Timer::Idle, cx.now + cx.tcp.time_wait);
    }
}
