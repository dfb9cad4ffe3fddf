//! The straight way of a segment into a connection or out of it, for what nearly every segment is: data with its mapping that
//! is next in order on its subflow, an acknowledgement of data that was sent once while nothing is missing, new data
//! while nothing is missing, and an acknowledgement that leaves alone.
//!
//! It does what the long way does with such a segment ([`Connection::on_any_segment`], [`Connection::transmit_on`]), in the same order, without the steps
//! that would have nothing to do. See [`crate::tcp`]'s `straight` for the subflow's part.

use ropewalk_wire::{Dss, DssMapping, Ecn, Flags, Payload, Segment};

use super::connection::{Connection, Mode};
use super::output::OPTION_SPACE;
use super::subflow::{Join, Strand};
use crate::tcp::Outcome;
use crate::{Nanos, PathId};

impl<P: Payload> Strand<P> {
    /// Fully joined, and nothing waits for the peer's answer to a failed checksum.
    #[inline]
    fn is_sound(&self) -> bool {
        matches!(self.join, Join::Initial | Join::Joined) && self.failing.is_none()
    }
}

impl<P: Payload> Connection<P> {
    /// Takes a segment for subflow `index` the straight way; false: it has to go the long one.
    #[inline]
    pub(super) fn go_straight(&mut self, now: Nanos, index: usize, segment: &mut Segment<P>) -> bool {
        let Some(dss) = &segment.dss else { return false };
        let usual = segment.rare.is_none()
            && segment.flags.without(Flags::PSH) == Flags::ACK
            && segment.ecn != Ecn::Ce
            && segment.gso_size == 0
            && !dss.data_fin
            && self.mode == Mode::Multipath
            && self.confirmed
            && self.config.tcp.shortcuts;
        let Some(ack) = dss.data_ack.filter(|_| usual) else { return false };
        let ack = (ack, dss.ack_is_64);
        match &dss.mapping {
            // Of just this data, with nothing else to it.
            Some(mapping) => {
                let len = segment.payload.len();
                let plain = len > 0
                    && segment.sack.is_empty()
                    && usize::from(mapping.len) == len
                    && mapping.checksum.is_none()
                    && !self.checksum
                    && mapping.dsn_is_64
                    && self.ack_is_64;
                // Word by word, as it may have been written just before: see `Segment::renew`.
                let mapping = DssMapping {
                    dsn: mapping.dsn,
                    ssn: mapping.ssn,
                    len: len as u16,
                    checksum: None,
                    dsn_is_64: true,
                };
                plain && self.take_data(now, index, segment, ack, &mapping)
            }
            None => segment.payload.is_empty() && self.take_ack(now, index, segment, ack),
        }
    }

    /// Data with its mapping.
    #[inline]
    fn take_data(
        &mut self,
        now: Nanos,
        index: usize,
        segment: &mut Segment<P>,
        ack: (u64, bool),
        mapping: &DssMapping,
    ) -> bool {
        let (Some(Some(strand)), Some(metrics)) = (self.strands.get_mut(index), self.metrics.get(index))
        else {
            return false;
        };
        let Some(remote) = self.remote_key else { return false };
        let len = segment.payload.len();
        let offset = mapping.dsn.wrapping_sub(remote.idsn.wrapping_add(1));
        if !strand.is_sound() || offset > 1 << 62 {
            return false;
        }
        let next = mapping.ssn == strand.tcp.rcv_nxt() as u32 && strand.mappings.is_empty();
        if !next || strand.tcp.take_next(now, &self.config.tcp, metrics, segment).is_none() {
            return self.take_beyond(now, index, segment, ack, mapping, offset);
        }
        let window = strand.tcp.window_in(segment.flags, segment.window);
        self.dirty = true;
        self.hear_data_ack(now, ack, window);
        let Some(strand) = self.strands[index].as_mut() else { return true };
        if self.receive.open(&mut strand.opening, len as u64) {
            strand.tcp.window_opened();
        }
        if self.receive.insert(now, offset, std::mem::take(&mut segment.payload)) {
            self.after_receive(now, index);
        }
        if self.send.closed || self.dead {
            // Else it finds an established subflow, and nothing to be closed.
            self.settle(now, index);
        }
        true
    }

