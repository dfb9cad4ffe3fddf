//! Segments of no connection: SYNs to listeners, joins, and what is answered with RST (RFC 9293 3.10.7.1, RFC
//! 8684 3.1 and 3.2).

use std::sync::Arc;

use ropewalk_wire::{Flags, MpCapable, MpJoin, MpTcpRst, Payload, Segment, Seq};

use super::{ConnectionConfig, Endpoint, SubflowHandle, is_host};
use crate::mptcp::{Connection, Role, is_understood};
use crate::tcp::Tcb;
use crate::{Entropy, PathId, Time};

/// Most answers to segments of no connection that wait to be sent.
pub(super) const MOST_STATELESS: usize = 1024;

/// The segment's MP_CAPABLE, if it is of a kind that we speak.
pub(super) fn understood_capable<P>(segment: &Segment<P>) -> Option<MpCapable> {
    segment.rare.as_deref().and_then(|rare| rare.mp_capable).filter(is_understood)
}

impl<P: Payload, E: Entropy> Endpoint<P, E> {
    /// A segment of no connection: a SYN to a listener, a join, or a stray.
    #[cold]
    pub(super) fn on_stray(&mut self, now: Time, path: PathId, segment: &mut Segment<P>) {
        let flags = segment.flags;
        if flags.contains(Flags::RST) {
            return;
        }
        //= RFC 9293 MUST-57 MUST-63 nothing to or from such an address is answered
        if !is_host(segment.tuple.src) || !is_host(segment.tuple.dst) {
            return;
        }
        let opens = flags.contains(Flags::SYN) && !flags.contains(Flags::ACK);
        if !opens {
            if !self.on_cookie(now, path, segment) {
                self.send_reset(path, segment, None);
            }
            return;
        }
        let rare = segment.rare.as_deref();
        if let Some(MpJoin::Syn { token, .. }) = rare.and_then(|rare| rare.mp_join) {
            self.counters.join_syn_rx += 1;
            self.on_join(now, path, token, segment);
            return;
        }
        //= RFC 8684 3.2-13 a join needs no listener
        let Some(config) = self.listener(segment.tuple.destination()) else {
            self.send_reset(path, segment, None);
            return;
        };
        let is_full = self.half_open >= self.config.backlog;
        if !self.make_room(now) || (is_full && !self.config.syn_cookies) {
            self.counters.listen_overflows += 1;
            return;
        }
        self.counters.capable_syn_rx += u64::from(understood_capable(segment).is_some());
        if is_full {
            self.send_cookie(now, path, segment, config);
            return;
        }
        let key = self.fresh_key();
        let isn = self.isn(now, &segment.tuple.reversed());
        let connection = self.accept(now, path, segment, config, key, isn);
        let index = self.insert_accepted(connection, segment, true);
        self.on_changed(now, index);
    }

    /// A SYN with the four-tuple of a subflow that is over, or in TIME-WAIT and older: it makes room.
    #[cold]
    pub(super) fn on_successor(
        &mut self,
        now: Time,
        path: PathId,
        old: SubflowHandle,
        segment: &mut Segment<P>,
    ) {
        if let Some(connection) = self.slots[old.index as usize].connection.as_mut() {
            connection.end_subflow(now, usize::from(old.subflow));
            self.routes.remove(&segment.tuple);
            self.on_changed(now, old.index);
        }
        self.on_stray(now, path, segment);
    }

    /// A server's connection that answers a SYN.
    pub(super) fn accept(
        &self,
        now: Time,
        path: PathId,
        syn: &Segment<P>,
        config: Arc<ConnectionConfig>,
        key: u64,
        isn: u32,
    ) -> Box<Connection<P>> {
        let offset = self.timestamp_offset(&config, &syn.tuple.reversed());
        let mut connection = Box::new(Connection::new(Role::Server, config, key, offset));
        //= RFC 8684 3.1-1 3.1-2 3.1-13 3.1-17 3.1-25
        match understood_capable(syn) {
            Some(capable) => connection.handshake.require_checksum(capable.checksum_required),
            //= RFC 8684 3.1-27
            None => connection.fall_back(now, crate::mptcp::FallbackCause::NoMpCapable),
        }
        let mtu = self.config.mtu(path);
        connection.open(now, path, |cx| Tcb::accept(cx, syn, mtu, isn));
        connection
    }

    /// Keeps a server's connection, to which segments with this one's four-tuple belong.
    pub(super) fn insert_accepted(
        &mut self,
        connection: Box<Connection<P>>,
        segment: &Segment<P>,
        half_open: bool,
    ) -> u32 {
        let token = connection.token();
        let index = self.insert(connection, half_open).index;
        self.tokens.insert(token, index);
        self.routes.insert(segment.tuple, SubflowHandle { index, subflow: 0 });
        index
    }

    #[cold]
    fn on_join(&mut self, now: Time, path: PathId, token: u32, segment: &Segment<P>) {
        let Some(index) = self.tokens.get(&token).copied() else {
            self.counters.join_no_token += 1;
            //= RFC 8684 3.2-7
            self.send_reset(path, segment, Some(1));
            return;
        };
        let isn = self.isn(now, &segment.tuple.reversed());
        let nonce = self.entropy.next_u64() as u32;
        let mtu = self.config.mtu(path);
        let connection = self.slots[index as usize].connection.as_mut();
        let joined = connection.and_then(|connection| {
            if !connection.closing.is_terminated() && connection.handshake.keep_early_join(path, segment) {
                return Some(None);
            }
            connection.join(now, path, segment, mtu, isn, nonce).map(Some)
        });
        match joined {
            Some(None) => {}
            Some(Some(subflow)) => {
                self.add_route(index, subflow, segment.tuple);
                self.on_changed(now, index);
            }
            None => self.send_reset(path, segment, Some(3)),
        }
    }

    /// A join that has waited for the peer's key.
    #[cold]
    pub(super) fn on_early_join(&mut self, now: Time, path: PathId, syn: &Segment<P>) {
        if let Some(MpJoin::Syn { token, .. }) = syn.rare.as_deref().and_then(|rare| rare.mp_join) {
            self.on_join(now, path, token, syn);
        }
    }

    /// RST for a segment of no connection (RFC 9293 3.10.7.1).
    #[cold]
    pub(super) fn send_reset(&mut self, path: PathId, segment: &Segment<P>, reason: Option<u8>) {
        if self.stateless.len() >= MOST_STATELESS {
            return;
        }
        let tuple = segment.tuple.reversed();
        let mut reset = if segment.flags.contains(Flags::ACK) {
            Segment::new(tuple, segment.ack, Seq(0), Flags::RST)
        } else {
            let ack = segment.seq.plus(segment.sequence_len());
            Segment::new(tuple, Seq(0), ack, Flags::RST.with(Flags::ACK))
        };
        if let Some(reason) = reason {
            reset.rare_mut().mp_tcprst = Some(MpTcpRst { transient: false, reason });
        }
        self.counters.out_rsts += 1;
        self.stateless.push_back((path, reset));
    }
}
