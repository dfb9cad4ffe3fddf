//! In-order data of a subflow goes to the connection, and the application is notified (RFC 8684 3.3.4).

use ropewalk_wire::Payload;

use super::connection::Connection;
use super::mapping::Placed;
use super::stats::Event;
use crate::Time;
use crate::tcp::Mapping;

impl<P: Payload> Connection<P> {
    //= RFC 8684 3.3.4-c
    /// Moves in-order bytes of a subflow to the connection.
    #[inline(never)]
    pub(crate) fn take_in_order(&mut self, now: Time, index: usize) {
        let mut moved = false;
        while let Some(subflow) = self.subflows.get_mut(index)
            && let Some(piece) = subflow.tcp.next_in_order()
        {
            if !self.deliver(now, index, piece, &mut moved) {
                return;
            }
        }
        if moved {
            self.after_receive(now, index);
        }
    }

    /// Moves one piece of a subflow's in-order data to the connection: its position, and the mapping that
    /// came with it. Sets `moved` if the stream's in-order data grew. Returns false if there can't be more of
    /// this subflow.
    #[inline(always)]
    pub(super) fn deliver(
        &mut self,
        now: Time,
        index: usize,
        (position, data, mapping): (u64, P, Mapping),
        moved: &mut bool,
    ) -> bool {
        let Some(subflow) = self.subflows.get_mut(index) else { return false };
        if self.receive.open(&mut subflow.autotuning, data.len() as u64) {
            self.may_transmit |= subflow.tcp.on_window_growth();
        }
        // Nothing is left to remember of a mapping that ends with its data, but if the current one covers
        // that as well.
        let is_own = mapping.ends_after(data.len()) && position >= subflow.mapping.end();
        let is_verified = self.handshake.has_checksums() || subflow.is_failing();
        if is_own && !is_verified && !self.handshake.is_plain() {
            *moved |= self.receive.insert(now, mapping.offset, data);
            return true;
        }
        self.deliver_by_mapping(now, index, (position, data, mapping), moved)
    }

    /// The same for data that the current mapping may cover, has a checksum, or waits for the answer to
    /// MP_FAIL.
    #[inline(never)]
    fn deliver_by_mapping(
        &mut self,
        now: Time,
        index: usize,
        (position, mut data, mut mapping): (u64, P, Mapping),
        moved: &mut bool,
    ) -> bool {
        let first_dsn = self.handshake.has_checksums().then(|| self.handshake.remote_dsn(0));
        let Some(subflow) = self.subflows.get_mut(index) else { return false };
        if subflow.is_failing() {
            self.receive.hold(data.len());
            subflow.fallback_mut().hold_more(data);
            return true;
        }
        if self.handshake.is_plain() {
            let offset = subflow.fallback_mut().plain_offset(position, self.receive.next());
            *moved |= self.receive.insert(now, offset, data);
            return true;
        }
        let mut at = position;
        loop {
            let len = data.len() as u64;
            let (placed, rest) = subflow.mapping.place(at, data, mapping, first_dsn);
            match placed {
                Placed::At(offset, data) => *moved |= self.receive.insert(now, offset, data),
                Placed::Held => {}
                Placed::Corrupt(mut failing) => {
                    failing.pieces.extend(rest.map(|(rest, _)| rest));
                    if *moved {
                        self.after_receive(now, index);
                    }
                    self.on_corrupt(now, index, failing);
                    return false;
                }
                Placed::Unmapped(data) => {
                    self.on_unmapped(now, index, at, data);
                    return false;
                }
            }
            let Some(rest) = rest else { return true };
            (data, mapping) = rest;
            at += len - data.len() as u64;
        }
    }

    /// In-order data or the end of the stream may have come.
    pub(super) fn after_receive(&mut self, now: Time, index: usize) {
        if self.closing.is_abandoned() && self.receive.ready() > 0 {
            self.abort();
            return;
        }
        if self.receive.take_readable() {
            self.events.push(Event::Readable);
        }
        if self.receive.check_finished()
            && let Some(subflow) = self.subflows.get_mut(index)
        {
            subflow.tcp.request_ack();
        }
        if self.receive.take_end() {
            self.events.push(Event::PeerClosed);
            self.check_closed(now);
        }
    }
}
