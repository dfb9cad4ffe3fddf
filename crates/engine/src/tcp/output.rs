//! Segments that are sent, and in which order: SYN, RST, data, probes, ACKs (RFC 9293 3.8). Every segment but
//! a SYN and the RST of a refused handshake is built by `write_header`.

use ropewalk_wire::{Ecn, Flags, MAX_OPTIONS, Payload, Segment, Seq};

use super::common::Common;
use super::context::{Context, Kind, State, Transmit};
use super::sender::DataSegment;
use super::tcb::Tcb;
use crate::metrics::{CaState, SubflowMetrics};

/// Bytes of the timestamps option with its padding.
const TIMESTAMPS_LEN: usize = 12;

/// Bytes of one SACK block with its option's header and padding.
const SACK_LEN: usize = 12;

/// Bytes of payload that new data does without, so that a SACK block fits beside it within the path's MTU. A
/// mapping and timestamps leave no room among the options: then none.
fn sack_reserve(common: &Common, cx: &Context<'_>) -> usize {
    let timestamps = if common.negotiated.timestamps { TIMESTAMPS_LEN } else { 0 };
    let used = usize::from(cx.shared.data_option_len()) + timestamps;
    if used + SACK_LEN <= MAX_OPTIONS { SACK_LEN } else { 0 }
}

impl<P: Payload> Tcb<P> {
    /// Whether there is nothing to send, whatever the windows allow, until something happens.
    #[inline]
    pub(crate) fn has_nothing_to_send(&self) -> bool {
        self.nothing_to_send
    }

    /// Whether `poll_transmit` could return a segment: cheap, and never false when it would.
    #[inline]
    pub(crate) fn has_output(&mut self, metrics: &SubflowMetrics) -> bool {
        if self.nothing_to_send {
            return false;
        }
        match self.common.state {
            State::SynSent | State::SynReceived => {
                self.handshake.syn_pending || self.handshake.refusal.is_some()
            }
            State::Closed => self.reset_pending,
            _ => {
                self.update_nothing_to_send(metrics);
                let urgent = self.receiver.is_ack_requested() || self.sender.has_urgent();
                urgent || (!self.nothing_to_send && metrics.in_flight() < metrics.cwnd())
            }
        }
    }

    /// Whether the next segment may be one without data.
    #[inline]
    pub(crate) fn may_send_without_data(&self) -> bool {
        let due = self.receiver.is_ack_requested() | self.sender.may_send_without_data();
        due || !self.common.may_send()
    }

    /// Finds out whether there is nothing to send, whatever the windows allow, until something happens.
    #[inline(always)]
    pub(crate) fn find_nothing_to_send(&mut self, metrics: &SubflowMetrics) -> bool {
        let open = !matches!(self.common.state, State::SynSent | State::SynReceived | State::Closed);
        if !self.nothing_to_send && open {
            self.update_nothing_to_send(metrics);
        }
        self.nothing_to_send
    }

    #[inline]
    fn update_nothing_to_send(&mut self, metrics: &SubflowMetrics) {
        self.nothing_to_send = !self.receiver.is_ack_requested() && self.sender.has_nothing_to_send(metrics);
    }

    /// Writes the next segment to send into `out`, until `None`. With `max_segments` > 1 data may come as a
    /// super-segment. Changes with every segment received, timeout, `push`, `close` and `request_ack`.
    #[inline]
    pub fn poll_transmit(
        &mut self,
        cx: &mut Context<'_>,
        max_segments: u32,
        out: &mut Segment<P>,
    ) -> Option<Transmit> {
        match self.common.state {
            State::SynSent | State::SynReceived => {
                return self.transmit_refusal(cx, out).or_else(|| self.transmit_syn(cx, out));
            }
            State::Closed => return self.transmit_reset(cx, out),
            _ => {}
        }
        let transmit = self.transmit_open(cx, max_segments, out);
        self.update_nothing_to_send(cx.metrics);
        transmit
    }

    /// The order of what is sent: retransmissions, new data, FIN, probes, ACK.
    #[inline(always)]
    fn transmit_open(
        &mut self,
        cx: &mut Context<'_>,
        max_segments: u32,
        out: &mut Segment<P>,
    ) -> Option<Transmit> {
        let common = &mut self.common;
        // NextSeg's order (RFC 6675 4): rule 1 is what is lost, rule 2 new data, rule 3 a hole not yet lost.
        if cx.metrics.lost_out() > 0
            && let Some(data) = self.sender.next_lost(common, cx, max_segments)
        {
            return Some(self.transmit_other_data(cx, data, out));
        }
        let sack = self.receiver.has_sack_blocks(common);
        let reserve = if sack { sack_reserve(common, cx) } else { 0 };
        if self.sender.has_new_data()
            && let Some(data) = self.sender.next_new(common, cx, max_segments, reserve)
        {
            return Some(self.transmit_data(cx, data, sack, out));
        }
        if cx.metrics.ca_state() == CaState::Recovery
            && let Some(data) = self.sender.next_forward(common, cx)
        {
            return Some(self.transmit_other_data(cx, data, out));
        }
        if self.sender.has_fin_or_probe()
            && let Some(data) = self.sender.next_fin_or_probe(common, cx)
        {
            return Some(self.transmit_other_data(cx, data, out));
        }
        if self.sender.take_window_probe() {
            return Some(self.transmit_probe(cx, out));
        }
        // An ACK of its own comes last: all that was sent before carries it.
        if self.receiver.is_ack_requested() { Some(self.transmit_ack(cx, sack, out)) } else { None }
    }

