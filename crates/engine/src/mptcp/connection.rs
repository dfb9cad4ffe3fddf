//! The connection: its parts, its life, and what the application calls.

use std::sync::Arc;

use ropewalk_wire::{FourTuple, Payload};

use super::close_reason::CloseReason;
use super::crypto::Key;
use super::deadlines::Deadlines;
use super::early_data::EarlyData;
use super::path_manager::{EarlyJoins, JoinRequest, PathManager};
use super::receive::ReceiveSide;
use super::scheduling::Scheduling;
use super::send::SendSide;
use super::stats::{ConnectionStats, Event, OfoStats};
use super::subflow::Subflow;
use crate::config::ConnectionConfig;
use crate::congestion::CongestionControl;
use crate::inline_queue::InlineQueue;
use crate::metrics::{SubflowMetrics, SubflowStatus};
use crate::registry::Spec;
use crate::scheduler::{self, Scheduler};
use crate::tcp::{Context, Outgoing, Shared, TcpCounters, data_ack_len};
use crate::{Nanos, PathId, SubflowId};

/// Which side opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Role {
    /// We connected.
    Client,
    /// We accepted.
    Server,
}

/// The protocol of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// The handshake hasn't decided.
    Negotiating,
    /// Multipath TCP.
    Multipath,
    /// Plain TCP, from the start or by fallback; the offset of the first byte that needs no mapping is where
    /// the stream stood.
    Plain,
}

/// What the handshake found out (RFC 8684 3.1).
#[derive(Debug)]
pub(crate) struct Negotiated {
    pub local_key: Key,
    pub remote_key: Option<Key>,
    /// Mappings have checksums.
    pub checksum: bool,
    /// The peer's DSNs have 64 bits, and so have the DATA_ACKs that answer them.
    pub ack_is_64: bool,
    /// The peer has shown that it has both keys, so that nothing of the handshake is retransmitted.
    pub confirmed: bool,
    /// Both keys have just been sent, and the DATA_FIN has not: it is next.
    pub keys_precede: bool,
    /// The peer wants no joins to its first address (flag C).
    pub deny_join: bool,
}

/// How far the connection's life is, and what of that the application has been notified of.
#[derive(Debug, Default)]
pub(crate) struct Life {
    /// It is closed or reset: nothing more will be delivered or sent but what its subflows still send.
    pub terminated: bool,
    /// Why it is.
    pub reason: Option<CloseReason>,
    /// The application closed it and reads no more.
    pub abandoned: bool,
    /// There is data to read.
    pub readable_notified: bool,
    /// The peer's end of the stream.
    pub end_notified: bool,
    /// Some join has completed its handshake: its third ACK was sent or received.
    pub had_join: bool,
}

/// One connection.
#[derive(Debug)]
pub struct Connection<P: Payload> {
    pub(super) role: Role,
    pub(super) config: Arc<ConnectionConfig>,
    /// Added to the clock of timestamps, milliseconds.
    pub(super) timestamp_offset: u32,
    pub(super) mode: Mode,
    pub(super) negotiated: Negotiated,
    pub(super) life: Life,
    pub(super) metrics: Vec<SubflowMetrics>,
    pub(super) subflows: Vec<Option<Subflow<P>>>,
    pub(super) scheduling: Scheduling,
    pub(super) congestion: Box<dyn CongestionControl>,
    pub(super) send: SendSide<P>,
    pub(super) receive: ReceiveSide<P>,
    pub(super) deadlines: Deadlines,
    pub(super) events: InlineQueue<Event>,
    pub(super) stats: ConnectionStats,
    /// Some subflow may have something to send.
    pub(super) may_transmit: bool,
    /// The subflow that sent last.
    pub(super) last_sent_on: usize,
    /// How far the connection-level timeout has backed off.
    pub(super) meta_backoff: u32,
    pub(super) path_manager: PathManager,
    /// What subflows counted whose slots are in use again.
    pub(super) past: Option<Box<TcpCounters>>,
    /// The addresses of the subflow whose slot was just taken. They have no route from then on.
    pub(super) vacated: Option<FourTuple>,
    /// SYNs of joins that came before the peer's key.
    pub(super) early_joins: Option<Box<EarlyJoins<P>>>,
    /// Segments with data that came before the peer's key.
    pub(super) early_data: Option<Box<EarlyData<P>>>,
}

