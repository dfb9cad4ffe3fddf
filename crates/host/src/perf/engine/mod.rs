//! A measurement on the engine's connections, behind TUN devices.

mod app;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ropewalk_engine::config::{ConnectionConfig, EndpointConfig, LocalEndpoint};
use ropewalk_engine::congestion::CongestionControl;
use ropewalk_engine::endpoint::Endpoint;
use ropewalk_engine::registry::{Spec, SpecError};
use ropewalk_engine::scheduler::Scheduler;
use ropewalk_engine::{PathId, Span, Time};

use super::device::{Device, EnginePath, MTU};
use super::protocol::{Hello, Mode};
use super::{ClientProgress, Measured, ServerControl, SessionTracker};
use crate::clock::request_real_time;
use crate::entropy::OsEntropy;
use crate::world::{DeviceState, End, HostEndpoint, Tap, World};
use app::Perf;

/// How long the last segments of a connection may take.
const GRACE: Span = Span::from_millis(500);
const SLICE: Span = Span::from_millis(5);

/// Scheduler and congestion control by the names in a hello; an empty name is none.
pub type Resolve = Box<dyn Fn(&str, &str) -> Result<Algorithms, SpecError> + Send>;

/// A scheduler and a congestion control, where one is named.
pub type Algorithms = (Option<Spec<dyn Scheduler>>, Option<Spec<dyn CongestionControl>>);

/// The path on which a client's connections open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenOn {
    /// This one, by its index.
    Path(usize),
    /// The first that answers: SYNs go out on all, each of a connection of its own (RFC 8684 3.1). The others
    /// are cancelled, and their paths joined.
    Race,
}

/// What both sides of the engine need.
pub struct Setting {
    /// The devices.
    pub device: Device,
    /// An observer.
    pub tap: Option<Box<dyn Tap>>,
}

impl std::fmt::Debug for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setting").field("device", &self.device).finish_non_exhaustive()
    }
}

/// The path manager's endpoints: a client opens subflows from them, a server announces them.
pub fn endpoints(paths: &[EnginePath], server: bool) -> Vec<LocalEndpoint> {
    let endpoint = |(at, path): (usize, &EnginePath)| LocalEndpoint {
        address: path.engine,
        port: None,
        path: PathId(at as u16),
        id: at as u8 + 1,
        signal: server && at > 0,
        subflow: !server,
        backup: false,
    };
    paths.iter().enumerate().map(endpoint).collect()
}

fn endpoint(paths: usize) -> Box<HostEndpoint> {
    let first_port = ropewalk_os::entropy::random() as u16;
    let config = EndpointConfig { path_mtus: vec![MTU; paths], first_port, ..EndpointConfig::default() };
    Box::new(Endpoint::new(config, OsEntropy::new()))
}

/// Runs a world until `over`, then lets connections send their last segments, and returns the endpoint's
/// counters.
fn move_packets(
    mut world: World,
    side: usize,
    over: impl Fn(Time) -> bool,
) -> io::Result<Vec<(String, u64)>> {
    request_real_time();
    let clock = world.clock();
    let (mut aborted, mut until) = (false, Time::MAX);
    loop {
        world.run_past(clock.now() + SLICE)?;
        let now = clock.now();
        if !aborted && over(now) {
            aborted = true;
            until = now + GRACE;
        }
        if world.devices(side == 0).iter().all(|state| *state == DeviceState::Removed) {
            return Err(io::Error::other("every device of the engine was removed: no path is left"));
        }
        let End::Engine(endpoint, _) = &world.ends()[side] else { return Ok(Vec::new()) };
        if aborted && (endpoint.is_empty() || now >= until) {
            return Ok(endpoint.mib());
        }
    }
}

/// Runs a client to its end: each flow with its settings. `observe` is called every few milliseconds.
///
/// # Errors
/// If a device fails. A flow that fails says so itself.
pub fn client(
    setting: Setting,
    remote: SocketAddr,
    flows: Vec<(Hello, ConnectionConfig)>,
    open_on: OpenOn,
    stop: Arc<AtomicBool>,
    mut observe: impl FnMut(&ClientProgress),
) -> io::Result<Measured> {
    let modes: Vec<Mode> = flows.iter().map(|(hello, _)| hello.mode).collect();
    let progress = Arc::new(ClientProgress::new(modes.iter().copied(), stop));
    let paths = setting.device.paths;
    let perf = Perf::client(Arc::clone(&progress), &paths, remote, flows, open_on);
    let end = End::Engine(endpoint(paths.len()), Box::new(perf));
    let mut world = World::new(end, End::Kernel(setting.device.end), paths.len());
    if let Some(tap) = setting.tap {
        world.set_tap(tap);
    }
    let count = modes.len();
    let watched = Arc::clone(&progress);
    let all_done = move |_| watched.done.lock().unwrap_or_else(PoisonError::into_inner).len() >= count;
    let counters = std::thread::scope(|scope| {
        let mover = scope.spawn(move || move_packets(world, 0, all_done));
        while !mover.is_finished() {
            observe(&progress);
            std::thread::sleep(Duration::from_millis(5));
        }
        observe(&progress);
        match mover.join() {
            Ok(counters) => counters,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })?;
    Ok(Measured { flows: progress.take(), counters })
}

/// Listens. Returns at the stop flag, or when `once` is over; then with the endpoint's counters.
///
/// # Errors
/// If a device fails.
pub fn server(
    setting: Setting,
    port: u16,
    config: ConnectionConfig,
    resolve: Resolve,
    service: ServerControl,
    ready: impl FnOnce(SocketAddr),
) -> io::Result<Vec<(String, u64)>> {
    let paths = setting.device.paths;
    let service = Arc::new(service);
    let sessions = Arc::new(Mutex::new(SessionTracker::default()));
    let perf = Perf::server(Arc::clone(&service), Arc::clone(&sessions), resolve, &paths, port, config);
    let end = End::Engine(endpoint(paths.len()), Box::new(perf));
    let mut world = World::new(End::Kernel(setting.device.end), end, paths.len());
    if let Some(tap) = setting.tap {
        world.set_tap(tap);
    }
    ready(SocketAddr::new(paths[0].engine, port));
    let stopped = |now| {
        let stop = service.stop.load(Ordering::Relaxed);
        stop || (service.once && sessions.lock().unwrap_or_else(PoisonError::into_inner).is_over(now))
    };
    std::thread::scope(|scope| match scope.spawn(|| move_packets(world, 1, stopped)).join() {
        Ok(counters) => counters,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}
