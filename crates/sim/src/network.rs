//! The network of a run: its links and how they are joined, what is under way on them, and what is due next.

use ropewalk_link::Link;
use ropewalk_wire::{Segment, SyntheticPayload};

use crate::event_queue::EventQueue;
use crate::meter::Meter;
use crate::packet::{Owner, Packet, Pool};
use crate::recorder::UNTRACED;
use crate::spec::Scenario;
use crate::topology::{Hop, Topology};
use crate::{Nanos, Side};

/// Packets under way on a link from which on their boxes don't stay in the processor's cache until they arrive.
const SHORT_FROM: usize = 2049;

/// See the module.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) links: Vec<Link<Packet>>,
    pub(crate) topology: Topology,
    pub(crate) events: EventQueue,
    pub(crate) pool: Pool,
    pub(crate) meter: Meter,
    /// The side that the workload's data comes from.
    pub(crate) data_from: Side,
    /// Packets under way on a link from which on they have the short form.
    short_from: usize,
}

impl Network {
    /// A network of which nothing is due, with so many more sources of events than links.
    pub(crate) fn new(scenario: &Scenario, seed: u64, more: usize) -> Self {
        let topology = Topology::new(scenario);
        let links: Vec<_> = Topology::specs(scenario)
            .enumerate()
            .map(|(number, link)| Link::new(link.clone(), seed, number as u64))
            .collect();
        let events = EventQueue::new(links.len() + more);
        let meter = Meter::new(scenario.paths.len());
        let data_from = scenario.direction.sender();
        let mut network = Network {
            links,
            topology,
            events,
            pool: Pool::default(),
            meter,
            data_from,
            short_from: SHORT_FROM,
        };
        network.schedule_links();
        network
    }

    /// How long at least whatever enters it is on its way to a host, if its links are all simple and each leads to a host.
    pub(crate) fn lookahead(&self) -> Option<Nanos> {
        let direct = self.topology.next.iter().all(|hop| matches!(hop, Hop::Host(_)));
        let least = self.links.iter().map(|link| link.lookahead().unwrap_or(0)).min();
        least.filter(|least| direct && *least > 0)
    }

    /// Prepares for packets that are looked at before they arrive: all have the short form, which needn't be taken out to be
    /// read.
    pub(crate) fn prepare_lookahead(&mut self) {
        self.short_from = 0;
    }

    /// Counts a segment of the workload that leaves an end, and says which link it enters.
    #[inline(always)]
    fn note(&mut self, side: Side, path: u16, segment: &Segment<SyntheticPayload>) -> usize {
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

    /// A segment of the workload is going to leave an end: as the packet that will enter this link then.
    #[inline]
    pub(crate) fn pack(
        &mut self,
        side: Side,
        path: u16,
        segment: &mut Box<Segment<SyntheticPayload>>,
    ) -> (usize, Packet) {
        let link = self.note(side, path, segment);
        (link, Packet::short(segment, Owner::Workload, path, UNTRACED, &mut self.pool))
    }

    /// What [`pack`](Self::pack) gave enters its link. Its event is not scheduled.
    #[inline]
    pub(crate) fn enter(&mut self, now: Nanos, link: usize, packet: Packet) {
        let line = &mut self.links[link];
        if link & 1 == self.data_from as usize {
            self.meter.paths[packet.path as usize].waits(line.queue_delay(now));
        }
        line.enqueue(now, packet);
    }

    /// Schedules the next event of every link.
    pub(crate) fn schedule_links(&mut self) {
        for (source, link) in self.links.iter().enumerate() {
            self.events.set(source, link.poll_timeout());
        }
    }

    /// A segment of the workload leaves an end. In its place comes another, to be written over.
    #[inline(never)]
    pub(crate) fn carry(
        &mut self,
        now: Nanos,
        side: Side,
        path: u16,
        trace: u32,
        segment: &mut Box<Segment<SyntheticPayload>>,
    ) {
        let link = self.note(side, path, segment);
        if self.links[link].in_flight() >= self.short_from {
            let packet = Packet::short(segment, Owner::Workload, path, trace, &mut self.pool);
            return self.enqueue(now, link, packet);
        }
        // Not put together elsewhere first: it is written where it will lie.
        let packet = Packet::new(segment, Owner::Workload, path, trace, &mut self.pool);
        self.enqueue_here(now, link, packet);
    }

    /// A packet enters a link.
    #[inline(never)]
    pub(crate) fn enqueue(&mut self, now: Nanos, link: usize, packet: Packet) {
        self.enqueue_here(now, link, packet);
    }

    #[inline(always)]
    fn enqueue_here(&mut self, now: Nanos, link: usize, packet: Packet) {
        let line = &mut self.links[link];
        if packet.owner == Owner::Workload && link & 1 == self.data_from as usize {
            self.meter.paths[packet.path as usize].waits(line.queue_delay(now));
        }
        line.enqueue(now, packet);
        self.events.set(link, line.poll_timeout());
    }
}