impl<P: Payload> Connection<P> {
    /// `timestamp_offset` is added to the clock of timestamps, unless the configuration has another.
    pub(crate) fn new(role: Role, config: Arc<ConnectionConfig>, key: u64, timestamp_offset: u32) -> Self {
        let multipath = config.multipath;
        // Most connections have two subflows. A third reallocates.
        let subflows = if multipath { 1 + usize::from(config.path_manager.subflows.min(1)) } else { 1 };
        Connection {
            role,
            //= RFC 7323 7-a
            timestamp_offset: config.tcp.timestamp_offset.unwrap_or(timestamp_offset),
            mode: if multipath { Mode::Negotiating } else { Mode::Plain },
            negotiated: Negotiated {
                local_key: Key::new(key),
                remote_key: None,
                checksum: multipath && config.checksum,
                ack_is_64: false,
                confirmed: !multipath,
                keys_precede: false,
                deny_join: false,
            },
            life: Life::default(),
            metrics: Vec::with_capacity(subflows),
            subflows: Vec::with_capacity(subflows),
            scheduling: Scheduling::new(&config),
            congestion: config.congestion.build(),
            send: SendSide::new(config.send_payload(config.send_buffer.initial)),
            receive: ReceiveSide::new(
                config.receive_buffer.initial,
                config.receive_buffer.max,
                config.tcp.initial_receive_window,
            )
            .weighing(config.receive_byte_weight()),
            deadlines: Deadlines::default(),
            events: InlineQueue::new(),
            stats: ConnectionStats::default(),
            may_transmit: true,
            last_sent_on: 0,
            meta_backoff: 0,
            path_manager: PathManager::default(),
            past: None,
            vacated: None,
            early_joins: None,
            early_data: None,
            config,
        }
    }

    /// The context for subflow `index`, and the subflow.
    #[inline]
    pub(crate) fn split(&mut self, now: Nanos, index: usize) -> Option<(Context<'_>, &mut Subflow<P>)> {
        self.split_with(now, index, Outgoing::default())
    }

    /// The same, for a segment to be sent, which without data has options of `control_len` bytes.
    #[inline]
    pub(crate) fn split_to_send(
        &mut self,
        now: Nanos,
        index: usize,
        control_len: u8,
    ) -> Option<(Context<'_>, &mut Subflow<P>)> {
        let outgoing = Outgoing {
            ack_option_len: control_len,
            writer_waits: self.send.writer_waits(),
            more: self.send.unsent() > 0 && self.send.window_left() > 0,
        };
        self.split_with(now, index, outgoing)
    }

    #[inline]
    fn split_with(
        &mut self,
        now: Nanos,
        index: usize,
        outgoing: Outgoing,
    ) -> Option<(Context<'_>, &mut Subflow<P>)> {
        let (cx, subflows) = self.context(now, index, outgoing);
        Some((cx, subflows.get_mut(index)?.as_mut()?))
    }

    /// The context of slot `index`, and all subflows.
    #[inline(always)]
    pub(super) fn context(
        &mut self,
        now: Nanos,
        index: usize,
        outgoing: Outgoing,
    ) -> (Context<'_>, &mut [Option<Subflow<P>>]) {
        let (multipath, ack_is_64) = (self.mode != Mode::Plain, self.negotiated.ack_is_64);
        let cx = Context {
            now,
            metrics: &mut self.metrics,
            index,
            congestion: self.congestion.as_mut(),
            tcp: &self.config.tcp,
            timestamp_offset: self.timestamp_offset,
            shared: Shared { receive: &self.receive.buffer, multipath, ack_is_64, outgoing },
        };
        (cx, &mut self.subflows)
    }

    /// The next event.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether there is an event.
    #[inline]
    pub(crate) fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    /// Removes the only event if it is [`Event::Readable`], which is all that most data causes. Returns whether it did.
    #[inline]
    pub(crate) fn take_lone_readable(&mut self) -> bool {
        let lone = self.events.len() == 1 && matches!(self.events.front(), Some(Event::Readable));
        if lone {
            self.events.drop_front();
        }
        lone
    }

