//! Subflows come and go: slots, opening and accepting, refusing and removing.

use ropewalk_wire::{FourTuple, MpJoin, Payload, Segment, Seq};

use super::close_reason::CloseReason;
use super::connection::{Connection, Mode, Role};
use super::mapping::CurrentMapping;
use super::path_manager::JoinRequest;
use super::stats::Event;
use super::subflow::{Join, Subflow};
use super::window_autotuning::WindowAutotuning;
use crate::metrics::{SubflowMetrics, SubflowStatus};
use crate::scheduler;
use crate::tcp::{Context, Outgoing, Tcb};
use crate::{MAX_SUBFLOWS, Nanos, PathId, SubflowId};

/// So many slots are filled before one is used again, so that what a subflow counted can be looked at after its end.
const KEPT_SLOTS: usize = 8;

/// Joins of the peer's that may wait for their third ACK at a time.
const MOST_HALF_OPEN: usize = 8;

impl<P: Payload> Connection<P> {
    /// Makes room for a subflow and returns its index.
    pub(crate) fn slot(&mut self, path: PathId) -> Option<usize> {
        let count = self.subflows.len();
        let index = if count < KEPT_SLOTS { None } else { self.idle_slot() }.unwrap_or(count);
        if index >= MAX_SUBFLOWS {
            return None;
        }
        let metrics = SubflowMetrics::new(SubflowId(index as u8), path);
        if let Some(tuple) = self.retire(index) {
            self.vacated = Some(tuple);
        }
        if index == count {
            self.subflows.push(None);
            self.metrics.push(metrics);
            self.stats.bytes_by_subflow.push(0);
        } else {
            self.send.forget_carrier(metrics.id);
            self.metrics[index] = metrics;
        }
        self.scheduling.on_new_subflow(index);
        Some(index)
    }

    /// Forgets a subflow and keeps what it counted. Returns its addresses.
    fn retire(&mut self, index: usize) -> Option<FourTuple> {
        let old = self.subflows.get_mut(index)?.take()?;
        let counters = old.tcp.counters();
        self.stats.bytes_by_subflow[index] += counters.bytes_sent;
        **self.past.get_or_insert_default() += counters;
        Some(old.tcp.tuple())
    }

    /// Whether a SYN with a subflow's addresses opens a new connection.
    #[cold]
    pub(crate) fn gives_way_to(&self, index: usize, syn: &Segment<P>) -> bool {
        self.subflows.get(index).and_then(Option::as_ref).is_some_and(|subflow| subflow.tcp.gives_way_to(syn))
    }

    /// Ends a subflow's TIME-WAIT, and forgets the subflow.
    #[cold]
    pub(crate) fn end_subflow(&mut self, now: Nanos, index: usize) {
        if let Some(subflow) = self.subflows.get_mut(index).and_then(Option::as_mut) {
            subflow.tcp.become_closed();
            self.remove_if_finished(now, index);
            self.retire(index);
        }
    }

    /// Forgets all subflows of a connection that is over and waits to be read. Returns their addresses.
    #[cold]
    pub(crate) fn retire_all(&mut self) -> Vec<FourTuple> {
        (0..self.subflows.len()).filter_map(|index| self.retire(index)).collect()
    }

    /// A slot whose subflow is over and has nothing more to say.
    pub(super) fn idle_slot(&self) -> Option<usize> {
        self.subflows.iter().zip(&self.metrics).position(|(subflow, metrics)| {
            metrics.state == SubflowStatus::Closed
                && subflow.as_ref().is_none_or(|subflow| subflow.tcp.is_finished())
        })
    }

    pub(crate) fn put(&mut self, now: Nanos, index: usize, mut tcp: Tcb<P>, join: Join) -> &mut Subflow<P> {
        let buffer = self.config.receive_buffer;
        let first = self.config.tcp.initial_receive_window;
        tcp.announce_window_of(buffer.max);
        self.subflows[index].insert(Subflow {
            tcp,
            join,
            since: now,
            local_id: 0,
            remote_id: 0,
            local_nonce: 0,
            remote_nonce: 0,
            mapping: CurrentMapping::default(),
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
            join_ack_retries: 0,
            autotuning: WindowAutotuning::new(buffer.initial, buffer.max, first),
        })
    }

