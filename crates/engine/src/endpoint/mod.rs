//! Many connections: demultiplexing by four-tuple and, for joins, by token; listening with a bounded backlog;
//! deadlines; the verbs. The [crate's page](crate#the-order-of-calls) has the order of calls.

#[cfg(feature = "lookahead")]
mod batch;
mod calls;
mod deadlines;
mod ending;
mod errors;
mod handles;
mod keyed;
mod listeners;
mod mib;
mod readiness;
mod routes;
mod slot;
mod socket_options;
mod stray;
mod syn_cookies;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ropewalk_wire::{Flags, FourTuple, Payload, Segment, TooBig};

pub use crate::config::{ConnectionConfig, EndpointConfig};
use crate::inline_queue::InlineQueue;
pub use crate::mptcp::StreamError;
use crate::mptcp::{Connection, Event, Role};
use crate::tcp::Tcb;
use crate::{Entropy, PathId, Time};
use keyed::Keyed;
use routes::Routes;
use slot::Slot;

pub use errors::{ConnectError, OptionError};
pub use handles::{ConnectionId, SubflowHandle};

/// Whether an address can be one host's.
fn is_host(address: IpAddr) -> bool {
    !(address.is_unspecified() || address.is_multicast() || address == IpAddr::V4(Ipv4Addr::BROADCAST))
}

/// The endpoint's own counters, by the kernel's MIB names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Counters {
    /// SYNs dropped because the backlog was full (`TcpExtListenOverflows`).
    pub listen_overflows: u64,
    /// SYN cookies sent (`TcpExtSyncookiesSent`).
    pub cookies_sent: u64,
    /// Connections that came of one (`TcpExtSyncookiesRecv`).
    pub cookies_recv: u64,
    /// ACKs that didn't hold a valid one (`TcpExtSyncookiesFailed`).
    pub cookies_failed: u64,
    /// RSTs sent to strays (`TcpOutRsts`).
    pub out_rsts: u64,
    /// MP_JOIN SYNs with an unknown token (`MPTcpExtMPJoinNoTokenFound`).
    pub join_no_token: u64,
    /// MP_JOIN SYNs received (`MPTcpExtMPJoinSynRx`).
    pub join_syn_rx: u64,
    /// MP_CAPABLE SYNs received (`MPTcpExtMPCapableSYNRX`).
    pub capable_syn_rx: u64,
    /// Connections that fell back (`MPTcpExtMPFallbackTokenInit` and kin).
    pub fallbacks: u64,
}

/// Many connections over one set of paths.
#[derive(Debug)]
pub struct Endpoint<P: Payload, E: Entropy> {
    config: EndpointConfig,
    entropy: E,
    slots: Vec<Slot<P>>,
    free: Vec<u32>,
    routes: Routes,
    tokens: BTreeMap<u32, u32>,
    listeners: Vec<(SocketAddr, Arc<ConnectionConfig>)>,
    /// Connections that may have something to send.
    pending_tx: InlineQueue<u32>,
    deadlines: BinaryHeap<Reverse<(Time, u32)>>,
    /// Connections in TIME-WAIT, the oldest first; some of them may be gone.
    time_wait: VecDeque<ConnectionId>,
    events: InlineQueue<(ConnectionId, Event)>,
    /// Answers to segments of no connection.
    stateless: VecDeque<(PathId, Segment<P>)>,
    isn_secret: [u8; 32],
    half_open: usize,
    /// Until when ACKs may answer SYN cookies.
    cookies_until: Time,
    ofo_bytes: u64,
    next_port: u16,
    counters: Counters,
    mib: mib::Mib,
}

