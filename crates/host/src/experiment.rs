//! One measured transfer in real time: two ends, each the engine or a kernel, paths between them, and what
//! both say afterwards. The interoperation tests, the emulated comparison and the benchmarks all go through
//! here.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Mutex;
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use ropewalk_engine::config::{ConnectionConfig, EndpointConfig, LocalEndpoint};
use ropewalk_engine::congestion::DEFAULT_NAME;
use ropewalk_engine::endpoint::Endpoint;
use ropewalk_engine::{PathId, Span, Time};
use ropewalk_link::{LinkSpec, LinkStats};

use crate::clock::request_real_time;
use crate::entropy::OsEntropy;
use crate::histogram::Histogram;
use crate::kernel::{self, SocketConfig};
use crate::network::{KernelEnd, PathConfig, Side, client_address, server_address};
use crate::transfer::{Outcome, Request, Role, SocketTransfer, TransferError, Transfers};
use crate::tun::Offload;
use crate::world::{Counters, End, Middlebox, PathLinks, Tap, World};

/// The port of servers.
pub const PORT: u16 = 5201;
/// How long the world continues for a peer's last segments.
const GRACE: Span = Span::from_secs(2);
const SLICE: Span = Span::from_millis(2);

/// A kernel as one end.
#[derive(Clone, Debug)]
pub struct KernelParty {
    /// Multipath TCP, or plain TCP.
    pub multipath: bool,
    /// Congestion control by the kernel's name.
    pub congestion: String,
    /// Whether it requires DSS checksums.
    pub checksum: bool,
    /// Most payload bytes of its receive buffer; `None`: the kernel's default.
    pub receive_buffer: Option<u64>,
    /// Most bytes of its send buffer; `None`: the kernel's default.
    pub send_buffer: Option<u64>,
    /// nft commands to run in its namespace first.
    pub rules: Vec<String>,
    /// `ip` commands to run in its namespace first.
    pub commands: Vec<String>,
}

impl Default for KernelParty {
    fn default() -> Self {
        KernelParty {
            multipath: true,
            congestion: DEFAULT_NAME.into(),
            checksum: false,
            receive_buffer: None,
            send_buffer: None,
            rules: Vec::new(),
            commands: Vec::new(),
        }
    }
}

/// One end.
#[derive(Clone, Debug)]
pub enum Party {
    /// The engine. As client without endpoints in its path manager it gets one per path.
    Engine(Box<ConnectionConfig>),
    /// A kernel.
    Kernel(KernelParty),
}

/// What is measured.
pub struct Experiment {
    /// The paths, in order.
    pub paths: Vec<PathConfig>,
    /// What they do to packets; `None`: nothing.
    pub links: Option<Vec<PathLinks>>,
    /// Links that several paths share: up, down.
    pub shared: Vec<[LinkSpec; 2]>,
    /// Of the links' randomness.
    pub seed: u64,
    /// Opens the connections.
    pub client: Party,
    /// Answers them.
    pub server: Party,
    /// Of kernel ends' devices.
    pub offload: Offload,
    /// IPv6 instead of IPv4.
    pub v6: bool,
    /// What is transferred, by each connection.
    pub request: Request,
    /// Connections at the same time.
    pub connections: usize,
    /// The path on which connections start.
    pub first_path: usize,
    /// A sender waits for so many subflows before the bulk (a second at most); 1: not at all.
    pub subflows: usize,
    /// What isn't done by then is given up.
    pub limit: Span,
    /// The engine aborts each connection after so many bytes of the stream.
    pub abort_after: Option<u64>,
    /// It is the kernel's end, where it receives, that does so.
    pub kernel_aborts: bool,
    /// A middlebox.
    pub middlebox: Option<Box<dyn Middlebox>>,
    /// An observer.
    pub tap: Option<Box<dyn Tap>>,
}

