//! The real-time world: two ends, each the engine or a kernel, and paths between them that are modelled links
//! or nothing at all. One thread moves every packet.
//!
//! With the engine at one end and no links this is the wire; with links it is the emulator.

mod devices;
mod links;

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use ropewalk_engine::endpoint::{ConnectionId, Endpoint};
use ropewalk_engine::mptcp::Event;
use ropewalk_engine::{PathId, Span, Time};
use ropewalk_link::{Link, LinkSpec, LinkStats};
use ropewalk_wire::Segment;
use ropewalk_wire::virtio::encode_frame_headers;

use crate::clock::{Clock, Waiter};
use crate::emulated_path::EmulatedPath;
pub use crate::emulated_path::PathLinks;
use crate::entropy::OsEntropy;
use crate::frame::{Frame, Piece};
use crate::histogram::Histogram;
use crate::network::KernelEnd;
use crate::tun::{BUFFER, Offload};
use ropewalk_wire::pool::Pool;

pub use devices::DeviceState;

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
const PATIENCE: Span = Span::from_millis(10);

/// A program on the engine.
pub trait App: Send {
    /// The world starts.
    fn start(&mut self, now: Time, endpoint: &mut HostEndpoint);
    /// Something happened to a connection.
    fn on_event(&mut self, now: Time, endpoint: &mut HostEndpoint, id: ConnectionId, event: Event);
    /// When it wants [`App::on_wake`] to be called.
    fn wake(&self) -> Option<Time> {
        None
    }
    /// A path's device went down (`up` false) or works again. Packets that are sent meanwhile are lost.
    fn on_path(&mut self, _now: Time, _endpoint: &mut HostEndpoint, _path: PathId, _up: bool) {}
    /// The moment came.
    fn on_wake(&mut self, _now: Time, _endpoint: &mut HostEndpoint) {}
    /// The world ends before it is done.
    fn on_stop(&mut self, _now: Time, _endpoint: &mut HostEndpoint) {}
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
    /// A packet (or super-packet) enters (`leaves` false) or leaves path `piece.path`; `up` is from client to
    /// server.
    fn on_packet(&mut self, now: Time, up: bool, leaves: bool, piece: &Piece);
    /// The engine at an end decided something, or something happened to one of its connections; its endpoint
    /// can be looked at.
    fn on_event(
        &mut self,
        _now: Time,
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
    fn on_packet(&mut self, now: Time, up: bool, packet: &Piece) -> Verdict;
}

/// Two ends and the paths between them; see the module.
pub struct World {
    clock: Clock,
    waiter: Waiter,
    ends: [End; 2],
    paths: Vec<EmulatedPath>,
    /// By end and path; only a kernel end's are used.
    devices: [Vec<DeviceState>; 2],
    shared: Vec<[Link<Piece>; 2]>,
    lateness: Histogram,
    /// Memory for what devices deliver, and for what the engine's segments become: what is left in a buffer
    /// of the first needn't be zeroed again.
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
            lateness: Histogram::default(),
            received: Pool::new(CHUNK),
            made: Pool::new(CHUNK),
            stop: Arc::new(AtomicBool::new(false)),
            tap: None,
            middlebox: None,
            counters: Counters::default(),
            started: false,
        }
    }

    /// Puts modelled links between the ends. Streams of random numbers are numbered as the simulator numbers
    /// them.
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
    pub fn set_tap(&mut self, tap: Box<dyn Tap>) {
        self.tap = Some(tap);
    }

    /// Lets a middlebox see and change every packet.
    pub fn set_middlebox(&mut self, middlebox: Box<dyn Middlebox>) {
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

    /// How late packets left links, in nanoseconds.
    pub fn lateness(&self) -> &Histogram {
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

    /// Runs until the stop flag is set, `until` comes, or every program of the engine's ends is done (and
    /// there is one).
    ///
    /// # Errors
    /// If a device fails.
    pub fn run(&mut self, until: Option<Time>) -> io::Result<()> {
        self.run_loop(until, true)
    }

    /// Runs until the stop flag is set or `until` comes, even if every program is done.
    ///
    /// # Errors
    /// If a device fails.
    pub fn run_past(&mut self, until: Time) -> io::Result<()> {
        self.run_loop(Some(until), false)
    }

    /// Whether the engine's programs are done (or there are none).
    pub fn is_idle(&self) -> bool {
        self.ends.iter().all(|end| match end {
            End::Engine(_, app) => app.is_done(),
            End::Kernel(_) => true,
        })
    }

    fn run_loop(&mut self, until: Option<Time>, stop_when_done: bool) -> io::Result<()> {
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
                || (stop_when_done && self.is_done())
            {
                return Ok(());
            }
            if !busy {
                self.wait(until)?;
            }
        }
    }

    fn is_done(&self) -> bool {
        self.ends.iter().any(|end| matches!(end, End::Engine(..))) && self.is_idle()
    }

    fn wait(&mut self, until: Option<Time>) -> io::Result<()> {
        let now = self.clock.now();
        let mut due = until.unwrap_or(Time::MAX).min(now + PATIENCE);
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
                    due = due.min(endpoint.poll_timeout().unwrap_or(Time::MAX));
                    due = due.min(app.wake().unwrap_or(Time::MAX));
                }
            }
        }
        self.waiter.wait(&descriptors, Some(due))
    }

    fn run_engines(&mut self) -> io::Result<bool> {
        Ok(self.drive_engine(0)? | self.drive_engine(1)?)
    }

    /// Lets the engine at an end do what is due, and send.
    pub(super) fn drive_engine(&mut self, side: usize) -> io::Result<bool> {
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
}
