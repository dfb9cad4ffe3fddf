//! Segments in: options first told apart, then TCP's processing, then what the options and the data mean at
//! connection level (RFC 8684 3.1 to 3.4).

use ropewalk_wire::{Dss, DssMapping, Flags, MpJoin, Payload, RareOptions, Segment, Seq};

use super::connection::{Connection, Failing, Join, Mode, Role, Strand};
use super::control::JOIN_RETRIES;
use super::crypto::{Key, join_hmac, leftmost_64, leftmost_160};
use super::mapping::{Mapping, Placed};
use super::stats::{Event, FallbackCause};
use crate::metrics::SubflowStatus;
use crate::scheduler;
use crate::tcp::{Outcome, State};
use crate::{Nanos, SubflowId};

impl<P: Payload> Connection<P> {
    /// A segment for subflow `index` arrived; its payload and options are taken out.
    #[inline]
    pub(crate) fn on_segment(&mut self, now: Nanos, index: usize, segment: &mut Segment<P>) {
        if !self.go_straight(now, index, segment) {
            self.on_any_segment(now, index, segment);
        }
    }

    /// Of whatever kind it is.
    #[inline(never)]
    fn on_any_segment(&mut self, now: Nanos, index: usize, segment: &mut Segment<P>) {
        let dss = segment.dss.take();
        let rare = segment.rare.take();
        // The subflow reads its SYN's options from `rare`, and of other segments whether there are any.
        segment.rare = rare.clone();
        let had_data = !segment.payload.is_empty();
        let negotiating = self.mode == Mode::Negotiating;
        let Some((mut cx, strand)) = self.split(now, index) else { return };
        let before = strand.tcp.state();
        let capable = rare.as_deref().is_some_and(|rare| rare.mp_capable.is_some());
        if before == State::SynReceived
            && strand.join == Join::Initial
            && dss.is_some()
            && !capable
            && negotiating
        {
            // It overtook the segment with the keys, or that one was lost: as good as lost itself, it comes again.
            return;
        }
        let rcv_before = strand.tcp.rcv_nxt();
        strand.part_mappings();
        let outcome = strand.tcp.on_segment(&mut cx, segment);
        let window = strand.tcp.window_in(segment.flags, segment.window);
        let is_latest = strand.tcp.is_latest_ack(segment.ack);
        self.dirty = true;
        if outcome.reset {
            self.on_reset(now, index, rare.as_deref());
            return;
        }
        //= RFC 8684 3-3 3.4.1-1 3.4.2-6
        if !outcome.acceptable {
            return;
        }
        if before == State::SynSent && !self.on_syn_ack(now, index, rare.as_deref(), outcome.established) {
            return;
        }
        if self.mode == Mode::Negotiating && before == State::SynReceived {
            self.on_third_ack(now, index, rare.as_deref());
        }
        // Nothing that a join says counts before its sender has proved that it has the keys.
        let joined = |strand: &Strand<P>| matches!(strand.join, Join::Initial | Join::Joined);
        if !self.strands[index].as_ref().is_some_and(joined)
            && !self.on_join_progress(now, index, segment, rare.as_deref())
        {
            return;
        }
        if let Some(rare) = rare.as_deref()
            && !segment.flags.contains(Flags::SYN)
            && !self.on_rare(now, index, rare, rcv_before, had_data)
        {
            return;
        }
        // Neither leaves room for a DSS, and both show that options still pass: ADD_ADDR, and a third ACK that is repeated.
        let instead = rare.as_ref().is_some_and(|rare| rare.add_addr.is_some() || rare.mp_capable.is_some());
        if dss.is_none() && self.mode == Mode::Multipath && !instead && self.shows_fallback(segment, &outcome)
        {
            // Something on the way strips options, or the peer fell back (RFC 8684 3.7).
            if !self.is_contiguous() {
                //= RFC 8684 3.7-3 3.7-4
                self.refuse(now, index, 6, "acknowledgements without DATA_ACK");
                return;
            }
            //= RFC 8684 3.7-5
            self.fall_back(now, FallbackCause::NoMapping);
        }
        if let Some(dss) = dss {
            self.on_dss(now, index, &dss, rcv_before, window);
        }
        if self.mode == Mode::Plain {
            self.plain_acknowledge(now, index, is_latest.then_some(window));
        }
        self.after_tcp(now, index, &outcome);
    }

