//! One engine, one kernel, some paths, one transfer; and what both say afterwards.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;

use ropewalk_engine::PathId;
use ropewalk_engine::config::{
    BufferConfig, ConnectionConfig, EndpointConfig, LocalEndpoint, PathManagerConfig, TcpConfig,
};
use ropewalk_engine::endpoint::Endpoint;
use ropewalk_engine::{congestion, scheduler};
use ropewalk_host::entropy::OsEntropy;
use ropewalk_host::kernel::{self, SocketConfig};
use ropewalk_host::netns::Namespace;
use ropewalk_host::network::{KernelEnd, PathConfig, Side, client_address, server_address};
use ropewalk_host::transfer::{Direction, Outcome, Request, Role, Transfers, kernel_client, kernel_server};
use ropewalk_host::tun::Offload;
use ropewalk_host::world::{End, Meddler, PathLinks, World};

pub const PORT: u16 = 5000;
pub const SECOND: u64 = 1_000_000_000;

pub struct Case {
    /// Which end the engine is.
    pub engine: Side,
    pub paths: usize,
    /// Subflows that are expected, and waited for.
    pub subflows: usize,
    pub v6: bool,
    pub offload: Offload,
    pub request: Request,
    pub connections: usize,
    pub kernel_multipath: bool,
    pub kernel_checksum: bool,
    /// The kernel's congestion control.
    pub congestion: &'static str,
    /// nft rules in the kernel's namespace, one command each.
    pub rules: Vec<String>,
    pub links: Option<Vec<PathLinks>>,
    pub meddler: Option<Box<dyn Meddler>>,
    pub config: ConnectionConfig,
    pub limit: u64,
}

/// The engine's settings: like the kernel's.
pub fn config() -> ConnectionConfig {
    ConnectionConfig {
        tcp: TcpConfig::default(),
        multipath: true,
        checksum: false,
        send_buffer: BufferConfig::fixed(4 << 20),
        receive_buffer: BufferConfig::fixed(6 << 20),
        scheduler: scheduler::builtin().parse("minrtt").expect("a scheduler"),
        congestion: congestion::builtin().parse("cubic").expect("a congestion control"),
        path_manager: PathManagerConfig { subflows: 7, add_addr_accepted: 7, endpoints: Vec::new() },
        trace_decisions: false,
    }
}

impl Case {
    pub fn new(engine: Side, paths: usize, direction: Direction, bytes: u64) -> Case {
        Case {
            engine,
            paths,
            subflows: paths,
            v6: false,
            offload: Offload::Segmentation,
            request: Request { direction, bytes },
            connections: 1,
            kernel_multipath: true,
            kernel_checksum: false,
            congestion: "cubic",
            rules: Vec::new(),
            links: None,
            meddler: None,
            config: config(),
            limit: 20 * SECOND,
        }
    }
}

pub struct Report {
    pub engine: Vec<Outcome>,
    pub kernel: Vec<Outcome>,
    /// The kernel's MPTcpExt counters that aren't 0.
    pub counters: Vec<(String, u64)>,
    pub world: ropewalk_host::world::Counters,
}

