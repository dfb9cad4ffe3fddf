//! A shard: an endpoint of the engine, a queue of each device, and the connections that belong to it.
//!
//! Streams call the engine themselves, under the shard's lock, and send what follows from it; the shard's
//! driver receives and keeps the time. So a write that fits the windows is on the device when it returns.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use ropewalk_engine::endpoint::{ConnectionConfig, ConnectionId, Endpoint};
use ropewalk_engine::mptcp::{CloseReason, Event};
use ropewalk_engine::{PathCache, PathId, Span, Time};
use ropewalk_os::entropy::OsEntropy;
use ropewalk_os::tun::BUFFER;
use ropewalk_wire::pool::Pool;
use ropewalk_wire::virtio::parse_frame;
use ropewalk_wire::{Flags, FourTuple, MpJoin, ParseError, Segment, parse_icmp_too_big};

use crate::backlog::{Arrival, Backlog};
use crate::clock::Clock;
use crate::entries::{End, Entries, Entry};
use crate::queue::{Packets, PathState, Queue};
use crate::steering::Steering;

/// Packets received from one device before others have their turn.
const BATCH: usize = 32;
/// A call receives first what has waited for so long: among hundreds of tasks that are ready to run, the
/// driver's turn comes late.
const LATEST: Span = Span::from_millis(1);
/// Segments sent before devices have their turn again.
const TRANSMITS: usize = 64;
/// Most segments of a super-segment: 64 KiB of 1424 bytes, rounded down.
pub(crate) const SUPER: u32 = 44;

pub(crate) type TokioEndpoint = Endpoint<Bytes, OsEntropy>;

/// Packets that shards couldn't use or send.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct DriverCounters {
    /// Packets or super-packets that a device didn't take.
    pub refused: u64,
    /// Packets that aren't valid TCP, or about it.
    pub malformed: u64,
    /// Segments that were handed to another shard.
    pub handed_over: u64,
    /// Connections that were reset because nobody accepted them in time.
    pub backlog_full: u64,
    /// How often drivers ran.
    pub polls: u64,
}

impl std::ops::AddAssign for DriverCounters {
    fn add_assign(&mut self, other: Self) {
        self.refused += other.refused;
        self.malformed += other.malformed;
        self.handed_over += other.handed_over;
        self.backlog_full += other.backlog_full;
        self.polls += other.polls;
    }
}

/// A segment for another shard.
pub(crate) type Handover = (usize, PathId, Segment<Bytes>);

/// What connections found out about paths, for all shards.
pub(crate) type PathMemory = Arc<Mutex<PathCache>>;

/// What the lock of a shard protects.
pub(crate) struct State {
    index: usize,
    clock: Clock,
    pub endpoint: TokioEndpoint,
    queues: Vec<Queue>,
    pub entries: Entries,
    listeners: Vec<(SocketAddr, Arc<Backlog>)>,
    steering: Arc<Steering>,
    segment: Segment<Bytes>,
    packets: Packets,
    /// Memory for what streams write.
    pub copies: Pool,
    /// When the driver wakes by itself.
    pub armed: Time,
    /// When devices were last asked for packets.
    received_at: Time,
    pub handovers: Vec<Handover>,
    /// To be woken once the lock is released.
    pub wakers: Vec<Waker>,
    pub counters: DriverCounters,
    /// What connections found out about paths, if that is kept.
    memory: Option<PathMemory>,
    /// No stream, listener or network is left: the driver ends with the last connection.
    pub is_closing: bool,
}

/// What a driver receives from elsewhere.
#[derive(Default)]
pub(crate) struct Mailbox {
    pub segments: Vec<(PathId, Segment<Bytes>)>,
    pub driver: Option<Waker>,
}

/// A shard.
pub(crate) struct Shard {
    state: Mutex<State>,
    mailbox: Mutex<Mailbox>,
    is_running: AtomicBool,
}

impl Shard {
    pub fn new(
        index: usize,
        clock: Clock,
        endpoint: TokioEndpoint,
        queues: Vec<Queue>,
        steering: Arc<Steering>,
        memory: Option<PathMemory>,
    ) -> Shard {
        Shard {
            state: Mutex::new(State {
                index,
                clock,
                endpoint,
                queues,
                entries: Entries::default(),
                listeners: Vec::new(),
                steering,
                segment: Segment::blank(),
                packets: Packets::default(),
                copies: Pool::new(4 * BUFFER),
                armed: Time::MAX,
                received_at: Time::ZERO,
                handovers: Vec::new(),
                wakers: Vec::new(),
                counters: DriverCounters::default(),
                memory,
                is_closing: false,
            }),
            mailbox: Mutex::default(),
            is_running: AtomicBool::new(true),
        }
    }