    /// What follows from a segment once the subflow and the connection have heard its acknowledgements.
    #[inline]
    pub(super) fn after_tcp(&mut self, now: Nanos, index: usize, outcome: &Outcome) {
        self.note_outcome(now, index, outcome);
        if outcome.data {
            self.take_in_order(now, index);
        }
        if outcome.fin {
            self.on_fin(now, index);
        }
        if outcome.acked_segments > 0 {
            self.wake();
            if self.send.writer_waits {
                self.expand_send_buffer(index);
            }
        }
        self.settle(now, index);
    }

    /// Whether an acceptable segment without DSS shows that the peer, or something on the way, has left Multipath
    /// TCP: it acknowledges data without a DATA_ACK, ends the stream without a DATA_FIN, or is all that answers a
    /// DATA_FIN time and again.
    #[cold]
    fn shows_fallback(&self, segment: &Segment<P>, outcome: &Outcome) -> bool {
        let waits_for_fin_ack = self.send.closed
            && !self.send.fin_acked
            && self.send.una == self.send.written
            && self.meta_backoff >= 2
            && !segment.flags.contains(Flags::SYN);
        outcome.acked_bytes > 0
            || (outcome.fin && !self.receive.finished)
            || (outcome.data && self.is_failing())
            || waits_for_fin_ack
    }

    /// Subflows that aren't closed.
    pub(crate) fn live(&self) -> usize {
        let open = self.strands.iter().zip(&self.metrics);
        open.filter(|(strand, metrics)| strand.is_some() && metrics.state != SubflowStatus::Closed).count()
    }

    /// A packet of subflow `index` was too big for its path.
    #[cold]
    pub(crate) fn on_too_big(&mut self, now: Nanos, index: usize, seq: Seq, mtu: u32) {
        if let Some((mut cx, strand)) = self.split(now, index)
            && strand.tcp.on_too_big(&mut cx, seq, mtu)
        {
            self.wake();
        }
    }

    /// After TCP processing: states, the scheduler's events, reinjection, timers.
    #[inline]
    pub(crate) fn note_outcome(&mut self, now: Nanos, index: usize, outcome: &Outcome) {
        if outcome.established {
            self.on_established(now, index);
        }
        if outcome.acked_segments > 0 {
            self.note_acknowledged(now, index, outcome.acked_segments);
        }
        if outcome.lost_segments > 0 {
            let (subflow, segments) = (SubflowId(index as u8), outcome.lost_segments);
            self.notify(now, scheduler::Event::Lost { subflow, segments });
            self.wake();
        }
        if outcome.timeout {
            self.on_subflow_timeout(now, index);
        }
        if outcome.failed {
            self.remove(now, index, "too many retransmission timeouts");
        }
    }

    /// So many segments of a subflow were acknowledged.
    #[inline]
    fn note_acknowledged(&mut self, now: Nanos, index: usize, segments: u32) {
        if let Some(strand) = self.strands[index].as_mut() {
            strand.timeouts = 0;
        }
        if self.metrics[index].state == SubflowStatus::Stale {
            self.metrics[index].state = SubflowStatus::Usable;
        }
        self.notify(now, scheduler::Event::Acked { subflow: SubflowId(index as u8), segments });
    }

