//! Socket options of an open connection, messages that its application marks, and the rules of options that no other part has: cork (`TCP_CORK`), the unsent
//! low-water mark (`TCP_NOTSENT_LOWAT`) and the user timeout (`TCP_USER_TIMEOUT`, RFC 9293 3.9.1).

use std::sync::Arc;

use ropewalk_wire::Payload;

use super::close_reason::CloseReason;
use super::connection::Connection;
use super::deadlines::Deadline;
use crate::Nanos;
use crate::config::{BufferConfig, ConnectionConfig};
use crate::tcp::State;

impl<P: Payload> Connection<P> {
    /// The connection's own copy of its settings, to change them.
    fn own_config(&mut self) -> &mut ConnectionConfig {
        Arc::make_mut(&mut self.config)
    }

    pub(crate) fn set_nagle(&mut self, on: bool) {
        self.own_config().tcp.nagle = on;
        // As in Linux, what a cork holds goes at once.
        if !on && self.send.unsent() > 0 {
            self.send.set_cork_overdue(true);
            self.deadlines.stop(Deadline::Cork);
        }
        self.subflows.recheck_output();
        self.wake();
    }

    pub(crate) fn set_cork(&mut self, on: bool) {
        self.send.set_cork(on);
        if !on {
            self.deadlines.stop(Deadline::Cork);
        }
        self.wake();
    }

    pub(crate) fn set_dscp(&mut self, dscp: u8) {
        self.own_config().tcp.dscp = dscp & 0x3f;
    }

    pub(crate) fn set_keep_alive(&mut self, now: Nanos, idle: Option<Nanos>) {
        self.own_config().tcp.keep_alive.idle = idle;
        self.subflows.iter_mut().for_each(|subflow| subflow.tcp.set_keep_alive(now, idle));
        self.may_transmit = true;
    }

    pub(crate) fn set_send_buffer(&mut self, buffer: BufferConfig) {
        self.own_config().send_buffer = buffer;
        let payload = |size| self.config.send_payload(size);
        let resized = BufferConfig { initial: payload(buffer.initial), max: payload(buffer.max) };
        self.send.resize(resized);
        self.send.wake_writer(&mut self.events);
    }

    pub(crate) fn set_receive_buffer(&mut self, buffer: BufferConfig) {
        self.own_config().receive_buffer = buffer;
        self.receive.resize(buffer);
        let limit = self.receive.buffer.limit;
        for subflow in self.subflows.iter_mut() {
            subflow.autotuning.resize(limit, buffer.is_fixed());
        }
        self.window_update();
    }

    pub(crate) fn set_unsent_low_water(&mut self, bytes: Option<u64>) {
        self.send.set_unsent_mark(bytes);
        self.send.wake_writer(&mut self.events);
    }

    pub(crate) fn set_user_timeout(&mut self, now: Nanos, timeout: Option<Nanos>) {
        self.own_config().tcp.user_timeout = timeout;
        self.deadlines.stop(Deadline::User);
        self.start_user_timeout(now, false);
    }

    /// Something more is to be acknowledged, perhaps: the user timeout runs from now on, unless it runs already.
    #[cold]
    pub(super) fn start_user_timeout(&mut self, now: Nanos, was_waiting: bool) {
        if !was_waiting {
            self.send.progress(now);
        }
        if let Some(timeout) = self.config.tcp.user_timeout
            && !self.deadlines.is_set(Deadline::User)
            && self.awaits_acknowledgement()
        {
            self.deadlines.set(Deadline::User, now.saturating_add(timeout));
        }
    }

    /// Whether the peer is yet to acknowledge our SYN, data or DATA_FIN.
    fn awaits_acknowledgement(&self) -> bool {
        let is_opening = |state| matches!(state, State::SynSent | State::SynReceived);
        let mut subflows = self.subflows.iter();
        !self.closing.is_terminated()
            && (self.send.una() < self.send.written()
                || (self.send.closed() && !self.send.fin_acked() && self.handshake.is_multipath())
                || subflows.all(|subflow| is_opening(subflow.tcp.state())))
    }

    //= RFC 9293 3.9.1 the user timeout: data that isn't acknowledged in time ends the connection
    /// The user timeout may have passed: it counts from the last acknowledgement of something new.
    #[cold]
    pub(super) fn on_user_timeout(&mut self, now: Nanos) {
        self.deadlines.stop(Deadline::User);
        let Some(timeout) = self.config.tcp.user_timeout.filter(|_| self.awaits_acknowledgement()) else {
            return;
        };
        let at = self.send.progress_at().saturating_add(timeout);
        if at > now {
            self.deadlines.set(Deadline::User, at);
            return;
        }
        self.subflows.abort_all();
        self.may_transmit = true;
        self.die(CloseReason::UserTimeout);
    }
}
