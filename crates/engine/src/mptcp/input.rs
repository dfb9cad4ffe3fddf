//! Segments in: options are classified first, then TCP's processing, then what the options and the data mean
//! at connection level (RFC 8684 3.1 to 3.4).

use ropewalk_wire::{Dss, DssMapping, Flags, Payload, RareOptions, Segment};

use super::close_reason::{CloseReason, Interference};
use super::connection::Connection;
use super::retransmit::DataAcked;
use super::stats::FallbackCause;
use super::subflow::Subflow;
use crate::metrics::SubflowStatus;
use crate::scheduler;
use crate::tcp::{Outcome, Outgoing, State};
use crate::{SubflowId, Time};

impl<P: Payload> Connection<P> {
    /// A segment arrived that is probably for subflow `index`. If that is predicted for it, it is processed:
    /// its payload is taken out. Otherwise this returns false, and [`on_segment`](Self::on_segment) is called
    /// for the subflow that receives it.
    // Runs once per segment. With two callers the compiler would no longer inline it.
    #[inline(always)]
    pub(crate) fn on_predicted_segment(&mut self, now: Time, index: usize, segment: &mut Segment<P>) -> bool {
        let Some(subflow) = self.subflows.get(index) else { return false };
        // What waits to be reinjected may be sent after any segment, whatever it acknowledges.
        let reinjects = self.send.has_reinjections();
        if !self.handshake.is_multipath() || reinjects || !subflow.is_predicted(segment) {
            return false;
        }
        self.process_segment::<true>(now, index, segment);
        true
    }

    /// A segment for subflow `index` arrived that isn't predicted; its payload is taken out.
    #[inline(never)]
    pub(crate) fn on_segment(&mut self, now: Time, index: usize, segment: &mut Segment<P>) {
        self.process_segment::<false>(now, index, segment);
        if self.handshake.has_early_data() {
            for mut segment in self.handshake.take_early_data() {
                self.on_segment(now, index, &mut segment);
            }
        }
    }

    /// The way of every segment. `PREDICTED` answers questions, which are left out; it changes no rule.
    // A function of its own: what its callers keep in registers would be spilled again and again.
    #[inline(never)]
    fn process_segment<const PREDICTED: bool>(&mut self, now: Time, index: usize, segment: &mut Segment<P>) {
        let had_data = !segment.payload.is_empty();
        // Data may overtake the third ACK, and without its keys a DSS says nothing (RFC 8684 3.1).
        if !PREDICTED && self.keep_early_data(now, index, segment) {
            return;
        }
        // MPTCP 0.8x and 0.9x read options before `tcp_ack` (`mptcp_handle_options`), Linux after it.
        if self.config.data_ack_first {
            self.on_early_data_ack::<PREDICTED>(now, index, segment);
        }
        let Some(isn) = self.subflows.get(index).map(|subflow| subflow.tcp.peer_isn()) else { return };
        let mapping = self.handshake.mapping_of(segment, isn, self.receive.next());
        let Some((mut cx, subflow)) = self.split(now, index, Outgoing::default()) else { return };
        let (state, rcv_nxt) = (subflow.tcp.state(), subflow.tcp.rcv_nxt());
        // Filled in where it stays: a copy of what was just written stalls.
        let mut outcome = Outcome::default();
        subflow.tcp.on_segment::<PREDICTED>(&mut cx, segment, mapping, &mut outcome);
        // A predicted segment is no SYN.
        let flags = if PREDICTED { Flags::ACK } else { segment.flags };
        let window = subflow.tcp.window_in(flags, segment.window);
        self.may_transmit |= !PREDICTED;
        let goes_on = if PREDICTED {
            outcome.acceptable
        } else {
            self.on_options(now, index, segment, &outcome, (state, had_data))
        };
        if !goes_on {
            self.may_transmit = true;
            return;
        }
        if let Some(dss) = &segment.dss
            && (PREDICTED || self.handshake.is_multipath())
        {
            self.on_dss(now, index, dss, window, (mapping.is_some(), had_data));
        }
        if self.handshake.is_plain() {
            let sent_mapping = segment.dss.and_then(|dss| dss.mapping).filter(|_| had_data);
            // A peer that still sends mappings repeats data by its own rules: here that would be new bytes.
            let contradicts = sent_mapping.is_some_and(|mapping| {
                let offset = self.handshake.offset_of(&mapping, self.receive.next());
                let subflow = self.subflows.get(index).zip(offset);
                subflow.is_some_and(|(subflow, at)| {
                    let fallback = subflow.fallback().filter(|_| mapping.len > 0);
                    fallback.is_some_and(|fallback| fallback.contradicts(mapping.ssn, at, rcv_nxt))
                })
            });
            if contradicts {
                self.refuse(now, index, CloseReason::Middlebox(Interference::MappingAfterFallback));
                return;
            }
            // An ACK that was overtaken has an old window (RFC 9293 3.10.7.4, SND.WL2).
            let is_latest =
                self.subflows.get(index).is_some_and(|subflow| subflow.tcp.is_latest_ack(segment.ack));
            self.on_plain_tcp_ack(now, index, is_latest.then_some(window));
        }
        if !PREDICTED && outcome.established {
            // The third ACK may carry data: the subflow is usable before that is delivered.
            self.on_established(now, index);
        }
        self.on_delivery(now, index, &outcome);
        if PREDICTED && !segment.payload.is_empty() {
            let data = std::mem::take(&mut segment.payload);
            let mut moved = false;
            if self.deliver(now, index, (rcv_nxt, data, mapping), &mut moved) && moved {
                self.after_receive(now, index);
            }
        } else if outcome.data {
            self.take_in_order(now, index);
        }
        // The FIN stands behind the segment's data.
        if outcome.fin {
            self.on_fin(now, index);
        }
        if outcome.acked_segments > 0 {
            self.wake();
            // As `tcp_check_space` does: ACKs let the send buffer grow while a writer waits for space.
            if self.send.writer_waits() {
                self.sending().expand_send_buffer(index);
            } else if self.send.una() == self.send.written() {
                self.sending().release_memory();
            }
        }
        if !PREDICTED || outcome.fin {
            self.remove_if_finished(now, index);
        } else {
            self.check_closed(now);
        }
        if let Some((subflow, metrics)) = self.subflows.both_mut(index) {
            self.may_transmit |= !subflow.tcp.find_nothing_to_send(metrics);
        }
    }