    /// A subflow's retransmission timer fired: what it carries is reinjected on the others (RFC 8684 3.3.6).
    #[cold]
    fn on_subflow_timeout(&mut self, now: Nanos, index: usize) {
        self.notify(now, scheduler::Event::Timeout(SubflowId(index as u8)));
        self.wake();
        if self.mode != Mode::Multipath {
            return;
        }
        let Some(strand) = self.strands[index].as_mut() else { return };
        strand.timeouts += 1;
        let others = self.metrics.iter().any(|metrics| metrics.id.index() != index && metrics.usable());
        if !others
            || !matches!(
                self.metrics[index].state,
                SubflowStatus::Usable | SubflowStatus::Stale | SubflowStatus::Closing
            )
        {
            return;
        }
        let stale = strand.timeouts >= 2;
        //= RFC 8684 3.3.6-a 3.3.6-1 the subflow repeats it as well
        for (offset, len) in strand.tcp.outstanding() {
            self.send.reinject(offset..offset + u64::from(len));
        }
        if stale && self.metrics[index].state == SubflowStatus::Usable {
            self.metrics[index].state = SubflowStatus::Stale;
        }
    }

    /// The handshake of a subflow is complete at TCP level.
    #[cold]
    fn on_established(&mut self, now: Nanos, index: usize) {
        let Some(strand) = self.strands[index].as_ref() else { return };
        if strand.join != Join::Initial {
            return;
        }
        let tuple = strand.tcp.tuple();
        self.make_usable(now, index);
        let multipath = self.mode == Mode::Multipath;
        self.events.push_back(match self.role {
            Role::Client => Event::Connected { multipath },
            Role::Server => Event::Accepted { tuple, multipath },
        });
        if self.mode == Mode::Plain {
            let window = self.strands[index].as_ref().map(|strand| strand.tcp.peer_window());
            self.plain_acknowledge(now, index, window);
            self.check_closed(now);
        } else {
            // Until the first DATA_ACK, the window of the handshake counts.
            self.send.peer_window = self.strands[index].as_ref().map_or(0, |strand| strand.tcp.peer_window());
            self.send.window_end = self.send.una + self.send.peer_window;
            if self.role == Role::Server {
                self.announce(now);
            }
        }
    }

    /// The subflow may carry data from now on.
    #[cold]
    pub(crate) fn make_usable(&mut self, now: Nanos, index: usize) {
        self.metrics[index].state = SubflowStatus::Usable;
        self.congestion.subflow_added(&mut self.metrics, index, now);
        self.notify(now, scheduler::Event::SubflowAdded(SubflowId(index as u8)));
        let path = self.metrics[index].path;
        self.dismiss_leaving(now, index);
        if let Some(strand) = self.strands[index].as_mut() {
            // Either side's wish makes it a backup (RFC 8684 3.3.8).
            self.metrics[index].backup = strand.backup_local || strand.backup_remote;
            let tuple = strand.tcp.tuple();
            if strand.join != Join::Initial {
                strand.join = Join::Joined;
                self.events.push_back(Event::SubflowAdded { subflow: SubflowId(index as u8), path, tuple });
            }
        }
        self.wake();
    }

    /// The SYN/ACK of our SYN; false if the subflow is gone.
    #[cold]
    fn on_syn_ack(
        &mut self,
        now: Nanos,
        index: usize,
        rare: Option<&RareOptions>,
        established: bool,
    ) -> bool {
        let Some(strand) = self.strands[index].as_mut() else { return false };
        match strand.join {
            Join::Initial => {
                if self.mode != Mode::Negotiating {
                    return true;
                }
                let capable = rare.and_then(|rare| rare.mp_capable).filter(|capable| {
                    capable.version == 1
                        && capable.hmac_sha256
                        && !capable.extensibility
                        && capable.sender_key.is_some()
                });
                match capable {
                    Some(capable) if established => {
                        self.remote_key = capable.sender_key.map(Key::new);
                        //= RFC 8684 3.1-22 3.1-23
                        self.checksum |= capable.checksum_required;
                        self.deny_join = capable.deny_join_initial_address;
                        self.mode = Mode::Multipath;
                    }
                    //= RFC 8684 3.1-26 3.7-1 6-1
                    _ => self.fall_back(now, FallbackCause::NoMpCapable),
                }
                true
            }
            Join::SynSent => {
                let (Some(remote), Some(MpJoin::SynAck { backup, address_id, hmac, nonce })) =
                    (self.remote_key, rare.and_then(|rare| rare.mp_join))
                else {
                    //= RFC 8684 3.2-10 3.2-11 3.2-12
                    // The peer or a middlebox doesn't know the option (RFC 8684 3.2: reset).
                    self.refuse(now, index, 1, "the SYN/ACK had no MP_JOIN");
                    return false;
                };
                let expected = join_hmac(remote.key, self.local_key.key, nonce, strand.local_nonce);
                //= RFC 8684 3.2-8 3.9.3-2
                if leftmost_64(&expected) != hmac {
                    self.stats.join_hmac_failures += 1;
                    self.refuse(now, index, 1, "the HMAC of the SYN/ACK was wrong");
                    return false;
                }
                strand.remote_nonce = nonce;
                //= RFC 8684 3.2-1 3.4.1-3
                strand.remote_id = address_id;
                strand.backup_remote = backup;
                //= RFC 8684 3.2-5
                strand.join = Join::AckSent;
                strand.tcp.request_ack();
                self.arm_control(now);
                true
            }
            _ => true,
        }
    }

