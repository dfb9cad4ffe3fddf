//! The connection: its parts, its life, and what the application calls.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use ropewalk_wire::{DssMapping, FourTuple, Payload, Segment};

use super::crypto::Key;
use super::deadlines::Deadlines;
use super::mapping::Mappings;
use super::opening::Opening;
use super::receive::ReceiveSide;
use super::send::SendSide;
use super::stats::{ConnectionStats, Event, FallbackCause};
use crate::config::ConnectionConfig;
use crate::congestion::CongestionControl;
use crate::metrics::{SubflowMetrics, SubflowStatus};
use crate::registry::Spec;
use crate::scheduler::{self, Rationale, Scheduler};
use crate::short::Short;
use crate::tcp::{Context, Shared, State, Subflow, TcpCounters};
use crate::{Nanos, PathId, SubflowId};

/// Most subflows at a time: a chunk's carriers are the bits of a word.
const MOST_SLOTS: usize = 32;

/// So many slots are filled before one is used again, so that what a subflow counted can be looked at after its end.
const KEPT_SLOTS: usize = 8;

/// Which side opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// We connected.
    Client,
    /// We accepted.
    Server,
}

/// What the connection speaks.
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

/// A subflow that the connection wants opened: the endpoint gives it a port and numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JoinRequest {
    /// The network.
    pub path: PathId,
    /// Our address; port 0: any.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// Our address id.
    pub local_id: u8,
    /// The peer's address id.
    pub remote_id: u8,
    /// As a backup.
    pub backup: bool,
    /// How often it was tried before.
    pub attempt: u32,
}

/// How far an MP_JOIN handshake is (RFC 8684 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Join {
    /// The connection's first subflow.
    Initial,
    /// We sent MP_JOIN and wait for the SYN/ACK.
    SynSent,
    /// We sent the third ACK and wait for the fourth.
    AckSent,
    /// We answered with SYN/ACK and wait for the third ACK.
    SynReceived,
    /// Both ends are authenticated.
    Joined,
}

/// What the connection keeps per subflow beside [`SubflowMetrics`] and [`Subflow`].
#[derive(Debug)]
pub(crate) struct Strand<P> {
    pub tcp: Subflow<P>,
    pub join: Join,
    /// When it was opened.
    pub since: Nanos,
    pub local_id: u8,
    pub remote_id: u8,
    pub local_nonce: u32,
    pub remote_nonce: u32,
    pub mappings: Mappings<P>,
    /// In plain mode: subflow position whose byte is stream offset 0 (received), for infinite mappings.
    pub plain_rx_base: Option<u64>,
    /// MP_PRIO to send.
    pub prio_pending: Option<bool>,
    /// MP_FAIL to send, with the DSN.
    pub fail_pending: Option<u64>,
    /// A checksum failed and there is no other subflow: what arrived since.
    pub failing: Option<Failing<P>>,
    /// We answered MP_FAIL with this infinite mapping; whether it is to be sent (again).
    pub infinite: Option<(DssMapping, bool)>,
    /// Consecutive timeouts without progress.
    pub timeouts: u32,
    /// Why it is being reset, for MP_TCPRST.
    pub reset_reason: Option<u8>,
    /// FASTCLOSE goes on its RST.
    pub fastclose: bool,
    /// Bytes of the options that its next segment without data carries.
    pub control_len: u8,
    pub backup_local: bool,
    pub backup_remote: bool,
    /// Its path was removed; it stays until another subflow can do its work.
    pub leaving: bool,
    /// What we wanted when we opened it.
    pub request: Option<JoinRequest>,
    /// Retransmissions of the third ACK of our MP_JOIN.
    pub join_acks: u32,
    /// How far what arrived on it has opened the window.
    pub opening: Opening,
}

/// What a lone subflow holds from a failed checksum until the peer agrees to go on as plain TCP (RFC 8684 3.7).
#[derive(Debug)]
pub(crate) struct Failing<P> {
    /// The mapping's data sequence number.
    pub dsn: u64,
    /// Where its first byte stands in the subflow.
    pub position: u64,
    /// And in the stream.
    pub offset: u64,
    /// In order from there on.
    pub pieces: Vec<P>,
}

