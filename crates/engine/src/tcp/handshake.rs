//! The handshake: active, passive and simultaneous open (RFC 9293 3.5, 3.10.7.3), with the options that it
//! negotiates.

use ropewalk_wire::{Ecn, Flags, FourTuple, Payload, RareOptions, Segment, Seq, Timestamps};

use super::context::{Context, GiveUp, Kind, Outcome, State, Transmit, clock};
use super::sender::timestamp_rtt;
use super::tcb::Tcb;
use super::timer::Timer;

impl<P: Payload> Tcb<P> {
    /// Opens actively: a SYN goes out at the next `poll_transmit`.
    pub fn connect(cx: &mut Context<'_>, tuple: FourTuple, path_mtu: u32, isn: u32) -> Self {
        Tcb::new(cx, tuple, State::SynSent, path_mtu, isn)
    }

    /// Answers a SYN: a SYN/ACK goes out at the next `poll_transmit`.
    pub fn accept(cx: &mut Context<'_>, syn: &Segment<P>, path_mtu: u32, isn: u32) -> Self {
        let mut subflow = Tcb::new(cx, syn.tuple.reversed(), State::SynReceived, path_mtu, isn);
        subflow.on_peer_syn(cx, syn);
        subflow
    }

    /// Takes the peer's ISN and options from its SYN or SYN/ACK.
    fn on_peer_syn(&mut self, cx: &mut Context<'_>, syn: &Segment<P>) {
        let common = &mut self.common;
        common.peer_isn = syn.seq.0;
        let none = RareOptions::default();
        let options = syn.rare.as_deref().unwrap_or(&none);
        //= RFC 9293 MUST-15 if an MSS option is not received, assume 536 (IPv4) or 1220 (IPv6)
        let default_mss = if common.tuple.src.is_ipv4() { 536 } else { 1220 };
        // Segments of a few bytes would exhaust this end: an attack by a tiny MSS (CVE-2019-11479).
        common.peer_mss = options.mss.map_or(default_mss, |mss| u32::from(mss.max(64)));
        let negotiated = &mut common.negotiated;
        negotiated.window_scaling = cx.tcp.window_scaling && options.window_scale.is_some();
        //= RFC 7323 2.3-a a shift beyond 14 counts as 14
        let peer_shift = options.window_scale.unwrap_or(0).min(14);
        negotiated.peer_shift = if negotiated.window_scaling { peer_shift } else { 0 };
        negotiated.sack = cx.tcp.sack && options.sack_permitted;
        negotiated.timestamps = cx.tcp.timestamps && syn.timestamps.is_some();
        negotiated.ecn = cx.tcp.ecn
            && if syn.flags.contains(Flags::ACK) {
                // A SYN/ACK with both flags is from a host that only reflects what were
                // reserved bits (RFC 3168 6.1.1).
                syn.flags.contains(Flags::ECE) && !syn.flags.contains(Flags::CWR)
            } else {
                syn.flags.contains(Flags::ECE.with(Flags::CWR))
            };
        self.sender.on_syn(syn);
        self.receiver.on_syn(cx, syn);
        self.common.update_mss(cx);
    }

    #[cold]
    fn complete_handshake(&mut self, cx: &mut Context<'_>, segment: &Segment<P>, outcome: &mut Outcome) {
        self.common.state = State::Established;
        let handshake = &self.handshake;
        // Karn: after a retransmission only a timestamp tells which SYN was answered. The answer to an
        // earlier one may itself be a retransmission, much later than a round trip.
        let rtt = if handshake.repeated {
            let last = clock(cx.timestamp_offset, handshake.sent_at);
            let to_last = segment.timestamps.is_some_and(|stamp| stamp.echo == last);
            timestamp_rtt(&self.common, cx, segment).filter(|_| to_last)
        } else {
            Some(cx.now.saturating_sub(handshake.sent_at))
        };
        self.sender.on_established(&mut self.common, cx, rtt);
        self.probing.received_at = cx.now;
        outcome.established = true;
        if let Some(idle) = cx.tcp.keep_alive.idle {
            self.common.timers.set(Timer::Idle, cx.now + idle);
        }
    }

    /// The SYN/ACK has left already, without a state (RFC 4987 3.6); when isn't known.
    pub(crate) fn skip_syn_ack(&mut self) {
        self.handshake.syn_pending = false;
        self.handshake.repeated = true;
    }

