//! Assigns data to subflows: reinjections first, then what the scheduler decides, clipped to the windows.
//! Also the rule that a scheduler can't stall a connection.

use std::ops::Range;

use ropewalk_wire::Payload;

use super::chunks::LONGEST_MAPPING;
use super::deadlines::Deadline;
use super::scheduling::view;
use super::sending::Sending;
use super::stats::{DecisionRecord, Event};
use crate::metrics::SubflowMetrics;
use crate::scheduler::{self, Chunk, Decision, Purpose, View};
use crate::{MAX_SUBFLOWS, Span, SubflowId, Time};

/// Consecutive decisions that send nothing before the engine stops calling the scheduler until the next
/// event.
const MAX_EMPTY_DECISIONS: u32 = 64;

/// The shortest wait. Without an RTT sample a scheduler may ask for waits of almost no time, again and again.
const MIN_WAIT: Span = Span::from_micros(100);

/// A piece of this many bytes gets super-segments of its own: joining it with others would copy it.
const LARGE_PIECE: u64 = 16 << 10;

impl<P: Payload> Sending<'_, P> {
    /// Assigns data to a subflow and returns which; `None` if nothing can or should be sent now.
    #[inline(always)]
    pub fn schedule_next(&mut self, now: Time, max_segments: u32) -> Option<usize> {
        if self.send.has_reinjections()
            && self.handshake.is_multipath()
            && let Some(index) = self.schedule_reinjection(now)
        {
            return Some(index);
        }
        if !self.scheduling.needs_schedule() {
            return None;
        }
        let only = if self.config.peer_segment_overhead > 0 { self.reserve_window() } else { None };
        let queues_ahead = self.scheduling.queues_ahead();
        let mut idle = 0;
        loop {
            let unsent = self.send.unsent();
            // A scheduler that repeats data has work without new data.
            if unsent == 0 && !(self.scheduling.repeats() && self.send.una() < self.send.assigned_end()) {
                let index = if self.send.writer_waits() { self.on_all_assigned(now) } else { None };
                self.scheduling.set_needs_schedule(index.is_some());
                return index;
            }
            if self.send.cork().may_hold() && self.is_held_back(now) {
                self.scheduling.set_needs_schedule(false);
                return None;
            }
            if unsent > 0 && self.send.window_left() == 0 {
                self.on_window_blocked(now);
                if let Some(index) = self.run_mechanisms(now) {
                    return Some(index);
                }
            }
            if !queues_ahead && !self.subflows.any_window() {
                // With every subflow stale nothing would end the wait: they count as usable again.
                let revived = self.subflows.revive_if_none_usable() && self.subflows.any_window();
                self.scheduling.set_needs_schedule(revived);
                if !revived {
                    return None;
                }
            }
            if let Some(only) = only {
                return self.send_on_only(now, only, max_segments);
            }
            if self.scheduling.limits_queues() {
                self.measure_queues();
            }
            let view = view!(self, now);
            let decision = self.scheduling.select(&view);
            let (assigned, offset, bytes) = match decision {
                // The common case.
                Decision::Send { subflow, bytes } => {
                    self.assign(now, subflow, self.send.next_offset(), bytes, false, max_segments)
                }
                _ => self.apply(now, decision, max_segments),
            };
            if self.scheduling.traces() {
                self.record_decision(now, decision, offset, bytes, unsent);
            }
            if assigned.is_some() {
                return assigned;
            }
            idle += 1;
            if matches!(decision, Decision::Wait { .. }) || idle >= MAX_EMPTY_DECISIONS {
                return self.stop_asking(now, decision, max_segments);
            }
        }
    }

    /// Sends on the only subflow that may get new data; the scheduler isn't asked.
    #[cold]
    fn send_on_only(&mut self, now: Time, subflow: SubflowId, max_segments: u32) -> Option<usize> {
        let bytes = self.subflows.metrics()[subflow.index()].mss;
        let assigned = self.apply(now, Decision::Send { subflow, bytes }, max_segments).0;
        self.scheduling.set_needs_schedule(assigned.is_some());
        assigned
    }

    /// The scheduler waits, or its decisions send nothing: it isn't asked again until something happens.
    #[cold]
    fn stop_asking(&mut self, now: Time, decision: Decision, max_segments: u32) -> Option<usize> {
        self.scheduling.set_needs_schedule(false);
        if let Decision::Wait { until } = decision {
            if self.scheduling.await_decision() {
                return None;
            }
            match until.filter(|at| *at > now) {
                Some(at) => self.deadlines.set(Deadline::Wait, at.max(now + MIN_WAIT)),
                None => self.deadlines.stop(Deadline::Wait),
            }
        } else if self.send.unsent() > 0 && self.send.window_left() > 0 && self.subflows.any_window() {
            // With the window full nothing could have been sent: that is no fault of the scheduler's.
            self.note_overruled(now, self.nothing_sent(decision));
        }
        self.override_wait(now, max_segments)
    }

    /// All written data is assigned to subflows, and the writer waits for buffer space: data that was sent
    /// may be sent again on another subflow.
    #[inline(never)]
    fn on_all_assigned(&mut self, now: Time) -> Option<usize> {
        if self.send.writable() {
            return None;
        }
        if self.subflows.any_window() {
            self.notify_scheduler(now, scheduler::Event::BufferBlocked);
        }
        self.run_mechanisms(now)
    }

    /// Schedules on while the scheduler chooses the same subflow, so that its data leaves as one
    /// super-segment.
    #[inline(never)]
    pub fn coalesce(&mut self, now: Time, index: usize, max_segments: u32) {
        for _ in 1..max_segments {
            let metrics = &self.subflows.metrics()[index];
            let full = metrics.queued_bytes + u64::from(metrics.mss)
                > u64::from(max_segments) * u64::from(metrics.mss);
            if full || metrics.window_space() == 0 || self.schedule_next(now, max_segments) != Some(index) {
                break;
            }
        }
        self.finish_super_segment();
    }

    /// Gives the subflow the payload of the super-segment that was coalesced. A payload that spans several
    /// writes is copied, so this is done once, not for each segment that was added.
    #[inline]
    fn finish_super_segment(&mut self) {
        if self.scheduling.coalesced().is_some() {
            self.copy_super_segment();
        }
    }

    #[inline(never)]
    fn copy_super_segment(&mut self) {
        if let Some((index, start, end)) = self.scheduling.take_coalesced() {
            let payload = self.send.get(start, (end - start) as u32);
            if let Some(subflow) = self.subflows.get_mut(index) {
                subflow.tcp.replace_tail(payload);
            }
        }
    }

    /// Updates the room in each subflow's queue: in its send buffer, which only schedulers that queue ahead
    /// fill, and in its own window, if that counts now.
    #[inline(never)]
    pub fn measure_queues(&mut self) {
        if self.scheduling.queues_ahead() {
            self.measure_send_buffers();
        } else {
            (0..self.subflows.metrics().len())
                .for_each(|index| self.subflows.metrics_mut(index).queue_space = u64::MAX);
        }
        if self.scheduling.is_by_window() {
            for index in 0..self.subflows.metrics().len() {
                if let Some((subflow, metrics)) = self.subflows.both_mut(index) {
                    let room = subflow.tcp.window_room().saturating_sub(metrics.queued_bytes);
                    metrics.queue_space = metrics.queue_space.min(room);
                }
            }
        }
    }

    fn measure_send_buffers(&mut self) {
        let config = self.config.send_buffer;
        for index in 0..self.subflows.metrics().len() {
            if config.initial == config.max {
                self.subflows.metrics_mut(index).send_buffer = config.max;
            } else if self.subflows.metrics()[index].send_buffer == 0 {
                self.subflows.metrics_mut(index).send_buffer = self.wanted_send_buffer(index).min(config.max);
            }
            let metrics = self.subflows.metrics_mut(index);
            metrics.queue_space = metrics.send_buffer.saturating_sub(metrics.send_memory());
        }
    }

    #[cold]
    fn record_decision(&mut self, now: Time, decision: Decision, offset: u64, bytes: u32, unsent: u64) {
        let Some(reason) = self.scheduling.take_reason() else { return };
        let window_left = self.send.window_left();
        let record = DecisionRecord { at: now, decision, offset, bytes, unsent, window_left, reason };
        self.events.push(Event::Decision(Box::new(record)));
    }

    /// The scheduler waits. If nothing is in flight that could end the wait, the engine sends by `minrtt`
    /// (see [`Decision::Wait`]).
    #[cold]
    fn override_wait(&mut self, now: Time, max_segments: u32) -> Option<usize> {
        // A stale subflow's retransmissions don't count: they may never be acknowledged.
        let awaits_ack = |metrics: &SubflowMetrics| {
            metrics.usable() && (metrics.packets_out() > 0 || metrics.queued_bytes > 0)
        };
        let silent = !self.subflows.metrics().iter().any(awaits_ack);
        if !silent
            || self.deadlines.is_set(Deadline::Wait)
            || self.send.unsent() == 0
            || self.send.window_left() == 0
        {
            return None;
        }
        let view = view!(self, now);
        let subflow = View::fastest(view.available()).map(|metrics| metrics.id)?;
        let bytes = self.subflows.metrics()[subflow.index()].mss;
        let assigned = self.apply(now, Decision::Send { subflow, bytes }, max_segments).0;
        if assigned.is_some() {
            self.note_overruled(now, "it waited with nothing in flight that could end the wait");
        }
        assigned
    }

    /// Why a decision that isn't to wait sent nothing.
    #[cold]
    fn nothing_sent(&self, decision: Decision) -> &'static str {
        let named = match decision {
            Decision::Send { subflow, bytes }
            | Decision::SendAt { subflow, bytes, .. }
            | Decision::Queue { subflow, bytes } => {
                if bytes == 0 {
                    return "it sent 0 bytes";
                }
                subflow
            }
            Decision::Duplicate { .. } => return "what it duplicated can't be sent again there",
            Decision::Withdraw { .. } => return "it withdrew data again and again",
            Decision::Wait { .. } => return "it waited",
        };
        match self.subflows.metrics().get(named.index()) {
            None => "it named a subflow that isn't there",
            Some(metrics) if !metrics.usable() => "it named a subflow that can't be used",
            Some(metrics) if metrics.window_space() == 0 => "it named a subflow whose window is full",
            Some(_) => "its decisions sent nothing",
        }
    }

    /// Counts that the engine didn't do what the scheduler said.
    #[cold]
    fn note_overruled(&mut self, now: Time, cause: &'static str) {
        self.stats.count().overruled.note(now, cause);
    }

    /// Executes a decision. Returns the subflow that got data, the offset and the length.
    #[inline(never)]
    pub fn apply(&mut self, now: Time, decision: Decision, max_segments: u32) -> (Option<usize>, u64, u32) {
        let next = self.send.next_offset();
        let (subflow, offset, bytes, queue) = match decision {
            Decision::Send { subflow, bytes } => (subflow, next, bytes, false),
            Decision::SendAt { subflow, offset, bytes } => (subflow, offset, bytes, false),
            Decision::Queue { subflow, bytes } => (subflow, next, bytes, true),
            Decision::Duplicate { subflow, offset, purpose } => {
                return self.duplicate(now, subflow, offset, purpose);
            }
            Decision::Withdraw { subflow } => {
                self.finish_super_segment();
                self.withdraw_queued(now, subflow);
                return (None, 0, 0);
            }
            Decision::Wait { .. } => return (None, 0, 0),
        };
        self.assign(now, subflow, offset, bytes, queue, max_segments)
    }

    /// Assigns new data to a subflow.
    // Runs once per segment. With more callers the compiler would no longer inline it: others call `apply`.
    #[inline(always)]
    fn assign(
        &mut self,
        now: Time,
        subflow: SubflowId,
        offset: u64,
        bytes: u32,
        queue: bool,
        max_segments: u32,
    ) -> (Option<usize>, u64, u32) {
        let nothing = (None, offset, 0);
        let index = subflow.index();
        let Some(metrics) = self.subflows.metrics().get(index) else { return nothing };
        if !metrics.usable() || bytes == 0 || metrics.mss == 0 {
            return nothing;
        }
        let Some(free) = self.send.unassigned_at(offset) else { return nothing };
        let room = if queue { u32::MAX } else { metrics.window_space() };
        if room == 0 {
            return nothing;
        }
        let window_end = self.send.usable_end().max(self.send.assigned_end());
        let left = window_end.min(free.end).saturating_sub(free.start);
        let burst = if queue {
            u64::from(bytes)
        } else {
            u64::from(max_segments.max(1).min(room)) * u64::from(metrics.mss)
        };
        let mut len = u64::from(bytes).min(burst).min(left).min(LONGEST_MAPPING);
        if len == 0 {
            return nothing;
        }
        // Whole segments but for the end of the data, so that windows counted in segments are used in full.
        let mss = u64::from(metrics.mss);
        let is_partial = len < free.end - free.start || self.send.cork().is_holding();
        if len > mss && is_partial {
            len -= len % mss;
        } else if len < mss && len == left && self.handshake.is_plain() {
            // The window cuts it: TCP keeps the whole segment back until there is room, or sends a part after
            // a timeout (RFC 9293 3.8.6.2.1).
            len = mss.min(u64::from(bytes)).min(free.end - free.start);
        }
        let start = free.start;
        let contiguous = if max_segments > 1 { self.send.contiguous_bytes(start) } else { u64::MAX };
        if contiguous < len && len > mss {
            len = self.cut_at_large_piece(start, contiguous, len, mss);
        }
        self.send.assign(start..start + len);
        let chunk =
            Chunk { offset: start, len: len as u32, carriers: 1 << subflow.0, last: subflow, sent_at: now };
        self.send.insert_chunk(chunk);
        if max_segments == 1
            || !self.extend_super_segment(index, start..start + len, contiguous, max_segments)
        {
            self.finish_super_segment();
            let payload = self.send.get(start, len as u32);
            if let Some((subflow, metrics)) = self.subflows.both_mut(index) {
                subflow.tcp.push(metrics, start, payload);
            }
        }
        if self.send.unsent() == 0 {
            self.scheduling.unblock(now);
            self.send.cork_mut().set_overdue(false);
        }
        if self.send.has_unsent_mark() {
            self.wake_writer();
        }
        (Some(index), start, len as u32)
    }

    /// A super-segment ends where a large piece of the application's does, and the next begins with one: only
    /// the segment that spans two of them is copied, not all that would go with it. Returns how many of `len`
    /// bytes from `start` on go at once, where the piece there has `contiguous` left.
    #[inline(never)]
    fn cut_at_large_piece(&self, start: u64, contiguous: u64, len: u64, mss: u64) -> u64 {
        let is_next_large = || self.send.contiguous_bytes(start + contiguous) >= LARGE_PIECE;
        if contiguous >= LARGE_PIECE || is_next_large() {
            (contiguous - contiguous % mss).max(mss)
        } else {
            len
        }
    }

    //= RFC 8985 7.3 a probe is new data, if there is some that the peer's window admits
    /// A tail loss probe is due: gives the subflow new data for it, whatever its congestion window. Only the
    /// lone subflow gets some: among several the scheduler says where data goes, and the probe repeats the
    /// last segment.
    #[cold]
    pub fn assign_probe(&mut self, now: Time, index: usize) {
        let alone = self.subflows.usable().count() == 1;
        if alone
            && self.subflows.metrics()[index].usable()
            && self.send.unsent() > 0
            && self.send.window_left() > 0
        {
            let (subflow, bytes) = (self.subflows.metrics()[index].id, self.subflows.metrics()[index].mss);
            self.apply(now, Decision::Queue { subflow, bytes }, 1);
        }
    }

    /// Extends the last piece in the subflow's queue by `range`, if the two are contiguous. Not if that piece
    /// has been acknowledged meanwhile, over another subflow: its bytes are freed. `contiguous`: bytes from
    /// the range's start on that lie in one piece.
    #[inline(never)]
    fn extend_super_segment(
        &mut self,
        index: usize,
        range: Range<u64>,
        contiguous: u64,
        max_segments: u32,
    ) -> bool {
        let tail = match (self.scheduling.coalesced(), self.subflows.get(index)) {
            (Some((at, from, end)), _) => (at == index).then_some((from, end)),
            (None, Some(subflow)) => subflow.tcp.queued_tail(),
            _ => None,
        };
        let most =
            (u64::from(max_segments) * u64::from(self.subflows.metrics()[index].mss)).min(LONGEST_MAPPING);
        let Some((from, end)) = tail else { return false };
        if end != range.start || from < self.send.una() || range.end - from > most {
            return false;
        }
        let before = self.send.contiguous_bytes(from);
        if range.end - from > before && before.max(contiguous) >= LARGE_PIECE {
            return false;
        }
        self.subflows.metrics_mut(index).queued_bytes += range.end - range.start;
        self.scheduling.coalesce(index, from, range.end);
        true
    }

    /// Takes back what waits on a subflow and no other carries. In plain TCP data keeps its order: nothing is
    /// taken.
    #[cold]
    pub fn withdraw_queued(&mut self, now: Time, subflow: SubflowId) {
        let index = subflow.index();
        if !self.handshake.is_multipath()
            || subflow.index() >= MAX_SUBFLOWS
            || !self.scheduling.may_withdraw(now, subflow)
        {
            return;
        }
        let Some((state, metrics)) = self.subflows.both_mut(index) else { return };
        let send = &mut *self.send;
        let before = send.unsent();
        state.tcp.withdraw(metrics, |range| send.unassign(range, subflow));
        self.stats.count().withdrawn_bytes += self.send.unsent() - before;
    }

    /// Sends data again that is in flight on another subflow.
    #[inline(never)]
    fn duplicate(
        &mut self,
        now: Time,
        subflow: SubflowId,
        offset: u64,
        purpose: Purpose,
    ) -> (Option<usize>, u64, u32) {
        let nothing = (None, offset, 0);
        let index = subflow.index();
        let Some(chunk) = self.send.chunk_at(offset) else { return nothing };
        let Some(metrics) = self.subflows.metrics().get(index) else { return nothing };
        if !self.handshake.is_multipath()
            || chunk.carried_by(subflow)
            || !metrics.usable()
            || metrics.window_space() == 0
            || !self.may_repeat(&chunk)
        {
            return nothing;
        }
        self.resend_chunk(now, index, chunk);
        match purpose {
            Purpose::Redundant => self.stats.count().duplicated_bytes += u64::from(chunk.len),
            Purpose::Opportunistic => self.stats.count().opportunistic_bytes += u64::from(chunk.len),
        }
        (Some(index), chunk.offset, chunk.len)
    }

    #[inline(never)]
    pub fn resend_chunk(&mut self, now: Time, index: usize, chunk: Chunk) {
        self.finish_super_segment();
        let payload = self.send.get(chunk.offset, chunk.len);
        self.send.repeated(chunk.offset, SubflowId(index as u8), now);
        if let Some((subflow, metrics)) = self.subflows.both_mut(index) {
            subflow.tcp.push(metrics, chunk.offset, payload);
            let (path, repeated) = (metrics.path, &mut self.stats.count().repeated_by_path);
            match repeated.iter_mut().find(|(known, _)| *known == path) {
                Some((_, bytes)) => *bytes += u64::from(chunk.len),
                None => repeated.push((path, u64::from(chunk.len))),
            }
        }
    }

    /// Reinjects the head of the reinjection queue: on the fastest available subflow that never carried it,
    /// or else on any but its last one.
    #[inline(never)]
    fn schedule_reinjection(&mut self, now: Time) -> Option<usize> {
        let chunk = self.send.next_reinjection()?;
        if !self.may_repeat(&chunk) {
            return None;
        }
        if self.scheduling.limits_queues() {
            // Nothing else looks at the buffers when there is no new data.
            self.measure_queues();
        }
        let index = {
            let view = view!(self, now);
            self.scheduling.reinject(&view, &chunk)?
        };
        let Some(index) = index else {
            self.subflows.revive_if_none_usable();
            return None;
        };
        // A lone subflow that still carries it repeats it by itself.
        let carries = self.subflows.metrics()[index].id == chunk.last && chunk.carried_by(chunk.last);
        if carries
            && self.subflows.get(index).is_some_and(|s| {
                s.tcp.outstanding().any(|(tag, len)| (tag..tag + u64::from(len)).contains(&chunk.offset))
            })
        {
            self.send.repeated(chunk.offset, chunk.last, now);
            return None;
        }
        self.resend_chunk(now, index, chunk);
        self.stats.count().reinjected_bytes += u64::from(chunk.len);
        self.notify(now, scheduler::Event::Reinjected(SubflowId(index as u8)));
        Some(index)
    }

    #[cold]
    fn on_window_blocked(&mut self, now: Time) {
        if self.scheduling.block(now) {
            self.notify(now, scheduler::Event::WindowBlocked);
        }
    }
}
