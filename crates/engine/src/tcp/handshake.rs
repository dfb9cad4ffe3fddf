//! Opening: active, passive and simultaneous (RFC 9293 3.5, 3.10.7.3), with the options that are negotiated there.

use ropewalk_wire::{Ecn, Flags, FourTuple, Payload, RareOptions, Segment, Timestamps};

use super::sender::rate::RateState;
use super::timer::Timer;
use super::{Context, Kind, Outcome, State, Subflow, Transmit, clock};

/// The timeout for data when the handshake gave no sample.
const FALLBACK_RTO: u64 = 3 * crate::SECOND;

impl<P: Payload> Subflow<P> {
    /// Opens actively: a SYN goes out at the next `poll_transmit`.
    pub fn connect(cx: &mut Context<'_>, tuple: FourTuple, path_mtu: u32, isn: u32) -> Self {
        let mut subflow = Subflow::new(tuple, State::SynSent, path_mtu, isn, cx.now);
        subflow.snd_nxt = 1;
        cx.metrics().rto = cx.tcp.initial_rto;
        cx.metrics().cwnd = cx.tcp.initial_window;
        subflow
    }

    /// Answers a SYN: a SYN/ACK goes out at the next `poll_transmit`.
    pub fn accept(cx: &mut Context<'_>, syn: &Segment<P>, path_mtu: u32, isn: u32) -> Self {
        let mut subflow = Subflow::new(syn.tuple.reversed(), State::SynReceived, path_mtu, isn, cx.now);
        subflow.snd_nxt = 1;
        cx.metrics().rto = cx.tcp.initial_rto;
        cx.metrics().cwnd = cx.tcp.initial_window;
        subflow.take_syn(cx, syn);
        subflow
    }

    /// Takes the peer's ISN and options from its SYN or SYN/ACK.
    fn take_syn(&mut self, cx: &mut Context<'_>, syn: &Segment<P>) {
        self.peer_isn = syn.seq.0;
        self.rcv_nxt = 1;
        self.last_ack_sent = 1;
        let none = RareOptions::default();
        let options = syn.rare.as_deref().unwrap_or(&none);
        //= RFC 9293 MUST-15 if an MSS option is not received, assume 536 (IPv4) or 1220 (IPv6)
        let default_mss = if self.tuple.src.is_ipv4() { 536 } else { 1220 };
        self.peer_mss = options.mss.map_or(default_mss, |mss| u32::from(mss.max(64)));
        self.window_scaling = cx.tcp.window_scaling && options.window_scale.is_some();
        //= RFC 7323 2.3 a shift beyond 14 counts as 14
        self.peer_shift = if self.window_scaling { options.window_scale.unwrap_or(0).min(14) } else { 0 };
        self.sack = cx.tcp.sack && options.sack_permitted;
        self.timestamps = cx.tcp.timestamps && syn.timestamps.is_some();
        if let Some(stamp) = syn.timestamps {
            self.ts_recent = stamp.value;
            self.ts_recent_at = cx.now;
        }
        let both = Flags::ECE.with(Flags::CWR);
        self.ecn = cx.tcp.ecn
            && if syn.flags.contains(Flags::ACK) {
                syn.flags.contains(Flags::ECE) && !syn.flags.contains(Flags::CWR)
            } else {
                syn.flags.contains(both)
            };
        // RFC 7323 2.2: the window of a SYN is never scaled.
        self.snd_wnd = u64::from(syn.window);
        self.max_window = self.snd_wnd;
        self.snd_wl1 = 0;
        self.snd_wl2 = 0;
        self.rcv_edge = 1 + cx.shared.receive.window().min(65_535);
        self.update_mss(cx);
    }

    #[cold]
    fn complete_handshake(&mut self, cx: &mut Context<'_>, segment: &Segment<P>, outcome: &mut Outcome) {
        self.state = State::Established;
        self.snd_una = 1;
        self.backoff = 0;
        self.timers.stop(Timer::Retransmit);
        // Karn: after a repeat only a timestamp tells which SYN was answered; and the answer to an earlier one may itself
        // be a repeat, much later than a round trip.
        let last = clock(cx.tcp, self.syn_sent_at);
        let rtt = if self.syn_retransmitted {
            let to_last = segment.timestamps.is_some_and(|stamp| stamp.echo == last);
            self.timestamp_rtt(cx, segment).filter(|_| to_last)
        } else {
            Some(cx.now.saturating_sub(self.syn_sent_at))
        };
        match rtt {
            Some(rtt) => {
                let (tcp, now) = (cx.tcp, cx.now);
                self.rtt.sample(cx.metrics(), tcp, now, rtt, rtt);
            }
            //= RFC 6298 5.7 without a sample from the handshake the timeout for data is 3 seconds
            None => cx.metrics().rto = cx.tcp.initial_rto.max(FALLBACK_RTO),
        }
        self.received_at = cx.now;
        // Schedulers compare rates: a subflow that has sent nothing yet must have one.
        self.update_pacing(cx);
        self.rate = RateState::new(cx.now);
        self.cwnd_validation.restart(cx.now);
        self.last_sent_at = cx.now;
        cx.metrics().last_progress = cx.now;
        outcome.established = true;
        if let Some(idle) = cx.tcp.keep_alive {
            self.timers.set(Timer::Idle, cx.now + idle);
        }
    }

