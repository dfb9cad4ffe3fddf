//! Processes many connections one after another instead of strictly in order of time (conservative lookahead:
//! Chandy and Misra, 1979).
//!
//! Whatever arrives within the least delay of all links is in flight already. So a connection can be taken
//! through all of its arrivals in that time at once, and then the next connection. With thousands of
//! connections each is fetched into the processor's cache once per batch, and not once per packet.
//!
//! The result is the same to the byte. A batch ends before any event that may affect more than one
//! connection: a timer of the world, a handshake, a connection with losses or about to close. What the
//! connections send is buffered, and enters the links in the order of sending when the batch is complete.

mod batch;

use ropewalk_engine::endpoint::SubflowHandle;
use ropewalk_engine::{NANOSECOND, Span, Time};
use ropewalk_wire::FourTuple;

use crate::Side;
use crate::hosts::{PORTS, SERVER_PORT};
use crate::packet::Packet;
use crate::result::Outcome;
use crate::routes::RouteTable;
use crate::world::{WORKLOAD, World};

/// Packets per batch, at most.
const MAX_PACKETS: usize = 1 << 18;

/// With fewer packets a batch costs more than it saves.
const MIN_PACKETS: usize = 64;

/// After a batch that was too small: events until the next attempt.
const PAUSE: u32 = 32;

const SIDES: [Side; 2] = [Side::Client, Side::Server];

/// See the module.
#[derive(Debug)]
pub(crate) struct Lookahead {
    /// What enters a link arrives this much later, at the earliest.
    least_delay: Span,
    /// How much time the next batch covers, at most. Shorter than the least delay after a timeout ended a
    /// batch early.
    reach: Span,
    /// Turns of the event loop until the next attempt.
    pause: u32,
    /// The number of the batch.
    batch: u64,
    /// Events handled in batches.
    events: u64,
    /// By receiving side.
    routes: [RouteTable; 2],
    arrivals: Vec<Arrival>,
    /// Links with packets, and when the next arrives.
    next: Vec<(Time, usize)>,
    /// By link: how many of its packets are in the batch.
    on_links: Vec<usize>,
    /// Indices of arrivals, grouped by connection.
    order: Vec<u32>,
    groups: Vec<Group>,
    timeouts: Vec<(Time, Side, SubflowHandle)>,
    sent: Vec<SentPacket>,
    fired: Vec<FiredTimeout>,
}

/// A packet that arrives in this batch.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    at: Time,
    subflow: SubflowHandle,
    /// Its index among the packets of its link.
    index: u32,
    group: u32,
    /// What was sent in response.
    sent: SentRange,
    link: u16,
    side: Side,
}

/// A range of [`Lookahead::sent`].
#[derive(Clone, Copy, Debug, Default)]
struct SentRange {
    first: u32,
    count: u32,
}

/// One connection's part of a batch, at one side.
#[derive(Clone, Copy, Debug)]
struct Group {
    side: Side,
    subflow: SubflowHandle,
    /// A range of [`Lookahead::order`].
    first: u32,
    count: u32,
}

#[derive(Debug)]
struct SentPacket {
    packet: Packet,
    link: u32,
}

/// A connection's timeout that was handled.
#[derive(Clone, Copy, Debug)]
struct FiredTimeout {
    at: Time,
    side: Side,
    /// How many of this connection were handled at the same time before.
    repeat: u32,
    slot: usize,
    sent: SentRange,
}

impl Lookahead {
    /// For this many connections over links on which everything takes `least_delay` at least.
    pub(crate) fn new(least_delay: Span, links: usize, paths: usize, connections: u32) -> Self {
        let ports = connections.div_ceil(PORTS) as usize;
        Lookahead {
            least_delay,
            reach: least_delay,
            pause: 0,
            batch: 0,
            events: 0,
            routes: [RouteTable::new(paths, ports), RouteTable::new(paths, ports)],
            arrivals: Vec::new(),
            next: Vec::new(),
            on_links: vec![0; links],
            order: Vec::new(),
            groups: Vec::new(),
            timeouts: Vec::new(),
            sent: Vec::new(),
            fired: Vec::new(),
        }
    }

    /// How many events were handled in batches.
    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// Excludes a connection from batches until it is examined again.
    pub(crate) fn remove(&mut self, side: Side, slot: usize) {
        self.routes[side as usize].remove(slot);
    }
}

