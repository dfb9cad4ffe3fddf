//! Placing data: reinjections first, then the scheduler's decisions, clipped to what windows allow; the mechanisms
//! that run when the connection-level window blocks (blest-2016 II-A); the net under a scheduler that would stall.

use std::ops::Range;

use ropewalk_wire::Payload;

use super::buffer::subflow_buffer;
use super::connection::{Connection, Mode};
use super::stats::{DecisionRecord, Event};
use crate::metrics::{CaState, SubflowMetrics};
use crate::scheduler::{self, Chunk, Decision, Purpose, Rule, View};
use crate::{Nanos, SubflowId};

/// Decisions that send nothing, in a row, before the engine stops asking until the next event.
const PATIENCE: u32 = 64;

/// Waits are at least this long. A subflow without a round-trip sample makes a scheduler wait for next to nothing,
/// over and over.
const LEAST_WAIT: Nanos = 100_000;

/// A piece of so many bytes is worth a super-segment of its own.
const WORTH_APART: u64 = 16 << 10;

macro_rules! view {
    ($connection:expr, $now:expr) => {
        View {
            now: $now,
            subflows: &$connection.metrics,
            unsent: $connection.send.unsent(),
            next_offset: $connection.send.next_offset(),
            una: $connection.send.una,
            send_window: $connection.send.peer_window,
            window_left: $connection.send.window_left(),
            written: $connection.send.written,
            declared_size: $connection.send.declared,
            closed: $connection.send.closed,
            in_flight: &$connection.send.chunks,
        }
    };
}

impl<P: Payload> Connection<P> {
    /// Lets the scheduler hear of something.
    #[inline]
    pub(crate) fn notify(&mut self, now: Nanos, event: scheduler::Event) {
        if self.scheduler_wants_events {
            self.tell_scheduler(now, event);
        }
    }

    #[inline(never)]
    fn tell_scheduler(&mut self, now: Nanos, event: scheduler::Event) {
        let view = view!(self, now);
        self.scheduler.on_event(&view, event);
    }

    /// Gives data to some subflow and returns which; `None` when nothing can or should be sent now.
    #[inline(always)]
    pub(crate) fn place(&mut self, now: Nanos, max_segments: u32) -> Option<usize> {
        if !self.send.reinjections.is_empty()
            && self.mode == Mode::Multipath
            && let Some(index) = self.place_reinjection(now)
        {
            return Some(index);
        }
        if !self.ask {
            return None;
        }
        let queues_ahead = self.queues_ahead;
        let mut idle = 0;
        loop {
            let unsent = self.send.unsent();
            if unsent == 0 && !(self.scheduler.repeats() && self.send.una < self.send.assigned_end) {
                if self.send.writer_waits
                    && !self.send.writable()
                    && let Some(index) = self.run_mechanisms(now)
                {
                    return Some(index);
                }
                self.ask = false;
                return None;
            }
            if unsent > 0 && self.send.window_left() == 0 {
                self.note_blocked(now);
                if let Some(index) = self.run_mechanisms(now) {
                    return Some(index);
                }
            }
            if !queues_ahead && !self.any_window() {
                self.ask = self.revive_if_none_usable() && self.any_window();
                if !self.ask {
                    return None;
                }
            }
            if queues_ahead {
                self.measure_queues();
            }
            let view = view!(self, now);
            let decision = self.scheduler.select(&view, &mut self.why);
            let (placed, offset, bytes) = match decision {
                // What nearly every one is.
                Decision::Send { subflow, bytes } => {
                    self.hand_over(now, subflow, self.send.next_offset(), bytes, false, max_segments)
                }
                _ => self.apply(now, decision, max_segments),
            };
            if self.why.on() {
                self.record(now, decision, offset, bytes, unsent);
            }
            if placed.is_some() {
                return placed;
            }
            if let Decision::Wait { until } = decision {
                self.ask = false;
                self.deadlines.wait = until.filter(|at| *at > now).map(|at| at.max(now + LEAST_WAIT));
                return self.save_from_stall(now, max_segments);
            }
            idle += 1;
            if idle >= PATIENCE {
                self.ask = false;
                return self.save_from_stall(now, max_segments);
            }
        }
    }