    pub(crate) fn insert_subflow(
        &mut self,
        now: Nanos,
        index: usize,
        join: Join,
        make: impl FnOnce(&mut Context<'_>) -> Tcb<P>,
    ) {
        let (mut cx, _) = self.context(now, index, Outgoing::default());
        let tcp = make(&mut cx);
        self.put(now, index, tcp, join);
        self.may_transmit = true;
    }

    /// Opens the first subflow of a client's connection.
    pub(crate) fn open(&mut self, now: Nanos, path: PathId, tuple: FourTuple, mtu: u32, isn: u32) {
        let Some(index) = self.slot(path) else { return };
        self.insert_subflow(now, index, Join::Initial, |cx| Tcb::connect(cx, tuple, mtu, isn));
        self.start_user_timeout(now, false);
    }

    /// Answers a SYN with the first subflow of a server's connection.
    pub(crate) fn answer(&mut self, now: Nanos, path: PathId, syn: &Segment<P>, mtu: u32, isn: u32) {
        let Some(index) = self.slot(path) else { return };
        self.insert_subflow(now, index, Join::Initial, |cx| Tcb::accept(cx, syn, mtu, isn));
    }

    /// The first subflow's SYN/ACK has left already.
    pub(crate) fn skip_syn_ack(&mut self) {
        self.subflows.iter_mut().flatten().for_each(|subflow| subflow.tcp.skip_syn_ack());
    }

    /// Opens a requested subflow.
    #[cold]
    pub(crate) fn open_join(
        &mut self,
        now: Nanos,
        request: &JoinRequest,
        tuple: FourTuple,
        mtu: u32,
        isn: u32,
        nonce: u32,
    ) -> Option<usize> {
        let index = self.slot(request.path)?;
        self.insert_subflow(now, index, Join::SynSent, |cx| Tcb::connect(cx, tuple, mtu, isn));
        let subflow = self.subflows[index].as_mut()?;
        subflow.local_nonce = nonce;
        subflow.local_id = request.local_id;
        subflow.remote_id = request.remote_id;
        subflow.backup_local = request.backup;
        subflow.request = Some(*request);
        Some(index)
    }

    /// Joins an existing connection: a SYN with MP_JOIN named our token.
    #[cold]
    pub(crate) fn join(
        &mut self,
        now: Nanos,
        path: PathId,
        syn: &Segment<P>,
        mtu: u32,
        isn: u32,
        nonce: u32,
    ) -> Option<usize> {
        let MpJoin::Syn { backup, address_id, nonce: remote_nonce, .. } = syn.rare.as_deref()?.mp_join?
        else {
            return None;
        };
        if self.mode != Mode::Multipath
            || self.life.terminated
            || self.is_failing()
            //= RFC 8684 3.2-a
            || !self.may_join()
        {
            return None;
        }
        self.limit_half_open();
        let index = self.slot(path)?;
        self.insert_subflow(now, index, Join::SynReceived, |cx| Tcb::accept(cx, syn, mtu, isn));
        let local_id = self.local_id_of(syn.tuple.dst);
        let subflow = self.subflows[index].as_mut()?;
        subflow.local_nonce = nonce;
        subflow.remote_nonce = remote_nonce;
        subflow.remote_id = address_id;
        subflow.local_id = local_id;
        subflow.backup_remote = backup;
        if self.role == Role::Server && self.receive.buffer.next == 0 && self.send.assigned_end() == 0 {
            // An early join: before it completes it, the peer waits for our first DSS (RFC 8684 3.1).
            self.ack_on_best();
        }
        Some(index)
    }

    /// Joins that are open, or that we wait for ourselves; not those that are yet to be authenticated.
    pub(crate) fn joined(&self) -> usize {
        let counts = |(subflow, metrics): &(&Option<Subflow<P>>, &SubflowMetrics)| {
            metrics.state != SubflowStatus::Closed
                && subflow.as_ref().is_some_and(|s| !matches!(s.join, Join::Initial | Join::SynReceived))
        };
        self.subflows.iter().zip(&self.metrics).filter(counts).count()
    }

    /// Whether the limit of subflows admits another. In place of the first one it always does.
    pub(crate) fn may_join(&self) -> bool {
        let works = |(subflow, metrics): (&Option<Subflow<P>>, &SubflowMetrics)| {
            metrics.state != SubflowStatus::Closed && subflow.as_ref().is_some_and(Subflow::is_joined)
        };
        self.joined() < usize::from(self.config.path_manager.subflows)
            || !self.subflows.iter().zip(&self.metrics).any(works)
    }

    /// Makes room for another join that isn't authenticated: the oldest of too many is dropped silently, since anybody who
    /// knows the token can open any number.
    pub(super) fn limit_half_open(&mut self) {
        let half_open = |(subflow, metrics): &(&Option<Subflow<P>>, &SubflowMetrics)| {
            metrics.state == SubflowStatus::Handshaking
                && subflow.as_ref().is_some_and(|subflow| subflow.join == Join::SynReceived)
        };
        let waiting = || self.subflows.iter().zip(&self.metrics).filter(half_open);
        if waiting().count() < MOST_HALF_OPEN {
            return;
        }
        let oldest =
            waiting().min_by_key(|(subflow, metrics)| (subflow.as_ref().map(|s| s.since), metrics.id));
        if let Some(index) = oldest.map(|(_, metrics)| metrics.id.index())
            && let Some(subflow) = self.subflows[index].as_mut()
        {
            subflow.tcp.discard();
            self.metrics[index].state = SubflowStatus::Closed;
        }
    }

    /// Subflows that aren't closed.
    pub(crate) fn live(&self) -> usize {
        let open = self.subflows.iter().zip(&self.metrics);
        open.filter(|(subflow, metrics)| subflow.is_some() && metrics.state != SubflowStatus::Closed).count()
    }

    /// Whether a subflow is closed and has nothing more to say.
    pub(crate) fn is_gone(&self, index: usize) -> bool {
        self.subflows.get(index).and_then(Option::as_ref).is_some_and(|subflow| subflow.tcp.is_finished())
    }

    //= RFC 8684 3.6-a 3.2-9
    /// Resets a subflow, with MP_TCPRST's reason.
    #[cold]
    pub(crate) fn refuse(&mut self, now: Nanos, index: usize, reason: CloseReason) {
        if let Some(subflow) = self.subflows[index].as_mut() {
            // The first reason is the one that counts.
            subflow.reset_reason.get_or_insert(reason.mp_tcprst());
            subflow.tcp.abort();
        }
        self.remove(now, index, reason);
    }

    /// A subflow is gone: notifies the scheduler and the application, and reinjects its data. Its RST, if any, is still sent.
    #[cold]
    pub(crate) fn remove(&mut self, now: Nanos, index: usize, reason: CloseReason) {
        if self.metrics[index].state == SubflowStatus::Closed {
            return;
        }
        let was_used = !matches!(self.metrics[index].state, SubflowStatus::Handshaking);
        let path = self.metrics[index].path;
        let id = SubflowId(index as u8);
        self.metrics[index].state = SubflowStatus::Closed;
        self.metrics[index].packets_out = 0;
        self.metrics[index].sacked_out = 0;
        self.metrics[index].lost_out = 0;
        self.metrics[index].retrans_out = 0;
        self.metrics[index].queued_bytes = 0;
        if was_used {
            self.notify(now, scheduler::Event::SubflowRemoved(id));
            self.congestion.subflow_removed(&mut self.metrics, index);
        }
        self.events.push_back(Event::SubflowRemoved { subflow: id, path, reason });
        if let Some(request) = self.subflows[index].as_ref().and_then(|subflow| subflow.request) {
            self.path_manager.on_join_closed();
            if !was_used && request.early {
                self.on_early_refusal(request);
            } else if !was_used {
                self.retry_join(now, request);
            }
        }
        if !self.negotiated.confirmed && !self.subflows[index].as_ref().is_some_and(Subflow::is_opening) {
            self.drop_opening_joins();
        }
        self.reinject_all(index);
        if self.subflows[index].as_ref().is_some_and(|subflow| subflow.failing.is_some()) {
            self.receive.buffer.held = 0;
        }
        let finished = self.send.fin_acked() && self.receive.finished();
        if self.live() == 0 && !finished && !self.life.terminated {
            let plain_end = self.mode == Mode::Plain && self.send.closed() && self.receive.finished();
            if plain_end {
                self.check_closed(now);
            } else if !self.await_subflow(now, index, was_used) {
                self.die(reason);
            }
        }
        if finished {
            // The others may have been waiting for nothing but this one.
            self.check_closed(now);
        }
        self.wake();
    }

    /// Everything that a subflow carried and that isn't acknowledged at data level goes elsewhere.
    #[cold]
    pub(crate) fn reinject_all(&mut self, index: usize) {
        self.send.reinject_from(SubflowId(index as u8));
    }

    /// A subflow's retransmission timer fired: what it carries is reinjected on the others (RFC 8684 3.3.6).
    #[cold]
    pub(super) fn on_subflow_timeout(&mut self, now: Nanos, index: usize) {
        self.notify(now, scheduler::Event::Timeout(SubflowId(index as u8)));
        self.wake();
        if self.mode != Mode::Multipath {
            return;
        }
        let Some(subflow) = self.subflows[index].as_mut() else { return };
        subflow.timeouts += 1;
        let others = self.metrics.iter().any(|metrics| metrics.id.index() != index && metrics.usable());
        if !others
            || !matches!(
                self.metrics[index].state,
                SubflowStatus::Usable | SubflowStatus::Stale | SubflowStatus::Closing
            )
        {
            return;
        }
        let stale = subflow.timeouts >= 2;
        //= RFC 8684 3.3.6-a 3.3.6-1 the subflow repeats it as well
        for (offset, len) in subflow.tcp.outstanding() {
            self.send.reinject(offset..offset + u64::from(len));
        }
        if stale && self.metrics[index].state == SubflowStatus::Usable {
            self.metrics[index].state = SubflowStatus::Stale;
        }
    }

    /// A packet of subflow `index` was too big for its path.
    #[cold]
    pub(crate) fn on_too_big(&mut self, now: Nanos, index: usize, seq: Seq, mtu: u32) {
        if let Some((mut cx, subflow)) = self.split(now, index)
            && subflow.tcp.on_too_big(&mut cx, seq, mtu)
        {
            self.wake();
        }
    }

    /// Removes a subflow that is closed and has nothing more to send.
    pub(crate) fn remove_if_finished(&mut self, now: Nanos, index: usize) {
        let Some(subflow) = self.subflows[index].as_ref() else { return };
        if subflow.tcp.is_finished() && self.metrics[index].state != SubflowStatus::Closed {
            self.remove(now, index, CloseReason::Closed);
        }
        self.check_closed(now);
    }
}