/// The client's port and the server's, of what arrives at this side.
#[inline]
fn client_and_server(side: Side, [source, destination]: [u16; 2]) -> (u16, u16) {
    let (client, server) = match side {
        Side::Client => (destination, source),
        Side::Server => (source, destination),
    };
    (client, server.wrapping_sub(SERVER_PORT))
}

impl World {
    /// Tries to process a batch of events up to `until`; returns whether it did.
    pub(crate) fn run_batch(&mut self, until: Time) -> bool {
        if !self.is_unwatched() {
            return false;
        }
        let Some(mut ahead) = self.lookahead.take() else { return false };
        let mut done = false;
        if ahead.pause > 0 {
            ahead.pause -= 1;
        } else {
            ahead.arrivals.clear();
            done = self.try_batch(&mut ahead, until);
            // A batch that a timer cut short doesn't say how many packets the next has.
            let at_timer = self.network.events.first().0 == self.next_timer_or_sample();
            ahead.pause = if ahead.arrivals.len() >= MIN_PACKETS || at_timer { 0 } else { PAUSE };
        }
        self.lookahead = Some(ahead);
        done
    }

    /// On how many connections data may arrive in a batch.
    fn independent_deliveries(&self) -> u32 {
        let receiver = match self.network.data_from.other() {
            Side::Client => &self.scenario.client,
            Side::Server => &self.scenario.server,
        };
        let batch = MAX_PACKETS as u64 * u64::from(u16::MAX);
        let more = receiver.receive_buffer.saturating_add(batch);
        self.apps[WORKLOAD].independent_deliveries(self.hosts.most_received().saturating_add(more))
    }

    fn try_batch(&mut self, ahead: &mut Lookahead, until: Time) -> bool {
        let (first, _) = self.network.events.first();
        let mut end = first.saturating_add(ahead.reach).min(until.min(self.end).saturating_add(NANOSECOND));
        let timer = self.next_timer_or_sample();
        // It may concern several connections: it is handled in order of time.
        if first == timer {
            return false;
        }
        // Simultaneous events of links and endpoints come before.
        end = end.min(timer.saturating_add(NANOSECOND));
        let collected = ahead.collect_arrivals(self, end);
        // A timeout shortened it; by doubling it soon covers the least delay again.
        ahead.reach = (2 * ahead.reach).min(ahead.least_delay);
        if ahead.arrivals.len() < MIN_PACKETS {
            return false;
        }
        let end = ahead.collect_timeouts(self, collected);
        if end < collected {
            // Arrivals after the timeout were collected in vain.
            ahead.reach =
                (2 * (end - first)).clamp((ahead.least_delay / 1024).max(NANOSECOND), ahead.least_delay);
        }
        if ahead.arrivals.is_empty() && ahead.timeouts.is_empty() {
            return false;
        }
        let (events, last) = ahead.process(self, end);
        self.events += events;
        ahead.events += events;
        self.now = last;
        self.network.schedule_links();
        for side in SIDES {
            let source = self.network.links.len() + side as usize;
            self.network.events.set(source, self.hosts.poll_timeout(side as usize));
        }
        true
    }

    /// After a segment of the workload was processed outside of a batch: adds its connection to the route
    /// table, or removes it.
    #[inline(never)]
    pub(crate) fn update_routes(&mut self, side: Side, path: u16, tuple: &FourTuple) {
        let Some(ahead) = &mut self.lookahead else { return };
        let end = self.hosts.end(side as usize);
        let routes = &mut ahead.routes[side as usize];
        match routes.lookup(path, client_and_server(side, [tuple.src_port, tuple.dst_port])) {
            Some(subflow) => {
                if !end.is_independent(subflow) {
                    routes.remove(subflow.connection_slot());
                }
            }
            None => {
                let subflow = end.subflow_of(tuple).filter(|subflow| end.is_independent(*subflow));
                let Some(subflow) = subflow else { return };
                let siblings = end.siblings(subflow).map(|(subflow, path, tuple)| {
                    (subflow, path.0, client_and_server(side, [tuple.src_port, tuple.dst_port]))
                });
                routes.insert(subflow.connection_slot(), siblings);
            }
        }
    }

    #[cold]
    pub(crate) fn fail_livelock(&mut self) {
        self.outcome = Some(Outcome::Failed("livelock: an endpoint's timeout is always due".into()));
    }
}
