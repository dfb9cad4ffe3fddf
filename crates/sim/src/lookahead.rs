//! Connection by connection: what will arrive within the shortest delay of all links is on its way already, so a connection
//! can be taken through all of that at once, and the next one after it (lookahead, as parallel simulators know it: Chandy
//! and Misra, 1979). With thousands of connections each then comes into the processor's cache once for all, and not for
//! each of its packets.
//!
//! What comes of it is what would have come of it moment by moment, to the byte. A round ends before anything that more
//! than one connection may see: an alarm, a handshake, a connection that is in trouble or about to end. What the
//! connections send is put down, and enters the links in the order in which it was sent when all are through.

use ropewalk_engine::PathId;
use ropewalk_engine::endpoint::SubflowHandle;
use ropewalk_wire::{Flags, FourTuple};

use crate::hosts::{PORTS, SERVER_PORT};
use crate::known::Known;
use crate::packet::{Owner, Packet};
use crate::result::Outcome;
use crate::world::{STANDSTILL, WORKLOAD, World};
use crate::{Nanos, Side};

/// Packets of a round, at most.
const MOST: usize = 1 << 18;

/// Packets in a round from which on rounds are worth it.
const WORTH: usize = 64;

/// After a round that wasn't: turns of the event loop until the next is tried.
const PAUSE: u32 = 32;

/// Things whose memory is fetched together.
const TOGETHER: usize = 8;

const SIDES: [Side; 2] = [Side::Client, Side::Server];

/// See the module.
#[derive(Debug)]
pub(crate) struct Lookahead {
    /// What enters a link now doesn't arrive before so much time has passed.
    span: Nanos,
    /// How far the next round looks at most: not much further than where a deadline ended the last one.
    reach: Nanos,
    /// Turns of the event loop until a round is tried.
    pause: u32,
    /// The number of the round.
    round: u64,
    /// Handled in rounds.
    events: u64,
    /// The settled connections, by the side that hears them.
    known: [Known; 2],
    arrivals: Vec<Arrival>,
    /// Links with packets, and when the next arrives.
    next: Vec<(Nanos, usize)>,
    /// By link: how many of them are on it.
    on_links: Vec<usize>,
    /// Their numbers, connection by connection.
    order: Vec<u32>,
    groups: Vec<Group>,
    deadlines: Vec<(Nanos, Side, SubflowHandle)>,
    sent: Vec<Sent>,
    fired: Vec<Fired>,
}

/// A packet that arrives in this round.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    at: Nanos,
    place: SubflowHandle,
    /// Its number among those on its link.
    index: u32,
    group: u32,
    /// What was sent at once.
    sent: Span,
    link: u16,
    side: Side,
}

/// Some of what was sent, one behind the other.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    first: u32,
    count: u32,
}

/// One connection's part in a round, at one side.
#[derive(Clone, Copy, Debug)]
struct Group {
    side: Side,
    place: SubflowHandle,
    /// In the order.
    first: u32,
    count: u32,
}

#[derive(Debug)]
struct Sent {
    packet: Packet,
    link: u32,
}

/// A deadline that passed.
#[derive(Clone, Copy, Debug)]
struct Fired {
    at: Nanos,
    side: Side,
    /// How many of this connection passed at the same moment before.
    again: u32,
    connection: usize,
    sent: Span,
}

impl Lookahead {
    /// For so many connections over links on which everything takes `span` at least.
    pub(crate) fn new(span: Nanos, links: usize, paths: usize, connections: u32) -> Self {
        let ports = connections.div_ceil(PORTS) as usize;
        Lookahead {
            span,
            reach: span,
            pause: 0,
            round: 0,
            events: 0,
            known: [Known::new(paths, ports), Known::new(paths, ports)],
            arrivals: Vec::new(),
            next: Vec::new(),
            on_links: vec![0; links],
            order: Vec::new(),
            groups: Vec::new(),
            deadlines: Vec::new(),
            sent: Vec::new(),
            fired: Vec::new(),
        }
    }