impl Report {
    pub fn counter(&self, name: &str) -> u64 {
        let name = format!("MPTcpExt{name}");
        self.counters.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value)
    }

    /// Every byte arrived on both sides' word, and nothing went wrong.
    pub fn complete(&self, case: &str) {
        for outcome in self.engine.iter().chain(&self.kernel) {
            assert_eq!(outcome.error, None, "{case}: {:?} {:?}", self.counters, self.engine);
        }
        assert!(!self.engine.is_empty() && !self.kernel.is_empty(), "{case}: no transfer");
        // A segment that the peer's stack finds malformed would be a bug of ours or of the emulator.
        assert_eq!((self.world.malformed, self.world.unencodable), (0, 0), "{case}");
    }

    /// Multipath TCP held to the end with so many subflows, and the kernel counted no error.
    pub fn multipath(&self, case: &str, subflows: usize) {
        self.complete(case);
        for outcome in self.engine.iter().chain(&self.kernel) {
            assert!(outcome.multipath, "{case}: fell back: {:?}", self.counters);
            assert_eq!(outcome.subflows, subflows, "{case}: {:?}", self.counters);
        }
        for name in [
            "MPFallbackTokenInit",
            "MPJoinNoTokenFound",
            "MPJoinSynAckHMacFailure",
            "MPJoinAckHMacFailure",
            "DSSNotMatching",
            "DSSCorruptionFallback",
            "DSSCorruptionReset",
            "InfiniteMapTx",
            "InfiniteMapRx",
            "DSSNoMatchTCP",
            "DataCsumErr",
            "MPFailTx",
            "MPFailRx",
            "MPRstTx",
            "MPRstRx",
            "MPFastcloseTx",
            "MPFastcloseRx",
            "DSSFallback",
            "BlackHole",
        ] {
            assert_eq!(self.counter(name), 0, "{case}: {name} in {:?}", self.counters);
        }
    }
}

/// Why there can be no test against a kernel here, if so.
pub fn unavailable() -> Option<String> {
    let probe = || -> std::io::Result<()> {
        let path = PathConfig { name: "probe".into(), mtu: 1500, backup: false };
        let end = KernelEnd::new(Side::Server, &[path], Offload::Segmentation)?;
        let address = SocketAddr::new(server_address(false), PORT);
        kernel::listen(&end.namespace, address, &SocketConfig::default()).map(drop)
    };
    probe().err().map(|error| error.to_string())
}

/// Says so if there can be no kernel test here.
#[macro_export]
macro_rules! need_kernel {
    () => {
        if let Some(why) = $crate::harness::unavailable() {
            println!("skipped: {why}");
            return;
        }
    };
}

pub fn nft(namespace: &Namespace, rule: &str) {
    let output = namespace.command("nft").arg(rule).output().expect("nft runs");
    assert!(output.status.success(), "nft {rule}: {}", String::from_utf8_lossy(&output.stderr));
}

