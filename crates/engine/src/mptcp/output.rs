//! Segments out: what subflows must send, then reinjections, then what the scheduler chooses; each with the options
//! that Multipath TCP adds (RFC 8684 3.1 to 3.7).

use ropewalk_wire::{
    Dss, DssMapping, FastClose, MAX_OPTIONS, MpCapable, MpFail, MpJoin, MpPrio, MpTcpRst, Payload,
    RemoveAddr, Segment,
};

use super::connection::{Connection, Mode, Role};
use super::crypto::{join_hmac, leftmost_64, leftmost_160};
use super::path_manager::REMOVE_ADDR_LEN;
use super::subflow::{Join, Subflow};
use crate::tcp::{Kind, State, Transmit};
use crate::{Nanos, PathId};

/// The checksum of a mapping of this payload.
#[inline(never)]
fn checksum_of<P: Payload>(payload: &P, dsn: u64, ssn: u32, wire_len: u16) -> u16 {
    let sum = payload.ones_complement_sum();
    sum.map_or(0, |sum| ropewalk_wire::checksum::dss_checksum(dsn, ssn, wire_len, sum))
}

impl<P: Payload> Connection<P> {
    /// Writes the next segment to send into `out` and returns the path for it, until `None`.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Nanos,
        max_segments: u32,
        out: &mut Segment<P>,
    ) -> Option<PathId> {
        if !self.may_transmit {
            return None;
        }
        let max_segments = self.most_segments(max_segments);
        let sent = self.transmit_pending(now, max_segments, out).map(|(path, _)| path);
        let sent = sent.or_else(|| self.transmit_scheduled(now, max_segments, out).map(|(path, _)| path));
        if sent.is_none() {
            self.on_nothing_to_send(now);
        }
        sent
    }

    /// As [`poll_transmit`](Self::poll_transmit) until there is nothing more, each segment handed to `carry`.
    #[inline(always)]
    pub(crate) fn transmit_all(
        &mut self,
        now: Nanos,
        max_segments: u32,
        out: &mut Box<Segment<P>>,
        mut carry: impl FnMut(PathId, &mut Box<Segment<P>>),
    ) {
        if !self.may_transmit {
            return;
        }
        let max_segments = self.most_segments(max_segments);
        loop {
            while let Some((path, last)) = self.transmit_pending(now, max_segments, out) {
                carry(path, out);
                if last {
                    break;
                }
            }
            let again = loop {
                match self.transmit_scheduled(now, max_segments, out) {
                    // No subflow has anything to send of its own.
                    Some((path, true)) => carry(path, out),
                    Some((path, false)) => {
                        carry(path, out);
                        break true;
                    }
                    None => break false,
                }
            };
            if !again {
                break;
            }
        }
        self.on_nothing_to_send(now);
    }

    /// A checksum covers a whole mapping, and a part that is lost must come again with the same: one segment each.
    #[inline]
    fn most_segments(&self, max_segments: u32) -> u32 {
        if self.negotiated.checksum { 1 } else { max_segments }
    }

    /// Schedules new data or a reinjection, and sends it. The flag says that the subflow has nothing else to send.
    // Runs once per segment. With two callers the compiler would no longer inline it.
    #[inline(always)]
    fn transmit_scheduled(
        &mut self,
        now: Nanos,
        max_segments: u32,
        out: &mut Segment<P>,
    ) -> Option<(PathId, bool)> {
        if self.life.terminated || (!self.scheduling.needs_schedule && self.send.reinjections.is_empty()) {
            return None;
        }
        while let Some(index) = self.schedule_next(now, max_segments) {
            if max_segments > 1 {
                self.coalesce(now, index, max_segments);
            }
            if let Some(sent) = self.transmit_on(now, index, max_segments, out) {
                self.last_sent_on = index;
                return Some(sent);
            }
        }
        None
    }

    /// There is nothing more to send: arms timers, and notes which subflows are application-limited.
    #[inline(always)]
    fn on_nothing_to_send(&mut self, now: Nanos) {
        self.may_transmit = false;
        if self.scheduling.undecided {
            // The subflows aren't idle: the decision follows at this moment.
            return;
        }
        if self.mode == Mode::Plain && self.send.unsent() > 0 && self.send.window_left() == 0 {
            self.await_window(now);
        }
        // Data that waits for the peer's window in plain TCP isn't the application's fault.
        if self.mode == Mode::Multipath || self.send.unsent() == 0 {
            for (subflow, metrics) in self.subflows.iter_mut().zip(&self.metrics) {
                if metrics.packets_out > 0
                    && let Some(subflow) = subflow
                {
                    subflow.tcp.check_app_limited(metrics);
                }
            }
        }
        if self.deadlines.retransmit.is_none() && self.awaits_data_ack() {
            self.arm_meta(now);
        }
    }

    /// The peer's window is closed in plain TCP, where subflows probe it.
    #[cold]
    fn await_window(&mut self, now: Nanos) {
        for index in 0..self.subflows.len() {
            if let Some((cx, subflow)) = self.split(now, index) {
                subflow.tcp.await_window(&cx);
            }
        }
    }

    /// What the subflows have to send of themselves, in turn; and whether it is known that none has more.
    #[inline(always)]
    fn transmit_pending(
        &mut self,
        now: Nanos,
        max_segments: u32,
        out: &mut Segment<P>,
    ) -> Option<(PathId, bool)> {
        // Usually there is none. Of several, the one that sent last continues.
        let count = self.subflows.len();
        let after = |index: usize| if index + 1 < count { index + 1 } else { 0 };
        let mut index = if self.last_sent_on < count { self.last_sent_on } else { 0 };
        for left in (0..count).rev() {
            if self.may_have_output(index)
                && let (Some(Some(subflow)), Some(metrics)) =
                    (self.subflows.get_mut(index), self.metrics.get(index))
                && subflow.tcp.has_output(metrics)
                && let Some((path, quiet)) = self.transmit_on(now, index, max_segments, out)
            {
                self.last_sent_on = index;
                let others = std::iter::successors(Some(after(index)), |index| Some(after(*index)));
                let last = quiet && !others.take(left).any(|index| self.may_have_output(index));
                return Some((path, last));
            }
            index = after(index);
        }
        None
    }

    /// Whether a subflow may have something to send.
    #[inline]
    fn may_have_output(&self, index: usize) -> bool {
        matches!(self.subflows.get(index), Some(Some(subflow)) if !subflow.tcp.has_nothing_to_send())
    }

    /// Sends the next segment of subflow `index`. Also returns whether the subflow then has nothing more to send.
    #[inline(never)]
    fn transmit_on(
        &mut self,
        now: Nanos,
        index: usize,
        max_segments: u32,
        out: &mut Segment<P>,
    ) -> Option<(PathId, bool)> {
        let subflow = self.subflows[index].as_ref()?;
        if subflow.join == Join::Held && subflow.tcp.state() != State::Closed {
            return None;
        }
        let mut control_len = subflow.control_len;
        if self.mode != Mode::Plain && subflow.tcp.may_send_without_data() {
            control_len = self.control_len(now, subflow);
        }
        let (mut cx, subflow) = self.split_to_send(now, index, control_len)?;
        subflow.control_len = control_len;
        let transmit = subflow.tcp.poll_transmit(&mut cx, max_segments, out);
        let transmit = transmit.as_ref()?;
        let window = subflow.tcp.advertised_window();
        self.write_options(now, index, control_len, transmit, window, out);
        let quiet = self.subflows[index].as_ref().is_none_or(|subflow| subflow.tcp.has_nothing_to_send());
        Some((self.metrics[index].path, quiet))
    }

    /// Bytes of options on the subflow's next segment that carries no data, so that TCP leaves them room.
    #[inline]
    fn control_len(&self, now: Nanos, subflow: &Subflow<P>) -> u8 {
        let established = subflow.is_joined() && self.negotiated.confirmed;
        let silent = subflow.prio_pending.is_none()
            && subflow.fail_pending.is_none()
            && subflow.infinite.is_none()
            && self.path_manager.is_silent();
        if established && silent && self.mode == Mode::Multipath {
            self.ack_only_len()
        } else {
            self.long_control_len(now, subflow)
        }
    }

    /// The same where more than a DATA_ACK may be due: what `write_control_options` writes.
    #[cold]
    fn long_control_len(&self, now: Nanos, subflow: &Subflow<P>) -> u8 {
        match subflow.join {
            Join::SynSent => return MpJoin::SYN_LEN as u8,
            Join::SynReceived => return MpJoin::SYN_ACK_LEN as u8,
            Join::Held | Join::AckSent => return MpJoin::ACK_LEN as u8,
            Join::Initial if self.mode == Mode::Negotiating => return MpCapable::SYN_ACK_LEN as u8,
            Join::Initial
                if !self.negotiated.confirmed
                    && self.role == Role::Client
                    && self.send.assigned_end() == 0 =>
            {
                return MpCapable::ACK_LEN as u8;
            }
            _ => {}
        }
        if let Some((mapping, true)) = subflow.infinite {
            return Dss { mapping: Some(mapping), ..Dss::default() }.padded_len() as u8;
        }
        let mut len = usize::from(self.ack_only_len());
        if subflow.prio_pending.is_some() {
            len += MpPrio::PADDED_LEN;
        }
        if subflow.fail_pending.is_some() {
            len += MpFail::LEN;
        }
        if let Some(echo) = self.path_manager.next_echo() {
            len += (echo.len() + 3) & !3;
        } else if self.path_manager.has_due_announcement(now) {
            // The longest that may be due; timestamps give way to it.
            len += self.path_manager.announcement_len();
        }
        if self.path_manager.has_removals() {
            len += REMOVE_ADDR_LEN;
        }
        len.min(MAX_OPTIONS) as u8
    }

    /// A DSS that has only a DATA_ACK.
    #[inline]
    pub(super) fn dss_ack(&self) -> Dss {
        Dss { data_ack: self.data_ack(), ack_is_64: self.negotiated.ack_is_64, ..Dss::default() }
    }

    fn data_ack(&self) -> Option<u64> {
        let remote = self.negotiated.remote_key?;
        Some(remote.idsn.wrapping_add(1).wrapping_add(self.receive.ack()))
    }

    /// Writes the options of Multipath TCP. `control_len`: the bytes that they take on an ACK without data; `window`: what the
    /// subflow advertised last.
    #[inline]
    fn write_options(
        &mut self,
        now: Nanos,
        index: usize,
        control_len: u8,
        // By reference: a copy would wait until the processor has stored what was just written.
        transmit: &Transmit,
        window: u64,
        segment: &mut Segment<P>,
    ) {
        let kind = transmit.kind;
        // The window that was advertised is relative to what is acknowledged at connection level; the field is
        // rounded to its unit and has 16 bits, so that the peer may know of less than there is.
        let is_common = matches!(kind, Kind::Ack | Kind::Data);
        let window = if is_common { window } else { u64::from(segment.window) };
        let buffer = &mut self.receive.buffer;
        buffer.advertised_end = buffer.advertised_end.max(buffer.next + window);
        //= RFC 8684 3.7-15 3.7-16
        if self.mode == Mode::Plain {
            if kind == Kind::Ack {
                self.write_plain_options(index, segment);
            }
            return;
        }
        // No `match`: its jump table is mispredicted where data and ACKs alternate.
        if kind == Kind::Data {
            self.write_data_options(transmit, segment);
        } else if kind == Kind::Ack {
            self.write_ack_options(now, index, control_len, segment);
        } else if kind == Kind::Rst {
            self.write_reset_options(index, segment);
        } else {
            self.write_syn_options(index, kind, segment);
        }
    }

    /// The answer to MP_FAIL (RFC 8684 3.7): the infinite mapping, and on another ACK, as both don't fit beside
    /// timestamps, MP_FAIL in return.
    #[cold]
    fn write_plain_options(&mut self, index: usize, segment: &mut Segment<P>) {
        let Some(subflow) = self.subflows[index].as_mut() else { return };
        let Some((mapping, due)) = subflow.infinite.as_mut() else { return };
        if *due {
            *due = false;
            segment.sack.truncate(0);
            segment.dss = Some(Dss { mapping: Some(*mapping), ..Dss::default() });
            subflow.tcp.request_ack();
        } else if let Some(dsn) = subflow.fail_pending.take() {
            segment.sack.truncate(0);
            segment.rare_mut().mp_fail = Some(MpFail { dsn });
        }
    }

    #[cold]
    fn write_syn_options(&mut self, index: usize, kind: Kind, segment: &mut Segment<P>) {
        let Some(subflow) = self.subflows[index].as_ref() else { return };
        match subflow.join {
            Join::Initial => {
                //= RFC 8684 3.9.3-1
                // A path that drops SYNs with the option gets one without (Linux: from the third try on).
                if kind == Kind::Syn && subflow.tcp.syn_retransmissions() > 2 {
                    return;
                }
                //= RFC 8684 3.1-a
                let sender_key = (kind == Kind::SynAck).then_some(self.negotiated.local_key.key);
                //= RFC 8684 3.1-1 3.1-12 3.1-15 3.1-16 every flag that isn't named is 0
                segment.rare_mut().mp_capable = Some(MpCapable {
                    version: 1,
                    checksum_required: self.negotiated.checksum,
                    hmac_sha256: true,
                    sender_key,
                    ..MpCapable::default()
                });
            }
            Join::SynSent => {
                let token = self.negotiated.remote_key.map_or(0, |key| key.token);
                segment.rare_mut().mp_join = Some(MpJoin::Syn {
                    backup: subflow.backup_local,
                    address_id: subflow.local_id,
                    token,
                    nonce: subflow.local_nonce,
                });
            }
            Join::SynReceived => {
                //= RFC 8684 3.2-3
                let remote = self.negotiated.remote_key.map_or(0, |key| key.key);
                let hmac = join_hmac(
                    self.negotiated.local_key.key,
                    remote,
                    subflow.local_nonce,
                    subflow.remote_nonce,
                );
                segment.rare_mut().mp_join = Some(MpJoin::SynAck {
                    backup: subflow.backup_local,
                    address_id: subflow.local_id,
                    hmac: leftmost_64(&hmac),
                    nonce: subflow.local_nonce,
                });
            }
            Join::Held | Join::AckSent | Join::Joined => {}
        }
    }

    #[cold]
    fn write_reset_options(&mut self, index: usize, segment: &mut Segment<P>) {
        let remote_key = self.negotiated.remote_key;
        let Some(subflow) = self.subflows[index].as_mut() else { return };
        segment.timestamps = None;
        if let (true, Some(remote)) = (subflow.fastclose, remote_key) {
            //= RFC 8684 3.5-a
            segment.rare_mut().fastclose = Some(FastClose { receiver_key: remote.key });
            return;
        }
        if let Some(dsn) = subflow.fail_pending.take() {
            segment.rare_mut().mp_fail = Some(MpFail { dsn });
        }
        if let Some(reason) = subflow.reset_reason {
            segment.rare_mut().mp_tcprst = Some(MpTcpRst { transient: false, reason: reason.code() });
        }
    }

    fn write_data_options(&mut self, transmit: &Transmit, segment: &mut Segment<P>) {
        let Transmit { tag, ssn, .. } = *transmit;
        //= RFC 8684 3.3.1-1 3.3.1-14 3.7-2 each segment has its own, which follows from where its bytes stand
        // A part comes again with the mapping of the whole. (With checksums there are only whole ones, see `coalesce`;
        // where the path's MTU fell, the part is checked on its own.)
        if let Some((lead, mapped)) = transmit.part
            && !self.negotiated.checksum
        {
            let (tag, ssn) = (tag - u64::from(lead), ssn.wrapping_sub(u32::from(lead)));
            self.write_rare_mapping(tag, ssn, usize::from(mapped), segment);
        } else {
            self.write_mapping(tag, ssn, segment.payload.len(), segment);
        }
    }

    #[inline(never)]
    fn write_rare_mapping(&mut self, tag: u64, ssn: u32, len: usize, segment: &mut Segment<P>) {
        self.write_mapping(tag, ssn, len, segment);
    }

    /// The mapping of `len` bytes.
    #[inline(always)]
    fn write_mapping(&mut self, tag: u64, ssn: u32, len: usize, segment: &mut Segment<P>) {
        let dsn = self.negotiated.local_key.idsn.wrapping_add(1).wrapping_add(tag);
        let at_end = tag + len as u64 == self.send.written() && len < 65_535;
        let fin = self.send.closed() && at_end && !self.send.fin_alone();
        let first = !self.negotiated.confirmed && ssn == 1 && tag == 0 && self.role == Role::Client;
        let wire_len = (len + usize::from(fin && !first)).min(65_535) as u16;
        //= RFC 8684 3.3.1-c
        let checksum = if self.negotiated.checksum {
            Some(checksum_of(&segment.payload, dsn, ssn, wire_len))
        } else {
            None
        };
        if first {
            self.write_first_data_options(wire_len, checksum, segment);
            return;
        }
        segment.dss = Some(Dss {
            data_ack: self.data_ack(),
            ack_is_64: self.negotiated.ack_is_64,
            //= RFC 8684 3.3.1-11
            mapping: Some(DssMapping { dsn, ssn, len: wire_len, checksum, dsn_is_64: true }),
            data_fin: fin,
        });
    }

    /// The first data of the client carries both keys (RFC 8684 3.1).
    #[cold]
    fn write_first_data_options(&self, wire_len: u16, checksum: Option<u16>, segment: &mut Segment<P>) {
        //= RFC 8684 3.1-8 3.1-c
        segment.rare_mut().mp_capable = Some(MpCapable {
            version: 1,
            checksum_required: self.negotiated.checksum,
            hmac_sha256: true,
            sender_key: Some(self.negotiated.local_key.key),
            receiver_key: self.negotiated.remote_key.map(|key| key.key),
            data_len: Some(wire_len),
            checksum,
            ..MpCapable::default()
        });
    }

    #[inline]
    fn write_ack_options(&mut self, now: Nanos, index: usize, control_len: u8, segment: &mut Segment<P>) {
        // Nothing but a DATA_ACK is to be said, and SACK has left room for it.
        let usual = control_len == self.ack_only_len() && !self.send.closed();
        let room = segment.sack.len() <= if self.negotiated.ack_is_64 { 1 } else { 2 };
        if usual && room && segment.timestamps.is_some() {
            segment.dss = Some(self.dss_ack());
        } else {
            self.write_control_options(now, index, segment);
        }
    }

    #[inline(never)]
    fn write_control_options(&mut self, now: Nanos, index: usize, segment: &mut Segment<P>) {
        let local_key = self.negotiated.local_key;
        let remote_key = self.negotiated.remote_key;
        let Some(subflow) = self.subflows[index].as_mut() else { return };
        if matches!(subflow.infinite, Some((_, true))) {
            // Our part of the fallback, while the peer's is still to come.
            self.write_plain_options(index, segment);
            return;
        }
        match subflow.join {
            Join::AckSent => {
                let remote = remote_key.map_or(0, |key| key.key);
                let hmac = join_hmac(local_key.key, remote, subflow.local_nonce, subflow.remote_nonce);
                segment.rare_mut().mp_join = Some(MpJoin::Ack { hmac: leftmost_160(&hmac) });
                return;
            }
            Join::Initial
                if !self.negotiated.confirmed
                    && self.role == Role::Client
                    && self.send.assigned_end() == 0
                    && !std::mem::take(&mut self.negotiated.keys_precede) =>
            {
                // A DATA_FIN has no room beside the keys: it follows.
                if self.send.closed() {
                    self.negotiated.keys_precede = true;
                    subflow.tcp.request_ack();
                }
                let checksum_required = self.negotiated.checksum;
                segment.rare_mut().mp_capable = Some(MpCapable {
                    version: 1,
                    checksum_required,
                    hmac_sha256: true,
                    sender_key: Some(local_key.key),
                    receiver_key: remote_key.map(|key| key.key),
                    ..MpCapable::default()
                });
                return;
            }
            Join::SynSent | Join::Held | Join::SynReceived => return,
            _ => {}
        }
        let prio = subflow.prio_pending.take();
        let fail = subflow.fail_pending.take();
        let mut dss = self.dss_ack();
        let control = prio.is_some()
            || fail.is_some()
            || self.path_manager.next_echo().is_some()
            || self.path_manager.has_removals()
            || self.path_manager.has_due_announcement(now);
        let fin = self.send.closed() && !self.send.fin_acked() && self.send.unsent() == 0;
        // DATA_FIN takes the space of any other option, so that it is sent on an ACK of its own after this one.
        if fin && !control {
            //= RFC 8684 3.3.3-1
            // DATA_FIN without data: a mapping of length 1 with subflow sequence 0 (RFC 8684 3.3.3).
            let dsn = local_key.idsn.wrapping_add(1).wrapping_add(self.send.written());
            let checksum =
                self.negotiated.checksum.then(|| ropewalk_wire::checksum::dss_checksum(dsn, 0, 1, 0));
            dss.mapping = Some(DssMapping { dsn, ssn: 0, len: 1, checksum, dsn_is_64: true });
            dss.data_fin = true;
        }
        let left =
            |segment: &Segment<P>| MAX_OPTIONS.saturating_sub(segment.options_len() + dss.padded_len());
        if prio.is_some() && left(segment) >= MpPrio::PADDED_LEN {
            segment.rare_mut().mp_prio = prio.map(|backup| MpPrio { backup });
        }
        if let Some(dsn) = fail {
            segment.sack.truncate(0);
            segment.rare_mut().mp_fail = Some(MpFail { dsn });
        } else if let Some(echo) = self.path_manager.next_echo().copied() {
            // The longest fits beside timestamps and MP_PRIO. SACK gives way to it, then the DATA_ACK.
            self.path_manager.on_echo_sent();
            segment.rare_mut().add_addr = Some(echo);
        } else if self.path_manager.has_due_announcement(now) {
            // Beside ADD_ADDR with its HMAC SACK gives way, then the DATA_ACK. Timestamps have to be on every segment (RFC 7323
            // 3.2) and go only where ADD_ADDR alone leaves no room: an IPv6 address with a port.
            segment.sack.truncate(0);
            if let Some(option) = self.path_manager.due_announcement(now) {
                let len = (option.len() + 3) & !3;
                if len + segment.options_len() > MAX_OPTIONS {
                    segment.timestamps = None;
                }
                segment.rare_mut().add_addr = Some(option);
            }
        } else if self.path_manager.has_removals() && left(segment) >= REMOVE_ADDR_LEN {
            let address_ids = self.path_manager.take_removals();
            segment.rare_mut().remove_addr = Some(RemoveAddr { address_ids });
        }
        while segment.options_len() + dss.padded_len() > MAX_OPTIONS && !segment.sack.is_empty() {
            segment.sack.truncate(segment.sack.len() - 1);
        }
        if !dss.is_empty() && segment.options_len() + dss.padded_len() <= MAX_OPTIONS {
            segment.dss = Some(dss);
        }
        let more = (fin && control)
            || self.path_manager.next_echo().is_some()
            || self.path_manager.has_removals()
            || self.path_manager.has_due_announcement(now);
        if more && let Some(subflow) = self.subflows[index].as_mut() {
            subflow.tcp.request_ack();
        }
    }
}
