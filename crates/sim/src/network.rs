//! The network of a run: its links, how they are connected, and the event queue.

use ropewalk_engine::{Span, Time};
use ropewalk_link::Link;
use ropewalk_wire::{Segment, SyntheticPayload};

use crate::Side;
use crate::event_queue::EventQueue;
use crate::meter::Meter;
use crate::packet::{Owner, Packet, Pool};
use crate::recorder::UNTRACED;
use crate::spec::Scenario;
use crate::topology::{Hop, Topology, side_of};

/// With so many packets on a link, their boxes leave the processor's cache before they arrive.
const COMPACT_FROM: usize = 2049;

/// See the module.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) links: Vec<Link<Packet>>,
    pub(crate) topology: Topology,
    pub(crate) events: EventQueue,
    pub(crate) pool: Pool,
    pub(crate) meter: Meter,
    /// The side that sends the workload's data.
    pub(crate) data_from: Side,
    /// With so many packets on a link, further ones have the compact form.
    compact_from: usize,
}

impl Network {
    /// A network without packets, for so many endpoints.
    pub(crate) fn new(scenario: &Scenario, seed: u64, ends: usize) -> Self {
        let topology = Topology::new(scenario);
        let links: Vec<_> = Topology::specs(scenario)
            .enumerate()
            .map(|(number, link)| Link::new(link.clone(), seed, number as u64))
            .collect();
        let receivers = topology.next.iter().map(|hop| match hop {
            Hop::Host(side) => Some(*side),
            Hop::Link(_) | Hop::OwnDown => None,
        });
        let data_from = scenario.direction.sender();
        // The timers, and the samples of the receiver's out-of-order queue.
        let others = [None, Some(data_from.other())];
        let events = EventQueue::new(receivers.chain((0..ends).map(|end| Some(side_of(end)))).chain(others));
        let meter = Meter::new(scenario.paths.len());
        let mut network = Network {
            links,
            topology,
            events,
            pool: Pool::default(),
            meter,
            data_from,
            compact_from: COMPACT_FROM,
        };
        network.schedule_links();
        network
    }

    /// The least delay of all links, if all deliver in order at times known beforehand, and each leads to a
    /// host.
    pub(crate) fn lookahead(&self) -> Option<Span> {
        let direct = self.topology.next.iter().all(|hop| matches!(hop, Hop::Host(_)));
        let least = self.links.iter().map(|link| link.lookahead().unwrap_or_default()).min();
        least.filter(|least| direct && !least.is_zero())
    }

    /// The least delay of all links that lead to a side's host, if every link leads to a host and computes
    /// arrivals when packets are queued.
    pub(crate) fn least_delay_to(&self, side: Side) -> Option<Span> {
        let mut least = Span::MAX;
        for (link, hop) in self.links.iter().zip(&self.topology.next) {
            let delay = link.least_delay()?;
            match hop {
                Hop::Host(to) if *to == side => least = least.min(delay),
                Hop::Host(_) => {}
                Hop::Link(_) | Hop::OwnDown => return None,
            }
        }
        Some(least)
    }

    /// Gives all packets the compact form, which can be read while they are on a link.
    pub(crate) fn enable_lookahead(&mut self) {
        self.compact_from = 0;
    }

    /// Counts a segment of the workload that an endpoint sends, and returns which link it enters.
    #[inline(always)]
    fn count_sent(&mut self, side: Side, path: u16, segment: &Segment<SyntheticPayload>) -> usize {
        if side == self.data_from {
            let meter = &mut self.meter.paths[path as usize];
            meter.packets_in += 1;
            let len = segment.payload.0;
            if len > 0 {
                meter.segments += 1;
                meter.bytes += u64::from(len);
            }
        }
        self.topology.entry[path as usize][side as usize]
    }

    /// A segment of the workload as a packet, and the link that it will enter.
    #[inline]
    pub(crate) fn pack(
        &mut self,
        side: Side,
        path: u16,
        segment: &mut Box<Segment<SyntheticPayload>>,
    ) -> (usize, Packet) {
        let link = self.count_sent(side, path, segment);
        (link, Packet::compact(segment, Owner::Workload, path, UNTRACED, &mut self.pool))
    }

    /// A packet of [`pack`](Self::pack) enters its link; the link's event isn't scheduled.
    #[inline]
    pub(crate) fn enqueue_unscheduled(&mut self, now: Time, link: usize, packet: Packet) {
        let queue = &mut self.links[link];
        if link & 1 == self.data_from as usize {
            self.meter.paths[packet.path as usize].on_queue_delay(queue.queue_delay(now));
        }
        queue.enqueue(now, packet);
    }

    /// Schedules the next event of every link.
    pub(crate) fn schedule_links(&mut self) {
        for (source, link) in self.links.iter().enumerate() {
            self.events.set(source, link.poll_timeout());
        }
    }

    /// A segment of the workload enters its link. It is replaced by another to be overwritten.
    #[inline(never)]
    pub(crate) fn transmit(
        &mut self,
        now: Time,
        side: Side,
        path: u16,
        trace: u32,
        segment: &mut Box<Segment<SyntheticPayload>>,
    ) {
        let link = self.count_sent(side, path, segment);
        if self.links[link].in_flight() >= self.compact_from {
            let packet = Packet::compact(segment, Owner::Workload, path, trace, &mut self.pool);
            return self.enqueue_here(now, link, packet);
        }
        let packet = Packet::new(segment, Owner::Workload, path, trace, &mut self.pool);
        self.enqueue_here(now, link, packet);
    }

    /// A packet enters a link.
    #[inline(never)]
    pub(crate) fn enqueue(&mut self, now: Time, link: usize, packet: Packet) {
        self.enqueue_here(now, link, packet);
    }

    #[inline(always)]
    fn enqueue_here(&mut self, now: Time, link: usize, packet: Packet) {
        let queue = &mut self.links[link];
        if packet.owner == Owner::Workload && link & 1 == self.data_from as usize {
            self.meter.paths[packet.path as usize].on_queue_delay(queue.queue_delay(now));
        }
        queue.enqueue(now, packet);
        self.events.set(link, queue.poll_timeout());
    }
}