    /// The state, to look at.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        // A panic inside leaves a connection half-changed at worst; the others go on.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn mailbox(&self) -> MutexGuard<'_, Mailbox> {
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its driver runs.
    pub fn is_running(&self) -> bool {
        self.is_running.load(Ordering::Acquire)
    }

    /// Its driver has ended.
    pub fn set_ended(&self) {
        self.is_running.store(false, Ordering::Release);
    }

    /// Has the driver look again.
    pub fn wake(&self) {
        let driver = self.mailbox().driver.take();
        if let Some(driver) = driver {
            driver.wake();
        }
    }

    /// Calls the engine, and carries out what follows from it.
    pub fn call<R>(&self, work: impl FnOnce(&mut State, Time) -> R) -> R {
        let mut state = self.lock();
        let now = state.clock.now();
        if now >= state.received_at + LATEST {
            state.receive_waiting(now);
        }
        let result = work(&mut state, now);
        let more = state.transmit_and_notify(now);
        let needs_driver = more || state.next_deadline() < state.armed || !state.handovers.is_empty();
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        if needs_driver {
            self.wake();
        }
        result
    }

    /// Nothing will be asked of the shard again: its driver ends with its last connection.
    pub fn close(&self) {
        self.lock().is_closing = true;
        self.wake();
    }
}

impl State {
    /// Puts a queue in the place of a path's, or behind all.
    pub fn set_queue(&mut self, path: usize, queue: Queue) {
        match self.queues.get_mut(path) {
            Some(old) => *old = queue,
            None => self.queues.push(queue),
        }
    }

    /// Sends what is to be sent, and tells streams what happened. Returns whether there is more to send.
    pub fn transmit_and_notify(&mut self, now: Time) -> bool {
        let mut more = self.transmit(now);
        while let Some((id, event)) = self.endpoint.poll_event() {
            self.on_event(now, id, event);
            // An event may lead to calls, and these to segments.
            if !self.endpoint.has_event() && !more {
                more = self.transmit(now);
            }
        }
        more
    }

    fn transmit(&mut self, now: Time) -> bool {
        for _ in 0..TRANSMITS {
            let Some(path) = self.endpoint.poll_transmit_into(now, SUPER, &mut self.segment) else {
                return false;
            };
            if self.steering.is_needed() && is_join_syn(&self.segment) {
                self.note_join(self.segment.tuple.reversed());
            }
            let sent = match self.queues.get_mut(usize::from(path.0)) {
                Some(queue) => queue.send(&mut self.segment, &mut self.packets),
                None => false,
            };
            self.counters.refused += u64::from(!sent);
        }
        true
    }

    /// A subflow was joined whose segments may arrive elsewhere.
    fn note_join(&mut self, tuple: FourTuple) {
        let Some(handle) = self.endpoint.subflow_of(&tuple) else { return };
        let Some(entry) = self.entries.in_slot(handle.connection_slot()) else { return };
        // What is gone makes room first.
        let (endpoint, steering) = (&self.endpoint, &self.steering);
        entry.joined.retain(|known| {
            let is_there = endpoint.subflow_of(known).is_some();
            if !is_there {
                steering.remove_joined(known);
            }
            is_there
        });
        if !entry.joined.contains(&tuple) && steering.add_joined(tuple, self.index) {
            entry.joined.push(tuple);
        }
    }

    /// The next time at which the driver has something to do.
    pub fn next_deadline(&mut self) -> Time {
        self.endpoint.poll_timeout().unwrap_or(Time::MAX)
    }

    pub fn on_segment(&mut self, now: Time, path: PathId, mut segment: Segment<Bytes>) {
        let joins = self.steering.is_needed() && is_join_syn(&segment);
        let tuple = segment.tuple;
        self.endpoint.on_segment_in_place(now, path, None, &mut segment);
        if joins {
            self.note_join(tuple);
        }
    }

    /// A segment from one of the shard's own queues.
    fn on_arrival(&mut self, now: Time, path: PathId, mut segment: Segment<Bytes>) {
        self.queues[usize::from(path.0)].translate_arrival(&mut segment);
        if !self.steering.is_needed() {
            self.endpoint.on_segment_in_place(now, path, None, &mut segment);
            return;
        }
        if let Some(handle) = self.endpoint.subflow_of(&segment.tuple) {
            self.endpoint.on_segment_in_place(now, path, Some(handle), &mut segment);
            return;
        }
        let owner = self.steering.owner(&segment.tuple, join_token(&segment));
        if owner == self.index {
            self.on_segment(now, path, segment);
        } else {
            self.counters.handed_over += 1;
            self.handovers.push((owner, path, segment));
        }
    }

