//! The real-time world: two ends, each the engine or a kernel, and paths between them that are modelled links or
//! nothing at all. One thread moves every packet.
//!
//! With the engine at one end and no links this is the wire; with links it is the emulator.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use hdrhistogram::Histogram;
use ropewalk_engine::PathId;
use ropewalk_engine::endpoint::{ConnectionId, Endpoint};
use ropewalk_engine::mptcp::Event;
use ropewalk_link::{Link, LinkSpec, LinkStats};
use ropewalk_wire::Segment;
use ropewalk_wire::virtio::encode_frame_headers;

use crate::clock::{Clock, Nanos, Waiter};
use crate::emulated_path::EmulatedPath;
use crate::entropy::OsEntropy;
use crate::frame::{Frame, Piece};
use crate::network::KernelEnd;
use crate::tun::{BUFFER, DeviceError, Offload, Tun};
use ropewalk_wire::pool::Pool;

/// The engine's endpoint as this world runs it.
pub type HostEndpoint = Endpoint<Bytes, OsEntropy>;

/// Frames read from one device before the others have their turn.
const BATCH: usize = 32;
/// Most segments of a super-segment: 64 KiB of 1424 bytes, rounded down.
const SUPER: u32 = 44;
/// Segments sent before the devices have their turn again.
const TRANSMITS: usize = 64;
/// Packets share memory in chunks of so many bytes.
const CHUNK: usize = 4 * BUFFER;
/// The stop flag is looked at this often at least.
const PATIENCE: Nanos = 10_000_000;

/// A program on the engine.
pub trait App: Send {
    /// The world starts.
    fn start(&mut self, now: Nanos, endpoint: &mut HostEndpoint);
    /// Something happened to a connection.
    fn on_event(&mut self, now: Nanos, endpoint: &mut HostEndpoint, id: ConnectionId, event: Event);
    /// When it wants [`App::on_wake`] to be called.
    fn wake(&self) -> Option<Nanos> {
        None
    }
    /// A path's device went down (`up` false) or works again. Packets that are sent meanwhile are lost.
    fn on_path(&mut self, _now: Nanos, _endpoint: &mut HostEndpoint, _path: PathId, _up: bool) {}
    /// The moment came.
    fn on_wake(&mut self, _now: Nanos, _endpoint: &mut HostEndpoint) {}
    /// The world ends before it is done.
    fn on_stop(&mut self, _now: Nanos, _endpoint: &mut HostEndpoint) {}
    /// Whether it has done what it was to do.
    fn is_done(&self) -> bool;
}

/// One end.
pub enum End {
    /// A kernel, behind a device per path.
    Kernel(KernelEnd),
    /// The engine in this process, and the program that uses it.
    Engine(Box<HostEndpoint>, Box<dyn App>),
}

/// Where packets can be watched.
pub trait Tap: Send {
    /// A packet (or super-packet) enters (`leaves` false) or leaves path `piece.path`; `up` is from client to server.
    fn on_packet(&mut self, now: Nanos, up: bool, leaves: bool, piece: &Piece);
    /// The engine at an end decided something, or something happened to one of its connections; its endpoint can be
    /// looked at.
    fn on_event(
        &mut self,
        _now: Nanos,
        _server: bool,
        _endpoint: &HostEndpoint,
        _id: ConnectionId,
        _event: &Event,
    ) {
    }
}

/// What a [`Middlebox`] makes of a packet.
#[derive(Debug)]
pub enum Verdict {
    /// Goes on.
    Pass,
    /// Is lost.
    Drop,
    /// Others go on in its place.
    Replace(Vec<Segment<Bytes>>),
}

/// A middlebox: sees every packet as it leaves an end (super-packets cut), and may lose or change it.
pub trait Middlebox: Send {
    /// `up` is from client to server.
    fn meddle(&mut self, now: Nanos, up: bool, packet: &Piece) -> Verdict;
}

/// The state of a path's device at a kernel end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DeviceState {
    /// It takes packets, as far as is known.
    #[default]
    Up,
    /// The interface is down; packets for it are lost until it comes up.
    Down,
    /// The interface was removed; it doesn't come back.
    Removed,
}

/// What a path does to packets: from client to server and back.
#[derive(Clone, Debug)]
pub struct PathLinks {
    /// Client to server.
    pub up: LinkSpec,
    /// Server to client.
    pub down: LinkSpec,
    /// Index of the shared link that follows.
    pub bottleneck: Option<usize>,
}