    /// The third ACK of a connection that we accepted.
    #[cold]
    fn on_third_ack(&mut self, now: Nanos, index: usize, rare: Option<&RareOptions>) {
        let capable = rare.and_then(|rare| rare.mp_capable);
        match capable {
            Some(capable) if capable.receiver_key == Some(self.local_key.key) => {
                if let Some(key) = capable.sender_key {
                    self.remote_key = Some(Key::new(key));
                    self.mode = Mode::Multipath;
                    self.confirmed = true;
                    self.checksum |= capable.checksum_required;
                    if let Some(strand) = self.strands[index].as_mut() {
                        // Says DATA_ACK at once: the client then knows that its third ACK arrived.
                        strand.tcp.request_ack();
                    }
                }
            }
            //= RFC 8684 3.1-9 3.1-28 3.1-29
            // Without the keys nothing can be verified.
            _ => self.fall_back(now, FallbackCause::NoOptionsInHandshake),
        }
    }

    /// The MP_JOIN handshake beyond its SYN/ACK; false if the subflow is gone.
    #[cold]
    fn on_join_progress(
        &mut self,
        now: Nanos,
        index: usize,
        segment: &Segment<P>,
        rare: Option<&RareOptions>,
    ) -> bool {
        let Some(strand) = self.strands[index].as_mut() else { return false };
        match strand.join {
            Join::SynReceived => {
                let Some(remote) = self.remote_key else { return false };
                let Some(MpJoin::Ack { hmac }) = rare.and_then(|rare| rare.mp_join) else {
                    //= RFC 8684 3.2-10 3.2-11 3.2-12
                    self.refuse(now, index, 1, "the third ACK had no MP_JOIN");
                    return false;
                };
                let expected =
                    join_hmac(remote.key, self.local_key.key, strand.remote_nonce, strand.local_nonce);
                //= RFC 8684 3.2-10 3.9.3-2
                if leftmost_160(&expected) != hmac {
                    self.stats.join_hmac_failures += 1;
                    self.refuse(now, index, 1, "the HMAC of the third ACK was wrong");
                    return false;
                }
                //= RFC 8684 3.2-4
                strand.tcp.request_ack();
                if self.joined() >= usize::from(self.config.path_manager.subflows) {
                    // Others were faster.
                    self.refuse(now, index, 3, "the limit of subflows is reached");
                    return false;
                }
                self.make_usable(now, index);
                true
            }
            Join::AckSent if !segment.flags.contains(Flags::SYN) => {
                self.make_usable(now, index);
                true
            }
            _ => true,
        }
    }

