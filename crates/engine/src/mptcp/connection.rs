//! The connection: its parts, its life, and what the application calls.

use std::sync::Arc;

use ropewalk_wire::{FourTuple, Payload};

use super::close_reason::CloseReason;
use super::closing::Closing;
use super::deadlines::Deadlines;
use super::event_queue::EventQueue;
use super::handshake::{Handshake, Role};
use super::path_manager::PathManager;
use super::receive::ReceiveSide;
use super::scheduling::Scheduling;
use super::send::SendSide;
use super::sending::Sending;
use super::stats::{ConnectionStats, Counting, OfoStats};
use super::subflow::{Join, Subflow};
use super::subflow_table::SubflowTable;
use super::window_autotuning::WindowAutotuning;
use crate::config::ConnectionConfig;
use crate::congestion::{CongestionControl, Siblings};
use crate::metrics::{SubflowMetrics, SubflowStatus};
use crate::registry::Spec;
use crate::scheduler::{self, Scheduler};
use crate::tcp::{Context, Outgoing, Shared, Tcb};
use crate::{PathId, SubflowId, Time};

/// One connection.
#[derive(Debug)]
pub struct Connection<P: Payload> {
    pub(super) config: Arc<ConnectionConfig>,
    /// Added to the clock of timestamps, milliseconds.
    pub(super) timestamp_offset: u32,
    pub(crate) handshake: Handshake<P>,
    pub(crate) closing: Closing,
    pub(crate) subflows: SubflowTable<P>,
    pub(crate) scheduling: Scheduling,
    pub(super) congestion: Box<dyn CongestionControl>,
    pub(crate) send: SendSide<P>,
    pub(crate) receive: ReceiveSide<P>,
    pub(super) deadlines: Deadlines,
    pub(crate) events: EventQueue,
    pub(crate) stats: Counting,
    /// Some subflow may have something to send.
    pub(crate) may_transmit: bool,
    pub(crate) path_manager: PathManager,
}

/// What subflow `$index` works with, but for the subflow.
macro_rules! context {
    ($connection:ident, $now:ident, ($metrics:ident, $siblings:ident), $outgoing:expr) => {
        Context {
            now: $now,
            metrics: $metrics,
            siblings: $siblings,
            congestion: $connection.congestion.as_mut(),
            tcp: &$connection.config.tcp,
            timestamp_offset: $connection.timestamp_offset,
            shared: Shared {
                receive: $connection.receive.buffer(),
                multipath: !$connection.handshake.is_plain(),
                ack_is_64: $connection.handshake.ack_is_64(),
                dsn_is_64: $connection.handshake.dsn_is_64(),
                abandoned: $connection.closing.is_abandoned(),
                outgoing: $outgoing,
            },
        }
    };
}

impl<P: Payload> Connection<P> {
    /// `timestamp_offset` is added to the clock of timestamps.
    pub(crate) fn new(role: Role, config: Arc<ConnectionConfig>, key: u64, timestamp_offset: u32) -> Self {
        let multipath = config.multipath;
        // Most connections have two subflows. A third reallocates.
        let subflows = if multipath { 1 + usize::from(config.path_manager.subflows.min(1)) } else { 1 };
        Connection {
            timestamp_offset,
            handshake: Handshake::new(role, &config, key),
            closing: Closing::default(),
            subflows: SubflowTable::with_capacity(subflows),
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
            events: EventQueue::new(),
            stats: Counting::default(),
            may_transmit: true,
            path_manager: PathManager::default(),
            config,
        }
    }

    /// The context for subflow `index`, and the subflow. `outgoing`: of the segment that is to be sent, if
    /// one is.
    #[inline]
    pub(crate) fn split(
        &mut self,
        now: Time,
        index: usize,
        outgoing: Outgoing,
    ) -> Option<(Context<'_>, &mut Subflow<P>)> {
        let (subflow, (metrics, siblings)) = self.subflows.split_mut(index)?;
        Some((context!(self, now, (metrics, siblings), outgoing), subflow))
    }

