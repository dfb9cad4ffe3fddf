//! The options of Multipath TCP on the segments that are sent (RFC 8684 3.1 to 3.7).

use ropewalk_wire::{
    Dss, DssMapping, MAX_OPTIONS, MpFail, MpFastClose, MpPrio, MpTcpRst, Payload, RemoveAddr, Segment,
};

use super::handshake::Handshake;
use super::path_manager::{PathManager, REMOVE_ADDR_LEN};
use super::send::SendSide;
use super::subflow::Subflow;
use super::subflow_fallback::Fallback;
use crate::Time;
use crate::tcp::{Kind, Transmit};

/// The checksum of a mapping of this payload.
#[inline(never)]
fn checksum_of<P: Payload>(payload: &P, dsn: u64, ssn: u32, wire_len: u16) -> u16 {
    let sum = payload.ones_complement_sum();
    sum.map_or(0, |sum| ropewalk_wire::checksum::dss_checksum(dsn, ssn, wire_len, sum))
}

/// The MPTCP options, beside the DSS, that wait for a segment without data: the bytes that each takes,
/// padding included; 0: it doesn't wait. A new one is a field here, is set in [`OptionWriter::owed`], counted
/// in [`Owed::len`], written in [`OptionWriter::write_control_options`], and keeps
/// [`OptionWriter::control_len`] from its short way.
#[derive(Clone, Copy)]
struct Owed {
    prio: usize,
    fail: usize,
    echo: usize,
    announcement: usize,
    removals: usize,
}

impl Owed {
    /// The bytes that the next segment is to have room for: an announcement waits for the echoes.
    fn len(self) -> usize {
        let addresses = if self.echo > 0 { self.echo } else { self.announcement };
        self.prio + self.fail + addresses + self.removals
    }
}

/// Writes the options of one segment.
pub(super) struct OptionWriter<'a, P> {
    pub now: Time,
    pub handshake: &'a mut Handshake<P>,
    pub send: &'a SendSide<P>,
    pub path_manager: &'a mut PathManager,
    /// What a DATA_ACK acknowledges, as an offset.
    pub received: u64,
}