    /// A segment in SYN-SENT (RFC 9293 3.10.7.3).
    #[cold]
    pub(super) fn on_segment_syn_sent(&mut self, cx: &mut Context<'_>, segment: &Segment<P>) -> Outcome {
        let mut outcome = Outcome::default();
        let has_ack = segment.flags.contains(Flags::ACK);
        if has_ack && self.ack_position(segment.ack) != 1 {
            //= RFC 9293 3.10.7.3 an ACK of what was never sent is answered with RST
            if !segment.flags.contains(Flags::RST) {
                self.refusal = Some(segment.ack);
            }
            return outcome;
        }
        if segment.flags.contains(Flags::RST) {
            if has_ack {
                self.become_closed();
                outcome.reset = true;
            }
            return outcome;
        }
        if !segment.flags.contains(Flags::SYN) {
            return outcome;
        }
        outcome.acceptable = true;
        self.take_syn(cx, segment);
        if has_ack {
            self.complete_handshake(cx, segment, &mut outcome);
            self.snd_wl2 = 1;
            self.ack_now = true;
        } else {
            //= RFC 9293 MUST-10 simultaneous open
            self.state = State::SynReceived;
            self.syn_pending = true;
            self.snd_nxt = 1;
        }
        outcome
    }

    /// The ACK that completes a passive or simultaneous open; false if it acknowledges anything else.
    #[cold]
    pub(super) fn on_handshake_ack(
        &mut self,
        cx: &mut Context<'_>,
        segment: &Segment<P>,
        outcome: &mut Outcome,
    ) -> bool {
        let ack = self.ack_position(segment.ack);
        if ack < 1 || ack > self.snd_nxt {
            //= RFC 9293 3.10.7.4 an ACK in SYN-RECEIVED of what was never sent is answered with RST
            self.refusal = Some(segment.ack);
            return false;
        }
        self.complete_handshake(cx, segment, outcome);
        self.snd_wnd = u64::from(segment.window) << self.peer_shift;
        self.snd_wl1 = self.peer_position(segment.seq);
        self.snd_wl2 = ack;
        true
    }

    /// The SYN or SYN/ACK to send now, if one is due.
    #[cold]
    pub(super) fn transmit_syn(
        &mut self,
        cx: &mut Context<'_>,
        segment: &mut Segment<P>,
    ) -> Option<Transmit> {
        if !self.syn_pending {
            return None;
        }
        self.syn_pending = false;
        self.syn_sent_at = cx.now;
        let answer = self.state == State::SynReceived;
        let mut flags = if answer { Flags::SYN.with(Flags::ACK) } else { Flags::SYN };
        if answer && self.ecn {
            flags = flags.with(Flags::ECE);
        } else if !answer && cx.tcp.ecn {
            flags = flags.with(Flags::ECE).with(Flags::CWR);
        }
        let ack = if answer { self.peer_isn.wrapping_add(1) } else { 0 };
        segment.renew(&self.tuple, self.seq(0), ropewalk_wire::Seq(ack), flags);
        (segment.hop_limit, segment.dscp) = (cx.tcp.hop_limit, cx.tcp.dscp & 0x3f);
        segment.ecn = Ecn::NotEct;
        segment.window = cx.shared.receive.window().min(65_535) as u16;
        let own_mss = self.own_mss();
        let options = segment.rare_mut();
        //= RFC 9293 MUST-14 SHLD-5 MUST-65 an MSS option on every SYN, on nothing else
        options.mss = Some(own_mss);
        let agreed = |ours: bool, theirs: bool| ours && (!answer || theirs);
        if agreed(cx.tcp.window_scaling, self.window_scaling) {
            options.window_scale = Some(self.own_shift);
        }
        options.sack_permitted = agreed(cx.tcp.sack, self.sack);
        if agreed(cx.tcp.timestamps, self.timestamps) {
            segment.timestamps =
                Some(Timestamps { value: self.timestamp(cx), echo: if answer { self.ts_recent } else { 0 } });
        }
        let rto = cx.tcp.initial_rto.saturating_mul(1 << self.backoff.min(16)).min(cx.tcp.max_rto);
        self.timers.set(Timer::Retransmit, cx.now + rto);
        self.counters.out_segs += 1;
        let kind = if answer { Kind::SynAck } else { Kind::Syn };
        Some(Transmit { kind, tag: 0, ssn: 0, retransmission: self.syn_retransmitted, part: None })
    }

    /// Whether the SYN has been sent more than once.
    pub fn syn_retransmitted(&self) -> bool {
        self.syn_retransmitted
    }

    /// How often the SYN has been sent again.
    pub fn syn_retransmissions(&self) -> u32 {
        self.backoff
    }
}
