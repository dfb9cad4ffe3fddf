//! Fallback to plain TCP (RFC 8684 3.7): what shows that options don't pass, checksums that fail, and infinite mappings.

use ropewalk_wire::{DssMapping, Flags, Payload, Segment, Seq};

use super::close_reason::{CloseReason, Interference};
use super::connection::Connection;
use super::mapping::Failing;
use super::stats::{Event, FallbackCause};
use crate::Nanos;
use crate::tcp::Outcome;

/// How often MP_FAIL is repeated before the peer isn't going to answer it with an infinite mapping.
const MP_FAIL_TRIES: u32 = 6;

impl<P: Payload> Connection<P> {
    #[cold]
    pub(crate) fn fall_back(&mut self, now: Nanos, cause: FallbackCause) {
        let Some(negotiating) = self.handshake.fall_back() else { return };
        self.sending().judge_window();
        self.receive.buffer.held = 0;
        let mut held = None;
        for index in 0..self.subflows.len() {
            if let Some((mut cx, subflow)) = self.split(now, index) {
                subflow.control_len = 0;
                let waiting = subflow.mapping.take_held();
                if let Some(failing) = subflow.failing.take().or(waiting) {
                    held = Some((index, failing));
                }
                subflow.tcp.refresh_mss(&mut cx);
            }
        }
        self.drop_opening_joins();
        if !negotiating || self.config.multipath {
            self.events.push(Event::Fallback(cause));
        }
        self.wake();
        if let Some((index, failing)) = held {
            self.release(now, index, failing);
        }
    }

    /// Whether the stream can go on as plain TCP: one subflow has carried all of it, in order (RFC 8684 3.7).
    pub(crate) fn is_contiguous(&self) -> bool {
        // Only reinjections repeat anything on a subflow that never had another beside it.
        self.subflows.is_alone() && self.stats.reinjected_bytes == 0 && self.receive.ofo_bytes() == 0
    }

    /// Whether an acceptable segment without DSS shows that the peer, or something on the way, has left Multipath
    /// TCP: it acknowledges data without a DATA_ACK, ends the stream without a DATA_FIN, or is all that answers a
    /// DATA_FIN time and again.
    #[cold]
    pub(super) fn shows_fallback(&self, segment: &Segment<P>, outcome: &Outcome) -> bool {
        let waits_for_fin_ack = self.send.closed()
            && !self.send.fin_acked()
            && self.send.una() == self.send.written()
            && self.send.backoff() >= 2
            && !segment.flags.contains(Flags::SYN);
        outcome.acked_bytes > 0 || (outcome.fin && !self.receive.finished()) || waits_for_fin_ack
    }

    /// A segment without DSS while a checksum failure is pending: the peer may have fallen back. Its infinite mapping has to say so,
    /// and until then nothing is delivered. After a FIN none will come. Returns false if the subflow is gone.
    #[cold]
    pub(super) fn on_plain_while_failing(&mut self, now: Nanos, index: usize, outcome: &Outcome) -> bool {
        if outcome.fin {
            self.give_up_failing(now, index);
        }
        !outcome.fin
    }

    /// Repeats MP_FAIL while no infinite mapping comes, then resets the subflow. Returns whether it is to be called again.
    #[cold]
    pub(super) fn repeat_fail(&mut self, now: Nanos, index: usize) -> bool {
        let first_dsn = self.handshake.remote_dsn(0);
        let Some(subflow) = self.subflows.get_mut(index) else { return false };
        let Some(failing) = subflow.failing.as_mut() else { return false };
        if failing.repeats == MP_FAIL_TRIES {
            self.give_up_failing(now, index);
            return false;
        }
        failing.repeats += 1;
        subflow.fail_pending = Some(first_dsn.wrapping_add(failing.offset));
        subflow.tcp.request_ack();
        true
    }

    /// Resets the lone subflow: nothing says that the data whose checksum failed belongs to the stream.
    #[cold]
    fn give_up_failing(&mut self, now: Nanos, index: usize) {
        //= RFC 8684 3.7-11 3.7-12
        let first_dsn = self.handshake.remote_dsn(0);
        if let Some(subflow) = self.subflows.get_mut(index) {
            let failing = subflow.failing.as_ref();
            subflow.fail_pending = failing.map(|failing| first_dsn.wrapping_add(failing.offset));
        }
        self.refuse(now, index, CloseReason::Middlebox(Interference::ChecksumOfLastSubflow));
    }

    /// Data without a mapping (RFC 8684 3.3, 3.7): fallback on a lone first subflow whose first data it is, else the
    /// subflow goes. In mid-stream there is no telling whether the peer still speaks Multipath TCP: if it does, it
    /// misses DATA_ACKs, and what it repeats for want of them would be taken for new bytes.
    #[cold]
    pub(super) fn on_unmapped(&mut self, now: Nanos, index: usize, position: u64, data: P) {
        if !self.is_contiguous() || self.receive.buffer.next > 0 {
            //= RFC 8684 3.7-6 3.7-7 3.3.1-8
            self.refuse(now, index, CloseReason::Middlebox(Interference::NoMapping));
            return;
        }
        self.fall_back(now, FallbackCause::NoMapping);
        let next = self.receive.buffer.next;
        let Some(subflow) = self.subflows.get_mut(index) else { return };
        let base = *subflow.plain_rx_base.get_or_insert(position.wrapping_sub(next));
        if self.receive.insert(now, position.wrapping_sub(base), data) {
            self.after_receive(now, index);
        }
        self.take_in_order(now, index);
    }