    fn on_packet(&mut self, now: Time, path: usize, packet: &Bytes) {
        let id = PathId(path as u16);
        if let Some(mut coalescer) = self.queues[path].coalescer.take() {
            let whole = 0..packet.len();
            let pushed = coalescer.push(packet, whole, |segment| self.on_arrival(now, id, segment));
            self.queues[path].coalescer = Some(coalescer);
            if let Err(error) = pushed {
                self.on_other(now, packet, error);
            }
            return;
        }
        match parse_frame(packet.clone()) {
            Ok(segment) => self.on_arrival(now, id, segment),
            Err(error) => {
                let header = ropewalk_wire::virtio::VirtioNetHeader::LEN.min(packet.len());
                self.on_other(now, &packet[header..], error);
            }
        }
    }

    /// A packet that isn't TCP.
    #[cold]
    fn on_other(&mut self, now: Time, packet: &[u8], error: ParseError) {
        match parse_icmp_too_big(packet) {
            Ok(message) if matches!(error, ParseError::Protocol { .. }) => {
                self.endpoint.on_too_big(now, &message);
            }
            _ => self.counters.malformed += 1,
        }
    }

    /// Receives from every device what is there, in the driver's place.
    #[inline(never)]
    fn receive_waiting(&mut self, now: Time) {
        self.received_at = now;
        for path in 0..self.queues.len() {
            for _ in 0..BATCH {
                let Queue { device, pool, is_removed, .. } = &mut self.queues[path];
                if *is_removed {
                    break;
                }
                let Ok(packet) = device.try_receive(pool) else { break };
                self.on_packet(now, path, &packet);
            }
            self.finish_coalescing(now, path);
        }
    }

    /// Receives from every device. Returns whether some device may have more.
    pub fn receive(&mut self, cx: &mut Context<'_>) -> bool {
        let mut more = false;
        self.received_at = self.clock.now();
        for path in 0..self.queues.len() {
            let now = self.clock.now();
            let mut left = BATCH;
            while left > 0 && !self.queues[path].is_removed {
                let Queue { device, pool, .. } = &mut self.queues[path];
                match device.poll_receive(cx, pool) {
                    Poll::Ready(Ok(packet)) => self.on_packet(now, path, &packet),
                    Poll::Ready(Err(error)) => {
                        // A device that is only down has nothing to read; any other error means that it was
                        // removed.
                        self.queues[path].is_removed = true;
                        self.queues[path].on_result(Err(error));
                        self.queues[path].flag.set(PathState::Removed);
                    }
                    Poll::Pending => break,
                }
                left -= 1;
            }
            more |= left == 0;
            self.finish_coalescing(now, path);
        }
        more
    }

    /// For devices without offload: what was merged is taken.
    fn finish_coalescing(&mut self, now: Time, path: usize) {
        if let Some(mut coalescer) = self.queues[path].coalescer.take() {
            coalescer.finish(|segment| self.on_arrival(now, PathId(path as u16), segment));
            self.queues[path].coalescer = Some(coalescer);
        }
    }

    fn on_event(&mut self, now: Time, id: ConnectionId, event: Event) {
        match event {
            Event::Readable => self.wake_reader(id),
            Event::PeerClosed => {
                self.learn(now, id);
                self.wake_reader(id);
            }
            Event::Writable => self.wake_writer(id),
            Event::Connected { .. } => {
                if let Some(entry) = self.entries.get(id) {
                    entry.status.set_established();
                    self.wakers.extend(entry.writer.take());
                }
                self.note_token(id);
            }
            Event::Accepted { tuple, .. } => self.on_accepted(now, id, &tuple),
            Event::Closed => self.on_end(id, End::Closed),
            Event::Reset { reason } => self.on_end(id, End::Lost(reason)),
            Event::Decision(decision) => {
                if let Some(entry) = self.entries.get(id) {
                    entry.add_decision(*decision);
                }
            }
            // Of subflows and fallbacks a stream's `info` tells.
            _ => {}
        }
    }

    fn wake_reader(&mut self, id: ConnectionId) {
        let waker = self.entries.get(id).and_then(|entry| entry.reader.take());
        self.wakers.extend(waker);
    }

    fn wake_writer(&mut self, id: ConnectionId) {
        let waker = self.entries.get(id).and_then(|entry| entry.writer.take());
        self.wakers.extend(waker);
    }

    fn on_accepted(&mut self, now: Time, id: ConnectionId, tuple: &FourTuple) {
        let (local, peer) = (tuple.source(), tuple.destination());
        let listener = self.listeners.iter().find(|(address, _)| {
            address.port() == local.port() && (address.ip() == local.ip() || address.ip().is_unspecified())
        });
        let entry = Entry::new(id);
        entry.status.set_established();
        let arrival = Arrival { shard: self.index, id, status: Arc::clone(&entry.status), local, peer };
        match listener.map(|(_, backlog)| backlog.push(arrival)) {
            Some(Ok(wakers)) => {
                self.wakers.extend(wakers);
                self.insert(entry);
                self.note_token(id);
            }
            Some(Err(_)) | None => {
                self.counters.backlog_full += 1;
                self.endpoint.abort(now, id);
            }
        }
    }