    /// Resets, handshakes, the options of which most segments have none, and what the want of a DSS means.
    /// Returns false if that is all that there is to the segment. `before`: the subflow's state, and whether
    /// there was data.
    #[inline(never)]
    fn on_options(
        &mut self,
        now: Time,
        index: usize,
        segment: &Segment<P>,
        outcome: &Outcome,
        before: (State, bool),
    ) -> bool {
        let rare = segment.rare.as_deref();
        let (state, had_data) = before;
        // First of all: TCP has accepted it (RFC 5961 3.2), whatever its options say.
        if outcome.reset {
            self.on_reset(now, index, rare, state);
            return false;
        }
        //= RFC 8684 3-3 3.4.1-1 3.4.2-6
        // REMOVE_ADDR, MP_PRIO and MP_FAIL have no HMAC: sequence numbers are all that protects them.
        if !outcome.acceptable {
            return false;
        }
        if state == State::SynSent && !self.on_syn_ack(now, index, rare, outcome.established) {
            return false;
        }
        if self.handshake.is_negotiating() && state == State::SynReceived {
            //= RFC 8684 3.1-9 3.1-28 3.1-29
            // Without the keys nothing can be verified.
            if !self.handshake.on_third_ack(rare.and_then(|rare| rare.mp_capable)) {
                self.fall_back(now, FallbackCause::NoOptionsInHandshake);
            }
        }
        // Options of a join are ignored until its sender has proved that it has the keys.
        if !self.subflows.get(index).is_some_and(Subflow::is_joined)
            && !self.on_join_progress(now, index, segment, rare)
        {
            return false;
        }
        if let Some(rare) = rare
            // A SYN's options belong to the handshake.
            && !segment.flags.contains(Flags::SYN)
            && !self.on_rare(now, index, rare, had_data)
        {
            return false;
        }
        // Options that leave no room for a DSS show that options still pass. Our own ACKs rely on the same
        // rule (`write_control_options`).
        let is_crowded = rare.is_some_and(RareOptions::crowds_out_dss);
        let ended = self.receive.finished();
        let is_plain = segment.dss.is_none() && self.handshake.is_multipath() && !is_crowded;
        if is_plain && self.subflows.is_failing() {
            // The peer may have fallen back. Its infinite mapping has to say so, and until then nothing is
            // delivered. After a FIN none will come.
            if outcome.fin {
                self.give_up_failing(now, index);
            }
            return !outcome.fin;
        }
        if is_plain && self.sending().shows_fallback(segment, outcome, ended) {
            // Something on the way strips options, or the peer fell back (RFC 8684 3.7).
            // Plain TCP can go on only where the subflow's bytes are the stream's, in the same order.
            if !self.is_contiguous() {
                //= RFC 8684 3.7-3 3.7-4
                self.refuse(now, index, CloseReason::Middlebox(Interference::NoDataAck));
                return false;
            }
            //= RFC 8684 3.7-5
            self.fall_back(now, FallbackCause::NoMapping);
        }
        true
    }