    /// A DATA_ACK on a segment with data: mostly it acknowledges nothing new, and opens no window.
    #[inline]
    pub(super) fn hear_data_ack(&mut self, now: Nanos, (ack, ack_is_64): (u64, bool), window: u64) {
        let acked = self.acked_offset(ack, ack_is_64);
        if acked == self.send.una && acked + window <= self.send.window_end {
            self.send.peer_window = window;
        } else {
            self.on_data_ack(now, ack, ack_is_64, window);
        }
    }

    /// A bare acknowledgement.
    #[inline]
    fn take_ack(&mut self, now: Nanos, index: usize, segment: &Segment<P>, ack: (u64, bool)) -> bool {
        let sound = self.strands.get(index).and_then(Option::as_ref).is_some_and(Strand::is_sound);
        if segment.flags != Flags::ACK || !sound {
            return false;
        }
        let Some((mut cx, strand)) = self.split(now, index) else { return false };
        let mut outcome = Outcome::default();
        if !strand.tcp.on_pure_ack(&mut cx, segment, &mut outcome) {
            return false;
        }
        let window = strand.tcp.window_in(segment.flags, segment.window);
        self.dirty = true;
        self.on_data_ack(now, ack.0, ack.1, window);
        self.after_tcp(now, index, &outcome);
        true
    }

    /// Sends what was just placed on subflow `index`; `None`: it has to go the long way, [`Connection::transmit_on`].
    #[inline(always)]
    pub(super) fn send_placed(
        &mut self,
        now: Nanos,
        index: usize,
        max_segments: u32,
        out: &mut Segment<P>,
    ) -> Option<PathId> {
        let usual = self.mode == Mode::Multipath
            && self.confirmed
            && !self.checksum
            && max_segments == 1
            && self.config.tcp.shortcuts;
        if !usual {
            return None;
        }
        let (mut cx, strand) = self.split(now, index)?;
        let (tag, position) = strand.tcp.send_next(&mut cx, out)?;
        let window = strand.tcp.window_out(out.flags, out.window);
        self.receive.advertised_end = self.receive.advertised_end.max(self.receive.next + window);
        let len = out.payload.len() as u64;
        let fin = self.send.closed && tag + len == self.send.written;
        out.dss = Some(Dss {
            mapping: Some(DssMapping {
                dsn: self.local_key.idsn.wrapping_add(1).wrapping_add(tag),
                ssn: position as u32,
                len: len as u16 + u16::from(fin),
                checksum: None,
                dsn_is_64: true,
            }),
            data_fin: fin,
            ..self.dss_ack()
        });
        Some(self.metrics[index].path)
    }

    /// Sends the ACK that subflow `index` owes the peer, if that and the DATA_ACK are all that is to be said; `None`: it has to go
    /// the long way, [`Connection::transmit_on`].
    #[inline(always)]
    pub(super) fn send_ack(&mut self, now: Nanos, index: usize, out: &mut Segment<P>) -> Option<PathId> {
        let usual = self.mode == Mode::Multipath
            && self.confirmed
            && !self.send.closed
            && self.path_manager.is_silent()
            && self.config.tcp.shortcuts;
        if !usual {
            return None;
        }
        let len = self.ack_only_len();
        let (mut cx, strand) = self.split(now, index)?;
        let silent = strand.is_sound() && strand.prio_pending.is_none() && strand.fail_pending.is_none();
        if !silent || !strand.tcp.send_ack(&mut cx, OPTION_SPACE - usize::from(len), out) {
            return None;
        }
        strand.control_len = len;
        let window = strand.tcp.window_out(out.flags, out.window);
        self.receive.advertised_end = self.receive.advertised_end.max(self.receive.next + window);
        out.dss = Some(self.dss_ack());
        Some(self.metrics[index].path)
    }
}