    /// Asks on as long as the same subflow is chosen, so that what it gets leaves as one super-segment.
    #[inline(never)]
    pub(crate) fn gather(&mut self, now: Nanos, index: usize, max_segments: u32) {
        for _ in 1..max_segments {
            let metrics = &self.metrics[index];
            let full = metrics.queued_bytes + u64::from(metrics.mss)
                > u64::from(max_segments) * u64::from(metrics.mss);
            if full || metrics.window_space() == 0 || self.place(now, max_segments) != Some(index) {
                break;
            }
        }
        self.assemble();
    }

    /// Puts the payload of what was gathered together, once: each time it grew would copy it as often as there are
    /// segments in it, where it spans several of the application's writes.
    #[inline]
    fn assemble(&mut self) {
        if self.gathered.is_some() {
            self.assemble_gathered();
        }
    }

    #[inline(never)]
    fn assemble_gathered(&mut self) {
        if let Some((index, start, end)) = self.gathered.take() {
            let payload = self.send.get(start, (end - start) as u32);
            if let Some(strand) = self.strands[index].as_mut() {
                strand.tcp.replace_tail(payload);
            }
        }
    }

    /// What each subflow's own send buffer may still take: only a scheduler that queues ahead fills one.
    #[inline(never)]
    fn measure_queues(&mut self) {
        let config = self.config.send_buffer;
        for metrics in &mut self.metrics {
            if config.initial == config.max {
                metrics.send_buffer = config.max;
            } else if metrics.send_buffer == 0 {
                metrics.send_buffer = subflow_buffer(metrics).min(config.max);
            }
            metrics.queue_space = metrics.send_buffer.saturating_sub(metrics.send_memory());
        }
    }

    /// When every subflow is stale, all of them count again.
    #[cold]
    fn revive(&mut self) {
        for metrics in &mut self.metrics {
            if metrics.state == crate::metrics::SubflowStatus::Stale {
                metrics.state = crate::metrics::SubflowStatus::Usable;
            }
        }
    }

    #[cold]
    fn record(&mut self, now: Nanos, decision: Decision, offset: u64, bytes: u32, unsent: u64) {
        let window_left = self.send.window_left();
        let reason = self.why.take();
        let record = DecisionRecord { at: now, decision, offset, bytes, unsent, window_left, reason };
        self.events.push_back(Event::Decision(Box::new(record)));
    }

    /// Nothing is in flight anywhere and the scheduler waits: the engine sends by `minrtt` (see
    /// [`Decision::Wait`]).
    #[cold]
    fn save_from_stall(&mut self, now: Nanos, max_segments: u32) -> Option<usize> {
        // What a stale subflow still repeats into the void brings no event.
        let hears = |metrics: &SubflowMetrics| {
            metrics.usable() && (metrics.packets_out > 0 || metrics.queued_bytes > 0)
        };
        let silent = !self.metrics.iter().any(hears);
        if !silent || self.deadlines.wait.is_some() || self.send.unsent() == 0 || self.send.window_left() == 0
        {
            return None;
        }
        let view = view!(self, now);
        let subflow = View::fastest(view.available()).map(|metrics| metrics.id)?;
        let bytes = self.metrics[subflow.index()].mss;
        self.apply(now, Decision::Send { subflow, bytes }, max_segments).0
    }