/// One connection.
#[derive(Debug)]
pub struct Connection<P: Payload> {
    pub(crate) role: Role,
    pub(crate) config: Arc<ConnectionConfig>,
    pub(crate) mode: Mode,
    pub(crate) local_key: Key,
    pub(crate) remote_key: Option<Key>,
    pub(crate) checksum: bool,
    /// The peer's DSNs have 64 bits, and so have the DATA_ACKs that answer them.
    pub(crate) ack_is_64: bool,
    /// The peer has shown that it knows both keys: nothing of the handshake is repeated.
    pub(crate) confirmed: bool,
    /// The peer wants no joins to its first address (flag C).
    pub(crate) deny_join: bool,
    pub(crate) metrics: Vec<SubflowMetrics>,
    pub(crate) strands: Vec<Option<Strand<P>>>,
    pub(crate) scheduler: Box<dyn Scheduler>,
    /// The scheduler wants to hear of events.
    pub(crate) scheduler_wants_events: bool,
    /// It may queue ahead.
    pub(crate) queues_ahead: bool,
    pub(crate) congestion: Box<dyn CongestionControl>,
    pub(crate) why: Rationale,
    pub(crate) send: SendSide<P>,
    pub(crate) receive: ReceiveSide<P>,
    pub(crate) deadlines: Deadlines,
    pub(crate) events: Short<Event>,
    pub(crate) joins: VecDeque<JoinRequest>,
    pub(crate) stats: ConnectionStats,
    /// Something may have changed for the scheduler.
    pub(crate) ask: bool,
    /// A super-segment in the making: the subflow at whose queue's end it waits, its begin and end.
    pub(crate) gathered: Option<(usize, u64, u64)>,
    /// Some subflow may have something to send.
    pub(crate) dirty: bool,
    pub(crate) next_strand: usize,
    pub(crate) blocked_since: Option<Nanos>,
    pub(crate) meta_backoff: u32,
    pub(crate) readable_told: bool,
    pub(crate) peer_closed_told: bool,
    pub(crate) dead: bool,
    pub(crate) closed_by_us: bool,
    pub(crate) penalised_at: Vec<Nanos>,
    // Path manager.
    pub(crate) announced: Vec<super::control::Announcement>,
    pub(crate) echoes: VecDeque<ropewalk_wire::AddAddr>,
    pub(crate) removals: VecDeque<u8>,
    pub(crate) remote_addresses: Vec<(u8, SocketAddr)>,
    pub(crate) joins_opened: u8,
    /// Joins that failed and are tried again, and when.
    pub(crate) retries: Vec<(Nanos, JoinRequest)>,
    /// What subflows counted whose slots are in use again.
    pub(crate) past: Option<Box<TcpCounters>>,
    /// The addresses of the subflow whose slot was just taken: segments to them are nobody's from now on.
    pub(crate) vacated: Option<FourTuple>,
}

impl<P: Payload> Connection<P> {
    pub(crate) fn new(role: Role, config: Arc<ConnectionConfig>, key: u64) -> Self {
        let multipath = config.multipath;
        let scheduler = config.scheduler.build();
        // Two are what most connections come to; more are moved as they come.
        let subflows = if multipath { 1 + usize::from(config.path_manager.subflows.min(1)) } else { 1 };
        let mut connection = Connection {
            role,
            mode: if multipath { Mode::Negotiating } else { Mode::Plain },
            local_key: Key::new(key),
            remote_key: None,
            checksum: config.checksum,
            ack_is_64: false,
            confirmed: !multipath,
            deny_join: false,
            metrics: Vec::with_capacity(subflows),
            strands: Vec::with_capacity(subflows),
            scheduler_wants_events: scheduler.wants_events(),
            queues_ahead: scheduler.queues_ahead(),
            scheduler,
            congestion: config.congestion.build(),
            why: if config.trace_decisions { Rationale::listening() } else { Rationale::default() },
            send: SendSide::new(config.send_buffer.initial),
            receive: ReceiveSide::new(config.receive_buffer.initial, config.receive_buffer.max),
            deadlines: Deadlines::default(),
            events: Short::new(),
            joins: VecDeque::new(),
            stats: ConnectionStats::default(),
            ask: false,
            gathered: None,
            dirty: true,
            next_strand: 0,
            blocked_since: None,
            meta_backoff: 0,
            readable_told: false,
            peer_closed_told: false,
            dead: false,
            closed_by_us: false,
            penalised_at: Vec::new(),
            announced: Vec::new(),
            echoes: VecDeque::new(),
            removals: VecDeque::new(),
            remote_addresses: Vec::new(),
            joins_opened: 0,
            retries: Vec::new(),
            past: None,
            vacated: None,
            config,
        };
        if !multipath {
            connection.checksum = false;
        }
        connection
    }

