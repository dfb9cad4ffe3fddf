//! The event loop: the next event is handled, until the workload is complete or the limit is reached.
//!
//! Sources of events are the links and the endpoints' timeouts (one pending event each, see
//! [`crate::event_queue`]), and one heap of timers for what happens seldom ([`timers`]).

mod endpoints;
pub(crate) mod lookahead;
mod timers;
mod turns;
mod watch;

use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ropewalk_engine::registry::Spec;
use ropewalk_engine::scheduler::Scheduler;
use ropewalk_engine::{PathId, Span, Time};
use ropewalk_wire::{Segment, SyntheticPayload};

use crate::app::{self, Action, App, CrossTraffic};
use crate::check::SpecError;
use crate::entropy::{Purpose, stream};
use crate::hosts::Hosts;
use crate::meter::OFO_EVERY;
use crate::network::Network;
use crate::observer::{Middlebox, SegmentObserver};
use crate::packet::Owner;
use crate::recorder::Recorder;
use crate::result::{Outcome, RunResult};
use crate::spec::{RunSpec, Scenario, Traffic};
use crate::topology::{Hop, background_paths};
use crate::udp::UdpSource;
use crate::world::lookahead::Lookahead;
use crate::{Side, topology};
use timers::{Timer, TimerEvent};
use turns::Turns;
pub use watch::long_outage;

/// The index of the workload's application.
pub(crate) const WORKLOAD: usize = 0;

/// Timeouts at one instant, far beyond what any needs: with more, the run fails instead of going on forever.
pub(crate) const MAX_EVENTS_PER_INSTANT: u32 = 10_000_000;

/// With more connections than this, batches are worth it (see [`crate::world::lookahead`]).
const FEW_CONNECTIONS: usize = 64;

