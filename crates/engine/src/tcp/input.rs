//! Segment arrival in the synchronised states (RFC 9293 3.10.7.4), PAWS (RFC 7323 5) and RFC 5961's checks.

use ropewalk_wire::{Ecn, Flags, Payload, Segment};

use super::receiver::reassembly::Placement;
use super::timer::Timer;
use super::{Context, Outcome, State, StreamOffset, Subflow, TcpConfig, clock};
use crate::{MILLISECOND, Nanos, SECOND};

/// After this long the peer's clock may have wrapped: PAWS doesn't count (RFC 7323 5.5).
const PAWS_IDLE: u64 = 24 * 24 * 3600 * SECOND;

/// Challenge ACKs per second (RFC 5961 7; Linux's limit is per host, ours per connection).
const CHALLENGE_LIMIT: u32 = 10;

/// Least time between answers to segments without data that aren't acceptable, so that two ends that disagree don't
/// answer each other for ever (Linux's `tcp_invalid_ratelimit`).
const ANSWER_INTERVAL: Nanos = 500 * MILLISECOND;

/// Quick ACKs after a congestion mark, as in Linux.
const QUICK_AFTER_MARK: u32 = 2;

impl<P: Payload> Subflow<P> {
    /// A segment for this four-tuple arrived. Its payload is taken out if it is accepted; `offset` goes with it. `PREDICTED`:
    /// [`is_predicted`](Self::is_predicted) was true, and answers questions that are left out.
    #[inline(always)]
    pub(crate) fn on_segment<const PREDICTED: bool>(
        &mut self,
        cx: &mut Context<'_>,
        segment: &mut Segment<P>,
        offset: StreamOffset,
    ) -> Outcome {
        self.counters.in_segs += 1;
        self.quiet = false;
        let mut outcome = Outcome::default();
        let position = self.peer_position(segment.seq);
        if !PREDICTED && !self.check_segment(cx, segment, position, &mut outcome) {
            return outcome;
        }
        outcome.acceptable = true;
        self.received_at = cx.now;
        self.probes_out = 0;
        //= RFC 7323 4.3 only a segment that covers the last ACK sent updates TS.Recent
        if let Some(stamp) = segment.timestamps
            && (PREDICTED || self.timestamps)
            && position <= self.last_ack_sent
            && (PREDICTED || stamp.value.wrapping_sub(self.ts_recent) as i32 >= 0)
        {
            self.ts_recent = stamp.value;
            self.ts_recent_at = cx.now;
        }
        if self.ecn {
            self.note_marks(cx, segment);
        }
        if !self.process_ack(cx, segment, position, &mut outcome) {
            outcome.acceptable = false;
            return outcome;
        }
        if !PREDICTED && self.state == State::Closed {
            return outcome;
        }
        if !segment.payload.is_empty() || (!PREDICTED && segment.flags.contains(Flags::FIN)) {
            self.measure_receive_rtt(cx.now, cx.tcp, segment);
            self.on_data::<PREDICTED>(cx, segment, position, offset, &mut outcome);
        }
        outcome
    }

    /// Header prediction: whether a segment certainly passes [`check_segment`](Self::check_segment), where windows are
    /// connection-level. It has no flags but ACK and PSH, a timestamp as new as any, stands in the window of an
    /// established subflow, and acknowledges nothing that wasn't sent.
    #[inline]
    pub(crate) fn is_predicted(&self, segment: &Segment<P>) -> bool {
        let timely = |value: u32| value.wrapping_sub(self.ts_recent) as i32 >= 0;
        let offset = u64::from(segment.seq.0.wrapping_sub(self.peer_isn.wrapping_add(self.rcv_nxt as u32)));
        self.state == State::Established
            && self.timestamps
            && segment.timestamps.is_some_and(|stamp| timely(stamp.value))
            && segment.flags.without(Flags::PSH) == Flags::ACK
            && (offset == 0 || offset < self.rcv_edge.saturating_sub(self.rcv_nxt))
            && self.is_ack_in_flight(segment)
    }