    /// Makes room for a subflow and returns its index.
    pub(crate) fn slot(&mut self, path: PathId) -> Option<usize> {
        let count = self.strands.len();
        let index = if count < KEPT_SLOTS { None } else { self.idle_slot() }.unwrap_or(count);
        if index >= MOST_SLOTS {
            return None;
        }
        let metrics = SubflowMetrics::new(SubflowId(index as u8), path);
        if let Some(old) = self.strands.get_mut(index).and_then(Option::take) {
            let counters = old.tcp.counters();
            self.stats.data_segments += counters.data_segments;
            self.stats.retransmissions += counters.retrans_segs;
            self.stats.timeouts += counters.timeouts;
            self.stats.bytes_by_subflow[index] += counters.bytes_sent;
            **self.past.get_or_insert_default() += counters;
            self.vacated = Some(old.tcp.tuple());
        }
        if index == count {
            self.strands.push(None);
            self.metrics.push(metrics);
            self.penalised_at.push(0);
            self.stats.bytes_by_subflow.push(0);
        } else {
            self.send.forget_carrier(metrics.id);
            self.metrics[index] = metrics;
            self.penalised_at[index] = 0;
        }
        Some(index)
    }

    /// A slot whose subflow is over and has nothing more to say.
    fn idle_slot(&self) -> Option<usize> {
        self.strands.iter().zip(&self.metrics).position(|(strand, metrics)| {
            metrics.state == SubflowStatus::Closed
                && strand.as_ref().is_none_or(|strand| strand.tcp.is_finished())
        })
    }

    pub(crate) fn put(
        &mut self,
        now: Nanos,
        index: usize,
        mut tcp: Subflow<P>,
        join: Join,
    ) -> &mut Strand<P> {
        let buffer = self.config.receive_buffer;
        tcp.announce_window_of(buffer.max);
        self.strands[index].insert(Strand {
            tcp,
            join,
            since: now,
            local_id: 0,
            remote_id: 0,
            local_nonce: 0,
            remote_nonce: 0,
            mappings: Mappings::default(),
            plain_rx_base: None,
            prio_pending: None,
            fail_pending: None,
            failing: None,
            infinite: None,
            timeouts: 0,
            reset_reason: None,
            fastclose: false,
            control_len: 0,
            backup_local: false,
            backup_remote: false,
            leaving: false,
            request: None,
            join_acks: 0,
            opening: Opening::new(buffer.initial, buffer.max),
        })
    }

    /// The context for subflow `index`, and the subflow.
    #[inline]
    pub(crate) fn split(&mut self, now: Nanos, index: usize) -> Option<(Context<'_>, &mut Strand<P>)> {
        let shared = self.shared(index);
        let strand = self.strands.get_mut(index)?.as_mut()?;
        let cx = Context {
            now,
            metrics: &mut self.metrics,
            index,
            congestion: self.congestion.as_mut(),
            tcp: &self.config.tcp,
            shared,
        };
        Some((cx, strand))
    }

