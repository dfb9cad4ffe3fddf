//! The options of Multipath TCP on the segments that are sent (RFC 8684 3.1 to 3.7).

use ropewalk_wire::{
    AddAddr, Dss, DssMapping, MAX_OPTIONS, MpFail, MpFastClose, MpPrio, MpTcpRst, Payload, RareOptions,
    RemoveAddr, Segment,
};

use super::connection::Connection;
use super::handshake::Handshake;
use super::path_manager::{PathManager, REMOVE_ADDR_LEN};
use super::send::SendSide;
use super::subflow::Subflow;
use super::subflow_fallback::Fallback;
use super::subflow_table::SubflowTable;
use crate::Time;
use crate::tcp::{Kind, Transmit};

/// The checksum of a mapping of this payload.
#[inline(never)]
fn checksum_of<P: Payload>(payload: &P, dsn: u64, ssn: u32, wire_len: u16) -> u16 {
    let sum = payload.ones_complement_sum();
    sum.map_or(0, |sum| ropewalk_wire::checksum::dss_checksum(dsn, ssn, wire_len, sum))
}

/// The MPTCP options, beside the DSS, that wait for a segment without data: the bytes that each takes,
/// padding included; `None`: it doesn't wait. A new one is a field here, set in [`OptionWriter::owed`]; what
/// it waits in also answers [`Subflow::owes_control`] or [`PathManager::is_silent`], else it is never asked
/// for.
#[derive(Clone, Copy)]
struct Owed {
    mp_prio: Option<usize>,
    mp_fail: Option<usize>,
    echo: Option<usize>,
    announcement: Option<usize>,
    remove_addr: Option<usize>,
}

/// What an ACK carries beside its DSS and MP_PRIO.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Control {
    MpFail,
    Echo,
    Announcement,
    RemoveAddr,
}

impl Owed {
    /// Which comes next, with its length: one at a time, as two don't always fit beside timestamps. MP_PRIO
    /// fits beside each.
    fn next(self) -> Option<(Control, usize)> {
        let Owed { mp_prio: _, mp_fail, echo, announcement, remove_addr } = self;
        let in_order = [
            // Nothing more is delivered until the peer has answered it (RFC 8684 3.7).
            (Control::MpFail, mp_fail),
            // The peer repeats its announcement until the echo comes (3.4.1).
            (Control::Echo, echo),
            (Control::Announcement, announcement),
            (Control::RemoveAddr, remove_addr),
        ];
        in_order.into_iter().find_map(|(control, len)| Some((control, len?)))
    }

    /// The bytes that the next segment is to have room for.
    fn len(self) -> usize {
        self.mp_prio.unwrap_or(0) + self.next().map_or(0, |(_, len)| len)
    }

