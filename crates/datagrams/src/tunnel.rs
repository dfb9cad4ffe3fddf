//! One end of the tunnel.

mod choosing;
mod pace;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use crate::flow::{Class, Flows, patience};
use crate::frame::{Data, Frame, FrameError, MOST_LANES, MOST_OVERHEAD, MOST_PARTS, Part};
use crate::handover::Handover;
use crate::lane::{Lane, LinkUse, Queued};
use crate::packet::{FlowKey, Summary, inspect, mark_congestion};
use crate::receive::{Arrivals, Numbers, Receiving};
use crate::scheduler::{Adaptive, DatagramScheduler};
use crate::send::{Piece, Sending};
use crate::{MILLISECOND, SECOND};

/// What a link has room for that is idle, bytes.
const MTU: usize = 1400;
/// Most links.
pub const MOST_LINKS: usize = 16;
/// How long traffic counts as flowing, of a lane or over a link.
const ACTIVE: u64 = SECOND;
/// How much of the links' rates may wait of downloads at most, as time, and bytes at least. For long no more
/// waits than CoDel lets.
const QUEUE: u64 = 60 * MILLISECOND;
const LEAST_QUEUE: usize = 64_000;
/// The same while a link's rate is being found out: a download that begins doubles its window meanwhile.
const STARTING_QUEUE: usize = 256_000;
/// Most packets that wait, of a class.
const MOST_QUEUED: usize = 4096;
/// How long a packet that isn't a download's may wait.
const LONGEST_WAIT: u64 = 60 * MILLISECOND;
/// How long packets wait for links that are full: then those of the next order carry some, too. Less than
/// CoDel lets downloads wait.
const FULL: u64 = 8 * MILLISECOND;
/// What may be sent twice: bytes per second, the same as a share of the links' rates, and at once.
const COPIES: f64 = 125_000.0;
const COPIES_SHARE: f64 = 0.05;
const COPIES_BURST: f64 = 32_000.0;
/// Most repairs that wait.
const MOST_REPAIRS: usize = 4096;

/// What is said of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkSettings {
    /// The largest datagram that its carrier takes, bytes. Larger packets go in parts.
    pub largest: usize,
    /// It is used while no other works.
    pub is_backup: bool,
    /// It is used while links of a lower order don't work or are full.
    pub order: u8,
    /// Most that is sent over it, bytes per second.
    pub most: Option<u64>,
}

#[derive(Debug)]
struct Link {
    settings: LinkSettings,
    /// By rules; where nothing is said, as where none holds.
    uses: [Option<LinkUse>; MOST_LANES],
    sending: Sending,
    receiving: Receiving,
    /// When it carried a packet last, either way, or was connected: a new one is measured at once.
    last_traffic: u64,
}

impl Link {
    fn silent_at(&self) -> Option<u64> {
        self.sending.silent_at(self.receiving.last)
    }
}

/// What a link does.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkStats {
    /// Its number.
    pub link: usize,
    /// Whether it is silent.
    pub is_silent: bool,
    /// Smoothed round-trip time, nanoseconds.
    pub rtt: Option<u64>,
    /// How long packets wait on it, nanoseconds.
    pub queue: u64,
    /// What it carries, bytes per second.
    pub rate: u64,
    /// Bytes that are on their way.
    pub in_flight: u64,
    /// Datagrams and bytes sent, and datagrams that were lost.
    pub sent: (u64, u64, u64),
}

/// What has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Packets from this side.
    pub packets: u64,
    /// Packets to this side.
    pub delivered: u64,
    /// Packets that found no room in time.
    pub dropped: u64,
    /// Packets that were marked (ECN, Congestion Experienced) and not dropped.
    pub marked: u64,
    /// Packets that were sent twice at once.
    pub copied: u64,
    /// Parts of packets that were sent again.
    pub repaired: u64,
    /// Packets that were brought back by a parity.
    pub restored: u64,
    /// Packets that arrived once more.
    pub repeated: u64,
    /// Gaps that were waited for in vain.
    pub skipped: u64,
    /// Datagrams that made no sense.
    pub malformed: u64,
}