    /// Data sequence signals.
    fn on_dss(&mut self, now: Nanos, index: usize, dss: &Dss, rcv_before: u64, window: u64) {
        if self.mode != Mode::Multipath {
            return;
        }
        //= RFC 8684 3.3.2-3 3.3.2-6
        if let Some(ack) = dss.data_ack {
            if !self.confirmed {
                self.on_confirmed(now);
            }
            self.on_data_ack(now, ack, dss.ack_is_64, window);
        }
        let Some(mapping) = dss.mapping else {
            return;
        };
        let Some(remote) = self.remote_key else { return };
        //= RFC 8684 3.7-a
        if mapping.len == 0 {
            if self.strands.len() > 1 {
                // A peer falls back only where there was never another subflow: something on the way did this.
                self.refuse(now, index, 6, "an infinite mapping among several subflows");
                return;
            }
            self.on_infinite(now, index, remote.idsn, &mapping);
            return;
        }
        //= RFC 8684 3.3-2 3.3-3 3.3-4
        if mapping.checksum.is_some() != self.checksum {
            self.refuse(now, index, 1, "a mapping whose checksum is not as negotiated");
            return;
        }
        let offset = self.data_offset(remote.idsn, mapping.dsn, mapping.dsn_is_64);
        if offset > 1 << 62 {
            return;
        }
        if mapping.dsn_is_64 != self.ack_is_64 {
            self.answer_in_kind(now, mapping.dsn_is_64);
        }
        let len = u32::from(mapping.len);
        let data_len = len - u32::from(dss.data_fin);
        if dss.data_fin {
            let is_news = self.receive.note_fin(offset + u64::from(data_len));
            self.after_receive(now, index);
            if data_len == 0 {
                // A DATA_FIN alone is acknowledged at once, and again when it comes again: our acknowledgement was
                // lost. While data before it is missing a repeat says nothing: two ends that both wait for data
                // would answer each other's DATA_FINs for ever.
                if (is_news || self.receive.finished)
                    && let Some(strand) = self.strands[index].as_mut()
                {
                    strand.tcp.request_ack();
                }
                return;
            }
        }
        self.add_mapping(index, &mapping, offset, data_len, rcv_before);
    }

    /// An infinite mapping: the peer fell back (RFC 8684 3.7).
    #[cold]
    fn on_infinite(&mut self, now: Nanos, index: usize, idsn: u64, mapping: &DssMapping) {
        let offset = self.data_offset(idsn, mapping.dsn, mapping.dsn_is_64);
        if let Some(strand) = self.strands[index].as_mut() {
            let position = Seq(mapping.ssn).unfold(strand.tcp.rcv_nxt());
            strand.plain_rx_base = Some(position.wrapping_sub(offset));
        }
        let failed = self.is_failing();
        self.fall_back(now, if failed { FallbackCause::Checksum } else { FallbackCause::Peer });
    }

    //= RFC 8684 3.3.1-10 3.3.1-12 3.3.2-2
    //= RFC 8684 3.3.1-9 3.3.1-13 the nearest number to the one expected, of 64 bits
    /// The offset that a DSN of the peer stands for; far away if it is before the first byte.
    pub(super) fn data_offset(&self, idsn: u64, dsn: u64, is_64: bool) -> u64 {
        let first = idsn.wrapping_add(1);
        if is_64 {
            dsn.wrapping_sub(first)
        } else {
            let low = (dsn as u32).wrapping_sub(first as u32);
            Seq(low).unfold(self.receive.next)
        }
    }

    pub(crate) fn add_mapping(
        &mut self,
        index: usize,
        mapping: &DssMapping,
        offset: u64,
        data_len: u32,
        rcv_before: u64,
    ) {
        let checksum = self.checksum;
        let Some(strand) = self.strands[index].as_mut() else { return };
        let position = Seq(mapping.ssn).unfold(rcv_before);
        if position == 0 || position > 1 << 62 {
            return;
        }
        let mapping = Mapping {
            position,
            offset,
            len: data_len,
            checksum: if checksum { mapping.checksum.or(Some(0)) } else { None },
            dsn: mapping.dsn,
            wire_len: mapping.len,
        };
        strand.mappings.add(mapping, rcv_before);
    }

