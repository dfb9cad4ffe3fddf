//! Changes on a running endpoint, and on an open connection: what sockets have options for. Each holds from
//! the call on; what was sent stays as it is.

use ropewalk_wire::Payload;

use super::{ConnectionId, Endpoint, OptionError};
use crate::config::BufferConfig;
use crate::mptcp::{Connection, SocketOption};
use crate::{Entropy, PathId, Span, Time, congestion, scheduler};

impl<P: Payload, E: Entropy> Endpoint<P, E> {
    /// Sets the largest IP packet on a path, bytes, for subflows that are opened from now on.
    pub fn set_path_mtu(&mut self, path: PathId, mtu: u32) {
        let (at, default) = (usize::from(path.0), self.config.default_mtu);
        let mtus = &mut self.config.path_mtus;
        if mtus.len() <= at {
            mtus.resize(at + 1, default);
        }
        mtus[at] = mtu;
    }

    /// Changes a connection, and looks at what came of it.
    fn change(
        &mut self,
        now: Time,
        id: ConnectionId,
        change: impl FnOnce(&mut Connection<P>),
    ) -> Result<(), OptionError> {
        change(self.get(id).map_err(|_| OptionError::Unknown)?);
        self.on_changed(now, id.index);
        Ok(())
    }

    fn set_option(&mut self, now: Time, id: ConnectionId, option: SocketOption) -> Result<(), OptionError> {
        self.change(now, id, |connection| connection.set(now, option))
    }

    /// Turns Nagle's algorithm on or off (RFC 9293 3.7.4; `TCP_NODELAY` is its opposite).
    ///
    /// # Errors
    /// When the connection is forgotten.
    pub fn set_nagle(&mut self, now: Time, id: ConnectionId, on: bool) -> Result<(), OptionError> {
        self.set_option(now, id, SocketOption::Nagle(on))
    }

    /// Reports each decision of the scheduler with its reason, or not
    /// ([`Event::Decision`](crate::mptcp::Event::Decision)).
    ///
    /// # Errors
    /// When the connection is forgotten.
    pub fn set_trace_decisions(&mut self, now: Time, id: ConnectionId, on: bool) -> Result<(), OptionError> {
        self.change(now, id, |connection| connection.scheduling.set_traced(on))
    }

    /// Corks the stream or uncorks it (`TCP_CORK`): while it is corked, data that doesn't fill a segment
    /// waits for more, for 200 ms at most. Closing our side uncorks it.
    ///
    /// # Errors
    /// When the connection is forgotten.
    pub fn set_cork(&mut self, now: Time, id: ConnectionId, on: bool) -> Result<(), OptionError> {
        self.set_option(now, id, SocketOption::Cork(on))
    }

    /// Sets the send buffer's limits (`SO_SNDBUF`). What is in it stays, even beyond the limit.
    ///
    /// # Errors
    /// When the connection is forgotten.
    pub fn set_send_buffer(
        &mut self,
        now: Time,
        id: ConnectionId,
        buffer: BufferConfig,
    ) -> Result<(), OptionError> {
        self.set_option(now, id, SocketOption::SendBuffer(buffer))
    }

    /// Sets the receive buffer's limits (`SO_RCVBUF`). A window that was offered isn't taken back, and the
    /// window scale of the handshake limits what can be offered.
    ///
    /// # Errors
    /// When the connection is forgotten.
    pub fn set_receive_buffer(
        &mut self,
        now: Time,
        id: ConnectionId,
        buffer: BufferConfig,
    ) -> Result<(), OptionError> {
        self.set_option(now, id, SocketOption::ReceiveBuffer(buffer))
    }

    /// Sets how many bytes may wait unsent before [`write`](Self::write) takes no more (`TCP_NOTSENT_LOWAT`);
    /// [`Event::Writable`](crate::mptcp::Event::Writable) comes when half of them are sent. `None`: only the
    /// send buffer counts.
    ///
    /// # Errors
    /// When the connection is forgotten.
    pub fn set_unsent_low_water(
        &mut self,
        now: Time,
        id: ConnectionId,
        bytes: Option<u64>,
    ) -> Result<(), OptionError> {
        self.set_option(now, id, SocketOption::UnsentLowWater(bytes))
    }