    #[inline]
    pub(crate) fn shared(&self, index: usize) -> Shared {
        let multipath = self.mode != Mode::Plain;
        let strand = self.strands.get(index).and_then(Option::as_ref);
        let control = strand.map_or(0, |strand| strand.control_len);
        // What waits for the peer's answer to MP_FAIL takes space, though no DATA_ACK covers it.
        let failing = strand.and_then(|strand| strand.failing.as_ref());
        let waiting: u64 =
            failing.map_or(0, |failing| failing.pieces.iter().map(|piece| piece.len() as u64).sum());
        Shared {
            receive_window: self.receive.window().saturating_sub(waiting),
            receive_room: self.receive.room().saturating_sub(waiting),
            multipath,
            data_option_len: if multipath { 16 + self.ack_only_len() } else { 0 },
            ack_option_len: control,
            writer_waits: self.send.writer_waits,
            more: self.send.unsent() > 0 && self.send.window_left() > 0,
        }
    }

    /// Writes a prefix of `data`; returns how many bytes were taken.
    pub(crate) fn write(&mut self, now: Nanos, data: P) -> Option<usize> {
        if self.send.closed || self.dead {
            return None;
        }
        self.tune_send_buffer();
        let len = self.send.write(data);
        if len > 0 {
            self.stats.bytes_written += len as u64;
            self.notify(now, scheduler::Event::Written(len as u64));
            self.wake();
        }
        Some(len)
    }

    /// Reads up to `max` bytes: `None` nothing now, an empty payload at the end.
    pub(crate) fn read(&mut self, now: Nanos, max: usize) -> Option<P> {
        let piece = self.receive.read(max);
        self.on_read(now, piece)
    }

    /// As [`Self::read`], one piece as it arrived.
    pub(crate) fn read_piece(&mut self, now: Nanos, max: usize) -> Option<P> {
        let piece = self.receive.read_piece(max);
        self.on_read(now, piece)
    }

    fn on_read(&mut self, now: Nanos, piece: Option<P>) -> Option<P> {
        if self.receive.ready_bytes == 0 {
            self.readable_told = false;
        }
        match piece {
            Some(piece) => {
                if self.receive.tuning_due(now) {
                    self.tune_receive_buffer(now);
                }
                self.window_update();
                if self.receive.ready_bytes == 0 && self.receive.ofo_bytes() == 0 {
                    for strand in self.strands.iter_mut().flatten() {
                        self.dirty |= strand.tcp.all_is_read();
                    }
                }
                Some(piece)
            }
            None if self.receive.finished => Some(P::default()),
            None => None,
        }
    }

    /// Tells the peer when reading opened the window a good deal (RFC 9293 3.8.6.2.2).
    fn window_update(&mut self) {
        let window = self.receive.window();
        let told = self.receive.advertised_end.saturating_sub(self.receive.next);
        let step = (self.receive.limit / 2).min(2 * 1460);
        // A peer that sees plenty of window is not to be bothered with each step.
        if window >= told + step && told < self.receive.limit / 4 {
            self.ack_on_all();
        }
    }

    /// Has an ACK sent on every subflow: which of them still delivers isn't known.
    #[cold]
    pub(crate) fn ack_on_all(&mut self) {
        for (strand, metrics) in self.strands.iter_mut().zip(&self.metrics) {
            if let (Some(strand), true) =
                (strand, matches!(metrics.state, SubflowStatus::Usable | SubflowStatus::Stale))
            {
                strand.tcp.request_ack();
                self.dirty = true;
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
                self.strands[metrics.id.index()].is_some()
                    && !matches!(metrics.state, SubflowStatus::Closed | SubflowStatus::Handshaking)
            })
            .min_by_key(|metrics| (metrics.state != SubflowStatus::Usable, metrics.srtt, metrics.id))
            .map(|metrics| metrics.id.index());
        if let Some(strand) = best.and_then(|index| self.strands[index].as_mut()) {
            strand.tcp.request_ack();
            self.dirty = true;
        }
    }

    /// Closes our side: what was written is still delivered.
    pub(crate) fn shutdown(&mut self, now: Nanos) {
        if self.send.closed || self.dead {
            return;
        }
        self.send.closed = true;
        self.notify(now, scheduler::Event::Closed);
        self.wake();
        if self.mode == Mode::Multipath && self.send.unsent() == 0 {
            // DATA_FIN alone: on an ACK of its own (RFC 8684 3.3.3).
            self.ack_on_best();
        }
        self.arm_meta(now);
        self.check_closed(now);
    }

