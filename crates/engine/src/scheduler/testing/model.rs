//! A model connection: subflows are pipes of fixed round-trip time, segments leave them by arriving or by
//! being lost, and the clock is virtual. It applies decisions as the engine does ([`Decision`]'s
//! documentation), records every transmission, and every departure from the contract of
//! [`crate::scheduler::contract`].

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use super::{Chunks, MSS, Pipe, Placement, set_rtt};
use crate::link_rate::LinkRate;
use crate::metrics::{CaState, SubflowMetrics, SubflowStatus};
use crate::scheduler::{Chunk, Decision, Event, Message, Rationale, Scheduler, View};
use crate::tcp::WithoutSender as _;
use crate::{PathId, SECOND, Span, SubflowId, Time};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum ModelEvent {
    Write(u64),
    Join(u8),
    Fail(u8),
    /// A segment arrives at the receiver.
    Arrive {
        subflow: u8,
        offset: u64,
        len: u32,
    },
    /// Its acknowledgement arrives at the sender.
    Ack {
        subflow: u8,
        len: u32,
        data_ack: u64,
    },
    /// The sender detects a loss and retransmits on the same subflow.
    Lose {
        subflow: u8,
        offset: u64,
        len: u32,
    },
    Wake,
}

/// What the sender has of the stream.
#[derive(Debug, Default)]
pub(super) struct SendStream {
    /// Unassigned ranges below `frontier`: start, end.
    holes: BTreeMap<u64, u64>,
    /// End of the highest assigned range.
    frontier: u64,
    written: u64,
    pub(super) to_write: u64,
    una: u64,
    pub(super) send_window: u64,
    pub(super) declared_size: Option<u64>,
}

/// A model connection: its clock, its state and its records.
#[derive(Debug)]
pub struct Model {
    now: Time,
    pipes: Vec<Pipe>,
    subflows: Vec<SubflowMetrics>,
    queues: Vec<VecDeque<(u64, u32)>>,
    /// Acknowledged segments that count towards the next segment of cwnd.
    credit: Vec<u32>,
    /// Estimated for schedulers that want them.
    link_rates: Vec<LinkRate>,
    pub(super) chunks: Chunks,
    pub(super) messages: Vec<Message>,
    pub(super) stream: SendStream,
    /// Out-of-order ranges at the receiver: start, end.
    ofo: BTreeMap<u64, u64>,
    rcv_nxt: u64,
    reinject: VecDeque<(u64, u32)>,
    events: BinaryHeap<Reverse<(Time, u64, ModelEvent)>>,
    serial: u64,
    pub(super) random: u64,
    was_blocked: bool,
    /// Every transmission, in order.
    pub placements: Vec<Placement>,
    /// When the receiver had received everything.
    pub completed: Option<Time>,
    /// Departures from the contract: the rule, and what happened.
    pub violations: Vec<(&'static str, String)>,
    /// Number of decisions.
    pub decisions: u64,
}

impl Model {
    /// A connection over `pipes` whose application writes `bytes` at once.
    pub fn new(pipes: &[Pipe], bytes: u64) -> Self {
        let mut model = Model {
            now: Time::ZERO,
            pipes: pipes.to_vec(),
            subflows: Vec::new(),
            queues: vec![VecDeque::new(); pipes.len()],
            credit: vec![0; pipes.len()],
            link_rates: vec![LinkRate::default(); pipes.len()],
            chunks: Chunks::default(),
            messages: Vec::new(),
            stream: SendStream { send_window: 1 << 30, ..SendStream::default() },
            ofo: BTreeMap::new(),
            rcv_nxt: 0,
            reinject: VecDeque::new(),
            events: BinaryHeap::new(),
            serial: 0,
            random: 1,
            was_blocked: false,
            placements: Vec::new(),
            completed: None,
            violations: Vec::new(),
            decisions: 0,
        };
        for (index, pipe) in pipes.iter().enumerate() {
            let id = index as u8;
            let mut new = SubflowMetrics::new(SubflowId(id), PathId(u16::from(id)));
            new.mss = MSS;
            new.backup = pipe.backup;
            new.set_cwnd(pipe.cwnd);
            if !pipe.grows {
                new.set_ssthresh(pipe.cwnd);
            }
            if !pipe.unmeasured {
                set_rtt(&mut new, pipe.rtt);
                new.rtt.var = pipe.rtt / 20;
            }
            new.rto = pipe.rtt * 3;
            model.subflows.push(new);
            model.refresh(index);
            model.at(pipe.joins, ModelEvent::Join(id));
            if let Some(fails) = pipe.fails {
                model.at(fails, ModelEvent::Fail(id));
            }
        }
        if bytes > 0 {
            model.write_at(Time::ZERO, bytes);
        }
        model
    }

