//! Socket options of an open connection, messages that its application marks, and the rules of options that no other part has: cork (`TCP_CORK`), the unsent
//! low-water mark (`TCP_NOTSENT_LOWAT`) and the user timeout (`TCP_USER_TIMEOUT`, RFC 9293 3.9.1).

use std::sync::Arc;

use ropewalk_wire::Payload;

use super::close_reason::CloseReason;
use super::connection::{Connection, Mode};
use super::send::Cork;
use crate::config::{BufferConfig, ConnectionConfig};
use crate::scheduler::Rationale;
use crate::tcp::State;
use crate::{MILLISECOND, Nanos};

/// How long a cork holds less than a segment back, as in Linux.
const CORK_TIME: Nanos = 200 * MILLISECOND;

impl<P: Payload> Connection<P> {
    /// The connection's own copy of its settings, to change them.
    fn own_config(&mut self) -> &mut ConnectionConfig {
        Arc::make_mut(&mut self.config)
    }

    /// Has every subflow look again whether it has something to send.
    fn recheck_output(&mut self) {
        self.subflows.iter_mut().flatten().for_each(|subflow| subflow.tcp.recheck_output());
        self.wake();
    }

    /// The next `bytes` bytes are a message.
    #[cold]
    pub(crate) fn begin_message(&mut self, bytes: u64, deadline: Option<Nanos>) {
        let (una, written) = (self.send.una(), self.send.written());
        let messages = self.send.messages.get_or_insert_default();
        messages.forget(una);
        messages.begin(written, bytes, deadline);
    }

    /// A message ends with what is written.
    #[cold]
    pub(crate) fn end_message(&mut self, deadline: Option<Nanos>) {
        let (una, written) = (self.send.una(), self.send.written());
        let messages = self.send.messages.get_or_insert_default();
        messages.forget(una);
        messages.end(written, deadline);
        self.wake();
    }

    pub(crate) fn set_nagle(&mut self, on: bool) {
        self.own_config().tcp.nagle = on;
        // As in Linux, what a cork holds goes at once.
        if !on && self.send.unsent() > 0 {
            self.send.cork.overdue = true;
            self.deadlines.cork = None;
        }
        self.recheck_output();
    }

    pub(crate) fn set_trace_decisions(&mut self, on: bool) {
        self.scheduling.rationale = if on { Rationale::listening() } else { Rationale::default() };
    }

    pub(crate) fn set_cork(&mut self, on: bool) {
        self.send.cork = Cork { on, overdue: false };
        if !on {
            self.deadlines.cork = None;
        }
        self.wake();
    }

    pub(crate) fn set_dscp(&mut self, dscp: u8) {
        self.own_config().tcp.dscp = dscp & 0x3f;
    }

    pub(crate) fn set_keep_alive(&mut self, now: Nanos, idle: Option<Nanos>) {
        self.own_config().tcp.keep_alive.idle = idle;
        self.subflows.iter_mut().flatten().for_each(|subflow| subflow.tcp.set_keep_alive(now, idle));
        self.may_transmit = true;
    }

    pub(crate) fn set_send_buffer(&mut self, buffer: BufferConfig) {
        self.own_config().send_buffer = buffer;
        let payload = |size| self.config.send_payload(size);
        let resized = BufferConfig { initial: payload(buffer.initial), max: payload(buffer.max) };
        self.send.resize(resized);
        self.wake_writer();
    }

    pub(crate) fn set_receive_buffer(&mut self, buffer: BufferConfig) {
        self.own_config().receive_buffer = buffer;
        self.receive.resize(buffer);
        let limit = self.receive.buffer.limit;
        for subflow in self.subflows.iter_mut().flatten() {
            subflow.autotuning.resize(limit, buffer.is_fixed());
        }
        self.window_update();
    }

    pub(crate) fn set_unsent_low_water(&mut self, bytes: Option<u64>) {
        self.send.set_unsent_mark(bytes);
        self.wake_writer();
    }

    pub(crate) fn set_user_timeout(&mut self, now: Nanos, timeout: Option<Nanos>) {
        self.own_config().tcp.user_timeout = timeout;
        self.deadlines.user = None;
        self.start_user_timeout(now, false);
    }

    /// Something more is to be acknowledged, perhaps: the user timeout runs from now on, unless it runs already.
    #[cold]
    pub(super) fn start_user_timeout(&mut self, now: Nanos, was_waiting: bool) {
        if !was_waiting {
            self.send.progress(now);
        }
        if let Some(timeout) = self.config.tcp.user_timeout
            && self.deadlines.user.is_none()
            && self.awaits_acknowledgement()
        {
            self.deadlines.user = Some(now.saturating_add(timeout));
        }
    }

    /// Whether the peer is yet to acknowledge our SYN, data or DATA_FIN.
    fn awaits_acknowledgement(&self) -> bool {
        let is_opening = |state| matches!(state, State::SynSent | State::SynReceived);
        let mut subflows = self.subflows.iter().flatten();
        !self.life.terminated
            && (self.send.una() < self.send.written()
                || (self.send.closed() && !self.send.fin_acked() && self.mode == Mode::Multipath)
                || subflows.all(|subflow| is_opening(subflow.tcp.state())))
    }

    //= RFC 9293 3.9.1 the user timeout: data that isn't acknowledged in time ends the connection
    /// The user timeout may have passed: it counts from the last acknowledgement of something new.
    #[cold]
    pub(super) fn on_user_timeout(&mut self, now: Nanos) {
        self.deadlines.user = None;
        let Some(timeout) = self.config.tcp.user_timeout.filter(|_| self.awaits_acknowledgement()) else {
            return;
        };
        let at = self.send.progress_at().saturating_add(timeout);
        if at > now {
            self.deadlines.user = Some(at);
            return;
        }
        for subflow in self.subflows.iter_mut().flatten() {
            subflow.tcp.abort();
        }
        self.may_transmit = true;
        self.die(CloseReason::UserTimeout);
    }

    /// Whether the cork holds back what is unsent: less than a segment of every subflow that may carry it.
    #[cold]
    pub(super) fn is_corked(&mut self, now: Nanos) -> bool {
        let usable = self.metrics.iter().filter(|metrics| metrics.usable());
        let Some(mss) = usable.map(|metrics| u64::from(metrics.mss)).min() else { return false };
        if self.send.cork.overdue || self.send.closed() || self.send.unsent() >= mss {
            return false;
        }
        if self.send.unsent() > 0 {
            self.deadlines.cork.get_or_insert(now + CORK_TIME);
        }
        true
    }

    /// The cork has held data for long enough.
    #[cold]
    pub(super) fn on_cork_timeout(&mut self) {
        self.deadlines.cork = None;
        self.send.cork.overdue = true;
        self.wake();
    }
}