/// See the module.
pub struct World {
    clock: Clock,
    waiter: Waiter,
    ends: [End; 2],
    paths: Vec<EmulatedPath>,
    /// By end and path; only a kernel end's are used.
    devices: [Vec<DeviceState>; 2],
    shared: Vec<[Link<Piece>; 2]>,
    lateness: Histogram<u64>,
    /// Memory for what devices deliver, and for what the engine's segments become: what is left in a buffer of the first
    /// needn't be zeroed again.
    received: Pool,
    made: Pool,
    stop: Arc<AtomicBool>,
    tap: Option<Box<dyn Tap>>,
    middlebox: Option<Box<dyn Middlebox>>,
    counters: Counters,
    started: bool,
}

/// What this world itself did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Packets or super-packets that a device refused because its queue was full.
    pub refused: u64,
    /// Packets or super-packets that were lost because a device was down or had been removed.
    pub undeliverable: u64,
    /// How often a device was found to be down or removed.
    pub device_losses: u64,
    /// Packets for the engine that it can't parse.
    pub malformed: u64,
    /// Packets for the engine that are neither TCP nor ICMP's "too big" about it.
    pub foreign: u64,
    /// Segments that couldn't be encoded.
    pub unencodable: u64,
}

impl World {
    /// Joins two ends by `count` paths. They do nothing to packets until [`World::emulate`] says so.
    pub fn new(client: End, server: End, count: usize) -> World {
        let clock = Clock::start();
        let paths = (0..count).map(|_| EmulatedPath::default()).collect();
        World {
            clock,
            waiter: Waiter::new(clock),
            ends: [client, server],
            paths,
            devices: [vec![DeviceState::Up; count], vec![DeviceState::Up; count]],
            shared: Vec::new(),
            // 1 ns to 10 s with two digits: bounds that are accepted.
            lateness: Histogram::new_with_bounds(1, 10_000_000_000, 2).expect("valid bounds"),
            received: Pool::new(CHUNK),
            made: Pool::new(CHUNK),
            stop: Arc::new(AtomicBool::new(false)),
            tap: None,
            middlebox: None,
            counters: Counters::default(),
            started: false,
        }
    }

    /// Puts modelled links between the ends. Streams of random numbers are numbered as the simulator numbers them.
    pub fn emulate(&mut self, paths: &[PathLinks], shared: &[[LinkSpec; 2]], seed: u64) {
        self.waiter.spin_long();
        for (at, (path, spec)) in self.paths.iter_mut().zip(paths).enumerate() {
            *path = EmulatedPath::emulated(spec, seed, 2 * at as u64);
        }
        let offset = 2 * paths.len() as u64;
        self.shared = shared
            .iter()
            .enumerate()
            .map(|(at, [up, down])| {
                let stream = offset + 2 * at as u64;
                [Link::new(up.clone(), seed, stream), Link::new(down.clone(), seed, stream + 1)]
            })
            .collect();
    }

    /// Watches every packet.
    pub fn watch(&mut self, tap: Box<dyn Tap>) {
        self.tap = Some(tap);
    }

    /// Lets a middlebox see and change every packet.
    pub fn meddle(&mut self, middlebox: Box<dyn Middlebox>) {
        self.middlebox = Some(middlebox);
    }

