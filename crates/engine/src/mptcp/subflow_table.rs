//! The table of a connection's subflows: slots, the numbers that schedulers see of each, and what past
//! subflows counted. What a subflow's coming or going means for the rest of the connection is in
//! `subflow_life.rs`.

use ropewalk_wire::{FourTuple, Payload, Segment};

use super::subflow::{Join, Subflow};
use super::window_autotuning::WindowAutotuning;
use crate::congestion::Siblings;
use crate::metrics::{SubflowMetrics, SubflowStatus};
use crate::scheduler::{Fate, Fates};
use crate::tcp::{ReceiveBuffer, State, Tcb, TcpCounters};
use crate::{MAX_SUBFLOWS, PathId, SubflowId, Time};

/// So many slots are filled before one is used again, so that what a subflow counted can be looked at after
/// its end.
const KEPT_SLOTS: usize = 8;

/// Joins of the peer's that may wait for their third ACK at a time.
const MOST_HALF_OPEN: usize = 8;

/// See the module.
#[derive(Debug)]
pub(crate) struct SubflowTable<P> {
    metrics: Vec<SubflowMetrics>,
    slots: Vec<Option<Subflow<P>>>,
    /// The subflow that sent last.
    last_sent_on: usize,
    /// Some join has completed its handshake: its third ACK was sent or received.
    had_join: bool,
    /// What is kept of past subflows.
    past: Option<Box<Past>>,
}

/// What is kept of subflows whose slots are free, or in use again.
#[derive(Debug, Default)]
struct Past {
    counters: TcpCounters,
    /// Payload bytes that they sent, by slot.
    bytes: Vec<u64>,
    /// The addresses of the subflow whose slot was just taken. They have no route from then on.
    vacated: Option<FourTuple>,
}

impl<P: Payload> SubflowTable<P> {
    /// One with memory for so many.
    pub fn with_capacity(subflows: usize) -> Self {
        SubflowTable {
            metrics: Vec::with_capacity(subflows),
            slots: Vec::with_capacity(subflows),
            last_sent_on: 0,
            had_join: false,
            past: None,
        }
    }

    /// Makes room for a subflow and returns its index.
    pub fn take_slot(&mut self, path: PathId) -> Option<usize> {
        let count = self.slots.len();
        let index = if count < KEPT_SLOTS { None } else { self.idle_slot() }.unwrap_or(count);
        if index >= MAX_SUBFLOWS {
            return None;
        }
        let metrics = SubflowMetrics::new(SubflowId(index as u8), path);
        if let Some(tuple) = self.retire(index) {
            self.past.get_or_insert_default().vacated = Some(tuple);
        }
        if index == count {
            self.slots.push(None);
            self.metrics.push(metrics);
        } else {
            self.metrics[index] = metrics;
        }
        Some(index)
    }

    /// Puts a subflow into its slot.
    pub fn put(
        &mut self,
        now: Time,
        index: usize,
        (tcp, join): (Tcb<P>, Join),
        autotuning: WindowAutotuning,
    ) {
        self.slots[index] = Some(Subflow::new(now, tcp, join, autotuning));
    }

    /// A subflow is closed: nothing of it is in flight or queued any more.
    pub fn close(&mut self, index: usize) {
        let metrics = &mut self.metrics[index];
        metrics.state = SubflowStatus::Closed;
        metrics.clear_out();
        metrics.queued_bytes = 0;
    }

    /// Forgets a subflow and keeps what it counted. Returns its addresses.
    pub fn retire(&mut self, index: usize) -> Option<FourTuple> {
        let old = self.slots.get_mut(index)?.take()?;
        let counters = &old.tcp.counters();
        let past = self.past.get_or_insert_default();
        past.counters += counters;
        if index >= past.bytes.len() {
            past.bytes.resize(index + 1, 0);
        }
        past.bytes[index] += counters.bytes_sent;
        Some(old.tcp.tuple())
    }

    /// Forgets all subflows of a connection that is over and waits to be read. Returns their addresses.
    #[cold]
    pub fn retire_all(&mut self) -> Vec<FourTuple> {
        (0..self.slots.len()).filter_map(|index| self.retire(index)).collect()
    }

    /// Removes the addresses of the subflow whose slot was just taken.
    pub fn take_vacated(&mut self) -> Option<FourTuple> {
        self.past.as_mut()?.vacated.take()
    }