    /// The application writes.
    pub fn write_at(&mut self, at: Time, bytes: u64) {
        self.stream.to_write += bytes;
        self.at(at, ModelEvent::Write(bytes));
    }

    fn at(&mut self, at: Time, happening: ModelEvent) {
        self.serial += 1;
        self.events.push(Reverse((at, self.serial, happening)));
    }

    fn lost(&mut self, subflow: u8) -> bool {
        // SplitMix64: enough for scattered losses.
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % 1000) < u64::from(self.pipes[usize::from(subflow)].loss)
    }

    /// Updates derived numbers.
    fn refresh(&mut self, index: usize) {
        let queued = self.queues[index].iter().map(|(_, len)| u64::from(*len)).sum();
        let metrics = &mut self.subflows[index];
        metrics.queued_bytes = queued;
        let held = queued + u64::from(metrics.packets_out()) * u64::from(MSS);
        metrics.queue_space = self.pipes[index].queue.saturating_sub(held);
        let rate = u64::from(metrics.cwnd()) * u64::from(MSS) * SECOND
            / metrics.rtt.smoothed.max(Span::from_nanos(125));
        metrics.rate.pacing = if metrics.in_slow_start() { rate * 2 } else { rate * 6 / 5 };
    }

    fn next_offset(&self) -> u64 {
        self.stream.holes.keys().next().copied().unwrap_or(self.stream.frontier)
    }

    fn unsent(&self) -> u64 {
        self.stream.written - self.stream.frontier
            + self.stream.holes.iter().map(|(start, end)| end - start).sum::<u64>()
    }