impl<P: Payload> OptionWriter<'_, P> {
    /// Bytes of options on the subflow's next segment that carries no data, so that TCP leaves them room.
    #[inline]
    pub fn control_len(&self, subflow: &Subflow<P>) -> u8 {
        let established = subflow.is_joined() && self.handshake.is_confirmed();
        let silent =
            subflow.prio_pending.is_none() && subflow.fallback.is_none() && self.path_manager.is_silent();
        if established && silent && self.handshake.is_multipath() {
            self.handshake.ack_only_len()
        } else {
            self.long_control_len(subflow)
        }
    }

    /// The same where more than a DATA_ACK may be due: what `write_control_options` writes.
    #[cold]
    fn long_control_len(&self, subflow: &Subflow<P>) -> u8 {
        if let Some(len) = self.handshake.control_len(subflow.join, self.send.assigned_end() == 0) {
            return len as u8;
        }
        let fallback = subflow.fallback.as_deref();
        if let Some(mapping) = fallback.and_then(Fallback::due_mapping) {
            return Dss { mapping: Some(mapping), ..Dss::default() }.padded_len() as u8;
        }
        let len = usize::from(self.handshake.ack_only_len()) + self.owed(subflow).len();
        len.min(MAX_OPTIONS) as u8
    }

    /// What waits to be sent on this subflow.
    fn owed(&self, subflow: &Subflow<P>) -> Owed {
        let addresses = &*self.path_manager;
        let if_so = |waits: bool, len: usize| if waits { len } else { 0 };
        Owed {
            prio: if_so(subflow.prio_pending.is_some(), MpPrio::PADDED_LEN),
            fail: if_so(subflow.fallback.as_deref().is_some_and(Fallback::has_fail), MpFail::LEN),
            echo: addresses.next_echo().map_or(0, |echo| (echo.len() + 3) & !3),
            // The longest that may be due; timestamps give way to it.
            announcement: if_so(addresses.has_due_announcement(self.now), addresses.announcement_len()),
            removals: if_so(addresses.has_removals(), REMOVE_ADDR_LEN),
        }
    }

    /// Writes them. `control_len`: the bytes that they take on an ACK without data.
    #[inline]
    pub fn write(
        &mut self,
        subflow: &mut Subflow<P>,
        control_len: u8,
        // By reference: a copy would wait until the processor has stored what was just written.
        transmit: &Transmit,
        segment: &mut Segment<P>,
    ) {
        let kind = transmit.kind;
        //= RFC 8684 3.7-15 3.7-16
        if self.handshake.is_plain() {
            if kind == Kind::Ack {
                Self::write_plain_options(subflow, segment);
            }
            return;
        }
        // No `match`: its jump table is mispredicted where data and ACKs alternate.
        if kind == Kind::Data {
            self.write_data_options(transmit, segment);
        } else if kind == Kind::Ack {
            self.write_ack_options(subflow, control_len, segment);
        } else if kind == Kind::Rst {
            self.write_reset_options(subflow, segment);
        } else {
            self.handshake.write_syn_options(subflow, kind, segment);
        }
    }

    /// The answer to MP_FAIL (RFC 8684 3.7): the infinite mapping, and on another ACK, as both don't fit
    /// beside timestamps, MP_FAIL in return.
    #[cold]
    fn write_plain_options(subflow: &mut Subflow<P>, segment: &mut Segment<P>) {
        let Some(fallback) = subflow.fallback.as_mut() else { return };
        if let Some(mapping) = fallback.take_due_mapping() {
            segment.sack.truncate(0);
            segment.dss = Some(Dss { mapping: Some(mapping), ..Dss::default() });
            subflow.tcp.request_ack();
        } else if fallback.has_answered()
            && let Some(dsn) = fallback.take_fail()
        {
            segment.sack.truncate(0);
            segment.rare_mut().mp_fail = Some(MpFail { dsn });
        }
    }

    #[cold]
    fn write_reset_options(&self, subflow: &mut Subflow<P>, segment: &mut Segment<P>) {
        segment.timestamps = None;
        if let (true, Some(receiver_key)) = (subflow.fastclose, self.handshake.fastclose_key()) {
            //= RFC 8684 3.5-a
            segment.rare_mut().mp_fastclose = Some(MpFastClose { receiver_key });
            return;
        }
        if let Some(dsn) = subflow.fallback.as_mut().and_then(|fallback| fallback.take_fail()) {
            segment.rare_mut().mp_fail = Some(MpFail { dsn });
        }
        if let Some(reason) = subflow.reset_reason {
            segment.rare_mut().mp_tcprst = Some(MpTcpRst { transient: false, reason: reason.code() });
        }
    }

    fn write_data_options(&self, transmit: &Transmit, segment: &mut Segment<P>) {
        let Transmit { tag, ssn, .. } = *transmit;
        //= RFC 8684 3.3.1-1 3.3.1-14 3.7-2 each segment has its own, which follows from where its bytes stand
        // A part comes again with the mapping of the whole. (With checksums there are only whole ones, see
        // `coalesce`; where the path's MTU fell, the part is checked on its own.)
        if let Some((lead, mapped)) = transmit.part
            && !self.handshake.has_checksums()
        {
            let (tag, ssn) = (tag - u64::from(lead), ssn.wrapping_sub(u32::from(lead)));
            self.write_rare_mapping(tag, ssn, usize::from(mapped), segment);
        } else {
            self.write_mapping(tag, ssn, segment.payload.len(), segment);
        }
    }

    #[inline(never)]
    fn write_rare_mapping(&self, tag: u64, ssn: u32, len: usize, segment: &mut Segment<P>) {
        self.write_mapping(tag, ssn, len, segment);
    }

    /// The mapping of `len` bytes.
    #[inline(always)]
    fn write_mapping(&self, tag: u64, ssn: u32, len: usize, segment: &mut Segment<P>) {
        let dsn = self.handshake.dsn(tag);
        let at_end = tag + len as u64 == self.send.written() && len < 65_535;
        let fin = self.send.closed() && at_end && !self.send.fin_alone();
        let first = ssn == 1 && tag == 0 && self.handshake.owes_keys();
        let wire_len = (len + usize::from(fin && !first)).min(65_535) as u16;
        //= RFC 8684 3.3.1-c
        let checksum = if self.handshake.has_checksums() {
            Some(checksum_of(&segment.payload, dsn, ssn, wire_len))
        } else {
            None
        };
        if first {
            self.handshake.write_first_data_options(wire_len, checksum, segment);
            return;
        }
        segment.dss = Some(Dss {
            data_ack: self.handshake.data_ack(self.received),
            ack_is_64: self.handshake.ack_is_64(),
            //= RFC 8684 3.3.1-11
            mapping: Some(DssMapping {
                dsn,
                ssn,
                len: wire_len,
                checksum,
                dsn_is_64: self.handshake.dsn_is_64(),
            }),
            data_fin: fin,
        });
    }

    #[inline]
    fn write_ack_options(&mut self, subflow: &mut Subflow<P>, control_len: u8, segment: &mut Segment<P>) {
        // Nothing but a DATA_ACK is to be said, and SACK has left room for it.
        let usual = control_len == self.handshake.ack_only_len() && !self.send.closed();
        let room = segment.sack.len() <= if self.handshake.ack_is_64() { 1 } else { 2 };
        if usual && room && segment.timestamps.is_some() {
            segment.dss = Some(self.handshake.dss_ack(self.received));
        } else {
            self.write_control_options(subflow, segment);
        }
    }

    #[inline(never)]
    fn write_control_options(&mut self, subflow: &mut Subflow<P>, segment: &mut Segment<P>) {
        if subflow.fallback.as_deref().and_then(Fallback::due_mapping).is_some() {
            // Our part of the fallback, while the peer's is still to come.
            Self::write_plain_options(subflow, segment);
            return;
        }
        let (unassigned, closed) = (self.send.assigned_end() == 0, self.send.closed());
        if self.handshake.write_ack_options(subflow, (unassigned, closed), segment) {
            return;
        }
        let control = self.owed(subflow).len() > 0;
        let prio = subflow.prio_pending.take();
        let fail = subflow.fallback.as_mut().and_then(|fallback| fallback.take_fail());
        let mut dss = self.handshake.dss_ack(self.received);
        let fin = self.send.closed() && !self.send.fin_acked() && self.send.unsent() == 0;
        // DATA_FIN takes the space of any other option, so that it is sent on an ACK of its own after this
        // one.
        if fin && !control {
            //= RFC 8684 3.3.3-1
            // DATA_FIN without data: a mapping of length 1 with subflow sequence 0 (RFC 8684 3.3.3).
            let dsn = self.handshake.dsn(self.send.written());
            let checksum =
                self.handshake.has_checksums().then(|| ropewalk_wire::checksum::dss_checksum(dsn, 0, 1, 0));
            dss.mapping =
                Some(DssMapping { dsn, ssn: 0, len: 1, checksum, dsn_is_64: self.handshake.dsn_is_64() });
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
        } else if self.path_manager.has_due_announcement(self.now) {
            // Beside ADD_ADDR with its HMAC SACK gives way, then the DATA_ACK. Timestamps have to be on every
            // segment (RFC 7323 3.2) and go only where ADD_ADDR alone leaves no room: an IPv6 address with a
            // port.
            segment.sack.truncate(0);
            if let Some(option) = self.path_manager.due_announcement(self.now) {
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
        if (fin && control) || self.owed(subflow).len() > 0 {
            subflow.tcp.request_ack();
        }
    }
}