    /// A slot whose subflow is over and has nothing more to say.
    fn idle_slot(&self) -> Option<usize> {
        self.slots.iter().zip(&self.metrics).position(|(subflow, metrics)| {
            metrics.state == SubflowStatus::Closed
                && subflow.as_ref().is_none_or(|subflow| subflow.tcp.is_finished())
        })
    }

    /// How many slots there are; closed subflows' included.
    #[inline]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// A subflow; `None` if it was forgotten.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&Subflow<P>> {
        self.slots.get(index)?.as_ref()
    }

    /// A subflow, to change it.
    #[inline]
    pub fn get_mut(&mut self, index: usize) -> Option<&mut Subflow<P>> {
        self.slots.get_mut(index)?.as_mut()
    }

    /// A subflow and its numbers, to change them.
    #[inline]
    pub fn both_mut(&mut self, index: usize) -> Option<(&mut Subflow<P>, &mut SubflowMetrics)> {
        Some((self.slots.get_mut(index)?.as_mut()?, self.metrics.get_mut(index)?))
    }

    /// A subflow, and the numbers that its TCP works with.
    #[inline(always)]
    pub fn split_mut(
        &mut self,
        index: usize,
    ) -> Option<(&mut Subflow<P>, (&mut SubflowMetrics, Siblings<'_>))> {
        Some((self.slots.get_mut(index)?.as_mut()?, Siblings::split_mut(&mut self.metrics, index)))
    }

    /// The numbers of all, by index; closed ones included.
    #[inline]
    pub fn metrics(&self) -> &[SubflowMetrics] {
        &self.metrics
    }

    /// The numbers of one, to change them.
    #[inline]
    pub fn metrics_mut(&mut self, index: usize) -> &mut SubflowMetrics {
        &mut self.metrics[index]
    }

    /// The numbers of one, to change them, and of its siblings.
    #[inline]
    pub fn with_siblings(&mut self, index: usize) -> (&mut SubflowMetrics, Siblings<'_>) {
        Siblings::split_mut(&mut self.metrics, index)
    }

    /// The links' rates aren't known any more.
    pub fn forget_link_rates(&mut self) {
        self.metrics.iter_mut().for_each(|metrics| metrics.rate.link_byte_time = 0.0);
    }

    /// All that aren't forgotten; closed ones may be among them.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &Subflow<P>> {
        // Not `flatten`, which takes more instructions.
        self.slots.iter().filter_map(Option::as_ref)
    }

    /// The same, to change them.
    #[inline]
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Subflow<P>> {
        self.slots.iter_mut().filter_map(Option::as_mut)
    }

    /// The same with their numbers.
    #[inline]
    pub fn with_metrics(&self) -> impl Iterator<Item = (&Subflow<P>, &SubflowMetrics)> {
        let both = self.slots.iter().zip(&self.metrics);
        both.filter_map(|(subflow, metrics)| Some((subflow.as_ref()?, metrics)))
    }

    /// The same, to change the subflows.
    #[inline]
    pub fn with_metrics_mut(&mut self) -> impl Iterator<Item = (&mut Subflow<P>, &SubflowMetrics)> {
        let both = self.slots.iter_mut().zip(&self.metrics);
        both.filter_map(|(subflow, metrics)| Some((subflow.as_mut()?, metrics)))
    }

    /// The numbers of those that may carry data.
    #[inline]
    pub fn usable(&self) -> impl Iterator<Item = &SubflowMetrics> {
        self.metrics.iter().filter(|metrics| metrics.usable())
    }

    /// Those that aren't closed, with their numbers.
    fn open(&self) -> impl Iterator<Item = (&Subflow<P>, &SubflowMetrics)> {
        self.with_metrics().filter(|(_, metrics)| metrics.state != SubflowStatus::Closed)
    }

    /// How many aren't closed.
    pub fn live(&self) -> usize {
        self.open().count()
    }

    /// Whether there is, or was, none.
    pub fn is_empty(&self) -> bool {
        self.slots.iter().all(Option::is_none)
    }

    /// Joins that are open, or that we wait for ourselves; not those that are yet to be authenticated.
    fn joined(&self) -> usize {
        self.open()
            .filter(|(subflow, _)| !matches!(subflow.join(), Join::Initial | Join::SynReceived))
            .count()
    }

    /// Whether a limit of joins admits another. In place of the first subflow it always does.
    pub fn may_join(&self, limit: u8) -> bool {
        self.joined() < usize::from(limit) || !self.open().any(|(subflow, _)| subflow.is_joined())
    }

    /// Makes room for another join that isn't authenticated: the oldest of too many is dropped silently,
    /// since anybody who knows the token can open any number.
    pub fn limit_half_open(&mut self) {
        let waiting = || {
            self.with_metrics().filter(|(subflow, metrics)| {
                metrics.state == SubflowStatus::Handshaking && subflow.join() == Join::SynReceived
            })
        };
        if waiting().count() < MOST_HALF_OPEN {
            return;
        }
        let oldest = waiting().min_by_key(|(subflow, metrics)| (subflow.since(), metrics.id));
        if let Some(index) = oldest.map(|(_, metrics)| metrics.id.index())
            && let Some((subflow, metrics)) = self.both_mut(index)
        {
            subflow.tcp.discard();
            metrics.state = SubflowStatus::Closed;
        }
    }

    /// A join has completed its handshake.
    pub fn note_join(&mut self) {
        self.had_join = true;
    }

    /// Whether no join has ever completed its handshake. Joins that failed or are still half-open don't
    /// count, as in Linux (`allow_infinite_fallback`).
    pub fn is_alone(&self) -> bool {
        !self.had_join
    }

    /// Whether a checksum has failed on the lone subflow.
    pub fn is_failing(&self) -> bool {
        self.iter().any(Subflow::is_failing)
    }

    /// Whether a subflow is the only one that carries data, or could if it answered.
    pub fn is_last(&self, index: usize) -> bool {
        let works = |state| matches!(state, SubflowStatus::Usable | SubflowStatus::Stale);
        let others = self.metrics.iter().any(|metrics| metrics.id.index() != index && works(metrics.state));
        works(self.metrics[index].state) && !others
    }

    /// Changes our wish that subflows on a path are backups, and tells the peer (MP_PRIO).
    pub fn set_backup(&mut self, path: PathId, backup: bool) {
        for index in 0..self.slots.len() {
            if let Some((subflow, metrics)) = self.both_mut(index)
                && metrics.path == path
            {
                subflow.set_backup(backup);
                metrics.backup = subflow.is_backup();
            }
        }
    }

    /// The addresses of the first that isn't forgotten, as we send.
    pub fn first_tuple(&self) -> Option<FourTuple> {
        self.iter().next().map(|subflow| subflow.tcp.tuple())
    }

    /// Whether a subflow receives segments with this tuple.
    #[inline]
    pub fn receives(&self, index: usize, tuple: &FourTuple) -> bool {
        self.get(index).is_some_and(|subflow| subflow.tcp.matches(tuple))
    }

    /// All, with their paths and the tuples of the segments that they receive.
    pub fn routes(&self) -> impl Iterator<Item = (SubflowId, PathId, FourTuple)> {
        let route = |(subflow, metrics): (&Subflow<P>, &SubflowMetrics)| {
            (metrics.id, metrics.path, subflow.tcp.tuple().reversed())
        };
        self.with_metrics().map(route)
    }

    /// Whether a SYN with a subflow's addresses opens a new connection.
    #[cold]
    pub fn gives_way_to(&self, index: usize, syn: &Segment<P>) -> bool {
        self.get(index).is_some_and(|subflow| subflow.tcp.gives_way_to(syn))
    }

    /// Whether a subflow is closed and has nothing more to say.
    pub fn is_gone(&self, index: usize) -> bool {
        self.get(index).is_some_and(|subflow| subflow.tcp.is_finished())
    }

    /// Whether we opened this subflow by a join.
    pub fn is_our_join(&self, subflow: SubflowId) -> bool {
        self.get(subflow.index()).is_some_and(|subflow| subflow.request().is_some())
    }

    /// The first subflow's SYN/ACK has left already.
    pub fn skip_syn_ack(&mut self) {
        self.iter_mut().for_each(|subflow| subflow.tcp.skip_syn_ack());
    }

    /// Has an ACK sent on every subflow: which of them still delivers isn't known. Returns whether there is
    /// any.
    #[cold]
    pub fn request_ack_on_all(&mut self) -> bool {
        let mut any = false;
        for (subflow, metrics) in self.with_metrics_mut() {
            if matches!(metrics.state, SubflowStatus::Usable | SubflowStatus::Stale) {
                subflow.tcp.request_ack();
                any = true;
            }
        }
        any
    }

    /// Has an ACK sent on the usable subflow with the least RTT. Returns whether there is any.
    #[cold]
    pub fn request_ack_on_best(&mut self) -> bool {
        let can_send = |(_, metrics): &(&Subflow<P>, &SubflowMetrics)| {
            !matches!(metrics.state, SubflowStatus::Closed | SubflowStatus::Handshaking)
        };
        let order = |(_, metrics): &(&Subflow<P>, &SubflowMetrics)| {
            (metrics.state != SubflowStatus::Usable, metrics.rtt.smoothed, metrics.id)
        };
        let best = self.with_metrics().filter(can_send).min_by_key(order);
        let best = best.map(|(_, metrics)| metrics.id.index());
        let Some(subflow) = best.and_then(|index| self.get_mut(index)) else { return false };
        subflow.tcp.request_ack();
        true
    }

    /// Has the subflow with the least round-trip time send an ACK (`mptcp_select_ack_sock`). Returns whether
    /// there is one.
    #[cold]
    pub fn request_ack_on_fastest(&mut self) -> bool {
        let fastest = self.usable().min_by_key(|metrics| metrics.rtt.smoothed).map(|metrics| metrics.id);
        let subflow = fastest.and_then(|id| self.get_mut(id.index()));
        subflow.map(|subflow| subflow.tcp.request_ack()).is_some()
    }

    /// Tells the peer when the window has opened a good deal. Returns whether an ACK is sent for that.
    pub fn offer_window(&mut self, buffer: &ReceiveBuffer, old_acks: bool) -> bool {
        if old_acks {
            return buffer.has_doubled() && self.request_ack_on_fastest();
        }
        buffer.owes_update() && self.request_ack_on_all()
    }

    /// Something was read. Returns whether an ACK is sent for that.
    #[cold]
    pub fn on_read(&mut self) -> bool {
        self.iter_mut().fold(false, |any, subflow| any | subflow.tcp.on_read())
    }

    /// Everything was read. Returns whether an ACK is sent for that.
    #[inline]
    pub fn on_all_read(&mut self) -> bool {
        self.iter_mut().fold(false, |any, subflow| any | subflow.tcp.on_all_read())
    }

    /// Has every subflow ask for the peer's window.
    pub fn probe_windows(&mut self) {
        self.iter_mut().for_each(|subflow| subflow.tcp.probe_window());
    }

    /// Has every subflow look again whether it has something to send.
    pub fn recheck_output(&mut self) {
        self.iter_mut().for_each(|subflow| subflow.tcp.recheck_output());
    }

    /// Sends a FIN on each.
    pub fn close_all(&mut self) {
        self.iter_mut().for_each(|subflow| subflow.tcp.close());
    }

    /// Sends a RST on each.
    pub fn abort_all(&mut self) {
        for subflow in self.iter_mut() {
            subflow.tcp.abort();
        }
    }

    /// Ends each without a word.
    pub fn forget_all(&mut self) {
        self.iter_mut().for_each(|subflow| subflow.tcp.become_closed());
    }

    /// Sends a RST on each, with MP_FASTCLOSE on the first that does (RFC 8684 3.5), and counts them as
    /// closed.
    pub fn abort_with_fastclose(&mut self, multipath: bool) {
        let mut first = multipath;
        for subflow in self.iter_mut() {
            if first {
                first = !subflow.fastclose();
            } else {
                subflow.tcp.abort();
            }
        }
        self.metrics.iter_mut().for_each(|metrics| metrics.state = SubflowStatus::Closed);
    }

    /// Whether all are closed, or wait for old segments to die out.
    pub fn all_closed(&self) -> bool {
        self.iter().all(|subflow| matches!(subflow.tcp.state(), State::Closed | State::TimeWait))
    }

    /// Whether none has anything more to send, not even a RST.
    #[cold]
    pub fn all_finished(&self) -> bool {
        self.iter().all(|subflow| subflow.tcp.is_finished())
    }

    /// Frees unused memory.
    pub fn shrink(&mut self) {
        for subflow in self.iter_mut() {
            subflow.tcp.shrink();
            subflow.mapping.shrink();
        }
    }

    /// Frees what subflows keep of data that was sent, where there is none.
    pub fn release_memory(&mut self) {
        self.iter_mut().for_each(|subflow| subflow.tcp.release_memory());
    }

    /// Whether some usable subflow's window has room.
    #[inline]
    pub fn any_window(&self) -> bool {
        let has_room = |metrics: &SubflowMetrics| metrics.usable() & (metrics.in_flight() < metrics.cwnd());
        // Not `any`: which subflow has room is as good as random, and the branch would be mispredicted.
        self.metrics.iter().fold(false, |any, metrics| any | has_room(metrics))
    }

    /// If none is usable, stale ones count again. Returns whether there was none.
    #[inline]
    pub fn revive_if_none_usable(&mut self) -> bool {
        let none = self.usable().next().is_none();
        if none {
            self.revive();
        }
        none
    }

    #[cold]
    fn revive(&mut self) {
        for metrics in &mut self.metrics {
            if metrics.state == SubflowStatus::Stale {
                metrics.state = SubflowStatus::Usable;
            }
        }
    }

    /// Notes which subflows have nothing to send although their windows have room.
    #[inline]
    pub fn check_app_limited(&mut self) {
        for (subflow, metrics) in self.with_metrics_mut() {
            if metrics.packets_out() > 0 {
                subflow.tcp.check_app_limited(metrics);
            }
        }
    }

    /// Whether a subflow may have something to send.
    #[inline]
    pub fn may_have_output(&self, index: usize) -> bool {
        matches!(self.slots.get(index), Some(Some(subflow)) if !subflow.tcp.has_nothing_to_send())
    }

    /// Whether a subflow has something to send of itself.
    #[inline]
    pub fn has_output(&mut self, index: usize) -> bool {
        self.both_mut(index).is_some_and(|(subflow, metrics)| subflow.tcp.has_output(metrics))
    }

    /// A subflow has sent a segment.
    #[inline]
    pub fn note_sent(&mut self, index: usize) {
        self.last_sent_on = index;
    }

    /// The subflow that sent last, which is asked first.
    #[inline]
    pub fn last_sent_on(&self) -> usize {
        if self.last_sent_on < self.slots.len() { self.last_sent_on } else { 0 }
    }

    /// The earliest deadline of any; [`Time::MAX`]: none.
    pub fn next_timeout(&self) -> Time {
        let timeouts = self.iter().map(|subflow| subflow.tcp.poll_timeout().unwrap_or(Time::MAX));
        timeouts.min().unwrap_or(Time::MAX)
    }

    /// A lower bound of it that is cheap to ask for.
    #[inline]
    pub fn timeout_floor(&self) -> Time {
        self.iter().map(|subflow| subflow.tcp.timeout_floor()).fold(Time::MAX, Time::min)
    }

    /// Makes the lower bound the earliest deadline, and returns it.
    pub fn refresh_timeout_floor(&mut self) -> Time {
        let floors = self.iter_mut().map(|subflow| subflow.tcp.refresh_timeout_floor());
        floors.fold(Time::MAX, Time::min)
    }

    /// Payload bytes sent by slot, repeats included.
    pub fn bytes_sent(&self) -> Vec<u64> {
        let now = self.slots.iter().map(|subflow| subflow.as_ref().map_or(0, |s| s.tcp.bytes_sent()));
        let past = self.past.iter().flat_map(|past| &past.bytes).copied().chain(std::iter::repeat(0));
        now.zip(past).map(|(now, past)| now + past).collect()
    }

    /// What all counted, past ones included.
    pub fn totals(&self) -> TcpCounters {
        let mut totals = self.past.as_ref().map(|past| past.counters).unwrap_or_default();
        for subflow in self.iter() {
            totals += &subflow.tcp.counters();
        }
        totals
    }
}

impl<P: Payload> Fates for SubflowTable<P> {
    #[cold]
    fn fate(&self, subflow: SubflowId, offset: u64) -> Fate {
        self.get(subflow.index()).map_or(Fate::Lost, |subflow| subflow.tcp.fate(offset))
    }
}