    /// Closes both sides: what was written is still delivered, but what the peer sent or sends and nobody will read
    /// resets the connection, so that it learns of the loss (RFC 9293 3.6, RFC 1122 4.2.2.13).
    pub(crate) fn close(&mut self, now: Nanos) {
        self.closed_by_us = true;
        //= RFC 9293 SHLD-3
        if self.receive.ready_bytes > 0 {
            self.abort();
            return;
        }
        self.shutdown(now);
    }

    /// Throws the connection away: MP_FASTCLOSE and RST (RFC 8684 3.5), RST in plain TCP.
    #[cold]
    pub(crate) fn abort(&mut self) {
        let mut first = self.mode == Mode::Multipath && self.remote_key.is_some();
        for index in 0..self.strands.len() {
            if let Some(strand) = self.strands[index].as_mut() {
                strand.fastclose = first;
                first = false;
                strand.tcp.abort();
            }
            self.metrics[index].state = SubflowStatus::Closed;
        }
        self.send.clear();
        self.receive.clear();
        self.dead = true;
        self.dirty = true;
    }

    #[cold]
    pub(crate) fn die(&mut self, reason: &'static str) {
        if !self.dead {
            self.dead = true;
            self.send.clear();
            self.events.push_back(Event::Reset { reason });
        }
    }

    /// Something may be sent now.
    #[inline]
    pub(crate) fn wake(&mut self) {
        self.ask = true;
        self.dirty = true;
    }

    /// Octets of a DSS that has only a DATA_ACK. A mapping with a DSN of 64 bits takes 14 more, with a checksum 16, which
    /// is the same when padded.
    #[inline]
    pub(crate) fn ack_only_len(&self) -> u8 {
        if self.ack_is_64 { 12 } else { 8 }
    }

    //= RFC 8684 3.3.2-1
    /// The peer's mapping has a DSN of this length: DATA_ACKs have it from now on, and segments room for it.
    #[cold]
    pub(crate) fn answer_in_kind(&mut self, now: Nanos, dsn_is_64: bool) {
        self.ack_is_64 = dsn_is_64;
        for index in 0..self.strands.len() {
            if let Some((mut cx, strand)) = self.split(now, index) {
                strand.tcp.refresh_mss(&mut cx);
            }
        }
    }

    #[cold]
    pub(crate) fn fall_back(&mut self, now: Nanos, cause: FallbackCause) {
        if self.mode == Mode::Plain {
            return;
        }
        let negotiating = self.mode == Mode::Negotiating;
        self.mode = Mode::Plain;
        self.confirmed = true;
        self.checksum = false;
        let mut held = None;
        for index in 0..self.strands.len() {
            if let Some((mut cx, strand)) = self.split(now, index) {
                strand.control_len = 0;
                let failing = strand.failing.take();
                if let Some(failing) = failing.or_else(|| strand.mappings.take_held()) {
                    held = Some((index, failing));
                }
                strand.part_mappings();
                strand.mappings.clear();
                strand.tcp.refresh_mss(&mut cx);
            }
        }
        if !negotiating || self.config.multipath {
            self.events.push_back(Event::Fallback(cause));
        }
        self.wake();
        if let Some((index, failing)) = held {
            self.release(now, index, failing);
        }
    }

    /// Whether the stream can go on as plain TCP: one subflow has carried all of it, in order (RFC 8684 3.7).
    pub(crate) fn is_contiguous(&self) -> bool {
        let stats = &self.stats;
        let repeated = stats.reinjected_bytes + stats.duplicated_bytes + stats.opportunistic_bytes;
        self.strands.len() == 1 && repeated == 0 && self.receive.ofo_bytes() == 0
    }

    /// Whether a checksum has failed on the lone subflow.
    pub(crate) fn is_failing(&self) -> bool {
        self.strands.iter().flatten().any(|strand| strand.failing.is_some())
    }