    /// The checks of RFC 9293 3.10.7 that come before the acknowledgement. Returns false if the segment ends there.
    #[inline(never)]
    fn check_segment(
        &mut self,
        cx: &mut Context<'_>,
        segment: &mut Segment<P>,
        position: u64,
        outcome: &mut Outcome,
    ) -> bool {
        match self.state {
            State::Closed => return false,
            State::SynSent => {
                *outcome = self.on_segment_syn_sent(cx, segment);
                return false;
            }
            _ => {}
        }
        let flags = segment.flags;
        //= RFC 7323 5.3 R1 PAWS comes first, but not for RST
        if self.timestamps && self.is_stale(cx, segment, position) {
            self.drop_stale(cx, segment, position);
            return false;
        }
        if flags.contains(Flags::SYN) && !flags.contains(Flags::RST) {
            self.on_syn(cx, segment, position, outcome);
            return false;
        }
        if !self.in_window(cx, position, segment) {
            self.on_unacceptable(cx, segment, position, outcome);
            return false;
        }
        if flags.contains(Flags::RST) {
            //= RFC 5961 3.2 only the exact next number resets; any other in the window is challenged
            //= RFC 9293 SHLD-2 MUST-66
            if position == self.rcv_nxt {
                if matches!(self.state, State::Established | State::CloseWait) {
                    self.counters.estab_resets += 1;
                }
                self.become_closed();
                outcome.reset = true;
                outcome.acceptable = true;
            } else {
                self.challenge(cx);
            }
            return false;
        }
        flags.contains(Flags::ACK)
            && (self.state != State::SynReceived || self.on_handshake_ack(cx, segment, outcome))
            && self.accepts_ack(cx, segment)
    }

    /// Whether the acknowledgement is of something that was sent, and not too old. Any other is answered with a challenge
    /// ACK, and nothing is learnt from its segment: neither timestamp nor data (RFC 5961 5.2, RFC 9293 3.10.7.4).
    #[inline]
    fn accepts_ack(&mut self, cx: &Context<'_>, segment: &Segment<P>) -> bool {
        self.is_ack_in_flight(segment)
            || self.judge_outside_ack(cx, segment, self.ack_position(segment.ack)) != Some(false)
    }

    /// Whether the acknowledgement is between SND.UNA and SND.NXT, both included.
    #[inline]
    fn is_ack_in_flight(&self, segment: &Segment<P>) -> bool {
        self.ack_position(segment.ack).wrapping_sub(self.snd_una) <= self.snd_nxt - self.snd_una
    }

    /// Whether the segment's timestamp is older than what was heard (RFC 7323 5.3). A pure ACK that others overtook
    /// lately is no sign of an old incarnation (Linux's `tcp_disordered_ack`).
    #[inline]
    fn is_stale(&self, cx: &Context<'_>, segment: &Segment<P>, position: u64) -> bool {
        let Some(stamp) = segment.timestamps else { return false };
        let age = self.ts_recent.wrapping_sub(stamp.value) as i32;
        if age <= 0 || segment.flags.contains(Flags::RST) || cx.now >= self.ts_recent_at + PAWS_IDLE {
            return false;
        }
        let overtaken = segment.sequence_len() == 0
            && position == self.rcv_nxt
            && u64::from(age as u32) * MILLISECOND <= cx.metrics[cx.index].rto
            && self.ack_position(segment.ack) >= self.snd_una;
        !overtaken
    }

    #[cold]
    fn drop_stale(&mut self, cx: &Context<'_>, segment: &Segment<P>, position: u64) {
        if segment.sequence_len() == 0 && position == self.rcv_nxt {
            // An old ACK, overtaken: nothing to say to it.
            return;
        }
        self.counters.paws_drops += 1;
        if segment.payload.is_empty() && self.answered_lately(cx) {
            self.counters.ack_skipped_paws += 1;
            return;
        }
        self.note_old_data(cx, segment, position);
        self.ack_now = true;
    }

    /// Whether an answer of the rate-limited kind left just now; if not, it counts as leaving.
    fn answered_lately(&mut self, cx: &Context<'_>) -> bool {
        let recent = self.answered_at != 0 && cx.now < self.answered_at + ANSWER_INTERVAL;
        if !recent {
            self.answered_at = cx.now.max(1);
        }
        recent
    }

