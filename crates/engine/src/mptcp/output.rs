//! Segments out: what subflows must send, then reinjections, then what the scheduler chooses; each with the
//! options that Multipath TCP adds (RFC 8684 3.1 to 3.7).

use ropewalk_wire::{Payload, Segment};

use super::connection::Connection;
use super::deadlines::Deadline;
use super::options::OptionWriter;
use super::subflow::Join;
use crate::tcp::{Kind, Outgoing, State};
use crate::{PathId, Time};

impl<P: Payload> Connection<P> {
    /// Writes the next segment to send into `out` and returns the path for it, until `None`.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: u32,
        out: &mut Segment<P>,
    ) -> Option<PathId> {
        if !self.may_transmit {
            return None;
        }
        let max_segments = self.handshake.most_segments(max_segments);
        // What was lost, and ACKs, before new data, on whichever subflow.
        let sent = self.transmit_pending(now, max_segments, out).map(|(path, _)| path);
        let sent = sent.or_else(|| self.transmit_scheduled(now, max_segments, out).map(|(path, _)| path));
        if sent.is_none() {
            // Nothing is asked again until something happens (`may_transmit`).
            self.on_nothing_to_send(now);
        }
        sent
    }

    /// As [`poll_transmit`](Self::poll_transmit) until there is nothing more, each segment handed to `carry`.
    #[inline(always)]
    pub(crate) fn transmit_all(
        &mut self,
        now: Time,
        max_segments: u32,
        out: &mut Box<Segment<P>>,
        mut carry: impl FnMut(PathId, &mut Box<Segment<P>>),
    ) {
        if !self.may_transmit {
            return;
        }
        let max_segments = self.handshake.most_segments(max_segments);
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

    /// Schedules new data or a reinjection, and sends it. The flag says that the subflow has nothing else to
    /// send.
    // Runs once per segment. With two callers the compiler would no longer inline it.
    #[inline(always)]
    fn transmit_scheduled(
        &mut self,
        now: Time,
        max_segments: u32,
        out: &mut Segment<P>,
    ) -> Option<(PathId, bool)> {
        // After the end only FINs and RSTs leave, which subflows send of themselves.
        if self.closing.is_terminated() || !(self.scheduling.needs_schedule() || self.send.has_reinjections())
        {
            return None;
        }
        while let Some(index) = self.sending().schedule_next(now, max_segments) {
            if max_segments > 1 {
                self.sending().coalesce(now, index, max_segments);
            }
            if let Some(sent) = self.transmit_on(now, index, max_segments, out) {
                self.subflows.note_sent(index);
                return Some(sent);
            }
        }
        None
    }

    /// There is nothing more to send: arms timers, and notes which subflows are application-limited.
    #[inline(always)]
    fn on_nothing_to_send(&mut self, now: Time) {
        self.may_transmit = false;
        if self.scheduling.is_undecided() {
            // The subflows aren't idle: the decision follows at this moment.
            return;
        }
        if self.handshake.is_plain() && self.send.unsent() > 0 && self.send.window_left() == 0 {
            // In plain TCP the window is the subflow's, and so is the probe of it (RFC 9293 3.8.6.1).
            self.await_window(now);
        }
        // Data that waits for the peer's window in plain TCP isn't the application's fault.
        if self.handshake.is_multipath() || self.send.unsent() == 0 {
            self.subflows.check_app_limited();
        }
        // A timer that runs covers all that is unacknowledged.
        if !self.deadlines.is_set(Deadline::Retransmit) && self.sending().awaits_data_ack() {
            self.sending().arm_retransmission(now);
        }
    }

    /// The peer's window is closed in plain TCP, where subflows probe it.
    #[cold]
    fn await_window(&mut self, now: Time) {
        for index in 0..self.subflows.len() {
            if let Some((cx, subflow)) = self.split(now, index, Outgoing::default()) {
                subflow.tcp.await_window(&cx);
            }
        }
    }

    /// What the subflows have to send of themselves, in turn; and whether it is known that none has more.
    #[inline(always)]
    fn transmit_pending(
        &mut self,
        now: Time,
        max_segments: u32,
        out: &mut Segment<P>,
    ) -> Option<(PathId, bool)> {
        // Usually there is none. Of several, the one that sent last continues.
        let count = self.subflows.len();
        let after = |index: usize| if index + 1 < count { index + 1 } else { 0 };
        let mut index = self.subflows.last_sent_on();
        for left in (0..count).rev() {
            if self.subflows.may_have_output(index)
                && self.subflows.has_output(index)
                && let Some((path, quiet)) = self.transmit_on(now, index, max_segments, out)
            {
                self.subflows.note_sent(index);
                let others = std::iter::successors(Some(after(index)), |index| Some(after(*index)));
                let last = quiet && !others.take(left).any(|index| self.subflows.may_have_output(index));
                return Some((path, last));
            }
            index = after(index);
        }
        None
    }

    /// Sends the next segment of subflow `index`. Also returns whether the subflow then has nothing more to
    /// send.
    #[inline(never)]
    fn transmit_on(
        &mut self,
        now: Time,
        index: usize,
        max_segments: u32,
        out: &mut Segment<P>,
    ) -> Option<(PathId, bool)> {
        let subflow = self.subflows.get(index)?;
        // Not even an ACK: the third has to carry the HMAC (RFC 8684 3.2).
        if subflow.join() == Join::Held && subflow.tcp.state() != State::Closed {
            return None;
        }
        let mut control_len = subflow.control_len();
        // Only a segment without data has room for them: TCP shortens SACK by that much.
        if !self.handshake.is_plain() && subflow.tcp.may_send_without_data() {
            let (options, subflows) = OptionWriter::split(self, now);
            control_len = options.control_len(subflows.get(index)?);
        }
        let outgoing = Outgoing {
            ack_option_len: control_len,
            writer_waits: self.send.writer_waited(),
            more: self.send.unsent() > 0 && self.send.window_left() > 0,
            ends: self.send.closed() && self.send.unsent() == 0 && self.handshake.is_plain(),
        };
        let (mut cx, subflow) = self.split(now, index, outgoing)?;
        subflow.set_control_len(control_len);
        let transmit = subflow.tcp.poll_transmit(&mut cx, max_segments, out);
        let transmit = transmit.as_ref()?;
        let window = subflow.tcp.advertised_window();
        // The window that was advertised is relative to what is acknowledged at connection level; the field
        // is rounded to its unit and has 16 bits, so that the peer may know of less than there is.
        let is_common = matches!(transmit.kind, Kind::Ack | Kind::Data);
        self.receive.advertise(if is_common { window } else { u64::from(out.window) });
        let (mut options, subflows) = OptionWriter::split(self, now);
        if let Some(subflow) = subflows.get_mut(index) {
            options.write(subflow, control_len, transmit, out);
        }
        let quiet = self.subflows.get(index).is_none_or(|subflow| subflow.tcp.has_nothing_to_send());
        Some((self.subflows.metrics()[index].path, quiet))
    }
}