    /// What arrives in this round: before `end`, or before the first that can't be in a round. Returns when that is.
    fn gather(&mut self, world: &World, mut end: Nanos) -> Nanos {
        let links = &world.network.links;
        let mut next: Vec<(Nanos, usize)> =
            (0..links.len()).filter_map(|link| Some((links[link].upcoming_at(0)?.0, link))).collect();
        self.on_links.fill(0);
        self.round += 1;
        let receiver = world.network.data_from.other();
        let mut spare = world.spare();
        'all: while let Some(first) = (0..next.len()).min_by_key(|i| next[*i]) {
            let (_, link) = next.swap_remove(first);
            let until = next.iter().copied().min().unwrap_or((Nanos::MAX, 0));
            let side = if link & 1 == 0 { Side::Server } else { Side::Client };
            loop {
                let index = self.on_links[link];
                let Some((at, packet)) = links[link].upcoming_at(index) else { continue 'all };
                if (at, link) > until {
                    next.push((at, link));
                    continue 'all;
                }
                if at >= end {
                    break 'all;
                }
                let place = self.place_of(world, side, packet).filter(|_| self.arrivals.len() < MOST);
                let Some(place) = place else {
                    end = at;
                    break 'all;
                };
                if side == receiver && self.known[side as usize].joins(place, self.round) {
                    if spare == 0 {
                        end = at;
                        break 'all;
                    }
                    spare -= 1;
                }
                self.on_links[link] += 1;
                let (index, link) = (index as u32, link as u16);
                self.arrivals.push(Arrival { at, place, index, group: 0, sent: Span::default(), link, side });
            }
        }
        self.next = next;
        self.cut(end);
        end
    }

    /// Where a packet goes, if it is of the kind that concerns one settled connection only.
    #[inline]
    fn place_of(&self, world: &World, side: Side, packet: &Packet) -> Option<SubflowHandle> {
        let (plain, len) = packet.plain().filter(|_| packet.owner == Owner::Workload)?;
        let odd = [Flags::SYN, Flags::FIN, Flags::RST, Flags::URG];
        if odd.iter().any(|flag| plain.flags().contains(*flag)) {
            return None;
        }
        // What the client asks for makes the application act.
        if side == world.network.data_from && plain.has_payload(len) {
            return None;
        }
        let place = self.known[side as usize].place(packet.path, client_and_server(side, plain.ports()))?;
        (!plain.data_fin() || world.hosts.end(side as usize).is_open(place)).then_some(place)
    }

    /// Leaves what arrives from then on.
    fn cut(&mut self, end: Nanos) {
        while let Some(last) = self.arrivals.pop_if(|last| last.at >= end) {
            self.on_links[usize::from(last.link)] -= 1;
        }
    }

    /// Takes out the deadlines of this round: before `end`, or before the first of a connection that isn't settled. Returns when
    /// that is.
    fn take_deadlines(&mut self, world: &mut World, mut end: Nanos) -> Nanos {
        for side in SIDES {
            while let Some((at, place)) = world.hosts.end_mut(side as usize).take_deadline(end) {
                self.deadlines.push((at, side, place));
                // An earlier deadline may have got it into trouble.
                let settled = self.known[side as usize].is_settled(place)
                    && world.hosts.end(side as usize).is_settled(place);
                if !settled {
                    end = at;
                }
            }
        }
        self.cut(end);
        let ends = &mut world.hosts;
        self.deadlines.retain(|(at, side, place)| {
            if *at >= end {
                ends.end_mut(*side as usize).put_back_deadline(*at, *place);
            }
            *at < end
        });
        end
    }

    /// Sorts by connection.
    fn group(&mut self) {
        self.groups.clear();
        for arrival in &mut self.arrivals {
            let group = self.known[arrival.side as usize].group(arrival.place);
            if *group == 0 {
                self.groups.push(Group { side: arrival.side, place: arrival.place, first: 0, count: 0 });
                *group = self.groups.len() as u32;
            }
            arrival.group = *group - 1;
            self.groups[*group as usize - 1].count += 1;
        }
        let mut first = 0;
        for group in &mut self.groups {
            group.first = first;
            first += group.count;
            group.count = 0;
        }
        self.order.clear();
        self.order.resize(self.arrivals.len(), 0);
        for (number, arrival) in (0..).zip(&self.arrivals) {
            let group = &mut self.groups[arrival.group as usize];
            self.order[(group.first + group.count) as usize] = number;
            group.count += 1;
        }
        for (_, side, place) in self.deadlines.drain(..) {
            let group = self.known[side as usize].group(place);
            if *group == 0 {
                self.groups.push(Group { side, place, first: 0, count: 0 });
                *group = self.groups.len() as u32;
            }
        }
    }