    /// After anything that may have completed the close: FINs on the subflows when both directions are done.
    #[inline]
    pub(crate) fn check_closed(&mut self, now: Nanos) {
        // Nothing is complete while the application may still write.
        if self.send.closed && !self.dead {
            self.complete_close(now);
        }
    }

    #[inline(never)]
    fn complete_close(&mut self, now: Nanos) {
        if self.mode == Mode::Multipath {
            //= RFC 8684 3.3.3-3 3.3.3-4
            if self.send.fin_acked && self.receive.finished {
                for strand in self.strands.iter_mut().flatten() {
                    strand.tcp.close();
                }
                self.dirty = true;
                if self.deadlines.linger.is_none() {
                    self.deadlines.linger = Some(now + self.config.tcp.time_wait);
                }
            }
        } else if self.mode == Mode::Plain
            && self.send.closed
            && self.send.unsent() == 0
            && let Some(strand) = self.strands.iter_mut().flatten().next()
            // A close during the handshake waits for it: what the peer sends can still be read.
            && strand.tcp.state() != State::SynSent
        {
            strand.tcp.close();
            self.dirty = true;
        }
        let done = self
            .strands
            .iter()
            .flatten()
            .all(|strand| matches!(strand.tcp.state(), State::Closed | State::TimeWait));
        if done && self.send.closed && self.receive.finished && self.strands.iter().any(Option::is_some) {
            self.finish();
        }
    }

    #[cold]
    fn finish(&mut self) {
        if !self.dead {
            self.dead = true;
            self.events.push_back(Event::Closed);
        }
    }

    /// Subflows, by index; closed ones included.
    pub fn subflow_metrics(&self) -> &[SubflowMetrics] {
        &self.metrics
    }

    /// Addresses of a subflow, as we send.
    pub fn tuple(&self, subflow: SubflowId) -> Option<FourTuple> {
        Some(self.strands.get(subflow.index())?.as_ref()?.tcp.tuple())
    }

    /// Whether the connection speaks Multipath TCP now. Changes at the handshake's end and with a fallback.
    pub fn is_multipath(&self) -> bool {
        self.mode == Mode::Multipath
    }

    /// Our token, by which joins name the connection.
    pub fn token(&self) -> u32 {
        self.local_key.token
    }

    /// Our role.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Counters until `now`.
    pub fn stats(&self, now: Nanos) -> ConnectionStats {
        let mut stats = self.stats.clone();
        for strand in self.strands.iter().flatten() {
            let counters = strand.tcp.counters();
            stats.data_segments += counters.data_segments;
            stats.retransmissions += counters.retrans_segs;
            stats.timeouts += counters.timeouts;
        }
        for (total, strand) in stats.bytes_by_subflow.iter_mut().zip(&self.strands) {
            *total += strand.as_ref().map_or(0, |strand| strand.tcp.counters().bytes_sent);
        }
        stats.bytes_received = self.receive.next;
        stats.received_twice_bytes = self.receive.duplicate_bytes;
        stats.ofo_bytes = self.receive.ofo_bytes();
        stats.ofo_max = self.receive.ofo_max;
        stats.ofo_integral = self.receive.ofo_integral(now);
        if let Some(since) = self.blocked_since {
            stats.window_blocked += now.saturating_sub(since);
        }
        stats
    }

    /// The out-of-order queue, bytes. Changes with each segment received.
    pub fn ofo_bytes(&self) -> u64 {
        self.receive.ofo_bytes()
    }

    /// Bytes delivered in order so far.
    pub fn bytes_received(&self) -> u64 {
        self.receive.next
    }

    /// Connection-level send window that is left, bytes.
    pub fn window_left(&self) -> u64 {
        self.send.window_left()
    }

    /// First stream byte that the peer hasn't acknowledged.
    pub fn data_una(&self) -> u64 {
        self.send.una
    }

    /// The scheduler's own numbers.
    pub fn scheduler_metrics(&self) -> Vec<(&'static str, f64)> {
        self.scheduler.metrics()
    }

    /// The congestion control's numbers for a subflow.
    pub fn congestion_metrics(&self, subflow: SubflowId) -> Vec<(&'static str, f64)> {
        self.congestion.metrics(&self.metrics, subflow.index())
    }