/// One end of the tunnel. Times are nanoseconds of one clock that never goes back.
#[derive(Debug)]
pub struct Tunnel {
    links: BTreeMap<usize, Link>,
    flows: Flows,
    /// This end has the rules, and chooses each packet's lane; the far end puts answers into the same one.
    knows_rules: bool,
    /// What waits: first where no rule holds.
    lanes: Vec<Lane>,
    /// Whose turn it is.
    turn: usize,
    /// What is to be sent again, and the link that it was sent over: first of calls and the like, then of
    /// downloads.
    repairs: [VecDeque<(Piece, usize)>; 2],
    outgoing: VecDeque<(usize, Bytes)>,
    next_number: u32,
    /// Packets that the far end has.
    settled: Numbers,
    arrivals: Arrivals,
    deliver: Handover,
    copies: (f64, u64),
    stats: Stats,
}

impl Tunnel {
    /// A tunnel without links.
    pub fn new(scheduler: Box<dyn DatagramScheduler>) -> Tunnel {
        Tunnel {
            links: BTreeMap::new(),
            flows: Flows::default(),
            knows_rules: false,
            lanes: vec![Lane::new(scheduler)],
            turn: 0,
            repairs: Default::default(),
            outgoing: VecDeque::new(),
            next_number: 0,
            settled: Numbers::default(),
            arrivals: Arrivals::default(),
            deliver: Handover::default(),
            copies: (COPIES_BURST, 0),
            stats: Stats::default(),
        }
    }

    /// A link is connected, or something else is to hold of it. Beyond 16 they aren't used.
    pub fn set_link(&mut self, now: u64, link: usize, settings: LinkSettings) {
        if let Some(known) = self.links.get_mut(&link) {
            known.settings = settings;
        } else if self.links.len() < MOST_LINKS {
            let (sending, receiving) = (Sending::new(now), Receiving::default());
            let uses = [None; MOST_LANES];
            self.links.insert(link, Link { settings, uses, sending, receiving, last_traffic: now });
        }
        if let Some(known) = self.links.get_mut(&link) {
            known.sending.rate.most = settings.most.map_or(f64::INFINITY, |most| most.max(1) as f64);
        }
    }

    /// Another one chooses from now on in a lane: 0 is that of packets for which no rule holds. Beyond
    /// [`MOST_LANES`] there are none.
    pub fn set_scheduler(&mut self, lane: usize, scheduler: Box<dyn DatagramScheduler>) {
        if lane < MOST_LANES {
            while self.lanes.len() <= lane {
                self.lanes.push(Lane::new(Box::new(Adaptive)));
            }
            self.lanes[lane].scheduler = scheduler;
        }
    }

    fn use_of(&self, lane: usize, link: usize) -> LinkUse {
        let Some(Link { settings, uses, .. }) = self.links.get(&link) else { return LinkUse::default() };
        let LinkSettings { is_backup, order, .. } = *settings;
        uses.get(lane).copied().flatten().unwrap_or(LinkUse { is_backup, order, ..LinkUse::default() })
    }

    /// How the packets of lanes use a link: those from the end of `lanes` on as its settings say.
    pub fn set_uses(&mut self, link: usize, lanes: impl Iterator<Item = LinkUse>) {
        if let Some(known) = self.links.get_mut(&link) {
            let mut lanes = lanes.fuse();
            known.uses.iter_mut().for_each(|known| *known = lanes.next());
        }
    }

    /// A link is connected no more. What was on it goes over the others.
    pub fn remove_link(&mut self, now: u64, link: usize) {
        if let Some(mut gone) = self.links.remove(&link)
            && !gone.sending.is_silent
        {
            let lost = gone.sending.fall_silent(now);
            self.repair(now, link, lost);
        }
        self.set_paces(now);
    }

    /// The far end is another one: it knows nothing of what was sent, and its numbers begin anew. Links have
    /// to be connected to it.
    pub fn meet_far_end(&mut self) {
        self.arrivals.begin_anew();
        (self.links, self.settled) = Default::default();
        (self.repairs, self.outgoing) = Default::default();
    }

    /// A packet for the far end, for which no rule holds but what the far end says of its flow.
    pub fn on_packet(&mut self, now: u64, packet: Bytes, summary: &Summary) {
        let lane = self.flows.lane(&summary.flow);
        self.enqueue(lane.into(), now, packet, summary);
    }

    /// The same at the end that knows the rules: a packet of this lane.
    pub fn on_packet_in(&mut self, lane: usize, now: u64, packet: Bytes, summary: &Summary) {
        self.knows_rules = true;
        self.enqueue(lane, now, packet, summary);
    }

