//! In-order data of a subflow goes to the connection, and the application is notified (RFC 8684 3.3.4).

use ropewalk_wire::Payload;

use super::connection::{Connection, Mode};
use super::mapping::Placed;
use super::stats::Event;
use crate::Nanos;
use crate::tcp::StreamOffset;

impl<P: Payload> Connection<P> {
    //= RFC 8684 3.3.4-c
    /// Moves in-order bytes of a subflow to the connection.
    #[inline(never)]
    pub(crate) fn take_in_order(&mut self, now: Nanos, index: usize) {
        let mut moved = false;
        while let Some(Some(subflow)) = self.subflows.get_mut(index)
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

    /// Moves one piece of a subflow's in-order data to the connection: its position, and its stream offset if that is known. Sets
    /// `moved` if the stream's in-order data grew. Returns false if there can't be more of this subflow.
    #[inline(always)]
    pub(super) fn deliver(
        &mut self,
        now: Nanos,
        index: usize,
        (position, data, mapped): (u64, P, StreamOffset),
        moved: &mut bool,
    ) -> bool {
        let Some(Some(subflow)) = self.subflows.get_mut(index) else { return false };
        if self.receive.open(&mut subflow.autotuning, data.len() as u64) {
            self.may_transmit |= subflow.tcp.on_window_growth();
        }
        match mapped.known() {
            Some(offset) if subflow.failing.is_none() && self.mode != Mode::Plain => {
                *moved |= self.receive.insert(now, offset, data);
                true
            }
            _ => self.deliver_by_mapping(now, index, position, data, moved),
        }
    }

    /// The same for data whose offset isn't known, or that waits for the answer to MP_FAIL.
    #[inline(never)]
    fn deliver_by_mapping(
        &mut self,
        now: Nanos,
        index: usize,
        position: u64,
        mut data: P,
        moved: &mut bool,
    ) -> bool {
        let Some(Some(subflow)) = self.subflows.get_mut(index) else { return false };
        if let Some(failing) = subflow.failing.as_mut() {
            self.receive.buffer.held += data.len() as u64;
            failing.pieces.push(data);
            return true;
        }
        if self.mode == Mode::Plain {
            let next = self.receive.buffer.next;
            let base = *subflow.plain_rx_base.get_or_insert(position.wrapping_sub(next));
            *moved |= self.receive.insert(now, position.wrapping_sub(base), data);
            return true;
        }
        let mut at = position;
        loop {
            let len = data.len() as u64;
            let (placed, rest) = subflow.mappings.place(at, data);
            match placed {
                Placed::At(offset, data) => *moved |= self.receive.insert(now, offset, data),
                Placed::Held => {}
                Placed::Corrupt(mut failing) => {
                    failing.pieces.extend(rest);
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
            match rest {
                Some(rest) => {
                    at += len - rest.len() as u64;
                    data = rest;
                }
                None => return true,
            }
        }
    }

    /// In-order data or the end of the stream may have come.
    pub(super) fn after_receive(&mut self, now: Nanos, index: usize) {
        if self.life.abandoned && self.receive.buffer.ready > 0 {
            self.abort();
            return;
        }
        if self.receive.buffer.ready > 0 && !self.life.readable_notified {
            self.life.readable_notified = true;
            self.events.push_back(Event::Readable);
        }
        if self.receive.check_finished()
            && let Some(subflow) = self.subflows[index].as_mut()
        {
            subflow.tcp.request_ack();
        }
        if self.receive.finished() && !self.life.end_notified {
            self.life.end_notified = true;
            self.events.push_back(Event::PeerClosed);
            self.check_closed(now);
        }
    }
}