    /// Carries a decision out. Returns the subflow that got data, the offset and the length.
    #[inline(never)]
    fn apply(&mut self, now: Nanos, decision: Decision, max_segments: u32) -> (Option<usize>, u64, u32) {
        let next = self.send.next_offset();
        let (subflow, offset, bytes, queue) = match decision {
            Decision::Send { subflow, bytes } => (subflow, next, bytes, false),
            Decision::SendAt { subflow, offset, bytes } => (subflow, offset, bytes, false),
            Decision::Queue { subflow, bytes } => (subflow, next, bytes, true),
            Decision::Duplicate { subflow, offset, purpose } => {
                return self.duplicate(now, subflow, offset, purpose);
            }
            Decision::Wait { .. } => return (None, 0, 0),
        };
        self.hand_over(now, subflow, offset, bytes, queue, max_segments)
    }

    /// New data to a subflow.
    #[inline]
    fn hand_over(
        &mut self,
        now: Nanos,
        subflow: SubflowId,
        offset: u64,
        bytes: u32,
        queue: bool,
        max_segments: u32,
    ) -> (Option<usize>, u64, u32) {
        let nothing = (None, offset, 0);
        let index = subflow.index();
        let Some(metrics) = self.metrics.get(index) else { return nothing };
        if !metrics.usable() || bytes == 0 || metrics.mss == 0 {
            return nothing;
        }
        let Some(free) = self.send.unassigned_at(offset) else { return nothing };
        let room = if queue { u32::MAX } else { metrics.window_space() };
        if room == 0 {
            return nothing;
        }
        let window_end = self.send.window_end.max(self.send.assigned_end);
        let left = window_end.min(free.end).saturating_sub(free.start);
        let burst = if queue {
            u64::from(bytes)
        } else {
            u64::from(max_segments.max(1).min(room)) * u64::from(metrics.mss)
        };
        // A mapping's length has 16 bits, and DATA_FIN takes one.
        let mut len = u64::from(bytes).min(burst).min(left).min(65_534);
        if len == 0 {
            return nothing;
        }
        // Whole segments but for the end of the data, so that windows counted in segments are used in full.
        let mss = u64::from(metrics.mss);
        if len > mss && len < free.end - free.start {
            len -= len % mss;
        }
        let start = free.start;
        // A super-segment ends where a large piece of the application's does, and the next begins with one: only the
        // segment that spans two of them is copied, not all that would go with it.
        let together = if max_segments > 1 { self.send.together(start) } else { 0 };
        if (WORTH_APART..len).contains(&together) {
            len = together - together % mss;
        }
        self.send.assign(start..start + len);
        let chunk =
            Chunk { offset: start, len: len as u32, carriers: 1 << subflow.0, last: subflow, sent_at: now };
        self.send.chunks.insert(chunk);
        if max_segments == 1 || !self.lengthen(index, start..start + len, together, max_segments) {
            self.assemble();
            let payload = self.send.get(start, len as u32);
            if let (Some(strand), Some(metrics)) = (self.strands[index].as_mut(), self.metrics.get_mut(index))
            {
                strand.tcp.push(metrics, start, payload);
            }
        }
        if self.send.unsent() == 0 {
            self.unblock(now);
        }
        (Some(index), start, len as u32)
    }

    /// Where super-segments are wanted, what goes on from the last piece becomes one with it; not if that piece has
    /// arrived over another subflow meanwhile, as its bytes are gone. `together`: bytes from the range's start on that
    /// lie in one piece.
    #[inline(never)]
    fn lengthen(&mut self, index: usize, range: Range<u64>, together: u64, max_segments: u32) -> bool {
        let tail = match (self.gathered, &self.strands[index]) {
            (Some((at, from, end)), _) => (at == index).then_some((from, end)),
            (None, Some(strand)) => strand.tcp.queued_tail(),
            _ => None,
        };
        let most = (u64::from(max_segments) * u64::from(self.metrics[index].mss)).min(65_534);
        let Some((from, end)) = tail else { return false };
        if end != range.start || from < self.send.una || range.end - from > most {
            return false;
        }
        let before = self.send.together(from);
        if range.end - from > before && before.max(together) >= WORTH_APART {
            return false;
        }
        self.metrics[index].queued_bytes += range.end - range.start;
        self.gathered = Some((index, from, range.end));
        true
    }