    /// Removes the addresses of the subflow whose slot was just taken.
    pub(crate) fn take_vacated(&mut self) -> Option<FourTuple> {
        self.vacated.take()
    }

    /// Writes a prefix of `data`; returns how many bytes were taken.
    pub(crate) fn write(&mut self, now: Nanos, data: P) -> Option<usize> {
        if self.send.closed() || self.life.terminated {
            return None;
        }
        self.tune_send_buffer();
        let was_waiting = self.send.una() < self.send.written();
        let len = self.send.write(data);
        if len > 0 {
            if self.config.tcp.user_timeout.is_some() {
                self.start_user_timeout(now, was_waiting);
            }
            self.stats.bytes_written += len as u64;
            self.notify(now, scheduler::Event::Written(len as u64));
            self.wake();
        }
        Some(len)
    }

    /// Reads up to `max` bytes: `None` nothing now, an empty payload at the end.
    pub(crate) fn read(&mut self, now: Nanos, max: usize) -> Option<P> {
        if max == 0 && !self.is_at_end() {
            return None;
        }
        let piece = self.receive.read(max);
        self.on_read(now, piece)
    }

    /// As [`Self::read`], one piece as it arrived.
    pub(crate) fn read_piece(&mut self, now: Nanos, max: usize) -> Option<P> {
        if max == 0 && !self.is_at_end() {
            return None;
        }
        let piece = self.receive.read_piece(max);
        self.on_read(now, piece)
    }

    fn on_read(&mut self, now: Nanos, piece: Option<P>) -> Option<P> {
        if self.receive.buffer.ready == 0 {
            self.life.readable_notified = false;
        }
        match piece {
            Some(piece) => {
                if self.receive.tuning_due(now) {
                    self.tune_receive_buffer(now);
                }
                self.window_update();
                if self.receive.buffer.ready == 0 && self.receive.ofo_bytes() == 0 {
                    for subflow in self.subflows.iter_mut().flatten() {
                        self.may_transmit |= subflow.tcp.on_all_read();
                    }
                }
                Some(piece)
            }
            None if self.receive.finished() => Some(P::default()),
            None => None,
        }
    }

    /// Tells the peer when reading opened the window a good deal.
    pub(super) fn window_update(&mut self) {
        if self.receive.buffer.owes_update() {
            self.ack_on_all();
        }
    }

    /// Has an ACK sent on every subflow: which of them still delivers isn't known.
    #[cold]
    pub(crate) fn ack_on_all(&mut self) {
        for (subflow, metrics) in self.subflows.iter_mut().zip(&self.metrics) {
            if let (Some(subflow), true) =
                (subflow, matches!(metrics.state, SubflowStatus::Usable | SubflowStatus::Stale))
            {
                subflow.tcp.request_ack();
                self.may_transmit = true;
            }
        }
    }

    /// Has an ACK sent on the usable subflow with the least RTT.
    #[cold]
    pub(crate) fn ack_on_best(&mut self) {
        let best = self
            .metrics
            .iter()
            .filter(|metrics| {
                self.subflows[metrics.id.index()].is_some()
                    && !matches!(metrics.state, SubflowStatus::Closed | SubflowStatus::Handshaking)
            })
            .min_by_key(|metrics| (metrics.state != SubflowStatus::Usable, metrics.rtt.smoothed, metrics.id))
            .map(|metrics| metrics.id.index());
        if let Some(subflow) = best.and_then(|index| self.subflows[index].as_mut()) {
            subflow.tcp.request_ack();
            self.may_transmit = true;
        }
    }

    /// Something may be sent now.
    #[inline]
    pub(crate) fn wake(&mut self) {
        self.scheduling.needs_schedule = true;
        self.scheduling.undecided = false;
        self.may_transmit = true;
    }

    /// Octets of a DSS that has only a DATA_ACK.
    #[inline]
    pub(crate) fn ack_only_len(&self) -> u8 {
        data_ack_len(self.negotiated.ack_is_64)
    }