/// A run in progress. Unlike [`crate::run`] it can be observed and stopped on the way.
pub struct World {
    pub(crate) spec: RunSpec,
    /// The scheduler of the side that receives the workload's data.
    receiver: Spec<dyn Scheduler>,
    pub(crate) scenario: Arc<Scenario>,
    pub(crate) now: Time,
    /// When the workload starts.
    pub(crate) begin: Time,
    /// When the limit is reached.
    pub(crate) end: Time,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) events: u64,
    pub(crate) network: Network,
    /// The segment that an endpoint sends, and the one that an endpoint receives.
    pub(crate) to_send: Box<Segment<SyntheticPayload>>,
    pub(crate) received: Box<Segment<SyntheticPayload>>,
    /// If the links and the workload allow it.
    pub(crate) lookahead: Option<Box<Lookahead>>,
    /// If the links and the workload allow it.
    turns: Option<Turns>,
    /// The workload has opened so many connections that batches may be worth it.
    many: bool,
    pub(crate) hosts: Hosts,
    /// See [`background_paths`].
    background_paths: Vec<(usize, usize)>,
    /// How many endpoints there are.
    ends: usize,
    /// A bit per endpoint: it may have events or segments.
    dirty: u32,
    pub(crate) apps: Vec<Box<dyn App>>,
    udp: Vec<Option<UdpSource>>,
    timers: BinaryHeap<Timer>,
    timer_order: u64,
    pub(crate) recorder: Option<Box<Recorder>>,
    middlebox: Option<Box<dyn Middlebox>>,
    actions: Vec<Action>,
    /// By path, what the client's path manager knows of its link; empty if nothing is watched.
    watched: Vec<watch::Watched>,
    events_at_instant: u32,
    /// See [`World::pause_on`].
    pause: Option<Arc<AtomicBool>>,
    paused: bool,
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
    /// What in the specification can't be simulated.
    pub fn new(spec: &RunSpec) -> Result<Self, SpecError> {
        Self::with_receiver(spec, &spec.scheduler)
    }

    /// As [`World::new`]; the side that receives the workload's data has a scheduler of its own.
    ///
    /// # Errors
    /// What in the specification can't be simulated.
    pub fn with_receiver(spec: &RunSpec, receiver: &Spec<dyn Scheduler>) -> Result<Self, SpecError> {
        spec.check()?;
        let scenario = Arc::clone(&spec.scenario);
        let begin = spec.begin();
        let hosts = Hosts::new(spec, receiver, begin)?;
        let network = Network::new(&scenario, spec.seed, hosts.count());
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
                None => Box::new(app::NoApp),
            });
        }
        let recording = spec.recording;
        let recorder = (recording.segments || recording.decisions)
            .then(|| Box::new(Recorder::new(recording, scenario.direction.sender())));
        let mut world = World {
            now: Time::ZERO,
            begin,
            end: begin.saturating_add(scenario.limit),
            outcome: None,
            events: 0,
            to_send: Box::new(Segment::blank()),
            received: Box::new(Segment::blank()),
            many: false,
            lookahead: None,
            turns: None,
            network,
            ends: hosts.count(),
            hosts,
            dirty: 0,
            apps,
            udp,
            timers: BinaryHeap::new(),
            timer_order: 0,
            recorder,
            middlebox: None,
            actions: Vec::new(),
            watched: Vec::new(),
            events_at_instant: 0,
            pause: None,
            paused: false,
            spec: spec.clone(),
            receiver: receiver.clone(),
            background_paths: background_paths(&scenario),
            scenario,
        };
        world.enable_lookahead();
        world.enable_turns();
        world.watch_links();
        // Set before the background's: of timers due at one moment the first set is the first to fire.
        world.set_timer(begin, TimerEvent::Start(WORKLOAD));
        world.network.events.set(world.ofo_samples(), Some(begin));
        if recording.samples_every.is_some() {
            world.set_timer(begin, TimerEvent::Sample);
        }
        for i in 0..world.scenario.background.len() {
            world.set_timer(world.scenario.background[i].start, TimerEvent::Start(1 + i));
        }
        Ok(world)
    }

    /// Enables batches if there are enough connections and the links and the workload allow it.
    fn enable_lookahead(&mut self) {
        let connections = self.scenario.connections();
        let least_delay = self.network.lookahead().filter(|_| self.scenario.background.is_empty());
        if let Some(least_delay) = least_delay
            && connections as usize > FEW_CONNECTIONS
            && self.apps[WORKLOAD].independent_deliveries(0) > 0
        {
            let (links, paths) = (self.network.links.len(), self.scenario.paths.len());
            self.lookahead = Some(Box::new(Lookahead::new(least_delay, links, paths, connections)));
            self.network.enable_lookahead();
        }
    }

    /// Disables batches and turns: what they are tested against.
    #[doc(hidden)]
    pub fn step_by_step(&mut self) {
        (self.lookahead, self.turns) = (None, None);
    }

    /// Whether nobody observes or changes single segments.
    #[inline]
    pub(crate) fn is_unwatched(&self) -> bool {
        self.middlebox.is_none() && self.recorder.is_none()
    }

    /// When the next timer expires.
    pub(crate) fn next_timer(&self) -> Option<Time> {
        self.timers.peek().map(|timer| timer.at)
    }

    /// The same, or when the out-of-order queue is sampled, if that is earlier.
    pub(crate) fn next_timer_or_sample(&self) -> Time {
        let sample = self.network.events.due(self.ofo_samples());
        self.next_timer().map_or(sample, |timer| timer.min(sample))
    }

    /// Has every segment pass a middlebox.
    pub fn set_middlebox(&mut self, middlebox: Box<dyn Middlebox>) {
        self.middlebox = Some(middlebox);
    }

    /// Has an observer notified of what the workload's endpoints send and receive.
    pub fn set_observer(&mut self, observer: Box<dyn SegmentObserver>) {
        let fresh = || Box::new(Recorder::new(self.spec.recording, self.network.data_from));
        self.recorder.get_or_insert_with(fresh).observer = Some(observer);
    }

    /// Pauses the run at the moment at which a scheduler has set this flag: its decision isn't known yet
    /// ([`Scheduler::is_undecided`]). [`World::resume`] goes on. Such a run is always in order of time.
    pub fn pause_on(&mut self, flag: Arc<AtomicBool>) {
        // In batches and turns one side may be ahead of the moment at which the other pauses.
        self.step_by_step();
        self.pause = Some(flag);
    }

    /// Whether a scheduler's decision isn't known.
    #[inline]
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Asks the undecided schedulers again, at the same moment, and returns whether there were any. The run
    /// is paused again if one of them still doesn't know.
    pub fn resume(&mut self) -> bool {
        self.paused = false;
        for end in 0..2 {
            if self.hosts.end_mut(end).ask_again() {
                self.dirty |= 1 << end;
            }
        }
        let any = self.dirty != 0;
        self.serve_endpoints();
        any
    }

    /// Delays of the workload's messages so far (CBR frames, exchanges, web objects).
    pub fn message_delays(&self) -> Vec<Span> {
        self.apps[WORKLOAD].report().delays
    }

    /// Notes whether a scheduler has asked for a pause.
    #[inline]
    pub(crate) fn check_pause(&mut self) {
        if let Some(flag) = &self.pause {
            self.paused = flag.load(Ordering::Relaxed);
        }
    }

    /// When the workload starts, from the start of the run.
    pub fn begin(&self) -> Time {
        self.begin
    }

    /// Payload bytes sent on a path so far for the workload, repeats included.
    pub fn bytes_on(&self, path: usize) -> u64 {
        self.network.meter.paths.get(path).map_or(0, |meter| meter.bytes)
    }

    /// Virtual time, from the start of the run.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Events handled so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// How many of them in batches and in turns.
    #[doc(hidden)]
    pub fn events_ahead(&self) -> u64 {
        let batches = self.lookahead.as_ref().map_or(0, |ahead| ahead.events());
        batches + self.turns.as_ref().map_or(0, |turns| turns.events())
    }

    /// Payload bytes that the workload's application has by now.
    pub fn delivered_bytes(&self) -> u64 {
        self.hosts.delivered(self.network.data_from.other())
    }

    /// The path on which the client would open its next connection, by what it has found out of all of them.
    pub fn next_opening(&self) -> Option<usize> {
        let paths = (0..self.scenario.paths.len()).map(|path| PathId(path as u16));
        let cache = self.hosts.path_cache(self.now);
        Some(usize::from(cache.opening(self.now, topology::server_address(), paths)?.0))
    }

    /// Every counter of one side's endpoint, by the kernel's names
    /// ([`ropewalk_engine::endpoint::Endpoint::mib`]).
    pub fn counters(&self, side: Side) -> Vec<(String, u64)> {
        self.hosts.counters(side)
    }

    /// Runs until `until`, in time from the start of the run, or to the run's end if that is earlier. Returns
    /// whether the run has ended.
    pub fn run_until(&mut self, until: Time) -> bool {
        while self.outcome.is_none() && !self.paused {
            if self.many && self.run_batch(until) {
                continue;
            }
            if self.take_turns(until) {
                continue;
            }
            let (at, source) = self.network.events.first();
            // What is due at the limit itself still happens.
            if at <= until.min(self.end) {
                self.step(at, source);
            } else if until < self.end {
                self.now = until;
                break;
            } else {
                self.now = self.end;
                self.outcome = Some(Outcome::TimeLimit);
            }
        }
        self.outcome.is_some()
    }

    /// Runs to the end, and returns the result.
    pub fn finish(mut self) -> RunResult {
        self.run_until(Time::MAX);
        self.into_result()
    }

    /// Handles the event of a source that is due.
    #[inline(never)]
    fn step(&mut self, at: Time, source: usize) {
        if at != self.now {
            self.events_at_instant = 0;
        }
        self.now = at;
        self.events += 1;
        let next = self.handle(source);
        self.network.events.set(source, next);
    }

    /// Handles a source's event, and returns when its next one is due.
    #[inline(always)]
    fn handle(&mut self, source: usize) -> Option<Time> {
        if source < self.network.links.len() {
            match self.network.topology.next[source] {
                Hop::Host(side) => self.deliver(source, side),
                Hop::Link(next) => self.forward(source, Some(next)),
                Hop::OwnDown => self.forward(source, None),
            }
            return self.network.links[source].poll_timeout();
        }
        let end = source - self.network.links.len();
        if end < self.ends {
            self.hosts.on_timeout(end, self.now);
            self.dirty |= 1 << end;
            self.serve_endpoints();
            self.events_at_instant += 1;
            if self.events_at_instant > MAX_EVENTS_PER_INSTANT {
                self.fail_livelock();
            }
            return self.hosts.poll_timeout(end);
        }
        if source == self.ofo_samples() {
            return Some(self.sample_ofo());
        }
        self.on_timer();
        self.timers.peek().map(|timer| timer.at)
    }

    /// The number of the events that sample the receiver's out-of-order queue. They are the receiver's, so
    /// that they don't end a turn.
    pub(super) fn ofo_samples(&self) -> usize {
        self.network.links.len() + self.ends + 1
    }

    /// Samples the out-of-order queue, and returns when it is sampled next.
    #[inline(never)]
    fn sample_ofo(&mut self) -> Time {
        let ofo = self.hosts.ofo_bytes(self.network.data_from.other());
        self.network.meter.sample_ofo(ofo);
        self.now + OFO_EVERY
    }

    /// A packet leaves a link for another: `next`, or the downlink of its own path.
    #[inline(never)]
    fn forward(&mut self, link: usize, next: Option<usize>) {
        if let Some(packet) = self.network.links[link].poll(self.now) {
            self.network.enqueue(self.now, next.unwrap_or(2 * usize::from(packet.path) + 1), packet);
        }
    }

    /// A packet leaves a link for an endpoint.
    #[inline(always)]
    fn deliver(&mut self, link: usize, side: Side) {
        let link = &mut self.network.links[link];
        let Some(packet) = link.due(self.now) else { return };
        let (owner, path, trace) = (packet.owner, packet.path, packet.trace);
        let segment = packet.unpack(&mut self.received, &mut self.network.pool);
        link.drop_due();
        let workload = owner == Owner::Workload;
        let (end, path) = match owner {
            Owner::Workload => {
                if side != self.network.data_from {
                    self.network.meter.paths[path as usize].packets_out += 1;
                }
                (side as usize, PathId(path))
            }
            Owner::Background(source) => (2 + side as usize, PathId(source)),
        };
        // Datagrams are there for the room that they take: no endpoint gets them.
        if !segment {
            return;
        }
        if end < 2 && self.recorder.is_some() {
            self.record_arrival(side, path, trace);
        }
        let batches = self.lookahead.is_some() && workload && self.is_unwatched();
        let tuple = batches.then_some(self.received.tuple);
        self.hosts.on_segment(end, self.now, path, None, &mut self.received);
        self.dirty |= 1 << end;
        self.serve_endpoints();
        if let Some(tuple) = tuple {
            self.update_routes(side, path.0, &tuple);
        }
    }

    #[inline(never)]
    fn record_arrival(&mut self, side: Side, path: PathId, trace: u32) {
        let Some(recorder) = &mut self.recorder else { return };
        recorder.arrived(self.now, side, trace, &self.received);
        recorder.notify_arrived(self.now, side, path, &self.received);
    }
}
