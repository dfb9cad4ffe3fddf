//! The event loop: what is due next happens, until the workload is complete or the limit comes.
//!
//! Sources of events are the links (one pending moment each, see [`crate::event_queue`]), the endpoints' timers, and
//! one heap for everything rare: applications' wake-ups, datagram sources, samples, packets of sources with
//! an extra delay.

use std::collections::BinaryHeap;
use std::sync::Arc;

use ropewalk_engine::PathId;
use ropewalk_engine::endpoint::SubflowHandle;
use ropewalk_wire::{Segment, SyntheticPayload};

use crate::app::{self, Action, App, CrossTraffic, Stage};
use crate::config;
use crate::entropy::{Purpose, stream};
use crate::hosts::{Heard, Hosts};
use crate::lookahead::Lookahead;
use crate::meter::OFO_EVERY;
use crate::network::Network;
use crate::packet::{Owner, Packet};
use crate::recorder::{Recorder, UNTRACED};
use crate::result::{Outcome, RunResult};
use crate::spec::{RunSpec, Scenario, Traffic};
use crate::timers::{Alarm, Timer};
use crate::topology::Hop;
use crate::udp::UdpSource;
use crate::witness::Witness;
use crate::{Nanos, Side};

/// Sees, and may change, every segment as it leaves an end and before it enters a link.
pub trait Tap: Send {
    /// A segment of the workload or of a competing flow, about to enter the path with this index.
    fn segment(&mut self, now: Nanos, from: Side, path: usize, segment: &mut Segment<SyntheticPayload>);
}

/// The application of the workload comes first.
pub(crate) const WORKLOAD: usize = 0;

/// Events at one moment after which the world is taken to stand still: far beyond what any instant needs.
pub(crate) const STANDSTILL: u32 = 10_000_000;

/// Connections at an end from which on they don't all stay in the processor's cache.
const MANY: usize = 64;

/// Packets whose connections are looked up together.
const AHEAD: usize = 8;

/// With fewer connections: packets until their number is looked at again.
const UNTIL_ASKED_AGAIN: u32 = 1000;

/// What is known of the packets that a link is about to deliver.
#[derive(Clone, Copy, Debug, Default)]
struct Outlook {
    /// How many until the next look.
    left: u32,
    /// Where they go, the last first. It is a guess: another packet may overtake them.
    places: [Option<SubflowHandle>; AHEAD],
}

/// A run under way. [`crate::run`] is the short way; this one can be watched and interrupted.
pub struct World {
    pub(crate) spec: RunSpec,
    pub(crate) scenario: Arc<Scenario>,
    pub(crate) now: Nanos,
    /// The workload's start.
    pub(crate) begin: Nanos,
    /// The limit.
    pub(crate) end: Nanos,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) events: u64,
    pub(crate) network: Network,
    /// The segment that an end has just written, and the one that an end is about to read.
    pub(crate) leaving: Box<Segment<SyntheticPayload>>,
    pub(crate) arriving: Box<Segment<SyntheticPayload>>,
    /// Where many connections can be taken through what arrives one by one.
    pub(crate) lookahead: Option<Box<Lookahead>>,
    /// By link.
    outlooks: Vec<Outlook>,
    /// The workload has opened so many connections that looking ahead may be worth it.
    many: bool,
    pub(crate) hosts: Hosts,
    /// How many endpoints there are.
    ends: usize,
    /// Endpoints with something to do, as bits.
    dirty: u32,
    pub(crate) apps: Vec<Box<dyn App>>,
    udp: Vec<Option<UdpSource>>,
    timers: BinaryHeap<Timer>,
    timer_order: u64,
    pub(crate) recorder: Option<Box<Recorder>>,
    tap: Option<Box<dyn Tap>>,
    actions: Vec<Action>,
    at_one_moment: u32,
}