    /// Data in flight elsewhere, again.
    #[inline(never)]
    fn duplicate(
        &mut self,
        now: Nanos,
        subflow: SubflowId,
        offset: u64,
        purpose: Purpose,
    ) -> (Option<usize>, u64, u32) {
        let nothing = (None, offset, 0);
        let index = subflow.index();
        let Some(sent) = self.send.chunks.find(offset) else { return nothing };
        let chunk = sent.chunk();
        let Some(metrics) = self.metrics.get(index) else { return nothing };
        if self.mode != Mode::Multipath
            || chunk.carried_by(subflow)
            || !metrics.usable()
            || metrics.window_space() == 0
        {
            return nothing;
        }
        self.repeat(now, index, chunk);
        match purpose {
            Purpose::Redundant => self.stats.duplicated_bytes += u64::from(chunk.len),
            Purpose::Opportunistic => self.stats.opportunistic_bytes += u64::from(chunk.len),
        }
        (Some(index), chunk.offset, chunk.len)
    }

    #[inline(never)]
    fn repeat(&mut self, now: Nanos, index: usize, chunk: Chunk) {
        self.assemble();
        let payload = self.send.get(chunk.offset, chunk.len);
        self.send.repeated(chunk.offset, SubflowId(index as u8), now);
        if let (Some(strand), Some(metrics)) = (self.strands[index].as_mut(), self.metrics.get_mut(index)) {
            strand.tcp.push(metrics, chunk.offset, payload);
        }
    }

    /// The head of the reinjection queue, on the fastest available subflow that doesn't carry it, or failing that
    /// any other than the last.
    #[inline(never)]
    fn place_reinjection(&mut self, now: Nanos) -> Option<usize> {
        let chunk = self.send.next_reinjection()?;
        if self.queues_ahead {
            // Nothing else looks at the buffers when there is no new data.
            self.measure_queues();
        }
        let index = {
            let view = view!(self, now);
            let fresh = View::fastest(view.available().filter(|metrics| !chunk.carried_by(metrics.id)));
            let alone = view.usable().count() <= 1;
            fresh
                .or_else(|| View::fastest(view.available().filter(|metrics| metrics.id != chunk.last)))
                .or_else(|| if alone { View::fastest(view.available()) } else { None })
                .map(|metrics| metrics.id.index())
        };
        let Some(index) = index else {
            self.revive_if_none_usable();
            return None;
        };
        // A lone subflow that still carries it repeats it by itself.
        let carries = self.metrics[index].id == chunk.last && chunk.carried_by(chunk.last);
        if carries
            && self.strands[index].as_ref().is_some_and(|s| {
                s.tcp.outstanding().any(|(tag, len)| (tag..tag + u64::from(len)).contains(&chunk.offset))
            })
        {
            self.send.repeated(chunk.offset, chunk.last, now);
            return None;
        }
        self.repeat(now, index, chunk);
        self.stats.reinjected_bytes += u64::from(chunk.len);
        self.notify(now, scheduler::Event::Reinjected(SubflowId(index as u8)));
        Some(index)
    }

    /// Whether some usable subflow's window has room.
    #[inline]
    fn any_window(&self) -> bool {
        self.metrics.iter().any(|metrics| metrics.usable() && metrics.in_flight() < metrics.cwnd)
    }

    /// Whether there was none, so that stale ones count again.
    #[inline]
    fn revive_if_none_usable(&mut self) -> bool {
        let none = !self.metrics.iter().any(|metrics| metrics.usable());
        if none {
            self.revive();
        }
        none
    }

    #[cold]
    fn note_blocked(&mut self, now: Nanos) {
        if self.blocked_since.is_none() {
            self.blocked_since = Some(now);
            self.notify(now, scheduler::Event::WindowBlocked);
        }
    }