    fn enqueue(&mut self, lane: usize, now: u64, packet: Bytes, summary: &Summary) {
        let lane = if lane < self.lanes.len() { lane } else { 0 };
        self.stats.packets += 1;
        self.note_traffic(now, lane, None);
        let class = self.flows.note(now, summary, packet.len());
        let kept = self.kept(now, lane, &summary.flow);
        let most = self.most_queued(lane, kept);
        let waiting = self.lanes[lane].of(kept);
        let is_over = class == Class::Bulk && waiting.bulk_bytes + packet.len() > most;
        let is_full =
            waiting.queues[class as usize].len() >= MOST_QUEUED || is_over && waiting.bulk_bytes > 2 * most;
        // An ECN-capable sender reduces its window a round trip after the mark. What it sends until then is
        // queued, so that slow start ends without losses.
        let marked = if is_over && !is_full { self.marked(&packet) } else { None };
        if is_full || is_over && marked.is_none() {
            self.stats.dropped += 1;
            return;
        }
        let packet = marked.unwrap_or(packet);
        self.lanes[lane].of(kept).push(class, Queued { packet, flow: summary.flow, since: now });
    }

    fn marked(&mut self, packet: &Bytes) -> Option<Bytes> {
        let marked = mark_congestion(packet)?;
        self.stats.marked += 1;
        Some(marked)
    }

    /// The link that a flow keeps to, while it works.
    fn kept(&self, now: u64, lane: usize, flow: &FlowKey) -> Option<usize> {
        let last = self.flows.link(flow, now)?;
        let works = self.links.get(&last).is_some_and(|link| !link.sending.is_silent);
        let LinkUse { is_shut, keeps, .. } = self.use_of(lane, last);
        (works && keeps && !is_shut).then_some(last)
    }

    fn most_queued(&self, lane: usize, kept: Option<usize>) -> usize {
        let is_kept = |link: usize| kept.is_none_or(|kept| kept == link);
        let is_used = |link: &usize| is_kept(*link) && !self.use_of(lane, *link).is_shut;
        let all = || self.links.iter().filter(|(link, _)| is_used(link)).map(|(_, known)| known);
        let used = || all().filter(|link| !link.sending.is_silent);
        let rates: f64 = used().map(|link| link.sending.rate.rate()).sum();
        let is_starting = used().any(|link| link.sending.rate.is_starting());
        let least = if is_starting { STARTING_QUEUE } else { LEAST_QUEUE };
        ((rates * QUEUE as f64 / SECOND as f64) as usize).max(least)
    }

    /// A datagram that came over a link.
    ///
    /// # Errors
    /// If it makes no sense; nothing comes of it.
    pub fn on_datagram(&mut self, now: u64, link: usize, bytes: Bytes) -> Result<(), FrameError> {
        let len = bytes.len();
        let frame = Frame::decode(bytes.clone()).inspect_err(|_| self.stats.malformed += 1)?;
        let Some(known) = self.links.get_mut(&link) else { return Ok(()) };
        match frame {
            Frame::Probe { link_number, sent } => {
                known.receiving.note(now, link_number, sent, len);
                known.receiving.keep(link_number, Bytes::new());
            }
            Frame::Parity(parity) => {
                known.receiving.note(now, parity.link_number, parity.sent, len);
                if let Some(data) = known.receiving.restore(&parity) {
                    self.stats.restored += 1;
                    self.take(now, data);
                }
            }
            Frame::Data(data) => {
                known.receiving.note(now, data.link_number, data.sent, len);
                known.receiving.keep(data.link_number, bytes);
                self.note_traffic(now, data.lane.into(), Some(link));
                self.learn(now, link, &data);
                self.take(now, data);
            }
            Frame::Feedback(feedback) => {
                let Some(settled) = known.sending.on_feedback(now, &feedback) else { return Ok(()) };
                for (number, part) in settled.arrived {
                    if part.count == 1 {
                        self.settled.insert(number);
                    }
                }
                self.repair(now, link, settled.lost);
            }
        }
        Ok(())
    }