    /// Writes the TCP header of a segment at `position`, with the receiver's acknowledgement.
    #[inline(always)]
    fn write_header(&mut self, cx: &Context<'_>, position: u64, flags: Flags, segment: &mut Segment<P>) {
        let common = &mut self.common;
        let ack = self.receiver.ack_number(common);
        //= RFC 8684 3.3.1-5 nothing ever sets URG
        segment.renew(&common.tuple, common.seq(position), ack, flags.with(Flags::ACK));
        (segment.hop_limit, segment.dscp) = (cx.tcp.hop_limit, cx.tcp.dscp & 0x3f);
        self.receiver.write_ack(common, cx, segment);
        common.counters.out_segs += 1;
    }

    /// Data that isn't new, or a FIN.
    #[inline(never)]
    fn transmit_other_data(
        &mut self,
        cx: &mut Context<'_>,
        data: DataSegment<P>,
        segment: &mut Segment<P>,
    ) -> Transmit {
        let sack = self.receiver.has_sack_blocks(&self.common);
        self.transmit_data(cx, data, sack, segment)
    }

    /// A segment with data, or a FIN; with SACK blocks if there are any.
    #[inline(always)]
    fn transmit_data(
        &mut self,
        cx: &mut Context<'_>,
        data: DataSegment<P>,
        sack: bool,
        segment: &mut Segment<P>,
    ) -> Transmit {
        let DataSegment { position, tag, payload, fin, push, retransmission, part, mss } = data;
        let len = payload.len();
        if !retransmission && len > 0 {
            self.receiver.on_data_sent(cx);
        }
        let mut flags = Flags::default();
        if push {
            flags = flags.with(Flags::PSH);
        }
        if fin {
            flags = flags.with(Flags::FIN);
        }
        self.write_header(cx, position, flags, segment);
        // New data alone is ECN-capable (RFC 3168 6.1.4, 6.1.5): the receiver can drop a retransmission as
        // old without seeing its mark. And CWR goes with new data (6.1.2).
        if self.common.negotiated.ecn && !retransmission && len > 0 {
            segment.ecn = Ecn::Ect0;
            if self.sender.take_cwr() {
                segment.flags = segment.flags.with(Flags::CWR);
            }
        }
        if len > mss {
            segment.gso_size = mss as u16;
        }
        if sack {
            let shared = &cx.shared;
            let used = if len > 0 { shared.data_option_len() } else { shared.outgoing.ack_option_len };
            let timestamps = if self.common.negotiated.timestamps { TIMESTAMPS_LEN } else { 0 };
            let spare = (cx.metrics.mss as usize).saturating_sub(len.min(mss)) + timestamps;
            let room = MAX_OPTIONS.saturating_sub(usize::from(used)).min(spare);
            self.receiver.write_sack_blocks(&mut self.common, segment, room);
        }
        segment.payload = payload;
        self.common.counters.bytes_sent += len as u64;
        let kind = if len > 0 { Kind::Data } else { Kind::Ack };
        Transmit { kind, tag, ssn: position as u32, part }
    }

    /// A pure ACK.
    #[inline(always)]
    fn transmit_ack(&mut self, cx: &mut Context<'_>, sack: bool, segment: &mut Segment<P>) -> Transmit {
        let position = self.sender.next();
        self.write_header(cx, position, Flags::default(), segment);
        let room = MAX_OPTIONS.saturating_sub(usize::from(cx.shared.outgoing.ack_option_len));
        if sack {
            self.receiver.write_sack_blocks(&mut self.common, segment, room);
        }
        Transmit::control(Kind::Ack, position as u32)
    }

    /// A probe of a closed window or of a silent peer: it is unacceptable by design.
    #[cold]
    fn transmit_probe(&mut self, cx: &mut Context<'_>, segment: &mut Segment<P>) -> Transmit {
        self.common.counters.window_probes += 1;
        // The peer doesn't read the probe's options: an ACK that is due still follows.
        let ack_requested = self.receiver.is_ack_requested();
        //= RFC 9293 SHLD-12
        let una = self.sender.una();
        self.write_header(cx, una.saturating_sub(1), Flags::default(), segment);
        self.receiver.restore_ack_request(ack_requested);
        Transmit::control(Kind::Ack, una as u32)
    }

    /// A RST, if one is due.
    #[cold]
    fn transmit_reset(&mut self, cx: &mut Context<'_>, segment: &mut Segment<P>) -> Option<Transmit> {
        if !self.reset_pending {
            return None;
        }
        self.reset_pending = false;
        self.common.counters.out_rsts += 1;
        // Where the peer expects it: elsewhere it answers with a challenge ACK (RFC 5961 3.2).
        let position = self.sender.next();
        self.write_header(cx, position, Flags::RST, segment);
        segment.window = 0;
        Some(Transmit::control(Kind::Rst, position as u32))
    }

    /// A RST for an ACK of what was never sent, during the handshake (RFC 9293 3.10.7.3, 3.10.7.4).
    #[cold]
    fn transmit_refusal(&mut self, cx: &Context<'_>, segment: &mut Segment<P>) -> Option<Transmit> {
        let seq = self.handshake.refusal.take()?;
        self.common.counters.out_rsts += 1;
        // <SEQ=SEG.ACK><CTL=RST>: the number that the other end expects, so that it believes the RST.
        segment.renew(&self.common.tuple, seq, Seq(0), Flags::RST);
        (segment.hop_limit, segment.dscp) = (cx.tcp.hop_limit, cx.tcp.dscp & 0x3f);
        Some(Transmit::control(Kind::Rst, 0))
    }
}