    /// A DSS checksum failed (RFC 8684 3.7).
    #[cold]
    pub(super) fn on_corrupt(&mut self, now: Nanos, index: usize, failing: Failing<P>) {
        self.stats.checksum_errors += 1;
        let dsn = self.handshake.remote_dsn(failing.offset);
        let contiguous = self.is_contiguous() && failing.offset == self.receive.buffer.next;
        if let Some(subflow) = self.subflows.get_mut(index) {
            //= RFC 8684 3.7-8 3.7-9 3.7-b
            subflow.fail_pending = Some(dsn);
            if contiguous {
                // The peer is asked to go on as plain TCP; until it answers, nothing more is delivered.
                self.receive.buffer.held = failing.bytes();
                subflow.failing = Some(failing);
                subflow.tcp.request_ack();
                self.arm_control(now);
                // What is in order behind it waits with it.
                self.take_in_order(now, index);
                return;
            }
        }
        // With another subflow, or one that is being opened, this one is reset with MP_FAIL on its RST and the data
        // comes again elsewhere. Without, and with a stream that plain TCP can't continue, nothing is left.
        //= RFC 8684 3.7-11 3.7-12
        let cause = match self.subflows.live() {
            1 => Interference::ChecksumOfLastSubflow,
            _ => Interference::Checksum,
        };
        self.refuse(now, index, CloseReason::Middlebox(cause));
    }

    /// After a fallback, each byte of the subflow is the next byte of the stream. Whether the mapping of data says otherwise: then the
    /// peer hasn't fallen back, and repeats data that plain TCP would deliver as new bytes.
    #[cold]
    pub(super) fn contradicts_fallback(&self, index: usize, segment: &Segment<P>, rcv_before: u64) -> bool {
        let mapping = segment.dss.and_then(|dss| dss.mapping).filter(|mapping| mapping.len > 0);
        let base = self.subflows.get(index).and_then(|subflow| subflow.plain_rx_base);
        let (Some(mapping), Some(base)) = (mapping, base) else { return false };
        let Some(offset) = self.handshake.offset_of(&mapping, self.receive.buffer.next) else { return false };
        let position = Seq(mapping.ssn).unfold(rcv_before);
        mapping.ssn > 0 && position.wrapping_sub(base) != offset
    }

    /// What a lone subflow held when the connection became plain TCP: it is delivered as it came, altered or not.
    #[cold]
    pub(crate) fn release(&mut self, now: Nanos, index: usize, failing: Failing<P>) {
        if let Some(subflow) = self.subflows.get_mut(index) {
            subflow.plain_rx_base.get_or_insert(failing.position.wrapping_sub(failing.offset));
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
        if self.handshake.is_plain() {
            // The answer was lost.
            if let Some(subflow) = self.subflows.get_mut(index)
                && let Some((_, due)) = subflow.infinite.as_mut()
            {
                *due = true;
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
        // If a checksum failed here as well, the peer's infinite mapping is still to come, and our MP_FAIL is on its way.
        let is_failing = self.subflows.is_failing();
        if !is_failing {
            self.fall_back(now, FallbackCause::Checksum);
        }
        if let Some(subflow) = self.subflows.get_mut(index) {
            //= RFC 8684 3.7-10
            let checksum = Some(0);
            // One subflow, in order, nothing repeated: the stream's first byte is the subflow's.
            let ssn = (una as u32).wrapping_add(1);
            subflow.infinite = Some((DssMapping { dsn, ssn, len: 0, checksum, dsn_is_64: true }, true));
            if !is_failing {
                subflow.fail_pending = Some(dsn);
            }
            subflow.tcp.request_ack();
        }
    }

    /// An infinite mapping: the peer fell back (RFC 8684 3.7). Data whose checksum failed belongs to the stream if the mapping
    /// counts from there or before, as it should. Linux maps its next new data instead: then the data that failed stays unmapped.
    #[cold]
    pub(super) fn on_infinite(&mut self, now: Nanos, index: usize, offset: u64, mapping: &DssMapping) {
        let Some(subflow) = self.subflows.get_mut(index) else { return };
        let position = Seq(mapping.ssn).unfold(subflow.tcp.rcv_nxt());
        let base = position.wrapping_sub(offset);
        let failed = subflow.failing.as_ref();
        if failed.is_some_and(|failing| !failing.is_mapped_by(offset, base)) {
            self.give_up_failing(now, index);
            return;
        }
        let cause = if failed.is_some() { FallbackCause::Checksum } else { FallbackCause::Peer };
        subflow.plain_rx_base = Some(base);
        self.fall_back(now, cause);
    }
}