    /// Answers to a packet of a rule are of the same: only one end knows the rules. It learns nothing itself,
    /// or each end would follow the other to a link that one of them has taken for a moment.
    fn learn(&mut self, now: u64, link: usize, data: &Data) {
        let lane = usize::from(data.lane);
        // Further parts have no header.
        if !self.knows_rules
            && (lane != 0 || self.flows.has_lanes())
            && data.part.index == 0
            && let Some(summary) = inspect(&data.payload)
        {
            let kept = self.use_of(lane, link).keeps.then_some(link);
            self.flows.learn(now, summary.flow.reversed(), data.lane, kept);
        }
    }

    fn take(&mut self, now: u64, data: Data) {
        // A repair takes a round trip of the link by which it comes, after one of the other's.
        let slowest = self.links.values().filter(|link| !link.sending.is_silent);
        let slowest = slowest.filter_map(|link| link.sending.rate.srtt).max().unwrap_or(50 * MILLISECOND);
        self.arrivals.hold = (slowest * 3 / 2 + 40 * MILLISECOND).min(250 * MILLISECOND);
        self.arrivals.take(now, data, &mut self.deliver);
    }

    fn repair(&mut self, now: u64, link: usize, lost: Vec<Piece>) {
        for piece in lost {
            let is_there = self.settled.has(piece.number);
            let repairs = &mut self.repairs[usize::from(piece.place.is_some())];
            if !is_there && piece.deadline > now && repairs.len() < MOST_REPAIRS {
                repairs.push_back((piece, link));
            }
        }
    }

    /// The next packet that the far end sent, to be handed to this end's device.
    pub fn poll_deliver(&mut self, now: u64) -> Option<Bytes> {
        self.deliver.pop(now)
    }

    /// What happens by itself.
    pub fn on_timeout(&mut self, now: u64) {
        let is_due = self.links.values().filter_map(Link::silent_at).any(|at| at <= now);
        let late = if is_due { now.saturating_sub(self.next_timeout(now).unwrap_or(now)) } else { 0 };
        let fall_silent = |(link, known): (&usize, &mut Link)| {
            (*link, known.sending.on_timeout(now, late, known.receiving.last))
        };
        let silent: Vec<(usize, Vec<Piece>)> = self.links.iter_mut().map(fall_silent).collect();
        for (link, pieces) in silent {
            // With one link there is nowhere else to go.
            if self.links.values().any(|other| !other.sending.is_silent) {
                self.repair(now, link, pieces);
            }
        }
        self.arrivals.on_timeout(now, &mut self.deliver);
        self.set_paces(now);
    }

    /// The next datagram, and the link that it goes over.
    pub fn poll_transmit(&mut self, now: u64) -> Option<(usize, Bytes)> {
        for (link, known) in &mut self.links {
            if let Some(feedback) = known.receiving.take_feedback(now) {
                return Some((*link, Frame::Feedback(feedback).encode()));
            }
            if let Some(parity) = known.sending.take_parity(now) {
                return Some((*link, parity));
            }
            if known.sending.probe_at() <= now {
                return Some((*link, known.sending.probe(now)));
            }
        }
        if self.outgoing.is_empty() {
            self.send_repair(now);
        }
        if self.outgoing.is_empty() {
            self.schedule(now);
        }
        let is_empty = |lane: &Lane| lane.queues(1..3).all(VecDeque::is_empty);
        if self.outgoing.is_empty() && self.lanes.iter().all(is_empty) {
            for link in self.links.values_mut() {
                let rate = &mut link.sending.rate;
                rate.was_idle |= rate.ready_at(now, MTU) == Some(now);
            }
        }
        self.outgoing.pop_front()
    }

    fn send(&mut self, now: u64, link: usize, piece: Piece) {
        let lane = usize::from(piece.lane);
        if let Some(known) = self.links.get_mut(&link) {
            self.outgoing.push_back((link, known.sending.send(now, piece)));
            self.note_traffic(now, lane, Some(link));
        }
    }

    fn send_packet(
        &mut self,
        now: u64,
        (class, lane): (Class, usize),
        queued: &Queued,
        (link, copy): (usize, Option<usize>),
    ) {
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        let place = (class == Class::Bulk).then(|| self.flows.take_place(&queued.flow)).flatten();
        let deadline = queued.since + patience(class);
        let copy = copy.filter(|copy| *copy != link && self.links.contains_key(copy));
        if copy.is_some() {
            self.copies.0 -= queued.packet.len() as f64;
            self.stats.copied += 1;
        }
        let whole = Part { index: 0, count: 1 };
        let payload = queued.packet.clone();
        let piece = Piece { number, part: whole, lane: lane as u8, place, payload, deadline };
        // Both have the same parts.
        let links = [Some(link), copy].into_iter().flatten();
        let count = links.clone().map(|link| self.count_parts(link, &piece)).max().unwrap_or(1);
        if count > usize::from(MOST_PARTS) {
            self.stats.dropped += 1;
            return;
        }
        links.for_each(|link| self.send_parts(now, link, &piece, count));
    }