    /// Reads from what some connections will need, so that it is fetched all at once.
    fn fetch(&self, world: &World, groups: std::ops::Range<usize>) {
        let mut read = 0;
        for group in &self.groups[groups] {
            for place in self.known[group.side as usize].subflows(group.place) {
                world.hosts.prepare(group.side, place);
            }
            for number in &self.order[group.first as usize..][..group.count as usize] {
                let arrival = &self.arrivals[*number as usize];
                let packet =
                    world.network.links[usize::from(arrival.link)].upcoming_at(arrival.index as usize);
                read ^= packet.map_or(0, |(at, packet)| at ^ u64::from(packet.trace));
            }
        }
        std::hint::black_box(read);
    }

    /// Takes one connection through its part.
    fn take_through(&mut self, world: &mut World, number: usize, end: Nanos) {
        let group = self.groups[number];
        let Group { side, place, first, count } = group;
        let receives = side != world.network.data_from;
        for i in first..first + count {
            let number = self.order[i as usize] as usize;
            let arrival = self.arrivals[number];
            self.fire(world, &group, arrival.at);
            world.now = arrival.at;
            let link = &world.network.links[usize::from(arrival.link)];
            let Some((_, packet)) = link.upcoming_at(arrival.index as usize) else { continue };
            packet.read(&mut world.arriving);
            let path = packet.path;
            if receives {
                world.network.meter.paths[usize::from(path)].packets_out += 1;
            }
            let now = arrival.at;
            world.hosts.on_segment(
                side as usize,
                now,
                PathId(path),
                Some(arrival.place),
                &mut world.arriving,
            );
            self.arrivals[number].sent = self.speak(world, side);
        }
        self.fire(world, &group, end);
        let known = &mut self.known[side as usize];
        *known.group(place) = 0;
        if !world.hosts.end(side as usize).is_settled(place) {
            known.forget(place.of_connection());
        }
    }

    /// Deadlines of a connection that pass before `until`.
    #[inline]
    fn fire(&mut self, world: &mut World, group: &Group, until: Nanos) {
        while world.hosts.end(group.side as usize).deadline_at(group.place) < until {
            if !self.fire_next(world, group) {
                return;
            }
        }
    }

    #[inline(never)]
    fn fire_next(&mut self, world: &mut World, group: &Group) -> bool {
        let Group { side, place, .. } = *group;
        let at = world.hosts.end(side as usize).deadline_at(place);
        let connection = place.of_connection();
        let again = match self.fired.last() {
            Some(last) if (last.at, last.side, last.connection) == (at, side, connection) => last.again + 1,
            _ => 0,
        };
        if again > STANDSTILL {
            world.stand_still();
            return false;
        }
        world.now = at;
        world.hosts.end_mut(side as usize).on_timeout_at(at, place);
        let sent = self.speak(world, side);
        self.fired.push(Fired { at, side, again, connection, sent });
        true
    }

    /// Hears what an end has to say, and puts down what it sends.
    #[inline]
    fn speak(&mut self, world: &mut World, side: Side) -> Span {
        let first = self.sent.len();
        let end = side as usize;
        world.hear(end);
        loop {
            let (network, sent) = (&mut world.network, &mut self.sent);
            world.hosts.transmit_all(end, world.now, &mut world.leaving, |path, segment| {
                let (link, packet) = network.pack(side, path.0, segment);
                sent.push(Sent { packet, link: link as u32 });
            });
            if !world.hear(end) {
                break;
            }
        }
        Span { first: first as u32, count: (self.sent.len() - first) as u32 }
    }

    /// Has all that was sent enter the links, in order. Returns how many events that were, and when the last was.
    fn carry(&mut self, world: &mut World) -> (u64, Nanos) {
        for (link, count) in self.on_links.iter().enumerate() {
            world.network.links[link].drop_upcoming(*count);
        }
        self.fired.sort_unstable_by_key(|fired| (fired.at, fired.side, fired.again, fired.connection));
        let moments = self.fired.chunk_by(|a, b| (a.at, a.side, a.again) == (b.at, b.side, b.again)).count();
        let last = [self.arrivals.last().map(|last| last.at), self.fired.last().map(|last| last.at)];
        let mut fired = self.fired.iter().peekable();
        for (number, arrival) in self.arrivals.iter().enumerate() {
            if number % TOGETHER == 0 {
                let soon = self.arrivals[number..].iter().take(TOGETHER);
                let read =
                    soon.map(|soon| self.sent.get(soon.sent.first as usize).map_or(0, |sent| sent.link));
                std::hint::black_box(read.fold(0, |all, link| all ^ link));
            }
            while let Some(fired) = fired.next_if(|fired| fired.at < arrival.at) {
                enter(world, &mut self.sent, fired.at, fired.sent);
            }
            enter(world, &mut self.sent, arrival.at, arrival.sent);
        }
        for fired in fired {
            enter(world, &mut self.sent, fired.at, fired.sent);
        }
        let events = self.arrivals.len() + moments;
        (events as u64, last.into_iter().flatten().max().unwrap_or(world.now))
    }