    /// A subflow's TCP counters.
    pub fn tcp_counters(&self, subflow: SubflowId) -> Option<&crate::tcp::TcpCounters> {
        Some(self.strands.get(subflow.index())?.as_ref()?.tcp.counters())
    }

    /// Other algorithms from now on; see [`crate::endpoint::Endpoint::set_algorithms`].
    pub(crate) fn set_algorithms(
        &mut self,
        now: Nanos,
        scheduler: Option<&Spec<dyn Scheduler>>,
        congestion: Option<&Spec<dyn CongestionControl>>,
    ) {
        if let Some(spec) = scheduler {
            self.scheduler = spec.build();
            self.scheduler_wants_events = self.scheduler.wants_events();
            self.queues_ahead = self.scheduler.queues_ahead();
        }
        if let Some(spec) = congestion {
            self.congestion = spec.build();
        }
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

    /// Declares the whole size that will be written.
    pub(crate) fn declare_size(&mut self, bytes: u64) {
        self.send.declared = Some(bytes);
    }

    /// Reads from the lines of memory that a segment of subflow `index` is about to need. What of it isn't in the cache
    /// is then fetched all at once; in the course of the segment's processing it would be one after another.
    #[inline(never)]
    pub(crate) fn touch(&self, index: usize) {
        let strand = self.strands.get(index).and_then(Option::as_ref);
        let strand = strand.map_or(0, |strand| strand.tcp.touch().wrapping_add(strand.since));
        let metrics = self
            .metrics
            .get(index)
            .map_or(0, |metrics| metrics.srtt ^ metrics.delivered ^ u64::from(metrics.cwnd));
        let own = self.receive.touch() ^ self.send.touch() ^ self.local_key.idsn ^ u64::from(self.dirty);
        let kept = u64::from(self.events.is_empty()) ^ u64::from(self.joins.is_empty());
        let algorithms = u64::from(self.scheduler_wants_events) ^ self.deadlines.retransmit.unwrap_or(0);
        std::hint::black_box(strand ^ metrics ^ own ^ kept ^ algorithms ^ u64::from(self.config.multipath));
    }

    /// Whether a subflow is closed and has nothing more to say.
    pub(crate) fn is_gone(&self, index: usize) -> bool {
        self.strands.get(index).and_then(Option::as_ref).is_some_and(|strand| strand.tcp.is_finished())
    }

    /// Whether the endpoint may forget it.
    pub(crate) fn is_forgettable(&self) -> bool {
        let unread = self.receive.ready_bytes > 0 && self.receive.finished && !self.closed_by_us;
        self.dead && !unread && self.strands.iter().flatten().all(|strand| strand.tcp.is_finished())
    }

    /// Opens the first subflow of a client's connection.
    pub(crate) fn open(&mut self, now: Nanos, path: PathId, tuple: FourTuple, mtu: u32, isn: u32) {
        let Some(index) = self.slot(path) else { return };
        self.insert_subflow(now, index, Join::Initial, |cx| Subflow::connect(cx, tuple, mtu, isn));
    }

    /// Answers a SYN with the first subflow of a server's connection.
    pub(crate) fn answer(&mut self, now: Nanos, path: PathId, syn: &Segment<P>, mtu: u32, isn: u32) {
        let Some(index) = self.slot(path) else { return };
        self.insert_subflow(now, index, Join::Initial, |cx| Subflow::accept(cx, syn, mtu, isn));
    }

    pub(crate) fn insert_subflow(
        &mut self,
        now: Nanos,
        index: usize,
        join: Join,
        make: impl FnOnce(&mut Context<'_>) -> Subflow<P>,
    ) {
        let shared = self.shared(index);
        let mut cx = Context {
            now,
            metrics: &mut self.metrics,
            index,
            congestion: self.congestion.as_mut(),
            tcp: &self.config.tcp,
            shared,
        };
        let tcp = make(&mut cx);
        self.put(now, index, tcp, join);
        self.dirty = true;
    }
}