    fn insert(&mut self, entry: Entry) {
        if let Some(old) = self.entries.insert(entry) {
            self.forget(old);
        }
    }

    /// Joins with the connection's token belong here.
    fn note_token(&mut self, id: ConnectionId) {
        if !self.steering.is_needed() {
            return;
        }
        let token = self.endpoint.connection(id).filter(|one| one.is_multipath()).map(|one| one.token());
        if let (Some(token), Some(entry)) = (token, self.entries.get(id)) {
            entry.token = Some(token);
            self.steering.add_token(token, self.index);
        }
    }

    /// The connection is over; its stream may still want to know how it ended.
    fn on_end(&mut self, id: ConnectionId, end: End) {
        let Some(entry) = self.entries.get(id) else { return };
        entry.status.set_end(end);
        self.wakers.extend(entry.reader.take());
        self.wakers.extend(entry.writer.take());
        if let Some(entry) = self.entries.remove(id) {
            self.forget(entry);
        }
    }

    fn forget(&mut self, entry: Entry) {
        if let Some(token) = entry.token {
            self.steering.remove_token(token);
        }
        for tuple in &entry.joined {
            self.steering.remove_joined(tuple);
        }
    }

    /// Opens a connection and its entry.
    pub fn connect(
        &mut self,
        now: Time,
        path: PathId,
        local: SocketAddr,
        remote: SocketAddr,
        config: Arc<ConnectionConfig>,
    ) -> Result<(ConnectionId, Arc<crate::entries::Status>), ropewalk_engine::endpoint::ConnectError> {
        let id = self.endpoint.connect(now, path, local, remote, config)?;
        let mut entry = Entry::new(id);
        entry.learns_of = self.memory.as_ref().map(|_| remote.ip());
        let status = Arc::clone(&entry.status);
        self.insert(entry);
        Ok((id, status))
    }

    /// Keeps what a connection found out about its paths, once: when the peer has sent all, or the stream is
    /// dropped.
    fn learn(&mut self, now: Time, id: ConnectionId) {
        let Some(memory) = &self.memory else { return };
        let peer = self.entries.get(id).and_then(|entry| entry.learns_of.take());
        if let (Some(peer), Some(connection)) = (peer, self.endpoint.connection(id)) {
            memory.lock().unwrap_or_else(PoisonError::into_inner).learn(now, peer, connection);
        }
    }

    /// Accepts connections to `address` for a listener. False if there is one already.
    pub fn listen(
        &mut self,
        address: SocketAddr,
        config: Arc<ConnectionConfig>,
        backlog: Arc<Backlog>,
    ) -> bool {
        if self.listeners.iter().any(|(known, _)| *known == address) {
            return false;
        }
        self.endpoint.listen(address, config);
        self.listeners.push((address, backlog));
        true
    }

    /// Accepts no more connections to `address`.
    pub fn stop_listening(&mut self, now: Time, address: SocketAddr) {
        self.endpoint.stop_listening(now, address);
        self.listeners.retain(|(known, _)| *known != address);
    }

    /// The stream of a connection was dropped.
    pub fn release(&mut self, now: Time, id: ConnectionId) {
        self.learn(now, id);
        if let Some(entry) = self.entries.get(id) {
            // Wakers may hold the task that waited.
            (entry.reader, entry.writer) = (None, None);
        }
        self.endpoint.close(now, id);
        self.transmit_and_notify(now);
        // One that its peer keeps open ends by itself (`close_timeout`).
        if self.endpoint.connection(id).is_none()
            && let Some(entry) = self.entries.remove(id)
        {
            self.forget(entry);
        }
    }

    /// Throws a connection away.
    pub fn abort(&mut self, now: Time, id: ConnectionId) {
        self.endpoint.abort(now, id);
        self.on_end(id, End::Lost(CloseReason::Aborted));
    }
}

/// The token of a join that a segment begins.
fn join_token(segment: &Segment<Bytes>) -> Option<u32> {
    if !segment.flags.contains(Flags::SYN) || segment.flags.contains(Flags::ACK) {
        return None;
    }
    match segment.rare.as_deref()?.mp_join? {
        MpJoin::Syn { token, .. } => Some(token),
        _ => None,
    }
}

fn is_join_syn(segment: &Segment<Bytes>) -> bool {
    join_token(segment).is_some()
}

impl State {
    /// Ends every stream: nothing will move.
    pub fn end_all(&mut self) {
        for entry in self.entries.take_all() {
            entry.status.set_end(End::Undriven);
            self.wakers.extend(entry.reader);
            self.wakers.extend(entry.writer);
        }
        for (_, backlog) in std::mem::take(&mut self.listeners) {
            self.wakers.extend(backlog.close());
        }
    }
}
