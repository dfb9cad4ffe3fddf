//! One batch: what arrives is collected, processed connection by connection, and what was sent enters the
//! links.

use ropewalk_engine::endpoint::SubflowHandle;
use ropewalk_engine::{PathId, Time};
use ropewalk_wire::Flags;

use super::{
    Arrival, FiredTimeout, Group, Lookahead, MAX_PACKETS, SIDES, SentPacket, SentRange, client_and_server,
};
use crate::Side;
use crate::packet::{Owner, Packet};
use crate::world::{MAX_EVENTS_PER_INSTANT, World};

impl Lookahead {
    /// Collects what arrives before `end`, or before the first packet that can't be in a batch. Returns when
    /// that is.
    pub(super) fn collect_arrivals(&mut self, world: &World, mut end: Time) -> Time {
        let links = &world.network.links;
        let mut next = std::mem::take(&mut self.next);
        next.clear();
        next.extend((0..links.len()).filter_map(|link| Some((links[link].upcoming_at(0)?.0, link))));
        self.on_links.fill(0);
        self.batch += 1;
        let receiver = world.network.data_from.other();
        let mut deliveries = world.independent_deliveries();
        'all: while let Some(first) = (0..next.len()).min_by_key(|i| next[*i]) {
            let (_, link) = next.swap_remove(first);
            let until = next.iter().copied().min().unwrap_or((Time::MAX, 0));
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
                let subflow = self.route(world, side, packet).filter(|_| self.arrivals.len() < MAX_PACKETS);
                let Some(subflow) = subflow else {
                    end = at;
                    break 'all;
                };
                if side == receiver && self.routes[side as usize].enter_batch(subflow, self.batch) {
                    if deliveries == 0 {
                        end = at;
                        break 'all;
                    }
                    deliveries -= 1;
                }
                self.on_links[link] += 1;
                let (index, link) = (index as u32, link as u16);
                let sent = SentRange::default();
                self.arrivals.push(Arrival { at, subflow, index, group: 0, sent, link, side });
            }
        }
        self.next = next;
        self.truncate(end);
        end
    }

    /// The subflow that receives a packet, if the packet can be in a batch.
    #[inline]
    fn route(&self, world: &World, side: Side, packet: &Packet) -> Option<SubflowHandle> {
        let (segment, len) = packet.compact_segment().filter(|_| packet.owner == Owner::Workload)?;
        let rare = [Flags::SYN, Flags::FIN, Flags::RST, Flags::URG];
        // These open and close connections: the table of connections changes,
        // and with it what is independent.
        if rare.iter().any(|flag| segment.flags().contains(*flag)) {
            return None;
        }
        // The application responds to a request.
        if side == world.network.data_from && segment.has_payload(len) {
            return None;
        }
        let ports = client_and_server(side, segment.ports());
        let subflow = self.routes[side as usize].lookup(packet.path, ports)?;
        // If we have closed as well, a DATA_FIN ends the connection.
        (!segment.data_fin() || world.hosts.end(side as usize).is_send_open(subflow)).then_some(subflow)
    }

    /// Removes what arrives from `end` on.
    fn truncate(&mut self, end: Time) {
        while let Some(last) = self.arrivals.pop_if(|last| last.at >= end) {
            self.on_links[usize::from(last.link)] -= 1;
        }
    }

    /// Collects the timeouts before `end`, or before the first of a connection that can't be in a batch.
    /// Returns when that is.
    pub(super) fn collect_timeouts(&mut self, world: &mut World, mut end: Time) -> Time {
        for side in SIDES {
            while let Some((at, subflow)) = world.hosts.end_mut(side as usize).take_timeout_before(end) {
                self.timeouts.push((at, side, subflow));
                // An earlier timeout may have changed that.
                let independent = self.routes[side as usize].contains(subflow)
                    && world.hosts.end(side as usize).is_independent(subflow);
                if !independent {
                    end = at;
                }
            }
        }
        self.truncate(end);
        let hosts = &mut world.hosts;
        self.timeouts.retain(|(at, side, subflow)| {
            if *at >= end {
                hosts.end_mut(*side as usize).restore_timeout(*at, *subflow);
            }
            *at < end
        });
        end
    }

    /// Processes what was collected. Returns how many events that were, and when the last was.
    pub(super) fn process(&mut self, world: &mut World, end: Time) -> (u64, Time) {
        self.group_by_connection();
        self.sent.clear();
        self.fired.clear();
        // One side after the other: a sender's code and a receiver's are too large for the innermost caches.
        for side in SIDES {
            for number in 0..self.groups.len() {
                let group = self.groups[number];
                if group.side == side {
                    self.process_group(world, group, end);
                }
            }
        }
        self.enqueue_sent(world)
    }

    fn group_by_connection(&mut self) {
        self.groups.clear();
        for arrival in &mut self.arrivals {
            let group = self.routes[arrival.side as usize].group_mut(arrival.subflow);
            if *group == 0 {
                self.groups.push(Group { side: arrival.side, subflow: arrival.subflow, first: 0, count: 0 });
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
        for (_, side, subflow) in self.timeouts.drain(..) {
            let group = self.routes[side as usize].group_mut(subflow);
            if *group == 0 {
                self.groups.push(Group { side, subflow, first: 0, count: 0 });
                *group = self.groups.len() as u32;
            }
        }
    }

    /// Processes one connection's arrivals and timeouts in order of time.
    fn process_group(&mut self, world: &mut World, group: Group, end: Time) {
        let Group { side, subflow, first, count } = group;
        let receives = side != world.network.data_from;
        for i in first..first + count {
            let number = self.order[i as usize] as usize;
            let arrival = self.arrivals[number];
            self.fire_timeouts(world, &group, arrival.at);
            world.now = arrival.at;
            let link = &world.network.links[usize::from(arrival.link)];
            let Some((_, packet)) = link.upcoming_at(arrival.index as usize) else { continue };
            packet.copy_to(&mut world.received);
            let path = packet.path;
            if receives {
                world.network.meter.paths[usize::from(path)].packets_out += 1;
            }
            let (path, hint) = (PathId(path), Some(arrival.subflow));
            world.hosts.on_segment(side as usize, arrival.at, path, hint, &mut world.received);
            self.arrivals[number].sent = self.transmit(world, side);
        }
        self.fire_timeouts(world, &group, end);
        let routes = &mut self.routes[side as usize];
        *routes.group_mut(subflow) = 0;
        if !world.hosts.end(side as usize).is_independent(subflow) {
            routes.remove(subflow.connection_slot());
        }
    }

    /// Handles a connection's timeouts before `until`.
    #[inline]
    fn fire_timeouts(&mut self, world: &mut World, group: &Group, until: Time) {
        while world.hosts.end(group.side as usize).timeout_of(group.subflow) < until {
            if !self.fire_timeout(world, group) {
                return;
            }
        }
    }

    #[inline(never)]
    fn fire_timeout(&mut self, world: &mut World, group: &Group) -> bool {
        let Group { side, subflow, .. } = *group;
        let at = world.hosts.end(side as usize).timeout_of(subflow);
        let slot = subflow.connection_slot();
        let repeat = match self.fired.last() {
            Some(last) if (last.at, last.side, last.slot) == (at, side, slot) => last.repeat + 1,
            _ => 0,
        };
        if repeat > MAX_EVENTS_PER_INSTANT {
            world.fail_livelock();
            return false;
        }
        world.now = at;
        world.hosts.end_mut(side as usize).on_timeout_of(at, subflow);
        let sent = self.transmit(world, side);
        self.fired.push(FiredTimeout { at, side, repeat, slot, sent });
        true
    }

    /// Dispatches an endpoint's events, and buffers what it sends.
    #[inline]
    fn transmit(&mut self, world: &mut World, side: Side) -> SentRange {
        let first = self.sent.len();
        let end = side as usize;
        world.dispatch_events(end);
        loop {
            let (network, sent) = (&mut world.network, &mut self.sent);
            world.hosts.transmit_all(end, world.now, &mut world.to_send, |path, segment| {
                let (link, packet) = network.pack(side, path.0, segment);
                sent.push(SentPacket { packet, link: link as u32 });
            });
            if !world.dispatch_events(end) {
                break;
            }
        }
        SentRange { first: first as u32, count: (self.sent.len() - first) as u32 }
    }

    /// Has all that was sent enter the links, in order of time. Returns how many events the batch had, and
    /// when the last was.
    fn enqueue_sent(&mut self, world: &mut World) -> (u64, Time) {
        for (link, count) in self.on_links.iter().enumerate() {
            world.network.links[link].drop_upcoming(*count);
        }
        // The order of the event loop: by time, then the endpoint's number. Timeouts of one moment are
        // handled by slot, and those that are due again after all of them.
        self.fired.sort_unstable_by_key(|fired| (fired.at, fired.side, fired.repeat, fired.slot));
        let instants = self.fired.chunk_by(|a, b| (a.at, a.side, a.repeat) == (b.at, b.side, b.repeat));
        let events = self.arrivals.len() + instants.count();
        let last = [self.arrivals.last().map(|last| last.at), self.fired.last().map(|last| last.at)];
        let mut fired = self.fired.iter().peekable();
        for arrival in &self.arrivals {
            // Strictly before: at the same moment links come before endpoints (see `event_queue`).
            while let Some(fired) = fired.next_if(|fired| fired.at < arrival.at) {
                enqueue(world, &mut self.sent, fired.at, fired.sent);
            }
            enqueue(world, &mut self.sent, arrival.at, arrival.sent);
        }
        for fired in fired {
            enqueue(world, &mut self.sent, fired.at, fired.sent);
        }
        (events as u64, last.into_iter().flatten().max().unwrap_or(world.now))
    }
}

#[inline]
fn enqueue(world: &mut World, sent: &mut [SentPacket], at: Time, range: SentRange) {
    for sent in &mut sent[range.first as usize..][..range.count as usize] {
        world.network.enqueue_unscheduled(at, sent.link as usize, sent.packet.take());
    }
}