pub fn have(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

pub fn run(case: Case) -> Report {
    let kernel_side = if case.engine == Side::Client { Side::Server } else { Side::Client };
    let paths: Vec<_> =
        (0..case.paths).map(|at| PathConfig { name: format!("p{at}"), mtu: 1500, backup: false }).collect();
    let kernel_end = KernelEnd::new(kernel_side, &paths, case.offload).expect("a kernel end");
    let namespace_of = |end: &End| match end {
        End::Kernel(end) => end.namespace.fd().try_clone_to_owned().expect("a descriptor"),
        End::Engine(..) => unreachable!("asked for the kernel's"),
    };
    let checksum = if case.kernel_checksum { "1" } else { "0" };
    kernel_end.namespace.sysctl("net.mptcp.checksum_enabled", checksum).expect("a sysctl");
    kernel_end.namespace.sysctl("net.ipv4.tcp_no_metrics_save", "1").expect("a sysctl");
    for rule in &case.rules {
        nft(&kernel_end.namespace, rule);
    }
    let server = SocketAddr::new(server_address(case.v6), PORT);
    let mut config = case.config;
    let role = match case.engine {
        Side::Client => {
            config.path_manager.endpoints = (0..case.paths)
                .map(|at| LocalEndpoint {
                    address: client_address(at, case.v6),
                    port: None,
                    path: PathId(at as u16),
                    id: at as u8 + 1,
                    signal: false,
                    subflow: true,
                    backup: false,
                })
                .collect();
            Role::Client {
                requests: vec![case.request; case.connections],
                path: PathId(0),
                local: SocketAddr::new(client_address(0, case.v6), 0),
                remote: server,
            }
        }
        Side::Server => Role::Server { address: server, connections: case.connections },
    };
    let endpoint = Endpoint::new(EndpointConfig::default(), OsEntropy::new());
    let (transfers, engine) = Transfers::new(role, config, case.subflows);
    let engine_end = End::Engine(Box::new(endpoint), Box::new(transfers));
    let socket_config = SocketConfig {
        multipath: case.kernel_multipath,
        congestion: case.congestion,
        ..SocketConfig::default()
    };
    let listener = (case.engine == Side::Client)
        .then(|| kernel::listen(&kernel_end.namespace, server, &socket_config).expect("a listener"));
    let kernel_end = End::Kernel(kernel_end);
    let _keep = namespace_of(&kernel_end);
    let mut world = match case.engine {
        Side::Client => World::new(engine_end, kernel_end, case.paths),
        Side::Server => World::new(kernel_end, engine_end, case.paths),
    };
    if let Some(links) = &case.links {
        world.emulate(links, &[], 7);
    }
    if let Some(meddler) = case.meddler {
        world.meddle(meddler);
    }
    let clock = world.clock();
    let kernel = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (subflows, request, connections) = (case.subflows, case.request, case.connections);
    let local = client_address(0, case.v6);
    let world_end = std::thread::scope(|scope| {
        let mut workers = Vec::new();
        let stop = world.stopper();
        match listener {
            Some(listener) => {
                let kernel = Arc::clone(&kernel);
                listener.set_read_timeout(Some(std::time::Duration::from_secs(5))).expect("a timeout");
                workers.push(scope.spawn(move || {
                    for _ in 0..connections {
                        let Ok((socket, _)) = listener.accept() else { return };
                        let limit = Some(std::time::Duration::from_secs(10));
                        socket.set_read_timeout(limit).expect("a timeout");
                        let outcome = kernel_server(&socket, subflows, clock);
                        kernel.lock().expect("no panic").push(outcome);
                    }
                }));
            }
            None => {
                let End::Kernel(end) = &world.ends()[0] else { unreachable!("the client is the kernel") };
                let fd = end.namespace.fd().try_clone_to_owned().expect("a descriptor");
                for _ in 0..connections {
                    let kernel = Arc::clone(&kernel);
                    let fd = fd.try_clone().expect("a descriptor");
                    workers.push(scope.spawn(move || {
                        nix::sched::setns(&fd, nix::sched::CloneFlags::CLONE_NEWNET).expect("the namespace");
                        let started = clock.now();
                        let outcome = match kernel::connect_here(Some(local), server, &socket_config) {
                            Ok(socket) => {
                                let limit = Some(std::time::Duration::from_secs(10));
                                socket.set_read_timeout(limit).expect("a timeout");
                                kernel_client(&socket, request, subflows, clock, started)
                            }
                            Err(error) => Outcome {
                                started,
                                error: Some(format!("connect: {error}")),
                                ..Outcome::default()
                            },
                        };
                        kernel.lock().expect("no panic").push(outcome);
                    }));
                }
            }
        }
        // The kernel's side may still wait for our last word when ours is done.
        world.run(Some(case.limit)).expect("the world runs");
        let rest = clock.now();
        while workers.iter().any(|worker| !worker.is_finished()) && clock.now() < rest + 11 * SECOND {
            run_on(&mut world, clock.now() + SECOND / 500);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        for worker in workers {
            worker.join().expect("no panic");
        }
        world.stop();
        world
    });
    let end = world_end.ends().iter().find_map(|end| match end {
        End::Kernel(end) => Some(end.counters("MPTcpExt").expect("counters")),
        End::Engine(..) => None,
    });
    let kernel = std::mem::take(&mut *kernel.lock().expect("no panic"));
    let engine = std::mem::take(&mut *engine.lock().expect("no panic"));
    Report { engine, kernel, counters: end.unwrap_or_default(), world: world_end.counters() }
}

fn run_on(world: &mut World, until: u64) {
    while world.clock().now() < until {
        world.run(Some(until)).expect("the world runs");
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
}