    /// The offset up to which a DATA_ACK acknowledges.
    #[inline]
    pub(super) fn acked_offset(&self, ack: u64, is_64: bool) -> u64 {
        let first = self.local_key.idsn.wrapping_add(1);
        if is_64 {
            ack.wrapping_sub(first)
        } else {
            Seq((ack as u32).wrapping_sub(first as u32)).unfold(self.send.una)
        }
    }

    /// DATA_ACK and the window relative to it, which is that of the same segment: another's may be larger.
    pub(super) fn on_data_ack(&mut self, now: Nanos, ack: u64, is_64: bool, window: u64) {
        let acked = self.acked_offset(ack, is_64);
        // What was written but never handed to a subflow can't have arrived: such a DATA_ACK is ignored, as by Linux.
        let end = self.send.next_offset() + u64::from(self.send.closed && self.send.unsent() == 0);
        if acked > end {
            return;
        }
        self.data_acknowledged(now, acked, Some(window));
    }

    pub(crate) fn data_acknowledged(&mut self, now: Nanos, acked: u64, window: Option<u64>) {
        if let Some(window) = window {
            //= RFC 8684 3.3.5-1 4-4 3.3.4-a relative to the DATA_ACK; the rightmost edge counts
            let edge = acked + window;
            if edge > self.send.window_end {
                let was_blocked = self.send.window_left() == 0;
                self.send.window_end = edge;
                if was_blocked {
                    if self.mode == Mode::Plain {
                        self.meta_backoff = 0;
                        self.deadlines.retransmit = None;
                    }
                    self.unblock(now);
                    self.wake();
                }
            }
            self.send.peer_window = window;
        }
        let data = acked.min(self.send.written);
        //= RFC 8684 3.3.2-4 3.3.6-2 4-1
        if self.send.acknowledge(data) > 0 {
            self.meta_backoff = 0;
            self.notify(now, scheduler::Event::DataAcked);
            self.wake();
            self.wake_writer();
            self.arm_meta(now);
        }
        if self.mode == Mode::Multipath
            && self.send.closed
            && !self.send.fin_acked
            && acked > self.send.written
        {
            self.send.fin_acked = true;
            self.deadlines.retransmit = None;
            self.check_closed(now);
        }
    }

    //= RFC 8684 3.7-14
    /// In plain TCP the subflow's own acknowledgement is the connection's. `window` is that of a segment that
    /// acknowledges all that any has.
    #[inline(never)]
    fn plain_acknowledge(&mut self, now: Nanos, index: usize, window: Option<u64>) {
        let Some(strand) = self.strands[index].as_ref() else { return };
        let una = strand.tcp.snd_una();
        let outstanding: u64 = strand.tcp.outstanding().next().map_or(self.send.assigned_end, |(tag, _)| tag);
        if una >= 1 {
            self.data_acknowledged(now, outstanding.max(self.send.una), window);
        }
    }

    //= RFC 8684 3.3.4-c
    /// Moves in-order bytes of a subflow to the connection.
    pub(crate) fn take_in_order(&mut self, now: Nanos, index: usize) {
        let mut moved = false;
        loop {
            let plain = self.mode == Mode::Plain;
            let Some(strand) = self.strands[index].as_mut() else { return };
            let Some((position, mut data, spot)) = strand.tcp.next_in_order() else { break };
            if self.receive.open(&mut strand.opening, data.len() as u64) {
                self.dirty |= strand.tcp.window_opened();
            }
            if let Some(failing) = strand.failing.as_mut() {
                failing.pieces.push(data);
                continue;
            }
            if plain {
                let next = self.receive.next;
                let base = *strand.plain_rx_base.get_or_insert(position.wrapping_sub(next));
                moved |= self.receive.insert(now, position.wrapping_sub(base), data);
                continue;
            }
            if let Some(offset) = spot.known() {
                moved |= self.receive.insert(now, offset, data);
                continue;
            }
            let mut at = position;
            loop {
                let len = data.len() as u64;
                let (placed, rest) = strand.mappings.place(at, data);
                match placed {
                    Placed::At(offset, data) => moved |= self.receive.insert(now, offset, data),
                    Placed::Held => {}
                    Placed::Corrupt(mut failing) => {
                        failing.pieces.extend(rest);
                        if moved {
                            self.after_receive(now, index);
                        }
                        self.on_corrupt(now, index, failing);
                        return;
                    }
                    Placed::Unmapped(data) => {
                        self.on_unmapped(now, index, at, data);
                        return;
                    }
                }
                match rest {
                    Some(rest) => {
                        at += len - rest.len() as u64;
                        data = rest;
                    }
                    None => break,
                }
            }
        }
        if moved {
            self.after_receive(now, index);
        }
    }

