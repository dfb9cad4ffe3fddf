//! Segment arrival in the synchronised states (RFC 9293 3.10.7.4), PAWS (RFC 7323 5) and RFC 5961's checks.

use ropewalk_wire::{Flags, Payload, Segment};

use super::context::{Context, Outcome, State};
use super::receiver::Mapping;
use super::tcb::Tcb;
use super::timer::Timer;
use crate::MILLISECOND;

impl<P: Payload> Tcb<P> {
    /// A segment for this four-tuple arrived; adds to `outcome` what happened. Its payload is taken out if it
    /// is accepted; `mapping` travels with it. `PREDICTED`: [`is_predicted`](Self::is_predicted) was true,
    /// and answers questions that are left out. Then a payload that is left is in order, and the caller's to
    /// deliver.
    #[inline(always)]
    pub(crate) fn on_segment<const PREDICTED: bool>(
        &mut self,
        cx: &mut Context<'_>,
        segment: &mut Segment<P>,
        mapping: Mapping,
        outcome: &mut Outcome,
    ) {
        self.common.counters.in_segs += 1;
        self.nothing_to_send = false;
        let position = self.receiver.position(&self.common, segment.seq);
        if !PREDICTED && !self.check_segment(cx, segment, position, outcome) {
            return;
        }
        outcome.acceptable = true;
        // Whatever is acceptable shows that the peer lives: it answers keep-alives and window probes, too.
        self.probing.received_at = cx.now;
        self.probing.unanswered = 0;
        let common = &mut self.common;
        // Not before the checks: the timestamp of a forged segment would make PAWS drop genuine ones.
        self.receiver.update_ts_recent::<PREDICTED>(common, cx.now, segment, position);
        if common.negotiated.ecn {
            self.receiver.on_ecn(cx, segment);
        }
        self.sender.process_ack(common, cx, segment, position, outcome);
        if !PREDICTED {
            self.after_ack(cx, outcome);
            if self.common.state == State::Closed {
                return;
            }
        }
        if !segment.payload.is_empty() || (!PREDICTED && segment.flags.contains(Flags::FIN)) {
            let common = &mut self.common;
            self.receiver.measure_rtt(common, cx, segment);
            if self.receiver.on_data::<PREDICTED>(common, cx, segment, position, mapping, outcome) {
                common.on_fin_received(cx);
            }
        }
    }

    /// Header prediction: whether a segment certainly passes [`check_segment`](Self::check_segment), where
    /// windows are connection-level. It has no flags but ACK and PSH, a timestamp that isn't old, is in the
    /// window of an established subflow, and acknowledges nothing that wasn't sent.
    #[inline]
    pub(crate) fn is_predicted(&self, segment: &Segment<P>) -> bool {
        self.common.state == State::Established
            && segment.flags.without(Flags::PSH) == Flags::ACK
            && self.receiver.is_predicted(&self.common, segment)
            && self.sender.is_ack_in_flight(&self.common, segment.ack)
    }

    /// Whether a segment passes [`check_segment`](Self::check_segment) as a data segment or an ACK of a
    /// subflow that is open both ways.
    pub(crate) fn may_accept(&self, segment: &Segment<P>) -> bool {
        let position = self.receiver.position(&self.common, segment.seq);
        let is_old = self.common.negotiated.timestamps && self.receiver.timestamp_age(segment) > 0;
        self.common.state == State::Established
            && segment.flags.without(Flags::PSH).without(Flags::FIN) == Flags::ACK
            && !is_old
            && position.wrapping_sub(self.receiver.next()) as i64 >= 0
            && (self.sender.is_ack_in_flight(&self.common, segment.ack)
                || self.sender.is_old_ack(&self.common, segment.ack))
    }