    pub(crate) fn unblock(&mut self, now: Nanos) {
        if let Some(since) = self.blocked_since.take() {
            self.stats.window_blocked += now.saturating_sub(since);
        }
    }

    /// Opportunistic retransmission and penalisation: when new data doesn't fit the connection-level window, and by the
    /// kernel's rule also when there is none because the send buffer is full.
    #[inline(never)]
    fn run_mechanisms(&mut self, now: Nanos) -> Option<usize> {
        let mechanisms = self.scheduler.mechanisms();
        if self.mode != Mode::Multipath
            || (mechanisms.opportunistic == Rule::Off && mechanisms.penalise == Rule::Off)
        {
            return None;
        }
        let head = self.send.chunks.find(self.send.una)?.chunk();
        let carrier = self.metrics.get(head.last.index())?.clone();
        let view = view!(self, now);
        // One without a sample isn't known to be faster than the carrier, nor is there an srtt of it in which to
        // penalise only once.
        let known = |metrics: &&SubflowMetrics| metrics.srtt > 0;
        let any = View::fastest(view.available().filter(known)).map(|best| (best.id.index(), best.srtt));
        let fresh = View::fastest(view.available().filter(known).filter(|best| !head.carried_by(best.id)))
            .map(|best| (best.id.index(), best.srtt));
        // The paper's candidate doesn't carry the head yet. The kernel's is where new data would go: while it carries
        // the head already, the others that carry it are still penalised, once per its srtt.
        let by = |rule: Rule| match rule {
            Rule::Off => None,
            Rule::Paper if self.send.unsent() > 0 => fresh,
            Rule::Paper => None,
            Rule::Linux => any,
        };
        let (penalising, repeating) = (by(mechanisms.penalise), by(mechanisms.opportunistic));
        if let Some((index, srtt)) = penalising {
            self.penalise(now, mechanisms.penalise, index, srtt, head);
        }
        let (index, srtt) = repeating?;
        let allowed = match mechanisms.opportunistic {
            Rule::Off => false,
            Rule::Paper => srtt < carrier.srtt,
            Rule::Linux => {
                !head.carried_by(SubflowId(index as u8)) && (carrier.cwnd <= 4 || 4 * srtt < carrier.srtt)
            }
        };
        if !allowed {
            return None;
        }
        self.repeat(now, index, head);
        self.stats.opportunistic_bytes += u64::from(head.len);
        self.notify(now, scheduler::Event::Reinjected(SubflowId(index as u8)));
        Some(index)
    }

    #[cold]
    fn penalise(&mut self, now: Nanos, rule: Rule, selected: usize, srtt: Nanos, head: Chunk) {
        if rule == Rule::Linux && self.send.unsent() == 0 && !self.send.is_full() {
            return;
        }
        for index in 0..self.metrics.len() {
            let metrics = &mut self.metrics[index];
            let concerned = match rule {
                Rule::Off => false,
                // The paper: the carrier of the segment that blocks.
                Rule::Paper => index == head.last.index() && metrics.srtt > srtt,
                // The kernel: every other carrier of it with a larger srtt, in Open.
                Rule::Linux => {
                    index != selected
                        && head.carried_by(metrics.id)
                        && metrics.srtt > srtt
                        && metrics.ca_state == CaState::Open
                }
            };
            if !concerned || !metrics.usable() || now.saturating_sub(self.penalised_at[index]) < srtt {
                continue;
            }
            self.penalised_at[index] = now;
            self.stats.penalisations += 1;
            let before = metrics.cwnd;
            metrics.cwnd = (metrics.cwnd / 2).max(1);
            if rule == Rule::Linux && before >= metrics.ssthresh {
                metrics.ssthresh = (metrics.ssthresh / 2).max(2);
            }
        }
    }
}