    /// What a subflow has found to be delivered or lost.
    #[inline(always)]
    pub(super) fn on_delivery(&mut self, now: Time, index: usize, outcome: &Outcome) {
        if outcome.acked_segments > 0 {
            if let Some((subflow, metrics)) = self.subflows.both_mut(index) {
                subflow.on_acknowledged();
                // As in Linux, an answer makes a stale subflow active again (`mptcp_subflow_active`).
                if metrics.state == SubflowStatus::Stale {
                    metrics.state = SubflowStatus::Usable;
                }
            }
            if self.scheduling.wants_acks() {
                self.sending().notify_acknowledged(now, index, outcome.acked_segments);
            }
        }
        if outcome.lost_segments > 0 {
            let (subflow, segments) = (SubflowId(index as u8), outcome.lost_segments);
            self.sending().notify(now, scheduler::Event::Lost { subflow, segments });
            self.wake();
        }
    }

    /// Options that only control segments carry; false if the subflow is gone.
    #[cold]
    pub(crate) fn on_rare(&mut self, now: Time, index: usize, rare: &RareOptions, had_data: bool) -> bool {
        // MP_JOIN is part of the handshake (`on_join_progress`), MP_TCPRST only counts on a RST (`on_reset`).
        let RareOptions {
            mss: _,
            window_scale: _,
            sack_permitted: _,
            mp_capable,
            mp_join: _,
            add_addr,
            remove_addr,
            mp_prio,
            mp_fail,
            mp_fastclose,
            mp_tcprst: _,
        } = rare;
        // Before the next question: after our own fallback the peer repeats it if our answer was lost.
        if mp_fail.is_some() {
            self.on_fail(now, index);
        }
        if self.handshake.is_plain() {
            return true;
        }
        if let Some(capable) = mp_capable {
            // The first data comes with MP_CAPABLE in place of a DSS (RFC 8684 3.1).
            let has_mapping = had_data && self.handshake.is_multipath() && capable.data_len.is_some();
            let is_longer = self.handshake.dsn_is_64() && !self.handshake.ack_is_64();
            if has_mapping && is_longer {
                self.match_dsn_length(now, true);
            }
        }
        if let Some(prio) = mp_prio
            && let Some((subflow, metrics)) = self.subflows.both_mut(index)
        {
            //= RFC 8684 3.3.8-2
            subflow.on_prio(prio.backup);
            metrics.backup = subflow.is_backup();
            self.wake();
        }
        if let Some(add) = add_addr {
            self.on_add_addr(now, add);
        }
        if let Some(remove) = remove_addr {
            self.on_remove_addr(now, &remove.address_ids);
        }
        // On an ACK (RFC 8684 3.5, option A). Linux sends it on RSTs, which `on_reset` sees.
        if let Some(fastclose) = mp_fastclose
            // The key shows that it isn't from an attacker off the path.
            && self.handshake.is_our_key(fastclose.receiver_key)
        {
            self.on_fastclose();
            return false;
        }
        true
    }

    /// Data sequence signals.
    #[inline(always)]
    fn on_dss(
        &mut self,
        now: Time,
        index: usize,
        dss: &Dss,
        window: u64,
        (is_mapped, has_data): (bool, bool),
    ) {
        //= RFC 8684 3.3.2-3 3.3.2-6
        if let Some(ack) = dss.data_ack {
            // The peer can't know our DSNs without the keys: they have arrived (RFC 8684 3.1).
            if !self.handshake.is_confirmed() {
                self.on_confirmed(now);
            }
            // The window of the same segment: another's may be larger.
            let acked = self.handshake.acked_offset(ack, dss.ack_is_64, self.send.una());
            // As on most segments with data, neither is news.
            if !self.send.is_repeated(acked, window) && self.send.may_acknowledge(acked) {
                self.on_data_ack(now, acked, Some(window));
            }
        }
        let Some(mapping) = &dss.mapping else {
            return;
        };
        // The TCP receiver has already taken this mapping, with the segment's data.
        if is_mapped && !dss.data_fin && mapping.dsn_is_64 == self.handshake.ack_is_64() {
            return;
        }
        self.on_mapping(now, index, dss, mapping, has_data);
    }