    /// Sets how many bytes [`write`](Self::write) takes beyond what the peer's window admits, or a quarter of
    /// the window if that is more: a peer that stops reading costs no more. `None`: only the send buffer
    /// counts, as in Linux.
    ///
    /// # Errors
    /// When the connection is forgotten.
    pub fn set_unsent_beyond_window(
        &mut self,
        now: Time,
        id: ConnectionId,
        bytes: Option<u64>,
    ) -> Result<(), OptionError> {
        self.set_option(now, id, SocketOption::UnsentBeyondWindow(bytes))
    }

    /// Says that the next `bytes` bytes are one message, and until when it has to be delivered. Schedulers
    /// that ask see it ([`View::message`](crate::scheduler::View::message)); the peer doesn't. Several may be
    /// announced before they are written.
    ///
    /// # Errors
    /// When the connection is forgotten.
    pub fn begin_message(
        &mut self,
        now: Time,
        id: ConnectionId,
        bytes: u64,
        deadline: Option<Time>,
    ) -> Result<(), OptionError> {
        self.change(now, id, |connection| connection.send.begin_message(bytes, deadline))
    }

    /// Says that a message ends with what has been written, and until when it has to be delivered. One that
    /// was announced as longer ends here. Where its length is known before,
    /// [`begin_message`](Self::begin_message) tells schedulers earlier.
    ///
    /// # Errors
    /// When the connection is forgotten.
    pub fn end_message(
        &mut self,
        now: Time,
        id: ConnectionId,
        deadline: Option<Time>,
    ) -> Result<(), OptionError> {
        self.change(now, id, |connection| {
            connection.send.end_message(deadline);
            connection.wake();
        })
    }

    //= RFC 9293 SHLD-21
    /// Sets the Diffserv code point of what is sent, 0 to 63 (RFC 2474).
    ///
    /// # Errors
    /// When the connection is forgotten.
    pub fn set_dscp(&mut self, now: Time, id: ConnectionId, dscp: u8) -> Result<(), OptionError> {
        self.set_option(now, id, SocketOption::Dscp(dscp))
    }

    /// Probes a peer that was silent for `idle`, or not (`SO_KEEPALIVE`, `TCP_KEEPIDLE`). The settings say
    /// how often and how many times.
    ///
    /// # Errors
    /// When the connection is forgotten.
    pub fn set_keep_alive(
        &mut self,
        now: Time,
        id: ConnectionId,
        idle: Option<Span>,
    ) -> Result<(), OptionError> {
        self.set_option(now, id, SocketOption::KeepAlive(idle))
    }

    /// Gives the connection up when data stays unacknowledged for so long (`TCP_USER_TIMEOUT`, RFC 9293
    /// 3.9.1); the time begins with the call.
    ///
    /// # Errors
    /// When the connection is forgotten.
    pub fn set_user_timeout(
        &mut self,
        now: Time,
        id: ConnectionId,
        timeout: Option<Span>,
    ) -> Result<(), OptionError> {
        self.set_option(now, id, SocketOption::UserTimeout(timeout))
    }

    /// Sets the packet scheduler by its name, perhaps with parameters (`blest:linux`). What the old one knew
    /// is lost. For one of your own see [`set_algorithms`](Self::set_algorithms).
    ///
    /// # Errors
    /// When there is no such scheduler, or the connection is forgotten.
    pub fn set_scheduler(&mut self, now: Time, id: ConnectionId, name: &str) -> Result<(), OptionError> {
        let spec = scheduler::builtin().parse(name)?;
        self.change(now, id, |connection| connection.set_algorithms(now, Some(&spec), None))
    }

    /// Sets the congestion control by its name (`TCP_CONGESTION`). Windows stay as they are; what else the
    /// old one knew is lost.
    ///
    /// # Errors
    /// When there is no such congestion control, or the connection is forgotten.
    pub fn set_congestion(&mut self, now: Time, id: ConnectionId, name: &str) -> Result<(), OptionError> {
        let spec = congestion::builtin().parse(name)?;
        self.change(now, id, |connection| connection.set_algorithms(now, None, Some(&spec)))
    }
}