    fn view(&self) -> View<'_> {
        View {
            now: self.now,
            subflows: &self.subflows,
            unsent: self.unsent(),
            next_offset: self.next_offset(),
            una: self.stream.una,
            send_window: self.stream.send_window,
            window_left: (self.stream.una + self.stream.send_window).saturating_sub(self.stream.frontier),
            written: self.stream.written,
            declared_size: self.stream.declared_size,
            closed: self.stream.written == self.stream.to_write,
            writer_waits: false,
            send_buffer: u64::MAX,
            send_buffer_max: u64::MAX,
            in_flight: self,
            fates: &(),
        }
    }

    /// Runs until no event is left. Panics if that takes implausibly long.
    pub fn run(mut self, scheduler: &mut dyn Scheduler) -> Self {
        while let Some(Reverse((at, _, happening))) = self.events.pop() {
            self.now = at;
            if let Some(event) = self.happen(happening, scheduler) {
                scheduler.on_event(&self.view(), event);
            }
            let more = self.events.peek().is_some_and(|Reverse((next, _, _))| *next == at);
            if !more {
                self.drive(scheduler);
            }
            assert!(self.decisions < 3_000_000, "no end in sight at {at} ns: {self:?}");
            if self.completed.is_some() && self.stream.una == self.stream.to_write {
                break;
            }
        }
        self
    }

    fn happen(&mut self, happening: ModelEvent, scheduler: &mut dyn Scheduler) -> Option<Event> {
        match happening {
            ModelEvent::Wake => None,
            ModelEvent::Write(bytes) => {
                self.stream.written += bytes;
                Some(Event::Written(bytes))
            }
            ModelEvent::Join(subflow) => {
                let metrics = &mut self.subflows[usize::from(subflow)];
                if metrics.state == SubflowStatus::Closed {
                    return None;
                }
                metrics.state = SubflowStatus::Usable;
                Some(Event::SubflowAdded(SubflowId(subflow)))
            }
            ModelEvent::Fail(subflow) => {
                let index = usize::from(subflow);
                self.subflows[index].state = SubflowStatus::Closed;
                self.subflows[index].set_packets_out(0);
                self.queues[index].clear();
                self.refresh(index);
                let id = SubflowId(subflow);
                let orphans = self.chunks.0.values().filter(|chunk| chunk.last == id);
                let orphans: Vec<_> = orphans.map(|chunk| (chunk.offset, chunk.len)).collect();
                self.reinject.extend(orphans);
                Some(Event::SubflowRemoved(id))
            }
            ModelEvent::Arrive { subflow, offset, len } => {
                if self.subflows[usize::from(subflow)].state == SubflowStatus::Closed {
                    return None;
                }
                self.receive(offset, offset + u64::from(len));
                let back = self.now + self.pipes[usize::from(subflow)].rtt / 2;
                self.at(back, ModelEvent::Ack { subflow, len, data_ack: self.rcv_nxt });
                None
            }
            ModelEvent::Ack { subflow, len, data_ack } => {
                let index = usize::from(subflow);
                if self.subflows[index].state == SubflowStatus::Closed {
                    return None;
                }
                self.acknowledge(index, len);
                if scheduler.wants_link_rate() {
                    self.link_rates[index].on_acked(&mut self.subflows[index], self.now, 1);
                }
                if data_ack > self.stream.una {
                    self.stream.una = data_ack;
                    while let Some(chunk) = self.chunks.0.first_entry() {
                        if chunk.get().offset + u64::from(chunk.get().len) > data_ack {
                            break;
                        }
                        chunk.remove();
                    }
                    scheduler.on_event(&self.view(), Event::DataAcked);
                    self.was_blocked = false;
                }
                Some(Event::Acked { subflow: SubflowId(subflow), segments: 1 })
            }
            ModelEvent::Lose { subflow, offset, len } => {
                let index = usize::from(subflow);
                let metrics = &mut self.subflows[index];
                if metrics.state == SubflowStatus::Closed {
                    return None;
                }
                metrics.totals.lost += 1;
                metrics.totals.retransmitted += 1;
                if metrics.ca_state() == CaState::Open {
                    metrics.totals.loss_events += 1;
                    metrics.set_ca_state(CaState::Recovery);
                    if self.pipes[index].grows {
                        metrics.set_ssthresh((metrics.cwnd() / 2).max(2));
                        metrics.set_cwnd(metrics.ssthresh());
                    }
                }
                self.launch(subflow, offset, len);
                Some(Event::Lost { subflow: SubflowId(subflow), segments: 1 })
            }
        }
    }

    fn acknowledge(&mut self, index: usize, len: u32) {
        let rtt = self.pipes[index].rtt;
        let metrics = &mut self.subflows[index];
        if metrics.rtt.smoothed == Span::ZERO {
            set_rtt(metrics, rtt);
            metrics.rtt.var = rtt / 2;
            metrics.rtt.samples = 0;
        }
        metrics.rtt.samples += 1;
        metrics.set_packets_out(metrics.packets_out() - 1);
        metrics.totals.delivered += 1;
        metrics.totals.bytes_acked += u64::from(len);
        metrics.set_ca_state(CaState::Open);
        metrics.last_progress = self.now;
        metrics.rate.delivery = u64::from(metrics.cwnd()) * u64::from(MSS) * SECOND / rtt;
        if self.pipes[index].grows {
            if metrics.in_slow_start() {
                metrics.set_cwnd(metrics.cwnd() + 1);
            } else {
                self.credit[index] += 1;
                if self.credit[index] >= metrics.cwnd() {
                    self.credit[index] = 0;
                    metrics.set_cwnd(metrics.cwnd() + 1);
                }
            }
        }
        self.refresh(index);
    }

    fn receive(&mut self, start: u64, end: u64) {
        let known = self.ofo.entry(start).or_insert(end);
        *known = (*known).max(end);
        while let Some(entry) = self.ofo.first_entry() {
            if *entry.key() > self.rcv_nxt {
                break;
            }
            self.rcv_nxt = self.rcv_nxt.max(entry.remove());
        }
        if self.rcv_nxt == self.stream.to_write && self.completed.is_none() {
            self.completed = Some(self.now);
        }
    }

    /// Transmits a segment that is counted as in flight.
    fn launch(&mut self, subflow: u8, offset: u64, len: u32) {
        let rtt = self.pipes[usize::from(subflow)].rtt;
        if self.lost(subflow) {
            self.at(self.now + rtt, ModelEvent::Lose { subflow, offset, len });
        } else {
            self.at(self.now + rtt / 2, ModelEvent::Arrive { subflow, offset, len });
        }
    }

    fn transmit(&mut self, subflow: u8, offset: u64, len: u32, repeat: bool) {
        let index = usize::from(subflow);
        let metrics = &mut self.subflows[index];
        if metrics.packets_out() == 0 {
            metrics.busy_since = self.now;
        }
        metrics.last_sent = self.now;
        metrics.set_packets_out(metrics.packets_out() + 1);
        self.placements.push(Placement { at: self.now, subflow, offset, len, repeat });
        self.launch(subflow, offset, len);
        self.refresh(index);
    }

    /// Marks a range as carried by a subflow, one chunk per segment.
    fn carry(&mut self, subflow: u8, offset: u64, len: u32) {
        let (id, sent_at) = (SubflowId(subflow), self.now);
        let new = Chunk { offset, len, carriers: 0, last: id, sent_at };
        let chunk = self.chunks.0.entry(offset).or_insert(new);
        chunk.carriers |= 1 << subflow;
        chunk.last = id;
        chunk.sent_at = sent_at;
    }

    /// The first unassigned range from `hint` on, else the first of all, within the send window.
    fn unassigned(&self, hint: u64) -> Option<(u64, u64)> {
        let edge = (self.stream.una + self.stream.send_window).min(self.stream.written);
        let from = |hint: u64| {
            let hole =
                self.stream.holes.iter().find(|(_, end)| **end > hint).map(|(s, e)| (*s.max(&hint), *e));
            let (start, end) = hole.unwrap_or((hint.max(self.stream.frontier), u64::MAX));
            let end = end.min(edge);
            (start < end).then_some((start, end))
        };
        from(hint).or_else(|| from(self.next_offset()))
    }

    fn assign(&mut self, start: u64, end: u64) {
        if start >= self.stream.frontier {
            if start > self.stream.frontier {
                self.stream.holes.insert(self.stream.frontier, start);
            }
            self.stream.frontier = end;
            return;
        }
        let hole = self.stream.holes.range(..=start).next_back().map(|(s, e)| (*s, *e));
        let Some((hole_start, hole_end)) = hole else { return };
        self.stream.holes.remove(&hole_start);
        if hole_start < start {
            self.stream.holes.insert(hole_start, start);
        }
        if end < hole_end {
            self.stream.holes.insert(end, hole_end);
        }
    }

    fn violate(&mut self, rule: &'static str, what: String) {
        if self.violations.iter().filter(|(known, _)| *known == rule).count() < 3 {
            self.violations.push((rule, format!("at {} ns: {what}", self.now)));
        }
    }

    /// Assigns new data to a subflow by a decision. Returns whether any was taken.
    fn give(&mut self, subflow: u8, hint: u64, bytes: u32, queue: bool) -> bool {
        let index = usize::from(subflow);
        let metrics = &self.subflows[index];
        let room = u64::from(metrics.window_space()) * u64::from(MSS);
        let limit = if queue { metrics.queue_space } else { room }.min(u64::from(bytes));
        let Some((start, end)) = self.unassigned(hint) else { return false };
        let end = end.min(start + limit);
        if end <= start {
            return false;
        }
        self.assign(start, end);
        let mut offset = start;
        while offset < end {
            let len = (end - offset).min(u64::from(MSS)) as u32;
            self.carry(subflow, offset, len);
            self.queues[index].push_back((offset, len));
            offset += u64::from(len);
        }
        self.flush(index);
        true
    }

    /// Sends queued data as far as cwnd admits.
    fn flush(&mut self, index: usize) {
        while self.subflows[index].usable() && self.subflows[index].in_flight() < self.subflows[index].cwnd()
        {
            let Some((offset, len)) = self.queues[index].pop_front() else { break };
            self.transmit(index as u8, offset, len, false);
        }
        self.refresh(index);
    }

    fn reinject(&mut self, scheduler: &mut dyn Scheduler) {
        while let Some((offset, len)) = self.reinject.front().copied() {
            if offset + u64::from(len) <= self.stream.una {
                self.reinject.pop_front();
                continue;
            }
            let Some(metrics) = View::fastest(self.view().available()) else { return };
            let subflow = metrics.id.0;
            self.reinject.pop_front();
            self.carry(subflow, offset, len);
            self.transmit(subflow, offset, len, false);
            scheduler.on_event(&self.view(), Event::Reinjected(SubflowId(subflow)));
        }
    }

    /// Calls the scheduler until it waits.
    fn drive(&mut self, scheduler: &mut dyn Scheduler) {
        for index in 0..self.subflows.len() {
            self.flush(index);
        }
        self.reinject(scheduler);
        for asked in 0.. {
            let view = self.view();
            if view.blocked() && !self.was_blocked {
                scheduler.on_event(&view, Event::WindowBlocked);
                self.was_blocked = true;
            }
            self.decisions += 1;
            let view = self.view();
            let repeats = scheduler.repeats() && !self.chunks.0.is_empty();
            if view.usable().next().is_none() || (view.unsent == 0 && !repeats) {
                return;
            }
            let decision = scheduler.select(&view, &mut Rationale::default());
            let progress = match decision {
                Decision::Wait { until } => {
                    self.wait(until);
                    return;
                }
                Decision::Send { subflow, bytes } => self.send(subflow, 0, bytes),
                Decision::SendAt { subflow, offset, bytes } => self.send(subflow, offset, bytes),
                Decision::Queue { subflow, bytes } => self.queue(subflow, bytes),
                Decision::Duplicate { subflow, offset, .. } => self.duplicate(subflow, offset),
                Decision::Withdraw { subflow } => self.withdraw(subflow),
            };
            if !progress || asked > 200_000 {
                self.violate("progress", format!("{decision:?} changes nothing"));
                self.rescue();
                return;
            }
        }
    }

    /// Whether the subflow is usable. Records a departure if it is a backup that must not be used.
    fn may_carry(&mut self, subflow: SubflowId) -> bool {
        let metrics = &self.subflows[subflow.index()];
        let (usable, eligible) = (metrics.usable(), self.view().eligible(metrics));
        if !eligible {
            self.violate("eligible", format!("{subflow:?} is named"));
        }
        usable
    }

    /// Whether the subflow's window has room for `what`. Records a departure if not.
    fn may_send(&mut self, subflow: SubflowId, what: &str) -> bool {
        if !self.may_carry(subflow) {
            return false;
        }
        let metrics = &self.subflows[subflow.index()];
        // As the engine, it doesn't ask for room in the queue.
        let available = metrics.ca_state() != CaState::Loss && metrics.window_space() > 0;
        let (in_flight, cwnd) = (metrics.in_flight(), metrics.cwnd());
        if !available {
            self.violate("cwnd", format!("{what} on {subflow:?}, which has {in_flight} of {cwnd} in flight"));
        }
        available
    }

    /// `Send` and `SendAt`; a hint of 0 is the first unassigned byte.
    fn send(&mut self, subflow: SubflowId, hint: u64, bytes: u32) -> bool {
        if !self.may_send(subflow, "new data") {
            return false;
        }
        self.give(subflow.0, hint, bytes, false)
    }

    fn queue(&mut self, subflow: SubflowId, bytes: u32) -> bool {
        if !self.may_carry(subflow) {
            return false;
        }
        let metrics = &self.subflows[subflow.index()];
        if u64::from(metrics.window_space()) * u64::from(MSS) < u64::from(bytes) {
            self.violate("cwnd", format!("{bytes} bytes to {subflow:?}, beyond its window"));
        }
        self.give(subflow.0, 0, bytes, true)
    }

    fn duplicate(&mut self, subflow: SubflowId, offset: u64) -> bool {
        if !self.may_send(subflow, "a repeat") {
            return false;
        }
        let Some(chunk) = self.chunks.0.get(&offset).copied() else { return false };
        if chunk.carried_by(subflow) {
            return false;
        }
        self.carry(subflow.0, chunk.offset, chunk.len);
        self.transmit(subflow.0, chunk.offset, chunk.len, true);
        true
    }

    /// What waits in a subflow's queue is unassigned again. Returns whether there was any.
    fn withdraw(&mut self, subflow: SubflowId) -> bool {
        let queued = std::mem::take(&mut self.queues[subflow.index()]);
        for (offset, len) in &queued {
            self.chunks.0.remove(offset);
            self.stream.holes.insert(*offset, offset + u64::from(*len));
        }
        self.refresh(subflow.index());
        !queued.is_empty()
    }

    fn wait(&mut self, until: Option<Time>) {
        let idle = self.subflows.iter().all(|metrics| metrics.packets_out() == 0);
        match until {
            Some(until) if until <= self.now => {
                self.violate("wait", format!("until {until}, which is past"));
                self.rescue();
            }
            Some(until) => self.at(until, ModelEvent::Wake),
            None if idle && self.view().sendable() => {
                self.violate("work-conserving", "a wait with nothing in flight".to_string());
                self.rescue();
            }
            None => {}
        }
    }

    /// Sends one segment by `minrtt`, as the engine does when a scheduler would stall.
    fn rescue(&mut self) {
        if self.subflows.iter().any(|metrics| metrics.packets_out() > 0) {
            return;
        }
        if let Some(metrics) = View::fastest(self.view().available()) {
            let subflow = metrics.id.0;
            self.give(subflow, 0, MSS, false);
        }
    }
}