    /// The DATA_ACK of a segment whose subflow's acknowledgement is yet to be processed
    /// ([`data_ack_first`](crate::config::ConnectionConfig::data_ack_first)): data is given to subflows as if
    /// nothing had left them.
    #[cold]
    fn on_early_data_ack<const PREDICTED: bool>(&mut self, now: Time, index: usize, segment: &Segment<P>) {
        let Some(dss) = &segment.dss else { return };
        let Some(ack) = dss.data_ack else { return };
        let Some(subflow) = self.subflows.get(index) else { return };
        if !self.handshake.is_multipath()
            || !self.handshake.is_confirmed()
            || !subflow.is_joined()
            || !(PREDICTED || subflow.tcp.may_accept(segment))
        {
            return;
        }
        let window = subflow.tcp.window_in(segment.flags, segment.window);
        let acked = self.handshake.acked_offset(ack, dss.ack_is_64, self.send.una());
        if !self.send.is_repeated(acked, window) && self.send.may_acknowledge(acked) {
            self.on_data_ack(now, acked, Some(window));
        }
        // An ACK that wakes the application sends before that writes.
        self.send.set_spaced(!self.send.writer_waits());
        self.wake();
        self.scheduling.set_by_window(self.config.subflow_windows);
        while self.sending().schedule_next(now, 1).is_some() {}
        self.scheduling.set_by_window(false);
        self.sending().measure_queues();
        self.may_transmit = true;
    }

    /// A mapping that doesn't travel with data, or has a DATA_FIN or another length of DSN.
    #[inline(never)]
    fn on_mapping(&mut self, now: Time, index: usize, dss: &Dss, mapping: &DssMapping, has_data: bool) {
        let Some(offset) = self.handshake.offset_of(mapping, self.receive.next()) else { return };
        //= RFC 8684 3.7-a
        if mapping.len == 0 {
            // Some peers put an empty mapping on ACKs. Without data it counts as the answer to our MP_FAIL
            // only.
            if !has_data && !self.subflows.is_failing() {
                return;
            }
            if !self.subflows.is_alone() {
                // A peer falls back only where there was never another subflow: something on the way did
                // this.
                self.refuse(now, index, CloseReason::Middlebox(Interference::InfiniteMapping));
                return;
            }
            self.on_infinite(now, index, offset, mapping);
            return;
        }
        //= RFC 8684 3.3-2 3.3-3 3.3-4
        if mapping.checksum.is_some() != self.handshake.has_checksums() {
            self.refuse(now, index, CloseReason::ChecksumNotAsNegotiated);
            return;
        }
        // Before the stream's first byte: it isn't of this stream.
        if offset > 1 << 62 {
            return;
        }
        if mapping.dsn_is_64 != self.handshake.ack_is_64() {
            self.match_dsn_length(now, mapping.dsn_is_64);
        }
        if dss.data_fin {
            // DATA_FIN counts as the mapping's last octet, and is no byte of the segment (RFC 8684 3.3.3).
            let data_len = mapping.len - 1;
            let is_news = self.receive.note_fin(offset + u64::from(data_len));
            self.after_receive(now, index);
            if data_len == 0 {
                // A DATA_FIN alone is acknowledged at once, and again when it comes again: our
                // acknowledgement was lost. While data before it is missing a repeat says nothing: two ends
                // that both wait for data would answer each other's DATA_FINs for ever.
                if (is_news || self.receive.finished())
                    && let Some(subflow) = self.subflows.get_mut(index)
                {
                    subflow.tcp.request_ack();
                }
            }
        }
    }

    /// Everything up to `acked` is acknowledged. `window`: relative to it, if it is news.
    fn on_data_ack(&mut self, now: Time, acked: u64, window: Option<u64>) {
        let DataAcked { wakes, fin } = self.sending().on_data_ack(now, acked, window);
        if wakes {
            self.wake();
        }
        if fin {
            self.check_closed(now);
        }
    }

    //= RFC 8684 3.7-14
    /// In plain TCP the subflow's own acknowledgement is the connection's. `window` is that of a segment that
    /// acknowledges all that any has.
    #[inline(never)]
    pub(super) fn on_plain_tcp_ack(&mut self, now: Time, index: usize, window: Option<u64>) {
        let Some(subflow) = self.subflows.get(index) else { return };
        let una = subflow.tcp.snd_una();
        let outstanding: u64 =
            subflow.tcp.outstanding().next().map_or(self.send.assigned_end(), |(tag, _)| tag);
        // Before our SYN is acknowledged nothing else is.
        if una >= 1 {
            self.on_data_ack(now, outstanding.max(self.send.una()), window);
        }
    }
}