    /// The checks of RFC 9293 3.10.7 that come before the acknowledgement. Returns false if the segment ends
    /// there.
    #[inline(never)]
    fn check_segment(
        &mut self,
        cx: &mut Context<'_>,
        segment: &mut Segment<P>,
        position: u64,
        outcome: &mut Outcome,
    ) -> bool {
        match self.common.state {
            State::Closed => return false,
            State::SynSent => {
                *outcome = self.on_segment_syn_sent(cx, segment);
                return false;
            }
            _ => {}
        }
        let flags = segment.flags;
        //= RFC 7323 5.3-a 5.3-b PAWS comes first, but not for RST
        if self.common.negotiated.timestamps && self.is_stale(cx, segment, position) {
            self.on_stale(cx, segment, position);
            return false;
        }
        if flags.contains(Flags::SYN) && !flags.contains(Flags::RST) {
            self.on_syn(cx, segment, position, outcome);
            return false;
        }
        if !self.receiver.in_window(cx, position, segment) {
            self.on_unacceptable(cx, segment, position, outcome);
            return false;
        }
        if flags.contains(Flags::RST) {
            //= RFC 5961 3.2-a 3.2-b only the exact next number resets; any other in the window is challenged
            //= RFC 9293 SHLD-2 MUST-66
            if position == self.receiver.next() {
                if matches!(self.common.state, State::Established | State::CloseWait) {
                    self.common.counters.estab_resets += 1;
                }
                self.become_closed();
                outcome.reset = true;
                outcome.acceptable = true;
            } else {
                self.receiver.challenge(&mut self.common, cx);
            }
            return false;
        }
        // A segment without ACK is dropped: only a SYN or a RST may come without (RFC 9293 3.10.7.4).
        flags.contains(Flags::ACK)
            && (self.common.state != State::SynReceived || self.on_handshake_ack(cx, segment, outcome))
            && self.accepts_ack(cx, segment)
    }

    /// Whether the acknowledgement is of something that was sent, and not too old. Any other is answered with
    /// a challenge ACK, and nothing is learnt from its segment: neither timestamp nor data (RFC 5961 5.2, RFC
    /// 9293 3.10.7.4).
    #[inline]
    fn accepts_ack(&mut self, cx: &Context<'_>, segment: &Segment<P>) -> bool {
        //= RFC 9293 3.10.7.4 an ACK of something not yet sent is answered with an ACK
        //= RFC 5961 5.2-a an ACK older than the largest window ever seen is challenged
        let accepted = self.sender.is_ack_in_flight(&self.common, segment.ack)
            || self.sender.is_old_ack(&self.common, segment.ack);
        if !accepted {
            self.receiver.challenge(&mut self.common, cx);
        }
        accepted
    }

    /// Whether the segment's timestamp is older than TS.Recent (RFC 7323 5.3). A pure ACK that was overtaken
    /// a short time ago is no sign of an old incarnation (Linux's `tcp_disordered_ack`).
    #[inline]
    fn is_stale(&self, cx: &Context<'_>, segment: &Segment<P>, position: u64) -> bool {
        //= RFC 7323 5.5-a
        let age = self.receiver.timestamp_age(segment);
        if age == 0 || segment.flags.contains(Flags::RST) || self.receiver.is_ts_recent_outdated(cx.now) {
            return false;
        }
        // Late by more than a timeout it may well be of an old incarnation (Linux's `tcp_tsval_replay`).
        let overtaken = segment.sequence_len() == 0
            && position == self.receiver.next()
            && u64::from(age) * MILLISECOND <= cx.metrics.rto
            && self.sender.ack_position(&self.common, segment.ack) >= self.sender.una();
        !overtaken
    }

    /// A segment with an old timestamp.
    #[cold]
    fn on_stale(&mut self, cx: &Context<'_>, segment: &Segment<P>, position: u64) {
        if segment.sequence_len() == 0 && position == self.receiver.next() {
            // An old ACK that was overtaken needs no answer.
            return;
        }
        self.common.counters.paws_drops += 1;
        // Only answers to segments without data can go to and fro for ever.
        if segment.payload.is_empty() && !self.receiver.allows_answer(cx) {
            self.common.counters.ack_skipped_paws += 1;
            return;
        }
        self.receiver.on_old_data(&mut self.common, cx, segment, position);
        self.receiver.request_ack();
    }

    /// A SYN in a synchronised state.
    #[cold]
    fn on_syn(&mut self, cx: &mut Context<'_>, segment: &Segment<P>, position: u64, outcome: &mut Outcome) {
        if self.common.state == State::SynReceived && position == 0 {
            if !segment.flags.contains(Flags::ACK) {
                // The SYN again: the SYN/ACK was lost, or late. The answer echoes this one (RFC 7323 4.3).
                // Otherwise the time since the first would look like the round-trip time.
                self.handshake.syn_pending = true;
                self.handshake.repeated = true;
                if self.common.negotiated.timestamps {
                    self.receiver.replace_ts_recent(cx.now, segment);
                }
            } else if self.on_handshake_ack(cx, segment, outcome) {
                // Simultaneous open: the peer's SYN/ACK.
                outcome.acceptable = true;
                self.receiver.request_ack();
            }
            return;
        }
        //= RFC 5961 4.2-a a SYN in a synchronised state is challenged, wherever it stands
        self.common.counters.syn_challenge += 1;
        self.receiver.challenge(&mut self.common, cx);
    }