    /// A segment in SYN-SENT (RFC 9293 3.10.7.3).
    #[cold]
    pub(super) fn on_segment_syn_sent(&mut self, cx: &mut Context<'_>, segment: &Segment<P>) -> Outcome {
        let mut outcome = Outcome::default();
        let has_ack = segment.flags.contains(Flags::ACK);
        if has_ack && self.sender.ack_position(&self.common, segment.ack) != 1 {
            //= RFC 9293 3.10.7.3 an ACK of what was never sent is answered with RST
            if !segment.flags.contains(Flags::RST) {
                self.handshake.refusal = Some(segment.ack);
            }
            return outcome;
        }
        if segment.flags.contains(Flags::RST) {
            // Without an ACK anyone could have sent it (RFC 9293 3.10.7.3): only one
            // that knows our ISN is believed.
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
        self.on_peer_syn(cx, segment);
        if has_ack {
            self.complete_handshake(cx, segment, &mut outcome);
            // The window of a SYN/ACK isn't scaled, either (RFC 7323 2.2).
            self.sender.set_first_window(u64::from(segment.window), 0, 1);
            self.receiver.request_ack();
        } else {
            //= RFC 9293 MUST-10 simultaneous open
            self.common.state = State::SynReceived;
            self.handshake.syn_pending = true;
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
        let ack = self.sender.ack_position(&self.common, segment.ack);
        if ack < 1 || ack > self.sender.next() {
            //= RFC 9293 3.10.7.4 an ACK in SYN-RECEIVED of what was never sent is answered with RST
            self.handshake.refusal = Some(segment.ack);
            return false;
        }
        self.complete_handshake(cx, segment, outcome);
        let window = self.common.peer_window(segment.window);
        let position = self.receiver.position(&self.common, segment.seq);
        self.sender.set_first_window(window, position, ack);
        true
    }

    /// Whether a segment acknowledges our SYN, and all of its data is in the window.
    #[cold]
    pub(crate) fn may_complete_handshake(&self, cx: &Context<'_>, segment: &Segment<P>) -> bool {
        let ack = self.sender.ack_position(&self.common, segment.ack);
        let position = self.receiver.position(&self.common, segment.seq);
        (1..=self.sender.next()).contains(&ack) && self.receiver.has_room_for(cx, position, segment)
    }

    /// The handshake's timer fired.
    #[cold]
    pub(super) fn on_handshake_timeout(&mut self, cx: &mut Context<'_>, outcome: &mut Outcome) {
        let handshake = &mut self.handshake;
        handshake.timeouts += 1;
        //= RFC 9293 MUST-22
        if handshake.timeouts > cx.tcp.syn_retries {
            self.common.counters.abort_on_timeout += 1;
            self.become_closed();
            outcome.failed = Some(GiveUp::Handshake);
            return;
        }
        handshake.syn_pending = true;
        handshake.repeated = true;
        self.common.counters.syn_retrans += 1;
        //= RFC 5681 3.1-b
        if handshake.timeouts > 1 {
            // RFC 5681 3.1: after a lost SYN the window is one segment. As in Linux a single retransmission,
            // which may be due to a slow path, doesn't count.
            cx.metrics.set_cwnd(1);
        }
    }

    /// The SYN or SYN/ACK to send now, if one is due.
    #[cold]
    pub(super) fn transmit_syn(
        &mut self,
        cx: &mut Context<'_>,
        segment: &mut Segment<P>,
    ) -> Option<Transmit> {
        let (common, handshake) = (&mut self.common, &mut self.handshake);
        if !handshake.syn_pending {
            return None;
        }
        handshake.syn_pending = false;
        handshake.sent_at = cx.now;
        let negotiated = common.negotiated;
        let answer = common.state == State::SynReceived;
        let mut flags = if answer { Flags::SYN.with(Flags::ACK) } else { Flags::SYN };
        if answer && negotiated.ecn {
            flags = flags.with(Flags::ECE);
        } else if !answer && cx.tcp.ecn {
            flags = flags.with(Flags::ECE).with(Flags::CWR);
        }
        let ack = if answer { common.peer_isn.wrapping_add(1) } else { 0 };
        segment.renew(&common.tuple, common.seq(0), Seq(ack), flags);
        (segment.hop_limit, segment.dscp) = (cx.tcp.hop_limit, cx.tcp.dscp & 0x3f);
        // SYN and SYN/ACK aren't ECN-capable (RFC 3168 6.1.1): a mark would come before both ends agreed.
        segment.ecn = Ecn::NotEct;
        segment.window = cx.shared.receive.window().min(65_535) as u16;
        let options = segment.rare_mut();
        //= RFC 9293 MUST-14 SHLD-5 MUST-65 an MSS option on every SYN, on nothing else
        options.mss = Some(common.own_mss(cx.tcp));
        let agreed = |ours: bool, theirs: bool| ours && (!answer || theirs);
        //= RFC 7323 2.2-a
        if agreed(cx.tcp.window_scaling, negotiated.window_scaling) {
            options.window_scale = Some(negotiated.own_shift);
        }
        //= RFC 2018 4-a
        options.sack_permitted = agreed(cx.tcp.sack, negotiated.sack);
        //= RFC 7323 3.2-a
        if agreed(cx.tcp.timestamps, negotiated.timestamps) {
            // A SYN without ACK has nothing to echo: TSecr is 0 (RFC 7323 3.2).
            let echo = if answer { self.receiver.ts_recent() } else { 0 };
            segment.timestamps = Some(Timestamps { value: cx.timestamp(), echo });
        }
        let rto = cx.tcp.rto.initial.saturating_mul(1 << handshake.timeouts.min(16)).min(cx.tcp.rto.max);
        common.timers.set(Timer::Retransmit, cx.now + rto);
        common.counters.out_segs += 1;
        let kind = if answer { Kind::SynAck } else { Kind::Syn };
        Some(Transmit::control(kind, 0))
    }
}
