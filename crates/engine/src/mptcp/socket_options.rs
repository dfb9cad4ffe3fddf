//! Socket options of an open connection.

use std::sync::Arc;

use ropewalk_wire::Payload;

use super::connection::Connection;
use super::deadlines::Deadline;
use crate::config::BufferConfig;
use crate::{Span, Time};

/// A change.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SocketOption {
    /// `TCP_NODELAY` is its opposite.
    Nagle(bool),
    /// `TCP_CORK`.
    Cork(bool),
    /// `IP_TOS`, `IPV6_TCLASS`.
    Dscp(u8),
    /// `SO_KEEPALIVE`, `TCP_KEEPIDLE`.
    KeepAlive(Option<Span>),
    /// `SO_SNDBUF`.
    SendBuffer(BufferConfig),
    /// `SO_RCVBUF`.
    ReceiveBuffer(BufferConfig),
    /// `TCP_NOTSENT_LOWAT`.
    UnsentLowWater(Option<u64>),
    UnsentBeyondWindow(Option<u64>),
    /// `TCP_USER_TIMEOUT`.
    UserTimeout(Option<Span>),
}

impl<P: Payload> Connection<P> {
    /// Changes an option.
    pub(crate) fn set(&mut self, now: Time, option: SocketOption) {
        match option {
            SocketOption::Nagle(on) => {
                Arc::make_mut(&mut self.config).tcp.nagle = on;
                // As in Linux, what a cork holds goes at once.
                if !on && self.send.unsent() > 0 {
                    self.send.cork_mut().set_overdue(true);
                    self.deadlines.stop(Deadline::Cork);
                }
                self.subflows.recheck_output();
                self.wake();
            }
            SocketOption::Cork(on) => {
                self.send.cork_mut().set(on);
                if !on {
                    self.deadlines.stop(Deadline::Cork);
                }
                self.wake();
            }
            SocketOption::Dscp(dscp) => Arc::make_mut(&mut self.config).tcp.dscp = dscp & 0x3f,
            SocketOption::KeepAlive(idle) => {
                Arc::make_mut(&mut self.config).tcp.keep_alive.idle = idle;
                self.subflows.iter_mut().for_each(|subflow| subflow.tcp.set_keep_alive(now, idle));
                self.may_transmit = true;
            }
            SocketOption::SendBuffer(buffer) => {
                Arc::make_mut(&mut self.config).send_buffer = buffer;
                let payload = |size| self.config.send_payload(size);
                let resized = BufferConfig { initial: payload(buffer.initial), max: payload(buffer.max) };
                self.send.resize(resized);
                self.send.wake_writer(&mut self.events);
            }
            SocketOption::ReceiveBuffer(buffer) => {
                Arc::make_mut(&mut self.config).receive_buffer = buffer;
                self.receive.resize(buffer);
                let limit = self.receive.buffer().limit;
                for subflow in self.subflows.iter_mut() {
                    subflow.autotuning.resize(limit, buffer.is_fixed());
                }
                self.may_transmit |=
                    self.subflows.offer_window(self.receive.buffer(), self.config.tcp.old_acks);
            }
            SocketOption::UnsentLowWater(bytes) => {
                self.send.set_unsent_mark(bytes);
                self.send.wake_writer(&mut self.events);
            }
            SocketOption::UnsentBeyondWindow(bytes) => {
                self.send.set_beyond_window(bytes);
                self.send.wake_writer(&mut self.events);
            }
            SocketOption::UserTimeout(timeout) => {
                Arc::make_mut(&mut self.config).tcp.user_timeout = timeout;
                self.deadlines.stop(Deadline::User);
                self.sending().start_user_timeout(now, false);
            }
        }
    }
}