    /// Whether nothing waits.
    fn is_empty(self) -> bool {
        self.mp_prio.is_none() && self.next().is_none()
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

impl<'a, P: Payload> OptionWriter<'a, P> {
    /// A connection's, and the subflows.
    #[inline(always)]
    pub fn split(connection: &'a mut Connection<P>, now: Time) -> (Self, &'a mut SubflowTable<P>) {
        let writer = OptionWriter {
            now,
            handshake: &mut connection.handshake,
            send: &connection.send,
            path_manager: &mut connection.path_manager,
            received: connection.receive.ack(),
        };
        (writer, &mut connection.subflows)
    }

    /// Bytes of options on the subflow's next segment that carries no data, so that TCP leaves them room.
    #[inline]
    pub fn control_len(&self, subflow: &Subflow<P>) -> u8 {
        let established = subflow.is_joined() && self.handshake.is_confirmed();
        let owes = subflow.owes_control() || !self.path_manager.is_silent();
        if established && !owes && self.handshake.is_multipath() {
            self.handshake.ack_only_len()
        } else {
            self.long_control_len(subflow)
        }
    }

    /// The same where more than a DATA_ACK may be due: what `write_control_options` writes.
    #[cold]
    fn long_control_len(&self, subflow: &Subflow<P>) -> u8 {
        if let Some(len) = self.handshake.control_len(subflow.join(), self.send.assigned_end() == 0) {
            return len as u8;
        }
        if let Some(mapping) = subflow.fallback().and_then(Fallback::due_mapping) {
            return Dss { mapping: Some(mapping), ..Dss::default() }.padded_len() as u8;
        }
        let len = usize::from(self.handshake.ack_only_len()) + self.owed(subflow).len();
        len.min(MAX_OPTIONS) as u8
    }

    /// What waits to be sent on this subflow.
    fn owed(&self, subflow: &Subflow<P>) -> Owed {
        let addresses = &*self.path_manager;
        Owed {
            mp_prio: subflow.pending_prio().is_some().then_some(MpPrio::PADDED_LEN),
            mp_fail: subflow.fallback().is_some_and(Fallback::has_fail).then_some(MpFail::LEN),
            echo: addresses.next_echo().map(AddAddr::padded_len),
            // The longest that may be due; timestamps give way to it.
            announcement: addresses.has_due_announcement(self.now).then(|| addresses.announcement_len()),
            remove_addr: addresses.owes_remove_addr().then_some(REMOVE_ADDR_LEN),
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
        let Some(fallback) = subflow.known_fallback_mut() else { return };
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
        if let (true, Some(receiver_key)) = (subflow.carries_fastclose(), self.handshake.fastclose_key()) {
            //= RFC 8684 3.5-a
            segment.rare_mut().mp_fastclose = Some(MpFastClose { receiver_key });
            return;
        }
        if let Some(dsn) = subflow.known_fallback_mut().and_then(Fallback::take_fail) {
            segment.rare_mut().mp_fail = Some(MpFail { dsn });
        }
        if let Some(reason) = subflow.reset_reason() {
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
        if subflow.fallback().and_then(Fallback::due_mapping).is_some() {
            // Our part of the fallback, while the peer's is still to come.
            Self::write_plain_options(subflow, segment);
            return;
        }
        let (unassigned, closed) = (self.send.assigned_end() == 0, self.send.closed());
        if self.handshake.write_ack_options(subflow, (unassigned, closed), segment) {
            return;
        }
        let owed = self.owed(subflow);
        let mut dss = self.handshake.dss_ack(self.received);
        let fin = self.send.closed() && !self.send.fin_acked() && self.send.unsent() == 0;
        // DATA_FIN takes the space of any other option, so that it is sent on an ACK of its own after this
        // one.
        if fin && owed.is_empty() {
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
        // An option that doesn't fit stays in its queue, for the next ACK.
        if let Some(backup) = subflow.pending_prio()
            && left(segment) >= MpPrio::PADDED_LEN
        {
            subflow.on_prio_sent();
            segment.rare_mut().mp_prio = Some(MpPrio { backup });
        }
        match owed.next() {
            Some((Control::MpFail, len)) => {
                segment.sack.truncate(0);
                if left(segment) >= len
                    && let Some(dsn) = subflow.known_fallback_mut().and_then(Fallback::take_fail)
                {
                    segment.rare_mut().mp_fail = Some(MpFail { dsn });
                }
            }
            Some((Control::Echo, _)) => {
                // The longest fits beside timestamps and MP_PRIO. SACK gives way to it, then the DATA_ACK.
                let echo = self.path_manager.next_echo().copied();
                self.path_manager.on_echo_sent();
                segment.rare_mut().add_addr = echo;
            }
            Some((Control::Announcement, _)) => {
                // Beside ADD_ADDR with its HMAC SACK gives way, then the DATA_ACK. Timestamps have to be on
                // every segment (RFC 7323 3.2) and go only where ADD_ADDR alone leaves no room: an IPv6
                // address with a port.
                segment.sack.truncate(0);
                if let Some(option) = self.path_manager.due_announcement(self.now) {
                    if option.padded_len() + segment.options_len() > MAX_OPTIONS {
                        segment.timestamps = None;
                    }
                    segment.rare_mut().add_addr = Some(option);
                }
            }
            Some((Control::RemoveAddr, len)) if left(segment) >= len => {
                let address_ids = self.path_manager.take_remove_addr();
                segment.rare_mut().remove_addr = Some(RemoveAddr { address_ids });
            }
            Some((Control::RemoveAddr, _)) | None => {}
        }
        while segment.options_len() + dss.padded_len() > MAX_OPTIONS && !segment.sack.is_empty() {
            segment.sack.truncate(segment.sack.len() - 1);
        }
        if !dss.is_empty() && segment.options_len() + dss.padded_len() <= MAX_OPTIONS {
            segment.dss = Some(dss);
        }
        // An ACK without a DSS tells the peer that we speak plain TCP (RFC 8684 3.7), unless it carries
        // options that leave no room for one.
        let rare = segment.rare.as_deref();
        let is_crowded = rare.is_some_and(RareOptions::crowds_out_dss);
        debug_assert!(dss.is_empty() || segment.dss.is_some() || is_crowded, "{rare:?}");
        if (fin && !owed.is_empty()) || !self.owed(subflow).is_empty() {
            subflow.tcp.request_ack();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use ropewalk_wire::{
        Flags, FourTuple, MAX_OPTIONS, MpCapable, Segment, Seq, SyntheticPayload, Timestamps,
    };

    use super::{Control, OptionWriter, Owed};
    use crate::config::ConnectionConfig;
    use crate::mptcp::Role;
    use crate::mptcp::connection::Connection;
    use crate::tcp::{Kind, Tcb, Transmit};
    use crate::{PathId, Time};

    fn tuple() -> FourTuple {
        let address = |host: u8| SocketAddr::from(([10, 0, 0, host], 80));
        FourTuple::new(address(1), address(2))
    }

    /// A client's connection after the handshake.
    fn connection() -> Connection<SyntheticPayload> {
        let config = Arc::new(ConnectionConfig { multipath: true, ..ConnectionConfig::default() });
        let mut connection = Connection::new(Role::Client, config, 1, 0);
        connection.open(Time::ZERO, PathId(0), |cx| Tcb::connect(cx, tuple(), 1500, 1));
        let capable =
            MpCapable { version: 1, hmac_sha256: true, sender_key: Some(2), ..MpCapable::default() };
        assert!(connection.handshake.on_syn_ack(Some(capable)));
        connection.handshake.confirm();
        connection
    }

    #[test]
    fn mp_prio_waits_until_it_has_room() {
        let mut connection = connection();
        connection.subflows.set_backup(PathId(0), true);
        let mut full = Segment::new(tuple(), Seq(2), Seq(2), Flags::ACK);
        full.timestamps = Some(Timestamps::default());
        assert!((0..3).all(|at| full.sack.push(at * 10, at * 10 + 5)));
        assert_eq!(full.options_len(), MAX_OPTIONS);
        let mut roomy = full.clone();
        roomy.sack.truncate(1);
        let transmit = Transmit { kind: Kind::Ack, tag: 0, ssn: 1, part: None };
        let (mut options, subflows) = OptionWriter::split(&mut connection, Time::ZERO);
        let subflow = subflows.get_mut(0).expect("the first");
        for (segment, expected) in [(&mut full, None), (&mut roomy, Some(true))] {
            let len = options.control_len(subflow);
            options.write(subflow, len, &transmit, segment);
            let prio = segment.rare.as_deref().and_then(|rare| rare.mp_prio);
            assert_eq!(prio.map(|prio| prio.backup), expected);
            assert!(segment.dss.is_some() && segment.options_len() <= MAX_OPTIONS, "{segment:?}");
        }
        assert_eq!(subflow.pending_prio(), None);
    }

    #[test]
    fn one_option_goes_at_a_time_and_room_is_kept_for_that_one() {
        let mut owed = Owed {
            mp_prio: Some(4),
            mp_fail: Some(12),
            echo: Some(8),
            announcement: Some(20),
            remove_addr: Some(8),
        };
        assert_eq!((owed.next(), owed.len()), (Some((Control::MpFail, 12)), 16));
        owed.mp_fail = None;
        assert_eq!((owed.next(), owed.len()), (Some((Control::Echo, 8)), 12));
        owed.echo = None;
        assert_eq!((owed.next(), owed.len()), (Some((Control::Announcement, 20)), 24));
        owed.announcement = None;
        assert_eq!((owed.next(), owed.len()), (Some((Control::RemoveAddr, 8)), 12));
        owed.remove_addr = None;
        assert_eq!((owed.next(), owed.len(), owed.is_empty()), (None, 4, false));
        owed.mp_prio = None;
        assert!(owed.is_empty());
    }
}