    /// A SYN in a synchronised state.
    #[cold]
    fn on_syn(&mut self, cx: &mut Context<'_>, segment: &Segment<P>, position: u64, outcome: &mut Outcome) {
        if self.state == State::SynReceived && position == 0 {
            if !segment.flags.contains(Flags::ACK) {
                // The handshake's SYN again: the SYN/ACK was lost, or late. The answer echoes this one (RFC 7323 4.3):
                // else what passed since the first would look like the round-trip time.
                self.syn_pending = true;
                self.syn_retransmitted = true;
                if let (true, Some(stamp)) = (self.timestamps, segment.timestamps) {
                    self.ts_recent = stamp.value;
                    self.ts_recent_at = cx.now;
                }
            } else if self.on_handshake_ack(cx, segment, outcome) {
                // Simultaneous open: the peer's SYN/ACK.
                outcome.acceptable = true;
                self.ack_now = true;
            }
            return;
        }
        //= RFC 5961 4.2 a SYN in a synchronised state is challenged, wherever it stands
        self.counters.syn_challenge += 1;
        self.challenge(cx);
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
        //= RFC 9293 3.10.7.4 an unacceptable segment is answered with an ACK, a RST is not
        if flags.contains(Flags::RST) {
            return;
        }
        let len = segment.sequence_len();
        // A window update or an ACK may still stand on a duplicate, a keep-alive's answer, or on what our closed
        // window can't take (RFC 9293 3.10.7.4: valid ACKs even then).
        let beside =
            position.wrapping_add(u64::from(len)) == self.rcv_nxt || (position == self.rcv_nxt && len > 0);
        if flags.contains(Flags::ACK)
            && beside
            && self.state != State::SynReceived
            && self.accepts_ack(cx, segment)
        {
            self.received_at = cx.now;
            self.probes_out = 0;
            // As Linux does (`tcp_replace_ts_recent`): else the answer to a retransmission whose first ACK was lost
            // would echo an older one, and give no round-trip time to undo the timeouts' backoff.
            if let (true, Some(stamp)) = (self.timestamps, segment.timestamps) {
                self.ts_recent = stamp.value;
                self.ts_recent_at = cx.now;
            }
            self.process_ack(cx, segment, position, outcome);
            outcome.acceptable = outcome.acked_segments > 0 || outcome.closed;
            if self.state == State::Closed {
                return;
            }
        }
        if flags.contains(Flags::FIN) && self.state == State::TimeWait {
            self.timers.set(Timer::Idle, cx.now + cx.tcp.time_wait);
        }
        if segment.payload.is_empty() && !flags.contains(Flags::FIN) {
            // A probe just below the window is what keep-alives and window probes look like: always answered.
            if position.wrapping_add(1) != self.rcv_nxt && self.answered_lately(cx) {
                self.counters.ack_skipped_seq += 1;
                return;
            }
        } else {
            self.note_old_data(cx, segment, position);
        }
        self.ack_now = true;
    }

    /// Data that was received before: the sender hasn't heard, or mistook it for lost (RFC 2883).
    #[cold]
    fn note_old_data(&mut self, cx: &Context<'_>, segment: &Segment<P>, position: u64) {
        let end = position.wrapping_add(segment.payload.len() as u64);
        if segment.payload.is_empty() || position >= self.rcv_nxt {
            return;
        }
        self.counters.delayed_ack_lost += 1;
        self.quick_ack_mode(cx, cx.tcp.quick_acks);
        self.reassembly.note_duplicate(position, end.min(self.rcv_nxt));
    }

    /// RFC 9293 3.4: whether a segment touches the receive window.
    #[inline]
    fn in_window(&self, cx: &Context<'_>, position: u64, segment: &Segment<P>) -> bool {
        let window = cx.shared.receive.window().max(self.rcv_edge.saturating_sub(self.rcv_nxt));
        let end = self.rcv_nxt + window;
        // `unfold` may go below zero for a stray segment.
        if position > (1 << 63) {
            return false;
        }
        let len = segment.sequence_len();
        if len == 0 {
            return position >= self.rcv_nxt && (position < end || position == self.rcv_nxt);
        }
        // A FIN alone takes no room; and with windows at connection level (RFC 8684 3.3.1) nothing that arrives in
        // order is refused here.
        let bare = segment.payload.is_empty() || cx.shared.multipath;
        let end = if bare { end.max(self.rcv_nxt + 1) } else { end };
        position < end && position + u64::from(len) > self.rcv_nxt
    }

    //= RFC 5961 7 challenge ACKs are rate-limited
    #[cold]
    pub(super) fn challenge(&mut self, cx: &Context<'_>) {
        if cx.now >= self.challenge_at + SECOND {
            self.challenge_at = cx.now;
            self.challenges = 0;
        }
        if self.challenges < CHALLENGE_LIMIT {
            self.challenges += 1;
            self.counters.challenge_acks += 1;
            self.ack_now = true;
        } else {
            self.counters.challenges_skipped += 1;
        }
    }