    /// How many events were handled in rounds.
    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// Forgets a connection: it is to be looked at again.
    pub(crate) fn forget(&mut self, side: Side, connection: usize) {
        self.known[side as usize].forget(connection);
    }
}

#[inline]
fn enter(world: &mut World, sent: &mut [Sent], at: Nanos, span: Span) {
    for sent in &mut sent[span.first as usize..][..span.count as usize] {
        world.network.enter(at, sent.link as usize, sent.packet.take());
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
    /// Tries a round of all that happens until then at most; whether anything did.
    pub(crate) fn round(&mut self, until: Nanos) -> bool {
        if !self.is_unwatched() {
            return false;
        }
        let Some(mut ahead) = self.lookahead.take() else { return false };
        let mut done = false;
        if ahead.pause > 0 {
            ahead.pause -= 1;
        } else {
            ahead.arrivals.clear();
            done = self.try_round(&mut ahead, until);
            let at_alarm = self.network.events.peek().map(|first| first.1) == self.first_alarm();
            ahead.pause = if ahead.arrivals.len() >= WORTH || at_alarm { 0 } else { PAUSE };
        }
        self.lookahead = Some(ahead);
        done
    }

    /// On how many connections data may arrive in a round.
    fn spare(&self) -> u32 {
        let receiver = match self.network.data_from.other() {
            Side::Client => &self.scenario.client,
            Side::Server => &self.scenario.server,
        };
        let round = MOST as u64 * u64::from(u16::MAX);
        let more = receiver.receive_buffer.saturating_add(round);
        self.apps[WORKLOAD].spare(self.hosts.most_received().saturating_add(more))
    }

    fn try_round(&mut self, ahead: &mut Lookahead, until: Nanos) -> bool {
        let Some((_, first)) = self.network.events.peek() else { return false };
        let mut end = first.saturating_add(ahead.reach).min(until.min(self.end).saturating_add(1));
        if let Some(alarm) = self.first_alarm() {
            if first == alarm {
                return false;
            }
            // What happens at that moment on links and at ends comes before.
            end = end.min(alarm.saturating_add(1));
        }
        let gathered = ahead.gather(self, end);
        ahead.reach = (2 * ahead.reach).min(ahead.span);
        if ahead.arrivals.len() < WORTH {
            return false;
        }
        let end = ahead.take_deadlines(self, gathered);
        if end < gathered {
            // What lies behind a deadline was gathered in vain.
            ahead.reach = (2 * (end - first)).clamp((ahead.span >> 10).max(1), ahead.span);
        }
        if ahead.arrivals.is_empty() && ahead.deadlines.is_empty() {
            return false;
        }
        ahead.group();
        ahead.sent.clear();
        ahead.fired.clear();
        for first in (0..ahead.groups.len()).step_by(TOGETHER) {
            let together = first..(first + TOGETHER).min(ahead.groups.len());
            ahead.fetch(self, together.clone());
            for number in together {
                ahead.take_through(self, number, end);
            }
        }
        let (events, last) = ahead.carry(self);
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

    /// After a segment of the workload arrived outside of a round: whether its connection is settled now, or still.
    #[inline(never)]
    pub(crate) fn reconsider(&mut self, side: Side, path: u16, tuple: &FourTuple) {
        let Some(ahead) = &mut self.lookahead else { return };
        let end = self.hosts.end(side as usize);
        let known = &mut ahead.known[side as usize];
        match known.place(path, client_and_server(side, [tuple.src_port, tuple.dst_port])) {
            Some(place) => {
                if !end.is_settled(place) {
                    known.forget(place.of_connection());
                }
            }
            None => {
                let Some(place) = end.place_of(tuple).filter(|place| end.is_settled(*place)) else { return };
                let subflows = end.subflows_at(place).map(|(place, path, tuple)| {
                    (place, path.0, client_and_server(side, [tuple.src_port, tuple.dst_port]))
                });
                known.learn(place.of_connection(), subflows);
            }
        }
    }

    #[cold]
    pub(crate) fn stand_still(&mut self) {
        self.outcome = Some(Outcome::Failed("time stands still: an endpoint's timer is always due".into()));
    }
}
