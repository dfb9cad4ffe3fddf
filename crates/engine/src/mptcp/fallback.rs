//! Fallback to plain TCP (RFC 8684 3.7): what shows that options don't pass, checksums that fail, and
//! infinite mappings.

use ropewalk_wire::{DssMapping, Payload, Seq};

use super::close_reason::{CloseReason, Interference};
use super::connection::Connection;
use super::mapping::Failing;
use super::stats::{Event, FallbackCause};
use super::subflow::Subflow;
use super::subflow_fallback::Fallback;
use crate::Time;
use crate::tcp::Outgoing;

impl<P: Payload> Connection<P> {
    #[cold]
    pub(crate) fn fall_back(&mut self, now: Time, cause: FallbackCause) {
        let Some(negotiating) = self.handshake.fall_back() else { return };
        self.sending().judge_window();
        // What was held is delivered below, and counts as received there.
        self.receive.set_held(0);
        let mut held = None;
        for index in 0..self.subflows.len() {
            if let Some((mut cx, subflow)) = self.split(now, index, Outgoing::default()) {
                // From here on ACKs have no DSS: SACK and data have the options' room.
                subflow.set_control_len(0);
                let waiting = subflow.mapping.take_held();
                let failing = subflow.known_fallback_mut().and_then(Fallback::take_held);
                if let Some(failing) = failing.or(waiting) {
                    held = Some((index, failing));
                }
                subflow.tcp.refresh_mss(&mut cx);
            }
        }
        // Plain TCP is one subflow; no join has completed, else this would have been a reset.
        self.drop_opening_joins();
        if !negotiating || self.config.multipath {
            self.events.push(Event::Fallback(cause));
        }
        self.wake();
        if let Some((index, failing)) = held {
            // It is delivered as it came, altered or not.
            if let Some(subflow) = self.subflows.get_mut(index) {
                subflow.fallback_mut().plain_offset(failing.position, failing.offset);
            }
            let mut offset = failing.offset;
            for piece in failing.pieces {
                let len = piece.len() as u64;
                self.receive.insert(now, offset, piece);
                offset += len;
            }
            self.after_receive(now, index);
        }
    }

    /// Whether the stream can go on as plain TCP: one subflow has carried all of it, in order (RFC 8684 3.7).
    pub(crate) fn is_contiguous(&self) -> bool {
        // Only reinjections repeat anything on a subflow that never had another beside it.
        self.subflows.is_alone()
            && self.stats.get().is_none_or(|stats| stats.reinjected_bytes == 0)
            && self.receive.ofo_bytes() == 0
    }

    /// Resets the lone subflow: nothing says that the data whose checksum failed belongs to the stream.
    #[cold]
    pub(super) fn give_up_failing(&mut self, now: Time, index: usize) {
        //= RFC 8684 3.7-11 3.7-12
        let fallback = self.subflows.get_mut(index).and_then(Subflow::known_fallback_mut);
        if let Some(fallback) = fallback
            // MP_FAIL on the RST names the byte from which on nothing was delivered (RFC 8684 3.7).
            && let Some(offset) = fallback.held().map(|failing| failing.offset)
        {
            fallback.set_fail(self.handshake.remote_dsn(offset));
        }
        self.refuse(now, index, CloseReason::Middlebox(Interference::ChecksumOfLastSubflow));
    }

    /// Data without a mapping (RFC 8684 3.3, 3.7): fallback on a lone first subflow whose first data it is,
    /// else the subflow goes. In mid-stream there is no telling whether the peer still speaks Multipath TCP:
    /// if it does, it misses DATA_ACKs, and what it repeats for want of them would be taken for new bytes.
    #[cold]
    pub(super) fn on_unmapped(&mut self, now: Time, index: usize, position: u64, data: P) {
        if !self.is_contiguous() || self.receive.next() > 0 {
            //= RFC 8684 3.7-6 3.7-7 3.3.1-8
            // MP_TCPRST's reason 6: something on the way takes options away.
            self.refuse(now, index, CloseReason::Middlebox(Interference::NoMapping));
            return;
        }
        self.fall_back(now, FallbackCause::NoMapping);
        let Some(subflow) = self.subflows.get_mut(index) else { return };
        // It is the first data: the stream begins where it stands in the subflow.
        let offset = subflow.fallback_mut().plain_offset(position, self.receive.next());
        if self.receive.insert(now, offset, data) {
            self.after_receive(now, index);
        }
        self.take_in_order(now, index);
    }