/// Which side an endpoint is on.
#[inline]
fn side_of(end: usize) -> Side {
    if end & 1 == 0 { Side::Client } else { Side::Server }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("now", &self.now).field("events", &self.events).finish_non_exhaustive()
    }
}

impl World {
    /// A world at time 0.
    ///
    /// # Errors
    /// What in the specification can't be simulated, in words.
    pub fn new(spec: &RunSpec) -> Result<Self, String> {
        Self::with(spec, true)
    }

    /// The same, with every segment of its ends going the long way through the engine: what the straight ways are
    /// tested against.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn the_long_way(spec: &RunSpec) -> Result<Self, String> {
        Self::with(spec, false)
    }

    fn with(spec: &RunSpec, shortcuts: bool) -> Result<Self, String> {
        spec.check()?;
        let scenario = Arc::clone(&spec.scenario);
        let begin = scenario.warmup.saturating_add(spec.start_phase);
        let hosts = Hosts::new(spec, begin, shortcuts)?;
        let network = Network::new(&scenario, spec.seed, hosts.count() + 1);
        let mut apps: Vec<Box<dyn App>> = vec![app::of(&scenario)];
        let mut udp = Vec::new();
        for (i, background) in scenario.background.iter().enumerate() {
            let rng = stream(spec.seed, Purpose::Background, i);
            let mtu = scenario.paths[background.path].mtu;
            udp.push(match background.traffic {
                Traffic::UdpOnOff { rate, packet, on, on_shape, off, off_shape } => {
                    Some(UdpSource::new(rate, packet, mtu, (on, on_shape), (off, off_shape), rng.clone()))
                }
                _ => None,
            });
            apps.push(match CrossTraffic::new(background, rng) {
                Some(cross_traffic) => Box::new(cross_traffic),
                None => Box::new(app::Silence),
            });
        }
        let recording = spec.recording;
        let recorder = (recording.segments || recording.decisions)
            .then(|| Box::new(Recorder::new(recording, scenario.direction.sender())));
        let mut world = World {
            now: 0,
            begin,
            end: begin.saturating_add(scenario.limit),
            outcome: None,
            events: 0,
            leaving: Box::new(Segment::blank()),
            arriving: Box::new(Segment::blank()),
            outlooks: vec![Outlook::default(); network.links.len()],
            many: false,
            lookahead: None,
            network,
            ends: hosts.count(),
            hosts,
            dirty: 0,
            apps,
            udp,
            timers: BinaryHeap::new(),
            timer_order: 0,
            recorder,
            tap: None,
            actions: Vec::new(),
            at_one_moment: 0,
            spec: spec.clone(),
            scenario,
        };
        world.prepare_lookahead();
        world.alarm(begin, Alarm::Start(WORKLOAD));
        world.alarm(begin, Alarm::SampleOfo);
        if recording.samples_every > 0 {
            world.alarm(begin, Alarm::Sample);
        }
        for i in 0..world.scenario.background.len() {
            world.alarm(world.scenario.background[i].start, Alarm::Start(1 + i));
        }
        Ok(world)
    }

    /// Has connections taken one by one through what is under way, if there are enough and the links allow it.
    fn prepare_lookahead(&mut self) {
        let connections = config::connections(&self.scenario);
        let span = self.network.lookahead().filter(|_| self.scenario.background.is_empty());
        if let Some(span) = span
            && connections as usize > MANY
            && self.apps[WORKLOAD].spare(0) > 0
        {
            let (links, paths) = (self.network.links.len(), self.scenario.paths.len());
            self.lookahead = Some(Box::new(Lookahead::new(span, links, paths, connections)));
            self.network.prepare_lookahead();
        }
    }

    /// Has everything happen moment by moment: what looking ahead is tested against.
    pub fn step_by_step(&mut self) {
        self.lookahead = None;
    }

    /// Nobody looks at single segments.
    #[inline]
    pub(crate) fn is_unwatched(&self) -> bool {
        self.tap.is_none() && self.recorder.is_none()
    }

    /// When the next alarm goes off.
    pub(crate) fn first_alarm(&self) -> Option<Nanos> {
        self.timers.peek().map(|timer| timer.at)
    }

    /// Lets someone see every segment.
    pub fn set_tap(&mut self, tap: Box<dyn Tap>) {
        self.tap = Some(tap);
    }

    /// Lets someone see what the workload's ends send and receive.
    pub fn set_witness(&mut self, witness: Box<dyn Witness>) {
        let fresh = || Box::new(Recorder::new(self.spec.recording, self.network.data_from));
        self.recorder.get_or_insert_with(fresh).witness = Some(witness);
    }

    /// Virtual time, from the start of the run.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Events handled so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// How many of them connection by connection, and not moment by moment.
    pub fn events_ahead(&self) -> u64 {
        self.lookahead.as_ref().map_or(0, |ahead| ahead.events())
    }

    /// Payload bytes that the workload's application has by now.
    pub fn delivered_bytes(&self) -> u64 {
        self.hosts.delivered(self.network.data_from.other())
    }

    /// Every counter of one side's endpoint, by the kernel's names ([`ropewalk_engine::endpoint::Endpoint::mib`]).
    pub fn counters(&self, side: Side) -> Vec<(String, u64)> {
        self.hosts.counters(side)
    }

    /// Goes on until `until`, in time from the start of the run, or to the run's end if that comes first; true
    /// when the run has ended.
    pub fn run_until(&mut self, until: Nanos) -> bool {
        while self.outcome.is_none() {
            if self.many && self.round(until) {
                continue;
            }
            let (source, mut at) = match self.network.events.peek() {
                Some(first) if first.1 <= until.min(self.end) => first,
                _ if until < self.end => {
                    self.now = until;
                    break;
                }
                _ => {
                    self.now = self.end;
                    self.outcome = Some(Outcome::TimeLimit);
                    break;
                }
            };
            loop {
                if at > self.now {
                    self.at_one_moment = 0;
                }
                self.now = at;
                self.events += 1;
                let next = self.handle(source);
                if !self.network.events.set_and_check(source, next) || self.outcome.is_some() {
                    break;
                }
                match next {
                    Some(next) if next <= until && next <= self.end => at = next,
                    _ => break,
                }
            }
        }
        self.outcome.is_some()
    }

    /// Goes on to the end, and gives the result.
    pub fn finish(mut self) -> RunResult {
        self.run_until(Nanos::MAX);
        self.into_result()
    }

    /// Handles what is due at a source, and says when it is due next.
    #[inline]
    fn handle(&mut self, source: usize) -> Option<Nanos> {
        if source < self.network.links.len() {
            match self.network.topology.next[source] {
                Hop::Host(side) => self.arrive(source, side),
                Hop::Link(next) => self.hop(source, Some(next)),
                Hop::OwnDown => self.hop(source, None),
            }
            return self.network.links[source].poll_timeout();
        }
        let end = source - self.network.links.len();
        if end < self.ends {
            self.hosts.on_timeout(end, self.now);
            self.dirty |= 1 << end;
            self.settle();
            self.at_one_moment += 1;
            if self.at_one_moment > STANDSTILL {
                self.stand_still();
            }
            return self.hosts.poll_timeout(end);
        }
        self.ring();
        self.timers.peek().map(|timer| timer.at)
    }

    /// Where a packet that leaves a link goes, if that was looked up beforehand. `segment`: it is the workload's, and lies open.
    #[inline(never)]
    fn expected(&mut self, link: usize, side: Side, segment: bool) -> Option<SubflowHandle> {
        let outlook = &mut self.outlooks[link];
        match outlook.left.checked_sub(1) {
            Some(left) => outlook.left = left,
            None => self.look_ahead(link, side, segment),
        }
        let outlook = &self.outlooks[link];
        outlook.places.get(outlook.left as usize).copied().flatten()
    }

    /// Finds the connections of the packet that has just left a link and of those that will follow it, and has their memory
    /// fetched together.
    #[inline(never)]
    fn look_ahead(&mut self, link: usize, side: Side, segment: bool) {
        let outlook = &mut self.outlooks[link];
        outlook.places = [None; AHEAD];
        outlook.left = UNTIL_ASKED_AGAIN;
        let end = self.hosts.end(side as usize);
        if end.len() < MANY {
            return;
        }
        outlook.left = AHEAD as u32 - 1;
        let first = segment.then_some(self.arriving.tuple);
        let packets = self.network.links[link].upcoming();
        let rest = packets.map(|packet| packet.tuple().filter(|_| packet.owner == Owner::Workload));
        for (place, tuple) in outlook.places.iter_mut().rev().zip(std::iter::once(first).chain(rest)) {
            *place = tuple.and_then(|tuple| end.expect(&tuple));
        }
        for place in outlook.places.iter().rev().flatten() {
            self.hosts.prepare(side, *place);
        }
    }

    /// A packet leaves a link for another: this one, or its own path's downlink.
    #[inline(never)]
    fn hop(&mut self, link: usize, next: Option<usize>) {
        if let Some(packet) = self.network.links[link].poll(self.now) {
            self.network.enqueue(self.now, next.unwrap_or(2 * usize::from(packet.path) + 1), packet);
        }
    }

    /// A packet leaves a link for an end.
    #[inline]
    fn arrive(&mut self, link: usize, side: Side) {
        let Some(packet) = self.network.links[link].due(self.now) else { return };
        let (owner, path, trace) = (packet.owner, packet.path, packet.trace);
        let segment = packet.open(&mut self.arriving, &mut self.network.pool);
        self.network.links[link].drop_due();
        let workload = owner == Owner::Workload;
        let expected = if self.many { self.expected(link, side, segment && workload) } else { None };
        let (end, path) = match owner {
            Owner::Workload => {
                if side != self.network.data_from {
                    self.network.meter.paths[path as usize].packets_out += 1;
                }
                (side as usize, PathId(path))
            }
            Owner::Background(source) => (2 + side as usize, PathId(source)),
        };
        if !segment {
            return;
        }
        if let Some(recorder) = &mut self.recorder
            && end < 2
        {
            recorder.arrived(self.now, side, trace, &self.arriving);
            recorder.show_arrival(self.now, side, path, &self.arriving);
        }
        let noted = self.lookahead.is_some() && workload && self.is_unwatched();
        let tuple = noted.then_some(self.arriving.tuple);
        self.hosts.on_segment(end, self.now, path, expected, &mut self.arriving);
        self.dirty |= 1 << end;
        self.settle();
        if let Some(tuple) = tuple {
            self.reconsider(side, path.0, &tuple);
        }
    }

    /// Lets the endpoints that have something to do speak until none has.
    #[inline]
    fn settle(&mut self) {
        while self.dirty != 0 {
            let end = self.dirty.trailing_zeros() as usize;
            self.dirty &= self.dirty - 1;
            self.serve(end);
        }
    }

    /// Events, then segments, until there is neither.
    fn serve(&mut self, end: usize) {
        self.hear(end);
        loop {
            if end < 2 && self.is_unwatched() {
                let (network, now, side) = (&mut self.network, self.now, side_of(end));
                self.hosts.transmit_all(end, now, &mut self.leaving, |path, segment| {
                    network.carry(now, side, path.0, UNTRACED, segment);
                });
            } else {
                self.transmit_watched(end);
            }
            if !self.hear(end) {
                break;
            }
        }
        let source = self.network.links.len() + end;
        self.network.events.set(source, self.hosts.poll_timeout(end));
    }

    /// Segments, each of which is looked at, or is a competitor's.
    #[inline(never)]
    fn transmit_watched(&mut self, end: usize) {
        while let Some(path) = self.hosts.poll_transmit(end, self.now, &mut self.leaving) {
            self.transmit(end, path);
        }
    }

    /// Tells the applications what an endpoint has to say; whether it had anything. Mostly it hasn't.
    #[inline]
    pub(crate) fn hear(&mut self, end: usize) -> bool {
        let any = self.hosts.speaks(end);
        if any {
            self.hear_all(end);
        }
        any
    }

    #[inline(never)]
    fn hear_all(&mut self, end: usize) {
        while let Some(what) = self.hosts.hear(end, self.now, self.recorder.as_deref_mut()) {
            self.tell(end, what);
        }
    }

    #[inline]
    fn tell(&mut self, end: usize, what: Heard) {
        let group = end >> 1;
        match what {
            Heard::Connected(conn) => {
                let app = self.hosts.app(group, conn);
                self.with_app(app, |app, stage| app.connected(stage, conn, side_of(end)));
            }
            Heard::Delivered(conn, total) => {
                let app = self.hosts.app(group, conn);
                self.with_app(app, |app, stage| app.delivered(stage, conn, side_of(end), total));
            }
            Heard::Nothing => {}
            Heard::Failed(conn, reason) => {
                if self.hosts.app(group, conn) == WORKLOAD && self.outcome.is_none() {
                    let name = match side_of(end) {
                        Side::Client => "client",
                        Side::Server => "server",
                    };
                    self.outcome = Some(Outcome::Failed(format!("connection {conn}, {name}: {reason}")));
                }
            }
        }
    }

    #[inline]
    fn with_app(&mut self, index: usize, call: impl FnOnce(&mut dyn App, &mut Stage<'_>)) {
        let group = usize::from(index != WORKLOAD);
        let next = self.hosts.next_conn(group);
        call(&mut *self.apps[index], &mut Stage { now: self.now, actions: &mut self.actions, next });
        if self.outcome.is_none()
            && self.apps[WORKLOAD].done()
            && !self.apps.iter().any(|app| app.waited_for())
        {
            self.outcome = Some(Outcome::Complete);
        }
        if !self.actions.is_empty() {
            let mut actions = std::mem::take(&mut self.actions);
            for action in actions.drain(..) {
                self.act(index, group, action);
            }
            self.actions = actions;
        }
    }

    #[inline(never)]
    fn act(&mut self, app: usize, group: usize, action: Action) {
        let now = self.now;
        match action {
            Action::Wake(at, token) => self.alarm(at, Alarm::Wake(app, token)),
            Action::Open(conn) => {
                if let Err(reason) = self.hosts.open(group, now, app, conn) {
                    self.tell(2 * group, Heard::Failed(conn, reason));
                }
                self.dirty |= 1 << (2 * group);
                self.many |= group == 0 && conn as usize >= MANY;
            }
            Action::Send(conn, side, bytes) => {
                self.hosts.send(group, now, conn, side, bytes);
                self.dirty |= 1 << (2 * group + side as usize);
            }
            Action::Declare(conn, side, bytes) => self.hosts.declare(group, conn, side, bytes),
            Action::Finish(conn, side) => {
                self.disturb(group, conn);
                self.hosts.shut(group, now, conn, side);
                self.dirty |= 1 << (2 * group + side as usize);
            }
            Action::Stop(conn) => {
                self.disturb(group, conn);
                self.hosts.stop(group, now, conn);
                self.dirty |= 3 << (2 * group);
            }
        }
    }

    /// A connection is about to be closed, at one side at least.
    fn disturb(&mut self, group: usize, conn: u32) {
        if let Some(ahead) = self.lookahead.as_mut().filter(|_| group == 0) {
            for (side, place) in [Side::Client, Side::Server].into_iter().zip(self.hosts.places(conn)) {
                if let Some(place) = place {
                    ahead.forget(side, place);
                }
            }
        }
    }

    /// A segment leaves an end.
    #[inline]
    fn transmit(&mut self, end: usize, path: PathId) {
        let side = side_of(end);
        if end >= 2 {
            self.transmit_background(side, path);
            return;
        }
        if let Some(tap) = &mut self.tap {
            tap.segment(self.now, side, path.0 as usize, &mut self.leaving);
        }
        let trace = if self.recorder.is_some() { self.record_sending(side, path) } else { UNTRACED };
        self.network.carry(self.now, side, path.0, trace, &mut self.leaving);
    }

    #[inline(never)]
    fn record_sending(&mut self, side: Side, path: PathId) -> u32 {
        let Some(recorder) = &mut self.recorder else { return UNTRACED };
        let segment = &self.leaving;
        let trace = recorder.sent(self.now, side, path.0, segment);
        if recorder.may_be_wished(trace) {
            recorder.wished(trace, self.hosts.repeated_by_wish(self.now, side));
        }
        recorder.show_sending(self.now, side, path, trace, segment);
        trace
    }

    #[inline(never)]
    fn transmit_background(&mut self, side: Side, path: PathId) {
        let background = &self.scenario.background[path.0 as usize];
        if let Some(tap) = &mut self.tap {
            tap.segment(self.now, side, background.path, &mut self.leaving);
        }
        let link = self.network.topology.entry[background.path][side as usize];
        let owner = Owner::Background(path.0);
        let (segment, path) = (&mut self.leaving, background.path as u16);
        let packet = Packet::new(segment, owner, path, UNTRACED, &mut self.network.pool);
        if background.extra_delay == 0 {
            self.network.enqueue(self.now, link, packet);
        } else {
            let at = self.now.saturating_add(background.extra_delay);
            self.alarm(at, Alarm::Enqueue(link, Box::new(packet)));
        }
    }

    #[inline(never)]
    fn alarm(&mut self, at: Nanos, what: Alarm) {
        self.timers.push(Timer { at: at.max(self.now), order: self.timer_order, what });
        self.timer_order += 1;
        let first = self.timers.peek().map(|timer| timer.at);
        self.network.events.set(self.network.links.len() + self.ends, first);
    }

    /// One alarm goes off.
    #[inline(never)]
    fn ring(&mut self) {
        let Some(timer) = self.timers.pop() else { return };
        let now = self.now;
        match timer.what {
            Alarm::Start(index) => match index.checked_sub(1).and_then(|source| self.udp[source].as_mut()) {
                Some(source) => {
                    let at = source.start(now);
                    self.alarm(at, Alarm::Udp(index - 1));
                }
                None => {
                    self.with_app(index, |app, stage| app.start(stage));
                }
            },
            Alarm::Wake(app, token) => {
                self.with_app(app, |app, stage| app.wake(stage, token));
            }
            Alarm::Udp(source) => self.datagram(source),
            Alarm::Enqueue(link, packet) => self.network.enqueue(self.now, link, *packet),
            Alarm::SampleOfo => {
                let ofo = self.hosts.ofo_bytes(self.network.data_from.other());
                self.network.meter.ofo_samples.push(ofo.min(u64::from(u32::MAX)) as u32);
                self.alarm(now + OFO_EVERY, Alarm::SampleOfo);
            }
            Alarm::Sample => {
                self.hosts.sample(now - self.begin, self.network.data_from, &mut self.network.meter.samples);
                self.alarm(now.saturating_add(self.spec.recording.samples_every), Alarm::Sample);
            }
        }
        self.settle();
    }

    fn datagram(&mut self, source: usize) {
        let background = &self.scenario.background[source];
        if self.now >= background.stop {
            return;
        }
        let Some(udp) = &mut self.udp[source] else { return };
        let (len, next) = udp.send(self.now);
        let link = self.network.topology.entry[background.path][background.direction.sender() as usize];
        let owner = Owner::Background(source as u16);
        let packet = Packet::datagram(owner, background.path as u16, len);
        self.alarm(next, Alarm::Udp(source));
        self.network.enqueue(self.now, link, packet);
    }
}