    //= RFC 8684 3.3.2-1
    /// The peer's mapping has a DSN of this length: DATA_ACKs have it from now on, and segments room for it.
    #[cold]
    pub(crate) fn match_dsn_length(&mut self, now: Nanos, dsn_is_64: bool) {
        self.negotiated.ack_is_64 = dsn_is_64;
        for index in 0..self.subflows.len() {
            if let Some((mut cx, subflow)) = self.split(now, index) {
                subflow.tcp.refresh_mss(&mut cx);
            }
        }
    }

    /// Subflows, by index; closed ones included.
    pub fn subflow_metrics(&self) -> &[SubflowMetrics] {
        &self.metrics
    }

    /// Addresses of a subflow, as we send.
    pub fn tuple(&self, subflow: SubflowId) -> Option<FourTuple> {
        Some(self.subflows.get(subflow.index())?.as_ref()?.tcp.tuple())
    }

    /// Whether the connection is in Multipath TCP. Changes at the handshake's end and with a fallback.
    pub fn is_multipath(&self) -> bool {
        self.mode == Mode::Multipath
    }

    /// Why the connection ended; `None` while it hasn't.
    pub fn close_reason(&self) -> Option<CloseReason> {
        self.life.reason
    }

    /// Whether the connection is plain TCP for good.
    pub(crate) fn is_plain(&self) -> bool {
        self.mode == Mode::Plain
    }

    /// Our token, by which joins name the connection.
    pub fn token(&self) -> u32 {
        self.negotiated.local_key.token
    }

    /// Our role.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Counters until `now`.
    pub fn stats(&self, now: Nanos) -> ConnectionStats {
        let mut stats = self.stats.clone();
        let tcp = self.tcp_totals();
        (stats.data_segments, stats.retransmissions, stats.timeouts) =
            (tcp.data_segments, tcp.retrans_segs, tcp.timeouts);
        for (total, subflow) in stats.bytes_by_subflow.iter_mut().zip(&self.subflows) {
            *total += subflow.as_ref().map_or(0, |subflow| subflow.tcp.counters().bytes_sent);
        }
        stats.bytes_received = self.receive.buffer.next;
        stats.received_twice_bytes = self.receive.duplicate_bytes();
        stats.ofo = OfoStats {
            bytes: self.receive.ofo_bytes(),
            max: self.receive.ofo_max(),
            integral: self.receive.ofo_integral(now),
        };
        stats.window_blocked += self.scheduling.blocked_for(now);
        stats
    }

    /// The out-of-order queue, bytes. Changes with each segment received.
    pub fn ofo_bytes(&self) -> u64 {
        self.receive.ofo_bytes()
    }

    /// Bytes delivered in order so far.
    pub fn bytes_received(&self) -> u64 {
        self.receive.buffer.next
    }

    /// Connection-level send window that is left, bytes.
    pub fn window_left(&self) -> u64 {
        self.send.window_left()
    }

    /// First stream byte that the peer hasn't acknowledged.
    pub fn data_una(&self) -> u64 {
        self.send.una()
    }

    /// The scheduler's own numbers.
    pub fn scheduler_metrics(&self) -> Vec<(&'static str, f64)> {
        self.scheduling.scheduler.metrics()
    }

    /// The congestion control's numbers for a subflow.
    pub fn congestion_metrics(&self, subflow: SubflowId) -> Vec<(&'static str, f64)> {
        self.congestion.metrics(&self.metrics, subflow.index())
    }

    /// A subflow's TCP counters.
    pub fn tcp_counters(&self, subflow: SubflowId) -> Option<&crate::tcp::TcpCounters> {
        Some(self.subflows.get(subflow.index())?.as_ref()?.tcp.counters())
    }

    /// What all its subflows counted, past ones included.
    pub(crate) fn tcp_totals(&self) -> TcpCounters {
        let mut totals = self.past.as_deref().copied().unwrap_or_default();
        for subflow in self.subflows.iter().flatten() {
            totals += subflow.tcp.counters();
        }
        totals
    }

    /// Addresses that the peer announced, those with a port, and MP_FASTCLOSEs, all of them authentic.
    pub(crate) fn accepted_controls(&self) -> [u64; 3] {
        [self.stats.announcements, self.stats.announced_ports, self.stats.fast_closes]
    }

    /// DSS checksums that failed.
    pub(crate) fn checksum_errors(&self) -> u64 {
        self.stats.checksum_errors
    }