impl<P: Payload, E: Entropy> Endpoint<P, E> {
    /// An endpoint without listeners or connections.
    pub fn new(config: EndpointConfig, mut entropy: E) -> Self {
        let hasher = Keyed::new(entropy.next_u64(), entropy.next_u64());
        let mut isn_secret = [0; 32];
        for word in isn_secret.chunks_exact_mut(8) {
            word.copy_from_slice(&entropy.next_u64().to_be_bytes());
        }
        let ports = &config.local_ports;
        let next_port = ports.start() + (usize::from(config.first_port) % ports.len().max(1)) as u16;
        Endpoint {
            config,
            entropy,
            slots: Vec::new(),
            free: Vec::new(),
            routes: Routes::new(hasher),
            tokens: BTreeMap::new(),
            listeners: Vec::new(),
            pending_tx: InlineQueue::new(),
            deadlines: BinaryHeap::new(),
            time_wait: VecDeque::new(),
            events: InlineQueue::new(),
            stateless: VecDeque::new(),
            isn_secret,
            half_open: 0,
            cookies_until: Time::ZERO,
            ofo_bytes: 0,
            next_port,
            counters: Counters::default(),
            mib: mib::Mib::default(),
        }
    }

    /// Opens a connection from `local` (port 0: any free one) on `path`.
    ///
    /// # Errors
    /// When limits are reached, the four-tuple is taken, the families differ, or an address is no host's.
    pub fn connect(
        &mut self,
        now: Time,
        path: PathId,
        local: SocketAddr,
        remote: SocketAddr,
        config: Arc<ConnectionConfig>,
    ) -> Result<ConnectionId, ConnectError> {
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(ConnectError::Families);
        }
        //= RFC 9293 MUST-46
        if let Some(wrong) = [local.ip(), remote.ip()].into_iter().find(|address| !is_host(*address)) {
            return Err(ConnectError::NotAHost(wrong));
        }
        if !self.make_room(now) {
            return Err(ConnectError::TooMany);
        }
        //= RFC 9293 MUST-43 MUST-45
        let tuple = self.free_tuple(local, remote).ok_or(ConnectError::InUse)?;
        let key = self.fresh_key();
        let isn = self.isn(now, &tuple);
        let mtu = self.config.mtu(path);
        self.mib.opened(config.multipath);
        let offset = self.timestamp_offset(&config, &tuple);
        let mut connection = Box::new(Connection::new(Role::Client, config, key, offset));
        connection.open(now, path, |cx| Tcb::connect(cx, tuple, mtu, isn));
        let token = connection.token();
        let id = self.insert(connection, false);
        self.tokens.insert(token, id.index);
        self.routes.insert(tuple.reversed(), SubflowHandle { index: id.index, subflow: 0 });
        self.on_changed(now, id.index);
        Ok(id)
    }

    /// A segment arrived on `path`: the number of the device that it came from. It decides where answers to
    /// segments of no connection leave, and which path a subflow has that the peer opens.
    pub fn on_segment(&mut self, now: Time, path: PathId, mut segment: Segment<P>) {
        self.on_segment_in_place(now, path, None, &mut segment);
    }

    /// As [`on_segment`](Self::on_segment), without moving the segment: its payload and options are taken
    /// out, and the rest is left unspecified. `hint`: the subflow that probably receives it.
    #[inline]
    pub fn on_segment_in_place(
        &mut self,
        now: Time,
        path: PathId,
        hint: Option<SubflowHandle>,
        segment: &mut Segment<P>,
    ) {
        let guess = hint.or_else(|| self.routes.cached(&segment.tuple));
        // A predicted segment is no SYN, its subflow isn't closed, and it has no option that is counted.
        if let Some(handle) = guess
            && let Some(slot) = self.slots.get_mut(handle.index as usize)
            && let Some(connection) = slot.connection.as_deref_mut()
            && connection.on_predicted_segment(now, usize::from(handle.subflow), segment)
        {
            let has_events = !connection.events.is_empty() || connection.path_manager.has_join_requests();
            slot.queue(handle.index, &mut self.pending_tx);
            if has_events {
                self.collect_events(now, handle.index);
            }
        } else {
            self.on_unpredicted_segment(now, path, segment);
        }
    }

    /// A segment that isn't predicted, or not for the subflow that was guessed.
    #[inline(never)]
    fn on_unpredicted_segment(&mut self, now: Time, path: PathId, segment: &mut Segment<P>) {
        let Some(handle) = self.find(&segment.tuple) else { return self.on_stray(now, path, segment) };
        let SubflowHandle { index, subflow } = handle;
        let Some(connection) = self.slots[index as usize].connection.as_mut() else { return };
        if segment.flags.contains(Flags::SYN) && connection.subflows.gives_way_to(subflow as usize, segment) {
            self.on_successor(now, path, handle, segment);
            return;
        }
        if connection.subflows.is_gone(subflow as usize) {
            //= RFC 9293 3.10.7.1 a segment for a closed connection is answered with RST
            if !segment.flags.contains(Flags::RST) {
                self.send_reset(path, segment, None);
            }
            return;
        }
        self.mib.received(segment);
        connection.on_segment(now, subflow as usize, segment);
        self.on_changed(now, index);
    }

    /// The subflow that receives segments with this tuple.
    fn find(&mut self, tuple: &FourTuple) -> Option<SubflowHandle> {
        let receives = |handle: &SubflowHandle| {
            let connection =
                self.slots.get(handle.index as usize).and_then(|slot| slot.connection.as_deref());
            connection
                .is_some_and(|connection| connection.subflows.receives(usize::from(handle.subflow), tuple))
        };
        let cached = self.routes.cached(tuple).filter(receives);
        cached.or_else(|| self.routes.get_and_cache(tuple))
    }

    /// A router says that a packet of ours was too big (RFC 1191, RFC 8201). Believed only if it quotes
    /// something that is in flight (RFC 5927 4.1); then the subflow's segments become smaller, and what
    /// didn't fit is sent again.
    #[cold]
    pub fn on_too_big(&mut self, now: Time, message: &TooBig) {
        let found = self.routes.get(&message.tuple.reversed());
        if let Some(SubflowHandle { index, subflow }) = found
            && let Some(connection) = self.slots[index as usize].connection.as_mut()
        {
            connection.on_too_big(now, subflow as usize, message.seq, message.mtu);
            self.on_changed(now, index);
        }
    }

    /// The next segment to send and its path; with `max_segments` > 1 perhaps a super-segment of that many.
    /// Changes with every other call.
    pub fn poll_transmit(&mut self, now: Time, max_segments: u32) -> Option<(PathId, Segment<P>)> {
        let mut segment = Segment::blank();
        let path = self.poll_transmit_into(now, max_segments, &mut segment)?;
        Some((path, segment))
    }

    /// As [`poll_transmit`](Self::poll_transmit), written over what `out` holds.
    pub fn poll_transmit_into(
        &mut self,
        now: Time,
        max_segments: u32,
        out: &mut Segment<P>,
    ) -> Option<PathId> {
        if !self.stateless.is_empty() {
            return self.transmit_stateless(out);
        }
        while let Some(index) = self.pending_tx.front().copied() {
            if let Some(connection) = self.slots[index as usize].connection.as_mut()
                && let Some(path) = connection.poll_transmit(now, max_segments, out)
            {
                self.mib.sent(out);
                return Some(path);
            }
            self.pending_tx.pop_front();
            self.after_transmit(now, index);
        }
        None
    }

    /// As [`poll_transmit_into`](Self::poll_transmit_into) until there is nothing more: `carry` is called
    /// with each segment and its path. It saves a world that carries segments at once coming back for each.
    #[inline(always)]
    pub fn transmit_all(
        &mut self,
        now: Time,
        max_segments: u32,
        out: &mut Box<Segment<P>>,
        mut carry: impl FnMut(PathId, &mut Box<Segment<P>>),
    ) {
        while !self.stateless.is_empty()
            && let Some(path) = self.transmit_stateless(out)
        {
            carry(path, out);
        }
        while let Some(index) = self.pending_tx.front().copied() {
            if let Some(connection) = self.slots[index as usize].connection.as_deref_mut() {
                let mib = &mut self.mib;
                connection.transmit_all(now, max_segments, out, |path, segment| {
                    mib.sent(segment);
                    carry(path, segment);
                });
            }
            self.pending_tx.drop_front();
            self.after_transmit(now, index);
        }
    }

    /// The next answer to a segment of no connection.
    #[cold]
    fn transmit_stateless(&mut self, out: &mut Segment<P>) -> Option<PathId> {
        let (path, answer) = self.stateless.pop_front()?;
        *out = answer;
        Some(path)
    }

    /// Whether [`poll_event`](Self::poll_event) has something to give.
    #[inline]
    pub fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<(ConnectionId, Event)> {
        self.events.pop_front()
    }

    /// The next event, if it is [`Event::Readable`]: which connection's. It saves a world that reads at once
    /// most of what [`poll_event`](Self::poll_event) costs.
    #[inline]
    pub fn poll_readable(&mut self) -> Option<ConnectionId> {
        let Some((id, Event::Readable)) = self.events.front() else { return None };
        let id = *id;
        self.events.drop_front();
        Some(id)
    }

    /// The endpoint's counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Every counter of the endpoint and its connections, past ones included, by the kernel's names
    /// (`MPTcpExtMPCapableSYNRX`, `TcpRetransSegs`, `TcpExtTCPTimeouts`), in their order.
    pub fn mib(&self) -> Vec<(String, u64)> {
        self.mib.named(&self.counters, self.slots.iter().filter_map(|slot| slot.connection.as_deref()))
    }

    /// How many connections there are.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Bytes in the out-of-order queues of all its connections, as of when `poll_transmit` last said that
    /// there is nothing more to send.
    pub fn ofo_bytes(&self) -> u64 {
        self.ofo_bytes
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn insert(&mut self, connection: Box<Connection<P>>, half_open: bool) -> ConnectionId {
        self.half_open += usize::from(half_open);
        match self.free.pop() {
            Some(index) => {
                let slot = &mut self.slots[index as usize];
                slot.generation += 1;
                slot.connection = Some(connection);
                slot.queued = false;
                slot.armed = Time::MAX;
                slot.half_open = half_open;
                ConnectionId { index, generation: slot.generation }
            }
            None => {
                let index = self.slots.len() as u32;
                let connection = Some(connection);
                self.slots.push(Slot {
                    generation: 0,
                    connection,
                    queued: false,
                    armed: Time::MAX,
                    half_open,
                    ofo_bytes: 0,
                });
                ConnectionId { index, generation: 0 }
            }
        }
    }

    /// After a call into a connection: it may have segments, events and a new deadline.
    fn on_changed(&mut self, now: Time, index: u32) {
        self.queue_tx(index);
        self.collect_events(now, index);
    }

    /// It may have segments and a new deadline.
    #[inline]
    fn queue_tx(&mut self, index: u32) {
        self.slots[index as usize].queue(index, &mut self.pending_tx);
    }

    #[inline(always)]
    fn collect_events(&mut self, now: Time, index: u32) {
        let slot = &mut self.slots[index as usize];
        let Some(connection) = slot.connection.as_deref_mut() else { return };
        let joins = connection.path_manager.has_join_requests();
        if !joins && connection.events.is_empty() {
            return;
        }
        if !joins && connection.events.take_lone_readable() {
            let id = ConnectionId { index, generation: slot.generation };
            self.events.push_back((id, Event::Readable));
        } else {
            self.collect_all_events(now, index);
        }
    }

    fn collect_all_events(&mut self, now: Time, index: u32) {
        let slot = &mut self.slots[index as usize];
        let generation = slot.generation;
        let Some(connection) = slot.connection.as_mut() else { return };
        let mut is_closed = false;
        while let Some(event) = connection.events.pop() {
            is_closed |= matches!(event, Event::Closed);
            // Nobody has heard of it, and nobody need hear that it is gone.
            let is_unheard =
                slot.half_open && matches!(event, Event::Reset { .. } | Event::SubflowRemoved { .. });
            if slot.half_open && matches!(event, Event::Accepted { .. } | Event::Reset { .. }) {
                slot.half_open = false;
                self.half_open -= 1;
            }
            if matches!(event, Event::Fallback(_)) {
                self.counters.fallbacks += 1;
            }
            self.mib.event(connection, &event);
            if !is_unheard {
                self.events.push_back((ConnectionId { index, generation }, event));
            }
        }
        let early = if connection.handshake.has_early_joins() {
            connection.handshake.take_early_joins()
        } else {
            Vec::new()
        };
        if connection.path_manager.has_join_requests() {
            self.open_joins(now, index);
        }
        for (path, syn) in early {
            self.on_early_join(now, path, &syn);
        }
        if is_closed {
            self.on_closed(now, ConnectionId { index, generation });
        }
    }

    /// Once nothing more is to be sent: events, the deadline, and whether the connection can be forgotten.
    #[inline(always)]
    fn after_transmit(&mut self, now: Time, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.queued = false;
        match &slot.connection {
            Some(connection)
                if !connection.events.is_empty() || connection.path_manager.has_join_requests() =>
            {
                self.after_events(now, index);
            }
            _ => self.update_slot(index),
        }
    }

    fn after_events(&mut self, now: Time, index: u32) {
        self.collect_events(now, index);
        self.update_slot(index);
    }

    /// Updates what the endpoint keeps of a connection.
    #[inline(always)]
    fn update_slot(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        let Some(connection) = slot.connection.as_mut() else { return };
        let ofo_bytes = connection.ofo_bytes();
        if ofo_bytes != slot.ofo_bytes {
            self.ofo_bytes = self.ofo_bytes + ofo_bytes - slot.ofo_bytes;
            slot.ofo_bytes = ofo_bytes;
        }
        if connection.is_forgettable() {
            self.forget(index);
            return;
        }
        if connection.is_over() {
            self.release_addresses(index);
            return;
        }
        // A deadline that moved back is left in the heap: it is looked at when it comes, and armed anew.
        if let Some(at) = connection.timeout_before(slot.armed) {
            slot.armed = at;
            self.push_deadline(at, index);
        }
    }

    #[cold]
    fn open_joins(&mut self, now: Time, index: u32) {
        loop {
            let slot = &mut self.slots[index as usize];
            let connection = slot.connection.as_mut();
            let Some(request) = connection.and_then(|connection| connection.path_manager.next_join_request())
            else {
                return;
            };
            let Some(tuple) = self.free_tuple(request.local, request.remote) else { continue };
            let isn = self.isn(now, &tuple);
            //= RFC 8684 3.2-b
            let nonce = self.entropy.next_u64() as u32;
            let mtu = self.config.mtu(request.path);
            let connection = self.slots[index as usize].connection.as_mut();
            let subflow = connection.and_then(|c| c.open_join(now, &request, tuple, mtu, isn, nonce));
            if let Some(subflow) = subflow {
                self.mib.join_opened();
                self.add_route(index, subflow, tuple.reversed());
            }
        }
    }

    /// Routes segments with this tuple to this subflow. The route of the subflow whose slot it took is
    /// removed.
    fn add_route(&mut self, index: u32, subflow: usize, tuple: FourTuple) {
        let connection = self.slots[index as usize].connection.as_mut();
        if let Some(old) = connection.and_then(|connection| connection.subflows.take_vacated()) {
            self.routes.remove(&old.reversed());
        }
        self.routes.insert(tuple, SubflowHandle { index, subflow: subflow as u8 });
    }

    fn free_tuple(&mut self, local: SocketAddr, remote: SocketAddr) -> Option<FourTuple> {
        if local.port() != 0 {
            let tuple = FourTuple::new(local, remote);
            return (!self.routes.contains(&tuple.reversed())).then_some(tuple);
        }
        let ports = self.config.local_ports.clone();
        for _ in ports.clone() {
            let port = self.next_port;
            self.next_port = if port >= *ports.end() { *ports.start() } else { port + 1 };
            let tuple = FourTuple::new(SocketAddr::new(local.ip(), port), remote);
            if !self.routes.contains(&tuple.reversed()) {
                return Some(tuple);
            }
        }
        None
    }

    //= RFC 8684 3.1-3 3.1-4 3.1-5
    /// A key whose token no other connection has.
    fn fresh_key(&mut self) -> u64 {
        loop {
            let key = self.entropy.next_u64();
            if !self.tokens.contains_key(&crate::mptcp::Key::new(key).token) {
                return key;
            }
        }
    }

    fn isn(&self, now: Time, tuple: &FourTuple) -> u32 {
        crate::tcp::keyed_isn(&self.isn_secret, tuple, now)
    }

    /// The offset of the timestamps of a connection whose first subflow has this four-tuple.
    fn timestamp_offset(&self, config: &ConnectionConfig, tuple: &FourTuple) -> u32 {
        //= RFC 7323 7-a
        let keyed = || crate::tcp::keyed_timestamp_offset(&self.isn_secret, tuple);
        config.tcp.timestamp_offset.unwrap_or_else(keyed)
    }
}