    /// What sending stream data works with.
    #[inline(always)]
    pub(super) fn sending(&mut self) -> Sending<'_, P> {
        Sending {
            config: &self.config,
            handshake: &self.handshake,
            closing: &self.closing,
            scheduling: &mut self.scheduling,
            send: &mut self.send,
            subflows: &mut self.subflows,
            deadlines: &mut self.deadlines,
            events: &mut self.events,
            stats: &mut self.stats,
        }
    }

    /// Adds a subflow on `path` and returns its index; `None` if there are too many.
    pub(super) fn add_subflow(
        &mut self,
        now: Time,
        path: PathId,
        join: Join,
        make: impl FnOnce(&mut Context<'_>) -> Tcb<P>,
    ) -> Option<usize> {
        let index = self.subflows.take_slot(path)?;
        self.send.forget_carrier(SubflowId(index as u8));
        self.scheduling.on_new_subflow(index);
        let (metrics, siblings) = self.subflows.with_siblings(index);
        let mut tcp = make(&mut context!(self, now, (metrics, siblings), Outgoing::default()));
        let buffer = self.config.receive_buffer;
        tcp.announce_window_of(buffer.max);
        let first = self.config.tcp.initial_receive_window;
        let autotuning = WindowAutotuning::new(buffer.initial, buffer.max, first)
            .counting(self.config.receive_segment_memory, buffer.max);
        self.subflows.put(now, index, (tcp, join), autotuning);
        self.may_transmit = true;
        Some(index)
    }

    /// Writes a prefix of `data`; returns how many bytes were taken.
    pub(crate) fn write(&mut self, now: Time, data: P) -> Option<usize> {
        if self.send.closed() || self.closing.is_terminated() {
            return None;
        }
        self.sending().tune_send_buffer();
        let was_waiting = self.send.una() < self.send.written();
        let len = self.send.write(data);
        if len > 0 {
            if self.config.tcp.user_timeout.is_some() {
                self.sending().start_user_timeout(now, was_waiting);
            }
            self.send.set_spaced(self.config.data_ack_first);
            if self.config.gather_writes {
                self.send.cork_mut().on_written(now);
            }
            self.sending().notify(now, scheduler::Event::Written(len as u64));
            self.wake();
        }
        Some(len)
    }

    /// Reads up to `max` bytes: `None` nothing now, an empty payload at the end. `whole`: of what arrived as
    /// several pieces, too.
    pub(crate) fn read(&mut self, now: Time, max: usize, whole: bool) -> Option<P> {
        if max == 0 && !self.receive.is_at_end() {
            return None;
        }
        let piece = if whole { self.receive.read(max) } else { self.receive.read_piece(max) };
        let Some(piece) = piece else { return self.receive.finished().then(P::default) };
        if self.receive.tuning_due(now) {
            self.receive.tune_for(now, self.config.receive_tuning, &mut self.subflows);
        }
        self.may_transmit |= self.subflows.offer_window(self.receive.buffer(), self.config.tcp.old_acks);
        if self.config.tcp.old_acks {
            self.may_transmit |= self.subflows.on_read();
        }
        if self.receive.ready() == 0 && self.receive.ofo_bytes() == 0 {
            self.may_transmit |= self.subflows.on_all_read();
        }
        Some(piece)
    }

    /// Something may be sent now.
    #[inline]
    pub(crate) fn wake(&mut self) {
        self.scheduling.wake();
        self.may_transmit = true;
    }

    //= RFC 8684 3.3.2-1
    /// The peer's mapping has a DSN of this length: DATA_ACKs have it from now on, and segments room for it.
    #[cold]
    pub(crate) fn match_dsn_length(&mut self, now: Time, dsn_is_64: bool) {
        self.handshake.match_dsn_length(dsn_is_64);
        for index in 0..self.subflows.len() {
            if let Some((mut cx, subflow)) = self.split(now, index, Outgoing::default()) {
                subflow.tcp.refresh_mss(&mut cx);
            }
        }
    }

    /// Subflows, by index; closed ones included.
    pub fn subflow_metrics(&self) -> &[SubflowMetrics] {
        self.subflows.metrics()
    }

    /// Addresses of a subflow, as we send.
    pub fn tuple(&self, subflow: SubflowId) -> Option<FourTuple> {
        Some(self.subflows.get(subflow.index())?.tcp.tuple())
    }

    /// Whether the connection is in Multipath TCP. Changes at the handshake's end and with a fallback.
    pub fn is_multipath(&self) -> bool {
        self.handshake.is_multipath()
    }

    /// Why the connection ended; `None` while it hasn't.
    pub fn close_reason(&self) -> Option<CloseReason> {
        self.closing.reason()
    }

    /// Our token, by which joins name the connection.
    pub fn token(&self) -> u32 {
        self.handshake.token()
    }

    /// Our role.
    pub fn role(&self) -> Role {
        self.handshake.role()
    }

    /// Counters until `now`.
    pub fn stats(&self, now: Time) -> ConnectionStats {
        let mut stats = self.stats.get().cloned().unwrap_or_default();
        stats.bytes_written = self.send.written();
        let tcp = self.subflows.totals();
        (stats.data_segments, stats.retransmissions, stats.timeouts) =
            (tcp.data_segments, tcp.retrans_segs, tcp.timeouts);
        stats.bytes_by_subflow = self.subflows.bytes_sent();
        stats.bytes_received = self.receive.next();
        stats.received_twice_bytes = self.receive.duplicate_bytes();
        stats.ofo = OfoStats {
            bytes: self.receive.ofo_bytes(),
            max: self.receive.ofo_max(),
            integral: self.receive.ofo_integral(now),
        };
        stats.window_blocked = self.scheduling.blocked_for(now);
        stats
    }

    /// The out-of-order queue, bytes. Changes with each segment received.
    pub fn ofo_bytes(&self) -> u64 {
        self.receive.ofo_bytes()
    }

    /// Connection-level send window that is left, bytes.
    pub fn window_left(&self) -> u64 {
        self.send.window_left()
    }

    /// End of what subflows were given of the stream.
    pub fn assigned(&self) -> u64 {
        self.send.assigned_end()
    }

    /// First stream byte that the peer hasn't acknowledged.
    pub fn data_una(&self) -> u64 {
        self.send.una()
    }

    /// The scheduler's own numbers.
    pub fn scheduler_metrics(&self) -> Vec<(&'static str, f64)> {
        self.scheduling.metrics()
    }

    /// The congestion control's numbers for a subflow.
    pub fn congestion_metrics(&self, subflow: SubflowId) -> Vec<(&'static str, f64)> {
        let all = self.subflows.metrics();
        if subflow.index() >= all.len() {
            return Vec::new();
        }
        let (metrics, siblings) = Siblings::split(all, subflow.index());
        self.congestion.metrics(metrics, siblings)
    }

    /// A subflow's TCP counters.
    pub fn tcp_counters(&self, subflow: SubflowId) -> Option<crate::tcp::TcpCounters> {
        Some(self.subflows.get(subflow.index())?.tcp.counters())
    }

    /// Other algorithms from now on; see [`crate::endpoint::Endpoint::set_algorithms`].
    pub(crate) fn set_algorithms(
        &mut self,
        now: Time,
        scheduler: Option<&Spec<dyn Scheduler>>,
        congestion: Option<&Spec<dyn CongestionControl>>,
    ) {
        if let Some(spec) = scheduler
            && self.scheduling.replace(spec, self.subflows.len())
        {
            self.subflows.forget_link_rates();
        }
        if let Some(spec) = congestion {
            self.congestion = spec.build();
            let paced = self.congestion.is_model_based();
            self.subflows.iter_mut().for_each(|subflow| subflow.tcp.set_paced(paced));
        }
        self.wake();
        for index in 0..self.subflows.metrics().len() {
            if matches!(
                self.subflows.metrics()[index].state,
                SubflowStatus::Handshaking | SubflowStatus::Closed
            ) {
                continue;
            }
            if congestion.is_some() {
                let (metrics, siblings) = self.subflows.with_siblings(index);
                self.congestion.subflow_added(metrics, siblings, now);
            }
            if scheduler.is_some() {
                self.sending().notify(now, crate::scheduler::Event::SubflowAdded(SubflowId(index as u8)));
            }
        }
    }
}