    /// In-order data or the end of the stream may have come.
    pub(super) fn after_receive(&mut self, now: Nanos, index: usize) {
        if self.closed_by_us && self.receive.ready_bytes > 0 {
            self.abort();
            return;
        }
        if self.receive.ready_bytes > 0 && !self.readable_told {
            self.readable_told = true;
            self.events.push_back(Event::Readable);
        }
        if self.receive.check_finished()
            && let Some(strand) = self.strands[index].as_mut()
        {
            strand.tcp.request_ack();
        }
        if self.receive.finished && !self.peer_closed_told {
            self.peer_closed_told = true;
            self.events.push_back(Event::PeerClosed);
            self.check_closed(now);
        }
    }

    /// A subflow's FIN: in plain TCP the end of the stream, else only of the subflow.
    #[cold]
    fn on_fin(&mut self, now: Nanos, index: usize) {
        if self.mode == Mode::Plain {
            let end = self.receive.next;
            self.receive.note_fin(end);
            self.after_receive(now, index);
            self.check_closed(now);
            return;
        }
        //= RFC 8684 3.3.3-c
        let Some(strand) = self.strands[index].as_mut() else { return };
        strand.tcp.close();
        if matches!(self.metrics[index].state, SubflowStatus::Usable | SubflowStatus::Stale) {
            self.metrics[index].state = SubflowStatus::Closing;
            let left = self.metrics.iter().any(|metrics| metrics.usable());
            let done = self.send.fin_acked && self.receive.finished;
            if !done {
                self.notify(now, scheduler::Event::SubflowRemoved(SubflowId(index as u8)));
                if left {
                    self.reinject_all(index);
                }
                self.wake();
            }
        }
    }

    /// Data without a mapping (RFC 8684 3.3, 3.7): fallback on a lone first subflow whose first data it is, else the
    /// subflow goes. In mid-stream there is no telling whether the peer still speaks Multipath TCP: if it does, it
    /// misses DATA_ACKs, and what it repeats for want of them would be taken for new bytes.
    #[cold]
    fn on_unmapped(&mut self, now: Nanos, index: usize, position: u64, data: P) {
        if !self.is_contiguous() || self.receive.next > 0 {
            //= RFC 8684 3.7-6 3.7-7 3.3.1-8
            self.refuse(now, index, 6, "data without a mapping");
            return;
        }
        self.fall_back(now, FallbackCause::NoMapping);
        let next = self.receive.next;
        let Some(strand) = self.strands[index].as_mut() else { return };
        let base = *strand.plain_rx_base.get_or_insert(position.wrapping_sub(next));
        if self.receive.insert(now, position.wrapping_sub(base), data) {
            self.after_receive(now, index);
        }
        self.take_in_order(now, index);
    }

    /// A DSS checksum failed (RFC 8684 3.7).
    #[cold]
    fn on_corrupt(&mut self, now: Nanos, index: usize, failing: Failing<P>) {
        self.stats.checksum_errors += 1;
        let dsn = failing.dsn;
        let contiguous = self.is_contiguous() && failing.offset == self.receive.next;
        if let Some(strand) = self.strands[index].as_mut() {
            //= RFC 8684 3.7-8 3.7-9 3.7-b
            strand.fail_pending = Some(dsn);
            if contiguous {
                // The peer is asked to go on as plain TCP; until it answers, nothing more is delivered.
                strand.failing = Some(failing);
                strand.tcp.request_ack();
                self.arm_control(now);
                // What is in order behind it waits with it.
                self.take_in_order(now, index);
                return;
            }
        }
        // With another subflow, or one that is being opened, this one is reset with MP_FAIL on its RST and the data
        // comes again elsewhere. Without, and with a stream that plain TCP can't continue, nothing is left.
        //= RFC 8684 3.7-11 3.7-12
        let text = match self.live() {
            1 => "a middlebox altered the data on the only subflow",
            _ => "a DSS checksum failed",
        };
        self.refuse(now, index, 6, text);
    }