    /// Congestion marks are echoed until the sender says that it has heard (RFC 3168 6.1.3).
    #[cold]
    fn note_marks(&mut self, cx: &Context<'_>, segment: &Segment<P>) {
        if segment.flags.contains(Flags::CWR) {
            self.ece_pending = false;
            if !segment.payload.is_empty() {
                // The sender's window may be a single segment now.
                self.ack_now = true;
            }
        }
        //= RFC 9293 SHLD-8
        if segment.ecn == Ecn::Ce && !self.ece_pending {
            self.ece_pending = true;
            self.quick_ack_mode(cx, QUICK_AFTER_MARK);
        }
    }

    /// Measures the round-trip time at a receiver that sends no data, from the ACK that a full-sized segment echoes, once
    /// per echo (Linux's `tcp_rcv_rtt_measure_ts`). As of 6.16 a lower sample counts at once, so that the buffer isn't
    /// grown for the sake of a queue that the window itself made (`tcp_rcv_rtt_update`).
    #[inline]
    pub(super) fn measure_receive_rtt(&mut self, now: Nanos, tcp: &TcpConfig, segment: &Segment<P>) {
        if let Some(stamp) = segment.timestamps
            && stamp.echo != self.rcv_rtt_echo
            && self.timestamps
            && segment.payload.len() as u64 >= self.delack.full_size()
        {
            self.rcv_rtt_echo = stamp.echo;
            // The clock has milliseconds: less than one says nothing.
            let sample = u64::from(clock(tcp, now).wrapping_sub(stamp.echo)) * MILLISECOND;
            self.rcv_rtt = match (self.rcv_rtt, sample) {
                (known, 0) => known,
                (known, sample) if known == 0 || sample < known => sample,
                (known, sample) => known - known / 8 + sample / 8,
            };
        }
    }

    /// Data and FIN of an acceptable segment.
    #[inline]
    fn on_data<const PREDICTED: bool>(
        &mut self,
        cx: &mut Context<'_>,
        segment: &mut Segment<P>,
        position: u64,
        offset: StreamOffset,
        outcome: &mut Outcome,
    ) {
        let len = segment.payload.len() as u64;
        if len > 0 {
            let may_receive = matches!(self.state, State::Established | State::FinWait1 | State::FinWait2);
            if !PREDICTED && !may_receive {
                self.ack_now = true;
                return;
            }
            let unit = if segment.gso_size > 0 { u32::from(segment.gso_size) } else { len as u32 };
            self.delack.on_data(cx, unit, segment.flags.contains(Flags::PSH));
            let payload = std::mem::take(&mut segment.payload);
            let (next, in_order) = (&mut self.rcv_nxt, &mut self.in_order);
            let placement = self.reassembly.place(next, position, payload, offset, in_order);
            match placement {
                Placement::InOrder => {}
                Placement::Overlapping => {
                    self.counters.delayed_ack_lost += 1;
                    self.quick_ack_mode(cx, cx.tcp.quick_acks);
                    self.ack_now = true;
                }
                Placement::OutOfOrder => {
                    //= RFC 9293 SHLD-31
                    self.counters.ofo_queue += 1;
                    self.ack_now = true;
                }
                //= RFC 5681 4.2 out of order, or it fills a gap: acknowledge at once
                Placement::FillsGap | Placement::Duplicate => self.ack_now = true,
            }
            outcome.repeated = placement != Placement::InOrder && self.reassembly.dsack().is_some();
            outcome.data = !matches!(placement, Placement::OutOfOrder | Placement::Duplicate);
            if matches!(placement, Placement::InOrder | Placement::Overlapping) {
                self.schedule_ack(cx.now, cx.tcp, &cx.metrics[cx.index]);
            }
        }
        if !PREDICTED
            && segment.flags.contains(Flags::FIN)
            && self.fin_at.is_none()
            && self.state != State::SynReceived
        {
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

    pub(super) fn enter_time_wait(&mut self, cx: &Context<'_>) {
        //= RFC 9293 MUST-13
        self.state = State::TimeWait;
        self.timers.stop_all();
        self.timers.set(Timer::Idle, cx.now + cx.tcp.time_wait);
    }
}
