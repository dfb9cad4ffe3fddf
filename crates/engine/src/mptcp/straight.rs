//! Fast path for segments out: new data while nothing is lost, and an ACK alone.
//!
//! It does what [`Connection::transmit_on`] does with such a segment, without the questions whose answer is known. See
//! [`crate::tcp`]'s `straight` for the subflow's part.

use ropewalk_wire::{Dss, DssMapping, Payload, Segment};

use super::connection::{Connection, Mode};
use super::output::OPTION_SPACE;
use super::subflow::{Join, Strand};
use crate::{Nanos, PathId};

impl<P: Payload> Strand<P> {
    /// Whether its sender has proved that it has the keys.
    #[inline]
    pub(super) fn is_joined(&self) -> bool {
        matches!(self.join, Join::Initial | Join::Joined)
    }

    /// Fully joined, and nothing waits for the peer's answer to a failed checksum.
    #[inline]
    fn is_sound(&self) -> bool {
        self.is_joined() && self.failing.is_none()
    }
}

impl<P: Payload> Connection<P> {
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
        let (mut cx, strand) = self.split_to_send(now, index)?;
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
        let (mut cx, strand) = self.split_to_send(now, index)?;
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