    /// What a lone subflow held when the connection became plain TCP: it is delivered as it came, altered or not.
    #[cold]
    pub(crate) fn release(&mut self, now: Nanos, index: usize, failing: Failing<P>) {
        if let Some(strand) = self.strands[index].as_mut() {
            strand.plain_rx_base.get_or_insert(failing.position.wrapping_sub(failing.offset));
        }
        let mut offset = failing.offset;
        for piece in failing.pieces {
            let len = piece.len() as u64;
            self.receive.insert(now, offset, piece);
            offset += len;
        }
        self.after_receive(now, index);
    }

    /// MP_FAIL (RFC 8684 3.7): on a lone subflow that has carried everything in order, an infinite mapping that counts
    /// from the last byte that arrived intact, and MP_FAIL in return; from there on the connection is plain TCP.
    #[cold]
    pub(crate) fn on_fail(&mut self, now: Nanos, index: usize) {
        if self.mode == Mode::Plain {
            // The answer was lost.
            if let Some(strand) = self.strands[index].as_mut()
                && let Some((_, due)) = strand.infinite.as_mut()
            {
                *due = true;
                strand.tcp.request_ack();
            }
            return;
        }
        //= RFC 8684 3.7-8 3.7-9
        // It had no other subflow when it said so, but has one by now: what it waits for comes over that one.
        if self.live() > 1 || !self.is_contiguous() {
            self.refuse(now, index, 6, "the peer's checksum failed");
            return;
        }
        let una = self.send.una;
        let dsn = self.local_key.idsn.wrapping_add(1).wrapping_add(una);
        self.fall_back(now, FallbackCause::Checksum);
        if let Some(strand) = self.strands[index].as_mut() {
            //= RFC 8684 3.7-10
            let checksum = Some(0);
            // One subflow, in order, nothing repeated: the stream's first byte is the subflow's.
            let ssn = (una as u32).wrapping_add(1);
            strand.infinite = Some((DssMapping { dsn, ssn, len: 0, checksum, dsn_is_64: true }, true));
            strand.fail_pending = Some(dsn);
            strand.tcp.request_ack();
        }
    }

    //= RFC 8684 3.1-10
    /// The peer showed with a DATA_ACK or ADD_ADDR that it has both keys.
    #[cold]
    fn on_confirmed(&mut self, now: Nanos) {
        self.confirmed = true;
        if self.role == Role::Client {
            self.open_joins();
        }
        self.announce(now);
        if self.send.closed && self.send.unsent() == 0 {
            // The handshake's third ACK, or the first data, had no room for the DATA_FIN.
            self.ack_on_best();
        }
    }

    #[cold]
    fn on_reset(&mut self, now: Nanos, index: usize, rare: Option<&RareOptions>) {
        let fastclose = rare.and_then(|rare| rare.fastclose).is_some_and(|fastclose| {
            fastclose.receiver_key == self.local_key.key && self.mode == Mode::Multipath
        });
        //= RFC 8684 3.6-2
        if rare.and_then(|rare| rare.mp_tcprst).is_some_and(|reset| !reset.transient)
            && let Some(request) = self.strands[index].as_mut().and_then(|strand| strand.request.as_mut())
        {
            request.attempt = JOIN_RETRIES;
        }
        self.remove(now, index, "reset by the peer");
        if fastclose {
            for strand in self.strands.iter_mut().flatten() {
                strand.tcp.abort();
            }
            self.die("the peer closed with MP_FASTCLOSE");
        }
    }
}