    //= RFC 9293 SHLD-4
    /// Whether a SYN may open a new connection with this one's addresses. It may if this one is over, or if
    /// this one is in TIME-WAIT and the SYN's timestamp or else its sequence number is newer (RFC 6191 2).
    #[cold]
    pub fn gives_way_to(&self, syn: &Segment<P>) -> bool {
        let opens = !syn.flags.contains(Flags::ACK) && !syn.flags.contains(Flags::RST);
        let newer = match syn.timestamps {
            // A timestamp where the old connection had none is proof enough (RFC 6191 2).
            Some(_) if !self.common.negotiated.timestamps => 1,
            Some(stamp) => stamp.value.wrapping_sub(self.receiver.ts_recent()) as i32,
            None => 0,
        };
        let position = self.receiver.position(&self.common, syn.seq);
        let follows = position.wrapping_sub(self.receiver.next()) as i64 > 0;
        let in_time_wait = self.common.state == State::TimeWait;
        opens && (self.is_finished() || (in_time_wait && (newer > 0 || (newer == 0 && follows))))
    }

    /// A segment outside the window.
    #[cold]
    fn on_unacceptable(
        &mut self,
        cx: &mut Context<'_>,
        segment: &mut Segment<P>,
        position: u64,
        outcome: &mut Outcome,
    ) {
        let flags = segment.flags;
        //= RFC 5961 3.2-c
        //= RFC 9293 3.10.7.4 an unacceptable segment is answered with an ACK, a RST is not
        if flags.contains(Flags::RST) {
            return;
        }
        let (len, next) = (segment.sequence_len(), self.receiver.next());
        // The segment may still carry a valid ACK: a duplicate, the answer to a keep-alive, or data that the
        // closed window can't take (RFC 9293 3.10.7.4).
        let beside = position.wrapping_add(u64::from(len)) == next || (position == next && len > 0);
        if flags.contains(Flags::ACK)
            && beside
            && self.common.state != State::SynReceived
            && self.accepts_ack(cx, segment)
        {
            self.probing.received_at = cx.now;
            self.probing.unanswered = 0;
            // As Linux does (`tcp_replace_ts_recent`). Otherwise the answer to a retransmission whose first
            // ACK was lost would echo an older timestamp, and give no round-trip time that ends the timeouts'
            // backoff.
            if self.common.negotiated.timestamps {
                self.receiver.replace_ts_recent(cx.now, segment);
            }
            self.sender.process_ack(&mut self.common, cx, segment, position, outcome);
            self.after_ack(cx, outcome);
            outcome.acceptable = outcome.acked_segments > 0 || outcome.closed;
            if self.common.state == State::Closed {
                return;
            }
        }
        // A repeated FIN: our last ACK was lost, so TIME-WAIT begins anew (RFC 9293 3.10.7.4).
        if flags.contains(Flags::FIN) && self.common.state == State::TimeWait {
            self.common.timers.set(Timer::Idle, cx.now + cx.tcp.time_wait);
        }
        if segment.payload.is_empty() && !flags.contains(Flags::FIN) {
            // Keep-alives and window probes are just below the window: they are always answered.
            let probe = position.wrapping_add(1) == self.receiver.next();
            if !probe && !self.receiver.allows_answer(cx) {
                self.common.counters.ack_skipped_seq += 1;
                return;
            }
        } else {
            self.receiver.on_old_data(&mut self.common, cx, segment, position);
        }
        self.receiver.request_ack();
    }

    /// State changes once the FIN is acknowledged.
    #[inline]
    fn after_ack(&mut self, cx: &Context<'_>, outcome: &mut Outcome) {
        if !self.sender.is_fin_acked() {
            return;
        }
        match self.common.state {
            State::FinWait1 => self.common.state = State::FinWait2,
            State::Closing => self.common.enter_time_wait(cx),
            State::LastAck => {
                self.become_closed();
                outcome.closed = true;
            }
            _ => {}
        }
    }
}