    /// A DSS checksum failed (RFC 8684 3.7).
    #[cold]
    pub(super) fn on_corrupt(&mut self, now: Time, index: usize, failing: Failing<P>) {
        self.stats.count().checksum_errors += 1;
        let dsn = self.handshake.remote_dsn(failing.offset);
        // A gap before it could only be filled by mappings, which end with the fallback.
        let contiguous = self.is_contiguous() && failing.offset == self.receive.next();
        if let Some(subflow) = self.subflows.get_mut(index) {
            //= RFC 8684 3.7-8 3.7-9 3.7-b
            subflow.fallback_mut().set_fail(dsn);
            if contiguous {
                // The peer is asked to go on as plain TCP; until it answers, nothing more is delivered.
                self.receive.set_held(failing.bytes());
                subflow.fallback_mut().hold(failing);
                // MP_FAIL goes on an ACK: a RST would end the only subflow (RFC 8684 3.7).
                subflow.tcp.request_ack();
                self.deadlines.arm_control(now);
                // What is in order behind it waits with it.
                self.take_in_order(now, index);
                return;
            }
        }
        // With another subflow, or one that is being opened, this one is reset with MP_FAIL on its RST and
        // the data comes again elsewhere. Without, and with a stream that plain TCP can't continue, nothing
        // is left.
        //= RFC 8684 3.7-11 3.7-12
        let cause = match self.subflows.live() {
            1 => Interference::ChecksumOfLastSubflow,
            _ => Interference::Checksum,
        };
        self.refuse(now, index, CloseReason::Middlebox(cause));
    }

    /// MP_FAIL (RFC 8684 3.7): on a lone subflow that has carried everything in order, an infinite mapping
    /// that counts from the last byte that arrived intact, and MP_FAIL in return; from there on the
    /// connection is plain TCP.
    #[cold]
    pub(crate) fn on_fail(&mut self, now: Time, index: usize) {
        if self.handshake.is_plain() {
            // The answer was lost.
            if let Some(subflow) = self.subflows.get_mut(index)
                && subflow.known_fallback_mut().is_some_and(Fallback::answer_again)
            {
                subflow.tcp.request_ack();
            }
            return;
        }
        //= RFC 8684 3.7-8 3.7-9
        // It had no other subflow when it said so, but has one by now: what it waits for comes over that one.
        if !self.is_contiguous() {
            self.refuse(now, index, CloseReason::Middlebox(Interference::PeerChecksum));
            return;
        }
        let una = self.send.una();
        let dsn = self.handshake.dsn(una);
        // If a checksum failed here as well, the peer's infinite mapping is still to come, and our MP_FAIL is
        // on its way.
        let is_failing = self.subflows.is_failing();
        if !is_failing {
            self.fall_back(now, FallbackCause::Checksum);
        }
        if let Some(subflow) = self.subflows.get_mut(index) {
            //= RFC 8684 3.7-10
            // An infinite mapping covers no known length: there is nothing to sum up.
            let checksum = Some(0);
            // One subflow, in order, nothing repeated: the stream's first byte is the subflow's.
            let ssn = (una as u32).wrapping_add(1);
            let mapping = DssMapping { dsn, ssn, len: 0, checksum, dsn_is_64: true };
            let fallback = subflow.fallback_mut();
            // Repeated whenever MP_FAIL comes again (above): it has no acknowledgement of its own.
            fallback.answer(mapping);
            if !is_failing {
                fallback.set_fail(dsn);
            }
            subflow.tcp.request_ack();
        }
    }

    /// An infinite mapping: the peer fell back (RFC 8684 3.7). Data whose checksum failed belongs to the
    /// stream if the mapping counts from there or before, as it should. Linux maps its next new data instead:
    /// then the data that failed stays unmapped.
    #[cold]
    pub(super) fn on_infinite(&mut self, now: Time, index: usize, offset: u64, mapping: &DssMapping) {
        let Some(subflow) = self.subflows.get_mut(index) else { return };
        // Relative, as every subflow sequence number of a mapping: 1 is the first byte (RFC 8684 3.3.1).
        let position = Seq(mapping.ssn).unfold(subflow.tcp.rcv_nxt());
        let base = position.wrapping_sub(offset);
        let untaken = subflow.tcp.first_untaken();
        let fallback = subflow.fallback_mut();
        let failed = fallback.held();
        // Each byte of the subflow is the next byte of the stream from here on: what comes next can't lie
        // before the stream's beginning, nor beyond a gap that nothing will fill.
        let continues = base <= untaken && untaken - base <= self.receive.next();
        if failed.is_none() && !continues {
            self.refuse(now, index, CloseReason::Middlebox(Interference::InfiniteMapping));
            return;
        }
        // Else the altered bytes have no place in the stream that both ends agree on.
        if failed.is_some_and(|failing| !failing.is_mapped_by(offset, base)) {
            self.give_up_failing(now, index);
            return;
        }
        let cause = if failed.is_some() { FallbackCause::Checksum } else { FallbackCause::Peer };
        fallback.set_base(base);
        self.fall_back(now, cause);
    }
}