impl Experiment {
    /// Two ends and `paths` networks that do nothing to packets.
    pub fn new(client: Party, server: Party, paths: usize, request: Request) -> Self {
        let paths =
            (0..paths).map(|at| PathConfig { name: format!("path{at}"), mtu: 1500, backup: false }).collect();
        Experiment {
            paths,
            links: None,
            shared: Vec::new(),
            seed: 1,
            client,
            server,
            offload: Offload::Segmentation,
            v6: false,
            request,
            connections: 1,
            first_path: 0,
            subflows: 1,
            limit: Span::from_secs(20),
            abort_after: None,
            kernel_aborts: false,
            middlebox: None,
            tap: None,
        }
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Report {
    /// The client's outcomes, one per connection.
    pub client: Vec<Outcome>,
    /// The server's.
    pub server: Vec<Outcome>,
    /// The ends' counters that aren't 0, by the kernel's names (MPTcpExt, TcpExt, Tcp): client, server.
    pub counters: [Vec<(String, u64)>; 2],
    /// What the world did.
    pub world: Counters,
    /// By path: the links' counters, up and down.
    pub links: Vec<[LinkStats; 2]>,
    /// How late packets left links, nanoseconds.
    pub lateness: Histogram,
    /// CPU time of this process in the meantime: user, system.
    pub cpu: [Duration; 2],
}

impl Report {
    /// Time from connect to the last byte delivered at the receiver, per connection in the order of their
    /// start. `None` for one that failed.
    pub fn completion_times(&self, download: bool) -> Vec<Option<Span>> {
        let receivers = if download { &self.client } else { &self.server };
        let mut starts: Vec<Time> = self.client.iter().map(|outcome| outcome.started).collect();
        starts.sort_unstable();
        let mut ends: Vec<Option<Time>> =
            receivers.iter().map(|outcome| outcome.finished.filter(|_| outcome.error.is_none())).collect();
        ends.sort_unstable_by_key(|end| end.unwrap_or(Time::MAX));
        ends.resize(starts.len(), None);
        starts.iter().zip(ends).map(|(start, end)| end.map(|end| end.saturating_sub(*start))).collect()
    }
}

fn prepare(party: &KernelParty, side: Side, paths: &[PathConfig], offload: Offload) -> io::Result<KernelEnd> {
    let end = KernelEnd::new(side, paths, offload)?;
    let namespace = &end.namespace;
    namespace.sysctl("net.mptcp.checksum_enabled", if party.checksum { "1" } else { "0" })?;
    // Each run starts without what the kernel remembers of the last.
    namespace.sysctl("net.ipv4.tcp_no_metrics_save", "1")?;
    if let Some(bytes) = party.receive_buffer {
        // Half of tcp_rmem is the window (tcp_adv_win_scale 1).
        let most = (2 * bytes).max(8192);
        namespace.sysctl("net.ipv4.tcp_rmem", &format!("4096 {} {most}", most.min(131_072)))?;
    }
    if let Some(bytes) = party.send_buffer {
        let most = bytes.max(8192);
        namespace.sysctl("net.ipv4.tcp_wmem", &format!("4096 {} {most}", most.min(16_384)))?;
    }
    for rule in &party.rules {
        namespace.check("nft", &[rule])?;
    }
    for command in &party.commands {
        let words: Vec<_> = command.split_whitespace().collect();
        namespace.check("ip", &words)?;
    }
    Ok(end)
}

type Shared = std::sync::Arc<Mutex<Vec<Outcome>>>;

/// Runs it.
///
/// # Errors
/// If the set-up fails, or a device. A transfer that fails is no error: its outcome says so.
pub fn run(experiment: Experiment) -> io::Result<Report> {
    let Experiment { paths, links, shared, seed, client, server, offload, v6, .. } = experiment;
    let address = SocketAddr::new(server_address(v6), PORT);
    let mtus = EndpointConfig {
        path_mtus: paths.iter().map(|path| path.mtu).collect(),
        ..EndpointConfig::default()
    };
    let engine_aborts = !experiment.kernel_aborts;
    let engine = |role: Role, config: ConnectionConfig| -> (End, Shared) {
        let endpoint = Endpoint::new(mtus.clone(), OsEntropy::new());
        let (mut transfers, outcomes) = Transfers::new(role, config, experiment.subflows);
        transfers.abort_after(experiment.abort_after.filter(|_| engine_aborts));
        (End::Engine(Box::new(endpoint), Box::new(transfers)), outcomes)
    };
    let empty = || Shared::default();
    let (client_end, client_socket, client_outcomes) = match client {
        Party::Engine(mut config) => {
            if config.multipath && config.path_manager.endpoints.is_empty() {
                config.path_manager.endpoints = endpoints(&paths, v6);
            }
            let role = Role::Client {
                requests: vec![experiment.request; experiment.connections],
                path: PathId(experiment.first_path as u16),
                local: SocketAddr::new(client_address(experiment.first_path, v6), 0),
                remote: address,
            };
            let (end, outcomes) = engine(role, *config);
            (end, None, outcomes)
        }
        Party::Kernel(party) => {
            let end = prepare(&party, Side::Client, &paths, offload)?;
            let namespace = end.namespace.fd().try_clone_to_owned()?;
            (End::Kernel(end), Some((namespace, party)), empty())
        }
    };
    let (server_end, listener, server_outcomes) = match server {
        Party::Engine(config) => {
            let role = Role::Server { address, connections: experiment.connections };
            let (end, outcomes) = engine(role, *config);
            (end, None, outcomes)
        }
        Party::Kernel(party) => {
            let end = prepare(&party, Side::Server, &paths, offload)?;
            let config = SocketConfig {
                multipath: party.multipath,
                congestion: Some(&party.congestion),
                ..SocketConfig::default()
            };
            // At every address: a join to an announced one needs a listener there.
            let any = if v6 { IpAddr::from(Ipv6Addr::UNSPECIFIED) } else { Ipv4Addr::UNSPECIFIED.into() };
            let listener = kernel::listen(&end.namespace, SocketAddr::new(any, PORT), &config)?;
            (End::Kernel(end), Some(listener), empty())
        }
    };
    let count = paths.len();
    let mut world = World::new(client_end, server_end, count);
    if let Some(links) = &links {
        world.emulate(links, &shared, seed);
    }
    if let Some(middlebox) = experiment.middlebox {
        world.set_middlebox(middlebox);
    }
    if let Some(tap) = experiment.tap {
        world.set_tap(tap);
    }
    let clock = world.clock();
    let patience = Some(Duration::from(experiment.limit));
    let transfer = SocketTransfer {
        clock,
        subflows: experiment.subflows,
        abort_after: experiment.abort_after.filter(|_| experiment.kernel_aborts),
    };
    let before = cpu();
    std::thread::scope(|scope| -> io::Result<()> {
        let mut workers = Vec::new();
        if let Some(listener) = listener {
            let outcomes = Shared::clone(&server_outcomes);
            workers.push(scope.spawn(move || {
                std::thread::scope(|each| {
                    for _ in 0..experiment.connections {
                        let left = experiment.limit.saturating_sub(clock.now().since_origin());
                        let socket = match kernel::accept(&listener, left.into()) {
                            Ok(socket) => socket,
                            Err(error) => {
                                let error = Some(TransferError::Accept(error.to_string()));
                                note(
                                    &outcomes,
                                    Outcome { started: clock.now(), error, ..Outcome::default() },
                                );
                                continue;
                            }
                        };
                        let outcomes = Shared::clone(&outcomes);
                        each.spawn(move || {
                            let _ = socket.set_read_timeout(patience);
                            let _ = socket.set_write_timeout(patience);
                            note(&outcomes, transfer.server(&socket));
                        });
                    }
                });
            }));
        }
        if let Some((namespace, party)) = client_socket {
            let local = client_address(experiment.first_path, v6);
            for _ in 0..experiment.connections {
                let outcomes = Shared::clone(&client_outcomes);
                let (namespace, party) = (namespace.try_clone()?, party.clone());
                workers.push(scope.spawn(move || {
                    let started = clock.now();
                    let config = SocketConfig {
                        multipath: party.multipath,
                        congestion: Some(&party.congestion),
                        connect_timeout: patience,
                        ..SocketConfig::default()
                    };
                    let socket = setns(&namespace, CloneFlags::CLONE_NEWNET)
                        .map_err(io::Error::from)
                        .and_then(|()| kernel::connect_here(Some(local), address, &config));
                    let outcome = match socket {
                        Ok(socket) => {
                            let _ = socket.set_read_timeout(patience);
                            let _ = socket.set_write_timeout(patience);
                            transfer.client(&socket, experiment.request, started)
                        }
                        Err(error) => Outcome {
                            started,
                            error: Some(TransferError::Connect(error.to_string())),
                            ..Outcome::default()
                        },
                    };
                    note(&outcomes, outcome);
                }));
            }
        }
        let limit = Time::ZERO + experiment.limit;
        let world = &mut world;
        let mover = scope.spawn(move || -> io::Result<()> {
            request_real_time();
            loop {
                world.run_past(clock.now() + SLICE)?;
                let finished = workers.iter().all(std::thread::ScopedJoinHandle::is_finished);
                if (finished && world.is_idle()) || clock.now() > limit + GRACE {
                    break;
                }
            }
            world.stop();
            Ok(())
        });
        match mover.join() {
            Ok(moved) => moved,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })?;
    let after = cpu();
    let counters = world.ends().each_ref().map(|end| match end {
        End::Kernel(end) => {
            let mut all = end.counters("MPTcpExt").unwrap_or_default();
            all.extend(end.counters("Tcp").unwrap_or_default());
            all
        }
        End::Engine(endpoint, _) => endpoint.mib().into_iter().filter(|(_, value)| *value > 0).collect(),
    });
    let take = |shared: &Shared| {
        let mut outcomes = shared.lock().map(|mut list| std::mem::take(&mut *list)).unwrap_or_default();
        outcomes.sort_by_key(|outcome| outcome.started);
        outcomes
    };
    Ok(Report {
        client: take(&client_outcomes),
        server: take(&server_outcomes),
        counters,
        world: world.counters(),
        links: (0..count).filter_map(|path| world.link_stats(path)).collect(),
        lateness: world.lateness().clone(),
        cpu: [after[0].saturating_sub(before[0]), after[1].saturating_sub(before[1])],
    })
}

fn note(outcomes: &Shared, outcome: Outcome) {
    if let Ok(mut outcomes) = outcomes.lock() {
        outcomes.push(outcome);
    }
}

/// The path manager's endpoints for the paths' addresses.
pub fn endpoints(paths: &[PathConfig], v6: bool) -> Vec<LocalEndpoint> {
    let endpoint = |(at, path): (usize, &PathConfig)| LocalEndpoint {
        address: client_address(at, v6),
        port: None,
        path: PathId(at as u16),
        id: at as u8 + 1,
        signal: false,
        subflow: true,
        backup: path.backup,
    };
    paths.iter().enumerate().map(endpoint).collect()
}

/// User and system time of this process.
pub fn cpu() -> [Duration; 2] {
    use nix::sys::resource::{UsageWho, getrusage};
    let time = |time: nix::sys::time::TimeVal| {
        Duration::from_secs(time.tv_sec().max(0) as u64) + Duration::from_micros(time.tv_usec().max(0) as u64)
    };
    getrusage(UsageWho::RUSAGE_SELF)
        .map_or([Duration::ZERO; 2], |usage| [time(usage.user_time()), time(usage.system_time())])
}

#[cfg(test)]
mod tests {
    use ropewalk_engine::Span;
    use ropewalk_engine::config::{BufferConfig, ConnectionConfig, PathManagerConfig, TcpConfig};
    use ropewalk_engine::{congestion, scheduler};

    use super::{Experiment, Party, run};
    use crate::transfer::{Direction, Request};
    use crate::world::PathLinks;

    #[test]
    fn packets_that_come_together_are_acknowledged_one_by_one() {
        // A packet each 1.2 us, delivered each 0.1 ms at the earliest.
        let link = ropewalk_link::LinkSpec::plain(10_000_000_000, Span::from_millis(10), 10_000);
        let config = || ConnectionConfig {
            tcp: TcpConfig::default(),
            multipath: true,
            checksum: false,
            send_buffer: BufferConfig::fixed(8 << 20),
            receive_buffer: BufferConfig::fixed(8 << 20),
            scheduler: scheduler::builtin().parse("minrtt").unwrap(),
            congestion: congestion::builtin().parse("cubic").unwrap(),
            path_manager: PathManagerConfig::default(),
            trace_decisions: false,
            ..ConnectionConfig::default()
        };
        let engine = || Party::Engine(Box::new(config()));
        let request = Request { direction: Direction::Download, bytes: 2 << 20 };
        let links = Some(vec![PathLinks { up: link.clone(), down: link, bottleneck: None }]);
        let report = run(Experiment {
            links,
            limit: Span::from_secs(60),
            ..Experiment::new(engine(), engine(), 1, request)
        })
        .unwrap();
        assert_eq!(report.completion_times(true).iter().flatten().count(), 1, "{:?}", report.client);
        let [up, down] = report.links[0];
        // One for every second segment, and a few that may still be on their way.
        assert!(2 * up.packets_delivered + 10 >= down.packets_delivered, "{up:?} {down:?}");
        assert!(down.packets_delivered > 1400, "no super-packets on a link: {down:?}");
    }
}