    /// MP_JOINs with a wrong HMAC.
    pub(crate) fn join_hmac_failures(&self) -> u64 {
        self.stats.join_hmac_failures
    }

    /// Whether it counts as an established Multipath TCP connection (`MPTcpExtMPCurrEstab`).
    pub(crate) fn is_established(&self) -> bool {
        self.is_multipath() && !self.life.terminated
    }

    /// Whether we opened this subflow by a join.
    pub(crate) fn is_our_join(&self, subflow: SubflowId) -> bool {
        let subflow = self.subflows.get(subflow.index()).and_then(Option::as_ref);
        subflow.is_some_and(|subflow| subflow.request.is_some())
    }

    /// Other algorithms from now on; see [`crate::endpoint::Endpoint::set_algorithms`].
    pub(crate) fn set_algorithms(
        &mut self,
        now: Nanos,
        scheduler: Option<&Spec<dyn Scheduler>>,
        congestion: Option<&Spec<dyn CongestionControl>>,
    ) {
        if let Some(spec) = scheduler {
            self.scheduling.replace(spec, &mut self.metrics);
        }
        if let Some(spec) = congestion {
            self.congestion = spec.build();
            let paced = self.congestion.is_model_based();
            self.subflows.iter_mut().flatten().for_each(|subflow| subflow.tcp.set_paced(paced));
        }
        self.wake();
        for index in 0..self.metrics.len() {
            if matches!(self.metrics[index].state, SubflowStatus::Handshaking | SubflowStatus::Closed) {
                continue;
            }
            if congestion.is_some() {
                self.congestion.subflow_added(&mut self.metrics, index, now);
            }
            if scheduler.is_some() {
                self.notify(now, crate::scheduler::Event::SubflowAdded(SubflowId(index as u8)));
            }
        }
    }

    /// Bytes that can be read.
    pub(crate) fn readable_bytes(&self) -> u64 {
        self.receive.buffer.ready
    }

    /// Whether everything is read and the peer's side closed.
    pub(crate) fn is_at_end(&self) -> bool {
        self.receive.buffer.ready == 0 && self.receive.finished()
    }

    /// Bytes that can be written; `None` if nothing ever can.
    pub(crate) fn writable_bytes(&self) -> Option<u64> {
        (!self.send.closed() && !self.life.terminated).then(|| self.send.space())
    }

    /// Has the application told when there is space. Returns whether there is some.
    pub(crate) fn want_write(&mut self) -> bool {
        let is_ready = self.writable_bytes().is_none_or(|bytes| bytes > 0);
        self.send.want_space(is_ready);
        is_ready
    }

    /// Declares the whole size that will be written.
    pub(crate) fn declare_size(&mut self, bytes: u64) {
        self.send.declare(bytes);
    }

    /// Whether a join waits for the endpoint to open it.
    #[inline]
    pub(crate) fn has_join_requests(&self) -> bool {
        self.path_manager.has_join_requests()
    }

    /// The next join for the endpoint to open.
    pub(crate) fn next_join_request(&mut self) -> Option<JoinRequest> {
        self.path_manager.next_join_request()
    }

    /// Whether a subflow receives segments with this tuple.
    #[inline]
    pub(crate) fn receives(&self, index: usize, tuple: &FourTuple) -> bool {
        let subflow = self.subflows.get(index).and_then(Option::as_ref);
        subflow.is_some_and(|subflow| subflow.tcp.matches(tuple))
    }

    /// The subflows, with their paths and the tuples of the segments that they receive.
    pub(crate) fn routes(&self) -> impl Iterator<Item = (SubflowId, PathId, FourTuple)> {
        self.subflows.iter().zip(&self.metrics).filter_map(|(subflow, metrics)| {
            Some((metrics.id, metrics.path, subflow.as_ref()?.tcp.tuple().reversed()))
        })
    }

    /// Whether our side isn't closed.
    pub(crate) fn is_send_open(&self) -> bool {
        !self.send.closed()
    }

    /// Whether it has something to send, or may have.
    #[inline]
    pub(crate) fn has_pending_tx(&self) -> bool {
        self.may_transmit
    }

    /// The peer requires checksums.
    pub(crate) fn require_checksum(&mut self, required: bool) {
        self.negotiated.checksum |= required;
    }
}