    /// Its clock.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Set it, from any thread, and [`World::run`] returns within 10 ms.
    pub fn stopper(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// The ends: client, server.
    pub fn ends(&self) -> &[End; 2] {
        &self.ends
    }

    /// Tells programs that are under way that nothing more will come.
    pub fn stop(&mut self) {
        let now = self.clock.now();
        for end in &mut self.ends {
            if let End::Engine(endpoint, app) = end {
                app.on_stop(now, endpoint);
            }
        }
    }

    /// The ends, back.
    pub fn into_ends(self) -> [End; 2] {
        self.ends
    }

    /// How late packets left links, in nanoseconds.
    pub fn lateness(&self) -> &Histogram<u64> {
        &self.lateness
    }

    /// What it did.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The devices of the client's end or of the server's, by path.
    pub fn devices(&self, server: bool) -> &[DeviceState] {
        &self.devices[usize::from(server)]
    }

    /// A path's link counters: from client to server, and back.
    pub fn link_stats(&self, path: usize) -> Option<[LinkStats; 2]> {
        self.paths.get(path)?.stats()
    }

    /// Runs until the stop flag is set, `until` comes, or every program of the engine's ends is done (and there is
    /// one).
    ///
    /// # Errors
    /// If a device fails.
    pub fn run(&mut self, until: Option<Nanos>) -> io::Result<()> {
        self.turn(until, true)
    }

    /// Runs until the stop flag is set or `until` comes, even if every program is done.
    ///
    /// # Errors
    /// If a device fails.
    pub fn run_past(&mut self, until: Nanos) -> io::Result<()> {
        self.turn(Some(until), false)
    }

    /// Whether the engine's programs are done (or there are none).
    pub fn is_idle(&self) -> bool {
        self.ends.iter().all(|end| match end {
            End::Engine(_, app) => app.is_done(),
            End::Kernel(_) => true,
        })
    }

    fn turn(&mut self, until: Option<Nanos>, heed_done: bool) -> io::Result<()> {
        if !self.started {
            self.started = true;
            let now = self.clock.now();
            for end in &mut self.ends {
                if let End::Engine(endpoint, app) = end {
                    app.start(now, endpoint);
                }
            }
        }
        loop {
            let mut busy = self.deliver()?;
            busy |= self.read_devices()?;
            busy |= self.run_engines()?;
            if self.stop.load(Ordering::Relaxed)
                || until.is_some_and(|until| self.clock.now() >= until)
                || (heed_done && self.is_done())
            {
                return Ok(());
            }
            if !busy {
                self.rest(until)?;
            }
        }
    }

    fn is_done(&self) -> bool {
        self.ends.iter().any(|end| matches!(end, End::Engine(..))) && self.is_idle()
    }

    fn rest(&mut self, until: Option<Nanos>) -> io::Result<()> {
        let now = self.clock.now();
        let mut due = until.unwrap_or(Nanos::MAX).min(now + PATIENCE);
        let paths = self.paths.iter().flat_map(|path| [path.due(0), path.due(1)]);
        let shared = self.shared.iter().flatten().map(Link::poll_timeout);
        for next in paths.chain(shared).flatten() {
            due = due.min(next);
        }
        let mut descriptors = Vec::new();
        for (end, devices) in self.ends.iter_mut().zip(&self.devices) {
            match end {
                // A removed device is always ready, with an error.
                End::Kernel(end) => descriptors.extend(
                    end.tuns
                        .iter()
                        .zip(devices)
                        .filter(|(_, state)| **state != DeviceState::Removed)
                        .map(|(tun, _)| tun.as_fd()),
                ),
                End::Engine(endpoint, app) => {
                    due = due.min(endpoint.poll_timeout().unwrap_or(Nanos::MAX));
                    due = due.min(app.wake().unwrap_or(Nanos::MAX));
                }
            }
        }
        self.waiter.wait(&descriptors, Some(due))
    }

    /// Hands on what has come to the end of a link.
    fn deliver(&mut self) -> io::Result<bool> {
        let mut busy = false;
        for side in 0..2 {
            // Towards the server a path's own link comes first, towards the client the shared one.
            if side == 1 {
                busy |= self.deliver_shared(side)?;
            }
            for at in 0..self.paths.len() {
                busy |= self.deliver_own(at, side)?;
            }
            if side == 0 {
                busy |= self.deliver_shared(side)?;
            }
        }
        Ok(busy)
    }

    fn deliver_own(&mut self, at: usize, side: usize) -> io::Result<bool> {
        // An engine that was handed something before has answered since: time went on.
        let now = self.clock.now();
        if !self.paths[at].is_due(side, now) {
            return Ok(false);
        }
        let mut busy = false;
        let mut held: Option<Piece> = None;
        while let Some((arrival, piece)) = self.paths[at].take(side, now) {
            busy = true;
            match self.paths[at].bottleneck {
                Some(shared) if side == 0 => self.shared[shared][side].enqueue(now, piece),
                _ => {
                    self.lateness.saturating_record(now.saturating_sub(arrival));
                    self.hand_on(side, &mut held, piece)?;
                }
            }
        }
        if let Some(piece) = held {
            self.arrive(1 - side, piece)?;
        }
        Ok(busy)
    }

    fn deliver_shared(&mut self, side: usize) -> io::Result<bool> {
        let now = self.clock.now();
        let mut busy = false;
        for shared in 0..self.shared.len() {
            let mut held: Option<Piece> = None;
            while let Some((arrival, piece)) = self.shared[shared][side].poll_timed(now) {
                busy = true;
                let path = usize::from(piece.path);
                match self.paths[path].link(side) {
                    Some(link) if side == 1 => link.enqueue(now, piece),
                    _ => {
                        self.lateness.saturating_record(now.saturating_sub(arrival));
                        self.hand_on(side, &mut held, piece)?;
                    }
                }
            }
            if let Some(piece) = held {
                self.arrive(1 - side, piece)?;
            }
        }
        Ok(busy)
    }

    /// A packet has come through the links from `side`. Each end hears of it by itself, and an engine may answer before the
    /// next, as in the simulator: what has come by the moment would else be acknowledged at once, and ACKs are the
    /// sender's clock.
    fn hand_on(&mut self, side: usize, held: &mut Option<Piece>, piece: Piece) -> io::Result<()> {
        let to = 1 - side;
        if matches!(self.ends[to], End::Kernel(_)) && self.paths[usize::from(piece.path)].joins(side) {
            return self.gather(side, held, piece);
        }
        if let Some(before) = held.take() {
            self.arrive(to, before)?;
        }
        self.arrive(to, piece)?;
        self.speak(to).map(drop)
    }

    /// Parts of one super-packet that come together go on together.
    fn gather(&mut self, side: usize, held: &mut Option<Piece>, piece: Piece) -> io::Result<()> {
        let next = match held {
            Some(held) => held.absorb(piece),
            None => Some(piece),
        };
        if let Some(next) = next
            && let Some(before) = held.replace(next)
        {
            self.arrive(1 - side, before)?;
        }
        Ok(())
    }

    /// `piece` has come to end `to`.
    fn arrive(&mut self, to: usize, piece: Piece) -> io::Result<()> {
        let path = usize::from(piece.path);
        if let Some(tap) = &mut self.tap {
            tap.on_packet(self.clock.now(), to == 1, true, &piece);
        }
        match &mut self.ends[to] {
            End::Kernel(end) => {
                let sent = piece.send(&end.tuns[path]);
                self.on_device(to, path, sent)
            }
            End::Engine(endpoint, _) => {
                let now = self.clock.now();
                match piece.segment() {
                    Ok(segment) => endpoint.on_segment(now, PathId(piece.path), segment),
                    Err(ropewalk_wire::ParseError::Protocol { .. }) => {
                        match ropewalk_wire::parse_icmp_too_big(piece.packet()) {
                            Ok(message) => endpoint.on_too_big(now, &message),
                            Err(_) => self.counters.foreign += 1,
                        }
                    }
                    Err(_) => self.counters.malformed += 1,
                }
                Ok(())
            }
        }
    }

    /// `piece` leaves end `from`.
    fn depart(&mut self, from: usize, piece: Piece) -> io::Result<()> {
        let path = usize::from(piece.path);
        if let Some(tap) = &mut self.tap {
            tap.on_packet(self.clock.now(), from == 0, false, &piece);
        }
        let Some(mut middlebox) = self.middlebox.take() else {
            return self.travel(from, piece);
        };
        let now = self.clock.now();
        let mut done = Ok(());
        for packet in piece.packets() {
            match middlebox.meddle(now, from == 0, &packet) {
                Verdict::Pass => done = done.and(self.travel(from, packet)),
                Verdict::Drop => {}
                Verdict::Replace(segments) => {
                    for segment in segments {
                        match Frame::of(&segment, &mut self.made) {
                            Ok(frame) => done = done.and(self.travel(from, Piece::whole(frame, path as u16))),
                            Err(_) => self.counters.unencodable += 1,
                        }
                    }
                }
            }
        }
        self.middlebox = Some(middlebox);
        done
    }

    fn travel(&mut self, from: usize, piece: Piece) -> io::Result<()> {
        let path = usize::from(piece.path);
        let now = self.clock.now();
        let path = &mut self.paths[path];
        let bottleneck = path.bottleneck;
        let Some(link) = path.link(from) else {
            return self.arrive(1 - from, piece);
        };
        let link = match bottleneck {
            Some(shared) if from == 1 => &mut self.shared[shared][from],
            _ => link,
        };
        for packet in piece.packets() {
            link.enqueue(now, packet);
        }
        Ok(())
    }

    fn read_devices(&mut self) -> io::Result<bool> {
        let mut busy = false;
        for from in 0..2 {
            let End::Kernel(end) = &self.ends[from] else { continue };
            for path in 0..end.tuns.len() {
                if self.devices[from][path] == DeviceState::Removed {
                    continue;
                }
                for _ in 0..BATCH {
                    let End::Kernel(end) = &self.ends[from] else { break };
                    let tun = &end.tuns[path];
                    let offload = tun.offload();
                    let bytes = match read(tun, &mut self.received) {
                        Ok(Some(bytes)) => bytes,
                        Ok(None) => break,
                        // A device that is only down has nothing to read; any other error means that it was removed.
                        Err(error) if DeviceError::of(&error).is_some() => {
                            self.on_device_change(from, path, DeviceState::Removed);
                            break;
                        }
                        Err(error) => return Err(error),
                    };
                    busy = true;
                    match Frame::received(bytes, offload) {
                        Some(frame) => self.depart(from, Piece::whole(frame, path as u16))?,
                        None => self.counters.malformed += 1,
                    }
                }
            }
        }
        Ok(busy)
    }

    fn run_engines(&mut self) -> io::Result<bool> {
        Ok(self.speak(0)? | self.speak(1)?)
    }

    /// Lets the engine at an end do what is due, and send.
    fn speak(&mut self, side: usize) -> io::Result<bool> {
        // A link takes packets, not super-packets: nothing is gained by putting them together first.
        let most = if self.paths.iter().any(EmulatedPath::has_links) { 1 } else { SUPER };
        let mut busy = false;
        for _ in 0..TRANSMITS {
            let now = self.clock.now();
            let End::Engine(endpoint, app) = &mut self.ends[side] else { break };
            if endpoint.poll_timeout().is_some_and(|due| due <= now) {
                endpoint.on_timeout(now);
            }
            if app.wake().is_some_and(|due| due <= now) {
                app.on_wake(now, endpoint);
                busy = true;
            }
            while let Some((id, event)) = endpoint.poll_event() {
                busy = true;
                if let Some(tap) = &mut self.tap {
                    tap.on_event(now, side == 1, endpoint, id, &event);
                }
                app.on_event(now, endpoint, id, event);
            }
            let Some((path, segment)) = endpoint.poll_transmit(now, most) else { break };
            busy = true;
            self.transmit(side, path, &segment)?;
        }
        Ok(busy)
    }

    fn transmit(&mut self, from: usize, path: PathId, segment: &Segment<Bytes>) -> io::Result<()> {
        let direct =
            !self.paths[usize::from(path.0)].has_links() && self.tap.is_none() && self.middlebox.is_none();
        if direct
            && let End::Kernel(end) = &self.ends[1 - from]
            && let Some(tun) = end.tuns.get(usize::from(path.0))
            && tun.offload() == Offload::Segmentation
        {
            // Nothing between the engine and the device: the payload isn't copied.
            let Ok(headers) = encode_frame_headers(segment) else {
                self.counters.unencodable += 1;
                return Ok(());
            };
            let sent = tun.send(&[io::IoSlice::new(&headers), io::IoSlice::new(&segment.payload)]);
            return self.on_device(1 - from, usize::from(path.0), sent.map(drop));
        }
        match Frame::of(segment, &mut self.made) {
            Ok(frame) => self.depart(from, Piece::whole(frame, path.0)),
            Err(_) => {
                self.counters.unencodable += 1;
                Ok(())
            }
        }
    }

    /// Takes in the result of a write to a device. A packet that a device doesn't take is lost, as on any
    /// network; a device that is down or removed is a path that is lost.
    fn on_device(&mut self, side: usize, path: usize, result: io::Result<()>) -> io::Result<()> {
        let state = match result {
            Ok(()) => DeviceState::Up,
            Err(error) => match DeviceError::of(&error) {
                Some(DeviceError::Full | DeviceError::Malformed) => {
                    self.counters.refused += 1;
                    return Ok(());
                }
                Some(DeviceError::Down) => DeviceState::Down,
                Some(DeviceError::Removed) => DeviceState::Removed,
                None => return Err(error),
            },
        };
        if state != DeviceState::Up {
            self.counters.undeliverable += 1;
        }
        if self.devices[side][path] != state {
            self.on_device_change(side, path, state);
        }
        Ok(())
    }

    #[cold]
    fn on_device_change(&mut self, side: usize, path: usize, state: DeviceState) {
        let was_up = self.devices[side][path] == DeviceState::Up;
        self.devices[side][path] = state;
        let is_up = state == DeviceState::Up;
        if was_up == is_up {
            return;
        }
        self.counters.device_losses += u64::from(!is_up);
        let now = self.clock.now();
        if let End::Engine(endpoint, app) = &mut self.ends[1 - side] {
            app.on_path(now, endpoint, PathId(path as u16), is_up);
        }
    }
}

/// One frame, or `None` when there is none now.
fn read(tun: &Tun, pool: &mut Pool) -> io::Result<Option<Bytes>> {
    let buffer = pool.room(BUFFER);
    buffer.resize(BUFFER, 0);
    match tun.receive(buffer) {
        Ok(len) => {
            let frame = buffer.split_to(len);
            Ok(Some(frame.freeze()))
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}