    /// How many parts a piece has to be cut into for a link.
    fn count_parts(&self, link: usize, piece: &Piece) -> usize {
        let largest = self.links.get(&link).map_or(0, |known| known.settings.largest);
        let room = largest.saturating_sub(MOST_OVERHEAD - usize::from(piece.lane == 0)).max(1);
        piece.payload.len().div_ceil(room).max(1)
    }

    /// Sends a packet over a link, in `count` parts of about the same size.
    fn send_parts(&mut self, now: u64, link: usize, whole: &Piece, count: usize) {
        let len = whole.payload.len();
        let each = len.div_ceil(count);
        for index in 0..count {
            let payload = whole.payload.slice(index * each..len.min((index + 1) * each));
            let part = Part { index: index as u8, count: count as u8 };
            self.send(now, link, Piece { part, payload, ..whole.clone() });
        }
    }

    /// When [`Tunnel::on_timeout`], [`Tunnel::poll_transmit`] and [`Tunnel::poll_deliver`] are to be called
    /// next.
    pub fn next_timeout(&self, now: u64) -> Option<u64> {
        let of_links = self.links.values().flat_map(|link| {
            let (sending, receiving) = (&link.sending, &link.receiving);
            [receiving.due, Some(sending.probe_at()), sending.silent_at(receiving.last), sending.parity_at()]
                .into_iter()
                .flatten()
        });
        let repairs = self.repairs.iter().filter_map(VecDeque::front).map(|(piece, _)| piece.payload.len());
        let queues = || self.lanes.iter().flat_map(|lane| lane.queues(0..3));
        let waiting = queues().filter_map(VecDeque::front).map(|first| first.packet.len());
        let waiting = waiting.chain(repairs).max();
        let room = waiting
            .into_iter()
            .flat_map(|len| self.links.values().filter_map(move |link| link.sending.rate.ready_at(now, len)));
        // Where there is room and the packet waits all the same, something else has to happen first.
        let room = room.filter(|at| *at > now);
        // Those that wait in vain are dropped.
        let soon = self.lanes.iter().flat_map(|lane| lane.queues(0..2));
        let waiting = soon.filter_map(VecDeque::front).map(|one| one.since + LONGEST_WAIT + 1);
        let has_order =
            |link: &Link| link.settings.order > 0 || link.uses.iter().flatten().any(|how| how.order > 0);
        let is_ordered = self.links.values().any(has_order);
        let full = queues().filter(|_| is_ordered).filter_map(VecDeque::front);
        let full = full.map(|one| one.since + FULL).filter(|at| *at > now);
        let waiting = waiting.chain(full);
        let arrivals = [self.arrivals.next_timeout(), self.deliver.next_timeout()];
        of_links.chain(room).chain(waiting).chain(arrivals.into_iter().flatten()).min()
    }

    /// What has happened.
    pub fn stats(&self) -> Stats {
        let Arrivals { repeated, skipped, .. } = self.arrivals;
        Stats { delivered: self.deliver.count, repeated, skipped, ..self.stats }
    }

    /// Packets that wait for a link.
    pub fn waiting(&self) -> usize {
        self.lanes.iter().flat_map(|lane| lane.queues(0..3)).map(VecDeque::len).sum()
    }

    /// What the links do.
    pub fn link_stats(&self) -> Vec<LinkStats> {
        let of = |(link, known): (&usize, &Link)| {
            let (sending, rate) = (&known.sending, &known.sending.rate);
            LinkStats {
                link: *link,
                is_silent: sending.is_silent,
                rtt: rate.srtt,
                queue: rate.queue,
                rate: rate.rate() as u64,
                in_flight: rate.in_flight,
                sent: (sending.sent_datagrams, sending.sent_bytes, sending.lost),
            }
        };
        self.links.iter().map(of).collect()
    }
}
